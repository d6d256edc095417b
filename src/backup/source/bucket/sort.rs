//! Sorts more records than fit into memory: sorted runs in one temporary file, which are then merged.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::vec::IntoIter;

use crate::error::{Error, Result};

/// Bytes that are read of a run at once.
const READ_BYTES: usize = 64 << 10;
/// Bytes that a record takes in memory beside its own.
const OVERHEAD_BYTES: usize = 64;
/// Bytes of the lengths before a record.
const HEAD_BYTES: usize = 8;

/// A record: what it is sorted by, and the rest.
pub type SortRecord = (Vec<u8>, Vec<u8>);

/// Takes records in any order.
pub struct RecordSorter<'a> {
    /// Where the temporary file is put.
    directory: &'a Path,
    records: Vec<SortRecord>,
    bytes: usize,
    bytes_max: usize,
    file: Option<File>,
    /// Where runs end in the file.
    ends: Vec<u64>,
}

/// The records in order.
pub enum SortedRecords {
    /// All of them were in memory.
    Memory(IntoIter<SortRecord>),
    /// Runs, and the next record of each.
    Runs { file: File, runs: Vec<RecordRun>, next: BinaryHeap<Reverse<(SortRecord, usize)>> },
}

/// A run in the file.
pub struct RecordRun {
    /// Offsets of what is not read yet.
    start: u64,
    end: u64,
    buffer: Vec<u8>,
    taken: usize,
}

impl<'a> RecordSorter<'a> {
    /// Keeps at most `bytes_max` bytes in memory, the rest in a file in `directory`.
    pub fn new(directory: &'a Path, bytes_max: usize) -> Self {
        RecordSorter { directory, records: Vec::new(), bytes: 0, bytes_max, file: None, ends: Vec::new() }
    }

    /// Takes a record.
    ///
    /// # Errors
    /// [`Error::Io`] of the file.
    pub fn push(&mut self, record: SortRecord) -> Result<()> {
        self.bytes += record.0.len() + record.1.len() + OVERHEAD_BYTES;
        self.records.push(record);
        if self.bytes > self.bytes_max { self.spill().map_err(failed) } else { Ok(()) }
    }

    fn spill(&mut self) -> io::Result<()> {
        self.records.sort_unstable();
        let file = match self.file.take() {
            Some(file) => file,
            None => tempfile::tempfile_in(self.directory).or_else(|_| tempfile::tempfile())?,
        };
        let mut offset = self.ends.last().copied().unwrap_or(0);
        let mut bytes = Vec::with_capacity(READ_BYTES);
        let mut write = |bytes: &mut Vec<u8>| {
            file.write_all_at(bytes, offset)?;
            offset += bytes.len() as u64;
            bytes.clear();
            io::Result::Ok(())
        };
        for (key, value) in self.records.drain(..) {
            bytes.extend((key.len() as u32).to_le_bytes());
            bytes.extend((value.len() as u32).to_le_bytes());
            bytes.extend(key);
            bytes.extend(value);
            if bytes.len() >= READ_BYTES {
                write(&mut bytes)?;
            }
        }
        write(&mut bytes)?;
        self.ends.push(offset);
        self.bytes = 0;
        self.file = Some(file);
        Ok(())
    }

    /// All records in order.
    ///
    /// # Errors
    /// [`Error::Io`] of the file.
    pub fn finish(mut self) -> Result<SortedRecords> {
        if self.file.is_none() {
            self.records.sort_unstable();
            return Ok(SortedRecords::Memory(self.records.into_iter()));
        }
        self.spill().map_err(failed)?;
        let Some(file) = self.file else { return Ok(SortedRecords::Memory(Vec::new().into_iter())) };
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let run = |(start, end): (u64, &u64)| RecordRun { start, end: *end, buffer: Vec::new(), taken: 0 };
        let mut runs: Vec<RecordRun> = starts.zip(&self.ends).map(run).collect();
        let mut next = BinaryHeap::new();
        for (at, run) in runs.iter_mut().enumerate() {
            next.extend(run.next(&file).map_err(failed)?.map(|record| Reverse((record, at))));
        }
        Ok(SortedRecords::Runs { file, runs, next })
    }
}

