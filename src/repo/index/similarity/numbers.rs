//! NumberMap: which stored container has which of the dense numbers that the table's slots name, and the file that keeps
//! this from run to run.
//!
//! NumberMap ascend and are given once, so a container that is gone leaves a gap that answers nothing. The file is an
//! envelope (checksummed): the repository's id, what describes the pages, and the containers by ascending number. It
//! is written aside and renamed.

use std::collections::HashSet;
use std::path::Path;

use crate::error::{Error, Result};
use crate::types::ContainerId;
use crate::wire::{Envelope, WireReader, put_varint};

const MAGIC: [u8; 8] = *b"FHRDSIMI";
const REPOSITORY_BYTES_MAX: u64 = 256;
const CONTAINERS_MAX: u64 = 1 << 26;

/// A container's share of the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NumberRange {
    /// Number of its first entry.
    pub(super) first: u32,
    /// Its entries; 0 for a container whose entries have no features.
    pub(super) entries: u32,
    /// The container.
    pub(super) container: ContainerId,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NumberMap {
    /// Seeds the checksums of the pages: those of another table are none of this.
    pub(super) seed: u64,
    /// Pages of the table, a power of two.
    pub(super) pages: u64,
    /// Slots taken.
    pub(super) used: u64,
    /// No number from here on was ever written to a page.
    pub(super) next: u64,
    shares: Vec<NumberRange>,
}

impl NumberMap {
    /// None given yet.
    pub(super) fn new(seed: u64, pages: u64) -> Self {
        NumberMap { seed, pages, used: 0, next: 0, shares: Vec::new() }
    }

    /// Gives the next numbers to a container; without features it only becomes known. `None`: no numbers are left.
    pub(super) fn give(&mut self, container: ContainerId, entries: usize) -> Option<u32> {
        let first = self.next;
        self.set(first, container, entries as u64).then(|| self.next += entries as u64)?;
        u32::try_from(first).ok()
    }

    /// Says that a container has the numbers from `first` on, which is not below those said before.
    pub(super) fn set(&mut self, first: u64, container: ContainerId, entries: u64) -> bool {
        let fits = first.checked_add(entries).is_some_and(|end| end < u64::from(u32::MAX));
        if fits {
            self.shares.push(NumberRange { first: first as u32, entries: entries as u32, container });
        }
        fits
    }

    /// The container with this number, and the entry in it.
    pub(super) fn find(&self, number: u32) -> Option<(ContainerId, u32)> {
        let at = self.shares.partition_point(|share| share.first <= number).checked_sub(1)?;
        let share = self.shares.get(at)?;
        let entry = number - share.first;
        (entry < share.entries).then_some((share.container, entry))
    }

    /// Forgets the containers that are not in `listed`, and gives those that are new, in name order.
    pub(super) fn follow(&mut self, listed: &HashSet<ContainerId>) -> Vec<ContainerId> {
        self.shares.retain(|share| listed.contains(&share.container));
        let known: HashSet<&ContainerId> = self.shares.iter().map(|share| &share.container).collect();
        let mut new: Vec<ContainerId> = listed.iter().filter(|id| !known.contains(id)).copied().collect();
        new.sort();
        new
    }

    /// Writes the file.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn save(&self, path: &Path, repository: &str) -> Result<()> {
        let mut payload = Vec::with_capacity(64 + repository.len() + self.shares.len() * 40);
        put_varint(&mut payload, repository.len() as u64);
        payload.extend_from_slice(repository.as_bytes());
        for value in [self.seed, self.pages, self.used, self.next] {
            payload.extend_from_slice(&value.to_le_bytes());
        }
        put_varint(&mut payload, self.shares.len() as u64);
        for share in &self.shares {
            payload.extend_from_slice(&share.first.to_le_bytes());
            payload.extend_from_slice(&share.entries.to_le_bytes());
            payload.extend_from_slice(&share.container.0);
        }
        let aside = path.with_extension("new");
        let blob = Envelope::new(MAGIC).seal(&payload);
        std::fs::write(&aside, blob).map_err(|error| Error::io("write", &aside, error))?;
        std::fs::rename(&aside, path).map_err(|error| Error::io("rename", &aside, error))
    }

    /// Reads the file; `None` where there is none.
    ///
    /// # Errors
    /// Those of reading, and [`Error::Corrupt`] or [`Error::ChecksumMismatch`] where the file is damaged or another
    /// repository's.
    pub(super) fn load(path: &Path, repository: &str) -> Result<Option<Self>> {
        let blob = match std::fs::read(path) {
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
            let share =
                NumberRange { first: reader.u32()?, entries: reader.u32()?, container: ContainerId(reader.array()?) };
            if u64::from(share.first) < end {
                return Err(reader.error(format!("a number from {end} on"), share.first.to_string()));
            }
            end = u64::from(share.first) + u64::from(share.entries);
            numbers.shares.push(share);
        }
        reader.finish()?;
        if end > numbers.next {
            return Err(reader.error(format!("numbers below {}", numbers.next), end.to_string()));
        }
        Ok(Some(numbers))
    }
}
