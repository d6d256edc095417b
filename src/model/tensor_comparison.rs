//! Compares the values of two tensors, all of them or a sample.
//!
//! Three measures come from one pass: the mean number of differing bits of a value (the bit distance of ZipLLM, section
//! 4.2), the lengths of the differences of values in numerical order, which a delta stores, and the bits in which the
//! values are alike, which tell whether two models are of one family ([`super::relation`]).

use crate::format::Dtype;
use crate::kernel::elements::bf16;
use crate::kernel::float_format::FloatFormat;

/// One value in so many may not be the cast of the other tensor's.
const CAST_MISSES: u64 = 64;
/// Bits of a cast that hardly anything is stored for.
const CAST_BITS: f64 = 0.2;
/// Share of equal values from which on FP8 counts as related to wider floats: values of the same size always look
/// alike there.
const FP8_SHARE: f64 = 0.5;

/// How two tensors differ.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TensorComparison {
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
    /// In how many bits the values are alike.
    pub likeness: Likeness,
}

/// In how many bits the values of two tensors differ. Wider floats count as BF16.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Likeness {
    /// Bits of a value as compared.
    pub bits: u32,
    /// The values are floats.
    pub is_float: bool,
    /// Differing bits of all values.
    pub differing: u64,
    /// Values that are zero in neither tensor. All values, if they are no floats.
    pub nonzero: u64,
    /// Their differing bits.
    pub nonzero_differing: u64,
    /// Values that are zero in one tensor only.
    pub pruned: u64,
}

/// The formats that the floats of a type may have.
pub fn float_formats(dtype: Dtype) -> &'static [FloatFormat] {
    match dtype {
        Dtype::Bfloat16 => &[FloatFormat::Bf16],
        Dtype::Float16 => &[FloatFormat::Fp16],
        Dtype::Float32 => &[FloatFormat::Fp32],
        Dtype::Float8 => &[FloatFormat::E4m3, FloatFormat::E5m2],
        _ => &[],
    }
}

/// Whether one type casts to the other. With `derives`, not only FP32 to BF16 or FP16.
fn is_cast_pair(new: Dtype, old: Dtype, derives: bool) -> bool {
    let is_narrow = |dtype| matches!(dtype, Dtype::Bfloat16 | Dtype::Float16);
    let is_known = |wide, narrow| wide == Dtype::Float32 && is_narrow(narrow);
    let has_formats = !float_formats(new).is_empty() && !float_formats(old).is_empty();
    new != old && has_formats && (derives || is_known(new, old) || is_known(old, new))
}

/// Compares two tensors of one type, or of types of which one casts to the other, part by part.
pub struct TensorComparer {
    new: Dtype,
    old: Dtype,
    /// Sums for each pair of formats that the two may have: at most two, because only one of them is FP8.
    sums: [ComparisonSums; 2],
}

impl TensorComparer {
    /// A comparison of tensors of these types; `None` if neither casts to the other. With `derives`, casts are all
    /// pairs of BF16, FP16, FP32 and FP8, and a delta has a mask of the values that became zero.
    pub fn new(new: Dtype, old: Dtype, derives: bool) -> Option<Self> {
        if new != old && !is_cast_pair(new, old, derives) {
            return None;
        }
        let prunes = derives && (new == old || new != Dtype::Float32);
        let sums = || ComparisonSums { prunes, ..ComparisonSums::default() };
        Some(TensorComparer { new, old, sums: [sums(), sums()] })
    }

    fn formats(&self) -> impl Iterator<Item = (FloatFormat, FloatFormat)> + use<> {
        let old = float_formats(self.old);
        float_formats(self.new).iter().flat_map(move |new| old.iter().map(|old| (*new, *old)))
    }

    /// Adds values of both tensors, as many of one as of the other.
    pub fn add(&mut self, new_bytes: &[u8], old_bytes: &[u8]) {
        if self.new == self.old {
            let [sums, _] = &mut self.sums;
            return sums.same(self.new, new_bytes, old_bytes);
        }
        for ((new, old), sums) in self.formats().zip(&mut self.sums) {
            sums.cast(new, old, new_bytes, old_bytes);
        }
    }

    /// The comparison; `None` without values, and if FP8 has nothing in common with the other.
    pub fn finish(self) -> Option<TensorComparison> {
        if self.new == self.old {
            let [sums, _] = self.sums;
            return sums.finish(None);
        }
        let is_eight_bits = self.new == Dtype::Float8 || self.old == Dtype::Float8;
        let found = self.formats().zip(self.sums).filter_map(|(formats, sums)| sums.finish(Some(formats)));
        let best = found.min_by(|one, other| one.delta_bits.total_cmp(&other.delta_bits))?;
        (!is_eight_bits || best.is_cast || best.equal_share >= FP8_SHARE).then_some(best)
    }
}

