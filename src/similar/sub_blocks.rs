//! Sub-blocks of fixed length (FHRD, section 3.2): the three steps that all layouts share.
//!
//! 1. *Fine-hash*: the layout divides a chunk into sub-blocks. Each has a hash and a position code, which gives its
//!    offset in a chunk of known length. FHRD's length is the power of two nearest to a tenth of the chunk.
//! 2. *Fine-dedup*: each sub-block's hash is looked up among those of all chunks. A hit is compared byte by byte.
//! 3. *Diff*: a hit is extended in both directions over equal bytes. Without this step only whole sub-blocks are
//!    copied. The paper names this step and does not say what it does.
//!
//! The paper does not cover small chunks. Here chunks below `chunk_bytes_min` are stored whole. Hashes are 48 bits of
//! keyed XXH3. Equality is always decided by the bytes.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::bases::Bases;
use super::{HASH_MASK, Match, Strategy, StrategyOutput};
use crate::config::SubdedupConfig;
use crate::error::Result;
use crate::kernel::compare::{common_prefix_len, common_suffix_len};
use crate::repo::container::EntryNumber;

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

/// Finds equal sub-blocks.
pub struct SubBlocks {
    layout: SubBlockLayout,
    /// Extend matches byte by byte.
    extend_matches: bool,
    /// Smaller chunks have no sub-blocks.
    chunk_bytes_min: usize,
    /// Shortest copy.
    copy_bytes_min: usize,
    /// Most similar chunks tried for a sub-block.
    candidates_max: usize,
    /// Keys the hashes.
    seed: u64,
}

/// Length of the sub-blocks of a chunk of `len` bytes.
pub fn sub_block_len(len: usize) -> usize {
    let tenth = (len / 10).max(1);
    let (low, high) = (1 << tenth.ilog2(), 2 << tenth.ilog2());
    if tenth - low < high - tenth { low } else { high }
}

impl SubBlocks {
    /// With the lengths of `config`; `seed` keys the hashes.
    pub fn new(config: &SubdedupConfig, layout: SubBlockLayout, seed: u64) -> Self {
        SubBlocks {
            layout,
            extend_matches: config.extend_matches,
            chunk_bytes_min: config.chunk_bytes_min.0 as usize,
            copy_bytes_min: config.copy_bytes_min.0 as usize,
            candidates_max: config.candidates_max,
            seed,
        }
    }

    /// A base with a sub-block equal to `block`, and the offset of that sub-block in it.
    fn lookup(
        &self,
        block: &[u8],
        hash: u64,
        last: Option<EntryNumber>,
        bases: &mut Bases,
    ) -> Result<Option<(EntryNumber, usize)>> {
        let mut candidates = bases.candidates(hash, self.candidates_max);
        // The base of the last match is cached, and one base for several copies keeps the entry small.
        candidates.sort_by_key(|entry| Some(*entry) != last);
        for entry in candidates {
            let features = bases.entries.features(entry)?;
            let Some(feature) = features.iter().find(|feature| **feature & HASH_MASK == hash) else { continue };
            let Some(base) = bases.bytes(entry)? else { continue };
            let base_blocks = (self.layout)(base.len());
            let Some(found) = base_blocks.iter().find(|found| found.code == feature >> 48) else { continue };
            if base.get(found.offset..found.offset + found.len) == Some(block) {
                return Ok(Some((entry, found.offset)));
            }
        }
        Ok(None)
    }
}

impl Strategy for SubBlocks {
    fn find(&mut self, chunk: &[u8], bases: &mut Bases) -> Result<StrategyOutput> {
        let mut found = StrategyOutput::default();
        if chunk.len() < self.chunk_bytes_min {
            return Ok(found);
        }
        // Bytes before `covered` are decided: copied or literal.
        let mut covered = 0;
        let mut last = None;
        for SubBlock { code, offset: at, len } in (self.layout)(chunk.len()) {
            let block = chunk.get(at..at + len).unwrap_or_default();
            if at + len <= covered {
                continue;
            }
            let hash = xxh3_64_with_seed(block, self.seed) & HASH_MASK;
            let Some((entry, offset)) = self.lookup(block, hash, last, bases)? else {
                found.features.push(code << 48 | hash);
                continue;
            };
            last = Some(entry);
            let (mut start, mut end) = (at, at + len);
            if self.extend_matches
                && let Some(base) = bases.base_cache().get(entry)
            {
                let before = chunk.get(covered..at).unwrap_or_default();
                start -= common_suffix_len(before, base.get(..offset).unwrap_or_default());
                let after = chunk.get(end..).unwrap_or_default();
                end += common_prefix_len(after, base.get(offset + len..).unwrap_or_default());
            }
            start = start.max(covered);
            if end - start >= self.copy_bytes_min {
                push(&mut found.matches, start, end, entry, offset + start - at);
            }
            covered = end;
        }
        Ok(found)
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
