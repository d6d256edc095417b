//! Codebook: float values that are codes, numbers of eight bits, times a scale. Dequantised weights are such values.
//!
//! A value is the product of a code's number and the scale, one operation of IEEE 754 on 32 bits, rounded to nearest,
//! ties to even. A product that is not a number has the bits 7fc00000. Values are FP32, little-endian.

mod book;
mod loops;
mod nearest;
#[cfg(test)]
mod tests;

pub use book::Codebook;

use super::dispatch::dispatch;
use loops::{fitted_scale_loop, greatest_magnitude_loop, multiply_loop, nearest_loop, scale_bounds_loop};

dispatch! {
    /// Fills `values` with the numbers of `codes` times `scale`.
    pub fn multiply(book: Codebook, numbers: &[f32; 256], codes: &[u8], scale: f32, values: &mut [u8]) {
        AVX512 | AVX2 | PORTABLE => multiply_loop,
    }
}
dispatch! {
    /// Fills `codes` with those of the numbers nearest to `values` times `inverse`, that of a scale.
    pub fn nearest_codes(book: Codebook, values: &[u8], inverse: f32, codes: &mut [u8]) {
        AVX512 | AVX2 | PORTABLE => nearest_loop,
    }
}
dispatch! {
    /// The greatest magnitude of `values`, as bits; greater than those of infinity if one is not a number.
    pub fn greatest_magnitude(values: &[u8]) -> u32 {
        AVX512 | AVX2 | PORTABLE => greatest_magnitude_loop,
    }
}
dispatch! {
    /// The scale with the least squares of errors.
    pub fn fitted_scale(numbers: &[f32; 256], values: &[u8], codes: &[u8]) -> f64 {
        AVX512 | AVX2 | PORTABLE => fitted_scale_loop,
    }
}
dispatch! {
    /// The least and the greatest scale by which the codes may have given `values`. Values are within `half_step` of
    /// their products: half the distance of neighbouring values, as bits of an FP64 number. Values below `least_normal`
    /// say nothing: their distances are others.
    pub fn scale_bounds(
        numbers: &[f32; 256],
        values: &[u8],
        codes: &[u8],
        half_step: u64,
        least_normal: f64,
    ) -> [f64; 2] {
        AVX512 | AVX2 | PORTABLE => scale_bounds_loop,
    }
}
