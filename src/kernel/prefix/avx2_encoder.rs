//! The encoder for AVX2. A byte shuffle looks up 16 symbols of the alphabet. Bits of the symbol choose among the
//! results.
#![cfg(target_arch = "x86_64")]
#![expect(unsafe_code, reason = "loads and stores vectors")]

use std::arch::x86_64::*;

use super::PrefixCode;
use super::eights::{self, ALPHABET, CodeVectors, LENGTH_AT, MergedCodes, PUT_MAX, SymbolCodes, WIDTH};

/// Encodes like [`super::encoder::encode_portable`].
#[target_feature(enable = "avx2,bmi2")]
pub(super) fn encode(symbols: &[u8], code: &PrefixCode, out: &mut Vec<u8>) {
    eights::encode(symbols, code, out, |symbols, codes, symbol_codes, out| {
        encode_segment(symbols, codes, symbol_codes, out);
    });
}

#[target_feature(enable = "avx2,bmi2")]
fn encode_segment(symbols: &[u8], codes: &CodeVectors, symbol_codes: &SymbolCodes, out: &mut Vec<u8>) {
    let (low, high) = (load_rows(&codes.low), load_rows(&codes.high));
    eights::encode_stream(symbols, symbol_codes, out, |group| merged(group, &low, &high));
}

/// Rows of 16 bytes, each twice.
#[target_feature(enable = "avx2,bmi2")]
#[inline]
fn load_rows(rows: &[[u8; 16]; ALPHABET / 16]) -> [__m256i; ALPHABET / 16] {
    rows.each_ref().map(|row| {
        // SAFETY: the array is as long as the vector; the load needs no alignment.
        _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(row.as_ptr().cast()) })
    })
}

/// The merged codes of each eight symbols. `None` if one has more than [`PUT_MAX`] bits.
#[target_feature(enable = "avx2,bmi2")]
#[inline]
fn merged(symbols: &[u8; WIDTH], low: &[__m256i; 4], high: &[__m256i; 4]) -> Option<MergedCodes> {
    // SAFETY: the array is as long as the vector; the load needs no alignment.
    let symbols = unsafe { _mm256_loadu_si256(symbols.as_ptr().cast()) };
    let column = _mm256_and_si256(symbols, _mm256_set1_epi8(15));
    // The blends test the highest bit of each byte: bit 4 in `odd`, bit 5 in `upper`.
    let (odd, upper) = (_mm256_slli_epi16::<3>(symbols), _mm256_slli_epi16::<2>(symbols));
    let look_up = |rows: &[__m256i; 4]| {
        let row = |number: usize| _mm256_shuffle_epi8(rows[number], column);
        let (first, last) = (_mm256_blendv_epi8(row(0), row(1), odd), _mm256_blendv_epi8(row(2), row(3), odd));
        _mm256_blendv_epi8(first, last, upper)
    };
    let (low, high) = (look_up(low), look_up(high));
    let (a, a_bits) = fours(_mm256_unpacklo_epi8(low, high));
    let (b, b_bits) = fours(_mm256_unpackhi_epi8(low, high));
    let first_bits = _mm256_unpacklo_epi64(a_bits, b_bits);
    let bits = _mm256_add_epi64(first_bits, _mm256_unpackhi_epi64(a_bits, b_bits));
    let then = _mm256_sllv_epi64(_mm256_unpackhi_epi64(a, b), first_bits);
    let codes = _mm256_or_si256(_mm256_unpacklo_epi64(a, b), then);
    let too_many = _mm256_cmpgt_epi64(bits, _mm256_set1_epi64x(PUT_MAX.into()));
    if _mm256_testz_si256(too_many, too_many) == 0 {
        return None;
    }
    let (mut all, mut counts) = ([0; 4], [0; 4]);
    // SAFETY: the arrays are as long as the vectors; the stores need no alignment.
    unsafe {
        _mm256_storeu_si256(all.as_mut_ptr().cast(), codes);
        _mm256_storeu_si256(counts.as_mut_ptr().cast(), bits);
    }
    Some((all, counts))
}

/// The merged codes of each four symbols, and their numbers of bits. An entry is a length above a code.
#[target_feature(enable = "avx2,bmi2")]
#[inline]
fn fours(entries: __m256i) -> (__m256i, __m256i) {
    let codes = _mm256_and_si256(entries, _mm256_set1_epi16((1 << LENGTH_AT) - 1));
    let lengths = _mm256_srli_epi16::<{ LENGTH_AT as i32 }>(entries);
    let half = _mm256_set1_epi32(0xffff);
    let then = _mm256_sllv_epi32(_mm256_srli_epi32::<16>(codes), _mm256_and_si256(lengths, half));
    let twos = _mm256_or_si256(_mm256_and_si256(codes, half), then);
    let bits = _mm256_madd_epi16(lengths, _mm256_set1_epi16(1));
    let half = _mm256_set1_epi64x(0xffff_ffff);
    let first_bits = _mm256_and_si256(bits, half);
    let then = _mm256_sllv_epi64(_mm256_srli_epi64::<32>(twos), first_bits);
    let fours = _mm256_or_si256(_mm256_and_si256(twos, half), then);
    (fours, _mm256_add_epi64(first_bits, _mm256_srli_epi64::<32>(bits)))
}
