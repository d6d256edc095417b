//! Container indexes, read on demand and cached within bounds on their number and their bytes.
//!
//! The caches of one run may share: if one of them has a container index in memory, the others take it from there
//! instead of reading it again. Each cache still evicts and searches only what it has loaded itself.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock, Weak};

use lru::LruCache;
use parking_lot::Mutex;

use super::listing::ContainerListing;
use super::owner::{check_owner, not_its_own};
use crate::error::{Error, Result};
use crate::repo::container::{
    ContainerIndex, ContainerKind, FOOTER_BYTES, Footer, HEADER_BYTES, INDEX_BYTES_LIMIT, blob_name, parse_header,
};
use crate::store::{BlobName, Reading, Store, StoreExt, read_again, try_map_parallel};
use crate::types::{ContainerId, Fingerprint};

/// Weak references to the container indexes that several caches hold.
#[derive(Default)]
pub struct SharedContainerIndexes {
    container_indexes: Mutex<HashMap<ContainerId, Weak<ContainerIndex>>>,
    loaded: Mutex<HashSet<ContainerId>>,
    /// The listing whose segments say which chunks a container has.
    listing: OnceLock<Weak<ContainerListing>>,
    /// Whether containers have their own bytes, as far as is known.
    owned: Mutex<HashMap<ContainerId, bool>>,
}

impl SharedContainerIndexes {
    /// The containers whose index any of the caches has held.
    pub fn loaded(&self) -> HashSet<ContainerId> {
        self.loaded.lock().clone()
    }

    /// Records that something relies on the index of a container.
    pub(super) fn note_loaded(&self, id: ContainerId) {
        self.loaded.lock().insert(id);
    }

    /// From now on, an index that is read must be the one that the segments of `listing` describe.
    pub(super) fn verify_by(&self, listing: &Arc<ContainerListing>) {
        self.listing.get_or_init(|| Arc::downgrade(listing));
    }

    fn read(&self, store: &dyn Store, id: &ContainerId) -> Result<ContainerIndex> {
        let is_owned = self.owned.lock().get(id).copied();
        let Some(listing) = self.listing.get().and_then(Weak::upgrade).filter(|_| is_owned != Some(true)) else {
            return read_container_index(store, id);
        };
        if is_owned == Some(false) {
            return Err(not_its_own(id));
        }
        // Parity may give back the right bytes.
        let is_refused = Cell::new(false);
        let read = read_again(store, &blob_name(id), || {
            let container_index = read_container_index(store, id)?;
            let checked = check_owner(&listing, id, &container_index);
            is_refused.set(checked.as_ref().is_err_and(Error::is_bad_blob));
            // What was healed meanwhile has another index.
            if checked? { read_container_index(store, id) } else { Ok(container_index) }
        });
        // Parity that was not tried may give it back another time.
        let is_refused = is_refused.get() && read.as_ref().is_err_and(Error::is_proven_damage);
        if read.is_ok() || is_refused {
            self.owned.lock().insert(*id, read.is_ok());
        }
        read
    }

    fn find(&self, id: &ContainerId) -> Option<Arc<ContainerIndex>> {
        self.container_indexes.lock().get(id)?.upgrade()
    }

    fn insert(&self, id: ContainerId, container_index: &Arc<ContainerIndex>) {
        let mut container_indexes = self.container_indexes.lock();
        container_indexes.insert(id, Arc::downgrade(container_index));
    }

    /// Drops a container index, and its entry here if `last` was the last reference.
    fn release(&self, id: &ContainerId, last: Arc<ContainerIndex>) {
        let mut container_indexes = self.container_indexes.lock();
        drop(last);
        if container_indexes.get(id).is_some_and(|container_index| container_index.strong_count() == 0) {
            container_indexes.remove(id);
        }
    }
}

/// Container indexes that a cache has, whatever their bytes: a chunk and its base are often in two containers, and
/// thousands of such chunks in a row are in the same two.
const COUNT_MIN: usize = 2;

/// Bounded cache of decoded container indexes.
pub struct ContainerIndexes {
    store: Arc<dyn Store>,
    shared: Arc<SharedContainerIndexes>,
    cache: LruCache<ContainerId, Arc<ContainerIndex>>,
    count_max: usize,
    bytes_max: usize,
    bytes: usize,
}

