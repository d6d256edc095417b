//! Prefix codes: an entropy coder for bytes that is decoded several symbols at a time, on any processor.
//!
//! 1. A [`PrefixCode`] gives each symbol that occurs a code of at most [`LENGTH_MAX`] bits. Frequent symbols have short
//!    codes, and no code is a prefix of another. Package-merge chooses the lengths. The codes follow from the lengths
//!    (*canonical*): codes of equal length are consecutive numbers in the order of their symbols, longer ones follow.
//! 2. The symbols are divided into [`STREAMS`] segments of equal length; the last one may be shorter. Each is encoded
//!    as a stream of bits of its own. The decoder processes the streams side by side, so none waits for another.
//! 3. The encoder looks up the codes of two symbols at once, if the symbols are few enough to tabulate all pairs, or
//!    those of 32 symbols with AVX2 or NEON. It collects bits in a register and always stores eight bytes, whole or
//!    not.
//! 4. The decoder looks up the next [`LENGTH_MAX`] bits. The entry has all whole codes in these bits, up to six, and
//!    their number of bits. It stores the symbols as one number; the next store overwrites the surplus. It reads 64
//!    bits for every five look-ups.
//!
//! The lowest bits of symbols may be noise. Then they are stored apart ([`split_low_bits`]) and the other bits are
//! encoded: their codes are shorter, and one look-up gives more of them.
//!
//! An encoding is the lengths in bytes of all streams but the last (`u32` each, little-endian), then the streams. The
//! first bit of a stream is the lowest of its first byte. The first bit of a code is its highest. Zeros fill the last
//! byte of a stream.
//!
//! Sources: D. Huffman, *A method for the construction of minimum-redundancy codes* (1952); L. Larmore and
//! D. Hirschberg, *A fast algorithm for optimal length-limited Huffman codes* (1990); F. Giesen, *Entropy decoding in
//! Oodle Data: Huffman decoding on the Jaguar* (2016), for streams side by side.

mod avx2_encoder;
mod decoder;
mod eights;
mod encoder;
mod low_bits;
mod neon_encoder;
mod prefix_code;
#[cfg(test)]
mod tests;

pub use decoder::decode;
pub use encoder::encode;
pub use low_bits::{join_low_bits, low_bits_len, split_low_bits};
pub use prefix_code::PrefixCode;

/// Most bits of a code, and bits of a look-up.
pub const LENGTH_MAX: u32 = 11;
/// Streams of bits in an encoding.
pub const STREAMS: usize = 4;

/// Most low bits that may be stored apart from the code.
pub const LOW_BITS_MAX: u32 = 4;

/// Number of different symbols.
const SYMBOLS: usize = 256;
/// Bytes before the streams: the lengths of all but the last.
const LENGTHS_BYTES: usize = (STREAMS - 1) * size_of::<u32>();

/// Symbols of each segment but the last, which has the rest.
fn segment_len(symbols: usize) -> usize {
    symbols.div_ceil(STREAMS)
}
