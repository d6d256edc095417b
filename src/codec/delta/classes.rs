//! Classes: bytes or nibbles whose differences are encoded by the byte or nibble of the base. Deltas of quantised codes
//! are such bytes: a code of few values changes otherwise than one of many.
//!
//! | bytes | meaning |
//! |---|---|
//! | 1 | type of the blocks, 0 if the bytes are in none |
//! | | only in blocks: a varint, the bytes before the first whole block; these, and those after the last whole block |
//! | planes | only in blocks: the differences of their scales |
//! | 1 | 0 bytes, 1 nibbles |
//! | 2 or 32 | which nibble or byte of the base is the first of a class |
//! | | a frequency table of 10 bits for each class |
//! | the rest | the encoding of the differences of the codes |
//!
//! 1. Codes and scales of GGUF's blocks are taken apart. All bytes of other chunks are codes.
//! 2. Neighbouring bytes of the base are one class if that takes less than their own tables would.

use super::DeltaBuffers;
use crate::codec::Scratch;
use crate::codec::entropy::frequency_table;
use crate::codec::floats::plane;
use crate::error::Result;
use crate::kernel::byte_classes::{
    DifferenceCounts, classes_of, count_pairs, join_nibbles, nibble_counts, nibbles_of, split_nibbles,
};
use crate::kernel::elements as kernel;
use crate::kernel::quantise::BlockType;
use crate::kernel::rans::{self, FrequencyTable, TABLES_MAX};
use crate::wire::{WireReader, put_varint};

/// Logarithm of the sum of a table's frequencies.
const TABLE_BITS: u32 = 10;
/// Bytes of states and other fields.
const FIXED_BYTES: usize = 140;
/// What is encoded, on disk.
const BYTES: u8 = 0;
const NIBBLES: u8 = 1;

/// The quantised blocks that a chunk consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockGrid {
    /// Their type.
    pub block_type: BlockType,
    /// Bytes of the chunk before the first whole one.
    pub head: u8,
}

/// Buffers of one worker, reused between chunks.
#[derive(Default)]
pub(super) struct ClassBuffers {
    counts: Option<Box<DifferenceCounts>>,
    codes: Vec<u8>,
    base_codes: Vec<u8>,
    differences: Vec<u8>,
    contexts: Vec<u8>,
    plane: Vec<u8>,
}

/// Classes of the values of a base.
struct Classes {
    kind: u8,
    /// Approximate bytes of tables and differences.
    bytes: usize,
    /// The first value of each class.
    firsts: Vec<u8>,
    /// The counts of the differences of each class.
    counts: Vec<Vec<u32>>,
}

/// Classes for the codes that the buffers hold, before they are written.
pub(super) struct ClassPlan {
    classes: Classes,
    /// Approximate bytes of the encoding of the codes.
    pub(super) codes: usize,
    /// Bytes of the scales as they are.
    pub(super) scales: usize,
}

/// Neighbouring values, their counts, and the bits of these.
struct Class<const DIFFERENCES: usize> {
    first: u8,
    counts: [u32; DIFFERENCES],
    bits: f32,
}

impl<const DIFFERENCES: usize> Class<DIFFERENCES> {
    fn with(&self, other: &Self) -> Self {
        let counts = std::array::from_fn(|at| self.counts[at] + other.counts[at]);
        Class { first: self.first, bits: frequency_table::approximate_bits(&counts), counts }
    }
}

impl Classes {
    /// The classes that take least, as far as neighbours show.
    fn of<const DIFFERENCES: usize>(kind: u8, counts: &[[u32; DIFFERENCES]]) -> Classes {
        let mut found: Vec<Class<DIFFERENCES>> = Vec::new();
        for (first, counts) in counts.iter().enumerate() {
            let bits = frequency_table::approximate_bits(counts);
            let own = Class { first: first as u8, counts: *counts, bits };
            match found.last_mut() {
                Some(_) if own.bits == 0.0 => {}
                Some(last) => {
                    let both = last.with(&own);
                    if both.bits <= last.bits + own.bits {
                        *last = both;
                    } else {
                        found.push(own);
                    }
                }
                None => found.push(own),
            }
        }
        Self::merge(&mut found);
        let bits: f32 = found.iter().map(|class| class.bits).sum();
        Classes {
            kind,
            bytes: FIXED_BYTES + (bits / 8.0) as usize,
            firsts: found.iter().map(|class| class.first).collect(),
            counts: found.iter().map(|class| class.counts.to_vec()).collect(),
        }
    }

