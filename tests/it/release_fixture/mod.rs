//! Frozen repositories with everything that the first release stores: today's program reads all of it.
//!
//! `tests/fixtures/v1-release` and `v1-release-encrypted` have what the fixtures of [`crate::compatibility`] lack.
//! `expected.json` lists what each snapshot holds, by its first tag, and `counts.json` how many there are of each
//! structure. Before the release `FHRD_WRITE_FIXTURES=release` wrote them, with new keys.

mod held;
mod models;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use fhrd::config::Config;
use fhrd::crypto::{SecretBytes, Unlock};
use fhrd::inspect::check::check;
use fhrd::metrics::Progress;
use fhrd::repo::{Repository, snapshot};
use fhrd::store::Store;
use serde_json::Value;

use crate::compatibility::{copy_directory, is_rewrite_wanted};
use crate::independent;
use crate::program::{Place, finished, number};
use crate::trees::{Looks, assert_same, describe};
use held::{Counts, held};

/// What each snapshot holds, by its first tag.
type Expected = BTreeMap<String, BTreeMap<String, Looks>>;

/// The fixtures, and whether they are encrypted.
pub const FIXTURES: [(&str, bool); 2] = [("v1-release", false), ("v1-release-encrypted", true)];

/// Structures that both fixtures must have.
const NEEDED: [&str; 41] = [
    "blobs bundles",
    "blobs containers",
    "blobs index",
    "blobs indexes",
    "blobs marks/optional",
    "blobs marks/required",
    "blobs models",
    "blobs parity",
    "blobs reads",
    "blobs similarity",
    "blobs snapshots",
    "deltas of derivation 1 in mode 3",
    "deltas of derivation 1 in mode 7",
    "deltas of derivation 1 in mode 9",
    "deltas of derivation 11",
    "deltas of derivation 12",
    "deltas of derivation 13",
    "deltas of derivation 14",
    "deltas of derivation 5 in mode 10",
    "deltas of derivation 5 in mode 8",
    "entries whole",
    "entries with copies",
    "features derivations",
    "features listings",
    "features rebuilt",
    "features short-pages",
    "payloads of coded floats",
    "payloads of floats without zeros",
    "quarantined parts of containers",
    "quarantined whole containers",
    "marks cold",
    "marks parity",
    "marks quarantine",
    "marks writer-features",
    "references rebuilt",
    "segments with a short page",
    "snapshots with checkpoint",
    "snapshots with published",
    "snapshots with share",
    "tags kept",
    "tags published",
];
/// Structures of the encrypted one alone.
const NEEDED_ENCRYPTED: [&str; 3] = ["blobs key-copies", "blobs keys", "features key-copies"];

/// The file that is stored as what it unpacks to.
const REBUILT: &str = "tree/archive.tar.gz";

/// How the repository of a fixture is opened: with a key file if it is encrypted.
struct Opened {
    key_file: Option<PathBuf>,
}

impl Opened {
    fn new(directory: &Path, is_encrypted: bool) -> Self {
        Opened { key_file: is_encrypted.then(|| directory.join("key-file")) }
    }

    /// `fhrd` with the secret of the fixture, also for a repository to copy from.
    fn command(&self, place: &Place, directory: &Path, words: &[&str]) -> Command {
        let mut command = place.command(directory, words);
        command.env("XDG_STATE_HOME", place.path("state"));
        let secrets = ["PASSWORD", "PASSWORD_FILE", "PASSWORD_COMMAND", "KEY_FILE"];
        secrets.iter().for_each(|name| _ = command.env_remove(format!("FHRD_{name}")));
        if let Some(key_file) = &self.key_file {
            command.env("FHRD_KEY_FILE", key_file).env("FHRD_FROM_KEY_FILE", key_file);
        }
        command
    }

    fn repository(&self, store: Arc<dyn Store>) -> Repository {
        let secret = || Ok(Unlock::KeyFile(SecretBytes::new(fs::read(self.key_file.as_ref().unwrap()).unwrap())));
        Repository::open_with(store, &secret).unwrap()
    }
}

