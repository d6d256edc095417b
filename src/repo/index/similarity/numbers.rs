//! The number map: the numbers in the slots of the table, and the stored containers they refer to.
//!
//! Numbers are dense, ascend, and are assigned once. A container that is gone leaves a gap that refers to nothing. The
//! file is a checksummed envelope: the id of the repository, the parameters of the pages, the containers by
//! ascending number, and the hashes of the blobs whose clues were taken, wholly and partly.

use std::collections::HashSet;
use std::path::Path;

use super::clues::TakenBlobs;
use crate::error::{Error, Result};
use crate::store::LocalFile;
use crate::types::ContainerId;
use crate::wire::{Envelope, WireReader, put_varint, read_regular};

const MAGIC: [u8; 8] = *b"FHRDSIMI";
const REPOSITORY_BYTES_MAX: u64 = 256;
const CONTAINERS_MAX: u64 = 1 << 26;
const TAKEN_MAX: u64 = 1 << 20;
/// Longest file, bytes.
const BYTES_MAX: u64 = 40 * CONTAINERS_MAX + 2 * 32 * TAKEN_MAX + 1024;

/// The numbers of one container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NumberRange {
    /// Number of the first entry.
    pub(super) first: u32,
    /// Number of entries; 0 for a container without features.
    pub(super) entries: u32,
    /// The container.
    pub(super) container: ContainerId,
    /// Whether only its clues are in the pages.
    pub(super) is_partial: bool,
}

/// In the file, this bit of the number of entries says that only clues are in the pages.
const PARTIAL_BIT: u32 = 1 << 31;

/// From numbers to entries of stored containers (see the module).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NumberMap {
    /// Seed of the page checksums. It tells the pages of this table from those of another one.
    pub(super) seed: u64,
    /// Number of pages, a power of two.
    pub(super) pages: u64,
    /// Number of used slots.
    pub(super) used: u64,
    /// This number and all above it were never written to a page.
    pub(super) next: u64,
    ranges: Vec<NumberRange>,
    /// Containers of which only clues are in the pages.
    partial: usize,
    /// The blobs whose clues were taken.
    pub(super) taken: TakenBlobs,
}

impl NumberMap {
    /// A map without numbers.
    pub(super) fn new(seed: u64, pages: u64) -> Self {
        NumberMap { seed, pages, used: 0, next: 0, ranges: Vec::new(), partial: 0, taken: TakenBlobs::default() }
    }

    /// Assigns the next numbers to a container and returns the first. Without entries the container only becomes known.
    /// `None` if the numbers are used up.
    pub(super) fn assign(&mut self, container: ContainerId, entries: usize) -> Option<u32> {
        let first = self.next;
        self.set(first, container, entries as u64).then(|| self.next += entries as u64)?;
        u32::try_from(first).ok()
    }

    /// Like [`assign`](Self::assign), for a container of which only clues are in the pages.
    pub(super) fn assign_partial(&mut self, container: ContainerId, entries: usize) -> Option<u32> {
        let first = self.assign(container, entries)?;
        if let Some(range) = self.ranges.last_mut().filter(|range| range.entries > 0) {
            range.is_partial = true;
            self.partial += 1;
        }
        Some(first)
    }

    /// Whether of any container only clues are in the pages.
    pub(super) fn has_partial(&self) -> bool {
        self.partial > 0
    }

    /// The container with this number, if only its clues are in the pages.
    pub(super) fn partial(&self, number: u32) -> Option<ContainerId> {
        let at = self.ranges.partition_point(|range| range.first <= number).checked_sub(1)?;
        let range = self.ranges.get(at).filter(|range| range.is_partial)?;
        (number - range.first < range.entries).then_some(range.container)
    }

    /// Whether only clues of a container are in the pages.
    #[cfg(test)]
    pub(super) fn is_partial(&self, container: &ContainerId) -> bool {
        self.ranges.iter().any(|range| range.is_partial && range.container == *container)
    }

    /// Notes that all features of a container are in the pages from now on. If only its clues were, returns its first
    /// number and how many it has.
    pub(super) fn complete(&mut self, container: &ContainerId) -> Option<(u32, u32)> {
        let range = self.ranges.iter_mut().find(|range| range.is_partial && range.container == *container)?;
        range.is_partial = false;
        self.partial -= 1;
        Some((range.first, range.entries))
    }

    /// Assigns the numbers from `first` on to a container. They must be above all numbers assigned before.
    pub(super) fn set(&mut self, first: u64, container: ContainerId, entries: u64) -> bool {
        let fits =
            entries < u64::from(PARTIAL_BIT) && first.checked_add(entries).is_some_and(|end| end < u64::from(u32::MAX));
        if fits {
            let (first, entries) = (first as u32, entries as u32);
            self.ranges.push(NumberRange { first, entries, container, is_partial: false });
        }
        fits
    }

