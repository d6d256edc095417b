//! What is put below `keys/` and `key-changes/` by whoever may write into the store, and slots that do not arrive.

use std::sync::Arc;

use fhrd::crypto::{CipherSuite, KeySlot, Keyring, SecretKey};
use fhrd::repo::keys;
use fhrd::store::{MemoryStore, Store};

use super::scene::{Gated, P, Q, Verb, blobs_of, open, secret, store_with, two_slots};

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

/// A slot that anybody can make who has none of the secrets: it can be read, and nobody opens it.
fn forged() -> Vec<u8> {
    let keyring = Keyring::new(SecretKey::random().unwrap(), [0; 32]).unwrap();
    KeySlot::new(&keyring, &secret(99), "forged", CipherSuite::Aes256Gcm).unwrap().encode().unwrap()
}

fn put_forged(store: &MemoryStore) -> String {
    let bytes = forged();
    let id = blake3::hash(&bytes).to_hex().to_string();
    store.replace(&format!("keys/{id}"), &bytes);
    id
}

#[test]
fn the_slot_in_use_stays_whatever_others_can_be_read() {
    let store = store_with(two_slots());
    let slot = |user| open(store.clone(), user).unwrap().encryption.unwrap().slot;
    let remove = |user, id: &str| keys::remove_slot(&open(store.clone(), user).unwrap(), id).map(drop);
    let forged = put_forged(&store);
    let own = slot(P);
    let error = remove(P, &own).unwrap_err().to_string();
    assert!(error.contains("opens no other key slot"), "{error}");
    // Whoever has another secret removes it, and the forged one goes, too.
    remove(Q, &own).unwrap();
    remove(Q, &forged).unwrap();
    assert!(open(store.clone(), P).is_err());
    assert!(remove(Q, &slot(Q)).is_err());
    // A second slot for the same secret is enough.
    Verb::Add(Q).run(store.clone(), Q).unwrap();
    remove(Q, &slot(Q)).unwrap();
    assert!(remove(Q, &slot(Q)).is_err());
}

#[test]
fn the_only_slot_with_the_latest_key_stays_beside_an_old_one() {
    let store = store_with(two_slots());
    let old = open(store.clone(), P).unwrap().encryption.unwrap().slot;
    Verb::Rotate.run(store.clone(), P).unwrap();
    let name = format!("keys/{old}");
    store.replace(&name, &two_slots()[&name]);
    let repository = open(store.clone(), P).unwrap();
    let encryption = repository.encryption.as_ref().unwrap();
    assert_eq!((encryption.slots.len(), encryption.whole.len()), (2, 1));
    assert!(keys::remove_slot(&repository, &encryption.slot).is_err());
    keys::remove_slot(&repository, &old).unwrap();
    assert_eq!(open(store, P).unwrap().encryption.unwrap().keyring.generation_max(), 2);
}
