//! Snapshots that this machine has seen and that were all gone at once.
//!
//! A directory `snapshots` that was emptied, or a mount point without its disk, lists nothing, and so does a repository
//! whose snapshots were all forgotten. The next backup stores a snapshot, after which nothing shows the loss, and a
//! prune would delete the data of all others. So whoever meets a listing without any snapshot notes which ones the
//! local [`snapshot_listing`](super::snapshot_listing) has. The note goes when one of them is listed again, or by a
//! prune that is told so. Who forgets all snapshots on this machine leaves none to be noted.

use std::collections::HashSet;
use std::fs;
use std::io::{ErrorKind, Read};

use super::Repository;
use super::paths::{cache_directory, remove_irregular};
use super::snapshot;
use crate::error::{Error, Result};
use crate::store::{BlobKind, LocalFile, Store};
use crate::types::SnapshotId;
use crate::wire::open_regular;

/// Name of the note in the local cache directory: an id in each line.
const NOTE_FILE: &str = "vanished-snapshots";
/// Bytes of the note, at most.
const NOTE_BYTES_MAX: u64 = 1 << 20;

/// Notes snapshots that are all gone. What cannot be written is left out, as in every cache.
pub(super) fn note(repository: &Repository, ids: impl Iterator<Item = SnapshotId>) {
    let Ok(directory) = cache_directory(repository) else { return };
    let lines: String = ids.take(NOTE_BYTES_MAX as usize / 65).map(|id| format!("{id}\n")).collect();
    let path = directory.join(NOTE_FILE);
    if !lines.is_empty() && noted(repository).is_ok_and(|noted| noted.is_empty()) {
        remove_irregular(&path);
        if let Err(error) = LocalFile::replace(&path, lines.as_bytes()) {
            tracing::debug!("{} is not written: {error}", path.display());
        }
    }
}

/// The ids of the note. Without a note, or where no cache can be, there are none.
fn noted(repository: &Repository) -> Result<HashSet<String>> {
    let path = cache_directory(repository)?.join(NOTE_FILE);
    let mut text = String::new();
    match open_regular(&path).and_then(|file| file.take(NOTE_BYTES_MAX).read_to_string(&mut text)) {
        Ok(_) => Ok(text.lines().map(str::to_string).collect()),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(HashSet::new()),
        Err(error) => Err(Error::io("read", path, error)),
    }
}

/// The number of snapshots that this machine has seen, that were all gone at once, and that nobody has seen since.
///
/// # Errors
/// [`Error::Io`] if the note cannot be read; errors of listing the store.
pub fn count(repository: &Repository) -> Result<usize> {
    let noted = noted(repository)?;
    if noted.is_empty() {
        return Ok(0);
    }
    let listed = repository.store.list(BlobKind::Snapshot.into())?;
    let is_back =
        listed.iter().filter_map(|blob| snapshot::parse_name(&blob.name)).any(|id| noted.contains(&id.to_string()));
    if is_back {
        accept(repository);
        return Ok(0);
    }
    Ok(noted.len())
}

/// The same for whoever deletes nothing. What cannot be looked at is a warning.
pub fn count_or_warn(repository: &Repository) -> usize {
    count(repository).unwrap_or_else(|error| {
        tracing::warn!("nobody knows whether snapshots are gone that this machine has seen: {error}");
        0
    })
}

/// Takes the snapshots for forgotten.
pub fn accept(repository: &Repository) {
    if let Ok(directory) = cache_directory(repository) {
        // Where it cannot be removed, it was not written.
        let _ = fs::remove_file(directory.join(NOTE_FILE));
    }
}
