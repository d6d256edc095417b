//! Extended attributes and ACLs of restored entries.
//!
//! 1. Attributes that let somebody in or change what a program may do are made equal to the stored ones: what the
//!    snapshot lacks is removed. An entry of the target may have them from the default ACL of its directory, or from
//!    the entry whose place it takes.
//! 2. All others belong to the system, such as the labels of its security modules: they are set if they are stored, and
//!    never removed or compared.

use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::{XattrFlags, flistxattr, fremovexattr, fsetxattr, llistxattr, lremovexattr, lsetxattr};
use rustix::io::{Errno, Result as ErrnoResult};

use crate::repo::tree::{Node, Xattr};

/// The ACL of an entry.
pub(super) const ACL: &[u8] = b"system.posix_acl_access";
/// The ACL that entries of a directory get.
const DEFAULT_ACL: &[u8] = b"system.posix_acl_default";
/// What a program may do.
const CAPABILITY: &[u8] = b"security.capability";

/// Tag of the entry for the owning group in an ACL.
const ACL_GROUP: u16 = 4;
/// Bytes before the first entry of an ACL, and bytes of each entry.
const ACL_HEADER: usize = 4;
const ACL_ENTRY: usize = 8;

/// Bytes for the names of few attributes, and of all that Linux lists.
const NAMES_BYTES: usize = 256;
const NAMES_BYTES_MAX: usize = 64 << 10;

/// Whether a restore removes the attribute `name` where the snapshot lacks it.
pub(super) fn is_made_equal(name: &[u8]) -> bool {
    name.starts_with(b"user.") || is_acl(name) || name == CAPABILITY
}

pub(super) fn is_acl(name: &[u8]) -> bool {
    name == ACL || name == DEFAULT_ACL
}

/// Whether only root may set it.
pub(super) fn is_reserved(name: &[u8]) -> bool {
    name.starts_with(b"security.") || name.starts_with(b"trusted.")
}

/// Whether an entry has the attributes that a restore of `node` can give it, and none that it takes away.
pub fn has_attributes(node: &Node, existing: &Node) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    let is_set = |xattr: &Xattr| {
        let is_of_system = !is_made_equal(&xattr.name) && !xattr.name.starts_with(b"trusted.");
        is_of_system || (is_reserved(&xattr.name) && !is_root) || existing.xattrs.contains(xattr)
    };
    node.xattrs.iter().all(is_set) && existing.xattrs.iter().all(|xattr| !is_stale(node, &xattr.name))
}

/// Whether an entry that has the attribute `name` is to lose it.
pub(super) fn is_stale(node: &Node, name: &[u8]) -> bool {
    is_made_equal(name) && node.xattrs.iter().all(|xattr| xattr.name != name)
}

/// The permission bits that the owning group has by the stored ACL `acl`. With an ACL, the group's bits of the mode say
/// what any named user or group may do at most.
pub(super) fn group_bits(acl: &[u8]) -> u32 {
    let entries = acl.get(ACL_HEADER..).unwrap_or_default().chunks_exact(ACL_ENTRY);
    let of_group = entries.filter_map(|entry| match entry {
        [tag, tag_high, bits, bits_high, ..] => {
            let is_group = u16::from_le_bytes([*tag, *tag_high]) == ACL_GROUP;
            is_group.then_some(u16::from_le_bytes([*bits, *bits_high]))
        }
        _ => None,
    });
    of_group.map(|bits| u32::from(bits) & 0o7).next().unwrap_or(0)
}

/// An entry of the target whose attributes change.
pub(super) enum AttributesOf<'a> {
    /// A file or directory.
    Open(BorrowedFd<'a>),
    /// Anything else. A link is not followed.
    Path(&'a Path),
}

impl AttributesOf<'_> {
    pub(super) fn set(&self, xattr: &Xattr) -> ErrnoResult<()> {
        match self {
            AttributesOf::Open(entry) => fsetxattr(entry, xattr.name.as_slice(), &xattr.value, XattrFlags::empty()),
            AttributesOf::Path(path) => lsetxattr(*path, xattr.name.as_slice(), &xattr.value, XattrFlags::empty()),
        }
    }

    pub(super) fn remove(&self, name: &[u8]) -> ErrnoResult<()> {
        match self {
            AttributesOf::Open(entry) => fremovexattr(entry, name),
            AttributesOf::Path(path) => lremovexattr(*path, name),
        }
    }

    /// The names of all attributes. None where the file system has no attributes.
    pub(super) fn names(&self) -> ErrnoResult<Vec<Vec<u8>>> {
        let mut bytes = vec![0; NAMES_BYTES];
        let listed = match self.list(&mut bytes) {
            Err(Errno::RANGE) => {
                bytes.resize(NAMES_BYTES_MAX, 0);
                self.list(&mut bytes)
            }
            listed => listed,
        };
        match listed {
            Ok(len) => bytes.truncate(len),
            Err(Errno::NOTSUP) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        }
        Ok(bytes.split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
    }

    fn list(&self, bytes: &mut [u8]) -> ErrnoResult<usize> {
        match self {
            AttributesOf::Open(entry) => flistxattr(entry, bytes),
            AttributesOf::Path(path) => llistxattr(*path, bytes),
        }
    }
}
