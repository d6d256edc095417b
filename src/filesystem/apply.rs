//! Applies metadata to a restored entry.
//!
//! 1. Owner and group come first, because changing them clears the set-ID bits. A user who may not change the owner
//!    keeps the file, as with other tools. The set-ID bits are then omitted, because they would apply to another user.
//! 2. Extended attributes, including ACLs, are set while the owner may still write.
//! 3. The mode is set.
//! 4. Times come last, because all other steps change them.
//!
//! Steps are independent: the failure of one is reported, and the next is still done.

use crate::error::Error;
use crate::repo::tree::{Node, NodeKind, Timestamp};
use rustix::fs::{
    AtFlags, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags, chownat, fchmod, fchown, fsetxattr, futimens, utimensat,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

/// The metadata to apply to one entry.
pub(super) struct Metadata<'a> {
    node: &'a Node,
    /// Full path, for messages.
    path: &'a Path,
    problems: &'a mut Vec<Error>,
}

impl<'a> Metadata<'a> {
    pub(super) fn new(node: &'a Node, path: &'a Path, problems: &'a mut Vec<Error>) -> Self {
        Metadata { node, path, problems }
    }

    /// Applies everything to an open file or directory.
    pub(super) fn apply_to(mut self, entry: BorrowedFd<'_>) {
        let mode = self.own(|owner, group| fchown(entry, owner, group));
        self.set_xattrs(|name, value| fsetxattr(entry, name, value, XattrFlags::empty()));
        self.note("set the mode of", fchmod(entry, mode));
        self.note("set the times of", futimens(entry, &self.times()));
    }

    /// Applies everything to the entry `name` of an open directory. The entry is neither a file nor a directory.
    pub(super) fn apply_to_name(mut self, directory: BorrowedFd<'_>, name: &OsStr) {
        let mode = self.own(|owner, group| chownat(directory, name, owner, group, AtFlags::SYMLINK_NOFOLLOW));
        #[cfg(not(target_vendor = "apple"))]
        {
            let path = super::capture::descriptor_path(directory, name);
            self.set_xattrs(|name, value| rustix::fs::lsetxattr(&path, name, value, XattrFlags::empty()));
        }
        #[cfg(target_vendor = "apple")]
        self.set_xattrs(|_, _| Err(Errno::NOTSUP));
        if self.node.kind != NodeKind::Symlink {
            self.note("set the mode of", set_mode_of_name(directory, name, mode));
        }
        let times = utimensat(directory, name, &self.times(), AtFlags::SYMLINK_NOFOLLOW);
        self.note("set the times of", times);
    }

    fn note(&mut self, action: &'static str, result: rustix::io::Result<()>) {
        if let Err(error) = result {
            self.problems.push(Error::io(action, self.path, error));
        }
    }

    /// Sets owner and group as far as allowed. Returns the mode, without the set-ID bit of an owner or group that was
    /// not set.
    fn own(&mut self, set: impl Fn(Option<Uid>, Option<Gid>) -> rustix::io::Result<()>) -> Mode {
        let mode = Mode::from_bits_truncate((self.node.mode & 0o7777) as rustix::fs::RawMode);
        // The system reads the highest number as "no change".
        let owner = Some(self.node.uid).filter(|uid| *uid != u32::MAX).map(Uid::from_raw);
        let group = Some(self.node.gid).filter(|gid| *gid != u32::MAX).map(Gid::from_raw);
        let user = rustix::process::geteuid();
        match set(owner, group) {
            Ok(()) => mode,
            Err(error) => {
                if error != Errno::PERM || user.is_root() {
                    self.note("set the owner of", Err(error));
                }
                let group_is_set = set(None, group).is_ok();
                let owner_is_set = if user.is_root() { set(owner, None).is_ok() } else { owner == Some(user) };
                let lost = |is_set: bool, bit: Mode| if is_set { Mode::empty() } else { bit };
                mode - lost(owner_is_set, Mode::SUID) - lost(group_is_set, Mode::SGID)
            }
        }
    }

    fn set_xattrs(&mut self, set: impl Fn(&[u8], &[u8]) -> rustix::io::Result<()>) {
        for xattr in &self.node.xattrs {
            let Err(error) = set(&xattr.name, &xattr.value) else { continue };
            let is_reserved = xattr.name.starts_with(b"security.") || xattr.name.starts_with(b"trusted.");
            if error == Errno::PERM && is_reserved && !rustix::process::geteuid().is_root() {
                continue; // only root may set it
            }
            let error = io::Error::other(format!("{}: {error}", xattr.name.escape_ascii()));
            self.problems.push(Error::io("set an extended attribute of", self.path, error));
        }
    }

    fn times(&self) -> Timestamps {
        Timestamps {
            last_access: timespec(self.node.atime.unwrap_or(self.node.mtime)),
            last_modification: timespec(self.node.mtime),
        }
    }
}

/// Limits the nanoseconds, because the system gives larger numbers a special meaning.
fn timespec(time: Timestamp) -> Timespec {
    Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.min(999_999_999).into() }
}

/// Sets the mode of a pipe or device node without opening it, and without following a link that has replaced it.
#[cfg(not(target_vendor = "apple"))]
fn set_mode_of_name(directory: BorrowedFd<'_>, name: &OsStr, mode: Mode) -> rustix::io::Result<()> {
    use rustix::fs::{FileType, OFlags, chmod, fstat, openat};
    use std::os::fd::AsRawFd;
    let entry = openat(directory, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    if FileType::from_raw_mode(fstat(&entry)?.st_mode) == FileType::Symlink {
        return Err(Errno::LOOP);
    }
    chmod(format!("/proc/self/fd/{}", entry.as_raw_fd()), mode)
}

/// Sets the mode of an entry without following a link.
#[cfg(target_vendor = "apple")]
fn set_mode_of_name(directory: BorrowedFd<'_>, name: &OsStr, mode: Mode) -> rustix::io::Result<()> {
    rustix::fs::chmodat(directory, name, mode, AtFlags::SYMLINK_NOFOLLOW)
}
