//! Walks the part of a snapshot's tree that a restore was asked for.
//!
//! 1. An entry is chosen if its directory is, or if the selection names it. Patterns may leave it out.
//! 2. A directory that is not chosen is entered only when something below it is: then it is needed as a parent.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::base::{RestoreRoot, with_known_flags};
use crate::error::{Error, Result};
use crate::filesystem::Patterns;
use crate::repo::read::ChunkReader;
use crate::repo::recipe::ContentReference;
use crate::repo::tree::{Node, NodeKind, TreeCursor};

/// The entries of a snapshot to restore. The default is everything.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Entries to restore with all that is below them. Empty: everything.
    pub paths: Vec<PathBuf>,
    /// Of these, only entries that match and what is below them. Empty: all.
    pub include: Patterns,
    /// Entries to leave out, with all that is below them.
    pub exclude: Patterns,
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

/// What a directory hands down to its entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SelectionScope {
    /// The paths name it, or a directory above it.
    is_named: bool,
    /// The patterns include it.
    is_included: bool,
}

impl SelectionScope {
    /// The scope of a directory that is chosen.
    pub const CHOSEN: SelectionScope = SelectionScope { is_named: true, is_included: true };

    /// Whether the directory itself is chosen.
    pub fn is_chosen(self) -> bool {
        self == Self::CHOSEN
    }
}

impl Selection {
    /// Whether it leaves nothing out.
    pub fn is_everything(&self) -> bool {
        self.paths.is_empty() && !self.has_patterns()
    }

    /// Whether patterns may leave entries out of a directory that is chosen.
    pub fn has_patterns(&self) -> bool {
        !self.include.is_empty() || !self.exclude.is_empty()
    }

    /// The scope of the root.
    pub fn root(&self) -> SelectionScope {
        SelectionScope { is_named: self.paths.is_empty(), is_included: self.include.is_empty() }
    }

    /// Decides about the entry at `path` of a directory with the scope `parent`. Returns the scope of its entries, or
    /// `None` if neither it nor anything below it is chosen.
    pub fn enter(&self, parent: SelectionScope, path: &Path, is_directory: bool) -> Option<SelectionScope> {
        let (choice, scope) = self.choice(parent, path, is_directory);
        (choice != TreeChoice::Nothing).then_some(scope)
    }

    fn choice(&self, parent: SelectionScope, path: &Path, is_directory: bool) -> (TreeChoice, SelectionScope) {
        let mut scope = parent;
        scope.is_named |= self.paths.iter().any(|chosen| path.starts_with(chosen));
        if self.has_patterns() {
            // Patterns see the snapshot as a file system of its own.
            let absolute = Path::new("/").join(path);
            if self.exclude.names(&absolute, is_directory) == Some(true) {
                return (TreeChoice::Nothing, scope);
            }
            scope.is_included = self.include.names(&absolute, is_directory).unwrap_or(scope.is_included);
        }
        let may_be_named = || scope.is_named || self.paths.iter().any(|chosen| chosen.starts_with(path));
        match is_directory {
            _ if scope.is_chosen() => (TreeChoice::Chosen, scope),
            true if may_be_named() => (TreeChoice::Below, scope),
            _ => (TreeChoice::Nothing, scope),
        }
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
    scope: SelectionScope,
}

/// The walk.
pub struct ChosenTree {
    selection: Selection,
    levels: Vec<Level>,
    /// Levels that are entered: the first ones.
    entered: usize,
    /// Path of the directory on top.
    path: PathBuf,
    /// An entry whose directories are not all entered.
    held: Option<Node>,
    /// Which paths of the selection were found.
    found: Vec<bool>,
    /// Whether any entry was chosen.
    has_chosen: bool,
    records_flags: bool,
}

impl ChosenTree {
    /// Starts at the root.
    pub fn new(root: &RestoreRoot, selection: Selection) -> Self {
        let (scope, found) = (selection.root(), vec![false; selection.paths.len()]);
        let (levels, path, records_flags) = (Vec::new(), PathBuf::new(), root.records_flags);
        let mut tree =
            ChosenTree { selection, levels, entered: 1, path, held: None, found, has_chosen: false, records_flags };
        tree.descend(None, root.listing, scope);
        tree
    }

    fn descend(&mut self, node: Option<Node>, listing: Option<ContentReference>, scope: SelectionScope) {
        let cursor = TreeCursor::open(listing);
        self.levels.push(Level { cursor, node, scope });
    }

    /// The next step. `None`: the end.
    ///
    /// # Errors
    /// Errors of reading listings, except damage.
    pub fn next(&mut self, reader: &mut ChunkReader) -> Result<Option<TreeStep>> {
        loop {
            if self.held.is_some() {
                match self.levels.get(self.entered) {
                    Some(level) => {
                        self.entered += 1;
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
                Ok(Some(node)) => self.admit(with_known_flags(node, self.records_flags)),
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
        let Some(parent) = self.levels.last().map(|level| level.scope) else { return };
        for (chosen, found) in self.selection.paths.iter().zip(&mut self.found) {
            *found |= *chosen == path;
        }
        let (choice, scope) = self.selection.choice(parent, &path, node.kind == NodeKind::Directory);
        if choice == TreeChoice::Nothing {
            return;
        }
        let is_chosen = choice == TreeChoice::Chosen;
        self.has_chosen |= is_chosen;
        if node.kind == NodeKind::Directory {
            self.path = path;
            self.descend(Some(node.clone()), node.content, scope);
        }
        self.held = is_chosen.then_some(node);
    }

    /// Ends the directory on top. `None` if it was never entered.
    fn leave(&mut self) -> Option<TreeStep> {
        let Level { node, scope, .. } = self.levels.pop()?;
        self.path.pop();
        let is_entered = self.levels.len() < self.entered;
        self.entered = self.entered.min(self.levels.len());
        is_entered.then_some(TreeStep::Leave(Left { node, is_chosen: scope.is_chosen() }))
    }

    /// Skips the directory of the last [`TreeStep::Enter`].
    pub fn skip(&mut self) {
        self.held = None;
        let above = self.entered.saturating_sub(1).max(1);
        while self.levels.len() > above {
            self.levels.pop();
            self.path.pop();
        }
        self.entered = self.entered.min(above);
    }

    /// Whether patterns were given that include nothing. Only known at the end.
    pub fn includes_nothing(&self) -> bool {
        !self.selection.include.is_empty() && !self.has_chosen
    }

    /// Paths of the selection that the snapshot does not have. Only known at the end.
    pub fn missing(&self) -> impl Iterator<Item = &Path> {
        self.selection.paths.iter().zip(&self.found).filter(|(_, found)| !**found).map(|(path, _)| path.as_path())
    }
}
