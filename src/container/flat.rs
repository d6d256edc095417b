//! Resolution: from an entry to the literal runs that make it, without rebuilding any base.
//!
//! A literal is a run in the chunk's frame, a copy takes the runs of a range of its base, a literal copy a range of its
//! base's literal bytes. The runs of whole entries are remembered, for callers come back to the same bases again and
//! again: each piece is followed one level deep only, whatever the depth of the chain. The depth bound of the writer
//! bounds the recursion where nothing is remembered; a reader stops at [`DEPTH_LIMIT`].
//!
//! A delta has no runs: its frames are its own and those of its bases, and it is put together from all of them.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::body::Piece;
use super::resolve::{Bodies, DEPTH_LIMIT, Run};
use crate::codec::{Scratch, delta};
use crate::error::{Error, Result};
use crate::kept::Kept;

/// Bases of a body remembered while its runs are put together.
const KNOWN_BASES_MAX: usize = 16;

/// Literal bytes of a session entry whose frame is still to be encoded: they are all of it.
pub const TO_THE_END: u32 = u32::MAX;

/// All runs of an entry, or what it is derived from.
#[derive(Debug, Default)]
pub struct Flat {
    /// Where each run ends in the entry's content.
    ends: Vec<u32>,
    runs: Vec<Run>,
    /// Each frame of the runs, and of the bases of a delta, once.
    frames: Vec<u64>,
    delta: Option<Delta>,
}

/// How an entry follows from others.
#[derive(Debug)]
struct Delta {
    raw_len: u32,
    /// Frame of the literal bytes, where they begin in it and how many there are ([`TO_THE_END`]: all).
    frame: u64,
    offset: u32,
    len: u32,
    /// What the literal bytes are a delta to.
    base: Vec<(Arc<Flat>, Range<u32>)>,
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
        let end = self.ends.last().copied().unwrap_or_default();
        self.delta.as_ref().map_or(end, |delta| delta.raw_len)
    }

    /// Whether the content is a delta to others: then there are no runs.
    pub fn is_delta(&self) -> bool {
        self.delta.is_some()
    }

    /// Whether the content is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memory it takes, bytes; bases of a delta not counted.
    pub fn memory_bytes(&self) -> usize {
        let runs = self.runs.capacity() * (size_of::<Run>() + size_of::<u32>());
        let bases = self.delta.as_ref().map_or(0, |delta| delta.base.capacity() * size_of::<(Arc<Flat>, Range<u32>)>());
        runs + bases + self.frames.capacity() * size_of::<u64>() + size_of::<Flat>()
    }

    /// Appends the content to `out`; `frames` are the decoded bytes of [`Self::frames`].
    ///
    /// # Errors
    /// [`Error::Corrupt`] where a frame is missing or too short, or a delta does not decode.
    pub fn assemble(&self, frames: &[impl AsRef<[u8]>], scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
        if let Some(delta) = &self.delta {
            return self.derive(delta, frames, scratch, out);
        }
        out.reserve(self.len() as usize);
        self.runs.iter().try_for_each(|run| self.append(run, frames, out))
    }

    /// Writes the content, which must not be a delta, into `space`, which is as long; `frames` as for
    /// [`Self::assemble`].
    ///
    /// # Errors
    /// [`Error::Corrupt`] where a frame is missing or too short, or the lengths differ.
    pub fn fill(&self, frames: &[impl AsRef<[u8]>], space: &mut [u8]) -> Result<()> {
        let space_bytes = space.len();
        let differ = || Error::corrupt("chunk body", 0, format!("{space_bytes} bytes"), self.len().to_string());
        let mut rest = space;
        for run in &self.runs {
            let (front, behind) = rest.split_at_mut_checked(run.len as usize).ok_or_else(differ)?;
            front.copy_from_slice(run.slice_of(self.frame(run.frame, frames))?);
            rest = behind;
        }
        if rest.is_empty() { Ok(()) } else { Err(differ()) }
    }

    /// The decoded bytes of frame `number`; nothing if it is not there.
    fn frame<'a>(&self, number: u64, frames: &'a [impl AsRef<[u8]>]) -> &'a [u8] {
        // Nearly always there is one.
        let at = match self.frames.as_slice() {
            [only] if *only == number => 0,
            all => all.partition_point(|frame| *frame < number),
        };
        frames.get(at).map(AsRef::as_ref).unwrap_or_default()
    }

    fn append(&self, run: &Run, frames: &[impl AsRef<[u8]>], out: &mut Vec<u8>) -> Result<()> {
        out.extend_from_slice(run.slice_of(self.frame(run.frame, frames))?);
        Ok(())
    }

    /// Appends the content of a delta.
    fn derive(
        &self,
        delta: &Delta,
        frames: &[impl AsRef<[u8]>],
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let frame = self.frame(delta.frame, frames);
        let end = if delta.len == TO_THE_END { frame.len() } else { delta.offset as usize + delta.len as usize };
        let payload = frame.get(delta.offset as usize..end).ok_or_else(|| {
            Error::corrupt("frame", delta.offset.into(), format!("{} bytes", delta.len), frame.len().to_string())
        })?;
        if payload.len() == delta.raw_len as usize {
            out.extend_from_slice(payload);
            return Ok(());
        }
        let mut base = Vec::new();
        for (flat, range) in &delta.base {
            let own: Vec<&[u8]> = flat.frames.iter().map(|number| self.frame(*number, frames)).collect();
            if flat.is_delta() {
                let mut whole = Vec::new();
                flat.assemble(&own, scratch, &mut whole)?;
                base.extend_from_slice(whole.get(range.start as usize..range.end as usize).unwrap_or_default());
            } else {
                flat.within(range.clone()).try_for_each(|run| flat.append(&run, &own, &mut base))?;
            }
        }
        delta::decode_body(payload, &base, delta.raw_len as usize, scratch, out)
    }

    /// The same without spare memory.
    fn at_its_size(&mut self) -> Flat {
        let delta = self.delta.take();
        Flat {
            ends: self.ends.as_slice().into(),
            runs: self.runs.as_slice().into(),
            frames: self.frames.as_slice().into(),
            delta,
        }
    }

    fn clear(&mut self) {
        self.ends.clear();
        self.runs.clear();
        self.frames.clear();
        self.delta = None;
    }

    /// Adds frames, each once.
    fn name_frames(&mut self, frames: impl IntoIterator<Item = u64>) {
        for frame in frames {
            if let Err(at) = self.frames.binary_search(&frame) {
                self.frames.insert(at, frame);
            }
        }
    }

    fn push(&mut self, run: Run) {
        let end = self.len() + run.len;
        let before_last = self.runs.len().checked_sub(2).and_then(|at| self.runs.get(at)).map(|run| run.frame);
        match (self.runs.last_mut(), self.ends.last_mut()) {
            (Some(last), Some(last_end)) if last.is_continued_by(&run) => {
                last.len += run.len;
                *last_end = end;
            }
            (last, _) => {
                // Most runs lie in the frame of the one before, or two frames take turns.
                if last.is_none_or(|last| last.frame != run.frame) && before_last != Some(run.frame) {
                    self.name_frames([run.frame]);
                }
                self.ends.push(end);
                self.runs.push(run);
            }
        }
    }

    /// Adds a range of a base to what the content is a delta to.
    fn derive_from(&mut self, base: Arc<Flat>, range: Range<u32>) -> Result<()> {
        check_within(&range, base.len())?;
        self.name_frames(base.frames.iter().copied());
        let Some(delta) = &mut self.delta else {
            return Err(Error::corrupt("chunk body", 0, "pieces of a delta alone", "a mixture"));
        };
        delta.base.push((base, range));
        Ok(())
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
    /// Room in which flats are put together before they are kept at their size.
    rooms: Vec<Flat>,
}

