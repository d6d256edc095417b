//! Container directories, read on demand and kept within a bound on their number and their bytes.

use std::sync::Arc;

use lru::LruCache;

use crate::container::{Directory, FOOTER_BYTES, Footer, HEADER_BYTES, blob_name, parse_header};
use crate::error::{Error, Result};
use crate::store::Store;
use crate::types::ContainerId;

/// A directory is never longer than this, bytes on disk.
const DIRECTORY_BYTES_LIMIT: u64 = 256 << 20;

/// Bounded cache of decoded directories.
pub struct Directories {
    store: Arc<dyn Store>,
    cache: LruCache<ContainerId, Arc<Directory>>,
    count_max: usize,
    bytes_max: usize,
    bytes: usize,
}

impl Directories {
    /// Keeps at most `count_max` directories and about `bytes_max` bytes (at least one directory).
    pub fn new(store: Arc<dyn Store>, count_max: usize, bytes_max: usize) -> Self {
        Directories { store, cache: LruCache::unbounded(), count_max, bytes_max, bytes: 0 }
    }

    /// The directory of a container, read if it is not cached.
    ///
    /// # Errors
    /// [`Error::BlobMissing`] if the container is gone, [`Error::Corrupt`] or [`Error::ChecksumMismatch`] if it is
    /// damaged.
    pub fn load(&mut self, id: &ContainerId) -> Result<Arc<Directory>> {
        if let Some(found) = self.cache.get(id) {
            return Ok(found.clone());
        }
        let directory = Arc::new(read_directory(self.store.as_ref(), id)?);
        self.insert(*id, directory.clone());
        Ok(directory)
    }

    /// Keeps a directory that is in memory already.
    pub fn insert(&mut self, id: ContainerId, directory: Arc<Directory>) {
        self.bytes += directory.memory_bytes();
        if let Some((_, old)) = self.cache.push(id, directory) {
            self.bytes -= old.memory_bytes();
        }
        while self.cache.len() > 1 && (self.cache.len() > self.count_max || self.bytes > self.bytes_max) {
            if let Some((_, old)) = self.cache.pop_lru() {
                self.bytes -= old.memory_bytes();
            }
        }
    }

    /// Asks the cached directories, most recently used first, and marks the one that answers as used.
    pub fn find_cached<T>(
        &mut self,
        find: impl Fn(&Directory) -> Option<T>,
    ) -> Option<(ContainerId, Arc<Directory>, T)> {
        let hit = self
            .cache
            .iter()
            .find_map(|(id, directory)| find(directory).map(|found| (*id, directory.clone(), found)))?;
        self.cache.promote(&hit.0);
        Some(hit)
    }
}

/// Reads and checks the directory of a stored container, and its header first: that says whether this program may
/// make sense of the rest.
pub fn read_directory(store: &dyn Store, id: &ContainerId) -> Result<Directory> {
    let name = blob_name(id);
    let head = store.head(&name)?.ok_or_else(|| Error::BlobMissing { what: name.clone() })?;
    let Some(footer_offset) = head.len.checked_sub(FOOTER_BYTES as u64) else {
        return Err(Error::corrupt(name, 0, "a container with a footer", format!("{} bytes", head.len)));
    };
    parse_header(&name, &store.get_range(&name, 0, HEADER_BYTES)?)?;
    let footer = store.get_range(&name, footer_offset, FOOTER_BYTES)?;
    let footer = Footer::parse(&name, head.len, &footer)?;
    if footer.directory_len > DIRECTORY_BYTES_LIMIT {
        let expected = format!("a directory of at most {DIRECTORY_BYTES_LIMIT} bytes");
        return Err(Error::corrupt(name, footer.directory_offset, expected, footer.directory_len.to_string()));
    }
    let bytes = store.get_range(&name, footer.directory_offset, footer.directory_len as usize)?;
    Directory::parse(&name, &footer, &bytes)
}
