//! The clues of what a run stores, in bounded memory: those that take more are in a temporary file.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::path::PathBuf;

use super::SessionContainer;
use super::clues::{ContainerClues, clues_of};
use crate::error::Result;
use crate::repo::container::SessionEntryNumber;
use crate::types::ContainerId;

/// Bytes of a clue in memory, if half of what a vector holds is used.
const CLUE_BYTES: u64 = 32;
/// Clues that are always held.
const COUNT_MIN: usize = 1 << 10;
/// Bytes of a clue in the file: the number of its entry and its hash.
const RECORD_BYTES: usize = 8 + 6;

/// See the module.
pub(super) struct SessionClues {
    /// Numbers of session entries, ascending, and hashes. Those in the file come before.
    clues: Vec<(u64, u64)>,
    count_max: usize,
    /// Only entries whose numbers end with so many zero bits have clues.
    zero_bits: u32,
    spill: Spill,
}

/// The file.
enum Spill {
    /// It is not needed yet. It will be in this directory.
    No(PathBuf),
    /// It has so many clues.
    Yes(BufWriter<File>, u64),
    /// There can be none.
    Failed,
}

impl SessionClues {
    /// No clues. They will take at most `bytes_max` bytes of memory, and beyond that a file in `directory`. If it
    /// cannot be written, of all entries half have no clues, then half of the others, and so on.
    pub(super) fn new(bytes_max: u64, directory: PathBuf) -> Self {
        let count_max = COUNT_MIN.max((bytes_max / CLUE_BYTES) as usize);
        SessionClues { clues: Vec::new(), count_max, zero_bits: 0, spill: Spill::No(directory) }
    }

    /// Adds an entry with its features. Entries come in ascending order.
    pub(super) fn insert(&mut self, entry: SessionEntryNumber, features: &[u64]) {
        if !self.has_clues(entry.0) {
            return;
        }
        self.clues.extend(clues_of(features).map(|hash| (entry.0, hash)));
        if self.clues.len() <= self.count_max {
            return;
        }
        if let Err(error) = self.write_out() {
            if !matches!(self.spill, Spill::Failed) {
                tracing::warn!("other machines read more to find near versions: {error}");
            }
            // Entries in the file have no clues then.
            self.spill = Spill::Failed;
        }
        while self.clues.len() > self.count_max && self.zero_bits < 32 {
            self.zero_bits += 1;
            let zero_bits = self.zero_bits;
            self.clues.retain(|(number, _)| number.trailing_zeros() >= zero_bits);
        }
    }

    fn has_clues(&self, number: u64) -> bool {
        number.trailing_zeros() >= self.zero_bits
    }

    /// Moves all clues into the file.
    fn write_out(&mut self) -> io::Result<()> {
        if let Spill::No(directory) = &self.spill {
            self.spill = Spill::Yes(BufWriter::new(tempfile::tempfile_in(directory)?), 0);
        }
        let Spill::Yes(file, count) = &mut self.spill else { return Err(io::ErrorKind::Unsupported.into()) };
        for (number, hash) in &self.clues {
            file.write_all(&number.to_le_bytes())?;
            file.write_all(hash.to_le_bytes().get(..6).unwrap_or_default())?;
            *count += 1;
        }
        self.clues.clear();
        Ok(())
    }

    /// Calls `each` with the clues of the `containers` of the run, which are by ascending first entry, and of the
    /// `others`, which have none: in parts of about `count_max` clues. It is not called if there are no clues at all.
    /// Returns the number of containers.
    ///
    /// # Errors
    /// Errors of `each`.
    pub(super) fn of_containers(
        self,
        containers: &[SessionContainer],
        others: &[ContainerId],
        count_max: usize,
        mut each: impl FnMut(Vec<ContainerClues>) -> Result<()>,
    ) -> Result<usize> {
        let has_all = self.zero_bits == 0;
        let mut clues = ClueReader::new(self);
        let (mut part, mut count, mut has_clues, mut total) = (Vec::new(), 0, false, 0);
        for SessionContainer { first, entries, container } in containers {
            let end = first.0 + u64::from(*entries);
            // Entries that no container got.
            while clues.next_below(first.0).is_some() {}
            let mut of_container = Vec::new();
            while let Some((number, hash)) = clues.next_below(end) {
                of_container.push(((number - first.0) as u32, hash));
            }
            count += of_container.len();
            has_clues |= !of_container.is_empty();
            if !of_container.is_empty() {
                part.push(ContainerClues { container: *container, entries: *entries, clues: of_container });
            } else if has_all && !clues.has_failed || *entries == 0 {
                part.push(ContainerClues::none(*container));
            }
            // Else it may have features: others read its index.
            if count >= count_max {
                total += part.len();
                each(std::mem::take(&mut part))?;
                count = 0;
            }
        }
        if !has_clues {
            return Ok(0);
        }
        part.extend(others.iter().map(|container| ContainerClues::none(*container)));
        total += part.len();
        if !part.is_empty() {
            each(part)?;
        }
        Ok(total)
    }
}

#[cfg(test)]
impl SessionClues {
    /// Empties the file, as a full disk may.
    pub(super) fn lose_file(&mut self) {
        let Spill::Yes(file, _) = &mut self.spill else { return };
        file.flush().and_then(|()| file.get_ref().set_len(20)).unwrap();
    }
}

/// Reads clues in their order.
struct ClueReader {
    file: Option<BufReader<File>>,
    in_file: u64,
    rest: std::vec::IntoIter<(u64, u64)>,
    next: Option<(u64, u64)>,
    /// Some clues are lost.
    has_failed: bool,
}

impl ClueReader {
    fn new(clues: SessionClues) -> Self {
        let (mut file, mut in_file, mut has_failed) = (None, 0, matches!(clues.spill, Spill::Failed));
        if let Spill::Yes(written, count) = clues.spill {
            let opened = written.into_inner().map_err(io::IntoInnerError::into_error);
            let rewound = opened.and_then(|mut file| file.rewind().map(|()| BufReader::new(file)));
            has_failed = rewound.is_err();
            (file, in_file) = (rewound.ok(), count);
        }
        let mut reader = ClueReader { file, in_file, rest: clues.clues.into_iter(), next: None, has_failed };
        reader.next = reader.read();
        reader
    }

    /// The next clue, if its entry has a number below `end`.
    fn next_below(&mut self, end: u64) -> Option<(u64, u64)> {
        let next = self.next.filter(|(number, _)| *number < end)?;
        self.next = self.read();
        Some(next)
    }

    fn read(&mut self) -> Option<(u64, u64)> {
        if let Some(file) = &mut self.file
            && self.in_file > 0
        {
            self.in_file -= 1;
            let mut record = [0; RECORD_BYTES];
            if let Err(error) = file.read_exact(&mut record) {
                tracing::warn!("other machines read more to find near versions: {error}");
                (self.file, self.has_failed) = (None, true);
                return self.rest.next();
            }
            let (number, hash) = record.split_at(8);
            let bits = |bytes: &[u8]| bytes.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte));
            return Some((bits(number), bits(hash)));
        }
        self.rest.next()
    }
}
