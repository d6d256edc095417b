//! Backups of the objects of a bucket.

mod google;
mod server;
mod shares;
mod target;
mod target_ends;
mod target_keys;
mod target_parts;
mod target_races;
mod target_repository;
mod writes;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use fhrd::backup::{BackupRequest, BackupSource, BucketSource, ParentChoice, SnapshotLabels, backup as run_backup};
use fhrd::config::Config;
use fhrd::filesystem::Patterns;
use fhrd::metrics::Progress;
use fhrd::repo::Repository;
use fhrd::store::{AccessKey, BlobKind, ExpectedObject, MemoryStore, Patience, SourceBucket, StoreOptions, open_with};
use serde_json::Value;

use crate::cli::fixture::{Home, code, json, stderr};
use crate::cli::model_fixture::Weights;
use crate::program::memory_max;
use crate::trees::Random;
use crate::wire::server::{ACCESS_KEY as REPOSITORY_KEY, S3Server};
use server::{ACCESS_KEY, ObjectFault, SourceServer, long_ago};

const URL: &str = "s3://bucket/data";

/// `fhrd backup` of the bucket, with credentials of its own.
fn command(home: &Home, endpoint: &str, words: &[&str]) -> Command {
    let mut command = home.command(&[&["backup", "--json"], words].concat());
    command
        .env("FHRD_SOURCE_ENDPOINT", endpoint)
        .env("FHRD_SOURCE_AWS_ACCESS_KEY_ID", ACCESS_KEY)
        .env("FHRD_SOURCE_AWS_SECRET_ACCESS_KEY", "secret")
        .env("FHRD_SOURCE_AWS_REGION", "eu-central-1")
        .env("AWS_ACCESS_KEY_ID", "another")
        .env("AWS_SECRET_ACCESS_KEY", "another")
        .env_remove("AWS_PROFILE");
    command
}

/// The report of a backup that ends with `expected`, and what it said.
fn backup(home: &Home, server: &SourceServer, expected: i32) -> (Value, String) {
    let output = command(home, &server.endpoint(), &[URL]).output().unwrap();
    assert_eq!(code(&output), expected, "{}", stderr(&output));
    (serde_json::from_slice(&output.stdout).unwrap(), stderr(&output))
}

/// The files that a restore of the last snapshot writes, by path.
fn restored(home: &Home) -> BTreeMap<String, Vec<u8>> {
    let target = tempfile::tempdir_in(home.path("")).unwrap();
    let path = target.path().join("back");
    json(&home.run(&["restore", "latest", "--json", "--target", path.to_str().unwrap()]));
    assert_eq!(std::fs::read_dir(target.path()).unwrap().count(), 1, "something was written outside");
    files_below(&path)
}

/// The files below a directory, by the rest of their paths.
fn files_below(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let (mut files, mut open) = (BTreeMap::new(), vec![path.to_path_buf()]);
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
            let name = entry.strip_prefix(path).unwrap().to_str().unwrap().to_string();
            if entry.is_dir() {
                open.push(entry);
            } else {
                files.insert(name, std::fs::read(entry).unwrap());
            }
        }
    }
    files
}

