//! Plan: walks the tree of a snapshot, creates its entries and decides which frames make up which bytes of each file.
//!
//! 1. Directories, links and special files are created at once. Files are created empty.
//! 2. Each chunk of a file enters a window, in the order of the snapshot. The frame cache learns its frames then.
//! 3. The oldest chunk leaves the window and joins a job. The frame cache, which now knows the later uses of each
//!    frame, says which frames the job loads and which are evicted after it. The later stages only follow.
//! 4. If a chunk cannot be located, only its file is lost.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use lru::LruCache;

use super::frame_cache::{FrameCache, FrameSource};
use super::message::{FrameLoad, InodeNames, OpenFiles, RestoreCounts, RestoreFile, RestoreJob, WriteChunk};
use crate::config::RestoreConfig;
use crate::error::{Error, Result};
use crate::filesystem::{Descent, Target};
use crate::pipeline::{Emit, Source};
use crate::repo::container::FrameInfo;
use crate::repo::reader::{ChunkReader, RecipeWalk, at_least_one};
use crate::repo::recipe::ContentReference;
use crate::repo::tree::{FileIdentity, Node, NodeKind, TreeCursor};
use crate::types::ContainerId;

/// A job is sent once it has this many bytes to write.
const JOB_BYTES: u64 = 1 << 20;
/// A job is sent once its frames decode to this many bytes.
const LOAD_BYTES: u64 = 4 << 20;
/// A job is sent once it has this many complete files.
const JOB_FILES: usize = 16;
/// The window takes at most one part in this many of the cache's bytes. Of shares from 1/8 to 3/8, this one decoded the
/// fewest frames for a restore of root file systems.
const WINDOW_SHARE: u64 = 5;
/// Maximum number of remembered inodes with several names.
const INODES_MAX: usize = 1 << 20;

/// An item of the window, in the order of the snapshot.
enum WindowItem {
    Write(WriteChunk),
    Finished(Arc<RestoreFile>),
}

impl WindowItem {
    /// Memory of the item, bytes.
    fn bytes(&self) -> u64 {
        let extents = if let WindowItem::Write(write) = self { write.extent_map.memory_bytes() } else { 0 };
        (size_of::<WindowItem>() + extents) as u64
    }
}

/// The stage.
pub struct PlanStage {
    reader: ChunkReader,
    root: Option<ContentReference>,
    descent: Descent,
    counts: Arc<RestoreCounts>,
    open_files: Arc<OpenFiles>,
    inodes: LruCache<FileIdentity, Arc<Mutex<InodeNames>>>,
    job: RestoreJob,
    window: VecDeque<WindowItem>,
    /// Memory of the window. It counts against `cache_bytes_max`.
    window_bytes: u64,
    cache_bytes_max: u64,
    /// Items that entered the window so far. An item's step is this count at its entry.
    entered: u64,
    /// Items that left the window so far.
    left: u64,
    /// Frames that are cached when the oldest item of the window joins a job.
    cached: FrameCache<(ContainerId, FrameInfo)>,
}

impl PlanStage {
    /// Plans the restore of the tree `root` into `target`.
    pub fn new(
        reader: ChunkReader,
        root: Option<ContentReference>,
        target: Arc<Target>,
        config: &RestoreConfig,
        counts: Arc<RestoreCounts>,
    ) -> Self {
        PlanStage {
            reader,
            root,
            descent: Descent::new(target),
            counts,
            open_files: Arc::default(),
            inodes: LruCache::new(at_least_one(INODES_MAX)),
            job: RestoreJob::default(),
            window: VecDeque::new(),
            window_bytes: 0,
            cache_bytes_max: config.cache_bytes.0,
            entered: 0,
            left: 0,
            cached: FrameCache::default(),
        }
    }

    fn tree(&mut self, emit: &mut Emit<RestoreJob>) -> Result<()> {
        let mut levels: Vec<(TreeCursor, Option<Node>)> = vec![(TreeCursor::open(self.root), None)];
        while let Some((cursor, _)) = levels.last_mut() {
            emit.check()?;
            let next = match cursor.next(&mut self.reader) {
                Ok(next) => next,
                Err(error) if error.is_unreadable() => {
                    self.counts.unreadable(&error, &self.descent.path().display().to_string());
                    None
                }
                Err(error) => return Err(error),
            };
            match next {
                None => {
                    let level = levels.pop();
                    if let Some((_, Some(node))) = level {
                        self.leave(&node);
                    }
                }
                Some(node) if node.kind == NodeKind::Directory => {
                    if self.enter(&node) {
                        levels.push((TreeCursor::open(node.content), Some(node)));
                    }
                }
                Some(node) => self.entry(node, emit)?,
            }
        }
        Ok(())
    }

