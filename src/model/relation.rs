//! Relation: whether two models are of one family, and how one descends from the other. `models`, `lineage` and
//! `distance` all ask here, the first two with samples of the values, the last one with all of them.
//!
//! 1. Models are casts of each other if most bytes are: of other float formats, or quantised.
//! 2. ZipLLM (section 4.2) takes two BF16 models as one family if their values differ in fewer than [`THRESHOLD`] bits
//!    on average, a quarter of them. Wider floats are rounded to BF16 for that. A quarter of the bits is the bound for
//!    every other type, too.
//! 3. Values that are zero in a model say nothing of where it comes from: they were pruned, or never trained. Only the
//!    others count for the bound.
//! 4. Tensors with other numbers of values count as far as they are alike: rows that were added or moved are no
//!    distance.

use super::tensor_comparison::{Likeness, TensorComparison};
use crate::format::Dtype;

/// ZipLLM's threshold for values of 16 bits: models at a smaller distance are one family.
pub const THRESHOLD: f64 = 4.0;
/// The threshold as a share of the bits.
const SHARE: f64 = THRESHOLD / 16.0;
/// A model counts as pruned from this share of zeros on that the other does not have.
const PRUNED_SHARE: f64 = 1.0 / 16.0;

/// How a model relates to another one. The numbers are on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// Their values are near.
    Near,
    /// One is the cast of the other: of another float format, or quantised.
    Cast,
    /// Their values are near where neither is zero, and many are zero in one only.
    Pruned,
    /// They are of different families, though some tensors of one are stored against the other.
    Distant,
    /// It has no tensor in common with the other, but blocks of it are ranges of the other's: shards, fused tensors.
    Part,
    /// Nothing of it is stored against the other, which its card or configuration names: an adapter.
    Named,
}

impl Relation {
    const ALL: [Relation; 6] =
        [Relation::Near, Relation::Cast, Relation::Pruned, Relation::Distant, Relation::Part, Relation::Named];

    /// Number on disk.
    pub const fn number(self) -> u8 {
        match self {
            Relation::Near => 1,
            Relation::Cast => 2,
            Relation::Pruned => 3,
            Relation::Distant => 4,
            Relation::Part => 5,
            Relation::Named => 6,
        }
    }

    /// Inverse of [`Relation::number`]. `None` for what a newer version wrote.
    pub fn of_number(number: u8) -> Option<Relation> {
        Self::ALL.into_iter().find(|relation| relation.number() == number)
    }

    /// Name in reports: how the model is stored.
    pub const fn name(self) -> &'static str {
        match self {
            Relation::Near | Relation::Distant => "delta",
            Relation::Cast => "cast",
            Relation::Pruned => "pruned",
            Relation::Part => "part",
            Relation::Named => "named",
        }
    }

    /// Whether both are of one family.
    pub const fn is_family(self) -> bool {
        !matches!(self, Relation::Distant)
    }

    /// Whether values were compared, so that there is a distance.
    pub const fn has_distance(self) -> bool {
        !matches!(self, Relation::Part | Relation::Named)
    }
}

impl TensorComparison {
    /// Whether fewer bits differ than between families.
    pub fn is_near(&self) -> bool {
        let Likeness { bits, nonzero, nonzero_differing, .. } = self.likeness;
        self.is_cast || nonzero > 0 && (nonzero_differing as f64) < SHARE * nonzero as f64 * f64::from(bits)
    }
}

/// How alike two models are: sums over pairs of their tensors, by the values of whole tensors.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ModelLikeness {
    bytes: f64,
    cast_bytes: f64,
    values: f64,
    /// Bits of values that are zero in neither model, and those that differ.
    nonzero_bits: f64,
    nonzero_differing: f64,
    pruned: f64,
    /// Differing bits of all values.
    differing: f64,
    /// Values of 16 bits, also rounded ones, and their differing bits.
    halves: f64,
    halves_differing: f64,
}

