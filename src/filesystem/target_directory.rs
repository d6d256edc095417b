//! A directory of the target that is being filled, and names in it.
//!
//! 1. An entry never replaces another one, unless the restore decided so after it looked at that one. Then the new
//!    entry is made under a temporary name, and a rename replaces the old one if that is still the same.
//! 2. Creating and renaming entries changes the times of the directory. So its metadata is applied by whoever releases
//!    the last reference: the descent that leaves it, or the last file or link that is created in it.
//! 3. All calls are relative to the open directory. None follows a path.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{AtFlags, FileType, fsync, linkat, renameat, statat, unlinkat};
use rustix::io::{Errno, Result as ErrnoResult};

use super::apply::Metadata;
use super::capture::node_of;
use super::flags::{self, unlocking};
use super::notes::TargetNotes;
use super::stale;
use super::target::TargetOptions;
use crate::error::{Error, Result};
use crate::repo::tree::{FileIdentity, Node, Timestamp};
use crate::store::sync_content;
use crate::types::hex;

/// Start of the names of entries that are not complete yet.
pub(super) const TEMPORARY_NAME: &str = ".fhrd-";
/// Hex digits behind it.
const TEMPORARY_DIGITS: usize = 24;
/// Longest name of an entry, bytes.
const NAME_BYTES_MAX: usize = 255;
/// Names that are tried for a damaged file before it is given up.
const DAMAGED_NAMES_MAX: u32 = 1000;
/// Entries with names of temporary files that are remembered. In a directory with more nothing is stale.
const NAMED_MAX: usize = 1000;

/// An open directory that is being filled.
#[derive(Debug)]
pub struct TargetDirectory {
    descriptor: OwnedFd,
    /// Full path, for messages.
    path: PathBuf,
    /// Whether this restore has created it.
    pub(super) is_new: bool,
    /// Whether its entries are to be on disk when it is complete.
    sync: bool,
    notes: Arc<TargetNotes>,
    /// Whether its flags were cleared.
    pub(super) was_locked: bool,
    /// Metadata to apply when everything in it is complete.
    metadata: Mutex<Option<Node>>,
    /// Names of temporary files that entries of the snapshot have. `None`: they are not all known.
    named: Mutex<Option<BTreeSet<OsString>>>,
}

