//! FineDedup: looks the sub-blocks of each new chunk up among those of all chunks, in stream order (FHRD, figure 16).
//!
//! Like Choose, it numbers the session entries as SubDedup will. A chunk that may be stored as a delta is no base:
//! nothing is copied from a delta.

use std::sync::Arc;

use crate::backup::message::{Chunk, ChunkBatch, ChunkItem, CopySearch};
use crate::chunk::classify::ChunkClass;
use crate::error::Result;
use crate::pipeline::{Emit, Stage};
use crate::similar::{BaseChunk, SubBlockChooser};

/// The stage.
pub struct FineDedupStage {
    /// Looks up.
    pub chooser: SubBlockChooser,
    /// Plain blocks, and float chunks of a file with a previous version, may become deltas.
    pub makes_deltas: bool,
    /// The current file has a previous version.
    pub has_previous_version: bool,
}

impl FineDedupStage {
    fn look_up(&mut self, chunk: &mut Chunk) -> Result<()> {
        let CopySearch::SubBlocks(blocks) = std::mem::take(&mut chunk.search) else {
            self.chooser.skip(chunk.len);
            return Ok(());
        };
        let is_float = matches!(chunk.class, Some(ChunkClass::Float(_)));
        let is_block = chunk.block.is_some_and(|block| !block.is_opaque);
        let may_be_delta = self.makes_deltas && (is_block || (is_float && self.has_previous_version));
        let base = Arc::new(BaseChunk::new(chunk.bytes.clone(), None));
        let (found, features) = self.chooser.choose(blocks, &base, !may_be_delta)?;
        chunk.search = CopySearch::Alike { features, found };
        Ok(())
    }
}

impl Stage for FineDedupStage {
    type In = ChunkBatch;
    type Out = ChunkBatch;

    fn name(&self) -> &'static str {
        "fine-dedup"
    }

    fn process(&mut self, mut batch: ChunkBatch, emit: &mut Emit<ChunkBatch>) -> Result<()> {
        for item in &mut batch.items {
            match item {
                ChunkItem::Tree(_) => self.has_previous_version = false,
                ChunkItem::PreviousVersion(_) => self.has_previous_version = true,
                ChunkItem::Chunk(chunk) if chunk.is_new => self.look_up(chunk)?,
                ChunkItem::Chunk(_) | ChunkItem::Model(_) | ChunkItem::Hole(_) => {}
            }
        }
        emit.emit(batch)
    }
}
