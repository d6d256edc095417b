//! Bit planes: plane `i` holds bit `i` of every byte.
//!
//! 1. Eight bytes are a matrix of 8 × 8 bits. Three rounds of swaps transpose it: single bits within squares of two,
//!    pairs of bits within squares of four, then groups of four bits. Byte `i` of the result holds bit `i` of each.
//! 2. A block of matrices is transposed at a time. Then the bytes of the block are distributed to the planes.

use super::dispatch::dispatch;
use super::planes::planes_mut;

mod neon;

/// Matrices transposed at a time.
const BLOCK: usize = 32;

dispatch! {
    /// Deinterleaves `bytes` into eight bit planes, one after the other in `planes`.
    ///
    /// Bit `k` of a plane's byte `j` comes from byte `8 j + k`. Does nothing unless the length of `bytes` is a multiple
    /// of eight and equals that of `planes`.
    pub fn deinterleave(bytes: &[u8], planes: &mut [u8]) {
        NEON => neon::deinterleave,
        AVX512 | AVX2 | PORTABLE => deinterleave_matrices,
    }
}
dispatch! {
    /// Inverse of [`deinterleave`], with the same conditions.
    pub fn interleave(planes: &[u8], bytes: &mut [u8]) {
        NEON => neon::interleave,
        AVX512 | AVX2 | PORTABLE => interleave_matrices,
    }
}

/// Transposes the matrix whose row `r` is byte `r`.
#[inline(always)]
fn transpose(mut matrix: u64) -> u64 {
    for (distance, mask) in [(7, 0x00aa_00aa_00aa_00aa), (14, 0x0000_cccc_0000_cccc), (28, 0x0000_0000_f0f0_f0f0)] {
        let swapped = (matrix ^ matrix >> distance) & mask;
        matrix ^= swapped ^ swapped << distance;
    }
    matrix
}

#[inline(always)]
fn deinterleave_matrices(bytes: &[u8], planes: &mut [u8]) {
    let (matrices, rest) = bytes.as_chunks::<8>();
    if matrices.is_empty() || !rest.is_empty() || planes.len() != bytes.len() {
        return;
    }
    let mut planes: [&mut [u8]; 8] = planes_mut(planes, matrices.len());
    for (index, block) in matrices.chunks(BLOCK).enumerate() {
        let start = index * BLOCK;
        let mut transposed = [0; BLOCK];
        for (transposed, matrix) in transposed.iter_mut().zip(block) {
            *transposed = transpose(u64::from_le_bytes(*matrix));
        }
        for (bit, plane) in planes.iter_mut().enumerate() {
            for (byte, transposed) in plane[start..start + block.len()].iter_mut().zip(&transposed) {
                *byte = (transposed >> (8 * bit)) as u8;
            }
        }
    }
}

#[inline(always)]
fn interleave_matrices(planes: &[u8], bytes: &mut [u8]) {
    let (matrices, rest) = bytes.as_chunks_mut::<8>();
    if matrices.is_empty() || !rest.is_empty() || planes.len() != 8 * matrices.len() {
        return;
    }
    let plane_len = matrices.len();
    for (index, block) in matrices.chunks_mut(BLOCK).enumerate() {
        let start = index * BLOCK;
        let mut transposed = [0u64; BLOCK];
        for (bit, plane) in planes.chunks_exact(plane_len).enumerate() {
            for (byte, transposed) in plane[start..start + block.len()].iter().zip(&mut transposed) {
                *transposed |= u64::from(*byte) << (8 * bit);
            }
        }
        for (transposed, matrix) in transposed.iter().zip(block) {
            *matrix = transpose(*transposed).to_le_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::cpu_features::with_each_subset;

    fn deinterleave_scalar(bytes: &[u8]) -> Vec<u8> {
        let mut planes = vec![0; bytes.len()];
        for (at, byte) in bytes.iter().enumerate() {
            for bit in 0..8 {
                planes[bit * (bytes.len() / 8) + at / 8] |= (byte >> bit & 1) << (at % 8);
            }
        }
        planes
    }

    fn noise(len: usize) -> Vec<u8> {
        (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
    }

    #[test]
    fn every_length_agrees_with_the_scalar_reference_and_round_trips() {
        with_each_subset(|_| {
            for matrices in (0..70).chain([127, 128, 129, 511, 512, 513]) {
                let bytes = noise(8 * matrices);
                let (mut planes, mut interleaved) = (vec![0; bytes.len()], vec![0; bytes.len()]);
                deinterleave(&bytes, &mut planes);
                assert_eq!(planes, deinterleave_scalar(&bytes), "{matrices} matrices");
                interleave(&planes, &mut interleaved);
                assert_eq!(interleaved, bytes, "{matrices} matrices");
            }
        });
    }

    #[test]
    fn inputs_of_wrong_lengths_are_ignored() {
        with_each_subset(|_| {
            let mut out = [9u8; 16];
            deinterleave(&[1; 8], &mut out);
            deinterleave(&[1; 12], &mut out[..12]);
            interleave(&[1; 8], &mut out);
            interleave(&[1; 12], &mut out[..12]);
            interleave(&[], &mut out[..0]);
            assert_eq!(out, [9; 16]);
        });
    }
}
