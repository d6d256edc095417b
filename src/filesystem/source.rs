//! Reads the content of one source file, split into data and holes.
//!
//! Opening does not follow links, does not wait for pipes and does not change access times. The opened file must be the
//! one that was captured.

use super::capture::{identity_of, node_of};
use crate::error::{Error, Result};
use crate::repo::tree::{Node, NodeKind, Timestamp};
use rustix::fs::{CWD, Mode, OFlags, SeekFrom, Stat, fstat, openat, seek};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A range of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileRange {
    /// Bytes to read.
    Data {
        /// Offset in the file, bytes.
        offset: u64,
        /// Length, bytes.
        len: u64,
    },
    /// Zeros that are not stored.
    Hole {
        /// Length, bytes.
        len: u64,
    },
}

/// An open regular file of the source.
#[derive(Debug)]
pub struct SourceFile {
    file: File,
    path: PathBuf,
    opened: Node,
}

impl SourceFile {
    /// Opens the file `path` that was captured as `node`.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be opened, or if another file has replaced it.
    pub fn open(path: &Path, node: &Node) -> Result<Self> {
        Self::open_at(CWD, path.as_os_str(), path, node)
    }

    /// Opens `name` in an open directory. `path` is its full path, for messages.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be opened, or if another file has replaced the one captured as `node`.
    pub fn open_at(directory: BorrowedFd<'_>, name: &OsStr, path: &Path, node: &Node) -> Result<Self> {
        let wrap = |error: io::Error| Error::io("open", path, error);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let descriptor = open_quietly(directory, name, flags).map_err(|error| wrap(error.into()))?;
        let stat = fstat(&descriptor).map_err(|error| wrap(error.into()))?;
        let opened = node_of(&stat, path)?;
        if opened.kind != NodeKind::File || identity_of(&stat) != node.identity() {
            return Err(wrap(io::Error::other("another file has replaced it")));
        }
        Ok(SourceFile { file: File::from(descriptor), path: path.to_path_buf(), opened })
    }

    /// Path on disk, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The open file. Its position is undefined.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Length when the file was opened, bytes.
    pub fn size(&self) -> u64 {
        self.opened.size
    }

    /// Updates a captured node to the state at opening, so that size and times match the content that is read.
    pub fn refresh(&self, node: &mut Node) {
        node.size = self.opened.size;
        node.mtime = self.opened.mtime;
        node.ctime = self.opened.ctime;
        node.sparse = self.opened.sparse;
    }

    /// Reads from byte `offset` on, until `space` is full or the file ends. Returns the number of bytes read.
    ///
    /// # Errors
    /// Those of the system.
    pub fn read_full(&self, space: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while let Some(rest) = space.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    /// Whether the file has changed since it was opened.
    ///
    /// # Errors
    /// [`Error::Io`] if its metadata cannot be read.
    pub fn is_changed(&self) -> Result<bool> {
        let stat: Stat = fstat(&self.file).map_err(|error| Error::io("read", &self.path, error))?;
        let now = node_of(&stat, &self.path)?;
        let state = |node: &Node| -> (u64, Timestamp, Timestamp) { (node.size, node.mtime, node.ctime) };
        Ok(state(&now) != state(&self.opened))
    }

    /// Splits the content into data and holes of at least `hole_bytes_min` bytes. Shorter holes count as data.
    pub fn ranges(&self, hole_bytes_min: u64) -> FileRanges<'_> {
        let holes_in = self.opened.sparse.then_some(&self.file);
        FileRanges { holes_in, size: self.opened.size, position: 0, hole_bytes_min: hole_bytes_min.max(1) }
    }
}

/// Opens for reading, without changing the access time if that is allowed.
pub(super) fn open_quietly(directory: BorrowedFd<'_>, name: &OsStr, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    match rustix::io::retry_on_intr(|| openat(directory, name, flags | OFlags::NOATIME, Mode::empty())) {
        Err(Errno::PERM) => {} // only the owner may request this
        result => return result,
    }
    rustix::io::retry_on_intr(|| openat(directory, name, flags, Mode::empty()))
}

/// The first offset of data at or after `position`, as far as the file system knows. `None`: there is none.
pub fn next_data(file: &File, position: u64) -> Option<u64> {
    #[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
    match seek(file, SeekFrom::Data(position)) {
        Ok(data) => return Some(data.max(position)),
        Err(Errno::NXIO) => return None,
        Err(_) => {}
    }
    Some(position)
}

/// Iterates over the ranges of a file in ascending order. They cover exactly the length at opening.
///
/// If the file system does not support holes, or contradicts itself, everything is data.
#[derive(Debug)]
pub struct FileRanges<'a> {
    holes_in: Option<&'a File>,
    size: u64,
    position: u64,
    hole_bytes_min: u64,
}

