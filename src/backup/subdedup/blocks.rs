//! Blocks of tensors and float chunks: stored alone, as a delta or as copies, whichever is expected to take least.
//!
//! 1. A stored model, or the previous version of the file, may have a base of the same name or place.
//! 2. Unless that is near enough, or what Choose found by content is the same entry, the counterparts of the block are
//!    read and compared ([`SliceSearch`]). They are in any case if the tensor has grown or shrunk, because its rows
//!    may have moved. Then the first delta is tried on samples as well. What is to begin a new chain is compared only
//!    with blocks that have equal ranges: those that are merely alike are what it is to be apart from.
//!    Where several blocks of a file found nothing better so, few of the next ones are compared ([`super::looks`]).
//! 3. Ranges that equal ranges of blocks become copies. The rest of the block gets a frame of its own.
//! 4. Nothing is copied from a delta. If the block is like other ranges, or equals ranges of deltas, it becomes a delta
//!    to them.
//!
//! All lengths are estimated from samples of the block or come from container indexes.

use super::*;
use crate::codec::delta::Derivation;
use crate::codec::{ByteGroupLayout, ElementType};
use crate::model::{BlockPlan, PlannedDelta, TensorBlock, WeightType, element_type_of};
use crate::repo::container::TO_THE_END;
use crate::similar::{Counterparts, Elements, FoundSlices, LiteralRate, TensorPart, WeightBlock};

/// A base with a delta of at most one in this many bytes of the block is near enough.
const NEAR_SHARE: u64 = 4;
/// Literal bytes of a block that need no trial, one in this many. What takes so little also replaces a delta of an
/// unknown length.
const FEW_SHARE: u32 = 50;
/// A delta, or literal bytes beside copies, of at most one in this many bytes of the block: it nearly equals its base.
const NEARLY_SHARE: u64 = 16;
/// Percent of the expected bytes of a block alone, or of the delta that was planned, that another encoding may take.
const WORTH_ALONE: u64 = 93;
const WORTH_PLANNED: u64 = 90;
/// What an operation and a base take in the container index, bytes.
const OPERATION_BYTES: u64 = 6;
const BASE_BYTES: u64 = 40;
/// Literal bytes from which on they get a frame of their own.
const FRAME_BYTES_MIN: u32 = 8 << 10;

/// How a block is stored.
enum BlockEncoding {
    Alone,
    Delta(PlannedDelta),
    /// With copies; of so many bytes, as expected.
    Copies(EncodedChunk, u64),
}

impl SubDedupStage {
    /// Stores a block of a tensor of a known element type.
    pub(super) fn block(&mut self, mut chunk: Chunk, block: TensorBlock, emit: &mut Emit<Packet>) -> Result<()> {
        let fingerprint = chunk.fingerprint;
        let copied = if chunk.class.is_some() { Some(self.plain_copies(&mut chunk, block)?) } else { None };
        let is_copied = copied.as_ref().is_some_and(|(_, encoded)| encoded.literal_len() * 2 <= chunk.len);
        let plan = if is_copied {
            BlockPlan::Unplanned
        } else {
            let is_plain = copied.is_some();
            self.planner.plan(block, chunk.len, is_plain, &mut self.bases)?
        };
        let known = chunk.slices.as_ref().map(|slices| slices.layout);
        let layout = known.unwrap_or(Elements { width: block.width, phase: 0 });
        let of = WeightType { element_type: block.element_type, layout };
        let encoding = match copied.is_some() {
            true => match plan {
                BlockPlan::Delta(planned) => BlockEncoding::Delta(*planned),
                BlockPlan::Alone | BlockPlan::Unplanned => BlockEncoding::Alone,
            },
            false => {
                let rows = self.planner.row_bytes(block.tensor);
                self.weights(&chunk, of, TensorPart { rows: &rows, offset: block.offset }, plan)?
            }
        };
        // Weights alone take about three quarters.
        let mut bytes = u64::from(chunk.len) * 3 / 4;
        let mut features = chunk.slices.as_ref().map_or_else(Vec::new, |slices| slices.features.stored.clone());
        let number = match (encoding, copied) {
            (BlockEncoding::Delta(planned), _) => {
                bytes = planned.bytes;
                // What nearly equals a base of its type is found through that base. A length of 0 says nothing.
                let is_nearly = bytes > 0 && bytes * NEARLY_SHARE <= u64::from(chunk.len);
                if is_nearly && matches!(planned.plan.derivation, Derivation::Context(_) | Derivation::Bytes) {
                    features.clear();
                }
                self.planner.stored_against(&planned.bases);
                self.delta(chunk, planned, features, emit)?
            }
            (BlockEncoding::Copies(encoded, expected), _) => {
                bytes = expected;
                self.planner.stored_against(&encoded.bases);
                self.copies(chunk, FrameKind::Elements(of.element_type), of, features, encoded, emit)?
            }
            (BlockEncoding::Alone, Some((found, encoded))) => {
                self.ordinary_chunk(chunk, ChunkClass::Ordinary, found.features, encoded, emit)?
            }
            (BlockEncoding::Alone, None) => {
                self.float_chunk(chunk, features, FrameKind::Tensor(of.element_type, block.rows), emit)?
            }
        };
        self.planner.stored(fingerprint, EntryNumber::session(number), bytes);
        Ok(())
    }

