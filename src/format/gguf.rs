//! GGUF, little-endian, versions 1 to 3: counts, metadata, tensor directory, values.
//!
//! 1. Metadata is skipped through a buffer. Only the alignment and short strings about the model are retained.
//! 2. The directory gives each tensor's name, dimensions (fastest first), type number and offset. Offsets count from
//!    the end of the header, which is a multiple of the alignment.
//! 3. The size follows from the dimensions and the blocks of the type. A tensor of an unknown type extends to the next
//!    tensor or the end of the file.

use std::collections::BTreeMap;

use super::Format;
use super::dtype::Dtype;
use super::read::{FormatError, Window, WindowReader};
use super::tensor::{
    DIMENSIONS_MAX, METADATA_BYTES_MAX, Recognised, TENSORS_MAX, Tensor, checked_model, insert_short, value_count,
};

const MAGIC: &[u8] = b"GGUF";
/// Most bytes of metadata.
const METADATA_SCAN_BYTES_MAX: u64 = 256 << 20;
/// Most keys of metadata.
const VALUES_MAX: u64 = 1 << 16;
/// Most bytes of the directory.
const DIRECTORY_BYTES_MAX: u64 = 64 << 20;
/// Longest key or tensor name.
const NAME_BYTES_MAX: u64 = 65_535;
/// Alignment if the metadata does not state one.
const ALIGNMENT_DEFAULT: u64 = 32;
/// Deepest nesting of lists.
const DEPTH_MAX: usize = 4;
/// Numbers of metadata types.
const TYPE_U32: u32 = 4;
const TYPE_STRING: u32 = 8;
const TYPE_LIST: u32 = 9;

/// Files of llama.cpp and similar programs.
pub struct Gguf;

impl Format for Gguf {
    fn name(&self) -> &'static str {
        "gguf"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["gguf", "ggml"]
    }

    fn matches_head(&self, head: &[u8]) -> bool {
        let version = head.strip_prefix(MAGIC).and_then(|rest| rest.first_chunk::<4>());
        version.is_some_and(|version| version_of(u32::from_le_bytes(*version)).is_some())
    }

    fn find(&self, window: Window) -> Result<Option<Recognised>, FormatError> {
        let mut header = GgufHeader::open(window)?;
        let (tensor_count, value_count) = (header.count()?, header.count()?);
        if tensor_count > TENSORS_MAX as u64 {
            return FormatError::defective(format!("expected at most {TENSORS_MAX} tensors, found {tensor_count}"));
        }
        if value_count > VALUES_MAX {
            return FormatError::defective(format!(
                "expected at most {VALUES_MAX} values of metadata, found {value_count}"
            ));
        }
        let (mut metadata, mut alignment) = (BTreeMap::new(), ALIGNMENT_DEFAULT);
        for _ in 0..value_count {
            header.value(&mut metadata, &mut alignment)?;
        }
        if !alignment.is_power_of_two() {
            return FormatError::defective(format!("expected an alignment that is a power of two, found {alignment}"));
        }
        let is_big_endian = header.is_big_endian;
        header.reader = WindowReader::new(window, header.reader.position(), window.len()).in_order(is_big_endian);
        header.reader.limit(DIRECTORY_BYTES_MAX);
        let mut entries = Vec::new();
        for _ in 0..tensor_count {
            entries.push(header.tensor(alignment)?);
        }
        let start = header.reader.position().next_multiple_of(alignment);
        let tensors = located(entries, start, window.len())?;
        checked_model(self.name(), tensors, metadata, window.len())
    }
}

/// An entry of the directory. `len` is `None` if the type is unknown.
struct GgufEntry {
    tensor: Tensor,
    len: Option<u64>,
}

/// Tensors with offsets from the start of the file and sizes also for unknown types. Values begin at byte `start`.
fn located(mut entries: Vec<GgufEntry>, start: u64, file_len: u64) -> Result<Vec<Tensor>, FormatError> {
    entries.sort_by_key(|entry| entry.tensor.offset);
    let mut next = file_len.saturating_sub(start);
    for GgufEntry { tensor, len } in entries.iter_mut().rev() {
        tensor.len = len.unwrap_or(next.saturating_sub(tensor.offset));
        if tensor.len > 0 || len.is_none() {
            next = tensor.offset;
        }
        tensor.offset = match start.checked_add(tensor.offset) {
            Some(offset) if len.is_some() || offset <= file_len => offset,
            _ => {
                return FormatError::defective(format!(
                    "expected tensor {:?} within {file_len} bytes, found it {} bytes after byte {start}",
                    tensor.name, tensor.offset
                ));
            }
        };
    }
    Ok(entries.into_iter().map(|entry| entry.tensor).collect())
}

/// Reader of the header: the part before the values.
struct GgufHeader<'a> {
    reader: WindowReader<'a>,
    version: u32,
    /// Whether all numbers, also those of tensors, are big-endian.
    is_big_endian: bool,
}

/// The version that the first number is in one of the two orders, and whether it is the big-endian one.
fn version_of(number: u32) -> Option<(u32, bool)> {
    let is_known = |version: u32| (1..=3).contains(&version);
    match number {
        number if is_known(number) => Some((number, false)),
        number if is_known(number.swap_bytes()) => Some((number.swap_bytes(), true)),
        _ => None,
    }
}

