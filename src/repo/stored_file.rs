//! The bytes of a stored file at any offset, without restoring it.
//!
//! 1. The file's recipes are walked once: where each chunk begins and which bytes are a hole.
//! 2. A read finds its chunk by bisection and takes as much as the chunk has. Chunks are read and checked against their
//!    fingerprints by the [`ChunkReader`]; the last few are kept.

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

/// Chunks kept of one file, bytes.
const KEPT_BYTES: usize = 16 << 20;

/// A reader that several files are read through.
pub type SharedReader = Rc<RefCell<ChunkReader>>;

/// A run of a file's bytes.
#[derive(Debug, Clone, Copy)]
struct ContentRange {
    /// Its first byte.
    start: u64,
    /// Its bytes.
    len: u64,
    /// The chunk that has them; none for zeros.
    chunk: Option<Fingerprint>,
}

/// A file of a snapshot, open for reading at offsets.
pub struct StoredFile {
    reader: SharedReader,
    parts: Vec<ContentRange>,
    len: u64,
    kept: RefCell<ByteLru<Fingerprint, Rc<Vec<u8>>>>,
    /// Chunks read so far.
    read: RefCell<HashSet<Fingerprint>>,
}

impl StoredFile {
    /// Opens the content of a file of `len` bytes. Recipes are read, chunks of the file are not.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the content is not `len` bytes long; those of reading recipes.
    pub fn open(reader: SharedReader, content: Option<ContentReference>, len: u64) -> Result<Self> {
        let mut parts = Vec::new();
        let mut start = 0u64;
        if let Some(content) = content {
            let mut walk = RecipeWalk::new(content);
            let mut chunks = reader.borrow_mut();
            while let Some(reference) = walk.next(&mut chunks)? {
                let chunk = match reference {
                    ContentReference::Chunk { fingerprint, .. } => Some(fingerprint),
                    _ => None,
                };
                let part = ContentRange { start, len: reference.content_len(), chunk };
                let end = start.checked_add(part.len).filter(|end| *end <= len);
                start = end.ok_or_else(|| wrong_length(len, format!("at least {}", start.saturating_add(part.len))))?;
                parts.push(part);
            }
        }
        if start != len {
            return Err(wrong_length(len, start.to_string()));
        }
        let kept = RefCell::new(ByteLru::new(KEPT_BYTES));
        Ok(StoredFile { reader, parts, len, kept, read: RefCell::default() })
    }

    /// Its bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Different chunks of its content read so far.
    pub fn chunks_read(&self) -> u64 {
        self.read.borrow().len() as u64
    }

    /// Different chunks that its content is made of.
    pub fn chunks(&self) -> u64 {
        self.parts.iter().filter_map(|part| part.chunk).collect::<HashSet<_>>().len() as u64
    }

    fn chunk(&self, fingerprint: &Fingerprint, len: u64) -> Result<Rc<Vec<u8>>> {
        if let Some(bytes) = self.kept.borrow_mut().get(fingerprint) {
            return Ok(bytes);
        }
        let bytes = Rc::new(self.reader.borrow_mut().read(fingerprint)?);
        self.read.borrow_mut().insert(*fingerprint);
        if bytes.len() as u64 != len {
            let what = format!("chunk {fingerprint}");
            return Err(Error::corrupt(what, 0, format!("{len} bytes"), bytes.len().to_string()));
        }
        self.kept.borrow_mut().put(*fingerprint, bytes.clone(), bytes.len());
        Ok(bytes)
    }
}

impl ReadAt for StoredFile {
    fn read_at(&self, offset: u64, space: &mut [u8]) -> io::Result<usize> {
        let after = self.parts.partition_point(|part| part.start <= offset);
        let Some(part) = after.checked_sub(1).and_then(|at| self.parts.get(at)) else { return Ok(0) };
        let within = offset - part.start;
        let rest = part.len.saturating_sub(within);
        let count = usize::try_from(rest).unwrap_or(usize::MAX).min(space.len());
        let Some(space) = space.get_mut(..count) else { return Ok(0) };
        match &part.chunk {
            None => space.fill(0),
            Some(fingerprint) => {
                let bytes = self.chunk(fingerprint, part.len).map_err(io::Error::other)?;
                let found = usize::try_from(within).ok().and_then(|from| bytes.get(from..from.checked_add(count)?));
                space.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
            }
        }
        Ok(count)
    }
}

/// The first `count` bytes of a content, fewer if there are fewer; only the chunks that hold them are read.
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
/// Those of reading; [`io::ErrorKind::UnexpectedEof`] where the source ends before.
pub fn fill(source: &dyn ReadAt, mut offset: u64, mut space: &mut [u8]) -> io::Result<()> {
    while !space.is_empty() {
        match source.read_at(offset, space) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                offset += count as u64;
                space = space.get_mut(count..).unwrap_or_default();
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The error of reading `path` at an offset: the repository's own, or the system's.
pub fn unwrapped(error: io::Error, path: &Path) -> Error {
    error.downcast::<Error>().unwrap_or_else(|error| Error::io("read", path, error))
}

fn wrong_length(expected: u64, got: String) -> Error {
    Error::corrupt("content of a file", 0, format!("{expected} bytes"), got)
}
