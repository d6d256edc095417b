//! The presence filter: proves that the last level of the index does not hold a chunk, without asking it.
//!
//! 1. It is a blocked Bloom filter: a fingerprint chooses one block of 64 bytes and seven bits in it. Fingerprints are
//!    spread evenly, so their bytes serve as hashes. Segments are sorted, so they fill the blocks in order.
//! 2. It has ten bits per chunk, and about 1 in 80 absent chunks passes. A full filter gets another part of the size of
//!    all parts before, up to the memory bound. Beyond the bound more absent chunks pass.
//! 3. No part is small: it would take all that is new, and let it pass. So a filter takes all of the bound if little of
//!    it would be left.

use std::io::{self, Read, Write};

use crate::types::Fingerprint;

const BITS_PER_CHUNK: u64 = 10;
const BLOCK_BITS: u64 = 512;
const PROBES: u32 = 7;
/// Chunks of a part, at least.
const PART_CHUNKS_MIN: u64 = 1 << 16;
/// Parts of a stored filter, at most.
const PARTS_MAX: u64 = 64;

type FilterBlock = [u64; 8];

struct FilterPart {
    blocks: Vec<FilterBlock>,
    chunks: u64,
}

/// A set of chunks with false positives (see the module).
pub(super) struct PresenceFilter {
    parts: Vec<FilterPart>,
    blocks_max: u64,
}

/// Two hashes of a fingerprint: the first chooses the block, the second the bits.
fn hashes(fingerprint: &Fingerprint) -> (u64, u64) {
    let lanes = fingerprint.0.as_chunks::<8>().0;
    // Big-endian, like the order of fingerprints.
    (u64::from_le_bytes(lanes[0]).swap_bytes(), u64::from_le_bytes(lanes[1]))
}

fn bits(hash: u64) -> FilterBlock {
    let mut block = [0; 8];
    for probe in 0..PROBES {
        let bit = hash >> (9 * probe) & (BLOCK_BITS - 1);
        block[(bit >> 6) as usize] |= 1 << (bit & 63);
    }
    block
}

impl FilterPart {
    fn new(blocks: u64) -> Self {
        FilterPart { blocks: vec![[0; 8]; blocks as usize], chunks: 0 }
    }

    #[cfg(test)]
    fn memory_bytes(&self) -> u64 {
        self.blocks.len() as u64 * BLOCK_BITS / 8
    }

    fn is_full(&self) -> bool {
        self.chunks * BITS_PER_CHUNK >= self.blocks.len() as u64 * BLOCK_BITS
    }

    fn block_of(&self, choice: u64) -> usize {
        ((u128::from(choice) * self.blocks.len() as u128) >> 64) as usize
    }
}

impl PresenceFilter {
    /// An empty filter for `chunks` chunks in at most `bytes_max` bytes.
    pub(super) fn new(chunks: u64, bytes_max: u64) -> Self {
        let blocks_max = (bytes_max * 8 / BLOCK_BITS).max(1);
        let needed = (chunks.max(PART_CHUNKS_MIN) * BITS_PER_CHUNK).div_ceil(BLOCK_BITS);
        let blocks = if needed > blocks_max / 4 * 3 { blocks_max } else { needed };
        PresenceFilter { parts: vec![FilterPart::new(blocks)], blocks_max }
    }

    /// Adds a chunk.
    pub(super) fn insert(&mut self, fingerprint: &Fingerprint) {
        if self.parts.last().is_none_or(FilterPart::is_full) {
            let (blocks, spare) = (self.blocks(), self.blocks_max - self.blocks());
            if spare > 0 {
                self.parts.push(FilterPart::new(if spare < 2 * blocks { spare } else { blocks }));
            }
        }
        let (choice, hash) = hashes(fingerprint);
        let last = self.parts.len() - 1;
        let part = &mut self.parts[last];
        part.chunks += 1;
        let block = part.block_of(choice);
        for (lane, bits) in part.blocks[block].iter_mut().zip(bits(hash)) {
            *lane |= bits;
        }
    }

    /// `false` proves that the chunk was not added.
    pub(super) fn may_hold(&self, fingerprint: &Fingerprint) -> bool {
        let (choice, hash) = hashes(fingerprint);
        let wanted = bits(hash);
        self.parts.iter().any(|part| {
            let block = &part.blocks[part.block_of(choice)];
            block.iter().zip(wanted).all(|(lane, bits)| lane & bits == bits)
        })
    }

