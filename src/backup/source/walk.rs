//! Walk: walks the source and says what is to be read, in the order of the stream. Read does it.
//!
//! - A file is not read if its size, times and inode equal those in a parent snapshot, its times are at least a minute
//!   older than that snapshot, and all its chunks are present. Its entry refers to the parent's content. A file of
//!   size 0 is always read: some file systems do not know the sizes of their files. So is one of a mounted image that
//!   another image may have replaced.
//! - A file of up to a batch is one task, which also opens it. A larger file is opened here and read in ranges.
//! - Holes are not read. An inode with several names is read once, if size and times show that it is still the same
//!   file: the system gives the inode number of a deleted file to the next new one.
//! - An entry that cannot be read is reported, counted and left out.
//! - Model files are recognised by their content and announced with a record of their tensors.
//! - Files whose names look like models are hoisted: they are sent before the walk, bases before their descendants.
//!   When the walk meets a hoisted file it sends the entry without content.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lru::LruCache;

use super::open_rule::OpenRule;
use super::parents::ParentCursors;
use super::reading::{FileToRead, OpenedFile, WalkBatch, WalkItem, announced, bytes_at_once};
use crate::backup::changes::{self, EntryChange};
use crate::backup::counts::ReadCounts;
use crate::backup::message::{ITEMS_MAX, Outcome, ReadItem, TreeItem};
use crate::backup::sent::SentFile;
use crate::config::{Config, ModelConfig};
use crate::error::{Error, Result};
use crate::filesystem::{Capturer, Event, Exclusion, FileRange, SourceFile, Walker};
use crate::metrics::Progress;
use crate::model::{
    DefectReporting, HOISTED_BYTES_MAX, HoistCandidate, ModelFile, ModelRecord, model_file, storing_order,
};
use crate::opened::looks_open;
use crate::pipeline::{Emit, Source};
use crate::repo::read::at_least_one;
use crate::repo::recipe::ContentReference;
use crate::repo::tree::{FileIdentity, FileState, HoleMap, Node, NodeKind};

/// Files of a batch, at most: more would leave other workers idle.
const FILES_MAX: usize = 32;
/// Directories that a batch keeps open, at most.
const DIRECTORIES_MAX: usize = 4;
/// First bytes of a file that say whether it may be opened.
const HEAD_BYTES: usize = 64;
/// Time between two looks at a file that others read.
const PATIENCE: Duration = Duration::from_millis(20);

/// The stage.
pub struct WalkStage<'a> {
    walker: Walker,
    /// The directory that relative paths of the walk begin at.
    current: Option<PathBuf>,
    parents: ParentCursors,
    hole_bytes_min: u64,
    batch_bytes: u64,
    /// Inodes with several names whose content was sent, in the state in which they were sent.
    links: LruCache<FileIdentity, (FileState, SentFile)>,
    model: ModelConfig,
    /// Which files are opened.
    open_rule: OpenRule,
    /// Files that may be models, examined before the walk.
    candidates: Vec<PathBuf>,
    /// Hoisted files in the state in which they were sent.
    hoisted: HashMap<FileIdentity, (FileState, SentFile)>,
    batch: WalkBatch,
    /// A given path that is the repository or its cache.
    own: Option<PathBuf>,
    /// Whether there was anything else.
    is_any_other: bool,
    progress: &'a Progress,
    counts: Arc<ReadCounts>,
}

impl<'a> WalkStage<'a> {
    /// Reads the files of `walker` except those unchanged since one of `parents`. `candidates` are files of the walk
    /// that may be models.
    pub fn new(
        walker: Walker,
        parents: ParentCursors,
        candidates: Vec<PathBuf>,
        open_rule: OpenRule,
        config: &Config,
        progress: &'a Progress,
        counts: Arc<ReadCounts>,
    ) -> Self {
        let mut parents = parents;
        parents.count_into(&counts);
        let current = std::env::current_dir().ok();
        if let Some(root) = walker.root() {
            current.iter().for_each(|current| parents.locate_root(&current.join(walker.source())));
            if !root.partial {
                parents.watch(Path::new(""));
            }
        }
        WalkStage {
            walker,
            current,
            parents,
            hole_bytes_min: config.read.hole_bytes_min.0,
            batch_bytes: config.pipeline.batch_bytes.0,
            links: LruCache::new(at_least_one(config.read.hard_links_max)),
            model: config.model.clone(),
            open_rule,
            candidates,
            hoisted: HashMap::new(),
            batch: WalkBatch::default(),
            own: None,
            is_any_other: false,
            progress,
            counts,
        }
    }

