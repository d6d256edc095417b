//! Decodes a random share of the files of snapshots.
//!
//! 1. The walk goes through the listings of all snapshots. A listing that several share is walked once, as long as a
//!    bounded cache remembers it. A random number for each content decides whether a file is in the sample, so equal
//!    contents count once. If no file is chosen, the one that was next to it is.
//! 2. Several threads decode the files whole. Every chunk is checked against its fingerprint.
//! 3. What cannot be read is reported with its path, and the containers that it needs are returned.

use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lru::LruCache;
use serde::Serialize;

use super::share::SampleDraw;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::inspect::check::damage;
use crate::metrics::Progress;
use crate::pipeline::{Emit, Map, Pipeline, Sink, Source, Weigh};
use crate::repo::Repository;
use crate::repo::index::ContainerListing;
use crate::repo::read::{ChunkReader, RebuiltStream, RecipeWalk};
use crate::repo::recipe::ContentReference;
use crate::repo::snapshot::{NamedSnapshot, is_forgotten};
use crate::repo::tree::{NodeKind, TreeCursor};
use crate::types::{ContainerId, Fingerprint, SnapshotId};

/// Listings, and contents of files, that the walk remembers.
const SEEN_MAX: NonZeroUsize = NonZeroUsize::new(1 << 17).expect("not zero");
/// Damaged files that are named, at most.
const NAMED_MAX: usize = 1000;
/// Bytes of container indexes that each thread caches.
const INDEX_BYTES_MAX: usize = 16 << 20;

/// What decoding files has proven.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SampledFiles {
    /// Different contents of files that the walk met.
    pub files: u64,
    /// Files that were decoded.
    pub files_read: u64,
    /// Bytes of their content, without holes.
    pub content_bytes: u64,
    /// Containers that these files, and the listings of all, are in.
    pub containers_used: u64,
    /// Files, listings and own blobs of snapshots with damage.
    pub damaged: u64,
    /// The first 1000 of them.
    pub damaged_files: Vec<String>,
    /// Files, listings and snapshots that only a newer version can read.
    pub newer: u64,
    /// Snapshots of the sample.
    pub snapshots: u64,
    /// Snapshots whose own blobs were read.
    pub snapshots_read: u64,
}

impl SampledFiles {
    /// Counts what is damaged, and names it.
    pub(super) fn add_damaged(&mut self, text: String) {
        self.damaged += 1;
        if self.damaged_files.len() < NAMED_MAX {
            self.damaged_files.push(text);
        }
    }
}

/// A file to decode, or a listing that cannot be read.
struct SampledFile {
    snapshot: SnapshotId,
    path: PathBuf,
    content: ContentReference,
    /// Why the listing `content` cannot be read.
    error: Option<Error>,
}

impl Weigh for SampledFile {
    fn bytes(&self) -> u64 {
        self.content.content_len()
    }
}

/// What reading it gave.
struct DecodedFile {
    file: SampledFile,
    bytes: u64,
    error: Option<Error>,
    /// Containers that its unreadable chunks need.
    doubted: HashSet<ContainerId>,
}

