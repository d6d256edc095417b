//! The stored metadata of one directory entry.
//!
//! A [`Node`] is a CBOR map with small integer keys. Keys are never reused. Fields with default values are omitted, so
//! most nodes take about 60 bytes. Later versions add fields through [`Node::extra`], which every version preserves.
//! A node with a [`Node::defect`] is neither written nor read.

use super::holes::KEY as HOLES_KEY;
use super::newer::NewerParts;
use crate::repo::recipe::ContentReference;
use minicbor::bytes::{ByteSlice, ByteVec};
use minicbor::{Decode, Encode};
use std::collections::BTreeMap;

/// The greatest key of a [`Node`] that this version knows. `Node::written_keys` counts all of them.
pub(super) const KEY_MAX: u64 = 21;
/// The greatest kind that this version knows.
pub(super) const KIND_MAX: u64 = 6;

/// Kind of a directory entry.
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
    /// An entry that only a newer version can use. It is never written.
    #[n(65535)]
    Unknown,
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

/// Identity of a file on the source machine. Hard links to one file have equal identities.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Encode, Decode)]
pub struct FileIdentity {
    /// Device number of the file system.
    #[n(0)]
    pub device: u64,
    /// Inode number in the file system.
    #[n(1)]
    pub inode: u64,
}

/// What changes when a file changes, or when another file gets its inode number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileState {
    /// Identity. It is free for another file once the last name is deleted.
    pub identity: FileIdentity,
    /// Length, bytes.
    pub size: u64,
    /// Time of the last change of the content. Programs set it as they like.
    pub mtime: Timestamp,
    /// Time of the last change of anything. The system sets it.
    pub ctime: Timestamp,
}

/// Number of the device that a device node refers to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Encode, Decode)]
pub struct DeviceNumber {
    /// Number of the driver.
    #[n(0)]
    pub major: u32,
    /// Number of the driver's instance.
    #[n(1)]
    pub minor: u32,
}

/// One extended attribute. POSIX ACLs are the attributes `system.posix_acl_*`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Encode, Decode)]
pub struct Xattr {
    /// Full name, including the name space.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub name: Vec<u8>,
    /// Value, any bytes.
    #[cbor(n(1), with = "minicbor::bytes")]
    pub value: Vec<u8>,
}

/// The metadata of one directory entry.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[cbor(map)]
pub struct Node {
    /// Name in its directory: any bytes except `/` and NUL.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub name: Vec<u8>,
    /// Kind of the entry.
    #[n(1)]
    pub kind: NodeKind,
    /// Permission bits with set-user-ID, set-group-ID and sticky: at most `0o7777`.
    #[n(2)]
    pub mode: u32,
    /// User id of the owner.
    #[cbor(n(3), skip_if = "is_default")]
    pub uid: u32,
    /// Group id.
    #[cbor(n(4), skip_if = "is_default")]
    pub gid: u32,
    /// Name of the owner on the source machine, if it had one.
    #[n(5)]
    pub user: Option<String>,
    /// Name of the group on the source machine, if it had one.
    #[n(6)]
    pub group: Option<String>,
    /// Time of the last change of the content.
    #[n(7)]
    pub mtime: Timestamp,
    /// Time of the last access, if it is recorded.
    #[n(8)]
    pub atime: Option<Timestamp>,
    /// Time of the last change of content or metadata. Used only to detect changed files.
    #[cbor(n(9), skip_if = "is_default")]
    pub ctime: Timestamp,
    /// Length of a regular file, bytes, holes included. 0 for all other kinds.
    #[cbor(n(10), skip_if = "is_default")]
    pub size: u64,
    /// Inode on the source file system.
    #[cbor(n(11), skip_if = "is_default")]
    pub inode: u64,
    /// Device of the source file system.
    #[cbor(n(12), skip_if = "is_default")]
    pub device: u64,
    /// Identity of a file with several names. All its nodes have the same value. It is a claim: only nodes of one
    /// [`Node::file_digest`] are names of one file.
    #[n(13)]
    pub hard_link: Option<FileIdentity>,
    /// Target of a symbolic link.
    #[cbor(n(14), with = "minicbor::bytes")]
    pub link_target: Option<Vec<u8>>,
    /// Number of the device, for device nodes.
    #[n(15)]
    pub device_number: Option<DeviceNumber>,
    /// Extended attributes, ascending by name.
    #[cbor(n(16), skip_if = "Vec::is_empty")]
    pub xattrs: Vec<Xattr>,
    /// Whether the file had holes. A restore then recreates them.
    #[cbor(n(17), skip_if = "is_default")]
    pub sparse: bool,
    /// Content of a file, or listing of a directory. `None` if that is empty.
    #[n(18)]
    pub content: Option<ContentReference>,
    /// Whether the file changed while it was read, so that its content may be inconsistent.
    #[cbor(n(19), skip_if = "is_default")]
    pub changed: bool,
    /// Fields of later versions. Every version preserves them.
    #[cbor(n(20), skip_if = "BTreeMap::is_empty", encode_with = "encode_extra", decode_with = "decode_extra")]
    pub extra: BTreeMap<String, Vec<u8>>,
    /// Of a directory: whether entries of it may be missing here, because they were left out or could not be read.
    #[cbor(n(21), skip_if = "is_default")]
    pub partial: bool,
    /// What this version does not know of it.
    #[cbor(skip)]
    pub newer: Option<Box<NewerParts>>,
}

impl Node {
    /// Identity of the file on the source machine.
    pub fn identity(&self) -> FileIdentity {
        FileIdentity { device: self.device, inode: self.inode }
    }

    /// What tells the captured file from its earlier and later states and from other files.
    pub fn state(&self) -> FileState {
        FileState { identity: self.identity(), size: self.size, mtime: self.mtime, ctime: self.ctime }
    }

    /// A digest of the identity, content and metadata of a file with several names, `None` of any other entry. Nodes
    /// are names of one file only if their digests are equal. A source gives the inode number of a deleted file to a
    /// new one, also during a backup, and nobody vouches for what a snapshot says.
    ///
    /// It leaves out what differs between names of one file: the name, what a link or a look changes, and what only
    /// the first name has.
    pub fn file_digest(&self) -> Option<[u8; 32]> {
        self.hard_link?;
        let mut node = Node { name: b"name".to_vec(), ctime: Timestamp::default(), atime: None, ..self.clone() };
        (node.inode, node.device, node.sparse, node.changed) = (0, 0, false, false);
        node.extra.remove(HOLES_KEY);
        // With the keys that only a newer version knows.
        let mut bytes = Vec::new();
        node.append_to(&mut bytes).ok()?;
        Some(*blake3::hash(&bytes).as_bytes())
    }

    /// Describes what makes the node invalid, if anything. Invalid nodes are never stored or restored.
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
        } else if self.kind != NodeKind::Directory && self.partial {
            Some("an incomplete listing of an entry that is no directory")
        } else if self.xattrs.iter().any(is_bad_xattr) {
            Some("an extended attribute whose name is empty or has a NUL")
        } else if !self.xattrs.is_sorted_by(|one, next| one.name < next.name) {
            Some("extended attributes out of order")
        } else {
            None
        }
    }
}

/// Describes what makes `name` invalid as the name of a directory entry, if anything.
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
