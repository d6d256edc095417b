//! Adoption: writes index segments for containers of interrupted runs, so that their chunks are not stored again.
//!
//! 1. The store is listed until two listings agree. A container refers only to chunks of containers stored before it.
//!    A listing taken while another backup runs can miss a container and show a later one. Two equal listings in a
//!    row rule that out.
//! 2. Orphans, the containers without a segment, are read. If one of them is damaged, orphans that refer to other
//!    containers are not adopted, because their bases may be lost.
//! 3. The other orphans get a segment. Orphans that stay without one are removed from the listing: no new chunk may
//!    refer to them.
//! 4. A segment that does not open is deleted once readable segments list all containers.

use std::collections::HashSet;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::repo::Repository;
use crate::repo::index::{ContainerListing, SegmentBatches, delete_unreadable_segments, read_container_index};
use crate::types::ContainerId;

/// Listings taken before adoption is left to a later run.
const LISTINGS_MAX: usize = 10;

/// Adopts orphans. Returns a listing in which every container has a segment, and the number of adopted containers.
///
/// # Errors
/// Those of the store.
pub fn adopt_orphans(repository: &Repository) -> Result<(Arc<ContainerListing>, u64)> {
    let store = &repository.store;
    let mut listing = ContainerListing::take(store)?;
    for (name, error) in &listing.damaged {
        tracing::warn!("skipping {name}: {error}");
    }
    let mut adopted = 0;
    if !listing.orphans().is_empty() {
        for _ in 0..LISTINGS_MAX {
            let again = ContainerListing::take(store)?;
            let is_stable = again.containers == listing.containers;
            listing = again;
            if is_stable {
                adopted = adopt(repository, &listing.orphans())?;
                break;
            }
        }
        if adopted > 0 {
            listing = ContainerListing::take(store)?;
        }
    }
    delete_unreadable_segments(&mut listing)?;
    listing.forget_orphans();
    Ok((Arc::new(listing), adopted))
}

/// Writes segments for the sound containers of `orphans`; returns how many they are.
fn adopt(repository: &Repository, orphans: &[ContainerId]) -> Result<u64> {
    let store = repository.store.as_ref();
    let mut damaged = HashSet::new();
    for id in orphans {
        match read_container_index(store, id) {
            Ok(_) => {}
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(error) => {
                tracing::warn!("not adopting a container: {error}");
                damaged.insert(*id);
            }
        }
    }
    let (mut adopted, mut batches) = (0, SegmentBatches::new(store));
    for id in orphans.iter().filter(|id| !damaged.contains(id)) {
        let Ok(container_index) = read_container_index(store, id) else { continue };
        if !damaged.is_empty() && !container_index.bases.is_empty() {
            continue;
        }
        let entries = container_index.entries.iter().zip(0..);
        batches.add(*id, entries.map(|(entry, position)| (entry.fingerprint, position)))?;
        adopted += 1;
    }
    batches.finish(&[])?;
    Ok(adopted)
}
