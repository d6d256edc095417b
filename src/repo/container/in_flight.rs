//! Frames in flight: emitted by SubDedup, but their container is not stored yet.
//!
//! 1. SubDedup numbers frames in the order in which it emits them.
//! 2. SubDedup may need a frame that its own cache has evicted. While the container is open, the frame comes from
//!    memory. Afterwards it comes from the stored container.
//! 3. A reader waits for a frame that is still being compressed. Everything that finishes the frame was emitted before,
//!    so the wait ends without further input, and the result does not depend on timing.

use std::collections::{HashMap, HashSet};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::frame::{FrameInfo, StoredFrame};
use super::numbers::{SessionEntryNumber, SessionFrameNumber};
use crate::error::{Error, Neighbour, Result};
use crate::types::ContainerId;

/// Location of a session frame.
#[derive(Debug, Clone)]
pub enum FrameLocation {
    /// In memory, encoded.
    Memory(StoredFrame),
    /// Frame `frame` of a stored container.
    Stored {
        /// The container.
        container: ContainerId,
        /// Position in the container index.
        frame: u32,
    },
}

/// A frame that another stage will read.
#[derive(Debug, Clone, Copy)]
pub enum FrameReference {
    /// Frame of the running session.
    Session(SessionFrameNumber),
    /// Frame of a stored container.
    Stored(ContainerId, FrameInfo),
}

/// The frame and entry numbers of the session that one of its stored containers covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContainerRange {
    /// The first frame.
    pub first_frame: SessionFrameNumber,
    /// Number of frames.
    pub frames: u32,
    /// The first entry.
    pub first_entry: SessionEntryNumber,
    /// Number of entries.
    pub entries: u32,
    /// The container.
    pub container: ContainerId,
}

#[derive(Default)]
struct FramesState {
    open: HashMap<SessionFrameNumber, StoredFrame>,
    stored: Vec<ContainerRange>,
    /// Positions in `stored`.
    positions: HashMap<ContainerId, usize>,
    /// Frames that were planned as deltas and are none.
    whole: HashSet<SessionFrameNumber>,
    closed: bool,
}

/// Shared by Save, which publishes frames, and the stages that read them.
#[derive(Default)]
pub struct FramesInFlight {
    state: Mutex<FramesState>,
    changed: Condvar,
}

impl FramesInFlight {
    fn lock(&self) -> MutexGuard<'_, FramesState> {
        self.state.lock()
    }

    /// Called by Save: the frame is encoded and in the open container.
    pub fn publish(&self, number: SessionFrameNumber, frame: StoredFrame) {
        self.lock().open.insert(number, frame);
        self.changed.notify_all();
    }

    /// Called before a frame is published that was planned as a delta and holds the block itself. Its entry is another
    /// one than those expect that were planned upon it.
    pub fn make_whole(&self, number: SessionFrameNumber) {
        self.lock().whole.insert(number);
    }

    /// Whether a published frame was planned as a delta and holds the block itself.
    pub fn is_made_whole(&self, number: SessionFrameNumber) -> bool {
        self.lock().whole.contains(&number)
    }

    /// Called by Save: a container is stored. Its frames leave memory.
    pub fn seal(&self, container_range: ContainerRange) {
        let mut state = self.lock();
        let position = state.stored.len();
        state.positions.insert(container_range.container, position);
        state.stored.push(container_range);
        for position in 0..u64::from(container_range.frames) {
            state.open.remove(&container_range.first_frame.plus(position));
        }
        drop(state);
        self.changed.notify_all();
    }

    /// The stored containers so far, in the order of their entries.
    pub fn stored(&self) -> Vec<ContainerRange> {
        self.lock().stored.clone()
    }

    /// The session's number of an entry of one of its stored containers.
    pub fn number_of(&self, container: &ContainerId, position: u32) -> Option<SessionEntryNumber> {
        let state = self.lock();
        let range = state.stored.get(*state.positions.get(container)?)?;
        (position < range.entries).then(|| range.first_entry.plus(u64::from(position)))
    }

    /// Called by Save when it ends or fails: nothing more is published.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    fn wait<T>(&self, find: impl Fn(&FramesState) -> Option<T>) -> Result<T> {
        let mut state = self.lock();
        loop {
            if let Some(found) = find(&state) {
                return Ok(found);
            }
            if state.closed {
                return Err(Error::LinkClosed { stage: "subdedup".into(), neighbour: Neighbour::Downstream });
            }
            self.changed.wait(&mut state);
        }
    }

    /// The location of a frame. Waits until the frame is published.
    ///
    /// # Errors
    /// [`Error::LinkClosed`] if Save ended before.
    pub fn frame(&self, number: SessionFrameNumber) -> Result<FrameLocation> {
        self.wait(|state| {
            if let Some(frame) = state.open.get(&number) {
                return Some(FrameLocation::Memory(frame.clone()));
            }
            let after = state.stored.partition_point(|range| range.first_frame <= number);
            let range = state.stored.get(after.checked_sub(1)?)?;
            let frame = u32::try_from(number.0 - range.first_frame.0).ok().filter(|frame| *frame < range.frames)?;
            Some(FrameLocation::Stored { container: range.container, frame })
        })
    }

    /// The stored container of an entry, and the entry's position in it. Waits until the container is stored. The
    /// caller must only ask for entries whose container fills up without further input.
    ///
    /// # Errors
    /// [`Error::LinkClosed`] if Save ended before.
    pub fn entry(&self, number: SessionEntryNumber) -> Result<(ContainerId, u32)> {
        self.wait(|state| {
            let after = state.stored.partition_point(|range| range.first_entry <= number);
            let range = state.stored.get(after.checked_sub(1)?)?;
            let entry = u32::try_from(number.0 - range.first_entry.0).ok().filter(|entry| *entry < range.entries)?;
            Some((range.container, entry))
        })
    }
}
