//! Real clients of registries, and git-lfs, where they are: skopeo and git-lfs in the path, and the Python with `oras`
//! that `FHRD_TEST_ORAS` names.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use super::fixture::{Server, large, scene, token_file};
use super::uploader::{HEADER, WRITER, commit, object_line, oid};
use crate::input::write;
use crate::program::Place;
use crate::trees::Random;

const READER: &str = "hf_11112222333344445555666677778888999900";

/// Whether a program is there. Says its version.
fn exists(program: &str, word: &str) -> bool {
    match Command::new(program).arg(word).output() {
        Ok(output) => {
            eprintln!("{program}: {}", String::from_utf8_lossy(&output.stdout).trim());
            true
        }
        Err(_) => {
            eprintln!("NOT RUN: there is no {program}");
            false
        }
    }
}

fn good(output: Output) -> Vec<u8> {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{errors}", String::from_utf8_lossy(&output.stdout));
    output.stdout
}

/// A repository with published names, without entries that clients do not see, and a server that wants a token.
fn served() -> (Place, Server) {
    let place = scene();
    for name in ["out", "absolute", "loop", "directory"] {
        std::fs::remove_file(place.path("hub/model").join(name)).unwrap();
    }
    place.run(&["publish", "latest:hub/model", "Me/Upper"]);
    let tokens = token_file(&place, &format!("{READER} read\n"));
    let server = Server::start(&place, &["--token-file", &tokens]);
    (place, server)
}