    /// The container with this number, and the entry in its container index.
    pub(super) fn find(&self, number: u32) -> Option<(ContainerId, u32)> {
        let at = self.ranges.partition_point(|range| range.first <= number).checked_sub(1)?;
        let range = self.ranges.get(at)?;
        let entry = number - range.first;
        (entry < range.entries).then_some((range.container, entry))
    }

    /// Drops the containers that are not in `listed`, and returns the new ones in order of their ids.
    pub(super) fn update(&mut self, listed: &HashSet<ContainerId>) -> Vec<ContainerId> {
        self.ranges.retain(|range| listed.contains(&range.container));
        self.partial = self.ranges.iter().filter(|range| range.is_partial).count();
        let known: HashSet<&ContainerId> = self.ranges.iter().map(|range| &range.container).collect();
        let mut new: Vec<ContainerId> = listed.iter().filter(|id| !known.contains(id)).copied().collect();
        new.sort();
        new
    }

    /// Writes the file.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn save(&self, path: &Path, repository: &str) -> Result<()> {
        let mut payload = Vec::with_capacity(64 + repository.len() + self.ranges.len() * 40);
        put_varint(&mut payload, repository.len() as u64);
        payload.extend_from_slice(repository.as_bytes());
        for value in [self.seed, self.pages, self.used, self.next] {
            payload.extend_from_slice(&value.to_le_bytes());
        }
        put_varint(&mut payload, self.ranges.len() as u64);
        for range in &self.ranges {
            payload.extend_from_slice(&range.first.to_le_bytes());
            let entries = if range.is_partial { range.entries | PARTIAL_BIT } else { range.entries };
            payload.extend_from_slice(&entries.to_le_bytes());
            payload.extend_from_slice(&range.container.0);
        }
        for hashes in [&self.taken.done, &self.taken.partly] {
            let mut hashes: Vec<&[u8; 32]> = hashes.iter().collect();
            hashes.sort_unstable();
            put_varint(&mut payload, hashes.len() as u64);
            hashes.into_iter().for_each(|hash| payload.extend_from_slice(hash));
        }
        let blob = Envelope::new(MAGIC).seal(&payload);
        LocalFile::replace(path, &blob).map_err(|error| Error::io("write", path, error))
    }

    /// Reads the file; `None` if there is none.
    ///
    /// # Errors
    /// Errors of reading, and [`Error::Corrupt`] or [`Error::ChecksumMismatch`] if the file is damaged or belongs to
    /// another repository.
    pub(super) fn load(path: &Path, repository: &str) -> Result<Option<Self>> {
        let blob = match read_regular(path, BYTES_MAX) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|error| Error::io("read", path, error))?,
        };
        let what = path.to_string_lossy();
        let (_, payload) = Envelope::open(MAGIC, &what, &blob)?;
        let mut reader = WireReader::new(&what, 0, payload);
        let len = reader.bounded("a repository id", REPOSITORY_BYTES_MAX)?;
        let found = reader.bytes(len as usize)?;
        if found != repository.as_bytes() {
            return Err(reader.error(format!("repository {repository}"), String::from_utf8_lossy(found)));
        }
        let mut numbers = NumberMap::new(reader.u64()?, reader.u64()?);
        (numbers.used, numbers.next) = (reader.u64()?, reader.u64()?);
        let mut end = 0;
        for _ in 0..reader.bounded("containers", CONTAINERS_MAX)? {
            let (first, entries, container) = (reader.u32()?, reader.u32()?, ContainerId(reader.array()?));
            let is_partial = entries & PARTIAL_BIT != 0;
            let range = NumberRange { first, entries: entries & !PARTIAL_BIT, container, is_partial };
            if u64::from(range.first) < end {
                return Err(reader.error(format!("a number from {end} on"), range.first.to_string()));
            }
            end = u64::from(range.first) + u64::from(range.entries);
            numbers.partial += usize::from(is_partial);
            numbers.ranges.push(range);
        }
        // Programs before clues wrote neither list, and others the first one alone.
        for hashes in [&mut numbers.taken.done, &mut numbers.taken.partly] {
            if reader.remaining() > 0 {
                for _ in 0..reader.bounded("blobs", TAKEN_MAX)? {
                    hashes.insert(reader.array()?);
                }
            }
        }
        reader.finish()?;
        if end > numbers.next {
            return Err(reader.error(format!("numbers below {}", numbers.next), end.to_string()));
        }
        Ok(Some(numbers))
    }
}
