//! What resolution works on: the bodies of entries, and the runs of literal bytes that they come down to.

use std::ops::Range;
use std::sync::Arc;

use super::body::{Body, Piece};
use super::directory::{Directory, Entry};
use crate::error::{Error, Result};

/// No valid chain is deeper.
pub const DEPTH_LIMIT: u8 = 64;

/// Consecutive literal bytes of one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Which frame, as numbered by the [`Bodies`] asked.
    pub frame: u64,
    /// Offset in the decoded frame.
    pub offset: u32,
    /// Bytes.
    pub len: u32,
    /// The entry whose literal bytes they are.
    pub owner: u64,
    /// Offset in that entry's literal bytes.
    pub literal: u32,
}

/// The body of an entry of the running session, with the entry numbers of its bases.
#[derive(Debug, Default, Clone)]
pub struct SessionBody {
    /// Pieces and names of the bases.
    pub body: Body,
    /// Numbers of the bases.
    pub entries: Vec<u64>,
}

/// The pieces of an entry, wherever they are kept.
#[derive(Debug, Clone)]
pub enum Pieces {
    /// The whole chunk is literal.
    Whole,
    /// An entry of the running session.
    Session(Arc<SessionBody>),
    /// An entry of a stored container.
    Stored(Arc<Directory>, Entry),
}

impl Pieces {
    /// In order; empty for a whole chunk.
    pub fn as_slice(&self) -> &[Piece] {
        match self {
            Pieces::Whole => &[],
            Pieces::Session(session) => &session.body.pieces,
            Pieces::Stored(directory, entry) => directory.pieces(entry),
        }
    }
}

/// What range resolution needs to know of one chunk entry.
#[derive(Debug, Clone)]
pub struct BodyView {
    /// The entry's number.
    pub entry: u64,
    /// Bytes of the chunk.
    pub raw_len: u32,
    /// Frame of its literal bytes.
    pub frame: u64,
    /// Where they begin in it.
    pub literal_offset: u32,
    /// How many there are.
    pub literal_len: u32,
    /// Depth of its chain.
    pub depth: u8,
    /// Its pieces.
    pub pieces: Pieces,
}

/// A source of bodies by entry number.
pub trait Bodies {
    /// The body of an entry.
    fn body(&mut self, entry: u64) -> Result<BodyView>;
    /// The entry number of base `base` of a body.
    fn base(&mut self, view: &BodyView, base: u32) -> Result<u64>;
    /// Whether the frame keeps its number: runs that name it may be remembered.
    fn is_final(&self, _frame: u64) -> bool {
        true
    }
}

impl Run {
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

impl BodyView {
    /// The run of a range of this entry's own literal bytes.
    pub(super) fn literal_run(&self, range: Range<u32>) -> Result<Run> {
        if range.end > self.literal_len {
            let (want, have) = (format!("literal bytes up to {}", range.end), self.literal_len.to_string());
            return Err(Error::corrupt("chunk body", u64::from(range.start), want, have));
        }
        let (offset, len) = (self.literal_offset + range.start, range.end - range.start);
        Ok(Run { frame: self.frame, offset, len, owner: self.entry, literal: range.start })
    }
}