    /// Merges the neighbours that lose least, until there is a table for each class.
    fn merge<const DIFFERENCES: usize>(found: &mut Vec<Class<DIFFERENCES>>) {
        let loss = |pair: &[Class<DIFFERENCES>]| match pair {
            [one, other] => one.with(other).bits - one.bits - other.bits,
            _ => f32::INFINITY,
        };
        // Only the losses beside a merged class change.
        let mut losses: Vec<f32> =
            if found.len() > TABLES_MAX { found.windows(2).map(loss).collect() } else { Vec::new() };
        while found.len() > TABLES_MAX {
            let least = losses.iter().enumerate().min_by(|one, other| one.1.total_cmp(other.1));
            let Some((at, _)) = least else { break };
            let next = found.remove(at + 1);
            losses.remove(at);
            if let Some(class) = found.get_mut(at) {
                *class = class.with(&next);
            }
            for pair in at.saturating_sub(1)..=at {
                if let Some((slot, pair)) = losses.get_mut(pair).zip(found.get(pair..pair + 2)) {
                    *slot = loss(pair);
                }
            }
        }
    }

    /// The class of each value of the base.
    fn numbers(firsts: &[u8]) -> [u8; 256] {
        let mut numbers = [0; 256];
        let mut number = 0u8;
        for (value, slot) in numbers.iter_mut().enumerate() {
            let is_next = firsts.get(usize::from(number) + 1).is_some_and(|first| usize::from(*first) == value);
            number += u8::from(is_next);
            *slot = number;
        }
        numbers
    }

    /// Appends classes, tables and the differences.
    fn write(&self, buffers: &mut ClassBuffers, out: &mut Vec<u8>) {
        let ClassBuffers { codes, base_codes, differences, contexts, .. } = buffers;
        let numbers = Self::numbers(&self.firsts);
        out.push(self.kind);
        let mut mask = [0u8; 32];
        for first in &self.firsts {
            mask[usize::from(first / 8)] |= 1 << (first % 8);
        }
        if self.kind == NIBBLES {
            out.extend_from_slice(&mask[..2]);
            differences.resize(2 * codes.len(), 0);
            contexts.resize(2 * codes.len(), 0);
            split_nibbles(codes, base_codes, differences, contexts);
            contexts.iter_mut().for_each(|context| *context = numbers[usize::from(*context & 15)]);
        } else {
            out.extend_from_slice(&mask);
            differences.resize(codes.len(), 0);
            contexts.resize(codes.len(), 0);
            kernel::difference(codes, base_codes, differences);
            classes_of(&numbers, base_codes, contexts);
        }
        let table = |own: &Vec<u32>| {
            let mut counts = [0; 256];
            counts.iter_mut().zip(own).for_each(|(count, own)| *count = *own);
            FrequencyTable::of_counts(&counts, TABLE_BITS)
        };
        let tables: Vec<FrequencyTable> = self.counts.iter().map(table).collect();
        tables.iter().for_each(|table| frequency_table::write(table, out));
        rans::encode(differences, contexts, &tables, out);
    }
}

/// The bytes before the first whole block, those of whole blocks that chunk and base have.
fn parts(blocks: BlockGrid, raw_len: usize, base_len: usize) -> (usize, usize) {
    let head = usize::from(blocks.head).min(raw_len);
    let whole = raw_len.min(base_len).saturating_sub(head) / blocks.block_type.bytes() * blocks.block_type.bytes();
    (head, whole)
}

/// Appends the code bytes of whole blocks.
fn take_codes(block_type: BlockType, blocks: &[u8], codes: &mut Vec<u8>) {
    codes.clear();
    for block in blocks.chunks_exact(block_type.bytes()) {
        block_type.code_ranges().for_each(|range| codes.extend_from_slice(block.get(range).unwrap_or_default()));
    }
}

impl ClassBuffers {
    /// Fills `codes` and `base_codes`.
    fn take(&mut self, blocks: Option<BlockGrid>, raw: &[u8], base: &[u8]) {
        match blocks {
            None => {
                self.codes.clear();
                self.codes.extend_from_slice(raw);
                self.base_codes.clear();
                self.base_codes.extend_from_slice(base.get(..raw.len().min(base.len())).unwrap_or_default());
                self.base_codes.resize(raw.len(), 0);
            }
            Some(blocks) => {
                let (head, whole) = parts(blocks, raw.len(), base.len());
                for (bytes, codes) in [(raw, &mut self.codes), (base, &mut self.base_codes)] {
                    take_codes(blocks.block_type, bytes.get(head..head + whole).unwrap_or_default(), codes);
                }
            }
        }
    }

