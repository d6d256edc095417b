//! Cover: ranges of stored blocks that are together as long as a new block and like it, so that it can be a delta to
//! them. Peaks with equal near hashes show which ranges are alike (ours).
//!
//! 1. *Votes*: each peak that a base has, too, votes for this base at the distance of the two. Distances are in
//!    elements, so FP32 covers BF16 and the other way round.
//! 2. *Segments*: neighbouring peaks whose best vote is the same make a segment. Long exact matches are segments from
//!    the start, and their ends are exact.
//! 3. *Extents*: a segment reaches to the ends of its base, or to the middle between its last peak and the first one
//!    of the next segment.
//! 4. *Gaps* between segments are filled from the entries stored before and after the bases, else with anything.
//!
//! If an end of the block has no peak of a base, entries stored beside the base there are looked at, as for exact
//! matches.
//!
//! Rows that are parts of longer rows of a base are covered one by one (`columns`).

use std::collections::HashMap;
use std::sync::Arc;

use super::columns::Columns;
use super::{FoundSlices, SIDE_ENTRIES_MAX, SliceBase, SliceSearch, WeightBlock};
use crate::error::Result;
use crate::similar::{BaseRange, Bases};

/// Exact matches from this length on are segments.
const EXACT_BYTES_MIN: u32 = 2 << 10;
/// Peaks that must agree on a distance.
const VOTES_MIN: u32 = 2;
/// Ranges of a cover, at most.
pub const COVER_RANGES_MAX: usize = 4096;
/// Shortest end of a block without peaks of a base for which others are read, bytes.
const ALIKE_END_MIN: i64 = 16 << 10;
/// Share of a block that must be alike: one in this many bytes.
const ALIKE_SHARE: usize = 3;

/// Ranges of bases for a block (see the module).
pub struct Cover {
    /// The ranges in order.
    pub ranges: Vec<BaseRange>,
    /// Their content. It may be shorter than the block.
    pub content: Vec<u8>,
    /// Bytes of an element of the bases.
    pub width: usize,
    /// The base of the last range.
    last: Option<Arc<SliceBase>>,
}

/// A peak of the block and one of a base with the same near hash.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pair {
    /// Number of the peak in the block, and its element.
    pub peak: usize,
    pub here: i64,
    /// Position among the bases.
    pub base: usize,
    /// Element of the base less element of the block.
    pub shift: i64,
}

/// Elements of the block that are like those of a base at one distance.
#[derive(Debug, Clone, Copy)]
struct Segment {
    /// First and last element that are known to be alike.
    first: i64,
    last: i64,
    /// Position among the bases.
    base: usize,
    /// Element of the base less element of the block.
    shift: i64,
    is_exact: bool,
}

/// The elements that a segment covers.
struct CoveredElements {
    start: i64,
    end: i64,
    base: Arc<SliceBase>,
    shift: i64,
}

impl SliceSearch {
    /// Covers of `block` by ranges of the bases found: of its rows if they are columns of a matrix, and of parts that
    /// are alike, if these are not too little of it. All bases of the latter have elements of one of `widths`: the one
    /// with which most is alike, and the first of equals.
    ///
    /// # Errors
    /// Only errors that fail the run.
    pub fn covers(
        &mut self,
        block: WeightBlock<'_>,
        widths: &[usize],
        found: &mut FoundSlices,
        bases: &mut Bases,
    ) -> Result<Vec<Cover>> {
        let mut covers = Vec::new();
        let mut best: Option<(i64, usize, Vec<Segment>)> = None;
        for width in widths {
            let pairs = pairs(block, found, *width);
            if let Some(columns) = Columns::find(block, &pairs) {
                covers.extend(self.column_cover(block, columns, found, bases)?);
            }
            let mut segments = segments(block, found, *width, voted(pairs));
            for is_after in [false, true] {
                self.alike_side(block, is_after, *width, &mut segments, found, bases)?;
            }
            let alike = segments.iter().map(|one| one.last - one.first + 1).sum();
            if best.as_ref().is_none_or(|best| alike > best.0) {
                best = Some((alike, *width, segments));
            }
        }
        if let Some((_, width, segments)) = best {
            covers.extend(self.segment_cover(block, width, &segments, found, bases)?);
        }
        covers.retain(|cover| !cover.ranges.is_empty() && cover.ranges.len() <= COVER_RANGES_MAX);
        Ok(covers)
    }

