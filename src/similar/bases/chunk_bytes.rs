//! Chunk bytes of bases, in the base cache or assembled from frames.

use std::sync::Arc;

use bytes::Bytes;

use super::Bases;
use crate::codec::Scratch;
use crate::error::Result;
use crate::repo::container::{
    EntryNumber, ExtentMap, FrameAddress, FrameNumber, OpenFrame, OperationSource, SessionEntryNumber,
};
use crate::similar::base_cache::BaseCache;
use crate::similar::read_budget::ReadBudget;
use crate::types::Fingerprint;

/// Largest base that is cached, bytes.
pub(super) const BASE_BYTES_MAX: u32 = 4 << 20;

impl Bases {
    /// Allows more reads after `bytes` new bytes. At most the reads of 64 MiB accumulate.
    pub fn grant_reads(&mut self, bytes: u64) {
        self.frame_reader.grant(bytes);
    }

    /// The bytes of a stored chunk; `None` if it is not stored, cannot be read, or the budget of reads is exhausted.
    ///
    /// # Errors
    /// Only errors that fail the run.
    pub fn read_chunk(&mut self, fingerprint: &Fingerprint) -> Result<Option<Vec<u8>>> {
        let Some(entry) = self.entries.entry_of(fingerprint)? else { return Ok(None) };
        Ok(self.bytes(entry)?.map(<[u8]>::to_vec))
    }

    /// The bytes of a stored chunk of metadata, without regard to the budget; `None` if it is not stored.
    ///
    /// Metadata chunks are few, and the bases found through them are worth more than the reads.
    pub fn read_metadata(&mut self, fingerprint: &Fingerprint) -> Result<Option<Vec<u8>>> {
        let budget = self.frame_reader.replace_budget(ReadBudget::unlimited());
        let read = self.read_chunk(fingerprint);
        self.frame_reader.replace_budget(budget);
        read
    }

    /// The bytes of an entry; `None` if it cannot be read, the budget of reads is exhausted, or it is too large.
    ///
    /// # Errors
    /// Only errors that fail the run.
    pub fn bytes(&mut self, entry: EntryNumber) -> Result<Option<&[u8]>> {
        Ok(if self.fetch(entry)? { self.base_cache.get(entry) } else { None })
    }

    /// Chunks in memory.
    pub fn base_cache(&self) -> &BaseCache {
        &self.base_cache
    }

    /// The bytes of an entry, which may be a delta, without regard to the budget of reads; `None` if it cannot be read
    /// or is too large. They are not cached.
    ///
    /// # Errors
    /// Only errors that fail the run.
    pub fn content(&mut self, entry: EntryNumber, scratch: &mut Scratch) -> Result<Option<Vec<u8>>> {
        let budget = self.frame_reader.replace_budget(ReadBudget::unlimited());
        let gathered = self.gather(entry, true);
        self.frame_reader.replace_budget(budget);
        let Some(Some((extent_map, frames))) = self.entries.tolerate(gathered)? else { return Ok(None) };
        let mut bytes = Vec::new();
        let raw = with_open(&extent_map, &frames, &self.open_solid, &self.open_incompressible);
        let assembled = extent_map.assemble(&raw, scratch, &mut bytes);
        Ok(self.entries.tolerate(assembled)?.map(|()| bytes))
    }

    /// Frames that [`Bases::content`] of an entry decodes; `None` if the entry cannot be read.
    ///
    /// # Errors
    /// Only errors that fail the run.
    pub fn content_frames(&mut self, entry: EntryNumber) -> Result<Option<usize>> {
        let extent_map = self.entries.extent_map(entry);
        Ok(self.entries.tolerate(extent_map)?.map(|extent_map| extent_map.frames().len()))
    }

    /// Brings an entry into the base cache. Returns `false` if the entry cannot be read or the budget of reads is
    /// exhausted.
    ///
    /// # Errors
    /// Only errors that fail the run.
    pub fn fetch(&mut self, entry: EntryNumber) -> Result<bool> {
        if self.base_cache.contains(entry) {
            return Ok(true);
        }
        let gathered = self.gather(entry, false);
        let Some(Some((extent_map, frames))) = self.entries.tolerate(gathered)? else { return Ok(false) };
        let Bases { base_cache, open_solid, open_incompressible, .. } = self;
        let raw = with_open(&extent_map, &frames, open_solid, open_incompressible);
        let filled = base_cache.fill(entry, extent_map.len() as usize, |space| extent_map.fill(&raw, space));
        Ok(self.entries.tolerate(filled)?.unwrap_or(false))
    }

    /// The extent map of an entry and its raw frames; `None` for a delta, unless `may_be_delta`. Open frames are
    /// returned empty.
    fn gather(&mut self, entry: EntryNumber, may_be_delta: bool) -> Result<Option<(Arc<ExtentMap>, Vec<Bytes>)>> {
        if self.entries.view(entry)?.raw_len > BASE_BYTES_MAX {
            return Ok(None);
        }
        let extent_map = self.entries.extent_map(entry)?;
        // The bytes of a delta's chunk are in no frame, so nothing is copied from it.
        if extent_map.is_delta() && !may_be_delta {
            return Ok(None);
        }
        let mut frames = Vec::with_capacity(extent_map.frames().len());
        for number in extent_map.frames() {
            let frame = if number.is_final() { self.frame(*number)? } else { Some(Bytes::new()) };
            let Some(frame) = frame else { return Ok(None) };
            frames.push(frame);
        }
        Ok(Some((extent_map, frames)))
    }

    /// A frame's raw bytes; `None` if the budget of reads is exhausted.
    fn frame(&mut self, number: FrameNumber) -> Result<Option<Bytes>> {
        if let Some(frame) = self.frames.get(&number) {
            return Ok(Some(frame));
        }
        let raw = self.frame_reader.read(number, &mut self.entries.resolver)?;
        if let Some(raw) = &raw {
            self.insert_frame(number, raw.clone());
        }
        Ok(raw)
    }

    /// Caches the raw bytes of a frame that was just emitted.
    pub fn cache_frame(&mut self, number: FrameNumber, raw: Bytes) {
        self.entries.drop_open_frames();
        self.insert_frame(number, raw);
    }

    fn insert_frame(&mut self, number: FrameNumber, raw: Bytes) {
        let bytes = raw.len();
        self.frames.put(number, raw, bytes);
        self.base_cache.limit(self.bytes_max.saturating_sub(self.frames.bytes()));
    }

    /// Caches a chunk of the session.
    ///
    /// # Errors
    /// [`Error::Io`](crate::error::Error::Io) if the system has no memory left.
    pub fn cache_chunk(&mut self, number: SessionEntryNumber, bytes: &[u8]) -> Result<()> {
        if bytes.len() > BASE_BYTES_MAX as usize {
            return Ok(());
        }
        self.base_cache.insert(EntryNumber::session(number), bytes)
    }
}

/// The raw bytes of the frames of an extent map, of which open frames have none among `frames`.
fn with_open<'a>(
    extent_map: &ExtentMap,
    frames: &'a [Bytes],
    solid: &'a [u8],
    incompressible: &'a [u8],
) -> Vec<&'a [u8]> {
    let frames = extent_map.frames().iter().zip(frames);
    let raw = frames.map(|(number, raw)| match number.address() {
        FrameAddress::Open(OpenFrame::Solid) => solid,
        FrameAddress::Open(OpenFrame::Incompressible) => incompressible,
        FrameAddress::Stored { .. } | FrameAddress::Session(_) => raw,
    });
    raw.collect()
}
