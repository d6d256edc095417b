//! File flags and projects of open files and directories. Only Linux has them.
//!
//! An immutable or append-only entry is *locked*: nothing of it can be changed, and it cannot be replaced. A restore
//! clears these flags where it has to and may, and sets the stored ones at its very end.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, OFlags, statat};
use rustix::io::{Errno, Result as ErrnoResult};

use super::source::open_quietly;
use crate::repo::tree::FileFlags;

/// Flags and project of an open file or directory.
///
/// # Errors
/// Errors of the system, also if the file system has no flags.
#[cfg(target_os = "linux")]
pub(super) fn read(entry: BorrowedFd<'_>) -> ErrnoResult<FileFlags> {
    let bits = rustix::fs::ioctl_getflags(entry)?.bits() & FileFlags::STORED;
    Ok(FileFlags { bits, project: super::project::project(entry).unwrap_or(0) })
}

#[cfg(not(target_os = "linux"))]
pub(super) fn read(_: BorrowedFd<'_>) -> ErrnoResult<FileFlags> {
    Err(Errno::NOTTY)
}

/// Changes the flags in `mask` to those in `bits`. Returns the flags that the system refused, and why.
#[cfg(target_os = "linux")]
pub(super) fn change(entry: BorrowedFd<'_>, mask: u32, bits: u32) -> Result<(), (u32, Errno)> {
    use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
    let set = |mask: u32| -> ErrnoResult<()> {
        let now = ioctl_getflags(entry)?.bits();
        let wanted = (now & !mask) | (bits & mask);
        if now == wanted { Ok(()) } else { ioctl_setflags(entry, IFlags::from_bits_retain(wanted)) }
    };
    if set(mask).is_ok() {
        return Ok(());
    }
    // A file system refuses all flags if it does not know one of them.
    let mut refused: Option<(u32, Errno)> = None;
    for (bit, _) in FileFlags::LETTERS.iter().filter(|(bit, _)| mask & bit != 0) {
        if let Err(error) = set(*bit) {
            refused = Some((refused.map_or(0, |(bits, _)| bits) | bit, error));
        }
    }
    refused.map_or(Ok(()), Err)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn change(_: BorrowedFd<'_>, mask: u32, _: u32) -> Result<(), (u32, Errno)> {
    Err((mask, Errno::NOTTY))
}

#[cfg(target_os = "linux")]
pub(super) use super::project::set_project;

#[cfg(not(target_os = "linux"))]
pub(super) fn set_project(_: BorrowedFd<'_>, _: u32) -> ErrnoResult<()> {
    Err(Errno::NOTTY)
}

/// Clears the flags that lock an entry, and returns what it had. `None`: it was not locked, or this user may not.
pub(super) fn unlock(entry: BorrowedFd<'_>) -> Option<FileFlags> {
    let before = read(entry).ok().filter(|flags| flags.is_locked())?;
    change(entry, FileFlags::LOCKS, 0).ok()?;
    Some(before)
}

/// Whether the file or directory `name` is locked.
pub(super) fn is_locked(directory: BorrowedFd<'_>, name: &OsStr) -> bool {
    open(directory, name).ok().and_then(|entry| read(entry.as_fd()).ok()).is_some_and(FileFlags::is_locked)
}

/// Opens an entry for its flags, if it is a file or directory. A link is not followed.
pub(super) fn open(directory: BorrowedFd<'_>, name: &OsStr) -> ErrnoResult<OwnedFd> {
    let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile | FileType::Directory => {
            open_quietly(directory, name, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK)
        }
        _ => Err(Errno::NOTTY),
    }
}

/// An entry that was locked. It is locked again when this is dropped.
#[derive(Debug)]
pub(super) struct Unlocked {
    entry: OwnedFd,
    before: FileFlags,
}

impl Unlocked {
    /// Unlocks the entry `name`. `None` as in [`unlock`].
    pub(super) fn named(directory: BorrowedFd<'_>, name: &OsStr) -> Option<Self> {
        let entry = open(directory, name).ok()?;
        let before = unlock(entry.as_fd())?;
        Some(Unlocked { entry, before })
    }
}

impl Drop for Unlocked {
    fn drop(&mut self) {
        let _ = change(self.entry.as_fd(), FileFlags::LOCKS, self.before.bits);
    }
}

/// Calls `change`, which fails if the entry `name` is locked. It is then unlocked for a second call.
pub(super) fn unlocking<T>(
    directory: BorrowedFd<'_>,
    name: &OsStr,
    mut change: impl FnMut() -> ErrnoResult<T>,
) -> ErrnoResult<T> {
    match change() {
        Err(Errno::PERM) => {
            let unlocked = Unlocked::named(directory, name).ok_or(Errno::PERM)?;
            let changed = change();
            drop(unlocked);
            changed
        }
        done => done,
    }
}
