//! The locator: finds the entry of a chunk, for everything that reads a repository.
//!
//! A look-up asks the container indexes used last, which answer nearly all look-ups, then the listing: any entry of a
//! fingerprint serves. A hit counts only if its container is in the listing taken at the start.

use std::sync::Arc;

use super::container_indexes::ContainerIndexes;
use super::listing::ContainerListing;
use crate::error::Result;
use crate::repo::container::{Base, ContainerIndex};
use crate::types::{ContainerId, Fingerprint};

/// An entry that a look-up found.
#[derive(Clone)]
pub struct LocatedEntry {
    /// The container.
    pub container: ContainerId,
    /// Position of the entry in the container index.
    pub entry: u32,
    /// The container index.
    pub container_index: Arc<ContainerIndex>,
}

/// Finds chunks among the containers of a listing.
pub struct Locator {
    listing: Arc<ContainerListing>,
    container_indexes: ContainerIndexes,
}

impl Locator {
    /// A locator for the containers of `listing`; `container_indexes` caches their container indexes.
    pub fn new(listing: Arc<ContainerListing>, container_indexes: ContainerIndexes) -> Self {
        Locator { listing, container_indexes }
    }

    /// The cache of container indexes.
    pub fn container_indexes(&mut self) -> &mut ContainerIndexes {
        &mut self.container_indexes
    }

    /// The listing.
    pub fn listing(&self) -> &Arc<ContainerListing> {
        &self.listing
    }

    /// Any entry of a fingerprint.
    pub fn locate(&mut self, fingerprint: &Fingerprint) -> Result<Option<LocatedEntry>> {
        if let Some((container, container_index, entry)) =
            self.container_indexes.find_cached(|container_index| container_index.find(fingerprint))
        {
            return Ok(Some(LocatedEntry { container, entry, container_index }));
        }
        self.search(fingerprint, |container_index, entry| {
            container_index.entries.get(entry as usize).is_some_and(|entry| entry.fingerprint == *fingerprint)
        })
    }

    /// The entry with exactly these operations.
    pub fn locate_base(&mut self, base: &Base) -> Result<Option<LocatedEntry>> {
        if let Some((container, container_index, entry)) =
            self.container_indexes.find_cached(|container_index| container_index.find_encoding(base))
        {
            return Ok(Some(LocatedEntry { container, entry, container_index }));
        }
        self.search(&base.fingerprint, |container_index, entry| {
            let entry = container_index.entries.get(entry as usize);
            entry.is_some_and(|entry| {
                entry.fingerprint == base.fingerprint && container_index.digest(entry) == base.digest
            })
        })
    }

    /// Searches the listing. A damaged container is an error only if no other has the entry.
    fn search(
        &mut self,
        fingerprint: &Fingerprint,
        fits: impl Fn(&ContainerIndex, u32) -> bool,
    ) -> Result<Option<LocatedEntry>> {
        let (mut failure, container_indexes) = (None, &mut self.container_indexes);
        let found = self.listing.search(fingerprint, |container, entry| match container_indexes.load(&container) {
            Ok(container_index) if fits(&container_index, entry) => {
                Some(LocatedEntry { container, entry, container_index })
            }
            Ok(_) => None,
            Err(error) => {
                failure = Some(error);
                None
            }
        })?;
        match (found, failure) {
            (None, Some(error)) => Err(error),
            (found, _) => Ok(found),
        }
    }
}
