//! Sketches: a few values of each tensor, from which the distance of two tensors is estimated.
//!
//! A sketch has groups of neighbouring values. The position of group `i` depends on the number of values only: it is a
//! hash of `i / 2`, scaled to the largest power of two of groups that fits, and half of that for odd `i`. So tensors of
//! one size are sampled at the same positions, tensors that have grown at some of them, and casts at the same values.

use std::io;
use std::ops::Range;

use super::tensor_comparison::{TensorComparer, TensorComparison};
use crate::format::{Dtype, Tensor};
use crate::read_at::ReadAt;

/// Values of a group. A group of a quantised tensor is one block.
pub(super) const GROUP_VALUES: u64 = 16;
/// Groups in all sketches of a model, approximately.
const GROUPS_OF_MODEL: usize = 256;
/// Groups in the sketch of a tensor.
const GROUPS_MIN: usize = 4;
const GROUPS_MAX: usize = 16;

/// Bytes of a group, and number of groups in a tensor.
fn layout(dtype: Dtype, bytes: u64) -> (u64, u64) {
    let group = match (dtype.width(), dtype.block()) {
        (Some(width), _) => width as u64 * GROUP_VALUES,
        (None, Some((_, block))) => block,
        (None, None) => GROUP_VALUES,
    };
    (group, bytes / group.max(1))
}

/// The group, of `groups`, that sample `index` takes.
fn group_index(index: u64, groups: u64) -> u64 {
    let power = groups.max(1).ilog2().saturating_sub((index % 2) as u32);
    // SplitMix64 of the pair's number.
    let mut hash = (index / 2 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^= hash >> 31;
    if power == 0 { 0 } else { hash >> (64 - power) }
}

/// The ranges of `tensor`, one of `tensors` in its file, that its sketch has.
pub fn sampled(tensor: &Tensor, tensors: usize) -> Vec<Range<u64>> {
    let (group, groups) = layout(tensor.dtype, tensor.len);
    if groups == 0 {
        return Vec::new();
    }
    let start = |index| tensor.offset + group_index(index, groups) * group;
    (0..groups_of(tensors) as u64).map(start).map(|start| start..start + group).collect()
}

/// Groups in the sketch of one of `tensors`.
fn groups_of(tensors: usize) -> usize {
    (GROUPS_OF_MODEL / tensors.max(1)).clamp(GROUPS_MIN, GROUPS_MAX)
}

/// Reads the sketch of `tensor`, one of `tensors` in its file.
///
/// # Errors
/// Errors of reading.
pub fn sample(source: &dyn ReadAt, tensor: &Tensor, tensors: usize) -> io::Result<Vec<u8>> {
    let (group, groups) = layout(tensor.dtype, tensor.len);
    if groups == 0 {
        return Ok(Vec::new());
    }
    let mut sketch = vec![0; groups_of(tensors) * group as usize];
    for (range, space) in sampled(tensor, tensors).into_iter().zip(sketch.chunks_exact_mut(group as usize)) {
        let offset = range.start;
        let mut filled = 0;
        while let Some(rest) = space.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match source.read_at(offset + filled as u64, rest)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => filled += read,
            }
        }
    }
    Ok(sketch)
}

/// The samples of a sketch, each with the number of its group in the tensor.
pub(super) fn groups(tensor: Sketched<'_>) -> impl Iterator<Item = (u64, &[u8])> {
    let (group, groups) = layout(tensor.dtype, tensor.len);
    let samples = tensor.sketch.chunks_exact(group.max(1) as usize);
    (0..).zip(samples).map(move |(index, sample)| (group_index(index, groups), sample))
}

/// The first `groups` groups of a sketch, but no fewer than every sketch has.
pub(super) fn prefix(tensor: Sketched<'_>, groups: usize) -> &[u8] {
    let (group, _) = layout(tensor.dtype, tensor.len);
    let bytes = (group as usize).saturating_mul(groups.max(GROUPS_MIN));
    tensor.sketch.get(..bytes).unwrap_or(tensor.sketch)
}

