//! Chunks that are read once, from their first byte to their last, and passed on.
//!
//! 1. The frame of a chunk that has one for itself is decoded into a buffer that the next chunk uses again: new memory
//!    for each frame costs more time than the decoding.
//! 2. The fingerprint of the chunk covers all that its frame says, so the checksum of the frame is not computed.
//! 3. Frames of a remote store that lie side by side are fetched with one request.
//! 4. Whatever fails, and each chunk that is stored in another way, is read as a chunk that is kept. That finds out
//!    what is damaged, and reads another entry.

use super::chunks::ChunkReader;
use super::read_cache::{Decoded, DecodedKey};
use crate::codec::Scratch;
use crate::error::{Error, ErrorKind, Result};
use crate::repo::container::{ContainerKind, EntryNumber, FrameInfo, blob_name, decode_unverified};
use crate::repo::read::LocatedRange;
use crate::repo::recipe::ContentReference;
use crate::store::{BlobName, Reading, StoreExt};
use crate::types::{Fingerprint, RepositoryKey};

/// Largest buffer that a reader keeps for its next chunk, bytes.
const BUFFER_BYTES_MAX: usize = 4 << 20;
/// Bytes of neighbouring frames that are fetched at once, at most.
const FETCHED_BYTES_MAX: u64 = 4 << 20;

/// Memory that one chunk after another uses.
#[derive(Default)]
pub(super) struct Passing {
    /// A decoded frame.
    buffer: Vec<u8>,
    /// Neighbouring frames of a remote store, as they are stored.
    fetched: Option<FetchedFrames>,
    /// The container and the end of neighbouring frames that could not be fetched at once.
    failed: Option<(BlobName, u64)>,
}

impl Passing {
    /// The stored bytes of a frame, if they were fetched with its neighbours.
    pub(super) fn fetched_frame(&self, container: &BlobName, info: &FrameInfo) -> Option<&[u8]> {
        self.fetched.as_ref()?.frame(container, info)
    }
}

/// A range of a container.
struct FetchedFrames {
    container: BlobName,
    start: u64,
    bytes: Vec<u8>,
}

impl FetchedFrames {
    /// The bytes of a frame, if it has them all.
    fn frame(&self, container: &BlobName, info: &FrameInfo) -> Option<&[u8]> {
        let start = usize::try_from(info.offset.checked_sub(self.start)?).ok()?;
        let end = start.checked_add(info.stored_bytes())?;
        (self.container == *container).then(|| self.bytes.get(start..end)).flatten()
    }
}

impl ChunkReader {
    /// Passes the bytes of a chunk of `len` bytes to `write`, and keeps none.
    ///
    /// # Errors
    /// Errors of reading a chunk, and of `write`.
    pub(super) fn pass(
        &mut self,
        fingerprint: &Fingerprint,
        len: u64,
        write: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        match self.decoded.look(DecodedKey::Chunk(*fingerprint)) {
            Decoded::Found(bytes) if bytes.len() as u64 == len => return write(&bytes),
            _ => {}
        }
        let mut buffer = std::mem::take(&mut self.passing.buffer);
        let read = self.try_entries(fingerprint, |reader, number| {
            match reader.decode_own_frame(number, fingerprint, &mut buffer) {
                Ok(true) => Ok(None),
                Err(error) if !error.is_unreadable() => Err(error),
                _ => reader.entry_bytes(number, fingerprint).map(Some),
            }
        });
        let outcome = read.and_then(|shared| {
            let bytes = shared.as_deref().unwrap_or(&buffer);
            if bytes.len() as u64 != len {
                let got = bytes.len().to_string();
                return Err(Error::corrupt(format!("chunk {fingerprint}"), 0, format!("{len} bytes"), got));
            }
            write(bytes)
        });
        if buffer.capacity() <= BUFFER_BYTES_MAX {
            self.passing.buffer = buffer;
        }
        outcome
    }

