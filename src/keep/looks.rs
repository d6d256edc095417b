//! Whether a prune looks again after it could not read something: another prune may have moved it, or a backup may be
//! about to withdraw a snapshot.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::store::{BlobKind, BlobName, Store};

/// Looks at a repository that nobody changes, at most.
const LOOKS_MAX: u32 = 3;

/// The looks of one prune.
pub struct Looks {
    started: Instant,
    patience: Duration,
    /// Looks that count.
    count: u32,
    /// What was there after each.
    seen: HashSet<blake3::Hash>,
}

impl Looks {
    /// Looks that do not count while others change the repository, for the time `patience`.
    pub fn new(patience: Duration) -> Self {
        Looks { started: Instant::now(), patience, count: 0, seen: HashSet::new() }
    }

    /// Notes that a look failed. Gives its `error` back if another look would not help.
    ///
    /// # Errors
    /// That error, and those of listing the store.
    pub fn fail(&mut self, store: &dyn Store, error: Error) -> Result<()> {
        let is_first = self.seen.is_empty();
        let is_waiting = self.started.elapsed() < self.patience;
        let has_changed = is_waiting && self.seen.insert(digest_of_names(store)?);
        self.count += u32::from(is_first || !has_changed);
        if self.count >= LOOKS_MAX {
            return Err(error);
        }
        tracing::debug!("{error}; listing again");
        Ok(())
    }
}

/// A digest of the names of snapshots, containers and claims: it differs once somebody has put or deleted any.
///
/// # Errors
/// Errors of the store that are not damage.
pub(super) fn digest_of_names(store: &dyn Store) -> Result<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    for kind in [BlobKind::Snapshot, BlobKind::Container, BlobKind::Intent, BlobKind::Pending] {
        let mut names: Vec<BlobName> = match store.list(kind.into()) {
            Err(error) if error.is_unreadable() => Vec::new(),
            listed => listed?.into_iter().map(|listed| listed.name).collect(),
        };
        names.sort_unstable();
        names.iter().for_each(|name| _ = hasher.update(name.as_bytes()).update(b"\n"));
    }
    Ok(hasher.finalize())
}
