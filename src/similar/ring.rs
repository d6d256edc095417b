//! Ring: the latest entries of the running session, by number.
//!
//! The ring holds at least twice the entries of a container. So the container of an entry that has left the ring is
//! complete, and it is stored without further input.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::repo::container::{
    Base, ENTRY_WEIGHT_MAX, EntryNumber, FrameNumber, OperationSlice, OperationView, SessionEntryNumber,
    SessionOperations, entry_weight,
};
use crate::types::Fingerprint;

/// A chunk encoded by this session.
#[derive(Debug, Clone)]
pub struct SessionEntry {
    /// Fingerprint, and digest of its operations.
    pub name: Base,
    /// Length of the chunk, bytes.
    pub raw_len: u32,
    /// Frame of its literal bytes.
    pub frame: FrameNumber,
    /// Offset of its literal bytes in the raw frame.
    pub literal_offset: u32,
    /// Count of its literal bytes.
    pub literal_len: u32,
    /// Depth of its chain.
    pub depth: u8,
    /// Similarity features.
    pub features: Vec<u64>,
    /// Operations and bases.
    pub operations: Arc<SessionOperations>,
}

impl SessionEntry {
    /// Fingerprint of the chunk.
    pub fn fingerprint(&self) -> Fingerprint {
        self.name.fingerprint
    }

    fn weight(&self) -> u64 {
        entry_weight(&self.operations.list)
    }
}

/// See the module.
#[derive(Default)]
pub struct Ring {
    first: SessionEntryNumber,
    entries: VecDeque<SessionEntry>,
    weight: u64,
}

impl Ring {
    /// Number of the next entry.
    pub fn next(&self) -> SessionEntryNumber {
        self.first.plus(self.entries.len() as u64)
    }

    /// Adds an entry and returns its number. Entries beyond the bound leave the ring, oldest first.
    pub fn push(&mut self, entry: SessionEntry) -> SessionEntryNumber {
        let number = self.next();
        self.weight += entry.weight();
        self.entries.push_back(entry);
        while self.weight > 4 * ENTRY_WEIGHT_MAX {
            let Some(old) = self.entries.pop_front() else { break };
            self.weight -= old.weight();
            self.first = self.first.plus(1);
        }
        number
    }

    /// Entry `number`; `None` if it has left the ring.
    pub fn get(&self, number: SessionEntryNumber) -> Option<&SessionEntry> {
        self.entries.get(number.0.checked_sub(self.first.0)? as usize)
    }

    /// Entry `number`, mutable; `None` if it has left the ring.
    pub fn get_mut(&mut self, number: SessionEntryNumber) -> Option<&mut SessionEntry> {
        self.entries.get_mut(number.0.checked_sub(self.first.0)? as usize)
    }

    /// The operations of entry `number`; `None` if it has left the ring.
    pub fn view(&self, number: SessionEntryNumber) -> Option<OperationView> {
        let entry = self.get(number)?;
        let whole = entry.operations.list.operations.is_empty();
        Some(OperationView {
            entry: EntryNumber::session(number),
            raw_len: entry.raw_len,
            frame: entry.frame,
            literal_offset: entry.literal_offset,
            literal_len: entry.literal_len,
            depth: entry.depth,
            operations: if whole { OperationSlice::Whole } else { OperationSlice::Session(entry.operations.clone()) },
        })
    }
}

/// A ring that SubDedup writes and the workers of Match read.
#[derive(Default)]
pub struct SharedRing(RwLock<Ring>);

impl SharedRing {
    /// Like [`Ring::next`].
    pub fn next(&self) -> SessionEntryNumber {
        self.0.read().next()
    }

    /// Like [`Ring::push`].
    pub fn push(&self, entry: SessionEntry) -> SessionEntryNumber {
        self.0.write().push(entry)
    }

    /// What `read` takes from entry `number`; `None` if it has left the ring.
    pub fn read<T>(&self, number: SessionEntryNumber, read: impl FnOnce(&SessionEntry) -> T) -> Option<T> {
        self.0.read().get(number).map(read)
    }

    /// Calls `change` with the entries from `first` on that are in the ring.
    pub fn change_from(&self, first: SessionEntryNumber, mut change: impl FnMut(&mut SessionEntry)) {
        let mut ring = self.0.write();
        for number in first.until(ring.next()) {
            ring.get_mut(number).into_iter().for_each(&mut change);
        }
    }

    /// Like [`Ring::view`].
    pub fn view(&self, number: SessionEntryNumber) -> Option<OperationView> {
        self.0.read().view(number)
    }
}
