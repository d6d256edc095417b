//! A user with a home of their own, and what their commands answered.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

/// A directory that commands run in; their data and cache directories lie in it.
pub struct Home {
    directory: tempfile::TempDir,
}

impl Home {
    pub fn new() -> Self {
        Home { directory: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().canonicalize().unwrap().join(name)
    }

    pub fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    /// Number of a file's inode.
    pub fn inode(&self, name: &str) -> u64 {
        std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(self.path(name)).unwrap())
    }

    /// Names in a directory, sorted.
    pub fn names(&self, directory: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(directory)).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// The containers of the repository at this path, the largest last, by their paths.
    pub fn containers(&self, repository: &str) -> Vec<String> {
        let top = format!("{repository}/containers");
        let directories = self.names(&top).into_iter().map(|directory| format!("{top}/{directory}"));
        let of = |directory: String| {
            self.names(&directory).into_iter().map(move |name| format!("{directory}/{name}")).collect::<Vec<_>>()
        };
        let mut names: Vec<String> = directories.flat_map(of).collect();
        names.sort_by_key(|name| self.read(name).len());
        names
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(super::PROGRAM);
        command.args(arguments).current_dir(self.path(""));
        command.env("HOME", self.path("")).env("XDG_DATA_HOME", self.path("data"));
        command.env("XDG_CACHE_HOME", self.path("cache")).env("XDG_CONFIG_HOME", self.path("config"));
        command.env_remove("FHRD_REPO").env_remove("FHRD_CONFIG").env_remove("FHRD_PROFILE");
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// The names of the verbs that `fhrd --help` lists, but for `bench`: its program may not be built, and has tests of
    /// its own.
    pub fn verbs(&self) -> Vec<String> {
        let help = stdout(&self.run(&["--help"]));
        let section = help.split("\nOptions:\n").next().unwrap();
        let lines = section.lines().filter_map(|line| line.strip_prefix("  ")).filter(|line| !line.starts_with(' '));
        let names = lines.filter_map(|line| line.split_whitespace().next());
        names.filter(|name| !["bench", "help"].contains(name)).map(str::to_string).collect()
    }

    /// Runs a backup that must succeed, and returns its report.
    pub fn backup(&self, arguments: &[&str]) -> Value {
        json(&self.run(&[&["backup", "--json"], arguments].concat()))
    }
}

pub fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or(-1)
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The document a command that must succeed printed.
pub fn json(output: &Output) -> Value {
    assert_eq!(code(output), 0, "{}", stderr(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Whether the process ends soon whose number is in a file. Ends it otherwise.
pub fn is_gone(home: &Home, file: &str) -> bool {
    use rustix::process::{Pid, Signal, kill_process, test_kill_process};
    let number = String::from_utf8(home.read(file)).unwrap();
    let process = Pid::from_raw(number.trim().parse().unwrap()).unwrap();
    for _ in 0..50 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", number.trim())).unwrap_or_default();
        if test_kill_process(process).is_err() || stat.contains(") Z ") {
            return true;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let _ = kill_process(process, Signal::KILL);
    false
}
