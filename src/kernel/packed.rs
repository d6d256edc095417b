//! Bits: small numbers in a run of bits, the lowest of a byte first, the last byte filled with zeros.

use crate::error::{Error, Result};
use crate::wire::Reader;

/// Appends bits to bytes.
pub(super) struct BitWriter<'a> {
    out: &'a mut Vec<u8>,
    held: u32,
    count: u32,
}

impl<'a> BitWriter<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>) -> Self {
        BitWriter { out, held: 0, count: 0 }
    }

    /// At most 24 bits.
    pub(super) fn put(&mut self, value: u32, count: u32) {
        self.held |= value << self.count;
        self.count += count;
        while self.count >= 8 {
            self.out.push(self.held as u8);
            self.held >>= 8;
            self.count -= 8;
        }
    }

    /// Zero bits, one less than the number has, then the number from its leading one on.
    pub(super) fn put_gamma(&mut self, value: u32) {
        let more = value.ilog2();
        self.put(1 << more, more + 1);
        self.put(value & !(1 << more), more);
    }

    /// Appends what is left.
    pub(super) fn finish(self) {
        if self.count > 0 {
            self.out.push(self.held as u8);
        }
    }
}

/// Takes bits from bytes.
pub(super) struct BitReader<'a, 'b> {
    reader: &'a mut Reader<'b>,
    held: u32,
    count: u32,
}

impl<'a, 'b> BitReader<'a, 'b> {
    pub(super) fn new(reader: &'a mut Reader<'b>) -> Self {
        BitReader { reader, held: 0, count: 0 }
    }

    /// At most 16 bits.
    pub(super) fn take(&mut self, count: u32) -> Result<u32> {
        while self.count < count {
            self.held |= u32::from(self.reader.u8()?) << self.count;
            self.count += 8;
        }
        let value = self.held & ((1 << count) - 1);
        self.held >>= count;
        self.count -= count;
        Ok(value)
    }

    /// A number of at most 8 bits.
    pub(super) fn take_gamma(&mut self) -> Result<u32> {
        let mut more = 0;
        while self.take(1)? == 0 {
            more += 1;
            if more == 8 {
                return Err(self.error("a run of at most 255 symbols", "a longer one"));
            }
        }
        Ok(1 << more | self.take(more)?)
    }

    /// An error at the current offset.
    pub(super) fn error(&self, expected: impl Into<String>, got: impl Into<String>) -> Error {
        self.reader.error(expected, got)
    }
}
