//! Merging: keeps the number of segments small, so that a look-up costs about the same after any number of backups.
//!
//! 1. Segments have classes by their number of records. Each class is four times the one below. Four segments of a
//!    class become one of a higher class, so a record is written again once for each class. The lowest class is small
//!    enough to be written again often.
//! 2. The pages of the sources are merged in order. Memory holds the tables of containers, a few pages of each source,
//!    and a small new segment. A large one is built in a scratch directory.
//! 3. The new segment names its sources as replaced. It is verified before they are deleted. A killed run leaves
//!    sources that readers skip.
//! 4. A prune may delete containers while a segment that names them is written, and write the segments again before
//!    that one is put. So whoever puts a segment looks afterwards ([`drop_deleted_containers`]).

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, HashSet};
use std::iter::Peekable;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::listing::ContainerListing;
use super::lost::{SoughtContainers, give_up_lost_containers, lost_of, seek};
use super::maintain::{delete_replaced_segments, replace_damaged_segments};
use super::segment::{IndexRecord, IndexSegment};
use super::segment_writer::{MEMORY_BYTES_MAX, SegmentWriter};
use crate::error::{Error, ErrorKind, Result};
use crate::store::{Durable, Store, StoreExt};
use crate::types::{ContainerId, Fingerprint};

/// Records of the lowest class, at most: 10 pages.
const CLASS_RECORDS: u64 = 1024;
/// Segments of a class that are merged, and the ratio of two classes.
const FAN: u64 = 4;
/// Records of the segments that are written again together, at most.
const GROUP_RECORDS_MAX: u64 = 1_600_000;
/// Segments of one merge, at most. It bounds the pages in memory.
const SOURCES_MAX: usize = 64;
/// Bytes of a segment that is merged in memory while all caches of a run are full, at most.
const WRITTEN_MEMORY_BYTES_MAX: usize = 8 << 20;
/// Times that segments are written again because containers are deleted meanwhile.
const ROUNDS_MAX: u32 = 4;

/// Merges segments until each class has few of them, and deletes replaced ones. Large ones are built in directory
/// `scratch`. Returns the number of merges.
///
/// # Errors
/// Errors of the store, and [`Error::Interrupted`] once `stop` is set.
pub fn merge_segments(listing: &ContainerListing, scratch: &Path, stop: &AtomicBool) -> Result<u64> {
    let records = |segments: &[Arc<IndexSegment>]| segments.iter().map(|it| it.records()).collect::<Vec<u64>>();
    if listing.replaced().is_empty() && choose(&records(&listing.segments())).is_empty() {
        return Ok(0);
    }
    listing.refresh()?;
    delete_replaced_segments(listing)?;
    let mut merges = 0;
    loop {
        let segments = listing.segments();
        let sizes = records(&segments);
        let chosen = choose(&sizes);
        if chosen.is_empty() {
            return Ok(merges);
        }
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        let sources: Vec<Arc<IndexSegment>> = chosen.into_iter().filter_map(|at| segments.get(at).cloned()).collect();
        let named = SegmentContainers::list(listing, &sources)?;
        let merging = Merging { scratch, memory: MEMORY_BYTES_MAX, stop };
        match merge(listing, &sources, &|id| !named.deleted.contains(id), merging) {
            Ok(_) => {
                merges += 1;
                drop_deleted_containers(listing, &named.there, stop)?;
            }
            // Another process has merged it.
            Err(SourceError { error, .. }) if error.kind() == ErrorKind::NotFound => return Ok(merges),
            Err(SourceError { source: Some(name), error }) if error.is_unreadable() => {
                listing.recovery().note_damage(&name, &error);
                replace_damaged_segments(listing)?;
                return Ok(merges);
            }
            Err(SourceError { error, .. }) => return Err(error),
        }
        listing.refresh()?;
        delete_replaced_segments(listing)?;
    }
}

