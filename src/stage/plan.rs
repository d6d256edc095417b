//! Plan: walks a snapshot's tree, creates its entries, and says which frames make which bytes of which file.
//!
//! The order of a file's chunks decides the order of reading. Plan runs the frame cache ahead of time: it knows which
//! frames a job needs, which of them are cached then, and which are dropped after it, and writes that into the job;
//! the stages behind only carry it out. A chunk that cannot be located costs its file, not the rest.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use lru::LruCache;

use super::restored::{Job, Load, NamesOfInode, OpenFiles, RestoreCounts, RestoreFile, WriteChunk, is_damage};
use crate::config::RestoreConfig;
use crate::error::{Error, Result};
use crate::filesystem::{Descent, Target};
use crate::pipeline::{Emit, Source};
use crate::reader::{ChunkReader, RecipeWalk, at_least_one};
use crate::recipe::Reference;
use crate::tree::{FileIdentity, Kind, Node, TreeCursor};

/// Output bytes after which a job is sent.
const JOB_BYTES: u64 = 1 << 20;
/// Frame bytes to load after which a job is sent.
const LOAD_BYTES: u64 = 4 << 20;
/// Files of a job, at most.
const JOB_FILES: usize = 16;
/// Inodes with several names remembered, at most.
const INODES_MAX: usize = 1 << 20;

/// The stage.
pub struct PlanStage {
    reader: ChunkReader,
    root: Option<Reference>,
    descent: Descent,
    counts: Arc<RestoreCounts>,
    open_files: Arc<OpenFiles>,
    inodes: LruCache<FileIdentity, Arc<Mutex<NamesOfInode>>>,
    job: Job,
    /// Frames cached at this point of the stream, with their bytes.
    cached: LruCache<u64, u64>,
    cached_bytes: u64,
    cached_bytes_max: u64,
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
            job: Job::default(),
            cached: LruCache::unbounded(),
            cached_bytes: 0,
            cached_bytes_max: config.cache_bytes.0,
        }
    }

    fn tree(&mut self, emit: &mut Emit<Job>) -> Result<()> {
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
                Some(node) if node.kind == Kind::Directory => {
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

    fn entry(&mut self, node: Node, emit: &mut Emit<Job>) -> Result<()> {
        if let Some(known) = node.hard_link.and_then(|identity| self.inodes.get(&identity)).cloned() {
            self.link(&node, &known);
            return Ok(());
        }
        if node.kind == Kind::File {
            return self.file(node, emit);
        }
        let mut problems = Vec::new();
        let made = match node.kind {
            Kind::Symlink => self.descent.create_symlink(&node, &mut problems).map(|()| true),
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
            Ok(()) if node.kind == Kind::File => self.counts.files.add(1),
            Ok(()) => self.counts.others.add(1),
            Err(error) => self.counts.problem(&error),
        }
        known.names.push(path);
    }

    fn file(&mut self, node: Node, emit: &mut Emit<Job>) -> Result<()> {
        if self.open_files.is_full() {
            // What keeps files open must be on its way before this waits for it.
            self.flush(emit)?;
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
        self.job.finished.push(file);
        if self.job.finished.len() >= JOB_FILES { self.flush(emit) } else { Ok(()) }
    }

    fn content(&mut self, file: &Arc<RestoreFile>, content: Reference, emit: &mut Emit<Job>) -> Result<()> {
        let mut walk = RecipeWalk::new(content);
        let mut offset = 0u64;
        while let Some(reference) = walk.next(&mut self.reader)? {
            emit.check()?;
            match reference {
                Reference::Chunk { fingerprint, len } => {
                    let entry = self.reader.entry_of(&fingerprint)?;
                    let flat = self.reader.flat(entry)?;
                    if u64::from(flat.len()) != len {
                        let expected = format!("chunk {fingerprint} of {len} bytes");
                        return Err(Error::corrupt("recipe", offset, expected, flat.len().to_string()));
                    }
                    for frame in flat.frames() {
                        self.need(*frame)?;
                    }
                    self.job.bytes += len;
                    self.job.writes.push(WriteChunk { file: file.clone(), offset, fingerprint, flat });
                }
                Reference::Hole { .. } => {}
                Reference::Recipe { .. } => {
                    return Err(Error::corrupt("recipe", offset, "a chunk or a hole", "a recipe"));
                }
            }
            offset += reference.content_len();
            if self.job.bytes >= JOB_BYTES || self.job.load_bytes >= LOAD_BYTES {
                self.flush(emit)?;
            }
        }
        file.set_len(offset)
    }

    /// The job being made needs a frame: from the cache as it will be then, or loaded.
    fn need(&mut self, frame: u64) -> Result<()> {
        if self.cached.get(&frame).is_some() {
            return Ok(());
        }
        let (container, info) = self.reader.resolver.frame_place(frame)?;
        let bytes = u64::from(info.raw_len);
        self.cached.put(frame, bytes);
        self.cached_bytes += bytes;
        self.job.load_bytes += bytes;
        self.counts.frames.add(1);
        self.counts.frame_bytes.add(bytes);
        self.job.loads.push(Load::new(frame, container, info));
        Ok(())
    }

    fn flush(&mut self, emit: &mut Emit<Job>) -> Result<()> {
        let mut job = std::mem::take(&mut self.job);
        while self.cached_bytes > self.cached_bytes_max {
            let Some((frame, bytes)) = self.cached.pop_lru() else { break };
            self.cached_bytes -= bytes;
            job.dropped.push(frame);
        }
        emit.emit(job)
    }
}

fn name_of(node: &Node) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    PathBuf::from(std::ffi::OsStr::from_bytes(&node.name))
}

impl Source for PlanStage {
    type Out = Job;

    fn name(&self) -> &'static str {
        "plan"
    }

    fn run(&mut self, emit: &mut Emit<Job>) -> Result<()> {
        self.tree(emit)?;
        self.flush(emit)
    }
}

/// Frames by number, as the jobs carry them.
pub type Frames = HashMap<u64, super::restored::Loaded>;
