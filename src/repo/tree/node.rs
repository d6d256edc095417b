//! The metadata of one directory entry, in the form in which it is stored.
//!
//! A [`Node`] is a CBOR map with small integer keys. Keys are never reused; fields at their default are left out,
//! so most nodes take about 60 bytes. A later version adds fields through [`Node::extra`], which every version
//! keeps. [`Node::defect`] says what makes a node unusable; neither writing nor reading lets such a node pass.

use crate::repo::recipe::ContentReference;
use minicbor::bytes::{ByteSlice, ByteVec};
use minicbor::{Decode, Encode};
use std::collections::BTreeMap;

/// What a directory entry is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Encode, Decode)]
#[cbor(index_only)]
pub enum NodeKind {
    /// A regular file.
    #[default]
    #[n(0)]
    File,
    /// A directory.
    #[n(1)]
    Directory,
    /// A symbolic link.
    #[n(2)]
    Symlink,
    /// A named pipe.
    #[n(3)]
    Fifo,
    /// A socket.
    #[n(4)]
    Socket,
    /// A character device.
    #[n(5)]
    CharacterDevice,
    /// A block device.
    #[n(6)]
    BlockDevice,
}

/// A point in time: seconds since 1970 (negative before) and the nanoseconds after that second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Encode, Decode)]
pub struct Timestamp {
    /// Whole seconds since 1970-01-01T00:00:00Z, rounded down.
    #[n(0)]
    pub seconds: i64,
    /// 0 to 999 999 999.
    #[n(1)]
    pub nanoseconds: u32,
}

/// What makes a file the same file under two names: its device and its inode there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Encode, Decode)]
pub struct FileIdentity {
    /// Number of the file system.
    #[n(0)]
    pub device: u64,
    /// Number of the file in it.
    #[n(1)]
    pub inode: u64,
}

/// Which device a device node stands for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Encode, Decode)]
pub struct DeviceNumber {
    /// The driver.
    #[n(0)]
    pub major: u32,
    /// The driver's instance.
    #[n(1)]
    pub minor: u32,
}

/// One extended attribute. POSIX ACLs are those named `system.posix_acl_*`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Encode, Decode)]
pub struct Xattr {
    /// Full name, with its name space.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub name: Vec<u8>,
    /// Any bytes.
    #[cbor(n(1), with = "minicbor::bytes")]
    pub value: Vec<u8>,
}

/// The metadata of one directory entry.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[cbor(map)]
pub struct Node {
    /// Name in its directory: any bytes but `/` and NUL.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub name: Vec<u8>,
    /// What it is.
    #[n(1)]
    pub kind: NodeKind,
    /// Permission bits with set-user-ID, set-group-ID and sticky: at most `0o7777`.
    #[n(2)]
    pub mode: u32,
    /// Owner.
    #[cbor(n(3), skip_if = "is_default")]
    pub uid: u32,
    /// Group.
    #[cbor(n(4), skip_if = "is_default")]
    pub gid: u32,
    /// Owner's name where the backup ran, if it had one.
    #[n(5)]
    pub user: Option<String>,
    /// Group's name where the backup ran, if it had one.
    #[n(6)]
    pub group: Option<String>,
    /// Last change of the content.
    #[n(7)]
    pub mtime: Timestamp,
    /// Last access, where it is recorded.
    #[n(8)]
    pub atime: Option<Timestamp>,
    /// Last change of content or metadata; serves only to tell whether a file changed.
    #[cbor(n(9), skip_if = "is_default")]
    pub ctime: Timestamp,
    /// Bytes of content of a regular file, holes included; 0 for all else.
    #[cbor(n(10), skip_if = "is_default")]
    pub size: u64,
    /// Inode on the source file system.
    #[cbor(n(11), skip_if = "is_default")]
    pub inode: u64,
    /// Device of the source file system.
    #[cbor(n(12), skip_if = "is_default")]
    pub device: u64,
    /// Set where the same file has several names; all of them carry the same value.
    #[n(13)]
    pub hard_link: Option<FileIdentity>,
    /// Target of a symbolic link.
    #[cbor(n(14), with = "minicbor::bytes")]
    pub link_target: Option<Vec<u8>>,
    /// Which device a device node is.
    #[n(15)]
    pub device_number: Option<DeviceNumber>,
    /// Extended attributes, ascending by name.
    #[cbor(n(16), skip_if = "Vec::is_empty")]
    pub xattrs: Vec<Xattr>,
    /// The file had holes: restore leaves out long runs of zeros.
    #[cbor(n(17), skip_if = "is_default")]
    pub sparse: bool,
    /// Content of a file, or listing of a directory; an empty file or directory has none.
    #[n(18)]
    pub content: Option<ContentReference>,
    /// The file changed while it was read: its content is of no single moment.
    #[cbor(n(19), skip_if = "is_default")]
    pub changed: bool,
    /// Room for what later versions record; every version keeps it as it is.
    #[cbor(n(20), skip_if = "BTreeMap::is_empty", encode_with = "encode_extra", decode_with = "decode_extra")]
    pub extra: BTreeMap<String, Vec<u8>>,
}

