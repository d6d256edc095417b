//! How a block of a tensor is to be stored.

use std::ops::Range;
use std::sync::Arc;

use crate::codec::ElementType;
use crate::codec::delta::Derivation;
use crate::repo::container::{Base, EntryNumber, ExtentMap, FrameNumber, FrameReference, NamedChunk, Operation};
use crate::similar::BaseRange;

/// A delta that ModelEncode is to make.
#[derive(Debug)]
pub struct DeltaPlan {
    /// How the block derives from its base.
    pub derivation: Derivation,
    /// Bytes before the first whole element.
    pub phase: usize,
    /// Element type of the block: it is stored by that if a base turns out to be damaged.
    pub element_type: ElementType,
    /// Ranges of bases; the base of the delta is their concatenation.
    pub base: Vec<(Arc<ExtentMap>, Range<u32>)>,
    /// The chunks that these are ranges of, each once, with their names.
    pub chunks: Vec<NamedChunk>,
    /// Frames of all these ranges, by number, ascending.
    pub frames: Vec<(FrameNumber, FrameReference)>,
}

/// A block planned as a delta.
pub struct PlannedDelta {
    /// The plan for ModelEncode.
    pub plan: DeltaPlan,
    /// The operations of the entry.
    pub operations: Vec<Operation>,
    /// Names of the bases.
    pub bases: Vec<Base>,
    /// Entry numbers of the bases, in the same order.
    pub entries: Vec<EntryNumber>,
    /// Length of the chain of deltas and copies.
    pub depth: u8,
    /// Expected length of the payload.
    pub bytes: u64,
    /// The tensor of its base has another number of elements. So rows may have moved, and `bytes` says little.
    pub may_have_moved: bool,
}

/// How a block is to be stored.
pub enum BlockPlan {
    /// As this delta, unless slices are expected to take less.
    Delta(Box<PlannedDelta>),
    /// Alone, whatever it is like, so that later blocks begin a chain there. Only ranges that it equals are copied.
    Alone,
    /// In any way: it has no base.
    Unplanned,
}

impl BlockPlan {
    /// As this delta, if there is one.
    pub fn of(planned: Option<PlannedDelta>) -> Self {
        planned.map_or(BlockPlan::Unplanned, |planned| BlockPlan::Delta(Box::new(planned)))
    }
}

impl PlannedDelta {
    /// The ranges of bases.
    pub fn ranges(&self) -> impl Iterator<Item = BaseRange> {
        let entries = self.plan.base.iter().zip(&self.operations);
        entries.filter_map(|((_, range), operation)| {
            let Operation::Delta { base, .. } = operation else { return None };
            let entry = *self.entries.get(*base as usize)?;
            Some(BaseRange { entry, offset: range.start, len: range.end - range.start })
        })
    }
}
