//! Damaged blobs of snapshots: each is read again, and written again if a copy of its bytes is known.

use std::collections::HashSet;

use super::snapshots::{SnapshotRepair, SnapshotsReport};
use crate::error::{Error, ErrorKind, Result};
use crate::repo::Repository;
use crate::repo::overwritten::overwritten;
use crate::repo::snapshot::{self, NamedSnapshot, Snapshot, Unreadable, parse_name};
use crate::repo::snapshot_listing::copied_blobs;
use crate::store::{BlobKind, BlobName, Durable, PutOptions, StoreExt, only_bytes};
use crate::types::SnapshotId;

/// What became of snapshots that could not be read.
#[derive(Default)]
pub(super) struct ReadAgain {
    /// Snapshots that can be read now.
    pub(super) snapshots: Vec<NamedSnapshot>,
    /// Snapshots whose blobs were written again from a copy, or would be in a dry run.
    pub(super) healed: Vec<SnapshotId>,
    /// Snapshots that cannot be read for the second time, and that nothing has a copy of.
    pub(super) unreadable: Vec<Unreadable>,
}

/// Reads the snapshots `unreadable` again. If the bytes of one prove wrong both times, and the local file of snapshots
/// or a bundle has the right ones, they are written again, unless this is a dry run.
///
/// # Errors
/// Errors of the store that are not damage.
pub(super) fn read_again(repository: &Repository, unreadable: Vec<Unreadable>, dry_run: bool) -> Result<ReadAgain> {
    let store = repository.store.as_ref();
    let (mut done, mut damaged) = (ReadAgain::default(), Vec::new());
    for (name, first) in unreadable {
        let Some(id) = parse_name(&name) else { continue };
        match Snapshot::load(store, &id) {
            Ok(snapshot) => {
                tracing::warn!("{name} can be read the second time, and could not at first: {first}");
                done.snapshots.push(NamedSnapshot { id, snapshot });
            }
            Err(error) if error.stops_reading() => return Err(error),
            Err(error) if error.is_wrong_blob() && first.is_wrong_blob() => {
                // If either reading left the parity untried, nothing is proven.
                damaged.push((id, (name, if error.is_bad_blob() { first } else { error })));
            }
            // Which of the two is true, nobody knows.
            Err(error) => done.unreadable.push((name, if error.is_bad_blob() { first } else { error })),
        }
    }
    if damaged.is_empty() {
        return Ok(done);
    }
    let wanted: HashSet<SnapshotId> = damaged.iter().map(|(id, _)| *id).collect();
    let copies = copied_blobs(repository, &wanted)?;
    for (id, (name, error)) in damaged {
        // Its hash is the id, but nobody may be able to read what was stored.
        let copy = copies.get(&id).and_then(|blob| Some((blob, Snapshot::parse(store, &id, blob).ok()?)));
        let Some((blob, snapshot)) = copy.filter(|_| !snapshot::is_forgotten(store, &id).unwrap_or(true)) else {
            done.unreadable.push((name, error));
            continue;
        };
        if !dry_run {
            let blob_name = snapshot::blob_name(&id);
            let other = overwritten(repository, &blob_name)?;
            let has_no_copy = |other: &BlobName| {
                let id = parse_name(other).filter(|_| other.kind() == BlobKind::Snapshot);
                let copy = id.and_then(|id| Some((id, copies.get(&id)?)));
                copy.is_none_or(|(id, blob)| Snapshot::parse(store, &id, blob).is_err())
            };
            if let Some(other) = other.filter(has_no_copy) {
                done.unreadable.push((name, only_bytes(&blob_name, &other)));
                continue;
            }
            if !store.overwrite_stored(&blob_name, blob, PutOptions::default())? {
                // It was forgotten meanwhile.
                continue;
            }
            tracing::warn!("{error}; the blob was written again from a copy");
            Snapshot::load(store, &id)?;
        }
        done.snapshots.push(NamedSnapshot { id, snapshot });
        done.healed.push(id);
    }
    Ok(done)
}

impl SnapshotsReport {
    /// Adds a snapshot that cannot be read, and deletes it on request if its bytes proved wrong twice.
    pub(super) fn add_unreadable(
        &mut self,
        repository: &Repository,
        request: SnapshotRepair,
        name: &str,
        error: &Error,
    ) -> Result<()> {
        if error.is_newer() {
            self.newer.push(format!("{name}: {error}"));
            return Ok(());
        }
        if request.forget && !request.dry_run && error.is_bad_blob() {
            let (store, blob) = (repository.store.as_ref(), BlobName::parse(name)?);
            // Others may have written it again since it was read.
            let id = parse_name(name).ok_or_else(|| Error::internal(format!("{name} is no snapshot")))?;
            match Snapshot::load(store, &id) {
                Err(error) if error.is_bad_blob() => {}
                // It was forgotten meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                Err(error) if error.stops_reading() => return Err(error),
                now => {
                    let text = now.map_or_else(|error| error.to_string(), |_| "it can be read now".into());
                    self.unreadable.push(format!("{name}: {text}"));
                    return Ok(());
                }
            }
            if let Some(other) = overwritten(repository, &blob)? {
                self.unreadable.push(only_bytes(&blob, &other).to_string());
                return Ok(());
            }
            store.delete(&blob, Durable::OnReturn)?;
            self.forgotten.push(name.rsplit('/').next().unwrap_or_default().into());
        }
        self.unreadable.push(format!("{name}: {error}"));
        Ok(())
    }
}
