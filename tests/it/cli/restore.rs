//! Restores into directories that hold something: what is replaced, what stays, and what is only looked at.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;

use super::fixture::{Home, code, json, stderr};
use super::tree::{describe, noise, plant};

/// A home with a backup of the directory `source`.
fn stored() -> Home {
    let home = Home::new();
    plant(&home.path("source"));
    home.backup(&["source"]);
    home
}

fn restore(home: &Home, options: &[&str]) -> (i32, Value) {
    let output = home.run(&[&["restore", "latest", "--target", "back", "--json"], options].concat());
    (code(&output), serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output))))
}

fn count(report: &Value, key: &str) -> u64 {
    report[key].as_u64().unwrap_or_else(|| panic!("{key} in {report}"))
}

fn is_restored(home: &Home) -> bool {
    describe(&home.path("back/source")) == describe(&home.path("source"))
}

/// Sets a file's time of change.
fn touch(home: &Home, name: &str, time: SystemTime) {
    std::fs::File::options().append(true).open(home.path(name)).unwrap().set_modified(time).unwrap();
}

#[test]
fn a_second_run_writes_only_what_is_missing_or_different() {
    let home = stored();
    let (exit, first) = restore(&home, &["--sync", "--verify"]);
    assert_eq!((exit, count(&first, "unchanged"), count(&first, "replaced")), (0, 0, 0), "{first}");
    let entries = count(&first, "files") + count(&first, "others");
    assert_eq!(count(&first, "verified"), entries);
    let inode = home.inode("back/source/floats");
    for policy in [&[][..], &["--overwrite", "if-changed"], &["--overwrite", "always", "--verify"]] {
        let (exit, again) = restore(&home, policy);
        assert_eq!((exit, count(&again, "unchanged"), count(&again, "bytes")), (0, entries, 0), "{policy:?}: {again}");
        assert_eq!((count(&again, "files"), count(&again, "left_alone"), count(&again, "frames")), (0, 0, 0));
        assert!(is_restored(&home) && inode == home.inode("back/source/floats"));
    }
    std::fs::remove_file(home.path("back/source/deep/text with a change")).unwrap();
    let (exit, missing) = restore(&home, &[]);
    assert_eq!((exit, count(&missing, "files"), count(&missing, "unchanged")), (0, 1, entries - 1), "{missing}");
    assert!(is_restored(&home));
}

#[test]
fn each_policy_replaces_what_it_says() {
    let home = stored();
    restore(&home, &[]);
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
    let mine = || {
        home.write("back/source/text", b"mine");
        home.write("back/source/floats", b"old");
        touch(&home, "back/source/floats", long_ago);
    };
    mine();
    let (exit, report) = restore(&home, &[]);
    assert_eq!((exit, count(&report, "left_alone"), count(&report, "replaced")), (1, 2, 0), "{report}");
    let (exit, report) = restore(&home, &["--overwrite", "never"]);
    assert_eq!((exit, count(&report, "left_alone")), (0, 2), "{report}");
    assert_eq!((home.read("back/source/text"), home.read("back/source/floats")), (b"mine".to_vec(), b"old".to_vec()));
    let (exit, report) = restore(&home, &["--overwrite", "if-newer"]);
    assert_eq!((exit, count(&report, "left_alone"), count(&report, "replaced")), (0, 1, 1), "{report}");
    assert_eq!(home.read("back/source/text"), b"mine", "it is newer than the snapshot");
    let (exit, report) = restore(&home, &["--overwrite", "if-changed"]);
    assert_eq!((exit, count(&report, "left_alone"), count(&report, "replaced")), (0, 0, 1), "{report}");
    assert!(is_restored(&home));
    mine();
    assert_eq!(restore(&home, &["--overwrite", "always"]).0, 0);
    assert!(is_restored(&home));
}

#[test]
fn a_change_of_metadata_alone_is_named() {
    let home = stored();
    restore(&home, &[]);
    let mode = || home.path("back/source/text").metadata().unwrap().permissions().mode() & 0o777;
    let before = mode();
    let set = |mode| std::fs::set_permissions(home.path("back/source/text"), Permissions::from_mode(mode)).unwrap();
    for (policy, what) in [("if-changed", "set the mode"), ("always", "set the mode")] {
        set(0o601);
        let restore = ["restore", "latest", "--target", "back", "--overwrite", policy, "-v"];
        let dry = stderr(&home.run(&[&restore[..], &["--dry-run"]].concat()));
        assert!(dry.contains(&format!("source/text: the same content, would {what}\n")), "{dry}");
        assert_eq!(mode(), 0o601);
        let done = stderr(&home.run(&restore));
        assert!(done.contains(&format!("source/text: the same content, {what}\n")), "{done}");
        assert_eq!(mode(), before);
        assert!(stderr(&home.run(&restore)).contains("source/text: unchanged\n"));
    }
    // Directories that are there get the stored metadata without --overwrite, too.
    std::fs::set_permissions(home.path("back/source"), Permissions::from_mode(0o701)).unwrap();
    assert_eq!(restore(&home, &[]).0, 0);
    assert!(is_restored(&home));
}

