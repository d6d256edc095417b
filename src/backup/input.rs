//! What a run reads: a source tree, a snapshot of another repository, files in memory, or one stream.

use std::sync::atomic::{AtomicU64, Ordering};

use super::changes::FileChangeCounts;
use super::memory::MemoryStage;
use super::stored::StoredStage;
use super::stream::StreamStage;
use super::walk::WalkStage;
use crate::error::Error;
use crate::metrics::Progress;

/// The first stage.
pub enum InputStage<'a> {
    /// Walks a source tree. Read comes after it.
    Tree(Box<WalkStage<'a>>),
    /// Reads a snapshot of another repository.
    Stored(Box<StoredStage<'a>>),
    /// Sends files in memory.
    Memory(Box<MemoryStage<'a>>),
    /// Reads a stream as one file.
    Stream(Box<StreamStage<'a>>),
}

/// Counters of what is read, shared with the caller of the run.
#[derive(Debug, Default)]
pub struct ReadCounts {
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
    /// Reports and counts an entry that could not be read, or changed meanwhile.
    pub fn problem(&self, error: &Error, progress: &Progress) {
        tracing::warn!("{error}");
        self.problems.fetch_add(1, Ordering::Relaxed);
        progress.errors.add(1);
    }
}
