//! Bases: the chunks stored before, as sub-block deduplication sees them.
//!
//! Candidates come from the similarity index. Their bodies come from the ring of session entries or from container
//! directories, their literal bytes from the open frames, from a bounded cache of raw frames, and, within a budget of
//! reads per MiB of new chunks, from the session's shelf or from stored containers. Everything here advances with the
//! stream: which base is found does not depend on timing.

use std::sync::Arc;

use bytes::Bytes;
use lru::LruCache;

use super::Match;
use super::base_cache::BaseCache;
use super::candidates::Candidates;
use super::capping::{ContainerCapping, MatchOrigin};
use super::ring::Ring;
use crate::cache::BLOCK_BYTES;
use crate::cache::ByteLru;
use crate::codec::Scratch;
use crate::config::SubdedupConfig;
use crate::error::{Error, Result};
use crate::kernel::sieve::Anchor;
use crate::repo::container::{
    Base, EntryAddress, EntryNumber, Extent, ExtentCache, ExtentMap, FrameAddress, FrameInfo, FrameLocation,
    FrameNumber, FrameSource, FramesInFlight, OpenFrame, Operation, OperationSlice, OperationSource, OperationView,
    SessionEntryNumber, blob_name, decode_frame,
};
use crate::repo::index::Resolver;
use crate::repo::reader::at_least_one;
use crate::store::Store;
use crate::types::{ContainerId, Fingerprint};

/// Bases of the session remembered by name.
const NAMES_KEPT: usize = 1 << 16;
/// Of the bytes for bases, one in this many serves contents of chunks alone, frames may take the others.
const CONTENTS_SHARE: usize = 2;
/// Memory for the runs of bases.
const EXTENT_CACHE_BYTES_MAX: usize = 24 << 20;
/// Stored bytes read at a time, more only for a single frame.
const READ_AHEAD_BYTES: usize = 1 << 20;
/// Stored bytes kept that were read ahead.
const AHEAD_BYTES_MAX: usize = 8 << 20;
/// Bases larger than this are not put together.
const BASE_BYTES_MAX: u32 = 4 << 20;

/// See the module.
pub struct Bases {
    store: Arc<dyn Store>,
    resolver: Resolver,
    in_flight: Arc<FramesInFlight>,
    candidates: Candidates,
    /// Session entries.
    pub ring: Ring,
    /// Literal bytes of the open frames.
    pub open_solid: Vec<u8>,
    /// Bytes of the open incompressible frame.
    pub open_incompressible: Vec<u8>,
    names: LruCache<Base, EntryNumber>,
    frames: ByteLru<FrameNumber, Bytes>,
    /// Contents of chunks, in the room that frames do not take.
    base_cache: BaseCache,
    bytes_max: usize,
    /// Frames as they are stored, read before they were asked for.
    ahead: ByteLru<FrameNumber, (Arc<str>, FrameInfo, Bytes)>,
    /// Taken while it works: it asks for bodies here.
    extent_cache: Option<ExtentCache>,
    capping: Option<ContainerCapping>,
    reads_per_mib: u64,
    /// Reads allowed, in units of 1 / 2^20.
    budget: u64,
    scratch: Scratch,
}

impl Bases {
    /// Bases over the stored containers that `resolver` sees and the running session.
    pub fn new(
        store: Arc<dyn Store>,
        resolver: Resolver,
        in_flight: Arc<FramesInFlight>,
        config: &SubdedupConfig,
        candidates: Candidates,
    ) -> Self {
        let bytes_max = config.base_cache_bytes.0 as usize;
        let frame_bytes_max = bytes_max.saturating_sub((bytes_max / CONTENTS_SHARE).max(2 * BLOCK_BYTES));
        Bases {
            store,
            resolver,
            in_flight,
            candidates,
            ring: Ring::default(),
            open_solid: Vec::new(),
            open_incompressible: Vec::new(),
            names: LruCache::new(at_least_one(NAMES_KEPT)),
            frames: ByteLru::new(frame_bytes_max),
            base_cache: BaseCache::new(bytes_max),
            bytes_max,
            ahead: ByteLru::new(AHEAD_BYTES_MAX),
            extent_cache: Some(ExtentCache::new(EXTENT_CACHE_BYTES_MAX)),
            capping: (config.base_containers_max > 0).then(|| ContainerCapping::new(config.base_containers_max)),
            reads_per_mib: u64::from(config.base_reads_per_mib),
            budget: u64::from(config.base_reads_per_mib) << 23,
            scratch: Scratch::default(),
        }
    }

