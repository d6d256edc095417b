//! What somebody who can write to the store, but has no secret, puts below `keys/` and `key-changes/`.

use std::sync::{Arc, Mutex};

use fhrd::crypto::KeySlot;
use fhrd::repo::keys;
use fhrd::store::{MemoryStore, Store};

use super::scene::{Blobs, Gated, P, Q, Verb, blobs_of, open, secret, store_with, two_slots};

fn generation(store: &Arc<MemoryStore>) -> u32 {
    open(store.clone(), P).unwrap().encryption.unwrap().keyring.latest().unwrap().generation
}

/// The store after a rotation by P, with the slots and the claim of before and during it put back.
fn rotated_and_put_back(write: impl Fn(&Arc<MemoryStore>)) -> Arc<MemoryStore> {
    let store = store_with(two_slots());
    let mut returning: Blobs = blobs_of(&store).into_iter().filter(|(name, _)| name.starts_with("keys/")).collect();
    let claims = Arc::new(Mutex::new(Blobs::new()));
    let (seen, inner) = (claims.clone(), store.clone());
    let gate = Box::new(move |_| {
        let claims = blobs_of(&inner).into_iter().filter(|(name, _)| name.starts_with("key-changes/"));
        seen.lock().unwrap().extend(claims);
        Ok(())
    });
    Verb::Rotate.run(Gated::new(&store, gate), P).unwrap();
    write(&store);
    returning.append(&mut claims.lock().unwrap());
    assert!(returning.keys().any(|name| name.starts_with("key-changes/")), "a rotation claims");
    returning.iter().for_each(|(name, bytes)| store.replace(name, bytes));
    store
}

#[test]
fn an_old_slot_with_its_claim_brings_back_no_key_that_is_out_of_use() {
    for directory in ["snapshots", "index"] {
        let store = rotated_and_put_back(|store| {
            let name = format!("{directory}/{}", "5".repeat(64));
            open(store.clone(), P).unwrap().store.put_if_absent(&name, &[b"new"]).unwrap();
        });
        assert_eq!(generation(&store), 2, "{directory}");
    }
    // Nothing has the new key yet: it may be one whose slot is withdrawn, and does not seal.
    assert_eq!(generation(&rotated_and_put_back(|_| {})), 1);
}

#[test]
fn a_claim_that_does_not_open_keeps_nobody_out() {
    let store = rotated_and_put_back(|_| {});
    let name = store.list("key-changes").unwrap().remove(0).name;
    let sealed = store.get(&name, 1 << 20).unwrap();
    for position in 0..sealed.len().min(64) {
        let mut changed = sealed.clone();
        changed[position] ^= 0x55;
        store.replace(&name, &changed);
        assert_eq!(generation(&store), 2, "byte {position}");
    }
}

#[test]
fn slots_that_do_not_fit_into_one_keyring_do_not_lock() {
    let store = store_with(two_slots());
    let encryption = open(store.clone(), P).unwrap().encryption.unwrap();
    for _ in 0..2 {
        let mut keyring = fhrd::crypto::Keyring::clone(&encryption.keyring);
        (0..3000).for_each(|_| keyring.rotate().unwrap());
        let slot = KeySlot::new(&keyring, &secret(P), "many", encryption.suite).unwrap();
        keys::put(store.as_ref(), &slot).unwrap();
    }
    assert_eq!(generation(&store), 3001);
}

#[test]
fn the_only_slot_that_opens_stays_whatever_else_is_stored() {
    let store = store_with(two_slots());
    Verb::Remove(Q).run(store.clone(), P).unwrap();
    // A slot of another repository: nothing here shows that nobody has its secret.
    let foreign = store_with(two_slots());
    let keyring = open(foreign, Q).unwrap().encryption.unwrap();
    let slot = KeySlot::new(&keyring.keyring, &secret(9), "forged", keyring.suite).unwrap();
    keys::put(store.as_ref(), &slot).unwrap();
    let error = Verb::Remove(P).run(store.clone(), P).unwrap_err();
    assert!(error.to_string().contains("the only key slot that the given password or key file opens"), "{error}");
    assert!(open(store.clone(), P).is_ok());
    // With a second slot of one's own, the first may go.
    Verb::Add(P).run(store.clone(), P).unwrap();
    Verb::Remove(P).run(store.clone(), P).unwrap();
    assert!(open(store, P).is_ok());
}
