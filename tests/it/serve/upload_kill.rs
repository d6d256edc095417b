//! Servers that are killed at any time while clients upload by git-lfs and by Xet, beside prunes.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use super::fixture::{Reply, Server};
use super::uploader::{HEADER, READER, WRITER, commit, href, object_line, oid, request, start, writable};
use super::xet_client::{SentFile, SentXorb, XetPlace, shard};
use crate::trees::Random;

/// Servers that are killed.
const ROUNDS: u64 = 8;
/// More of each must be acknowledged, or the test shows nothing.
const ACKNOWLEDGED_MIN: usize = 5;
/// Time until one is killed, milliseconds.
const LIFE_MS: std::ops::Range<u64> = 30..1500;

/// What servers have acknowledged.
#[derive(Default)]
struct Acknowledged {
    /// Objects by the name that they were uploaded for.
    objects: Vec<(String, Vec<u8>)>,
    /// Xorbs, likewise.
    xorbs: Vec<(String, SentXorb)>,
    /// Name, path and bytes of committed files.
    files: Vec<(String, String, Vec<u8>)>,
}

impl Acknowledged {
    /// Objects, xorbs and files of commits.
    fn counts(&self) -> [usize; 3] {
        [self.objects.len(), self.xorbs.len(), self.files.len()]
    }

    fn add(&mut self, more: Acknowledged) {
        self.objects.extend(more.objects);
        self.xorbs.extend(more.xorbs);
        self.files.extend(more.files);
    }
}

/// The answer of a server that may be dead. What it has begun to answer counts.
fn asked(server: &Server, method: &str, target: &str, token: &str, body: &[u8]) -> Option<Reply> {
    let reply = server.try_send(&request(method, target, token, body))?;
    assert!(reply.status < 500 || reply.status == 503, "{method} {target}: {reply:?}");
    Some(reply)
}

fn put(server: &Server, name: &str, bytes: &[u8]) -> Option<bool> {
    let objects = json!([{ "oid": oid(bytes), "size": bytes.len() }]);
    let body = json!({ "operation": "upload", "transfers": ["basic"], "objects": objects }).to_string();
    let asked_for = asked(server, "POST", &format!("/{name}.git/info/lfs/objects/batch"), WRITER, body.as_bytes())?;
    if asked_for.status != 200 || !asked_for.body.ends_with(b"}") {
        return Some(false);
    }
    Some(asked(server, "PUT", &href(&asked_for, "upload"), "", bytes)?.status == 200)
}

/// Commits an object that is there.
fn committed(server: &Server, name: &str, path: &str, bytes: &[u8]) -> Option<bool> {
    let lines = format!("{HEADER}{}", object_line(path, bytes));
    Some(asked(server, "POST", &format!("/api/models/{name}/commit/main"), WRITER, lines.as_bytes())?.status == 200)
}

/// Uploads objects, and commits every other one, until the server is dead.
fn send_objects(server: &Server, round: u64) -> Acknowledged {
    let (mut held, name) = (Acknowledged::default(), format!("me/lfs{round}"));
    for at in 0..100 {
        let seed = 1000 * (round + 1) + at;
        let bytes = Random(seed).bytes(1_000 + (seed as usize * 7919) % 700_000);
        match put(server, &name, &bytes) {
            None => break,
            Some(is_there) => {
                if is_there && at % 2 == 0 && committed(server, &name, &format!("below/{at}"), &bytes) == Some(true) {
                    held.files.push((name.clone(), format!("below/{at}"), bytes.clone()));
                }
                if is_there {
                    held.objects.push((name.clone(), bytes));
                }
            }
        }
    }
    held
}

/// Uploads xorbs and files of them, and commits every other one, until the server is dead.
fn send_xorbs(server: &Server, round: u64) -> Acknowledged {
    let (mut held, name) = (Acknowledged::default(), format!("me/xet{round}"));
    let token = asked(server, "GET", &format!("/api/models/{name}/xet-write-token/main"), WRITER, b"");
    let Some(token) = token.filter(|reply| reply.body.ends_with(b"}")) else { return held };
    let text = |key: &str| token.json()[key].as_str().unwrap().to_string();
    let path = text("casUrl").strip_prefix("http://localhost").unwrap().to_string();
    let post = |rest: &str, body: &[u8]| {
        asked(server, "POST", &format!("{path}/{rest}"), &text("accessToken"), body).map(|reply| reply.status == 200)
    };
    for at in 0..100 {
        let seed = 500_000 + 1000 * (round + 1) + at;
        let xorb = SentXorb::of(&Random(seed).bytes(1_000 + (seed as usize * 7919) % 900_000));
        let Some(is_there) = post(&format!("v1/xorbs/default/{}", xorb.hash.digits()), &xorb.bytes()) else { break };
        if !is_there {
            continue;
        }
        let file = SentFile(vec![(&xorb, 0..xorb.chunks.len())]);
        let (bytes, sent) = (file.bytes(), shard(&[file], &[&xorb]).concat());
        if at % 3 > 0 && post("v1/shards", &sent) == Some(true) {
            if at % 3 == 2 && committed(server, &name, &format!("{at}"), &bytes) == Some(true) {
                held.files.push((name.clone(), format!("{at}"), bytes.clone()));
            }
            held.objects.push((name.clone(), bytes));
        }
        held.xorbs.push((name.clone(), xorb));
    }
    held
}

