//! `verify`: it finds damage in few runs, and says and records what it has read.

use std::path::PathBuf;

use fhrd::repo::Repository;
use fhrd::repo::marks::{Mark, MarkKind};
use serde_json::Value;

use super::fixture::{Home, code, json, stderr, stdout};

const REPOSITORY: &str = "data/fhrd/repository";

fn noise(seed: u64, len: usize) -> Vec<u8> {
    crate::trees::Random(seed).bytes(len)
}

/// Data containers, sorted.
fn containers(home: &Home) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for directory in home.names(&format!("{REPOSITORY}/containers")) {
        let directory = format!("{REPOSITORY}/containers/{directory}");
        found.extend(home.names(&directory).iter().map(|name| home.path(&directory).join(name)));
    }
    found.retain(|path| std::fs::read(path).unwrap()[10] == 0);
    found.sort();
    found
}

fn damage(path: &PathBuf) {
    let mut bytes = std::fs::read(path).unwrap();
    let at = bytes.len() / 3;
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

/// Twenty backups of one file each, so that each has a container of its own.
fn home_of_files() -> Home {
    let home = Home::new();
    for number in 0..20 {
        home.write(&format!("src/{number}"), &noise(number, 50_000));
        home.backup(&["src"]);
    }
    home
}

fn verified(home: &Home, arguments: &[&str]) -> (i32, Value) {
    let output = home.run(&[&["verify", "--json"], arguments].concat());
    let list: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)));
    (code(&output), list[0].clone())
}

#[test]
fn a_sample_of_files_finds_a_damaged_container_in_few_runs() {
    let home = home_of_files();
    let (exit, all) = verified(&home, &["--sample", "100%"]);
    assert_eq!((exit, &all["files_read"], &all["content_bytes"]), (0, &20.into(), &1_000_000.into()));
    assert_eq!((&all["recorded"], &all["containers_read"], &all["damaged"]), (&true.into(), &0.into(), &0.into()));
    let (exit, least) = verified(&home, &["--sample", "0.0001%"]);
    assert_eq!((exit, &least["files"], &least["files_read"]), (0, &20.into(), &1.into()));

    damage(&containers(&home)[7]);
    // One run of ten files of 20 misses it with 1 of 2, so 40 runs miss it once in 10^12 times.
    let found = (0..40).find_map(|_| {
        let (exit, report) = verified(&home, &["--sample", "50%"]);
        (exit == 20).then_some(report)
    });
    let found = found.unwrap();
    assert_eq!(
        (&found["damaged"], &found["containers_read"], &found["containers_damaged"]),
        (&1.into(), &1.into(), &1.into())
    );
    let text = found["damaged_files"][0].as_str().unwrap();
    assert!(text.contains("/src/") && text.contains("snapshot "), "{text}");
    assert_eq!(found["quarantine"]["containers"], 1);
    let status = home.run(&["status", "--json"]);
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!((&status["damage"]["containers"], &status["last_verify"]["damaged"]), (&1.into(), &2.into()));
    // The next backup heals it.
    home.backup(&["src", "--force"]);
    assert_eq!(verified(&home, &["--sample", "100%"]).0, 0);
}

#[test]
fn turns_read_what_was_not_read_for_longest_and_find_damage() {
    let home = home_of_files();
    let all = containers(&home).len();
    damage(&containers(&home)[7]);
    // The first run counts as a day after another; the next ones follow at once, and read one container each.
    let (first, report) = verified(&home, &["--within", "4d"]);
    let [read, total] = ["containers_read", "containers"].map(|field| report[field].as_u64().unwrap() as usize);
    // A quarter of the bytes. Those of metadata are short.
    assert!(read >= all / 4 && read < total && total == 2 * all, "{read} of {all}, {total}");
    let mut exits = vec![first];
    while !exits.contains(&20) {
        assert!(exits.len() <= 60, "{exits:?}");
        let (exit, report) = verified(&home, &["--within", "4d"]);
        assert!(report["containers_read"].as_u64().unwrap() >= 1, "{report}");
        exits.push(exit);
    }
    let status: Value = serde_json::from_slice(&home.run(&["status", "--json"]).stdout).unwrap();
    assert_eq!((&status["damage"]["containers"], &status["proof"]["containers_damaged"]), (&1.into(), &1.into()));
    // It is known now, and not read again.
    let (exit, report) = verified(&home, &["--within", "4d"]);
    assert_eq!((exit, &report["containers_marked"]), (0, &1.into()));
    assert!(stdout(&home.run(&["verify", "--within", "4d"])).contains("known to be damaged"));
}

#[test]
fn a_lost_container_is_the_worst_damage() {
    let home = home_of_files();
    let lost = containers(&home)[7].clone();
    let away = lost.with_extension("away");
    std::fs::rename(&lost, &away).unwrap();
    // Marks know nothing of it.
    assert_eq!(code(&home.run(&["status"])), 0);
    for arguments in [&["--within", "90d"][..], &["--sample", "0.0001%"]] {
        let (exit, report) = verified(&home, arguments);
        let text = report["defects"].to_string();
        assert!(exit == 20 && text.contains("is missing"), "{arguments:?}: {exit} {report}");
        assert_eq!(code(&home.run(&["status"])), 20, "{arguments:?}");
    }
    std::fs::rename(&away, &lost).unwrap();
    assert_eq!((verified(&home, &["--within", "90d"]).0, code(&home.run(&["status"]))), (0, 0));
}

