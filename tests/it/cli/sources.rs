//! Paths that are stored as others, and several streams in one snapshot.

use serde_json::Value;

use super::fixture::{Home, code, json, stderr, stdout};

fn entries(home: &Home, snapshot: &str) -> Vec<String> {
    let listed = stdout(&home.run(&["ls", snapshot]));
    listed.lines().map(|line| line.rsplit(' ').next().unwrap().to_string()).collect()
}

fn number(report: &Value, key: &str) -> u64 {
    report[key].as_u64().unwrap_or_else(|| panic!("{key} in {report}"))
}

/// A file system and two snapshots of it: hard links, so that names of one file have one inode, as in a real snapshot.
fn home_with_snapshots() -> Home {
    let home = Home::new();
    for name in ["data/a", "data/cache/b", "data/deep/c"] {
        home.write(name, name.as_bytes());
    }
    for snapshot in ["mnt/1", "mnt/2"] {
        for name in ["a", "cache/b", "deep/c"] {
            let to = home.path(&format!("{snapshot}/{name}"));
            std::fs::create_dir_all(to.parent().unwrap()).unwrap();
            std::fs::hard_link(home.path(&format!("data/{name}")), to).unwrap();
        }
    }
    home.write("mnt/2/new", b"new");
    home
}

#[test]
fn a_snapshot_of_a_file_system_is_stored_as_the_live_one() {
    let home = home_with_snapshots();
    let live = home.path("data").to_str().unwrap().to_string();
    let exclude = format!("{live}/cache");
    let first = home.backup(&[&live, "--exclude", &exclude]);
    assert_eq!((number(&first, "files"), number(&first, "excluded")), (2, 1));
    let backup = |arguments: &[&str]| home.backup(&[&["--as-path", &live, "--exclude", &exclude], arguments].concat());
    let second = backup(&["mnt/1"]);
    assert_eq!(second["parent"], first["snapshot"], "{second}");
    // They are new: some are read again although nothing has changed.
    let same = |report: &Value| number(report, "files_unchanged") + number(report, "files_rechecked");
    assert_eq!((same(&second), number(&second, "excluded")), (2, 1), "{second}");
    let third = backup(&["mnt/../mnt/2/."]);
    assert_eq!(third["parent"], second["snapshot"]);
    assert_eq!((same(&third), number(&third, "files_new"), number(&third, "files")), (2, 1, 3), "{third}");
    let listed = json(&home.run(&["snapshots", "--json"]));
    for snapshot in listed.as_array().unwrap() {
        assert_eq!(snapshot["paths"], serde_json::json!([live]), "{snapshot}");
    }
    let stored = format!("latest:{live}");
    assert_eq!(code(&home.run(&["restore", &stored, "--target", "back"])), 0);
    assert_eq!(home.names("back"), ["a", "deep", "new"]);
    // The whole snapshot has the directories above as they are.
    assert_eq!(code(&home.run(&["restore", "latest", "--target", "whole"])), 0);
    assert_eq!(home.read(&format!("whole{live}/deep/c")), b"data/deep/c");
}

#[test]
fn a_stored_path_may_have_parents_that_are_not_here() {
    let home = home_with_snapshots();
    for (stored, expected) in [
        ("/no/such/volume", vec!["/no", "/no/such", "/no/such/volume", "/no/such/volume/a"]),
        ("volume", vec!["volume", "volume/a"]),
        ("/", vec!["/a"]),
    ] {
        let report = home.backup(&["mnt/1", "--as-path", stored, "--exclude", "cache", "--exclude", "deep"]);
        assert_eq!((number(&report, "files"), number(&report, "problems")), (1, 0), "{stored}: {report}");
        let found = entries(&home, "latest");
        let expected: Vec<&str> = expected.into_iter().map(|path| path.trim_start_matches('/')).collect();
        let found: Vec<&str> =
            found.iter().map(|path| path.trim_matches('/')).filter(|path| !path.is_empty()).collect();
        assert_eq!(found, expected, "{stored}");
        assert_eq!(code(&home.run(&["restore", "latest", "--target", &format!("back/{stored}")])), 0, "{stored}");
    }
    // A file, too.
    home.backup(&["mnt/1/a", "--as-path", "/no/such/file"]);
    assert_eq!(stdout(&home.run(&["dump", "latest:/no/such/file"])), "data/a");
    // Patterns see the stored path, not the one on disk.
    let report = home.backup(&["mnt/1", "--as-path", "/srv/x", "--exclude", "/srv/x/*/b", "--exclude", "mnt"]);
    assert_eq!((number(&report, "files"), number(&report, "excluded")), (2, 1));
}

