//! A repository whose containers are all away, as where their disk is not mounted and its mount point is empty. Most
//! of them may be lost; that all of them are is more likely a mistake.

use super::snapshots::SnapshotRepair;
use crate::error::{Error, Result};
use crate::repo::index::ContainerListing;

/// Whether what is not found may be found later. A repository that lists nothing at all is not there.
pub(super) fn may_be_away(listing: &ContainerListing, request: SnapshotRepair) -> bool {
    let is_empty = || listing.containers.is_empty() && listing.segments().is_empty();
    listing.may_come_back() || !request.allow_no_containers && is_empty()
}

/// Fails if no container at all is there, although a snapshot needs some, unless that is allowed.
pub(super) fn check_any_there(listing: &ContainerListing, request: SnapshotRepair) -> Result<()> {
    let is_fine = !listing.containers.is_empty() || listing.may_come_back();
    if is_fine || request.dry_run || request.allow_no_containers {
        return Ok(());
    }
    Err(Error::Usage(
        "no container at all is there, but snapshots need some: the directory `containers` looks lost or not mounted. \
         No snapshot was changed. If all containers are lost for good, say --allow-no-containers"
            .into(),
    ))
}
