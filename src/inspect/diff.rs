//! Diff: what changed from one snapshot, or entry of a snapshot, to another.
//!
//! 1. Both trees are walked side by side. Directories of equal content are not entered.
//! 2. A file that both have is compared by the reference to its content, and by its metadata. If one of the two is
//!    rebuilt from other content, the hash of the other one decides.
//! 3. The bytes of a changed file count by chunk: recipes that both versions share are not read.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

use super::tree_pair::{PairVisitor, PairedNodes, walk_pair};
use crate::error::{Error, Result};
use crate::repo::Repository;
use crate::repo::index::ContainerListing;
use crate::repo::naming::shown_path;
use crate::repo::read::ChunkReader;
use crate::repo::recipe::{ContentReference, decode_recipe};
use crate::repo::snapshot::{NamedSnapshot, explain_loss};
use crate::repo::tree::{Node, NodeKind, find_entry};
use crate::types::Fingerprint;

/// References of a changed file that are compared. The bytes of the others count as changed.
const REFERENCES_MAX: usize = 1 << 20;

/// How an entry changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Only the second tree has it.
    Added,
    /// Only the first tree has it.
    Removed,
    /// The content of a file, the target of a link or the number of a device changed.
    Content,
    /// Only permissions, owner, time of modification or extended attributes changed.
    Metadata,
    /// It is of another kind.
    Kind,
}

/// A path that changed.
#[derive(Debug, Clone, Copy)]
pub struct ChangedEntry<'a> {
    /// Path: from the roots that were compared.
    pub path: &'a Path,
    /// How it changed.
    pub change: Change,
    /// Entry of the first tree.
    pub before: Option<&'a Node>,
    /// Entry of the second tree.
    pub after: Option<&'a Node>,
}

/// Number of entries of one kind by change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ChangeCounts {
    /// Entries of the second tree only.
    pub added: u64,
    /// Entries of the first tree only.
    pub removed: u64,
    /// Entries with other content or of another kind.
    pub changed: u64,
    /// Entries with other metadata only.
    pub metadata: u64,
}

/// Summary of a comparison.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct DiffSummary {
    /// Regular files.
    pub files: ChangeCounts,
    /// Directories.
    pub directories: ChangeCounts,
    /// Links and special files.
    pub others: ChangeCounts,
    /// Bytes of added files, and of the chunks that only the new version of a changed file has.
    pub bytes_added: u64,
    /// Bytes of removed files, and of the chunks that only the old version of a changed file has.
    pub bytes_removed: u64,
    /// Directories and files that could not be compared because of damage. Each one was logged.
    pub unreadable: u64,
    /// Unreadable ones that only a newer version can read.
    #[serde(skip)]
    pub newer: u64,
}

/// A snapshot, or an entry of one.
#[derive(Debug, Clone)]
pub struct DiffSide {
    /// The snapshot.
    pub snapshot: NamedSnapshot,
    /// Path of the entry. `None` for the whole tree.
    pub path: Option<PathBuf>,
}

