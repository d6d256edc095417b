//! Identify: tells float chunks and incompressible chunks from ordinary ones by the entropy of their byte groups, and
//! finds the anchors of new chunks that the cutter did not give.

use crate::error::Result;
use crate::identify::Identifier;
use crate::kernel::sieve::Sieve;
use crate::message::{ChunkBatch, ChunkItem};
use crate::pipeline::Map;

/// One worker.
pub struct IdentifyWorker {
    /// The rule.
    pub identifier: Identifier,
    /// Finds anchors where the cutter gives none; `None` where the strategy wants none.
    pub sieve: Option<Sieve>,
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
                chunk.class = self.identifier.identify(&chunk.bytes);
                match &self.sieve {
                    None => chunk.anchors = None,
                    Some(sieve) if chunk.anchors.is_none() => chunk.anchors = Some(sieve.anchors(&chunk.bytes)),
                    Some(_) => {}
                }
            }
        }
        Ok(batch)
    }
}
