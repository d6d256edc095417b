//! Every change that a local store makes to the file system. Tests record them, so that they can ask what a power cut
//! leaves at each moment.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

#[cfg(test)]
pub(crate) mod journal;
#[cfg(test)]
pub(crate) mod replay;

#[cfg(test)]
use journal::{FileChange, recorded};

/// Runs the operation: outside tests there is no journal.
#[cfg(not(test))]
macro_rules! recorded {
    ($change:expr, $operation:expr) => {
        $operation
    };
}

/// Runs the operation, and notes the change if it succeeds.
#[cfg(test)]
macro_rules! recorded {
    ($change:expr, $operation:expr) => {
        recorded($change, || $operation)
    };
}

/// Creates an empty file, accessible by its owner only.
pub(super) fn create_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Makes the content of the file at `path` durable, but not its name.
pub(super) fn sync_file(file: &File, path: &Path) -> io::Result<()> {
    let _ = path;
    recorded!(FileChange::Content(path), sync_content(file))
}

/// Makes the content of a file durable. A file system that cannot promise that is an error: after a power cut, what was
/// reported could be gone.
///
/// # Errors
/// Errors of the file system.
pub fn sync_content(file: &File) -> io::Result<()> {
    file.sync_all().map_err(unsynced)
}

/// The error of a file that could not be synced.
pub(super) fn unsynced(error: io::Error) -> io::Error {
    if !matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) {
        return error;
    }
    let text = format!(
        "the file system cannot sync files ({error}), so a power cut could lose them: use another one, or mount it \
         with other options"
    );
    io::Error::new(error.kind(), text)
}

/// Renames a file, over a file of the new name.
pub(super) fn rename(from: &Path, target: &Path) -> io::Result<()> {
    recorded!(FileChange::Name(from, target), fs::rename(from, target))
}

/// Gives a file a second name.
pub(super) fn hard_link(from: &Path, target: &Path) -> io::Result<()> {
    recorded!(FileChange::Name(from, target), fs::hard_link(from, target))
}

/// Removes a file.
pub(super) fn remove_file(path: &Path) -> io::Result<()> {
    recorded!(FileChange::Removal(path), fs::remove_file(path))
}

/// Creates `directory`, accessible by its owner only, unless it exists. Its parent must exist, so that an unmounted
/// root is not created again in its mount point.
pub(super) fn create_directory(directory: &Path) -> io::Result<()> {
    match recorded!(FileChange::Directory(directory), DirBuilder::new().mode(0o700).create(directory)) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        created => created,
    }
}

/// Makes the names in `directory` durable.
///
/// # Errors
/// Errors of the file system.
pub fn sync_directory(directory: &Path) -> io::Result<()> {
    let open = || File::options().read(true).custom_flags(OFlags::DIRECTORY.bits() as i32).open(directory);
    let sync = || match open()?.sync_all() {
        // Some network file systems cannot sync directories and do not need to.
        Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => Ok(()),
        synced => synced,
    };
    recorded!(FileChange::Names(directory), sync())
}

/// Makes the name of a file durable, unless nobody may read its directory, which then cannot be synced.
///
/// # Errors
/// Errors of the file system.
pub fn sync_name(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    match sync_directory(directory.unwrap_or(Path::new("."))) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
        synced => synced,
    }
}

/// Renames unless `target` exists. `None` if the system or the file system lacks that call.
pub(super) fn rename_without_replacing(from: &Path, target: &Path) -> Option<io::Result<()>> {
    #[cfg(any(target_os = "linux", target_vendor = "apple"))]
    return rename_with(from, target, rustix::fs::RenameFlags::NOREPLACE);
    #[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
    None
}

/// Gives two files each other's names. `None` if the system or the file system lacks that call.
pub(super) fn exchange(from: &Path, target: &Path) -> Option<io::Result<()>> {
    #[cfg(any(target_os = "linux", target_vendor = "apple"))]
    return rename_with(from, target, rustix::fs::RenameFlags::EXCHANGE);
    #[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
    None
}

#[cfg(any(target_os = "linux", target_vendor = "apple"))]
fn rename_with(from: &Path, target: &Path, flags: rustix::fs::RenameFlags) -> Option<io::Result<()>> {
    use rustix::fs::{CWD, renameat_with};
    use rustix::io::Errno;
    match recorded!(FileChange::Name(from, target), renameat_with(CWD, from, CWD, target, flags)) {
        Err(error) if [Errno::INVAL, Errno::NOSYS, Errno::NOTSUP, Errno::OPNOTSUPP].contains(&error) => None,
        renamed => Some(renamed.map_err(io::Error::from)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_synced_is_an_error_that_says_so() {
        let (reader, writer) = io::pipe().unwrap();
        let pipe = File::from(std::os::fd::OwnedFd::from(writer));
        let error = sync_content(&pipe).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("cannot sync files"), "{error}");
        drop(reader);
        sync_content(&tempfile::tempfile().unwrap()).unwrap();
    }
}