impl<'a> GgufHeader<'a> {
    fn open(window: Window<'a>) -> Result<Self, FormatError> {
        let mut reader = WindowReader::new(window, MAGIC.len() as u64, METADATA_SCAN_BYTES_MAX);
        let number = reader.u32()?;
        let (version, is_big_endian) = version_of(number).unwrap_or((number, false));
        Ok(GgufHeader { reader: reader.in_order(is_big_endian), version, is_big_endian })
    }

    /// A count or length: 32 bits in version 1, else 64 bits.
    fn count(&mut self) -> Result<u64, FormatError> {
        if self.version == 1 { self.reader.u32().map(u64::from) } else { self.reader.u64() }
    }

    fn text(&mut self, what: &str) -> Result<String, FormatError> {
        let len = self.count()?;
        let bytes = self.reader.bytes(what, len, NAME_BYTES_MAX)?;
        let at = self.reader.position();
        let utf8 = String::from_utf8(bytes);
        utf8.or_else(|_| {
            FormatError::defective(format!("expected {what} in UTF-8 before byte {at}, found other bytes"))
        })
    }

    /// Reads a key and its value.
    fn value(&mut self, metadata: &mut BTreeMap<String, String>, alignment: &mut u64) -> Result<(), FormatError> {
        let key = self.text("a key")?;
        let kind = self.reader.u32()?;
        if key == "general.alignment" && kind == TYPE_U32 {
            *alignment = u64::from(self.reader.u32()?);
            return Ok(());
        }
        if kind != TYPE_STRING || !key.starts_with("general.") {
            return self.skip_value(kind, DEPTH_MAX);
        }
        let len = self.count()?;
        if len > METADATA_BYTES_MAX as u64 {
            return self.reader.skip(len);
        }
        let bytes = self.reader.bytes("a string", len, METADATA_BYTES_MAX as u64)?;
        if let Ok(value) = String::from_utf8(bytes) {
            insert_short(metadata, key, value);
        }
        Ok(())
    }

    /// Skips a value.
    fn skip_value(&mut self, kind: u32, depth: usize) -> Result<(), FormatError> {
        if let Some(width) = width(kind) {
            return self.reader.skip(width);
        }
        match kind {
            TYPE_STRING => {
                let len = self.count()?;
                self.reader.skip(len)
            }
            TYPE_LIST if depth > 0 => self.skip_list(depth - 1),
            _ => {
                let at = self.reader.position();
                FormatError::defective(format!("expected a known type of metadata before byte {at}, found {kind}"))
            }
        }
    }

    fn skip_list(&mut self, depth: usize) -> Result<(), FormatError> {
        let kind = self.reader.u32()?;
        let count = self.count()?;
        if let Some(width) = width(kind) {
            return self.reader.skip(count.saturating_mul(width));
        }
        if count > self.reader.left() {
            let (at, left) = (self.reader.position(), self.reader.left());
            return FormatError::defective(format!(
                "expected a list within {left} bytes at byte {at}, found {count} values"
            ));
        }
        for _ in 0..count {
            self.skip_value(kind, depth)?;
        }
        Ok(())
    }

    /// Reads an entry of the directory. Its offset counts from the end of the header.
    fn tensor(&mut self, alignment: u64) -> Result<GgufEntry, FormatError> {
        let name = self.text("a tensor's name")?;
        let dimensions = self.reader.u32()?;
        if dimensions as usize > DIMENSIONS_MAX {
            return FormatError::defective(format!(
                "expected at most {DIMENSIONS_MAX} dimensions of tensor {name:?}, found {dimensions}"
            ));
        }
        let mut shape = Vec::new();
        for _ in 0..dimensions {
            shape.push(self.count()?);
        }
        let (number, offset) = (self.reader.u32()?, self.reader.u64()?);
        if !offset.is_multiple_of(alignment) {
            return FormatError::defective(format!(
                "expected tensor {name:?} at a multiple of {alignment} bytes, found it at {offset}"
            ));
        }
        let dtype = Dtype::from_ggml(number);
        let len = bytes_of(dtype, &shape);
        if len.is_none() && dtype != Dtype::Other {
            return FormatError::defective(format!(
                "expected whole blocks of {} in tensor {name:?}, found dimensions {shape:?}",
                dtype.name()
            ));
        }
        shape.reverse();
        // Values of several bytes are no numbers for the rest of the program.
        let dtype = if self.is_big_endian && dtype.width() != Some(1) { Dtype::Other } else { dtype };
        Ok(GgufEntry { tensor: Tensor { name, dtype, shape, offset, len: 0 }, len })
    }
}

/// Bytes of a metadata value with a fixed width.
fn width(kind: u32) -> Option<u64> {
    match kind {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}

/// Bytes of a tensor. `shape` has the fastest dimension first, which must consist of whole blocks.
fn bytes_of(dtype: Dtype, shape: &[u64]) -> Option<u64> {
    let count = value_count(shape)?;
    let (block_values, block_bytes) = match dtype.width() {
        Some(width) => (1, width as u64),
        None => dtype.block()?,
    };
    let row = shape.first().copied().unwrap_or(1);
    row.is_multiple_of(block_values).then(|| (count / block_values).checked_mul(block_bytes)).flatten()
}
