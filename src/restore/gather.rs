//! Gather: holds the decoded frames and gives each job the frames that its chunks need.
//!
//! Order decides which frames are loaded and evicted ([`RestoreJob::loads`], [`RestoreJob::evicted`]). This stage
//! follows.

use super::message::{LoadedFrames, RestoreJob};
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
        let mut needed = LoadedFrames::new();
        for number in job.writes.iter().flat_map(|write| write.extent_map.frames()) {
            // Write reports a frame that is missing here.
            if let Some(frame) = self.frames.get(number) {
                needed.entry(*number).or_insert_with(|| frame.clone());
            }
        }
        job.frames = needed;
        for frame in job.evicted.drain(..) {
            self.frames.remove(&frame);
        }
        emit.emit(job)
    }
}
