//! Snapshots that nobody reports: their writers have withdrawn them and could not delete them, or count as dead.
//!
//! Anybody who may put can put such a note. So a snapshot is deleted only if it is not whole, and only by a prune that
//! has announced itself and has seen no other one: another prune moves containers, so that a list of them may miss
//! some.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::mark::Marker;
use super::view::View;
use crate::error::{Error, ErrorKind, Result};
use crate::repo::Repository;
use crate::repo::claims::IntentNote;
use crate::repo::index::ContainerListing;
use crate::repo::overwritten::delete_snapshot;
use crate::repo::seen::SeenNames;
use crate::repo::snapshot::{self, NamedSnapshot};
use crate::store::{BlobKind, BlobName, Durable};

/// The intents whose snapshots nobody has reported, by what their notes say.
pub struct UnreportedIntents {
    /// The intents of withdrawn snapshots. They may be gone.
    withdrawn: HashSet<BlobName>,
    /// The intents that a prune has broken, and that are there.
    broken: HashSet<BlobName>,
}

impl UnreportedIntents {
    /// Lists them. They must be listed before the snapshots: a note of a writer comes after the snapshot that it
    /// withdraws.
    ///
    /// # Errors
    /// Errors of listing the store, and of a listing that lacks what was `seen` before and is there.
    pub fn list(repository: &Repository, seen: &mut SeenNames) -> Result<Self> {
        let listed = seen.list(repository.store.as_ref(), BlobKind::Intent)?;
        let names: HashSet<BlobName> = listed.into_iter().map(|listed| listed.name).collect();
        let with = |note: IntentNote| names.iter().filter_map(move |name| note.intent_of(name));
        let broken = with(IntentNote::Broken).filter(|intent| names.contains(intent)).collect();
        Ok(UnreportedIntents { withdrawn: with(IntentNote::Withdrawn).collect(), broken })
    }

    /// Whether a prune that is alone has to do something about the snapshots under them, of which these are all.
    pub fn need_prune<'a>(&self, mut snapshots: impl Iterator<Item = &'a NamedSnapshot>) -> bool {
        !self.withdrawn.is_empty() || snapshots.any(|named| self.has(named))
    }

    /// Whether `named` is the snapshot of one of them.
    fn has(&self, named: &NamedSnapshot) -> bool {
        named.intent_name().is_some_and(|intent| self.withdrawn.contains(&intent) || self.broken.contains(&intent))
    }

    /// The intents that are broken and there.
    pub fn broken(&self) -> impl Iterator<Item = &BlobName> {
        self.broken.iter()
    }

    /// Removes and returns the snapshots under withdrawn and broken intents that are not whole. The chunks of a whole
    /// one are all in containers of `all`, or in those that are listed again: a list may miss what another prune moves
    /// meanwhile.
    ///
    /// # Errors
    /// Errors of reading.
    pub fn take_lacking(
        &self,
        repository: &Repository,
        snapshots: &mut Vec<NamedSnapshot>,
        all: &Arc<ContainerListing>,
        stop: &AtomicBool,
    ) -> Result<Vec<NamedSnapshot>> {
        let mut lacking = Vec::new();
        for named in snapshots.extract_if(.., |named| self.has(named)).collect::<Vec<_>>() {
            let is_whole = is_whole(repository, &named, all, stop)?
                || is_whole(repository, &named, &Arc::new(ContainerListing::take(&repository.store)?), stop)?;
            if is_whole { snapshots.push(named) } else { lacking.push(named) }
        }
        Ok(lacking)
    }

    /// Deletes the snapshots of `view` that lack data, then all notes that snapshots are withdrawn, and the broken
    /// intents with a snapshot: it was one of these, or it counts from now on. Broken intents without one go if they
    /// are `expired`. Before each snapshot it looks with `check_alone`, and whether that is still unreported.
    ///
    /// # Errors
    /// Errors of `check_alone` and of the store.
    pub fn clean(
        &self,
        repository: &Repository,
        view: &View,
        expired: &HashSet<BlobName>,
        check_alone: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let store = repository.store.as_ref();
        let mut first = Ok(());
        for named in &view.lacking {
            if snapshot::is_reported(store, named)? {
                continue;
            }
            check_alone()?;
            tracing::warn!("snapshot {:.8}, which its backup has not reported, lacks data and is deleted", named.id);
            match delete_snapshot(repository, &named.id) {
                // All that there is of another blob lies there.
                Err(error) if error.kind() == ErrorKind::Damaged => {
                    first = first.and(Err(Error::Usage(error.to_string())))
                }
                deleted => deleted?,
            }
        }
        // Without the note one that stays would count.
        first?;
        let delete = |name: BlobName| store.delete(&name, Durable::OnReturn);
        self.withdrawn.iter().try_for_each(|intent| delete(IntentNote::Withdrawn.name(intent)))?;
        let with_snapshot: HashSet<BlobName> =
            view.lacking.iter().chain(&view.snapshots).filter_map(NamedSnapshot::intent_name).collect();
        let is_over = |intent: &&BlobName| with_snapshot.contains(*intent) || expired.contains(*intent);
        for intent in self.broken.iter().filter(is_over) {
            delete(intent.clone())?;
            delete(IntentNote::Broken.name(intent))?;
        }
        Ok(())
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
