//! A store that keeps copies of what is read again and again on the local disk: indexes, trees and snapshots.
//!
//! 1. Blobs whose names are hashes never change, so a copy is right for ever. Whether a blob *exists* only the store
//!    says: a copy counts only while the store's last listing, a put or a read of this process has shown the blob.
//!    [`Store::head`] and [`Store::list`] always ask the store.
//! 2. Segments, snapshots, bundles, models and marks are cached whole, in blocks. Of containers, which hold data, only
//!    what is read with [`Reading::Again`] or put with [`PutOptions::read_again_from`] is cached: the container
//!    index at the end, the header, and all of a metadata container. So a restore does not wash the index out.
//! 3. A block that is missing is fetched whole, by one request, while other threads that want it wait.
//! 4. For a check, which reads every byte more than once, a temporary cache holds whole containers.
//! 5. It belongs below the store that encrypts: the files then hold sealed bytes, and need no key.
//! 6. Containers that this process has put may stay for its time ([`CachedStore::keeping_containers`]): a backup often
//!    copies from what it has just stored.
//!
//! Keys, the configuration, intents and pending entries are never cached.

use std::collections::HashMap;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;

use parking_lot::{Mutex, MutexGuard, RwLock};

use super::cache_files::{CacheFiles, FragmentName};
use super::cached_fragments::{
    ALL, CONTAINER_BLOCK_BYTES, CacheableBlob, Fragment, HEAD, HEAD_BYTES, TAIL, WHOLE_BLOCK_BYTES,
};
use super::name::check_range;
use super::recent_containers::RecentContainers;
use super::{
    BlobKind, BlobMetadata, BlobName, BlobPrefix, ColdState, Durable, ListedBlob, Locks, NewName, OtherCopy, PutBlob,
    PutOptions, ReadTwice, Reading, Sealing, Store, StoreProperties, Thawing,
};
use crate::error::{Error, Result};

/// Longest container that a temporary cache holds whole, and the part of its bound that one may take.
const WHOLE_CONTAINER_BYTES_MAX: u64 = 256 << 20;
const WHOLE_CONTAINER_SHARE: u64 = 8;

/// Blocks of one blob, at most, of which copies are looked for: 4 TiB. A hostile server can say any length.
const BLOCKS_MAX: u64 = 1 << 20;

/// Threads that fetch different fragments rarely wait for each other with this many locks.
const LOCKS: usize = 64;

/// Lengths of the blobs of a kind, by the hash in their names.
type Lengths = HashMap<[u8; 32], u64>;

/// See the module.
pub struct CachedStore<S> {
    inner: S,
    files: CacheFiles,
    /// Longest container that is cached whole when any of it is read.
    container_bytes_max: u64,
    /// Containers that this process has put.
    recent: Option<RecentContainers>,
    /// The blobs that this process knows to exist, by kind.
    known: RwLock<HashMap<BlobKind, Lengths>>,
    fetching: [Mutex<()>; LOCKS],
}

impl<S: Store> CachedStore<S> {
    /// Keeps copies of blobs of `inner` in `directory`, together about `bytes_max` bytes.
    pub fn new(inner: S, directory: PathBuf, bytes_max: u64) -> Self {
        let fetching = std::array::from_fn(|_| Mutex::default());
        let (files, known) = (CacheFiles::new(directory, bytes_max), RwLock::default());
        CachedStore { inner, files, container_bytes_max: 0, recent: None, known, fetching }
    }

    /// Also keeps whole containers that this process puts, in `directory`, which is deleted with the store. Together
    /// about `bytes_max` bytes.
    pub fn keeping_containers(self, directory: PathBuf, bytes_max: u64) -> Self {
        CachedStore { recent: Some(RecentContainers::new(directory, bytes_max)), ..self }
    }

    /// Like [`Self::new`], but nothing is there at the start, data is cached, too, and `directory` is deleted with the
    /// store.
    pub fn temporary(inner: S, directory: PathBuf, bytes_max: u64) -> Self {
        let cached = Self::new(inner, directory, bytes_max);
        let container_bytes_max = WHOLE_CONTAINER_BYTES_MAX.min(bytes_max / WHOLE_CONTAINER_SHARE);
        CachedStore { files: cached.files.temporary(), container_bytes_max, ..cached }
    }

    /// The fragment with all of a container, if such are cached.
    fn whole_container(&self, blob: &CacheableBlob<'_>, len: u64) -> Option<Fragment> {
        let is_cached = blob.is_container() && (1..=self.container_bytes_max).contains(&len);
        is_cached.then_some(Fragment { number: ALL, start: 0, len })
    }

