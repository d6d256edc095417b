//! Distance: in how many bits the values of two models differ, exactly.
//!
//! 1. The tensors of the one are paired with those of the other: by name, else by shape and order ([`pairs`]).
//! 2. Each pair is read a piece at a time, both sides together, and every value is tallied ([`tally`]): FP32 against
//!    BF16 or FP16 after rounding to nearest, ties to even, all else as it is.
//! 3. The tallies of one type are put together. ZipLLM (section 4.2) takes two BF16 models for relatives where a value
//!    differs in less than [`THRESHOLD`] bits on average; FP32 is rounded to BF16 for that.

mod bit_tally;
mod open_model;
mod pairs;

pub use bit_tally::{BitField, BitTally};
pub use open_model::{OpenModel, SnapshotModels};

use std::borrow::Cow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};
use crate::format::{Dtype, Tensor};
use crate::repo::stored_file::{fill, unwrapped};
use pairs::{Pairing, pair};

/// ZipLLM's bound: models at a smaller distance are of one family.
pub const THRESHOLD: f64 = 4.0;
/// Bytes read of one side at a time.
const OPERATION_BYTES: u64 = 1 << 20;

/// How two models compare.
#[derive(Debug, Default)]
pub struct Distance {
    /// By types of the two sides, that of most values first.
    pub types: Vec<TypeDistance>,
    /// Tensors that were not compared.
    pub left_out: Vec<LeftOut>,
}

/// All tensors of one type on either side.
#[derive(Debug)]
pub struct TypeDistance {
    /// What the type is called in the first model.
    pub first: Cow<'static, str>,
    /// What it is called in the second one.
    pub second: Cow<'static, str>,
    /// Pairs of tensors.
    pub tensors: u64,
    /// Bits of the values as they are; after rounding where the types differ.
    pub tally: BitTally,
    /// FP32 on both sides: bits of the values rounded to BF16.
    pub rounded: Option<BitTally>,
}

/// A tensor that was not compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Its name.
    pub tensor: String,
    /// Whether it is in the second model.
    pub is_second: bool,
    /// Why.
    pub reason: String,
}

impl TypeDistance {
    /// The tally that ZipLLM's bound holds for, if there is one: that of 16-bit floats.
    pub fn comparable(&self) -> Option<&BitTally> {
        let tally = self.rounded.as_ref().unwrap_or(&self.tally);
        matches!(tally.dtype, Dtype::Bfloat16 | Dtype::Float16).then_some(tally)
    }
}

impl Distance {
    /// Mean differing bits of all values that ZipLLM's bound holds for; none if there are none.
    pub fn of_family(&self) -> Option<f64> {
        let tallies = || self.types.iter().filter_map(TypeDistance::comparable);
        let values: u64 = tallies().map(|tally| tally.values).sum();
        let differing: u64 = tallies().map(BitTally::differing).sum();
        (values > 0).then(|| differing as f64 / values as f64)
    }

    fn of(
        &mut self,
        first: (Dtype, Cow<'static, str>),
        second: (Dtype, Cow<'static, str>),
    ) -> Option<&mut TypeDistance> {
        let ((one, first), (other, second)) = (first, second);
        let tallied = if one == Dtype::Float32 { other } else { one };
        let is_wide = (one, other) == (Dtype::Float32, Dtype::Float32);
        let is_same = |of: &TypeDistance| (&of.first, &of.second, of.tally.dtype) == (&first, &second, tallied);
        let at = self.types.iter().position(is_same).unwrap_or_else(|| {
            let rounded = is_wide.then(|| BitTally::new(Dtype::Bfloat16));
            self.types.push(TypeDistance { first, second, tensors: 0, tally: BitTally::new(tallied), rounded });
            self.types.len() - 1
        });
        self.types.get_mut(at)
    }
}

/// Compares two models.
///
/// # Errors
/// Those of reading them, and [`Error::Interrupted`] once `stop` is set.
pub fn distance(first: &OpenModel, second: &OpenModel, stop: &AtomicBool) -> Result<Distance> {
    let Pairing { pairs, left_out } = pair(first, second)?;
    let mut distance = Distance { left_out, ..Distance::default() };
    for (one, other) in pairs {
        let of = distance.of((one.dtype, first.label_of(one)), (other.dtype, second.label_of(other)));
        let Some(of) = of else { continue };
        of.tensors += 1;
        compare(of, (first, one), (second, other), stop)?;
    }
    distance.types.sort_by_key(|of| std::cmp::Reverse(of.tally.values));
    Ok(distance)
}

/// Tallies the values of two tensors of as many values each.
fn compare(
    of: &mut TypeDistance,
    one: (&OpenModel, &Tensor),
    other: (&OpenModel, &Tensor),
    stop: &AtomicBool,
) -> Result<()> {
    let width = |dtype: Dtype| dtype.width().unwrap_or(1) as u64;
    let (one_width, other_width) = (width(one.1.dtype), width(other.1.dtype));
    let values = one.1.len / one_width;
    let values_at_once = OPERATION_BYTES / one_width.max(other_width);
    let (mut space, mut other_space) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < values {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        let count = values_at_once.min(values - at);
        read(one, at * one_width, count * one_width, &mut space)?;
        read(other, at * other_width, count * other_width, &mut other_space)?;
        match (one.1.dtype, other.1.dtype) {
            (same, other) if same == other => of.tally.add(&space, &other_space),
            (Dtype::Float32, narrow) => of.tally.add(&bit_tally::rounded(&space, narrow), &other_space),
            (narrow, _) => of.tally.add(&space, &bit_tally::rounded(&other_space, narrow)),
        }
        if let Some(as_narrow) = &mut of.rounded {
            let narrow = |space: &[u8]| bit_tally::rounded(space, Dtype::Bfloat16);
            as_narrow.add(&narrow(&space), &narrow(&other_space));
        }
        at += count;
    }
    Ok(())
}

fn read((side, tensor): (&OpenModel, &Tensor), offset: u64, len: u64, space: &mut Vec<u8>) -> Result<()> {
    space.resize(usize::try_from(len).unwrap_or(0), 0);
    fill(side.source(), tensor.offset + offset, space).map_err(|error| unwrapped(error, Path::new(&side.label)))
}
