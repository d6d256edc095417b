//! The literal runs that make an entry's content, or what the entry is a delta to.
//!
//! A delta has no runs: its frames are its own and those of its bases, and it is put together from all of them.

use std::ops::Range;
use std::sync::Arc;

use super::numbers::{EntryNumber, FrameNumber};
use super::resolve::Extent;
use crate::codec::{Scratch, delta};
use crate::error::{Error, Result};

/// Literal bytes of a session entry whose frame is still to be encoded: they are all of it.
pub const TO_THE_END: u32 = u32::MAX;

/// All runs of an entry, or what it is derived from.
#[derive(Debug, Default)]
pub struct ExtentMap {
    pub(super) extents: Vec<PackedExtent>,
    pub(super) sources: Vec<Source>,
    /// Each frame of the runs, and of the bases of a delta, once.
    pub(super) frames: Vec<FrameNumber>,
    pub(super) delta: Option<Delta>,
}

/// A run without what all of one entry have in common: of a base that was changed again and again there are thousands.
#[derive(Debug, Clone, Copy)]
pub(super) struct PackedExtent {
    /// Where it ends in the content; it begins where the one before ends.
    pub end: u32,
    /// Offset in the literal bytes of its source.
    pub literal: u32,
    /// Which of the sources.
    pub source: u32,
}

/// An entry that runs are literal bytes of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source {
    pub entry: EntryNumber,
    /// Frame of its literal bytes, and which of the flat's that is.
    pub frame: FrameNumber,
    pub frame_at: u32,
    /// Where they begin in the frame.
    pub offset: u32,
}

/// How an entry follows from others.
#[derive(Debug)]
pub(super) struct Delta {
    pub raw_len: u32,
    /// Frame of the literal bytes, where they begin in it and how many there are ([`TO_THE_END`]: all).
    pub frame: FrameNumber,
    pub offset: u32,
    pub len: u32,
    /// What the literal bytes are a delta to.
    pub base: Vec<(Arc<ExtentMap>, Range<u32>)>,
}

/// Literal bytes of one source of a flat.
#[derive(Debug, Clone, Copy)]
pub(super) struct Literals {
    pub source: u32,
    pub literal: u32,
    pub len: u32,
}

impl ExtentMap {
    /// In order.
    pub fn extents(&self) -> impl Iterator<Item = Result<Extent>> {
        self.literals(0..u32::MAX).map(|literals| self.extent(&literals))
    }

    /// The run that makes all of the content, if one does.
    pub fn only_extent(&self) -> Option<Extent> {
        let first = self.extents().next()?.ok()?;
        (first.len == self.len()).then_some(first)
    }

    /// The frames that the runs lie in, each once, ascending.
    pub fn frames(&self) -> &[FrameNumber] {
        &self.frames
    }

    /// Bytes of the content.
    pub fn len(&self) -> u32 {
        let end = self.extents.last().map_or(0, |run| run.end);
        self.delta.as_ref().map_or(end, |delta| delta.raw_len)
    }

    /// Whether the content is a delta to others: then there are no runs.
    pub fn is_delta(&self) -> bool {
        self.delta.is_some()
    }

    /// Whether the content is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memory it takes, bytes; bases of a delta not counted.
    pub fn memory_bytes(&self) -> usize {
        let extents = size_of_val(self.extents.as_slice()) + size_of_val(self.sources.as_slice());
        let bases = self.delta.as_ref().map_or(0, |delta| size_of_val(delta.base.as_slice()));
        extents + bases + size_of_val(self.frames.as_slice()) + size_of::<ExtentMap>()
    }

    /// Appends the content to `out`; `frames` are the decoded bytes of [`Self::frames`].
    ///
    /// # Errors
    /// [`Error::Corrupt`] where a frame is missing or too short, or a delta does not decode.
    pub fn assemble(&self, frames: &[impl AsRef<[u8]>], scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
        if let Some(delta) = &self.delta {
            return self.derive(delta, frames, scratch, out);
        }
        out.reserve(self.len() as usize);
        self.append(0..self.len(), frames, out)
    }

    /// Writes the content, which must not be a delta, into `space`, which is as long; `frames` as for
    /// [`Self::assemble`].
    ///
    /// # Errors
    /// [`Error::Corrupt`] where a frame is missing or too short, or the lengths differ.
    pub fn fill(&self, frames: &[impl AsRef<[u8]>], space: &mut [u8]) -> Result<()> {
        let space_bytes = space.len();
        let differ = || Error::corrupt("chunk body", 0, format!("{space_bytes} bytes"), self.len().to_string());
        let mut rest = space;
        for literals in self.literals(0..u32::MAX) {
            let (front, behind) = rest.split_at_mut_checked(literals.len as usize).ok_or_else(differ)?;
            front.copy_from_slice(self.slice(&literals, frames)?);
            rest = behind;
        }
        if rest.is_empty() { Ok(()) } else { Err(differ()) }
    }

