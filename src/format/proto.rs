//! Protocol buffers: reads the fields of a message at offsets.
//!
//! 1. A field is a tag (number and wire type) and a value. Numbers have a variable length, 4 or 8 bytes. Texts, packed
//!    numbers and inner messages are ranges of bytes, which are only read if the caller enters them.
//! 2. Every field costs a unit of a budget. So the work is bounded, and so is what is read: at most the whole file.

use std::ops::Range;

use super::read::{FormatError, Window, WindowReader};

/// Most fields of a file that are read.
const FIELDS_MAX: usize = 1 << 24;

/// Value of a field.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ProtoValue {
    /// A number of variable length.
    Number(u64),
    /// The offsets of the bytes in the file.
    Bytes(Range<u64>),
    /// A number of fixed length, which is not read.
    Fixed,
}

/// A field of a message: its number and its value.
pub(super) type ProtoField = (u64, ProtoValue);

/// Reader of the messages of a file.
pub(super) struct ProtoReader<'a> {
    reader: WindowReader<'a>,
    /// Fields that may still be read.
    fields_left: usize,
}

impl<'a> ProtoReader<'a> {
    /// A reader of a file that is one message.
    pub(super) fn new(window: Window<'a>) -> Self {
        ProtoReader { reader: WindowReader::new(window, 0, window.len()), fields_left: FIELDS_MAX }
    }

    /// Goes to the first field of a message that begins at byte `start`.
    pub(super) fn enter(&mut self, start: u64) {
        self.reader.seek(start);
    }

    /// The next field of the message that ends at byte `end`. `None` at its end.
    pub(super) fn next(&mut self, end: u64) -> Result<Option<ProtoField>, FormatError> {
        if self.reader.position() >= end {
            return Ok(None);
        }
        self.fields_left = match self.fields_left.checked_sub(1) {
            Some(left) => left,
            None => return FormatError::defective(format!("expected at most {FIELDS_MAX} fields, found more")),
        };
        let at = self.reader.position();
        let tag = self.number(end)?;
        let value = match tag & 7 {
            0 => ProtoValue::Number(self.number(end)?),
            1 => self.fixed(8)?,
            2 => {
                let len = self.number(end)?;
                let start = self.reader.position();
                self.reader.skip(len)?;
                ProtoValue::Bytes(start..self.reader.position())
            }
            5 => self.fixed(4)?,
            other => {
                return FormatError::defective(format!("expected a known wire type at byte {at}, found {other}"));
            }
        };
        if self.reader.position() > end || tag >> 3 == 0 {
            return FormatError::defective(format!(
                "expected a field at byte {at} that ends by byte {end}, found field {} up to byte {}",
                tag >> 3,
                self.reader.position()
            ));
        }
        Ok(Some((tag >> 3, value)))
    }

    /// The text in `range`, the empty text if it is longer than `bytes_max` or no UTF-8.
    pub(super) fn text(&mut self, range: Range<u64>, bytes_max: u64) -> Result<String, FormatError> {
        let len = range.end - range.start;
        if len > bytes_max {
            return Ok(String::new());
        }
        self.reader.seek(range.start);
        Ok(String::from_utf8(self.reader.bytes("a text", len, bytes_max)?).unwrap_or_default())
    }

    /// Passes the packed numbers in `range` to `visit`.
    pub(super) fn packed(&mut self, range: Range<u64>, visit: &mut dyn FnMut(u64)) -> Result<(), FormatError> {
        self.reader.seek(range.start);
        while self.reader.position() < range.end {
            let number = self.number(range.end)?;
            visit(number);
        }
        Ok(())
    }

    fn fixed(&mut self, len: u64) -> Result<ProtoValue, FormatError> {
        self.reader.skip(len)?;
        Ok(ProtoValue::Fixed)
    }

    /// A number of variable length: seven bits in each byte, the low ones first.
    fn number(&mut self, end: u64) -> Result<u64, FormatError> {
        let at = self.reader.position();
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            if self.reader.position() >= end {
                break;
            }
            let byte = self.reader.u8()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        FormatError::defective(format!("expected a number of at most 10 bytes at byte {at}, found no end of it"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(bytes: &[u8]) -> Result<Vec<ProtoField>, FormatError> {
        let mut reader = ProtoReader::new(Window::new(&bytes, bytes.len() as u64));
        let mut all = Vec::new();
        while let Some(field) = reader.next(bytes.len() as u64)? {
            all.push(field);
        }
        Ok(all)
    }

    #[test]
    fn fields_of_every_wire_type_are_read() {
        let bytes = [&[0x08, 0x96, 0x01, 0x12, 2, b'h', b'i', 0x1d, 0, 0, 0, 0, 0x21][..], &[0; 8]].concat();
        let expected = [
            (1, ProtoValue::Number(150)),
            (2, ProtoValue::Bytes(5..7)),
            (3, ProtoValue::Fixed),
            (4, ProtoValue::Fixed),
        ];
        assert_eq!(fields(&bytes).unwrap(), expected);
        let longest = [&[0x08][..], &[0xff; 9], &[1]].concat();
        assert_eq!(fields(&longest).unwrap(), [(1, ProtoValue::Number(u64::MAX))]);
    }

    #[test]
    fn fields_that_no_message_has_are_defective() {
        // Too long, no end, group, no number, beyond the end.
        let long = [&[0x08][..], &[0xff; 10], &[1]].concat();
        for wrong in [&long[..], b"\x08", b"\x08\xff", b"\x0b", b"\x02\x00", b"\x12\x05hi", b"\x0d\0\0"] {
            assert!(fields(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_field_does_not_leave_its_message() {
        let bytes: &[u8] = b"\x12\x03\x12\x05abcdefgh";
        let mut reader = ProtoReader::new(Window::new(&bytes, bytes.len() as u64));
        let Some((2, ProtoValue::Bytes(inner))) = reader.next(bytes.len() as u64).unwrap() else { panic!() };
        reader.enter(inner.start);
        assert!(reader.next(inner.end).is_err());
    }
}
