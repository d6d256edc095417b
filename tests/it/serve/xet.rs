//! Uploads by Xet: xorbs and shards as a client sends them, replayed, forged, and cut off by a server that is killed.

use std::io::Write;
use std::time::{Duration, Instant};

use fhrd::keep::upload::xet::XetHash;
use rustix::process::Signal;
use serde_json::json;

use super::fixture::{Reply, Server};
use super::uploader::{
    HEADER, OTHER, READER, WRITER, commit, object_line, oid, request, send, start, stored, walkdir, writable,
};
use super::xet_client::{SentFile, SentXorb, XetPlace, record, shard};
use crate::program::Place;
use crate::trees::Random;

/// What huggingface_hub 2.4.0 with hf-xet 1.8.0 sent for three files, whose SHA-256 and length follow: chunks as they
/// are, compressed with LZ4, and with LZ4 of grouped bytes.
const CLIENT_XORB: &[u8] = include_bytes!("../../fixtures/xet/client.xorb");
const CLIENT_SHARD: &[u8] = include_bytes!("../../fixtures/xet/client.shard");
const CLIENT_XORB_HASH: &str = "0c8b1e098ef1c507e964c6185e6f6c425fd5d36982a7962317eef39f277c1ec3";
const CLIENT_FILES: [(&str, &str, usize); 3] = [
    ("floats.bin", "2840aed433778379dc9c7d747eeba5db41ee4222866dc7a0e3e2b4787ff587a5", 28_007),
    ("noise.bin", "54fd8d27335644c62edfdf7ccc17189e63dbc16c46fdbdce2439defb8569a383", 4_000),
    ("text.txt", "ecea55ac82bcd9f4c1e01aaf8762a8c4f83c8010aa02d8b9229a00c8db5c5e24", 212_750),
];

fn shown(server: &Server, name: &str, path: &str) -> Vec<u8> {
    let headers = format!("Authorization: Bearer {READER}\r\n");
    server.ask("GET", &format!("/{name}/resolve/main/{path}"), &headers).body
}

#[test]
fn xorbs_and_shards_become_files_and_may_come_again() {
    let (place, server) = writable();
    let xet = XetPlace::of(&server, "me/m", WRITER);
    let xorbs = [3, 4].map(|seed| SentXorb::of(&Random(seed).bytes(1_500_000)));
    let all = |xorb: &SentXorb| 0..xorb.chunks.len();
    // A file of both, and one of parts of them, out of order and twice.
    let files = || {
        let whole = SentFile(xorbs.iter().map(|xorb| (xorb, all(xorb))).collect());
        let parts = SentFile(vec![(&xorbs[1], 5..9), (&xorbs[0], 1..2), (&xorbs[1], 5..9), (&xorbs[1], 0..5)]);
        [whole, parts]
    };
    let bytes = files().map(|file| file.bytes());
    let sent = shard(&files(), &[&xorbs[0], &xorbs[1]]).concat();
    for is_new in [true, false] {
        for xorb in &xorbs {
            let reply = xet.xorb(&server, xorb);
            assert_eq!((reply.status, reply.json()["was_inserted"].as_bool()), (200, Some(is_new)), "{reply:?}");
        }
    }
    assert_eq!(stored(&place).len(), 3, "a backup and each xorb once");
    for version in ["v1", "v2", "v1"] {
        let reply = send(&server, "POST", &format!("{}/{version}/shards", xet.path), &xet.token, &sent);
        assert_eq!((reply.status, reply.json()["result"].as_u64()), (200, Some(1)), "{version}: {reply:?}");
        assert_eq!(stored(&place).len(), 4, "{version}: each file is an object, and the xorbs refer to them");
    }
    let lines = format!("{HEADER}{}{}", object_line("whole", &bytes[0]), object_line("below/parts", &bytes[1]));
    assert_eq!(commit(&server, "me/m", WRITER, &lines).status, 200);
    assert!(shown(&server, "me/m", "whole") == bytes[0] && shown(&server, "me/m", "below/parts") == bytes[1]);
    // Another name of the same token may use the xorbs, and has none of the objects before it has sent a shard.
    let lines = format!("{HEADER}{}", object_line("copy", &bytes[1]));
    assert_eq!(commit(&server, "me/other", WRITER, &lines).status, 400);
    let other = XetPlace::of(&server, "me/other", WRITER);
    assert_eq!((other.path.as_str(), other.shard(&server, &sent).status), (xet.path.as_str(), 200));
    assert_eq!(commit(&server, "me/other", WRITER, &lines).status, 200);
    assert!(shown(&server, "me/other", "copy") == bytes[1]);
    // Clients take another way if these are not there.
    for (method, path) in [("GET", "v1/chunks"), ("POST", "v1/xorb-grants"), ("HEAD", "v1/xorbs")] {
        let target = format!("{}/{path}/default/{}", xet.path, xorbs[0].hash.digits());
        let expected = if method == "HEAD" { 405 } else { 404 };
        assert_eq!(send(&server, method, &target, &xet.token, b"").status, expected, "{method} {path}");
    }
    server.stop();
    place.run(&["prune", "--grace", "0s"]);
    let server = start(&place);
    assert!(shown(&server, "me/m", "whole") == bytes[0]);
    let again = XetPlace::of(&server, "me/m", WRITER);
    assert_eq!(again.path, xet.path, "the client still counts on its xorbs");
    assert_eq!(again.xorb(&server, &xorbs[0]).json()["was_inserted"], false, "every prune keeps them");
    server.stop();
    place.run(&["check", "--read-data"]);
}

