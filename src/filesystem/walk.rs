//! Walks the source depth-first and reports every entry once, siblings in byte order of their names.
//!
//! 1. The walk starts with the names of the plan. It enters the parents of planned paths by path, following links.
//! 2. A directory to store is opened without following links and must be the one that was captured. All its names are
//!    read and sorted.
//! 3. Each name is captured relative to its open directory, so paths may have any length. No file is opened: its file
//!    flags are not known.
//! 4. Only the deepest directories stay open. A closed one is reopened from below through `..` and must be the same.
//! 5. The user's [`EntryChoice`] is asked for each entry. An excluded directory is not entered.
//! 6. An entry that cannot be read is reported as a problem, and the walk continues. The stack is explicit.

use super::capture::{Capturer, identity_of, node_of};
use super::choice::{EntryChoice, EntryFacts, Scope};
use super::chosen_times::ChosenTimes;
use super::event::Event;
use super::links::{self, LinkTarget};
use super::location::FileLocation;
use super::moments;
use super::plan::{PlannedEntry, WalkPlan};
use super::source::open_quietly;
use crate::error::{Error, Result};
use crate::repo::tree::{FileIdentity, Node, NodeKind};
use rustix::fs::{CWD, Dir, OFlags, fstat};
use rustix::io::Errno;
use std::collections::{BTreeSet, VecDeque, btree_map};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::vec;

/// Number of directories that stay open, the deepest ones.
const OPEN_DIRECTORIES_MAX: usize = 64;

/// Iterates over the events of a walk.
#[derive(Debug)]
pub struct Walker {
    capturer: Capturer,
    chosen_times: ChosenTimes,
    skip: BTreeSet<FileIdentity>,
    choice: EntryChoice,
    directories: Vec<WalkedDirectory>,
    pending: VecDeque<Event>,
    /// Path in the snapshot of the directory on top of the stack.
    stored: PathBuf,
    /// Path on disk of the directory on top. If that is planned, path of the last entry visited.
    source: PathBuf,
    /// Whether the plan has the entry that was visited last.
    is_given: bool,
    /// What is stored in place of the entry that was visited last.
    target: Option<LinkTarget>,
    root: Option<Node>,
}

/// A directory being walked.
#[derive(Debug)]
enum WalkedDirectory {
    Planned(btree_map::IntoIter<Vec<u8>, PlannedEntry>),
    Listed { open: Option<Arc<OwnedFd>>, identity: FileIdentity, names: vec::IntoIter<OsString>, scope: Scope },
}

/// Where the walk meets an entry.
struct EntryLocation<'a> {
    parent: BorrowedFd<'a>,
    name: &'a OsStr,
    /// Scope of the directory that the entry is in.
    scope: Scope,
}

impl Walker {
    /// Starts the walk of `plan`. Directories in `skip` are reported and skipped, and so is what `choice` leaves out.
    pub fn new(plan: WalkPlan, skip: BTreeSet<FileIdentity>, choice: EntryChoice) -> Self {
        let pending = plan.missing.into_iter().map(|(path, error)| Event::Problem { path, error }).collect();
        let mut walker = Walker {
            capturer: Capturer::new().with_atime(choice.with_atime).deferring_flags(),
            chosen_times: ChosenTimes::default(),
            skip,
            choice,
            directories: Vec::new(),
            pending,
            stored: PathBuf::new(),
            source: PathBuf::new(),
            is_given: false,
            target: None,
            root: None,
        };
        if plan.root.is_whole {
            walker.start_at(&plan.root.source);
        } else {
            walker.directories.push(WalkedDirectory::Planned(plan.root.children.into_iter()));
        }
        walker
    }

    /// Metadata of the snapshot's root, with an empty name, if a planned path is the root itself (`.` or `/`). The root
    /// has no [`Event::Enter`] and no [`Event::Leave`].
    pub fn root(&self) -> Option<&Node> {
        self.root.as_ref()
    }

    /// Whether the plan has the entry of the event that was returned last.
    pub fn is_given(&self) -> bool {
        self.is_given
    }

    /// Path on disk of the directory, or of the entry of the plan, that the last event is about.
    pub fn source(&self) -> &Path {
        &self.source
    }

    /// Whether holes of files are read.
    pub fn reads_holes(&self) -> bool {
        self.choice.read_holes
    }

