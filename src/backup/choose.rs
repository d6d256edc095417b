//! Choose: picks the stored chunks that each new chunk is compared with, in stream order.
//!
//! The stage numbers the session entries as SubDedup will, because SubDedup makes one entry of each new chunk. A chunk
//! that may be stored as a delta to the previous version of its file is no base: nothing is copied from a delta. A
//! plain block of a tensor is a base; SubDedup drops what was found in it if it became a delta. Blocks and float chunks
//! with features of peaks also get counterparts, which may be deltas: SubDedup reads and compares these.

use std::sync::Arc;

use crate::backup::message::{Chunk, ChunkBatch, ChunkItem, CopySearch};
use crate::chunk::classify::{ChunkClass, ChunkClassifier};
use crate::error::Result;
use crate::pipeline::{Emit, Stage};
use crate::similar::{BaseChunk, Chooser};

/// The stage.
pub struct ChooseStage {
    /// Chooses.
    pub chooser: Chooser,
    /// Classifies chunks that Identify left out.
    pub classifier: ChunkClassifier,
    /// Float chunks are not searched for copies.
    pub separates: bool,
    /// Float chunks of a file with a previous version may become deltas.
    pub makes_deltas: bool,
    /// The current file has a previous version.
    pub has_previous_version: bool,
}

impl ChooseStage {
    fn choose(&mut self, chunk: &mut Chunk) -> Result<()> {
        if let Some(slices) = &mut chunk.slices {
            slices.counterparts = self.chooser.counterparts(&slices.features);
        }
        let CopySearch::Features(features) = std::mem::take(&mut chunk.search) else {
            self.chooser.skip(chunk.len);
            return Ok(());
        };
        let may_be_delta = self.makes_deltas && self.has_previous_version;
        let mut is_float = false;
        if self.separates || may_be_delta {
            let class = *chunk.class.get_or_insert_with(|| self.classifier.classify(&chunk.bytes));
            is_float = matches!(class, ChunkClass::Float(_));
        }
        if is_float && self.separates {
            self.chooser.skip(chunk.len);
            return Ok(());
        }
        let base = Arc::new(BaseChunk::new(chunk.bytes.clone(), chunk.anchors.take()));
        let entries = self.chooser.choose(&features, &base, !is_float)?;
        chunk.search = CopySearch::Bases { features, chunk: base, entries };
        Ok(())
    }
}

impl Stage for ChooseStage {
    type In = ChunkBatch;
    type Out = ChunkBatch;

    fn name(&self) -> &'static str {
        "choose"
    }

    fn process(&mut self, mut batch: ChunkBatch, emit: &mut Emit<ChunkBatch>) -> Result<()> {
        for item in &mut batch.items {
            match item {
                ChunkItem::Tree(_) => self.has_previous_version = false,
                ChunkItem::PreviousVersion(_) => self.has_previous_version = true,
                ChunkItem::Chunk(chunk) if chunk.is_new => self.choose(chunk)?,
                ChunkItem::Chunk(_) | ChunkItem::Model(_) | ChunkItem::Hole(_) => {}
            }
        }
        emit.emit(batch)
    }
}
