//! The rest of a file that has more bytes than its metadata say: Chunk reads it, one buffer after another.
//!
//! Files of `/proc`, and of some file systems in user space, have a size of 0 and any content. Read learns that when it
//! is at the end that it was told. What comes then is of unknown length, and a batch of Read must fit in memory. So
//! Chunk reads it, in order, as it needs the bytes. So it does with all of a large file that could not be opened.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;

use super::buffers::BufferPool;
use super::counts::ReadCounts;
use crate::error::Error;
use crate::filesystem::SourceFile;
use crate::metrics::Progress;

/// Bytes that a file may have beyond its size. Some files never end.
const BYTES_MAX: u64 = 1 << 30;

/// The bytes of a file from some offset on.
pub struct FileRest {
    source: Arc<SourceFile>,
    offset: u64,
    end_max: u64,
    pool: Arc<BufferPool>,
    counts: Arc<ReadCounts>,
    stop: Arc<AtomicBool>,
    /// Whether the file is one as its metadata say, all of which is read here.
    is_whole: bool,
    is_failed: bool,
    is_changed: bool,
}

impl fmt::Debug for FileRest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileRest").field("path", &self.source.path()).field("offset", &self.offset).finish()
    }
}

impl FileRest {
    /// The bytes of `source` from `offset` on, until `stop` is set.
    pub fn new(
        source: Arc<SourceFile>,
        offset: u64,
        pool: Arc<BufferPool>,
        counts: Arc<ReadCounts>,
        stop: Arc<AtomicBool>,
    ) -> Self {
        let beyond_max = if source.is_special() { u64::MAX } else { BYTES_MAX };
        let end_max = source.size().max(offset).saturating_add(beyond_max);
        FileRest { source, offset, end_max, pool, counts, stop, is_whole: false, is_failed: false, is_changed: false }
    }

    /// All bytes of a file that nobody else reads. Whether it changes meanwhile is seen at its end.
    pub fn whole(
        source: Arc<SourceFile>,
        pool: Arc<BufferPool>,
        counts: Arc<ReadCounts>,
        stop: Arc<AtomicBool>,
    ) -> Self {
        FileRest { is_whole: true, ..FileRest::new(source, 0, pool, counts, stop) }
    }

    /// Whether the file could not be read to its end. That was reported.
    pub fn is_failed(&self) -> bool {
        self.is_failed
    }

    /// Whether a whole file changed while it was read. That was reported.
    pub fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// The next bytes; `None` at the end.
    pub fn next(&mut self) -> Option<Bytes> {
        let mut buffer = self.pool.take();
        let want = self.pool.buffer_bytes();
        match self.source.read_unless(buffer.space(want), self.offset, &self.stop) {
            Ok(0) => {
                self.end();
                None
            }
            Ok(_) if self.offset >= self.end_max => {
                let endless = std::io::Error::other(format!("it has more than {BYTES_MAX} bytes beyond its size"));
                self.problem(&Error::io("read all of", self.source.path(), endless));
                None
            }
            Ok(read) => {
                self.offset += read as u64;
                self.counts.bytes_read.fetch_add(read as u64, Ordering::Relaxed);
                Some(Bytes::from_owner(buffer.filled(read)))
            }
            Err(error) => {
                self.is_failed = true;
                self.problem(&Error::io("read", self.source.path(), error));
                None
            }
        }
    }

    /// Looks whether a whole file has changed.
    fn end(&mut self) {
        let is_as_said = self.offset == self.source.size() && !self.source.is_changed().unwrap_or(true);
        if self.is_whole && !is_as_said {
            self.is_changed = true;
            let changed = std::io::Error::other("it changed while it was read; what was read is kept");
            self.problem(&Error::io("read consistently", self.source.path(), changed));
        }
    }

    fn problem(&self, error: &Error) {
        self.counts.problem(error, &Progress::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filesystem::Capturer;

    #[test]
    fn the_rest_comes_in_buffers_and_a_file_that_does_not_end_is_cut_and_reported() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, [7; 100]).unwrap();
        let node = Capturer::new().capture_path(&path, false, &mut Vec::new()).unwrap();
        for (end_max, expected, problems) in [(1 << 20, 95, 0), (50, 48, 1)] {
            let source = Arc::new(SourceFile::open(&path, &node).unwrap());
            let counts = Arc::new(ReadCounts::default());
            let mut rest = FileRest::new(source, 5, Arc::new(BufferPool::new(16, 4)), counts.clone(), Arc::default());
            rest.end_max = end_max;
            let bytes: usize = std::iter::from_fn(|| rest.next()).map(|bytes| bytes.len()).sum();
            assert_eq!((bytes, counts.problems.load(Ordering::Relaxed)), (expected, problems));
            assert!(!rest.is_failed() && !rest.is_changed());
        }
    }

    #[test]
    fn a_whole_file_that_has_changed_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, [7; 100]).unwrap();
        let node = Capturer::new().capture_path(&path, false, &mut Vec::new()).unwrap();
        for is_changed in [false, true] {
            let source = Arc::new(SourceFile::open(&path, &node).unwrap());
            let counts = Arc::new(ReadCounts::default());
            let mut rest = FileRest::whole(source, Arc::new(BufferPool::new(64, 4)), counts.clone(), Arc::default());
            if is_changed {
                std::fs::write(&path, [7; 110]).unwrap();
            }
            let bytes: usize = std::iter::from_fn(|| rest.next()).map(|bytes| bytes.len()).sum();
            assert_eq!((bytes, rest.is_changed()), (if is_changed { 110 } else { 100 }, is_changed));
            assert_eq!(counts.problems.load(Ordering::Relaxed), u64::from(is_changed));
        }
    }
}
