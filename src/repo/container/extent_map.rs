//! The extents that make the content of an entry, or the base of the delta that the entry is.
//!
//! A delta has no extents. Its frames are its own and those of its bases, and all of them are needed to decode it.

use std::ops::Range;
use std::sync::Arc;

use super::delta_decoder::DeltaDecoder;
use super::numbers::{EntryNumber, FrameNumber};
use super::operation_source::Extent;
use crate::codec::Scratch;
use crate::config::CHUNK_BYTES_LIMIT;
use crate::error::{Error, Result};
use crate::types::{Fingerprint, RepositoryKey};

/// Extents of an entry, at most. A chunk of up to this many bytes cannot exceed it.
pub const EXTENTS_LIMIT: usize = 1 << 20;
/// What decoding one delta may take, at most.
#[derive(Debug, Clone, Copy)]
pub struct DecodeLimits {
    /// Memory for the content of nested deltas, bytes.
    pub(super) cached: usize,
    /// Bytes assembled for the delta itself and for those below it.
    pub(super) assembled: u64,
    /// Bytes of the bases that are unfinished at a time. A chain needs one; only bases that the cache has lost again
    /// nest.
    pub(super) held: u64,
}

impl DecodeLimits {
    /// Limits of readers.
    pub const READERS: Self = DecodeLimits {
        cached: DECODED_CACHE_BYTES_MAX,
        assembled: 32 * CHUNK_BYTES_LIMIT,
        held: 6 * CHUNK_BYTES_LIMIT,
    };
    /// Limits of writers: half of those.
    pub const WRITERS: Self =
        DecodeLimits { assembled: Self::READERS.assembled / 2, held: Self::READERS.held / 2, ..Self::READERS };
}

/// What a nested delta takes from that limit besides its bytes.
pub(super) const DELTA_COST: u64 = 4096;
/// What a range of a base takes from that limit besides its bytes.
pub(super) const RANGE_COST: u64 = 64;
/// Memory for the content of nested deltas while one delta is decoded, bytes.
pub const DECODED_CACHE_BYTES_MAX: usize = 32 << 20;

/// Number of literal bytes of a session entry that is a delta: all bytes of its frame, which is not encoded yet.
pub const TO_THE_END: u32 = u32::MAX;

/// All extents of an entry, or what it is a delta to.
///
/// Invariant: every extent refers to a source, and `frames` lists the frame of every source.
#[derive(Debug, Default)]
pub struct ExtentMap {
    pub(super) extents: Vec<PackedExtent>,
    pub(super) sources: Vec<LiteralSource>,
    /// Each frame of the sources and of the bases of a delta, once, ascending.
    pub(super) frames: Vec<FrameNumber>,
    pub(super) delta: Option<DeltaSource>,
}

/// An extent without the fields that all extents of one source share. An entry whose base changed many times has
/// thousands of extents.
#[derive(Debug, Clone, Copy)]
pub(super) struct PackedExtent {
    /// End in the content. The extent begins at the end of the extent before it.
    pub end: u32,
    /// Offset in the literal bytes of the source.
    pub literal: u32,
    /// Position of the source.
    pub source: u32,
}

/// An entry whose literal bytes appear in the content.
#[derive(Debug, Clone, Copy)]
pub(super) struct LiteralSource {
    pub entry: EntryNumber,
    /// Frame of the literal bytes, and its position in [`ExtentMap::frames`].
    pub frame: FrameNumber,
    pub frame_at: u32,
    /// Offset of the literal bytes in the frame.
    pub offset: u32,
}

/// The parts of a delta.
#[derive(Debug)]
pub(super) struct DeltaSource {
    pub entry: EntryNumber,
    pub raw_len: u32,
    /// Length of the chain of deltas that ends here, at least 1 and at most [`DEPTH_LIMIT`](super::DEPTH_LIMIT).
    pub depth: u8,
    /// Frame, offset and number of the literal bytes ([`TO_THE_END`]: up to the end of the frame).
    pub frame: FrameNumber,
    pub offset: u32,
    pub len: u32,
    /// Ranges of bases. One after another, they are the base of the delta.
    pub base: Vec<(Arc<ExtentMap>, Range<u32>)>,
}