#[test]
fn content_that_changed_behind_the_time_is_found_by_comparing() {
    let home = stored();
    restore(&home, &[]);
    let (name, time) = ("back/source/deep/er/noise", home.path("source/deep/er/noise").metadata().unwrap());
    let mut bytes = home.read(name);
    bytes[2_000_000] ^= 1;
    home.write(name, &bytes);
    touch(&home, name, time.modified().unwrap());
    let (exit, report) = restore(&home, &["--overwrite", "if-changed"]);
    assert_eq!((exit, count(&report, "replaced")), (0, 0), "size and time are the same");
    let output = home.run(&["restore", "latest", "--target", "back", "--verify"]);
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).contains("deep/er/noise: its content differs"), "{}", stderr(&output));
    let (exit, report) = restore(&home, &["--overwrite", "always", "--verify"]);
    assert_eq!(exit, 0);
    // Both names of the inode are replaced. What did not change comes from the old file.
    assert_eq!(count(&report, "replaced"), 2, "{report}");
    assert!(count(&report, "bytes_reused") > 1_000_000 && count(&report, "bytes") < 2_000_000, "{report}");
    assert!(is_restored(&home));
}

#[test]
fn metadata_alone_is_repaired() {
    let home = stored();
    restore(&home, &[]);
    let inode = home.inode("back/source/text");
    std::fs::set_permissions(home.path("back/source/text"), PermissionsExt::from_mode(0o666)).unwrap();
    touch(&home, "back/source/deep/er/est/one byte", SystemTime::UNIX_EPOCH);
    let (exit, report) = restore(&home, &["--overwrite", "if-changed"]);
    assert_eq!((exit, count(&report, "bytes"), count(&report, "replaced")), (0, 0, 0), "{report}");
    assert!(is_restored(&home) && inode == home.inode("back/source/text"));
}

#[test]
fn links_in_the_target_lead_nowhere() {
    let home = stored();
    home.write("outside/precious", b"precious");
    home.write("outside/linked", &home.read("source/text"));
    std::fs::set_permissions(home.path("outside/linked"), PermissionsExt::from_mode(0o640)).unwrap();
    let outside = describe(&home.path("outside"));
    std::fs::create_dir_all(home.path("back/source")).unwrap();
    let plant_links = || {
        symlink(home.path("outside"), home.path("back/source/deep")).unwrap();
        symlink(home.path("outside/precious"), home.path("back/source/floats")).unwrap();
        symlink(home.path("outside/new"), home.path("back/source/empty")).unwrap();
        std::fs::hard_link(home.path("outside/linked"), home.path("back/source/text")).unwrap();
    };
    plant_links();
    let (exit, report) = restore(&home, &[]);
    assert_eq!((exit, count(&report, "left_alone")), (1, 4), "{report}");
    assert!(home.path("back/source/deep").is_symlink());
    let names = |before: &std::collections::BTreeMap<PathBuf, _>| before.keys().cloned().collect::<Vec<PathBuf>>();
    assert_eq!(names(&describe(&home.path("outside"))), names(&outside));
    std::fs::remove_dir_all(home.path("back/source")).unwrap();
    std::fs::create_dir_all(home.path("back/source")).unwrap();
    plant_links();
    let (exit, report) = restore(&home, &["--overwrite", "always", "--verify"]);
    assert_eq!((exit, count(&report, "replaced")), (0, 4), "{report}");
    assert!(is_restored(&home));
    assert_eq!(describe(&home.path("outside")), outside, "something outside has changed");
}

#[test]
fn a_directory_in_the_way_stays_with_what_it_holds() {
    let home = stored();
    home.write("back/source/text/mine", b"mine");
    let (exit, report) = restore(&home, &["--overwrite", "always"]);
    assert_eq!((exit, count(&report, "problems")), (1, 1), "{report}");
    assert_eq!(home.read("back/source/text/mine"), b"mine");
    assert!(home.path("back/source/floats").exists());
}

