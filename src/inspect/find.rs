//! Find: entries by name, kind, size and time in many snapshots, each with the snapshots that first and last have it.
//!
//! 1. Snapshots of one host and the same paths form a series, oldest first.
//! 2. Each tree of a series is walked beside the one before it. A directory of equal content is not entered: the
//!    entries found below it are in this snapshot, too. So a series costs its first tree and the changes after it.
//!    Where a tree cannot be read, the next one is searched whole.
//! 3. An entry with another kind, size, time or content is another version, and is reported apart.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use lru::LruCache;

use super::tree_pair::{PairVisitor, PairedNodes, walk_pair};
use crate::error::{Error, Result};
use crate::repo::Repository;
use crate::repo::index::ContainerListing;
use crate::repo::naming::shown_path;
use crate::repo::read::{ChunkReader, at_least_one};
use crate::repo::recipe::ContentReference;
use crate::repo::snapshot::{NamedSnapshot, forgotten, is_forgotten};
use crate::repo::tree::{Node, NodeKind, Timestamp};

/// Directories without a match that are remembered.
const BARREN_MAX: usize = 1 << 18;
/// Entries that one series may look at. A few listings can describe a tree of any size.
const VISITS_MAX: u64 = 1 << 30;
/// Versions that one series may have, which bounds memory.
const HITS_MAX: usize = 1 << 20;

/// What entries must be to be found.
#[derive(Debug, Clone)]
pub struct FindQuery {
    /// Patterns, one of which must match.
    patterns: GlobSet,
    /// Whether a match depends on nothing but the name of an entry.
    is_by_name: bool,
    /// Kinds, one of which the entry must have. Empty: any.
    pub kinds: Vec<NodeKind>,
    /// Smallest size of a file, bytes. Other entries never pass.
    pub size_min: Option<u64>,
    /// Largest size of a file, bytes. Other entries never pass.
    pub size_max: Option<u64>,
    /// Earliest time of modification.
    pub modified_from: Option<Timestamp>,
    /// Time of modification that is too late.
    pub modified_before: Option<Timestamp>,
}

impl FindQuery {
    /// A query for paths that match one of `patterns`, of any kind, size and time.
    ///
    /// `*` and `?` match no slash, `**` matches any number of directories. A pattern without a leading slash may match
    /// the last components of a path: `*.rs` any name, `src/*.rs` names in any directory `src`.
    ///
    /// # Errors
    /// [`Error::Usage`] with the pattern that does not parse.
    pub fn new(patterns: &[String], ignores_case: bool) -> Result<Self> {
        let mut set = GlobSetBuilder::new();
        for pattern in patterns {
            let anchored = match pattern.strip_prefix('/') {
                Some(rest) => rest.to_string(),
                None => format!("**/{pattern}"),
            };
            let mut glob = GlobBuilder::new(anchored.trim_end_matches('/'));
            let glob = glob.literal_separator(true).backslash_escape(true).case_insensitive(ignores_case).build();
            set.add(
                glob.map_err(|error| Error::Usage(format!("the pattern `{pattern}` is invalid: {}", error.kind())))?,
            );
        }
        let is_name = |pattern: &String| !pattern.trim_end_matches('/').contains('/') && !pattern.contains("**");
        let is_by_name = patterns.iter().all(is_name);
        let patterns = set.build().map_err(|error| Error::Usage(format!("the patterns are too large: {error}")))?;
        Ok(FindQuery {
            patterns,
            is_by_name,
            kinds: Vec::new(),
            size_min: None,
            size_max: None,
            modified_from: None,
            modified_before: None,
        })
    }

    /// Whether an entry is wanted.
    pub fn matches(&self, path: &Path, node: &Node) -> bool {
        let fits_size = |bound: Option<u64>, fits: fn(u64, u64) -> bool| {
            bound.is_none_or(|bound| node.kind == NodeKind::File && fits(node.size, bound))
        };
        (self.kinds.is_empty() || self.kinds.contains(&node.kind))
            && fits_size(self.size_min, |size, min| size >= min)
            && fits_size(self.size_max, |size, max| size <= max)
            && self.modified_from.is_none_or(|from| node.mtime >= from)
            && self.modified_before.is_none_or(|before| node.mtime < before)
            && self.patterns.is_match(path)
    }
}

/// One version of an entry that was found.
#[derive(Debug, Clone)]
pub struct FoundEntry {
    /// Path from the root of the snapshots, without a leading slash.
    pub path: PathBuf,
    /// Its metadata.
    pub node: Node,
    /// Position of the first snapshot that has it, in the list of snapshots.
    pub first: usize,
    /// Position of the last snapshot that has it.
    pub last: usize,
}

