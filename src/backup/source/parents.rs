//! The parent snapshots of a backup: the snapshots whose unchanged files are not read again.
//!
//! 1. Only snapshots of the same host count, no [published](crate::repo::published) ones, and those [from the
//!    future](crate::repo::clock) as the oldest. For each path of the backup, the latest snapshot of this path or of a
//!    path above it is a parent. If there is none, the latest snapshots of each path below it are.
//! 2. So a path that was missing last time is compared with the snapshot before, and one more path costs only what is
//!    in that path. There are at most [`PARENTS_MAX`] parents, those with the most paths first.
//! 3. Shares of the work have parents of their own (`parents_of_shares.rs`).
//! 4. The latest parent is the one that the new snapshot records. It answers first.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use super::parent::ParentCursor;
use super::parents_of_shares::{ChosenShares, choose_shares};
use crate::backup::changes::EntryChange;
use crate::backup::counts::ReadCounts;
use crate::config::WorkShare;
use crate::error::{Error, Result};
use crate::repo::Repository;
use crate::repo::clock::describe_future;
use crate::repo::naming::{SnapshotFilter, find_snapshot};
use crate::repo::recipe::ContentReference;
use crate::repo::snapshot::{self, NamedSnapshot, Snapshot};
use crate::repo::snapshot_listing::{self, SnapshotListing};
use crate::repo::tree::{Node, NodeKind};
use crate::store::{BlobKind, is_bucket};

/// Parents of a backup, at most. Each is walked beside the source.
const PARENTS_MAX: usize = 4;

/// Cursors into all parents, the latest first.
#[derive(Default)]
pub struct ParentCursors {
    cursors: Vec<ParentCursor>,
    /// Whether what the walk does not have is gone: parents may have what falls to other shares.
    counts_gone: bool,
}

impl ParentCursors {
    /// These cursors. What the walk does not have is counted as gone if it `counts_gone`.
    pub fn new(cursors: Vec<ParentCursor>, counts_gone: bool) -> Self {
        ParentCursors { cursors, counts_gone }
    }

    /// Counts what is gone into `counts`.
    pub fn count_into(&mut self, counts: &Arc<ReadCounts>) {
        let cursors = self.cursors.iter_mut().filter(|_| self.counts_gone);
        cursors.for_each(|parent| parent.count_into(counts.clone()));
    }

    /// Follows the walk into directory `node`.
    pub fn enter(&mut self, node: &Node) {
        self.cursors.iter_mut().for_each(|parent| parent.enter(node));
    }

    /// Says that the root of the walk is the absolute `path` on disk.
    pub fn locate_root(&mut self, path: &Path) {
        self.cursors.iter_mut().for_each(|parent| parent.locate_root(path));
    }

    /// Says that the entry of the next look is at the absolute `path` on disk, and whether the user gave that path.
    pub fn locate(&mut self, name: &[u8], path: &Path, is_given: bool) {
        self.cursors.iter_mut().for_each(|parent| parent.locate(name, path, is_given));
    }

    /// Counts what the latest parent has in the current directory, and the walk does not, as gone.
    pub fn watch(&mut self, path: &Path) {
        self.cursors.iter_mut().any(|parent| parent.watch(path));
    }

    /// Counts nothing more of the current directory as gone.
    pub fn ignore(&mut self) {
        self.cursors.iter_mut().for_each(ParentCursor::ignore);
    }

    /// What became of an entry since the latest parent that has it.
    pub fn look(&mut self, node: &Node) -> EntryChange {
        self.cursors.iter_mut().for_each(|parent| _ = parent.look(node));
        self.change()
    }

    /// What became of the entry of the last look.
    pub fn change(&self) -> EntryChange {
        let changes = || self.cursors.iter().map(ParentCursor::change);
        // Any parent that has it as it is will do.
        let best = changes().find(|change| *change == EntryChange::Unchanged);
        best.or_else(|| changes().find(|change| *change != EntryChange::New)).unwrap_or_default()
    }

    /// Follows the walk out of the current directory.
    pub fn leave(&mut self) {
        self.cursors.iter_mut().for_each(ParentCursor::leave);
    }

    /// The content of a file that is unchanged since a parent; see [`ParentCursor::unchanged`].
    pub fn unchanged(&mut self, node: &mut Node, may_be_other: bool) -> Option<Option<ContentReference>> {
        // The watched parent is the first that has the directory, so it is asked in any case.
        self.cursors.iter_mut().find_map(|parent| parent.unchanged(node, may_be_other))
    }

    /// The listing of the current directory in the latest parent that has it.
    pub fn listing(&self) -> Option<ContentReference> {
        self.cursors.iter().find_map(ParentCursor::listing)
    }

    /// Content of the file called `name` in the latest parent that has it in the current directory.
    pub fn find_content(&mut self, name: &[u8]) -> Option<ContentReference> {
        self.cursors.iter_mut().find_map(|parent| parent.find(name).filter(|node| node.kind == NodeKind::File)?.content)
    }

