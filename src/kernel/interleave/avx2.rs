//! One vector of 32 bytes per plane.
#![cfg(target_arch = "x86_64")]

use std::arch::x86_64::*;

use crate::kernel::avx2::{VECTOR_BYTES as ELEMENTS, load, store};
use crate::kernel::planes::UninitBytes;

/// Elements of two bytes, whole vectors of them; returns their number.
#[target_feature(enable = "avx2")]
pub(super) fn pairs(planes: [&[u8]; 2], rotated: bool, out: &mut UninitBytes) -> usize {
    let elements = planes[0].len() / ELEMENTS * ELEMENTS;
    if rotated {
        join_pairs::<true>(planes, out)
    } else {
        join_pairs::<false>(planes, out)
    }
    elements
}

#[target_feature(enable = "avx2")]
fn join_pairs<const ROTATED: bool>(planes: [&[u8]; 2], out: &mut UninitBytes) {
    let [low, high] = planes.map(|plane| plane.as_chunks::<ELEMENTS>().0);
    let vectors = out.as_chunks_mut::<ELEMENTS>().0.as_chunks_mut::<2>().0;
    for (([first, last], low), high) in vectors.iter_mut().zip(low).zip(high) {
        let (low, high) = (load(low), load(high));
        let back = |elements| {
            if !ROTATED {
                return elements;
            }
            _mm256_or_si256(_mm256_srli_epi16::<1>(elements), _mm256_slli_epi16::<15>(elements))
        };
        let (a, b) = (back(_mm256_unpacklo_epi8(low, high)), back(_mm256_unpackhi_epi8(low, high)));
        store(first, _mm256_permute2x128_si256::<0x20>(a, b));
        store(last, _mm256_permute2x128_si256::<0x31>(a, b));
    }
}

/// Elements of four bytes, whole vectors of them; returns their number.
#[target_feature(enable = "avx2")]
pub(super) fn fours(planes: [&[u8]; 4], rotated: bool, out: &mut UninitBytes) -> usize {
    let elements = planes[0].len() / ELEMENTS * ELEMENTS;
    if rotated {
        join_fours::<true>(planes, out)
    } else {
        join_fours::<false>(planes, out)
    }
    elements
}

#[target_feature(enable = "avx2")]
fn join_fours<const ROTATED: bool>(planes: [&[u8]; 4], out: &mut UninitBytes) {
    let [a, b, c, d] = planes.map(|plane| plane.as_chunks::<ELEMENTS>().0);
    let vectors = out.as_chunks_mut::<ELEMENTS>().0.as_chunks_mut::<4>().0;
    for ((((vectors, a), b), c), d) in vectors.iter_mut().zip(a).zip(b).zip(c).zip(d) {
        let (a, b, c, d) = (load(a), load(b), load(c), load(d));
        let back = |elements| {
            if !ROTATED {
                return elements;
            }
            _mm256_or_si256(_mm256_srli_epi32::<1>(elements), _mm256_slli_epi32::<31>(elements))
        };
        let (low, low_more) = (_mm256_unpacklo_epi8(a, b), _mm256_unpackhi_epi8(a, b));
        let (high, high_more) = (_mm256_unpacklo_epi8(c, d), _mm256_unpackhi_epi8(c, d));
        // Elements 0-3 and 16-19, 4-7 and 20-23, and so on.
        let p = back(_mm256_unpacklo_epi16(low, high));
        let q = back(_mm256_unpackhi_epi16(low, high));
        let r = back(_mm256_unpacklo_epi16(low_more, high_more));
        let s = back(_mm256_unpackhi_epi16(low_more, high_more));
        store(&mut vectors[0], _mm256_permute2x128_si256::<0x20>(p, q));
        store(&mut vectors[1], _mm256_permute2x128_si256::<0x20>(r, s));
        store(&mut vectors[2], _mm256_permute2x128_si256::<0x31>(p, q));
        store(&mut vectors[3], _mm256_permute2x128_si256::<0x31>(r, s));
    }
}
