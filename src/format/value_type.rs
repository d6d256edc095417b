//! Exact types of values, with their names in safetensors and numpy.
//!
//! [`Dtype`] has only what matters for storing: the width and the exponent. A file says more: signedness, booleans,
//! complex numbers, the kind of 8-bit float. People want to see that, so it is recorded here.

use std::borrow::Cow;

use ::safetensors::Dtype as SafetensorsDtype;

use super::dtype::Dtype;

/// A type that has a name in safetensors or numpy.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct KnownType {
    /// Name in reports. Equal to the name in safetensors, if there is one.
    pub(super) name: &'static str,
    /// Name in numpy.
    pub(super) numpy: Option<&'static str>,
    /// Type in safetensors.
    pub(super) safetensors: Option<SafetensorsDtype>,
    /// Type of the stored values.
    pub(super) dtype: Dtype,
    /// Bits of a value.
    pub(super) bits: u64,
    /// Number of stored values in one value. A complex value is a pair of floats.
    pub(super) parts: u64,
}

const fn row(
    name: &'static str,
    safetensors: SafetensorsDtype,
    numpy: Option<&'static str>,
    dtype: Dtype,
    bits: u64,
) -> KnownType {
    KnownType { name, numpy, safetensors: Some(safetensors), dtype, bits, parts: 1 }
}

/// Every type with a name. Of the types with the same [`Dtype`], the first one is the default.
const TYPES: &[KnownType] = &[
    row("F64", SafetensorsDtype::F64, Some("<f8"), Dtype::Float64, 64),
    row("F32", SafetensorsDtype::F32, Some("<f4"), Dtype::Float32, 32),
    row("F16", SafetensorsDtype::F16, Some("<f2"), Dtype::Float16, 16),
    row("BF16", SafetensorsDtype::BF16, None, Dtype::Bfloat16, 16),
    KnownType { name: "F8", numpy: None, safetensors: None, dtype: Dtype::Float8, bits: 8, parts: 1 },
    row("F8_E4M3", SafetensorsDtype::F8_E4M3, None, Dtype::Float8, 8),
    row("F8_E5M2", SafetensorsDtype::F8_E5M2, None, Dtype::Float8, 8),
    row("F8_E8M0", SafetensorsDtype::F8_E8M0, None, Dtype::Float8, 8),
    row("F8_E4M3FNUZ", SafetensorsDtype::F8_E4M3FNUZ, None, Dtype::Float8, 8),
    row("F8_E5M2FNUZ", SafetensorsDtype::F8_E5M2FNUZ, None, Dtype::Float8, 8),
    row("F6_E2M3", SafetensorsDtype::F6_E2M3, None, Dtype::Other, 6),
    row("F6_E3M2", SafetensorsDtype::F6_E3M2, None, Dtype::Other, 6),
    row("F4", SafetensorsDtype::F4, None, Dtype::Other, 4),
    row("I64", SafetensorsDtype::I64, Some("<i8"), Dtype::Int64, 64),
    row("U64", SafetensorsDtype::U64, Some("<u8"), Dtype::Int64, 64),
    row("I32", SafetensorsDtype::I32, Some("<i4"), Dtype::Int32, 32),
    row("U32", SafetensorsDtype::U32, Some("<u4"), Dtype::Int32, 32),
    row("I16", SafetensorsDtype::I16, Some("<i2"), Dtype::Int16, 16),
    row("U16", SafetensorsDtype::U16, Some("<u2"), Dtype::Int16, 16),
    row("I8", SafetensorsDtype::I8, Some("|i1"), Dtype::Int8, 8),
    row("U8", SafetensorsDtype::U8, Some("|u1"), Dtype::Int8, 8),
    row("BOOL", SafetensorsDtype::BOOL, Some("|b1"), Dtype::Int8, 8),
    KnownType { parts: 2, ..row("C64", SafetensorsDtype::C64, Some("<c8"), Dtype::Float32, 64) },
    KnownType { name: "C128", numpy: Some("<c16"), safetensors: None, dtype: Dtype::Float64, bits: 128, parts: 2 },
];

