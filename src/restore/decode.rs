//! Decode: checks and decodes the frames that Fetch read.

use std::sync::Arc;

use bytes::Bytes;

use super::message::RestoreJob;
use crate::codec::Scratch;
use crate::error::Result;
use crate::pipeline::Map;
use crate::repo::container::{blob_name, decode_frame};

/// One worker of the stage.
#[derive(Default)]
pub struct DecodeWorker {
    /// Codec contexts and buffers, reused between frames.
    pub scratch: Scratch,
}

impl Map for DecodeWorker {
    type In = RestoreJob;
    type Out = RestoreJob;

    fn name(&self) -> &'static str {
        "decode"
    }

    fn map(&mut self, mut job: RestoreJob) -> Result<RestoreJob> {
        for load in &mut job.loads {
            let Ok(stored) = &load.bytes else { continue };
            let decoded = decode_frame(&blob_name(&load.container), &load.info, stored, &mut self.scratch);
            load.bytes = match decoded {
                Ok(bytes) => Ok(Bytes::from(bytes)),
                Err(error) if error.is_unreadable() => Err(Arc::new(error)),
                Err(error) => return Err(error),
            };
        }
        Ok(job)
    }
}