    /// New bytes have come: more reads may be done. At most 64 MiB worth of reads are saved up.
    pub fn grant_reads(&mut self, bytes: u64) {
        self.budget = (self.budget + bytes * self.reads_per_mib).min(self.reads_per_mib << 26);
    }

    /// At most `count_max` entries for each feature that carry it, newest first: its position among `features` and the
    /// entry.
    pub fn each_candidate(&mut self, features: &[u64], count_max: usize, found: impl FnMut(usize, EntryNumber)) {
        self.candidates.find(features, count_max, &mut self.resolver, found);
    }

    /// At most `count_max` entries that carry a feature, newest first.
    pub fn candidates(&mut self, feature: u64, count_max: usize) -> Vec<EntryNumber> {
        let mut entries = Vec::new();
        self.each_candidate(&[feature], count_max, |_, entry| entries.push(entry));
        entries
    }

    /// Adds the features of session entry `number` to the index.
    pub fn index(&mut self, number: SessionEntryNumber, features: &[u64]) {
        self.candidates.insert(number, features);
    }

    /// The entry stored after this one, if there is one in its container or in the session so far.
    pub fn following(&mut self, entry: EntryNumber) -> Result<Option<EntryNumber>> {
        let (container, position) = match entry.address() {
            EntryAddress::Stored { container, position } => (container, position),
            EntryAddress::Session(number) => {
                let next = number.plus(1);
                return Ok((next < self.ring.next()).then_some(EntryNumber::session(next)));
            }
        };
        let container_index = self.resolver.container_index(container);
        let Some((_, container_index)) = self.tolerate(container_index)? else { return Ok(None) };
        let has_next = (position as usize) + 1 < container_index.entries.len();
        Ok(has_next.then(|| EntryNumber::stored(container, position + 1)))
    }

    /// The features of an entry, or none if it cannot be read.
    pub fn features(&mut self, entry: EntryNumber) -> Result<Vec<u64>> {
        if let Some(found) = entry.as_session().and_then(|number| self.ring.get(number)) {
            return Ok(found.features.clone());
        }
        let features = self.stored_number(entry).and_then(|number| {
            let (_, container_index, position) = self.resolver.container_index_of(number)?;
            let found = container_index.entries.get(position as usize);
            Ok(found.map(|found| container_index.features(found).to_vec()).unwrap_or_default())
        });
        self.tolerate(features).map(Option::unwrap_or_default)
    }

    /// The resolver's number of an entry that the ring does not hold.
    fn stored_number(&mut self, entry: EntryNumber) -> Result<EntryNumber> {
        let Some(number) = entry.as_session() else { return Ok(entry) };
        let (container, position) = self.in_flight.entry(number)?;
        Ok(self.resolver.entry_number(container, position))
    }

    /// Any entry of a stored chunk; `None` if it is not stored or cannot be found.
    pub fn entry_of(&mut self, fingerprint: &Fingerprint) -> Result<Option<EntryNumber>> {
        let located = self.resolver.locator.locate(fingerprint);
        Ok(self.tolerate(located)?.flatten().map(|located| self.resolver.number_of(&located)))
    }

    /// The bytes of a stored chunk; `None` if it is not stored or would exceed the budget of reads.
    ///
    /// # Errors
    /// Those of reading it, and [`Error::ChecksumMismatch`] where the bytes are others.
    pub fn read_chunk(&mut self, fingerprint: &Fingerprint) -> Result<Option<Vec<u8>>> {
        let Some(entry) = self.entry_of(fingerprint)? else { return Ok(None) };
        Ok(self.content(entry)?.map(<[u8]>::to_vec))
    }

    /// The bytes of a stored chunk of metadata, whatever reads are allowed; `None` if it is not stored.
    ///
    /// What would be found by it is worth more than its reading costs, as long as there are few of them.
    pub fn read_metadata(&mut self, fingerprint: &Fingerprint) -> Result<Option<Vec<u8>>> {
        let budget = std::mem::replace(&mut self.budget, u64::MAX);
        let read = self.read_chunk(fingerprint);
        self.budget = budget;
        read
    }

