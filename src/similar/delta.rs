//! Delta: the ranges of a chunk that one base has, too, found by a table of the base's windows.
//!
//! 1. The common head and tail are found by comparison.
//! 2. Every `stride`-th window of the base goes into a hash table (the first of equal windows stays).
//! 3. Every position of the chunk between head and tail is looked up. A hit, and the place in the base that follows
//!    the last copy, are extended byte by byte in both directions; the longer one of at least `copy_bytes_min` becomes
//!    a copy, and the search goes on behind it.
//!
//! Any common range of `copy_bytes_min` bytes, 16 or more, holds a window of those that are meant for the table; fewer
//! than one in ten thousand find no room in it.

use super::Match;
use crate::kernel::compare::{common_prefix_len, common_suffix_len};
use crate::repo::container::EntryNumber;

/// Bytes that a hash covers.
const WINDOW_BYTES: usize = 16;
/// Bytes between two windows of the table, at most.
const STRIDE_MAX: usize = 32;
const TABLE_BITS_MIN: u32 = 6;
/// Slots tried for a window.
const PROBES: usize = 32;
/// The bits of a slot that hold a position plus one; the hash's upper bits lie above them, and 0 is no window.
const POSITION_MASK: u64 = u32::MAX as u64;

/// A delta matcher; keeps its table's memory.
pub struct DeltaMatcher {
    /// See [`POSITION_MASK`]. Windows of one slot lie behind it.
    table: Vec<u64>,
    /// The table's size, a power of two, less one.
    mask: usize,
    /// Bits of the hashes in the table, at most one in 32 of them set: nearly all that is not there ends here.
    filter: Vec<u64>,
    copy_bytes_min: usize,
    stride: usize,
}

/// A range that chunk and base share: start and end in the chunk, start in the base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shared {
    start: usize,
    end: usize,
    offset: usize,
}

fn hash(window: &[u8; WINDOW_BYTES]) -> u64 {
    let (low, high) = window.split_at(8);
    let word = |half: &[u8]| half.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let mixed = word(low).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ word(high).rotate_left(32);
    let mixed = mixed.wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed ^ (mixed >> 32)
}

/// Which word of the filter has the hash's bit: there is a word to four slots.
fn filter_word(hash: u64, mask: usize) -> usize {
    hash as usize & mask >> 2
}

impl DeltaMatcher {
    /// Copies shorter than `copy_bytes_min` are not reported.
    pub fn new(copy_bytes_min: usize) -> Self {
        let stride = (copy_bytes_min + 1).saturating_sub(WINDOW_BYTES).clamp(1, STRIDE_MAX);
        DeltaMatcher { table: Vec::new(), mask: 0, filter: Vec::new(), copy_bytes_min: copy_bytes_min.max(1), stride }
    }

    /// What `chunk` shares with `base`, the bytes of entry `entry`: ascending, not overlapping.
    pub fn find(&mut self, chunk: &[u8], base: &[u8], entry: EntryNumber) -> Vec<Match> {
        let mut matches = Vec::new();
        let mut push = |shared: Shared| {
            let len = (shared.end - shared.start) as u32;
            matches.push(Match { position: shared.start as u32, base: entry, offset: shared.offset as u32, len });
        };
        let mut head = common_prefix_len(chunk, base);
        if head >= self.copy_bytes_min {
            push(Shared { start: 0, end: head, offset: 0 });
        } else {
            head = 0;
        }
        let mut tail = common_suffix_len(chunk.get(head..).unwrap_or_default(), base);
        if tail < self.copy_bytes_min {
            tail = 0;
        }
        let middle_end = chunk.len() - tail;
        if middle_end - head >= self.copy_bytes_min {
            self.fill(base);
            self.scan(chunk.get(..middle_end).unwrap_or_default(), base, head, &mut push);
        }
        if tail > 0 {
            push(Shared { start: middle_end, end: chunk.len(), offset: base.len() - tail });
        }
        matches
    }

    /// Takes the base's windows into the table, which is at most half full.
    fn fill(&mut self, base: &[u8]) {
        let bits = (base.len() / self.stride * 2).next_power_of_two().trailing_zeros().max(TABLE_BITS_MIN);
        self.mask = (1 << bits) - 1;
        self.table.clear();
        self.table.resize(1 << bits, 0);
        self.filter.clear();
        self.filter.resize(1 << (bits - 2), 0);
        for (number, part) in base.windows(WINDOW_BYTES).step_by(self.stride).enumerate() {
            let Some(window) = part.first_chunk() else { continue };
            let hash = hash(window);
            if let Some(word) = self.filter.get_mut(filter_word(hash, self.mask)) {
                *word |= 1 << (hash >> 58);
            }
            for probe in 0..PROBES {
                let Some(slot) = self.table.get_mut((hash as usize + probe) & self.mask) else { break };
                if *slot == 0 {
                    *slot = hash & !POSITION_MASK | ((number * self.stride) as u64 + 1);
                    break;
                }
                if (*slot ^ hash) & !POSITION_MASK == 0 {
                    break;
                }
            }
        }
    }

