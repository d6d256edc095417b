//! Whether snapshots have all that they need.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::looks::digest_of_names;
use super::mark::Marker;
use crate::error::{Error, Result};
use crate::repo::Repository;
use crate::repo::index::{ContainerListing, is_anything_bad};
use crate::repo::pause::pause;
use crate::repo::snapshot::{self, NamedSnapshot};
use crate::types::SnapshotId;

/// Looks for what snapshots need, at most.
const LOOKS_MAX: u32 = 8;
/// The pause after the first look, which grows with each.
const PAUSE: Duration = Duration::from_millis(100);

/// Whether every snapshot has all that it needs. Then a container that is missing was deleted by a prune, which writes
/// the segments again only after that. Looks again if something is not found while others change the repository.
///
/// # Errors
/// Errors of the store that are not damage.
pub fn is_everything_there(repository: &Repository, stop: &AtomicBool) -> Result<bool> {
    for look in 1..=LOOKS_MAX {
        let before = digest_of_names(repository.store.as_ref())?;
        if finds_everything(repository, stop)? {
            return Ok(true);
        }
        if digest_of_names(repository.store.as_ref())? == before {
            break;
        }
        tracing::debug!("something is not found, and the repository has changed meanwhile; looking again");
        pause(PAUSE * look, stop)?;
    }
    Ok(false)
}

/// The ones among `snapshots` that lack something, with the reason. None is looked at if nothing is known to be bad or
/// missing.
///
/// # Errors
/// Errors of the store that are not damage.
pub fn lacking_snapshots<'a>(
    repository: &Repository,
    snapshots: impl Iterator<Item = &'a NamedSnapshot>,
    stop: &Arc<AtomicBool>,
) -> Result<HashMap<SnapshotId, Error>> {
    let repository = &repository.stopped_by(stop);
    let listing = Arc::new(ContainerListing::take(&repository.store)?);
    let mut lacking = HashMap::new();
    if !is_anything_bad(&listing)? {
        return Ok(lacking);
    }
    let new_marker = || Marker::new(repository, listing.clone(), listing.clone(), stop);
    let mut marker = new_marker();
    for named in snapshots {
        match marker.snapshot(named) {
            Err(error) if error.is_unreadable() => {
                lacking.insert(named.id, error);
                // It takes the directories of this one for walked.
                marker = new_marker();
            }
            marked => marked?,
        }
    }
    Ok(lacking)
}

/// Whether one look finds all that snapshots need.
fn finds_everything(repository: &Repository, stop: &AtomicBool) -> Result<bool> {
    let store = repository.store.as_ref();
    let (snapshots, damaged) = snapshot::list(store)?;
    if !damaged.is_empty() {
        return Ok(false);
    }
    let listing = Arc::new(ContainerListing::take(&repository.store)?);
    let mut marker = Marker::new(repository, listing.clone(), listing, stop);
    for named in snapshots {
        match marker.snapshot(&named) {
            // What nobody needs any more is not lost.
            Err(error) if error.is_unavailable() && snapshot::is_forgotten(store, &named.id)? => {}
            Err(error) if error.is_unavailable() => return Ok(false),
            marked => marked?,
        }
    }
    Ok(true)
}
