//! Rescue: reads a chunk from another entry that stores it, after its frames proved damaged or gone.

use std::sync::Arc;

use parking_lot::Mutex;

use super::assembled::AssembledChunk;
use super::message::{RestoreCounts, WriteChunk};
use crate::error::{Error, Result};
use crate::metrics::Progress;
use crate::repo::read::ChunkReader;

/// Writes checked chunks, and reads those again that cannot be assembled.
pub struct Rescue<'a> {
    /// Shared by the threads, because a chunk rarely needs it.
    pub reader: Mutex<ChunkReader>,
    /// Counters of the restore.
    pub counts: Arc<RestoreCounts>,
    /// Counters for the progress bar.
    pub progress: &'a Progress,
}

impl Rescue<'_> {
    /// Writes the checked bytes of a chunk.
    ///
    /// # Errors
    /// [`Error::Io`] of the target.
    pub fn write(&self, write: &WriteChunk, bytes: &[u8]) -> Result<()> {
        AssembledChunk { file: &write.file, bytes, offset: write.offset }.write()?;
        write.file.set_has_content();
        self.counts.written(self.progress, bytes.len() as u64);
        Ok(())
    }

    /// Reads a chunk from whatever entry is readable, after `failure`, and writes it.
    ///
    /// # Errors
    /// `failure` if no entry is readable; other errors of the store and the target.
    pub fn chunk(&self, write: &WriteChunk, failure: Error) -> Result<()> {
        let mut reader = self.reader.lock();
        match reader.read_exact(&write.fingerprint, u64::from(write.extent_map.len())) {
            Ok(bytes) => {
                drop(reader);
                tracing::info!("chunk {} is read from another copy: {failure}", write.fingerprint);
                self.write(write, &bytes)
            }
            Err(error) if error.is_unreadable() => Err(failure),
            Err(error) => Err(error),
        }
    }
}