impl SortedRecords {
    /// The next record.
    ///
    /// # Errors
    /// [`Error::Io`] of the file.
    pub fn next(&mut self) -> Result<Option<SortRecord>> {
        match self {
            SortedRecords::Memory(records) => Ok(records.next()),
            SortedRecords::Runs { file, runs, next } => {
                let Some(Reverse((record, at))) = next.pop() else { return Ok(None) };
                if let Some(run) = runs.get_mut(at) {
                    next.extend(run.next(file).map_err(failed)?.map(|record| Reverse((record, at))));
                }
                Ok(Some(record))
            }
        }
    }
}

impl RecordRun {
    fn next(&mut self, file: &File) -> io::Result<Option<SortRecord>> {
        if self.rest() == 0 && self.start == self.end {
            return Ok(None);
        }
        let [key, value] = [self.number(file, 0)?, self.number(file, 4)?];
        self.need(file, HEAD_BYTES + key + value)?;
        let start = self.taken + HEAD_BYTES;
        self.taken = start + key + value;
        let part = |from: usize, len: usize| self.buffer.get(from..from + len).map(<[u8]>::to_vec).ok_or_else(cut);
        Ok(Some((part(start, key)?, part(start + key, value)?)))
    }

    fn rest(&self) -> usize {
        self.buffer.len() - self.taken
    }

    /// The length at `offset` of the next record.
    fn number(&mut self, file: &File, offset: usize) -> io::Result<usize> {
        self.need(file, HEAD_BYTES)?;
        let bytes = self.buffer.get(self.taken + offset..).and_then(<[u8]>::first_chunk).ok_or_else(cut)?;
        Ok(u32::from_le_bytes(*bytes) as usize)
    }

    /// Has at least `len` bytes of the next record in memory.
    fn need(&mut self, file: &File, len: usize) -> io::Result<()> {
        if self.rest() >= len {
            return Ok(());
        }
        self.buffer.drain(..self.taken);
        self.taken = 0;
        let old = self.buffer.len();
        let more = ((len - old).max(READ_BYTES) as u64).min(self.end - self.start) as usize;
        self.buffer.resize(old + more, 0);
        file.read_exact_at(self.buffer.get_mut(old..).unwrap_or_default(), self.start)?;
        self.start += more as u64;
        if self.buffer.len() < len { Err(cut()) } else { Ok(()) }
    }
}

fn cut() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "a record ends early")
}

fn failed(error: io::Error) -> Error {
    Error::io("use", "a temporary file for the listing of the bucket", error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(records: &[SortRecord], bytes_max: usize) -> Vec<SortRecord> {
        let directory = tempfile::tempdir().unwrap();
        let mut sorter = RecordSorter::new(directory.path(), bytes_max);
        records.iter().for_each(|record| sorter.push(record.clone()).unwrap());
        let mut sorted = sorter.finish().unwrap();
        std::iter::from_fn(|| sorted.next().unwrap()).collect()
    }

    #[test]
    fn runs_in_a_file_give_the_same_order_as_memory() {
        let record = |number: u64| {
            let hash = blake3::hash(&number.to_le_bytes());
            let len = (number % 300) as usize * usize::from(number.is_multiple_of(7)) * 700;
            (hash.as_bytes()[..(number % 9) as usize].to_vec(), vec![number as u8; len])
        };
        let records: Vec<SortRecord> = (0..2000).map(record).collect();
        let mut expected = records.clone();
        expected.sort();
        for bytes_max in [1, 5000, 300_000, usize::MAX] {
            assert!(sorted(&records, bytes_max) == expected, "with {bytes_max} bytes in memory");
        }
        assert!(sorted(&[], 1).is_empty());
    }
}
