//! Low bits: the lowest bits of the symbols, which are stored apart from the prefix code if they are noise.
//!
//! The bits are packed in the order of their symbols, the lowest bit of the first byte first. Zeros fill the last byte.
//! The bits of eight symbols are packed in three steps, each of which moves two groups of bits together. The inverse
//! spreads them in three steps.

use super::LOW_BITS_MAX;
use crate::kernel::dispatch::dispatch;

/// Symbols whose bits are packed at a time.
const GROUP: usize = 8;

/// Bytes of the packed `bits` lowest bits of this many symbols.
pub fn low_bits_len(symbols: usize, bits: u32) -> usize {
    let (groups, rest) = (symbols / GROUP, symbols % GROUP);
    groups * bits as usize + (rest * bits as usize).div_ceil(8)
}

/// Packs the `bits` lowest bits of `symbols` into `lows`, and stores the other bits in `highs`, shifted right.
///
/// Does nothing if `bits` is more than [`LOW_BITS_MAX`], unless `lows` has [`low_bits_len`] bytes, or unless `highs` is
/// as long as `symbols`.
pub fn split_low_bits(symbols: &[u8], bits: u32, highs: &mut [u8], lows: &mut [u8]) {
    if bits > LOW_BITS_MAX || lows.len() != low_bits_len(symbols.len(), bits) || highs.len() != symbols.len() {
        return;
    }
    highs.iter_mut().zip(symbols).for_each(|(high, symbol)| *high = symbol >> bits);
    match bits {
        1 => pack_1(symbols, lows),
        2 => pack_2(symbols, lows),
        3 => pack_3(symbols, lows),
        4 => pack_4(symbols, lows),
        _ => {}
    }
}

/// Inverse of [`split_low_bits`], in place: shifts `symbols` left and adds the bits of `lows`.
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

dispatch! {
    fn pack_1(symbols: &[u8], lows: &mut [u8]) {
        AVX512 | AVX2 | PORTABLE => pack::<1>,
    }
}
dispatch! {
    fn pack_2(symbols: &[u8], lows: &mut [u8]) {
        AVX512 | AVX2 | PORTABLE => pack::<2>,
    }
}
dispatch! {
    fn pack_3(symbols: &[u8], lows: &mut [u8]) {
        AVX512 | AVX2 | PORTABLE => pack::<3>,
    }
}
dispatch! {
    fn pack_4(symbols: &[u8], lows: &mut [u8]) {
        AVX512 | AVX2 | PORTABLE => pack::<4>,
    }
}
dispatch! {
    fn spread_1(symbols: &mut [u8], lows: &[u8]) {
        AVX512 | AVX2 | PORTABLE => spread::<1>,
    }
}
dispatch! {
    fn spread_2(symbols: &mut [u8], lows: &[u8]) {
        AVX512 | AVX2 | PORTABLE => spread::<2>,
    }
}
dispatch! {
    fn spread_3(symbols: &mut [u8], lows: &[u8]) {
        AVX512 | AVX2 | PORTABLE => spread::<3>,
    }
}
dispatch! {
    fn spread_4(symbols: &mut [u8], lows: &[u8]) {
        AVX512 | AVX2 | PORTABLE => spread::<4>,
    }
}

/// A mask with the lowest `bits` of every `stride` bits.
const fn mask(bits: usize, stride: usize) -> u64 {
    let (mut mask, mut at) = (0, 0);
    while at < 64 {
        mask |= ((1 << bits) - 1) << at;
        at += stride;
    }
    mask
}

#[inline(always)]
fn pack<const BITS: usize>(symbols: &[u8], lows: &mut [u8]) {
    let packed = |lane: u64| {
        let mut lane = lane & mask(BITS, 8);
        lane = (lane | lane >> (8 - BITS)) & mask(2 * BITS, 16);
        lane = (lane | lane >> (16 - 2 * BITS)) & mask(4 * BITS, 32);
        lane | lane >> (32 - 4 * BITS)
    };
    let (groups, rest) = symbols.as_chunks::<GROUP>();
    let (lows, lows_rest) = lows.split_at_mut(groups.len() * BITS);
    for (group, lows) in groups.iter().zip(lows.as_chunks_mut::<BITS>().0) {
        let bytes = packed(u64::from_le_bytes(*group)).to_le_bytes();
        *lows = std::array::from_fn(|at| bytes[at]);
    }
    let mut last = [0; GROUP];
    last[..rest.len()].copy_from_slice(rest);
    let bytes = packed(u64::from_le_bytes(last)).to_le_bytes();
    lows_rest.iter_mut().zip(bytes).for_each(|(low, byte)| *low = byte);
}

#[inline(always)]
fn spread<const BITS: usize>(symbols: &mut [u8], lows: &[u8]) {
    let merged = |highs: u64, lows: u64| {
        let mut lane = (lows | lows << (32 - 4 * BITS)) & mask(4 * BITS, 32);
        lane = (lane | lane << (16 - 2 * BITS)) & mask(2 * BITS, 16);
        lane = (lane | lane << (8 - BITS)) & mask(BITS, 8);
        highs << BITS & !mask(BITS, 8) | lane
    };
    let (groups, rest) = symbols.as_chunks_mut::<GROUP>();
    let (lows, lows_rest) = lows.split_at(groups.len() * BITS);
    for (group, lows) in groups.iter_mut().zip(lows.as_chunks::<BITS>().0) {
        let mut bytes = [0; GROUP];
        bytes[..BITS].copy_from_slice(lows);
        *group = merged(u64::from_le_bytes(*group), u64::from_le_bytes(bytes)).to_le_bytes();
    }
    let (mut last, mut bytes) = ([0; GROUP], [0; GROUP]);
    last[..rest.len()].copy_from_slice(rest);
    bytes[..lows_rest.len()].copy_from_slice(lows_rest);
    let last = merged(u64::from_le_bytes(last), u64::from_le_bytes(bytes)).to_le_bytes();
    rest.iter_mut().zip(last).for_each(|(symbol, byte)| *symbol = byte);
}
