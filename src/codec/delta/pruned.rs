//! Pruned: a mask of the elements that became zero, and the others as a payload in another mode.
//!
//! | bytes | meaning |
//! |---|---|
//! | 1 | bits 0-1: what the mask is compared with, 0 nothing, 1 a threshold, 2 two of four; bit 2: zeros are signed |
//! | varint | the threshold, if there is one |
//! | a plane of [`crate::codec::floats`] | the mask XOR what it is compared with |
//! | the rest | a payload of the elements that are not left out, and of the rest of the chunk |
//!
//! Bit `i` of the mask, the lowest bit of a byte first, is set if element `i` is left out. A signed zero has the sign
//! of the base's element.
//!
//! Weights are mostly pruned by their magnitude, so that the mask follows from the base: below a threshold, or the two
//! least of each four.

use super::payload::{PRUNED, try_smaller};
use super::{DeltaBuffers, WHAT, elements, payload};
use crate::codec::floats::plane;
use crate::codec::{ElementType, Scratch};
use crate::error::Result;
use crate::kernel::zeros;
use crate::wire::{WireReader, put_varint};

/// What a mask is compared with.
const NOTHING: u8 = 0;
const THRESHOLD: u8 = 1;
const TWO_OF_FOUR: u8 = 2;
/// Bits of what the mask is compared with.
const COMPARED: u8 = 3;
/// Bit: zeros have the sign of the base's element.
const SIGNED: u8 = 4;
/// Elements looked at, and one of so many must have become zero.
const SAMPLE_ELEMENTS: usize = 1024;
const SHARE: usize = 16;
/// A payload of at most one in this many bytes of the chunk is not compared with other modes.
const SMALL_SHARE: usize = 8;

/// Buffers of one worker, reused between chunks.
#[derive(Default)]
pub(super) struct PrunedBuffers {
    mask: Vec<u8>,
    /// What the mask is compared with, then both combined.
    compared: Vec<u8>,
    left: Vec<u8>,
    left_base: Vec<u8>,
    counters: Vec<i32>,
    trial: Vec<u8>,
}

/// How zeros of a pruned chunk look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pruning {
    /// Positive.
    Positive,
    /// With the sign of the base: weights were multiplied by zero.
    Signed,
}

/// Whether many elements of `raw` became zero, by a sample. Both have the same number of elements.
pub(super) fn pruning(element_type: ElementType, raw: &[u8], base: &[u8]) -> Option<Pruning> {
    let width = element_type.width();
    let elements = raw.len() / width;
    let taken = elements.min(SAMPLE_ELEMENTS);
    let (mut pruned, mut positive, mut signed) = (0, 0, 0);
    for number in 0..taken {
        let at = elements * number / taken * width;
        let element = |bytes: &[u8]| {
            let (top, low) = bytes.get(at..at + width)?.split_last()?;
            Some((low.iter().all(|byte| *byte == 0) && top & 0x7f == 0, top & 0x80))
        };
        let Some(((true, sign), (false, base_sign))) = element(raw).zip(element(base)) else { continue };
        pruned += 1;
        positive += usize::from(sign == 0);
        signed += usize::from(sign == base_sign);
    }
    let found = if signed > positive { Pruning::Signed } else { Pruning::Positive };
    (pruned * SHARE > taken).then_some(found)
}

/// Appends the payload of `raw` in this mode, or in another one that is smaller. The first `both` bytes are the whole
/// elements that both have.
pub(super) fn encode(
    element_type: ElementType,
    pruning: Pruning,
    [raw, base]: [&[u8]; 2],
    both: usize,
    buffers: &mut DeltaBuffers,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    let start = out.len();
    let (raw_elements, rest) = raw.split_at(both);
    let base_elements = base.get(..both).unwrap_or_default();
    let mut own = std::mem::take(&mut buffers.pruned);
    let is_signed = pruning == Pruning::Signed;
    out.push(PRUNED);
    own.mask.resize((both / element_type.width()).div_ceil(8), 0);
    zeros::mark(element_type.width(), raw_elements, base_elements, is_signed, &mut own.mask);
    own.append_mask(element_type, if is_signed { SIGNED } else { 0 }, base_elements, scratch, out)?;
    let PrunedBuffers { mask, left, left_base, .. } = &mut own;
    let keep = |bytes: &[u8], left: &mut Vec<u8>| {
        left.resize(both, 0);
        let len = zeros::keep(element_type.width(), bytes, mask, left);
        left.truncate(len);
    };
    keep(raw_elements, left);
    keep(base_elements, left_base);
    left.extend_from_slice(rest);
    elements::encode_modes(element_type, left, left_base, buffers, scratch, out)?;
    if (out.len() - start) * SMALL_SHARE > raw.len() {
        try_smaller(start, out, &mut own.trial, |out| {
            elements::encode_modes(element_type, raw, base, buffers, scratch, out)
        })?;
    }
    buffers.pruned = own;
    Ok(())
}

