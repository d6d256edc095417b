//! Objects that come in parts, as clients of the Hub send the largest ones.

use aws_lc_rs::digest::{SHA256, digest};
use serde_json::{Value, json};

use super::fixture::{Reply, Server};
use super::uploader::{HEADER, READER, WRITER, commit, object_line, oid, send, start, stored, writable};
use crate::trees::Random;

/// Bytes of a part.
const PART: usize = 256 << 20;
/// Bytes of the second part.
const REST: usize = 1_000_000;

/// What the server says of an object that a client can send in parts.
fn announced(server: &Server, bytes: &[u8], transfers: &[&str]) -> Value {
    let objects = json!([{ "oid": oid(bytes), "size": bytes.len() }, { "oid": oid(b"small"), "size": 5 }]);
    let body = json!({ "operation": "upload", "transfers": transfers, "objects": objects }).to_string();
    send(server, "POST", "/me/m.git/info/lfs/objects/batch", WRITER, body.as_bytes()).json()
}

fn target(url: &Value) -> String {
    url.as_str().unwrap_or_else(|| panic!("no URL")).strip_prefix("http://localhost").unwrap().to_string()
}

#[test]
fn an_object_that_comes_in_parts_is_there_once_all_of_them_are() {
    let (place, server) = writable();
    // A hole and noise: two parts.
    let mut bytes = vec![0; PART];
    bytes.extend_from_slice(&Random(5).bytes(REST));
    let whole = announced(&server, &bytes, &["basic"]);
    assert_eq!(
        (&whole["transfer"], &whole["objects"][0]["actions"]["upload"]["header"]),
        (&json!("basic"), &json!({}))
    );
    let document = announced(&server, &bytes, &["multipart", "basic"]);
    assert_eq!(document["objects"][1]["actions"]["upload"]["header"], json!({}), "a small one comes whole");
    let upload = &document["objects"][0]["actions"]["upload"];
    let header = upload["header"].as_object().unwrap();
    assert_eq!(header.keys().collect::<Vec<_>>(), ["00001", "00002", "chunk_size"]);
    assert_eq!(header["chunk_size"], PART.to_string());
    let (first, last, end) = (target(&header["00001"]), target(&header["00002"]), target(&upload["href"]));
    let all = |numbers: &[u64]| {
        let parts: Vec<Value> = numbers.iter().map(|number| json!({ "partNumber": number, "etag": "x" })).collect();
        send(&server, "POST", &end, "", json!({ "oid": oid(&bytes), "parts": parts }).to_string().as_bytes())
    };
    let before = stored(&place);
    let refused = |what: &str, reply: Reply| {
        assert!((400..500).contains(&reply.status), "{what}: {reply:?}");
        assert_eq!(stored(&place), before, "{what}");
    };
    let put = |target: &str, bytes: &[u8]| send(&server, "PUT", target, "", bytes);
    refused("no part", all(&[1, 2]));
    let sent = put(&last, &bytes[PART..]);
    assert_eq!((sent.status, sent.header("etag")), (200, "\"2\""), "{sent:?}");
    refused("half of the parts", all(&[1, 2]));
    refused("a part too few is named", all(&[2]));
    refused("a part that there is not", all(&[1, 2, 3]));
    refused("a part that is too short", put(&last, &bytes[PART + 1..]));
    refused("a part that is too long", put(&last, &[&bytes[PART..], b"x"].concat()));
    for number in ["0", "3", "99999999999999999999", "-1", "x"] {
        refused(number, put(&first.replace("/part/1", &format!("/part/{number}")), b"x"));
    }
    refused("a forged signature", put(&first.replace("signature=", "signature=0"), b"x"));
    refused("another object", put(&first.replace(&oid(&bytes), &oid(b"x")), b"x"));
    // Other bytes than were announced are not taken, and all must come again.
    let other = [&b"x"[..], &bytes[PART + 1..]].concat();
    for (target, part) in [(&first, &bytes[..PART]), (&last, &other[..])] {
        assert_eq!(put(target, part).status, 200);
    }
    refused("another SHA-256", all(&[1, 2]));
    refused("they are forgotten", all(&[1, 2]));
    for (target, part) in [(&last, &other[..]), (&first, &bytes[..PART]), (&last, &bytes[PART..])] {
        assert_eq!(put(target, part).status, 200);
    }
    for _ in 0..2 {
        assert_eq!(all(&[1, 2]).status, 200, "also if the client asks again");
    }
    let lines = format!("{HEADER}{}", object_line("big", &bytes));
    assert_eq!(commit(&server, "me/m", WRITER, &lines).status, 200);
    let shown = server.ask("GET", "/me/m/resolve/main/big", &format!("Authorization: Bearer {READER}\r\n"));
    assert!(digest(&SHA256, &shown.body).as_ref() == digest(&SHA256, &bytes).as_ref());
    assert!(server.memory_max() < 700 << 20, "{}", server.memory_max());
    server.stop();
    // A server that starts again knows no parts.
    let server = start(&place);
    assert_eq!(announced(&server, &bytes, &["multipart"])["objects"][0]["actions"], Value::Null);
    server.stop();
    place.run(&["check", "--read-data"]);
}
