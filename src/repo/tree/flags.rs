//! The flags of a file or directory (`lsattr`) and its project (`lsattr -p`).
//!
//! They are stored in the node's `extra` field, under [`FLAGS_KEY`] and [`PROJECT_KEY`], each as a varint. What is zero
//! is not stored. So a node without both has no flags only if its snapshot says that it records flags
//! ([`Snapshot::records_flags`](crate::repo::snapshot::Snapshot::records_flags)). Where that is not so, or the flags of
//! one entry could not be read, the value of [`FLAGS_KEY`] is empty: the flags are not known.

use super::node::Node;
use crate::wire::{WireReader, put_varint};

/// Key of the flags in [`Node::extra`].
pub const FLAGS_KEY: &str = "flags";
/// Key of the project in [`Node::extra`].
pub const PROJECT_KEY: &str = "project";

/// Flags and project of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FileFlags {
    /// The numbers of Linux (`FS_IOC_GETFLAGS`), only [`FileFlags::STORED`].
    pub bits: u32,
    /// Number of the project whose quota counts the entry.
    pub project: u32,
}

impl FileFlags {
    /// `i`: nobody may change it.
    pub const IMMUTABLE: u32 = 0x10;
    /// `a`: it may only grow.
    pub const APPEND_ONLY: u32 = 0x20;
    /// The flags with which nothing more can be done.
    pub const LOCKS: u32 = Self::IMMUTABLE | Self::APPEND_ONLY;
    /// The flags that only root may set, with `j`.
    pub const ONLY_ROOT: u32 = Self::LOCKS | 0x4000;
    /// `c`, `m` and `C`: they count only for what is written later.
    pub const BEFORE_CONTENT: u32 = 0x4 | 0x400 | 0x80_0000;
    /// All that are stored and set, with the letters of `chattr`.
    pub const LETTERS: [(u32, char); 15] = [
        (0x1, 's'),
        (0x2, 'u'),
        (0x4, 'c'),
        (0x8, 'S'),
        (Self::IMMUTABLE, 'i'),
        (Self::APPEND_ONLY, 'a'),
        (0x40, 'd'),
        (0x80, 'A'),
        (0x400, 'm'),
        (0x4000, 'j'),
        (0x8000, 't'),
        (0x1_0000, 'D'),
        (0x2_0000, 'T'),
        (0x80_0000, 'C'),
        (0x2000_0000, 'P'),
    ];
    /// All bits that are stored and set. The others say how the file system stores the entry.
    pub const STORED: u32 = 0x2083_C4FF;

    /// Whether there is nothing to store.
    pub fn is_empty(self) -> bool {
        self == FileFlags::default()
    }

    /// Whether the entry cannot be changed as it is.
    pub fn is_locked(self) -> bool {
        self.bits & Self::LOCKS != 0
    }

    /// The letters of `bits`.
    pub fn letters(bits: u32) -> String {
        Self::LETTERS.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, letter)| letter).collect()
    }
}

impl Node {
    /// The stored flags. Numbers that cannot be read count as none.
    pub fn file_flags(&self) -> FileFlags {
        let number = |key: &str| {
            let bytes = self.extra.get(key)?;
            WireReader::new(key, 0, bytes).varint().ok().and_then(|number| u32::try_from(number).ok())
        };
        let bits = number(FLAGS_KEY).unwrap_or(0) & FileFlags::STORED;
        FileFlags { bits, project: number(PROJECT_KEY).unwrap_or(0) }
    }

    /// Whether it is known which flags the entry has.
    pub fn knows_flags(&self) -> bool {
        self.extra.get(FLAGS_KEY).is_none_or(|bytes| !bytes.is_empty())
    }

    /// Notes that it is not known which flags the entry has, unless it has any.
    pub fn forget_absent_flags(&mut self) {
        if !self.extra.contains_key(FLAGS_KEY) && !self.extra.contains_key(PROJECT_KEY) {
            self.extra.insert(FLAGS_KEY.into(), Vec::new());
        }
    }

    /// Stores flags.
    pub fn set_file_flags(&mut self, flags: FileFlags) {
        for (key, number) in [(FLAGS_KEY, flags.bits & FileFlags::STORED), (PROJECT_KEY, flags.project)] {
            self.extra.remove(key);
            if number != 0 {
                let mut bytes = Vec::new();
                put_varint(&mut bytes, u64::from(number));
                self.extra.insert(key.into(), bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_stored_unless_they_are_zero() {
        assert_eq!(FileFlags::LETTERS.iter().fold(0, |all, (bit, _)| all | bit), FileFlags::STORED);
        let mut node = Node::default();
        node.set_file_flags(FileFlags::default());
        assert_eq!(node, Node::default());
        let flags = FileFlags { bits: FileFlags::IMMUTABLE | 0x40, project: u32::MAX };
        node.set_file_flags(FileFlags { bits: flags.bits | 0x8_0000, ..flags });
        assert_eq!((node.file_flags(), node.extra.len()), (flags, 2));
        assert_eq!(FileFlags::letters(flags.bits), "id");
        node.extra.insert(PROJECT_KEY.into(), vec![0xff; 11]);
        node.extra.insert(FLAGS_KEY.into(), Vec::new());
        assert_eq!(node.file_flags(), FileFlags::default());
    }

    #[test]
    fn flags_that_are_not_known_are_not_taken_for_none() {
        let mut node = Node::default();
        assert!(node.knows_flags());
        node.forget_absent_flags();
        assert!(!node.knows_flags() && node.file_flags().is_empty());
        node.set_file_flags(FileFlags::default());
        assert!(node.knows_flags());
        let flags = FileFlags { bits: 0, project: 7 };
        node.set_file_flags(flags);
        node.forget_absent_flags();
        assert!(node.knows_flags() && node.file_flags() == flags, "what is stored is known");
    }
}
