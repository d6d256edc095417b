//! Whose bytes lie under the name of a snapshot, segment or mark: files may have been mixed up.
//!
//! Nothing may overwrite or delete bytes that are all that there is of another blob. Nobody knows whether that one was
//! forgotten, so nothing puts it back either: a person decides.

use super::Repository;
use super::hot_index::HotIndex;
use super::snapshot::{self, Snapshot};
use crate::error::{ErrorKind, Result};
use crate::store::{BlobKind, BlobName, ListedBlob, Store, StoreExt, only_bytes, try_map_parallel};
use crate::types::SnapshotId;

/// The first bytes of each kind of blob whose bytes may lie under another name.
const MAGICS: [(BlobKind, [u8; 8]); 5] = [
    (BlobKind::Snapshot, *b"FHRDSNAP"),
    (BlobKind::Segment, *b"FHRDSEGM"),
    (BlobKind::RequiredMark, *b"FHRDMARK"),
    (BlobKind::OptionalMark, *b"FHRDMARK"),
    (BlobKind::Container, *b"FHRDCONT"),
];

/// The blob of which all that there is, damaged or not, lies under the name of another one that is no container. `None`
/// if it is there, or if nothing shows that there was one.
///
/// # Errors
/// Errors of the store that are no damage.
pub fn overwritten(repository: &Repository, name: &BlobName) -> Result<Option<BlobName>> {
    if name.kind() == BlobKind::Container {
        return Ok(None);
    }
    match whole_one(repository, name)? {
        None if !repository.parity.has_own_bytes(name)? => repository.parity.damaged_remains(name),
        found => Ok(found),
    }
}

fn whole_one(repository: &Repository, name: &BlobName) -> Result<Option<BlobName>> {
    let (store, parity) = (repository.store.as_ref(), repository.parity.as_ref());
    let found = parity.overwritten(name)?;
    let bytes = match parity.bytes_below(name, snapshot::BYTES_LIMIT) {
        Err(error) if error.is_unavailable() => return Ok(found),
        bytes => bytes?,
    };
    let hash = *blake3::hash(&bytes).as_bytes();
    // Both kinds of marks begin alike.
    let likely = found.as_ref().unwrap_or(name).kind();
    let Some((kind, blob)) = kind_of(store, &hash, &bytes, likely)? else { return Ok(found) };
    let other = BlobName::hashed(kind, &hash);
    if found.is_some() || other == *name {
        return Ok(found.map(|_| other));
    }
    // Without parity it shows itself, or the hash does.
    let is_whole = name.hash() == Some(hash)
        || match kind {
            BlobKind::Snapshot => match Snapshot::parse(store, &SnapshotId(hash), &bytes) {
                Err(error) if error.stops_reading() => return Err(error),
                parsed => parsed.map_or_else(|error| error.is_newer(), |_| true),
            },
            BlobKind::Container => HotIndex::of_parts(&[&blob]).is_ok(),
            _ => false,
        };
    if !is_whole {
        return Ok(None);
    }
    // A copy on this machine is none in the store.
    match store.stored_hash(&other, &|| Ok(())) {
        Ok(there) if there == hash => Ok(None),
        Err(error) if !error.is_unavailable() => Err(error),
        _ => Ok(Some(other)),
    }
}

/// Checks that what lies under the name of a blob that is no container is not all that there is of another one.
///
/// # Errors
/// [`Unreadable`](crate::Error::Unreadable) that names the other one. Errors of the store that are no damage.
pub fn check_overwritten(repository: &Repository, name: &BlobName) -> Result<()> {
    overwritten(repository, name)?.map_or(Ok(()), |other| Err(only_bytes(name, &other)))
}

/// Checks that a snapshot may be deleted: all that there is of another blob may lie under its name, and what readers
/// were given came from parity or from a copy then.
///
/// # Errors
/// [`Unreadable`](crate::Error::Unreadable) that names the other one. Errors of the store.
pub fn check_deletable(repository: &Repository, id: &SnapshotId) -> Result<()> {
    let name = snapshot::blob_name(id);
    if repository.parity.has_own_bytes(&name)? { Ok(()) } else { check_overwritten(repository, &name) }
}

/// Checks that under the name of no snapshot lies all that there is of another blob. What copies on this machine hide
/// seems to be forgotten.
///
/// # Errors
/// [`Unreadable`](crate::Error::Unreadable) that names the other one. Errors of the store.
pub fn check_stored_snapshots(repository: &Repository) -> Result<()> {
    let (store, parity) = (&repository.store, &repository.parity);
    // There are no copies of what is on the local disk.
    if store.requests_max() == 1 {
        return Ok(());
    }
    let check = |listed: &ListedBlob| match parity.has_own_bytes(&listed.name)? {
        true => Ok(()),
        false => check_overwritten(repository, &listed.name),
    };
    let mut listed = store.list(BlobKind::Snapshot.into())?;
    // Other names are no part of the repository.
    listed.retain(|listed| snapshot::parse_name(&listed.name).is_some());
    try_map_parallel(store.requests_max(), &listed, check).map(drop)
}

/// Deletes a snapshot, if it [may be deleted](check_deletable).
///
/// # Errors
/// Errors of [`check_deletable`] and of the store.
pub fn delete_snapshot(repository: &Repository, id: &SnapshotId) -> Result<()> {
    check_deletable(repository, id)?;
    snapshot::delete(repository.store.as_ref(), id)
}

/// Deletes a blob that is damaged and of which there are other copies, unless all that there is of another blob lies
/// there. Returns whether it is deleted.
///
/// # Errors
/// Errors of the store.
pub fn delete_damaged(repository: &Repository, name: &BlobName) -> Result<bool> {
    match check_overwritten(repository, name) {
        Err(refusal) if refusal.kind() == ErrorKind::Damaged => {
            tracing::warn!("{name} stays: {refusal}");
            Ok(false)
        }
        checked => checked.and_then(|()| repository.store.delete_replaced(name)),
    }
}

/// The kind of the blob with these stored bytes, and the blob itself, if the bytes begin as those of a blob. It is the
/// `likely` one if it may be.
///
/// # Errors
/// [`Locked`](crate::Error::Locked) if a key is missing.
fn kind_of(store: &dyn Store, hash: &[u8; 32], bytes: &[u8], likely: BlobKind) -> Result<Option<(BlobKind, Vec<u8>)>> {
    let mut kinds = MAGICS;
    kinds.sort_by_key(|(kind, _)| *kind != likely);
    for (kind, magic) in kinds {
        match store.open_stored(&BlobName::hashed(kind, hash), bytes.to_vec()) {
            Ok(blob) if blob.starts_with(&magic) => return Ok(Some((kind, blob))),
            Err(error) if error.stops_reading() => return Err(error),
            _ => {}
        }
    }
    Ok(None)
}
