//! Look-ups without segments: copies of the container indexes, sorted into segments in a temporary directory.
//!
//! A damaged segment is replaced by copies of the indexes of its containers, made once per run. The containers that no
//! readable segment names get copies too. Each container index is read once; memory is one batch of records.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::container_indexes::read_fingerprints;
use super::segment::{IndexRecord, IndexSegment};
use super::segment_writer::{NewSegments, write_segment};
use super::unread::UnreadContainers;
use crate::error::{Error, ErrorKind, Result};
use crate::store::{BlobName, LocalStore, Store};
use crate::types::{ContainerId, Fingerprint};

/// Records after which a batch becomes a segment. It bounds memory.
const BATCH_RECORDS: usize = 1 << 18;

/// Collects the records of whole containers, and writes them as segments of bounded size.
pub struct SegmentBatches<'a> {
    store: &'a dyn Store,
    new_segments: NewSegments,
    containers: Vec<ContainerId>,
    records: Vec<IndexRecord>,
    written: Vec<BlobName>,
}

impl<'a> SegmentBatches<'a> {
    /// Writes into `store` what is like `new_segments`.
    pub fn new(store: &'a dyn Store, new_segments: &NewSegments) -> Self {
        let (new_segments, written) = (new_segments.clone(), Vec::new());
        SegmentBatches { store, new_segments, containers: Vec::new(), records: Vec::new(), written }
    }

    /// Adds a container with the fingerprint and the position of each entry, as its own index says: readers do not ask
    /// a container that a segment names. One without entries is left out.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn add(&mut self, id: ContainerId, entries: impl Iterator<Item = (Fingerprint, u32)>) -> Result<()> {
        let mut entries = entries.peekable();
        if entries.peek().is_none() {
            return Ok(());
        }
        if self.records.len() >= BATCH_RECORDS {
            self.write(&[])?;
        }
        let container = self.containers.len() as u32;
        self.containers.push(id);
        self.records.extend(entries.map(|(fingerprint, entry)| IndexRecord { fingerprint, container, entry }));
        Ok(())
    }

    fn write(&mut self, replaced: &[BlobName]) -> Result<()> {
        let (containers, records) = (std::mem::take(&mut self.containers), std::mem::take(&mut self.records));
        self.written.push(write_segment(self.store, self.new_segments.draw()?, &containers, replaced, records)?);
        Ok(())
    }

    /// Writes the rest and returns the names of the segments. The last one replaces the segments called `replaced`.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn finish(mut self, replaced: &[BlobName]) -> Result<Vec<BlobName>> {
        if !self.containers.is_empty() || !replaced.is_empty() {
            self.write(replaced)?;
        }
        Ok(self.written)
    }
}

/// Copies of container indexes that serve in place of segments.
pub(super) struct Recovery {
    store: Arc<dyn Store>,
    state: Mutex<RecoveryState>,
    /// Whether any segment is known to be damaged. Saves the lock.
    is_needed: AtomicBool,
    /// Containers that could not be read.
    pub(super) unread: UnreadContainers,
}

type Copies = Arc<Vec<IndexSegment>>;

#[derive(Default)]
struct RecoveryState {
    scratch: Option<ScratchStore>,
    /// Names of segments known to be damaged.
    damaged: BTreeSet<String>,
    /// Copies in place of damaged segments.
    copies: HashMap<String, Copies>,
    /// Copies for the containers that no segment names.
    unlisted: Option<Copies>,
    /// Containers without a copy because they could not be read, with the reason. Any chunk may be in them. Those that
    /// no segment names, and those of damaged segments.
    blind_unlisted: BTreeMap<ContainerId, Error>,
    blind: BTreeMap<ContainerId, Error>,
    used: BTreeSet<ContainerId>,
}

/// A store in a temporary directory, removed at the end.
struct ScratchStore {
    store: Arc<dyn Store>,
    _directory: tempfile::TempDir,
}

impl ScratchStore {
    fn create() -> Result<Self> {
        let failed = |error| Error::io("create a temporary directory in", std::env::temp_dir(), error);
        let directory = tempfile::Builder::new().prefix("fhrd-index-").tempdir().map_err(failed)?;
        Ok(ScratchStore { store: Arc::new(LocalStore::open(directory.path())?), _directory: directory })
    }
}

impl Recovery {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Recovery {
            store,
            state: Mutex::default(),
            is_needed: AtomicBool::new(false),
            unread: UnreadContainers::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, RecoveryState> {
        self.state.lock()
    }

    /// Records that a segment is damaged, and warns once.
    pub(super) fn note_damage(&self, name: &str, error: &Error) {
        if self.state().damaged.insert(name.into()) {
            tracing::warn!("{error}; using the indexes of its containers instead");
        }
    }

    /// Names of segments known to be damaged.
    pub(super) fn damaged(&self) -> Vec<String> {
        self.state().damaged.iter().cloned().collect()
    }

