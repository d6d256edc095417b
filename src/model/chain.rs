//! Chains: on which entry below its base a delta builds, so that few bytes are stored and a read stays cheap.
//!
//! The base of a step of a training run is the step before it, which is a delta to an earlier one. A delta to the step
//! before is shortest, but a read decodes every delta below. So entries of the chain are skipped, top first, as a
//! binary counter carries. Sizes of deltas are in bytes as stored:
//!
//! 1. The new delta is expected to be as long as the sketches say, within the shortest delta of the chain and a third
//!    of that. If there is only one, it may be that of a fine-tune, and steps of its training a twelfth of it.
//! 2. The top is a base if its depth is within the bound, the whole read fetches at most one and a half times the root,
//!    decodes all deltas in at most twice the time of the root, and not three deltas of a single step lie on top
//!    already. Those three are skipped together.
//! 3. Below them, an entry is skipped unless its own delta is longer than expected, and leaves room for two more single
//!    steps: else every step after it would skip as much again. No room is asked of a delta that is three times as long
//!    as expected: to skip it costs more than what the next steps skip. What a delta skips is added to the expectation:
//!    a third of three single steps, half of any other.
//! 4. The root itself is a base, whatever the delta costs. But the block is stored alone and becomes a root if the only
//!    delta on the root is half its size, and clearly longer than the one expected of a single step. Likewise if that
//!    delta leaves no room for another, and single steps have an eighth of its size: every few of them would store the
//!    long delta again.
//!
//! With steps of one size, three of four build on the step before, and of the others step 4n on the one whose number
//! is 4 times n without its lowest set bit. So chains have the length of a logarithm. Where everything changes in every
//! step, each is a delta to the root, for two of them exceed what a read may fetch.
//!
//! Sizes of stored entries come from container indexes. Those of this session are not known yet: they are what was
//! expected of them. The root counts with all that a read of it fetches: a cast is nothing without its base.

use std::num::NonZeroUsize;

use lru::LruCache;

use crate::error::Result;
use crate::repo::container::{DEPTH_LIMIT, EntryNumber, FrameReference, OperationSource, TO_THE_END};
use crate::similar::Bases;

/// Entries of this session whose expected sizes are remembered.
const SIZES_MAX: NonZeroUsize = NonZeroUsize::new(1 << 17).expect("not zero");
/// Share of the delta of a single step that is expected at least, if the sketches say less.
const EXPECTED_SHARE: u64 = 3;
/// The same share if there is one delta only.
const SOLE_SHARE: u64 = 12;
/// A delta to the root that leaves no room is worth a new root if it has so many single steps.
const LONG_STEPS: u64 = 8;
/// A read fetches at most this many halves of the root.
const FETCHED_HALVES: u64 = 3;
/// Sixteenths of the root's time that decoding a delta takes, at most.
const DENSE_PARTS: u64 = 16;
/// Sixteenths that a sparse delta takes, which copies its base, and one more for each 160th of its chunk's bytes.
const SPARSE_PARTS: u64 = 3;
const SPARSE_SHARE: u64 = 160;
/// Sixteenths that all deltas below a block take, at most: a read takes three times that of the block alone.
const DECODED_PARTS: u64 = 32;
/// So many deltas of a single step lie on each other.
const SINGLE_STEPS: usize = 3;
/// A delta that skips entries leaves room for this many single steps on top of it.
const SPARE_STEPS: u8 = 2;
/// A delta is not skipped for room if it is at least so many times as long as expected.
const LONG_DELTA: u64 = 3;
/// A delta is as long as expected up to this many quarters.
const TOLERANCE_QUARTERS: u64 = 5;
/// Entries that count as parts of a root.
const ROOT_ENTRIES: usize = 16;
/// A block becomes a root if the delta before it is at least this many eighths of the expected one.
const DRIFT_EIGHTHS: u64 = 13;

/// What becomes of a new delta.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChainLink {
    /// It builds on the entry this many deltas down, and is expected to have these bytes.
    Below(usize, u64),
    /// There is none: the block is stored alone.
    Root,
}

