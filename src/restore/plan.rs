//! Plan: walks the tree of a snapshot, creates its entries and says which chunks make up each file.
//!
//! 1. An entry that exists in the target is compared first (`existing`). It stays, is replaced, or gets metadata.
//! 2. Directories, symbolic links and special files are created at once. Files are created empty, under temporary
//!    names: here, or in a new directory by Locate. Hard links follow their file, and Finish creates them.
//! 3. The chunks of a file and its end go to Locate in batches (`file_plan`), in the order of the snapshot.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use super::base::RestoreRoot;
use super::chosen_tree::{ChosenTree, Left, TreeStep};
use super::existing::{Overwrite, Treatment, differences, with_flags_of};
use super::file_plan::FilePlan;
use super::inodes::Inodes;
use super::message::{FinishedEntry, InodeState, OpenFiles, Permit, PlannedBatch, RestoreCounts, RestoreLink};
use super::request::RestoreRequest;
use super::restore_file::RestoreFile;
use crate::config::RestoreConfig;
use crate::error::{Error, Result};
use crate::filesystem::{Descent, SourceFile, Target};
use crate::metrics::Progress;
use crate::pipeline::{Emit, Source};
use crate::repo::read::ChunkReader;
use crate::repo::tree::{FileFlags, Node, NodeKind};
use crate::types::RepositoryKey;

/// Inodes with several names are remembered in at most one part in this many of the cache's bytes.
const INODES_SHARE: u64 = 8;

/// The stage.
pub struct PlanStage<'a> {
    tree: ChosenTree,
    target: Arc<Target>,
    descent: Descent,
    counts: Arc<RestoreCounts>,
    progress: &'a Progress,
    open_files: Arc<OpenFiles>,
    inodes: Inodes,
    files: FilePlan<'a>,
    overwrite: Overwrite,
    dry_run: bool,
}

/// What the stage shares with the rest of the restore.
pub struct PlanParts<'a> {
    pub reader: ChunkReader,
    /// What is restored.
    pub root: &'a RestoreRoot,
    pub target: Arc<Target>,
    /// Key of the fingerprints.
    pub key: RepositoryKey,
    pub counts: Arc<RestoreCounts>,
    pub progress: &'a Progress,
}

impl<'a> PlanStage<'a> {
    /// Plans what `request` asks for.
    pub fn new(parts: PlanParts<'a>, request: &RestoreRequest, config: &RestoreConfig) -> Self {
        let PlanParts { reader, root, target, key, counts, progress } = parts;
        PlanStage {
            tree: ChosenTree::new(root, request.selection.clone()),
            descent: Descent::new(target.clone()),
            target,
            open_files: Arc::default(),
            inodes: Inodes::new(config.cache_bytes.0 / INODES_SHARE),
            files: FilePlan::new(reader, key, counts.clone(), progress),
            counts,
            progress,
            overwrite: request.overwrite,
            dry_run: request.dry_run,
        }
    }

    fn walk(&mut self, emit: &mut Emit<PlannedBatch>) -> Result<()> {
        while let Some(step) = self.tree.next(&mut self.files.reader)? {
            emit.check()?;
            match step {
                TreeStep::Enter(node) => {
                    if !self.enter(&node) {
                        self.tree.skip();
                    }
                }
                TreeStep::Entry(node) => self.entry(node, emit)?,
                TreeStep::Leave(left) => self.leave(&left),
                TreeStep::Unreadable(error) => {
                    self.descent.keep_temporary();
                    self.counts.unreadable(&error, &self.descent.path().display().to_string());
                }
            }
        }
        for path in self.tree.missing() {
            self.counts.problem(&Error::Usage(format!("the snapshot has no entry {}", path.display())));
        }
        if self.tree.includes_nothing() {
            self.counts.problem(&Error::Usage("the snapshot has no entry that the patterns include".into()));
        }
        Ok(())
    }

    /// Creates and enters a directory. Returns whether that succeeded.
    fn enter(&mut self, node: &Node) -> bool {
        let existing = match self.descent.existing(node) {
            Ok(existing) => existing.filter(|existing| existing.kind != NodeKind::Directory),
            Err(error) => {
                self.counts.problem(&error);
                return false;
            }
        };
        let treatment = existing.as_ref().map(|existing| Treatment::of(self.overwrite, node, existing));
        if treatment == Some(Treatment::Keep) {
            self.keep(node);
            return false;
        }
        match self.descent.enter(node, existing.as_ref()) {
            Ok(()) => {
                self.counts.directories.add(1);
                self.counts.replaced.add(u64::from(existing.is_some()));
                true
            }
            Err(error) => {
                self.counts.problem(&error);
                false
            }
        }
    }

