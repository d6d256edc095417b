//! The loops over values, written so that the compiler takes several at a time.

use super::{QuotientRounding, ScaledCode};
use crate::kernel::codebook::Codebook;
use crate::kernel::elements::{bf16, fp16, fp16_value};
use crate::kernel::float_format::FloatFormat;

/// Lanes in which values are compared.
const LANES: usize = 16;
/// In the sum with this number, the low bits have the nearest integer.
const INTEGER_BITS: f32 = 12_582_912.0;
/// The greatest finite numbers of the two eight-bit floats.
const E4M3_MAX: f32 = 448.0;
const E5M2_MAX: f32 = 57344.0;

/// Not below `low` and not above `high`; 0 for what is not a number.
#[inline(always)]
fn bounded(number: f32, low: f32, high: f32) -> f32 {
    let number = if number.is_nan() { 0.0 } else { number };
    let number = if number > low { number } else { low };
    if number < high { number } else { high }
}

/// The low byte of the nearest integer, ties to even.
#[inline(always)]
fn nearest(number: f32) -> u8 {
    (number + INTEGER_BITS).to_bits() as u8
}

/// The code of a quotient.
#[inline(always)]
pub fn code_of(code: ScaledCode, quotient: f32) -> u8 {
    match code {
        ScaledCode::E4m3 => FloatFormat::E4m3.narrowed(bounded(quotient, -E4M3_MAX, E4M3_MAX).to_bits()) as u8,
        ScaledCode::E5m2 => FloatFormat::E5m2.narrowed(bounded(quotient, -E5M2_MAX, E5M2_MAX).to_bits()) as u8,
        ScaledCode::Int8 => nearest(bounded(quotient, -128.0, 127.0)),
        ScaledCode::Int4 => nearest(bounded(quotient, -8.0, 7.0)).wrapping_add(8),
        ScaledCode::NormalFloat => Codebook::NormalFloat.nearest(if quotient.is_nan() { 0.0 } else { quotient }),
    }
}

/// The position of a code in the order of its numbers, negative zero before zero.
#[inline(always)]
pub fn rank(code: ScaledCode, byte: u8) -> u8 {
    match code {
        ScaledCode::E4m3 | ScaledCode::E5m2 => byte ^ if byte & 0x80 == 0 { 0x80 } else { 0xff },
        ScaledCode::Int8 => byte ^ 0x80,
        ScaledCode::Int4 | ScaledCode::NormalFloat => byte,
    }
}

/// A quotient as it is rounded before it becomes a code.
#[inline(always)]
pub fn rounded_quotient(rounding: QuotientRounding, quotient: f32) -> f32 {
    match rounding {
        QuotientRounding::Fp32 | QuotientRounding::Inverse => quotient,
        QuotientRounding::Bf16 => f32::from_bits(u32::from(bf16(quotient.to_bits())) << 16),
        QuotientRounding::Fp16 => fp16_value(fp16(quotient.to_bits())),
    }
}

/// A value divided by the scale. `inverse` is 1 divided by it.
#[inline(always)]
fn quotient(rounding: QuotientRounding, value: f32, scale: f32, inverse: f32) -> f32 {
    match rounding {
        QuotientRounding::Inverse => value * inverse,
        _ => rounded_quotient(rounding, value / scale),
    }
}

#[inline(always)]
pub(super) fn scaled_codes_loop(
    code: ScaledCode,
    rounding: QuotientRounding,
    values: &[u8],
    scale: f32,
    codes: &mut [u8],
) {
    let scale = if scale == 0.0 || !scale.is_finite() { 1.0 } else { scale };
    let inverse = 1.0 / scale;
    // A loop for each pair, so that none has a branch inside.
    macro_rules! each {
        ($rounding:path, $code:path) => {
            for (code, value) in codes.iter_mut().zip(values.as_chunks::<4>().0) {
                *code = code_of($code, quotient($rounding, f32::from_le_bytes(*value), scale, inverse));
            }
        };
    }
    macro_rules! by_code {
        ($rounding:path) => {
            match code {
                ScaledCode::E4m3 => each!($rounding, ScaledCode::E4m3),
                ScaledCode::E5m2 => each!($rounding, ScaledCode::E5m2),
                ScaledCode::Int8 => each!($rounding, ScaledCode::Int8),
                ScaledCode::Int4 => each!($rounding, ScaledCode::Int4),
                ScaledCode::NormalFloat => each!($rounding, ScaledCode::NormalFloat),
            }
        };
    }
    match rounding {
        QuotientRounding::Fp32 => by_code!(QuotientRounding::Fp32),
        QuotientRounding::Bf16 => by_code!(QuotientRounding::Bf16),
        QuotientRounding::Fp16 => by_code!(QuotientRounding::Fp16),
        QuotientRounding::Inverse => by_code!(QuotientRounding::Inverse),
    }
}

#[inline(always)]
pub(super) fn greatest_loop(values: &[u8], least: f32) -> f32 {
    let mut lanes = [least; LANES];
    let values = values.as_chunks::<4>().0;
    let mut take = |values: &[[u8; 4]]| {
        for (lane, value) in lanes.iter_mut().zip(values) {
            let magnitude = f32::from_le_bytes(*value).abs();
            *lane = if magnitude > *lane { magnitude } else { *lane };
        }
    };
    let (whole, rest) = values.as_chunks::<LANES>();
    whole.iter().for_each(|values| take(values));
    take(rest);
    // By halves, which are vectors.
    for half in [8, 4, 2, 1] {
        for at in 0..half {
            let other = lanes[at + half];
            lanes[at] = if other > lanes[at] { other } else { lanes[at] };
        }
    }
    lanes[0]
}
