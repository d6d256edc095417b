//! Lists snapshots, with copies of them in a local file: to find some by name, host or time does not read all of them.
//!
//! 1. A snapshot never changes, and its name is the hash of its bytes. So the file is just their bytes, one after
//!    another, and what it says is true: a flipped bit gives a snapshot that the store does not list.
//! 2. Only the snapshots that the store lists count. Those that the file lacks are read, many of them from bundles, and
//!    appended.
//! 3. A backup reads the chosen parents from the store, too.
//! 4. The file is in the local cache. It is written again if its end is damaged or if most of its snapshots are gone.

use std::collections::{HashMap, HashSet};
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::Repository;
use super::bundle::{self, SNAPSHOT_BYTES_MAX};
use super::overwritten::delete_damaged;
use super::paths::{NO_WAITING, cache_directory, create_private};
use super::snapshot::{self, LATEST, NamedSnapshot, Snapshot, Unreadable};
use super::vanished;
use crate::error::{Error, Result};
use crate::store::{BlobKind, BlobName, LocalFile, Store, StoreExt, map_parallel};
use crate::types::SnapshotId;
use crate::wire::open_regular;

/// Name of the file in the local cache directory.
pub const SNAPSHOTS_FILE: &str = "snapshots.cache";

/// Snapshots that are read one by one without a look at the bundles.
const READ_ALONE_MAX: usize = 4;
/// Snapshots that no listing has and that are looked for nevertheless, at least.
const UNLISTED_MIN: usize = 1024;
/// Bytes of the file, at most. It bounds memory.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The snapshots of a repository, oldest first.
#[derive(Debug, Default)]
pub struct SnapshotListing {
    /// Snapshots that their backup has reported.
    pub snapshots: Vec<NamedSnapshot>,
    /// Snapshots that their backup has not reported. It still runs, or was killed before it could.
    pub unreported: Vec<NamedSnapshot>,
    /// Snapshots that could not be read.
    pub damaged: Vec<Unreadable>,
    /// Snapshots that a copy gave although the blob in the store has another length. Whoever has no copy cannot read
    /// them.
    pub resized: Vec<Unreadable>,
}

/// The snapshots, as [`snapshot::list_reported`] gives them. What the local file or a bundle has is not read from its
/// own blob: a caller that must know whether that is readable reads it.
///
/// # Errors
/// Errors of listing the store.
pub fn list(repository: &Repository) -> Result<SnapshotListing> {
    let path = cache_directory(repository).ok().map(|directory| directory.join(SNAPSHOTS_FILE));
    let mut listing = list_with(repository.store.as_ref(), path)?;
    if listing.snapshots.is_empty() && listing.damaged.is_empty() {
        note_vanished(repository);
    }
    listing.unreported = snapshot::take_unreported(repository.store.as_ref(), &mut listing.snapshots)?;
    Ok(listing)
}

/// Notes the snapshots of the local file as [vanished] if the store lists none. It is for whoever stores a snapshot
/// without a look at the others.
///
/// # Errors
/// Errors of listing the store.
pub fn look_for_vanished(repository: &Repository) -> Result<()> {
    if !local_bytes(repository).is_empty() && repository.store.list(BlobKind::Snapshot.into())?.is_empty() {
        note_vanished(repository);
    }
    Ok(())
}

fn note_vanished(repository: &Repository) {
    let mut ids = Vec::new();
    visit(&local_bytes(repository), |id, _| ids.push(id));
    vanished::note(repository, ids.into_iter());
}

/// Forgets the local file if the store lists no snapshot, because this machine has deleted the last ones.
pub fn forget_all(repository: &Repository) {
    let Ok(path) = cache_directory(repository).map(|directory| directory.join(SNAPSHOTS_FILE)) else { return };
    if path.exists() && repository.store.list(BlobKind::Snapshot.into()).is_ok_and(|listed| listed.is_empty()) {
        // Where it cannot be removed, it was not written.
        let _ = std::fs::remove_file(path);
    }
}

/// Finds a snapshot by id, unique prefix or `latest`, as [`snapshot::find`] does.
///
/// # Errors
/// Errors of [`snapshot::find`].
pub fn find(repository: &Repository, wanted: &str) -> Result<NamedSnapshot> {
    if wanted != LATEST {
        return snapshot::find(repository.store.as_ref(), wanted);
    }
    let SnapshotListing { snapshots, damaged, .. } = list(repository)?;
    snapshot::last(snapshots, damaged, repository.clock.now_ns())
}

