//! Proves that segments have all records of the containers that they name.
//!
//! Readers do not ask the own index of a container that a segment names. A program that could not read a container may
//! have written a segment that names it with too few records. So the number of records is compared with the number of
//! entries in the footer of the container.

use std::collections::{HashMap, HashSet};

use super::container_indexes::read_entry_count;
use super::listing::ContainerListing;
use super::segment::IndexSegment;
use crate::error::{Error, Result};
use crate::store::{StoreExt, try_map_parallel};
use crate::types::ContainerId;

/// The listed containers that segments name, and of which no segment is proved to have all records. Those whose footer
/// cannot be read are among them.
///
/// # Errors
/// Errors of the store that are not damage.
pub(super) fn poorly_indexed(listing: &ContainerListing) -> Result<HashSet<ContainerId>> {
    let (store, segments) = (listing.store().as_ref(), listing.segments());
    let named = segments.iter().flat_map(|segment| segment.containers());
    let mut poor: HashSet<ContainerId> = named.filter(|id| listing.has(id)).copied().collect();
    let mut ids: Vec<ContainerId> = poor.iter().copied().collect();
    ids.sort_unstable();
    let counts = try_map_parallel(store.requests_max(), &ids, |id| match read_entry_count(store, id) {
        Ok(count) => Ok(Some(count)),
        Err(error) if error.is_unavailable() => Ok(None),
        Err(error) => Err(error),
    })?;
    let counts = ids.into_iter().zip(counts).filter_map(|(id, count)| Some((id, u64::from(count?)))).collect();
    for segment in segments.iter() {
        let names = segment.containers();
        let sum = names.iter().try_fold(0, |sum, id| Some(sum + entries_of(&counts, id)?));
        if sum == Some(segment.records()) {
            names.iter().for_each(|id| _ = poor.remove(id));
        } else {
            let records = record_counts(segment)?;
            let is_whole =
                |(id, records): &(&ContainerId, u64)| entries_of(&counts, id).is_some_and(|it| *records >= it);
            names.iter().zip(records).filter(is_whole).for_each(|(id, _)| _ = poor.remove(id));
        }
    }
    Ok(poor)
}

fn entries_of(counts: &HashMap<ContainerId, u64>, id: &ContainerId) -> Option<u64> {
    counts.get(id).copied()
}

/// Number of records of each container of a segment, as far as its pages can be read.
fn record_counts(segment: &IndexSegment) -> Result<Vec<u64>> {
    let mut counts = vec![0u64; segment.containers().len()];
    for page in segment.pages() {
        match page {
            Ok(records) => count_records(&mut counts, records.iter().map(|record| record.container)),
            Err(error) if error.is_unreadable() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(counts)
}

/// Counts records by the numbers of their containers.
pub(super) fn count_records(counts: &mut [u64], containers: impl Iterator<Item = u32>) {
    for container in containers {
        if let Some(count) = counts.get_mut(container as usize) {
            *count += 1;
        }
    }
}

/// The defect of a segment that has `records` records of a container with `entries` entries.
pub fn poor_segment(segment: &str, container: &ContainerId, records: u64, entries: u64) -> Error {
    let expected = format!("a record of each of the {entries} entries of container {container}");
    Error::corrupt(segment, 0, expected, format!("{records} records"))
}
