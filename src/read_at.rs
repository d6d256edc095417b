//! Random access to the bytes of a file, wherever they are: on a disk, in memory or in a repository.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::error::Error;

/// Random access to the bytes of a file.
pub trait ReadAt {
    /// Reads into `space` from byte `offset`. Returns the number of bytes read, 0 only at the end.
    fn read_at(&self, offset: u64, space: &mut [u8]) -> io::Result<usize>;

    /// Says which ranges are read next, in any order. What reads over a network asks for all of them at once.
    ///
    /// # Errors
    /// Errors of reading them.
    fn will_read(&self, _ranges: &[Range<u64>]) -> io::Result<()> {
        Ok(())
    }
}

impl ReadAt for File {
    fn read_at(&self, offset: u64, space: &mut [u8]) -> io::Result<usize> {
        FileExt::read_at(self, space, offset)
    }
}

impl ReadAt for [u8] {
    fn read_at(&self, offset: u64, space: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.get(offset..)).unwrap_or_default();
        let count = rest.len().min(space.len());
        space[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}

impl ReadAt for Vec<u8> {
    fn read_at(&self, offset: u64, space: &mut [u8]) -> io::Result<usize> {
        self.as_slice().read_at(offset, space)
    }
}

impl<T: ReadAt + ?Sized> ReadAt for &T {
    fn read_at(&self, offset: u64, space: &mut [u8]) -> io::Result<usize> {
        (**self).read_at(offset, space)
    }

    fn will_read(&self, ranges: &[Range<u64>]) -> io::Result<()> {
        (**self).will_read(ranges)
    }
}

/// Fills `space` from byte `offset` on.
///
/// # Errors
/// Errors of `source`. [`io::ErrorKind::UnexpectedEof`] if the source ends before `space` is full.
pub fn fill(source: &dyn ReadAt, mut offset: u64, mut space: &mut [u8]) -> io::Result<()> {
    while !space.is_empty() {
        match source.read_at(offset, space) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                offset += count as u64;
                space = space.get_mut(count..).ok_or_else(|| io::Error::other("a read returned too many bytes"))?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Converts an error of reading `path`: returns the [`Error`] that it wraps, or wraps the system's error.
pub fn unwrapped(error: io::Error, path: &Path) -> Error {
    error.downcast::<Error>().unwrap_or_else(|error| Error::io("read", path, error))
}
