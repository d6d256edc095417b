//! Ranges of bases: those of the blocks of a tensor, those of what a delta builds on, and the plan of a delta to them.

use std::ops::Range;
use std::sync::Arc;

use super::block_plan::{DeltaPlan, PlannedDelta};
use super::record::{ModelRecord, block_of};
use crate::codec::delta::{Cast, Converted, Derivation};
use crate::codec::{ByteGroupLayout, ElementType};
use crate::error::Result;
use crate::format::Dtype;
use crate::repo::MetadataBase;
use crate::repo::container::{DEPTH_LIMIT, NamedChunk, Operation, WHOLE_DIGEST};
use crate::similar::{BaseRange, Bases, base_problem};
use crate::types::Fingerprint;

/// Bytes of a base that a conversion between formats of one width has no use for.
const MORE_BYTES: u32 = 2;

/// Blocks that are looked at for a delta, at most: a record may say that they have a byte each.
const BLOCK_RANGES_MAX: usize = 1024;

/// Fingerprint of a block, and a range inside of it.
pub(super) type BlockRange = (Fingerprint, Range<u32>);

/// The element type of a float chunk of unknown format.
pub fn element_type_of(layout: ByteGroupLayout) -> ElementType {
    match layout.width() {
        2 => ElementType::Bf16,
        4 => ElementType::Fp32,
        8 => ElementType::Fp64,
        _ => ElementType::Byte,
    }
}

/// The blocks that make up a range of a tensor, each with the range inside of it; `None` for one that `fingerprints`
/// lacks. These are as in [`TensorRecord::blocks`]. They end after [`BLOCK_RANGES_MAX`]: no delta has as many.
pub(super) fn block_ranges(
    fingerprints: &[u8],
    len: u64,
    range: Range<u64>,
) -> impl Iterator<Item = Option<BlockRange>> {
    let blocks = if range.is_empty() { 0..0 } else { range.start / len..range.end.div_ceil(len) };
    blocks.take(BLOCK_RANGES_MAX).map(move |index| {
        let start = index * len;
        let (from, to) = (range.start.max(start) - start, range.end.min(start + len) - start);
        Some((block_of(fingerprints, index)?, from as u32..to as u32))
    })
}

/// The ranges, and once more the first bytes of the first one. So the base is longer than the chunk, which tells
/// readers of operations that the two have elements of different formats, though of one width.
pub(super) fn with_one_more(mut ranges: Vec<BaseRange>) -> Option<Vec<BaseRange>> {
    let first = *ranges.first()?;
    ranges.push(BaseRange { len: first.len.min(MORE_BYTES), ..first });
    Some(ranges)
}

/// Appends a range of a base, or what `down` deltas below it have of it. `false` if these are more than `ranges_max`
/// ranges, or a delta does not make what its base has.
pub(super) fn push_below(
    range: BaseRange,
    down: usize,
    ranges_max: usize,
    bases: &mut Bases,
    ranges: &mut Vec<BaseRange>,
) -> Result<bool> {
    if ranges.len() >= ranges_max {
        return Ok(false);
    }
    let Some(down) = down.checked_sub(1) else {
        ranges.push(range);
        return Ok(true);
    };
    let Some(below) = bases.entries.delta_parts(range.entry)? else {
        // Another range of a delta leads less far down than the first.
        ranges.push(range);
        return Ok(true);
    };
    let (mut start, wanted) = (0u32, range.offset..range.offset + range.len);
    for BaseRange { entry, offset, len } in below {
        let (from, to) = (wanted.start.max(start), wanted.end.min(start + len));
        if from < to {
            let deeper = BaseRange { entry, offset: offset + from - start, len: to - from };
            if !push_below(deeper, down, ranges_max, bases, ranges)? {
                return Ok(false);
            }
        }
        start += len;
    }
    Ok(true)
}

/// Turns an unreadable base into no base, with a warning.
pub(super) fn none_if_unreadable<T>(made: Result<Option<T>>) -> Result<Option<T>> {
    match made {
        Err(error) if error.is_unreadable() => {
            tracing::warn!("a part of a model is stored whole: {}", base_problem(&error));
            Ok(None)
        }
        made => made,
    }
}