/// Writes a bundle if at least `loose_min` snapshots are in none, or if most of one is gone, and deletes damaged ones.
/// Returns the number of snapshots written. What the local file has is not read. May be killed at any call, and may run
/// beside others.
///
/// # Errors
/// Errors of the store. A snapshot or a bundle that cannot be read is left out.
pub fn maintain_bundles(repository: &Repository, loose_min: usize) -> Result<usize> {
    let path = cache_directory(repository)?.join(SNAPSHOTS_FILE);
    let known = |wanted: &HashSet<SnapshotId>| {
        let (bytes, mut blobs) = (read_file(&path).unwrap_or_default(), HashMap::new());
        visit(&bytes, |id, blob| {
            if wanted.contains(&id) {
                blobs.insert(id, blob.to_vec());
            }
        });
        blobs.into_iter().collect()
    };
    bundle::maintain_with(repository.store.as_ref(), loose_min, known, |name| delete_damaged(repository, name))
}

/// The names of the snapshots that are listed, and of those that the local file or a bundle knows. A listing that lacks
/// one of the latter may be short, or the snapshot is forgotten: each costs whoever looks a request. So there are at
/// most as many of them as are listed, and some more.
///
/// # Errors
/// Errors of the store.
pub fn all_names(repository: &Repository) -> Result<Vec<BlobName>> {
    let store = repository.store.as_ref();
    let listed = store.list(BlobKind::Snapshot.into())?;
    let listed: HashSet<SnapshotId> = listed.iter().filter_map(|blob| snapshot::parse_name(&blob.name)).collect();
    let (count_max, mut ids) = (listed.len() + UNLISTED_MIN, HashSet::new());
    visit(&local_bytes(repository), |id, _| {
        if ids.len() < count_max && !listed.contains(&id) {
            ids.insert(id);
        }
    });
    bundle::add_unlisted(store, &listed, count_max, &mut ids)?;
    Ok(listed.iter().chain(&ids).map(snapshot::blob_name).collect())
}

/// The blobs of the snapshots `wanted`, as far as the local file or a bundle has copies of them.
///
/// # Errors
/// Errors of the store.
pub fn copied_blobs(repository: &Repository, wanted: &HashSet<SnapshotId>) -> Result<HashMap<SnapshotId, Vec<u8>>> {
    let mut blobs = bundle::blobs(repository.store.as_ref(), wanted)?;
    visit(&local_bytes(repository), |id, blob| {
        if wanted.contains(&id) {
            blobs.insert(id, blob.to_vec());
        }
    });
    Ok(blobs)
}

/// The bytes of the local file; none if it cannot be read.
fn local_bytes(repository: &Repository) -> Vec<u8> {
    let path = cache_directory(repository).ok().map(|directory| directory.join(SNAPSHOTS_FILE));
    path.and_then(|path| read_file(&path).ok()).unwrap_or_default()
}

