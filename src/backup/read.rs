//! Read: walks the source and reads what has changed.
//!
//! A file whose size, times and inode are those of the parent snapshot, whose times lie two seconds or more before the
//! parent's start and whose chunks are all present is not read: its entry names the parent's content. Holes are not
//! read either. Several names of one inode are read once. What cannot be read is reported, counted and left out.
//!
//! Models are recognised by their content and announced with a map of their tensors. Files that look like models by
//! their names are sent ahead of the walk, bases before what descends from them; where the walk meets such a file it
//! is sent as one whose content is known.

use std::collections::HashMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use lru::LruCache;

use super::buffers::BufferPool;
use super::parent::Parent;
use crate::backup::message::{Outcome, ReadBatch, ReadItem, TreeItem};
use crate::config::{Config, ModelConfig};
use crate::error::{Error, Result};
use crate::filesystem::{Capturer, Event, FileRange, SourceFile, Walker};
use crate::metrics::Progress;
use crate::model::ModelRecord;
use crate::model::detect::ModelFile;
use crate::model::detect::{DefectReporting, model_file};
use crate::model::order::{HoistCandidate, order};
use crate::pipeline::{Emit, Source};
use crate::repo::reader::at_least_one;
use crate::repo::recipe::ContentReference;
use crate::repo::tree::{FileIdentity, HoleMap, Node, NodeKind};

/// Items of a batch, at most.
const ITEMS_MAX: usize = 1024;
/// Smaller files get a buffer of their own size.
const SMALL_BYTES: u64 = 128 << 10;
/// Of larger files the last version is named: float chunks may be deltas to it.
const CHANGED_BYTES_MIN: u64 = 64 << 10;
/// Memory for what is known of models that wait to be put in order; what is beyond is not sent ahead.
const HOISTED_BYTES_MAX: usize = 16 << 20;

/// What Read counted; the engine reads it after the run.
#[derive(Debug, Default)]
pub struct ReadCounts {
    /// Entries that could not be read or changed meanwhile.
    pub problems: AtomicU64,
    /// Files not read because nothing changed.
    pub files_unchanged: AtomicU64,
    /// Bytes read from files.
    pub bytes_read: AtomicU64,
}

impl ReadCounts {
    /// Files not read because nothing changed.
    pub fn unchanged(&self) -> u64 {
        self.files_unchanged.load(Ordering::Relaxed)
    }
}

/// The stage.
pub struct ReadStage<'a> {
    walker: Walker,
    parent: Option<Parent>,
    pool: BufferPool,
    hole_bytes_min: u64,
    batch_bytes: u64,
    links: LruCache<FileIdentity, ()>,
    model: ModelConfig,
    /// Files that may be models, to be looked at before the walk.
    candidates: Vec<PathBuf>,
    /// What was sent ahead, as it was then.
    sent: HashMap<FileIdentity, Node>,
    batch: ReadBatch,
    progress: &'a Progress,
    counts: Arc<ReadCounts>,
}

