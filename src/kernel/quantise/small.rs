//! Blocks of 32 values: a scale, for some types the least value, and a code of 4, 5 or 8 bits for each value.

use super::ScaleSource;
use super::codes::{half_away, pack, truncated};
use crate::kernel::elements::{fp16, fp16_value};

/// Values of a block, and lanes in which values are compared.
const VALUES: usize = 32;
const LANES: usize = 8;

/// The greatest magnitude, at least 0. What is not a number has none.
#[inline(always)]
fn greatest(values: &[f32]) -> f32 {
    let mut lanes = [0f32; LANES];
    for values in values.as_chunks::<LANES>().0 {
        for (lane, value) in lanes.iter_mut().zip(values) {
            *lane = if value.abs() > *lane { value.abs() } else { *lane };
        }
    }
    lanes.into_iter().fold(0.0, |greatest, lane| if lane > greatest { lane } else { greatest })
}

/// The first value of the greatest magnitude; 0 if all are zeros or no numbers. Whole lanes of values.
#[inline(always)]
pub(super) fn extreme(values: &[f32]) -> f32 {
    let greatest = greatest(values);
    let found = values.iter().copied().find(|value| value.abs() == greatest && greatest > 0.0);
    found.unwrap_or(0.0)
}

/// The least and the greatest of the values and of two others. Whole lanes of values. Zeros have any sign.
#[inline(always)]
pub(super) fn span(values: &[f32], [low, high]: [f32; 2]) -> [f32; 2] {
    let (mut least, mut greatest) = ([low; LANES], [high; LANES]);
    for values in values.as_chunks::<LANES>().0 {
        for (least, value) in least.iter_mut().zip(values) {
            *least = if *value < *least { *value } else { *least };
        }
        for (greatest, value) in greatest.iter_mut().zip(values) {
            *greatest = if *value > *greatest { *value } else { *greatest };
        }
    }
    let least = least.into_iter().fold(low, |least, lane| if lane < least { lane } else { least });
    [least, greatest.into_iter().fold(high, |greatest, lane| if lane > greatest { lane } else { greatest })]
}

/// The least and the greatest value, the first of equals.
#[inline(always)]
fn bounds(values: &[f32; VALUES]) -> (f32, f32) {
    let [least, greatest] = span(values, [f32::MAX, -f32::MAX]);
    // Zeros of both signs are equal.
    let first = |bound: f32| if bound == 0.0 { values.iter().copied().find(|value| *value == 0.0) } else { None };
    (first(least).unwrap_or(least), first(greatest).unwrap_or(greatest))
}

/// The number that values are multiplied with.
#[inline(always)]
fn inverse(scale: f32) -> f32 {
    if scale != 0.0 { 1.0 / scale } else { 0.0 }
}

/// A scale as it is stored.
#[inline(always)]
pub(super) fn stored(scale: f32) -> [u8; 2] {
    // The bits of a NaN differ between processors.
    let bits = if scale.is_nan() { 0x7e00 } else { fp16(scale.to_bits()) };
    bits.to_le_bytes()
}

/// The scale at this position of a block.
#[inline(always)]
pub(super) fn scale_at(block: &[u8], at: usize) -> f32 {
    fp16_value(u16::from(block[at]) | u16::from(block[at + 1]) << 8)
}

/// The codes of a type that has no least value. The middle is added to each.
#[inline(always)]
fn centred(
    values: &[f32; VALUES],
    scale: &mut [u8; 2],
    source: ScaleSource,
    [divisor, middle]: [f32; 2],
    high: u8,
) -> [u8; VALUES] {
    let mut codes = [0; VALUES];
    let d = match source {
        ScaleSource::Given => scale_at(scale, 0),
        ScaleSource::Computed | ScaleSource::Fused => {
            let d = extreme(values) / divisor;
            *scale = stored(d);
            d
        }
    };
    let inverse = inverse(d);
    if source == ScaleSource::Fused {
        for (code, value) in codes.iter_mut().zip(values) {
            let sum = f64::from(*value) * f64::from(inverse) + f64::from(middle);
            *code = truncated(sum as f32, high);
        }
    } else {
        for (code, value) in codes.iter_mut().zip(values) {
            *code = truncated(value * inverse + middle, high);
        }
    }
    codes
}

/// The codes of a type that has a least value. `steps` is the greatest code.
#[inline(always)]
fn from_least(values: &[f32; VALUES], scales: &mut [u8; 4], source: ScaleSource, steps: u8) -> [u8; VALUES] {
    let mut codes = [0; VALUES];
    let (d, least) = match source {
        ScaleSource::Given => (scale_at(scales, 0), scale_at(scales, 2)),
        ScaleSource::Computed | ScaleSource::Fused => {
            let (least, greatest) = bounds(values);
            let d = (greatest - least) / f32::from(steps);
            let ([a, b], [c, e]) = (stored(d), stored(least));
            *scales = [a, b, c, e];
            (d, least)
        }
    };
    let inverse = inverse(d);
    for (code, value) in codes.iter_mut().zip(values) {
        *code = truncated((value - least) * inverse + 0.5, steps);
    }
    codes
}

/// The highest bits of codes of five bits.
#[inline(always)]
fn fifth_bits(codes: &[u8; VALUES]) -> [u8; 4] {
    let bits = (0..).zip(codes).fold(0u32, |bits, (at, code)| bits | u32::from(code >> 4) << at);
    bits.to_le_bytes()
}

#[inline(always)]
pub(super) fn q4_0(values: &[f32; VALUES], block: &mut [u8; 18], source: ScaleSource) {
    let [a, b, packed @ ..] = block;
    let mut scale = [*a, *b];
    let codes = centred(values, &mut scale, source, [-8.0, 8.5], 15);
    (*a, *b) = (scale[0], scale[1]);
    pack(&codes, 4, 16, packed);
}

#[inline(always)]
pub(super) fn q5_0(values: &[f32; VALUES], block: &mut [u8; 22], source: ScaleSource) {
    let mut scale = [block[0], block[1]];
    let codes = centred(values, &mut scale, source, [-16.0, 16.5], 31);
    block[..2].copy_from_slice(&scale);
    block[2..6].copy_from_slice(&fifth_bits(&codes));
    pack(&codes, 4, 16, &mut block[6..]);
}

#[inline(always)]
pub(super) fn q4_1(values: &[f32; VALUES], block: &mut [u8; 20], source: ScaleSource) {
    let mut scales = [block[0], block[1], block[2], block[3]];
    let codes = from_least(values, &mut scales, source, 15);
    block[..4].copy_from_slice(&scales);
    pack(&codes, 4, 16, &mut block[4..]);
}

#[inline(always)]
pub(super) fn q5_1(values: &[f32; VALUES], block: &mut [u8; 24], source: ScaleSource) {
    let mut scales = [block[0], block[1], block[2], block[3]];
    let codes = from_least(values, &mut scales, source, 31);
    block[..4].copy_from_slice(&scales);
    block[4..8].copy_from_slice(&fifth_bits(&codes));
    pack(&codes, 4, 16, &mut block[8..]);
}

#[inline(always)]
pub(super) fn q8_0(values: &[f32; VALUES], block: &mut [u8; 34], source: ScaleSource) {
    let d = match source {
        ScaleSource::Given => scale_at(block, 0),
        ScaleSource::Computed | ScaleSource::Fused => {
            let d = greatest(values) / 127.0;
            block[..2].copy_from_slice(&stored(d));
            d
        }
    };
    let inverse = inverse(d);
    for (code, value) in block[2..].iter_mut().zip(values) {
        *code = half_away(value * inverse);
    }
}
