//! Creates restored entries below a root, safe against hostile snapshots and against existing entries in the root.
//!
//! 1. The root is opened once. Every entry is created under one checked name, relative to the descriptor of its parent,
//!    so nothing can leave the root.
//! 2. Existing directories are entered without following links. Any other existing entry is left unchanged and is an
//!    error, unless the caller has looked at it and wants it replaced.
//! 3. A file is accessible by its owner only until [`Target::finish_file`], and has a temporary name until it is whole
//!    (`new_file`). A directory gets its metadata when it is left and all files in it have their names
//!    (`target_directory`). All other entries get theirs when they are created (`descent`).
//! 4. A directory of the repository is never entered.

use super::apply::Metadata;
use super::capture::identity_of;
use super::target_directory::{Completeness, TargetDirectory, TargetName};
use crate::error::{Error, Result};
use crate::repo::tree::{FileIdentity, Node, NodeKind};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, linkat, openat, statat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// The directory that a restore writes into.
#[derive(Debug)]
pub struct Target {
    pub(super) root: Arc<TargetDirectory>,
    pub(super) path: PathBuf,
    pub(super) options: TargetOptions,
    /// Whether the directory does not exist: only in a dry run.
    pub(super) is_absent: bool,
}

/// How a restore treats its target.
#[derive(Debug, Clone, Default)]
pub struct TargetOptions {
    /// Nothing is changed.
    pub dry_run: bool,
    /// Files and directories are on disk when they are complete.
    pub sync: bool,
    /// Directories that are never written into: those of the repository.
    pub protected: Vec<FileIdentity>,
}

impl TargetOptions {
    /// Protects the directory at `path`, if it exists.
    pub fn protect(&mut self, path: &Path) {
        if let Ok(stat) = rustix::fs::stat(path) {
            self.protected.push(identity_of(&stat));
        }
    }
}

impl Target {
    /// Opens the directory at `path`. Creates it and its parents if they do not exist.
    ///
    /// # Errors
    /// [`Error::Usage`] if a protected directory is at `path` or above it. [`Error::Io`].
    pub fn create(path: &Path, options: TargetOptions) -> Result<Target> {
        let existing = path.ancestors().find(|path| openable(path).exists()).unwrap_or(Path::new("/"));
        let nearest = open_path(openable(existing))?;
        check_outside(path, &nearest, &options.protected)?;
        let is_new = existing != path;
        let open = match is_new && options.dry_run {
            true => nearest,
            false => {
                std::fs::create_dir_all(path).map_err(|error| Error::io("create", path, error))?;
                open_path(path)?
            }
        };
        let root = TargetDirectory::new(open, path.into(), is_new, options.sync);
        let is_absent = is_new && options.dry_run;
        Ok(Target { root, path: path.to_path_buf(), options, is_absent })
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

    /// Completes the root, after everything below it. Applies the metadata of `node`, if there is one.
    pub fn finish_root(&self, node: Option<&Node>, problems: &mut Vec<Error>) {
        if self.options.dry_run {
            return;
        }
        if let Some(node) = node {
            self.root.apply(node, problems);
        }
        self.root.write_back(problems);
    }

    /// Full path of the entry at `path`, relative to the root, for messages.
    pub fn path_of(&self, path: &Path) -> PathBuf {
        self.path.join(path)
    }

    /// Identity of the entry at `path`, relative to the root. `None` if it cannot be read.
    pub fn identity(&self, path: &Path) -> Option<FileIdentity> {
        let parts: Option<Vec<&OsStr>> = path.components().map(normal).collect();
        let (last, above) = parts.as_deref().and_then(<[&OsStr]>::split_last).map(|(last, above)| (*last, above))?;
        let parent = self.open_below(above.iter().copied()).ok()?;
        statat(&parent, last, AtFlags::SYMLINK_NOFOLLOW).ok().as_ref().map(identity_of)
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

/// The path by which the system opens `path`: `.` if it is empty.
fn openable(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

fn open_path(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(|error| Error::io("open", path, error))
}

/// Fails if `directory` or one above it is protected. `path` is the target, for the message.
fn check_outside(path: &Path, directory: &OwnedFd, protected: &[FileIdentity]) -> Result<()> {
    let wrap = |error: Errno| Error::io("open", path, error);
    let mut current = directory.try_clone().map_err(|error| Error::io("open", path, error))?;
    loop {
        let identity = identity_of(&fstat(&current).map_err(wrap)?);
        if protected.contains(&identity) {
            return Err(Error::Usage(format!("cannot restore into {}: the repository is there", path.display())));
        }
        // A directory that may not be searched ends the way up.
        let Ok(parent) = open_directory(current.as_fd(), OsStr::new("..")) else { return Ok(()) };
        if identity_of(&fstat(&parent).map_err(wrap)?) == identity {
            return Ok(());
        }
        current = parent;
    }
}

pub(super) fn open_directory(parent: BorrowedFd<'_>, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}

fn normal(component: Component<'_>) -> Option<&OsStr> {
    match component {
        Component::Normal(name) => Some(name),
        _ => None,
    }
}

pub(super) fn file_type(kind: NodeKind) -> FileType {
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
