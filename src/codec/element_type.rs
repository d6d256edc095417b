//! Element types as the codecs see them.

/// Type of a tensor's elements: their width, and where sign, exponent and mantissa are.
///
/// Not the same as a file's `format::Dtype`, which has a stored code and a name for every type of every file format.
/// Codecs tell only floats apart: integers, quantised blocks and chunks without a known type are all `Unknown`, and the
/// codec samples their layout. `Dtype::element_type` is the one conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ElementType {
    /// Two bytes with an exponent of eight bits.
    Bf16,
    /// Two bytes with an exponent of five bits.
    Fp16,
    /// Four bytes with an exponent of eight bits.
    Fp32,
    /// Eight bytes with an exponent of eleven bits.
    Fp64,
    /// One byte: FP8.
    Byte,
    /// Not known: the codec samples the layout.
    Unknown,
}

impl ElementType {
    /// Bytes of an element; 1 if the type is unknown.
    pub const fn width(self) -> usize {
        match self {
            ElementType::Byte | ElementType::Unknown => 1,
            ElementType::Bf16 | ElementType::Fp16 => 2,
            ElementType::Fp32 => 4,
            ElementType::Fp64 => 8,
        }
    }
}
