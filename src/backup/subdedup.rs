//! SubDedup: encodes each new chunk against the chunks before it and fills frames, in stream order.
//!
//! 1. A float chunk or a block of a tensor gets a frame of its own, which ModelEncode encodes. If a stored model or the
//!    file's previous version has a base for it, or ranges of stored blocks are like it, it becomes a delta or copies
//!    them (`blocks`). A plain block is treated as in step 2, unless a base has most of its values.
//! 2. Every other new chunk gets the copies that Match found, if they pay. With a strategy other than anchors, this
//!    stage searches it. The remaining bytes are literal bytes.
//! 3. Literal bytes of successive chunks fill a solid frame; those of incompressible chunks fill another frame. With
//!    `frame_bytes = 0` each chunk has a frame of its own, as in the paper.
//! 4. A group of chunks ends when the solid frame is full or the group is large. Its entries are sent after its frames.
//!    Containers end between groups only.
//!
//! The stage has one owner and uses no clock, so the stored bytes depend on the stream only.

mod blocks;
mod looks;

use std::sync::Arc;

use bytes::Bytes;
use looks::NearLooks;

use crate::backup::message::{
    Chunk, ChunkBatch, ChunkItem, CopySearch, FrameKind, NewEntry, Outcome, Packet, PendingFrame, SaveItem, TreeItem,
};
use crate::chunk::classify::{ChunkClass, ChunkClassifier};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::model::{DeltaPlanner, SliceTrial};
use crate::pipeline::{Emit, Stage};
use crate::repo::container::{
    Base, EXTENTS_LIMIT, EntryNumber, FrameAddress, FrameNumber, OpenFrame, Operation, OperationList,
    SessionEntryNumber, SessionFrameNumber, SessionOperations, operations_digest,
};
use crate::similar::{
    Bases, EncodeBounds, EncodedChunk, Encoder, Match, SessionEntry, SharedBases, SliceSearch, Strategy,
    StrategyOutput, base_problem,
};
use crate::types::Fingerprint;

/// Bytes of chunks after which a group ends even if its solid frame is not full.
const GROUP_BYTES_MAX: u64 = 8 << 20;
/// Entries after which a group ends.
const GROUP_ENTRIES_MAX: u64 = 4096;
/// Operations after which a group ends.
const GROUP_OPERATIONS_MAX: usize = 1 << 15;
/// Operations of a chunk, at most. Together with the weight at which a container is full, these bounds keep within what
/// a reader accepts of a container.
const CHUNK_OPERATIONS_MAX: usize = 1 << 14;
/// Bytes of chunks after which a group ends if each chunk has a frame of its own.
const GROUP_BYTES_PER_CHUNK_FRAMES: u64 = 1 << 20;

/// Who searches for copies.
pub enum Searcher {
    /// This stage.
    Strategy(Box<dyn Strategy>),
    /// Choose and Match, before this stage.
    Match(Arc<SharedBases>),
}

/// The stage.
pub struct SubDedupStage {
    searcher: Searcher,
    bases: Bases,
    planner: DeltaPlanner,
    slices: SliceSearch,
    looks: NearLooks,
    trial: SliceTrial,
    /// Classifies chunks that Identify left out.
    classifier: ChunkClassifier,
    /// Float chunks are not searched for copies.
    separates: bool,
    encoder: Encoder,
    frame_bytes: usize,
    /// Shortest chunk that counts as long, bytes.
    long_chunk_bytes: u32,
    /// Literal bytes of long chunks that copy little, in the open solid frame.
    new_bytes: usize,
    /// Literal bytes of plain blocks in the open solid frame.
    plain_bytes: usize,
    group_bytes_max: u64,
    /// Offset of the next chunk in its file.
    offset: u64,
    /// Session number of the next frame.
    next_frame: SessionFrameNumber,
    /// First entry of the current group.
    group_first: SessionEntryNumber,
    /// Bytes of chunks in the current group.
    group_bytes: u64,
    /// Operations in the current group.
    group_operations: usize,
}

/// Where the literal bytes of an entry are.
struct Literals {
    frame: FrameNumber,
    offset: u32,
    len: u32,
}

