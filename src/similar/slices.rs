//! Slices: the ranges of stored blocks that a new block of weights equals, found through its peaks (ours).
//!
//! 1. *Bases*: the counterparts that Choose found by features are read one after another, deltas as well, until they
//!    make up the block.
//! 2. *Matches*: anchors with equal exact hashes are extended byte by byte, as those of other chunks are.
//! 3. *Followers*: the last base of the block before, and the entry stored after it, are bases as well. Short chunks
//!    share no feature with a block that they are a part of.
//! 4. *Sides*: if most of a block is found and an end of it is not, what was stored beside the base of the match there
//!    is a base as well, and a few entries further on. A file with a part of each tensor goes on in the middle of the
//!    next tensor, and few peaks of a short end are features.
//! 5. *Edges*: a match that ends where its base ends goes on in the entry that was stored next, and one that begins
//!    where its base begins comes from the entry before it. Between columns of a matrix, matches go on at the jump from
//!    one row to the next. These need no common peak.
//!
//! A [`Cover`] adds what is merely alike.

mod columns;
mod cover;
pub(super) mod peaks;

pub use columns::TensorPart;
pub use cover::{COVER_RANGES_MAX, Cover};
pub use peaks::{Elements, PeakFeatures, PeakFinder};

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use self::peaks::{Peak, elements_of};
use super::BaseRange;
use super::Match;
use super::anchor_matches::{LoadedBase, anchor_matches};
use super::anchor_table::AnchorTable;
use super::bases::Bases;
use super::read_budget::ReadBudget;
use crate::codec::Scratch;
use crate::error::Result;
use crate::kernel::compare::{common_prefix_len, common_suffix_len};
use crate::kernel::sieve::Anchor;
use crate::memory::ByteLru;
use crate::repo::container::EntryNumber;

/// Memory for bases that may be needed again, and as much for those that are read for one block, bytes.
pub const SLICE_BASES_MAX: usize = 12 << 20;
/// Frames of a base, at most: each of them is decoded.
const BASE_FRAMES_MAX: usize = 64;
/// Approximate memory of the peaks of a base for one of its bytes.
const PEAKS_SHARE: usize = 16;
/// Share of a block in exact matches from which on no other base is read that shares exact features, ...
const NEARLY_ALL: f64 = 0.995;
/// ... and none that shares near ones.
const MOST: f64 = 0.5;
/// Shortest match.
const MATCH_BYTES_MIN: usize = 64;
/// Shortest end of a block for which an entry is read that may have it.
const END_BYTES_MIN: usize = 4 << 10;
/// Entries beside a base that are read for an end, at most.
const SIDE_ENTRIES_MAX: usize = 4;
/// Equal jumps between neighbouring matches from which on others are expected.
const JUMPS_MIN: u32 = 2;

/// Rows from one match to the next, at most.
const ROWS_MAX: u32 = 64;

/// Stored entries that share features of peaks with a block, the best first.
#[derive(Debug, Default)]
pub struct Counterparts {
    /// Entries that share exact ones.
    pub exact: Vec<EntryNumber>,
    /// Others, which share near ones.
    pub near: Vec<EntryNumber>,
}

impl Counterparts {
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = EntryNumber> + '_ {
        self.exact.iter().chain(&self.near).copied()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.near.is_empty()
    }
}

/// A new block of weights.
#[derive(Clone, Copy)]
pub struct WeightBlock<'a> {
    /// Its content.
    pub bytes: &'a [u8],
    /// Its elements.
    pub layout: Elements,
    /// Where it lies in its tensor.
    pub part: TensorPart<'a>,
    /// What to compare it with.
    pub counterparts: &'a Counterparts,
}

/// A stored block.
pub struct SliceBase {
    /// Its entry.
    pub entry: EntryNumber,
    /// Its content.
    pub bytes: Bytes,
    /// Its elements.
    pub layout: Elements,
    /// Its peaks.
    pub peaks: Vec<Peak>,
    table: AnchorTable,
}

/// What was found of a block.
#[derive(Default)]
pub struct FoundSlices {
    /// The bases that were read.
    pub bases: Vec<Arc<SliceBase>>,
    /// The peaks of the block.
    pub peaks: Vec<Peak>,
    /// Ranges equal to ranges of these bases, ascending, without overlap.
    pub exact: Vec<Match>,
}

impl FoundSlices {
    /// Bytes of the exact matches.
    pub fn exact_bytes(&self) -> usize {
        self.exact.iter().map(|found| found.len as usize).sum()
    }
}

