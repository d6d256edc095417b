//! Finds the entry of a snapshot that becomes the root of a restore.

use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use crate::error::{Error, Result};
use crate::repo::read::ChunkReader;
use crate::repo::recipe::ContentReference;
use crate::repo::snapshot::Snapshot;
use crate::repo::tree::{Node, NodeKind, TreeCursor};

/// The root of a restore.
#[derive(Debug, Clone)]
pub struct RestoreRoot {
    /// Its listing.
    pub listing: Option<ContentReference>,
    /// Its metadata, if the snapshot has it.
    pub node: Option<Node>,
    /// The only entry to restore, if no directory was asked for.
    pub only: Option<PathBuf>,
    /// Whether an entry without file flags had none. If not, its flags are not known, and stay as they are.
    pub records_flags: bool,
}

impl RestoreRoot {
    /// The root of `snapshot`, or the directory at `path` in it. A file's directory is its base.
    ///
    /// # Errors
    /// [`Error::Usage`] if the snapshot has no such entry. Errors of reading its listings.
    pub fn find(snapshot: &Snapshot, path: Option<&Path>, reader: &mut ChunkReader) -> Result<RestoreRoot> {
        let records_flags = snapshot.records_flags();
        let node = snapshot.root_node.clone();
        let mut base = RestoreRoot { listing: snapshot.root, node, only: None, records_flags };
        let missing = |path: &Path| Error::Usage(format!("the snapshot has no entry {}", path.display()));
        let path = path.unwrap_or(Path::new(""));
        for component in path.components() {
            let name = match component {
                Component::Normal(name) => name,
                Component::RootDir | Component::CurDir => continue,
                _ => return Err(missing(path)),
            };
            if base.only.is_some() {
                return Err(missing(path));
            }
            let mut cursor = TreeCursor::open(base.listing);
            let found = loop {
                match cursor.next(reader)? {
                    Some(node) if node.name.as_slice() < name.as_bytes() => {}
                    found => break found.filter(|node| node.name == name.as_bytes()),
                }
            };
            let node = found.ok_or_else(|| missing(path))?;
            base = match node.kind {
                NodeKind::Directory => RestoreRoot { listing: node.content, node: Some(node), ..base },
                _ => RestoreRoot { only: Some(name.into()), node: None, ..base },
            };
        }
        base.node = base.node.map(|node| with_known_flags(node, records_flags));
        Ok(base)
    }
}

/// A node that says itself whether its file flags are known. Its snapshot records flags, or does not.
pub fn with_known_flags(mut node: Node, records_flags: bool) -> Node {
    if !records_flags {
        node.forget_absent_flags();
    }
    node
}
