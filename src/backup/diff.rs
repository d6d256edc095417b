//! Diff: compares the sub-blocks that FineDedup found with their bases, and extends them (FHRD, figure 16).
//!
//! Bases are read and decoded here. The work depends on the batch alone, so several workers do it.

use crate::backup::message::{ChunkBatch, ChunkItem, CopySearch};
use crate::error::Result;
use crate::pipeline::Map;
use crate::similar::SubBlockMatcher;

/// A worker of Diff.
pub struct DiffWorker {
    /// Reads and compares bases.
    pub matcher: SubBlockMatcher,
}

impl Map for DiffWorker {
    type In = ChunkBatch;
    type Out = ChunkBatch;

    fn name(&self) -> &'static str {
        "diff"
    }

    fn map(&mut self, mut batch: ChunkBatch) -> Result<ChunkBatch> {
        for item in &mut batch.items {
            let ChunkItem::Chunk(chunk) = item else { continue };
            if let CopySearch::Alike { features, found } = std::mem::take(&mut chunk.search) {
                chunk.search = CopySearch::Found(self.matcher.find(&chunk.bytes, &found, features)?);
            }
        }
        Ok(batch)
    }
}