    /// Decodes the frame that is this chunk and nothing else into `buffer`. `false` if the chunk has no such frame, or
    /// if the bytes are not those of the fingerprint.
    fn decode_own_frame(
        &mut self,
        number: EntryNumber,
        fingerprint: &Fingerprint,
        buffer: &mut Vec<u8>,
    ) -> Result<bool> {
        let Some((name, info)) = self.own_frame(number)? else { return Ok(false) };
        let is_right = |bytes: &[u8], key: &RepositoryKey, scratch: &mut Scratch, buffer: &mut Vec<u8>| {
            decode_unverified(&name, &info, bytes, scratch, buffer).is_ok() && key.fingerprint(buffer) == *fingerprint
        };
        if let Some(bytes) = self.passing.fetched_frame(&name, &info) {
            return Ok(is_right(bytes, &self.key, &mut self.scratch, buffer));
        }
        let bytes = self.store.get_range(&name, info.offset, info.stored_bytes(), Reading::Once)?;
        Ok(is_right(&bytes, &self.key, &mut self.scratch, buffer))
    }

    /// The frame of entry `number`, and the container with it, if the frame is its content and nothing else, and is not
    /// in memory.
    fn own_frame(&mut self, number: EntryNumber) -> Result<Option<(BlobName, FrameInfo)>> {
        let extent_map = self.extent_map(number)?;
        let (Some(extent), [frame]) = (extent_map.only_extent(), extent_map.frames()) else { return Ok(None) };
        let (container, info) = self.resolver.frame_info(*frame)?;
        let is_own = extent.offset == 0 && extent.len == info.raw_len;
        let is_cached = self.decoded.is_near(DecodedKey::Frame(*frame));
        let is_data = self.kind_of(*frame)? == ContainerKind::Data;
        Ok((is_own && is_data && !is_cached).then(|| (blob_name(&container), info)))
    }

    /// Before the chunk at `from` is passed: fetches its frame and those of the chunks behind it up to byte `to`, as
    /// far as they lie side by side in a remote store.
    ///
    /// # Errors
    /// That the store does not answer, and that the call is stopped. All else is for whoever reads the chunks.
    pub(super) fn prefetch(&mut self, content: ContentReference, (from, to): (u64, u64)) -> Result<()> {
        if self.store.requests_max() == 1 {
            return Ok(());
        }
        match self.fetch_run(content, (from, to)) {
            Err(error) if matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Interrupted) => Err(error),
            _ => Ok(()),
        }
    }

    fn fetch_run(&mut self, content: ContentReference, (from, to): (u64, u64)) -> Result<()> {
        let (mut offset, mut run) = (from, None);
        while offset < to {
            let (range, name, info) = match self.frame_to_fetch(content, (offset, to)) {
                Ok(Some(found)) => found,
                Err(error) if run.is_none() => return Err(error),
                // What is behind it is another chunk's to report.
                Ok(None) | Err(_) => break,
            };
            if self.passing.failed.as_ref().is_some_and(|(failed, end)| *failed == name && info.offset < *end) {
                break;
            }
            let end = info.offset + info.stored_bytes() as u64;
            match &mut run {
                None if self.passing.fetched_frame(&name, &info).is_some() => {
                    return Ok(());
                }
                None => run = Some((name, info.offset, end)),
                Some((container, start, run_end))
                    if *container == name && *run_end == info.offset && end - *start <= FETCHED_BYTES_MAX =>
                {
                    *run_end = end;
                }
                Some(_) => break,
            }
            offset = range.end();
        }
        let Some((container, start, end)) = run else { return Ok(()) };
        self.passing.fetched = None;
        let len = usize::try_from(end - start).unwrap_or(usize::MAX);
        // What fails as a whole is read frame by frame.
        self.passing.failed = Some((container.clone(), end));
        let bytes = self.store.get_range(&container, start, len, Reading::Once)?;
        self.passing.failed = None;
        self.passing.fetched = Some(FetchedFrames { container, start, bytes });
        Ok(())
    }

    /// The chunk at `from`, with its container and its frame, if it ends by `to`, is that frame, and is not in memory.
    fn frame_to_fetch(
        &mut self,
        content: ContentReference,
        (from, to): (u64, u64),
    ) -> Result<Option<(LocatedRange, BlobName, FrameInfo)>> {
        let Some(range) = self.locate(content, from)?.filter(|range| range.end() <= to) else { return Ok(None) };
        let Some(fingerprint) = &range.chunk else { return Ok(None) };
        if self.decoded.is_near(DecodedKey::Chunk(*fingerprint)) {
            return Ok(None);
        }
        let number = self.entry_of(fingerprint)?;
        Ok(self.own_frame(number)?.map(|(name, info)| (range, name, info)))
    }

    /// Forgets what was fetched.
    pub(super) fn forget_fetched(&mut self) {
        (self.passing.fetched, self.passing.failed) = (None, None);
    }
}
