//! Entries of bases: their candidates, features, names, operation lists and extent maps.

use std::sync::Arc;

use super::{Bases, EXTENT_CACHE_BYTES_MAX};
use crate::error::{Error, Result};
use crate::repo::container::{
    Base, EntryAddress, EntryNumber, ExtentCache, ExtentMap, FrameAddress, FrameNumber, FrameReference, Operation,
    OperationSlice, OperationSource, OperationView, SessionEntryNumber, blob_name,
};
use crate::similar::BaseRange;
use crate::types::Fingerprint;

impl Bases {
    /// Calls `found` with the position in `features` and the entry, for at most `count_max` entries per feature, newest
    /// first.
    pub fn each_candidate(&mut self, features: &[u64], count_max: usize, found: impl FnMut(usize, EntryNumber)) {
        self.candidates.find(features, count_max, &mut self.resolver, found);
    }

    /// At most `count_max` entries with a feature, newest first.
    pub fn candidates(&mut self, feature: u64, count_max: usize) -> Vec<EntryNumber> {
        let mut entries = Vec::new();
        self.each_candidate(&[feature], count_max, |_, entry| entries.push(entry));
        entries
    }

    /// Adds the features of session entry `number` to the similarity index.
    pub fn index(&mut self, number: SessionEntryNumber, features: &[u64]) {
        self.candidates.insert(number, features);
    }

    /// The entry stored after `entry`, in the same container or in the session so far.
    pub fn following(&mut self, entry: EntryNumber) -> Result<Option<EntryNumber>> {
        let (container, position) = match entry.address() {
            EntryAddress::Stored { container, position } => (container, position),
            EntryAddress::Session(number) => {
                let next = number.plus(1);
                return Ok((next < self.ring.next()).then_some(EntryNumber::session(next)));
            }
        };
        let container_index = self.resolver.container_index(container);
        let Some((id, container_index)) = self.tolerate(container_index)? else { return Ok(None) };
        let has_next = (position as usize) + 1 < container_index.entries.len();
        let is_usable = has_next && self.resolver.locator.listing().is_usable(&id, position + 1);
        Ok(is_usable.then(|| EntryNumber::stored(container, position + 1)))
    }

    /// The features of an entry; empty if the entry cannot be read.
    pub fn features(&mut self, entry: EntryNumber) -> Result<Vec<u64>> {
        if let Some(found) = entry.as_session().and_then(|number| self.ring.get(number)) {
            return Ok(found.features.clone());
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
        let mut extent_cache = self.extent_cache.take().unwrap_or_else(|| ExtentCache::new(EXTENT_CACHE_BYTES_MAX));
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
        let view = self.view(entry)?;
        let mut parts = Vec::new();
        for operation in view.operations.as_slice() {
            let Operation::Delta { base, offset, len } = *operation else { return Ok(None) };
            parts.push(BaseRange { entry: self.base(&view, base)?, offset, len });
        }
        let total: u64 = parts.iter().map(|part| u64::from(part.len)).sum();
        Ok((total == u64::from(view.raw_len)).then_some(parts))
    }

    /// Depth of an entry's chain.
    pub fn depth(&mut self, entry: EntryNumber) -> Result<u8> {
        Ok(self.view(entry)?.depth)
    }

    /// Name of an entry as a base.
    pub fn name(&mut self, entry: EntryNumber) -> Result<Base> {
        let name = match entry.as_session().and_then(|number| self.ring.get(number)) {
            Some(found) => found.name,
            None => {
                let number = self.stored_number(entry)?;
                let (container, container_index, position) = self.resolver.container_index_of(number)?;
                let found = container_index.entries.get(position as usize);
                let found =
                    found.ok_or_else(|| Error::corrupt(blob_name(&container), 0, "an entry", position.to_string()))?;
                Base { fingerprint: found.fingerprint, digest: container_index.digest(found) }
            }
        };
        self.names.put(name, entry);
        Ok(name)
    }

    /// Turns an unreadable base into `None`. Any other error fails the run.
    pub(super) fn tolerate<T>(&self, result: Result<T>) -> Result<Option<T>> {
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

impl OperationSource for Bases {
    fn view(&mut self, entry: EntryNumber) -> Result<OperationView> {
        if let Some(view) = entry.as_session().and_then(|number| self.ring.view(number)) {
            return Ok(view);
        }
        let number = self.stored_number(entry)?;
        self.resolver.view(number)
    }

    fn base(&mut self, view: &OperationView, base: u32) -> Result<EntryNumber> {
        if let OperationSlice::Session(session) = &view.operations {
            let found = session.entries.get(base as usize).copied();
            return found.ok_or_else(|| Error::corrupt("session entry", 0, "a base", base.to_string()));
        }
        let name = self.resolver.base_name(view, base)?;
        if let Some(entry) = self.names.get(&name) {
            return Ok(*entry);
        }
        self.resolver.base(view, base)
    }
}
