//! The filter for AVX-512 and GFNI: a map is a product with a bit matrix. The products of the last eight bytes of 64
//! positions are combined by XOR and compared with the value that passes.
#![cfg(target_arch = "x86_64")]
#![expect(unsafe_code, reason = "loads of vectors")]

use std::arch::x86_64::*;

use super::{BlockMasks, FRONT_BYTES, FilterConstants, each_mask, part};

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn load(bytes: &[u8; 64]) -> __m512i {
    // SAFETY: the array is as long as the vector; the load needs no alignment.
    unsafe { _mm512_loadu_epi8(bytes.as_ptr().cast()) }
}

/// Fills the masks like [`super::portable::fill_masks`].
#[target_feature(enable = "avx512f,avx512bw,gfni")]
pub(super) fn fill_masks(constants: &FilterConstants, block: &[u8], masks: &mut BlockMasks) -> u64 {
    let matrices = constants.matrices.map(|matrix| _mm512_set1_epi64(matrix));
    let constant = _mm512_set1_epi8(constants.passes as i8);
    each_mask(block, masks, |strip| {
        let mapped = |back: usize| {
            let bytes = load(part(strip, FRONT_BYTES - back));
            _mm512_gf2p8affine_epi64_epi8::<0>(bytes, matrices[back])
        };
        let both = |back: usize| _mm512_xor_si512(mapped(back), mapped(back + 1));
        let near = _mm512_xor_si512(both(0), both(2));
        let far = _mm512_xor_si512(both(4), both(6));
        _mm512_cmpeq_epi8_mask(_mm512_xor_si512(near, far), constant)
    })
}