impl Node {
    /// What tells it from every other file of the source machine.
    pub fn identity(&self) -> FileIdentity {
        FileIdentity { device: self.device, inode: self.inode }
    }

    /// What makes the node unusable, if anything: no such node is ever stored or restored.
    pub fn defect(&self) -> Option<&'static str> {
        let times = [Some(self.mtime), self.atime, Some(self.ctime)];
        let is_device = matches!(self.kind, NodeKind::CharacterDevice | NodeKind::BlockDevice);
        let is_bad_xattr = |xattr: &Xattr| xattr.name.is_empty() || xattr.name.contains(&0);
        if let Some(defect) = name_defect(&self.name) {
            Some(defect)
        } else if self.mode > 0o7777 {
            Some("mode bits above 0o7777")
        } else if times.iter().flatten().any(|time| time.nanoseconds > 999_999_999) {
            Some("a time with more than 999999999 nanoseconds")
        } else if (self.kind == NodeKind::Symlink) != self.link_target.is_some() {
            Some("a link target without a link or a link without one")
        } else if self.link_target.as_ref().is_some_and(|target| target.is_empty() || target.contains(&0)) {
            Some("an empty link target or one with a NUL")
        } else if is_device != self.device_number.is_some() {
            Some("a device number without a device or a device without one")
        } else if self.kind == NodeKind::Directory && self.hard_link.is_some() {
            Some("a directory with several names")
        } else if self.xattrs.iter().any(is_bad_xattr) {
            Some("an extended attribute whose name is empty or has a NUL")
        } else if !self.xattrs.is_sorted_by(|one, next| one.name < next.name) {
            Some("extended attributes out of order")
        } else {
            None
        }
    }
}

/// What makes `name` unusable as the name of a directory entry, if anything.
pub fn name_defect(name: &[u8]) -> Option<&'static str> {
    match name {
        b"" => Some("an empty name"),
        b"." | b".." => Some("the name `.` or `..`"),
        _ if name.contains(&b'/') => Some("a name with a slash"),
        _ if name.contains(&0) => Some("a name with a NUL"),
        _ => None,
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn encode_extra<C, W: minicbor::encode::Write>(
    extra: &BTreeMap<String, Vec<u8>>,
    encoder: &mut minicbor::Encoder<W>,
    _: &mut C,
) -> Result<(), minicbor::encode::Error<W::Error>> {
    encoder.map(extra.len() as u64)?;
    for (key, value) in extra {
        encoder.str(key)?.encode(<&ByteSlice>::from(value.as_slice()))?;
    }
    Ok(())
}

fn decode_extra<C>(
    decoder: &mut minicbor::Decoder<'_>,
    _: &mut C,
) -> Result<BTreeMap<String, Vec<u8>>, minicbor::decode::Error> {
    let extra: BTreeMap<String, ByteVec> = decoder.decode()?;
    Ok(extra.into_iter().map(|(key, value)| (key, value.into())).collect())
}
