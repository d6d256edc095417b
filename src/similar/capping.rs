//! Capping: a bound on the containers that a batch of chunks may use, after Destor's capping (Lillibridge, Eshghi,
//! Bhagwat, FAST 2013).
//!
//! Copies from many containers slow down a restore. A batch is a group of entries whose literal bytes share frames.
//!
//! 1. The matches of each chunk of the batch are taken longest first.
//! 2. A match that needs a container beyond the bound is dropped. Its bytes become literal.
//!
//! All containers of the running session count as one, because they are written in sequence.

use std::collections::BTreeSet;

use super::Match;
use crate::repo::container::ContainerNumber;

/// Where the bytes of a match are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MatchOrigin {
    /// A container stored before the session.
    Container(ContainerNumber),
    /// The running session. It counts as one container.
    Session,
}

/// Bounds the containers of a batch.
#[derive(Debug)]
pub struct ContainerCapping {
    containers_max: usize,
    /// Containers that the batch uses so far.
    used: BTreeSet<MatchOrigin>,
}

impl ContainerCapping {
    /// Allows `containers_max` containers per batch.
    pub fn new(containers_max: usize) -> Self {
        ContainerCapping { containers_max, used: BTreeSet::new() }
    }

    /// Starts a new batch.
    pub fn reset(&mut self) {
        self.used.clear();
    }

    /// Drops the matches that need too many containers. `origins` holds the containers of each match.
    pub fn apply(&mut self, matches: &mut Vec<Match>, origins: &[BTreeSet<MatchOrigin>]) {
        let mut order: Vec<usize> = (0..matches.len()).collect();
        order.sort_by_key(|at| std::cmp::Reverse(matches.get(*at).map(|found| found.len)));
        let mut keep = vec![true; matches.len()];
        for at in order {
            let (Some(origins), Some(keep)) = (origins.get(at), keep.get_mut(at)) else { continue };
            *keep = self.used.len() + origins.difference(&self.used).count() <= self.containers_max;
            if *keep {
                self.used.extend(origins);
            }
        }
        let mut keep = keep.into_iter();
        matches.retain(|_| keep.next().unwrap_or(false));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repo::container::EntryNumber;

    #[test]
    fn the_longest_matches_get_the_containers() {
        let base = EntryNumber::stored(ContainerNumber(0), 0);
        let find = |position, len| Match { position, base, offset: 0, len };
        let from = |number| BTreeSet::from([MatchOrigin::Container(ContainerNumber(number))]);
        let mut capping = ContainerCapping::new(2);
        let mut matches = vec![find(0, 10), find(20, 500), find(600, 200), find(900, 50)];
        capping.apply(&mut matches, &[from(1), from(2), from(3), from(2)]);
        assert_eq!(matches.iter().map(|found| found.position).collect::<Vec<_>>(), [20, 600, 900]);
        let mut next = vec![find(0, 10)];
        capping.apply(&mut next, &[from(1)]);
        assert!(next.is_empty(), "the batch is full");
        capping.reset();
        next.push(find(0, 10));
        capping.apply(&mut next, &[from(1)]);
        assert_eq!(next.len(), 1);
    }
}
