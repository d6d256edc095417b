//! One vector of 16 bytes per plane. A store interleaves the vectors.
#![cfg(target_arch = "aarch64")]
#![expect(unsafe_code, reason = "loads and stores of vectors")]

use std::arch::aarch64::*;

use crate::kernel::planes::UninitBytes;

/// Elements of a vector.
const ELEMENTS: usize = 16;

#[inline]
fn load(bytes: &[u8; ELEMENTS]) -> uint8x16_t {
    // SAFETY: the array is as long as the vector; the load needs no alignment.
    unsafe { vld1q_u8(bytes.as_ptr()) }
}

/// Each byte with the bit of the byte above it, rotated right.
#[target_feature(enable = "neon")]
#[inline]
fn rotated_right(byte: uint8x16_t, above: uint8x16_t) -> uint8x16_t {
    vsriq_n_u8::<1>(vshlq_n_u8::<7>(above), byte)
}

/// Elements of two bytes, whole vectors of them; returns their number.
#[target_feature(enable = "neon")]
pub(super) fn pairs(planes: [&[u8]; 2], rotated: bool, out: &mut UninitBytes) -> usize {
    let [low, high] = planes.map(|plane| plane.as_chunks::<ELEMENTS>().0);
    for ((vectors, low), high) in out.as_chunks_mut::<{ 2 * ELEMENTS }>().0.iter_mut().zip(low).zip(high) {
        let (a, b) = (load(low), load(high));
        let both = if rotated { uint8x16x2_t(rotated_right(a, b), rotated_right(b, a)) } else { uint8x16x2_t(a, b) };
        // SAFETY: the array is as long as the two vectors; the store needs no alignment.
        unsafe { vst2q_u8(vectors.as_mut_ptr().cast(), both) }
    }
    low.len() * ELEMENTS
}

/// Elements of four bytes, whole vectors of them; returns their number.
#[target_feature(enable = "neon")]
pub(super) fn fours(planes: [&[u8]; 4], rotated: bool, out: &mut UninitBytes) -> usize {
    let [a, b, c, d] = planes.map(|plane| plane.as_chunks::<ELEMENTS>().0);
    let vectors = out.as_chunks_mut::<{ 4 * ELEMENTS }>().0.iter_mut();
    for ((((vectors, a), b), c), d) in vectors.zip(a).zip(b).zip(c).zip(d) {
        let (p, q, r, s) = (load(a), load(b), load(c), load(d));
        let all = if rotated {
            uint8x16x4_t(rotated_right(p, q), rotated_right(q, r), rotated_right(r, s), rotated_right(s, p))
        } else {
            uint8x16x4_t(p, q, r, s)
        };
        // SAFETY: the array is as long as the four vectors; the store needs no alignment.
        unsafe { vst4q_u8(vectors.as_mut_ptr().cast(), all) }
    }
    a.len() * ELEMENTS
}