#[test]
fn what_a_client_has_sent_is_read_for_ever() {
    let (_place, server) = writable();
    let xet = XetPlace::of(&server, "me/m", WRITER);
    let hash = XetHash::parse(CLIENT_XORB_HASH).unwrap();
    assert_eq!(xet.bytes_of_xorb(&server, &hash, CLIENT_XORB).status, 200);
    let reply = send(&server, "POST", &format!("{}/v2/shards", xet.path), &xet.token, CLIENT_SHARD);
    assert_eq!((reply.status, reply.header("content-type")), (200, "application/x-ndjson"), "{reply:?}");
    let mut lines = HEADER.to_string();
    for (path, oid, size) in CLIENT_FILES {
        let value = json!({ "path": path, "algo": "sha256", "oid": oid, "size": size });
        lines.push_str(&format!("{}\n", json!({ "key": "lfsFile", "value": value })));
    }
    assert_eq!(commit(&server, "me/m", WRITER, &lines).status, 200);
    for (path, expected, size) in CLIENT_FILES {
        let bytes = shown(&server, "me/m", path);
        assert_eq!((oid(&bytes).as_str(), bytes.len()), (expected, size), "{path}");
    }
    server.stop();
}

/// Asserts that a request is refused, and stores nothing.
fn refused(place: &Place, what: &str, reply: &Reply) {
    assert!((400..500).contains(&reply.status), "{what}: {reply:?}");
    assert_eq!(stored(place).len(), 2, "{what}: a backup and a xorb");
}

