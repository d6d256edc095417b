//! Where a parent has the paths that it was made of: a relative path is stored as it was given, an absolute one whole.
//! So the same directory may have one place in the parent and another one in the new snapshot.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::repo::read::ChunkReader;
use crate::repo::recipe::ContentReference;
use crate::repo::snapshot::Snapshot;
use crate::repo::tree::{Node, NodeKind, TreeCursor};

/// Looks into a parent, at most. Each may read a few listings.
const LOOKS_MAX: u32 = 64;

/// The paths that a parent was made of.
pub struct RecordedRoots {
    root: Option<ContentReference>,
    /// Whether the root itself is one of the paths.
    has_root: bool,
    paths: Vec<PathBuf>,
    looks_left: u32,
}

impl RecordedRoots {
    /// The paths of the snapshot `parent`.
    pub fn new(parent: &Snapshot) -> Self {
        let paths = parent.paths.iter().map(|path| PathBuf::from(OsStr::from_bytes(path))).collect();
        RecordedRoots { root: parent.root, has_root: parent.root_node.is_some(), paths, looks_left: LOOKS_MAX }
    }

    /// Whether the parent was made of the absolute `path`.
    pub fn has(&self, path: &Path) -> bool {
        self.paths.iter().any(|recorded| recorded == path)
    }

    /// The parent's entry of the absolute `path`, wherever in its tree it is. If the user did not give this path, it
    /// must be one that the parent was made of.
    pub fn find(&mut self, reader: &mut ChunkReader, path: &Path, is_given: bool) -> Option<Node> {
        let above = |recorded: &&PathBuf| if is_given { path.starts_with(recorded) } else { path == *recorded };
        let depth = self.paths.iter().filter(above).map(|recorded| recorded.components().count()).max()?;
        let names: Vec<&OsStr> = path.iter().collect();
        // The first component is the slash. The whole path comes first.
        for skipped in 1..=depth {
            self.looks_left = self.looks_left.checked_sub(1)?;
            let rest = names.get(skipped..)?;
            if let Some(found) = self.descend(reader, rest) {
                return Some(found);
            }
        }
        None
    }

    /// The entry at this path of the parent's tree.
    fn descend(&self, reader: &mut ChunkReader, names: &[&OsStr]) -> Option<Node> {
        let root = Node { kind: NodeKind::Directory, content: self.root, ..Node::default() };
        if names.is_empty() {
            return self.has_root.then_some(root);
        }
        let mut found = root;
        for name in names {
            if found.kind != NodeKind::Directory {
                return None;
            }
            let mut cursor = TreeCursor::open(found.content);
            loop {
                // A parent that cannot be read has no such entry: it is read again.
                let node = cursor.next(reader).ok()??;
                if node.name.as_slice() >= name.as_bytes() {
                    found = node;
                    break;
                }
            }
            if found.name.as_slice() != name.as_bytes() {
                return None;
            }
        }
        Some(found)
    }
}