/// Searches `snapshots`, oldest first, and calls `visit` with every version found: by series, then in order of paths.
/// Returns the number of directories that could not be read, and of those that only a newer version can read. Each one
/// was logged.
///
/// # Errors
/// [`Error::Usage`] if too many entries match; [`Error::Interrupted`] once `stop` is set; errors of `visit`.
pub fn find_entries(
    repository: &Repository,
    snapshots: &[NamedSnapshot],
    query: &FindQuery,
    stop: &AtomicBool,
    visit: &mut dyn FnMut(FoundEntry) -> Result<()>,
) -> Result<(u64, u64)> {
    let listing = Arc::new(ContainerListing::take(&repository.store)?);
    let mut reader = ChunkReader::new(repository, listing);
    let mut series: BTreeMap<(&str, Vec<&[u8]>), Vec<usize>> = BTreeMap::new();
    for (at, named) in snapshots.iter().enumerate() {
        let paths = named.snapshot.paths.iter().map(|path| path.as_slice()).collect();
        series.entry((&named.snapshot.host, paths)).or_default().push(at);
    }
    let (mut unreadable, mut newer) = (0, 0);
    for members in series.values() {
        let mut search = Search::new(query, stop);
        for at in members {
            let root = snapshots.get(*at).and_then(|named| named.snapshot.root);
            let before = search.previous.and_then(|at| snapshots.get(at)).and_then(|named| named.snapshot.root);
            search.at = *at;
            match search.previous {
                Some(_) if before == root => search.extend(b""),
                _ => walk_pair(&mut reader, [before, root], Path::new(""), &mut search)?,
            }
            search.previous = Some(*at);
        }
        unreadable += search.unreadable;
        newer += search.newer;
        search.hits.into_values().flatten().try_for_each(&mut *visit)?;
    }
    if unreadable > 0 {
        for named in snapshots {
            if is_forgotten(reader.store(), &named.id)? {
                return Err(forgotten(&named.id));
            }
        }
    }
    Ok((unreadable, newer))
}

struct Search<'a> {
    query: &'a FindQuery,
    stop: &'a AtomicBool,
    /// Versions found so far by path, oldest first.
    hits: BTreeMap<Vec<u8>, Vec<FoundEntry>>,
    count: usize,
    /// The snapshot before the current one.
    previous: Option<usize>,
    /// The current snapshot.
    at: usize,
    unreadable: u64,
    newer: u64,
    /// Matches so far, and their number when each open directory was entered.
    matches: u64,
    open: Vec<u64>,
    /// Listings below which nothing matches, wherever they are.
    barren: LruCache<ContentReference, ()>,
    visits: u64,
}

impl<'a> Search<'a> {
    fn new(query: &'a FindQuery, stop: &'a AtomicBool) -> Self {
        Search {
            query,
            stop,
            hits: BTreeMap::new(),
            count: 0,
            previous: None,
            at: 0,
            unreadable: 0,
            newer: 0,
            matches: 0,
            // The roots.
            open: vec![0],
            barren: LruCache::new(at_least_one(BARREN_MAX)),
            visits: 0,
        }
    }

    /// Notes that what the previous snapshot has below `directory` is in the current one, too.
    fn extend(&mut self, directory: &[u8]) {
        let (mut from, mut to) = (directory.to_vec(), directory.to_vec());
        let bounds = if directory.is_empty() {
            (Bound::Unbounded, Bound::Unbounded)
        } else {
            from.push(b'/');
            to.push(b'/' + 1);
            (Bound::Included(from.as_slice()), Bound::Excluded(to.as_slice()))
        };
        for (_, versions) in self.hits.range_mut::<[u8], _>(bounds) {
            if let Some(version) = versions.last_mut().filter(|version| Some(version.last) == self.previous) {
                version.last = self.at;
            }
        }
    }

    fn found(&mut self, path: &Path, node: &Node) -> Result<()> {
        // Of rebuilt content the hash counts, not how it is rebuilt.
        let content = |node: &Node| node.content.filter(|_| is_file(node)).map(ContentReference::fingerprint);
        let version = |node: &Node| (node.kind, node.size, node.mtime, content(node));
        let versions = self.hits.entry(path.as_os_str().as_bytes().to_vec()).or_default();
        if let Some(last) = versions.last_mut()
            && Some(last.last) == self.previous
            && version(&last.node) == version(node)
        {
            last.last = self.at;
            return Ok(());
        }
        if self.count == HITS_MAX {
            return Err(Error::Usage(format!(
                "more than {HITS_MAX} entries match: narrow the patterns or the snapshots"
            )));
        }
        self.count += 1;
        // Neither is printed, and both may be long.
        let node = Node { xattrs: Vec::new(), extra: BTreeMap::new(), ..node.clone() };
        versions.push(FoundEntry { path: path.to_path_buf(), node, first: self.at, last: self.at });
        Ok(())
    }
}

