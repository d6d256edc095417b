//! A blob that names a generation of the master key which nobody has. Anybody who can put can write its header, and make
//! its name fit. It costs only itself.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use fhrd::Result;
use fhrd::config::RepositoryConfig;
use fhrd::error::ErrorKind;
use fhrd::inspect::check::{ReadData, check};
use fhrd::metrics::Progress;
use fhrd::repo::{Repository, keys, snapshot};
use fhrd::restore::restore;
use fhrd::store::{Durable, MemoryStore, Store};

use super::older::{ACTS, back_up, clear_cache, config};
use super::scene::{Blobs, P, Q, blobs_of, open, secret, store_with};
use crate::double::named;
use crate::trees::{Random, assert_same, describe};

/// A blob that seems to be sealed by a later key.
pub fn forged() -> Vec<u8> {
    let mut bytes = b"FHRDSEAL".to_vec();
    bytes.extend([1, 0, 1, 0, 9, 0, 0, 0]);
    bytes.extend(100u64.to_le_bytes());
    bytes.extend([7; 32]);
    bytes.extend_from_slice(&blake3::hash(&bytes).as_bytes()[..8]);
    bytes.extend([1; 116]);
    bytes
}

/// Names that such a blob may have.
fn names() -> Vec<String> {
    let hash = blake3::hash(&forged()).to_hex().to_string();
    let digits = &hash[..32];
    vec![
        format!("containers/{}/{hash}", &hash[..2]),
        format!("index/{hash}"),
        format!("snapshots/{hash}"),
        format!("bundles/{hash}"),
        format!("models/{hash}"),
        format!("marks/optional/{hash}"),
        format!("intents/{digits}"),
        format!("pending/{digits}"),
        format!("key-changes/{digits}"),
    ]
}

/// A repository with one slot and two snapshots of `source`.
fn repository(source: &Path) -> Blobs {
    let inner = Arc::new(MemoryStore::new());
    let config = RepositoryConfig::default();
    let repository = Repository::init_encrypted(inner.clone(), &config, None, &secret(P), "p").unwrap();
    let mut random = Random(5);
    for version in 0..2 {
        fs::write(source.join(format!("noise-{version}")), random.bytes(200_000)).unwrap();
        back_up(&repository, source).unwrap();
    }
    clear_cache(&repository);
    blobs_of(&inner)
}

/// Restores the latest snapshot that the blobs of `before` have.
fn restored(store: &Arc<MemoryStore>, before: &Blobs, source: &Path, what: &str) -> Result<()> {
    let repository = open(store.clone(), P)?;
    let (mut snapshots, _) = snapshot::list(repository.store.as_ref())?;
    snapshots.retain(|named| before.contains_key(&format!("snapshots/{}", named.id)));
    let latest = snapshots.into_iter().max_by_key(|named| named.snapshot.time_ns).unwrap();
    let target = tempfile::tempdir().unwrap();
    let report = restore(&repository, &config(), &latest, target.path(), &Progress::default(), &Arc::default())?;
    assert_eq!((report.problems, report.damaged), (0, 0), "{what}");
    let found = target.path().join(source.strip_prefix("/").unwrap());
    assert_same(&describe(source), &describe(&found), what);
    clear_cache(&repository);
    Ok(())
}

#[test]
fn a_blob_that_names_a_key_nobody_has_costs_only_itself() {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("source");
    fs::create_dir(&source).unwrap();
    let before = repository(&source);
    for name in names() {
        let is_snapshot = name.starts_with("snapshots/");
        for (act, run) in ACTS {
            // These look at all snapshots, and say so of the forged one.
            if is_snapshot && ["forget and prune", "copy"].contains(&act) {
                continue;
            }
            let what = format!("{act}, {name} is forged");
            let store = store_with(&before);
            store.replace(&named(&name), &forged());
            let opened = open(store.clone(), P).unwrap();
            clear_cache(&opened);
            let result = run(&opened, &source);
            match &result {
                Ok(()) => assert!(!(is_snapshot && act == "prune"), "{what}: {result:?}"),
                // A prune does not know what others need, and nobody which containers an unknown prune deletes.
                Err(error) => {
                    let may_stop = act.contains("prune") || name.starts_with("pending/");
                    assert!(may_stop && error.kind() == ErrorKind::Unsupported, "{what}: {:?} {error}", error.kind());
                }
            }
            let after = blobs_of(&store);
            let is_lasting = ["containers/", "snapshots/"].iter().any(|prefix| name.starts_with(prefix));
            assert!(!is_lasting || after.contains_key(&name), "{what}: deleted");
            assert!(!after.keys().any(|other| other.starts_with("marks/") && *other != name), "{what}: a mark");
            restored(&store, &before, &source, &what).unwrap_or_else(|error| panic!("{what}: {error}"));
        }
        let store = store_with(&before);
        store.replace(&named(&name), &forged());
        let opened = open(store.clone(), P).unwrap();
        let report = check(&opened, &config(), ReadData::Everything, &Progress::default(), &Arc::default()).unwrap();
        let is_read = ["containers/", "index/", "snapshots/"].iter().any(|prefix| name.starts_with(prefix));
        assert!(!is_read || report.newer_count > 0, "{name}: {report:?}");
        // Another user may have that key.
        keys::add(&opened, &secret(Q), "q").map(drop).unwrap_or_default();
        if is_read {
            let error = read_all(&open(store, P).unwrap()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Locked, "{name}: {error}");
        }
        clear_cache(&opened);
    }
}

/// Reads all.
fn read_all(repository: &Repository) -> Result<()> {
    check(repository, &config(), ReadData::Everything, &Progress::default(), &Arc::default()).map(drop)
}

#[test]
fn no_new_key_gets_the_number_of_one_that_a_blob_names() {
    let inner = Arc::new(MemoryStore::new());
    let config = RepositoryConfig::default();
    let repository = Repository::init_encrypted(inner.clone(), &config, None, &secret(P), "p").unwrap();
    let name = names().swap_remove(2);
    inner.replace(&named(&name), &forged());
    let error = keys::rotate(&repository, &secret(P)).map(drop).unwrap_err();
    assert!(error.kind() == ErrorKind::Locked && error.to_string().contains(&name), "{error}");
    inner.delete(&named(&name), Durable::OnReturn).unwrap();
    keys::rotate(&repository, &secret(P)).unwrap();
    clear_cache(&repository);
}
