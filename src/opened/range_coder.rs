//! The binary range coder of the corrections: adaptive bits, trees of bits, numbers.
//!
//! All arithmetic is on integers, so the bytes are the same everywhere. docs/TRANSFORM-DEFLATE.md has the rules.

use std::io::{self, Read, Write};

/// Shifts of the adaptation of a probability, by how often it was used: fast at first, then slow.
const RATES: [u8; 6] = [1, 2, 3, 4, 4, 5];
/// Smallest range of the coder before it takes another byte.
const RANGE_MIN: u32 = 1 << 24;
/// Zero bytes that the decoder may take beyond the end of the corrections: the encoder drops trailing zeros.
const PADDING_MAX: u32 = 8;
/// Bytes of corrections read at once.
const READ_BYTES: usize = 16 << 10;

/// Adaptive probability that a bit is 0.
#[derive(Debug, Clone, Copy)]
pub(super) struct Prob {
    zero: u16,
    used: u8,
}

impl Default for Prob {
    fn default() -> Self {
        Prob { zero: 1 << 15, used: 0 }
    }
}

impl Prob {
    /// The part of `range` that stands for 0.
    fn bound(self, range: u32) -> u32 {
        (range >> 12) * u32::from(self.zero >> 4)
    }

    fn learn(&mut self, bit: bool) {
        let rate = RATES[usize::from(self.used)];
        if usize::from(self.used) + 1 < RATES.len() {
            self.used += 1;
        }
        if bit {
            self.zero -= self.zero >> rate;
        } else {
            self.zero += (u16::MAX - self.zero) >> rate;
        }
    }
}

/// Codes bits in one direction. The encoder gives back what it got, the decoder what it read, so that
/// one function describes both.
pub(super) trait Coder {
    /// Codes one bit with an adaptive probability.
    fn bit(&mut self, prob: &mut Prob, bit: bool) -> bool;
    /// Codes `bits` (at most 16) bits of `value` as they are, the highest first.
    fn raw(&mut self, value: u32, bits: u32) -> u32;

    /// Codes `value < 2^bits` as a path through a tree of `2^bits` probabilities.
    fn tree(&mut self, probs: &mut [Prob], bits: u32, value: u32) -> u32 {
        let mut node = 1;
        for shift in (0..bits).rev() {
            let bit = self.bit(&mut probs[node], value >> shift & 1 != 0);
            node = node << 1 | usize::from(bit);
        }
        (node - (1 << bits)) as u32
    }
}

/// Model of a whole number: its bit length as a tree, its second bit, then the rest as it is.
#[derive(Debug, Clone)]
pub(super) struct Number {
    lengths: [Prob; 64],
    seconds: [Prob; 64],
}

impl Default for Number {
    fn default() -> Self {
        Number { lengths: [Prob::default(); 64], seconds: [Prob::default(); 64] }
    }
}

impl Number {
    /// Codes a number below 2^62.
    pub(super) fn code<C: Coder>(&mut self, coder: &mut C, value: u64) -> u64 {
        let length = coder.tree(&mut self.lengths, 6, 64 - value.leading_zeros());
        if length < 2 {
            return u64::from(length);
        }
        let mut rest = length - 2;
        let second = coder.bit(&mut self.seconds[length as usize], value >> rest & 1 != 0);
        let mut read = 2 | u64::from(second);
        while rest > 0 {
            let bits = rest.min(16);
            rest -= bits;
            let part = (value >> rest) as u32 & ((1 << bits) - 1);
            read = read << bits | u64::from(coder.raw(part, bits));
        }
        read
    }
}

/// RangeEncoder; collects bytes until [`RangeEncoder::drain`].
#[derive(Debug)]
pub(super) struct RangeEncoder {
    low: u64,
    range: u32,
    cache: u8,
    held: u64,
    first: bool,
    out: Vec<u8>,
    drained: u64,
}

impl RangeEncoder {
    pub(super) fn new() -> Self {
        RangeEncoder { low: 0, range: u32::MAX, cache: 0, held: 1, first: true, out: Vec::new(), drained: 0 }
    }

    /// Bytes made so far.
    pub(super) fn len(&self) -> u64 {
        self.drained + self.out.len() as u64
    }

    /// Writes the finished bytes.
    pub(super) fn drain(&mut self, to: &mut impl Write) -> io::Result<()> {
        to.write_all(&self.out)?;
        self.drained += self.out.len() as u64;
        self.out.clear();
        Ok(())
    }

    /// Writes the rest. Of all values that end the stream it takes the one with the most zero bytes, and
    /// leaves them out.
    pub(super) fn finish(mut self, to: &mut impl Write) -> io::Result<u64> {
        let top = self.low + u64::from(self.range) - 1;
        for bits in (0..=32).rev() {
            let value = top >> bits << bits;
            if value >= self.low {
                self.low = value;
                break;
            }
        }
        let before = self.out.len();
        for _ in 0..5 {
            self.shift();
        }
        while self.out.len() > before && self.out.last() == Some(&0) {
            self.out.pop();
        }
        self.drain(to)?;
        Ok(self.drained)
    }

