//! Slice plans: deltas of blocks to ranges of stored blocks that were found by their content, whatever their names,
//! shapes and formats.
//!
//! 1. A trial encodes samples of the block, as a delta to the cover and alone. Samples come from all of the block, so
//!    the two lengths tell what the whole block would take.
//! 2. If the cover nearly equals the block, the delta is short, and no trial is needed. It builds on the ranges
//!    themselves, as long as the chain is within the bound.
//! 3. Otherwise the chain decides, as for other deltas, whether the ranges or what is below them are the bases.

use std::collections::HashMap;

use super::base_ranges::{none_if_unreadable, planned, push_below};
use super::block_plan::{DeltaPlan, PlannedDelta};
use super::chain::ChainLink;
use super::delta_plan::DeltaPlanner;
use crate::codec::delta::{Cast, Derivation, encode_tagged};
use crate::codec::{ElementType, Scratch, floats};
use crate::config::ModelDelta;
use crate::error::Result;
use crate::repo::container::{DECODED_CACHE_BYTES_MAX, EntryNumber};
use crate::similar::{Bases, COVER_RANGES_MAX, Cover, Elements};

/// Windows of a sample, and their bytes.
const WINDOWS: usize = 8;
const WINDOW_BYTES: usize = 2 << 10;
/// Windows start at multiples of this, which keeps the phase of every element.
const GRID_BYTES: usize = 8;
/// What a range costs in the container index, bytes.
const RANGE_BYTES: u64 = 8;
/// The mask of what changed takes at most one in this many bytes of a block.
const MASK_SHARE: u64 = 1024;
/// Bytes that are compared together, as many as a group of the mask has.
const GROUP_BYTES: usize = 128;
/// A delta of at most one in this many bytes of the block nearly equals its base.
const NEARLY_SHARE: u64 = 16;
/// The chain of a delta that nearly equals its base may be longer than others by this.
const NEARLY_DEPTH: u8 = 4;

/// A block of weights as its element type, and what its elements look like. Those of an unknown type may be wide.
#[derive(Debug, Clone, Copy)]
pub struct WeightType {
    /// Type of the elements.
    pub element_type: ElementType,
    /// Width and phase of the elements.
    pub layout: Elements,
}

/// Estimates lengths from samples of a block.
#[derive(Default)]
pub struct SliceTrial {
    scratch: Scratch,
    sample: Vec<u8>,
    base: Vec<u8>,
    out: Vec<u8>,
}

impl SliceTrial {
    /// With `has_derivations`, what is encoded may be without its zeros, or codes.
    pub fn new(has_derivations: bool) -> Self {
        SliceTrial { scratch: Scratch::of_writer(has_derivations), ..SliceTrial::default() }
    }

    /// Bytes that `block` takes without a base, estimated.
    ///
    /// # Errors
    /// Errors of zstd.
    pub fn alone(&mut self, of: WeightType, block: &[u8]) -> Result<u64> {
        self.sample(of, block, &[], 1);
        self.out.clear();
        floats::encode(of.element_type, 0, &self.sample, &mut self.scratch, &mut self.out)?;
        Ok(scaled(self.out.len(), self.sample.len(), block.len()))
    }

    /// Bytes that `block` takes as a delta to `base`, estimated.
    ///
    /// # Errors
    /// Errors of zstd.
    pub fn delta(&mut self, of: WeightType, derivation: Derivation, block: &[u8], base: &[u8]) -> Result<u64> {
        let base_width = match derivation {
            Derivation::Cast(cast) => cast.from().width(),
            Derivation::Converted(types) => types.from().width(),
            _ => of.layout.width,
        };
        self.sample(of, block, base, base_width);
        self.out.clear();
        encode_tagged(derivation, 0, &self.sample, &self.base, &mut self.scratch, &mut self.out)?;
        Ok(scaled(self.out.len(), self.sample.len(), block.len()))
    }

    /// Takes the samples of block and base, of whole elements. The base's elements may be of another width.
    fn sample(&mut self, of: WeightType, block: &[u8], base: &[u8], base_width: usize) {
        self.sample.clear();
        self.base.clear();
        let bytes = block.get(of.layout.phase..).unwrap_or_default();
        let part = bytes.len() / WINDOWS / GRID_BYTES * GRID_BYTES;
        let width = of.layout.width;
        for number in 0..WINDOWS {
            let from = part * number;
            let to = (from + part.min(WINDOW_BYTES)).min(bytes.len());
            self.sample.extend_from_slice(bytes.get(from..to).unwrap_or_default());
            let base_bytes = base.get(of.layout.phase..).unwrap_or_default();
            let (from, to) = (from / width * base_width, to / width * base_width);
            self.base.extend_from_slice(base_bytes.get(from..to.min(base_bytes.len())).unwrap_or_default());
        }
    }
}

