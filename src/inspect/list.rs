//! List: the entries of a snapshot, depth first, sorted by name.
//!
//! 1. If a path is given, descend to it. Each directory above it is read up to the name.
//! 2. Visit the entry and everything below it. Memory holds one listing chunk of each directory above the current
//!    entry.
//! 3. Where a listing cannot be read, the rest of its directory is skipped, logged and counted.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lru::LruCache;

use crate::error::{Error, Result};
use crate::repo::Repository;
use crate::repo::index::ContainerListing;
use crate::repo::naming::shown_path;
use crate::repo::read::{ChunkReader, at_least_one};
use crate::repo::recipe::ContentReference;
use crate::repo::snapshot::{NamedSnapshot, explain_loss, forgotten, is_forgotten};
use crate::repo::tree::{Node, NodeKind, TreeCursor, find_entry};

/// Entries that one walk may find.
const FOUND_MAX: usize = 1 << 20;
/// Directories without what is looked for that are remembered.
const BARREN_MAX: usize = 1 << 18;

/// How far a listing goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// An entry and, if it is a directory, its entries.
    One,
    /// Everything below an entry.
    All,
}

/// Listings that a walk could not read to their ends. Each is logged.
#[derive(Debug, Default)]
#[must_use = "what was not read is not empty"]
pub struct UnreadListings {
    /// Their number.
    pub count: u64,
    /// Listings that only a newer version can read.
    pub newer: u64,
    /// Why the first one cannot be read.
    pub first: Option<Error>,
}

impl UnreadListings {
    fn add(&mut self, path: &Path, error: Error) {
        tracing::error!("cannot read the rest of {}: {error}", shown_path(path));
        self.count += 1;
        self.newer += u64::from(error.is_newer());
        self.first.get_or_insert(error);
    }
}

/// Calls `visit` with every entry of a snapshot and its path from the snapshot's root, without a leading slash.
///
/// A directory comes before its entries, and names are sorted by their bytes. `path`, with or without a leading slash,
/// restricts the visit to that entry and, as far as `depth` says, the entries below it.
///
/// # Errors
/// Fails with [`Error::NoSuchPath`] if the snapshot has no `path`, with the error of `visit`, or if a listing above
/// `path` cannot be read.
pub fn list(
    repository: &Repository,
    snapshot: &NamedSnapshot,
    path: Option<&Path>,
    depth: Depth,
    visit: &mut dyn FnMut(&Path, &Node) -> Result<()>,
) -> Result<UnreadListings> {
    let listing = Arc::new(ContainerListing::take(&repository.store)?);
    let mut reader = ChunkReader::new(repository, listing);
    let mut is_top = path.is_some();
    walk(&mut reader, snapshot, path, &mut |path, node| {
        visit(path, node)?;
        Ok(std::mem::take(&mut is_top) || depth == Depth::All)
    })
}

/// Like [`list`], with the caller's reader. A directory is entered only if `visit` returns `true`.
///
/// # Errors
/// As for [`list`].
pub fn walk(
    reader: &mut ChunkReader,
    snapshot: &NamedSnapshot,
    path: Option<&Path>,
    visit: &mut dyn FnMut(&Path, &Node) -> Result<bool>,
) -> Result<UnreadListings> {
    let walked = walk_tree(reader, snapshot, path, visit);
    let unread = walked.map_err(|error| explain_loss(reader.store(), [&snapshot.id], error))?;
    match unread.count > 0 && is_forgotten(reader.store(), &snapshot.id)? {
        true => Err(forgotten(&snapshot.id)),
        false => Ok(unread),
    }
}

fn walk_tree(
    reader: &mut ChunkReader,
    snapshot: &NamedSnapshot,
    path: Option<&Path>,
    visit: &mut dyn FnMut(&Path, &Node) -> Result<bool>,
) -> Result<UnreadListings> {
    let (path, node) = match path {
        None => (PathBuf::new(), None),
        Some(path) => find_entry(reader, snapshot, path)?,
    };
    let Some(node) = node else {
        return below(reader, path, snapshot.snapshot.root, visit);
    };
    let is_entered = visit(&path, &node)?;
    match node.kind {
        NodeKind::Directory if is_entered => below(reader, path, node.content, visit),
        _ => Ok(UnreadListings::default()),
    }
}

