//! Read: walks the source and reads what has changed.
//!
//! - A file is not read if its size, times and inode equal those in a parent snapshot, its times are at least a minute
//!   older than that snapshot, and all its chunks are present. Its entry refers to the parent's content.
//! - Holes are not read. An inode with several names is read once.
//! - An entry that cannot be read is reported, counted and left out.
//! - Model files are recognised by their content and announced with a record of their tensors.
//! - Files whose names look like models are hoisted: they are sent before the walk, bases before their descendants.
//!   When the walk meets a hoisted file it sends the entry without content.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use lru::LruCache;

use super::buffers::BufferPool;
use super::parents::ParentCursors;
use crate::backup::message::{Outcome, ReadBatch, ReadItem, TreeItem};
use crate::config::{Config, ModelConfig};
use crate::error::{Error, Result};
use crate::filesystem::{Capturer, Event, Exclusion, FileRange, SourceFile, Walker};
use crate::metrics::Progress;
use crate::model::{DefectReporting, HoistCandidate, ModelFile, ModelRecord, model_file, storing_order};
use crate::pipeline::{Emit, Source};
use crate::repo::reader::at_least_one;
use crate::repo::recipe::ContentReference;
use crate::repo::tree::{FileIdentity, HoleMap, Node, NodeKind};

/// Items of a batch, at most.
pub(super) const ITEMS_MAX: usize = 1024;
/// Reads below this size get a buffer of their own size.
const SMALL_BYTES: u64 = 128 << 10;
/// Files from this size on are sent with their previous version: float chunks may be deltas to it.
const CHANGED_BYTES_MIN: u64 = 64 << 10;
/// Memory for records of models that are to be ordered. Models beyond that are not hoisted.
pub(super) const HOISTED_BYTES_MAX: usize = 16 << 20;

/// Counters of Read, shared with the caller of the run.
#[derive(Debug, Default)]
pub struct ReadCounts {
    /// Entries that could not be read, or changed while they were read.
    pub problems: AtomicU64,
    /// Files that were not read because they are unchanged.
    pub files_unchanged: AtomicU64,
    /// Bytes read from files.
    pub bytes_read: AtomicU64,
    /// Entries that the user's choice leaves out. What is below an excluded directory is not counted.
    pub excluded: AtomicU64,
}

/// What is sent before the content of a file.
struct Announcement {
    /// The file as a model; `None` if it is not one; an error if it cannot be read.
    model: Result<Option<Arc<ModelFile>>>,
    /// Content of the file in the parent snapshot.
    previous_version: Option<ContentReference>,
}

/// The stage.
pub struct ReadStage<'a> {
    walker: Walker,
    parents: ParentCursors,
    pool: BufferPool,
    hole_bytes_min: u64,
    batch_bytes: u64,
    /// Inodes with several names whose content was sent.
    links: LruCache<FileIdentity, ()>,
    model: ModelConfig,
    /// Files that may be models, examined before the walk.
    candidates: Vec<PathBuf>,
    /// Hoisted files in the state in which they were sent.
    hoisted: HashMap<FileIdentity, Node>,
    batch: ReadBatch,
    progress: &'a Progress,
    counts: Arc<ReadCounts>,
}

impl<'a> ReadStage<'a> {
    /// Reads the files of `walker` except those unchanged since one of `parents`. `candidates` are files of the walk
    /// that may be models.
    pub fn new(
        walker: Walker,
        parents: ParentCursors,
        candidates: Vec<PathBuf>,
        config: &Config,
        progress: &'a Progress,
        counts: Arc<ReadCounts>,
    ) -> Self {
        let batch_bytes = config.pipeline.batch_bytes.0;
        ReadStage {
            walker,
            parents,
            pool: BufferPool::new(batch_bytes as usize, 4 * config.pipeline.queue_depth + 8),
            hole_bytes_min: config.read.hole_bytes_min.0,
            batch_bytes,
            links: LruCache::new(at_least_one(config.read.hard_links_max)),
            model: config.model.clone(),
            candidates,
            hoisted: HashMap::new(),
            batch: ReadBatch::default(),
            progress,
            counts,
        }
    }

