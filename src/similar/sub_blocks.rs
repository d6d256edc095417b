//! Sub-blocks of fixed length (FHRD, section 3.2): the three steps that all layouts share, each on threads of its own.
//!
//! 1. *Fine-hash* ([`SubBlockHasher`]): the layout divides a chunk into sub-blocks. Each has a hash and a position
//!    code, which gives its offset in a chunk of known length. FHRD's length is the power of two nearest to a tenth of
//!    the chunk.
//! 2. *Fine-dedup* ([`SubBlockChooser`]): each sub-block's hash is looked up among those of all chunks. Of the entries
//!    that have it, the one chosen last is preferred, then the newest that may be read.
//! 3. *Diff* ([`SubBlockMatcher`]): a hit is compared byte by byte, and extended in both directions over equal bytes.
//!    Without the extension only whole sub-blocks are copied. The paper names this step and does not say what it does.
//!
//! The paper does not cover small chunks. Here chunks below `chunk_bytes_min` are stored whole. Hashes are 48 bits of
//! keyed XXH3. Equality is always decided by the bytes.

use std::collections::VecDeque;
use std::sync::Arc;

use lru::LruCache;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::bases::{BaseChunk, Bases, Entries, SharedBases, WorkerBases};
use super::candidates::Candidates;
use super::chooser::EntryRegion;
use super::read_budget::ReadBudget;
use super::{HASH_MASK, Match, StrategyOutput, bidirectional, head_only, uniform};
use crate::config::{StrategyKind, SubdedupConfig};
use crate::error::Result;
use crate::kernel::compare::{common_prefix_len, common_suffix_len};
use crate::repo::container::{EntryNumber, FEATURES_MAX, SessionEntryNumber};
use crate::repo::index::Locator;
use crate::repo::read::at_least_one;

/// A sub-block of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubBlock {
    /// Position code, below 256 and unique in the chunk. It gives the offset in a chunk of this length.
    pub code: u64,
    /// Offset in the chunk.
    pub offset: usize,
    /// Length in bytes.
    pub len: usize,
}

/// Gives the sub-blocks of a chunk of a length, in ascending order and without overlap.
pub type SubBlockLayout = Box<dyn Fn(usize) -> Vec<SubBlock> + Send>;

/// A sub-block and its feature: 48 bits of hash, and the position code above them.
pub type HashedSubBlock = (SubBlock, u64);

/// A sub-block, the entry that has its hash, and the position code of the hash there.
pub type FoundSubBlock = (SubBlock, EntryNumber, u64);

/// Length of the sub-blocks of a chunk of `len` bytes.
pub fn sub_block_len(len: usize) -> usize {
    let tenth = (len / 10).max(1);
    let (low, high) = (1 << tenth.ilog2(), 2 << tenth.ilog2());
    if tenth - low < high - tenth { low } else { high }
}

/// The layout of a strategy. One of another kind has no sub-blocks.
fn layout_of(config: &SubdedupConfig) -> SubBlockLayout {
    match config.strategy {
        StrategyKind::Bidirectional => Box::new(bidirectional::layout),
        StrategyKind::HeadOnly => Box::new(head_only::layout),
        StrategyKind::Uniform => uniform::layout_of(config.parts),
        _ => Box::new(|_| Vec::new()),
    }
}

/// Divides chunks into sub-blocks and hashes them.
pub struct SubBlockHasher {
    layout: SubBlockLayout,
    /// Smaller chunks have no sub-blocks.
    chunk_bytes_min: usize,
    /// Keys the hashes.
    seed: u64,
}

impl SubBlockHasher {
    /// The hasher of a strategy; `seed` keys the hashes.
    pub fn new(config: &SubdedupConfig, seed: u64) -> Self {
        // Runs with different strategies share one similarity index, so each strategy hashes with a key of its own.
        let own_seed = match config.strategy {
            StrategyKind::Bidirectional => seed,
            other => xxh3_64_with_seed(other.name().as_bytes(), seed),
        };
        let chunk_bytes_min = config.chunk_bytes_min.0 as usize;
        SubBlockHasher { layout: layout_of(config), chunk_bytes_min, seed: own_seed }
    }

    /// The sub-blocks of a chunk, in ascending order.
    pub fn hash(&self, chunk: &[u8]) -> Vec<HashedSubBlock> {
        if chunk.len() < self.chunk_bytes_min {
            return Vec::new();
        }
        let hashed = |block: SubBlock| {
            let bytes = chunk.get(block.offset..block.offset + block.len).unwrap_or_default();
            (block, block.code << 48 | xxh3_64_with_seed(bytes, self.seed) & HASH_MASK)
        };
        (self.layout)(chunk.len()).into_iter().map(hashed).collect()
    }
}

