//! Usage: what the files of a snapshot hold before and after reduction, by kind of file.
//!
//! 1. The walk of the tree gives files and bytes by kind: the extension of the name in lower case. A directory that is
//!    equal to one before adds what that one did, and is not read again.
//! 2. Each distinct chunk counts once, for the kind of the first file that has it. Its stored bytes are its part of the
//!    stored bytes of its frame.
//! 3. Of all snapshots together, it counts for the host and the directory (`usage_directories`) of that file, too.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

use super::chunk_sample::ChunkSample;
use super::shards::chunk_stored_bytes;
use super::usage_directories::{DirectoryCount, DirectoryUsage, Stem};
use crate::error::{Error, Result};
use crate::memory::ByteLru;
use crate::repo::Repository;
use crate::repo::index::ContainerListing;
use crate::repo::naming::shown_path;
use crate::repo::read::{ChunkReader, RecipeWalk};
use crate::repo::recipe::ContentReference;
use crate::repo::snapshot::{NamedSnapshot, forgotten, is_forgotten};
use crate::repo::tree::{Node, NodeKind, TreeCursor, find_entry};

/// Cache of what directories add, bytes.
const KNOWN_BYTES: usize = 32 << 20;
/// Distinct chunks that are known; beyond that the result is an estimate from a sample.
const CHUNKS_MAX: usize = 1 << 22;
/// Kinds that are told apart. Files of others count as `other`.
const KINDS_MAX: usize = 1024;
/// Hosts that are told apart by what they alone have.
const HOSTS_MAX: usize = u16::MAX as usize;
/// Longest extension that is a kind.
const EXTENSION_BYTES_MAX: usize = 12;

/// Files of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct KindUsage {
    /// Regular files.
    pub files: u64,
    /// Bytes of their content, with holes.
    pub bytes: u64,
    /// Bytes of their chunks, each distinct chunk once.
    pub distinct_bytes: u64,
    /// Stored bytes of those chunks.
    pub stored_bytes: u64,
}

/// What the files of a tree hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TreeUsage {
    /// Regular files. Each name of an inode counts.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Links and special files.
    pub others: u64,
    /// Bytes of file content, with holes.
    pub bytes: u64,
    /// Bytes of distinct chunks.
    pub distinct_bytes: u64,
    /// Stored bytes of those chunks.
    pub stored_bytes: u64,
    /// The same by kind of file: its extension in lower case, `none` or `other`.
    pub kinds: BTreeMap<String, KindUsage>,
    /// One chunk in this many was counted; 1 if all were.
    pub sampled_one_in: u64,
    /// Files whose chunks could not be found, and directories that could not be read to their ends. Each one was
    /// logged, but for those in a directory that is equal to one before.
    pub unreadable: u64,
    /// Unreadable ones that only a newer version can read.
    #[serde(skip)]
    pub newer: u64,
}

/// A distinct chunk.
#[derive(Clone, Copy)]
struct CountedChunk {
    len: u32,
    stored: f32,
    kind: u16,
    host: u16,
    directory: u16,
}

/// What the snapshots of one host hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct HostUsage {
    /// Snapshots.
    pub snapshots: u64,
    /// Regular files of all of them.
    pub files: u64,
    /// Bytes of their content, with holes.
    pub bytes: u64,
    /// Bytes of distinct chunks that no host before this one, by name, has.
    pub distinct_bytes: u64,
    /// Stored bytes of those chunks.
    pub stored_bytes: u64,
}

/// What all snapshots hold together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RepositoryUsage {
    /// The sum of the snapshots. Distinct chunks count once.
    #[serde(flatten)]
    pub tree: TreeUsage,
    /// The same by host.
    pub hosts: BTreeMap<String, HostUsage>,
    /// The same by directory.
    #[serde(skip)]
    pub directories: Vec<DirectoryUsage>,
}

