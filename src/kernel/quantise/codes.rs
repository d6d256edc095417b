//! Codes: the loop over blocks, how a number becomes a code, and where a block has its codes.

use super::{BlockType, ScaleSource, large, small};

/// Its sum with a number of at most 2^22 is rounded to an integer, ties to even, and has that integer in its low bits.
const ROUNDING: f32 = 12_582_912.0;

/// The low byte of a number rounded to the nearest integer, ties to even. The number is at most 2^22.
#[inline(always)]
fn low_byte(number: f32) -> u8 {
    (number + ROUNDING).to_bits() as u8
}

/// The code of the nearest integer from `low` to `high`, ties to even: 0 for `low` and for what is not a number.
#[inline(always)]
pub(super) fn nearest(number: f32, low: f32, high: f32) -> u8 {
    let number = if number > low { number } else { low };
    let number = if number < high { number } else { high };
    low_byte(number).wrapping_sub(low_byte(low))
}

/// The integer part, at most `high`. 0 for what is not a number, negative, or 256 or more.
#[inline(always)]
pub(super) fn truncated(number: f32, high: u8) -> u8 {
    let number = if number >= 0.0 { number } else { 0.0 };
    let number = if number < 256.0 { number } else { 0.0 };
    let rounded = (number + ROUNDING) - ROUNDING;
    low_byte(if rounded > number { rounded - 1.0 } else { rounded }).min(high)
}

/// The low byte of the nearest integer, ties away from zero. 0 for what is not a number, or of 128 or more.
#[inline(always)]
pub(super) fn half_away(number: f32) -> u8 {
    let size = if number.abs() < 128.0 { number.abs() } else { 0.0 };
    let rounded = (size + ROUNDING) - ROUNDING;
    let rounded = if size - rounded == 0.5 { rounded + 1.0 } else { rounded };
    low_byte(if number < 0.0 { -rounded } else { rounded })
}

/// Calls a function with the values of each block and the block.
macro_rules! each {
    ($values:ident, $blocks:ident, $count:literal, $len:literal, $body:path $(, $argument:expr)*) => {{
        let values = $values.as_chunks::<4>().0.as_chunks::<$count>().0;
        for (block, bytes) in $blocks.as_chunks_mut::<$len>().0.iter_mut().zip(values) {
            let mut values = [0.0; $count];
            for (value, bytes) in values.iter_mut().zip(bytes) {
                *value = f32::from_le_bytes(*bytes);
            }
            $body(&values, block $(, $argument)*);
        }
    }};
}

/// The scalar reference, and what each set of CPU features runs.
#[inline(always)]
pub(super) fn quantise_loop(block_type: BlockType, source: ScaleSource, values: &[u8], blocks: &mut [u8]) {
    match block_type {
        BlockType::Q4_0 => each!(values, blocks, 32, 18, small::q4_0, source),
        BlockType::Q4_1 => each!(values, blocks, 32, 20, small::q4_1, source),
        BlockType::Q5_0 => each!(values, blocks, 32, 22, small::q5_0, source),
        BlockType::Q5_1 => each!(values, blocks, 32, 24, small::q5_1, source),
        BlockType::Q8_0 => each!(values, blocks, 32, 34, small::q8_0, source),
        BlockType::Q2K => each!(values, blocks, 256, 84, large::q2_k),
        BlockType::Q3K => each!(values, blocks, 256, 110, large::q3_k),
        BlockType::Q4K => each!(values, blocks, 256, 144, large::q4_k),
        BlockType::Q5K => each!(values, blocks, 256, 176, large::q5_k),
        BlockType::Q6K => each!(values, blocks, 256, 210, large::q6_k),
    }
}

/// Packs codes into `bytes` in parts of `len` bytes: byte i of a part has the codes i, i + `len`, i + 2 `len` and so on
/// of that part's codes, `bits` bits of each, from the lowest bit on.
#[inline(always)]
pub(super) fn pack(codes: &[u8], bits: u32, len: usize, bytes: &mut [u8]) {
    let part = 8 / bits as usize * len;
    for (bytes, codes) in bytes.chunks_exact_mut(len).zip(codes.chunks_exact(part)) {
        bytes.fill(0);
        for (shift, codes) in (0..8).step_by(bits as usize).zip(codes.chunks_exact(len)) {
            for (byte, code) in bytes.iter_mut().zip(codes) {
                *byte |= (code & ((1 << bits) - 1)) << shift;
            }
        }
    }
}

/// The inverse of [`pack`]: sets bits of `codes` from bit `to` on.
fn unpack_part(bytes: &[u8], bits: u32, len: usize, to: u32, codes: &mut [u8]) {
    let part = 8 / bits as usize * len;
    for (bytes, codes) in bytes.chunks_exact(len).zip(codes.chunks_exact_mut(part)) {
        for (shift, codes) in (0..8).step_by(bits as usize).zip(codes.chunks_exact_mut(len)) {
            for (byte, code) in bytes.iter().zip(codes) {
                *code |= (byte >> shift & ((1 << bits) - 1)) << to;
            }
        }
    }
}

/// The codes of a block, one for each value; zeros behind them, and for what is not a whole block.
pub fn unpack(block_type: BlockType, block: &[u8]) -> [u8; 256] {
    let mut codes = [0; 256];
    let count = block_type.values();
    // Range in the block, bits, bytes of a part, and the lowest bit of a code.
    type Parts = &'static [(usize, usize, u32, usize, u32)];
    let parts: Parts = match block_type {
        BlockType::Q4_0 => &[(2, 18, 4, 16, 0)],
        BlockType::Q4_1 => &[(4, 20, 4, 16, 0)],
        BlockType::Q5_0 => &[(6, 22, 4, 16, 0)],
        BlockType::Q5_1 => &[(8, 24, 4, 16, 0)],
        BlockType::Q8_0 => &[],
        BlockType::Q2K => &[(16, 80, 2, 32, 0)],
        BlockType::Q3K => &[(32, 96, 2, 32, 0), (0, 32, 1, 32, 2)],
        BlockType::Q4K => &[(16, 144, 4, 32, 0)],
        BlockType::Q5K => &[(48, 176, 4, 32, 0), (16, 48, 1, 32, 4)],
        BlockType::Q6K => &[(0, 128, 4, 64, 0), (128, 192, 2, 32, 4)],
    };
    for (from, to, bits, len, lowest) in parts {
        unpack_part(block.get(*from..*to).unwrap_or_default(), *bits, *len, *lowest, &mut codes[..count]);
    }
    let high_at = match block_type {
        BlockType::Q5_0 => 2..6,
        BlockType::Q5_1 => 4..8,
        _ => 0..0,
    };
    if let Some(high) = block.get(high_at).and_then(|high| high.first_chunk::<4>()) {
        let high = u32::from_le_bytes(*high);
        codes.iter_mut().take(count).enumerate().for_each(|(at, code)| *code |= (high >> at & 1) as u8 * 16);
    }
    if block_type == BlockType::Q8_0 {
        codes.iter_mut().zip(block.iter().skip(2)).for_each(|(code, byte)| *code = *byte);
    }
    codes
}
