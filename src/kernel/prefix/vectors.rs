//! The encoder for AVX2: 32 symbols at a time, of which none are alike modulo 64.
//!
//! 1. The word of a symbol and its length are twelve and four bits, looked up by shuffles of bytes: one for each 16
//!    symbols of the alphabet, of whose results bits of the symbol choose.
//! 2. Neighbours are put together three times, each second word shifted by the length of the first: eight symbols are
//!    one number then, if they have at most 56 bits, which nearly all have.
//! 3. The numbers are collected in a register, of which eight bytes are stored without asking how many are whole.
#![expect(unsafe_code, reason = "loads and stores of vectors, and calls of functions for a processor that was asked")]

use std::arch::x86_64::*;

use super::SYMBOLS;
use crate::kernel::cpu_features::CpuFeatures;

/// Symbols that all differ modulo this can be looked up.
const ALPHABET: usize = 64;
/// Symbols at a time.
const WIDTH: usize = 32;
/// Symbols encoded between two times that whole bytes are appended.
const BLOCK: usize = 512;
/// Bytes of a block at most.
const BUFFER_BYTES: usize = 1024;
/// Bytes that are stored at once.
const STORE_BYTES: usize = size_of::<u64>();
/// Bits put at once, at most: with 7 bits left they are within eight bytes.
const PUT_MAX: i64 = 56;
/// Where a length is, above a word.
const LENGTH_AT: i32 = 12;

/// The words of an alphabet: low bytes, and the high bits below the lengths.
pub(super) struct Words {
    low: [[u8; 16]; ALPHABET / 16],
    high: [[u8; 16]; ALPHABET / 16],
}

/// A word, the first bit lowest, and its length, for each symbol; none has length zero.
pub(super) type Singles = [(u16, u8); SYMBOLS];

impl Words {
    /// None where the processor lacks what it takes, or two symbols that have a word are alike modulo [`ALPHABET`].
    pub(super) fn of(singles: &Singles) -> Option<Words> {
        if CpuFeatures::used() < CpuFeatures::Avx2 {
            return None;
        }
        let mut words = Words { low: [[0; 16]; ALPHABET / 16], high: [[0; 16]; ALPHABET / 16] };
        for (symbol, (word, length)) in singles.iter().enumerate().filter(|(_, (_, length))| *length > 0) {
            let (row, column) = (symbol % ALPHABET / 16, symbol % 16);
            if words.high[row][column] > 0 {
                return None;
            }
            [words.low[row][column], words.high[row][column]] = (word | u16::from(*length) << LENGTH_AT).to_le_bytes();
        }
        Some(words)
    }

    /// Appends the stream of `symbols`.
    pub(super) fn encode(&self, symbols: &[u8], singles: &Singles, out: &mut Vec<u8>) {
        // SAFETY: the processor has the features, or there were no words.
        unsafe { put_together(symbols, self, singles, out) }
    }
}

/// Bits not appended yet: fewer than eight between two stores.
struct Register {
    held: u64,
    count: u64,
    buffer: [u8; BUFFER_BYTES + STORE_BYTES],
    position: usize,
}

impl Register {
    /// Appends the `count` bits of `word`, at most [`PUT_MAX`].
    #[inline(always)]
    fn put(&mut self, word: u64, count: u64) {
        let (held, count) = (self.held | word << (self.count & 63), self.count + count);
        let at = self.position % BUFFER_BYTES;
        self.buffer[at..at + STORE_BYTES].copy_from_slice(&held.to_le_bytes());
        self.position += (count >> 3) as usize;
        (self.held, self.count) = (held >> (count & 0x38), count & 7);
    }

    /// Appends the whole bytes.
    fn flush(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.buffer[..self.position]);
        self.position = 0;
    }
}

#[target_feature(enable = "avx2,bmi2")]
fn put_together(symbols: &[u8], words: &Words, singles: &Singles, out: &mut Vec<u8>) {
    let rows = |rows: &[[u8; 16]; ALPHABET / 16]| -> [__m256i; ALPHABET / 16] {
        rows.each_ref().map(|row| {
            // SAFETY: the array is as long as the vector; the load needs no alignment.
            _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(row.as_ptr().cast()) })
        })
    };
    let (low, high) = (rows(&words.low), rows(&words.high));
    let mut register = Register { held: 0, count: 0, buffer: [0; BUFFER_BYTES + STORE_BYTES], position: 0 };
    for block in symbols.chunks(BLOCK) {
        let (groups, rest) = block.as_chunks::<WIDTH>();
        for group in groups {
            match eights(group, &low, &high) {
                Some((words, counts)) => {
                    words.into_iter().zip(counts).for_each(|(word, count)| register.put(word, count));
                }
                None => put_singles(group, singles, &mut register),
            }
        }
        put_singles(rest, singles, &mut register);
        register.flush(out);
    }
    if register.count > 0 {
        out.push(register.held as u8);
    }
}

#[inline(always)]
fn put_singles(symbols: &[u8], singles: &Singles, register: &mut Register) {
    for symbol in symbols {
        let (word, length) = singles[usize::from(*symbol)];
        register.put(u64::from(word), u64::from(length));
    }
}

/// The words of each eight symbols together, and their bits; none where those are too many.
#[target_feature(enable = "avx2,bmi2")]
#[inline]
fn eights(symbols: &[u8; WIDTH], low: &[__m256i; 4], high: &[__m256i; 4]) -> Option<([u64; 4], [u64; 4])> {
    // SAFETY: the array is as long as the vector; the load needs no alignment.
    let symbols = unsafe { _mm256_loadu_si256(symbols.as_ptr().cast()) };
    let column = _mm256_and_si256(symbols, _mm256_set1_epi8(15));
    // Bits 4 and 5 of each byte where the choice looks, which is at the highest.
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
    let words = _mm256_or_si256(_mm256_unpacklo_epi64(a, b), then);
    let too_many = _mm256_cmpgt_epi64(bits, _mm256_set1_epi64x(PUT_MAX));
    if _mm256_testz_si256(too_many, too_many) == 0 {
        return None;
    }
    let (mut all, mut counts) = ([0; 4], [0; 4]);
    // SAFETY: the arrays are as long as the vectors; the stores need no alignment.
    unsafe {
        _mm256_storeu_si256(all.as_mut_ptr().cast(), words);
        _mm256_storeu_si256(counts.as_mut_ptr().cast(), bits);
    }
    Some((all, counts))
}

/// Four words of 16 bits each, their lengths above them, put together, and their bits.
#[target_feature(enable = "avx2,bmi2")]
#[inline]
fn fours(entries: __m256i) -> (__m256i, __m256i) {
    let words = _mm256_and_si256(entries, _mm256_set1_epi16((1 << LENGTH_AT) - 1));
    let lengths = _mm256_srli_epi16::<LENGTH_AT>(entries);
    let half = _mm256_set1_epi32(0xffff);
    let then = _mm256_sllv_epi32(_mm256_srli_epi32::<16>(words), _mm256_and_si256(lengths, half));
    let twos = _mm256_or_si256(_mm256_and_si256(words, half), then);
    let bits = _mm256_madd_epi16(lengths, _mm256_set1_epi16(1));
    let half = _mm256_set1_epi64x(0xffff_ffff);
    let first_bits = _mm256_and_si256(bits, half);
    let then = _mm256_sllv_epi64(_mm256_srli_epi64::<32>(twos), first_bits);
    let fours = _mm256_or_si256(_mm256_and_si256(twos, half), then);
    (fours, _mm256_add_epi64(first_bits, _mm256_srli_epi64::<32>(bits)))
}
