//! A copy of a restored entry, where the target refuses a further hard link of it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{AtFlags, statat};
use rustix::io::Errno;

use super::apply::Metadata;
use super::capture::node_of;
use super::descent::make_special;
use super::new_file::{FileToken, NewFile};
use super::source::{FileRange, SourceFile};
use super::target::Target;
use super::target_directory::{Completeness, TargetName};
use crate::error::{Error, Result};
use crate::repo::tree::{Node, NodeKind};

/// Bytes that are copied or compared at a time.
const BUFFER_BYTES: usize = 256 << 10;
/// Shorter holes of a file are written as zeros.
const HOLE_BYTES_MIN: u64 = 4096;

/// Whether the error of a hard link says that the target has none, or no more of this entry: a copy is then made.
pub fn is_link_refusal(error: &Error) -> bool {
    let Error::Io { source, .. } = error else { return false };
    let errno = source.raw_os_error().map(Errno::from_raw_os_error);
    let refusals = [Errno::PERM, Errno::MLINK, Errno::XDEV, Errno::NOTSUP, Errno::OPNOTSUPP, Errno::NOSYS];
    errno.is_some_and(|errno| refusals.contains(&errno))
}

impl Target {
    /// Creates `at` as a copy of the restored entry at `existing`, a path relative to the root, with the metadata of
    /// `node`. Returns its name, and gives back the reference to the directory. `token` is the one of the file. Appends
    /// errors of metadata to `problems`.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] if the name is taken. [`Error::Io`].
    pub fn copy_entry(
        &self,
        existing: &Path,
        node: &Node,
        at: TargetName,
        completeness: Completeness,
        token: &FileToken,
        problems: &mut Vec<Error>,
    ) -> Result<OsString> {
        if node.kind == NodeKind::File {
            return self.copy_file(existing, node, at, completeness, token, problems);
        }
        let made = at.claim(completeness, |directory, name| match &node.link_target {
            Some(link_target) => rustix::fs::symlinkat(OsStr::from_bytes(link_target), directory, name),
            None => make_special(directory, name, node),
        });
        if let Ok(name) = &made {
            let path = at.path().with_file_name(name);
            Metadata::new(node, &path, &self.options.notes, problems).apply_to_name(at.directory(), name);
        }
        at.release(problems);
        made
    }

    fn copy_file(
        &self,
        existing: &Path,
        node: &Node,
        at: TargetName,
        completeness: Completeness,
        token: &FileToken,
        problems: &mut Vec<Error>,
    ) -> Result<OsString> {
        let path = at.path();
        let new = NewFile::create_in_new_directory(at, token, node, problems)?;
        let copied = self.open_restored(existing).and_then(|source| {
            let is_whole = completeness == Completeness::Damaged || source.size() == node.size;
            is_whole.then_some(()).ok_or_else(|| changed(source.path()))?;
            copy_content(&source, &new.file).map_err(|error| Error::io("copy", path.clone(), error))
        });
        if let Err(error) = copied {
            new.discard(problems);
            return Err(error);
        }
        Metadata::new(node, &path, &self.options.notes, problems).apply_to(new.file.as_fd());
        new.publish(completeness, problems)
    }

    /// Whether the file that is at `at` already, `other`, has the content of the restored file at `existing`.
    pub fn is_copy(&self, existing: &Path, at: &TargetName, other: &Node) -> bool {
        let Ok(one) = self.open_restored(existing) else { return false };
        let name = OsStr::from_bytes(&other.name);
        let Ok(other) = SourceFile::open_at(at.directory(), name, &at.path(), other) else { return false };
        one.size() == other.size() && is_same_content(&one, &other).unwrap_or(false)
    }

    /// Opens a restored file for reading.
    fn open_restored(&self, path: &Path) -> Result<SourceFile> {
        let whole = self.path_of(path);
        let wrap = |error: Errno| Error::io("copy", &whole, error);
        let (parent, name) = self.open_parent(path)?;
        let stat = statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW).map_err(wrap)?;
        SourceFile::open_at(parent.as_fd(), name, &whole, &node_of(&stat, &whole)?)
    }
}

fn changed(path: &Path) -> Error {
    Error::io("copy", path, io::Error::other("it has changed since it was restored"))
}

/// Copies everything except holes.
fn copy_content(source: &SourceFile, to: &File) -> io::Result<()> {
    let (mut buffer, mut at) = (vec![0; BUFFER_BYTES], 0);
    to.set_len(source.size())?;
    for range in source.ranges(HOLE_BYTES_MIN) {
        let (end, is_data) = match range {
            FileRange::Hole { len } => (at + len, false),
            FileRange::Data { len, .. } => (at + len, true),
        };
        while is_data && at < end {
            let len = buffer.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
            let part = buffer.get_mut(..len).unwrap_or_default();
            if source.read_full(part, at)? < len {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            to.write_all_at(part, at)?;
            at += len as u64;
        }
        at = end;
    }
    Ok(())
}

fn is_same_content(one: &SourceFile, other: &SourceFile) -> io::Result<bool> {
    let mut buffers = [vec![0; BUFFER_BYTES], vec![0; BUFFER_BYTES]];
    let mut at = 0;
    loop {
        let [first, second] = &mut buffers;
        let (read, read_other) = (one.read_full(first, at)?, other.read_full(second, at)?);
        if read != read_other || first.get(..read) != second.get(..read) {
            return Ok(false);
        }
        if read < BUFFER_BYTES {
            return Ok(true);
        }
        at += read as u64;
    }
}
