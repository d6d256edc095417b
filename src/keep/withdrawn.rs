//! Snapshots that their writers have withdrawn and could not delete.
//!
//! Anybody who may put can put such a note. So a snapshot is deleted only if it is not whole, and only by a prune that
//! has announced itself and has seen no other one: another prune moves containers, so that a list of them may miss
//! some.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::mark::Marker;
use crate::error::{Error, Result};
use crate::repo::Repository;
use crate::repo::claims::IntentNote;
use crate::repo::index::ContainerListing;
use crate::repo::seen::SeenNames;
use crate::repo::snapshot::{self, NamedSnapshot};
use crate::store::{BlobKind, BlobName, Durable};

/// The notes that snapshots are withdrawn.
pub struct WithdrawnNotes {
    names: Vec<BlobName>,
}

impl WithdrawnNotes {
    /// Lists the notes. They must be listed before the snapshots: a note comes after the snapshot that it withdraws.
    ///
    /// # Errors
    /// Errors of listing the store, and of a listing that lacks what was `seen` before and is there.
    pub fn list(repository: &Repository, seen: &mut SeenNames) -> Result<Self> {
        let listed = seen.list(repository.store.as_ref(), BlobKind::Intent)?.into_iter().map(|listed| listed.name);
        Ok(WithdrawnNotes { names: listed.filter(|name| name.ends_with(IntentNote::Withdrawn.suffix())).collect() })
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Removes and returns the snapshots that a note withdraws and that are not whole. The chunks of a whole one are
    /// all in containers of `all`, or in those that are listed again: a list may miss what another prune moves
    /// meanwhile.
    ///
    /// # Errors
    /// Errors of reading.
    pub fn take_broken(
        &self,
        repository: &Repository,
        snapshots: &mut Vec<NamedSnapshot>,
        all: &Arc<ContainerListing>,
        stop: &AtomicBool,
    ) -> Result<Vec<NamedSnapshot>> {
        let is_withdrawn = |named: &NamedSnapshot| {
            named.intent_name().is_some_and(|intent| self.names.contains(&IntentNote::Withdrawn.name(&intent)))
        };
        let mut broken = Vec::new();
        for named in snapshots.extract_if(.., |named| is_withdrawn(named)).collect::<Vec<_>>() {
            let is_whole = is_whole(repository, &named, all, stop)?
                || is_whole(repository, &named, &Arc::new(ContainerListing::take(&repository.store)?), stop)?;
            if is_whole { snapshots.push(named) } else { broken.push(named) }
        }
        Ok(broken)
    }

    /// Deletes the `broken` snapshots, and then all notes.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn clean(&self, repository: &Repository, broken: &[NamedSnapshot]) -> Result<()> {
        let store = repository.store.as_ref();
        for named in broken {
            tracing::info!("snapshot {:.8}, which its backup has withdrawn, is deleted", named.id);
            snapshot::delete(store, &named.id)?;
        }
        self.names.iter().try_for_each(|name| store.delete(name, Durable::OnReturn))
    }
}

/// Whether all chunks of a snapshot are in containers of `all`.
fn is_whole(
    repository: &Repository,
    named: &NamedSnapshot,
    all: &Arc<ContainerListing>,
    stop: &AtomicBool,
) -> Result<bool> {
    match Marker::new(repository, all.clone(), all.clone(), stop).snapshot(named) {
        Ok(()) => Ok(true),
        Err(Error::Mark { reason, .. })
            if matches!(*reason, Error::ChunkMissing { .. } | Error::BlobMissing { .. }) =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}