impl DeltaSource {
    /// Whether each delta below is needed once, whole, as the base of the one above.
    fn is_chain(&self) -> bool {
        match self.base.as_slice() {
            [(extent_map, range)] => extent_map
                .delta
                .as_ref()
                .is_none_or(|below| range.start == 0 && range.end == below.raw_len && below.is_chain()),
            ranges => ranges.iter().all(|(extent_map, _)| extent_map.delta.is_none()),
        }
    }
}

/// A range of the literal bytes of one source.
#[derive(Debug, Clone, Copy)]
pub(super) struct LiteralRange {
    pub source: u32,
    pub literal: u32,
    pub len: u32,
}

impl LiteralSource {
    pub(super) fn extent(&self, literals: &LiteralRange) -> Extent {
        let LiteralRange { literal, len, .. } = *literals;
        Extent { frame: self.frame, offset: self.offset + literal, len, owner: self.entry, literal }
    }
}

impl ExtentMap {
    /// The extents in order of the content.
    pub fn extents(&self) -> impl Iterator<Item = Extent> {
        self.literals(0..u32::MAX).map(|literals| self.extent(&literals))
    }

    /// The extent that makes all of the content, if a single one does.
    pub fn only_extent(&self) -> Option<Extent> {
        self.extents().next().filter(|extent| extent.len == self.len())
    }

    /// The frames that the content needs, each once, ascending.
    pub fn frames(&self) -> &[FrameNumber] {
        &self.frames
    }

    /// Bytes of the content.
    pub fn len(&self) -> u32 {
        let end = self.extents.last().map_or(0, |extent| extent.end);
        self.delta.as_ref().map_or(end, |delta| delta.raw_len)
    }

    /// Length of the chain of deltas that ends with this entry; 0 if the entry is no delta.
    pub(super) fn delta_depth(&self) -> u8 {
        self.delta.as_ref().map_or(0, |delta| delta.depth)
    }

    /// Whether the entry is a delta. Then there are no extents.
    pub fn is_delta(&self) -> bool {
        self.delta.is_some()
    }

    /// Whether the content is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memory in bytes, without the extent maps of a delta's bases.
    pub fn memory_bytes(&self) -> usize {
        let extents = size_of_val(self.extents.as_slice()) + size_of_val(self.sources.as_slice());
        let bases = self.delta.as_ref().map_or(0, |delta| size_of_val(delta.base.as_slice()));
        extents + bases + size_of_val(self.frames.as_slice()) + size_of::<ExtentMap>()
    }

    /// Appends the content to `out`; `frames` are the decoded bytes of [`Self::frames`], in the same order.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a frame is too short or a delta does not decode, and [`Error::Internal`] if `frames` are
    /// not those of this extent map.
    pub fn assemble(&self, frames: &[impl AsRef<[u8]>], scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
        // An empty buffer then has room for this, and for no more. Callers that keep it count its length.
        out.reserve(self.len() as usize);
        if let Some(delta) = &self.delta {
            return self.decode(delta, DecodeLimits::READERS, frames, scratch, out);
        }
        for literals in self.literals(0..self.len()) {
            out.extend_from_slice(self.slice(&literals, frames)?);
        }
        Ok(())
    }

    /// Appends the content of the delta that the entry is.
    pub(super) fn decode(
        &self,
        delta: &DeltaSource,
        limits: DecodeLimits,
        frames: &[impl AsRef<[u8]>],
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let mut decoder = DeltaDecoder::new(&self.frames, frames, scratch, limits);
        decoder.is_chain = delta.is_chain();
        decoder.decode(delta, out)
    }

    /// Writes the content into `space`, which has the same length. The entry must not be a delta; `frames` as for
    /// [`Self::assemble`].
    ///
    /// # Errors
    /// Errors of [`Self::assemble`], and [`Error::Corrupt`] if the lengths differ.
    pub fn fill(&self, frames: &[impl AsRef<[u8]>], space: &mut [u8]) -> Result<()> {
        let space_bytes = space.len();
        let differ = || Error::corrupt("chunk operations", 0, format!("{space_bytes} bytes"), self.len().to_string());
        let mut rest = space;
        for literals in self.literals(0..u32::MAX) {
            let (front, behind) = rest.split_at_mut_checked(literals.len as usize).ok_or_else(differ)?;
            front.copy_from_slice(self.slice(&literals, frames)?);
            rest = behind;
        }
        if rest.is_empty() { Ok(()) } else { Err(differ()) }
    }

