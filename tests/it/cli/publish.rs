//! Names for clients of the Hub: `publish`, `unpublish` and `published`.

use std::os::unix::fs::symlink;

use serde_json::Value;

use super::fixture::{Home, code, json, stderr, stdout};

/// A home with a stored model.
fn home() -> Home {
    let home = Home::new();
    home.write("m/config.json", b"{}");
    home.write("m/below/weights.bin", &[7; 100_000]);
    home.backup(&["m"]);
    home
}

fn published(home: &Home) -> Value {
    json(&home.run(&["published", "--json"]))
}

fn publish(home: &Home, words: &[&str]) -> Value {
    json(&home.run(&[&["publish", "--json"], words].concat()))
}

fn containers(home: &Home) -> u64 {
    json(&home.run(&["status", "--json"]))["space"]["bytes_containers"].as_u64().unwrap()
}

#[test]
fn older_programs_never_meet_what_they_would_take_for_a_backup() {
    let home = Home::new();
    let frozen = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1/repository");
    crate::compatibility::copy_directory(&frozen, &home.path("data/fhrd/repository"));
    home.write("m/config.json", b"{}");
    home.backup(&["m"]);
    let refused = home.run(&["publish", "latest:m", "me/m"]);
    assert!(code(&refused) == 1 && stderr(&refused).contains("fhrd upgrade"), "{}", stderr(&refused));
    json(&home.run(&["upgrade", "--json"]));
    publish(&home, &["latest:m", "me/m"]);
}

#[test]
fn a_name_copies_nothing_and_its_commit_depends_on_the_content() {
    let home = home();
    let before = containers(&home);
    let first = publish(&home, &["latest:m", "me/m"]);
    assert_eq!((first["published"]["files"].as_u64(), first["published"]["bytes"].as_u64()), (Some(2), Some(100_002)));
    assert_eq!(containers(&home), before, "no byte of data is stored");
    let commit = first["published"]["commit"].as_str().unwrap().to_string();
    assert_eq!(commit.len(), 40);
    let again = publish(&home, &["latest:m", "me/m"]);
    assert_eq!((&again["unchanged"], &again["published"]), (&Value::Bool(true), &first["published"]));
    assert_eq!(publish(&home, &["latest:m", "me/m", "--revision", "v1"])["published"]["commit"], commit.as_str());
    home.write("m/config.json", b"{\"a\":1}");
    home.backup(&["m"]);
    let moved = publish(&home, &["latest:m", "me/m"]);
    assert_ne!(moved["published"]["commit"], commit.as_str());
    let rows = published(&home);
    let mains: Vec<(&str, bool)> = rows
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["revision"] == "main")
        .map(|row| (row["commit"].as_str().unwrap(), row["is_current"].as_bool().unwrap()))
        .collect();
    assert_eq!(mains, [(commit.as_str(), false), (moved["published"]["commit"].as_str().unwrap(), true)]);
    let table = stdout(&home.run(&["published"]));
    assert!(table.contains("me/m") && table.contains("older") && table.contains(&commit[..12]), "{table}");
    home.write("m/config.json", b"{\"a\":2}");
    home.backup(&["m"]);
    let replaced = publish(&home, &["latest:m", "me/m", "--replace"]);
    assert_eq!(replaced["replaced"].as_array().unwrap().len(), 2);
    assert_eq!(published(&home).as_array().unwrap().len(), 2, "the other revision stays");
    assert_eq!(json(&home.run(&["unpublish", "me/m", "--json"])).as_array().unwrap().len(), 2);
    assert_eq!(published(&home).as_array().unwrap().len(), 0);
}

#[test]
fn a_published_snapshot_is_no_backup() {
    let home = home();
    let backup = json(&home.run(&["snapshots", "--json"]))[0]["id"].clone();
    let name = publish(&home, &["latest:m", "me/m"])["published"]["snapshot"].as_str().unwrap().to_string();
    let status = json(&home.run(&["status", "--json"]));
    assert_eq!(status["sources"].as_array().unwrap().len(), 1, "{status}");
    let listed = stdout(&home.run(&["ls", "latest"]));
    assert!(listed.starts_with("m"), "`latest` is the backup: {listed}");
    assert!(stdout(&home.run(&["ls", "latest~0"])).starts_with('m'));
    assert_eq!(home.backup(&["m"])["parent"], backup);
    let refused = home.run(&["backup", "m", "--parent", &name]);
    assert!(code(&refused) == 1 && stderr(&refused).contains("so it is no parent"), "{}", stderr(&refused));
    let forgotten = json(&home.run(&["forget", "--keep-last", "1", "--prune", "--grace", "0s", "--json"]));
    assert_eq!((forgotten["published_left"].as_u64(), forgotten["deleted"].as_array().unwrap().len()), (Some(1), 1));
    let text = stdout(&home.run(&["forget", "--keep-last", "1"]));
    assert!(text.contains("1 published snapshot left alone"), "{text}");
    // Nothing but the name needs the content now.
    json(&home.run(&["forget", "latest", "--prune", "--grace", "0s", "--json"]));
    assert_eq!(code(&home.run(&["restore", &name, "--target", "back", "--quiet"])), 0);
    assert_eq!(home.read("back/below/weights.bin"), [7; 100_000]);
    assert!(stderr(&home.run(&["ls", "latest"])).contains("no snapshots yet"));
    json(&home.run(&["forget", &name, "--json"]));
    assert_eq!(published(&home).as_array().unwrap().len(), 0);
}