    /// If the `segments` are most of the block and an end of it is not alike, looks for a base that the end is alike in
    /// the entries stored beside the base of the segment there.
    fn alike_side(
        &mut self,
        block: WeightBlock<'_>,
        is_after: bool,
        width: usize,
        segments: &mut Vec<Segment>,
        found: &mut FoundSlices,
        bases: &mut Bases,
    ) -> Result<()> {
        let own = block.layout;
        let elements = elements(block.bytes.len(), own.phase, own.width);
        let end = |segments: &[Segment]| match is_after {
            true => segments.last().map(|last| (last.base, elements - last.last)),
            false => segments.first().map(|first| (first.base, first.first)),
        };
        let alike: i64 = segments.iter().map(|one| one.last - one.first + 1).sum();
        let Some((base, rest)) = end(segments).filter(|_| alike * 2 >= elements) else { return Ok(()) };
        let least = ALIKE_END_MIN / own.width.max(1) as i64;
        let mut beside = found.bases.get(base).cloned().filter(|_| rest >= least);
        for _ in 0..SIDE_ENTRIES_MAX {
            let Some(base) = beside else { break };
            beside = self.neighbour(&base, is_after, bases)?;
            if let Some(next) = beside.clone().filter(|next| found.bases.iter().all(|known| known.entry != next.entry))
            {
                found.bases.push(next);
                let more = self::segments(block, found, width, voted(pairs(block, found, width)));
                if end(&more).is_some_and(|(_, now)| now <= rest - least / 4) {
                    *segments = more;
                    break;
                }
                found.bases.pop();
            }
        }
        Ok(())
    }

    /// A cover of `block` by what these segments cover, and what fills the gaps; `None` if they cover too little.
    fn segment_cover(
        &mut self,
        block: WeightBlock<'_>,
        width: usize,
        segments: &[Segment],
        found: &FoundSlices,
        bases: &mut Bases,
    ) -> Result<Option<Cover>> {
        let own = block.layout.width;
        let extents = extents(block, found, segments);
        let covered: i64 = extents.iter().map(|one| one.end - one.start).sum();
        if covered as usize * own * ALIKE_SHARE < block.bytes.len() {
            return Ok(None);
        }
        let mut cover = Cover::new(width);
        let Some(first) = extents.first().map(|first| first.base.clone()) else { return Ok(None) };
        // The delta keeps the bytes before the first element.
        cover.push(&first, 0, block.layout.phase);
        let mut at = 0;
        let mut before: Option<&CoveredElements> = None;
        for extent in &extents {
            self.gap(&mut cover, at..extent.start, before, Some(extent), bases)?;
            cover.push_elements(&extent.base, extent.start + extent.shift, extent.end - extent.start);
            (at, before) = (extent.end, Some(extent));
        }
        let elements = elements(block.bytes.len(), block.layout.phase, own);
        self.gap(&mut cover, at..elements, before, None, bases)?;
        cover.push_rest(block.bytes.len());
        Ok(Some(cover))
    }

