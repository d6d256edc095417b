//! Coded floats: dequantised weights as codes and scales, and blocks of few values as numbers in a palette.
//!
//! A dequantised value is a code's number times the scale of a group: a row, or a part of one
//! ([`crate::kernel::codebook`]). Scales are found exactly or not at all ([`search`]). A payload is:
//!
//! | bytes | meaning |
//! |---|---|
//! | 1 | bits 0-1: type of the elements; bits 2-4: codebook; bits 5-6: 0; bit 7: 1 |
//! | varints | elements of a group, and of the first group |
//! | a plane | the mask of the groups without a scale |
//! | 4 planes | the scales of the other groups, as FP32 rotated |
//! | a plane | their codes |
//! | a plane per byte | the elements of groups without a scale, rotated |
//! | the rest | the bytes after the last whole element |
//!
//! With a palette, the values and a plane of numbers are between the first byte and the rest.

mod palette;
mod payload;
mod rounding;
mod search;
#[cfg(test)]
mod tests;

pub(super) use payload::{CODED, decode, encode};
pub(in crate::codec) use payload::{CodedBuffers, is_dequantised};