    /// The classes with the fewest bytes.
    fn analyse(&mut self) -> Classes {
        let counts = self.counts.get_or_insert_with(|| Box::new([[0; 256]; 256]));
        counts.as_flattened_mut().fill(0);
        count_pairs(&self.codes, &self.base_codes, counts);
        let bytes = Classes::of(BYTES, counts.as_slice());
        let nibbles = Classes::of(NIBBLES, &nibble_counts(counts));
        if nibbles.bytes < bytes.bytes { nibbles } else { bytes }
    }

    /// Appends the planes of the differences of scales.
    fn put_scales(
        &mut self,
        block_type: BlockType,
        raw: &[u8],
        base: &[u8],
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let size = block_type.bytes();
        let pairs = || raw.chunks_exact(size).zip(base.chunks_exact(size));
        for at in block_type.halves() {
            let number =
                |block: &[u8]| block.get(at..at + 2).map_or(0, |bytes| u16::from(bytes[0]) | u16::from(bytes[1]) << 8);
            for shift in [0, 8] {
                self.plane.clear();
                let difference = |(raw, base)| zigzag(number(raw).wrapping_sub(number(base)));
                self.plane.extend(pairs().map(|pair| (difference(pair) >> shift) as u8));
                plane::encode(&self.plane, scratch, out)?;
            }
        }
        self.plane.clear();
        for (raw, base) in pairs() {
            for range in block_type.packed_scales() {
                let (raw, base) = (raw.get(range.clone()).unwrap_or_default(), base.get(range).unwrap_or_default());
                self.plane.extend(raw.iter().zip(base).map(|(raw, base)| raw.wrapping_sub(*base)));
            }
        }
        plane::encode(&self.plane, scratch, out)
    }

    /// Inverse of [`Self::put_scales`]: fills the scales of `out`, whole blocks.
    fn read_scales(
        &mut self,
        block_type: BlockType,
        reader: &mut WireReader<'_>,
        base: &[u8],
        scratch: &mut Scratch,
        out: &mut [u8],
    ) -> Result<()> {
        let size = block_type.bytes();
        let count = out.len() / size;
        for at in block_type.halves() {
            let mut differences = vec![0u16; count];
            for shift in [0, 8] {
                self.read_plane(count, reader, scratch)?;
                differences.iter_mut().zip(&self.plane).for_each(|(all, byte)| *all |= u16::from(*byte) << shift);
            }
            for ((out, base), difference) in out.chunks_exact_mut(size).zip(base.chunks_exact(size)).zip(differences) {
                let (Some(out), Some([low, high])) = (out.get_mut(at..at + 2), base.get(at..at + 2)) else { continue };
                let number = (u16::from(*low) | u16::from(*high) << 8).wrapping_add(unzigzag(difference));
                out.copy_from_slice(&number.to_le_bytes());
            }
        }
        let packed: usize = block_type.packed_scales().map(|range| range.len()).sum();
        self.read_plane(count * packed, reader, scratch)?;
        let mut differences = self.plane.iter();
        for (out, base) in out.chunks_exact_mut(size).zip(base.chunks_exact(size)) {
            for range in block_type.packed_scales() {
                let (out, base) = (out.get_mut(range.clone()).unwrap_or_default(), base.get(range).unwrap_or_default());
                let bytes = out.iter_mut().zip(base).zip(differences.by_ref());
                bytes.for_each(|((out, base), difference)| *out = base.wrapping_add(*difference));
            }
        }
        Ok(())
    }

    fn read_plane(&mut self, len: usize, reader: &mut WireReader<'_>, scratch: &mut Scratch) -> Result<()> {
        self.plane.resize(len, 0);
        if let Some(stored) = plane::decode(reader, scratch, &mut self.plane)? {
            self.plane.copy_from_slice(stored);
        }
        Ok(())
    }

    /// Fills `codes` from the base's codes and the rest of `reader`.
    fn read_codes(&mut self, reader: &mut WireReader<'_>) -> Result<()> {
        let kind = reader.u8()?;
        if kind > NIBBLES {
            return Err(reader.unsupported(format!("classes of the kind {kind}")));
        }
        let values = if kind == NIBBLES { 16 } else { 256 };
        let mask = reader.bytes(values / 8)?;
        let is_first = |value: &usize| mask.get(value / 8).is_some_and(|bits| bits >> (value % 8) & 1 == 1);
        let firsts: Vec<u8> = (0..values).filter(is_first).map(|value| value as u8).collect();
        if firsts.first() != Some(&0) || firsts.len() > TABLES_MAX {
            return Err(reader.error(format!("1 to {TABLES_MAX} classes from 0 on"), format!("{firsts:?}")));
        }
        let tables: Result<Vec<FrequencyTable>> =
            firsts.iter().map(|_| frequency_table::read(reader, TABLE_BITS)).collect();
        let (tables, numbers) = (tables?, Classes::numbers(&firsts));
        let encoding = reader.bytes(reader.remaining())?;
        let ClassBuffers { codes, base_codes, differences, contexts, .. } = self;
        codes.resize(base_codes.len(), 0);
        let count = if kind == NIBBLES { 2 * codes.len() } else { codes.len() };
        contexts.resize(count, 0);
        differences.resize(count, 0);
        if kind == NIBBLES {
            nibbles_of(base_codes, contexts);
            contexts.iter_mut().for_each(|context| *context = numbers[usize::from(*context & 15)]);
        } else {
            classes_of(&numbers, base_codes, contexts);
        }
        if !rans::decode(encoding, contexts, &tables, differences) {
            return Err(reader.error(format!("differences of {} codes", codes.len()), "other differences"));
        }
        if kind == NIBBLES {
            join_nibbles(differences, base_codes, codes);
        } else {
            codes.copy_from_slice(differences);
            kernel::add(codes, base_codes);
        }
        Ok(())
    }
}

