//! Random access to chunks, recipes and trees.
//!
//! 1. The index locates the chunk, and its operations are resolved to ranges of frames.
//! 2. The frames are decoded through a bounded cache ([`super::read_cache`]).
//! 3. The chunk is assembled from the ranges and checked against its fingerprint.
//! 4. A frame or an entry that proves bad is remembered, and the chunk is read from another entry, if there is one.
//! 5. If a container is gone, the repository is listed again: a prune may have moved its chunks.

use std::cell::RefCell;
use std::num::NonZeroUsize;
use std::sync::Arc;

use bytes::Bytes;

use super::passing::Passing;
use super::read_cache::{Decoded, DecodedKey, ReadCache, ReadCacheLimits, ReadCacheShare, process_cache};
use crate::codec::Scratch;
use crate::config::{CHUNK_BYTES_LIMIT, FRAME_BYTES_LIMIT};
use crate::error::{Error, Result};
use crate::repo::Repository;
use crate::repo::container::{
    ContainerKind, EntryAddress, EntryNumber, ExtentCache, ExtentMap, FrameAddress, FrameNumber, blob_name,
    decode_frame,
};
use crate::repo::index::{
    ChunkPresence, ContainerIndexes, ContainerListing, LocatedEntry, Locator, Resolver, SharedContainerIndexes,
    Soundness,
};
use crate::repo::recipe::{ContentReference, decode_recipe};
use crate::store::{Reading, Store, read_again};
use crate::types::{Fingerprint, RepositoryKey};

/// Container indexes that a reader caches.
const CONTAINER_INDEXES_MAX: usize = 32;
pub(super) const CONTAINER_INDEX_BYTES_MAX: usize = 32 << 20;
/// Memory for the extent maps of entries.
const EXTENT_CACHE_BYTES_MAX: usize = 16 << 20;
/// Decoded bytes of the frames of one chunk, at most.
const CHUNK_FRAME_BYTES_LIMIT: u64 = 1 << 30;
/// Frames of a chunk that cannot exceed that limit.
const CHUNK_FRAMES_UNCHECKED: usize = (CHUNK_FRAME_BYTES_LIMIT / FRAME_BYTES_LIMIT) as usize;
/// Entries of one chunk that are tried, at most.
const ENTRIES_TRIED_MAX: usize = 16;
/// Attempts to read one entry, each after one more frame of a base proved bad.
const ATTEMPTS_MAX: usize = 16;
/// Deepest tree of recipes that is accepted.
const RECIPE_LEVELS_MAX: usize = 16;

/// Reads chunks by fingerprint.
pub struct ChunkReader {
    pub(super) store: Arc<dyn Store>,
    pub(super) key: RepositoryKey,
    container_indexes: Arc<SharedContainerIndexes>,
    /// Finds chunks and resolves ranges.
    pub resolver: Resolver,
    extent_cache: ExtentCache,
    /// What was decoded.
    pub(super) decoded: Arc<ReadCacheShare>,
    pub(super) scratch: Scratch,
    /// For chunks that are passed on.
    pub(super) passing: Passing,
    /// Frames that proved bad.
    bad_frames: usize,
}

impl ChunkReader {
    /// A reader of the containers in `listing`. What it decodes is kept in the cache of the process.
    pub fn new(repository: &Repository, listing: Arc<ContainerListing>) -> Self {
        Self::caching_in(&process_cache(), repository, listing)
    }

    /// One of so many readers of the containers in `listing`, which together cache what one does.
    pub fn one_of(readers: usize, repository: &Repository, listing: Arc<ContainerListing>) -> Self {
        Self::caching(readers, &process_cache(), repository, listing, Arc::default())
    }

    /// One of so many readers of a writer, which relies on the containers whose indexes are in `shared`.
    pub fn of_run(
        readers: usize,
        repository: &Repository,
        listing: Arc<ContainerListing>,
        shared: Arc<SharedContainerIndexes>,
    ) -> Self {
        Self::caching(readers, &process_cache(), repository, listing, shared).sound_only()
    }

    /// A reader with a cache of `bytes_max` decoded bytes of its own, for a run with a budget of its own.
    pub fn with_cache(repository: &Repository, listing: Arc<ContainerListing>, bytes_max: usize) -> Self {
        let limits = ReadCacheLimits { metadata: None, recipes: 0, content: bytes_max };
        Self::caching_in(&ReadCache::new(limits), repository, listing)
    }

