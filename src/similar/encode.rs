//! From matches to a body: pieces, bases, depth.
//!
//! Matches become copies, the gaps between them literals. A chunk's depth is one more than the deepest of its bases;
//! where that exceeds the bound the chunk is flattened whole: every copy is resolved to literal bytes of the chunks at
//! the chain's ends, named by their offsets among those chunks' literal bytes, and the depth is 1 again.

use std::collections::HashMap;
use std::sync::Arc;

use super::Match;
use super::bases::Bases;
use crate::error::Result;
use crate::repo::container::{Base, EntryNumber, ExtentMap, Operation};

/// A chunk's body, with its literal bytes still in the chunk.
#[derive(Debug, Default)]
pub struct EncodedChunk {
    /// Empty: store the chunk whole.
    pub operations: Vec<Operation>,
    /// Names of the bases.
    pub bases: Vec<Base>,
    /// Entry numbers of the bases.
    pub entries: Vec<EntryNumber>,
    /// Depth of the chain.
    pub depth: u8,
    /// Ranges of the chunk that are literal.
    pub literals: Vec<std::ops::Range<u32>>,
}

impl EncodedChunk {
    fn whole(len: u32) -> Self {
        let mut whole = EncodedChunk { depth: 1, ..EncodedChunk::default() };
        whole.literals.push(0..len);
        whole
    }

    /// Bytes of the chunk that are literal.
    pub fn literal_len(&self) -> u32 {
        self.literals.iter().map(|range| range.end - range.start).sum()
    }

    fn base(&mut self, entry: EntryNumber, bases: &mut Bases, slots: &mut HashMap<EntryNumber, u32>) -> Result<u32> {
        // Nearly always there is one.
        if let (Some(last), Some(slot)) = (self.entries.last(), self.entries.len().checked_sub(1))
            && *last == entry
        {
            return Ok(slot as u32);
        }
        if let Some(slot) = slots.get(&entry) {
            return Ok(*slot);
        }
        let name = bases.name(entry)?;
        let slot = self.bases.len() as u32;
        self.bases.push(name);
        self.entries.push(entry);
        slots.insert(entry, slot);
        Ok(slot)
    }

    fn literal(&mut self, range: std::ops::Range<u32>) {
        if range.is_empty() {
            return;
        }
        self.operations.push(Operation::Add { len: range.end - range.start });
        self.literals.push(range);
    }
}

/// Encodes a chunk of `len` bytes with these matches (ascending, not overlapping).
///
/// # Errors
/// Those of reading a base's body; the caller then stores the chunk whole.
pub fn encode(len: u32, matches: &[Match], depth_max: u8, bases: &mut Bases) -> Result<EncodedChunk> {
    if matches.is_empty() {
        return Ok(EncodedChunk::whole(len));
    }
    let (mut deepest, mut asked) = (0, Vec::new());
    for found in matches {
        if !asked.contains(&found.base) {
            deepest = deepest.max(bases.depth(found.base)?);
            asked.push(found.base);
        }
    }
    let flatten = deepest.saturating_add(1) > depth_max;
    let mut encoded = EncodedChunk { depth: if flatten { 1 } else { deepest + 1 }, ..EncodedChunk::default() };
    let (mut slots, mut extent_cache) = (HashMap::new(), Vec::<(EntryNumber, Arc<ExtentMap>)>::new());
    let mut position = 0;
    for found in matches {
        encoded.literal(position..found.position);
        position = found.position + found.len;
        if !flatten {
            let base = encoded.base(found.base, bases, &mut slots)?;
            encoded.operations.push(Operation::Copy { base, offset: found.offset, len: found.len });
            continue;
        }
        let extent_map = match extent_cache.iter().position(|known| known.0 == found.base) {
            Some(at) => &extent_cache[at].1,
            None => {
                extent_cache.push((found.base, bases.extent_map(found.base)?));
                &extent_cache[extent_cache.len() - 1].1
            }
        };
        for run in extent_map.extents_of(found.offset..found.offset + found.len)? {
            let run = run?;
            let base = encoded.base(run.owner, bases, &mut slots)?;
            encoded.operations.push(Operation::LiteralCopy { base, offset: run.literal, len: run.len });
        }
    }
    encoded.literal(position..len);
    Ok(encoded)
}