impl Literals {
    /// The first `len` bytes of a frame.
    fn first(frame: SessionFrameNumber, len: u32) -> Self {
        Literals { frame: FrameNumber::session(frame), offset: 0, len }
    }
}

impl SubDedupStage {
    /// A stage over `bases`, for chunks of `chunk_bytes_avg` bytes on average.
    pub fn new(
        searcher: Searcher,
        bases: Bases,
        planner: DeltaPlanner,
        slices: SliceSearch,
        config: &Config,
        chunk_bytes_avg: u64,
    ) -> Self {
        SubDedupStage {
            searcher,
            bases,
            trial: planner.trial(),
            planner,
            slices,
            looks: NearLooks::default(),
            classifier: ChunkClassifier::new(&config.identify, config.model.planes_zstd_level),
            separates: config.identify.separate,
            encoder: Encoder::new(EncodeBounds {
                depth_max: config.subdedup.depth_max,
                operations_max: CHUNK_OPERATIONS_MAX,
            }),
            // Often one base is all that is needed of a frame, and the rest is decoded for nothing.
            frame_bytes: config.compress.frame_bytes.0.min(u64::from(config.compress.frame_chunks) * chunk_bytes_avg)
                as usize,
            long_chunk_bytes: u32::try_from(chunk_bytes_avg / 2).unwrap_or(u32::MAX),
            new_bytes: 0,
            plain_bytes: 0,
            // Containers end only between groups.
            group_bytes_max: GROUP_BYTES_MAX.min(config.container.bytes_target.0),
            offset: 0,
            next_frame: SessionFrameNumber::default(),
            group_first: SessionEntryNumber::default(),
            group_bytes: 0,
            group_operations: 0,
        }
    }

    fn encode_chunk(&mut self, chunk: Chunk, emit: &mut Emit<Packet>) -> Result<()> {
        self.bases.grant_reads(u64::from(chunk.len));
        self.group_bytes += u64::from(chunk.len);
        match chunk.block.filter(|block| !block.is_opaque) {
            Some(block) => self.block(chunk, block, emit)?,
            None => self.other_chunk(chunk, emit)?,
        }
        let entries = self.bases.entries.ring.next().0 - self.group_first.0;
        let per_chunk = self.frame_bytes == 0 && self.group_bytes >= GROUP_BYTES_PER_CHUNK_FRAMES;
        let is_large = self.group_bytes >= self.group_bytes_max || self.group_operations >= GROUP_OPERATIONS_MAX;
        if is_large || entries >= GROUP_ENTRIES_MAX || per_chunk {
            self.end_group(emit)?;
        }
        Ok(())
    }

    /// Stores an opaque chunk: as a float chunk, or with the copies that the strategy finds.
    fn other_chunk(&mut self, mut chunk: Chunk, emit: &mut Emit<Packet>) -> Result<()> {
        if self.separates
            && let ChunkClass::Float(layout) = self.class(&chunk)
        {
            self.float_chunk(chunk, Vec::new(), FrameKind::Float(layout), emit)?;
            return Ok(());
        }
        let (found, encoded) = self.find(&mut chunk)?;
        // If most of the chunk is copied, no codec saves more on the rest.
        let is_copied = encoded.literal_len() * 2 <= chunk.len;
        let class = if is_copied { ChunkClass::Ordinary } else { self.class(&chunk) };
        match class {
            ChunkClass::Float(layout) => self.floats(chunk, layout, found.features, emit)?,
            ChunkClass::Ordinary if !is_copied && chunk.slices.is_some() => {
                self.quantised(chunk, found.features, encoded, emit)?
            }
            class => {
                self.ordinary_chunk(chunk, class, found.features, encoded, emit)?;
            }
        }
        Ok(())
    }

    fn class(&mut self, chunk: &Chunk) -> ChunkClass {
        chunk.class.unwrap_or_else(|| self.classifier.classify(&chunk.bytes))
    }

    /// Adds the features of an entry to the similarity index, unless Choose has.
    fn index(&mut self, number: SessionEntryNumber, features: &[u64]) {
        if matches!(self.searcher, Searcher::Strategy(_)) {
            self.bases.index(number, features);
        }
    }

