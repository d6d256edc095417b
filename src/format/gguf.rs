//! GGUF, little-endian, versions 1 to 3: counts, metadata, tensor directory, values.
//!
//! 1. Metadata is passed over through a buffer; only the alignment and short strings about the model are kept.
//! 2. The directory gives each tensor's name, dimensions (fastest first), type number and offset behind the header,
//!    which ends at a multiple of the alignment.
//! 3. A length follows from the dimensions and the type's blocks. A type not known here reaches to the next tensor
//!    or the end of the file.

use std::collections::BTreeMap;

use super::Format;
use super::dtype::Dtype;
use super::read::{Cursor, Fault, Window};
use super::tensor::{DIMENSIONS_MAX, METADATA_BYTES_MAX, Recognised, TENSORS_MAX, Tensor, note, settle, values};

const MAGIC: &[u8] = b"GGUF";
/// Most bytes of metadata passed over.
const METADATA_SCAN_BYTES_MAX: u64 = 256 << 20;
/// Most keys of metadata.
const VALUES_MAX: u64 = 1 << 16;
/// Most bytes of the directory.
const DIRECTORY_BYTES_MAX: u64 = 64 << 20;
/// Longest key, and longest name of a tensor.
const NAME_BYTES_MAX: u64 = 65_535;
/// Alignment where the metadata gives none.
const ALIGNMENT_DEFAULT: u64 = 32;
/// Deepest lists of lists.
const DEPTH_MAX: usize = 4;
/// Numbers of the metadata types that matter here.
const TYPE_U32: u32 = 4;
const TYPE_STRING: u32 = 8;
const TYPE_LIST: u32 = 9;

/// Files of llama.cpp and its kin.
pub struct Gguf;

impl Format for Gguf {
    fn name(&self) -> &'static str {
        "gguf"
    }

    fn may_be(&self, head: &[u8], _: u64) -> bool {
        let version = head.strip_prefix(MAGIC).and_then(|rest| rest.first_chunk::<4>());
        version.is_some_and(|version| (1..=3).contains(&u32::from_le_bytes(*version)))
    }

    fn find(&self, window: Window) -> Result<Option<Recognised>, Fault> {
        let mut header = Header::open(window)?;
        let (tensor_count, value_count) = (header.word()?, header.word()?);
        if tensor_count > TENSORS_MAX as u64 {
            return Fault::because(format!("expected at most {TENSORS_MAX} tensors, found {tensor_count}"));
        }
        if value_count > VALUES_MAX {
            return Fault::because(format!("expected at most {VALUES_MAX} values of metadata, found {value_count}"));
        }
        let (mut metadata, mut alignment) = (BTreeMap::new(), ALIGNMENT_DEFAULT);
        for _ in 0..value_count {
            header.value(&mut metadata, &mut alignment)?;
        }
        if !alignment.is_power_of_two() {
            return Fault::because(format!("expected an alignment that is a power of two, found {alignment}"));
        }
        header.cursor = Cursor::new(window, header.cursor.position(), window.len());
        header.cursor.limit(DIRECTORY_BYTES_MAX);
        let mut listed = Vec::new();
        for _ in 0..tensor_count {
            listed.push(header.tensor(alignment)?);
        }
        let start = header.cursor.position().next_multiple_of(alignment);
        let tensors = place(listed, start, window.len())?;
        settle(self.name(), tensors, metadata, window.len())
    }
}

/// A tensor of the directory; the length is none where the type is not known.
struct Listed {
    tensor: Tensor,
    len: Option<u64>,
}

/// Makes offsets count from the beginning of the file and completes the lengths.
fn place(mut listed: Vec<Listed>, start: u64, file_len: u64) -> Result<Vec<Tensor>, Fault> {
    listed.sort_by_key(|listed| listed.tensor.offset);
    let mut next = file_len.saturating_sub(start);
    for Listed { tensor, len } in listed.iter_mut().rev() {
        tensor.len = len.unwrap_or(next.saturating_sub(tensor.offset));
        if tensor.len > 0 || len.is_none() {
            next = tensor.offset;
        }
        tensor.offset = match start.checked_add(tensor.offset) {
            Some(offset) if len.is_some() || offset <= file_len => offset,
            _ => {
                return Fault::because(format!(
                    "expected tensor {:?} within {file_len} bytes, found it {} bytes behind byte {start}",
                    tensor.name, tensor.offset
                ));
            }
        };
    }
    Ok(listed.into_iter().map(|listed| listed.tensor).collect())
}

/// The part in front of the values.
struct Header<'a> {
    cursor: Cursor<'a>,
    version: u32,
}

