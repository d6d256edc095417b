//! Deletes what belongs to blobs that are gone: parity, and the hot indexes of containers.
//!
//! Both are put after their container, so they are listed before the containers: what is put meanwhile is not listed
//! here, and a container whose parity is listed is, too, if it is there. The parity of a required mark is put before
//! the mark: whoever puts it looks once more, and so does a sweep behind its deletions.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use super::hot_index::hot_index_name;
use super::parity::{protected, short_blobs};
use crate::error::{Error, ErrorKind, Result};
use crate::repo::Repository;
use crate::repo::cold;
use crate::repo::container::blob_name;
use crate::repo::index::ContainerListing;
use crate::store::{BlobKind, BlobName, Durable, PutOptions, SHORT_KINDS, Store};
use crate::types::ContainerId;

/// The longest parity that may be of a snapshot, a mark or a small segment, bytes. These are asked for by name before
/// it is deleted; longer segments are written again from containers.
const SHORT_PARITY_BYTES_MAX: u64 = 64 << 10;

/// How many blobs a sweep has deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Parity.
    pub parity: u64,
    /// Hot indexes.
    pub hot_indexes: u64,
}

/// Deletes what belongs to blobs that are gone. What cannot be listed, or the store does not let go, is left to a later
/// prune.
///
/// # Errors
/// Errors of the store; [`Error::Interrupted`] once `stop` is set.
pub fn sweep(repository: &Repository, stop: &AtomicBool) -> Result<Swept> {
    let store = repository.store.as_ref();
    // Before the containers.
    let listed = protected(store).and_then(|protected| Ok((protected, cold::indexed(store)?)));
    let (protected, indexed) = match listed {
        Err(error @ Error::Unreadable { .. }) => {
            tracing::warn!("what belongs to deleted containers stays: {error}");
            return Ok(Swept::default());
        }
        listed => listed?,
    };
    if protected.is_empty() && indexed.is_empty() {
        return Ok(Swept::default());
    }
    let listing = ContainerListing::take(&repository.store)?;
    if !listing.unlistable().is_empty() {
        return Ok(Swept::default());
    }
    let is_gone = |hash: &[u8; 32]| !listing.containers.contains(&ContainerId(*hash));
    let is_short = |hash: &[u8; 32]| protected.get(hash).is_some_and(|bytes| *bytes <= SHORT_PARITY_BYTES_MAX);
    let short: HashSet<[u8; 32]> = protected.keys().copied().filter(is_short).collect();
    let mut unprotected: HashSet<[u8; 32]> = protected.into_keys().filter(is_gone).collect();
    let unindexed: HashSet<[u8; 32]> = indexed.into_keys().map(|id| id.0).filter(is_gone).collect();
    if !unprotected.is_empty() {
        match short_blobs(store) {
            Err(Error::Unreadable { .. }) => unprotected.clear(),
            listed => listed?.iter().filter_map(|blob| blob.name.hash()).for_each(|hash| _ = unprotected.remove(&hash)),
        }
    }
    if unprotected.is_empty() && unindexed.is_empty() {
        return Ok(Swept::default());
    }
    // A container that was lost may come back, and it may be damaged then.
    let (segments, marked) = (listing.refresh()?, listing.quarantine());
    let named: HashSet<&ContainerId> = segments.iter().flat_map(|segment| segment.containers()).collect();
    let may_go = |id: &ContainerId| {
        let is_known = named.contains(id) || marked.of(id).is_some();
        Ok::<_, Error>(!is_known && is_nowhere(store, id, short.contains(&id.0))?)
    };
    let (mut swept, mut deleted) = (Swept::default(), Vec::new());
    let mut delete = |hashes: HashSet<[u8; 32]>, name_of: fn(&ContainerId) -> BlobName, count: &mut u64| {
        for id in hashes.into_iter().map(ContainerId) {
            let name = name_of(&id);
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            if !may_go(&id)? {
                continue;
            }
            match store.delete(&name, Durable::AfterSync) {
                Err(error) if error.is_refused() => tracing::debug!("{name} stays: {error}"),
                done => {
                    done?;
                    *count += 1;
                    deleted.push(name);
                }
            }
        }
        Ok::<_, Error>(())
    };
    let done = delete(unprotected, |id| BlobName::parity_of(&id.0), &mut swept.parity)
        .and_then(|()| delete(unindexed, hot_index_name, &mut swept.hot_indexes));
    let synced = store.sync_deletions(&deleted);
    // Also after a deletion that failed.
    protect_marks(repository, &deleted)?;
    synced.and(done)?;
    Ok(swept)
}

/// Whether no container has this id as its name, nor, if they are to be asked for, any short blob: what a listing lacks
/// may be there.
fn is_nowhere(store: &dyn Store, id: &ContainerId, is_short: bool) -> Result<bool> {
    let short = SHORT_KINDS.into_iter().filter(|_| is_short).map(|kind| BlobName::hashed(kind, &id.0));
    for name in std::iter::once(blob_name(id)).chain(short) {
        if store.head(&name)?.is_some() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Makes the parity among the `deleted` ones again that is of required marks: they were put meanwhile.
fn protect_marks(repository: &Repository, deleted: &[BlobName]) -> Result<()> {
    let gone: HashSet<[u8; 32]> = deleted.iter().filter_map(BlobName::protected).collect();
    if gone.is_empty() {
        return Ok(());
    }
    // Also after a stop.
    for mark in repository.parity.list(BlobKind::RequiredMark.into())? {
        if mark.name.hash().is_some_and(|hash| gone.contains(&hash)) {
            match repository.parity.add(&mark.name, PutOptions::default()) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                added => drop(added?),
            }
        }
    }
    Ok(())
}
