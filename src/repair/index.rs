//! Repair of the index: writes all segments again from the indexes of the containers, and drops damaged ones.
//!
//! 1. Marks lose the containers that are there again (`returned`). Orphans are adopted as by a backup. Containers that
//!    segments name are collected. Missing ones are left out, and a mark lists them. So are those whose own index
//!    cannot be read: readers try it again.
//! 2. New segments are written; the last one names all old ones as replaced, except for those that name containers
//!    which could not be read.
//! 3. Old segments are deleted, once readable segments name all containers. Until then they still say which chunks are
//!    in a container that cannot be read.
//! 4. Missing containers, and bad ones that marks list, are reported only if a snapshot lacks anything: a prune deletes
//!    containers first, and a backup stores again what is bad.
//! 5. Directories that cannot be listed are reported: the containers in them that no segment names stay unknown.
//! 6. Damaged blobs of snapshots are written again from copies, and damaged bundles of these are deleted. A damaged
//!    copy of the configuration, damaged key slots and required marks are written again, and damaged catalogues of
//!    models are replaced from the records in metadata containers (`catalogue`).

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::Serialize;

use super::snapshot_blobs::read_again;
use super::{catalogue, returned};
use crate::error::{ErrorKind, Result};
use crate::keep::is_everything_there;
use crate::repo::Repository;
use crate::repo::adopt::adopt_orphans;
use crate::repo::bundle::delete_damaged_bundles;
use crate::repo::container::blob_name;
use crate::repo::index::similarity::clues::delete_damaged_clues;
use crate::repo::index::{
    ContainerListing, IndexSegment, SegmentBatches, delete_replaced_segments, delete_unreadable_segments,
    drop_deleted_containers, give_up_lost_containers, read_container_index,
};
use crate::repo::keys;
use crate::repo::marks::{Marks, check_writable};
use crate::repo::overwritten::check_overwritten;
use crate::repo::parity::heal_marks;
use crate::repo::snapshot;
use crate::store::{BlobName, Store, newer_or_wrong};
use crate::types::ContainerId;

/// What [`repair_index`] did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct IndexReport {
    /// Containers in the new segments.
    pub containers: u64,
    /// Containers among them that no segment named before.
    pub adopted: u64,
    /// Containers that segments named or marks list, but that are missing, if a snapshot lacks anything.
    pub missing: Vec<String>,
    /// Number of such containers that no snapshot needs: a prune has deleted them.
    pub gone: u64,
    /// Containers that marks list and that are there, with bad bytes, if a snapshot lacks anything.
    pub damaged: Vec<String>,
    /// Containers that marks listed, and that are there and whole again.
    pub returned: u64,
    /// Containers whose own index cannot be read.
    pub unreadable: Vec<String>,
    /// Directories that could not be listed. Containers in them that no segment names are not looked at.
    pub unlistable: Vec<String>,
    /// Containers whose own index only a newer version can read.
    pub newer: Vec<String>,
    /// Segments written.
    pub segments_written: u64,
    /// Segments that were damaged, with the damage.
    pub segments_damaged: Vec<String>,
    /// The damaged ones that stay, by name: they name containers that are in no other segment, because these cannot be
    /// read now.
    pub segments_staying: Vec<String>,
    /// Damaged catalogues of models that were replaced.
    pub catalogues_replaced: u64,
    /// Damaged blobs of snapshots that were written again from copies.
    pub snapshots_healed: u64,
    /// Damaged bundles of snapshots that were deleted.
    pub bundles_deleted: u64,
    /// Damaged blobs with clues that were deleted.
    pub clues_deleted: u64,
    /// Copies of the configuration written again.
    pub configs_healed: u64,
    /// Key slots and their copies written again.
    pub key_slots_healed: u64,
    /// Damaged required marks written again.
    pub marks_healed: u64,
}

/// Repairs the index. May be killed at any point and run again.
///
/// # Errors
/// Errors of the store. Errors of marks that forbid writing.
pub fn repair_index(repository: &Repository, stop: &Arc<AtomicBool>) -> Result<IndexReport> {
    let repository = &repository.stopped_by(stop);
    let store = &repository.store;
    check_writable(repository)?;
    let defects = repository.config_defects().len();
    repository.heal_config()?;
    let configs_healed = defects.saturating_sub(repository.config_defects().len()) as u64;
    let (key_slots_healed, marks_healed) = (keys::heal_slots(repository)?, heal_marks(repository)?);
    let snapshots_healed = heal_snapshots(repository)?;
    let mut report =
        IndexReport { configs_healed, key_slots_healed, marks_healed, snapshots_healed, ..IndexReport::default() };

    report.returned = returned::clear(repository)?;
    let mut found = ContainerListing::take(store)?;
    sort_out_newer(&mut found)?;
    let is_directory = |name: &str| !name.contains('/');
    let (directories, segments): (Vec<_>, Vec<_>) = found.damaged.iter().partition(|(name, _)| is_directory(name));
    report.segments_damaged = segments.into_iter().map(|(name, error)| format!("{name}: {error}")).collect();
    report.unlistable = directories.into_iter().map(|(name, error)| format!("{name}: {error}")).collect();
    report.unlistable.extend(unlistable(&found));
    let (listing, adopted) = adopt_orphans(repository, Marks::read(repository.store.as_ref())?)?;
    report.adopted = adopted;
    let named = rebuild(&listing, &mut report)?;
    drop_deleted_containers(&listing, &named, stop)?;
    delete_replaced_segments(&ContainerListing::take(store)?)?;
    let mut listing = ContainerListing::take(store)?;
    // Orphans that cannot be adopted are in no segment that is deleted here.
    listing.forget_orphans();
    sort_out_newer(&mut listing)?;
    delete_unreadable_segments(&mut listing, |name| check_overwritten(repository, name))?;
    report.segments_staying = still_there(store.as_ref(), &report.segments_damaged)?;
    report.catalogues_replaced = catalogue::replace_damaged(repository)?;
    let marks = Marks::read(store.as_ref())?;
    report.missing.extend(returned::missing(store.as_ref(), &marks.quarantine)?);
    report.missing.sort();
    report.missing.dedup();
    report.damaged = returned::there(&marks.quarantine, &report.missing);
    let is_any = !report.missing.is_empty() || !report.damaged.is_empty();
    if is_any && is_everything_there(repository, stop)? {
        report.gone = std::mem::take(&mut report.missing).len() as u64;
        report.damaged.clear();
    }
    report.bundles_deleted = delete_damaged_bundles(repository, u64::MAX, 0)?;
    report.clues_deleted = delete_damaged_clues(repository)?;
    Ok(report)
}

