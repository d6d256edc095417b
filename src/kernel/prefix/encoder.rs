//! The encoder: words of single symbols, or of pairs, put together in a register; with AVX2, see [`super::vectors`].

use super::{LENGTHS_BYTES, PrefixCode, STREAMS, SYMBOLS, segment_len};
use crate::kernel::vector::up_to_avx2;

/// Symbols that all differ modulo this have a table of pairs.
const PAIR_SYMBOLS: usize = 64;
const PAIRS: usize = PAIR_SYMBOLS * PAIR_SYMBOLS;
/// Symbols for which a table of pairs is made, at least.
const PAIRED_MIN: usize = 4 * PAIRS;
/// Symbols whose pairs are numbered at a time.
const BLOCK: usize = 512;
/// Bytes that are stored at once.
const STORE_BYTES: usize = size_of::<u64>();
/// Bits put at once, at most: with 7 bits left they do not reach down to an entry's length.
const PUT_MAX: u64 = 64 - 8 - 7;
/// Bytes of a block at most.
const BUFFER_BYTES: usize = 1024;
/// The length in an entry. Its word is in the highest bits.
const LENGTH_MASK: u64 = 0xff;

/// Appends the encoding of `symbols`. Each must have a word in `code`: the encoding is not decoded to the same symbols
/// otherwise.
pub fn encode(symbols: &[u8], code: &PrefixCode, out: &mut Vec<u8>) {
    #[cfg(target_arch = "x86_64")]
    {
        let mut singles = [(0, 0); SYMBOLS];
        for (symbol, word, length) in code.codes() {
            singles[usize::from(symbol)] = (word as u16, length as u8);
        }
        if let Some(words) = super::vectors::Words::of(&singles) {
            return encode_streams(symbols, out, |symbols, out| words.encode(symbols, &singles, out));
        }
    }
    encode_in_order(symbols, code, out);
}

/// [`encode`] on any processor.
pub(super) fn encode_in_order(symbols: &[u8], code: &PrefixCode, out: &mut Vec<u8>) {
    let mut singles = [0u64; SYMBOLS];
    for (symbol, word, length) in code.codes() {
        singles[usize::from(symbol)] = u64::from(word) << (64 - length) | u64::from(length);
    }
    let mut pairs = [0; PAIRS];
    let is_paired = symbols.len() >= PAIRED_MIN && fill_pairs(&singles, &mut pairs);
    let pairs = is_paired.then_some(&pairs);
    encode_streams(symbols, out, |symbols, out| encode_stream(symbols, &singles, pairs, out));
}

/// Appends the streams that `encode` makes, behind their lengths.
fn encode_streams(symbols: &[u8], out: &mut Vec<u8>, encode: impl Fn(&[u8], &mut Vec<u8>)) {
    let start = out.len();
    out.resize(start + LENGTHS_BYTES, 0);
    let mut segments = symbols.chunks(segment_len(symbols.len()).max(1));
    for stream in 0..STREAMS {
        let from = out.len();
        encode(segments.next().unwrap_or_default(), out);
        let length = ((out.len() - from) as u32).to_le_bytes();
        if stream < STREAMS - 1 {
            out[start + stream * length.len()..][..length.len()].copy_from_slice(&length);
        }
    }
}

/// Joins the words of all pairs of symbols; false where two that have one are alike modulo [`PAIR_SYMBOLS`].
fn fill_pairs(singles: &[u64; SYMBOLS], pairs: &mut [u64; PAIRS]) -> bool {
    let mut own = [0u64; PAIR_SYMBOLS];
    for (symbol, single) in singles.iter().enumerate().filter(|(_, single)| **single > 0) {
        let own = &mut own[symbol % PAIR_SYMBOLS];
        if *own > 0 {
            return false;
        }
        *own = *single;
    }
    for (then, row) in own.iter().zip(pairs.as_chunks_mut::<PAIR_SYMBOLS>().0).filter(|(then, _)| **then > 0) {
        for (first, pair) in own.iter().zip(row) {
            *pair = joined(*first, *then);
        }
    }
    true
}

