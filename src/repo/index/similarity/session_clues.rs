//! The clues of what a run stores, in bounded memory.

use super::SessionContainer;
use super::clues::{ContainerClues, clues_of};
use crate::repo::container::SessionEntryNumber;
use crate::types::ContainerId;

/// Bytes of a clue in memory, if half of what a vector holds is used.
const CLUE_BYTES: u64 = 32;
/// Clues that are always held.
const COUNT_MIN: usize = 1 << 10;

/// See the module.
pub(super) struct SessionClues {
    /// Numbers of session entries, ascending, and hashes.
    clues: Vec<(u64, u64)>,
    count_max: usize,
    /// Only entries whose numbers end with so many zero bits have clues.
    zero_bits: u32,
}

impl SessionClues {
    /// No clues. They will take at most `bytes_max` bytes of memory: beyond that, of all entries half have none.
    pub(super) fn new(bytes_max: u64) -> Self {
        let count_max = COUNT_MIN.max((bytes_max / CLUE_BYTES) as usize);
        SessionClues { clues: Vec::new(), count_max, zero_bits: 0 }
    }

    /// Adds an entry with its features. Entries come in ascending order.
    pub(super) fn insert(&mut self, entry: SessionEntryNumber, features: &[u64]) {
        if !self.has_clues(entry.0) {
            return;
        }
        self.clues.extend(clues_of(features).map(|hash| (entry.0, hash)));
        while self.clues.len() > self.count_max && self.zero_bits < 32 {
            self.zero_bits += 1;
            let zero_bits = self.zero_bits;
            self.clues.retain(|(number, _)| number.trailing_zeros() >= zero_bits);
        }
    }

    fn has_clues(&self, number: u64) -> bool {
        number.trailing_zeros() >= self.zero_bits
    }

    /// The clues of the `containers` of the run, which are by ascending first entry, and those of the `others`, which
    /// have none. Empty if there are no clues at all.
    pub(super) fn of_containers(self, containers: &[SessionContainer], others: &[ContainerId]) -> Vec<ContainerClues> {
        let mut clues = self.clues.into_iter().peekable();
        let mut found = Vec::with_capacity(containers.len() + others.len());
        for SessionContainer { first, entries, container } in containers {
            let end = first.0 + u64::from(*entries);
            // Entries that no container got.
            while clues.next_if(|(number, _)| *number < first.0).is_some() {}
            let mut of_container = Vec::new();
            while let Some((number, hash)) = clues.next_if(|(number, _)| *number < end) {
                of_container.push(((number - first.0) as u32, hash));
            }
            match (of_container.is_empty(), self.zero_bits) {
                (false, _) => {
                    found.push(ContainerClues { container: *container, entries: *entries, clues: of_container });
                }
                (true, zero_bits) if zero_bits == 0 || *entries == 0 => found.push(ContainerClues::none(*container)),
                // It may have features: others read its index.
                _ => {}
            }
        }
        if found.iter().all(|found| found.clues.is_empty()) {
            return Vec::new();
        }
        found.extend(others.iter().map(|container| ContainerClues::none(*container)));
        found
    }
}
