//! Read: reads the files and ranges that Walk names, several at once.
//!
//! 1. A batch from Walk becomes one batch of data, in the same order. So the stream does not depend on which worker is
//!    faster.
//! 2. After a range that could not be read whole comes [`ReadItem::Broken`]: Chunk ignores what other workers have read
//!    behind it.
//! 3. The worker that ends a file waits for the ranges before it, then looks whether the file has changed.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::buffers::BufferPool;
use super::input::ReadCounts;
use super::reading::{FileToRead, OpenedFile, RangeToRead, WalkBatch, WalkItem, announced, bytes_at_once};
use crate::backup::message::{Outcome, ReadBatch, ReadItem, TreeItem};
use crate::config::ModelConfig;
use crate::error::{Error, Result};
use crate::filesystem::{FileRange, SourceFile};
use crate::metrics::Progress;
use crate::model::{DefectReporting, ModelFile, ModelRecord, model_file};
use crate::pipeline::Map;
use crate::repo::recipe::ContentReference;
use crate::repo::tree::HoleMap;

/// Reads below this size get a buffer of their own size.
const SMALL_BYTES: u64 = 128 << 10;
/// Batches that a file may fill if it has grown since Walk saw it. The rest is left out.
const GROWN_BATCHES_MAX: u64 = 4;

/// A worker of the stage.
pub struct ReadWorker<'a> {
    /// Buffers of a batch each.
    pub pool: Arc<BufferPool>,
    /// Holes below this length are sent as data, bytes.
    pub hole_bytes_min: u64,
    /// How models are recognised.
    pub model: ModelConfig,
    /// Counters for the progress display.
    pub progress: &'a Progress,
    /// Counters of the run.
    pub counts: Arc<ReadCounts>,
}

