//! Columns: a block whose rows are parts of the longer rows of a stored matrix, as those of a shard that has some of
//! its columns (ours).
//!
//! 1. *Jump*: peaks that block and base have in common say how far elements have moved. From one row to the next they
//!    move further by the elements that rows of the base have more.
//! 2. *Votes*: less the jumps before its row, every peak votes for the distance of the first row.
//! 3. *Ranges*: each row is a range of that base, or of the entries stored before and after it.
//!
//! So rows need no peaks of their own, and their ends are exact.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use super::cover::{Cover, Pair};
use super::{FoundSlices, SliceBase, SliceSearch, WeightBlock};
use crate::error::Result;
use crate::similar::Bases;

/// Pairs of peaks that must agree on the jump, ...
const JUMPS_MIN: u32 = 4;
/// ... and peaks on the distance.
const VOTES_MIN: u32 = 8;
/// Shortest row, elements.
const ROW_MIN: i64 = 64;
/// Entries between the base with most votes and one that has the next row, at most.
const STEPS_MAX: usize = 64;

/// Where a block lies in its tensor.
#[derive(Clone, Copy, Default)]
pub struct TensorPart<'a> {
    /// Bytes of a row, for each way to take the tensor as a matrix.
    pub rows: &'a [u64],
    /// Offset of the block in the tensor, bytes.
    pub offset: u64,
}

/// Rows of a block.
#[derive(Debug, Clone, Copy)]
struct BlockRows {
    /// Elements of a row.
    len: i64,
    /// Elements of the first row that lie before the block.
    before: i64,
}

/// Where the elements of a block are in a base: element `at` of row `row` is element `at + shift + row * jump`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Columns {
    rows: BlockRows,
    /// Position among the bases.
    base: usize,
    shift: i64,
    jump: i64,
    /// Peaks that say so.
    votes: u32,
}

impl BlockRows {
    /// The row of element `at`.
    fn of(self, at: i64) -> i64 {
        (at + self.before) / self.len
    }

    /// The element after the last one of a row.
    fn end(self, row: i64) -> i64 {
        (row + 1) * self.len - self.before
    }
}

impl Columns {
    /// The columns that most of `pairs` speak for; `None` if they agree on none.
    pub fn find(block: WeightBlock<'_>, pairs: &[Pair]) -> Option<Columns> {
        let width = block.layout.width as u64;
        let is_aligned = block.layout.phase == 0 && block.part.offset.is_multiple_of(width);
        let is_whole = |row: &&u64| is_aligned && row.is_multiple_of(width);
        let before = |row: &u64| (block.part.offset % row.max(&1) / width) as i64;
        let whole = block.part.rows.iter().filter(is_whole);
        let rows = whole.map(|row| BlockRows { len: (row / width) as i64, before: before(row) });
        let found = rows.filter(|rows| rows.len >= ROW_MIN).filter_map(|rows| Self::of_rows(rows, pairs));
        found.max_by_key(|found| (found.votes, Reverse(found.rows.len)))
    }

    fn of_rows(rows: BlockRows, pairs: &[Pair]) -> Option<Columns> {
        let mut sorted: Vec<&Pair> = pairs.iter().collect();
        sorted.sort_unstable_by_key(|pair| (pair.base, pair.here, pair.shift));
        let mut jumps: HashMap<i64, u32> = HashMap::new();
        for (one, next) in sorted.iter().zip(sorted.iter().skip(1)).filter(|(one, next)| one.base == next.base) {
            let (down, more) = (rows.of(next.here) - rows.of(one.here), next.shift - one.shift);
            if down > 0 && more > 0 && more % down == 0 {
                *jumps.entry(more / down).or_default() += 1;
            }
        }
        let most = jumps.into_iter().max_by_key(|(jump, count)| (*count, Reverse(*jump)));
        let (jump, _) = most.filter(|(_, count)| *count >= JUMPS_MIN)?;
        let mut votes: HashMap<(usize, i64), u32> = HashMap::new();
        for pair in pairs {
            *votes.entry((pair.base, pair.shift - rows.of(pair.here) * jump)).or_default() += 1;
        }
        let most = votes.into_iter().max_by_key(|(found, votes)| (*votes, Reverse(*found)));
        let ((base, shift), votes) = most.filter(|(_, votes)| *votes >= VOTES_MIN)?;
        Some(Columns { rows, base, shift, jump, votes })
    }
}

/// A base of a matrix.
struct MatrixPart {
    base: Arc<SliceBase>,
    /// Number of its first element, if 0 is that of the base with most votes.
    start: i64,
}