    /// Appends the literal bytes of a chunk to an open frame and adds its entry.
    fn ordinary_chunk(
        &mut self,
        chunk: Chunk,
        class: ChunkClass,
        features: Vec<u64>,
        encoded: EncodedChunk,
        emit: &mut Emit<Packet>,
    ) -> Result<SessionEntryNumber> {
        let literal_len = encoded.literal_len() as usize;
        let open = if class == ChunkClass::Incompressible { OpenFrame::Incompressible } else { OpenFrame::Solid };
        let filled = self.open_frame(open).len();
        if self.frame_bytes > 0 && filled > 0 && filled + literal_len > self.frame_bytes {
            match open {
                OpenFrame::Solid => self.end_group(emit)?,
                OpenFrame::Incompressible => self.close_frame(open, emit)?,
            }
        }
        let is_long = chunk.len >= self.long_chunk_bytes;
        if open == OpenFrame::Solid && is_long && encoded.literal_len() > chunk.len / 2 {
            self.new_bytes += literal_len;
        }
        self.plain_bytes +=
            if chunk.class.is_some() && chunk.block.is_some_and(|block| !block.is_opaque) { literal_len } else { 0 };
        let frame_bytes = self.frame_bytes;
        let frame = self.open_frame(open);
        if frame.capacity() == 0 {
            frame.reserve(frame_bytes.max(literal_len));
        }
        let literal_offset = frame.len() as u32;
        for range in &encoded.literals {
            frame.extend_from_slice(chunk.bytes.get(range.start as usize..range.end as usize).unwrap_or_default());
        }
        let literals = Literals { frame: FrameNumber::open(open), offset: literal_offset, len: literal_len as u32 };
        let number = self.push_entry(&chunk, literals, features.clone(), encoded);
        self.index(number, &features);
        if let Searcher::Strategy(strategy) = &self.searcher
            && strategy.wants_bases()
        {
            self.bases.cache_chunk(number, &chunk.bytes)?;
        }
        if self.frame_bytes == 0 {
            self.close_frame(open, emit)?;
        }
        Ok(number)
    }

    /// Adds the entry of a chunk.
    fn push_entry(
        &mut self,
        chunk: &Chunk,
        literals: Literals,
        features: Vec<u64>,
        encoded: EncodedChunk,
    ) -> SessionEntryNumber {
        let EncodedChunk { operations, bases, entries, depth, .. } = encoded;
        self.group_operations += operations.len();
        let digest = operations_digest(&operations, &bases);
        self.bases.entries.ring.push(SessionEntry {
            name: Base { fingerprint: chunk.fingerprint, digest },
            raw_len: chunk.len,
            frame: literals.frame,
            literal_offset: literals.offset,
            literal_len: literals.len,
            depth,
            features,
            operations: Arc::new(SessionOperations { list: OperationList { operations, bases }, entries }),
        })
    }

    /// The copies of a chunk. If the operation list of a base is unreadable the chunk is stored whole.
    fn find(&mut self, chunk: &mut Chunk) -> Result<(StrategyOutput, EncodedChunk)> {
        let mut found = match (&mut self.searcher, std::mem::take(&mut chunk.search)) {
            (Searcher::Strategy(strategy), _) => strategy.find(&chunk.bytes, &mut self.bases)?,
            (Searcher::Match(_), CopySearch::Found(found)) => found,
            (Searcher::Match(_), _) => return Err(Error::internal("a new chunk was not searched for copies")),
        };
        found.features.extend(chunk.slices.iter().flat_map(|slices| &slices.features.stored));
        let encoded = self.encode(chunk, &mut found, false)?;
        Ok((found, encoded))
    }

