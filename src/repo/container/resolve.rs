//! What resolution works on: the bodies of entries, and the runs of literal bytes that they come down to.

use std::ops::Range;
use std::sync::Arc;

use super::container_index::{ContainerIndex, Entry};
use super::numbers::{EntryNumber, FrameNumber};
use super::operations::{Operation, OperationList};
use crate::error::{Error, Result};

/// No valid chain is deeper.
pub const DEPTH_LIMIT: u8 = 64;

/// Consecutive literal bytes of one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Which frame, as numbered by the [`OperationSource`] asked.
    pub frame: FrameNumber,
    /// Offset in the decoded frame.
    pub offset: u32,
    /// Bytes.
    pub len: u32,
    /// The entry whose literal bytes they are.
    pub owner: EntryNumber,
    /// Offset in that entry's literal bytes.
    pub literal: u32,
}

/// The body of an entry of the running session, with the entry numbers of its bases.
#[derive(Debug, Default, Clone)]
pub struct SessionOperations {
    /// Pieces and names of the bases.
    pub body: OperationList,
    /// Numbers of the bases.
    pub entries: Vec<EntryNumber>,
}

/// The pieces of an entry, wherever they are kept.
#[derive(Debug, Clone)]
pub enum OperationSlice {
    /// The whole chunk is literal.
    Whole,
    /// An entry of the running session.
    Session(Arc<SessionOperations>),
    /// An entry of a stored container.
    Stored(Arc<ContainerIndex>, Entry),
}

impl OperationSlice {
    /// In order; empty for a whole chunk.
    pub fn as_slice(&self) -> &[Operation] {
        match self {
            OperationSlice::Whole => &[],
            OperationSlice::Session(session) => &session.body.operations,
            OperationSlice::Stored(container_index, entry) => container_index.operations(entry),
        }
    }
}

/// What range resolution needs to know of one chunk entry.
#[derive(Debug, Clone)]
pub struct OperationView {
    /// The entry's number.
    pub entry: EntryNumber,
    /// Bytes of the chunk.
    pub raw_len: u32,
    /// Frame of its literal bytes.
    pub frame: FrameNumber,
    /// Where they begin in it.
    pub literal_offset: u32,
    /// How many there are.
    pub literal_len: u32,
    /// Depth of its chain.
    pub depth: u8,
    /// Its pieces.
    pub operations: OperationSlice,
}

/// A source of bodies by entry number.
pub trait OperationSource {
    /// The body of an entry.
    fn body(&mut self, entry: EntryNumber) -> Result<OperationView>;
    /// The entry number of base `base` of a body.
    fn base(&mut self, view: &OperationView, base: u32) -> Result<EntryNumber>;
}

impl Extent {
    /// Its bytes in the decoded frame.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where the frame is too short.
    pub fn slice_of<'a>(&self, frame: &'a [u8]) -> Result<&'a [u8]> {
        let (start, end) = (self.offset as usize, self.offset as usize + self.len as usize);
        let slice = frame.get(start..end);
        slice.ok_or_else(|| {
            Error::corrupt("frame", self.offset.into(), format!("{} bytes", self.len), frame.len().to_string())
        })
    }
}

impl OperationView {
    /// The run of a range of this entry's own literal bytes.
    pub(super) fn literal_run(&self, range: Range<u32>) -> Result<Extent> {
        if range.end > self.literal_len {
            let (want, have) = (format!("literal bytes up to {}", range.end), self.literal_len.to_string());
            return Err(Error::corrupt("chunk body", u64::from(range.start), want, have));
        }
        let (offset, len) = (self.literal_offset + range.start, range.end - range.start);
        Ok(Extent { frame: self.frame, offset, len, owner: self.entry, literal: range.start })
    }
}