    /// The copies of a plain block: those that Match found, or those of slices if these leave less. The features of
    /// weights that repeat are few different ones, and Match may have found none of them.
    fn plain_copies(&mut self, chunk: &mut Chunk, block: TensorBlock) -> Result<(StrategyOutput, EncodedChunk)> {
        let (found, encoded) = self.find(chunk)?;
        let Some(slices) = &chunk.slices else { return Ok((found, encoded)) };
        if encoded.literal_len() * 2 <= chunk.len || slices.counterparts.is_empty() {
            return Ok((found, encoded));
        }
        let layout = slices.layout;
        let rows = self.planner.row_bytes(block.tensor);
        let part = TensorPart { rows: &rows, offset: block.offset };
        let of = WeightBlock { bytes: &chunk.bytes, layout, part, counterparts: &slices.counterparts };
        let slices = self.slices.find(of, &mut self.bases)?;
        if slices.exact.is_empty() {
            return Ok((found, encoded));
        }
        let copies = self.slice_copies(chunk, WeightType { element_type: block.element_type, layout }, &slices)?;
        let is_less = copies.literal_len() + chunk.len / FEW_SHARE < encoded.literal_len();
        Ok((found, if is_less { copies } else { encoded }))
    }

    /// Stores a float chunk of a file of unknown format.
    pub(super) fn floats(
        &mut self,
        chunk: Chunk,
        layout: ByteGroupLayout,
        features: Vec<u64>,
        emit: &mut Emit<Packet>,
    ) -> Result<()> {
        let range = self.offset..self.offset + u64::from(chunk.len);
        let plan = BlockPlan::of(self.planner.plan_previous_version(range, layout, &mut self.bases)?);
        let elements = Elements { width: layout.width(), phase: layout.phase() };
        let of = WeightType { element_type: element_type_of(layout), layout: elements };
        match self.weights(&chunk, of, TensorPart::default(), plan)? {
            BlockEncoding::Delta(planned) => self.delta(chunk, planned, features, emit)?,
            BlockEncoding::Copies(encoded, _) => {
                self.copies(chunk, FrameKind::Float(layout), of, features, encoded, emit)?
            }
            BlockEncoding::Alone => self.float_chunk(chunk, features, FrameKind::Float(layout), emit)?,
        };
        Ok(())
    }

    /// Stores an ordinary chunk of a file of unknown format that may be quantised weights; `encoded` has its copies.
    pub(super) fn quantised(
        &mut self,
        chunk: Chunk,
        features: Vec<u64>,
        encoded: EncodedChunk,
        emit: &mut Emit<Packet>,
    ) -> Result<()> {
        let element_type = ElementType::Unknown;
        let of = WeightType { element_type, layout: Elements::BYTES };
        match self.weights(&chunk, of, TensorPart::default(), BlockPlan::Unplanned)? {
            BlockEncoding::Delta(planned) => self.delta(chunk, planned, features, emit)?,
            BlockEncoding::Copies(copies, _) => {
                self.copies(chunk, FrameKind::Elements(element_type), of, features, copies, emit)?
            }
            BlockEncoding::Alone => self.ordinary_chunk(chunk, ChunkClass::Ordinary, features, encoded, emit)?,
        };
        Ok(())
    }