    /// A reader that keeps what it decodes in `cache`.
    pub(super) fn caching_in(cache: &Arc<ReadCache>, repository: &Repository, listing: Arc<ContainerListing>) -> Self {
        Self::caching(1, cache, repository, listing, Arc::default())
    }

    fn caching(
        readers: usize,
        cache: &Arc<ReadCache>,
        repository: &Repository,
        listing: Arc<ContainerListing>,
        shared: Arc<SharedContainerIndexes>,
    ) -> Self {
        let readers = readers.max(1);
        let store = repository.store.clone();
        let (count_max, bytes_max) = (CONTAINER_INDEXES_MAX, CONTAINER_INDEX_BYTES_MAX / readers);
        let container_indexes = ContainerIndexes::sharing(store.clone(), count_max, bytes_max, shared.clone());
        ChunkReader {
            store,
            key: repository.key,
            container_indexes: shared,
            resolver: Resolver::new(Locator::new(listing, container_indexes)),
            extent_cache: ExtentCache::new(EXTENT_CACHE_BYTES_MAX / readers),
            decoded: cache.share(),
            scratch: Scratch::default(),
            passing: Passing::default(),
            bad_frames: 0,
        }
    }

    /// A reader for another thread. Both share what they decode, their extent maps and the container indexes that
    /// either has in memory, and number frames alike. It caches container indexes of at most `index_bytes_max` bytes.
    #[must_use]
    pub fn sharing(&self, index_bytes_max: usize) -> Self {
        let (store, shared) = (self.store.clone(), self.container_indexes.clone());
        let indexes = ContainerIndexes::sharing(store.clone(), CONTAINER_INDEXES_MAX, index_bytes_max, shared.clone());
        let locator = Locator::new(self.resolver.locator.listing().clone(), indexes);
        ChunkReader {
            store,
            key: self.key,
            container_indexes: shared,
            resolver: self.resolver.sharing(locator).remembering_all(),
            extent_cache: self.extent_cache.sharing(),
            decoded: self.decoded.clone(),
            scratch: Scratch::default(),
            passing: Passing::default(),
            bad_frames: 0,
        }
    }

    /// The same reader, but it reads sound entries only: for writers, which rely on what it reads.
    #[must_use]
    pub fn sound_only(self) -> Self {
        let locator = self.resolver.locator.sound_only();
        ChunkReader { resolver: Resolver::new(locator), ..self }
    }

    /// Computes the fingerprint of bytes that come in parts.
    pub(super) fn hasher(&self) -> blake3::Hasher {
        self.key.hasher()
    }

    /// The store that it reads.
    pub fn store(&self) -> &dyn Store {
        self.store.as_ref()
    }

    /// Returns the number of an entry that stores the chunk.
    ///
    /// # Errors
    /// [`Error::ChunkMissing`] if no listed container has one.
    pub fn entry_of(&mut self, fingerprint: &Fingerprint) -> Result<EntryNumber> {
        let located = self.resolver.locator.locate(fingerprint)?;
        let located = located.ok_or_else(|| missing(fingerprint))?;
        Ok(self.resolver.number_of(&located))
    }

    /// Returns the extent map of entry `number`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the operations are invalid, or if the frames of the chunk decode to too many bytes.
    pub fn extent_map(&mut self, number: EntryNumber) -> Result<Arc<ExtentMap>> {
        let extent_map = self.extent_cache.extent_map(&mut self.resolver, number);
        let extent_map = extent_map.map_err(|error| self.with_container(number, error))?;
        if extent_map.frames().len() > CHUNK_FRAMES_UNCHECKED {
            let mut bytes = 0;
            for frame in extent_map.frames() {
                bytes += u64::from(self.resolver.frame_info(*frame)?.1.raw_len);
            }
            if bytes > CHUNK_FRAME_BYTES_LIMIT {
                let expected = format!("frames of at most {CHUNK_FRAME_BYTES_LIMIT} bytes");
                let error = Error::corrupt("chunk operations", 0, expected, bytes.to_string());
                return Err(self.with_container(number, error));
            }
        }
        Ok(extent_map)
    }

