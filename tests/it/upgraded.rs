//! `fhrd upgrade`: what keeps older programs from writing is there before anything that they do not know.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::compatibility::copy_directory;
use crate::program::{Place, finished};

const PASSWORD: &str = "correct horse battery staple";
/// Where the envelope has the writer-required features.
const WRITER_FEATURES_AT: usize = 18;
/// What every new repository has: rebuilt contents, derivations, short pages, differences of listings.
const ALL: u64 = 1 << 4 | 1 << 5 | 1 << 9 | 1 << 10;

fn run(place: &Place, words: &[&str]) -> Value {
    let mut command = place.command(&place.path("."), words);
    command.env("XDG_STATE_HOME", place.path("state")).env("FHRD_PASSWORD", PASSWORD);
    finished(command.output().unwrap(), &words.join(" "))
}

fn marks(place: &Place) -> Vec<String> {
    let listed = fs::read_dir(place.repository().join("marks/required"));
    listed.into_iter().flatten().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn writer_features(place: &Place, name: &str) -> u64 {
    let blob = fs::read(place.repository().join(name)).unwrap();
    u64::from_le_bytes(blob[WRITER_FEATURES_AT..][..8].try_into().unwrap())
}

#[test]
fn an_upgrade_puts_one_mark_into_a_repository_of_an_earlier_version_and_no_other() {
    let place = Place::new();
    let frozen = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1-encrypted/repository");
    copy_directory(&frozen, &place.repository());
    let all = json!([
        {"feature": "key-copies", "purpose": "every key slot is stored twice"},
        {"feature": "derivations", "purpose": "quantised and pruned tensors follow from stored models"},
        {"feature": "rebuilt", "purpose": "compressed files are stored as what they unpack to"},
        {"feature": "short-pages", "purpose": "small index segments end without padding"},
        {"feature": "listings", "purpose": "listings are stored as differences to those of the parent"},
    ]);
    let planned = run(&place, &["upgrade", "--dry-run"]);
    assert_eq!((&planned["enabled"], &planned["mark"]), (&all, &Value::Null));
    assert!(marks(&place).is_empty(), "a dry run changes nothing");
    let done = run(&place, &["upgrade"]);
    assert_eq!(done["enabled"], all);
    assert_eq!(
        marks(&place).iter().map(|name| format!("marks/required/{name}")).collect::<Vec<_>>(),
        [done["mark"].as_str().unwrap()]
    );
    let again = run(&place, &["upgrade"]);
    assert_eq!((&again["enabled"], &again["present"], &again["mark"]), (&json!([]), &all, &done["mark"]));
    assert_eq!(marks(&place).len(), 1);
    fs::write(place.path("file"), b"content").unwrap();
    run(&place, &["backup", "file"]);
    run(&place, &["check", "--read-data"]);
}

#[test]
fn a_new_repository_has_the_bits_of_what_it_needs_in_both_copies_of_its_configuration() {
    for (words, expected) in [(&["init"][..], ALL), (&["init", "--encrypt"], 1 | ALL)] {
        let place = Place::new();
        let mut command = place.command(&place.path("."), words);
        command.env("XDG_STATE_HOME", place.path("state"));
        let command = command.env("FHRD_PASSWORD", if expected & 1 == 0 { "" } else { PASSWORD });
        finished(command.output().unwrap(), "init");
        assert_eq!(["config", "config-copy"].map(|name| writer_features(&place, name)), [expected; 2]);
    }
}

#[test]
fn what_is_published_is_copied_after_an_upgrade_only() {
    let (source, target) = (Place::with_repository(), Place::new());
    let frozen = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1/repository");
    copy_directory(&frozen, &target.repository());
    fs::create_dir(source.path("model")).unwrap();
    fs::write(source.path("model/file"), b"content").unwrap();
    source.run(&["backup", "model"]);
    source.run(&["publish", "latest:model", "me/model"]);
    let (from, before) = (source.repository(), target.run(&["snapshots"]));
    let words = ["copy", "--from-repo", from.to_str().unwrap()];
    let refused = target.command(&target.path("."), &words).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let document: Value = serde_json::from_slice(&refused.stdout).unwrap();
    let errors: Vec<&Value> = document["snapshots"].as_array().unwrap().iter().map(|own| &own["error"]).collect();
    assert!(errors[0].is_null() && errors[1].as_str().unwrap().contains("fhrd upgrade"), "{document}");
    let names = |listed: &Value| listed.as_array().unwrap().len();
    assert_eq!(names(&target.run(&["snapshots"])), names(&before) + 1, "the backup alone");
    target.run(&["upgrade"]);
    target.run(&words);
    let shown = |listed: Value| (listed[0]["name"].clone(), listed[0]["revision"].clone(), listed[0]["time"].clone());
    assert_eq!(shown(target.run(&["published"])), shown(source.run(&["published"])));
}