#[test]
fn every_key_is_stored_under_a_safe_name_or_named() {
    let (home, server) = (Home::new(), SourceServer::start());
    let mut random = Random(1);
    let large = random.bytes(9_500_000);
    let plain =
        ["a.txt", "a/b", "a-b", "a0", "sub/x/y", "100%", "a%2Fb", "b c+d", "\u{e9}\u{301}", "c&<d>", "sub/empty"];
    let odd =
        [("p//q", "p/%2F/q"), ("/lead", "%2F/lead"), ("pre", "pre%2F"), ("pre/a", "pre/a"), ("full/", "full/%2F")];
    let mut expected = BTreeMap::new();
    for (key, path) in plain.map(|key| (key, key)).into_iter().chain(odd) {
        let bytes = if key == "sub/empty" { Vec::new() } else { random.bytes(300) };
        server.put(&format!("data/{key}"), bytes.clone());
        expected.insert(path.to_string(), bytes);
    }
    server.put("data/models/large.bin", large.clone());
    expected.insert("models/large.bin".into(), large);
    // A marker of a directory, two keys that no URL can have, and what is not below the prefix.
    for key in ["data/marked/", "data/", "data/x/../../y", "data/x/./y", "data-other", "data", "other/z"] {
        server.put(key, if key.ends_with('/') { Vec::new() } else { random.bytes(100) });
    }
    let (report, said) = backup(&home, &server, 3);
    assert_eq!(report["problems"], 2, "{said}");
    assert!(said.contains("s3://bucket/data/x/../../y") && said.contains("s3://bucket/data/x/./y"), "{said}");
    assert_eq!(restored(&home), expected);
    let listed = json(&home.run(&["ls", "latest", "--json"]));
    let entry = |path: &str| listed.as_array().unwrap().iter().find(|entry| entry["path"] == path).unwrap().clone();
    assert_eq!(entry("marked")["type"], "directory");
    let large = entry("models/large.bin");
    assert!(large["mtime"].as_str().unwrap().starts_with("2026-03-04T05:06:07"), "{large}");
    assert_eq!(large["object"]["etag"].as_str().unwrap().len(), 32);
    assert_eq!(large["object"]["content_type"], "application/x-test");
    assert_eq!(large["object"]["metadata"]["owner"], "somebody");
    assert_eq!((&large["object"]["key"], &entry("p/%2F/q")["object"]["key"]), (&Value::Null, &"p//q".into()));
    let checked = json(&home.run(&["check", "--read-data", "--json"]));
    assert_eq!(checked["defects"], serde_json::json!([]));
}

#[test]
fn unchanged_objects_are_not_read_again_from_any_host() {
    let (home, server) = (Home::new(), SourceServer::start());
    let mut random = Random(2);
    for number in 0..40 {
        server.put(&format!("data/{}/{number}", number % 3), random.bytes(2000));
    }
    server.put("data/large", random.bytes(5_000_000));
    backup(&home, &server, 0);
    server.take_seen();
    let output = command(&home, &server.endpoint(), &[URL, "--host", "another"]).output().unwrap();
    assert_eq!(json(&output)["files_unchanged"], 41);
    assert_eq!(server.take_seen(), ["LIST"], "an unchanged object is not read");
    let (changed, before) = (random.bytes(2000), restored(&home));
    server.put("data/1/4", changed.clone());
    server.objects().remove("data/2/5");
    let (report, _) = backup(&home, &server, 0);
    let counted = |name: &str| report["changes"][name].as_u64().or(report[name].as_u64()).unwrap();
    assert_eq!((counted("files_changed"), counted("files_removed"), counted("files_unchanged")), (1, 1, 39));
    assert_eq!(server.take_seen(), ["LIST", "GET data/1/4"]);
    let mut expected = before;
    expected.insert("1/4".into(), changed);
    expected.remove("2/5");
    assert_eq!(restored(&home), expected);
    // A dry run reads the same and stores nothing.
    server.put("data/new", random.bytes(500_000));
    let dry = json(&command(&home, &server.endpoint(), &[URL, "--dry-run"]).output().unwrap());
    assert!(dry["bytes_new"].as_u64().unwrap() >= 500_000, "{dry}");
    assert!(!restored(&home).contains_key("new"));
}

