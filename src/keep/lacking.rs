//! Containers with entries that nobody can read, because what they copy from is gone.
//!
//! A prune that is killed leaves such containers: it has deleted the bases and not yet the container. Its pending entry
//! keeps writers from them. The writer of a container may also have lost a base to a prune, and be dead; no segment
//! names the container then.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::view::View;
use crate::error::{Error, Result};
use crate::repo::Repository;
use crate::repo::index::{ContainerIndexes, ContainerListing, Locator, read_container_index};
use crate::types::ContainerId;

/// Container indexes in memory, and their bytes.
const CONTAINER_INDEXES_MAX: usize = 64;
const CONTAINER_INDEX_BYTES_MAX: usize = 32 << 20;

/// The containers of `all` that have an entry with a base that is in none of them, and those that copy from one of
/// these. Those whose index cannot be read have no entries.
///
/// # Errors
/// Errors of reading.
pub fn lacking_bases(
    repository: &Repository,
    all: &Arc<ContainerListing>,
    check_stop: &dyn Fn() -> Result<()>,
) -> Result<HashSet<ContainerId>> {
    let store = &repository.store;
    let cache = ContainerIndexes::new(store.clone(), CONTAINER_INDEXES_MAX, CONTAINER_INDEX_BYTES_MAX);
    let mut locator = Locator::new(all.clone(), cache).sound_only();
    let orphans: HashSet<ContainerId> = all.orphans().into_iter().collect();
    let (mut lacking, mut users): (HashSet<ContainerId>, HashMap<ContainerId, HashSet<ContainerId>>) =
        (HashSet::new(), HashMap::new());
    for id in &all.containers {
        check_stop()?;
        let container_index = match read_container_index(store.as_ref(), id) {
            Ok(container_index) => container_index,
            Err(Error::Corrupt { .. } | Error::ChecksumMismatch { .. }) => continue,
            // Its hot index was not put, so no segment names it.
            Err(Error::Cold { .. }) if orphans.contains(id) => continue,
            Err(error) => return Err(error),
        };
        for base in container_index.bases_elsewhere() {
            match locator.locate_exact(&base)? {
                None => _ = lacking.insert(*id),
                Some(found) => _ = users.entry(found.container).or_default().insert(*id),
            }
        }
    }
    let mut waiting: Vec<ContainerId> = lacking.iter().copied().collect();
    while let Some(id) = waiting.pop() {
        waiting.extend(users.remove(&id).into_iter().flatten().filter(|user| lacking.insert(*user)));
    }
    Ok(lacking)
}

/// The containers of `view` that stay, that no segment names, and that lack bases. No writer uses them.
///
/// # Errors
/// Errors of reading.
pub fn lacking_orphans(
    repository: &Repository,
    view: &View,
    check_stop: &dyn Fn() -> Result<()>,
) -> Result<HashSet<ContainerId>> {
    let orphans = view.retained.orphans();
    if orphans.is_empty() {
        return Ok(HashSet::new());
    }
    let lacking = lacking_bases(repository, &view.all, check_stop)?;
    Ok(orphans.into_iter().filter(|id| lacking.contains(id)).collect())
}
