//! What clients of registries get: manifests, blobs and tags.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::fixture::{Reply, Server, large, scene, token_file};
use super::uploader::oid;
use crate::input::write;
use crate::program::Place;
use crate::weights::{model, weights};

const READER: &str = "hf_11112222333344445555666677778888999900";
const OTHER: &str = "hf_22223333444455556666777788889999000011";
const OCI: &str = "application/vnd.oci.image.manifest.v1+json";
const DOCKER: &str = "application/vnd.docker.distribution.manifest.v2+json";
/// The digest of `{}`.
const EMPTY: &str = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";

/// The digests of a manifest by their titles.
fn layers(manifest: &Reply) -> BTreeMap<String, String> {
    let document = manifest.json();
    let layer = |layer: &Value| {
        let title = layer["annotations"]["org.opencontainers.image.title"].as_str().unwrap();
        (title.to_string(), layer["digest"].as_str().unwrap().to_string())
    };
    document["layers"].as_array().unwrap().iter().map(layer).collect()
}

fn code(reply: &Reply) -> (u16, String) {
    let document = if reply.body.is_empty() { json!({}) } else { reply.json() };
    (reply.status, document["errors"][0]["code"].as_str().unwrap_or_default().into())
}

#[test]
fn a_commit_is_an_artifact_whose_manifest_never_changes() {
    let place = scene();
    let server = Server::start(&place, &[]);
    let root = server.get("/v2/");
    assert_eq!((root.status, root.header("docker-distribution-api-version")), (200, "registry/2.0"));
    let first = server.get("/v2/me/model/manifests/latest");
    assert_eq!((first.status, first.header("content-type")), (200, OCI), "{first:?}");
    let digest = format!("sha256:{}", oid(&first.body));
    assert_eq!(first.header("docker-content-digest"), digest);
    let commit = first.header("x-repo-commit").to_string();
    for reference in ["main", &commit, &digest] {
        let target = format!("/v2/me/model/manifests/{reference}");
        assert!(server.get(&target).body == first.body, "{reference}");
        let look = server.ask("HEAD", &target, "");
        assert_eq!((look.status, look.body.len()), (200, 0), "{reference}");
        assert_eq!(look.header("docker-content-digest"), digest, "{reference}");
        assert_eq!(look.header("content-length"), first.body.len().to_string(), "{reference}");
    }
    let found = layers(&first);
    let titles: Vec<&str> = found.keys().map(String::as_str).collect();
    let expected = [
        "below/deep/x y+z#.txt",
        "below/\u{fc}%2F.txt",
        "config.json",
        "empty",
        "link.txt",
        "mid.bin",
        "model.safetensors",
    ];
    assert_eq!(titles, expected);
    for (title, digest) in &found {
        let blob = server.get(&format!("/v2/me/model/blobs/{digest}"));
        assert_eq!((blob.status, format!("sha256:{}", oid(&blob.body))), (200, digest.clone()), "{title}");
        assert_eq!(blob.header("docker-content-digest"), digest, "{title}");
    }
    let tags = server.get("/v2/me/model/tags/list");
    assert_eq!(tags.json(), json!({ "name": "me/model", "tags": ["latest", "main", "v1"] }));
    let page = server.get("/v2/me/model/tags/list?n=1&last=latest");
    assert_eq!(page.json()["tags"], json!(["main"]));
    assert_eq!(page.header("link"), "</v2/me/model/tags/list?n=1&last=main>; rel=\"next\"");
    let dataset = server.get("/v2/datasets/me/dataset/manifests/latest");
    assert_eq!(layers(&dataset).keys().collect::<Vec<_>>(), ["train.csv"], "{dataset:?}");
    server.stop();
    // A digest is found by a server that has made no manifest, with and without what the first one has remembered.
    for is_forgotten in [false, true] {
        if is_forgotten {
            std::fs::remove_dir_all(place.path("cache")).unwrap();
        }
        let server = Server::start(&place, &[]);
        let model = server.get(&format!("/v2/me/model/blobs/{}", found["model.safetensors"]));
        assert!(model.body == large());
        assert!(server.get(&format!("/v2/me/model/manifests/{digest}")).body == first.body);
        server.stop();
    }
}

