//! Parted words: byte planes written straight to where they stay, some behind a mark in a buffer, the others elsewhere.
//!
//! With AVX2, 32 words at a time: words are turned, their bytes sorted by position, and each plane's written as one
//! vector; the buffer is not filled with anything before. Words of 2 and 4 bytes are all there are.

#[cfg(target_arch = "x86_64")]
use super::cpu_features::CpuFeatures;

/// The lowest planes, which are appended to the output.
#[derive(Debug, Clone, Copy)]
pub struct StoredPlanes {
    /// Number of these planes.
    pub count: usize,
    /// The byte in front of each.
    pub mark: u8,
}

/// Splits the words of `width` bytes of `raw`, turned left by a bit before where `rotated` says so, into planes: appends
/// the lowest ones, as many as the first of `stored` says, to `out`, the second of `stored` in front of each; the
/// others it stores in `rest` one after the other, as [`super::planes::deinterleave_rotated`] does.
///
/// False where nothing was done: for want of AVX2, or of words, for another width than 2 and 4, where no plane is to be
/// stored, or all of them, and where `rest` is not exactly as long as the others.
pub fn append(
    raw: &[u8],
    width: usize,
    rotated: bool,
    stored: StoredPlanes,
    out: &mut Vec<u8>,
    rest: &mut [u8],
) -> bool {
    let words = raw.len().checked_div(width).unwrap_or(0);
    let is_fit = matches!(width, 2 | 4) && words > 0 && (1..width).contains(&stored.count);
    if !is_fit || rest.len() != words * (width - stored.count) {
        return false;
    }
    append_vectors(raw, width, rotated, stored, out, rest)
}

#[cfg(not(target_arch = "x86_64"))]
fn append_vectors(_: &[u8], _: usize, _: bool, _: StoredPlanes, _: &mut Vec<u8>, _: &mut [u8]) -> bool {
    false
}

