//! The clues of what a run stores, in bounded memory: those that take more are in a temporary file.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use super::SessionContainer;
use super::clues::{ContainerClues, HASH_BYTES, clues_of};
use crate::crypto::{Cipher, CipherSuite, SecretKey, TAG_BYTES};
use crate::error::{Error, Result};
use crate::repo::container::SessionEntryNumber;
use crate::types::ContainerId;

/// What follows if clues are lost.
const READ_MORE: &str = "other machines read more to find near versions";
/// Bytes of a clue in memory, if half of what a vector holds is used.
const CLUE_BYTES: u64 = 32;
/// Clues that are always held.
const COUNT_MIN: usize = 1 << 10;
/// Name of the file in errors.
const WHAT: &str = "the file of clues";
/// Bytes of a clue in the file: the number of its entry and its hash.
const RECORD_BYTES: usize = 8 + HASH_BYTES;

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
    /// It is there.
    Yes(SpillFile),
    /// There can be none.
    Failed,
}

/// Blocks of clues, sealed with a key that only this process has.
struct SpillFile {
    file: File,
    cipher: Cipher,
    /// Clues of each block.
    blocks: Vec<usize>,
}

impl SpillFile {
    fn new(directory: &Path) -> Result<Self> {
        let file = tempfile::tempfile_in(directory).map_err(|error| Error::io("create", WHAT, error))?;
        let cipher = CipherSuite::of_this_machine().cipher(&SecretKey::random()?)?;
        Ok(SpillFile { file, cipher, blocks: Vec::new() })
    }

    fn push(&mut self, clues: &[(u64, u64)]) -> Result<()> {
        let mut block = Vec::with_capacity(clues.len() * RECORD_BYTES + TAG_BYTES);
        for (number, hash) in clues {
            block.extend_from_slice(&number.to_le_bytes());
            block.extend_from_slice(hash.to_le_bytes().get(..HASH_BYTES).unwrap_or_default());
        }
        let tag = self.cipher.seal(self.blocks.len() as u64, &[], &mut block)?;
        block.extend_from_slice(&tag);
        self.file.write_all(&block).map_err(|error| Error::io("write", WHAT, error))?;
        self.blocks.push(clues.len());
        Ok(())
    }

    /// The clues of the next block, `number`.
    fn read(&mut self, number: usize) -> Result<Vec<(u64, u64)>> {
        let count = self.blocks.get(number).copied().unwrap_or(0);
        let (mut sealed, mut block) = (vec![0; count * RECORD_BYTES + TAG_BYTES], vec![0; count * RECORD_BYTES]);
        self.file.read_exact(&mut sealed).map_err(|error| Error::io("read", WHAT, error))?;
        let opened = self.cipher.open(number as u64, &[], &sealed, &mut block);
        opened.ok_or_else(|| Error::corrupt(WHAT, 0, "what was written", "other bytes"))?;
        let bits = |bytes: &[u8]| bytes.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte));
        let clue = |record: &[u8; RECORD_BYTES]| (bits(&record[..8]), bits(&record[8..]));
        Ok(block.as_chunks::<RECORD_BYTES>().0.iter().map(clue).collect())
    }
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
        if !matches!(self.spill, Spill::Failed)
            && let Err(error) = self.write_out()
        {
            tracing::warn!("{READ_MORE}: {error}");
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
    fn write_out(&mut self) -> Result<()> {
        if let Spill::No(directory) = &self.spill {
            self.spill = Spill::Yes(SpillFile::new(directory)?);
        }
        let Spill::Yes(file) = &mut self.spill else { return Err(Error::internal("clues have no file")) };
        file.push(&self.clues)?;
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
    /// The file, if there is one.
    pub(super) fn file(&mut self) -> Option<&mut File> {
        if let Spill::Yes(file) = &mut self.spill { Some(&mut file.file) } else { None }
    }
}

/// Reads clues in their order.
struct ClueReader {
    file: Option<SpillFile>,
    /// Blocks of the file that were read.
    blocks: usize,
    part: std::vec::IntoIter<(u64, u64)>,
    rest: Vec<(u64, u64)>,
    next: Option<(u64, u64)>,
    /// Some clues are lost.
    has_failed: bool,
}

impl ClueReader {
    fn new(clues: SessionClues) -> Self {
        let has_failed = matches!(clues.spill, Spill::Failed);
        let file = if let Spill::Yes(file) = clues.spill { Some(file) } else { None };
        let mut reader =
            ClueReader { file, blocks: 0, part: Vec::new().into_iter(), rest: clues.clues, next: None, has_failed };
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
        loop {
            if let Some(next) = self.part.next() {
                return Some(next);
            }
            let part = match &mut self.file {
                Some(file) if self.blocks < file.blocks.len() => {
                    let rewound = if self.blocks == 0 { file.file.rewind() } else { Ok(()) };
                    let read = rewound.map_err(|error| Error::io("read", WHAT, error));
                    self.blocks += 1;
                    read.and_then(|()| file.read(self.blocks - 1))
                }
                _ if self.rest.is_empty() => return None,
                _ => Ok(std::mem::take(&mut self.rest)),
            };
            self.part = part
                .unwrap_or_else(|error| {
                    tracing::warn!("{READ_MORE}: {error}");
                    (self.file, self.has_failed) = (None, true);
                    Vec::new()
                })
                .into_iter();
        }
    }
}
