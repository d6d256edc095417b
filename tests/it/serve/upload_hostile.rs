//! Hostile uploads: paths that climb, replays, wrong orders, floods. Each is refused in bounded memory, and stores
//! nothing.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::fixture::Server;
use super::uploader::{
    HEADER, OTHER, READER, WRITER, batch, commit, file_line, href, object_line, oid, request, send, start, stored,
    writable,
};
use crate::trees::Random;

/// Memory that a server may take beside hostile clients, bytes. Its caches are part of it.
const MEMORY_MAX: u64 = 400 << 20;

#[test]
fn paths_climb_out_of_no_name_that_a_client_sends() {
    let (place, server) = writable();
    let bytes = Random(3).bytes(1_200_000);
    let upload = href(&batch(&server, "me/b", WRITER, &bytes), "upload");
    assert_eq!(send(&server, "PUT", &upload, "", &bytes).status, 200);
    let before = stored(&place);
    let (deep, long) = ("a/".repeat(61) + "b", "x".repeat(256));
    for path in [
        "",
        "/",
        "/a",
        "..",
        "../a",
        "a/../b",
        "a/..",
        "./a",
        "a/./b",
        "a//b",
        "a\0",
        "\0",
        ".git",
        ".git/config",
        ".GIT/hooks/x",
        "/etc/passwd",
        &deep,
        &long,
        "a/\u{0}/b",
        "..//a",
    ] {
        let values = [
            json!({ "key": "file", "value": { "path": path, "content": "aGk=" } }),
            json!({ "key": "lfsFile", "value": { "path": path, "oid": oid(&bytes), "size": bytes.len() } }),
            json!({ "key": "deletedFile", "value": { "path": path } }),
            json!({ "key": "deletedFolder", "value": { "path": path } }),
        ];
        for value in values {
            let lines = format!("{HEADER}{}{value}\n", file_line("good", "aGk="));
            let reply = commit(&server, "me/b", WRITER, &lines);
            assert_eq!(reply.status, 400, "{value}: {reply:?}");
        }
    }
    for path in ["", "..", "a/../b", "/a", "a\0"] {
        let asked = json!({ "files": [{ "path": path, "size": 5, "sample": "" }] }).to_string();
        let reply = send(&server, "POST", "/api/models/me/b/preupload/main", WRITER, asked.as_bytes());
        assert_eq!(reply.status, 400, "{path:?}: {reply:?}");
    }
    for name in ["../x", "..", "me/../x", "me/.x", "me/x/y", "me/", "me/x\0", "me/x y", "api/x", "me/\u{fc}", "me/x--y"]
    {
        let asked = json!({ "name": name }).to_string();
        let reply = send(&server, "POST", "/api/repos/create", WRITER, asked.as_bytes());
        assert!([400, 404].contains(&reply.status), "{name:?}: {reply:?}");
        let target = format!("/api/models/{}/commit/main", name.replace('\0', "%00").replace(' ', "%20"));
        let lines = format!("{HEADER}{}", file_line("a", "aGk="));
        let reply = send(&server, "POST", &target, WRITER, lines.as_bytes());
        assert!((400..500).contains(&reply.status), "{name:?}: {reply:?}");
    }
    for revision in ["..", "%2e%2e", "a%00", "%2Fmain", "main%2F..", &"0".repeat(40)] {
        let lines = format!("{HEADER}{}", file_line("a", "aGk="));
        let reply = send(&server, "POST", &format!("/api/models/me/b/commit/{revision}"), WRITER, lines.as_bytes());
        assert!((400..500).contains(&reply.status), "{revision}: {reply:?}");
    }
    assert_eq!(stored(&place), before);
    server.stop();
}

#[test]
fn replays_and_wrong_orders_change_nothing_that_was_acknowledged() {
    let (place, server) = writable();
    let objects = [4, 5].map(|seed| Random(seed).bytes(1_100_000));
    let urls = [0, 1].map(|at: usize| href(&batch(&server, "me/m", WRITER, &objects[at]), "upload"));
    let lines = [0, 1].map(|at: usize| format!("{HEADER}{}", object_line("object", &objects[at])));
    let shown = |server: &Server| {
        let headers = format!("Authorization: Bearer {READER}\r\n");
        server.ask("GET", "/me/m/resolve/main/object", &headers).body
    };
    // A commit before its object.
    assert_eq!(commit(&server, "me/m", WRITER, &lines[0]).status, 400);
    assert_eq!(stored(&place).len(), 1, "only the backup");
    // The objects in another order than they were asked for, each several times, also at the same time.
    std::thread::scope(|scope| {
        for url in [&urls[1], &urls[0], &urls[1], &urls[0]] {
            let object = &objects[usize::from(*url == urls[1])];
            scope.spawn(|| assert_eq!(send(&server, "PUT", url, "", object).status, 200));
        }
    });
    assert_eq!(stored(&place).len(), 3, "each object once");
    let first = commit(&server, "me/m", WRITER, &lines[0]).json()["commitOid"].clone();
    let of_parent = |parent: &Value| lines[1].replace("\"summary\"", &format!("\"parentCommit\":{parent},\"summary\""));
    let second = commit(&server, "me/m", WRITER, &of_parent(&first)).json()["commitOid"].clone();
    assert!(second.is_string() && second != first);
    // The same commit on the same parent comes again, which is not the last one any more.
    let before = stored(&place);
    assert_eq!(commit(&server, "me/m", WRITER, &of_parent(&first)).status, 412);
    // An object is put again after its commit.
    assert_eq!(send(&server, "PUT", &urls[0], "", &objects[0]).status, 200);
    assert_eq!(stored(&place), before);
    assert!(shown(&server) == objects[1]);
    server.stop();
    // Another server has another key, so its URLs do not count here.
    let server = start(&place);
    assert_eq!(send(&server, "PUT", &urls[0], "", &objects[0]).status, 403);
    assert_eq!(stored(&place), before);
    assert!(shown(&server) == objects[1]);
    server.stop();
}

