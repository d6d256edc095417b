//! Power cuts while a repository is created, its configuration is healed, and marks are put and deleted: the record is
//! cut after each change, with what was not synced dropped, kept in any choice, or torn
//! ([`crate::store::disk::replay`]).
//!
//! In each state the repository opens, or `init` creates it. What was reported is there.

use std::collections::HashSet;
use std::sync::Arc;

use super::Repository;
use super::marks::{Mark, MarkKind, Marks};
use crate::config::RepositoryConfig;
use crate::crypto::{SecretBytes, Unlock};
use crate::error::{ErrorKind, Result};
use crate::store::disk::journal::Journal;
use crate::store::disk::replay::{Blobs, Replay, numbers, store_with};
use crate::store::{BlobName, Durable, PutOptions, Store, StoreExt, named};

/// States after one change that are tried, at most.
const STATES_MAX: usize = 256;

fn unlock() -> Unlock {
    Unlock::KeyFile(SecretBytes::new(vec![1; 32]))
}

fn init(store: Arc<dyn Store>, is_encrypted: bool) -> Result<Repository> {
    let config = RepositoryConfig::default();
    if is_encrypted {
        Repository::init_encrypted(store, &config, None, &unlock(), "first")
    } else {
        Repository::init(store, &config)
    }
}

fn on_disk(blobs: &Blobs, directory: &std::path::Path) -> Arc<dyn Store> {
    for (name, bytes) in blobs {
        let path = directory.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes.as_slice()).unwrap();
    }
    crate::store::open(directory).unwrap()
}

/// A repository on a disk whose changes are recorded, and what was reported after how many of them.
struct Scene {
    _directory: tempfile::TempDir,
    root: std::path::PathBuf,
    journal: Arc<Journal>,
    repository: Repository,
    /// The reason of the mark that was put last, if it is still there.
    moments: Vec<(usize, Option<&'static str>)>,
}

impl Scene {
    fn new(is_encrypted: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("repository");
        let journal = Journal::of(&root);
        let repository = init(crate::store::create(&root).unwrap(), is_encrypted).unwrap();
        let mut scene = Scene { _directory: directory, root, journal, repository, moments: Vec::new() };
        scene.report(None);
        scene
    }

    fn report(&mut self, mark: Option<&'static str>) {
        self.moments.push((self.journal.count(), mark));
    }

    fn put_mark(&mut self, reason: &'static str) -> Vec<BlobName> {
        let names = Mark::new(MarkKind::ReadOnly, reason).save(self.repository.store.as_ref()).unwrap();
        self.report(Some(reason));
        names
    }

    fn delete(&mut self, names: &[BlobName]) {
        names.iter().for_each(|name| self.repository.store.delete(name, Durable::OnReturn).unwrap());
        self.report(None);
    }

    /// Cuts the record after each change. Returns the number of states.
    fn try_all(&self) -> usize {
        self.journal.end();
        let (mut replay, mut seen, mut random) = (Replay::new(&self.root), HashSet::new(), numbers());
        for (at, entry) in (1..).zip(&self.journal.entries()) {
            replay.apply(entry);
            let last = self.moments.iter().rposition(|moment| moment.0 <= at);
            for blobs in replay.states(STATES_MAX, &mut random) {
                if seen.insert((last, blake3::hash(format!("{blobs:?}").as_bytes()))) {
                    self.examine(&blobs, last, at, &format!("change {at}, {entry:.100?}"));
                }
            }
        }
        seen.len()
    }

    /// Looks at a state after change number `at`, whose last report has number `last`.
    fn examine(&self, blobs: &Blobs, last: Option<usize>, at: usize, what: &str) {
        let (store, is_encrypted) = (store_with(blobs), self.repository.encryption.is_some());
        let directory = tempfile::tempdir().unwrap();
        let repository = match Repository::open_with(store.clone(), &|| Ok(unlock())) {
            Err(error) if last.is_none() && error.kind() == ErrorKind::NoRepository => {
                let store = on_disk(blobs, directory.path());
                init(store.clone(), is_encrypted).unwrap_or_else(|error| panic!("{what}: {error}"));
                Repository::open_with(store, &|| Ok(unlock())).unwrap()
            }
            opened => {
                let repository = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_eq!(repository.id, self.repository.id, "{what}");
                repository
            }
        };
        repository.heal_config().unwrap();
        super::keys::heal_slots(&repository).unwrap();
        assert!(repository.config_defects().is_empty(), "{what}");
        repository.store.put_if_absent(&named("notes/a"), &[b"note"]).unwrap();
        assert_eq!(repository.store.get(&named("notes/a"), 10).unwrap(), b"note", "{what}");
        let marks = Marks::read(repository.store.as_ref()).unwrap();
        assert!(marks.damaged.is_empty(), "{what}: {:?}", marks.damaged);
        let found = marks.check_writable().err().map(|error| error.to_string());
        let allowed = |moment: Option<&(usize, Option<&str>)>| {
            let mark = moment.and_then(|(_, mark)| *mark);
            mark.map_or(found.is_none(), |mark| found.as_ref().is_some_and(|found| found.contains(mark)))
        };
        let (before, after) = (last.and_then(|last| self.moments.get(last)), last.map_or(0, |last| last + 1));
        let is_running = before.is_none_or(|before| before.0 < at);
        assert!(allowed(before) || is_running && allowed(self.moments.get(after)), "{what}: {found:?}");
    }
}

#[test]
fn an_init_that_is_cut_anywhere_is_complete_or_can_be_repeated() {
    for is_encrypted in [false, true] {
        let tried = Scene::new(is_encrypted).try_all();
        assert!(tried > 3, "{tried}");
    }
}

#[test]
fn marks_that_are_put_and_deleted_and_a_healed_configuration_survive_a_power_cut() {
    for is_encrypted in [false, true] {
        let mut scene = Scene::new(is_encrypted);
        let first = scene.put_mark("the first reason");
        scene.delete(&first);
        let second = scene.put_mark("the second reason");
        for name in ["config", "config-copy"] {
            scene.repository.store.overwrite(&named(name), &[b"damaged"], PutOptions::default()).unwrap();
            scene.repository.heal_config().unwrap();
        }
        scene.report(Some("the second reason"));
        scene.delete(&second);
        let tried = scene.try_all();
        assert!(tried > 12, "{tried}");
    }
}
