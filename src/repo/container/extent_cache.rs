//! Resolution: from an entry to the literal runs that make it, without rebuilding any base.
//!
//! A literal is a run in the chunk's frame, a copy takes the runs of a range of its base, a literal copy a range of its
//! base's literal bytes. The runs of whole entries are remembered, for callers come back to the same bases again and
//! again: each piece is followed one level deep only, whatever the depth of the chain. The depth bound of the writer
//! bounds the recursion where nothing is remembered; a reader stops at [`DEPTH_LIMIT`].

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::extent_map::{Delta, ExtentMap, Literals, PackedExtent, Source};
use super::numbers::{EntryNumber, FrameNumber};
use super::operations::Operation;
use super::resolve::{DEPTH_LIMIT, OperationSource, OperationView};
use crate::cache::ByteLru;
use crate::error::{Error, Result};

/// Bases of a body remembered while its runs are put together.
const KNOWN_BASES_MAX: usize = 16;

/// Remembers the runs of entries, the latest used.
pub struct ExtentCache {
    kept: ByteLru<EntryNumber, Arc<ExtentMap>>,
    /// Those with runs in frames that will get another number.
    open: HashMap<EntryNumber, Arc<ExtentMap>>,
    /// Room in which flats are put together before they are kept at their size.
    builders: Vec<ExtentMapBuilder>,
}

impl ExtentCache {
    /// Within about `bytes_max` bytes of memory.
    pub fn new(bytes_max: usize) -> Self {
        ExtentCache { kept: ByteLru::new(bytes_max), open: HashMap::new(), builders: Vec::new() }
    }

    /// Frames have got their final numbers: what names others is forgotten.
    pub fn seal(&mut self) {
        self.open.clear();
    }

    /// All runs of entry `entry`.
    ///
    /// # Errors
    /// Those of `bodies`, and [`Error::Corrupt`] for a body that leaves its bases or is nested too deeply.
    pub fn extent_map(&mut self, bodies: &mut dyn OperationSource, entry: EntryNumber) -> Result<Arc<ExtentMap>> {
        self.extent_map_at(bodies, entry, DEPTH_LIMIT)
    }

    fn extent_map_at(
        &mut self,
        bodies: &mut dyn OperationSource,
        entry: EntryNumber,
        depth: u8,
    ) -> Result<Arc<ExtentMap>> {
        if let Some(found) = self.kept.get(&entry).or_else(|| self.open.get(&entry).cloned()) {
            return Ok(found);
        }
        let mut builder = self.builders.pop().unwrap_or_default();
        let flattened = self.flatten(bodies, entry, depth, &mut builder);
        let extent_map = flattened.map(|()| Arc::new(builder.extent_map()));
        builder.clear();
        self.builders.push(builder);
        let extent_map = extent_map?;
        if extent_map.frames.iter().all(|frame| frame.is_final()) {
            self.kept.put(entry, extent_map.clone(), extent_map.memory_bytes());
        } else {
            self.open.insert(entry, extent_map.clone());
        }
        Ok(extent_map)
    }

    /// Puts the runs of an entry into `builder`, which is empty.
    fn flatten(
        &mut self,
        bodies: &mut dyn OperationSource,
        entry: EntryNumber,
        depth: u8,
        builder: &mut ExtentMapBuilder,
    ) -> Result<()> {
        let view = bodies.body(entry)?;
        let operations = view.operations.as_slice();
        if operations.is_empty() {
            builder.push_literal(&view, 0..view.raw_len)?;
        }
        let deeper = depth.checked_sub(1);
        let Some(deeper) = deeper.or(operations.is_empty().then_some(0)) else {
            return Err(Error::corrupt("chunk body", 0, format!("at most {DEPTH_LIMIT} nested copies"), "more"));
        };
        if matches!(operations.first(), Some(Operation::Delta { .. })) {
            builder.begin_delta(&view);
        }
        let (mut copied, mut literally) = (Known::default(), Known::default());
        let mut literal = 0;
        for operation in operations {
            match *operation {
                Operation::Add { len } => {
                    builder.push_literal(&view, literal..literal.saturating_add(len))?;
                    literal += len;
                }
                Operation::Copy { base, offset, len } => {
                    let found = copied.get(base, || {
                        let base = bodies.base(&view, base)?;
                        Ok(CopiedBase::new(self.extent_map_at(bodies, base, deeper)?))
                    })?;
                    builder.push_copy(found, offset..offset.saturating_add(len))?;
                }
                Operation::Delta { base, offset, len } => {
                    let base = bodies.base(&view, base)?;
                    let found = self.extent_map_at(bodies, base, deeper)?;
                    builder.derive_from(found, offset..offset.saturating_add(len))?;
                }
                Operation::LiteralCopy { base, offset, len } => {
                    let found = literally.get(base, || {
                        let base = bodies.base(&view, base)?;
                        bodies.body(base)
                    })?;
                    builder.push_literal(found, offset..offset.saturating_add(len))?;
                }
            }
        }
        Ok(())
    }
}

