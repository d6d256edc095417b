//! Delta: the ranges that a chunk shares with one base, found by a table of the base's windows.
//!
//! 1. Compare the common head and tail.
//! 2. Enter every `stride`-th window of the base into a hash table. Of equal windows the first is kept.
//! 3. Look up every position of the chunk between head and tail. Extend a hit, and the position in the base after the
//!    last copy, byte by byte in both directions. The longer of both, of at least `copy_bytes_min`, becomes a copy, and
//!    the search continues after it.
//!
//! Every common range of at least `copy_bytes_min` bytes, 16 or more, contains a window meant for the table. Fewer than
//! one window in ten thousand finds no slot.

use super::Match;
use crate::kernel::compare::{common_prefix_len, common_suffix_len};
use crate::repo::container::EntryNumber;

/// Bytes of a window.
const WINDOW_BYTES: usize = 16;
/// Most bytes between two windows of the table.
const STRIDE_MAX: usize = 32;
const TABLE_BITS_MIN: u32 = 6;
/// Most slots tried for a window.
const PROBES: usize = 32;
/// The bits of a slot that hold a position plus one. The upper bits of the hash are above them. A slot of 0 is empty.
const POSITION_MASK: u64 = u32::MAX as u64;

/// Finds the ranges that a chunk shares with a base. The memory of its table is reused.
pub struct DeltaMatcher {
    /// Slots as [`POSITION_MASK`] describes, with linear probing.
    table: Vec<u64>,
    /// Slots of the table, a power of two, minus one.
    mask: usize,
    /// One bit per hash in the table. At most one bit in 32 is set, so nearly every miss ends here.
    filter: Vec<u64>,
    copy_bytes_min: usize,
    stride: usize,
}

/// A range that chunk and base share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SharedRange {
    /// Start in the chunk.
    start: usize,
    /// End in the chunk.
    end: usize,
    /// Start in the base.
    offset: usize,
}

fn hash(window: &[u8; WINDOW_BYTES]) -> u64 {
    let (low, high) = window.split_at(8);
    let lane = |half: &[u8]| half.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let mixed = lane(low).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ lane(high).rotate_left(32);
    let mixed = mixed.wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed ^ (mixed >> 32)
}

/// Index of the filter lane with the hash's bit: one lane of 64 bits per four slots.
fn filter_lane(hash: u64, mask: usize) -> usize {
    hash as usize & mask >> 2
}

impl DeltaMatcher {
    /// Copies shorter than `copy_bytes_min` are not reported.
    pub fn new(copy_bytes_min: usize) -> Self {
        let stride = (copy_bytes_min + 1).saturating_sub(WINDOW_BYTES).clamp(1, STRIDE_MAX);
        DeltaMatcher { table: Vec::new(), mask: 0, filter: Vec::new(), copy_bytes_min: copy_bytes_min.max(1), stride }
    }

    /// Finds the ranges that `chunk` shares with `base`, the bytes of entry `entry`. They are in ascending order and do
    /// not overlap.
    pub fn find(&mut self, chunk: &[u8], base: &[u8], entry: EntryNumber) -> Vec<Match> {
        let mut matches = Vec::new();
        let mut push = |shared: SharedRange| {
            let len = (shared.end - shared.start) as u32;
            matches.push(Match { position: shared.start as u32, base: entry, offset: shared.offset as u32, len });
        };
        let mut head = common_prefix_len(chunk, base);
        if head >= self.copy_bytes_min {
            push(SharedRange { start: 0, end: head, offset: 0 });
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
            push(SharedRange { start: middle_end, end: chunk.len(), offset: base.len() - tail });
        }
        matches
    }

    /// Enters the base's windows into the table, which becomes at most half full.
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
            if let Some(lane) = self.filter.get_mut(filter_lane(hash, self.mask)) {
                *lane |= 1 << (hash >> 58);
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

    /// Position of a window with this hash in the base.
    #[inline]
    fn position(&self, hash: u64) -> Option<usize> {
        if self.filter.get(filter_lane(hash, self.mask))? >> (hash >> 58) & 1 == 0 {
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

    /// Looks up the positions of `chunk` from `start` on.
    fn scan(&self, chunk: &[u8], base: &[u8], start: usize, push: &mut impl FnMut(SharedRange)) {
        // Bytes before `covered` are decided. The last copy ended there in the chunk, and at `expected` in the base.
        let (mut covered, mut expected) = (start, start);
        let mut at = start;
        while let Some(window) = chunk.get(at..).and_then(|rest| rest.first_chunk::<WINDOW_BYTES>()) {
            let Some(hit) = self.position(hash(window)) else {
                at += 1;
                continue;
            };
            let next = expected + (at - covered);
            let found = extend(chunk, base, WindowHit { position: at, offset: hit }, covered);
            let following =
                if next == hit { None } else { extend(chunk, base, WindowHit { position: at, offset: next }, covered) };
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

/// A window that may be equal in chunk and base.
struct WindowHit {
    /// Offset in the chunk.
    position: usize,
    /// Offset in the base.
    offset: usize,
}

/// The shared range around `hit`, not before `covered` in the chunk; `None` if the windows differ.
fn extend(chunk: &[u8], base: &[u8], hit: WindowHit, covered: usize) -> Option<SharedRange> {
    let WindowHit { position, offset } = hit;
    let forward = common_prefix_len(chunk.get(position..)?, base.get(offset..)?);
    if forward < WINDOW_BYTES {
        return None;
    }
    let back = common_suffix_len(chunk.get(covered..position)?, base.get(..offset)?);
    Some(SharedRange { start: position - back, end: position + forward, offset: offset - back })
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
    fn an_edit_costs_only_the_changed_bytes() {
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
    fn every_common_range_of_the_smallest_length_is_found_at_any_offset() {
        let base = noise(1000, 1);
        for at in 0..base.len() - 48 {
            let mut chunk = noise(200, 5);
            chunk[77..125].copy_from_slice(&base[at..at + 48]);
            assert!(covered(&DeltaMatcher::new(48).find(&chunk, &base, entry(0))) >= 48, "{at}");
        }
    }

    #[test]
    fn moved_ranges_are_found() {
        let base = noise(50_000, 1);
        let chunk = [&base[25_000..], &base[..25_000]].concat();
        assert_eq!(covered(&DeltaMatcher::new(48).find(&chunk, &base, entry(0))), chunk.len());
    }

    /// Ranges of a few sorts, so that two results share much, repeat themselves and end at odd offsets.
    fn similar() -> impl Strategy<Value = Vec<u8>> {
        let part = (0u64..6, 0usize..300, 1usize..400);
        proptest::collection::vec(part, 0..20).prop_map(|parts| {
            let bytes = |(sort, start, len): (u64, usize, usize)| match sort {
                0 => vec![0; len],
                1 => b"abc".repeat(len / 3 + 1),
                sort => noise(700, sort)[start..start + len].to_vec(),
            };
            parts.into_iter().flat_map(bytes).collect()
        })
    }

    proptest! {
        #[test]
        fn copies_are_equal_ascending_ranges(chunk in similar(), base in similar(), copy_bytes_min in 1usize..100) {
            let mut delta = DeltaMatcher::new(copy_bytes_min);
            for (chunk, base) in [(&chunk, &base), (&base, &chunk), (&chunk, &chunk)] {
                let matches = delta.find(chunk, base, entry(9));
                check(chunk, base, &matches, copy_bytes_min);
            }
        }
    }
}