#[test]
fn forged_xorbs_and_shards_store_nothing() {
    let (place, server) = writable();
    let xet = XetPlace::of(&server, "me/m", WRITER);
    let (xorb, missing) = (SentXorb::of(&Random(3).bytes(300_000)), SentXorb::of(&Random(4).bytes(300_000)));
    assert_eq!(xet.xorb(&server, &xorb).status, 200);
    let whole = missing.bytes();
    let mut changed = whole.clone();
    changed[5000] ^= 1;
    for (what, hash, bytes) in [
        ("another hash", &xorb.hash, whole.as_slice()),
        ("a changed chunk", &missing.hash, &changed),
        ("a part", &missing.hash, &whole[..whole.len() - 1]),
        ("nothing", &missing.hash, b""),
        ("no xorb", &missing.hash, b"nothing of the kind"),
        ("bytes behind", &missing.hash, &[whole.as_slice(), b"x"].concat()),
    ] {
        refused(&place, what, &xet.bytes_of_xorb(&server, hash, bytes));
    }
    let file = |xorb| SentFile(vec![(xorb, 1..4)]);
    let good = shard(&[file(&xorb)], &[&xorb]);
    // Records: 0 is the head, 1 the file, 2 its term, 3 the hash of that, 4 the SHA-256, 6 the xorb, 7 its first chunk.
    let with = |at: usize, record: Vec<u8>| {
        let mut records = good.clone();
        records[at] = record;
        records.concat()
    };
    let changed = |at: usize, byte: usize| {
        let mut record = good[at].clone();
        record[byte] ^= 1;
        with(at, record)
    };
    let term = |len, first, end| with(2, record(xorb.hash.0, [0, len, first, end]));
    for (what, bytes) in [
        ("96 bytes that claim all memory", [good[0].clone(), record([1; 32], [3 << 30, u32::MAX - 1, 0, 0])].concat()),
        ("a file of a missing xorb", shard(&[file(&missing)], &[]).concat()),
        ("a missing xorb", shard(&[file(&xorb)], &[&xorb, &missing]).concat()),
        ("a good file and one of a missing xorb", shard(&[file(&xorb), file(&missing)], &[]).concat()),
        ("another hash of a file", changed(1, 0)),
        ("another length of a term", changed(2, 36)),
        ("another hash of a term", changed(3, 0)),
        ("another SHA-256", changed(4, 0)),
        ("another chunk of a xorb", changed(7, 0)),
        ("another length of a chunk", changed(7, 36)),
        ("chunks behind the last", term(5, 1, 4000)),
        ("no chunks", term(0, 4, 4)),
        ("chunks backwards", term(5, 4, 1)),
        ("bytes behind", [good.concat(), vec![0; 48]].concat()),
        ("half a shard", good[..5].concat()),
        ("nothing", Vec::new()),
    ] {
        for version in ["v1", "v2"] {
            let reply = send(&server, "POST", &format!("{}/{version}/shards", xet.path), &xet.token, &bytes);
            refused(&place, &format!("{version}: {what}"), &reply);
        }
    }
    tokens(&place, &server, &xet, (&xorb, &good.concat()));
    assert!(server.memory_max() < 400 << 20, "{}", server.memory_max());
    assert_eq!(xet.shard(&server, &good.concat()).status, 200, "the good one is good");
    server.stop();
}

/// Tokens that do not count, and a xorb of somebody else.
fn tokens(place: &Place, server: &Server, xet: &XetPlace, (xorb, good): (&SentXorb, &[u8])) {
    for (token, status) in [(READER, 403), (OTHER, 404), ("", 401)] {
        let reply = send(server, "GET", "/api/models/me/m/xet-write-token/main", token, b"");
        assert_eq!(reply.status, status, "{token}");
    }
    let (what, signature) = xet.token.split_once('.').unwrap();
    let forged =
        [String::new(), WRITER.into(), format!("{}.{signature}", &what[..what.len() - 1]), format!("{what}.0")];
    for token in forged {
        for (path, body) in [
            (format!("v1/xorbs/default/{}", xorb.hash.digits()), xorb.bytes()),
            ("v1/shards".into(), good.to_vec()),
            ("v2/shards".into(), good.to_vec()),
        ] {
            let reply = send(server, "POST", &format!("{}/{path}", xet.path), &token, &body);
            assert!([400, 401].contains(&reply.status), "{token} {path}: {reply:?}");
            refused(place, &token, &reply);
        }
    }
    let other = XetPlace::of(server, "you/m", OTHER);
    assert_ne!(other.path, xet.path, "what one token has sent, another one cannot refer to");
    refused(place, "a xorb of another token", &other.shard(server, good));
    for hash in ["x", &"0".repeat(63), &xorb.hash.digits().to_uppercase(), "..%2f"] {
        let reply = send(server, "POST", &format!("{}/v1/xorbs/default/{hash}", xet.path), &xet.token, &xorb.bytes());
        refused(place, hash, &reply);
    }
}