/// Sums over the compared values.
#[derive(Default)]
struct ComparisonSums {
    values: u64,
    differing: u64,
    zeros: u64,
    lengths: u64,
    /// Values that are not the cast of the old tensor's.
    not_cast: u64,
    /// Values of the old tensor that are not the cast of the new one's.
    not_original: u64,
    /// A delta has a mask of the values that became zero.
    prunes: bool,
    pruned: u64,
    likeness: Likeness,
}

impl TensorComparison {
    /// Whether the new tensor is the old one with some values set to zero.
    pub fn is_pruned(&self) -> bool {
        let few = 1.0 / CAST_MISSES as f64;
        self.equal_share >= 1.0 - few && self.likeness.pruned as f64 >= few * self.values as f64
    }
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

    /// Compares values of different formats, in the format with the shorter fraction.
    fn cast(&mut self, new: FloatFormat, old: FloatFormat, new_bytes: &[u8], old_bytes: &[u8]) {
        for (one, other) in new_bytes.chunks_exact(new.width()).zip(old_bytes.chunks_exact(old.width())) {
            let (one, other) = (value_of(one) as u32, value_of(other) as u32);
            let (cast, original) = (new.narrowed(old.widened(other)), old.narrowed(new.widened(one)));
            self.not_cast += u64::from(cast != one);
            self.not_original += u64::from(original != other);
            let ((one, other), format) = match new.fraction_bits() <= old.fraction_bits() {
                true => ((one, cast), new),
                false => ((original, other), old),
            };
            self.pair(one.into(), other.into(), 8 * format.width() as u32, true);
        }
    }

