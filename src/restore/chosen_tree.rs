//! Walks the part of a snapshot's tree that a restore was asked for.
//!
//! 1. An entry is chosen if its directory is, or if the selection names it.
//! 2. A directory that is not chosen is entered only when something below it is: then it is needed as a parent.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::repo::reader::ChunkReader;
use crate::repo::recipe::ContentReference;
use crate::repo::tree::{Node, NodeKind, TreeCursor};

/// The entries of a snapshot to restore.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Entries to restore with all that is below them. Empty: everything.
    pub paths: Vec<PathBuf>,
}

/// What is restored of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TreeChoice {
    /// It and, unless a rule says otherwise, what is below it.
    Chosen,
    /// Perhaps something below it.
    Below,
    Nothing,
}

impl Selection {
    /// Decides about the entry at `path`. `is_below`: its directory is chosen.
    fn choice(&self, path: &Path, is_below: bool) -> TreeChoice {
        if is_below || self.paths.iter().any(|chosen| path.starts_with(chosen)) {
            return TreeChoice::Chosen;
        }
        if self.paths.iter().any(|chosen| chosen.starts_with(path)) { TreeChoice::Below } else { TreeChoice::Nothing }
    }
}

/// A step of the walk.
#[derive(Debug)]
pub enum TreeStep {
    /// A directory to enter.
    Enter(Node),
    /// An entry that is not a directory.
    Entry(Node),
    /// The end of the directory entered last, or of the root.
    Leave(Left),
    /// The rest of a listing cannot be read.
    Unreadable(Error),
}

/// A directory at its end.
#[derive(Debug)]
pub struct Left {
    /// `None`: the root.
    pub node: Option<Node>,
    /// Whether the directory itself was chosen, not only something below it.
    pub is_chosen: bool,
}

struct Level {
    cursor: TreeCursor,
    node: Option<Node>,
    is_chosen: bool,
    is_entered: bool,
}

/// The walk.
pub struct ChosenTree {
    selection: Selection,
    levels: Vec<Level>,
    /// Path of the directory on top.
    path: PathBuf,
    /// An entry whose directories are not all entered.
    held: Option<Node>,
    /// Which paths of the selection were found.
    found: Vec<bool>,
}

impl ChosenTree {
    /// Starts at the listing of the root.
    pub fn new(root: Option<ContentReference>, selection: Selection) -> Self {
        let is_chosen = selection.paths.is_empty();
        let found = vec![false; selection.paths.len()];
        let mut tree = ChosenTree { selection, levels: Vec::new(), path: PathBuf::new(), held: None, found };
        tree.descend(None, root, is_chosen);
        tree.levels.iter_mut().for_each(|root| root.is_entered = true);
        tree
    }

    fn descend(&mut self, node: Option<Node>, listing: Option<ContentReference>, is_chosen: bool) {
        let cursor = TreeCursor::open(listing);
        self.levels.push(Level { cursor, node, is_chosen, is_entered: false });
    }

    /// The next step. `None`: the end.
    ///
    /// # Errors
    /// Those of reading listings, except damage.
    pub fn next(&mut self, reader: &mut ChunkReader) -> Result<Option<TreeStep>> {
        loop {
            if self.held.is_some() {
                let waiting = self.levels.iter_mut().find(|level| !level.is_entered);
                match waiting {
                    Some(level) => {
                        level.is_entered = true;
                        if let Some(node) = &level.node {
                            return Ok(Some(TreeStep::Enter(node.clone())));
                        }
                        continue;
                    }
                    None => {
                        let held = self.held.take();
                        // A chosen directory is held only to be entered itself.
                        match held.filter(|node| node.kind != NodeKind::Directory) {
                            Some(node) => return Ok(Some(TreeStep::Entry(node))),
                            None => continue,
                        }
                    }
                }
            }
            let Some(level) = self.levels.last_mut() else { return Ok(None) };
            match level.cursor.next(reader) {
                Ok(Some(node)) => self.admit(node),
                Ok(None) => {
                    if let Some(step) = self.leave() {
                        return Ok(Some(step));
                    }
                }
                Err(error) if error.is_unreadable() => {
                    // Nothing follows.
                    level.cursor = TreeCursor::open(None);
                    return Ok(Some(TreeStep::Unreadable(error)));
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn admit(&mut self, node: Node) {
        let path = self.path.join(OsStr::from_bytes(&node.name));
        let is_below = self.levels.last().is_some_and(|level| level.is_chosen);
        for (chosen, found) in self.selection.paths.iter().zip(&mut self.found) {
            *found |= *chosen == path;
        }
        match self.selection.choice(&path, is_below) {
            TreeChoice::Nothing => {}
            TreeChoice::Below if node.kind != NodeKind::Directory => {}
            choice => {
                let is_chosen = choice == TreeChoice::Chosen;
                if node.kind == NodeKind::Directory {
                    self.path = path;
                    self.descend(Some(node.clone()), node.content, is_chosen);
                }
                self.held = is_chosen.then_some(node);
            }
        }
    }

    /// Ends the directory on top. `None` if it was never entered.
    fn leave(&mut self) -> Option<TreeStep> {
        let Level { node, is_chosen, is_entered, .. } = self.levels.pop()?;
        self.path.pop();
        is_entered.then_some(TreeStep::Leave(Left { node, is_chosen }))
    }

    /// Skips the directory of the last [`TreeStep::Enter`].
    pub fn skip(&mut self) {
        self.held = None;
        let entered = self.levels.iter().rposition(|level| level.is_entered).unwrap_or(0);
        while self.levels.len() > entered.max(1) {
            self.levels.pop();
            self.path.pop();
        }
    }

    /// Paths of the selection that the snapshot does not have. Only known at the end.
    pub fn missing(&self) -> impl Iterator<Item = &Path> {
        self.selection.paths.iter().zip(&self.found).filter(|(_, found)| !**found).map(|(path, _)| path.as_path())
    }
}
