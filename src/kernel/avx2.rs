//! Loads and stores of vectors of 32 bytes.
#![cfg(target_arch = "x86_64")]
#![expect(unsafe_code, reason = "loads and stores of vectors")]

use std::arch::x86_64::{__m256i, _mm256_loadu_si256, _mm256_storeu_si256};
use std::mem::MaybeUninit;

/// Bytes of a vector.
pub(super) const VECTOR_BYTES: usize = 32;

#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn load(bytes: &[u8; VECTOR_BYTES]) -> __m256i {
    // SAFETY: the array is as long as the vector; the load needs no alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn store(out: &mut [MaybeUninit<u8>; VECTOR_BYTES], vector: __m256i) {
    // SAFETY: the array is as long as the vector; the store needs no alignment.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), vector) }
}