    fn known_len(&self, blob: &CacheableBlob<'_>) -> Option<u64> {
        let known = self.known.read();
        known.get(&blob.kind())?.get(&blob.hash).copied()
    }

    fn note(&self, blob: &CacheableBlob<'_>, len: u64) {
        let mut known = self.known.write();
        known.entry(blob.kind()).or_default().insert(blob.hash, len);
    }

    /// Notes that a blob is gone, if that is what an error says.
    fn note_failure(&self, name: &BlobName, error: &Error) {
        if let (Error::BlobMissing { .. }, Some(blob)) = (error, CacheableBlob::of(name)) {
            self.forget(&blob);
        }
    }

    fn forget(&self, blob: &CacheableBlob<'_>) {
        let mut known = self.known.write();
        known.get_mut(&blob.kind()).map(|lengths| lengths.remove(&blob.hash));
    }

    /// Notes what a listing of `prefix` shows.
    fn note_listed(&self, prefix: BlobPrefix, listed: &[ListedBlob]) {
        let mut new: HashMap<BlobKind, Lengths> = HashMap::new();
        for (blob, len) in listed.iter().filter_map(|blob| Some((CacheableBlob::of(&blob.name)?, blob.len))) {
            new.entry(blob.kind()).or_default().insert(blob.hash, len);
        }
        let mut known = self.known.write();
        for kind in BlobKind::all() {
            let lengths = new.remove(&kind).unwrap_or_default();
            if prefix == BlobPrefix::All || prefix == kind.into() {
                known.insert(kind, lengths);
            } else {
                known.entry(kind).or_default().extend(lengths);
            }
        }
    }

    /// A range of a blob that is cached, or `None` if it is not known to exist.
    fn cached_range(&self, blob: &CacheableBlob<'_>, offset: u64, len: usize) -> Result<Option<Vec<u8>>> {
        let Some(blob_len) = self.known_len(blob) else { return Ok(None) };
        check_range(blob.name, blob_len, offset, len)?;
        let end = offset + len as u64;
        if let Some(all) = self.whole_container(blob, blob_len)
            && let Some(bytes) = self.files.read(blob.fragment(&all), offset, len)
        {
            return Ok(Some(bytes));
        }
        if blob.is_container()
            && let Some(tail_len) = self.files.len(FragmentName { blob: blob.name, fragment: TAIL })
            && let Some(at) = (tail_len <= blob_len).then(|| offset.checked_sub(blob_len - tail_len)).flatten()
            && let Some(bytes) = self.files.read(FragmentName { blob: blob.name, fragment: TAIL }, at, len)
        {
            // It was put with more than a reader would fetch.
            return Ok(Some(bytes));
        }
        let mut bytes = Vec::new();
        for fragment in blob.fragments(blob_len, offset, end) {
            let from = offset.max(fragment.start) - fragment.start;
            let until = end.min(fragment.start + fragment.len) - fragment.start;
            let part = self.part(blob, blob_len, &fragment, (from, until.saturating_sub(from) as usize))?;
            if bytes.is_empty() {
                bytes = part;
            } else {
                bytes.extend_from_slice(&part);
            }
        }
        Ok(Some(bytes))
    }

    /// A part of a fragment, which is fetched if it is not cached.
    fn part(
        &self,
        blob: &CacheableBlob<'_>,
        blob_len: u64,
        fragment: &Fragment,
        part: (u64, usize),
    ) -> Result<Vec<u8>> {
        let (from, len) = part;
        let read = || {
            let is_whole = || self.files.len(blob.fragment(fragment)) == Some(fragment.len);
            (fragment.number != TAIL || is_whole())
                .then(|| self.files.read(blob.fragment(fragment), from, len))
                .flatten()
        };
        if let Some(bytes) = read() {
            return Ok(bytes);
        }
        let _one = self.lock(blob, fragment);
        if let Some(bytes) = read() {
            return Ok(bytes);
        }
        let fetched = self.inner.get_range(blob.name, fragment.start, fragment.len as usize, Reading::Once);
        let mut bytes = fetched.inspect_err(|error| self.note_failure(blob.name, error))?;
        // Parts of a blob are checked by those who read them, and so is all that a check reads.
        if fragment.len < blob_len || fragment.number == ALL || blob.accepts_parts(&[&bytes]) {
            self.files.write(blob.fragment(fragment), &[&bytes]);
        }
        bytes.truncate(from as usize + len);
        bytes.drain(..from as usize);
        Ok(bytes)
    }

