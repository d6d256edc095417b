//! Files of the target that are not whole yet.
//!
//! 1. A file is written under a temporary name, [`TEMPORARY_NAME`] and 24 hex digits, in the directory where it is to
//!    appear. Its own name appears by a rename, when it is whole.
//! 2. The digits are a hash of the content and the name. So a later restore finds what an interrupted one has left and
//!    goes on from there, if the file belongs to this user, has no other name and nobody has locked it.
//! 3. A file that is dropped before it is whole is removed. If it already has much content, it stays for a later
//!    restore.
//! 4. It is locked as long as it has only the temporary name. What nobody has locked is left by a killed restore, and
//!    goes when a restore leaves the directory (`stale`).

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use parking_lot::Mutex;
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, fchmod, flock, fstat, openat, statat, unlinkat};
use rustix::io::Errno;

use super::capture::identity_of;
use super::flags;
use super::target_directory::{Completeness, TEMPORARY_NAME, TargetName, random_name, rename_without_replacing};
use crate::error::{Error, Result};
use crate::repo::tree::{FileFlags, FileIdentity, Node};
use crate::types::hex;

/// A dropped file with this much content on disk is kept, bytes.
const RESUMED_BYTES_MIN: u64 = 1 << 20;

/// The mode of a file that has only its temporary name. The sticky bit means nothing on a file, so nobody else sets it.
/// It is the mark that a restore has made the file; the mode of the snapshot replaces it when the content is whole.
pub(super) const UNPUBLISHED: Mode = Mode::RUSR.union(Mode::WUSR).union(Mode::SVTX);

/// Temporary names that are tried.
const NAMES_MAX: usize = 64;

/// Identifies the content and the name of a file, for the name that it has until it is whole.
pub type FileToken = [u8; 12];

/// A file under a temporary name, open for writing.
#[derive(Debug)]
pub struct NewFile {
    /// The open file.
    pub file: File,
    /// Whether an interrupted restore began it. It then holds parts of the content.
    pub is_begun: bool,
    unpublished: Mutex<Option<UnpublishedFile>>,
}

/// The names of a file that has only the temporary one.
#[derive(Debug)]
struct UnpublishedFile {
    at: TargetName,
    temporary: OsString,
}

/// An opened temporary file.
struct Opened {
    file: File,
    temporary: OsString,
    is_begun: bool,
}

impl NewFile {
    /// Creates an empty file, accessible by its owner only, that is to appear as `at`. Or opens the one that an
    /// interrupted restore began.
    pub(super) fn create(at: TargetName, token: &FileToken) -> Result<Self> {
        at.check_free()?;
        let Opened { file, temporary, is_begun } = open_temporary(&at, token, true)?;
        Ok(NewFile { file, is_begun, unpublished: Mutex::new(Some(UnpublishedFile { at, temporary })) })
    }

    /// Like [`Descent::create_file`](super::Descent::create_file), in a directory that this restore has created: there
    /// is nothing to go on with. If the file of `node` cannot be created, the reference to the directory is given back.
    /// Appends errors of the directory's metadata to `problems`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn create_in_new_directory(
        at: TargetName,
        token: &FileToken,
        node: &Node,
        problems: &mut Vec<Error>,
    ) -> Result<Self> {
        let Opened { file, temporary, .. } = match open_temporary(&at, token, false) {
            Ok(opened) => opened,
            Err(error) => {
                at.release(problems);
                return Err(error);
            }
        };
        let path = at.path();
        let new = NewFile { file, is_begun: false, unpublished: Mutex::new(Some(UnpublishedFile { at, temporary })) };
        if let Err(error) = new.prepare(node) {
            new.discard(problems);
            return Err(Error::io("extend", path, error));
        }
        Ok(new)
    }

    /// Prepares an empty file for the content of `node`: sets the flags that count only for what is written later, and
    /// the full length if the file is sparse.
    pub(super) fn prepare(&self, node: &Node) -> io::Result<()> {
        let bits = node.file_flags().bits & FileFlags::BEFORE_CONTENT;
        if bits != 0 {
            // What is refused is reported when all flags are set.
            let _ = flags::change(self.file.as_fd(), bits, bits);
        }
        if node.sparse { self.file.set_len(node.size) } else { Ok(()) }
    }

    /// Gives the file its name, which is returned, and gives back the reference to the directory. On an error the file
    /// is removed. Appends errors of the directory's metadata to `problems`.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] if an entry of that name has appeared, or if the one to replace has changed.
    /// [`Error::Io`].
    pub fn publish(&self, completeness: Completeness, problems: &mut Vec<Error>) -> Result<OsString> {
        let taken = self.take().ok_or_else(|| Error::internal("a restored file was published twice"));
        let UnpublishedFile { at, temporary } = taken?;
        let named = at
            .sync_file(&self.file)
            .and_then(|()| at.claim(completeness, |fd, name| rename_without_replacing(fd, &temporary, name)));
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
        self.unpublished.lock().take()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        let on_disk = self.file.metadata().map_or(0, |metadata| metadata.blocks().saturating_mul(512));
        if on_disk < RESUMED_BYTES_MIN {
            self.discard(&mut Vec::new());
        } else if let Some(UnpublishedFile { at, temporary }) = self.take() {
            let path = at.path();
            tracing::warn!(
                "{} is not whole; the same restore goes on from {}",
                path.display(),
                path.with_file_name(&temporary).display()
            );
            fstat(&self.file).iter().for_each(|stat| at.leave(identity_of(stat)));
            at.release(&mut Vec::new());
        }
    }
}

