//! The directories from the root of the target to the one that is being filled, and the entries created there.
//!
//! A restore goes depth-first. Only the deepest directories stay open. A closed one is reopened from the root, name by
//! name, and must be the same directory.

use super::apply::Metadata;
use super::capture::{Capturer, identity_of};
use super::new_file::{FileToken, NewFile};
use super::source::SourceFile;
use super::target::{Target, file_type, open_directory};
use super::target_directory::{Completeness, TargetDirectory, TargetName};
use crate::error::{Error, Result};
use crate::repo::tree::{FileIdentity, Node, NodeKind};
use rustix::fs::{AtFlags, Mode, fstat, mkdirat, statat, symlinkat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

/// Number of directories of a [`Descent`] that stay open, the deepest ones.
const OPEN_DIRECTORIES_MAX: usize = 64;

/// The directories from the root to the one that is being filled.
#[derive(Debug)]
pub struct Descent {
    pub(super) target: Arc<Target>,
    levels: Vec<DescentLevel>,
    /// Path of the directory on top, relative to the root.
    path: PathBuf,
    /// Directories on top that do not exist: only in a dry run.
    absent: usize,
    capturer: Capturer,
}

/// One directory of a [`Descent`], below the root.
#[derive(Debug)]
struct DescentLevel {
    name: OsString,
    identity: FileIdentity,
    open: Option<Arc<TargetDirectory>>,
    is_new: bool,
    was_locked: bool,
    /// The directory that files may still hold open after it was closed here.
    last: Weak<TargetDirectory>,
}

impl Descent {
    /// Starts at the root of `target`.
    pub fn new(target: Arc<Target>) -> Self {
        let absent = usize::from(target.is_absent);
        Descent { target, levels: Vec::new(), path: PathBuf::new(), absent, capturer: Capturer::new().with_atime(true) }
    }

    /// Path of the directory that is being filled, relative to the root.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the directory that is being filled did not exist before.
    pub fn is_new(&self) -> bool {
        self.absent > 0 || self.directory().is_ok_and(|directory| directory.is_new)
    }

    /// Whether it does not exist: only in a dry run.
    pub(super) fn is_absent(&self) -> bool {
        self.absent > 0
    }

    /// The existing entry with the name of `node`. Attributes that cannot be read are omitted.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the node is invalid. [`Error::Io`].
    pub fn existing(&self, node: &Node) -> Result<Option<Node>> {
        let name = checked_name(node, &[node.kind])?;
        if self.absent > 0 {
            return Ok(None);
        }
        let directory = self.directory()?;
        directory.name_entry(name);
        if directory.is_new {
            return Ok(None);
        }
        match self.capturer.capture(directory.as_fd(), name, &self.whole_path(node), &mut Vec::new()) {
            Ok(existing) => Ok(Some(existing)),
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Notes that not all entries of the directory on top are known: files with temporary names stay in it.
    pub fn keep_temporary(&self) {
        if self.absent == 0
            && let Ok(directory) = self.directory()
        {
            directory.keep_temporary();
        }
    }

    /// Identity of whatever the name of `node` leads to in the directory on top, which may list it under another name.
    /// `None`: nothing.
    ///
    /// # Errors
    /// Errors of [`Descent::existing`].
    pub fn identity(&self, node: &Node) -> Result<Option<FileIdentity>> {
        let name = checked_name(node, &[node.kind])?;
        if self.absent > 0 {
            return Ok(None);
        }
        match statat(self.directory()?.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(identity_of(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(Error::io("inspect", self.whole_path(node), error)),
        }
    }

    /// Opens the file `existing` for reading, as [`Descent::existing`] returned it.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be read, or if another file has replaced it.
    pub fn open_existing(&self, existing: &Node) -> Result<SourceFile> {
        let directory = self.directory()?;
        let name = OsStr::from_bytes(&existing.name);
        SourceFile::open_at(directory.as_fd(), name, &self.whole_path(existing), existing)
    }

    /// Gives the entry `existing`, as [`Descent::existing`] returned it, the metadata of `node`.
    ///
    /// # Errors
    /// [`Error::Io`] if another entry has replaced it.
    pub fn apply_metadata(&self, existing: &Node, node: &Node, problems: &mut Vec<Error>) -> Result<()> {
        let path = self.whole_path(node);
        if existing.kind == NodeKind::File {
            let file = self.open_existing(existing)?;
            Metadata::new(node, &path, &self.target.options.notes, problems).apply_to(file.file().as_fd());
        } else {
            let name = checked_name(node, &[existing.kind])?;
            Metadata::new(node, &path, &self.target.options.notes, problems)
                .apply_to_name(self.directory()?.as_fd(), name);
        }
        Ok(())
    }

    /// Enters the directory `node`. Creates it if it does not exist, in the place of the entry `replaced` if there is
    /// one.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] if the name is taken by anything but a directory, including a link to one.
    /// [`Error::Corrupt`] if the node is invalid. [`Error::Usage`] if it is the repository. [`Error::Io`].
    pub fn enter(&mut self, node: &Node, replaced: Option<&Node>) -> Result<()> {
        let name = checked_name(node, &[NodeKind::Directory])?.to_owned();
        if self.absent > 0 {
            return self.enter_absent(&name);
        }
        let dry_run = self.target.options.dry_run;
        let parent = self.directory()?.clone();
        let mut is_new = false;
        if !dry_run {
            TargetName::new(parent.clone(), &name, replaced).remove_replaced()?;
            is_new = match mkdirat(parent.as_fd(), &name, Mode::RWXU) {
                Ok(()) => true,
                Err(Errno::EXIST) => false,
                Err(error) => return Err(parent.refused(&name, error)),
            };
        }
        let open = match open_directory(parent.as_fd(), &name) {
            Ok(open) => open,
            Err(Errno::NOENT) if dry_run => return self.enter_absent(&name),
            Err(Errno::LOOP | Errno::NOTDIR) if dry_run && replaced.is_some() => return self.enter_absent(&name),
            Err(Errno::LOOP | Errno::NOTDIR) => return Err(parent.refused(&name, Errno::EXIST)),
            Err(error) => return Err(parent.refused(&name, error)),
        };
        let identity = identity_of(&fstat(&open).map_err(|error| parent.refused(&name, error))?);
        if self.target.options.protected.contains(&identity) {
            let path = self.whole_path(node);
            return Err(Error::Usage(format!("cannot restore into {}: the repository is there", path.display())));
        }
        self.path.push(&name);
        let path = self.target.path.join(&self.path);
        let was_locked = !dry_run && self.target.unlock(open.as_fd(), &path, identity)?;
        let open = TargetDirectory::new(open, path, is_new, was_locked, &self.target.options);
        let last = Arc::downgrade(&open);
        self.levels.push(DescentLevel { name, identity, is_new, was_locked, last, open: Some(open) });
        self.close_upper();
        Ok(())
    }

    fn enter_absent(&mut self, name: &OsStr) -> Result<()> {
        self.path.push(name);
        self.absent += 1;
        Ok(())
    }

    /// Leaves the directory entered last. It gets the metadata of `node` now or, if files in it are not complete, after
    /// the last one. Appends errors of metadata to `problems`.
    ///
    /// # Errors
    /// [`Error::Io`] if the directory or its parent was moved or replaced. The directory is left in any case.
    pub fn leave(&mut self, node: Option<&Node>, problems: &mut Vec<Error>) -> Result<()> {
        if self.absent > 0 {
            self.absent -= 1;
            self.path.pop();
            return Ok(());
        }
        let left = match node {
            Some(node) if !self.levels.is_empty() => {
                self.directory().map(|directory| directory.set_metadata(node.clone()))
            }
            _ => Ok(()),
        };
        if let Some(directory) = self.levels.pop().and_then(|level| level.open) {
            directory.release(problems);
        }
        self.path.pop();
        left.and(self.reopen())
    }

    /// Creates an empty file under a temporary name, accessible by its owner only, or opens what an interrupted restore
    /// has left of it. [`Target::finish_file`] applies its metadata and [`NewFile::publish`] gives it its name, in the
    /// place of the entry `replaced` if there is one. A sparse file gets its full length at once.
    ///
    /// # Errors
    /// Errors of [`Descent::create_symlink`].
    pub fn create_file(&self, node: &Node, replaced: Option<&Node>, token: &FileToken) -> Result<NewFile> {
        let name = checked_name(node, &[NodeKind::File])?;
        let created = NewFile::create(TargetName::new(self.directory()?.clone(), name, replaced), token)?;
        created.prepare(node).map_err(|error| Error::io("extend", self.whole_path(node), error))?;
        Ok(created)
    }

    /// The name of `node` in this directory, for a hard link that is created later, in the place of `replaced`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the node is invalid. [`Error::Io`] if the directory was moved or replaced.
    pub fn link_name(&self, node: &Node, replaced: Option<&Node>) -> Result<TargetName> {
        use NodeKind::{BlockDevice, CharacterDevice, Fifo, File, Socket, Symlink};
        let name = checked_name(node, &[File, Symlink, Fifo, Socket, CharacterDevice, BlockDevice])?;
        Ok(TargetName::new(self.directory()?.clone(), name, replaced))
    }

    /// Creates a symbolic link with its metadata, in the place of the entry `replaced` if there is one. Appends errors
    /// of metadata to `problems`.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] if the name is taken. [`Error::Corrupt`] if the node is invalid. [`Error::Io`].
    pub fn create_symlink(&self, node: &Node, replaced: Option<&Node>, problems: &mut Vec<Error>) -> Result<()> {
        let name = checked_name(node, &[NodeKind::Symlink])?;
        let link_target = OsStr::from_bytes(node.link_target.as_deref().unwrap_or_default());
        let directory = self.directory()?;
        let at = TargetName::new(directory.clone(), name, replaced);
        at.claim(Completeness::Complete, |directory, name| symlinkat(link_target, directory, name))?;
        Metadata::new(node, &self.whole_path(node), &self.target.options.notes, problems)
            .apply_to_name(directory.as_fd(), name);
        Ok(())
    }

    /// Creates a named pipe or a device node with its metadata, in the place of the entry `replaced` if there is one.
    /// Returns `false` for sockets, which only their server can create, and for all special files on Apple systems.
    ///
    /// # Errors
    /// Errors of [`Descent::create_symlink`]. Only root may create device nodes.
    pub fn create_special(&self, node: &Node, replaced: Option<&Node>, problems: &mut Vec<Error>) -> Result<bool> {
        let kinds = [NodeKind::Fifo, NodeKind::CharacterDevice, NodeKind::BlockDevice, NodeKind::Socket];
        let name = checked_name(node, &kinds)?;
        if !can_make(node) {
            return Ok(false);
        }
        let directory = self.directory()?;
        let at = TargetName::new(directory.clone(), name, replaced);
        at.claim(Completeness::Complete, |directory, name| make_special(directory, name, node))?;
        Metadata::new(node, &self.whole_path(node), &self.target.options.notes, problems)
            .apply_to_name(directory.as_fd(), name);
        Ok(true)
    }

    /// Returns the open directory on top.
    pub(super) fn directory(&self) -> Result<&Arc<TargetDirectory>> {
        match self.levels.last() {
            None => Ok(&self.target.root),
            Some(DescentLevel { open: Some(open), .. }) => Ok(open),
            Some(_) => {
                let error = io::Error::other("the directory was moved or replaced during the restore");
                Err(Error::io("write into", self.target.path.join(&self.path), error))
            }
        }
    }

    /// Closes the one directory that is now too far above the top to stay open.
    fn close_upper(&mut self) {
        if let Some(index) = self.levels.len().checked_sub(OPEN_DIRECTORIES_MAX + 1)
            && let Some(level) = self.levels.get_mut(index)
        {
            level.open = None;
        }
    }

    /// Reopens the directory on top if it is closed, and those above it that may stay open.
    fn reopen(&mut self) -> Result<()> {
        let depth = self.levels.len();
        if self.levels.last().is_none_or(|level| level.open.is_some()) {
            return Ok(());
        }
        let wrap = |error: Errno| Error::io("open", self.target.path.join(&self.path), error);
        let mut directory = open_directory(self.target.root.as_fd(), OsStr::new(".")).map_err(wrap)?;
        let mut path = self.target.path.clone();
        for (index, level) in self.levels.iter_mut().enumerate() {
            path.push(&level.name);
            let next = open_directory(directory.as_fd(), &level.name).map_err(wrap)?;
            if identity_of(&fstat(&next).map_err(wrap)?) != level.identity {
                return Err(wrap(Errno::NOENT));
            }
            if index + OPEN_DIRECTORIES_MAX >= depth {
                let clone = || next.try_clone().map_err(|error| Error::io("open", &self.path, error));
                // Files that still hold the directory share it, because the last of them applies its metadata.
                let open = match level.last.upgrade() {
                    Some(open) => open,
                    None => {
                        let options = &self.target.options;
                        let open =
                            TargetDirectory::new(clone()?, path.clone(), level.is_new, level.was_locked, options);
                        // What was named before it was closed is forgotten.
                        open.keep_temporary();
                        open
                    }
                };
                level.last = Arc::downgrade(&open);
                level.open = Some(open);
            }
            directory = next;
        }
        Ok(())
    }

    fn whole_path(&self, node: &Node) -> PathBuf {
        self.target.path.join(&self.path).join(OsStr::from_bytes(&node.name))
    }
}

/// Returns the node's name. Fails if the node is invalid or not of one of the `kinds`.
fn checked_name<'a>(node: &'a Node, kinds: &[NodeKind]) -> Result<&'a OsStr> {
    let defect = node.defect().or_else(|| (!kinds.contains(&node.kind)).then_some("an entry of another kind"));
    match defect {
        Some(defect) => {
            let what = format!("tree node `{}`", node.name.escape_ascii());
            Err(Error::corrupt(what, 0, "an entry that can be restored", defect))
        }
        None => Ok(OsStr::from_bytes(&node.name)),
    }
}

/// Whether this system can create the special file without following a link.
fn can_make(node: &Node) -> bool {
    node.kind != NodeKind::Socket && !cfg!(target_vendor = "apple")
}

#[cfg(not(target_vendor = "apple"))]
pub(super) fn make_special(directory: BorrowedFd<'_>, name: &OsStr, node: &Node) -> rustix::io::Result<()> {
    let number = node.device_number.unwrap_or_default();
    let device = rustix::fs::makedev(number.major, number.minor);
    rustix::fs::mknodat(directory, name, file_type(node.kind), Mode::RUSR | Mode::WUSR, device)
}

#[cfg(target_vendor = "apple")]
pub(super) fn make_special(_: BorrowedFd<'_>, _: &OsStr, _: &Node) -> rustix::io::Result<()> {
    Err(Errno::NOTSUP)
}

#[cfg(test)]
#[path = "target_tests.rs"]
mod tests;
