//! A reader for any number of threads.
//!
//! 1. Each call takes an idle [`ChunkReader`], or makes one that shares what the others have. So callers decode at the
//!    same time, and wait for each other only if they need the same frame or chunk.
//! 2. What a chunk reader learned of damaged frames and entries stays with it. Others learn it themselves.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::chunks::{CONTAINER_INDEX_BYTES_MAX, ChunkReader};
use super::read_cache::{ReadCache, process_cache};
use super::rebuilt::IdleStreams;
use super::stored_file::{StoredFile, wrong_length};
use crate::error::Result;
use crate::repo::Repository;
use crate::repo::index::ContainerListing;
use crate::repo::recipe::ContentReference;
use crate::store::Store;

/// Chunk readers that are kept for later calls.
const IDLE_MAX: usize = 16;

/// Reads files of a repository. A clone reads through the same caches.
#[derive(Clone)]
pub struct Reader {
    shared: Arc<SharedReader>,
}

/// What clones of a reader share.
struct SharedReader {
    store: Arc<dyn Store>,
    chunk_readers: Mutex<ChunkReaders>,
    /// Contents that are being rebuilt, between two reads.
    streams: IdleStreams,
}

/// Chunk readers that no call uses.
struct ChunkReaders {
    /// The one that others are made from.
    first: ChunkReader,
    idle: Vec<ChunkReader>,
}

impl Reader {
    /// A reader of the containers in `listing`.
    pub fn new(repository: &Repository, listing: Arc<ContainerListing>) -> Self {
        Self::caching_in(&process_cache(), repository, listing)
    }

    /// Like [`Self::new`], with the containers that the repository has now.
    ///
    /// # Errors
    /// Fails if the repository cannot be listed.
    pub fn open(repository: &Repository) -> Result<Self> {
        Ok(Self::new(repository, Arc::new(ContainerListing::take(&repository.store)?)))
    }

    /// A reader that keeps what it decodes in `cache`.
    pub(super) fn caching_in(cache: &Arc<ReadCache>, repository: &Repository, listing: Arc<ContainerListing>) -> Self {
        let first = ChunkReader::caching_in(cache, repository, listing);
        let chunk_readers = Mutex::new(ChunkReaders { first, idle: Vec::new() });
        Reader {
            shared: Arc::new(SharedReader {
                store: repository.store.clone(),
                chunk_readers,
                streams: IdleStreams::default(),
            }),
        }
    }

    /// How often all readers of this process asked for what one of them had decoded: hits and misses.
    pub fn look_ups() -> (u64, u64) {
        process_cache().look_ups().counts()
    }

    pub(super) fn streams(&self) -> &IdleStreams {
        &self.shared.streams
    }

    /// The store that it reads.
    pub fn store(&self) -> &dyn Store {
        self.shared.store.as_ref()
    }

    /// A chunk reader for one thread: for listings and walks.
    pub fn chunks(&self) -> ChunkReader {
        self.shared.chunk_readers().first.sharing(CONTAINER_INDEX_BYTES_MAX)
    }

    /// Calls `work` with a chunk reader that no other call uses meanwhile.
    ///
    /// # Errors
    /// Errors of `work`.
    pub fn lend<T>(&self, work: impl FnOnce(&mut ChunkReader) -> Result<T>) -> Result<T> {
        let idle = self.shared.chunk_readers().idle.pop();
        let mut reader = idle.unwrap_or_else(|| self.chunks());
        let result = work(&mut reader);
        let mut readers = self.shared.chunk_readers();
        if readers.idle.len() < IDLE_MAX {
            readers.idle.push(reader);
        }
        result
    }

    /// The file of `len` bytes with this content. Reads nothing.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] if the content has another length.
    pub fn file(&self, content: Option<ContentReference>, len: u64) -> Result<StoredFile> {
        let content_len = content.map_or(0, |content| content.content_len());
        if content_len != len {
            return Err(wrong_length(len, content_len));
        }
        Ok(StoredFile::new(self.clone(), content))
    }

    /// A content, whatever its length.
    pub fn content(&self, content: ContentReference) -> StoredFile {
        StoredFile::new(self.clone(), Some(content))
    }
}

impl SharedReader {
    fn chunk_readers(&self) -> MutexGuard<'_, ChunkReaders> {
        self.chunk_readers.lock()
    }
}
