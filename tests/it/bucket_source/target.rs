//! Restores into a bucket.

use std::collections::BTreeMap;
use std::process::Output;

use fhrd::store::{AccessKey, SourceBucket, StoreOptions};
use serde_json::Value;

use super::server::{ACCESS_KEY, ObjectFault, SourceServer, long_ago};
use super::{URL, backup};
use crate::cli::fixture::{Home, code, json, stderr};
use crate::trees::Random;

pub fn restore(home: &Home, server: &SourceServer, words: &[&str]) -> Output {
    let mut command = home.command(&[&["restore", "--json"], words].concat());
    command
        .env("FHRD_SOURCE_ENDPOINT", server.endpoint())
        .env("FHRD_SOURCE_AWS_ACCESS_KEY_ID", ACCESS_KEY)
        .env("FHRD_SOURCE_AWS_SECRET_ACCESS_KEY", "secret")
        .env("FHRD_SOURCE_AWS_REGION", "eu-central-1")
        .env_remove("AWS_PROFILE");
    command.output().unwrap()
}

/// The objects below a prefix, by the rest of their keys.
pub fn objects(server: &SourceServer, prefix: &str) -> BTreeMap<String, Vec<u8>> {
    let objects = server.objects();
    let below = objects.iter().filter_map(|(key, object)| Some((key.strip_prefix(prefix)?, object)));
    below.map(|(key, object)| (key.to_string(), object.bytes.to_vec())).collect()
}

pub fn count(report: &Value, name: &str) -> u64 {
    report[name].as_u64().unwrap()
}

#[test]
fn objects_come_back_with_their_keys_and_what_is_the_same_is_not_written() {
    let (home, server) = (Home::new(), SourceServer::start());
    let mut random = Random(11);
    for key in ["a", "a/b", "p//q", "/lead", "x/100% +", "x/c&<d>", "empty", "marked/", "full/"] {
        let bytes = if ["empty", "marked/"].contains(&key) { Vec::new() } else { random.bytes(3000) };
        server.put(&format!("data/{key}"), bytes);
    }
    server.put("data/large", random.bytes(40_000_000));
    backup(&home, &server, 0);
    let expected = objects(&server, "data/");
    let target = ["latest", "--target", "s3://bucket/back/here"];
    let dry = json(&restore(&home, &server, &[&target[..], &["--dry-run"]].concat()));
    assert_eq!((count(&dry, "files"), objects(&server, "back/").len()), (expected.len() as u64, 0));
    let named = restore(&home, &server, &[&target[..], &["--dry-run", "-v"]].concat());
    assert!(stderr(&named).contains("s3://bucket/back/here/a/b: would be written"), "{}", stderr(&named));
    let first = json(&restore(&home, &server, &target));
    assert_eq!((count(&first, "files"), count(&first, "unchanged")), (expected.len() as u64, 0));
    assert!(objects(&server, "back/here/") == expected);
    let noted = |key: &str| server.objects()[&format!("back/here/{key}")].noted.clone();
    for key in ["a", "large"] {
        assert_eq!(noted(key), ["application/x-test", "somebody"], "{key}");
    }
    assert!(server.objects()["back/here/large"].etag.ends_with("-3"), "it was put in parts");
    server.take_seen();
    let again = json(&restore(&home, &server, &target));
    assert_eq!((count(&again, "unchanged"), count(&again, "bytes_written")), (expected.len() as u64, 0));
    assert_eq!(server.take_seen(), ["LIST"]);
    // Back to where they came from, nothing is written either.
    assert_eq!(
        count(&json(&restore(&home, &server, &["latest", "--target", URL])), "unchanged"),
        expected.len() as u64
    );
    // One that differs is left alone, unless it is to be replaced. Its length is the same.
    let another = random.bytes(3000);
    server.put("back/here/a", another.clone());
    let left = restore(&home, &server, &target);
    assert_eq!((code(&left), objects(&server, "back/here/")["a"].as_slice()), (1, &another[..]));
    assert!(stderr(&left).contains("s3://bucket/back/here/a: left alone"), "{}", stderr(&left));
    server.take_seen();
    let replaced = json(&restore(&home, &server, &[&target[..], &["--overwrite", "if-changed"]].concat()));
    assert_eq!((count(&replaced, "unchanged"), count(&replaced, "bytes_written")), (expected.len() as u64 - 1, 3000));
    assert_eq!(server.take_seen(), ["LIST", "PUT back/here/a"]);
    assert!(objects(&server, "back/here/") == expected);
    json(&restore(&home, &server, &["latest:x", "--target", "s3://bucket/part"]));
    assert_eq!(objects(&server, "part/").into_keys().collect::<Vec<_>>(), ["100% +", "c&<d>"]);
}