    fn leave(&mut self, left: &Left) {
        let mut problems = Vec::new();
        if let Some(node) = &left.node {
            // A directory that is only a parent of what was asked for keeps its metadata.
            let applied = Some(node).filter(|_| !self.dry_run && (left.is_chosen || self.descent.is_new()));
            if let Err(error) = self.descent.leave(applied, &mut problems) {
                problems.push(error);
            }
        }
        problems.iter().for_each(|error| self.counts.problem(error));
    }

    /// Restores an entry that is not a directory.
    fn entry(&mut self, node: Node, emit: &mut Emit<PlannedBatch>) -> Result<()> {
        if let Some(error) = node.unsupported() {
            self.counts.problem(&error);
            return Ok(());
        }
        let existing = match self.descent.existing(&node) {
            Ok(existing) => existing,
            Err(error) => {
                self.counts.problem(&error);
                return Ok(());
            }
        };
        if let Some(inode) = node.file_digest().and_then(|file| self.inodes.find(&file)) {
            return self.link(node, existing, inode, emit);
        }
        let Some(existing) = existing else { return self.create(node, None, None, emit) };
        match Treatment::of(self.overwrite, &node, &existing) {
            Treatment::Keep => self.keep(&node),
            Treatment::Replace => return self.create(node, Some(existing), None, emit),
            Treatment::Same if self.overwrite == Overwrite::Never => self.same(&node, "unchanged"),
            treatment => return self.compare(node, existing, treatment == Treatment::Compare, emit),
        }
        Ok(())
    }

    /// Compares an existing entry, which may be the same, and brings it up to date.
    fn compare(&mut self, node: Node, existing: Node, with_content: bool, emit: &mut Emit<PlannedBatch>) -> Result<()> {
        let is_file = node.kind == NodeKind::File;
        let old = match is_file.then(|| self.descent.open_existing(&existing)).transpose() {
            Ok(old) => old,
            Err(error) => {
                self.counts.problem(&error);
                return Ok(());
            }
        };
        if with_content
            && let Some(file) = &old
            && !self.files.holds(file, &node, emit)?
        {
            return self.create(node, Some(existing), old, emit);
        }
        let differing = differences(&node, &existing, FileFlags::default());
        if !differing.is_empty() {
            // The other names of an inode would change with it.
            if is_file && existing.hard_link.is_some() {
                return self.create(node, Some(existing), old, emit);
            }
            let mut problems = Vec::new();
            let applied = match self.dry_run {
                true => Ok(()),
                false => self.descent.apply_metadata(&existing, &node, &mut problems),
            };
            problems.extend(applied.err());
            problems.iter().for_each(|error| self.counts.problem(error));
        }
        let what = match (differing.is_empty(), self.dry_run) {
            (true, _) => "unchanged".into(),
            (false, true) => format!("the same content, would set {}", differing.join(", ")),
            (false, false) => format!("the same content, set {}", differing.join(", ")),
        };
        self.same(&node, &what);
        Ok(())
    }

    /// Notes an entry whose content was there already, and says what became of it.
    fn same(&mut self, node: &Node, what: &str) {
        let path = self.path_of(node);
        tracing::info!("{}: {what}", path.display());
        self.counts.unchanged.add(1);
        self.progress.files_done.add(u64::from(node.kind == NodeKind::File));
        self.progress.bytes_skipped.add(node.size);
        self.remember(node, InodeState::Complete(path));
    }

    /// Notes an entry that differs and stays.
    fn keep(&mut self, node: &Node) {
        self.counts.keep(&self.target.path_of(&self.path_of(node)).display().to_string());
        self.progress.files_done.add(u64::from(node.kind == NodeKind::File));
        self.progress.bytes_skipped.add(node.size);
    }

    fn path_of(&self, node: &Node) -> PathBuf {
        self.descent.path().join(OsStr::from_bytes(&node.name))
    }

    /// Remembers an inode with several names for the others.
    fn remember(&mut self, node: &Node, state: InodeState) {
        if let Some(file) = node.file_digest() {
            let path_len = self.path_of(node).as_os_str().len();
            self.inodes.insert(file, path_len, Arc::new(Mutex::new(state)));
        }
    }