/// Finds slices. It has one owner, and its state advances with the stream.
pub struct SliceSearch {
    finder: PeakFinder,
    bases: ByteLru<EntryNumber, Arc<SliceBase>>,
    budget: ReadBudget,
    scratch: Scratch,
    /// The base of the end of the last block that was made of slices.
    last: Option<Arc<SliceBase>>,
    /// Memory of the bases that were read for this block.
    read_bytes: usize,
}

impl SliceSearch {
    /// A search that reads at most `reads_per_mib` frames of bases per MiB of new blocks; `seed` keys its hashes.
    pub fn new(seed: u64, reads_per_mib: u32) -> Self {
        SliceSearch {
            finder: PeakFinder::new(seed),
            bases: ByteLru::new(SLICE_BASES_MAX),
            budget: ReadBudget::new(reads_per_mib),
            scratch: Scratch::default(),
            last: None,
            read_bytes: 0,
        }
    }

    /// Whether there is anything to compare a block without counterparts with: the block before it was made of slices.
    pub fn has_last(&self) -> bool {
        self.last.is_some()
    }

    /// Notes which entry the end of a block was made of; `None` if the block was made of no slices.
    pub fn set_last(&mut self, entry: Option<EntryNumber>) {
        self.last = entry.and_then(|entry| self.bases.get(&entry));
    }

    /// Finds slices of the counterparts of `block`, and of their neighbours.
    ///
    /// # Errors
    /// Only errors that fail the run. A base that cannot be read is skipped.
    pub fn find(&mut self, block: WeightBlock<'_>, bases: &mut Bases) -> Result<FoundSlices> {
        self.budget.grant(block.bytes.len() as u64);
        self.read_bytes = 0;
        let peaks = self.finder.peaks(block.bytes, block.layout);
        let anchors: Vec<Anchor> = peaks.iter().map(Peak::anchor).collect();
        let mut found = FoundSlices { peaks, ..FoundSlices::default() };
        if let Some(last) = self.last.take() {
            let next = self.neighbour(&last, true, bases)?;
            [Some(last), next].into_iter().flatten().for_each(|base| push_new(&mut found.bases, base));
            self.compare(block, &anchors, &mut found, bases)?;
        }
        for (number, entry) in block.counterparts.iter().enumerate() {
            let enough = if number < block.counterparts.exact.len() { NEARLY_ALL } else { MOST };
            if found.exact_bytes() >= (block.bytes.len() as f64 * enough) as usize {
                break;
            }
            if let Some(base) = self.base(entry, block.layout, bases)? {
                push_new(&mut found.bases, base);
                self.compare(block, &anchors, &mut found, bases)?;
            }
        }
        for is_after in [false, true] {
            self.side(block, is_after, &anchors, &mut found, bases)?;
        }
        Ok(found)
    }

    /// Looks for an end of the block that no match reaches in the entries stored beside the base of the match there.
    fn side(
        &mut self,
        block: WeightBlock<'_>,
        is_after: bool,
        anchors: &[Anchor],
        found: &mut FoundSlices,
        bases: &mut Bases,
    ) -> Result<()> {
        let end = |found: &FoundSlices| {
            let outermost = if is_after { found.exact.last() } else { found.exact.first() };
            let matched = outermost.map_or(0, |one| one.position + one.len) as usize;
            let rest =
                if is_after { block.bytes.len() - matched } else { outermost.map_or(0, |one| one.position) as usize };
            outermost.copied().filter(|_| rest >= END_BYTES_MIN)
        };
        let Some(outermost) = end(found).filter(|_| found.exact_bytes() >= (block.bytes.len() as f64 * MOST) as usize)
        else {
            return Ok(());
        };
        let mut beside = found.bases.iter().find(|base| base.entry == outermost.base).cloned();
        for _ in 0..SIDE_ENTRIES_MAX {
            let Some(base) = beside else { break };
            beside = self.neighbour(&base, is_after, bases)?;
            if let Some(next) = beside.clone().filter(|next| found.bases.iter().all(|known| known.entry != next.entry))
            {
                let entry = next.entry;
                found.bases.push(next);
                self.compare(block, anchors, found, bases)?;
                if found.exact.iter().any(|exact| exact.base == entry) {
                    break;
                }
                found.bases.retain(|known| known.entry != entry);
            }
        }
        Ok(())
    }

