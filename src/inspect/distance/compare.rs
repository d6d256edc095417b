//! Compares the values of two models, pair by pair, and sums the results by type.

use std::borrow::Cow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::bit_tally::{BitTally, converted};
use super::open_model::OpenModel;
use super::pairs::{Pairing, TensorPair, pair};
use crate::error::{Error, Result};
use crate::format::{Dtype, Tensor};
use crate::kernel::float_format::FloatFormat;
use crate::model::{
    ModelLikeness, Relation, TensorComparer, TensorComparison, compare_blocks, float_formats, follows_from,
    quantised_comparison,
};
use crate::read_at::{fill, unwrapped};

/// Bytes of a batch of the wider type.
const BATCH_BYTES: u64 = 1 << 20;

/// Distance of two models.
#[derive(Debug, Default)]
pub struct Distance {
    /// By pair of types, the pair of most values first.
    pub types: Vec<TypeDistance>,
    /// Tensors that were not compared.
    pub left_out: Vec<LeftOut>,
    /// How alike the models are.
    likeness: ModelLikeness,
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
    /// Differing bits of the values, in the type of the shorter fraction. Of quantised blocks and floats, those of the
    /// blocks and of what the floats give with the same scales.
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
    /// The tally of 16-bit floats, wider ones rounded to BF16; `None` for other types.
    pub fn comparable(&self) -> Option<&BitTally> {
        let tally = self.rounded.as_ref().unwrap_or(&self.tally);
        matches!(tally.dtype, Dtype::Bfloat16 | Dtype::Float16).then_some(tally)
    }
}

impl Distance {
    /// Mean number of differing bits of a 16-bit float; wider ones are rounded to BF16. `None` without such floats.
    pub fn bit_distance(&self) -> Option<f64> {
        self.likeness.bit_distance()
    }

    /// Mean number of differing bits, of 16, of the values that are zero in neither model: what the relation depends
    /// on. `None` without such values.
    pub fn nonzero_distance(&self) -> Option<f64> {
        self.likeness.nonzero_distance()
    }

    /// How the models relate; `None` if nothing was compared.
    pub fn relation(&self) -> Option<Relation> {
        self.likeness.relation()
    }

