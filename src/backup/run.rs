//! A backup run: prepares the stages, runs them and commits the snapshot.
//!
//! 1. Containers of interrupted runs are adopted, damaged index segments are replaced, and the parent snapshot is
//!    chosen.
//! 2. The source is pre-scanned for model files, whose order of storing matters.
//! 3. The stages run ([`super::run_stages`]); afterwards everything that the snapshot refers to is durable.
//! 4. The chunk index is completed. All containers are proved to be in index segments. Then the snapshot is written:
//!    that is the commit. Afterwards small index segments are merged.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::adopt::adopt_orphans;
use super::indexes::Indexes;
use super::parent::ParentCursor;
use super::read::{ReadCounts, ReadStage};
use super::report::{BackupReport, BackupRequest, statistics};
use super::run_stages;
use super::save::Saved;
use super::segments::{heal_segments, merge_after_commit, prove_containers};
use super::wiring::{RunParts, Wiring};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::filesystem::{WalkPlan, Walker, prescan};
use crate::metrics::{Progress, StageMetrics};
use crate::repo::Repository;
use crate::repo::index::{ChunkPresence, ContainerListing};
use crate::repo::paths::{cache_directory, create_private};
use crate::repo::reader::ChunkReader;
use crate::repo::snapshot::{self, NamedSnapshot, Snapshot};
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
    repository.check_writable()?;
    repository.check_run(&config.repository)?;
    let plan = plan(request)?;
    repository.store.clean_temporaries()?;
    let cache = cache_directory(repository)?;
    create_private(&cache)?;
    let (listing, containers_adopted) = adopt_orphans(repository)?;
    heal_segments(repository, &listing)?;
    let paths = absolute_paths(&request.paths)?;
    let parent = if request.force { None } else { find_parent(repository, request, &paths)? };
    let skip: BTreeSet<FileIdentity> =
        [repository.store.local_path(), Some(cache.as_path())].into_iter().flatten().filter_map(identity).collect();
    let candidates = if config.model.detect_formats {
        prescan(&request.paths, &skip, MODEL_CANDIDATES_MAX, stop)
    } else {
        Vec::new()
    };
    let walker = Walker::new(plan, skip);
    let root_node = walker.root().cloned();

    let indexes = Indexes::open(repository, &config.index, &listing, cache)?;
    let counts = Arc::new(ReadCounts::default());
    let cursor = parent.as_ref().map(|parent| parent_cursor(repository, config, &listing, parent));
    let read = ReadStage::new(walker, cursor, candidates, config, progress, counts.clone());
    let parts = RunParts { repository, config, indexes: &indexes, progress, time_ns };
    let (saved, metrics) = run_stages(Wiring::new(parts, stop), read)?;
    let index_hits = indexes.finish_chunks()?;
    prove_containers(&listing, &indexes)?;

    let start = SnapshotStart { time_ns, paths, parent: parent.map(|parent| parent.id), root_node };
    let parent = start.parent.map(|parent| parent.to_string());
    let id = commit(repository, request, start, &saved, &counts)?;
    merge_after_commit(&listing, stop);
    Ok(BackupReport {
        snapshot: id.to_string(),
        parent,
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

fn plan(request: &BackupRequest) -> Result<WalkPlan> {
    let plan = if request.bare { WalkPlan::bare(&request.paths)? } else { WalkPlan::new(&request.paths)? };
    if plan.found() == 0 {
        let names: Vec<String> = request.paths.iter().map(|path| path.display().to_string()).collect();
        return Err(Error::Usage(format!("nothing to back up: {} does not exist", names.join(", "))));
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
    let snapshot = Snapshot {
        time_ns: start.time_ns,
        host: request.host.clone(),
        user: uzers::get_current_username().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
        paths: start.paths.into_iter().map(Into::into).collect(),
        root: saved.root,
        parent: start.parent,
        tags: request.tags.clone(),
        program: concat!("fhrd ", env!("CARGO_PKG_VERSION")).into(),
        statistics: statistics(saved, counts),
        extra: BTreeMap::new(),
        root_node: start.root_node,
    };
    snapshot.save(repository.store.as_ref())
}

/// The latest snapshot of the same paths on the same host.
fn find_parent(repository: &Repository, request: &BackupRequest, paths: &[Vec<u8>]) -> Result<Option<NamedSnapshot>> {
    let (snapshots, damaged) = snapshot::list(repository.store.as_ref())?;
    for (name, error) in damaged {
        tracing::warn!("skipping {name}: {error}");
    }
    let is_same = |named: &NamedSnapshot| {
        let recorded = named.snapshot.paths.iter().map(|path| path.as_slice());
        named.snapshot.host == request.host && recorded.eq(paths.iter().map(Vec::as_slice))
    };
    Ok(snapshots.into_iter().rev().find(is_same))
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

/// The absolute paths, sorted, without duplicates.
fn absolute_paths(paths: &[PathBuf]) -> Result<Vec<Vec<u8>>> {
    let absolute = |path: &PathBuf| {
        let path = std::path::absolute(path).map_err(|error| Error::io("find", path, error))?;
        Ok(path.into_os_string().into_encoded_bytes())
    };
    let mut paths = paths.iter().map(absolute).collect::<Result<Vec<_>>>()?;
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