/// A chain of deltas: their bytes, the top first, and those of the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chain {
    pub deltas: Vec<u64>,
    pub root: u64,
    /// Bytes of the content.
    pub content: u64,
    /// Depth of the top.
    pub depth: u8,
}

impl Chain {
    /// Where a delta of `expected` bytes to the top should build instead. 0: nothing is known of it.
    pub fn link(&self, expected: u64, depth_max: u8) -> ChainLink {
        let parts = |delta: u64| DENSE_PARTS.min(SPARSE_PARTS + delta * SPARSE_SHARE / self.content.max(1));
        let Some(shortest) = self.deltas.iter().min().copied() else { return ChainLink::Below(0, expected) };
        let is_known = expected > 0;
        let share = if is_known && self.deltas.len() == 1 { SOLE_SHARE } else { EXPECTED_SHARE };
        let single = expected.clamp(shortest / share, shortest);
        let (mut expected, mut fetched) = (single, self.root + self.deltas.iter().sum::<u64>());
        let mut decoded: u64 = self.deltas.iter().map(|delta| parts(*delta)).sum();
        let is_longer = |delta: u64, expected: u64| delta * 4 > expected * TOLERANCE_QUARTERS;
        let mut skipped = self.deltas.iter().take_while(|delta| !is_longer(**delta, single)).count();
        skipped = if skipped < SINGLE_STEPS { 0 } else { SINGLE_STEPS };
        let steps: u64 = self.deltas.iter().take(skipped).sum();
        expected += steps / SINGLE_STEPS as u64;
        fetched -= steps;
        decoded -= self.deltas.iter().take(skipped).map(|delta| parts(*delta)).sum::<u64>();
        for (down, top) in self.deltas.iter().copied().enumerate().skip(skipped) {
            let is_last = down + 1 == self.deltas.len();
            let steps = if down == 0 || top >= expected * LONG_DELTA { 0 } else { SPARE_STEPS };
            let fits = |steps: u8| (fetched + expected + u64::from(steps) * single) * 2 <= self.root * FETCHED_HALVES;
            let is_shallow = usize::from(self.depth) + usize::from(steps) <= usize::from(depth_max) + down;
            let is_quick = decoded + parts(expected) + u64::from(steps) * parts(single) <= DECODED_PARTS;
            if is_shallow && fits(steps) && is_quick && (down == 0 || is_longer(top, expected)) {
                return ChainLink::Below(down, expected);
            }
            let is_cheap = fits(0);
            let has_drifted = top * 2 >= self.root && top * 8 >= single * DRIFT_EIGHTHS;
            let is_in_the_way = !is_cheap && top >= single * LONG_STEPS;
            if depth_max > 1 && is_known && is_last && (has_drifted || is_in_the_way) {
                return ChainLink::Root;
            }
            expected += top / 2;
            fetched -= top;
            decoded -= parts(top);
        }
        ChainLink::Below(self.deltas.len(), expected)
    }
}

/// The sizes of entries.
pub(super) struct EntrySizes(LruCache<EntryNumber, u64>);

impl Default for EntrySizes {
    fn default() -> Self {
        EntrySizes(LruCache::new(SIZES_MAX))
    }
}

impl EntrySizes {
    /// Notes what is expected of an entry of this session.
    pub fn expect(&mut self, entry: EntryNumber, bytes: u64) {
        self.0.put(entry, bytes);
    }

    /// The chain below `entry`, along the first range of each delta. A delta that makes other bytes than its base
    /// counts as the root, together with what lies below, which cannot replace it.
    pub fn chain(&mut self, entry: EntryNumber, bases: &mut Bases) -> Result<Chain> {
        let content = u64::from(bases.entries.view(entry)?.raw_len);
        let mut chain = Chain { deltas: Vec::new(), root: 0, content, depth: bases.entries.depth(entry)? };
        let mut at = entry;
        for _ in 0..DEPTH_LIMIT {
            let below = bases.entries.delta_parts(at)?;
            let Some(first) = below.as_ref().and_then(|parts| parts.first()) else {
                chain.root = self.root(at, bases)?;
                break;
            };
            chain.deltas.push(self.bytes(at, bases)?);
            at = first.entry;
        }
        Ok(chain)
    }

