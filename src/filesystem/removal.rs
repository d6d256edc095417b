//! Removes entries of the target that a restore is to delete.
//!
//! 1. Everything works on open directories and follows no link. A directory is removed with what is in it, from the
//!    bottom up.
//! 2. What the caller keeps stays, and so does each directory above it. The same holds for directories of the
//!    repository, for other file systems, for what cannot be read, and for files that a restore has not finished.
//! 3. An entry that is immutable or append-only is unlocked and removed, if this user may. The caller is told.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, fstat, statat, unlinkat};
use rustix::io::Errno;

use super::capture::identity_of;
use super::descent::Descent;
use super::flags::{Unlocked, is_locked, unlocking};
use super::target::open_directory;
use super::target_directory::is_temporary;
use crate::error::{Error, Result};
use crate::repo::tree::FileIdentity;

/// Directories inside one another that are removed, at most: each of them is open.
const DEPTH_MAX: usize = 200;

/// What a removal is told, and whom it tells. Paths are relative to the target.
pub trait Remover {
    /// Whether the entry stays, with all that is in it.
    fn keeps(&mut self, path: &Path, is_directory: bool) -> bool;
    /// The entry was removed, or would be.
    fn removed(&mut self, path: &Path);
    /// The entry was removed, or would be, although its flags said that nobody may.
    fn unlocked(&mut self, path: &Path);
    /// The entry stays because of an error.
    fn problem(&mut self, error: Error);
    /// Fails if the user wants to stop.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    fn check(&self) -> Result<()>;
}

/// A directory that is being removed.
struct DoomedDirectory {
    name: OsString,
    open: OwnedFd,
    names: std::vec::IntoIter<OsString>,
    device: u64,
    /// Locks it again if it stays.
    _unlocked: Option<Unlocked>,
    was_locked: bool,
    /// Whether everything in it so far is removed.
    is_empty: bool,
}

impl Descent {
    /// Names in the directory on top, ascending. None if it does not exist.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn names(&self) -> Result<Vec<OsString>> {
        if self.is_absent() {
            return Ok(Vec::new());
        }
        let failed = |error: Errno| Error::io("read", self.target.path_of(self.path()), error);
        names(self.directory()?.as_fd()).map_err(failed)
    }

    /// Removes the entry `name` of the directory on top; with `dry_run` only says what would be removed.
    ///
    /// # Errors
    /// [`Error::Interrupted`]. All other errors go to `remover`.
    pub fn remove(&self, name: &OsStr, dry_run: bool, remover: &mut dyn Remover) -> Result<()> {
        let parent = self.directory()?.as_fd();
        let device = match fstat(parent) {
            Ok(stat) => identity_of(&stat).device,
            Err(error) => {
                remover.problem(Error::io("inspect", self.target.path_of(self.path()), error));
                return Ok(());
            }
        };
        let mut removal =
            Removal { descent: self, dry_run, remover, path: self.path().to_path_buf(), levels: Vec::new() };
        removal.entry(parent, device, name.to_os_string());
        while let Some(level) = removal.levels.pop() {
            removal.remover.check()?;
            removal.go_on(level, parent);
        }
        Ok(())
    }
}

struct Removal<'a> {
    descent: &'a Descent,
    dry_run: bool,
    remover: &'a mut dyn Remover,
    /// Path of the directory whose entries are being removed.
    path: PathBuf,
    levels: Vec<DoomedDirectory>,
}

impl Removal<'_> {
    /// Removes the next entry of `level`, or `level` itself if it is at its end. `top` is the directory above all.
    fn go_on(&mut self, mut level: DoomedDirectory, top: BorrowedFd<'_>) {
        if let Some(name) = level.names.next() {
            let (open, device) = (level.open.try_clone(), level.device);
            self.levels.push(level);
            match open {
                Ok(open) => self.entry(open.as_fd(), device, name),
                Err(error) => self.stays(&name, error),
            }
            return;
        }
        self.path.pop();
        if !level.is_empty {
            self.keep_levels();
            return;
        }
        let parent = self.levels.last().map_or(top, |above| above.open.as_fd());
        let removed = if self.dry_run { Ok(()) } else { unlinkat(parent, &level.name, AtFlags::REMOVEDIR) };
        match removed {
            Ok(()) => self.removed(&self.path.join(&level.name), level.was_locked),
            Err(error) => self.stays(&level.name, error.into()),
        }
    }

    /// Removes the entry `name` of `parent`, which lies on file system `device`; a directory later.
    fn entry(&mut self, parent: BorrowedFd<'_>, device: u64, name: OsString) {
        let path = self.path.join(&name);
        let stat = match statat(parent, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return,
            Err(error) => return self.stays(&name, error.into()),
        };
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        if is_temporary(&name) || self.remover.keeps(&path, is_directory) {
            return self.keep_levels();
        }
        if is_directory {
            match self.open(parent, device, &name, &identity_of(&stat)) {
                Ok(level) => {
                    self.path = path;
                    self.levels.push(level);
                }
                Err(error) => self.stays(&name, error),
            }
            return;
        }
        // The second try is that of an entry that was unlocked.
        let mut tries = 0;
        let unlink = || {
            tries += 1;
            unlinkat(parent, &name, AtFlags::empty())
        };
        let removed = if self.dry_run { Ok(()) } else { unlocking(parent, &name, unlink) };
        match removed {
            Ok(()) => {
                let was_locked = if self.dry_run { is_locked(parent, &name) } else { tries > 1 };
                self.removed(&path, was_locked);
            }
            Err(Errno::NOENT) => {}
            Err(error) => self.stays(&name, error.into()),
        }
    }

    fn removed(&mut self, path: &Path, was_locked: bool) {
        self.remover.removed(path);
        if was_locked {
            self.remover.unlocked(path);
        }
    }

    fn open(
        &self,
        parent: BorrowedFd<'_>,
        device: u64,
        name: &OsStr,
        identity: &FileIdentity,
    ) -> io::Result<DoomedDirectory> {
        if self.descent.target.options.protected.contains(identity) {
            return Err(io::Error::other("the repository is there"));
        }
        if identity.device != device {
            return Err(io::Error::other("it is on another file system"));
        }
        if self.levels.len() >= DEPTH_MAX {
            return Err(io::Error::other(format!("more than {DEPTH_MAX} directories inside one another")));
        }
        let open = open_directory(parent, name)?;
        if identity_of(&fstat(&open)?) != *identity {
            return Err(io::Error::other("another directory has replaced it"));
        }
        let names = names(open.as_fd())?.into_iter();
        let unlocked = if self.dry_run { None } else { Unlocked::named(parent, name) };
        let was_locked = if self.dry_run { is_locked(parent, name) } else { unlocked.is_some() };
        Ok(DoomedDirectory { name: name.into(), open, names, device, _unlocked: unlocked, was_locked, is_empty: true })
    }

    fn stays(&mut self, name: &OsStr, error: io::Error) {
        self.remover.problem(Error::io("delete", self.descent.target.path_of(&self.path.join(name)), error));
        self.keep_levels();
    }

    /// Notes that the directories being removed are not empty.
    fn keep_levels(&mut self) {
        self.levels.iter_mut().for_each(|level| level.is_empty = false);
    }
}

/// Names in an open directory, ascending.
fn names(directory: BorrowedFd<'_>) -> rustix::io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    let mut listing = Dir::read_from(directory)?;
    while let Some(entry) = listing.read() {
        match entry?.file_name().to_bytes() {
            b"." | b".." => {}
            name => names.push(OsString::from_vec(name.to_vec())),
        }
    }
    names.sort_unstable();
    Ok(names)
}
