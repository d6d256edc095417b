//! Restores of a part of a snapshot, and restores that delete what the snapshot does not have.

use std::os::unix::fs::symlink;

use super::fixture::{Home, code, json, stderr, stdout};
use super::tree::describe;

/// A home with a backup of `source` and `docs`.
fn stored(options: &[&str]) -> Home {
    let home = Home::new();
    for name in ["a.c", "b.h", "sub/c.c", "sub/skip/x.C", "log/today.log", "log/kept"] {
        home.write(&format!("source/{name}"), name.as_bytes());
    }
    home.write("docs/read me", b"text");
    home.backup(&[&["source", "docs"], options].concat());
    home
}

/// Paths of all files below a directory, sorted.
fn files(home: &Home, directory: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut waiting = vec![home.path(directory)];
    while let Some(path) = waiting.pop() {
        for entry in std::fs::read_dir(&path).unwrap() {
            let entry = entry.unwrap();
            match entry.file_type().unwrap().is_dir() {
                true => waiting.push(entry.path()),
                false => {
                    let path = entry.path().strip_prefix(home.path(directory)).unwrap().to_path_buf();
                    found.push(path.to_string_lossy().into_owned());
                }
            }
        }
    }
    found.sort();
    found
}

/// What a restore with these options writes into an empty directory.
fn restored(home: &Home, options: &[&str]) -> Vec<String> {
    let output = home.run(&[&["restore", "latest", "--target", "part"], options].concat());
    assert_eq!(code(&output), 0, "{options:?}: {}", stderr(&output));
    let found = files(home, "part");
    std::fs::remove_dir_all(home.path("part")).unwrap();
    found
}

#[test]
fn patterns_choose_what_is_restored() {
    let home = stored(&[]);
    home.write("patterns", b"# the sources\n*.h\n\n!b.h\n/docs\n");
    let all = ["docs/read me", "source/a.c", "source/b.h", "source/log/kept", "source/log/today.log", "source/sub/c.c"];
    let cases: [(&[&str], &[&str]); 8] = [
        (&["--include", "*.c"], &["source/a.c", "source/sub/c.c"]),
        (&["--iinclude", "*.c"], &["source/a.c", "source/sub/c.c", "source/sub/skip/x.C"]),
        (&["--exclude", "skip"], &all),
        (&["-e", "*.log", "--iexclude", "*.C", "--path", "source"], &["source/b.h", "source/log/kept"]),
        (&["-i", "/source", "--exclude", "sub", "--exclude", "log/"], &["source/a.c", "source/b.h"]),
        (&["-i", "source", "-i", "!*.c", "-i", "!log", "-e", "skip"], &["source/b.h"]),
        (&["--include-file", "patterns"], &["docs/read me"]),
        (&["--iinclude-file", "patterns", "--exclude-file", "patterns", "-i", "a.c"], &["source/a.c"]),
    ];
    for (options, expected) in cases {
        assert_eq!(restored(&home, options), expected, "{options:?}");
    }
    // Of directories only those that are needed.
    let output = home.run(&["restore", "latest", "--target", "part", "--include", "today.log"]);
    assert_eq!(
        (code(&output), home.names("part"), home.names("part/source")),
        (0, vec!["source".into()], vec!["log".into()])
    );
    // In `SNAPSHOT:PATH` the patterns begin there.
    let output =
        home.run(&["restore", "latest:source", "--target", "below", "--include", "/sub", "--exclude", "/sub/skip"]);
    assert_eq!((code(&output), files(&home, "below")), (0, vec!["sub/c.c".to_string()]), "{}", stderr(&output));
}

#[test]
fn patterns_that_include_nothing_are_a_problem() {
    let home = stored(&[]);
    let output = home.run(&["restore", "latest", "--target", "part", "--include", "*.cc"]);
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).contains("no entry that the patterns include"), "{}", stderr(&output));
    let output = home.run(&["restore", "latest", "--tensor", "w", "--include", "*.c"]);
    assert_eq!(code(&output), 2);
}

