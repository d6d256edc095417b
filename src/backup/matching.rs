//! Match: finds the ranges that new chunks share with their bases.
//!
//! Most of the work of deduplication below the chunk is done here: bases are read, decoded and compared. It depends on
//! the batch alone, so several workers do it.

use crate::backup::message::{ChunkBatch, ChunkItem, CopySearch};
use crate::chunk::classify::ChunkClassifier;
use crate::error::Result;
use crate::pipeline::Map;
use crate::similar::AnchorMatcher;

/// A worker of Match.
pub struct MatchWorker {
    /// Reads and compares bases.
    pub matcher: AnchorMatcher,
    /// Classifies chunks that Identify left out and that are not copied for the most part.
    pub classifier: ChunkClassifier,
}

impl Map for MatchWorker {
    type In = ChunkBatch;
    type Out = ChunkBatch;

    fn name(&self) -> &'static str {
        "match"
    }

    fn map(&mut self, mut batch: ChunkBatch) -> Result<ChunkBatch> {
        self.matcher.next_batch();
        for item in &mut batch.items {
            let ChunkItem::Chunk(chunk) = item else { continue };
            if let CopySearch::Bases { features, chunk: base, entries } = std::mem::take(&mut chunk.search) {
                let found = self.matcher.find(&base, features, &entries)?;
                let copied: u64 = found.matches.iter().map(|found| u64::from(found.len)).sum();
                if chunk.class.is_none() && copied * 2 < u64::from(chunk.len) {
                    chunk.class = Some(self.classifier.classify(&chunk.bytes));
                }
                chunk.search = CopySearch::Found(found);
            }
        }
        Ok(batch)
    }
}
