//! Locate: creates the files of new directories and finds the frames of each chunk.
//!
//! A chunk that cannot be located is a lost range of its file. The workers share container indexes and extent maps, so
//! that what several chunks need is read and resolved once.

use std::sync::Arc;

use super::message::{PlannedBatch, PlannedItem, RestoreCounts, WriteChunk};
use super::restore_file::RestoreFile;
use crate::error::{Error, Result};
use crate::pipeline::Map;
use crate::repo::read::ChunkReader;
use crate::types::Fingerprint;

/// One worker of the stage.
pub struct LocateWorker {
    /// Finds chunks.
    pub reader: ChunkReader,
    /// Counters of the restore.
    pub counts: Arc<RestoreCounts>,
}

impl LocateWorker {
    /// Does what the stage does of an item. `None`: nothing is left of it.
    fn item(&mut self, item: PlannedItem) -> Result<Option<PlannedItem>> {
        match item {
            PlannedItem::Create(file) => {
                self.create(&file);
                Ok(None)
            }
            PlannedItem::Find { file, offset, fingerprint, len } => match self.find(&file, offset, fingerprint, len) {
                Ok(write) => Ok(Some(PlannedItem::Write(write))),
                Err(error) if error.is_unreadable() => {
                    file.lose(offset, len, error);
                    Ok(None)
                }
                Err(error) => Err(error),
            },
            other => Ok(Some(other)),
        }
    }

    /// Creates a file. If that fails, Order drops what is planned for it.
    fn create(&self, file: &RestoreFile) {
        let mut problems = Vec::new();
        let created = file.create(&mut problems);
        problems.extend(created.err());
        problems.iter().for_each(|error| self.counts.problem(error));
    }

    /// Locates a chunk of a file.
    fn find(&mut self, file: &Arc<RestoreFile>, offset: u64, fingerprint: Fingerprint, len: u64) -> Result<WriteChunk> {
        let extent_map = self.reader.extent_map_of(&fingerprint)?;
        if u64::from(extent_map.len()) != len {
            let expected = format!("chunk {fingerprint} of {len} bytes");
            return Err(Error::corrupt("recipe", offset, expected, extent_map.len().to_string()));
        }
        Ok(WriteChunk { file: file.clone(), offset, fingerprint, extent_map })
    }
}

impl Map for LocateWorker {
    type In = PlannedBatch;
    type Out = PlannedBatch;

    fn name(&self) -> &'static str {
        "locate"
    }

    fn map(&mut self, batch: PlannedBatch) -> Result<PlannedBatch> {
        let items = batch.items.into_iter().filter_map(|item| self.item(item).transpose());
        Ok(PlannedBatch { items: items.collect::<Result<_>>()?, ..batch })
    }
}