/// The names of the segments that are still there, of texts that begin with the name of one.
fn still_there(store: &dyn Store, damaged: &[String]) -> Result<Vec<String>> {
    let mut staying = Vec::new();
    for name in damaged.iter().filter_map(|text| BlobName::parse(text.split(": ").next()?).ok()) {
        match store.head(&name) {
            Ok(None) => {}
            Err(error) if error.stops_reading() => return Err(error),
            // What cannot be looked at is not gone.
            _ => staying.push(name.into()),
        }
    }
    Ok(staying)
}

/// The directories of containers that could not be listed, with the reason of each.
pub(super) fn unlistable(listing: &ContainerListing) -> Vec<String> {
    listing.unlistable().into_iter().map(|(directory, error)| format!("{directory}: {error}")).collect()
}

/// Writes damaged blobs of snapshots again from copies. Returns their number.
fn heal_snapshots(repository: &Repository) -> Result<u64> {
    match snapshot::list(repository.store.as_ref()) {
        Err(error) if error.is_unreadable() => {
            tracing::warn!("the blobs of snapshots are not looked at: {error}");
            Ok(0)
        }
        listed => Ok(read_again(repository, listed?.1, false)?.healed.len() as u64),
    }
}

/// Tells the segments of a newer version from those whose bytes are not what their names say. The store stops reading
/// if the process is to stop.
fn sort_out_newer(listing: &mut ContainerListing) -> Result<()> {
    let store = listing.store().clone();
    for (name, error) in std::mem::take(&mut listing.damaged) {
        let error = newer_or_wrong(store.as_ref(), &BlobName::parse(&name)?, error, &|| Ok(()))?;
        listing.damaged.push((name, error));
    }
    Ok(())
}

/// Writes segments for the containers of all segments. They replace all open segments. Returns what they name.
fn rebuild(listing: &ContainerListing, report: &mut IndexReport) -> Result<HashSet<ContainerId>> {
    let segments = listing.segments();
    let named: BTreeSet<ContainerId> =
        segments.iter().flat_map(|segment| segment.containers().iter().copied()).collect();
    let (mut read, mut unread) = (HashSet::new(), HashSet::new());
    if named.is_empty() {
        return Ok(read);
    }
    let store = listing.store();
    let mut batches = SegmentBatches::new(store.as_ref(), listing.new_segments());
    give_up_lost_containers(listing)?;
    for id in &named {
        match read_container_index(store.as_ref(), id) {
            Ok(index) => {
                batches.add(*id, index.entries.iter().map(|entry| entry.fingerprint).zip(0..))?;
                read.insert(*id);
            }
            Err(error) if error.kind() == ErrorKind::NotFound => report.missing.push(blob_name(id).into()),
            Err(error) if error.is_unavailable() => {
                listing.note_unread(id, &error);
                unread.insert(*id);
                let error = newer_or_wrong(store.as_ref(), &blob_name(id), error, &|| Ok(()))?;
                let texts = if error.is_newer() { &mut report.newer } else { &mut report.unreadable };
                texts.push(format!("{}: {error}", blob_name(id)));
            }
            Err(error) => return Err(error),
        }
    }
    report.containers = read.len() as u64;
    note_damaged_pages(listing, report)?;
    if read.is_empty() && !report.unreadable.is_empty() {
        return Ok(read);
    }
    // What names a container that is in no new segment stays, or nobody would know the container.
    let is_in_new = |segment: &&Arc<IndexSegment>| segment.containers().iter().all(|id| !unread.contains(id));
    let replaced = listing.replaced();
    let replaced = segments.iter().filter(is_in_new).chain(replaced.iter()).map(|segment| segment.name().clone());
    report.segments_written = batches.finish(&replaced.collect::<Vec<_>>())?.len() as u64;
    Ok(read)
}

/// Notes the segments with pages that cannot be read.
fn note_damaged_pages(listing: &ContainerListing, report: &mut IndexReport) -> Result<()> {
    for segment in listing.segments().iter() {
        match segment.pages().find_map(Result::err) {
            Some(error) if error.stops_reading() => return Err(error),
            // Another process has replaced it.
            Some(error) if error.kind() == ErrorKind::NotFound => {}
            Some(error) => report.segments_damaged.push(format!("{}: {error}", segment.name())),
            None => {}
        }
    }
    Ok(())
}
