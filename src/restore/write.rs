//! Write: puts chunks together, checks each against its fingerprint and writes it in its place.
//!
//! In a sparse file the holes that were there are not written; where no map of them was kept, no block of zeros is.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;

use super::message::{RestoreCounts, RestoreJob, WriteChunk, count_written, is_damage};
use crate::codec::Scratch;
use crate::error::{Error, Result};
use crate::kernel::compare::is_zero;
use crate::metrics::Progress;
use crate::pipeline::Map;
use crate::repo::container::blob_name;
use crate::types::RepositoryKey;

/// Unit in which zeros of a sparse file are left out, bytes.
const BLOCK_BYTES: u64 = 4096;

/// One worker.
pub struct WriteWorker<'a> {
    /// Keys the fingerprints.
    pub key: RepositoryKey,
    /// Where a chunk of several runs is put together.
    pub space: Vec<u8>,
    /// Contexts for deltas.
    pub scratch: Scratch,
    /// Counters.
    pub counts: Arc<RestoreCounts>,
    /// For the progress bar.
    pub progress: &'a Progress,
}

impl WriteWorker<'_> {
    fn write(&mut self, write: &WriteChunk, job: &RestoreJob) -> Result<()> {
        let frames = write.extent_map.frames().iter().map(|number| {
            let frame = job.frames.get(number);
            let frame = frame.ok_or_else(|| Error::internal("a frame was not gathered"))?;
            frame.as_ref().map_err(|error| copy_of(error))
        });
        let frames: Vec<&Bytes> = frames.collect::<Result<_>>()?;
        let bytes = match (write.extent_map.only_extent(), frames.as_slice()) {
            (Some(run), [frame]) => run.slice_of(frame)?,
            _ => {
                self.space.clear();
                write.extent_map.assemble(&frames, &mut self.scratch, &mut self.space)?;
                self.space.as_slice()
            }
        };
        let got = self.key.fingerprint(bytes);
        if got != write.fingerprint {
            let (expected, got) = (write.fingerprint.to_string(), got.to_string());
            return Err(Error::ChecksumMismatch { what: "a chunk".into(), offset: write.offset, expected, got });
        }
        let written = if write.file.node.sparse {
            match &write.file.small_holes {
                Some(holes) => write_around(&write.file.file, bytes, write.offset, holes),
                None => write_sparse(&write.file.file, bytes, write.offset),
            }
        } else {
            write.file.file.write_all_at(bytes, write.offset)
        };
        written.map_err(|error| Error::io("write", &write.file.path, error))?;
        count_written(self.progress, &self.counts, bytes.len() as u64);
        Ok(())
    }
}

/// The same error once more: several chunks may need one damaged frame.
fn copy_of(error: &Error) -> Error {
    match error {
        Error::ChecksumMismatch { what, offset, expected, got } => Error::ChecksumMismatch {
            what: what.clone(),
            offset: *offset,
            expected: expected.clone(),
            got: got.clone(),
        },
        Error::Corrupt { what, offset, expected, got } => Error::corrupt(what, *offset, expected, got),
        Error::BlobMissing { what } => Error::BlobMissing { what: what.clone() },
        other => Error::corrupt(blob_name(&crate::types::ContainerId([0; 32])), 0, "a frame", other.to_string()),
    }
}

/// Writes what does not lie in one of `holes`.
fn write_around(file: &std::fs::File, bytes: &[u8], offset: u64, holes: &[(u64, u64)]) -> std::io::Result<()> {
    let end = offset + bytes.len() as u64;
    let part = |from: u64, to: u64| bytes.get((from - offset) as usize..(to - offset) as usize).unwrap_or_default();
    let first = holes.partition_point(|hole| hole.1 <= offset);
    let mut position = offset;
    for (from, to) in holes.get(first..).unwrap_or_default().iter().take_while(|hole| hole.0 < end) {
        let (from, to) = ((*from).max(position), (*to).min(end));
        // Zeros were stored for the hole; anything else is content and is written whatever the map says.
        if is_zero(part(from, to)) {
            file.write_all_at(part(position, from), position)?;
            position = to;
        }
    }
    file.write_all_at(part(position, end), position)
}

/// Writes what is not zero; blocks are aligned in the file.
fn write_sparse(file: &std::fs::File, bytes: &[u8], offset: u64) -> std::io::Result<()> {
    let mut pending = 0..0;
    let mut start = 0;
    while start < bytes.len() {
        let to_boundary = BLOCK_BYTES - (offset + start as u64) % BLOCK_BYTES;
        let end = bytes.len().min(start + to_boundary as usize);
        if is_zero(bytes.get(start..end).unwrap_or_default()) {
            file.write_all_at(bytes.get(pending.clone()).unwrap_or_default(), offset + pending.start as u64)?;
            pending = end..end;
        } else {
            pending.end = end;
        }
        start = end;
    }
    file.write_all_at(bytes.get(pending.clone()).unwrap_or_default(), offset + pending.start as u64)
}

impl Map for WriteWorker<'_> {
    type In = RestoreJob;
    type Out = RestoreJob;

    fn name(&self) -> &'static str {
        "write"
    }

    fn map(&mut self, mut job: RestoreJob) -> Result<RestoreJob> {
        for write in &job.writes {
            match self.write(write, &job) {
                Ok(()) => {}
                Err(error) if is_damage(&error) => write.file.fail(error),
                // A full disk ends the run; it will not get better with the next file.
                Err(error) => return Err(error),
            }
        }
        job.writes.clear();
        job.frames.clear();
        Ok(job)
    }
}
