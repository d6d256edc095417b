//! A backup run: prepares the stages, runs them and commits the snapshot.
//!
//! 1. Containers of interrupted runs are adopted, damaged index segments are replaced, and the parent snapshots are
//!    chosen.
//! 2. The source is pre-scanned for model files, whose order of storing matters.
//! 3. The stages run ([`super::run_stages`]); afterwards everything that the snapshot refers to is durable.
//! 4. The chunk index is completed. All containers are proved to be in index segments. Then the snapshot is written:
//!    that is the commit. Afterwards small index segments are merged.
//!
//! A dry run skips 1 except for the choice of parents, stops the stages after Dedup, and skips 4.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::adopt::adopt_orphans;
use super::indexes::Indexes;
use super::input::InputStage;
use super::parent::ParentCursor;
use super::parents::{ParentCursors, find_parents};
use super::read::{ReadCounts, ReadStage};
use super::report::{BackupReport, BackupRequest, statistics};
use super::save::Saved;
use super::segments::{heal_segments, merge_after_commit, prove_containers};
use super::stream::StreamStage;
use super::wiring::{RunParts, Wiring};
use super::{run_dry_stages, run_stages};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::filesystem::{WalkPlan, Walker, prescan};
use crate::metrics::{Progress, StageMetrics};
use crate::repo::Repository;
use crate::repo::index::{ChunkPresence, ContainerListing};
use crate::repo::paths::{cache_directory, create_private};
use crate::repo::reader::ChunkReader;
use crate::repo::snapshot::{self, EXCLUDES_KEY, NamedSnapshot, STARTED_KEY, Snapshot};
use crate::repo::tree::{FileIdentity, Node};
use crate::types::SnapshotId;

/// Files that the pre-scan examines for models, at most.
const MODEL_CANDIDATES_MAX: usize = 1 << 14;
/// Bytes of decoded frames cached while the parent snapshot is walked.
const PARENT_CACHE_BYTES: usize = 8 << 20;

/// What a snapshot records about the start of its backup.
struct SnapshotStart {
    time_ns: i64,
    /// Absolute paths, sorted.
    paths: Vec<Vec<u8>>,
    parent: Option<SnapshotId>,
    root_node: Option<Node>,
}

/// What a run finds before its stages start.
struct Prepared {
    listing: Arc<ContainerListing>,
    containers_adopted: u64,
    parents: Vec<NamedSnapshot>,
    /// Directory of the caches.
    cache: PathBuf,
}

/// Runs a backup. A problem with a single entry is logged (`tracing::warn!`) and counted, and the backup goes on.
///
/// # Errors
/// Any failure that would leave the snapshot incomplete: of the store, of the configuration, an interruption, or
/// [`Error::Usage`] if none of the paths exists.
pub fn backup(
    repository: &Repository,
    config: &Config,
    request: &BackupRequest,
    progress: &Progress,
    stop: &Arc<AtomicBool>,
) -> Result<BackupReport> {
    let started = Instant::now();
    let time_ns = now_ns();
    let repository = &repository.stopped_by(stop);
    repository.check_run(&config.repository)?;
    let plan = plan(request)?;
    let paths = recorded_paths(request)?;
    let prepared = prepare(repository, request, &paths)?;
    let counts = Arc::new(ReadCounts::default());
    let (input, root_node) = match &request.stream {
        Some(stream) => {
            let time_ns = request.time_ns.unwrap_or(time_ns);
            let stage = StreamStage::open(stream, time_ns, config, progress, counts.clone())?;
            (InputStage::Stream(Box::new(stage)), None)
        }
        None => tree(repository, config, request, &prepared, plan, (progress, &counts), stop),
    };
    let Prepared { listing, containers_adopted, parents, cache } = prepared;
    let indexes = Indexes::open(repository, &config.index, &listing, cache)?;
    let parts = RunParts { repository, config, indexes: &indexes, progress, time_ns };
    let parent = parents.first().map(|parent| parent.id);
    let wiring = Wiring::new(parts, stop);
    let (saved, metrics, snapshot, index_hits) = if request.dry_run {
        let (saved, metrics) = run_dry_stages(wiring, input)?;
        (saved, metrics, String::new(), indexes.hits())
    } else {
        let (saved, metrics) = run_stages(wiring, input)?;
        let index_hits = indexes.finish_chunks()?;
        prove_containers(&listing, &indexes)?;
        let start = SnapshotStart { time_ns, paths, parent, root_node };
        let id = commit(repository, request, start, &saved, &counts)?;
        merge_after_commit(&listing, stop);
        (saved, metrics, id.to_string(), index_hits)
    };
    Ok(BackupReport {
        snapshot,
        dry_run: request.dry_run,
        parent: parent.map(|parent| parent.to_string()),
        excluded: counts.excluded.load(Ordering::Relaxed),
        files: saved.files,
        files_unchanged: counts.files_unchanged.load(Ordering::Relaxed),
        directories: saved.directories,
        others: saved.others,
        bytes: saved.bytes,
        bytes_read: counts.bytes_read.load(Ordering::Relaxed),
        chunks: saved.chunks,
        chunks_new: saved.chunks_new,
        bytes_new: saved.bytes_new,
        bytes_stored: saved.bytes_stored,
        containers: saved.containers,
        containers_adopted,
        problems: counts.problems.load(Ordering::Relaxed),
        seconds: started.elapsed().as_secs_f64(),
        index_hits,
        stages: metrics.iter().map(StageMetrics::summary).collect(),
        metrics,
    })
}

