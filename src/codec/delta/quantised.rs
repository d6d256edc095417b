//! Quantised: a chunk of quantised blocks that follow from the base's elements ([`crate::kernel::quantise`]).
//!
//! A payload is:
//!
//! | bytes | meaning |
//! |---|---|
//! | 1 | type of the blocks |
//! | 1 | bits 0-1: type of the base's elements; bits 2-3: what they are rounded to first; bits 4-7: source of scales |
//! | varint | bytes of the chunk before the first whole block |
//! | | these bytes, and those after the last whole block |
//! | planes | only if scales are given: their differences from what the values suggest, like ones in a plane |
//! | the rest | a payload of the blocks against those that follow from the base, as of bytes |
//!
//! 1. A file may have been made from values of another type than the base has. So a sample of the blocks is made from
//!    the base's values and from rounded ones, with scales that are computed or given, and the best way is taken.
//! 2. All blocks are made, as a reader does, and compared. The differences are a payload as of any bytes.
//! 3. If that takes too much, the chunk is encoded without its base, as a delta of bytes.

use super::float_source::FloatSource;
use super::payload::decode_mode;
use super::{DeltaBuffers, bytes};
use crate::codec::floats::plane;
use crate::codec::{ElementType, Scratch};
use crate::error::Result;
use crate::kernel::quantise::{BlockType, ScaleRows, ScaleSource, quantise, scale_rows};
use crate::wire::{WireReader, put_varint};

/// Values that are made into blocks at a time.
const PART_VALUES: usize = 1 << 14;
/// Values in a sample, about.
const SAMPLE_VALUES: usize = 1 << 12;
/// A scale that is given takes about half of its bytes, and a byte that differs about two.
const SCALE_EIGHTHS: usize = 4;
const MISS_EIGHTHS: usize = 16;

/// How quantised blocks follow from a base.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Quantised {
    /// Type of the blocks.
    pub block_type: BlockType,
    /// Type of the base's elements: BF16, FP16 or FP32.
    pub from: ElementType,
    /// Bytes of the chunk before its first whole block.
    pub head: u8,
}

/// How blocks are made from the base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Recreation {
    block_type: BlockType,
    values: FloatSource,
    source: ScaleSource,
}

/// Buffers of one worker, reused between chunks.
#[derive(Default)]
pub(super) struct QuantisedBuffers {
    blocks: Vec<u8>,
    other: Vec<u8>,
    /// Differences of scales, block by block, and of those that are alike.
    rows: Vec<u8>,
    plane: Vec<u8>,
    wide: Vec<u8>,
    narrow: Vec<u8>,
}

/// The parts of a chunk: bytes before the first whole block, bytes of whole blocks that the base has values for.
fn parts(quantised: Quantised, raw_len: usize, base_len: usize) -> (usize, usize) {
    let (values, bytes) = (quantised.block_type.values(), quantised.block_type.bytes());
    let head = usize::from(quantised.head).min(raw_len);
    let blocks = ((raw_len - head) / bytes).min(base_len / quantised.from.width() / values);
    (head, blocks * bytes)
}

impl Recreation {
    /// Its second byte.
    fn flags(self) -> u8 {
        let source = match self.source {
            ScaleSource::Given => 0,
            ScaleSource::Computed => 1,
            ScaleSource::Fused => 2,
        };
        self.values.flags() | source << 4
    }

    /// Reads the first two bytes.
    fn read(reader: &mut WireReader<'_>) -> Result<Recreation> {
        let (number, flags) = (reader.u8()?, reader.u8()?);
        let Some(block_type) = BlockType::of_number(number) else {
            return Err(reader.unsupported(format!("quantised blocks of type {number}")));
        };
        let source = match flags >> 4 {
            0 => Some(ScaleSource::Given),
            1 => Some(ScaleSource::Computed),
            2 => Some(ScaleSource::Fused),
            _ => None,
        };
        let source = source.filter(|source| block_type.sources().contains(source));
        match (FloatSource::of_flags(flags), source) {
            (Some(values), Some(source)) => Ok(Recreation { block_type, values, source }),
            _ => Err(reader.unsupported(format!("quantised blocks of type {number} made in the way {flags:#04x}"))),
        }
    }

    /// Fills `blocks` from `base`. Scales that are given are in the blocks, or in `rows`. In the first case these are
    /// filled, if there are any.
    fn make(
        self,
        base: &[u8],
        blocks: &mut [u8],
        (direction, rows): (ScaleRows, &mut [u8]),
        wide: &mut Vec<u8>,
        narrow: &mut Vec<u8>,
    ) {
        let count = PART_VALUES / self.block_type.values();
        let base = base.chunks(PART_VALUES * self.values.width());
        let mut rows = rows.chunks_mut(count * self.block_type.row_bytes());
        for (blocks, base) in blocks.chunks_mut(count * self.block_type.bytes()).zip(base) {
            let values = self.values.widened(base, wide, narrow);
            if let Some(rows) = rows.next() {
                scale_rows(self.block_type, direction, values, blocks, rows);
            }
            quantise(self.block_type, self.source, values, blocks);
        }
    }

