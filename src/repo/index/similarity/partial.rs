//! Containers of which only clues are in the pages: how they come there, and when all their features follow.

use std::collections::HashSet;

use super::super::container_indexes::read_container_index;
use super::clues;
use super::similarity_index::{FEATURES_ADDED_MAX, INDEXES_READ_MIN, OpenIndex};
use crate::error::Result;
use crate::store::Store;
use crate::types::ContainerId;

/// Clues that opening the index reads, bytes, at most.
const CLUE_BYTES_MAX: u64 = 12 << 20;
/// Numbers above this are given to no container of which only clues are known: clues can say any number of entries.
const PARTIAL_NUMBERS_MAX: u64 = 1 << 30;

impl OpenIndex {
    /// Adds the clues of `new` containers but those that were stored last, and removes these containers from it.
    /// Returns whether clues tell of most of them, now or in later runs, and which containers have none: no container,
    /// if not all blobs were read.
    pub(super) fn take_clues(
        &mut self,
        store: &dyn Store,
        listed: &HashSet<ContainerId>,
        new: &mut Vec<ContainerId>,
    ) -> Result<(bool, HashSet<ContainerId>)> {
        let count = new.len();
        let last: HashSet<ContainerId> = new.iter().take(INDEXES_READ_MIN).copied().collect();
        let (mut left, mut refused) = (new.iter().copied().collect::<HashSet<ContainerId>>(), HashSet::new());
        let mut taken = std::mem::take(&mut self.numbers.taken);
        let visited = clues::visit(store, &mut taken, CLUE_BYTES_MAX, |clues| {
            let is_listed = listed.contains(&clues.container);
            if !left.remove(&clues.container) || last.contains(&clues.container) {
                return is_listed;
            }
            let fits = self.numbers.next < PARTIAL_NUMBERS_MAX;
            let first = fits.then(|| self.numbers.assign_partial(clues.container, clues.entries as usize)).flatten();
            match first {
                Some(first) => clues.clues.iter().for_each(|(entry, hash)| {
                    self.insert(u64::from(first) + u64::from(*entry), &[*hash]);
                }),
                None => _ = refused.insert(clues.container),
            }
            is_listed
        });
        self.numbers.taken = taken;
        new.retain(|id| last.contains(id) || left.contains(id) || refused.contains(id));
        // Where clues cannot be listed, nobody knows what they tell.
        let Some(is_all) = visited? else { return Ok((false, HashSet::new())) };
        if !is_all {
            left.clear();
        }
        Ok((!is_all || new.len() * 2 <= count, left))
    }

    /// Whether any container may still be completed in this run.
    pub(super) fn has_partial(&self) -> bool {
        self.numbers.has_partial() && self.features_added < FEATURES_ADDED_MAX
    }

    /// Adds all features of the containers that are known to have `feature` by a clue.
    pub(super) fn complete(&mut self, store: &dyn Store, feature: u64) {
        let mut seen = HashSet::new();
        let found = self.table.find(feature).filter_map(|number| self.numbers.partial(number));
        let containers: Vec<ContainerId> = found.filter(|id| seen.insert(*id)).collect();
        for container in containers {
            if self.unread.contains(&container) {
                continue;
            }
            let container_index = match read_container_index(store, &container) {
                Ok(container_index) => container_index,
                // The run ends.
                Err(error) if error.stops_reading() => return,
                Err(error) => {
                    tracing::warn!("not using the chunks of a container as bases: {error}");
                    self.unread.insert(container);
                    continue;
                }
            };
            let Some((first, entries)) = self.numbers.complete(&container) else { continue };
            for (entry, number) in container_index.entries.iter().take(entries as usize).zip(first..) {
                let features = container_index.features(entry);
                self.features_added += features.len();
                for feature in features {
                    if self.table.find(*feature).all(|found| found != number) {
                        self.insert(u64::from(number), &[*feature]);
                    }
                }
            }
        }
    }
}
