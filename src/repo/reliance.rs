//! What a run relies on: the listing at its start, the look before its commit, and the intent that holds it.
//!
//! 1. At the start, containers that a prune may be deleting are taken out of the listing: they answer nothing.
//! 2. A run relies on the containers that it has stored and on those whose index it has loaded, because a chunk counts
//!    as stored only if a loaded container index has it.
//! 3. Before a segment names new containers, and before the commit, the run puts an intent with all of them. Then it
//!    looks: if one of them is pending or gone, the run fails with [`Error::Pruned`], and the backup runs again. So the
//!    bases of every container that a segment names are there, and stay as long as that container.
//! 4. After the snapshot the run looks once more: a prune may have taken its writer for dead, or a listing of intents
//!    or pending entries may have been short. If something is pending or gone, it withdraws the snapshot. If it cannot
//!    look, the snapshot stays unreported: the intents stay, and a note asks the next prune to look.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::repo::Repository;
use crate::repo::claims::{ClaimKind, ContainerClaim, IntentNote, claim_name};
use crate::repo::container::{blob_name, parse_name};
use crate::repo::index::{ContainerListing, SharedContainerIndexes};
use crate::repo::marks::Marks;
use crate::repo::salts::{Salt, Salts};
use crate::repo::snapshot;
use crate::store::{BlobKind, Durable, Store, StoreExt, try_map_parallel};
use crate::types::{ContainerId, SnapshotId};

/// Lists the containers that a new run may rely on, and the segments, of a repository whose marks are `marks`. Also
/// returns the containers that it leaves out, because a prune may be deleting them.
///
/// # Errors
/// Those of the store.
pub fn take_listing(repository: &Repository, marks: Marks) -> Result<(ContainerListing, HashSet<ContainerId>)> {
    let pending = ContainerClaim::containers_of(repository.store.as_ref(), ClaimKind::Pending)?;
    let mut listing = ContainerListing::take_with(&repository.store, marks)?.with_salts(&repository.salts);
    listing.containers.retain(|id| !pending.contains(id));
    Ok((listing, pending))
}

/// The intents of one run.
pub struct Reliance {
    store: Arc<dyn Store>,
    salts: Salts,
    container_indexes: Arc<SharedContainerIndexes>,
    /// Ids of the intents put so far. Earlier ones stay to the end: a listing that runs meanwhile could miss both the
    /// old and the new one.
    intents: Mutex<Vec<Salt>>,
    /// Nobody knows whether the snapshot of this run is whole.
    is_in_doubt: AtomicBool,
}

impl Reliance {
    /// Without an intent; the run shares `container_indexes`.
    pub fn new(repository: &Repository, container_indexes: Arc<SharedContainerIndexes>) -> Self {
        let (store, salts) = (repository.store.clone(), repository.salts.clone());
        Reliance { store, salts, container_indexes, intents: Mutex::default(), is_in_doubt: AtomicBool::default() }
    }

    fn intents(&self) -> Vec<Salt> {
        self.intents.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn relied_on(&self, stored: &HashSet<ContainerId>) -> HashSet<ContainerId> {
        let mut relied = self.container_indexes.loaded();
        relied.extend(stored);
        relied
    }

    /// Puts an intent for what the run relies on, of which it has `stored` some, and looks. Returns the intent's id.
    ///
    /// # Errors
    /// [`Error::Pruned`] if something of it is pending or gone; those of the store.
    pub fn hold(&self, stored: &HashSet<ContainerId>) -> Result<Salt> {
        let relied = self.relied_on(stored);
        let id = self.salts.draw()?;
        // Known before it is put: after a failure it may be in the store.
        self.intents.lock().unwrap_or_else(PoisonError::into_inner).push(id);
        ContainerClaim::put(self.store.as_ref(), ClaimKind::Intent, &id, &relied)?;
        self.look(&relied)?;
        Ok(id)
    }

    /// The intent, or a new one if a prune took this run for dead and deleted it.
    ///
    /// # Errors
    /// As of [`Self::hold`].
    pub fn renew(&self, intent: Salt, stored: &HashSet<ContainerId>) -> Result<Salt> {
        match self.store.head(&claim_name(ClaimKind::Intent, &intent))? {
            Some(_) => Ok(intent),
            None => self.hold(stored),
        }
    }

    /// Fails if one of these containers is pending or gone. The order matters: a container leaves the store before it
    /// leaves the pending entries.
    fn look(&self, relied: &HashSet<ContainerId>) -> Result<()> {
        let store = self.store.as_ref();
        let pending = ContainerClaim::containers_of(store, ClaimKind::Pending)?;
        let listed: HashSet<ContainerId> = match store.list(BlobKind::Container.into()) {
            Ok(listed) => listed.iter().filter_map(|listed| parse_name(&listed.name)).collect(),
            Err(Error::Unreadable { .. }) => HashSet::new(),
            Err(error) => return Err(error),
        };
        // What a listing lacks is asked for by its name.
        let unlisted: Vec<&ContainerId> = relied.iter().filter(|id| !listed.contains(id)).collect();
        let heads = try_map_parallel(store.requests_max(), &unlisted, |id| store.head(&blob_name(id)))?;
        let gone: HashSet<&ContainerId> =
            unlisted.iter().zip(heads).filter(|(_, head)| head.is_none()).map(|(id, _)| *id).collect();
        match relied.iter().filter(|id| pending.contains(id) || gone.contains(id)).count() {
            0 => Ok(()),
            count => Err(Error::Pruned { count }),
        }
    }

    /// Whether the snapshot `id`, which names the intent `intent`, may be reported. If not, it is withdrawn.
    ///
    /// # Errors
    /// [`Error::Pruned`] if it was withdrawn; those of the store.
    pub fn confirm(&self, snapshot: &SnapshotId, intent: &Salt, stored: &HashSet<ContainerId>) -> Result<()> {
        let intent = claim_name(ClaimKind::Intent, intent);
        let looked = self.look(&self.relied_on(stored));
        let taken_back = match &looked {
            Ok(()) => return Ok(()),
            Err(Error::Pruned { .. }) => snapshot::delete(self.store.as_ref(), snapshot)
                .or_else(|_| IntentNote::Withdrawn.put(self.store.as_ref(), &intent)),
            // A prune deletes the snapshot only if it is not whole.
            Err(_) => {
                self.is_in_doubt.store(true, Ordering::Relaxed);
                IntentNote::Withdrawn.put(self.store.as_ref(), &intent)
            }
        };
        if let Err(error) = taken_back {
            self.is_in_doubt.store(true, Ordering::Relaxed);
            tracing::warn!("snapshot {snapshot:.8} may lack data, and could not be withdrawn: {error}");
        }
        looked
    }

    /// Deletes the intents, unless the snapshot is in doubt. Otherwise it is reported, or the run has failed before it.
    /// Returns `false` if the store does not let this writer delete. Then a note says that they may go.
    ///
    /// # Errors
    /// Those of the store. The snapshot is not listed then until a prune takes its intent for dead.
    pub fn release(&self) -> Result<bool> {
        if self.is_in_doubt.load(Ordering::Relaxed) {
            return Ok(true);
        }
        let mut may_delete = true;
        for id in self.intents() {
            let intent = claim_name(ClaimKind::Intent, &id);
            if let Err(error) = self.store.delete(&intent, Durable::OnReturn) {
                may_delete = false;
                tracing::debug!("{intent} is left to a prune: {error}");
                IntentNote::Released.put(self.store.as_ref(), &intent)?;
            }
        }
        Ok(may_delete)
    }
}
