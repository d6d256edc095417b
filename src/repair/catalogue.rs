//! Replaces damaged catalogues of models: the records that they named are found among the chunks of metadata
//! containers. One that cannot be read is replaced, too, if all of these containers can.

use std::collections::HashSet;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::model::{BLOB_ENTRIES_MAX, CatalogueBlob, CatalogueEntry, ModelRecord};
use crate::repo::Repository;
use crate::repo::container::{ContainerKind, EntryNumber, blob_name, read_kind};
use crate::repo::index::{ContainerListing, read_container_index};
use crate::repo::overwritten::delete_damaged;
use crate::repo::read::ChunkReader;
use crate::store::{BlobKind, Reading};

/// Replaces the damaged catalogues. Returns their number.
///
/// # Errors
/// Errors of the store.
pub(super) fn replace_damaged(repository: &Repository) -> Result<u64> {
    let store = repository.store.as_ref();
    let (mut damaged, mut unread, mut known) = (Vec::new(), Vec::new(), HashSet::new());
    for listed in store.list(BlobKind::Model.into())? {
        match CatalogueBlob::load(store, &listed.name) {
            Ok(blob) => known.extend(blob.entries.iter().map(|entry| entry.record)),
            Err(error) if error.is_proven_damage() && error.kind() != ErrorKind::NotFound => damaged.push(listed.name),
            Err(Error::Unreadable { .. }) => unread.push(listed.name),
            Err(error) if error.is_unreadable() => {}
            Err(error) => return Err(error),
        }
    }
    if damaged.is_empty() && unread.is_empty() {
        return Ok(0);
    }
    let mut catalogue = CatalogueBlob::default();
    let (entries, is_complete) = entries(repository)?;
    for entry in entries {
        if known.insert(entry.record) {
            catalogue.entries.push(entry);
            if catalogue.entries.len() == BLOB_ENTRIES_MAX {
                catalogue.save(store)?;
                catalogue.entries.clear();
            }
        }
    }
    catalogue.save(store)?;
    if is_complete {
        damaged.append(&mut unread);
    }
    let mut replaced = 0;
    for name in &damaged {
        replaced += u64::from(delete_damaged(repository, name)?);
    }
    Ok(replaced)
}

/// The catalogue entries of all readable model records, and whether all metadata could be read.
fn entries(repository: &Repository) -> Result<(Vec<CatalogueEntry>, bool)> {
    let listing = Arc::new(ContainerListing::take(&repository.store)?);
    let mut reader = ChunkReader::new(repository, listing.clone());
    let mut containers: Vec<_> = listing.containers.iter().copied().collect();
    containers.sort();
    let (mut entries, mut is_complete) = (Vec::new(), true);
    for id in containers {
        let name = blob_name(&id);
        let index = match read_kind(repository.store.as_ref(), &name, Reading::Once) {
            Ok(ContainerKind::Metadata) => read_container_index(repository.store.as_ref(), &id),
            Ok(_) => continue,
            Err(error) => Err(error),
        };
        let index = match index {
            Err(error) if error.stops_reading() => return Err(error),
            Err(_) => {
                is_complete = false;
                continue;
            }
            Ok(index) => index,
        };
        let container = reader.resolver.container_number(id);
        for (position, entry) in (0u32..).zip(&index.entries) {
            let bytes = match reader.read_entry(EntryNumber::stored(container, position), &entry.fingerprint) {
                Err(error) if error.stops_reading() => return Err(error),
                bytes => {
                    is_complete &= bytes.is_ok();
                    bytes.unwrap_or_default()
                }
            };
            match ModelRecord::decode(&entry.fingerprint, &bytes) {
                Ok(record) => entries.push(CatalogueEntry::new(&record, entry.fingerprint)),
                Err(error) => is_complete &= !error.is_newer(),
            }
        }
    }
    Ok((entries, is_complete))
}
