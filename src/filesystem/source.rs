//! Reads the content of one source file, split into data and holes.
//!
//! Opening does not follow links, does not wait for pipes and does not change access times. The opened file must be the
//! one that was captured.

use super::capture::{Capturer, add_flags, identity_of, node_of};
use super::moments;
use crate::error::{Error, Result};
use crate::repo::tree::{FileState, Node, NodeKind, Timestamp};
use crate::wire::wait_for_input;
use rustix::fs::{CWD, Mode, OFlags, SeekFrom, Stat, fstat, openat, seek};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

/// Resolution of the times of a file system, or more.
const TICK: Duration = Duration::from_millis(20);
/// The same of a file system that keeps whole seconds only.
const COARSE_TICK: Duration = Duration::from_secs(3);

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
    special: Option<SpecialReading>,
}

/// How a special file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SpecialReading {
    /// At any offset.
    ByOffset,
    /// From the start to the end, once.
    InOrder,
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
        moments::pass(path);
        let wrap = |error: io::Error| Error::io("open", path, error);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let descriptor = open_quietly(directory, name, flags).map_err(|error| wrap(error.into()))?;
        let stat = fstat(&descriptor).map_err(|error| wrap(error.into()))?;
        let opened = node_of(&stat, path)?;
        if opened.kind != NodeKind::File || identity_of(&stat) != node.identity() {
            return Err(wrap(io::Error::other("another file has replaced it")));
        }
        Ok(SourceFile { file: File::from(descriptor), path: path.to_path_buf(), opened, special: None })
    }

    /// Opens the device or named pipe `path`, or what a link there leads to, which was captured as the regular file
    /// `node`. Reads wait for the writer of a pipe.
    ///
    /// # Errors
    /// Like [`SourceFile::open`].
    pub fn open_special(path: &Path, node: &Node) -> Result<Self> {
        let wrap = |error: io::Error| Error::io("open", path, error);
        let descriptor = open_quietly(CWD, path.as_os_str(), OFlags::RDONLY | OFlags::NOCTTY | OFlags::NONBLOCK);
        let descriptor = descriptor.map_err(|error| wrap(error.into()))?;
        let stat = fstat(&descriptor).map_err(|error| wrap(error.into()))?;
        let opened = node_of(&stat, path)?;
        if identity_of(&stat) != node.identity() {
            return Err(wrap(io::Error::other("another file has replaced it")));
        }
        let special = match opened.kind {
            NodeKind::BlockDevice => SpecialReading::ByOffset,
            NodeKind::Fifo | NodeKind::CharacterDevice => SpecialReading::InOrder,
            _ => return Err(wrap(io::Error::other("another file has replaced it"))),
        };
        let opened = Node { kind: NodeKind::File, ..node.clone() };
        Ok(SourceFile { file: File::from(descriptor), path: path.to_path_buf(), opened, special: Some(special) })
    }

    /// The same file, of which all is data.
    #[must_use]
    pub fn without_holes(mut self) -> Self {
        self.opened.sparse = false;
        self
    }

    /// Whether this is a device or named pipe, whose length nobody knows before it has been read.
    pub fn is_special(&self) -> bool {
        self.special.is_some()
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

    /// Updates a captured node to the state at opening, so that all of it belongs to the content that is read. A file
    /// of another state may be a new one, with the name and the inode number of the captured one, which others may
    /// not read. Reads file flags that are not known. Returns the errors of optional metadata.
    #[must_use]
    pub fn refresh(&self, node: &mut Node) -> Vec<Error> {
        let mut warnings = Vec::new();
        node.sparse = self.opened.sparse;
        if self.state() != node.state() {
            let opened = Node { name: std::mem::take(&mut node.name), atime: node.atime, ..self.opened.clone() };
            *node = Capturer::new().capture_open(self.file.as_fd(), opened, &self.path, &mut warnings);
        } else if !self.is_special() {
            warnings.extend(add_flags(self.file.as_fd(), &self.path, node));
        }
        warnings
    }

    /// Reads from byte `offset` on, until `space` is full or the file ends. Returns the number of bytes read.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn read_full(&self, space: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_unless(space, offset, &AtomicBool::new(false))
    }

    /// The same, but waits for a pipe or a device no longer than until `stop` is set.
    ///
    /// # Errors
    /// Errors of the system, and [`io::ErrorKind::Interrupted`] once `stop` is set.
    pub fn read_unless(&self, space: &mut [u8], offset: u64, stop: &AtomicBool) -> io::Result<usize> {
        moments::pass(&self.path);
        let mut filled = 0;
        while let Some(rest) = space.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            let read = match self.special {
                Some(SpecialReading::InOrder) => {
                    wait_for_input(&self.file, stop)?;
                    (&self.file).read(rest)
                }
                _ => self.file.read_at(rest, offset + filled as u64),
            };
            match read {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && self.is_special() => {
                    std::thread::sleep(TICK);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    /// The state when the file was opened.
    pub fn state(&self) -> FileState {
        self.opened.state()
    }

    /// Whether the file has changed since it was opened. Nobody knows of a special file.
    ///
    /// # Errors
    /// [`Error::Io`] if its metadata cannot be read.
    pub fn is_changed(&self) -> Result<bool> {
        if self.is_special() {
            return Ok(false);
        }
        moments::pass(&self.path);
        let stat: Stat = fstat(&self.file).map_err(|error| Error::io("read", &self.path, error))?;
        Ok(node_of(&stat, &self.path)?.state() != self.state())
    }

    /// Waits until the clock of the file system has left the time of the file's last change. Any later change then
    /// gives the file another time, and so has any file that gets its inode number. `false` if that would take long.
    pub fn outlast_tick(&self) -> bool {
        let missing = left_of_tick(self.opened.ctime, SystemTime::now());
        if let Some(missing) = missing.filter(|missing| *missing <= TICK) {
            std::thread::sleep(missing);
            return true;
        }
        missing.is_none()
    }

    /// Splits the content into data and holes of at least `hole_bytes_min` bytes. Shorter holes count as data.
    pub fn ranges(&self, hole_bytes_min: u64) -> FileRanges<'_> {
        let holes_in = self.opened.sparse.then_some(&self.file);
        FileRanges { holes_in, size: self.opened.size, position: 0, hole_bytes_min: hole_bytes_min.max(1) }
    }
}

/// The time until the clock of a file system has left `ctime`; `None` if it has.
fn left_of_tick(ctime: Timestamp, now: SystemTime) -> Option<Duration> {
    let changed = Duration::new(u64::try_from(ctime.seconds).unwrap_or(0), ctime.nanoseconds);
    let tick = if ctime.nanoseconds == 0 { COARSE_TICK } else { TICK };
    let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    changed.saturating_add(tick).checked_sub(now).filter(|missing| !missing.is_zero())
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

/// Bytes that are read at the start, in the middle and at the end of a hole.
const PROBE_BYTES: u64 = 512;

/// Whether some bytes of a range are zeros, as those of a hole are.
fn has_zeros(file: &File, range: Range<u64>) -> bool {
    let len = (range.end - range.start).min(PROBE_BYTES);
    let mut space = [0; PROBE_BYTES as usize];
    [range.start, range.start + (range.end - range.start - len) / 2, range.end - len].into_iter().all(|offset| {
        let space = space.get_mut(..len as usize).unwrap_or_default();
        matches!(file.read_at(space, offset), Ok(read) if space.iter().take(read).all(|byte| *byte == 0))
    })
}

/// Iterates over the ranges of a file in ascending order. They cover exactly the length at opening.
///
/// If the file system does not support holes, or contradicts itself, everything is data. A few bytes of each hole are
/// read: some file systems have said that there is a hole where data is.
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
        if self.holes_in.is_some_and(|file| data > start && !has_zeros(file, start..data)) {
            (self.holes_in, data) = (None, start);
        }
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
    fn data_in_what_is_called_a_hole_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let file = File::create(&path).unwrap();
        file.set_len(1 << 20).unwrap();
        let file = File::open(&path).unwrap();
        for (offset, range) in [(0, 0..1 << 20), (1 << 19, 0..1 << 20), ((1 << 20) - 1, 0..1 << 20), (4100, 4096..4106)]
        {
            assert!(has_zeros(&file, range.clone()));
            let writer = File::options().write(true).open(&path).unwrap();
            writer.write_all_at(&[1], offset).unwrap();
            assert!(!has_zeros(&file, range), "{offset}");
            writer.write_all_at(&[0], offset).unwrap();
        }
        std::fs::remove_file(&path).unwrap();
        assert!(!has_zeros(&File::open(directory.path()).unwrap(), 0..10), "what cannot be read");
    }

    #[test]
    fn times_are_distinct_once_the_clock_has_left_them() {
        let now = SystemTime::UNIX_EPOCH + Duration::new(1000, 500);
        let time = |seconds, nanoseconds| Timestamp { seconds, nanoseconds };
        assert_eq!(left_of_tick(time(999, 0), now), Some(Duration::new(1, 999_999_500)), "whole seconds");
        assert_eq!(left_of_tick(time(996, 0), now), None);
        assert_eq!(left_of_tick(time(999, 999_999_999), now), Some(TICK - Duration::from_nanos(501)));
        assert_eq!(left_of_tick(time(999, 900_000_000), now), None);
        assert!(left_of_tick(time(2000, 1), now).unwrap() > TICK, "the clock was set back");
        assert_eq!(left_of_tick(time(-5, 1), now), None);
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
        assert_eq!(source.refresh(&mut node).len(), 0);
        assert_eq!((source.size(), node.size), (5, 5));
        assert!(!source.is_changed().unwrap());
        std::fs::write(&path, b"longer").unwrap();
        assert!(source.is_changed().unwrap());
    }
}
