//! What readers have decoded: frames, chunks and recipes, in bounded memory.
//!
//! 1. The process has one cache ([`process_cache`]). Its limits bound the memory of all readers, however many there
//!    are. A reader whose memory belongs to the budget of a run has a cache of its own.
//! 2. Keys begin with the number of a [`ReadCacheShare`], because numbers of frames mean something only to the readers
//!    that share it. When the last of these goes, so do its entries.
//! 3. Bytes that one thread is decoding are not decoded by another one: it waits for them.
//! 4. Metadata and content have a limit each, so a large file does not drive out the listings.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::memory::{ByteLru, LookUps};
use crate::repo::container::{ContainerKind, FrameNumber};
use crate::repo::recipe::ContentReference;
use crate::types::Fingerprint;

/// Decoded frames of metadata that the process keeps, bytes.
const METADATA_BYTES_MAX: usize = 48 << 20;
/// Decoded recipes that the process keeps, bytes.
const RECIPE_BYTES_MAX: usize = 16 << 20;
/// Decoded frames and chunks of files that the process keeps, bytes.
const CONTENT_BYTES_MAX: usize = 96 << 20;
/// Memory of an entry besides its bytes.
const ENTRY_BYTES: usize = 128;

/// What is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum DecodedKey {
    Frame(FrameNumber),
    Chunk(Fingerprint),
    /// A block of rebuilt content, by the hash of that content and the number of the block.
    Rebuilt(Fingerprint, u64),
}

/// Fingerprint, level and length of a recipe.
pub(super) type RecipeKey = (Fingerprint, u8, u64);
/// A decoded recipe: its references, each with its offset in the recipe's content.
pub(super) type OffsetRecipe = Arc<Vec<(u64, ContentReference)>>;

/// Limits of a cache, bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadCacheLimits {
    /// Frames of metadata. `None`: they share the limit of content.
    pub metadata: Option<usize>,
    pub recipes: usize,
    pub content: usize,
}

/// Decoded frames, chunks and recipes of any number of readers.
pub(super) struct ReadCache {
    entries: Mutex<DecodedEntries>,
    /// Tells waiting threads that something was decoded, or could not be.
    decoded: Condvar,
    has_metadata: bool,
    look_ups: LookUps,
}

struct DecodedEntries {
    metadata: ByteLru<(u64, DecodedKey), Bytes>,
    recipes: ByteLru<(u64, RecipeKey), OffsetRecipe>,
    content: ByteLru<(u64, DecodedKey), Bytes>,
    /// What some thread is decoding.
    at_work: HashSet<(u64, DecodedKey)>,
}

impl ReadCache {
    /// An empty cache.
    pub(super) fn new(limits: ReadCacheLimits) -> Arc<Self> {
        let entries = DecodedEntries {
            metadata: ByteLru::new(limits.metadata.unwrap_or(0)),
            recipes: ByteLru::new(limits.recipes),
            content: ByteLru::new(limits.content),
            at_work: HashSet::new(),
        };
        let (decoded, has_metadata) = (Condvar::new(), limits.metadata.is_some());
        Arc::new(ReadCache { entries: Mutex::new(entries), decoded, has_metadata, look_ups: LookUps::default() })
    }

    /// A share for the readers that number frames alike.
    pub(super) fn share(self: &Arc<Self>) -> Arc<ReadCacheShare> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Arc::new(ReadCacheShare { cache: self.clone(), number, is_used: AtomicBool::new(false) })
    }

    /// How often its frames and chunks were asked for.
    pub(super) fn look_ups(&self) -> &LookUps {
        &self.look_ups
    }

    /// Bytes of metadata, of recipes and of content.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> [usize; 3] {
        let entries = self.entries();
        [entries.metadata.bytes(), entries.recipes.bytes(), entries.content.bytes()]
    }

    fn entries(&self) -> MutexGuard<'_, DecodedEntries> {
        self.entries.lock()
    }
}

/// The cache of this process. A child that was forked has one of its own: the lock of its parent's may be taken, by a
/// thread that the child does not have.
pub(super) fn process_cache() -> Arc<ReadCache> {
    struct OfProcess {
        process: u32,
        cache: Arc<ReadCache>,
        child: OnceLock<Box<OfProcess>>,
    }
    static FIRST: OnceLock<Box<OfProcess>> = OnceLock::new();
    let process = std::process::id();
    let (metadata, recipes, content) = (Some(METADATA_BYTES_MAX), RECIPE_BYTES_MAX, CONTENT_BYTES_MAX);
    let new = || {
        let cache = ReadCache::new(ReadCacheLimits { metadata, recipes, content });
        Box::new(OfProcess { process, cache, child: OnceLock::new() })
    };
    let mut found = FIRST.get_or_init(new);
    while found.process != process {
        found = found.child.get_or_init(new);
    }
    found.cache.clone()
}

