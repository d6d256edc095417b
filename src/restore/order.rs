//! Order: decides in which order chunks are written and which frames stay in memory.
//!
//! What Locate found enters the window in the order of the snapshot, and leaves it into jobs, with the frames to load
//! for them and to evict after them. The later stages only follow.

use std::sync::Arc;

use super::message::{FinishedEntry, PlannedBatch, PlannedItem, RestoreJob, WriteChunk};
use super::rescue::Rescue;
use super::window::RestoreWindow;
use crate::error::Result;
use crate::pipeline::{Emit, Stage};
use crate::repo::index::Resolver;

/// The stage.
pub struct OrderStage<'a> {
    /// The chunks that are found and not sent yet.
    pub window: RestoreWindow,
    /// Finds frames. Shares its numbers with the workers of Locate.
    pub resolver: Resolver,
    /// Finds other entries of chunks whose frames are gone.
    pub rescue: Arc<Rescue<'a>>,
}

impl OrderStage<'_> {
    /// Adds a chunk. One whose frames cannot be found, because a prune has moved them since, is read from elsewhere and
    /// written at once, or is a lost range of its file.
    fn write(&mut self, write: WriteChunk, emit: &mut Emit<RestoreJob>) -> Result<()> {
        if !write.file.exists() {
            return Ok(());
        }
        match self.window.write(write.clone(), &mut self.resolver, emit) {
            Err(failure) if failure.is_unreadable() => write.lost_after(self.rescue.chunk(&write, failure)),
            other => other,
        }
    }
}

impl Stage for OrderStage<'_> {
    type In = PlannedBatch;
    type Out = RestoreJob;

    fn name(&self) -> &'static str {
        "order"
    }

    fn process(&mut self, batch: PlannedBatch, emit: &mut Emit<RestoreJob>) -> Result<()> {
        for item in batch.items {
            match item {
                PlannedItem::Write(write) => self.write(write, emit)?,
                PlannedItem::Extend(file, len) if file.exists() => file.extend(len)?,
                // A file that could not be created was reported.
                PlannedItem::Finished(FinishedEntry::File(file)) if !file.exists() => {}
                PlannedItem::Finished(entry) => self.window.finished(entry, emit)?,
                PlannedItem::Extend(..) | PlannedItem::Create(_) | PlannedItem::Find { .. } => {}
            }
        }
        if batch.is_urgent { self.window.flush_half(emit) } else { Ok(()) }
    }

    fn finish(&mut self, emit: &mut Emit<RestoreJob>) -> Result<()> {
        self.window.flush_all(emit)
    }
}
