//! The right bytes of damaged containers, where the store has others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::layout::ParityLayout;
use super::memory::HealMemory;
use crate::error::{Error, Result};
use crate::memory::ByteLru;
use crate::store::BlobName;
use crate::store::name::check_range;

/// Bytes that an outcome without rebuilt bytes counts.
const OUTCOME_BYTES: usize = 512;
/// What was found out about a container is found out again after this time: a process may run for weeks.
const STAYS: Duration = Duration::from_secs(60);
/// Names of containers that are remembered, at most.
const NAMES_MAX: usize = 1 << 20;

/// The bytes of a container that the store lacks.
pub(super) struct RebuiltContainer {
    /// Bytes of the container.
    pub len: u64,
    /// Offsets and bytes of what replaces the store's, ascending, without gaps of length 0.
    ranges: Vec<(u64, Vec<u8>)>,
}

impl RebuiltContainer {
    /// The shards `numbers`, which ascend, of the right bytes `container`.
    pub fn new(layout: &ParityLayout, numbers: &BTreeSet<usize>, container: &[u8]) -> Self {
        let mut ranges: Vec<(u64, Vec<u8>)> = Vec::new();
        let bytes = container.get(..layout.len as usize).unwrap_or(container);
        for (number, shard) in bytes.chunks(layout.shard_bytes).enumerate() {
            let offset = (number * layout.shard_bytes) as u64;
            if !numbers.contains(&number) {
                continue;
            }
            match ranges.last_mut() {
                Some((start, last)) if *start + last.len() as u64 == offset => last.extend_from_slice(shard),
                _ => ranges.push((offset, shard.to_vec())),
            }
        }
        RebuiltContainer { len: layout.len, ranges }
    }

    /// The `len` bytes from `offset` on of the container called `name`; `read` reads what the store has.
    pub fn read(
        &self,
        name: &str,
        offset: u64,
        len: usize,
        read: impl Fn(u64, usize) -> Result<Vec<u8>>,
    ) -> Result<Vec<u8>> {
        check_range(name, self.len, offset, len)?;
        let (mut bytes, mut at, end) = (Vec::with_capacity(len), offset, offset + len as u64);
        for (start, right) in &self.ranges {
            let range_end = start + right.len() as u64;
            if range_end <= at || *start >= end {
                continue;
            }
            if *start > at {
                bytes.append(&mut read(at, (start - at) as usize)?);
                at = *start;
            }
            let until = range_end.min(end);
            bytes.extend_from_slice(right.get((at - start) as usize..(until - start) as usize).unwrap_or_default());
            at = until;
        }
        if at < end || len == 0 {
            bytes.append(&mut read(at, (end - at) as usize)?);
        }
        Ok(bytes)
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.ranges.iter().map(|(_, bytes)| bytes.len()).sum()
    }
}

/// What was found out about a container whose bytes proved wrong.
#[derive(Clone)]
pub(super) enum HealOutcome {
    /// These bytes are right.
    Rebuilt(Arc<RebuiltContainer>),
    /// The store has the right bytes: a copy was wrong, or they were wrong on the way.
    Sound,
    /// It stays damaged.
    Failed,
    /// It stays damaged, and its parity was not tried, with the reason.
    Untried(Arc<str>),
}

impl HealOutcome {
    /// Whether a read may give other bytes than one before.
    pub fn may_help(&self) -> bool {
        matches!(self, HealOutcome::Rebuilt(_) | HealOutcome::Sound)
    }

    /// Why the parity was not tried, if it was not.
    pub fn untried(&self) -> Option<String> {
        match self {
            HealOutcome::Untried(reason) => Some(reason.to_string()),
            _ => None,
        }
    }
}

/// The outcomes of a process.
pub(super) struct HealedContainers {
    outcomes: Mutex<ByteLru<BlobName, (Instant, HealOutcome)>>,
    /// The containers that were rebuilt and not written back.
    names: Mutex<BTreeSet<BlobName>>,
    /// When the store said that a short blob is there.
    seen: Mutex<BTreeMap<BlobName, Instant>>,
    /// Parity in cold storage that was to be read.
    cold: Mutex<BTreeSet<BlobName>>,
    /// Containers that take more memory.
    too_large: Mutex<BTreeSet<BlobName>>,
    /// Blobs whose parity was not tried, with the reasons.
    untried: Mutex<BTreeMap<BlobName, Arc<str>>>,
}

impl Default for HealedContainers {
    fn default() -> Self {
        HealedContainers {
            outcomes: Mutex::new(ByteLru::new(HealMemory::default().rebuilt)),
            names: Mutex::default(),
            seen: Mutex::default(),
            cold: Mutex::default(),
            too_large: Mutex::default(),
            untried: Mutex::default(),
        }
    }
}

impl HealedContainers {
    /// Sets how many rebuilt bytes are kept.
    pub fn limit(&self, bytes_max: usize) {
        self.outcomes.lock().limit(bytes_max);
    }

