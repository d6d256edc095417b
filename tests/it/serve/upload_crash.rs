//! Servers that are killed while they store an upload, and prunes beside uploads.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustix::process::Signal;

use super::fixture::{Reply, Server};
use super::uploader::{
    HEADER, WRITER, batch, commit, file_line, href, object_line, request, send, start, stored, walkdir, writable,
};
use crate::cli::fixture::{Home, json};
use crate::trees::Random;
use crate::wire::server::{ACCESS_KEY, Behaviour, S3Server, StoredObjects};

/// `fhrd` for a repository in the bucket, with caches of its own for each round.
fn command(home: &Home, bucket: &S3Server, round: &str, words: &[&str]) -> Command {
    let mut command = home.command(words);
    command
        .env("FHRD_REPO", "s3://bucket/laptop")
        .env("FHRD_ENDPOINT", bucket.endpoint())
        .env("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        .env("AWS_SECRET_ACCESS_KEY", "secret")
        .env_remove("AWS_PROFILE")
        .env("XDG_CACHE_HOME", home.path(&format!("cache-{round}")))
        .env("XDG_DATA_HOME", home.path(&format!("data-{round}")));
    command
}

fn served(home: &Home, bucket: &S3Server, round: &str) -> Server {
    let mut command = command(home, bucket, round, &["serve", "--listen", "127.0.0.1:0", "--writable", "--json", "-q"]);
    Server::of(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
}

/// The commit, whether anybody is there to hear of it.
fn lines(object: &[u8]) -> String {
    let small = BASE64_STANDARD.encode(Random(12).bytes(20_000));
    format!("{HEADER}{}{}{}", file_line("a/small", &small), object_line("b/object", object), file_line("c", "aGk="))
}

/// Whether the name shows all of the commit. It must show all or nothing.
fn is_whole(server: &Server, object: &[u8], what: &str) -> bool {
    let files = [("a/small", Random(12).bytes(20_000)), ("b/object", object.to_vec()), ("c", b"hi".to_vec())];
    let replies = files.map(|(path, bytes)| {
        let reply = server.get(&format!("/me/m/resolve/main/{path}"));
        assert!(reply.status == 404 || reply.body == bytes, "{what}: {path}: {}", reply.status);
        reply.status == 200
    });
    assert!(replies == [true; 3] || replies == [false; 3], "{what}: {replies:?}");
    replies[0]
}

/// Sends the commit, and kills the server once it has done the change number `at` of the bucket. Returns whether there
/// was one.
fn killed(home: &Home, bucket: &S3Server, at: usize, object: &[u8]) -> bool {
    let server = served(home, bucket, &format!("first-{at}"));
    bucket.behave(Behaviour { stalls_at: Some(at), ..Behaviour::default() });
    let is_killed = std::thread::scope(|scope| {
        let asking = scope.spawn(|| commit(&server, "me/m", "", &lines(object)));
        while !bucket.is_stalled() && !asking.is_finished() {
            std::thread::sleep(Duration::from_millis(2));
        }
        let is_stalled = bucket.is_stalled();
        server.signal(Signal::KILL);
        let reply: Reply = asking.join().unwrap();
        assert!(is_stalled || reply.status == 200, "{reply:?}");
        is_stalled
    });
    drop(server);
    bucket.behave(Behaviour::default());
    is_killed
}

#[test]
fn a_server_that_is_killed_at_any_write_has_a_whole_commit_or_none() {
    let (home, bucket) = (Home::new(), S3Server::start());
    let object = Random(11).bytes(1_200_000);
    json(&command(&home, &bucket, "init", &["init", "--unencrypted", "--json"]).output().unwrap());
    let server = served(&home, &bucket, "init");
    let upload = href(&batch(&server, "me/m", "", &object), "upload");
    assert_eq!(send(&server, "PUT", &upload, "", &object).status, 200);
    server.stop();
    let before: StoredObjects = bucket.objects().clone();
    let mut outcomes = Vec::new();
    for at in 0.. {
        *bucket.objects() = before.clone();
        let (is_killed, what) = (killed(&home, &bucket, at, &object), format!("killed at write {at}"));
        let server = served(&home, &bucket, &format!("second-{at}"));
        let is_there = is_whole(&server, &object, &what);
        outcomes.push(is_there);
        server.stop();
        // Whoever was killed is dead to this prune.
        let round = format!("prune-{at}");
        let pruned = command(&home, &bucket, &round, &["prune", "--grace", "0s", "--json"]).output().unwrap();
        json(&pruned);
        let server = served(&home, &bucket, &format!("third-{at}"));
        assert_eq!(is_whole(&server, &object, &what), is_there, "{what}, then pruned");
        assert!(batch(&server, "me/m", "", &object).json()["objects"][0]["actions"].is_null(), "{what}: the object");
        let again = commit(&server, "me/m", "", &lines(&object));
        assert_eq!(again.status, 200, "{what}: {again:?}");
        assert!(is_whole(&server, &object, &what), "{what}");
        server.stop();
        if !is_killed {
            break;
        }
    }
    let whole = outcomes.iter().filter(|is_there| **is_there).count();
    assert!(outcomes.len() > 6 && (1..outcomes.len()).contains(&whole), "{outcomes:?}");
}

/// Uploads an object and commits it, as long as the server asks for another try.
fn uploaded(server: &Server, name: &str, object: &[u8]) {
    let put = || match batch(server, name, WRITER, object) {
        reply if reply.status == 503 => reply,
        reply if reply.json()["objects"][0]["actions"].is_null() => reply,
        reply => send(server, "PUT", &href(&reply, "upload"), "", object),
    };
    let lines = format!("{HEADER}{}", object_line("object", object));
    for ask in [&put as &dyn Fn() -> Reply, &|| commit(server, name, WRITER, &lines)] {
        let tries = (0..100).map(|_| ask()).find(|reply| {
            assert!([200, 503].contains(&reply.status), "{name}: {reply:?}");
            reply.status == 200
        });
        assert!(tries.is_some(), "{name}: never");
    }
}

#[test]
fn prunes_beside_uploads_lose_nothing_that_was_acknowledged() {
    let (place, server) = writable();
    let objects: Vec<(String, Vec<u8>)> =
        (0..12).map(|at| (format!("me/m{at}"), Random(30 + at).bytes(1_100_000))).collect();
    std::thread::scope(|scope| {
        let uploading: Vec<_> = objects
            .chunks(6)
            .map(|own| {
                let server = &server;
                scope.spawn(move || own.iter().for_each(|(name, object)| uploaded(server, name, object)))
            })
            .collect();
        let mut prunes = 0;
        while uploading.iter().any(|thread| !thread.is_finished()) {
            place.run(&["prune", "--grace", "1h"]);
            prunes += 1;
        }
        assert!(prunes > 1, "{prunes}");
        uploading.into_iter().for_each(|thread| thread.join().unwrap());
    });
    server.stop();
    place.run(&["prune", "--grace", "0s"]);
    let server = start(&place);
    let headers = format!("Authorization: Bearer {WRITER}\r\n");
    for (name, object) in &objects {
        let reply = server.ask("GET", &format!("/{name}/resolve/main/object"), &headers);
        assert!(reply.body == *object, "{name}: {}", reply.status);
        assert!(batch(&server, name, WRITER, object).json()["objects"][0]["actions"].is_null(), "{name}");
    }
    server.stop();
    place.run(&["check", "--read-data"]);
}

#[test]
fn a_server_that_is_killed_has_what_it_acknowledged_and_no_more() {
    let (place, server) = writable();
    let [one, other] = [3, 4].map(|seed| Random(seed).bytes(1_200_000));
    let uploads = [&one, &other].map(|bytes| href(&batch(&server, "me/a", WRITER, bytes), "upload"));
    assert_eq!(send(&server, "PUT", &uploads[0], "", &one).status, 200);
    let before = stored(&place);
    let mut stream = server.connect();
    stream.write_all(&request("PUT", &uploads[1], "", &other)[..700_000]).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    server.signal(rustix::process::Signal::KILL);
    drop(server);
    let server = start(&place);
    assert_eq!(stored(&place), before);
    let spooled = walkdir(&place.path("cache")).into_iter().filter(|path| path.contains("/uploads/")).count();
    assert_eq!(spooled, 0, "nothing of the body stays");
    let lost = commit(&server, "me/a", WRITER, &format!("{HEADER}{}", object_line("b", &other)));
    assert_eq!(lost.status, 400, "{lost:?}");
    let whole = commit(&server, "me/a", WRITER, &format!("{HEADER}{}", object_line("b", &one)));
    assert_eq!(whole.status, 200, "{whole:?}");
    server.stop();
}
