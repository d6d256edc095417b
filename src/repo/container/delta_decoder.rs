//! Decodes deltas. Those of a chain are applied in place, one after another; others have a cache of nested ones.

use std::mem;
use std::ops::Range;
use std::sync::Arc;

use super::extent_map::{
    DELTA_COST, DecodeLimits, DeltaSource, ExtentMap, LiteralRange, NamedChunk, RANGE_COST, TO_THE_END, frame_at,
    outside,
};
use super::numbers::{EntryNumber, FrameNumber};
use crate::codec::{Scratch, delta};
use crate::error::{Error, Result};
use crate::memory::ByteLru;
use crate::types::{Fingerprint, RepositoryKey};

/// Decoded frames and their numbers, ascending.
struct FrameTable<'a, B> {
    numbers: &'a [FrameNumber],
    bytes: &'a [B],
}

impl<'a, B: AsRef<[u8]>> FrameTable<'a, B> {
    fn find(&self, number: FrameNumber) -> Result<&'a [u8]> {
        let unlisted = |_| Error::internal(format!("an extent map does not list {number:?}"));
        frame_at(self.numbers.binary_search(&number).map_err(unlisted)?, self.bytes)
    }
}

/// The base of a delta.
pub(super) enum DeltaBase<'a> {
    /// A range of the bytes of a frame: nothing is copied.
    Frame(&'a [u8]),
    /// The whole content of the delta below: nothing is copied.
    Content(Arc<Vec<u8>>),
    /// Ranges of several contents, or a part of one.
    Assembled(Vec<u8>),
}

impl DeltaBase<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            DeltaBase::Frame(bytes) => bytes,
            DeltaBase::Content(content) => content,
            DeltaBase::Assembled(bytes) => bytes,
        }
    }

    pub(super) fn into_vec(self) -> Vec<u8> {
        match self {
            DeltaBase::Frame(bytes) => bytes.to_vec(),
            DeltaBase::Content(content) => Arc::unwrap_or_clone(content),
            DeltaBase::Assembled(bytes) => bytes,
        }
    }
}

/// Decodes a delta and the deltas below it. Several ranges may lead to one nested delta, so decoded ones are cached.
/// What the cache cannot hold counts against a limit.
pub(super) struct DeltaDecoder<'a, B> {
    frames: FrameTable<'a, B>,
    scratch: &'a mut Scratch,
    cache: ByteLru<EntryNumber, Arc<Vec<u8>>>,
    limits: DecodeLimits,
    /// Bytes assembled so far.
    bytes_assembled: u64,
    /// Bytes of unfinished bases.
    bytes_held: u64,
    /// Whether the delta is a chain: each delta below is needed once, whole, as the base of the one above.
    pub(super) is_chain: bool,
}

impl<'a, B: AsRef<[u8]>> DeltaDecoder<'a, B> {
    pub(super) fn new(
        numbers: &'a [FrameNumber],
        bytes: &'a [B],
        scratch: &'a mut Scratch,
        limits: DecodeLimits,
    ) -> Self {
        let (frames, cache) = (FrameTable { numbers, bytes }, ByteLru::new(limits.cached));
        DeltaDecoder { frames, scratch, cache, limits, bytes_assembled: 0, bytes_held: 0, is_chain: false }
    }

    /// Whether a limit is exceeded.
    pub(super) fn is_exhausted(&self) -> bool {
        self.bytes_assembled > self.limits.assembled || self.bytes_held > self.limits.held
    }

    /// Counts assembled bytes.
    pub(super) fn spend(&mut self, bytes: u64) -> Result<()> {
        self.bytes_assembled += bytes;
        if !self.is_exhausted() {
            return Ok(());
        }
        let expected = format!("a delta of at most {} assembled bytes", self.limits.assembled);
        Err(Error::corrupt("chunk operations", 0, expected, "more"))
    }

    /// Appends the content of a delta.
    pub(super) fn decode(&mut self, delta: &DeltaSource, out: &mut Vec<u8>) -> Result<()> {
        self.spend(u64::from(delta.raw_len) + DELTA_COST)?;
        let frame = self.frames.find(delta.frame)?;
        let end = if delta.len == TO_THE_END { frame.len() } else { delta.offset as usize + delta.len as usize };
        let payload = frame.get(delta.offset as usize..end).ok_or_else(|| {
            Error::corrupt("frame", delta.offset.into(), format!("{} bytes", delta.len), frame.len().to_string())
        })?;
        // A payload as long as the chunk is the chunk itself.
        if payload.len() == delta.raw_len as usize {
            out.extend_from_slice(payload);
            return Ok(());
        }
        if let [(extent_map, _)] = delta.base.as_slice()
            && let Some(below) = extent_map.delta.as_ref().filter(|_| self.is_chain)
        {
            return self.decode_above(payload, delta.raw_len, below, out);
        }
        let base = self.base(&delta.base)?;
        delta::decode_tagged(payload, base.bytes(), delta.raw_len as usize, self.scratch, out)
    }