    /// The way of making `raw`, whole blocks, that is best on a sample.
    fn choose(quantised: Quantised, raw: &[u8], base: &[u8], buffers: &mut QuantisedBuffers) -> Recreation {
        let Quantised { block_type, from, .. } = quantised;
        let (bytes, base_bytes) = (block_type.bytes(), block_type.values() * from.width());
        let blocks = raw.len() / bytes;
        let taken = (SAMPLE_VALUES / block_type.values()).min(blocks);
        let (mut raw_sample, mut base_sample) = (Vec::new(), Vec::new());
        for number in 0..taken {
            let at = blocks * number / taken;
            raw_sample.extend_from_slice(raw.get(at * bytes..(at + 1) * bytes).unwrap_or_default());
            base_sample.extend_from_slice(base.get(at * base_bytes..(at + 1) * base_bytes).unwrap_or_default());
        }
        let scales = block_type.scale_bytes().count() * taken * SCALE_EIGHTHS;
        let values = FloatSource::of(from);
        let mut best = (usize::MAX, Recreation { block_type, values, source: ScaleSource::Given });
        for values in FloatSource::all(from) {
            for source in block_type.sources().iter().copied() {
                let way = Recreation { block_type, values, source };
                buffers.other.clear();
                buffers.other.extend_from_slice(&raw_sample);
                let rows = (ScaleRows::Fill, &mut [][..]);
                way.make(&base_sample, &mut buffers.other, rows, &mut buffers.wide, &mut buffers.narrow);
                let given = if source == ScaleSource::Given { scales } else { 0 };
                let cost = differing(&raw_sample, &buffers.other) * MISS_EIGHTHS + given;
                if cost < best.0 {
                    best = (cost, way);
                }
            }
        }
        best.1
    }
}

/// The number of bytes that differ.
fn differing(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).filter(|(one, other)| one != other).count()
}

/// Appends the payload of `raw` against `base`.
pub(super) fn encode(
    quantised: Quantised,
    raw: &[u8],
    base: &[u8],
    buffers: &mut DeltaBuffers,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    let (head, whole) = parts(quantised, raw.len(), base.len());
    let (blocks, tail) = raw.get(head..).unwrap_or_default().split_at(whole);
    let mut own = std::mem::take(&mut buffers.quantised);
    let mut way = Recreation::choose(quantised, blocks, base, &mut own);
    let QuantisedBuffers { blocks: made, other, rows, plane, wide, narrow } = &mut own;
    made.clear();
    made.extend_from_slice(blocks);
    rows.clear();
    if way.source == ScaleSource::Given {
        rows.resize(whole / way.block_type.bytes() * way.block_type.row_bytes(), 0);
    }
    way.make(base, made, (ScaleRows::Fill, rows), wide, narrow);
    let fused = Recreation { source: ScaleSource::Fused, ..way };
    let may_be_fused = way.source == ScaleSource::Computed && way.block_type.sources().contains(&fused.source);
    if may_be_fused && made != blocks {
        // So few blocks differ that a sample need not have one.
        other.resize(whole, 0);
        fused.make(base, other, (ScaleRows::Fill, &mut []), wide, narrow);
        if differing(other, blocks) < differing(made, blocks) {
            std::mem::swap(made, other);
            way = fused;
        }
    }
    out.extend_from_slice(&[way.block_type.number(), way.flags()]);
    put_varint(out, head as u64);
    out.extend_from_slice(raw.get(..head).unwrap_or_default());
    out.extend_from_slice(tail);
    if way.source == ScaleSource::Given {
        for part in way.block_type.row_parts() {
            plane.clear();
            let rows = rows.chunks_exact(way.block_type.row_bytes());
            rows.for_each(|row| plane.extend_from_slice(row.get(part.clone()).unwrap_or_default()));
            plane::encode(plane, scratch, out)?;
        }
    }
    bytes::encode(ElementType::Unknown, None, [blocks, made], buffers, scratch, out)?;
    buffers.quantised = own;
    Ok(())
}

/// Appends the `raw_len` bytes that `reader` and `base` decode to.
pub(super) fn decode(
    reader: &mut WireReader<'_>,
    base: &[u8],
    raw_len: usize,
    buffers: &mut DeltaBuffers,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    let way = Recreation::read(reader)?;
    let head = reader.bounded("bytes before a whole block", way.block_type.bytes() as u64 - 1)?;
    let quantised = Quantised { block_type: way.block_type, from: way.values.element_type(), head: head as u8 };
    let (head, whole) = parts(quantised, raw_len, base.len());
    if head != usize::from(quantised.head) {
        return Err(reader.error(format!("at most {raw_len} bytes before a whole block"), quantised.head.to_string()));
    }
    out.extend_from_slice(reader.bytes(head)?);
    let tail = reader.bytes(raw_len - head - whole)?;
    let mut own = std::mem::take(&mut buffers.quantised);
    let QuantisedBuffers { blocks, rows, plane, wide, narrow, .. } = &mut own;
    blocks.clear();
    blocks.resize(whole, 0);
    rows.clear();
    if way.source == ScaleSource::Given {
        read_rows(way.block_type, whole / way.block_type.bytes(), reader, scratch, rows, plane)?;
    }
    way.make(base, blocks, (ScaleRows::Apply, rows), wide, narrow);
    decode_mode(ElementType::Byte, reader, blocks, whole, buffers, scratch, out)?;
    buffers.quantised = own;
    out.extend_from_slice(tail);
    Ok(())
}

/// Reads the differences of the scales of all blocks.
fn read_rows(
    block_type: BlockType,
    blocks: usize,
    reader: &mut WireReader<'_>,
    scratch: &mut Scratch,
    rows: &mut Vec<u8>,
    plane: &mut Vec<u8>,
) -> Result<()> {
    rows.resize(blocks * block_type.row_bytes(), 0);
    for part in block_type.row_parts() {
        plane.resize(blocks * part.len(), 0);
        let bytes = plane::decode(reader, scratch, plane)?.unwrap_or(plane.as_slice());
        for (row, bytes) in rows.chunks_exact_mut(block_type.row_bytes()).zip(bytes.chunks_exact(part.len())) {
            row.get_mut(part.clone()).unwrap_or_default().copy_from_slice(bytes);
        }
    }
    Ok(())
}