impl ReadWorker<'_> {
    fn problem(&self, error: &Error) {
        self.counts.problem(error, self.progress);
    }

    /// Opens and reads a whole file.
    fn file(&self, task: FileToRead, batch: &mut ReadBatch) {
        let mut node = task.node.clone();
        let source = match task.location.open(&node) {
            Ok(source) => source,
            Err(error) => {
                self.problem(&error);
                batch.items.push(ReadItem::Tree(TreeItem::Omitted));
                return;
            }
        };
        source.refresh(&mut node);
        let fingerprint = task.previous_version.and_then(ContentReference::fingerprint);
        let model = model_file(&source, &self.model, fingerprint, DefectReporting::Warn);
        batch.items.push(ReadItem::Tree(TreeItem::Begin(Box::new(node))));
        let mut small_holes = HoleMap::default();
        let outcome = match model {
            Ok(model) => {
                batch.items.extend(announced(model.as_ref(), task.previous_version, source.size()));
                let outcome = self.content(&source, model.as_deref(), &mut small_holes, batch);
                self.checked(&source, outcome)
            }
            Err(error) => {
                self.problem(&error);
                Outcome::Failed
            }
        };
        task.keep_promise(outcome);
        batch.items.push(ReadItem::Tree(TreeItem::End { outcome, small_holes }));
    }

    /// Reads the data and long holes of a file. Short holes are read as data and recorded in `small_holes`.
    fn content(
        &self,
        source: &SourceFile,
        model: Option<&ModelFile>,
        small_holes: &mut HoleMap,
        batch: &mut ReadBatch,
    ) -> Outcome {
        let record = model.map(|model| &model.record);
        let bytes_max = GROWN_BATCHES_MAX * self.pool.buffer_bytes() as u64;
        // Start of the data that is not read yet, and its end so far.
        let (mut start, mut end) = (0, 0);
        for range in source.ranges(1) {
            match range {
                FileRange::Data { offset, len } => end = offset + len,
                FileRange::Hole { len } if len < self.hole_bytes_min => {
                    small_holes.push(end, len);
                    end += len;
                }
                FileRange::Hole { len } => {
                    let outcome = self.data(source, record, start..end.min(bytes_max), batch);
                    if outcome != Outcome::Complete {
                        return outcome;
                    }
                    self.progress.bytes_read.add(len);
                    batch.items.push(ReadItem::Hole(len));
                    end += len;
                    start = end;
                }
            }
            if end > bytes_max {
                break;
            }
        }
        match self.data(source, record, start..end.min(bytes_max), batch) {
            Outcome::Complete if end > bytes_max => Outcome::Changed,
            outcome => outcome,
        }
    }

    /// Reads `range`, a buffer at a time.
    fn data(
        &self,
        source: &SourceFile,
        model: Option<&ModelRecord>,
        range: Range<u64>,
        batch: &mut ReadBatch,
    ) -> Outcome {
        let mut start = range.start;
        while start < range.end {
            let len = bytes_at_once(model, start, self.pool.buffer_bytes() as u64).min(range.end - start);
            let outcome = self.read(source, start..start + len, batch);
            if outcome != Outcome::Complete {
                return outcome;
            }
            start += len;
        }
        Outcome::Complete
    }

    /// Reads `range`, at most a buffer, and appends what is there. If the file ends before the range, it changed.
    fn read(&self, source: &SourceFile, range: Range<u64>, batch: &mut ReadBatch) -> Outcome {
        let len = range.end - range.start;
        let mut buffer = if len < SMALL_BYTES { self.pool.small(len as usize) } else { self.pool.take() };
        let read = match source.read_full(buffer.space(len as usize), range.start) {
            Ok(read) => read,
            Err(error) => {
                self.problem(&Error::io("read", source.path(), error));
                return Outcome::Failed;
            }
        };
        self.counts.bytes_read.fetch_add(read as u64, Ordering::Relaxed);
        self.progress.bytes_read.add(read as u64);
        if read > 0 {
            batch.bytes += read as u64;
            batch.items.push(ReadItem::Data(Bytes::from_owner(buffer.filled(read))));
        }
        if (read as u64) < len { Outcome::Changed } else { Outcome::Complete }
    }

    fn range(&self, task: &RangeToRead, batch: &mut ReadBatch) {
        if task.file.outcome() == Outcome::Failed {
            return;
        }
        let outcome = self.read(&task.file.source, task.range.clone(), batch);
        if outcome != Outcome::Complete {
            task.file.worsen(outcome);
            batch.items.push(ReadItem::Broken);
        }
    }

    fn end(&self, file: &OpenedFile, small_holes: HoleMap, batch: &mut ReadBatch) {
        file.wait_for_ranges();
        let outcome = self.checked(&file.source, file.outcome());
        file.keep_promise(outcome);
        batch.items.push(ReadItem::Tree(TreeItem::End { outcome, small_holes }));
    }

    /// The outcome of a file that has been read: it may have changed meanwhile.
    fn checked(&self, source: &SourceFile, outcome: Outcome) -> Outcome {
        if outcome == Outcome::Failed {
            return outcome;
        }
        if outcome == Outcome::Changed || source.is_changed().unwrap_or(true) {
            let changed = std::io::Error::other("it changed while it was read; what was read is kept");
            self.problem(&Error::io("read consistently", source.path(), changed));
            return Outcome::Changed;
        }
        outcome
    }
}

impl Map for ReadWorker<'_> {
    type In = WalkBatch;
    type Out = ReadBatch;

    fn name(&self) -> &'static str {
        "read"
    }

    fn map(&mut self, input: WalkBatch) -> Result<ReadBatch> {
        let mut batch = ReadBatch { items: Vec::with_capacity(input.items.len()), bytes: 0 };
        for item in input.items {
            match item {
                WalkItem::Ready(item) => batch.items.push(item),
                WalkItem::File(task) => self.file(*task, &mut batch),
                WalkItem::Range(task) => self.range(&task, &mut batch),
                WalkItem::End { file, small_holes } => self.end(&file, small_holes, &mut batch),
            }
        }
        Ok(batch)
    }
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