fn shown(server: &Server, name: &str, path: &str) -> Vec<u8> {
    let headers = format!("Authorization: Bearer {READER}\r\n");
    server.ask("GET", &format!("/{name}/resolve/main/{path}"), &headers).body
}

/// Asserts that a server has all that was acknowledged, and the bytes of what was committed.
fn assert_held(server: &Server, held: &Acknowledged, what: &str) {
    for (name, bytes) in &held.objects {
        let reply = super::uploader::batch(server, name, WRITER, bytes).json();
        assert!(reply["objects"][0]["oid"] == oid(bytes).as_str(), "{what}: {reply}");
        assert!(reply["objects"][0]["actions"].is_null(), "{what}: an object of {name} is lost");
    }
    for (name, path, bytes) in &held.files {
        assert!(shown(server, name, path) == *bytes, "{what}: {name} {path}");
    }
    for (name, xorb) in &held.xorbs {
        let reply = XetPlace::of(server, name, WRITER).xorb(server, xorb);
        assert_eq!(
            (reply.status, reply.json()["was_inserted"].as_bool()),
            (200, Some(false)),
            "{what}: a xorb is lost"
        );
    }
}

#[test]
fn servers_that_are_killed_at_any_time_lose_nothing_that_they_acknowledged() {
    let (place, server) = writable();
    server.stop();
    let mut held = Acknowledged::default();
    for round in 0..4 * ROUNDS {
        // A busy machine acknowledges less in a life.
        if round >= ROUNDS && held.counts().iter().all(|count| *count > ACKNOWLEDGED_MIN) {
            break;
        }
        let server = start(&place);
        let life = LIFE_MS.start + (round * 7919 + 331) * 131 % (LIFE_MS.end - LIFE_MS.start);
        let more = std::thread::scope(|scope| {
            let by_lfs = scope.spawn(|| send_objects(&server, round));
            let by_xet = scope.spawn(|| send_xorbs(&server, round));
            let pruning = scope.spawn(|| place.run(&["prune", "--grace", "1h"]));
            std::thread::sleep(Duration::from_millis(life));
            server.signal(Signal::KILL);
            pruning.join().unwrap();
            [by_lfs.join().unwrap(), by_xet.join().unwrap()]
        });
        drop(server);
        more.into_iter().for_each(|more| held.add(more));
        let server = start(&place);
        assert_held(&server, &held, &format!("killed after {life} ms"));
        server.signal(Signal::KILL);
    }
    let counts = held.counts();
    eprintln!("acknowledged: {} objects, {} xorbs, {} files of commits", counts[0], counts[1], counts[2]);
    assert!(counts.iter().all(|count| *count > ACKNOWLEDGED_MIN), "{counts:?}");
    // Whoever was killed is dead to this prune.
    place.run(&["prune", "--grace", "0s"]);
    let server = start(&place);
    assert_held(&server, &held, "pruned");
    // Of what no commit has taken, every byte is there, too.
    for (at, (name, bytes)) in held.objects.iter().enumerate() {
        let path = format!("late/{at}");
        assert_eq!(commit(&server, name, WRITER, &format!("{HEADER}{}", object_line(&path, bytes))).status, 200);
        assert!(shown(&server, name, &path) == *bytes, "{name} {path}");
    }
    let xet = XetPlace::of(&server, "me/again", WRITER);
    for (at, (_, xorb)) in held.xorbs.iter().enumerate() {
        let file = SentFile(vec![(xorb, 0..xorb.chunks.len())]);
        let (bytes, path) = (file.bytes(), format!("{at}"));
        assert_eq!(xet.shard(&server, &shard(&[file], &[]).concat()).status, 200, "xorb {at}");
        assert_eq!(commit(&server, "me/again", WRITER, &format!("{HEADER}{}", object_line(&path, &bytes))).status, 200);
        assert!(shown(&server, "me/again", &path) == bytes, "xorb {at}");
    }
    server.stop();
    place.run(&["check", "--read-data"]);
}