#[test]
fn objects_that_go_wrong_are_named_and_cost_nothing_else() {
    let (home, server) = (Home::new(), SourceServer::start());
    let mut random = Random(3);
    let mut expected = BTreeMap::new();
    for number in 0..10 {
        let bytes = random.bytes(3000);
        server.put(&format!("data/good/{number}"), bytes.clone());
        expected.insert(format!("good/{number}"), bytes);
    }
    let faults = [
        ("denied", ObjectFault::Denied, "AccessDenied"),
        ("cold", ObjectFault::Cold, "it is cold: it lies in GLACIER"),
        ("vanished", ObjectFault::Vanished, "it does not exist any more"),
        ("torn", ObjectFault::ReplacedAlways, "replaced while it was read"),
    ];
    for (name, fault, _) in faults {
        server.put_with(&format!("data/small-{name}"), random.bytes(5000), fault);
        server.put_with(&format!("data/large-{name}"), random.bytes(9_000_000), fault);
    }
    // The first request looks, the next ones read ranges.
    for (name, len, number) in [("once-small", 5000, 1), ("once-first", 9_000_000, 1), ("once-middle", 13_000_000, 3)] {
        server.put_with(&format!("data/{name}"), random.bytes(len), ObjectFault::ReplacedAt(number));
    }
    let (report, said) = backup(&home, &server, 3);
    assert_eq!(report["problems"], 7, "{said}");
    for (name, _, reason) in faults {
        // One answer is of one object, however often that is replaced.
        for size in ["small", "large"].into_iter().filter(|size| (*size, name) != ("small", "torn")) {
            let line = said.lines().find(|line| line.contains(&format!("s3://bucket/data/{size}-{name}")));
            assert!(line.is_some_and(|line| line.contains(reason)), "{size}-{name}: {said}");
        }
    }
    for name in ["once-small", "once-first", "once-middle", "small-torn"] {
        expected.insert(name.into(), server.objects()[&format!("data/{name}")].bytes.to_vec());
    }
    assert!(restored(&home) == expected, "no file has bytes of two objects");
}

#[test]
fn the_version_that_a_backup_began_with_is_read_to_its_end_if_it_may_be() {
    let (home, server) = (Home::new(), SourceServer::start());
    let mut random = Random(4);
    let large = random.bytes(40_000_000);
    server.put_with("data/may", large.clone(), ObjectFault::VersionedAt(3));
    server.put_with("data/may-not", random.bytes(40_000_000), ObjectFault::VersionDeniedAt(3));
    let (report, said) = backup(&home, &server, 0);
    assert_eq!(report["problems"], 0, "{said}");
    let newer = |key: &str| server.objects()[key].bytes.to_vec();
    assert_ne!(newer("data/may"), large);
    let expected = [("may", large), ("may-not", newer("data/may-not"))];
    assert!(restored(&home) == expected.map(|(key, bytes)| (key.to_string(), bytes)).into());
    // The newer version is read next.
    server.take_seen();
    assert_eq!(backup(&home, &server, 0).0["files_unchanged"], 1);
    assert!(restored(&home)["may"] == newer("data/may"));
    assert!(server.take_seen().iter().all(|request| request != "GET data/may-not"));
}

#[test]
fn an_object_that_is_replaced_by_an_empty_one_is_stored_empty() {
    let (home, server) = (Home::new(), SourceServer::start());
    server.put_with("data/small", vec![7; 5000], ObjectFault::Emptied);
    server.put_with("data/large", vec![7; 9_000_000], ObjectFault::Emptied);
    server.put("data/good", "good");
    let (report, said) = backup(&home, &server, 0);
    assert_eq!(report["problems"], 0, "{said}");
    let expected = [("good", &b"good"[..]), ("large", b""), ("small", b"")];
    assert_eq!(restored(&home), expected.map(|(key, bytes)| (key.to_string(), bytes.to_vec())).into());
    assert_eq!(backup(&home, &server, 0).0["files_unchanged"], 3);
}

#[test]
fn an_object_that_ends_early_is_named_and_costs_no_other() {
    let (server, cache) = (SourceServer::start(), tempfile::tempdir().unwrap());
    server.put_with("data/early", vec![7; 5000], ObjectFault::EndsEarly);
    server.put_with("data/large-early", vec![7; 9_000_000], ObjectFault::EndsEarly);
    server.put("data/good", "good");
    let source = BucketSource {
        bucket: Arc::new(bucket(&server)),
        patterns: Patterns::default(),
        bytes_max: None,
        excludes: Vec::new(),
        parents: ParentChoice::default(),
        labels: SnapshotLabels::of_host("host"),
        list: None,
    };
    let config = Config::default();
    let mut repository = Repository::init(Arc::new(MemoryStore::default()), &config.repository).unwrap();
    repository.cache_directory = Some(cache.path().into());
    let request = BackupRequest::new(BackupSource::Bucket(Box::new(source)));
    let report = run_backup(&repository, &config, &request, &Progress::default(), &Arc::default()).unwrap();
    assert_eq!((report.files, report.bytes, report.problems), (1, 4, 2));
}

