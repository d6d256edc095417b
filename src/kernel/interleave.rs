//! Joined planes: words appended to a buffer, from the bytes of each position, in one pass.
//!
//! 1. With AVX2, 32 words at a time: bytes of neighbouring planes are interleaved until words are whole, in vectors,
//!    turned back, and written where the buffer has room, which is not filled with anything before.
//! 2. What is left, and everything on other processors and for words of 1 and 8 bytes, is joined in a place that stays
//!    in the cache and appended.

#[cfg(target_arch = "x86_64")]
use super::cpu_features::CpuFeatures;
use super::planes::interleave_rotated;

/// Bytes of words that are joined at a time.
const JOINED_BYTES: usize = 2 << 10;
/// Planes of the widest word.
const PLANES_MAX: usize = 8;

/// Appends to `out` the words of which these are the planes (1, 2, 4 or 8, all of one length, else nothing is done), of
/// each word its lowest byte's plane first; words that were `rotated` left by a bit before are turned back.
pub fn append(planes: &[&[u8]], rotated: bool, out: &mut Vec<u8>) {
    let words = planes.first().map_or(0, |plane| plane.len());
    if !matches!(planes.len(), 1 | 2 | 4 | 8) || planes.iter().any(|plane| plane.len() != words) {
        return;
    }
    out.reserve(words * planes.len());
    let done = append_vectors(planes, rotated, out);
    let at_once = JOINED_BYTES / planes.len();
    let mut joined = [0; JOINED_BYTES];
    for from in (done..words).step_by(at_once) {
        let to = words.min(from + at_once);
        let mut runs: [&[u8]; PLANES_MAX] = [&[]; PLANES_MAX];
        runs.iter_mut().zip(planes).for_each(|(run, plane)| *run = &plane[from..to]);
        let space = &mut joined[..(to - from) * planes.len()];
        interleave_rotated(&runs[..planes.len()], rotated, space);
        out.extend_from_slice(space);
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn append_vectors(_: &[&[u8]], _: bool, _: &mut Vec<u8>) -> usize {
    0
}

/// Appends whole vectors of words, where there is room for all; gives how many.
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "calls of functions for a processor that has been asked, which fill what is appended")]
fn append_vectors(planes: &[&[u8]], rotated: bool, out: &mut Vec<u8>) -> usize {
    let words = planes.first().map_or(0, |plane| plane.len()) / avx2::WORDS * avx2::WORDS;
    let room = out.spare_capacity_mut().get_mut(..words * planes.len());
    let Some(room) = room.filter(|_| CpuFeatures::used() >= CpuFeatures::Avx2) else { return 0 };
    // SAFETY: the processor has AVX2.
    unsafe {
        match (planes, rotated) {
            ([low, high], false) => avx2::pairs::<false>([low, high], room),
            ([low, high], true) => avx2::pairs::<true>([low, high], room),
            ([a, b, c, d], false) => avx2::fours::<false>([a, b, c, d], room),
            ([a, b, c, d], true) => avx2::fours::<true>([a, b, c, d], room),
            _ => return 0,
        }
    }
    // SAFETY: there is room for as many bytes, and all of them have been written.
    unsafe { out.set_len(out.len() + words * planes.len()) };
    words
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    //! Vectors of 32 bytes of each plane.

    use std::arch::x86_64::*;

    pub(super) use crate::kernel::avx2::VECTOR_BYTES as WORDS;
    use crate::kernel::avx2::{Room, load, store};

    /// Words of two bytes.
    #[target_feature(enable = "avx2")]
    pub(super) fn pairs<const ROTATED: bool>(planes: [&[u8]; 2], room: &mut Room) {
        let [low, high] = planes.map(|plane| plane.as_chunks::<WORDS>().0);
        let vectors = room.as_chunks_mut::<WORDS>().0.as_chunks_mut::<2>().0;
        for (([first, last], low), high) in vectors.iter_mut().zip(low).zip(high) {
            let (low, high) = (load(low), load(high));
            let back = |words| {
                if !ROTATED {
                    return words;
                }
                _mm256_or_si256(_mm256_srli_epi16::<1>(words), _mm256_slli_epi16::<15>(words))
            };
            let (a, b) = (back(_mm256_unpacklo_epi8(low, high)), back(_mm256_unpackhi_epi8(low, high)));
            store(first, _mm256_permute2x128_si256::<0x20>(a, b));
            store(last, _mm256_permute2x128_si256::<0x31>(a, b));
        }
    }

    /// Words of four bytes.
    #[target_feature(enable = "avx2")]
    pub(super) fn fours<const ROTATED: bool>(planes: [&[u8]; 4], room: &mut Room) {
        let [a, b, c, d] = planes.map(|plane| plane.as_chunks::<WORDS>().0);
        let vectors = room.as_chunks_mut::<WORDS>().0.as_chunks_mut::<4>().0;
        for ((((vectors, a), b), c), d) in vectors.iter_mut().zip(a).zip(b).zip(c).zip(d) {
            let (a, b, c, d) = (load(a), load(b), load(c), load(d));
            let back = |words| {
                if !ROTATED {
                    return words;
                }
                _mm256_or_si256(_mm256_srli_epi32::<1>(words), _mm256_slli_epi32::<31>(words))
            };
            let (low, low_more) = (_mm256_unpacklo_epi8(a, b), _mm256_unpackhi_epi8(a, b));
            let (high, high_more) = (_mm256_unpacklo_epi8(c, d), _mm256_unpackhi_epi8(c, d));
            // Words 0-3 and 16-19, 4-7 and 20-23, and so on.
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
    fn every_length_agrees_with_the_twin() {
        for (count, words) in [1, 2, 4, 8, 3].into_iter().flat_map(|count| (0..100).map(move |words| (count, words))) {
            let bytes: Vec<u8> =
                (0..(count * words) as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
            let planes: Vec<&[u8]> = bytes.chunks(words.max(1)).collect();
            for rotated in [false, true] {
                let (mut own, mut scalar) = (b"before".to_vec(), vec![0; bytes.len()]);
                append(&planes, rotated, &mut own);
                interleave_rotated(&planes, rotated, &mut scalar);
                let scalar = if count == 3 { &[][..] } else { &scalar };
                assert_eq!(
                    (&own[..6], &own[6..]),
                    (&b"before"[..], scalar),
                    "{count} planes of {words}, turned: {rotated}"
                );
            }
        }
    }

    #[test]
    fn planes_of_other_lengths_are_left_alone() {
        let mut out = Vec::new();
        append(&[&[1; 64], &[2; 63]], true, &mut out);
        append(&[], true, &mut out);
        assert!(out.is_empty());
    }
}
