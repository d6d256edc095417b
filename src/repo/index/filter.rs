//! The presence filter: which chunks the last level of the index cannot hold, so that it need not be asked.
//!
//! 1. A blocked Bloom filter: a fingerprint chooses one block of 64 bytes and seven bits in it. Fingerprints are evenly
//!    spread, so their bytes serve as the hashes, and segments, which are sorted, fill the blocks in order.
//! 2. It has ten bits for each chunk (about 1 in 80 absent ones passes). When it is full another part of the same size
//!    as all before is added, as far as the bound on memory allows; beyond it more absent chunks pass.

use crate::types::Fingerprint;

const BITS_PER_CHUNK: u64 = 10;
const BLOCK_BITS: u64 = 512;
const PROBES: u32 = 7;
/// Chunks of the smallest part.
const PART_CHUNKS_MIN: u64 = 1 << 16;

type FilterBlock = [u64; 8];

struct FilterPart {
    blocks: Vec<FilterBlock>,
    chunks: u64,
}

/// See the module.
pub(super) struct PresenceFilter {
    parts: Vec<FilterPart>,
    blocks_max: u64,
}

fn words(fingerprint: &Fingerprint) -> (u64, u64) {
    let words = fingerprint.0.as_chunks::<8>().0;
    let word = |at: usize| words.get(at).copied().unwrap_or_default();
    // Big-endian, like the order of fingerprints.
    (u64::from_le_bytes(word(0)).swap_bytes(), u64::from_le_bytes(word(1)))
}

fn bits(hash: u64) -> FilterBlock {
    let mut block = [0; 8];
    for probe in 0..PROBES {
        let bit = hash >> (9 * probe) & (BLOCK_BITS - 1);
        if let Some(word) = block.get_mut((bit >> 6) as usize) {
            *word |= 1 << (bit & 63);
        }
    }
    block
}

impl FilterPart {
    fn new(blocks: u64) -> Self {
        FilterPart { blocks: vec![[0; 8]; blocks as usize], chunks: 0 }
    }

    fn is_full(&self) -> bool {
        self.chunks * BITS_PER_CHUNK >= self.blocks.len() as u64 * BLOCK_BITS
    }

    fn block_of(&self, choice: u64) -> usize {
        ((u128::from(choice) * self.blocks.len() as u128) >> 64) as usize
    }
}

impl PresenceFilter {
    /// An empty filter with room for `chunks` chunks in at most `bytes_max` bytes.
    pub(super) fn new(chunks: u64, bytes_max: u64) -> Self {
        let blocks_max = (bytes_max * 8 / BLOCK_BITS).max(1);
        let blocks = (chunks.max(PART_CHUNKS_MIN) * BITS_PER_CHUNK).div_ceil(BLOCK_BITS);
        PresenceFilter { parts: vec![FilterPart::new(blocks.min(blocks_max))], blocks_max }
    }

    /// Adds a chunk.
    pub(super) fn insert(&mut self, fingerprint: &Fingerprint) {
        if self.parts.last().is_none_or(FilterPart::is_full) {
            let blocks: u64 = self.parts.iter().map(|part| part.blocks.len() as u64).sum();
            let room = self.blocks_max - blocks;
            if room > 0 {
                self.parts.push(FilterPart::new(blocks.min(room)));
            }
        }
        let (choice, hash) = words(fingerprint);
        let Some(part) = self.parts.last_mut() else { return };
        part.chunks += 1;
        let at = part.block_of(choice);
        for (word, bits) in part.blocks.get_mut(at).into_iter().flatten().zip(bits(hash)) {
            *word |= bits;
        }
    }

    /// `false`: this chunk was not added.
    pub(super) fn may_hold(&self, fingerprint: &Fingerprint) -> bool {
        let (choice, hash) = words(fingerprint);
        let wanted = bits(hash);
        self.parts.iter().any(|part| {
            let block = part.blocks.get(part.block_of(choice));
            block.is_some_and(|block| block.iter().zip(wanted).all(|(word, bits)| word & bits == bits))
        })
    }

    /// Bytes of memory.
    #[cfg(test)]
    fn memory_bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.blocks.len() as u64 * BLOCK_BITS / 8).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(n: u64) -> Fingerprint {
        Fingerprint(*blake3::hash(&n.to_le_bytes()).as_bytes())
    }

    /// Of a thousand chunks that were not added, how many pass.
    fn passing(filter: &PresenceFilter) -> u64 {
        let passed = (0..20_000u64).filter(|n| filter.may_hold(&print(u64::MAX - n))).count();
        passed as u64 / 20
    }

    #[test]
    fn what_was_added_passes_and_little_else() {
        let mut filter = PresenceFilter::new(100_000, 1 << 20);
        (0..100_000).for_each(|n| filter.insert(&print(n)));
        assert!((0..100_000).all(|n| filter.may_hold(&print(n))));
        assert!(passing(&filter) < 20, "{} of 1000", passing(&filter));
        assert!(filter.memory_bytes() < 126_000);
        (100_000..300_000).for_each(|n| filter.insert(&print(n)));
        assert!((0..300_000).all(|n| filter.may_hold(&print(n))));
        assert!(passing(&filter) < 50, "{} of 1000 after growing", passing(&filter));
    }

    #[test]
    fn a_filter_that_is_too_small_stays_within_its_bound_and_forgets_nothing() {
        let mut filter = PresenceFilter::new(100_000, 64 << 10);
        (0..100_000).for_each(|n| filter.insert(&print(n)));
        assert!(filter.memory_bytes() <= 64 << 10);
        assert!((0..100_000).all(|n| filter.may_hold(&print(n))));
        assert!(passing(&filter) < 500, "{} of 1000", passing(&filter));
    }
}