/// Computes the usage of a snapshot, or of the tree at `path` in it.
///
/// # Errors
/// [`Error::NoSuchPath`]; [`Error::Interrupted`] once `stop` is set; errors of listings.
pub fn usage(
    repository: &Repository,
    snapshot: &NamedSnapshot,
    path: Option<&Path>,
    stop: &AtomicBool,
) -> Result<TreeUsage> {
    let mut walk = UsageWalk::new(repository, stop)?;
    let (path, base) = match path {
        None => (PathBuf::new(), None),
        Some(path) => find_entry(&mut walk.listings, snapshot, path)?,
    };
    let (mut total, mut root) = (UsageTally::default(), snapshot.snapshot.root);
    if let Some(base) = &base {
        walk.count.entry(&path, base, &mut total)?;
        root = listing_of(base);
    }
    let tally = walk.tree(path, root, total)?;
    if tally.unreadable > 0 && is_forgotten(walk.listings.store(), &snapshot.id)? {
        return Err(forgotten(&snapshot.id));
    }
    Ok(walk.count.finish(tally))
}

/// Computes the usage of these snapshots together.
///
/// # Errors
/// [`Error::Interrupted`] once `stop` is set; errors of listings.
pub fn usage_of_all(
    repository: &Repository,
    snapshots: &[NamedSnapshot],
    stop: &AtomicBool,
) -> Result<RepositoryUsage> {
    let mut walk = UsageWalk::new(repository, stop)?;
    let mut by_host: BTreeMap<&str, Vec<&NamedSnapshot>> = BTreeMap::new();
    snapshots.iter().for_each(|named| by_host.entry(&named.snapshot.host).or_default().push(named));
    let (mut total, mut hosts) = (UsageTally::default(), Vec::new());
    for (host, snapshots) in by_host {
        walk.count.host = hosts.len().min(HOSTS_MAX) as u16;
        let mut usage = HostUsage::default();
        for named in snapshots {
            let tally = walk.snapshot(named)?;
            usage.snapshots += 1;
            usage.files = usage.files.saturating_add(tally.files);
            usage.bytes = usage.bytes.saturating_add(tally.bytes);
            total.add(&tally);
        }
        hosts.push((host.to_string(), usage));
    }
    let mut sizes = walk.count.sizes_by(|chunk| chunk.host, hosts.len());
    for ((_, usage), (distinct, stored)) in hosts.iter_mut().zip(sizes.drain(..)) {
        (usage.distinct_bytes, usage.stored_bytes) = (distinct, stored);
    }
    let sizes = walk.count.sizes_by(|chunk| chunk.directory, walk.directories.count());
    let directories = walk.directories.finish(sizes);
    Ok(RepositoryUsage { tree: walk.count.finish(total), hosts: hosts.into_iter().collect(), directories })
}

/// A walk over trees, which remembers what directories add.
struct UsageWalk<'a> {
    listings: ChunkReader,
    known: ByteLru<ContentReference, Arc<UsageTally>>,
    count: UsageCount<'a>,
    directories: DirectoryCount<UsageTally>,
}

impl<'a> UsageWalk<'a> {
    fn new(repository: &Repository, stop: &'a AtomicBool) -> Result<Self> {
        let listing = Arc::new(ContainerListing::take(&repository.store)?);
        let listings = ChunkReader::new(repository, listing.clone());
        let reader = ChunkReader::new(repository, listing);
        let chunks = ChunkSample::new(CHUNKS_MAX);
        let (kinds, numbers) = (Vec::new(), BTreeMap::new());
        let count = UsageCount { reader, stop, chunks, kinds, numbers, host: 0, directory: 0 };
        let directories = DirectoryCount::new();
        Ok(UsageWalk { listings, known: ByteLru::new(KNOWN_BYTES), count, directories })
    }

    /// What a snapshot adds, also by directory.
    fn snapshot(&mut self, named: &NamedSnapshot) -> Result<UsageTally> {
        let stem = Stem::of(&named.snapshot, &mut self.listings);
        if let Some(known) = self.directories.known(self.count.host, &stem) {
            return Ok(known.0.clone());
        }
        let Stem { path, content, directories } = stem;
        self.directories.start(&named.snapshot.host, &path);
        let tally = self.tree(path, content, UsageTally { directories, ..UsageTally::default() })?;
        self.directories.end(self.count.host, content, tally.clone(), tally.files, tally.bytes);
        Ok(tally)
    }

