//! Floats: elements rotated so that the exponent is a byte, split into byte planes, each in its cheapest mode.
//!
//! 1. *Layout*: the width of an element, whether elements are rotated left by one bit, and the bytes before the first
//!    whole element (the phase). The rotation moves the sign to the lowest bit, so the exponent of BF16 and FP32
//!    becomes the highest byte. A sample chooses the rotation, and also width and phase if the type is unknown.
//! 2. *Planes*: plane `g` holds byte `g` of every element.
//! 3. *Mode*: each plane is constant, stored, entropy-coded ([`crate::kernel::rans`] or [`crate::kernel::prefix`]) or a
//!    zstd frame.
//!
//! A payload is:
//!
//! | bytes | meaning |
//! |---|---|
//! | 1 | bits 0-1: logarithm of the width; bit 2: rotated; bits 3-5: the phase; bit 6: zeros left out; bit 7: `coded` |
//! | phase | the bytes before the first whole element |
//! | a plane | if zeros are left out: the mask of the elements that are zero |
//! | per plane, lowest byte first | its mode (1 byte) and the bytes of that mode |
//! | the rest | the bytes after the last whole element |
//!
//! | mode | then |
//! |---|---|
//! | 0 stored | the plane |
//! | 1 constant | its byte |
//! | 2 rANS | length of the rest (`u32`), a frequency table of 12 bits, the encoding |
//! | 3 zstd | length of the rest (`u32`), one zstd frame |
//! | 4 prefix-coded | length of the rest (`u32`), number of low bits left out, these bits, a code, the encoding |

mod coded;
mod layout;
mod payload;
pub(super) mod plane;
#[cfg(test)]
mod tests;
mod zeros;

pub(super) use coded::{CodedBuffers, is_dequantised};
pub use payload::{Floats, encode, encode_huffman, encode_rows};
pub(super) use payload::{decode, estimate};
pub(super) use plane::repeats;
pub(super) use zeros::ZeroBuffers;

/// Name of a payload in errors.
const WHAT: &str = "frame payload (floats)";