#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "calls of functions for a processor that has been asked, which fill what is appended")]
fn append_vectors(
    raw: &[u8],
    width: usize,
    rotated: bool,
    StoredPlanes { count: stored, mark }: StoredPlanes,
    out: &mut Vec<u8>,
    rest: &mut [u8],
) -> bool {
    if CpuFeatures::used() < CpuFeatures::Avx2 {
        return false;
    }
    let words = raw.len() / width;
    out.reserve(stored * (words + 1));
    let mut planes: [&mut avx2::Room; 4] = Default::default();
    let (own, others) = planes.split_at_mut(stored);
    for (plane, run) in own.iter_mut().zip(out.spare_capacity_mut().chunks_exact_mut(words + 1)) {
        if let Some((first, run)) = run.split_first_mut() {
            first.write(mark);
            *plane = run;
        }
    }
    for (plane, run) in others.iter_mut().zip(rest.chunks_exact_mut(words)) {
        // SAFETY: what may be uninitialised has the same layout, and only bytes are written to it.
        *plane = unsafe { &mut *(std::ptr::from_mut(run) as *mut avx2::Room) };
    }
    let [a, b, c, d] = planes;
    // SAFETY: the processor has AVX2.
    unsafe {
        match (width, rotated) {
            (2, false) => avx2::pairs::<false>(raw, [a, b]),
            (2, true) => avx2::pairs::<true>(raw, [a, b]),
            (_, false) => avx2::fours::<false>(raw, [a, b, c, d]),
            (_, true) => avx2::fours::<true>(raw, [a, b, c, d]),
        }
    }
    // SAFETY: room was reserved, and the marks and as many planes of `words` bytes have been written to all of it.
    unsafe { out.set_len(out.len() + stored * (words + 1)) };
    true
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    //! Vectors of 32 bytes of each plane, and what is left word by word.

    use std::arch::x86_64::*;
    use std::mem::MaybeUninit;

    pub(super) use crate::kernel::avx2::Room;
    use crate::kernel::avx2::{VECTOR_BYTES as WORDS, load, store};

    /// Words of two bytes. All planes are as long as there are words.
    #[target_feature(enable = "avx2")]
    pub(super) fn pairs<const ROTATED: bool>(raw: &[u8], planes: [&mut Room; 2]) {
        let [(low, low_rest), (high, high_rest)] = planes.map(|plane| plane.as_chunks_mut::<WORDS>());
        let (blocks, rest) = raw.as_chunks::<{ 2 * WORDS }>();
        for ((block, low), high) in blocks.iter().zip(low).zip(high) {
            let rotated = |half: usize| {
                let words = load(&block.as_chunks().0[half]);
                if !ROTATED {
                    return words;
                }
                _mm256_or_si256(_mm256_slli_epi16::<1>(words), _mm256_srli_epi16::<15>(words))
            };
            let (a, b) = (rotated(0), rotated(1));
            let below = _mm256_set1_epi16(0xff);
            let lows = _mm256_packus_epi16(_mm256_and_si256(a, below), _mm256_and_si256(b, below));
            let highs = _mm256_packus_epi16(_mm256_srli_epi16::<8>(a), _mm256_srli_epi16::<8>(b));
            store(low, _mm256_permute4x64_epi64::<0b11_01_10_00>(lows));
            store(high, _mm256_permute4x64_epi64::<0b11_01_10_00>(highs));
        }
        for ((word, low), high) in rest.as_chunks().0.iter().zip(low_rest).zip(high_rest) {
            let word = u16::from_le_bytes(*word).rotate_left(u32::from(ROTATED));
            [*low, *high] = word.to_le_bytes().map(MaybeUninit::new);
        }
    }

    /// Words of four bytes, likewise.
    #[target_feature(enable = "avx2")]
    pub(super) fn fours<const ROTATED: bool>(raw: &[u8], planes: [&mut Room; 4]) {
        let [(a, a_rest), (b, b_rest), (c, c_rest), (d, d_rest)] = planes.map(|plane| plane.as_chunks_mut::<WORDS>());
        let (blocks, rest) = raw.as_chunks::<{ 4 * WORDS }>();
        let by_place = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
        // Fours of words from both halves of each of four vectors, as they lie after interleaving.
        let in_order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        for ((((block, a), b), c), d) in blocks.iter().zip(a).zip(b).zip(c).zip(d) {
            let sorted = |quarter: usize| {
                let words = load(&block.as_chunks().0[quarter]);
                if !ROTATED {
                    return _mm256_shuffle_epi8(words, by_place);
                }
                let rotated = _mm256_or_si256(_mm256_slli_epi32::<1>(words), _mm256_srli_epi32::<31>(words));
                _mm256_shuffle_epi8(rotated, by_place)
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
        for ((((word, a), b), c), d) in rest {
            let word = u32::from_le_bytes(*word).rotate_left(u32::from(ROTATED));
            [*a, *b, *c, *d] = word.to_le_bytes().map(MaybeUninit::new);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::planes::deinterleave_rotated;

    #[test]
    fn every_length_agrees_with_the_twin() {
        for (width, words) in [2, 4].into_iter().flat_map(|width| (1..100).map(move |words| (width, words))) {
            let raw: Vec<u8> =
                (0..(width * words) as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
            for (rotated, stored) in [false, true].into_iter().flat_map(|t| (1..width).map(move |stored| (t, stored))) {
                let mut scalar = vec![0; raw.len()];
                deinterleave_rotated(&raw, width, rotated, &mut scalar);
                let (mut out, mut rest) = (b"before".to_vec(), vec![0; (width - stored) * words]);
                if !append(&raw, width, rotated, StoredPlanes { count: stored, mark: 9 }, &mut out, &mut rest) {
                    assert_eq!(out, b"before");
                    continue;
                }
                assert_eq!(rest, scalar[stored * words..], "{width} bytes, {words} words, turned: {rotated}");
                assert_eq!(out.len(), 6 + stored * (words + 1));
                for (own, scalar) in out[6..].chunks(words + 1).zip(scalar.chunks(words)) {
                    assert_eq!((own[0], &own[1..]), (9, scalar), "{width} bytes, {words} words, turned: {rotated}");
                }
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_left_alone() {
        let (mut out, mut rest) = (Vec::new(), [7; 64]);
        for (width, stored, len) in [(1, 1, 0), (2, 0, 64), (2, 2, 0), (4, 2, 31), (8, 2, 48), (0, 1, 0)] {
            let stored = StoredPlanes { count: stored, mark: 0 };
            assert!(!append(&[1; 64], width, true, stored, &mut out, &mut rest[..len]));
        }
        assert!(!append(&[], 2, true, StoredPlanes { count: 1, mark: 0 }, &mut out, &mut []));
        assert!(out.is_empty() && rest == [7; 64]);
    }
}
