//! A store in a directory of the local file system: one file per blob.
//!
//! 1. Put: if the name is free, write a locked temporary file, fsync it, publish it by a rename that never replaces,
//!    and fsync the directory.
//! 2. A directory counts as durable once this process has synced its parent, because another process may have created
//!    it a moment ago. The same holds for an existing blob.
//! 3. Ranged reads go through a small cache of open files. Each read queries the file's length and link count, so a
//!    blob that was deleted, or put again, is reopened.
//! 4. Files with invalid names, such as a desktop's own files or `lost+found`, are not listed.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io::{ErrorKind, Read};
use std::num::NonZeroUsize;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;
use rustix::buffer::spare_capacity;
use rustix::fs::OFlags;
use rustix::io::{pread, retry_on_intr};

use super::directories::{NO_DIRECTORY, no_file};
use super::disk::{remove_file, sync_directory};
use super::local_listing::{is_absent, is_behind_link, is_lost_data, list_directory};
use super::name::{TEMPORARY_PREFIX, check_len, check_range, is_slot_id, missing};
use super::temporary::{Temporary, clean, is_temporary_name};
use super::{
    BlobKind, BlobMetadata, BlobName, BlobPrefix, ColdState, Durable, ListedBlob, Locks, NewName, OtherCopy, PutBlob,
    PutOptions, ReadTwice, Reading, Sealing, Store, StoreProperties, Thawing,
};
use crate::error::{Error, Result};

/// Files kept open for ranged reads.
const OPEN_FILES_MAX: NonZeroUsize = NonZeroUsize::MIN.saturating_add(31);

/// Syncs the directories of the blobs `names` of the store in `root`, each once, as far as they exist.
fn sync_parents(root: &Path, names: &[BlobName]) -> Result<()> {
    let directories: HashSet<PathBuf> =
        names.iter().filter_map(|name| root.join(name).parent().map(Path::to_path_buf)).collect();
    directories.iter().try_for_each(|directory| match sync_directory(directory) {
        Err(error) if is_absent(&error) || error.kind() == std::io::ErrorKind::NotADirectory => Ok(()),
        synced => synced.map_err(|error| Error::io("sync", directory, error)),
    })
}

/// Writes and syncs the content of a temporary file.
type FillFile<'a> = &'a mut dyn FnMut(&Temporary) -> std::io::Result<()>;

/// Blobs as files below a root directory.
#[derive(Debug)]
pub struct LocalStore {
    root: PathBuf,
    open_files: Mutex<LruCache<BlobName, Arc<File>>>,
    pub(super) durable_directories: Mutex<HashSet<PathBuf>>,
    /// Directories of kinds of blobs that were there once.
    pub(super) seen_directories: Mutex<HashSet<&'static str>>,
}

impl LocalStore {
    /// Opens the store in the existing directory `root`.
    ///
    /// # Errors
    /// [`Error::NoRepository`] if `root` is not a directory. [`Error::Io`].
    pub fn open(root: &Path) -> Result<Self> {
        let reason = match fs::metadata(root) {
            Ok(metadata) if metadata.is_dir() => None,
            Ok(_) => Some(NO_DIRECTORY),
            Err(error) if error.kind() == ErrorKind::NotFound => Some("the directory does not exist"),
            Err(error) => return Err(Error::io("open", root, error)),
        };
        match reason {
            Some(reason) => Err(Error::NoRepository { location: root.display().to_string(), reason: reason.into() }),
            None => {
                let open_files = Mutex::new(LruCache::new(OPEN_FILES_MAX));
                let (durable_directories, seen_directories) = (Mutex::default(), Mutex::default());
                let store = LocalStore { root: root.into(), open_files, durable_directories, seen_directories };
                store.see_directories();
                Ok(store)
            }
        }
    }

