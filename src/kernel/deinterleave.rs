//! Deinterleaving to final positions: the lowest planes are appended to the output, the others are stored elsewhere.
//!
//! Only for elements of 2 and 4 bytes, and only with AVX2: 32 elements at a time are rotated, their bytes are sorted by
//! plane, and one vector is written to each plane. The output is not initialised before.

#[cfg(target_arch = "x86_64")]
use super::cpu_features::CpuFeatures;

/// The lowest planes, which are appended to the output.
#[derive(Debug, Clone, Copy)]
pub struct StoredPlanes {
    /// Number of these planes.
    pub count: usize,
    /// The byte written in front of each.
    pub mark: u8,
}

/// Deinterleaves the elements of `raw`, of `width` bytes, into planes like [`super::planes::deinterleave_rotated`].
///
/// Appends the `stored` planes to `out`, each after its mark. Writes the other planes to `rest`, one after the other.
///
/// Returns false and does nothing without AVX2, without elements, for a `width` other than 2 and 4, if no planes or all
/// planes are `stored`, or unless `rest` has the length of the other planes.
pub fn append(
    raw: &[u8],
    width: usize,
    rotated: bool,
    stored: StoredPlanes,
    out: &mut Vec<u8>,
    rest: &mut [u8],
) -> bool {
    let elements = raw.len().checked_div(width).unwrap_or(0);
    let is_fit = matches!(width, 2 | 4) && elements > 0 && (1..width).contains(&stored.count);
    if !is_fit || rest.len() != elements * (width - stored.count) {
        return false;
    }
    append_vectors(raw, width, rotated, stored, out, rest)
}

#[cfg(not(target_arch = "x86_64"))]
fn append_vectors(_: &[u8], _: usize, _: bool, _: StoredPlanes, _: &mut Vec<u8>, _: &mut [u8]) -> bool {
    false
}

#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "calls functions for detected CPU features that fill the appended bytes")]
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
    let elements = raw.len() / width;
    out.reserve(stored * (elements + 1));
    let mut planes: [&mut avx2::UninitBytes; 4] = Default::default();
    let (own, others) = planes.split_at_mut(stored);
    for (plane, bytes) in own.iter_mut().zip(out.spare_capacity_mut().chunks_exact_mut(elements + 1)) {
        if let Some((first, bytes)) = bytes.split_first_mut() {
            first.write(mark);
            *plane = bytes;
        }
    }
    for (plane, bytes) in others.iter_mut().zip(rest.chunks_exact_mut(elements)) {
        // SAFETY: bytes that may be uninitialised have the same layout, and only initialised bytes are written to them.
        *plane = unsafe { &mut *(std::ptr::from_mut(bytes) as *mut avx2::UninitBytes) };
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
    // SAFETY: these bytes were reserved, and marks and planes have been written to all of them.
    unsafe { out.set_len(out.len() + stored * (elements + 1)) };
    true
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    //! One vector of 32 bytes per plane; the last elements one by one.

    use std::arch::x86_64::*;
    use std::mem::MaybeUninit;

    pub(super) use crate::kernel::avx2::UninitBytes;
    use crate::kernel::avx2::{VECTOR_BYTES as ELEMENTS, load, store};

    /// Elements of two bytes. Every plane has one byte per element.
    #[target_feature(enable = "avx2")]
    pub(super) fn pairs<const ROTATED: bool>(raw: &[u8], planes: [&mut UninitBytes; 2]) {
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

    /// Elements of four bytes. Every plane has one byte per element.
    #[target_feature(enable = "avx2")]
    pub(super) fn fours<const ROTATED: bool>(raw: &[u8], planes: [&mut UninitBytes; 4]) {
        let [(a, a_rest), (b, b_rest), (c, c_rest), (d, d_rest)] =
            planes.map(|plane| plane.as_chunks_mut::<ELEMENTS>());
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::planes::deinterleave_rotated;

    #[test]
    fn every_length_agrees_with_the_scalar_reference() {
        for (width, elements) in [2, 4].into_iter().flat_map(|width| (1..100).map(move |elements| (width, elements))) {
            let raw: Vec<u8> =
                (0..(width * elements) as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
            for (rotated, stored) in [false, true].into_iter().flat_map(|t| (1..width).map(move |stored| (t, stored))) {
                let mut scalar = vec![0; raw.len()];
                deinterleave_rotated(&raw, width, rotated, &mut scalar);
                let (mut out, mut rest) = (b"before".to_vec(), vec![0; (width - stored) * elements]);
                if !append(&raw, width, rotated, StoredPlanes { count: stored, mark: 9 }, &mut out, &mut rest) {
                    assert_eq!(out, b"before");
                    continue;
                }
                assert_eq!(rest, scalar[stored * elements..], "{width} bytes, {elements} elements, rotated: {rotated}");
                assert_eq!(out.len(), 6 + stored * (elements + 1));
                for (own, scalar) in out[6..].chunks(elements + 1).zip(scalar.chunks(elements)) {
                    assert_eq!(
                        (own[0], &own[1..]),
                        (9, scalar),
                        "{width} bytes, {elements} elements, rotated: {rotated}"
                    );
                }
            }
        }
    }

    #[test]
    fn inputs_that_do_not_fit_are_ignored() {
        let (mut out, mut rest) = (Vec::new(), [7; 64]);
        for (width, stored, len) in [(1, 1, 0), (2, 0, 64), (2, 2, 0), (4, 2, 31), (8, 2, 48), (0, 1, 0)] {
            let stored = StoredPlanes { count: stored, mark: 0 };
            assert!(!append(&[1; 64], width, true, stored, &mut out, &mut rest[..len]));
        }
        assert!(!append(&[], 2, true, StoredPlanes { count: 1, mark: 0 }, &mut out, &mut []));
        assert!(out.is_empty() && rest == [7; 64]);
    }
}