    /// Adds everything below the directory `path` with listing `root` to `total`.
    fn tree(&mut self, mut path: PathBuf, root: Option<ContentReference>, total: UsageTally) -> Result<UsageTally> {
        let UsageWalk { listings, known, count, directories } = self;
        let mut levels = vec![TalliedDirectory { cursor: TreeCursor::open(root), content: root, tally: total }];
        loop {
            let is_top = levels.len() == 1;
            let Some(level) = levels.last_mut() else { return Ok(UsageTally::default()) };
            if count.stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let next = match level.cursor.next(listings) {
                Err(error) if error.is_unreadable() => {
                    level.end_early(&path, &error);
                    None
                }
                next => next?,
            };
            if let Some(node) = next {
                path.push(OsStr::from_bytes(&node.name));
                if is_top {
                    count.directory = directories.enter(&path, node.kind);
                }
                count.entry(&path, &node, &mut level.tally)?;
                let content = listing_of(&node);
                match content.and_then(|content| known.get(&content)) {
                    None if content.is_some() => {
                        let (cursor, tally) = (TreeCursor::open(content), UsageTally::default());
                        levels.push(TalliedDirectory { cursor, content, tally });
                        continue;
                    }
                    None => {}
                    Some(tally) => {
                        level.tally.add(&tally);
                        if is_top {
                            directories.add_below(count.directory, tally.files, tally.bytes);
                        }
                    }
                }
                path.pop();
                continue;
            }
            path.pop();
            let Some(TalliedDirectory { content, tally, .. }) = levels.pop() else { continue };
            let Some(parent) = levels.last_mut() else { return Ok(tally) };
            parent.tally.add(&tally);
            if levels.len() == 1 {
                directories.add_below(count.directory, tally.files, tally.bytes);
            }
            if let Some(content) = content {
                let bytes = size_of::<UsageTally>() + 64 * (1 + tally.kinds.len());
                known.put(content, Arc::new(tally), bytes);
            }
        }
    }
}

fn listing_of(node: &Node) -> Option<ContentReference> {
    node.content.filter(|_| node.kind == NodeKind::Directory)
}

/// A directory that is being read.
struct TalliedDirectory {
    cursor: TreeCursor,
    content: Option<ContentReference>,
    tally: UsageTally,
}

impl TalliedDirectory {
    /// Reports and counts that the rest of it cannot be read.
    fn end_early(&mut self, path: &Path, error: &Error) {
        tracing::error!("cannot read the rest of {}: {error}", shown_path(path));
        self.tally.unreadable = self.tally.unreadable.saturating_add(1);
        self.tally.newer = self.tally.newer.saturating_add(u64::from(error.is_newer()));
    }
}

/// What the entries of a directory and below it add.
#[derive(Clone, Default)]
struct UsageTally {
    files: u64,
    directories: u64,
    others: u64,
    bytes: u64,
    unreadable: u64,
    newer: u64,
    /// Files and their bytes by number of kind.
    kinds: BTreeMap<u16, (u64, u64)>,
}

impl UsageTally {
    fn add(&mut self, other: &UsageTally) {
        self.files = self.files.saturating_add(other.files);
        self.directories = self.directories.saturating_add(other.directories);
        self.others = self.others.saturating_add(other.others);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.unreadable = self.unreadable.saturating_add(other.unreadable);
        self.newer = self.newer.saturating_add(other.newer);
        for (kind, (files, bytes)) in &other.kinds {
            self.add_kind(*kind, *files, *bytes);
        }
    }

    fn add_kind(&mut self, kind: u16, files: u64, bytes: u64) {
        let known = self.kinds.entry(kind).or_default();
        *known = (known.0.saturating_add(files), known.1.saturating_add(bytes));
    }
}

struct UsageCount<'a> {
    reader: ChunkReader,
    stop: &'a AtomicBool,
    chunks: ChunkSample<CountedChunk>,
    kinds: Vec<KindUsage>,
    numbers: BTreeMap<String, u16>,
    /// Number of the host whose snapshot is walked.
    host: u16,
    /// Number of the directory that is walked.
    directory: u16,
}

