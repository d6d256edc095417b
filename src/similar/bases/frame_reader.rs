//! Reads frames of bases, from the running session and from stored containers, within a budget.
//!
//! One read of a container fetches the wanted frame and the following ones, up to [`READAHEAD_BYTES`]: the bases of the
//! next chunks are likely to be there. Frames that are read ahead wait in a cache, still encoded.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};

use crate::codec::Scratch;
use crate::error::{Error, Result};
use crate::memory::ByteLru;
use crate::repo::container::{
    FrameAddress, FrameInfo, FrameLocation, FrameNumber, FramesInFlight, blob_name, read_frame,
};
use crate::repo::index::Resolver;
use crate::similar::read_budget::ReadBudget;
use crate::store::{BlobName, Reading, Store, read_again};
use crate::types::ContainerId;

/// Stored bytes per read. A single longer frame is read whole.
const READAHEAD_BYTES: usize = 1 << 20;
/// Memory for frames that were read ahead, bytes.
const READAHEAD_CACHE_BYTES_MAX: usize = 8 << 20;

/// See the module.
pub struct FrameReader {
    store: Arc<dyn Store>,
    in_flight: Arc<FramesInFlight>,
    readahead: Arc<Mutex<Readahead>>,
    budget: ReadBudget,
    scratch: Scratch,
}

/// Frames that were read ahead.
type Readahead = ByteLru<FrameNumber, EncodedFrame>;

/// A frame as it is stored in a container.
#[derive(Clone)]
struct EncodedFrame {
    /// Store name of the container.
    container_name: BlobName,
    info: FrameInfo,
    stored: Bytes,
}

impl FrameReader {
    /// Allows `reads_per_mib` reads per MiB of new bytes.
    pub fn new(store: Arc<dyn Store>, in_flight: Arc<FramesInFlight>, reads_per_mib: u32) -> Self {
        FrameReader {
            store,
            in_flight,
            readahead: Arc::new(Mutex::new(ByteLru::new(READAHEAD_CACHE_BYTES_MAX))),
            budget: ReadBudget::new(reads_per_mib),
            scratch: Scratch::default(),
        }
    }

    /// A reader without a budget for another thread. Both take what the other has read ahead.
    #[must_use]
    pub fn sharing(&self) -> Self {
        FrameReader {
            store: self.store.clone(),
            in_flight: self.in_flight.clone(),
            readahead: self.readahead.clone(),
            budget: ReadBudget::unlimited(),
            scratch: Scratch::default(),
        }
    }

    fn readahead(&self) -> MutexGuard<'_, Readahead> {
        self.readahead.lock()
    }

    /// Allows more reads after `bytes` new bytes.
    pub fn grant(&mut self, bytes: u64) {
        self.budget.grant(bytes);
    }

    /// Sets the budget and returns the old one.
    pub fn replace_budget(&mut self, budget: ReadBudget) -> ReadBudget {
        std::mem::replace(&mut self.budget, budget)
    }

    /// A frame's raw bytes; `None` if the budget is exhausted.
    ///
    /// # Errors
    /// Errors of reading and decoding, and [`Error::Internal`] for an open frame.
    pub fn read(&mut self, number: FrameNumber, resolver: &mut Resolver) -> Result<Option<Bytes>> {
        let found = self.readahead().get(&number);
        if let Some(frame) = found {
            return self.decode(&frame).map(Some);
        }
        if !self.budget.take() {
            return Ok(None);
        }
        let location = match number.address() {
            FrameAddress::Session(number) => self.in_flight.frame(number)?,
            FrameAddress::Stored { position, .. } => {
                let (container, _) = resolver.frame_info(number)?;
                FrameLocation::Stored { container, frame: position }
            }
            FrameAddress::Open(_) => return Err(Error::internal("an open frame was to be read")),
        };
        match location {
            FrameLocation::Memory(frame) => Ok(Some(Bytes::from(frame.decode(&mut self.scratch)?))),
            FrameLocation::Stored { container, frame } => {
                self.read_with_following(number, &container, frame, resolver).map(Some)
            }
        }
    }

    /// Reads frame `frame` of a container, whose number is `number`, and the frames after it.
    fn read_with_following(
        &mut self,
        number: FrameNumber,
        container: &ContainerId,
        frame: u32,
        resolver: &mut Resolver,
    ) -> Result<Bytes> {
        let container_index = resolver.locator.container_indexes().load(container)?;
        let container_name = blob_name(container);
        let frames = container_index.frames.get(frame as usize..).unwrap_or_default();
        let Some(first) = frames.first() else {
            return Err(Error::corrupt(container_name, 0, "a frame of the container index", frame.to_string()));
        };
        let (mut len, mut count) = (first.stored_bytes(), 1);
        for next in frames.iter().skip(1) {
            // The frames of an intact container index are adjacent.
            if next.offset != first.offset + len as u64 || len + next.stored_bytes() > READAHEAD_BYTES {
                break;
            }
            (len, count) = (len + next.stored_bytes(), count + 1);
        }
        let stored = match self.store.get_range(&container_name, first.offset, len, Reading::Once) {
            // The wanted frame may be readable even if a following one is not.
            Err(error) if error.is_unreadable() => {
                count = 1;
                read_again(self.store.as_ref(), &container_name, || {
                    self.store.get_range(&container_name, first.offset, first.stored_bytes(), Reading::Once)
                })
            }
            read => read,
        };
        let stored = Bytes::from(stored?);
        let encoded = |info: &FrameInfo| {
            let from = (info.offset - first.offset) as usize;
            let stored = stored.slice(from..from + info.stored_bytes());
            EncodedFrame { container_name: container_name.clone(), info: *info, stored }
        };
        for (info, count) in frames.iter().zip(0u32..).take(count).skip(1) {
            let Some(number) = following_frame(number, count) else { break };
            self.readahead().put(number, encoded(info), info.stored_bytes());
        }
        self.decode(&encoded(first))
    }

    fn decode(&mut self, frame: &EncodedFrame) -> Result<Bytes> {
        let EncodedFrame { container_name, info, stored } = frame;
        read_frame(self.store.as_ref(), container_name, info, Ok(stored), &mut self.scratch).map(Bytes::from)
    }
}

/// The number of the frame `count` frames after `number` in the same container; `None` for an open frame.
fn following_frame(number: FrameNumber, count: u32) -> Option<FrameNumber> {
    match number.address() {
        FrameAddress::Stored { container, position } => Some(FrameNumber::stored(container, position + count)),
        FrameAddress::Session(number) => Some(FrameNumber::session(number.plus(u64::from(count)))),
        FrameAddress::Open(_) => None,
    }
}