    /// Fills `gap`, of elements, between two extents.
    fn gap(
        &mut self,
        cover: &mut Cover,
        gap: std::ops::Range<i64>,
        before: Option<&CoveredElements>,
        after: Option<&CoveredElements>,
        bases: &mut Bases,
    ) -> Result<()> {
        let (mut start, mut end) = (gap.start, gap.end);
        if let Some(before) = before.filter(|_| start < end)
            && let Some(next) = self.neighbour(&before.base, true, bases)?
            && next.layout.width == cover.width
        {
            let taken = (end - start).min(next.elements());
            cover.push_elements(&next, 0, taken);
            start += taken;
        }
        let mut last = None;
        if let Some(after) = after.filter(|_| start < end)
            && let Some(next) = self.neighbour(&after.base, false, bases)?
            && next.layout.width == cover.width
        {
            let taken = (end - start).min(next.elements());
            end -= taken;
            last = Some((next, taken));
        }
        // Nothing need be behind the last extent: the rest of the block is stored without a base.
        while let Some(any) = after.filter(|_| start < end) {
            let taken = (end - start).min(any.base.elements());
            if taken == 0 {
                break;
            }
            cover.push_elements(&any.base, 0, taken);
            start += taken;
        }
        if let Some((next, taken)) = last {
            cover.push_elements(&next, next.elements() - taken, taken);
        }
        Ok(())
    }
}

impl Cover {
    /// An empty one, of bases with elements of `width` bytes.
    pub(super) fn new(width: usize) -> Self {
        Cover { ranges: Vec::new(), content: Vec::new(), width, last: None }
    }

    /// Appends elements of a base.
    pub(super) fn push_elements(&mut self, base: &Arc<SliceBase>, first: i64, count: i64) {
        let width = base.layout.width;
        self.push(base, base.layout.phase + first.max(0) as usize * width, count.max(0) as usize * width);
    }

    /// Appends bytes of a base.
    fn push(&mut self, base: &Arc<SliceBase>, offset: usize, len: usize) {
        let Some(bytes) = base.bytes.get(offset..offset + len).filter(|bytes| !bytes.is_empty()) else { return };
        self.content.extend_from_slice(bytes);
        self.last = Some(base.clone());
        let (offset, len) = (offset as u32, len as u32);
        match self.ranges.last_mut() {
            Some(last) if last.entry == base.entry && last.offset + last.len == offset => last.len += len,
            _ => self.ranges.push(BaseRange { entry: base.entry, offset, len }),
        }
    }

    /// Bytes of the block after its last element: the last range takes as many more, if its base has them.
    fn push_rest(&mut self, block_bytes: usize) {
        let missing = block_bytes.saturating_sub(self.content.len());
        let Some((last, range)) = self.last.clone().zip(self.ranges.last_mut()) else { return };
        let end = (range.offset + range.len) as usize;
        if let Some(bytes) = last.bytes.get(end..end + missing).filter(|_| missing < last.layout.width) {
            self.content.extend_from_slice(bytes);
            range.len += missing as u32;
        }
    }
}

impl SliceBase {
    /// Whole elements.
    pub(super) fn elements(&self) -> i64 {
        elements(self.bytes.len(), self.layout.phase, self.layout.width)
    }
}

fn elements(bytes: usize, phase: usize, width: usize) -> i64 {
    (bytes.saturating_sub(phase) / width.max(1)) as i64
}

/// Number of the element at byte `position`; `None` if none begins there.
fn element_at(position: u32, phase: usize, width: usize) -> Option<i64> {
    let inside = (position as usize).checked_sub(phase)?;
    (inside % width == 0).then_some((inside / width) as i64)
}

