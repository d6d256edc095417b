//! Container directories, read on demand and kept within a bound on their number and their bytes.
//!
//! Caches of one run may know of each other: what one of them has, another takes from there instead of reading it, and
//! it is in memory once. Each still keeps, and is asked for, only what itself has loaded.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use lru::LruCache;

use crate::error::{Error, Result};
use crate::repo::container::{ContainerIndex, FOOTER_BYTES, Footer, HEADER_BYTES, blob_name, parse_header};
use crate::store::Store;
use crate::types::{ContainerId, Fingerprint};

/// A directory is never longer than this, bytes on disk.
const CONTAINER_INDEX_BYTES_LIMIT: u64 = 256 << 20;

/// The directories that any of several caches has. It keeps none of them in memory itself.
#[derive(Default)]
pub struct SharedContainerIndexes {
    container_indexes: Mutex<HashMap<ContainerId, Weak<ContainerIndex>>>,
}

impl SharedContainerIndexes {
    fn find(&self, id: &ContainerId) -> Option<Arc<ContainerIndex>> {
        self.container_indexes.lock().unwrap_or_else(PoisonError::into_inner).get(id)?.upgrade()
    }

    fn insert(&self, id: ContainerId, container_index: &Arc<ContainerIndex>) {
        let mut container_indexes = self.container_indexes.lock().unwrap_or_else(PoisonError::into_inner);
        container_indexes.insert(id, Arc::downgrade(container_index));
    }

    /// Forgets a directory if `last` is all there is of it.
    fn release(&self, id: &ContainerId, last: Arc<ContainerIndex>) {
        let mut container_indexes = self.container_indexes.lock().unwrap_or_else(PoisonError::into_inner);
        drop(last);
        if container_indexes.get(id).is_some_and(|container_index| container_index.strong_count() == 0) {
            container_indexes.remove(id);
        }
    }
}

/// Bounded cache of decoded directories.
pub struct ContainerIndexes {
    store: Arc<dyn Store>,
    shared: Arc<SharedContainerIndexes>,
    cache: LruCache<ContainerId, Arc<ContainerIndex>>,
    count_max: usize,
    bytes_max: usize,
    bytes: usize,
}

impl ContainerIndexes {
    /// Keeps at most `count_max` directories and about `bytes_max` bytes (at least one directory).
    pub fn new(store: Arc<dyn Store>, count_max: usize, bytes_max: usize) -> Self {
        Self::sharing(store, count_max, bytes_max, Arc::default())
    }

    /// As [`Self::new`], beside the other caches that have `shared`; all are over the same store.
    pub fn sharing(
        store: Arc<dyn Store>,
        count_max: usize,
        bytes_max: usize,
        shared: Arc<SharedContainerIndexes>,
    ) -> Self {
        ContainerIndexes { store, shared, cache: LruCache::unbounded(), count_max, bytes_max, bytes: 0 }
    }

    /// The directory of a container, read if it is not cached.
    ///
    /// # Errors
    /// [`Error::BlobMissing`] if the container is gone, [`Error::Corrupt`] or [`Error::ChecksumMismatch`] if it is
    /// damaged.
    pub fn load(&mut self, id: &ContainerId) -> Result<Arc<ContainerIndex>> {
        if let Some(found) = self.cache.get(id) {
            return Ok(found.clone());
        }
        let container_index = match self.shared.find(id) {
            Some(found) => found,
            None => Arc::new(read_container_index(self.store.as_ref(), id)?),
        };
        self.insert(*id, container_index.clone());
        Ok(container_index)
    }

    /// Keeps a directory that is in memory already.
    pub fn insert(&mut self, id: ContainerId, container_index: Arc<ContainerIndex>) {
        self.bytes += container_index.memory_bytes();
        self.shared.insert(id, &container_index);
        if let Some((_, old)) = self.cache.push(id, container_index) {
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
        find: impl Fn(&ContainerIndex) -> Option<T>,
    ) -> Option<(ContainerId, Arc<ContainerIndex>, T)> {
        let hit = self.cache.iter().find_map(|(id, container_index)| {
            find(container_index).map(|found| (*id, container_index.clone(), found))
        })?;
        self.cache.promote(&hit.0);
        Some(hit)
    }
}

/// Reads and checks the directory of a stored container, and its header first: that says whether this program may
/// make sense of the rest.
pub fn read_container_index(store: &dyn Store, id: &ContainerId) -> Result<ContainerIndex> {
    let (name, footer, bytes) = read_stored(store, id)?;
    ContainerIndex::parse(&name, &footer, &bytes)
}

/// The fingerprints alone, in the order of the entries, from a directory checked as by [`read_container_index`].
pub fn read_fingerprints(store: &dyn Store, id: &ContainerId) -> Result<Vec<Fingerprint>> {
    let (name, footer, bytes) = read_stored(store, id)?;
    ContainerIndex::parse_fingerprints(&name, &footer, &bytes)
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
    if footer.index_len > CONTAINER_INDEX_BYTES_LIMIT {
        let expected = format!("a directory of at most {CONTAINER_INDEX_BYTES_LIMIT} bytes");
        return Err(Error::corrupt(name, footer.index_offset, expected, footer.index_len.to_string()));
    }
    let bytes = store.get_range(&name, footer.index_offset, footer.index_len as usize)?;
    Ok((name, footer, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repo::container::{ContainerKind, ContainerWriter, StoredFrame};
    use crate::store::{CountingStore, MemoryStore};
    use bytes::Bytes;

    /// A store with `count` containers.
    fn stored(count: u8) -> (Arc<CountingStore<MemoryStore>>, Vec<ContainerId>) {
        let store = CountingStore::new(MemoryStore::new());
        let ids = (0..count).map(|number| {
            let mut writer = ContainerWriter::new(ContainerKind::Data);
            writer
                .push_frame(&StoredFrame { codec: 0, raw_len: 1, payload: Bytes::copy_from_slice(&[number]) })
                .unwrap();
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
        let shared = Arc::<SharedContainerIndexes>::default();
        let cache = |count| ContainerIndexes::sharing(store.clone(), count, usize::MAX, shared.clone());
        let (mut large, mut small) = (cache(8), cache(1));
        let first: Vec<_> = ids.iter().map(|id| large.load(id).unwrap()).collect();
        let read = store.counts().ranges;
        assert!(read > 0);
        for (id, first) in ids.iter().zip(&first) {
            assert!(Arc::ptr_eq(first, &small.load(id).unwrap()));
        }
        assert_eq!(store.counts().ranges, read);
        // Being known to another cache is not being kept: each is asked for its own.
        let find = |container_index: &ContainerIndex| std::ptr::eq(container_index, &*first[0]).then_some(());
        assert!(small.find_cached(find).is_none() && large.find_cached(find).is_some());
        ContainerIndexes::new(store.clone(), 1, 0).load(&ids[0]).unwrap();
        assert!(store.counts().ranges > read, "caches on their own read");
    }

    #[test]
    fn what_no_cache_keeps_any_more_is_read_again_and_forgotten() {
        let (store, ids) = stored(3);
        let shared = Arc::<SharedContainerIndexes>::default();
        let mut cache = ContainerIndexes::sharing(store.clone(), 1, usize::MAX, shared.clone());
        for id in &ids {
            cache.load(id).unwrap();
        }
        assert_eq!(shared.container_indexes.lock().unwrap().len(), 1);
        let read = store.counts().ranges;
        cache.load(&ids[0]).unwrap();
        assert!(store.counts().ranges > read);
    }
}
