//! Finds an entry of a snapshot by its path. Each directory above it is read up to the name.

use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use super::{Node, NodeKind, TreeCursor};
use crate::error::{Error, Result};
use crate::repo::read::ChunkReader;
use crate::repo::recipe::ContentReference;
use crate::repo::snapshot::{NamedSnapshot, explain_loss};

/// Names that a snapshot begins with and that an error shows, at most.
const ROOTS_SHOWN: usize = 4;

/// The entry at `path`, and its path from the root. The root itself has no entry.
///
/// # Errors
/// Fails with [`Error::NoSuchPath`] if there is no entry, or if a listing cannot be read.
pub fn find_entry(reader: &mut ChunkReader, snapshot: &NamedSnapshot, path: &Path) -> Result<(PathBuf, Option<Node>)> {
    let found = find_node(reader, snapshot, path);
    found.map_err(|error| explain_loss(reader.store(), [&snapshot.id], error))
}

fn find_node(reader: &mut ChunkReader, snapshot: &NamedSnapshot, path: &Path) -> Result<(PathBuf, Option<Node>)> {
    let missing_with = |hint: String| {
        let (snapshot, path) = (snapshot.id.to_string(), path.to_string_lossy().into_owned());
        Error::NoSuchPath { snapshot, path, hint }
    };
    let missing = || missing_with(String::new());
    let (mut found, mut node) = (PathBuf::new(), None::<Node>);
    for component in path.components() {
        let name = match component {
            Component::RootDir | Component::CurDir => continue,
            Component::Normal(name) => name,
            Component::ParentDir | Component::Prefix(_) => return Err(missing()),
        };
        let content = match &node {
            None => snapshot.snapshot.root,
            Some(node) if node.kind == NodeKind::Directory => node.content,
            Some(_) => return Err(missing()),
        };
        node = match (child(reader, content, name.as_bytes())?, &node) {
            (Some(child), _) => Some(child),
            (None, Some(_)) => return Err(missing()),
            (None, None) => return Err(missing_with(roots(reader, content)?)),
        };
        found.push(name);
    }
    Ok((found, node))
}

/// Says what a snapshot begins with. A relative path is stored as it was given, so it does not begin with a slash.
fn roots(reader: &mut ChunkReader, root: Option<ContentReference>) -> Result<String> {
    let (mut cursor, mut names) = (TreeCursor::open(root), Vec::new());
    while let Some(node) = cursor.next(reader)? {
        if names.len() == ROOTS_SHOWN {
            names.push("...".into());
            break;
        }
        names.push(format!("`{}`", String::from_utf8_lossy(&node.name)));
    }
    Ok(if names.is_empty() { "; it is empty".into() } else { format!("; its paths begin with {}", names.join(", ")) })
}

/// The entry `name` of the directory with content `content`.
fn child(reader: &mut ChunkReader, content: Option<ContentReference>, name: &[u8]) -> Result<Option<Node>> {
    let mut cursor = TreeCursor::open(content);
    while let Some(node) = cursor.next(reader)? {
        if node.name.as_slice() >= name {
            return Ok(Some(node).filter(|node| node.name == name));
        }
    }
    Ok(None)
}
