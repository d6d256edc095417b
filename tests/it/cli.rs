//! The command as a user meets it: what it prints, stores, restores and exits with.

mod bench;
mod changes;
mod choose;
mod copy;
mod corners;
mod damage;
mod documented;
mod documents;
mod estimate;
pub mod fixture;
mod forget;
mod guarded;
mod heal;
mod import;
mod inspect;
mod keys;
mod links;
mod look;
mod marked;
#[cfg(target_os = "linux")]
mod metadata;
pub mod model_fixture;
mod models;
#[cfg(target_os = "linux")]
mod mount;
#[cfg(target_os = "linux")]
mod mount_models;
mod notice;
mod parents;
mod private;
mod profile;
mod progress;
mod prune;
mod publish;
mod recipes;
mod recompress;
mod relations;
mod remote;
mod report;
mod restore;
mod restore_choice;
mod runs;
mod shares;
mod sides;
mod sources;
mod status;
mod tasks;
mod tensor;
mod trace;
mod tree;
mod verify;
mod waits;
mod words;

use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use fixture::{Home, code, json, stderr, stdout};
use tree::{describe, plant};

/// The program that [`Home`] runs.
const PROGRAM: &str = env!("CARGO_BIN_EXE_fhrd");

#[test]
fn init_creates_once_and_leaves_foreign_directories_alone() {
    let home = Home::new();
    let created = json(&home.run(&["init", "--repo", "r", "--json"]));
    assert_eq!(created["id"].as_str().map(str::len), Some(32));
    assert_eq!(created["chunker"], "sieve");
    assert!(created["chunk_bytes_avg"].as_u64().is_some_and(|bytes| bytes > 0));
    assert!(created["repository"].as_str().is_some_and(|path| path.starts_with('/') && path.ends_with("/r")));
    let config = std::fs::read(home.path("r/config")).unwrap();
    let again = home.run(&["init", "--repo", "r"]);
    assert_eq!(code(&again), 1);
    assert!(stderr(&again).contains("already holds a repository"), "{}", stderr(&again));
    assert_eq!(std::fs::read(home.path("r/config")).unwrap(), config);

    home.write("foreign/letter", b"mine");
    let foreign = home.run(&["init", "--repo", "foreign"]);
    assert_eq!(code(&foreign), 1);
    assert!(stderr(&foreign).contains("other files"), "{}", stderr(&foreign));
    assert_eq!(home.names("foreign"), ["letter"]);
    assert_eq!(code(&home.run(&["snapshots", "--repo", "foreign"])), 10);
}

#[test]
fn a_repository_location_is_a_path_or_a_url() {
    let home = Home::new();
    home.write("letter", b"mine");
    let url = format!("file://{}", home.path("by%20url").display());
    for (location, directory) in [("host:a", "host:a"), ("./x://y", "x:/y"), (url.as_str(), "by url")] {
        let created = json(&home.run(&["init", "--repo", location, "--json"]));
        let shown = created["repository"].as_str().unwrap();
        assert!(shown.starts_with('/') && home.path(directory).join("config").exists(), "{shown}");
        assert_eq!(code(&home.run(&["backup", "letter", "--repo", location])), 0);
        assert_eq!(json(&home.run(&["stats", "--repo", location, "--json"]))["snapshots"], 1);
    }
    // The repository in a directory of a backup is skipped, however it is named.
    assert_eq!(code(&home.run(&["backup", "letter", "by url", "--repo", &url])), 0);
    assert!(!stdout(&home.run(&["ls", "latest", "--repo", &url])).contains("config"));

    let unknown = home.run(&["snapshots", "--repo", "ftp://host/a"]);
    assert_eq!(code(&unknown), 1);
    assert!(
        ["ftp://", "a path", "file:///", "s3://"].iter().all(|part| stderr(&unknown).contains(part)),
        "{}",
        stderr(&unknown)
    );
}

