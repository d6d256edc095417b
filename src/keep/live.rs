//! The entries that something needs: a bit for each entry of each container.

use std::collections::HashMap;

use crate::types::ContainerId;

/// A set of entries. Its memory is one bit for each entry, and a few words for each container.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LiveSet {
    containers: HashMap<ContainerId, Vec<u64>>,
}

fn bit_of(entry: u32) -> (usize, u64) {
    ((entry / 64) as usize, 1 << (entry % 64))
}

impl LiveSet {
    /// Adds an entry. Returns whether it is new.
    pub fn insert(&mut self, container: ContainerId, entry: u32) -> bool {
        let bits = self.containers.entry(container).or_default();
        let (slot, bit) = bit_of(entry);
        if bits.len() <= slot {
            bits.resize(slot + 1, 0);
        }
        let known = bits.get_mut(slot);
        let is_new = known.as_ref().is_some_and(|slot| **slot & bit == 0);
        if let Some(slot) = known {
            *slot |= bit;
        }
        is_new
    }

    /// Whether it has an entry.
    pub fn contains(&self, container: &ContainerId, entry: u32) -> bool {
        let (slot, bit) = bit_of(entry);
        self.containers.get(container).and_then(|bits| bits.get(slot)).is_some_and(|slot| slot & bit != 0)
    }

    /// Whether it has any entry of a container.
    pub fn has_any(&self, container: &ContainerId) -> bool {
        self.containers.contains_key(container)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_new_once() {
        let (mut live, [one, other]) = (LiveSet::default(), [1, 2].map(|byte| ContainerId([byte; 32])));
        for entry in [0, 63, 64, 1000] {
            assert!(!live.contains(&one, entry));
            assert!(live.insert(one, entry));
            assert!(!live.insert(one, entry));
            assert!(live.contains(&one, entry) && !live.contains(&other, entry));
        }
        assert!(live.has_any(&one) && !live.has_any(&other));
        assert!(!live.contains(&one, 65));
    }
}
