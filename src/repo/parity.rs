//! Parity of a repository: how much there is, and what protects what exists. [`super::heal`] writes back.
//!
//! 1. A required mark of the kind `parity` says how much parity containers get, and that the short blobs have it, too:
//!    snapshots, segments and marks. Older programs do not write then: what
//!    they store would be unprotected, and the parity of what they delete would stay.
//! 2. Whoever writes reads the marks first, and the store puts parity after each container
//!    ([`ParityStore`](crate::store::ParityStore)).
//! 3. A container without parity is sound and merely unprotected: [`add`] protects it.
//! 4. A prune sweeps the parity of what is gone: see [`super::sweep`].
//! 5. Required marks have parity in every repository: nobody writes while one cannot be read. [`heal_marks`] makes what
//!    is missing of both.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

use crate::error::{Error, ErrorKind, Result};
use crate::metrics::Progress;
use crate::repo::Repository;
use crate::repo::cold::options_of;
use crate::repo::container::parse_name;
use crate::repo::marks::{Mark, MarkKind, Marks, check_writable};
use crate::repo::overwritten::check_overwritten;
use crate::store::{
    BlobKind, Durable, ListedBlob, ParityFound, ParityShare, PutOptions, SHORT_KINDS, Store, parity_away,
};

/// Containers that a report names, at most.
const NAMED_MAX: usize = 1000;

/// Sets how much parity containers get from now on. Returns what was set before.
///
/// # Errors
/// If somebody forbids this program to write. [`Error::Unreadable`] if a share is to be changed, and the parity of the
/// mark that sets it is away: nothing else says that there is more. Errors of the store.
pub fn set(repository: &Repository, share: Option<ParityShare>) -> Result<Option<ParityShare>> {
    let (store, before) = (repository.store.as_ref(), Marks::read(repository.store.as_ref())?);
    before.admit_writer(repository)?;
    if before.parity() == share && before.parity_names.len() <= 1 {
        return Ok(share);
    }
    if let Some(share) = share {
        if repository.parity.is_parity_away()? {
            return Err(parity_away());
        }
        repository.parity.set_share(Some(share));
        let names = Mark::new(MarkKind::Parity(share), "set by `fhrd parity`").save(store)?;
        repository.parity.set_share_mark(names.into_iter().next_back());
    }
    for name in &before.parity_names {
        match store.delete(name, Durable::OnReturn) {
            // The last one counts.
            Err(error) if share.is_some() && error.is_refused() => tracing::debug!("{name} stays: {error}"),
            deleted => deleted?,
        }
    }
    if share.is_none() {
        repository.parity.set_share(None);
        repository.parity.set_share_mark(None);
    }
    Ok(before.parity())
}

/// What has parity, by the hash at the end of its name, with the bytes of that.
///
/// # Errors
/// Errors of listing the store.
pub fn protected(store: &dyn Store) -> Result<HashMap<[u8; 32], u64>> {
    let of = |blob: &ListedBlob| Some((blob.name.protected()?, blob.len));
    Ok(store.list(BlobKind::Parity.into())?.iter().filter_map(of).collect())
}

/// The blobs of the kinds, other than containers, that parity protects. Their lengths are those of the store, which may
/// be wrong.
///
/// # Errors
/// Errors of listing the store.
pub fn short_blobs(store: &dyn Store) -> Result<Vec<ListedBlob>> {
    let mut all = Vec::new();
    for kind in SHORT_KINDS {
        all.extend(store.list(kind.into())?);
    }
    Ok(all)
}

/// Writes back the required marks that are damaged and that their parity, or their hash, gives back. Makes their parity
/// where it is missing or damaged. Returns how many marks were written.
///
/// # Errors
/// Errors of the store. Marks that nothing gives back are no error here.
pub fn heal_marks(repository: &Repository) -> Result<u64> {
    let (store, parity) = (repository.store.as_ref(), repository.parity.as_ref());
    let (marks, options, mut written) = (Marks::read(store)?, PutOptions::default(), 0);
    let rebuilt = parity.healed();
    let is_away = parity.is_parity_away()? && lacks_most(store)?;
    if is_away {
        tracing::warn!("marks lack parity: is the directory {} away? `fhrd parity add` makes it", BlobKind::Parity);
    }
    for name in marks.names.iter().filter(|name| name.kind() == BlobKind::RequiredMark) {
        if rebuilt.contains(name) {
            match check_overwritten(repository, name).and_then(|()| parity.write_back(name, options)) {
                Err(error) if error.is_unreadable() => tracing::error!("not writing a mark back: {error}"),
                done => written += u64::from(done?),
            }
        }
        let found = parity.inspect(name);
        let is_lost = is_away && matches!(found, Ok(ParityFound::Absent));
        if is_lost
            || matches!(found, Ok(ParityFound::Whole))
            || marks.damaged.iter().any(|(damaged, _)| *damaged == **name)
        {
            continue;
        }
        match parity.add(name, options) {
            // It is gone.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            added => drop(added?),
        }
    }
    Ok(written)
}