    /// Where to open the file `node` of the [`Event::Entry`] that was returned last.
    pub fn location(&self, node: &Node) -> FileLocation {
        let read_holes = self.choice.read_holes;
        if let Some(LinkTarget { path, is_special }) = &self.target {
            return FileLocation { directory: None, path: path.clone(), is_special: *is_special, read_holes };
        }
        let (directory, path) = match self.directories.last() {
            Some(WalkedDirectory::Listed { open: Some(directory), identity, .. }) => {
                (Some((directory.clone(), *identity)), self.source.join(OsStr::from_bytes(&node.name)))
            }
            _ => (None, self.source.clone()),
        };
        FileLocation { directory, path, is_special: false, read_holes }
    }

    /// Whether size, times and inode say nothing about the content of the file `node` of the [`Event::Entry`] that was
    /// returned last: they may be those of another image.
    pub fn may_be_of_another_image(&self, node: &Node) -> bool {
        self.chosen_times.may_be_those_of(node, || self.location(node).may_be_in_image())
    }

    /// Reads the file flags of the file `node` of the [`Event::Entry`] that was returned last, if they are not known.
    /// The flags of what cannot be opened stay unknown. Returns the errors.
    pub fn read_flags(&self, node: &mut Node) -> Vec<Error> {
        let mut warnings = Vec::new();
        if !node.knows_flags()
            && self.capturer.may_have_flags(node)
            && let Ok(source) = self.location(node).open(node)
        {
            self.capturer.add_flags(source.file().as_fd(), source.path(), node, &mut warnings);
        }
        warnings
    }

    /// Starts with a directory whose entries are stored in the snapshot's root.
    fn start_at(&mut self, source: &Path) {
        self.source = source.to_path_buf();
        let path = openable(source);
        let mut warnings = Vec::new();
        let node = self.capturer.capture_path(path, false, &mut warnings);
        self.report(warnings);
        match node {
            Ok(node) if self.skip.contains(&node.identity()) => {
                self.pending.push_back(Event::Skipped { path: PathBuf::new() });
            }
            Ok(mut node) => match self.open(&EntryLocation::given(path.as_os_str()), &mut node) {
                Ok(directory) => {
                    node.name.clear();
                    self.directories.push(directory);
                    self.root = Some(node);
                }
                Err(error) => self.problem(error.into()),
            },
            Err(error) => self.pending.push_back(Event::Problem { path: PathBuf::new(), error }),
        }
    }

    fn visit_planned(&mut self, name: &[u8], entry: PlannedEntry) {
        self.is_given = true;
        self.source = entry.source;
        self.stored.push(OsStr::from_bytes(name));
        let mut warnings = Vec::new();
        let mut captured = self.capturer.capture_path(&self.source, !entry.is_whole, &mut warnings);
        if let Some(stand_in) = &entry.stand_in
            && !captured.as_ref().is_ok_and(|node| node.kind == NodeKind::Directory)
        {
            warnings.clear();
            captured = self.capturer.capture_path(stand_in, true, &mut warnings);
        }
        // The plan says under which name an entry is stored.
        let named = |node: Node| Node { name: name.to_vec(), ..node };
        if entry.is_whole {
            let captured = captured.map(|node| named(self.replaced(node, &mut warnings)));
            let path = self.target.as_ref().map_or(&self.source, |target| &target.path).clone();
            if self.admit(EntryLocation::given(path.as_os_str()), captured, warnings) {
                return;
            }
            self.stored.pop();
            return;
        }
        self.report(warnings);
        match captured.map(named) {
            Err(error) => self.pending.push_back(Event::Problem { path: self.stored.clone(), error }),
            Ok(mut node) if node.kind == NodeKind::Directory => {
                node.partial = true;
                self.pending.push_back(Event::Enter { path: self.stored.clone(), node });
                self.directories.push(WalkedDirectory::Planned(entry.children.into_iter()));
                return;
            }
            Ok(_) => self.problem(Errno::NOTDIR.into()),
        }
        self.stored.pop();
    }

    fn visit_listed(&mut self, name: &OsStr, directory: &OwnedFd, scope: Scope) {
        self.is_given = false;
        self.source.push(name);
        self.stored.push(name);
        let mut warnings = Vec::new();
        let captured = self.capturer.capture(directory.as_fd(), name, &self.source, &mut warnings);
        let captured = captured.map(|node| self.replaced(node, &mut warnings));
        let target = self.target.as_ref().map(|target| target.path.clone());
        let location = match &target {
            Some(path) => EntryLocation { parent: CWD, name: path.as_os_str(), scope },
            None => EntryLocation { parent: directory.as_fd(), name, scope },
        };
        if !self.admit(location, captured, warnings) {
            self.source.pop();
            self.stored.pop();
        }
    }

