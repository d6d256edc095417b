//! Container directories, read on demand and kept within a bound on their number and their bytes.
//!
//! Caches of one run may know of each other: what one of them has, another takes from there instead of reading it, and
//! it is in memory once. Each still keeps, and is asked for, only what itself has loaded.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use lru::LruCache;

use crate::container::{Directory, FOOTER_BYTES, Footer, HEADER_BYTES, blob_name, parse_header};
use crate::error::{Error, Result};
use crate::store::Store;
use crate::types::{ContainerId, Fingerprint};

/// A directory is never longer than this, bytes on disk.
const DIRECTORY_BYTES_LIMIT: u64 = 256 << 20;

/// The directories that any of several caches has. It keeps none of them in memory itself.
#[derive(Default)]
pub struct Shared {
    directories: Mutex<HashMap<ContainerId, Weak<Directory>>>,
}

impl Shared {
    fn find(&self, id: &ContainerId) -> Option<Arc<Directory>> {
        self.directories.lock().unwrap_or_else(PoisonError::into_inner).get(id)?.upgrade()
    }

    fn insert(&self, id: ContainerId, directory: &Arc<Directory>) {
        let mut directories = self.directories.lock().unwrap_or_else(PoisonError::into_inner);
        directories.insert(id, Arc::downgrade(directory));
    }

    /// Forgets a directory if `last` is all there is of it.
    fn release(&self, id: &ContainerId, last: Arc<Directory>) {
        let mut directories = self.directories.lock().unwrap_or_else(PoisonError::into_inner);
        drop(last);
        if directories.get(id).is_some_and(|directory| directory.strong_count() == 0) {
            directories.remove(id);
        }
    }
}

/// Bounded cache of decoded directories.
pub struct Directories {
    store: Arc<dyn Store>,
    shared: Arc<Shared>,
    cache: LruCache<ContainerId, Arc<Directory>>,
    count_max: usize,
    bytes_max: usize,
    bytes: usize,
}

impl Directories {
    /// Keeps at most `count_max` directories and about `bytes_max` bytes (at least one directory).
    pub fn new(store: Arc<dyn Store>, count_max: usize, bytes_max: usize) -> Self {
        Self::sharing(store, count_max, bytes_max, Arc::default())
    }

    /// As [`Self::new`], beside the other caches that have `shared`; all are over the same store.
    pub fn sharing(store: Arc<dyn Store>, count_max: usize, bytes_max: usize, shared: Arc<Shared>) -> Self {
        Directories { store, shared, cache: LruCache::unbounded(), count_max, bytes_max, bytes: 0 }
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
        let directory = match self.shared.find(id) {
            Some(found) => found,
            None => Arc::new(read_directory(self.store.as_ref(), id)?),
        };
        self.insert(*id, directory.clone());
        Ok(directory)
    }

    /// Keeps a directory that is in memory already.
    pub fn insert(&mut self, id: ContainerId, directory: Arc<Directory>) {
        self.bytes += directory.memory_bytes();
        self.shared.insert(id, &directory);
        if let Some((_, old)) = self.cache.push(id, directory) {
            self.bytes -= old.memory_bytes();
        }
        while self.cache.len() > 1 && (self.cache.len() > self.count_max || self.bytes > self.bytes_max) {
            if let Some((id, old)) = self.cache.pop_lru() {
                self.bytes -= old.memory_bytes();
                self.shared.release(&id, old);
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
    let (name, footer, bytes) = read_stored(store, id)?;
    Directory::parse(&name, &footer, &bytes)
}

/// The fingerprints alone, in the order of the entries, from a directory checked as by [`read_directory`].
pub fn read_fingerprints(store: &dyn Store, id: &ContainerId) -> Result<Vec<Fingerprint>> {
    let (name, footer, bytes) = read_stored(store, id)?;
    Directory::parse_fingerprints(&name, &footer, &bytes)
}

/// A container's name, its footer, and its directory as stored.
fn read_stored(store: &dyn Store, id: &ContainerId) -> Result<(String, Footer, Vec<u8>)> {
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
    Ok((name, footer, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::{ContainerKind, StoredFrame, Writer};
    use crate::store::{CountingStore, MemoryStore};
    use bytes::Bytes;

    /// A store with `count` containers.
    fn stored(count: u8) -> (Arc<CountingStore<MemoryStore>>, Vec<ContainerId>) {
        let store = CountingStore::new(MemoryStore::new());
        let ids = (0..count).map(|number| {
            let mut writer = Writer::new(ContainerKind::Data);
            writer.push_frame(&StoredFrame { codec: 0, raw_len: 1, payload: Bytes::copy_from_slice(&[number]) });
            let sealed = writer.seal().unwrap();
            let parts: Vec<&[u8]> = sealed.parts.iter().map(AsRef::as_ref).collect();
            store.put_if_absent(&sealed.blob_name(), &parts).unwrap();
            sealed.id
        });
        let ids = ids.collect();
        (Arc::new(store), ids)
    }

    #[test]
    fn what_one_cache_has_another_does_not_read() {
        let (store, ids) = stored(3);
        let shared = Arc::<Shared>::default();
        let cache = |count| Directories::sharing(store.clone(), count, usize::MAX, shared.clone());
        let (mut large, mut small) = (cache(8), cache(1));
        let first: Vec<_> = ids.iter().map(|id| large.load(id).unwrap()).collect();
        let read = store.counts().ranges;
        assert!(read > 0);
        for (id, first) in ids.iter().zip(&first) {
            assert!(Arc::ptr_eq(first, &small.load(id).unwrap()));
        }
        assert_eq!(store.counts().ranges, read);
        // Being known to another cache is not being kept: each is asked for its own.
        let find = |directory: &Directory| std::ptr::eq(directory, &*first[0]).then_some(());
        assert!(small.find_cached(find).is_none() && large.find_cached(find).is_some());
        Directories::new(store.clone(), 1, 0).load(&ids[0]).unwrap();
        assert!(store.counts().ranges > read, "caches on their own read");
    }

    #[test]
    fn what_no_cache_keeps_any_more_is_read_again_and_forgotten() {
        let (store, ids) = stored(3);
        let shared = Arc::<Shared>::default();
        let mut cache = Directories::sharing(store.clone(), 1, usize::MAX, shared.clone());
        for id in &ids {
            cache.load(id).unwrap();
        }
        assert_eq!(shared.directories.lock().unwrap().len(), 1);
        let read = store.counts().ranges;
        cache.load(&ids[0]).unwrap();
        assert!(store.counts().ranges > read);
    }
}
