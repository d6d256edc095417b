//! Deletes what the snapshot does not have, after everything else of a restore.
//!
//! 1. If the restore had a problem, nothing is deleted.
//! 2. In each directory of the selection, the names in the target are compared with the stored listing. A name that the
//!    listing lacks is deleted, if the listing could be read whole and the backup had stored the whole directory.
//! 3. An entry that the selection leaves out stays. [`Remover`] says what else stays.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::base::RestoreRoot;
use super::chosen_tree::{Selection, SelectionScope};
use super::message::RestoreCounts;
use super::request::RestoreRequest;
use crate::error::{Error, Result};
use crate::filesystem::{Descent, Remover, Target, TargetOptions};
use crate::repo::reader::ChunkReader;
use crate::repo::recipe::ContentReference;
use crate::repo::tree::{Node, NodeKind, TreeCursor};

/// Deleted paths that are reported, at most.
const LISTED_MAX: usize = 1000;

/// Refuses to delete in the root of the file system unless a part of it is chosen.
///
/// # Errors
/// [`Error::Usage`].
pub fn check_deletion(request: &RestoreRequest) -> Result<()> {
    let is_limited = request.base.is_some() || !request.selection.root().is_chosen();
    let is_root = || request.target.canonicalize().is_ok_and(|path| path == Path::new("/"));
    if request.delete && !is_limited && is_root() {
        let what = "--delete below / needs --path or --include: it would delete what was never backed up";
        return Err(Error::Usage(what.into()));
    }
    Ok(())
}

/// Deletes in a target.
pub struct Deletion {
    reader: ChunkReader,
    dry_run: bool,
    decisions: Decisions,
}

/// Decides about single entries, and counts them.
struct Decisions {
    selection: Selection,
    counts: Arc<RestoreCounts>,
    stop: Arc<AtomicBool>,
    listed: Vec<String>,
    /// The directory that is being compared, and its scope.
    directory: PathBuf,
    scope: SelectionScope,
}

/// A directory whose entries are compared.
struct ComparedDirectory {
    node: Node,
    scope: SelectionScope,
    /// Subdirectories that both sides have, the next one last.
    directories: Vec<(Node, SelectionScope)>,
    /// Whether something in it was deleted.
    is_changed: bool,
}

impl Remover for Decisions {
    fn keeps(&mut self, path: &Path, is_directory: bool) -> bool {
        // What is below an entry that goes is chosen with it.
        let is_inside = path.parent() != Some(&self.directory);
        let parent = if is_inside { SelectionScope::CHOSEN } else { self.scope };
        !self.selection.enter(parent, path, is_directory).is_some_and(SelectionScope::is_chosen)
    }

    fn removed(&mut self, path: &Path) {
        tracing::info!("{}: deleted", path.display());
        self.counts.deleted.add(1);
        if self.listed.len() < LISTED_MAX {
            self.listed.push(path.display().to_string());
        }
    }

    fn problem(&mut self, error: Error) {
        self.counts.problem(&error);
    }

    fn check(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }
}

impl Deletion {
    /// Deletes for `request`, whose restore has counted into `counts`.
    pub fn new(
        reader: ChunkReader,
        request: &RestoreRequest,
        counts: Arc<RestoreCounts>,
        stop: Arc<AtomicBool>,
    ) -> Self {
        let (selection, directory) = (request.selection.clone(), PathBuf::new());
        let scope = selection.root();
        let decisions = Decisions { selection, counts, stop, listed: Vec::new(), directory, scope };
        Deletion { reader, dry_run: request.dry_run, decisions }
    }

