//! Care of the segments: finds damaged ones, replaces them, and proves that containers are named.
//!
//! A damaged segment is written again from the indexes of its containers. The new segment names the old one as
//! replaced, so that readers skip it. A replaced segment is deleted once readable segments name all its containers.

use std::collections::{HashMap, HashSet};

use super::container_indexes::read_fingerprints;
use super::listing::ContainerListing;
use super::recovery::SegmentBatches;
use super::segment::IndexSegment;
use crate::error::{ErrorKind, Result};
use crate::repo::container::blob_name;
use crate::types::{ContainerId, Fingerprint};

/// Verifies at most `pages_max` pages of all segments, from a page on that `random` selects. Damaged segments are
/// recorded in the listing.
///
/// # Errors
/// Those of the store that are not damage.
pub fn verify_segments(listing: &ContainerListing, pages_max: u64, random: u64) -> Result<()> {
    let segments = listing.segments();
    let total: u64 = segments.iter().map(|segment| segment.page_count()).sum();
    let mut skip = random % total.max(1);
    let mut rest = pages_max.min(total);
    // The second round reaches the pages before the first one of the first round.
    for segment in segments.iter().chain(segments.iter()) {
        let first = skip.min(segment.page_count());
        let end = segment.page_count().min(first + rest);
        skip -= first;
        rest -= end - first;
        for page in segment.pages_in(first..end) {
            match page {
                // Another process has merged it.
                Err(error) if error.kind() == ErrorKind::NotFound => break,
                Err(error) if error.is_unreadable() => {
                    listing.recovery().note_damage(segment.name(), &error);
                    break;
                }
                page => drop(page?),
            }
        }
    }
    Ok(())
}

/// Replaces the segments that are known to be damaged. Returns their number.
///
/// # Errors
/// Those of the store.
pub fn replace_damaged_segments(listing: &ContainerListing) -> Result<u64> {
    let damaged = listing.recovery().damaged();
    let segments = listing.segments();
    let damaged: Vec<_> = segments.iter().filter(|segment| damaged.iter().any(|name| name == segment.name())).collect();
    if damaged.is_empty() {
        return Ok(0);
    }
    for segment in &damaged {
        replace(listing, segment)?;
    }
    listing.refresh()?;
    delete_replaced_segments(listing)?;
    Ok(damaged.len() as u64)
}

/// Writes the records of the containers of `segment` again. Records of a container whose index cannot be read are taken
/// from the readable pages.
fn replace(listing: &ContainerListing, segment: &IndexSegment) -> Result<()> {
    let store = listing.store();
    let mut batches = SegmentBatches::new(store.as_ref(), listing.salts());
    let mut unreadable: HashMap<u32, Vec<(Fingerprint, u32)>> = HashMap::new();
    for (number, id) in (0u32..).zip(segment.containers()) {
        match read_fingerprints(store.as_ref(), id) {
            Ok(fingerprints) => batches.add(*id, fingerprints.into_iter().zip(0..))?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) if error.is_unreadable() => drop(unreadable.insert(number, Vec::new())),
            Err(error) => return Err(error),
        }
    }
    if !unreadable.is_empty() {
        for record in segment.pages().flatten().flatten() {
            if let Some(entries) = unreadable.get_mut(&record.container) {
                entries.push((record.fingerprint, record.entry));
            }
        }
    }
    for (number, entries) in unreadable {
        if let Some(id) = segment.containers().get(number as usize) {
            batches.add(*id, entries.into_iter())?;
        }
    }
    batches.finish(&[segment.name().into()])?;
    tracing::warn!("{} is replaced by a new segment", segment.name());
    Ok(())
}

/// Deletes segments that others replace, if readable segments name all their containers that still exist.
///
/// # Errors
/// Those of the store.
pub fn delete_replaced_segments(listing: &ContainerListing) -> Result<()> {
    let (segments, replaced) = (listing.segments(), listing.replaced());
    if replaced.is_empty() {
        return Ok(());
    }
    let named: HashSet<&ContainerId> = segments.iter().flat_map(|segment| segment.containers()).collect();
    for segment in replaced.iter() {
        let mut unnamed = segment.containers().iter().filter(|id| !named.contains(id));
        let mut is_covered = true;
        while let (true, Some(id)) = (is_covered, unnamed.next()) {
            is_covered = listing.store().head(&blob_name(id))?.is_none();
        }
        if is_covered {
            listing.store().delete(segment.name())?;
        }
    }
    listing.refresh()?;
    Ok(())
}

/// Deletes the segments that did not open because they are damaged, if readable segments name all containers.
///
/// # Errors
/// Those of the store.
pub fn delete_unreadable_segments(listing: &mut ContainerListing) -> Result<()> {
    if listing.damaged.is_empty() || !listing.orphans().is_empty() {
        return Ok(());
    }
    for (name, error) in std::mem::take(&mut listing.damaged) {
        // A segment of a newer version is none of ours, and a directory is no segment.
        if error.kind() == ErrorKind::Damaged && name.contains('/') {
            listing.store().delete(&name)?;
            tracing::warn!("{name} is deleted: other segments list all containers");
        } else {
            listing.damaged.push((name, error));
        }
    }
    Ok(())
}

/// Proves that readers find the containers of the listing and those in `stored` through segments. Lists the segments
/// again, and writes a segment for containers that none of them names.
///
/// # Errors
/// Those of the store, and that of a container whose index cannot be read and is in no segment.
pub fn name_all_containers(listing: &ContainerListing, stored: &HashSet<ContainerId>) -> Result<()> {
    let segments = listing.refresh()?;
    let named: HashSet<&ContainerId> = segments.iter().flat_map(|segment| segment.containers()).collect();
    let all = listing.containers.iter().chain(stored);
    let unnamed: HashSet<&ContainerId> = all.filter(|id| !named.contains(id)).collect();
    if unnamed.is_empty() {
        return Ok(());
    }
    tracing::warn!("{} containers are no longer in an index segment; writing a new one", unnamed.len());
    let store = listing.store();
    let mut batches = SegmentBatches::new(store.as_ref(), listing.salts());
    for id in unnamed {
        match read_fingerprints(store.as_ref(), id) {
            Ok(fingerprints) => batches.add(*id, fingerprints.into_iter().zip(0..))?,
            // A prune has deleted it: the run does not rely on it.
            Err(error) if error.kind() == ErrorKind::NotFound && !stored.contains(id) => {}
            Err(error) => return Err(error),
        }
    }
    batches.finish(&[])?;
    listing.refresh()?;
    Ok(())
}

/// Writes a segment that names `containers`.
///
/// # Errors
/// Those of the store, and of a container whose index cannot be read.
pub fn name_containers(listing: &ContainerListing, containers: &[ContainerId]) -> Result<()> {
    let store = listing.store();
    let mut batches = SegmentBatches::new(store.as_ref(), listing.salts());
    for id in containers {
        batches.add(*id, read_fingerprints(store.as_ref(), id)?.into_iter().zip(0..))?;
    }
    batches.finish(&[]).map(drop)
}

#[cfg(test)]
#[path = "maintain_tests.rs"]
mod tests;
