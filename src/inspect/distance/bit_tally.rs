//! Counts for each bit how many values of two models differ in it.
//!
//! For each byte of a value, a table counts how often the XOR of two values has each of 256 results. That takes one
//! step per byte. The bits are counted from the tables at the end.

use crate::format::Dtype;
use crate::kernel::float_format::FloatFormat;

/// Slices of this many bytes are skipped if they are equal. A multiple of every width.
const SLICE_BYTES: usize = 4096;
/// Bytes of the widest value.
const WIDTH_MAX: usize = 8;

/// The part of a value that a bit belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BitField {
    /// Sign of a float.
    Sign,
    /// Exponent of a float.
    Exponent,
    /// Mantissa of a float.
    Mantissa,
    /// A bit of another type.
    Other,
}

/// Number of compared values, and the bits in which they differ.
#[derive(Debug, Clone)]
pub struct BitTally {
    /// Type of the values.
    pub dtype: Dtype,
    /// Values compared; bytes of types without a fixed width.
    pub values: u64,
    /// Values that are the same, bit by bit.
    pub identical: u64,
    /// For each byte of a value, the number of XORs with each result. Pairs of equal values are not counted.
    bytes: [[u64; 256]; WIDTH_MAX],
}

impl BitField {
    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            BitField::Sign => "sign",
            BitField::Exponent => "exponent",
            BitField::Mantissa => "mantissa",
            BitField::Other => "bit",
        }
    }
}

impl BitTally {
    /// An empty tally for values of type `dtype`.
    pub fn new(dtype: Dtype) -> Self {
        BitTally { dtype, values: 0, identical: 0, bytes: [[0; 256]; WIDTH_MAX] }
    }

    /// Bytes of a value; 1 for types without a fixed width.
    pub fn width(&self) -> usize {
        self.dtype.width().unwrap_or(1)
    }

    /// Adds the values of two slices of equal length, a multiple of the width.
    pub fn add(&mut self, one: &[u8], other: &[u8]) {
        let width = self.width();
        for (one, other) in one.chunks(SLICE_BYTES).zip(other.chunks(SLICE_BYTES)) {
            let values = (one.len() / width) as u64;
            self.values += values;
            if one == other {
                self.identical += values;
                continue;
            }
            match width {
                1 => self.add_slice::<1>(one, other),
                2 => self.add_slice::<2>(one, other),
                4 => self.add_slice::<4>(one, other),
                _ => self.add_slice::<8>(one, other),
            }
        }
    }

    fn add_slice<const WIDTH: usize>(&mut self, one: &[u8], other: &[u8]) {
        for (one, other) in one.as_chunks::<WIDTH>().0.iter().zip(other.as_chunks::<WIDTH>().0) {
            if one == other {
                self.identical += 1;
                continue;
            }
            for ((one, other), table) in one.iter().zip(other).zip(&mut self.bytes) {
                if let Some(count) = table.get_mut(usize::from(one ^ other)) {
                    *count += 1;
                }
            }
        }
    }

    /// Number of values that differ in each bit, the highest bit first.
    pub fn bits(&self) -> Vec<u64> {
        let of = |table: &[u64; 256], bit: usize| {
            let set = table.iter().enumerate().filter(|(byte, _)| byte >> bit & 1 == 1);
            set.map(|(_, count)| count).sum()
        };
        let tables = self.bytes.iter().take(self.width()).rev();
        tables.flat_map(|table| (0..8).rev().map(move |bit| of(table, bit))).collect()
    }

    /// Number of differing bits of all values.
    pub fn differing(&self) -> u64 {
        self.bits().iter().sum()
    }

    /// Mean number of differing bits of a value: ZipLLM's bit distance.
    pub fn bit_distance(&self) -> f64 {
        self.differing() as f64 / self.values.max(1) as f64
    }

    /// The part of a value that bit `index` from the highest one belongs to.
    pub fn field(&self, index: usize) -> BitField {
        let exponent = match self.dtype {
            Dtype::Float64 => 11,
            Dtype::Float32 | Dtype::Bfloat16 => 8,
            Dtype::Float16 => 5,
            // 8-bit formats have exponents of different lengths.
            Dtype::Float8 if index == 0 => return BitField::Sign,
            _ => return BitField::Other,
        };
        match index {
            0 => BitField::Sign,
            index if index <= exponent => BitField::Exponent,
            _ => BitField::Mantissa,
        }
    }
}

/// Floats in another format, by way of FP32.
pub fn converted(bytes: &[u8], from: FloatFormat, to: FloatFormat) -> Vec<u8> {
    let values = bytes.len() / from.width();
    let (mut wide, mut converted) = (vec![0; values * 4], vec![0; values * to.width()]);
    from.widen(bytes, &mut wide);
    to.narrow(&wide, &mut converted);
    converted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bits_belong_to_the_fields_of_their_format() {
        let mut tally = BitTally::new(Dtype::Bfloat16);
        // Against 1.0, -1.0 differs in the sign, 2.0 in the whole exponent, and 1.0078125 in the last bit.
        for other in [0xbf80u16, 0x4000, 0x3f81, 0x3f80] {
            tally.add(&0x3f80u16.to_le_bytes(), &other.to_le_bytes());
        }
        assert_eq!(tally.bits(), [1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!((tally.values, tally.identical, tally.differing()), (4, 1, 10));
        let fields: Vec<BitField> = (0..16).map(|index| tally.field(index)).collect();
        let expected = [vec![BitField::Sign], vec![BitField::Exponent; 8], vec![BitField::Mantissa; 7]].concat();
        assert_eq!(fields, expected);
        assert_eq!(BitTally::new(Dtype::Float16).field(5), BitField::Exponent);
        assert_eq!(BitTally::new(Dtype::Float16).field(6), BitField::Mantissa);
        assert_eq!(BitTally::new(Dtype::Float64).field(11), BitField::Exponent);
        assert_eq!(BitTally::new(Dtype::Quantised(8)).bits().len(), 8);
    }

    proptest! {
        #[test]
        fn the_tally_equals_a_count_value_by_value(pairs: Vec<(u32, u32)>, same: u16) {
            let same = vec![(7u32, 7u32); usize::from(same)];
            let pairs = [same, pairs].concat();
            let bytes = |side: fn(&(u32, u32)) -> u32| pairs.iter().flat_map(|pair| side(pair).to_le_bytes()).collect();
            let (one, other): (Vec<u8>, Vec<u8>) = (bytes(|pair| pair.0), bytes(|pair| pair.1));
            let mut tally = BitTally::new(Dtype::Float32);
            tally.add(&one, &other);
            let differing: u32 = pairs.iter().map(|(one, other)| (one ^ other).count_ones()).sum();
            prop_assert_eq!(tally.differing(), u64::from(differing));
            prop_assert_eq!(tally.identical, pairs.iter().filter(|(one, other)| one == other).count() as u64);
            for (index, count) in tally.bits().into_iter().enumerate() {
                let differ = pairs.iter().filter(|(one, other)| (one ^ other) >> (31 - index) & 1 == 1).count();
                prop_assert_eq!(count, differ as u64);
            }
        }
    }
}
