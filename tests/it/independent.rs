//! A program that shares no code with fhrd, `tests/independent/fhrd_restore.py`, restores what fhrd has stored.
//!
//! It was written from docs/FORMAT.md, so the tests show that the document is right and enough. They run where
//! `FHRD_TEST_PYTHON` names a Python with the packages of the program.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use fhrd::repo::recipe::ContentReference;
use fhrd::repo::tree::{Node, NodeKind};

use crate::compatibility::copy_directory;
use crate::hostile_repository::HostileRepository;
use crate::input::write;
use crate::program::Place;
use crate::trees::{Looks, Random, assert_same, describe};
use crate::weights::{Tensor, bfloat16, float32, safetensors, tuned, weights};

/// What the tests leave out of the environment: secrets would go with other repositories.
const SECRETS: [&str; 3] = ["FHRD_PASSWORD", "FHRD_PASSWORD_FILE", "FHRD_KEY_FILE"];

/// The Python to run the programs of `tests/independent` with. `None` if there is none, which is said.
pub fn python() -> Option<OsString> {
    let python = std::env::var_os("FHRD_TEST_PYTHON");
    if python.is_none() {
        eprintln!("NOT RUN: FHRD_TEST_PYTHON names no Python with the packages that tests/independent needs");
    }
    python
}

/// The program, run with these words.
pub fn run(python: &OsString, words: &[&str]) -> Output {
    let mut command = Command::new(python);
    command.arg("-B").arg(sources().join("tests/independent/fhrd_restore.py")).args(words).stdin(Stdio::null());
    SECRETS.iter().for_each(|name| _ = command.env_remove(name));
    command.output().unwrap()
}

fn sources() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Restores the latest snapshot, whatever comes of it.
fn attempt(python: &OsString, repository: &Path, target: &Path) -> Output {
    run(python, &["restore", repository.to_str().unwrap(), "latest", target.to_str().unwrap()])
}

/// Restores a snapshot, or fails with what the program says.
fn restored(python: &OsString, repository: &Path, id: &str, target: &Path, secret: &[&str]) {
    let words = ["restore", repository.to_str().unwrap(), id, target.to_str().unwrap()];
    let output = run(python, &[&words, secret].concat());
    assert!(output.status.success(), "{id}: {}", text(&output.stderr));
}

/// Restores the latest snapshot with the program, if there is a Python for it, and compares what was at `source`.
pub fn assert_restores_latest(place: &Place, source: &Path) {
    let Some(python) = python() else { return };
    let target = tempfile::tempdir().unwrap();
    restored(&python, &place.repository(), "latest", &target.path().join("restored"), &[]);
    let found = target.path().join("restored").join(source.strip_prefix("/").unwrap());
    assert_same(&describe(source), &describe(&found), "restored without fhrd");
}