#[test]
fn a_flood_of_lines_and_bodies_takes_bounded_memory() {
    let (place, server) = writable();
    let before = stored(&place);
    // 90 MB of files within a commit, which ends wrong.
    let mut lines = String::from(HEADER);
    let content = "A".repeat(1_390_000);
    (0..64).for_each(|at| lines.push_str(&file_line(&format!("f{at}"), &content)));
    lines.push('{');
    assert_eq!(commit(&server, "me/b", WRITER, &lines).status, 400);
    // More changes, and longer paths, than a commit may have.
    let gone = |path: &str| format!("{}\n", json!({ "key": "deletedFile", "value": { "path": path } }));
    let many: String = (0..100_001).map(|at| gone(&at.to_string())).collect();
    assert!([400, 413].contains(&commit(&server, "me/b", WRITER, &format!("{HEADER}{many}")).status));
    let path = ["x".repeat(200).as_str(); 20].join("/");
    let long: String = (0..4_300).map(|at| gone(&format!("{at}/{path}"))).collect();
    assert!([400, 413].contains(&commit(&server, "me/b", WRITER, &format!("{HEADER}{long}")).status));
    let asked = |count: usize| {
        let objects: Vec<_> = (0..count).map(|at| json!({ "oid": format!("{at:064x}"), "size": 5 })).collect();
        json!({ "operation": "upload", "objects": objects }).to_string()
    };
    let target = "/me/b.git/info/lfs/objects/batch";
    assert_eq!(send(&server, "POST", target, WRITER, asked(1001).as_bytes()).status, 413);
    assert_eq!(stored(&place), before);
    assert!(server.memory_max() < MEMORY_MAX, "{} bytes", server.memory_max());
    let good = format!("{HEADER}{}", file_line("a", "aGk="));
    assert_eq!(commit(&server, "me/b", WRITER, &good).status, 200);
    server.stop();
}

#[test]
fn slow_uploads_are_cut_off_and_keep_nobody_out() {
    let place = crate::program::Place::with_repository();
    let server = Server::start(&place, &["--writable", "--timeout", "2"]);
    let bytes = Random(3).bytes(1_100_000);
    let upload = href(&batch(&server, "me/m", "", &bytes), "upload");
    let slow: Vec<_> = (0..16)
        .map(|at| {
            let mut stream = server.connect();
            let lines = format!("{HEADER}{}", file_line("a", "aGk="));
            let whole = match at % 2 {
                0 => request("PUT", &upload, "", &bytes),
                _ => request("POST", "/api/models/me/m/commit/main", "", lines.as_bytes()),
            };
            stream.write_all(&whole[..whole.len() - 5]).unwrap();
            stream
        })
        .collect();
    let started = Instant::now();
    assert_eq!(send(&server, "PUT", &upload, "", &bytes).status, 200);
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    for mut stream in slow {
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let text = String::from_utf8_lossy(&answer);
        assert!(text.starts_with("HTTP/1.1 408") || text.starts_with("HTTP/1.1 503") || text.is_empty(), "{text}");
    }
    assert_eq!(stored(&place).len(), 1);
    server.stop();
}

#[test]
fn a_writer_that_stops_within_its_bodies_keeps_no_other_out() {
    let (place, server) = writable();
    let bytes = Random(3).bytes(1_100_000);
    let upload = href(&batch(&server, "me/m", WRITER, &bytes), "upload");
    let halves: Vec<_> = (0..12)
        .map(|_| {
            let mut stream = server.connect();
            stream.write_all(&request("PUT", &upload, "", &bytes)[..600_000]).unwrap();
            stream
        })
        .collect();
    std::thread::sleep(Duration::from_millis(500));
    let started = Instant::now();
    let upload = href(&batch(&server, "you/m", OTHER, &bytes), "upload");
    assert_eq!(send(&server, "PUT", &upload, "", &bytes).status, 200);
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
    drop(halves);
    assert_eq!(stored(&place).len(), 2, "a backup, and the object of the other one");
    server.stop();
}

#[test]
fn bodies_that_drip_give_their_turns_to_who_waits() {
    let place = crate::program::Place::with_repository();
    let server = Server::start(&place, &["--writable", "--timeout", "2"]);
    let bytes = Random(3).bytes(1_100_000);
    let upload = href(&batch(&server, "me/m", "", &bytes), "upload");
    let whole = request("PUT", &upload, "", &bytes);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            let mut stream = server.connect();
            stream.write_all(&whole[..20_000]).unwrap();
            scope.spawn(|| {
                let mut stream = stream;
                // 4 kB a second, so it is never idle.
                let mut parts = whole[20_000..].chunks(800);
                while !is_over.load(Ordering::Relaxed)
                    && parts.next().is_some_and(|part| stream.write_all(part).is_ok())
                {
                    std::thread::sleep(Duration::from_millis(200));
                }
            });
        }
        std::thread::sleep(Duration::from_millis(500));
        let reply = send(&server, "PUT", &upload, "", &bytes);
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(reply.status, 200, "{reply:?}");
    });
    assert_eq!(stored(&place).len(), 1);
    server.stop();
}