impl ContainerIndexes {
    /// A cache of at most `count_max` container indexes and about `bytes_max` bytes, but at least [`COUNT_MIN`].
    pub fn new(store: Arc<dyn Store>, count_max: usize, bytes_max: usize) -> Self {
        Self::sharing(store, count_max, bytes_max, Arc::default())
    }

    /// Like [`Self::new`], for a cache that shares with the others of `shared`. All of them use the same store.
    pub fn sharing(
        store: Arc<dyn Store>,
        count_max: usize,
        bytes_max: usize,
        shared: Arc<SharedContainerIndexes>,
    ) -> Self {
        ContainerIndexes { store, shared, cache: LruCache::unbounded(), count_max, bytes_max, bytes: 0 }
    }

    /// Another cache of the same size that shares with the same others.
    pub fn sharing_with(&self) -> Self {
        Self::sharing(self.store.clone(), self.count_max, self.bytes_max, self.shared.clone())
    }

    /// From now on, an index that this cache reads, or one that shares with it, must be the one that the segments of
    /// `listing` describe.
    pub(super) fn verify_by(&self, listing: &Arc<ContainerListing>) {
        self.shared.verify_by(listing);
    }

    /// The container index of a container, read if it is not cached.
    ///
    /// # Errors
    /// [`Error::BlobMissing`] if the container is gone, [`Error::Corrupt`] or [`Error::ChecksumMismatch`] if it is
    /// damaged, or if its bytes are those of another container.
    pub fn load(&mut self, id: &ContainerId) -> Result<Arc<ContainerIndex>> {
        if let Some(found) = self.cache.get(id) {
            return Ok(found.clone());
        }
        let container_index = match self.shared.find(id) {
            Some(found) => found,
            None => Arc::new(self.shared.read(self.store.as_ref(), id)?),
        };
        self.insert(*id, container_index.clone());
        Ok(container_index)
    }

    /// Caches a container index.
    pub fn insert(&mut self, id: ContainerId, container_index: Arc<ContainerIndex>) {
        self.shared.note_loaded(id);
        self.bytes += container_index.memory_bytes();
        self.shared.insert(id, &container_index);
        if let Some((_, old)) = self.cache.push(id, container_index) {
            self.bytes -= old.memory_bytes();
        }
        let is_over = |len: usize, bytes| len > self.count_max || (len > COUNT_MIN && bytes > self.bytes_max);
        while self.cache.len() > 1 && is_over(self.cache.len(), self.bytes) {
            if let Some((id, old)) = self.cache.pop_lru() {
                self.bytes -= old.memory_bytes();
                self.shared.release(&id, old);
            }
        }
    }

    /// The first result of `find` over the cached container indexes, most recently used first. The container index
    /// that gave it counts as used.
    pub fn find_cached<T>(
        &mut self,
        find: impl Fn(&ContainerId, &ContainerIndex) -> Option<T>,
    ) -> Option<(ContainerId, Arc<ContainerIndex>, T)> {
        let hit = self.cache.iter().find_map(|(id, container_index)| {
            find(id, container_index).map(|found| (*id, container_index.clone(), found))
        })?;
        self.cache.promote(&hit.0);
        Some(hit)
    }
}

/// Reads and checks the container index of a stored container. The header comes first, because it says whether this
/// version of fhrd can read the rest.
pub fn read_container_index(store: &dyn Store, id: &ContainerId) -> Result<ContainerIndex> {
    read_again(store, &blob_name(id), || {
        let StoredIndex { name, kind, footer, bytes } = read_stored(store, id)?;
        let mut container_index = ContainerIndex::parse(&name, &footer, &bytes)?;
        container_index.kind = kind;
        Ok(container_index)
    })
}

/// Reads the indexes of containers into the cache of a remote store, several at once, for a step that needs all of them
/// one after the other. Damaged ones, and those that are gone, are errors when they are needed.
///
/// # Errors
/// Errors of the store.
pub fn cache_container_indexes<'a>(store: &dyn Store, ids: impl IntoIterator<Item = &'a ContainerId>) -> Result<()> {
    if store.requests_max() > 1 {
        let mut ids: Vec<ContainerId> = ids.into_iter().copied().collect();
        ids.sort_unstable();
        try_map_parallel(store.requests_max(), &ids, |id| match read_stored(store, id) {
            Err(error) if !error.is_unavailable() => Err(error),
            _ => Ok(()),
        })?;
    }
    Ok(())
}

