//! The latest entries of the running session, by number.
//!
//! The ring holds at least twice what a container may hold, so the container of an entry that has left it fills up,
//! and is stored, without further input.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::repo::container::{
    Base, ENTRY_WEIGHT_MAX, EntryNumber, FrameNumber, OperationSlice, OperationView, SessionEntryNumber,
    SessionOperations, entry_weight,
};
use crate::types::Fingerprint;

/// A chunk encoded by this session.
#[derive(Debug, Clone)]
pub struct SessionEntry {
    /// Name and digest of its body.
    pub name: Base,
    /// Bytes of the chunk.
    pub raw_len: u32,
    /// Frame of its literal bytes.
    pub frame: FrameNumber,
    /// Where its literal bytes begin in the frame.
    pub literal_offset: u32,
    /// How many there are.
    pub literal_len: u32,
    /// Depth of its chain.
    pub depth: u8,
    /// Similarity features.
    pub features: Vec<u64>,
    /// Pieces and bases.
    pub body: Arc<SessionOperations>,
}

impl SessionEntry {
    /// Content name.
    pub fn fingerprint(&self) -> Fingerprint {
        self.name.fingerprint
    }
    fn weight(&self) -> u64 {
        entry_weight(self.body.body.operations.len())
    }
}

/// The latest session entries.
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

    /// Adds an entry and gives its number; drops the oldest ones beyond the bound.
    pub fn push(&mut self, entry: SessionEntry) -> SessionEntryNumber {
        let number = self.next();
        self.weight += entry.weight();
        self.entries.push_back(entry);
        while self.weight > 3 * ENTRY_WEIGHT_MAX {
            let Some(old) = self.entries.pop_front() else { break };
            self.weight -= old.weight();
            self.first = self.first.plus(1);
        }
        number
    }

    /// Entry `number`, if the ring still holds it.
    pub fn get(&self, number: SessionEntryNumber) -> Option<&SessionEntry> {
        self.entries.get(number.0.checked_sub(self.first.0)? as usize)
    }

    /// Entry `number`, to set its frame.
    pub fn get_mut(&mut self, number: SessionEntryNumber) -> Option<&mut SessionEntry> {
        self.entries.get_mut(number.0.checked_sub(self.first.0)? as usize)
    }

    /// The body of entry `number`.
    pub fn view(&self, number: SessionEntryNumber) -> Option<OperationView> {
        let entry = self.get(number)?;
        let whole = entry.body.body.operations.is_empty();
        Some(OperationView {
            entry: EntryNumber::session(number),
            raw_len: entry.raw_len,
            frame: entry.frame,
            literal_offset: entry.literal_offset,
            literal_len: entry.literal_len,
            depth: entry.depth,
            operations: if whole { OperationSlice::Whole } else { OperationSlice::Session(entry.body.clone()) },
        })
    }
}
