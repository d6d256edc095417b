//! Frames of the running session, from the moment they leave SubDedup until their container is sealed and stored.
//!
//! SubDedup numbers frames in the order it emits them. When it wants the bytes of a frame that its own cache has
//! dropped, the shelf gives them: from memory while the frame's container is open, as a place in a stored container
//! afterwards. A frame that is still being compressed is waited for; everything needed to finish it has been emitted
//! already, so the wait ends without further input, and what the caller sees does not depend on timing.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::frame::{FrameInfo, StoredFrame};
use super::numbers::{SessionEntryNumber, SessionFrameNumber};
use crate::error::{Error, Neighbour, Result};
use crate::types::ContainerId;

/// Where a session frame is.
#[derive(Debug, Clone)]
pub enum FrameLocation {
    /// In memory, encoded.
    Memory(StoredFrame),
    /// Frame `frame` of a stored container.
    Stored {
        /// The container.
        container: ContainerId,
        /// Frame number in it.
        frame: u32,
    },
}

/// Where a frame is that another stage is to read.
#[derive(Debug, Clone, Copy)]
pub enum FrameSource {
    /// Frame of the running session.
    Session(SessionFrameNumber),
    /// Frame of a stored container.
    Stored(ContainerId, FrameInfo),
}

/// A stored container of this session: its share of the frame and entry numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContainerRange {
    /// Number of its first frame.
    pub first_frame: SessionFrameNumber,
    /// Frames in it.
    pub frames: u32,
    /// Number of its first entry.
    pub first_entry: SessionEntryNumber,
    /// Entries in it.
    pub entries: u32,
    /// The container.
    pub container: ContainerId,
}

#[derive(Default)]
struct State {
    open: HashMap<SessionFrameNumber, StoredFrame>,
    stored: Vec<ContainerRange>,
    closed: bool,
}

/// Shared between SubDedup, which asks, and Save, which tells.
#[derive(Default)]
pub struct FramesInFlight {
    state: Mutex<State>,
    changed: Condvar,
}

impl FramesInFlight {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Save: the frame is encoded and in the open container.
    pub fn publish(&self, number: SessionFrameNumber, frame: StoredFrame) {
        self.lock().open.insert(number, frame);
        self.changed.notify_all();
    }

    /// Save: a container is stored; its frames leave memory.
    pub fn seal(&self, container_range: ContainerRange) {
        let mut state = self.lock();
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

    /// Save: nothing more will come (it ended or failed).
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    fn wait<T>(&self, find: impl Fn(&State) -> Option<T>) -> Result<T> {
        let mut state = self.lock();
        loop {
            if let Some(found) = find(&state) {
                return Ok(found);
            }
            if state.closed {
                return Err(Error::LinkClosed { stage: "subdedup".into(), neighbour: Neighbour::Downstream });
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// SubDedup: where is frame `number`?
    pub fn frame(&self, number: SessionFrameNumber) -> Result<FrameLocation> {
        self.wait(|state| {
            if let Some(frame) = state.open.get(&number) {
                return Some(FrameLocation::Memory(frame.clone()));
            }
            let container_range =
                state.stored.get(state.stored.partition_point(|s| s.first_frame <= number).checked_sub(1)?)?;
            let frame = u32::try_from(number.0 - container_range.first_frame.0)
                .ok()
                .filter(|frame| *frame < container_range.frames)?;
            Some(FrameLocation::Stored { container: container_range.container, frame })
        })
    }

    /// SubDedup: which stored container holds entry `number`, and as which? Waits until it is stored; the caller
    /// asks only for entries so far back that their container fills up without further input.
    pub fn entry(&self, number: SessionEntryNumber) -> Result<(ContainerId, u32)> {
        self.wait(|state| {
            let container_range =
                state.stored.get(state.stored.partition_point(|s| s.first_entry <= number).checked_sub(1)?)?;
            let entry = u32::try_from(number.0 - container_range.first_entry.0)
                .ok()
                .filter(|entry| *entry < container_range.entries)?;
            Some((container_range.container, entry))
        })
    }
}
