//! Payload: encodes and decodes the groups of a block that is coded.

use super::super::{WHAT, plane};
use super::palette;
use super::rounding::Rounding;
use super::search::{Coding, Groups, ScaleSearch};
use crate::codec::{ElementRows, ElementType, Scratch};
use crate::error::Result;
use crate::kernel::codebook::{Codebook, multiply};
use crate::kernel::{interleave, planes};
use crate::wire::{WireReader, put_varint};

/// Bit of a layout: elements are coded.
pub(in super::super) const CODED: u8 = 0x80;
/// First byte with a palette, but for the type of the elements.
pub(super) const PALETTE: u8 = CODED;
/// Elements of a group, at least and at most.
const GROUP_MIN: usize = 8;
pub(super) const GROUP_MAX: usize = 1 << 16;
/// Bytes of a scale.
const SCALE_BYTES: usize = 4;
/// Groups without a scale: at most one in so many, of at least so many that were looked at.
const FAILED_SHARE: usize = 4;
const FAILED_OF: usize = 16;
/// Blocks of fewer elements are not looked at.
const ELEMENTS_MIN: usize = 256;

/// Buffers of one worker, reused between blocks.
#[derive(Default)]
pub(in crate::codec) struct CodedBuffers {
    search: ScaleSearch,
    mask: Vec<u8>,
    scales: Vec<u8>,
    codes: Vec<u8>,
    others: Vec<u8>,
    split: Vec<u8>,
    rounded: Vec<u8>,
}

/// The number of a codebook on disk.
const fn id(book: Codebook) -> u8 {
    match book {
        Codebook::Integers => 1,
        Codebook::NormalFloat => 2,
        Codebook::Fp8E4M3 => 3,
        Codebook::SignedIntegers => 4,
    }
}

/// Whether a block of these elements seems to be dequantised.
pub(in crate::codec) fn is_dequantised(element_type: ElementType, raw: &[u8]) -> bool {
    raw.len() / element_type.width() >= ELEMENTS_MIN
        && ScaleSearch::default().recognise(element_type, ElementRows::default(), raw).is_some()
}

