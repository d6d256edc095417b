//! Hashes of Xet: BLAKE3 with one key for each use, and a tree above the hashes of chunks.

use crate::types::{hex, unhex};

/// Keys of chunks, of nodes of the tree, and of terms. The protocol says them.
const CHUNK_KEY: [u8; 32] = [
    102, 151, 245, 119, 91, 149, 80, 222, 49, 53, 203, 172, 165, 151, 24, 28, 157, 228, 33, 16, 155, 235, 43, 88, 180,
    208, 176, 75, 147, 173, 242, 41,
];
const NODE_KEY: [u8; 32] = [
    1, 126, 197, 199, 165, 71, 41, 150, 253, 148, 102, 102, 180, 138, 2, 230, 93, 221, 83, 111, 55, 199, 109, 210, 248,
    99, 82, 230, 74, 83, 113, 63,
];
const TERM_KEY: [u8; 32] = [
    127, 24, 87, 214, 206, 86, 237, 102, 18, 127, 249, 19, 231, 165, 195, 243, 164, 205, 38, 213, 181, 219, 73, 230,
    65, 36, 152, 127, 40, 251, 148, 195,
];
const FILE_KEY: [u8; 32] = [0; 32];
/// Hashes below a node: at least, unless the list ends, and at most.
const GROUP_MIN: usize = 3;
const GROUP_MAX: usize = 9;

/// A hash of Xet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct XetHash(pub [u8; 32]);

impl XetHash {
    /// Parses 64 hex digits as Xet writes them: four words of eight bytes, the last byte of each first.
    pub fn parse(digits: &str) -> Option<Self> {
        let hash = XetHash(swapped(unhex(digits)?));
        Some(hash).filter(|hash| hash.digits() == digits)
    }

    /// The digits of [`Self::parse`].
    pub fn digits(&self) -> String {
        hex(&swapped(self.0))
    }

    /// The hash of the bytes of a chunk.
    pub fn of_chunk(bytes: &[u8]) -> Self {
        XetHash(*blake3::keyed_hash(&CHUNK_KEY, bytes).as_bytes())
    }

    /// The hash of a term: of the hashes of its chunks.
    pub fn of_term<'a>(chunks: impl Iterator<Item = &'a XetHash>) -> Self {
        let mut hasher = blake3::Hasher::new_keyed(&TERM_KEY);
        chunks.for_each(|chunk| _ = hasher.update(&chunk.0));
        XetHash(*hasher.finalize().as_bytes())
    }

    /// The hash of a file, from the root of the tree above its chunks.
    pub fn of_file(root: XetHash) -> Self {
        XetHash(*blake3::keyed_hash(&FILE_KEY, &root.0).as_bytes())
    }

    /// The SHA-256 that a shard writes as it writes hashes.
    pub(super) fn as_sha256(&self) -> [u8; 32] {
        swapped(self.0)
    }

    /// Whether a node may end with it.
    fn ends_group(&self) -> bool {
        self.0[24].is_multiple_of(4)
    }
}

/// The same bytes, each word of eight backwards.
fn swapped(mut bytes: [u8; 32]) -> [u8; 32] {
    bytes.chunks_exact_mut(8).for_each(<[u8]>::reverse);
    bytes
}

/// A node of the tree: its hash, and the bytes below it.
type TreeNode = (XetHash, u64);

/// The tree above the hashes of chunks, which come one after another. Memory grows with its height alone.
#[derive(Debug, Default)]
pub struct HashTree {
    /// For each height the nodes that have no parent yet.
    levels: Vec<Vec<TreeNode>>,
}

impl HashTree {
    /// Adds the next chunk, of so many bytes.
    pub fn add(&mut self, chunk: XetHash, len: u64) {
        self.add_at(0, (chunk, len));
    }

    fn add_at(&mut self, mut height: usize, mut node: TreeNode) {
        loop {
            if self.levels.len() <= height {
                self.levels.resize_with(height + 1, Vec::new);
            }
            let Some(group) = self.levels.get_mut(height) else { return };
            group.push(node);
            let is_whole = (group.len() >= GROUP_MIN && node.0.ends_group()) || group.len() == GROUP_MAX;
            if !is_whole {
                return;
            }
            node = parent(&std::mem::take(group));
            height += 1;
        }
    }

    /// The root. `None` without chunks.
    pub fn root(mut self) -> Option<XetHash> {
        let mut height = 0;
        loop {
            let group = std::mem::take(self.levels.get_mut(height)?);
            match group.as_slice() {
                [only] if height + 1 == self.levels.len() => return Some(only.0),
                [] => {}
                group => self.add_at(height + 1, parent(group)),
            }
            height += 1;
        }
    }
}

fn parent(nodes: &[TreeNode]) -> TreeNode {
    let lines: String = nodes.iter().map(|(hash, len)| format!("{} : {len}\n", hash.digits())).collect();
    let len = nodes.iter().map(|(_, len)| len).fold(0u64, |sum, len| sum.saturating_add(*len));
    (XetHash(*blake3::keyed_hash(&NODE_KEY, lines.as_bytes()).as_bytes()), len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_words_backwards() {
        let bytes: Vec<u8> = (0..32).collect();
        let hash = XetHash(bytes.try_into().unwrap());
        let digits = "07060504030201000f0e0d0c0b0a090817161514131211101f1e1d1c1b1a1918";
        assert_eq!((hash.digits().as_str(), XetHash::parse(digits)), (digits, Some(hash)));
        for wrong in ["", &digits[1..], &digits.to_uppercase(), &digits.replace('0', "x")] {
            assert_eq!(XetHash::parse(wrong), None);
        }
    }

    /// The rule as the protocol has it: all nodes of a height, then all of the next.
    fn root_of(mut nodes: Vec<TreeNode>) -> Option<XetHash> {
        while nodes.len() > 1 {
            let (mut next, mut rest) = (Vec::new(), nodes.as_slice());
            while !rest.is_empty() {
                let end = rest.len().min(GROUP_MAX);
                let cut = (GROUP_MIN - 1..end).find(|at| rest[*at].0.ends_group()).map_or(end, |at| at + 1);
                next.push(parent(&rest[..cut]));
                rest = &rest[cut..];
            }
            nodes = next;
        }
        nodes.first().map(|node| node.0)
    }

    #[test]
    fn the_tree_is_that_of_the_whole_list() {
        for count in (0..300).chain([1000, 8192]) {
            for seed in 0..3u64 {
                let nodes: Vec<TreeNode> = (0..count as u64)
                    .map(|at| (XetHash::of_chunk(&(at * 7 + seed).to_le_bytes()), 10_000 + at))
                    .collect();
                let mut tree = HashTree::default();
                nodes.iter().for_each(|(hash, len)| tree.add(*hash, *len));
                assert!(tree.levels.iter().all(|level| level.len() < GROUP_MAX));
                assert_eq!(tree.root(), root_of(nodes), "{count} {seed}");
            }
        }
        // Nodes that all end a group, and nodes that never do.
        for byte in [0, 1] {
            for count in 0..100u64 {
                let nodes = vec![(XetHash([byte; 32]), 5); count as usize];
                let mut tree = HashTree::default();
                nodes.iter().for_each(|(hash, len)| tree.add(*hash, *len));
                assert_eq!(tree.root(), root_of(nodes), "{byte} {count}");
            }
        }
    }
}
