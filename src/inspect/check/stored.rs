//! A check that needs no key: every blob whose name is the hash of what is stored is that.
//!
//! It proves that a store still has the bytes it was given, but not that no blob is missing, which only snapshots tell.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

use super::defect_log::{DefectLog, damage};
use crate::error::{Error, ErrorKind, Result};
use crate::metrics::Progress;
use crate::repo::check_configuration;
use crate::repo::container::blob_name;
use crate::store::{BlobPrefix, ListedBlob, ParityFound, ParityStore, Store, StoreExt};
use crate::types::{ContainerId, hex};

/// Result of [`check_stored`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct StoredReport {
    /// Blobs that are what their names say.
    pub blobs: u64,
    /// Their stored bytes.
    pub bytes: u64,
    /// Blobs whose names say nothing about their bytes, such as intents.
    pub unnamed: u64,
    /// Damaged blobs.
    pub defect_count: u64,
    /// The first of them, with the reason.
    pub defects: Vec<String>,
}

/// Reads every blob of a store, and compares it with its name. `progress` counts blobs as files.
///
/// # Errors
/// Errors of the store that are not damage, and [`Error::Interrupted`] once `stop` is set.
pub fn check_stored(store: &Arc<dyn Store>, progress: &Progress, stop: &AtomicBool) -> Result<StoredReport> {
    let check_stop = || if stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) };
    let (mut report, mut log) = (StoredReport::default(), DefectLog::default());
    let listed = store.list(BlobPrefix::All)?;
    progress.files_total.add(listed.len() as u64);
    progress.bytes_total.add(listed.iter().map(|blob| blob.len).sum());
    for blob in listed {
        check_stop()?;
        match check_blob(store, &blob, &check_stop) {
            Ok(true) => {
                report.blobs += 1;
                report.bytes += blob.len;
            }
            Ok(false) => report.unnamed += 1,
            // Somebody has deleted it since.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => log.damaged_blob(&blob.name, &damage(error)?),
        }
        progress.files_done.add(1);
        progress.bytes_read.add(blob.len);
    }
    let defect_count = log.count();
    Ok(StoredReport { defect_count, defects: log.into_texts().0, ..report })
}

/// Whether the name of a blob says what its bytes are, which they then are.
fn check_blob(store: &Arc<dyn Store>, blob: &ListedBlob, check_stop: &dyn Fn() -> Result<()>) -> Result<bool> {
    if check_configuration(store.as_ref(), &blob.name)? {
        return Ok(true);
    }
    if let Some(container) = blob.name.protected() {
        let name = blob_name(&ContainerId(container));
        return match ParityStore::new(store.clone()).inspect(&name)? {
            ParityFound::Damaged(error) => Err(error),
            ParityFound::Absent => Err(Error::BlobMissing { what: blob.name.to_string() }),
            // Nothing says that it is damaged.
            ParityFound::TooLarge(_) => Ok(false),
            ParityFound::Whole => Ok(true),
        };
    }
    let last = blob.name.last();
    if last.len() != 64 || !last.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return Ok(false);
    }
    let got = hex(&store.stored_hash(&blob.name, check_stop)?);
    if got == last {
        return Ok(true);
    }
    Err(Error::ChecksumMismatch { what: blob.name.to_string(), offset: 0, expected: last.into(), got })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RepositoryConfig;
    use crate::crypto::{SecretBytes, Unlock};
    use crate::repo::Repository;
    use crate::store::{BlobKind, BlobName, MemoryStore, named};

    fn check(store: &Arc<MemoryStore>) -> StoredReport {
        let store: Arc<dyn Store> = store.clone();
        check_stored(&store, &Progress::default(), &AtomicBool::new(false)).unwrap()
    }

    #[test]
    fn damage_of_an_encrypted_repository_is_found_without_its_key() {
        let store = Arc::new(MemoryStore::new());
        let unlock = Unlock::KeyFile(SecretBytes::new(vec![1; 32]));
        let repository =
            Repository::init_encrypted(store.clone(), &RepositoryConfig::default(), None, &unlock, "test").unwrap();
        let snapshot = repository.store.put_hashed(BlobKind::Snapshot, &[b"some snapshot"]).unwrap();
        repository.store.put_if_absent(&named("intents/00ff"), &[b"of a writer"]).unwrap();
        let sound = check(&store);
        assert_eq!((sound.blobs, sound.unnamed, sound.defect_count), (5, 1, 0), "{sound:?}");
        let slots = [BlobKind::Key, BlobKind::KeyCopy].map(|kind| store.list(kind.into()).unwrap()[0].name.clone());
        let configurations = [BlobKind::Config, BlobKind::ConfigCopy].map(BlobName::only);
        for name in [snapshot].into_iter().chain(configurations).chain(slots) {
            let bytes = store.get(&name, 1 << 20).unwrap();
            for at in [0, bytes.len() / 2, bytes.len() - 1] {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1;
                store.replace(&name, &flipped);
                let report = check(&store);
                assert_eq!((report.blobs, report.defect_count), (4, 1), "byte {at} of {name}");
                assert!(report.defects[0].contains(name.as_str()), "{:?}", report.defects);
            }
            store.replace(&name, &bytes);
        }
        assert_eq!(check(&store), sound);
    }
}