    /// Creates and enters a directory. Returns whether that succeeded.
    fn enter(&mut self, node: &Node) -> bool {
        match self.descent.enter(node) {
            Ok(()) => {
                self.counts.directories.add(1);
                true
            }
            Err(error) => {
                self.counts.problem(&error);
                false
            }
        }
    }

    fn leave(&mut self, node: &Node) {
        let mut problems = Vec::new();
        if let Err(error) = self.descent.leave(Some(node), &mut problems) {
            problems.push(error);
        }
        problems.iter().for_each(|error| self.counts.problem(error));
    }

    /// Creates an entry that is not a directory.
    fn entry(&mut self, node: Node, emit: &mut Emit<RestoreJob>) -> Result<()> {
        if let Some(names) = node.hard_link.and_then(|identity| self.inodes.get(&identity)).cloned() {
            self.link(&node, &names);
            return Ok(());
        }
        if node.kind == NodeKind::File {
            return self.file(node, emit);
        }
        let path = self.descent.path().join(name_of(&node));
        let mut problems = Vec::new();
        let is_created = match node.kind {
            NodeKind::Symlink => self.descent.create_symlink(&node, &mut problems).map(|()| true),
            _ => self.descent.create_special(&node, &mut problems),
        };
        problems.iter().for_each(|error| self.counts.problem(error));
        match is_created {
            Ok(true) => {
                self.counts.others.add(1);
                if let Some(identity) = node.hard_link {
                    let names = InodeNames { paths: vec![path], is_lost: false };
                    self.inodes.put(identity, Arc::new(Mutex::new(names)));
                }
            }
            Ok(false) => tracing::warn!("{}: not restored: only a server can create its socket", path.display()),
            Err(error) => self.counts.problem(&error),
        }
        Ok(())
    }

    /// Creates a further hard link of an inode.
    fn link(&self, node: &Node, names: &Mutex<InodeNames>) {
        let mut names = names.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.descent.path().join(name_of(node));
        let Some(first) = names.paths.first().filter(|_| !names.is_lost) else {
            let error = Error::corrupt(path.display().to_string(), 0, "the content of its first hard link", "none");
            self.counts.unreadable(&error, "");
            return;
        };
        match self.descent.create_hard_link(first, node) {
            Ok(()) if node.kind == NodeKind::File => self.counts.files.add(1),
            Ok(()) => self.counts.others.add(1),
            Err(error) => self.counts.problem(&error),
        }
        names.paths.push(path);
    }

    /// Creates a file and adds its chunks to the window.
    fn file(&mut self, node: Node, emit: &mut Emit<RestoreJob>) -> Result<()> {
        if self.open_files.is_full() {
            // A permit returns only when a complete file has left this stage.
            self.flush_half(emit)?;
        }
        let permit = self.open_files.take();
        let file = match self.descent.create_file(&node) {
            Ok(file) => file,
            Err(error) => {
                self.counts.problem(&error);
                return Ok(());
            }
        };
        let path = self.descent.path().join(name_of(&node));
        let names = Arc::new(Mutex::new(InodeNames { paths: vec![path.clone()], is_lost: false }));
        if let Some(identity) = node.hard_link {
            self.inodes.put(identity, names.clone());
        }
        let content = node.content;
        let file = Arc::new(RestoreFile::new(file, path, node, names, permit));
        if let Some(content) = content {
            match self.content(&file, content, emit) {
                Err(error) if error.is_unreadable() => file.fail(error),
                other => other?,
            }
        }
        self.push(WindowItem::Finished(file), emit)
    }

