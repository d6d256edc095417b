//! Normally distributed weights, as the literature describes those of models.

use crate::trees::Random;

/// Normally distributed numbers (Box-Muller), the same for the same seed.
pub struct Normal(Random);

impl Normal {
    pub fn new(seed: u64) -> Self {
        Normal(Random(seed))
    }

    /// The next number of mean 0 and deviation 1.
    pub fn next(&mut self) -> f64 {
        let mut uniform = || ((self.0.next() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        let (radius, turn) = (uniform(), uniform());
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * turn).cos()
    }

    /// `count` weights of deviation `sigma`.
    pub fn weights(&mut self, count: usize, sigma: f64) -> Vec<f32> {
        (0..count).map(|_| (self.next() * sigma) as f32).collect()
    }

    /// The weights after training that moved them by `sigma`.
    pub fn tuned(&mut self, weights: &[f32], sigma: f64) -> Vec<f32> {
        weights.iter().map(|weight| (f64::from(*weight) + self.next() * sigma) as f32).collect()
    }
}
