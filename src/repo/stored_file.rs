//! Reads a stored file at any offset, without restoring it.
//!
//! 1. Opening walks the file's recipes once and lists the ranges of its chunks and holes.
//! 2. A read finds its range by binary search and returns at most the rest of that range.
//! 3. The [`ChunkReader`] reads chunks and checks their fingerprints. The most recently used ones are cached.

use std::cell::RefCell;
use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::rc::Rc;

use crate::cache::ByteLru;
use crate::error::{Error, Result};
use crate::format::ReadAt;
use crate::repo::reader::{ChunkReader, RecipeWalk};
use crate::repo::recipe::ContentReference;
use crate::types::Fingerprint;

/// Chunks and holes of a file that can be opened.
const RANGES_MAX: usize = 1 << 22;
/// Cached chunks of one file, bytes.
const CACHE_BYTES_MAX: usize = 16 << 20;

/// A reader that several files share.
pub type SharedReader = Rc<RefCell<ChunkReader>>;

/// A range of a file that is one chunk or one hole.
#[derive(Debug, Clone, Copy)]
struct ContentRange {
    /// Offset in the file, bytes.
    start: u64,
    /// Length, bytes.
    len: u64,
    /// The chunk. `None` for a hole.
    chunk: Option<Fingerprint>,
}

/// An open file of a snapshot.
pub struct StoredFile {
    reader: SharedReader,
    ranges: Vec<ContentRange>,
    len: u64,
    cache: RefCell<ByteLru<Fingerprint, Rc<Vec<u8>>>>,
    /// Distinct chunks read.
    read: RefCell<HashSet<Fingerprint>>,
}

impl StoredFile {
    /// Opens the content of a file of `len` bytes. Reads its recipes but none of its chunks.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the content is not `len` bytes long. Those of reading recipes.
    pub fn open(reader: SharedReader, content: Option<ContentReference>, len: u64) -> Result<Self> {
        let mut ranges = Vec::new();
        let mut start = 0u64;
        if let Some(content) = content {
            let mut walk = RecipeWalk::new(content);
            let mut chunks = reader.borrow_mut();
            while let Some(reference) = walk.next(&mut chunks)? {
                let chunk = match reference {
                    ContentReference::Chunk { fingerprint, .. } => Some(fingerprint),
                    _ => None,
                };
                let range = ContentRange { start, len: reference.content_len(), chunk };
                let end = start.checked_add(range.len).filter(|end| *end <= len);
                start =
                    end.ok_or_else(|| wrong_length(len, format!("at least {}", start.saturating_add(range.len))))?;
                if ranges.len() == RANGES_MAX {
                    return Err(wrong_length(len, format!("more than {RANGES_MAX} chunks and holes")));
                }
                ranges.push(range);
            }
        }
        if start != len {
            return Err(wrong_length(len, start.to_string()));
        }
        let cache = RefCell::new(ByteLru::new(CACHE_BYTES_MAX));
        Ok(StoredFile { reader, ranges, len, cache, read: RefCell::default() })
    }

    /// Length, bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the file has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether a part of it is a hole.
    pub fn has_holes(&self) -> bool {
        self.ranges.iter().any(|range| range.chunk.is_none())
    }

    /// Number of distinct chunks read.
    pub fn chunks_read(&self) -> u64 {
        self.read.borrow().len() as u64
    }

    /// Number of distinct chunks of the content.
    pub fn chunks(&self) -> u64 {
        self.ranges.iter().filter_map(|range| range.chunk).collect::<HashSet<_>>().len() as u64
    }

    fn chunk(&self, fingerprint: &Fingerprint, len: u64) -> Result<Rc<Vec<u8>>> {
        if let Some(bytes) = self.cache.borrow_mut().get(fingerprint) {
            return Ok(bytes);
        }
        let bytes = Rc::new(self.reader.borrow_mut().read(fingerprint)?);
        self.read.borrow_mut().insert(*fingerprint);
        if bytes.len() as u64 != len {
            let what = format!("chunk {fingerprint}");
            return Err(Error::corrupt(what, 0, format!("{len} bytes"), bytes.len().to_string()));
        }
        self.cache.borrow_mut().put(*fingerprint, bytes.clone(), bytes.len());
        Ok(bytes)
    }
}

impl ReadAt for StoredFile {
    fn read_at(&self, offset: u64, space: &mut [u8]) -> io::Result<usize> {
        let after = self.ranges.partition_point(|range| range.start <= offset);
        let Some(range) = after.checked_sub(1).and_then(|at| self.ranges.get(at)) else { return Ok(0) };
        let within = offset - range.start;
        let rest = range.len.saturating_sub(within);
        let count = usize::try_from(rest).unwrap_or(usize::MAX).min(space.len());
        let Some(space) = space.get_mut(..count) else { return Ok(0) };
        match &range.chunk {
            None => space.fill(0),
            Some(fingerprint) => {
                let bytes = self.chunk(fingerprint, range.len).map_err(io::Error::other)?;
                let found = usize::try_from(within).ok().and_then(|from| bytes.get(from..from.checked_add(count)?));
                space.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
            }
        }
        Ok(count)
    }
}

/// Returns the first `count` bytes of a content, or all of a shorter one. Reads only the chunks that hold them.
///
/// # Errors
/// Those of reading.
pub fn head(reader: &mut ChunkReader, content: Option<ContentReference>, count: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let Some(content) = content else { return Ok(bytes) };
    let mut walk = RecipeWalk::new(content);
    while bytes.len() < count
        && let Some(reference) = walk.next(reader)?
    {
        let rest = count - bytes.len();
        match reference {
            ContentReference::Chunk { fingerprint, .. } => {
                let chunk = reader.read(&fingerprint)?;
                bytes.extend_from_slice(chunk.get(..rest).unwrap_or(&chunk));
            }
            other => bytes.resize(count.min(bytes.len() + other.content_len().min(rest as u64) as usize), 0),
        }
    }
    Ok(bytes)
}

/// Fills `space` from byte `offset` on.
///
/// # Errors
/// Those of `source`. [`io::ErrorKind::UnexpectedEof`] if the source ends before `space` is full.
pub fn fill(source: &dyn ReadAt, mut offset: u64, mut space: &mut [u8]) -> io::Result<()> {
    while !space.is_empty() {
        match source.read_at(offset, space) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                offset += count as u64;
                space = space.get_mut(count..).ok_or_else(|| io::Error::other("a read returned too many bytes"))?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Converts an error of reading `path`: returns the [`Error`] that it wraps, or wraps the system's error.
pub fn unwrapped(error: io::Error, path: &Path) -> Error {
    error.downcast::<Error>().unwrap_or_else(|error| Error::io("read", path, error))
}

fn wrong_length(expected: u64, got: String) -> Error {
    Error::corrupt("content of a file", 0, format!("{expected} bytes"), got)
}