#[test]
fn what_may_not_be_recorded_is_said() {
    let home = home_of_files();
    let output = home.run(&["verify", "--sample", "10%", "--report-only"]);
    assert!(code(&output) == 0 && stdout(&output).contains("recorded"), "{}", stderr(&output));
    let repository = Repository::open_at(home.path(REPOSITORY)).unwrap();
    Mark::new(MarkKind::ReadOnly, "the archive is full").save(repository.store.as_ref()).unwrap();
    for arguments in [&["verify"][..], &["verify", "--within", "90d"]] {
        let output = home.run(arguments);
        assert!(code(&output) == 0 && stdout(&output).contains("recorded"), "{}", stderr(&output));
        assert!(stderr(&output).contains("what was read is not recorded"), "{}", stderr(&output));
    }
    assert!(json(&home.run(&["status", "--json"]))["last_verify"].is_null());
    for wrong in ["0%", "200%", "2"] {
        assert_eq!(code(&home.run(&["verify", "--sample", wrong])), 2, "{wrong}");
    }
    assert_eq!(code(&home.run(&["verify", "--within", "0"])), 1);
}

#[test]
fn a_damaged_snapshot_is_found_although_the_local_cache_has_it() {
    let home = home_of_files();
    let (exit, all) = verified(&home, &["--sample", "100%"]);
    assert_eq!((exit, &all["snapshots"], &all["snapshots_read"]), (0, &20.into(), &20.into()));
    let paths: Vec<PathBuf> = home
        .names(&format!("{REPOSITORY}/snapshots"))
        .iter()
        .map(|name| home.path(&format!("{REPOSITORY}/snapshots/{name}")))
        .collect();
    damage(&paths[7]);
    assert_eq!(json(&home.run(&["snapshots", "--json"])).as_array().unwrap().len(), 20, "the cache has all of them");
    let (exit, report) = verified(&home, &["--sample", "100%"]);
    let name = paths[7].file_name().unwrap().to_str().unwrap();
    assert_eq!((exit, &report["damaged"], &report["files_read"]), (20, &1.into(), &20.into()), "{report}");
    assert!(report["damaged_files"][0].as_str().unwrap().contains(name), "{report}");
    paths.iter().filter(|path| **path != paths[7]).for_each(damage);
    // At least one is read, however small the share is.
    let (exit, report) = verified(&home, &["--sample", "0.0001%"]);
    assert_eq!((exit, &report["snapshots_read"], &report["damaged"]), (20, &0.into(), &1.into()), "{report}");
}

#[test]
fn damaged_segments_are_said_whatever_was_chosen() {
    let home = home_of_files();
    let segment = home.names(&format!("{REPOSITORY}/index")).remove(0);
    let path = home.path(&format!("{REPOSITORY}/index/{segment}"));
    std::fs::write(&path, b"no segment").unwrap();
    for arguments in [["--within", "90d"], ["--sample", "0.0001%"]] {
        let (exit, report) = verified(&home, &arguments);
        assert!(exit == 20 && report["defects"].to_string().contains(&segment), "{arguments:?}: {exit} {report}");
    }
}

#[test]
fn directories_that_cannot_be_listed_drop_no_record_of_what_is_in_them() {
    let home = home_of_files();
    let never = || json(&home.run(&["status", "--json"]))["proof"]["bytes_never"].clone();
    assert_eq!((code(&home.run(&["check", "--read-data"])), never()), (0, 0.into()));
    // Without segments, what a directory has is only known from its listing.
    for segment in home.names(&format!("{REPOSITORY}/index")) {
        std::fs::remove_file(home.path(&format!("{REPOSITORY}/index/{segment}"))).unwrap();
    }
    let containers = home.path(&format!("{REPOSITORY}/containers"));
    let directories = home.names(&format!("{REPOSITORY}/containers"));
    let used = |name: &String| std::fs::read_dir(containers.join(name)).unwrap().next().is_some();
    let away: Vec<String> = directories.into_iter().filter(used).skip(5).collect();
    for name in &away {
        std::fs::rename(containers.join(name), home.path(name)).unwrap();
        std::fs::write(containers.join(name), b"").unwrap();
    }
    let output = home.run(&["check", "--read-data", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((code(&output), &report["recorded"]), (20, &true.into()), "{}", stderr(&output));
    for name in &away {
        std::fs::remove_file(containers.join(name)).unwrap();
        std::fs::rename(home.path(name), containers.join(name)).unwrap();
    }
    let status: Value = serde_json::from_slice(&home.run(&["status", "--json"]).stdout).unwrap();
    assert_eq!(status["proof"]["bytes_never"], 0, "{status}");
}

#[test]
fn lost_marks_of_damage_are_noticed_and_written_again() {
    let home = home_of_files();
    damage(containers(&home).last().unwrap());
    assert_eq!(code(&home.run(&["check", "--read-data"])), 20);
    let marks = format!("{REPOSITORY}/marks/optional");
    let lose = || {
        let names = home.names(&marks);
        assert!(!names.is_empty());
        names.iter().for_each(|name| std::fs::remove_file(home.path(&marks).join(name)).unwrap());
    };
    // Of its own, each would read one other container or file.
    for arguments in [["--within", "400d"], ["--sample", "0.0001%"]] {
        lose();
        let (exit, report) = verified(&home, &arguments);
        assert_eq!((exit, &report["containers_damaged"]), (20, &1.into()), "{arguments:?} {report}");
        assert_eq!(report["quarantine"]["containers"], 1, "{report}");
        let status: Value = serde_json::from_slice(&home.run(&["status", "--json"]).stdout).unwrap();
        assert_eq!(status["damage"]["containers"], 1, "{status}");
    }
    // Once a mark lists it, it is not read again.
    let (exit, report) = verified(&home, &["--within", "400d"]);
    assert_eq!((exit, &report["containers_marked"], &report["containers_damaged"]), (0, &1.into(), &0.into()));
}
