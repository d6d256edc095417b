//! Counts: how often each byte value occurs.
//!
//! 1. Adjacent bytes are counted in different tables, so that equal bytes do not wait for each other's increment.
//! 2. If all bytes are zero or in a narrow range, pairs of bytes are counted: half as many increments, in a table
//!    of 4096 pairs. The rows and columns of the table are summed at the end. Vectors find the range of the bytes.

use super::dispatch::dispatch;

/// Byte values.
const VALUES: usize = 256;
/// Values of a narrow range: zero, and 63 consecutive values.
const RANGE: usize = 64;
/// Fewest bytes that are counted as pairs: for fewer, summing the table takes too long.
const PAIRED_MIN: usize = 32 << 10;
/// Bytes whose pair numbers are computed at a time.
const BLOCK: usize = 512;

/// Number of occurrences of each byte value.
pub fn count(bytes: &[u8]) -> [u32; VALUES] {
    if bytes.len() >= PAIRED_MIN {
        let (least, most) = bounds(bytes);
        if usize::from(most - least.min(most)) < RANGE {
            return count_pairs(bytes, least);
        }
    }
    count_each(bytes)
}

fn count_each(bytes: &[u8]) -> [u32; VALUES] {
    let mut counts = [[0u32; VALUES]; 4];
    let (eights, rest) = bytes.as_chunks::<8>();
    for eight in eights {
        let lane = u64::from_le_bytes(*eight);
        for (at, counts) in counts.iter_mut().enumerate() {
            counts[usize::from((lane >> (8 * at)) as u8)] += 1;
            counts[usize::from((lane >> (8 * at + 32)) as u8)] += 1;
        }
    }
    rest.iter().for_each(|byte| counts[0][usize::from(*byte)] += 1);
    std::array::from_fn(|value| counts.iter().map(|counts| counts[value]).sum())
}

dispatch! {
    /// The least byte that is not zero, less one (255 if there is none), and the greatest byte.
    fn bounds(bytes: &[u8]) -> (u8, u8) {
        AVX512 | AVX2 | PORTABLE => bounds_loop,
    }
}

#[inline(always)]
fn bounds_loop(bytes: &[u8]) -> (u8, u8) {
    bytes.iter().fold((u8::MAX, 0), |(least, most), byte| (least.min(byte.wrapping_sub(1)), most.max(*byte)))
}

dispatch! {
    /// [`count`] of bytes that are zero or in `least + 1..least + RANGE`.
    fn count_pairs(bytes: &[u8], least: u8) -> [u32; VALUES] {
        AVX512 | AVX2 | PORTABLE => count_pairs_loop,
    }
}

#[inline(always)]
fn count_pairs_loop(bytes: &[u8], least: u8) -> [u32; VALUES] {
    let mut pairs = [0u32; RANGE * RANGE];
    let (blocks, rest) = bytes.as_chunks::<BLOCK>();
    for block in blocks {
        let values = block.map(|byte| byte.saturating_sub(least));
        let mut numbers = [0u16; BLOCK / 2];
        for (number, pair) in numbers.iter_mut().zip(values.as_chunks().0) {
            let pair = u16::from_le_bytes(*pair);
            *number = (pair & 0xff) + (pair >> 8) * RANGE as u16;
        }
        for number in numbers {
            pairs[usize::from(number) % (RANGE * RANGE)] += 1;
        }
    }
    let mut counts = count_each(rest);
    let mut values = [0u32; RANGE];
    for (second, row) in pairs.as_chunks::<RANGE>().0.iter().enumerate() {
        values[second] += row.iter().sum::<u32>();
        values.iter_mut().zip(row).for_each(|(value, pairs)| *value += pairs);
    }
    counts[0] += values[0];
    for (count, value) in counts.iter_mut().skip(1 + usize::from(least)).zip(&values[1..]) {
        *count += value;
    }
    counts
}

/// Range of the values of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueRange {
    /// Whether a byte is zero.
    pub has_zero: bool,
    /// The least byte that is not zero; 0 if there is none.
    pub least: u8,
    /// The greatest byte.
    pub most: u8,
}

dispatch! {
    /// The range of the values of `bytes`.
    pub fn value_range(bytes: &[u8]) -> ValueRange {
        AVX512 | AVX2 | PORTABLE => value_range_loop,
    }
}

#[inline(always)]
fn value_range_loop(bytes: &[u8]) -> ValueRange {
    let zero = bytes.iter().fold(u8::MAX, |zero, byte| zero.min(*byte));
    let (least, most) = bounds_loop(bytes);
    ValueRange { has_zero: zero == 0 && !bytes.is_empty(), least: least.wrapping_add(1), most }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::cpu_features::with_each_subset;

    fn scalar(bytes: &[u8]) -> [u32; VALUES] {
        let mut counts = [0; VALUES];
        bytes.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
        counts
    }

    fn bytes(len: usize, range: u64, first: u8, zeros: bool) -> Vec<u8> {
        let mut state = len as u64;
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state >> 33
        };
        let byte = |number| if zeros && number % 5 == 0 { 0 } else { (draw() % range) as u8 + first };
        (0..len).map(byte).collect()
    }

    #[test]
    fn every_length_and_range_agrees_with_the_scalar_reference() {
        with_each_subset(|_| {
            for len in [0, 1, 7, 8, 9, PAIRED_MIN - 1, PAIRED_MIN, PAIRED_MIN + 1, PAIRED_MIN + BLOCK - 1, 100_001] {
                for (range, first) in
                    [(1, 0), (1, 255), (62, 1), (63, 1), (64, 1), (63, 193), (64, 192), (65, 9), (256, 0)]
                {
                    for zeros in [false, true] {
                        let bytes = bytes(len, range, first, zeros);
                        assert_eq!(
                            count(&bytes),
                            scalar(&bytes),
                            "{len} bytes of {range} from {first}, zeros: {zeros}"
                        );
                    }
                }
            }
        });
    }

    #[test]
    fn all_bytes_are_in_the_range() {
        with_each_subset(|_| {
            let range_of = |bytes: &[u8]| {
                assert_eq!(value_range(bytes), value_range_loop(bytes));
                let ValueRange { has_zero, least, most } = value_range(bytes);
                (has_zero, least, most)
            };
            assert_eq!(range_of(&bytes(5000, 63, 70, true)), (true, 70, 132));
            assert_eq!(range_of(&bytes(5000, 63, 70, false)), (false, 70, 132));
            assert_eq!(range_of(&[255; 40]), (false, 255, 255));
            assert_eq!((range_of(&[]), range_of(&[0; 40])), ((false, 0, 0), (true, 0, 0)));
        });
    }

    #[test]
    fn loops_without_vectors_agree_with_the_scalar_reference() {
        let bytes = bytes(5000, 63, 70, true);
        assert_eq!(bounds_loop(&bytes), (69, 132));
        assert_eq!(count_pairs_loop(&bytes, 69), scalar(&bytes));
        assert_eq!((bounds_loop(&[]), bounds_loop(&[0; 9]), bounds_loop(&[255])), ((255, 0), (255, 0), (254, 255)));
    }
}