impl TargetDirectory {
    pub(super) fn new(
        descriptor: OwnedFd,
        path: PathBuf,
        is_new: bool,
        was_locked: bool,
        options: &TargetOptions,
    ) -> Arc<Self> {
        let (sync, notes) = (options.sync, options.notes.clone());
        let named = Mutex::new((!options.keep_temporary).then(BTreeSet::new));
        let metadata = Mutex::default();
        Arc::new(TargetDirectory { descriptor, path, is_new, sync, notes, was_locked, metadata, named })
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Sets the metadata to apply at the end.
    pub(super) fn set_metadata(&self, node: Node) {
        *self.metadata.lock() = Some(node);
    }

    /// Gives back a reference. The last one applies the metadata and appends its errors to `problems`.
    pub(super) fn release(self: Arc<Self>, problems: &mut Vec<Error>) {
        let Some(mut directory) = Arc::into_inner(self) else { return };
        if let Some(node) = directory.metadata.get_mut().take() {
            directory.remove_stale();
            directory.apply(&node, problems);
        }
        directory.write_back(problems);
    }

    /// Removes what killed restores have left in it, if it is known what the snapshot has. Nothing is written into it
    /// any more.
    pub(super) fn remove_stale(&self) {
        let named = self.named.lock();
        if !self.is_new
            && let Some(named) = named.as_ref()
        {
            let stays = |name: &OsStr, file| named.contains(name) || self.notes.has_left(file);
            stale::remove_stale(self.as_fd(), &self.path, stays);
        }
    }

    /// Notes that the snapshot has an entry of this name: it stays, even if it is called as a temporary file.
    pub(super) fn name_entry(&self, name: &OsStr) {
        let mut named = self.named.lock();
        if is_temporary(name)
            && let Some(names) = named.as_mut()
        {
            names.insert(name.into());
            if names.len() > NAMED_MAX {
                *named = None;
            }
        }
    }

    /// Notes that not all entries of the snapshot are known: files with temporary names stay.
    pub(super) fn keep_temporary(&self) {
        *self.named.lock() = None;
    }

    /// Notes a file in it that is left for another restore to go on from.
    pub(super) fn leave(&self, file: FileIdentity) {
        self.notes.leave(file);
    }

    /// Applies metadata.
    pub(super) fn apply(&self, node: &Node, problems: &mut Vec<Error>) {
        Metadata::new(node, &self.path, &self.notes, problems).of_locked(self.was_locked).apply_to(self.as_fd());
    }

    /// Makes its entries durable, if that is wanted.
    pub(super) fn write_back(&self, problems: &mut Vec<Error>) {
        match if self.sync { fsync(&self.descriptor) } else { Ok(()) } {
            // Some network file systems cannot sync directories and do not need to.
            Ok(()) | Err(Errno::INVAL | Errno::NOTSUP | Errno::NOSYS) => {}
            Err(error) => problems.push(Error::io("sync", &self.path, error)),
        }
    }

    /// The error of an entry called `name` that could not be created.
    pub(super) fn refused(&self, name: &OsStr, error: Errno) -> Error {
        let path = self.path.join(name);
        let is_locked = |name: &str| flags::is_locked(self.as_fd(), OsStr::new(name));
        if error == Errno::PERM && (flags::is_locked(self.as_fd(), name) || is_locked(".")) {
            let why = "it or its directory is immutable or append-only (chattr), and only root may change that";
            return Error::io("create", path, io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        if !matches!(error, Errno::EXIST | Errno::ISDIR | Errno::NOTEMPTY) {
            return Error::io("create", path, error);
        }
        let stat = statat(&self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW).ok();
        let what = match stat.map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            Some(FileType::RegularFile) => "a file",
            Some(FileType::Directory) => "a directory",
            Some(FileType::Symlink) => "a symbolic link",
            _ => "another entry",
        };
        Error::AlreadyExists { path, what }
    }
}

/// Whether the content of an entry is complete. It decides the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completeness {
    /// The entry gets its own name.
    Complete,
    /// The entry gets its name with `.damaged` behind it, and a number if that is taken.
    Damaged,
}

/// The state of an entry that is to be replaced. If it has another one then, it stays. The time of its inode is no part
/// of it, because replacing another name of the inode changes that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ReplacedEntry {
    identity: FileIdentity,
    mtime: Timestamp,
    size: u64,
}

impl ReplacedEntry {
    fn of(node: &Node) -> Self {
        ReplacedEntry { identity: node.identity(), mtime: node.mtime, size: node.size }
    }
}

/// A name in a directory of the target.
#[derive(Debug)]
pub struct TargetName {
    directory: Arc<TargetDirectory>,
    name: OsString,
    replaced: Option<ReplacedEntry>,
}

impl TargetName {
    /// The name `name`, which is free or belongs to the entry `replaced`.
    pub(super) fn new(directory: Arc<TargetDirectory>, name: &OsStr, replaced: Option<&Node>) -> Self {
        TargetName { directory, name: name.into(), replaced: replaced.map(ReplacedEntry::of) }
    }

    /// Gives back the reference to the directory. See `TargetDirectory::release`.
    pub fn release(self, problems: &mut Vec<Error>) {
        self.directory.release(problems);
    }

    /// Notes that the file `identity` stays under its temporary name, for another restore to go on from.
    pub(super) fn leave(&self, identity: FileIdentity) {
        self.directory.leave(identity);
    }

    pub(super) fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Full path, for messages.
    pub(super) fn path(&self) -> PathBuf {
        self.directory.path.join(&self.name)
    }

    /// The error of an entry that could not be created here.
    pub(super) fn refused(&self, error: Errno) -> Error {
        self.directory.refused(&self.name, error)
    }

    /// Fails if the name is taken by an entry that is not to be replaced.
    pub(super) fn check_free(&self) -> Result<()> {
        if self.replaced.is_some() || self.directory.is_new {
            return Ok(());
        }
        match statat(self.directory(), &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(self.refused(error)),
            Ok(_) => Err(self.refused(Errno::EXIST)),
        }
    }

    /// Makes the content of a file durable before it gets its name, if that is wanted.
    pub(super) fn sync_file(&self, file: &File) -> Result<()> {
        if !self.directory.sync {
            return Ok(());
        }
        sync_content(file).map_err(|error| Error::io("sync", self.path(), error))
    }

