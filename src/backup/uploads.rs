//! Stores the containers of a backup: in a remote store several at once, while Save goes on.
//!
//! 1. Save hands over sealed containers in the order of the stream, and waits while the store has as many as it takes.
//! 2. Workers put them. A container is durable when its put returns.
//! 3. Containers are published in the order of the stream, whatever the order in which they become durable: the chunk
//!    index adds them, so that a segment names only durable containers, and their frames leave memory. So the stored
//!    bytes do not depend on timing.
//! 4. After a failure nothing more is put or published, and those who wait for frames are woken.
//!
//! A local store takes one at a time. Then there are no workers: the caller puts it.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::error::{Error, Result};
use crate::repo::container::{
    ContainerIndex, ContainerRange, FramesInFlight, SealedContainer, SessionEntryNumber, SessionFrameNumber,
};
use crate::repo::index::ChunkIndex;
use crate::store::{Store, StoreExt};
use crate::types::ContainerId;

/// What a data container has of the session.
#[derive(Debug, Clone, Copy)]
pub struct SessionRange {
    /// The first frame.
    pub first_frame: SessionFrameNumber,
    /// The first entry.
    pub first_entry: SessionEntryNumber,
    /// Number of entries.
    pub entries: u32,
}

/// A container to put. Metadata has no range.
struct Upload {
    number: u64,
    sealed: SealedContainer,
    range: Option<SessionRange>,
}

/// A container that is durable.
struct DurableContainer {
    id: ContainerId,
    container_index: Arc<ContainerIndex>,
    range: Option<SessionRange>,
}

#[derive(Default)]
struct UploadState {
    waiting: VecDeque<Upload>,
    /// Containers handed over so far.
    begun: u64,
    /// Containers published so far.
    published: u64,
    is_closed: bool,
    failure: Option<Error>,
    has_failed: bool,
}

/// See the module.
pub struct Uploads {
    store: Arc<dyn Store>,
    index: Arc<Mutex<ChunkIndex>>,
    in_flight: Arc<FramesInFlight>,
    state: Mutex<UploadState>,
    changed: Condvar,
    /// DurableContainer containers that wait for those before them, and the number of the next one to publish.
    durable: Mutex<(BTreeMap<u64, DurableContainer>, u64)>,
    at_once: u64,
}

impl Uploads {
    /// Puts into `store`, as many at once as it says, and publishes to `index` and `in_flight`.
    pub fn new(store: Arc<dyn Store>, index: Arc<Mutex<ChunkIndex>>, in_flight: Arc<FramesInFlight>) -> Self {
        let at_once = store.requests_max() as u64;
        let (state, changed, durable) = Default::default();
        Uploads { store, index, in_flight, state, changed, durable, at_once }
    }

    /// Runs `work` beside the workers, and ends them after it. A failed upload is the cause of whatever `work` fails
    /// with.
    ///
    /// # Errors
    /// Errors of the store and of the index; errors of `work`.
    pub fn run<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let workers = if self.at_once > 1 { self.at_once } else { 0 };
        let done = thread::scope(|scope| {
            for number in 0..workers {
                let named = thread::Builder::new().name(format!("upload-{number}"));
                if let Err(error) = named.spawn_scoped(scope, || self.work()) {
                    self.fail(Error::io("start", "a thread that stores containers", error));
                }
            }
            let done = work();
            self.lock().is_closed = true;
            self.changed.notify_all();
            done
        });
        match self.lock().failure.take() {
            Some(failure) => Err(failure),
            None => done,
        }
    }

    /// Hands over a container. Waits until the store takes it.
    ///
    /// # Errors
    /// [`Error::Internal`] after a failed upload, which [`Self::run`] returns; without workers those of the store and
    /// of the index.
    pub fn push(&self, sealed: SealedContainer, range: Option<SessionRange>) -> Result<()> {
        if self.at_once <= 1 {
            return self.publish(self.put(sealed, range)?);
        }
        let mut state = self.wait(|state| state.begun - state.published < self.at_once)?;
        let number = state.begun;
        state.begun += 1;
        state.waiting.push_back(Upload { number, sealed, range });
        self.changed.notify_all();
        Ok(())
    }

    /// Waits until all containers are durable and published.
    ///
    /// # Errors
    /// Errors of [`Self::push`].
    pub fn finish(&self) -> Result<()> {
        self.wait(|state| state.begun == state.published).map(drop)
    }

    fn lock(&self) -> MutexGuard<'_, UploadState> {
        self.state.lock()
    }

    /// Waits until `is_reached`, or for a failure.
    fn wait(&self, is_reached: impl Fn(&UploadState) -> bool) -> Result<MutexGuard<'_, UploadState>> {
        let mut state = self.lock();
        while !(state.has_failed || self.at_once <= 1 || is_reached(&state)) {
            self.changed.wait(&mut state);
        }
        if state.has_failed { Err(Error::internal("a container was not stored")) } else { Ok(state) }
    }

    fn fail(&self, error: Error) {
        let mut state = self.lock();
        state.failure.get_or_insert(error);
        state.has_failed = true;
        state.waiting.clear();
        drop(state);
        self.changed.notify_all();
        self.in_flight.close();
    }

    /// One worker.
    fn work(&self) {
        while let Some(upload) = self.next() {
            let number = upload.number;
            let done = catch_unwind(AssertUnwindSafe(|| {
                let durable = self.put(upload.sealed, upload.range)?;
                self.publish_in_order(number, durable)
            }));
            if let Err(error) =
                done.unwrap_or_else(|_| Err(Error::internal("a thread that stores containers panicked")))
            {
                self.fail(error);
            }
        }
    }

    fn next(&self) -> Option<Upload> {
        let mut state = self.lock();
        loop {
            if let Some(upload) = state.waiting.pop_front() {
                return Some(upload);
            }
            if state.is_closed {
                return None;
            }
            self.changed.wait(&mut state);
        }
    }

    fn put(&self, sealed: SealedContainer, range: Option<SessionRange>) -> Result<DurableContainer> {
        let id = sealed.store(self.store.as_ref())?;
        Ok(DurableContainer { id, container_index: Arc::new(sealed.container_index), range })
    }

    /// Publishes container `number`, and those after it that waited for it, as soon as all before it are published.
    fn publish_in_order(&self, number: u64, durable: DurableContainer) -> Result<()> {
        let mut ready = self.durable.lock();
        ready.0.insert(number, durable);
        loop {
            let (waiting, next) = &mut *ready;
            let Some(durable) = waiting.remove(next) else { return Ok(()) };
            if self.lock().has_failed {
                return Ok(());
            }
            self.publish(durable)?;
            *next += 1;
            self.lock().published += 1;
            self.changed.notify_all();
        }
    }

    fn publish(&self, durable: DurableContainer) -> Result<()> {
        let DurableContainer { id, container_index, range } = durable;
        let frames = container_index.frames.len() as u32;
        self.index.lock().add_container(id, container_index)?;
        if let Some(SessionRange { first_frame, first_entry, entries }) = range {
            self.in_flight.seal(ContainerRange { first_frame, frames, first_entry, entries, container: id });
        }
        Ok(())
    }
}
