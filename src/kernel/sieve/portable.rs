//! The filter in portable code: one look-up gives the contribution of a byte to its position and the next seven.
//!
//! The results of eight positions are the bytes of a `u64`. The entry of a byte has its eight maps side by side. It is
//! shifted to the position of the byte and combined by XOR. The bits shifted out belong to the next `u64`. A position
//! passes if its byte is zero.

use super::{BlockMasks, FilterConstants, STRIP_BYTES, each_mask};

const LOW_BITS: u64 = 0x7f7f_7f7f_7f7f_7f7f;

/// Sets bit `i` of `masks` if the position after byte `i + 7` of `block` passes. Bit `n` of the result says whether
/// mask `n` is not zero.
pub(super) fn fill_masks(constants: &FilterConstants, block: &[u8], masks: &mut BlockMasks) -> u64 {
    each_mask(block, masks, |strip| mask(constants, strip))
}

fn mask(constants: &FilterConstants, strip: &[u8; STRIP_BYTES]) -> u64 {
    let entry = |byte: u8| constants.entries[usize::from(byte)];
    let [a, b, c, d, e, f, g, rest @ ..] = strip;
    let [a, b, c, d, e, f, g] = [a, b, c, d, e, f, g].map(|byte| entry(*byte));
    // The contributions of the seven bytes before a group of eight.
    let shifted_out = |b: u64, c: u64, d: u64, e: u64, f: u64, g: u64, h: u64| {
        b >> 56 ^ c >> 48 ^ d >> 40 ^ e >> 32 ^ f >> 24 ^ g >> 16 ^ h >> 8
    };
    let mut carry = shifted_out(a, b, c, d, e, f, g);
    let mut mask = 0;
    for (number, eight) in rest.as_chunks::<8>().0.iter().enumerate() {
        let [a, b, c, d, e, f, g, h] = eight.map(entry);
        let front = a ^ b << 8 ^ c << 16 ^ d << 24 ^ e << 32;
        let values = carry ^ front ^ f << 40 ^ g << 48 ^ h << 56;
        carry = shifted_out(b, c, d, e, f, g, h);
        // Not zero if a byte is zero, and rarely if none is.
        if values.wrapping_sub(0x0101_0101_0101_0101) & !values & !LOW_BITS != 0 {
            mask |= zero_bytes(values) << (8 * number);
        }
    }
    mask
}

/// Bit `i` is set if byte `i` is zero.
pub(super) fn zero_bytes(values: u64) -> u64 {
    let tops = !((values & LOW_BITS).wrapping_add(LOW_BITS) | values | LOW_BITS);
    (tops >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
}