fn zigzag(difference: u16) -> u16 {
    let signed = difference as i16;
    ((signed << 1) ^ (signed >> 15)) as u16
}

fn unzigzag(coded: u16) -> u16 {
    (coded >> 1) ^ 0u16.wrapping_sub(coded & 1)
}

/// Finds classes by counts of all codes, which the buffers hold until [`encode`].
pub(super) fn plan(blocks: Option<BlockGrid>, raw: &[u8], base: &[u8], buffers: &mut DeltaBuffers) -> ClassPlan {
    let own = &mut buffers.classes;
    own.take(blocks, raw, base);
    let classes = own.analyse();
    ClassPlan { codes: classes.bytes, scales: raw.len() - own.codes.len(), classes }
}

/// Appends what follows the mode, by the plan that was made last.
pub(super) fn encode(
    plan: &ClassPlan,
    blocks: Option<BlockGrid>,
    [raw, base]: [&[u8]; 2],
    buffers: &mut DeltaBuffers,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    out.push(blocks.map_or(0, |blocks| blocks.block_type.number()));
    if let Some(blocks) = blocks {
        let (head, whole) = parts(blocks, raw.len(), base.len());
        put_varint(out, head as u64);
        out.extend_from_slice(raw.get(..head).unwrap_or_default());
        out.extend_from_slice(raw.get(head + whole..).unwrap_or_default());
        let [raw, base] = [raw, base].map(|bytes| bytes.get(head..head + whole).unwrap_or_default());
        buffers.classes.put_scales(blocks.block_type, raw, base, scratch, out)?;
    }
    plan.classes.write(&mut buffers.classes, out);
    Ok(())
}

/// Appends `raw_len` bytes to `out`. Reads all of `reader`.
pub(super) fn decode(
    reader: &mut WireReader<'_>,
    base: &[u8],
    raw_len: usize,
    buffers: &mut DeltaBuffers,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    let number = reader.u8()?;
    let block_type = BlockType::of_number(number);
    if block_type.is_none() && number != 0 {
        return Err(reader.unsupported(format!("quantised blocks of type {number}")));
    }
    let mut own = std::mem::take(&mut buffers.classes);
    let Some(block_type) = block_type else {
        own.base_codes.clear();
        own.base_codes.extend_from_slice(base.get(..raw_len.min(base.len())).unwrap_or_default());
        own.base_codes.resize(raw_len, 0);
        own.read_codes(reader)?;
        out.extend_from_slice(&own.codes);
        buffers.classes = own;
        return Ok(());
    };
    let head = reader.bounded("bytes before a whole block", block_type.bytes() as u64 - 1)? as usize;
    let (taken, whole) = parts(BlockGrid { block_type, head: head as u8 }, raw_len, base.len());
    if taken != head {
        return Err(reader.error(format!("at most {raw_len} bytes before a whole block"), head.to_string()));
    }
    out.extend_from_slice(reader.bytes(head)?);
    let tail = reader.bytes(raw_len - head - whole)?;
    let base = base.get(head..head + whole).unwrap_or_default();
    let start = out.len();
    out.resize(start + whole, 0);
    let blocks = out.get_mut(start..).unwrap_or_default();
    own.read_scales(block_type, reader, base, scratch, blocks)?;
    take_codes(block_type, base, &mut own.base_codes);
    own.read_codes(reader)?;
    let mut codes = own.codes.as_slice();
    for block in blocks.chunks_exact_mut(block_type.bytes()) {
        for range in block_type.code_ranges() {
            let (bytes, rest) = codes.split_at(range.len().min(codes.len()));
            block.get_mut(range).unwrap_or_default().copy_from_slice(bytes);
            codes = rest;
        }
    }
    buffers.classes = own;
    out.extend_from_slice(tail);
    Ok(())
}
