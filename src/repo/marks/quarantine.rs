//! The frames and entries of containers whose bytes proved bad.

use std::collections::{BTreeMap, BTreeSet};

use crate::types::ContainerId;

/// Ranges of a container, at most. A container with more is quarantined whole.
const RANGES_MAX: usize = 1 << 10;

/// A set of positions, stored as ranges.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PositionSet {
    /// Start and end of each range, ascending. No two ranges touch.
    ranges: Vec<(u32, u32)>,
}

impl PositionSet {
    /// Adds the positions `start..end`.
    pub fn insert(&mut self, start: u32, end: u32) {
        if start >= end {
            return;
        }
        let first = self.ranges.partition_point(|range| range.1 < start);
        let after = self.ranges.partition_point(|range| range.0 <= end);
        let touched = self.ranges.get(first..after).unwrap_or_default();
        let start = touched.first().map_or(start, |range| range.0.min(start));
        let end = touched.last().map_or(end, |range| range.1.max(end));
        self.ranges.splice(first..after, [(start, end)]);
    }

    /// Whether it has a position.
    pub fn contains(&self, position: u32) -> bool {
        let next = self.ranges.partition_point(|range| range.1 <= position);
        self.ranges.get(next).is_some_and(|range| range.0 <= position)
    }

    /// Number of positions.
    pub fn count(&self) -> u64 {
        self.ranges.iter().map(|(start, end)| u64::from(end - start)).sum()
    }

    /// Start and end of each range, ascending.
    pub fn ranges(&self) -> &[(u32, u32)] {
        &self.ranges
    }
}

/// What is bad in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BadParts {
    /// Everything: the container index cannot be read.
    Whole,
    /// Some frames, and every entry that cannot be assembled, be it for a bad frame of its own or of a base.
    Parts {
        /// Positions of frames.
        frames: PositionSet,
        /// Positions of entries.
        entries: PositionSet,
    },
}

impl BadParts {
    /// Adds what `other` has.
    pub fn merge(&mut self, other: &BadParts) {
        match (&mut *self, other) {
            (BadParts::Parts { frames, entries }, BadParts::Parts { frames: more_frames, entries: more_entries }) => {
                more_frames.ranges.iter().for_each(|(start, end)| frames.insert(*start, *end));
                more_entries.ranges.iter().for_each(|(start, end)| entries.insert(*start, *end));
                if frames.ranges.len() + entries.ranges.len() > RANGES_MAX {
                    *self = BadParts::Whole;
                }
            }
            _ => *self = BadParts::Whole,
        }
    }
}

/// What is bad in a repository, as far as it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Quarantine {
    containers: BTreeMap<ContainerId, BadParts>,
}

impl Quarantine {
    /// Adds bad parts of a container.
    pub fn insert(&mut self, container: ContainerId, parts: &BadParts) {
        let none = BadParts::Parts { frames: PositionSet::default(), entries: PositionSet::default() };
        self.containers.entry(container).or_insert(none).merge(parts);
    }

    /// Adds everything that `other` has.
    pub fn merge(&mut self, other: &Quarantine) {
        other.containers.iter().for_each(|(container, parts)| self.insert(*container, parts));
    }

    /// The same without some containers.
    #[must_use]
    pub fn without(&self, containers: &BTreeSet<ContainerId>) -> Self {
        let left = self.containers.iter().filter(|(id, _)| !containers.contains(id));
        Quarantine { containers: left.map(|(id, parts)| (*id, parts.clone())).collect() }
    }

    /// Whether an entry is not listed here, so that its chunk counts as stored.
    pub fn is_usable(&self, container: &ContainerId, entry: u32) -> bool {
        match self.containers.get(container) {
            None => true,
            Some(BadParts::Whole) => false,
            Some(BadParts::Parts { entries, .. }) => !entries.contains(entry),
        }
    }

    /// The bad parts of a container.
    pub fn of(&self, container: &ContainerId) -> Option<&BadParts> {
        self.containers.get(container)
    }

    /// The containers with bad parts, ascending.
    pub fn containers(&self) -> impl Iterator<Item = (&ContainerId, &BadParts)> {
        self.containers.iter()
    }

    /// Whether nothing is bad.
    pub fn is_empty(&self) -> bool {
        self.containers.is_empty()
    }

    /// A hash of all that is listed.
    pub fn hash(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        for (container, parts) in &self.containers {
            hasher.update(&container.0);
            match parts {
                BadParts::Whole => drop(hasher.update(&[0])),
                BadParts::Parts { frames, entries } => {
                    hasher.update(&[1]);
                    for positions in [frames, entries] {
                        hasher.update(&(positions.ranges.len() as u64).to_le_bytes());
                        for (start, end) in &positions.ranges {
                            hasher.update(&start.to_le_bytes());
                            hasher.update(&end.to_le_bytes());
                        }
                    }
                }
            }
        }
        *hasher.finalize().as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_position_set_has_what_was_inserted(ranges in prop::collection::vec((0u32..60, 0u32..12), 0..20)) {
            let (mut set, mut reference) = (PositionSet::default(), std::collections::BTreeSet::new());
            for (start, len) in ranges {
                set.insert(start, start + len);
                reference.extend(start..start + len);
            }
            prop_assert!((0..80).all(|position| set.contains(position) == reference.contains(&position)));
            prop_assert_eq!(set.count(), reference.len() as u64);
            prop_assert!(set.ranges().windows(2).all(|pair| pair[0].1 < pair[1].0));
        }
    }

    #[test]
    fn a_container_of_very_many_bad_ranges_is_bad_as_a_whole() {
        let id = ContainerId([1; 32]);
        let mut quarantine = Quarantine::default();
        let mut entries = PositionSet::default();
        (0..RANGES_MAX as u32).for_each(|position| entries.insert(2 * position, 2 * position + 1));
        quarantine.insert(id, &BadParts::Parts { frames: PositionSet::default(), entries });
        assert!(!quarantine.is_usable(&id, 2) && quarantine.is_usable(&id, 3));
        let mut entries = PositionSet::default();
        entries.insert(1 << 20, (1 << 20) + 1);
        quarantine.insert(id, &BadParts::Parts { frames: PositionSet::default(), entries });
        assert!(!quarantine.is_usable(&id, 3) && quarantine.is_usable(&ContainerId([2; 32]), 3));
    }
}