/// A tensor as its sketch shows it.
#[derive(Debug, Clone, Copy)]
pub struct Sketched<'a> {
    /// Type of its values.
    pub dtype: Dtype,
    /// Bytes of the tensor.
    pub len: u64,
    /// Its samples.
    pub sketch: &'a [u8],
}

/// Typical bits of a value of this type without a base: what the float codec needs for weights.
pub fn standalone_bits(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::Bfloat16 => 10.7,
        Dtype::Float16 => 13.5,
        Dtype::Float32 => 26.7,
        Dtype::Float64 => 56.0,
        _ => 7.4,
    }
}

/// Compares the sketches of two tensors; `None` if they have no sampled position in common.
///
/// Tensors of different types are compared if one type casts to the other: FP32 to BF16 or FP16. With `derives`, these
/// are all pairs of BF16, FP16, FP32 and FP8, and a delta has a mask of the values that became zero.
pub fn compare(new: Sketched<'_>, old: Sketched<'_>, derives: bool) -> Option<TensorComparison> {
    let ((new_group, new_groups), (old_group, old_groups)) = (layout(new.dtype, new.len), layout(old.dtype, old.len));
    let mut comparer = TensorComparer::new(new.dtype, old.dtype, derives)?;
    if (new_group, new_groups) == (old_group, old_groups) {
        // All samples are at the same positions.
        let shared = new.sketch.len().min(old.sketch.len());
        let whole = shared - shared % (new_group as usize).max(1);
        let (one, other) = (new.sketch.get(..whole), old.sketch.get(..whole));
        comparer.add(one.unwrap_or_default(), other.unwrap_or_default());
        return comparer.finish();
    }
    let new_samples = new.sketch.chunks_exact(new_group as usize).enumerate();
    for (index, sample) in new_samples {
        let at = group_index(index as u64, new_groups);
        let mut old_samples = old.sketch.chunks_exact(old_group as usize).enumerate();
        if let Some((_, other)) = old_samples.find(|(index, _)| group_index(*index as u64, old_groups) == at) {
            comparer.add(sample, other);
        }
    }
    comparer.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn samples_are_inside_the_tensor_and_growth_preserves_some(groups in 1u64..1 << 40, index in 0u64..64) {
            prop_assert!(group_index(index, groups) < groups);
            let (even, odd) = (index & !1, index | 1);
            prop_assert_eq!(group_index(odd, 2 * groups), group_index(even, groups));
        }
    }

    #[test]
    fn samples_at_equal_positions_compare_as_samples_that_are_searched_for() {
        let bytes = |seed: u32| -> Vec<u8> {
            (0..16 << 10).map(|at: u32| (at.wrapping_mul(2_654_435_761) ^ seed.wrapping_mul(at)) as u8).collect()
        };
        for dtype in [Dtype::Float32, Dtype::Bfloat16, Dtype::Float64, Dtype::Int8, Dtype::Other] {
            let len = 16 << 10;
            let sketch = |bytes: &Vec<u8>| {
                let tensor = Tensor { name: "w".into(), dtype, shape: vec![1], offset: 0, len };
                sample(bytes, &tensor, 1).unwrap()
            };
            let (one, other) = (sketch(&bytes(3)), sketch(&bytes(5)));
            let view = |sketch| Sketched { dtype, len, sketch };
            let (group, _) = layout(dtype, len);
            let mut slow = TensorComparer::new(dtype, dtype, false).unwrap();
            for (one, other) in one.chunks_exact(group as usize).zip(other.chunks_exact(group as usize)) {
                let width = dtype.width().unwrap_or(1);
                for (one, other) in one.chunks_exact(width).zip(other.chunks_exact(width)) {
                    slow.add(one, other);
                }
            }
            assert_eq!(compare(view(&one), view(&other), false), slow.finish(), "{dtype:?}");
            // Only whole groups of a truncated sketch count.
            let cut = compare(view(&one), view(&other[..other.len() - 1]), false).unwrap();
            assert_eq!(
                cut.values + group / dtype.width().unwrap_or(1) as u64,
                16 * group / dtype.width().unwrap_or(1) as u64
            );
        }
    }
}
