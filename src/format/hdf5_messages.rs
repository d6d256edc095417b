//! The messages of HDF5's object headers that tell where a dataset lies: its type, its shape and its layout.

use super::read::{FormatError, WindowReader};
use super::tensor::{DIMENSIONS_MAX, value_count};
use super::typed::{TypedTensor, known_len, named_type};
use super::value_type::{KnownType, ValueType};

/// Kinds of values: the low half of a type's first byte.
const CLASS_FIXED: u8 = 0;
const CLASS_FLOAT: u8 = 1;
const CLASS_REFERENCE: u8 = 7;
const CLASS_ENUM: u8 = 8;
const CLASS_VARIABLE: u8 = 9;
/// The layout of values in one range.
const CONTIGUOUS: u8 = 1;

/// The floats that have a name: bytes, bits of the exponent, bits of the mantissa.
const FLOATS: &[(u32, u8, u8, &str)] = &[
    (8, 11, 52, "F64"),
    (4, 8, 23, "F32"),
    (2, 5, 10, "F16"),
    (2, 8, 7, "BF16"),
    (1, 4, 3, "F8_E4M3"),
    (1, 5, 2, "F8_E5M2"),
];

/// Type of a dataset's values.
pub(super) struct Hdf5Type {
    /// Name of the type. `None` for texts, records and others.
    label: Option<&'static str>,
    /// Whether values are only references to what lies elsewhere, as texts of variable length are.
    is_reference: bool,
    is_big_endian: bool,
    /// Bytes of a value.
    width: u32,
}

/// Where the values of a dataset lie.
pub(super) enum Hdf5Layout {
    /// In one range of the file. `len` is `None` where old writers leave it to shape and type.
    Contiguous { offset: u64, len: Option<u64> },
    /// In no range yet: nothing was written.
    Unwritten,
    /// In the header, in chunks, or in other files.
    Elsewhere,
}

/// A dataset as far as its messages were read.
#[derive(Default)]
pub(super) struct Hdf5Dataset {
    pub(super) shape: Option<Vec<u64>>,
    pub(super) value_type: Option<Hdf5Type>,
    pub(super) layout: Option<Hdf5Layout>,
}

/// Number of `bytes` bytes (2, 4 or 8). Numbers of all ones are places that do not exist.
pub(super) fn number(reader: &mut WindowReader, bytes: u8) -> Result<Option<u64>, FormatError> {
    let (number, none) = match bytes {
        2 => (u64::from(reader.u16()?), u64::from(u16::MAX)),
        4 => (u64::from(reader.u32()?), u64::from(u32::MAX)),
        _ => (reader.u64()?, u64::MAX),
    };
    Ok((number != none).then_some(number))
}

/// Reads the message of a shape. `None` for datasets without values.
pub(super) fn shape(reader: &mut WindowReader, length_bytes: u8) -> Result<Option<Vec<u64>>, FormatError> {
    let (at, version, rank) = (reader.position(), reader.u8()?, reader.u8()?);
    if rank as usize > DIMENSIONS_MAX {
        return FormatError::defective(format!(
            "expected at most {DIMENSIONS_MAX} dimensions at byte {at}, found {rank}"
        ));
    }
    match version {
        1 => reader.skip(6)?,
        2 => {
            reader.skip(1)?;
            if reader.u8()? == 2 {
                return Ok(None);
            }
        }
        _ => {
            return FormatError::defective(format!("expected a shape of version 1 or 2 at byte {at}, found {version}"));
        }
    }
    let mut sizes = Vec::new();
    for _ in 0..rank {
        sizes.push(number(reader, length_bytes)?.unwrap_or(u64::MAX));
    }
    Ok(Some(sizes))
}

