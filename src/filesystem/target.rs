//! Creates restored entries below a root, safe against hostile snapshots and against existing entries in the root.
//!
//! 1. The root is opened once. Every entry is created under one checked name, relative to the descriptor of its parent,
//!    so nothing can leave the root.
//! 2. Existing directories are entered without following links. Any other existing entry is left unchanged and is an
//!    error.
//! 3. The restore goes depth-first through a [`Descent`], which keeps the deepest directories open. A closed one is
//!    reopened from the root, name by name, and must be the same directory.
//! 4. A file is accessible by its owner only until [`Target::finish_file`], and has a temporary name until it is whole.
//!    A directory gets its metadata when it is left and all files in it have their names (`target_directory`). All
//!    other entries get theirs when they are created.

use super::apply::Metadata;
use super::capture::identity_of;
use super::target_directory::{Completeness, NewFile, TargetDirectory, TargetName};
use crate::error::{Error, Result};
use crate::repo::tree::{FileIdentity, Node, NodeKind};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, linkat, mkdirat, openat, statat, symlinkat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Weak};

/// Number of directories of a [`Descent`] that stay open, the deepest ones.
const OPEN_DIRECTORIES_MAX: usize = 64;

/// The directory that a restore writes into.
#[derive(Debug)]
pub struct Target {
    root: Arc<TargetDirectory>,
    path: PathBuf,
}

impl Target {
    /// Opens the directory at `path`. Creates it and its parents if they do not exist.
    ///
    /// # Errors
    /// [`Error::Io`] if that fails.
    pub fn create(path: &Path) -> Result<Target> {
        std::fs::create_dir_all(path).map_err(|error| Error::io("create", path, error))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| Error::io("open", path, error))?;
        Ok(Target { root: TargetDirectory::new(root, path.into()), path: path.to_path_buf() })
    }

    /// Applies metadata to a complete file. `path` is relative to the root, for messages. Appends errors to `problems`.
    /// Nothing may be written to the file afterwards, because that would change its times.
    pub fn finish_file(&self, path: &Path, file: &File, node: &Node, problems: &mut Vec<Error>) {
        Metadata::new(node, &self.path.join(path), problems).apply_to(file.as_fd());
    }

    /// Creates `at` as another name of the restored entry at `existing`, a path relative to the root, and returns its
    /// name. The existing entry must be of kind `kind`.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] if the name is taken. [`Error::Io`], also if the existing entry is of another kind.
    pub fn create_hard_link(
        &self,
        existing: &Path,
        kind: NodeKind,
        at: &TargetName,
        completeness: Completeness,
    ) -> Result<OsString> {
        let wrap = |error: io::Error| Error::io("link to", self.path.join(existing), error);
        let parts: Option<Vec<&OsStr>> = existing.components().map(normal).collect();
        let Some((last, above)) = parts.as_deref().and_then(<[&OsStr]>::split_last) else {
            return Err(wrap(io::Error::other("it is not a path below the target")));
        };
        let from = self.open_below(above.iter().copied()).map_err(|error| wrap(error.into()))?;
        let stat = statat(&from, *last, AtFlags::SYMLINK_NOFOLLOW).map_err(|error| wrap(error.into()))?;
        if FileType::from_raw_mode(stat.st_mode) != file_type(kind) {
            return Err(wrap(io::Error::other("it is an entry of another kind")));
        }
        at.claim(completeness, |directory, name| linkat(&from, *last, directory, name, AtFlags::empty()))
    }

    /// Applies metadata to the root, after everything below it is complete.
    pub fn finish_root(&self, node: &Node, problems: &mut Vec<Error>) {
        Metadata::new(node, &self.path, problems).apply_to(self.root.as_fd());
    }

    /// Opens the directory at `names` below `base` without following any link.
    fn open_below<'a>(&self, names: impl Iterator<Item = &'a OsStr>) -> rustix::io::Result<OwnedFd> {
        let mut directory = open_directory(self.root.as_fd(), OsStr::new("."))?;
        for name in names {
            directory = open_directory(directory.as_fd(), name)?;
        }
        Ok(directory)
    }
}