/// A flat being put together.
#[derive(Default)]
struct ExtentMapBuilder {
    extents: Vec<PackedExtent>,
    sources: Vec<Source>,
    /// Position in the sources, by entry.
    by_entry: HashMap<EntryNumber, u32>,
    /// Where the last run ends in the literal bytes of its source.
    literal_end: u32,
    /// Frames of the bases of a delta.
    frames: Vec<FrameNumber>,
    delta: Option<Delta>,
}

impl ExtentMapBuilder {
    /// What has been put together, without spare memory.
    fn extent_map(&mut self) -> ExtentMap {
        self.frames.extend(self.sources.iter().map(|source| source.frame));
        self.frames.sort_unstable();
        self.frames.dedup();
        for source in &mut self.sources {
            source.frame_at = self.frames.partition_point(|frame| *frame < source.frame) as u32;
        }
        ExtentMap {
            extents: self.extents.as_slice().into(),
            sources: self.sources.as_slice().into(),
            frames: self.frames.as_slice().into(),
            delta: self.delta.take(),
        }
    }

    fn clear(&mut self) {
        self.extents.clear();
        self.sources.clear();
        self.by_entry.clear();
        self.frames.clear();
        self.delta = None;
    }

    /// The position of a source, which is added if it is new.
    fn source(&mut self, source: Source) -> u32 {
        if let Some(last) = self.extents.last().map(|run| run.source)
            && self.sources.get(last as usize).is_some_and(|last| last.entry == source.entry)
        {
            return last;
        }
        *self.by_entry.entry(source.entry).or_insert_with(|| {
            self.sources.push(source);
            self.sources.len() as u32 - 1
        })
    }

    fn push(&mut self, Literals { source, literal, len }: Literals) {
        let end = self.extents.last().map_or(0, |run| run.end) + len;
        match self.extents.last_mut() {
            Some(last) if last.source == source && self.literal_end == literal => last.end = end,
            _ => self.extents.push(PackedExtent { end, literal, source }),
        }
        self.literal_end = literal + len;
    }

    /// Adds a range of an entry's own literal bytes.
    fn push_literal(&mut self, view: &OperationView, range: Range<u32>) -> Result<()> {
        let run = view.literal_run(range)?;
        let offset = run.offset - run.literal;
        let source = self.source(Source { entry: run.owner, frame: run.frame, frame_at: 0, offset });
        self.push(Literals { source, literal: run.literal, len: run.len });
        Ok(())
    }

    /// Adds a range of a base.
    fn push_copy(&mut self, base: &mut CopiedBase, range: Range<u32>) -> Result<()> {
        base.extent_map.check(&range)?;
        for literals in base.extent_map.literals(range) {
            let source = base.extent_map.source(literals.source)?;
            let Some(known) = base.sources.get_mut(literals.source as usize) else {
                return Err(Error::internal("an extent map has more sources than were counted"));
            };
            let source = *known.get_or_insert_with(|| self.source(*source));
            self.push(Literals { source, ..literals });
        }
        Ok(())
    }

    fn begin_delta(&mut self, view: &OperationView) {
        let (frame, offset, len) = (view.frame, view.literal_offset, view.literal_len);
        self.delta = Some(Delta { raw_len: view.raw_len, frame, offset, len, base: Vec::new() });
        self.frames.push(frame);
    }

    /// Adds a range of a base to what the content is a delta to.
    fn derive_from(&mut self, base: Arc<ExtentMap>, range: Range<u32>) -> Result<()> {
        base.check_within(&range)?;
        self.frames.extend_from_slice(&base.frames);
        let Some(delta) = &mut self.delta else {
            return Err(Error::corrupt("chunk body", 0, "pieces of a delta alone", "a mixture"));
        };
        delta.base.push((base, range));
        Ok(())
    }
}

/// A base that a body copies from.
struct CopiedBase {
    extent_map: Arc<ExtentMap>,
    /// Of each of its sources, the position among those of the body, once it is known.
    sources: Vec<Option<u32>>,
}

impl CopiedBase {
    fn new(extent_map: Arc<ExtentMap>) -> Self {
        CopiedBase { sources: vec![None; extent_map.sources.len()], extent_map }
    }
}

/// Bases of one body that were looked up last: its pieces take turns with a few of them.
struct Known<T>(Vec<(u32, T)>);

impl<T> Default for Known<T> {
    fn default() -> Self {
        Known(Vec::new())
    }
}

impl<T> Known<T> {
    fn get(&mut self, base: u32, find: impl FnOnce() -> Result<T>) -> Result<&mut T> {
        let at = match self.0.iter().position(|known| known.0 == base) {
            Some(at) => at,
            None => {
                let found = find()?;
                if self.0.len() == KNOWN_BASES_MAX {
                    self.0.remove(0);
                }
                self.0.push((base, found));
                self.0.len() - 1
            }
        };
        Ok(&mut self.0[at].1)
    }
}

#[cfg(test)]
#[path = "extent_tests.rs"]
mod tests;
