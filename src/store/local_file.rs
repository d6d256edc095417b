//! Files of this machine, such as caches: each is published whole, under its name, at once.
//!
//! 1. The content goes to a hidden temporary file in the same directory, which no other writer has.
//! 2. It is made durable, and renamed over the name. The name is made durable, too.
//! 3. What a writer that was killed left is removed after a day.

use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::NamedTempFile;

use super::disk::sync_name;

/// End of the name of a temporary file.
const SUFFIX: &str = ".new";
/// Age of a temporary file that no writer needs any more.
const ABANDONED_AFTER: Duration = Duration::from_secs(24 * 3600);

/// A file that is written beside its name, accessible by its owner only. Dropping it leaves the name as it is.
#[derive(Debug)]
pub struct LocalFile {
    temporary: NamedTempFile,
    path: PathBuf,
}

impl LocalFile {
    /// A file for `path`, whose directory exists.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn create(path: &Path) -> io::Result<LocalFile> {
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let prefix = format!(".{}.", path.file_name().unwrap_or_default().to_string_lossy());
        remove_abandoned(directory, &prefix);
        let temporary = tempfile::Builder::new().prefix(&prefix).suffix(SUFFIX).tempfile_in(directory)?;
        Ok(LocalFile { temporary, path: path.to_path_buf() })
    }

    /// The same file with these permissions.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn with_mode(self, mode: u32) -> io::Result<LocalFile> {
        self.temporary.as_file().set_permissions(Permissions::from_mode(mode))?;
        Ok(self)
    }

    /// Replaces `path` by a file with this content.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
        let mut file = Self::create(path)?;
        file.write_all(content)?;
        file.publish()
    }

    /// Makes the content durable, and then its name, which is `path` from now on.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn publish(self) -> io::Result<()> {
        self.temporary.as_file().sync_all()?;
        self.temporary.persist(&self.path)?;
        sync_name(&self.path)
    }
}

impl Write for LocalFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.temporary.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.temporary.flush()
    }
}

/// Removes old temporary files with this prefix. Those that cannot be removed stay.
fn remove_abandoned(directory: &Path, prefix: &str) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_ours = name.to_str().is_some_and(|name| name.starts_with(prefix) && name.ends_with(SUFFIX));
        let age = || entry.metadata().ok()?.modified().ok()?.elapsed().ok();
        if is_ours && age().is_some_and(|age| age > ABANDONED_AFTER) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::PermissionsExt;
    use std::time::SystemTime;

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn two_writers_never_mix_their_contents() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cache");
        std::thread::scope(|scope| {
            for byte in [1, 2] {
                let path = &path;
                scope.spawn(move || {
                    for round in 0..40 {
                        let mut file = LocalFile::create(path).unwrap();
                        for _ in 0..10 + round % 3 {
                            file.write_all(&[byte; 4096]).unwrap();
                            std::thread::yield_now();
                        }
                        file.publish().unwrap();
                        let content = std::fs::read(path).unwrap();
                        assert!(content.len() >= 40_960 && content.iter().all(|other| *other == content[0]));
                    }
                });
            }
        });
        assert_eq!(names(directory.path()), ["cache"]);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_file_that_is_not_published_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cache");
        LocalFile::replace(&path, b"old").unwrap();
        let mut file = LocalFile::create(&path).unwrap();
        file.write_all(b"new").unwrap();
        assert_eq!(names(directory.path()).len(), 2);
        drop(file);
        assert_eq!(
            (names(directory.path()), std::fs::read(&path).unwrap()),
            (vec!["cache".to_string()], b"old".to_vec())
        );
        assert!(LocalFile::create(&directory.path().join("none/cache")).is_err());
    }

    #[test]
    fn only_old_temporary_files_of_this_name_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let made = [".cache.1.new", ".cache.2.new", ".other.1.new", ".cache.1"];
        for name in made {
            let file = File::create(directory.path().join(name)).unwrap();
            if name != ".cache.2.new" {
                file.set_modified(SystemTime::now() - 2 * ABANDONED_AFTER).unwrap();
            }
        }
        LocalFile::replace(&directory.path().join("cache"), b"x").unwrap();
        assert_eq!(names(directory.path()), [".cache.1", ".cache.2.new", ".other.1.new", "cache"]);
    }
}
