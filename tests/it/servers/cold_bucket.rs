//! A bucket of moto whose data containers are in GLACIER: nothing but a restore reads them, and that thaws them first.
//!
//! moto answers reads of such objects with 403, as S3 does. It has no tiers, forgets no thawed copy, and takes a second
//! request.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::bucket_tests::fhrd;
use super::buckets::{BucketServer, http, http_answer, http_text, start_cold_moto};
use super::process::did_run;
use crate::input::write;
use crate::program::finished;
use crate::trees::{Random, assert_same, describe};

/// moto reads who asks, and does not look at the signature.
const SIGNED: &str = "Authorization: AWS4-HMAC-SHA256 Credential=tester/20260101/us-east-1/s3/aws4_request, \
                      SignedHeaders=host, Signature=0\r\n";
/// Time of a thawing: longer than it takes to ask for all, on a busy machine.
const SECONDS: u32 = 20;

fn cold(server: &BucketServer, home: &Path, words: &[&str]) -> Command {
    let mut command = fhrd(server, home, words);
    command.env("FHRD_STORAGE_CLASS", "containers=GLACIER").env("FHRD_DATA_TAG", "fhrd=data");
    command
}

fn run(server: &BucketServer, home: &Path, words: &[&str]) -> Value {
    finished(cold(server, home, words).output().unwrap(), &words.join(" "))
}

/// The paths of requests with this method in the log of the server, each as often as it was sent.
fn requests(server: &BucketServer, method: &str) -> Vec<String> {
    let log = fs::read_to_string(server.path("log")).unwrap();
    // Colours may stand before the method.
    let begin = format!("{method} /bucket/");
    let path = |line: &str| Some(format!("/bucket/{}", line.split_once(&begin)?.1.split([' ', '?']).next()?));
    log.lines().filter_map(path).collect()
}

fn port(server: &BucketServer) -> u16 {
    server.endpoint.rsplit_once(':').unwrap().1.parse().unwrap()
}

/// Whether an object is in GLACIER. One that is gone is not.
fn is_cold(server: &BucketServer, path: &str) -> bool {
    let (_, head) = http(port(server), "HEAD", path, SIGNED, b"");
    head.to_lowercase().contains("x-amz-storage-class: glacier")
}

/// Whether a life-cycle rule by tag finds an object.
fn is_tagged(server: &BucketServer, path: &str) -> bool {
    let (status, text) = http_text(port(server), "GET", &format!("{path}?tagging"), SIGNED, b"");
    assert_eq!(status, 200, "{text}");
    text.contains("<Key>fhrd</Key><Value>data</Value>")
}

/// A container whose hot index is gone and that is cold itself gets none, and the exit code says why.
fn cold_add_says_that_it_is_cold(server: &BucketServer, home: &Path, container: &str) {
    let (before, hash) = (container.split("/containers/").next().unwrap(), container.rsplit_once('/').unwrap().1);
    let (hot_index, aside) = (format!("{before}/indexes/{hash}.index"), "/bucket/aside");
    let copy = |from: &str, to: &str| {
        let headers = format!("{SIGNED}x-amz-copy-source: {from}\r\n");
        assert_eq!(http(port(server), "PUT", to, &headers, b"").0, 200, "{from}");
    };
    copy(&hot_index, aside);
    assert_eq!(http(port(server), "DELETE", &hot_index, SIGNED, b"").0, 204);
    failed(&cold(server, home, &["cold", "add"]).output().unwrap(), 13, "is in cold storage");
    copy(aside, &hot_index);
    assert_eq!(run(server, home, &["cold", "add"])["containers"], 0);
}

/// The bytes of an object that can be read.
fn body(server: &BucketServer, path: &str) -> Vec<u8> {
    let answer = http_answer(port(server), "GET", path, SIGNED, b"");
    let head_end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
    answer[head_end + 4..].to_vec()
}

