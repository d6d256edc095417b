//! Blocks of 256 values: codes given the scales of sub-blocks of 16 or 32 values.
//!
//! A sub-block has a scale, the product of the block's scale and a small integer, and so for the types that have one a
//! least value. Both products are exact.

use super::BlockType;
use super::codes::{nearest, pack};
use super::small::scale_at;

/// Values of a block.
const VALUES: usize = 256;

/// The codes of a sub-block: of the nearest multiples of `scale` to the sums of each value and `least`. A scale of 0
/// has the code 0.
#[inline(always)]
fn sub_block(values: &[f32], [scale, least]: [f32; 2], [low, high]: [f32; 2], codes: &mut [u8]) {
    if scale == 0.0 {
        codes.fill(0);
        return;
    }
    for (code, value) in codes.iter_mut().zip(values) {
        *code = nearest((value + least) / scale, low, high);
    }
}

/// The scale and the least value of eight sub-blocks, of six bits each.
#[inline(always)]
fn six_bit_pairs(bytes: &[u8; 12]) -> [[u8; 2]; 8] {
    std::array::from_fn(|at| match at {
        0..4 => [bytes[at] & 63, bytes[at + 4] & 63],
        _ => [bytes[at + 4] & 15 | bytes[at - 4] >> 6 << 4, bytes[at + 4] >> 4 | bytes[at] >> 6 << 4],
    })
}

/// The inverse of [`six_bit_pairs`].
#[inline(always)]
fn put_six_bit_pairs([scales, least]: [&[u8; 16]; 2], bytes: &mut [u8]) {
    for at in 0..4 {
        let (scale, own) = (scales[at + 4], least[at + 4]);
        bytes[at] = scales[at] & 63 | scale >> 4 << 6;
        bytes[at + 4] = least[at] & 63 | own >> 4 << 6;
        bytes[at + 8] = scale & 15 | own << 4;
    }
}

/// The sixteen integers of six bits in twelve bytes.
#[inline(always)]
fn six_bit_integers(bytes: &[u8]) -> [u8; 16] {
    std::array::from_fn(|at| {
        let low = if at < 8 { bytes[at] & 15 } else { bytes[at - 8] >> 4 };
        low | (bytes[8 + at % 4] >> (2 * (at / 4)) & 3) << 4
    })
}

/// The integers of a block's scales and least values, as it has them.
#[inline(always)]
pub(super) fn integers(block_type: BlockType, block: &[u8]) -> [[u8; 16]; 2] {
    let mut integers = [[0; 16]; 2];
    match block_type {
        BlockType::Q2K => {
            let scales = first_scales(block);
            integers = [scales.map(|pair| pair & 15), scales.map(|pair| pair >> 4)];
        }
        BlockType::Q3K => integers[0] = six_bit_integers(&block[96..108]),
        BlockType::Q6K => integers[0].copy_from_slice(&block[192..208]),
        _ => {
            let mut bytes = [0; 12];
            bytes.copy_from_slice(&block[4..16]);
            for (at, [scale, least]) in six_bit_pairs(&bytes).into_iter().enumerate() {
                (integers[0][at], integers[1][at]) = (scale, least);
            }
        }
    }
    integers
}

/// Puts integers into a block, the inverse of [`integers`]. Bits above those of the block are dropped.
#[inline(always)]
pub(super) fn put_integers(block_type: BlockType, [scales, least]: &[[u8; 16]; 2], block: &mut [u8]) {
    match block_type {
        BlockType::Q2K => {
            for (byte, (scale, least)) in block.iter_mut().zip(scales.iter().zip(least)) {
                *byte = scale & 15 | least << 4;
            }
        }
        BlockType::Q3K => {
            for at in 0..8 {
                block[96 + at] = scales[at] & 15 | scales[at + 8] << 4;
            }
            for at in 0..4 {
                let high = |part: usize| (scales[at + 4 * part] >> 4 & 3) << (2 * part);
                block[104 + at] = high(0) | high(1) | high(2) | high(3);
            }
        }
        BlockType::Q6K => block[192..208].copy_from_slice(scales),
        _ => put_six_bit_pairs([scales, least], &mut block[4..16]),
    }
}

