//! Index segments: pages verify, records ascend, and each points to an entry of its fingerprint.
//!
//! 1. Records are gathered, page by page, into batches that bound the memory.
//! 2. A batch is sorted by container, so that it needs each directory once.
//! 3. The segment's bytes have its name.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::go_on;
use super::log::{DefectLog, damage};
use crate::error::{Error, Result};
use crate::repo::Repository;
use crate::repo::container::blob_name;
use crate::repo::index::{ContainerListing, IndexRecord, IndexSegment, read_container_index};
use crate::store::Store;
use crate::types::hex;

/// Records of a batch: more than one backup writes into a segment.
const BATCH_RECORDS: usize = 1 << 19;
/// Bytes hashed at a time.
const HASH_BYTES: usize = 1 << 20;

/// Checks every segment of the listing.
pub(super) fn check(
    repository: &Repository,
    listing: &ContainerListing,
    log: &mut DefectLog,
    stop: &Arc<AtomicBool>,
) -> Result<()> {
    for segment in &listing.segments {
        let mut found = DefectLog::default();
        let mut checker = SegmentCheck { repository, listing, segment, log: &mut found, stop };
        checker.run()?;
        let name = segment.name();
        if found.count() == 0
            && let Some(error) = name_defect(repository.store.as_ref(), name, stop)?
        {
            found.damaged(name, &error);
        }
        log.merge(found);
    }
    Ok(())
}

struct SegmentCheck<'a> {
    repository: &'a Repository,
    listing: &'a ContainerListing,
    segment: &'a IndexSegment,
    log: &'a mut DefectLog,
    stop: &'a AtomicBool,
}

impl SegmentCheck<'_> {
    fn run(&mut self) -> Result<()> {
        let name = self.segment.name();
        for id in self.segment.containers().iter().filter(|id| !self.listing.containers.contains(id)) {
            self.log.own(format!("{} is missing: {name} names it", blob_name(id)));
        }
        let (mut batch, mut last) = (Vec::new(), None);
        for page in self.segment.pages() {
            go_on(self.stop)?;
            match page {
                Ok(records) => {
                    if !last.iter().chain(&records).is_sorted_by(|one, next| one < next) {
                        self.log.own(format!("{name}: records out of order"));
                    }
                    last = records.last().copied().or(last);
                    batch.extend(records);
                }
                Err(error) => self.log.damaged(name, &damage(error)?),
            }
            if batch.len() >= BATCH_RECORDS {
                self.batch(&mut batch)?;
            }
        }
        self.batch(&mut batch)
    }

    /// Compares records with the directories of their containers. One that cannot be read is told of elsewhere.
    fn batch(&mut self, batch: &mut Vec<IndexRecord>) -> Result<()> {
        batch.sort_unstable_by_key(|record| (record.container, record.entry));
        for records in batch.chunk_by(|one, next| one.container == next.container) {
            go_on(self.stop)?;
            let number = records.first().map_or(0, |record| record.container as usize);
            let id = self.segment.containers().get(number).filter(|id| self.listing.containers.contains(id));
            let Some(id) = id else { continue };
            let container_index = match read_container_index(self.repository.store.as_ref(), id) {
                Ok(container_index) => container_index,
                Err(error) => {
                    damage(error)?;
                    continue;
                }
            };
            for record in records {
                let entry = container_index.entries.get(record.entry as usize);
                if entry.is_none_or(|entry| entry.fingerprint != record.fingerprint) {
                    let (name, container) = (self.segment.name(), blob_name(id));
                    let (fingerprint, number) = (record.fingerprint, record.entry);
                    self.log.own(format!("{name}: chunk {fingerprint} is not entry {number} of {container}"));
                }
            }
        }
        batch.clear();
        Ok(())
    }
}

/// What is wrong with a blob whose name ends in the BLAKE3 of its bytes, if they do not have it. Every byte is read.
pub(super) fn name_defect(store: &dyn Store, name: &str, stop: &AtomicBool) -> Result<Option<Error>> {
    let missing = || Error::BlobMissing { what: name.into() };
    let Some(head) = store.head(name)? else { return Ok(Some(missing())) };
    let (mut hasher, mut offset) = (blake3::Hasher::new(), 0);
    while offset < head.len {
        go_on(stop)?;
        let len = usize::try_from(head.len - offset).unwrap_or(HASH_BYTES).min(HASH_BYTES);
        match store.get_range(name, offset, len) {
            Ok(bytes) => hasher.update(&bytes),
            Err(error) => return damage(error).map(Some),
        };
        offset += len as u64;
    }
    let got = hex(hasher.finalize().as_bytes());
    let expected = name.rsplit('/').next().unwrap_or_default();
    let differs =
        || Error::ChecksumMismatch { what: name.into(), offset: 0, expected: expected.into(), got: got.clone() };
    Ok((got != expected).then(differs))
}
