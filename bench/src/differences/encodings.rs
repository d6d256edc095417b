//! XOR and numerical differences of blocks, and how well they compress.

use fhrd::codec::{BlockHint, Codec, Scratch, Zstandard};
use fhrd::config::FloatCodec;
use fhrd::error::Result;
use fhrd::format::Dtype;
use fhrd::kernel::elements;
use serde_json::{Value, json};

use crate::pair_source::singles;
use crate::table::two;

/// What is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    Values,
    Xor,
    Arithmetic,
    Integers,
}

/// Lengths of one method.
#[derive(Debug, Clone, Copy, Default)]
struct MethodTally {
    bytes: u64,
    zero_bits: u64,
    zstd: u64,
    planes: u64,
    values: u64,
    restored: u64,
}

/// Lengths of all methods on one pair.
pub(super) struct Encodings {
    block_bytes: usize,
    level: i32,
    tallies: [MethodTally; 4],
    scratch: Scratch,
}

impl Method {
    pub(super) const ALL: [Method; 4] = [Method::Values, Method::Xor, Method::Arithmetic, Method::Integers];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Method::Values => "values",
            Method::Xor => "xor",
            Method::Arithmetic => "arithmetic",
            Method::Integers => "bits as integers",
        }
    }

    /// The bytes to compress, and the number of values that they restore together with the base.
    fn apply(self, dtype: Dtype, values: &[u8], base: &[u8]) -> (Vec<u8>, u64) {
        let width = dtype.width().unwrap_or(1);
        let count = (values.len() / width) as u64;
        match self {
            Method::Values => (values.to_vec(), count),
            Method::Xor => {
                let mut out = vec![0; values.len()];
                elements::xor(values, base, &mut out);
                (out, count)
            }
            Method::Integers if width == 2 => (subtract::<2>(values, base), count),
            Method::Integers => (subtract::<4>(values, base), count),
            Method::Arithmetic => arithmetic(dtype, values, base),
        }
    }
}

/// Differences of little-endian integers, wrapping.
fn subtract<const WIDTH: usize>(values: &[u8], base: &[u8]) -> Vec<u8> {
    let number = |bytes: &[u8; WIDTH]| bytes.iter().rev().fold(0u32, |number, byte| number << 8 | u32::from(*byte));
    let pairs = values.as_chunks::<WIDTH>().0.iter().zip(base.as_chunks::<WIDTH>().0);
    let differences = pairs.map(|(value, base)| number(value).wrapping_sub(number(base)).to_le_bytes());
    differences.flat_map(|bytes| bytes.into_iter().take(WIDTH)).collect()
}

/// Rounds an FP32 number to `dtype` and appends its bytes.
fn append(dtype: Dtype, value: f32, out: &mut Vec<u8>) {
    match dtype {
        Dtype::Bfloat16 => out.extend_from_slice(&elements::bf16(value.to_bits()).to_le_bytes()),
        Dtype::Float16 => out.extend_from_slice(&elements::fp16(value.to_bits()).to_le_bytes()),
        _ => out.extend_from_slice(&value.to_le_bytes()),
    }
}

/// Differences of numbers in their dtype, and how many of them give the value again when added to the base.
fn arithmetic(dtype: Dtype, values: &[u8], base: &[u8]) -> (Vec<u8>, u64) {
    let ones = singles(dtype, values).unwrap_or_default();
    let others = singles(dtype, base).unwrap_or_default();
    let mut out = Vec::with_capacity(values.len());
    ones.iter().zip(&others).for_each(|(one, other)| append(dtype, one - other, &mut out));
    let differences = singles(dtype, &out).unwrap_or_default();
    let mut sums = Vec::with_capacity(values.len());
    others.iter().zip(&differences).for_each(|(other, difference)| append(dtype, other + difference, &mut sums));
    let width = dtype.width().unwrap_or(1);
    let restored = sums.chunks_exact(width).zip(values.chunks_exact(width)).filter(|(sum, value)| sum == value).count();
    (out, restored as u64)
}

impl Encodings {
    pub(super) fn new(block_bytes: usize, level: i32) -> Self {
        Encodings { block_bytes, level, tallies: [MethodTally::default(); 4], scratch: Scratch::default() }
    }

