//! Containers of a simulated repository and the locations of its chunks.
//!
//! Chunks are numbered in order of first occurrence. Memory per distinct chunk: fingerprint and number (24 bytes and
//! the overhead of the hash table) and the container of its newest copy (4 bytes). A rewritten chunk also has the
//! containers of its older copies (4 bytes each and a table entry). A container has its length (8 bytes).
//!
//! A container accepts chunks until the next one would exceed its target length. A longer chunk has its own container.
//! The container is closed at the end of a stream.

use std::collections::HashMap;

use fhrd::error::{Error, Result};

use super::item::TraceFingerprint;

/// Number of a distinct chunk.
pub type ChunkNumber = u32;
/// Number of a container, in the order of creation.
pub type SimulatedContainer = u32;

/// No container: the chunk is not stored.
const NOWHERE: SimulatedContainer = SimulatedContainer::MAX;

/// All containers and the locations of their chunks.
#[derive(Debug)]
pub struct SimulatedContainers {
    bytes_target: u64,
    numbers: HashMap<TraceFingerprint, ChunkNumber>,
    newest: Vec<SimulatedContainer>,
    older: HashMap<ChunkNumber, Vec<SimulatedContainer>>,
    bytes: Vec<u64>,
    is_open: bool,
    stored_bytes: u64,
}

impl SimulatedContainers {
    /// No containers yet. Each will have at most `bytes_target` bytes.
    pub fn new(bytes_target: u64) -> Self {
        SimulatedContainers {
            bytes_target,
            numbers: HashMap::new(),
            newest: Vec::new(),
            older: HashMap::new(),
            bytes: Vec::new(),
            is_open: false,
            stored_bytes: 0,
        }
    }

    /// The number of a chunk. Its first occurrence assigns a new one.
    ///
    /// # Errors
    /// [`Error::Usage`] if there are more distinct chunks than numbers.
    pub fn number(&mut self, fingerprint: &TraceFingerprint) -> Result<ChunkNumber> {
        if let Some(number) = self.numbers.get(fingerprint) {
            return Ok(*number);
        }
        let number = ChunkNumber::try_from(self.newest.len()).ok().filter(|number| *number < NOWHERE);
        let number = number.ok_or_else(|| Error::Usage("the traces have more than 2^32 distinct chunks".into()))?;
        self.numbers.insert(*fingerprint, number);
        self.newest.push(NOWHERE);
        Ok(number)
    }

    /// The container of a chunk's newest copy.
    pub fn newest(&self, chunk: ChunkNumber) -> Option<SimulatedContainer> {
        self.newest.get(chunk as usize).copied().filter(|container| *container != NOWHERE)
    }

    /// The containers of all copies of a chunk, newest first.
    pub fn copies(&self, chunk: ChunkNumber) -> impl Iterator<Item = SimulatedContainer> {
        let older = self.older.get(&chunk).map(Vec::as_slice).unwrap_or_default();
        self.newest(chunk).into_iter().chain(older.iter().rev().copied())
    }

    /// Stores a copy of a chunk in the open container, or in a new one. Returns the number of the container.
    ///
    /// # Errors
    /// [`Error::Usage`] if there are more containers than numbers.
    pub fn store(&mut self, chunk: ChunkNumber, bytes: u32) -> Result<SimulatedContainer> {
        let bytes = u64::from(bytes);
        let fits = self.bytes.last().is_some_and(|filled| self.is_open && filled + bytes <= self.bytes_target);
        if !fits {
            self.bytes.push(0);
            self.is_open = true;
        }
        let number = SimulatedContainer::try_from(self.bytes.len() - 1).ok().filter(|number| *number < NOWHERE);
        let number = number.ok_or_else(|| Error::Usage("the traces need more than 2^32 containers".into()))?;
        if let Some(filled) = self.bytes.last_mut() {
            *filled += bytes;
        }
        self.stored_bytes += bytes;
        if let Some(before) = self.newest.get_mut(chunk as usize) {
            if *before != NOWHERE && *before != number {
                self.older.entry(chunk).or_default().push(*before);
            }
            *before = number;
        }
        Ok(number)
    }

    /// The open container.
    pub fn open(&self) -> Option<SimulatedContainer> {
        self.is_open.then(|| self.bytes.len() as SimulatedContainer - 1)
    }

    /// Closes the open container.
    pub fn close(&mut self) {
        self.is_open = false;
    }

    /// Bytes in a container.
    pub fn bytes(&self, container: SimulatedContainer) -> u64 {
        self.bytes.get(container as usize).copied().unwrap_or(0)
    }

    /// Bytes of a full container.
    pub fn bytes_target(&self) -> u64 {
        self.bytes_target
    }

    /// Bytes in all containers.
    pub fn stored_bytes(&self) -> u64 {
        self.stored_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_fill_up_and_copies_are_listed_newest_first() {
        let mut containers = SimulatedContainers::new(10);
        let numbers: Vec<u32> = [1, 2, 1].map(|byte| containers.number(&[byte; 20]).unwrap()).into();
        assert_eq!(numbers, [0, 1, 0]);
        assert_eq!((containers.newest(0), containers.open()), (None, None));
        assert_eq!([(0, 6), (1, 4), (0, 1)].map(|(chunk, bytes)| containers.store(chunk, bytes).unwrap()), [0, 0, 1]);
        containers.close();
        assert_eq!((containers.open(), containers.store(0, 30).unwrap()), (None, 2));
        assert_eq!((containers.open(), containers.store(0, 1).unwrap()), (Some(2), 3));
        assert_eq!(containers.copies(0).collect::<Vec<_>>(), [3, 2, 1, 0]);
        assert_eq!(containers.copies(1).collect::<Vec<_>>(), [0]);
        assert_eq!([0, 1, 2, 3, 9].map(|number| containers.bytes(number)), [10, 1, 30, 1, 0]);
        assert_eq!(containers.stored_bytes(), 42);
    }
}
