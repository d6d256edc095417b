//! A directory of the target that is being filled, names in it, and files that are not whole yet.
//!
//! 1. A file is written under a temporary name, [`TEMPORARY_NAME`] and random digits, in the directory where it is to
//!    appear. Its own name appears by a rename that never replaces an entry, when it is whole.
//! 2. A file that is dropped before is removed. What a killed process leaves has a temporary name.
//! 3. Creating and renaming entries changes the times of the directory. So its metadata is applied by whoever releases
//!    the last reference: the descent that leaves it, or the last file or link that is created in it.
//! 4. All calls are relative to the open directory. None follows a path.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, linkat, openat, renameat, statat, unlinkat};
use rustix::io::{Errno, Result as ErrnoResult};

use super::apply::Metadata;
use crate::error::{Error, Result};
use crate::repo::tree::Node;
use crate::types::hex;

/// Start of the names of files that are not whole yet.
const TEMPORARY_NAME: &str = ".fhrd-";
/// Longest name of an entry, bytes.
const NAME_BYTES_MAX: usize = 255;
/// Names that are tried for a damaged file before it is given up.
const DAMAGED_NAMES_MAX: u32 = 1000;

/// An open directory that is being filled.
#[derive(Debug)]
pub struct TargetDirectory {
    descriptor: OwnedFd,
    /// Full path, for messages.
    path: PathBuf,
    /// Metadata to apply when everything in it is complete.
    metadata: Mutex<Option<Node>>,
}

impl TargetDirectory {
    pub(super) fn new(descriptor: OwnedFd, path: PathBuf) -> Arc<Self> {
        Arc::new(TargetDirectory { descriptor, path, metadata: Mutex::new(None) })
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Sets the metadata to apply at the end.
    pub(super) fn set_metadata(&self, node: Node) {
        *self.metadata.lock().unwrap_or_else(PoisonError::into_inner) = Some(node);
    }

    /// Gives back a reference. The last one applies the metadata and appends its errors to `problems`.
    pub(super) fn release(self: Arc<Self>, problems: &mut Vec<Error>) {
        let Some(directory) = Arc::into_inner(self) else { return };
        if let Some(node) = directory.metadata.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Metadata::new(&node, &directory.path, problems).apply_to(directory.descriptor.as_fd());
        }
    }

