//! The encoder for AVX2: 32 symbols at a time, if all symbols of the code differ modulo 64.
//!
//! 1. A code has twelve bits and its length four. Byte shuffles look them up: one for each 16 symbols of the alphabet.
//!    Bits of the symbol choose among the results.
//! 2. Adjacent codes are merged three times: the second one is shifted by the length of the first. Then the codes of
//!    eight symbols are one number, if they have at most 56 bits, as nearly all have.
//! 3. The numbers are collected in a register, and eight bytes are stored each time, whole or not.
#![cfg(target_arch = "x86_64")]
#![expect(unsafe_code, reason = "loads and stores vectors")]

use std::arch::x86_64::*;

use super::encoder::{encode_portable, encode_streams};
use super::{PrefixCode, SYMBOLS};

/// All symbols of a code must differ modulo this.
const ALPHABET: usize = 64;
/// Symbols of a vector.
const WIDTH: usize = 32;
/// Symbols encoded before the buffer is appended to the output.
const BLOCK: usize = 512;
/// Most bytes of a block.
const BUFFER_BYTES: usize = 1024;
/// Bytes of a store.
const STORE_BYTES: usize = size_of::<u64>();
/// Most bits appended at once: with 7 pending bits they fit into eight bytes.
const PUT_MAX: i64 = 56;
/// Position of the length, above the code.
const LENGTH_AT: i32 = 12;

/// The codes of an alphabet: their low bytes, and their high bits below their lengths.
struct CodeVectors {
    low: [[u8; 16]; ALPHABET / 16],
    high: [[u8; 16]; ALPHABET / 16],
}

/// Code (first bit lowest) and length for each symbol. Symbols without a code have length zero.
type SymbolCodes = [(u16, u8); SYMBOLS];

impl CodeVectors {
    /// `None` if two symbols with a code are equal modulo [`ALPHABET`].
    fn of(symbol_codes: &SymbolCodes) -> Option<CodeVectors> {
        let mut codes = CodeVectors { low: [[0; 16]; ALPHABET / 16], high: [[0; 16]; ALPHABET / 16] };
        for (symbol, (code, length)) in symbol_codes.iter().enumerate().filter(|(_, (_, length))| *length > 0) {
            let (row, column) = (symbol % ALPHABET / 16, symbol % 16);
            if codes.high[row][column] > 0 {
                return None;
            }
            [codes.low[row][column], codes.high[row][column]] = (code | u16::from(*length) << LENGTH_AT).to_le_bytes();
        }
        Some(codes)
    }
}

/// Encodes like [`encode_portable`], and with it if two symbols with a code are equal modulo [`ALPHABET`].
#[target_feature(enable = "avx2,bmi2")]
pub(super) fn encode(symbols: &[u8], code: &PrefixCode, out: &mut Vec<u8>) {
    let mut symbol_codes = [(0, 0); SYMBOLS];
    for (symbol, code_bits, length) in code.codes() {
        symbol_codes[usize::from(symbol)] = (code_bits as u16, length as u8);
    }
    match CodeVectors::of(&symbol_codes) {
        Some(vectors) => {
            encode_streams(symbols, out, |symbols, out| encode_stream(symbols, &vectors, &symbol_codes, out));
        }
        None => encode_portable(symbols, code, out),
    }
}

/// Collects bits, the pending ones in the lowest bits: fewer than eight after each store.
struct LowBitRegister {
    pending: u64,
    count: u64,
    /// The first `position` bytes are whole.
    buffer: [u8; BUFFER_BYTES + STORE_BYTES],
    position: usize,
}

impl LowBitRegister {
    /// Appends the `count` bits of `code`, at most [`PUT_MAX`].
    #[inline(always)]
    fn put(&mut self, code: u64, count: u64) {
        let (pending, count) = (self.pending | code << (self.count & 63), self.count + count);
        let at = self.position % BUFFER_BYTES;
        self.buffer[at..at + STORE_BYTES].copy_from_slice(&pending.to_le_bytes());
        self.position += (count >> 3) as usize;
        (self.pending, self.count) = (pending >> (count & 0x38), count & 7);
    }

    /// Appends the whole bytes to `out`.
    fn flush(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.buffer[..self.position]);
        self.position = 0;
    }
}

#[target_feature(enable = "avx2,bmi2")]
fn encode_stream(symbols: &[u8], codes: &CodeVectors, symbol_codes: &SymbolCodes, out: &mut Vec<u8>) {
    let rows = |rows: &[[u8; 16]; ALPHABET / 16]| -> [__m256i; ALPHABET / 16] {
        rows.each_ref().map(|row| {
            // SAFETY: the array is as long as the vector; the load needs no alignment.
            _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(row.as_ptr().cast()) })
        })
    };
    let (low, high) = (rows(&codes.low), rows(&codes.high));
    let mut register = LowBitRegister { pending: 0, count: 0, buffer: [0; BUFFER_BYTES + STORE_BYTES], position: 0 };
    for block in symbols.chunks(BLOCK) {
        let (groups, rest) = block.as_chunks::<WIDTH>();
        for group in groups {
            match eights(group, &low, &high) {
                Some((codes, counts)) => {
                    codes.into_iter().zip(counts).for_each(|(code, count)| register.put(code, count));
                }
                None => put_symbols(group, symbol_codes, &mut register),
            }
        }
        put_symbols(rest, symbol_codes, &mut register);
        register.flush(out);
    }
    if register.count > 0 {
        out.push(register.pending as u8);
    }
}

#[inline(always)]
fn put_symbols(symbols: &[u8], symbol_codes: &SymbolCodes, register: &mut LowBitRegister) {
    for symbol in symbols {
        let (code, length) = symbol_codes[usize::from(*symbol)];
        register.put(u64::from(code), u64::from(length));
    }
}

/// The merged codes of each eight symbols, and their numbers of bits. `None` if one has more than [`PUT_MAX`] bits.
#[target_feature(enable = "avx2,bmi2")]
#[inline]
fn eights(symbols: &[u8; WIDTH], low: &[__m256i; 4], high: &[__m256i; 4]) -> Option<([u64; 4], [u64; 4])> {
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
    let too_many = _mm256_cmpgt_epi64(bits, _mm256_set1_epi64x(PUT_MAX));
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
    let lengths = _mm256_srli_epi16::<LENGTH_AT>(entries);
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
