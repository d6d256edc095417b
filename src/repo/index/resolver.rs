//! Bodies of stored containers: entry and frame numbers for [`resolve`](crate::repo::container::resolve).
//!
//! A container gets a number when it is first used; entry and frame numbers are the container's number in the upper
//! and the position in the directory in the lower 32 bits.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;

use super::locate::{Located, Locator};
use crate::error::{Error, Result};
use crate::repo::container::{
    Base, ContainerIndex, FrameInfo, OperationSlice, OperationSource, OperationView, blob_name,
};
use crate::types::ContainerId;

/// Base look-ups remembered.
const BASES_CACHED: NonZeroUsize = NonZeroUsize::new(1 << 15).expect("not zero");

/// Numbers stored entries and gives their bodies.
pub struct Resolver {
    /// Finds chunks.
    pub locator: Locator,
    containers: Vec<ContainerId>,
    numbers: HashMap<ContainerId, u32>,
    bases: LruCache<(u32, u32), u64>,
}

impl Resolver {
    /// Over the containers that `locator` sees.
    pub fn new(locator: Locator) -> Self {
        Resolver { locator, containers: Vec::new(), numbers: HashMap::new(), bases: LruCache::new(BASES_CACHED) }
    }

    fn container_number(&mut self, id: ContainerId) -> u32 {
        *self.numbers.entry(id).or_insert_with(|| {
            self.containers.push(id);
            self.containers.len() as u32 - 1
        })
    }

    /// Number of entry `entry` of a container.
    pub fn entry_number(&mut self, container: ContainerId, entry: u32) -> u64 {
        u64::from(self.container_number(container)) << 32 | u64::from(entry)
    }

    /// Number of the entry found.
    pub fn number_of(&mut self, located: &Located) -> u64 {
        self.entry_number(located.container, located.entry)
    }

    fn container_of(&self, number: u64) -> Result<ContainerId> {
        let id = self.containers.get((number >> 32) as usize).copied();
        id.ok_or_else(|| Error::corrupt("entry number", number, "a known container", (number >> 32).to_string()))
    }

    /// The directory that entry or frame `number` belongs to.
    pub fn container_index_of(&mut self, number: u64) -> Result<(ContainerId, Arc<ContainerIndex>)> {
        let id = self.container_of(number)?;
        Ok((id, self.locator.container_indexes().load(&id)?))
    }

    /// Where frame `number` is stored.
    pub fn frame_place(&mut self, number: u64) -> Result<(ContainerId, FrameInfo)> {
        let (id, container_index) = self.container_index_of(number)?;
        let info = container_index.frames.get(number as u32 as usize).copied();
        let info =
            info.ok_or_else(|| Error::corrupt(blob_name(&id), 0, "a frame of the directory", number.to_string()))?;
        Ok((id, info))
    }

    /// Name of base `base` of an entry.
    pub fn base_name(&mut self, view: &OperationView, base: u32) -> Result<Base> {
        let (id, container_index) = self.container_index_of(view.entry)?;
        let found = container_index.bases.get(base as usize).copied();
        found.ok_or_else(|| Error::corrupt(blob_name(&id), 0, "a base of the directory", base.to_string()))
    }
}

impl OperationSource for Resolver {
    fn body(&mut self, number: u64) -> Result<OperationView> {
        let (id, container_index) = self.container_index_of(number)?;
        let entry = container_index.entries.get(number as u32 as usize).copied();
        let entry =
            entry.ok_or_else(|| Error::corrupt(blob_name(&id), 0, "an entry of the directory", number.to_string()))?;
        let whole = container_index.operations(&entry).is_empty();
        Ok(OperationView {
            entry: number,
            raw_len: entry.raw_len,
            frame: number >> 32 << 32 | u64::from(entry.frame),
            literal_offset: entry.literal_offset,
            literal_len: entry.literal_len,
            depth: entry.depth,
            operations: if whole { OperationSlice::Whole } else { OperationSlice::Stored(container_index, entry) },
        })
    }

    fn base(&mut self, view: &OperationView, base: u32) -> Result<u64> {
        let key = ((view.entry >> 32) as u32, base);
        if let Some(number) = self.bases.get(&key) {
            return Ok(*number);
        }
        let name = self.base_name(view, base)?;
        let located = self.locator.locate_base(&name)?;
        let located = located.ok_or_else(|| Error::ChunkMissing { fingerprint: name.fingerprint.to_string() })?;
        let number = self.number_of(&located);
        self.bases.put(key, number);
        Ok(number)
    }
}