impl<'a> ReadStage<'a> {
    /// Reads what `walker` finds; files unchanged since `parent` are skipped. `candidates` are files of the walk that may
    /// be models.
    pub fn new(
        walker: Walker,
        parent: Option<Parent>,
        candidates: Vec<PathBuf>,
        config: &Config,
        progress: &'a Progress,
        counts: Arc<ReadCounts>,
    ) -> Self {
        let batch_bytes = config.pipeline.batch_bytes.0;
        ReadStage {
            walker,
            parent,
            pool: BufferPool::new(batch_bytes as usize, 4 * config.pipeline.queue_depth + 8),
            hole_bytes_min: config.read.hole_bytes_min.0,
            batch_bytes,
            links: LruCache::new(at_least_one(config.read.hard_links_max)),
            model: config.model.clone(),
            candidates,
            sent: HashMap::new(),
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
                if let Some(parent) = &mut self.parent {
                    parent.enter(&node);
                }
                self.push(ReadItem::Tree(TreeItem::Enter(Box::new(node))), emit)
            }
            Event::Leave { .. } => {
                if let Some(parent) = &mut self.parent {
                    parent.leave();
                }
                self.push(ReadItem::Tree(TreeItem::Leave), emit)
            }
            Event::Entry { node, .. } if node.kind == NodeKind::File => self.file(node, emit),
            Event::Entry { node, .. } => self.push(ReadItem::Tree(TreeItem::Entry(Box::new(node))), emit),
            Event::Problem { error, .. } => {
                self.problem(&error);
                Ok(())
            }
            Event::Skipped { path } => {
                tracing::info!("leaving out {}: it is the repository or its cache", path.display());
                Ok(())
            }
        }
    }

    fn file(&mut self, mut node: Node, emit: &mut Emit<ReadBatch>) -> Result<()> {
        if let Some(identity) = node.hard_link
            && self.links.get(&identity).is_some()
        {
            return self.push(ReadItem::Tree(TreeItem::Linked(Box::new(node))), emit);
        }
        if let Some(content) = self.parent.as_mut().and_then(|parent| parent.unchanged(&mut node)) {
            node.content = content;
            self.counts.files_unchanged.fetch_add(1, Ordering::Relaxed);
            self.progress.bytes_read.add(node.size);
            if let Some(identity) = node.hard_link.filter(|_| content.is_some()) {
                self.links.put(identity, ());
            }
            return self.push(ReadItem::Tree(TreeItem::Entry(Box::new(node))), emit);
        }
        if self.sent.get(&node.identity()).is_some_and(|sent| is_same(sent, &node)) {
            if let Some(identity) = node.hard_link {
                self.links.put(identity, ());
            }
            return self.push(ReadItem::Tree(TreeItem::Linked(Box::new(node))), emit);
        }
        let last_version = self.parent.as_ref().and_then(Parent::last_version);
        let source = match self.walker.open_file(&node) {
            Ok(source) => source,
            Err(error) => {
                self.problem(&error);
                return Ok(());
            }
        };
        source.refresh(&mut node);
        let hard_link = node.hard_link;
        let model = model_file(
            &source,
            &self.model,
            last_version.and_then(ContentReference::fingerprint),
            DefectReporting::Warn,
        );
        let outcome = self.send(&source, TreeItem::Begin(Box::new(node)), (model, last_version), emit)?;
        if let Some(identity) = hard_link.filter(|_| outcome != Outcome::Failed) {
            self.links.put(identity, ());
        }
        Ok(())
    }

    /// Sends a file from its begin to its end.
    fn send(
        &mut self,
        source: &SourceFile,
        begin: TreeItem,
        (model, last_version): (Result<Option<Arc<ModelFile>>>, Option<ContentReference>),
        emit: &mut Emit<ReadBatch>,
    ) -> Result<Outcome> {
        self.push(ReadItem::Tree(begin), emit)?;
        let mut small_holes = HoleMap::default();
        let outcome = match model {
            Ok(model) => {
                if let Some(item) = announced(model.as_ref(), last_version, source.size()) {
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

    /// Sends the contents of models that are new, bases first.
    fn send_hoisted(&mut self, emit: &mut Emit<ReadBatch>) -> Result<()> {
        let (capturer, mut waiting, mut bytes) = (Capturer::new(), Vec::new(), 0);
        for path in std::mem::take(&mut self.candidates) {
            emit.check()?;
            let Some((node, source)) = self.open_candidate(&capturer, &path) else { continue };
            // The walk reports what is wrong with it.
            let Ok(Some(model)) = model_file(&source, &self.model, None, DefectReporting::Silent) else { continue };
            let Some(ModelFile { record, .. }) = Arc::into_inner(model) else { continue };
            bytes += record.memory_bytes();
            waiting.push(HoistCandidate { path, node, record });
            if bytes > HOISTED_BYTES_MAX {
                break;
            }
        }
        for HoistCandidate { path, node: before, record } in if waiting.len() > 1 { order(waiting) } else { Vec::new() }
        {
            let Some((node, source)) = self.open_candidate(&capturer, &path) else { continue };
            let model = match is_same(&before, &node) {
                true => Ok(Some(Arc::new(ModelFile { record, last_version: None }))),
                false => model_file(&source, &self.model, None, DefectReporting::Warn),
            };
            let begin = TreeItem::Hoisted(Box::new(node.clone()));
            if self.send(&source, begin, (model, None), emit)? == Outcome::Complete {
                self.sent.insert(node.identity(), node);
            }
        }
        Ok(())
    }

    /// Opens a file that may be a new model; `None` if the parent snapshot is likely to know it or it cannot be read.
    fn open_candidate(&self, capturer: &Capturer, path: &Path) -> Option<(Node, SourceFile)> {
        let mut node = capturer.capture_path(path, false, &mut Vec::new()).ok()?;
        if node.kind != NodeKind::File || self.parent.as_ref().is_some_and(|parent| parent.is_older(&node)) {
            return None;
        }
        let source = SourceFile::open(path, &node).ok()?;
        source.refresh(&mut node);
        Some((node, source))
    }

    /// Sends data and long holes; short holes are sent as data and noted in `small_holes`.
    fn content(
        &mut self,
        source: &SourceFile,
        model: Option<&ModelFile>,
        small_holes: &mut HoleMap,
        emit: &mut Emit<ReadBatch>,
    ) -> Result<Outcome> {
        let record = model.map(|model| &model.record);
        let mut outcome = Outcome::Complete;
        // Data not sent yet, and the end of what was looked at.
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

    /// Reads a stretch of data. The file may end early: then it changed.
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
            let want =
                (end - offset).min(model.map_or(space_bytes, |model| stretch(model, offset, space_bytes))) as usize;
            let mut buffer = if (want as u64) < SMALL_BYTES { self.pool.small(want) } else { self.pool.take() };
            let space = buffer.space(want);
            let read = match read_full(source.file(), space, offset) {
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

/// What is said of a file before its content: that it is a model, or what it was in the parent snapshot.
fn announced(model: Option<&Arc<ModelFile>>, last_version: Option<ContentReference>, size: u64) -> Option<ReadItem> {
    match model {
        Some(model) => Some(ReadItem::Model(model.clone())),
        None => last_version.filter(|_| size >= CHANGED_BYTES_MIN).map(ReadItem::PreviousVersion),
    }
}

/// Whether a file is as it was when it was captured before.
fn is_same(before: &Node, now: &Node) -> bool {
    let state = |node: &Node| (node.identity(), node.size, node.mtime, node.ctime);
    state(before) == state(now)
}

/// How many bytes of a model to read from `offset` on, at most `bytes_max`, so that a buffer ends where a block does: a
/// block that lies in one buffer need not be copied.
fn stretch(model: &ModelRecord, offset: u64, bytes_max: u64) -> u64 {
    let at = model.tensors.partition_point(|tensor| tensor.offset + tensor.len <= offset);
    let Some(tensor) = model.tensors.get(at) else { return bytes_max };
    if offset < tensor.offset {
        return bytes_max.min(tensor.offset - offset);
    }
    let (inside, left) = (offset - tensor.offset, tensor.offset + tensor.len - offset);
    let whole = (inside + bytes_max) / model.block_bytes * model.block_bytes;
    if left <= bytes_max || whole <= inside { left.min(bytes_max) } else { whole - inside }
}

/// Reads until `space` is full or the file ends; gives how much of it is filled.
///
/// # Errors
/// Those of the system.
pub fn read_full(file: &std::fs::File, space: &mut [u8], offset: u64) -> std::io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = space.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
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
