//! Fetch: reads the stored bytes of the frames that a job loads.

use std::sync::Arc;

use bytes::Bytes;

use super::message::RestoreJob;
use crate::error::Result;
use crate::pipeline::Map;
use crate::repo::container::blob_name;
use crate::store::Store;

/// One worker of the stage.
pub struct FetchWorker {
    /// Store that holds the containers.
    pub store: Arc<dyn Store>,
}

impl Map for FetchWorker {
    type In = RestoreJob;
    type Out = RestoreJob;

    fn name(&self) -> &'static str {
        "fetch"
    }

    fn map(&mut self, mut job: RestoreJob) -> Result<RestoreJob> {
        for load in &mut job.loads {
            let name = blob_name(&load.container);
            load.bytes = match self.store.get_range(&name, load.info.offset, load.info.stored_bytes()) {
                Ok(bytes) => Ok(Bytes::from(bytes)),
                Err(error) if error.is_unreadable() => Err(Arc::new(error)),
                Err(error) => return Err(error),
            };
        }
        Ok(job)
    }
}