    /// The bytes of an extent; `frames` as for [`Self::assemble`].
    fn slice<'a>(&self, literals: &LiteralRange, frames: &'a [impl AsRef<[u8]>]) -> Result<&'a [u8]> {
        let source = &self.sources[literals.source as usize];
        source.extent(literals).slice_of(frame_at(source.frame_at as usize, frames)?)
    }

    /// The extents that make bytes `range` of the content.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a delta, and for a range that leaves the content.
    pub fn extents_of(&self, range: Range<u32>) -> Result<impl Iterator<Item = Extent>> {
        self.check_copy(&range)?;
        Ok(self.literals(range).map(|literals| self.extent(&literals)))
    }

    /// Checks that a range can be copied: nothing is copied from a delta.
    pub(super) fn check_copy(&self, range: &Range<u32>) -> Result<()> {
        if self.is_delta() {
            let offset = u64::from(range.start);
            return Err(Error::corrupt("chunk operations", offset, "a base that is not a delta", "a delta"));
        }
        self.check_within(range)
    }

    /// Checks that a range lies within the content.
    pub(super) fn check_within(&self, range: &Range<u32>) -> Result<()> {
        let len = self.len();
        if range.start > range.end || range.end > len {
            return Err(outside(range, len as usize));
        }
        Ok(())
    }

    /// The literal ranges that make bytes `range` of the content.
    pub(super) fn literals(&self, range: Range<u32>) -> impl Iterator<Item = LiteralRange> {
        let first = self.extents.partition_point(|extent| extent.end <= range.start);
        let mut start = first.checked_sub(1).map_or(0, |before| self.extents[before].end);
        self.extents[first..].iter().map_while(move |extent| {
            let (from, to) = (range.start.max(start), range.end.min(extent.end));
            let literal = extent.literal + (from - start);
            start = extent.end;
            (from < to).then(|| LiteralRange { source: extent.source, literal, len: to - from })
        })
    }

    fn extent(&self, literals: &LiteralRange) -> Extent {
        self.sources[literals.source as usize].extent(literals)
    }
}

/// A chunk with its name.
#[derive(Debug, Clone)]
pub struct NamedChunk {
    /// What its content is made of.
    pub extent_map: Arc<ExtentMap>,
    /// Its name.
    pub name: Fingerprint,
}

/// The base of a delta of `raw_len` bytes that is being made: ranges of entries, one after another. `frames` are the
/// decoded bytes of the frames `numbers`, which are ascending. It takes what a reader of the delta will take, so that
/// none is stored that no reader decodes. Each delta among the entries and below them is decoded once, as long as the
/// decoded ones fit into [`DECODED_CACHE_BYTES_MAX`].
///
/// With `checked`, the whole content of each chunk that these are ranges of must have its name, also if that is a delta
/// itself: what is made of a base that was decoded wrongly, no other reader could decode.
///
/// `None` if the delta exceeds the limits.
///
/// # Errors
/// Errors of [`ExtentMap::assemble`], and [`Error::Corrupt`] for a range that leaves its entry, and for a chunk of
/// another name.
pub fn assemble_base(
    limits: DecodeLimits,
    ranges: &[(Arc<ExtentMap>, Range<u32>)],
    checked: Option<(&RepositoryKey, &[NamedChunk])>,
    raw_len: u32,
    numbers: &[FrameNumber],
    frames: &[impl AsRef<[u8]>],
    scratch: &mut Scratch,
) -> Result<Option<Vec<u8>>> {
    ranges.iter().try_for_each(|(extent_map, range)| extent_map.check_within(range))?;
    let mut decoder = DeltaDecoder::new(numbers, frames, scratch, limits);
    let base = decoder.spend(u64::from(raw_len) + DELTA_COST);
    let base = base.and_then(|()| checked.map_or(Ok(()), |(key, chunks)| decoder.check(key, chunks)));
    let base = base.and_then(|()| decoder.base(ranges));
    if decoder.is_exhausted() { Ok(None) } else { base.map(|base| Some(base.into_vec())) }
}

pub(super) fn frame_at(position: usize, frames: &[impl AsRef<[u8]>]) -> Result<&[u8]> {
    let missing = || Error::internal(format!("frame {position} of an extent map is missing: {} given", frames.len()));
    frames.get(position).map(AsRef::as_ref).ok_or_else(missing)
}

pub(super) fn outside(range: &Range<u32>, len: usize) -> Error {
    Error::corrupt("chunk operations", range.start.into(), format!("a range within {len} bytes"), format!("{range:?}"))
}
