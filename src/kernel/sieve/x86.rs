//! The filter in vectors: the maps of the last bytes of each position are combined by XOR and compared with the value
//! that passes.
#![expect(unsafe_code, reason = "loads vectors, and calls functions for detected CPU features")]

use std::arch::x86_64::*;

use super::{BlockMasks, FILTER_BYTES, FRONT_BYTES, MASK_BITS, Maps, STRIP_BYTES, each_mask, of_each_byte};
use crate::kernel::cpu_features::CpuFeatures;

/// `N` bytes of the strip from `start` on; zeros if it is too short.
#[inline(always)]
fn part<const N: usize>(strip: &[u8; STRIP_BYTES], start: usize) -> &[u8; N] {
    strip.get(start..).and_then(|rest| rest.first_chunk()).unwrap_or(&[0; N])
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn load_512(bytes: &[u8; 64]) -> __m512i {
    // SAFETY: the array is as long as the vector; the load needs no alignment.
    unsafe { _mm512_loadu_epi8(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx2")]
#[inline]
fn load_256(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: the array is as long as the vector; the load needs no alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

/// The filter for AVX-512 and GFNI: a map is a product with a bit matrix.
///
/// Only `new` makes a value, so the processor has both.
#[derive(Debug, Clone)]
pub(super) struct GfniFilter {
    matrices: [i64; FILTER_BYTES],
    constant: i8,
}

/// The matrix of a map. Row `i`, which gives bit `i`, is byte `7 - i`.
pub(super) fn matrix(map: &[u8; 256]) -> i64 {
    let column = |bit: usize| map[1 << bit] ^ map[0];
    let row = |i: usize| (0..8).fold(0u8, |row, bit| row | (column(bit) >> i & 1) << bit);
    i64::from_le_bytes(std::array::from_fn(|byte| row(7 - byte)))
}

impl GfniFilter {
    /// `None` without these CPU features.
    pub(super) fn new(maps: &Maps) -> Option<Self> {
        let has = CpuFeatures::used() >= CpuFeatures::Avx512 && is_x86_feature_detected!("gfni");
        let bytes = of_each_byte(maps);
        let constant = bytes.iter().fold(0, |all, map| all ^ map[0]) as i8;
        has.then(|| GfniFilter { matrices: bytes.each_ref().map(matrix), constant })
    }

    pub(super) fn fill_masks(&self, block: &[u8], masks: &mut BlockMasks) -> u64 {
        // SAFETY: `new` made this, so the processor has the features.
        unsafe { self.fill_masks_with_features(block, masks) }
    }

    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    fn fill_masks_with_features(&self, block: &[u8], masks: &mut BlockMasks) -> u64 {
        let matrices = self.matrices.map(|matrix| _mm512_set1_epi64(matrix));
        let constant = _mm512_set1_epi8(self.constant);
        each_mask(block, masks, |strip| {
            let mapped = |back: usize| {
                let bytes = load_512(part(strip, FRONT_BYTES - back));
                _mm512_gf2p8affine_epi64_epi8::<0>(bytes, matrices[back])
            };
            let both = |back: usize| _mm512_xor_si512(mapped(back), mapped(back + 1));
            let near = _mm512_xor_si512(both(0), both(2));
            let far = _mm512_xor_si512(both(4), both(6));
            _mm512_cmpeq_epi8_mask(_mm512_xor_si512(near, far), constant)
        })
    }
}

/// The filter for AVX2: a map is the XOR of the look-ups of the two nibbles of a byte.
///
/// Only `new` makes a value, so the processor has AVX2.
#[derive(Debug, Clone)]
pub(super) struct Avx2Filter {
    /// For each map, the results of the low and of the high nibbles, twice each.
    halves: Box<[[[u8; 32]; 2]; 3]>,
}

/// Positions of a vector.
const HALF_BITS: usize = MASK_BITS / 2;

/// `values` shifted up by `16 - SHIFT` bytes, preceded by the last bytes of `before`.
#[target_feature(enable = "avx2")]
#[inline]
fn after<const SHIFT: i32>(before: __m256i, values: __m256i) -> __m256i {
    _mm256_alignr_epi8::<SHIFT>(values, _mm256_permute2x128_si256::<0x21>(before, values))
}

impl Avx2Filter {
    /// `None` without these CPU features.
    pub(super) fn new(maps: &Maps) -> Option<Self> {
        let halves = |map: &[u8; 256]| {
            let low = std::array::from_fn(|at| map[at % 16]);
            let high = std::array::from_fn(|at| map[(at % 16) << 4] ^ map[0]);
            [low, high]
        };
        (CpuFeatures::used() >= CpuFeatures::Avx2).then(|| Avx2Filter { halves: Box::new(maps.each_ref().map(halves)) })
    }

    pub(super) fn fill_masks(&self, block: &[u8], masks: &mut BlockMasks) -> u64 {
        // SAFETY: `new` made this, so the processor has the feature.
        unsafe { self.fill_masks_with_features(block, masks) }
    }

    #[target_feature(enable = "avx2")]
    fn fill_masks_with_features(&self, block: &[u8], masks: &mut BlockMasks) -> u64 {
        let [pair, four, eight] = self.halves.each_ref().map(|[low, high]| [load_256(low), load_256(high)]);
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
        let (none, own) = (_mm256_setzero_si256(), load_256(&front));
        let mut before = doubled(own, after::<15>(none, own), none);
        each_mask(block, masks, |strip| {
            let mut vector = |start: usize| {
                let (own, front) = (start + FRONT_BYTES, start + FRONT_BYTES - 1);
                let next = doubled(load_256(part(strip, own)), load_256(part(strip, front)), before.0);
                let passes = _mm256_cmpeq_epi8(next.1, mapped(eight, after::<12>(before.1, next.1)));
                before = next;
                u64::from(_mm256_movemask_epi8(passes) as u32)
            };
            vector(0) | vector(HALF_BITS) << HALF_BITS
        })
    }
}
