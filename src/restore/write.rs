//! Write: assembles chunks from frames, checks each against its fingerprint and writes it at its offset.
//!
//! A chunk whose frames are damaged is read again from another entry that stores it, if there is one. A file whose
//! chunks are all in one job gets its metadata at once, other files in Finish: jobs are written at the same time.

use std::sync::Arc;

use bytes::Bytes;

use super::message::{FinishedEntry, RestoreCounts, RestoreJob, WriteChunk};
use super::rescue::Rescue;
use super::restore_file::RestoreFile;
use crate::codec::Scratch;
use crate::error::{Error, Result};
use crate::filesystem::Target;
use crate::pipeline::Map;
use crate::types::{Fingerprint, RepositoryKey};

/// One worker of the stage.
pub struct WriteWorker<'a> {
    /// Directory that receives the tree.
    pub target: Arc<Target>,
    /// Key of the fingerprints.
    pub key: RepositoryKey,
    /// Buffer for a chunk of several extents.
    pub buffer: Vec<u8>,
    /// Codec contexts for deltas.
    pub scratch: Scratch,
    /// Counters of the restore.
    pub counts: Arc<RestoreCounts>,
    /// Finds other entries of chunks whose frames are damaged.
    pub rescue: Arc<Rescue<'a>>,
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
        self.rescue.write(write, bytes)
    }

    /// Sets the metadata of a file that is whole.
    fn set_metadata(&self, file: &RestoreFile) -> Result<()> {
        let mut problems = Vec::new();
        self.target.finish_file(&file.path, &file.new_file()?.file, &file.node, &mut problems);
        file.set_has_metadata();
        problems.iter().for_each(|error| self.counts.problem(error));
        Ok(())
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
            match self.write(write, &job) {
                Err(failure) if failure.is_unreadable() => write.lost_after(self.rescue.chunk(write, failure))?,
                written => write.lost_after(written)?,
            }
        }
        job.writes.clear();
        job.frames.clear();
        for entry in &job.finished {
            if let FinishedEntry::File(file) = entry
                && file.is_within_job(job.number)
                && !file.is_damaged()
            {
                self.set_metadata(file)?;
            }
        }
        Ok(job)
    }
}
