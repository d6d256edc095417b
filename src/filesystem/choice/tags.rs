//! Tag files: their presence excludes everything else in their directory.

use std::ffi::{OsStr, OsString};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;

use super::ignore_files::open_regular;
use crate::error::{Error, Result};

/// Bytes of a header, at most.
const HEADER_BYTES_MAX: usize = 4096;
/// Name and header by the Cache Directory Tagging Specification.
const CACHE_NAME: &str = "CACHEDIR.TAG";
const CACHE_HEADER: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55";

/// A file that excludes everything else in its directory. The directory and the file itself are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagFile {
    /// Name of the file.
    pub name: OsString,
    /// Bytes that the file must begin with. If empty, anything with the name serves.
    pub header: Vec<u8>,
}

impl TagFile {
    /// The tag of cache directories, `CACHEDIR.TAG` with its signature.
    pub fn of_caches() -> Self {
        TagFile { name: CACHE_NAME.into(), header: CACHE_HEADER.to_vec() }
    }

    /// Parses `NAME` or `NAME:HEADER`.
    ///
    /// # Errors
    /// [`Error::Usage`] if the name is no file name, or if the header is too long.
    pub fn parse(text: &OsStr) -> Result<Self> {
        let bytes = text.as_bytes();
        let (name, header) = match bytes.iter().position(|byte| *byte == b':') {
            Some(colon) => (bytes.get(..colon), bytes.get(colon + 1..)),
            None => (Some(bytes), None),
        };
        let (name, header) = (name.unwrap_or_default(), header.unwrap_or_default());
        if name.is_empty() || name.contains(&b'/') || name == b"." || name == b".." {
            return Err(Error::Usage(format!("expected NAME or NAME:HEADER, found `{}`", text.display())));
        }
        if header.len() > HEADER_BYTES_MAX {
            let found = header.len();
            return Err(Error::Usage(format!("expected a header of at most {HEADER_BYTES_MAX} bytes, found {found}")));
        }
        Ok(TagFile { name: OsString::from_vec(name.to_vec()), header: header.to_vec() })
    }

    /// Whether the open `directory` has this tag. A tag that cannot be read excludes nothing.
    pub fn is_in(&self, directory: BorrowedFd<'_>) -> bool {
        if self.header.is_empty() {
            return rustix::fs::statat(directory, &self.name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).is_ok();
        }
        let Ok(Some(file)) = open_regular(directory, &self.name) else { return false };
        let mut found = vec![0; self.header.len()];
        file.read_exact_at(&mut found, 0).is_ok() && found == self.header
    }
}