    /// Calls `create` with the directory and a name that is probably free, and returns the name that succeeded.
    pub(super) fn claim(
        &self,
        completeness: Completeness,
        mut create: impl FnMut(BorrowedFd<'_>, &OsStr) -> ErrnoResult<()>,
    ) -> Result<OsString> {
        let directory = self.directory();
        if completeness == Completeness::Complete {
            match &self.replaced {
                None => create(directory, &self.name).map_err(|error| self.refused(error))?,
                Some(replaced) => self.replace(replaced, create)?,
            }
            return Ok(self.name.clone());
        }
        for number in 1..=DAMAGED_NAMES_MAX {
            let name = damaged_name(&self.name, number);
            match create(directory, &name) {
                Ok(()) => return Ok(name),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(self.directory.refused(&name, error)),
            }
        }
        Err(self.directory.refused(&damaged_name(&self.name, 1), Errno::EXIST))
    }

    /// Creates an entry under a temporary name and puts it in the place of the one that is to be replaced.
    fn replace(
        &self,
        replaced: &ReplacedEntry,
        mut create: impl FnMut(BorrowedFd<'_>, &OsStr) -> ErrnoResult<()>,
    ) -> Result<()> {
        let temporary = random_name().map_err(|error| Error::io("create", self.path(), error))?;
        create(self.directory(), &temporary).map_err(|error| self.refused(error))?;
        let renamed = match self.is_still(replaced) {
            Ok(true) => unlocking(self.directory(), &self.name, || {
                renameat(self.directory(), &temporary, self.directory(), &self.name)
            }),
            Ok(false) => rename_without_replacing(self.directory(), &temporary, &self.name),
            Err(error) => Err(error),
        };
        renamed.map_err(|error| {
            let _ = unlinkat(self.directory(), &temporary, AtFlags::empty());
            self.refused(error)
        })
    }

    /// Removes the entry that is to be replaced, so that a directory can take its place.
    pub(super) fn remove_replaced(&self) -> Result<()> {
        let Some(replaced) = &self.replaced else { return Ok(()) };
        let removed = match self.is_still(replaced) {
            Ok(true) => {
                let unlink = || unlinkat(self.directory(), &self.name, AtFlags::empty());
                unlocking(self.directory(), &self.name, unlink)
            }
            other => other.map(drop),
        };
        removed.map_err(|error| self.refused(error))
    }

    /// Whether the name still belongs to the entry that is to be replaced. `false`: it is free.
    fn is_still(&self, replaced: &ReplacedEntry) -> ErrnoResult<bool> {
        let stat = match statat(self.directory(), &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(false),
            stat => stat?,
        };
        let now = node_of(&stat, Path::new(&self.name)).map_err(|_| Errno::EXIST)?;
        if ReplacedEntry::of(&now) == *replaced { Ok(true) } else { Err(Errno::EXIST) }
    }
}

/// The name of a damaged file: `NAME.damaged`, `NAME.damaged-2`, and so on. A long name is cut to fit.
pub fn damaged_name(name: &OsStr, number: u32) -> OsString {
    let suffix = if number == 1 { ".damaged".to_string() } else { format!(".damaged-{number}") };
    let mut bytes = name.as_bytes().to_vec();
    bytes.truncate(NAME_BYTES_MAX - suffix.len());
    if std::str::from_utf8(name.as_bytes()).is_ok()
        && let Err(error) = std::str::from_utf8(&bytes)
    {
        bytes.truncate(error.valid_up_to());
    }
    bytes.extend_from_slice(suffix.as_bytes());
    OsString::from_vec(bytes)
}

/// Whether a restore gives such names to entries that are not complete.
pub(super) fn is_temporary(name: &OsStr) -> bool {
    let digits = name.as_bytes().strip_prefix(TEMPORARY_NAME.as_bytes());
    digits.is_some_and(|digits| digits.len() == TEMPORARY_DIGITS && digits.iter().all(u8::is_ascii_hexdigit))
}

/// A temporary name that nobody can guess.
pub(super) fn random_name() -> io::Result<OsString> {
    let mut random = [0u8; TEMPORARY_DIGITS / 2];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    Ok(OsString::from(format!("{TEMPORARY_NAME}{}", hex(&random))))
}

/// Renames an entry of a directory unless `to` exists.
pub(super) fn rename_without_replacing(directory: BorrowedFd<'_>, from: &OsStr, to: &OsStr) -> ErrnoResult<()> {
    #[cfg(any(target_os = "linux", target_vendor = "apple"))]
    {
        use rustix::fs::{RenameFlags, renameat_with};
        match renameat_with(directory, from, directory, to, RenameFlags::NOREPLACE) {
            Err(error) if [Errno::INVAL, Errno::NOSYS, Errno::NOTSUP, Errno::OPNOTSUPP].contains(&error) => {}
            renamed => return renamed,
        }
    }
    rename_by_link(directory, from, to)
}

/// The same where the file system lacks that call: by a hard link or, without these, by a check and a rename.
fn rename_by_link(directory: BorrowedFd<'_>, from: &OsStr, to: &OsStr) -> ErrnoResult<()> {
    match linkat(directory, from, directory, to, AtFlags::empty()) {
        Ok(()) => unlinkat(directory, from, AtFlags::empty()),
        Err(error) if matches!(error, Errno::EXIST | Errno::NOENT) => Err(error),
        Err(_) => match statat(directory, to, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Err(Errno::EXIST),
            Err(Errno::NOENT) => renameat(directory, from, directory, to),
            Err(error) => Err(error),
        },
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::new_file::NewFile;
    use super::*;
    use crate::filesystem::Capturer;
    use std::fs;

    pub fn directory() -> (tempfile::TempDir, Arc<TargetDirectory>) {
        let directory = tempfile::tempdir().unwrap();
        let opened = reopened(&directory);
        (directory, opened)
    }

    /// The directory as another restore opens it.
    pub fn reopened(directory: &tempfile::TempDir) -> Arc<TargetDirectory> {
        let descriptor = OwnedFd::from(File::open(directory.path()).unwrap());
        let options = TargetOptions { sync: true, ..TargetOptions::default() };
        TargetDirectory::new(descriptor, directory.path().into(), false, false, &options)
    }

    pub fn names(directory: &tempfile::TempDir) -> Vec<OsString> {
        let entries = fs::read_dir(directory.path()).unwrap();
        let mut names: Vec<OsString> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }

    #[test]
    fn renaming_by_link_never_replaces() {
        let (directory, opened) = directory();
        for name in ["one", "two"] {
            fs::write(directory.path().join(name), name).unwrap();
        }
        let rename = |from, to| rename_by_link(opened.as_fd(), OsStr::new(from), OsStr::new(to));
        assert_eq!(rename("one", "two"), Err(Errno::EXIST));
        assert_eq!(rename("one", "three"), Ok(()));
        assert_eq!(names(&directory), ["three", "two"]);
    }

    #[test]
    fn only_the_entry_that_was_judged_is_replaced() {
        let (directory, opened) = directory();
        let path = directory.path().join("f");
        fs::write(&path, b"old").unwrap();
        let judged = Capturer::new().capture_path(&path, false, &mut Vec::new()).unwrap();
        let publish = || {
            let at = TargetName::new(opened.clone(), OsStr::new("f"), Some(&judged));
            let file = NewFile::create(at, &[1; 12]).unwrap();
            std::io::Write::write_all(&mut &file.file, b"new").unwrap();
            file.publish(Completeness::Complete, &mut Vec::new())
        };
        publish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        // The judged file is gone now. Another one has taken the name.
        assert!(matches!(publish().unwrap_err(), Error::AlreadyExists { what: "a file", .. }));
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(matches!(publish().unwrap_err(), Error::AlreadyExists { what: "a directory", .. }));
        fs::remove_dir(&path).unwrap();
        publish().unwrap();
        assert_eq!(names(&directory), ["f"]);
    }

    #[test]
    fn the_last_reference_applies_the_metadata() {
        let (directory, opened) = directory();
        let file = NewFile::create(TargetName::new(opened.clone(), OsStr::new("a"), None), &[0; 12]).unwrap();
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let mtime = Timestamp { seconds: 1_000_000_000, nanoseconds: 5 };
        opened.set_metadata(Node { mode: 0o750, uid, gid, mtime, ..Node::default() });
        let mut problems = Vec::new();
        opened.release(&mut problems);
        let modified = || fs::metadata(directory.path()).unwrap().modified().unwrap();
        let expected = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 5);
        assert_ne!(modified(), expected);
        file.publish(Completeness::Complete, &mut problems).unwrap();
        assert_eq!(modified(), expected);
        assert!(problems.is_empty(), "{problems:?}");
    }
}
