//! A stored file, read at any offset.
//!
//! A read looks up one chunk or hole after the other ([`ChunkReader::locate`]) and passes on its bytes. A chunk of
//! which only a part is read is cached, because the next read often wants the rest. Whole chunks of long files are
//! passed on without a copy that is kept (`passing.rs`).

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::chunks::ChunkReader;
use super::content::{LocatedRange, write_zeros};
use super::read_cache::{Decoded, DecodedKey};
use super::reader::Reader;
use super::rebuilt::{BLOCK_BYTES, RebuiltStream, caches_skipped};
use crate::error::{Error, Result};
use crate::read_at::ReadAt;
use crate::repo::rebuilt::RebuiltContent;
use crate::repo::recipe::ContentReference;
use crate::types::Fingerprint;

/// Chunks and holes of a file whose chunks can be counted.
const RANGES_MAX: usize = 1 << 22;

/// Shortest file of which whole chunks are passed on, and not kept, bytes.
const PASSING_BYTES_MIN: u64 = 4 << 20;
/// Longest file that stays in memory until it is read again, bytes: half of what readers keep.
const CACHED_BYTES_MAX: u64 = 48 << 20;

/// A file of a snapshot. A clone is the same file.
#[derive(Clone)]
pub struct StoredFile {
    reader: Reader,
    content: Option<ContentReference>,
    /// Distinct chunks read, if they are counted.
    read: Option<Arc<Mutex<HashSet<Fingerprint>>>>,
}

impl StoredFile {
    pub(super) fn new(reader: Reader, content: Option<ContentReference>) -> Self {
        StoredFile { reader, content, read: None }
    }

    /// The same file, but it counts the chunks that are read.
    #[must_use]
    pub fn counting_chunks(self) -> Self {
        StoredFile { read: Some(Arc::default()), ..self }
    }

    /// Length, bytes.
    pub fn len(&self) -> u64 {
        self.content.map_or(0, |content| content.content_len())
    }

    /// Whether the file has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of distinct chunks read: 0 unless they are counted.
    pub fn chunks_read(&self) -> u64 {
        let read = self.read.as_ref().map(|read| read.lock().len());
        read.unwrap_or(0) as u64
    }

    /// Number of distinct chunks of the content.
    ///
    /// # Errors
    /// Errors of reading recipes. [`Error::Corrupt`] if there are too many.
    pub fn chunks(&self) -> Result<u64> {
        let (mut ranges, mut chunks) = (0, HashSet::new());
        self.visit_ranges(|range| {
            ranges += 1;
            if ranges > RANGES_MAX {
                let got = format!("more than {RANGES_MAX} chunks and holes");
                return Err(Error::corrupt("content of a file", 0, format!("{} bytes", self.len()), got));
            }
            chunks.extend(range.chunk);
            Ok(true)
        })?;
        Ok(chunks.len() as u64)
    }

    /// Whether a part of it is a hole.
    ///
    /// # Errors
    /// Errors of reading recipes.
    pub fn has_holes(&self) -> Result<bool> {
        let mut has_holes = false;
        self.visit_ranges(|range| {
            has_holes = range.chunk.is_none();
            Ok(!has_holes)
        })?;
        Ok(has_holes)
    }

    /// Passes the chunks and holes to `visit`, in order, until it returns `false`.
    ///
    /// # Errors
    /// Errors of reading recipes and of `visit`.
    pub fn visit_ranges(&self, mut visit: impl FnMut(LocatedRange) -> Result<bool>) -> Result<()> {
        let Some(content) = self.content else { return Ok(()) };
        self.reader.lend(|reader| {
            let mut offset = 0;
            while let Some(range) = reader.locate(content, offset)?
                && visit(range)?
            {
                offset = range.end();
            }
            Ok(())
        })
    }

    /// The chunk or hole that holds byte `offset`. `None` at and behind the end.
    ///
    /// # Errors
    /// Errors of reading recipes.
    pub fn locate(&self, offset: u64) -> Result<Option<LocatedRange>> {
        let Some(content) = self.content else { return Ok(None) };
        self.reader.lend(|reader| reader.locate(content, offset))
    }