fn open_directory(parent: BorrowedFd<'_>, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}

/// The directories from the root to the one that is being filled.
#[derive(Debug)]
pub struct Descent {
    target: Arc<Target>,
    levels: Vec<DescentLevel>,
    /// Path of the directory on top, relative to the root.
    path: PathBuf,
}

/// One directory of a [`Descent`], below the root.
#[derive(Debug)]
struct DescentLevel {
    name: OsString,
    identity: FileIdentity,
    open: Option<Arc<TargetDirectory>>,
    /// The directory that files may still hold open after it was closed here.
    last: Weak<TargetDirectory>,
}

impl Descent {
    /// Starts at the root of `target`.
    pub fn new(target: Arc<Target>) -> Self {
        Descent { target, levels: Vec::new(), path: PathBuf::new() }
    }

    /// Path of the directory that is being filled, relative to the root.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Enters the directory `node`. Creates it if it does not exist.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] if the name is taken by anything but a directory, including a link to one.
    /// [`Error::Corrupt`] if the node is invalid. [`Error::Io`].
    pub fn enter(&mut self, node: &Node) -> Result<()> {
        let name = checked_name(node, &[NodeKind::Directory])?.to_owned();
        let parent = self.directory()?;
        match mkdirat(parent.as_fd(), &name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(parent.refused(&name, error)),
        }
        let open = open_directory(parent.as_fd(), &name).map_err(|error| match error {
            Errno::LOOP | Errno::NOTDIR => parent.refused(&name, Errno::EXIST),
            other => parent.refused(&name, other),
        })?;
        let identity = identity_of(&fstat(&open).map_err(|error| parent.refused(&name, error))?);
        self.path.push(&name);
        let open = TargetDirectory::new(open, self.target.path.join(&self.path));
        self.levels.push(DescentLevel { name, identity, last: Arc::downgrade(&open), open: Some(open) });
        self.close_upper();
        Ok(())
    }

    /// Leaves the directory entered last. It gets the metadata of `node` now or, if files in it are not complete, after
    /// the last one. Appends errors of metadata to `problems`.
    ///
    /// # Errors
    /// [`Error::Io`] if the directory or its parent was moved or replaced. The directory is left in any case.
    pub fn leave(&mut self, node: Option<&Node>, problems: &mut Vec<Error>) -> Result<()> {
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

    /// Creates an empty file under a temporary name, accessible by its owner only. [`Target::finish_file`] applies its
    /// metadata and [`NewFile::publish`] gives it its name. A sparse file gets its full length at once.
    ///
    /// # Errors
    /// Those of [`Descent::create_symlink`].
    pub fn create_file(&self, node: &Node) -> Result<NewFile> {
        let name = checked_name(node, &[NodeKind::File])?;
        let created = NewFile::create(TargetName::new(self.directory()?.clone(), name))?;
        if node.sparse {
            created.file.set_len(node.size).map_err(|error| Error::io("extend", self.whole_path(node), error))?;
        }
        Ok(created)
    }

    /// The name of `node` in this directory, for a hard link that is created later.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the node is invalid. [`Error::Io`] if the directory was moved or replaced.
    pub fn link_name(&self, node: &Node) -> Result<TargetName> {
        use NodeKind::{BlockDevice, CharacterDevice, Fifo, File, Socket, Symlink};
        let name = checked_name(node, &[File, Symlink, Fifo, Socket, CharacterDevice, BlockDevice])?;
        Ok(TargetName::new(self.directory()?.clone(), name))
    }

    /// Creates a symbolic link with its metadata. Appends errors of metadata to `problems`.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] if the name is taken. [`Error::Corrupt`] if the node is invalid. [`Error::Io`].
    pub fn create_symlink(&self, node: &Node, problems: &mut Vec<Error>) -> Result<()> {
        let name = checked_name(node, &[NodeKind::Symlink])?;
        let link_target = OsStr::from_bytes(node.link_target.as_deref().unwrap_or_default());
        let directory = self.directory()?;
        symlinkat(link_target, directory.as_fd(), name).map_err(|error| directory.refused(name, error))?;
        Metadata::new(node, &self.whole_path(node), problems).apply_to_name(directory.as_fd(), name);
        Ok(())
    }

    /// Creates a named pipe or a device node with its metadata. Returns `false` for sockets, which only their server
    /// can create, and for all special files on Apple systems.
    ///
    /// # Errors
    /// Those of [`Descent::create_symlink`]. Only root may create device nodes.
    pub fn create_special(&self, node: &Node, problems: &mut Vec<Error>) -> Result<bool> {
        let kinds = [NodeKind::Fifo, NodeKind::CharacterDevice, NodeKind::BlockDevice, NodeKind::Socket];
        let name = checked_name(node, &kinds)?;
        let directory = self.directory()?;
        match make_special(directory.as_fd(), name, node) {
            None => return Ok(false),
            Some(created) => created.map_err(|error| directory.refused(name, error))?,
        }
        Metadata::new(node, &self.whole_path(node), problems).apply_to_name(directory.as_fd(), name);
        Ok(true)
    }

    /// Returns the open directory on top.
    fn directory(&self) -> Result<&Arc<TargetDirectory>> {
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
                    None => TargetDirectory::new(clone()?, path.clone()),
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

fn normal(component: Component<'_>) -> Option<&OsStr> {
    match component {
        Component::Normal(name) => Some(name),
        _ => None,
    }
}

fn file_type(kind: NodeKind) -> FileType {
    match kind {
        NodeKind::File => FileType::RegularFile,
        NodeKind::Directory => FileType::Directory,
        NodeKind::Symlink => FileType::Symlink,
        NodeKind::Fifo => FileType::Fifo,
        NodeKind::Socket => FileType::Socket,
        NodeKind::CharacterDevice => FileType::CharacterDevice,
        NodeKind::BlockDevice => FileType::BlockDevice,
    }
}

/// Creates a pipe or a device node. `None` for a socket, and on systems without that call.
#[cfg(not(target_vendor = "apple"))]
fn make_special(directory: BorrowedFd<'_>, name: &OsStr, node: &Node) -> Option<rustix::io::Result<()>> {
    if node.kind == NodeKind::Socket {
        return None;
    }
    let number = node.device_number.unwrap_or_default();
    let device = rustix::fs::makedev(number.major, number.minor);
    Some(rustix::fs::mknodat(directory, name, file_type(node.kind), Mode::RUSR | Mode::WUSR, device))
}

/// `None`: the system has no call that is safe against links.
#[cfg(target_vendor = "apple")]
fn make_special(_: BorrowedFd<'_>, _: &OsStr, _: &Node) -> Option<rustix::io::Result<()>> {
    None
}

#[cfg(test)]
#[path = "target_tests.rs"]
mod tests;
