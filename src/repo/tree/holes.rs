//! The small holes of a sparse file.
//!
//! Holes that are long enough are steps of the file's recipe. Shorter ones are stored as zeros, so that chunks do not
//! become small; this map remembers them, so that exactly they are holes again after a restore. It travels in the
//! node's open map under [`KEY`]: pairs of varints, the distance from the end of the last hole and the length.

use super::node::Node;
use crate::wire::{WireReader, put_varint};

/// Key in a node's open map.
pub const KEY: &str = "holes";
/// Longer maps are left out; a restore then makes holes of all aligned blocks of zeros.
const BYTES_MAX: usize = 256 << 10;

/// Collects holes in ascending order.
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

    /// Attaches the map to a sparse file's node, unless it is too long.
    pub fn attach(self, node: &mut Node) {
        if node.sparse && self.encoded.len() <= BYTES_MAX {
            node.extra.insert(KEY.into(), self.encoded);
        }
    }
}

/// The small holes of a node, as (start, end) in ascending order; `None` if it has no map, or none that makes sense.
pub fn small_holes(node: &Node) -> Option<Vec<(u64, u64)>> {
    let encoded = node.extra.get(KEY)?;
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
    fn a_map_comes_back() {
        let holes = [(4096, 8192), (16384, 20480), (1 << 40, (1 << 40) + 4096)];
        let mut map = HoleMap::default();
        holes.iter().for_each(|(start, end)| map.push(*start, end - start));
        let mut node = node();
        map.attach(&mut node);
        assert_eq!(small_holes(&node).expect("has a map"), holes);
    }

    #[test]
    fn a_map_that_is_too_long_or_hostile_is_none() {
        let mut map = HoleMap::default();
        (0..200_000u64).for_each(|number| map.push(number * 8192, 4096));
        let mut node = node();
        map.attach(&mut node);
        assert_eq!(small_holes(&node), None);
        node.extra.insert(KEY.into(), vec![0xff; 11]);
        assert_eq!(small_holes(&node), None);
    }
}