/// A copy of a fixture's repository, and what is known of it.
struct Fixture {
    place: Place,
    opened: Opened,
    directory: PathBuf,
}

impl Fixture {
    fn new(name: &str, is_encrypted: bool) -> Self {
        static WRITTEN: OnceLock<()> = OnceLock::new();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        WRITTEN.get_or_init(|| {
            if is_rewrite_wanted("release") {
                FIXTURES.iter().for_each(|(name, is_encrypted)| writer::write_fixture(&root.join(name), *is_encrypted));
            }
        });
        let (place, directory) = (Place::new(), root.join(name));
        copy_directory(&directory.join("repository"), &place.repository());
        Fixture { place, opened: Opened::new(&directory, is_encrypted), directory }
    }

    fn command(&self, words: &[&str]) -> Command {
        self.opened.command(&self.place, &self.place.path("."), words)
    }

    fn run(&self, words: &[&str]) -> Value {
        finished(self.command(words).output().unwrap(), &words.join(" "))
    }

    fn repository(&self) -> Repository {
        self.opened.repository(fhrd::store::open(self.place.repository()).unwrap())
    }

    fn json<T: serde::de::DeserializeOwned>(&self, name: &str) -> T {
        serde_json::from_slice(&fs::read(self.directory.join(name)).unwrap()).unwrap()
    }

    /// The ids of the snapshots by their first tags.
    fn ids(&self) -> BTreeMap<String, String> {
        let (snapshots, damaged) = snapshot::list(self.repository().store.as_ref()).unwrap();
        assert!(damaged.is_empty(), "{damaged:?}");
        snapshots.into_iter().map(|named| (named.snapshot.tags[0].clone(), named.id.to_string())).collect()
    }
}

/// What is below a directory, without the directory.
pub fn below(directory: &Path) -> BTreeMap<String, Looks> {
    let mut looks = describe(directory);
    looks.remove("");
    looks
}