    fn push(&mut self, item: WalkItem, emit: &mut Emit<WalkBatch>) -> Result<()> {
        self.batch.push(item);
        let WalkBatch { items, bytes, files, directories } = &self.batch;
        let is_full = *bytes >= self.batch_bytes || items.len() >= ITEMS_MAX;
        if is_full || *files >= FILES_MAX || directories.len() >= DIRECTORIES_MAX { self.flush(emit) } else { Ok(()) }
    }

    fn push_tree(&mut self, item: TreeItem, emit: &mut Emit<WalkBatch>) -> Result<()> {
        self.push(WalkItem::Ready(ReadItem::Tree(item)), emit)
    }

    /// Tells Save what the listing of the current directory was.
    fn push_former(&mut self, emit: &mut Emit<WalkBatch>) -> Result<()> {
        self.parents.listing().map_or(Ok(()), |content| self.push_tree(TreeItem::Former(content), emit))
    }

    fn flush(&mut self, emit: &mut Emit<WalkBatch>) -> Result<()> {
        if self.batch.items.is_empty() { Ok(()) } else { emit.emit(std::mem::take(&mut self.batch)) }
    }

    /// Waits until a file has been read. Returns whether other entries may refer to it.
    fn wait(&mut self, sent: &SentFile, emit: &mut Emit<WalkBatch>) -> Result<bool> {
        if let Some(is_shareable) = sent.is_shareable(Duration::ZERO) {
            return Ok(is_shareable);
        }
        // The file may be in the batch that is not sent yet.
        self.flush(emit)?;
        loop {
            if let Some(is_shareable) = sent.is_shareable(PATIENCE) {
                return Ok(is_shareable);
            }
            emit.check()?;
        }
    }

    fn problem(&self, error: &Error) {
        self.counts.problem(error, self.progress);
    }

    /// Remembers whether there is anything to store.
    fn note(&mut self, event: &Event) {
        match event {
            Event::Skipped { path } if self.walker.is_given() || path.as_os_str().is_empty() => {
                self.own = Some(self.walker.source().to_path_buf());
            }
            // Directories above a given path are partial.
            Event::Enter { node, .. } if node.partial => {}
            Event::Skipped { .. } | Event::Leave { .. } => {}
            _ => self.is_any_other = true,
        }
    }

    fn event(&mut self, event: Event, emit: &mut Emit<WalkBatch>) -> Result<()> {
        match event {
            Event::Enter { node, path } => {
                self.enter(&path, &node);
                self.push_tree(TreeItem::Enter(Box::new(node)), emit)?;
                self.push_former(emit)
            }
            Event::Leave { .. } => {
                self.parents.leave();
                self.push_tree(TreeItem::Leave(None), emit)
            }
            Event::Entry { node, path } if node.kind == NodeKind::File => self.file(&path, node, emit),
            Event::Entry { node, path } => {
                let change = self.parents.look(&node);
                self.counts.changes.entry(change, &path, &node);
                self.push_tree(TreeItem::Entry(Box::new(node)), emit)
            }
            Event::Problem { error, .. } => {
                self.problem(&error);
                self.parents.ignore();
                self.push_tree(TreeItem::Omitted, emit)
            }
            Event::Skipped { path } => {
                tracing::info!("skipping {}: it is the repository or its cache", path.display());
                self.push_tree(TreeItem::Omitted, emit)
            }
            Event::Excluded { path, reason } => {
                if reason != Exclusion::Share {
                    self.counts.excluded.fetch_add(1, Ordering::Relaxed);
                    tracing::debug!("excluding {}: {reason}", path.display());
                }
                match reason {
                    // The directory itself is stored, and marked by the walk.
                    Exclusion::FileSystem => Ok(()),
                    _ => self.push_tree(TreeItem::Omitted, emit),
                }
            }
        }
    }

    /// Enters a directory. All of it is stored, unless it is partial.
    fn enter(&mut self, path: &Path, node: &Node) {
        self.locate(node);
        self.parents.enter(node);
        if self.parents.change() == EntryChange::New && !node.partial {
            changes::name("+", path, node);
        }
        if !node.partial {
            self.parents.watch(path);
        }
    }

