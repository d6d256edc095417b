//! Model files made in code: weights as training leaves them, and the formats that hold them.

use fhrd::lineage::to_bfloat16;

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

pub fn bf16(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| to_bfloat16(value.to_bits()).to_le_bytes()).collect()
}

pub fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// A tensor of a file: name, type, shape, bytes.
pub type Part<'a> = (&'a str, &'a str, &'a [u64], Vec<u8>);

/// A safetensors file.
pub fn safetensors(parts: &[Part<'_>]) -> Vec<u8> {
    let (mut header, mut values) = (serde_json::Map::new(), Vec::new());
    for (name, dtype, shape, bytes) in parts {
        let range = [values.len(), values.len() + bytes.len()];
        header.insert(name.to_string(), serde_json::json!({"dtype": dtype, "shape": shape, "data_offsets": range}));
        values.extend_from_slice(bytes);
    }
    let mut header = serde_json::Value::Object(header).to_string();
    while header.len() % 8 != 0 {
        header.push(' ');
    }
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &values].concat()
}
