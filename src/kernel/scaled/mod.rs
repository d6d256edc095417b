//! Scaled: the codes of float values that are divided by a scale, as tools for FP8, INT8, INT4 and NF4 weights make
//! them.
//!
//! Each step is one operation of IEEE 754 on 32 bits, rounded to nearest, ties to even, with subnormal numbers; nothing
//! depends on what a NaN looks like. docs/FORMAT.md has every step. Values are FP32, little-endian.

mod loops;
#[cfg(test)]
mod tests;

use super::codebook::Codebook;
use super::dispatch::dispatch;
use super::float_format::FloatFormat;
use loops::{greatest_loop, scaled_codes_loop};

pub use loops::{code_of, rank, rounded_quotient};

/// What the codes of quotients are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ScaledCode {
    /// Eight-bit floats with an exponent of four bits.
    E4m3,
    /// Eight-bit floats with an exponent of five bits.
    E5m2,
    /// Integers from −128 to 127.
    Int8,
    /// Integers from −8 to 7, plus 8.
    Int4,
    /// The 16 numbers of NormalFloat, by their order.
    NormalFloat,
}

/// How a value is divided by the scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QuotientRounding {
    /// The quotient as it is.
    Fp32,
    /// The quotient rounded to BF16.
    Bf16,
    /// The quotient rounded to FP16.
    Fp16,
    /// The product with one divided by the scale.
    Inverse,
}

impl ScaledCode {
    /// Every kind of codes.
    pub const ALL: [ScaledCode; 5] =
        [ScaledCode::E4m3, ScaledCode::E5m2, ScaledCode::Int8, ScaledCode::Int4, ScaledCode::NormalFloat];

    /// Number on disk; never reused.
    pub const fn number(self) -> u8 {
        match self {
            ScaledCode::E4m3 => 1,
            ScaledCode::E5m2 => 2,
            ScaledCode::Int8 => 3,
            ScaledCode::Int4 => 4,
            ScaledCode::NormalFloat => 5,
        }
    }

    /// Bits of a code: 8 or 4.
    pub const fn bits(self) -> usize {
        match self {
            ScaledCode::Int4 | ScaledCode::NormalFloat => 4,
            _ => 8,
        }
    }

    /// The number that a code stands for, before its scale.
    pub fn value(self, code: u8) -> f32 {
        match self {
            ScaledCode::E4m3 => f32::from_bits(FloatFormat::E4m3.widened(code.into())),
            ScaledCode::E5m2 => f32::from_bits(FloatFormat::E5m2.widened(code.into())),
            ScaledCode::Int8 => f32::from(code as i8),
            ScaledCode::Int4 => f32::from(code & 15) - 8.0,
            ScaledCode::NormalFloat => Codebook::NormalFloat.number(code),
        }
    }
}

impl QuotientRounding {
    /// Every way, by its number on disk.
    pub const ALL: [QuotientRounding; 4] =
        [QuotientRounding::Fp32, QuotientRounding::Bf16, QuotientRounding::Fp16, QuotientRounding::Inverse];
}

dispatch! {
    /// Fills `codes`, a byte each, with those of `values` by `scale`, up to the shorter of the two.
    ///
    /// A scale that is zero or not finite counts as 1, a quotient that is not a number as 0. A quotient beyond the last
    /// code has that code.
    pub fn scaled_codes(code: ScaledCode, rounding: QuotientRounding, values: &[u8], scale: f32, codes: &mut [u8]) {
        AVX512 | AVX2 | PORTABLE => scaled_codes_loop,
    }
}
dispatch! {
    /// The greatest magnitude of `values`, at least `least`. What is not a number has none.
    pub fn greatest_value(values: &[u8], least: f32) -> f32 {
        AVX512 | AVX2 | PORTABLE => greatest_loop,
    }
}