    /// Tells the parents where on disk the directory or given path `node` is.
    fn locate(&mut self, node: &Node) {
        if let Some(current) = &self.current {
            let path = current.join(self.walker.source());
            self.parents.locate(&node.name, &path, self.walker.is_given());
        }
    }

    fn file(&mut self, path: &Path, mut node: Node, emit: &mut Emit<WalkBatch>) -> Result<()> {
        if self.walker.is_given() {
            self.locate(&node);
        }
        self.open_rule.walk(&node);
        let may_be_other = self.walker.may_be_of_another_image(&node);
        let unchanged = self.parents.unchanged(&mut node, may_be_other);
        self.counts.changes.entry(self.parents.change(), path, &node);
        if let Some(sent) = self.sent(&node, emit)? {
            if unchanged.is_some() {
                self.counts.files_unchanged.fetch_add(1, Ordering::Relaxed);
            }
            self.walker.read_flags(&mut node).iter().for_each(|error| self.problem(error));
            return self.push_tree(TreeItem::Linked(Box::new(node), sent), emit);
        }
        if let Some(content) = unchanged.filter(|_| node.size > 0) {
            node.content = content;
            self.walker.read_flags(&mut node).iter().for_each(|error| self.problem(error));
            self.counts.files_unchanged.fetch_add(1, Ordering::Relaxed);
            self.progress.bytes_skipped.add(node.size);
            if let Some(identity) = node.hard_link.filter(|_| content.is_some()) {
                self.links.put(identity, (node.state(), SentFile::stored(content, node.size)));
            }
            return self.push_tree(TreeItem::Entry(Box::new(node)), emit);
        }
        let previous_version = self.parents.previous_version();
        let location = self.walker.location(&node);
        let may_open = self.open_rule.may_open(&node, previous_version);
        if node.size <= self.batch_bytes {
            let sent = self.begin_link(&node);
            let mut file = FileToRead::new(location, node, previous_version, sent);
            (file.was_empty, file.may_open, file.change) = (unchanged.is_some(), may_open, Some(self.parents.change()));
            return self.push(WalkItem::File(Box::new(file)), emit);
        }
        let source = match location.open(&node) {
            Ok(source) => source,
            Err(error) => {
                self.problem(&error);
                self.counts.changes.take_back(self.parents.change());
                return self.push_tree(TreeItem::Omitted, emit);
            }
        };
        source.refresh(&mut node).iter().for_each(|error| self.problem(error));
        let sent = self.begin_link(&node);
        let fingerprint = previous_version.and_then(ContentReference::fingerprint);
        let model = model_file(&source, &self.model, fingerprint, DefectReporting::Warn);
        let mut file = OpenedFile::new(source, sent);
        file.change = Some(self.parents.change());
        if may_open && matches!(model, Ok(None)) && is_openable(&file.source) {
            self.push_tree(TreeItem::Begin(Box::new(node)), emit)?;
            return self.push(WalkItem::Open { file: Arc::new(file), previous_version }, emit);
        }
        self.send(file, TreeItem::Begin(Box::new(node)), model, previous_version, emit)
    }

    /// The content of this file, if it was sent under another name or before the walk. Waits until it has been read.
    fn sent(&mut self, node: &Node, emit: &mut Emit<WalkBatch>) -> Result<Option<SentFile>> {
        let link = node.hard_link.and_then(|identity| self.links.get(&identity).cloned());
        let hoisted = self.hoisted.get(&node.identity()).cloned();
        for (state, sent) in link.into_iter().chain(hoisted) {
            if state == node.state() && self.wait(&sent, emit)? {
                return Ok(Some(sent));
            }
        }
        Ok(None)
    }

    /// Remembers a file with several names that is now to be read.
    fn begin_link(&mut self, node: &Node) -> Option<SentFile> {
        let (identity, sent) = (node.hard_link?, SentFile::default());
        self.links.put(identity, (node.state(), sent.clone()));
        Some(sent)
    }

