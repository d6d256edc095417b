//! The locator: finds the entry of a chunk, for everything that reads a repository.
//!
//! A look-up asks the container indexes used last, which answer nearly all look-ups, then the segments in any order:
//! any entry of a fingerprint serves. A hit counts only if its container is in the listing taken at the start.

use std::collections::HashSet;
use std::sync::Arc;

use super::container_indexes::ContainerIndexes;
use super::segment::{self, IndexSegment};
use crate::error::Result;
use crate::repo::container::{Base, ContainerIndex, PREFIX as CONTAINER_PREFIX, parse_name};
use crate::store::Store;
use crate::types::{ContainerId, Fingerprint};

/// Containers and segments of a repository at one moment.
pub struct ContainerListing {
    /// Ids of all containers.
    pub containers: HashSet<ContainerId>,
    /// Open segments in name order, without replaced ones.
    pub segments: Vec<Arc<IndexSegment>>,
    /// Segments that do not open, with the reason. Their containers count as unlisted.
    pub damaged: Vec<(String, crate::Error)>,
}

impl ContainerListing {
    /// Lists a repository.
    ///
    /// # Errors
    /// Those of listing the store. Segments that cannot be read are in [`Self::damaged`].
    pub fn take(store: &Arc<dyn Store>) -> Result<Self> {
        let mut listed = store.list(segment::PREFIX)?;
        listed.sort();
        let (mut segments, mut damaged) = (Vec::new(), Vec::new());
        for blob in listed {
            match IndexSegment::open_listed(store.clone(), &blob.name, blob.len) {
                Ok(segment) => segments.push(Arc::new(segment)),
                Err(error) if error.kind() == crate::error::ErrorKind::NotFound => {}
                Err(error) => damaged.push((blob.name, error)),
            }
        }
        let replaced: HashSet<String> = segments.iter().flat_map(|segment| segment.replaced().to_vec()).collect();
        segments.retain(|segment| !replaced.contains(segment.name()));
        let listed = store.list(CONTAINER_PREFIX)?;
        let containers = listed.iter().filter_map(|listed| parse_name(&listed.name)).collect();
        Ok(ContainerListing { containers, segments, damaged })
    }

    /// Containers that no segment lists, in name order.
    pub fn orphans(&self) -> Vec<ContainerId> {
        let named: HashSet<&ContainerId> = self.segments.iter().flat_map(|segment| segment.containers()).collect();
        let mut orphans: Vec<ContainerId> = self.containers.iter().filter(|id| !named.contains(id)).copied().collect();
        orphans.sort();
        orphans
    }

    /// Removes the containers that no segment lists. Readers find chunks only through segments, so nothing stored may
    /// depend on such a container: it may belong to another process, or it could not be adopted.
    pub fn forget_orphans(&mut self) {
        self.orphans().iter().for_each(|orphan| {
            self.containers.remove(orphan);
        });
    }
}

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

    /// Searches all segments. A damaged segment or container is an error only if no other has the entry.
    fn search(
        &mut self,
        fingerprint: &Fingerprint,
        fits: impl Fn(&ContainerIndex, u32) -> bool,
    ) -> Result<Option<LocatedEntry>> {
        let listing = self.listing.clone();
        let mut failure = None;
        for segment in &listing.segments {
            let found = match segment.find(fingerprint) {
                Ok(found) => found,
                Err(error) => {
                    failure = Some(error);
                    continue;
                }
            };
            for (container, entry) in found {
                if !listing.containers.contains(&container) {
                    continue;
                }
                match self.container_indexes.load(&container) {
                    Ok(container_index) if fits(&container_index, entry) => {
                        return Ok(Some(LocatedEntry { container, entry, container_index }));
                    }
                    Ok(_) => {}
                    Err(error) => failure = Some(error),
                }
            }
        }
        failure.map_or(Ok(None), Err)
    }
}