#[test]
fn what_the_choice_leaves_out_is_not_deleted_by_a_restore() {
    let (home, server) = (Home::new(), SourceServer::start());
    for key in ["a/0/left.tmp", "a/1/0.tmp", "a/1/z", "b/z"] {
        server.put(&format!("data/{key}"), key);
    }
    backup(&home, &server, 0);
    let target = ["--target", "back"];
    json(&home.run(&[&["restore", "latest", "--json"], &target[..]].concat()));
    // Nothing of `a` was stored before all that it lacks.
    json(&command(&home, &server.endpoint(), &[URL, "--exclude", "*.tmp"]).output().unwrap());
    json(&home.run(&[&["restore", "latest", "--json", "--delete"], &target[..]].concat()));
    let found: Vec<String> = files_below(&home.path("back")).into_keys().collect();
    assert_eq!(found, ["a/0/left.tmp", "a/1/0.tmp", "a/1/z", "b/z"]);
}

/// Tries three times, at once.
fn options(server: &SourceServer) -> StoreOptions {
    StoreOptions {
        endpoint: Some(server.endpoint()),
        access_key: Some(AccessKey { id: ACCESS_KEY.into(), secret: "secret".into() }),
        patience: Patience { first_tries: 3, tries: 3, wait: Duration::from_millis(1), ..Patience::default() },
        ..StoreOptions::default()
    }
}

fn bucket(server: &SourceServer) -> SourceBucket {
    SourceBucket::open(OsStr::new(URL), &options(server)).unwrap()
}

#[test]
fn an_answer_that_is_not_what_was_asked_for_is_never_taken_for_the_object() {
    let server = SourceServer::start();
    let faults = [
        (ObjectFault::EndsEarly, ""),
        (ObjectFault::OtherRange, "not the range"),
        (ObjectFault::Untagged, "no ETag"),
        (ObjectFault::Form, "no ETag"),
        (ObjectFault::Shorter, "10 bytes of what has 5000"),
    ];
    for (fault, reason) in faults {
        server.put_with("data/object", vec![7; 5000], fault);
        let bucket = bucket(&server);
        let state = bucket.page(None).unwrap().objects.remove(0).expected();
        for expected in [ExpectedObject::Same(&state), ExpectedObject::SameOrNewer(&state)] {
            let error = bucket.fetch("data/object", 5..5000, expected).unwrap_err().to_string();
            assert!(error.contains("s3://bucket/data/object") && error.contains(reason), "{fault:?}: {error}");
            assert!(error.contains("tried 3 times"), "{fault:?}: {error}");
        }
    }
}

#[test]
fn a_bucket_that_fails_again_and_again_is_lost_and_one_object_is_not() {
    let server = SourceServer::start();
    server.put_with("data/bad", vec![7; 50], ObjectFault::EndsEarly);
    server.put("data/good", vec![7; 50]);
    server.put_with("data/denied", vec![7; 50], ObjectFault::Denied);
    let bucket = bucket(&server);
    let fetch = |key: &str| bucket.fetch(key, 0..50, ExpectedObject::Any).is_ok();
    for _ in 0..20 {
        assert!(!fetch("data/bad") && !fetch("data/denied") && fetch("data/good") && !bucket.is_lost());
    }
    let failures = (0..20).take_while(|_| !bucket.is_lost() && !fetch("data/bad")).count();
    assert_eq!(failures, 8);
}

#[test]
fn a_page_that_is_none_is_not_the_end_of_the_listing() {
    let server = SourceServer::start();
    for number in 0..1500 {
        server.put(&format!("data/{number:04}"), vec![7; 3]);
    }
    let pages = [
        "<Error><Code>InternalError</Code></Error>",
        "<html>Log in</html>",
        "<ListBucketResult><KeyCount>500</KeyCount></ListBucketResult>",
        "",
    ];
    for page in pages {
        server.answer_pages_with(page, false);
        let bucket = bucket(&server);
        let token = bucket.page(None).unwrap().next.unwrap();
        let error = bucket.page(Some(&token)).unwrap_err().to_string();
        assert!(error.contains("s3://bucket/data") && error.contains("tried 3 times"), "{page}: {error}");
    }
}

