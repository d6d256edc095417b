//! The tensors of one file: which of them repeat others, as the copies of a checkpoint in several types do.
//!
//! 1. A tensor is compared with a few earlier ones of its shape: the last ones, because files list the copies of a
//!    parameter one after another, and those of its rank, because other files list one copy of the model after another.
//! 2. A copy has the same values, or their casts. Constant tensors are no copies: many norms start with ones.
//! 3. The parameters of a model are its values without copies and without the state of optimizers, which is known by
//!    its names.

use std::collections::HashMap;
use std::io;

use super::record::TensorRecord;
use super::sketch::{compare, sample, sampled};
use super::tensor_comparison::TensorComparison;
use crate::format::{Dtype, Tensor};
use crate::read_at::ReadAt;

/// Earlier tensors of a shape that are compared, at most.
const LAST: usize = 8;
/// A tensor's rank is taken in so many copies of the model of another type, at most.
const COPIES: usize = 4;
/// Share of equal values from which on a tensor is a copy of one of another type. FP16 and BF16 that were both rounded
/// from FP32 differ in one of sixteen, if one is rounded to the other.
const COPY_SHARE: f64 = 0.85;
/// Types that cast to each other.
const FLOATS: [Dtype; 4] = [Dtype::Float32, Dtype::Float16, Dtype::Bfloat16, Dtype::Float8];
/// Parts of names that the state of an optimizer has, in torch, DeepSpeed, Megatron and optax.
const OPTIMIZER_PARTS: [&str; 14] = [
    "acc_delta",
    "exp_avg",
    "exp_avg_sq",
    "grad_avg",
    "max_exp_avg_sq",
    "momentum_buffer",
    "momentum",
    "opt_state",
    "optim",
    "optimizer",
    "optimizer_state",
    "optimizer_states",
    "optimizers",
    "square_avg",
];

/// The tensors of a file by shape and type.
pub(super) struct OwnTensors<'a> {
    tensors: &'a [TensorRecord],
    shapes: HashMap<Vec<u64>, Vec<usize>>,
    types: HashMap<(Vec<u64>, u16), Vec<usize>>,
}

impl<'a> OwnTensors<'a> {
    /// The tensors of a record.
    pub fn of(tensors: &'a [TensorRecord]) -> Self {
        let mut own = OwnTensors { tensors, shapes: HashMap::new(), types: HashMap::new() };
        for (at, tensor) in tensors.iter().enumerate() {
            let shape = tensor.unordered_shape();
            own.types.entry((shape.clone(), tensor.dtype)).or_default().push(at);
            own.shapes.entry(shape).or_default().push(at);
        }
        own
    }

