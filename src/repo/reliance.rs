//! What a run relies on: the listing at its start, the look before its commit, and the intent that holds it.
//!
//! 1. At the start, containers that a prune may be deleting are taken out of the listing: they answer nothing.
//! 2. A run relies on the containers that it has stored and on those whose index it has loaded, because a chunk counts
//!    as stored only if a loaded container index has it.
//! 3. Before a segment names new containers, and before the commit, the run puts an intent with all of them. Then it
//!    looks: if one of them is pending or gone, the run fails with [`Error::Pruned`], and the backup runs again. So the
//!    bases of every container that a segment names are there, and stay as long as that container.
//!    A stream cannot run again: it waits for the prune and looks again, as long as everything is still there. What is
//!    there when the entry is gone stays, because later prunes see the intent.
//! 4. After the snapshot the run looks once more: a prune may have taken its writer for dead, or a listing of intents
//!    or pending entries may have been short. If something is pending or gone, it withdraws the snapshot. If it cannot
//!    look, the snapshot stays unreported: the intents stay, and a note asks the next prune to look.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::error::{Error, ErrorKind, Result};
use crate::repo::Repository;
use crate::repo::claims::{ClaimKind, ContainerClaim, IntentNote, claim_name};
use crate::repo::container::{blob_name, parse_name};
use crate::repo::features::list_to_write;
use crate::repo::index::{ContainerListing, SharedContainerIndexes};
use crate::repo::marks::Marks;
use crate::repo::salts::{Salt, Salts};
use crate::repo::snapshot;
use crate::store::{BlobKind, BlobName, Durable, Store, StoreExt, try_map_parallel};
use crate::types::{ContainerId, SnapshotId};

/// Lists the containers that a new run may rely on, and the segments, of a repository whose marks are `marks`. Also
/// returns the containers that it leaves out, because a prune may be deleting them.
///
/// # Errors
/// Errors of the store.
pub fn take_listing(repository: &Repository, marks: Marks) -> Result<(ContainerListing, HashSet<ContainerId>)> {
    let pending = ContainerClaim::containers_of(repository.store.as_ref(), ClaimKind::Pending)?;
    let mut listing = list_to_write(repository, marks)?;
    listing.containers.retain(|id| !pending.contains(id));
    Ok((listing, pending))
}

/// Looks of a stream, at most, and the pauses between them, which grow.
const STREAM_LOOKS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(20);

/// How often a run looks before it gives way to a prune.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LookPatience {
    /// Once: it runs again.
    #[default]
    Once,
    /// As long as a stream waits, without pauses for tests.
    Stream {
        /// Whether there are pauses.
        with_pauses: bool,
    },
}

/// Numbers of containers that a look has not found safe.
struct LookedFor {
    /// They are there, and a prune may delete them.
    pending: usize,
    /// They are not there.
    gone: usize,
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
    patience: LookPatience,
}

impl Reliance {
    /// Without an intent; the run shares `container_indexes`.
    pub fn new(repository: &Repository, container_indexes: Arc<SharedContainerIndexes>) -> Self {
        let (store, salts) = (repository.store.clone(), repository.salts.clone());
        let (intents, is_in_doubt, patience) = (Mutex::default(), AtomicBool::default(), LookPatience::default());
        Reliance { store, salts, container_indexes, intents, is_in_doubt, patience }
    }

    /// The same, which looks as `patience` says.
    pub fn with_patience(self, patience: LookPatience) -> Self {
        Reliance { patience, ..self }
    }

    fn intents(&self) -> Vec<Salt> {
        self.intents.lock().clone()
    }

    fn relied_on(&self, stored: &HashSet<ContainerId>) -> HashSet<ContainerId> {
        let mut relied = self.container_indexes.loaded();
        relied.extend(stored);
        relied
    }

    /// Puts an intent for what the run relies on, of which it has `stored` some, and looks. Returns the intent's id.
    ///
    /// # Errors
    /// [`Error::Pruned`] if something of it is pending or gone; errors of the store.
    pub fn hold(&self, stored: &HashSet<ContainerId>) -> Result<Salt> {
        self.hold_with(stored, &HashSet::new())
    }