/// Looks sub-blocks up, in stream order. It numbers the session entries as SubDedup will.
pub struct SubBlockChooser {
    shared: Arc<SharedBases>,
    entries: Entries,
    candidates: Candidates,
    /// Most entries tried for a sub-block.
    candidates_max: usize,
    /// Neighbours that were chosen or stored lately, so that their frames are probably in memory.
    recent: LruCache<EntryRegion, ()>,
    budget: ReadBudget,
    /// Features of the entries that SubDedup has not made yet.
    unmade: VecDeque<(SessionEntryNumber, Vec<u64>)>,
    /// Number of the next entry.
    next: SessionEntryNumber,
}

impl SubBlockChooser {
    /// A chooser among the entries that `bases` sees, for chunks of `chunk_bytes_avg` bytes on average. It finds chunks
    /// with `locator`, because it runs on another thread than that of `bases`.
    pub fn new(
        shared: Arc<SharedBases>,
        bases: &Bases,
        locator: Locator,
        candidates: Candidates,
        config: &SubdedupConfig,
        chunk_bytes_avg: u64,
    ) -> Self {
        let regions = config.base_cache_bytes.0 / EntryRegion::bytes(chunk_bytes_avg);
        SubBlockChooser {
            entries: bases.entries.sharing(locator, shared.extent_cache()),
            shared,
            candidates,
            candidates_max: config.candidates_max,
            recent: LruCache::new(at_least_one(regions as usize)),
            budget: ReadBudget::new(config.base_reads_per_mib),
            unmade: VecDeque::new(),
            next: SessionEntryNumber::default(),
        }
    }

    /// Counts a new chunk that is neither compared nor a base.
    pub fn skip(&mut self, len: u32) {
        self.budget.grant(u64::from(len));
        self.next = self.next.plus(1);
    }

    /// The sub-blocks of a new chunk that others have, and the features of the rest. If `is_base`, later chunks may be
    /// compared with it.
    ///
    /// # Errors
    /// Only errors that fail the run.
    pub fn choose(
        &mut self,
        blocks: Vec<HashedSubBlock>,
        chunk: &Arc<BaseChunk>,
        is_base: bool,
    ) -> Result<(Vec<FoundSubBlock>, Vec<u64>)> {
        self.forget_made();
        let len = chunk.bytes().len() as u32;
        self.budget.grant(u64::from(len));
        let (mut found, mut features, mut last) = (Vec::new(), Vec::new(), None);
        for (block, feature) in blocks {
            match self.lookup(feature & HASH_MASK, last)? {
                Some((entry, code)) => {
                    last = Some(entry);
                    found.push((block, entry, code));
                }
                None => features.push(feature),
            }
        }
        // A container has no more of an entry, and later chunks must find the same in it as here.
        features.truncate(FEATURES_MAX);
        let number = self.next;
        self.next = number.plus(1);
        if is_base && !features.is_empty() && SharedBases::may_hold(len) {
            self.candidates.insert(number, &features);
            self.shared.pin(number, chunk.clone());
            self.unmade.push_back((number, features.clone()));
            self.recent.put(EntryRegion::of(EntryNumber::session(number)), ());
        }
        Ok((found, features))
    }

    /// An entry that has a sub-block with this hash, and its position code there.
    fn lookup(&mut self, hash: u64, last: Option<EntryNumber>) -> Result<Option<(EntryNumber, u64)>> {
        let mut candidates = Vec::new();
        let resolver = self.entries.resolver();
        self.candidates.find(&[hash], self.candidates_max, resolver, |_, entry| candidates.push(entry));
        // The base of the last match is cached, and one base for several copies keeps the entry small.
        candidates.sort_by_key(|entry| Some(*entry) != last);
        for entry in candidates {
            let features = self.features(entry)?;
            let Some(feature) = features.iter().find(|feature| **feature & HASH_MASK == hash) else { continue };
            if self.may_read(entry) {
                return Ok(Some((entry, feature >> 48)));
            }
        }
        Ok(None)
    }

    /// Forgets the features of entries that SubDedup has made.
    fn forget_made(&mut self) -> SessionEntryNumber {
        let made = self.entries.ring.next();
        while self.unmade.front().is_some_and(|first| first.0 < made) {
            self.unmade.pop_front();
        }
        made
    }

