//! Resolution: from an entry to the extents that make its content. No base is rebuilt.
//!
//! 1. An add becomes an extent in the entry's own frame.
//! 2. A copy takes the extents of a range of its base, a literal copy a range of the base's literal bytes.
//! 3. The extent maps of whole entries are cached, because callers return to the same bases. With a warm cache each
//!    operation is followed one level deep, whatever the depth of the chain.
//!
//! Without the cache the writer's depth bound limits the recursion. A reader stops at [`DEPTH_LIMIT`].

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::extent_map::{DeltaSource, EXTENTS_LIMIT, ExtentMap, LiteralRange, LiteralSource, PackedExtent};
use super::numbers::{EntryNumber, FrameNumber};
use super::operation_source::{DEPTH_LIMIT, OperationSource, OperationView};
use super::operations::Operation;
use crate::error::{Error, Result};
use crate::memory::ByteLru;

/// Steps of one resolution, at most. A step is an operation, an extent or a frame. Without this limit, entries whose
/// extent maps exceed the cache could take time that doubles with every base below them.
const STEPS_LIMIT: u64 = 1 << 26;
/// Steps of one entry besides its operations and extents.
const ENTRY_STEPS: usize = 256;
/// Frames of a delta and its bases, at most.
const DELTA_FRAMES_LIMIT: usize = 1 << 15;
/// Frames of an entry that are gathered before those that repeat are dropped.
const FRAMES_LIMIT: usize = 2 * DELTA_FRAMES_LIMIT;
/// Bases remembered while the extent map of an entry is built.
const RECENT_BASES_MAX: usize = 16;

/// Extent maps by entry.
type ExtentMaps = ByteLru<EntryNumber, Arc<ExtentMap>>;

/// The extent maps of recently used entries.
pub struct ExtentCache {
    cached: Arc<Mutex<ExtentMaps>>,
    /// Extent maps with extents in open frames.
    open: HashMap<EntryNumber, Arc<ExtentMap>>,
    /// Spare memory for building extent maps.
    builders: Vec<ExtentMapBuilder>,
    /// Steps left to the current resolution.
    steps: u64,
}

