//! Write: assembles chunks from frames, checks each against its fingerprint and writes it at its offset.
//!
//! A chunk whose frames are damaged is read again from another entry that stores it, if there is one.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use super::assembled::AssembledChunk;
use super::message::{RestoreCounts, RestoreJob, WriteChunk};
use crate::codec::Scratch;
use crate::error::{Error, Result};
use crate::metrics::Progress;
use crate::pipeline::Map;
use crate::repo::reader::ChunkReader;
use crate::types::{Fingerprint, RepositoryKey};

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
