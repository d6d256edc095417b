//! The parent of a backup and its time, as a user gives them.

use std::time::Duration;

use serde_json::Value;

use super::fixture::{Home, code, json, stderr};

/// Without the wait for late stores, a file counts as old at once.
const IMPATIENT: &str = "[read]\nrecheck_seconds = 0\n";

fn home() -> Home {
    let home = Home::new();
    home.write("config.toml", IMPATIENT.as_bytes());
    for name in ["a/one", "b/two", "c/three"] {
        home.write(name, name.as_bytes());
    }
    // The clock of file systems may be a little behind.
    std::thread::sleep(Duration::from_millis(50));
    home
}

fn backup(home: &Home, arguments: &[&str]) -> Value {
    let output = home.run(&[&["backup", "--json", "--config", "config.toml"], arguments].concat());
    assert!([0, 3].contains(&code(&output)), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn unchanged(report: &Value) -> u64 {
    report["files_unchanged"].as_u64().unwrap()
}

#[test]
fn one_path_more_or_less_reads_only_that_path() {
    let home = home();
    assert_eq!(unchanged(&backup(&home, &["a"])), 0);
    assert_eq!(unchanged(&backup(&home, &["a", "b"])), 1);
    assert_eq!(unchanged(&backup(&home, &["a"])), 1);
    assert_eq!(unchanged(&backup(&home, &["b"])), 1, "the snapshot before has it");
    assert_eq!(unchanged(&backup(&home, &["a", "b", "c"])), 2);
    assert_eq!(unchanged(&backup(&home, &["a/one", "b"])), 2, "a part of a path");
    assert_eq!(unchanged(&backup(&home, &["."])), 3, "a directory above");
    assert_eq!(unchanged(&backup(&home, &["a", "--force"])), 0);
    assert_eq!(unchanged(&backup(&home, &["a", "--host", "other"])), 0);
}

#[test]
fn a_path_that_was_missing_last_time_is_not_read_again() {
    let home = home();
    backup(&home, &["a", "b"]);
    std::fs::rename(home.path("b"), home.path("away")).unwrap();
    let without = backup(&home, &["a", "b"]);
    assert_eq!((without["problems"].as_u64(), unchanged(&without)), (Some(1), 1));
    std::fs::rename(home.path("away"), home.path("b")).unwrap();
    assert_eq!(unchanged(&backup(&home, &["a", "b"])), 2);
}

#[test]
fn a_parent_can_be_given() {
    let home = home();
    let first = backup(&home, &["a"]);
    let id = first["snapshot"].as_str().unwrap();
    assert_eq!(unchanged(&backup(&home, &["c", "--parent", id])), 0);
    let report = backup(&home, &["a", "--host", "other", "--parent", &id[..8]]);
    assert_eq!((unchanged(&report), report["parent"].as_str()), (1, Some(id)));
    let none = home.run(&["backup", "a", "--parent", "abcdef"]);
    assert!(code(&none) == 1 && stderr(&none).contains("abcdef"), "{}", stderr(&none));
    assert_eq!(code(&home.run(&["backup", "a", "--parent", id, "--force"])), 2);
}

#[test]
fn a_given_time_is_recorded_and_does_not_make_new_files_look_old() {
    let home = home();
    home.backup(&["a", "--time", "2099-01-01T12:00:00Z"]);
    let listed = json(&home.run(&["snapshots", "--json"]));
    assert!(listed[0]["time"].as_str().is_some_and(|time| time.starts_with("2099-01-01")), "{listed}");
    // The file is younger than the wait for late stores, whatever the time of the snapshot.
    let report = home.backup(&["a"]);
    assert_eq!((unchanged(&report), report["parent"].is_string()), (0, true));
    assert_eq!(unchanged(&backup(&home, &["a"])), 1);
    let wrong = home.run(&["backup", "a", "--time", "soon"]);
    assert!(code(&wrong) == 1 && stderr(&wrong).contains("soon"), "{}", stderr(&wrong));
}

#[test]
fn the_same_directory_given_relatively_and_absolutely_is_not_read_again() {
    let home = home();
    let (root, a) = (home.path(""), home.path("a"));
    let [root, a] = [&root, &a].map(|path| path.to_str().unwrap().trim_end_matches('/'));
    let nested = home.path("a/one");
    assert_eq!(unchanged(&backup(&home, &["a"])), 0);
    for arguments in [&[a][..], &["a"], &[nested.to_str().unwrap()], &["a/one"], &[a]] {
        let report = backup(&home, arguments);
        assert_eq!((unchanged(&report), report["files_removed"].as_u64()), (1, Some(0)), "{arguments:?}");
    }
    assert_eq!(unchanged(&backup(&home, &["."])), 1, "a directory above");
    assert_eq!(unchanged(&backup(&home, &[root])), 4, "with config.toml");
    assert_eq!(unchanged(&backup(&home, &["."])), 4);
    std::fs::remove_file(home.path("b/two")).unwrap();
    let report = backup(&home, &[home.path("b").to_str().unwrap()]);
    assert_eq!(report["files_removed"].as_u64(), Some(1), "{report}");
}

#[test]
fn a_path_that_is_not_there_says_what_the_snapshot_begins_with() {
    let home = home();
    backup(&home, &["a", "b"]);
    let absolute = format!("latest:{}", home.path("a").display());
    let output = home.run(&["ls", &absolute]);
    assert_eq!(code(&output), 1);
    let text = stderr(&output);
    assert!(text.contains("; its paths begin with `a`, `b`"), "{text}");
    let longest = text.split(|c: char| !c.is_ascii_hexdigit()).map(str::len).max();
    assert!(longest < Some(20), "{text}");
}
