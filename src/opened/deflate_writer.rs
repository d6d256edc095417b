//! Writes blocks of deflate as bits.

use super::codes::{BlockKind, Header, ORDER, extra_bits};
use super::symbols::{END_OF_BLOCK, Token, distance_code, fixed_lengths, length_code};

/// Writes bits, the lowest first, as deflate has them.
#[derive(Debug, Default)]
pub(super) struct DeflateWriter {
    out: Vec<u8>,
    bits: u64,
    count: u32,
}

impl DeflateWriter {
    /// Writes the lowest `count` (at most 32) bits.
    #[inline]
    pub(super) fn put(&mut self, value: u32, count: u32) {
        self.bits |= u64::from(value) << self.count;
        self.count += count;
        if self.count >= 32 {
            self.out.extend_from_slice(&(self.bits as u32).to_le_bytes());
            self.bits >>= 32;
            self.count -= 32;
        }
    }

    /// Fills the byte with bits of `padding`.
    pub(super) fn align(&mut self, padding: u32) {
        let count = (8 - self.count % 8) % 8;
        self.put(padding & ((1 << count) - 1), count);
        self.whole();
    }

    /// Drops the bits of a byte that is not whole.
    pub(super) fn cut(&mut self) {
        self.whole();
        self.bits = 0;
        self.count = 0;
    }

    fn whole(&mut self) {
        while self.count >= 8 {
            self.out.push(self.bits as u8);
            self.bits >>= 8;
            self.count -= 8;
        }
    }

    /// Moves the whole bytes to `to`.
    pub(super) fn drain(&mut self, to: &mut Vec<u8>) {
        self.whole();
        to.append(&mut self.out);
    }

    /// Writes the bytes of a stored block after its header.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.whole();
        self.out.extend_from_slice(bytes);
    }

    /// Writes the header of a stored block.
    pub(super) fn stored(&mut self, is_last: bool, padding: u32, len: u16) {
        self.put(u32::from(is_last), 3);
        self.align(padding);
        self.put(u32::from(len), 16);
        self.put(u32::from(!len), 16);
        self.whole();
    }

    /// Writes a block of tokens.
    pub(super) fn block(&mut self, is_last: bool, kind: &BlockKind, tokens: &[Token]) {
        let (literals, distances) = match kind {
            BlockKind::Dynamic(header) => {
                self.put(u32::from(is_last) | 2 << 1, 3);
                self.header(header);
                header.lengths().unwrap_or_default()
            }
            BlockKind::Fixed | BlockKind::Stored => {
                self.put(u32::from(is_last) | 1 << 1, 3);
                fixed_lengths()
            }
        };
        let literals: [(u32, u32); 288] = codes(&literals);
        let distances: [(u32, u32); 32] = codes(&distances);
        for &token in tokens {
            if !token.is_copy() {
                let (code, count) = literals[(token.0 & 0xFF) as usize];
                self.put(code, count);
                continue;
            }
            let length = length_code(token.len());
            let (code, count) = literals[length.symbol];
            self.put(code | length.extra << count, count + length.extra_bits);
            let distance = distance_code(token.distance());
            let (code, count) = distances[distance.symbol];
            self.put(code | distance.extra << count, count + distance.extra_bits);
        }
        let (code, count) = literals[END_OF_BLOCK];
        self.put(code, count);
    }

    fn header(&mut self, header: &Header) {
        self.put(header.literals as u32 - 257, 5);
        self.put(header.distances as u32 - 1, 5);
        self.put(header.code_lengths as u32 - 4, 4);
        for &symbol in &ORDER[..header.code_lengths] {
            self.put(u32::from(header.code_length_lengths[symbol]), 3);
        }
        let symbols: [(u32, u32); 19] = codes(&header.code_length_lengths);
        for &(symbol, extra) in &header.symbols {
            let (code, count) = symbols[usize::from(symbol)];
            self.put(code, count);
            self.put(u32::from(extra), extra_bits(symbol));
        }
    }
}

/// Codes with these lengths, their bits in the order in which they are written, with their lengths.
fn codes<const N: usize>(lengths: &[u8]) -> [(u32, u32); N] {
    let mut numbers = [0u32; 16];
    for &length in lengths {
        numbers[usize::from(length & 15)] += 1;
    }
    numbers[0] = 0;
    let mut next = [0u32; 16];
    for length in 1..16 {
        next[length] = (next[length - 1] + numbers[length - 1]) << 1;
    }
    let mut codes = [(0, 0); N];
    for (code, &length) in codes.iter_mut().zip(lengths) {
        if length > 0 {
            let length = u32::from(length & 15);
            let value = next[length as usize] & ((1 << length) - 1);
            *code = (value.reverse_bits() >> (32 - length), length);
            next[length as usize] += 1;
        }
    }
    codes
}
