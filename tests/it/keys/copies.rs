//! Key slots are stored twice: each copy is enough, and none outlives the deletion of its slot.

use std::collections::BTreeSet;
use std::sync::Arc;

use fhrd::config::Config;
use fhrd::error::{ErrorKind, Result};
use fhrd::inspect::check::check;
use fhrd::keep::prune;
use fhrd::metrics::Progress;
use fhrd::repair::index::repair_index;
use fhrd::repair::quarantine::record;
use fhrd::repo::keys;
use fhrd::repo::marks::Marks;
use fhrd::store::{BlobKind, BlobPrefix, Durable, ListedBlob, MemoryStore, Store};

use super::beside::beside;
use super::scene::{Blobs, Gated, P, Q, Verb, blobs_of, killed, open, store_with, two_slots};
use crate::double::{Double, double_store, named, names_in};
use crate::interleavings::scene::no_grace;

/// What is wrong with a blob.
fn damages(bytes: &[u8]) -> Vec<Vec<u8>> {
    let flipped = |at: usize| {
        let mut bytes = bytes.to_vec();
        bytes[at] ^= 1;
        bytes
    };
    let len = bytes.len();
    vec![flipped(0), flipped(len / 2), flipped(len - 1), bytes[..len - 1].to_vec(), bytes[..40].to_vec(), Vec::new()]
}

fn ids(store: &MemoryStore, directory: &str) -> BTreeSet<String> {
    let names = names_in(store, directory).into_iter();
    names.map(|name| name.rsplit('/').next().unwrap().to_string()).collect()
}

fn defects(store: &Arc<MemoryStore>, user: u8) -> (u64, String) {
    let repository = open(store.clone(), user).unwrap();
    let report = check(&repository, &Config::default(), false, &Progress::default(), &Arc::default()).unwrap();
    (report.defect_count, report.notes.concat())
}

fn heal(store: &Arc<MemoryStore>, user: u8) -> u64 {
    repair_index(&open(store.clone(), user).unwrap(), &Arc::default()).unwrap().key_slots_healed
}

/// The id of the slot of a user.
fn slot_of(blobs: &Blobs, user: u8) -> String {
    open(store_with(blobs), user).unwrap().encryption.unwrap().slot
}

#[test]
fn every_slot_is_stored_twice_and_either_one_is_enough() {
    let blobs = two_slots();
    let store = store_with(blobs);
    assert_eq!(ids(&store, "keys"), ids(&store, "key-copies"));
    assert_eq!(defects(&store, P), (0, String::new()));
    for (name, bytes) in blobs.iter().filter(|(name, _)| name.starts_with("key")) {
        for damaged in damages(bytes) {
            let store = store_with(blobs);
            store.replace(&named(name), &damaged);
            for user in [P, Q] {
                open(store.clone(), user).unwrap_or_else(|error| panic!("{name}: {error}"));
            }
            assert_eq!(defects(&store, P).0, 1, "{name}");
            assert_eq!(heal(&store, Q), 1, "{name}");
            assert_eq!(store.get(&named(name), 1 << 20).unwrap(), *bytes);
            assert_eq!((defects(&store, P).0, heal(&store, P)), (0, 0), "{name}");
        }
    }
}

/// A store whose listings of key slots are empty.
struct WithoutSlots(Arc<MemoryStore>);

impl Double for WithoutSlots {
    fn inner(&self) -> &dyn Store {
        &self.0
    }

    fn list(&self, prefix: BlobPrefix) -> Result<Vec<ListedBlob>> {
        if prefix == BlobKind::Key.into() { Ok(Vec::new()) } else { self.0.list(prefix) }
    }
}

double_store!(WithoutSlots);

#[test]
fn a_copy_whose_slot_a_listing_lacks_stays() {
    let store = store_with(two_slots());
    let copies = ids(&store, "key-copies");
    let mut repository = open(store.clone(), P).unwrap();
    repository.store = Arc::new(WithoutSlots(store.clone()));
    keys::clean(&repository).unwrap();
    assert_eq!(ids(&store, "key-copies"), copies);
    // One whose slot is gone goes.
    store.delete(&named(&format!("keys/{}", copies.first().unwrap())), Durable::OnReturn).unwrap();
    keys::clean(&repository).unwrap();
    assert_eq!(ids(&store, "key-copies").len(), copies.len() - 1);
}