/// Whether more blobs lack parity than have it: that of what is older may be away.
fn lacks_most(store: &dyn Store) -> Result<bool> {
    let there = protected(store)?;
    let mut all = short_blobs(store)?;
    all.extend(store.list(BlobKind::Container.into())?);
    let has = |blob: &ListedBlob| blob.name.hash().is_some_and(|hash| there.contains_key(&hash));
    let protected = all.iter().filter(|blob| has(blob)).count();
    Ok(all.len() > 2 * protected)
}

/// What [`add`] has done.
#[derive(Debug, Default, Serialize)]
pub struct AddedParity {
    /// The share of parity.
    pub share: String,
    /// Containers that have got parity.
    pub containers: u64,
    /// Snapshots, segments and marks that have got parity.
    pub short_blobs: u64,
    /// Bytes of all this parity.
    pub bytes: u64,
    /// Containers that had as much before.
    pub containers_before: u64,
    /// Containers that are too long for parity.
    pub containers_too_long: u64,
    /// Containers in cold storage, which were not read.
    pub cold: u64,
    /// Containers that are damaged, so parity would keep wrong bytes.
    pub damaged: u64,
    /// The first 1000 of them, with the reason.
    pub damaged_containers: Vec<String>,
}

/// Protects the containers and short blobs that have no parity, or less than is set.
///
/// # Errors
/// [`Error::Usage`] if no parity is set. Errors of the store that are no damage of a container.
pub fn add(repository: &Repository, progress: &Progress, stop: &AtomicBool) -> Result<AddedParity> {
    check_writable(repository)?;
    let store = repository.parity.as_ref();
    let Some(share) = store.share() else {
        return Err(Error::Usage("no parity is set: run `fhrd parity set 3%` first".into()));
    };
    let there = protected(store)?;
    let mut added = AddedParity { share: share.to_string(), ..AddedParity::default() };
    let lacking = |blob: &ListedBlob| {
        let bytes = store.parity_len(blob.name.kind(), blob.len)?;
        let has = blob.name.hash().and_then(|hash| there.get(&hash)).is_some_and(|len| *len >= bytes);
        (!has).then_some(bytes)
    };
    let mut all = store.list(BlobKind::Container.into())?;
    // Other files may lie there.
    all.retain(|blob| parse_name(&blob.name).is_some());
    let is_too_long = |blob: &ListedBlob| store.parity_len(blob.name.kind(), blob.len).is_none();
    added.containers_too_long = all.iter().filter(|blob| is_too_long(blob)).count() as u64;
    let without_work = all.iter().filter(|blob| lacking(blob).is_none()).count() as u64;
    added.containers_before = without_work - added.containers_too_long;
    all.extend(short_blobs(store)?);
    let work: Vec<(&ListedBlob, u64)> = all.iter().filter_map(|blob| Some((blob, lacking(blob)?))).collect();
    progress.files_total.add(work.len() as u64);
    progress.bytes_total.add(work.iter().map(|(blob, _)| blob.len).sum());
    for (blob, bytes) in work {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        match options_of(repository.store.as_ref(), &blob.name).and_then(|options| store.add(&blob.name, options)) {
            Ok(_) => {
                let is_container = blob.name.kind() == BlobKind::Container;
                let count = if is_container { &mut added.containers } else { &mut added.short_blobs };
                *count += 1;
                added.bytes += bytes;
            }
            // A prune has deleted it.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) if error.kind() == ErrorKind::Cold => added.cold += 1,
            Err(error) if error.is_refused() || error.is_unreadable() => {
                added.damaged += 1;
                if added.damaged_containers.len() < NAMED_MAX {
                    added.damaged_containers.push(error.to_string());
                }
            }
            Err(error) => return Err(error),
        }
        progress.files_done.add(1);
        progress.bytes_read.add(blob.len);
    }
    Ok(added)
}
