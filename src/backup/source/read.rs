//! Read: reads the files and ranges that Walk names, several at once.
//!
//! 1. A batch from Walk becomes one batch of data, in the same order. So the stream does not depend on which worker is
//!    faster.
//! 2. After a range that could not be read whole comes [`ReadItem::Broken`]: Chunk ignores what other workers have read
//!    behind it.
//! 3. A file is read to its end, whatever its size is said to be. The rest behind that size has no known length, so
//!    Chunk reads it ([`crate::backup::rest`]). A file that has more or fewer bytes is reported, and its entry marked.
//! 4. The anchors of opaque bytes are found here ([`crate::backup::scan`]), so that Chunk, one thread, only chooses.
//! 5. The worker that ends a file waits for the ranges before it, then looks whether the file has changed.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;

use super::reading::{
    FileToRead, OpenedFile, RangeToRead, WalkBatch, WalkItem, announced, announced_plain, bytes_at_once,
};
use crate::backup::buffers::{Buffer, BufferPool};
use crate::backup::changes::EntryChange;
use crate::backup::counts::ReadCounts;
use crate::backup::message::{Outcome, ReadBatch, ReadItem, TreeItem};
use crate::backup::opening::FileOpener;
use crate::backup::rest::FileRest;
use crate::backup::scan::AnchorScanner;
use crate::backup::sent::SentFile;
use crate::config::ModelConfig;
use crate::error::{Error, Result};
use crate::filesystem::{FileRange, SourceFile};
use crate::metrics::Progress;
use crate::model::{DefectReporting, ModelFile, ModelRecord, model_file};
use crate::opened::looks_open;
use crate::pipeline::Map;
use crate::repo::recipe::ContentReference;
use crate::repo::tree::HoleMap;

/// Reads below this size get a buffer of their own size.
const SMALL_BYTES: u64 = 128 << 10;
/// Bytes that are tried to read behind a file.
const TAIL_BYTES: usize = 4 << 10;
/// Bytes of the parts of opened files that a batch has in memory, about.
const OPENED_MEMORY_MAX: usize = 2 << 20;
/// Opened files of a batch that have parts in temporary files. Others are stored as they are.
const SPILLED_MAX: usize = 8;
/// Batches that a file may fill if it has grown since Walk saw it. Chunk reads the rest.
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
    /// Set when the user stops the run, which then waits for no pipe.
    pub stop: Arc<AtomicBool>,
    /// Opens compressed files.
    pub opener: FileOpener,
    /// Finds anchors.
    pub scanner: AnchorScanner,
}

