//! Identify: tells float chunks and incompressible chunks from ordinary ones by the entropy of their byte groups, and
//! finds the anchors of new chunks that the cutter did not give.
//!
//! A chunk that shares features with earlier ones is left to SubDedup, which will copy most of it and then need not
//! know its class, or else finds it: the class follows from the bytes alone, so who finds it changes nothing.

use crate::backup::message::{ChunkBatch, ChunkItem};
use crate::chunk::classify::ChunkClassifier;
use crate::error::Result;
use crate::kernel::sieve::Sieve;
use crate::pipeline::Map;
use crate::similar::Candidates;

/// One worker.
pub struct IdentifyWorker {
    /// The rule.
    pub classifier: ChunkClassifier,
    /// Finds anchors where the cutter gives none; `None` where the strategy wants none.
    pub sieve: Option<Sieve>,
    /// Earlier chunks, as far as SubDedup has come.
    pub candidates: Candidates,
}

impl Map for IdentifyWorker {
    type In = ChunkBatch;
    type Out = ChunkBatch;

    fn name(&self) -> &'static str {
        "identify"
    }

    fn map(&mut self, mut batch: ChunkBatch) -> Result<ChunkBatch> {
        for item in &mut batch.items {
            if let ChunkItem::Chunk(chunk) = item
                && chunk.is_new
                && chunk.block.is_none_or(|block| block.is_opaque)
            {
                match &self.sieve {
                    None => chunk.anchors = None,
                    Some(sieve) if chunk.anchors.is_none() => chunk.anchors = Some(sieve.anchors(&chunk.bytes)),
                    Some(_) => {}
                }
                if !chunk.anchors.as_deref().is_some_and(|anchors| self.candidates.are_likely(anchors)) {
                    chunk.class = Some(self.classifier.classify(&chunk.bytes));
                }
            }
        }
        Ok(batch)
    }
}