impl Weigh for DecodedFile {
    fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Decodes a share of the files of `snapshots`, and adds to `files` what that has given. Returns the containers that
/// unreadable ones need.
pub(super) fn decode(
    repository: &Repository,
    config: &Config,
    snapshots: Vec<NamedSnapshot>,
    draw: &SampleDraw,
    files: SampledFiles,
    progress: &Progress,
    stop: &Arc<AtomicBool>,
) -> Result<(SampledFiles, HashSet<ContainerId>)> {
    let listing = Arc::new(ContainerListing::take(&repository.store)?);
    let reader = ChunkReader::with_cache(repository, listing, config.restore.cache_bytes.0 as usize / 2);
    let workers = config.pipeline.workers_of(0).max(1);
    let mut met = 0;
    let mut line = Pipeline::new(config.pipeline.queue_depth, stop.clone());
    let walk = SampleStage {
        reader: reader.sharing(INDEX_BYTES_MAX),
        snapshots,
        draw,
        listings: LruCache::new(SEEN_MAX),
        seen: LruCache::new(SEEN_MAX),
        next: None,
        stop,
        files: &mut met,
    };
    let link = line.source(walk);
    let make = || SampleWorker { reader: reader.sharing(INDEX_BYTES_MAX), stop };
    let link = line.parallel(link, workers, make);
    let sink = CollectStage { repository, files, doubted: HashSet::new(), progress };
    let (collected, _) = line.run(link, sink)?;
    let (found, doubted) = collected;
    // All readers of the run share the numbers of containers.
    let containers_used = reader.resolver.containers().len() as u64;
    Ok((SampledFiles { files: met, containers_used, ..found }, doubted))
}

/// The first stage: walks the trees.
struct SampleStage<'a> {
    reader: ChunkReader,
    snapshots: Vec<NamedSnapshot>,
    draw: &'a SampleDraw,
    listings: LruCache<ContentReference, ()>,
    seen: LruCache<ContentReference, ()>,
    /// While no file is in the sample, the one with the smallest number.
    next: Option<(u64, SampledFile)>,
    stop: &'a AtomicBool,
    files: &'a mut u64,
}

impl Source for SampleStage<'_> {
    type Out = SampledFile;

    fn name(&self) -> &'static str {
        "walk"
    }

    fn run(&mut self, emit: &mut Emit<SampledFile>) -> Result<()> {
        let mut has_any = false;
        for named in std::mem::take(&mut self.snapshots) {
            has_any |= self.snapshot(&named, emit)?;
        }
        match self.next.take() {
            Some((_, file)) if !has_any => emit.emit(file),
            _ => Ok(()),
        }
    }
}

impl SampleStage<'_> {
    /// Emits the files of a snapshot that are in the sample. Returns whether there was one.
    fn snapshot(&mut self, named: &NamedSnapshot, emit: &mut Emit<SampledFile>) -> Result<bool> {
        use std::os::unix::ffi::OsStrExt;
        let (mut path, mut has_any) = (PathBuf::new(), false);
        let mut levels: Vec<(TreeCursor, ContentReference)> = self.unseen(named.snapshot.root).into_iter().collect();
        while let Some((cursor, content)) = levels.last_mut() {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let node = match cursor.next(&mut self.reader) {
                Ok(node) => node,
                Err(error) => {
                    let error = Some(damage(error)?);
                    emit.emit(SampledFile { snapshot: named.id, path: path.clone(), content: *content, error })?;
                    None
                }
            };
            let Some(node) = node else {
                levels.pop();
                path.pop();
                continue;
            };
            path.push(std::ffi::OsStr::from_bytes(&node.name));
            if node.kind == NodeKind::Directory {
                if let Some(level) = self.unseen(node.content) {
                    levels.push(level);
                    continue;
                }
            } else if let Some(content) = node.content.filter(|_| node.kind == NodeKind::File)
                && self.seen.put(content, ()).is_none()
            {
                let file = SampledFile { snapshot: named.id, path: path.clone(), content, error: None };
                has_any |= self.file(file, emit)?;
            }
            path.pop();
        }
        Ok(has_any)
    }

    /// Emits the file if it is in the sample, and returns whether it is.
    fn file(&mut self, file: SampledFile, emit: &mut Emit<SampledFile>) -> Result<bool> {
        if !file.content.fingerprint().is_none_or(|fingerprint| self.draw.may_have(&fingerprint.0)) {
            return Ok(false);
        }
        *self.files += 1;
        let number = file.content.fingerprint().map_or(u64::MAX, |fingerprint| self.draw.number(&fingerprint.0));
        if self.draw.has(number) {
            return emit.emit(file).map(|()| true);
        }
        if self.next.as_ref().is_none_or(|(smallest, _)| number < *smallest) {
            self.next = Some((number, file));
        }
        Ok(false)
    }

    fn unseen(&mut self, content: Option<ContentReference>) -> Option<(TreeCursor, ContentReference)> {
        let content = content.filter(|content| self.listings.put(*content, ()).is_none())?;
        Some((TreeCursor::open(Some(content)), content))
    }
}

