//! The encoder for vectors: 32 symbols at a time, if all symbols of the code differ modulo 64.
//!
//! 1. A code has twelve bits and its length four. Byte shuffles look them up, as the alphabet is small.
//! 2. Adjacent codes are merged three times: the second one is shifted by the length of the first. Then the codes of
//!    eight symbols are one number, if they have at most 56 bits, as nearly all have.
//! 3. The numbers are collected in a register, and eight bytes are stored each time, whole or not.
//!
//! The loops differ in the first two steps.
#![cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]

use super::encoder::{encode_portable, encode_streams};
use super::{PrefixCode, SYMBOLS};

/// All symbols of a code must differ modulo this.
pub(super) const ALPHABET: usize = 64;
/// Symbols whose codes are merged at a time.
pub(super) const WIDTH: usize = 32;
/// Most bits appended at once: with 7 pending bits they fit into eight bytes.
pub(super) const PUT_MAX: u8 = 56;
/// Position of the length, above the code.
pub(super) const LENGTH_AT: u32 = 12;
/// Symbols encoded before the buffer is appended to the output.
const BLOCK: usize = 512;
/// Most bytes of a block.
const BUFFER_BYTES: usize = 1024;
/// Bytes of a store.
const STORE_BYTES: usize = size_of::<u64>();

/// The codes of an alphabet: their low bytes, and their high bits below their lengths.
pub(super) struct CodeVectors {
    pub(super) low: [[u8; 16]; ALPHABET / 16],
    pub(super) high: [[u8; 16]; ALPHABET / 16],
}

/// Merged codes of each eight symbols, and their numbers of bits.
pub(super) type MergedCodes = ([u64; WIDTH / 8], [u64; WIDTH / 8]);

/// Code (first bit lowest) and length for each symbol. Symbols without a code have length zero.
pub(super) type SymbolCodes = [(u16, u8); SYMBOLS];

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
/// `encode_segment` appends the stream of a segment.
#[inline(always)]
pub(super) fn encode(
    symbols: &[u8],
    code: &PrefixCode,
    out: &mut Vec<u8>,
    encode_segment: impl Fn(&[u8], &CodeVectors, &SymbolCodes, &mut Vec<u8>),
) {
    let mut symbol_codes = [(0, 0); SYMBOLS];
    for (symbol, code_bits, length) in code.codes() {
        symbol_codes[usize::from(symbol)] = (code_bits as u16, length as u8);
    }
    match CodeVectors::of(&symbol_codes) {
        Some(vectors) => {
            encode_streams(symbols, out, |symbols, out| encode_segment(symbols, &vectors, &symbol_codes, out));
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

/// Appends the stream of a segment. `merge` merges the codes of 32 symbols: `None` if eight have more than [`PUT_MAX`]
/// bits.
#[inline(always)]
pub(super) fn encode_stream(
    symbols: &[u8],
    symbol_codes: &SymbolCodes,
    out: &mut Vec<u8>,
    merge: impl Fn(&[u8; WIDTH]) -> Option<MergedCodes>,
) {
    let mut register = LowBitRegister { pending: 0, count: 0, buffer: [0; BUFFER_BYTES + STORE_BYTES], position: 0 };
    for block in symbols.chunks(BLOCK) {
        let (groups, rest) = block.as_chunks::<WIDTH>();
        for group in groups {
            match merge(group) {
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
