//! Frequency tables on disk: the frequencies of the symbols as packed bits.
//!
//! Symbol after symbol, until the frequencies sum to `1 << bits`. A frequency is the length of its binary number, then
//! that number without its leading one. The first frequency follows a length of `bits / 2`.
//!
//! | bits, first one first | length of the next frequency |
//! |---|---|
//! | `0` | the previous length |
//! | `1 0 0` | the previous length plus one |
//! | `1 0 1` | the previous length minus one |
//! | `1 1`, then 4 bits, not all zero | those 4 bits |
//! | `1 1 0 0 0 0`, then an Elias gamma code | none: this many of the next symbols have no frequency |

use super::packed::{BitReader, BitWriter};
use crate::error::Result;
use crate::kernel::rans::{BITS_MAX, BITS_MIN, FrequencyTable};
use crate::wire::WireReader;

/// Approximate size of a table on disk, bits: per symbol, and fixed.
const SYMBOL_BITS: f32 = 6.0;
const FIXED_BITS: f32 = 16.0;

/// Approximate bits of a table for these counts, and of the symbols encoded with it.
pub fn approximate_bits(counts: &[u32]) -> f32 {
    let (mut total, mut kinds, mut sum) = (0u32, 0u32, 0.0);
    for count in counts.iter().filter(|count| **count > 0) {
        total += count;
        kinds += 1;
        sum += *count as f32 * (*count as f32).log2();
    }
    if total == 0 {
        return 0.0;
    }
    total as f32 * (total as f32).log2() - sum + kinds as f32 * SYMBOL_BITS + FIXED_BITS
}

/// Appends the frequencies of `table`. Its number of bits is not written.
pub fn write(table: &FrequencyTable, out: &mut Vec<u8>) {
    let mut bits = BitWriter::new(out);
    let (mut previous_len, mut next) = (table.bits() / 2, 0u32);
    for (symbol, frequency) in table.used() {
        let symbol = u32::from(symbol);
        if symbol > next {
            bits.put(0b11, 2 + 4);
            bits.put_gamma(symbol - next);
        }
        next = symbol + 1;
        let len = frequency.ilog2() + 1;
        match len.wrapping_sub(previous_len) {
            0 => bits.put(0, 1),
            1 => bits.put(0b001, 3),
            u32::MAX => bits.put(0b101, 3),
            _ => bits.put(0b11 | len << 2, 6),
        }
        bits.put(frequency & !(1 << (len - 1)), len - 1);
        previous_len = len;
    }
    bits.finish();
}

/// Reads what [`write()`] wrote for a table of `bits` bits.
///
/// # Errors
/// [`crate::Error::Corrupt`] if the frequencies do not sum to `1 << bits`, if no table has `bits` bits, or if the
/// input ends early.
pub fn read(reader: &mut WireReader<'_>, bits: u32) -> Result<FrequencyTable> {
    if !(BITS_MIN..=BITS_MAX).contains(&bits) {
        return Err(reader.error(format!("a frequency table of {BITS_MIN} to {BITS_MAX} bits"), format!("{bits}")));
    }
    let slots = 1u32 << bits;
    let mut frequencies = [0; 256];
    let mut source = BitReader::new(reader);
    let (mut previous_len, mut next, mut sum) = (bits / 2, 0usize, 0u32);
    while sum < slots {
        let len = match take_length(&mut source, previous_len)? {
            Some(len) => len,
            None => {
                next += source.take_gamma()? as usize;
                continue;
            }
        };
        if !(1..=bits + 1).contains(&len) {
            return Err(source.error(format!("a frequency of 1 to {} bits", bits + 1), format!("{len}")));
        }
        let frequency = 1 << (len - 1) | source.take(len - 1)?;
        sum += frequency;
        match frequencies.get_mut(next).filter(|_| sum <= slots) {
            Some(slot) => *slot = frequency as u16,
            None => return Err(source.error(format!("frequencies that sum to {slots}"), format!("{sum}"))),
        }
        (previous_len, next) = (len, next + 1);
    }
    let table = FrequencyTable::of_frequencies(frequencies, bits);
    table.ok_or_else(|| reader.error(format!("frequencies that sum to {slots}"), "other frequencies"))
}

/// The length of the next frequency, or `None` before a run of symbols without one.
fn take_length(source: &mut BitReader<'_, '_>, previous_len: u32) -> Result<Option<u32>> {
    if source.take(1)? == 0 {
        return Ok(Some(previous_len));
    }
    if source.take(1)? == 0 {
        return Ok(Some(if source.take(1)? == 0 { previous_len + 1 } else { previous_len - 1 }));
    }
    Ok(Some(source.take(4)?).filter(|len| *len > 0))
}