#[test]
fn a_dry_run_tells_the_same_and_changes_nothing() {
    let home = stored();
    let counts = |report: &Value| {
        let keys = ["files", "directories", "others", "unchanged", "replaced", "left_alone", "problems"];
        keys.map(|key| count(report, key))
    };
    let (exit, planned) = restore(&home, &["--dry-run"]);
    assert_eq!((exit, &planned["dry_run"]), (0, &Value::Bool(true)));
    assert!(!home.path("back").exists());
    let (_, done) = restore(&home, &[]);
    assert_eq!(counts(&planned), counts(&done));
    home.write("back/source/text", b"mine");
    std::fs::remove_file(home.path("back/source/floats")).unwrap();
    std::fs::remove_dir_all(home.path("back/source/deep/er")).unwrap();
    symlink("elsewhere", home.path("back/source/deep/er")).unwrap();
    let before = describe(&home.path("back"));
    for policy in ["never", "if-changed", "always"] {
        let (exit, planned) = restore(&home, &["--overwrite", policy, "--dry-run"]);
        assert_eq!((exit, describe(&home.path("back")) == before), (0, true), "{policy}");
        if policy == "always" {
            let (_, done) = restore(&home, &["--overwrite", policy]);
            assert_eq!(counts(&planned), counts(&done));
        }
    }
    assert!(is_restored(&home));
}

#[test]
fn a_path_restores_that_part() {
    let home = stored();
    std::fs::create_dir_all(home.path("back/source")).unwrap();
    std::fs::set_permissions(home.path("back/source"), PermissionsExt::from_mode(0o711)).unwrap();
    let (exit, report) = restore(&home, &["--path", "source/deep/er", "--path", "/source/text"]);
    assert_eq!((exit, count(&report, "files")), (0, 3), "{report}");
    assert_eq!(home.names("back/source"), ["deep", "text"]);
    assert_eq!(home.names("back/source/deep"), ["er"]);
    let mode = |name: &str| home.path(name).metadata().unwrap().mode() & 0o7777;
    assert_eq!((mode("back/source"), mode("back/source/deep/er")), (0o711, 0o1777), "a parent that existed stays");
    assert_eq!(mode("back/source/deep"), mode("source/deep"));
    let output = home.run(&["restore", "latest", "--target", "back", "--path", "source/nothing"]);
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).contains("no entry source/nothing"), "{}", stderr(&output));
    assert_eq!(code(&home.run(&["restore", "latest", "--target", "back", "--path", "../x"])), 1);
}

#[test]
fn an_entry_named_with_its_snapshot_fills_the_target() {
    let home = stored();
    let restored = |entry: &str, target: &str| code(&home.run(&["restore", entry, "--target", target]));
    assert_eq!(restored("latest:source/deep", "deep"), 0);
    assert!(home.read("deep/er/noise") == home.read("source/deep/er/noise"));
    assert_eq!(home.path("deep/er").metadata().unwrap().mode(), home.path("source/deep/er").metadata().unwrap().mode());
    assert_eq!(restored("latest:/source/text", "one"), 0);
    assert_eq!((home.names("one"), home.read("one/text")), (vec!["text".to_string()], home.read("source/text")));
    let part = ["restore", "latest:source", "--path", "deep/er/est", "--target", "part"];
    assert_eq!(code(&home.run(&part)), 0);
    assert_eq!((home.names("part"), home.names("part/deep/er")), (vec!["deep".to_string()], vec!["est".to_string()]));
    for missing in ["latest:source/none", "latest:source/text/x", "latest:../source", "latest:sour"] {
        let output = home.run(&["restore", missing, "--target", "no"]);
        assert_eq!((code(&output), home.path("no").exists()), (1, false), "{missing}");
        assert!(stderr(&output).contains("the snapshot has no entry"), "{}", stderr(&output));
    }
}

#[test]
fn the_repository_is_never_a_target() {
    let home = stored();
    let repository = home.path("data/fhrd/repository");
    let before = describe(&repository);
    symlink(&repository, home.path("link to it")).unwrap();
    for target in ["data/fhrd/repository", "data/fhrd/repository/containers/new/one", "link to it/snapshots"] {
        let output = home.run(&["restore", "latest", "--target", target]);
        assert_eq!(code(&output), 1, "{target}");
        assert!(stderr(&output).contains("the repository is there"), "{}", stderr(&output));
    }
    // In place, a directory of the snapshot may be the repository's.
    home.write("tree/inner/file", b"content");
    home.backup(&["tree"]);
    let after = describe(&repository);
    std::fs::remove_dir_all(home.path("tree/inner")).unwrap();
    std::fs::rename(&repository, home.path("tree/inner")).unwrap();
    let options = ["--repo", "tree/inner", "--target", ".", "--overwrite", "always", "--json"];
    let output = home.run(&[&["restore", "latest"][..], &options].concat());
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).contains("the repository is there"), "{}", stderr(&output));
    assert_eq!(describe(&home.path("tree/inner")), after);
    assert!(before.len() < after.len());
}

const LARGE_BYTES: usize = 24 << 20;

