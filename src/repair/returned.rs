//! Containers that marks call bad as a whole: those that are not there, and those that are there again.
//!
//! A container has returned if its bytes are what its name says, its index can be read, and each of its entries finds
//! all that it copies from. A mark says nothing of it from then on.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::repo::Repository;
use crate::repo::container::blob_name;
use crate::repo::index::{ContainerIndexes, ContainerListing, Locator, WholeEntries, read_container_index};
use crate::repo::marks::{BadParts, Mark, MarkKind, Marks, Quarantine};
use crate::repo::overwritten::delete_damaged;
use crate::store::{Store, read_stored_hash};
use crate::types::ContainerId;

/// Container indexes in memory, and their bytes.
const CONTAINER_INDEXES_MAX: usize = 64;
const CONTAINER_INDEX_BYTES_MAX: usize = 32 << 20;

/// The containers that `quarantine` calls bad as a whole.
fn bad_ones(quarantine: &Quarantine) -> impl Iterator<Item = &ContainerId> {
    quarantine.containers().filter(|(_, parts)| **parts == BadParts::Whole).map(|(id, _)| id)
}

/// Names of the containers that marks list and that are not in the store. What cannot be looked at is not missing.
///
/// # Errors
/// Errors of the store that are not damage.
pub(super) fn missing(store: &dyn Store, quarantine: &Quarantine) -> Result<Vec<String>> {
    let mut missing = Vec::new();
    for name in bad_ones(quarantine).map(blob_name) {
        match store.head(&name) {
            Ok(None) => missing.push(name.into()),
            Err(error) if !error.is_unreadable() => return Err(error),
            _ => {}
        }
    }
    Ok(missing)
}

/// Names of the containers that marks list and that are not among the `missing` ones, which are sorted.
pub(super) fn there(quarantine: &Quarantine, missing: &[String]) -> Vec<String> {
    let names = quarantine.containers().map(|(id, _)| String::from(blob_name(id)));
    names.filter(|name| missing.binary_search(name).is_err()).collect()
}

/// Removes the containers that have returned from the marks. Returns how many they are.
///
/// # Errors
/// Errors of the store that are not damage.
pub(super) fn clear(repository: &Repository) -> Result<u64> {
    let (store, marks) = (repository.store.as_ref(), Marks::read(repository.store.as_ref())?);
    let mut returned = BTreeSet::new();
    for id in bad_ones(&marks.quarantine) {
        if is_intact(store, id)? {
            returned.insert(*id);
        }
    }
    let listing = Arc::new(ContainerListing::take(&repository.store)?);
    let mut left = marks.quarantine.without(&returned);
    while let Some(id) = lacking(&listing, &left, &returned)? {
        returned.remove(&id);
        left = marks.quarantine.without(&returned);
    }
    if returned.is_empty() {
        return Ok(0);
    }
    if !left.is_empty() {
        Mark::new(MarkKind::Quarantine(left), "what is bad without containers that have returned").save(store)?;
    }
    let mut stays = false;
    for name in &marks.quarantine_names {
        stays |= !delete_damaged(repository, name)?;
    }
    if stays {
        return Ok(0);
    }
    returned.iter().for_each(|id| tracing::warn!("{} is there again; no mark lists it any more", blob_name(id)));
    Ok(returned.len() as u64)
}

/// Whether a container has its bytes, and an index that this version can read.
fn is_intact(store: &dyn Store, id: &ContainerId) -> Result<bool> {
    let name = blob_name(id);
    match read_stored_hash(store, &name, &|| Ok(())).and_then(|()| read_container_index(store, id)) {
        // In cold storage, nobody knows.
        Err(error) if error.is_unavailable() => Ok(false),
        read => read.map(|_| true),
    }
}

/// One of `returned` with an entry that lacks something, as long as `quarantine` is bad.
fn lacking(
    listing: &Arc<ContainerListing>,
    quarantine: &Quarantine,
    returned: &BTreeSet<ContainerId>,
) -> Result<Option<ContainerId>> {
    listing.set_quarantine(Arc::new(quarantine.clone()));
    let cache = ContainerIndexes::new(listing.store().clone(), CONTAINER_INDEXES_MAX, CONTAINER_INDEX_BYTES_MAX);
    let mut whole = WholeEntries::new(Locator::new(listing.clone(), cache));
    for id in returned {
        let entries = match read_container_index(listing.store().as_ref(), id) {
            Ok(index) => index.entries.len() as u32,
            Err(Error::BlobMissing { .. }) => return Ok(Some(*id)),
            Err(error) => return Err(error),
        };
        for entry in 0..entries {
            if !whole.is_whole(*id, entry)? {
                return Ok(Some(*id));
            }
        }
    }
    Ok(None)
}