    /// Adds the container and the position of entry `number` to an error that names no blob.
    fn with_container(&mut self, number: EntryNumber, error: Error) -> Error {
        let mut named = |what: String| match self.resolver.container_index_of(number) {
            Ok((id, _, position)) if !what.contains('/') => format!("{}, entry {position}: {what}", blob_name(&id)),
            _ => what,
        };
        match error {
            Error::Corrupt { what, offset, expected, got } => {
                Error::Corrupt { what: named(what), offset, expected, got }
            }
            Error::Unsupported { what, unknown } => Error::Unsupported { what: named(what), unknown },
            other => other,
        }
    }

    /// What the container of a stored frame holds.
    pub(super) fn kind_of(&mut self, number: FrameNumber) -> Result<ContainerKind> {
        match number.address() {
            FrameAddress::Stored { container, .. } => Ok(self.resolver.container_index(container)?.1.kind),
            _ => Ok(ContainerKind::Data),
        }
    }

    /// Returns frame `number`, decoded.
    pub fn frame(&mut self, number: FrameNumber) -> Result<Bytes> {
        let task = match self.decoded.find(DecodedKey::Frame(number)) {
            Decoded::Found(frame) => return Ok(frame),
            Decoded::Missing(task) => task,
        };
        let (container, info) = self.resolver.frame_info(number)?;
        let name = blob_name(&container);
        // Trees are read again by the next run.
        let kind = self.kind_of(number)?;
        let fetched = self.passing.fetched_frame(&name, &info);
        let fetched = fetched.and_then(|bytes| decode_frame(&name, &info, bytes, &mut self.scratch).ok());
        let scratch = RefCell::new(&mut self.scratch);
        let read = || {
            let stored = match kind {
                ContainerKind::Metadata => {
                    self.store.get_range(&name, info.offset, info.stored_bytes(), Reading::Again)
                }
                ContainerKind::Data => self.store.get_range(&name, info.offset, info.stored_bytes(), Reading::Once),
            };
            decode_frame(&name, &info, &stored?, *scratch.borrow_mut())
        };
        let decoded = fetched.map_or_else(|| read_again(self.store.as_ref(), &name, read), Ok);
        let frame = match decoded {
            Ok(frame) => Bytes::from(frame),
            Err(error) => {
                if let FrameAddress::Stored { position, .. } = number.address()
                    && error.is_unreadable()
                    && self.resolver.locator.doubt_frame(container, position)
                {
                    self.bad_frames += 1;
                }
                return Err(error);
            }
        };
        if let Some(task) = task {
            task.finish(kind, frame.clone());
        }
        Ok(frame)
    }

    /// Returns the bytes of entry `number`, checked against `fingerprint`. If a frame of a base proves bad, another
    /// entry of that base serves.
    pub fn read_entry(&mut self, number: EntryNumber, fingerprint: &Fingerprint) -> Result<Vec<u8>> {
        self.entry_bytes(number, fingerprint).map(Vec::from)
    }

    /// Like [`Self::read_entry`], but the bytes may be part of a larger frame, which they keep in memory.
    pub(super) fn entry_bytes(&mut self, number: EntryNumber, fingerprint: &Fingerprint) -> Result<Bytes> {
        let mut attempts = 1;
        loop {
            let bad_frames = self.bad_frames;
            match self.try_entry(number, fingerprint) {
                Err(error) if error.is_unreadable() && self.bad_frames > bad_frames && attempts < ATTEMPTS_MAX => {
                    attempts += 1;
                    self.resolver.forget_bases();
                    self.extent_cache = ExtentCache::new(EXTENT_CACHE_BYTES_MAX);
                }
                result => return result,
            }
        }
    }

    fn try_entry(&mut self, number: EntryNumber, fingerprint: &Fingerprint) -> Result<Bytes> {
        let extent_map = self.extent_map(number)?;
        let frames: Vec<Bytes> = extent_map.frames().iter().map(|frame| self.frame(*frame)).collect::<Result<_>>()?;
        let assembled = match (extent_map.only_extent(), frames.as_slice()) {
            (Some(extent), [frame]) => extent.slice_of(frame).map(|bytes| frame.slice_ref(bytes)),
            _ => {
                let mut bytes = Vec::new();
                extent_map.assemble(&frames, &mut self.scratch, &mut bytes).map(|()| Bytes::from(bytes))
            }
        };
        let bytes = assembled.map_err(|error| self.with_container(number, error))?;
        let got = self.key.fingerprint(&bytes);
        if got != *fingerprint {
            let (container, ..) = self.resolver.container_index_of(number)?;
            let (expected, got) = (fingerprint.to_string(), got.to_string());
            return Err(Error::ChecksumMismatch {
                what: format!("chunk in {}", blob_name(&container)),
                offset: 0,
                expected,
                got,
            });
        }
        Ok(bytes)
    }

