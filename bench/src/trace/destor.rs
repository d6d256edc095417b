//! The text format of Destor, written by `destor -t` and `fhrd trace`.
//!
//! 1. `file start N` and a line break, then N bytes of the name (which can contain line breaks) and a line break.
//! 2. A line for each chunk: 40 hexadecimal digits in upper or lower case, a space, and the length in decimal.
//! 3. `file end`. Then the next file, or `stream end`, the last line, with an optional line break.
//!
//! All other lines must end with a line break. Without it, the last digits of a number can be missing.

use std::io::BufRead;

use fhrd::error::Result;

use super::input::TraceInput;
use super::item::{FINGERPRINT_BYTES, Items, NAME_BYTES_MAX, TraceChunk, TraceFingerprint, TraceItem, chunk_bytes};

/// Longest line except names, bytes: a fingerprint, a space, the digits of a `u64`, and more bytes to show in an
/// error.
const LINE_BYTES_MAX: u64 = 80;
/// Hexadecimal digits of a fingerprint.
const DIGITS: usize = 2 * FINGERPRINT_BYTES;

pub(super) struct DestorTrace<R> {
    input: TraceInput<R>,
    is_in_file: bool,
}

impl<R: BufRead> DestorTrace<R> {
    pub(super) fn new(mut input: TraceInput<R>) -> Self {
        input.count_lines();
        DestorTrace { input, is_in_file: false }
    }

    fn between_files(&mut self) -> Result<TraceItem> {
        const EXPECTED: &str = "`file start` with the length of a name, or `stream end`";
        let (line, is_ended) = self.input.line(LINE_BYTES_MAX, EXPECTED)?;
        if line == b"stream end" {
            self.input.end()?;
            return Ok(TraceItem::StreamEnd);
        }
        let len = line.strip_prefix(b"file start ").and_then(decimal).filter(|_| is_ended);
        let Some(len) = len else { return Err(self.input.malformed(EXPECTED, shown(&line, is_ended))) };
        if len > NAME_BYTES_MAX {
            return Err(self.input.malformed(format!("a name of at most {NAME_BYTES_MAX} bytes"), len.to_string()));
        }
        self.input.next_line();
        let name = self.input.bytes(len as usize)?;
        let [after] = self.input.array()?;
        if after != b'\n' {
            let got = format!("`{}`", after.escape_ascii());
            return Err(self.input.malformed(format!("a line break after {len} bytes of a name"), got));
        }
        for _ in 0..=name.iter().filter(|byte| **byte == b'\n').count() {
            self.input.next_line();
        }
        self.is_in_file = true;
        Ok(TraceItem::FileStart { name })
    }

    fn in_file(&mut self) -> Result<TraceItem> {
        const EXPECTED: &str = "40 hexadecimal digits, a space and a length from 1 to 2^30, or `file end`";
        let (line, is_ended) = self.input.line(LINE_BYTES_MAX, EXPECTED)?;
        let item = match line.as_slice() {
            b"file end" => Some(TraceItem::FileEnd),
            line => chunk(line).map(TraceItem::Chunk),
        };
        let Some(item) = item.filter(|_| is_ended) else {
            return Err(self.input.malformed(EXPECTED, shown(&line, is_ended)));
        };
        self.is_in_file = item != TraceItem::FileEnd;
        self.input.next_line();
        Ok(item)
    }
}

impl<R: BufRead> Items for DestorTrace<R> {
    fn item(&mut self) -> Result<TraceItem> {
        if self.is_in_file { self.in_file() } else { self.between_files() }
    }
}

fn shown(line: &[u8], is_ended: bool) -> String {
    format!("`{}`{}", line.escape_ascii(), if is_ended { "" } else { " and the end" })
}

fn chunk(line: &[u8]) -> Option<TraceChunk> {
    let (digits, rest) = line.split_at_checked(DIGITS)?;
    let mut fingerprint: TraceFingerprint = [0; FINGERPRINT_BYTES];
    for (byte, pair) in fingerprint.iter_mut().zip(digits.chunks_exact(2)) {
        let [high, low] = <[u8; 2]>::try_from(pair).ok()?;
        let digit = |byte: u8| char::from(byte).to_digit(16);
        *byte = (digit(high)? << 4 | digit(low)?) as u8;
    }
    let bytes = chunk_bytes(decimal(rest.strip_prefix(b" ")?)?)?;
    Some(TraceChunk { fingerprint, bytes })
}

/// A number of decimal digits only.
fn decimal(text: &[u8]) -> Option<u64> {
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    is_number.then(|| std::str::from_utf8(text).ok()?.parse().ok()).flatten()
}