impl ExtentCache {
    /// An empty cache of about `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Self {
        let cached = Arc::new(Mutex::new(ByteLru::new(bytes_max)));
        ExtentCache { cached, open: HashMap::new(), builders: Vec::new(), steps: 0 }
    }

    /// A cache for another thread that shares the extent maps of this one, and their limit.
    #[must_use]
    pub fn sharing(&self) -> Self {
        ExtentCache { cached: self.cached.clone(), open: HashMap::new(), builders: Vec::new(), steps: 0 }
    }

    fn cached(&self) -> MutexGuard<'_, ExtentMaps> {
        self.cached.lock()
    }

    /// Drops all extent maps with extents in open frames: an open frame got its final number.
    pub fn drop_open_frames(&mut self) {
        self.open.clear();
    }

    /// The extent map of an entry.
    ///
    /// # Errors
    /// Errors of `source`, and [`Error::Corrupt`] for operations that leave their bases, are nested too deeply or take
    /// too many steps.
    pub fn extent_map(&mut self, source: &mut dyn OperationSource, entry: EntryNumber) -> Result<Arc<ExtentMap>> {
        self.steps = STEPS_LIMIT;
        self.extent_map_at(source, entry, DEPTH_LIMIT)
    }

    fn extent_map_at(
        &mut self,
        source: &mut dyn OperationSource,
        entry: EntryNumber,
        depth: u8,
    ) -> Result<Arc<ExtentMap>> {
        let cached = self.cached().get(&entry);
        if let Some(found) = cached.or_else(|| self.open.get(&entry).cloned()) {
            return Ok(found);
        }
        let mut builder = self.builders.pop().unwrap_or_default();
        let resolved = self.resolve(source, entry, depth, &mut builder);
        let extent_map = resolved.and_then(|()| builder.extent_map().map(Arc::new));
        builder.clear();
        self.builders.push(builder);
        let extent_map = extent_map?;
        if extent_map.frames.iter().all(|frame| frame.is_final()) {
            self.cached().put(entry, extent_map.clone(), extent_map.memory_bytes());
        } else {
            self.open.insert(entry, extent_map.clone());
        }
        Ok(extent_map)
    }

    fn spend(&mut self, steps: usize) -> Result<()> {
        let left = self.steps.checked_sub(steps as u64);
        self.steps = left.ok_or_else(|| too_much(format!("at most {STEPS_LIMIT} steps")))?;
        Ok(())
    }

    /// Puts the extents of an entry into `builder`, which is empty.
    fn resolve(
        &mut self,
        source: &mut dyn OperationSource,
        entry: EntryNumber,
        depth: u8,
        builder: &mut ExtentMapBuilder,
    ) -> Result<()> {
        let view = source.view(entry)?;
        let operations = view.operations.as_slice();
        self.spend(ENTRY_STEPS + operations.len())?;
        operations.iter().try_for_each(Operation::check_known)?;
        if operations.is_empty() {
            return builder.push_literal(&view, 0..view.raw_len);
        }
        let Some(deeper) = depth.checked_sub(1) else {
            return Err(Error::corrupt("chunk operations", 0, format!("at most {DEPTH_LIMIT} nested copies"), "more"));
        };
        if matches!(operations.first(), Some(Operation::Delta { .. })) {
            builder.begin_delta(&view);
        }
        let (mut copied, mut copied_literals) = (RecentBases::default(), RecentBases::default());
        let mut literal = 0;
        for operation in operations {
            match *operation {
                Operation::Add { len } => {
                    builder.push_literal(&view, literal..literal.saturating_add(len))?;
                    literal += len;
                }
                Operation::Copy { base, offset, len } => {
                    let found = copied.get(base, || {
                        let base = source.base(&view, base, operation.base_use())?;
                        let extent_map = self.extent_map_at(source, base, deeper)?;
                        self.spend(extent_map.sources.len())?;
                        Ok(CopiedBase::new(extent_map))
                    })?;
                    let extents = builder.push_copy(found, offset..offset.saturating_add(len))?;
                    self.spend(extents)?;
                }
                Operation::Delta { base, offset, len } => {
                    let base = source.base(&view, base, operation.base_use())?;
                    let found = self.extent_map_at(source, base, deeper)?;
                    self.spend(found.frames.len())?;
                    builder.push_delta_base(found, offset..offset.saturating_add(len))?;
                }
                Operation::LiteralCopy { base, offset, len } => {
                    let found = copied_literals.get(base, || {
                        let base = source.base(&view, base, operation.base_use())?;
                        source.view(base)
                    })?;
                    builder.push_literal(found, offset..offset.saturating_add(len))?;
                }
                Operation::Unknown { .. } => operation.check_known()?,
            }
            builder.check_limits()?;
        }
        Ok(())
    }
}

fn too_much(expected: String) -> Error {
    Error::corrupt("chunk operations", 0, expected, "more")
}

/// An extent map that is being built.
#[derive(Default)]
struct ExtentMapBuilder {
    extents: Vec<PackedExtent>,
    sources: Vec<LiteralSource>,
    /// Position in `sources` by entry.
    by_entry: HashMap<EntryNumber, u32>,
    /// End of the last extent in the literal bytes of its source.
    literal_end: u32,
    /// Frames of a delta and of its bases.
    frames: Vec<FrameNumber>,
    delta: Option<DeltaSource>,
}

impl ExtentMapBuilder {
    /// The finished extent map, without spare memory.
    fn extent_map(&mut self) -> Result<ExtentMap> {
        self.frames.extend(self.sources.iter().map(|source| source.frame));
        self.frames.sort_unstable();
        self.frames.dedup();
        if self.delta.is_some() && self.frames.len() > DELTA_FRAMES_LIMIT {
            return Err(too_much(format!("a delta of at most {DELTA_FRAMES_LIMIT} frames")));
        }
        for source in &mut self.sources {
            source.frame_at = self.frames.partition_point(|frame| *frame < source.frame) as u32;
        }
        Ok(ExtentMap {
            extents: self.extents.as_slice().into(),
            sources: self.sources.as_slice().into(),
            frames: self.frames.as_slice().into(),
            delta: self.delta.take(),
        })
    }

    fn clear(&mut self) {
        self.extents.clear();
        self.sources.clear();
        self.by_entry.clear();
        self.frames.clear();
        self.delta = None;
    }

    /// The position of a source. A new one is added.
    fn source(&mut self, source: LiteralSource) -> u32 {
        if let Some(last) = self.extents.last().map(|extent| extent.source)
            && self.sources[last as usize].entry == source.entry
        {
            return last;
        }
        *self.by_entry.entry(source.entry).or_insert_with(|| {
            self.sources.push(source);
            self.sources.len() as u32 - 1
        })
    }

