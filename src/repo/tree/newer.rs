//! What a newer version wrote into a node.
//!
//! 1. Keys that this version does not know and may ignore stay when the node is stored again.
//! 2. Of a node with a kind, a key or a variant of a reference that it must know, only the name is used. It costs that
//!    entry, not the listing.

use minicbor::Decoder;
use minicbor::decode::Error as DecodeError;

use super::node::{KEY_MAX, KIND_MAX, Node, NodeKind};
use crate::error::Error;
use crate::repo::recipe::unknown_variant;
use crate::repo::unknown_keys::UnknownKeys;

/// Key of a node's name, of its kind, and of its content.
const NAME: u64 = 0;
const KIND: u64 = 1;
const CONTENT: u64 = 18;

/// What this version does not know of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewerParts {
    /// What it would have to know to use the node, such as `kind of entry 9`.
    pub(super) needed: Option<String>,
    /// Keys that it may ignore.
    pub(super) keys: UnknownKeys,
}

impl NewerParts {
    /// Takes what this version would have to know.
    pub(in crate::repo) fn take_needed(&mut self) -> Option<String> {
        self.needed.take()
    }

    /// What goes with a node that can be used when it is stored again.
    pub(in crate::repo) fn stored_again(self) -> Option<Box<Self>> {
        (!self.keys.is_empty()).then(|| Box::new(self))
    }
}

/// Decodes the node at the beginning of `bytes`. Also returns its length.
pub(super) fn decode(bytes: &[u8]) -> Result<(Node, usize), DecodeError> {
    let mut decoder = Decoder::new(bytes);
    let decoded = decoder.decode::<Node>();
    let node = match decoded {
        Ok(node) if node.kind != NodeKind::Unknown && key_count(bytes) == Some(node.written_keys()) => {
            return Ok((node, decoder.position()));
        }
        decoded => decoded,
    };
    let (name, parts) = match look(bytes) {
        Ok(looked) => looked,
        Err(error) => return Err(node.err().unwrap_or(error)),
    };
    let node = match (parts.needed.is_some(), node) {
        (true, _) => Node { name, kind: NodeKind::Unknown, newer: Some(Box::new(parts)), ..Node::default() },
        (false, node) => Node { newer: parts.stored_again(), ..node? },
    };
    let mut decoder = Decoder::new(bytes);
    decoder.skip()?;
    Ok((node, decoder.position()))
}

fn key_count(bytes: &[u8]) -> Option<u64> {
    Decoder::new(bytes).map().ok().flatten()
}

/// The name of a node, and what is unknown of it.
fn look(bytes: &[u8]) -> Result<(Vec<u8>, NewerParts), DecodeError> {
    let (mut name, mut needed) = (Vec::new(), None);
    let keys = UnknownKeys::of(bytes, KEY_MAX, |key, mut value| {
        match key {
            NAME => name = value.bytes()?.to_vec(),
            KIND => {
                let kind = value.u64()?;
                needed = (kind > KIND_MAX).then(|| format!("kind of entry {kind}"));
            }
            CONTENT => {
                let unknown = unknown_variant(&mut value);
                needed = needed.take().or(unknown);
            }
            _ => {}
        }
        Ok(())
    })?;
    needed = needed.or(keys.required.map(|key| format!("key {key} of an entry")));
    Ok((name, NewerParts { needed, keys }))
}

/// What is unknown of the node at the beginning of `bytes`.
pub(in crate::repo) fn look_at_node(bytes: &[u8]) -> Result<NewerParts, DecodeError> {
    look(bytes).map(|(_, parts)| parts)
}

impl Node {
    /// Why only a newer version can use this node, if that is so.
    pub fn unsupported(&self) -> Option<Error> {
        if self.kind != NodeKind::Unknown {
            return None;
        }
        let needed = self.newer.as_ref().and_then(|newer| newer.needed.clone());
        let name = format!("`{}`", self.name.escape_ascii());
        Some(Error::unsupported(name, needed.unwrap_or_else(|| "kind of entry".into())))
    }

