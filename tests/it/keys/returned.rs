//! What a store can bring back, or put, without the secret: old key slots, and claims that hold back a later master key.

use std::sync::Arc;

use fhrd::Result;
use fhrd::backup::{BackupRequest, TreeSource, backup};
use fhrd::config::{Config, RepositoryConfig};
use fhrd::crypto::{CipherSuite, KeySlot, Unlock};
use fhrd::error::ErrorKind;
use fhrd::keep::{forget, prune};
use fhrd::metrics::Progress;
use fhrd::repair::index::repair_index;
use fhrd::repo::paths::cache_directory;
use fhrd::repo::{Repository, keys, snapshot};
use fhrd::store::{BlobKind, FaultyStore, InjectedFault, MemoryStore, SealedStore, Store, StoreExt};

use super::scene::{Gated, P, Verb, blobs_of, open, secret};
use crate::double::named;
use crate::interleavings::scene::no_grace;

/// Puts back a slot, and a claim of whoever has its keys on the slot `later`. Returns the name of the claim.
pub fn bring_back(store: &Arc<dyn Store>, old: (&str, &[u8]), later: &str, unlock: &Unlock) -> String {
    let (old, bytes) = old;
    store.put_if_absent(&named(&format!("keys/{old}")), &[bytes]).unwrap();
    let slot = |id: &str| {
        let name = format!("keys/{id}");
        KeySlot::parse(&name, &store.get(&named(&name), 1 << 20).unwrap()).unwrap()
    };
    let keyring = slot(old).open("an old slot", unlock).unwrap().unwrap();
    let sealed = SealedStore::new(store.clone(), CipherSuite::Aes256Gcm, Arc::new(keyring));
    std::mem::forget(keys::KeyChange::begin(&sealed, &[old.into()], Some(&slot(later))).unwrap());
    store.list(BlobKind::KeyChange.into()).unwrap().remove(0).name.into()
}

fn back_up(repository: &Repository, source: &std::path::Path) -> Result<String> {
    let mut config = Config::default();
    config.pipeline.workers = 1;
    let request = BackupRequest::new(TreeSource::new(vec![source.into()], "test"));
    Ok(backup(repository, &config, &request, &Progress::default(), &Arc::default())?.snapshot)
}

type Act = (&'static str, fn(&Repository, &std::path::Path) -> Result<()>);

const WRITES: [Act; 5] = [
    ("backup", |repository, source| back_up(repository, source).map(drop)),
    ("forget", |repository, _| {
        let latest = snapshot::find(repository.store.as_ref(), "latest")?;
        forget(repository, &[latest.id]).map(drop)
    }),
    ("prune", |repository, _| prune(repository, &no_grace(), &Arc::default()).map(drop)),
    ("repair index", |repository, _| repair_index(repository, &Arc::default()).map(drop)),
    ("upgrade", |repository, _| fhrd::repo::features::upgrade(repository, false).map(drop)),
];

#[test]
fn an_old_slot_and_an_old_claim_do_not_bring_an_old_master_key_into_use() {
    let source = tempfile::tempdir().unwrap();
    std::fs::write(source.path().join("file"), b"text").unwrap();
    let inner = Arc::new(MemoryStore::new());
    let config = RepositoryConfig::default();
    // Rotated under another location: what is opened below is not remembered.
    let gated = Gated::new(&inner, Box::new(|_| Ok(())));
    let first = Repository::init_encrypted(gated.clone(), &config, None, &secret(P), "p").unwrap();
    let _ = std::fs::remove_dir_all(cache_directory(&first).unwrap());
    let old = first.encryption.clone().unwrap().slot;
    let old_bytes = inner.get(&named(&format!("keys/{old}")), 1 << 20).unwrap();
    Verb::Rotate.run(gated, P).unwrap();
    let store: Arc<dyn Store> = inner.clone();
    back_up(&open(store.clone(), P).unwrap(), source.path()).unwrap();
    let later = open(store.clone(), P).unwrap().encryption.unwrap().slot;
    let claim = bring_back(&store, (&old, &old_bytes), &later, &secret(P));
    let repository = open(store.clone(), P).unwrap();
    snapshot::find(repository.store.as_ref(), "latest").unwrap();
    let before = blobs_of(&inner);
    for (act, run) in WRITES {
        let error = run(&repository, source.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Locked, "{act}: {error}");
        let text = error.to_string();
        assert!(text.contains(&claim) && text.contains(&old) && text.contains("fhrd key rotate"), "{act}: {text}");
        assert!(blobs_of(&inner) == before, "{act} has written");
    }
    Verb::Rotate.run(store.clone(), P).unwrap();
    let repository = open(store.clone(), P).unwrap();
    assert_eq!(repository.encryption.as_ref().unwrap().keyring.latest().unwrap().generation, 3);
    assert_eq!(inner.list(BlobKind::Key.into()).unwrap().len(), 1);
    back_up(&repository, source.path()).unwrap();
    let _ = std::fs::remove_dir_all(cache_directory(&repository).unwrap());
}

#[test]
fn a_store_that_fails_is_no_proof_that_an_old_key_may_seal() {
    let inner = Arc::new(MemoryStore::new());
    let config = RepositoryConfig::default();
    let first = Repository::init_encrypted(inner.clone(), &config, None, &secret(P), "p").unwrap();
    let old = first.encryption.unwrap().slot;
    let old_bytes = inner.get(&named(&format!("keys/{old}")), 1 << 20).unwrap();
    let gated = Gated::new(&inner, Box::new(|_| Ok(())));
    Verb::Rotate.run(gated, P).unwrap();
    let store: Arc<dyn Store> = inner.clone();
    let later = open(store.clone(), P).unwrap().encryption.unwrap().slot;
    bring_back(&store, (&old, &old_bytes), &later, &secret(P));
    let faulty = |operation| {
        Arc::new(FaultyStore::new(inner.clone(), InjectedFault::PowerCut { operation, took_effect: false }))
    };
    let whole = faulty(usize::MAX as _);
    let repository = open(whole.clone(), P).unwrap();
    let opening = whole.operations();
    repository.check_writable().unwrap();
    let repository = open(faulty(opening), P).unwrap();
    assert!(repository.encryption.as_ref().unwrap().held_back.is_some());
    let error = repository.check_writable().unwrap_err();
    assert!(error.kind() != ErrorKind::Locked, "{error}");
}
