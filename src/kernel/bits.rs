//! Bit planes: bytes to eight runs of bits, one for each place in a byte, and back.
//!
//! Eight bytes are a matrix of 8 × 8 bits, which three rounds of swaps transpose: single bits across the diagonal of
//! squares of two, then pairs of squares of four, then fours of all. Byte `i` of the result holds bit `i` of all eight.
//! Blocks of such matrices are transposed at a time and their bytes then dealt out to the planes.

use super::planes::planes_mut;
use super::vector::vectorised;

/// Matrices transposed at a time.
const BLOCK: usize = 32;

vectorised! {
    /// Splits `bytes`, a multiple of eight, into `planes`, as many bytes: plane `i`, bit `i` of every byte, is at
    /// `i * n` for `n` eights of bytes; the bit of byte `8 j + k` is bit `k` of the plane's byte `j`. Anything else is
    /// left alone.
    pub fn deinterleave(bytes: &[u8], planes: &mut [u8]) = deinterleave_matrices
}
vectorised! {
    /// Inverse of [`deinterleave`].
    pub fn interleave(planes: &[u8], bytes: &mut [u8]) = interleave_matrices
}

/// The matrix whose row `r` is byte `r`, transposed.
#[inline(always)]
fn transposed(mut matrix: u64) -> u64 {
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
        let mut rotated = [0; BLOCK];
        for (rotated, matrix) in rotated.iter_mut().zip(block) {
            *rotated = transposed(u64::from_le_bytes(*matrix));
        }
        for (bit, plane) in planes.iter_mut().enumerate() {
            for (byte, rotated) in plane[start..start + block.len()].iter_mut().zip(&rotated) {
                *byte = (rotated >> (8 * bit)) as u8;
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
    let run = matrices.len();
    for (index, block) in matrices.chunks_mut(BLOCK).enumerate() {
        let start = index * BLOCK;
        let mut rotated = [0u64; BLOCK];
        for (bit, plane) in planes.chunks_exact(run).enumerate() {
            for (byte, rotated) in plane[start..start + block.len()].iter().zip(&mut rotated) {
                *rotated |= u64::from(*byte) << (8 * bit);
            }
        }
        for (rotated, matrix) in rotated.iter().zip(block) {
            *matrix = transposed(*rotated).to_le_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One bit after the other.
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
    fn every_length_agrees_with_the_twin_and_joins_back() {
        for matrices in (0..70).chain([127, 128, 129, 511, 512, 513]) {
            let bytes = noise(8 * matrices);
            let (mut planes, mut joined) = (vec![0; bytes.len()], vec![0; bytes.len()]);
            deinterleave(&bytes, &mut planes);
            assert_eq!(planes, deinterleave_scalar(&bytes), "{matrices} matrices");
            interleave(&planes, &mut joined);
            assert_eq!(joined, bytes, "{matrices} matrices");
        }
    }

    #[test]
    fn without_vectors_it_is_the_same() {
        let bytes = noise(8 * 77);
        let (mut planes, mut joined) = (vec![0; bytes.len()], vec![0; bytes.len()]);
        deinterleave_matrices(&bytes, &mut planes);
        assert_eq!(planes, deinterleave_scalar(&bytes));
        interleave_matrices(&planes, &mut joined);
        assert_eq!(joined, bytes);
    }

    #[test]
    fn what_does_not_fit_is_left_alone() {
        let mut out = [9u8; 16];
        deinterleave(&[1; 8], &mut out);
        deinterleave(&[1; 12], &mut out[..12]);
        interleave(&[1; 8], &mut out);
        interleave(&[1; 12], &mut out[..12]);
        interleave(&[], &mut out[..0]);
        assert_eq!(out, [9; 16]);
    }
}
