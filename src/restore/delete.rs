//! Deletes what the snapshot does not have, after everything else of a restore.
//!
//! 1. If the restore had a problem, nothing is deleted.
//! 2. In each directory of the selection, the names in the target are compared with the stored listing. A name that the
//!    listing lacks is deleted, if the listing could be read whole and the backup had stored the whole directory.
//! 3. A file system that ignores case, or normalises names, may list a restored entry under another name than the
//!    stored one. So an entry stays if a stored name that the directory does not list reaches it.
//! 4. An entry that the selection leaves out stays. [`Remover`] says what else stays.
//! 5. An entry that was immutable or append-only goes, too, with a warning that names it.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::base::{RestoreRoot, with_known_flags};
use super::chosen_tree::{Selection, SelectionScope};
use super::message::RestoreCounts;
use super::request::RestoreRequest;
use crate::error::{Error, Result};
use crate::filesystem::{Descent, Remover, Target, TargetNotes, TargetOptions};
use crate::repo::read::ChunkReader;
use crate::repo::recipe::ContentReference;
use crate::repo::tree::{FileIdentity, Node, NodeKind, TreeCursor};

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
    records_flags: bool,
    decisions: Decisions,
    /// Directories that were stored in part and have other entries, and the number of these.
    spared: (u64, u64),
}

/// Decides about single entries, and counts them.
struct Decisions {
    selection: Selection,
    counts: Arc<RestoreCounts>,
    notes: Arc<TargetNotes>,
    dry_run: bool,
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
        tracing::info!("{}: {}", path.display(), if self.dry_run { "would be deleted" } else { "deleted" });
        self.counts.deleted.add(1);
        if self.listed.len() < LISTED_MAX {
            self.listed.push(path.display().to_string());
        }
    }

    fn unlocked(&mut self, path: &Path) {
        let what = if self.dry_run { "would be deleted" } else { "deleted" };
        self.notes.warn_always(&format!("{}: {what} although it was immutable or append-only", path.display()));
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
        notes: Arc<TargetNotes>,
        stop: Arc<AtomicBool>,
    ) -> Self {
        let (selection, directory) = (request.selection.clone(), PathBuf::new());
        let (scope, dry_run) = (selection.root(), request.dry_run);
        let decisions = Decisions { selection, counts, notes, dry_run, stop, listed: Vec::new(), directory, scope };
        Deletion { reader, records_flags: true, decisions, spared: (0, 0) }
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
        self.records_flags = base.records_flags;
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
        if let (directories @ 1.., entries) = self.spared {
            tracing::warn!(
                "{entries} entries that the snapshot does not have stay, in {directories} directories that were stored in \
                 part: --delete cannot know whether the backup left them out"
            );
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
        let mut listing = StoredNames::new(compared.node.content, self.records_flags);
        let mut spellings = Spellings::default();
        let mut missing: Vec<OsString> = Vec::new();
        for name in names {
            let found = listing.find(&name, &mut self.reader, |unlisted| spellings.add(descent, unlisted))?;
            match found {
                Some(node) => self.descend(&mut compared, descent, node),
                None => missing.push(name),
            }
        }
        let unread = listing.finish(&mut self.reader, |unlisted| spellings.add(descent, unlisted))?;
        spellings.directories.drain(..).for_each(|node| self.descend(&mut compared, descent, node));
        compared.directories.reverse();
        if let Some(error) = unread {
            self.decisions.counts.unreadable(&error, &descent.path().display().to_string());
            return Ok(compared);
        }
        if let Some(error) = spellings.error.take() {
            self.decisions.counts.problem(&error);
            return Ok(compared);
        }
        (self.decisions.scope, self.decisions.directory) = (scope, descent.path().to_path_buf());
        if compared.node.partial {
            self.spare(&missing);
            return Ok(compared);
        }
        for name in missing {
            if spellings.reach(descent, &name) {
                tracing::info!("{}: stays, the snapshot spells it otherwise", descent.path().join(&name).display());
                continue;
            }
            let before = self.decisions.counts.deleted.get();
            descent.remove(&name, self.decisions.dry_run, &mut self.decisions)?;
            compared.is_changed |= !self.decisions.dry_run && self.decisions.counts.deleted.get() > before;
        }
        Ok(compared)
    }

    /// Counts what stays in the current directory because the backup left something of it out.
    fn spare(&mut self, missing: &[OsString]) {
        let directory = self.decisions.directory.clone();
        let stay = missing.iter().filter(|name| !self.decisions.keeps(&directory.join(name), false)).count() as u64;
        if stay > 0 {
            self.spared = (self.spared.0 + 1, self.spared.1 + stay);
            tracing::debug!("{}/: {stay} other entries stay: it was stored in part", directory.display());
        }
    }

    /// Notes a subdirectory that both sides have.
    fn descend(&self, compared: &mut ComparedDirectory, descent: &Descent, node: Node) {
        if node.kind == NodeKind::Directory {
            let path = descent.path().join(OsStr::from_bytes(&node.name));
            if let Some(scope) = self.decisions.selection.enter(compared.scope, &path, true) {
                compared.directories.push((node, scope));
            }
        }
    }
}