/// Appends the encoding of a block that is coded; `false`, with nothing appended, for any other one.
pub(in super::super) fn encode(
    element_type: ElementType,
    rows: ElementRows,
    raw: &[u8],
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<bool> {
    let Some(rounding) = Rounding::of(element_type) else { return Ok(false) };
    let (whole, tail) = raw.split_at(raw.len() / rounding.width() * rounding.width());
    if whole.len() / rounding.width() < ELEMENTS_MIN {
        return Ok(false);
    }
    let start = out.len();
    let mut buffers = std::mem::take(&mut scratch.coded);
    let encoded = match buffers.search.recognise(element_type, rows, whole) {
        Some((coding, groups)) => buffers.encode(coding, groups, whole, scratch, out),
        None => Ok(false),
    };
    scratch.coded = buffers;
    let is_coded = encoded? || palette::encode(rounding, whole, scratch, out)?;
    if is_coded {
        out.extend_from_slice(tail);
    } else {
        out.truncate(start);
    }
    Ok(is_coded)
}

impl CodedBuffers {
    fn encode(
        &mut self,
        coding: Coding,
        groups: Groups,
        whole: &[u8],
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        if !self.find(coding, groups, whole) {
            return Ok(false);
        }
        out.push(CODED | id(coding.book) << 2 | coding.rounding.id());
        put_varint(out, groups.elements as u64);
        put_varint(out, groups.first as u64);
        plane::encode(&self.mask, scratch, out)?;
        put_planes(SCALE_BYTES, &self.scales, &mut self.split, scratch, out)?;
        plane::encode(&self.codes, scratch, out)?;
        put_planes(coding.rounding.width(), &self.others, &mut self.split, scratch, out)?;
        Ok(true)
    }

    /// Fills the buffers with scales, codes and the elements of groups that have none; `false` if these are too many.
    fn find(&mut self, coding: Coding, groups: Groups, whole: &[u8]) -> bool {
        let (width, numbers) = (coding.rounding.width(), coding.book.numbers());
        let elements = whole.len() / width;
        [&mut self.mask, &mut self.scales, &mut self.codes, &mut self.others].into_iter().for_each(Vec::clear);
        self.mask.resize(groups.count(elements).div_ceil(8), 0);
        let mut failed = 0;
        for (number, range) in groups.ranges(elements).enumerate() {
            let raw = whole.get(range.start * width..range.end * width).unwrap_or_default();
            if let Some(scale) = self.search.scale((coding, numbers), raw) {
                self.scales.extend_from_slice(&scale.to_le_bytes());
                self.codes.extend_from_slice(self.search.codes());
                continue;
            }
            self.others.extend_from_slice(raw);
            if let Some(bits) = self.mask.get_mut(number / 8) {
                *bits |= 1 << (number % 8);
            }
            failed += 1;
            if failed * FAILED_SHARE > number.max(FAILED_OF) {
                return false;
            }
        }
        true
    }

    /// Appends the elements of groups, read from what follows the first byte.
    fn decode(
        &mut self,
        (rounding, book): (Rounding, Codebook),
        elements: usize,
        reader: &mut WireReader<'_>,
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let size = reader.bounded("elements of a group", GROUP_MAX as u64)? as usize;
        let first = reader.bounded("elements of the first group", GROUP_MAX as u64)? as usize;
        if size < GROUP_MIN || first >= size {
            let expected = format!("groups of at least {GROUP_MIN} elements, the first one shorter");
            return Err(reader.error(expected, format!("{size} and {first}")));
        }
        let groups = Groups { elements: size, first };
        let count = groups.count(elements);
        read_plane(count.div_ceil(8), reader, scratch, &mut self.mask)?;
        if !count.is_multiple_of(8) && self.mask.last().is_some_and(|last| last >> (count % 8) != 0) {
            return Err(reader.error(format!("a mask of {count} groups"), "a longer one"));
        }
        let is_other =
            |mask: &[u8], number: usize| mask.get(number / 8).is_some_and(|bits| bits >> (number % 8) & 1 == 1);
        let scaled = (0..count).filter(|number| !is_other(&self.mask, *number)).count();
        let sizes = groups.ranges(elements).enumerate().filter(|(number, _)| !is_other(&self.mask, *number));
        let coded: usize = sizes.map(|(_, range)| range.len()).sum();
        read_planes(SCALE_BYTES, scaled, reader, scratch, (&mut self.split, &mut self.scales))?;
        read_plane(coded, reader, scratch, &mut self.codes)?;
        read_planes(rounding.width(), elements - coded, reader, scratch, (&mut self.split, &mut self.others))?;
        let numbers = book.numbers();
        let (mut scales, mut codes, mut others) =
            (self.scales.as_chunks().0.iter(), self.codes.as_slice(), self.others.as_slice());
        out.reserve(elements * rounding.width());
        for (number, range) in groups.ranges(elements).enumerate() {
            if is_other(&self.mask, number) {
                let (own, more) = others.split_at((range.len() * rounding.width()).min(others.len()));
                out.extend_from_slice(own);
                others = more;
                continue;
            }
            let (own, more) = codes.split_at(range.len().min(codes.len()));
            codes = more;
            let scale = scales.next().map_or(0.0, |scale| f32::from_le_bytes(*scale));
            self.split.resize(own.len() * 4, 0);
            multiply(book, numbers, own, scale, &mut self.split);
            out.extend_from_slice(rounding.round(&self.split, &mut self.rounded));
        }
        Ok(())
    }
}

/// Appends the `raw_len` bytes that `payload` decodes to.
pub(in super::super) fn decode(payload: &[u8], raw_len: usize, scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
    let mut reader = WireReader::new(WHAT, 0, payload);
    let first = reader.u8()?;
    let book = match first >> 2 & 0x1f {
        0 => Some(None),
        number => Codebook::ALL.into_iter().find(|book| id(*book) == number).map(Some),
    };
    let Some((rounding, book)) = Rounding::of_id(first & 3).zip(book) else {
        return Err(reader.unsupported(format!("coded elements of the kind {first:#04x}")));
    };
    let elements = raw_len / rounding.width();
    match book {
        None => palette::decode(rounding, elements, &mut reader, scratch, out)?,
        Some(book) => {
            let mut buffers = std::mem::take(&mut scratch.coded);
            let decoded = buffers.decode((rounding, book), elements, &mut reader, scratch, out);
            scratch.coded = buffers;
            decoded?;
        }
    }
    out.extend_from_slice(reader.bytes(raw_len % rounding.width())?);
    reader.finish()
}

/// Appends a plane for every byte of the rotated elements.
fn put_planes(
    width: usize,
    elements: &[u8],
    split: &mut Vec<u8>,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    split.resize(elements.len(), 0);
    planes::deinterleave_rotated(elements, width, true, split);
    let count = elements.len() / width;
    (0..width).try_for_each(|number| {
        plane::encode(split.get(number * count..(number + 1) * count).unwrap_or_default(), scratch, out)
    })
}

/// Reads a plane of `len` bytes.
fn read_plane(len: usize, reader: &mut WireReader<'_>, scratch: &mut Scratch, bytes: &mut Vec<u8>) -> Result<()> {
    bytes.resize(len, 0);
    if let Some(stored) = plane::decode(reader, scratch, bytes)? {
        bytes.copy_from_slice(stored);
    }
    Ok(())
}

/// Inverse of [`put_planes`]: fills `elements`.
fn read_planes(
    width: usize,
    count: usize,
    reader: &mut WireReader<'_>,
    scratch: &mut Scratch,
    (split, elements): (&mut Vec<u8>, &mut Vec<u8>),
) -> Result<()> {
    split.resize(count * width, 0);
    for number in 0..width {
        let plane = split.get_mut(number * count..(number + 1) * count).unwrap_or_default();
        if let Some(stored) = plane::decode(reader, scratch, plane)? {
            plane.copy_from_slice(stored);
        }
    }
    elements.clear();
    let planes: Vec<&[u8]> = split.chunks_exact(count.max(1)).take(width).collect();
    if count > 0 {
        interleave::append(&planes, true, elements);
    }
    Ok(())
}
