//! The input and output of resolution: the operations of entries, and the extents of literal bytes that they become.

use std::ops::Range;
use std::sync::Arc;

use super::container_index::{ContainerEntry, ContainerIndex};
use super::numbers::{EntryNumber, FrameNumber};
use super::operations::{BaseUse, Operation, OperationList};
use crate::error::{Error, Result};

/// Depth of a valid chain, at most.
pub const DEPTH_LIMIT: u8 = 64;

/// Consecutive literal bytes in one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Frame that holds the bytes.
    pub frame: FrameNumber,
    /// Offset in the decoded frame.
    pub offset: u32,
    /// Number of bytes.
    pub len: u32,
    /// Entry whose literal bytes these are.
    pub owner: EntryNumber,
    /// Offset in the literal bytes of that entry.
    pub literal: u32,
}

impl Extent {
    /// The bytes of the extent in the decoded frame.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the frame is too short.
    pub fn slice_of<'a>(&self, frame: &'a [u8]) -> Result<&'a [u8]> {
        let (start, end) = (self.offset as usize, self.offset as usize + self.len as usize);
        let slice = frame.get(start..end);
        slice.ok_or_else(|| {
            Error::corrupt("frame", self.offset.into(), format!("{} bytes", self.len), frame.len().to_string())
        })
    }
}

/// Operations of an entry of the running session, with the numbers of its bases.
#[derive(Debug, Default, Clone)]
pub struct SessionOperations {
    /// Operations and identities of the bases.
    pub list: OperationList,
    /// Numbers of the bases, in the same order.
    pub entries: Vec<EntryNumber>,
}

/// The operations of an entry, without a copy of them.
#[derive(Debug, Clone)]
pub enum OperationSlice {
    /// None: the whole chunk is literal.
    Whole,
    /// Of an entry of the running session.
    Session(Arc<SessionOperations>),
    /// Of an entry of a stored container.
    Stored(Arc<ContainerIndex>, ContainerEntry),
}

impl OperationSlice {
    /// In order of the chunk's bytes; empty for a whole chunk.
    pub fn as_slice(&self) -> &[Operation] {
        match self {
            OperationSlice::Whole => &[],
            OperationSlice::Session(session) => &session.list.operations,
            OperationSlice::Stored(container_index, entry) => container_index.operations(entry),
        }
    }
}

/// The fields of an entry that resolution needs.
#[derive(Debug, Clone)]
pub struct OperationView {
    /// The entry.
    pub entry: EntryNumber,
    /// Bytes of the chunk.
    pub raw_len: u32,
    /// Frame of the literal bytes.
    pub frame: FrameNumber,
    /// Offset of the literal bytes in the frame.
    pub literal_offset: u32,
    /// Number of literal bytes.
    pub literal_len: u32,
    /// Depth of the chain.
    pub depth: u8,
    /// The operations.
    pub operations: OperationSlice,
}

impl OperationView {
    /// The extent of a range of the entry's own literal bytes.
    pub(super) fn literal_extent(&self, range: Range<u32>) -> Result<Extent> {
        if range.end > self.literal_len {
            let (expected, got) = (format!("literal bytes up to {}", range.end), self.literal_len.to_string());
            return Err(Error::corrupt("chunk operations", u64::from(range.start), expected, got));
        }
        let (offset, len) = (self.literal_offset + range.start, range.end - range.start);
        Ok(Extent { frame: self.frame, offset, len, owner: self.entry, literal: range.start })
    }
}

/// Gives the operations of entries by number.
pub trait OperationSource {
    /// The operations of an entry.
    fn view(&mut self, entry: EntryNumber) -> Result<OperationView>;
    /// The number of base `base` of an entry, for an operation with this use of it.
    fn base(&mut self, view: &OperationView, base: u32, base_use: BaseUse) -> Result<EntryNumber>;
}