    /// Adds a chunk unless it passes.
    pub(super) fn insert_absent(&mut self, fingerprint: &Fingerprint) {
        if !self.may_hold(fingerprint) {
            self.insert(fingerprint);
        }
    }

    /// Number of chunks added.
    pub(super) fn chunks(&self) -> u64 {
        self.parts.iter().map(|part| part.chunks).sum()
    }

    fn blocks(&self) -> u64 {
        self.parts.iter().map(|part| part.blocks.len() as u64).sum()
    }

    /// Whether it has all the memory that it may have, and its last part as many chunks as that is for.
    pub(super) fn is_full(&self) -> bool {
        self.blocks() >= self.blocks_max && self.parts.last().is_some_and(FilterPart::is_full)
    }

    /// Number of parts. Each lets about as many absent chunks pass.
    pub(super) fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Bytes of memory.
    #[cfg(test)]
    pub(super) fn memory_bytes(&self) -> u64 {
        self.parts.iter().map(FilterPart::memory_bytes).sum()
    }

    /// Writes the number of parts, the blocks and chunks of each part, then all blocks, as little-endian numbers.
    ///
    /// # Errors
    /// Errors of `out`.
    pub(super) fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&(self.parts.len() as u64).to_le_bytes())?;
        for part in &self.parts {
            out.write_all(&(part.blocks.len() as u64).to_le_bytes())?;
            out.write_all(&part.chunks.to_le_bytes())?;
        }
        for block in self.parts.iter().flat_map(|part| &part.blocks) {
            let mut bytes = [0; (BLOCK_BITS / 8) as usize];
            for (bytes, lane) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(block) {
                *bytes = lane.to_le_bytes();
            }
            out.write_all(&bytes)?;
        }
        Ok(())
    }

    /// Reads what [`Self::write_to`] wrote. `None` if the filter needs more than `bytes_max` bytes.
    ///
    /// # Errors
    /// Errors of `input`.
    pub(super) fn read_from(input: &mut dyn Read, bytes_max: u64) -> io::Result<Option<Self>> {
        let blocks_max = (bytes_max * 8 / BLOCK_BITS).max(1);
        let number = |input: &mut dyn Read| {
            let mut bytes = [0; 8];
            input.read_exact(&mut bytes).map(|()| u64::from_le_bytes(bytes))
        };
        let (count, mut sizes, mut total) = (number(input)?, Vec::new(), 0u64);
        if count == 0 || count > PARTS_MAX {
            return Ok(None);
        }
        for _ in 0..count {
            let (blocks, chunks) = (number(input)?, number(input)?);
            total = total.saturating_add(blocks);
            if blocks == 0 || total > blocks_max {
                return Ok(None);
            }
            sizes.push((blocks, chunks));
        }
        let mut parts = Vec::with_capacity(sizes.len());
        for (blocks, chunks) in sizes {
            let mut part = FilterPart::new(blocks);
            part.chunks = chunks;
            for block in &mut part.blocks {
                let mut bytes = [0; (BLOCK_BITS / 8) as usize];
                input.read_exact(&mut bytes)?;
                for (lane, bytes) in block.iter_mut().zip(bytes.as_chunks::<8>().0) {
                    *lane = u64::from_le_bytes(*bytes);
                }
            }
            parts.push(part);
        }
        Ok(Some(PresenceFilter { parts, blocks_max }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(n: u64) -> Fingerprint {
        Fingerprint(*blake3::hash(&n.to_le_bytes()).as_bytes())
    }

    /// How many of a thousand absent chunks pass.
    fn passing(filter: &PresenceFilter) -> u64 {
        let count = (0..20_000u64).filter(|n| filter.may_hold(&print(u64::MAX - n))).count();
        count as u64 / 20
    }

    #[test]
    fn added_chunks_pass_and_few_others() {
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
    fn a_filter_that_is_too_small_keeps_its_bound_and_passes_all_added_chunks() {
        let mut filter = PresenceFilter::new(100_000, 64 << 10);
        (0..100_000).for_each(|n| filter.insert(&print(n)));
        assert!(filter.memory_bytes() <= 64 << 10);
        assert!((0..100_000).all(|n| filter.may_hold(&print(n))));
        assert!(passing(&filter) < 500, "{} of 1000", passing(&filter));
    }
}
