//! Care of the index segments during a backup: heals damaged ones, and proves that readers find all containers.

use super::indexes::Indexes;
use crate::error::Result;
use crate::repo::Repository;
use crate::repo::index::{ContainerListing, name_all_containers, replace_damaged_segments, verify_segments};

/// Pages of local segments that each backup verifies, 16 MiB.
const PAGES_VERIFIED_MAX: u64 = 4096;

/// Verifies some pages of the segments of a local store, and replaces damaged segments.
///
/// # Errors
/// Those of the store.
pub fn heal_segments(repository: &Repository, listing: &ContainerListing) -> Result<()> {
    if repository.store.local_path().is_some() {
        verify_segments(listing, PAGES_VERIFIED_MAX, random())?;
    }
    replace_damaged_segments(listing)?;
    Ok(())
}

/// Replaces the segments that were found damaged during the run, then proves that segments name every container that
/// the run may have relied on.
///
/// # Errors
/// Those of the store, and that of a container that is in no segment and cannot be read.
pub fn prove_containers(listing: &ContainerListing, indexes: &Indexes) -> Result<()> {
    replace_damaged_segments(listing)?;
    name_all_containers(listing, &indexes.stored())
}

/// A random number, so that backups verify different pages.
fn random() -> u64 {
    let mut bytes = [0; 8];
    // Any number serves.
    let _ = getrandom::fill(&mut bytes);
    u64::from_le_bytes(bytes)
}
