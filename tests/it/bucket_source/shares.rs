//! Shares of a bucket: many processes, together one backup.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

use super::server::{ObjectFault, SourceServer};
use super::{URL, command, files_below};
use crate::cli::fixture::{Home, code, json, stderr};
use crate::cli::model_fixture::Weights;
use crate::trees::Random;

/// The report of a share of a job that must be stored.
fn share(home: &Home, server: &SourceServer, share: &str, group: &str, more: &[&str]) -> Value {
    let words = [&[URL, "--shard", share, "--group", group], more].concat();
    json(&command(home, &server.endpoint(), &words).output().unwrap())
}

/// All `count` shares of a job, one after another.
fn job(home: &Home, server: &SourceServer, count: usize, group: &str) -> Vec<Value> {
    (1..=count).map(|at| share(home, server, &format!("{at}/{count}"), group, &[])).collect()
}

/// The files that restores of all snapshots of a group write into one directory.
fn restored(home: &Home, group: &str) -> BTreeMap<String, Vec<u8>> {
    let listed = json(&home.run(&["snapshots", "--group", group, "--json"]));
    let target = tempfile::tempdir_in(home.path("")).unwrap();
    let path = target.path().join("back");
    for snapshot in listed.as_array().unwrap() {
        let id = snapshot["id"].as_str().unwrap();
        json(&home.run(&["restore", id, "--json", "--target", path.to_str().unwrap()]));
    }
    files_below(&path)
}

/// Puts files of 40 directories and odd keys, and returns them by stored path.
fn put_files(server: &SourceServer) -> BTreeMap<String, Vec<u8>> {
    let mut random = Random(5);
    let mut expected = BTreeMap::new();
    for number in 0..200 {
        let (key, bytes) = (format!("d{}/{number}", number % 40), random.bytes(600));
        server.put(&format!("data/{key}"), bytes.clone());
        expected.insert(key, bytes);
    }
    for (key, path) in [("p//q", "p/%2F/q"), ("pre", "pre%2F"), ("pre/a", "pre/a"), ("full/", "full/%2F")] {
        let bytes = random.bytes(600);
        server.put(&format!("data/{key}"), bytes.clone());
        expected.insert(path.into(), bytes);
    }
    for number in 0..24 {
        let (key, bytes) = (format!("pairs/{}/{}/file", number / 2, number % 2), random.bytes(600));
        server.put(&format!("data/{key}"), bytes.clone());
        expected.insert(key, bytes);
    }
    expected
}