#[test]
fn a_whole_snapshot_that_is_published_is_no_parent() {
    let home = home();
    let backup = json(&home.run(&["snapshots", "--json"]))[0]["id"].clone();
    // Its path is above all others.
    publish(&home, &["latest", "me/all"]);
    assert_eq!(home.backup(&["m"])["parent"], backup);
}

#[test]
fn a_step_of_a_run_that_is_published_is_no_step() {
    let home = home();
    home.backup(&["m", "--run", "tune", "--step", "400", "--metric", "loss=0.1"]);
    publish(&home, &["run:tune@400:m", "me/tune", "--revision", "step-400"]);
    let runs = json(&home.run(&["runs", "--json"]));
    assert_eq!(runs[0]["steps"], 1, "{runs}");
    assert_eq!(json(&home.run(&["snapshots", "--tag", "published", "--json"])).as_array().unwrap().len(), 1);
}

#[test]
fn a_revision_of_a_cache_of_the_hub_shows_the_blobs_that_it_names() {
    let home = home();
    home.write("hub/models--o--m/blobs/abc", b"weights");
    std::fs::create_dir_all(home.path("hub/models--o--m/snapshots/1")).unwrap();
    symlink("../../blobs/abc", home.path("hub/models--o--m/snapshots/1/model.bin")).unwrap();
    symlink("../../../../m/config.json", home.path("hub/models--o--m/snapshots/1/outside")).unwrap();
    home.backup(&["hub"]);
    let report = publish(&home, &["latest:hub/models--o--m/snapshots/1", "o/m"]);
    assert_eq!((&report["published"]["files"], &report["published"]["bytes"]), (&Value::from(1), &Value::from(7)));
    assert_eq!(report["hidden"], 1, "a link that leads out");
}

#[test]
fn what_cannot_be_published_is_an_error() {
    let home = home();
    std::fs::create_dir(home.path("empty")).unwrap();
    home.backup(&["m", "empty"]);
    publish(&home, &["latest:m", "me/m"]);
    for (words, code_expected, text) in [
        (&["latest:m", "me"][..], 2, "expected ORG/NAME"),
        (&["latest:m", "../m"], 2, "no part begins"),
        (&["latest:m", "api/m"], 2, "another meaning"),
        (&["latest:m", "me/n", "--revision", "a b"], 2, "is no revision"),
        (&["latest:m", "me/n", "--revision", "0123456789012345678901234567890123456789"], 2, "name a commit"),
        (&["latest:m", "Me/m"], 1, "differs from `Me/m` by case only"),
        (&["latest:m/config.json", "me/n"], 1, "is no directory"),
        (&["latest:nothing", "me/n"], 1, "holds no `nothing`"),
        (&["latest:empty", "me/n"], 1, "it is empty"),
        (&["ffff:m", "me/n"], 1, "no snapshot matches"),
    ] {
        let output = home.run(&[&["publish"], words].concat());
        let message = stderr(&output);
        assert!(code(&output) == code_expected && message.contains(text), "{words:?}: {}: {message}", code(&output));
    }
    let unknown = home.run(&["unpublish", "me/other"]);
    assert!(code(&unknown) == 1 && stderr(&unknown).contains("no model `me/other` is published"));
    assert_eq!(published(&home).as_array().unwrap().len(), 1);
}

#[test]
fn a_snapshot_that_cannot_be_read_may_be_of_the_name() {
    let home = home();
    let backup = json(&home.run(&["snapshots", "--json"]))[0]["id"].as_str().unwrap().to_string();
    let first = publish(&home, &["latest:m", "me/m"]);
    home.write("m/config.json", b"{\"a\":1}");
    home.backup(&["m"]);
    let second = publish(&home, &["latest:m", "me/m"]);
    let blob = home.path("data/fhrd/repository/snapshots").join(second["published"]["snapshot"].as_str().unwrap());
    let bytes = std::fs::read(&blob).unwrap();
    let put = |bytes: &[u8]| {
        // The cache may have a copy.
        std::fs::remove_dir_all(home.path("data/fhrd/cache")).unwrap();
        std::fs::remove_file(&blob).unwrap();
        std::fs::write(&blob, bytes).unwrap();
    };
    put(b"damaged");
    // Of what can be read, the last one is this. It is put nevertheless, behind the one that comes back.
    let again = publish(&home, &[&format!("{backup}:m"), "me/m"]);
    assert_eq!((&again["unchanged"], &again["published"]["commit"]), (&false.into(), &first["published"]["commit"]));
    put(&bytes);
    let rows = published(&home);
    assert_eq!((rows.as_array().unwrap().len(), &rows[2]["is_current"]), (3, &true.into()));
    assert_eq!(rows[2]["commit"], first["published"]["commit"]);
    put(b"damaged");
    let output = home.run(&["unpublish", "me/m", "--json"]);
    assert_eq!(code(&output), 20, "the name may come back: {}", stderr(&output));
    let deleted: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(deleted.as_array().unwrap().len(), 2);
}