#[test]
fn the_etag_of_another_server_says_nothing_of_the_bytes() {
    let (home, source, target) = (Home::new(), SourceServer::start(), SourceServer::start());
    let put = |server: &SourceServer, key: &str, byte: u8, etag: &str| {
        server.put(key, vec![byte; 100]);
        server.objects().get_mut(key).unwrap().etag = etag.into();
    };
    let tags = ["1", "0x8DC5A0B1C2D3E4F", "00000000000000000000000000000001-x"];
    for (tag, key) in tags.into_iter().zip(["data/a", "data/b", "data/c"]) {
        put(&source, key, 1, tag);
        put(&target, key, 2, tag);
    }
    backup(&home, &source, 0);
    let words = ["latest", "--target", URL];
    let report = json(&restore(&home, &source, &words));
    assert_eq!((count(&report, "unchanged"), count(&report, "bytes_written")), (3, 0), "the source itself");
    let left = restore(&home, &target, &words);
    assert_eq!(code(&left), 1, "{}", stderr(&left));
    assert!(stderr(&left).contains("s3://bucket/data/a: left alone"), "{}", stderr(&left));
    let report = json(&restore(&home, &target, &["latest", "--target", URL, "--overwrite", "if-changed"]));
    assert_eq!((count(&report, "unchanged"), count(&report, "bytes_written")), (0, 300));
    assert!(objects(&target, "data/").values().all(|bytes| *bytes == [1; 100]));
    // The server of the source is set up again, and counts from one again.
    for (tag, key) in tags.into_iter().zip(["data/a", "data/b", "data/c"]) {
        put(&source, key, 2, tag);
        source.objects().get_mut(key).unwrap().modified = long_ago() + jiff::SignedDuration::from_secs(1);
    }
    let report = json(&restore(&home, &source, &["latest", "--target", URL, "--overwrite", "if-changed"]));
    assert_eq!((count(&report, "unchanged"), count(&report, "bytes_written")), (0, 300));
    assert!(objects(&source, "data/").values().all(|bytes| *bytes == [1; 100]));
    // In the bucket of the source, another key has an ETag of its own.
    put(&source, "other/a", 3, "1");
    let words = ["latest", "--target", "s3://bucket/other", "--overwrite", "if-changed"];
    assert_eq!(count(&json(&restore(&home, &source, &words)), "unchanged"), 0);
    assert_eq!(objects(&source, "other/")["a"], [1; 100]);
}

#[test]
fn files_of_a_disk_become_objects_and_what_cannot_be_written_is_named() {
    let (home, server) = (Home::new(), SourceServer::start());
    home.write("src/good", b"good");
    home.write("src/locked", b"locked");
    let refused = [&b"REFUSED PART"[..], &Random(3).bytes(17_000_000)].concat();
    home.write("src/refused", &refused);
    std::os::unix::fs::symlink("good", home.path("src/link")).unwrap();
    home.backup(&["src"]);
    server.put_with("back/locked", "old", ObjectFault::Locked);
    let words = ["latest:src", "--target", "s3://bucket/back", "--overwrite", "always"];
    let output = restore(&home, &server, &words);
    assert_eq!(code(&output), 1, "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((count(&report, "files"), count(&report, "problems"), count(&report, "left_out")), (1, 2, 1));
    assert!(stderr(&output).contains("s3://bucket/back/locked") && stderr(&output).contains("back/refused"));
    assert_eq!(objects(&server, "back/").into_keys().collect::<Vec<_>>(), ["good", "locked"]);
    assert_eq!(server.uploads(), 0, "an upload that fails leaves no parts");
    for more in [&["--delete"][..], &["--verify"], &["--overwrite", "if-newer"]] {
        let words = [&["latest", "--target", "s3://bucket/back"], more].concat();
        let output = restore(&home, &server, &words);
        assert!(code(&output) != 0 && stderr(&output).contains("not about objects"), "{more:?}");
    }
}

#[test]
fn an_object_that_cannot_be_looked_at_is_not_absent() {
    let server = SourceServer::start();
    server.put("back/some", "bytes");
    server.put("back/empty", "");
    server.put_with("back/denied", "secret", ObjectFault::Denied);
    let access_key = Some(AccessKey { id: ACCESS_KEY.into(), secret: "secret".into() });
    let options = StoreOptions { endpoint: Some(server.endpoint()), access_key, ..StoreOptions::default() };
    let bucket = SourceBucket::open("s3://bucket/back".as_ref(), &options).unwrap();
    let size = |key: &str| bucket.find(key).map(|found| found.map(|state| state.size));
    assert_eq!(size("back/some").unwrap(), Some(5));
    assert_eq!(size("back/empty").unwrap(), Some(0));
    assert_eq!(size("back/gone").unwrap(), None);
    let error = size("back/denied").unwrap_err().to_string();
    assert!(error.contains("s3://bucket/back/denied"), "{error}");
}
