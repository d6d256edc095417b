//! TensorFlow Lite: a FlatBuffer of a model, its subgraphs with their tensors, and its buffers.
//!
//! 1. A table begins with the distance back to its layout, which gives the place of each field in the table. Fields
//!    that are vectors, texts or tables hold the distance forward to them.
//! 2. A tensor names its buffer by number. Values lie in the buffer's vector or, in models above 2 GiB, at an offset
//!    of the file behind the FlatBuffer. Buffer 0 is always empty.
//! 3. Tensors may share a buffer. The first one of the file names it.

use std::collections::HashSet;

use super::Format;
use super::array::ListedArray;
use super::read::{FormatError, Window, WindowReader};
use super::tensor::{DIMENSIONS_MAX, Recognised};
use super::typed::{NAME_BYTES_MAX, TypedTensor, TypedTensors, named_type};
use super::value_type::KnownType;

/// Name of the format.
const TFLITE: &str = "tflite";
/// Identifier after the offset of the model.
const MAGIC: &[u8] = b"TFL3";
/// Most tensors and buffers that are read. Each costs a few reads of 4 KiB.
const TABLES_MAX: u64 = 1 << 16;

/// Numbers of fields: of the model, a subgraph, a tensor and a buffer.
const MODEL_SUBGRAPHS: u64 = 2;
const MODEL_BUFFERS: u64 = 4;
const SUBGRAPH_TENSORS: u64 = 0;
const TENSOR_SHAPE: u64 = 0;
const TENSOR_TYPE: u64 = 1;
const TENSOR_BUFFER: u64 = 2;
const TENSOR_NAME: u64 = 3;
const TENSOR_SPARSITY: u64 = 6;
const BUFFER_DATA: u64 = 0;
const BUFFER_OFFSET: u64 = 1;
const BUFFER_SIZE: u64 = 2;

/// Names of the types by their numbers. Values of the others are of no fixed length or not whole bytes.
const TYPES: &[Option<&str>] = &[
    Some("F32"),
    Some("F16"),
    Some("I32"),
    Some("U8"),
    Some("I64"),
    None,
    Some("BOOL"),
    Some("I16"),
    Some("C64"),
    Some("I8"),
    Some("F64"),
    Some("C128"),
    Some("U64"),
    None,
    None,
    Some("U32"),
    Some("U16"),
    None,
    Some("BF16"),
];

/// Files of TensorFlow Lite.
pub struct TfLite;

impl Format for TfLite {
    fn name(&self) -> &'static str {
        TFLITE
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["tflite"]
    }

    fn matches_head(&self, head: &[u8]) -> bool {
        head.get(4..8) == Some(MAGIC)
    }

    fn find(&self, window: Window) -> Result<Option<Recognised>, FormatError> {
        tensors(window)?.found(TFLITE, window)
    }

    fn list(&self, window: Window, visit: &mut dyn FnMut(ListedArray)) -> Result<Option<&'static str>, FormatError> {
        tensors(window)?.list(TFLITE, window, visit)
    }
}

fn tensors(window: Window) -> Result<TypedTensors, FormatError> {
    let mut file = TableReader { reader: WindowReader::scattered(window), tables_left: TABLES_MAX };
    let root = file.forward(0)?;
    let Some(buffers) = file.vector(root, MODEL_BUFFERS)? else { return Ok(TypedTensors::default()) };
    let (mut tensors, mut used) = (TypedTensors::default(), HashSet::new());
    for subgraph in file.tables(root, MODEL_SUBGRAPHS)? {
        for tensor in file.tables(subgraph, SUBGRAPH_TENSORS)? {
            let number = file.number(tensor, TENSOR_BUFFER, 4)?;
            let Some(values) = file.buffer(buffers, number, window.len())? else { continue };
            if !used.insert(values.0) {
                continue;
            }
            tensors.push(file.tensor(tensor, values)?)?;
        }
    }
    Ok(tensors)
}

/// A vector: offset of its first element, and number of elements.
type VectorRange = (u64, u64);

/// Reader of a FlatBuffer. Tables are known by the offset of their first byte.
struct TableReader<'a> {
    reader: WindowReader<'a>,
    /// Tables that may still be read.
    tables_left: u64,
}