    /// Finds the exact matches with the bases that were read.
    fn compare(
        &mut self,
        block: WeightBlock<'_>,
        anchors: &[Anchor],
        found: &mut FoundSlices,
        bases: &mut Bases,
    ) -> Result<()> {
        let cached: Vec<LoadedBase<'_>> = found
            .bases
            .iter()
            .map(|base| LoadedBase { entry: base.entry, bytes: &base.bytes, anchors: &base.table })
            .collect();
        let exact = anchor_matches(block.bytes, anchors, &cached, MATCH_BYTES_MIN);
        found.exact = self.edges(block, exact, &mut found.bases, bases)?;
        Ok(())
    }

    /// The entry before or after `entry` as a base, if there is one in memory or the budget allows to read it.
    ///
    /// # Errors
    /// Errors of [`SliceSearch::find`].
    pub fn neighbour(
        &mut self,
        entry: &SliceBase,
        is_after: bool,
        bases: &mut Bases,
    ) -> Result<Option<Arc<SliceBase>>> {
        let next =
            if is_after { bases.entries.following(entry.entry)? } else { bases.entries.preceding(entry.entry)? };
        let next = next.filter(|next| next.as_session().is_none_or(|number| number < bases.entries.ring.next()));
        match next {
            Some(next) => self.base(next, entry.layout, bases),
            None => Ok(None),
        }
    }

    /// Reads a base. Its elements are those of its features, or else `layout`.
    fn base(&mut self, entry: EntryNumber, layout: Elements, bases: &mut Bases) -> Result<Option<Arc<SliceBase>>> {
        if let Some(found) = self.bases.get(&entry) {
            return Ok(Some(found));
        }
        // The bases of one block are in memory together, and so are the frames of one base.
        let Some(frames) = bases.content_frames(entry)?.filter(|frames| *frames <= BASE_FRAMES_MAX) else {
            return Ok(None);
        };
        if self.read_bytes >= SLICE_BASES_MAX || !self.budget.take_all(frames) {
            return Ok(None);
        }
        let Some(bytes) = bases.content(entry, &mut self.scratch)? else { return Ok(None) };
        let layout = elements_of(&bases.entries.features(entry)?).unwrap_or(layout);
        let peaks = self.finder.peaks(&bytes, layout);
        let anchors: Vec<Anchor> = peaks.iter().map(Peak::anchor).collect();
        let table = AnchorTable::new(&anchors);
        let memory = bytes.len() + bytes.len() / PEAKS_SHARE;
        let base = Arc::new(SliceBase { entry, bytes: bytes.into(), layout, peaks, table });
        self.read_bytes += memory;
        self.bases.put(entry, base.clone(), memory);
        Ok(Some(base))
    }

    /// The content of these ranges; `None` if one of them cannot be read, or not within the budget.
    ///
    /// # Errors
    /// Errors of [`SliceSearch::find`].
    pub fn content_of(
        &mut self,
        ranges: impl Iterator<Item = BaseRange>,
        layout: Elements,
        bases: &mut Bases,
    ) -> Result<Option<Vec<u8>>> {
        let mut content = Vec::new();
        for range in ranges {
            let Some(base) = self.base(range.entry, layout, bases)? else { return Ok(None) };
            let (start, len) = (range.offset as usize, range.len as usize);
            content.extend_from_slice(base.bytes.get(start..start + len).unwrap_or_default());
        }
        Ok(Some(content))
    }

    /// Fills the gaps between `matches` with what follows and precedes them: in the neighbours of bases that they reach
    /// the edges of, and at the jump from one row to the next.
    fn edges(
        &mut self,
        block: WeightBlock<'_>,
        matches: Vec<Match>,
        known: &mut Vec<Arc<SliceBase>>,
        bases: &mut Bases,
    ) -> Result<Vec<Match>> {
        let jump = jump(&matches);
        let mut out: Vec<Match> = Vec::with_capacity(matches.len() + 4);
        let ends = matches.iter().map(|next| next.position).chain([block.bytes.len() as u32]);
        let ends: Vec<u32> = ends.collect();
        let mut nexts = matches.into_iter();
        for end in ends {
            let next = nexts.next();
            let mut start = out.last().map_or(0, |last| last.position + last.len);
            while let Some(last) = out.last().copied()
                && let Some(found) = self.after(block, start..end, last, jump, known, bases)?
            {
                out.push(found);
                start += found.len;
            }
            let (mut end, mut behind) = (end, Vec::from_iter(next));
            while let Some(first) = behind.last().copied()
                && let Some(found) = self.before(block, start..end, first, jump, known, bases)?
            {
                behind.push(found);
                end -= found.len;
            }
            out.extend(behind.into_iter().rev());
        }
        Ok(out)
    }

