//! Ignore files: patterns for the directory that the file lies in, as git reads a `.gitignore`.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::OFlags;

use super::patterns::too_long;
use crate::error::Error;
use crate::filesystem::source::open_quietly;

/// Bytes of one ignore file, at most.
const FILE_BYTES_MAX: usize = 64 << 10;
/// Bytes of the ignore files of a directory and of those above it, at most.
const CHAIN_BYTES_MAX: usize = 256 << 10;

/// The patterns of an ignore file, and those of the directories above.
#[derive(Debug)]
pub struct IgnoreRules {
    matcher: Gitignore,
    /// Bytes of this file and of all above.
    bytes: usize,
    above: Option<Arc<IgnoreRules>>,
}

impl IgnoreRules {
    /// Reads the file `name` of the open `directory` at the absolute `path`; `None` if there is none. A file that
    /// cannot be used is reported and excludes nothing; so is a line that is no pattern.
    pub fn read(
        directory: BorrowedFd<'_>,
        name: &OsStr,
        path: &Path,
        above: &Option<Arc<IgnoreRules>>,
        warnings: &mut Vec<Error>,
    ) -> Option<Self> {
        let file = path.join(name);
        let mut warn = |reason: io::Error| warnings.push(Error::io("use the ignore file", &file, reason));
        let text = match read(directory, name) {
            Ok(text) => text?,
            Err(error) => {
                warn(error);
                return None;
            }
        };
        let bytes = text.len() + above.as_ref().map_or(0, |above| above.bytes);
        if text.len() > FILE_BYTES_MAX || bytes > CHAIN_BYTES_MAX {
            warn(io::Error::other(format!(
                "expected at most {FILE_BYTES_MAX} bytes, and {CHAIN_BYTES_MAX} with those of the directories above"
            )));
            return None;
        }
        let mut builder = GitignoreBuilder::new(path);
        for line in String::from_utf8_lossy(&text).lines() {
            if let Some(message) = too_long(line) {
                warn(io::Error::other(message));
            } else if let Err(error) = builder.add_line(None, line) {
                warn(io::Error::other(error));
            }
        }
        match builder.build() {
            Ok(matcher) => Some(IgnoreRules { matcher, bytes, above: above.clone() }),
            Err(error) => {
                warn(io::Error::other(error));
                None
            }
        }
    }

    /// Whether the entry at the absolute `path` is excluded. The deepest file with a matching pattern decides.
    pub fn excludes(&self, path: &Path, is_directory: bool) -> bool {
        let mut rules = Some(self);
        while let Some(current) = rules {
            match current.matcher.matched(path, is_directory) {
                Match::None => rules = current.above.as_deref(),
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
            }
        }
        false
    }
}

/// The first bytes of the regular file `name`, one more than allowed; `None` if there is no such file.
fn read(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<Option<Vec<u8>>> {
    let Some(file) = open_regular(directory, name)? else { return Ok(None) };
    let mut text = Vec::new();
    file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut text)?;
    Ok(Some(text))
}

/// Opens the regular file `name`; `None` if there is none. Follows no link and waits for no pipe.
pub fn open_regular(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<Option<File>> {
    use rustix::io::Errno;
    match open_quietly(directory, name, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK) {
        Ok(open) => {
            let file = File::from(open);
            Ok(file.metadata()?.is_file().then_some(file))
        }
        Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR | Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