/// The entries of readers that number frames alike. Dropping it removes them.
pub(super) struct ReadCacheShare {
    cache: Arc<ReadCache>,
    number: u64,
    /// Whether it may have entries.
    is_used: AtomicBool,
}

/// What a look-up found.
pub(super) enum Decoded {
    Found(Bytes),
    /// Nothing. The caller decodes it, and others wait for the task, if there is one.
    Missing(Option<DecodingTask>),
}

impl ReadCacheShare {
    /// Returns what was decoded. If another thread is decoding it, waits for that.
    pub(super) fn find(self: &Arc<Self>, key: DecodedKey) -> Decoded {
        let own = (self.number, key);
        let mut entries = self.cache.entries();
        loop {
            if let Some(bytes) = entries.content.get(&own).or_else(|| entries.metadata.get(&own)) {
                self.cache.look_ups.add(true);
                return Decoded::Found(bytes);
            }
            if entries.at_work.insert(own) {
                self.cache.look_ups.add(false);
                return Decoded::Missing(Some(DecodingTask { share: self.clone(), key }));
            }
            self.cache.decoded.wait(&mut entries);
        }
    }

    /// Returns what was decoded. Waits for nobody.
    pub(super) fn look(&self, key: DecodedKey) -> Decoded {
        let own = (self.number, key);
        let found = self.cache.entries().content.get(&own);
        self.cache.look_ups.add(found.is_some());
        found.map_or(Decoded::Missing(None), Decoded::Found)
    }

    /// Whether something is decoded, or some thread is decoding it.
    pub(super) fn is_near(&self, key: DecodedKey) -> bool {
        let (own, mut entries) = ((self.number, key), self.cache.entries());
        entries.content.get(&own).is_some() || entries.at_work.contains(&own)
    }

    /// Keeps bytes of a file that were made without a task.
    pub(super) fn keep(&self, key: DecodedKey, bytes: Bytes) {
        self.is_used.store(true, Ordering::Relaxed);
        let len = bytes.len() + ENTRY_BYTES;
        self.cache.entries().content.put((self.number, key), bytes, len);
    }

    /// A recipe.
    pub(super) fn recipe(&self, key: RecipeKey) -> Option<OffsetRecipe> {
        self.cache.entries().recipes.get(&(self.number, key))
    }

    /// Keeps a recipe.
    pub(super) fn keep_recipe(&self, key: RecipeKey, recipe: OffsetRecipe) {
        self.is_used.store(true, Ordering::Relaxed);
        let bytes = recipe.len() * size_of::<(u64, ContentReference)>() + ENTRY_BYTES;
        self.cache.entries().recipes.put((self.number, key), recipe, bytes);
    }
}

impl Drop for ReadCacheShare {
    fn drop(&mut self) {
        if self.is_used.load(Ordering::Relaxed) {
            let mut entries = self.cache.entries();
            entries.metadata.retain(|(number, _)| *number != self.number);
            entries.recipes.retain(|(number, _)| *number != self.number);
            entries.content.retain(|(number, _)| *number != self.number);
        }
    }
}

/// Something that the thread that has it decodes. If it is dropped unfinished, another thread may try.
pub(super) struct DecodingTask {
    share: Arc<ReadCacheShare>,
    key: DecodedKey,
}

impl DecodingTask {
    /// Keeps what was decoded, of a container of this kind.
    pub(super) fn finish(self, kind: ContainerKind, bytes: Bytes) {
        let cache = &self.share.cache;
        self.share.is_used.store(true, Ordering::Relaxed);
        let mut entries = cache.entries();
        let lru = match kind {
            ContainerKind::Metadata if cache.has_metadata => &mut entries.metadata,
            _ => &mut entries.content,
        };
        let len = bytes.len() + ENTRY_BYTES;
        // The frame that is being read has room, however large it is.
        if len > lru.bytes_max() {
            lru.limit(len);
        }
        lru.put((self.share.number, self.key), bytes, len);
    }
}

impl Drop for DecodingTask {
    fn drop(&mut self) {
        self.share.cache.entries().at_work.remove(&(self.share.number, self.key));
        self.share.cache.decoded.notify_all();
    }
}
