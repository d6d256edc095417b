//! Write: assembles chunks from frames, checks each against its fingerprint and writes it at its offset.
//!
//! A chunk whose frames are damaged is read again from another entry that stores it, if there is one.
//!
//! In a sparse file the recorded small holes are not written. If the snapshot has no map of them, no block of zeros is
//! written.

use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use super::message::{RestoreCounts, RestoreFile, RestoreJob, WriteChunk};
use crate::codec::Scratch;
use crate::error::{Error, Result};
use crate::kernel::compare::is_zero;
use crate::metrics::Progress;
use crate::pipeline::Map;
use crate::repo::reader::ChunkReader;
use crate::types::{Fingerprint, RepositoryKey};

/// Alignment and size of the blocks of zeros that are not written, bytes.
const ZERO_BLOCK_BYTES: u64 = 4096;

/// One worker of the stage.
pub struct WriteWorker<'a> {
    /// Key of the fingerprints.
    pub key: RepositoryKey,
    /// Buffer for a chunk of several extents.
    pub buffer: Vec<u8>,
    /// Codec contexts for deltas.
    pub scratch: Scratch,
    /// Counters of the restore.
    pub counts: Arc<RestoreCounts>,
    /// Counters for the progress bar.
    pub progress: &'a Progress,
    /// Finds other entries of chunks whose frames are damaged. Shared, because that is rare.
    pub rescue: Arc<Mutex<ChunkReader>>,
}

impl WriteWorker<'_> {
    fn write(&mut self, write: &WriteChunk, job: &RestoreJob) -> Result<()> {
        let frames = write.extent_map.frames().iter().map(|number| {
            let frame = job.frames.get(number);
            let frame = frame.ok_or_else(|| Error::internal("a frame was not gathered"))?;
            frame.as_ref().map_err(|error| error.duplicate())
        });
        let frames: Vec<&Bytes> = frames.collect::<Result<_>>()?;
        let bytes = match (write.extent_map.only_extent(), frames.as_slice()) {
            (Some(extent), [frame]) => extent.slice_of(frame)?,
            _ => {
                self.buffer.clear();
                let assembled = write.extent_map.assemble(&frames, &mut self.scratch, &mut self.buffer);
                assembled.map_err(|error| with_chunk(&write.fingerprint, error))?;
                self.buffer.as_slice()
            }
        };
        let got = self.key.fingerprint(bytes);
        if got != write.fingerprint {
            let (expected, got) = (write.fingerprint.to_string(), got.to_string());
            return Err(Error::ChecksumMismatch { what: "a chunk".into(), offset: write.offset, expected, got });
        }
        self.finish(write, bytes)
    }

    /// Writes the checked bytes of a chunk.
    fn finish(&self, write: &WriteChunk, bytes: &[u8]) -> Result<()> {
        AssembledChunk { file: &write.file, bytes, offset: write.offset }.write()?;
        write.file.set_has_content();
        self.counts.written(self.progress, bytes.len() as u64);
        Ok(())
    }

    /// Reads a chunk from whatever entry is readable, after `failure`.
    fn rescue(&self, write: &WriteChunk, failure: Error) -> Result<()> {
        let mut reader = self.rescue.lock().unwrap_or_else(PoisonError::into_inner);
        match reader.read_exact(&write.fingerprint, u64::from(write.extent_map.len())) {
            Ok(bytes) => {
                drop(reader);
                tracing::info!("chunk {} is read from another copy: {failure}", write.fingerprint);
                self.finish(write, &bytes)
            }
            Err(error) if error.is_unreadable() => Err(failure),
            Err(error) => Err(error),
        }
    }
}

/// Adds the fingerprint of the chunk to an error of assembling it.
fn with_chunk(fingerprint: &Fingerprint, error: Error) -> Error {
    match error {
        Error::Corrupt { what, offset, expected, got } => {
            Error::Corrupt { what: format!("chunk {fingerprint}: {what}"), offset, expected, got }
        }
        other => other,
    }
}

/// Checked bytes of a chunk and the range of the file that they fill.
struct AssembledChunk<'a> {
    file: &'a RestoreFile,
    bytes: &'a [u8],
    /// Start of the range.
    offset: u64,
}

impl AssembledChunk<'_> {
    fn write(&self) -> Result<()> {
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
        let written = self.file.created.file.write_all_at(self.range(start, end)?, start);
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

impl Map for WriteWorker<'_> {
    type In = RestoreJob;
    type Out = RestoreJob;

    fn name(&self) -> &'static str {
        "write"
    }

    fn map(&mut self, mut job: RestoreJob) -> Result<RestoreJob> {
        for write in &job.writes {
            let written = match self.write(write, &job) {
                Err(error) if error.is_unreadable() => self.rescue(write, error),
                other => other,
            };
            match written {
                Ok(()) => {}
                Err(error) if error.is_unreadable() => write.lose(error),
                // A bad sector of the target costs this chunk. A full disk affects every file.
                Err(error @ Error::Io { .. }) if !error.is_full_disk() => write.lose(error),
                Err(error) => return Err(error),
            }
        }
        job.writes.clear();
        job.frames.clear();
        Ok(job)
    }
}