/// Merges segments that this run has written, and that its listing lacks, as [`merge_segments`] does: so a run of any
/// length asks few of them. `written` then has the merged ones in their place, and lacks what another process has
/// merged. What is damaged stays. Returns `false` if nothing may be deleted: merging more would only store more.
///
/// # Errors
/// Errors of [`merge_segments`].
pub(super) fn merge_written(
    listing: &ContainerListing,
    written: &mut Vec<Arc<IndexSegment>>,
    scratch: &Path,
) -> Result<bool> {
    // The store stops the run.
    let stop = AtomicBool::new(false);
    let store = listing.store();
    loop {
        let damaged = listing.recovery().damaged();
        let is_sound = |segment: &&Arc<IndexSegment>| damaged.iter().all(|name| name != segment.name());
        let sound: Vec<&Arc<IndexSegment>> = written.iter().filter(is_sound).collect();
        let sizes: Vec<u64> = sound.iter().map(|segment| segment.records()).collect();
        let chosen = choose(&sizes).into_iter();
        let sources: Vec<Arc<IndexSegment>> = chosen.filter_map(|at| sound.get(at).copied().cloned()).collect();
        if sources.is_empty() {
            return Ok(true);
        }
        let named = SegmentContainers::list(listing, &sources)?;
        let merging = Merging { scratch, memory: WRITTEN_MEMORY_BYTES_MAX, stop: &stop };
        let merged = match merge(listing, &sources, &|id| !named.deleted.contains(id), merging) {
            Ok(merged) => merged,
            Err(SourceError { source: Some(name), error }) if error.kind() == ErrorKind::NotFound => {
                written.retain(|segment| **segment.name() != *name);
                continue;
            }
            Err(SourceError { source: Some(name), error }) if error.is_unreadable() => {
                listing.recovery().note_damage(&name, &error);
                continue;
            }
            Err(SourceError { error, .. }) => return Err(error),
        };
        written.retain(|segment| sources.iter().all(|source| source.name() != segment.name()));
        written.push(merged);
        drop_deleted_containers(listing, &named.there, &stop)?;
        for source in &sources {
            match store.delete_replaced(source.name()) {
                Err(error) if error.stops_reading() => return Err(error),
                Err(error) => {
                    tracing::debug!("no more merges in this run: {error}");
                    return Ok(false);
                }
                Ok(_) => {}
            }
        }
    }
}

fn class(records: u64) -> u32 {
    records.div_ceil(CLASS_RECORDS).next_power_of_two().ilog2().div_ceil(FAN.ilog2())
}

/// The positions in `sizes`, numbers of records, of the segments to merge into one; none if there is nothing to do.
///
/// The merged segment may complete the next class. Then the segments of that class are merged with it.
fn choose(sizes: &[u64]) -> Vec<usize> {
    let mut by_size: Vec<usize> = (0..sizes.len()).collect();
    by_size.sort_by_key(|at| sizes[*at]);
    let (mut chosen, mut sum) = (Vec::new(), 0);
    for members in by_size.chunk_by(|one, next| class(sizes[*one]) == class(sizes[*next])) {
        let number = members.first().map_or(0, |at| class(sizes[*at]));
        // Smaller segments than the merged one may be added, because that costs little.
        let (count, is_begun) = (members.len() as u64, !chosen.is_empty());
        let takes_more = is_begun && (class(sum) > number || class(sum) == number && count + 1 >= FAN);
        if is_begun && !takes_more {
            break;
        }
        if !is_begun && count < FAN {
            continue;
        }
        let before = chosen.len();
        for at in members.iter().take(SOURCES_MAX - before) {
            chosen.push(*at);
            sum += sizes[*at];
        }
        if chosen.len() - before < members.len() {
            break;
        }
    }
    if chosen.len() < 2 { Vec::new() } else { chosen }
}

/// The containers that segments name, before a merge.
struct SegmentContainers {
    /// They were seen.
    there: HashSet<ContainerId>,
    /// A prune has deleted them. What is lost, or cannot be looked at, stays named.
    deleted: HashSet<ContainerId>,
}

impl SegmentContainers {
    /// Looks for the containers of `segments`.
    fn list(listing: &ContainerListing, segments: &[Arc<IndexSegment>]) -> Result<Self> {
        let SoughtContainers { there, gone } = seek(listing, &named_by(segments))?;
        let lost = lost_of(listing, &gone)?;
        let deleted = lost.map_or_else(HashSet::new, |lost| gone.into_iter().filter(|id| !lost.contains(id)).collect());
        Ok(SegmentContainers { there, deleted })
    }
}

/// All containers that segments name.
fn named_by(segments: &[Arc<IndexSegment>]) -> HashSet<ContainerId> {
    segments.iter().flat_map(|segment| segment.containers()).copied().collect()
}