    /// Passes the bytes `from` to `to` (exclusive) to `write`, in order. Bytes behind the end are left out.
    ///
    /// # Errors
    /// Errors of reading and of `write`.
    pub fn copy(&self, range: (u64, u64), write: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.copy_range(range, false, write)
    }

    /// Like [`Self::copy`], but keeps all chunks, for a range that may be read again.
    ///
    /// # Errors
    /// Errors of [`Self::copy`].
    pub fn copy_keeping(&self, range: (u64, u64), write: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.copy_range(range, true, write)
    }

    /// Like [`Self::copy`], but keeps the chunks of a file of at most 48 MiB: it is in memory when it is read again.
    ///
    /// # Errors
    /// Errors of [`Self::copy`].
    pub fn copy_keeping_short(&self, range: (u64, u64), write: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let keeps_all = self.content.is_some_and(|content| content.content_len() <= CACHED_BYTES_MAX);
        self.copy_range(range, keeps_all, write)
    }

    fn copy_range(
        &self,
        (from, to): (u64, u64),
        keeps_all: bool,
        write: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let Some(content) = self.content else { return Ok(()) };
        if let Some(rebuilt) = content.rebuilt() {
            return self.copy_rebuilt(&rebuilt, (from, to), keeps_all, write);
        }
        // A long file would drive out what is read again, and would be gone itself before its end.
        let passes = !keeps_all && content.content_len() >= PASSING_BYTES_MIN;
        self.reader.lend(|reader| {
            let copied = self.copy_chunks(reader, content, (from, to), (keeps_all, passes), write);
            reader.forget_fetched();
            copied
        })
    }

    /// Passes a range to `write`, chunk by chunk. Keeps all of them, or passes on whole ones that are not kept.
    fn copy_chunks(
        &self,
        reader: &mut ChunkReader,
        content: ContentReference,
        (from, to): (u64, u64),
        (keeps_all, passes): (bool, bool),
        write: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut offset = from;
        while offset < to
            && let Some(range) = reader.locate(content, offset)?
        {
            let end = range.end().min(to);
            match &range.chunk {
                Some(fingerprint) => {
                    let is_whole = offset == range.start && end == range.end();
                    if (passes || keeps_all) && is_whole {
                        reader.prefetch(content, (offset, to))?;
                    }
                    if passes && is_whole {
                        reader.pass(fingerprint, range.len, write)?;
                        self.note(fingerprint);
                    } else {
                        let bytes = self.chunk(reader, fingerprint, range.len, keeps_all || !is_whole)?;
                        let within = |at: u64| usize::try_from(at - range.start).unwrap_or(usize::MAX);
                        write(bytes.get(within(offset)..within(end)).unwrap_or_default())?;
                    }
                }
                None => write_zeros(end - offset, write)?,
            }
            offset = end;
        }
        Ok(())
    }

    /// Passes a range of rebuilt content to `write`, block by block.
    fn copy_rebuilt(
        &self,
        content: &RebuiltContent,
        (from, to): (u64, u64),
        keeps_all: bool,
        write: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let (mut offset, to, mut stream) = (from, to.min(content.len), None);
        let keeps = keeps_all || from > 0 || to < content.len;
        while offset < to {
            let start = offset - offset % BLOCK_BYTES;
            let block = self.rebuilt_block(content, start, keeps, &mut stream)?;
            let within = |at: u64| usize::try_from(at - start).unwrap_or(usize::MAX);
            let end = to.min(start.saturating_add(block.len() as u64));
            let bytes = block.get(within(offset)..within(end)).filter(|bytes| !bytes.is_empty());
            write(bytes.ok_or_else(|| Error::internal("a block of rebuilt content is too short"))?)?;
            offset = end;
        }
        stream.into_iter().for_each(|stream| self.reader.streams().put(stream));
        Ok(())
    }

