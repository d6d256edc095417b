//! What a backup says of new, changed and removed entries.

use std::process::Output;
use std::time::Duration;

use serde_json::Value;

use super::fixture::{Home, code, json, stderr, stdout};

/// Without the wait for late stores, a file counts as old at once.
const IMPATIENT: &str = "[read]\nrecheck_seconds = 0\n";

fn home() -> Home {
    let home = Home::new();
    home.write("config.toml", IMPATIENT.as_bytes());
    for name in ["src/same", "src/grows", "src/goes", "src/old/a", "src/old/deep/b", "src/turns"] {
        home.write(name, name.as_bytes());
    }
    std::os::unix::fs::symlink("same", home.path("src/link")).unwrap();
    settle();
    home
}

/// The clock of file systems may be a little behind.
fn settle() {
    std::thread::sleep(Duration::from_millis(50));
}

fn run(home: &Home, arguments: &[&str]) -> Output {
    let output = home.run(&[&["backup", "--config", "config.toml"], arguments].concat());
    assert!([0, 3].contains(&code(&output)), "{}", stderr(&output));
    output
}

fn report(home: &Home, arguments: &[&str]) -> Value {
    serde_json::from_slice(&run(home, &[&["--json"], arguments].concat()).stdout).unwrap()
}

/// Files that are new, changed, removed, unchanged, rechecked.
fn counts(report: &Value) -> [u64; 5] {
    ["new", "changed", "removed", "unchanged", "rechecked"]
        .map(|name| report[format!("files_{name}")].as_u64().unwrap_or_else(|| panic!("{name}: {report}")))
}

/// The lines that name a change.
fn named(output: &Output) -> Vec<String> {
    let lines = stderr(output);
    lines
        .lines()
        .filter(|line| ["+  ", "M  ", "-  "].iter().any(|start| line.starts_with(start)))
        .map(Into::into)
        .collect()
}

#[test]
fn new_changed_and_removed_entries_are_counted_and_named() {
    let home = home();
    assert_eq!(counts(&report(&home, &["src"])), [6, 0, 0, 0, 0]);
    home.write("src/grows", b"more than before");
    home.write("src/made/new", b"1234");
    std::fs::remove_file(home.path("src/goes")).unwrap();
    std::fs::remove_dir_all(home.path("src/old")).unwrap();
    std::fs::remove_file(home.path("src/turns")).unwrap();
    std::fs::create_dir(home.path("src/turns")).unwrap();
    std::fs::remove_file(home.path("src/link")).unwrap();
    std::os::unix::fs::symlink("grows", home.path("src/link")).unwrap();
    settle();
    let expected = [
        "-  src/goes  8 B",
        "M  src/grows  16 B",
        "M  src/link",
        "+  src/made/",
        "+  src/made/new  4 B",
        "-  src/old/",
        "-  src/old/a  9 B",
        "-  src/old/deep/",
        "-  src/old/deep/b  14 B",
        "+  src/turns/",
        "-  src/turns  9 B",
    ];
    for arguments in [&["src", "-v", "--dry-run"][..], &["src", "-v"]] {
        let output = run(&home, arguments);
        let mut lines = named(&output);
        lines.sort_by_key(|line| {
            line.trim_end_matches('/').split("  ").nth(1).unwrap().trim_end_matches('/').to_string()
        });
        assert_eq!(lines, expected, "{arguments:?}");
        let files = stdout(&output).lines().find(|line| line.starts_with("files ")).unwrap().to_string();
        assert!(files.ends_with(" 3 (1 new, 1 changed, 1 unchanged), 4 removed"), "{files}");
    }
    assert!(named(&run(&home, &["src"])).is_empty(), "only with -v");
    assert_eq!(counts(&report(&home, &["src"])), [0, 0, 0, 3, 0]);
    // How people try patterns.
    let left_out = run(&home, &["src", "-n", "-v", "--exclude", "made"]);
    assert_eq!(named(&left_out), ["-  src/made/", "-  src/made/new  4 B"]);
}

#[test]
fn what_was_not_asked_for_or_cannot_be_read_does_not_count_as_removed() {
    let home = home();
    home.write("other/c", b"c");
    settle();
    report(&home, &["src", "other"]);
    assert_eq!(counts(&report(&home, &["src"])), [0, 0, 0, 6, 0]);
    assert_eq!(counts(&report(&home, &["src/old"])), [0, 0, 0, 2, 0]);
    assert_eq!(counts(&report(&home, &["src/old", "src/missing", "src/same"])), [0, 0, 0, 3, 0]);
    report(&home, &["."]);
    std::fs::remove_file(home.path("src/same")).unwrap();
    assert_eq!(counts(&report(&home, &["."]))[2], 1, "the root is whole");
    assert_eq!(counts(&report(&home, &["src", "--force"]))[..3], [5, 0, 0]);
}

#[test]
fn files_that_are_read_again_say_why() {
    let home = home();
    json(&home.run(&["backup", "src", "--json"]));
    let output = home.run(&["backup", "src", "-v"]);
    assert!(named(&output).is_empty(), "{}", stderr(&output));
    let text = stdout(&output);
    let expected = "read again   6 files look unchanged, but changed less than 60 s before the last backup began, or are on \
                    a mounted image, where times prove nothing";
    assert!(text.lines().any(|line| line == expected), "{text}");
    assert_eq!(counts(&json(&home.run(&["backup", "src", "--json"]))), [0, 0, 0, 0, 6]);
}

#[test]
fn further_names_of_a_file_that_is_not_read_are_unchanged() {
    let home = Home::new();
    home.write("config.toml", IMPATIENT.as_bytes());
    for number in 0..3 {
        home.write(&format!("src/a{number}"), format!("file {number}").as_bytes());
        std::fs::hard_link(home.path(&format!("src/a{number}")), home.path(&format!("src/b{number}"))).unwrap();
    }
    settle();
    report(&home, &["src"]);
    assert_eq!(counts(&report(&home, &["src"])), [0, 0, 0, 6, 0]);
    std::fs::write(home.path("src/a1"), "changed").unwrap();
    settle();
    assert_eq!(counts(&report(&home, &["src"])), [0, 2, 0, 4, 0]);
}