/// Writes segments again that name containers which are gone, without these, and deletes the old ones.
///
/// # Errors
/// Errors of [`merge_segments`].
pub fn drop_gone_containers(listing: &ContainerListing, stop: &AtomicBool) -> Result<()> {
    delete_replaced_segments(listing)?;
    give_up_lost_containers(listing)?;
    // Sought after the segments were opened: a segment names a container only once it is durable.
    let SoughtContainers { there, gone } = seek(listing, &named_by(&listing.segments()))?;
    write_without(listing, &|id| !gone.contains(id), stop)?;
    drop_deleted_containers(listing, &there, stop)
}

/// For whoever has put a segment: of the containers `named`, which were there before, some may be gone. A prune has
/// deleted them, and may have written the segments again before this one was put, so that nobody else takes them out.
///
/// # Errors
/// Errors of [`merge_segments`].
pub fn drop_deleted_containers(
    listing: &ContainerListing,
    named: &HashSet<ContainerId>,
    stop: &AtomicBool,
) -> Result<()> {
    let mut left = named.clone();
    // What is deleted while segments are written again takes another round.
    for _ in 0..ROUNDS_MAX {
        let gone = seek(listing, &left)?.gone;
        if gone.is_empty() {
            break;
        }
        tracing::debug!("{} containers were deleted while a segment was written", gone.len());
        let segments = listing.refresh()?;
        let named = SegmentContainers::list(listing, &segments)?;
        write_without(listing, &|id| !gone.contains(id) && !named.deleted.contains(id), stop)?;
        // The new segments name others, too, that may be deleted meanwhile.
        left.extend(named.there);
        left.retain(|id| !gone.contains(id));
    }
    Ok(())
}

/// Writes the segments again that name containers for which `exists` is false, and deletes the old ones.
fn write_without(listing: &ContainerListing, exists: &dyn Fn(&ContainerId) -> bool, stop: &AtomicBool) -> Result<()> {
    let segments = listing.segments();
    let names_gone = |segment: &&Arc<IndexSegment>| !segment.containers().iter().all(exists);
    let (mut groups, mut records) = (Vec::<Vec<Arc<IndexSegment>>>::new(), 0);
    for segment in segments.iter().filter(names_gone) {
        records += segment.records();
        match groups.last_mut() {
            Some(group) if group.len() < SOURCES_MAX && records <= GROUP_RECORDS_MAX => group.push(segment.clone()),
            _ => {
                groups.push(vec![segment.clone()]);
                records = segment.records();
            }
        }
    }
    for group in groups {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        if group.iter().all(|segment| !segment.containers().iter().any(exists)) {
            group.iter().try_for_each(|segment| listing.store().delete_replaced(segment.name()).map(drop))?;
            continue;
        }
        let merging = Merging { scratch: &std::env::temp_dir(), memory: MEMORY_BYTES_MAX, stop };
        match merge(listing, &group, exists, merging) {
            Ok(_) => {}
            // Another process has merged it.
            Err(SourceError { error, .. }) if error.kind() == ErrorKind::NotFound => {}
            Err(SourceError { source: Some(name), error }) if error.is_unreadable() => {
                listing.recovery().note_damage(&name, &error);
                replace_damaged_segments(listing)?;
            }
            Err(SourceError { error, .. }) => return Err(error),
        }
    }
    listing.refresh()?;
    delete_replaced_segments(listing)
}

/// An error of a merge, with the name of the segment that it concerns, if any.
struct SourceError {
    source: Option<String>,
    error: Error,
}

impl From<Error> for SourceError {
    fn from(error: Error) -> Self {
        SourceError { source: None, error }
    }
}

/// The records of one source, in order, with the container numbers of the merged segment.
struct SourceRecords<I: Iterator> {
    name: String,
    records: Peekable<I>,
    /// `None` for a container that the merged segment leaves out.
    numbers: Vec<Option<u32>>,
    last: Option<Fingerprint>,
}

impl<I: Iterator<Item = Result<IndexRecord>>> SourceRecords<I> {
    fn failed(&self, error: Error) -> SourceError {
        SourceError { source: Some(self.name.clone()), error }
    }

