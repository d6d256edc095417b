//! Adoption: writes index segments for containers of interrupted runs, so that their chunks are not stored again.
//!
//! 1. Orphans, the containers without a segment, are read. One is adopted if it is intact and every base of its entries
//!    is in a container that is adopted or has a segment. Otherwise it may have lost a base: a prune deletes bases
//!    that only an orphan needs, if the orphan appeared after the prune looked. A listing made while another backup
//!    runs may also show a container and miss its bases.
//! 2. Before a segment names them, an intent holds them and the containers of their bases, and the run looks whether
//!    all are there, as before a commit. Otherwise a prune could delete a base meanwhile. A prune that takes this run
//!    for dead may delete them before the segment is put, so the run looks once more afterwards.
//! 3. Orphans that stay without a segment are removed from the listing: no new chunk may refer to them.
//! 4. A segment that does not open is deleted once readable segments list all containers.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::error::{Error, ErrorKind, Result};
use crate::repo::Repository;
use crate::repo::cold::{options_of, write_hot_index};
use crate::repo::container::{Base, blob_name};
use crate::repo::hot_index::hot_index_name;
use crate::repo::index::{
    ContainerIndexes, ContainerListing, Locator, MissingContainers, SegmentBatches, SharedContainerIndexes,
    WholeEntries, delete_unreadable_segments, drop_deleted_containers, missing_containers, read_container_index,
};
use crate::repo::marks::{BadParts, Marks};
use crate::repo::overwritten::check_overwritten;
use crate::repo::reliance::{Reliance, take_listing};
use crate::store::{BlobName, ColdState};
use crate::types::ContainerId;

/// Container indexes that the search for bases caches, and their bytes.
const CONTAINER_INDEXES: usize = 64;
const CONTAINER_INDEX_BYTES_MAX: usize = 32 << 20;

/// Adopts orphans of a repository whose marks are `marks`. Returns a listing in which every container has a segment,
/// and the number of adopted containers.
///
/// # Errors
/// Errors of the store.
pub fn adopt_orphans(repository: &Repository, marks: Marks) -> Result<(Arc<ContainerListing>, u64)> {
    let (mut listing, mut pending) = take_listing(repository, marks)?;
    for (name, error) in &listing.damaged {
        tracing::warn!("skipping {name}: {error}");
    }
    let orphans = listing.orphans();
    let (mut adopted, mut unread) = (0, Vec::new());
    if !orphans.is_empty() {
        listing.forget_orphans();
        adopted = adopt(repository, listing, &orphans, &mut unread)?;
        (listing, pending) = take_listing(repository, Marks::read(repository.store.as_ref())?)?;
    }
    unread.iter().for_each(|(id, error)| listing.note_unread(id, error));
    delete_unreadable_segments(&mut listing, |name| check_overwritten(repository, name))?;
    listing.forget_orphans();
    count_lost(&mut listing, &pending)?;
    Ok((Arc::new(listing), adopted))
}

/// Counts the containers that are lost: from then on, the run relies only on entries that lack nothing. The listing
/// is without those that were `pending`. A prune that was interrupted may have let go of them since.
///
/// # Errors
/// Errors of the store.
pub fn count_lost(listing: &mut ContainerListing, pending: &HashSet<ContainerId>) -> Result<()> {
    let MissingContainers { lost, pruned, unlisted } = missing_containers(listing)?;
    (listing.lost, listing.pruned) = (lost.len(), pruned.len());
    for id in unlisted.iter().filter(|id| !pending.contains(id)) {
        let reason = std::io::Error::other("an index segment names it, but a listing of its directory did not");
        let error = Error::Unreadable { what: blob_name(id).into(), offset: 0, source: reason };
        tracing::warn!("{error}");
        listing.note_unread(id, &error);
    }
    if listing.lost > 0 {
        let count = listing.lost;
        tracing::warn!(
            "{count} containers are missing; what was in them is stored again as far as it is read elsewhere now"
        );
    }
    Ok(())
}