    /// Opens the store in `root`. Creates the directory, accessible by its owner only, unless it exists.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn create(root: &Path) -> Result<Self> {
        let created: Vec<&Path> = root.ancestors().take_while(|directory| !directory.exists()).collect();
        DirBuilder::new().recursive(true).mode(0o700).create(root).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => {
                Error::AlreadyExists { path: root.into(), what: "something that is no directory" }
            }
            _ => Error::unwritten("create", root, error),
        })?;
        for parent in created.into_iter().rev().filter_map(Path::parent) {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            sync_directory(parent).map_err(|error| Error::io("sync", parent, error))?;
        }
        Self::open(root)
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    fn path(&self, name: &BlobName) -> PathBuf {
        self.root.join(name)
    }

    /// Lets `fill` write a file and publishes it as `path`. Returns `false` if `path` exists.
    fn write(&self, path: &Path, directory: &Path, fill: FillFile<'_>) -> Result<bool> {
        let failed = |error| Error::unwritten("write", path, error);
        let mut temporary = Temporary::create(&self.root.join(TEMPORARY_PREFIX)).map_err(failed)?;
        fill(&temporary).map_err(failed)?;
        self.make_durable(directory)?;
        match temporary.publish(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                // The directory was removed after this process had created it.
                self.durable_directories.lock().clear();
                self.make_durable(directory)?;
                temporary.publish(path).map_err(failed)
            }
            published => published.map_err(failed),
        }
    }

    /// Stores what `fill` writes, unless there is a blob of that name. Durable on return.
    fn put_file(&self, name: &BlobName, fill: FillFile<'_>) -> Result<bool> {
        let path = self.path(name);
        let directory = path.parent().unwrap_or(&self.root);
        self.check_directories(name)?;
        let new = match fs::symlink_metadata(&path) {
            Ok(_) => {
                self.make_durable(directory)?;
                false
            }
            Err(error) if error.kind() == ErrorKind::NotFound => self.write(&path, directory, fill)?,
            Err(error) => return Err(Error::unwritten("write", &path, error)),
        };
        let is_blob = fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_file());
        if !new && !is_blob {
            return Err(Error::AlreadyExists { path, what: "something that is not a file" });
        }
        sync_directory(directory).map_err(|error| Error::io("sync", directory, error))?;
        Ok(new)
    }

    /// The error of a failed read of blob `name` at byte `offset`: damage if the device lost the data.
    fn read_failed(&self, action: &'static str, name: &BlobName, offset: u64, error: std::io::Error) -> Error {
        if is_lost_data(&error) {
            return Error::Unreadable { what: name.into(), offset, source: error };
        }
        Error::io(action, self.root.join(name), error)
    }

    /// Opens a blob and returns its length. Only a regular file is a blob.
    fn open_file(&self, name: &BlobName) -> Result<(File, u64)> {
        let path = self.path(name);
        // Without waiting for the other end of a pipe.
        let opened = File::options().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(&path);
        let file = match opened {
            // Another machine has a lease on the file, and gives it up to who waits.
            Err(error) if error.kind() == ErrorKind::WouldBlock && is_regular(&path) => File::open(&path),
            opened => opened,
        };
        let file = match file {
            Err(error) if is_absent_blob(name, &error) && !is_behind_link(&path) => {
                self.check_directories(name)?;
                return Err(missing(name));
            }
            // A socket cannot be opened.
            Err(_) if is_no_file(&path) && name.is_own() => return Err(no_file(name)),
            opened => opened.map_err(|error| self.read_failed("open", name, 0, error))?,
        };
        let metadata = file.metadata().map_err(|error| self.read_failed("inspect", name, 0, error))?;
        match metadata.is_file() {
            true => Ok((file, metadata.len())),
            false if name.is_own() => Err(no_file(name)),
            false => Err(missing(name)),
        }
    }

    /// Returns a blob from the cache of open files, with its length.
    fn cached_file(&self, name: &BlobName) -> Result<(Arc<File>, u64)> {
        let files = || self.open_files.lock();
        let cached = files().get(name).cloned();
        if let Some(file) = cached {
            let metadata = file.metadata().map_err(|error| self.read_failed("inspect", name, 0, error))?;
            if metadata.nlink() > 0 {
                return Ok((file, metadata.len()));
            }
            files().pop(name);
        }
        let (file, len) = self.open_file(name)?;
        let file = Arc::new(file);
        files().put(name.clone(), Arc::clone(&file));
        Ok((file, len))
    }
}