    /// The fingerprint of the next record.
    fn next_fingerprint(&mut self) -> Result<Option<Fingerprint>, SourceError> {
        let next = match self.records.peek() {
            None => return Ok(None),
            Some(Ok(record)) => record.fingerprint,
            Some(Err(_)) => {
                let error = self.records.next().and_then(Result::err);
                return Err(self.failed(error.unwrap_or_else(|| Error::internal("a record without its error"))));
            }
        };
        if self.last.is_some_and(|last| next < last) {
            let error = Error::corrupt(&self.name, 0, "records in order", format!("{next} too late"));
            return Err(self.failed(error));
        }
        self.last = Some(next);
        Ok(Some(next))
    }

    /// Adds the next records to `group` as long as they have this fingerprint.
    fn take_group(&mut self, fingerprint: &Fingerprint, group: &mut BTreeSet<IndexRecord>) {
        let is_same = |record: &Result<IndexRecord>| matches!(record, Ok(it) if it.fingerprint == *fingerprint);
        while let Some(Ok(record)) = self.records.next_if(is_same) {
            let container = self.numbers.get(record.container as usize).copied().flatten();
            group.extend(container.map(|container| IndexRecord { container, ..record }));
        }
    }
}

/// Where a merge builds a segment of more than `memory` bytes, and what stops it.
struct Merging<'a> {
    scratch: &'a Path,
    memory: usize,
    stop: &'a AtomicBool,
}

/// Writes and verifies a segment with the records of `sources` that replaces them. Containers for which `exists` is
/// false are left out.
fn merge(
    listing: &ContainerListing,
    sources: &[Arc<IndexSegment>],
    exists: &dyn Fn(&ContainerId) -> bool,
    merging: Merging<'_>,
) -> Result<Arc<IndexSegment>, SourceError> {
    let store = listing.store();
    let containers: BTreeSet<ContainerId> =
        sources.iter().flat_map(|segment| segment.containers().iter().copied()).filter(exists).collect();
    let containers: Vec<ContainerId> = containers.into_iter().collect();
    let number_of: HashMap<ContainerId, u32> = containers.iter().copied().zip(0..).collect();
    let names = listing.replaced_by_successor(&sources.iter().map(AsRef::as_ref).collect::<Vec<_>>());
    let mut writer =
        SegmentWriter::new(listing.new_segments().draw()?, &containers, &names, merging.scratch, merging.memory)?;
    let mut inputs: Vec<_> = sources
        .iter()
        .map(|segment| SourceRecords {
            name: segment.name().to_string(),
            numbers: segment.containers().iter().map(|id| number_of.get(id).copied()).collect(),
            records: segment.pages().flat_map(records_of).peekable(),
            last: None,
        })
        .collect();
    let mut heap = BinaryHeap::new();
    for (number, input) in inputs.iter_mut().enumerate() {
        heap.extend(input.next_fingerprint()?.map(|fingerprint| Reverse((fingerprint, number))));
    }
    let mut group = BTreeSet::new();
    while let Some(Reverse((fingerprint, number))) = heap.pop() {
        if let Some(input) = inputs.get_mut(number) {
            input.take_group(&fingerprint, &mut group);
            heap.extend(input.next_fingerprint()?.map(|next| Reverse((next, number))));
        }
        if heap.peek().is_none_or(|Reverse((next, _))| *next != fingerprint) {
            group.iter().try_for_each(|record| writer.push(record))?;
            group.clear();
        }
    }
    let name = writer.finish(store.as_ref(), merging.stop)?;
    // The sources are deleted next, so this one must be readable.
    let verify = || {
        let segment = IndexSegment::open(store.clone(), &name)?;
        segment.visit_fingerprints(|_| {})?;
        Ok(Arc::new(segment))
    };
    let verified: Result<_> = verify();
    if verified.as_ref().is_err_and(|error| error.kind() == ErrorKind::Damaged) {
        store.delete(&name, Durable::OnReturn)?;
    }
    Ok(verified?)
}

fn records_of(page: Result<Vec<IndexRecord>>) -> impl Iterator<Item = Result<IndexRecord>> {
    let (records, error) = match page {
        Ok(records) => (records, None),
        Err(error) => (Vec::new(), Some(Err(error))),
    };
    records.into_iter().map(Ok).chain(error)
}

#[cfg(test)]
#[path = "merge_tests.rs"]
mod tests;
