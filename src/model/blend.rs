//! Blends: tensors that are weighted means of those of two stored models, as averages and interpolations of models are.
//!
//! 1. The sketches of a tensor and of its counterparts in the nearest models have values at the same places. Those of
//!    two counterparts give the weight, and how many values of the tensor follow.
//! 2. A block's base is the same range of both, these very entries: what lies below them has other values. So a base is
//!    twice as long as its block, which tells readers of operations that it has not the block's elements.

use std::sync::Arc;

use super::base_ranges::{block_ranges, none_if_unreadable, planned};
use super::block_plan::BlockPlan;
use super::choice::{ModelComparison, Pairs, TensorBase};
use super::delta_plan::{DeltaPlanner, OPERATIONS_MAX};
use super::record::{ModelRecord, TensorRecord};
use super::sketch::standalone_bits;
use crate::codec::delta::{Blended, Derivation};
use crate::error::Result;
use crate::format::Dtype;
use crate::similar::Bases;

/// One base of a blend is among so many nearest candidates. The other may be far away: a running mean is nearest to
/// itself.
const NEAREST: usize = 8;
/// Bytes of the sketches that rule most pairs out.
const SHORT_SKETCH: usize = 512;
/// Share of such values at which no other pair is tried.
const FOUND_SHARE: f64 = 0.98;
/// So many blends lie on a block that is stored alone, before one is too deep.
const SHALLOW_BLENDS: f64 = 8.0;
/// Share of the sampled values that a blend must give, of those that neither base has. Most values of sparse steps are
/// equal in all of a run.
const SHARE_MIN: f64 = 0.5;

/// The number of the candidate, and the bases, of tensor `at` as a blend.
pub(super) fn blend(
    tensor: &TensorRecord,
    compared: &[(ModelComparison, Pairs, &Arc<ModelRecord>)],
    at: usize,
) -> Option<(usize, TensorBase)> {
    let blended = Blended::of(tensor.dtype().element_type())?;
    let counterpart = |(number, (_, pairs, model)): (usize, &(ModelComparison, Pairs, &Arc<ModelRecord>))| {
        let (index, found) = pairs.get(at).copied().flatten()?;
        let other = model.tensors.get(index)?;
        let fits = other.dtype == tensor.dtype && other.len == tensor.len && other.sketch.len() == tensor.sketch.len();
        fits.then(|| (number, index, found, Arc::clone(model)))
    };
    let near: Vec<_> = compared.iter().enumerate().filter_map(counterpart).collect();
    let mut best: Option<(f64, usize, usize)> = None;
    for (one, (_, first, _, model)) in near.iter().enumerate().take(NEAREST) {
        for (other, (_, second, _, another)) in near.iter().enumerate().skip(one + 1) {
            let (Some(a), Some(b)) = (model.tensors.get(*first), another.tensors.get(*second)) else { continue };
            let sketches = [&tensor.sketch, &a.sketch, &b.sketch].map(Vec::as_slice);
            let [short, a_short, b_short] = sketches.map(|sketch| sketch.get(..SHORT_SKETCH).unwrap_or(sketch));
            if blended.share(short, [a_short, b_short]) == 0.0 {
                continue;
            }
            let share = blended.share(&tensor.sketch, [&a.sketch, &b.sketch]);
            if share >= SHARE_MIN && best.is_none_or(|best| share > best.0) {
                best = Some((share, one, other));
            }
        }
        if best.is_some_and(|best| best.0 >= FOUND_SHARE) {
            break;
        }
    }
    let (share, one, other) = best?;
    let ((number, index, found, model), (_, second, _, another)) = (near.get(one)?, near.get(other)?);
    let delta_bits = found.delta_bits * (1.0 - share);
    let bases = TensorBase {
        delta_bits,
        second: Some((another.clone(), *second)),
        ..TensorBase::new(Some(model.clone()), *index, found)
    };
    Some((*number, bases))
}

impl DeltaPlanner {
    /// Plans bytes from `offset` on of a tensor as a blend of its bases. Nothing is known if it has one base, or if one
    /// of the blocks is not stored. If the blend would be too deep, as would each of the next, and other deltas are
    /// long, the block is stored alone.
    pub(super) fn plan_blend(
        &mut self,
        dtype: Dtype,
        chosen: &TensorBase,
        (offset, len): (u64, u32),
        bases: &mut Bases,
    ) -> Result<BlockPlan> {
        let element_type = dtype.element_type();
        let second = chosen.second.as_ref();
        let (Some(blended), Some(first), Some((second, tensor))) =
            (Blended::of(element_type), chosen.model.as_ref(), second)
        else {
            return Ok(BlockPlan::Unplanned);
        };
        let range = offset..offset + u64::from(len);
        let mut both = Vec::new();
        for (model, tensor) in [(first, chosen.tensor), (second, *tensor)] {
            let Some(tensor) = model.tensors.get(tensor).filter(|tensor| range.end <= tensor.len) else {
                return Ok(BlockPlan::Unplanned);
            };
            let parts: Vec<_> = block_ranges(&tensor.blocks, model.block_bytes, range.clone()).collect();
            match none_if_unreadable(self.entries_of(&parts, OPERATIONS_MAX / 2, bases))? {
                Some(mut ranges) => both.append(&mut ranges),
                None => return Ok(BlockPlan::Unplanned),
            }
        }
        let bytes = (chosen.delta_bits * f64::from(len) / 8.0 / element_type.width() as f64) as u64;
        let made = planned(Some(both), Derivation::Blended(blended), element_type, bytes, bases);
        Ok(match none_if_unreadable(made)? {
            Some(made) if made.depth <= self.copy_depth_max() => BlockPlan::of(Some(made)),
            Some(_) if chosen.near_bits * SHALLOW_BLENDS > standalone_bits(dtype) => BlockPlan::Alone,
            _ => BlockPlan::Unplanned,
        })
    }
}