    fn features(&mut self, entry: EntryNumber) -> Result<Vec<u64>> {
        let made = self.forget_made();
        if let Some(number) = entry.as_session().filter(|number| *number >= made) {
            let at = self.unmade.binary_search_by_key(&number, |unmade| unmade.0).ok();
            let unmade = at.and_then(|at| self.unmade.get(at));
            return Ok(unmade.map(|unmade| unmade.1.clone()).unwrap_or_default());
        }
        self.entries.features(entry)
    }

    /// Whether the frames of an entry are probably in memory, or a read is allowed. Takes that from the budget.
    fn may_read(&mut self, entry: EntryNumber) -> bool {
        let region = EntryRegion::of(entry);
        if self.recent.get(&region).is_none() {
            if !self.budget.take() {
                return false;
            }
            self.recent.put(region, ());
        }
        true
    }
}

/// Compares sub-blocks with those of their bases, byte by byte.
pub struct SubBlockMatcher {
    bases: WorkerBases,
    layout: SubBlockLayout,
    /// Extend matches byte by byte.
    extend_matches: bool,
    /// Shortest copy.
    copy_bytes_min: usize,
}

impl SubBlockMatcher {
    /// A matcher that reads `bases`.
    pub fn new(bases: WorkerBases, config: &SubdedupConfig) -> Self {
        SubBlockMatcher {
            bases,
            layout: layout_of(config),
            extend_matches: config.extend_matches,
            copy_bytes_min: config.copy_bytes_min.0 as usize,
        }
    }

    /// The ranges that a chunk shares with the entries found for its sub-blocks. A base that cannot be read is skipped.
    ///
    /// # Errors
    /// Only errors that fail the run.
    pub fn find(&mut self, chunk: &[u8], found: &[FoundSubBlock], features: Vec<u64>) -> Result<StrategyOutput> {
        let mut matches = Vec::new();
        // Bytes before `covered` are decided: copied or literal.
        let mut covered = 0;
        for (SubBlock { offset: at, len, .. }, entry, code) in found.iter().copied() {
            let block = chunk.get(at..at + len).unwrap_or_default();
            if at + len <= covered {
                continue;
            }
            let Some(base) = self.bases.chunk(entry)? else { continue };
            let base = base.bytes();
            let base_blocks = (self.layout)(base.len());
            let Some(offset) = base_blocks.iter().find(|block| block.code == code).map(|block| block.offset) else {
                continue;
            };
            if base.get(offset..offset + len) != Some(block) {
                continue;
            }
            let (mut start, mut end) = (at, at + len);
            if self.extend_matches {
                let before = chunk.get(covered..at).unwrap_or_default();
                start -= common_suffix_len(before, base.get(..offset).unwrap_or_default());
                let after = chunk.get(end..).unwrap_or_default();
                end += common_prefix_len(after, base.get(offset + len..).unwrap_or_default());
            }
            start = start.max(covered);
            if end - start >= self.copy_bytes_min {
                push(&mut matches, start, end, entry, offset + start - at);
            }
            covered = end;
        }
        Ok(StrategyOutput { matches, features, rate: None })
    }
}

/// Adds a match, or extends the last match if the new one continues it in the same base.
fn push(matches: &mut Vec<Match>, start: usize, end: usize, base: EntryNumber, offset: usize) {
    let (position, offset, len) = (start as u32, offset as u32, (end - start) as u32);
    match matches.last_mut() {
        Some(last) if last.base == base && last.position + last.len == position && last.offset + last.len == offset => {
            last.len += len;
        }
        _ => matches.push(Match { position, base, offset, len }),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Checks what every layout must guarantee, for chunks of all lengths.
    pub(in crate::similar) fn check(layout: fn(usize) -> Vec<SubBlock>) {
        for len in (256..70_000).step_by(37).chain([65_536, 262_144]) {
            let size = sub_block_len(len);
            assert!(size.is_power_of_two() && size * 20 >= len && size * 5 <= len, "{len}: {size}");
            let (mut end, mut codes) = (0, std::collections::BTreeSet::new());
            for SubBlock { code, offset, len: block } in layout(len) {
                assert!(offset >= end && offset + block <= len, "{len}");
                assert!(offset - end < size / 4, "{len}: a gap of {}", offset - end);
                assert!(code < 256 && codes.insert(code), "{len}: code {code}");
                end = offset + block;
            }
            assert!(len - end < size / 4, "{len}: a gap of {} at the end", len - end);
        }
    }

    #[test]
    fn the_length_is_the_power_of_two_nearest_to_a_tenth() {
        assert_eq!(sub_block_len(65_536), 8192);
        assert_eq!(sub_block_len(40_960), 4096);
        assert_eq!(sub_block_len(81_920), 8192);
    }
}