/// Bits not appended yet, in the highest places: fewer than eight between two stores.
struct Register {
    held: u64,
    count: u64,
    /// Whole bytes.
    buffer: [u8; BUFFER_BYTES + STORE_BYTES],
    position: usize,
}

impl Register {
    /// Appends a word of at most [`PUT_MAX`] bits. Lengths of entries come to lie below the bits held.
    #[inline(always)]
    fn put(&mut self, entry: u64) {
        let (held, count) = (self.held >> (entry & 63) | entry, self.count.wrapping_add(entry) & LENGTH_MASK);
        let bits = held >> (count.wrapping_neg() & 63);
        let at = self.position % BUFFER_BYTES;
        self.buffer[at..at + STORE_BYTES].copy_from_slice(&bits.to_le_bytes());
        self.position += (count >> 3) as usize;
        (self.held, self.count) = (held, count & 7);
    }

    /// Appends the whole bytes.
    fn flush(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.buffer[..self.position]);
        self.position = 0;
    }
}

/// Puts the words of two entries together, those of the first one first.
#[inline(always)]
fn joined(first: u64, then: u64) -> u64 {
    ((first & !LENGTH_MASK) >> (then & 63)) + (first & LENGTH_MASK) + then
}

up_to_avx2! {
    fn encode_stream(symbols: &[u8], singles: &[u64; SYMBOLS], pairs: Option<&[u64; PAIRS]>, out: &mut Vec<u8>)
        = put_together
}

#[inline(always)]
fn put_together(symbols: &[u8], singles: &[u64; SYMBOLS], pairs: Option<&[u64; PAIRS]>, out: &mut Vec<u8>) {
    let mut register = Register { held: 0, count: 0, buffer: [0; BUFFER_BYTES + STORE_BYTES], position: 0 };
    let (blocks, rest) = symbols.as_chunks::<BLOCK>();
    for block in blocks {
        match pairs {
            Some(pairs) => put_pairs(block, pairs, &mut register),
            None => put_singles(block, singles, &mut register),
        }
        register.flush(out);
    }
    put_singles(rest, singles, &mut register);
    register.put(0);
    register.position += usize::from(register.count > 0);
    register.flush(out);
}

#[inline(always)]
fn put_pairs(block: &[u8; BLOCK], pairs: &[u64; PAIRS], register: &mut Register) {
    let mut numbers = [0u16; BLOCK / 2];
    for (number, pair) in numbers.iter_mut().zip(block.as_chunks().0) {
        let pair = u16::from_le_bytes(*pair);
        *number = pair % PAIR_SYMBOLS as u16 + (pair >> 8) % PAIR_SYMBOLS as u16 * PAIR_SYMBOLS as u16;
    }
    for four in numbers.as_chunks::<4>().0 {
        let [a, b, c, d] = four.map(|number| pairs[usize::from(number) % PAIRS]);
        let (b_to, d_to) = (a.wrapping_add(b), c.wrapping_add(d));
        if b_to.wrapping_add(d_to) & LENGTH_MASK <= PUT_MAX {
            let ab = a >> (b & 63) | b;
            let cd = c >> (d & 63) | d;
            let bits = ab >> (d_to & 63) | cd;
            register.put(bits & !LENGTH_MASK | b_to.wrapping_add(d_to) & LENGTH_MASK);
        } else {
            [a, b, c, d].into_iter().for_each(|pair| register.put(pair));
        }
    }
}

#[inline(always)]
fn put_singles(symbols: &[u8], singles: &[u64; SYMBOLS], register: &mut Register) {
    let (fours, rest) = symbols.as_chunks::<4>();
    for four in fours {
        let [a, b, c, d] = four.map(|symbol| singles[usize::from(symbol)]);
        register.put(joined(joined(a, b), joined(c, d)));
    }
    rest.iter().for_each(|symbol| register.put(singles[usize::from(*symbol)]));
}