#[test]
fn every_snapshot_of_the_release_restores_to_the_last_byte() {
    for (name, is_encrypted) in FIXTURES {
        let fixture = Fixture::new(name, is_encrypted);
        let (expected, ids) = (fixture.json::<Expected>("expected.json"), fixture.ids());
        assert_eq!(ids.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{name}");
        for (tag, id) in &ids {
            let target = fixture.place.path(tag);
            let report = fixture.run(&["restore", id, "--target", target.to_str().unwrap(), "--verify"]);
            assert_eq!((number(&report, "damaged"), number(&report, "problems")), (0, 0), "{name}, {tag}");
            assert_same(&expected[tag], &below(&target), &format!("{name}, {tag}"));
        }
    }
}

/// What an independent program restores: it knows no transform of rebuilt files.
fn without_rebuilt(mut looks: BTreeMap<String, Looks>) -> BTreeMap<String, Looks> {
    looks.retain(|name, _| !name.starts_with(REBUILT));
    looks
}

#[test]
fn an_independent_program_restores_the_release_but_for_rebuilt_files() {
    let Some(python) = independent::python() else { return };
    for (name, is_encrypted) in FIXTURES {
        let fixture = Fixture::new(name, is_encrypted);
        let expected = fixture.json::<Expected>("expected.json");
        let (repository, key_file) = (fixture.place.repository(), fixture.opened.key_file.as_ref());
        for (tag, id) in fixture.ids() {
            let target = fixture.place.path(&tag);
            let words = ["restore", repository.to_str().unwrap(), &id, target.to_str().unwrap()];
            let secret = key_file.map(|path| ["--key-file", path.to_str().unwrap()]);
            let output = independent::run(&python, &[&words[..], secret.as_ref().map_or(&[], |words| words)].concat());
            let (what, said) = (format!("{name}, {tag}"), String::from_utf8_lossy(&output.stderr));
            let has_rebuilt = expected[&tag].contains_key(REBUILT);
            assert_eq!(output.status.code(), Some(i32::from(has_rebuilt)), "{what}: {said}");
            assert_eq!(said.matches("not restored: ").count(), usize::from(has_rebuilt), "{what}: {said}");
            assert_same(&without_rebuilt(expected[&tag].clone()), &without_rebuilt(below(&target)), &what);
        }
    }
}

#[test]
fn the_release_has_what_it_is_there_to_cover() {
    for (name, is_encrypted) in FIXTURES {
        let fixture = Fixture::new(name, is_encrypted);
        let counts = held(&fixture.repository());
        assert_eq!(counts, fixture.json::<Counts>("counts.json"), "{name}");
        let needed = NEEDED.iter().chain(NEEDED_ENCRYPTED.iter().filter(|_| is_encrypted));
        let lacking: Vec<_> = needed.filter(|structure| !counts.contains_key(**structure)).collect();
        assert!(lacking.is_empty(), "{name}: {lacking:?} of {counts:#?}");
    }
}

#[test]
fn the_release_is_sound_and_its_quarantine_known() {
    for (name, is_encrypted) in FIXTURES {
        let fixture = Fixture::new(name, is_encrypted);
        let before = fhrd::repo::marks::Marks::read(fixture.repository().store.as_ref()).unwrap();
        assert_eq!(before.quarantine.containers().count(), 3, "{name}");
        let report =
            check(&fixture.repository(), &Config::default(), true, &Progress::default(), &Arc::default()).unwrap();
        assert_eq!((report.defects, report.newer_count), (Vec::new(), 0), "{name}");
        let status = fixture.command(&["status"]).output().unwrap();
        assert_eq!(status.status.code(), Some(20), "{name}: status knows that chunks were bad");
        let report = fixture.run(&["check", "--read-data"]);
        assert_eq!(number(&report, "defect_count"), 0, "{name}: {report}");
    }
}

#[test]
fn verbs_read_the_release() {
    for (name, is_encrypted) in FIXTURES {
        let fixture = Fixture::new(name, is_encrypted);
        let ids = fixture.ids();
        let (base, models) = (ids["base"].as_str(), ids["models"].as_str());
        for words in [
            vec!["ls", models],
            vec!["find", "*"],
            vec!["diff", base, models],
            vec!["models", models],
            vec!["runs"],
            vec!["steps", "tune"],
            vec!["best", "tune", "--metric", "loss"],
            vec!["published"],
            vec!["snapshots", "--group", "job"],
            vec!["stats"],
            vec!["stats", models],
            vec!["prune", "--dry-run"],
        ] {
            fixture.run(&words);
        }
        let archive = fixture.place.path("archive");
        let dump = fixture.command(&["dump", models, "--output", archive.to_str().unwrap()]).output().unwrap();
        assert!(dump.status.success(), "{name}: {}", String::from_utf8_lossy(&dump.stderr));
        assert!(fs::metadata(archive).unwrap().len() > 500_000, "{name}");
    }
}

#[test]
fn the_release_can_be_copied() {
    for (name, is_encrypted) in FIXTURES {
        let (fixture, other) = (Fixture::new(name, is_encrypted), Place::new());
        let from = fixture.place.repository();
        let run = |words: &[&str]| {
            finished(fixture.opened.command(&other, &other.path("."), words).output().unwrap(), &words.join(" "))
        };
        run(&["init"]);
        let report = run(&["copy", "--from-repo", from.to_str().unwrap()]);
        let listed = run(&["snapshots"]);
        let expected = fixture.json::<Expected>("expected.json");
        let tags: BTreeSet<&str> =
            listed.as_array().unwrap().iter().filter_map(|named| named["tags"][0].as_str()).collect();
        assert_eq!(tags, expected.keys().map(String::as_str).collect(), "{name}: {report}");
        for named in listed.as_array().unwrap() {
            let (id, tag) = (named["id"].as_str().unwrap(), named["tags"][0].as_str().unwrap());
            let target = other.path(tag);
            run(&["restore", id, "--target", target.to_str().unwrap()]);
            assert_same(&expected[tag], &below(&target), &format!("copied, {name}, {tag}"));
        }
    }
}
