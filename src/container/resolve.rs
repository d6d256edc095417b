//! Range resolution: from a range of a chunk to the literal bytes that make it, without rebuilding any base.
//!
//! For each piece that the range meets: a literal is a run in the chunk's frame; a copy sends the range on to the
//! base's content; a literal copy sends it on to the base's literal bytes. The depth bound of the writer bounds the
//! recursion; a reader stops at [`DEPTH_LIMIT`].

use std::ops::Range;
use std::sync::Arc;

use super::body::Piece;
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

/// The pieces of an entry, wherever they are kept.
#[derive(Debug, Clone)]
pub enum Pieces {
    /// The whole chunk is literal.
    Whole,
    /// An entry of the running session, with the entry numbers of its bases.
    Session(Arc<(Vec<Piece>, Vec<u64>)>),
    /// An entry of a stored container.
    Stored(Arc<Directory>, Entry),
}

impl Pieces {
    /// In order; empty for a whole chunk.
    pub fn as_slice(&self) -> &[Piece] {
        match self {
            Pieces::Whole => &[],
            Pieces::Session(body) => &body.0,
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
    /// Whether `next` is the same entry's next literal bytes.
    pub(super) fn is_continued_by(&self, next: &Run) -> bool {
        self.owner == next.owner && self.literal + self.len == next.literal
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

fn push_run(run: Run, out: &mut Vec<Run>) {
    match out.last_mut() {
        Some(last) if last.is_continued_by(&run) => last.len += run.len,
        _ => out.push(run),
    }
}

/// Appends to `out` the runs that make bytes `range` of the content of `entry`.
pub fn resolve(bodies: &mut dyn Bodies, entry: u64, range: Range<u32>, out: &mut Vec<Run>) -> Result<()> {
    resolve_at(bodies, entry, range, DEPTH_LIMIT, out)
}

/// Appends to `out` the runs that make all of `entry`.
pub fn resolve_whole(bodies: &mut dyn Bodies, entry: u64, out: &mut Vec<Run>) -> Result<()> {
    let raw_len = bodies.body(entry)?.raw_len;
    resolve(bodies, entry, 0..raw_len, out)
}

fn resolve_at(bodies: &mut dyn Bodies, entry: u64, range: Range<u32>, depth: u8, out: &mut Vec<Run>) -> Result<()> {
    let view = bodies.body(entry)?;
    if range.start > range.end || range.end > view.raw_len {
        let want = format!("a range within {} bytes", view.raw_len);
        return Err(Error::corrupt("chunk body", u64::from(range.start), want, format!("{range:?}")));
    }
    let pieces = view.pieces.as_slice();
    if pieces.is_empty() {
        push_run(view.literal_run(range)?, out);
        return Ok(());
    }
    let Some(deeper) = depth.checked_sub(1) else {
        return Err(Error::corrupt("chunk body", 0, format!("at most {DEPTH_LIMIT} nested copies"), "more"));
    };
    let (mut position, mut literal) = (0u32, 0u32);
    for piece in pieces {
        let (start, end) = (position, position + piece.len());
        let (from, to) = (range.start.max(start), range.end.min(end));
        if from < to {
            let (skip, len) = (from - start, to - from);
            match *piece {
                Piece::Literal { .. } => push_run(view.literal_run(literal + skip..literal + skip + len)?, out),
                Piece::Copy { base, offset, .. } => {
                    let begin = offset + skip;
                    let base = bodies.base(&view, base)?;
                    resolve_at(bodies, base, begin..begin + len, deeper, out)?;
                }
                Piece::LiteralCopy { base, offset, .. } => {
                    let base = bodies.base(&view, base)?;
                    let owner = bodies.body(base)?;
                    push_run(owner.literal_run(offset + skip..offset + skip + len)?, out);
                }
            }
        }
        if let Piece::Literal { len } = piece {
            literal += len;
        }
        position = end;
        if position >= range.end {
            break;
        }
    }
    Ok(())
}