impl ModelLikeness {
    /// Adds a pair of tensors, of which the first has `len` bytes of type `dtype`.
    pub fn add(&mut self, dtype: Dtype, len: u64, found: &TensorComparison) {
        let Likeness { bits, is_float, differing, nonzero, nonzero_differing, pruned } = found.likeness;
        let values = len as f64 / dtype.width().unwrap_or(1) as f64;
        // Of a sample, each value stands for several.
        let weight = values / found.values.max(1) as f64;
        self.bytes += len as f64;
        self.cast_bytes += if found.is_cast { len as f64 } else { 0.0 };
        self.values += values;
        self.nonzero_bits += nonzero as f64 * f64::from(bits) * weight;
        self.nonzero_differing += nonzero_differing as f64 * weight;
        self.pruned += pruned as f64 * weight;
        self.differing += differing as f64 * weight;
        if is_float && bits == 16 {
            self.halves += values;
            self.halves_differing += differing as f64 * weight;
        }
    }

    /// Mean number of differing bits of a 16-bit float, wider ones rounded to BF16; `None` without floats of 16 bits.
    pub fn bit_distance(&self) -> Option<f64> {
        (self.halves > 0.0).then(|| self.halves_differing / self.halves)
    }

    /// The same of values of any type; 0 without values.
    pub fn any_bit_distance(&self) -> f64 {
        self.bit_distance().unwrap_or(self.differing / self.values.max(1.0))
    }

    /// Mean number of differing bits, of 16, where a value is zero in neither model. `None` without such values.
    pub fn nonzero_distance(&self) -> Option<f64> {
        (self.nonzero_bits > 0.0).then(|| 16.0 * self.nonzero_differing / self.nonzero_bits)
    }

    /// The relation; `None` if there is nothing to compare.
    pub fn relation(&self) -> Option<Relation> {
        if self.bytes == 0.0 {
            return None;
        }
        if self.cast_bytes * 2.0 > self.bytes {
            return Some(Relation::Cast);
        }
        Some(match self.nonzero_distance() {
            None if self.differing == 0.0 => Relation::Near,
            None => return None,
            Some(distance) if distance >= THRESHOLD => Relation::Distant,
            Some(_) if self.pruned > self.values * PRUNED_SHARE => Relation::Pruned,
            Some(_) => Relation::Near,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::TensorComparer;

    fn compared(dtype: Dtype, one: &[u8], other: &[u8]) -> Option<Relation> {
        let mut comparer = TensorComparer::new(dtype, dtype, true).unwrap();
        comparer.add(one, other);
        let mut likeness = ModelLikeness::default();
        likeness.add(dtype, one.len() as u64, &comparer.finish().unwrap());
        likeness.relation()
    }

    #[test]
    fn numbers_are_unique_and_unknown_ones_are_of_a_newer_version() {
        for relation in Relation::ALL {
            assert_eq!(Relation::of_number(relation.number()), Some(relation));
        }
        assert_eq!((0..=255).filter_map(Relation::of_number).count(), Relation::ALL.len());
    }

    #[test]
    fn a_quarter_of_the_bits_is_the_bound_and_zeros_do_not_count() {
        // Values whose lowest bits differ.
        let halves = |differing: u16| (0x3f80u16 ^ ((1 << differing) - 1)).to_le_bytes();
        let base = halves(0).repeat(8);
        assert_eq!(compared(Dtype::Bfloat16, &halves(3).repeat(8), &base), Some(Relation::Near));
        assert_eq!(compared(Dtype::Bfloat16, &halves(4).repeat(8), &base), Some(Relation::Distant));
        let mut pruned = base.clone();
        pruned[..12].fill(0);
        assert_eq!(compared(Dtype::Bfloat16, &pruned, &base), Some(Relation::Pruned));
        assert_eq!(compared(Dtype::Bfloat16, &base, &pruned), Some(Relation::Pruned));
        // Two pruned models of different families agree in their zeros only.
        let mut other = halves(6).repeat(8);
        other[..12].fill(0);
        assert_eq!(compared(Dtype::Bfloat16, &pruned, &other), Some(Relation::Distant));
        assert_eq!(compared(Dtype::Bfloat16, &[0; 16], &[0; 16]), Some(Relation::Near));
        assert_eq!(compared(Dtype::Bfloat16, &[0; 16], &base), None);
        assert_eq!(compared(Dtype::Int8, &[1; 4], &[2, 1, 1, 1]), Some(Relation::Near));
        assert_eq!(compared(Dtype::Int8, &[0; 4], &[3; 4]), Some(Relation::Distant));
    }
}