    /// The error of an entry called `name` that could not be created.
    pub(super) fn refused(&self, name: &OsStr, error: Errno) -> Error {
        let path = self.path.join(name);
        if error != Errno::EXIST {
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

/// A name in a directory of the target.
#[derive(Debug)]
pub struct TargetName {
    directory: Arc<TargetDirectory>,
    name: OsString,
}

impl TargetName {
    pub(super) fn new(directory: Arc<TargetDirectory>, name: &OsStr) -> Self {
        TargetName { directory, name: name.into() }
    }

    /// Gives back the reference to the directory. See `TargetDirectory::release`.
    pub fn release(self, problems: &mut Vec<Error>) {
        self.directory.release(problems);
    }

    /// Calls `create` with the directory and a name that is probably free, and returns the name that succeeded.
    pub(super) fn claim(
        &self,
        completeness: Completeness,
        mut create: impl FnMut(BorrowedFd<'_>, &OsStr) -> ErrnoResult<()>,
    ) -> Result<OsString> {
        let directory = self.directory.as_fd();
        if completeness == Completeness::Complete {
            create(directory, &self.name).map_err(|error| self.directory.refused(&self.name, error))?;
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
}

/// The name of a damaged file: `NAME.damaged`, `NAME.damaged-2`, and so on. A long name is cut to fit.
fn damaged_name(name: &OsStr, number: u32) -> OsString {
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

/// A file under a temporary name, open for writing. Dropping it removes it unless it was published.
#[derive(Debug)]
pub struct NewFile {
    /// The open file.
    pub file: File,
    unpublished: Mutex<Option<UnpublishedFile>>,
}

/// The names of a file that has only the temporary one.
#[derive(Debug)]
struct UnpublishedFile {
    at: TargetName,
    temporary: OsString,
}

impl NewFile {
    /// Creates an empty file, accessible by its owner only, that is to appear as `at`.
    pub(super) fn create(at: TargetName) -> Result<Self> {
        let (directory, name) = (at.directory.as_fd(), &at.name);
        let refused = |error| at.directory.refused(name, error);
        match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => {}
            Err(error) => return Err(refused(error)),
            Ok(_) => return Err(refused(Errno::EXIST)),
        }
        let mut random = [0u8; 12];
        getrandom::fill(&mut random)
            .map_err(|error| Error::io("create", at.directory.path.join(name), std::io::Error::other(error)))?;
        let temporary = OsString::from(format!("{TEMPORARY_NAME}{}", hex(&random)));
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(directory, &temporary, flags, Mode::RUSR | Mode::WUSR).map_err(refused)?;
        Ok(NewFile { file: file.into(), unpublished: Mutex::new(Some(UnpublishedFile { at, temporary })) })
    }

    /// Gives the file its name, which is returned, and gives back the reference to the directory. On an error the file
    /// is removed. Appends errors of the directory's metadata to `problems`.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] if an entry of that name has appeared. [`Error::Io`].
    pub fn publish(&self, completeness: Completeness, problems: &mut Vec<Error>) -> Result<OsString> {
        let taken = self.take().ok_or_else(|| Error::internal("a restored file was published twice"));
        let UnpublishedFile { at, temporary } = taken?;
        let named = at.claim(completeness, |directory, name| rename_without_replacing(directory, &temporary, name));
        if named.is_err() {
            remove(&at, &temporary);
        }
        at.release(problems);
        named
    }

    /// Removes the file and gives back the reference to the directory, as [`NewFile::publish`].
    pub fn discard(&self, problems: &mut Vec<Error>) {
        if let Some(UnpublishedFile { at, temporary }) = self.take() {
            remove(&at, &temporary);
            at.release(problems);
        }
    }

    fn take(&self) -> Option<UnpublishedFile> {
        self.unpublished.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        self.discard(&mut Vec::new());
    }
}

/// Removes a file that is not wanted. If that fails, the file keeps its temporary name.
fn remove(at: &TargetName, temporary: &OsStr) {
    let _ = unlinkat(at.directory.as_fd(), temporary, AtFlags::empty());
}

/// Renames an entry of a directory unless `to` exists.
fn rename_without_replacing(directory: BorrowedFd<'_>, from: &OsStr, to: &OsStr) -> ErrnoResult<()> {
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
mod tests {
    use super::*;
    use std::fs;

    fn directory() -> (tempfile::TempDir, Arc<TargetDirectory>) {
        let directory = tempfile::tempdir().unwrap();
        let descriptor = OwnedFd::from(File::open(directory.path()).unwrap());
        let opened = TargetDirectory::new(descriptor, directory.path().into());
        (directory, opened)
    }

    fn create(directory: &Arc<TargetDirectory>, name: &str) -> Result<NewFile> {
        NewFile::create(TargetName::new(directory.clone(), OsStr::new(name)))
    }

    fn names(directory: &tempfile::TempDir) -> Vec<OsString> {
        let entries = fs::read_dir(directory.path()).unwrap();
        let mut names: Vec<OsString> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_has_its_name_only_when_it_is_published() {
        let (directory, opened) = directory();
        let dropped = create(&opened, "a").unwrap();
        let published = create(&opened, "a").unwrap();
        assert!(names(&directory).iter().all(|name| name.as_bytes().starts_with(TEMPORARY_NAME.as_bytes())));
        assert_eq!(published.publish(Completeness::Complete, &mut Vec::new()).unwrap(), "a");
        assert!(matches!(dropped.publish(Completeness::Complete, &mut Vec::new()), Err(Error::AlreadyExists { .. })));
        drop((published, dropped, create(&opened, "b").unwrap()));
        assert!(create(&opened, "a").is_err());
        assert_eq!(names(&directory), ["a"]);
    }

    #[test]
    fn a_damaged_file_takes_the_next_free_name() {
        let (directory, opened) = directory();
        for expected in ["f.damaged", "f.damaged-2", "f.damaged-3"] {
            let file = create(&opened, "f").unwrap();
            assert_eq!(file.publish(Completeness::Damaged, &mut Vec::new()).unwrap(), expected);
        }
        let long = "ä".repeat(127);
        let name = create(&opened, &long).unwrap().publish(Completeness::Damaged, &mut Vec::new()).unwrap();
        assert_eq!(name.to_str().unwrap(), format!("{}.damaged", "ä".repeat(123)));
        assert_eq!(names(&directory).len(), 4);
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
    fn the_last_reference_applies_the_metadata() {
        let (directory, opened) = directory();
        let file = create(&opened, "a").unwrap();
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let mtime = crate::repo::tree::Timestamp { seconds: 1_000_000_000, nanoseconds: 5 };
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
