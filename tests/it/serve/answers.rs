//! What routes answer.

use serde_json::{Value, json};

use super::fixture::{LARGE, Server, large, scene};

#[test]
fn files_come_whole_and_in_ranges() {
    let place = scene();
    let server = Server::start(&place, &[]);
    let (target, content) = ("/me/model/resolve/main/model.safetensors", large());
    let whole = server.get(target);
    assert_eq!((whole.status, whole.body == content), (200, true));
    let commit = whole.header("x-repo-commit").to_string();
    assert_eq!((commit.len(), whole.header("accept-ranges")), (40, "bytes"));
    for (name, value) in
        [("x-content-type-options", "nosniff"), ("content-security-policy", "default-src 'none'; sandbox")]
    {
        assert_eq!(whole.header(name), value);
    }
    let etag = whole.header("etag").to_string();
    for (range, from, to) in [
        ("5-9", 5, 10),
        ("0-0", 0, 1),
        ("-7", LARGE - 7, LARGE),
        ("1000000-", 1_000_000, LARGE),
        ("3-999999999", 3, LARGE),
    ] {
        let part = server.ask("GET", target, &format!("Range: bytes={range}\r\n"));
        assert_eq!((part.status, part.body.len(), part.body == content[from..to]), (206, to - from, true), "{range}");
        assert_eq!(part.header("content-range"), format!("bytes {from}-{}/{LARGE}", to - 1));
        assert_eq!(part.header("content-length"), (to - from).to_string());
    }
    let part = |headers: &str| {
        let reply = server.ask("GET", target, &format!("Range: bytes=0-4\r\n{headers}"));
        (reply.status, reply.body.len())
    };
    assert_eq!(part(&format!("If-Range: {etag}\r\n")), (206, 5));
    assert_eq!(part("If-Range: \"other\"\r\n"), (200, LARGE));
    assert_eq!(part("If-Range: Wed, 21 Oct 2015 07:28:00 GMT\r\n"), (200, LARGE));
    let same = server.ask("GET", target, &format!("If-None-Match: {etag}\r\n"));
    assert_eq!((same.status, same.body.len(), same.header("etag")), (304, 0, etag.as_str()));
    assert_eq!((same.header("content-type"), same.header("x-linked-size")), ("", ""), "of a body that is not there");
    // Nobody has asked for its SHA-256 yet, and a look must not read a large file.
    assert!(etag.starts_with("\"fhrd-"), "{etag}");
    let look = server.ask("HEAD", target, "Range: bytes=0-4\r\n");
    assert_eq!((look.status, look.body.len(), look.header("content-length")), (200, 0, LARGE.to_string().as_str()));
    assert_eq!((look.header("etag"), look.header("x-linked-size")), (etag.as_str(), LARGE.to_string().as_str()));
    let tree = server.get("/api/models/me/model/tree/main").json();
    let sha256 = tree.as_array().unwrap().iter().find_map(|entry| entry["lfs"]["oid"].as_str()).unwrap().to_string();
    assert_eq!(server.ask("HEAD", target, "").header("etag"), format!("\"{sha256}\""));
    assert_eq!(part(&format!("If-Range: {etag}\r\n")), (206, 5), "a download goes on");
    let by_commit = server.get(&format!("/me/model/resolve/{commit}/config.json"));
    assert_eq!((by_commit.status, by_commit.body.as_slice()), (200, &b"{\"a\":1}"[..]));
    for (path, body) in
        [("below/deep/x%20y+z%23.txt", "odd"), ("link.txt", "odd"), ("below/%C3%BC%252F.txt", "umlaut"), ("empty", "")]
    {
        let reply = server.get(&format!("/me/model/resolve/v1/{path}"));
        assert_eq!((reply.status, reply.body.as_slice()), (200, body.as_bytes()), "{path}");
    }
    let dataset = server.get("/datasets/me/dataset/resolve/main/train.csv");
    assert_eq!((dataset.status, dataset.body.len()), (200, 12));
    server.stop();
}

#[test]
fn what_is_absent_says_what_is_absent() {
    let place = scene();
    let server = Server::start(&place, &[]);
    for (target, code) in [
        ("/me/model/resolve/main/none", "EntryNotFound"),
        ("/me/model/resolve/main/below", "EntryNotFound"),
        ("/me/model/resolve/main/config.json/x", "EntryNotFound"),
        ("/me/model/resolve/main/out", "EntryNotFound"),
        ("/me/model/resolve/main/absolute", "EntryNotFound"),
        ("/me/model/resolve/main/loop", "EntryNotFound"),
        ("/me/model/resolve/main/directory", "EntryNotFound"),
        ("/me/model/resolve/main/directory/deep/x%20y+z%23.txt", "EntryNotFound"),
        ("/me/model/resolve/none/config.json", "RevisionNotFound"),
        ("/me/model/resolve/refs%2Fpr%2F1/config.json", "RevisionNotFound"),
        ("/me/none/resolve/main/config.json", "RepoNotFound"),
        ("/me/dataset/resolve/main/train.csv", "RepoNotFound"),
        ("/datasets/me/model/resolve/main/config.json", "RepoNotFound"),
        ("/api/models/me/none", "RepoNotFound"),
        ("/api/models/me/none/refs", "RepoNotFound"),
        ("/api/models/me/model/revision/none", "RevisionNotFound"),
        ("/api/models/me/model/tree/main/none", "EntryNotFound"),
        ("/api/spaces/me/model", "RepoNotFound"),
        ("/api/agent-harnesses", "EntryNotFound"),
        ("/favicon.ico", "EntryNotFound"),
        ("/me/model/resolve/main", "EntryNotFound"),
    ] {
        for method in ["GET", "HEAD"] {
            let reply = server.ask(method, target, "");
            assert_eq!((reply.status, reply.header("x-error-code")), (404, code), "{method} {target}");
        }
    }
    let missing = server.get("/me/model/resolve/main/none");
    assert_eq!(missing.header("x-repo-commit").len(), 40, "clients remember that a commit lacks it");
    for (method, target) in [("POST", "/api/models"), ("PUT", "/me/model/resolve/main/x"), ("DELETE", "/")] {
        let reply = server.ask(method, target, "Content-Length: 0\r\n");
        assert_eq!((reply.status, reply.header("allow")), (405, "GET, HEAD"), "{method}");
    }
    server.stop();
}

