//! Fetch: reads the stored bytes of the frames that a job loads.
//!
//! Frames of one container that are close to each other are read together. If that fails, each is read alone, so that
//! damage costs only the frames that have it, and none if there is another copy.

use std::sync::Arc;

use bytes::Bytes;

use super::message::{FrameLoad, RestoreJob};
use crate::error::Result;
use crate::pipeline::Map;
use crate::repo::container::blob_name;
use crate::store::{Reading, Store, StoreExt, read_again};

/// Bytes that nobody needs between two frames, at most, for reading them together from a remote store. A request costs
/// about as much as that many bytes.
const GAP_BYTES_MAX: u64 = 128 << 10;
/// Bytes of one read, at most.
const READ_BYTES_MAX: u64 = 32 << 20;

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
        let gap_max = if self.store.requests_max() > 1 { GAP_BYTES_MAX } else { 0 };
        let mut loads: Vec<&mut FrameLoad> = job.loads.iter_mut().collect();
        loads.sort_by_key(|load| (load.container, load.info.offset));
        let is_near = |one: &&mut FrameLoad, next: &&mut FrameLoad| {
            one.container == next.container && next.info.offset <= end(one).saturating_add(gap_max)
        };
        for near in loads.chunk_by_mut(is_near) {
            self.read(near)?;
        }
        Ok(job)
    }
}

impl FetchWorker {
    /// Reads frames of one container, in the order of their offsets.
    fn read(&self, loads: &mut [&mut FrameLoad]) -> Result<()> {
        let Some(first) = loads.first() else { return Ok(()) };
        let (name, start) = (blob_name(&first.container), first.info.offset);
        let len = loads.iter().map(|load| end(load)).max().unwrap_or(start) - start;
        if len > READ_BYTES_MAX && loads.len() > 1 {
            let (left, right) = loads.split_at_mut(loads.len() / 2);
            self.read(left)?;
            return self.read(right);
        }
        let store = self.store.as_ref();
        let read = || store.get_range(&name, start, len as usize, Reading::Once);
        let bytes = if loads.len() == 1 { read_again(store, &name, read) } else { read() };
        match bytes {
            Ok(bytes) => {
                let bytes = Bytes::from(bytes);
                for load in loads {
                    let at = (load.info.offset - start) as usize;
                    load.bytes = Ok(bytes.slice(at..at + load.info.stored_bytes()));
                }
            }
            Err(error) if error.is_unreadable() => match loads {
                [alone] => alone.bytes = Err(Arc::new(error)),
                several => several.chunks_mut(1).try_for_each(|alone| self.read(alone))?,
            },
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// The offset behind a frame.
fn end(load: &FrameLoad) -> u64 {
    load.info.offset + load.info.stored_bytes() as u64
}