/// Bytes of the groups of `block` that differ from `base`.
fn changed_bytes(block: &[u8], base: &[u8]) -> u64 {
    let groups = block.chunks(GROUP_BYTES).enumerate();
    let changed = groups.filter(|(number, group)| {
        let start = number * GROUP_BYTES;
        base.get(start..start + group.len()) != Some(*group)
    });
    changed.map(|(_, group)| group.len() as u64).sum()
}

/// The length of a whole block of which a sample takes `encoded` bytes.
fn scaled(encoded: usize, sample: usize, block: usize) -> u64 {
    (encoded as f64 * block as f64 / sample.max(1) as f64) as u64
}

/// Whether all bases fit into the memory of a reader, and the frames into that of a writer. Then a reader decodes each
/// delta below this one once, though ranges may alternate between bases. Whether it assembles more than it accepts is
/// known when the delta is encoded.
fn is_cheap_to_read(plan: &DeltaPlan) -> bool {
    let longest = plan.base.iter().map(|(map, _)| map.len() as usize).max().unwrap_or(0);
    plan.frames.len().saturating_mul(longest) <= DECODED_CACHE_BYTES_MAX
}

impl DeltaPlanner {
    /// Plans `block` as a delta to `cover`; `None` if that is expected to take as many bytes as `bytes_max`.
    ///
    /// # Errors
    /// Errors that end the run; an unreadable base is no base.
    pub fn plan_slices(
        &mut self,
        of: WeightType,
        block: &[u8],
        cover: &Cover,
        bytes_max: u64,
        trial: &mut SliceTrial,
        bases: &mut Bases,
    ) -> Result<Option<PlannedDelta>> {
        let Some(derivation) = self.derivation_of_widths(of, cover.width) else { return Ok(None) };
        let len = block.len() as u64;
        let named = cover.ranges.len() as u64 * RANGE_BYTES + len / MASK_SHARE;
        let changed = changed_bytes(block, &cover.content);
        let expected = named
            + match cover.width == of.layout.width && changed <= len / NEARLY_SHARE {
                true => changed,
                false => trial.delta(of, derivation, block, &cover.content)?,
            };
        let is_nearly = expected <= len / NEARLY_SHARE;
        if expected >= bytes_max {
            return Ok(None);
        }
        let mut made = none_if_unreadable(self.slices(of, cover, derivation, is_nearly, expected, bases))?;
        made.iter_mut().for_each(|made| made.plan.phase = of.layout.phase);
        Ok(made.filter(|made| made.bytes < bytes_max && is_cheap_to_read(&made.plan)))
    }

    fn slices(
        &mut self,
        of: WeightType,
        cover: &Cover,
        derivation: Derivation,
        is_nearly: bool,
        expected: u64,
        bases: &mut Bases,
    ) -> Result<Option<PlannedDelta>> {
        let depth_max = self.depth_max().saturating_add(NEARLY_DEPTH);
        let (mut ranges, mut bytes) = (Vec::with_capacity(cover.ranges.len()), expected);
        let mut links: HashMap<EntryNumber, ChainLink> = HashMap::new();
        for range in &cover.ranges {
            if is_nearly && bases.entries.depth(range.entry)? < depth_max {
                ranges.push(*range);
                continue;
            }
            let link = match links.get(&range.entry) {
                Some(link) => *link,
                None => self.link(range.entry, expected, bases)?,
            };
            links.insert(range.entry, link);
            match link {
                ChainLink::Below(down, more) => {
                    bytes = bytes.max(more);
                    if !push_below(*range, down, COVER_RANGES_MAX, bases, &mut ranges)? {
                        return Ok(None);
                    }
                }
                ChainLink::Root => return Ok(None),
            }
        }
        // Should a base turn out to be damaged, elements that begin later have no codec of their own.
        let element_type = if of.layout.phase == 0 { of.element_type } else { ElementType::Unknown };
        planned((!ranges.is_empty()).then_some(ranges), derivation, element_type, bytes, bases)
    }

    /// Bytes of an element of the bases that blocks of this type derive from, those of its own first.
    pub fn base_widths(&self, of: WeightType) -> Vec<usize> {
        let own = of.layout.width;
        let casts = [2, 4].into_iter().filter(|width| *width != own);
        std::iter::once(own).chain(casts).filter(|width| self.derivation_of_widths(of, *width).is_some()).collect()
    }

    /// How a block derives from a base with elements of `width` bytes; `None` if it does not, or if the configuration
    /// has no such deltas.
    fn derivation_of_widths(&self, of: WeightType, width: usize) -> Option<Derivation> {
        if self.delta() != ModelDelta::Context {
            return None;
        }
        match of.element_type {
            ElementType::Byte | ElementType::Unknown => (width == of.layout.width).then_some(Derivation::Bytes),
            element_type if of.layout.width == width => Some(Derivation::Context(element_type)),
            ElementType::Bf16 if width == 4 => Some(Derivation::Cast(Cast::Fp32ToBf16)),
            ElementType::Fp32 if width == 2 => Some(Derivation::Cast(Cast::Bf16ToFp32)),
            _ => None,
        }
    }
}