impl FileRanges<'_> {
    /// Returns the offset of the first data at or after `position`, or the file's length if there is none.
    fn data_from(&self, position: u64) -> u64 {
        match self.holes_in {
            Some(file) => next_data(file, position).map_or(self.size, |data| data.min(self.size)),
            None => position,
        }
    }

    /// Returns the offset of the first hole after the data at `position`, or the file's length if there is none.
    fn hole_from(&self, position: u64) -> u64 {
        #[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
        if let Some(file) = self.holes_in
            && let Ok(hole) = seek(file, SeekFrom::Hole(position))
            && hole > position
        {
            return hole.min(self.size);
        }
        self.size
    }
}

impl Iterator for FileRanges<'_> {
    type Item = FileRange;

    fn next(&mut self) -> Option<FileRange> {
        let start = self.position;
        if start >= self.size {
            return None;
        }
        let mut data = self.data_from(start);
        if data - start >= self.hole_bytes_min {
            self.position = data;
            return Some(FileRange::Hole { len: data - start });
        }
        let mut end = start;
        while data < self.size && data - end < self.hole_bytes_min {
            end = self.hole_from(data);
            data = self.data_from(end);
        }
        if data - end < self.hole_bytes_min {
            end = data; // a short hole at the end
        }
        self.position = end;
        Some(FileRange::Data { offset: start, len: end - start })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filesystem::Capturer;
    use std::os::unix::fs::{FileExt, symlink};

    fn open(path: &Path) -> Result<SourceFile> {
        SourceFile::open(path, &Capturer::new().capture_path(path, false, &mut Vec::new()).unwrap())
    }

    #[test]
    fn long_holes_are_found_and_short_ones_are_data() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sparse");
        let file = File::create(&path).unwrap();
        const BLOCK: u64 = 1 << 20;
        file.set_len(10 * BLOCK).unwrap();
        for block in [2, 4, 5] {
            file.write_all_at(&[1; BLOCK as usize], block * BLOCK).unwrap();
        }
        file.sync_all().unwrap();
        let source = open(&path).unwrap();
        let data = |from: u64, to: u64| FileRange::Data { offset: from * BLOCK, len: (to - from) * BLOCK };
        let hole = |blocks: u64| FileRange::Hole { len: blocks * BLOCK };
        let ranges = |least: u64| source.ranges(least).collect::<Vec<_>>();
        if ranges(1) == [data(0, 10)] {
            return; // the file system does not report holes
        }
        assert_eq!(ranges(0), [hole(2), data(2, 3), hole(1), data(4, 6), hole(4)]);
        assert_eq!(ranges(BLOCK), ranges(0));
        assert_eq!(ranges(BLOCK + 1), [hole(2), data(2, 6), hole(4)]);
        assert_eq!(ranges(2 * BLOCK + 1), [data(0, 6), hole(4)]);
        assert_eq!(ranges(4 * BLOCK + 1), [data(0, 10)]);
        assert!(!source.is_changed().unwrap());
    }

    #[test]
    fn a_file_without_holes_is_one_range_and_an_empty_file_has_none() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        for (content, expected) in [(&b""[..], None), (b"abc", Some(FileRange::Data { offset: 0, len: 3 }))] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(open(&path).unwrap().ranges(1).collect::<Vec<_>>(), expected.into_iter().collect::<Vec<_>>());
        }
        File::create(&path).unwrap().set_len(1 << 30).unwrap();
        let ranges: Vec<_> = open(&path).unwrap().ranges(4096).collect();
        assert!(ranges == [FileRange::Hole { len: 1 << 30 }] || ranges.len() == 1);
    }

    #[test]
    fn a_replaced_file_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, b"one").unwrap();
        let node = Capturer::new().capture_path(&path, false, &mut Vec::new()).unwrap();
        std::fs::write(directory.path().join("new"), b"two").unwrap();
        std::fs::rename(directory.path().join("new"), &path).unwrap();
        assert!(SourceFile::open(&path, &node).is_err());
        std::fs::rename(&path, directory.path().join("new")).unwrap();
        symlink("new", &path).unwrap();
        assert!(SourceFile::open(&path, &node).is_err());
        assert!(open(directory.path()).is_err());
        #[cfg(target_os = "linux")]
        {
            let fifo = directory.path().join("fifo");
            rustix::fs::mkfifoat(CWD, &fifo, 0o600.into()).unwrap();
            assert!(open(&fifo).is_err()); // without waiting for a writer
        }
    }

    #[test]
    fn a_change_while_open_is_detected() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, b"one").unwrap();
        let mut node = Capturer::new().capture_path(&path, false, &mut Vec::new()).unwrap();
        std::fs::write(&path, b"three").unwrap();
        let source = SourceFile::open(&path, &node).unwrap();
        source.refresh(&mut node);
        assert_eq!((source.size(), node.size), (5, 5));
        assert!(!source.is_changed().unwrap());
        std::fs::write(&path, b"longer").unwrap();
        assert!(source.is_changed().unwrap());
    }
}
