//! Dedup: asks the chunk index for each chunk and drops the bytes of chunks that are stored or being stored.
//!
//! What is stored must have the fingerprint that names it. So new bytes in memory that others may write to are copied,
//! and the copy is hashed again.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::backup::counts::ReadCounts;
use crate::backup::message::{Chunk, ChunkBatch, ChunkItem};
use crate::error::{Error, Result};
use crate::pipeline::{Emit, Stage};
use crate::repo::index::ChunkIndex;
use crate::types::RepositoryKey;

/// The stage. Save shares the index for recipes and listings. The answers depend on the stream only.
pub struct DedupStage<'a> {
    /// The four-level index.
    pub index: Arc<Mutex<ChunkIndex>>,
    /// Key of the fingerprints.
    pub key: RepositoryKey,
    /// Counters of tensors.
    pub counts: &'a ReadCounts,
    /// Tensors of the current model that have a new block.
    pub tensors_new: HashSet<usize>,
}

impl DedupStage<'_> {
    /// Copies a new chunk out of memory that others may write to.
    fn own(&self, chunk: &mut Chunk) -> Result<()> {
        if !(std::mem::take(&mut chunk.is_borrowed) && chunk.is_new) {
            return Ok(());
        }
        chunk.bytes = Bytes::copy_from_slice(&chunk.bytes);
        match self.key.fingerprint(&chunk.bytes) == chunk.fingerprint {
            true => Ok(()),
            false => Err(Error::MemoryChanged),
        }
    }
}

impl Stage for DedupStage<'_> {
    type In = ChunkBatch;
    type Out = ChunkBatch;

    fn name(&self) -> &'static str {
        "dedup"
    }

    fn process(&mut self, mut batch: ChunkBatch, emit: &mut Emit<ChunkBatch>) -> Result<()> {
        let mut index = self.index.lock();
        batch.bytes = 0;
        index.read_at = batch.read_at;
        for item in &mut batch.items {
            match item {
                ChunkItem::Model(model) => {
                    self.tensors_new.clear();
                    self.counts.tensors.fetch_add(model.record.tensors.len() as u64, Ordering::Relaxed);
                }
                // A chunk that came without bytes is stored.
                ChunkItem::Chunk(chunk) if !chunk.bytes.is_empty() => {
                    chunk.is_new = !index.contains_or_claim(&chunk.fingerprint)?;
                    self.own(chunk)?;
                    if !chunk.is_new {
                        chunk.bytes = Bytes::new();
                        chunk.anchors = None;
                        continue;
                    }
                    batch.bytes += u64::from(chunk.len);
                    if let Some(block) = chunk.block
                        && self.tensors_new.insert(block.tensor)
                    {
                        self.counts.tensors_new.fetch_add(1, Ordering::Relaxed);
                    }
                }
                _ => {}
            }
        }
        drop(index);
        emit.emit(batch)
    }
}
