//! Checks trees: every listing and recipe of every snapshot decodes, and their chunks are in listed containers.
//!
//! Snapshots share most of their content. A listing or recipe that was checked before is skipped, as long as a bounded
//! cache remembers the reference to it, and whether it was a listing.

use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use lru::LruCache;

use super::containers::trace_entry;
use super::damaged_containers::LostChunks;
use super::defect_log::{DefectLog, damage_or_cold};
use super::run::CheckRun;
use crate::error::{Error, ErrorKind, Result};
use crate::repo::index::{LocatedEntry, Soundness};
use crate::repo::read::ChunkReader;
use crate::repo::recipe::{ContentReference, decode_recipe};
use crate::repo::snapshot::{NamedSnapshot, is_forgotten, is_reported};
use crate::repo::tree::{Node, NodeKind, TreeCursor};
use crate::store::Store;
use crate::types::{ContainerId, Fingerprint, SnapshotId};

/// Number of listings and recipes that the check remembers.
const SEEN_MAX: NonZeroUsize = NonZeroUsize::new(1 << 17).expect("not zero");

/// Entries of a lost chunk that are looked at, at most.
const ENTRIES_MAX: usize = 64;

/// How far a chunk of a file is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WalkDepth {
    /// To its entry: each container is checked by itself.
    Located,
    /// To the frames with its bytes, through all bases.
    Traced,
}

/// In which role a reference was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum CheckedAs {
    File,
    Directory,
}

/// What a walk through trees has found.
pub(super) struct TreeWalk {
    /// Where the chunks are that no entry gives.
    pub(super) lost: LostChunks,
    /// Containers that the walk used. With [`WalkDepth::Traced`] they are all that a restore needs.
    pub(super) needed: HashSet<ContainerId>,
    /// Snapshots whose defects do not count, and why.
    pub(super) left_out: Vec<(SnapshotId, &'static str)>,
}

/// Checks the tree of every snapshot. A snapshot with defects is looked for again: once it is forgotten, a prune may
/// delete what only it needs. Nothing was promised of one that its writer has not reported, or has withdrawn by a note
/// because it may not delete.
pub(super) fn check(
    run: &CheckRun<'_>,
    snapshots: &[NamedSnapshot],
    depth: WalkDepth,
    log: &mut DefectLog,
) -> Result<TreeWalk> {
    let cache_bytes = run.config.restore.cache_bytes.0 as usize;
    let reader = ChunkReader::with_cache(run.repository, run.listing.clone(), cache_bytes);
    let (found, lost) = (DefectLog::default(), LostChunks::default());
    let mut check = TreeCheck { run, reader, depth, seen: LruCache::new(SEEN_MAX), log: found, lost };
    let (mut lost, mut left_out) = (LostChunks::default(), Vec::new());
    for snapshot in snapshots {
        check.snapshot(snapshot)?;
        let (found, lost_here) = (std::mem::take(&mut check.log), std::mem::take(&mut check.lost));
        if found.count() > 0
            && let Some(reason) = why_left_out(run.repository.store.as_ref(), snapshot)?
        {
            left_out.push((snapshot.id, reason));
            // What others share with it counts for them.
            check.seen.clear();
            continue;
        }
        log.merge(found);
        lost.merge(lost_here);
    }
    Ok(TreeWalk { needed: check.reader.resolver.containers().into_iter().collect(), lost, left_out })
}

/// Why the defects of a snapshot are no damage, if they are none.
fn why_left_out(store: &dyn Store, snapshot: &NamedSnapshot) -> Result<Option<&'static str>> {
    if is_forgotten(store, &snapshot.id)? {
        return Ok(Some("was forgotten meanwhile"));
    }
    Ok(if is_reported(store, snapshot)? { None } else { Some("is not reported yet: its backup runs, or was killed") })
}

struct TreeCheck<'a> {
    run: &'a CheckRun<'a>,
    reader: ChunkReader,
    depth: WalkDepth,
    /// Listings, and recipes of files, that were checked. Another reference to the same chunk may state another length,
    /// and what is fine as a file may be no listing.
    seen: LruCache<(ContentReference, CheckedAs), ()>,
    /// Of the snapshot that is checked now.
    log: DefectLog,
    lost: LostChunks,
}

/// A directory whose listing is read.
struct OpenListing {
    cursor: TreeCursor,
    content: ContentReference,
}

