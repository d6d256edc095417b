//! Plan: walks the tree of a snapshot, creates its entries and decides which frames make up which bytes of each file.
//!
//! 1. Directories, symbolic links and special files are created at once. Files are created empty, under temporary
//!    names. Hard links follow their file through the window, and Finish creates them.
//! 2. Each chunk of a file enters a window, in the order of the snapshot. The frame cache learns its frames then.
//! 3. The oldest chunk leaves the window and joins a job. The frame cache, which now knows the later uses of each
//!    frame, says which frames the job loads and which are evicted after it. The later stages only follow.
//! 4. A chunk that cannot be located is a lost range of its file, and so is a recipe that cannot be read.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use super::frame_cache::{FrameCache, FrameSource};
use super::inodes::Inodes;
use super::message::{
    FinishedEntry, FrameLoad, InodeState, OpenFiles, Permit, RestoreCounts, RestoreFile, RestoreJob, RestoreLink,
    WriteChunk,
};
use crate::config::RestoreConfig;
use crate::error::{Error, Result};
use crate::filesystem::{Descent, Target};
use crate::pipeline::{Emit, Source};
use crate::repo::container::FrameInfo;
use crate::repo::reader::{ChunkReader, RecipeWalk};
use crate::repo::recipe::ContentReference;
use crate::repo::tree::{Node, NodeKind, TreeCursor};
use crate::types::{ContainerId, Fingerprint};

/// A job is sent once it has this many bytes to write.
const JOB_BYTES: u64 = 1 << 20;
/// A job is sent once its frames decode to this many bytes.
const LOAD_BYTES: u64 = 4 << 20;
/// A job is sent once it has this many complete files.
const JOB_FILES: usize = 16;
/// The window takes at most one part in this many of the cache's bytes. Of shares from 1/8 to 3/8, this one decoded the
/// fewest frames for a restore of root file systems.
const WINDOW_SHARE: u64 = 5;
/// Inodes with several names are remembered in at most one part in this many of the cache's bytes.
const INODES_SHARE: u64 = 8;

/// An item of the window, in the order of the snapshot.
enum WindowItem {
    Write(WriteChunk),
    Finished(FinishedEntry),
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
    inodes: Inodes,
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
            inodes: Inodes::new(config.cache_bytes.0 / INODES_SHARE),
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
        if let Some(inode) = node.hard_link.and_then(|identity| self.inodes.find(&identity)) {
            return self.link(&node, inode, emit);
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
                    self.inodes.insert(
                        identity,
                        path.as_os_str().len(),
                        Arc::new(Mutex::new(InodeState::Complete(path))),
                    );
                }
            }
            Ok(false) => tracing::warn!("{}: not restored: only a server can create its socket", path.display()),
            Err(error) => self.counts.problem(&error),
        }
        Ok(())
    }

    /// Adds a further hard link of an inode to the window, behind the file.
    fn link(&mut self, node: &Node, inode: Arc<Mutex<InodeState>>, emit: &mut Emit<RestoreJob>) -> Result<()> {
        let permit = self.permit(emit)?;
        let path = self.descent.path().join(name_of(node));
        match self.descent.link_name(node) {
            Ok(at) => {
                let link = RestoreLink::new(at, path, node.kind, inode, permit);
                self.push(WindowItem::Finished(FinishedEntry::Link(Box::new(link))), emit)
            }
            Err(error) => {
                self.counts.problem(&error);
                Ok(())
            }
        }
    }

    /// Waits until a further file or directory may be open.
    fn permit(&mut self, emit: &mut Emit<RestoreJob>) -> Result<Permit> {
        if self.open_files.is_full() {
            // A permit returns only when a complete entry has left this stage.
            self.flush_half(emit)?;
        }
        Ok(self.open_files.take())
    }

    /// Creates a file and adds its chunks to the window.
    fn file(&mut self, node: Node, emit: &mut Emit<RestoreJob>) -> Result<()> {
        let permit = self.permit(emit)?;
        let created = match self.descent.create_file(&node) {
            Ok(created) => created,
            Err(error) => {
                self.counts.problem(&error);
                return Ok(());
            }
        };
        let path = self.descent.path().join(name_of(&node));
        let (identity, path_len) = (node.hard_link, path.as_os_str().len());
        let content = node.content;
        let file = Arc::new(RestoreFile::new(created, path, node, permit));
        if let Some(identity) = identity {
            self.inodes.insert(identity, path_len, file.inode.clone());
        }
        let len = content.map_or(Ok(0), |content| self.content(&file, content, emit))?;
        if len != file.node.size {
            let (path, expected) = (file.path.display().to_string(), format!("{} bytes", file.node.size));
            let error = Error::corrupt(path, len, expected, format!("content of {len} bytes"));
            file.lose(len, file.node.size.saturating_sub(len), error);
        }
        self.push(WindowItem::Finished(FinishedEntry::File(file)), emit)
    }

    /// Adds the chunks of a file to the window and returns the length of the content. What is unreadable is a lost
    /// range.
    fn content(
        &mut self,
        file: &Arc<RestoreFile>,
        content: ContentReference,
        emit: &mut Emit<RestoreJob>,
    ) -> Result<u64> {
        let mut walk = RecipeWalk::new(content);
        let (mut offset, mut written) = (0u64, 0u64);
        loop {
            emit.check()?;
            let reference = match walk.next(&mut self.reader) {
                Ok(Some(reference)) => reference,
                Ok(None) => break,
                Err(error) if error.is_unreadable() => {
                    // Without a length, the rest of the file is lost.
                    let unread = walk.take_unread();
                    let len = unread.unwrap_or_else(|| file.node.size.saturating_sub(offset));
                    file.lose(offset, len, error);
                    offset = offset.saturating_add(len);
                    if unread.is_none() {
                        return Ok(file.node.size);
                    }
                    continue;
                }
                Err(error) => return Err(error),
            };
            let len = reference.content_len();
            if let ContentReference::Chunk { fingerprint, .. } = reference {
                match self.chunk(file, offset, fingerprint, len) {
                    Ok(write) => self.push(WindowItem::Write(write), emit)?,
                    Err(error) if error.is_unreadable() => file.lose(offset, len, error),
                    Err(error) => return Err(error),
                }
                written = offset.saturating_add(len);
            }
            offset = offset.saturating_add(len);
        }
        if offset > written || file.node.sparse {
            match file.set_len(offset) {
                Err(error) if !error.is_full_disk() => file.fail(error),
                other => other?,
            }
        }
        Ok(offset)
    }

    /// Locates a chunk of a file and announces its frames.
    fn chunk(
        &mut self,
        file: &Arc<RestoreFile>,
        offset: u64,
        fingerprint: Fingerprint,
        len: u64,
    ) -> Result<WriteChunk> {
        let extent_map = self.reader.extent_map_of(&fingerprint)?;
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
        Ok(WriteChunk { file: file.clone(), offset, fingerprint, extent_map })
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
            WindowItem::Finished(entry) => self.job.finished.push(entry),
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
