//! Entries of bases: their features, names, operation lists and extent maps.
//!
//! Operation lists come from the ring of session entries or from container indexes. Several threads may read entries:
//! SubDedup owns the ring and the names, the workers of Match read them.
//!
//! An entry of the session that has left the ring has its bases by name. A base of the session has the same number
//! whether its name is remembered or is looked up among the containers that the run has stored.

use std::collections::HashSet;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::{Mutex, MutexGuard};

use crate::error::{Error, Result};
use crate::repo::container::{
    Base, BaseUse, EntryAddress, EntryNumber, ExtentCache, ExtentMap, FrameAddress, FrameNumber, FrameReference,
    FramesInFlight, Operation, OperationSlice, OperationSource, OperationView, SessionEntryNumber, blob_name,
};
use crate::repo::index::{ChunkIndex, Locator, Resolver};
use crate::repo::read::at_least_one;
use crate::similar::BaseRange;
use crate::similar::ring::SharedRing;
use crate::types::Fingerprint;

/// Bases of the session that are remembered by name.
const NAMES_MAX: usize = 1 << 16;

/// Entries of bases, as one thread reads them.
pub struct Entries {
    pub(super) resolver: Resolver,
    in_flight: Arc<FramesInFlight>,
    /// Finds entries in the containers that the run has stored.
    index: Arc<Mutex<ChunkIndex>>,
    /// The latest session entries.
    pub ring: Arc<SharedRing>,
    names: Arc<Mutex<LruCache<Base, EntryNumber>>>,
    /// Look-ups of names count as uses. Those of other threads do not, because their order depends on timing.
    is_owner: bool,
    /// Taken out while it resolves an entry, because it asks `self` for operation lists.
    extent_cache: Option<ExtentCache>,
}

impl Entries {
    /// The entries of the stored containers that `resolver` sees, and of the running session with its `index`, for
    /// their owner, which takes `extent_bytes_max` bytes for extent maps.
    pub fn new(
        resolver: Resolver,
        in_flight: Arc<FramesInFlight>,
        index: Arc<Mutex<ChunkIndex>>,
        extent_bytes_max: usize,
    ) -> Self {
        Entries {
            resolver,
            in_flight,
            index,
            ring: Arc::default(),
            names: Arc::new(Mutex::new(LruCache::new(at_least_one(NAMES_MAX)))),
            is_owner: true,
            extent_cache: Some(ExtentCache::new(extent_bytes_max)),
        }
    }

    /// The same entries for another thread, which finds chunks with `locator` and has its own extent maps.
    #[must_use]
    pub fn sharing(&self, locator: Locator, extent_cache: ExtentCache) -> Self {
        Entries {
            resolver: self.resolver.sharing(locator),
            in_flight: self.in_flight.clone(),
            index: self.index.clone(),
            ring: self.ring.clone(),
            names: self.names.clone(),
            is_owner: false,
            extent_cache: Some(extent_cache),
        }
    }

