//! Adoption: containers of interrupted runs get an index segment, so that their chunks are not stored again.
//!
//! 1. The repository is listed until two listings agree. A container refers only to chunks of containers stored before
//!    it; a listing made while another backup stores can miss an earlier container and show a later one, but not twice
//!    with nothing new in between.
//! 2. Containers that no segment names are read; where one of them is damaged, those that refer to other containers
//!    are left alone, for what they need may be lost.
//! 3. The others are named by a segment. What stays unnamed is taken out of the listing: readers find chunks through
//!    segments alone, so nothing stored may rely on it.

use std::collections::HashSet;
use std::sync::Arc;

use crate::error::Result;
use crate::repo::Repository;
use crate::repo::index::{Listing, Record, read_container_index, write_segment};
use crate::types::ContainerId;

/// Listings tried before adoption is left to a quieter run.
const LISTINGS_MAX: usize = 10;
/// Records gathered before a segment is written.
const RECORDS_MAX: usize = 1 << 18;

/// A listing in which every container is named by a segment, and how many containers were adopted.
///
/// # Errors
/// Those of the store.
pub fn adopt_orphans(repository: &Repository) -> Result<(Arc<Listing>, u64)> {
    let store = &repository.store;
    let mut listing = Listing::take(store)?;
    for (name, error) in &listing.damaged {
        tracing::warn!("passing over {name}: {error}; `fhrd check` tells more");
    }
    let mut adopted = 0;
    if !listing.orphans().is_empty() {
        for _ in 0..LISTINGS_MAX {
            let again = Listing::take(store)?;
            let is_stable = again.containers == listing.containers;
            listing = again;
            if is_stable {
                adopted = name_orphans(repository, &listing.orphans())?;
                break;
            }
        }
        if adopted > 0 {
            listing = Listing::take(store)?;
        }
        listing.forget_orphans();
    }
    Ok((Arc::new(listing), adopted))
}

fn name_orphans(repository: &Repository, orphans: &[ContainerId]) -> Result<u64> {
    let store = repository.store.as_ref();
    let mut damaged = HashSet::new();
    for id in orphans {
        if let Err(error) = read_container_index(store, id) {
            tracing::warn!("not adopting a container: {error}");
            damaged.insert(*id);
        }
    }
    let (mut adopted, mut containers, mut records) = (0, Vec::new(), Vec::new());
    for id in orphans.iter().filter(|id| !damaged.contains(id)) {
        let Ok(container_index) = read_container_index(store, id) else { continue };
        if !damaged.is_empty() && !container_index.bases.is_empty() {
            continue;
        }
        let container = containers.len() as u32;
        containers.push(*id);
        let entries = container_index.entries.iter().zip(0..);
        records.extend(entries.map(|(e, entry)| Record { fingerprint: e.fingerprint, container, entry }));
        adopted += 1;
        if records.len() > RECORDS_MAX {
            write_segment(store, &std::mem::take(&mut containers), std::mem::take(&mut records))?;
        }
    }
    if !containers.is_empty() {
        write_segment(store, &containers, records)?;
    }
    Ok(adopted)
}