impl Flats {
    /// Within about `bytes_max` bytes of memory.
    pub fn new(bytes_max: usize) -> Self {
        Flats { kept: Kept::new(bytes_max), open: HashMap::new(), rooms: Vec::new() }
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
        check(&range, &flat)?;
        out.extend(flat.within(range));
        Ok(())
    }

    fn flat_at(&mut self, bodies: &mut dyn Bodies, entry: u64, depth: u8) -> Result<Arc<Flat>> {
        if let Some(found) = self.kept.get(&entry).or_else(|| self.open.get(&entry).cloned()) {
            return Ok(found);
        }
        let mut room = self.rooms.pop().unwrap_or_default();
        let flattened = self.flatten(bodies, entry, depth, &mut room);
        let flat = flattened.map(|()| Arc::new(room.at_its_size()));
        room.clear();
        self.rooms.push(room);
        let flat = flat?;
        if flat.frames.iter().all(|frame| bodies.is_final(*frame)) {
            self.kept.put(entry, flat.clone(), flat.memory_bytes());
        } else {
            self.open.insert(entry, flat.clone());
        }
        Ok(flat)
    }

    /// Puts the runs of an entry into `flat`, which is empty.
    fn flatten(&mut self, bodies: &mut dyn Bodies, entry: u64, depth: u8, flat: &mut Flat) -> Result<()> {
        let view = bodies.body(entry)?;
        let pieces = view.pieces.as_slice();
        if pieces.is_empty() {
            flat.push(view.literal_run(0..view.raw_len)?);
        }
        let deeper = depth.checked_sub(1);
        let Some(deeper) = deeper.or(pieces.is_empty().then_some(0)) else {
            return Err(Error::corrupt("chunk body", 0, format!("at most {DEPTH_LIMIT} nested copies"), "more"));
        };
        if matches!(pieces.first(), Some(Piece::Delta { .. })) {
            let (frame, offset, len) = (view.frame, view.literal_offset, view.literal_len);
            flat.delta = Some(Delta { raw_len: view.raw_len, frame, offset, len, base: Vec::new() });
            flat.name_frames([frame]);
        }
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
                    check(&range, found)?;
                    found.within(range).for_each(|run| flat.push(run));
                }
                Piece::Delta { base, offset, len } => {
                    let base = bodies.base(&view, base)?;
                    let found = self.flat_at(bodies, base, deeper)?;
                    flat.derive_from(found, offset..offset.saturating_add(len))?;
                }
                Piece::LiteralCopy { base, offset, len } => {
                    let base = bodies.base(&view, base)?;
                    flat.push(bodies.body(base)?.literal_run(offset..offset.saturating_add(len))?);
                }
            }
        }
        Ok(())
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

/// Whether runs for this range can be had.
fn check(range: &Range<u32>, flat: &Flat) -> Result<()> {
    if flat.is_delta() {
        return Err(Error::corrupt("chunk body", u64::from(range.start), "a base that is not a delta", "a delta"));
    }
    check_within(range, flat.len())
}

fn check_within(range: &Range<u32>, len: u32) -> Result<()> {
    if range.start > range.end || range.end > len {
        let want = format!("a range within {len} bytes");
        return Err(Error::corrupt("chunk body", u64::from(range.start), want, format!("{range:?}")));
    }
    Ok(())
}

#[cfg(test)]
#[path = "flat_tests.rs"]
mod tests;
