//! Known snapshots in a local file, so that finding the parents of a backup does not read all of them.
//!
//! 1. A snapshot never changes, and its name is the hash of its bytes. So the file is just their bytes, one after
//!    another, and what it says is true: a flipped bit gives a snapshot that the store does not list.
//! 2. Only the snapshots that the store lists count. Those that the file lacks are read and appended.
//! 3. The file chooses snapshots. The chosen ones are then read from the store.
//! 4. The file is a cache. It is written again if its end is damaged or if most of its snapshots are gone.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::Repository;
use super::paths::{cache_directory, create_private};
use super::snapshot::{self, NamedSnapshot, Snapshot, Unreadable};
use crate::error::{Error, Result};
use crate::store::Store;
use crate::types::SnapshotId;

/// Name of the file in the local cache directory.
pub const SNAPSHOTS_FILE: &str = "snapshots.cache";

/// Bytes of a snapshot in the file, at most.
const SNAPSHOT_BYTES_MAX: usize = 64 << 10;
/// Bytes of the file, at most. It bounds memory.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The reported snapshots, oldest first, and those that could not be read, as [`snapshot::list_reported`] gives them.
/// Those in the file are not read: a caller that relies on one reads it.
///
/// # Errors
/// Those of listing the store.
pub fn list(repository: &Repository) -> Result<(Vec<NamedSnapshot>, Vec<Unreadable>)> {
    let path = cache_directory(repository).ok().map(|directory| directory.join(SNAPSHOTS_FILE));
    let (mut snapshots, damaged) = list_with(repository.store.as_ref(), path)?;
    snapshot::retain_reported(repository.store.as_ref(), &mut snapshots)?;
    Ok((snapshots, damaged))
}

fn list_with(store: &dyn Store, path: Option<PathBuf>) -> Result<(Vec<NamedSnapshot>, Vec<Unreadable>)> {
    let mut known = path.as_deref().map(|path| KnownSnapshots::load(path, store)).unwrap_or_default();
    let (mut snapshots, mut damaged, mut new) = (Vec::new(), Vec::new(), Vec::new());
    for listed in store.list(snapshot::PREFIX)? {
        let Some(id) = listed.name.rsplit('/').next().and_then(SnapshotId::parse) else { continue };
        if let Some(snapshot) = known.snapshots.remove(&id) {
            snapshots.push(NamedSnapshot { id, snapshot });
            continue;
        }
        match Snapshot::read(store, &id) {
            Ok((snapshot, blob)) => {
                snapshots.push(NamedSnapshot { id, snapshot });
                new.push(blob);
            }
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(error) => damaged.push((listed.name, error)),
        }
    }
    if let Some(path) = path
        && let Err(error) = known.save(&path, &snapshots, &new, store)
    {
        tracing::debug!("{} is not written: {error}", path.display());
    }
    snapshots.sort_by_key(|named| (named.snapshot.time_ns, named.id));
    Ok((snapshots, damaged))
}

/// What the file has.
#[derive(Default)]
struct KnownSnapshots {
    /// Those that no listing has asked for yet.
    snapshots: HashMap<SnapshotId, Snapshot>,
    /// Number of snapshots in the file.
    count: usize,
    bytes: u64,
    is_damaged: bool,
}

impl KnownSnapshots {
    fn load(path: &Path, store: &dyn Store) -> Self {
        let mut known = KnownSnapshots::default();
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
        known.bytes = bytes.len() as u64;
        known.is_damaged =
            known.bytes > FILE_BYTES_MAX || read.is_err_and(|error| error.kind() != std::io::ErrorKind::NotFound);
        let mut rest = bytes.as_slice();
        while let Some((len, tail)) = rest.split_first_chunk() {
            let len = u32::from_le_bytes(*len) as usize;
            let Some((blob, tail)) = tail.split_at_checked(len).filter(|_| len <= SNAPSHOT_BYTES_MAX) else { break };
            let id = SnapshotId(*blake3::hash(blob).as_bytes());
            match Snapshot::parse(store, &id, blob) {
                Ok(snapshot) => drop(known.snapshots.insert(id, snapshot)),
                Err(_) => known.is_damaged = true,
            }
            known.count += 1;
            rest = tail;
        }
        known.is_damaged |= !rest.is_empty();
        known
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
            let temporary = path.with_extension("new");
            fs::write(&temporary, &out).and_then(|()| fs::rename(&temporary, path)).map_err(failed)?;
        } else {
            new.iter().for_each(|blob| push(blob));
            if out.is_empty() || self.bytes + out.len() as u64 > FILE_BYTES_MAX {
                return Ok(());
            }
            path.parent().map_or(Ok(()), create_private)?;
            let mut options = OpenOptions::new();
            let mut file = options.append(true).create(true).mode(0o600).open(path).map_err(failed)?;
            // One write, so that processes do not mix their snapshots.
            file.write_all(&out).map_err(failed)?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "snapshot_cache_tests.rs"]
mod tests;
