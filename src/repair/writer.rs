//! Stores what repairs write: containers first, then their segments.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::config::Config;
use crate::error::{Error, Result};
use crate::repo::claims::ContainerClaim;
use crate::repo::container::{SealedContainer, blob_name};
use crate::repo::index::{ChunkIndex, ContainerIndexes, ContainerListing};
use crate::repo::{MetadataWriter, Repository};
use crate::store::Store;
use crate::types::ContainerId;

/// Container indexes in memory, and their bytes.
const CONTAINER_INDEXES_MAX: usize = 32;
const CONTAINER_INDEX_BYTES_MAX: usize = 32 << 20;

/// The index that says which chunks are stored.
pub(super) fn chunk_index(
    repository: &Repository,
    config: &Config,
    listing: &Arc<ContainerListing>,
) -> Result<Arc<Mutex<ChunkIndex>>> {
    let store = repository.store.clone();
    let cache = ContainerIndexes::new(store.clone(), CONTAINER_INDEXES_MAX, CONTAINER_INDEX_BYTES_MAX);
    Ok(Arc::new(Mutex::new(ChunkIndex::new(store, listing.clone(), cache, &config.index, None))))
}

/// A writer of metadata chunks, and the index that says which ones are stored.
pub(super) fn metadata_writer(
    repository: &Repository,
    config: &Config,
    listing: &Arc<ContainerListing>,
) -> Result<(Arc<Mutex<ChunkIndex>>, MetadataWriter)> {
    let index = chunk_index(repository, config, listing)?;
    let (containers, bytes_target) = (repository.new_containers(), config.container.bytes_target.0);
    let metadata = MetadataWriter::new(repository.key, containers, index.clone(), bytes_target)?;
    Ok((index, metadata))
}

/// Stores the container of `metadata` if it is full, or at the end.
pub(super) fn store_full(
    store: &dyn Store,
    index: &Mutex<ChunkIndex>,
    metadata: &mut MetadataWriter,
    at_end: bool,
) -> Result<()> {
    if let Some(sealed) = metadata.take_full(at_end)? {
        store_container(store, index, sealed)?;
    }
    Ok(())
}

/// Stores a container and adds it to the index.
pub(super) fn store_container(store: &dyn Store, index: &Mutex<ChunkIndex>, sealed: SealedContainer) -> Result<()> {
    let id = sealed.store(store)?;
    let mut index = index.lock();
    index.add_container(id, Arc::new(sealed.container_index))
}

/// Stores what is left, and the segment.
pub(super) fn finish(repository: &Repository, index: &Mutex<ChunkIndex>, metadata: &mut MetadataWriter) -> Result<()> {
    store_full(repository.store.as_ref(), index, metadata, true)?;
    index.lock().finish()
}

/// Fails if a prune may have deleted, or may delete, what a repair has written: one that is running now, or one that
/// has deleted a container of `stored` already. A prune that begins later sees what was written.
pub(super) fn check_prune(repository: &Repository, stored: &HashSet<ContainerId>) -> Result<()> {
    let store = repository.store.as_ref();
    let mut is_safe = !ContainerClaim::is_any_pending(store)?;
    for id in stored {
        is_safe &= store.head(&blob_name(id))?.is_some();
    }
    if is_safe {
        return Ok(());
    }
    Err(Error::Usage("a prune is running, or was killed; run `prune` or try again later".into()))
}
