//! Exclusive: what each snapshot alone keeps, which forgetting it would free.
//!
//! 1. Walk the tree of every snapshot and note the owner of each chunk: one snapshot, or several. A listing or recipe
//!    that has the same owner as before is skipped, so what snapshots share is read twice at most.
//! 2. A base has the owners of the chunks that copy from it, too.
//! 3. Read the container indexes. The stored bytes of an entry are its part of its frame.
//!
//! Memory is bounded: with too many chunks, only those in a sample of the fingerprints are counted, and the result is
//! an estimate.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lru::LruCache;
use serde::Serialize;

use super::chunk_sample::ChunkSample;
use crate::error::{Error, ErrorKind, Result};
use crate::repo::Repository;
use crate::repo::container::ContainerIndex;
use crate::repo::index::{ContainerListing, read_container_index};
use crate::repo::read::ChunkReader;
use crate::repo::recipe::{ContentReference, decode_recipe};
use crate::repo::snapshot::{NamedSnapshot, forgotten, is_forgotten};
use crate::repo::tree::{NodeKind, TreeCursor};
use crate::types::{ContainerId, Fingerprint};

/// Chunks whose owner is known.
const CHUNKS_MAX: usize = 1 << 23;
/// Listings and recipes whose owner is known. Others are walked again.
const VISITED_MAX: NonZeroUsize = NonZeroUsize::new(1 << 18).expect("not zero");
/// Rounds in which owners pass from copies to their bases, at most: the depth of chains.
const ROUNDS_MAX: usize = 64;

/// What a snapshot alone keeps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ExclusiveBytes {
    /// Chunks that no other snapshot needs.
    pub chunks: u64,
    /// Their decoded bytes.
    pub raw_bytes: u64,
    /// Their stored bytes: about what forgetting the snapshot frees.
    pub stored_bytes: u64,
}

/// What the snapshots of a repository keep.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ExclusiveReport {
    /// For each snapshot, in the order given, what it alone keeps.
    pub snapshots: Vec<ExclusiveBytes>,
    /// What several snapshots keep.
    pub shared: ExclusiveBytes,
    /// What no snapshot needs.
    pub unreferenced: ExclusiveBytes,
    /// One chunk in this many was counted; 1 if all were.
    pub sampled_one_in: u64,
    /// Listings, recipes and container indexes that could not be read. What they need counts as unreferenced.
    pub unreadable: u64,
    /// Unreadable ones that only a newer version can read.
    pub newer: u64,
}

/// Who needs a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// The snapshot at this position.
    One(u32),
    /// Several snapshots.
    Several,
}

impl Owner {
    fn and(self, other: Owner) -> Owner {
        if self == other { self } else { Owner::Several }
    }
}

/// Computes what each of `snapshots`, which are all of the repository, alone keeps.
///
/// # Errors
/// Fails if the store cannot be listed, or read for a reason other than damage. [`Error::Interrupted`] once `stop` is
/// set.
pub fn exclusive(repository: &Repository, snapshots: &[NamedSnapshot], stop: &AtomicBool) -> Result<ExclusiveReport> {
    let listing = Arc::new(ContainerListing::take(&repository.store)?);
    let mut marking = Marking {
        reader: ChunkReader::new(repository, listing.clone()),
        owners: ChunkSample::new(CHUNKS_MAX),
        visited: LruCache::new(VISITED_MAX),
        stop,
        unreadable: 0,
        newer: 0,
    };
    for (at, named) in (0..).zip(snapshots) {
        let before = marking.unreadable;
        marking.tree(named.snapshot.root, Owner::One(at))?;
        if marking.unreadable > before && is_forgotten(repository.store.as_ref(), &named.id)? {
            return Err(forgotten(&named.id));
        }
    }
    let mut containers: Vec<ContainerId> = listing.containers.iter().copied().collect();
    containers.sort();
    let Marking { mut owners, mut unreadable, mut newer, .. } = marking;
    for round in 0..ROUNDS_MAX {
        let mut is_changed = false;
        each_index(repository, &containers, stop, &mut |index| match index {
            Ok(index) => is_changed |= pass_to_bases(index, &mut owners),
            Err(error) if round == 0 => {
                unreadable += 1;
                newer += u64::from(error.is_newer());
            }
            Err(_) => {}
        })?;
        if !is_changed {
            break;
        }
    }
    let mut report =
        ExclusiveReport { unreadable, newer, sampled_one_in: owners.one_in(), ..ExclusiveReport::default() };
    report.snapshots = vec![ExclusiveBytes::default(); snapshots.len()];
    each_index(repository, &containers, stop, &mut |index| {
        if let Ok(index) = index {
            report.add(index, &owners);
        }
    })?;
    Ok(report)
}

