//! Sketches: a few values of each tensor, from which the distance of two tensors is estimated.
//!
//! A sketch has groups of neighbouring values. The position of group `i` depends on the number of values only: it is a
//! hash of `i / 2`, scaled to the largest power of two of groups that fits, and half of that for odd `i`. So tensors of
//! one size are sampled at the same positions, tensors that have grown at some of them, and casts at the same values.
//!
//! Two measures are compared: the mean number of differing bits of a value (the bit distance of ZipLLM, section 4.2),
//! and the lengths of the differences of values in numerical order, which a delta stores.

use std::io;
use std::ops::Range;

use crate::format::{Dtype, Tensor};
use crate::kernel::elements::{bf16, fp16};
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

/// How two tensors differ, estimated from their sketches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SketchComparison {
    /// Values compared (bytes of quantised tensors).
    pub values: u64,
    /// Mean number of differing bits of a value.
    pub bit_distance: f64,
    /// Estimated bits of a value in a delta.
    pub delta_bits: f64,
    /// One tensor is the cast of the other.
    pub is_cast: bool,
    /// Share of the values that are equal, after the cast, or became zero.
    pub equal_share: f64,
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
/// Tensors of different types are compared if one type casts to the other: FP32 to BF16 or FP16. With `prunes`, a delta
/// has a mask of the values that became zero.
pub fn compare(new: Sketched<'_>, old: Sketched<'_>, prunes: bool) -> Option<SketchComparison> {
    let ((new_group, new_groups), (old_group, old_groups)) = (layout(new.dtype, new.len), layout(old.dtype, old.len));
    let cast = cast_of(new.dtype, old.dtype);
    if new.dtype != old.dtype && cast.is_none() {
        return None;
    }
    let prunes = prunes && (cast.is_none() || new.dtype != Dtype::Float32);
    let mut sum = ComparisonSums { prunes, ..ComparisonSums::default() };
    if cast.is_none() && (new_group, new_groups) == (old_group, old_groups) {
        // All samples are at the same positions.
        let shared = new.sketch.len().min(old.sketch.len());
        let whole = shared - shared % (new_group as usize).max(1);
        let (one, other) = (new.sketch.get(..whole), old.sketch.get(..whole));
        sum.same(new.dtype, one.unwrap_or_default(), other.unwrap_or_default());
        return sum.finish(new.dtype, false);
    }
    let new_samples = new.sketch.chunks_exact(new_group as usize).enumerate();
    for (index, sample) in new_samples {
        let at = group_index(index as u64, new_groups);
        let mut old_samples = old.sketch.chunks_exact(old_group as usize).enumerate();
        let Some((_, other)) = old_samples.find(|(index, _)| group_index(*index as u64, old_groups) == at) else {
            continue;
        };
        match cast {
            None => sum.same(new.dtype, sample, other),
            Some(narrow) if new.dtype == Dtype::Float32 => sum.cast(narrow, other, sample),
            Some(narrow) => sum.cast(narrow, sample, other),
        }
    }
    sum.finish(new.dtype, cast.is_some())
}

/// The narrower of two types, if one casts to the other.
fn cast_of(one: Dtype, other: Dtype) -> Option<Dtype> {
    match (one, other) {
        (Dtype::Float32, narrow @ (Dtype::Bfloat16 | Dtype::Float16))
        | (narrow @ (Dtype::Bfloat16 | Dtype::Float16), Dtype::Float32) => Some(narrow),
        _ => None,
    }
}

/// Sums over the compared values.
#[derive(Default)]
struct ComparisonSums {
    values: u64,
    differing: u64,
    zeros: u64,
    lengths: u64,
    not_cast: u64,
    /// A delta has a mask of the values that became zero.
    prunes: bool,
    pruned: u64,
}

impl ComparisonSums {
    fn same(&mut self, dtype: Dtype, one: &[u8], other: &[u8]) {
        let width = dtype.width().unwrap_or(1);
        match (width, dtype.is_float()) {
            // Most models have these widths; the compiler specialises them.
            (2, true) => self.floats::<2>(one, other),
            (4, true) => self.floats::<4>(one, other),
            (_, is_float) => {
                for (one, other) in one.chunks_exact(width).zip(other.chunks_exact(width)) {
                    self.pair(value_of(one), value_of(other), 8 * width as u32, is_float);
                }
            }
        }
    }

    fn floats<const WIDTH: usize>(&mut self, one: &[u8], other: &[u8]) {
        let (one, other) = (one.as_chunks::<WIDTH>().0, other.as_chunks::<WIDTH>().0);
        for (one, other) in one.iter().zip(other) {
            self.pair(value_of(one), value_of(other), 8 * WIDTH as u32, true);
        }
    }

