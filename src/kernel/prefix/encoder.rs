//! The encoder: collects the codes of entry symbols, or of pairs, in a register. See [`super::eights`] for vectors.

use super::{LENGTHS_BYTES, PrefixCode, STREAMS, SYMBOLS, segment_len};
use crate::kernel::dispatch::dispatch;

/// A table of pairs is possible if all symbols of the code differ modulo this.
const PAIR_SYMBOLS: usize = 64;
const PAIRS: usize = PAIR_SYMBOLS * PAIR_SYMBOLS;
/// Fewest symbols for which a table of pairs is made.
const PAIRED_MIN: usize = 4 * PAIRS;
/// Symbols whose pair numbers are computed at a time.
const BLOCK: usize = 512;
/// Bytes of a store.
const STORE_BYTES: usize = size_of::<u64>();
/// Most bits appended at once: with 7 pending bits they stay above an entry's length.
const PUT_MAX: u64 = 64 - 8 - 7;
/// Most bytes of a block.
const BUFFER_BYTES: usize = 1024;
/// Mask of the length in an entry. The code is in the highest bits.
const LENGTH_MASK: u64 = 0xff;

dispatch! {
    /// Appends the encoding of `symbols` to `out`. Every symbol must have a code: otherwise the encoding decodes to
    /// other symbols.
    pub fn encode(symbols: &[u8], code: &PrefixCode, out: &mut Vec<u8>) {
        AVX2 => super::avx2_encoder::encode,
        NEON => super::neon_encoder::encode,
        PORTABLE => encode_portable,
    }
}

/// [`encode`] for any processor.
pub(super) fn encode_portable(symbols: &[u8], code: &PrefixCode, out: &mut Vec<u8>) {
    let mut entries = [0u64; SYMBOLS];
    for (symbol, code_bits, length) in code.codes() {
        entries[usize::from(symbol)] = u64::from(code_bits) << (64 - length) | u64::from(length);
    }
    let mut pairs = [0; PAIRS];
    let is_paired = symbols.len() >= PAIRED_MIN && fill_pairs(&entries, &mut pairs);
    let pairs = is_paired.then_some(&pairs);
    encode_streams(symbols, out, |symbols, out| encode_stream(symbols, &entries, pairs, out));
}

/// Appends the lengths of the streams, then the streams that `encode` appends for each segment.
pub(super) fn encode_streams(symbols: &[u8], out: &mut Vec<u8>, encode: impl Fn(&[u8], &mut Vec<u8>)) {
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

/// Merges the codes of all pairs of symbols. False if two symbols with a code are equal modulo [`PAIR_SYMBOLS`].
fn fill_pairs(entries: &[u64; SYMBOLS], pairs: &mut [u64; PAIRS]) -> bool {
    let mut by_remainder = [0u64; PAIR_SYMBOLS];
    for (symbol, entry) in entries.iter().enumerate().filter(|(_, entry)| **entry > 0) {
        let by_remainder = &mut by_remainder[symbol % PAIR_SYMBOLS];
        if *by_remainder > 0 {
            return false;
        }
        *by_remainder = *entry;
    }
    for (then, row) in by_remainder.iter().zip(pairs.as_chunks_mut::<PAIR_SYMBOLS>().0).filter(|(then, _)| **then > 0) {
        for (first, pair) in by_remainder.iter().zip(row) {
            *pair = merged(*first, *then);
        }
    }
    true
}

/// Collects bits, the pending ones in the highest bits: fewer than eight after each store.
struct HighBitRegister {
    pending: u64,
    count: u64,
    /// The first `position` bytes are whole.
    buffer: [u8; BUFFER_BYTES + STORE_BYTES],
    position: usize,
}

impl HighBitRegister {
    /// Appends the code of an entry, at most [`PUT_MAX`] bits. The entry's length stays below the pending bits.
    #[inline(always)]
    fn put(&mut self, entry: u64) {
        let (pending, count) = (self.pending >> (entry & 63) | entry, self.count.wrapping_add(entry) & LENGTH_MASK);
        let bits = pending >> (count.wrapping_neg() & 63);
        let at = self.position % BUFFER_BYTES;
        self.buffer[at..at + STORE_BYTES].copy_from_slice(&bits.to_le_bytes());
        self.position += (count >> 3) as usize;
        (self.pending, self.count) = (pending, count & 7);
    }

    /// Appends the whole bytes to `out`.
    fn flush(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.buffer[..self.position]);
        self.position = 0;
    }
}

/// Merges the codes of two entries.
#[inline(always)]
fn merged(first: u64, then: u64) -> u64 {
    ((first & !LENGTH_MASK) >> (then & 63)) + (first & LENGTH_MASK) + then
}

dispatch! {
    fn encode_stream(symbols: &[u8], entries: &[u64; SYMBOLS], pairs: Option<&[u64; PAIRS]>, out: &mut Vec<u8>) {
        AVX2 | PORTABLE => encode_stream_loop,
    }
}

#[inline(always)]
fn encode_stream_loop(symbols: &[u8], entries: &[u64; SYMBOLS], pairs: Option<&[u64; PAIRS]>, out: &mut Vec<u8>) {
    let mut register = HighBitRegister { pending: 0, count: 0, buffer: [0; BUFFER_BYTES + STORE_BYTES], position: 0 };
    let (blocks, rest) = symbols.as_chunks::<BLOCK>();
    for block in blocks {
        match pairs {
            Some(pairs) => put_pairs(block, pairs, &mut register),
            None => put_symbols(block, entries, &mut register),
        }
        register.flush(out);
    }
    put_symbols(rest, entries, &mut register);
    register.put(0);
    register.position += usize::from(register.count > 0);
    register.flush(out);
}

#[inline(always)]
fn put_pairs(block: &[u8; BLOCK], pairs: &[u64; PAIRS], register: &mut HighBitRegister) {
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
fn put_symbols(symbols: &[u8], entries: &[u64; SYMBOLS], register: &mut HighBitRegister) {
    let (fours, rest) = symbols.as_chunks::<4>();
    for four in fours {
        let [a, b, c, d] = four.map(|symbol| entries[usize::from(symbol)]);
        register.put(merged(merged(a, b), merged(c, d)));
    }
    rest.iter().for_each(|symbol| register.put(entries[usize::from(*symbol)]));
}
