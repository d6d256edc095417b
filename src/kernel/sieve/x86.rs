//! The filter in vectors: the bytes at a position and the ones before it are a load each; each is mapped, and the maps
//! are combined by exclusive or and compared with what passes.
#![expect(unsafe_code, reason = "loads of vectors, and calls of functions for processors that have been asked")]

use std::arch::x86_64::*;

use super::{FILTER_BYTES, FRONT_BYTES, Maps, STRIP_BYTES, WORD_BITS, Words, each_word, of_each_byte};
use crate::kernel::cpu_features::CpuFeatures;

/// `N` bytes of the strip from `start` on, which lie in it.
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

/// AVX-512 and GFNI: a map is a product with a matrix of bits.
///
/// Exists only where the processor has both, as `new` alone makes it.
#[derive(Debug, Clone)]
pub(super) struct Gfni {
    matrices: [i64; FILTER_BYTES],
    constant: i8,
}

/// The matrix of a map: row `i`, which gives bit `i`, is byte `7 - i`.
pub(super) fn matrix(map: &[u8; 256]) -> i64 {
    let column = |bit: usize| map[1 << bit] ^ map[0];
    let row = |i: usize| (0..8).fold(0u8, |row, bit| row | (column(bit) >> i & 1) << bit);
    i64::from_le_bytes(std::array::from_fn(|byte| row(7 - byte)))
}

impl Gfni {
    /// None where the processor lacks the instructions.
    pub(super) fn new(maps: &Maps) -> Option<Self> {
        let has = CpuFeatures::used() >= CpuFeatures::Avx512 && is_x86_feature_detected!("gfni");
        let bytes = of_each_byte(maps);
        let constant = bytes.iter().fold(0, |all, map| all ^ map[0]) as i8;
        has.then(|| Gfni { matrices: bytes.each_ref().map(matrix), constant })
    }

    pub(super) fn masks(&self, block: &[u8], words: &mut Words) -> u64 {
        // SAFETY: `new` made this, so the processor has the features.
        unsafe { self.masks_with_features(block, words) }
    }

    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    fn masks_with_features(&self, block: &[u8], words: &mut Words) -> u64 {
        let matrices = self.matrices.map(|matrix| _mm512_set1_epi64(matrix));
        let constant = _mm512_set1_epi8(self.constant);
        each_word(block, words, |strip| {
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

/// AVX2: a map is the exclusive or of what two tables give for the halves of a byte.
///
/// Exists only where the processor has it, as `new` alone makes it.
#[derive(Debug, Clone)]
pub(super) struct Avx2 {
    /// For the low and the high half, twice each.
    halves: Box<[[[u8; 32]; 2]; 3]>,
}

/// Positions of a vector.
const HALF_BITS: usize = WORD_BITS / 2;

/// `values` moved up by `16 - KEPT` places, filled up from the end of `before`.
#[target_feature(enable = "avx2")]
#[inline]
fn after<const KEPT: i32>(before: __m256i, values: __m256i) -> __m256i {
    _mm256_alignr_epi8::<KEPT>(values, _mm256_permute2x128_si256::<0x21>(before, values))
}

impl Avx2 {
    /// None where the processor lacks the instructions.
    pub(super) fn new(maps: &Maps) -> Option<Self> {
        let halves = |map: &[u8; 256]| {
            let low = std::array::from_fn(|at| map[at % 16]);
            let high = std::array::from_fn(|at| map[(at % 16) << 4] ^ map[0]);
            [low, high]
        };
        (CpuFeatures::used() >= CpuFeatures::Avx2).then(|| Avx2 { halves: Box::new(maps.each_ref().map(halves)) })
    }

    pub(super) fn masks(&self, block: &[u8], words: &mut Words) -> u64 {
        // SAFETY: `new` made this, so the processor has the feature.
        unsafe { self.masks_with_features(block, words) }
    }

    #[target_feature(enable = "avx2")]
    fn masks_with_features(&self, block: &[u8], words: &mut Words) -> u64 {
        let [pair, four, eight] = self.halves.each_ref().map(|[low, high]| [load_256(low), load_256(high)]);
        let nibble = _mm256_set1_epi8(15);
        let mapped = |[low, high]: [__m256i; 2], bytes: __m256i| {
            let upper = _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), nibble);
            let lower = _mm256_and_si256(bytes, nibble);
            _mm256_xor_si256(_mm256_shuffle_epi8(low, lower), _mm256_shuffle_epi8(high, upper))
        };
        // The pairs and the fours of 32 positions, from their own bytes, those one before, and the pairs before.
        let doubled = |own: __m256i, front: __m256i, before: __m256i| {
            let pairs = _mm256_xor_si256(own, mapped(pair, front));
            (pairs, _mm256_xor_si256(pairs, mapped(four, after::<14>(before, pairs))))
        };
        // The block's first bytes are the end of what comes before its first position.
        let mut front = [0; HALF_BITS];
        let known = block.get(..FRONT_BYTES).unwrap_or_default();
        front[HALF_BITS - known.len()..].copy_from_slice(known);
        let (none, own) = (_mm256_setzero_si256(), load_256(&front));
        let mut before = doubled(own, after::<15>(none, own), none);
        each_word(block, words, |strip| {
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