    /// Calls `attempt` with entries of a chunk, the soundest first, until one is readable.
    pub(super) fn try_entries<T>(
        &mut self,
        fingerprint: &Fingerprint,
        mut attempt: impl FnMut(&mut Self, EntryNumber) -> Result<T>,
    ) -> Result<T> {
        let (mut tried, mut first) = (Vec::new(), None);
        loop {
            let number = match (self.entry_of(fingerprint), &first) {
                (Ok(number), None) => number,
                (Ok(number), Some(_)) if !tried.contains(&number) && tried.len() < ENTRIES_TRIED_MAX => number,
                (found, _) => {
                    let other = found.err().filter(|error| first.is_none() || !error.is_proven_damage());
                    return Err(other.or(first).unwrap_or_else(|| missing(fingerprint)));
                }
            };
            match attempt(self, number) {
                // A prune has moved it.
                Err(error) if self.resolver.locator.list_again_after(&error)? => {
                    self.resolver.forget_bases();
                    self.extent_cache = ExtentCache::new(EXTENT_CACHE_BYTES_MAX);
                    tried.clear();
                }
                Err(error) if error.is_unreadable() => {
                    if let (EntryAddress::Stored { position, .. }, Ok((container, ..))) =
                        (number.address(), self.resolver.container_index_of(number))
                    {
                        self.resolver.locator.doubt_entry(container, position);
                    }
                    tried.push(number);
                    // What may be readable later says more than what proved bad.
                    match &first {
                        Some(known) if !known.is_proven_damage() || error.is_proven_damage() => {}
                        _ => first = Some(error),
                    }
                }
                result => return result,
            }
        }
    }

    /// Returns an entry from which the chunk can be read.
    ///
    /// # Errors
    /// Errors of [`Self::read`].
    pub fn readable_entry(&mut self, fingerprint: &Fingerprint) -> Result<LocatedEntry> {
        self.try_entries(fingerprint, |reader, number| {
            reader.read_entry(number, fingerprint)?;
            let (container, container_index, entry) = reader.resolver.container_index_of(number)?;
            Ok(LocatedEntry { container, entry, container_index, soundness: Soundness::Sound })
        })
    }

    /// Returns the extent map of a chunk, from an entry whose operations and bases can be read.
    ///
    /// # Errors
    /// Errors of [`Self::entry_of`] and [`Self::extent_map`].
    pub fn extent_map_of(&mut self, fingerprint: &Fingerprint) -> Result<Arc<ExtentMap>> {
        self.try_entries(fingerprint, |reader, number| reader.extent_map(number))
    }

    /// Returns the bytes of a chunk, checked against its fingerprint. If an entry cannot be read, another one serves.
    pub fn read(&mut self, fingerprint: &Fingerprint) -> Result<Vec<u8>> {
        self.try_entries(fingerprint, |reader, number| reader.read_entry(number, fingerprint))
    }

    /// Returns the bytes of a chunk, checked against its fingerprint and against the length in a reference to it.
    ///
    /// # Errors
    /// Errors of [`Self::read`], and [`Error::Corrupt`] if the length differs.
    pub fn read_exact(&mut self, fingerprint: &Fingerprint, len: u64) -> Result<Vec<u8>> {
        self.read_shared(fingerprint, len).map(Vec::from)
    }

    /// Like [`Self::read_exact`], without a copy if a single frame has the chunk. The bytes keep that frame in memory.
    ///
    /// # Errors
    /// Errors of [`Self::read_exact`].
    pub(super) fn read_shared(&mut self, fingerprint: &Fingerprint, len: u64) -> Result<Bytes> {
        let bytes = self.try_entries(fingerprint, |reader, number| reader.entry_bytes(number, fingerprint))?;
        if bytes.len() as u64 == len {
            return Ok(bytes);
        }
        Err(Error::corrupt(format!("chunk {fingerprint}"), 0, format!("{len} bytes"), bytes.len().to_string()))
    }
}

