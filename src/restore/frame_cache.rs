//! Which decoded frames a restore keeps: those that are needed again soonest, as far as Plan sees ahead.
//!
//! 1. Every use of a frame is announced when Plan comes upon it, and taken when its turn to be written comes. The uses
//!    in between are the window.
//! 2. When there are too many bytes, the frame goes whose next use in the window is furthest; before those, the ones
//!    without any, least recently used first. With all the future in the window this is Belady's replacement (1966),
//!    with none of it LRU.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, VecDeque};

use crate::error::Result;

/// Next use of a frame that has none in the window.
const UNKNOWN: u64 = u64::MAX;

/// What is known of a frame: kept while it is cached or will be used.
struct TrackedFrame<P> {
    place: P,
    bytes: u64,
    /// Turns at which it is used, ascending.
    uses: VecDeque<u64>,
    /// When it was used last; `None` if it is not cached.
    used: Option<u64>,
}

impl<P> TrackedFrame<P> {
    fn next(&self) -> u64 {
        self.uses.front().copied().unwrap_or(UNKNOWN)
    }
}

/// Decoded frames by number, and where each is stored (`P`).
pub struct FrameCache<P> {
    frames: HashMap<u64, TrackedFrame<P>>,
    /// Cached frames by next use and, last used first, by last use: the last one goes first.
    order: BTreeSet<(u64, Reverse<u64>, u64)>,
    bytes: u64,
}

impl<P> Default for FrameCache<P> {
    fn default() -> Self {
        FrameCache { frames: HashMap::new(), order: BTreeSet::new(), bytes: 0 }
    }
}

impl<P: Clone> FrameCache<P> {
    /// Announces that turn `turn`, no earlier than those announced before, uses `frames`, each named once; `find` says
    /// where one is stored and how many bytes it decodes to.
    ///
    /// # Errors
    /// Those of `find`: then nothing is announced.
    pub fn announce(&mut self, turn: u64, frames: &[u64], mut find: impl FnMut(u64) -> Result<(P, u64)>) -> Result<()> {
        let new = frames.iter().filter(|frame| !self.frames.contains_key(frame));
        let found = new.map(|frame| Ok((*frame, find(*frame)?))).collect::<Result<Vec<_>>>()?;
        for (frame, (place, bytes)) in found {
            self.frames.insert(frame, TrackedFrame { place, bytes, uses: VecDeque::new(), used: None });
        }
        for frame in frames {
            let Some(known) = self.frames.get_mut(frame) else { continue };
            if let Some(used) = known.used.filter(|_| known.uses.is_empty()) {
                self.order.remove(&(UNKNOWN, Reverse(used), *frame));
                self.order.insert((turn, Reverse(used), *frame));
            }
            known.uses.push_back(turn);
        }
        Ok(())
    }

    /// Uses a frame, as announced for `turn`: returns its place and its bytes if it must be loaded, and keeps it.
    pub fn take(&mut self, turn: u64, frame: u64) -> Option<(P, u64)> {
        let known = self.frames.get_mut(&frame)?;
        if let Some(used) = known.used {
            self.order.remove(&(known.next(), Reverse(used), frame));
        }
        while known.uses.front().is_some_and(|next| *next <= turn) {
            known.uses.pop_front();
        }
        self.order.insert((known.next(), Reverse(turn), frame));
        if known.used.replace(turn).is_some() {
            return None;
        }
        self.bytes += known.bytes;
        Some((known.place.clone(), known.bytes))
    }

    /// Bytes of the frames that are cached.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Drops frames until the rest is `bytes_max` bytes or fewer; returns them.
    pub fn evict(&mut self, bytes_max: u64) -> Vec<u64> {
        let mut dropped = Vec::new();
        while self.bytes > bytes_max {
            let Some((next, _, frame)) = self.order.pop_last() else { break };
            if let Some(known) = self.frames.get_mut(&frame) {
                self.bytes -= known.bytes;
                known.used = None;
            }
            if next == UNKNOWN {
                self.frames.remove(&frame);
            }
            dropped.push(frame);
        }
        dropped
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Loads for uses of frames of one byte, each seen `ahead` turns before it comes.
    fn loads(uses: &[u64], ahead: usize, frames_max: u64) -> usize {
        let mut cache = FrameCache::default();
        let (mut loads, mut held) = (0, std::collections::HashSet::new());
        for step in 0..uses.len() + ahead {
            if let Some(frame) = uses.get(step) {
                cache.announce(step as u64, &[*frame], |_| Ok(((), 1))).unwrap();
            }
            let Some(turn) = step.checked_sub(ahead) else { continue };
            let loaded = cache.take(turn as u64, uses[turn]).is_some();
            assert_eq!(loaded, held.insert(uses[turn]), "turn {turn} of {uses:?}");
            loads += usize::from(loaded);
            for frame in cache.evict(frames_max) {
                assert!(held.remove(&frame));
            }
            assert!(held.len() as u64 <= frames_max);
        }
        assert!(cache.frames.len() as u64 <= frames_max, "nothing is remembered of frames that are gone");
        loads
    }

    /// Fewest loads of all choices of what to drop, when a frame may be dropped right after its use.
    fn fewest(uses: &[u64], held: &mut Vec<u64>, frames_max: usize) -> usize {
        let Some((frame, rest)) = uses.split_first() else { return 0 };
        let load = usize::from(!held.contains(frame));
        if load == 1 {
            held.push(*frame);
        }
        let best = match held.len() <= frames_max {
            true => fewest(rest, &mut held.clone(), frames_max),
            false => (0..held.len())
                .map(|drop| {
                    let mut kept = held.clone();
                    kept.remove(drop);
                    fewest(rest, &mut kept, frames_max)
                })
                .min()
                .unwrap_or(0),
        };
        load + best
    }

    #[test]
    fn a_cycle_longer_than_the_cache_is_kept_in_part() {
        let uses: Vec<u64> = (0..10).flat_map(|_| 0..8).collect();
        assert_eq!(loads(&uses, 0, 6), 80, "LRU drops each frame just before it is needed");
        let seen = loads(&uses, 80, 6);
        assert!(seen <= 8 + 9 * 3, "{seen}");
    }

    #[test]
    fn a_frame_that_is_not_found_leaves_no_trace() {
        let mut cache: FrameCache<()> = FrameCache::default();
        let find = |frame| match frame {
            7 => Err(crate::error::Error::Usage("lost".into())),
            _ => Ok(((), 1)),
        };
        cache.announce(0, &[1, 7], find).unwrap_err();
        assert!(cache.frames.is_empty());
        cache.announce(0, &[2], find).unwrap();
        assert_eq!((cache.take(0, 2).is_some(), cache.evict(1)), (true, vec![]));
    }

    proptest! {
        #[test]
        fn with_all_the_future_nothing_loads_less(uses in prop::collection::vec(0u64..5, 0..9), frames_max in 1u64..4) {
            let best = fewest(&uses, &mut Vec::new(), frames_max as usize);
            prop_assert_eq!(loads(&uses, uses.len(), frames_max), best);
        }

        #[test]
        fn any_window_agrees_with_what_is_held(
            uses in prop::collection::vec(0u64..12, 0..200), ahead in 0usize..40, frames_max in 1u64..8,
        ) {
            let distinct = uses.iter().collect::<std::collections::HashSet<_>>().len();
            prop_assert!(loads(&uses, ahead, frames_max) >= distinct);
        }
    }
}
