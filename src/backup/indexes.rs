//! The indexes of a backup: which chunks are stored, where, and which are similar.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::config::{IndexConfig, LastLevel};
use crate::error::Result;
use crate::metrics::Distribution;
use crate::repo::Repository;
use crate::repo::container::{ContainerRange, FramesInFlight};
use crate::repo::index::{
    ChunkIndex, ContainerIndexes, ContainerListing, DatabaseFile, Hits, Locator, Resolver, SegmentGuard,
    SessionContainer, SharedContainerIndexes, SimilarHits, SimilarityFiles, SimilarityIndex,
};
use crate::repo::tree::ListingBases;
use crate::store::Store;
use crate::types::ContainerId;

/// Container indexes that SubDedup caches for its bases.
const BASE_CONTAINER_INDEXES: usize = 64;
/// Container indexes that a worker of Match or ModelEncode caches, and their share of the memory for them.
const WORKER_CONTAINER_INDEXES: usize = 4;
const WORKER_SHARE: usize = 8;

/// The indexes that the stages of a backup share.
pub struct Indexes {
    listing: Arc<ContainerListing>,
    /// Bytes of container indexes that level 1 of the chunk index caches, and SubDedup for its bases.
    container_index_bytes: usize,
    /// Container indexes in memory, shared by all caches of them.
    pub container_indexes: Arc<SharedContainerIndexes>,
    /// Fingerprint to location.
    pub chunks: Arc<Mutex<ChunkIndex>>,
    /// Feature to entry.
    pub similarity: Arc<Mutex<SimilarityIndex>>,
}

impl Indexes {
    /// Opens the indexes of the containers in `listing`, which share `shared`; their files are in directory `cache`.
    pub fn open(
        repository: &Repository,
        config: &IndexConfig,
        listing: &Arc<ContainerListing>,
        shared: Arc<SharedContainerIndexes>,
        cache: PathBuf,
    ) -> Self {
        let store = &repository.store;
        let (containers_max, bytes_max) = (config.local_containers, config.container_index_bytes.0 as usize);
        let local = ContainerIndexes::sharing(store.clone(), containers_max, bytes_max, shared.clone());
        let mut chunks = ChunkIndex::new(store.clone(), listing.clone(), local, config, Some(&cache));
        if config.last_level == LastLevel::Redb {
            chunks.set_database(DatabaseFile {
                directory: cache.clone(),
                repository: repository.id.clone(),
                cache_bytes: config.redb_cache_bytes.0,
                key: repository.cache_key(),
            });
        }
        let files = SimilarityFiles {
            directory: cache,
            repository: repository.id.clone(),
            memory_bytes: config.similarity_bytes.0,
            file_bytes: config.similarity_file_bytes.0,
            key: repository.cache_key(),
        };
        let similarity = SimilarityIndex::new(store.clone(), listing.clone(), files);
        Indexes {
            listing: listing.clone(),
            container_index_bytes: bytes_max,
            container_indexes: shared,
            chunks: Arc::new(Mutex::new(chunks)),
            similarity: Arc::new(Mutex::new(similarity)),
        }
    }

    /// Finds the stored operation lists of bases.
    pub fn resolver(&self, store: &Arc<dyn Store>) -> Resolver {
        let cache = self.cache(store, BASE_CONTAINER_INDEXES, self.container_index_bytes);
        Resolver::new(Locator::new(self.listing.clone(), cache).sound_only())
    }

    /// Finds bases, for one worker of Match.
    pub fn worker_locator(&self, store: &Arc<dyn Store>) -> Locator {
        Locator::new(self.listing.clone(), self.worker_container_indexes(store)).sound_only()
    }

    /// The container indexes of one worker.
    pub fn worker_container_indexes(&self, store: &Arc<dyn Store>) -> ContainerIndexes {
        self.cache(store, WORKER_CONTAINER_INDEXES, self.container_index_bytes / WORKER_SHARE)
    }

    /// Reads bases of listings.
    pub fn listing_bases(&self, repository: &Repository) -> ListingBases {
        ListingBases::new(repository, &self.listing, &self.container_indexes)
    }

    fn cache(&self, store: &Arc<dyn Store>, containers_max: usize, bytes_max: usize) -> ContainerIndexes {
        ContainerIndexes::sharing(store.clone(), containers_max, bytes_max, self.container_indexes.clone())
    }

    /// Writes the features of this run for the next run: which container holds which session entries.
    pub fn finish_similarity(&self, in_flight: &FramesInFlight) {
        let session_container = |range: ContainerRange| SessionContainer {
            first: range.first_entry,
            entries: range.entries,
            container: range.container,
        };
        let containers: Vec<SessionContainer> = in_flight.stored().into_iter().map(session_container).collect();
        let chunks = self.chunks.lock();
        let mut similarity = self.similarity.lock();
        similarity.finish(&containers, chunks.stored().iter().copied());
    }

    /// Containers of this run.
    pub fn stored(&self) -> HashSet<ContainerId> {
        self.chunks.lock().stored().clone()
    }

    /// The hits of each level so far.
    pub fn hits(&self) -> Hits {
        self.chunks.lock().hits
    }

    /// Look-ups of sub-blocks so far.
    pub fn similar_hits(&self) -> SimilarHits {
        self.similarity.lock().hits
    }

    /// Microseconds from Read until a new chunk was durable.
    pub fn durable_us(&self) -> Distribution {
        self.chunks.lock().durable_us.clone()
    }

    /// Calls `guard` before each segment that is written before the end.
    pub fn set_guard(&self, guard: SegmentGuard) {
        self.chunks.lock().set_guard(guard);
    }

    /// Completes the chunk index and returns the hits of each level.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn finish_chunks(&self) -> Result<Hits> {
        let mut index = self.chunks.lock();
        index.finish()?;
        Ok(index.hits)
    }

    /// Writes the presence filter for the next run, and stores clues to near versions for other machines. It merges
    /// blobs of these if it `may_delete`.
    pub fn after_commit(&self, may_delete: bool) {
        self.chunks.lock().save_filter();
        match self.similarity.lock().share_clues(may_delete) {
            Ok(containers) => tracing::debug!("{containers} containers have new clues for other machines"),
            Err(error) => tracing::warn!("other machines read more to find near versions: {error}"),
        }
    }
}