    /// Held while a fragment is fetched.
    fn lock(&self, blob: &CacheableBlob<'_>, fragment: &Fragment) -> MutexGuard<'_, ()> {
        let at = usize::from(blob.hash[0]).wrapping_add(fragment.number as usize) % LOCKS;
        self.fetching[at].lock()
    }

    /// Keeps a blob that this process has put, from byte `from` on.
    fn keep_put(&self, name: &BlobName, parts: &[&[u8]], from: u64) {
        let Some(blob) = CacheableBlob::of(name) else { return };
        let len: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let range = |start: u64, end: u64| {
            let mut at = 0;
            let cut = parts.iter().filter_map(move |part| {
                let (first, last) = (start.max(at) - at, end.min(at + part.len() as u64).saturating_sub(at));
                at += part.len() as u64;
                part.get(first as usize..last as usize).filter(|cut| !cut.is_empty())
            });
            cut.collect::<Vec<&[u8]>>()
        };
        if blob.is_container() {
            if from > 0 {
                self.recent.iter().for_each(|recent| recent.keep(name, parts));
                self.files.write(FragmentName { blob: name, fragment: HEAD }, &range(0, HEAD_BYTES.min(len)));
            }
            self.files.write(FragmentName { blob: name, fragment: TAIL }, &range(from.min(len), len));
        } else {
            for fragment in blob.fragments(len, 0, len) {
                self.files.write(blob.fragment(&fragment), &range(fragment.start, fragment.start + fragment.len));
            }
        }
        self.note(&blob, len);
    }

    /// The whole blob.
    fn whole(&self, name: &BlobName, bytes_max: u64) -> Result<Vec<u8>> {
        let blob = CacheableBlob::of(name).filter(|blob| !blob.is_container());
        if let Some(blob) = &blob
            && let Some(len) = self.known_len(blob).filter(|len| *len <= bytes_max)
            && let Some(bytes) = self.cached_range(blob, 0, usize::try_from(len).unwrap_or(usize::MAX))?
        {
            return Ok(bytes);
        }
        let bytes = self.inner.get(name, bytes_max).inspect_err(|error| self.note_failure(name, error))?;
        if let Some(blob) = &blob
            && blob.accepts_parts(&[&bytes])
        {
            self.keep_put(name, &[&bytes], 0);
        }
        Ok(bytes)
    }
}

/// A stream of which each block is cached while it passes.
struct CachedStream<'a, S> {
    store: &'a CachedStore<S>,
    blob: CacheableBlob<'a>,
    content: &'a mut dyn ReadTwice,
    block: Vec<u8>,
    number: u64,
}

impl<S: Store> CachedStream<'_, S> {
    fn keep(&mut self) {
        let fragment = FragmentName { blob: self.blob.name, fragment: self.number };
        self.store.files.write(fragment, &[&self.block]);
        self.block.clear();
        self.number += 1;
    }
}

impl<S: Store> Read for CachedStream<'_, S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let space = WHOLE_BLOCK_BYTES as usize - self.block.len();
        let len = buffer.len().min(space);
        let read = self.content.read(&mut buffer[..len])?;
        self.block.extend_from_slice(&buffer[..read]);
        if self.block.len() as u64 == WHOLE_BLOCK_BYTES {
            self.keep();
        }
        Ok(read)
    }
}

impl<S: Store> Seek for CachedStream<'_, S> {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.block.clear();
        self.number = 0;
        self.content.seek(position)
    }
}

impl<S: Store> Store for CachedStore<S> {
    fn put(&self, name: NewName<'_>, parts: &[&[u8]], options: PutOptions) -> Result<PutBlob> {
        let put = self.inner.put(name, parts, options)?;
        let Some(blob) = CacheableBlob::of(&put.name) else { return Ok(put) };
        let is_right = || match name {
            // What is stored under the name may be something else.
            NewName::Given(_) => put.is_new && blob.accepts_parts(parts),
            NewName::Hashed(_) => true,
        };
        match options.read_again_from {
            Some(from) if blob.is_container() && is_right() => self.keep_put(&put.name, parts, from),
            _ if !blob.is_container() && is_right() => self.keep_put(&put.name, parts, 0),
            _ => {}
        }
        Ok(put)
    }

    fn put_stream(&self, name: NewName<'_>, len: u64, content: &mut dyn ReadTwice) -> Result<PutBlob> {
        let name = name.for_stream(content)?;
        let Some(blob) = CacheableBlob::of(&name).filter(|blob| !blob.is_container()) else {
            return self.inner.put_stream(NewName::Given(&name), len, content);
        };
        let mut stream = CachedStream { store: self, blob, content, block: Vec::new(), number: 0 };
        let put = self.inner.put_stream(NewName::Given(&name), len, &mut stream);
        if !stream.block.is_empty() {
            stream.keep();
        }
        let blocks = stream.number;
        if put.as_ref().is_ok_and(|put| put.is_new) {
            self.note(&blob, len);
        } else {
            (0..blocks).for_each(|fragment| _ = self.files.remove(FragmentName { blob: &name, fragment }));
        }
        put
    }