    /// Compares `narrow` values with the casts of FP32 values.
    fn cast(&mut self, dtype: Dtype, narrow: &[u8], wide: &[u8]) {
        for (narrow, wide) in narrow.chunks_exact(2).zip(wide.chunks_exact(4)) {
            let (narrow, wide) = (value_of(narrow), value_of(wide) as u32);
            let cast = if dtype == Dtype::Bfloat16 { bf16(wide) } else { fp16(wide) };
            self.not_cast += u64::from(narrow != u64::from(cast));
            self.pair(narrow, u64::from(cast), 16, true);
        }
    }

    #[inline]
    fn pair(&mut self, one: u64, other: u64, bits: u32, is_float: bool) {
        self.values += 1;
        self.differing += u64::from((one ^ other).count_ones());
        let is_zero = |value: u64| value & ((1 << (bits - 1)) - 1) == 0;
        if self.prunes && is_float && is_zero(one) && !is_zero(other) {
            self.pruned += 1;
            return;
        }
        let (one, other) = if is_float { (ordered(one, bits), ordered(other, bits)) } else { (one, other) };
        // The difference wraps around at the width of the value.
        let shift = 64 - bits;
        let difference = (one.wrapping_sub(other) << shift) as i64 >> shift;
        let length = u64::from(64 - ((difference << 1) ^ (difference >> 63)).leading_zeros());
        self.zeros += u64::from(length == 0);
        self.lengths += length;
    }

    fn finish(self, dtype: Dtype, is_cast: bool) -> Option<SketchComparison> {
        if self.values == 0 {
            return None;
        }
        // The values that did not become zero; one if all did, which then counts as equal.
        let others = self.values - self.pruned;
        let count = others.max(1) as f64;
        let zeros = if others == 0 { 1.0 } else { self.zeros as f64 / count };
        let entropy = |part: f64| if part > 0.0 { -part * part.log2() } else { 0.0 };
        // Bits that say which values differ, the lengths of the differences, and their bits below the first.
        let lengths = self.lengths as f64 / count - (1.0 - zeros);
        let delta_bits = entropy(zeros) + entropy(1.0 - zeros) + (1.0 - zeros) * 1.3 + lengths;
        let pruned = self.pruned as f64 / self.values as f64;
        let delta_bits = delta_bits * (1.0 - pruned) + entropy(pruned) + entropy(1.0 - pruned);
        let casts = is_cast && self.not_cast * 64 <= self.values;
        // A delta from a cast to its original stores the bits that the cast cut off.
        let low_bits = if is_cast && dtype == Dtype::Float32 { 16.0 } else { 0.0 };
        let delta_bits = low_bits + if casts { 0.2 } else { delta_bits };
        let bit_distance = self.differing as f64 / self.values as f64;
        let equal_share = (self.zeros + self.pruned) as f64 / self.values as f64;
        Some(SketchComparison { values: self.values, bit_distance, delta_bits, is_cast: casts, equal_share })
    }
}

#[inline]
fn value_of(bytes: &[u8]) -> u64 {
    let mut value = [0; 8];
    value.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    u64::from_le_bytes(value)
}