    /// Where the base has a window with this hash.
    #[inline]
    fn position(&self, hash: u64) -> Option<usize> {
        if self.filter.get(filter_word(hash, self.mask))? >> (hash >> 58) & 1 == 0 {
            return None;
        }
        for probe in 0..PROBES {
            let slot = *self.table.get((hash as usize + probe) & self.mask)?;
            if slot == 0 {
                return None;
            }
            if (slot ^ hash) & !POSITION_MASK == 0 {
                return Some((slot & POSITION_MASK) as usize - 1);
            }
        }
        None
    }

    /// Looks `chunk` up from `start` on.
    fn scan(&self, chunk: &[u8], base: &[u8], start: usize, push: &mut impl FnMut(Shared)) {
        // Everything before `covered` has been decided; the last copy's base range ended at `expected` then.
        let (mut covered, mut expected) = (start, start);
        let mut at = start;
        while let Some(window) = chunk.get(at..).and_then(|rest| rest.first_chunk::<WINDOW_BYTES>()) {
            let Some(hit) = self.position(hash(window)) else {
                at += 1;
                continue;
            };
            let next = expected + (at - covered);
            let found = extend(chunk, base, (at, hit), covered);
            let following = if next == hit { None } else { extend(chunk, base, (at, next), covered) };
            let longer = [following, found].into_iter().flatten().max_by_key(|shared| shared.end - shared.start);
            match longer.filter(|shared| shared.end - shared.start >= self.copy_bytes_min) {
                Some(shared) => {
                    push(shared);
                    (at, covered) = (shared.end, shared.end);
                    expected = shared.offset + (shared.end - shared.start);
                }
                None => at += 1,
            }
        }
    }
}

/// The shared range around `at` in the chunk and `hit` in the base, not before `covered`; `None` if the window differs.
fn extend(chunk: &[u8], base: &[u8], (at, hit): (usize, usize), covered: usize) -> Option<Shared> {
    let ahead = common_prefix_len(chunk.get(at..)?, base.get(hit..)?);
    if ahead < WINDOW_BYTES {
        return None;
    }
    let behind = common_suffix_len(chunk.get(covered..at)?, base.get(..hit)?);
    Some(Shared { start: at - behind, end: at + ahead, offset: hit - behind })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repo::container::ContainerNumber;
    use proptest::prelude::*;

    fn entry(position: u32) -> EntryNumber {
        EntryNumber::stored(ContainerNumber(0), position)
    }

    fn noise(len: usize, mut state: u64) -> Vec<u8> {
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        (0..len).map(|_| next()).collect()
    }

    fn covered(matches: &[Match]) -> usize {
        matches.iter().map(|found| found.len as usize).sum()
    }

    fn check(chunk: &[u8], base: &[u8], matches: &[Match], copy_bytes_min: usize) {
        let mut end = 0;
        for found in matches {
            let (position, offset, len) = (found.position as usize, found.offset as usize, found.len as usize);
            assert!(position >= end && len >= copy_bytes_min.max(1));
            assert_eq!(chunk[position..position + len], base[offset..offset + len]);
            end = position + len;
        }
        assert!(end <= chunk.len());
    }

    #[test]
    fn edits_cost_what_they_change() {
        let base = noise(60_000, 1);
        let mut chunk = base.clone();
        chunk.splice(100..100, noise(10, 2));
        chunk.splice(30_000..30_500, []);
        chunk[50_000] ^= 1;
        let matches = DeltaMatcher::new(48).find(&chunk, &base, entry(3));
        check(&chunk, &base, &matches, 48);
        assert_eq!(covered(&matches), chunk.len() - 11, "{matches:?}");
        assert!(matches.len() == 4 && matches.iter().all(|found| found.base == entry(3)));
    }

    #[test]
    fn every_common_range_of_the_least_length_is_found_wherever_it_lies() {
        let base = noise(1000, 1);
        for at in 0..base.len() - 48 {
            let mut chunk = noise(200, 5);
            chunk[77..125].copy_from_slice(&base[at..at + 48]);
            assert!(covered(&DeltaMatcher::new(48).find(&chunk, &base, entry(0))) >= 48, "{at}");
        }
    }

    #[test]
    fn what_moved_is_found() {
        let base = noise(50_000, 1);
        let chunk = [&base[25_000..], &base[..25_000]].concat();
        assert_eq!(covered(&DeltaMatcher::new(48).find(&chunk, &base, entry(0))), chunk.len());
    }

    /// Pieces of few sorts, so that the two have much in common, repeat themselves and run out at odd places.
    fn similar() -> impl Strategy<Value = Vec<u8>> {
        let operation = (0u64..6, 0usize..300, 1usize..400);
        proptest::collection::vec(operation, 0..20).prop_map(|operations| {
            let part = |(sort, start, len): (u64, usize, usize)| match sort {
                0 => vec![0; len],
                1 => b"abc".repeat(len / 3 + 1),
                sort => noise(700, sort)[start..start + len].to_vec(),
            };
            operations.into_iter().flat_map(part).collect()
        })
    }

    proptest! {
        #[test]
        fn copies_are_true_and_in_order(chunk in similar(), base in similar(), copy_bytes_min in 1usize..100) {
            let mut delta = DeltaMatcher::new(copy_bytes_min);
            for (chunk, base) in [(&chunk, &base), (&base, &chunk), (&chunk, &chunk)] {
                let matches = delta.find(chunk, base, entry(9));
                check(chunk, base, &matches, copy_bytes_min);
            }
        }
    }
}
