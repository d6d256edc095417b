//! Content that a transform rebuilds, as a stream of blocks.
//!
//! 1. A stream begins at the first byte: the decoder has no way to begin elsewhere. A read of a range skips what
//!    is before it, and streams that stopped there wait for the next read, a few of them.
//! 2. The hash of all bytes is checked before the last block is passed on, so who reads all of it has what was stored.
//! 3. Blocks of ranges are kept in the read cache. Of a short content, those that were skipped are kept, too.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::chunks::{ChunkReader, RecipeWalk};
use crate::error::{Error, Result};
use crate::opened::Rebuilder;
use crate::repo::rebuilt::RebuiltContent;
use crate::repo::recipe::ContentReference;

/// Bytes of a block; the last one may be shorter.
pub(super) const BLOCK_BYTES: u64 = 256 << 10;
/// Of a content up to this length all blocks are kept that a read has passed.
const CACHED_LEN_MAX: u64 = 32 << 20;
/// Streams that wait for the next read.
const IDLE_MAX: usize = 4;

/// Rebuilds a content from its first byte on.
pub struct RebuiltStream {
    content: RebuiltContent,
    rebuilder: Rebuilder<PartStream, PartStream>,
    /// The first failure of reading a part.
    failure: Arc<Mutex<Option<Error>>>,
    hasher: Box<blake3::Hasher>,
    position: u64,
}

impl RebuiltStream {
    /// The bytes of `content`, whose parts `reader` reads.
    pub fn new(reader: ChunkReader, content: RebuiltContent) -> Self {
        let (hasher, failure) = (Box::new(reader.hasher()), Arc::default());
        let reader = Arc::new(Mutex::new(reader));
        let part = |part: Option<ContentReference>| PartStream {
            reader: reader.clone(),
            walk: part.map(RecipeWalk::new),
            bytes: Bytes::new(),
            failure: Arc::clone(&failure),
        };
        let source = part(Some(content.source.into()));
        let rebuilder = Rebuilder::new(source, part(content.corrections.map(ContentReference::from)));
        RebuiltStream { content, rebuilder, failure, hasher, position: 0 }
    }

    /// Number of bytes passed on.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The next [`BLOCK_BYTES`] bytes, or those that are left; `None` at the end.
    ///
    /// # Errors
    /// Errors of reading the plain content and the corrections. [`Error::Corrupt`] and [`Error::ChecksumMismatch`] if
    /// they give other bytes than those that were stored. The stream is of no use then.
    pub fn next_block(&mut self) -> Result<Option<Bytes>> {
        let left = self.content.len - self.position;
        if left == 0 {
            return Ok(None);
        }
        let mut block = Vec::with_capacity(left.min(BLOCK_BYTES) as usize);
        let read = self.rebuilder.by_ref().take(left.min(BLOCK_BYTES)).read_to_end(&mut block);
        self.done(read)?;
        self.hasher.update(&block);
        self.position += block.len() as u64;
        if (block.len() as u64) < left.min(BLOCK_BYTES) {
            return Err(self.corrupt(self.position.to_string()));
        }
        if self.position == self.content.len {
            self.check_end()?;
        }
        Ok(Some(Bytes::from(block)))
    }

    /// Rebuilds the rest and passes on nothing.
    ///
    /// # Errors
    /// Errors of [`Self::next_block`], and of `check`, which is called before each block.
    pub fn finish(mut self, mut check: impl FnMut() -> Result<()>) -> Result<()> {
        loop {
            check()?;
            if self.next_block()?.is_none() {
                return Ok(());
            }
        }
    }

    fn check_end(&mut self) -> Result<()> {
        let more = self.rebuilder.read(&mut [0]);
        if self.done(more)? > 0 {
            return Err(self.corrupt("more".into()));
        }
        let got = *self.hasher.finalize().as_bytes();
        if got == self.content.hash.0 {
            return Ok(());
        }
        let (what, expected) = ("rebuilt content".to_string(), self.content.hash.to_string());
        Err(Error::ChecksumMismatch { what, offset: 0, expected, got: crate::types::hex(&got) })
    }

    /// The result of a read, or why it failed: a part that cannot be read, or corrections that do not fit.
    fn done(&self, read: io::Result<usize>) -> Result<usize> {
        match (self.failure.lock().take(), read) {
            (Some(failure), _) => Err(failure),
            (None, Ok(read)) => Ok(read),
            (None, Err(error)) => Err(self.corrupt(error.to_string())),
        }
    }

    fn corrupt(&self, got: String) -> Error {
        let what = format!("rebuilt content {}", self.content.hash);
        Error::corrupt(what, self.position, format!("{} bytes", self.content.len), got)
    }
}

/// The bytes of a part.
struct PartStream {
    reader: Arc<Mutex<ChunkReader>>,
    walk: Option<RecipeWalk>,
    /// What is left of the current chunk.
    bytes: Bytes,
    failure: Arc<Mutex<Option<Error>>>,
}

impl PartStream {
    /// Goes to the next chunk. Returns `false` at the end.
    fn advance(&mut self) -> Result<bool> {
        let (Some(walk), reader) = (&mut self.walk, &mut *self.reader.lock()) else { return Ok(false) };
        match walk.next(reader)? {
            None => Ok(false),
            Some(ContentReference::Chunk { fingerprint, len }) => {
                self.bytes = reader.read_shared(&fingerprint, len)?;
                Ok(true)
            }
            Some(other) => Err(Error::corrupt("a part of rebuilt content", 0, "chunks only", format!("{other:?}"))),
        }
    }
}

impl Read for PartStream {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        while self.bytes.is_empty() && !space.is_empty() {
            match self.advance() {
                Ok(true) => {}
                Ok(false) => return Ok(0),
                Err(error) => {
                    let text = error.to_string();
                    self.failure.lock().get_or_insert(error);
                    return Err(io::Error::other(text));
                }
            }
        }
        let count = self.bytes.len().min(space.len());
        let bytes = self.bytes.split_to(count);
        space.iter_mut().zip(&bytes).for_each(|(to, from)| *to = *from);
        Ok(count)
    }
}

/// Streams that wait for the next read.
#[derive(Default)]
pub(super) struct IdleStreams(Mutex<VecDeque<RebuiltStream>>);

impl IdleStreams {
    /// Takes the stream of `content` that is nearest before `offset`.
    pub(super) fn take(&self, content: &RebuiltContent, offset: u64) -> Option<RebuiltStream> {
        let mut streams = self.0.lock();
        let fits = |stream: &RebuiltStream| stream.content == *content && stream.position <= offset;
        let of = streams.iter().enumerate().filter(|(_, stream)| fits(stream));
        let at = of.max_by_key(|(_, stream)| stream.position).map(|(at, _)| at)?;
        streams.remove(at)
    }

    /// Keeps a stream that is not at its end. Of many streams the oldest goes.
    pub(super) fn put(&self, stream: RebuiltStream) {
        let mut streams = self.0.lock();
        if stream.position < stream.content.len {
            streams.push_back(stream);
        }
        if streams.len() > IDLE_MAX {
            streams.pop_front();
        }
    }
}

/// Whether the blocks of a content that a read skips are kept.
pub(super) fn caches_skipped(content: &RebuiltContent) -> bool {
    content.len <= CACHED_LEN_MAX
}