    /// Compares everything below `base`, and deletes below `root`, which was opened with `options`. Returns the paths.
    ///
    /// # Errors
    /// [`Error::Interrupted`], and those of reading the repository, except damage.
    pub fn run(mut self, base: &RestoreRoot, root: &Target, options: TargetOptions) -> Result<Vec<String>> {
        let counts = self.decisions.counts.clone();
        if counts.problems.get() + counts.damaged.get() > 0 {
            tracing::warn!("nothing is deleted, because something could not be restored");
            return Ok(Vec::new());
        }
        // Opened for a dry run, so that nothing is created.
        let target = Target::create(&root.path_of(Path::new("")), TargetOptions { dry_run: true, ..options })?;
        let mut descent = Descent::new(Arc::new(target));
        let unknown = Node { kind: NodeKind::Directory, partial: true, ..Node::default() };
        let node = Node { content: base.listing, ..base.node.clone().unwrap_or(unknown) };
        let scope = self.decisions.selection.root();
        let mut levels = vec![self.compare(&descent, node, scope)?];
        while let Some(level) = levels.last_mut() {
            self.decisions.check()?;
            if let Some((node, scope)) = level.directories.pop() {
                // Where the target has something else, there is nothing to compare.
                if descent.enter(&node, None).is_ok() {
                    levels.push(self.compare(&descent, node, scope)?);
                }
                continue;
            }
            let Some(level) = levels.pop() else { break };
            let applied = Some(&level.node).filter(|_| level.is_changed && level.scope.is_chosen());
            let mut problems = Vec::new();
            match levels.is_empty() {
                true if level.is_changed => root.finish_root(applied, &mut problems),
                true => {}
                false => problems.extend(descent.leave(applied, &mut Vec::new()).err()),
            }
            problems.iter().for_each(|error| counts.problem(error));
        }
        Ok(self.decisions.listed)
    }

    /// Compares the directory on top of `descent` with its stored listing, and deletes in it.
    fn compare(&mut self, descent: &Descent, node: Node, scope: SelectionScope) -> Result<ComparedDirectory> {
        let mut compared = ComparedDirectory { node, scope, directories: Vec::new(), is_changed: false };
        let names = match descent.names() {
            Ok(names) => names,
            Err(error) => {
                self.decisions.counts.problem(&error);
                return Ok(compared);
            }
        };
        let mut listing = StoredNames::new(compared.node.content);
        let mut missing: Vec<OsString> = Vec::new();
        for name in names {
            let Some(node) = listing.find(&name, &mut self.reader)? else {
                missing.push(name);
                continue;
            };
            if node.kind == NodeKind::Directory {
                let path = descent.path().join(OsStr::from_bytes(&node.name));
                if let Some(scope) = self.decisions.selection.enter(scope, &path, true) {
                    compared.directories.push((node, scope));
                }
            }
        }
        compared.directories.reverse();
        if let Some(error) = listing.finish(&mut self.reader)? {
            self.decisions.counts.unreadable(&error, &descent.path().display().to_string());
            return Ok(compared);
        }
        if compared.node.partial {
            return Ok(compared);
        }
        (self.decisions.scope, self.decisions.directory) = (scope, descent.path().to_path_buf());
        for name in missing {
            let before = self.decisions.counts.deleted.get();
            descent.remove(&name, self.dry_run, &mut self.decisions)?;
            compared.is_changed |= !self.dry_run && self.decisions.counts.deleted.get() > before;
        }
        Ok(compared)
    }
}

/// The names of a stored listing, asked for in ascending order.
struct StoredNames {
    cursor: TreeCursor,
    next: Option<Node>,
    /// Why the rest cannot be read.
    error: Option<Error>,
}

impl StoredNames {
    fn new(listing: Option<ContentReference>) -> Self {
        StoredNames { cursor: TreeCursor::open(listing), next: None, error: None }
    }

    /// Reads the next node. The end, and damage, leave none.
    fn advance(&mut self, reader: &mut ChunkReader) -> Result<()> {
        self.next = match self.cursor.next(reader) {
            Ok(next) => next,
            Err(error) if error.is_unreadable() => {
                (self.cursor, self.error) = (TreeCursor::open(None), Some(error));
                None
            }
            Err(error) => return Err(error),
        };
        Ok(())
    }

    fn find(&mut self, name: &OsStr, reader: &mut ChunkReader) -> Result<Option<Node>> {
        if self.next.is_none() {
            self.advance(reader)?;
        }
        while self.next.as_ref().is_some_and(|node| node.name.as_slice() < name.as_bytes()) {
            self.advance(reader)?;
        }
        Ok(self.next.clone().filter(|node| node.name == name.as_bytes()))
    }

    /// Reads the rest. Returns the damage that was met.
    fn finish(mut self, reader: &mut ChunkReader) -> Result<Option<Error>> {
        self.advance(reader)?;
        while self.next.is_some() {
            self.advance(reader)?;
        }
        Ok(self.error)
    }
}