    /// Content in the latest parent that has the file of the last [`ParentCursors::unchanged`] call.
    pub fn previous_version(&self) -> Option<ContentReference> {
        self.cursors.iter().find_map(ParentCursor::previous_version)
    }

    /// Whether a file is older than a parent, so that the parent probably contains it.
    pub fn is_older(&self, node: &Node) -> bool {
        self.cursors.iter().any(|parent| parent.is_older(node))
    }
}

/// Which snapshots are the parents of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ParentChoice {
    /// The snapshots that host and paths suggest.
    #[default]
    ByPaths,
    /// This one: an id, a unique prefix or `latest`.
    Named(String),
    /// None: every file is read.
    Nothing,
}

/// The parents that a backup has.
#[derive(Debug, Default)]
pub struct FoundParents {
    /// The snapshots, the latest first.
    pub snapshots: Vec<NamedSnapshot>,
    /// Number of snapshots in the repository, if they were listed.
    pub listed: Option<usize>,
    /// Whether they have what falls to other shares than this backup.
    pub has_others: bool,
    /// Shares that are parents, too, if the work is split otherwise than for `snapshots`.
    pub others: Vec<NamedSnapshot>,
}

impl ParentChoice {
    /// With `force` none, else the `named` one. Without a name those that host and paths suggest.
    pub fn new(force: bool, named: Option<String>) -> Self {
        match named {
            _ if force => ParentChoice::Nothing,
            Some(name) => ParentChoice::Named(name),
            None => ParentChoice::ByPaths,
        }
    }

    /// The parents of a backup of the absolute `paths` on `host`, or of a `share` of them.
    ///
    /// # Errors
    /// Errors of listing the store. [`Error::NoSuchSnapshot`] and others of [`find_snapshot`] for a named one.
    pub fn find(
        &self,
        repository: &Repository,
        (host, share): (&str, Option<WorkShare>),
        paths: &[Vec<u8>],
    ) -> Result<FoundParents> {
        match self {
            ParentChoice::ByPaths => find_by_paths(repository, (host, share), paths),
            ParentChoice::Named(name) => {
                let found = find_snapshot(repository, name, &SnapshotFilter::default())?;
                if found.snapshot.is_published() {
                    return Err(Error::Usage(format!("snapshot {:.8} is published, so it is no parent", found.id)));
                }
                Ok(FoundParents { snapshots: vec![found], has_others: share.is_some(), ..FoundParents::default() })
            }
            ParentChoice::Nothing => Ok(FoundParents::default()),
        }
    }
}

fn find_by_paths(
    repository: &Repository,
    (host, share): (&str, Option<WorkShare>),
    paths: &[Vec<u8>],
) -> Result<FoundParents> {
    let SnapshotListing { snapshots, damaged, .. } = match snapshot_listing::list(repository) {
        Err(error @ Error::Unreadable { .. }) => {
            SnapshotListing { damaged: vec![(BlobKind::Snapshot.to_string(), error)], ..SnapshotListing::default() }
        }
        listed => listed?,
    };
    let skip = |name: &str, error: &Error| tracing::warn!("skipping {name}: {error}");
    damaged.iter().for_each(|(name, error)| skip(name, error));
    let count = snapshots.len();
    if let Some(text) = describe_future(&snapshots, repository.clock.now_ns()) {
        tracing::warn!("{text}");
    }
    // A bucket is the same one from every host, and shares come from many.
    let is_of_any = share.is_some() || paths.iter().all(|path| is_url(path));
    let is_of_host = |named: &NamedSnapshot| is_of_any || named.snapshot.host == host;
    let may_be_parent = |named: &NamedSnapshot| is_of_host(named) && !named.snapshot.is_published();
    let mut snapshots: Vec<NamedSnapshot> = snapshots.into_iter().filter(may_be_parent).collect();
    snapshots.reverse();
    let now_ns = repository.clock.now_ns();
    snapshots.sort_by_key(|named| named.snapshot.is_future(now_ns));
    loop {
        let mut latest = BTreeMap::new();
        for (at, named) in snapshots.iter().enumerate() {
            for path in &named.snapshot.paths {
                latest.entry(path.as_slice()).or_insert(at);
            }
        }
        let plain = || ChosenShares { at: choose(&latest, paths), ..ChosenShares::default() };
        let ChosenShares { at: chosen, others, has_others } =
            choose_shares(&snapshots, paths, share).unwrap_or_else(plain);
        let chosen: BTreeSet<usize> = chosen.into_iter().collect();
        let (mut parents, mut unreadable) = (Vec::new(), Vec::new());
        for named in chosen.into_iter().filter_map(|at| snapshots.get(at)) {
            // The list may come from a local file.
            match Snapshot::load(repository.store.as_ref(), &named.id) {
                Ok(_) => parents.push(named.clone()),
                Err(error) if error.stops_reading() => return Err(error),
                Err(error) => {
                    skip(&snapshot::blob_name(&named.id), &error);
                    unreadable.push(named.id);
                }
            }
        }
        if unreadable.is_empty() {
            // Most splits are as before, so these are not looked at.
            let others = others.into_iter().filter_map(|at| snapshots.get(at).cloned()).collect();
            return Ok(FoundParents { snapshots: parents, listed: Some(count), has_others, others });
        }
        snapshots.retain(|named| !unreadable.contains(&named.id));
    }
}