/// The paths of the objects below the prefix that are in GLACIER.
fn cold_objects(server: &BucketServer) -> Vec<String> {
    let mut put = requests(server, "PUT");
    put.sort();
    put.dedup();
    put.into_iter().filter(|path| is_cold(server, path)).collect()
}

#[test]
fn a_damaged_container_in_glacier_heals_from_parity_that_is_thawed_too() {
    let test = "moto with GLACIER and parity";
    let Some(server) = start_cold_moto(test, 2) else { return };
    let directory = tempfile::tempdir().unwrap();
    let (home, source) = (directory.path().join("home"), directory.path().join("s"));
    write(source.join("noise"), &Random(1).bytes(300_000));
    run(&server, &home, &["init", "--cold", "--parity", "3%"]);
    run(&server, &home, &["backup", source.to_str().unwrap()]);
    let cold_names = cold_objects(&server);
    let [container, parity] = ["/containers/", "/parity/"].map(|kind| {
        let found: Vec<&String> = cold_names.iter().filter(|path| path.contains(kind)).collect();
        assert_eq!(found.len(), 1, "{cold_names:?}");
        found[0].clone()
    });
    let restore = |target: &str| {
        let target = directory.path().join(target);
        cold(&server, &home, &["restore", "latest", "--thaw", "--target", target.to_str().unwrap()]).output().unwrap()
    };
    assert!(restore("whole").status.success());
    // Its bytes, which can be read now, with damage, and as cold as before.
    let (status, _) = http(port(&server), "GET", &container, SIGNED, b"");
    assert_eq!(status, 200);
    let sound = body(&server, &container);
    let mut damaged = sound.clone();
    damaged[100_000] ^= 1;
    let headers = format!("{SIGNED}x-amz-storage-class: GLACIER\r\n");
    assert_eq!(http(port(&server), "PUT", &container, &headers, &damaged).0, 200);
    assert!(is_cold(&server, &parity));

    failed(&restore("damaged"), 20, "1 damaged containers have parity in cold storage; it was asked for");
    let until = Instant::now() + Duration::from_secs(300);
    let healed = loop {
        thread::sleep(Duration::from_secs(1));
        let target = format!("healed-{}", until.duration_since(Instant::now()).as_millis());
        let output = restore(&target);
        if output.status.success() {
            break directory.path().join(target);
        }
        assert!(Instant::now() < until, "{}", String::from_utf8_lossy(&output.stderr));
    };
    assert_same(&describe(&source), &describe(&healed.join(source.strip_prefix("/").unwrap())), "healed");
    assert!(body(&server, &container) == damaged, "a restore writes nothing");
    let checked = run(&server, &home, &["check", "--read-data", "--heal"]);
    assert_eq!((&checked["healed"]["containers"], &checked["healed"]["left"]), (&1.into(), &Value::Array(vec![])));
    assert!(is_cold(&server, &container), "what is written back is as cold as before");
    assert!(restore("again").status.success());
    assert!(body(&server, &container) == sound);
    did_run(test, "a damaged container heals once its parity is thawed");
}

fn failed(output: &Output, code: i32, text: &str) {
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(code) && errors.contains(text), "{}: {errors}", output.status);
}