    /// Adds two tensors of FP32, BF16 or FP16.
    pub(super) fn add(&mut self, dtype: Dtype, values: &[u8], base: &[u8]) -> Result<()> {
        let mut out = Vec::new();
        let hint = BlockHint::ElementType(dtype.element_type());
        for (values, base) in values.chunks(self.block_bytes).zip(base.chunks(self.block_bytes)) {
            for (method, tally) in Method::ALL.into_iter().zip(&mut self.tallies) {
                let (bytes, restored) = method.apply(dtype, values, base);
                tally.bytes += bytes.len() as u64;
                tally.zero_bits += bytes.iter().map(|byte| u64::from(byte.count_zeros())).sum::<u64>();
                tally.values += (values.len() / dtype.width().unwrap_or(1)) as u64;
                tally.restored += restored;
                out.clear();
                Zstandard.encode(&bytes, self.level, &mut self.scratch, &mut out)?;
                tally.zstd += out.len() as u64;
                out.clear();
                FloatCodec::Floats.encode(hint, &bytes, self.level, &mut self.scratch, &mut out)?;
                tally.planes += out.len() as u64;
            }
        }
        Ok(())
    }

    pub(super) fn line(&self, name: &str, relation: &str, method: Method) -> Value {
        let at = Method::ALL.iter().position(|one| *one == method).unwrap_or_default();
        let [values, ..] = self.tallies;
        let tally = self.tallies.get(at).copied().unwrap_or_default();
        let share = |part: u64, whole: u64| part as f64 / (whole as f64).max(1.0);
        json!({
            "set": name, "relation": relation, "method": method.name(), "bytes": tally.bytes,
            "zero_bits": share(tally.zero_bits, 8 * tally.bytes),
            "zstd": tally.zstd, "planes": tally.planes,
            "ratio": share(tally.bytes, tally.zstd), "planes_ratio": share(tally.bytes, tally.planes),
            "tau": share(tally.zstd, tally.bytes), "planes_tau": share(tally.planes, tally.bytes),
            "tau_of_compressed": share(tally.zstd, values.zstd),
            "restored": share(tally.restored, tally.values),
        })
    }

    pub(super) fn cells(line: &Value) -> Vec<String> {
        let number = |key: &str| line.get(key).and_then(Value::as_f64).unwrap_or_default();
        let mut cells = vec![format!("{:.4}", number("zero_bits"))];
        for (ratio, tau) in [("ratio", "tau"), ("planes_ratio", "planes_tau")] {
            cells.extend([two(number(ratio)), format!("{:.4}", number(tau))]);
        }
        cells.push(format!("{:.4}", number("restored")));
        cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integer_differences_are_lossless_and_rounded_ones_may_not_be() {
        let values: Vec<u8> = [1.0f32, 1e8, 3.0].iter().flat_map(|value| value.to_le_bytes()).collect();
        let base: Vec<u8> = [1.5f32, 1.0, 3.0].iter().flat_map(|value| value.to_le_bytes()).collect();
        let (integers, _) = Method::Integers.apply(Dtype::Float32, &values, &base);
        let sums: Vec<u8> = integers
            .as_chunks::<4>()
            .0
            .iter()
            .zip(base.as_chunks::<4>().0)
            .flat_map(|(one, other)| u32::from_le_bytes(*one).wrapping_add(u32::from_le_bytes(*other)).to_le_bytes())
            .collect();
        assert_eq!(sums, values);
        // 1e8 - 1 is not an FP32 number, so the sum is 1e8 again or next to it; -0.5 and 0 are exact.
        let (differences, restored) = Method::Arithmetic.apply(Dtype::Float32, &values, &base);
        assert_eq!(f32::from_le_bytes(differences.as_chunks().0[0]), -0.5);
        assert!((2..=3).contains(&restored));
        let small: Vec<u8> = [1e-20f32].iter().flat_map(|value| value.to_le_bytes()).collect();
        let (_, restored) = Method::Arithmetic.apply(Dtype::Float32, &small, &1.0f32.to_le_bytes());
        assert_eq!(restored, 0, "1e-20 - 1 is -1, and 1 - 1 is 0");
        assert_eq!(subtract::<2>(&[0, 1, 5, 0], &[1, 0, 6, 0]), [255, 0, 255, 255]);
    }
}
