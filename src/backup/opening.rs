//! Opens the compressed streams of a file: what these unpack to is stored in their place, with the corrections that
//! give the file again ([`crate::opened`]).
//!
//! 1. The file is read once. Its plain content and the corrections are kept in memory, and beyond a limit in temporary
//!    files without a name.
//! 2. They are rebuilt at once. If that does not give the bytes that were read, the file is stored as it is.
//! 3. Chunk then takes the parts, as it takes the bytes of any file.

use std::fmt;
use std::io::{self, Read, Seek, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use tempfile::{SpooledTempFile, spooled_tempfile, spooled_tempfile_in};

use crate::error::{Error, Result};
use crate::filesystem::SourceFile;
use crate::opened::{OpenLimits, Rebuilder, open_stream};
use crate::types::{Fingerprint, RepositoryKey};

/// Bytes that are read, rebuilt or passed on at once.
const BUFFER_BYTES: usize = 256 << 10;
/// Bytes of a part that are in memory at least.
const MEMORY_BYTES_MIN: usize = 64 << 10;
/// Plain content of one file, at most: temporary files are bounded by that and the number of workers.
const PLAIN_BYTES_MAX: u64 = 4 << 30;

/// Opens files.
#[derive(Clone)]
pub struct FileOpener {
    /// Key of the fingerprints.
    pub key: RepositoryKey,
    /// Directory for temporary files; where there is none, that of the system.
    pub directory: PathBuf,
    /// Set when the user stops the run.
    pub stop: Arc<AtomicBool>,
}

/// What is stored in place of a file. It was rebuilt once.
pub struct OpenedParts {
    plain: SpooledTempFile,
    corrections: SpooledTempFile,
    /// Fingerprint of the bytes of the file.
    pub hash: Fingerprint,
    /// Number of these bytes.
    pub len: u64,
    /// Bytes of the parts in memory.
    pub memory: usize,
}

impl fmt::Debug for OpenedParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenedParts").field("hash", &self.hash).field("len", &self.len).finish()
    }
}

impl FileOpener {
    /// The parts of a file, which stay in memory up to about `memory` bytes. `None` if it is to be stored as it is:
    /// nothing of it can be opened, or not what was read comes back.
    pub fn open(&self, source: &SourceFile, memory: usize) -> Option<OpenedParts> {
        let path = source.path().display();
        // A file of whoever made it must not end the backup, whatever it does to the analysis.
        let opened = catch_unwind(AssertUnwindSafe(|| self.try_open(source, memory)));
        match opened.unwrap_or_else(|_| Err(io::Error::other("the analysis has failed"))) {
            Ok(Some(parts)) => Some(parts),
            Ok(None) => {
                tracing::debug!("{path}: stored as it is: nothing can be opened");
                None
            }
            Err(error) => {
                tracing::debug!("{path}: stored as it is: {error}");
                None
            }
        }
    }

    fn try_open(&self, source: &SourceFile, memory: usize) -> io::Result<Option<OpenedParts>> {
        let mut plain = PlainSpool { spool: self.spool(memory), left: PLAIN_BYTES_MAX };
        let mut corrections = self.spool(memory / 4);
        let mut input = HashedInput { source, offset: 0, hasher: self.key.hasher(), stop: &self.stop };
        let opened = open_stream(&mut input, &OpenLimits::default(), &mut plain, &mut corrections);
        let summary = opened.map_err(|error| io::Error::other(error.to_string()))?;
        let (hash, len) = (Fingerprint(*input.hasher.finalize().as_bytes()), input.offset);
        let mut plain = plain.spool;
        if summary.opened_bytes == 0 || plain.stream_position()? == 0 {
            return Ok(None);
        }
        let mut bytes_in_memory = 0;
        for part in [&mut plain, &mut corrections] {
            if !part.is_rolled() {
                bytes_in_memory += part.stream_position()? as usize;
            }
            part.rewind()?;
        }
        self.check(&mut plain, &mut corrections, (hash, len))?;
        plain.rewind()?;
        corrections.rewind()?;
        Ok(Some(OpenedParts { plain, corrections, hash, len, memory: bytes_in_memory }))
    }

    fn spool(&self, memory: usize) -> SpooledTempFile {
        let memory = memory.max(MEMORY_BYTES_MIN);
        if self.directory.is_dir() { spooled_tempfile_in(memory, &self.directory) } else { spooled_tempfile(memory) }
    }

    /// Rebuilds the parts, and checks that they give bytes of this fingerprint and number.
    fn check(
        &self,
        plain: &mut impl Read,
        corrections: &mut impl Read,
        expected: (Fingerprint, u64),
    ) -> io::Result<()> {
        let (mut rebuilder, mut hasher, mut len) = (Rebuilder::new(plain, corrections), self.key.hasher(), 0);
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(io::Error::other("the backup is stopped"));
            }
            let read = rebuilder.read(&mut buffer)?;
            if read == 0 {
                break;
            }
            hasher.update(buffer.get(..read).unwrap_or_default());
            len += read as u64;
        }
        if (Fingerprint(*hasher.finalize().as_bytes()), len) != expected {
            return Err(io::Error::other("it does not come back as it was"));
        }
        Ok(())
    }
}

