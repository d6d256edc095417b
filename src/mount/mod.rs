//! Mount: snapshots as a read-only file system.
//!
//! 1. [`ReadOnlyFiles`] is what a file system driver asks: look up, list, read. Nothing else knows the driver.
//! 2. [`SnapshotFiles`] answers from a repository. The top directories are virtual: `ids` has a directory for each
//!    snapshot, and `snapshots`, `hosts`, `tags` and `latest` have links to them.
//! 3. `fuse` passes the questions of the kernel on, through the crate `fuser`.
//!
//! Inodes are hashes of their location, so they are the same after they were forgotten, and in the next mount. Memory
//! holds the inodes that the kernel remembers, and bounded caches.

mod file_bytes;
#[cfg(target_os = "linux")]
mod fuse;
mod inodes;
mod readahead;
mod snapshot_files;
mod top;

#[cfg(target_os = "linux")]
pub use fuse::{MountOptions, MountedFiles, mount};
pub use snapshot_files::{ListSnapshots, SnapshotFiles};

use std::ffi::OsStr;

use crate::error::Result;
use crate::repo::tree::Node;

/// Inode of the root.
pub const ROOT: u64 = 1;

/// An entry as a driver sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct FileEntry {
    /// Number of the inode. Names of one file share it.
    pub inode: u64,
    /// Metadata. The name in it is not used.
    pub node: Node,
    /// Whether it is no entry of a snapshot, so that newer snapshots may change it.
    pub is_virtual: bool,
}

/// An entry of a directory listing.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedEntry {
    /// Name in the directory.
    pub name: Vec<u8>,
    /// The entry.
    pub entry: FileEntry,
}

/// Files that a driver can show.
///
/// A driver holds a reference to each inode that [`Self::look_up`] returned, until it calls [`Self::forget`]. Numbers
/// of inodes that it does not hold are answered with `None`, as are names that do not exist.
pub trait ReadOnlyFiles: Send + Sync {
    /// The entry `name` of directory `parent`. Adds a reference to its inode.
    ///
    /// # Errors
    /// Errors of reading the repository.
    fn look_up(&self, parent: u64, name: &OsStr) -> Result<Option<FileEntry>>;

    /// Drops references to an inode.
    fn forget(&self, inode: u64, references: u64);

    /// The entry of an inode.
    ///
    /// # Errors
    /// Errors of reading the repository.
    fn entry(&self, inode: u64) -> Result<Option<FileEntry>>;

    /// Opens a directory for listing. Returns a handle.
    ///
    /// # Errors
    /// Errors of reading the repository.
    fn open_directory(&self, inode: u64) -> Result<Option<u64>>;

    /// Passes the entries of a directory to `visit`, from number `from` on, until it returns `false`. That entry is
    /// passed again by a later call.
    ///
    /// # Errors
    /// Errors of reading the repository.
    fn list(&self, handle: u64, from: u64, visit: &mut dyn FnMut(u64, &ListedEntry) -> bool) -> Result<()>;

    /// Closes a directory.
    fn close_directory(&self, handle: u64);

    /// Reads up to `count` bytes of a file from `offset` on; fewer only at its end.
    ///
    /// # Errors
    /// Errors of reading the repository.
    fn read(&self, inode: u64, offset: u64, count: usize) -> Result<Option<Vec<u8>>>;

    /// Bytes of a file's chunks, which has holes between them. `None` if it has too many to count.
    ///
    /// # Errors
    /// Errors of reading the repository.
    fn data_len(&self, node: &Node) -> Result<Option<u64>>;

    /// The first offset from `offset` on that is in a hole if `in_hole`, else in data. The end of a file is a hole.
    /// `Some(None)`: there is none.
    ///
    /// # Errors
    /// Errors of reading the repository.
    fn seek(&self, inode: u64, offset: u64, in_hole: bool) -> Result<Option<Option<u64>>>;
}
