//! Checks index segments: pages verify, records ascend, and each record refers to an entry with its fingerprint.
//!
//! 1. Pages are read once. For each container, its records are counted and the hashes of their pairs (entry,
//!    fingerprint) are added up.
//! 2. The index of each container is read once, and its entries give the same sum, whatever their order.
//! 3. If the sums differ, the records of these containers are read again, and so many of them compared one by one.
//! 4. If a page is damaged, its records are missing in the sums. Then as many records are compared, and the containers
//!    of the others are counted.
//! 5. The bytes of a segment without other defects must match its name.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use super::damaged_containers::DamagedContainers;
use super::defect_log::{DefectLog, damage, damage_or_cold};
use super::entry_sums::{EntrySum, SumKey};
use super::run::CheckRun;
use crate::error::{Error, ErrorKind, Result};
use crate::repo::container::blob_name;
use crate::repo::index::{
    ContainerListing, IndexRecord, IndexSegment, poor_segment, read_entry_count, read_fingerprints,
};
use crate::store::{BlobName, newer_or_wrong, read_stored_hash};
use crate::types::{ContainerId, Fingerprint};

/// Records of a segment that are compared one by one, at most.
const COMPARED_MAX: u64 = if cfg!(test) { 64 } else { 1 << 19 };

/// Checks every segment of the listing.
pub(super) fn check(run: &CheckRun<'_>, damaged: &mut DamagedContainers, log: &mut DefectLog) -> Result<()> {
    let sum_key = SumKey::random()?;
    for segment in run.listing.segments().iter() {
        let mut found = DefectLog::default();
        SegmentCheck { run, segment, sum_key: &sum_key, log: &mut found }.check()?;
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

/// What is known of the entries of a container.
struct KnownEntries {
    count: u64,
    sum: Option<EntrySum>,
}

struct SegmentCheck<'a> {
    run: &'a CheckRun<'a>,
    segment: &'a IndexSegment,
    sum_key: &'a SumKey,
    log: &'a mut DefectLog,
}

impl SegmentCheck<'_> {
    fn check(&mut self) -> Result<()> {
        let mut sums = vec![EntrySum::default(); self.segment.containers().len()];
        let Some(is_read) = self.add_up(&mut sums)? else { return Ok(()) };
        let (mut compared, mut wrong, mut left) = (Vec::new(), Vec::new(), COMPARED_MAX);
        let mut not_compared = 0;
        for ((id, sum), number) in self.segment.containers().iter().zip(&sums).zip(0..) {
            self.run.check_stop()?;
            if !self.run.listing.containers.contains(id) || is_read && !self.differs(id, sum, &mut wrong)? {
                continue;
            }
            match left.checked_sub(sum.count) {
                Some(rest) => (left, _) = (rest, compared.push(number)),
                None => not_compared += 1,
            }
        }
        let named = self.compare(&compared, is_read)?;
        let name = self.segment.name();
        for id in wrong.iter().filter(|id| !named.contains(id)) {
            self.log.add(format!("{name}: not all records of {} are right", blob_name(id)));
        }
        if !is_read && not_compared > 0 {
            let text = "because a page is damaged; `fhrd repair index` writes it again";
            self.log.add(format!("{name}: the records of {not_compared} containers were not compared, {text}"));
        }
        Ok(())
    }

    /// Reads all pages, and adds up the records of each container. Returns whether all pages are sound, and `None` if
    /// the segment is gone.
    fn add_up(&mut self, sums: &mut [EntrySum]) -> Result<Option<bool>> {
        let name = self.segment.name();
        let (mut last, mut is_read) = (None, true);
        for page in self.segment.pages() {
            self.run.check_stop()?;
            match page {
                Ok(records) => {
                    if !last.iter().chain(&records).is_sorted_by(|one, next| one < next) {
                        self.log.add(format!("{name}: records out of order"));
                    }
                    last = records.last().copied().or(last);
                    for record in &records {
                        let sum = sums.get_mut(record.container as usize);
                        sum.into_iter().for_each(|sum| self.sum_key.add(sum, record.entry, &record.fingerprint));
                    }
                }
                // A running backup has merged it. The segment that replaces it is checked next time.
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                Err(error) => {
                    is_read = false;
                    self.log.damaged_blob(name, &damage(error)?);
                }
            }
        }
        Ok(Some(is_read))
    }

    /// Whether the records of a container, which add up to `sum`, are not its entries. Too few of them are logged:
    /// readers do not ask the index of a container that a segment names. Otherwise the container is added to `wrong`.
    fn differs(&mut self, id: &ContainerId, sum: &EntrySum, wrong: &mut Vec<ContainerId>) -> Result<bool> {
        let differing = || {
            let differs = |known: &KnownEntries| {
                sum.count < known.count || known.sum.as_ref().is_some_and(|entries| entries != sum)
            };
            Result::Ok(self.known_entries(id)?.filter(differs))
        };
        // With the bytes of another container, it is the damaged one, and the check of containers reports it. Parity
        // may have its own.
        if differing()?.is_none() || !has_own_bytes(self.run, id)? {
            return Ok(false);
        }
        let Some(known) = differing()? else { return Ok(false) };
        if sum.count < known.count {
            let error = poor_segment(self.segment.name(), id, sum.count, known.count);
            self.log.add(format!("{error}; `fhrd repair index` writes it again"));
        } else {
            wrong.push(*id);
        }
        Ok(true)
    }

    /// What can be read of the entries of a container: of some only their number. The check of containers reports what
    /// cannot.
    fn known_entries(&self, id: &ContainerId) -> Result<Option<KnownEntries>> {
        if let Some(entries) = self.entries(id)? {
            let sum = self.sum_key.of_entries(&entries);
            return Ok(Some(KnownEntries { count: sum.count, sum: Some(sum) }));
        }
        let read = read_entry_count(self.run.repository.store.as_ref(), id);
        let known = |count: u32| KnownEntries { count: count.into(), sum: None };
        read.map(|count| Some(known(count))).or_else(|error| damage_or_cold(error).map(|_| None))
    }

    /// The entries of a container. `None` if they cannot be read.
    fn entries(&self, id: &ContainerId) -> Result<Option<Vec<Fingerprint>>> {
        let read = read_fingerprints(self.run.repository.store.as_ref(), id);
        read.map(Some).or_else(|error| damage_or_cold(error).map(|_| None))
    }

    /// Compares the records of the containers with these numbers, ascending, one by one. If `is_owned`, they have their
    /// own bytes. Returns those with wrong records.
    fn compare(&mut self, numbers: &[u32], is_owned: bool) -> Result<HashSet<ContainerId>> {
        let (mut found, mut named) = (Vec::<IndexRecord>::new(), HashSet::new());
        let pages = (!numbers.is_empty()).then(|| self.segment.pages());
        for page in pages.into_iter().flatten() {
            self.run.check_stop()?;
            match page {
                Err(error) if error.kind() == ErrorKind::NotFound => break,
                // A page that was damaged before is logged.
                Err(error) => _ = damage(error)?,
                Ok(records) => {
                    found.extend(records.into_iter().filter(|record| numbers.binary_search(&record.container).is_ok()));
                }
            }
        }
        found.sort_unstable_by_key(|record| (record.container, record.entry));
        for records in found.chunk_by(|one, next| one.container == next.container) {
            self.run.check_stop()?;
            let number = records.first().map_or(0, |record| record.container as usize);
            let Some(id) = self.segment.containers().get(number) else { continue };
            let wrong = |entries: Vec<Fingerprint>| -> Vec<&IndexRecord> {
                let is_wrong = |it: &&IndexRecord| entries.get(it.entry as usize) != Some(&it.fingerprint);
                records.iter().filter(is_wrong).collect()
            };
            let mut found = self.entries(id)?.map_or_else(Vec::new, wrong);
            if !is_owned && !found.is_empty() {
                // As in `differs`.
                let entries = if has_own_bytes(self.run, id)? { self.entries(id)? } else { None };
                found = entries.map_or_else(Vec::new, wrong);
            }
            for record in found {
                let (name, container) = (self.segment.name(), blob_name(id));
                let (fingerprint, number) = (record.fingerprint, record.entry);
                self.log.add(format!("{name}: chunk {fingerprint} is not entry {number} of {container}"));
                named.insert(*id);
            }
        }
        Ok(named)
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
