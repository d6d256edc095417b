//! Encoding: turns matches into the operations, bases and depth of an entry.
//!
//! 1. Matches that do not pay are dropped ([`super::price`]). The others become copies, and the gaps between them
//!    become added literal bytes.
//! 2. The depth is one more than the deepest base.
//! 3. If that exceeds the bound, the chunk is flattened. Every copy is resolved to literal bytes of the chunks at the
//!    end of the chain, given by their offsets among those chunks' literal bytes. Again those that do not pay are
//!    dropped. The depth is then 1.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::bases::Bases;
use super::price::{LiteralRate, RateSampler, prune};
use super::{Match, StrategyOutput};
use crate::error::Result;
use crate::repo::container::{Base, EntryNumber, ExtentMap, Operation};

/// The operations of a chunk. Its literal bytes are still in the chunk.
#[derive(Debug, Default)]
pub struct EncodedChunk {
    /// Operations in order; empty to store the chunk whole.
    pub operations: Vec<Operation>,
    /// Fingerprints and digests of the bases.
    pub bases: Vec<Base>,
    /// Entry numbers of the bases.
    pub entries: Vec<EntryNumber>,
    /// Depth of the chain.
    pub depth: u8,
    /// Literal ranges of the chunk.
    pub literals: Vec<Range<u32>>,
}

impl EncodedChunk {
    /// A chunk of `len` literal bytes.
    pub fn whole(len: u32) -> Self {
        let mut whole = EncodedChunk { depth: 1, ..EncodedChunk::default() };
        whole.literals.push(0..len);
        whole
    }

    /// A chunk of `len` bytes in which `copy` makes an operation of each match.
    fn new(
        len: u32,
        matches: &[Match],
        depth: u8,
        copy: impl Fn(u32, u32, u32) -> Operation,
        bases: &mut Bases,
    ) -> Result<Self> {
        if matches.is_empty() {
            return Ok(Self::whole(len));
        }
        let mut encoded = EncodedChunk { depth, ..EncodedChunk::default() };
        let (mut slots, mut position) = (HashMap::new(), 0);
        for found in matches {
            encoded.literal(position..found.position);
            position = found.position + found.len;
            let base = encoded.base(found.base, bases, &mut slots)?;
            encoded.operations.push(copy(base, found.offset, found.len));
        }
        encoded.literal(position..len);
        Ok(encoded)
    }

    /// Count of literal bytes.
    pub fn literal_len(&self) -> u32 {
        self.literals.iter().map(|range| range.end - range.start).sum()
    }

    /// Position of `entry` among the bases. A new base is added.
    fn base(&mut self, entry: EntryNumber, bases: &mut Bases, slots: &mut HashMap<EntryNumber, u32>) -> Result<u32> {
        // Most chunks have a single base.
        if let (Some(last), Some(slot)) = (self.entries.last(), self.entries.len().checked_sub(1))
            && *last == entry
        {
            return Ok(slot as u32);
        }
        if let Some(slot) = slots.get(&entry) {
            return Ok(*slot);
        }
        let name = bases.entries.name(entry)?;
        let slot = self.bases.len() as u32;
        self.bases.push(name);
        self.entries.push(entry);
        slots.insert(entry, slot);
        Ok(slot)
    }

    /// Adds literal bytes, if there are any.
    fn literal(&mut self, range: Range<u32>) {
        if range.is_empty() {
            return;
        }
        self.operations.push(Operation::Add { len: range.end - range.start });
        self.literals.push(range);
    }
}

/// The bounds of an [`Encoder`].
#[derive(Debug, Clone, Copy)]
pub struct EncodeBounds {
    /// Longest chain of copies.
    pub depth_max: u8,
    /// Operations of a chunk, at most.
    pub operations_max: usize,
}

/// Encodes chunks within bounds.
pub struct Encoder {
    bounds: EncodeBounds,
    rates: RateSampler,
}

impl Encoder {
    /// An encoder with these bounds.
    pub fn new(bounds: EncodeBounds) -> Self {
        Encoder { bounds, rates: RateSampler::default() }
    }

    /// Encodes `chunk` with those of the matches of `found` that pay. Where there are too many operations, copies must
    /// save more.
    ///
    /// # Errors
    /// Errors of reading the operations of a base. The caller then stores the chunk whole.
    pub fn encode(&mut self, chunk: &[u8], found: &StrategyOutput, bases: &mut Bases) -> Result<EncodedChunk> {
        let rate = match found.rate {
            Some(rate) => rate,
            None => self.rates.rate(chunk, &found.matches)?,
        };
        for halvings in 0..32 {
            let encoded = self.encode_at(chunk, &found.matches, rate, halvings, bases)?;
            if encoded.operations.len() <= self.bounds.operations_max {
                return Ok(encoded);
            }
        }
        Ok(EncodedChunk::whole(chunk.len() as u32))
    }

    /// Encodes `chunk` as if a literal byte took less than `rate`, by this many halvings.
    fn encode_at(
        &mut self,
        chunk: &[u8],
        matches: &[Match],
        rate: LiteralRate,
        halvings: u32,
        bases: &mut Bases,
    ) -> Result<EncodedChunk> {
        let mut matches = matches.to_vec();
        prune(&mut matches, rate.halved(halvings));
        let (mut deepest, mut seen) = (0, Vec::new());
        for found in &matches {
            if !seen.contains(&found.base) {
                deepest = deepest.max(bases.entries.depth(found.base)?);
                seen.push(found.base);
            }
        }
        let flatten = deepest.saturating_add(1) > self.bounds.depth_max;
        if flatten {
            matches = literal_matches(&matches, bases)?;
            // Flattened copies are shorter, so they may be the first short ones.
            let rate = if rate == LiteralRate::FULL { self.rates.rate(chunk, &matches)? } else { rate };
            prune(&mut matches, rate.halved(halvings));
        }
        let depth = if flatten { 1 } else { deepest + 1 };
        let copy = |base, offset, len| match flatten {
            true => Operation::LiteralCopy { base, offset, len },
            false => Operation::Copy { base, offset, len },
        };
        EncodedChunk::new(chunk.len() as u32, &matches, depth, copy, bases)
    }
}

/// The matches with the literal bytes that `matches` resolve to. Their offsets are among the literal bytes of the base.
fn literal_matches(matches: &[Match], bases: &mut Bases) -> Result<Vec<Match>> {
    let mut extent_maps = Vec::<(EntryNumber, Arc<ExtentMap>)>::new();
    let mut literal = Vec::new();
    for found in matches {
        let extent_map = match extent_maps.iter().position(|known| known.0 == found.base) {
            Some(at) => &extent_maps[at].1,
            None => {
                extent_maps.push((found.base, bases.entries.extent_map(found.base)?));
                &extent_maps[extent_maps.len() - 1].1
            }
        };
        let mut position = found.position;
        for extent in extent_map.extents_of(found.offset..found.offset + found.len)? {
            literal.push(Match { position, base: extent.owner, offset: extent.literal, len: extent.len });
            position += extent.len;
        }
    }
    Ok(literal)
}