/// The codes of a type with sub-blocks of 32 values and pairs of six bits.
#[inline(always)]
fn paired(values: &[f32; VALUES], scales: &[u8; 16], high: f32) -> [u8; VALUES] {
    let mut codes = [0; VALUES];
    let (d, least) = (scale_at(scales, 0), scale_at(scales, 2));
    let mut pairs = [0; 12];
    pairs.copy_from_slice(&scales[4..]);
    let parts = values.as_chunks::<32>().0.iter().zip(codes.as_chunks_mut::<32>().0);
    for ((values, codes), pair) in parts.zip(six_bit_pairs(&pairs)) {
        sub_block(values, [d * f32::from(pair[0]), least * f32::from(pair[1])], [0.0, high], codes);
    }
    codes
}

#[inline(always)]
fn first_scales(block: &[u8]) -> [u8; 16] {
    std::array::from_fn(|at| block[at])
}

#[inline(always)]
pub(super) fn q4_k(values: &[f32; VALUES], block: &mut [u8; 144]) {
    let codes = paired(values, &first_scales(block), 15.0);
    pack(&codes, 4, 32, &mut block[16..]);
}

#[inline(always)]
pub(super) fn q5_k(values: &[f32; VALUES], block: &mut [u8; 176]) {
    let codes = paired(values, &first_scales(block), 31.0);
    pack(&codes.map(|code| code >> 4), 1, 32, &mut block[16..48]);
    pack(&codes, 4, 32, &mut block[48..]);
}

#[inline(always)]
pub(super) fn q2_k(values: &[f32; VALUES], block: &mut [u8; 84]) {
    let mut codes = [0; VALUES];
    let (d, least) = (scale_at(block, 80), scale_at(block, 82));
    let parts = values.as_chunks::<16>().0.iter().zip(codes.as_chunks_mut::<16>().0);
    for ((values, codes), scales) in parts.zip(first_scales(block)) {
        sub_block(values, [d * f32::from(scales & 15), least * f32::from(scales >> 4)], [0.0, 3.0], codes);
    }
    pack(&codes, 2, 32, &mut block[16..80]);
}

#[inline(always)]
pub(super) fn q3_k(values: &[f32; VALUES], block: &mut [u8; 110]) {
    let mut codes = [0; VALUES];
    let d = scale_at(block, 108);
    let scales = six_bit_integers(&block[96..108]).map(|integer| integer as i8 - 32);
    let parts = values.as_chunks::<16>().0.iter().zip(codes.as_chunks_mut::<16>().0);
    for ((values, codes), scale) in parts.zip(scales) {
        sub_block(values, [d * f32::from(scale), 0.0], [-4.0, 3.0], codes);
    }
    pack(&codes.map(|code| code >> 2), 1, 32, &mut block[..32]);
    pack(&codes, 2, 32, &mut block[32..96]);
}

#[inline(always)]
pub(super) fn q6_k(values: &[f32; VALUES], block: &mut [u8; 210]) {
    let mut codes = [0; VALUES];
    let d = scale_at(block, 208);
    let scales: [i8; 16] = std::array::from_fn(|at| block[192 + at] as i8);
    let parts = values.as_chunks::<16>().0.iter().zip(codes.as_chunks_mut::<16>().0);
    for ((values, codes), scale) in parts.zip(scales) {
        sub_block(values, [d * f32::from(scale), 0.0], [-32.0, 31.0], codes);
    }
    pack(&codes, 4, 64, &mut block[..128]);
    pack(&codes.map(|code| code >> 4), 2, 32, &mut block[128..192]);
}
