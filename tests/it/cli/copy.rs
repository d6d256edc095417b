//! Snapshots in a second repository, and snapshots written again without some of their entries.

use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::fixture::{Home, code, json, stderr};
use super::tree::{describe, noise, plant};

/// A home with two snapshots of `source`, and an empty repository `second` with another key, or with the same.
fn stored(is_alike: bool) -> Home {
    let home = Home::new();
    plant(&home.path("source"));
    home.backup(&["source", "--tag", "a", "--host", "box", "--run", "tune", "--step", "7", "--metric", "loss=0.5"]);
    home.write("source/deep/more", &noise(5, 700_000));
    std::fs::remove_file(home.path("source/floats")).unwrap();
    home.backup(&["source", "--host", "box"]);
    second(&home, is_alike);
    home
}

fn second(home: &Home, is_alike: bool) {
    let options = ["--from-repo", "data/fhrd/repository", "--copy-chunker-params"];
    let options = if is_alike { &options[..] } else { &[] };
    json(&home.run(&[&["init", "--repo", "second", "--json"], options].concat()));
}

fn copy(home: &Home, options: &[&str]) -> Value {
    let words = ["copy", "--repo", "second", "--from-repo", "data/fhrd/repository", "--json"];
    json(&home.run(&[&words[..], options].concat()))
}

fn snapshots(home: &Home, options: &[&str]) -> Vec<Value> {
    let listed = json(&home.run(&[&["snapshots", "--json"], options].concat()));
    listed.as_array().unwrap().clone()
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key}: {value}"))
}

/// Number and bytes of the containers in a repository.
fn containers(home: &Home, repository: &str) -> (usize, u64) {
    let mut found = (0, 0);
    // A new repository has no directory for them.
    for directory in std::fs::read_dir(home.path(repository).join("containers")).into_iter().flatten() {
        for file in std::fs::read_dir(directory.unwrap().path()).unwrap() {
            found = (found.0 + 1, found.1 + file.unwrap().metadata().unwrap().len());
        }
    }
    found
}

#[test]
fn copies_restore_byte_for_byte_and_a_second_copy_stores_nothing() {
    for is_alike in [false, true] {
        let home = stored(is_alike);
        let dry = copy(&home, &["--dry-run"]);
        assert!(number(&dry["snapshots"][0], "bytes_new") > 3_000_000, "{dry}");
        assert_eq!((&dry["snapshots"][0]["copy"], containers(&home, "second").0), (&Value::Null, 0));
        let copied = copy(&home, &[]);
        let [first, last] = &copied["snapshots"].as_array().unwrap()[..] else { panic!("{copied}") };
        assert_eq!(number(first, "problems") + number(last, "problems"), 0, "{copied}");
        assert!(number(last, "bytes_read") < 1_000_000, "unchanged files are not read: {copied}");
        let (before, after) = (snapshots(&home, &[]), snapshots(&home, &["--repo", "second"]));
        assert_eq!(after.len(), 2);
        for (original, copy) in before.iter().zip(&after) {
            for key in ["time", "host", "user", "paths", "tags", "excludes", "files", "bytes"] {
                assert_eq!(original[key], copy[key], "{key}");
            }
            let (from, to) = (original["id"].as_str().unwrap(), copy["id"].as_str().unwrap());
            for (repository, id, target) in [("data/fhrd/repository", from, "one"), ("second", to, "two")] {
                json(&home.run(&["restore", id, "--repo", repository, "--target", target, "--json"]));
            }
            assert_eq!(describe(&home.path("one/source")), describe(&home.path("two/source")));
            std::fs::remove_dir_all(home.path("one")).unwrap();
            std::fs::remove_dir_all(home.path("two")).unwrap();
        }
        let steps = json(&home.run(&["steps", "tune", "--repo", "second", "--json"]));
        assert_eq!(steps[0]["step"], 7, "{steps}");
        let stored = containers(&home, "second");
        let again = copy(&home, &["latest"]);
        assert_eq!((&again["snapshots"][0]["existed"], containers(&home, "second")), (&Value::Bool(true), stored));
        assert_eq!(["files", "bytes", "bytes_new"].map(|key| number(&again["snapshots"][0], key)), [0; 3], "{again}");
        assert_eq!(copy(&home, &[])["snapshots"].as_array().unwrap().len(), 2);
        assert_eq!((containers(&home, "second"), snapshots(&home, &["--repo", "second"]).len()), (stored, 2));
        assert_eq!(code(&home.run(&["check", "--read-data", "--repo", "second"])), 0);
        // And back: the first repository has them.
        let words = ["copy", "--from-repo", "second", "--json"];
        let back = json(&home.run(&words));
        let first = containers(&home, "data/fhrd/repository");
        assert!(number(&back["snapshots"][0], "bytes_new") == 0, "{back}");
        assert_eq!(code(&home.run(&["check"])), 0);
        json(&home.run(&words));
        assert_eq!(containers(&home, "data/fhrd/repository"), first, "and once is enough");
    }
}

