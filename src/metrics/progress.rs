//! Shared counters of a run.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// A number that several threads add to. A read may miss the latest additions.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `amount`.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// The current value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of a progress bar: the stages add, one thread reads.
#[derive(Debug, Default)]
pub struct Progress {
    /// Files that the scan has found so far.
    pub files_total: Counter,
    /// Files done.
    pub files_done: Counter,
    /// Bytes that the scan has found so far.
    pub bytes_total: Counter,
    /// Bytes read from the source, or written to the target.
    pub bytes_read: Counter,
    /// Bytes of files that need no reading or writing, because nothing about them has changed.
    pub bytes_skipped: Counter,
    /// Bytes of chunks that were not in the repository.
    pub bytes_new: Counter,
    /// Bytes added to the repository.
    pub bytes_stored: Counter,
    /// Files that could not be read or written.
    pub errors: Counter,
    /// The file that is being read or written.
    pub current: CurrentFile,
}

/// A path that many threads change and one reads, now and then.
#[derive(Debug, Default)]
pub struct CurrentFile(Mutex<PathBuf>);

impl CurrentFile {
    /// Changes the path. If another thread does so, that one wins.
    pub fn set(&self, path: &Path) {
        if let Some(mut current) = self.0.try_lock() {
            // The memory of the last path is used again.
            current.clear();
            current.push(path);
        }
    }

    /// The path; empty if there is none.
    pub fn get(&self) -> PathBuf {
        self.0.lock().clone()
    }
}