#[test]
fn blobs_come_by_ranges_and_what_is_absent_says_so() {
    let place = scene();
    let server = Server::start(&place, &[]);
    let found = layers(&server.get("/v2/me/model/manifests/v1"));
    let (target, content) = (format!("/v2/me/model/blobs/{}", found["model.safetensors"]), large());
    let part = server.ask("GET", &target, "Range: bytes=5-9\r\n");
    assert_eq!((part.status, part.body.as_slice(), part.header("location")), (206, &content[5..10], ""));
    let look = server.ask("HEAD", &target, "");
    assert_eq!((look.status, look.header("content-length")), (200, content.len().to_string().as_str()));
    assert_eq!(look.header("accept-ranges"), "bytes");
    let whole = server.get(&target);
    assert!(whole.body == content);
    assert_eq!(whole.header("location"), format!("http://localhost{target}"));
    assert_eq!(server.ask("GET", &target, "Range: bytes=999999999-\r\n").status, 416);
    assert_eq!(server.get(&format!("/v2/me/model/blobs/{EMPTY}")).body, b"{}");
    let zeros = format!("sha256:{}", "0".repeat(64));
    let others = server.get("/v2/datasets/me/dataset/manifests/main");
    let other = &layers(&others)["train.csv"];
    for (target, status, expected) in [
        ("/v2/me/none/manifests/latest".to_string(), 404, "NAME_UNKNOWN"),
        ("/v2/me/none/tags/list".into(), 404, "NAME_UNKNOWN"),
        (format!("/v2/me/none/blobs/{EMPTY}"), 404, "NAME_UNKNOWN"),
        ("/v2/me/dataset/manifests/latest".into(), 404, "NAME_UNKNOWN"),
        ("/v2/me/model/manifests/none".into(), 404, "MANIFEST_UNKNOWN"),
        ("/v2/me/model/manifests/sha256:0".into(), 404, "MANIFEST_UNKNOWN"),
        (format!("/v2/me/model/manifests/{zeros}"), 404, "MANIFEST_UNKNOWN"),
        (format!("/v2/me/model/blobs/{zeros}"), 404, "BLOB_UNKNOWN"),
        ("/v2/me/model/blobs/uploads".into(), 404, "BLOB_UNKNOWN"),
        (format!("/v2/me/model/blobs/{other}"), 404, "BLOB_UNKNOWN"),
        ("/v2/_catalog".into(), 404, "UNSUPPORTED"),
        ("/v2/me/model/referrers/x".into(), 404, "UNSUPPORTED"),
    ] {
        let reply = server.get(&target);
        assert_eq!(code(&reply), (status, expected.to_string()), "{target}");
        assert_eq!(server.ask("HEAD", &target, "").status, status, "{target}");
    }
    for target in ["/v2/me/model/blobs/uploads", "/v2/me/model/manifests/x", "/v2/"] {
        for method in ["POST", "PUT", "DELETE"] {
            let reply = server.ask(method, target, "Content-Length: 0\r\n");
            assert_eq!(code(&reply), (405, "UNSUPPORTED".into()), "{method} {target}");
        }
    }
    server.stop();
}

#[test]
fn a_token_is_a_password_on_these_routes_alone() {
    let place = scene();
    let tokens = token_file(&place, &format!("{READER} read me/*\n{OTHER} read you/*\n"));
    let server = Server::start(&place, &["--token-file", &tokens]);
    let basic = |token: &str| {
        use base64::Engine;
        format!("Authorization: Basic {}\r\n", base64::prelude::BASE64_STANDARD.encode(format!("any:{token}")))
    };
    for target in ["/v2/", "/v2/me/model/manifests/latest"] {
        for headers in [String::new(), basic("hf_none_of_these_tokens"), "Authorization: Basic x\r\n".into()] {
            let reply = server.ask("GET", target, &headers);
            assert_eq!(code(&reply), (401, "UNAUTHORIZED".into()), "{target} {headers}");
            assert_eq!(reply.header("www-authenticate"), "Basic realm=\"fhrd\"");
        }
        for headers in [basic(READER), format!("Authorization: Bearer {READER}\r\n")] {
            assert_eq!(server.ask("GET", target, &headers).status, 200, "{target} {headers}");
        }
    }
    assert_eq!(server.ask("GET", "/api/models/me/model", &basic(READER)).status, 401);
    // What a token may not read looks absent.
    let digest =
        server.ask("GET", "/v2/me/model/manifests/latest", &basic(READER)).header("docker-content-digest").to_string();
    for rest in ["manifests/latest", "tags/list", &format!("manifests/{digest}"), &format!("blobs/{EMPTY}")] {
        let [hidden, absent] =
            ["model", "none"].map(|name| server.ask("GET", &format!("/v2/me/{name}/{rest}"), &basic(OTHER)));
        assert_eq!((code(&hidden), hidden.body), (code(&absent), absent.body), "{rest}");
    }
    server.stop();
}

