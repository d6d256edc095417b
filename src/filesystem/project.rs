//! The project of a file or directory, whose quota counts it. No crate wraps these two calls of Linux.

use std::os::fd::BorrowedFd;

use rustix::io::Result;
use rustix::ioctl::{Getter, Opcode, Setter, ioctl, opcode};

/// `struct fsxattr` of Linux.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct ExtendedFlags {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    copied_extent_size: u32,
    padding: [u8; 8],
}

/// `FS_IOC_FSGETXATTR`.
const GET: Opcode = opcode::read::<ExtendedFlags>(b'X', 31);
/// `FS_IOC_FSSETXATTR`.
const SET: Opcode = opcode::write::<ExtendedFlags>(b'X', 32);

/// The project of an open file or directory.
pub(super) fn project(entry: BorrowedFd<'_>) -> Result<u32> {
    get(entry).map(|flags| flags.project)
}

/// Moves an open file or directory into a project.
#[expect(unsafe_code, reason = "a call that no crate wraps")]
pub(super) fn set_project(entry: BorrowedFd<'_>, project: u32) -> Result<()> {
    let flags = ExtendedFlags { project, ..get(entry)? };
    // SAFETY: the call reads one `fsxattr`, whose layout `ExtendedFlags` has.
    unsafe { ioctl(entry, Setter::<SET, ExtendedFlags>::new(flags)) }
}

#[expect(unsafe_code, reason = "a call that no crate wraps")]
fn get(entry: BorrowedFd<'_>) -> Result<ExtendedFlags> {
    // SAFETY: a call that succeeds has written one `fsxattr`, whose layout `ExtendedFlags` has. Any bytes are valid.
    unsafe { ioctl(entry, Getter::<GET, ExtendedFlags>::new()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_file_has_the_project_that_was_set() {
        let file = tempfile::tempfile().unwrap();
        let Ok(before) = project(file.as_fd()) else {
            return eprintln!("NOT TESTED: the file system of the temporary directory has no projects");
        };
        set_project(file.as_fd(), before).unwrap();
        match set_project(file.as_fd(), 77) {
            Ok(()) => assert_eq!(project(file.as_fd()), Ok(77)),
            Err(error) => eprintln!("NOT TESTED: a project of its own: {error}"),
        }
    }
}
