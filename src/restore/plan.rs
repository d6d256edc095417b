//! Plan: walks a snapshot's tree, creates its entries, and says which frames make which bytes of which file.
//!
//! The order of a file's chunks decides the order of reading. What Plan comes upon waits in a window before it becomes
//! part of a job, so Plan knows what is needed next when it runs the frame cache ahead of time: which frames a job
//! needs, which of them are cached then, and which are dropped after it. It writes that into the job; the stages
//! behind only carry it out. A chunk that cannot be located costs its file, not the rest.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use lru::LruCache;

use super::frame_cache::FrameCache;
use super::message::{
    FrameLoad, NamesOfInode, OpenFiles, RestoreCounts, RestoreFile, RestoreJob, WriteChunk, is_damage,
};
use crate::config::RestoreConfig;
use crate::error::{Error, Result};
use crate::filesystem::{Descent, Target};
use crate::pipeline::{Emit, Source};
use crate::repo::container::FrameInfo;
use crate::repo::reader::{ChunkReader, RecipeWalk, at_least_one};
use crate::repo::recipe::Reference;
use crate::repo::tree::{FileIdentity, Node, NodeKind, TreeCursor};
use crate::types::ContainerId;

/// Output bytes after which a job is sent.
const JOB_BYTES: u64 = 1 << 20;
/// Frame bytes to load after which a job is sent.
const LOAD_BYTES: u64 = 4 << 20;
/// Files of a job, at most.
const JOB_FILES: usize = 16;
/// Share of the cache's bytes that the window may take: one in so many. Of an eighth to three eighths, this one decoded
/// least for a restore of root file systems.
const WINDOW_SHARE: u64 = 5;
/// Inodes with several names remembered, at most.
const INODES_MAX: usize = 1 << 20;

/// What waits in the window, in the order of the snapshot.
enum WindowItem {
    Write(WriteChunk),
    Finished(Arc<RestoreFile>),
}

impl WindowItem {
    /// Memory it takes, bytes.
    fn bytes(&self) -> u64 {
        let runs = if let WindowItem::Write(write) = self { write.extent_map.memory_bytes() } else { 0 };
        (size_of::<WindowItem>() + runs) as u64
    }
}

/// The stage.
pub struct PlanStage {
    reader: ChunkReader,
    root: Option<Reference>,
    descent: Descent,
    counts: Arc<RestoreCounts>,
    open_files: Arc<OpenFiles>,
    inodes: LruCache<FileIdentity, Arc<Mutex<NamesOfInode>>>,
    job: RestoreJob,
    window: VecDeque<WindowItem>,
    /// Memory of the window, counted in what the cache may take.
    window_bytes: u64,
    cache_bytes_max: u64,
    /// What came into the window so far, and what left it.
    announced: u64,
    taken: u64,
    /// LoadedFrames cached where the window begins.
    cached: FrameCache<(ContainerId, FrameInfo)>,
}