/// What stored names reach in a directory of the target that does not list these names.
#[derive(Default)]
struct Spellings {
    reached: BTreeSet<FileIdentity>,
    directories: Vec<Node>,
    /// Why it is not known what a name reaches.
    error: Option<Error>,
}

impl Spellings {
    /// Looks where the name of `node` leads, which the directory on top of `descent` does not list.
    fn add(&mut self, descent: &Descent, node: Node) {
        match descent.identity(&node) {
            Ok(Some(identity)) => {
                self.reached.insert(identity);
                self.directories.extend(Some(node).filter(|node| node.kind == NodeKind::Directory));
            }
            Ok(None) => {}
            Err(error) => self.error = self.error.take().or(Some(error)),
        }
    }

    /// Whether one of the names reaches the entry that is listed as `name`.
    fn reach(&self, descent: &Descent, name: &OsStr) -> bool {
        let listed = Node { name: name.as_bytes().to_vec(), ..Node::default() };
        // What cannot be looked at may be one of them.
        !self.reached.is_empty()
            && descent.identity(&listed).map_or(true, |found| found.is_some_and(|found| self.reached.contains(&found)))
    }
}

/// The names of a stored listing, asked for in ascending order.
struct StoredNames {
    cursor: TreeCursor,
    next: Option<Node>,
    records_flags: bool,
    /// Why the rest cannot be read.
    error: Option<Error>,
}

impl StoredNames {
    fn new(listing: Option<ContentReference>, records_flags: bool) -> Self {
        StoredNames { cursor: TreeCursor::open(listing), next: None, records_flags, error: None }
    }

    /// Reads the next node. The end, and damage, leave none.
    fn advance(&mut self, reader: &mut ChunkReader) -> Result<()> {
        self.next = match self.cursor.next(reader) {
            Ok(next) => next.map(|node| with_known_flags(node, self.records_flags)),
            Err(error) if error.is_unreadable() => {
                (self.cursor, self.error) = (TreeCursor::open(None), Some(error));
                None
            }
            Err(error) => return Err(error),
        };
        Ok(())
    }

    /// Takes the node of `name`, and gives those before it, which nobody has asked for, to `unlisted`.
    fn find(&mut self, name: &OsStr, reader: &mut ChunkReader, mut unlisted: impl FnMut(Node)) -> Result<Option<Node>> {
        loop {
            if self.next.is_none() {
                self.advance(reader)?;
            }
            match self.next.take_if(|node| node.name.as_slice() <= name.as_bytes()) {
                Some(node) if node.name == name.as_bytes() => return Ok(Some(node)),
                Some(node) => unlisted(node),
                None => return Ok(None),
            }
        }
    }

    /// Reads the rest, and gives it to `unlisted`. Returns the damage that was met.
    fn finish(mut self, reader: &mut ChunkReader, mut unlisted: impl FnMut(Node)) -> Result<Option<Error>> {
        loop {
            if self.next.is_none() {
                self.advance(reader)?;
            }
            match self.next.take() {
                Some(node) => unlisted(node),
                None => return Ok(self.error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn an_entry_that_a_stored_name_reaches_stays_whatever_the_directory_calls_it() {
        // A second name that the directory does not list is what a file system that ignores case has.
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("README"), b"restored").unwrap();
        fs::hard_link(path("README"), path("Readme")).unwrap();
        fs::write(path("other"), b"").unwrap();
        fs::create_dir(path("Docs")).unwrap();
        let target = Target::create(directory.path(), TargetOptions::default()).unwrap();
        let descent = Descent::new(Arc::new(target));
        let node = |name: &str, kind| Node { name: name.into(), kind, ..Node::default() };
        let mut spellings = Spellings::default();
        assert!(!spellings.reach(&descent, OsStr::new("README")));
        for node in [node("Readme", NodeKind::File), node("gone", NodeKind::File), node("Docs", NodeKind::Directory)] {
            spellings.add(&descent, node);
        }
        let reached = ["README", "Docs", "other"].map(|name| spellings.reach(&descent, OsStr::new(name)));
        assert_eq!((reached, spellings.directories.len()), ([true, true, false], 1));
        assert!(spellings.error.is_none());
        // A name that leads nowhere is no reason to keep; one that cannot be looked at is one to delete nothing.
        spellings.add(&descent, node("../x", NodeKind::File));
        assert!(spellings.error.is_some());
    }
}
