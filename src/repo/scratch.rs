//! Directories for one run, which go with it.
//!
//! 1. A directory has a random name and a locked file. It is deleted when it is dropped.
//! 2. What a killed process has left is deleted by the next one that makes a directory of this kind beside it: it can
//!    take the lock.
//! 3. A cleaner may be faster than the process that is about to take its lock. That process makes another directory.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

/// Name of the locked file.
const LOCK: &str = "lock";
/// A process gives up after cleaners have deleted this many new directories.
const ATTEMPTS_MAX: usize = 16;
/// Age from which on a directory without a lock is deleted: its process was killed when it had just made it.
const ABANDONED_AFTER: Duration = Duration::from_secs(3600);

/// A directory that is accessible by its owner only.
#[derive(Debug)]
pub struct ScratchDirectory {
    directory: TempDir,
    _lock: File,
}

impl ScratchDirectory {
    /// Makes a directory in `parent` whose name begins with `prefix`, and deletes those with this prefix that nobody
    /// uses any more.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn create(parent: &Path, prefix: &str) -> io::Result<Self> {
        clean(parent, prefix);
        for _ in 0..ATTEMPTS_MAX {
            let directory = tempfile::Builder::new().prefix(prefix).tempdir_in(parent)?;
            let lock = File::create_new(directory.path().join(LOCK))?;
            // Where files cannot be locked, no cleaner can take the lock either.
            let is_taken = matches!(lock.try_lock(), Err(fs::TryLockError::WouldBlock));
            if !is_taken && lock.metadata()?.nlink() > 0 {
                return Ok(ScratchDirectory { directory, _lock: lock });
            }
        }
        Err(io::Error::other("temporary directories are removed as soon as they are created"))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// Deletes what killed processes have left. What cannot be deleted stays.
fn clean(parent: &Path, prefix: &str) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix));
        if is_ours && entry.file_type().is_ok_and(|kind| kind.is_dir()) && is_abandoned(&entry.path()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn is_abandoned(directory: &Path) -> bool {
    let age = || directory.metadata().ok()?.modified().ok()?.elapsed().ok();
    match crate::wire::open_regular(&directory.join(LOCK)) {
        Ok(lock) => lock.try_lock().is_ok(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => age().is_some_and(|age| age > ABANDONED_AFTER),
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_left_goes_and_what_is_used_stays() {
        let parent = tempfile::tempdir().expect("creates a directory");
        let used = ScratchDirectory::create(parent.path(), "scratch-").expect("creates");
        let left = parent.path().join("scratch-left");
        let (fresh, other) = (parent.path().join("scratch-fresh"), parent.path().join("other-left"));
        for directory in [&left, &fresh, &other] {
            fs::create_dir(directory).expect("creates");
            fs::write(directory.join("secret"), "content").expect("writes");
        }
        for directory in [&left, &other] {
            fs::write(directory.join(LOCK), "").expect("writes");
        }
        let next = ScratchDirectory::create(parent.path(), "scratch-").expect("creates");
        assert_eq!(
            [used.path(), next.path(), &left, &fresh, &other].map(Path::exists),
            [true, true, false, true, true]
        );
        let path = next.path().to_path_buf();
        drop(next);
        assert!(!path.exists());
    }
}
