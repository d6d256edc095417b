//! Compares a chunk with a base at a fixed distance, to continue a match after overwritten bytes.
//!
//! A match often ends where something was overwritten in place, such as an address in a binary or a date in an archive.
//! Equal bytes then continue at the same distance, in ranges too short to hold an anchor.
//!
//! 1. From the end of the match, compare 8 bytes at a stride of 8.
//! 2. Extend equal bytes in both directions to the longest equal range.
//! 3. Stop after `REACH` bytes without an equal range.

use std::ops::Range;

use super::Match;
use crate::kernel::compare::{common_prefix_len, common_suffix_len, is_constant};
use crate::repo::container::EntryNumber;

/// Bytes without an equal range after which the search ends.
const REACH: usize = 512;
/// Bytes compared at a time, and bytes between two comparisons.
const STRIDE: usize = 8;
/// Shortest copy of one repeated byte. Shorter ones compress to less than a copy operation.
const CONSTANT_BYTES_MIN: usize = 512;

/// See the module.
pub struct Aligned<'a> {
    chunk: &'a [u8],
    base: &'a [u8],
    /// Entry number of the base.
    entry: EntryNumber,
    /// Offset in the base less offset in the chunk.
    shift: i64,
    bytes_min: usize,
}

impl<'a> Aligned<'a> {
    /// Compares at the distance of `found`. Ranges shorter than `bytes_min` are not reported.
    pub fn new(chunk: &'a [u8], base: &'a [u8], found: &Match, bytes_min: usize) -> Self {
        let shift = i64::from(found.offset) - i64::from(found.position);
        Aligned { chunk, base, entry: found.base, shift, bytes_min }
    }

    /// The equal range around the 8 bytes at `at`, within `bounds`; `None` if these bytes differ.
    fn equal_range(&self, at: usize, bounds: Range<usize>) -> Option<Range<usize>> {
        let from = usize::try_from(at as i64 + self.shift).ok()?;
        let wanted = self.chunk.get(at..at + STRIDE)?;
        if self.base.get(from..from + STRIDE)? != wanted {
            return None;
        }
        let back = common_suffix_len(self.chunk.get(bounds.start..at)?, self.base.get(..from)?);
        let forward = common_prefix_len(self.chunk.get(at..bounds.end)?, self.base.get(from..)?);
        Some(at - back..at + forward)
    }

    fn accept(&self, range: &Range<usize>) -> Option<Match> {
        let is_constant = || is_constant(self.chunk.get(range.clone()).unwrap_or_default());
        if range.len() < self.bytes_min || (range.len() < CONSTANT_BYTES_MIN && is_constant()) {
            return None;
        }
        let offset = (range.start as i64 + self.shift) as u32;
        Some(Match { position: range.start as u32, base: self.entry, offset, len: range.len() as u32 })
    }

    /// Appends the equal ranges from the start of `gap` on, ascending.
    pub fn forward(&self, gap: Range<usize>, out: &mut Vec<Match>) {
        let (mut covered, mut at) = (gap.start, gap.start);
        while at + STRIDE <= gap.end && at < covered + REACH {
            let Some(range) = self.equal_range(at, covered..gap.end) else {
                at += STRIDE;
                continue;
            };
            at = range.end;
            if let Some(found) = self.accept(&range) {
                out.push(found);
                covered = range.end;
            }
        }
    }

    /// Appends the equal ranges from the end of `gap` back, ascending.
    pub fn backward(&self, gap: Range<usize>, out: &mut Vec<Match>) {
        let first = out.len();
        let (mut uncovered, mut at) = (gap.end, gap.end);
        while at >= gap.start + STRIDE && at + REACH > uncovered {
            let Some(range) = self.equal_range(at - STRIDE, gap.start..uncovered) else {
                at -= STRIDE;
                continue;
            };
            at = range.start;
            if let Some(found) = self.accept(&range) {
                out.push(found);
                uncovered = range.start;
            }
        }
        if let Some(added) = out.get_mut(first..) {
            added.reverse();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repo::container::ContainerNumber;

    fn entry() -> EntryNumber {
        EntryNumber::stored(ContainerNumber(0), 7)
    }

    /// 4000 bytes without repetition, once with some bytes overwritten and once as they are.
    fn pair(overwritten: &[usize]) -> (Vec<u8>, Vec<u8>) {
        let base: Vec<u8> = (0..2000u16).flat_map(u16::to_be_bytes).collect();
        let mut chunk = base.clone();
        overwritten.iter().for_each(|at| chunk[*at] ^= 0x80);
        (chunk, base)
    }

    fn ranges(matches: &[Match]) -> Vec<Range<u32>> {
        matches.iter().map(|found| found.position..found.position + found.len).collect()
    }

    #[test]
    fn overwritten_bytes_are_skipped_in_both_directions() {
        let (chunk, base) = pair(&[1000, 1100, 1110, 1300]);
        let start = Match { position: 0, base: entry(), offset: 0, len: 1000 };
        let aligned = Aligned::new(&chunk, &base, &start, 48);
        let mut found = Vec::new();
        aligned.forward(1000..4000, &mut found);
        assert_eq!(ranges(&found), [1001..1100, 1111..1300, 1301..4000]);
        assert!(found.iter().all(|found| found.base == entry() && found.offset == found.position));
        found.clear();
        aligned.backward(500..1301, &mut found);
        assert_eq!(ranges(&found), [500..1000, 1001..1100, 1111..1300]);
    }

    #[test]
    fn the_search_ends_after_its_reach_and_at_the_ends_of_the_base() {
        let overwritten: Vec<usize> = (1000..1000 + REACH + STRIDE).collect();
        let (chunk, base) = pair(&overwritten);
        let start = Match { position: 500, base: entry(), offset: 500, len: 500 };
        let mut found = Vec::new();
        Aligned::new(&chunk, &base, &start, 48).forward(1000..4000, &mut found);
        assert_eq!(found, []);
        let start = Match { position: 500, base: entry(), offset: 100, len: 100 };
        let shifted = [&[9; 400], &base[..]].concat();
        Aligned::new(&shifted, &base, &start, 48).backward(0..500, &mut found);
        assert_eq!(ranges(&found), vec![Range { start: 400, end: 500 }]);
        found.clear();
        Aligned::new(&shifted, &base[..1000], &start, 48).forward(500..4400, &mut found);
        assert_eq!(ranges(&found), vec![Range { start: 500, end: 1400 }]);
    }

    #[test]
    fn short_ranges_of_one_repeated_byte_are_not_copied() {
        let mut base = vec![0u8; 2000];
        base[1000..].fill(1);
        let mut chunk = base.clone();
        chunk[100] = 9;
        let start = Match { position: 0, base: entry(), offset: 0, len: 100 };
        let mut found = Vec::new();
        Aligned::new(&chunk, &base, &start, 48).forward(100..500, &mut found);
        assert_eq!(found, []);
        Aligned::new(&chunk, &base, &start, 48).forward(100..2000, &mut found);
        assert_eq!(ranges(&found), vec![Range { start: 101, end: 2000 }]);
    }
}
