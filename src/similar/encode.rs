//! Encoding: turns matches into the operations, bases and depth of an entry.
//!
//! 1. Matches become copies, and the gaps between them become added literal bytes.
//! 2. The depth is one more than the deepest base.
//! 3. If that exceeds the bound, the chunk is flattened. Every copy is resolved to literal bytes of the chunks at the
//!    end of the chain, given by their offsets among those chunks' literal bytes. The depth is then 1.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::Match;
use super::bases::Bases;
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
    fn whole(len: u32) -> Self {
        let mut whole = EncodedChunk { depth: 1, ..EncodedChunk::default() };
        whole.literals.push(0..len);
        whole
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
        let name = bases.name(entry)?;
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

/// Encodes a chunk of `len` bytes with `matches`, which are in ascending order without overlap.
///
/// # Errors
/// Those of reading the operations of a base. The caller then stores the chunk whole.
pub fn encode(len: u32, matches: &[Match], depth_max: u8, bases: &mut Bases) -> Result<EncodedChunk> {
    if matches.is_empty() {
        return Ok(EncodedChunk::whole(len));
    }
    let (mut deepest, mut seen) = (0, Vec::new());
    for found in matches {
        if !seen.contains(&found.base) {
            deepest = deepest.max(bases.depth(found.base)?);
            seen.push(found.base);
        }
    }
    let flatten = deepest.saturating_add(1) > depth_max;
    let mut encoded = EncodedChunk { depth: if flatten { 1 } else { deepest + 1 }, ..EncodedChunk::default() };
    let (mut slots, mut extent_maps) = (HashMap::new(), Vec::<(EntryNumber, Arc<ExtentMap>)>::new());
    let mut position = 0;
    for found in matches {
        encoded.literal(position..found.position);
        position = found.position + found.len;
        if !flatten {
            let base = encoded.base(found.base, bases, &mut slots)?;
            encoded.operations.push(Operation::Copy { base, offset: found.offset, len: found.len });
            continue;
        }
        let extent_map = match extent_maps.iter().position(|known| known.0 == found.base) {
            Some(at) => &extent_maps[at].1,
            None => {
                extent_maps.push((found.base, bases.extent_map(found.base)?));
                &extent_maps[extent_maps.len() - 1].1
            }
        };
        for extent in extent_map.extents_of(found.offset..found.offset + found.len)? {
            let base = encoded.base(extent.owner, bases, &mut slots)?;
            encoded.operations.push(Operation::LiteralCopy { base, offset: extent.literal, len: extent.len });
        }
    }
    encoded.literal(position..len);
    Ok(encoded)
}