#[test]
fn delete_removes_what_the_snapshot_lacks() {
    let home = stored(&[]);
    let restore = ["restore", "latest", "--target", "back", "--delete"];
    json(&home.run(&[&restore[..], &["--json"]].concat()));
    let original = describe(&home.path("source"));
    assert_eq!(describe(&home.path("back/source")), original);
    home.write("outside/precious", b"p");
    for name in ["extra", "sub/new/deep/file", "sub/skip/y", "mine"] {
        home.write(&format!("back/source/{name}"), b"new");
    }
    home.write("back/beside", b"the snapshot's root was not stored whole");
    symlink(home.path("outside"), home.path("back/source/way out")).unwrap();
    let output = home.run(&[&restore[..], &["--dry-run", "--exclude", "mine"]].concat());
    let printed = stdout(&output);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    for path in ["extra", "sub/new/deep/file", "sub/new/deep", "sub/new", "sub/skip/y", "way out"] {
        assert!(printed.contains(&format!("would delete source/{path}\n")), "{path}: {printed}");
    }
    assert!(!printed.contains("mine") && !printed.contains("beside"), "{printed}");
    assert!(home.path("back/source/extra").exists());
    let report = json(&home.run(&[&restore[..], &["--json", "--exclude", "mine"]].concat()));
    assert_eq!((&report["deleted"], &report["problems"]), (&6.into(), &0.into()), "{report}");
    assert_eq!(report["deleted_entries"].as_array().unwrap().len(), 6);
    assert_eq!(files(&home, "back/source").len(), 7, "what the restore leaves out stays");
    assert!(home.path("back/beside").exists());
    assert_eq!(home.read("outside/precious"), b"p");
    let report = json(&home.run(&[&restore[..], &["--json"]].concat()));
    assert_eq!(report["deleted_entries"], serde_json::json!(["source/mine"]));
    assert_eq!(describe(&home.path("back/source")), original, "times of directories, too");
}

#[test]
fn delete_leaves_directories_alone_that_were_not_stored_whole() {
    let home = stored(&["--exclude", "*.log"]);
    assert_eq!(code(&home.run(&["restore", "latest", "--target", "back"])), 0);
    for name in ["log/today.log", "log/other", "sub/other"] {
        home.write(&format!("back/source/{name}"), b"new");
    }
    let report = json(&home.run(&["restore", "latest", "--target", "back", "--delete", "--json"]));
    assert_eq!(report["deleted_entries"], serde_json::json!(["source/sub/other"]));
    assert_eq!(files(&home, "back/source/log"), ["kept", "other", "today.log"]);
}

#[test]
fn delete_needs_a_restore_without_problems() {
    let home = stored(&[]);
    home.write("back/source/a.c/in the way", b"x");
    home.write("back/source/extra", b"x");
    let output = home.run(&["restore", "latest", "--target", "back", "--delete", "--overwrite", "always"]);
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).contains("nothing is deleted"), "{}", stderr(&output));
    assert!(home.path("back/source/extra").exists());
}

#[test]
fn delete_spares_the_repository_and_the_root() {
    let home = stored(&[]);
    assert_eq!(code(&home.run(&["restore", "latest", "--target", "back"])), 0);
    std::fs::create_dir(home.path("back/source/vault")).unwrap();
    std::fs::rename(home.path("data/fhrd/repository"), home.path("back/source/vault/repository")).unwrap();
    home.write("back/source/vault/other", b"x");
    let repo = ["--repo", "back/source/vault/repository"];
    let output = home.run(&[&["restore", "latest", "--target", "back", "--delete"], &repo[..]].concat());
    assert_eq!(code(&output), 1, "it says that something stays");
    assert!(stderr(&output).contains("the repository is there"), "{}", stderr(&output));
    assert_eq!(code(&home.run(&[&["check"], &repo[..]].concat())), 0);
    let output = home.run(&[&["restore", "latest", "--target", "/", "--delete", "--dry-run"], &repo[..]].concat());
    assert_ne!(code(&output), 0);
    assert!(stderr(&output).contains("--path or --include"), "{}", stderr(&output));
}
