//! Directories of containers that could not be listed. What is in one is unread: never absent, lost or replaced.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;

use super::segment::IndexSegment;
use crate::error::{Error, Result};
use crate::repo::container::{blob_name, parse_name};
use crate::store::{BlobKind, BlobPrefix, ListedBlob, Store};
use crate::types::ContainerId;

/// Directories of containers, below the one of all of them.
const DIRECTORIES: usize = 1 << u8::BITS;

/// Directories that could not be listed, with the reason of each.
pub(super) type Unlistable = BTreeMap<String, Error>;

/// What a run knows of directories of containers that could not be listed, now or earlier.
#[derive(Default)]
pub(super) struct UnlistableDirectories(Mutex<Unlistable>);

impl UnlistableDirectories {
    /// Adds directories.
    pub(super) fn add(&self, found: Unlistable) {
        let mut known = self.0.lock();
        found.into_iter().for_each(|(directory, error)| {
            known.entry(directory).or_insert(error);
        });
    }

    /// All of them, by name.
    pub(super) fn all(&self) -> Unlistable {
        let known = self.0.lock();
        known.iter().map(|(directory, error)| (directory.clone(), error.duplicate())).collect()
    }

    /// Number of them.
    pub(super) fn count(&self) -> usize {
        self.0.lock().len()
    }

    /// Why one of them could not be listed.
    pub(super) fn error(&self) -> Option<Error> {
        self.0.lock().values().next().map(Error::duplicate)
    }
}

/// The containers of a store. In a directory that cannot be listed, those that `segments` name and that can be found by
/// name. Also returns these directories.
pub(super) fn list_containers(
    store: &Arc<dyn Store>,
    segments: &[&IndexSegment],
) -> Result<(HashSet<ContainerId>, Unlistable)> {
    let parsed = |listed: Vec<ListedBlob>| listed.into_iter().filter_map(|listed| parse_name(&listed.name));
    let error = match store.list(BlobKind::Container.into()) {
        Err(error @ Error::Unreadable { .. }) => error,
        listed => return Ok((parsed(listed?).collect(), Unlistable::new())),
    };
    tracing::warn!("{error}; containers in it are found through index segments only");
    let (mut containers, mut unlistable) = (HashSet::new(), Unlistable::new());
    for directory in 0..=u8::MAX {
        let prefix = BlobPrefix::Containers(directory);
        match store.list(prefix) {
            Ok(listed) => containers.extend(parsed(listed)),
            Err(error @ Error::Unreadable { .. }) => {
                let named = segments.iter().flat_map(|segment| segment.containers());
                for id in named.filter(|id| id.0.first() == Some(&directory)) {
                    // What cannot be looked at is not absent.
                    if !matches!(store.head(&blob_name(id)), Ok(None)) {
                        containers.insert(*id);
                    }
                }
                unlistable.insert(prefix.directory(), error);
            }
            Err(error) => return Err(error),
        }
    }
    // None of them, or each: it is the directory above.
    if unlistable.is_empty() || unlistable.len() == DIRECTORIES {
        unlistable = Unlistable::from([(BlobKind::Container.to_string(), error)]);
    }
    Ok((containers, unlistable))
}