#[test]
fn an_unknown_configuration_key_is_named_with_its_file() {
    let home = Home::new();
    home.write("wrong.toml", b"[compress]\nlevell = 3\n");
    home.write("file", b"x");
    for arguments in [&["init", "--config", "wrong.toml"][..], &["backup", "file", "--config", "wrong.toml"]] {
        let output = home.run(arguments);
        assert_eq!(code(&output), 1);
        let text = stderr(&output);
        assert!(text.contains("levell") && text.contains("wrong.toml"), "{text}");
    }
    assert!(!home.path("data").exists());
}

#[test]
fn a_configuration_that_contradicts_the_repository_is_refused() {
    let home = Home::new();
    home.write("file", b"x");
    home.write("one.toml", b"[repository]\nchunk_bytes_avg = \"96 KiB\"\n");
    home.write("two.toml", b"[repository]\nchunk_bytes_avg = \"80 KiB\"\n");
    assert_eq!(json(&home.run(&["init", "--config", "one.toml", "--json"]))["chunk_bytes_avg"], 96 << 10);
    assert_eq!(code(&home.run(&["backup", "file", "--config", "one.toml"])), 0);
    assert_eq!(code(&home.run(&["backup", "file"])), 0);
    let output = home.run(&["backup", "file", "--config", "two.toml"]);
    assert_eq!(code(&output), 1);
    let text = stderr(&output);
    assert!(["repository.chunk_bytes_avg", "81920", "98304"].iter().all(|word| text.contains(word)), "{text}");
}

#[test]
fn without_a_repository_the_exit_code_is_10_and_the_remedy_is_named() {
    let home = Home::new();
    home.write("file", b"x");
    let verbs = [
        &["snapshots"][..],
        &["restore", "latest"],
        &["ls", "latest"],
        &["stats"],
        &["check"],
        &["models"],
        &["lineage"],
    ];
    for verb in verbs {
        assert_eq!(code(&home.run(verb)), 10, "{verb:?}");
    }
    let output = home.run(&["backup", "--repo", "absent", "file"]);
    assert_eq!(code(&output), 10);
    assert!(stderr(&output).contains("`fhrd init --repo absent`"), "{}", stderr(&output));
    assert!(!home.path("absent").exists() && !home.path("data").exists());

    let output = home.run(&["backup", "--repo", "absent", "file", "--json"]);
    assert_eq!((code(&output), stdout(&output)), (10, String::new()));
    let error: Value = serde_json::from_str(&stderr(&output)).unwrap();
    assert_eq!(error["exit_code"], 10);
    assert!(error["error"].as_str().is_some_and(|text| text.contains("absent")));
}

#[test]
fn the_default_repository_is_created_by_backup_for_the_owner_alone() {
    let home = Home::new();
    home.write("file", b"x");
    let output = home.run(&["backup", "file"]);
    assert_eq!(code(&output), 0);
    let place = home.path("data/fhrd/repository");
    assert!(stderr(&output).contains(&place.display().to_string()), "{}", stderr(&output));
    for directory in [place.as_path(), &home.path("data/fhrd")] {
        assert_eq!(
            std::fs::metadata(directory).unwrap().permissions().mode() & 0o777,
            0o700,
            "{}",
            directory.display()
        );
    }
    assert_eq!(stderr(&home.run(&["backup", "file"])), "");
    assert_eq!(stdout(&home.run(&["backup", "file", "-q"])), "");
    assert_eq!(code(&home.run(&["init"])), 1);
    assert_eq!(json(&home.run(&["snapshots", "--json"])).as_array().map(Vec::len), Some(3));
}

