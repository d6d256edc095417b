//! Decides which decoded frames a restore keeps in memory: those that are needed again soonest.
//!
//! 1. A use of a frame is announced when Order gets a chunk, and taken when the chunk enters a job. The uses between
//!    these two steps are the window. `item_order` decides in which order they are taken.
//! 2. If the frames exceed the limit, the frame whose next use in the window is furthest is evicted. Frames without a
//!    use in the window are evicted before these, the least recently used one first.
//!
//! With all future uses in the window this is Belady's replacement (1966). With an empty window it is LRU. This type
//! only decides: Gather holds the bytes.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, VecDeque};

use crate::error::Result;
use crate::repo::container::FrameNumber;

/// Next use of a frame without a use in the window.
const UNKNOWN: u64 = u64::MAX;

/// Where a frame is stored (`L`) and its decoded length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameSource<L> {
    pub location: L,
    /// Decoded bytes.
    pub bytes: u64,
}

/// A frame that is cached or has a use in the window.
struct TrackedFrame<L> {
    source: FrameSource<L>,
    /// Steps that use the frame, ascending.
    uses: VecDeque<u64>,
    /// Number of the take that used it last; `None` if the frame is not cached.
    last_use: Option<u64>,
}

impl<L> TrackedFrame<L> {
    fn next_use(&self) -> u64 {
        self.uses.front().copied().unwrap_or(UNKNOWN)
    }
}

/// The cached frames and the announced uses, by frame number.
pub struct FrameCache<L> {
    frames: HashMap<FrameNumber, TrackedFrame<L>>,
    /// Cached frames by next use, and by last use in descending order. The last one is evicted first.
    order: BTreeSet<(u64, Reverse<u64>, FrameNumber)>,
    bytes: u64,
    /// Takes so far.
    takes: u64,
}

impl<L> Default for FrameCache<L> {
    fn default() -> Self {
        FrameCache { frames: HashMap::new(), order: BTreeSet::new(), bytes: 0, takes: 0 }
    }
}

impl<L: Clone> FrameCache<L> {
    /// Announces that step `step` uses `frames`, each listed once. Steps must not decrease between calls. `find`
    /// returns the source of a frame.
    ///
    /// # Errors
    /// Returns the error of `find`. Nothing is announced then.
    pub fn announce(
        &mut self,
        step: u64,
        frames: &[FrameNumber],
        mut find: impl FnMut(FrameNumber) -> Result<FrameSource<L>>,
    ) -> Result<()> {
        let new = frames.iter().filter(|frame| !self.frames.contains_key(frame));
        let found = new.map(|frame| Ok((*frame, find(*frame)?))).collect::<Result<Vec<_>>>()?;
        for (frame, source) in found {
            self.frames.insert(frame, TrackedFrame { source, uses: VecDeque::new(), last_use: None });
        }
        for frame in frames {
            let Some(tracked) = self.frames.get_mut(frame) else { continue };
            if let Some(last_use) = tracked.last_use.filter(|_| tracked.uses.is_empty()) {
                self.order.remove(&(UNKNOWN, Reverse(last_use), *frame));
                self.order.insert((step, Reverse(last_use), *frame));
            }
            tracked.uses.push_back(step);
        }
        Ok(())
    }

    /// Whether a frame is cached.
    pub fn is_cached(&self, frame: FrameNumber) -> bool {
        self.frames.get(&frame).is_some_and(|tracked| tracked.last_use.is_some())
    }

    /// Announced steps that use a frame, ascending.
    pub fn uses(&self, frame: FrameNumber) -> impl Iterator<Item = u64> {
        self.frames.get(&frame).into_iter().flat_map(|tracked| tracked.uses.iter().copied())
    }

    /// Uses a frame in step `step`, as announced, and caches it. Returns its source if it must be loaded first.
    pub fn take(&mut self, step: u64, frame: FrameNumber) -> Option<FrameSource<L>> {
        let tracked = self.frames.get_mut(&frame)?;
        if let Some(last_use) = tracked.last_use {
            self.order.remove(&(tracked.next_use(), Reverse(last_use), frame));
        }
        if let Ok(position) = tracked.uses.binary_search(&step) {
            tracked.uses.remove(position);
        }
        self.takes += 1;
        self.order.insert((tracked.next_use(), Reverse(self.takes), frame));
        if tracked.last_use.replace(self.takes).is_some() {
            return None;
        }
        self.bytes += tracked.source.bytes;
        Some(tracked.source.clone())
    }

