//! The containers that this process has put into a remote store, on the local disk. A backup copies ranges of chunks
//! that it has just stored: without this it would read them back from the store.

use std::path::PathBuf;
use std::sync::OnceLock;

use super::BlobName;
use super::cache_files::{CacheFiles, FragmentName};
use super::cached_fragments::ALL;

/// See the module.
pub(super) struct RecentContainers {
    directory: PathBuf,
    bytes_max: u64,
    /// Made when the first container comes, so that a process that stores nothing leaves those of others alone.
    files: OnceLock<CacheFiles>,
}

impl RecentContainers {
    /// Keeps about `bytes_max` bytes in `directory`. What is there from other processes is deleted, also from running
    /// ones: they then read from the store.
    pub(super) fn new(directory: PathBuf, bytes_max: u64) -> Self {
        RecentContainers { directory, bytes_max, files: OnceLock::new() }
    }

    /// Keeps a container.
    pub(super) fn keep(&self, name: &BlobName, parts: &[&[u8]]) {
        let files = self.files.get_or_init(|| CacheFiles::new(self.directory.clone(), self.bytes_max).temporary());
        files.write(FragmentName { blob: name, fragment: ALL }, parts);
    }

    /// A range of a container, if it is here.
    pub(super) fn read(&self, name: &BlobName, offset: u64, len: usize) -> Option<Vec<u8>> {
        self.files.get()?.read(FragmentName { blob: name, fragment: ALL }, offset, len)
    }

    /// Deletes a container. Returns whether it was here.
    pub(super) fn forget(&self, name: &BlobName) -> bool {
        self.files.get().is_some_and(|files| files.remove(FragmentName { blob: name, fragment: ALL }))
    }
}
