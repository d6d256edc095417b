//! Temporary files of a local store: written under a lock, made durable, then published under their name.
//!
//! 1. A temporary file has a random name and is locked while its writer lives. [`clean`] removes a file whose lock it
//!    can take, because its writer was killed.
//! 2. A cleaner may remove the file before the writer has locked it. The writer detects that and creates another.
//! 3. Publishing is a rename that never replaces. Where the file system lacks that call, it is a hard link, which is
//!    equally atomic. Where it lacks both, it is a check followed by a rename.
//! 4. A file that is dropped unpublished is removed.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::disk::{
    create_directory, create_file, exchange, hard_link, remove_file, rename, rename_without_replacing, sync_file,
    unsynced,
};
use crate::types::hex;

/// A writer gives up after cleaners have removed this many new files.
const ATTEMPTS_MAX: usize = 64;
/// Small parts are combined into writes of this many bytes.
const WRITE_BYTES: usize = 64 << 10;
/// Bytes of a stream between two syncs.
const STEP_BYTES: u64 = 16 << 20;

/// A locked file that is removed unless it is published.
pub(super) struct Temporary {
    file: File,
    path: PathBuf,
    published: bool,
}

impl Temporary {
    /// Creates an empty file in `directory`. Creates the directory, but not its parent, if it does not exist.
    pub(super) fn create(directory: &Path) -> io::Result<Self> {
        for _ in 0..ATTEMPTS_MAX {
            let mut random = [0u8; 16];
            getrandom::fill(&mut random).map_err(io::Error::other)?;
            let path = directory.join(hex(&random));
            let file = match create_file(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    create_directory(directory)?;
                    continue;
                }
                opened => opened?,
            };
            let created = Temporary { file, path, published: false };
            match created.file.try_lock() {
                Err(TryLockError::WouldBlock) => continue,
                Err(TryLockError::Error(error)) if !locks_unsupported(&error) => return Err(error),
                // Where files cannot be locked, no cleaner can take the lock either.
                Ok(()) | Err(TryLockError::Error(_)) => {}
            }
            if created.file.metadata()?.nlink() > 0 {
                return Ok(created);
            }
        }
        Err(io::Error::other("temporary files are removed as soon as they are created"))
    }

    /// Writes `parts` and syncs the file.
    pub(super) fn write(&self, parts: &[&[u8]]) -> io::Result<()> {
        let mut writer = BufWriter::with_capacity(WRITE_BYTES, &self.file);
        parts.iter().try_for_each(|part| writer.write_all(part))?;
        writer.flush()?;
        drop(writer);
        sync_file(&self.file, &self.path)
    }

    /// Writes `content` and syncs the file, in steps so that a run can be stopped between them. Returns the length.
    pub(super) fn write_stream(&self, content: &mut dyn Read) -> io::Result<u64> {
        let mut len = 0;
        loop {
            let step = io::copy(&mut content.take(STEP_BYTES), &mut &self.file)?;
            len += step;
            if step < STEP_BYTES {
                break;
            }
            self.file.sync_data().map_err(unsynced)?;
        }
        sync_file(&self.file, &self.path)?;
        Ok(len)
    }

    /// Renames the file to `target`. Returns `false` if that name is taken. Does not sync the directory.
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

    /// Renames the file to `target`, over a file of that name. Does not sync the directory.
    pub(super) fn replace(&mut self, target: &Path) -> io::Result<()> {
        rename(&self.path, target)?;
        self.published = true;
        Ok(())
    }

    /// Gives the file the name `target`, if a file has that. Returns whether one had it. Does not sync the directory.
    pub(super) fn exchange(&mut self, target: &Path) -> io::Result<bool> {
        match exchange(&self.path, target) {
            // The old file has the temporary name now, and is removed with it.
            Some(Ok(())) => Ok(true),
            Some(Err(error)) if error.kind() == ErrorKind::NotFound => Ok(false),
            Some(Err(error)) => Err(error),
            None if target.symlink_metadata().is_ok() => self.replace(target).map(|()| true),
            None => Ok(false),
        }
    }

    fn publish_by_link(&self, target: &Path) -> io::Result<()> {
        match hard_link(&self.path, target) {
            Ok(()) => {
                // The blob has its name. The next cleaner removes the second name if this fails.
                let _ = remove_file(&self.path);
                Ok(())
            }
            Err(error) if matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::NotFound) => Err(error),
            Err(_) if target.symlink_metadata().is_ok() => Err(ErrorKind::AlreadyExists.into()),
            Err(_) => rename(&self.path, target),
        }
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.published {
            // The next cleaner removes the file if this fails.
            let _ = remove_file(&self.path);
        }
    }
}

/// Whether `name` has the form of a temporary file's name: 16 random bytes in hex.
pub(super) fn is_temporary_name(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Removes the files in `directory` that no live process has locked. Returns their number.
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
            // Published or removed in the meantime, or owned by another user.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => continue,
            opened => opened?,
        };
        // Names are random: while the lock is held, the name refers to this file or to none.
        if file.try_lock().is_ok() {
            match remove_file(&path) {
                Ok(()) => removed += 1,
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(removed)
}

fn locks_unsupported(error: &io::Error) -> bool {
    use rustix::io::Errno;
    error.kind() == ErrorKind::Unsupported || error.raw_os_error() == Some(Errno::NOLCK.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn publishing_by_link_succeeds_once_and_leaves_no_temporary() {
        let directory = tempfile::tempdir().expect("creates a directory");
        let temporary_directory = directory.path().join("tmp");
        let target = directory.path().join("blob");
        for (content, fresh) in [(b"one", true), (b"two", false)] {
            let mut temporary = Temporary::create(&temporary_directory).expect("creates");
            temporary.write(&[content]).expect("writes");
            let published = temporary.publish_by_link(&target);
            assert_eq!(published.is_ok(), fresh);
            temporary.published = fresh;
        }
        assert_eq!(fs::read(&target).expect("exists"), b"one");
        assert_eq!(fs::read_dir(&temporary_directory).expect("exists").count(), 0);
    }

    #[test]
    fn the_cleaner_keeps_files_of_live_writers() {
        let directory = tempfile::tempdir().expect("creates a directory");
        assert_eq!(clean(&directory.path().join("none")).expect("no directory, nothing to do"), 0);
        let mut live = Temporary::create(directory.path()).expect("creates");
        fs::write(directory.path().join("left-by-a-killed-process"), b"half").expect("writes");
        assert_eq!(clean(directory.path()).expect("cleans"), 1);
        assert!(live.path.exists());
        assert!(live.publish(&directory.path().join("blob")).expect("publishes"));
    }

    #[test]
    fn a_writer_retries_when_a_cleaner_removes_its_file() {
        let directory = tempfile::tempdir().expect("creates a directory");
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
        assert_eq!(fs::read_dir(directory.path()).expect("exists").count(), 301);
    }
}
