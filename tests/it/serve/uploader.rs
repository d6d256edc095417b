//! A server that takes uploads, and requests to it as bytes.

use std::collections::BTreeSet;

use aws_lc_rs::digest::{SHA256, digest};
use serde_json::json;

use super::fixture::{Reply, Server, token_file};
use crate::input::write;
use crate::program::Place;

pub const WRITER: &str = "hf_0123456789abcdef0123456789abcdef012345";
pub const READER: &str = "hf_11112222333344445555666677778888999900";
pub const OTHER: &str = "hf_22223333444455556666777788889999000011";
pub const HEADER: &str = "{\"key\":\"header\",\"value\":{\"summary\":\"s\",\"description\":\"\"}}\n";

/// A server that takes uploads for `me/*`, and one backup in its repository.
pub fn writable() -> (Place, Server) {
    let place = Place::with_repository();
    write(place.path("own/file"), b"a backup");
    place.run(&["backup", "own"]);
    let server = start(&place);
    (place, server)
}

pub fn start(place: &Place) -> Server {
    let tokens = token_file(place, &format!("{WRITER} write me/*\n{READER} read\n{OTHER} write you/*\n"));
    Server::start(place, &["--writable", "--token-file", &tokens])
}

pub fn request(method: &str, target: &str, token: &str, body: &[u8]) -> Vec<u8> {
    let len = body.len();
    let token = if token.is_empty() { String::new() } else { format!("Authorization: Bearer {token}\r\n") };
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: localhost\r\n{token}Content-Length: {len}\r\nConnection: close\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

pub fn send(server: &Server, method: &str, target: &str, token: &str, body: &[u8]) -> Reply {
    // A server that refuses a body may close before the client has read why.
    let closed = Reply { status: 400, headers: Default::default(), body: b"{}".to_vec() };
    server.send(&request(method, target, token, body)).unwrap_or(closed)
}

pub fn commit(server: &Server, name: &str, token: &str, lines: &str) -> Reply {
    send(server, "POST", &format!("/api/models/{name}/commit/main"), token, lines.as_bytes())
}

pub fn file_line(path: &str, content: &str) -> String {
    format!("{}\n", json!({ "key": "file", "value": { "path": path, "content": content, "encoding": "base64" } }))
}

pub fn object_line(path: &str, bytes: &[u8]) -> String {
    let value = json!({ "path": path, "algo": "sha256", "oid": oid(bytes), "size": bytes.len() });
    format!("{}\n", json!({ "key": "lfsFile", "value": value }))
}

pub fn oid(bytes: &[u8]) -> String {
    digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a server says of an object that is to be uploaded.
pub fn batch(server: &Server, name: &str, token: &str, bytes: &[u8]) -> Reply {
    let objects = json!([{ "oid": oid(bytes), "size": bytes.len() }]);
    let body = json!({ "operation": "upload", "transfers": ["basic", "multipart"], "objects": objects }).to_string();
    send(server, "POST", &format!("/{name}.git/info/lfs/objects/batch"), token, body.as_bytes())
}

/// Path and query of the URL of an action.
pub fn href(batch: &Reply, action: &str) -> String {
    let document = batch.json();
    let url = document["objects"][0]["actions"][action]["href"].as_str().unwrap_or_else(|| panic!("{document}"));
    url.strip_prefix("http://localhost").unwrap().into()
}

/// Names of all snapshots.
pub fn stored(place: &Place) -> BTreeSet<String> {
    let entries = std::fs::read_dir(place.repository().join("snapshots")).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Files below a directory.
pub fn walkdir(directory: &std::path::Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(walkdir(&path)) } else { found.push(path.to_str().unwrap().into()) }
    }
    found
}
