//! Walks the tree of a stored snapshot, depth-first.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::repo::read::ChunkReader;
use crate::repo::recipe::ContentReference;
use crate::repo::tree::{Node, NodeKind, TreeCursor};

/// A step of the walk.
#[derive(Debug)]
pub enum StoredStep {
    /// A directory; its entries follow.
    Enter(Box<Node>),
    /// An entry that is not a directory.
    Entry(Box<Node>),
    /// The end of the directory entered last.
    Leave,
    /// An entry, or the rest of the current directory, cannot be read.
    Unreadable(Error),
}

/// The walk.
pub struct StoredWalk {
    /// Cursors from the root to the current directory, with their listings.
    levels: Vec<(TreeCursor, Option<ContentReference>)>,
    path: PathBuf,
}

impl StoredWalk {
    /// Starts at the listing of the root.
    pub fn new(root: Option<ContentReference>) -> Self {
        StoredWalk { levels: vec![(TreeCursor::open(root), root)], path: PathBuf::new() }
    }

    /// Path of the current directory in the snapshot.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Path of the entry of a step; of the current directory for others.
    pub fn path_of(&self, step: &StoredStep) -> PathBuf {
        match step {
            StoredStep::Entry(node) => self.path.join(OsStr::from_bytes(&node.name)),
            _ => self.path.clone(),
        }
    }

    /// Leaves the directory of the last step, if that is one, as if it had not been there.
    pub fn skip(&mut self, step: &StoredStep) {
        if let StoredStep::Enter(_) = step {
            self.skip_directory();
        }
    }

    /// Leaves the current directory without a step.
    pub fn skip_directory(&mut self) {
        self.levels.pop();
        self.path.pop();
    }

    /// Listing of the current directory.
    pub fn listing(&self) -> Option<ContentReference> {
        self.levels.last().and_then(|level| level.1)
    }

    /// The next step. `None` at the end of the root.
    ///
    /// # Errors
    /// Errors of reading listings, except damage.
    pub fn next(&mut self, reader: &mut ChunkReader) -> Result<Option<StoredStep>> {
        let Some((cursor, _)) = self.levels.last_mut() else { return Ok(None) };
        match cursor.next(reader) {
            Ok(Some(node)) if node.kind == NodeKind::Directory => {
                self.path.push(OsStr::from_bytes(&node.name));
                self.levels.push((TreeCursor::open(node.content), node.content));
                Ok(Some(StoredStep::Enter(Box::new(node))))
            }
            Ok(Some(node)) => Ok(Some(match node.unsupported() {
                Some(error) => StoredStep::Unreadable(error),
                None => StoredStep::Entry(Box::new(node)),
            })),
            Ok(None) => {
                self.levels.pop();
                self.path.pop();
                Ok((!self.levels.is_empty()).then_some(StoredStep::Leave))
            }
            // What vanishes meanwhile may have moved: the run starts again.
            Err(error) if error.is_unreadable() && error.kind() != ErrorKind::NotFound => {
                // Nothing follows.
                *cursor = TreeCursor::open(None);
                Ok(Some(StoredStep::Unreadable(error)))
            }
            Err(error) => Err(error),
        }
    }
}
