//! Who may read what the program writes, and what it refuses to read.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::fixture::{Home, code, stderr};

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().permissions().mode() & 0o777
}

/// Calls `visit` with every file below a directory.
fn each_file(directory: &Path, visit: &mut dyn FnMut(&Path)) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            each_file(&path, visit);
        } else {
            visit(&path);
        }
    }
}

#[test]
fn every_file_of_repository_cache_and_state_is_for_its_owner_only() {
    let home = Home::new();
    home.write("src/a", &[7; 100_000]);
    home.write("password", b"secret\n");
    let sealed = ["--repo", "sealed", "--password-file", "password"];
    for words in [
        &["init"][..],
        &["backup", "src"],
        &["backup", "src", "--force"],
        &[&["init", "--encrypt"], &sealed[..]].concat(),
        &[&["backup", "src"], &sealed[..]].concat(),
        &["snapshots"],
        &["check", "--read-data"],
        &["tag", "--add", "x", "latest"],
        &["prune", "--grace", "0"],
        &["trace", "src", "--output", "trace"],
    ] {
        let output = home.run(words);
        assert!(code(&output) == 0 || words[0] == "init", "{words:?}: {}", stderr(&output));
    }
    let (mut files, root) = (0, home.path(""));
    let mut check = |path: &Path| {
        files += 1;
        let is_input = path.starts_with(home.path("src")) || path == home.path("password");
        assert!(is_input || mode(path) & 0o077 == 0, "{}: {:o}", path.display(), mode(path));
    };
    each_file(&root, &mut check);
    assert!(files > 10, "{files}");
}

#[test]
fn an_output_file_gives_nobody_more_than_the_stored_file() {
    let home = Home::new();
    for (name, bits) in [("src/secret", 0o600), ("src/shared", 0o640), ("src/open", 0o755), ("src/closed", 0o400)] {
        home.write(name, b"content");
        std::fs::set_permissions(home.path(name), std::fs::Permissions::from_mode(bits)).unwrap();
    }
    home.backup(&["src"]);
    // The group of the output is not that of the stored file.
    for (name, bits) in [("src/secret", 0o600), ("src/shared", 0o600), ("src/open", 0o755), ("src/closed", 0o400)] {
        let output = home.run(&["dump", &format!("latest:{name}"), "--output", &name.replace('/', "-")]);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        let written = mode(&home.path(&name.replace('/', "-")));
        assert_eq!((written & !bits, written & 0o700), (0, bits & 0o700), "{name}: {written:o}");
    }
    assert_eq!(code(&home.run(&["dump", "latest:src", "--output", "archive.tar"])), 0);
    assert_eq!(mode(&home.path("archive.tar")), 0o600);
}

#[test]
fn a_file_without_an_end_is_refused_wherever_an_option_names_one() {
    let home = Home::new();
    home.write("src/a", b"a");
    home.backup(&["src"]);
    for words in [
        &["backup", "src", "--config", "/dev/zero"][..],
        &["backup", "--profile", "/dev/zero"],
        &["backup", "src", "--files-from", "/dev/zero"],
        &["backup", "src", "--files-from0", "/dev/zero"],
        &["backup", "src", "--exclude-file", "/dev/zero"],
        &["init", "--encrypt", "--repo", "sealed", "--password-file", "/dev/zero"],
        &["init", "--encrypt", "--repo", "sealed", "--key-file", "/dev/zero"],
        &["init", "--encrypt", "--repo", "sealed", "--password-command", "yes"],
    ] {
        let mut command = home.command(words);
        // What has no limit ends here, and not with the memory of the machine.
        let mut limited = std::process::Command::new("prlimit");
        limited.arg("--as=4000000000").arg(command.get_program()).args(command.get_args());
        limited.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
        if let Some(directory) = command.get_current_dir() {
            limited.current_dir(directory);
        }
        let output = limited.output().unwrap_or_else(|_| command.output().unwrap());
        assert!([1, 2, 12].contains(&code(&output)), "{words:?}: {:?} {}", output.status, stderr(&output));
    }
}

#[test]
fn a_user_without_a_home_directory_needs_only_a_repository() {
    use std::os::unix::process::CommandExt;
    if !rustix::process::geteuid().is_root() {
        eprintln!("NOT TESTED: a user without a home directory, which only root can become");
        return;
    }
    let home = Home::new();
    home.write("src/a", b"letter");
    let program = home.path("fhrd");
    std::fs::copy(env!("CARGO_BIN_EXE_fhrd"), &program).unwrap();
    for (name, mode) in [("", 0o777), ("src", 0o755), ("src/a", 0o644), ("fhrd", 0o755)] {
        std::fs::set_permissions(home.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let run = |words: &[&str]| {
        let mut command = std::process::Command::new(&program);
        command.args(words).args(["--repo", "repo"]).current_dir(home.path("")).uid(54_321).gid(54_321).env_clear();
        command.output().unwrap()
    };
    assert_eq!(code(&run(&["init"])), 0);
    let first = run(&["backup", "src"]);
    assert!(code(&first) == 0 && stderr(&first).contains("nothing is cached"), "{}", stderr(&first));
    let verbs = ["backup src", "restore latest --target back", "stats", "check", "prune", "repair index", "ls latest"];
    for verb in verbs {
        let output = run(&verb.split(' ').collect::<Vec<_>>());
        assert_eq!(code(&output), 0, "{verb}: {}", stderr(&output));
    }
    assert_eq!(home.read("back/src/a"), b"letter");
}
