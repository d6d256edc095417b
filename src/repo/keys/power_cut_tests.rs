//! Power cuts while keys change: what the verbs do to a local repository is recorded, and the record is cut after each
//! change, with what was not synced dropped, kept in any choice, or torn ([`crate::store::disk::replay`]).
//!
//! In each state whoever could open the repository before and after the verb opens it and reads everything, somebody
//! always does, what was reported holds, and the next change of keys goes on.

use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use super::{add, heal_slots, passwd, remove_slot, rotate};
use crate::config::RepositoryConfig;
use crate::crypto::{SecretBytes, Unlock};
use crate::error::{ErrorKind, Result};
use crate::repo::Repository;
use crate::store::disk::journal::{Entry, Journal};
use crate::store::disk::replay::{Blobs, Replay, numbers, store_with};
use crate::store::{BlobKind, BlobName, Durable, Store, StoreExt, named};

/// States after one change that are tried, at most.
const STATES_MAX: usize = 256;
/// Key files of users.
const USERS: [u8; 4] = [1, 2, 3, 4];

/// What a verb has reported.
#[derive(Debug, Clone, Default)]
struct Moment {
    verb: &'static str,
    /// Changes so far.
    at: usize,
    /// Who opens the repository; nobody else does.
    opens: BTreeSet<u8>,
    /// Notes that are stored.
    notes: Vec<BlobName>,
    /// The generation that seals.
    generation: u32,
}

fn unlock(user: u8) -> Unlock {
    Unlock::KeyFile(SecretBytes::new(vec![user; 32]))
}

fn open(store: &Arc<dyn Store>, user: u8) -> Result<Repository> {
    Repository::open_with(store.clone(), &|| Ok(unlock(user)))
}

fn generation(repository: &Repository) -> u32 {
    repository.encryption.as_ref().unwrap().keyring.latest().unwrap().generation
}

struct Scene {
    _directory: tempfile::TempDir,
    root: PathBuf,
    journal: Arc<Journal>,
    store: Arc<dyn Store>,
    moments: Vec<Moment>,
}

impl Scene {
    /// A new repository of user 1.
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("repository");
        let journal = Journal::of(&root);
        let store = crate::store::create(&root).unwrap();
        let nothing = Moment { verb: "nothing", at: journal.count(), ..Moment::default() };
        Repository::init_encrypted(store.clone(), &RepositoryConfig::default(), None, &unlock(1), "first").unwrap();
        let mut scene = Scene { _directory: directory, root, journal, store, moments: vec![nothing] };
        scene.report("init", [1]);
        scene
    }

    /// The verb has reported success, and these users open the repository. Then the first of them stores a note.
    fn report<const N: usize>(&mut self, verb: &'static str, opens: [u8; N]) {
        let repository = self.open(opens[0]);
        let mut moment = Moment { verb, at: self.journal.count(), generation: generation(&repository), ..self.last() };
        moment.opens = opens.into();
        self.moments.push(moment.clone());
        let name = named(&format!("notes/{}", self.moments.len()));
        repository.store.put_if_absent(&name, &[b"note"]).unwrap();
        moment.notes.push(name);
        self.moments.push(Moment { verb: "note", at: self.journal.count(), ..moment });
    }

    fn last(&self) -> Moment {
        self.moments.last().unwrap().clone()
    }

    fn open(&self, user: u8) -> Repository {
        open(&self.store, user).unwrap()
    }

    fn slot(&self, user: u8) -> String {
        self.open(user).encryption.unwrap().slot
    }

    /// Cuts the record after each change, as if the changes had been what `alter` makes of them.
    fn try_altered(&self, alter: impl Fn(&Entry) -> Option<Entry>) -> usize {
        self.journal.end();
        let (mut replay, mut seen, mut random) = (Replay::new(&self.root), HashSet::new(), numbers());
        for (at, entry) in (1..).zip(&self.journal.entries()) {
            alter(entry).iter().for_each(|entry| replay.apply(entry));
            let Some(last) = self.moments.iter().rposition(|moment| moment.at <= at) else { continue };
            let before = &self.moments[last];
            // At the moment of the report nothing of the next verb is there.
            let after = self.moments.get(last + 1).filter(|_| at > before.at);
            for blobs in replay.states(STATES_MAX, &mut random) {
                let digest = blake3::hash(format!("{blobs:?}").as_bytes());
                if seen.insert((last, after.is_some(), digest)) {
                    let verb = after.map_or("the end", |after| after.verb);
                    examine(&blobs, before, after, &format!("change {at}, after {}, in {verb}", before.verb));
                }
            }
        }
        seen.len()
    }
}