/// Removes a file that is not wanted. If that fails, the file keeps its temporary name.
fn remove(at: &TargetName, temporary: &OsString) {
    let _ = unlinkat(at.directory(), temporary, AtFlags::empty());
}

/// Creates a temporary file. If the one of `token` exists already, opens that one, if it `may_be_begun`.
fn open_temporary(at: &TargetName, token: &FileToken, may_be_begun: bool) -> Result<Opened> {
    let temporary = OsString::from(format!("{TEMPORARY_NAME}{}", hex(token)));
    match create(at, &temporary) {
        // Somebody may have opened and locked it meanwhile: then it is theirs.
        Ok(file) if is_own(&file) => return Ok(Opened { file, temporary, is_begun: false }),
        Err(Errno::EXIST) => {
            if let Some(file) = may_be_begun.then(|| begun(at, &temporary)).flatten() {
                return Ok(Opened { file, temporary, is_begun: true });
            }
        }
        Ok(_) => {}
        Err(error) => return Err(at.refused(error)),
    }
    for _ in 0..NAMES_MAX {
        let temporary = random_name().map_err(|error| Error::io("create", at.path(), error))?;
        let file = create(at, &temporary).map_err(|error| at.refused(error))?;
        if is_own(&file) {
            return Ok(Opened { file, temporary, is_begun: false });
        }
    }
    Err(Error::io("create", at.path(), io::Error::other("temporary files are removed as soon as they are created")))
}

fn create(at: &TargetName, temporary: &OsString) -> rustix::io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(at.directory(), temporary, flags, UNPUBLISHED).map(File::from)
}

/// Locks a file that was created just now. On a file system without locks nobody else can have locked it either.
/// `false` if somebody else has locked it, or has taken it for a stale one and removed it.
fn is_own(file: &File) -> bool {
    flock(file, FlockOperation::NonBlockingLockExclusive) != Err(Errno::WOULDBLOCK)
        && fstat(file).is_ok_and(|stat| stat.st_nlink > 0)
}

/// Opens what an interrupted restore has left. `None` if it may belong to anybody else.
fn begun(at: &TargetName, temporary: &OsString) -> Option<File> {
    let left = open_left(at.directory(), temporary)?;
    fchmod(&left.file, UNPUBLISHED).or_else(|_| fchmod(&left.file, Mode::RUSR | Mode::WUSR)).ok()?;
    Some(File::from(left.file))
}

/// A locked file that has a temporary name.
pub(super) struct LeftFile {
    pub(super) file: OwnedFd,
    pub(super) identity: FileIdentity,
    /// Whether it has the mark of a file that a restore has made.
    pub(super) is_marked: bool,
}