/// Writes segments for `orphans`, as far as they are sound and their bases are in `listing` or in one another; returns
/// how many they are.
fn adopt(
    repository: &Repository,
    listing: ContainerListing,
    orphans: &[ContainerId],
    unread: &mut Vec<(ContainerId, Error)>,
) -> Result<u64> {
    let store = repository.store.as_ref();
    let shared = Arc::<SharedContainerIndexes>::default();
    let reliance = Reliance::new(repository, shared.clone());
    let cache =
        ContainerIndexes::sharing(repository.store.clone(), CONTAINER_INDEXES, CONTAINER_INDEX_BYTES_MAX, shared);
    let listing = Arc::new(listing);
    let mut whole = WholeEntries::new(Locator::new(listing.clone(), cache.sharing_with()));
    let mut locator = Locator::new(listing.clone(), cache).sound_only();
    // The bases that only other orphans can have.
    let mut waiting: Vec<(ContainerId, Vec<Base>)> = Vec::new();
    for id in orphans {
        let missing = read_container_index(store, id).and_then(|container_index| {
            let mut missing = Vec::new();
            for base in container_index.bases_elsewhere() {
                let found = locator.locate_exact(&base)?;
                if !found.map_or(Ok(false), |found| whole.is_whole(found.container, found.entry))? {
                    missing.push(base);
                }
            }
            Ok(missing)
        });
        match missing {
            Ok(missing) => waiting.push((*id, missing)),
            Err(error) if error.stops_reading() => return Err(error),
            // Its writer was stopped before the hot index. Nobody relies on it, and a prune deletes it.
            Err(error) if error.kind() == ErrorKind::Cold => tracing::debug!("not adopting a container: {error}"),
            Err(error) => {
                if listing.quarantine().of(id) != Some(&BadParts::Whole) {
                    tracing::warn!("not adopting a container: {error}");
                }
                unread.push((*id, error));
            }
        }
    }
    if waiting.iter().all(|(_, missing)| !missing.is_empty()) {
        return name(repository, &listing, waiting);
    }
    let orphans = waiting.iter().map(|(id, _)| *id).collect();
    let adopted = match reliance.hold(&orphans) {
        Ok(_) => name(repository, &listing, waiting)
            .and_then(|adopted| drop_deleted_containers(&listing, &orphans, &AtomicBool::new(false)).map(|()| adopted)),
        Err(error @ Error::Pruned { .. }) => {
            tracing::debug!("not adopting {} containers: {error}", orphans.len());
            Ok(0)
        }
        Err(error) => Err(error),
    };
    if let Err(error) = reliance.release() {
        tracing::warn!("an intent stays until a prune takes it for dead: {error}");
    }
    adopted
}

/// Gives an orphan parity, if there is a share: its writer may have been stopped before. Returns whether a segment may
/// name it. In cold storage it may go without until `fhrd parity add`.
fn protect(repository: &Repository, id: &ContainerId) -> Result<bool> {
    let (name, parity) = (blob_name(id), &repository.parity);
    if parity.share().is_none() || repository.store.head(&BlobName::parity_of(&id.0))?.is_some() {
        return Ok(true);
    }
    match options_of(repository.store.as_ref(), &name).and_then(|options| parity.add(&name, options)) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::Cold => {
            tracing::debug!("a container has no parity: {error}");
            Ok(true)
        }
        Err(error) if error.is_unreadable() => {
            tracing::warn!("not adopting a container: {error}");
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Gives an orphan of a cold repository its hot index: its writer may have been stopped before, and once the container
/// is in cold storage nobody can. Returns whether a segment may name it.
fn index_hot(repository: &Repository, id: &ContainerId) -> Result<bool> {
    let store = repository.store.as_ref();
    let is_cold = store.cold_state().is_some_and(ColdState::is_cold);
    if !is_cold || store.head(&hot_index_name(id))?.is_some() {
        return Ok(true);
    }
    match write_hot_index(store, id) {
        Ok(_) => Ok(true),
        Err(error) if error.is_unavailable() => {
            tracing::warn!("not adopting a container: {error}");
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Writes segments for the orphans whose bases, as far as they are missing elsewhere, are in one another.
fn name(
    repository: &Repository,
    listing: &ContainerListing,
    mut waiting: Vec<(ContainerId, Vec<Base>)>,
) -> Result<u64> {
    let store = listing.store().as_ref();
    let (mut adopted, mut batches) = (0, SegmentBatches::new(store, listing.new_segments()));
    // Each round adopts what needs only containers that are adopted already.
    loop {
        let (ready, rest): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|(_, missing)| missing.is_empty());
        waiting = rest;
        if ready.is_empty() {
            break;
        }
        for (id, _) in ready {
            let container_index = match read_container_index(store, &id) {
                Ok(container_index) => container_index,
                Err(error) if error.stops_reading() => return Err(error),
                Err(error) => {
                    tracing::warn!("not adopting a container: {error}");
                    continue;
                }
            };
            if !protect(repository, &id)? || !index_hot(repository, &id)? {
                continue;
            }
            let entries = container_index.entries.iter().zip(0..);
            batches.add(id, entries.map(|(entry, position)| (entry.fingerprint, position)))?;
            adopted += 1;
            for (_, missing) in &mut waiting {
                missing.retain(|base| container_index.find_encoding(base).is_none());
            }
        }
    }
    if !waiting.is_empty() {
        let ids: HashSet<String> = waiting.iter().map(|(id, _)| id.to_string()).collect();
        tracing::debug!("not adopting {} containers that lack bases: {ids:?}", ids.len());
    }
    batches.finish(&[])?;
    Ok(adopted)
}