/// Reads the message of a type.
pub(super) fn value_type(reader: &mut WindowReader) -> Result<Hdf5Type, FormatError> {
    let (class, flags) = (reader.u8()? & 0x0f, reader.u8()?);
    reader.skip(2)?;
    let width = reader.u32()?;
    let is_signed = flags & 8 != 0;
    // Bit 6 is set for the order of a VAX, which is neither of the two.
    let has_order = class != CLASS_FLOAT || flags & 0x40 == 0;
    let label = match (class, width) {
        (CLASS_FIXED, 1) => Some(if is_signed { "I8" } else { "U8" }),
        (CLASS_FIXED, 2) => Some(if is_signed { "I16" } else { "U16" }),
        (CLASS_FIXED, 4) => Some(if is_signed { "I32" } else { "U32" }),
        (CLASS_FIXED, 8) => Some(if is_signed { "I64" } else { "U64" }),
        // Names for the numbers 0 and 1, in general.
        (CLASS_ENUM, 1) => Some("BOOL"),
        (CLASS_FLOAT, _) => {
            reader.skip(5)?;
            let exponent = reader.u8()?;
            reader.skip(1)?;
            let mantissa = reader.u8()?;
            FLOATS.iter().find(|row| (row.0, row.1, row.2) == (width, exponent, mantissa)).map(|row| row.3)
        }
        _ => None,
    };
    let is_reference = matches!(class, CLASS_REFERENCE | CLASS_VARIABLE);
    Ok(Hdf5Type { label: label.filter(|_| has_order), is_reference, is_big_endian: flags & 1 != 0, width })
}

/// Reads the message of a layout.
pub(super) fn layout(reader: &mut WindowReader, offset_bytes: u8, length_bytes: u8) -> Result<Hdf5Layout, FormatError> {
    let version = reader.u8()?;
    let class = match version {
        1 | 2 => {
            reader.skip(1)?;
            let class = reader.u8()?;
            reader.skip(5)?;
            class
        }
        _ => reader.u8()?,
    };
    if class != CONTIGUOUS {
        return Ok(Hdf5Layout::Elsewhere);
    }
    let Some(offset) = number(reader, offset_bytes)? else { return Ok(Hdf5Layout::Unwritten) };
    let len = if version < 3 { None } else { number(reader, length_bytes)? };
    Ok(Hdf5Layout::Contiguous { offset, len })
}

impl Hdf5Dataset {
    /// The tensor, whose places count from byte `base`. The reason if its values cannot be read, `None` for references,
    /// values of unknown types that are not in one range, and values that were never written.
    pub(super) fn tensor(self, name: &str, base: u64) -> Result<Option<Result<TypedTensor, String>>, FormatError> {
        let (Some(shape), Some(value_type), Some(layout)) = (self.shape, self.value_type, self.layout) else {
            return Ok(None);
        };
        if value_type.is_reference {
            return Ok(None);
        }
        let known = value_type.label.and_then(KnownType::named);
        let (offset, len) = match layout {
            Hdf5Layout::Unwritten => return Ok(None),
            Hdf5Layout::Elsewhere if known.is_none() => return Ok(None),
            Hdf5Layout::Elsewhere => return Ok(Some(Err("its values are not stored in one range".into()))),
            Hdf5Layout::Contiguous { offset, len } => (offset.saturating_add(base), len),
        };
        let Some(known) = known else {
            let expected = value_count(&shape).and_then(|count| count.checked_mul(u64::from(value_type.width)));
            let Some(len) = len.filter(|len| Some(*len) == expected) else { return Ok(None) };
            let value_type = ValueType { width: Some(u64::from(value_type.width)), ..named_type("other") };
            return Ok(Some(Ok(TypedTensor { name: name.into(), value_type, shape, offset, len })));
        };
        let len = len.or_else(|| known_len(known, &shape)).unwrap_or(u64::MAX);
        let mut tensor = TypedTensor::known(name.into(), known, shape, offset, len)?;
        if value_type.is_big_endian {
            tensor.value_type = tensor.value_type.big_endian();
        }
        Ok(Some(Ok(tensor)))
    }
}
