//! Packed bits: small numbers in consecutive bits, lowest bit of each byte first. Zeros fill the last byte.

use crate::error::{Error, Result};
use crate::wire::WireReader;

/// Appends numbers as packed bits.
pub(in crate::codec) struct BitWriter<'a> {
    out: &'a mut Vec<u8>,
    pending: u32,
    pending_bits: u32,
}

impl<'a> BitWriter<'a> {
    pub(in crate::codec) fn new(out: &'a mut Vec<u8>) -> Self {
        BitWriter { out, pending: 0, pending_bits: 0 }
    }

    /// Appends the lowest `count` bits of `value`, at most 24. The other bits of `value` are zero.
    pub(in crate::codec) fn put(&mut self, value: u32, count: u32) {
        self.pending |= value << self.pending_bits;
        self.pending_bits += count;
        while self.pending_bits >= 8 {
            self.out.push(self.pending as u8);
            self.pending >>= 8;
            self.pending_bits -= 8;
        }
    }

    /// Appends a number of 1 to 255 in Elias gamma code: `n` zeros, a one, then the `n` bits below the leading one.
    pub(in crate::codec) fn put_gamma(&mut self, value: u32) {
        let bits_below = value.ilog2();
        self.put(1 << bits_below, bits_below + 1);
        self.put(value & !(1 << bits_below), bits_below);
    }

    /// Appends the last byte if it is incomplete.
    pub(in crate::codec) fn finish(self) {
        if self.pending_bits > 0 {
            self.out.push(self.pending as u8);
        }
    }
}

/// Reads numbers from packed bits.
pub(super) struct BitReader<'a, 'b> {
    reader: &'a mut WireReader<'b>,
    pending: u32,
    pending_bits: u32,
}

impl<'a, 'b> BitReader<'a, 'b> {
    pub(super) fn new(reader: &'a mut WireReader<'b>) -> Self {
        BitReader { reader, pending: 0, pending_bits: 0 }
    }

    /// The next `count` bits, at most 16.
    pub(super) fn take(&mut self, count: u32) -> Result<u32> {
        while self.pending_bits < count {
            self.pending |= u32::from(self.reader.u8()?) << self.pending_bits;
            self.pending_bits += 8;
        }
        let value = self.pending & ((1 << count) - 1);
        self.pending >>= count;
        self.pending_bits -= count;
        Ok(value)
    }

    /// The next number in Elias gamma code, 1 to 255.
    pub(super) fn take_gamma(&mut self) -> Result<u32> {
        let mut bits_below = 0;
        while self.take(1)? == 0 {
            bits_below += 1;
            if bits_below == 8 {
                return Err(self.error("a run of at most 255 symbols", "a longer one"));
            }
        }
        Ok(1 << bits_below | self.take(bits_below)?)
    }

    /// An error at the current offset.
    pub(super) fn error(&self, expected: impl Into<String>, got: impl Into<String>) -> Error {
        self.reader.error(expected, got)
    }
}
