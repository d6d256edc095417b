//! Prefix codes: an entropy coder for bytes that is decoded several symbols at a time, on any processor.
//!
//! 1. A [`PrefixCode`] gives each symbol that occurs a code word of at most [`LENGTH_MAX`] bits, the shorter the more often
//!    it occurs, such that none begins another. Only the lengths are chosen, by package-merge, and stored: words of
//!    equal length are consecutive numbers in the order of their symbols, longer ones follow (*canonical*).
//! 2. The symbols are cut into [`STREAMS`] segments of equal length, the last one shorter, each of which is encoded as
//!    a stream of bits of its own: streams are decoded side by side, and none waits for another.
//! 3. Encoding looks up the words of two symbols at once, joined, where there are few enough symbols to tabulate all
//!    pairs, or with AVX2 those of 32, and collects bits in a register of which eight bytes are stored without asking
//!    how many are whole.
//! 4. Decoding looks up the next [`LENGTH_MAX`] bits in a table that has all whole words in them, up to six, and how
//!    many bits those take. The symbols are stored as one number; the next store overwrites what was too much. Five
//!    look-ups are done with every word of 64 bits that is read.
//!
//! The lowest bits of symbols may be noise. They are then left out ([`split_low_bits`]) and what remains is encoded: the
//! code words are shorter and more of them are looked up at once.
//!
//! The encoding: the lengths in bytes of all streams but the last (`u32` each, little-endian), then the streams. The
//! first bit is the lowest of a byte, and the first of a code word its highest; the last byte of a stream is filled
//! with zeros.
//!
//! Sources: D. Huffman, *A method for the construction of minimum-redundancy codes* (1952); L. Larmore and
//! D. Hirschberg, *A fast algorithm for optimal length-limited Huffman codes* (1990); F. Giesen, *Entropy decoding in
//! Oodle Data: Huffman decoding on the Jaguar* (2016), for streams side by side.

mod decoder;
mod encoder;
mod lows;
mod prefix_code;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod vectors;

pub use decoder::decode;
pub use encoder::encode;
pub use lows::{join_low_bits, low_bits_len, split_low_bits};
pub use prefix_code::PrefixCode;

/// Bits of a code word, at most, and bits that are looked up at once.
pub const LENGTH_MAX: u32 = 11;
/// Streams of bits in an encoding.
pub const STREAMS: usize = 4;

/// Lowest bits of bytes that may be left out of their code.
pub const LOW_BITS_MAX: u32 = 4;

/// Symbols there may be.
const SYMBOLS: usize = 256;
/// Bytes in front of the streams: the lengths of all but the last.
const LENGTHS_BYTES: usize = (STREAMS - 1) * size_of::<u32>();

/// Symbols of a segment when there are `symbols` in all; the last one has what is left.
fn segment_len(symbols: usize) -> usize {
    symbols.div_ceil(STREAMS)
}
