//! Encodes a directory: its nodes in ascending byte order of their names, each as a varint length and that many bytes
//! of CBOR.
//!
//! Reading trusts nothing. A node that is too long, does not parse, has a [`Node::defect`] or is out of order ends the
//! listing with an error that has its offset.

use super::newer;
use super::node::Node;
use crate::error::{Error, Result};
use crate::wire::{WireReader, put_varint};

/// Longest encoding of one node, bytes.
pub const NODE_BYTES_MAX: u64 = 8 << 20;

impl Node {
    /// Appends the node to a listing. The caller appends nodes in ascending order of their names.
    ///
    /// # Errors
    /// [`Error::Usage`] if no reader would accept the node. `out` is then unchanged.
    pub fn append_to(&self, out: &mut Vec<u8>) -> Result<()> {
        let refuse = |why: &str| Error::Usage(format!("cannot store `{}`: {why}", self.name.escape_ascii()));
        if let Some(defect) = self.defect() {
            return Err(refuse(defect));
        }
        if let Some(error) = self.unsupported() {
            return Err(error);
        }
        let bytes = self.to_map().map_err(|error| refuse(&error))?;
        if bytes.len() as u64 > NODE_BYTES_MAX {
            return Err(refuse("its metadata is longer than 8 MiB"));
        }
        put_varint(out, bytes.len() as u64);
        out.extend_from_slice(&bytes);
        Ok(())
    }

    /// The node as CBOR, with the keys that this version does not know.
    pub(in crate::repo) fn to_map(&self) -> std::result::Result<Vec<u8>, String> {
        let bytes = minicbor::to_vec(self).map_err(|error| error.to_string())?;
        match &self.newer {
            Some(newer) => newer.keys.added_to(bytes).map_err(|error| error.to_string()),
            None => Ok(bytes),
        }
    }

    /// Reads the next node of a listing.
    fn read_from(reader: &mut WireReader<'_>) -> Result<Node> {
        let len = reader.bounded("a node", NODE_BYTES_MAX)?;
        let start = reader.clone();
        let bytes = reader.bytes(usize::try_from(len).unwrap_or(usize::MAX))?;
        let (node, len) = newer::decode(bytes).map_err(|error| start.error("a node", error.to_string()))?;
        if len != bytes.len() {
            let more = bytes.len() - len;
            return Err(start.error("one node", format!("{more} bytes after it")));
        }
        match node.defect() {
            Some(defect) => Err(start.error("a usable node", defect)),
            None => Ok(node),
        }
    }
}

/// Iterates over the nodes of a listing, up to the first error.
#[derive(Debug, Clone)]
pub struct NodeReader<'a> {
    reader: WireReader<'a>,
    last: Option<Vec<u8>>,
    failed: bool,
}

impl<'a> NodeReader<'a> {
    /// A reader of the whole listing `bytes`, which errors call `what`.
    pub fn new(what: &'a str, bytes: &'a [u8]) -> Self {
        Self::starting_at(what, 0, bytes)
    }

    /// A reader of the nodes `bytes`, which start at byte `offset` of the listing `what`.
    pub fn starting_at(what: &'a str, offset: u64, bytes: &'a [u8]) -> Self {
        NodeReader { reader: WireReader::new(what, offset, bytes), last: None, failed: false }
    }

    /// Number of unread bytes.
    pub fn remaining(&self) -> usize {
        self.reader.remaining()
    }

    fn read(&mut self) -> Result<Node> {
        let start = self.reader.clone();
        let node = Node::read_from(&mut self.reader)?;
        if let Some(last) = self.last.as_ref().filter(|last| **last >= node.name) {
            let expected = format!("a name after `{}`", last.escape_ascii());
            return Err(start.error(expected, format!("`{}`", node.name.escape_ascii())));
        }
        self.last = Some(node.name.clone());
        Ok(node)
    }
}

