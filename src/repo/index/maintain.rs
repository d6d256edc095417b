//! Care of the segments: finds damaged ones, replaces them, and proves that containers are named.
//!
//! A damaged segment is written again from the indexes of its containers. The new segment names the old one as
//! replaced, so that readers skip it. It never names a container whose own index could not be read. A replaced segment
//! is deleted once readable segments name all its containers.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::container_indexes::{read_entry_count, read_fingerprints};
use super::coverage::{count_records, poor_segment};
use super::listing::ContainerListing;
use super::lost::give_up_lost_containers;
use super::merge::drop_deleted_containers;
use super::recovery::SegmentBatches;
use super::segment::{IndexSegment, PAGES_READ};
use crate::error::{ErrorKind, Result};
use crate::repo::container::blob_name;
use crate::store::{BlobName, StoreExt};
use crate::types::ContainerId;

/// Verifies at most `pages_max` pages of all segments, from a page on that `random` selects. A segment of which all
/// pages are verified must have records of each of its containers, and all of those of `footers_max` containers.
/// Damaged segments are recorded in the listing.
///
/// # Errors
/// Errors of the store that are not damage.
pub fn verify_segments(listing: &ContainerListing, pages_max: u64, footers_max: usize, random: u64) -> Result<()> {
    verify(listing, &listing.segments(), pages_max, footers_max, random)
}

/// Like [`verify_segments`], but only segments whose pages are one read, `segments_max` of them, and no footers: for a
/// store in which each read is a request. With a cache it is none, because a segment that was opened is in the cache.
///
/// # Errors
/// Errors of [`verify_segments`].
pub fn verify_small_segments(listing: &ContainerListing, segments_max: usize, random: u64) -> Result<()> {
    let segments = listing.segments();
    let mut small: Vec<_> = segments.iter().filter(|segment| segment.page_count() <= PAGES_READ).cloned().collect();
    let first = random % (small.len() as u64).max(1);
    small.rotate_left(first as usize);
    small.truncate(segments_max);
    verify(listing, &small, u64::MAX, 0, 0)
}

fn verify(
    listing: &ContainerListing,
    segments: &[Arc<IndexSegment>],
    pages_max: u64,
    mut footers_max: usize,
    random: u64,
) -> Result<()> {
    let total: u64 = segments.iter().map(|segment| segment.page_count()).sum();
    let mut skip = random % total.max(1);
    let mut rest = pages_max.min(total);
    // Number of records of each container, and of pages read.
    let mut read: Vec<(Vec<u64>, u64)> =
        segments.iter().map(|segment| (vec![0; segment.containers().len()], 0)).collect();
    // The second round reaches the pages before the first one of the first round.
    for _ in 0..2 {
        for (segment, (counts, pages)) in segments.iter().zip(&mut read) {
            let first = skip.min(segment.page_count());
            let end = segment.page_count().min(first + rest);
            skip -= first;
            rest -= end - first;
            for page in segment.pages_in(first..end) {
                match page {
                    Ok(records) => count_records(counts, records.iter().map(|record| record.container)),
                    // Another process has merged it.
                    Err(error) if error.kind() == ErrorKind::NotFound => break,
                    Err(error) if error.is_unreadable() => {
                        listing.recovery().note_damage(segment.name(), &error);
                        break;
                    }
                    Err(error) => return Err(error),
                }
                *pages += 1;
            }
        }
    }
    for (segment, (counts, _)) in segments.iter().zip(&read).filter(|(it, (_, pages))| *pages == it.page_count()) {
        verify_counts(listing, segment, counts, &mut footers_max, random)?;
    }
    Ok(())
}

/// Records that a segment is damaged if it lacks records of a container. `counts` has the number of each; `footers_max`
/// is how many containers may still be asked for the number of their entries, from one on that `random` selects.
fn verify_counts(
    listing: &ContainerListing,
    segment: &IndexSegment,
    counts: &[u64],
    footers_max: &mut usize,
    random: u64,
) -> Result<()> {
    let counted: Vec<_> = segment.containers().iter().zip(counts).filter(|(id, _)| listing.has(id)).collect();
    let poor = |id: &ContainerId, records: u64, entries: u64| {
        listing.recovery().note_damage(segment.name(), &poor_segment(segment.name(), id, records, entries));
    };
    if let Some((id, _)) = counted.iter().find(|(_, records)| **records == 0) {
        poor(id, 0, 1);
        return Ok(());
    }
    let asked = counted.len().min(*footers_max);
    *footers_max -= asked;
    let start = random as usize % counted.len().max(1);
    for (id, records) in counted.iter().cycle().skip(start).take(asked) {
        match read_entry_count(listing.store().as_ref(), id) {
            Ok(entries) if **records < u64::from(entries) => {
                poor(id, **records, entries.into());
                return Ok(());
            }
            Ok(_) => {}
            Err(error) if error.is_unavailable() => listing.note_unread(id, &error),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Replaces the segments that are known to be damaged. Returns their number.
///
/// # Errors
/// Errors of the store.
pub fn replace_damaged_segments(listing: &ContainerListing) -> Result<u64> {
    let damaged = listing.recovery().damaged();
    let mut segments = listing.segments();
    // A run has written it since.
    if !damaged.iter().all(|name| segments.iter().any(|segment| name == segment.name())) {
        segments = listing.refresh()?;
    }
    let damaged: Vec<_> = segments.iter().filter(|segment| damaged.iter().any(|name| name == segment.name())).collect();
    if damaged.is_empty() {
        return Ok(0);
    }
    let mut replaced = 0;
    for segment in &damaged {
        replaced += u64::from(replace(listing, segment)?);
    }
    listing.refresh()?;
    delete_replaced_segments(listing)?;
    Ok(replaced)
}

/// Writes a segment of the containers of `segment` whose own indexes can be read, in place of it. The others are in no
/// segment from then on, so that their own indexes are asked, and the old segment is not deleted. Returns false, and
/// writes nothing, if none can be read.
fn replace(listing: &ContainerListing, segment: &IndexSegment) -> Result<bool> {
    let store = listing.store();
    let mut batches = SegmentBatches::new(store.as_ref(), listing.new_segments());
    let (mut read, mut unread, mut gone) = (HashSet::new(), 0, 0);
    for id in segment.containers() {
        match read_fingerprints(store.as_ref(), id) {
            Ok(fingerprints) => {
                batches.add(*id, fingerprints.into_iter().zip(0..))?;
                read.insert(*id);
            }
            Err(error) if error.kind() == ErrorKind::NotFound => gone += 1,
            Err(error) if error.is_unavailable() => {
                tracing::warn!("a container is in no index segment any more: {error}");
                listing.note_unread(id, &error);
                unread += 1;
            }
            Err(error) => return Err(error),
        }
    }
    if read.is_empty() && unread > 0 {
        return Ok(false);
    }
    if gone > 0 {
        give_up_lost_containers(listing)?;
    }
    batches.finish(&listing.replaced_by_successor(&[segment]))?;
    drop_deleted_containers(listing, &read, &AtomicBool::new(false))?;
    tracing::warn!("{} is replaced by a new segment", segment.name());
    Ok(true)
}

/// Deletes segments that others replace, if readable segments name all their containers that still exist.
///
/// # Errors
/// Errors of the store.
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
            // What cannot be looked at is not gone.
            is_covered = match listing.store().head(&blob_name(id)) {
                Err(error) if error.is_unreadable() => false,
                head => head?.is_none(),
            };
        }
        if is_covered {
            listing.store().delete_replaced(segment.name())?;
        }
    }
    listing.refresh()?;
    Ok(())
}