/// What the visitor of [`walk_finding`] says of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visit {
    /// It is what is looked for.
    Found,
    /// It is not. A directory is entered.
    Other,
    /// It is not, and is not entered.
    Skip,
}

/// Like [`walk`] of a whole tree or of the tree at `path`, to find entries that do not depend on their path. A
/// directory in which there are none is read only once, wherever an equal one is. So the work is bounded by what is
/// found, though few listings can describe a tree of any size.
///
/// # Errors
/// As for [`walk`]. [`Error::Usage`] if more than 2^20 entries are found.
pub fn walk_finding(
    reader: &mut ChunkReader,
    snapshot: &NamedSnapshot,
    path: Option<&Path>,
    visit: &mut dyn FnMut(&Path, &Node) -> Result<Visit>,
) -> Result<()> {
    let walked = walk_tree_finding(reader, snapshot, path, visit);
    walked.map_err(|error| explain_loss(reader.store(), [&snapshot.id], error))
}

fn walk_tree_finding(
    reader: &mut ChunkReader,
    snapshot: &NamedSnapshot,
    path: Option<&Path>,
    visit: &mut dyn FnMut(&Path, &Node) -> Result<Visit>,
) -> Result<()> {
    let mut barren: LruCache<ContentReference, ()> = LruCache::new(at_least_one(BARREN_MAX));
    let (mut path, node) = match path {
        None => (PathBuf::new(), None),
        Some(path) => find_entry(reader, snapshot, path)?,
    };
    let mut found = 0;
    let mut levels: Vec<(TreeCursor, Option<ContentReference>, usize)> = Vec::new();
    let mut next = node;
    let mut is_open = next.is_none();
    if is_open {
        levels.push((TreeCursor::open(snapshot.snapshot.root), None, 0));
    }
    loop {
        if is_open {
            let Some((cursor, content, found_before)) = levels.last_mut() else { return Ok(()) };
            next = cursor.next(reader)?;
            let Some(node) = &next else {
                if let Some(content) = content.filter(|_| *found_before == found) {
                    barren.put(content, ());
                }
                levels.pop();
                path.pop();
                continue;
            };
            path.push(OsStr::from_bytes(&node.name));
        }
        let Some(node) = next.take() else { return Ok(()) };
        is_open = true;
        let said = visit(&path, &node)?;
        found += usize::from(said == Visit::Found);
        if found > FOUND_MAX {
            let message = format!("more than {FOUND_MAX} files have what is looked for: name a path");
            return Err(Error::Usage(message));
        }
        let content = node.content.filter(|_| node.kind == NodeKind::Directory && said != Visit::Skip);
        match content {
            Some(content) if barren.get(&content).is_none() => {
                levels.push((TreeCursor::open(Some(content)), Some(content), found));
            }
            _ => _ = path.pop(),
        }
    }
}

/// Visits everything below the directory `path` with content `content`.
fn below(
    reader: &mut ChunkReader,
    mut path: PathBuf,
    content: Option<ContentReference>,
    visit: &mut dyn FnMut(&Path, &Node) -> Result<bool>,
) -> Result<UnreadListings> {
    let mut unread = UnreadListings::default();
    let mut levels = vec![TreeCursor::open(content)];
    while let Some(cursor) = levels.last_mut() {
        let next = match cursor.next(reader) {
            Err(error) if error.is_unreadable() => {
                unread.add(&path, error);
                None
            }
            next => next?,
        };
        let Some(node) = next else {
            levels.pop();
            path.pop();
            continue;
        };
        path.push(OsStr::from_bytes(&node.name));
        let is_entered = visit(&path, &node)?;
        if node.kind == NodeKind::Directory && is_entered {
            levels.push(TreeCursor::open(node.content));
        } else {
            path.pop();
        }
    }
    Ok(unread)
}
