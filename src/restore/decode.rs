//! Decode: checks and decodes the frames that Fetch read. A damaged one is read again from another copy, if there is
//! one.

use std::sync::Arc;

use bytes::Bytes;

use super::message::RestoreJob;
use crate::codec::Scratch;
use crate::error::Result;
use crate::pipeline::Map;
use crate::repo::container::{blob_name, read_frame};
use crate::store::Store;

/// One worker of the stage.
pub struct DecodeWorker {
    /// Store that holds the containers.
    pub store: Arc<dyn Store>,
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
            let name = blob_name(&load.container);
            let decoded = read_frame(self.store.as_ref(), &name, &load.info, Ok(stored), &mut self.scratch);
            load.bytes = match decoded {
                Ok(bytes) => Ok(Bytes::from(bytes)),
                Err(error) if error.is_unreadable() => Err(Arc::new(error)),
                Err(error) => return Err(error),
            };
        }
        Ok(job)
    }
}
