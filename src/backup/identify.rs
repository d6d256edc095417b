//! Identify: classifies new chunks as float, incompressible or ordinary by the entropy of their byte groups.
//!
//! It also computes the anchors of new chunks that the chunker did not give. A chunk that shares features with stored
//! chunks is left unclassified: SubDedup will copy most of it and seldom needs the class. If SubDedup does need the
//! class it computes the same one, because the class depends on the chunk's bytes only.

use crate::backup::message::{ChunkBatch, ChunkItem};
use crate::chunk::classify::ChunkClassifier;
use crate::error::Result;
use crate::kernel::sieve::Sieve;
use crate::pipeline::Map;
use crate::similar::Candidates;

/// A worker of Identify.
pub struct IdentifyWorker {
    /// Classifies chunks.
    pub classifier: ChunkClassifier,
    /// Finds anchors that the chunker did not give; `None` if the strategy needs no anchors.
    pub sieve: Option<Sieve>,
    /// Features of the chunks that SubDedup has processed so far.
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