    /// What is stored of the entry at `self.source`: the choice may follow links.
    fn replaced(&mut self, node: Node, warnings: &mut Vec<Error>) -> Node {
        let open = &self.directories;
        let identity_of = |level: &WalkedDirectory| match level {
            WalkedDirectory::Listed { identity, .. } => Some(*identity),
            WalkedDirectory::Planned(_) => None,
        };
        let is_above = |found| open.iter().any(|level| identity_of(level) == Some(found));
        let entry = (self.source.as_path(), &node);
        let replaced = links::replacement(&self.capturer, &self.choice, entry, self.is_given, is_above, warnings);
        let (target, node) = replaced.map_or((None, node), |(target, node)| (Some(target), node));
        self.target = target;
        node
    }

    /// Reports the entry at `self.stored` unless the choice leaves it out. Enters it and returns `true` if it is a
    /// directory.
    fn admit(&mut self, location: EntryLocation<'_>, captured: Result<Node>, warnings: Vec<Error>) -> bool {
        let path = self.stored.clone();
        let facts = match &captured {
            Ok(node) => EntryFacts { is_directory: node.kind == NodeKind::Directory, size: node.size },
            Err(_) => EntryFacts { is_directory: false, size: 0 },
        };
        if let Some(reason) = self.choice.exclusion(&location.scope, &self.source, facts) {
            self.pending.push_back(Event::Excluded { path, reason });
            return false;
        }
        self.report(warnings);
        let mut node = match captured {
            Ok(node) => node,
            Err(error) => {
                self.pending.push_back(Event::Problem { path, error });
                return false;
            }
        };
        if node.kind != NodeKind::Directory {
            self.pending.push_back(Event::Entry { path, node });
            return false;
        }
        if self.skip.contains(&node.identity()) {
            self.pending.push_back(Event::Skipped { path });
            return false;
        }
        match self.open(&location, &mut node) {
            Ok(directory) => {
                self.directories.push(directory);
                self.pending.push_back(Event::Enter { path, node });
                true
            }
            Err(error) => {
                self.problem(error.into());
                if !matches!(error, Errno::NOENT | Errno::NOTDIR | Errno::LOOP) {
                    // The directory exists, so its metadata is stored. Only its entries cannot be read.
                    node.partial = true;
                    self.pending.push_back(Event::Enter { path: path.clone(), node });
                    self.pending.push_back(Event::Leave { path });
                }
                false
            }
        }
    }

    /// Opens the directory `name` and reads its names. Reports an error that ends the reading early, and marks the
    /// node.
    fn open(&mut self, location: &EntryLocation<'_>, node: &mut Node) -> Result<WalkedDirectory, Errno> {
        let identity = node.identity();
        moments::pass(&self.source);
        let open = open_directory(location.parent, location.name, identity, OFlags::NOFOLLOW)?;
        let mut warnings = Vec::new();
        self.refresh(&open, node, &mut warnings)?;
        let entered = self.choice.enter(&location.scope, open.as_fd(), &self.source, identity.device, &mut warnings);
        self.report(warnings);
        let scope = match entered {
            Ok(scope) => scope,
            Err(reason) => {
                self.pending.push_back(Event::Excluded { path: self.stored.clone(), reason });
                node.partial = true;
                let (open, names, scope) = (Some(Arc::new(open)), Vec::new().into_iter(), Scope::default());
                return Ok(WalkedDirectory::Listed { open, identity, names, scope });
            }
        };
        moments::pass(&self.source);
        let mut names = Vec::new();
        let mut listing = Dir::new(rustix::io::fcntl_dupfd_cloexec(&open, 0)?)?;
        while let Some(entry) = listing.read() {
            match entry {
                Ok(entry) => match entry.file_name().to_bytes() {
                    b"." | b".." => {}
                    name => names.push(OsString::from_vec(name.to_vec())),
                },
                Err(error) => {
                    self.problem(error.into());
                    node.partial = true;
                    break;
                }
            }
        }
        names.sort_unstable();
        names.shrink_to_fit();
        if let Some(index) = self.directories.len().checked_sub(OPEN_DIRECTORIES_MAX - 1)
            && let Some(WalkedDirectory::Listed { open, .. }) = self.directories.get_mut(index)
        {
            *open = None;
        }
        Ok(WalkedDirectory::Listed { open: Some(Arc::new(open)), identity, names: names.into_iter(), scope })
    }

