//! Hostile requests: each is answered with a refusal, in bounded memory, and the server goes on.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use super::fixture::{LARGE, Server, scene};

const FILE: &str = "/me/model/resolve/main/model.safetensors";
/// Memory that a server may take beside hostile clients, bytes. Its caches are part of it.
const MEMORY_MAX: u64 = 400 << 20;

fn assert_goes_on(server: &Server) {
    assert_eq!(server.get("/me/model/resolve/main/config.json").status, 200);
    assert!(server.memory_max() < MEMORY_MAX, "{} bytes", server.memory_max());
}

#[test]
fn paths_cannot_climb_out_of_any_name() {
    let place = scene();
    let server = Server::start(&place, &[]);
    let tricks = [
        "..",
        ".",
        "%2e%2e",
        "%2E%2e%2f..",
        "..%2F..%2F..%2Fsecret%2Fkey",
        "%2Fetc%2Fpasswd",
        "%00",
        "a%00b",
        "%ff%fe",
        "%ed%a0%80",
        "..%5c..%5c",
        "%c0%ae%c0%ae",
        "%",
        "%zz",
        "",
        "%252e%252e",
        "....%2F%2F",
        "\u{2025}",
        "~",
        "*",
        "config.json%00.txt",
        "config.json%2F",
        "below%2Fdeep",
    ];
    for trick in tricks {
        for target in [
            format!("/{trick}/model/resolve/main/config.json"),
            format!("/me/{trick}/resolve/main/config.json"),
            format!("/me/model/{trick}/main/config.json"),
            format!("/me/model/resolve/{trick}/config.json"),
            format!("/me/model/resolve/main/{trick}/secret/key"),
            format!("/me/model/resolve/main/below/{trick}/key"),
            format!("/datasets/me/dataset/resolve/main/{trick}/x"),
            format!("/api/{trick}/me/model"),
            format!("/api/models/{trick}/model/tree/main"),
            format!("/api/models/me/{trick}/revision/main"),
            format!("/api/models/me/model/tree/{trick}"),
            format!("/api/models/me/model/tree/main/{trick}/x"),
        ] {
            let reply = server.get(&target);
            assert!((400..500).contains(&reply.status), "{target}: {}", reply.status);
            assert!(!reply.body.windows(13).any(|window| window == b"not published"), "{target}");
        }
    }
    let route = "/api/models/me/model/paths-info/main";
    for (body, status) in [
        (r#"{"paths":["../secret/key","/etc/passwd","a//b","below/../config.json","out",""]}"#, 200),
        (r#"{"paths":["\ud800"]}"#, 400),
        (r#"{"paths":[1]}"#, 400),
        (r#"{"paths":"#, 400),
        ("[]", 400),
        ("", 400),
    ] {
        let reply = server.post(route, "application/json", body.as_bytes());
        assert_eq!(reply.status, status, "{body}");
        assert!(status != 200 || reply.body == b"[]", "{reply:?}");
    }
    assert_eq!(server.post(route, "application/json", &b"[".repeat(100_000)).status, 400, "nested deeply");
    assert_eq!(server.post(route, "application/json", &vec![b' '; 2 << 20]).status, 413);
    let many = format!("{{\"paths\":[{}\"a\"]}}", "\"a\",".repeat(5000));
    assert_eq!(server.post(route, "application/json", many.as_bytes()).status, 413);
    assert_eq!(server.post(route, "application/x-www-form-urlencoded", "paths=a&".repeat(5000).as_bytes()).status, 400);
    for cursor in ["..%2F..", "%2F", "a%00", "%ff"] {
        let reply = server.get(&format!("/api/models/me/model/tree/main?recursive=true&cursor={cursor}"));
        assert_eq!(reply.status, 400, "{cursor}");
    }
    assert_goes_on(&server);
    server.stop();
}

#[test]
fn ranges_that_are_none_are_refused() {
    let place = scene();
    let server = Server::start(&place, &[]);
    let thousands = (0..5000).map(|at| format!("{at}-{}", at + 9)).collect::<Vec<_>>().join(",");
    for range in [
        "bytes=9-5",
        "bytes=-0",
        "bytes=--5",
        "bytes=-",
        "bytes=a-b",
        "bytes=0-5,3-9",
        "bytes=0-0,5-5",
        "bytes=99999999-",
        "bytes=18446744073709551616-",
        "bytes",
        &format!("bytes={thousands}"),
    ] {
        let reply = server.ask("GET", FILE, &format!("Range: {range}\r\n"));
        assert_eq!(
            (reply.status, reply.header("content-range")),
            (416, format!("bytes */{LARGE}").as_str()),
            "{range:.40}"
        );
    }
    let twice = server.ask("GET", FILE, "Range: bytes=0-5\r\nRange: bytes=7-9\r\n");
    assert_eq!(twice.status, 416);
    let empty = server.ask("GET", "/me/model/resolve/main/empty", "Range: bytes=0-\r\n");
    assert_eq!((empty.status, empty.header("content-range")), (416, "bytes */0"));
    assert_goes_on(&server);
    server.stop();
}

#[test]
fn what_is_no_request_is_refused() {
    let place = scene();
    let server = Server::start(&place, &[]);
    let get = |rest: &str| server.send(format!("GET / HTTP/1.1\r\nHost: localhost\r\n{rest}").as_bytes());
    let status = |reply: Option<super::fixture::Reply>| reply.map_or(0, |reply| reply.status);
    for (what, reply) in [
        ("a header of 10 MB", get(&format!("X: {}\r\n\r\n", "x".repeat(10_000_000)))),
        ("100,000 headers", get(&("X: y\r\n".repeat(100_000) + "\r\n"))),
        ("a path of 1 MB", server.send(format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(1 << 20)).as_bytes())),
        ("no method", server.send(b" / HTTP/1.1\r\nHost: localhost\r\n\r\n")),
        ("another protocol", server.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")),
        ("another version", server.send(b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n")),
        ("a preface of HTTP/2", server.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")),
        ("two lengths", server.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab")),
        ("a length that is none", server.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n")),
        ("NUL in a header", get("X: \0\r\n\r\n")),
    ] {
        let status = status(reply);
        assert!(status == 0 || (400..500).contains(&status), "{what}: {status}");
    }
    assert_goes_on(&server);
    server.stop();
}

#[test]
fn slow_clients_are_cut_off() {
    let place = scene();
    let server = Server::start(&place, &["--timeout", "1", "--connections", "6"]);
    let started = Instant::now();
    let mut silent = server.connect();
    let mut half = server.connect();
    half.write_all(b"GET / HTTP/1.1\r\nHost: loc").unwrap();
    let mut idle = server.connect();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut slow_body = server.connect();
    let head = "POST /api/models/me/model/paths-info/main HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{";
    slow_body.write_all(head.as_bytes()).unwrap();
    let mut deaf = server.connect();
    deaf.write_all(format!("GET {FILE} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).unwrap();
    let mut deaf_too = server.connect();
    deaf_too.write_all(format!("GET {FILE} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).unwrap();
    // All connections are taken, so this one waits for the first that is cut off.
    assert_eq!(server.get("/healthz").status, 200);
    let mut rest = Vec::new();
    for (what, stream) in [("silent", &mut silent), ("half", &mut half), ("idle", &mut idle), ("body", &mut slow_body)]
    {
        rest.clear();
        let _ = stream.read_to_end(&mut rest);
        assert!(started.elapsed() < Duration::from_secs(15), "{what}");
        if what == "body" {
            assert!(rest.starts_with(b"HTTP/1.1 408"), "{}", String::from_utf8_lossy(&rest));
        }
    }
    std::thread::sleep(Duration::from_secs(3));
    for stream in [&mut deaf, &mut deaf_too] {
        rest.clear();
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.len() < LARGE, "the client took nothing for a second, and got {} bytes", rest.len());
    }
    assert_goes_on(&server);
    server.stop();
}

#[test]
fn many_clients_take_bounded_memory() {
    let place = scene();
    let server = Server::start(&place, &["--connections", "32", "--timeout", "20"]);
    let mut waiting: Vec<_> = (0..100)
        .map(|_| {
            let mut stream = server.connect();
            stream
                .write_all(format!("GET {FILE} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes())
                .unwrap();
            stream
        })
        .collect();
    std::thread::sleep(Duration::from_secs(2));
    assert!(server.memory_max() < MEMORY_MAX, "{} bytes", server.memory_max());
    let mut whole = Vec::new();
    waiting.truncate(40);
    for stream in &mut waiting {
        whole.clear();
        stream.read_to_end(&mut whole).unwrap();
        assert!(whole.len() > LARGE, "{} bytes", whole.len());
    }
    assert_goes_on(&server);
    server.stop();
}

/// One tenth each: silent, half of a header, a header that comes slowly, a body that never ends, an answer that nobody
/// takes, and more of these.
fn slow(server: &Server, at: usize) -> std::net::TcpStream {
    let mut stream = server.connect();
    let body = format!(
        "POST /api/models/me/model/paths-info/main HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
        1 << 20
    );
    let text = match at % 5 {
        0 => String::new(),
        1 => "GET / HTTP/1.1\r\nHost: loc".into(),
        2 => body + "{\"paths\":[",
        3 => format!("GET {FILE} HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        _ => format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}", "x".repeat(60_000)),
    };
    // One that waits for its turn is not read from yet.
    let _ = stream.set_write_timeout(Some(Duration::from_millis(100)));
    let _ = stream.write_all(text.as_bytes());
    stream
}

#[test]
fn a_thousand_slow_connections_take_bounded_memory_and_end() {
    let place = scene();
    let server = Server::start(&place, &["--timeout", "1", "--connections", "128"]);
    let mut all: Vec<_> = (0..1000).map(|at| slow(&server, at)).collect();
    // Some go on sending, a byte at a time: that is no request in time, either.
    for _ in 0..5 {
        for stream in all.iter_mut().skip(1).step_by(5) {
            let _ = stream.write_all(b"x");
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(server.memory_max() < MEMORY_MAX, "{} bytes", server.memory_max());
    // Whoever comes behind all of them is answered once these have been cut off.
    let started = Instant::now();
    assert_eq!(server.get("/me/model/resolve/main/config.json").status, 200);
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
    assert_goes_on(&server);
    drop(all);
    server.stop();
}