/// Restores the shares of a group into one directory, and each again, deleting what it lacks in directories that it has
/// whole. None of these may have something of another share.
fn assert_shares_delete_nothing(home: &Home, group: &str, expected: &BTreeMap<String, Vec<u8>>) {
    let listed = home.run(&["snapshots", "--group", group, "--json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let target = tempfile::tempdir_in(home.path("")).unwrap();
    let path = target.path().join("back");
    for more in [&[][..], &["--delete"]] {
        for snapshot in listed.as_array().unwrap() {
            let words = ["restore", snapshot["id"].as_str().unwrap(), "--json", "--target", path.to_str().unwrap()];
            json(&home.run(&[&words[..], more].concat()));
        }
        let found = files_below(&path);
        let lost: Vec<&String> = expected.keys().filter(|path| !found.contains_key(*path)).collect();
        assert!(lost.is_empty(), "{more:?}: {lost:?}");
    }
    assert_eq!(&files_below(&path), expected);
}

#[test]
fn every_object_falls_to_one_share_and_an_unchanged_job_reads_none() {
    let (home, server) = (Home::new(), SourceServer::start());
    let expected = put_files(&server);
    let reports = job(&home, &server, 5, "first");
    let files: Vec<u64> = reports.iter().map(|report| report["files"].as_u64().unwrap()).collect();
    assert_eq!(files.iter().sum::<u64>(), expected.len() as u64, "{files:?}");
    assert!(files.iter().filter(|files| **files > 0).count() > 3, "{files:?}");
    assert_shares_delete_nothing(&home, "first", &expected);
    server.take_seen();
    for report in job(&home, &server, 5, "second") {
        assert_eq!((&report["files_unchanged"], &report["files_removed"]), (&report["files"], &0.into()), "{report}");
        let requests = ["puts", "gets", "ranges", "heads", "lists", "deletes"].map(|kind| &report["requests"][kind]);
        let count: u64 = requests.iter().map(|count| count.as_u64().unwrap()).sum();
        assert!(count < 100, "{count} requests: {}", report["requests"]);
    }
    assert_eq!(server.take_seen(), ["LIST"; 5]);
    assert_eq!(restored(&home, "second"), expected);
    // Another number of shares, and then none: all of the last job are parents.
    let reports = job(&home, &server, 3, "third");
    assert!(reports.iter().all(|report| report["files_unchanged"] == report["files"]), "{reports:?}");
    assert!(reports.iter().all(|report| report["files_removed"] == 0), "{reports:?}");
    assert_eq!(restored(&home, "third"), expected);
    let whole = json(&command(&home, &server.endpoint(), &[URL]).output().unwrap());
    assert_eq!(whole["files_unchanged"], expected.len());
    let reports = job(&home, &server, 2, "fourth");
    assert!(reports.iter().all(|report| report["files_unchanged"] == report["files"]), "{reports:?}");
    assert_eq!(server.take_seen(), ["LIST"; 6]);
    let checked = json(&home.run(&["check", "--read-data", "--json"]));
    assert_eq!(checked["defects"], serde_json::json!([]));
}

#[test]
fn a_group_names_shares_that_are_missing_or_were_computed_differently() {
    let (home, server) = (Home::new(), SourceServer::start());
    put_files(&server);
    share(&home, &server, "1/3", "job", &[]);
    share(&home, &server, "3/3", "job", &[]);
    let group = |name: &str| home.run(&["snapshots", "--group", name, "--json"]);
    let lacking = group("job");
    assert_eq!(code(&lacking), 3);
    assert!(stderr(&lacking).contains("it has no share 2/3"), "{}", stderr(&lacking));
    let second = share(&home, &server, "2/3", "job", &[]);
    // The same share again, as by a process that was taken for dead: the latest counts.
    let again = share(&home, &server, "2/3", "job", &[]);
    let listed = json(&group("job"));
    let ids: Vec<&str> = listed.as_array().unwrap().iter().map(|named| named["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), 3);
    assert!(ids.contains(&again["snapshot"].as_str().unwrap()) && !ids.contains(&second["snapshot"].as_str().unwrap()));
    assert_eq!((&listed[1]["group"], &listed[1]["share"]), (&"job".into(), &"2/3".into()));
    // Another file changes nothing of the others; a card that joins two models does.
    server.put("data/new/file", "new");
    share(&home, &server, "2/3", "job", &[]);
    let changed = group("job");
    assert_eq!(code(&changed), 0);
    assert!(stderr(&changed).contains("files changed between"), "{}", stderr(&changed));
    for (key, bytes) in [("x/b/model.gguf", vec![1; 70_000]), ("x/t/model.gguf", vec![2; 70_000])] {
        server.put(&format!("data/{key}"), bytes);
    }
    share(&home, &server, "1/3", "models", &[]);
    server.put("data/x/t/README.md", "---\nbase_model: x/b\n---\n");
    share(&home, &server, "2/3", "models", &[]);
    share(&home, &server, "3/3", "models", &[]);
    let uneven = group("models");
    assert_eq!(code(&uneven), 3);
    assert!(stderr(&uneven).contains("run the job again"), "{}", stderr(&uneven));
    assert_eq!(code(&group("nothing")), 3, "there is no such group");
}

#[test]
fn a_split_is_shown_and_a_list_that_a_driver_wrote_needs_no_listing() {
    let (home, server) = (Home::new(), SourceServer::start());
    let mut expected = put_files(&server);
    let large = Random(9).bytes(300_000);
    server.put("data/huge/file", large.clone());
    expected.insert("huge/file".into(), large);
    server.put_with("data/huge/denied", vec![1; 50], ObjectFault::Denied);
    let shown = json(&command(&home, &server.endpoint(), &[URL, "--shard", "2/4", "--dry-run"]).output().unwrap());
    assert_eq!(shown["files"], expected.len() + 1);
    let shares = shown["shares"].as_array().unwrap();
    assert_eq!(shares.iter().map(|share| share["files"].as_u64().unwrap()).sum::<u64>(), expected.len() as u64 + 1);
    assert_eq!(shown["largest_units"][0]["bytes"], 300_050);
    assert!(server.take_seen().iter().all(|seen| seen == "LIST"), "no object is read");
    let words = [URL, "--shard", "1/4", "--dry-run", "--write-share-lists", "lists"];
    let placed = json(&command(&home, &server.endpoint(), &words).output().unwrap());
    let bytes: Vec<u64> =
        placed["shares"].as_array().unwrap().iter().map(|share| share["bytes"].as_u64().unwrap()).collect();
    assert_eq!(bytes.iter().filter(|bytes| **bytes >= 300_000).count(), 1);
    assert!(bytes.iter().filter(|bytes| **bytes < 60_000).count() == 3, "{bytes:?}");
    server.take_seen();
    for at in 1..=4 {
        let (share, list) = (format!("{at}/4"), format!("lists/{at}"));
        let words = [URL, "--shard", &share, "--group", "driven", "--share-list", &list];
        let output = command(&home, &server.endpoint(), &words).output().unwrap();
        assert!([0, 3].contains(&code(&output)), "{}", stderr(&output));
    }
    assert!(server.take_seen().iter().all(|seen| seen.starts_with("GET")));
    assert_shares_delete_nothing(&home, "driven", &expected);
    let lacking = home.run(&["snapshots", "--group", "driven"]);
    assert!(code(&lacking) == 3 && stderr(&lacking).contains("could not be read"), "{}", stderr(&lacking));
    // The list of another share or source is refused, and so is a part of one.
    let refused = |url: &str, share: &str, list: &str| {
        let words = [url, "--shard", share, "--group", "no", "--share-list", list];
        let output = command(&home, &server.endpoint(), &words).output().unwrap();
        (code(&output), stderr(&output))
    };
    assert!(refused(URL, "1/4", "lists/2").1.contains("where 1/4 is expected"));
    assert!(refused("s3://bucket/other", "1/4", "lists/1").1.contains("is expected"));
    let whole = home.read("lists/1");
    home.write("lists/cut", &whole[..whole.len() / 2]);
    assert_ne!(refused(URL, "1/4", "lists/cut").0, 0);
    // Nobody writes into the pipe.
    assert!(Command::new("mkfifo").arg(home.path("pipe")).status().unwrap().success());
    assert!(refused(URL, "1/4", "pipe").1.contains("expected a regular file"));
    let again = command(&home, &server.endpoint(), &words).output().unwrap();
    assert!(stderr(&again).contains("is there already: a job needs"), "{}", stderr(&again));
    assert_eq!(home.read("lists/1"), whole);
}

#[test]
fn what_is_never_stored_has_no_part_in_the_split() {
    let (home, server) = (Home::new(), SourceServer::start());
    let expected = put_files(&server);
    let words = |shard: &'static str| [URL, "--shard", shard, "--exclude", "*.tmp", "--exclude-larger-than", "10000"];
    let shown =
        || json(&command(&home, &server.endpoint(), &[&words("1/4")[..], &["--dry-run"]].concat()).output().unwrap());
    let before = shown();
    server.put("data/large/checkpoint", vec![7; 900_000]);
    for number in 0..20 {
        server.put(&format!("data/d{number}/{number}.tmp"), vec![8; 9000]);
    }
    assert_eq!(shown(), before);
    assert_eq!(before["files"], expected.len());
    let mut files = 0;
    for shard in ["1/4", "2/4", "3/4", "4/4"] {
        let words = [&words(shard)[..], &["--group", "job"]].concat();
        files += json(&command(&home, &server.endpoint(), &words).output().unwrap())["files"].as_u64().unwrap();
    }
    assert_eq!(files, expected.len() as u64);
    assert_shares_delete_nothing(&home, "job", &expected);
    // The lists that a driver writes are of the same split, and of what is stored.
    let driver = [&words("1/4")[..], &["--dry-run", "--write-share-lists", "lists"]].concat();
    json(&command(&home, &server.endpoint(), &driver).output().unwrap());
    for (at, shard) in ["1/4", "2/4", "3/4", "4/4"].into_iter().enumerate() {
        let list = format!("lists/{}", at + 1);
        let words = [&words(shard)[..], &["--group", "driven", "--share-list", &list]].concat();
        json(&command(&home, &server.endpoint(), &words).output().unwrap());
    }
    assert_shares_delete_nothing(&home, "driven", &expected);
}

#[test]
fn what_moves_to_another_share_is_not_read_again() {
    let (home, server) = (Home::new(), SourceServer::start());
    let mut expected = put_files(&server);
    let driven = |lists: &str| {
        let words = [URL, "--shard", "1/4", "--dry-run", "--write-share-lists", lists];
        json(&command(&home, &server.endpoint(), &words).output().unwrap());
        let one =
            |at: usize| share(&home, &server, &format!("{at}/4"), lists, &["--share-list", &format!("{lists}/{at}")]);
        (1..=4).map(one).collect::<Vec<_>>()
    };
    let unchanged =
        |reports: &[Value]| reports.iter().map(|report| report["files_unchanged"].as_u64().unwrap()).sum::<u64>();
    driven("one");
    // A directory with most of the bytes: others make way for it.
    let large = Random(9).bytes(60_000);
    server.put("data/new/large", large.clone());
    server.take_seen();
    let reports = driven("two");
    assert_eq!(unchanged(&reports), expected.len() as u64);
    assert!(reports.iter().all(|report| report["files_removed"] == 0), "nothing is gone: {reports:?}");
    assert_eq!(server.take_seen(), ["LIST", "GET data/new/large"]);
    expected.insert("new/large".into(), large);
    assert_eq!(restored(&home, "two"), expected);
    // Without a driver, a card joins two directories.
    for (key, byte) in [("x/b", 1), ("x/t", 2), ("x/u", 3), ("x/v", 4)] {
        server.put(&format!("data/{key}/model.gguf"), vec![byte; 70_000]);
    }
    job(&home, &server, 4, "three");
    server.put("data/x/README.md", "---\nbase_model: x/b\n---\n");
    for key in ["t", "u", "v"] {
        server.put(&format!("data/x/{key}/README.md"), "---\nbase_model: x/b\n---\n");
    }
    server.take_seen();
    job(&home, &server, 4, "four");
    let read: Vec<String> = server.take_seen().into_iter().filter(|seen| seen.ends_with(".gguf")).collect();
    assert_eq!(read, [""; 0]);
}

#[test]
fn shares_with_other_patterns_are_no_whole_job_and_a_copy_takes_all_of_one_source_together() {
    let (home, server) = (Home::new(), SourceServer::start());
    put_files(&server);
    share(&home, &server, "1/2", "job", &["--exclude", "*.tmp", "--exclude", "*.log"]);
    share(&home, &server, "2/2", "job", &["--exclude", "*.tmp"]);
    let uneven = home.run(&["snapshots", "--group", "job"]);
    assert!(code(&uneven) == 3 && stderr(&uneven).contains("run the job again"), "{}", stderr(&uneven));
    job(&home, &server, 3, "more");
    json(&home.run(&["init", "--repo", "copy", "--json"]));
    let source = home.path("data/fhrd/repository");
    let words = ["copy", "--from-repo", source.to_str().unwrap(), "--repo", "copy", "--shard", "1/8", "--dry-run"];
    let shown = json(&home.run(&[&words[..], &["--json"]].concat()));
    let snapshots: Vec<u64> =
        shown["shares"].as_array().unwrap().iter().map(|share| share["units"].as_u64().unwrap()).collect();
    assert_eq!(snapshots.iter().filter(|snapshots| **snapshots > 0).collect::<Vec<_>>(), [&5]);
}

#[test]
fn lists_of_many_shares_need_few_open_files() {
    let (home, server) = (Home::new(), SourceServer::start());
    put_files(&server);
    json(&home.run(&["init", "--json"]));
    let words = [URL, "--shard", "1/300", "--dry-run", "--write-share-lists", "lists"];
    let plain = command(&home, &server.endpoint(), &words);
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 100; exec \"$0\" \"$@\""]).arg(plain.get_program()).args(plain.get_args());
    limited.current_dir(plain.get_current_dir().unwrap());
    limited.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    plain.get_envs().filter(|(_, value)| value.is_none()).for_each(|(name, _)| _ = limited.env_remove(name));
    let shown = json(&limited.output().unwrap());
    let shares = shown["shares"].as_array().unwrap();
    let at = 1 + shares.iter().position(|share| share["files"].as_u64().unwrap() > 0).unwrap();
    let report = share(&home, &server, &format!("{at}/300"), "job", &["--share-list", &format!("lists/{at}")]);
    assert_eq!(report["files"], shares[at - 1]["files"]);
    assert_eq!(std::fs::read_dir(home.path("lists")).unwrap().count(), 300);
}

#[test]
fn a_fine_tune_finds_its_base_in_its_share() {
    let (home, server) = (Home::new(), SourceServer::start());
    let base = Weights::base();
    server.put("data/z-base/model.safetensors", base.bf16());
    for number in 2..6 {
        server.put(&format!("data/tune-{number}/model.safetensors"), base.tuned(number).bf16());
        server.put(&format!("data/tune-{number}/README.md"), "---\nbase_model: org/z-base\n---\n");
    }
    json(&home.run(&["init", "--json"]));
    json(&home.run(&["init", "--repo", "whole", "--json"]));
    let whole = json(&command(&home, &server.endpoint(), &[URL, "--repo", "whole"]).output().unwrap());
    let stored = |report: &Value| report["bytes_stored"].as_u64().unwrap();
    let shared: u64 = job(&home, &server, 8, "job").iter().map(stored).sum();
    assert!(shared <= stored(&whole) * 103 / 100 + 20_000, "{shared} and {}", stored(&whole));
    let restored = restored(&home, "job");
    assert!(restored["tune-3/model.safetensors"] == base.tuned(3).bf16() && restored.len() == 9);
}