#[test]
fn chunks_that_the_target_has_are_not_read_if_both_cut_alike() {
    let home = stored(true);
    let big = noise(9, 6_000_000);
    home.write("big/file", &big);
    home.backup(&["big", "--repo", "second"]);
    let mut changed = big.clone();
    changed[3_000_000] ^= 1;
    home.write("big/file", &changed);
    home.backup(&["big"]);
    let copied = copy(&home, &["latest"]);
    let copied = &copied["snapshots"][0];
    assert!(number(copied, "bytes_read") < 1_000_000 && number(copied, "bytes") == 6_000_000, "{copied}");
    json(&home.run(&["restore", "latest", "--repo", "second", "--target", "back", "--json"]));
    assert_eq!(home.read("back/big/file"), changed);
}

/// A file in safetensors' format with one tensor; `shift` changes one value in a hundred.
fn model(shift: u32) -> Vec<u8> {
    let mut header = r#"{"w":{"dtype":"F32","shape":[400000],"data_offsets":[0,1600000]}}"#.to_string();
    header.push_str(&" ".repeat(header.len().next_multiple_of(8) - header.len()));
    let values = (0..400_000u32).map(|at| 0x3d00_0000 + at.wrapping_mul(2_654_435_761) % 0x40_0000);
    let values = values.enumerate().map(|(at, bits)| if at % 100 == 0 { bits + shift } else { bits });
    let content: Vec<u8> = values.flat_map(u32::to_le_bytes).collect();
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &content].concat()
}

#[test]
fn models_are_families_in_the_copy_too() {
    for is_alike in [false, true] {
        let home = Home::new();
        // The walk meets the fine-tune before its base.
        home.write("models/a-tune/model.safetensors", &model(3));
        home.write("models/a-tune/README.md", b"---\nbase_model: org/base\n---\n");
        home.write("models/base/model.safetensors", &model(0));
        home.backup(&["models"]);
        second(&home, is_alike);
        copy(&home, &[]);
        let lineage = |repository: &str| json(&home.run(&["lineage", "latest", "--repo", repository, "--json"]));
        let (before, after) = (lineage("data/fhrd/repository"), lineage("second"));
        assert_eq!(before.as_array().unwrap().len(), 2, "{before}");
        let names = |members: &Value| -> Vec<(Value, Value)> {
            let of = |member: &Value| (member["path"].clone(), member["depth"].clone());
            members.as_array().unwrap().iter().map(of).collect()
        };
        assert_eq!(names(&before), names(&after), "{before} {after}");
        let (one, two) = (containers(&home, "data/fhrd/repository").1, containers(&home, "second").1);
        assert!(two < one + one / 10, "the copy has the deltas: {one} and {two} bytes");
        json(&home.run(&["restore", "latest", "--repo", "second", "--target", "back", "--json"]));
        assert_eq!(home.read("back/models/a-tune/model.safetensors"), model(3));
    }
}

#[test]
fn encrypted_repositories_are_copied_from_and_to() {
    let home = stored(false);
    let run = |words: &[&str], own: &str, other: &str| {
        home.command(words).env("FHRD_PASSWORD", own).env("FHRD_FROM_PASSWORD", other).output().unwrap()
    };
    json(&run(&["init", "--repo", "secret", "--encrypt", "--json"], "one", ""));
    let there = ["copy", "--repo", "secret", "--from-repo", "data/fhrd/repository", "--json"];
    assert_eq!(json(&run(&there, "one", ""))["snapshots"].as_array().unwrap().len(), 2);
    let back = ["copy", "--repo", "second", "--from-repo", "secret", "--json"];
    assert_eq!(code(&run(&back, "", "wrong")), 12);
    json(&run(&back, "", "one"));
    json(&home.run(&["restore", "latest", "--repo", "second", "--target", "back", "--json"]));
    assert_eq!(describe(&home.path("back/source")), describe(&home.path("source")));
    let like = ["init", "--repo", "like", "--from-repo", "secret", "--copy-chunker-params"];
    let plain = run(&like, "", "one");
    assert!(code(&plain) == 1 && stderr(&plain).contains("--encrypt"), "{}", stderr(&plain));
    json(&run(&[&like[..], &["--encrypt", "--json"]].concat(), "two", "one"));
    let copied = json(&run(&["copy", "--repo", "like", "--from-repo", "secret", "--json"], "two", "one"));
    assert_eq!(copied["snapshots"][1]["problems"], 0, "{copied}");
}

#[test]
fn damage_in_the_source_costs_its_files() {
    let home = stored(false);
    // One container of the first backup has most of the data.
    let mut largest = (0, home.path(""));
    for directory in std::fs::read_dir(home.path("data/fhrd/repository/containers")).unwrap() {
        for file in std::fs::read_dir(directory.unwrap().path()).unwrap() {
            let file = file.unwrap();
            largest = largest.max((file.metadata().unwrap().len(), file.path()));
        }
    }
    let mut bytes = std::fs::read(&largest.1).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    std::fs::write(&largest.1, bytes).unwrap();
    let words = ["copy", "--repo", "second", "--from-repo", "data/fhrd/repository", "--json"];
    let output = home.run(&words);
    assert_eq!(code(&output), 3, "{}", stderr(&output));
    let copied: Value = serde_json::from_slice(&output.stdout).unwrap();
    let first = &copied["snapshots"][0];
    assert!((1..=3).contains(&number(first, "problems")), "{copied}");
    assert!(stderr(&output).contains("cannot copy source/"), "{}", stderr(&output));
    assert_eq!(code(&home.run(&["check", "--read-data", "--repo", "second"])), 0, "the copy is sound");
    let listed = json(&home.run(&["ls", "latest:source/text", "--repo", "second", "--json"]));
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
}