    /// A match at the start of `gap` that goes on where `last` ended, in its base or the one stored next.
    fn after(
        &mut self,
        block: WeightBlock<'_>,
        gap: Range<u32>,
        last: Match,
        jump: Option<i64>,
        known: &mut Vec<Arc<SliceBase>>,
        bases: &mut Bases,
    ) -> Result<Option<Match>> {
        let rest = block.bytes.get(gap.start as usize..gap.end as usize).unwrap_or_default();
        let Some(base) = known.iter().find(|base| base.entry == last.base).cloned() else { return Ok(None) };
        let end = i64::from(last.offset) + i64::from(last.len);
        let here = (end == base.bytes.len() as i64).then_some(0);
        for jump in [here, jump].into_iter().flatten().filter(|_| rest.len() >= MATCH_BYTES_MIN) {
            let Some((base, offset)) = self.inside(&base, end + jump, true, bases)? else { continue };
            let len = common_prefix_len(rest, base.bytes.get(offset..).unwrap_or_default());
            if len >= MATCH_BYTES_MIN {
                let found = Match { position: gap.start, base: base.entry, offset: offset as u32, len: len as u32 };
                push_new(known, base);
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// A match at the end of `gap` that ends where `first` began, in its base or the one stored before.
    fn before(
        &mut self,
        block: WeightBlock<'_>,
        gap: Range<u32>,
        first: Match,
        jump: Option<i64>,
        known: &mut Vec<Arc<SliceBase>>,
        bases: &mut Bases,
    ) -> Result<Option<Match>> {
        let rest = block.bytes.get(gap.start as usize..gap.end as usize).unwrap_or_default();
        let Some(base) = known.iter().find(|base| base.entry == first.base).cloned() else { return Ok(None) };
        let here = (first.offset == 0).then_some(0);
        for jump in [here, jump].into_iter().flatten().filter(|_| rest.len() >= MATCH_BYTES_MIN) {
            let Some((base, end)) = self.inside(&base, i64::from(first.offset) - jump, false, bases)? else { continue };
            let len = common_suffix_len(rest, base.bytes.get(..end).unwrap_or_default());
            if len >= MATCH_BYTES_MIN {
                let (position, offset) = (gap.end - len as u32, (end - len) as u32);
                let found = Match { position, base: base.entry, offset, len: len as u32 };
                push_new(known, base);
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The base in which byte `offset` of `base` is, which may be the one before or after it, and the offset there. At
    /// an edge it is the next one if `is_start`, else the one before.
    fn inside(
        &mut self,
        base: &Arc<SliceBase>,
        offset: i64,
        is_start: bool,
        bases: &mut Bases,
    ) -> Result<Option<(Arc<SliceBase>, usize)>> {
        let len = base.bytes.len() as i64;
        let is_inside = if is_start { (0..len).contains(&offset) } else { (1..=len).contains(&offset) };
        if is_inside {
            return Ok(Some((base.clone(), offset as usize)));
        }
        let is_after = offset > 0;
        let Some(next) = self.neighbour(base, is_after, bases)? else { return Ok(None) };
        let offset = if is_after { offset - len } else { offset + next.bytes.len() as i64 };
        Ok(usize::try_from(offset).ok().filter(|offset| *offset <= next.bytes.len()).map(|offset| (next, offset)))
    }
}

/// The most common distance in a base from the end of a match to the match that follows it in the block without a gap:
/// columns of a matrix are parts of its rows. Peaks are further apart than the rows of narrow columns, so matches of
/// one length may have rows of that length between them.
fn jump(matches: &[Match]) -> Option<i64> {
    let mut jumps: HashMap<i64, u32> = HashMap::new();
    for (one, next) in std::iter::zip(matches, matches.iter().skip(1)) {
        let (moved, rows) = (next.position - one.position, (next.position - one.position) / one.len.max(1));
        let is_after_rows = rows == 1 || one.len == next.len && rows <= ROWS_MAX;
        if one.base == next.base && is_after_rows && rows * one.len == moved {
            let skipped = i64::from(next.offset) - i64::from(one.offset) - i64::from(moved);
            if skipped != 0 && skipped % i64::from(rows) == 0 {
                *jumps.entry(skipped / i64::from(rows)).or_default() += 1;
            }
        }
    }
    let most = jumps.into_iter().max_by_key(|(jump, count)| (*count, std::cmp::Reverse(*jump)));
    most.filter(|(_, count)| *count >= JUMPS_MIN).map(|(jump, _)| jump)
}

fn push_new(known: &mut Vec<Arc<SliceBase>>, base: Arc<SliceBase>) {
    if known.iter().all(|other| other.entry != base.entry) {
        known.push(base);
    }
}
