//! Bases for the workers of Match: chunk bytes of any entry, from caches that the workers share.
//!
//! 1. *Pinned*: Choose pins each new chunk that may become a base. SubDedup releases it when its group has ended. Then
//!    its entry and its frames are final, and it can be read as any other entry.
//! 2. *Cached*: chunks that were released, chunks that a worker has put together, and decoded frames.
//! 3. Everything else is read from its container, or from the frames in flight.
//!
//! A worker decides nothing here. What is cached depends on timing, the bytes of an entry do not.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};

use super::chunk_bytes::BASE_BYTES_MAX;
use super::entries::Entries;
use super::frame_reader::FrameReader;
use super::{Bases, frame_bytes_max};
use crate::codec::Scratch;
use crate::error::{Error, Result};
use crate::kernel::sieve::{Anchor, Sieve};
use crate::memory::ByteLru;
use crate::repo::container::{EntryNumber, ExtentCache, ExtentMap, FrameNumber, OperationSource, SessionEntryNumber};
use crate::repo::index::Locator;
use crate::similar::anchor_table::AnchorTable;

/// Memory for the extent maps of all workers, bytes: one in so many of that for bases, within these bounds.
const EXTENTS_SHARE: usize = 2;
const EXTENT_CACHE_BYTES: (usize, usize) = (2 << 20, 16 << 20);
/// Approximate memory of a cached value besides its content, bytes.
const VALUE_BYTES: usize = 256;
/// Bytes of a chunk for one byte of memory of its anchors and their table. The sieve selects one position in 256.
const ANCHORS_SHARE: usize = 8;

/// The content of a chunk that others may be compared with.
#[derive(Debug)]
pub struct BaseChunk {
    bytes: Bytes,
    /// Its anchors, if they are known.
    anchors: Option<Vec<Anchor>>,
    table: OnceLock<AnchorTable>,
}

impl BaseChunk {
    /// A chunk with this content.
    pub fn new(bytes: Bytes, anchors: Option<Vec<Anchor>>) -> Self {
        BaseChunk { bytes, anchors, table: OnceLock::new() }
    }

    /// The content.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The anchors, if they are known.
    pub fn anchors(&self) -> Option<&[Anchor]> {
        self.anchors.as_deref()
    }

    /// The table of its anchors, built on first use.
    pub fn table(&self, sieve: &Sieve) -> &AnchorTable {
        self.table.get_or_init(|| match &self.anchors {
            Some(anchors) => AnchorTable::new(anchors),
            None => AnchorTable::new(&sieve.anchors(&self.bytes)),
        })
    }

    fn memory_bytes(&self) -> usize {
        self.bytes.len() + self.bytes.len() / ANCHORS_SHARE + VALUE_BYTES
    }
}

/// A frame that several workers may want at the same time: the first one decodes it.
type FrameCell = Arc<Mutex<Option<Bytes>>>;

struct SharedCaches {
    frames: ByteLru<FrameNumber, FrameCell>,
    /// Chunks, in the memory that `frames` leaves free.
    chunks: ByteLru<EntryNumber, Arc<BaseChunk>>,
    bytes_max: usize,
}

/// What Choose, the workers of Match and SubDedup share (see the module).
pub struct SharedBases {
    /// SubDedup has extent maps of its own: an entry has several numbers, and which of them an extent map names depends
    /// on when the map was made.
    extent_cache: ExtentCache,
    pinned: Mutex<HashMap<SessionEntryNumber, Arc<BaseChunk>>>,
    cached: Mutex<SharedCaches>,
}

impl SharedBases {
    /// Empty caches of at most about `bytes_max` bytes of memory. Pinned chunks come on top.
    pub fn new(bytes_max: usize) -> Self {
        let frames = ByteLru::new(frame_bytes_max(bytes_max));
        let cached = SharedCaches { frames, chunks: ByteLru::new(bytes_max), bytes_max };
        SharedBases {
            extent_cache: ExtentCache::new(
                (bytes_max / EXTENTS_SHARE).clamp(EXTENT_CACHE_BYTES.0, EXTENT_CACHE_BYTES.1),
            ),
            pinned: Mutex::default(),
            cached: Mutex::new(cached),
        }
    }

    /// A cache of extent maps for one more thread.
    pub fn extent_cache(&self) -> ExtentCache {
        self.extent_cache.sharing()
    }