    #[inline]
    fn pair(&mut self, one: u64, other: u64, bits: u32, is_float: bool) {
        self.values += 1;
        self.differing += u64::from((one ^ other).count_ones());
        self.likeness.add(one, other, bits, is_float);
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

    /// The comparison, of tensors of these formats if they differ.
    fn finish(self, formats: Option<(FloatFormat, FloatFormat)>) -> Option<TensorComparison> {
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
        let is_rare = |misses: u64| misses * CAST_MISSES <= self.values;
        let (casts, delta_bits) = match formats {
            None => (false, delta_bits),
            Some(_) if is_rare(self.not_cast) => (true, CAST_BITS),
            Some((new, old)) => {
                // A delta from a cast to its original stores the bits that the cast cut off.
                let low_bits = f64::from(new.fraction_bits().saturating_sub(old.fraction_bits()));
                let casts = low_bits > 0.0 && is_rare(self.not_original);
                (casts, low_bits + if casts { CAST_BITS } else { delta_bits })
            }
        };
        let bit_distance = self.differing as f64 / self.values as f64;
        let equal_share = (self.zeros + self.pruned) as f64 / self.values as f64;
        let (values, likeness) = (self.values, self.likeness);
        Some(TensorComparison { values, bit_distance, delta_bits, is_cast: casts, equal_share, likeness })
    }
}

impl Likeness {
    #[inline]
    fn add(&mut self, one: u64, other: u64, bits: u32, is_float: bool) {
        let (one, other, bits) = match (is_float, bits) {
            (true, 32) => (u64::from(bf16(one as u32)), u64::from(bf16(other as u32)), 16),
            (true, 64) => (double_as_bf16(one), double_as_bf16(other), 16),
            _ => (one, other, bits),
        };
        let differing = u64::from((one ^ other).count_ones());
        let is_zero = |value: u64| is_float && value & ((1 << (bits - 1)) - 1) == 0;
        (self.bits, self.is_float) = (bits, is_float);
        self.differing += differing;
        match (is_zero(one), is_zero(other)) {
            (false, false) => {
                self.nonzero += 1;
                self.nonzero_differing += differing;
            }
            (true, true) => {}
            _ => self.pruned += 1,
        }
    }
}

/// The BF16 bits of an FP64 value.
fn double_as_bf16(bits: u64) -> u64 {
    bf16((f64::from_bits(bits) as f32).to_bits()).into()
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
    use crate::format::Tensor;
    use crate::kernel::elements;
    use crate::model::sketch::{Sketched, compare, sample};
    use proptest::prelude::*;

    fn floats(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    fn compared(new: (&[u8], Dtype), old: (&[u8], Dtype), derives: bool) -> Option<TensorComparison> {
        let mut comparer = TensorComparer::new(new.1, old.1, derives)?;
        comparer.add(new.0, old.0);
        comparer.finish()
    }

    #[test]
    fn casts_follow_the_standard() {
        // Values and their casts, from the definitions of the formats.
        let halves = [(1.0f32, 0x3c00u16), (-2.0, 0xc000), (65504.0, 0x7bff), (65520.0, 0x7c00), (65519.9, 0x7bff)];
        let small = [(6.103_515_6e-5, 0x0400), (5.960_464_5e-8, 0x0001), (2.980_232_2e-8, 0x0000), (0.0, 0)];
        for (value, half) in halves.into_iter().chain(small) {
            assert_eq!(elements::fp16(value.to_bits()), half, "{value}");
        }
        assert_eq!(elements::fp16((2.980_232_6e-8f32).to_bits()), 1);
        assert_eq!(elements::fp16(f32::NEG_INFINITY.to_bits()), 0xfc00);
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
        assert_eq!(of((&cast, other), (&cast, Dtype::Float16)), None, "only with derivations");
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
        assert!(found.is_pruned() && !before.is_pruned() && !of(&old, &new, true).is_pruned());
        assert!(!of(&old, &old, true).is_pruned());
        assert_eq!((before.equal_share, before.bit_distance), (0.5, found.bit_distance));
        assert!(before.delta_bits > 12.0, "{before:?}");
        assert_eq!(of(&old, &new, true), of(&old, &new, false), "values that were zero");
        assert_eq!(of(&old, &old, true), of(&old, &old, false));
    }

    #[test]
    fn all_pairs_of_float_formats_are_casts_of_each_other_where_values_agree() {
        let wide: Vec<u8> = (0..2000u32)
            .flat_map(|at| (((at.wrapping_mul(2_654_435_761) >> 12) as f32 / 1_048_576.0 - 0.5) * 0.1).to_le_bytes())
            .collect();
        let of = |format: FloatFormat| {
            let mut narrow = vec![0; wide.len() / 4 * format.width()];
            format.narrow(&wide, &mut narrow);
            narrow
        };
        let types = [Dtype::Float32, Dtype::Float16, Dtype::Bfloat16, Dtype::Float8];
        let (formats, mut cast) = (types.map(float_formats), 0);
        for (new, new_formats) in types.iter().zip(formats) {
            for (old, old_formats) in types.iter().zip(formats).filter(|(old, _)| *old != new) {
                for (one, other) in new_formats.iter().flat_map(|new| old_formats.iter().map(move |old| (*new, *old))) {
                    let (one_bytes, other_bytes) = (of(one), of(other));
                    let found = compared((&one_bytes, *new), (&other_bytes, *old), true).unwrap();
                    // FP16 has numbers that other formats round to zero, and BF16 rounds FP32 before FP8 does.
                    let low = f64::from(one.fraction_bits().saturating_sub(other.fraction_bits()));
                    assert!(found.delta_bits < low + 1.2, "{one:?} {other:?} {found:?}");
                    cast += usize::from(found.is_cast);
                    let unrelated: Vec<u8> = one_bytes.chunks(one.width()).rev().flatten().copied().collect();
                    let apart = compared((&unrelated, *new), (&other_bytes, *old), true);
                    assert!(apart.is_none_or(|apart| !apart.is_cast), "{one:?} {other:?} {apart:?}");
                }
            }
        }
        assert!(cast >= 8, "FP32 with all others: {cast}");
        assert!(compared((&[0; 8], Dtype::Float64), (&[0; 4], Dtype::Float32), true).is_none());
    }

    #[test]
    fn wider_floats_are_alike_as_bf16_and_zeros_do_not_count() {
        let one = floats(&[1.0, 2.0, 0.0, 0.0, -0.0]);
        let other = floats(&[1.000_001, -2.0, 5.0, 0.0, 0.0]);
        let likeness = compared((&one, Dtype::Float32), (&other, Dtype::Float32), true).unwrap().likeness;
        let pruned = u64::from((0x40a0u16).count_ones());
        let expected =
            Likeness { bits: 16, is_float: true, differing: 2 + pruned, nonzero: 2, nonzero_differing: 1, pruned: 1 };
        assert_eq!(likeness, expected);
        let doubles = |values: [f64; 2]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        let (one, other) = (doubles([1.0, 3.0]), doubles([1.0 + 1e-9, -3.0]));
        let likeness = compared((&one, Dtype::Float64), (&other, Dtype::Float64), true).unwrap().likeness;
        assert_eq!((likeness.bits, likeness.nonzero, likeness.nonzero_differing), (16, 2, 1));
        let likeness = compared((&[0, 1], Dtype::Int8), (&[0, 3], Dtype::Int8), true).unwrap().likeness;
        assert_eq!((likeness.bits, likeness.nonzero, likeness.nonzero_differing, likeness.pruned), (8, 2, 1, 0));
    }
}