/// Whether an error says that there is no such blob. A name of nobody may lead through a blob.
fn is_absent_blob(name: &BlobName, error: &std::io::Error) -> bool {
    is_absent(error) || (error.kind() == ErrorKind::NotADirectory && !name.is_own())
}

fn is_no_file(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| !metadata.is_file())
}

fn is_regular(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|metadata| metadata.is_file())
}

/// Whether `entry` is all that a killed `init` leaves: the directory of temporaries or that of key slots, with nothing
/// but those in it.
fn is_leftover(entry: &fs::DirEntry) -> bool {
    let is_own = match entry.file_name().to_str() {
        Some(TEMPORARY_PREFIX) => is_temporary_name,
        Some(name) if name == BlobKind::Key.directory() => |name: &OsStr| name.to_str().is_some_and(is_slot_id),
        _ => return false,
    };
    entry.file_type().is_ok_and(|kind| kind.is_dir())
        && fs::read_dir(entry.path())
            .is_ok_and(|mut inner| inner.all(|inner| inner.is_ok_and(|inner| is_own(&inner.file_name()))))
}

impl LocalStore {
    /// Writes `parts` to a temporary file, and lets `publish` give it the path of `name`. Returns what that returns.
    fn write_over(
        &self,
        name: &BlobName,
        parts: &[&[u8]],
        publish: impl FnOnce(&mut Temporary, &Path) -> std::io::Result<bool>,
    ) -> Result<bool> {
        let path = self.path(name);
        let directory = path.parent().unwrap_or(&self.root);
        let failed = |error| Error::unwritten("write", &path, error);
        self.check_directories(name)?;
        let mut temporary = Temporary::create(&self.root.join(TEMPORARY_PREFIX)).map_err(failed)?;
        temporary.write(parts).map_err(failed)?;
        self.make_durable(directory)?;
        let is_written = publish(&mut temporary, &path).map_err(failed)?;
        self.open_files.lock().pop(name);
        sync_directory(directory).map_err(|error| Error::io("sync", directory, error))?;
        Ok(is_written)
    }
}

impl Store for LocalStore {
    fn put(&self, name: NewName<'_>, parts: &[&[u8]], _: PutOptions) -> Result<PutBlob> {
        let name = name.for_parts(parts);
        let is_new = self.put_file(&name, &mut |temporary| temporary.write(parts))?;
        Ok(PutBlob { name, is_new })
    }

    fn put_stream(&self, name: NewName<'_>, len: u64, content: &mut dyn ReadTwice) -> Result<PutBlob> {
        let name = name.for_stream(content)?;
        let is_new = self.put_file(&name, &mut |temporary| match temporary.write_stream(&mut *content)? {
            written if written == len => Ok(()),
            written => Err(std::io::Error::other(format!("{written} bytes instead of {len}"))),
        })?;
        Ok(PutBlob { name, is_new })
    }