/// Reads only the number of entries.
pub fn read_entry_count(store: &dyn Store, id: &ContainerId) -> Result<u32> {
    read_again(store, &blob_name(id), || Ok(read_footer(store, &blob_name(id))?.entries))
}

/// Reads only the fingerprints, in order of the entries, with the checks of [`read_container_index`].
pub fn read_fingerprints(store: &dyn Store, id: &ContainerId) -> Result<Vec<Fingerprint>> {
    read_again(store, &blob_name(id), || {
        let StoredIndex { name, footer, bytes, .. } = read_stored(store, id)?;
        ContainerIndex::parse_fingerprints(&name, &footer, &bytes)
    })
}

/// The encoded container index of a container, and where it is.
struct StoredIndex {
    /// Store name of the container.
    name: BlobName,
    kind: ContainerKind,
    footer: Footer,
    bytes: Vec<u8>,
}

fn read_footer(store: &dyn Store, name: &BlobName) -> Result<Footer> {
    let len = store.len_of(name)?.ok_or_else(|| Error::BlobMissing { what: name.into() })?;
    let Some(footer_offset) = len.checked_sub(FOOTER_BYTES as u64) else {
        return Err(Error::corrupt(name, 0, "a container with a footer", format!("{len} bytes")));
    };
    Footer::parse(name, len, &store.get_range(name, footer_offset, FOOTER_BYTES, Reading::Again)?)
}

fn read_stored(store: &dyn Store, id: &ContainerId) -> Result<StoredIndex> {
    let name = blob_name(id);
    let kind = parse_header(&name, &store.get_range(&name, 0, HEADER_BYTES, Reading::Again)?)?;
    let footer = read_footer(store, &name)?;
    if footer.index_len > INDEX_BYTES_LIMIT {
        let expected = format!("a container index of at most {INDEX_BYTES_LIMIT} bytes");
        return Err(Error::corrupt(name, footer.index_offset, expected, footer.index_len.to_string()));
    }
    let bytes = store.get_range(&name, footer.index_offset, footer.index_len as usize, Reading::Again)?;
    Ok(StoredIndex { name, kind, footer, bytes })
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
            let mut writer = ContainerWriter::new(ContainerKind::Data, &[7; 16]);
            writer
                .push_frame(&StoredFrame { codec: 0, raw_len: 1, payload: Bytes::copy_from_slice(&[number]) })
                .unwrap();
            writer.seal().unwrap().store(&store).unwrap()
        });
        let ids = ids.collect();
        (Arc::new(store), ids)
    }

    #[test]
    fn a_shared_container_index_is_read_once() {
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
        // A cache does not search what only another cache holds.
        let find =
            |_: &ContainerId, container_index: &ContainerIndex| std::ptr::eq(container_index, &*first[0]).then_some(());
        assert!(small.find_cached(find).is_none() && large.find_cached(find).is_some());
        ContainerIndexes::new(store.clone(), 1, 0).load(&ids[0]).unwrap();
        assert!(store.counts().ranges > read, "caches on their own read");
    }

    #[test]
    fn an_evicted_container_index_is_read_again() {
        let (store, ids) = stored(3);
        let shared = Arc::<SharedContainerIndexes>::default();
        let mut cache = ContainerIndexes::sharing(store.clone(), 1, usize::MAX, shared.clone());
        for id in &ids {
            cache.load(id).unwrap();
        }
        assert_eq!(shared.container_indexes.lock().len(), 1);
        let read = store.counts().ranges;
        cache.load(&ids[0]).unwrap();
        assert!(store.counts().ranges > read);
    }

    #[test]
    fn two_container_indexes_fit_whatever_their_bytes() {
        let (store, ids) = stored(3);
        let mut cache = ContainerIndexes::new(store.clone(), 10, 1);
        cache.load(&ids[2]).unwrap();
        let mut reads = |ids: &[ContainerId]| {
            let before = store.counts().ranges;
            ids.iter().for_each(|id| drop(cache.load(id).unwrap()));
            store.counts().ranges - before
        };
        let first = reads(&ids[..2]);
        assert_eq!((reads(&ids[..2]), reads(&ids[..2])), (0, 0), "a chunk and its base, in turns");
        assert!(first > 0 && reads(&ids[2..]) > 0);
    }
}