impl ReadWorker<'_> {
    fn problem(&self, error: &Error) {
        self.counts.problem(error, self.progress);
    }

    /// A file that could not be read is not stored, so Walk has counted it in vain.
    fn take_back(&self, change: Option<EntryChange>) {
        change.into_iter().for_each(|change| self.counts.changes.take_back(change));
    }

    /// Opens and reads a whole file.
    fn file(&self, task: FileToRead, batch: &mut ReadBatch) {
        let mut node = task.node.clone();
        let source = match task.location.open(&node) {
            Ok(source) => Arc::new(source),
            Err(error) => {
                self.problem(&error);
                self.take_back(task.change);
                batch.items.push(ReadItem::Tree(TreeItem::Omitted));
                return;
            }
        };
        source.refresh(&mut node).iter().for_each(|error| self.problem(error));
        let fingerprint = task.previous_version.and_then(ContentReference::fingerprint);
        let model = match source.is_special() {
            true => Ok(None),
            false => model_file(&source, &self.model, fingerprint, DefectReporting::Warn),
        };
        batch.items.push(ReadItem::Tree(TreeItem::Begin(Box::new(node))));
        let mut small_holes = HoleMap::default();
        let outcome = match model {
            Ok(model) => {
                let begin = batch.items.len();
                batch.items.extend(announced(model.as_ref(), task.previous_version, source.size()));
                let outcome = self.content(&source, model.as_deref(), &mut small_holes, batch);
                let may_open = task.may_open && model.is_none() && outcome == Outcome::Complete && !source.is_special();
                if may_open && looks_open_from(batch.items.get(begin..).unwrap_or_default()) {
                    self.replace_by_opened(&source, task.previous_version, begin, batch);
                }
                if model.is_none() {
                    self.scanner.scan(batch.items.get_mut(begin..).unwrap_or_default());
                }
                outcome
            }
            Err(error) => {
                self.problem(&error);
                Outcome::Failed
            }
        };
        if outcome == Outcome::Failed {
            self.take_back(task.change);
        }
        let is_as_captured = source.state() == task.node.state();
        if task.was_empty && outcome == Outcome::Complete && source.size() == 0 {
            self.counts.files_unchanged.fetch_add(1, Ordering::Relaxed);
        }
        self.end_of(&source, (outcome, small_holes), (task.sent(), is_as_captured), batch);
    }

    /// Puts the parts of an opened file in the place of its bytes, which are the items from `begin` on. They stay if it
    /// cannot be opened, or if the batch has too many parts on disk.
    fn replace_by_opened(
        &self,
        source: &SourceFile,
        previous_version: Option<ContentReference>,
        begin: usize,
        batch: &mut ReadBatch,
    ) {
        let parts = || {
            batch.items.iter().filter_map(|item| if let ReadItem::Opened(parts) = item { Some(parts) } else { None })
        };
        let memory: usize = parts().map(|parts| parts.memory).sum();
        let spilled = parts().filter(|parts| parts.is_spilled()).count();
        let Some(parts) = self.opener.open(source, OPENED_MEMORY_MAX.saturating_sub(memory)) else { return };
        if parts.len == source.size() && (!parts.is_spilled() || spilled < SPILLED_MAX) {
            batch.items.truncate(begin);
            batch.items.extend(announced_plain(previous_version));
            batch.bytes += parts.memory as u64;
            batch.items.push(ReadItem::Opened(Box::new(parts)));
        }
    }

    /// Opens a large file. If that is not possible, Chunk reads it.
    fn open(&self, file: &OpenedFile, previous_version: Option<ContentReference>, batch: &mut ReadBatch) {
        let source = &file.source;
        self.progress.current.set(source.path());
        let sent = file.sent();
        let (outcome, is_as_captured) = match self.opener.open(source, OPENED_MEMORY_MAX) {
            Some(parts) => {
                self.counts.bytes_read.fetch_add(parts.len, Ordering::Relaxed);
                self.progress.bytes_read.add(parts.len);
                let outcome = if parts.len == source.size() { Outcome::Complete } else { Outcome::Changed };
                batch.items.extend(announced_plain(previous_version));
                batch.bytes += parts.memory as u64;
                batch.items.push(ReadItem::Opened(Box::new(parts)));
                (outcome, true)
            }
            None => {
                let (pool, counts) = (self.pool.clone(), self.counts.clone());
                batch.items.extend(announced(None, previous_version, source.size()));
                let rest = FileRest::whole(source.clone(), pool, counts, self.stop.clone());
                batch.items.push(ReadItem::Rest(Box::new(rest)));
                // Nobody knows yet how that ends, so other names of the file are read, too.
                (Outcome::Complete, false)
            }
        };
        self.end_of(source, (outcome, HoleMap::default()), (sent, is_as_captured), batch);
    }

    /// Reads the data and long holes of a file. Short holes are read as data and recorded in `small_holes`.
    fn content(
        &self,
        source: &Arc<SourceFile>,
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
            Outcome::Complete if end > bytes_max => self.rest(source, bytes_max.max(start), batch),
            Outcome::Complete => self.tail(source, batch),
            outcome => outcome,
        }
    }

    /// Tries to read behind the last byte of a file. What comes is appended.
    fn tail(&self, source: &Arc<SourceFile>, batch: &mut ReadBatch) -> Outcome {
        let size = source.size();
        // Some files give their content to one read only.
        let mut buffer = if size == 0 { self.pool.take() } else { self.pool.small(TAIL_BYTES) };
        let want = if size == 0 { self.pool.buffer_bytes() } else { TAIL_BYTES };
        let read = match source.read_unless(buffer.space(want), size, &self.stop) {
            Ok(0) => return Outcome::Complete,
            Ok(read) => read,
            Err(error) => {
                self.problem(&Error::io("read", source.path(), error));
                return Outcome::Failed;
            }
        };
        self.append(buffer.filled(read), read, batch);
        if read == want {
            return self.rest(source, size + read as u64, batch);
        }
        unexpected(source)
    }

    /// Leaves the rest of a file to Chunk.
    fn rest(&self, source: &Arc<SourceFile>, offset: u64, batch: &mut ReadBatch) -> Outcome {
        let rest = FileRest::new(source.clone(), offset, self.pool.clone(), self.counts.clone(), self.stop.clone());
        batch.items.push(ReadItem::Rest(Box::new(rest)));
        unexpected(source)
    }

    fn append(&self, buffer: Buffer, len: usize, batch: &mut ReadBatch) {
        self.counts.bytes_read.fetch_add(len as u64, Ordering::Relaxed);
        self.progress.bytes_read.add(len as u64);
        batch.bytes += len as u64;
        batch.items.push(ReadItem::Data(Bytes::from_owner(buffer)));
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
        self.progress.current.set(source.path());
        let mut buffer = if len < SMALL_BYTES { self.pool.small(len as usize) } else { self.pool.take() };
        let read = match source.read_unless(buffer.space(len as usize), range.start, &self.stop) {
            Ok(read) => read,
            Err(error) => {
                self.problem(&Error::io("read", source.path(), error));
                return Outcome::Failed;
            }
        };
        if read > 0 {
            self.append(buffer.filled(read), read, batch);
        }
        if (read as u64) < len { Outcome::Changed } else { Outcome::Complete }
    }

    fn range(&self, task: &RangeToRead, batch: &mut ReadBatch) {
        if task.file.outcome() == Outcome::Failed {
            return;
        }
        let begin = batch.items.len();
        let outcome = self.read(&task.file.source, task.range.clone(), batch);
        if !task.file.is_model {
            self.scanner.scan(batch.items.get_mut(begin..).unwrap_or_default());
        }
        if outcome != Outcome::Complete {
            task.file.worsen(outcome);
            batch.items.push(ReadItem::Broken);
        }
    }

    fn end(&self, file: &OpenedFile, small_holes: HoleMap, batch: &mut ReadBatch) {
        file.wait_for_ranges();
        if file.outcome() == Outcome::Complete {
            file.worsen(self.tail(&file.source, batch));
        }
        if file.outcome() == Outcome::Failed {
            self.take_back(file.change);
        }
        self.end_of(&file.source, (file.outcome(), small_holes), (file.sent(), true), batch);
    }

    /// Ends a file. Other entries may refer to it if it is the one that Walk captured, if it was read whole, and if
    /// its times tell it from whatever gets its inode number later.
    fn end_of(
        &self,
        source: &SourceFile,
        (outcome, small_holes): (Outcome, HoleMap),
        (sent, is_as_captured): (Option<&SentFile>, bool),
        batch: &mut ReadBatch,
    ) {
        let is_distinct = sent.is_none() || source.outlast_tick();
        let outcome = self.checked(source, outcome);
        if let Some(sent) = sent {
            sent.end(outcome == Outcome::Complete && is_distinct && is_as_captured);
        }
        batch.items.push(ReadItem::Tree(TreeItem::End { outcome, small_holes, sent: sent.cloned() }));
    }

    /// The outcome of a file that has been read: it may have changed meanwhile.
    fn checked(&self, source: &SourceFile, outcome: Outcome) -> Outcome {
        if outcome == Outcome::Failed {
            return outcome;
        }
        let changed = match (source.is_changed().unwrap_or(true), outcome) {
            (true, _) => "it changed while it was read; what was read is kept".to_string(),
            (false, Outcome::Changed) => {
                format!(
                    "its size is said to be {} bytes, but it has more or fewer; what was read is kept",
                    source.size()
                )
            }
            (false, _) => return outcome,
        };
        self.problem(&Error::io("read consistently", source.path(), std::io::Error::other(changed)));
        Outcome::Changed
    }
}

/// Whether the items of a file are data only, and begin as a stream that can be opened.
fn looks_open_from(items: &[ReadItem]) -> bool {
    let mut data = items.iter().filter(|item| !matches!(item, ReadItem::PreviousVersion(_)));
    let begins = |item: &ReadItem| if let ReadItem::Data(bytes) = item { looks_open(bytes) } else { false };
    data.next().is_some_and(begins) && data.all(|item| matches!(item, ReadItem::Data(_)))
}

/// The outcome of a file that has more bytes than its metadata say. Those of a special file say nothing.
fn unexpected(source: &SourceFile) -> Outcome {
    if source.is_special() { Outcome::Complete } else { Outcome::Changed }
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
                WalkItem::Open { file, previous_version } => self.open(&file, previous_version, &mut batch),
                WalkItem::End { file, small_holes } => self.end(&file, small_holes, &mut batch),
            }
        }
        Ok(batch)
    }
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