    /// Chooses how a block is stored; `plan` has its delta to a base of the same name or place.
    fn weights(
        &mut self,
        chunk: &Chunk,
        of: WeightType,
        part: TensorPart<'_>,
        plan: BlockPlan,
    ) -> Result<BlockEncoding> {
        let none = Counterparts::default();
        let mut counterparts = chunk.slices.as_ref().map_or(&none, |slices| &slices.counterparts);
        let exact;
        let planned = match plan {
            BlockPlan::Delta(planned) => Some(*planned),
            BlockPlan::Unplanned => None,
            BlockPlan::Alone => {
                self.slices.set_last(None);
                exact = Counterparts { exact: counterparts.exact.clone(), near: Vec::new() };
                counterparts = &exact;
                None
            }
        };
        let is_known = planned.as_ref().is_some_and(|planned| self.has_its_base(planned, counterparts, chunk.len));
        // Only where the delta is sure, and nothing equals ranges of the block.
        let expected = planned.as_ref().filter(|planned| planned.bytes > 0 && !planned.may_have_moved);
        let is_rare = expected.is_some() && counterparts.exact.is_empty() && !self.slices.has_last();
        let expected = expected.map(|planned| planned.bytes);
        let otherwise = planned.map_or(BlockEncoding::Alone, BlockEncoding::Delta);
        if is_known || (counterparts.is_empty() && !self.slices.has_last()) {
            self.slices.set_last(None);
            return Ok(otherwise);
        }
        if is_rare && !self.looks.is_due() {
            return Ok(otherwise);
        }
        let block = WeightBlock { bytes: &chunk.bytes, layout: of.layout, part, counterparts };
        let (chosen, last) = self.slices_or(block, chunk, of, otherwise)?;
        if is_rare {
            let is_same = matches!(&chosen, BlockEncoding::Delta(planned) if Some(planned.bytes) == expected);
            self.looks.compared(!is_same);
        }
        self.slices.set_last(last);
        Ok(chosen)
    }

    /// Whether no other base than that of `planned` is sought: it is near enough, or the counterparts have it, too.
    fn has_its_base(&self, planned: &PlannedDelta, counterparts: &Counterparts, len: u32) -> bool {
        if planned.may_have_moved {
            return false;
        }
        let is_known = planned.bytes > 0;
        if is_known && planned.bytes * NEAR_SHARE <= u64::from(len) {
            return true;
        }
        // A base with equal ranges and a long delta has these ranges elsewhere.
        let exact = if is_known { &[] } else { counterparts.exact.as_slice() };
        counterparts.near.iter().chain(exact).any(|entry| self.planner.has_considered(*entry))
    }

    /// The delta that was planned, if a trial says that it pays.
    fn tried(
        &mut self,
        mut planned: PlannedDelta,
        block: WeightBlock<'_>,
        of: WeightType,
        alone: u64,
    ) -> Result<BlockEncoding> {
        if planned.may_have_moved
            && let Some(base) = self.slices.content_of(planned.ranges(), block.layout, &mut self.bases)?
        {
            planned.bytes = self.trial.delta(of, planned.plan.derivation, block.bytes, &base)?.max(1);
            if planned.bytes * 100 >= alone * WORTH_ALONE {
                return Ok(BlockEncoding::Alone);
            }
        }
        Ok(BlockEncoding::Delta(planned))
    }

    /// Slices of stored blocks, if they are expected to take less than what `otherwise` does, and the last one's entry.
    fn slices_or(
        &mut self,
        block: WeightBlock<'_>,
        chunk: &Chunk,
        of: WeightType,
        otherwise: BlockEncoding,
    ) -> Result<(BlockEncoding, Option<EntryNumber>)> {
        let mut found = self.slices.find(block, &mut self.bases)?;
        if found.bases.is_empty() {
            return Ok((otherwise, None));
        }
        let last = found.exact.last().map(|last| last.base);
        let copies = self.slice_copies(chunk, of, &found)?;
        let named = copies.operations.len() as u64 * OPERATION_BYTES + copies.bases.len() as u64 * BASE_BYTES;
        if copies.literal_len() <= chunk.len / FEW_SHARE && named <= u64::from(chunk.len / FEW_SHARE) {
            let bytes = named + u64::from(copies.literal_len());
            return Ok((BlockEncoding::Copies(copies, bytes), last));
        }
        let alone = self.trial.alone(of, &chunk.bytes)?;
        let otherwise = match otherwise {
            BlockEncoding::Delta(planned) => self.tried(planned, block, of, alone)?,
            otherwise => otherwise,
        };
        let mut bytes_max = match &otherwise {
            BlockEncoding::Delta(planned) if planned.bytes > 0 => planned.bytes * WORTH_PLANNED / 100,
            BlockEncoding::Delta(_) => u64::from(chunk.len / FEW_SHARE),
            _ => alone * WORTH_ALONE / 100,
        };
        let copied = named + alone * u64::from(copies.literal_len()) / u64::from(chunk.len.max(1));
        let mut best = (otherwise, None);
        if copied < bytes_max {
            (best, bytes_max) = ((BlockEncoding::Copies(copies, copied), last), copied);
        }
        let widths = self.planner.base_widths(of);
        for cover in self.slices.covers(block, &widths, &mut found, &mut self.bases)? {
            let planned =
                self.planner.plan_slices(of, &chunk.bytes, &cover, bytes_max, &mut self.trial, &mut self.bases)?;
            let last = cover.ranges.last().map(|last| last.entry);
            if let Some(planned) = planned {
                bytes_max = planned.bytes;
                best = (BlockEncoding::Delta(planned), last);
            }
        }
        Ok(best)
    }