#[test]
fn snapshots_are_found_by_prefix_and_as_latest() {
    let home = Home::new();
    home.write("file", b"one");
    let none = home.run(&["init"]);
    assert_eq!(code(&none), 0);
    let none = home.run(&["restore", "latest"]);
    assert_eq!(code(&none), 1);
    assert!(stderr(&none).contains("no snapshots yet"), "{}", stderr(&none));

    let first = home.backup(&["file", "--tag", "a", "--tag", "b", "--host", "there"]);
    home.write("file", b"two");
    let second = home.backup(&["file"]);
    let all = json(&home.run(&["snapshots", "--json"]));
    assert_eq!(all[0]["id"], first["snapshot"]);
    assert_eq!((&all[0]["host"], &all[0]["tags"]), (&"there".into(), &serde_json::json!(["a", "b"])));
    assert_eq!(all[1]["id"], second["snapshot"]);
    assert_eq!((&all[1]["files"], &all[1]["bytes"], &all[1]["parent"]), (&1.into(), &3.into(), &Value::Null));
    let time = all[1]["time"].as_str().unwrap();
    assert!(time.len() == "2000-01-01T00:00:00.123456789Z".len() && time.ends_with('Z'), "{time}");
    assert_eq!(all[0]["paths"], serde_json::json!([home.path("file").display().to_string()]));

    let prefix = first["snapshot"].as_str().unwrap().get(..12).unwrap();
    assert_eq!(code(&home.run(&["restore", prefix, "--target", "old"])), 0);
    assert_eq!(code(&home.run(&["restore", "latest", "--target", "new"])), 0);
    assert_eq!((home.read("old/file"), home.read("new/file")), (b"one".to_vec(), b"two".to_vec()));

    let table = stdout(&home.run(&["snapshots"]));
    assert_eq!(table.lines().count(), 3);
    assert!(table.contains(prefix.get(..8).unwrap()) && table.contains("a,b"), "{table}");
    for (id, hint) in [("zzzz", "hex digits"), ("", "hex digits"), ("00000000000000000000", "no snapshot matches")] {
        let output = home.run(&["restore", id]);
        assert_eq!(code(&output), 1);
        assert!(stderr(&output).contains(hint), "{}", stderr(&output));
    }
    assert_eq!(code(&home.run(&["restore"])), 2);
}

#[test]
fn a_tree_comes_back_as_it_was_and_what_has_not_changed_is_not_read_again() {
    let home = Home::new();
    plant(&home.path("tree"));
    home.write("config.toml", b"[read]\nrecheck_seconds = 1\n");
    std::thread::sleep(Duration::from_millis(1100));
    let before = describe(&home.path("tree"));
    let first = home.backup(&["tree"]);
    let files = first["files"].as_u64().unwrap();
    assert_eq!((&first["files_unchanged"], &first["problems"]), (&0.into(), &0.into()));
    assert_eq!(stderr(&home.run(&["restore", "latest", "--target", "back"])), "");
    let restored = describe(&home.path("back/tree"));
    for (path, expected) in &before {
        assert_eq!(restored.get(path), Some(expected), "{}", path.display());
    }
    assert_eq!(restored.len(), before.len());

    let again = home.backup(&["tree"]);
    assert_eq!(
        again["files_unchanged"], 0,
        "files that changed within a minute before the first backup are read again"
    );
    assert_eq!((&again["chunks_new"], &again["chunks"].as_u64().is_some_and(|chunks| chunks > 0)), (&0.into(), &true));
    let second = home.backup(&["tree", "--config", "config.toml"]);
    assert_eq!((&second["files"], &second["parent"]), (&files.into(), &again["snapshot"]));
    assert_eq!((&second["chunks_new"], &second["bytes_stored"]), (&0.into(), &0.into()));
    assert_eq!(second["chunks"], 0, "something was read again");
    let forced = home.backup(&["tree", "--force"]);
    assert_eq!((&forced["files_unchanged"], &forced["bytes_new"]), (&0.into(), &0.into()));
    assert!(forced["chunks"].as_u64().is_some_and(|chunks| chunks > 0));
    assert_eq!(code(&home.run(&["restore", "latest", "--target", "again"])), 0);
    assert_eq!(describe(&home.path("again/tree")), before);
}

