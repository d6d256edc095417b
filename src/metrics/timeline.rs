//! A quantity over the time of a run, in constant memory: means over slots of equal width.
//!
//! 1. A value goes to the slot of its time.
//! 2. A time after the last slot doubles the width of all slots: each pair of neighbours is added up, which frees the
//!    second half.
//! 3. Timelines with the same start can be merged. The finer one is coarsened first.

use std::time::Duration;

/// Slots of a timeline.
const SLOTS: usize = 128;
/// Initial width of a slot, milliseconds.
const SLOT_MS: u64 = 4;

/// Sum and number of the values of a slot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Slot {
    sum: u64,
    count: u64,
}

/// Means of a quantity over time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeline {
    slot_ms: u64,
    slots: Vec<Slot>,
}

impl Default for Timeline {
    fn default() -> Self {
        Timeline { slot_ms: SLOT_MS, slots: Vec::new() }
    }
}

impl Slot {
    fn add(&mut self, other: Slot) {
        self.sum = self.sum.saturating_add(other.sum);
        self.count += other.count;
    }
}

impl Timeline {
    /// Records a value at the time `at` after the start.
    pub fn record(&mut self, at: Duration, value: u64) {
        let at_ms = u64::try_from(at.as_millis()).unwrap_or(u64::MAX >> 1);
        while at_ms / self.slot_ms >= SLOTS as u64 {
            self.coarsen();
        }
        let slot = (at_ms / self.slot_ms) as usize;
        self.reach(slot);
        if let Some(slot) = self.slots.get_mut(slot) {
            slot.add(Slot { sum: value, count: 1 });
        }
    }

    /// Adds all values of `other`, which has the same start.
    pub fn merge(&mut self, other: &Timeline) {
        let mut other = other.clone();
        while self.slot_ms < other.slot_ms {
            self.coarsen();
        }
        while other.slot_ms < self.slot_ms {
            other.coarsen();
        }
        self.reach(other.slots.len().saturating_sub(1));
        for (slot, other) in self.slots.iter_mut().zip(other.slots) {
            slot.add(other);
        }
    }

    /// Each slot with values: its middle, in seconds after the start, and the mean of its values.
    pub fn means(&self) -> impl Iterator<Item = (f64, f64)> {
        let width = self.slot_ms as f64 / 1e3;
        let used = (0u32..).zip(&self.slots).filter(|(_, slot)| slot.count > 0);
        used.map(move |(number, slot)| ((f64::from(number) + 0.5) * width, slot.sum as f64 / slot.count as f64))
    }

    fn reach(&mut self, slot: usize) {
        if slot >= self.slots.len() {
            self.slots.resize(slot + 1, Slot::default());
        }
    }

    fn coarsen(&mut self) {
        self.slot_ms *= 2;
        let coarser = self.slots.chunks(2).map(|pair| {
            let mut slot = Slot::default();
            pair.iter().for_each(|half| slot.add(*half));
            slot
        });
        self.slots = coarser.collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(values: &[(u64, u64)]) -> Timeline {
        let mut timeline = Timeline::default();
        values.iter().for_each(|(at, value)| timeline.record(Duration::from_millis(*at), *value));
        timeline
    }

    #[test]
    fn a_slot_gives_the_mean_and_a_longer_run_widens_the_slots() {
        let timeline = recorded(&[(0, 2), (3, 4), (8, 10)]);
        assert_eq!(timeline.means().collect::<Vec<_>>(), [(0.002, 3.0), (0.01, 10.0)]);
        let long = recorded(&[(0, 2), (3, 4), (8, 10), (1023, 7)]);
        assert_eq!(long.slot_ms, 8);
        assert_eq!(long.means().collect::<Vec<_>>(), [(0.004, 3.0), (0.012, 10.0), (1.02, 7.0)]);
        let mut endless = long.clone();
        endless.record(Duration::MAX, 1);
        assert!(endless.slots.len() <= SLOTS && endless.means().count() >= 2, "{endless:?}");
    }

    #[test]
    fn a_merge_equals_one_recording_of_all_values() {
        let (short, long) = (&[(0, 2), (9, 5)][..], &[(1, 4), (900, 7), (4000, 1)][..]);
        let both = recorded(&[short, long].concat());
        for (first, second) in [(short, long), (long, short)] {
            let mut merged = recorded(first);
            merged.merge(&recorded(second));
            assert_eq!(merged, both);
        }
    }
}