#[test]
fn only_a_restore_reads_what_is_in_glacier_and_it_waits_until_that_is_thawed() {
    let test = "moto with GLACIER";
    let Some(server) = start_cold_moto(test, SECONDS) else { return };
    let directory = tempfile::tempdir().unwrap();
    let (one, two, source) = (directory.path().join("one"), directory.path().join("two"), directory.path().join("s"));
    write(source.join("old"), &Random(1).bytes(700_000));
    write(source.join("kept"), &Random(2).text(300_000));
    run(&server, &one, &["init"]);
    failed(&cold(&server, &one, &["backup", source.to_str().unwrap()]).output().unwrap(), 1, "needs a cold repository");
    assert_eq!(run(&server, &one, &["cold", "set", "on"])["cold"], true);
    let first = run(&server, &one, &["backup", source.to_str().unwrap()]);
    fs::remove_file(source.join("old")).unwrap();
    write(source.join("new"), &Random(3).bytes(200_000));
    // A machine that has cached nothing.
    let second = run(&server, &two, &["backup", source.to_str().unwrap()]);
    assert!(second["bytes_stored"].as_u64().unwrap() < 250_000, "what is cold is stored: {second}");
    run(&server, &two, &["snapshots"]);
    run(&server, &two, &["ls", "latest"]);
    run(&server, &two, &["find", "new"]);
    run(&server, &two, &["stats"]);
    let compared = cold(&server, &two, &["diff", first["snapshot"].as_str().unwrap(), "latest"]).output().unwrap();
    assert!(compared.status.success() && !compared.stdout.is_empty(), "{compared:?}");
    run(&server, &one, &["forget", "--keep-last", "1", "--group-by", ""]);
    let pruned = run(&server, &one, &["prune", "--grace", "0s"]);
    assert!(pruned["containers_deleted"].as_u64().unwrap() > 0, "{pruned}");
    let checked = run(&server, &two, &["check"]);
    assert_eq!((&checked["hot_indexes"]["missing"], &checked["defect_count"]), (&0.into(), &0.into()), "{checked}");

    let put: Vec<String> = requests(&server, "PUT").into_iter().filter(|path| is_cold(&server, path)).collect();
    assert!(!put.is_empty() && put.iter().all(|path| path.contains("/containers/")), "{put:?}");
    let read: Vec<String> = requests(&server, "GET").into_iter().filter(|path| path.contains("/containers/")).collect();
    assert!(!read.iter().any(|path| put.contains(path)), "{read:?}");

    cold_add_says_that_it_is_cold(&server, &one, put.iter().find(|path| is_cold(&server, path)).unwrap());

    let target = directory.path().join("restored");
    let words = ["restore", "latest", "--target", target.to_str().unwrap()];
    let refused = cold(&server, &two, &words).output().unwrap();
    failed(&refused, 13, "restore --thaw");
    let list = [&words[..], &["--dry-run", "--list-containers", "--price-per-gib", "1024"]].concat();
    let needed = run(&server, &two, &list);
    let containers = needed["containers"].as_array().unwrap();
    let (bytes, price) = (needed["bytes"].as_u64().unwrap(), needed["price"].as_f64().unwrap());
    assert!(!containers.is_empty() && (price - bytes as f64 / f64::from(1 << 20)).abs() < 1e-9, "{needed}");
    assert!(containers.iter().all(|one| put.iter().any(|path| path.ends_with(one["name"].as_str().unwrap()))));

    let thaw = [&words[..], &["--thaw", "--thaw-tier", "Bulk"]].concat();
    let child = cold(&server, &two, &thaw).spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(120);
    while requests(&server, "POST").len() < containers.len() {
        assert!(Instant::now() < until, "not all containers were asked for");
        thread::sleep(Duration::from_millis(100));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(130), "stopped while it waits");
    run(&server, &two, &thaw);
    assert_eq!(requests(&server, "POST").len(), containers.len(), "each container is asked for once");
    // moto tells the tags of thawed objects only.
    let is_needed = |path: &&String| containers.iter().any(|one| path.ends_with(one["name"].as_str().unwrap()));
    assert!(put.iter().filter(is_needed).all(|path| is_tagged(&server, path)));
    let hot = requests(&server, "PUT").into_iter().find(|path| path.ends_with("/config")).unwrap();
    assert!(!is_tagged(&server, &hot), "{hot}");
    assert_same(&describe(&source), &describe(&target.join(source.strip_prefix("/").unwrap())), "thawed");
    did_run(test, "no read of data but by a restore, which thaws, is stopped and goes on");
}