    /// Bytes that a read of a root fetches, with those of what it is made from.
    fn root(&mut self, entry: EntryNumber, bases: &mut Bases) -> Result<u64> {
        let (mut entries, mut next, mut bytes) = (vec![entry], 0, 0);
        while let Some(at) = entries.get(next).copied().filter(|_| next < ROOT_ENTRIES) {
            bytes += self.bytes(at, bases)?;
            for range in bases.entries.base_ranges(at)? {
                if !entries.contains(&range.entry) {
                    entries.push(range.entry);
                }
            }
            next += 1;
        }
        Ok(bytes)
    }

    /// Stored bytes of an entry without its bases.
    fn bytes(&mut self, entry: EntryNumber, bases: &mut Bases) -> Result<u64> {
        let view = bases.entries.view(entry)?;
        let raw_len = u64::from(view.raw_len);
        if entry.as_session().is_some() {
            return Ok(self.0.peek(&entry).copied().unwrap_or(raw_len / 2));
        }
        if bases.entries.is_delta(entry)? && view.literal_len != TO_THE_END {
            return Ok(u64::from(view.literal_len));
        }
        Ok(match bases.entries.frame_reference(view.frame)? {
            Some(FrameReference::Stored(_, info)) => (info.stored_bytes() as u64).min(raw_len),
            _ => raw_len,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes and the depth of 40 steps whose deltas have `size(steps)` bytes, each with the step it builds on.
    fn run(root: u64, depth_max: u8, size: impl Fn(usize) -> u64) -> Vec<(u64, u8, usize)> {
        run_from(root, depth_max, size(1), |base, step| size(step - base))
    }

    /// The same if the sketches expect `single` bytes of each step, and a delta between two has `size(base, step)`.
    fn run_from(root: u64, depth_max: u8, single: u64, size: impl Fn(usize, usize) -> u64) -> Vec<(u64, u8, usize)> {
        let mut steps: Vec<(u64, u8, usize)> = vec![(root, 1, 0)];
        for step in 1..40 {
            let (mut deltas, mut entries, mut at) = (Vec::new(), vec![step - 1], step - 1);
            while steps[at].1 > 1 {
                deltas.push(steps[at].0);
                at = steps[at].2;
                entries.push(at);
            }
            let chain = Chain { deltas, root: steps[at].0, content: root + root / 2, depth: steps[step - 1].1 };
            steps.push(match chain.link(single, depth_max) {
                ChainLink::Below(down, _) => {
                    let base = entries[down];
                    (size(base, step), steps[base].1 + 1, base)
                }
                ChainLink::Root => (root, 1, step),
            });
        }
        steps
    }

    fn total(steps: &[(u64, u8, usize)]) -> u64 {
        steps[1..].iter().map(|step| step.0).sum()
    }

    #[test]
    fn few_changes_make_chains_of_logarithmic_length() {
        let size = |steps: usize| (15_000.0 * (steps as f64).sqrt()) as u64;
        let steps = run(1_000_000, 8, size);
        assert!(steps.iter().all(|step| step.1 <= 7), "{steps:?}");
        // The chain of 4 stored 3.3 MB of such steps, each a delta to step 4.
        assert!(total(&steps) < 1_100_000, "{}", total(&steps));
        assert_eq!(steps[8].2, 0);
        assert_eq!(steps[7].2, 6);
    }

    #[test]
    fn a_read_fetches_half_more_than_the_root_and_no_chain_is_too_long() {
        for (root, depth_max) in [(100_000, 8), (1_000_000, 3), (400_000, 2)] {
            let steps = run(root, depth_max, |steps| (9_000.0 * (steps as f64).sqrt()) as u64);
            for mut at in 0..steps.len() {
                assert!(steps[at].1 <= depth_max + 1, "{steps:?}");
                let (mut fetched, depth) = (0, steps[at].1);
                while steps[at].1 > 1 {
                    fetched += steps[at].0;
                    at = steps[at].2;
                }
                assert!(depth == 2 || fetched * 2 <= root + root / 5, "{depth}: {fetched} of {root}");
            }
        }
    }

    #[test]
    fn a_read_decodes_in_three_times_that_of_the_root() {
        // Deltas of a tenth of the root are dense: two of them take as long as it, though a read may fetch four.
        let dense = run(1_000_000, 8, |steps| (100_000.0 * (steps as f64).sqrt()) as u64);
        assert!(dense.iter().all(|step| step.1 <= 3), "{dense:?}");
        // Of a few thousand bytes, as many as the depth allows.
        let sparse = run(1_000_000, 8, |steps| (4_000.0 * (steps as f64).sqrt()) as u64);
        assert!(sparse.iter().any(|step| step.1 >= 6), "{sparse:?}");
        let decoded = |mut at: usize| {
            let mut parts = 0;
            while dense[at].1 > 1 {
                parts += 16.min(3 + dense[at].0 * 160 / 1_500_000);
                at = dense[at].2;
            }
            parts
        };
        assert!((0..40).all(|at| decoded(at) <= 32 || dense[at].1 == 2), "{dense:?}");
    }

    #[test]
    fn what_skips_entries_leaves_room_for_steps() {
        // Steps of which each changes three hundredths. Without room, seven steps in a row skip many: 2.7 MB.
        let steps = run(1_110_000, 8, |steps| (24_000.0 * (steps as f64).powf(0.75)) as u64);
        assert!(total(&steps) < 2_300_000, "{} of {steps:?}", total(&steps));
        let long = steps[1..].windows(2).filter(|pair| pair.iter().all(|step| step.0 > 100_000)).count();
        assert!(long <= 1, "{steps:?}");
    }

    #[test]
    fn a_long_delta_is_not_skipped_for_room() {
        // Steps of a fine-tune that stays as far from its base.
        for (depth_max, tune, single) in [(2, 200_000, 10_000), (3, 200_000, 10_000), (8, 440_000, 30_000)] {
            let small = |steps: usize| (single as f64 * (steps as f64).sqrt()) as u64;
            let size = |base: usize, step: usize| if base == 0 { tune } else { small(step - base) };
            let steps = run_from(1_000_000, depth_max, single, size);
            let long = steps[2..].iter().filter(|step| step.0 >= tune).count();
            assert!(long <= 1, "{depth_max}: {long} of {steps:?}");
        }
    }

    #[test]
    fn without_a_sketch_no_block_becomes_a_root() {
        let chain = Chain { deltas: vec![47], root: 83, content: 120, depth: 2 };
        assert_eq!(chain.link(0, 8), ChainLink::Below(1, 15 + 23));
        assert_eq!(chain.link(10, 8), ChainLink::Root);
        assert_eq!(chain.link(10, 1), ChainLink::Below(1, 10 + 23));
        assert_eq!(chain.link(40, 8), ChainLink::Below(1, 40 + 23));
    }

    #[test]
    fn small_steps_after_a_long_delta_store_it_once() {
        // A fine-tune, and steps of its training of which each changes a hundredth.
        for tune in (50_000..700_000).step_by(10_000) {
            let small = |steps: usize| (10_000.0 * (steps as f64).sqrt()) as u64;
            let size = |base: usize, step: usize| if base == 0 { tune + small(step) } else { small(step - base) };
            let steps = run_from(1_000_000, 8, 10_000, size);
            let long = steps[2..].iter().filter(|step| step.0 >= tune.min(1_000_000)).count();
            assert!(long <= 3, "{tune}: {steps:?}");
            assert!(total(&steps) < tune + 2_500_000, "{tune}: {} of {steps:?}", total(&steps));
        }
    }

    #[test]
    fn where_everything_changes_each_step_is_a_delta_to_a_root() {
        let steady = run(1_000_000, 8, |steps| 670_000 + 15_000 * (steps as u64).min(10));
        assert!(steady[1..].iter().all(|step| step.1 == 2), "{steady:?}");
        // Steps that move away from the root get another one, which costs less than long deltas do.
        let size = |steps: usize| (230_000.0 * (steps as f64).sqrt()).min(700_000.0) as u64;
        let moving = run(1_000_000, 8, size);
        assert!(moving.iter().skip(1).any(|step| step.1 == 1), "{moving:?}");
        let on_first: u64 = (1..40).map(size).sum();
        assert!(total(&moving) < on_first * 8 / 10, "{} of {on_first}", total(&moving));
    }
}