/// Looks at a state. `before` was reported; the verb that would report `after` was running, if any.
fn examine(blobs: &Blobs, before: &Moment, after: Option<&Moment>, what: &str) {
    let store = store_with(blobs);
    if before.opens.is_empty() && !blobs.contains_key("config") && !blobs.contains_key("config-copy") {
        let kind = open(&store, 1).map(drop).unwrap_err().kind();
        assert_eq!(kind, ErrorKind::NoRepository, "{what}");
        return;
    }
    let opens: BTreeSet<u8> = USERS.into_iter().filter(|user| open(&store, *user).is_ok()).collect();
    let (old, new) = (&before.opens, &after.unwrap_or(before).opens);
    assert!(!opens.is_empty(), "{what}: nobody opens it");
    assert!(opens.is_subset(&(old | new)), "{what}: {opens:?} open it");
    assert!((old & new).is_subset(&opens), "{what}: only {opens:?} open it");
    for user in &opens {
        let repository = open(&store, *user).unwrap();
        let now = generation(&repository);
        assert!((before.generation..=after.unwrap_or(before).generation).contains(&now), "{what}: generation {now}");
        let whole = |user: &u8| old.contains(user) && new.contains(user) || after.is_none();
        for note in before.notes.iter().filter(|_| whole(user)) {
            assert_eq!(repository.store.get(note, 100).unwrap(), b"note", "{what}: user {user}");
        }
    }
    // What a cut leaves is finished later: its claim is dead then.
    let user = (old & new).intersection(&opens).chain(&opens).next().copied().unwrap();
    for claim in store.list(BlobKind::KeyChange.into()).unwrap() {
        store.delete(&claim.name, Durable::OnReturn).unwrap();
    }
    heal_slots(&open(&store, user).unwrap()).unwrap_or_else(|error| panic!("{what}: {error}"));
    rotate(&open(&store, user).unwrap(), &unlock(user)).unwrap_or_else(|error| panic!("{what}: {error}"));
    let repository = open(&store, user).unwrap();
    for note in &before.notes {
        assert_eq!(repository.store.get(note, 100).unwrap(), b"note", "{what}, rotated");
    }
}

/// All verbs that change keys, one after the other.
fn all_verbs() -> Result<Scene> {
    let mut scene = Scene::new();
    add(&scene.open(1), &unlock(2), "second")?;
    scene.report("add", [1, 2]);
    passwd(&scene.open(2), &unlock(3), "third")?;
    scene.report("passwd", [1, 3]);
    add(&scene.open(1), &unlock(4), "fourth")?;
    scene.report("add", [1, 3, 4]);
    let slot = scene.slot(3);
    remove_slot(&scene.open(1), &slot)?;
    scene.report("remove", [1, 4]);
    rotate(&scene.open(1), &unlock(1))?;
    scene.report("rotate", [1]);
    passwd(&scene.open(1), &unlock(2), "again")?;
    scene.report("passwd", [2]);
    rotate(&scene.open(2), &unlock(2))?;
    scene.report("rotate", [2]);
    Ok(scene)
}

#[test]
fn a_change_of_keys_that_is_cut_anywhere_locks_nobody_out() -> Result<()> {
    let tried = all_verbs()?.try_altered(|entry| Some(entry.clone()));
    assert!(tried > 60, "{tried}");
    Ok(())
}

#[test]
fn the_search_finds_a_slot_that_is_put_or_removed_without_a_sync() -> Result<()> {
    let scene = all_verbs()?;
    let keys = scene.root.join("keys");
    let finds_fault = |alter: &dyn Fn(&Entry) -> Option<Entry>| {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| scene.try_altered(alter))).is_err()
    };
    // Without the syncs after names were given, or after they were taken away.
    for loses_removals in [false, true] {
        let was_removal = std::cell::Cell::new(false);
        let no_sync = |entry: &Entry| match entry {
            Entry::Synced(path) if *path == keys => Some(entry.clone()).filter(|_| was_removal.get() != loses_removals),
            Entry::Removed(path) | Entry::Named(path, ..) if path.starts_with(&keys) => {
                was_removal.set(matches!(entry, Entry::Removed(_)));
                Some(entry.clone())
            }
            entry => Some(entry.clone()),
        };
        assert!(finds_fault(&no_sync), "{loses_removals}");
    }
    let no_content = |entry: &Entry| match entry {
        Entry::Named(path, content, _) if path.starts_with(&keys) => {
            Some(Entry::Named(path.clone(), content.clone(), false))
        }
        entry => Some(entry.clone()),
    };
    assert!(finds_fault(&no_content));
    Ok(())
}
