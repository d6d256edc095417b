//! Counts of the entries below a directory.

use super::{Node, NodeKind};

/// Entries that were saved.
#[derive(Debug, Clone, Copy, Default)]
pub struct EntryTally {
    /// Regular files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Other entries.
    pub others: u64,
    /// Bytes of content.
    pub bytes: u64,
}

impl EntryTally {
    /// An entry that is no directory.
    pub fn of(node: &Node) -> Self {
        match node.kind {
            NodeKind::File => EntryTally { files: 1, bytes: node.size, ..EntryTally::default() },
            _ => EntryTally { others: 1, ..EntryTally::default() },
        }
    }

    /// Adds others. No number is large enough for some trees.
    pub fn add(&mut self, other: EntryTally) {
        self.files = self.files.saturating_add(other.files);
        self.directories = self.directories.saturating_add(other.directories);
        self.others = self.others.saturating_add(other.others);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    /// What came since `before`.
    pub fn since(self, before: EntryTally) -> EntryTally {
        EntryTally {
            files: self.files.saturating_sub(before.files),
            directories: self.directories.saturating_sub(before.directories),
            others: self.others.saturating_sub(before.others),
            bytes: self.bytes.saturating_sub(before.bytes),
        }
    }
}
