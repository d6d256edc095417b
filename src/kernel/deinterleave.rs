//! Deinterleaving to final positions: the lowest planes are appended to the output, the others are stored elsewhere.
//!
//! Only for elements of 2 and 4 bytes, and only with AVX2 or NEON: a vector of elements for each plane is rotated, the
//! bytes are sorted by plane, and one vector is written to each plane. The output is not initialised before. Without
//! them, [`super::planes`] does the same through a buffer.

use super::dispatch::dispatch;
use super::planes::UninitBytes;

mod avx2;
pub(super) mod neon;

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
/// Returns false and appends nothing without AVX2 and NEON, without elements, for a `width` other than 2 and 4, if no
/// planes or all planes are `stored`, or unless `rest` has the length of the other planes.
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

dispatch! {
    /// Fills two planes with the bytes of the elements. False if there is no loop for this processor.
    fn pairs(raw: &[u8], rotated: bool, planes: [&mut UninitBytes; 2]) -> bool {
        AVX2 => avx2::pairs,
        NEON => neon::pairs,
        PORTABLE => unavailable,
    }
}
dispatch! {
    /// Like [`pairs`], with elements of four bytes.
    fn fours(raw: &[u8], rotated: bool, planes: [&mut UninitBytes; 4]) -> bool {
        AVX2 => avx2::fours,
        NEON => neon::fours,
        PORTABLE => unavailable,
    }
}

fn unavailable<const WIDTH: usize>(_: &[u8], _: bool, _: [&mut UninitBytes; WIDTH]) -> bool {
    false
}

#[expect(unsafe_code, reason = "the loops fill the appended bytes")]
fn append_vectors(
    raw: &[u8],
    width: usize,
    rotated: bool,
    StoredPlanes { count: stored, mark }: StoredPlanes,
    out: &mut Vec<u8>,
    rest: &mut [u8],
) -> bool {
    let elements = raw.len() / width;
    out.reserve(stored * (elements + 1));
    let mut planes: [&mut UninitBytes; 4] = Default::default();
    let (own, others) = planes.split_at_mut(stored);
    for (plane, bytes) in own.iter_mut().zip(out.spare_capacity_mut().chunks_exact_mut(elements + 1)) {
        if let Some((first, bytes)) = bytes.split_first_mut() {
            first.write(mark);
            *plane = bytes;
        }
    }
    for (plane, bytes) in others.iter_mut().zip(rest.chunks_exact_mut(elements)) {
        // SAFETY: bytes that may be uninitialised have the same layout, and only initialised bytes are written to them.
        *plane = unsafe { &mut *(std::ptr::from_mut(bytes) as *mut UninitBytes) };
    }
    let [a, b, c, d] = planes;
    let is_filled = if width == 2 { pairs(raw, rotated, [a, b]) } else { fours(raw, rotated, [a, b, c, d]) };
    if is_filled {
        // SAFETY: these bytes were reserved, and marks and planes have been written to all of them.
        unsafe { out.set_len(out.len() + stored * (elements + 1)) };
    }
    is_filled
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::cpu_features::{CpuFeatures, with_each_subset};
    use crate::kernel::planes::deinterleave_rotated;

    #[test]
    fn every_length_agrees_with_the_scalar_reference() {
        with_each_subset(every_length_agrees);
    }

    fn every_length_agrees(features: CpuFeatures) {
        let is_there = features.intersects(CpuFeatures::AVX2.union(CpuFeatures::NEON));
        for (width, elements) in [2, 4].into_iter().flat_map(|width| (1..100).map(move |elements| (width, elements))) {
            let raw: Vec<u8> =
                (0..(width * elements) as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
            for (rotated, stored) in [false, true].into_iter().flat_map(|t| (1..width).map(move |stored| (t, stored))) {
                let mut scalar = vec![0; raw.len()];
                deinterleave_rotated(&raw, width, rotated, &mut scalar);
                let (mut out, mut rest) = (b"before".to_vec(), vec![0; (width - stored) * elements]);
                let planes = StoredPlanes { count: stored, mark: 9 };
                assert_eq!(append(&raw, width, rotated, planes, &mut out, &mut rest), is_there, "{features}");
                if !is_there {
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