#[test]
fn a_server_that_is_killed_has_the_xorbs_that_it_acknowledged() {
    let (place, server) = writable();
    let xet = XetPlace::of(&server, "me/m", WRITER);
    let (kept, lost) = (SentXorb::of(&Random(3).bytes(1_200_000)), SentXorb::of(&Random(4).bytes(1_200_000)));
    assert_eq!(xet.xorb(&server, &kept).status, 200);
    let before = stored(&place);
    let post = |hash: &XetHash| format!("{}/v1/xorbs/default/{}", xet.path, hash.digits());
    let mut stream = server.connect();
    stream.write_all(&request("POST", &post(&lost.hash), &xet.token, &lost.bytes())[..700_000]).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    server.signal(Signal::KILL);
    drop(server);
    place.run(&["prune", "--grace", "0s"]);
    let server = start(&place);
    assert_eq!(stored(&place), before);
    let spooled = walkdir(&place.path("cache")).into_iter().filter(|path| path.contains("/uploads/")).count();
    assert_eq!(spooled, 0, "nothing of the body stays");
    assert_eq!(xet.xorb(&server, &lost).status, 401, "each process has its key");
    let xet = XetPlace::of(&server, "me/m", WRITER);
    let file = |xorb| SentFile(vec![(xorb, 0..xorb.chunks.len())]);
    assert_eq!(xet.shard(&server, &shard(&[file(&lost)], &[&lost]).concat()).status, 400);
    assert_eq!(stored(&place), before);
    assert_eq!(xet.shard(&server, &shard(&[file(&kept)], &[&kept]).concat()).status, 200);
    server.signal(Signal::KILL);
    drop(server);
    place.run(&["prune", "--grace", "0s"]);
    let server = start(&place);
    let bytes = file(&kept).bytes();
    assert_eq!(commit(&server, "me/m", WRITER, &format!("{HEADER}{}", object_line("file", &bytes))).status, 200);
    assert!(shown(&server, "me/m", "file") == bytes);
    server.stop();
}

#[test]
fn a_shard_keeps_no_other_token_out_and_ends_once_its_client_has_left() {
    let (place, server) = writable();
    let (xet, other) = (XetPlace::of(&server, "me/m", WRITER), XetPlace::of(&server, "you/m", OTHER));
    let xorb = SentXorb::of(&Random(3).bytes(1_000_000));
    assert_eq!(xet.xorb(&server, &xorb).status, 200);
    // Each of many different files costs a snapshot.
    let count = xorb.chunks.len();
    let ranges = (0..count).flat_map(|first| (first..count).map(move |last| first..last + 1));
    let files: Vec<SentFile> = ranges.map(|range| SentFile(vec![(&xorb, range)])).collect();
    assert!(files.len() > 300);
    let many = shard(&files, &[&xorb]).concat();
    let mut stream = server.connect();
    stream.write_all(&request("POST", &format!("{}/v2/shards", xet.path), &xet.token, &many)).unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    let begun = stored(&place).len();
    assert!((2..files.len() / 2).contains(&begun), "{begun} are stored");
    let (asked, small) = (Instant::now(), SentXorb::of(&Random(4).bytes(1000)));
    assert_eq!(other.xorb(&server, &small).status, 200);
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    drop(stream);
    let one = shard(&[SentFile(vec![(&xorb, 0..2)])], &[]).concat();
    assert_eq!(xet.shard(&server, &one).status, 200, "the turn of the token is free");
    let ended = stored(&place).len();
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(stored(&place).len(), ended, "nobody waits for the others");
    server.stop();
}

#[test]
fn a_shard_of_more_bytes_than_an_object_may_have_is_refused() {
    let (place, server) = writable();
    let xet = XetPlace::of(&server, "me/m", WRITER);
    let xorb = SentXorb::of(&vec![0; 20 << 20]);
    assert_eq!(xet.xorb(&server, &xorb).status, 200);
    let records = shard(&[SentFile(vec![(&xorb, 0..xorb.chunks.len())])], &[]);
    // The same file again and again: 52 GB in half a megabyte.
    let (head, file, end) = (&records[..1], &records[1..5], &records[5..]);
    let many = [head.concat(), file.concat().repeat(2500), end.concat()].concat();
    assert_eq!(xet.shard(&server, &many).status, 413);
    assert_eq!(stored(&place).len(), 2);
    server.stop();
}