    /// Appends bytes `range` of the content, which must not be a delta.
    fn append(&self, range: Range<u32>, frames: &[impl AsRef<[u8]>], out: &mut Vec<u8>) -> Result<()> {
        for literals in self.literals(range) {
            out.extend_from_slice(self.slice(&literals, frames)?);
        }
        Ok(())
    }

    /// The bytes of a run; `frames` as for [`Self::assemble`].
    fn slice<'a>(&self, literals: &Literals, frames: &'a [impl AsRef<[u8]>]) -> Result<&'a [u8]> {
        let source = self.source(literals.source)?;
        source.extent(literals).slice_of(frame_at(source.frame_at as usize, frames)?)
    }

    /// The decoded bytes of frame `number`; `frames` as for [`Self::assemble`].
    fn frame<'a>(&self, number: FrameNumber, frames: &'a [impl AsRef<[u8]>]) -> Result<&'a [u8]> {
        let missing = |_| Error::internal(format!("an extent map does not list {number:?}"));
        frame_at(self.frames.binary_search(&number).map_err(missing)?, frames)
    }

    pub(super) fn source(&self, number: u32) -> Result<&Source> {
        let source = self.sources.get(number as usize);
        source.ok_or_else(|| Error::internal(format!("an extent map has no source {number}")))
    }

    /// Appends the content of a delta.
    fn derive(
        &self,
        delta: &Delta,
        frames: &[impl AsRef<[u8]>],
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let frame = self.frame(delta.frame, frames)?;
        let end = if delta.len == TO_THE_END { frame.len() } else { delta.offset as usize + delta.len as usize };
        let payload = frame.get(delta.offset as usize..end).ok_or_else(|| {
            Error::corrupt("frame", delta.offset.into(), format!("{} bytes", delta.len), frame.len().to_string())
        })?;
        if payload.len() == delta.raw_len as usize {
            out.extend_from_slice(payload);
            return Ok(());
        }
        let mut base = Vec::new();
        for (extent_map, range) in &delta.base {
            let own = extent_map.frames.iter().map(|number| self.frame(*number, frames));
            let own: Vec<&[u8]> = own.collect::<Result<_>>()?;
            if extent_map.is_delta() {
                let mut whole = Vec::new();
                extent_map.assemble(&own, scratch, &mut whole)?;
                let part = whole.get(range.start as usize..range.end as usize);
                base.extend_from_slice(part.ok_or_else(|| {
                    let expected = format!("a base with bytes {range:?}");
                    Error::corrupt("chunk operations", 0, expected, format!("{} bytes", whole.len()))
                })?);
            } else {
                extent_map.append(range.clone(), &own, &mut base)?;
            }
        }
        delta::decode_tagged(payload, &base, delta.raw_len as usize, scratch, out)
    }

    /// The runs that make bytes `range` of the content.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a delta, which has none, and for a range that leaves the content.
    pub fn extents_of(&self, range: Range<u32>) -> Result<impl Iterator<Item = Result<Extent>>> {
        self.check(&range)?;
        Ok(self.literals(range).map(|literals| self.extent(&literals)))
    }

    /// Whether runs for this range can be had.
    pub(super) fn check(&self, range: &Range<u32>) -> Result<()> {
        if self.is_delta() {
            return Err(Error::corrupt("chunk body", u64::from(range.start), "a base that is not a delta", "a delta"));
        }
        self.check_within(range)
    }

    pub(super) fn check_within(&self, range: &Range<u32>) -> Result<()> {
        let len = self.len();
        if range.start > range.end || range.end > len {
            let want = format!("a range within {len} bytes");
            return Err(Error::corrupt("chunk body", u64::from(range.start), want, format!("{range:?}")));
        }
        Ok(())
    }

    /// The same without what their sources say.
    pub(super) fn literals(&self, range: Range<u32>) -> impl Iterator<Item = Literals> {
        let first = self.extents.partition_point(|run| run.end <= range.start);
        let mut start = first.checked_sub(1).and_then(|before| self.extents.get(before)).map_or(0, |run| run.end);
        self.extents.get(first..).unwrap_or_default().iter().map_while(move |run| {
            let (from, to) = (range.start.max(start), range.end.min(run.end));
            let literal = run.literal + (from - start);
            start = run.end;
            (from < to).then(|| Literals { source: run.source, literal, len: to - from })
        })
    }

    fn extent(&self, literals: &Literals) -> Result<Extent> {
        self.source(literals.source).map(|source| source.extent(literals))
    }
}

impl Source {
    fn extent(&self, literals: &Literals) -> Extent {
        let Literals { literal, len, .. } = *literals;
        Extent { frame: self.frame, offset: self.offset + literal, len, owner: self.entry, literal }
    }
}

fn frame_at(position: usize, frames: &[impl AsRef<[u8]>]) -> Result<&[u8]> {
    let missing =
        || Error::corrupt("frames of a chunk", 0, format!("frame {position}"), format!("{} frames", frames.len()));
    frames.get(position).map(AsRef::as_ref).ok_or_else(missing)
}