    /// Decoded bytes of the cached frames.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Evicts frames until at most `bytes_max` bytes are cached, and returns the evicted ones.
    pub fn evict(&mut self, bytes_max: u64) -> Vec<FrameNumber> {
        let mut evicted = Vec::new();
        while self.bytes > bytes_max {
            let Some((next_use, _, frame)) = self.order.pop_last() else { break };
            if let Some(tracked) = self.frames.get_mut(&frame) {
                self.bytes -= tracked.source.bytes;
                tracked.last_use = None;
            }
            if next_use == UNKNOWN {
                self.frames.remove(&frame);
            }
            evicted.push(frame);
        }
        evicted
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;
    use crate::error::Error;
    use crate::repo::container::ContainerNumber;

    fn frame(position: u64) -> FrameNumber {
        FrameNumber::stored(ContainerNumber(0), position as u32)
    }

    fn source(_frame: FrameNumber) -> Result<FrameSource<()>> {
        Ok(FrameSource { location: (), bytes: 1 })
    }

    /// Loads for uses of frames of one byte, each announced `window` steps before it is taken.
    fn loads(uses: &[u64], window: usize, frames_max: u64) -> usize {
        let mut cache = FrameCache::default();
        let (mut loads, mut held) = (0, HashSet::new());
        for announced in 0..uses.len() + window {
            if let Some(position) = uses.get(announced) {
                cache.announce(announced as u64, &[frame(*position)], source).unwrap();
            }
            let Some(step) = announced.checked_sub(window) else { continue };
            let is_loaded = cache.take(step as u64, frame(uses[step])).is_some();
            assert_eq!(is_loaded, held.insert(frame(uses[step])), "step {step} of {uses:?}");
            loads += usize::from(is_loaded);
            for evicted in cache.evict(frames_max) {
                assert!(held.remove(&evicted));
            }
            assert!(held.len() as u64 <= frames_max);
        }
        assert!(cache.frames.len() as u64 <= frames_max, "an evicted frame is still tracked");
        loads
    }

    /// Fewest loads over all eviction orders, if a frame may be evicted right after its use.
    fn fewest_loads(uses: &[u64], held: &mut Vec<u64>, frames_max: usize) -> usize {
        let Some((frame, rest)) = uses.split_first() else { return 0 };
        let load = usize::from(!held.contains(frame));
        if load == 1 {
            held.push(*frame);
        }
        let best = match held.len() <= frames_max {
            true => fewest_loads(rest, &mut held.clone(), frames_max),
            false => (0..held.len())
                .map(|evicted| {
                    let mut remaining = held.clone();
                    remaining.remove(evicted);
                    fewest_loads(rest, &mut remaining, frames_max)
                })
                .min()
                .unwrap_or(0),
        };
        load + best
    }

    #[test]
    fn part_of_a_cycle_longer_than_the_cache_stays_cached() {
        let uses: Vec<u64> = (0..10).flat_map(|_| 0..8).collect();
        assert_eq!(loads(&uses, 0, 6), 80, "LRU evicts each frame just before it is needed");
        let with_window = loads(&uses, 80, 6);
        assert!(with_window <= 8 + 9 * 3, "{with_window}");
    }

    #[test]
    fn a_frame_without_a_source_is_not_tracked() {
        let mut cache: FrameCache<()> = FrameCache::default();
        let find = |number| match number == frame(7) {
            true => Err(Error::Usage("lost".into())),
            false => source(number),
        };
        cache.announce(0, &[frame(1), frame(7)], find).unwrap_err();
        assert!(cache.frames.is_empty());
        cache.announce(0, &[frame(2)], find).unwrap();
        assert_eq!((cache.take(0, frame(2)).is_some(), cache.evict(1)), (true, vec![]));
    }

    proptest! {
        #[test]
        fn a_window_of_all_uses_gives_the_fewest_loads(
            uses in prop::collection::vec(0u64..5, 0..9), frames_max in 1u64..4,
        ) {
            let best = fewest_loads(&uses, &mut Vec::new(), frames_max as usize);
            prop_assert_eq!(loads(&uses, uses.len(), frames_max), best);
        }

        #[test]
        fn the_cache_agrees_with_the_held_frames_for_any_window(
            uses in prop::collection::vec(0u64..12, 0..200), window in 0usize..40, frames_max in 1u64..8,
        ) {
            let distinct = uses.iter().collect::<HashSet<_>>().len();
            prop_assert!(loads(&uses, window, frames_max) >= distinct);
        }
    }
}