impl PlanStage {
    /// Plans the restore of the tree `root` into `target`.
    pub fn new(
        reader: ChunkReader,
        root: Option<Reference>,
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
            announced: 0,
            taken: 0,
            cache_bytes_max: config.cache_bytes.0,
            cached: FrameCache::default(),
        }
    }

    fn tree(&mut self, emit: &mut Emit<RestoreJob>) -> Result<()> {
        let mut levels: Vec<(TreeCursor, Option<Node>)> = vec![(TreeCursor::open(self.root), None)];
        while let Some((cursor, _)) = levels.last_mut() {
            emit.check()?;
            let next = match cursor.next(&mut self.reader) {
                Ok(next) => next,
                Err(error) if is_damage(&error) => {
                    self.counts.damage(&error, &self.descent.path().display().to_string());
                    None
                }
                Err(error) => return Err(error),
            };
            match next {
                None => {
                    let left = levels.pop();
                    if let Some((_, Some(node))) = left {
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

    fn entry(&mut self, node: Node, emit: &mut Emit<RestoreJob>) -> Result<()> {
        if let Some(known) = node.hard_link.and_then(|identity| self.inodes.get(&identity)).cloned() {
            self.link(&node, &known);
            return Ok(());
        }
        if node.kind == NodeKind::File {
            return self.file(node, emit);
        }
        let mut problems = Vec::new();
        let made = match node.kind {
            NodeKind::Symlink => self.descent.create_symlink(&node, &mut problems).map(|()| true),
            _ => self.descent.create_special(&node, &mut problems),
        };
        problems.iter().for_each(|error| self.counts.problem(error));
        match made {
            Ok(true) => {
                self.counts.others.add(1);
                if let Some(identity) = node.hard_link {
                    let names = NamesOfInode { names: vec![self.descent.path().join(name_of(&node))], failed: false };
                    self.inodes.put(identity, Arc::new(Mutex::new(names)));
                }
            }
            Ok(false) => {
                let path = self.descent.path().join(name_of(&node));
                tracing::warn!("{}: not restored: sockets are made by their servers", path.display());
            }
            Err(error) => self.counts.problem(&error),
        }
        Ok(())
    }

    /// Another name of an inode restored before.
    fn link(&self, node: &Node, known: &Mutex<NamesOfInode>) {
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.descent.path().join(name_of(node));
        let Some(first) = known.names.first().filter(|_| !known.failed) else {
            let error = Error::corrupt(path.display().to_string(), 0, "the content of its first name", "none");
            self.counts.damage(&error, "");
            return;
        };
        match self.descent.create_hard_link(first, node) {
            Ok(()) if node.kind == NodeKind::File => self.counts.files.add(1),
            Ok(()) => self.counts.others.add(1),
            Err(error) => self.counts.problem(&error),
        }
        known.names.push(path);
    }

    fn file(&mut self, node: Node, emit: &mut Emit<RestoreJob>) -> Result<()> {
        if self.open_files.is_full() {
            // What keeps files open must be on its way before this waits for it.
            self.release(emit)?;
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
        let names = Arc::new(Mutex::new(NamesOfInode { names: vec![path.clone()], failed: false }));
        if let Some(identity) = node.hard_link {
            self.inodes.put(identity, names.clone());
        }
        let content = node.content;
        let file = Arc::new(RestoreFile::new(file, path, node, names, permit));
        if let Some(content) = content {
            match self.content(&file, content, emit) {
                Err(error) if is_damage(&error) => file.fail(error),
                other => other?,
            }
        }
        self.wait(WindowItem::Finished(file), emit)
    }

    fn content(&mut self, file: &Arc<RestoreFile>, content: Reference, emit: &mut Emit<RestoreJob>) -> Result<()> {
        let mut walk = RecipeWalk::new(content);
        let mut offset = 0u64;
        while let Some(reference) = walk.next(&mut self.reader)? {
            emit.check()?;
            match reference {
                Reference::Chunk { fingerprint, len } => {
                    let entry = self.reader.entry_of(&fingerprint)?;
                    let extent_map = self.reader.extent_map(entry)?;
                    if u64::from(extent_map.len()) != len {
                        let expected = format!("chunk {fingerprint} of {len} bytes");
                        return Err(Error::corrupt("recipe", offset, expected, extent_map.len().to_string()));
                    }
                    let resolver = &mut self.reader.resolver;
                    self.cached.announce(self.announced, extent_map.frames(), |frame| {
                        let (container, info) = resolver.frame_place(frame)?;
                        let bytes = u64::from(info.raw_len);
                        Ok(((container, info), bytes))
                    })?;
                    let file = file.clone();
                    self.wait(WindowItem::Write(WriteChunk { file, offset, fingerprint, extent_map }), emit)?;
                }
                Reference::Hole { .. } => {}
                Reference::Recipe { .. } => {
                    return Err(Error::corrupt("recipe", offset, "a chunk or a hole", "a recipe"));
                }
            }
            offset += reference.content_len();
        }
        file.set_len(offset)
    }

    /// Puts something into the window. While all frames fit there is nothing to look ahead for; from then on the window
    /// grows by three of four, so that work goes on meanwhile.
    fn wait(&mut self, waiting: WindowItem, emit: &mut Emit<RestoreJob>) -> Result<()> {
        self.window_bytes += waiting.bytes();
        self.window.push_back(waiting);
        self.announced += 1;
        if self.announced.is_multiple_of(4) || self.cached.bytes() <= self.cache_bytes_max / 2 {
            self.take(emit)?;
        }
        while self.window_bytes > self.cache_bytes_max / WINDOW_SHARE {
            self.take(emit)?;
        }
        Ok(())
    }

    /// Makes what waits longest part of the job, and sends the job when it is full.
    fn take(&mut self, emit: &mut Emit<RestoreJob>) -> Result<()> {
        let Some(first) = self.window.pop_front() else { return Ok(()) };
        self.window_bytes -= first.bytes();
        match first {
            WindowItem::Finished(file) => self.job.finished.push(file),
            WindowItem::Write(write) => {
                for frame in write.extent_map.frames() {
                    let Some(((container, info), bytes)) = self.cached.take(self.taken, *frame) else { continue };
                    self.job.load_bytes += bytes;
                    self.counts.frames.add(1);
                    self.counts.frame_bytes.add(bytes);
                    self.job.loads.push(FrameLoad::new(*frame, container, info));
                }
                self.job.bytes += u64::from(write.extent_map.len());
                self.job.writes.push(write);
            }
        }
        self.taken += 1;
        let RestoreJob { bytes, load_bytes, finished, .. } = &self.job;
        let is_full = *bytes >= JOB_BYTES || *load_bytes >= LOAD_BYTES || finished.len() >= JOB_FILES;
        if is_full { self.flush(emit) } else { Ok(()) }
    }

    /// Sends half of the window, and with it at least one file that is complete, if there is one.
    fn release(&mut self, emit: &mut Emit<RestoreJob>) -> Result<()> {
        let half = self.window.len() / 2;
        let mut any_finished = !self.job.finished.is_empty();
        while self.window.len() > half || !any_finished {
            let Some(first) = self.window.front() else { break };
            any_finished |= matches!(first, WindowItem::Finished(_));
            self.take(emit)?;
        }
        self.flush(emit)
    }

    fn flush(&mut self, emit: &mut Emit<RestoreJob>) -> Result<()> {
        let mut job = std::mem::take(&mut self.job);
        job.dropped = self.cached.evict(self.cache_bytes_max.saturating_sub(self.window_bytes));
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
            self.take(emit)?;
        }
        self.flush(emit)
    }
}

/// LoadedFrames by number, as the jobs carry them.
pub type LoadedFrames = HashMap<u64, super::message::LoadedFrame>;
