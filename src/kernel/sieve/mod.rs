//! Sieve: a filter that selects about one position in 256, and hashes of the 32-byte windows before these positions.
//!
//! 1. *Filter*: a GF(2)-linear function of the last eight bytes, made by doubling. A pair is a byte XOR a map of the
//!    previous byte. A four is a pair XOR a map of the pair two bytes before. The function is a four XOR a map of the
//!    four four bytes before. A position passes if the result is a constant. (Four bytes are not enough: content of few
//!    letters, such as nucleotides, has so few windows of four bytes that with some keys none of them passes.)
//! 2. *Guard*: a position within 15 bytes after another passing one is dropped, so at most one in 16 is left for any
//!    input. The decision depends on the last 23 bytes alone: equal content gives equal positions.
//! 3. *Hash*: the 32 bytes before each position that is left, with two 128-bit products.
//!
//! No run of one byte passes the filter, so the padding of archives and images has no positions.
//!
//! The filter has loops with the same positions: one for AVX-512 with GFNI (64 positions at a time, a matrix product
//! for each of the eight bytes), one for AVX2 and one for NEON (32 or 16 positions, two nibble look-ups for each map),
//! and a portable one (8 positions, a look-up for each byte).

mod avx2;
mod avx512;
mod filter;
mod neon;
mod portable;
#[cfg(test)]
mod tests;

pub use filter::{Anchor, Sieve, WINDOW_BYTES};
use filter::{BlockMasks, FRONT_BYTES, FilterConstants, STRIP_BYTES, each_mask, part};