#[test]
fn restore_without_a_target_takes_a_new_directory_each_time() {
    let home = Home::new();
    home.write("file", b"x");
    let short = home.backup(&["file"])["snapshot"].as_str().unwrap()[..8].to_string();
    for suffix in ["", "-2", "-3"] {
        let report = json(&home.run(&["restore", "latest", "--json"]));
        assert_eq!(report["target"], format!("fhrd-restore-{short}{suffix}"));
        assert_eq!(home.read(&format!("fhrd-restore-{short}{suffix}/file")), b"x");
    }
}

#[test]
fn restore_never_overwrites() {
    let home = Home::new();
    home.write("directory/a", b"stored a");
    home.write("directory/b", b"stored b");
    home.backup(&["directory"]);
    home.write("target/directory/a", b"precious");
    let output = home.run(&["restore", "latest", "--target", "target", "--json"]);
    assert_eq!(code(&output), 1);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["files"], &report["damaged"]), (&1.into(), &0.into()));
    assert_eq!((&report["left_alone"], &report["problems"]), (&1.into(), &0.into()));
    assert!(stderr(&output).contains("target/directory/a"), "{}", stderr(&output));
    assert_eq!(home.read("target/directory/a"), b"precious");
    assert_eq!(home.read("target/directory/b"), b"stored b");
}

#[test]
fn a_path_that_cannot_be_read_costs_itself_alone() {
    let home = Home::new();
    home.write("good", b"x");
    let output = home.run(&["backup", "good", "vanished", "--json"]);
    assert_eq!(code(&output), 3);
    assert!(stderr(&output).starts_with("warning: cannot read vanished"), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["problems"], &report["files"]), (&1.into(), &1.into()));
    assert_eq!(code(&home.run(&["restore", "latest", "--target", "back"])), 0);
    assert_eq!(home.read("back/good"), b"x");
    assert_eq!(code(&home.run(&["backup", "vanished"])), 1);
    assert_eq!(code(&home.run(&["backup"])), 2);
}

#[test]
fn the_stages_are_shown_on_request() {
    let home = Home::new();
    home.write("file", &[7; 1000]);
    let text = stdout(&home.run(&["backup", "file", "--stats"]));
    let stages = [
        "walk",
        "read",
        "chunk",
        "hash",
        "dedup",
        "identify",
        "choose",
        "match",
        "subdedup",
        "compress",
        "save",
        "index: not stored",
    ];
    for stage in stages {
        assert!(text.lines().any(|line| line.starts_with(stage)), "{stage} is missing in\n{text}");
    }
    let report = home.backup(&["file"]);
    assert_eq!(report["stages"].as_array().map(Vec::len), Some(12));
    assert!(report["stages"][0]["service_us"]["p99"].is_u64());
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let home = Home::new();
    home.write("file", b"x");
    home.backup(&["file"]);
    for arguments in [
        &["snapshots"][..],
        &["snapshots", "--json"],
        &["ls", "latest"],
        &["ls", "latest", "--json"],
        &["backup", "file"],
    ] {
        let mut command = home.command(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!((code(&output), stderr(&output)), (0, String::new()), "{arguments:?}");
    }
}

#[test]
fn an_interrupted_backup_says_so_and_the_next_one_succeeds() {
    use std::io::{BufRead, BufReader};
    let home = Home::new();
    for number in 0..6 {
        home.write(&format!("directory/{number}"), &tree::noise(number, 8 << 20));
    }
    let mut command = home.command(&["backup", "directory"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().starts_with("created the repository"));
    let process = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert_eq!(code(&child.wait_with_output().unwrap()), 130, "{rest:?}");
    assert_eq!(rest.last().map(String::as_str), Some("error: interrupted"));
    assert_eq!(json(&home.run(&["snapshots", "--json"])), serde_json::json!([]));
    home.backup(&["directory"]);
    assert_eq!(code(&home.run(&["restore", "latest", "--target", "back"])), 0);
    assert_eq!(describe(&home.path("back/directory")), describe(&home.path("directory")));
}