    /// The runs of an entry.
    pub fn extent_map(&mut self, entry: EntryNumber) -> Result<Arc<ExtentMap>> {
        let mut extent_cache = self.extent_cache.take().unwrap_or_else(|| ExtentCache::new(EXTENT_CACHE_BYTES_MAX));
        let extent_map = extent_cache.extent_map(self, entry);
        self.extent_cache = Some(extent_cache);
        extent_map
    }

    /// Where frame `number` can be read from; `None` if it is still being filled.
    pub fn frame_source(&mut self, number: FrameNumber) -> Result<Option<FrameSource>> {
        match number.address() {
            FrameAddress::Open(_) => Ok(None),
            FrameAddress::Session(number) => Ok(Some(FrameSource::Session(number))),
            FrameAddress::Stored { .. } => {
                let (container, info) = self.resolver.frame_info(number)?;
                Ok(Some(FrameSource::Stored(container, info)))
            }
        }
    }

    /// What a delta as long as its chunk is a delta to: entries, offsets and lengths; `None` for any other entry.
    pub fn delta_parts(&mut self, entry: EntryNumber) -> Result<Option<Vec<(EntryNumber, u32, u32)>>> {
        let view = self.body(entry)?;
        let mut parts = Vec::new();
        for operation in view.operations.as_slice() {
            let Operation::Delta { base, offset, len } = *operation else { return Ok(None) };
            parts.push((self.base(&view, base)?, offset, len));
        }
        let total: u64 = parts.iter().map(|part| u64::from(part.2)).sum();
        Ok((total == u64::from(view.raw_len)).then_some(parts))
    }