/// Calls `visit` with each container index, or why it cannot be read.
fn each_index(
    repository: &Repository,
    containers: &[ContainerId],
    stop: &AtomicBool,
    visit: &mut dyn FnMut(std::result::Result<&ContainerIndex, &Error>),
) -> Result<()> {
    for id in containers {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        match read_container_index(repository.store.as_ref(), id) {
            Ok(index) => visit(Ok(&index)),
            // A prune has deleted it.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) if error.is_unreadable() => visit(Err(&error)),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Gives bases the owners of the chunks that need them. Returns whether an owner changed.
fn pass_to_bases(index: &ContainerIndex, owners: &mut ChunkSample<Owner>) -> bool {
    let mut is_changed = false;
    for entry in &index.entries {
        let Some(owner) = owners.get(&entry.fingerprint).copied() else { continue };
        for operation in index.operations(entry) {
            let base = operation.source().and_then(|(base, _)| index.bases.get(base as usize));
            let Some(base) = base else { continue };
            let before = owners.get(&base.fingerprint).copied();
            let after = before.map_or(owner, |before| before.and(owner));
            if before != Some(after) {
                is_changed |= owners.put(&base.fingerprint, after);
            }
        }
    }
    is_changed
}

impl ExclusiveReport {
    fn add(&mut self, index: &ContainerIndex, owners: &ChunkSample<Owner>) {
        for entry in &index.entries {
            if !owners.holds(&entry.fingerprint) {
                continue;
            }
            let bytes = match owners.get(&entry.fingerprint) {
                Some(Owner::One(at)) => self.snapshots.get_mut(*at as usize),
                Some(Owner::Several) => Some(&mut self.shared),
                None => Some(&mut self.unreferenced),
            };
            let Some(bytes) = bytes else { continue };
            // A chunk that is all copied has no frame.
            let frame =
                index.frames.get(entry.frame as usize).filter(|frame| entry.literal_len > 0 && frame.raw_len > 0);
            let share = frame.map_or(0, |frame| {
                frame.stored_bytes() as u64 * u64::from(entry.literal_len) / u64::from(frame.raw_len)
            });
            bytes.chunks += self.sampled_one_in;
            bytes.raw_bytes += u64::from(entry.raw_len) * self.sampled_one_in;
            bytes.stored_bytes += share * self.sampled_one_in;
        }
    }
}

/// What a listing or recipe was visited as.
type VisitKey = (Fingerprint, bool);

/// Notes the owners of chunks.
struct Marking<'a> {
    reader: ChunkReader,
    owners: ChunkSample<Owner>,
    visited: LruCache<VisitKey, Owner>,
    stop: &'a AtomicBool,
    unreadable: u64,
    newer: u64,
}

impl Marking<'_> {
    /// Marks a tree: its listings, and the contents of its files.
    fn tree(&mut self, root: Option<ContentReference>, owner: Owner) -> Result<()> {
        let mut levels = Vec::new();
        self.open(root, owner, &mut levels)?;
        while let Some(cursor) = levels.last_mut() {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            match cursor.next(&mut self.reader) {
                Ok(None) => {
                    levels.pop();
                }
                Ok(Some(node)) if node.kind == NodeKind::Directory => self.open(node.content, owner, &mut levels)?,
                Ok(Some(node)) => node.content.map_or(Ok(()), |content| self.content(content, owner))?,
                Err(error) => {
                    self.note(error)?;
                    levels.pop();
                }
            }
        }
        Ok(())
    }

    /// Marks the chunks of a listing, and opens it unless it was visited for this owner or for several.
    fn open(&mut self, listing: Option<ContentReference>, owner: Owner, levels: &mut Vec<TreeCursor>) -> Result<()> {
        let Some(content) = listing else { return Ok(()) };
        if let Some(fingerprint) = content.fingerprint()
            && !self.visit((fingerprint, true), owner)
        {
            return Ok(());
        }
        self.content(content, owner)?;
        levels.push(TreeCursor::open(Some(content)));
        Ok(())
    }

    /// Whether what is below `key` has to be walked for `owner`.
    fn visit(&mut self, key: VisitKey, owner: Owner) -> bool {
        let before = self.visited.get(&key).copied();
        let after = before.map_or(owner, |before| before.and(owner));
        self.visited.put(key, after);
        before != Some(after)
    }

    /// Marks the chunks and recipes of a content.
    fn content(&mut self, content: ContentReference, owner: Owner) -> Result<()> {
        let mut levels = vec![content.stored_parts().into_iter()];
        while let Some(level) = levels.last_mut() {
            let Some(reference) = level.next() else {
                levels.pop();
                continue;
            };
            let Some(fingerprint) = reference.fingerprint() else { continue };
            self.mark(&fingerprint, owner);
            if let ContentReference::Recipe { level, fingerprint, len } = reference
                && self.visit((fingerprint, false), owner)
            {
                let bytes = self.reader.read(&fingerprint);
                match bytes.and_then(|bytes| decode_recipe(&fingerprint, level, len, &bytes)) {
                    Ok(list) => levels.push(list.into_iter()),
                    Err(error) => self.note(error)?,
                }
            }
        }
        Ok(())
    }

    fn mark(&mut self, fingerprint: &Fingerprint, owner: Owner) {
        let owner = self.owners.get(fingerprint).map_or(owner, |before| before.and(owner));
        self.owners.put(fingerprint, owner);
    }

    /// Counts damage. Other errors end the walk.
    fn note(&mut self, error: Error) -> Result<()> {
        if !error.is_unreadable() {
            return Err(error);
        }
        tracing::warn!("cannot read what a snapshot needs: {error}");
        self.unreadable += 1;
        self.newer += u64::from(error.is_newer());
        Ok(())
    }
}
