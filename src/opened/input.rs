//! Buffered input of the analysis, read by bytes or by bits, with a mark to come back to.

use std::io::{self, Read};

/// Bytes read from the input at once.
const READ_BYTES: usize = 64 << 10;

/// The input. Bytes from the mark on are kept.
#[derive(Debug)]
pub(super) struct BitInput<R> {
    inner: R,
    buf: Vec<u8>,
    mark: usize,
    /// Next byte that is not in `bits`.
    pos: usize,
    bits: u64,
    bit_count: u32,
    ended: bool,
    fault: Option<io::Error>,
    /// Bytes dropped from the front of `buf`.
    dropped: u64,
}

impl<R: Read> BitInput<R> {
    pub(super) fn new(inner: R) -> Self {
        BitInput {
            inner,
            buf: Vec::new(),
            mark: 0,
            pos: 0,
            bits: 0,
            bit_count: 0,
            ended: false,
            fault: None,
            dropped: 0,
        }
    }

    /// Tries to have `count` bytes ahead; gives those that are there. Call at a byte boundary.
    pub(super) fn peek(&mut self, count: usize) -> io::Result<&[u8]> {
        while self.buf.len() - self.pos < count && !self.ended {
            self.refill();
        }
        self.check()?;
        Ok(&self.buf[self.pos..])
    }

    /// The fault of the input, if it had one. It stays, so that nobody takes the bytes so far for all.
    pub(super) fn check(&self) -> io::Result<()> {
        match &self.fault {
            Some(error) => Err(io::Error::new(error.kind(), error.to_string())),
            None => Ok(()),
        }
    }

    /// Goes on by bytes that [`BitInput::peek`] gave.
    pub(super) fn skip(&mut self, count: usize) {
        self.pos += count;
    }

    /// Position in bits from the start of the input.
    pub(super) fn bit_position(&self) -> u64 {
        (self.dropped + self.pos as u64) * 8 - u64::from(self.bit_count)
    }

    /// Drops what lies before the current position, and lets [`BitInput::rewind`] come back to here.
    pub(super) fn set_mark(&mut self) {
        self.mark = self.pos - (self.bit_count / 8) as usize;
        if !self.bit_count.is_multiple_of(8) {
            self.mark -= 1;
        }
        if self.mark >= READ_BYTES {
            self.buf.drain(..self.mark);
            self.pos -= self.mark;
            self.dropped += self.mark as u64;
            self.mark = 0;
        }
    }

    /// Goes to a position in bits that is not before the byte of the mark.
    pub(super) fn rewind(&mut self, bit_position: u64) {
        self.pos = (bit_position / 8 - self.dropped) as usize;
        self.bits = 0;
        self.bit_count = 0;
        let part = (bit_position % 8) as u32;
        if part > 0 {
            self.bits = u64::from(self.buf[self.pos]) >> part;
            self.bit_count = 8 - part;
            self.pos += 1;
        }
    }

    fn refill(&mut self) {
        let len = self.buf.len();
        self.buf.resize(len + READ_BYTES, 0);
        let read = loop {
            match self.inner.read(&mut self.buf[len..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.fault = Some(error);
                    break 0;
                }
                Ok(read) => break read,
            }
        };
        self.buf.truncate(len + read);
        self.ended = read == 0;
    }

    /// Looks at the next bits, at most 32; beyond the end they are 0.
    pub(super) fn peek_bits(&mut self) -> u32 {
        if self.bit_count < 32 {
            self.fill_bits();
        }
        self.bits as u32
    }

    fn fill_bits(&mut self) {
        while self.bit_count <= 56 {
            if self.pos == self.buf.len() {
                if self.ended {
                    return;
                }
                self.refill();
                continue;
            }
            self.bits |= u64::from(self.buf[self.pos]) << self.bit_count;
            self.pos += 1;
            self.bit_count += 8;
        }
    }

    /// Takes bits that were looked at; `None` beyond the end of the input.
    pub(super) fn take_bits(&mut self, count: u32) -> Option<u32> {
        let value = self.peek_bits() & ((1u64 << count) - 1) as u32;
        if count > self.bit_count {
            return None;
        }
        self.bits >>= count;
        self.bit_count -= count;
        Some(value)
    }

    /// Takes the bits up to the next byte boundary: their value and number.
    pub(super) fn align(&mut self) -> (u32, u32) {
        let count = self.bit_count % 8;
        let value = self.bits as u32 & ((1 << count) - 1);
        self.bits >>= count;
        self.bit_count -= count;
        (value, count)
    }

    /// Gives bytes in `bits` back. Call at a byte boundary.
    pub(super) fn end_bits(&mut self) {
        self.pos -= (self.bit_count / 8) as usize;
        self.bits = 0;
        self.bit_count = 0;
    }
}
