//! A store in a directory of the local file system: one file per blob.
//!
//! 1. Put: if the name is free, write a locked temporary file, fsync it, publish it by a rename that never replaces,
//!    fsync the directory. A directory is trusted to be durable only after this process has synced its parent once, for
//!    another process may have made it a moment ago; the same holds for a blob found to be there.
//! 2. Ranged reads go through a small cache of open files. Each read asks the file for its length and its links, so
//!    a blob that was deleted, and perhaps put again, is opened anew.
//! 3. Names that this store does not allow (a desktop's own files, `lost+found`) are not listed.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File};
use std::io::{ErrorKind, Read};
use std::num::NonZeroUsize;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use lru::LruCache;
use rustix::buffer::spare_capacity;
use rustix::io::{pread, retry_on_intr};

use super::name::{TEMPORARY_DIRECTORY, check_directory, check_len, check_name, check_range, is_component, missing};
use super::temporary::{Temporary, clean, make_directory, sync_directory};
use super::{Head, Listed, Store};
use crate::error::{Error, Result};

/// Files kept open for ranged reads.
const OPEN_FILES_MAX: NonZeroUsize = NonZeroUsize::MIN.saturating_add(31);

/// Blobs as files below a root directory.
#[derive(Debug)]
pub struct LocalStore {
    root: PathBuf,
    open_files: Mutex<LruCache<String, Arc<File>>>,
    durable_directories: Mutex<HashSet<PathBuf>>,
}

impl LocalStore {
    /// Opens the store in `root`, a directory that exists.
    ///
    /// # Errors
    /// [`Error::NoRepository`] if it does not, [`Error::Io`].
    pub fn open(root: &Path) -> Result<Self> {
        let reason = match fs::metadata(root) {
            Ok(metadata) if metadata.is_dir() => None,
            Ok(_) => Some("it is not a folder"),
            Err(error) if error.kind() == ErrorKind::NotFound => Some("there is no such folder"),
            Err(error) => return Err(Error::io("open", root, error)),
        };
        match reason {
            Some(reason) => Err(Error::NoRepository { path: root.into(), reason: reason.into() }),
            None => Ok(LocalStore {
                root: root.into(),
                open_files: Mutex::new(LruCache::new(OPEN_FILES_MAX)),
                durable_directories: Mutex::default(),
            }),
        }
    }

    /// Makes the directory `root`, for its owner alone, unless it exists, and opens it.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn create(root: &Path) -> Result<Self> {
        let made: Vec<&Path> = root.ancestors().take_while(|directory| !directory.exists()).collect();
        DirBuilder::new().recursive(true).mode(0o700).create(root).map_err(|error| Error::io("create", root, error))?;
        for parent in made.into_iter().rev().filter_map(Path::parent) {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            sync_directory(parent).map_err(|error| Error::io("sync", parent, error))?;
        }
        Self::open(root)
    }

    /// Removes what killed processes left half written; what living ones are writing stays. Returns the number of
    /// files removed.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn clean_temporaries(&self) -> Result<usize> {
        let directory = self.root.join(TEMPORARY_DIRECTORY);
        clean(&directory).map_err(|error| Error::io("clean", &directory, error))
    }

    fn path(&self, name: &str) -> Result<PathBuf> {
        check_name(name)?;
        Ok(self.root.join(name))
    }

    /// Writes and publishes under `path`; `false` if that exists.
    fn write(&self, path: &Path, directory: &Path, parts: &[&[u8]]) -> Result<bool> {
        let failed = |error| Error::io("write", path, error);
        let mut temporary = Temporary::create(&self.root.join(TEMPORARY_DIRECTORY)).map_err(failed)?;
        temporary.write(parts).map_err(failed)?;
        self.make_durable(directory)?;
        match temporary.publish(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                // Somebody removed the directory since this process made it.
                self.durable_directories.lock().unwrap_or_else(PoisonError::into_inner).clear();
                self.make_durable(directory)?;
                temporary.publish(path).map_err(failed)
            }
            published => published.map_err(failed),
        }
    }

    /// Makes the directories from the root down to `directory`, and syncs the parent of each, once per process.
    fn make_durable(&self, directory: &Path) -> Result<()> {
        if directory == self.root
            || self.durable_directories.lock().unwrap_or_else(PoisonError::into_inner).contains(directory)
        {
            return Ok(());
        }
        let parent = directory.parent().unwrap_or(&self.root);
        self.make_durable(parent)?;
        make_directory(directory).map_err(|error| Error::io("create", directory, error))?;
        sync_directory(parent).map_err(|error| Error::io("sync", parent, error))?;
        self.durable_directories.lock().unwrap_or_else(PoisonError::into_inner).insert(directory.into());
        Ok(())
    }

    /// Opens a blob, which is a regular file, and returns its length.
    fn open_file(&self, name: &str) -> Result<(File, u64)> {
        let path = self.path(name)?;
        let file = match File::open(&path) {
            Err(error) if is_absent(&error) => return Err(missing(name)),
            opened => opened.map_err(|error| Error::io("open", &path, error))?,
        };
        let metadata = file.metadata().map_err(|error| Error::io("inspect", &path, error))?;
        if metadata.is_file() { Ok((file, metadata.len())) } else { Err(missing(name)) }
    }

    /// A blob from the cache of open files, with its length.
    fn cached_file(&self, name: &str) -> Result<(Arc<File>, u64)> {
        let files = || self.open_files.lock().unwrap_or_else(PoisonError::into_inner);
        let cached = files().get(name).cloned();
        if let Some(file) = cached {
            let metadata = file.metadata().map_err(|error| Error::io("inspect", self.root.join(name), error))?;
            if metadata.nlink() > 0 {
                return Ok((file, metadata.len()));
            }
            files().pop(name);
        }
        let (file, len) = self.open_file(name)?;
        let file = Arc::new(file);
        files().put(name.into(), Arc::clone(&file));
        Ok((file, len))
    }

    /// Appends the blobs below `directory`, whose name is `prefix` (empty for the root).
    fn list_directory(&self, directory: &Path, prefix: &str, listed: &mut Vec<Listed>) -> Result<()> {
        let failed = |error| Error::io("list", directory, error);
        let entries = match fs::read_dir(directory) {
            Err(error) if is_absent(&error) => return Ok(()),
            entries => entries.map_err(failed)?,
        };
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let component = entry.file_name();
            let Some(component) = component.to_str().filter(|component| is_component(component)) else { continue };
            let name = if prefix.is_empty() { component.into() } else { format!("{prefix}/{component}") };
            if name == TEMPORARY_DIRECTORY {
                continue;
            }
            let kind = entry.file_type().map_err(failed)?;
            if kind.is_dir() {
                self.list_directory(&entry.path(), &name, listed)?;
            } else if kind.is_file() {
                match entry.metadata() {
                    Ok(metadata) => listed.push(Listed { name, len: metadata.len() }),
                    Err(error) if is_absent(&error) => {}
                    Err(error) => return Err(Error::io("inspect", entry.path(), error)),
                }
            }
        }
        Ok(())
    }
}