    /// The earlier tensors that tensor `at` is compared with, the first of the file first.
    fn candidates(&self, at: usize) -> Vec<usize> {
        let Some(tensor) = self.tensors.get(at) else { return Vec::new() };
        let shape = tensor.unordered_shape();
        let Some(all) = self.shapes.get(&shape) else { return Vec::new() };
        let before = all.partition_point(|other| *other < at);
        let mut found = all.get(before.saturating_sub(LAST)..before).unwrap_or_default().to_vec();
        let mut key = (shape, tensor.dtype);
        let of_type = self.types.get(&key).map_or(&[][..], Vec::as_slice);
        let rank = of_type.partition_point(|other| *other < at);
        for dtype in FLOATS.map(Dtype::code) {
            key.1 = dtype;
            let same_rank = self.types.get(&key).into_iter().flatten().skip(rank).step_by(of_type.len().max(1));
            found.extend(same_rank.take(COPIES).filter(|other| **other < at));
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The earlier tensor that a delta to is shortest, of those that `is_wanted` accepts.
    pub fn nearest(&self, at: usize, is_wanted: impl Fn(&TensorRecord) -> bool) -> Option<(usize, TensorComparison)> {
        let tensor = self.tensors.get(at)?;
        let compared = self.candidates(at).into_iter().filter_map(|other| {
            let found = self.tensors.get(other).filter(|other| is_wanted(other))?;
            Some((other, compare(tensor.sketched(), found.sketched(), true)?))
        });
        compared.min_by(|one, other| one.1.delta_bits.total_cmp(&other.1.delta_bits))
    }

    /// Whether tensor `at` has the values of an earlier one, or casts of them.
    fn is_copy(&self, at: usize) -> bool {
        let Some(tensor) = self.tensors.get(at) else { return false };
        let width = tensor.dtype().width().unwrap_or(1);
        let first = tensor.sketch.get(..width);
        if tensor.sketch.chunks_exact(width).all(|value| Some(value) == first) {
            return false;
        }
        let of_type = |found: TensorComparison, is_same: bool| match is_same {
            true => found.equal_share == 1.0,
            false => found.is_cast || found.equal_share >= COPY_SHARE,
        };
        let is_same = |other: usize| self.tensors.get(other).is_some_and(|other| other.dtype == tensor.dtype);
        self.nearest(at, |_| true).is_some_and(|(other, found)| of_type(found, is_same(other)))
    }
}

/// Whether a tensor of this name is the state of an optimizer.
fn is_optimizer_state(name: &str) -> bool {
    name.split(['.', '/', ':']).any(|part| OPTIMIZER_PARTS.contains(&part))
}

fn values_of(shape: &[u64]) -> u64 {
    shape.iter().fold(1u64, |product, size| product.saturating_mul(*size))
}

/// The number of a model's parameters. `large` are the records of some of its `tensors`, which cost nothing to compare.
/// Only if there are copies among them, the others are sampled.
///
/// # Errors
/// Errors of reading `source`.
pub(super) fn parameters(source: &dyn ReadAt, tensors: &[Tensor], large: &[TensorRecord]) -> io::Result<u64> {
    let is_large = |tensor: &Tensor| large.binary_search_by_key(&tensor.offset, |record| record.offset).is_ok();
    let mut sum = 0u64;
    let mut count = |shape: &[u64]| sum = sum.saturating_add(values_of(shape));
    let own = OwnTensors::of(large);
    let mut has_copies = false;
    for (at, tensor) in large.iter().enumerate().filter(|(_, tensor)| !is_optimizer_state(&tensor.name)) {
        match own.is_copy(at) {
            true => has_copies = true,
            false => count(&tensor.shape),
        }
    }
    let small = tensors.iter().filter(|tensor| !is_large(tensor) && !is_optimizer_state(&tensor.name));
    if !has_copies {
        small.for_each(|tensor| count(&tensor.shape));
        return Ok(sum);
    }
    let small: Vec<&Tensor> = small.collect();
    let samples: Vec<_> = small.iter().flat_map(|tensor| sampled(tensor, tensors.len())).collect();
    source.will_read(&samples)?;
    let mut records = Vec::new();
    for tensor in small {
        let sketch = sample(source, tensor, tensors.len())?;
        records.push(TensorRecord::of(tensor, sketch));
    }
    let own = OwnTensors::of(&records);
    let originals = (0..records.len()).filter(|at| !own.is_copy(*at));
    originals.filter_map(|at| records.get(at)).for_each(|tensor| count(&tensor.shape));
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::float_format::FloatFormat;

    /// FP32 weights.
    fn weights(seed: u32, count: u32) -> Vec<u8> {
        let value = |at: u32| (at.wrapping_mul(2_654_435_761).wrapping_mul(seed) >> 12) as f32 / 1_048_576.0 - 0.5;
        (1..=count).flat_map(|at| value(at).to_le_bytes()).collect()
    }

    fn narrowed(wide: &[u8], format: FloatFormat) -> Vec<u8> {
        let mut narrow = vec![0; wide.len() / 4 * format.width()];
        format.narrow(wide, &mut narrow);
        narrow
    }

    /// The parameters of a file of these tensors, of which those of at least `large` bytes have records.
    fn counted(tensors: &[(&str, Dtype, &[u8])], large: u64) -> u64 {
        let (mut bytes, mut listed) = (Vec::new(), Vec::new());
        for (name, dtype, content) in tensors {
            let (offset, len) = (bytes.len() as u64, content.len() as u64);
            let shape = vec![len / dtype.width().unwrap() as u64];
            listed.push(Tensor { name: (*name).into(), dtype: *dtype, shape, offset, len });
            bytes.extend_from_slice(content);
        }
        let records: Vec<TensorRecord> = listed
            .iter()
            .filter(|tensor| tensor.len >= large)
            .map(|tensor| TensorRecord::of(tensor, sample(&bytes, tensor, listed.len()).unwrap()))
            .collect();
        parameters(&bytes, &listed, &records).unwrap()
    }

    #[test]
    fn copies_of_a_model_and_the_state_of_its_optimizer_are_no_parameters() {
        let (one, two, bias) = (weights(1, 4096), weights(3, 4096), weights(5, 64));
        let of = |format: FloatFormat| [&one, &two, &bias].map(|wide| narrowed(wide, format));
        let (halves, brains) = (of(FloatFormat::Fp16), of(FloatFormat::Bf16));
        let (wide, half, brain) = (Dtype::Float32, Dtype::Float16, Dtype::Bfloat16);
        let ones = 1f32.to_le_bytes().repeat(64);
        let model: [(&str, Dtype, &[u8]); 5] = [
            ("a", wide, &one),
            ("b", wide, &two),
            ("bias", wide, &bias),
            ("norm", wide, &ones),
            ("norm2", wide, &ones),
        ];
        let values = 2 * 4096 + 3 * 64;
        assert_eq!(counted(&model, 8192), values);
        let copies: [(&str, Dtype, &[u8]); 6] = [
            ("half.a", half, &halves[0]),
            ("half.b", half, &halves[1]),
            ("half.bias", half, &halves[2]),
            ("brain.a", brain, &brains[0]),
            ("brain.b", brain, &brains[1]),
            ("brain.bias", brain, &brains[2]),
        ];
        assert_eq!(counted(&[&model[..], &copies[..]].concat(), 8192), values);
        assert_eq!(counted(&[&copies[..], &model[..]].concat(), 8192), values);
        let (m, v) = (weights(7, 4096), weights(9, 4096));
        let state: [(&str, Dtype, &[u8]); 3] =
            [("exp_avg.a", wide, &m), ("state.0.exp_avg_sq", wide, &v), ("optimizer/bias", wide, &bias)];
        assert_eq!(counted(&[&state[..], &model[..]].concat(), 8192), values);
        assert_eq!(counted(&[("a.momentum_net", wide, &m[..])], 8192), 4096);
    }

    #[test]
    fn a_copy_is_found_in_files_that_list_copies_one_after_another_or_side_by_side() {
        let layers: Vec<Vec<u8>> = (1..60).map(|seed| weights(2 * seed + 1, 1024)).collect();
        let casts: Vec<Vec<u8>> = layers.iter().map(|wide| narrowed(wide, FloatFormat::Bf16)).collect();
        let others: Vec<Vec<u8>> = (100..159).map(|seed| weights(2 * seed + 1, 1024)).collect();
        let wide = others.iter().chain(&layers).map(|content| ("w", Dtype::Float32, content.as_slice()));
        let narrow = casts.iter().map(|content| ("c", Dtype::Bfloat16, content.as_slice()));
        let grouped: Vec<(&str, Dtype, &[u8])> = wide.chain(narrow).collect();
        assert_eq!(counted(&grouped, 1024), 2 * 59 * 1024);
        let side_by_side: Vec<(&str, Dtype, &[u8])> = (0..59)
            .flat_map(|at| {
                let wide = [&others[at], &layers[at]].map(|content| ("w", Dtype::Float32, content.as_slice()));
                [wide[0], wide[1], ("c", Dtype::Bfloat16, &casts[at])]
            })
            .collect();
        assert_eq!(counted(&side_by_side, 1024), 2 * 59 * 1024);
    }
}