impl Iterator for NodeReader<'_> {
    type Item = Result<Node>;

    fn next(&mut self) -> Option<Result<Node>> {
        if self.failed || self.reader.remaining() == 0 {
            return None;
        }
        let node = self.read();
        self.failed = node.is_err();
        Some(node)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DeviceNumber, FileIdentity, NodeKind, Timestamp, Xattr};
    use super::*;
    use crate::repo::recipe::ContentReference;
    use crate::types::{Fingerprint, hex};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn read(bytes: &[u8]) -> Result<Vec<Node>> {
        NodeReader::new("listing", bytes).collect()
    }

    fn named(name: &[u8]) -> Node {
        Node { name: name.to_vec(), mode: 0o644, ..Node::default() }
    }

    prop_compose! {
        fn times()(seconds: i64, nanoseconds in 0u32..1_000_000_000) -> Timestamp {
            Timestamp { seconds, nanoseconds }
        }
    }

    prop_compose! {
        fn inner()(device: u64, inode: u64, is_linked: bool, size: u64, sparse: bool, changed: bool,
            content in prop_oneof![
                Just(None),
                (any::<[u8; 32]>(), any::<u64>())
                    .prop_map(|(name, len)| Some(ContentReference::Chunk { fingerprint: Fingerprint(name), len })),
                any::<u64>().prop_map(|len| Some(ContentReference::Hole { len })),
            ],
            xattrs in prop::collection::btree_map(prop::collection::vec(1u8.., 1..9), any::<Vec<u8>>(), 0..4),
            extra: BTreeMap<String, Vec<u8>>,
        ) -> Node {
            let hard_link = is_linked.then_some(FileIdentity { device, inode });
            let xattrs = xattrs.into_iter().map(|(name, value)| Xattr { name, value }).collect();
            Node { device, inode, hard_link, size, sparse, changed, content, xattrs, extra, ..Node::default() }
        }
    }

    prop_compose! {
        fn nodes()(node in inner(), kind in 0usize..7, mode in 0u32..0o10000, uid: u32, gid: u32,
            user: Option<String>, group: Option<String>, mtime in times(), atime in prop::option::of(times()),
            ctime in times(), target in prop::collection::vec(1u8.., 1..20), major: u32, minor: u32,
            partial: bool,
        ) -> Node {
            use NodeKind::{BlockDevice, CharacterDevice, Directory, Fifo, File, Socket, Symlink};
            let kind = [File, Directory, Symlink, Fifo, Socket, CharacterDevice, BlockDevice][kind];
            Node {
                kind, mode, uid, gid, user, group, mtime, atime, ctime,
                hard_link: node.hard_link.filter(|_| kind != Directory),
                partial: partial && kind == Directory,
                link_target: (kind == Symlink).then_some(target),
                device_number: matches!(kind, CharacterDevice | BlockDevice).then_some(DeviceNumber { major, minor }),
                ..node
            }
        }
    }

    fn names() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(1u8.., 1..12).prop_filter("a name", |name| super::super::name_defect(name).is_none())
    }

    proptest! {
        #[test]
        fn listings_round_trip(entries in prop::collection::btree_map(names(), nodes(), 0..6)) {
            let entries: Vec<Node> = entries.into_iter().map(|(name, node)| Node { name, ..node }).collect();
            let mut bytes = Vec::new();
            for node in &entries {
                node.append_to(&mut bytes).unwrap();
            }
            prop_assert_eq!(read(&bytes).unwrap(), entries);
        }

        #[test]
        fn hostile_bytes_never_panic(bytes: Vec<u8>) {
            let _ = read(&bytes);
        }

        #[test]
        fn damaged_listings_never_panic(
            node in nodes(), name in names(), at: prop::sample::Index, byte: u8, cut: bool,
        ) {
            let mut bytes = Vec::new();
            Node { name, ..node }.append_to(&mut bytes).unwrap();
            let at = at.index(bytes.len());
            if cut { bytes.truncate(at) } else { bytes[at] = byte }
            if let Ok(nodes) = read(&bytes) {
                prop_assert!(nodes.iter().all(|node| node.defect().is_none()));
            }
        }
    }

    fn golden() -> Node {
        Node {
            name: b"caf\xe9".to_vec(),
            mode: 0o4755,
            uid: 1000,
            gid: 100,
            user: Some("ada".into()),
            group: Some("users".into()),
            mtime: Timestamp { seconds: -1, nanoseconds: 999_999_999 },
            atime: Some(Timestamp { seconds: 1 << 33, nanoseconds: 1 }),
            ctime: Timestamp { seconds: 2, nanoseconds: 3 },
            size: 70_000,
            inode: 42,
            device: 2049,
            hard_link: Some(FileIdentity { device: 2049, inode: 42 }),
            xattrs: vec![Xattr { name: b"user.a".to_vec(), value: vec![0, 255] }],
            sparse: true,
            content: Some(ContentReference::Hole { len: 70_000 }),
            changed: true,
            extra: BTreeMap::from([("x".into(), vec![1])]),
            ..Node::default()
        }
    }

    #[test]
    fn the_encoding_never_changes() {
        let mut bytes = Vec::new();
        golden().append_to(&mut bytes).unwrap();
        assert_eq!(
            hex(&bytes),
            concat!(
                "6bb30044636166e90100021909ed031903e80418640563616461066575736572730782201a3b9ac9ff08821b00000002",
                "0000000001098202030a1a000111700b182a0c1908010d82190801182a10818246757365722e614200ff11f51282021a",
                "0001117013f514a161784101",
            )
        );
        assert_eq!(read(&bytes).unwrap(), [golden()]);
        bytes.clear();
        named(b"a").append_to(&mut bytes).unwrap();
        assert_eq!(hex(&bytes), "0ea40041610100021901a407820000");
    }

    #[test]
    fn a_listing_out_of_order_is_refused() {
        for (one, two) in [(b"b", b"a"), (b"a", b"a")] {
            let mut bytes = Vec::new();
            named(one).append_to(&mut bytes).unwrap();
            let second = bytes.len() as u64;
            named(two).append_to(&mut bytes).unwrap();
            let mut reader = NodeReader::new("listing", &bytes);
            assert!(reader.next().unwrap().is_ok());
            assert!(matches!(reader.next().unwrap(), Err(Error::Corrupt { offset, .. }) if offset == second));
            assert!(reader.next().is_none());
        }
    }

    #[test]
    fn invalid_nodes_are_neither_written_nor_read() {
        let link = Node { kind: NodeKind::Symlink, ..named(b"a") };
        let device = Node { kind: NodeKind::BlockDevice, ..named(b"a") };
        let late = Timestamp { seconds: 0, nanoseconds: 1_000_000_000 };
        let xattr = |name: &[u8]| Xattr { name: name.to_vec(), value: Vec::new() };
        let invalid = [
            named(b""),
            named(b"."),
            named(b".."),
            named(b"../x"),
            named(b"a/b"),
            named(b"a\0"),
            Node { mode: 0o10000, ..named(b"a") },
            Node { link_target: Some(vec![0]), ..link.clone() },
            Node { link_target: Some(Vec::new()), ..link.clone() },
            Node { link_target: Some(vec![1]), ..named(b"a") },
            Node { device_number: Some(DeviceNumber::default()), ..named(b"a") },
            Node { mtime: late, ..named(b"a") },
            Node { atime: Some(late), ..named(b"a") },
            Node { xattrs: vec![xattr(b"b"), xattr(b"a")], ..named(b"a") },
            Node { xattrs: vec![xattr(b"b\0")], ..named(b"a") },
            Node { kind: NodeKind::Directory, hard_link: Some(FileIdentity::default()), ..named(b"a") },
            Node { partial: true, ..named(b"a") },
            link,
            device,
        ];
        for node in invalid {
            assert!(matches!(node.append_to(&mut Vec::new()), Err(Error::Usage(_))), "{node:?}");
            let encoded = minicbor::to_vec(&node).unwrap();
            let mut bytes = Vec::new();
            put_varint(&mut bytes, encoded.len() as u64);
            bytes.extend(encoded);
            assert!(matches!(read(&bytes), Err(Error::Corrupt { .. })), "{node:?}");
        }
    }

    #[test]
    fn lengths_are_bounded() {
        let huge = Node { xattrs: vec![Xattr { name: vec![1], value: vec![0; 17 << 20] }], ..named(b"a") };
        assert!(huge.append_to(&mut Vec::new()).is_err());
        let mut bytes = Vec::new();
        put_varint(&mut bytes, NODE_BYTES_MAX + 1);
        assert!(matches!(read(&bytes), Err(Error::Corrupt { offset: _, .. })));
    }

    #[test]
    fn fields_of_a_later_version_are_skipped() {
        let mut encoder = minicbor::Encoder::new(Vec::new());
        encoder.map(5).unwrap();
        encoder.u8(0).unwrap().bytes(b"a").unwrap();
        encoder.u8(1).unwrap().u8(0).unwrap();
        encoder.u8(2).unwrap().u32(0o600).unwrap();
        encoder.u8(7).unwrap().array(2).unwrap().i64(5).unwrap().u32(6).unwrap();
        encoder.u8(99).unwrap().array(1).unwrap().str("later").unwrap();
        let encoded = encoder.into_writer();
        let mut bytes = vec![encoded.len() as u8];
        bytes.extend(encoded);
        let mtime = Timestamp { seconds: 5, nanoseconds: 6 };
        let mut nodes = read(&bytes).unwrap();
        // It keeps them.
        nodes.iter_mut().for_each(|node| assert!(node.newer.take().is_some()));
        assert_eq!(nodes, [Node { mode: 0o600, mtime, ..named(b"a") }]);
    }
}
