//! Resolution: from an entry to the literal runs that make it, without rebuilding any base.
//!
//! A literal is a run in the chunk's frame, a copy takes the runs of a range of its base, a literal copy a range of its
//! base's literal bytes. The runs of whole entries are remembered, for callers come back to the same bases again and
//! again: each piece is followed one level deep only, whatever the depth of the chain. The depth bound of the writer
//! bounds the recursion where nothing is remembered; a reader stops at [`DEPTH_LIMIT`].

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::body::Piece;
use super::resolve::{Bodies, DEPTH_LIMIT, Run};
use crate::error::{Error, Result};
use crate::kept::Kept;

/// Bases of a body remembered while its runs are put together.
const KNOWN_BASES_MAX: usize = 16;

/// All runs of an entry.
#[derive(Debug, Default)]
pub struct Flat {
    /// Where each run ends in the entry's content.
    ends: Vec<u32>,
    runs: Vec<Run>,
    /// Each frame of the runs once.
    frames: Vec<u64>,
}

impl Flat {
    /// In order.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The frames that the runs lie in, each once, ascending.
    pub fn frames(&self) -> &[u64] {
        &self.frames
    }

    /// Bytes of the content.
    pub fn len(&self) -> u32 {
        self.ends.last().copied().unwrap_or_default()
    }

    /// Whether the content is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memory it takes, bytes.
    pub fn memory_bytes(&self) -> usize {
        let runs = self.runs.capacity() * (size_of::<Run>() + size_of::<u32>());
        runs + self.frames.capacity() * size_of::<u64>() + size_of::<Flat>()
    }

    /// Appends the content to `out`; `frames` are the decoded bytes of [`Self::frames`].
    ///
    /// # Errors
    /// [`Error::Corrupt`] where a frame is missing or too short.
    pub fn assemble(&self, frames: &[impl AsRef<[u8]>], out: &mut Vec<u8>) -> Result<()> {
        out.reserve(self.len() as usize);
        let mut at = 0;
        for run in &self.runs {
            if self.frames.get(at) != Some(&run.frame) {
                at = self.frames.partition_point(|frame| *frame < run.frame);
            }
            let frame = frames.get(at).map(AsRef::as_ref).unwrap_or_default();
            out.extend_from_slice(run.slice_of(frame)?);
        }
        Ok(())
    }

    fn push(&mut self, run: Run) {
        let end = self.len() + run.len;
        match (self.runs.last_mut(), self.ends.last_mut()) {
            (Some(last), Some(last_end)) if last.is_continued_by(&run) => {
                last.len += run.len;
                *last_end = end;
            }
            (last, _) => {
                // Most runs lie in the frame of the one before.
                if last.is_none_or(|last| last.frame != run.frame)
                    && let Err(at) = self.frames.binary_search(&run.frame)
                {
                    self.frames.insert(at, run.frame);
                }
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
        let mut flat = Flat { ends: Vec::with_capacity(room), runs: Vec::with_capacity(room), frames: Vec::new() };
        if pieces.is_empty() {
            flat.push(view.literal_run(0..view.raw_len)?);
        }
        let deeper = depth.checked_sub(1);
        let Some(deeper) = deeper.or(pieces.is_empty().then_some(0)) else {
            return Err(Error::corrupt("chunk body", 0, format!("at most {DEPTH_LIMIT} nested copies"), "more"));
        };
        let mut known = KnownBases::default();
        let mut literal = 0;
        for piece in pieces {
            match *piece {
                Piece::Literal { len } => {
                    flat.push(view.literal_run(literal..literal + len)?);
                    literal += len;
                }
                Piece::Copy { base, offset, len } => {
                    let found = known.get(base, || {
                        let base = bodies.base(&view, base)?;
                        self.flat_at(bodies, base, deeper)
                    })?;
                    let range = offset..offset.saturating_add(len);
                    check(&range, found.len())?;
                    found.within(range).for_each(|run| flat.push(run));
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

/// Bases of one body that were looked up last: its pieces take turns with a few of them.
#[derive(Default)]
struct KnownBases(Vec<(u32, Arc<Flat>)>);

impl KnownBases {
    fn get(&mut self, base: u32, find: impl FnOnce() -> Result<Arc<Flat>>) -> Result<&Flat> {
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
        Ok(&self.0[at].1)
    }
}

fn check(range: &Range<u32>, len: u32) -> Result<()> {
    if range.start > range.end || range.end > len {
        let want = format!("a range within {len} bytes");
        return Err(Error::corrupt("chunk body", u64::from(range.start), want, format!("{range:?}")));
    }
    Ok(())
}