    /// The block with copies of the ranges that equal ranges of blocks which are no deltas. Literal ranges consist of
    /// whole elements.
    fn slice_copies(&mut self, chunk: &Chunk, of: WeightType, found: &FoundSlices) -> Result<EncodedChunk> {
        let (width, phase) = (of.layout.width as u32, of.layout.phase as u32);
        let whole = |found: &Match| {
            let end = found.position + found.len;
            let start = phase + found.position.saturating_sub(phase).next_multiple_of(width);
            let start = if found.position == 0 { 0 } else { start };
            let end = if end == chunk.len { end } else { phase + end.saturating_sub(phase) / width * width };
            let len = end.checked_sub(start).filter(|len| *len > 0)?;
            Some(Match { position: start, offset: found.offset + (start - found.position), len, ..*found })
        };
        let matches = found.exact.iter().filter_map(whole).collect();
        let mut output = StrategyOutput { matches, features: Vec::new(), rate: Some(LiteralRate::FULL) };
        self.encode(chunk, &mut output, true)
    }

    /// Sends the literal bytes of a block with copies, and adds its entry.
    fn copies(
        &mut self,
        chunk: Chunk,
        kind: FrameKind,
        of: WeightType,
        features: Vec<u64>,
        encoded: EncodedChunk,
        emit: &mut Emit<Packet>,
    ) -> Result<SessionEntryNumber> {
        let literal_len = encoded.literal_len();
        // What is nearly all copied is found through its bases.
        let features = if u64::from(literal_len) * NEARLY_SHARE <= chunk.len.into() { Vec::new() } else { features };
        if literal_len < FRAME_BYTES_MIN {
            return self.ordinary_chunk(chunk, ChunkClass::Ordinary, features, encoded, emit);
        }
        let mut literals = Vec::with_capacity(literal_len as usize);
        for range in &encoded.literals {
            literals.extend_from_slice(chunk.bytes.get(range.start as usize..range.end as usize).unwrap_or_default());
        }
        let begins = encoded.literals.first().is_some_and(|first| first.start == 0);
        let kind = if begins { kind } else { FrameKind::Elements(of.element_type) };
        let frame = self.emit_frame(kind, Bytes::from(literals), emit)?;
        Ok(self.push_entry(&chunk, Literals::first(frame, literal_len), features, encoded))
    }

    /// Sends a delta and adds its entry.
    fn delta(
        &mut self,
        mut chunk: Chunk,
        planned: PlannedDelta,
        features: Vec<u64>,
        emit: &mut Emit<Packet>,
    ) -> Result<SessionEntryNumber> {
        let PlannedDelta { plan, operations, bases, entries, depth, .. } = planned;
        let frame = self.emit_frame(FrameKind::Delta(Arc::new(plan)), std::mem::take(&mut chunk.bytes), emit)?;
        let encoded = EncodedChunk { operations, bases, entries, depth, literals: Vec::new() };
        Ok(self.push_entry(&chunk, Literals::first(frame, TO_THE_END), features, encoded))
    }

    /// Sends a frame of one chunk and adds its entry.
    pub(super) fn float_chunk(
        &mut self,
        mut chunk: Chunk,
        features: Vec<u64>,
        kind: FrameKind,
        emit: &mut Emit<Packet>,
    ) -> Result<SessionEntryNumber> {
        let frame = self.emit_frame(kind, std::mem::take(&mut chunk.bytes), emit)?;
        let literals = Literals::first(frame, chunk.len);
        let number = self.push_entry(&chunk, literals, features.clone(), EncodedChunk::whole(chunk.len));
        self.index(number, &features);
        Ok(number)
    }
}