    fn push(&mut self, item: ReadItem, emit: &mut Emit<ReadBatch>) -> Result<()> {
        if let ReadItem::Data(bytes) = &item {
            self.batch.bytes += bytes.len() as u64;
        }
        self.batch.items.push(item);
        if self.batch.bytes >= self.batch_bytes || self.batch.items.len() >= ITEMS_MAX {
            emit.emit(std::mem::take(&mut self.batch))?;
        }
        Ok(())
    }

    fn problem(&self, error: &Error) {
        tracing::warn!("{error}");
        self.counts.problems.fetch_add(1, Ordering::Relaxed);
        self.progress.errors.add(1);
    }

    fn event(&mut self, event: Event, emit: &mut Emit<ReadBatch>) -> Result<()> {
        match event {
            Event::Enter { node, .. } => {
                self.parents.enter(&node);
                self.push(ReadItem::Tree(TreeItem::Enter(Box::new(node))), emit)
            }
            Event::Leave { .. } => {
                self.parents.leave();
                self.push(ReadItem::Tree(TreeItem::Leave), emit)
            }
            Event::Entry { node, .. } if node.kind == NodeKind::File => self.file(node, emit),
            Event::Entry { node, .. } => self.push(ReadItem::Tree(TreeItem::Entry(Box::new(node))), emit),
            Event::Problem { error, .. } => {
                self.problem(&error);
                self.push(ReadItem::Tree(TreeItem::Omitted), emit)
            }
            Event::Skipped { path } => {
                tracing::info!("skipping {}: it is the repository or its cache", path.display());
                self.push(ReadItem::Tree(TreeItem::Omitted), emit)
            }
            Event::Excluded { path, reason } => {
                self.counts.excluded.fetch_add(1, Ordering::Relaxed);
                tracing::debug!("excluding {}: {reason}", path.display());
                match reason {
                    // The directory itself is stored, and marked by the walk.
                    Exclusion::FileSystem => Ok(()),
                    _ => self.push(ReadItem::Tree(TreeItem::Omitted), emit),
                }
            }
        }
    }

    fn file(&mut self, mut node: Node, emit: &mut Emit<ReadBatch>) -> Result<()> {
        if let Some(identity) = node.hard_link
            && self.links.get(&identity).is_some()
        {
            return self.push(ReadItem::Tree(TreeItem::Linked(Box::new(node))), emit);
        }
        if let Some(content) = self.parents.unchanged(&mut node) {
            node.content = content;
            self.counts.files_unchanged.fetch_add(1, Ordering::Relaxed);
            self.progress.bytes_read.add(node.size);
            if let Some(identity) = node.hard_link.filter(|_| content.is_some()) {
                self.links.put(identity, ());
            }
            return self.push(ReadItem::Tree(TreeItem::Entry(Box::new(node))), emit);
        }
        if self.hoisted.get(&node.identity()).is_some_and(|hoisted| is_same(hoisted, &node)) {
            if let Some(identity) = node.hard_link {
                self.links.put(identity, ());
            }
            return self.push(ReadItem::Tree(TreeItem::Linked(Box::new(node))), emit);
        }
        let previous_version = self.parents.previous_version();
        let source = match self.walker.open_file(&node) {
            Ok(source) => source,
            Err(error) => {
                self.problem(&error);
                return self.push(ReadItem::Tree(TreeItem::Omitted), emit);
            }
        };
        source.refresh(&mut node);
        let hard_link = node.hard_link;
        let fingerprint = previous_version.and_then(ContentReference::fingerprint);
        let model = model_file(&source, &self.model, fingerprint, DefectReporting::Warn);
        let announcement = Announcement { model, previous_version };
        let outcome = self.send(&source, TreeItem::Begin(Box::new(node)), announcement, emit)?;
        if let Some(identity) = hard_link.filter(|_| outcome != Outcome::Failed) {
            self.links.put(identity, ());
        }
        Ok(())
    }

