//! A bucket of moto with Object Lock: versions that nobody may delete, and a prune that waits.
//!
//! It has no default retention, because moto then wants the header `x-amz-sdk-checksum-algorithm`, where S3 is content
//! with a checksum.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::bucket_tests::fhrd;
use super::buckets::{BucketServer, http, start};
use super::process::did_run;
use crate::input::write;
use crate::program::finished;
use crate::trees::{Random, assert_same, describe};

const PREFIX: &str = "/locked/prefix";
/// moto reads who asks, and does not look at the signature.
const SIGNED: &str = "Authorization: AWS4-HMAC-SHA256 Credential=tester/20260101/us-east-1/s3/aws4_request, \
                      SignedHeaders=host, Signature=0\r\n";

/// Lets `server` have a second bucket, in which objects can be locked, and use that one.
fn with_locked_bucket(mut server: BucketServer) -> BucketServer {
    let enabled = "x-amz-bucket-object-lock-enabled: true\r\n";
    assert_eq!(http(port(&server), "PUT", "/locked", enabled, b"").0, 200);
    server.url = "s3://locked/prefix".into();
    server
}

fn port(server: &BucketServer) -> u16 {
    server.endpoint.rsplit_once(':').unwrap().1.parse().unwrap()
}

/// The headers of an object.
fn headers(server: &BucketServer, name: &str) -> String {
    let (status, head) = http(port(server), "HEAD", &format!("{PREFIX}/{name}"), SIGNED, b"");
    assert_eq!(status, 200, "{name}: {head}");
    head.to_lowercase()
}

fn header(head: &str, name: &str) -> String {
    let line = head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
    line.unwrap_or_else(|| panic!("{name} in {head}")).into()
}

fn run(server: &BucketServer, home: &Path, words: &[&str]) -> Value {
    finished(fhrd(server, home, words).output().unwrap(), &words.join(" "))
}

#[test]
fn moto_locks_what_stays_and_a_prune_waits_for_the_rest() {
    let test = "moto with Object Lock";
    let Some(server) = start(test, "moto") else { return };
    let directory = tempfile::tempdir().unwrap();
    let (home, source) = (directory.path().join("home"), directory.path().join("source"));
    run(&server, &home, &["init"]);
    let refused = fhrd(&server, &home, &["prune", "--extend-locks", "30d"]).output().unwrap();
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(1) && text.contains("has no locks to extend"), "{text}");

    let server = with_locked_bucket(server);
    write(source.join("old"), &Random(1).bytes(2_000_000));
    run(&server, &home, &["init"]);
    run(&server, &home, &["backup", source.to_str().unwrap()]);
    let report = run(&server, &home, &["prune", "--grace", "0s", "--extend-locks", "30d"]);
    let count = |report: &Value, name: &str| report[name].as_u64().unwrap();
    assert!(count(&report, "locks_extended") > 5, "{report}");
    fs::remove_file(source.join("old")).unwrap();
    write(source.join("new"), &Random(2).bytes(500_000));
    run(&server, &home, &["backup", source.to_str().unwrap()]);
    run(&server, &home, &["forget", "--keep-last", "1", "--group-by", ""]);
    let report = run(&server, &home, &["prune", "--grace", "0s", "--extend-locks", "30d"]);
    assert!(count(&report, "containers_locked") > 0 && count(&report, "locks_extended") > 0, "{report}");
    assert_eq!((count(&report, "containers_deleted"), count(&report, "containers_refused")), (0, 0), "{report}");

    // The configuration is locked for a month, so the right to delete versions does not suffice to delete this one.
    let head = headers(&server, "config");
    assert_eq!(header(&head, "x-amz-object-lock-mode"), "governance");
    let until: jiff::Timestamp = header(&head, "x-amz-object-lock-retain-until-date").to_uppercase().parse().unwrap();
    let days = until.duration_since(jiff::Timestamp::now()).as_hours() / 24;
    assert!((29..=30).contains(&days), "{head}");
    let version = header(&head, "x-amz-version-id");
    let deletion = format!("{PREFIX}/config?versionId={version}");
    assert_eq!(http(port(&server), "DELETE", &deletion, SIGNED, b"").0, 403, "it is locked");
    let again = run(&server, &home, &["prune", "--grace", "0s", "--extend-locks", "30d"]);
    assert_eq!(count(&again, "locks_extended"), 0, "{again}");
    assert_eq!(again["locked_until"], report["locked_until"]);

    let target = directory.path().join("restored");
    run(&server, &home, &["restore", "latest", "--target", target.to_str().unwrap()]);
    assert_same(&describe(&source), &describe(&target.join(source.strip_prefix("/").unwrap())), "moto");
    run(&server, &home, &["check", "--read-data"]);
    did_run(test, "extended locks, a prune that waits");
}
