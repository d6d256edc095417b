//! What a restore notes on its way about the target: what it refused, and flags to set at the very end.
//!
//! An entry with one of these flags cannot be changed any more, get a further hard link or receive entries. So the
//! flags wait in a temporary file until everything else is done.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use crate::error::Error;
use crate::metrics::Counter;
use crate::repo::tree::{FileFlags, FileIdentity};

/// Warnings that are logged as such.
const LOGGED_MAX: u64 = 20;
/// Longest path that is noted, bytes.
const PATH_BYTES_MAX: u64 = 64 << 20;

/// Notes that all parts of a restore share.
#[derive(Debug, Default)]
pub struct TargetNotes {
    /// Metadata, and hard links, that the target refused.
    pub warnings: Counter,
    refused: Mutex<BTreeMap<u64, FileFlags>>,
    late: Mutex<Option<BufWriter<File>>>,
    /// Files that are not whole and were left for another restore to go on from.
    left: Mutex<BTreeSet<FileIdentity>>,
}

/// Flags that an entry gets at the end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LateFlags {
    pub(super) identity: FileIdentity,
    pub(super) flags: FileFlags,
    /// Full path.
    pub(super) path: PathBuf,
}

impl TargetNotes {
    /// Logs and counts what the target refused. Of many warnings only the first ones are logged.
    pub fn warn(&self, error: &Error) {
        let before = self.warnings.get();
        self.warnings.add(1);
        match before {
            0..LOGGED_MAX => tracing::warn!("{error}"),
            LOGGED_MAX => tracing::warn!("the target refuses more"),
            _ => tracing::info!("{error}"),
        }
    }

    /// Logs and counts what nobody may miss, however much there is of it.
    pub fn warn_always(&self, what: &str) {
        self.warnings.add(1);
        tracing::warn!("{what}");
    }

    /// Notes a file that is left for another restore to go on from.
    pub(super) fn leave(&self, file: FileIdentity) {
        self.left.lock().insert(file);
    }

    /// Whether a file was noted so.
    pub(super) fn has_left(&self, file: FileIdentity) -> bool {
        self.left.lock().contains(&file)
    }

    /// Notes that a file system refuses these flags, and a project unless it is 0.
    pub(super) fn refuse_flags(&self, device: u64, flags: FileFlags) {
        let mut refused = self.refused.lock();
        let noted = refused.entry(device).or_default();
        *noted = FileFlags { bits: noted.bits | flags.bits, project: noted.project | flags.project };
    }

    /// The flags that the file system `device` has refused. The project is not 0 if it has refused one.
    pub fn refused_flags(&self, device: u64) -> FileFlags {
        self.refused.lock().get(&device).copied().unwrap_or_default()
    }

    /// Notes flags to set at the end. What is noted later for the same entry counts.
    ///
    /// # Errors
    /// Errors of writing a temporary file.
    pub(super) fn flag_later(&self, path: &Path, identity: FileIdentity, flags: FileFlags) -> io::Result<()> {
        let mut late = self.late.lock();
        let file = match &mut *late {
            Some(file) => file,
            None => late.insert(BufWriter::new(tempfile::tempfile()?)),
        };
        let path = path.as_os_str().as_bytes();
        let numbers = [identity.device, identity.inode, flags.bits.into(), flags.project.into(), path.len() as u64];
        numbers.iter().try_for_each(|number| file.write_all(&number.to_le_bytes()))?;
        file.write_all(path)
    }

    /// Takes the noted flags.
    ///
    /// # Errors
    /// Errors of reading the temporary file.
    pub(super) fn take_late(&self) -> io::Result<Option<LateFlagsReader>> {
        let late = self.late.lock().take();
        let Some(late) = late else { return Ok(None) };
        let mut file = late.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.rewind()?;
        Ok(Some(LateFlagsReader { left: file.metadata()?.len(), file: BufReader::new(file) }))
    }
}

/// Reads noted flags, in the order of the notes.
pub(super) struct LateFlagsReader {
    file: BufReader<File>,
    left: u64,
}

impl LateFlagsReader {
    fn number(&mut self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.file.read_exact(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn read(&mut self) -> io::Result<LateFlags> {
        let identity = FileIdentity { device: self.number()?, inode: self.number()? };
        let flags = FileFlags { bits: self.number()? as u32, project: self.number()? as u32 };
        let len = self.number()?.min(PATH_BYTES_MAX);
        let mut path = vec![0; len as usize];
        self.file.read_exact(&mut path)?;
        self.left = self.left.saturating_sub(5 * 8 + len);
        Ok(LateFlags { identity, flags, path: OsString::from_vec(path).into() })
    }
}

impl Iterator for LateFlagsReader {
    type Item = io::Result<LateFlags>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        let read = self.read();
        if read.is_err() {
            self.left = 0;
        }
        Some(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_noted_in_order() {
        let notes = TargetNotes::default();
        assert!(notes.take_late().unwrap().is_none());
        let expected: Vec<LateFlags> = (0..3)
            .map(|at| LateFlags {
                identity: FileIdentity { device: 7, inode: at },
                flags: FileFlags { bits: FileFlags::IMMUTABLE, project: at as u32 },
                path: format!("/a/{at}").into(),
            })
            .collect();
        for late in &expected {
            notes.flag_later(&late.path, late.identity, late.flags).unwrap();
        }
        let read: io::Result<Vec<LateFlags>> = notes.take_late().unwrap().unwrap().collect();
        assert_eq!(read.unwrap(), expected);
        assert!(notes.take_late().unwrap().is_none());
    }
}
