//! Base cache: bytes of chunks by entry, both new chunks and bases that were assembled from frames.
//!
//! The cache is one FIFO log of [memory blocks](MemoryBlock). New chunks are appended, and the oldest block is evicted.
//! An order of use would keep no more: the bases of a new version lie as far back as the version is long, each is used
//! for a short time, and assembled bases are appended anyway.

use std::collections::{HashMap, VecDeque};

use crate::error::Result;
use crate::memory::{BLOCK_BYTES, MemoryBlock};
use crate::repo::container::EntryNumber;

/// Approximate memory of a cached chunk besides its bytes. It matters for many short chunks.
const ENTRY_BYTES: usize = 2 * (size_of::<LoggedChunk>() + 2 * size_of::<u64>());

/// See the module.
#[derive(Debug)]
pub struct BaseCache {
    blocks: VecDeque<LogBlock>,
    /// Number of the oldest block.
    first: u64,
    chunks: HashMap<EntryNumber, LoggedChunk>,
    /// Memory of the blocks and entries.
    bytes: usize,
    bytes_max: usize,
}

/// One block of the log.
#[derive(Debug)]
struct LogBlock {
    memory: MemoryBlock,
    filled: usize,
    entries: Vec<EntryNumber>,
}

/// Location of a chunk in the log.
#[derive(Debug)]
struct LoggedChunk {
    block: u64,
    start: usize,
    len: usize,
}

impl BaseCache {
    /// An empty cache of at most about `bytes_max` bytes of memory.
    pub fn new(bytes_max: usize) -> Self {
        BaseCache { blocks: VecDeque::new(), first: 0, chunks: HashMap::new(), bytes: 0, bytes_max }
    }

    /// Sets the limit to about `bytes_max` bytes of memory and evicts what exceeds it.
    pub fn limit(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
        self.evict_for(0);
    }

    /// Whether an entry is cached.
    pub fn contains(&self, entry: EntryNumber) -> bool {
        self.chunks.contains_key(&entry)
    }

    /// The bytes of an entry.
    pub fn get(&self, entry: EntryNumber) -> Option<&[u8]> {
        self.bytes_of(self.chunks.get(&entry)?)
    }

    /// Adds a chunk. A chunk that is too large is not added.
    ///
    /// # Errors
    /// Errors of [`MemoryBlock::new`].
    pub fn insert(&mut self, entry: EntryNumber, bytes: &[u8]) -> Result<()> {
        let copy = |space: &mut [u8]| {
            space.copy_from_slice(bytes);
            Ok(())
        };
        self.fill(entry, bytes.len(), copy).map(drop)
    }

    /// Adds a chunk of `len` bytes that `fill` writes. Returns `false` if the chunk is too large.
    ///
    /// # Errors
    /// Errors of `fill` and of [`MemoryBlock::new`]. The chunk is not added then.
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
        self.chunks.insert(entry, LoggedChunk { block: number, start, len });
        self.bytes += ENTRY_BYTES;
        self.evict_for(0);
        Ok(self.contains(entry))
    }

    fn bytes_of(&self, chunk: &LoggedChunk) -> Option<&[u8]> {
        let block = self.blocks.get((chunk.block - self.first) as usize)?;
        block.memory.get(chunk.start..chunk.start + chunk.len)
    }

    /// Ensures that the last block has `len` free bytes. Returns `false` if such a block would exceed the limit.
    fn open_block(&mut self, len: usize) -> Result<bool> {
        if self.blocks.back().is_some_and(|block| block.memory.len() - block.filled >= len) {
            return Ok(true);
        }
        let block_bytes = len.max(1).next_multiple_of(BLOCK_BYTES);
        if block_bytes > self.bytes_max {
            return Ok(false);
        }
        let evicted = self.evict_for(block_bytes).filter(|memory| memory.len() == block_bytes);
        let memory = evicted.map_or_else(|| MemoryBlock::new(block_bytes), Ok)?;
        self.bytes += memory.len();
        self.blocks.push_back(LogBlock { memory, filled: 0, entries: Vec::new() });
        Ok(true)
    }

    /// Evicts the oldest blocks until `bytes` more bytes fit. Returns the memory of the last evicted block for reuse.
    fn evict_for(&mut self, bytes: usize) -> Option<MemoryBlock> {
        let mut evicted = None;
        while self.bytes + bytes > self.bytes_max {
            let Some(block) = self.blocks.pop_front() else { break };
            self.first += 1;
            for entry in &block.entries {
                self.chunks.remove(entry);
                self.bytes -= ENTRY_BYTES;
            }
            self.bytes -= block.memory.len();
            evicted = Some(block.memory);
        }
        evicted
    }
}

#[cfg(test)]
#[path = "base_cache_tests.rs"]
mod tests;