    /// Creates an entry, in the place of `replaced` if there is one. `old` is that file.
    fn create(
        &mut self,
        node: Node,
        replaced: Option<Node>,
        old: Option<SourceFile>,
        emit: &mut Emit<PlannedBatch>,
    ) -> Result<()> {
        let path = self.path_of(&node);
        if replaced.as_ref().is_some_and(|replaced| replaced.kind == NodeKind::Directory) {
            let what = "a directory";
            self.counts.problem(&Error::AlreadyExists { path: self.target.path_of(&path), what });
            return Ok(());
        }
        let what = match replaced {
            Some(_) if self.dry_run => "would be replaced",
            Some(_) => "replaced",
            None => "new",
        };
        tracing::info!("{}: {what}", path.display());
        self.counts.replaced.add(u64::from(replaced.is_some()));
        if self.dry_run {
            self.counts.created(node.kind, 1);
            self.counts.written(self.progress, node.size);
            self.remember(&node, InodeState::Complete(path));
            return Ok(());
        }
        if node.kind == NodeKind::File {
            return self.file(node, replaced, old, emit);
        }
        let mut problems = Vec::new();
        let is_created = match node.kind {
            NodeKind::Symlink => self.descent.create_symlink(&node, replaced.as_ref(), &mut problems).map(|()| true),
            _ => self.descent.create_special(&node, replaced.as_ref(), &mut problems),
        };
        problems.iter().for_each(|error| self.counts.problem(error));
        match is_created {
            Ok(true) => {
                self.counts.others.add(1);
                self.remember(&node, InodeState::Complete(path));
            }
            Ok(false) => tracing::warn!("{}: not restored: only a server can create its socket", path.display()),
            Err(error) => self.counts.problem(&error),
        }
        Ok(())
    }

    /// Adds a further hard link of an inode, behind the file.
    fn link(
        &mut self,
        node: Node,
        existing: Option<Node>,
        inode: Arc<Mutex<InodeState>>,
        emit: &mut Emit<PlannedBatch>,
    ) -> Result<()> {
        let path = self.path_of(&node);
        if let Some(existing) = &existing {
            let first = inode.lock().clone();
            let is_linked = match first {
                InodeState::Complete(first) => self.target.identity(&first) == Some(existing.identity()),
                _ => false,
            };
            let treatment = Treatment::of(self.overwrite, &node, existing);
            if is_linked || (treatment == Treatment::Same && self.overwrite == Overwrite::Never) {
                self.same(&node, "unchanged");
                return Ok(());
            }
            if treatment == Treatment::Keep {
                self.keep(&node);
                return Ok(());
            }
        }
        if self.dry_run {
            self.counts.replaced.add(u64::from(existing.is_some()));
            self.counts.created(node.kind, 1);
            return Ok(());
        }
        let (permit, token) = (self.permit(emit)?, self.files.token(&node)?);
        match self.descent.link_name(&node, existing.as_ref()) {
            Ok(at) => {
                let link = RestoreLink { at, path, node, token, existing, inode, _permit: permit };
                self.files.finished(FinishedEntry::Link(Box::new(link)), emit)
            }
            Err(error) => {
                self.counts.problem(&error);
                Ok(())
            }
        }
    }

    /// Waits until a further file or directory may be open.
    fn permit(&mut self, emit: &mut Emit<PlannedBatch>) -> Result<Permit> {
        if self.open_files.is_full() {
            // A permit returns only when a complete entry has left Order.
            self.files.flush(true, emit)?;
        }
        Ok(self.open_files.take())
    }

    /// Creates a file, or plans that, and adds its chunks.
    fn file(
        &mut self,
        node: Node,
        replaced: Option<Node>,
        old: Option<SourceFile>,
        emit: &mut Emit<PlannedBatch>,
    ) -> Result<()> {
        let permit = self.permit(emit)?;
        let token = self.files.token(&node)?;
        let path = self.path_of(&node);
        let (digest, path_len, content) = (node.file_digest(), path.as_os_str().len(), node.content);
        let node = with_flags_of(node, replaced.as_ref());
        // In a new directory nothing can be replaced or continued. What becomes of an inode with several names must be
        // known when the next name comes.
        let is_planned = self.descent.is_new() && replaced.is_none() && digest.is_none();
        let file = match is_planned {
            true => self.descent.link_name(&node, None).map(|at| RestoreFile::planned(at, token, path, node, permit)),
            false => {
                let created = self.descent.create_file(&node, replaced.as_ref(), &token);
                created.map(|created| RestoreFile::created(created, path, node, permit))
            }
        };
        let file = match file {
            Ok(file) => Arc::new(file),
            Err(error) => {
                self.counts.problem(&error);
                return Ok(());
            }
        };
        if is_planned {
            self.files.create(file.clone(), emit)?;
        }
        if let Some(digest) = digest {
            self.inodes.insert(digest, path_len, file.inode.clone());
        }
        let len = match content {
            Some(content) => self.files.content(&file, old.as_ref(), content, emit)?,
            None => self.files.empty(&file)?,
        };
        if len != file.node.size {
            let (path, expected) = (file.path.display().to_string(), format!("{} bytes", file.node.size));
            let error = Error::corrupt(path, len, expected, format!("content of {len} bytes"));
            file.lose(len, file.node.size.saturating_sub(len), error);
        }
        self.files.finished(FinishedEntry::File(file), emit)
    }
}

impl Source for PlanStage<'_> {
    type Out = PlannedBatch;

    fn name(&self) -> &'static str {
        "plan"
    }

    fn run(&mut self, emit: &mut Emit<PlannedBatch>) -> Result<()> {
        self.walk(emit)?;
        self.files.flush(false, emit)
    }
}
