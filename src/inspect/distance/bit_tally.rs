//! Tallies: at which bits how many values differ.
//!
//! What is counted is the XOR of two values, byte by byte: a table of 256 for each byte of a value takes one step for
//! each byte, and the bits are counted once at the end.

use crate::format::Dtype;
use crate::kernel::elements::{bf16, fp16};

/// Bytes compared at once, to pass over what is the same; a multiple of every width.
const RUN_BYTES: usize = 4096;
/// Widest value.
const WIDTH_MAX: usize = 8;

/// What a bit of a value says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BitField {
    /// The sign of a float.
    Sign,
    /// A float's exponent.
    Exponent,
    /// A float's mantissa.
    Mantissa,
    /// Anything else.
    Other,
}

/// Values compared, and where they differ.
#[derive(Debug, Clone)]
pub struct BitTally {
    /// Type of the values.
    pub dtype: Dtype,
    /// Values compared; bytes of types without a fixed width.
    pub values: u64,
    /// Values that are the same, bit by bit.
    pub identical: u64,
    /// For each byte of a value how often its XOR was which byte; that of zero is not counted.
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
    /// Nothing yet of values of this type.
    pub fn new(dtype: Dtype) -> Self {
        BitTally { dtype, values: 0, identical: 0, bytes: [[0; 256]; WIDTH_MAX] }
    }

    /// Bytes of a value.
    pub fn width(&self) -> usize {
        self.dtype.width().unwrap_or(1)
    }

    /// Compares the values of two slices of one length, a multiple of the width.
    pub fn add(&mut self, one: &[u8], other: &[u8]) {
        let width = self.width();
        for (one, other) in one.chunks(RUN_BYTES).zip(other.chunks(RUN_BYTES)) {
            let values = (one.len() / width) as u64;
            self.values += values;
            if one == other {
                self.identical += values;
                continue;
            }
            match width {
                1 => self.add_run::<1>(one, other),
                2 => self.add_run::<2>(one, other),
                4 => self.add_run::<4>(one, other),
                _ => self.add_run::<8>(one, other),
            }
        }
    }

    fn add_run<const WIDTH: usize>(&mut self, one: &[u8], other: &[u8]) {
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

    /// Values that differ at each bit, the highest bit first.
    pub fn bits(&self) -> Vec<u64> {
        let of = |table: &[u64; 256], bit: usize| {
            let set = table.iter().enumerate().filter(|(byte, _)| byte >> bit & 1 == 1);
            set.map(|(_, count)| count).sum()
        };
        let tables = self.bytes.iter().take(self.width()).rev();
        tables.flat_map(|table| (0..8).rev().map(move |bit| of(table, bit))).collect()
    }

    /// Differing bits of all values.
    pub fn differing(&self) -> u64 {
        self.bits().iter().sum()
    }

    /// Differing bits of a value, mean: ZipLLM's bit distance.
    pub fn bit_distance(&self) -> f64 {
        self.differing() as f64 / self.values.max(1) as f64
    }

    /// What bit `index` from the highest one says.
    pub fn field(&self, index: usize) -> BitField {
        let exponent = match self.dtype {
            Dtype::Float64 => 11,
            Dtype::Float32 | Dtype::Bfloat16 => 8,
            Dtype::Float16 => 5,
            // There are several 8-bit floats.
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

/// FP32 values rounded to `narrow`, BF16 or FP16.
pub fn rounded(wide: &[u8], narrow: Dtype) -> Vec<u8> {
    let round = if narrow == Dtype::Bfloat16 { bf16 } else { fp16 };
    let mut rounded = Vec::with_capacity(wide.len() / 2);
    wide.as_chunks::<4>().0.iter().for_each(|word| rounded.extend(round(u32::from_le_bytes(*word)).to_le_bytes()));
    rounded
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bits_are_where_the_format_has_them() {
        let mut tally = BitTally::new(Dtype::Bfloat16);
        // 1.0 against -1.0 is the sign, 1.0 against 2.0 all of the exponent, 1.0 against 1.0078125 the last bit.
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
        fn as_counted_value_by_value(pairs: Vec<(u32, u32)>, same: u16) {
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
