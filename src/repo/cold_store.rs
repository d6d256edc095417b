//! A store that keeps a hot index beside each container of a cold repository, and reads container indexes from there.
//!
//! 1. It belongs above the store that encrypts: what it puts is sealed as other blobs are.
//! 2. In a cold repository, a container that is put gets its hot index before the put returns. So no segment names a
//!    container before its hot index is durable, whoever writes it. A container of data is put as cold.
//! 3. The header, the end and the length of a container are read from the hot index. If that is missing or damaged,
//!    they are read from the container. Frames are always read from the container, and must be there to the end.
//! 4. A hot index says nothing about whether its container is there: listings do.
//!
//! In other repositories it only passes on.

use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;

use super::cold::is_put_cold;
use super::container::{HEADER_BYTES, parse_name};
use super::hot_index::{HotIndex, hot_index_name};
use super::read::at_least_one;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::ByteLru;
use crate::store::{
    BlobKind, BlobMetadata, BlobName, BlobPrefix, ColdState, Durable, ListedBlob, Locks, NewName, OtherCopy, PutBlob,
    PutOptions, ReadTwice, Reading, Sealing, Store, StoreExt, StoreProperties, Thawing, read_stream,
};
use crate::types::ContainerId;

/// Memory of hot indexes, bytes: those of the containers that are read at the same time.
const LOADED_BYTES_MAX: usize = 8 << 20;
/// Containers of which the offset of the index is remembered.
const OFFSETS_MAX: usize = 1 << 16;

/// See the module.
pub struct ColdStore {
    inner: Arc<dyn Store>,
    state: ColdState,
    known: Mutex<KnownIndexes>,
}

/// What was read of hot indexes.
struct KnownIndexes {
    loaded: ByteLru<ContainerId, Arc<HotIndex>>,
    /// Where the index of a container begins. `None` if there is no hot index that can be used.
    offsets: LruCache<ContainerId, Option<u64>>,
    /// Whether the hot indexes of a remote store were listed: what a listing has shown may come from the cache.
    is_listed: bool,
}

