//! Interleaving planes: elements are appended to a buffer in one pass.
//!
//! 1. With AVX2, 32 elements of 2 or 4 bytes at a time: vectors of adjacent planes are interleaved until elements are
//!    whole, rotated back, and written to the buffer's spare capacity, which is not initialised before.
//! 2. The other elements are interleaved in a small array that stays in the cache, and appended.

#[cfg(target_arch = "x86_64")]
use super::cpu_features::CpuFeatures;
use super::planes::interleave_rotated;

/// Bytes of elements that are interleaved at a time.
const BLOCK_BYTES: usize = 2 << 10;
/// Planes of the widest elements.
const PLANES_MAX: usize = 8;

/// Appends the elements of these planes to `out`, and rotates each element right by 1 bit if `rotated`.
///
/// The plane of the lowest bytes comes first. Does nothing unless there are 1, 2, 4 or 8 planes of equal length.
pub fn append(planes: &[&[u8]], rotated: bool, out: &mut Vec<u8>) {
    let elements = planes.first().map_or(0, |plane| plane.len());
    if !matches!(planes.len(), 1 | 2 | 4 | 8) || planes.iter().any(|plane| plane.len() != elements) {
        return;
    }
    out.reserve(elements * planes.len());
    let done = append_vectors(planes, rotated, out);
    let at_once = BLOCK_BYTES / planes.len();
    let mut block = [0; BLOCK_BYTES];
    for from in (done..elements).step_by(at_once) {
        let to = elements.min(from + at_once);
        let mut parts: [&[u8]; PLANES_MAX] = [&[]; PLANES_MAX];
        parts.iter_mut().zip(planes).for_each(|(part, plane)| *part = &plane[from..to]);
        let space = &mut block[..(to - from) * planes.len()];
        interleave_rotated(&parts[..planes.len()], rotated, space);
        out.extend_from_slice(space);
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn append_vectors(_: &[&[u8]], _: bool, _: &mut Vec<u8>) -> usize {
    0
}

/// Appends whole vectors of elements if the spare capacity is sufficient; returns the number of elements.
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "calls functions for detected CPU features that fill the appended bytes")]
fn append_vectors(planes: &[&[u8]], rotated: bool, out: &mut Vec<u8>) -> usize {
    let elements = planes.first().map_or(0, |plane| plane.len()) / avx2::ELEMENTS * avx2::ELEMENTS;
    let spare = out.spare_capacity_mut().get_mut(..elements * planes.len());
    let Some(spare) = spare.filter(|_| CpuFeatures::used() >= CpuFeatures::Avx2) else { return 0 };
    // SAFETY: the processor has AVX2.
    unsafe {
        match (planes, rotated) {
            ([low, high], false) => avx2::pairs::<false>([low, high], spare),
            ([low, high], true) => avx2::pairs::<true>([low, high], spare),
            ([a, b, c, d], false) => avx2::fours::<false>([a, b, c, d], spare),
            ([a, b, c, d], true) => avx2::fours::<true>([a, b, c, d], spare),
            _ => return 0,
        }
    }
    // SAFETY: the spare capacity has these bytes, and all of them have been written.
    unsafe { out.set_len(out.len() + elements * planes.len()) };
    elements
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    //! One vector of 32 bytes per plane.

    use std::arch::x86_64::*;

    pub(super) use crate::kernel::avx2::VECTOR_BYTES as ELEMENTS;
    use crate::kernel::avx2::{UninitBytes, load, store};

    /// Elements of two bytes.
    #[target_feature(enable = "avx2")]
    pub(super) fn pairs<const ROTATED: bool>(planes: [&[u8]; 2], out: &mut UninitBytes) {
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

    /// Elements of four bytes.
    #[target_feature(enable = "avx2")]
    pub(super) fn fours<const ROTATED: bool>(planes: [&[u8]; 4], out: &mut UninitBytes) {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_agrees_with_the_scalar_reference() {
        for (count, elements) in
            [1, 2, 4, 8, 3].into_iter().flat_map(|count| (0..100).map(move |elements| (count, elements)))
        {
            let bytes: Vec<u8> =
                (0..(count * elements) as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
            let planes: Vec<&[u8]> = bytes.chunks(elements.max(1)).collect();
            for rotated in [false, true] {
                let (mut own, mut scalar) = (b"before".to_vec(), vec![0; bytes.len()]);
                append(&planes, rotated, &mut own);
                interleave_rotated(&planes, rotated, &mut scalar);
                let scalar = if count == 3 { &[][..] } else { &scalar };
                assert_eq!(
                    (&own[..6], &own[6..]),
                    (&b"before"[..], scalar),
                    "{count} planes of {elements}, rotated: {rotated}"
                );
            }
        }
    }

    #[test]
    fn planes_of_different_lengths_are_ignored() {
        let mut out = Vec::new();
        append(&[&[1; 64], &[2; 63]], true, &mut out);
        append(&[], true, &mut out);
        assert!(out.is_empty());
    }
}