    /// The same with an intent that also has `others`, which the run is going to put. They need not be there yet, and
    /// may be pending.
    ///
    /// # Errors
    /// Errors of [`Self::hold`].
    pub fn hold_with(&self, stored: &HashSet<ContainerId>, others: &HashSet<ContainerId>) -> Result<Salt> {
        let relied = self.relied_on(stored);
        let id = self.salts.draw()?;
        // Known before it is put: after a failure it may be in the store.
        self.intents.lock().push(id);
        let all = relied.union(others).copied().collect();
        ContainerClaim::put(self.store.as_ref(), ClaimKind::Intent, &id, &all).inspect_err(|error| {
            if error.kind() == ErrorKind::ReadOnly {
                // It was refused, so it is not there.
                self.intents.lock().retain(|other| *other != id);
            }
        })?;
        self.look(&relied)?;
        Ok(id)
    }

    /// The intent, or a new one if a prune took this run for dead and broke it.
    ///
    /// # Errors
    /// Errors of [`Self::hold`].
    pub fn renew(&self, intent: Salt, stored: &HashSet<ContainerId>) -> Result<Salt> {
        let (name, listed) = (claim_name(ClaimKind::Intent, &intent), self.store.list(BlobKind::Intent.into())?);
        let has = |name: &BlobName| listed.iter().any(|listed| listed.name == *name);
        let is_whole = has(&name) && !has(&IntentNote::Broken.name(&name));
        if is_whole { Ok(intent) } else { self.hold(stored) }
    }

    /// Fails if one of these containers is pending or gone, and stays so as long as the run is patient.
    fn look(&self, relied: &HashSet<ContainerId>) -> Result<()> {
        let mut look = 1;
        loop {
            let LookedFor { pending, gone } = self.look_once(relied)?;
            let is_last = match self.patience {
                LookPatience::Once => true,
                LookPatience::Stream { .. } => look >= STREAM_LOOKS,
            };
            match pending + gone {
                0 => return Ok(()),
                count if gone > 0 || is_last => return Err(Error::Pruned { count }),
                _ => {}
            }
            let time = PAUSE.saturating_mul(1 << look).min(PAUSE_MAX);
            tracing::warn!("a prune may delete what this stream needs; waiting {:.1} s for it", time.as_secs_f64());
            if self.patience == (LookPatience::Stream { with_pauses: true }) {
                std::thread::sleep(time);
            }
            look += 1;
        }
    }

    /// Counts those of these containers that are pending, and the others that are gone. The order matters: a container
    /// leaves the store before it leaves the pending entries.
    fn look_once(&self, relied: &HashSet<ContainerId>) -> Result<LookedFor> {
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
        let pending = relied.iter().filter(|id| pending.contains(id) && !gone.contains(id)).count();
        Ok(LookedFor { pending, gone: gone.len() })
    }

    /// Whether the snapshot `id`, which names the intent `intent`, may be reported. If not, it is withdrawn.
    ///
    /// # Errors
    /// [`Error::Pruned`] if it was withdrawn; errors of the store.
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
    /// Errors of the store. The snapshot is not listed then until a prune takes its intent for dead.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{MemoryStore, ObservedStore, StoreCall, StoreObserver};

    /// A disk that is mounted read-only.
    struct ReadOnly;

    impl StoreObserver for ReadOnly {
        fn before(&self, call: StoreCall, name: &str) -> Result<u64> {
            match call {
                StoreCall::Get | StoreCall::GetRange | StoreCall::Head | StoreCall::LenOf | StoreCall::List => Ok(0),
                _ => Err(Error::unwritten("write", name, std::io::ErrorKind::ReadOnlyFilesystem)),
            }
        }
    }

    #[test]
    fn an_intent_that_was_never_put_needs_no_note() {
        let store: Arc<dyn Store> = Arc::new(ObservedStore::with(MemoryStore::new(), ReadOnly));
        let reliance = Reliance {
            store,
            salts: Salts::default(),
            container_indexes: Arc::default(),
            intents: Mutex::default(),
            is_in_doubt: AtomicBool::default(),
            patience: LookPatience::Once,
        };
        let error = reliance.hold(&HashSet::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
        assert!(reliance.intents().is_empty() && reliance.release().unwrap());
    }
}
