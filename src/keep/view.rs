//! What a prune decides by.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::withdrawn::WithdrawnNotes;
use crate::error::{Error, Result};
use crate::repo::Repository;
use crate::repo::index::{ContainerListing, cache_container_indexes};
use crate::repo::snapshot::{self, NamedSnapshot};
use crate::types::{ContainerId, SnapshotId};

/// The snapshots and containers at one moment.
pub struct View {
    /// The snapshots that stay.
    pub snapshots: Vec<NamedSnapshot>,
    /// Notes that snapshots are withdrawn.
    pub notes: WithdrawnNotes,
    /// Those that are, and that are not whole.
    pub withdrawn: Vec<NamedSnapshot>,
    /// All containers.
    pub all: Arc<ContainerListing>,
    /// The containers that stay.
    pub retained: Arc<ContainerListing>,
}

impl View {
    /// Lists notes of writers, then snapshots, then containers. The snapshots `forgotten` do not count, and the
    /// containers `leaving` do not stay.
    ///
    /// # Errors
    /// [`Error::Mark`] for a snapshot that cannot be read; those of the store.
    pub fn take(
        repository: &Repository,
        forgotten: &[SnapshotId],
        leaving: &HashSet<ContainerId>,
        stop: &AtomicBool,
    ) -> Result<View> {
        let store = &repository.store;
        let notes = WithdrawnNotes::list(repository)?;
        let (mut snapshots, damaged) = snapshot::list(store.as_ref())?;
        snapshots.retain(|named| !forgotten.contains(&named.id));
        if let Some((name, error)) = damaged.into_iter().next() {
            return Err(Error::Mark { snapshot: name, reason: Box::new(error) });
        }
        let listing = ContainerListing::take(store)?.with_salts(&repository.salts);
        cache_container_indexes(store.as_ref(), &listing.containers)?;
        // What segments miss must not be taken for absent.
        listing.prove_segments()?;
        let retained = Arc::new(listing.without(leaving));
        let all = Arc::new(listing);
        let withdrawn = notes.take_broken(repository, &mut snapshots, &all, stop)?;
        Ok(View { snapshots, notes, withdrawn, all, retained })
    }
}