impl OpenedParts {
    /// Whether a part is in a temporary file.
    pub fn is_spilled(&self) -> bool {
        self.plain.is_rolled() || self.corrections.is_rolled()
    }

    /// The next bytes of the plain content; `None` at the end.
    ///
    /// # Errors
    /// [`Error::Io`] of a temporary file.
    pub fn next_plain(&mut self) -> Result<Option<Bytes>> {
        next(&mut self.plain)
    }

    /// The next bytes of the corrections; `None` at the end.
    ///
    /// # Errors
    /// [`Error::Io`] of a temporary file.
    pub fn next_corrections(&mut self) -> Result<Option<Bytes>> {
        next(&mut self.corrections)
    }
}

fn next(part: &mut SpooledTempFile) -> Result<Option<Bytes>> {
    let mut bytes = Vec::with_capacity(BUFFER_BYTES);
    let read = Read::take(&mut *part, BUFFER_BYTES as u64).read_to_end(&mut bytes);
    read.map_err(|error| Error::io("read", "a temporary file", error))?;
    Ok((!bytes.is_empty()).then(|| Bytes::from(bytes)))
}

/// The bytes of a file, which are hashed as they are read.
struct HashedInput<'a> {
    source: &'a SourceFile,
    offset: u64,
    hasher: blake3::Hasher,
    stop: &'a AtomicBool,
}

impl Read for HashedInput<'_> {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(io::Error::other("the backup is stopped"));
        }
        let count = self.source.read_unless(space, self.offset, self.stop)?;
        self.hasher.update(space.get(..count).unwrap_or_default());
        self.offset += count as u64;
        Ok(count)
    }
}

/// A part whose length is bounded.
struct PlainSpool {
    spool: SpooledTempFile,
    left: u64,
}

impl Write for PlainSpool {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() as u64 > self.left {
            return Err(io::Error::other(format!("it unpacks to more than {PLAIN_BYTES_MAX} bytes")));
        }
        let written = self.spool.write(bytes)?;
        self.left -= written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.spool.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::filesystem::Capturer;

    /// A gzip file of `count` stored blocks, each of 64 bytes.
    fn archive(count: u8) -> Vec<u8> {
        let mut bytes = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
        for number in 1..=count {
            bytes.extend([u8::from(number == count), 64, 0, 191, 255]);
            bytes.extend([number; 64]);
        }
        bytes.extend([0; 8]);
        bytes
    }

    fn opener(directory: &Path) -> FileOpener {
        FileOpener { key: RepositoryKey([7; 32]), directory: directory.into(), stop: Arc::default() }
    }

    fn source(path: &Path, bytes: &[u8]) -> SourceFile {
        std::fs::write(path, bytes).unwrap();
        SourceFile::open(path, &Capturer::new().capture_path(path, false, &mut Vec::new()).unwrap()).unwrap()
    }

    fn all(mut next: impl FnMut() -> Result<Option<Bytes>>) -> Vec<u8> {
        std::iter::from_fn(|| next().unwrap()).flatten().collect()
    }

    #[test]
    fn parts_that_give_other_bytes_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let (bytes, opener) = (archive(200), opener(directory.path()));
        let mut parts = opener.open(&source(&directory.path().join("a"), &bytes), 1 << 20).unwrap();
        let expected = (parts.hash, parts.len);
        assert_eq!(expected, (opener.key.fingerprint(&bytes), bytes.len() as u64));
        let (plain, corrections) = (all(|| parts.next_plain()), all(|| parts.next_corrections()));
        let check = |plain: &[u8], corrections: &[u8]| opener.check(&mut &plain[..], &mut &corrections[..], expected);
        check(&plain, &corrections).unwrap();
        let mut other = plain.clone();
        other[100] ^= 1;
        for (plain, corrections) in [(&other[..], &corrections[..]), (&plain[..300], &corrections), (&plain, &[])] {
            assert!(check(plain, corrections).is_err());
        }
        opener.stop.store(true, Ordering::Relaxed);
        assert!(check(&plain, &corrections).is_err());
    }

    #[test]
    fn what_a_file_unpacks_to_is_in_no_file_with_a_name() {
        let (directory, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let long: Vec<u8> = (0..100u32).flat_map(|_| archive(200)).collect();
        let mut parts = opener(cache.path()).open(&source(&directory.path().join("a"), &long), 0).unwrap();
        assert!(parts.is_spilled() && parts.memory < MEMORY_BYTES_MIN);
        assert_eq!(std::fs::read_dir(cache.path()).unwrap().count(), 0);
        assert!(all(|| parts.next_plain()).len() > 1 << 20);
    }

    #[test]
    fn plain_content_beyond_its_limit_is_refused() {
        let mut spool = PlainSpool { spool: spooled_tempfile(100), left: 10 };
        spool.write_all(&[0; 10]).unwrap();
        assert!(spool.write_all(&[0]).is_err());
    }
}
