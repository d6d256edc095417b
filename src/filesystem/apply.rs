//! Applies metadata to a restored entry.
//!
//! 1. Owner and group come first, because changing them clears the set-ID bits. A user who may not change the owner
//!    keeps the file, as with other tools. The set-ID bits are then omitted, because they would apply to another user.
//! 2. Extended attributes, including ACLs, are made equal (`attributes`) while the owner may still write. Without its
//!    ACL, an entry gets no more rights for its group than the ACL gives that group.
//! 3. The mode is set after the ACL, because each changes the other's bits of the group.
//! 4. File flags and times come last. Flags that lock an entry, and its project, wait for the end of the restore
//!    (`notes`). An entry that is locked already is unlocked first.
//!
//! Steps are independent: the failure of one is reported, and the next is still done. Attributes that the system
//! refuses are warnings. An ACL that cannot be removed is a problem: it may let somebody in.

use super::attributes::{ACL, AttributesOf, group_bits, is_acl, is_reserved, is_stale};
use super::capture::identity_of;
use super::flags;
use super::notes::TargetNotes;
use crate::error::Error;
use crate::repo::tree::{FileFlags, Node, NodeKind, Timestamp};
use rustix::fs::{AtFlags, Gid, Mode, Timespec, Timestamps, Uid, chownat, fchmod, fchown, fstat, futimens, utimensat};
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
    notes: &'a TargetNotes,
    problems: &'a mut Vec<Error>,
    /// Whether the end of the restore must set the flags, because they were cleared.
    was_locked: bool,
}

impl<'a> Metadata<'a> {
    pub(super) fn new(node: &'a Node, path: &'a Path, notes: &'a TargetNotes, problems: &'a mut Vec<Error>) -> Self {
        Metadata { node, path, notes, problems, was_locked: false }
    }

    /// The same for an entry that was unlocked before.
    pub(super) fn of_locked(self, was_locked: bool) -> Self {
        Metadata { was_locked, ..self }
    }

    /// Applies everything to an open file or directory.
    pub(super) fn apply_to(mut self, entry: BorrowedFd<'_>) {
        let before = flags::unlock(entry);
        self.was_locked |= before.is_some();
        let mode = self.own(|owner, group| fchown(entry, owner, group));
        let mode = mode & self.attributes(&AttributesOf::Open(entry));
        self.note("set the mode of", fchmod(entry, mode));
        match self.node.knows_flags() {
            true => self.flags(entry),
            // They stay as they are.
            false => before.into_iter().for_each(|before| self.flag_later(entry, before)),
        }
        self.note("set the times of", futimens(entry, &self.times()));
    }

    /// Applies everything to the entry `name` of an open directory. The entry is neither a file nor a directory.
    pub(super) fn apply_to_name(mut self, directory: BorrowedFd<'_>, name: &OsStr) {
        let mode = self.own(|owner, group| chownat(directory, name, owner, group, AtFlags::SYMLINK_NOFOLLOW));
        let allowed = self.attributes(&AttributesOf::Path(&entry_path(directory, name, self.path)));
        let mode = mode & allowed;
        if self.node.kind != NodeKind::Symlink {
            self.note("set the mode of", set_mode_of_name(directory, name, mode));
        }
        let times = utimensat(directory, name, &self.times(), AtFlags::SYMLINK_NOFOLLOW);
        self.note("set the times of", times);
    }

    /// Sets the flags that do not lock the entry, and notes the rest for later.
    fn flags(&mut self, entry: BorrowedFd<'_>) {
        let wanted = self.node.file_flags();
        let Ok(now) = flags::read(entry) else {
            if !wanted.is_empty() {
                self.refused_flags(entry, wanted, Errno::NOTSUP);
            }
            return;
        };
        let mask = FileFlags::STORED & !FileFlags::LOCKS;
        if let Err((bits, error)) = flags::change(entry, mask, wanted.bits) {
            self.refused_flags(entry, FileFlags { bits, project: 0 }, error);
        }
        if !self.was_locked && !wanted.is_locked() && wanted.project == now.project {
            return;
        }
        self.flag_later(entry, wanted);
    }

    /// Notes flags for the end of the restore.
    fn flag_later(&mut self, entry: BorrowedFd<'_>, flags: FileFlags) {
        let noted = fstat(entry).map_err(io::Error::from);
        let noted = noted.and_then(|stat| self.notes.flag_later(self.path, identity_of(&stat), flags));
        if let Err(error) = noted {
            self.problems.push(Error::io("note the file flags of", self.path, error));
        }
    }

    fn refused_flags(&self, entry: BorrowedFd<'_>, refused: FileFlags, error: Errno) {
        if let Ok(stat) = fstat(entry) {
            self.notes.refuse_flags(identity_of(&stat).device, refused);
        }
        let refusal = io::Error::other(format!("{}: {error}", FileFlags::letters(refused.bits)));
        self.notes.warn(&Error::io("set the file flags of", self.path, refusal));
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

    /// Makes the attributes equal to the stored ones. Returns the bits that the mode may have.
    fn attributes(&mut self, entry: &AttributesOf<'_>) -> Mode {
        // A link has no attributes that a restore would remove.
        if self.node.kind != NodeKind::Symlink {
            self.remove_stale(entry);
        }
        let mut allowed = Mode::all();
        for xattr in &self.node.xattrs {
            let Err(error) = entry.set(xattr) else { continue };
            if xattr.name == ACL {
                allowed -= Mode::RWXG;
                allowed |= Mode::from_bits_truncate((group_bits(&xattr.value) << 3) as rustix::fs::RawMode);
            }
            if error == Errno::PERM && is_reserved(&xattr.name) && !rustix::process::geteuid().is_root() {
                continue; // only root may set it
            }
            self.refused("set an extended attribute of", &xattr.name, error, false);
        }
        allowed
    }

    /// Removes the attributes that let somebody in, or change what a program may do, and that the snapshot lacks.
    fn remove_stale(&mut self, entry: &AttributesOf<'_>) {
        let names = match entry.names() {
            Ok(names) => names,
            Err(error) => return self.note("list the extended attributes of", Err(error)),
        };
        for name in names.iter().filter(|name| is_stale(self.node, name)) {
            match entry.remove(name) {
                Ok(()) | Err(Errno::NODATA) => {}
                Err(error) => self.refused("remove an extended attribute of", name, error, is_acl(name)),
            }
        }
    }

    /// Reports an attribute that could not be changed.
    fn refused(&mut self, action: &'static str, name: &[u8], error: Errno, is_problem: bool) {
        let refusal = io::Error::other(format!("{}: {error}", name.escape_ascii()));
        let refusal = Error::io(action, self.path, refusal);
        match error {
            Errno::PERM | Errno::NOTSUP | Errno::OPNOTSUPP if !is_problem => self.notes.warn(&refusal),
            _ => self.problems.push(refusal),
        }
    }

    fn times(&self) -> Timestamps {
        Timestamps {
            last_access: timespec(self.node.atime.unwrap_or(self.node.mtime)),
            last_modification: timespec(self.node.mtime),
        }
    }
}

/// A path of the entry `name` of an open directory, whose own path is `path`.
#[cfg(not(target_vendor = "apple"))]
fn entry_path(directory: BorrowedFd<'_>, name: &OsStr, _: &Path) -> std::path::PathBuf {
    super::capture::descriptor_path(directory, name)
}

/// A path of the entry.
#[cfg(target_vendor = "apple")]
fn entry_path(_: BorrowedFd<'_>, _: &OsStr, path: &Path) -> std::path::PathBuf {
    path.to_path_buf()
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
