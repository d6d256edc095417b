//! Flax's msgpack files: nested maps with text keys, whose arrays are extensions of type 1.
//!
//! 1. An extension of type 1 is a msgpack array of three: the shape, the name of the type in numpy, and the values.
//! 2. The keys of the maps make the names, joined by dots. Large arrays are maps of several extensions, and each of
//!    these is a tensor.
//! 3. The format has no magic. A file that is not one msgpack value up to its end is opaque, and so is one without
//!    arrays.

use super::Format;
use super::array::ListedArray;
use super::read::{FormatError, Window, WindowReader};
use super::tensor::{DIMENSIONS_MAX, Recognised};
use super::typed::{NAME_BYTES_MAX, TypedTensor, TypedTensors};
use super::value_type::KnownType;

/// Name of the format.
const FLAX: &str = "flax";
/// Type of the extensions that are arrays.
const ARRAY: u8 = 1;
/// Deepest nesting.
const DEPTH_MAX: usize = 64;
/// Most values of a file, without those in arrays.
const VALUES_MAX: usize = 1 << 22;
/// Longest name of a type.
const TYPE_BYTES_MAX: u64 = 32;

/// Types by their names in numpy.
const TYPES: &[(&str, &str)] = &[
    ("float64", "F64"),
    ("float32", "F32"),
    ("float16", "F16"),
    ("bfloat16", "BF16"),
    ("float8_e4m3fn", "F8_E4M3"),
    ("float8_e5m2", "F8_E5M2"),
    ("complex64", "C64"),
    ("complex128", "C128"),
    ("int64", "I64"),
    ("uint64", "U64"),
    ("int32", "I32"),
    ("uint32", "U32"),
    ("int16", "I16"),
    ("uint16", "U16"),
    ("int8", "I8"),
    ("uint8", "U8"),
    ("bool", "BOOL"),
];

/// Files of `flax.serialization`.
pub struct Flax;

impl Format for Flax {
    fn name(&self) -> &'static str {
        FLAX
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["msgpack"]
    }

    fn matches_head(&self, head: &[u8]) -> bool {
        // A map that is not empty, and the length of its first key.
        let key = match head {
            [0x81..=0x8f, key, ..] | [0xde, _, _, key, ..] | [0xdf, _, _, _, _, key, ..] => *key,
            _ => return false,
        };
        matches!(key, 0xa0..=0xbf | 0xd9 | 0xda)
    }

    fn find(&self, window: Window) -> Result<Option<Recognised>, FormatError> {
        tensors(window)?.found(FLAX, window)
    }

    fn list(&self, window: Window, visit: &mut dyn FnMut(ListedArray)) -> Result<Option<&'static str>, FormatError> {
        tensors(window)?.list(FLAX, window, visit)
    }
}

/// The tensors of the file; none if it is not one value of this format.
fn tensors(window: Window) -> Result<TypedTensors, FormatError> {
    let reader = WindowReader::new(window, 0, window.len());
    let mut file = MsgpackReader { reader, tensors: TypedTensors::default(), values_left: VALUES_MAX };
    match file.value(DEPTH_MAX) {
        Ok(()) if file.reader.left() == 0 => Ok(file.tensors),
        Ok(()) | Err(FormatError::Defective(_)) => Ok(TypedTensors::default()),
        Err(io) => Err(io),
    }
}

/// A value of msgpack, up to what it contains.
#[derive(Debug, PartialEq, Eq)]
enum MsgpackHead {
    /// A number that is not negative.
    Number(u64),
    /// A text or bytes of this length.
    Bytes(u64),
    /// An array of so many values.
    Array(u64),
    /// A map of so many keys and values.
    Map(u64),
    /// An extension of this length and type.
    Extension(u64, u8),
    /// A value without content that is read.
    Plain,
}

/// Reader of a msgpack file.
struct MsgpackReader<'a> {
    reader: WindowReader<'a>,
    tensors: TypedTensors,
    /// Values that may still be read.
    values_left: usize,
}