    /// The distance of the types of a pair, added if it is the first pair of these types.
    fn type_distance(&mut self, first: OpenTensor<'_>, second: OpenTensor<'_>) -> Result<&mut TypeDistance> {
        let types = (first.tensor.dtype, second.tensor.dtype);
        let names = (first.model.dtype_name(first.tensor), second.model.dtype_name(second.tensor));
        let tallied = tallied(types.0, types.1);
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

    /// The format of its floats, by the name of its type. Eight bits without a name of their own are E4M3.
    fn format(&self) -> Option<FloatFormat> {
        let is_e5m2 = self.model.dtype_name(self.tensor).contains("E5M2");
        let formats = float_formats(self.tensor.dtype);
        if is_e5m2 { formats.last().copied() } else { formats.first().copied() }
    }

    /// Values of this tensor in the type in which it is compared with the other one of `pair`.
    fn converted(&self, bytes: &[u8], pair: [OpenTensor<'_>; 2], tallied: Dtype) -> Vec<u8> {
        let to = pair.iter().find(|side| side.tensor.dtype == tallied).and_then(OpenTensor::format);
        self.format().zip(to).map_or_else(Vec::new, |(from, to)| converted(bytes, from, to))
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
    for TensorPair { one, other, skipped, values } in pairs {
        let [one, other] = [(first, one), (second, other)].map(|(model, tensor)| OpenTensor { model, tensor });
        let of_type = distance.type_distance(one, other)?;
        of_type.tensors += 1;
        let found = match follows_from(one.tensor.dtype, other.tensor.dtype) {
            Some(_) => compare_quantised(of_type, one, other, stop)?,
            None if follows_from(other.tensor.dtype, one.tensor.dtype).is_some() => {
                compare_quantised(of_type, other, one, stop)?
            }
            None => compare(of_type, [one, other], skipped, values, stop)?,
        };
        if let Some(found) = found {
            distance.likeness.add(one.tensor.dtype, values * one.width(), &found);
        }
    }
    distance.types.sort_by_key(|of_type| std::cmp::Reverse(of_type.tally.values));
    Ok(distance)
}

/// The type in which values of two types are compared: that of the shorter fraction, or that of quantised blocks.
fn tallied(one: Dtype, other: Dtype) -> Dtype {
    let fraction_bits = |dtype| float_formats(dtype).first().map_or(0, |format| format.fraction_bits());
    match (one, other) {
        (Dtype::Quantised(_), _) => one,
        (_, Dtype::Quantised(_)) => other,
        _ if fraction_bits(other) < fraction_bits(one) => other,
        _ => one,
    }
}

/// Counts the differing bits of `values` values of two tensors, each from the skipped ones on.
fn compare(
    distance: &mut TypeDistance,
    [one, other]: [OpenTensor<'_>; 2],
    skipped: [u64; 2],
    values: u64,
    stop: &AtomicBool,
) -> Result<Option<TensorComparison>> {
    let mut comparer = TensorComparer::new(one.tensor.dtype, other.tensor.dtype, true);
    let batch_values = BATCH_BYTES / one.width().max(other.width());
    let (mut one_bytes, mut other_bytes) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < values {
        check_stopped(stop)?;
        let count = batch_values.min(values - at);
        one.read(skipped[0] + at, count, &mut one_bytes)?;
        other.read(skipped[1] + at, count, &mut other_bytes)?;
        comparer.iter_mut().for_each(|comparer| comparer.add(&one_bytes, &other_bytes));
        let tallied = distance.tally.dtype;
        let [one_tallied, other_tallied] =
            [(one, &one_bytes), (other, &other_bytes)].map(|(side, bytes)| match side.tensor.dtype == tallied {
                true => Cow::Borrowed(bytes.as_slice()),
                false => Cow::Owned(side.converted(bytes, [one, other], tallied)),
            });
        distance.tally.add(&one_tallied, &other_tallied);
        if let Some(tally) = &mut distance.rounded {
            let rounded = |bytes: &[u8]| converted(bytes, FloatFormat::Fp32, FloatFormat::Bf16);
            tally.add(&rounded(&one_bytes), &rounded(&other_bytes));
        }
        at += count;
    }
    Ok(comparer.and_then(TensorComparer::finish))
}

/// Compares a quantised tensor with floats of the same values.
fn compare_quantised(
    distance: &mut TypeDistance,
    blocks: OpenTensor<'_>,
    floats: OpenTensor<'_>,
    stop: &AtomicBool,
) -> Result<Option<TensorComparison>> {
    let (new, old) = (blocks.tensor.dtype, floats.tensor.dtype);
    let Some(block_type) = follows_from(new, old) else { return Ok(None) };
    let (block_values, block_bytes) = (block_type.values() as u64, block_type.bytes() as u64);
    let all = blocks.tensor.len / block_bytes;
    let batch = BATCH_BYTES / (block_values * floats.width());
    let (mut block_buffer, mut float_buffer) = (Vec::new(), Vec::new());
    let (mut at, mut compared, mut equal) = (0, 0, 0);
    while at < all {
        check_stopped(stop)?;
        let count = batch.clamp(1, all - at);
        blocks.read(at * block_bytes, count * block_bytes, &mut block_buffer)?;
        floats.read(at * block_values, count * block_values, &mut float_buffer)?;
        if let Some((codes, same, made)) = compare_blocks(new, &block_buffer, old, &float_buffer) {
            compared += codes;
            equal += same;
            distance.tally.add(&block_buffer, &made);
        }
        at += count;
    }
    Ok((compared > 0).then(|| quantised_comparison(block_type, compared, equal)))
}

fn check_stopped(stop: &AtomicBool) -> Result<()> {
    if stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
}