impl PrunedBuffers {
    /// Appends the mask, compared with what makes it shortest.
    fn append_mask(
        &mut self,
        element_type: ElementType,
        sign: u8,
        base: &[u8],
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        self.counters.resize(zeros::COUNTERS, 0);
        let threshold = zeros::threshold(element_type.width(), base, &self.mask, &mut self.counters);
        let start = out.len();
        let mut trial = std::mem::take(&mut self.trial);
        for compared in [NOTHING, THRESHOLD, TWO_OF_FOUR] {
            self.compare(compared, threshold, element_type, base);
            self.compared.iter_mut().zip(&self.mask).for_each(|(compared, mask)| *compared ^= mask);
            try_smaller(start, out, &mut trial, |out| {
                out.push(compared | sign);
                if compared == THRESHOLD {
                    put_varint(out, threshold.into());
                }
                plane::encode(&self.compared, scratch, out)
            })?;
        }
        self.trial = trial;
        Ok(())
    }

    /// Fills `compared` with what the mask is compared with.
    fn compare(&mut self, compared: u8, threshold: u32, element_type: ElementType, base: &[u8]) {
        self.compared.clear();
        self.compared.resize((base.len() / element_type.width()).div_ceil(8), 0);
        match compared {
            THRESHOLD => zeros::mark_below(element_type.width(), base, threshold, &mut self.compared),
            TWO_OF_FOUR => zeros::mark_two_of_four(element_type.width(), base, &mut self.compared),
            _ => {}
        }
    }

    /// Reads the mask of the elements of `base`; returns whether zeros have the sign of the base.
    fn read_mask(
        &mut self,
        element_type: ElementType,
        reader: &mut WireReader<'_>,
        base: &[u8],
        scratch: &mut Scratch,
    ) -> Result<bool> {
        let flags = reader.u8()?;
        if flags & !(COMPARED | SIGNED) != 0 || flags & COMPARED > TWO_OF_FOUR {
            return Err(reader.unsupported(format!("mask {flags:#04x} of a pruned chunk")));
        }
        let threshold = if flags & COMPARED == THRESHOLD { reader.varint()? } else { 0 };
        let threshold =
            u32::try_from(threshold).map_err(|_| reader.error("a threshold of 32 bits", threshold.to_string()))?;
        let elements = base.len() / element_type.width();
        self.mask.resize(elements.div_ceil(8), 0);
        if let Some(stored) = plane::decode(reader, scratch, &mut self.mask)? {
            self.mask.copy_from_slice(stored);
        }
        if !zeros::is_mask_of(&self.mask, elements) {
            return Err(reader.error(format!("a mask of {elements} elements"), "a longer one"));
        }
        self.compare(flags & COMPARED, threshold, element_type, base);
        self.mask.iter_mut().zip(&self.compared).for_each(|(mask, compared)| *mask ^= compared);
        Ok(flags & SIGNED != 0)
    }
}

/// Appends `raw_len` bytes to `out`. Reads all of `reader`.
pub(super) fn decode(
    element_type: ElementType,
    reader: &mut WireReader<'_>,
    base: &[u8],
    raw_len: usize,
    buffers: &mut DeltaBuffers,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<()> {
    let width = element_type.width();
    let both = raw_len.min(base.len()) / width * width;
    let base = base.get(..both).unwrap_or_default();
    let mut own = std::mem::take(&mut buffers.pruned);
    let is_signed = own.read_mask(element_type, reader, base, scratch)?;
    let PrunedBuffers { mask, left, left_base, .. } = &mut own;
    left_base.resize(both, 0);
    let left_len = zeros::keep(width, base, mask, left_base);
    left_base.truncate(left_len);
    let (offset, others) = (reader.offset(), reader.bytes(reader.remaining())?);
    if others.first() == Some(&PRUNED) {
        return Err(reader.error("another mode of what is not left out", "the same"));
    }
    let mut others = WireReader::new(WHAT, offset, others);
    left.clear();
    payload::decode_mode(element_type, &mut others, left_base, raw_len - both + left_len, buffers, scratch, left)?;
    let start = out.len();
    if is_signed {
        out.extend_from_slice(base);
    } else {
        out.resize(start + both, 0);
    }
    let (left_elements, rest) = left.split_at(left_len.min(left.len()));
    zeros::spread(width, left_elements, mask, out.get_mut(start..).unwrap_or_default());
    out.extend_from_slice(rest);
    buffers.pruned = own;
    Ok(())
}