    fn names(&self) -> MutexGuard<'_, LruCache<Base, EntryNumber>> {
        self.names.lock()
    }

    /// The resolver of stored entries.
    pub fn resolver(&mut self) -> &mut Resolver {
        &mut self.resolver
    }

    /// Forgets the extent maps with extents in open frames: an open frame got its final number.
    pub fn drop_open_frames(&mut self) {
        self.extent_cache.iter_mut().for_each(ExtentCache::drop_open_frames);
    }

    /// The entry stored after `entry`, in the same container or in the session. A session entry may still be to come.
    pub fn following(&mut self, entry: EntryNumber) -> Result<Option<EntryNumber>> {
        let (container, position) = match entry.address() {
            EntryAddress::Stored { container, position } => (container, position),
            EntryAddress::Session(number) => return Ok(Some(EntryNumber::session(number.plus(1)))),
        };
        let container_index = self.resolver.container_index(container);
        let Some((id, container_index)) = self.tolerate(container_index)? else { return Ok(None) };
        let has_next = (position as usize) + 1 < container_index.entries.len();
        let is_usable = has_next && self.resolver.locator.listing().is_usable(&id, position + 1);
        Ok(is_usable.then(|| EntryNumber::stored(container, position + 1)))
    }

    /// The entry stored before `entry`, in the same container or in the session.
    pub fn preceding(&mut self, entry: EntryNumber) -> Result<Option<EntryNumber>> {
        let (container, position) = match entry.address() {
            EntryAddress::Stored { container, position } => (container, position),
            EntryAddress::Session(number) => {
                return Ok(number.0.checked_sub(1).map(|before| EntryNumber::session(SessionEntryNumber(before))));
            }
        };
        let Some(before) = position.checked_sub(1) else { return Ok(None) };
        let container_index = self.resolver.container_index(container);
        let Some((id, _)) = self.tolerate(container_index)? else { return Ok(None) };
        let is_usable = self.resolver.locator.listing().is_usable(&id, before);
        Ok(is_usable.then(|| EntryNumber::stored(container, before)))
    }

    /// The features of an entry; empty if the entry cannot be read.
    pub fn features(&mut self, entry: EntryNumber) -> Result<Vec<u64>> {
        let found = entry.as_session().and_then(|number| self.ring.read(number, |entry| entry.features.clone()));
        if let Some(features) = found {
            return Ok(features);
        }
        let features = self.stored_number(entry).and_then(|number| {
            let (_, container_index, position) = self.resolver.container_index_of(number)?;
            let found = container_index.entries.get(position as usize);
            Ok(found.map(|found| container_index.features(found).to_vec()).unwrap_or_default())
        });
        self.tolerate(features).map(Option::unwrap_or_default)
    }

    /// The resolver's number of an entry that has left the ring.
    fn stored_number(&mut self, entry: EntryNumber) -> Result<EntryNumber> {
        let Some(number) = entry.as_session() else { return Ok(entry) };
        let (container, position) = self.in_flight.entry(number)?;
        Ok(self.resolver.entry_number(container, position))
    }

    /// An entry of a stored chunk; `None` if no container holds the chunk.
    pub fn entry_of(&mut self, fingerprint: &Fingerprint) -> Result<Option<EntryNumber>> {
        let located = self.resolver.locator.locate(fingerprint);
        Ok(self.tolerate(located)?.flatten().map(|located| self.resolver.number_of(&located)))
    }

    /// The extent map of an entry.
    pub fn extent_map(&mut self, entry: EntryNumber) -> Result<Arc<ExtentMap>> {
        let mut extent_cache = self.extent_cache.take().unwrap_or_else(|| ExtentCache::new(0));
        let extent_map = extent_cache.extent_map(self, entry);
        self.extent_cache = Some(extent_cache);
        extent_map
    }

    /// Where frame `number` can be read; `None` for an open frame.
    pub fn frame_reference(&mut self, number: FrameNumber) -> Result<Option<FrameReference>> {
        match number.address() {
            FrameAddress::Open(_) => Ok(None),
            FrameAddress::Session(number) => Ok(Some(FrameReference::Session(number))),
            FrameAddress::Stored { .. } => {
                let (container, info) = self.resolver.frame_info(number)?;
                Ok(Some(FrameReference::Stored(container, info)))
            }
        }
    }

    /// The base ranges of an entry whose whole chunk is a delta; `None` for any other entry.
    pub fn delta_parts(&mut self, entry: EntryNumber) -> Result<Option<Vec<BaseRange>>> {
        let raw_len = u64::from(self.view(entry)?.raw_len);
        let parts = self.base_ranges(entry)?;
        let total: u64 = parts.iter().map(|part| u64::from(part.len)).sum();
        Ok((!parts.is_empty() && total == raw_len).then_some(parts))
    }

    /// The ranges from which an entry is made that is a delta; none for any other entry.
    pub fn base_ranges(&mut self, entry: EntryNumber) -> Result<Vec<BaseRange>> {
        let view = self.view(entry)?;
        let mut ranges = Vec::new();
        for operation in view.operations.as_slice() {
            let Operation::Delta { base, offset, len } = *operation else { return Ok(Vec::new()) };
            ranges.push(BaseRange { entry: self.base(&view, base, operation.base_use())?, offset, len });
        }
        Ok(ranges)
    }

    /// The entry that the first copy of an entry is of; `None` if it copies nothing.
    pub fn copied(&mut self, entry: EntryNumber) -> Result<Option<EntryNumber>> {
        let view = self.view(entry)?;
        let first = view.operations.as_slice().iter().find_map(|operation| match *operation {
            Operation::Copy { base, .. } => Some((base, operation.base_use())),
            _ => None,
        });
        first.map(|(base, base_use)| self.base(&view, base, base_use)).transpose()
    }

    /// Whether an entry is a delta.
    pub fn is_delta(&mut self, entry: EntryNumber) -> Result<bool> {
        Ok(matches!(self.view(entry)?.operations.as_slice().first(), Some(Operation::Delta { .. })))
    }

    /// Whether an entry is of chunk `fingerprint`, or is made from an entry that is. The chunk must not be made from
    /// it: readers may find the chunk itself in place of the entry.
    pub fn builds_on(&mut self, entry: EntryNumber, fingerprint: &Fingerprint) -> Result<bool> {
        let (mut left, mut seen) = (vec![entry], HashSet::from([entry]));
        while let Some(entry) = left.pop() {
            if self.fingerprint(entry)? == *fingerprint {
                return Ok(true);
            }
            // A base further down is the chunk only if that was stored before, and has been found damaged since.
            if !self.resolver.locator.listing().is_doubtful() {
                continue;
            }
            let view = self.view(entry)?;
            for operation in view.operations.as_slice() {
                if let Some((base, _)) = operation.source() {
                    let base = self.base(&view, base, operation.base_use())?;
                    if seen.insert(base) {
                        left.push(base);
                    }
                }
            }
        }
        Ok(false)
    }

    fn fingerprint(&mut self, entry: EntryNumber) -> Result<Fingerprint> {
        if let Some(name) = entry.as_session().and_then(|number| self.ring.read(number, |entry| entry.name)) {
            return Ok(name.fingerprint);
        }
        let number = self.stored_number(entry)?;
        let (container, container_index, position) = self.resolver.container_index_of(number)?;
        let found = container_index.entries.get(position as usize).map(|entry| entry.fingerprint);
        found.ok_or_else(|| Error::corrupt(blob_name(&container), 0, "an entry", position.to_string()))
    }

    /// Depth of an entry's chain.
    pub fn depth(&mut self, entry: EntryNumber) -> Result<u8> {
        Ok(self.view(entry)?.depth)
    }

    /// Name of an entry as a base.
    pub fn name(&mut self, entry: EntryNumber) -> Result<Base> {
        let name = match entry.as_session().and_then(|number| self.ring.read(number, |entry| entry.name)) {
            Some(name) => name,
            None => {
                let number = self.stored_number(entry)?;
                let (container, container_index, position) = self.resolver.container_index_of(number)?;
                let found = container_index.entries.get(position as usize);
                let found =
                    found.ok_or_else(|| Error::corrupt(blob_name(&container), 0, "an entry", position.to_string()))?;
                Base { fingerprint: found.fingerprint, digest: container_index.digest(found) }
            }
        };
        self.names().put(name, entry);
        Ok(name)
    }

    /// Whether bases of an entry may be of the session: of its own entries, and for the owner of all. An entry of an
    /// earlier session can build on a damaged chunk, which this session stores again. Whether its new frame is open
    /// depends on timing, and only the owner reads open frames.
    fn sees_session(&self, view: &OperationView) -> bool {
        self.is_owner
            || match view.entry.address() {
                EntryAddress::Session(_) => true,
                EntryAddress::Stored { container, position } => {
                    let container = self.resolver.container_id(container);
                    container.is_some_and(|id| self.in_flight.number_of(&id, position).is_some())
                }
            }
    }

    /// The session's number of an entry that it has stored.
    fn own_base(&mut self, name: &Base) -> Result<Option<EntryNumber>> {
        let found = self.index.lock().own_entry(name)?;
        let number = found.and_then(|(container, position)| self.in_flight.number_of(&container, position));
        let number = number.map(EntryNumber::session);
        if let Some(number) = number.filter(|_| self.is_owner) {
            self.names().put(*name, number);
        }
        Ok(number)
    }

    /// Turns an unreadable base into `None`.
    ///
    /// # Errors
    /// Any other error, which fails the run.
    pub fn tolerate<T>(&self, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.is_unreadable() => {
                tracing::warn!("similar data is stored again: {}", base_problem(&error));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Why a base cannot be used, in the words of a user.
pub fn base_problem(error: &Error) -> String {
    match error {
        Error::ChunkMissing { fingerprint } => {
            format!("chunk {fingerprint}, which stored data builds on, is missing or was found damaged before")
        }
        error => format!("{error}; `fhrd check --read-data` shows what is damaged, and lets later backups replace it"),
    }
}

impl OperationSource for Entries {
    fn view(&mut self, entry: EntryNumber) -> Result<OperationView> {
        if let Some(view) = entry.as_session().and_then(|number| self.ring.view(number)) {
            return Ok(view);
        }
        let number = self.stored_number(entry)?;
        self.resolver.view(number)
    }

    fn base(&mut self, view: &OperationView, base: u32, base_use: BaseUse) -> Result<EntryNumber> {
        if let OperationSlice::Session(session) = &view.operations {
            let found = session.entries.get(base as usize).copied();
            return found.ok_or_else(|| Error::corrupt("session entry", 0, "a base", base.to_string()));
        }
        let name = self.resolver.base_name(view, base)?;
        let known = match self.is_owner {
            true => self.names().get(&name).copied(),
            false => self.names().peek(&name).copied(),
        };
        let sees_session = |number: &EntryNumber| number.as_session().is_none() || self.sees_session(view);
        if let Some(number) = known.filter(sees_session) {
            return Ok(number);
        }
        match self.resolver.base(view, base, base_use) {
            Err(missing @ Error::ChunkMissing { .. }) if self.sees_session(view) => {
                self.own_base(&name)?.ok_or(missing)
            }
            found => found,
        }
    }
}

#[cfg(test)]
#[path = "entries_tests.rs"]
mod tests;
