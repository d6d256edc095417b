//! Writes the checked bytes of a chunk into a file, and keeps its holes.
//!
//! In a sparse file the recorded small holes are not written. If the snapshot has no map of them, no block of zeros is
//! written.

use std::os::unix::fs::FileExt;

use super::restore_file::RestoreFile;
use crate::error::{Error, Result};
use crate::kernel::compare::is_zero;

/// Alignment and size of the blocks of zeros that are not written, bytes.
const ZERO_BLOCK_BYTES: u64 = 4096;

/// Checked bytes of a chunk and the range of the file that they fill.
pub struct AssembledChunk<'a> {
    /// The file.
    pub file: &'a RestoreFile,
    /// The bytes.
    pub bytes: &'a [u8],
    /// Start of the range.
    pub offset: u64,
}

impl AssembledChunk<'_> {
    /// Writes the bytes.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write(&self) -> Result<()> {
        match &self.file.small_holes {
            _ if !self.file.node.sparse => self.write_range(self.offset, self.end()),
            Some(holes) => self.write_around(holes),
            None => self.write_sparse(),
        }
    }

    fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes.len() as u64)
    }

    /// The bytes at file offsets `start..end`.
    fn range(&self, start: u64, end: u64) -> Result<&[u8]> {
        let from_chunk = |at: u64| at.checked_sub(self.offset).and_then(|at| usize::try_from(at).ok());
        let bytes = from_chunk(start).zip(from_chunk(end)).and_then(|(start, end)| self.bytes.get(start..end));
        bytes.ok_or_else(|| Error::internal(format!("bytes {start}..{end} are outside the chunk at {}", self.offset)))
    }

    fn write_range(&self, start: u64, end: u64) -> Result<()> {
        let written = self.file.new_file()?.file.write_all_at(self.range(start, end)?, start);
        written.map_err(|error| Error::io("write", &self.file.path, error))
    }

    /// Writes all bytes outside `holes`.
    fn write_around(&self, holes: &[(u64, u64)]) -> Result<()> {
        let end = self.end();
        let (_, holes) = holes.split_at(holes.partition_point(|hole| hole.1 <= self.offset));
        let mut position = self.offset;
        for (hole_start, hole_end) in holes.iter().take_while(|hole| hole.0 < end) {
            let (hole_start, hole_end) = ((*hole_start).max(position), (*hole_end).min(end));
            // A hole is stored as zeros. Anything else is content and is written in spite of the map.
            if is_zero(self.range(hole_start, hole_end)?) {
                self.write_range(position, hole_start)?;
                position = hole_end;
            }
        }
        self.write_range(position, end)
    }

    /// Writes all blocks that are not zero. Blocks are aligned in the file.
    fn write_sparse(&self) -> Result<()> {
        let end = self.end();
        let (mut pending, mut start) = (self.offset, self.offset);
        while start < end {
            let block_end = end.min((start - start % ZERO_BLOCK_BYTES).saturating_add(ZERO_BLOCK_BYTES));
            if is_zero(self.range(start, block_end)?) {
                self.write_range(pending, start)?;
                pending = block_end;
            }
            start = block_end;
        }
        self.write_range(pending, end)
    }
}
