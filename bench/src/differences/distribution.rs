//! The distribution of differences, and the bits in which values differ.

use fhrd::format::Dtype;
use fhrd::inspect::distance::{BitField, BitTally};
use serde_json::{Value, json};

use crate::pair_source::singles;
use crate::report::Bins;

/// Differences of one pair of models.
pub(super) struct DifferenceDistribution {
    bins: Bins,
    tally: BitTally,
    values: f64,
    /// Sums of the first four powers of the differences.
    powers: [f64; 4],
    /// Sum and sum of squares of the base's values.
    base: [f64; 2],
    /// Differences below a thousandth.
    small: u64,
}

/// A difference below this is small.
const SMALL: f64 = 1e-3;

pub(super) const TITLES: [&str; 8] =
    ["values", "sigma of values", "sigma of differences", "skewness", "bits", "sign %", "exponent %", "mantissa %"];

impl DifferenceDistribution {
    pub(super) fn new(dtype: Dtype, bins: Bins) -> Self {
        DifferenceDistribution {
            bins,
            tally: BitTally::new(dtype),
            values: 0.0,
            powers: [0.0; 4],
            base: [0.0; 2],
            small: 0,
        }
    }

    pub(super) fn dtype(&self) -> Dtype {
        self.tally.dtype
    }

    pub(super) fn bins(&self) -> &Bins {
        &self.bins
    }

    /// Adds two tensors. Returns `false` if their values are not FP32, BF16 or FP16.
    pub(super) fn add(&mut self, values: &[u8], base: &[u8]) -> bool {
        let (Some(ones), Some(others)) = (singles(self.dtype(), values), singles(self.dtype(), base)) else {
            return false;
        };
        self.tally.add(values, base);
        for (one, other) in ones.iter().zip(&others) {
            let difference = f64::from(*one) - f64::from(*other);
            if !difference.is_finite() {
                continue;
            }
            self.bins.add(difference);
            self.values += 1.0;
            let mut power = 1.0;
            for sum in &mut self.powers {
                power *= difference;
                *sum += power;
            }
            self.base[0] += f64::from(*other);
            self.base[1] += f64::from(*other).powi(2);
            self.small += u64::from(difference.abs() < SMALL);
        }
        true
    }

    /// Standard deviation of the base's values, of the differences, and skewness of the differences.
    fn shape(&self) -> [f64; 3] {
        let count = self.values.max(1.0);
        let [mean, square, cube, _] = self.powers.map(|sum| sum / count);
        let variance = (square - mean * mean).max(0.0);
        let third = cube - 3.0 * mean * square + 2.0 * mean.powi(3);
        let skewness = if variance > 0.0 { third / variance.powf(1.5) } else { 0.0 };
        let of_base = (self.base[1] / count - (self.base[0] / count).powi(2)).max(0.0);
        [of_base.sqrt(), variance.sqrt(), skewness]
    }

    /// Share of the differing bits at each position, the highest bit first.
    fn shares(&self) -> Vec<f64> {
        let total = (self.tally.differing() as f64).max(1.0);
        self.tally.bits().into_iter().map(|count| count as f64 / total).collect()
    }

    /// Position and share of each bit, the lowest first.
    pub(super) fn bit_points(&self) -> Vec<(f64, f64)> {
        self.shares().into_iter().rev().enumerate().map(|(bit, share)| (bit as f64, share)).collect()
    }

    fn field(&self, field: BitField) -> f64 {
        let of_field = |(at, _): &(usize, f64)| self.tally.field(*at) == field;
        self.shares().into_iter().enumerate().filter(of_field).map(|(_, share)| share).sum()
    }

    /// Share of the lower half of the mantissa among the differing bits.
    fn low_mantissa(&self) -> f64 {
        let width = self.tally.width() * 8;
        let mantissa = (0..width).filter(|at| self.tally.field(*at) == BitField::Mantissa).count();
        self.shares().iter().rev().take(mantissa.div_ceil(2)).sum()
    }

    /// Smallest share of a position divided by the largest, without the exponent: 1 if all are equal.
    fn evenness(&self) -> f64 {
        let shares = self.shares().into_iter().enumerate();
        let shares = shares.filter(|(at, _)| self.tally.field(*at) != BitField::Exponent).map(|(_, share)| share);
        let (least, most) = shares.fold((f64::MAX, 0.0f64), |(least, most), share| (least.min(share), most.max(share)));
        if most > 0.0 { least / most } else { 1.0 }
    }

    pub(super) fn line(&self, name: &str, relation: &str) -> Value {
        let [sigma_weight, sigma_delta, skewness] = self.shape();
        let count = self.values.max(1.0);
        json!({
            "set": name, "relation": relation, "method": "distribution", "dtype": self.dtype().name(),
            "values": self.values, "mean": self.powers[0] / count,
            "sigma_weight": sigma_weight, "sigma_delta": sigma_delta,
            "sigma_share": sigma_delta / sigma_weight.max(1e-12),
            "skewness": skewness, "skewness_size": skewness.abs(),
            "small": self.small as f64 / count,
            "identical": self.tally.identical as f64 / (self.tally.values as f64).max(1.0),
            "bit_distance": self.tally.bit_distance(),
            "sign": self.field(BitField::Sign), "exponent": self.field(BitField::Exponent),
            "mantissa": self.field(BitField::Mantissa), "low_mantissa": self.low_mantissa(),
            "evenness": self.evenness(), "bits": self.shares(),
        })
    }

    pub(super) fn row(&self, name: &str, relation: &str) -> Vec<String> {
        let [sigma_weight, sigma_delta, skewness] = self.shape();
        let percent = |field| format!("{:.2}", 100.0 * self.field(field));
        vec![
            name.into(),
            relation.into(),
            format!("{}", self.values),
            format!("{sigma_weight:.5}"),
            format!("{sigma_delta:.6}"),
            format!("{skewness:.2}"),
            format!("{:.3}", self.tally.bit_distance()),
            percent(BitField::Sign),
            percent(BitField::Exponent),
            percent(BitField::Mantissa),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_and_bits_are_those_of_the_differences() {
        let mut distribution = DifferenceDistribution::new(Dtype::Float32, Bins::new(-1.0, 1.0, 3));
        let bytes = |values: [f32; 4]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        assert!(distribution.add(&bytes([1.5, 2.0, -3.0, 4.0]), &bytes([1.0, 2.0, 3.0, 4.0])));
        let line = distribution.line("x", "y");
        // Differences 0.5, 0, -6 and 0.
        assert_eq!((line["mean"].as_f64(), line["small"].as_f64()), (Some(-1.375), Some(0.5)));
        assert!((line["sigma_delta"].as_f64().unwrap() - 2.6778).abs() < 1e-3, "{line}");
        assert!(line["skewness"].as_f64().unwrap() < -1.0, "{line}");
        // 1.5 and 1 differ in the highest bit of the mantissa, -3 and 3 in the sign.
        assert_eq!(
            (line["sign"].as_f64(), line["mantissa"].as_f64(), line["low_mantissa"].as_f64()),
            (Some(0.5), Some(0.5), Some(0.0))
        );
        assert_eq!(distribution.bins().counts, [1, 2, 1]);
        assert!(!DifferenceDistribution::new(Dtype::Int8, Bins::new(0.0, 1.0, 1)).add(&[1], &[2]));
    }
}