    fn overwrite(&self, name: &BlobName, parts: &[&[u8]], options: PutOptions) -> Result<()> {
        CacheableBlob::of(name).iter().for_each(|blob| self.forget(blob));
        self.inner.overwrite(name, parts, options)
    }

    fn overwrite_if_present(&self, name: &BlobName, parts: &[&[u8]], options: PutOptions) -> Result<bool> {
        CacheableBlob::of(name).iter().for_each(|blob| self.forget(blob));
        self.inner.overwrite_if_present(name, parts, options)
    }

    fn get(&self, name: &BlobName, bytes_max: u64) -> Result<Vec<u8>> {
        self.whole(name, bytes_max)
    }

    fn get_range(&self, name: &BlobName, offset: u64, len: usize, reading: Reading) -> Result<Vec<u8>> {
        let from_inner = || {
            let read = self.inner.get_range(name, offset, len, reading);
            read.inspect_err(|error| self.note_failure(name, error))
        };
        let Some(blob) = CacheableBlob::of(name) else { return from_inner() };
        if reading == Reading::Again || (reading == Reading::Once && !blob.is_container()) {
            return self.cached_range(&blob, offset, len)?.map_or_else(from_inner, Ok);
        }
        let Some(blob_len) = self.known_len(&blob) else { return from_inner() };
        // In a temporary cache, also for a check: these bytes were, or will be, checked otherwise.
        if let Some(all) = self.whole_container(&blob, blob_len) {
            check_range(name, blob_len, offset, len)?;
            return self.part(&blob, blob_len, &all, (offset, len));
        }
        if reading == Reading::FromStore {
            return from_inner();
        }
        let recent = self.recent.as_ref().and_then(|recent| recent.read(name, offset, len));
        recent.map_or_else(from_inner, Ok)
    }

    fn head(&self, name: &BlobName) -> Result<Option<BlobMetadata>> {
        let head = self.inner.head(name)?;
        if let Some(blob) = CacheableBlob::of(name) {
            match head {
                Some(head) => self.note(&blob, head.len),
                None => self.forget(&blob),
            }
        }
        Ok(head)
    }

    fn len_of(&self, name: &BlobName) -> Result<Option<u64>> {
        let Some(blob) = CacheableBlob::of(name) else { return self.inner.len_of(name) };
        if let Some(len) = self.known_len(&blob) {
            return Ok(Some(len));
        }
        let len = self.inner.len_of(name)?;
        len.into_iter().for_each(|len| self.note(&blob, len));
        Ok(len)
    }

    fn list(&self, prefix: BlobPrefix) -> Result<Vec<ListedBlob>> {
        let listed = self.inner.list(prefix)?;
        self.note_listed(prefix, &listed);
        Ok(listed)
    }

    fn delete(&self, name: &BlobName, durable: Durable) -> Result<()> {
        CacheableBlob::of(name).iter().for_each(|blob| self.forget(blob));
        self.inner.delete(name, durable)
    }

    fn sync_deletions(&self, names: &[BlobName]) -> Result<()> {
        self.inner.sync_deletions(names)
    }

    fn other_copy(&self, name: &BlobName) -> OtherCopy {
        let Some(blob) = CacheableBlob::of(name) else { return self.inner.other_copy(name) };
        let len = self.known_len(&blob).unwrap_or_default();
        let block = if blob.is_container() { CONTAINER_BLOCK_BYTES } else { WHOLE_BLOCK_BYTES };
        let remove = |any, fragment| self.files.remove(FragmentName { blob: name, fragment }) | any;
        let recent = self.recent.as_ref().is_some_and(|recent| recent.forget(name));
        let any = (0..len.div_ceil(block).min(BLOCKS_MAX)).chain([HEAD, TAIL, ALL]).fold(recent, remove);
        match any {
            true => OtherCopy { is_there: true, untried: None },
            false => self.inner.other_copy(name),
        }
    }

    fn properties(&self) -> StoreProperties {
        self.inner.properties()
    }

    fn cold_state(&self) -> Option<&ColdState> {
        self.inner.cold_state()
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

#[cfg(test)]
#[path = "cached_tests.rs"]
mod tests;
