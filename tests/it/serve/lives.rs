//! What happens beside a server: publications, prunes, damage, ends.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::fixture::{LARGE, Server, large, scene, write_sources};
use crate::program::Place;

const FILE: &str = "/me/model/resolve/main/model.safetensors";

#[test]
fn names_come_move_and_go_while_it_runs() {
    let place = scene();
    let server = Server::start(&place, &[]);
    let commit = server.get(FILE).header("x-repo-commit").to_string();
    crate::input::write(place.path("hub/model/config.json"), b"{\"a\":2}");
    place.run(&["backup", "hub"]);
    place.run(&["publish", "latest:hub/model", "you/new"]);
    assert_eq!(server.wait_for("/you/new/resolve/main/config.json", 200).body, b"{\"a\":2}");
    place.run(&["publish", "latest:hub/model", "me/model"]);
    place.run(&["publish", "latest:hub/model", "me/model", "--revision", "v2"]);
    server.wait_for("/me/model/resolve/v2/config.json", 200);
    assert_eq!(server.get("/me/model/resolve/main/config.json").body, b"{\"a\":2}");
    let old = server.get(&format!("/me/model/resolve/{commit}/config.json"));
    assert_eq!((old.status, old.body.as_slice()), (200, &b"{\"a\":1}"[..]), "a commit never changes");
    // All backups go, and prunes move what stays.
    crate::input::write(place.path("other"), &large()[..5_000_000]);
    place.run(&["backup", "other"]);
    let all = place.run(&["snapshots"]);
    for named in all.as_array().unwrap().iter().filter(|named| named["tags"][0] != "published") {
        place.run(&["forget", named["id"].as_str().unwrap()]);
    }
    place.run(&["prune", "--grace", "0s"]);
    assert_eq!((server.get(FILE).body == large(), server.get("/readyz").status), (true, 200));
    place.run(&["unpublish", "me/model"]);
    assert_eq!(server.wait_for(FILE, 404).header("x-error-code"), "RepoNotFound");
    assert_eq!(server.get("/you/new/resolve/main/mid.bin").body.len(), 3_000_000);
    server.stop();
}

#[test]
fn an_encrypted_repository_is_served_and_nothing_of_it_is_on_the_disk() {
    let place = Place::new();
    write_sources(&place);
    std::fs::write(place.path("password"), "pass").unwrap();
    let file = place.path("password");
    let secret = ["--password-file", file.to_str().unwrap()];
    let run = |words: &[&str]| place.run(&[words, &secret].concat());
    run(&["init", "--encrypt"]);
    run(&["backup", "hub", "secret"]);
    run(&["publish", "latest:hub/model", "me/model"]);
    let server = Server::start(&place, &secret);
    let tree = server.get("/api/models/me/model/tree/main?recursive=true").json();
    let sha256 = tree.as_array().unwrap().iter().find_map(|entry| entry["lfs"]["oid"].as_str()).unwrap().to_string();
    assert!(server.get(FILE).body == large());
    server.stop();
    let wanted: Vec<u8> = (0..64).step_by(2).map(|at| u8::from_str_radix(&sha256[at..at + 2], 16).unwrap()).collect();
    let cached = hashes_file(&place);
    let bytes = std::fs::read(&cached).unwrap();
    assert!(bytes.len() > 4096 && !bytes.windows(32).any(|window| window == wanted), "the hashes are encrypted");
}

/// The file of hashes in the cache directory.
fn hashes_file(place: &Place) -> PathBuf {
    let caches = std::fs::read_dir(place.path("cache/fhrd")).unwrap();
    let files = caches.map(|cache| cache.unwrap().path().join("hashes.redb"));
    files.into_iter().find(|file| file.exists()).unwrap()
}

#[test]
fn hashes_outlive_a_server_that_is_killed_and_damage_costs_only_time() {
    let place = scene();
    let tree = |server: &Server| server.get("/api/models/me/model/tree/main?recursive=true").json();
    let server = Server::start(&place, &[]);
    let expected = tree(&server);
    server.signal(Signal::KILL);
    drop(server);
    let file = hashes_file(&place);
    let first = Server::start(&place, &[]);
    assert_eq!(tree(&first), expected);
    // The second has no file, because the first has it.
    let second = Server::start(&place, &[]);
    assert_eq!(tree(&second), expected);
    second.stop();
    first.stop();
    for damage in [&b"nothing"[..], &[0x55; 100_000]] {
        std::fs::write(&file, damage).unwrap();
        let server = Server::start(&place, &[]);
        assert_eq!(tree(&server), expected);
        server.stop();
    }
    std::fs::remove_file(&file).unwrap();
    assert_eq!(tree(&Server::start(&place, &[])), expected);
}

