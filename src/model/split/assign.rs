//! Places units by their bytes, for a driver that knows all of them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::work_split::{LastUnit, UnitTally, WorkSplit};

impl WorkSplit {
    /// Gives each unit to the share that has the fewest bytes, those with the most bytes first.
    pub fn assign_by_bytes(&mut self) {
        let mut units: Vec<(&String, &UnitTally)> = self.units.iter().collect();
        units.sort_by_key(|(unit, tally)| (Reverse(tally.bytes), *unit));
        let mut shares: BinaryHeap<Reverse<(u64, u64, u32)>> =
            (1..=self.count).map(|share| Reverse((0, 0, share))).collect();
        let mut placed = Vec::with_capacity(units.len());
        for (unit, tally) in units {
            let Some(Reverse((bytes, files, share))) = shares.pop() else { break };
            placed.push((unit.clone(), share));
            shares.push(Reverse((bytes.saturating_add(tally.bytes), files.saturating_add(tally.files), share)));
        }
        self.assigned = placed.into_iter().collect();
        self.last = LastUnit::default();
        self.update_digest();
    }
}
