//! The previous version of a file in the parent snapshot, followed chunk by chunk beside the new version. Float chunks
//! of a file of unknown format become deltas to the same range of it.
//!
//! Recipes are read as the file goes on, so memory holds one recipe per level. An unreadable recipe ends the previous
//! version: later chunks have no base in it.

use std::collections::VecDeque;
use std::ops::Range;

use crate::error::Result;
use crate::repo::recipe::{ContentReference, decode_recipe};
use crate::similar::Bases;
use crate::types::Fingerprint;

/// Levels of a recipe tree, at most.
const LEVELS_MAX: usize = 16;

/// A cursor into a previous version.
pub struct PreviousVersion {
    /// References that are left of each open recipe.
    stack: Vec<std::vec::IntoIter<ContentReference>>,
    /// Chunks and holes read from the recipes that may still be asked for.
    ranges: VecDeque<VersionRange>,
    /// Offset that the recipes have been read to.
    end: u64,
}

/// A chunk or a hole of the previous version.
#[derive(Debug, Clone, Copy)]
struct VersionRange {
    offset: u64,
    len: u64,
    /// `None` for a hole.
    fingerprint: Option<Fingerprint>,
}

impl VersionRange {
    fn end(&self) -> u64 {
        self.offset + self.len
    }
}

/// A range of a chunk of the previous version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoveredRange {
    /// The chunk.
    pub fingerprint: Fingerprint,
    /// Offset of the range in the chunk.
    pub offset: u32,
    /// Bytes.
    pub len: u32,
}

impl PreviousVersion {
    /// Begins at the first byte of `content`.
    pub fn new(content: ContentReference) -> Self {
        PreviousVersion { stack: vec![vec![content].into_iter()], ranges: VecDeque::new(), end: 0 }
    }

    /// The chunks that cover bytes `range` of the previous version, up to its end; `None` if there are none, or if a
    /// part of them is a hole. Callers ask for ascending ranges.
    ///
    /// # Errors
    /// Errors of reading recipes that end the run.
    pub fn cover(&mut self, range: Range<u64>, bases: &mut Bases) -> Result<Option<Vec<CoveredRange>>> {
        while self.ranges.front().is_some_and(|known| known.end() <= range.start) {
            self.ranges.pop_front();
        }
        while self.end < range.end && self.pull(range.start, bases)? {}
        let mut covered = Vec::new();
        for known in &self.ranges {
            let (from, to) = (range.start.max(known.offset), range.end.min(known.end()));
            if from >= to {
                continue;
            }
            let Some(fingerprint) = known.fingerprint else { return Ok(None) };
            covered.push(CoveredRange { fingerprint, offset: (from - known.offset) as u32, len: (to - from) as u32 });
        }
        Ok((!covered.is_empty()).then_some(covered))
    }

    /// Reads one reference: a chunk, a hole or a recipe. Returns `false` at the end.
    fn pull(&mut self, wanted: u64, bases: &mut Bases) -> Result<bool> {
        let Some(top) = self.stack.last_mut() else { return Ok(false) };
        let Some(reference) = top.next() else {
            self.stack.pop();
            return Ok(true);
        };
        let len = reference.content_len();
        let end = self.end.saturating_add(len);
        match reference {
            ContentReference::Recipe { level, fingerprint, .. } if end > wanted => {
                let bytes = if self.stack.len() > LEVELS_MAX { None } else { bases.read_chunk(&fingerprint)? };
                let list = bytes.and_then(|bytes| decode_recipe(&fingerprint, level, len, &bytes).ok());
                match list {
                    Some(list) => self.stack.push(list.into_iter()),
                    None => self.stack.clear(),
                }
                return Ok(true);
            }
            ContentReference::Chunk { fingerprint, .. } if end > wanted => {
                self.ranges.push_back(VersionRange { offset: self.end, len, fingerprint: Some(fingerprint) });
            }
            ContentReference::Hole { .. } if end > wanted => {
                self.ranges.push_back(VersionRange { offset: self.end, len, fingerprint: None });
            }
            _ => {}
        }
        self.end = end;
        Ok(true)
    }
}