/// Compares two sides and calls `visit` with every change, in order of paths.
///
/// # Errors
/// [`Error::NoSuchPath`]; [`Error::Interrupted`] once `stop` is set; errors of `visit`.
pub fn diff(
    repository: &Repository,
    sides: [&DiffSide; 2],
    stop: &AtomicBool,
    visit: &mut dyn FnMut(ChangedEntry<'_>) -> Result<()>,
) -> Result<DiffSummary> {
    let listing = Arc::new(ContainerListing::take(&repository.store)?);
    let mut reader = ChunkReader::new(repository, listing.clone());
    // Recipes of changed files are read while the walk is in progress.
    let recipes = ChunkReader::new(repository, listing);
    let ids = sides.map(|side| &side.snapshot.id);
    let [first, second] = [side(&mut reader, sides[0])?, side(&mut reader, sides[1])?];
    let mut visitor = DiffVisitor { recipes, stop, visit, summary: DiffSummary::default() };
    let pair = PairedNodes::of(first.entry.as_ref(), second.entry.as_ref());
    let is_directory = |root: &DiffRoot| root.entry.as_ref().is_none_or(|node| node.kind == NodeKind::Directory);
    match pair {
        Some(pair) if !is_directory(&first) || !is_directory(&second) => {
            let path = sides[1].path.clone().unwrap_or_default();
            visitor.visit(&path, pair)?;
        }
        _ if first.listing == second.listing => {}
        _ => {
            let walked = walk_pair(&mut reader, [first.listing, second.listing], Path::new(""), &mut visitor);
            walked.map_err(|error| explain_loss(repository.store.as_ref(), ids, error))?;
        }
    }
    Ok(visitor.summary)
}

/// Where the comparison of one side starts.
struct DiffRoot {
    /// `None` for the root of a snapshot.
    entry: Option<Node>,
    listing: Option<ContentReference>,
}

fn side(reader: &mut ChunkReader, side: &DiffSide) -> Result<DiffRoot> {
    let entry = match &side.path {
        None => None,
        Some(path) => find_entry(reader, &side.snapshot, path)?.1,
    };
    let listing = match &entry {
        None => side.snapshot.snapshot.root,
        Some(node) => node.content.filter(|_| node.kind == NodeKind::Directory),
    };
    Ok(DiffRoot { entry, listing })
}

struct DiffVisitor<'a> {
    recipes: ChunkReader,
    stop: &'a AtomicBool,
    visit: &'a mut dyn FnMut(ChangedEntry<'_>) -> Result<()>,
    summary: DiffSummary,
}

impl DiffVisitor<'_> {
    fn count(&mut self, kind: NodeKind, change: Change) {
        let counts = match kind {
            NodeKind::File => &mut self.summary.files,
            NodeKind::Directory => &mut self.summary.directories,
            _ => &mut self.summary.others,
        };
        match change {
            Change::Added => counts.added += 1,
            Change::Removed => counts.removed += 1,
            Change::Content | Change::Kind => counts.changed += 1,
            Change::Metadata => counts.metadata += 1,
        }
    }

    /// Whether two files have the same bytes, or two other entries the same reference.
    fn is_same_content(&mut self, before: &Node, after: &Node) -> Result<bool> {
        let (Some(first), Some(second)) = (before.content, after.content) else {
            return Ok(before.content == after.content);
        };
        if first == second || before.size != after.size {
            return Ok(first == second);
        }
        let stop = self.stop;
        let check = || if stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) };
        match (first.rebuilt(), second.rebuilt()) {
            (None, None) => Ok(false),
            (Some(first), Some(second)) => Ok(first.hash == second.hash),
            (Some(rebuilt), None) => Ok(self.recipes.hash(second, check)? == rebuilt.hash),
            (None, Some(rebuilt)) => Ok(self.recipes.hash(first, check)? == rebuilt.hash),
        }
    }

    fn content(&mut self, path: &Path, before: &Node, after: &Node) -> Result<()> {
        match changed_bytes(&mut self.recipes, [before.content, after.content]) {
            Ok([removed, added]) => {
                self.summary.bytes_removed = self.summary.bytes_removed.saturating_add(removed);
                self.summary.bytes_added = self.summary.bytes_added.saturating_add(added);
                Ok(())
            }
            Err(error) if error.is_unreadable() => self.unreadable(path, error),
            Err(error) => Err(error),
        }
    }
}

impl PairVisitor for DiffVisitor<'_> {
    fn visit(&mut self, path: &Path, pair: PairedNodes<'_>) -> Result<bool> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        let is_file = |node: &Node| node.kind == NodeKind::File;
        let (before, after, change) = match pair {
            PairedNodes::First(node) => (Some(node), None, Some(Change::Removed)),
            PairedNodes::Second(node) => (None, Some(node), Some(Change::Added)),
            PairedNodes::Both(before, after) => {
                let is_same = match self.is_same_content(before, after) {
                    Err(error) if error.is_unreadable() => {
                        self.unreadable(path, error)?;
                        false
                    }
                    is_same => is_same?,
                };
                (Some(before), Some(after), change(before, after, is_same))
            }
        };
        if let Some(change) = change {
            match (before, after) {
                (Some(before), Some(after)) if is_file(before) && is_file(after) => {
                    if change == Change::Content {
                        self.content(path, before, after)?;
                    }
                }
                (before, after) => {
                    let size = |node: Option<&Node>| node.filter(|node| is_file(node)).map_or(0, |node| node.size);
                    self.summary.bytes_removed = self.summary.bytes_removed.saturating_add(size(before));
                    self.summary.bytes_added = self.summary.bytes_added.saturating_add(size(after));
                }
            }
            self.count(after.or(before).map_or(NodeKind::File, |node| node.kind), change);
            (self.visit)(ChangedEntry { path, change, before, after })?;
        }
        let [before, after] = pair.listings();
        Ok(before != after)
    }

    fn unreadable(&mut self, path: &Path, error: Error) -> Result<()> {
        tracing::error!("cannot compare {}: {error}", shown_path(path));
        self.summary.unreadable += 1;
        self.summary.newer += u64::from(error.is_newer());
        Ok(())
    }
}

