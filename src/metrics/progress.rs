//! Shared counters of a run.

use std::sync::atomic::{AtomicU64, Ordering};

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
    /// Bytes of chunks that were not in the repository.
    pub bytes_new: Counter,
    /// Bytes added to the repository.
    pub bytes_stored: Counter,
    /// Files that could not be read or written.
    pub errors: Counter,
}