    /// Sends a file from its begin item to its end item.
    fn send(
        &mut self,
        source: &SourceFile,
        begin: TreeItem,
        announcement: Announcement,
        emit: &mut Emit<ReadBatch>,
    ) -> Result<Outcome> {
        self.push(ReadItem::Tree(begin), emit)?;
        let mut small_holes = HoleMap::default();
        let outcome = match announcement.model {
            Ok(model) => {
                if let Some(item) = announced(model.as_ref(), announcement.previous_version, source.size()) {
                    self.push(item, emit)?;
                }
                self.content(source, model.as_deref(), &mut small_holes, emit)?
            }
            Err(error) => {
                self.problem(&error);
                Outcome::Failed
            }
        };
        self.push(ReadItem::Tree(TreeItem::End { outcome, small_holes }), emit)?;
        Ok(outcome)
    }

    /// Sends the content of new models before the walk, bases first.
    fn send_hoisted(&mut self, emit: &mut Emit<ReadBatch>) -> Result<()> {
        let (capturer, mut models, mut bytes) = (Capturer::new(), Vec::new(), 0);
        for path in std::mem::take(&mut self.candidates) {
            emit.check()?;
            let Some((node, source)) = self.open_candidate(&capturer, &path) else { continue };
            // The walk meets the file again and then reports its defects.
            let Ok(Some(model)) = model_file(&source, &self.model, None, DefectReporting::Silent) else { continue };
            let Some(ModelFile { record, .. }) = Arc::into_inner(model) else { continue };
            bytes += record.memory_bytes();
            models.push(HoistCandidate { path, node, record });
            if bytes > HOISTED_BYTES_MAX {
                break;
            }
        }
        for HoistCandidate { path, node: before, record } in
            if models.len() > 1 { storing_order(models) } else { Vec::new() }
        {
            let Some((node, source)) = self.open_candidate(&capturer, &path) else { continue };
            let model = match is_same(&before, &node) {
                true => Ok(Some(Arc::new(ModelFile { record, previous_version: None }))),
                false => model_file(&source, &self.model, None, DefectReporting::Warn),
            };
            let begin = TreeItem::Hoisted(Box::new(node.clone()));
            let announcement = Announcement { model, previous_version: None };
            if self.send(&source, begin, announcement, emit)? == Outcome::Complete {
                self.hoisted.insert(node.identity(), node);
            }
        }
        Ok(())
    }

    /// Opens a file that may be a new model; `None` if the parent snapshot probably contains it or it cannot be read.
    fn open_candidate(&self, capturer: &Capturer, path: &Path) -> Option<(Node, SourceFile)> {
        let mut node = capturer.capture_path(path, false, &mut Vec::new()).ok()?;
        if node.kind != NodeKind::File || self.parents.is_older(&node) {
            return None;
        }
        let source = SourceFile::open(path, &node).ok()?;
        source.refresh(&mut node);
        Some((node, source))
    }

    /// Sends the data and long holes of a file. Short holes are sent as data and recorded in `small_holes`.
    fn content(
        &mut self,
        source: &SourceFile,
        model: Option<&ModelFile>,
        small_holes: &mut HoleMap,
        emit: &mut Emit<ReadBatch>,
    ) -> Result<Outcome> {
        let record = model.map(|model| &model.record);
        let mut outcome = Outcome::Complete;
        // Start of the data that is not sent yet, and its end so far.
        let (mut start, mut end) = (0, 0);
        for range in source.ranges(1) {
            match range {
                FileRange::Data { offset, len } => end = offset + len,
                FileRange::Hole { len } if len < self.hole_bytes_min => {
                    small_holes.push(end, len);
                    end += len;
                }
                FileRange::Hole { len } => {
                    outcome = self.data(source, record, start..end, emit)?;
                    if outcome != Outcome::Complete {
                        break;
                    }
                    self.progress.bytes_read.add(len);
                    self.push(ReadItem::Hole(len), emit)?;
                    end += len;
                    start = end;
                }
            }
        }
        if outcome == Outcome::Complete {
            outcome = self.data(source, record, start..end, emit)?;
        }
        if outcome == Outcome::Failed {
            return Ok(outcome);
        }
        if outcome == Outcome::Changed || source.is_changed().unwrap_or(true) {
            let changed = std::io::Error::other("it changed while it was read; what was read is kept");
            self.problem(&Error::io("read consistently", source.path(), changed));
            return Ok(Outcome::Changed);
        }
        Ok(outcome)
    }