#[test]
fn skopeo_copies_what_is_published() {
    if !exists("skopeo", "--version") {
        return;
    }
    let (place, server) = served();
    let run = |words: &[&str], reference: &str, rest: &[&str]| {
        let mut command = Command::new("skopeo");
        command
            .args(["--insecure-policy"])
            .args(words)
            .arg(format!("docker://{}/{reference}", server.address))
            .args(rest);
        command.env("HOME", place.path("")).env("XDG_RUNTIME_DIR", place.path("")).env("TMPDIR", place.path(""));
        command.output().unwrap()
    };
    let login = ["--tls-verify=false", "--creds", &format!("me:{READER}")];
    let target = format!("dir:{}", place.path("copied").to_str().unwrap());
    let copy = ["copy", "--src-tls-verify=false", "--src-creds", &format!("me:{READER}")];
    for reference in ["me/model:latest", "me/upper:main", "datasets/me/dataset"] {
        good(run(&copy, reference, &[&target]));
        let raw = good(run(&[&["inspect", "--raw"], &login[..]].concat(), reference, &[]));
        assert!(raw == std::fs::read(place.path("copied/manifest.json")).unwrap(), "{reference}");
        let manifest: Value = serde_json::from_slice(&raw).unwrap();
        let directory = if reference.starts_with("datasets") { "hub/dataset" } else { "hub/model" };
        for layer in manifest["layers"].as_array().unwrap() {
            let title = layer["annotations"]["org.opencontainers.image.title"].as_str().unwrap();
            let digest = layer["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
            let copied = std::fs::read(place.path("copied").join(digest)).unwrap();
            assert!(copied == std::fs::read(place.path(directory).join(title)).unwrap(), "{reference} {title}");
        }
        std::fs::remove_dir_all(place.path("copied")).unwrap();
    }
    let tags: Value =
        serde_json::from_slice(&good(run(&[&["list-tags"], &login[..]].concat(), "me/model", &[]))).unwrap();
    assert_eq!(tags["Tags"], serde_json::json!(["latest", "main", "v1"]));
    let refused = run(&["inspect", "--raw", "--tls-verify=false"], "me/model", &[]);
    assert!(
        !refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("unauthorized"),
        "{refused:?}"
    );
    server.stop();
}

#[test]
fn oras_pulls_what_is_published() {
    let Some(python) = std::env::var_os("FHRD_TEST_ORAS") else {
        eprintln!("NOT RUN: FHRD_TEST_ORAS names no Python with oras");
        return;
    };
    let (place, server) = served();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/serve/registry_pull.py");
    for (reference, directory) in [("Me/Upper:latest", "hub/model"), ("datasets/me/dataset:main", "hub/dataset")] {
        let mut command = Command::new(&python);
        command.args(["-B", script, &server.address.to_string(), reference, READER]).arg(place.path("pulled"));
        command.env("HOME", place.path("")).env("DOCKER_CONFIG", place.path(""));
        eprintln!("{}", String::from_utf8_lossy(&good(command.output().unwrap())).trim());
        assert_same_files(&place.path(directory), &place.path("pulled"));
        std::fs::remove_dir_all(place.path("pulled")).unwrap();
    }
    server.stop();
}

/// Whether both have the same files, byte for byte. A link counts as what it leads to.
fn assert_same_files(one: &Path, other: &Path) {
    let paths = |directory: &Path| {
        let found = super::uploader::walkdir(directory).into_iter();
        let mut paths: Vec<String> =
            found.map(|path| path[directory.to_str().unwrap().len()..].trim_start_matches('/').to_string()).collect();
        paths.sort_unstable();
        paths
    };
    let found = paths(one);
    assert_eq!(found, paths(other));
    for path in found {
        assert!(std::fs::read(one.join(&path)).unwrap() == std::fs::read(other.join(&path)).unwrap(), "{path}");
    }
}

#[test]
fn git_lfs_sends_and_gets_objects() {
    if !exists("git-lfs", "version") || !exists("git", "--version") {
        return;
    }
    let place = scene();
    let tokens = token_file(&place, &format!("{WRITER} write\n"));
    let server = Server::start(&place, &["--writable", "--token-file", &tokens]);
    let url = |name: &str| format!("http://me:{WRITER}@{}/{name}.git/info/lfs", server.address);
    let git = |directory: &str, words: &[&str]| {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=me", "-c", "user.email=me@example.org"]).args(words);
        command.current_dir(place.path(directory)).env("HOME", place.path("")).env("GIT_TERMINAL_PROMPT", "0");
        command.env("GIT_CONFIG_NOSYSTEM", "1").env_remove("GIT_DIR").env_remove("GIT_WORK_TREE");
        good(command.output().unwrap())
    };
    // A push sends the object.
    let bytes = Random(5).bytes(3_000_000);
    write(place.path("work/model.bin"), &bytes);
    write(place.path("work/.gitattributes"), b"*.bin filter=lfs diff=lfs merge=lfs -text\n");
    git("", &["init", "-q", "--bare", "--initial-branch", "main", "remote"]);
    git("work", &["init", "-q"]);
    git("work", &["lfs", "install", "--local"]);
    git("work", &["config", "lfs.url", &url("me/pushed")]);
    git("work", &["add", "."]);
    git("work", &["commit", "-qm", "a model"]);
    git("work", &["push", "-q", place.path("remote").to_str().unwrap(), "HEAD:refs/heads/main"]);
    let lines = format!("{HEADER}{}", object_line("model.bin", &bytes));
    assert_eq!(commit(&server, "me/pushed", WRITER, &lines).status, 200, "the object is there");
    // A clone gets it from the name, and another one what was a backup.
    git(
        "",
        &["clone", "-q", "--config", "filter.lfs.smudge=", "--config", "filter.lfs.required=false", "remote", "again"],
    );
    let pull = |directory: &str, name: &str| {
        git(directory, &["lfs", "install", "--local", "--force"]);
        git(directory, &["config", "lfs.url", &url(name)]);
        git(directory, &["lfs", "pull"])
    };
    pull("again", "me/pushed");
    assert!(std::fs::read(place.path("again/model.bin")).unwrap() == bytes);
    let pointer =
        format!("version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize {}\n", oid(&large()), large().len());
    write(place.path("own/model.bin"), pointer.as_bytes());
    write(place.path("own/.gitattributes"), b"*.bin filter=lfs diff=lfs merge=lfs -text\n");
    git("own", &["init", "-q"]);
    git("own", &["add", "."]);
    git("own", &["commit", "-qm", "a pointer"]);
    pull("own", "me/model");
    assert!(std::fs::read(place.path("own/model.bin")).unwrap() == large());
    server.stop();
}
