//! Gather: holds the decoded frames as Plan foresaw and hands each job those it needs.

use std::collections::HashMap;

use super::message::RestoreJob;
use super::plan::LoadedFrames;
use crate::error::Result;
use crate::pipeline::{Emit, Stage};

/// The stage.
#[derive(Default)]
pub struct GatherStage {
    frames: LoadedFrames,
}

impl Stage for GatherStage {
    type In = RestoreJob;
    type Out = RestoreJob;

    fn name(&self) -> &'static str {
        "gather"
    }

    fn process(&mut self, mut job: RestoreJob, emit: &mut Emit<RestoreJob>) -> Result<()> {
        for load in job.loads.drain(..) {
            self.frames.insert(load.frame, load.bytes);
        }
        let mut needed = HashMap::new();
        for number in job.writes.iter().flat_map(|write| write.extent_map.frames()) {
            if let Some(frame) = self.frames.get(number) {
                needed.entry(*number).or_insert_with(|| frame.clone());
            }
        }
        job.frames = needed;
        for frame in job.dropped.drain(..) {
            self.frames.remove(&frame);
        }
        emit.emit(job)
    }
}
