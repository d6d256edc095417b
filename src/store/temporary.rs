//! Files on their way into a local store: written aside under a lock, made durable, then published under their name.
//!
//! 1. A temporary file has a random name and is locked for as long as its writer lives, so the lock of one left by a
//!    killed process can be taken: that is how [`clean`] knows it.
//! 2. Between making and locking the file a cleaner may have removed it; the writer sees that and makes another.
//! 3. Publishing is a rename that refuses to replace; where the file system has none, a hard link (equally atomic);
//!    where it has neither, a look and a rename.
//! 4. A file that is dropped unpublished is removed.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::types::hex;

/// Cleaners a writer may lose its new file to before it gives up.
const ATTEMPTS_MAX: usize = 64;
/// Small parts are gathered into writes of this many bytes.
const WRITE_BYTES: usize = 64 << 10;

/// A locked file that is removed unless published.
pub(super) struct Temporary {
    file: File,
    path: PathBuf,
    published: bool,
}

impl Temporary {
    /// Makes an empty file in `directory`, which is made if need be; its parent is not.
    pub(super) fn create(directory: &Path) -> io::Result<Self> {
        for _ in 0..ATTEMPTS_MAX {
            let mut random = [0u8; 16];
            getrandom::fill(&mut random).map_err(io::Error::other)?;
            let path = directory.join(hex(&random));
            let file = match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    make_directory(directory)?;
                    continue;
                }
                opened => opened?,
            };
            let made = Temporary { file, path, published: false };
            match made.file.try_lock() {
                Err(TryLockError::WouldBlock) => continue,
                Err(TryLockError::Error(error)) if !locks_unsupported(&error) => return Err(error),
                // Where files cannot be locked, nobody can take this one's lock, either.
                Ok(()) | Err(TryLockError::Error(_)) => {}
            }
            if made.file.metadata()?.nlink() > 0 {
                return Ok(made);
            }
        }
        Err(io::Error::other("temporary files are removed as soon as they are made"))
    }

    /// Writes `parts` and makes them durable.
    pub(super) fn write(&self, parts: &[&[u8]]) -> io::Result<()> {
        let mut writer = BufWriter::with_capacity(WRITE_BYTES, &self.file);
        parts.iter().try_for_each(|part| writer.write_all(part))?;
        writer.flush()?;
        drop(writer);
        self.file.sync_all()
    }

    /// Gives the file the name `target`; `false` if that is taken. The directory is not made durable.
    pub(super) fn publish(&mut self, target: &Path) -> io::Result<bool> {
        let renamed = match rename_without_replacing(&self.path, target) {
            Some(renamed) => renamed,
            None => self.publish_by_link(target),
        };
        match renamed {
            Ok(()) => {
                self.published = true;
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn publish_by_link(&self, target: &Path) -> io::Result<()> {
        match fs::hard_link(&self.path, target) {
            Ok(()) => {
                // The blob has its name; a second one left in the temporary directory is for the cleaner.
                let _ = fs::remove_file(&self.path);
                Ok(())
            }
            Err(error) if matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::NotFound) => Err(error),
            Err(_) if target.symlink_metadata().is_ok() => Err(ErrorKind::AlreadyExists.into()),
            Err(_) => fs::rename(&self.path, target),
        }
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.published {
            // What cannot be removed now is removed by the next cleaner.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Removes the files in `directory` that no living process has locked; returns how many.
pub(super) fn clean(directory: &Path) -> io::Result<usize> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        entries => entries?,
    };
    let mut removed = 0;
    for entry in entries {
        let entry = entry?;
        if !entry.file_type()?.is_file() {
            continue;
        }
        let path = entry.path();
        let file = match OpenOptions::new().write(true).open(&path) {
            // Published or removed meanwhile, or another user's to clean.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => continue,
            opened => opened?,
        };
        // The name is random: while the lock is held, it is either this file's or nobody's.
        if file.try_lock().is_ok() {
            match fs::remove_file(&path) {
                Ok(()) => removed += 1,
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(removed)
}

/// Makes `directory`, for the owner alone, unless it exists. Its parent must exist: a root that was unmounted is not
/// made again beneath.
pub(super) fn make_directory(directory: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Makes the entries of `directory` durable.
pub(super) fn sync_directory(directory: &Path) -> io::Result<()> {
    match File::open(directory)?.sync_all() {
        // Some network file systems have no such call for directories and need none.
        Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => Ok(()),
        synced => synced,
    }
}

fn locks_unsupported(error: &io::Error) -> bool {
    use rustix::io::Errno;
    error.kind() == ErrorKind::Unsupported || error.raw_os_error() == Some(Errno::NOLCK.raw_os_error())
}

/// Renames unless `target` exists; `None` where the system or the file system cannot.
#[cfg(any(target_os = "linux", target_vendor = "apple"))]
fn rename_without_replacing(from: &Path, target: &Path) -> Option<io::Result<()>> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use rustix::io::Errno;
    match renameat_with(CWD, from, CWD, target, RenameFlags::NOREPLACE) {
        Err(error) if [Errno::INVAL, Errno::NOSYS, Errno::NOTSUP, Errno::OPNOTSUPP].contains(&error) => None,
        renamed => Some(renamed.map_err(io::Error::from)),
    }
}

/// Renames unless `target` exists; `None` where the system or the file system cannot.
#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
fn rename_without_replacing(_: &Path, _: &Path) -> Option<io::Result<()>> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fallback_publishes_once_and_leaves_no_temporary() {
        let directory = tempfile::tempdir().expect("makes a folder");
        let temporary_directory = directory.path().join("tmp");
        let target = directory.path().join("blob");
        for (content, fresh) in [(b"one", true), (b"two", false)] {
            let mut temporary = Temporary::create(&temporary_directory).expect("creates");
            temporary.write(&[content]).expect("writes");
            let published = temporary.publish_by_link(&target);
            assert_eq!(published.is_ok(), fresh);
            temporary.published = fresh;
        }
        assert_eq!(fs::read(&target).expect("is there"), b"one");
        assert_eq!(fs::read_dir(&temporary_directory).expect("is there").count(), 0);
    }

    #[test]
    fn the_cleaner_spares_what_is_being_written() {
        let directory = tempfile::tempdir().expect("makes a folder");
        assert_eq!(clean(&directory.path().join("none")).expect("no folder, nothing to do"), 0);
        let mut living = Temporary::create(directory.path()).expect("creates");
        fs::write(directory.path().join("left-by-a-killed-process"), b"half").expect("writes");
        assert_eq!(clean(directory.path()).expect("cleans"), 1);
        assert!(living.path.exists());
        assert!(living.publish(&directory.path().join("blob")).expect("publishes"));
    }

    #[test]
    fn a_writer_survives_an_eager_cleaner() {
        let directory = tempfile::tempdir().expect("makes a folder");
        let (tmp, done) = (directory.path().join("tmp"), std::sync::atomic::AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    clean(&tmp).expect("cleans");
                }
            });
            for number in 0..300 {
                let mut temporary = Temporary::create(&tmp).expect("creates");
                assert!(temporary.publish(&directory.path().join(number.to_string())).expect("publishes"));
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        assert_eq!(fs::read_dir(directory.path()).expect("is there").count(), 301);
    }
}