impl ColdStore {
    /// A store for a repository that is not known to be cold.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        let offsets = LruCache::new(at_least_one(OFFSETS_MAX));
        let known = KnownIndexes { loaded: ByteLru::new(LOADED_BYTES_MAX), offsets, is_listed: false };
        ColdStore { inner, state: ColdState::default(), known: Mutex::new(known) }
    }

    /// The container `name`, if its index is read from elsewhere.
    fn indexed(&self, name: &BlobName) -> Option<ContainerId> {
        (self.state.is_cold() && name.kind() == BlobKind::Container).then(|| parse_name(name)).flatten()
    }

    /// A range of a container from its hot index. `None` if it must be read from the container.
    fn hot_range(&self, id: &ContainerId, offset: u64, len: usize) -> Result<Option<Vec<u8>>> {
        let is_header = offset.saturating_add(len as u64) <= HEADER_BYTES as u64;
        let known = self.known.lock().offsets.get(id).copied();
        match known {
            Some(None) => return Ok(None),
            Some(Some(index_offset)) if !is_header && offset < index_offset => return Ok(None),
            _ => {}
        }
        Ok(self.loaded(id)?.and_then(|hot_index| hot_index.range(offset, len).map(<[u8]>::to_vec)))
    }

    /// The hot index of a container, from memory if it is there. `None` if there is none that can be used.
    fn loaded(&self, id: &ContainerId) -> Result<Option<Arc<HotIndex>>> {
        let (loaded, offset) = {
            let mut known = self.known.lock();
            (known.loaded.get(id), known.offsets.get(id).copied())
        };
        match (loaded, offset) {
            (Some(hot_index), _) => Ok(Some(hot_index)),
            (None, Some(None)) => Ok(None),
            (None, _) => self.load(id),
        }
    }

    /// Reads a hot index, unless it is missing or damaged.
    fn load(&self, id: &ContainerId) -> Result<Option<Arc<HotIndex>>> {
        self.list_once()?;
        let found = HotIndex::load(self.inner.as_ref(), id).map(Arc::new);
        let mut known = self.known.lock();
        match found {
            Ok(hot_index) => {
                known.offsets.put(*id, Some(hot_index.index_offset()));
                known.loaded.put(*id, hot_index.clone(), hot_index.bytes().len());
                Ok(Some(hot_index))
            }
            Err(error) if error.is_unreadable() => {
                if error.kind() == ErrorKind::NotFound {
                    tracing::debug!("{error}; reading the container");
                } else {
                    tracing::warn!("{error}; reading the container itself: `fhrd cold add` writes it again");
                }
                known.offsets.put(*id, None);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Lists the hot indexes of a remote store, once.
    fn list_once(&self) -> Result<()> {
        if self.inner.requests_max() > 1 && !std::mem::replace(&mut self.known.lock().is_listed, true) {
            self.inner.list(BlobKind::HotIndex.into())?;
        }
        Ok(())
    }

    fn forget(&self, name: &BlobName) {
        let id = if name.kind() == BlobKind::HotIndex { name.indexed().map(ContainerId) } else { self.indexed(name) };
        if let Some(id) = id {
            let mut known = self.known.lock();
            known.loaded.remove(&id);
            known.offsets.pop(&id);
        }
    }
}

impl Store for ColdStore {
    fn put(&self, name: NewName<'_>, parts: &[&[u8]], options: PutOptions) -> Result<PutBlob> {
        let is_container = matches!(name, NewName::Hashed(BlobKind::Container));
        if !is_container || !self.state.is_cold() {
            return self.inner.put(name, parts, options);
        }
        let hot_index = HotIndex::of_parts(parts)?;
        let is_cold = is_put_cold(hot_index.kind());
        let put = self.inner.put(name, parts, PutOptions { is_cold, ..options })?;
        if let Some(id) = parse_name(&put.name) {
            self.inner.put_if_absent(&hot_index_name(&id), &[&hot_index.blob(&id)])?;
        }
        Ok(put)
    }

    fn put_stream(&self, name: NewName<'_>, len: u64, content: &mut dyn ReadTwice) -> Result<PutBlob> {
        match name {
            NewName::Hashed(kind @ BlobKind::Container) if self.state.is_cold() => {
                self.put(name, &[&read_stream(kind.directory(), len, content)?], PutOptions::default())
            }
            _ => self.inner.put_stream(name, len, content),
        }
    }

    fn overwrite(&self, name: &BlobName, parts: &[&[u8]], options: PutOptions) -> Result<()> {
        self.forget(name);
        self.inner.overwrite(name, parts, options)
    }

    fn overwrite_if_present(&self, name: &BlobName, parts: &[&[u8]], options: PutOptions) -> Result<bool> {
        self.forget(name);
        self.inner.overwrite_if_present(name, parts, options)
    }

    fn get(&self, name: &BlobName, bytes_max: u64) -> Result<Vec<u8>> {
        self.inner.get(name, bytes_max)
    }

    fn get_range(&self, name: &BlobName, offset: u64, len: usize, reading: Reading) -> Result<Vec<u8>> {
        // Frames of data are read once.
        let may_be_hot = reading == Reading::Again
            || reading == Reading::Once && offset.saturating_add(len as u64) <= HEADER_BYTES as u64;
        let hot = if may_be_hot { self.indexed(name) } else { None };
        if let Some(id) = hot
            && let Some(bytes) = self.hot_range(&id, offset, len)?
        {
            return Ok(bytes);
        }
        match self.inner.get_range(name, offset, len, reading) {
            Err(Error::Cold { what }) if hot.is_some() => {
                Err(Error::Cold { what: format!("{what} (without a hot index until `fhrd cold add` can read it)") })
            }
            read => read,
        }
    }

    fn head(&self, name: &BlobName) -> Result<Option<BlobMetadata>> {
        self.inner.head(name)
    }

    fn len_of(&self, name: &BlobName) -> Result<Option<u64>> {
        let len = self.inner.len_of(name)?;
        let (Some(id), Some(stored_len)) = (self.indexed(name), len) else { return Ok(len) };
        let Some(hot_index) = self.loaded(&id)? else { return Ok(len) };
        let frames_end = hot_index.index_offset() - hot_index.padding();
        if stored_len < frames_end {
            let expected = format!("frames up to byte {frames_end}");
            return Err(Error::corrupt(name, stored_len, expected, "the end of the container"));
        }
        // What follows may be cut off: the hot index has it.
        Ok(Some(hot_index.container_len()))
    }

    fn list(&self, prefix: BlobPrefix) -> Result<Vec<ListedBlob>> {
        self.inner.list(prefix)
    }

    fn delete(&self, name: &BlobName, durable: Durable) -> Result<()> {
        self.forget(name);
        self.inner.delete(name, durable)
    }

    fn sync_deletions(&self, names: &[BlobName]) -> Result<()> {
        self.inner.sync_deletions(names)
    }

    fn other_copy(&self, name: &BlobName) -> OtherCopy {
        self.forget(name);
        self.inner.other_copy(name)
    }

    fn properties(&self) -> StoreProperties {
        self.inner.properties()
    }

    fn cold_state(&self) -> Option<&ColdState> {
        Some(&self.state)
    }

    fn thawing(&self) -> Option<&dyn Thawing> {
        self.inner.thawing()
    }

    fn locks(&self) -> Option<&dyn Locks> {
        self.inner.locks()
    }

    fn sealing(&self) -> Option<&dyn Sealing> {
        self.inner.sealing()
    }

    fn is_unused(&self) -> Result<bool> {
        self.inner.is_unused()
    }

    fn puts_exclusively(&self, name: &BlobName) -> Result<bool> {
        self.inner.puts_exclusively(name)
    }

    fn make_directories(&self, dry_run: bool) -> Result<()> {
        self.inner.make_directories(dry_run)
    }

    fn clean_temporaries(&self) -> Result<usize> {
        self.inner.clean_temporaries()
    }
}