    /// Sends a large file from its begin item to its end item.
    fn send(
        &mut self,
        mut file: OpenedFile,
        begin: TreeItem,
        model: Result<Option<Arc<ModelFile>>>,
        previous_version: Option<ContentReference>,
        emit: &mut Emit<WalkBatch>,
    ) -> Result<()> {
        self.push_tree(begin, emit)?;
        file.is_model = matches!(model, Ok(Some(_)));
        let file = Arc::new(file);
        let mut small_holes = HoleMap::default();
        match model {
            Ok(model) => {
                if let Some(item) = announced(model.as_ref(), previous_version, file.source.size()) {
                    self.push(WalkItem::Ready(item), emit)?;
                }
                self.content(&file, model.as_deref(), &mut small_holes, emit)?;
            }
            Err(error) => {
                self.problem(&error);
                file.worsen(Outcome::Failed);
            }
        }
        self.push(WalkItem::End { file, small_holes }, emit)
    }

    /// Sends the content of new models before the walk, bases first.
    fn send_hoisted(&mut self, emit: &mut Emit<WalkBatch>) -> Result<()> {
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
            let model = match before.state() == node.state() {
                true => Ok(Some(Arc::new(ModelFile { record, previous_version: None }))),
                false => model_file(&source, &self.model, None, DefectReporting::Warn),
            };
            let begin = TreeItem::Hoisted(Box::new(node.clone()));
            let sent = SentFile::default();
            self.send(OpenedFile::new(source, Some(sent.clone())), begin, model, None, emit)?;
            self.hoisted.insert(node.identity(), (node.state(), sent));
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
        let source = if self.walker.reads_holes() { source.without_holes() } else { source };
        // The walk meets the file again and reports what cannot be read.
        let _ = source.refresh(&mut node);
        Some((node, source))
    }

    /// Sends the data and long holes of a file. Short holes are sent as data and recorded in `small_holes`.
    fn content(
        &mut self,
        file: &Arc<OpenedFile>,
        model: Option<&ModelFile>,
        small_holes: &mut HoleMap,
        emit: &mut Emit<WalkBatch>,
    ) -> Result<()> {
        let record = model.map(|model| &model.record);
        // Start of the data that is not sent yet, and its end so far.
        let (mut start, mut end) = (0, 0);
        for range in file.source.ranges(1) {
            match range {
                FileRange::Data { offset, len } => end = offset + len,
                FileRange::Hole { len } if len < self.hole_bytes_min => {
                    small_holes.push(end, len);
                    end += len;
                }
                FileRange::Hole { len } => {
                    self.data(file, record, start..end, emit)?;
                    if file.outcome() != Outcome::Complete {
                        return Ok(());
                    }
                    self.push(WalkItem::Ready(ReadItem::Hole(len)), emit)?;
                    end += len;
                    start = end;
                }
            }
        }
        self.data(file, record, start..end, emit)
    }

    /// Sends a range of data as tasks. Stops early if a range could not be read.
    fn data(
        &mut self,
        file: &Arc<OpenedFile>,
        model: Option<&ModelRecord>,
        range: Range<u64>,
        emit: &mut Emit<WalkBatch>,
    ) -> Result<()> {
        let mut start = range.start;
        while start < range.end && file.outcome() == Outcome::Complete {
            emit.check()?;
            let len = bytes_at_once(model, start, self.batch_bytes).min(range.end - start);
            self.push(WalkItem::range(file, start..start + len), emit)?;
            start += len;
        }
        Ok(())
    }
}

/// Whether a large file begins as a stream that can be opened, and has no holes.
fn is_openable(source: &SourceFile) -> bool {
    let mut first = [0; HEAD_BYTES];
    let is_whole = !source.is_special() && source.ranges(1).all(|range| matches!(range, FileRange::Data { .. }));
    is_whole && source.read_full(&mut first, 0).is_ok_and(|read| looks_open(first.get(..read).unwrap_or_default()))
}

impl Source for WalkStage<'_> {
    type Out = WalkBatch;

    fn name(&self) -> &'static str {
        "walk"
    }

    fn run(&mut self, emit: &mut Emit<WalkBatch>) -> Result<()> {
        self.send_hoisted(emit)?;
        self.push_former(emit)?;
        while let Some(event) = self.walker.next() {
            emit.check()?;
            self.note(&event);
            self.event(event, emit)?;
        }
        if let Some(own) = self.own.take().filter(|_| !self.is_any_other) {
            let own = own.display();
            return Err(Error::Usage(format!("there is nothing to back up: {own} is the repository, or its cache")));
        }
        // What the parents have in the root behind the last entry.
        self.parents.leave();
        self.flush(emit)
    }
}
