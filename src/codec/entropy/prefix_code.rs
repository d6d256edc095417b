//! Prefix codes on disk: the code lengths of the symbols as packed bits.
//!
//! Symbol after symbol, until the codes of these lengths use up the code space: the sum of `2^-length` is one.
//!
//! | bits | meaning |
//! |---|---|
//! | 4, not zero | length of the next symbol's code |
//! | 4 zeros, then an Elias gamma code | number of next symbols that have no code |

use super::packed::{BitReader, BitWriter};
use crate::error::Result;
use crate::kernel::prefix::{LENGTH_MAX, PrefixCode};
use crate::wire::WireReader;

/// The whole code space, counted in codes of the greatest length.
const SPACE: u32 = 1 << LENGTH_MAX;
/// Bits of a length.
const LENGTH_BITS: u32 = 4;

/// Appends the lengths of `code`.
pub fn write(code: &PrefixCode, out: &mut Vec<u8>) {
    let mut bits = BitWriter::new(out);
    let mut next = 0;
    for (symbol, length) in (0u32..).zip(code.lengths()).filter(|(_, length)| **length > 0) {
        if symbol > next {
            bits.put(0, LENGTH_BITS);
            bits.put_gamma(symbol - next);
        }
        bits.put(u32::from(*length), LENGTH_BITS);
        next = symbol + 1;
    }
    bits.finish();
}

/// Reads what [`write()`] wrote.
///
/// # Errors
/// [`crate::Error::Corrupt`] if the lengths form no prefix code, or if the input ends early.
pub fn read(reader: &mut WireReader<'_>) -> Result<PrefixCode> {
    let mut lengths = [0; 256];
    let (mut next, mut space) = (0usize, 0u32);
    let mut bits = BitReader::new(reader);
    while space < SPACE {
        let length = bits.take(LENGTH_BITS)?;
        if length == 0 {
            next += bits.take_gamma()? as usize;
            continue;
        }
        let slot = lengths.get_mut(next).filter(|_| length <= LENGTH_MAX);
        space += SPACE >> length;
        match slot.filter(|_| space <= SPACE) {
            Some(slot) => *slot = length as u8,
            None => return Err(bits.error("lengths of a prefix code", format!("{length} for symbol {next}"))),
        }
        next += 1;
    }
    PrefixCode::of_lengths(lengths).ok_or_else(|| reader.error("lengths of a prefix code", "other lengths"))
}
