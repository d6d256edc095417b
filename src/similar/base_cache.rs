//! Contents of chunks as they were, by entry: new ones, and bases that were put together from frames.
//!
//! One log of [blocks](MemoryBlock) of memory: contents are appended, and the oldest block makes room, whatever was used in
//! between. The bases of a new version of something are as far back as the version is long, each is wanted for a while
//! and then hardly again, and what was put together for them is appended, so an order of use would keep no more.

use std::collections::{HashMap, VecDeque};

use super::anchor_table::AnchorTable;
use crate::cache::{BLOCK_BYTES, MemoryBlock};
use crate::error::Result;
use crate::kernel::sieve::Anchor;
use crate::repo::container::EntryNumber;

/// Memory that a content takes besides its bytes and marks, about: many may be short.
const ENTRY_BYTES: usize = 2 * (size_of::<Place>() + 2 * size_of::<u64>());

/// See the module.
#[derive(Debug)]
pub struct BaseCache {
    blocks: VecDeque<Block>,
    /// Number of the oldest block.
    first: u64,
    places: HashMap<EntryNumber, Place>,
    /// Memory of the blocks, marks and entries.
    bytes: usize,
    bytes_max: usize,
}

#[derive(Debug)]
struct Block {
    memory: MemoryBlock,
    filled: usize,
    entries: Vec<EntryNumber>,
}

/// Where a content lies.
#[derive(Debug)]
struct Place {
    block: u64,
    start: usize,
    len: usize,
    marks: Marks,
}

/// What is known of a content's anchors.
#[derive(Debug)]
enum Marks {
    Unknown,
    Listed(Vec<Anchor>),
    Table(AnchorTable),
}

impl Marks {
    fn memory_bytes(&self) -> usize {
        match self {
            Marks::Unknown => 0,
            Marks::Listed(anchors) => anchors.capacity() * size_of::<Anchor>(),
            Marks::Table(table) => table.memory_bytes(),
        }
    }
}

impl BaseCache {
    /// None yet; at most about `bytes_max` bytes of memory.
    pub fn new(bytes_max: usize) -> Self {
        BaseCache { blocks: VecDeque::new(), first: 0, places: HashMap::new(), bytes: 0, bytes_max }
    }

    /// From now on at most about `bytes_max` bytes of memory.
    pub fn limit(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
        self.make_room(0);
    }

    /// Whether the content of an entry is there.
    pub fn contains(&self, entry: EntryNumber) -> bool {
        self.places.contains_key(&entry)
    }

    /// The content of an entry.
    pub fn get(&self, entry: EntryNumber) -> Option<&[u8]> {
        self.bytes_of(self.places.get(&entry)?)
    }

    /// The content of an entry and its anchors, where both are there.
    pub fn tabulated(&self, entry: EntryNumber) -> Option<(&[u8], &AnchorTable)> {
        let place = self.places.get(&entry)?;
        let Marks::Table(table) = &place.marks else { return None };
        Some((self.bytes_of(place)?, table))
    }

    /// Keeps a content and its anchors, if they are known.
    ///
    /// # Errors
    /// Those of [`MemoryBlock::new`].
    pub fn keep(&mut self, entry: EntryNumber, bytes: &[u8], anchors: Option<Vec<Anchor>>) -> Result<()> {
        let copy = |space: &mut [u8]| {
            space.copy_from_slice(bytes);
            Ok(())
        };
        if self.fill(entry, bytes.len(), copy)?
            && let Some(place) = self.places.get_mut(&entry)
        {
            place.marks = anchors.map_or(Marks::Unknown, Marks::Listed);
            self.bytes += place.marks.memory_bytes();
        }
        Ok(())
    }

    /// Keeps a content of `len` bytes that `fill` writes; `false` if it is too large.
    ///
    /// # Errors
    /// Those of `fill` and of [`MemoryBlock::new`]; nothing is kept then.
    pub fn fill(&mut self, entry: EntryNumber, len: usize, fill: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<bool> {
        if self.contains(entry) {
            return Ok(true);
        }
        if !self.open_block(len)? {
            return Ok(false);
        }
        let number = self.first + self.blocks.len() as u64 - 1;
        let Some(block) = self.blocks.back_mut() else { return Ok(false) };
        let start = block.filled;
        fill(block.memory.get_mut(start..start + len).unwrap_or_default())?;
        block.filled += len;
        block.entries.push(entry);
        self.places.insert(entry, Place { block: number, start, len, marks: Marks::Unknown });
        self.bytes += ENTRY_BYTES;
        self.make_room(0);
        Ok(self.contains(entry))
    }

    /// Makes the anchors of a content ready to be looked up; `find` finds them where they are not known. `false` if the
    /// content is not there.
    pub fn tabulate(&mut self, entry: EntryNumber, find: impl FnOnce(&[u8], &mut Vec<Anchor>)) -> bool {
        let Some(place) = self.places.get(&entry) else { return false };
        let table = match &place.marks {
            Marks::Table(_) => return true,
            Marks::Listed(anchors) => AnchorTable::new(anchors),
            Marks::Unknown => {
                let mut anchors = Vec::new();
                find(self.bytes_of(place).unwrap_or_default(), &mut anchors);
                AnchorTable::new(&anchors)
            }
        };
        if let Some(place) = self.places.get_mut(&entry) {
            self.bytes -= place.marks.memory_bytes();
            place.marks = Marks::Table(table);
            self.bytes += place.marks.memory_bytes();
        }
        true
    }

    fn bytes_of(&self, place: &Place) -> Option<&[u8]> {
        let block = self.blocks.get((place.block - self.first) as usize)?;
        block.memory.get(place.start..place.start + place.len)
    }

    /// Sees to it that the last block has room for `len` bytes; `false` if there may be no such block.
    fn open_block(&mut self, len: usize) -> Result<bool> {
        if self.blocks.back().is_some_and(|block| block.memory.len() - block.filled >= len) {
            return Ok(true);
        }
        let block_bytes = len.max(1).next_multiple_of(BLOCK_BYTES);
        if block_bytes > self.bytes_max {
            return Ok(false);
        }
        let old = self.make_room(block_bytes).filter(|memory| memory.len() == block_bytes);
        let memory = old.map_or_else(|| MemoryBlock::new(block_bytes), Ok)?;
        self.bytes += memory.len();
        self.blocks.push_back(Block { memory, filled: 0, entries: Vec::new() });
        Ok(true)
    }

    /// Drops the oldest blocks until `bytes` more bytes fit, and gives the memory of the last one dropped.
    fn make_room(&mut self, bytes: usize) -> Option<MemoryBlock> {
        let mut dropped = None;
        while self.bytes + bytes > self.bytes_max {
            let Some(block) = self.blocks.pop_front() else { break };
            self.first += 1;
            for entry in &block.entries {
                let marks = self.places.remove(entry).map_or(0, |place| place.marks.memory_bytes());
                self.bytes -= marks + ENTRY_BYTES;
            }
            self.bytes -= block.memory.len();
            dropped = Some(block.memory);
        }
        dropped
    }
}

#[cfg(test)]
#[path = "base_cache_tests.rs"]
mod tests;
