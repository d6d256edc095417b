//! Finds the entry of a snapshot that becomes the root of a restore.

use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use crate::error::{Error, Result};
use crate::repo::reader::ChunkReader;
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
}

impl RestoreRoot {
    /// The root of `snapshot`, or the directory at `path` in it. A file's directory is its base.
    ///
    /// # Errors
    /// [`Error::Usage`] if the snapshot has no such entry. Those of reading its listings.
    pub fn find(snapshot: &Snapshot, path: Option<&Path>, reader: &mut ChunkReader) -> Result<RestoreRoot> {
        let mut base = RestoreRoot { listing: snapshot.root, node: snapshot.root_node.clone(), only: None };
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
                NodeKind::Directory => RestoreRoot { listing: node.content, node: Some(node), only: None },
                _ => RestoreRoot { only: Some(name.into()), node: None, ..base },
            };
        }
        Ok(base)
    }
}
