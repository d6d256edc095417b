//! What a prune decides by.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::withdrawn::UnreportedIntents;
use crate::error::{Error, Result};
use crate::repo::Repository;
use crate::repo::container::blob_name;
use crate::repo::features::list_to_write;
use crate::repo::index::{ContainerListing, cache_container_indexes};
use crate::repo::marks::{BadParts, Marks, Quarantine};
use crate::repo::overwritten::check_overwritten;
use crate::repo::reads::ReadLedger;
use crate::repo::seen::SeenNames;
use crate::repo::snapshot::{self, NamedSnapshot};
use crate::store::{BlobKind, BlobName};
use crate::types::{ContainerId, SnapshotId};

/// The snapshots and containers at one moment.
pub struct View {
    /// The snapshots that stay.
    pub snapshots: Vec<NamedSnapshot>,
    /// The intents whose snapshots nobody has reported.
    pub intents: UnreportedIntents,
    /// Their snapshots that are not whole.
    pub lacking: Vec<NamedSnapshot>,
    /// All containers.
    pub all: Arc<ContainerListing>,
    /// The containers that stay.
    pub retained: Arc<ContainerListing>,
}

impl View {
    /// Whether no segment names a container that stays.
    pub fn is_orphan(&self, id: &ContainerId) -> bool {
        self.retained.orphans().contains(id)
    }

    /// Lists intents and their notes, then snapshots, then containers. The snapshots `forgotten` do not count, and the
    /// containers `leaving` do not stay. Adds the names of notes and snapshots to `seen`.
    ///
    /// # Errors
    /// [`Error::Mark`] for a snapshot that cannot be read; the error of a mark of bad bytes that cannot be read;
    /// [`Error::Unreadable`] if a listing lacks what was seen before and is there; errors of the store.
    pub fn take(
        repository: &Repository,
        forgotten: &[SnapshotId],
        leaving: &HashSet<ContainerId>,
        seen: &mut SeenNames,
        stop: &AtomicBool,
    ) -> Result<View> {
        let store = &repository.store;
        let intents = UnreportedIntents::list(repository, seen)?;
        let (mut snapshots, damaged) = snapshot::list(store.as_ref())?;
        let listed = snapshots.iter().map(|named| snapshot::blob_name(&named.id));
        let unread = damaged.iter().filter_map(|(name, _)| BlobName::parse(name).ok());
        let listed: Vec<BlobName> = listed.chain(unread).collect();
        seen.check(store.as_ref(), BlobKind::Snapshot, listed)?;
        snapshots.retain(|named| !forgotten.contains(&named.id));
        if let Some((name, error)) = damaged.into_iter().next() {
            let id = snapshot::parse_name(&name).map_or(name, |id| id.to_string());
            return Err(Error::Mark { snapshot: id, reason: Box::new(error) });
        }
        let marks = Marks::read(store.as_ref())?;
        seen.check(store.as_ref(), BlobKind::Mark, marks.names.iter().cloned())?;
        // What such a mark lists seems to be sound, and what was stored in its place not to be needed.
        if let Some((name, error)) = marks.unread().next() {
            tracing::warn!("{name} cannot be read; if that stays so, run `fhrd check --read-data`");
            return Err(error.duplicate());
        }
        let mut listing = list_to_write(repository, marks)?;
        doubt_unmarked(repository, &listing)?;
        // It may lack others, and what these copy from seems not to be needed.
        if let Some(id) = listing.add_unlisted()?.first() {
            return Err(Error::unlisted(blob_name(id)));
        }
        cache_container_indexes(store.as_ref(), &listing.containers)?;
        // What segments miss must not be taken for absent.
        listing.prove_segments()?;
        // Readers are given the right bytes. If what lies there is all that there is of another snapshot, that one
        // seems to be forgotten.
        repository.parity.healed().iter().try_for_each(|name| check_overwritten(repository, name))?;
        let retained = Arc::new(listing.without(leaving));
        let all = Arc::new(listing);
        let lacking = intents.take_lacking(repository, &mut snapshots, &all, stop)?;
        Ok(View { snapshots, intents, lacking, all, retained })
    }
}

/// Lets the users of `listing` doubt the containers that were damaged when they were read last, although no mark lists
/// them: the marks are lost, and what was stored in place of bad bytes must not seem to be a second copy.
fn doubt_unmarked(repository: &Repository, listing: &ContainerListing) -> Result<()> {
    let ledger = ReadLedger::load(repository.store.as_ref(), repository.clock.now_ns())?;
    let mut bad = Quarantine::clone(&listing.quarantine());
    let unmarked = ledger.unmarked(&listing.containers, &bad);
    unmarked.iter().for_each(|id| bad.insert(*id, &BadParts::Whole));
    if !unmarked.is_empty() {
        tracing::warn!("{} damaged containers are in no mark; run `fhrd check --read-data`", unmarked.len());
        listing.set_quarantine(bad.into());
    }
    Ok(())
}
