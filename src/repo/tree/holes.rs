//! The small holes of a sparse file.
//!
//! Long holes are steps of the file's recipe. Short holes are stored as zeros, so that chunks do not become small. This
//! map records the short holes, so that a restore recreates exactly those. It is stored in the node's `extra` field
//! under [`KEY`]: for each hole, the distance from the end of the previous hole and the length, both as varints.

use super::node::Node;
use crate::wire::{WireReader, put_varint};

/// Key in [`Node::extra`].
pub const KEY: &str = "holes";
/// Longest stored map, bytes. Without a map, a restore creates holes for all aligned blocks of zeros.
const BYTES_MAX: usize = 256 << 10;

/// Encodes holes in ascending order.
#[derive(Debug, Default)]
pub struct HoleMap {
    encoded: Vec<u8>,
    end: u64,
}

impl HoleMap {
    /// Adds the hole of `len` bytes at `offset`.
    pub fn push(&mut self, offset: u64, len: u64) {
        if self.encoded.len() <= BYTES_MAX {
            put_varint(&mut self.encoded, offset.saturating_sub(self.end));
            put_varint(&mut self.encoded, len);
            self.end = offset + len;
        }
    }

    /// Attaches the map to the node of a sparse file, unless the map is too long.
    pub fn attach(self, node: &mut Node) {
        if node.sparse && self.encoded.len() <= BYTES_MAX {
            // A node that comes from a snapshot has its map.
            node.extra.entry(KEY.into()).or_insert(self.encoded);
        }
    }
}

/// Returns the small holes of a node as (start, end), in ascending order. `None` if the node has no valid map, or a
/// longer one than writers store.
pub fn small_holes(node: &Node) -> Option<Vec<(u64, u64)>> {
    let encoded = node.extra.get(KEY).filter(|encoded| encoded.len() <= BYTES_MAX)?;
    let mut reader = WireReader::new("hole map", 0, encoded);
    let (mut holes, mut end) = (Vec::new(), 0u64);
    while reader.remaining() > 0 {
        let start = end.checked_add(reader.varint().ok()?)?;
        end = start.checked_add(reader.varint().ok()?)?;
        holes.push((start, end));
    }
    Some(holes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repo::tree::{NodeKind, Timestamp};

    fn node() -> Node {
        Node {
            name: b"disk".to_vec(),
            kind: NodeKind::File,
            sparse: true,
            mtime: Timestamp::default(),
            ..Node::default()
        }
    }

    #[test]
    fn a_map_round_trips() {
        let holes = [(4096, 8192), (16384, 20480), (1 << 40, (1 << 40) + 4096)];
        let mut map = HoleMap::default();
        holes.iter().for_each(|(start, end)| map.push(*start, end - start));
        let mut node = node();
        map.attach(&mut node);
        assert_eq!(small_holes(&node).expect("has a map"), holes);
    }

    #[test]
    fn a_map_that_is_too_long_or_invalid_is_ignored() {
        let mut map = HoleMap::default();
        (0..200_000u64).for_each(|number| map.push(number * 8192, 4096));
        let mut node = node();
        map.attach(&mut node);
        assert_eq!(small_holes(&node), None);
        node.extra.insert(KEY.into(), vec![0xff; 11]);
        assert_eq!(small_holes(&node), None);
    }
}
