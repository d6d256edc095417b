//! Exact types of values, by the names that safetensors and numpy have for them.
//!
//! [`Dtype`] tells only what matters for storing: widths, and which bits are an exponent. What a value means to people
//! (a sign, a truth, a complex number, which 8-bit float) stands in the file and is kept here.

use std::borrow::Cow;

use super::dtype::Dtype;

/// A type of values.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ValueType {
    /// Its name: that of safetensors, if that has one.
    pub(super) name: &'static str,
    /// What numpy calls it.
    pub(super) numpy: Option<&'static str>,
    /// What it is stored as.
    pub(super) dtype: Dtype,
    /// Bits of a value.
    pub(super) bits: u64,
    /// Values of [`Self::dtype`] in one value: complex values are pairs of floats.
    pub(super) parts: u64,
    /// Whether safetensors has it.
    pub(super) in_safetensors: bool,
}

const fn row(name: &'static str, numpy: Option<&'static str>, dtype: Dtype, bits: u64) -> ValueType {
    ValueType { name, numpy, dtype, bits, parts: 1, in_safetensors: true }
}

/// Every type with a name; of those stored alike the one comes first that is meant where nothing more is known.
const TYPES: &[ValueType] = &[
    row("F64", Some("<f8"), Dtype::Float64, 64),
    row("F32", Some("<f4"), Dtype::Float32, 32),
    row("F16", Some("<f2"), Dtype::Float16, 16),
    row("BF16", None, Dtype::Bfloat16, 16),
    ValueType { in_safetensors: false, ..row("F8", None, Dtype::Float8, 8) },
    row("F8_E4M3", None, Dtype::Float8, 8),
    row("F8_E5M2", None, Dtype::Float8, 8),
    row("F8_E8M0", None, Dtype::Float8, 8),
    row("F8_E4M3FNUZ", None, Dtype::Float8, 8),
    row("F8_E5M2FNUZ", None, Dtype::Float8, 8),
    row("F6_E2M3", None, Dtype::Other, 6),
    row("F6_E3M2", None, Dtype::Other, 6),
    row("F4", None, Dtype::Other, 4),
    row("I64", Some("<i8"), Dtype::Int64, 64),
    row("U64", Some("<u8"), Dtype::Int64, 64),
    row("I32", Some("<i4"), Dtype::Int32, 32),
    row("U32", Some("<u4"), Dtype::Int32, 32),
    row("I16", Some("<i2"), Dtype::Int16, 16),
    row("U16", Some("<u2"), Dtype::Int16, 16),
    row("I8", Some("|i1"), Dtype::Int8, 8),
    row("U8", Some("|u1"), Dtype::Int8, 8),
    row("BOOL", Some("|b1"), Dtype::Int8, 8),
    ValueType { parts: 2, ..row("C64", Some("<c8"), Dtype::Float32, 64) },
    ValueType { parts: 2, in_safetensors: false, ..row("C128", Some("<c16"), Dtype::Float64, 128) },
];

impl ValueType {
    /// The type of this name.
    pub(super) fn named(name: &str) -> Option<&'static ValueType> {
        TYPES.iter().find(|row| row.name == name)
    }
    /// The type of this name, if safetensors has it.
    pub(super) fn in_safetensors(name: &str) -> Option<&'static ValueType> {
        Self::named(name).filter(|row| row.in_safetensors)
    }
    /// The type that numpy calls so.
    pub(super) fn in_numpy(descr: &str) -> Option<&'static ValueType> {
        TYPES.iter().find(|row| row.numpy == Some(descr))
    }
}

/// What the values of an array are, and how files can name them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// The name people see: safetensors' where that has one, else what the file says.
    pub name: Cow<'static, str>,
    /// What it is stored as.
    pub dtype: Dtype,
    /// Bytes of a value; none for blocks and for values that are no whole bytes.
    pub width: Option<u64>,
    /// What numpy calls it, if that has it.
    pub numpy: Option<Cow<'static, str>>,
    /// What safetensors calls it, if that has it.
    pub safetensors: Option<&'static str>,
    /// What the values alone do not tell.
    pub remark: Option<&'static str>,
}

impl Value {
    /// The values of a recognised tensor of which nothing more is known.
    pub fn of(dtype: Dtype) -> Value {
        let known = TYPES.iter().find(|row| row.dtype == dtype && dtype != Dtype::Other);
        known.map_or_else(|| Value::called(dtype.name(), dtype, None), Value::from)
    }
    /// Values that only their own file has a name for.
    pub(super) fn called(name: impl Into<Cow<'static, str>>, dtype: Dtype, width: Option<u64>) -> Value {
        Value { name: name.into(), dtype, width, numpy: None, safetensors: None, remark: None }
    }
    /// The same values, the highest byte first.
    pub(super) fn big_endian(self) -> Value {
        if self.width == Some(1) {
            return self;
        }
        let numpy = self.numpy.map(|descr| Cow::Owned(descr.replace('<', ">")));
        let name = Cow::Owned(format!("{} (big-endian)", self.name));
        Value { name, numpy, dtype: Dtype::Other, safetensors: None, ..self }
    }
}

impl From<&'static ValueType> for Value {
    fn from(row: &'static ValueType) -> Value {
        Value {
            name: row.name.into(),
            dtype: row.dtype,
            width: row.bits.is_multiple_of(8).then_some(row.bits / 8),
            numpy: row.numpy.map(Cow::Borrowed),
            safetensors: row.in_safetensors.then_some(row.name),
            remark: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_what_is_not_known_goes_by_its_storage() {
        for row in TYPES {
            assert_eq!(ValueType::named(row.name), Some(row));
            assert!(row.numpy.is_none_or(|descr| ValueType::in_numpy(descr) == Some(row)));
        }
        assert_eq!((&*Value::of(Dtype::Int8).name, &*Value::of(Dtype::Float8).name), ("I8", "F8"));
        assert_eq!(Value::of(Dtype::Float8).safetensors, None);
        assert_eq!((&*Value::of(Dtype::Other).name, &*Value::of(Dtype::Quantised(8)).name), ("other", "Q8_0"));
        assert_eq!(Value::of(Dtype::Float32).big_endian().numpy.as_deref(), Some(">f4"));
        assert_eq!(Value::of(Dtype::Int8).big_endian(), Value::of(Dtype::Int8));
        assert_eq!(ValueType::in_safetensors("C128"), None);
    }
}