    /// The rebuilt bytes of a container.
    pub fn rebuilt(&self, name: &BlobName) -> Option<Arc<RebuiltContainer>> {
        match self.outcomes.lock().get(name)?.1 {
            HealOutcome::Rebuilt(rebuilt) => Some(rebuilt),
            _ => None,
        }
    }

    /// Whether a container was rebuilt and not forgotten.
    pub fn has(&self, name: &BlobName) -> bool {
        self.names.lock().contains(name)
    }

    /// What was found out about a container a moment ago.
    pub fn recent(&self, name: &BlobName) -> Option<HealOutcome> {
        let (since, outcome) = self.outcomes.lock().get(name)?;
        (since.elapsed() < STAYS).then_some(outcome)
    }

    pub fn note(&self, name: &BlobName, outcome: HealOutcome) {
        let (mut bytes, mut untried) = (OUTCOME_BYTES, self.untried.lock());
        match &outcome {
            HealOutcome::Untried(reason) if untried.len() < NAMES_MAX => {
                drop(untried.insert(name.clone(), reason.clone()))
            }
            _ => drop(untried.remove(name)),
        }
        drop(untried);
        let mut names = self.names.lock();
        match &outcome {
            HealOutcome::Rebuilt(rebuilt) => {
                bytes += rebuilt.bytes();
                if names.len() < NAMES_MAX {
                    names.insert(name.clone());
                }
            }
            _ => drop(names.remove(name)),
        }
        drop(names);
        self.outcomes.lock().put(name.clone(), (Instant::now(), outcome), bytes);
    }

    /// Notes that the store has a blob.
    pub fn note_seen(&self, name: &BlobName) {
        let mut seen = self.seen.lock();
        if seen.len() < NAMES_MAX {
            seen.insert(name.clone(), Instant::now());
        }
    }

    /// Whether the store had a blob less than `since` ago.
    pub fn was_seen(&self, name: &BlobName, since: Duration) -> bool {
        self.seen.lock().get(name).is_some_and(|at| at.elapsed() < since)
    }

    /// Notes parity in cold storage.
    pub fn note_cold(&self, parity: BlobName) {
        let mut cold = self.cold.lock();
        if cold.len() < NAMES_MAX {
            cold.insert(parity);
        }
    }

    /// Parity in cold storage that was to be read.
    pub fn cold(&self) -> Vec<BlobName> {
        self.cold.lock().iter().cloned().collect()
    }

    /// Notes a container that takes more memory than a heal may.
    pub fn note_too_large(&self, name: BlobName) {
        let mut too_large = self.too_large.lock();
        if too_large.len() < NAMES_MAX {
            too_large.insert(name);
        }
    }

    /// The containers that take more memory.
    pub fn too_large(&self) -> Vec<BlobName> {
        self.too_large.lock().iter().cloned().collect()
    }

    /// Why the parity of a blob was not tried.
    pub fn untried(&self, name: &BlobName) -> Option<String> {
        self.untried.lock().get(name).map(ToString::to_string)
    }

    /// Forgets a container that was written again or deleted.
    pub fn forget(&self, name: &BlobName) {
        self.untried.lock().remove(name);
        self.outcomes.lock().remove(name);
        self.names.lock().remove(name);
        self.seen.lock().remove(name);
    }

    /// The containers that were rebuilt and not forgotten.
    pub fn names(&self) -> Vec<BlobName> {
        self.names.lock().iter().cloned().collect()
    }
}

/// The error of a container that parity does not heal.
pub(super) fn not_healed(name: &BlobName) -> Error {
    Error::corrupt(name, 0, "bytes that parity gives back", "too many that are bad")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::ParityShare;

    #[test]
    fn ranges_are_read_from_the_store_but_for_what_is_rebuilt() {
        let layout = ParityLayout::new(20_000, ParityShare::new(300).unwrap()).unwrap();
        let right: Vec<u8> = (0..20_480u32).map(|at| (at / 7) as u8).collect();
        let numbers = BTreeSet::from([1, 2, 4]);
        let rebuilt = RebuiltContainer::new(&layout, &numbers, &right);
        assert_eq!(
            rebuilt.ranges.iter().map(|(start, bytes)| (*start, bytes.len())).collect::<Vec<_>>(),
            [(4096, 8192), (16_384, 3616)]
        );
        let read = |offset: u64, len: usize| {
            let touched = offset / 4096..(offset + len as u64).div_ceil(4096);
            assert!(touched.into_iter().all(|number| !numbers.contains(&(number as usize))), "{offset}, {len}");
            Ok(right[offset as usize..][..len].to_vec())
        };
        for (offset, len) in
            [(0, 20_000), (0, 4096), (4000, 200), (4096, 8192), (5000, 10), (12_000, 400), (19_999, 1), (16_000, 4000)]
        {
            let got = rebuilt.read("x", offset, len, read).unwrap();
            assert!(got == right[offset as usize..][..len], "{offset}, {len}");
        }
        assert!(rebuilt.read("x", 19_999, 2, read).is_err(), "behind the end");
    }
}
