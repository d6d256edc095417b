//! The version of a file that the parent snapshot has, chunk by chunk beside the new one: float chunks of files whose
//! format nobody knows are deltas to the same range of it.
//!
//! Recipes are read as the file goes on, so no more of them is in memory than one for each level. What cannot be
//! read ends the version: then there is nothing to be a delta to.

use std::collections::VecDeque;
use std::ops::Range;

use crate::error::Result;
use crate::repo::recipe::{ContentReference, decode_recipe};
use crate::similar::Bases;
use crate::types::Fingerprint;

/// No recipe tree is deeper.
const LEVELS_MAX: usize = 16;

/// A cursor into an earlier version.
pub struct PreviousVersion {
    stack: Vec<std::vec::IntoIter<ContentReference>>,
    /// Chunks read from the recipes, with the offset of each.
    chunks: VecDeque<(u64, u64, Option<Fingerprint>)>,
    end: u64,
}

/// A range of a chunk of the earlier version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoveredRange {
    /// The chunk.
    pub fingerprint: Fingerprint,
    /// Where the range begins in it.
    pub offset: u32,
    /// Bytes.
    pub len: u32,
}

impl PreviousVersion {
    /// Begins at the first byte of `content`.
    pub fn new(content: ContentReference) -> Self {
        PreviousVersion { stack: vec![vec![content].into_iter()], chunks: VecDeque::new(), end: 0 }
    }

    /// The chunks that make bytes `range` of the earlier version, as far as it goes; `None` if holes are among them or
    /// they cannot be had. Ranges ascend.
    pub fn cover(&mut self, range: Range<u64>, bases: &mut Bases) -> Result<Option<Vec<CoveredRange>>> {
        while self.chunks.front().is_some_and(|(start, len, _)| start + len <= range.start) {
            self.chunks.pop_front();
        }
        while self.end < range.end && self.pull(range.start, bases)? {}
        let mut covered = Vec::new();
        for (start, len, fingerprint) in &self.chunks {
            let (from, to) = (range.start.max(*start), range.end.min(start + len));
            if from >= to {
                continue;
            }
            let Some(fingerprint) = *fingerprint else { return Ok(None) };
            covered.push(CoveredRange { fingerprint, offset: (from - start) as u32, len: (to - from) as u32 });
        }
        Ok((!covered.is_empty()).then_some(covered))
    }

    /// Takes one step: a chunk, a hole or a recipe; `false` at the end.
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
                self.chunks.push_back((self.end, len, Some(fingerprint)));
            }
            ContentReference::Hole { .. } if end > wanted => self.chunks.push_back((self.end, len, None)),
            _ => {}
        }
        self.end = end;
        Ok(true)
    }
}