/// The segments of `block` in bases with elements of `width` bytes, ascending. `voted` are those of single peaks.
fn segments(block: WeightBlock<'_>, found: &FoundSlices, width: usize, voted: Vec<Pair>) -> Vec<Segment> {
    let own = block.layout;
    let mut out: Vec<Segment> = Vec::new();
    for exact in found.exact.iter().filter(|exact| exact.len >= EXACT_BYTES_MIN && own.width == width) {
        let Some(base) = found.bases.iter().position(|base| base.entry == exact.base) else { continue };
        let Some(layout) = found.bases.get(base).map(|base| base.layout).filter(|layout| layout.width == width) else {
            continue;
        };
        // Up to the first whole element.
        let skipped = (own.phase + width - exact.position as usize % width) % width;
        let (position, offset) = (exact.position + skipped as u32, exact.offset + skipped as u32);
        let first = element_at(position, own.phase, width);
        let Some((first, other)) = first.zip(element_at(offset, layout.phase, width)) else { continue };
        let last = first + (exact.len as usize - skipped) as i64 / width as i64 - 1;
        out.push(Segment { first, last, base, shift: other - first, is_exact: true });
    }
    let exact_count = out.len();
    for Pair { here: at, base, shift, .. } in voted {
        let is_inside = out.get(..exact_count).unwrap_or_default().iter().any(|one| one.first <= at && at <= one.last);
        if !is_inside {
            out.push(Segment { first: at, last: at, base, shift, is_exact: false });
        }
    }
    out.sort_by_key(|one| one.first);
    let mut merged: Vec<Segment> = Vec::with_capacity(out.len());
    for next in out {
        match merged.last_mut() {
            Some(last) if last.base == next.base && last.shift == next.shift => {
                (last.last, last.is_exact) = (last.last.max(next.last), false);
            }
            _ => merged.push(next),
        }
    }
    merged
}

/// The peaks of `block` and of bases with elements of `width` bytes that have the same near hash.
fn pairs(block: WeightBlock<'_>, found: &FoundSlices, width: usize) -> Vec<Pair> {
    let own = block.layout;
    let mut positions: HashMap<u64, usize> = HashMap::with_capacity(found.peaks.len());
    for (number, peak) in found.peaks.iter().enumerate() {
        positions.entry(peak.near).or_insert(number);
    }
    let mut pairs: Vec<Pair> = Vec::new();
    for (number, base) in found.bases.iter().enumerate().filter(|(_, base)| base.layout.width == width) {
        for peak in &base.peaks {
            let Some(at) = positions.get(&peak.near) else { continue };
            let here = found.peaks.get(*at).and_then(|peak| element_at(peak.position, own.phase, own.width));
            let there = element_at(peak.position, base.layout.phase, width);
            let Some((here, there)) = here.zip(there) else { continue };
            pairs.push(Pair { peak: *at, here, base: number, shift: there - here });
        }
    }
    pairs
}

/// The pair of each peak whose base and distance have most votes.
fn voted(mut pairs: Vec<Pair>) -> Vec<Pair> {
    let mut votes: HashMap<(usize, i64), u32> = HashMap::new();
    for pair in &pairs {
        *votes.entry((pair.base, pair.shift)).or_default() += 1;
    }
    let count = |pair: &Pair| votes.get(&(pair.base, pair.shift)).copied().unwrap_or(0);
    pairs.retain(|pair| count(pair) >= VOTES_MIN);
    // The most votes first among the pairs of a peak, then the better base.
    pairs.sort_by_key(|pair| (pair.peak, std::cmp::Reverse(count(pair)), pair.base, pair.shift));
    pairs.dedup_by_key(|pair| pair.peak);
    pairs
}

/// The elements that each segment covers, ascending and without overlap.
fn extents(block: WeightBlock<'_>, found: &FoundSlices, segments: &[Segment]) -> Vec<CoveredElements> {
    let elements = elements(block.bytes.len(), block.layout.phase, block.layout.width);
    let mut out: Vec<CoveredElements> = Vec::with_capacity(segments.len());
    for (number, one) in segments.iter().enumerate() {
        let Some(base) = found.bases.get(one.base) else { continue };
        let bound = segments.get(number + 1).map_or(elements, |next| {
            if one.is_exact {
                one.last + 1
            } else if next.is_exact {
                next.first
            } else {
                (one.last + 1 + next.first) / 2
            }
        });
        let start = out.last().map_or(0, |last| last.end).max(-one.shift);
        let end = elements.min(base.elements() - one.shift).min(bound.max(start));
        if start < end {
            out.push(CoveredElements { start, end, base: base.clone(), shift: one.shift });
        }
    }
    out
}
