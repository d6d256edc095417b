//! One vector of 16 bytes per plane; the last elements one by one. A load sorts the bytes by plane.
#![cfg(target_arch = "aarch64")]
#![expect(unsafe_code, reason = "loads and stores of vectors")]

use std::arch::aarch64::*;
use std::mem::MaybeUninit;

use crate::kernel::planes::UninitBytes;

/// Elements of a vector.
const ELEMENTS: usize = 16;

#[inline]
fn store(out: &mut [MaybeUninit<u8>; ELEMENTS], vector: uint8x16_t) {
    // SAFETY: the array is as long as the vector; the store needs no alignment.
    unsafe { vst1q_u8(out.as_mut_ptr().cast(), vector) }
}

/// Each byte with the bit of the byte below it, rotated left.
#[target_feature(enable = "neon")]
#[inline]
fn rotated_left(byte: uint8x16_t, below: uint8x16_t) -> uint8x16_t {
    vsliq_n_u8::<1>(vshrq_n_u8::<7>(below), byte)
}

/// Elements of two bytes. Every plane has one byte per element. Always true: the planes are filled.
#[target_feature(enable = "neon")]
pub(in crate::kernel) fn pairs(raw: &[u8], rotated: bool, planes: [&mut UninitBytes; 2]) -> bool {
    let [(low, low_rest), (high, high_rest)] = planes.map(|plane| plane.as_chunks_mut::<ELEMENTS>());
    let (blocks, rest) = raw.as_chunks::<{ 2 * ELEMENTS }>();
    for ((block, low), high) in blocks.iter().zip(low).zip(high) {
        // SAFETY: the array is as long as the two vectors; the load needs no alignment.
        let uint8x16x2_t(a, b) = unsafe { vld2q_u8(block.as_ptr()) };
        store(low, if rotated { rotated_left(a, b) } else { a });
        store(high, if rotated { rotated_left(b, a) } else { b });
    }
    for ((element, low), high) in rest.as_chunks().0.iter().zip(low_rest).zip(high_rest) {
        let element = u16::from_le_bytes(*element).rotate_left(u32::from(rotated));
        [*low, *high] = element.to_le_bytes().map(MaybeUninit::new);
    }
    true
}

/// Elements of four bytes. Every plane has one byte per element. Always true: the planes are filled.
#[target_feature(enable = "neon")]
pub(in crate::kernel) fn fours(raw: &[u8], rotated: bool, planes: [&mut UninitBytes; 4]) -> bool {
    let [(a, a_rest), (b, b_rest), (c, c_rest), (d, d_rest)] = planes.map(|plane| plane.as_chunks_mut::<ELEMENTS>());
    let (blocks, rest) = raw.as_chunks::<{ 4 * ELEMENTS }>();
    for ((((block, a), b), c), d) in blocks.iter().zip(a).zip(b).zip(c).zip(d) {
        // SAFETY: the array is as long as the four vectors; the load needs no alignment.
        let uint8x16x4_t(p, q, r, s) = unsafe { vld4q_u8(block.as_ptr()) };
        store(a, if rotated { rotated_left(p, s) } else { p });
        store(b, if rotated { rotated_left(q, p) } else { q });
        store(c, if rotated { rotated_left(r, q) } else { r });
        store(d, if rotated { rotated_left(s, r) } else { s });
    }
    let rest = rest.as_chunks().0.iter().zip(a_rest).zip(b_rest).zip(c_rest).zip(d_rest);
    for ((((element, a), b), c), d) in rest {
        let element = u32::from_le_bytes(*element).rotate_left(u32::from(rotated));
        [*a, *b, *c, *d] = element.to_le_bytes().map(MaybeUninit::new);
    }
    true
}

/// Elements of eight bytes. Every plane has one byte per element. Always true: the planes are filled.
#[target_feature(enable = "neon")]
pub(in crate::kernel) fn eights(raw: &[u8], rotated: bool, mut planes: [&mut UninitBytes; 8]) -> bool {
    let (blocks, rest) = raw.as_chunks::<{ 8 * ELEMENTS }>();
    for (number, block) in blocks.iter().enumerate() {
        let own = sorted_eights(block);
        for (byte, plane) in planes.iter_mut().enumerate() {
            if let Some(out) = plane.as_chunks_mut().0.get_mut(number) {
                store(out, if rotated { rotated_left(own[byte], own[(byte + 7) % 8]) } else { own[byte] });
            }
        }
    }
    for (at, element) in (blocks.len() * ELEMENTS..).zip(rest.as_chunks().0) {
        let element = u64::from_le_bytes(*element).rotate_left(u32::from(rotated));
        planes.iter_mut().zip(element.to_le_bytes()).for_each(|(plane, byte)| plane[at] = MaybeUninit::new(byte));
    }
    true
}

/// The bytes of elements of eight bytes, sorted by plane.
#[target_feature(enable = "neon")]
#[inline]
pub(in crate::kernel) fn sorted_eights(block: &[u8; 8 * ELEMENTS]) -> [uint8x16_t; 8] {
    let [low, high] = [0, 1].map(|half| {
        // SAFETY: the half is as long as the four vectors; the load needs no alignment.
        let uint8x16x4_t(a, b, c, d) = unsafe { vld4q_u8(block.as_ptr().add(half * 4 * ELEMENTS)) };
        // Each vector has two planes of eight elements.
        [a, b, c, d]
    });
    std::array::from_fn(|byte| {
        let (low, high) = (low[byte % 4], high[byte % 4]);
        if byte < 4 { vuzp1q_u8(low, high) } else { vuzp2q_u8(low, high) }
    })
}
