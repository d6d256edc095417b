//! Estimate: the last stage of a dry run, after Dedup. Counts what a backup would store, and stores nothing.

use std::sync::{Arc, Mutex, PoisonError};

use super::message::{ChunkBatch, ChunkItem, Outcome, TreeItem};
use super::save::Saved;
use crate::error::Result;
use crate::metrics::Progress;
use crate::pipeline::Sink;
use crate::repo::index::ChunkIndex;
use crate::repo::tree::{Node, NodeKind};

/// New chunks that are remembered, at most. A chunk that comes again after so many others counts as new again.
const CLAIMS_MAX: usize = 1 << 22;

/// The stage.
pub struct EstimateStage<'a> {
    saved: Saved,
    index: Arc<Mutex<ChunkIndex>>,
    file: Option<OpenEstimate>,
    progress: &'a Progress,
}

/// A file whose chunks are still arriving.
struct OpenEstimate {
    len: u64,
    is_hoisted: bool,
}

impl<'a> EstimateStage<'a> {
    /// Counts from nothing. Dedup claims new chunks in `index`.
    pub fn new(index: Arc<Mutex<ChunkIndex>>, progress: &'a Progress) -> Self {
        EstimateStage { saved: Saved::default(), index, file: None, progress }
    }

    fn entry(&mut self, node: &Node) {
        match node.kind {
            NodeKind::File => self.file_of(node.size),
            _ => {
                self.saved.others += 1;
                self.progress.files_done.add(1);
            }
        }
    }

    fn file_of(&mut self, len: u64) {
        self.saved.files += 1;
        self.saved.bytes += len;
        self.progress.files_done.add(1);
    }

    fn tree(&mut self, item: TreeItem) {
        match item {
            TreeItem::Enter(_) => self.saved.directories += 1,
            TreeItem::Leave | TreeItem::Omitted => {}
            TreeItem::Entry(node) | TreeItem::Linked(node, _) => self.entry(&node),
            TreeItem::Begin(_) => self.file = Some(OpenEstimate { len: 0, is_hoisted: false }),
            TreeItem::Hoisted(_) => self.file = Some(OpenEstimate { len: 0, is_hoisted: true }),
            TreeItem::End { outcome, .. } => {
                if let Some(file) = self.file.take().filter(|file| !file.is_hoisted && outcome != Outcome::Failed) {
                    self.file_of(file.len);
                }
            }
        }
    }

    fn content(&mut self, len: u64) {
        if let Some(file) = &mut self.file {
            file.len += len;
        }
    }
}

impl Sink for EstimateStage<'_> {
    type In = ChunkBatch;
    type Output = Saved;

    fn name(&self) -> &'static str {
        "estimate"
    }

    fn process(&mut self, batch: ChunkBatch) -> Result<()> {
        for item in batch.items {
            match item {
                ChunkItem::Tree(item) => self.tree(item),
                ChunkItem::Hole(len) => self.content(len),
                ChunkItem::Chunk(chunk) => {
                    self.saved.chunks += 1;
                    if chunk.is_new {
                        self.saved.chunks_new += 1;
                        self.saved.bytes_new += u64::from(chunk.len);
                        self.progress.bytes_new.add(u64::from(chunk.len));
                    }
                    self.content(u64::from(chunk.len));
                }
                ChunkItem::Model(_) | ChunkItem::PreviousVersion(_) => {}
            }
        }
        self.index.lock().unwrap_or_else(PoisonError::into_inner).bound_claims(CLAIMS_MAX);
        Ok(())
    }

    fn finish(self) -> Result<Saved> {
        Ok(self.saved)
    }
}