    fn overwrite(&self, name: &BlobName, parts: &[&[u8]], _: PutOptions) -> Result<()> {
        self.write_over(name, parts, |temporary, path| {
            if path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
                // A directory with something in it stays, and the rename fails.
                let _ = fs::remove_dir(path);
            }
            temporary.replace(path).map(|()| true)
        })
        .map(drop)
    }

    fn overwrite_if_present(&self, name: &BlobName, parts: &[&[u8]], _: PutOptions) -> Result<bool> {
        self.write_over(name, parts, Temporary::exchange)
    }

    fn get(&self, name: &BlobName, bytes_max: u64) -> Result<Vec<u8>> {
        let (file, len) = self.open_file(name)?;
        let mut bytes = Vec::with_capacity(check_len(name, len, bytes_max)?);
        let read = file.take(len).read_to_end(&mut bytes);
        read.map_err(|error| self.read_failed("read", name, bytes.len() as u64, error))?;
        check_range(name, bytes.len() as u64, 0, usize::try_from(len).unwrap_or(usize::MAX))?;
        Ok(bytes)
    }

    fn get_range(&self, name: &BlobName, offset: u64, len: usize, _: Reading) -> Result<Vec<u8>> {
        let (file, blob_len) = self.cached_file(name)?;
        check_range(name, blob_len, offset, len)?;
        // The buffer is not zeroed first, because base frames are read by the megabyte.
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let at = offset + bytes.len() as u64;
            match retry_on_intr(|| pread(&file, spare_capacity(&mut bytes), at)) {
                Ok(0) => return Err(Error::corrupt(name, offset, format!("{len} bytes"), "the end of the file")),
                Ok(_) => {}
                Err(error) => return Err(self.read_failed("read", name, at, error.into())),
            }
        }
        bytes.truncate(len);
        Ok(bytes)
    }

    fn head(&self, name: &BlobName) -> Result<Option<BlobMetadata>> {
        let path = self.path(name);
        let failed = |error| self.read_failed("inspect", name, 0, error);
        match fs::metadata(&path) {
            Ok(metadata) if metadata.is_file() => {
                Ok(Some(BlobMetadata { len: metadata.len(), modified: metadata.modified().map_err(failed)? }))
            }
            Ok(_) if name.is_own() => Err(no_file(name)),
            Ok(_) => Ok(None),
            Err(error) if is_absent_blob(name, &error) && !is_behind_link(&path) => {
                self.check_directories(name).map(|()| None)
            }
            Err(error) => Err(failed(error)),
        }
    }

    fn len_of(&self, name: &BlobName) -> Result<Option<u64>> {
        Ok(self.head(name)?.map(|head| head.len))
    }

    fn list(&self, prefix: BlobPrefix) -> Result<Vec<ListedBlob>> {
        if prefix.is_blob() {
            return Ok(Vec::new());
        }
        let (mut listed, prefix) = (Vec::new(), prefix.directory());
        self.check_directories(&prefix)?;
        list_directory(&self.root.join(&prefix), &prefix, &mut listed)?;
        self.check_directories(&prefix)?;
        listed.sort_unstable();
        Ok(listed)
    }

    fn delete(&self, name: &BlobName, durable: Durable) -> Result<()> {
        let path = self.path(name);
        self.open_files.lock().pop(name);
        match remove_file(&path) {
            Err(error) if is_absent_blob(name, &error) => self.check_directories(name)?,
            removed => removed.map_err(|error| Error::unwritten("delete", &path, error))?,
        }
        match durable {
            // Also if the blob was missing: another process may have deleted it a moment ago.
            Durable::OnReturn => sync_parents(&self.root, std::slice::from_ref(name)),
            Durable::AfterSync => Ok(()),
        }
    }

    fn sync_deletions(&self, names: &[BlobName]) -> Result<()> {
        sync_parents(&self.root, names)
    }

    fn other_copy(&self, _: &BlobName) -> OtherCopy {
        OtherCopy::default()
    }

    fn properties(&self) -> StoreProperties {
        let location = self.root.display().to_string();
        StoreProperties { location, local_path: Some(self.root.clone()), requests_max: 1, cold_option: None }
    }

    fn cold_state(&self) -> Option<&ColdState> {
        None
    }

    fn thawing(&self) -> Option<&dyn Thawing> {
        None
    }

    fn locks(&self) -> Option<&dyn Locks> {
        None
    }

    fn sealing(&self) -> Option<&dyn Sealing> {
        None
    }

    fn puts_exclusively(&self, _: &BlobName) -> Result<bool> {
        Ok(true)
    }

    fn is_unused(&self) -> Result<bool> {
        let failed = |error| Error::io("list", &self.root, error);
        for entry in fs::read_dir(&self.root).map_err(failed)? {
            if !is_leftover(&entry.map_err(failed)?) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn make_directories(&self, dry_run: bool) -> Result<()> {
        self.make_lasting_directories(dry_run)
    }

    fn clean_temporaries(&self) -> Result<usize> {
        let directory = self.root.join(TEMPORARY_PREFIX);
        clean(&directory).map_err(|error| Error::io("clean", &directory, error))
    }
}

#[cfg(test)]
#[path = "local_tests.rs"]
mod tests;
