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
use super::capture::{Capturer, identity_of};
use super::flags::{self, unlocking};
use super::notes::{LateFlags, TargetNotes};
use super::target_directory::{Completeness, TargetDirectory, TargetName};
use crate::error::{Error, Result};
use crate::repo::tree::{FileFlags, FileIdentity, Node, NodeKind};
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
    /// Files with temporary names stay, whoever left them: not all entries of a directory are looked at.
    pub keep_temporary: bool,
    /// Directories that are never written into: those of the repository.
    pub protected: Vec<FileIdentity>,
    /// What is noted on the way.
    pub notes: Arc<TargetNotes>,
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
        let is_absent = is_new && options.dry_run;
        let identity = identity_of(&fstat(&open).map_err(|error| Error::io("open", path, error))?);
        let was_locked = !options.dry_run && unlock(open.as_fd(), path, identity, &options.notes)?;
        let root = TargetDirectory::new(open, path.into(), is_new, was_locked, &options);
        Ok(Target { root, path: path.to_path_buf(), options, is_absent })
    }

    /// Applies metadata to a complete file. `path` is relative to the root, for messages. Appends errors to `problems`.
    /// Nothing may be written to the file afterwards, because that would change its times.
    pub fn finish_file(&self, path: &Path, file: &File, node: &Node, problems: &mut Vec<Error>) {
        Metadata::new(node, &self.path.join(path), &self.options.notes, problems).apply_to(file.as_fd());
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
        let (from, last) = self.open_parent(existing)?;
        let stat = statat(&from, last, AtFlags::SYMLINK_NOFOLLOW).map_err(|error| wrap(error.into()))?;
        if FileType::from_raw_mode(stat.st_mode) != file_type(kind) {
            return Err(wrap(io::Error::other("it is an entry of another kind")));
        }
        at.claim(completeness, |directory, name| {
            unlocking(from.as_fd(), last, || linkat(&from, last, directory, name, AtFlags::empty()))
        })
    }

    /// The metadata of the root.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn captured_root(&self) -> Result<Node> {
        Capturer::new().with_atime(true).capture_path(openable(&self.path), true, &mut Vec::new())
    }

    /// Completes the root, after everything below it. Applies the metadata of `node`, if there is one.
    pub fn finish_root(&self, node: Option<&Node>, problems: &mut Vec<Error>) {
        if self.options.dry_run {
            return;
        }
        if let Some(node) = node {
            self.root.remove_stale();
            self.root.apply(node, problems);
        }
        self.root.write_back(problems);
    }

    /// Unlocks the existing directory `path`, and notes that its flags are to be put back. Returns whether that was
    /// needed.
    pub(super) fn unlock(&self, directory: BorrowedFd<'_>, path: &Path, identity: FileIdentity) -> Result<bool> {
        unlock(directory, path, identity, &self.options.notes)
    }

    /// Sets the flags that were noted. Nothing else can be done with such an entry afterwards. Appends errors to
    /// `problems`.
    pub fn set_late_flags(&self, problems: &mut Vec<Error>) {
        let wrap = |error: io::Error| Error::io("set the noted file flags below", &self.path, error);
        let noted = match self.options.notes.take_late().map_err(wrap) {
            Ok(noted) => noted,
            Err(error) => return problems.push(error),
        };
        for late in noted.into_iter().flatten() {
            match late.map_err(wrap) {
                Ok(late) => self.set_late(&late, problems),
                Err(error) => problems.push(error),
            }
        }
    }

    fn set_late(&self, late: &LateFlags, problems: &mut Vec<Error>) {
        let LateFlags { identity, flags, path } = late;
        let Ok(below) = path.strip_prefix(&self.path) else { return };
        let opened = match below.as_os_str().is_empty() {
            true => flags::open(self.root.as_fd(), OsStr::new(".")),
            false => match self.open_parent(below) {
                Ok((parent, name)) => flags::open(parent.as_fd(), name),
                Err(error) => return problems.push(error),
            },
        };
        let entry = match opened {
            // It did not get its name, or has lost it again.
            Err(Errno::NOENT) => return,
            Err(error) => return self.warn(&Error::io("set the file flags of", path, error)),
            Ok(entry) if fstat(&entry).is_ok_and(|stat| identity_of(&stat) != *identity) => return,
            Ok(entry) => entry,
        };
        let entry = entry.as_fd();
        flags::unlock(entry);
        if flags::read(entry).is_ok_and(|now| now.project != flags.project)
            && let Err(error) = flags::set_project(entry, flags.project)
        {
            self.options.notes.refuse_flags(identity.device, FileFlags { bits: 0, ..*flags });
            self.warn(&Error::io("set the project of", path, error));
        }
        if let Err((bits, error)) = flags::change(entry, FileFlags::STORED, flags.bits) {
            self.options.notes.refuse_flags(identity.device, FileFlags { bits, project: 0 });
            let refusal = io::Error::other(format!("{}: {error}", FileFlags::letters(bits)));
            self.warn(&Error::io("set the file flags of", path, refusal));
        }
    }

    /// Logs and counts what the target refused.
    pub fn warn(&self, refusal: &Error) {
        self.options.notes.warn(refusal);
    }

    /// The flags that its file system `device` has refused. The project is not 0 if it has refused one.
    pub fn refused_flags(&self, device: u64) -> FileFlags {
        self.options.notes.refused_flags(device)
    }

    /// How many times the target refused something.
    pub fn warnings(&self) -> u64 {
        self.options.notes.warnings.get()
    }

    /// Full path of the entry at `path`, relative to the root, for messages.
    pub fn path_of(&self, path: &Path) -> PathBuf {
        self.path.join(path)
    }

    /// Identity of the entry at `path`, relative to the root. `None` if it cannot be read.
    pub fn identity(&self, path: &Path) -> Option<FileIdentity> {
        let (parent, last) = self.open_parent(path).ok()?;
        statat(&parent, last, AtFlags::SYMLINK_NOFOLLOW).ok().as_ref().map(identity_of)
    }

    /// Opens the directory of the entry at `path`, relative to the root, without following any link. Returns it with
    /// the entry's name.
    pub(super) fn open_parent<'a>(&self, path: &'a Path) -> Result<(OwnedFd, &'a OsStr)> {
        let wrap = |error: io::Error| Error::io("open", self.path.join(path), error);
        let parts: Option<Vec<&OsStr>> = path.components().map(normal).collect();
        let last = parts.as_deref().and_then(<[&OsStr]>::split_last);
        let (last, above) = last.ok_or_else(|| wrap(io::Error::other("it is not a path below the target")))?;
        let parent = self.open_below(above.iter().copied()).map_err(|error| wrap(error.into()))?;
        Ok((parent, *last))
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

fn unlock(directory: BorrowedFd<'_>, path: &Path, identity: FileIdentity, notes: &TargetNotes) -> Result<bool> {
    let Some(before) = flags::unlock(directory) else { return Ok(false) };
    notes.flag_later(path, identity, before).map_err(|error| Error::io("note the file flags of", path, error))?;
    Ok(true)
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
        NodeKind::Unknown => FileType::Unknown,
    }
}
