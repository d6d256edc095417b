//! Files whose bytes are given, and their paths.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::repo::recipe::ContentReference;
use crate::repo::tree::name_defect;

/// Names of a path, at most.
const DEPTH_MAX: usize = 64;

/// A file of a backup whose bytes are given.
#[derive(Debug, Clone)]
pub struct MemoryFile {
    /// Path from the root of the snapshot: names separated by slashes.
    pub path: OsString,
    /// Its bytes.
    pub content: MemoryContent,
}

/// Where the bytes of a given file are.
#[derive(Debug, Clone)]
pub enum MemoryContent {
    /// In memory, in order.
    Parts(Vec<Bytes>),
    /// In memory that others may write to, in order.
    Borrowed(Vec<Bytes>),
    /// In a file on disk.
    Disk(PathBuf),
    /// In an open file that nobody changes: so many bytes from an offset on.
    Range {
        /// The file.
        file: Arc<File>,
        /// Offset of the first byte.
        start: u64,
        /// Number of bytes.
        len: u64,
    },
    /// In the repository that the backup writes to. They are not read.
    Stored(ContentReference),
}

/// Checks the paths of files, and sorts the files by them.
///
/// # Errors
/// [`Error::Usage`] if a path is no path of a file, or if two files have one path.
pub fn sorted(files: &[MemoryFile]) -> Result<Vec<MemoryFile>> {
    let mut sorted = files.to_vec();
    for file in &sorted {
        let count = names_of(&file.path).count();
        if let Some(defect) = names_of(&file.path).find_map(name_defect) {
            return Err(Error::Usage(format!("`{}` is no path of a file: it has {defect}", file.path.display())));
        } else if count > DEPTH_MAX {
            return Err(Error::Usage(format!("`{}` has more than {DEPTH_MAX} names", file.path.display())));
        }
    }
    sorted.sort_by(|one, other| names_of(&one.path).cmp(names_of(&other.path)));
    for pair in sorted.windows(2) {
        if let [one, next] = pair
            && names_of(&next.path).zip(names_of(&one.path)).filter(|(next, one)| next == one).count()
                == names_of(&one.path).count()
        {
            let message = format!("`{}` and `{}` cannot both be files", one.path.display(), next.path.display());
            return Err(Error::Usage(message));
        }
    }
    Ok(sorted)
}

/// The names of a path.
pub fn names_of(path: &OsStr) -> impl Iterator<Item = &[u8]> {
    path.as_bytes().split(|byte| *byte == b'/')
}
