//! Estimate: the last stage of a dry run, after Dedup. Counts what a backup would store, and stores nothing.

use std::sync::Arc;

use parking_lot::Mutex;

use super::equal::SavedDirectory;
use super::message::{ChunkBatch, ChunkItem, Outcome, TreeItem};
use super::saved::Saved;
use crate::error::Result;
use crate::metrics::Progress;
use crate::pipeline::Sink;
use crate::repo::index::ChunkIndex;
use crate::repo::tree::{EntryTally, Node, NodeKind};

/// New chunks that are remembered, at most. A chunk that comes again after so many others counts as new again.
const CLAIMS_MAX: usize = 1 << 22;

/// The stage.
pub struct EstimateStage<'a> {
    saved: Saved,
    /// The entries before each directory from the root to the current one.
    tallies: Vec<EntryTally>,
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
        EstimateStage { saved: Saved::default(), tallies: Vec::new(), index, file: None, progress }
    }

    fn entry(&mut self, node: &Node) {
        match node.kind {
            NodeKind::File => self.file_of(node.size),
            _ => {
                self.saved.tally.add(EntryTally { others: 1, ..EntryTally::default() });
                self.progress.files_done.add(1);
            }
        }
    }

    fn file_of(&mut self, len: u64) {
        self.saved.tally.add(EntryTally { files: 1, bytes: len, ..EntryTally::default() });
        self.progress.files_done.add(1);
    }

    fn directory(&mut self) {
        self.saved.tally.add(EntryTally { directories: 1, ..EntryTally::default() });
    }

    fn tree(&mut self, item: TreeItem) -> Result<()> {
        match item {
            TreeItem::Enter(_) => {
                self.directory();
                self.tallies.push(self.saved.tally);
            }
            TreeItem::Leave(sent) => {
                let tally = self.saved.tally.since(self.tallies.pop().unwrap_or_default());
                if let Some(sent) = sent {
                    sent.save(SavedDirectory { tally, ..SavedDirectory::default() });
                }
            }
            TreeItem::Equal(_, sent) => {
                let tally = sent.saved()?.tally;
                self.directory();
                self.saved.tally.add(tally);
                self.progress.files_done.add(tally.files.saturating_add(tally.others));
            }
            TreeItem::Omitted | TreeItem::Corrections | TreeItem::Former(_) => {}
            TreeItem::Rebuilt { len, .. } => {
                self.file.iter_mut().for_each(|file| file.len = len);
            }
            TreeItem::Entry(node) | TreeItem::Linked(node, _) => self.entry(&node),
            TreeItem::Begin(_) => self.file = Some(OpenEstimate { len: 0, is_hoisted: false }),
            TreeItem::Hoisted(_) => self.file = Some(OpenEstimate { len: 0, is_hoisted: true }),
            TreeItem::End { outcome, .. } => {
                if let Some(file) = self.file.take().filter(|file| !file.is_hoisted && outcome != Outcome::Failed) {
                    self.file_of(file.len);
                }
            }
        }
        Ok(())
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
                ChunkItem::Tree(item) => self.tree(item)?,
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
        self.index.lock().bound_claims(CLAIMS_MAX);
        Ok(())
    }

    fn finish(self) -> Result<Saved> {
        Ok(self.saved)
    }
}