    /// A failure to read a base means there is no base, unless the run itself is failing.
    fn tolerate<T>(&self, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.is_unreadable() => {
                tracing::warn!("not using a similar chunk: {error}");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The content of an entry; `None` if it cannot be read, the reads would exceed the budget, or it is too large.
    ///
    /// # Errors
    /// Only when the run is failing.
    pub fn content(&mut self, entry: EntryNumber) -> Result<Option<&[u8]>> {
        Ok(if self.fetch(entry, true)? { self.base_cache.get(entry) } else { None })
    }

    /// Contents at hand.
    pub fn base_cache(&self) -> &BaseCache {
        &self.base_cache
    }

    /// Sees to it that the content of an entry is at hand and its anchors ready to be looked up; `find` finds them
    /// where they are not known. `false` if the content cannot be read, the reads would exceed the budget, or frames
    /// would have to be read or decoded and `may_decode` is not set.
    ///
    /// # Errors
    /// Only when the run is failing.
    pub fn tabulate(
        &mut self,
        entry: EntryNumber,
        may_decode: bool,
        find: impl FnOnce(&[u8], &mut Vec<Anchor>),
    ) -> Result<bool> {
        Ok(self.fetch(entry, may_decode)? && self.base_cache.tabulate(entry, find))
    }

    /// Sees to it that the content of an entry is at hand; `false` and `may_decode` as of [`Self::tabulate`].
    ///
    /// # Errors
    /// Only when the run is failing.
    pub fn fetch(&mut self, entry: EntryNumber, may_decode: bool) -> Result<bool> {
        if self.base_cache.contains(entry) {
            return Ok(true);
        }
        let gathered = self.gather(entry, may_decode);
        let Some(Some((extent_map, frames))) = self.tolerate(gathered)? else { return Ok(false) };
        let Bases { base_cache, open_solid, open_incompressible, .. } = self;
        let slices = slices(&extent_map, &frames, open_solid, open_incompressible);
        let filled = base_cache.fill(entry, extent_map.len() as usize, |space| extent_map.fill(&slices, space));
        Ok(self.tolerate(filled)?.unwrap_or(false))
    }

    /// The runs of an entry and the frames that they lie in, decoded; those still being filled are empty.
    fn gather(&mut self, entry: EntryNumber, may_decode: bool) -> Result<Option<(Arc<ExtentMap>, Vec<Bytes>)>> {
        if self.body(entry)?.raw_len > BASE_BYTES_MAX {
            return Ok(None);
        }
        let extent_map = self.extent_map(entry)?;
        // Nothing is copied from a delta: its bytes lie nowhere.
        if extent_map.is_delta() {
            return Ok(None);
        }
        let at_hand = |frame: &FrameNumber| !frame.is_final() || self.frames.contains(frame);
        if !may_decode && !extent_map.frames().iter().all(at_hand) {
            return Ok(None);
        }
        let mut frames = Vec::with_capacity(extent_map.frames().len());
        for number in extent_map.frames() {
            let frame = if number.is_final() { self.frame(*number)? } else { Some(Bytes::new()) };
            let Some(frame) = frame else { return Ok(None) };
            frames.push(frame);
        }
        Ok(Some((extent_map, frames)))
    }

    /// A new batch of chunks begins: other containers may be drawn on.
    pub fn next_batch(&mut self) {
        self.capping.iter_mut().for_each(ContainerCapping::reset);
    }

    /// Drops matches that would draw on too many containers.
    pub fn cap(&mut self, matches: &mut Vec<Match>) -> Result<()> {
        if self.capping.is_none() {
            return Ok(());
        }
        let mut origins = Vec::with_capacity(matches.len());
        for found in matches.iter() {
            let extent_map = self.extent_map(found.base)?;
            let extents = extent_map.extents_of(found.offset..found.offset + found.len)?;
            let origin = |run: Result<Extent>| {
                run.map(|run| match run.frame.address() {
                    FrameAddress::Stored { container, .. } => MatchOrigin::Container(container),
                    FrameAddress::Session(_) | FrameAddress::Open(_) => MatchOrigin::Session,
                })
            };
            origins.push(extents.map(origin).collect::<Result<_>>()?);
        }
        self.capping.iter_mut().for_each(|capping| capping.apply(matches, &origins));
        Ok(())
    }

    /// Depth of an entry's chain.
    pub fn depth(&mut self, entry: EntryNumber) -> Result<u8> {
        Ok(self.body(entry)?.depth)
    }

    /// Name of an entry as a base.
    pub fn name(&mut self, entry: EntryNumber) -> Result<Base> {
        let name = match entry.as_session().and_then(|number| self.ring.get(number)) {
            Some(found) => found.name,
            None => {
                let number = self.stored_number(entry)?;
                let (container, container_index, position) = self.resolver.container_index_of(number)?;
                let found = container_index.entries.get(position as usize);
                let found =
                    found.ok_or_else(|| Error::corrupt(blob_name(&container), 0, "an entry", position.to_string()))?;
                Base { fingerprint: found.fingerprint, digest: container_index.digest(found) }
            }
        };
        self.names.put(name, entry);
        Ok(name)
    }

    /// Keeps the raw bytes of a frame that was just emitted.
    pub fn cache_frame(&mut self, number: FrameNumber, raw: Bytes) {
        self.extent_cache.iter_mut().for_each(ExtentCache::seal);
        self.insert_frame(number, raw);
    }

    fn insert_frame(&mut self, number: FrameNumber, raw: Bytes) {
        let bytes = raw.len();
        self.frames.put(number, raw, bytes);
        self.base_cache.limit(self.bytes_max.saturating_sub(self.frames.bytes()));
    }

    /// Keeps a chunk of the session as it is, and its anchors, if they are known.
    ///
    /// # Errors
    /// Where the system has no memory.
    pub fn cache_chunk(
        &mut self,
        number: SessionEntryNumber,
        bytes: &[u8],
        anchors: Option<Vec<Anchor>>,
    ) -> Result<()> {
        if bytes.len() > BASE_BYTES_MAX as usize {
            return Ok(());
        }
        self.base_cache.keep(EntryNumber::session(number), bytes, anchors)
    }

    /// A frame's raw bytes; `None` when reading it would exceed the budget.
    fn frame(&mut self, number: FrameNumber) -> Result<Option<Bytes>> {
        if let Some(frame) = self.frames.get(&number) {
            return Ok(Some(frame));
        }
        if let Some((name, info, stored)) = self.ahead.get(&number) {
            return self.decode(number, &name, &info, &stored).map(Some);
        }
        let Some(budget) = self.budget.checked_sub(1 << 20) else { return Ok(None) };
        self.budget = budget;
        let location = match number.address() {
            FrameAddress::Session(number) => self.in_flight.frame(number)?,
            FrameAddress::Stored { position, .. } => {
                let (container, _) = self.resolver.frame_info(number)?;
                FrameLocation::Stored { container, frame: position }
            }
            FrameAddress::Open(_) => return Err(Error::internal("an open frame was to be read")),
        };
        match location {
            FrameLocation::Memory(frame) => {
                let raw = Bytes::from(frame.decode(&mut self.scratch)?);
                self.insert_frame(number, raw.clone());
                Ok(Some(raw))
            }
            FrameLocation::Stored { container, frame } => self.read_ahead(number, &container, frame).map(Some),
        }
    }

    /// Reads frame `frame` of a container and, in the same read, those that follow it: the next chunk's bases are
    /// likely to be there.
    fn read_ahead(&mut self, number: FrameNumber, container: &ContainerId, frame: u32) -> Result<Bytes> {
        let container_index = self.resolver.locator.container_indexes().load(container)?;
        let name: Arc<str> = blob_name(container).into();
        let frames = container_index.frames.get(frame as usize..).unwrap_or_default();
        let Some(first) = frames.first() else {
            return Err(Error::corrupt(&*name, 0, "a frame of the directory", frame.to_string()));
        };
        let (mut len, mut count) = (first.stored_bytes(), 1);
        for next in frames.iter().skip(1) {
            // A directory that is right has its frames side by side.
            if next.offset != first.offset + len as u64 || len + next.stored_bytes() > READ_AHEAD_BYTES {
                break;
            }
            (len, count) = (len + next.stored_bytes(), count + 1);
        }
        let stored = Bytes::from(self.store.get_range(&name, first.offset, len)?);
        for (info, count) in frames.iter().zip(0u32..).take(count).skip(1) {
            let Some(number) = following_frame(number, count) else { break };
            let from = (info.offset - first.offset) as usize;
            let bytes = stored.slice(from..from + info.stored_bytes());
            let weight = bytes.len();
            self.ahead.put(number, (name.clone(), *info, bytes), weight);
        }
        self.decode(number, &name, first, &stored.slice(..first.stored_bytes()))
    }

    fn decode(&mut self, number: FrameNumber, name: &str, info: &FrameInfo, stored: &[u8]) -> Result<Bytes> {
        let raw = Bytes::from(decode_frame(name, info, stored, &mut self.scratch)?);
        self.insert_frame(number, raw.clone());
        Ok(raw)
    }
}

/// The bytes of the frames of `extent_map`, given those that are full and the two that are not.
fn slices<'a>(extent_map: &ExtentMap, full: &'a [Bytes], solid: &'a [u8], incompressible: &'a [u8]) -> Vec<&'a [u8]> {
    let slice = |(number, full): (&FrameNumber, &'a Bytes)| match number.address() {
        FrameAddress::Open(OpenFrame::Solid) => solid,
        FrameAddress::Open(OpenFrame::Incompressible) => incompressible,
        FrameAddress::Stored { .. } | FrameAddress::Session(_) => &**full,
    };
    extent_map.frames().iter().zip(full).map(slice).collect()
}

/// The number of the frame `count` frames behind `number` in the same container; `None` for an open frame.
fn following_frame(number: FrameNumber, count: u32) -> Option<FrameNumber> {
    match number.address() {
        FrameAddress::Stored { container, position } => Some(FrameNumber::stored(container, position + count)),
        FrameAddress::Session(number) => Some(FrameNumber::session(number.plus(u64::from(count)))),
        FrameAddress::Open(_) => None,
    }
}

impl OperationSource for Bases {
    fn body(&mut self, entry: EntryNumber) -> Result<OperationView> {
        if let Some(view) = entry.as_session().and_then(|number| self.ring.view(number)) {
            return Ok(view);
        }
        let number = self.stored_number(entry)?;
        self.resolver.body(number)
    }

    fn base(&mut self, view: &OperationView, base: u32) -> Result<EntryNumber> {
        if let OperationSlice::Session(session) = &view.operations {
            let found = session.entries.get(base as usize).copied();
            return found.ok_or_else(|| Error::corrupt("session entry", 0, "a base", base.to_string()));
        }
        let name = self.resolver.base_name(view, base)?;
        if let Some(entry) = self.names.get(&name) {
            return Ok(*entry);
        }
        self.resolver.base(view, base)
    }
}