    /// Reads and sends a range of data. If the file ends before the range, it changed.
    fn data(
        &mut self,
        source: &SourceFile,
        model: Option<&ModelRecord>,
        range: std::ops::Range<u64>,
        emit: &mut Emit<ReadBatch>,
    ) -> Result<Outcome> {
        let (mut offset, end) = (range.start, range.end);
        while offset < end {
            emit.check()?;
            let space_bytes = self.pool.buffer_bytes() as u64;
            let wanted = model.map_or(space_bytes, |model| bytes_to_boundary(model, offset, space_bytes));
            let want = (end - offset).min(wanted) as usize;
            let mut buffer = if (want as u64) < SMALL_BYTES { self.pool.small(want) } else { self.pool.take() };
            let space = buffer.space(want);
            let read = match source.read_full(space, offset) {
                Ok(read) => read,
                Err(error) => {
                    self.problem(&Error::io("read", source.path(), error));
                    return Ok(Outcome::Failed);
                }
            };
            offset += read as u64;
            self.counts.bytes_read.fetch_add(read as u64, Ordering::Relaxed);
            self.progress.bytes_read.add(read as u64);
            if read > 0 {
                self.push(ReadItem::Data(Bytes::from_owner(buffer.filled(read))), emit)?;
            }
            if read < want {
                return Ok(Outcome::Changed);
            }
        }
        Ok(Outcome::Complete)
    }
}

/// The item before a file's content: its record if it is a model, else its previous version.
pub(super) fn announced(
    model: Option<&Arc<ModelFile>>,
    previous_version: Option<ContentReference>,
    size: u64,
) -> Option<ReadItem> {
    match model {
        Some(model) => Some(ReadItem::Model(model.clone())),
        None => previous_version.filter(|_| size >= CHANGED_BYTES_MIN).map(ReadItem::PreviousVersion),
    }
}

/// Whether a file is unchanged since it was captured as `before`.
fn is_same(before: &Node, now: &Node) -> bool {
    let state = |node: &Node| (node.identity(), node.size, node.mtime, node.ctime);
    state(before) == state(now)
}

/// Bytes of a model file to read from `offset` on, at most `bytes_max`, so that the buffer ends at a block boundary: a
/// block inside one buffer is not copied.
fn bytes_to_boundary(model: &ModelRecord, offset: u64, bytes_max: u64) -> u64 {
    let at = model.tensors.partition_point(|tensor| tensor.offset + tensor.len <= offset);
    let Some(tensor) = model.tensors.get(at) else { return bytes_max };
    if offset < tensor.offset {
        return bytes_max.min(tensor.offset - offset);
    }
    let (inside, left) = (offset - tensor.offset, tensor.offset + tensor.len - offset);
    let whole = (inside + bytes_max) / model.block_bytes * model.block_bytes;
    if left <= bytes_max || whole <= inside { left.min(bytes_max) } else { whole - inside }
}

impl Source for ReadStage<'_> {
    type Out = ReadBatch;

    fn name(&self) -> &'static str {
        "read"
    }

    fn run(&mut self, emit: &mut Emit<ReadBatch>) -> Result<()> {
        self.send_hoisted(emit)?;
        while let Some(event) = self.walker.next() {
            emit.check()?;
            self.event(event, emit)?;
        }
        emit.emit(std::mem::take(&mut self.batch))
    }
}