pub(super) fn planned(
    ranges: Option<Vec<BaseRange>>,
    derivation: Derivation,
    element_type: ElementType,
    bytes: u64,
    bases: &mut Bases,
) -> Result<Option<PlannedDelta>> {
    let Some(ranges) = ranges else { return Ok(None) };
    let (base, chunks, frames) = (Vec::new(), Vec::new(), Vec::new());
    let plan = DeltaPlan { derivation, phase: 0, element_type, base, chunks, frames };
    let mut planned = PlannedDelta {
        plan,
        operations: Vec::new(),
        bases: Vec::new(),
        entries: Vec::new(),
        depth: 0,
        bytes,
        may_have_moved: false,
    };
    for range in ranges {
        let extent_map = bases.entries.extent_map(range.entry)?;
        for number in extent_map.frames() {
            if !planned.plan.frames.iter().any(|frame| frame.0 == *number) {
                let Some(source) = bases.entries.frame_reference(*number)? else { return Ok(None) };
                planned.plan.frames.push((*number, source));
            }
        }
        planned.depth = planned.depth.max(bases.entries.depth(range.entry)?.saturating_add(1));
        if planned.depth > DEPTH_LIMIT {
            return Ok(None);
        }
        let base = match planned.entries.iter().position(|entry| *entry == range.entry) {
            Some(at) => at,
            None => {
                let base = bases.entries.name(range.entry)?;
                planned.plan.chunks.push(NamedChunk { extent_map: extent_map.clone(), name: base.fingerprint });
                planned.bases.push(base);
                planned.entries.push(range.entry);
                planned.entries.len() - 1
            }
        };
        planned.operations.push(Operation::Delta { base: base as u32, offset: range.offset, len: range.len });
        planned.plan.base.push((extent_map, range.offset..range.offset + range.len));
    }
    planned.plan.frames.sort_unstable_by_key(|frame| frame.0);
    Ok(Some(planned))
}

/// How elements of one type derive from those of another; `None` if they do not. With `derives`, not only as casts of
/// FP32.
pub(super) fn derivation_of(new: Dtype, base: Dtype, derives: bool) -> Option<Derivation> {
    let converted = |from, to| if derives { Converted::between(from, to) } else { None };
    match (new.element_type(), base.element_type()) {
        (to, from) if to != from => {
            let cast = Cast::between(from, to).map(Derivation::Cast);
            cast.or_else(|| converted(from, to).map(Derivation::Converted))
        }
        (ElementType::Byte | ElementType::Unknown, _) => (new == base).then_some(Derivation::Bytes),
        (element_type, _) => Some(Derivation::Context(element_type)),
    }
}

/// The record of a stored model; `None` if there is none that can be read.
pub(super) fn load_record(fingerprint: &Fingerprint, bases: &mut Bases) -> Result<Option<Arc<ModelRecord>>> {
    match read_record(fingerprint, bases) {
        Ok(record) => Ok(record.map(Arc::new)),
        Err(error) if error.is_unreadable() => {
            tracing::warn!("not comparing with a stored model: {error}");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The stored record with this fingerprint as a base of another one, or what it copies ranges of; `None` if that cannot
/// be read.
pub(super) fn record_base(fingerprint: &Fingerprint, bases: &mut Bases) -> Result<Option<MetadataBase>> {
    let found = bases.entries.entry_of(fingerprint).and_then(|entry| {
        let Some(entry) = entry else { return Ok(None) };
        let whole = bases.entries.copied(entry)?.unwrap_or(entry);
        let name = bases.entries.name(whole)?;
        let is_whole = name.digest == WHOLE_DIGEST;
        let bytes = if is_whole { bases.read_metadata(&name.fingerprint)? } else { None };
        Ok(bytes.map(|bytes| MetadataBase { name, bytes }))
    });
    match found {
        Err(error) if error.is_unreadable() => Ok(None),
        found => found,
    }
}

fn read_record(fingerprint: &Fingerprint, bases: &mut Bases) -> Result<Option<ModelRecord>> {
    let bytes = bases.read_metadata(fingerprint)?;
    bytes.map(|bytes| ModelRecord::decode(fingerprint, &bytes)).transpose()
}