    /// Encodes a chunk with those of the matches of `found` that pay. Stored bases are known not to be deltas, unless
    /// `may_be_deltas`.
    fn encode(&mut self, chunk: &Chunk, found: &mut StrategyOutput, may_be_deltas: bool) -> Result<EncodedChunk> {
        let usable = self.drop_own(&chunk.fingerprint, &mut found.matches);
        let usable = usable.and_then(|()| self.drop_deltas(&mut found.matches, may_be_deltas));
        let usable = usable.and_then(|()| self.bases.cap(&mut found.matches));
        let encoded = usable.and_then(|()| self.encoder.encode(&chunk.bytes, found, &mut self.bases));
        match encoded.and_then(|encoded| Ok((self.is_resolvable(chunk.len, &encoded)?, encoded))) {
            Ok((true, encoded)) => Ok(encoded),
            Ok((false, _)) => Ok(EncodedChunk::whole(chunk.len)),
            Err(error) if error.is_unreadable() => {
                tracing::warn!("a chunk is stored whole: {}", base_problem(&error));
                Ok(EncodedChunk::whole(chunk.len))
            }
            Err(error) => Err(error),
        }
    }

    /// Drops the matches with entries of the same chunk, and with what is made from them. A new chunk has such entries
    /// only where they do not count.
    fn drop_own(&mut self, fingerprint: &Fingerprint, matches: &mut Vec<Match>) -> Result<()> {
        let mut known: Vec<(EntryNumber, bool)> = Vec::new();
        for found in matches.iter() {
            if !known.iter().any(|known| known.0 == found.base) {
                known.push((found.base, self.bases.entries.builds_on(found.base, fingerprint)?));
            }
        }
        matches.retain(|found| !known.contains(&(found.base, true)));
        Ok(())
    }

    /// Drops the matches with deltas: nothing is copied from one. Choose cannot know which plain blocks become deltas.
    fn drop_deltas(&mut self, matches: &mut Vec<Match>, may_be_stored: bool) -> Result<()> {
        let mut known: Vec<(EntryNumber, bool)> = Vec::new();
        for found in matches.iter().filter(|found| may_be_stored || found.base.as_session().is_some()) {
            if !known.iter().any(|known| known.0 == found.base) {
                known.push((found.base, self.bases.entries.is_delta(found.base)?));
            }
        }
        matches.retain(|found| !known.contains(&(found.base, true)));
        Ok(())
    }

    /// Whether a reader accepts the operations of a chunk of `len` bytes: their extents are not too many.
    fn is_resolvable(&mut self, len: u32, encoded: &EncodedChunk) -> Result<bool> {
        if len as usize <= EXTENTS_LIMIT {
            return Ok(true);
        }
        let mut extents = 0;
        for operation in &encoded.operations {
            extents += match *operation {
                Operation::Copy { base, offset, len } => {
                    let entry = encoded.entries.get(base as usize).copied();
                    let entry = entry.ok_or_else(|| Error::internal("an operation without its base"))?;
                    self.bases.entries.extent_map(entry)?.extents_of(offset..offset + len)?.count()
                }
                _ => 1,
            };
        }
        Ok(extents <= EXTENTS_LIMIT)
    }

    fn open_frame(&mut self, open: OpenFrame) -> &mut Vec<u8> {
        match open {
            OpenFrame::Solid => &mut self.bases.open_solid,
            OpenFrame::Incompressible => &mut self.bases.open_incompressible,
        }
    }

    /// Sends a frame and returns its number.
    fn emit_frame(&mut self, kind: FrameKind, raw: Bytes, emit: &mut Emit<Packet>) -> Result<SessionFrameNumber> {
        let number = self.next_frame;
        self.next_frame = number.plus(1);
        emit.emit(Packet::Frame(PendingFrame { number, kind, raw, stored: None }))?;
        Ok(number)
    }

    /// Sends an open frame unless it is empty, and sets its number in the group's entries.
    fn close_frame(&mut self, open: OpenFrame, emit: &mut Emit<Packet>) -> Result<()> {
        let raw = Bytes::from(std::mem::take(self.open_frame(open)));
        if raw.is_empty() {
            return Ok(());
        }
        let kind = match open {
            OpenFrame::Solid => self.solid_kind(raw.len()),
            OpenFrame::Incompressible => FrameKind::Incompressible,
        };
        let number = FrameNumber::session(self.emit_frame(kind, raw.clone(), emit)?);
        match &self.searcher {
            Searcher::Strategy(_) => self.bases.cache_frame(number, raw),
            Searcher::Match(shared) => {
                self.bases.entries.drop_open_frames();
                shared.add_frame(number, raw);
            }
        }
        self.bases.entries.ring.change_from(self.group_first, |entry| {
            if entry.frame == FrameNumber::open(open) {
                entry.frame = number;
            }
        });
        Ok(())
    }

