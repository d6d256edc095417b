//! Low bits: the lowest bits of bytes, which a prefix code leaves out where they are noise, one after the other.
//!
//! Bits are in the order of their bytes, from the lowest bit of the first byte on; the last byte is filled with zeros.
//! Eight bytes at a time are squeezed together in three steps, each of which joins two groups of bits, or spread out
//! again.

use super::LOW_BITS_MAX;
use crate::kernel::vector::vectorised;

/// Bytes squeezed at a time.
const GROUP: usize = 8;

/// Bytes that the `bits` lowest bits of `symbols` bytes take.
pub fn low_bits_len(symbols: usize, bits: u32) -> usize {
    let (groups, rest) = (symbols / GROUP, symbols % GROUP);
    groups * bits as usize + (rest * bits as usize).div_ceil(8)
}

/// Stores the `bits` (at most [`LOW_BITS_MAX`]) lowest bits of `symbols` in `lows`, which has [`low_bits_len`] bytes, and
/// the others, shifted down, in `highs`, which is as long as `symbols`. Nothing is done where lengths are others.
pub fn split_low_bits(symbols: &[u8], bits: u32, highs: &mut [u8], lows: &mut [u8]) {
    if bits > LOW_BITS_MAX || lows.len() != low_bits_len(symbols.len(), bits) || highs.len() != symbols.len() {
        return;
    }
    highs.iter_mut().zip(symbols).for_each(|(high, symbol)| *high = symbol >> bits);
    match bits {
        1 => squeeze_1(symbols, lows),
        2 => squeeze_2(symbols, lows),
        3 => squeeze_3(symbols, lows),
        4 => squeeze_4(symbols, lows),
        _ => {}
    }
}

/// Inverse of [`split_low_bits`], in place: shifts `symbols` up and adds the bits of `lows`.
pub fn join_low_bits(symbols: &mut [u8], bits: u32, lows: &[u8]) {
    if bits > LOW_BITS_MAX || lows.len() != low_bits_len(symbols.len(), bits) {
        return;
    }
    match bits {
        1 => spread_1(symbols, lows),
        2 => spread_2(symbols, lows),
        3 => spread_3(symbols, lows),
        4 => spread_4(symbols, lows),
        _ => {}
    }
}

vectorised! { fn squeeze_1(symbols: &[u8], lows: &mut [u8]) = squeeze::<1> }
vectorised! { fn squeeze_2(symbols: &[u8], lows: &mut [u8]) = squeeze::<2> }
vectorised! { fn squeeze_3(symbols: &[u8], lows: &mut [u8]) = squeeze::<3> }
vectorised! { fn squeeze_4(symbols: &[u8], lows: &mut [u8]) = squeeze::<4> }
vectorised! { fn spread_1(symbols: &mut [u8], lows: &[u8]) = spread::<1> }
vectorised! { fn spread_2(symbols: &mut [u8], lows: &[u8]) = spread::<2> }
vectorised! { fn spread_3(symbols: &mut [u8], lows: &[u8]) = spread::<3> }
vectorised! { fn spread_4(symbols: &mut [u8], lows: &[u8]) = spread::<4> }

/// The lowest `bits` of every `stride`-th bit.
const fn mask(bits: usize, stride: usize) -> u64 {
    let (mut mask, mut at) = (0, 0);
    while at < 64 {
        mask |= ((1 << bits) - 1) << at;
        at += stride;
    }
    mask
}

#[inline(always)]
fn squeeze<const BITS: usize>(symbols: &[u8], lows: &mut [u8]) {
    let squeezed = |word: u64| {
        let mut word = word & mask(BITS, 8);
        word = (word | word >> (8 - BITS)) & mask(2 * BITS, 16);
        word = (word | word >> (16 - 2 * BITS)) & mask(4 * BITS, 32);
        word | word >> (32 - 4 * BITS)
    };
    let (groups, rest) = symbols.as_chunks::<GROUP>();
    let (lows, lows_rest) = lows.split_at_mut(groups.len() * BITS);
    for (group, lows) in groups.iter().zip(lows.as_chunks_mut::<BITS>().0) {
        let bytes = squeezed(u64::from_le_bytes(*group)).to_le_bytes();
        *lows = std::array::from_fn(|at| bytes[at]);
    }
    let mut last = [0; GROUP];
    last[..rest.len()].copy_from_slice(rest);
    let bytes = squeezed(u64::from_le_bytes(last)).to_le_bytes();
    lows_rest.iter_mut().zip(bytes).for_each(|(low, byte)| *low = byte);
}

#[inline(always)]
fn spread<const BITS: usize>(symbols: &mut [u8], lows: &[u8]) {
    let joined = |highs: u64, lows: u64| {
        let mut word = (lows | lows << (32 - 4 * BITS)) & mask(4 * BITS, 32);
        word = (word | word << (16 - 2 * BITS)) & mask(2 * BITS, 16);
        word = (word | word << (8 - BITS)) & mask(BITS, 8);
        highs << BITS & !mask(BITS, 8) | word
    };
    let (groups, rest) = symbols.as_chunks_mut::<GROUP>();
    let (lows, lows_rest) = lows.split_at(groups.len() * BITS);
    for (group, lows) in groups.iter_mut().zip(lows.as_chunks::<BITS>().0) {
        let mut bytes = [0; GROUP];
        bytes[..BITS].copy_from_slice(lows);
        *group = joined(u64::from_le_bytes(*group), u64::from_le_bytes(bytes)).to_le_bytes();
    }
    let (mut last, mut bytes) = ([0; GROUP], [0; GROUP]);
    last[..rest.len()].copy_from_slice(rest);
    bytes[..lows_rest.len()].copy_from_slice(lows_rest);
    let last = joined(u64::from_le_bytes(last), u64::from_le_bytes(bytes)).to_le_bytes();
    rest.iter_mut().zip(last).for_each(|(symbol, byte)| *symbol = byte);
}
