//! Positions of the bits in which 16-bit floats differ, within families and across them (ZipLLM, figure 5).

use fhrd::format::Dtype;
use fhrd::inspect::distance::Distance;
use serde_json::{Value, json};

use crate::report::{Plot, Scales};

/// Number of bits of a value.
const BITS: usize = 16;
const NAMES: [&str; 4] = [
    "real pairs of one family",
    "real pairs of two families",
    "made pairs of one family",
    "made pairs of two families",
];

/// Differing bits of all pairs of BF16 models, by position, the highest bit first.
#[derive(Debug, Clone, Default)]
pub(super) struct Profiles {
    bits: [[u64; BITS]; 4],
}

impl Profiles {
    /// Adds a pair.
    pub(super) fn add(&mut self, is_family: bool, is_made: bool, found: &Distance) {
        let at = 2 * usize::from(is_made) + usize::from(!is_family);
        let Some(sums) = self.bits.get_mut(at) else { return };
        let tallies = found.types.iter().filter_map(|of_type| of_type.comparable());
        for tally in tallies.filter(|tally| tally.dtype == Dtype::Bfloat16) {
            sums.iter_mut().zip(tally.bits()).for_each(|(sum, count)| *sum += count);
        }
    }

    /// Name and shares of each group that has differing bits.
    fn shares(&self) -> impl Iterator<Item = (&'static str, [f64; BITS])> {
        let share = |(name, bits): (&'static str, &[u64; BITS])| {
            let total = bits.iter().sum::<u64>();
            (total > 0).then(|| (name, bits.map(|count| count as f64 / total as f64)))
        };
        NAMES.into_iter().zip(&self.bits).filter_map(share)
    }

    pub(super) fn lines(&self) -> Vec<Value> {
        let line = |(name, shares): (&str, [f64; BITS])| {
            let sum = |from: usize, to: usize| shares.iter().skip(from).take(to - from).sum::<f64>();
            // Sign and mantissa: without the exponent, which the paper excepts.
            let mut others = shares.iter().take(1).chain(shares.iter().skip(9)).copied().collect::<Vec<f64>>();
            others.sort_by(f64::total_cmp);
            let evenness = others.first().zip(others.last()).map(|(least, most)| least / most.max(1e-12));
            json!({
                "set": name, "method": "bits", "shares": shares, "sign": sum(0, 1), "exponent": sum(1, 9),
                "mantissa": sum(9, 16), "low_mantissa": sum(12, 16), "evenness": evenness,
            })
        };
        self.shares().map(line).collect()
    }

    pub(super) fn plot(&self) -> Plot {
        let points = |shares: [f64; BITS]| {
            shares.into_iter().rev().enumerate().map(|(bit, share)| (bit as f64, share)).collect::<Vec<_>>()
        };
        Plot::Lines {
            title: "Bits of BF16 that differ, by position: 0 to 6 mantissa, 7 to 14 exponent, 15 sign".into(),
            across: "bit".into(),
            unit: "share of all differing bits".into(),
            scales: Scales::default(),
            series: self.shares().map(|(name, shares)| (name.to_string(), points(shares))).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_bits_of_their_group() {
        let mut profiles = Profiles::default();
        profiles.bits[1][0] = 1;
        profiles.bits[1][15] = 3;
        let lines = profiles.lines();
        assert_eq!((lines.len(), &lines[0]["set"]), (1, &json!("real pairs of two families")));
        assert_eq!((lines[0]["sign"].as_f64(), lines[0]["low_mantissa"].as_f64()), (Some(0.25), Some(0.75)));
        assert_eq!(lines[0]["evenness"].as_f64(), Some(0.0));
        let Plot::Lines { series, .. } = profiles.plot() else { panic!("lines") };
        assert_eq!(series[0].1[0], (0.0, 0.75));
    }
}