impl UsageCount<'_> {
    /// Number of a file's kind.
    fn kind(&mut self, path: &Path) -> u16 {
        let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
        let name = match extension {
            None => "none".into(),
            Some(extension) if extension.len() > EXTENSION_BYTES_MAX => "other".into(),
            Some(extension) => extension,
        };
        let is_full = self.kinds.len() >= KINDS_MAX && !self.numbers.contains_key(&name);
        let name = if is_full { "other".into() } else { name };
        let next = self.kinds.len() as u16;
        let number = *self.numbers.entry(name).or_insert(next);
        if number == next {
            self.kinds.push(KindUsage::default());
        }
        number
    }

    fn entry(&mut self, path: &Path, node: &Node, tally: &mut UsageTally) -> Result<()> {
        match node.kind {
            NodeKind::File => return self.file(path, node, tally),
            NodeKind::Directory => tally.directories = tally.directories.saturating_add(1),
            _ => tally.others = tally.others.saturating_add(1),
        }
        Ok(())
    }

    fn file(&mut self, path: &Path, node: &Node, tally: &mut UsageTally) -> Result<()> {
        let kind = self.kind(path);
        tally.files = tally.files.saturating_add(1);
        tally.bytes = tally.bytes.saturating_add(node.size);
        tally.add_kind(kind, 1, node.size);
        let Some(content) = node.content else { return Ok(()) };
        match self.content(content, kind) {
            Err(error) if error.is_unreadable() => {
                tracing::warn!("cannot find the chunks of {}: {error}", path.display());
                tally.unreadable = tally.unreadable.saturating_add(1);
                tally.newer = tally.newer.saturating_add(u64::from(error.is_newer()));
                Ok(())
            }
            other => other,
        }
    }

    fn content(&mut self, content: ContentReference, kind: u16) -> Result<()> {
        let mut walk = RecipeWalk::of_stored(content);
        while let Some(reference) = walk.next(&mut self.reader)? {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let ContentReference::Chunk { fingerprint, len } = reference else { continue };
            if self.chunks.holds(&fingerprint) && self.chunks.get(&fingerprint).is_none() {
                let stored = chunk_stored_bytes(&fingerprint, &mut self.reader)? as f32;
                let (len, host, directory) = (u32::try_from(len).unwrap_or(u32::MAX), self.host, self.directory);
                self.chunks.put(&fingerprint, CountedChunk { len, stored, kind, host, directory });
            }
        }
        Ok(())
    }

    /// Distinct and stored bytes of the chunks by the number that `by` gives.
    fn sizes_by(&self, by: fn(&CountedChunk) -> u16, count: usize) -> Vec<(u64, u64)> {
        let factor = self.chunks.one_in();
        let mut sizes = vec![(0u64, 0.0f64); count];
        for chunk in self.chunks.values() {
            if let Some((distinct, stored)) = sizes.get_mut(usize::from(by(chunk))) {
                *distinct += u64::from(chunk.len) * factor;
                *stored += f64::from(chunk.stored) * factor as f64;
            }
        }
        sizes.into_iter().map(|(distinct, stored)| (distinct, stored.round() as u64)).collect()
    }

    fn finish(mut self, tally: UsageTally) -> TreeUsage {
        let UsageTally { files, directories, others, bytes, unreadable, newer, kinds } = tally;
        let mut usage = TreeUsage { files, directories, others, bytes, unreadable, newer, ..TreeUsage::default() };
        for (kind, (files, bytes)) in kinds {
            if let Some(count) = self.kinds.get_mut(usize::from(kind)) {
                (count.files, count.bytes) = (files, bytes);
            }
        }
        let sizes = self.sizes_by(|chunk| chunk.kind, self.kinds.len());
        for (count, (distinct, stored)) in self.kinds.iter_mut().zip(sizes) {
            (count.distinct_bytes, count.stored_bytes) = (distinct, stored);
            usage.distinct_bytes += distinct;
            usage.stored_bytes += stored;
        }
        usage.sampled_one_in = self.chunks.one_in();
        let kinds = self.numbers.into_iter();
        usage.kinds = kinds.filter_map(|(name, at)| Some((name, *self.kinds.get(usize::from(at))?))).collect();
        usage
    }
}