#[test]
fn a_copy_needs_two_repositories_and_stops_at_once() {
    let home = stored(false);
    let same = home.run(&["copy", "--from-repo", "data/fhrd/repository"]);
    assert!(code(&same) == 1 && stderr(&same).contains("into itself"), "{}", stderr(&same));
    assert_eq!(code(&home.run(&["copy", "--from-repo", "nowhere"])), 10);
    assert_eq!(code(&home.run(&["copy", "none", "--repo", "second", "--from-repo", "data/fhrd/repository"])), 1);
    home.write("source/large", &noise(11, 200_000_000));
    home.backup(&["source", "--host", "box"]);
    let words = ["copy", "--repo", "second", "--from-repo", "data/fhrd/repository"];
    let mut child = home.command(&words).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    // The copy goes on until it has stored something, or all.
    let has_stored = || std::fs::read_dir(home.path("second/containers")).is_ok_and(|mut names| names.next().is_some());
    while !has_stored() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = rustix::process::Pid::from_child(&child);
    let asked = Instant::now();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let status = child.wait().unwrap();
    let waited = asked.elapsed();
    assert!(matches!(status.code(), Some(130 | 0)), "{status}");
    assert!(waited < Duration::from_secs(30), "{waited:?}");
    copy(&home, &[]);
    assert_eq!(code(&home.run(&["check", "--repo", "second"])), 0);
    assert_eq!(snapshots(&home, &["--repo", "second"]).len(), 3);
}

#[test]
fn rewrite_leaves_entries_out_and_keeps_the_rest() {
    let home = stored(false);
    let before = snapshots(&home, &[]);
    let rewrite = |options: &[&str]| json(&home.run(&[&["rewrite", "--json"], options].concat()));
    let dry = rewrite(&["--dry-run", "--exclude", "/source/deep"]);
    assert_eq!((&dry[0]["rewritten"], &dry[0]["excluded"], snapshots(&home, &[]).len()), (&Value::Null, &1.into(), 2));
    assert_eq!(rewrite(&["--exclude", "nothing like this"])[1]["rewritten"], Value::Null);
    let first = before[0]["id"].as_str().unwrap();
    let done = rewrite(&[first, "--exclude", "/source/deep", "--iexclude", "FLOATS"]);
    assert_eq!(
        (&done[0]["excluded"], &done[0]["forgotten"], &done[0]["problems"]),
        (&2.into(), &false.into(), &0.into())
    );
    let new = done[0]["rewritten"].as_str().unwrap();
    let after = snapshots(&home, &[]);
    assert_eq!(after.len(), 3, "the original is kept");
    let found = after.iter().find(|snapshot| snapshot["id"] == new).unwrap();
    for key in ["host", "user", "paths", "tags"] {
        assert_eq!(found[key], before[0][key], "{key}");
    }
    let shown = |snapshot: &Value| snapshot["time"].as_str().unwrap().get(..19).unwrap().to_string();
    assert_eq!(shown(found), shown(&before[0]));
    assert_eq!(found["excludes"], serde_json::json!(["exclude=/source/deep", "iexclude=FLOATS"]));
    let steps = json(&home.run(&["steps", "tune", "--json"]));
    assert_eq!((steps[0]["step"].as_u64(), steps[0]["snapshot"].as_str()), (Some(7), Some(new)), "{steps}");
    json(&home.run(&["restore", new, "--target", "back", "--json"]));
    assert!(!home.path("back/source/deep").exists() && !home.path("back/source/floats").exists());
    assert_eq!(home.read("back/source/text"), home.read("source/text"));
    // The directory is not whole any more, so nothing may be deleted in it.
    home.write("back/source/extra", b"x");
    let report = json(&home.run(&["restore", new, "--target", "back", "--delete", "--json"]));
    assert_eq!(report["deleted"], 0);
    let stored = containers(&home, "data/fhrd/repository").1;
    let done = rewrite(&["--exclude", "/source/deep", "--exclude", "floats", "--forget"]);
    let forgotten = done.as_array().unwrap().iter().filter(|one| one["forgotten"] == true).count();
    assert_eq!((forgotten, snapshots(&home, &[]).len()), (2, 3), "{done}");
    assert!(containers(&home, "data/fhrd/repository").1 < stored + 100_000, "only listings are written");
    assert_eq!(code(&home.run(&["check", "--read-data"])), 0);
    assert_eq!(code(&home.run(&["rewrite", "latest"])), 2);
}
