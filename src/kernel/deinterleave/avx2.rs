//! One vector of 32 bytes per plane; the last elements one by one.
#![cfg(target_arch = "x86_64")]

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use crate::kernel::avx2::{VECTOR_BYTES as ELEMENTS, load, store};
use crate::kernel::planes::UninitBytes;

/// Elements of two bytes. Every plane has one byte per element. Always true: the planes are filled.
#[target_feature(enable = "avx2")]
pub(super) fn pairs(raw: &[u8], rotated: bool, planes: [&mut UninitBytes; 2]) -> bool {
    if rotated {
        split_pairs::<true>(raw, planes)
    } else {
        split_pairs::<false>(raw, planes)
    }
    true
}

#[target_feature(enable = "avx2")]
fn split_pairs<const ROTATED: bool>(raw: &[u8], planes: [&mut UninitBytes; 2]) {
    let [(low, low_rest), (high, high_rest)] = planes.map(|plane| plane.as_chunks_mut::<ELEMENTS>());
    let (blocks, rest) = raw.as_chunks::<{ 2 * ELEMENTS }>();
    for ((block, low), high) in blocks.iter().zip(low).zip(high) {
        let rotated = |half: usize| {
            let elements = load(&block.as_chunks().0[half]);
            if !ROTATED {
                return elements;
            }
            _mm256_or_si256(_mm256_slli_epi16::<1>(elements), _mm256_srli_epi16::<15>(elements))
        };
        let (a, b) = (rotated(0), rotated(1));
        let below = _mm256_set1_epi16(0xff);
        let lows = _mm256_packus_epi16(_mm256_and_si256(a, below), _mm256_and_si256(b, below));
        let highs = _mm256_packus_epi16(_mm256_srli_epi16::<8>(a), _mm256_srli_epi16::<8>(b));
        store(low, _mm256_permute4x64_epi64::<0b11_01_10_00>(lows));
        store(high, _mm256_permute4x64_epi64::<0b11_01_10_00>(highs));
    }
    for ((element, low), high) in rest.as_chunks().0.iter().zip(low_rest).zip(high_rest) {
        let element = u16::from_le_bytes(*element).rotate_left(u32::from(ROTATED));
        [*low, *high] = element.to_le_bytes().map(MaybeUninit::new);
    }
}

/// Elements of four bytes. Every plane has one byte per element. Always true: the planes are filled.
#[target_feature(enable = "avx2")]
pub(super) fn fours(raw: &[u8], rotated: bool, planes: [&mut UninitBytes; 4]) -> bool {
    if rotated {
        split_fours::<true>(raw, planes)
    } else {
        split_fours::<false>(raw, planes)
    }
    true
}

#[target_feature(enable = "avx2")]
fn split_fours<const ROTATED: bool>(raw: &[u8], planes: [&mut UninitBytes; 4]) {
    let [(a, a_rest), (b, b_rest), (c, c_rest), (d, d_rest)] = planes.map(|plane| plane.as_chunks_mut::<ELEMENTS>());
    let (blocks, rest) = raw.as_chunks::<{ 4 * ELEMENTS }>();
    let by_plane = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    // After interleaving, groups of four elements alternate between the halves of the four vectors.
    let in_order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    for ((((block, a), b), c), d) in blocks.iter().zip(a).zip(b).zip(c).zip(d) {
        let sorted = |quarter: usize| {
            let elements = load(&block.as_chunks().0[quarter]);
            if !ROTATED {
                return _mm256_shuffle_epi8(elements, by_plane);
            }
            let rotated = _mm256_or_si256(_mm256_slli_epi32::<1>(elements), _mm256_srli_epi32::<31>(elements));
            _mm256_shuffle_epi8(rotated, by_plane)
        };
        let (p, q, r, s) = (sorted(0), sorted(1), sorted(2), sorted(3));
        let (pq, rs) = (_mm256_unpacklo_epi32(p, q), _mm256_unpacklo_epi32(r, s));
        store(a, _mm256_permutevar8x32_epi32(_mm256_unpacklo_epi64(pq, rs), in_order));
        store(b, _mm256_permutevar8x32_epi32(_mm256_unpackhi_epi64(pq, rs), in_order));
        let (pq, rs) = (_mm256_unpackhi_epi32(p, q), _mm256_unpackhi_epi32(r, s));
        store(c, _mm256_permutevar8x32_epi32(_mm256_unpacklo_epi64(pq, rs), in_order));
        store(d, _mm256_permutevar8x32_epi32(_mm256_unpackhi_epi64(pq, rs), in_order));
    }
    let rest = rest.as_chunks().0.iter().zip(a_rest).zip(b_rest).zip(c_rest).zip(d_rest);
    for ((((element, a), b), c), d) in rest {
        let element = u32::from_le_bytes(*element).rotate_left(u32::from(ROTATED));
        [*a, *b, *c, *d] = element.to_le_bytes().map(MaybeUninit::new);
    }
}