#[test]
fn an_answer_ends_before_the_server_does() {
    let place = scene();
    let server = Server::start(&place, &[]);
    let mut stream = server.connect();
    stream.write_all(format!("GET {FILE} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).unwrap();
    let mut answer = vec![0; 1000];
    stream.read_exact(&mut answer).unwrap();
    server.signal(Signal::TERM);
    std::thread::sleep(Duration::from_millis(1500));
    let refused = std::net::TcpStream::connect(server.address);
    assert!(refused.is_err(), "new clients are not taken");
    stream.read_to_end(&mut answer).unwrap();
    assert!(answer.ends_with(&large()[LARGE - 1000..]), "{} bytes", answer.len());
}

#[test]
fn damage_is_never_absence() {
    let place = scene();
    let server = Server::start(&place, &[]);
    assert_eq!(server.get("/me/model/resolve/main/config.json").status, 200);
    drop(server);
    let mut containers: Vec<PathBuf> = Vec::new();
    let mut directories = vec![place.repository().join("containers")];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() { directories.push(entry) } else { containers.push(entry) }
        }
    }
    for container in &containers {
        let bytes = std::fs::read(container).unwrap();
        let damaged: Vec<u8> = bytes.iter().map(|byte| byte ^ 0x11).collect();
        std::fs::remove_file(container).unwrap();
        std::fs::write(container, damaged).unwrap();
    }
    let server = Server::start(&place, &[]);
    for target in [
        "/me/model/resolve/main/config.json",
        "/me/model/resolve/main/none",
        "/api/models/me/model",
        "/v2/me/model/manifests/main",
    ] {
        let reply = server.get(target);
        assert_eq!((reply.status, reply.header("x-error-code")), (500, ""), "{target}: {reply:?}");
    }
    drop(server);
    // A snapshot that cannot be read may be the one that is asked for.
    let snapshots = std::fs::read_dir(place.repository().join("snapshots")).unwrap();
    std::fs::remove_dir_all(place.path("cache")).unwrap();
    for snapshot in snapshots.map(|entry| entry.unwrap().path()) {
        std::fs::remove_file(&snapshot).unwrap();
        std::fs::write(&snapshot, b"damaged").unwrap();
    }
    let server = Server::start(&place, &[]);
    for target in [FILE, "/api/models/me/none", "/v2/me/model/manifests/main", "/v2/me/none/tags/list"] {
        assert_eq!(server.get(target).status, 503, "{target}");
    }
    server.stop();
}

#[test]
fn it_speaks_tls() {
    let exists = |program: &str, word: &str| Command::new(program).arg(word).stdout(Stdio::null()).status().is_ok();
    if !exists("openssl", "version") || !exists("curl", "--version") {
        eprintln!("NOT RUN: there is no openssl or no curl");
        return;
    }
    let place = scene();
    let words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout key -out cert -days 2 -subj \
                 /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1";
    let made = Command::new("openssl").args(words.split_whitespace()).current_dir(place.path("")).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let [certificate, key] = ["cert", "key"].map(|name| place.path(name).to_str().unwrap().to_string());
    let server = Server::start(&place, &["--tls-cert", &certificate, "--tls-key", &key]);
    let url = format!("https://127.0.0.1:{}{FILE}", server.address.port());
    let got = Command::new("curl").args(["-sS", "--fail", "--cacert", &certificate, &url]).output().unwrap();
    assert!(got.stdout == large(), "{}", String::from_utf8_lossy(&got.stderr));
    // A client that speaks no TLS gets nothing.
    assert!(server.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").is_none_or(|reply| reply.status >= 400));
    server.stop();
}

#[test]
fn a_hash_that_has_begun_ends_although_its_client_leaves() {
    let place = scene();
    let server = Server::start(&place, &[]);
    let etag = || server.ask("HEAD", FILE, "").header("etag").to_string();
    let body = r#"{"paths":["model.safetensors"]}"#;
    let request = format!(
        "POST /api/models/me/model/paths-info/main HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let started = Instant::now();
    while etag().starts_with("\"fhrd-") {
        assert!(started.elapsed() < Duration::from_secs(30), "the file is read again and again");
        let mut stream = server.connect();
        stream.write_all(request.as_bytes()).unwrap();
        // Less than the file takes.
        std::thread::sleep(Duration::from_millis(5));
    }
    server.stop();
}
