//! What is put below `keys/` and `key-changes/` by whoever may write into the store, and slots that do not arrive.

use std::sync::Arc;

use fhrd::crypto::{CipherSuite, KeySlot, Keyring, SecretKey};
use fhrd::error::ErrorKind;
use fhrd::repo::keys;
use fhrd::store::{BlobKind, MemoryStore, Store};

use super::scene::{Gated, P, Q, Verb, blobs_of, open, secret, store_with, two_slots};
use crate::double::named;

/// Runs a change of P while a bad disk damages every new slot as soon as it is put.
fn with_bad_disk(verb: Verb) -> (Arc<MemoryStore>, fhrd::Result<()>) {
    let store = store_with(two_slots());
    let disk = store.clone();
    let damage = move |_| {
        for slot in disk
            .list(BlobKind::Key.into())
            .unwrap()
            .into_iter()
            .filter(|slot| !two_slots().contains_key(slot.name.as_str()))
        {
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
    assert_eq!(store.list(BlobKind::Key.into()).unwrap().len(), 1);
}

/// A slot that anybody can make who has none of the secrets: it can be read, and nobody opens it.
fn forged() -> Vec<u8> {
    let keyring = Keyring::new(SecretKey::random().unwrap(), [0; 32]).unwrap();
    KeySlot::new(&keyring, &secret(99), "forged", CipherSuite::Aes256Gcm).unwrap().encode().unwrap()
}

fn put_forged(store: &MemoryStore) -> String {
    let bytes = forged();
    let id = blake3::hash(&bytes).to_hex().to_string();
    store.replace(&named(&format!("keys/{id}")), &bytes);
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
    store.replace(&named(&name), &two_slots()[&name]);
    let repository = open(store.clone(), P).unwrap();
    let encryption = repository.encryption.as_ref().unwrap();
    assert_eq!((encryption.slots.len(), encryption.whole.len()), (2, 1));
    assert!(keys::remove_slot(&repository, &encryption.slot).is_err());
    keys::remove_slot(&repository, &old).unwrap();
    assert_eq!(open(store, P).unwrap().encryption.unwrap().keyring.generation_max(), 2);
}

/// Blobs that are no claims of this repository: rubbish, and headers that anybody can write.
fn rubbish() -> Vec<(&'static str, Vec<u8>)> {
    let header = |version: u8, generation: u8| {
        let mut header = b"FHRDSEAL".to_vec();
        header.extend([version, 0, 1, 0, generation, 0, 0, 0]);
        header.extend(100u64.to_le_bytes());
        header.extend([7; 32]);
        header.extend_from_slice(&blake3::hash(&header).as_bytes()[..8]);
        header.extend([1; 116]);
        header
    };
    vec![
        ("no claim", b"rubbish".to_vec()),
        ("nothing", Vec::new()),
        ("much", vec![1; 1 << 20]),
        ("an old key", header(1, 1)),
        ("a later key", header(1, 9)),
        ("a newer version", header(9, 1)),
    ]
}

/// As if everything but what is put from now on had been put two hours ago.
fn later(store: &Arc<MemoryStore>) -> Arc<Gated> {
    let old = blobs_of(store).into_keys().collect();
    Arc::new(Gated { inner: store.clone(), gate: Box::new(|_| Ok(())), calls: Default::default(), old })
}

#[test]
fn claims_that_do_not_open_stop_changes_for_an_hour_and_nothing_else() {
    for (what, bytes) in rubbish() {
        let store = store_with(two_slots());
        let claim = format!("key-changes/{:032x}", 7);
        store.replace(&named(&claim), &bytes);
        open(store.clone(), P).unwrap_or_else(|error| panic!("{what}: {error}"));
        let error = Verb::Add(3).run(store.clone(), P).unwrap_err();
        assert!(error.kind() == ErrorKind::Failed && error.to_string().contains(&claim), "{what}: {error}");
        assert_eq!(store.list(BlobKind::KeyChange.into()).unwrap().len(), 1, "{what}: the own claim stays");
        for verb in [Verb::Add(3), Verb::Passwd(3), Verb::Rotate, Verb::Remove(Q)] {
            let store = store_with(&blobs_of(&store));
            verb.run(later(&store), P).unwrap_or_else(|error| panic!("{what}: {verb:?}: {error}"));
            assert!(store.list(BlobKind::KeyChange.into()).unwrap().is_empty(), "{what}: {verb:?}");
        }
    }
}

#[test]
fn blobs_without_the_name_of_a_claim_or_a_slot_stop_nothing() {
    let store = store_with(two_slots());
    let own = open(store.clone(), Q).unwrap().encryption.unwrap().slot;
    let names = ["key-changes/readme.txt".into(), format!("key-changes/a/{:032x}", 1), format!("keys/a/{own}")];
    names.iter().for_each(|name| store.replace(&named(name), b"rubbish"));
    for verb in [Verb::Add(3), Verb::Passwd(4)] {
        verb.run(store.clone(), P).unwrap();
    }
    keys::remove_slot(&open(store.clone(), 4).unwrap(), &own).unwrap();
    Verb::Rotate.run(store.clone(), 4).unwrap();
    names.iter().for_each(|name| assert!(store.head(&named(name)).unwrap().is_some(), "{name}"));
}

#[test]
fn very_many_claims_cost_bounded_work_and_go_when_they_are_old() {
    let store = store_with(two_slots());
    let old = open(store.clone(), P).unwrap().encryption.unwrap().slot;
    Verb::Rotate.run(store.clone(), P).unwrap();
    // Beside an old slot that comes back, the claims that are not read may hold back the later key.
    let name = format!("keys/{old}");
    store.replace(&named(&name), &two_slots()[&name]);
    (0..300).for_each(|number| store.replace(&named(&format!("key-changes/{number:032x}")), b"rubbish"));
    let (gated, before) = (later(&store), blobs_of(&store));
    let keyring = open(gated.clone(), P).unwrap().encryption.unwrap().keyring;
    assert!(gated.calls() < 100, "{} calls", gated.calls());
    assert_eq!((keyring.latest().unwrap().generation, keyring.generation_max()), (1, 2));
    assert!(Verb::Add(3).run(store.clone(), P).is_err() && blobs_of(&store) == before, "the claims are young");
    let mut refused = 0;
    while let Err(error) = Verb::Rotate.run(later(&store), P) {
        refused += 1;
        assert!(refused < 6 && error.to_string().contains("key-changes/"), "{error}");
    }
    assert!(refused > 2 && store.list(BlobKind::KeyChange.into()).unwrap().is_empty());
    assert_eq!(open(store, P).unwrap().encryption.unwrap().keyring.latest().unwrap().generation, 3);
}
