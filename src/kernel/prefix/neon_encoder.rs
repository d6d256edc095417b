//! The encoder for NEON. A shuffle of 64 bytes looks up all symbols of an alphabet at once.
//!
//! The first merge is a product with a power of two, as a vector of bytes becomes one of twice the size. The shifts of
//! the others take the lowest byte of a lane: the bytes above it may be anything.
#![cfg(target_arch = "aarch64")]
#![expect(unsafe_code, reason = "loads of vectors")]

use std::arch::aarch64::*;

use super::PrefixCode;
use super::eights::{self, ALPHABET, CodeVectors, LENGTH_AT, MergedCodes, PUT_MAX, SymbolCodes, WIDTH};

/// Encodes like [`super::encoder::encode_portable`].
#[target_feature(enable = "neon")]
pub(super) fn encode(symbols: &[u8], code: &PrefixCode, out: &mut Vec<u8>) {
    eights::encode(symbols, code, out, |symbols, codes, symbol_codes, out| {
        encode_segment(symbols, codes, symbol_codes, out);
    });
}

#[target_feature(enable = "neon")]
fn encode_segment(symbols: &[u8], codes: &CodeVectors, symbol_codes: &SymbolCodes, out: &mut Vec<u8>) {
    let (low, high) = (load_table(&codes.low), load_table(&codes.high));
    eights::encode_stream(symbols, symbol_codes, out, |group| merged(group, low, high));
}

#[target_feature(enable = "neon")]
#[inline]
fn load_table(rows: &[[u8; 16]; ALPHABET / 16]) -> uint8x16x4_t {
    // SAFETY: the array is as long as the four vectors; the load needs no alignment.
    unsafe { vld1q_u8_x4(rows.as_flattened().as_ptr()) }
}

/// The merged codes of each eight symbols. `None` if one has more than [`PUT_MAX`] bits.
#[target_feature(enable = "neon")]
#[inline]
fn merged(symbols: &[u8; WIDTH], low: uint8x16x4_t, high: uint8x16x4_t) -> Option<MergedCodes> {
    let (twos, two_bits) = twos(symbols, low, high);
    let (fours, four_bits) = fours(twos, two_bits);
    let bits = vpaddlq_u16(four_bits);
    if vmaxvq_u32(bits) > u32::from(PUT_MAX) {
        return None;
    }
    let shifts = vreinterpretq_u32_u16(four_bits);
    let merge = |one: uint64x2_t, other: uint64x2_t, shifts: uint32x4_t| {
        let then = vshlq_u64(vuzp2q_u64(one, other), vreinterpretq_s64_u32(shifts));
        vorrq_u64(vuzp1q_u64(one, other), then)
    };
    let [a, b, c, d] = fours;
    let (one, other) = (merge(a, b, vzip1q_u32(shifts, shifts)), merge(c, d, vzip2q_u32(shifts, shifts)));
    let codes = [one, other].map(|codes| [vgetq_lane_u64::<0>(codes), vgetq_lane_u64::<1>(codes)]);
    let counts = [vmovl_u32(vget_low_u32(bits)), vmovl_high_u32(bits)];
    let counts = counts.map(|counts| [vgetq_lane_u64::<0>(counts), vgetq_lane_u64::<1>(counts)]);
    Some((
        [codes[0][0], codes[0][1], codes[1][0], codes[1][1]],
        [counts[0][0], counts[0][1], counts[1][0], counts[1][1]],
    ))
}

/// The merged codes of each two symbols, and their numbers of bits.
#[target_feature(enable = "neon")]
#[inline]
fn twos(symbols: &[u8; WIDTH], low: uint8x16x4_t, high: uint8x16x4_t) -> ([uint32x4_t; 4], uint8x16_t) {
    // SAFETY: the array is as long as the two vectors; the load needs no alignment.
    let uint8x16x2_t(even, odd) = unsafe { vld2q_u8(symbols.as_ptr()) };
    let [even, odd] = [even, odd].map(|symbols| {
        let symbols = vandq_u8(symbols, vdupq_n_u8(ALPHABET as u8 - 1));
        let (low, high) = (vqtbl4q_u8(low, symbols), vqtbl4q_u8(high, symbols));
        let (bits, high) = (vshrq_n_u8::<{ LENGTH_AT as i32 - 8 }>(high), vandq_u8(high, vdupq_n_u8(15)));
        (vreinterpretq_u16_u8(vzip1q_u8(low, high)), vreinterpretq_u16_u8(vzip2q_u8(low, high)), bits)
    });
    let power = |bits: uint16x8_t| vshlq_u16(vdupq_n_u16(1), vreinterpretq_s16_u16(bits));
    let (first, last) = (power(vmovl_u8(vget_low_u8(even.2))), power(vmovl_high_u8(even.2)));
    let low = |even: uint16x8_t, odd: uint16x8_t, power: uint16x8_t| {
        vmlal_u16(vmovl_u16(vget_low_u16(even)), vget_low_u16(odd), vget_low_u16(power))
    };
    let high = |even: uint16x8_t, odd: uint16x8_t, power: uint16x8_t| vmlal_high_u16(vmovl_high_u16(even), odd, power);
    let codes =
        [low(even.0, odd.0, first), high(even.0, odd.0, first), low(even.1, odd.1, last), high(even.1, odd.1, last)];
    (codes, vaddq_u8(even.2, odd.2))
}

/// The merged codes of each four symbols, and their numbers of bits.
#[target_feature(enable = "neon")]
#[inline]
fn fours(twos: [uint32x4_t; 4], bits: uint8x16_t) -> ([uint64x2_t; 4], uint16x8_t) {
    let shifts = vreinterpretq_u16_u8(bits);
    let halves = [vzip1q_u16(shifts, shifts), vzip2q_u16(shifts, shifts)].map(|half| vreinterpretq_u32_u16(half));
    let [a, b] = halves.map(|half| [vzip1q_u32(half, half), vzip2q_u32(half, half)]);
    let merge = |codes: uint32x4_t, shifts: uint32x4_t| {
        let codes = vreinterpretq_u64_u32(codes);
        let then = vshlq_u64(vshrq_n_u64::<32>(codes), vreinterpretq_s64_u32(shifts));
        vorrq_u64(vandq_u64(codes, vdupq_n_u64(0xffff_ffff)), then)
    };
    let [p, q, r, s] = twos;
    ([merge(p, a[0]), merge(q, a[1]), merge(r, b[0]), merge(s, b[1])], vpaddlq_u8(bits))
}
