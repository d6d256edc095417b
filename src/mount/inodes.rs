//! Inodes that the driver holds. Their numbers are hashes of where they are, so they stay the same.

use std::collections::HashMap;

use super::ROOT;
use crate::repo::tree::Node;

/// Where an inode is: its directory and its name there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct InodePath {
    /// Inode of the directory.
    pub parent: u64,
    /// Name in it.
    pub name: Box<[u8]>,
}

struct HeldInode {
    path: InodePath,
    references: u64,
}

/// The table of inodes that the driver holds, and of the directories above them.
#[derive(Default)]
pub(super) struct HeldInodes {
    held: HashMap<u64, HeldInode>,
}

/// The number of an entry. The names of one file in a tree share it: the driver keeps bytes by it, so their content
/// must be equal. `tree` is the inode of the tree's root.
pub(super) fn number(tree: u64, parent: u64, node: &Node, name: &[u8]) -> u64 {
    let mut hasher = blake3::Hasher::new();
    match node.file_digest() {
        Some(file) => {
            hasher.update(b"link");
            hasher.update(&tree.to_le_bytes());
            hasher.update(&file);
        }
        None => {
            hasher.update(b"name");
            hasher.update(&parent.to_le_bytes());
            hasher.update(name);
        }
    }
    let [a, b, c, d, e, f, g, h, ..] = *hasher.finalize().as_bytes();
    // 0 is no inode, and 1 is the root.
    u64::from_le_bytes([a, b, c, d, e, f, g, h]).max(ROOT + 1)
}

impl HeldInodes {
    /// Adds a reference. A new inode holds its directory.
    pub(super) fn hold(&mut self, number: u64, path: InodePath) {
        let parent = path.parent;
        let held = self.held.entry(number).or_insert(HeldInode { path, references: 0 });
        held.references += 1;
        if held.references == 1
            && let Some(parent) = self.held.get_mut(&parent)
        {
            parent.references += 1;
        }
    }

    /// Drops references. The last one removes the inode, and its reference to its directory.
    pub(super) fn forget(&mut self, mut number: u64, mut references: u64) {
        while let Some(held) = self.held.get_mut(&number) {
            held.references = held.references.saturating_sub(references);
            if held.references > 0 {
                return;
            }
            let Some(held) = self.held.remove(&number) else { return };
            (number, references) = (held.path.parent, 1);
        }
    }

    /// Where an inode is.
    pub(super) fn path(&self, number: u64) -> Option<InodePath> {
        self.held.get(&number).map(|held| held.path.clone())
    }

    /// Number of inodes held.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repo::tree::{FileIdentity, Timestamp};

    #[test]
    fn a_directory_is_held_as_long_as_what_is_in_it() {
        let path = |parent: u64, name: &str| InodePath { parent, name: name.as_bytes().into() };
        let mut inodes = HeldInodes::default();
        inodes.hold(10, path(ROOT, "a"));
        inodes.hold(11, path(10, "b"));
        inodes.hold(11, path(10, "b"));
        inodes.forget(10, 1);
        assert_eq!(inodes.path(10), Some(path(ROOT, "a")), "b needs it");
        inodes.forget(11, 1);
        assert_eq!(inodes.len(), 2);
        inodes.forget(11, 1);
        assert_eq!(inodes.len(), 0);
        inodes.forget(11, 5);
    }

    #[test]
    fn numbers_differ_by_name_and_agree_for_names_of_one_file() {
        let link = |inode| Node { hard_link: Some(FileIdentity { device: 1, inode }), ..Node::default() };
        let other = Node { mtime: Timestamp { seconds: 1, nanoseconds: 0 }, ..link(7) };
        let plain = Node::default();
        assert_eq!(number(2, 3, &plain, b"a"), number(9, 3, &plain, b"a"));
        assert_ne!(number(2, 3, &plain, b"a"), number(2, 3, &plain, b"b"));
        assert_ne!(number(2, 3, &plain, b"a"), number(2, 4, &plain, b"a"));
        assert_eq!(number(2, 3, &link(7), b"a"), number(2, 4, &link(7), b"b"));
        assert_ne!(number(2, 3, &link(7), b"a"), number(5, 3, &link(7), b"a"), "of another snapshot");
        assert_ne!(number(2, 3, &link(7), b"a"), number(2, 3, &other, b"b"), "of another file");
    }
}
