//! Compares files of the target with stored content.
//!
//! A chunk that a file already holds is found by its fingerprint, so nothing is read from the repository. Holes are
//! compared with the file's own holes, so that a file of terabytes without data is compared at once.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::error::{Error, Result};
use crate::filesystem::next_data;
use crate::kernel::compare::is_zero;
use crate::repo::read::{ChunkReader, RecipeWalk};
use crate::repo::recipe::ContentReference;
use crate::types::{Fingerprint, RepositoryKey};

/// Bytes that are searched for zeros, or hashed, at a time.
const SEARCH_BYTES: u64 = 256 << 10;

/// A buffer for comparisons, and the key of the fingerprints.
pub struct FileComparison {
    key: RepositoryKey,
    buffer: Vec<u8>,
}

impl FileComparison {
    /// A comparison with fingerprints under `key`.
    pub fn new(key: RepositoryKey) -> Self {
        FileComparison { key, buffer: Vec::new() }
    }

    /// The `len` bytes of `file` at `offset`, if they are the chunk `fingerprint`. What cannot be read is not the same.
    pub fn chunk(&mut self, file: &File, offset: u64, len: u64, fingerprint: &Fingerprint) -> Option<&[u8]> {
        self.buffer.resize(usize::try_from(len).ok()?, 0);
        file.read_exact_at(&mut self.buffer, offset).ok()?;
        (self.key.fingerprint(&self.buffer) == *fingerprint).then_some(&*self.buffer)
    }

    /// Whether `file`, which has the length of the content, holds `content`. Content that cannot be read is not the
    /// same.
    ///
    /// # Errors
    /// [`Error::Interrupted`] once `is_stopped` returns `true`.
    pub fn holds(
        &mut self,
        file: &File,
        content: Option<ContentReference>,
        reader: &mut ChunkReader,
        is_stopped: impl Fn() -> bool,
    ) -> Result<bool> {
        let Some(content) = content else { return Ok(true) };
        if let Some(rebuilt) = content.rebuilt() {
            return self.has_hash(file, rebuilt.len, &rebuilt.hash, is_stopped);
        }
        let mut walk = RecipeWalk::new(content);
        let mut offset = 0u64;
        loop {
            if is_stopped() {
                return Err(Error::Interrupted);
            }
            let reference = match walk.next(reader) {
                Ok(Some(reference)) => reference,
                Ok(None) => return Ok(true),
                Err(error) if error.stops_reading() => return Err(error),
                Err(_) => return Ok(false),
            };
            let len = reference.content_len();
            let is_same = match reference {
                ContentReference::Chunk { fingerprint, .. } => self.chunk(file, offset, len, &fingerprint).is_some(),
                _ => self.data_in(file, offset, len).is_none(),
            };
            if !is_same {
                return Ok(false);
            }
            offset = offset.saturating_add(len);
        }
    }

    /// Whether the first `len` bytes of `file` have this fingerprint. What cannot be read has not.
    fn has_hash(&mut self, file: &File, len: u64, hash: &Fingerprint, is_stopped: impl Fn() -> bool) -> Result<bool> {
        let (mut hasher, mut offset) = (self.key.hasher(), 0);
        while offset < len {
            if is_stopped() {
                return Err(Error::Interrupted);
            }
            self.buffer.resize((len - offset).min(SEARCH_BYTES) as usize, 0);
            if file.read_exact_at(&mut self.buffer, offset).is_err() {
                return Ok(false);
            }
            hasher.update(&self.buffer);
            offset += self.buffer.len() as u64;
        }
        Ok(hasher.finalize() == hash.0)
    }

    /// Writes zeros over all bytes of a range that are not zero.
    ///
    /// # Errors
    /// Errors of writing.
    pub fn clear(&mut self, file: &File, offset: u64, len: u64) -> std::io::Result<()> {
        let end = offset.saturating_add(len);
        let mut at = offset;
        while let Some(range) = self.data_in(file, at, end.saturating_sub(at)) {
            let zeros = vec![0; (range.end - range.start) as usize];
            file.write_all_at(&zeros, range.start)?;
            at = range.end;
        }
        Ok(())
    }

    /// The first part of a range that is not zero. Bytes behind the end of the file are zero.
    fn data_in(&mut self, file: &File, offset: u64, len: u64) -> Option<std::ops::Range<u64>> {
        let end = offset.saturating_add(len);
        let mut at = offset;
        while at < end {
            at = next_data(file, at)?;
            let range_end = end.min(at.saturating_add(SEARCH_BYTES));
            if at >= range_end {
                return None;
            }
            self.buffer.resize((range_end - at) as usize, 0);
            let read = match file.read_at(&mut self.buffer, at) {
                Ok(0) => return None,
                Ok(read) => read,
                Err(_) => return Some(at..range_end),
            };
            if !is_zero(self.buffer.get(..read).unwrap_or_default()) {
                return Some(at..at + read as u64);
            }
            at += read as u64;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: RepositoryKey = RepositoryKey([3; 32]);

    fn file_of(bytes: &[u8]) -> File {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(bytes, 0).unwrap();
        file
    }

    #[test]
    fn a_chunk_is_found_by_its_fingerprint() {
        let (file, mut comparison) = (file_of(b"some bytes"), FileComparison::new(KEY));
        let fingerprint = KEY.fingerprint(b"me by");
        assert_eq!(comparison.chunk(&file, 2, 5, &fingerprint), Some(&b"me by"[..]));
        for (offset, len) in [(3, 5), (2, 4), (8, 5), (u64::MAX, 5)] {
            assert_eq!(comparison.chunk(&file, offset, len, &fingerprint), None);
        }
    }

    #[test]
    fn clearing_leaves_zeros_and_what_is_outside() {
        let mut comparison = FileComparison::new(KEY);
        let file = file_of(&[7; 600_000]);
        file.set_len(5_000_000).unwrap();
        file.write_all_at(b"data", 3_000_000).unwrap();
        comparison.clear(&file, 1000, 4_000_000).unwrap();
        let mut bytes = vec![1; 5_000_000];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes[..1000].iter().all(|byte| *byte == 7) && is_zero(&bytes[1000..]));
        assert_eq!(comparison.data_in(&file, 1000, u64::MAX), None);
        assert_eq!(comparison.data_in(&file, 0, 1000), Some(0..1000));
    }
}