/// A thread of the second stage.
struct SampleWorker<'a> {
    reader: ChunkReader,
    stop: &'a AtomicBool,
}

impl Map for SampleWorker<'_> {
    type In = SampledFile;
    type Out = DecodedFile;

    fn name(&self) -> &'static str {
        "decode"
    }

    fn map(&mut self, mut file: SampledFile) -> Result<DecodedFile> {
        let (mut bytes, mut error, mut doubted) = (0, file.error.take(), HashSet::new());
        let mut walk = RecipeWalk::of_stored(file.content);
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let found = match walk.next(&mut self.reader) {
                Ok(None) => break,
                Ok(Some(ContentReference::Chunk { fingerprint, len })) => {
                    bytes += len;
                    let read = self.reader.read_exact(&fingerprint, len);
                    read.map(drop).map_err(|error| (error, Some(fingerprint)))
                }
                Ok(Some(_)) => Ok(()),
                Err(error) => Err((error, file.content.fingerprint())),
            };
            if let Err((found, fingerprint)) = found {
                error.get_or_insert(damage(found)?);
                fingerprint.iter().for_each(|fingerprint| self.doubt(fingerprint, &mut doubted));
                // Behind a recipe that cannot be read, the rest of the content still is.
                if walk.take_unread().is_none() && fingerprint == file.content.fingerprint() {
                    break;
                }
            }
        }
        if let Some(rebuilt) = file.content.rebuilt() {
            bytes = rebuilt.len;
            if error.is_none() {
                let stream = RebuiltStream::new(self.reader.sharing(INDEX_BYTES_MAX), rebuilt);
                let check = || if self.stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) };
                error = stream.finish(check).err().map(damage).transpose()?;
            }
        }
        Ok(DecodedFile { file, bytes, error, doubted })
    }
}

impl SampleWorker<'_> {
    /// Adds the containers that have an entry of a chunk, and the frames of that entry.
    fn doubt(&mut self, fingerprint: &Fingerprint, doubted: &mut HashSet<ContainerId>) {
        let Ok(number) = self.reader.entry_of(fingerprint) else { return };
        if let Ok((container, ..)) = self.reader.resolver.container_index_of(number) {
            doubted.insert(container);
        }
        let Ok(extent_map) = self.reader.extent_map(number) else { return };
        for frame in extent_map.frames() {
            if let Ok((container, _)) = self.reader.resolver.frame_info(*frame) {
                doubted.insert(container);
            }
        }
    }
}

/// The last stage.
struct CollectStage<'a> {
    repository: &'a Repository,
    files: SampledFiles,
    doubted: HashSet<ContainerId>,
    progress: &'a Progress,
}

impl Sink for CollectStage<'_> {
    type In = DecodedFile;
    type Output = (SampledFiles, HashSet<ContainerId>);

    fn name(&self) -> &'static str {
        "collect"
    }

    fn process(&mut self, decoded: DecodedFile) -> Result<()> {
        let DecodedFile { file, bytes, error, doubted } = decoded;
        self.progress.files_done.add(1);
        self.progress.bytes_read.add(bytes);
        let Some(error) = error else {
            self.files.files_read += 1;
            self.files.content_bytes += bytes;
            return Ok(());
        };
        // A prune may have deleted what only a forgotten snapshot needs.
        if is_forgotten(self.repository.store.as_ref(), &file.snapshot)? {
            return Ok(());
        }
        if error.is_newer() {
            self.files.newer += 1;
            return Ok(());
        }
        self.progress.errors.add(1);
        self.doubted.extend(doubted);
        self.files.add_damaged(format!("snapshot {:.8}, /{}: {error}", file.snapshot, file.path.display()));
        Ok(())
    }

    fn finish(self) -> Result<Self::Output> {
        Ok((self.files, self.doubted))
    }
}