impl TreeCheck<'_> {
    fn snapshot(&mut self, snapshot: &NamedSnapshot) -> Result<()> {
        let mut path = PathBuf::new();
        let mut levels: Vec<OpenListing> = self.unseen(snapshot.snapshot.root).into_iter().collect();
        while let Some(OpenListing { cursor, content }) = levels.last_mut() {
            self.run.check_stop()?;
            let next = match self.run.judged(cursor.next(&mut self.reader)) {
                Ok(next) => next,
                Err(error) => {
                    let (error, content) = (damage_or_cold(error)?, *content);
                    self.defect(snapshot, &path, error);
                    self.lose_listing(content)?;
                    None
                }
            };
            let Some(node) = next else {
                levels.pop();
                path.pop();
                continue;
            };
            path.push(name_of(&node));
            if node.kind == NodeKind::Directory
                && let Some(listing) = self.unseen(node.content)
            {
                levels.push(listing);
                continue;
            }
            let content_len = node.content.map_or(0, |content| content.content_len());
            if node.kind == NodeKind::File && content_len != node.size {
                let expected = format!("the {} bytes of its directory entry", node.size);
                let error = Error::corrupt("content of the file", 0, expected, content_len.to_string());
                self.defect(snapshot, &path, error);
            }
            if let Some(error) = node.unsupported() {
                self.defect(snapshot, &path, error);
            }
            if let Some(content) = node.content.filter(|_| node.kind != NodeKind::Directory) {
                self.content(snapshot, &path, content)?;
            }
            path.pop();
        }
        Ok(())
    }

    /// A cursor over a listing that was not checked before.
    fn unseen(&mut self, content: Option<ContentReference>) -> Option<OpenListing> {
        let content = content.filter(|content| self.seen.put((*content, CheckedAs::Directory), ()).is_none())?;
        Some(OpenListing { cursor: TreeCursor::open(Some(content)), content })
    }

    /// Checks the content of a file, recipes depth first. After a defect the rest of the content is checked too.
    fn content(&mut self, snapshot: &NamedSnapshot, path: &Path, content: ContentReference) -> Result<()> {
        let mut levels = vec![vec![content].into_iter()];
        while let Some(level) = levels.last_mut() {
            self.run.check_stop()?;
            let found = match level.next() {
                None => {
                    levels.pop();
                    continue;
                }
                Some(ContentReference::Hole { .. }) => continue,
                Some(rebuilt @ ContentReference::Rebuilt { .. }) => {
                    levels.push(rebuilt.stored_parts().into_iter());
                    continue;
                }
                Some(ContentReference::Chunk { fingerprint, len }) => self.chunk(&fingerprint, len),
                Some(recipe @ ContentReference::Recipe { level, fingerprint, len }) => {
                    if self.seen.put((recipe, CheckedAs::File), ()).is_some() {
                        continue;
                    }
                    let bytes = self.run.judged(self.reader.read(&fingerprint));
                    if is_lost(&bytes) {
                        self.lose(&fingerprint)?;
                    }
                    let list = bytes.and_then(|bytes| decode_recipe(&fingerprint, level, len, &bytes));
                    list.map(|list| levels.push(list.into_iter()))
                }
            };
            if let Err(error) = found {
                self.defect(snapshot, path, damage_or_cold(error)?);
            }
        }
        Ok(())
    }

    /// Checks that a chunk has a sound entry of the right length, or another one that can be read all the same.
    fn chunk(&mut self, fingerprint: &Fingerprint, len: u64) -> Result<()> {
        let located = self.reader.resolver.locator.locate(fingerprint);
        if let Ok(Some(located)) = &located
            && located.soundness == Soundness::Sound
            && let Some(entry) = located.container_index.entries.get(located.entry as usize)
            && self.reaches_frames(located)?
        {
            if u64::from(entry.raw_len) == len {
                return Ok(());
            }
            let expected = format!("chunk {fingerprint} of {} bytes", entry.raw_len);
            return Err(Error::corrupt("recipe", 0, expected, len.to_string()));
        }
        let read = self.run.judged(self.reader.read_exact(fingerprint, len).map(drop));
        if is_lost(&read) {
            self.lose(fingerprint)?;
        }
        read
    }

    /// Whether the bytes of an entry are where its operations say, as far as this walk looks.
    fn reaches_frames(&mut self, located: &LocatedEntry) -> Result<bool> {
        if self.depth == WalkDepth::Located {
            return Ok(true);
        }
        let number = self.reader.resolver.number_of(located);
        match trace_entry(&mut self.reader, number) {
            Err(error) => damage_or_cold(error).map(|_| false),
            Ok(()) => Ok(true),
        }
    }

    /// Records the containers whose damage costs a chunk: those with entries of it, and with frames of these.
    fn lose(&mut self, fingerprint: &Fingerprint) -> Result<()> {
        let mut entries = Vec::new();
        self.run.listing.search(fingerprint, |container, entry| {
            if entries.len() < ENTRIES_MAX {
                entries.push((container, entry));
            }
            None::<()>
        })?;
        // Missing containers are not in the listing, but segments name them.
        for segment in self.run.listing.segments().iter() {
            entries.extend(segment.find(fingerprint).into_iter().flatten().take(ENTRIES_MAX));
        }
        self.lost.is_any_unlocated |= entries.is_empty();
        for (container, entry) in entries {
            self.lost.containers.insert(container);
            let number = self.reader.resolver.entry_number(container, entry);
            let Ok(extent_map) = self.reader.extent_map(number) else { continue };
            for frame in extent_map.frames() {
                if let Ok((container, _)) = self.reader.resolver.frame_info(*frame) {
                    self.lost.containers.insert(container);
                }
            }
        }
        Ok(())
    }

    /// Records what a listing lacks that could not be read.
    fn lose_listing(&mut self, content: ContentReference) -> Result<()> {
        let mut references = vec![content];
        while let Some(reference) = references.pop() {
            let (ContentReference::Chunk { fingerprint, .. } | ContentReference::Recipe { fingerprint, .. }) =
                reference
            else {
                continue;
            };
            match (self.run.judged(self.reader.read(&fingerprint)), reference) {
                (Err(error), _) if matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::Cold) => {}
                (Err(error), _) => {
                    damage_or_cold(error)?;
                    self.lose(&fingerprint)?;
                }
                (Ok(bytes), ContentReference::Recipe { level, len, .. }) => {
                    references.extend(decode_recipe(&fingerprint, level, len, &bytes).into_iter().flatten());
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn defect(&mut self, snapshot: &NamedSnapshot, path: &Path, error: Error) {
        self.log.consequence_of(&error, format!("snapshot {}, /{}: {error}", snapshot.id, path.display()));
    }
}

/// Whether a chunk cannot be read: not by a newer version either, nor once it is thawed.
fn is_lost<T>(read: &Result<T>) -> bool {
    read.as_ref().is_err_and(|error| !matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::Cold))
}

fn name_of(node: &Node) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    PathBuf::from(std::ffi::OsStr::from_bytes(&node.name))
}
