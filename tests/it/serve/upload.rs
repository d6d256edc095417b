//! Uploads: by the real client of the Hub, and by hostile ones.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::fixture::{Reply, Server};
use super::uploader::{
    HEADER, OTHER, READER, WRITER, batch, commit, file_line, href, object_line, oid, request, send, start, stored,
    writable,
};
use crate::independent::python;
use crate::input::write;
use crate::program::Place;
use crate::trees::Random;
use crate::weights::{model, tuned, weights};

#[test]
fn the_client_of_the_hub_uploads_what_it_gets_back() {
    uploaded_by_client(false);
}

#[test]
fn the_client_of_the_hub_uploads_by_xet_what_it_gets_back() {
    uploaded_by_client(true);
}

/// Uploads directories by the real client, by Xet or by git-lfs, and gets them back.
fn uploaded_by_client(is_xet: bool) {
    let Some(python) = python() else { return };
    let modules = if is_xet { "import huggingface_hub, hf_xet" } else { "import huggingface_hub" };
    let mut probe = Command::new(&python);
    if !probe.args(["-c", modules]).stderr(Stdio::null()).status().unwrap().success() {
        eprintln!("NOT RUN: the Python of FHRD_TEST_PYTHON cannot `{modules}`");
        return;
    }
    let place = Place::with_repository();
    write(place.path("own/file"), b"a backup");
    place.run(&["backup", "own"]);
    let (embedding, layer) = (weights(1, 1 << 19), weights(2, 1 << 19));
    let own = [("base", model(&embedding, &layer)), ("tuned", model(&embedding, &tuned(&layer, 6, 0.0002)))];
    for (name, model) in &own {
        write(place.path(&format!("{name}/model.safetensors")), model);
        write(place.path(&format!("{name}/README.md")), b"---\nlicense: mit\n---\n# A model\n");
        write(place.path(&format!("{name}/config.json")), b"{\"a\":1}");
        write(place.path(&format!("{name}/empty")), b"");
        for number in 0..20 {
            write(place.path(&format!("{name}/below/{number}.txt")), format!("{name} {number}").as_bytes());
        }
    }
    write(place.path("base/large.bin"), &Random(5).bytes(11 << 20));
    let server = Server::start(&place, &["--writable"]);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/serve/hub_upload.py");
    let mut command = Command::new(&python);
    command.args(["-B", script, &format!("http://{}", server.address)]);
    command.args(["base", "tuned"].map(|name| place.path(name))).arg(place.repository());
    command.env("TMPDIR", place.path("")).env("HF_HUB_DISABLE_XET", if is_xet { "0" } else { "1" });
    let output = command.output().unwrap();
    let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{errors}\n{}", server.stop());
    assert!(out.ends_with("command_and_dataset\n"), "{out}");
    eprintln!("{out}");
    let took_xorbs = server.get("/metrics").text().contains("/v1/xorbs/");
    // Earlier clients let the server choose, and it chooses git-lfs.
    let mut version = out.split('.').map_while(|part| part.parse::<u32>().ok());
    let has_choice = (version.next(), version.next()) < (Some(1), Some(20));
    assert_eq!(took_xorbs, is_xet && !has_choice, "which way the client took");
    server.stop();
    // Nobody takes an upload for a backup, and what is published survives rules and prune.
    let listed = place.run(&["ls", "latest"]).to_string();
    assert!(listed.contains("own") && !listed.contains("object"), "{listed}");
    place.run(&["forget", "--keep-last", "1"]);
    place.run(&["prune"]);
    let server = Server::start(&place, &["--writable"]);
    assert!(server.get("/up/tuned/resolve/main/model.safetensors").body == own[1].1);
    server.stop();
    place.run(&["check", "--read-data"]);
}

