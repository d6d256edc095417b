//! Hash: computes the fingerprint of each chunk, its keyed BLAKE3.

use crate::backup::message::{ChunkBatch, ChunkItem};
use crate::error::Result;
use crate::pipeline::Map;
use crate::types::RepositoryKey;

/// A worker of Hash.
pub struct HashWorker {
    /// Key of the fingerprints.
    pub key: RepositoryKey,
}

impl Map for HashWorker {
    type In = ChunkBatch;
    type Out = ChunkBatch;

    fn name(&self) -> &'static str {
        "hash"
    }

    fn map(&mut self, mut batch: ChunkBatch) -> Result<ChunkBatch> {
        for item in &mut batch.items {
            if let ChunkItem::Chunk(chunk) = item
                && !chunk.bytes.is_empty()
            {
                chunk.fingerprint = self.key.fingerprint(&chunk.bytes);
            }
        }
        Ok(batch)
    }
}