#[test]
fn trees_come_in_pages_and_names_in_lists() {
    let place = scene();
    let server = Server::start(&place, &["--public-url", "http://models.example"]);
    let info = server.get("/api/models/me/model/revision/v1").json();
    let mut files: Vec<&str> =
        info["siblings"].as_array().unwrap().iter().map(|file| file["rfilename"].as_str().unwrap()).collect();
    files.sort_unstable();
    let expected =
        ["below/deep/x y+z#.txt", "below/ü%2F.txt", "config.json", "empty", "link.txt", "mid.bin", "model.safetensors"];
    assert_eq!(files, expected);
    let paths = |tree: &Value| -> Vec<String> {
        tree.as_array().unwrap().iter().map(|entry| entry["path"].as_str().unwrap().to_string()).collect()
    };
    let tree = "/api/models/me/model/tree/main";
    let all = paths(&server.get(&format!("{tree}?recursive=true&expand=false")).json());
    assert_eq!(all.len(), 9, "with two directories: {all:?}");
    assert_eq!(paths(&server.get(tree).json()).len(), 6);
    assert_eq!(paths(&server.get(&format!("{tree}/below")).json()), ["below/deep", "below/ü%2F.txt"]);
    // A link to it is not shown, so neither is what is below it.
    assert_eq!(server.get(&format!("{tree}/directory")).status, 404);
    let asked = server.post("/api/models/me/model/paths-info/main", "application/json", br#"{"paths":["directory"]}"#);
    assert_eq!(asked.json(), serde_json::json!([]));
    for start in [format!("{tree}?recursive=true&limit=2"), format!("{tree}/below?recursive=true&limit=1")] {
        let (mut found, mut next) = (Vec::new(), start.clone());
        loop {
            let page = server.get(&next);
            found.extend(paths(&page.json()));
            let Some(link) = page.headers.get("link") else { break };
            let url = link.strip_prefix("<http://models.example").unwrap();
            next = url.split('>').next().unwrap().to_string();
        }
        let is_below = |path: &&String| !start.contains("/below") || (path.starts_with("below/"));
        assert_eq!(found, all.iter().filter(is_below).cloned().collect::<Vec<_>>(), "{start}");
    }
    let refs = server.get("/api/models/me/model/refs").json();
    assert_eq!(refs["branches"][1]["name"], "v1");
    let listed = server.get("/api/models?limit=5&search=MOD").json();
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["id"]), (1, &json!("me/model")));
    assert_eq!(server.get("/api/models?author=you").json(), json!([]));
    let asked = json!({ "paths": ["config.json", "below", "../x", "none", "out"] }).to_string();
    let route = "/api/models/me/model/paths-info/main";
    let found = server.post(route, "application/json", asked.as_bytes());
    assert_eq!(paths(&found.json()), ["config.json", "below"]);
    let form = server.post(route, "application/x-www-form-urlencoded", b"paths=empty&paths=below%2Fdeep&expand=False");
    assert_eq!(paths(&form.json()), ["empty", "below/deep"]);
    for target in ["/", "/healthz", tree, "/api/models", "/api/models/me/model", "/nothing"] {
        let reply = server.get(target);
        let headers = (reply.header("x-content-type-options"), reply.header("cross-origin-resource-policy"));
        assert_eq!(headers, ("nosniff", "same-origin"), "{target}");
    }
    assert_eq!(server.get("/healthz").status, 200);
    assert_eq!(server.get("/readyz").status, 200);
    assert_eq!(server.get("/api/whoami-v2").json()["name"], "anybody");
    server.stop();
}

#[test]
fn the_files_of_a_large_name_are_all_there() {
    let place = scene();
    // Pages have 1,000 entries: one has no file, and others follow.
    for number in 0..1_100 {
        std::fs::create_dir_all(place.path(&format!("many/a/{number:04}"))).unwrap();
    }
    let names: Vec<String> = (0..2_100).map(|number| format!("b/{number:04}.txt")).collect();
    names.iter().for_each(|name| crate::input::write(place.path(&format!("many/{name}")), name.as_bytes()));
    place.run(&["backup", "many"]);
    place.run(&["publish", "latest:many", "me/many"]);
    let server = Server::start(&place, &[]);
    let info = server.get("/api/models/me/many");
    assert_eq!(info.header("transfer-encoding"), "chunked", "it need not fit into memory");
    let info = info.json();
    let siblings = info["siblings"].as_array().unwrap();
    let found: Vec<&str> = siblings.iter().map(|file| file["rfilename"].as_str().unwrap()).collect();
    assert_eq!(found, names);
    assert!(siblings.iter().all(|file| file["size"] == 10), "{:?}", siblings[0]);
    server.stop();
}
