//! A frozen encrypted repository: today's program reads it with each of its secrets, and so does an independent program.
//!
//! `tests/fixtures/v1-encrypted` has `repository`, with a password and a key file, and blobs of two generations of the
//! master key. It is frozen since format 1 is released; before, `FHRD_WRITE_FIXTURES=encrypted` wrote it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use crate::compatibility::{copy_directory, is_rewrite_wanted};
use crate::independent;
use crate::program::{Place, finished, number};
use crate::trees::{Looks, Random, assert_same, describe};

const PASSWORD: &str = "correct horse battery staple";

fn fixture() -> &'static Path {
    static WRITTEN: OnceLock<PathBuf> = OnceLock::new();
    WRITTEN.get_or_init(|| {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1-encrypted");
        if is_rewrite_wanted("encrypted") {
            write(&directory);
        }
        directory
    })
}

/// Runs `fhrd` with the state directory of `place`, and with the secrets in `environment`.
fn run(place: &Place, directory: &Path, environment: &[(&str, &str)], words: &[&str]) -> Output {
    let mut command = place.command(directory, words);
    command.env("XDG_STATE_HOME", place.path("state"));
    for name in ["FHRD_PASSWORD", "FHRD_PASSWORD_FILE", "FHRD_PASSWORD_COMMAND", "FHRD_KEY_FILE", "FHRD_NEW_PASSWORD"] {
        command.env_remove(name);
    }
    command.envs(environment.iter().copied()).output().unwrap()
}

fn write(directory: &Path) {
    let (place, work) = (Place::new(), std::env::temp_dir().join("fhrd-encrypted-fixture"));
    let tree = work.join("tree");
    let _ = fs::remove_dir_all(directory);
    let _ = fs::remove_dir_all(&work);
    fs::create_dir_all(directory).unwrap();
    fs::create_dir_all(tree.join("below")).unwrap();
    let (key_file, password_file) = (directory.join("key-file"), directory.join("password"));
    let mut random = Random(77);
    fs::write(&key_file, random.bytes(32)).unwrap();
    fs::write(&password_file, format!("{PASSWORD}\n")).unwrap();
    let key_file = key_file.to_str().unwrap();
    let done = |words: &[&str]| finished(run(&place, &work, &[("FHRD_KEY_FILE", key_file)], words), "fixture");
    finished(run(&place, &work, &[("FHRD_PASSWORD", PASSWORD)], &["init", "--encrypt", "--label", "first"]), "init");
    let rotated = [("FHRD_PASSWORD", PASSWORD)];
    let mut expected = BTreeMap::new();
    for tag in ["first", "second"] {
        let text = random.text(40_000);
        fs::write(tree.join(format!("below/{tag}")), &text).unwrap();
        fs::write(tree.join("noise"), random.bytes(20_000)).unwrap();
        let words = ["backup", "tree", "--host", "fixture", "--tag", tag];
        let report = finished(run(&place, &work, &rotated, &words), tag);
        expected.insert(report["snapshot"].as_str().unwrap().to_string(), describe(&tree));
        if tag == "first" {
            finished(run(&place, &work, &rotated, &["key", "rotate"]), "rotate");
            let words = ["key", "add", "--new-key-file", key_file, "--label", "file"];
            finished(run(&place, &work, &rotated, &words), "add");
        }
    }
    done(&["check", "--read-data"]);
    copy_directory(&place.repository(), &directory.join("repository"));
    fs::write(directory.join("expected.json"), serde_json::to_vec(&expected).unwrap()).unwrap();
    fs::remove_dir_all(work).unwrap();
}

#[test]
fn each_secret_opens_the_frozen_encrypted_repository_to_the_last_byte() {
    let expected: BTreeMap<String, BTreeMap<String, Looks>> =
        serde_json::from_slice(&fs::read(fixture().join("expected.json")).unwrap()).unwrap();
    let key_file = fixture().join("key-file");
    let place = Place::new();
    copy_directory(&fixture().join("repository"), &place.repository());
    let secrets = [("FHRD_PASSWORD", PASSWORD), ("FHRD_KEY_FILE", key_file.to_str().unwrap())];
    for (number_of_secret, secret) in secrets.iter().enumerate() {
        for (id, want) in &expected {
            let target = place.path(&format!("{id}-{number_of_secret}"));
            let words = ["restore", id, "--target", target.to_str().unwrap()];
            let report = finished(run(&place, place.path(".").as_path(), &[*secret], &words), id);
            assert_eq!((number(&report, "damaged"), number(&report, "problems")), (0, 0));
            assert_same(want, &describe(&target.join("tree")), id);
        }
    }
}

#[test]
fn an_independent_program_opens_it_by_the_documented_format() {
    let Some(python) = independent::python() else { return };
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = root.join("tests/independent/read_encrypted.py");
    let open = |fixture: &Path| {
        Command::new(&python).arg("-B").arg(&program).arg(fixture).arg(root.join("docs/FORMAT.md")).output().unwrap()
    };
    let output = open(fixture());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // It must not accept just anything.
    let place = Place::new();
    copy_directory(fixture(), &place.path("copy"));
    fs::write(place.path("copy/password"), "another\n").unwrap();
    assert!(!open(&place.path("copy")).status.success());
}