#[test]
fn a_check_of_all_data_heals_what_it_has_reported() {
    for directory in ["keys", "key-copies"] {
        let store = store_with(two_slots());
        let name = format!("{directory}/{}", slot_of(two_slots(), Q));
        store.replace(&named(&name), b"damage");
        let repository = open(store.clone(), P).unwrap();
        let before = Marks::read(repository.store.as_ref()).unwrap();
        let report = check(&repository, &Config::default(), true, &Progress::default(), &Arc::default()).unwrap();
        assert_eq!(report.defect_count, 1, "{name}");
        record(&repository, &before, &report).unwrap();
        assert_eq!(store.get(&named(&name), 1 << 20).unwrap(), two_slots()[&name]);
        assert_eq!(defects(&store, P).0, 0, "{name}");
    }
}

#[test]
fn two_damaged_copies_of_one_slot_cost_that_slot_alone() {
    let store = store_with(two_slots());
    let id = slot_of(two_slots(), P);
    for directory in ["keys", "key-copies"] {
        store.replace(&named(&format!("{directory}/{id}")), b"damage");
    }
    assert_eq!(open(store.clone(), P).map(drop).unwrap_err().kind(), ErrorKind::Locked);
    assert_eq!(defects(&store, Q).0, 2);
    assert_eq!(heal(&store, Q), 0);
    assert_eq!(ids(&store, "keys").len(), 2, "what cannot be read is not deleted");
}

#[test]
fn a_copy_without_its_slot_opens_nothing_and_is_garbage() {
    let id = slot_of(two_slots(), P);
    for act in 0..3 {
        let store = store_with(two_slots());
        // As a program does it that knows no copies.
        store.delete(&named(&format!("keys/{id}")), Durable::OnReturn).unwrap();
        assert_eq!(open(store.clone(), P).map(drop).unwrap_err().kind(), ErrorKind::Locked);
        let repository = open(store.clone(), Q).unwrap();
        match act {
            0 => drop(prune(&repository, &no_grace(), &Arc::default()).unwrap()),
            1 => drop(repair_index(&repository, &Arc::default()).unwrap()),
            _ => Verb::Add(3).run(store.clone(), Q).unwrap(),
        }
        assert_eq!(ids(&store, "keys"), ids(&store, "key-copies"), "{act}");
        assert!(open(store, P).is_err());
    }
}

#[test]
fn no_copy_outlives_its_slot_wherever_a_change_is_killed() {
    for verb in [Verb::Remove(Q), Verb::Passwd(3), Verb::Rotate, Verb::Add(3)] {
        for at in 0.. {
            let store = store_with(two_slots());
            let gated = Gated::new(&store, Box::new(move |call| if call >= at { Err(killed()) } else { Ok(()) }));
            let done = verb.run(gated.clone(), P);
            let (slots, copies) = (ids(&store, "keys"), ids(&store, "key-copies"));
            assert!(copies.is_subset(&slots), "{verb:?} killed at {at}");
            if gated.calls() <= at {
                done.unwrap();
                assert_eq!(slots, copies, "{verb:?}");
                break;
            }
        }
    }
}

#[test]
fn a_slot_that_is_removed_is_not_healed() {
    let id = slot_of(two_slots(), Q);
    for directory in ["keys", "key-copies"] {
        let store = store_with(two_slots());
        store.replace(&named(&format!("{directory}/{id}")), b"damage");
        let blobs = blobs_of(&store);
        for (first, second) in [(Verb::Remove(Q), Verb::Heal), (Verb::Heal, Verb::Remove(Q))] {
            for at in 0.. {
                let whole = beside(&blobs, (first, P), (second, P), at, u64::MAX, false);
                if whole.calls[0] <= at {
                    break;
                }
                for until in 0..=whole.calls[1] {
                    let outcome = beside(&blobs, (first, P), (second, P), at, until, false);
                    let is_removed = outcome.results[usize::from(second == Verb::Remove(Q))].is_ok();
                    let stays = ["keys", "key-copies"].map(|directory| ids(&outcome.store, directory).contains(&id));
                    let what = format!("{first:?} at {at}, {second:?} until {until}: {:?}", outcome.results);
                    assert!(!is_removed || stays == [false; 2], "{what}");
                }
            }
        }
    }
}

#[test]
fn check_says_what_is_stored_once_and_that_one_slot_is_few() {
    let store = store_with(two_slots());
    let id = slot_of(two_slots(), Q);
    store.delete(&named(&format!("key-copies/{id}")), Durable::OnReturn).unwrap();
    let (count, notes) = defects(&store, P);
    assert!(count == 0 && notes.contains(&format!("the key slot {} is stored once", &id[..8])), "{notes}");
    repair_index(&open(store.clone(), P).unwrap(), &Arc::default()).unwrap();
    assert_eq!(defects(&store, P), (0, String::new()));
    Verb::Remove(Q).run(store.clone(), P).unwrap();
    let (count, notes) = defects(&store, P);
    assert!(count == 0 && notes.contains("only one key slot") && !notes.contains("once"), "{notes}");
}