/// The ids of all snapshots, oldest first.
fn snapshots(python: &OsString, repository: &Path) -> Vec<String> {
    let output = run(python, &["snapshots", repository.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).lines().map(|line| line[..64].to_string()).collect()
}

fn expected<T: serde::de::DeserializeOwned>(fixture: &Path) -> T {
    serde_json::from_slice(&fs::read(fixture.join("expected.json")).unwrap()).unwrap()
}

#[test]
fn it_restores_the_frozen_repositories_to_the_last_byte() {
    let Some(python) = python() else { return };
    let (place, fixtures) = (Place::new(), sources().join("tests/fixtures"));
    let (plain, models, encrypted) = (fixtures.join("v1"), fixtures.join("v1-models"), fixtures.join("v1-encrypted"));
    let by_tag: BTreeMap<String, BTreeMap<String, Looks>> = expected(&plain);
    let ids = snapshots(&python, &plain.join("repository"));
    for (id, tag) in ids.iter().zip(["first", "second"]) {
        restored(&python, &plain.join("repository"), id, &place.path(tag), &[]);
        assert_same(&by_tag[tag], &describe(&place.path(tag).join("tree")), tag);
    }
    restored(&python, &models.join("repository"), "latest", &place.path("models"), &[]);
    assert_same(&expected(&models), &describe(&place.path("models/tree")), "models");
    let by_id: BTreeMap<String, BTreeMap<String, Looks>> = expected(&encrypted);
    for secret in ["password", "key-file"] {
        let option = [if secret == "password" { "--password-file" } else { "--key-file" }];
        let file = encrypted.join(secret);
        for (id, want) in &by_id {
            let target = place.path(&format!("{id}-{secret}"));
            let secret = [option[0], file.to_str().unwrap()];
            restored(&python, &encrypted.join("repository"), id, &target, &secret);
            assert_same(want, &describe(&target.join("tree")), id);
        }
    }
}

/// Writes text, floats, and models that descend from each other. The second time it changes them.
fn write_tree(tree: &Path, second: bool) {
    let mut random = Random(31);
    let base = weights(1, 1 << 15);
    let file = |dtype, bytes: Vec<u8>| safetensors(&[Tensor::new("w", dtype, &[128, 256], bytes)]);
    let (mut prose, half) = (random.text(90_000), |values: &[f32]| bfloat16(values));
    let mut sparse = base.clone();
    sparse[7000..7040].iter_mut().for_each(|weight| *weight *= 1.01);
    let floats = random.floats(20_000);
    write(tree.join("noise"), &random.bytes(50_000));
    write(tree.join("raw.f32"), if second { &floats[4..] } else { &floats });
    write(tree.join("base.safetensors"), &file("F32", float32(&base)));
    write(tree.join("cast.safetensors"), &file("BF16", half(&base)));
    if second {
        for at in [10_000, 40_000, 70_000] {
            prose.splice(at..at + 5, *b"an insertion amid the text");
        }
        write(tree.join("tuned.safetensors"), &file("BF16", half(&tuned(&base, 2, 0.0003))));
        write(tree.join("single.safetensors"), &file("F32", float32(&tuned(&base, 3, 0.0003))));
        write(tree.join("sparse.safetensors"), &file("F32", float32(&sparse)));
        let mut few = base.clone();
        few.iter_mut().step_by(371).enumerate().for_each(|(at, weight)| *weight *= 0.5 + (at % 5) as f32);
        write(tree.join("few.safetensors"), &file("BF16", half(&few)));
    }
    write(tree.join("prose"), &prose);
}

/// One way to store: what the configuration says besides small chunks.
const WAYS: [&str; 10] = [
    "",
    "[model]\ncodec = \"planes\"\ndelta = \"none\"\n[subdedup]\nstrategy = \"bidirectional\"\n",
    "[model]\ncodec = \"all-planes\"\ndelta = \"xor\"\n[subdedup]\nstrategy = \"uniform\"\n",
    "[model]\ncodec = \"zipnn\"\n[subdedup]\nstrategy = \"head-only\"\ndepth_max = 1\n",
    "[model]\ncodec = \"bg4-lz4\"\ndelta = \"none\"\n[compress]\ncodec = \"lz4\"\n[subdedup]\nstrategy = \"burst\"\n",
    "[model]\ncodec = \"bit-planes\"\ndelta = \"none\"\n[subdedup]\nstrategy = \"superfeature\"\n",
    "[model]\ncodec = \"zstd\"\ndelta = \"none\"\n[compress]\nframe_bytes = 0\n[subdedup]\ndepth_max = 2\n",
    "[model]\ndetect_formats = false\n[compress]\nlevel = 19\n[container]\nbytes_target = \"1 MiB\"\n",
    "[model]\nblock_bytes = \"64 KiB\"\ndelta_depth_max = 1\n",
    "[subdedup]\nstrategy = \"none\"\n[read]\nhole_bytes_min = \"4 KiB\"\n",
];

#[test]
fn it_restores_what_every_codec_and_strategy_stores_as_fhrd_does() {
    let Some(python) = python() else { return };
    for way in WAYS {
        let place = Place::new();
        let config = place.path("config.toml");
        let sizes = "chunk_bytes_min = 2048\nchunk_bytes_avg = 4096\nchunk_bytes_max = 16384\n";
        fs::write(&config, format!("[repository]\npad_containers = {}\n{sizes}{way}", way.is_empty())).unwrap();
        let config = ["--config", config.to_str().unwrap()];
        place.run(&[&["init"][..], &config].concat());
        for second in [false, true] {
            write_tree(&place.path("tree"), second);
            place.run(&[&["backup", "tree"][..], &config].concat());
        }
        for id in snapshots(&python, &place.repository()) {
            let (own, other) = (place.path("own"), place.path("other"));
            place.run(&["restore", &id, "--target", own.to_str().unwrap()]);
            restored(&python, &place.repository(), &id, &other, &[]);
            assert_same(&describe(&own.join("tree")), &describe(&other.join("tree")), way);
            [own, other].iter().for_each(|target| fs::remove_dir_all(target).unwrap());
        }
    }
}

#[test]
fn it_opens_a_repository_with_a_recovery_key_and_with_the_copy_of_a_damaged_slot() {
    let Some(python) = python() else { return };
    let place = Place::new();
    write(place.path("tree/file"), b"content");
    let password = place.path("password");
    fs::write(&password, "a pass phrase \r\n").unwrap();
    let words = |words: &[&str]| {
        let secret = ["--password-file", password.to_str().unwrap()];
        place.run(&[words, &secret].concat())
    };
    let key = words(&["init", "--encrypt", "--recovery-key"])["recovery_key"].as_str().unwrap().to_string();
    words(&["backup", "tree"]);
    for slot in fs::read_dir(place.repository().join("keys")).unwrap() {
        fs::write(slot.unwrap().path(), b"damaged").unwrap();
    }
    let recovery = place.path("recovery");
    fs::write(&recovery, key).unwrap();
    for secret in [&password, &recovery] {
        let target = place.path("target");
        restored(&python, &place.repository(), "latest", &target, &["--password-file", secret.to_str().unwrap()]);
        assert_eq!(fs::read(target.join("tree/file")).unwrap(), b"content");
        fs::remove_dir_all(target).unwrap();
    }
    fs::write(&password, "another one").unwrap();
    let (repository, password) = (place.repository(), password.to_str().unwrap());
    let output = run(&python, &["ls", repository.to_str().unwrap(), "latest", "--password-file", password]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no key slot opens"), "{}", text(&output.stderr));
}

/// The data containers of a repository.
pub fn containers(repository: &Path) -> Vec<PathBuf> {
    let directories = fs::read_dir(repository.join("containers")).unwrap();
    let files = directories.flat_map(|directory| fs::read_dir(directory.unwrap().path()).unwrap());
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.retain(|file| fs::read(file).unwrap()[10] == 0);
    files.sort();
    files
}

#[test]
fn a_flipped_bit_costs_only_the_files_that_need_it_and_each_is_named() {
    let Some(python) = python() else { return };
    let (place, fixture) = (Place::new(), sources().join("tests/fixtures/v1"));
    copy_directory(&fixture.join("repository"), &place.repository());
    let by_tag: BTreeMap<String, BTreeMap<String, Looks>> = expected(&fixture);
    let mut lost = 0;
    for container in containers(&place.repository()) {
        let sound = fs::read(&container).unwrap();
        let mut damaged = sound.clone();
        damaged[200] ^= 1;
        fs::write(&container, damaged).unwrap();
        let target = place.path("target");
        let output = attempt(&python, &place.repository(), &target);
        fs::write(&container, sound).unwrap();
        let (got, errors) = (describe(&target.join("tree")), text(&output.stderr));
        for (name, want) in &by_tag["second"] {
            // The lost name of a file that has two changes the other one's count.
            let looks = |looks: &Looks| (looks.kind.clone(), looks.mode, looks.mtime_seconds, looks.blake3.clone());
            match got.get(name) {
                Some(got) => assert_eq!(looks(got), looks(want), "{name}"),
                None => {
                    lost += 1;
                    assert!(errors.contains(&format!("not restored: tree/{name}")), "{name} is not named: {errors}");
                    assert!(got.contains_key(&format!("{name}.damaged")), "{name}");
                    assert!(errors.contains("the checksum is") && errors.contains(", expected "), "{errors}");
                }
            }
        }
        let is_lost = by_tag["second"].keys().any(|name| !got.contains_key(name));
        assert_eq!(output.status.code(), Some(i32::from(is_lost)), "{errors}");
        fs::remove_dir_all(target).unwrap();
    }
    assert!(lost > 0);
}

/// A listing of `nodes`, in which the name of `~` is then `name`, which no writer stores there.
fn listing(hostile: &mut HostileRepository, nodes: &[Node], name: &[u8]) -> ContentReference {
    let (mut bytes, from) = (Vec::new(), vec![b'~'; name.len()]);
    nodes.iter().for_each(|node| node.append_to(&mut bytes).unwrap());
    if let Some(at) = bytes.windows(from.len()).position(|window| window == from) {
        bytes[at..at + from.len()].copy_from_slice(name);
    }
    ContentReference::Chunk { fingerprint: hostile.whole(&bytes).fingerprint, len: bytes.len() as u64 }
}

#[test]
fn nothing_is_written_outside_the_target_whatever_the_names_say() {
    let Some(python) = python() else { return };
    let place = Place::new();
    let (outside, target) = (place.path("outside"), place.path("target"));
    fs::create_dir(&outside).unwrap();
    let names: [&[u8]; 6] = [b"../outside/x", b"..", b".", b"a/b", b"a\0b", b"link"];
    for (name, kind) in names.iter().flat_map(|name| [(*name, NodeKind::Directory), (*name, NodeKind::File)]) {
        // The name is put where the first tilde is: that must not be one of the fingerprint, which is random.
        let (mut hostile, good) = std::iter::repeat_with(HostileRepository::new)
            .map(|mut hostile| {
                let good = hostile.whole(b"good");
                (hostile, good)
            })
            .find(|(_, good)| !good.fingerprint.0.contains(&b'~'))
            .unwrap();
        let content = Some(ContentReference::Chunk { fingerprint: good.fingerprint, len: 4 });
        let file = |name: &[u8]| Node { name: name.into(), mode: 0o644, size: 4, content, ..Node::default() };
        let inner = Some(listing(&mut hostile, &[file(b"escaped")], b"escaped"));
        let link_target = Some(outside.to_str().unwrap().into());
        let link = Node { name: b"link".into(), kind: NodeKind::Symlink, link_target, ..Node::default() };
        let bad = match kind {
            NodeKind::Directory => Node { kind, content: inner, size: 0, ..file(&vec![b'~'; name.len()]) },
            _ => file(&vec![b'~'; name.len()]),
        };
        let root = listing(&mut hostile, &[file(b"good"), link, bad], name);
        let (repository, _) = hostile.finish_with(root, Vec::new(), 1);
        let output = attempt(&python, &repository.path(), &target);
        let (errors, name) = (text(&output.stderr), name.escape_ascii().to_string());
        assert_eq!((output.status.code(), errors.lines().count()), (Some(1), 2), "{name}: {errors}");
        let good = fs::read(target.join("good")).unwrap_or_else(|error| panic!("{name}: {error}: {errors}"));
        assert_eq!(good, b"good", "{name}");
        assert_eq!(fs::read_dir(&target).unwrap().count(), 2, "{name}");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "{name}");
        fs::remove_dir_all(&target).unwrap();
    }
    // A target that has something is refused, and what is there stays.
    fs::create_dir(&target).unwrap();
    symlink(&outside, target.join("tree")).unwrap();
    let output = attempt(&python, &sources().join("tests/fixtures/v1/repository"), &target);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("is not empty"), "{}", text(&output.stderr));
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}

#[test]
fn the_model_of_deletion_beside_writers_is_safe_and_needs_each_of_its_rules() {
    let Some(python) = python() else { return };
    let model = sources().join("tests/independent/protocol_model.py");
    let output = Command::new(&python).arg("-B").arg(model).stdin(Stdio::null()).output().unwrap();
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    assert!(said.lines().filter(|line| line.ends_with(" safe")).count() > 10, "{said}");
}