impl KnownType {
    /// The type with this name.
    pub(super) fn named(name: &str) -> Option<&'static KnownType> {
        TYPES.iter().find(|row| row.name == name)
    }
    /// The type with this name in safetensors.
    pub(super) fn in_safetensors(name: &str) -> Option<&'static KnownType> {
        Self::named(name).filter(|row| row.safetensors.is_some())
    }
    /// The type with this name in numpy.
    pub(super) fn in_numpy(descr: &str) -> Option<&'static KnownType> {
        TYPES.iter().find(|row| row.numpy == Some(descr))
    }
}

/// Type of the values of an array, with its names in file formats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueType {
    /// Name in reports: the name in safetensors if there is one, else the name in the file.
    pub name: Cow<'static, str>,
    /// Type of the stored values.
    pub dtype: Dtype,
    /// Bytes of a value. `None` for blocks and for values that are not whole bytes.
    pub width: Option<u64>,
    /// Name in numpy, if there is one.
    pub numpy: Option<Cow<'static, str>>,
    /// Type in safetensors, if there is one.
    pub safetensors: Option<SafetensorsDtype>,
    /// What a reader of the values has to know in addition.
    pub remark: Option<&'static str>,
}

impl ValueType {
    /// The default type of values that are stored as `dtype`.
    pub fn of(dtype: Dtype) -> ValueType {
        let known = TYPES.iter().find(|row| row.dtype == dtype && dtype != Dtype::Other);
        known.map_or_else(|| ValueType::custom(dtype.name(), dtype, None), ValueType::from)
    }
    /// A type without a name in safetensors and numpy.
    pub(super) fn custom(name: impl Into<Cow<'static, str>>, dtype: Dtype, width: Option<u64>) -> ValueType {
        ValueType { name: name.into(), dtype, width, numpy: None, safetensors: None, remark: None }
    }
    /// Bytes of unknown meaning.
    pub(super) fn bytes() -> ValueType {
        ValueType::custom(Dtype::Other.name(), Dtype::Other, Some(1))
    }
    /// The same type in big-endian order.
    pub(super) fn big_endian(self) -> ValueType {
        if self.width == Some(1) {
            return self;
        }
        let numpy = self.numpy.map(|descr| Cow::Owned(descr.replace('<', ">")));
        let name = Cow::Owned(format!("{} (big-endian)", self.name));
        ValueType { name, numpy, dtype: Dtype::Other, safetensors: None, ..self }
    }
}

impl From<&'static KnownType> for ValueType {
    fn from(row: &'static KnownType) -> ValueType {
        ValueType {
            name: row.name.into(),
            dtype: row.dtype,
            width: row.bits.is_multiple_of(8).then_some(row.bits / 8),
            numpy: row.numpy.map(Cow::Borrowed),
            safetensors: row.safetensors,
            remark: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_types_without_a_name_use_that_of_their_dtype() {
        for row in TYPES {
            assert_eq!(KnownType::named(row.name), Some(row));
            assert!(row.numpy.is_none_or(|descr| KnownType::in_numpy(descr) == Some(row)));
        }
        assert_eq!((&*ValueType::of(Dtype::Int8).name, &*ValueType::of(Dtype::Float8).name), ("I8", "F8"));
        assert_eq!(ValueType::of(Dtype::Float8).safetensors, None);
        assert_eq!((&*ValueType::of(Dtype::Other).name, &*ValueType::of(Dtype::Quantised(8)).name), ("other", "Q8_0"));
        assert_eq!(ValueType::of(Dtype::Float32).big_endian().numpy.as_deref(), Some(">f4"));
        assert_eq!(ValueType::of(Dtype::Int8).big_endian(), ValueType::of(Dtype::Int8));
        assert_eq!(KnownType::in_safetensors("C128"), None);
    }

    #[test]
    fn names_and_widths_are_those_of_the_safetensors_crate() {
        for row in TYPES {
            if let Some(dtype) = row.safetensors {
                assert_eq!((row.name.to_string(), row.bits), (dtype.to_string(), dtype.bitsize() as u64));
            }
        }
    }
}