    fn push(&mut self, LiteralRange { source, literal, len }: LiteralRange) {
        let end = self.extents.last().map_or(0, |extent| extent.end) + len;
        match self.extents.last_mut() {
            Some(last) if last.source == source && self.literal_end == literal => last.end = end,
            _ => self.extents.push(PackedExtent { end, literal, source }),
        }
        self.literal_end = literal + len;
    }

    /// Adds a range of an entry's own literal bytes.
    fn push_literal(&mut self, view: &OperationView, range: Range<u32>) -> Result<()> {
        let extent = view.literal_extent(range)?;
        let offset = extent.offset - extent.literal;
        let source = self.source(LiteralSource { entry: extent.owner, frame: extent.frame, frame_at: 0, offset });
        self.push(LiteralRange { source, literal: extent.literal, len: extent.len });
        Ok(())
    }

    /// Checks the number of extents and frames. The frames of a delta may repeat.
    fn check_limits(&mut self) -> Result<()> {
        if self.extents.len() > EXTENTS_LIMIT {
            return Err(too_much(format!("at most {EXTENTS_LIMIT} extents")));
        }
        if self.frames.len() > FRAMES_LIMIT {
            self.frames.sort_unstable();
            self.frames.dedup();
            // Half of the limit: the next frames must not make each operation sort them again.
            if self.frames.len() > DELTA_FRAMES_LIMIT {
                return Err(too_much(format!("a delta of at most {DELTA_FRAMES_LIMIT} frames")));
            }
        }
        Ok(())
    }

    /// Adds a range of a base and returns its number of extents.
    fn push_copy(&mut self, base: &mut CopiedBase, range: Range<u32>) -> Result<usize> {
        base.extent_map.check_copy(&range)?;
        let mut extents = 0;
        for literals in base.extent_map.literals(range) {
            extents += 1;
            let position = literals.source as usize;
            let number = &mut base.source_numbers[position];
            let source = *number.get_or_insert_with(|| self.source(base.extent_map.sources[position]));
            self.push(LiteralRange { source, ..literals });
        }
        Ok(extents)
    }

    fn begin_delta(&mut self, view: &OperationView) {
        let (frame, offset, len) = (view.frame, view.literal_offset, view.literal_len);
        let (entry, raw_len) = (view.entry, view.raw_len);
        self.delta = Some(DeltaSource { entry, raw_len, depth: 1, frame, offset, len, base: Vec::new() });
        self.frames.push(frame);
    }

    /// Adds a range of a base to the base of the delta.
    fn push_delta_base(&mut self, base: Arc<ExtentMap>, range: Range<u32>) -> Result<()> {
        base.check_within(&range)?;
        self.frames.extend_from_slice(&base.frames);
        let Some(delta) = &mut self.delta else {
            return Err(Error::corrupt("chunk operations", 0, "deltas only", "deltas among other operations"));
        };
        // The cache can hold longer chains than one resolution may follow.
        delta.depth = delta.depth.max(base.delta_depth() + 1);
        if delta.depth > DEPTH_LIMIT {
            return Err(too_much(format!("at most {DEPTH_LIMIT} nested deltas")));
        }
        delta.base.push((base, range));
        Ok(())
    }
}

/// A base that an entry copies from.
struct CopiedBase {
    extent_map: Arc<ExtentMap>,
    /// For each source of the base, its position among the sources of the entry, once it is known.
    source_numbers: Vec<Option<u32>>,
}

impl CopiedBase {
    fn new(extent_map: Arc<ExtentMap>) -> Self {
        CopiedBase { source_numbers: vec![None; extent_map.sources.len()], extent_map }
    }
}

/// The bases of an entry that were looked up last. The operations of an entry alternate between a few bases.
struct RecentBases<T>(Vec<(u32, T)>);

impl<T> Default for RecentBases<T> {
    fn default() -> Self {
        RecentBases(Vec::new())
    }
}

impl<T> RecentBases<T> {
    fn get(&mut self, base: u32, find: impl FnOnce() -> Result<T>) -> Result<&mut T> {
        let position = match self.0.iter().position(|recent| recent.0 == base) {
            Some(position) => position,
            None => {
                let found = find()?;
                if self.0.len() == RECENT_BASES_MAX {
                    self.0.remove(0);
                }
                self.0.push((base, found));
                self.0.len() - 1
            }
        };
        Ok(&mut self.0[position].1)
    }
}

#[cfg(test)]
#[path = "extent_tests.rs"]
mod tests;