/// How the entry changed, if it did. Times of access and of the inode do not count, nor does the inode's number.
fn change(before: &Node, after: &Node, is_same: bool) -> Option<Change> {
    if before.kind != after.kind {
        return Some(Change::Kind);
    }
    let is_same_content = before.size == after.size
        && (before.kind == NodeKind::Directory || is_same)
        && before.link_target == after.link_target
        && before.device_number == after.device_number;
    if !is_same_content {
        return Some(Change::Content);
    }
    let is_same_metadata = before.mode == after.mode
        && (before.uid, before.gid) == (after.uid, after.gid)
        && (&before.user, &before.group) == (&after.user, &after.group)
        && before.mtime == after.mtime
        && (before.file_flags() == after.file_flags() || !before.knows_flags() || !after.knows_flags())
        && before.xattrs == after.xattrs;
    (!is_same_metadata).then_some(Change::Metadata)
}

/// Bytes of chunks and holes that only the first content has, and of those that only the second has.
fn changed_bytes(reader: &mut ChunkReader, references: [Option<ContentReference>; 2]) -> Result<[u64; 2]> {
    let mut sides: [Vec<ContentReference>; 2] = references.map(|content| content.into_iter().collect());
    // Of two contents that are rebuilt, the plain contents say what changed.
    if references.iter().flatten().all(|content| content.rebuilt().is_some()) {
        sides = references.map(|content| content.map(ContentReference::stored_parts).unwrap_or_default());
    }
    loop {
        remove_common(&mut sides);
        let level = |reference: &ContentReference| match reference {
            ContentReference::Recipe { level, .. } => *level,
            _ => 0,
        };
        let deepest = sides.iter().flatten().map(level).max().unwrap_or(0);
        if deepest == 0 || sides.iter().any(|side| side.len() > REFERENCES_MAX) {
            let sum = |side: &Vec<ContentReference>| {
                side.iter().map(ContentReference::content_len).fold(0, u64::saturating_add)
            };
            return Ok([sum(&sides[0]), sum(&sides[1])]);
        }
        // Only recipes of the highest level are read, so that recipes of one level meet in the comparison.
        for side in &mut sides {
            let mut expanded = Vec::with_capacity(side.len());
            for reference in side.drain(..) {
                match reference {
                    ContentReference::Recipe { level, fingerprint, len }
                        if level == deepest && expanded.len() <= REFERENCES_MAX =>
                    {
                        expanded.extend(decode_recipe(&fingerprint, level, len, &reader.read(&fingerprint)?)?);
                    }
                    other => expanded.push(other),
                }
            }
            *side = expanded;
        }
    }
}

/// Removes the references that both sides have, as often as both have them.
fn remove_common(sides: &mut [Vec<ContentReference>; 2]) {
    let [first, second] = sides;
    let mut counts: HashMap<(Option<Fingerprint>, u64), usize> = HashMap::new();
    let key = |reference: &ContentReference| (reference.fingerprint(), reference.content_len());
    second.iter().for_each(|reference| *counts.entry(key(reference)).or_default() += 1);
    let mut common: HashMap<(Option<Fingerprint>, u64), usize> = HashMap::new();
    first.retain(|reference| match counts.get_mut(&key(reference)) {
        Some(count) if *count > 0 => {
            *count -= 1;
            *common.entry(key(reference)).or_default() += 1;
            false
        }
        _ => true,
    });
    second.retain(|reference| match common.get_mut(&key(reference)) {
        Some(count) if *count > 0 => {
            *count -= 1;
            false
        }
        _ => true,
    });
}