    /// The block of rebuilt content that begins at `start`. A stream that is needed for it is taken from `stream`, and
    /// left there for the next block.
    fn rebuilt_block(
        &self,
        content: &RebuiltContent,
        start: u64,
        keeps: bool,
        stream: &mut Option<RebuiltStream>,
    ) -> Result<Bytes> {
        let key = |at: u64| DecodedKey::Rebuilt(content.hash, at / BLOCK_BYTES);
        let decoded = self.reader.lend(|reader| Ok(reader.decoded.clone()))?;
        if keeps && let Decoded::Found(bytes) = decoded.look(key(start)) {
            return Ok(bytes);
        }
        let known = stream.take().filter(|stream| stream.position() <= start);
        let known = known.or_else(|| self.reader.streams().take(content, start));
        let mut current = known.unwrap_or_else(|| RebuiltStream::new(self.reader.chunks(), *content));
        loop {
            let at = current.position();
            let Some(block) = current.next_block()? else {
                return Err(Error::internal("rebuilt content ended before its length"));
            };
            if keeps && (at == start || caches_skipped(content)) {
                decoded.keep(key(at), block.clone());
            }
            if at == start {
                *stream = Some(current);
                return Ok(block);
            }
        }
    }

    /// Reads the chunks that begin in a range, so that later reads find them. Stops before a chunk when `stops` says
    /// so.
    ///
    /// # Errors
    /// Errors of reading.
    pub fn prefetch(&self, (from, to): (u64, u64), stops: impl Fn() -> bool) -> Result<()> {
        // Rebuilt content comes in order, from one stream.
        let Some(content) = self.content.filter(|content| content.rebuilt().is_none()) else { return Ok(()) };
        let mut offset = from;
        while offset < to
            && !stops()
            && let Some(range) = self.reader.lend(|reader| {
                let range = reader.locate(content, offset)?;
                if let Some(LocatedRange { start, len, chunk: Some(fingerprint) }) = &range
                    && *start >= from
                {
                    self.chunk(reader, fingerprint, *len, true)?;
                }
                Ok(range)
            })?
        {
            offset = range.end();
        }
        Ok(())
    }

    /// The first `count` bytes, or all of a shorter file.
    ///
    /// # Errors
    /// Errors of reading.
    pub fn head(&self, count: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.copy((0, count as u64), &mut |part| {
            bytes.extend_from_slice(part);
            Ok(())
        })?;
        Ok(bytes)
    }

    /// The bytes of one of its chunks. Keeps them if `is_cached`.
    fn chunk(&self, reader: &mut ChunkReader, fingerprint: &Fingerprint, len: u64, is_cached: bool) -> Result<Bytes> {
        let bytes = reader.chunk(fingerprint, len, is_cached)?;
        self.note(fingerprint);
        Ok(bytes)
    }

    /// Notes that a chunk was read.
    fn note(&self, fingerprint: &Fingerprint) {
        if let Some(read) = &self.read {
            read.lock().insert(*fingerprint);
        }
    }
}

impl ReadAt for StoredFile {
    /// Returns at most the rest of one chunk or hole.
    fn read_at(&self, offset: u64, space: &mut [u8]) -> io::Result<usize> {
        let Some(content) = self.content else { return Ok(0) };
        if let Some(rebuilt) = content.rebuilt() {
            let (end, mut filled) = (offset.saturating_add(space.len() as u64), 0);
            let copied = self.copy_rebuilt(&rebuilt, (offset, end), true, &mut |bytes| {
                if let Some(space) = space.get_mut(filled..filled + bytes.len()) {
                    space.copy_from_slice(bytes);
                }
                filled += bytes.len();
                Ok(())
            });
            return copied.map(|()| filled).map_err(io::Error::other);
        }
        let read = self.reader.lend(|reader| {
            let Some(range) = reader.locate(content, offset)? else { return Ok(0) };
            let rest = usize::try_from(range.end() - offset).unwrap_or(usize::MAX);
            let count = rest.min(space.len());
            let Some(space) = space.get_mut(..count) else { return Ok(0) };
            match &range.chunk {
                None => space.fill(0),
                Some(fingerprint) => {
                    let bytes = self.chunk(reader, fingerprint, range.len, true)?;
                    let from = usize::try_from(offset - range.start).ok();
                    let found = from.and_then(|from| bytes.get(from..from.checked_add(count)?));
                    let found = found.ok_or_else(|| Error::internal("a chunk is shorter than its length"))?;
                    space.copy_from_slice(found);
                }
            }
            Ok(count)
        });
        read.map_err(io::Error::other)
    }
}

/// The error of a content that has not the length of its file.
pub(super) fn wrong_length(expected: u64, got: u64) -> Error {
    Error::corrupt("content of a file", 0, format!("{expected} bytes"), got.to_string())
}