impl SliceSearch {
    /// The rows of `block` in the matrix that `columns` found; `None` if its first base is missing.
    pub(super) fn column_cover(
        &mut self,
        block: WeightBlock<'_>,
        columns: Columns,
        found: &FoundSlices,
        bases: &mut Bases,
    ) -> Result<Option<Cover>> {
        let Some(base) = found.bases.get(columns.base).cloned() else { return Ok(None) };
        let mut cover = Cover::new(base.layout.width);
        let mut part = MatrixPart { base, start: 0 };
        let elements = (block.bytes.len() / block.layout.width.max(1)) as i64;
        let mut at = 0;
        while at < elements {
            let row = columns.rows.of(at);
            let wanted = at + columns.shift + row * columns.jump;
            let left = columns.rows.end(row).min(elements) - at;
            // Beyond the matrix there is nothing. What precedes it is only as long as it.
            let Some(found) = self.part_with(wanted, part, cover.width, bases)? else { break };
            part = found;
            let first = (wanted - part.start).max(0);
            let count = left.min(part.base.elements() - first);
            if count <= 0 {
                break;
            }
            cover.push_elements(&part.base, first, count);
            at += count;
        }
        Ok(Some(cover))
    }

    /// The part of a matrix that has element `wanted`, or the first one, seen from `part`. `None` behind the last one.
    fn part_with(
        &mut self,
        wanted: i64,
        mut part: MatrixPart,
        width: usize,
        bases: &mut Bases,
    ) -> Result<Option<MatrixPart>> {
        for _ in 0..STEPS_MAX {
            let end = part.start + part.base.elements();
            let is_after = wanted >= end;
            if !is_after && wanted >= part.start {
                return Ok(Some(part));
            }
            let next = self.neighbour(&part.base, is_after, bases)?.filter(|next| next.layout.width == width);
            let Some(next) = next else { return Ok((!is_after).then_some(part)) };
            let start = if is_after { end } else { part.start - next.elements() };
            part = MatrixPart { base: next, start };
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::similar::{Counterparts, Elements};

    /// Peaks of a block that is columns 100 to 300 of rows of 1000, of which it begins in row 7, in two bases: the
    /// first has elements before 40,000.
    fn pairs(count: i64) -> Vec<Pair> {
        let of = |number: i64| {
            let here = number * 211;
            let there = (7 + (here + 50) / 200) * 1000 + 100 + (here + 50) % 200;
            let base = usize::from(there >= 40_000);
            Pair { peak: number as usize, here, base, shift: there - here - if base == 1 { 40_000 } else { 0 } }
        };
        (0..count).map(of).collect()
    }

    fn find(pairs: &[Pair], rows: &[u64], phase: usize) -> Option<Columns> {
        let (counterparts, layout) = (Counterparts::default(), Elements { width: 2, phase });
        let part = TensorPart { rows, offset: 400 * 9 + 100 };
        Columns::find(WeightBlock { bytes: &[], layout, part, counterparts: &counterparts }, pairs)
    }

    #[test]
    fn most_peaks_say_where_the_rows_are() {
        let mut pairs = pairs(120);
        let most = pairs.iter().filter(|pair| pair.base == 1).count() as u32;
        // Some that say something else.
        pairs.extend((0..20).map(|at| Pair { peak: 0, here: 999 * at, base: 1, shift: 31 * at * at }));
        let found = find(&pairs, &[400 * 30, 400, 2], 0).unwrap();
        assert_eq!((found.rows.len, found.rows.before, found.base, found.jump), (200, 50, 1, 800));
        assert!(found.votes >= most && found.votes <= most + 2, "{} of {most}", found.votes);
        assert_eq!(found.shift, 7 * 1000 + 100 + 50 - 40_000);
        assert_eq!((found.rows.of(149), found.rows.end(0), found.rows.of(150)), (0, 150, 1));
    }

    #[test]
    fn columns_need_rows_and_peaks_that_agree() {
        assert!(find(&pairs(120), &[400 * 30, 2], 0).is_none(), "rows of another length");
        assert!(find(&pairs(120), &[], 0).is_none() && find(&pairs(120), &[0, 401], 0).is_none());
        assert!(find(&pairs(120), &[400], 1).is_none(), "elements begin later");
        assert!(find(&pairs(5), &[400], 0).is_none() && find(&[], &[400], 0).is_none());
        let mut whole = pairs(120);
        whole.iter_mut().for_each(|pair| pair.shift = 12_345);
        assert!(find(&whole, &[400], 0).is_none(), "one distance for all rows");
    }
}
