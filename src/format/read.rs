//! Reading at offsets. [`Window`] bounds every read of a [`ReadAt`], and [`WindowReader`] reads in order through a
//! buffer.

use std::io::{self, ErrorKind};

use crate::error::quoted;
use crate::read_at::ReadAt;

/// Bytes that a [`WindowReader`] reads at once.
const BUFFER_BYTES: u64 = 64 << 10;
/// Bytes that a [`WindowReader`] of scattered places reads at once.
const SCATTERED_BYTES: u64 = 4 << 10;

/// Why the tensors of a file cannot be found.
#[derive(Debug)]
pub enum FormatError {
    /// The file cannot be read.
    Io(io::Error),
    /// The file contradicts itself or is truncated. Says what was expected and what was found.
    Defective(String),
}

impl FormatError {
    /// The error of a defective file. What `reason` quotes of the file may be long.
    pub(super) fn defective<T>(reason: impl Into<String>) -> Result<T, FormatError> {
        Err(FormatError::Defective(quoted(&reason.into())))
    }
}

impl From<io::Error> for FormatError {
    fn from(error: io::Error) -> Self {
        FormatError::Io(error)
    }
}

/// A part of a file. Offsets count from its first byte.
#[derive(Clone, Copy)]
pub struct Window<'a> {
    source: &'a dyn ReadAt,
    start: u64,
    len: u64,
}

impl<'a> Window<'a> {
    /// The first `len` bytes of `source`.
    pub fn new(source: &'a dyn ReadAt, len: u64) -> Self {
        Window { source, start: 0, len }
    }
    /// Size, bytes.
    pub fn len(&self) -> u64 {
        self.len
    }
    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// The `len` bytes from byte `offset`. `None` if they reach beyond the window.
    pub fn part(&self, offset: u64, len: u64) -> Option<Window<'a>> {
        let end = offset.checked_add(len)?;
        let start = self.start.checked_add(offset)?;
        (end <= self.len).then_some(Window { source: self.source, start, len })
    }
    /// The first bytes, at most `bytes_max`.
    pub fn head(&self, bytes_max: usize) -> io::Result<Vec<u8>> {
        self.read_up_to(0, bytes_max as u64)
    }
    /// Exactly `count` bytes from byte `offset`. The caller bounds `count`.
    pub fn read(&self, offset: u64, count: u64) -> Result<Vec<u8>, FormatError> {
        let inside = offset.checked_add(count).is_some_and(|end| end <= self.len);
        let bytes = if inside { self.read_up_to(offset, count)? } else { Vec::new() };
        if bytes.len() as u64 == count {
            return Ok(bytes);
        }
        let len = if inside { offset + bytes.len() as u64 } else { self.len };
        FormatError::defective(format!("expected {count} bytes at byte {offset}, found the end at byte {len}"))
    }

    /// At most `bytes_max` bytes from byte `offset`.
    fn read_up_to(&self, offset: u64, bytes_max: u64) -> io::Result<Vec<u8>> {
        let count = bytes_max.min(self.len.saturating_sub(offset));
        let mut bytes = vec![0u8; usize::try_from(count).unwrap_or(usize::MAX)];
        let mut filled = 0;
        while filled < bytes.len() {
            let at = self.start + offset + filled as u64;
            match self.source.read_at(at, &mut bytes[filled..]) {
                Ok(0) => break,
                Ok(more) => filled += more.min(bytes.len() - filled),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }
}

/// Reads a range of a window in order, through a buffer.
pub(super) struct WindowReader<'a> {
    window: Window<'a>,
    /// Offset of the next byte.
    position: u64,
    /// Offset after the last byte that may be read.
    end: u64,
    /// Bytes from offset `buffered_from` on.
    buffer: Vec<u8>,
    buffered_from: u64,
    /// Bytes that are read at once.
    buffer_bytes: u64,
    is_big_endian: bool,
}