/// Deletes the segments that did not open because they are damaged, if readable segments name all containers and have
/// all their records. Nobody knows that while a directory of containers cannot be listed. One stays if `check` refuses.
///
/// # Errors
/// Errors of the store, also of `check`.
pub fn delete_unreadable_segments(
    listing: &mut ContainerListing,
    check: impl Fn(&BlobName) -> Result<()>,
) -> Result<()> {
    let is_partial = listing.unlistable.count() > 0 || !listing.orphans().is_empty();
    if listing.damaged.is_empty() || is_partial || listing.prove_segments()? {
        return Ok(());
    }
    for (name, error) in std::mem::take(&mut listing.damaged) {
        // A segment of a newer version is none of ours, and a directory is no segment.
        if error.kind() == ErrorKind::Damaged && name.contains('/') {
            let blob = BlobName::parse(&name)?;
            match check(&blob) {
                Err(refusal) if refusal.kind() == ErrorKind::Damaged => tracing::warn!("{name} stays: {refusal}"),
                checked => {
                    checked?;
                    if listing.store().delete_replaced(&blob)? {
                        tracing::warn!("{name} is deleted: other segments list all containers");
                        continue;
                    }
                }
            }
        }
        listing.damaged.push((name, error));
    }
    Ok(())
}

/// Proves that readers find the containers of the listing and those in `stored` through segments. Lists the segments
/// again, and writes a segment for containers that none of them names.
///
/// # Errors
/// Errors of the store, and that of a container in `stored` whose index cannot be read and is in no segment.
pub fn name_all_containers(listing: &ContainerListing, stored: &HashSet<ContainerId>) -> Result<()> {
    let segments = listing.refresh()?;
    let named: HashSet<&ContainerId> = segments.iter().flat_map(|segment| segment.containers()).collect();
    let all = listing.containers.iter().chain(stored);
    let unnamed: HashSet<&ContainerId> = all.filter(|id| !named.contains(id)).collect();
    if unnamed.is_empty() {
        return Ok(());
    }
    tracing::warn!("{} containers are no longer in an index segment; writing a new one", unnamed.len());
    let (store, mut read) = (listing.store(), HashSet::new());
    let mut batches = SegmentBatches::new(store.as_ref(), listing.new_segments());
    for id in unnamed {
        match read_fingerprints(store.as_ref(), id) {
            Ok(fingerprints) => {
                batches.add(*id, fingerprints.into_iter().zip(0..))?;
                read.insert(*id);
            }
            // A prune has deleted it: the run does not rely on it.
            Err(error) if error.kind() == ErrorKind::NotFound && !stored.contains(id) => {}
            // Readers ask its own index. A later run adopts it.
            Err(error) if error.is_unavailable() && !stored.contains(id) => {
                tracing::warn!("a container is in no index segment: {error}");
                listing.note_unread(id, &error);
            }
            Err(error) => return Err(error),
        }
    }
    batches.finish(&[])?;
    listing.refresh()?;
    drop_deleted_containers(listing, &read, &AtomicBool::new(false))
}

/// Writes a segment that names `containers`.
///
/// # Errors
/// Errors of the store, and of a container whose index cannot be read.
pub fn name_containers(listing: &ContainerListing, containers: &[ContainerId]) -> Result<()> {
    let store = listing.store();
    let mut batches = SegmentBatches::new(store.as_ref(), listing.new_segments());
    for id in containers {
        batches.add(*id, read_fingerprints(store.as_ref(), id)?.into_iter().zip(0..))?;
    }
    batches.finish(&[])?;
    drop_deleted_containers(listing, &containers.iter().copied().collect(), &AtomicBool::new(false))
}

#[cfg(test)]
#[path = "maintain_tests.rs"]
mod tests;