/// The bytes of the file, and one more than it may have if it has too many.
fn read_file(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Calls `each` with the blobs of a file and the ids that they have. Returns whether the file is whole.
fn visit(bytes: &[u8], mut each: impl FnMut(SnapshotId, &[u8])) -> bool {
    let mut rest = bytes;
    while let Some((len, tail)) = rest.split_first_chunk() {
        let len = u32::from_le_bytes(*len) as usize;
        let Some((blob, tail)) = tail.split_at_checked(len).filter(|_| len <= SNAPSHOT_BYTES_MAX) else { break };
        each(SnapshotId(*blake3::hash(blob).as_bytes()), blob);
        rest = tail;
    }
    rest.is_empty()
}

/// The snapshots, without a look at which are reported.
fn list_with(store: &dyn Store, path: Option<PathBuf>) -> Result<SnapshotListing> {
    let mut local = path.as_deref().map(|path| LocalSnapshots::load(path, store)).unwrap_or_default();
    let (mut snapshots, mut damaged, mut new) = (Vec::new(), Vec::new(), Vec::new());
    let (mut unknown, mut resized) = (HashSet::new(), Resized::default());
    for listed in store.list(BlobKind::Snapshot.into())? {
        let Some(id) = snapshot::parse_name(&listed.name) else { continue };
        resized.lens.insert(id, listed.len);
        match local.snapshots.remove(&id) {
            Some((snapshot, len)) => {
                resized.compare(&id, len);
                snapshots.push(NamedSnapshot { id, snapshot });
            }
            None => _ = unknown.insert(id),
        }
    }
    if unknown.len() > READ_ALONE_MAX {
        bundle::find(store, &mut unknown, |named, blob, len| {
            resized.compare(&named.id, len);
            snapshots.push(named);
            new.push(blob.to_vec());
        })?;
    }
    let unknown: Vec<SnapshotId> = unknown.into_iter().collect();
    let read = map_parallel(store.requests_max(), &unknown, |id| Snapshot::read(store, id));
    for (id, read) in unknown.into_iter().zip(read) {
        match read {
            Ok((snapshot, blob)) => {
                snapshots.push(NamedSnapshot { id, snapshot });
                new.push(blob);
            }
            Err(error) if error.stops_reading() => return Err(error),
            Err(error) => damaged.push((snapshot::blob_name(&id).into(), error)),
        }
    }
    snapshot::drop_forgotten(store, &mut damaged)?;
    damaged.sort_by(|(one, _), (other, _)| one.cmp(other));
    // If all are gone at once, the file says which ones were there.
    if let Some(path) = path.filter(|_| !snapshots.is_empty())
        && let Err(error) = local.save(&path, &snapshots, &new, store)
    {
        tracing::debug!("{} is not written: {error}", path.display());
    }
    snapshots.sort_by_key(|named| (named.snapshot.time_ns, named.id));
    Ok(SnapshotListing { snapshots, damaged, resized: resized.found, ..SnapshotListing::default() })
}

/// Snapshots whose copies have another length than their blobs.
#[derive(Default)]
struct Resized {
    /// Lengths of the listed blobs.
    lens: HashMap<SnapshotId, u64>,
    found: Vec<Unreadable>,
}

impl Resized {
    fn compare(&mut self, id: &SnapshotId, copy_len: u64) {
        let Some(len) = self.lens.get(id).filter(|len| **len != copy_len) else { return };
        let name: String = snapshot::blob_name(id).into();
        let error = Error::corrupt(&name, 0, format!("{copy_len} bytes, as a copy has"), format!("{len} bytes"));
        self.found.push((name, error));
    }
}

/// What the file has.
#[derive(Default)]
struct LocalSnapshots {
    /// Snapshots that no listing has asked for yet, and the lengths of their blobs.
    snapshots: HashMap<SnapshotId, (Snapshot, u64)>,
    /// Number of snapshots in the file.
    count: usize,
    bytes: u64,
    is_damaged: bool,
}

impl LocalSnapshots {
    fn load(path: &Path, store: &dyn Store) -> Self {
        let mut local = LocalSnapshots::default();
        let bytes = read_file(path).unwrap_or_else(|error| {
            local.is_damaged = error.kind() != std::io::ErrorKind::NotFound;
            Vec::new()
        });
        local.bytes = bytes.len() as u64;
        let is_whole = visit(&bytes, |id, blob| {
            match Snapshot::parse_with_len(store, &id, blob) {
                Ok(snapshot) => drop(local.snapshots.insert(id, snapshot)),
                Err(_) => local.is_damaged = true,
            }
            local.count += 1;
        });
        local.is_damaged |= !is_whole || local.bytes > FILE_BYTES_MAX;
        local
    }

    /// Appends `new` blobs, or writes the file again if it needs that.
    fn save(&self, path: &Path, all: &[NamedSnapshot], new: &[Vec<u8>], store: &dyn Store) -> Result<()> {
        let failed = |error| Error::io("write", path, error);
        let needed = self.count - self.snapshots.len().min(self.count);
        let is_stale = self.is_damaged || self.count > 2 * needed + 16;
        let mut out = Vec::new();
        let mut push = |blob: &[u8]| {
            if blob.len() <= SNAPSHOT_BYTES_MAX && (out.len() + blob.len() + 4) as u64 <= FILE_BYTES_MAX {
                out.extend_from_slice(&(blob.len() as u32).to_le_bytes());
                out.extend_from_slice(blob);
            }
        };
        if is_stale {
            for NamedSnapshot { id, .. } in all {
                push(&Snapshot::read(store, id)?.1);
            }
            LocalFile::replace(path, &out).map_err(failed)?;
        } else {
            new.iter().for_each(|blob| push(blob));
            if out.is_empty() || self.bytes + out.len() as u64 > FILE_BYTES_MAX {
                return Ok(());
            }
            path.parent().map_or(Ok(()), create_private)?;
            let mut options = OpenOptions::new();
            let mut file =
                options.append(true).create(true).mode(0o600).custom_flags(NO_WAITING).open(path).map_err(failed)?;
            // One write, so that processes do not mix their snapshots.
            file.write_all(&out).map_err(failed)?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "snapshot_listing_tests.rs"]
mod tests;
