//! Which indexes, trees and snapshots of a remote repository are cached on the local disk.

use std::sync::Arc;

use super::paths::remote_cache_directory;
use crate::error::Result;
use crate::store::{CachedStore, Store, StoreExt};

/// Directory of the cached blobs, below that of the local caches.
const LASTING: &str = "blobs";
/// Directory of those of a check.
const FRESH: &str = "check-blobs";

/// Directory of the containers that a run has stored.
const RECENT: &str = "recent-containers";
/// They take one part in this many of the cache's bound, in addition to it.
const RECENT_SHARE: u64 = 4;

/// What is cached of a remote repository. Stores on the local disk need no cache.
#[derive(Debug, Clone, Copy)]
pub enum BlobCache {
    /// Nothing.
    None,
    /// About this many bytes, in the user's cache directory.
    Lasting(u64),
    /// About this many bytes, none of them from before, and only as long as the repository is open: for a check, which
    /// must see what is stored.
    Fresh(u64),
}

impl BlobCache {
    /// `store` of the repository `id` with this cache, if it is remote.
    ///
    /// # Errors
    /// [`Error::Usage`](crate::Error::Usage) if the user has no home directory.
    pub(super) fn below(self, store: Arc<dyn Store>, id: &str) -> Result<Arc<dyn Store>> {
        if store.requests_max() == 1 {
            return Ok(store);
        }
        let directory = || remote_cache_directory(&store.location(), id);
        Ok(match self {
            BlobCache::None => store,
            BlobCache::Lasting(bytes_max) => {
                let directory = directory()?;
                let cached = CachedStore::new(store, directory.join(LASTING), bytes_max);
                Arc::new(cached.keeping_containers(directory.join(RECENT), bytes_max / RECENT_SHARE))
            }
            BlobCache::Fresh(bytes_max) => {
                let directory = directory()?.join(FRESH);
                Arc::new(CachedStore::temporary(store, directory, bytes_max))
            }
        })
    }
}
