//! The program as users run it, each test with caches and data of its own.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::input::set_known_key;

/// A place for one test: a repository, caches, and whatever else it makes.
pub struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    /// An empty place.
    pub fn new() -> Self {
        Place { directory: tempfile::tempdir().unwrap() }
    }

    /// With an empty repository whose key never changes, since sizes depend on it.
    pub fn with_repository() -> Self {
        let place = Place::new();
        place.run(&["init"]);
        set_known_key(&place.repository());
        place
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The repository's directory.
    pub fn repository(&self) -> PathBuf {
        self.path("repository")
    }

    /// `fhrd` with these words, for the repository of this place, in `directory`.
    pub fn command(&self, directory: &Path, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fhrd"));
        command
            .args(words)
            .args(["--json", "--quiet", "--repo"])
            .arg(self.repository())
            .current_dir(directory)
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("XDG_DATA_HOME", self.path("data"))
            .env_remove("FHRD_REPO")
            .env_remove("FHRD_CONFIG")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Starts `fhrd`.
    pub fn start(&self, words: &[&str]) -> Child {
        self.command(self.directory.path(), words).spawn().unwrap()
    }

    /// Runs `fhrd` in this place; it must succeed. Its JSON document.
    pub fn run(&self, words: &[&str]) -> Value {
        finished(self.command(self.directory.path(), words).output().unwrap(), &words.join(" "))
    }
}

/// The JSON document of a run that must have succeeded.
pub fn finished(output: Output, what: &str) -> Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {}: {errors}", output.status);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{what}: {error}: {errors}"))
}

/// A number of a report.
pub fn number(report: &Value, name: &str) -> u64 {
    report[name].as_u64().unwrap_or_else(|| panic!("no number `{name}` in {report}"))
}

/// promtool finds nothing to complain about in these metrics, where it is installed.
pub fn promtool(metrics: &[u8]) {
    let Some(program) = std::env::var_os("FHRD_TEST_PROMTOOL") else {
        println!("promtool is not tried: FHRD_TEST_PROMTOOL does not name it");
        return;
    };
    let mut child = Command::new(program)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(metrics).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The most memory that a process of the program has had, bytes. `None` until it runs the program: before that it shows
/// the memory of this process.
pub fn memory_max(process: u32) -> Option<u64> {
    let directory = Path::new("/proc").join(process.to_string());
    let own = std::fs::read_link("/proc/self/exe").unwrap();
    std::fs::read_link(directory.join("exe")).ok().filter(|exe| *exe != own)?;
    let status = std::fs::read_to_string(directory.join("status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().unwrap() << 10)
}
