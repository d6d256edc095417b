//! Interleaving planes: elements are appended to a buffer in one pass.
//!
//! 1. With AVX2 or NEON, a vector of each plane at a time, of elements of 2 or 4 bytes: the vectors are interleaved
//!    until elements are whole, rotated back, and written to the buffer's spare capacity, which is not initialised
//!    before.
//! 2. The other elements are interleaved in a small array that stays in the cache, and appended.

use super::dispatch::dispatch;
use super::planes::{UninitBytes, interleave_rotated};

mod avx2;
mod neon;

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

dispatch! {
    /// Writes whole vectors of elements of two bytes to the front of `out`; returns the number of elements.
    fn pairs(planes: [&[u8]; 2], rotated: bool, out: &mut UninitBytes) -> usize {
        AVX2 => avx2::pairs,
        NEON => neon::pairs,
        PORTABLE => unavailable,
    }
}
dispatch! {
    /// Like [`pairs`], with elements of four bytes.
    fn fours(planes: [&[u8]; 4], rotated: bool, out: &mut UninitBytes) -> usize {
        AVX2 => avx2::fours,
        NEON => neon::fours,
        PORTABLE => unavailable,
    }
}

fn unavailable<const WIDTH: usize>(_: [&[u8]; WIDTH], _: bool, _: &mut UninitBytes) -> usize {
    0
}

/// Appends whole vectors of elements if the spare capacity is sufficient; returns the number of elements.
#[expect(unsafe_code, reason = "the loops fill the appended bytes")]
fn append_vectors(planes: &[&[u8]], rotated: bool, out: &mut Vec<u8>) -> usize {
    let elements = planes.first().map_or(0, |plane| plane.len());
    let Some(spare) = out.spare_capacity_mut().get_mut(..elements * planes.len()) else { return 0 };
    let done = match *planes {
        [low, high] => pairs([low, high], rotated, spare),
        [a, b, c, d] => fours([a, b, c, d], rotated, spare),
        _ => 0,
    };
    // SAFETY: the spare capacity has these bytes, and all of them have been written.
    unsafe { out.set_len(out.len() + done.min(elements) * planes.len()) };
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::cpu_features::{CpuFeatures, with_each_subset};

    #[test]
    fn every_length_agrees_with_the_scalar_reference() {
        with_each_subset(every_length_agrees);
    }

    fn every_length_agrees(features: CpuFeatures) {
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
                    "{count} planes of {elements}, rotated: {rotated}, {features}"
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