/// The parents of a backup of `paths`, by position. `latest` has the position of the latest snapshot of each path; the
/// latest of all has position 0.
fn choose(latest: &BTreeMap<&[u8], usize>, paths: &[Vec<u8>]) -> Vec<usize> {
    let mut votes: BTreeMap<usize, usize> = BTreeMap::new();
    for path in paths {
        match whole(latest, path) {
            Some(at) => *votes.entry(at).or_default() += 1,
            None => parts(latest, path, |at| *votes.entry(at).or_default() += 1),
        }
    }
    let mut chosen: Vec<(usize, usize)> = votes.into_iter().collect();
    chosen.sort_by_key(|(at, votes)| (std::cmp::Reverse(*votes), *at));
    chosen.into_iter().take(PARENTS_MAX).map(|(at, _)| at).collect()
}

/// The latest snapshot of `path` or of a directory above it.
fn whole(latest: &BTreeMap<&[u8], usize>, path: &[u8]) -> Option<usize> {
    if is_url(path) {
        return latest.get(path).copied();
    }
    ancestors(path).filter_map(|above| latest.get(above.as_os_str().as_encoded_bytes()).copied()).min()
}

/// Calls `each` with the latest snapshot of each path below `path`.
fn parts(latest: &BTreeMap<&[u8], usize>, path: &[u8], each: impl FnMut(usize)) {
    if is_url(path) {
        return;
    }
    let mut start = path.to_vec();
    if !start.ends_with(b"/") {
        start.push(b'/');
    }
    latest
        .range(start.as_slice()..)
        .take_while(|(below, _)| below.starts_with(&start))
        .map(|(_, at)| *at)
        .for_each(each);
}

/// Whether a recorded path is the URL of a bucket. Its objects are stored without the prefix, so only the same URL has
/// them in the same place.
fn is_url(path: &[u8]) -> bool {
    is_bucket(OsStr::from_bytes(path))
}

fn ancestors(path: &[u8]) -> impl Iterator<Item = &Path> {
    Path::new(OsStr::from_bytes(path)).ancestors()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(recorded: &[&[&str]], paths: &[&str]) -> Vec<usize> {
        let mut latest = BTreeMap::new();
        for (at, paths) in recorded.iter().enumerate() {
            paths.iter().for_each(|path| _ = *latest.entry(path.as_bytes()).or_insert(at));
        }
        choose(&latest, &paths.iter().map(|path| path.as_bytes().to_vec()).collect::<Vec<_>>())
    }

    #[test]
    fn the_latest_snapshot_of_a_path_is_its_parent() {
        assert_eq!(chosen(&[&["/a"], &["/a", "/b"], &["/a", "/b", "/c"]], &["/a"]), [0]);
        assert_eq!(chosen(&[&["/other"], &["/a"]], &["/a"]), [1]);
        assert_eq!(chosen(&[&["/other"]], &["/a"]), [0; 0]);
        assert_eq!(chosen(&[], &["/a"]), [0; 0]);
    }

    #[test]
    fn a_path_more_or_a_path_that_was_missing_does_not_lose_the_parents_of_the_others() {
        assert_eq!(chosen(&[&["/a"]], &["/a", "/new"]), [0]);
        assert_eq!(chosen(&[&["/a"], &["/a", "/disk"]], &["/a", "/disk"]), [0, 1]);
    }

    #[test]
    fn paths_overlap_by_components_from_above_and_below() {
        assert_eq!(chosen(&[&["/home"]], &["/home/u"]), [0]);
        assert_eq!(chosen(&[&["/"]], &["/home/u"]), [0]);
        assert_eq!(chosen(&[&["/home/u"], &["/var"]], &["/home"]), [0]);
        assert_eq!(chosen(&[&["/home/u"], &["/var"]], &["/"]), [0, 1]);
        assert_eq!(chosen(&[&["/homes", "/hom"]], &["/home"]), [0; 0]);
        assert_eq!(chosen(&[&["/home/u"], &["/home"]], &["/home"]), [1], "the whole before a part");
    }

    #[test]
    fn the_number_of_parents_is_bounded_and_the_ones_with_most_paths_stay() {
        let recorded: Vec<Vec<String>> = (0..9).map(|n| vec![format!("/{n}"), format!("/{n}x")]).collect();
        let recorded: Vec<Vec<&str>> =
            recorded.iter().map(|paths| paths.iter().map(String::as_str).collect()).collect();
        let recorded: Vec<&[&str]> = recorded.iter().map(Vec::as_slice).collect();
        let paths: Vec<String> = (0..9).map(|n| format!("/{n}")).chain(["/7x".into()]).collect();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        assert_eq!(chosen(&recorded, &paths), [7, 0, 1, 2]);
    }
}
