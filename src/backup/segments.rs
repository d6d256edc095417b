//! Care of the index segments during a backup: heals damaged ones, proves that readers find all containers, and merges.
//! Also of the bundles of snapshots.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use super::indexes::Indexes;
use crate::crypto::any_number;
use crate::error::Result;
use crate::repo::Repository;
use crate::repo::bundle;
use crate::repo::index::{
    ContainerListing, merge_segments, name_all_containers, replace_damaged_segments, verify_segments,
    verify_small_segments,
};
use crate::repo::snapshot_listing::maintain_bundles;
use crate::store::StoreExt;

/// Pages of segments that each backup verifies, 16 MiB.
const PAGES_VERIFIED_MAX: u64 = 4096;

/// Small segments of a store far away that each backup verifies. Without a cache each is a request.
const SMALL_SEGMENTS_VERIFIED_MAX: usize = 64;

/// Bytes of local bundles that each backup verifies, unless one has more.
const BUNDLE_BYTES_VERIFIED_MAX: u64 = 16 << 20;

/// Containers whose number of entries each backup compares with segments.
const FOOTERS_VERIFIED_MAX: usize = 4;

/// Verifies some pages of the segments, of other stores than local ones only small segments, and replaces damaged
/// segments. Look-ups alone do not meet all damage: those of an unchanged source need not reach every segment.
///
/// # Errors
/// Errors of the store.
pub fn heal_segments(repository: &Repository, listing: &ContainerListing) -> Result<()> {
    if repository.store.local_path().is_some() {
        verify_segments(listing, PAGES_VERIFIED_MAX, FOOTERS_VERIFIED_MAX, any_number())?;
    } else {
        verify_small_segments(listing, SMALL_SEGMENTS_VERIFIED_MAX, any_number())?;
    }
    replace_damaged_segments(listing)?;
    Ok(())
}

/// Replaces the segments that were found damaged during the run, then proves that segments name every container that
/// the run may have relied on.
///
/// # Errors
/// Errors of the store, and that of a container that is in no segment and cannot be read.
pub fn prove_containers(listing: &ContainerListing, indexes: &Indexes) -> Result<()> {
    replace_damaged_segments(listing)?;
    name_all_containers(listing, &indexes.stored())
}

/// Merges index segments after the commit, so that their number stays small, and bundles snapshots once enough have
/// gathered. A large segment is built in directory `cache`. `before` is the number of snapshots before this backup; if
/// it is not known, a later backup bundles. The backup has succeeded whatever happens here; a later one does the rest.
pub fn care_after_commit(
    repository: &Repository,
    listing: &ContainerListing,
    cache: &Path,
    before: Option<usize>,
    stop: &AtomicBool,
) {
    match merge_segments(listing, cache, stop) {
        Ok(merges) => tracing::debug!("{merges} merges of index segments"),
        Err(error) => tracing::warn!("index segments are not merged: {error}; a later backup merges them"),
    }
    if repository.store.local_path().is_some()
        && let Err(error) = bundle::delete_damaged_bundles(repository, BUNDLE_BYTES_VERIFIED_MAX, any_number())
    {
        tracing::warn!("bundles are not verified: {error}");
    }
    if before.is_some_and(|before| (before + 1).is_multiple_of(bundle::LOOSE_MIN)) {
        match maintain_bundles(repository, bundle::LOOSE_MIN / 2) {
            Ok(count) => tracing::debug!("{count} snapshots are in a new bundle"),
            Err(error) => tracing::warn!("snapshots are not bundled: {error}; a later backup does it"),
        }
    }
}
