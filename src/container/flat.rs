//! Entries resolved once and remembered: the literal runs of whole entries, for callers that come back to the same
//! bases again and again.
//!
//! The runs of an entry are put together from the remembered runs of its bases, so each piece is followed one level
//! deep only, whatever the depth of the chain. [`resolve`](super::resolve()) gives the same runs without remembering.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::body::Piece;
use super::resolve::{Bodies, DEPTH_LIMIT, Run};
use crate::error::{Error, Result};
use crate::kept::Kept;

/// All runs of an entry.
#[derive(Debug, Default)]
pub struct Flat {
    /// Where each run ends in the entry's content.
    ends: Vec<u32>,
    runs: Vec<Run>,
}

impl Flat {
    /// In order.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    fn len(&self) -> u32 {
        self.ends.last().copied().unwrap_or_default()
    }

    fn memory_bytes(&self) -> usize {
        self.runs.capacity() * (size_of::<Run>() + size_of::<u32>()) + size_of::<Flat>()
    }

    fn push(&mut self, run: Run) {
        let end = self.len() + run.len;
        match (self.runs.last_mut(), self.ends.last_mut()) {
            (Some(last), Some(last_end)) if last.is_continued_by(&run) => {
                last.len += run.len;
                *last_end = end;
            }
            _ => {
                self.ends.push(end);
                self.runs.push(run);
            }
        }
    }

    /// The runs that make bytes `range`.
    fn within(&self, range: Range<u32>) -> impl Iterator<Item = Run> {
        let first = self.ends.partition_point(|end| *end <= range.start);
        let ends = self.ends.get(first..).unwrap_or_default().iter();
        let runs = self.runs.get(first..).unwrap_or_default().iter();
        ends.zip(runs).map_while(move |(end, run)| {
            let start = end - run.len;
            let (from, to) = (range.start.max(start), range.end.min(*end));
            let skip = from - start;
            let (offset, literal) = (run.offset + skip, run.literal + skip);
            (from < to).then(|| Run { offset, literal, len: to - from, ..*run })
        })
    }
}

/// Remembers the runs of entries, the latest used.
pub struct Flats {
    kept: Kept<u64, Arc<Flat>>,
    /// Those with runs in frames that will get another number.
    open: HashMap<u64, Arc<Flat>>,
}

impl Flats {
    /// Within about `bytes_max` bytes of memory.
    pub fn new(bytes_max: usize) -> Self {
        Flats { kept: Kept::new(bytes_max), open: HashMap::new() }
    }

    /// Frames have got their final numbers: what names others is forgotten.
    pub fn settle(&mut self) {
        self.open.clear();
    }

    /// All runs of entry `entry`.
    ///
    /// # Errors
    /// Those of `bodies`, and [`Error::Corrupt`] for a body that leaves its bases or is nested too deeply.
    pub fn flat(&mut self, bodies: &mut dyn Bodies, entry: u64) -> Result<Arc<Flat>> {
        self.flat_at(bodies, entry, DEPTH_LIMIT)
    }

    /// Appends the runs that make bytes `range` of the content of `entry`.
    ///
    /// # Errors
    /// As for [`Self::flat`].
    pub fn resolve(
        &mut self,
        bodies: &mut dyn Bodies,
        entry: u64,
        range: Range<u32>,
        out: &mut Vec<Run>,
    ) -> Result<()> {
        let flat = self.flat(bodies, entry)?;
        check(&range, flat.len())?;
        out.extend(flat.within(range));
        Ok(())
    }

    fn flat_at(&mut self, bodies: &mut dyn Bodies, entry: u64, depth: u8) -> Result<Arc<Flat>> {
        if let Some(found) = self.kept.get(&entry).or_else(|| self.open.get(&entry).cloned()) {
            return Ok(found);
        }
        let view = bodies.body(entry)?;
        let pieces = view.pieces.as_slice();
        let room = 2 * pieces.len() + 1;
        let mut flat = Flat { ends: Vec::with_capacity(room), runs: Vec::with_capacity(room) };
        if pieces.is_empty() {
            flat.push(view.literal_run(0..view.raw_len)?);
        }
        let deeper = depth.checked_sub(1);
        let Some(deeper) = deeper.or(pieces.is_empty().then_some(0)) else {
            return Err(Error::corrupt("chunk body", 0, format!("at most {DEPTH_LIMIT} nested copies"), "more"));
        };
        // Copies from one base often follow each other.
        let mut last: Option<(u64, Arc<Flat>)> = None;
        let mut literal = 0;
        for piece in pieces {
            match *piece {
                Piece::Literal { len } => {
                    flat.push(view.literal_run(literal..literal + len)?);
                    literal += len;
                }
                Piece::Copy { base, offset, len } => {
                    let base = bodies.base(&view, base)?;
                    let found = match last.take().filter(|last| last.0 == base) {
                        Some(found) => found,
                        None => (base, self.flat_at(bodies, base, deeper)?),
                    };
                    let range = offset..offset.saturating_add(len);
                    check(&range, found.1.len())?;
                    found.1.within(range).for_each(|run| flat.push(run));
                    last = Some(found);
                }
                Piece::LiteralCopy { base, offset, len } => {
                    let base = bodies.base(&view, base)?;
                    flat.push(bodies.body(base)?.literal_run(offset..offset.saturating_add(len))?);
                }
            }
        }
        let flat = Arc::new(flat);
        if flat.runs.iter().all(|run| bodies.is_final(run.frame)) {
            self.kept.put(entry, flat.clone(), flat.memory_bytes());
        } else {
            self.open.insert(entry, flat.clone());
        }
        Ok(flat)
    }
}

fn check(range: &Range<u32>, len: u32) -> Result<()> {
    if range.start > range.end || range.end > len {
        let want = format!("a range within {len} bytes");
        return Err(Error::corrupt("chunk body", u64::from(range.start), want, format!("{range:?}")));
    }
    Ok(())
}
