//! Restores into a bucket that others write to as well.

use hyper::Method;
use serde_json::Value;

use super::server::{ObjectFault, SourceServer, State};
use super::target::{count, objects, restore};
use crate::cli::fixture::{Home, code, json, stderr};
use crate::trees::Random;

const WORDS: [&str; 3] = ["latest:src", "--target", "s3://bucket/back"];

/// A repository with a file of one request and one of three parts, and both.
fn home() -> (Home, [Vec<u8>; 2]) {
    let (home, mut random) = (Home::new(), Random(7));
    let files = [random.bytes(5000), random.bytes(40_000_000)];
    home.write("src/small", &files[0]);
    home.write("src/large", &files[1]);
    home.backup(&["src"]);
    (home, files)
}

/// Somebody else puts `key` when the restore sends `request`.
fn puts_meanwhile(server: &SourceServer, request: &'static str, key: &'static str, bytes: &[u8]) {
    let bytes = bytes.to_vec();
    let happens = move |state: &State| state.put(key, bytes.into(), ObjectFault::None);
    server.writes().before = Some((request, Box::new(happens)));
}

#[test]
fn what_another_process_puts_meanwhile_is_left_alone() {
    let (home, files) = home();
    let server = SourceServer::start();
    for (request, key) in [("PUT back/small", "back/small"), ("POST back/large", "back/large")] {
        server.objects().clear();
        puts_meanwhile(&server, request, key, b"of another");
        let output = restore(&home, &server, &WORDS);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((code(&output), count(&report, "files"), count(&report, "left_alone")), (1, 1, 1), "{key}");
        assert_eq!(server.objects()[key].bytes, &b"of another"[..]);
        assert!(stderr(&output).contains(&format!("s3://bucket/{key}: left alone")), "{}", stderr(&output));
        assert_eq!(server.uploads(), 0);
        // Who says that it is to be replaced gets that.
        server.objects().clear();
        puts_meanwhile(&server, request, key, b"of another");
        json(&restore(&home, &server, &[&WORDS[..], &["--overwrite", "if-changed"]].concat()));
        assert!(objects(&server, "back/").into_values().rev().eq(files.clone()));
    }
    // The same bytes, put by another restore.
    server.objects().clear();
    let etag = hex_of(&files[0]);
    let bytes = files[0].clone();
    let happens = move |state: &State| {
        state.put("back/small", bytes.into(), ObjectFault::None);
        state.objects.lock().unwrap().get_mut("back/small").unwrap().etag = etag;
    };
    server.writes().before = Some(("PUT back/small", Box::new(happens)));
    let report = json(&restore(&home, &server, &WORDS));
    assert_eq!((count(&report, "files"), count(&report, "unchanged")), (2, 1));
}

fn hex_of(bytes: &[u8]) -> String {
    use md5::{Digest, Md5};
    Md5::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_server_that_knows_no_conditions_is_asked_first() {
    let (home, files) = home();
    let server = SourceServer::start();
    server.writes().no_conditions = true;
    json(&restore(&home, &server, &WORDS));
    assert!(objects(&server, "back/").into_values().rev().eq(files));
    assert!(server.take_seen().contains(&"HEAD back/small".to_string()));
    server.objects().clear();
    puts_meanwhile(&server, "PUT back/small", "back/small", b"of another");
    let output = restore(&home, &server, &WORDS);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((code(&output), count(&report, "left_alone")), (1, 1), "{}", stderr(&output));
    assert_eq!(server.objects()["back/small"].bytes, &b"of another"[..]);
}

#[test]
fn what_others_put_is_left_alone_by_servers_that_ignore_conditions() {
    let (home, mut random) = (Home::new(), Random(8));
    let files: Vec<Vec<u8>> = (0..4).map(|number| random.bytes(3000 + number)).collect();
    files.iter().enumerate().for_each(|(number, bytes)| home.write(&format!("src/{number}"), bytes));
    home.write("src/large", &random.bytes(20_000_000));
    home.backup(&["src"]);
    for ignored in [&[][..], &[Method::POST], &[Method::PUT, Method::POST]] {
        for (request, key) in [("HEAD back/3", "back/3"), ("PUT back/large", "back/large")] {
            let server = SourceServer::start();
            server.writes().ignored = ignored;
            let is_obeyed = !ignored.contains(&Method::PUT);
            // Who ignores the condition of this is asked just before, and who obeys it is not.
            let request = if is_obeyed && key == "back/3" { "PUT back/3" } else { request };
            puts_meanwhile(&server, request, key, b"of another");
            let output = restore(&home, &server, &["latest:src", "--target", "s3://bucket/back", "--threads", "1"]);
            let what = format!("{ignored:?}, {key}: {}", stderr(&output));
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!((code(&output), count(&report, "left_alone")), (1, 1), "{what}");
            assert_eq!(server.objects()[key].bytes, &b"of another"[..], "{what}");
            let others = files.iter().enumerate().filter(|(number, _)| format!("back/{number}") != key);
            for (number, bytes) in others {
                assert!(server.objects()[&format!("back/{number}")].bytes == bytes, "{what}: {number}");
            }
        }
    }
}

#[test]
fn a_conflict_is_no_end() {
    let (home, files) = home();
    let server = SourceServer::start();
    server.writes().conflicts = 2;
    json(&restore(&home, &server, &WORDS));
    assert!(objects(&server, "back/").into_values().rev().eq(files));
    assert_eq!(server.uploads(), 0);
}
