//! Restores into a bucket: what ends one, and what costs a file.

use std::path::Path;

use serde_json::Value;

use super::server::{ObjectFault, SourceServer};
use super::target::{count, objects, restore};
use crate::cli::fixture::{Home, code, stderr};
use crate::trees::Random;

/// A repository with twelve files of 3 MB below `src`.
fn home() -> Home {
    let (home, mut random) = (Home::new(), Random(5));
    (0..12).for_each(|number| home.write(&format!("src/{number:02}"), &random.bytes(3_000_000)));
    home.backup(&["src"]);
    home
}

#[test]
fn a_bucket_that_takes_nothing_any_more_ends_it_at_once() {
    let (home, server) = (home(), SourceServer::start());
    let refusals = [(400, "ExpiredToken", 1), (403, "InvalidAccessKeyId", 1), (404, "NoSuchBucket", 10)];
    for (status, said, expected) in refusals {
        server.writes().refusal = Some((status, said));
        server.take_seen();
        let output = restore(&home, &server, &["latest:src", "--target", "s3://bucket/back"]);
        assert_eq!((code(&output), output.stdout.len()), (expected, 0), "{said}: {}", stderr(&output));
        assert!(stderr(&output).contains("s3://bucket/back/"), "{said}: {}", stderr(&output));
        let puts = server.take_seen().iter().filter(|seen| seen.starts_with("PUT")).count();
        assert!((1..=4).contains(&puts), "{said}: {puts} requests");
    }
    // What is refused for a single object costs only that.
    server.writes().refusal = None;
    server.put_with("back/07", "locked", ObjectFault::Locked);
    let words = ["latest:src", "--target", "s3://bucket/back", "--overwrite", "if-changed"];
    let output = restore(&home, &server, &words);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((code(&output), count(&report, "files"), count(&report, "problems")), (1, 11, 1));
}

/// Removes the files below a directory of the repository.
fn empty(directory: &Path) {
    for entry in std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() { empty(&entry) } else { std::fs::remove_file(entry).unwrap() }
    }
}

#[test]
fn a_snapshot_that_was_forgotten_meanwhile_is_no_damage() {
    for is_forgotten in [true, false] {
        let (home, server) = (home(), SourceServer::start());
        let repository = std::fs::canonicalize(home.path("data/fhrd/repository")).unwrap();
        let happens = move |_: &super::server::State| {
            empty(&repository.join("containers"));
            if is_forgotten {
                empty(&repository.join("snapshots"));
            }
        };
        server.writes().before = Some(("PUT back/01", Box::new(happens)));
        let output = restore(&home, &server, &["latest:src", "--target", "s3://bucket/back"]);
        let said = stderr(&output);
        assert_eq!(code(&output), if is_forgotten { 1 } else { 20 }, "{said}");
        assert_eq!(said.contains("it was forgotten meanwhile"), is_forgotten, "{said}");
    }
}

#[test]
fn a_listing_that_goes_in_a_circle_is_an_error() {
    let (home, server) = (home(), SourceServer::start());
    let page = "<ListBucketResult><IsTruncated>true</IsTruncated>\
                <NextContinuationToken>same</NextContinuationToken></ListBucketResult>";
    server.answer_pages_with(page, true);
    let output = restore(&home, &server, &["latest:src", "--target", "s3://bucket/back"]);
    assert_eq!(code(&output), 1, "{}", stderr(&output));
    assert!(stderr(&output).contains("the same pages again and again"), "{}", stderr(&output));
    assert!(objects(&server, "back/").is_empty());
}
