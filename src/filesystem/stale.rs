//! Files that a killed restore has left in the target under temporary names.
//!
//! 1. A restore goes on from such a file if it restores the same content under the same name (`new_file`
//!    (super::new_file)). All others are nobody's, and would stay for ever.
//! 2. So a restore that leaves a directory which it did not create removes from it what is certainly left: a regular
//!    file with such a name and the mode that only a restore gives one (`new_file::UNPUBLISHED`), of this user, without
//!    another name and without a lock. A restore that runs has locked its own. What this restore itself has left, for
//!    another one to go on from, stays. So does what the snapshot has under such a name.

use std::ffi::OsStr;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, openat, unlinkat};

use super::new_file::open_left;
use super::target_directory::is_temporary;
use crate::repo::tree::FileIdentity;

/// Removes what killed restores have left in a directory, except for what `stays` says of by name and identity.
pub(super) fn remove_stale(directory: BorrowedFd<'_>, path: &Path, stays: impl Fn(&OsStr, FileIdentity) -> bool) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(listing) = openat(directory, ".", flags, Mode::empty()).and_then(Dir::new) else { return };
    for entry in listing.flatten() {
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if !is_temporary(name) {
            continue;
        }
        // The lock is held until the name is gone.
        let Some(left) = open_left(directory, name) else { continue };
        if left.is_marked && !stays(name, left.identity) {
            match unlinkat(directory, name, AtFlags::empty()) {
                Ok(()) => tracing::info!("{}: removed what a killed restore has left", path.join(name).display()),
                Err(error) => tracing::debug!("{}: {error}", path.join(name).display()),
            }
        }
    }
}