#[test]
fn an_object_and_a_commit_may_come_again() {
    let (place, server) = writable();
    let bytes = Random(3).bytes(1_500_000);
    let first = batch(&server, "me/m", WRITER, &bytes);
    let (upload, verify) = (href(&first, "upload"), href(&first, "verify"));
    let check = json!({ "oid": oid(&bytes), "size": bytes.len() }).to_string();
    assert_eq!(send(&server, "POST", &verify, "", check.as_bytes()).status, 400, "not yet");
    for _ in 0..2 {
        assert_eq!(send(&server, "PUT", &upload, "", &bytes).status, 200);
    }
    assert_eq!(send(&server, "POST", &verify, "", check.as_bytes()).status, 200);
    assert_eq!(batch(&server, "me/m", WRITER, &bytes).json()["objects"][0]["actions"], Value::Null, "it is there");
    let lines = format!("{HEADER}{}{}", object_line("a/b.bin", &bytes), file_line("README.md", "aGk="));
    let commits: Vec<Value> = (0..2).map(|_| commit(&server, "me/m", WRITER, &lines).json()).collect();
    assert_eq!(commits[0]["commitOid"].as_str().unwrap().len(), 40, "{commits:?}");
    assert_eq!(commits[0], commits[1]);
    assert_eq!(stored(&place).len(), 3, "a backup, an object, a publication");
    let file = server.ask("GET", "/me/m/resolve/main/a/b.bin", &format!("Authorization: Bearer {READER}\r\n"));
    assert!(file.body == bytes);
    server.stop();
}

#[test]
fn a_large_file_of_a_name_moves_by_its_hash() {
    let place = Place::with_repository();
    let bytes = Random(6).bytes(11 << 20);
    write(place.path("own/large.bin"), &bytes);
    place.run(&["backup", "own"]);
    place.run(&["publish", "latest:own", "me/own"]);
    let server = start(&place);
    // The client asks for the hash first.
    let wanted = json!({ "paths": ["large.bin"] }).to_string();
    let asked = send(&server, "POST", "/api/models/me/own/paths-info/main", WRITER, wanted.as_bytes());
    assert_eq!(asked.json()[0]["lfs"]["oid"], oid(&bytes));
    let put = json!({ "key": "lfsFile", "value": { "path": "below/large.bin", "algo": "sha256", "oid": oid(&bytes) } });
    let gone = json!({ "key": "deletedFile", "value": { "path": "large.bin" } });
    let moved = commit(&server, "me/own", WRITER, &format!("{HEADER}{put}\n{gone}\n"));
    assert_eq!(moved.status, 200, "{moved:?}");
    let get = |path: &str| {
        let target = format!("/me/own/resolve/main/{path}");
        server.ask("GET", &target, &format!("Authorization: Bearer {READER}\r\n"))
    };
    assert!(get("below/large.bin").body == bytes);
    assert_eq!(get("large.bin").status, 404);
    let other = commit(&server, "me/other", WRITER, &format!("{HEADER}{put}\n"));
    assert_eq!(other.status, 400, "another name does not have it: {other:?}");
    server.stop();
}

