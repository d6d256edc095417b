//! Sixteen matrices at a time, a vector for each row. Rounds of swaps transpose all of them.
#![cfg(target_arch = "aarch64")]
#![expect(unsafe_code, reason = "loads and stores of vectors")]

use std::arch::aarch64::*;

use super::transpose;
use crate::kernel::deinterleave::neon::sorted_eights;
use crate::kernel::planes::planes_mut;

/// Matrices of a vector.
const WIDTH: usize = 16;
/// Rows of a matrix, and its bits.
const ROWS: usize = 8;

/// Transposes the matrices whose row `r` is in vector `r`.
#[target_feature(enable = "neon")]
#[inline]
fn transposed(mut rows: [uint8x16_t; ROWS]) -> [uint8x16_t; ROWS] {
    for first in [0, 1, 2, 3] {
        let (a, b) = (rows[first], rows[first + 4]);
        (rows[first], rows[first + 4]) = (vsliq_n_u8::<4>(a, b), vsriq_n_u8::<4>(b, a));
    }
    let pairs = vdupq_n_u8(0x33);
    for first in [0, 1, 4, 5] {
        let (a, b) = (rows[first], rows[first + 2]);
        rows[first] = vbslq_u8(pairs, a, vshlq_n_u8::<2>(b));
        rows[first + 2] = vbslq_u8(pairs, vshrq_n_u8::<2>(a), b);
    }
    let bits = vdupq_n_u8(0x55);
    for first in [0, 2, 4, 6] {
        let (a, b) = (rows[first], rows[first + 1]);
        rows[first] = vbslq_u8(bits, a, vshlq_n_u8::<1>(b));
        rows[first + 1] = vbslq_u8(bits, vshrq_n_u8::<1>(a), b);
    }
    rows
}

/// Like [`super::deinterleave_matrices`].
#[target_feature(enable = "neon")]
pub(super) fn deinterleave(bytes: &[u8], planes: &mut [u8]) {
    if bytes.is_empty() || !bytes.len().is_multiple_of(ROWS) || planes.len() != bytes.len() {
        return;
    }
    let (blocks, rest) = bytes.as_chunks::<{ ROWS * WIDTH }>();
    let mut planes: [&mut [u8]; ROWS] = planes_mut(planes, bytes.len() / ROWS);
    for (number, block) in blocks.iter().enumerate() {
        for (plane, row) in planes.iter_mut().zip(transposed(sorted_eights(block))) {
            if let Some(out) = plane.as_chunks_mut::<WIDTH>().0.get_mut(number) {
                // SAFETY: the array is as long as the vector; the store needs no alignment.
                unsafe { vst1q_u8(out.as_mut_ptr(), row) }
            }
        }
    }
    for (at, matrix) in (blocks.len() * WIDTH..).zip(rest.as_chunks::<ROWS>().0) {
        let rows = transpose(u64::from_le_bytes(*matrix)).to_le_bytes();
        planes.iter_mut().zip(rows).for_each(|(plane, row)| plane[at] = row);
    }
}

/// Like [`super::interleave_matrices`].
#[target_feature(enable = "neon")]
pub(super) fn interleave(planes: &[u8], bytes: &mut [u8]) {
    if bytes.is_empty() || !bytes.len().is_multiple_of(ROWS) || planes.len() != bytes.len() {
        return;
    }
    let plane_len = bytes.len() / ROWS;
    let (blocks, rest) = bytes.as_chunks_mut::<{ ROWS * WIDTH }>();
    let done = blocks.len() * WIDTH;
    for (number, block) in blocks.iter_mut().enumerate() {
        let rows = transposed(std::array::from_fn(|row| {
            let own = &planes[row * plane_len + number * WIDTH..][..WIDTH];
            // SAFETY: the slice is as long as the vector; the load needs no alignment.
            unsafe { vld1q_u8(own.as_ptr()) }
        }));
        let low: [uint8x16_t; 4] = std::array::from_fn(|row| vzip1q_u8(rows[row], rows[row + 4]));
        let high: [uint8x16_t; 4] = std::array::from_fn(|row| vzip2q_u8(rows[row], rows[row + 4]));
        for (half, [a, b, c, d]) in [low, high].into_iter().enumerate() {
            // SAFETY: the half is as long as the four vectors; the store needs no alignment.
            unsafe { vst4q_u8(block.as_mut_ptr().add(half * ROWS * WIDTH / 2), uint8x16x4_t(a, b, c, d)) }
        }
    }
    for (at, matrix) in (done..).zip(rest.as_chunks_mut::<ROWS>().0) {
        let rows = std::array::from_fn(|row| planes[row * plane_len + at]);
        *matrix = transpose(u64::from_le_bytes(rows)).to_le_bytes();
    }
}
