//! Frozen fixtures: no file of theirs ever changes, comes or goes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::input::files;

/// The directories below `tests/fixtures` that are frozen with format 1.
const FROZEN: [&str; 6] = ["v1", "v1-encrypted", "v1-models", "v1-reads", "v1-release", "v1-release-encrypted"];

/// BLAKE3 of each file, as `b3sum` prints it: the digits, two spaces, the path below `tests/fixtures`.
const MANIFEST: &str = include_str!("../fixtures/BLAKE3SUMS");

/// The hashes of the files below the frozen directories of `root`, by their names.
fn hashes(root: &Path) -> BTreeMap<String, String> {
    let below = |directory: &&str| {
        let names = files(&root.join(directory)).into_iter();
        names.map(|name| format!("{directory}/{name}")).collect::<Vec<_>>()
    };
    let hash = |name: String| {
        let hash = blake3::hash(&fs::read(root.join(&name)).unwrap()).to_hex().to_string();
        (name, hash)
    };
    FROZEN.iter().flat_map(below).map(hash).collect()
}

/// What differs between the manifest and the files.
fn changes(manifest: &str, found: &BTreeMap<String, String>) -> Vec<String> {
    let line = |line: &str| line.split_once("  ").map(|(hash, name)| (name.to_string(), hash.to_string()));
    let listed: BTreeMap<String, String> = manifest.lines().map(|text| line(text).unwrap()).collect();
    let names = listed.keys().chain(found.keys().filter(|name| !listed.contains_key(*name)));
    names.filter(|name| listed.get(*name) != found.get(*name)).cloned().collect()
}

#[test]
fn no_file_of_a_frozen_fixture_changes_comes_or_goes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    assert_eq!(changes(MANIFEST, &hashes(&root)), Vec::<String>::new(), "what is frozen stays as it is");
}

#[test]
fn a_changed_a_new_and_a_missing_file_are_found() {
    let found = |files: &[(&str, &str)]| -> BTreeMap<String, String> {
        files.iter().map(|(name, hash)| (name.to_string(), hash.to_string())).collect()
    };
    let manifest = "0a  v1/one\n0b  v1/two\n";
    assert_eq!(changes(manifest, &found(&[("v1/one", "0a"), ("v1/two", "0b")])), Vec::<String>::new());
    assert_eq!(changes(manifest, &found(&[("v1/one", "0c"), ("v1/two", "0b")])), ["v1/one"]);
    assert_eq!(changes(manifest, &found(&[("v1/one", "0a")])), ["v1/two"]);
    assert_eq!(changes(manifest, &found(&[("v1/one", "0a"), ("v1/two", "0b"), ("v1/z", "0d")])), ["v1/z"]);
}