    /// Captures a directory again that has changed since, or was replaced by one of the same inode number.
    fn refresh(&self, open: &OwnedFd, node: &mut Node, warnings: &mut Vec<Error>) -> Result<(), Errno> {
        let opened = node_of(&fstat(open)?, &self.source).map_err(|_| Errno::NOTDIR)?;
        if opened.state() != node.state() {
            let opened = Node { name: std::mem::take(&mut node.name), atime: node.atime, ..opened };
            *node = self.capturer.capture_open(open.as_fd(), opened, &self.source, warnings);
        }
        Ok(())
    }

    /// Ends the directory on top.
    fn leave(&mut self) {
        let left = self.directories.pop();
        if self.directories.is_empty() {
            return;
        }
        self.pending.push_back(Event::Leave { path: self.stored.clone() });
        self.stored.pop();
        let Some(WalkedDirectory::Listed { open, identity, .. }) = self.directories.last_mut() else { return };
        self.source.pop();
        if open.is_none() {
            let identity = *identity;
            let from_below = match &left {
                Some(WalkedDirectory::Listed { open: Some(left), .. }) => {
                    open_directory(left.as_fd(), OsStr::new(".."), identity, OFlags::NOFOLLOW)
                }
                _ => Err(Errno::NOENT),
            };
            // The path may have links that were followed. The identity counts.
            let follow = if self.choice.dereference { OFlags::empty() } else { OFlags::NOFOLLOW };
            let by_path = |_| open_directory(CWD, openable(&self.source).as_os_str(), identity, follow);
            match from_below.or_else(by_path) {
                Ok(found) => *open = Some(Arc::new(found)),
                Err(error) => {
                    if let Some(WalkedDirectory::Listed { names, .. }) = self.directories.last_mut() {
                        *names = Vec::new().into_iter();
                    }
                    self.problem(error.into());
                }
            }
        }
    }

    /// Reports a problem with the directory at `self.stored`.
    fn problem(&mut self, error: io::Error) {
        let error = Error::io("read", &self.source, error);
        self.pending.push_back(Event::Problem { path: self.stored.clone(), error });
    }

    fn report(&mut self, warnings: Vec<Error>) {
        let path = &self.stored;
        self.pending.extend(warnings.into_iter().map(|error| Event::Problem { path: path.clone(), error }));
    }

    /// Visits the next entry or leaves a directory. Returns `false` at the end of the walk.
    fn advance(&mut self) -> bool {
        match self.directories.last_mut() {
            None => return false,
            Some(WalkedDirectory::Planned(children)) => match children.next() {
                Some((name, entry)) => self.visit_planned(&name, entry),
                None => self.leave(),
            },
            Some(WalkedDirectory::Listed { open, names, scope, .. }) => match (names.next(), open.take()) {
                (Some(name), Some(directory)) => {
                    let scope = scope.clone();
                    let depth = self.directories.len();
                    self.visit_listed(&name, &directory, scope);
                    if let Some(WalkedDirectory::Listed { open, .. }) = self.directories.get_mut(depth - 1) {
                        *open = Some(directory);
                    }
                }
                (_, directory) => {
                    *open = directory;
                    self.leave();
                }
            },
        }
        true
    }
}

impl<'a> EntryLocation<'a> {
    /// A path that the walk was given.
    fn given(path: &'a OsStr) -> Self {
        EntryLocation { parent: CWD, name: path, scope: Scope::default() }
    }
}

impl Iterator for Walker {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Some(event);
            }
            if !self.advance() {
                return None;
            }
        }
    }
}

/// Returns the path by which the system opens `source`: `.` if it is empty.
fn openable(source: &Path) -> &Path {
    if source.as_os_str().is_empty() { Path::new(".") } else { source }
}

/// Opens the directory `name`; `follow` says whether it may be a link. Fails if it does not have this identity.
fn open_directory(
    parent: BorrowedFd<'_>,
    name: &OsStr,
    identity: FileIdentity,
    follow: OFlags,
) -> Result<OwnedFd, Errno> {
    let open = open_quietly(parent, name, OFlags::RDONLY | OFlags::DIRECTORY | follow)?;
    match identity_of(&fstat(&open)?) == identity {
        true => Ok(open),
        false => Err(Errno::NOENT),
    }
}

#[cfg(test)]
#[path = "walk_tests.rs"]
mod tests;
