//! Containers that marks list and that a check has not read. What marks say of them stays true.
//!
//! A mark may be all that says that a container is lost: `repair index` leaves it out of the segments.

use std::collections::BTreeSet;

use super::defect_log::damage;
use super::run::{CheckReport, CheckRun};
use crate::error::Result;
use crate::repo::container::blob_name;
use crate::repo::marks::Quarantine;
use crate::types::ContainerId;

/// The containers of `marked` that are not in the store. What cannot be looked at is not gone.
///
/// # Errors
/// Errors of the store that are not damage.
pub(super) fn gone(run: &CheckRun<'_>, marked: &Quarantine) -> Result<BTreeSet<ContainerId>> {
    let mut gone = BTreeSet::new();
    for (id, _) in marked.containers().filter(|(id, _)| !run.listing.containers.contains(id)) {
        run.check_stop()?;
        match run.repository.store.head(&blob_name(id)) {
            Ok(None) => _ = gone.insert(*id),
            Ok(Some(_)) => {}
            Err(error) => drop(damage(error)?),
        }
    }
    Ok(gone)
}

/// What marks list of containers that were not read, without those that are `gone`.
pub(super) fn unread(marked: &Quarantine, report: &CheckReport, gone: &BTreeSet<ContainerId>) -> Quarantine {
    if marked.is_empty() {
        return Quarantine::default();
    }
    let read: BTreeSet<ContainerId> = report.read.iter().map(|(id, _)| *id).collect();
    marked.without(&read).without(gone)
}

/// Lets marks go on listing what is `gone`.
pub(super) fn retain(marked: &Quarantine, gone: &BTreeSet<ContainerId>, report: &mut CheckReport) {
    let lost = marked.containers().filter(|(id, _)| gone.contains(id));
    lost.for_each(|(id, parts)| report.bad.insert(*id, parts));
}