    /// Number of keys that a writer gives the node.
    fn written_keys(&self) -> u64 {
        let optional = [
            self.uid != 0,
            self.gid != 0,
            self.user.is_some(),
            self.group.is_some(),
            self.atime.is_some(),
            self.ctime != Default::default(),
            self.size != 0,
            self.inode != 0,
            self.device != 0,
            self.hard_link.is_some(),
            self.link_target.is_some(),
            self.device_number.is_some(),
            !self.xattrs.is_empty(),
            self.sparse,
            self.content.is_some(),
            self.changed,
            !self.extra.is_empty(),
            self.partial,
        ];
        // Name, kind, mode and time are always there.
        4 + optional.into_iter().filter(|is_written| *is_written).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::super::NodeReader;
    use super::*;

    /// A listing of one node, whose map gets another key.
    fn listing(key: u8) -> Vec<u8> {
        let mut map = minicbor::to_vec(Node { name: b"a".to_vec(), mode: 0o644, ..Node::default() }).unwrap();
        map[0] += 1;
        map.extend([0x18, key, 0x82, 0x01, 0x61, b'x']);
        let mut listing = vec![map.len() as u8];
        listing.extend(map);
        listing
    }

    #[test]
    fn a_node_that_is_stored_again_keeps_the_keys_of_a_newer_version() {
        let bytes = listing(100);
        let node = NodeReader::new("listing", &bytes).next().unwrap().unwrap();
        assert!(node.unsupported().is_none() && node.newer.is_some());
        let mut again = Vec::new();
        Node { uid: 0, ..node }.append_to(&mut again).unwrap();
        assert_eq!(again, bytes);
    }

    #[test]
    fn names_of_one_file_agree_in_the_keys_of_a_newer_version() {
        use super::super::FileIdentity;
        let node = |key| {
            let bytes = listing(key);
            let node = NodeReader::new("listing", &bytes).next().unwrap().unwrap();
            Node { hard_link: Some(FileIdentity::default()), ..node }
        };
        let (one, other) = (node(100), node(101));
        assert!(one.file_digest().is_some() && one.file_digest() == node(100).file_digest());
        assert_ne!(one.file_digest(), other.file_digest());
        let without = Node { newer: None, ..one.clone() };
        assert_ne!(one.file_digest(), without.file_digest());
    }

    #[test]
    fn a_node_with_a_key_that_must_be_known_is_only_a_name_and_is_not_stored_again() {
        let bytes = listing(128);
        let node = NodeReader::new("listing", &bytes).next().unwrap().unwrap();
        let error = node.unsupported().unwrap().to_string();
        assert_eq!(
            (&node.name[..], error.as_str()),
            (&b"a"[..], "`a` needs a newer fhrd: unknown key 128 of an entry")
        );
        assert!(node.append_to(&mut Vec::new()).is_err());
    }

    #[test]
    fn every_key_that_this_version_writes_is_known_and_counted() {
        use super::super::{DeviceNumber, FileIdentity, Timestamp, Xattr};
        use crate::repo::recipe::ContentReference;
        let time = Timestamp { seconds: 1, nanoseconds: 1 };
        let node = Node {
            name: b"a".to_vec(),
            kind: NodeKind::CharacterDevice,
            mode: 1,
            uid: 1,
            gid: 1,
            user: Some("u".into()),
            group: Some("g".into()),
            mtime: time,
            atime: Some(time),
            ctime: time,
            size: 1,
            inode: 1,
            device: 1,
            hard_link: Some(FileIdentity { device: 1, inode: 1 }),
            link_target: Some(b"t".to_vec()),
            device_number: Some(DeviceNumber { major: 1, minor: 1 }),
            xattrs: vec![Xattr { name: b"n".to_vec(), value: Vec::new() }],
            sparse: true,
            content: Some(ContentReference::Hole { len: 1 }),
            changed: true,
            extra: [("x".to_string(), Vec::new())].into(),
            partial: true,
            newer: None,
        };
        let bytes = minicbor::to_vec(&node).unwrap();
        assert_eq!(key_count(&bytes), Some(KEY_MAX + 1));
        assert_eq!(node.written_keys(), KEY_MAX + 1);
        let (_, parts) = look(&bytes).unwrap();
        assert_eq!(parts, NewerParts::default());
    }
}