#[test]
fn a_stored_path_that_cannot_be_used_is_refused() {
    let home = home_with_snapshots();
    for (arguments, part) in [
        (&["mnt/1", "mnt/2", "--as-path", "/data"][..], "one path"),
        (&["mnt/1", "--as-path", "/data/../x"], ".."),
        (&["mnt/1/a", "--as-path", "/"], "only a directory"),
        (&["mnt/none", "--as-path", "/data"], "mnt/none"),
    ] {
        let output = home.run(&[&["backup"], arguments].concat());
        assert!(code(&output) == 1 && stderr(&output).contains(part), "{arguments:?}: {}", stderr(&output));
    }
    assert_eq!(code(&home.run(&["backup", "--stdin", "--as-path", "/data"])), 2);
}

#[test]
fn several_commands_are_one_snapshot() {
    let home = Home::new();
    let named = |values: &[&str]| {
        let options = values.iter().flat_map(|value| ["--stdin-from-command", value]);
        home.run(&["backup", "--json"].into_iter().chain(options).collect::<Vec<_>>())
    };
    let report = json(&named(&["b.sql=echo b; echo $((1 + 1)) = 2", "a.sql=printf a", "c=true"]));
    assert_eq!((number(&report, "files"), number(&report, "bytes")), (3, 9), "{report}");
    assert_eq!(entries(&home, "latest"), ["a.sql", "b.sql", "c"]);
    assert_eq!(stdout(&home.run(&["dump", "latest:b.sql"])), "b\n2 = 2\n");
    let listed = json(&home.run(&["snapshots", "--json"]));
    assert_eq!(listed[0]["paths"], serde_json::json!(["/a.sql", "/b.sql", "/c"]));
    for (values, part) in [
        // The last one fails after others were stored.
        (&["a=echo a", "b=echo b; exit 7"][..], "7"),
        (&["a=echo a", "a=echo b"], "two streams"),
        (&["a=", "b=echo"], "NAME=COMMAND"),
        (&["echo", "b=echo"], "NAME=COMMAND"),
        (&["a/b=echo"], "without slashes"),
        (&["=echo"], "without slashes"),
    ] {
        let output = named(values);
        assert!(code(&output) == 1 && stderr(&output).contains(part), "{values:?}: {}", stderr(&output));
    }
    assert_eq!(json(&home.run(&["snapshots", "--json"])).as_array().unwrap().len(), 1);
    // The form without names takes a command that follows, with and without dashes.
    for command in [&["--", "printf", "x"][..], &["printf", "x"]] {
        home.backup(&[&["--stdin-from-command"], command].concat());
        assert_eq!(stdout(&home.run(&["dump", "latest:stdin"])), "x", "{command:?}");
    }
}

#[test]
fn a_profile_has_a_stored_path_or_commands() {
    let home = home_with_snapshots();
    let profile = |text: &str| {
        home.write("config/fhrd/nightly.toml", format!("repo = 'store'\n[backup]\n{text}\n").as_bytes());
    };
    profile("paths = ['mnt/1']\nas_path = 'data'");
    assert_eq!(code(&home.run(&["init", "--profile", "nightly"])), 0);
    let report = home.backup(&["--profile", "nightly"]);
    assert_eq!(number(&report, "files"), 3);
    let listed = json(&home.run(&["snapshots", "--profile", "nightly", "--json"]));
    assert_eq!(listed[0]["paths"][0].as_str().unwrap(), home.path("data").to_str().unwrap());
    // Paths of the command line have nothing to do with it.
    home.backup(&["--profile", "nightly", "mnt/1", "mnt/2"]);
    profile("stdin_from_command = ['x=echo x', 'y=echo y']");
    assert_eq!(number(&home.backup(&["--profile", "nightly"]), "files"), 2);
    assert_eq!(number(&home.backup(&["--profile", "nightly", "mnt/1"]), "files"), 3);
    profile("paths = ['mnt/1']\nstdin_from_command = ['x=echo x']");
    let output = home.run(&["backup", "--profile", "nightly"]);
    assert!(code(&output) == 1 && stderr(&output).contains("either"), "{}", stderr(&output));
}
