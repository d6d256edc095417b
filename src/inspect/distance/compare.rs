//! Compares the values of two models, pair by pair, and sums the results by type.

use std::borrow::Cow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::bit_tally::{BitTally, rounded};
use super::open_model::OpenModel;
use super::pairs::{Pairing, pair};
use crate::error::{Error, Result};
use crate::format::{Dtype, Tensor};
use crate::read_at::{fill, unwrapped};

/// ZipLLM's threshold: models at a smaller distance are one family.
pub const THRESHOLD: f64 = 4.0;
/// Bytes of a batch of the wider type.
const BATCH_BYTES: u64 = 1 << 20;

/// Distance of two models.
#[derive(Debug, Default)]
pub struct Distance {
    /// By pair of types, the pair of most values first.
    pub types: Vec<TypeDistance>,
    /// Tensors that were not compared.
    pub left_out: Vec<LeftOut>,
}

/// Distance of all tensors with one pair of types.
#[derive(Debug)]
pub struct TypeDistance {
    /// Name of the type in the first model.
    pub first: Cow<'static, str>,
    /// Name of the type in the second model.
    pub second: Cow<'static, str>,
    /// Pairs of tensors.
    pub tensors: u64,
    /// Differing bits of the values; of the rounded values if one type is wider.
    pub tally: BitTally,
    /// Differing bits of the values rounded to BF16, if both types are FP32.
    pub rounded: Option<BitTally>,
}

/// A tensor that was not compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Name of the tensor.
    pub tensor: String,
    /// Whether the tensor is in the second model.
    pub is_second: bool,
    /// Why it was not compared.
    pub reason: String,
}

impl TypeDistance {
    /// The tally of 16-bit floats, which [`THRESHOLD`] applies to.
    pub fn comparable(&self) -> Option<&BitTally> {
        let tally = self.rounded.as_ref().unwrap_or(&self.tally);
        matches!(tally.dtype, Dtype::Bfloat16 | Dtype::Float16).then_some(tally)
    }
}

impl Distance {
    /// Mean number of differing bits of a 16-bit float, which [`THRESHOLD`] applies to. `None` without 16-bit floats.
    pub fn bit_distance(&self) -> Option<f64> {
        let tallies = || self.types.iter().filter_map(TypeDistance::comparable);
        let values: u64 = tallies().map(|tally| tally.values).sum();
        let differing: u64 = tallies().map(BitTally::differing).sum();
        (values > 0).then(|| differing as f64 / values as f64)
    }

    /// The distance of the types of a pair, added if it is the first pair of these types.
    fn type_distance(&mut self, first: OpenTensor<'_>, second: OpenTensor<'_>) -> Result<&mut TypeDistance> {
        let types = (first.tensor.dtype, second.tensor.dtype);
        let names = (first.model.dtype_name(first.tensor), second.model.dtype_name(second.tensor));
        let tallied = if types.0 == Dtype::Float32 { types.1 } else { types.0 };
        let is_same = |of: &TypeDistance| (&of.first, &of.second, of.tally.dtype) == (&names.0, &names.1, tallied);
        let at = self.types.iter().position(is_same).unwrap_or_else(|| {
            let is_wide = types == (Dtype::Float32, Dtype::Float32);
            self.types.push(TypeDistance {
                first: names.0,
                second: names.1,
                tensors: 0,
                tally: BitTally::new(tallied),
                rounded: is_wide.then(|| BitTally::new(Dtype::Bfloat16)),
            });
            self.types.len() - 1
        });
        self.types.get_mut(at).ok_or_else(|| Error::internal("the distance of a type is lost"))
    }
}

/// A tensor of an open model.
#[derive(Clone, Copy)]
struct OpenTensor<'a> {
    model: &'a OpenModel,
    tensor: &'a Tensor,
}

impl OpenTensor<'_> {
    /// Bytes of a value; 1 for types without a fixed width.
    fn width(&self) -> u64 {
        self.tensor.dtype.width().unwrap_or(1) as u64
    }

    /// Reads `count` values from value `first` on.
    fn read(&self, first: u64, count: u64, buffer: &mut Vec<u8>) -> Result<()> {
        let len = usize::try_from(count * self.width());
        buffer.resize(len.map_err(|_| Error::internal("a batch is larger than the memory"))?, 0);
        let read = fill(self.model.source(), self.tensor.offset + first * self.width(), buffer);
        read.map_err(|error| unwrapped(error, Path::new(&self.model.label)))
    }
}

/// Compares two models.
///
/// # Errors
/// Fails if a model cannot be read, and with [`Error::Interrupted`] once `stop` is set.
pub fn distance(first: &OpenModel, second: &OpenModel, stop: &AtomicBool) -> Result<Distance> {
    let Pairing { pairs, left_out } = pair(first, second)?;
    let mut distance = Distance { left_out, ..Distance::default() };
    for (one, other) in pairs {
        let one = OpenTensor { model: first, tensor: one };
        let other = OpenTensor { model: second, tensor: other };
        let of_type = distance.type_distance(one, other)?;
        of_type.tensors += 1;
        compare(of_type, one, other, stop)?;
    }
    distance.types.sort_by_key(|of_type| std::cmp::Reverse(of_type.tally.values));
    Ok(distance)
}

/// Counts the differing bits of two tensors with the same number of values.
fn compare(distance: &mut TypeDistance, one: OpenTensor<'_>, other: OpenTensor<'_>, stop: &AtomicBool) -> Result<()> {
    let values = one.tensor.len / one.width();
    let batch_values = BATCH_BYTES / one.width().max(other.width());
    let (mut one_bytes, mut other_bytes) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < values {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        let count = batch_values.min(values - at);
        one.read(at, count, &mut one_bytes)?;
        other.read(at, count, &mut other_bytes)?;
        match (one.tensor.dtype, other.tensor.dtype) {
            (same, other) if same == other => distance.tally.add(&one_bytes, &other_bytes),
            (Dtype::Float32, narrow) => distance.tally.add(&rounded(&one_bytes, narrow), &other_bytes),
            (narrow, _) => distance.tally.add(&one_bytes, &rounded(&other_bytes, narrow)),
        }
        if let Some(tally) = &mut distance.rounded {
            tally.add(&rounded(&one_bytes, Dtype::Bfloat16), &rounded(&other_bytes, Dtype::Bfloat16));
        }
        at += count;
    }
    Ok(())
}