impl MsgpackReader<'_> {
    /// Reads a value and all that it contains.
    fn value(&mut self, depth: usize) -> Result<(), FormatError> {
        if depth == 0 {
            return FormatError::defective(format!("expected at most {DEPTH_MAX} nested values, found more"));
        }
        match self.head()? {
            MsgpackHead::Number(_) | MsgpackHead::Plain => Ok(()),
            MsgpackHead::Bytes(len) => self.reader.skip(len),
            MsgpackHead::Array(count) => {
                for index in 0..count {
                    let mark = self.tensors.mark();
                    self.value(depth - 1)?;
                    self.tensors.prefix(mark, &index.to_string())?;
                }
                Ok(())
            }
            MsgpackHead::Map(count) => {
                for _ in 0..count {
                    let (key, mark) = (self.text(NAME_BYTES_MAX)?, self.tensors.mark());
                    self.value(depth - 1)?;
                    self.tensors.prefix(mark, &key)?;
                }
                Ok(())
            }
            MsgpackHead::Extension(len, ARRAY) => self.array(len),
            MsgpackHead::Extension(len, _) => self.reader.skip(len),
        }
    }

    /// Reads an extension of `len` bytes that is an array.
    fn array(&mut self, len: u64) -> Result<(), FormatError> {
        let start = self.reader.position();
        let (MsgpackHead::Array(3), MsgpackHead::Array(dimensions)) = (self.head()?, self.head()?) else {
            return FormatError::defective(format!(
                "expected a shape, a type and values at byte {start}, found others"
            ));
        };
        if dimensions > DIMENSIONS_MAX as u64 {
            return FormatError::defective(format!(
                "expected at most {DIMENSIONS_MAX} dimensions at byte {start}, found {dimensions}"
            ));
        }
        let mut shape = Vec::new();
        for _ in 0..dimensions {
            let MsgpackHead::Number(size) = self.head()? else {
                return FormatError::defective(format!("expected sizes at byte {start}, found another value"));
            };
            shape.push(size);
        }
        let type_name = self.text(TYPE_BYTES_MAX)?;
        let MsgpackHead::Bytes(bytes) = self.head()? else {
            return FormatError::defective(format!(
                "expected the values of the array at byte {start}, found another value"
            ));
        };
        let offset = self.reader.position();
        self.reader.skip(bytes)?;
        if self.reader.position() - start != len {
            let found = self.reader.position() - start;
            return FormatError::defective(format!("expected an array of {len} bytes at byte {start}, found {found}"));
        }
        let label = TYPES.iter().find(|row| row.0 == type_name).map(|row| row.1);
        match label.and_then(KnownType::named) {
            Some(known) => self.tensors.push(TypedTensor::known(String::new(), known, shape, offset, bytes)?),
            None => self.tensors.push_unreadable(String::new(), format!("the type {type_name} is unknown")),
        }
    }

    fn text(&mut self, bytes_max: u64) -> Result<String, FormatError> {
        let at = self.reader.position();
        let MsgpackHead::Bytes(len) = self.head()? else {
            return FormatError::defective(format!("expected a text at byte {at}, found another value"));
        };
        let bytes = self.reader.bytes("a text", len, bytes_max)?;
        String::from_utf8(bytes)
            .or_else(|_| FormatError::defective(format!("expected a text in UTF-8 at byte {at}, found other bytes")))
    }

    fn head(&mut self) -> Result<MsgpackHead, FormatError> {
        self.values_left = match self.values_left.checked_sub(1) {
            Some(left) => left,
            None => return FormatError::defective(format!("expected at most {VALUES_MAX} values, found more")),
        };
        let at = self.reader.position();
        let first = self.reader.u8()?;
        Ok(match first {
            0x00..=0x7f => MsgpackHead::Number(u64::from(first)),
            0x80..=0x8f => MsgpackHead::Map(u64::from(first & 0x0f)),
            0x90..=0x9f => MsgpackHead::Array(u64::from(first & 0x0f)),
            0xa0..=0xbf => MsgpackHead::Bytes(u64::from(first & 0x1f)),
            0xc4 | 0xd9 => MsgpackHead::Bytes(self.number(1)?),
            0xc5 | 0xda => MsgpackHead::Bytes(self.number(2)?),
            0xc6 | 0xdb => MsgpackHead::Bytes(self.number(4)?),
            0xc7..=0xc9 => {
                let len = self.number(1 << (first - 0xc7))?;
                MsgpackHead::Extension(len, self.reader.u8()?)
            }
            0xcc..=0xcf => MsgpackHead::Number(self.number(1 << (first - 0xcc))?),
            0xd4..=0xd8 => MsgpackHead::Extension(1 << (first - 0xd4), self.reader.u8()?),
            0xdc => MsgpackHead::Array(self.number(2)?),
            0xdd => MsgpackHead::Array(self.number(4)?),
            0xde => MsgpackHead::Map(self.number(2)?),
            0xdf => MsgpackHead::Map(self.number(4)?),
            0xc0 | 0xc2 | 0xc3 | 0xe0..=0xff => MsgpackHead::Plain,
            0xca | 0xcb | 0xd0..=0xd3 => {
                let len = match first {
                    0xca | 0xd2 => 4,
                    0xd0 => 1,
                    0xd1 => 2,
                    _ => 8,
                };
                self.reader.skip(len)?;
                MsgpackHead::Plain
            }
            0xc1 => return FormatError::defective(format!("expected a value at byte {at}, found {first:#04x}")),
        })
    }

    /// A big-endian number of `len` bytes.
    fn number(&mut self, len: usize) -> Result<u64, FormatError> {
        let mut number = 0;
        for _ in 0..len {
            number = number << 8 | u64::from(self.reader.u8()?);
        }
        Ok(number)
    }
}