/// Starts a restore of a large file and sends it `signal` when a part is written. Returns whether it was interrupted.
fn interrupt(home: &Home, signal: rustix::process::Signal) -> bool {
    let mut command = home.command(&["restore", "latest", "--target", "back", "--quiet"]);
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    let started = Instant::now();
    let on_disk = || {
        let entries = std::fs::read_dir(home.path("back/large")).into_iter().flatten();
        entries.map(|entry| entry.unwrap().metadata().map_or(0, |metadata| metadata.blocks() * 512)).sum::<u64>()
    };
    while on_disk() < LARGE_BYTES as u64 / 3 && child.try_wait().unwrap().is_none() {
        assert!(started.elapsed() < Duration::from_secs(120));
        std::thread::sleep(Duration::from_millis(1));
    }
    let _ = rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal);
    !child.wait().unwrap().success()
}

#[test]
fn an_interrupted_restore_goes_on() {
    use rustix::process::Signal;
    let home = Home::new();
    home.write("large/file", &noise(5, LARGE_BYTES));
    home.write("large/small", b"small");
    home.backup(&["large"]);
    for signal in [Signal::INT, Signal::KILL] {
        if !interrupt(&home, signal) {
            eprintln!("the restore was faster than the signal");
        } else {
            let names = home.names("back/large");
            assert!(names.iter().any(|name| name.starts_with(".fhrd-")), "{signal:?}: {names:?}");
            assert!(!names.contains(&"file".to_string()));
            let report = json(&home.run(&["restore", "latest", "--target", "back", "--json"]));
            let [written, reused] = ["bytes", "bytes_reused"].map(|key| count(&report, key));
            assert!(reused >= LARGE_BYTES as u64 / 4, "{report}");
            assert_eq!(written + reused, (LARGE_BYTES + 5) as u64 - 5 * count(&report, "unchanged"));
        }
        assert_eq!(home.names("back/large"), ["file", "small"]);
        assert!(home.read("back/large/file") == noise(5, LARGE_BYTES));
        std::fs::remove_dir_all(home.path("back")).unwrap();
    }
}

#[test]
fn what_a_killed_restore_has_left_goes_with_the_next_one() {
    let home = Home::new();
    home.write("large/file", &noise(5, LARGE_BYTES));
    home.backup(&["large"]);
    if !interrupt(&home, rustix::process::Signal::KILL) {
        eprintln!("the restore was faster than the signal");
    }
    home.write("back/large/.fhrd-mine", b"a user's");
    // Nothing goes on from the file of another content.
    home.write("large/file", b"other");
    home.backup(&["large"]);
    restore(&home, &["--overwrite", "always", "--dry-run"]);
    assert!(home.names("back/large").len() == 2, "{:?}", home.names("back/large"));
    restore(&home, &["--overwrite", "always"]);
    assert_eq!(
        (home.names("back/large"), home.read("back/large/file")),
        (vec![".fhrd-mine".into(), "file".into()], b"other".to_vec())
    );
}

/// A file of the snapshot may have the name of a temporary one, at any depth, and among entries that are left out.
#[test]
fn files_that_are_called_as_temporary_ones_stay() {
    let home = Home::new();
    // Deeper than the directories that a restore has open.
    let deep = format!("source{}", "/d".repeat(100));
    home.write("source/e/file", b"beside what is left");
    let named: Vec<String> = ["source", "source/d", &deep]
        .iter()
        .flat_map(|directory| [1, 2].map(|digit| format!("{directory}/.fhrd-{}", digit.to_string().repeat(24))))
        .collect();
    named.iter().for_each(|name| home.write(name, name.as_bytes()));
    home.backup(&["source"]);
    let stay = |times: &str| {
        for name in &named {
            assert_eq!(home.read(&format!("back/{name}")), name.as_bytes(), "{times}");
        }
    };
    for (times, options) in [
        ("into a new directory", &[][..]),
        ("into what is the same", &[]),
        ("replacing", &["--overwrite", "always"]),
        ("without some", &["--overwrite", "always", "--exclude", ".fhrd-1*"]),
        ("only others", &["--overwrite", "always", "--path", "source/d"]),
    ] {
        let (exit, report) = restore(&home, options);
        assert_eq!(exit, 0, "{times}: {report}");
        stay(times);
    }
    // What has the mode of a restore's own is one that a killed restore left. All else is somebody's.
    let left = "back/source/e/.fhrd-333333333333333333333333";
    for (name, mode) in [(left, 0o1600), ("back/source/e/.fhrd-444444444444444444444444", 0o600)] {
        home.write(name, b"content");
        std::fs::set_permissions(home.path(name), Permissions::from_mode(mode)).unwrap();
    }
    assert_eq!(restore(&home, &[]).0, 0);
    stay("beside what is left");
    assert_eq!(home.names("back/source/e"), [".fhrd-444444444444444444444444", "file"]);
}