fn is_file(node: &Node) -> bool {
    node.kind == NodeKind::File
}

impl PairVisitor for Search<'_> {
    fn visit(&mut self, path: &Path, pair: PairedNodes<'_>) -> Result<bool> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        let (PairedNodes::Second(node) | PairedNodes::Both(_, node)) = pair else { return Ok(false) };
        self.visits += 1;
        if self.visits > VISITS_MAX {
            let message = format!("the snapshots have more than {VISITS_MAX} entries to look at: name fewer snapshots");
            return Err(Error::Usage(message));
        }
        if self.query.matches(path, node) {
            self.found(path, node)?;
            self.matches += 1;
        }
        let [before, now] = pair.listings();
        if before == now {
            self.extend(path.as_os_str().as_bytes());
            return Ok(false);
        }
        let is_barren = now.is_none_or(|now| self.query.is_by_name && self.barren.get(&now).is_some());
        if !is_barren {
            self.open.push(self.matches);
        }
        Ok(!is_barren)
    }

    fn leave(&mut self, [_, now]: [Option<ContentReference>; 2]) {
        let before = self.open.pop().unwrap_or_default();
        if let Some(now) = now.filter(|_| before == self.matches && self.query.is_by_name) {
            self.barren.put(now, ());
        }
    }

    fn unreadable(&mut self, path: &Path, error: Error) -> Result<()> {
        tracing::error!("cannot search {}: {error}", shown_path(path));
        self.unreadable += 1;
        // What was not read may have a match.
        self.matches += 1;
        self.newer += u64::from(error.is_newer());
        Ok(())
    }

    /// What of the snapshot before cannot be read was said when that one was searched.
    fn needs_first(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, ignores_case: bool, path: &str) -> bool {
        let query = FindQuery::new(&[pattern.to_string()], ignores_case).unwrap();
        query.matches(Path::new(path), &Node::default())
    }

    #[test]
    fn a_pattern_matches_last_components_unless_it_is_anchored() {
        for (pattern, path) in [
            ("*.rs", "home/ada/main.rs"),
            ("*.rs", "main.rs"),
            ("src/*.rs", "home/src/main.rs"),
            ("/home/*/main.rs", "home/ada/main.rs"),
            ("ada/", "home/ada"),
            ("/home/**/*.rs", "home/a/b/c.rs"),
            ("ma[i]n.?s", "main.rs"),
        ] {
            assert!(matches(pattern, false, path), "{pattern} {path}");
        }
        for (pattern, path) in [
            ("*.rs", "home/ada/main.RS"),
            ("rs", "main.rs"),
            ("src/*.rs", "src/inner/main.rs"),
            ("/ada/main.rs", "home/ada/main.rs"),
            ("home", "home/ada"),
        ] {
            assert!(!matches(pattern, false, path), "{pattern} {path}");
        }
        assert!(matches("*.rs", true, "MAIN.RS"));
        assert!(matches!(FindQuery::new(&["a[".into()], false), Err(Error::Usage(_))));
    }

    #[test]
    fn sizes_are_those_of_files_and_times_are_half_open() {
        let mut query = FindQuery::new(&["*".into()], false).unwrap();
        let file = Node { size: 10, mtime: Timestamp { seconds: 5, nanoseconds: 0 }, ..Node::default() };
        let directory = Node { kind: NodeKind::Directory, ..file.clone() };
        let found = |query: &FindQuery, node: &Node| query.matches(Path::new("a"), node);
        (query.size_min, query.size_max) = (Some(10), Some(10));
        assert!(found(&query, &file) && !found(&query, &directory));
        (query.size_min, query.size_max) = (Some(11), None);
        assert!(!found(&query, &file));
        query.size_min = None;
        query.modified_from = Some(file.mtime);
        assert!(found(&query, &file) && found(&query, &directory));
        query.modified_before = Some(file.mtime);
        assert!(!found(&query, &file));
        query.modified_before = None;
        query.kinds = vec![NodeKind::Directory];
        assert!(!found(&query, &file) && found(&query, &directory));
    }
}