impl TableReader<'_> {
    /// The offset to which the distance at byte `at` leads.
    fn forward(&mut self, at: u64) -> Result<u64, FormatError> {
        self.reader.seek(at);
        Ok(at + u64::from(self.reader.u32()?))
    }

    /// Offset of a field. `None` if the table leaves it out.
    fn field(&mut self, table: u64, field: u64) -> Result<Option<u64>, FormatError> {
        self.reader.seek(table);
        let back = i64::from(self.reader.u32()? as i32);
        let Some(layout) = table.checked_add_signed(-back) else {
            return FormatError::defective(format!("expected the layout of the table at byte {table}, found {back}"));
        };
        self.reader.seek(layout);
        let (entry, len) = (4 + 2 * field, u64::from(self.reader.u16()?));
        if entry + 2 > len {
            return Ok(None);
        }
        self.reader.seek(layout + entry);
        let distance = u64::from(self.reader.u16()?);
        Ok((distance > 0).then_some(table + distance))
    }

    /// A number of `len` bytes, 0 if the table leaves it out.
    fn number(&mut self, table: u64, field: u64, len: u64) -> Result<u64, FormatError> {
        let Some(at) = self.field(table, field)? else { return Ok(0) };
        self.reader.seek(at);
        match len {
            1 => self.reader.u8().map(u64::from),
            4 => self.reader.u32().map(u64::from),
            _ => self.reader.u64(),
        }
    }

    fn vector(&mut self, table: u64, field: u64) -> Result<Option<VectorRange>, FormatError> {
        let Some(at) = self.field(table, field)? else { return Ok(None) };
        let start = self.forward(at)?;
        self.reader.seek(start);
        let count = u64::from(self.reader.u32()?);
        Ok(Some((start + 4, count)))
    }

    /// The tables of a vector.
    fn tables(&mut self, table: u64, field: u64) -> Result<Vec<u64>, FormatError> {
        let Some((start, count)) = self.vector(table, field)? else { return Ok(Vec::new()) };
        self.tables_left = match self.tables_left.checked_sub(count) {
            Some(left) => left,
            None => {
                return FormatError::defective(format!(
                    "expected at most {TABLES_MAX} subgraphs and tensors, found {count} more at byte {start}"
                ));
            }
        };
        (0..count).map(|index| self.forward(start + 4 * index)).collect()
    }

    /// Offset and size of the values of a buffer. `None` without values.
    fn buffer(&mut self, buffers: VectorRange, number: u64, len: u64) -> Result<Option<(u64, u64)>, FormatError> {
        let (start, count) = buffers;
        if number >= count {
            return FormatError::defective(format!("expected a buffer below {count}, found buffer {number}"));
        }
        let buffer = self.forward(start + 4 * number)?;
        let (offset, bytes) = match self.vector(buffer, BUFFER_DATA)? {
            Some(vector) if vector.1 > 0 => vector,
            // Writers put 1 where they fill in the offset later.
            _ => match self.number(buffer, BUFFER_OFFSET, 8)? {
                0 | 1 => return Ok(None),
                offset => (offset, self.number(buffer, BUFFER_SIZE, 8)?),
            },
        };
        if offset.checked_add(bytes).is_none_or(|end| end > len) {
            return FormatError::defective(format!(
                "expected buffer {number} within {len} bytes, found {bytes} bytes at byte {offset}"
            ));
        }
        Ok((bytes > 0).then_some((offset, bytes)))
    }

    /// A tensor with the values at an offset and of a size.
    fn tensor(&mut self, table: u64, (offset, len): (u64, u64)) -> Result<TypedTensor, FormatError> {
        let mut shape = Vec::new();
        if let Some((start, count)) = self.vector(table, TENSOR_SHAPE)? {
            if count > DIMENSIONS_MAX as u64 {
                return FormatError::defective(format!(
                    "expected at most {DIMENSIONS_MAX} dimensions at byte {start}, found {count}"
                ));
            }
            self.reader.seek(start);
            for _ in 0..count {
                shape.push(u64::from(self.reader.u32()?));
            }
        }
        let name = match self.vector(table, TENSOR_NAME)? {
            Some((start, count)) => {
                self.reader.seek(start);
                String::from_utf8(self.reader.bytes("a name", count, NAME_BYTES_MAX)?).unwrap_or_default()
            }
            None => String::new(),
        };
        let number = usize::try_from(self.number(table, TENSOR_TYPE, 1)?).unwrap_or(usize::MAX);
        let is_sparse = self.field(table, TENSOR_SPARSITY)?.is_some();
        let label = TYPES.get(number).copied().flatten().filter(|_| !is_sparse);
        match label.and_then(KnownType::named) {
            Some(known) => TypedTensor::known(name, known, shape, offset, len),
            // Of texts, values of less than a byte and sparse values only the bytes are known.
            None => Ok(TypedTensor { name, value_type: named_type("other"), shape, offset, len }),
        }
    }
}