/// Readies the repository for the run, unless nothing may be written, and finds the parents.
fn prepare(repository: &Repository, request: &BackupRequest, paths: &[Vec<u8>]) -> Result<Prepared> {
    let cache = cache_directory(repository)?;
    create_private(&cache)?;
    let (listing, containers_adopted) = if request.dry_run {
        let mut listing = ContainerListing::take(&repository.store)?;
        listing.forget_orphans();
        (Arc::new(listing), 0)
    } else {
        repository.check_writable()?;
        repository.store.clean_temporaries()?;
        let (listing, containers_adopted) = adopt_orphans(repository)?;
        heal_segments(repository, &listing)?;
        (listing, containers_adopted)
    };
    let parents = match &request.parent {
        _ if request.force || request.stream.is_some() => Vec::new(),
        Some(id) => vec![snapshot::find(repository.store.as_ref(), id)?],
        None => find_parents(repository, &request.host, paths)?,
    };
    Ok(Prepared { listing, containers_adopted, parents, cache })
}

/// The stage that reads the source tree, and the metadata of the snapshot's root.
fn tree<'a>(
    repository: &Repository,
    config: &Config,
    request: &BackupRequest,
    prepared: &Prepared,
    plan: WalkPlan,
    (progress, counts): (&'a Progress, &Arc<ReadCounts>),
    stop: &AtomicBool,
) -> (InputStage<'a>, Option<Node>) {
    let skip = [repository.store.local_path(), Some(prepared.cache.as_path())];
    let skip: BTreeSet<FileIdentity> = skip.into_iter().flatten().filter_map(identity).collect();
    let candidates = if config.model.detect_formats {
        prescan(&request.paths, &skip, &request.choice, MODEL_CANDIDATES_MAX, stop)
    } else {
        Vec::new()
    };
    let walker = Walker::new(plan, skip, request.choice.clone());
    let root_node = walker.root().cloned();
    let cursor = |parent| parent_cursor(repository, config, &prepared.listing, parent);
    let cursors = ParentCursors(prepared.parents.iter().map(cursor).collect());
    let stage = ReadStage::new(walker, cursors, candidates, config, progress, counts.clone());
    (InputStage::Tree(Box::new(stage)), root_node)
}

fn plan(request: &BackupRequest) -> Result<WalkPlan> {
    if let Some(stream) = &request.stream {
        return stream.check().map(|()| WalkPlan::default());
    }
    let plan = if request.bare { WalkPlan::bare(&request.paths)? } else { WalkPlan::new(&request.paths)? };
    if plan.found() == 0 {
        let names: Vec<String> = request.paths.iter().take(4).map(|path| path.display().to_string()).collect();
        let more = if request.paths.len() > names.len() { ", ..." } else { "" };
        return Err(Error::Usage(format!("nothing to back up: {}{more} does not exist", names.join(", "))));
    }
    Ok(plan)
}

/// Writes the snapshot. Everything that it refers to is durable.
fn commit(
    repository: &Repository,
    request: &BackupRequest,
    start: SnapshotStart,
    saved: &Saved,
    counts: &ReadCounts,
) -> Result<SnapshotId> {
    let mut extra = BTreeMap::new();
    if request.time_ns.is_some() {
        extra.insert(STARTED_KEY.into(), start.time_ns.to_le_bytes().to_vec().into());
    }
    if !request.excludes.is_empty() {
        let excludes = minicbor::to_vec(&request.excludes).map_err(|error| Error::internal(error.to_string()))?;
        extra.insert(EXCLUDES_KEY.into(), excludes.into());
    }
    let snapshot = Snapshot {
        time_ns: request.time_ns.unwrap_or(start.time_ns),
        host: request.host.clone(),
        user: uzers::get_current_username().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
        paths: start.paths.into_iter().map(Into::into).collect(),
        root: saved.root,
        parent: start.parent,
        tags: request.tags.clone(),
        program: concat!("fhrd ", env!("CARGO_PKG_VERSION")).into(),
        statistics: statistics(saved, counts),
        extra,
        root_node: start.root_node,
    };
    snapshot.save(repository.store.as_ref())
}

/// A cursor at the root of the parent snapshot.
fn parent_cursor(
    repository: &Repository,
    config: &Config,
    listing: &Arc<ContainerListing>,
    parent: &NamedSnapshot,
) -> ParentCursor {
    let reader = ChunkReader::new(repository, listing.clone(), PARENT_CACHE_BYTES);
    let presence = ChunkPresence::new(repository.store.clone(), listing.clone());
    ParentCursor::new(reader, presence, &parent.snapshot, config.read.recheck_seconds)
}

/// The absolute paths of the request that exist, sorted, without duplicates. A missing path is not recorded: the next
/// backup of it shall look for a parent that has it.
fn recorded_paths(request: &BackupRequest) -> Result<Vec<Vec<u8>>> {
    if let Some(stream) = &request.stream {
        return Ok(vec![[b"/", stream.name.as_encoded_bytes()].concat()]);
    }
    let absolute = |path: &PathBuf| {
        let path = std::path::absolute(path).map_err(|error| Error::io("find", path, error))?;
        Ok(path.into_os_string().into_encoded_bytes())
    };
    let found = request.paths.iter().filter(|path| path.symlink_metadata().is_ok());
    let mut paths = found.map(absolute).collect::<Result<Vec<_>>>()?;
    paths.sort();
    paths.dedup();
    Ok(paths)
}

fn identity(path: &Path) -> Option<FileIdentity> {
    let metadata = std::fs::metadata(path).ok()?;
    Some(FileIdentity { device: metadata.dev(), inode: metadata.ino() })
}

fn now_ns() -> i64 {
    jiff::Timestamp::now().as_nanosecond() as i64
}
