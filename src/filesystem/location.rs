//! Where a file of a walk is opened.

use super::source::SourceFile;
use crate::error::Result;
use crate::repo::tree::{FileIdentity, Node};
use rustix::fs::{StatVfsMountFlags, fstatfs, fstatvfs, statfs, statvfs};
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

/// Type of an overlay file system, whose files have the times and inodes of the layer below.
const OVERLAY: u32 = 0x794c_7630;

/// Where to open a file of the walk. It keeps the file's directory open.
#[derive(Debug)]
pub struct FileLocation {
    /// The open directory of the file and its identity. `None`: the path counts.
    pub(super) directory: Option<(Arc<OwnedFd>, FileIdentity)>,
    /// Path on disk.
    pub(super) path: PathBuf,
    /// Whether it is a special file whose content is read.
    pub(super) is_special: bool,
    /// Whether its holes are read.
    pub(super) read_holes: bool,
}

impl FileLocation {
    /// The directory that stays open as long as this exists.
    pub fn directory_identity(&self) -> Option<FileIdentity> {
        self.directory.as_ref().map(|(_, identity)| *identity)
    }

    /// Whether the file may be in the image of a file system: on one that is mounted read-only, or below one that
    /// takes changes for it. It may be if nobody knows.
    pub(super) fn may_be_in_image(&self) -> bool {
        let (flags, kind) = match &self.directory {
            Some((directory, _)) => (fstatvfs(directory), fstatfs(directory)),
            None => (statvfs(&self.path), statfs(&self.path)),
        };
        let is_read_only = flags.map_or(true, |stat| stat.f_flag.contains(StatVfsMountFlags::RDONLY));
        is_read_only || kind.map_or(true, |stat| stat.f_type as u32 == OVERLAY)
    }

    /// Opens the file, which was captured as `node`.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if it is gone, or if another file has replaced it.
    pub fn open(&self, node: &Node) -> Result<SourceFile> {
        if self.is_special {
            return SourceFile::open_special(&self.path, node);
        }
        let source = match &self.directory {
            Some((directory, _)) => {
                SourceFile::open_at(directory.as_fd(), OsStr::from_bytes(&node.name), &self.path, node)
            }
            None => SourceFile::open(&self.path, node),
        };
        source.map(|source| if self.read_holes { source.without_holes() } else { source })
    }
}
