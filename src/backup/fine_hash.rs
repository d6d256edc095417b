//! FineHash: divides new chunks into sub-blocks and hashes them (FHRD, figure 16). Only for strategies with sub-blocks.
//!
//! Blocks of weights are not divided, nor float chunks if they are separated. It copies the bytes of a chunk out of the
//! buffer that they were read into, because they may stay in memory as a base.

use bytes::Bytes;

use crate::backup::message::{ChunkBatch, ChunkItem, CopySearch};
use crate::chunk::classify::ChunkClass;
use crate::error::Result;
use crate::pipeline::Map;
use crate::similar::SubBlockHasher;

/// A worker of FineHash.
pub struct FineHashWorker {
    /// Divides and hashes.
    pub hasher: SubBlockHasher,
    /// Float chunks are not searched for copies.
    pub separates: bool,
}

impl Map for FineHashWorker {
    type In = ChunkBatch;
    type Out = ChunkBatch;

    fn name(&self) -> &'static str {
        "fine-hash"
    }

    fn map(&mut self, mut batch: ChunkBatch) -> Result<ChunkBatch> {
        for item in &mut batch.items {
            let ChunkItem::Chunk(chunk) = item else { continue };
            // Identify gives a class to all but blocks of weights.
            let Some(class) = chunk.class.filter(|_| chunk.is_new) else { continue };
            if self.separates && matches!(class, ChunkClass::Float(_)) {
                continue;
            }
            chunk.bytes = Bytes::copy_from_slice(&chunk.bytes);
            chunk.search = CopySearch::SubBlocks(self.hasher.hash(&chunk.bytes));
        }
        Ok(batch)
    }
}
