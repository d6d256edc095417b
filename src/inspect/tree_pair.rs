//! Walks two trees side by side, in order of names, and skips what the visitor knows to be equal.
//!
//! Memory holds one listing chunk of each open directory on each side. A visitor that does not enter directories of
//! equal content makes the walk cost by the difference of the trees, not by their size.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::error::{Error, Result};
use crate::repo::read::ChunkReader;
use crate::repo::recipe::ContentReference;
use crate::repo::tree::{Node, NodeKind, TreeCursor};

/// The entries of one path in both trees.
#[derive(Debug, Clone, Copy)]
pub enum PairedNodes<'a> {
    /// Only the first tree has it.
    First(&'a Node),
    /// Only the second tree has it.
    Second(&'a Node),
    /// Both have it.
    Both(&'a Node, &'a Node),
}

impl<'a> PairedNodes<'a> {
    /// The pair of two entries, if there is any.
    pub fn of(first: Option<&'a Node>, second: Option<&'a Node>) -> Option<Self> {
        match (first, second) {
            (Some(first), Some(second)) => Some(PairedNodes::Both(first, second)),
            (Some(first), None) => Some(PairedNodes::First(first)),
            (None, Some(second)) => Some(PairedNodes::Second(second)),
            (None, None) => None,
        }
    }

    /// Listings of the two, as far as they are directories.
    pub fn listings(self) -> [Option<ContentReference>; 2] {
        let of = |node: &Node| node.content.filter(|_| node.kind == NodeKind::Directory);
        match self {
            PairedNodes::First(first) => [of(first), None],
            PairedNodes::Second(second) => [None, of(second)],
            PairedNodes::Both(first, second) => [of(first), of(second)],
        }
    }
}

/// What a walk reports to.
pub trait PairVisitor {
    /// Visits a path. The walk enters its directories only if this returns `true`.
    ///
    /// # Errors
    /// Any error ends the walk.
    fn visit(&mut self, path: &Path, pair: PairedNodes<'_>) -> Result<bool>;

    /// Called at the end of a directory that was entered, with the listings of both sides.
    fn leave(&mut self, _listings: [Option<ContentReference>; 2]) {}

    /// Called when a directory of the pair at `path` cannot be read. The rest of both directories is skipped.
    ///
    /// # Errors
    /// Any error ends the walk.
    fn unreadable(&mut self, path: &Path, error: Error) -> Result<()>;

    /// Whether the second directory of a pair says nothing without the first. If not, the walk goes on with it where
    /// the first one cannot be read.
    fn needs_first(&self) -> bool {
        true
    }
}

/// `read`, or nothing if it failed because stored data cannot be read and the walk goes on without.
fn or_nothing<T>(read: Result<T>, goes_on: bool, nothing: T) -> Result<T> {
    match read {
        Err(error) if goes_on && error.is_unreadable() => {
            tracing::debug!("{error}");
            Ok(nothing)
        }
        read => read,
    }
}

/// A cursor that shows its next node.
struct PeekedCursor {
    cursor: TreeCursor,
    next: Option<Node>,
}

impl PeekedCursor {
    fn open(content: Option<ContentReference>, reader: &mut ChunkReader) -> Result<Self> {
        let mut cursor = TreeCursor::open(content);
        let next = cursor.next(reader)?;
        Ok(PeekedCursor { cursor, next })
    }

    fn take(&mut self, reader: &mut ChunkReader) -> Result<Option<Node>> {
        let next = self.cursor.next(reader)?;
        Ok(std::mem::replace(&mut self.next, next))
    }
}

/// One directory of both trees.
struct PairedDirectory {
    first: PeekedCursor,
    second: PeekedCursor,
    listings: [Option<ContentReference>; 2],
    /// Whether the second one is walked although the first cannot be read.
    goes_on: bool,
}

impl PairedDirectory {
    fn open(listings: [Option<ContentReference>; 2], goes_on: bool, reader: &mut ChunkReader) -> Result<Self> {
        let [first, second] = listings;
        let nothing = PeekedCursor { cursor: TreeCursor::open(None), next: None };
        let first = or_nothing(PeekedCursor::open(first, reader), goes_on, nothing)?;
        Ok(PairedDirectory { first, second: PeekedCursor::open(second, reader)?, listings, goes_on })
    }

    /// The entries of the next name.
    fn next(&mut self, reader: &mut ChunkReader) -> Result<(Option<Node>, Option<Node>)> {
        let name = |cursor: &PeekedCursor| cursor.next.as_ref().map(|node| node.name.clone());
        let (first, second) = match (name(&self.first), name(&self.second)) {
            (Some(first), Some(second)) => (first <= second, second <= first),
            (first, second) => (first.is_some(), second.is_some()),
        };
        let first = match first {
            true => {
                let current = self.first.next.clone();
                let taken = self.first.take(reader);
                if self.goes_on && taken.is_err() {
                    self.first.next = None;
                }
                or_nothing(taken, self.goes_on, current)?
            }
            false => None,
        };
        let second = if second { self.second.take(reader)? } else { None };
        Ok((first, second))
    }
}

/// Walks the trees with these listings. `path` is the path of both roots.
///
/// # Errors
/// Errors of `visitor`, and of reading for a reason other than damage.
pub fn walk_pair(
    reader: &mut ChunkReader,
    listings: [Option<ContentReference>; 2],
    path: &Path,
    visitor: &mut dyn PairVisitor,
) -> Result<()> {
    let mut path = path.to_path_buf();
    let mut levels = Vec::new();
    open(reader, listings, &path, visitor, &mut levels)?;
    while let Some(level) = levels.last_mut() {
        let (first, second) = match level.next(reader) {
            Ok(nodes) => nodes,
            Err(error) if error.is_unreadable() => {
                visitor.unreadable(&path, error)?;
                (None, None)
            }
            Err(error) => return Err(error),
        };
        let Some(pair) = PairedNodes::of(first.as_ref(), second.as_ref()) else {
            visitor.leave(level.listings);
            levels.pop();
            path.pop();
            continue;
        };
        let (PairedNodes::First(node) | PairedNodes::Second(node) | PairedNodes::Both(node, _)) = pair;
        path.push(OsStr::from_bytes(&node.name));
        let is_entered = visitor.visit(&path, pair)? && pair.listings().iter().any(Option::is_some);
        if is_entered && !open(reader, pair.listings(), &path, visitor, &mut levels)? {
            visitor.leave(pair.listings());
            path.pop();
        } else if !is_entered {
            path.pop();
        }
    }
    Ok(())
}

/// Opens a directory of both trees, unless one cannot be read. Returns whether it did.
fn open(
    reader: &mut ChunkReader,
    listings: [Option<ContentReference>; 2],
    path: &Path,
    visitor: &mut dyn PairVisitor,
    levels: &mut Vec<PairedDirectory>,
) -> Result<bool> {
    match PairedDirectory::open(listings, !visitor.needs_first(), reader) {
        Ok(level) => levels.push(level),
        Err(error) if error.is_unreadable() => {
            visitor.unreadable(path, error)?;
            return Ok(false);
        }
        Err(error) => return Err(error),
    }
    Ok(true)
}
