//! Checks index segments: pages verify, records ascend, and each record refers to an entry with its fingerprint.
//!
//! 1. Records are read page by page into batches, which limits the memory.
//! 2. Each batch is sorted by container, so each container index is read once per batch.
//! 3. The bytes of a segment without other defects must match its name.

use std::sync::atomic::{AtomicBool, Ordering};

use super::damaged_containers::DamagedContainers;
use super::defect_log::{DefectLog, damage, damage_or_cold};
use super::run::CheckRun;
use crate::error::{Error, ErrorKind, Result};
use crate::repo::container::{ContainerIndex, blob_name};
use crate::repo::index::{
    ContainerListing, IndexRecord, IndexSegment, poor_segment, read_container_index, read_entry_count,
};
use crate::store::{BlobName, newer_or_wrong, read_stored_hash};
use crate::types::ContainerId;

/// Records of a batch: more than one backup writes into a segment.
const BATCH_RECORDS: usize = 1 << 19;

/// Checks every segment of the listing.
pub(super) fn check(run: &CheckRun<'_>, damaged: &mut DamagedContainers, log: &mut DefectLog) -> Result<()> {
    for segment in run.listing.segments().iter() {
        let mut found = DefectLog::default();
        SegmentCheck { run, segment, log: &mut found }.check()?;
        let name = segment.name();
        for id in segment.containers().iter().filter(|id| !run.listing.containers.contains(id)) {
            damaged.miss(*id, name);
        }
        if found.count() == 0
            && let Some(error) = name_defect(run, name)?
            && error.kind() != ErrorKind::NotFound
        {
            found.damaged_blob(name, &error);
        }
        log.merge(found);
    }
    Ok(())
}

/// Logs the segments that do not open, and the directories that cannot be listed. Returns whether some of the segments
/// are of a newer version.
pub(super) fn unopened(listing: &mut ContainerListing, log: &mut DefectLog, stop: &AtomicBool) -> Result<bool> {
    let check_stop = || if stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) };
    let mut is_any_newer = false;
    for (name, error) in std::mem::take(&mut listing.damaged) {
        let error = newer_or_wrong(listing.store().as_ref(), &BlobName::parse(&name)?, error, &check_stop)?;
        is_any_newer |= error.is_newer();
        log.damaged_blob(&name, &damage(error)?);
    }
    for (directory, error) in listing.unlistable() {
        log.damaged_blob(&directory, &error);
    }
    Ok(is_any_newer)
}

struct SegmentCheck<'a> {
    run: &'a CheckRun<'a>,
    segment: &'a IndexSegment,
    log: &'a mut DefectLog,
}

impl SegmentCheck<'_> {
    fn check(&mut self) -> Result<()> {
        let name = self.segment.name();
        let (mut batch, mut last) = (Vec::new(), None);
        let (mut counts, mut is_read) = (vec![0u64; self.segment.containers().len()], true);
        for page in self.segment.pages() {
            self.run.check_stop()?;
            match page {
                Ok(records) => {
                    if !last.iter().chain(&records).is_sorted_by(|one, next| one < next) {
                        self.log.add(format!("{name}: records out of order"));
                    }
                    last = records.last().copied().or(last);
                    for record in &records {
                        counts.get_mut(record.container as usize).into_iter().for_each(|count| *count += 1);
                    }
                    batch.extend(records);
                }
                // A running backup has merged it. The segment that replaces it is checked next time.
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    is_read = false;
                    break;
                }
                Err(error) => {
                    is_read = false;
                    self.log.damaged_blob(name, &damage(error)?);
                }
            }
            if batch.len() >= BATCH_RECORDS {
                self.check_batch(&mut batch)?;
            }
        }
        self.check_batch(&mut batch)?;
        if is_read { self.check_counts(&counts) } else { Ok(()) }
    }

    /// Compares the number of records of each container with its entries: readers do not ask the index of a container
    /// that a segment names.
    fn check_counts(&mut self, counts: &[u64]) -> Result<()> {
        for (id, records) in self.segment.containers().iter().zip(counts) {
            self.run.check_stop()?;
            if !self.run.listing.containers.contains(id) {
                continue;
            }
            let count = || read_entry_count(self.run.repository.store.as_ref(), id);
            let mut entries = count();
            if entries.as_ref().is_ok_and(|entries| *records < u64::from(*entries)) {
                // With the bytes of another container, it is the damaged one, and the check of containers reports it.
                if !has_own_bytes(self.run, id)? {
                    continue;
                }
                entries = count();
            }
            match entries {
                Ok(entries) if *records < u64::from(entries) => {
                    let error = poor_segment(self.segment.name(), id, *records, entries.into());
                    self.log.add(format!("{error}; `fhrd repair index` writes it again"));
                }
                Ok(_) => {}
                // The check of containers reports it.
                Err(error) => drop(damage_or_cold(error)?),
            }
        }
        Ok(())
    }

    /// Compares records with the indexes of their containers, and empties the batch. An unreadable container index is
    /// reported by the check of containers.
    fn check_batch(&mut self, batch: &mut Vec<IndexRecord>) -> Result<()> {
        batch.sort_unstable_by_key(|record| (record.container, record.entry));
        for records in batch.chunk_by(|one, next| one.container == next.container) {
            self.run.check_stop()?;
            let number = records.first().map_or(0, |record| record.container as usize);
            let id = self.segment.containers().get(number).filter(|id| self.run.listing.containers.contains(id));
            let Some(id) = id else { continue };
            let fits = |index: &ContainerIndex, record: &IndexRecord| {
                let entry = index.entries.get(record.entry as usize);
                entry.is_some_and(|entry| entry.fingerprint == record.fingerprint)
            };
            let read = || {
                let container_index = read_container_index(self.run.repository.store.as_ref(), id);
                container_index.map(Some).or_else(|error| damage_or_cold(error).map(|_| None))
            };
            let mut container_index = read()?;
            // It may have the bytes of another container, and parity its own.
            if container_index.as_ref().is_some_and(|index| records.iter().any(|record| !fits(index, record))) {
                if !has_own_bytes(self.run, id)? {
                    // The check of containers reports it.
                    continue;
                }
                container_index = read()?;
            }
            let Some(container_index) = container_index else { continue };
            for record in records {
                if !fits(&container_index, record) {
                    let (name, container) = (self.segment.name(), blob_name(id));
                    let (fingerprint, number) = (record.fingerprint, record.entry);
                    self.log.add(format!("{name}: chunk {fingerprint} is not entry {number} of {container}"));
                }
            }
        }
        batch.clear();
        Ok(())
    }
}

/// Whether nothing shows that the bytes of a container are others. In cold storage, its hot index speaks for it.
fn has_own_bytes(run: &CheckRun<'_>, id: &ContainerId) -> Result<bool> {
    match name_defect(run, &blob_name(id)) {
        Err(error) if error.kind() == ErrorKind::Cold => Ok(true),
        defect => defect.map(|defect| defect.is_none()),
    }
}

/// The defect of a blob whose bytes do not have the BLAKE3 that its name ends with. Every byte is read.
pub(super) fn name_defect(run: &CheckRun<'_>, name: &BlobName) -> Result<Option<Error>> {
    match read_stored_hash(run.repository.store.as_ref(), name, &|| run.check_stop()) {
        Ok(()) => Ok(None),
        Err(error @ Error::BlobMissing { .. }) => Ok(Some(error)),
        Err(error) => damage(error).map(Some),
    }
}
