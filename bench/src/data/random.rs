//! splitmix64: the same numbers for a seed on every machine.

/// A stream of pseudo-random numbers.
#[derive(Debug, Clone)]
pub struct Random(u64);

/// Number of uniform numbers whose sum is almost Gaussian.
const UNIFORMS: u32 = 12;

impl Random {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// The stream of one part of the data of `seed`. Streams of different parts are independent.
    pub fn of_part(seed: u64, part: &str) -> Self {
        let digest = blake3::Hasher::new().update(&seed.to_le_bytes()).update(part.as_bytes()).finalize();
        Random(digest.as_bytes().first_chunk().map_or(seed, |bytes| u64::from_le_bytes(*bytes)))
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`; 0 if `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(limit)) >> 64) as u64
    }

    /// A number from 0 to below 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// An almost Gaussian number with mean 0 and standard deviation 1: a sum of uniform numbers, so never beyond 6.
    /// Additions round equally on every machine, logarithms do not.
    pub fn normal(&mut self) -> f64 {
        let sum: f64 = (0..UNIFORMS / 2).map(|_| halves(self.bits())).sum();
        sum - f64::from(UNIFORMS) / 2.0
    }

    /// One of `choices`; `None` if there is none.
    pub fn choose<'a, T>(&mut self, choices: &'a [T]) -> Option<&'a T> {
        choices.get(self.below(choices.len() as u64) as usize)
    }
}

/// Sum of the two uniform numbers in 64 bits.
fn halves(bits: u64) -> f64 {
    let scale = (1u64 << 32) as f64;
    (bits >> 32) as f64 / scale + (bits & 0xffff_ffff) as f64 / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_almost_gaussian_and_the_same_for_a_seed() {
        let mut random = Random::new(7);
        let values: Vec<f64> = (0..40_000).map(|_| random.normal()).collect();
        let mean = values.iter().sum::<f64>() / 4e4;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / 4e4;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
        let within = values.iter().filter(|value| value.abs() < 1.0).count();
        assert!((26_800..27_800).contains(&within), "68 % are within one deviation, found {within}");
        let mut again = Random::new(7);
        assert!(values.iter().take(100).all(|value| again.normal() == *value));
        assert_ne!(Random::of_part(7, "a").bits(), Random::of_part(7, "b").bits());
        let mut random = Random::new(0);
        assert_eq!(random.bits(), 0xe220_a839_7b1d_cdaf, "the published first number of seed 0");
        assert!((0..1000).all(|_| random.below(10) < 10) && random.below(0) == 0);
    }
}
