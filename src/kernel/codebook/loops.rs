//! The loops over values, written so that the compiler takes several at a time.

use super::{Codebook, nearest};

/// Accumulators of a sum. Their number is part of the result.
const LANES: usize = 8;

#[inline(always)]
pub(super) fn product(number: f32, scale: f32) -> [u8; 4] {
    let product = number * scale;
    // Processors differ in the bits of what is not a number.
    if product.is_nan() { 0x7fc0_0000u32.to_le_bytes() } else { product.to_le_bytes() }
}

#[inline(always)]
pub(super) fn multiply_loop(book: Codebook, numbers: &[f32; 256], codes: &[u8], scale: f32, values: &mut [u8]) {
    let values = values.as_chunks_mut::<4>().0;
    if book == Codebook::Integers {
        // Without a table, several at a time.
        values.iter_mut().zip(codes).for_each(|(value, code)| *value = product(f32::from(*code) - 128.0, scale));
    } else {
        values.iter_mut().zip(codes).for_each(|(value, code)| *value = product(numbers[usize::from(*code)], scale));
    }
}

#[inline(always)]
pub(super) fn nearest_loop(book: Codebook, values: &[u8], inverse: f32, codes: &mut [u8]) {
    let pairs = codes.iter_mut().zip(values.as_chunks::<4>().0);
    let quotient = |value: &[u8; 4]| f32::from_le_bytes(*value) * inverse;
    match book {
        Codebook::Integers => pairs.for_each(|(code, value)| *code = nearest::integer(quotient(value))),
        Codebook::SignedIntegers => pairs.for_each(|(code, value)| *code = nearest::signed_integer(quotient(value))),
        Codebook::NormalFloat => pairs.for_each(|(code, value)| *code = nearest::normal_float(quotient(value))),
        Codebook::Fp8E4M3 => pairs.for_each(|(code, value)| *code = nearest::fp8(quotient(value))),
    }
}

#[inline(always)]
pub(super) fn greatest_magnitude_loop(values: &[u8]) -> u32 {
    let values = values.as_chunks::<4>().0.iter();
    values.fold(0, |greatest, value| greatest.max(u32::from_le_bytes(*value) & 0x7fff_ffff))
}

#[inline(always)]
pub(super) fn fitted_scale_loop(numbers: &[f32; 256], values: &[u8], codes: &[u8]) -> f64 {
    let (mut products, mut squares) = ([0.0f64; LANES], [0.0f64; LANES]);
    for (values, codes) in values.as_chunks::<4>().0.chunks(LANES).zip(codes.chunks(LANES)) {
        for (lane, (value, code)) in values.iter().zip(codes).enumerate() {
            let number = f64::from(numbers[usize::from(*code)]);
            products[lane] += number * f64::from(f32::from_le_bytes(*value));
            squares[lane] += number * number;
        }
    }
    products.iter().sum::<f64>() / squares.iter().sum::<f64>()
}

#[inline(always)]
pub(super) fn scale_bounds_loop(
    numbers: &[f32; 256],
    values: &[u8],
    codes: &[u8],
    half_step: u64,
    least_normal: f64,
) -> [f64; 2] {
    let (mut least, mut greatest) = ([0.0f64; LANES], [f64::INFINITY; LANES]);
    for (values, codes) in values.as_chunks::<4>().0.chunks(LANES).zip(codes.chunks(LANES)) {
        for (lane, (value, code)) in values.iter().zip(codes).enumerate() {
            let number = f64::from(numbers[usize::from(*code)].abs());
            let magnitude = f64::from(f32::from_le_bytes(*value).abs());
            let bits = magnitude.to_bits();
            let low = f64::from_bits(bits.saturating_sub(half_step)) / number;
            let high = f64::from_bits(bits.saturating_add(half_step)) / number;
            // Nothing follows from the code of zero.
            let (low, high) =
                if number > 0.0 && magnitude >= least_normal { (low, high) } else { (0.0, f64::INFINITY) };
            least[lane] = if low > least[lane] { low } else { least[lane] };
            greatest[lane] = if high < greatest[lane] { high } else { greatest[lane] };
        }
    }
    let fold = |lanes: [f64; LANES], pick: fn(f64, f64) -> f64| lanes.into_iter().reduce(pick).unwrap_or(0.0);
    [fold(least, f64::max), fold(greatest, f64::min)]
}