/// Opens and locks a file that a restore has left under a temporary name. `None` if it may belong to anybody else.
pub(super) fn open_left(directory: BorrowedFd<'_>, temporary: &OsStr) -> Option<LeftFile> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(directory, temporary, flags, Mode::empty()).ok()?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    let stat = fstat(&file).ok()?;
    let is_ours = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && stat.st_nlink == 1
        && stat.st_uid == rustix::process::geteuid().as_raw();
    // Its owner may have given it its name before it was locked here.
    let now = statat(directory, temporary, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let identity = identity_of(&stat);
    let is_marked = Mode::from_raw_mode(stat.st_mode) == UNPUBLISHED;
    (is_ours && identity_of(&now) == identity).then_some(LeftFile { file, identity, is_marked })
}

#[cfg(test)]
mod tests {
    use super::super::target_directory::tests::{directory, names, reopened};
    use super::*;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{FileExt, PermissionsExt};
    use std::sync::Arc;

    use super::super::target_directory::TargetDirectory;

    fn create(directory: &Arc<TargetDirectory>, name: &str) -> Result<NewFile> {
        NewFile::create(TargetName::new(directory.clone(), std::ffi::OsStr::new(name), None), &[7; 12])
    }

    /// A file with two megabytes of content that is dropped, and its name.
    fn interrupted(directory: &tempfile::TempDir, opened: &Arc<TargetDirectory>) -> std::path::PathBuf {
        let file = create(opened, "a").unwrap();
        file.file.write_all_at(&[9; 2 << 20], 0).unwrap();
        file.file.sync_all().unwrap();
        drop(file);
        let left = names(directory);
        assert_eq!(left.len(), 1, "{left:?}");
        directory.path().join(&left[0])
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
    fn a_dropped_file_with_content_is_begun_and_one_without_is_removed() {
        let (directory, opened) = directory();
        drop(create(&opened, "a").unwrap());
        assert!(names(&directory).is_empty());
        let path = interrupted(&directory, &opened);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        let again = create(&opened, "a").unwrap();
        assert!(again.is_begun);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        // While one restore has it, another one takes a file of its own.
        let other = create(&opened, "a").unwrap();
        assert!(!other.is_begun);
        again.publish(Completeness::Complete, &mut Vec::new()).unwrap();
        drop(other);
        assert_eq!(names(&directory), ["a"]);
        assert_eq!(fs::read(directory.path().join("a")).unwrap(), vec![9; 2 << 20]);
    }

    #[test]
    fn a_file_of_a_new_directory_goes_on_with_nothing() {
        let (directory, opened) = directory();
        interrupted(&directory, &opened);
        let at = TargetName::new(opened.clone(), std::ffi::OsStr::new("a"), None);
        let node = Node { size: 5, sparse: true, ..Node::default() };
        let created = NewFile::create_in_new_directory(at, &[7; 12], &node, &mut Vec::new()).unwrap();
        assert!(!created.is_begun);
        assert_eq!(created.file.metadata().unwrap().len(), 5);
        created.publish(Completeness::Complete, &mut Vec::new()).unwrap();
        assert_eq!(fs::read(directory.path().join("a")).unwrap(), [0; 5]);
    }

    #[test]
    fn what_a_killed_restore_has_left_goes_with_the_next_one() {
        let (directory, opened) = directory();
        let stale = interrupted(&directory, &opened);
        let names_of = |names: &[&str]| names.iter().map(std::ffi::OsString::from).collect::<Vec<_>>();
        // What the same restore has left stays for the next one.
        opened.remove_stale();
        assert!(stale.exists());
        let next = reopened(&directory);
        let locked = fs::File::create(directory.path().join(format!("{TEMPORARY_NAME}{}", "1".repeat(24)))).unwrap();
        assert!(is_own(&locked));
        let others = [
            format!("{TEMPORARY_NAME}{}", "2".repeat(23)),
            format!("{TEMPORARY_NAME}{}x", "2".repeat(23)),
            format!("x{TEMPORARY_NAME}{}", "2".repeat(24)),
            format!("{TEMPORARY_NAME}{}", "3".repeat(24)),
            format!("{TEMPORARY_NAME}{}", "4".repeat(24)),
            "other name".into(),
            // It has the name, but not the mark.
            format!("{TEMPORARY_NAME}{}", "5".repeat(24)),
        ];
        for (name, at) in others.iter().zip(0..) {
            let path = directory.path().join(name);
            match at {
                3 => fs::create_dir(&path).unwrap(),
                4 => fs::hard_link(directory.path().join(&others[0]), &path).unwrap(),
                5 => fs::write(&path, b"").unwrap(),
                _ => fs::write(&path, b"a user's").unwrap(),
            }
        }
        next.remove_stale();
        let mut expected = names_of(&others.iter().map(String::as_str).collect::<Vec<_>>());
        expected.push(format!("{TEMPORARY_NAME}{}", "1".repeat(24)).into());
        expected.sort();
        assert_eq!(names(&directory), expected);
    }

    #[test]
    fn what_may_belong_to_somebody_else_is_not_begun() {
        let (directory, opened) = directory();
        let path = interrupted(&directory, &opened);
        let outside = tempfile::NamedTempFile::new().unwrap();
        fs::write(outside.path(), b"precious").unwrap();
        fs::hard_link(&path, directory.path().join("linked")).unwrap();
        assert!(!create(&opened, "a").unwrap().is_begun, "it has another name");
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(outside.path(), &path).unwrap();
        let created = create(&opened, "a").unwrap();
        assert!(!created.is_begun, "it is a link");
        created.file.write_all_at(b"x", 0).unwrap();
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(!create(&opened, "a").unwrap().is_begun, "it is a directory");
        assert_eq!(fs::read(outside.path()).unwrap(), b"precious");
    }
}