#[test]
fn a_repository_is_not_empty_because_its_listing_is_none() {
    let server = SourceServer::start();
    let store = open_with(OsStr::new("s3://bucket/repository"), &options(&server)).unwrap();
    assert_eq!(store.list(BlobKind::Snapshot.into()).unwrap(), []);
    for page in ["<html>Log in</html>", "<Error><Code>SlowDown</Code></Error>", "<x/>"] {
        server.answer_pages_with(page, true);
        let error = store.list(BlobKind::Snapshot.into()).unwrap_err().to_string();
        assert!(error.contains("tried 3 times") && error.contains("where a listing"), "{page}: {error}");
    }
}

#[test]
fn the_same_bucket_on_another_server_is_another_one() {
    let (home, one, other) = (Home::new(), SourceServer::start(), SourceServer::start());
    for (server, byte) in [(&one, 1), (&other, 2)] {
        server.put("data/a", vec![byte; 100]);
        server.objects().get_mut("data/a").unwrap().etag = "1".into();
        assert_eq!(backup(&home, server, 0).0["files_unchanged"], 0);
        assert_eq!(restored(&home)["a"], [byte; 100]);
    }
    // Nor does a counter say anything of a server that has its name and is set up again.
    other.put("data/a", vec![3; 100]);
    {
        let mut objects = other.objects();
        let object = objects.get_mut("data/a").unwrap();
        (object.etag, object.modified) = ("1".into(), long_ago() + jiff::SignedDuration::from_secs(1));
    }
    assert_eq!(backup(&home, &other, 0).0["files_unchanged"], 0);
    assert_eq!(restored(&home)["a"], [3; 100]);
}

#[test]
fn a_repository_below_the_prefix_is_left_out() {
    let (home, server) = (Home::new(), S3Server::start());
    let object = |text: &'static str| (bytes::Bytes::from(text), jiff::Timestamp::now());
    server.objects().insert("data/a".into(), object("one"));
    server.objects().insert("data/repository-b".into(), object("two"));
    let run = |words: &[&str]| {
        let mut command = home.command(words);
        command
            .env("FHRD_REPO", "s3://bucket/data/repository")
            .env("FHRD_PASSWORD", "a password")
            .env("AWS_ACCESS_KEY_ID", REPOSITORY_KEY)
            .env("AWS_SECRET_ACCESS_KEY", "secret")
            .env("FHRD_ENDPOINT", server.endpoint())
            .env("FHRD_SOURCE_ENDPOINT", server.endpoint())
            .env_remove("AWS_PROFILE");
        command.output().unwrap()
    };
    json(&run(&["init", "--json"]));
    for _ in 0..2 {
        assert_eq!(json(&run(&["backup", URL, "--json"]))["files"], 2);
    }
    let inside = run(&["backup", "s3://bucket/data/repository/snapshots", "--json"]);
    assert_eq!(code(&inside), 1, "{}", stderr(&inside));
    assert!(stderr(&inside).contains("is in the repository"), "{}", stderr(&inside));
}