    fn push(&mut self, byte: u8) {
        if self.first {
            self.first = false; // The first byte is always 0.
        } else {
            self.out.push(byte);
        }
    }

    fn shift(&mut self) {
        if self.low < 0xFF00_0000 || self.low > u64::from(u32::MAX) {
            let carry = (self.low >> 32) as u8;
            let mut byte = self.cache;
            while self.held > 0 {
                self.push(byte.wrapping_add(carry));
                byte = 0xFF;
                self.held -= 1;
            }
            self.cache = (self.low >> 24) as u8;
        }
        self.held += 1;
        self.low = (self.low & 0x00FF_FFFF) << 8;
    }

    fn normalize(&mut self) {
        while self.range < RANGE_MIN {
            self.range <<= 8;
            self.shift();
        }
    }
}

impl Coder for RangeEncoder {
    fn bit(&mut self, prob: &mut Prob, bit: bool) -> bool {
        let bound = prob.bound(self.range);
        if bit {
            self.low += u64::from(bound);
            self.range -= bound;
        } else {
            self.range = bound;
        }
        prob.learn(bit);
        self.normalize();
        bit
    }

    fn raw(&mut self, value: u32, bits: u32) -> u32 {
        for shift in (0..bits).rev() {
            self.range >>= 1;
            if value >> shift & 1 != 0 {
                self.low += u64::from(self.range);
            }
            self.normalize();
        }
        value
    }
}

/// RangeDecoder over a reader. A fault is kept until [`RangeDecoder::check`]; from then on every bit is 0.
#[derive(Debug)]
pub(super) struct RangeDecoder<R> {
    inner: R,
    buf: Vec<u8>,
    pos: usize,
    range: u32,
    code: u32,
    padding: u32,
    fault: Option<io::Error>,
    started: bool,
}

impl<R: Read> RangeDecoder<R> {
    pub(super) fn new(inner: R) -> Self {
        RangeDecoder {
            inner,
            buf: Vec::new(),
            pos: 0,
            range: u32::MAX,
            code: 0,
            padding: 0,
            fault: None,
            started: false,
        }
    }

    /// The first fault, once.
    pub(super) fn check(&mut self) -> io::Result<()> {
        match self.fault.take() {
            Some(error) => {
                // Stay at fault for later calls.
                self.fault = Some(io::Error::new(error.kind(), error.to_string()));
                Err(error)
            }
            None => Ok(()),
        }
    }

    /// Takes the first bytes.
    pub(super) fn start(&mut self) {
        if !self.started {
            self.started = true;
            for _ in 0..4 {
                self.code = self.code << 8 | u32::from(self.byte());
            }
        }
    }

    fn byte(&mut self) -> u8 {
        if self.pos == self.buf.len() && self.fault.is_none() {
            self.refill();
        }
        if let Some(&byte) = self.buf.get(self.pos) {
            self.pos += 1;
            return byte;
        }
        self.padding += 1;
        if self.padding > PADDING_MAX && self.fault.is_none() {
            self.fault = Some(io::Error::new(io::ErrorKind::UnexpectedEof, "the corrections end too early"));
        }
        0
    }

    fn refill(&mut self) {
        if self.padding > 0 {
            return;
        }
        self.buf.resize(READ_BYTES, 0);
        self.pos = 0;
        loop {
            match self.inner.read(&mut self.buf) {
                Ok(read) => {
                    self.buf.truncate(read);
                    return;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.buf.clear();
                    self.fault = Some(error);
                    return;
                }
            }
        }
    }

    fn normalize(&mut self) {
        while self.range < RANGE_MIN {
            self.range <<= 8;
            self.code = self.code << 8 | u32::from(self.byte());
        }
    }
}

impl<R: Read> Coder for RangeDecoder<R> {
    fn bit(&mut self, prob: &mut Prob, _: bool) -> bool {
        let bound = prob.bound(self.range);
        let bit = self.code >= bound;
        if bit {
            self.code -= bound;
            self.range -= bound;
        } else {
            self.range = bound;
        }
        prob.learn(bit);
        self.normalize();
        bit && self.fault.is_none()
    }

    fn raw(&mut self, _: u32, bits: u32) -> u32 {
        let mut value = 0;
        for _ in 0..bits {
            self.range >>= 1;
            let bit = self.code >= self.range;
            if bit {
                self.code -= self.range;
            }
            value = value << 1 | u32::from(bit);
            self.normalize();
        }
        if self.fault.is_some() { 0 } else { value }
    }
}