impl<'a> WindowReader<'a> {
    /// A reader of the bytes `start..end` of `window`.
    pub(super) fn new(window: Window<'a>, start: u64, end: u64) -> Self {
        let (end, buffer_bytes) = (end.min(window.len), BUFFER_BYTES);
        let (buffer, buffered_from) = (Vec::new(), 0);
        WindowReader { window, position: start, end, buffer, buffered_from, buffer_bytes, is_big_endian: false }
    }
    /// A reader of the whole window that will [seek](WindowReader::seek) to small structures far apart.
    pub(super) fn scattered(window: Window<'a>) -> Self {
        WindowReader { buffer_bytes: SCATTERED_BYTES, ..WindowReader::new(window, 0, window.len) }
    }
    /// The same, for numbers in big-endian order if `is_big_endian`.
    #[must_use]
    pub(super) fn in_order(self, is_big_endian: bool) -> Self {
        WindowReader { is_big_endian, ..self }
    }
    /// Offset of the next byte.
    pub(super) fn position(&self) -> u64 {
        self.position
    }
    /// Goes to byte `position`. Reads nothing: a place beyond the end is an error of the next read.
    pub(super) fn seek(&mut self, position: u64) {
        self.position = position;
    }
    /// Remaining bytes.
    pub(super) fn left(&self) -> u64 {
        self.end.saturating_sub(self.position)
    }
    /// Limits the remaining bytes to `bytes_max`.
    pub(super) fn limit(&mut self, bytes_max: u64) {
        self.end = self.end.min(self.position.saturating_add(bytes_max));
    }
    /// Skips `count` bytes.
    pub(super) fn skip(&mut self, count: u64) -> Result<(), FormatError> {
        self.check_remaining(count)?;
        self.position += count;
        Ok(())
    }
    /// The next `N` bytes.
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        self.check_remaining(N as u64)?;
        let buffered = |reader: &Self| {
            let from = usize::try_from(reader.position.checked_sub(reader.buffered_from)?).ok()?;
            reader.buffer.get(from..)?.first_chunk::<N>().copied()
        };
        let array = match buffered(self) {
            Some(array) => array,
            None => {
                self.buffer = self.window.read_up_to(self.position, self.buffer_bytes.min(self.left()))?;
                self.buffered_from = self.position;
                match buffered(self) {
                    Some(array) => array,
                    None => return self.ended(N as u64),
                }
            }
        };
        self.position += N as u64;
        Ok(array)
    }
    /// The next `count` bytes. Fails if `count` exceeds `bytes_max`; the error calls the bytes `what`.
    pub(super) fn bytes(&mut self, what: &str, count: u64, bytes_max: u64) -> Result<Vec<u8>, FormatError> {
        if count > bytes_max {
            return FormatError::defective(format!(
                "expected {what} of at most {bytes_max} bytes at byte {}, found {count}",
                self.position
            ));
        }
        self.check_remaining(count)?;
        let from = self.position.checked_sub(self.buffered_from).and_then(|from| usize::try_from(from).ok());
        let until = from.and_then(|from| from.checked_add(usize::try_from(count).ok()?));
        let bytes = match (from, until) {
            (Some(from), Some(until)) if until <= self.buffer.len() => self.buffer[from..until].to_vec(),
            _ => self.window.read(self.position, count)?,
        };
        self.position += count;
        Ok(bytes)
    }
    /// One byte.
    pub(super) fn u8(&mut self) -> Result<u8, FormatError> {
        self.array::<1>().map(|[byte]| byte)
    }
    /// A `u16`, little-endian unless [`WindowReader::in_order`] says otherwise.
    pub(super) fn u16(&mut self) -> Result<u16, FormatError> {
        let number = u16::from_le_bytes(self.array()?);
        Ok(if self.is_big_endian { number.swap_bytes() } else { number })
    }
    /// A `u32`, little-endian unless [`WindowReader::in_order`] says otherwise.
    pub(super) fn u32(&mut self) -> Result<u32, FormatError> {
        let number = u32::from_le_bytes(self.array()?);
        Ok(if self.is_big_endian { number.swap_bytes() } else { number })
    }
    /// A `u64`, little-endian unless [`WindowReader::in_order`] says otherwise.
    pub(super) fn u64(&mut self) -> Result<u64, FormatError> {
        let number = u64::from_le_bytes(self.array()?);
        Ok(if self.is_big_endian { number.swap_bytes() } else { number })
    }

    fn check_remaining(&self, count: u64) -> Result<(), FormatError> {
        if count > self.left() { self.ended(count) } else { Ok(()) }
    }
    fn ended<T>(&self, count: u64) -> Result<T, FormatError> {
        let (position, end) = (self.position, self.end);
        FormatError::defective(format!("expected {count} bytes at byte {position}, found the end at byte {end}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_crosses_its_buffer_and_never_passes_its_end() {
        let bytes: Vec<u8> = (0..200_000u32).map(|at| (at % 251) as u8).collect();
        let window = Window::new(&bytes, bytes.len() as u64);
        let mut reader = WindowReader::new(window, 1, 199_000);
        for at in (1..198_990usize).step_by(7) {
            assert_eq!(reader.array::<3>().unwrap(), bytes[at..at + 3]);
            let more = reader.bytes("bytes", 3, 3).unwrap();
            assert_eq!(more, bytes[at + 3..at + 6]);
            reader.skip(1).unwrap();
        }
        let left = reader.left();
        assert!(reader.bytes("bytes", left + 1, u64::MAX).is_err() && reader.skip(left + 1).is_err());
        reader.skip(left).unwrap();
        assert!(reader.array::<1>().is_err() && reader.skip(u64::MAX).is_err());
    }

    #[test]
    fn a_reader_goes_back_and_far_and_beyond_its_end() {
        let bytes: Vec<u8> = (0..200_000u32).map(|at| (at % 251) as u8).collect();
        let mut reader = WindowReader::scattered(Window::new(&bytes, bytes.len() as u64));
        for at in [150_000u64, 7, 8, 4_103, 4_102, 199_999] {
            reader.seek(at);
            assert_eq!((reader.array().unwrap(), reader.position()), ([bytes[at as usize]], at + 1));
        }
        for beyond in [200_000, u64::MAX] {
            reader.seek(beyond);
            assert!(reader.array::<1>().is_err() && reader.left() == 0);
        }
    }

    #[test]
    fn a_window_longer_than_its_source_ends_with_the_source() {
        let bytes = vec![7u8; 100];
        let window = Window::new(&bytes, 1000);
        assert_eq!(window.head(512).unwrap().len(), 100);
        assert!(matches!(window.read(90, 20), Err(FormatError::Defective(reason)) if reason.contains("byte 100")));
        assert!(matches!(window.read(u64::MAX, 2), Err(FormatError::Defective(_))));
        assert!(window.part(990, 11).is_none() && window.part(u64::MAX, 1).is_none());
        assert_eq!(window.part(98, 10).unwrap().head(5).unwrap(), [7, 7]);
        assert!(WindowReader::new(window, 99, 1000).u16().is_err());
    }
}