/// Nothing is there, or a file stands where a directory would be.
fn is_absent(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

impl Store for LocalStore {
    fn put_if_absent(&self, name: &str, parts: &[&[u8]]) -> Result<bool> {
        let path = self.path(name)?;
        let directory = path.parent().unwrap_or(&self.root);
        let new = match fs::symlink_metadata(&path) {
            Ok(_) => {
                self.make_durable(directory)?;
                false
            }
            Err(error) if error.kind() == ErrorKind::NotFound => self.write(&path, directory, parts)?,
            Err(error) => return Err(Error::io("write", &path, error)),
        };
        let is_blob = fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_file());
        if !new && !is_blob {
            return Err(Error::AlreadyExists { path, what: "something that is not a file" });
        }
        sync_directory(directory).map_err(|error| Error::io("sync", directory, error))?;
        Ok(new)
    }

    fn get(&self, name: &str, bytes_max: u64) -> Result<Vec<u8>> {
        let (file, len) = self.open_file(name)?;
        let mut bytes = Vec::with_capacity(check_len(name, len, bytes_max)?);
        let read = file.take(len).read_to_end(&mut bytes);
        read.map_err(|error| Error::io("read", self.root.join(name), error))?;
        check_range(name, bytes.len() as u64, 0, usize::try_from(len).unwrap_or(usize::MAX))?;
        Ok(bytes)
    }

    fn get_range(&self, name: &str, offset: u64, len: usize) -> Result<Vec<u8>> {
        check_name(name)?;
        let (file, blob_len) = self.cached_file(name)?;
        check_range(name, blob_len, offset, len)?;
        // Memory for it is not filled with zeros first: base frames are read by the megabyte.
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let at = offset + bytes.len() as u64;
            match retry_on_intr(|| pread(&file, spare_capacity(&mut bytes), at)) {
                Ok(0) => return Err(Error::corrupt(name, offset, format!("{len} bytes"), "the end of the file")),
                Ok(_) => {}
                Err(error) => return Err(Error::io("read", self.root.join(name), error)),
            }
        }
        bytes.truncate(len);
        Ok(bytes)
    }

    fn head(&self, name: &str) -> Result<Option<Head>> {
        let path = self.path(name)?;
        let failed = |error| Error::io("inspect", &path, error);
        match fs::metadata(&path) {
            Ok(metadata) if metadata.is_file() => {
                Ok(Some(Head { len: metadata.len(), modified: metadata.modified().map_err(failed)? }))
            }
            Ok(_) => Ok(None),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    fn list(&self, directory: &str) -> Result<Vec<Listed>> {
        check_directory(directory)?;
        let mut listed = Vec::new();
        self.list_directory(&self.root.join(directory), directory, &mut listed)?;
        listed.sort_unstable();
        Ok(listed)
    }

    fn delete(&self, name: &str) -> Result<()> {
        let path = self.path(name)?;
        self.open_files.lock().unwrap_or_else(PoisonError::into_inner).pop(name);
        match fs::remove_file(&path) {
            Err(error) if is_absent(&error) => Ok(()),
            removed => removed.map_err(|error| Error::io("delete", &path, error)),
        }
    }

    fn location(&self) -> String {
        self.root.display().to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::store::contract;

    fn fresh() -> (tempfile::TempDir, LocalStore) {
        let directory = tempfile::tempdir().expect("makes a folder");
        let store = LocalStore::create(&directory.path().join("deep/store")).expect("creates");
        (directory, store)
    }

    #[test]
    fn keeps_the_contract() {
        let (_directory, store) = fresh();
        contract::check(&store);
        assert_eq!(fs::read_dir(store.root.join("tmp")).expect("is there").count(), 0, "no temporaries are left");
    }

    #[test]
    fn only_the_owner_can_read_it() {
        let (_directory, store) = fresh();
        store.put_if_absent("containers/ab/ab", &[b"x"]).expect("puts");
        let mode = |name| fs::metadata(store.root.join(name)).expect("is there").permissions().mode() & 0o777;
        assert_eq!((mode(""), mode("containers/ab"), mode("containers/ab/ab")), (0o700, 0o700, 0o600));
    }

    #[test]
    fn foreign_files_are_not_listed_and_temporaries_can_be_cleaned() {
        let (_directory, store) = fresh();
        store.put_if_absent("snapshots/a", &[b"x"]).expect("puts");
        for foreign in ["snapshots/.DS_Store", "snapshots/Upper", "tmp/0123"] {
            fs::write(store.root.join(foreign), b"foreign").expect("writes");
        }
        std::os::unix::fs::symlink("a", store.root.join("snapshots/link")).expect("links");
        let names: Vec<_> = store.list("").expect("lists").into_iter().map(|listed| listed.name).collect();
        assert_eq!(names, ["snapshots/a"]);
        assert_eq!((store.clean_temporaries().expect("cleans"), store.clean_temporaries().expect("cleans")), (1, 0));
    }

    #[test]
    fn a_directory_in_the_place_of_a_blob_is_no_blob() {
        let (_directory, store) = fresh();
        store.put_if_absent("a/b", &[b"x"]).expect("puts");
        assert!(matches!(store.put_if_absent("a", &[b"x"]), Err(Error::AlreadyExists { .. })));
        assert_eq!(store.head("a").expect("looks"), None);
        assert!(matches!(store.get("a", 10), Err(Error::BlobMissing { .. })));
        assert!(matches!(store.get_range("a", 0, 1), Err(Error::BlobMissing { .. })));
    }

    #[test]
    fn a_directory_that_vanished_is_made_again() {
        let (_directory, store) = fresh();
        store.put_if_absent("a/b/c", &[b"x"]).expect("puts");
        fs::remove_dir_all(store.root.join("a")).expect("removes");
        fs::remove_dir(store.root.join("tmp")).expect("removes");
        assert!(store.put_if_absent("a/b/c", &[b"y"]).expect("puts again"));
        assert_eq!(store.get("a/b/c", 10).expect("reads"), b"y");
    }

    #[test]
    fn a_root_that_vanished_is_not_made_again() {
        let (_directory, store) = fresh();
        fs::remove_dir_all(&store.root).expect("removes");
        let text = store.put_if_absent("a/b", &[b"x"]).expect_err("no root").to_string();
        assert!(text.contains("a/b") && !store.root.exists(), "{text}");
    }

    #[test]
    fn ranged_reads_keep_few_files_open_and_see_what_others_deleted() {
        let (_directory, store) = fresh();
        for number in 0..100u8 {
            store.put_if_absent(&format!("a/{number}"), &[&[number; 3]]).expect("puts");
            assert_eq!(store.get_range(&format!("a/{number}"), 1, 2).expect("reads"), [number; 2]);
        }
        assert_eq!(store.open_files.lock().expect("not poisoned").len(), OPEN_FILES_MAX.get());
        fs::remove_file(store.root.join("a/99")).expect("removes");
        assert!(matches!(store.get_range("a/99", 0, 1), Err(Error::BlobMissing { .. })));
        store.put_if_absent("a/99", &[b"new"]).expect("puts");
        assert_eq!(store.get_range("a/99", 0, 3).expect("reads"), b"new");
    }

    #[test]
    fn a_root_that_is_not_a_directory_is_no_repository() {
        let (directory, _) = fresh();
        assert!(matches!(LocalStore::open(&directory.path().join("none")), Err(Error::NoRepository { .. })));
        fs::write(directory.path().join("file"), b"").expect("writes");
        assert!(matches!(LocalStore::open(&directory.path().join("file")), Err(Error::NoRepository { .. })));
    }
}