    fn cached(&self) -> MutexGuard<'_, SharedCaches> {
        self.cached.lock()
    }

    fn pinned(&self) -> MutexGuard<'_, HashMap<SessionEntryNumber, Arc<BaseChunk>>> {
        self.pinned.lock()
    }

    /// Whether a chunk of `len` bytes can be a base.
    pub fn may_hold(len: u32) -> bool {
        len <= BASE_BYTES_MAX
    }

    /// Called by Choose, before the chunk is sent on: session entry `number` may become a base.
    pub fn pin(&self, number: SessionEntryNumber, chunk: Arc<BaseChunk>) {
        self.pinned().insert(number, chunk);
    }

    /// Called by SubDedup: the group of the entries from `first` up to `end` has ended. Their chunks are cached.
    pub fn release(&self, first: SessionEntryNumber, end: SessionEntryNumber) {
        for number in first.until(end) {
            let Some(chunk) = self.pinned().get(&number).cloned() else { continue };
            let bytes = chunk.memory_bytes();
            self.cached().chunks.put(EntryNumber::session(number), chunk, bytes);
            // Only now, so that the chunk is always in one of both.
            self.pinned().remove(&number);
        }
    }

    /// Called by SubDedup: frame `number` is complete and has these bytes.
    pub fn add_frame(&self, number: FrameNumber, raw: Bytes) {
        let bytes = raw.len();
        self.decoded(number, Arc::new(Mutex::new(Some(raw))), bytes);
    }

    /// The chunk of an entry, if it is in memory.
    pub fn find(&self, entry: EntryNumber) -> Option<Arc<BaseChunk>> {
        let pinned = entry.as_session().and_then(|number| self.pinned().get(&number).cloned());
        pinned.or_else(|| self.cached().chunks.get(&entry))
    }

    fn insert(&self, entry: EntryNumber, chunk: Arc<BaseChunk>) {
        let bytes = chunk.memory_bytes();
        self.cached().chunks.put(entry, chunk, bytes);
    }

    fn frame_cell(&self, number: FrameNumber) -> FrameCell {
        let mut cached = self.cached();
        if let Some(cell) = cached.frames.get(&number) {
            return cell;
        }
        let cell = FrameCell::default();
        cached.frames.put(number, cell.clone(), VALUE_BYTES);
        cell
    }

    /// Counts the bytes of a frame that was decoded.
    fn decoded(&self, number: FrameNumber, cell: FrameCell, bytes: usize) {
        let SharedCaches { frames, chunks, bytes_max } = &mut *self.cached();
        frames.put(number, cell, bytes + VALUE_BYTES);
        chunks.limit(bytes_max.saturating_sub(frames.bytes()));
    }
}

/// Bases as one worker reads them.
pub struct WorkerBases {
    shared: Arc<SharedBases>,
    entries: Entries,
    frame_reader: FrameReader,
    scratch: Scratch,
}

impl WorkerBases {
    /// A reader for another thread than that of `bases`, which finds chunks with `locator`.
    pub fn new(shared: Arc<SharedBases>, bases: &Bases, locator: Locator) -> Self {
        WorkerBases {
            entries: bases.entries.sharing(locator, shared.extent_cache()),
            shared,
            frame_reader: bases.frame_reader.sharing(),
            scratch: Scratch::default(),
        }
    }

    /// The chunk of an entry; `None` if it cannot be read, is a stored delta, or is too large. A session entry must be
    /// pinned, or its group must have ended.
    ///
    /// # Errors
    /// Only errors that fail the run.
    pub fn chunk(&mut self, entry: EntryNumber) -> Result<Option<Arc<BaseChunk>>> {
        if let Some(found) = self.shared.find(entry) {
            return Ok(Some(found));
        }
        let assembled = self.assemble(entry);
        let assembled = self.entries.tolerate(assembled)?.flatten();
        Ok(assembled.map(|bytes| {
            let chunk = Arc::new(BaseChunk::new(bytes.into(), None));
            self.shared.insert(entry, chunk.clone());
            chunk
        }))
    }

    fn assemble(&mut self, entry: EntryNumber) -> Result<Option<Vec<u8>>> {
        if !SharedBases::may_hold(self.entries.view(entry)?.raw_len) {
            return Ok(None);
        }
        let extent_map: Arc<ExtentMap> = self.entries.extent_map(entry)?;
        // The bytes of a delta's chunk are in no frame, so nothing is copied from it. SubDedup knows which entries of
        // the session are deltas. They are read here all the same: whether one is still in memory depends on timing.
        if extent_map.is_delta() && entry.as_session().is_none() {
            return Ok(None);
        }
        let frames = extent_map.frames().iter().map(|number| self.frame(*number)).collect::<Result<Vec<Bytes>>>()?;
        let mut bytes = Vec::new();
        extent_map.assemble(&frames, &mut self.scratch, &mut bytes)?;
        Ok(Some(bytes))
    }

    fn frame(&mut self, number: FrameNumber) -> Result<Bytes> {
        let cell = self.shared.frame_cell(number);
        let mut slot = cell.lock();
        if let Some(raw) = &*slot {
            return Ok(raw.clone());
        }
        let raw = self.frame_reader.read(number, &mut self.entries.resolver)?;
        let raw = raw.ok_or_else(|| Error::internal("a worker's budget of reads is exhausted"))?;
        *slot = Some(raw.clone());
        drop(slot);
        self.shared.decoded(number, cell, raw.len());
        Ok(raw)
    }
}
