//! A repository whose containers are away, as where their disk is not mounted and its mount point is empty, or has only
//! what a backup has written there since. Some of them may be lost; that most of them are is more likely a mistake.

use super::returned;
use super::snapshots::{SnapshotRepair, SnapshotsReport};
use crate::error::{Error, Result};
use crate::repo::index::{ContainerListing, check_most_there};
use crate::repo::read::ChunkReader;
use crate::repo::snapshot::NamedSnapshot;

/// Whether what is not found may be found later. A repository that lists nothing at all is not there.
pub(super) fn may_be_away(listing: &ContainerListing, request: SnapshotRepair) -> bool {
    let is_empty = || listing.containers.is_empty() && listing.segments().is_empty();
    listing.may_come_back() || !request.allow_no_containers && is_empty()
}

/// Fails if no container at all is there, or more are missing than are there, although a snapshot needs some, unless
/// that is allowed. What segments have forgotten, marks name. Backups may have stored much again since: so it also
/// fails if most of several `snapshots` have no root any more.
pub(super) fn check_enough_there(
    reader: &mut ChunkReader,
    snapshots: &[NamedSnapshot],
    report: &SnapshotsReport,
    request: SnapshotRepair,
) -> Result<()> {
    let listing = reader.resolver.locator.listing().clone();
    // It was looked at before the first one.
    let is_known = !report.damaged.is_empty();
    if is_known || listing.may_come_back() || request.dry_run || request.allow_no_containers {
        return Ok(());
    }
    check_most_there(&listing, returned::missing(listing.store().as_ref(), &listing.quarantine())?.len())?;
    if listing.containers.is_empty() {
        return Err(Error::Usage(
            "no container at all is there, but snapshots need some: the directory `containers` looks lost or not \
             mounted. No snapshot was changed. If all containers are lost for good, say --allow-no-containers"
                .into(),
        ));
    }
    let mut rootless = 0;
    for root in snapshots.iter().filter_map(|named| named.snapshot.root) {
        let Some(fingerprint) = root.fingerprint() else { continue };
        match reader.resolver.locator.locate(&fingerprint) {
            Err(error) if error.stops_reading() => return Err(error),
            found => rootless += usize::from(matches!(found, Ok(None))),
        }
    }
    if rootless < 2 || rootless * 2 <= snapshots.len() {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "nothing is there of {rootless} of {} snapshots: look whether the file system of the directory `containers` is \
         mounted. No snapshot was changed. If the containers are lost for good, say --allow-no-containers",
        snapshots.len()
    )))
}