#[test]
fn a_hundred_thousand_objects_take_little_memory() {
    let (home, server) = (Home::new(), SourceServer::start());
    for number in 0..100_000 {
        let (directory, rest) = (number % 977, "a long name that fills the listing");
        server.put(&format!("data/{directory}/{number} {rest} {rest} {rest}"), "");
    }
    json(&home.run(&["init", "--json"]));
    // One of many shares lists all of them, too.
    for (share, files) in [(&[][..], 100_000..=100_000), (&["--shard", "3/9", "--group", "job"], 8_000..=14_000)] {
        let words = [&[URL], share].concat();
        let mut child =
            command(&home, &server.endpoint(), &words).stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut most = 0;
        while child.try_wait().unwrap().is_none() {
            most = most.max(memory_max(child.id()).unwrap_or(0));
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let report = json(&child.wait_with_output().unwrap());
        assert!(files.contains(&report["files"].as_u64().unwrap()), "{report}");
        assert_eq!(server.take_seen().iter().filter(|seen| *seen == "LIST").count(), 100);
        assert!(most > 0 && most < 300 << 20, "{share:?}: {} MiB", most >> 20);
    }
}

#[test]
fn models_are_recognised_and_ordered_as_on_a_disk() {
    let (home, server) = (Home::new(), SourceServer::start());
    let base = Weights::base();
    let (tuned, card) = (base.tuned(2), b"---\nbase_model: org/z-base\n---\n".to_vec());
    let files = [
        ("a-tune/model.safetensors", tuned.bf16()),
        ("a-tune/README.md", card),
        ("z-base/model.safetensors", base.bf16()),
    ];
    for (name, bytes) in files {
        home.write(&format!("disk/data/{name}"), &bytes);
        server.put(&format!("data/{name}"), bytes);
    }
    for repository in ["on-disk", "from-bucket"] {
        json(&home.run(&["init", "--repo", repository, "--json"]));
    }
    let disk = home.backup(&["--repo", "on-disk", "disk/data"]);
    let words = [URL, "--repo", "from-bucket"];
    let bucket = json(&command(&home, &server.endpoint(), &words).output().unwrap());
    let stored = |report: &Value| report["bytes_stored"].as_u64().unwrap();
    assert!(stored(&bucket) <= stored(&disk) * 101 / 100, "{} and {}", stored(&bucket), stored(&disk));
    assert!(stored(&bucket) < 3 * base.bf16().len() as u64 / 2, "the fine-tune is a delta");
    assert_eq!(json(&home.run(&["models", "--repo", "from-bucket", "--json"])).as_array().unwrap().len(), 2);
}

#[test]
fn models_that_were_put_right_before_a_backup_are_not_read_by_the_next_one() {
    let (home, server) = (Home::new(), SourceServer::start());
    server.put("data/z-base/model.safetensors", Weights::base().bf16());
    server.put("data/a-tune/model.safetensors", Weights::base().tuned(1).bf16());
    // Whole seconds, as the header says it.
    let now = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second()).unwrap();
    server.objects().values_mut().for_each(|object| object.modified = now);
    backup(&home, &server, 0);
    server.take_seen();
    let (report, _) = backup(&home, &server, 0);
    assert_eq!((&report["files_unchanged"], &report["bytes_read"]), (&2.into(), &0.into()), "{report}");
    assert_eq!(server.take_seen(), ["LIST"]);
}

#[test]
fn what_is_no_source_is_refused_and_patterns_choose() {
    let (home, server) = (Home::new(), SourceServer::start());
    server.put("data/a", "one");
    home.write("file", b"one");
    for (words, reason) in [
        (vec!["s3://bucket/nothing"], "no objects below"),
        (vec!["s3://other/data"], "bucket does not exist"),
        (vec![URL, "file"], "either one bucket or paths"),
        (vec![URL, "--one-file-system"], "--one-file-system"),
        (vec!["s3://bucket/a//b"], "not a valid location"),
    ] {
        let output = command(&home, &server.endpoint(), &words).output().unwrap();
        assert!(stderr(&output).contains(reason), "{words:?}: {}", stderr(&output));
        assert_ne!(code(&output), 0);
    }
    let excluded = [URL, "--exclude", "*.tmp", "--exclude", "/skip/", "--exclude-larger-than", "100"];
    for key in ["b.tmp", "skip/c", "skip/d/e", "keep/skip", "keep/long"] {
        server.put(&format!("data/{key}"), if key == "keep/long" { vec![1; 101] } else { vec![1; 100] });
    }
    let report = json(&command(&home, &server.endpoint(), &excluded).output().unwrap());
    assert_eq!((&report["files"], &report["excluded"]), (&2.into(), &4.into()));
    assert_eq!(restored(&home).into_keys().collect::<Vec<_>>(), ["a", "keep/skip"]);
}