    /// The containers and entries of a fingerprint, if copies serve in place of `segment`.
    pub(super) fn find_known(
        &self,
        segment: &IndexSegment,
        fingerprint: &Fingerprint,
    ) -> Option<Result<Vec<(ContainerId, u32)>>> {
        if !self.is_needed.load(Ordering::Relaxed) {
            return None;
        }
        let copies = self.state().copies.get(segment.name().as_str()).cloned()?;
        Some(find_in(&copies, fingerprint))
    }

    /// Copies the indexes of the containers of `segment` that are in `listed`, unless that was done. `error` is the
    /// damage of the segment.
    pub(super) fn rebuild(
        &self,
        segment: &IndexSegment,
        error: &Error,
        listed: &HashSet<ContainerId>,
    ) -> Result<Copies> {
        self.note_damage(segment.name(), error);
        let mut state = self.state();
        if let Some(copies) = state.copies.get(segment.name().as_str()) {
            return Ok(copies.clone());
        }
        let containers = segment.containers().iter().filter(|id| listed.contains(id)).copied();
        let (copies, unread) = self.copy(&mut state, containers)?;
        state.blind.extend(unread);
        state.copies.insert(segment.name().into(), copies.clone());
        self.is_needed.store(true, Ordering::Relaxed);
        Ok(copies)
    }

    /// The containers and entries of a fingerprint in containers that no segment names. The first call asks for
    /// them, for how many of them no segment names at all, and for the damaged segments.
    pub(super) fn find_unlisted<'e>(
        &self,
        fingerprint: &Fingerprint,
        unlisted: impl FnOnce() -> (Vec<ContainerId>, usize, &'e Vec<(String, Error)>),
    ) -> Result<Vec<(ContainerId, u32)>> {
        let mut state = self.state();
        let copies = match &state.unlisted {
            Some(copies) => copies.clone(),
            None => {
                let (containers, orphans, damaged) = unlisted();
                if orphans > 0 {
                    damaged.iter().for_each(|(_, error)| tracing::warn!("{error}"));
                    tracing::warn!("{orphans} containers are in no readable index segment; reading their own indexes");
                }
                let (copies, unread) = self.copy(&mut state, containers.into_iter())?;
                state.blind_unlisted = unread;
                state.unlisted.insert(copies).clone()
            }
        };
        drop(state);
        find_in(&copies, fingerprint)
    }

    /// Makes the next look-up ask again for the containers that no segment names.
    pub(super) fn forget_unlisted(&self) {
        let mut state = self.state();
        state.unlisted = None;
        state.blind_unlisted.clear();
    }

    /// Why a chunk that no look-up has found may still be stored: a container that neither a segment nor a copy answers
    /// for could not be read. Those for which `is_bad` holds do not count.
    pub(super) fn blind_error(&self, is_bad: impl Fn(&ContainerId) -> bool) -> Option<Error> {
        if !self.unread.is_any() {
            return None;
        }
        let state = self.state();
        let blind = state.blind_unlisted.iter().chain(&state.blind);
        blind.filter(|(id, _)| !is_bad(id)).map(|(_, error)| error.duplicate()).next()
    }

    /// Records that an entry of a container that no segment names is used.
    pub(super) fn use_unlisted(&self, id: ContainerId) {
        self.state().used.insert(id);
    }

    /// The recorded containers, which are forgotten.
    pub(super) fn take_used(&self) -> Vec<ContainerId> {
        std::mem::take(&mut self.state().used).into_iter().collect()
    }

    /// Copies the indexes of `containers`. Also returns those that cannot be read.
    fn copy(
        &self,
        state: &mut RecoveryState,
        containers: impl Iterator<Item = ContainerId>,
    ) -> Result<(Copies, BTreeMap<ContainerId, Error>)> {
        let (mut containers, mut unread) = (containers.peekable(), BTreeMap::new());
        if containers.peek().is_none() {
            return Ok((Copies::default(), unread));
        }
        let scratch = match &mut state.scratch {
            Some(scratch) => scratch,
            none => none.insert(ScratchStore::create()?),
        };
        let mut batches = SegmentBatches::new(scratch.store.as_ref(), &NewSegments::default());
        for id in containers {
            match read_fingerprints(self.store.as_ref(), &id) {
                Ok(fingerprints) => batches.add(id, fingerprints.into_iter().zip(0..))?,
                Err(error) if error.stops_reading() => return Err(error),
                // A prune has deleted it.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => {
                    tracing::debug!("a container cannot be searched: {error}");
                    unread.insert(id, error);
                }
            }
        }
        let names = batches.finish(&[])?;
        let open = |name: &BlobName| IndexSegment::open(scratch.store.clone(), name);
        unread.iter().for_each(|(id, error)| self.unread.insert(*id, error));
        Ok((Arc::new(names.iter().map(open).collect::<Result<_>>()?), unread))
    }
}

fn find_in(copies: &[IndexSegment], fingerprint: &Fingerprint) -> Result<Vec<(ContainerId, u32)>> {
    let mut found = Vec::new();
    for segment in copies {
        found.extend(segment.find(fingerprint)?);
    }
    Ok(found)
}