#[test]
fn a_name_is_found_by_any_case_unless_that_is_ambiguous() {
    let place = Place::with_repository();
    for name in ["One", "TWO", "Two"] {
        write(place.path(&format!("all/{name}/model.safetensors")), &model(&weights(1, 1 << 18), &weights(2, 1 << 18)));
    }
    place.run(&["backup", "all", "--host", "Laptop"]);
    let tokens = token_file(&place, &format!("{READER} read\n"));
    let server = Server::start(&place, &["--publish-all", "--token-file", &tokens]);
    let tags = |name: &str| {
        server.ask("GET", &format!("/v2/{name}/tags/list"), &format!("Authorization: Bearer {READER}\r\n"))
    };
    for name in ["Laptop/all.One", "laptop/all.one", "Laptop/all.TWO", "Laptop/all.Two"] {
        let reply = tags(name);
        assert_eq!((reply.status, reply.header("content-type")), (200, "application/json"), "{name}: {reply:?}");
    }
    assert_eq!(code(&tags("laptop/all.two")), (400, "UNSUPPORTED".into()));
    server.stop();
}

#[test]
fn ollama_gets_one_gguf_file() {
    let place = Place::with_repository();
    write(place.path("one/README.md"), b"text");
    write(place.path("one/model-Q4_K_M.gguf"), b"GGUF and more");
    write(place.path("two/m.Q8_0.gguf"), b"GGUF eight");
    write(place.path("two/m.Q4_0.gguf"), b"GGUF four");
    place.run(&["backup", "one", "two"]);
    place.run(&["publish", "latest:one", "me/one"]);
    place.run(&["publish", "latest:two", "me/two"]);
    let server = Server::start(&place, &[]);
    let ask = |name: &str, tag: &str| {
        server.ask("GET", &format!("/v2/{name}/manifests/{tag}"), &format!("Accept: {DOCKER}\r\n"))
    };
    let one = ask("me/one", "latest");
    assert_eq!((one.status, one.header("content-type")), (200, DOCKER), "{one:?}");
    let document = one.json();
    assert_eq!(document["layers"].as_array().unwrap().len(), 1);
    assert_eq!(document["layers"][0]["mediaType"], "application/vnd.ollama.image.model");
    // All layers and the configuration are got as blobs: a look, the whole for its Location, then ranges.
    for (part, expected) in [(&document["config"], None), (&document["layers"][0], Some(&b"GGUF and more"[..]))] {
        let target = format!("/v2/me/one/blobs/{}", part["digest"].as_str().unwrap());
        assert_eq!(server.ask("HEAD", &target, "").header("content-length"), part["size"].to_string());
        let whole = server.get(&target);
        assert_eq!(whole.header("location"), format!("http://localhost{target}"));
        assert_eq!(format!("sha256:{}", oid(&whole.body)), part["digest"].as_str().unwrap());
        assert!(expected.is_none_or(|expected| expected == whole.body));
    }
    let digest = |tag: &str| ask("me/two", tag).json()["layers"][0]["digest"].as_str().map(str::to_string);
    assert_eq!(digest("q4_0"), Some(format!("sha256:{}", oid(b"GGUF four"))));
    assert_eq!(digest("Q8_0"), Some(format!("sha256:{}", oid(b"GGUF eight"))));
    assert_eq!(code(&ask("me/two", "latest")), (400, "UNSUPPORTED".into()), "which one?");
    assert_eq!(code(&ask("me/two", "Q5_0")), (404, "MANIFEST_UNKNOWN".into()));
    server.stop();
}

#[test]
fn more_files_than_a_manifest_can_list_are_refused() {
    let place = Place::with_repository();
    let long = "d".repeat(250);
    for number in 0..3500 {
        write(place.path(&format!("many/{long}/{long}/{long}/{number:0250}")), b"x");
    }
    place.run(&["backup", "many"]);
    place.run(&["publish", "latest:many", "me/many"]);
    let server = Server::start(&place, &[]);
    let reply = server.get("/v2/me/many/manifests/latest");
    assert_eq!(code(&reply), (400, "UNSUPPORTED".into()), "{reply:?}");
    assert_eq!(server.get("/v2/me/many/tags/list").json()["tags"], json!(["latest", "main"]));
    server.stop();
}
