//! The chunks that Order has got and not sent yet, and the order in which they are sent.
//!
//! 1. Items enter in the order of the snapshot. The frame cache learns then which frames they use.
//! 2. Items leave oldest first. When that loads a frame, all items that use it leave next, if they need no other frame
//!    that is not cached. So a frame that several files share is decoded once while all its uses are in the window.
//! 3. An item that uses no frame never overtakes another one: the end of a file comes after its chunks.

use std::collections::VecDeque;

use super::frame_cache::{FrameCache, FrameSource};
use crate::error::Result;
use crate::repo::container::FrameNumber;

/// An item that may use frames.
pub trait UsesFrames {
    /// The frames, each once.
    fn frames(&self) -> &[FrameNumber];
}

/// Items in the window, and the frames that are cached when the next one leaves.
pub struct ItemOrder<L, T> {
    /// The items. `None`: it has left.
    items: VecDeque<Option<T>>,
    /// Step of the first of `items`. An item's step is the number of items that entered before it.
    first: u64,
    /// Steps that use a frame loaded before.
    overtaking: VecDeque<u64>,
    cached: FrameCache<L>,
}

impl<L, T> Default for ItemOrder<L, T> {
    fn default() -> Self {
        ItemOrder { items: VecDeque::new(), first: 0, overtaking: VecDeque::new(), cached: FrameCache::default() }
    }
}

/// An item that leaves, and the frames that must be loaded first.
pub struct Leaving<L, T> {
    pub item: T,
    pub loads: Vec<(FrameNumber, FrameSource<L>)>,
}

impl<L: Clone, T: UsesFrames> ItemOrder<L, T> {
    /// Adds an item. `find` returns the source of a frame.
    ///
    /// # Errors
    /// Returns the error of `find`. The item has not entered then.
    pub fn push(&mut self, item: T, find: impl FnMut(FrameNumber) -> Result<FrameSource<L>>) -> Result<()> {
        self.cached.announce(self.first + self.items.len() as u64, item.frames(), find)?;
        self.items.push_back(Some(item));
        Ok(())
    }

    /// Takes the next item. Items that are overtaken keep their position.
    pub fn next(&mut self) -> Option<Leaving<L, T>> {
        while let Some(step) = self.overtaking.pop_front() {
            let Some(slot) = step.checked_sub(self.first).and_then(|at| self.items.get_mut(at as usize)) else {
                continue;
            };
            let is_free = |item: &T| item.frames().iter().all(|frame| self.cached.is_cached(*frame));
            if slot.as_ref().is_some_and(is_free)
                && let Some(item) = slot.take()
            {
                return Some(self.leave(step, item));
            }
        }
        loop {
            let item = self.items.pop_front()?;
            self.first += 1;
            if let Some(item) = item {
                return Some(self.leave(self.first - 1, item));
            }
        }
    }

    fn leave(&mut self, step: u64, item: T) -> Leaving<L, T> {
        let mut loads = Vec::new();
        for frame in item.frames() {
            if let Some(source) = self.cached.take(step, *frame) {
                self.overtaking.extend(self.cached.uses(*frame));
                loads.push((*frame, source));
            }
        }
        Leaving { item, loads }
    }

    /// Whether no item is left. Items that overtook others may still take a place.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Places in the window, taken or free.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Decoded bytes of the cached frames.
    pub fn cached_bytes(&self) -> u64 {
        self.cached.bytes()
    }

    /// Evicts frames until at most `bytes_max` bytes are cached, and returns them.
    pub fn evict(&mut self, bytes_max: u64) -> Vec<FrameNumber> {
        self.cached.evict(bytes_max)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use proptest::prelude::*;

    use super::*;
    use crate::repo::container::ContainerNumber;

    /// An item of a test: its number, and its frames.
    struct Item(usize, Vec<FrameNumber>);

    impl UsesFrames for Item {
        fn frames(&self) -> &[FrameNumber] {
            &self.1
        }
    }

    /// Pushes items with the numbers of their frames, each of one byte, with `window` of them inside at a time. Returns
    /// the order in which they left and how often each frame was loaded.
    fn run(items: &[Vec<u32>], window: usize, frames_max: u64) -> (Vec<usize>, HashMap<FrameNumber, usize>) {
        let mut item_order = ItemOrder::default();
        let (mut left, mut loads, mut held) = (Vec::new(), HashMap::new(), HashSet::new());
        let mut pop = |item_order: &mut ItemOrder<(), Item>| {
            let Some(leaving) = item_order.next() else { return };
            for (frame, _) in &leaving.loads {
                *loads.entry(*frame).or_default() += 1;
                assert!(held.insert(*frame), "a held frame is loaded again");
            }
            assert!(leaving.item.1.iter().all(|frame| held.contains(frame)), "a frame is missing");
            left.push(leaving.item.0);
            item_order.evict(frames_max).iter().for_each(|frame| assert!(held.remove(frame)));
        };
        for (number, frames) in items.iter().enumerate() {
            let frames = frames.iter().map(|frame| FrameNumber::stored(ContainerNumber(0), *frame)).collect();
            item_order.push(Item(number, frames), |_| Ok(FrameSource { location: (), bytes: 1 })).unwrap();
            while item_order.len() > window {
                pop(&mut item_order);
            }
        }
        while !item_order.is_empty() {
            pop(&mut item_order);
        }
        (left, loads)
    }

    #[test]
    fn a_frame_that_files_share_is_loaded_once_in_a_small_cache() {
        let file: Vec<Vec<u32>> = (0..50).map(|frame| vec![frame / 2]).collect();
        let four_versions = [file.clone(), file.clone(), file.clone(), file].concat();
        let (left, loads) = run(&four_versions, 200, 2);
        assert_eq!((left.len(), loads.len()), (200, 25));
        assert!(loads.values().all(|count| *count == 1), "{loads:?}");
        let (_, in_order) = run(&four_versions, 0, 2);
        assert!(in_order.values().all(|count| *count == 4), "{in_order:?}");
    }

    #[test]
    fn an_item_without_frames_leaves_after_all_before_it() {
        let (left, _) = run(&[vec![1], vec![], vec![2], vec![1], vec![2], vec![]], 6, 1);
        let position = |number: usize| left.iter().position(|item| *item == number).unwrap();
        assert!(position(1) > position(0) && (0..5).all(|before| position(before) < position(5)), "{left:?}");
        assert_eq!(position(3), 1, "{left:?}");
    }

    proptest! {
        #[test]
        fn every_item_leaves_once_with_its_frames(
            items in prop::collection::vec(prop::collection::btree_set(0u32..12, 0..4), 0..120),
            window in 0usize..130, frames_max in 1u64..6,
        ) {
            let items: Vec<Vec<u32>> = items.into_iter().map(|frames| frames.into_iter().collect()).collect();
            let (mut left, _) = run(&items, window, frames_max);
            for (position, number) in left.iter().enumerate() {
                let is_end = items[*number].is_empty();
                prop_assert!(!is_end || left[position..].iter().all(|later| later >= number));
            }
            left.sort_unstable();
            prop_assert_eq!(left, (0..items.len()).collect::<Vec<_>>());
        }
    }
}
