//! Google as a source: a stub that decodes what is stored as gzip, as Google does for who does not ask for gzip.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::{Method, Request};
use serde_json::Value;
use tokio::runtime::Runtime;

use super::restored;
use crate::cli::fixture::{Home, code, stderr};
use crate::trees::Random;
use crate::wire::server::{Answer, StoredObjects, decoded, list, listen, pair, read, sent};

const MODIFIED: &str = "Wed, 04 Mar 2026 05:06:07 GMT";

struct GoogleServer {
    address: SocketAddr,
    _runtime: Runtime,
}

impl GoogleServer {
    /// Objects with `gz` in their keys are stored as gzip. Those with `always` are decoded whoever asks.
    fn start(objects: BTreeMap<String, Vec<u8>>) -> Self {
        let time = "2026-03-04T05:06:07Z".parse().unwrap();
        let stored = objects.into_iter().map(|(key, bytes)| (format!("data/{key}"), (Bytes::from(bytes), time)));
        let objects = Arc::new(Mutex::new(stored.collect::<StoredObjects>()));
        let (address, runtime) = listen(move |request: Request<Incoming>| {
            let answer = answer(&objects.lock().unwrap(), &request);
            std::future::ready(Ok(sent(answer, &Method::GET, None)))
        });
        GoogleServer { address, _runtime: runtime }
    }
}

fn answer(objects: &StoredObjects, request: &Request<Incoming>) -> Answer {
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let path = decoded(request.uri().path());
    let Some(key) = path.strip_prefix("/bucket").map(|key| key.trim_start_matches('/')) else {
        return Answer::error(404, "NoSuchBucket");
    };
    let query: BTreeMap<String, String> = request.uri().query().unwrap_or_default().split('&').map(pair).collect();
    if query.contains_key("list-type") {
        return list(objects, &query, 1000, 0);
    }
    if key.contains("always") || (key.contains("gz") && header("accept-encoding") != "gzip") {
        let Some((bytes, time)) = objects.get(key) else { return Answer::error(404, "NoSuchKey") };
        let etag = format!("\"{}-{}\"", time.as_nanosecond(), bytes.len());
        return Answer::new(200, b"decoded".repeat(1000)).with("etag", etag).with("last-modified", MODIFIED);
    }
    read(objects, key, header("range"))
}

fn backup(home: &Home, server: &GoogleServer) -> (i32, Value, String) {
    let mut command = home.command(&["backup", "--json", "gs://bucket/data"]);
    command.env("STORAGE_EMULATOR_HOST", server.address.to_string());
    let output = command.output().unwrap();
    (code(&output), serde_json::from_slice(&output.stdout).unwrap_or_default(), stderr(&output))
}

#[test]
fn what_is_stored_as_gzip_is_stored_as_it_is_and_what_is_decoded_all_the_same_is_named() {
    let mut random = Random(4);
    let mut expected = BTreeMap::new();
    for (key, len) in [("plain", 3000), ("logs/small.gz", 3000), ("logs/large.gz", 5_000_000)] {
        expected.insert(key.to_string(), random.bytes(len));
    }
    let mut objects = expected.clone();
    for number in 0..10 {
        objects.insert(format!("always-{number}.gz"), random.bytes(3000));
    }
    let (home, server) = (Home::new(), GoogleServer::start(objects));
    let start = Instant::now();
    let (code, report, said) = backup(&home, &server);
    assert_eq!((code, &report["problems"]), (3, &10.into()), "{said}");
    assert!(said.contains("gs://bucket/data/always-0.gz"), "{said}");
    assert!(start.elapsed() < Duration::from_secs(60), "nothing is tried for minutes");
    assert!(restored(&home) == expected);
}
