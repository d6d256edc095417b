//! What is put below `keys/` and `key-changes/` by whoever may write into the store, and slots that do not arrive.

use std::sync::Arc;

use fhrd::crypto::{KeySlot, Keyring};
use fhrd::repo::keys;
use fhrd::store::{MemoryStore, Store};

use super::scene::{Gated, P, Verb, blobs_of, open, secret, store_with, two_slots};

/// Runs a change of P while a bad disk damages every new slot as soon as it is put.
fn with_bad_disk(verb: Verb) -> (Arc<MemoryStore>, fhrd::Result<()>) {
    let store = store_with(two_slots());
    let disk = store.clone();
    let damage = move |_| {
        for slot in disk.list("keys").unwrap().into_iter().filter(|slot| !two_slots().contains_key(&slot.name)) {
            disk.replace(&slot.name, b"damage");
        }
        Ok(())
    };
    let done = verb.run(Gated::new(&store, Box::new(damage)), P);
    (store, done)
}

#[test]
fn a_new_slot_that_does_not_open_replaces_none() {
    for verb in [Verb::Rotate, Verb::Passwd(3), Verb::Add(3)] {
        let (store, done) = with_bad_disk(verb);
        done.unwrap_err();
        open(store.clone(), P).unwrap();
        assert!(blobs_of(&store) == *two_slots(), "{verb:?} has left something");
    }
}

#[test]
fn slots_with_very_many_keys_keep_nobody_out() {
    let store = store_with(two_slots());
    let first = open(store.clone(), P).unwrap().encryption.unwrap();
    let mut many = Vec::new();
    for _ in 0..3 {
        let mut keyring = Keyring::clone(&first.keyring);
        (0..2500).for_each(|_| keyring.rotate().unwrap());
        let slot = KeySlot::new(&keyring, &secret(P), "many", first.suite).unwrap();
        many.push(keys::put(store.as_ref(), &slot).unwrap());
    }
    let encryption = open(store.clone(), P).unwrap().encryption.unwrap();
    assert_eq!(encryption.slots.len(), 2, "one of those with many keys fits");
    assert!(encryption.slots.contains(&first.slot) && encryption.slots.iter().any(|id| many.contains(id)));
    assert!(encryption.keyring.has_all_of(&first.keyring));
    Verb::Rotate.run(store.clone(), P).unwrap();
    let encryption = open(store.clone(), P).unwrap().encryption.unwrap();
    assert!(encryption.keyring.has_all_of(&first.keyring));
    assert_eq!(store.list("keys").unwrap().len(), 1);
}
