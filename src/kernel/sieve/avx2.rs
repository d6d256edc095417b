//! The filter for AVX2: a map is the XOR of the look-ups of the two nibbles of a byte. The results of 32 positions are
//! doubled twice, and compared with the map of those four bytes before.
#![cfg(target_arch = "x86_64")]
#![expect(unsafe_code, reason = "loads of vectors")]

use std::arch::x86_64::*;

use super::{BlockMasks, FRONT_BYTES, FilterConstants, each_mask, part};

/// Positions of a vector.
const HALF_BITS: usize = 32;

#[target_feature(enable = "avx2")]
#[inline]
fn load(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: the array is as long as the vector; the load needs no alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

/// A table of 16 bytes, twice.
#[target_feature(enable = "avx2")]
#[inline]
fn load_table(table: &[u8; 16]) -> __m256i {
    // SAFETY: the array is as long as the vector; the load needs no alignment.
    _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(table.as_ptr().cast()) })
}

/// `values` shifted up by `16 - SHIFT` bytes, preceded by the last bytes of `before`.
#[target_feature(enable = "avx2")]
#[inline]
fn after<const SHIFT: i32>(before: __m256i, values: __m256i) -> __m256i {
    _mm256_alignr_epi8::<SHIFT>(values, _mm256_permute2x128_si256::<0x21>(before, values))
}

/// Fills the masks like [`super::portable::fill_masks`].
#[target_feature(enable = "avx2")]
pub(super) fn fill_masks(constants: &FilterConstants, block: &[u8], masks: &mut BlockMasks) -> u64 {
    let [pair, four, eight] = constants.halves.each_ref().map(|[low, high]| [load_table(low), load_table(high)]);
    let nibble = _mm256_set1_epi8(15);
    let mapped = |[low, high]: [__m256i; 2], bytes: __m256i| {
        let upper = _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), nibble);
        let lower = _mm256_and_si256(bytes, nibble);
        _mm256_xor_si256(_mm256_shuffle_epi8(low, lower), _mm256_shuffle_epi8(high, upper))
    };
    // The pairs and the fours of 32 positions, from their last bytes, the bytes before, and the previous pairs.
    let doubled = |own: __m256i, front: __m256i, before: __m256i| {
        let pairs = _mm256_xor_si256(own, mapped(pair, front));
        (pairs, _mm256_xor_si256(pairs, mapped(four, after::<14>(before, pairs))))
    };
    // The first bytes of the block are before its first position.
    let mut front = [0; HALF_BITS];
    let known = block.get(..FRONT_BYTES).unwrap_or_default();
    front[HALF_BITS - known.len()..].copy_from_slice(known);
    let (none, own) = (_mm256_setzero_si256(), load(&front));
    let mut before = doubled(own, after::<15>(none, own), none);
    each_mask(block, masks, |strip| {
        let mut vector = |start: usize| {
            let (own, front) = (start + FRONT_BYTES, start + FRONT_BYTES - 1);
            let next = doubled(load(part(strip, own)), load(part(strip, front)), before.0);
            let passes = _mm256_cmpeq_epi8(next.1, mapped(eight, after::<12>(before.1, next.1)));
            before = next;
            u64::from(_mm256_movemask_epi8(passes) as u32)
        };
        vector(0) | vector(HALF_BITS) << HALF_BITS
    })
}
