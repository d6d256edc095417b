//! Containers that segments name and that are not there, although no prune has deleted them.
//!
//! As long as a segment names such a container, writers know that what copies from it is lost, too. Whoever writes the
//! segments again without it leaves a mark in their place.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use super::listing::ContainerListing;
use crate::error::{Error, Result};
use crate::repo::claims::{ClaimKind, ContainerClaim};
use crate::repo::container::{blob_name, parse_name};
use crate::repo::marks::{BadParts, Mark, MarkKind, Quarantine};
use crate::store::{BlobKind, StoreExt, map_parallel};
use crate::types::ContainerId;

/// Pauses before further looks. A writer may put a segment that names what a prune has deleted since, and takes it back
/// within moments.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(100)];

/// Containers that segments name and the listing lacks.
#[derive(Debug, Default)]
pub struct MissingContainers {
    /// Containers that are gone.
    pub lost: BTreeSet<ContainerId>,
    /// Containers that are gone, and of which a record says that a prune has deleted them: the writer of a broken
    /// intent has put a segment later. They are no damage, but what copies from them lacks data all the same, and
    /// anybody who may put can forge the record. So writers take them for lost.
    pub pruned: BTreeSet<ContainerId>,
    /// Containers that can be found by name, or not be looked at: a listing of their directory was not complete.
    pub unlisted: BTreeSet<ContainerId>,
}

/// The missing containers that no mark lists. A running or killed prune names in its pending entry what it deletes, and
/// removes that entry only once no segment names them. If a pending entry cannot be read, none counts as lost.
///
/// # Errors
/// Errors of the store.
pub fn missing_containers(listing: &ContainerListing) -> Result<MissingContainers> {
    let (quarantine, segments) = (listing.quarantine(), listing.segments());
    let is_gone = |id: &&ContainerId| !listing.has(id) && quarantine.of(id) != Some(&BadParts::Whole);
    let gone: HashSet<ContainerId> =
        segments.iter().flat_map(|segment| segment.containers()).filter(is_gone).copied().collect();
    if gone.is_empty() {
        return Ok(MissingContainers::default());
    }
    let mut missing = lost_of(listing, &gone)?.unwrap_or_default();
    for pause in PAUSES {
        if missing.is_empty() {
            break;
        }
        std::thread::sleep(pause);
        missing = lost_of(listing, &gone)?.unwrap_or_default();
    }
    // What cannot be looked at is not lost.
    let is_lost = |id: &ContainerId| matches!(listing.store().head(&blob_name(id)), Ok(None));
    let (gone, unlisted): (BTreeSet<ContainerId>, _) = missing.into_iter().partition(is_lost);
    let recorded = if gone.is_empty() { HashSet::new() } else { ContainerClaim::pruned(listing.store().as_ref())? };
    let (pruned, lost) = gone.into_iter().partition(|id| recorded.contains(id));
    Ok(MissingContainers { lost, pruned, unlisted })
}

/// The containers of `gone` that segments still name and that no prune deletes; `None` if a pending entry cannot be
/// read, so that nobody can tell.
///
/// # Errors
/// Errors of the store.
pub(super) fn lost_of(
    listing: &ContainerListing,
    gone: &HashSet<ContainerId>,
) -> Result<Option<BTreeSet<ContainerId>>> {
    if gone.is_empty() {
        return Ok(Some(BTreeSet::new()));
    }
    // The order matters: see [`missing_containers`].
    let (pending, unreadable) = ContainerClaim::list_with_damaged(listing.store().as_ref(), ClaimKind::Pending)?;
    if !unreadable.is_empty() {
        return Ok(None);
    }
    let segments = listing.refresh()?;
    let named: HashSet<&ContainerId> = segments.iter().flat_map(|segment| segment.containers()).collect();
    let is_pending = |id: &ContainerId| pending.iter().any(|claim| claim.containers.binary_search(id).is_ok());
    Ok(Some(gone.iter().filter(|id| named.contains(id) && !is_pending(id)).copied().collect()))
}

/// Whether anything is known to be bad, or is missing or cannot be listed. If not, a prune has deleted what nobody
/// finds.
///
/// # Errors
/// Errors of the store.
pub fn is_anything_bad(listing: &ContainerListing) -> Result<bool> {
    if listing.is_doubtful() || listing.marks_unread() > 0 {
        return Ok(true);
    }
    let MissingContainers { lost, pruned, unlisted } = missing_containers(listing)?;
    Ok(!lost.is_empty() || !pruned.is_empty() || !unlisted.is_empty())
}

/// Fails if more containers are missing than are there: those that segments name, and `given_up` others that marks
/// list. Most of them are rarely lost. More often their file system is not mounted, and a run has written into its
/// mount point.
///
/// # Errors
/// [`Error::Usage`] then; errors of the store.
pub fn check_most_there(listing: &ContainerListing, given_up: usize) -> Result<()> {
    let there = listing.containers.len();
    let missing = missing_containers(listing)?.lost.len() + given_up;
    if missing <= there {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "{missing} of {} containers are missing: look whether the file system of the directory `containers` is \
         mounted. Nothing was changed. If they are lost for good, say --allow-no-containers",
        there + missing
    )))
}

/// Containers that somebody has looked for. What could not be looked at is in neither set.
pub(super) struct SoughtContainers {
    pub(super) there: HashSet<ContainerId>,
    pub(super) gone: HashSet<ContainerId>,
}

/// Looks for `containers` in the store.
///
/// # Errors
/// Errors of listing the store, and those that end all reading.
pub(super) fn seek(listing: &ContainerListing, containers: &HashSet<ContainerId>) -> Result<SoughtContainers> {
    let mut sought = SoughtContainers { there: HashSet::new(), gone: HashSet::new() };
    if containers.is_empty() {
        return Ok(sought);
    }
    let store = listing.store();
    let listed: HashSet<ContainerId> = match store.list(BlobKind::Container.into()) {
        Err(Error::Unreadable { .. }) => HashSet::new(),
        listed => listed?.iter().filter_map(|listed| parse_name(&listed.name)).collect(),
    };
    sought.there.extend(containers.intersection(&listed));
    // A listing may lack what is there.
    let unlisted: Vec<ContainerId> = containers.difference(&listed).copied().collect();
    let heads = map_parallel(store.requests_max(), &unlisted, |id| store.head(&blob_name(id)));
    for (id, head) in unlisted.into_iter().zip(heads) {
        match head {
            Ok(Some(_)) => _ = sought.there.insert(id),
            Ok(None) => _ = sought.gone.insert(id),
            Err(error) if error.stops_reading() => return Err(error),
            Err(error) => tracing::debug!("{error}"),
        }
    }
    Ok(sought)
}

/// Puts a mark that the lost containers are bad, for whoever is about to write segments without them.
///
/// # Errors
/// Errors of the store.
pub fn give_up_lost_containers(listing: &ContainerListing) -> Result<()> {
    let MissingContainers { lost, pruned, .. } = missing_containers(listing)?;
    if lost.is_empty() && pruned.is_empty() {
        return Ok(());
    }
    let mut known = Quarantine::clone(&listing.quarantine());
    let mut bad = Quarantine::default();
    lost.iter().chain(&pruned).for_each(|id| bad.insert(*id, &BadParts::Whole));
    Mark::new(MarkKind::Quarantine(bad.clone()), "containers are missing").save(listing.store().as_ref())?;
    known.merge(&bad);
    listing.set_quarantine(known.into());
    if !lost.is_empty() {
        tracing::warn!("{} containers are missing; a mark says so now", lost.len());
    }
    Ok(())
}
