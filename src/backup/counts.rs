//! Counters of what a run reads.

use std::sync::atomic::{AtomicU64, Ordering};

use super::changes::FileChangeCounts;
use crate::error::Error;
use crate::metrics::Progress;

/// Counters of what is read, shared with the caller of the run.
#[derive(Debug, Default)]
pub struct ReadCounts {
    /// Whether [`Self::problem`] only counts.
    pub without_names: bool,
    /// Entries that could not be read, or changed while they were read.
    pub problems: AtomicU64,
    /// Files that were not read because they are unchanged.
    pub files_unchanged: AtomicU64,
    /// Large tensors of models.
    pub tensors: AtomicU64,
    /// Tensors with a block that the repository did not have.
    pub tensors_new: AtomicU64,
    /// Bytes read from files.
    pub bytes_read: AtomicU64,
    /// Entries that the user's choice leaves out. What is below an excluded directory is not counted.
    pub excluded: AtomicU64,
    /// What changed since the parents.
    pub changes: FileChangeCounts,
}

impl ReadCounts {
    /// Names and counts an entry that could not be read, or changed meanwhile.
    pub fn problem(&self, error: &Error, progress: &Progress) {
        if !self.without_names {
            tracing::warn!("{error}");
        }
        self.problems.fetch_add(1, Ordering::Relaxed);
        progress.errors.add(1);
    }
}