    fn content(
        &mut self,
        file: &Arc<RestoreFile>,
        content: ContentReference,
        emit: &mut Emit<RestoreJob>,
    ) -> Result<()> {
        let mut walk = RecipeWalk::new(content);
        let mut offset = 0u64;
        while let Some(reference) = walk.next(&mut self.reader)? {
            emit.check()?;
            match reference {
                ContentReference::Chunk { fingerprint, len } => {
                    let entry = self.reader.entry_of(&fingerprint)?;
                    let extent_map = self.reader.extent_map(entry)?;
                    if u64::from(extent_map.len()) != len {
                        let expected = format!("chunk {fingerprint} of {len} bytes");
                        return Err(Error::corrupt("recipe", offset, expected, extent_map.len().to_string()));
                    }
                    let resolver = &mut self.reader.resolver;
                    self.cached.announce(self.entered, extent_map.frames(), |frame| {
                        let (container, info) = resolver.frame_info(frame)?;
                        let bytes = u64::from(info.raw_len);
                        Ok(FrameSource { location: (container, info), bytes })
                    })?;
                    let file = file.clone();
                    self.push(WindowItem::Write(WriteChunk { file, offset, fingerprint, extent_map }), emit)?;
                }
                ContentReference::Hole { .. } => {}
                ContentReference::Recipe { .. } => {
                    return Err(Error::corrupt("recipe", offset, "a chunk or a hole", "a recipe"));
                }
            }
            offset += reference.content_len();
        }
        match file.set_len(offset) {
            Err(error) if !error.is_full_disk() => file.fail(error),
            other => other?,
        }
        Ok(())
    }

    /// Adds an item to the window. While all frames fit into half of the cache, the window stays empty, because nothing
    /// is evicted. After that it grows by three items of four, so the later stages have work meanwhile.
    fn push(&mut self, item: WindowItem, emit: &mut Emit<RestoreJob>) -> Result<()> {
        self.window_bytes += item.bytes();
        self.window.push_back(item);
        self.entered += 1;
        if self.entered.is_multiple_of(4) || self.cached.bytes() <= self.cache_bytes_max / 2 {
            self.pop(emit)?;
        }
        while self.window_bytes > self.cache_bytes_max / WINDOW_SHARE {
            self.pop(emit)?;
        }
        Ok(())
    }

    /// Moves the oldest item of the window into the job, and sends the job when it is full.
    fn pop(&mut self, emit: &mut Emit<RestoreJob>) -> Result<()> {
        let Some(item) = self.window.pop_front() else { return Ok(()) };
        self.window_bytes -= item.bytes();
        match item {
            WindowItem::Finished(file) => self.job.finished.push(file),
            WindowItem::Write(write) => {
                for frame in write.extent_map.frames() {
                    let Some(FrameSource { location, bytes }) = self.cached.take(self.left, *frame) else { continue };
                    let (container, info) = location;
                    self.job.load_bytes += bytes;
                    self.counts.frames.add(1);
                    self.counts.frame_bytes.add(bytes);
                    self.job.loads.push(FrameLoad::new(*frame, container, info));
                }
                self.job.bytes += u64::from(write.extent_map.len());
                self.job.writes.push(write);
            }
        }
        self.left += 1;
        let RestoreJob { bytes, load_bytes, finished, .. } = &self.job;
        let is_full = *bytes >= JOB_BYTES || *load_bytes >= LOAD_BYTES || finished.len() >= JOB_FILES;
        if is_full { self.flush(emit) } else { Ok(()) }
    }

    /// Sends the older half of the window, and more if it has no complete file.
    fn flush_half(&mut self, emit: &mut Emit<RestoreJob>) -> Result<()> {
        let half = self.window.len() / 2;
        let mut any_finished = !self.job.finished.is_empty();
        while self.window.len() > half || !any_finished {
            let Some(item) = self.window.front() else { break };
            any_finished |= matches!(item, WindowItem::Finished(_));
            self.pop(emit)?;
        }
        self.flush(emit)
    }

    fn flush(&mut self, emit: &mut Emit<RestoreJob>) -> Result<()> {
        let mut job = std::mem::take(&mut self.job);
        job.evicted = self.cached.evict(self.cache_bytes_max.saturating_sub(self.window_bytes));
        emit.emit(job)
    }
}

fn name_of(node: &Node) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    PathBuf::from(std::ffi::OsStr::from_bytes(&node.name))
}

impl Source for PlanStage {
    type Out = RestoreJob;

    fn name(&self) -> &'static str {
        "plan"
    }

    fn run(&mut self, emit: &mut Emit<RestoreJob>) -> Result<()> {
        self.tree(emit)?;
        while !self.window.is_empty() {
            emit.check()?;
            self.pop(emit)?;
        }
        self.flush(emit)
    }
}