fn missing(fingerprint: &Fingerprint) -> Error {
    Error::ChunkMissing { fingerprint: fingerprint.to_string() }
}

/// Walks the recipes of a content depth-first and yields its chunks and holes in order.
///
/// Each recipe must be one level below its parent, and lengths must add up. Recipes are not read in advance.
pub struct RecipeWalk {
    stack: Vec<std::vec::IntoIter<ContentReference>>,
    /// Number of recipes read.
    pub recipes_read: usize,
    /// Length of the content of the recipe that could not be read.
    unread: Option<u64>,
}

impl RecipeWalk {
    /// Starts at the content of a file or directory.
    pub fn new(content: ContentReference) -> Self {
        RecipeWalk { stack: vec![vec![content].into_iter()], recipes_read: 0, unread: None }
    }

    /// Starts at what is stored of the content of a file: of rebuilt content at the plain content, then the
    /// corrections.
    pub fn of_stored(content: ContentReference) -> Self {
        RecipeWalk { stack: vec![content.stored_parts().into_iter()], recipes_read: 0, unread: None }
    }

    /// After an error: the length of the content that could not be read, if it is known. The walk then continues
    /// behind it.
    pub fn take_unread(&mut self) -> Option<u64> {
        self.unread.take()
    }

    /// Returns the next chunk or hole. Rebuilt content is one step.
    ///
    /// # Errors
    /// Errors of reading recipes. [`Error::Corrupt`] for too many levels, and for a chunk that is too long.
    pub fn next(&mut self, reader: &mut ChunkReader) -> Result<Option<ContentReference>> {
        self.next_visiting(reader, &mut |_| {})
    }

    /// Like [`Self::next`]; `visit` is told of each recipe that is read.
    ///
    /// # Errors
    /// Errors of [`Self::next`].
    pub fn next_visiting(
        &mut self,
        reader: &mut ChunkReader,
        visit: &mut dyn FnMut(&Fingerprint),
    ) -> Result<Option<ContentReference>> {
        loop {
            let Some(top) = self.stack.last_mut() else { return Ok(None) };
            match top.next() {
                None => {
                    self.stack.pop();
                }
                Some(ContentReference::Recipe { level, fingerprint, len }) => {
                    if self.stack.len() > RECIPE_LEVELS_MAX {
                        return Err(Error::corrupt("recipe", 0, format!("at most {RECIPE_LEVELS_MAX} levels"), "more"));
                    }
                    self.unread = Some(len);
                    let bytes = reader.read(&fingerprint)?;
                    let recipe = decode_recipe(&fingerprint, level, len, &bytes)?;
                    self.unread = None;
                    self.recipes_read += 1;
                    visit(&fingerprint);
                    self.stack.push(recipe.into_iter());
                }
                Some(ContentReference::Chunk { len, .. }) if len > CHUNK_BYTES_LIMIT => {
                    return Err(Error::corrupt(
                        "recipe",
                        0,
                        format!("chunks of at most {CHUNK_BYTES_LIMIT} bytes"),
                        len.to_string(),
                    ));
                }
                Some(other) => return Ok(Some(other)),
            }
        }
    }
}

/// Whether the repository has every recipe and chunk of `content`, by a `presence` of the same listing as the reader's.
///
/// # Errors
/// Errors after which nobody knows. What is damaged or gone is an answer.
pub fn is_whole(content: ContentReference, reader: &mut ChunkReader, presence: &mut ChunkPresence) -> Result<bool> {
    let (mut walk, mut recipes) = (RecipeWalk::of_stored(content), Vec::new());
    let mut has_all = || -> Result<bool> {
        loop {
            let next = walk.next_visiting(reader, &mut |recipe| recipes.push(*recipe))?;
            for fingerprint in recipes.drain(..).chain(next.and_then(ContentReference::fingerprint)) {
                if !presence.has(&fingerprint)? {
                    return Ok(false);
                }
            }
            if next.is_none() {
                return Ok(true);
            }
        }
    };
    match has_all() {
        Err(error) if error.is_unreadable() => Ok(false),
        found => found,
    }
}

/// `capacity`, or 1 if it is zero.
pub fn at_least_one(capacity: usize) -> NonZeroUsize {
    NonZeroUsize::new(capacity).unwrap_or(NonZeroUsize::MIN)
}
