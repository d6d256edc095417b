//! What a bucket knows of an object that was stored as a file.
//!
//! It is stored in the node's `extra` field under [`OBJECT_KEY`], a CBOR map with small integer keys. Keys are never
//! reused. Programs that do not know it keep it.

use std::collections::BTreeMap;

use minicbor::{Decode, Encode};
use serde::Serialize;

use super::node::{Node, Timestamp};

/// Key in [`Node::extra`].
pub const OBJECT_KEY: &str = "object";

/// What a bucket knows of an object.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode, Serialize)]
#[cbor(map)]
pub struct ObjectFacts {
    /// Its ETag without quotes.
    #[n(0)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// Its version, if the bucket keeps them.
    #[n(1)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Type of its content.
    #[n(2)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// What its user has noted.
    #[cbor(n(3), skip_if = "BTreeMap::is_empty")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// Its key behind the prefix of the source, if that is not the path of the entry.
    #[n(4)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// Whether an ETag is as long as a hash of bytes, as S3 makes it: 32 digits, and for parts their number. Others may be
/// counters or times. Each server gives them to other bytes, and so does one that is set up again: such an ETag says
/// something only with the time of the object.
pub fn is_hash_of_bytes(etag: &str) -> bool {
    let (hash, parts) = etag.split_once('-').unwrap_or((etag, "1"));
    let is_hash = hash.len() == 32 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash && !parts.is_empty() && parts.bytes().all(|byte| byte.is_ascii_digit())
}

impl ObjectFacts {
    /// The facts of a node; `None` if it is of no object, or if they cannot be read.
    pub fn of(node: &Node) -> Option<Self> {
        minicbor::decode(node.extra.get(OBJECT_KEY)?).ok()
    }

    /// Notes the facts in the node.
    pub fn attach(&self, node: &mut Node) {
        // Writing to memory does not fail.
        if let Ok(bytes) = minicbor::to_vec(self) {
            node.extra.insert(OBJECT_KEY.into(), bytes);
        }
    }

    /// Whether two objects of one key and size are the same. Without an ETag nobody knows. A listing names no versions.
    /// Of times, whole seconds count, since answers for one object have no more.
    pub fn is_same(&self, other: &ObjectFacts, [time, other_time]: [Timestamp; 2]) -> bool {
        let Some(etag) = self.etag.as_deref().filter(|_| self.etag == other.etag) else { return false };
        let is_known = time != Timestamp::default();
        is_hash_of_bytes(etag) || is_known && time.seconds == other_time.seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> ObjectFacts {
        ObjectFacts {
            etag: Some("e".into()),
            version: Some("v".into()),
            content_type: Some("t".into()),
            metadata: [("m".to_string(), "n".to_string())].into(),
            key: Some("a//b".into()),
        }
    }

    #[test]
    fn the_bytes_are_frozen() {
        let mut node = Node::default();
        facts().attach(&mut node);
        let hex: String = node.extra[OBJECT_KEY].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "a500616501617602617403a1616d616e0464612f2f62");
        assert_eq!(ObjectFacts::of(&node), Some(facts()));
        let least = ObjectFacts { etag: Some("e".into()), ..ObjectFacts::default() };
        least.attach(&mut node);
        assert_eq!(node.extra[OBJECT_KEY], [0xa1, 0x00, 0x61, 0x65]);
        assert_eq!(ObjectFacts::of(&node), Some(least));
    }

    #[test]
    fn without_an_etag_nothing_is_the_same() {
        let of = |etag: Option<&str>| ObjectFacts { etag: etag.map(Into::into), ..ObjectFacts::default() };
        let versioned = ObjectFacts { version: Some("1".into()), ..of(Some("e")) };
        let at = |seconds: i64, nanoseconds: u32| Timestamp { seconds, nanoseconds };
        let now = [at(5, 0), at(5, 7)];
        assert!(of(Some("e")).is_same(&versioned, now), "listings name no versions");
        assert!(!of(Some("e")).is_same(&of(Some("f")), now));
        assert!(!of(None).is_same(&of(None), now));
        assert!(!of(Some("17")).is_same(&of(Some("17")), [at(0, 0); 2]), "nobody knows when these were put");
        let later = [at(5, 0), at(6, 0)];
        assert!(!of(Some("17")).is_same(&of(Some("17")), later), "a counter of a server that is new");
        for hash in ["0123456789abcdef0123456789ABCDEF", "0123456789abcdef0123456789abcdef-12"] {
            assert!(of(Some(hash)).is_same(&of(Some(hash)), later), "copies have the ETag of their bytes");
        }
        for other in ["0123456789abcdef0123456789abcdef-", "0123456789abcdef0123456789abcdef-1x", "0x8DC5A0B1C2D3E4F"] {
            assert!(!of(Some(other)).is_same(&of(Some(other)), later), "{other}");
        }
    }
}
