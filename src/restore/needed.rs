//! Which data containers a restore reads: what must be thawed before it, if they are in cold storage.
//!
//! The tree and the recipes are walked, and each chunk is located. What the target has already is not left out.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::base::RestoreRoot;
use super::chosen_tree::{ChosenTree, TreeStep};
use super::request::RestoreRequest;
use super::run::{METADATA_CACHE_BYTES, find_root};
use crate::error::{Error, Result};
use crate::repo::Repository;
use crate::repo::container::{ContainerKind, blob_name, read_kind};
use crate::repo::index::ContainerListing;
use crate::repo::read::{ChunkReader, RecipeWalk};
use crate::repo::recipe::ContentReference;
use crate::repo::snapshot::NamedSnapshot;
use crate::store::{BlobName, Reading, try_map_parallel};
use crate::types::ContainerId;

/// A data container that a restore reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeededContainer {
    /// Its name in the store.
    pub name: BlobName,
    /// Its bytes.
    pub bytes: u64,
}

/// The data containers that a restore of what `request` asks for reads, by name. Chunks that cannot be found, which the
/// restore will report, need none.
///
/// # Errors
/// [`Error::NoSuchPath`] for entries that the snapshot lacks; damage of the tree; errors of the store.
pub fn needed_containers(
    repository: &Repository,
    snapshot: &NamedSnapshot,
    request: &RestoreRequest,
    stop: &Arc<AtomicBool>,
) -> Result<Vec<NeededContainer>> {
    let (repository, mut request) = (&repository.stopped_by(stop), request.clone());
    let listing = Arc::new(ContainerListing::take(&repository.store)?);
    let mut reader = ChunkReader::with_cache(repository, listing, METADATA_CACHE_BYTES);
    let base = find_root(repository, snapshot, &mut request, &mut reader)?;
    let ids = containers_of(&base, &request, &mut reader, stop)?;
    let mut ids: Vec<ContainerId> = ids.into_iter().collect();
    ids.sort_unstable();
    let store = repository.store.as_ref();
    let found = try_map_parallel(store.properties().requests_max, &ids, |id| {
        let name = blob_name(id);
        if read_kind(store, &name, Reading::Again)? == ContainerKind::Metadata {
            return Ok(None);
        }
        Ok(store.len_of(&name)?.map(|bytes| NeededContainer { name, bytes }))
    })?;
    Ok(found.into_iter().flatten().collect())
}

/// The containers with the frames of all chunks of what is chosen.
fn containers_of(
    base: &RestoreRoot,
    request: &RestoreRequest,
    reader: &mut ChunkReader,
    stop: &AtomicBool,
) -> Result<HashSet<ContainerId>> {
    let (mut tree, mut containers) = (ChosenTree::new(base, request.selection.clone()), HashSet::new());
    while let Some(step) = tree.next(reader)? {
        let node = match step {
            TreeStep::Entry(node) => node,
            TreeStep::Unreadable(error) => return Err(error),
            TreeStep::Enter(_) | TreeStep::Leave(_) => continue,
        };
        let Some(content) = node.content else { continue };
        let mut walk = RecipeWalk::of_stored(content);
        while let Some(reference) = walk.next(reader)? {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let ContentReference::Chunk { fingerprint, .. } = reference else { continue };
            let extent_map = match reader.extent_map_of(&fingerprint) {
                Err(error) if error.is_unreadable() => {
                    tracing::debug!("a chunk needs no container: {error}");
                    continue;
                }
                located => located?,
            };
            for frame in extent_map.frames() {
                containers.insert(reader.resolver.frame_info(*frame)?.0);
            }
        }
    }
    Ok(containers)
}
