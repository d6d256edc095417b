//! rANS: an entropy coder for bytes, 32 independent states side by side.
//!
//! 1. A [`FrequencyTable`] gives each symbol a frequency. The frequencies sum to a power of two, `1 << bits`. There is
//!    one table for all symbols, or the context of each symbol chooses among several.
//! 2. A *state* is an integer in `2^15..2^31`. The `1 << bits` *slots* of a table are distributed to the symbols: a
//!    symbol of frequency `f` owns the slots from `s` to `s + f`. Encoding it turns state `x` into
//!    `x / f << bits | s + x % f`. If the result would leave the range, the low 16 bits are first written as a *unit*.
//! 3. Decoding is the inverse, in the opposite order: the encoder goes backwards and the decoder forwards. The slot,
//!    `x % (1 << bits)`, determines the symbol. The state becomes `f * (x >> bits) + slot - s`. If it is below the
//!    range, it takes the next unit as its low 16 bits.
//! 4. Symbol `i` belongs to state `i % 32`: no state waits for another, and a vector holds 8 or 16 states.
//!
//! An encoding is the 32 states that the decoder starts with (`u32` each), then the units (`u16` each), all
//! little-endian. After each group of 32 symbols, the states below the range take one unit each, in the order of the
//! lanes. The encoder starts all states at `2^15`. So a payload is no encoding if the decoder ends with other states or
//! not at the last unit.
//!
//! There are loops for AVX-512, AVX2, NEON and any processor, with the same encodings. Loops that do not pass a test
//! are not used.
//!
//! Sources: J. Duda, *Asymmetric numeral systems* (2013); F. Giesen, *Interleaved entropy coders* (2014); the
//! reciprocals are those of R. Alverson, *Integer division using reciprocals* (1991).

mod avx2;
mod avx512;
mod coder;
mod frequency_table;
mod groups;
mod neon;
mod portable;
mod tables;
#[cfg(test)]
mod tests;

pub use coder::{BITS_MAX, BITS_MIN, LANES, TABLES_MAX, decode, decode_with, encode, encode_with, proven_features};
use coder::{RansDecoder, RansEncoder, STATE_MIN, UNIT_BYTES};
pub use frequency_table::FrequencyTable;
