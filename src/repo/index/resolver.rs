//! The resolver: numbers the entries and frames of stored containers and gives their operations.
//!
//! A container gets a number when it is first used. Entries and frames are numbered by it and by their position in the
//! container index. Resolvers of several threads may share these numbers. Then the numbers depend on timing, so nothing
//! that is stored may depend on their order.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::RwLock;

use super::locate::{LocatedEntry, Locator};
use crate::error::{Error, Result};
use crate::repo::container::{
    Base, BaseUse, ContainerIndex, ContainerNumber, EntryAddress, EntryNumber, FrameAddress, FrameInfo, FrameNumber,
    OperationSlice, OperationSource, OperationView, blob_name,
};
use crate::types::ContainerId;

/// Remembered base look-ups.
const BASES_CACHED: NonZeroUsize = NonZeroUsize::new(1 << 15).expect("not zero");
/// The same for a resolver that shares its numbers: there is one for each worker.
const BASES_CACHED_BY_WORKER: NonZeroUsize = NonZeroUsize::new(1 << 11).expect("not zero");

/// The containers that have a number.
#[derive(Default)]
struct ContainerNumbers {
    containers: Vec<ContainerId>,
    numbers: HashMap<ContainerId, ContainerNumber>,
}

/// Gives the operations of stored entries.
pub struct Resolver {
    /// Finds chunks.
    pub locator: Locator,
    numbers: Arc<RwLock<ContainerNumbers>>,
    bases: LruCache<(ContainerNumber, u32, BaseUse), EntryNumber>,
}

impl Resolver {
    /// For the containers that `locator` finds.
    pub fn new(locator: Locator) -> Self {
        Resolver { locator, numbers: Arc::default(), bases: LruCache::new(BASES_CACHED) }
    }

    /// A resolver for another thread, with a locator of its own. A number means the same to both.
    #[must_use]
    pub fn sharing(&self, locator: Locator) -> Self {
        Resolver { locator, numbers: self.numbers.clone(), bases: LruCache::new(BASES_CACHED_BY_WORKER) }
    }

    /// The same, but it remembers as many look-ups of bases as a resolver that shares nothing.
    #[must_use]
    pub fn remembering_all(mut self) -> Self {
        self.bases.resize(BASES_CACHED);
        self
    }

    /// Forgets which entries serve as bases, after one of them has proved bad.
    pub fn forget_bases(&mut self) {
        self.bases.clear();
    }

    /// Containers that have a number: all whose entries or frames were asked for.
    pub fn containers(&self) -> Vec<ContainerId> {
        self.numbers.read().containers.clone()
    }

    /// Number of a container; an unknown one gets the next number.
    pub fn container_number(&mut self, id: ContainerId) -> ContainerNumber {
        if let Some(number) = self.numbers.read().numbers.get(&id) {
            return *number;
        }
        let mut shared = self.numbers.write();
        let ContainerNumbers { containers, numbers } = &mut *shared;
        *numbers.entry(id).or_insert_with(|| {
            containers.push(id);
            ContainerNumber(containers.len() as u32 - 1)
        })
    }

    /// Number of entry `position` of a container.
    pub fn entry_number(&mut self, container: ContainerId, position: u32) -> EntryNumber {
        EntryNumber::stored(self.container_number(container), position)
    }

    /// Number of a located entry.
    pub fn number_of(&mut self, located: &LocatedEntry) -> EntryNumber {
        self.entry_number(located.container, located.entry)
    }

    /// The name of container `number`.
    pub fn container_id(&self, number: ContainerNumber) -> Option<ContainerId> {
        self.numbers.read().containers.get(number.0 as usize).copied()
    }

    /// The index of container `number`.
    ///
    /// # Errors
    /// Errors of loading it, and [`Error::Internal`] for a number that was never given.
    pub fn container_index(&mut self, number: ContainerNumber) -> Result<(ContainerId, Arc<ContainerIndex>)> {
        let id = self.container_id(number);
        let id = id.ok_or_else(|| Error::internal(format!("container number {} was never given", number.0)))?;
        Ok((id, self.locator.container_indexes().load(&id)?))
    }

    /// The index of the container that holds stored entry `number`, and the entry's position in it.
    ///
    /// # Errors
    /// Errors of [`Self::container_index`], and [`Error::Internal`] for an entry of the session.
    pub fn container_index_of(&mut self, number: EntryNumber) -> Result<(ContainerId, Arc<ContainerIndex>, u32)> {
        let EntryAddress::Stored { container, position } = number.address() else {
            return Err(Error::internal(format!("{number:?} is no stored entry")));
        };
        let (id, container_index) = self.container_index(container)?;
        Ok((id, container_index, position))
    }

    /// Where stored frame `number` is.
    ///
    /// # Errors
    /// Errors of [`Self::container_index`], [`Error::Corrupt`] if the container has no such frame, and
    /// [`Error::Internal`] for a frame of the session.
    pub fn frame_info(&mut self, number: FrameNumber) -> Result<(ContainerId, FrameInfo)> {
        let FrameAddress::Stored { container, position } = number.address() else {
            return Err(Error::internal(format!("{number:?} is no stored frame")));
        };
        let (id, container_index) = self.container_index(container)?;
        let info = container_index.frames.get(position as usize).copied();
        let missing = || Error::corrupt(blob_name(&id), 0, "a frame of the container index", position.to_string());
        Ok((id, info.ok_or_else(missing)?))
    }

    /// Identity of base `base` of an entry.
    pub fn base_name(&mut self, view: &OperationView, base: u32) -> Result<Base> {
        let (id, container_index, _) = self.container_index_of(view.entry)?;
        let found = container_index.bases.get(base as usize).copied();
        found.ok_or_else(|| Error::corrupt(blob_name(&id), 0, "a base of the container index", base.to_string()))
    }
}

impl OperationSource for Resolver {
    fn view(&mut self, number: EntryNumber) -> Result<OperationView> {
        let EntryAddress::Stored { container, position } = number.address() else {
            return Err(Error::internal(format!("{number:?} is no stored entry")));
        };
        let (id, container_index) = self.container_index(container)?;
        let entry = container_index.entries.get(position as usize).copied();
        let missing = || Error::corrupt(blob_name(&id), 0, "an entry of the container index", position.to_string());
        let entry = entry.ok_or_else(missing)?;
        let whole = container_index.operations(&entry).is_empty();
        Ok(OperationView {
            entry: number,
            raw_len: entry.raw_len,
            frame: FrameNumber::stored(container, entry.frame),
            literal_offset: entry.literal_offset,
            literal_len: entry.literal_len,
            depth: entry.depth,
            operations: if whole { OperationSlice::Whole } else { OperationSlice::Stored(container_index, entry) },
        })
    }

    fn base(&mut self, view: &OperationView, base: u32, base_use: BaseUse) -> Result<EntryNumber> {
        let EntryAddress::Stored { container, .. } = view.entry.address() else {
            return Err(Error::internal(format!("{:?} is no stored entry", view.entry)));
        };
        let key = (container, base, base_use);
        if let Some(number) = self.bases.get(&key) {
            return Ok(*number);
        }
        let name = self.base_name(view, base)?;
        let located = self.locator.locate_base(&name, base_use)?;
        let located = located.ok_or_else(|| Error::ChunkMissing { fingerprint: name.fingerprint.to_string() })?;
        let number = self.number_of(&located);
        self.bases.put(key, number);
        Ok(number)
    }
}