/// Maps the bits of a float to integers in the same order.
fn ordered(value: u64, bits: u32) -> u64 {
    let sign = value >> (bits - 1) & 1;
    let below = (1u64 << (bits - 1)) - 1;
    if sign == 1 { value ^ below } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn floats(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    #[test]
    fn casts_follow_the_standard() {
        // Values and their casts, from the definitions of the formats.
        let halves = [(1.0f32, 0x3c00u16), (-2.0, 0xc000), (65504.0, 0x7bff), (65520.0, 0x7c00), (65519.9, 0x7bff)];
        let small = [(6.103_515_6e-5, 0x0400), (5.960_464_5e-8, 0x0001), (2.980_232_2e-8, 0x0000), (0.0, 0)];
        for (value, half) in halves.into_iter().chain(small) {
            assert_eq!(fp16(value.to_bits()), half, "{value}");
        }
        assert_eq!(fp16((2.980_232_6e-8f32).to_bits()), 1);
        assert_eq!(fp16(f32::NEG_INFINITY.to_bits()), 0xfc00);
        assert_eq!(bf16(0x3f80_8000), 0x3f80, "a tie goes to even");
        assert_eq!(bf16(0x3f81_8000), 0x3f82, "a tie goes to even");
        assert_eq!(bf16(0x3f80_8001), 0x3f81);
        assert_eq!(bf16(f32::INFINITY.to_bits()), 0x7f80);
    }

    proptest! {
        #[test]
        fn ordered_bits_follow_the_values(one: f32, other: f32) {
            prop_assume!(!one.is_nan() && !other.is_nan() && one != other);
            let (a, b) = (ordered(one.to_bits().into(), 32), ordered(other.to_bits().into(), 32));
            prop_assert_eq!((a as u32 as i32) < b as u32 as i32, one < other);
        }

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
            let mut slow = ComparisonSums::default();
            for (one, other) in one.chunks_exact(group as usize).zip(other.chunks_exact(group as usize)) {
                let width = dtype.width().unwrap_or(1);
                for (one, other) in one.chunks_exact(width).zip(other.chunks_exact(width)) {
                    slow.pair(value_of(one), value_of(other), 8 * width as u32, dtype.is_float());
                }
            }
            assert_eq!(compare(view(&one), view(&other), false), slow.finish(dtype, false), "{dtype:?}");
            // Only whole groups of a truncated sketch count.
            let cut = compare(view(&one), view(&other[..other.len() - 1]), false).unwrap();
            assert_eq!(
                cut.values + group / dtype.width().unwrap_or(1) as u64,
                16 * group / dtype.width().unwrap_or(1) as u64
            );
        }
    }

    #[test]
    fn similar_tensors_are_near_and_casts_are_recognised() {
        let base: Vec<f32> = (0..4096).map(|i| ((i * 37 % 1000) as f32 - 500.0) / 9000.0).collect();
        let near: Vec<f32> = base.iter().map(|value| value * 1.0001).collect();
        let far: Vec<f32> = base.iter().rev().copied().collect();
        let sketch = |bytes: &Vec<u8>, dtype| {
            let len = bytes.len() as u64;
            let tensor = Tensor { name: "w".into(), dtype, shape: vec![4096], offset: 0, len };
            sample(bytes, &tensor, 1).unwrap()
        };
        let of = |new: (&Vec<u8>, Dtype), old: (&Vec<u8>, Dtype)| {
            let (one, other) = (sketch(new.0, new.1), sketch(old.0, old.1));
            let new = Sketched { dtype: new.1, len: new.0.len() as u64, sketch: &one };
            compare(new, Sketched { dtype: old.1, len: old.0.len() as u64, sketch: &other }, false)
        };
        let single = Dtype::Float32;
        let (base_bytes, near, far) = (floats(&base), floats(&near), floats(&far));
        let close = of((&near, single), (&base_bytes, single)).unwrap();
        let distant = of((&far, single), (&base_bytes, single)).unwrap();
        assert!(close.delta_bits < 16.0 && distant.delta_bits > 24.0, "{close:?} {distant:?}");
        assert!(close.bit_distance < distant.bit_distance);
        let cast: Vec<u8> = base.iter().flat_map(|value| bf16(value.to_bits()).to_le_bytes()).collect();
        let other = Dtype::Bfloat16;
        assert!(of((&cast, other), (&base_bytes, single)).unwrap().is_cast);
        assert!(of((&base_bytes, single), (&cast, other)).unwrap().is_cast);
        assert!(!of((&cast, other), (&far, single)).unwrap().is_cast);
        assert_eq!(of((&cast, other), (&cast, Dtype::Float16)), None);
    }

    #[test]
    fn values_that_became_zero_cost_a_mask_only() {
        let base: Vec<f32> = (0..4096).map(|i| ((i * 37 % 1000) as f32 - 500.5) / 9000.0).collect();
        let pruned: Vec<f32> = (0..4096).zip(&base).map(|(i, value)| if i % 2 == 0 { 0.0 } else { *value }).collect();
        let sketch = |bytes: &Vec<u8>| {
            let tensor =
                Tensor { name: "w".into(), dtype: Dtype::Float32, shape: vec![4096], offset: 0, len: 16 << 10 };
            sample(bytes, &tensor, 1).unwrap()
        };
        let (new, old) = (sketch(&floats(&pruned)), sketch(&floats(&base)));
        let view = |sketch| Sketched { dtype: Dtype::Float32, len: 16 << 10, sketch };
        let of = |new, old, prunes| compare(view(new), view(old), prunes).unwrap();
        let (found, before) = (of(&new, &old, true), of(&new, &old, false));
        assert_eq!((found.equal_share, found.delta_bits), (1.0, 1.0));
        assert_eq!((before.equal_share, before.bit_distance), (0.5, found.bit_distance));
        assert!(before.delta_bits > 12.0, "{before:?}");
        assert_eq!(of(&old, &new, true), of(&old, &new, false), "values that were zero");
        assert_eq!(of(&old, &old, true), of(&old, &old, false));
    }
}