    /// Appends the content of a delta of a chain, `raw_len` bytes: decodes the delta below, then `payload`, in place
    /// where that is possible.
    fn decode_above(&mut self, payload: &[u8], raw_len: u32, below: &DeltaSource, out: &mut Vec<u8>) -> Result<()> {
        let (start, mut other) = (out.len(), Vec::new());
        let is_as_long = below.raw_len == raw_len;
        self.decode(below, if is_as_long { &mut *out } else { &mut other })?;
        let bytes = u64::from(below.raw_len);
        self.hold(bytes)?;
        self.spend(bytes + RANGE_COST)?;
        self.bytes_held -= bytes;
        if is_as_long {
            let content = out.get_mut(start..).unwrap_or_default();
            if delta::apply_tagged(payload, content, self.scratch)? {
                return Ok(());
            }
            // Nothing is copied, and the new buffer has room for as much.
            other =
                if start == 0 { mem::replace(out, Vec::with_capacity(raw_len as usize)) } else { out.split_off(start) };
        }
        delta::decode_tagged(payload, &other, raw_len as usize, self.scratch, out)
    }

    /// The base of a delta.
    pub(super) fn base(&mut self, ranges: &[(Arc<ExtentMap>, Range<u32>)]) -> Result<DeltaBase<'a>> {
        // Nothing is held while the deltas below are decoded, so that a chain costs memory of one step.
        for nested in ranges.iter().filter_map(|(extent_map, _)| extent_map.delta.as_ref()) {
            self.content(nested)?;
        }
        let bytes = ranges.iter().map(|(_, range)| u64::from(range.end.saturating_sub(range.start))).sum();
        self.hold(bytes)?;
        if let [(extent_map, range)] = ranges
            && let Some(delta) = &extent_map.delta
        {
            let content = self.content(delta)?;
            if range.start == 0 && range.end as usize == content.len() {
                self.spend(bytes + RANGE_COST)?;
                self.bytes_held -= bytes;
                return Ok(DeltaBase::Content(content));
            }
        }
        if let [(extent_map, range)] = ranges
            && extent_map.delta.is_none()
            && let Some(literals) = sole(extent_map.literals(range.clone()))
            && literals.len == range.end - range.start
        {
            self.spend(bytes + RANGE_COST)?;
            self.bytes_held -= bytes;
            return Ok(DeltaBase::Frame(self.literals(extent_map, &literals)?));
        }
        let mut base = Vec::with_capacity(bytes as usize);
        for (extent_map, range) in ranges {
            self.spend(u64::from(range.end.saturating_sub(range.start)) + RANGE_COST)?;
            self.append(extent_map, range, &mut base)?;
        }
        self.bytes_held -= bytes;
        Ok(DeltaBase::Assembled(base))
    }

    /// Checks that the content of each chunk has its name.
    pub(super) fn check(&mut self, key: &RepositoryKey, chunks: &[NamedChunk]) -> Result<()> {
        for NamedChunk { extent_map, name } in chunks {
            let found = if let Some(delta) = &extent_map.delta {
                key.fingerprint(&self.content(delta)?)
            } else {
                let mut hasher = key.hasher();
                for literals in extent_map.literals(0..extent_map.len()) {
                    hasher.update(self.literals(extent_map, &literals)?);
                }
                Fingerprint(*hasher.finalize().as_bytes())
            };
            if found != *name {
                let expected = format!("the chunk {name}");
                return Err(Error::corrupt("the base of a delta", 0, expected, found.to_string()));
            }
        }
        Ok(())
    }

    /// Literal bytes of an entry that is no delta.
    fn literals(&self, extent_map: &ExtentMap, literals: &LiteralRange) -> Result<&'a [u8]> {
        let source = &extent_map.sources[literals.source as usize];
        source.extent(literals).slice_of(self.frames.find(source.frame)?)
    }

    /// Counts the bytes of a base that is assembled while others wait.
    fn hold(&mut self, bytes: u64) -> Result<()> {
        self.bytes_held += bytes;
        if self.bytes_held <= self.limits.held {
            return Ok(());
        }
        let expected = format!("deltas whose bases have at most {} bytes at a time", self.limits.held);
        Err(Error::corrupt("chunk operations", 0, expected, self.bytes_held.to_string()))
    }

    /// The content of a delta below another one.
    fn content(&mut self, delta: &DeltaSource) -> Result<Arc<Vec<u8>>> {
        if let Some(content) = self.cache.get(&delta.entry) {
            return Ok(content);
        }
        let mut content = Vec::new();
        self.decode(delta, &mut content)?;
        let content = Arc::new(content);
        self.cache.put(delta.entry, content.clone(), content.len());
        Ok(content)
    }

    /// Appends a range of a base.
    fn append(&mut self, extent_map: &ExtentMap, range: &Range<u32>, out: &mut Vec<u8>) -> Result<()> {
        let Some(delta) = &extent_map.delta else {
            for literals in extent_map.literals(range.clone()) {
                out.extend_from_slice(self.literals(extent_map, &literals)?);
            }
            return Ok(());
        };
        let content = self.content(delta)?;
        let part = content.get(range.start as usize..range.end as usize);
        out.extend_from_slice(part.ok_or_else(|| outside(range, content.len()))?);
        Ok(())
    }
}

/// The only item.
fn sole<T>(mut items: impl Iterator<Item = T>) -> Option<T> {
    let first = items.next();
    first.filter(|_| items.next().is_none())
}