#[test]
fn what_is_hostile_stores_nothing() {
    let (place, server) = writable();
    let bytes = Random(3).bytes(1_200_000);
    let upload = href(&batch(&server, "me/a", WRITER, &bytes), "upload");
    assert_eq!(send(&server, "PUT", &upload, "", &bytes).status, 200);
    let before = stored(&place);
    let refused = |what: &str, reply: Reply| {
        assert!((400..500).contains(&reply.status), "{what}: {reply:?}");
        assert_eq!(stored(&place), before, "{what}");
    };
    let good = format!("{HEADER}{}", file_line("a", "aGk="));
    for (what, lines) in [
        ("nothing", String::new()),
        ("no change", HEADER.into()),
        ("no header", file_line("a", "aGk=")),
        ("two headers", format!("{HEADER}{good}")),
        ("no JSON", format!("{HEADER}nothing\n")),
        ("deep JSON", format!("{HEADER}{}\n", "[".repeat(100_000))),
        ("an unknown key", format!("{HEADER}{}\n", json!({ "key": "x", "value": {} }))),
        ("a path that climbs", format!("{HEADER}{}", file_line("../a", "aGk="))),
        ("an absolute path", format!("{HEADER}{}", file_line("/a", "aGk="))),
        ("a path with a NUL", format!("{HEADER}{}", file_line("a\0b", "aGk="))),
        ("the directory of git", format!("{HEADER}{}", file_line(".git/config", "aGk="))),
        ("a long name", format!("{HEADER}{}", file_line(&"x".repeat(256), "aGk="))),
        ("no base64", format!("{HEADER}{}", file_line("a", "@"))),
        ("a file that is a directory", format!("{good}{}", file_line("a/b", "aGk="))),
        ("a file that is too long", format!("{HEADER}{}", file_line("a", &"A".repeat(1_500_000)))),
        ("a line that is too long", format!("{HEADER}{}", file_line("a", &"A".repeat(5_000_000)))),
        ("an object that is not there", format!("{good}{}", object_line("b", b"not there"))),
        ("an object of another name", format!("{good}{}", object_line("b", &bytes))),
        ("an object of another length", format!("{HEADER}{}", object_line("b", &bytes[1..]))),
        ("nothing left", format!("{good}{}\n", json!({ "key": "deletedFile", "value": { "path": "a" } }))),
        ("an old parent", good.replace("\"summary\"", "\"parentCommit\":\"0\",\"summary\"")),
    ] {
        refused(what, commit(&server, "me/b", WRITER, &lines));
    }
    for (target, token) in [
        ("me/b/commit/main?create_pr=1", WRITER),
        ("me/b/commit/other", WRITER),
        ("me/b--c/commit/main", WRITER),
        ("me/b/commit/main", READER),
        ("me/b/commit/main", OTHER),
        ("me/b/commit/main", ""),
    ] {
        let target = format!("/api/models/{target}");
        refused(&target, send(&server, "POST", &target, token, good.as_bytes()));
    }
    for token in [READER, OTHER, ""] {
        refused("a batch", batch(&server, "me/a", token, &bytes));
        let named = json!({ "organization": "me", "name": "new" }).to_string();
        refused("a name", send(&server, "POST", "/api/repos/create", token, named.as_bytes()));
    }
    objects(&place, &server, &before);
    server.stop();
    let tokens = place.path("tokens");
    let server = Server::start(&place, &["--token-file", tokens.to_str().unwrap()]);
    refused("a server that only reads", commit(&server, "me/b", WRITER, &good));
    server.stop();
}

/// URLs and bytes of objects that are not as they should be.
fn objects(place: &Place, server: &Server, before: &BTreeSet<String>) {
    let bytes = Random(9).bytes(1_100_000);
    let upload = href(&batch(server, "me/a", WRITER, &bytes), "upload");
    let (path, query) = upload.split_once('?').unwrap();
    let other = bytes.iter().rev().copied().collect::<Vec<u8>>();
    for (what, target, body) in [
        ("no signature", path.to_string(), bytes.as_slice()),
        ("a forged signature", format!("{upload}0"), &bytes),
        ("another name", upload.replace("/me/a.git", "/me/b.git"), &bytes),
        ("another kind", format!("/datasets{upload}"), &bytes),
        ("another object", upload.replace(&oid(&bytes), &oid(&other)), &other),
        ("another length", upload.replace("size=1100000", "size=1100001"), &bytes),
        ("another time", upload.replace("expires=", "expires=1"), &bytes),
        ("other bytes", upload.clone(), &other),
        ("fewer bytes", upload.clone(), &bytes[1..]),
        ("more bytes", upload.clone(), &[bytes.as_slice(), b"x"].concat()),
        ("no object", format!("/me/a.git/lfs/x?{query}"), &bytes),
    ] {
        let reply = send(server, "PUT", &target, "", body);
        assert!((400..500).contains(&reply.status), "{what}: {reply:?}");
        assert_eq!(stored(place), *before, "{what}");
    }
    let mut half = request("PUT", &upload, "", &bytes);
    half.truncate(600_000);
    let mut stream = server.connect();
    stream.write_all(&half).unwrap();
    drop(stream);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(stored(place), *before, "a body that is cut short");
}
