//! Write: assembles chunks from frames, checks each against its fingerprint and writes it at its offset.
//!
//! Content that is rebuilt from other content comes from one stream, block by block.
//!
//! A chunk whose frames are damaged is read again from another entry that stores it, if there is one. A file whose
//! chunks are all in one job gets its metadata at once, other files in Finish: jobs are written at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;

use super::assembled::AssembledChunk;
use super::message::{FinishedEntry, RestoreCounts, RestoreJob, WriteChunk};
use super::rescue::Rescue;
use super::restore_file::RestoreFile;
use crate::codec::Scratch;
use crate::error::{Error, Result};
use crate::filesystem::Target;
use crate::pipeline::Map;
use crate::repo::read::RebuiltStream;
use crate::repo::rebuilt::RebuiltContent;
use crate::repo::recipe::ContentReference;
use crate::types::{Fingerprint, RepositoryKey};

/// Bytes of container indexes that a stream of rebuilt content caches.
const INDEX_BYTES_MAX: usize = 4 << 20;

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
    /// Set when the user wants to stop.
    pub stop: Arc<AtomicBool>,
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

    /// Writes a content that is rebuilt. What cannot be rebuilt is a lost range of the file.
    fn rebuild(&self, file: &RestoreFile, content: RebuiltContent) -> Result<()> {
        let mut stream = RebuiltStream::new(self.rescue.reader.lock().sharing(INDEX_BYTES_MAX), content);
        let mut lost_from = 0;
        let mut write = || -> Result<()> {
            // An interrupted restore may have left anything.
            file.set_len(content.len)?;
            loop {
                if self.stop.load(Ordering::Relaxed) {
                    return Err(Error::Interrupted);
                }
                let offset = stream.position();
                let Some(bytes) = stream.next_block()? else { return Ok(()) };
                AssembledChunk { file, bytes: &bytes, offset }.write()?;
                lost_from = stream.position();
                file.set_has_content();
                self.counts.written(self.rescue.progress, bytes.len() as u64);
            }
        };
        match write() {
            Err(error @ Error::Io { .. }) if error.is_full_disk() => Err(error),
            Err(error @ Error::ChecksumMismatch { .. }) if stream.position() == content.len => {
                // The hash is of all bytes, so none of them can be relied on.
                file.set_len(0)?;
                file.lose(0, content.len, error);
                Ok(())
            }
            Err(error) if error.is_unreadable() || matches!(error, Error::Io { .. }) => {
                file.lose(lost_from, content.len - lost_from, error);
                Ok(())
            }
            written => written,
        }
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
                && let Some(content) = file.node.content.and_then(ContentReference::rebuilt)
                && content.len == file.node.size
            {
                self.rebuild(file, content)?;
            }
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