impl<'a> Header<'a> {
    fn open(window: Window<'a>) -> Result<Self, Fault> {
        let mut cursor = Cursor::new(window, MAGIC.len() as u64, METADATA_SCAN_BYTES_MAX);
        let version = cursor.u32()?;
        Ok(Header { cursor, version })
    }

    /// A count or length: 32 bits in version 1, 64 since.
    fn word(&mut self) -> Result<u64, Fault> {
        if self.version == 1 { self.cursor.u32().map(u64::from) } else { self.cursor.u64() }
    }

    fn text(&mut self, what: &str) -> Result<String, Fault> {
        let len = self.word()?;
        let bytes = self.cursor.bytes(what, len, NAME_BYTES_MAX)?;
        let at = self.cursor.position();
        let utf8 = String::from_utf8(bytes);
        utf8.or_else(|_| Fault::because(format!("expected {what} in UTF-8 before byte {at}, found other bytes")))
    }

    /// One key and its value.
    fn value(&mut self, metadata: &mut BTreeMap<String, String>, alignment: &mut u64) -> Result<(), Fault> {
        let key = self.text("a key")?;
        let kind = self.cursor.u32()?;
        if key == "general.alignment" && kind == TYPE_U32 {
            *alignment = u64::from(self.cursor.u32()?);
            return Ok(());
        }
        if kind != TYPE_STRING || !key.starts_with("general.") {
            return self.pass(kind, DEPTH_MAX);
        }
        let len = self.word()?;
        if len > METADATA_BYTES_MAX as u64 {
            return self.cursor.skip(len);
        }
        let bytes = self.cursor.bytes("a string", len, METADATA_BYTES_MAX as u64)?;
        if let Ok(value) = String::from_utf8(bytes) {
            note(metadata, key, value);
        }
        Ok(())
    }

    /// Passes over a value.
    fn pass(&mut self, kind: u32, depth: usize) -> Result<(), Fault> {
        if let Some(width) = width(kind) {
            return self.cursor.skip(width);
        }
        match kind {
            TYPE_STRING => {
                let len = self.word()?;
                self.cursor.skip(len)
            }
            TYPE_LIST if depth > 0 => self.pass_list(depth - 1),
            _ => {
                let at = self.cursor.position();
                Fault::because(format!("expected a known type of metadata before byte {at}, found {kind}"))
            }
        }
    }

    fn pass_list(&mut self, depth: usize) -> Result<(), Fault> {
        let kind = self.cursor.u32()?;
        let count = self.word()?;
        if let Some(width) = width(kind) {
            return self.cursor.skip(count.saturating_mul(width));
        }
        if count > self.cursor.left() {
            let (at, left) = (self.cursor.position(), self.cursor.left());
            return Fault::because(format!("expected a list within {left} bytes at byte {at}, found {count} values"));
        }
        for _ in 0..count {
            self.pass(kind, depth)?;
        }
        Ok(())
    }

    /// One entry of the directory; its offset counts from the header's end.
    fn tensor(&mut self, alignment: u64) -> Result<Listed, Fault> {
        let name = self.text("a tensor's name")?;
        let dimensions = self.cursor.u32()?;
        if dimensions as usize > DIMENSIONS_MAX {
            return Fault::because(format!(
                "expected at most {DIMENSIONS_MAX} dimensions of tensor {name:?}, found {dimensions}"
            ));
        }
        let mut shape = Vec::new();
        for _ in 0..dimensions {
            shape.push(self.word()?);
        }
        let (number, offset) = (self.cursor.u32()?, self.cursor.u64()?);
        if !offset.is_multiple_of(alignment) {
            return Fault::because(format!(
                "expected tensor {name:?} at a multiple of {alignment} bytes, found it at {offset}"
            ));
        }
        let dtype = Dtype::from_ggml(number);
        let len = bytes_of(dtype, &shape);
        if len.is_none() && dtype != Dtype::Other {
            return Fault::because(format!(
                "expected whole blocks of {} in tensor {name:?}, found dimensions {shape:?}",
                dtype.name()
            ));
        }
        shape.reverse();
        Ok(Listed { tensor: Tensor { name, dtype, shape, offset, len: 0 }, len })
    }
}

/// Bytes of a metadata value of fixed width.
fn width(kind: u32) -> Option<u64> {
    match kind {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}

/// Bytes of a tensor; `shape` has the fastest dimension first, which holds whole blocks.
fn bytes_of(dtype: Dtype, shape: &[u64]) -> Option<u64> {
    let count = values(shape)?;
    let (block_values, block_bytes) = match dtype.width() {
        Some(width) => (1, width as u64),
        None => dtype.block()?,
    };
    let row = shape.first().copied().unwrap_or(1);
    row.is_multiple_of(block_values).then(|| (count / block_values).checked_mul(block_bytes)).flatten()
}