    /// The kind of the solid frame that ends, of `len` bytes: at least half of it is of plain blocks, or of long chunks
    /// that copy little. A frame of one chunk never is if each chunk has its own, as in the paper.
    fn solid_kind(&mut self, len: usize) -> FrameKind {
        let (new_bytes, plain_bytes) = (std::mem::take(&mut self.new_bytes), std::mem::take(&mut self.plain_bytes));
        match self.frame_bytes > 0 {
            true if plain_bytes * 2 >= len => FrameKind::Plain,
            has_solid => FrameKind::Solid { is_mostly_new: has_solid && new_bytes * 2 >= len },
        }
    }

    /// Sends the open frames, then the entries of the group.
    fn end_group(&mut self, emit: &mut Emit<Packet>) -> Result<()> {
        self.close_frame(OpenFrame::Solid, emit)?;
        self.close_frame(OpenFrame::Incompressible, emit)?;
        let last_frame = SessionFrameNumber(self.next_frame.0.saturating_sub(1));
        let mut entries = Vec::new();
        let mut unended = None;
        self.bases.entries.ring.change_from(self.group_first, |entry| {
            if entry.literal_len == 0 {
                // An entry without literal bytes may refer to any frame.
                (entry.frame, entry.literal_offset) = (FrameNumber::session(last_frame), 0);
            }
            let FrameAddress::Session(frame) = entry.frame.address() else {
                unended = Some(entry.frame);
                return;
            };
            entries.push(NewEntry {
                fingerprint: entry.fingerprint(),
                raw_len: entry.raw_len,
                frame,
                literal_offset: entry.literal_offset,
                literal_len: entry.literal_len,
                depth: entry.depth,
                operations: entry.operations.clone(),
                features: entry.features.clone(),
            });
        });
        if let Some(frame) = unended {
            return Err(Error::internal(format!("an entry of an ended group is in {frame:?}")));
        }
        let next = self.bases.entries.ring.next();
        if let Searcher::Match(shared) = &self.searcher {
            shared.release(self.group_first, next);
        }
        self.group_first = next;
        (self.group_bytes, self.group_operations) = (0, 0);
        self.bases.next_batch();
        if entries.is_empty() { Ok(()) } else { emit.emit(Packet::Entries(entries)) }
    }
}

impl Stage for SubDedupStage {
    type In = ChunkBatch;
    type Out = Packet;

    fn name(&self) -> &'static str {
        "subdedup"
    }

    fn process(&mut self, batch: ChunkBatch, emit: &mut Emit<Packet>) -> Result<()> {
        let mut items = Vec::with_capacity(batch.items.len());
        for item in batch.items {
            match item {
                ChunkItem::Tree(item) => {
                    self.offset = 0;
                    self.slices.set_last(None);
                    self.looks = NearLooks::default();
                    if let TreeItem::End { outcome, .. } = &item {
                        items.extend(
                            self.planner.end(*outcome == Outcome::Complete, &mut self.bases)?.map(SaveItem::Model),
                        );
                    }
                    items.push(SaveItem::Tree(item));
                }
                ChunkItem::Model(file) => self.planner.begin(file, &mut self.bases)?,
                ChunkItem::PreviousVersion(content) => self.planner.begin_previous_version(content),
                ChunkItem::Hole(len) => {
                    self.offset += len;
                    items.push(SaveItem::Hole(len));
                }
                ChunkItem::Chunk(chunk) => {
                    let (fingerprint, len, is_new) = (chunk.fingerprint, chunk.len, chunk.is_new);
                    self.planner.note(&fingerprint, chunk.block);
                    if is_new {
                        self.encode_chunk(chunk, emit)?;
                    }
                    self.offset += u64::from(len);
                    items.push(SaveItem::Chunk { fingerprint, len, is_new });
                }
            }
        }
        emit.emit(Packet::Items(items))
    }

    fn finish(&mut self, emit: &mut Emit<Packet>) -> Result<()> {
        self.end_group(emit)
    }
}

#[cfg(test)]
#[path = "subdedup_tests.rs"]
mod tests;
