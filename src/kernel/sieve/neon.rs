//! The filter for NEON: a map is the XOR of the look-ups of the two nibbles of a byte. The results of 16 positions are
//! doubled twice, and compared with the map of those four bytes before.
#![cfg(target_arch = "aarch64")]
#![expect(unsafe_code, reason = "loads of vectors")]

use std::arch::aarch64::*;

use super::{BlockMasks, FRONT_BYTES, FilterConstants, each_mask, part};

/// Positions of a vector.
const WIDTH: usize = 16;

#[inline]
fn load(bytes: &[u8; WIDTH]) -> uint8x16_t {
    // SAFETY: the array is as long as the vector; the load needs no alignment.
    unsafe { vld1q_u8(bytes.as_ptr()) }
}

/// Bit `i` is set if byte `i` of the four vectors is `0xff`; the other bytes are zero.
#[target_feature(enable = "neon")]
#[inline]
fn mask_of([a, b, c, d]: [uint8x16_t; 4]) -> u64 {
    let bits = load(&[1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128]);
    let own = |vector| vandq_u8(vector, bits);
    let (low, high) = (vpaddq_u8(own(a), own(b)), vpaddq_u8(own(c), own(d)));
    let fours = vpaddq_u8(low, high);
    vgetq_lane_u64::<0>(vreinterpretq_u64_u8(vpaddq_u8(fours, fours)))
}

/// Fills the masks like [`super::portable::fill_masks`].
#[target_feature(enable = "neon")]
pub(super) fn fill_masks(constants: &FilterConstants, block: &[u8], masks: &mut BlockMasks) -> u64 {
    let [pair, four, eight] = constants.halves.each_ref().map(|[low, high]| [load(low), load(high)]);
    let nibble = vdupq_n_u8(15);
    let mapped = |[low, high]: [uint8x16_t; 2], bytes: uint8x16_t| {
        veorq_u8(vqtbl1q_u8(low, vandq_u8(bytes, nibble)), vqtbl1q_u8(high, vshrq_n_u8::<4>(bytes)))
    };
    // The pairs and the fours of 16 positions, from their last bytes, the bytes before, and the previous pairs.
    let doubled = |own: uint8x16_t, front: uint8x16_t, before: uint8x16_t| {
        let pairs = veorq_u8(own, mapped(pair, front));
        (pairs, veorq_u8(pairs, mapped(four, vextq_u8::<14>(before, pairs))))
    };
    // The first bytes of the block are before its first position.
    let mut front = [0; WIDTH];
    let known = block.get(..FRONT_BYTES).unwrap_or_default();
    front[WIDTH - known.len()..].copy_from_slice(known);
    let (none, own) = (vdupq_n_u8(0), load(&front));
    let mut before = doubled(own, vextq_u8::<15>(none, own), none);
    each_mask(block, masks, |strip| {
        let mut vector = |start: usize| {
            let (own, front) = (start + FRONT_BYTES, start + FRONT_BYTES - 1);
            let next = doubled(load(part(strip, own)), load(part(strip, front)), before.0);
            let passes = vceqq_u8(next.1, mapped(eight, vextq_u8::<12>(before.1, next.1)));
            before = next;
            passes
        };
        mask_of([vector(0), vector(WIDTH), vector(2 * WIDTH), vector(3 * WIDTH)])
    })
}
