//! A backup run: prepares the stages, runs them and commits the snapshot.
//!
//! 1. Containers of interrupted runs are adopted, damaged index segments are replaced, and the parent snapshots are
//!    chosen.
//! 2. The source is pre-scanned for model files, whose order of storing matters.
//! 3. The stages run ([`super::run_stages`]); afterwards everything that the snapshot refers to is durable.
//! 4. [`super::commit`] holds what the run relies on, completes the index and writes the snapshot. If a prune was
//!    faster, the run starts again. Afterwards small index segments are merged.
//!
//! A dry run skips 1 except for the choice of parents, stops the stages after Dedup, and skips 4.

use std::collections::{BTreeSet, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::commit::{Commit, SnapshotStart};
use super::indexes::Indexes;
use super::input::{InputStage, ReadCounts};
use super::known::KnownFiles;
use super::memory::{self, MemoryStage};
use super::parent::ParentCursor;
use super::parents::{ParentCursors, find_parents};
use super::report::{BackupReport, BackupRequest, CopiedSnapshot, FileChanges};
use super::segments::{care_after_commit, heal_segments};
use super::stored::{StoredStage, StoredTree};
use super::stream::StreamStage;
use super::walk::WalkStage;
use super::wiring::{RunParts, Wiring};
use super::{run_dry_stages, run_stages};
use crate::config::Config;
use crate::error::{Error, ErrorKind, Result};
use crate::filesystem::{WalkPlan, Walker, prescan};
use crate::metrics::{Progress, StageMetrics};
use crate::repo::Repository;
use crate::repo::adopt::{adopt_orphans, count_lost};
use crate::repo::clock::{is_future, shown_time};
use crate::repo::index::{ChunkPresence, ContainerListing, SharedContainerIndexes};
use crate::repo::marks::Marks;
use crate::repo::naming::{SnapshotFilter, find_snapshot};
use crate::repo::paths::{cache_directory, create_private};
use crate::repo::pause::{jittered, pause};
use crate::repo::read::{ChunkReader, Reader};
use crate::repo::snapshot::{NamedSnapshot, Snapshot};
use crate::repo::tree::{FileIdentity, Node};
use crate::store::StoreExt;

/// Files that the pre-scan examines for models, at most.
pub(super) const MODEL_CANDIDATES_MAX: usize = 1 << 14;
/// Runs over the source, at most: a prune beside a backup may delete what the backup relies on.
const RUNS_MAX: u32 = 10;
/// The pause before the second run. Each one after that is twice as long, up to the maximum.
const PAUSE: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// What a run finds before its stages start.
struct Prepared {
    listing: Arc<ContainerListing>,
    containers_adopted: u64,
    parents: Vec<NamedSnapshot>,
    /// Number of snapshots, if they were listed.
    snapshots: Option<usize>,
    /// Directory of the caches.
    cache: PathBuf,
    /// What the run loads, it relies on.
    container_indexes: Arc<SharedContainerIndexes>,
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
    let repository = &repository.stopped_by(stop);
    repository.check_run(&config.repository)?;
    // A stream cannot be read twice.
    let runs_max = if request.stream.is_some() { 1 } else { RUNS_MAX };
    for run in 1..runs_max {
        match run_once(repository, config, request, progress, stop) {
            // A container that is read may also vanish before the look.
            Err(error) if matches!(error, Error::Pruned { .. }) || error.kind() == ErrorKind::NotFound => {
                let time = if request.without_pauses { Duration::ZERO } else { pause_after(run) };
                tracing::warn!("{error}; waiting {:.1} s, then starting again", time.as_secs_f64());
                pause(jittered(time), stop)?;
            }
            result => return result,
        }
    }
    run_once(repository, config, request, progress, stop)
}

/// The pause after run number `run`, counted from 1.
fn pause_after(run: u32) -> Duration {
    PAUSE.saturating_mul(1 << (run - 1).min(16)).min(PAUSE_MAX)
}

/// Warns if the time that the user gave is later than now.
fn warn_of_future(request: &BackupRequest, now_ns: i64) {
    if let Some(given) = request.time_ns.filter(|given| is_future(*given, now_ns)) {
        tracing::warn!("the snapshot is from the future: its time is {}", shown_time(given));
    }
}

/// One run over the source. Fails with [`Error::Pruned`] if a prune has deleted, or may delete, what it relies on.
fn run_once(
    repository: &Repository,
    config: &Config,
    request: &BackupRequest,
    progress: &Progress,
    stop: &Arc<AtomicBool>,
) -> Result<BackupReport> {
    let (started, time_ns) = (Instant::now(), repository.clock.now_ns());
    warn_of_future(request, time_ns);
    let (plan, paths) = (plan(request)?, recorded_paths(request)?);
    let prepared = prepare(repository, request, &paths)?;
    let counts = Arc::new(ReadCounts::default());
    let (input, root_node) = input(repository, config, request, &prepared, (plan, time_ns), (progress, &counts), stop)?;
    let is_tree = matches!(input, InputStage::Tree(_));
    let Prepared { listing, containers_adopted, parents, snapshots, cache, container_indexes } = prepared;
    let indexes = Indexes::open(repository, &config.index, &listing, container_indexes, cache.clone());
    let parent = parents.first().map(|parent| parent.id);
    let wiring =
        Wiring::new(RunParts { repository, config, indexes: &indexes, progress, counts: &counts, time_ns }, stop);
    let (saved, metrics, snapshot, index_hits) = if request.dry_run {
        let (saved, metrics) = run_dry_stages(wiring, input)?;
        (saved, metrics, String::new(), indexes.hits())
    } else {
        let has_flags = is_tree && cfg!(target_os = "linux");
        let start = SnapshotStart { time_ns, paths, parent, root_node, has_flags };
        let commit = Commit::new(repository, request, &listing, &indexes);
        let committed = run_stages(wiring, input).and_then(|(saved, metrics)| {
            let (id, index_hits) = commit.run(start, &saved, &counts)?;
            Ok((saved, metrics, id, index_hits))
        });
        let committed = committed.inspect_err(|_| commit.take_back());
        let released = commit.release();
        let (saved, metrics, id, index_hits) = committed?;
        let may_delete = released.inspect_err(|_| {
            tracing::error!("snapshot {id:.8} is whole, but readers leave it out until a prune has looked at it");
        })?;
        indexes.save_filter();
        may_delete.then(|| care_after_commit(repository, &listing, &cache, snapshots, stop));
        (saved, metrics, id.to_string(), index_hits)
    };
    Ok(BackupReport {
        snapshot,
        dry_run: request.dry_run,
        parent: parent.map(|parent| parent.to_string()),
        excluded: counts.excluded.load(Ordering::Relaxed),
        files: saved.tally.files,
        files_unchanged: counts.files_unchanged.load(Ordering::Relaxed),
        changes: FileChanges::new(&counts, saved.tally.files, is_tree),
        directories: saved.tally.directories,
        others: saved.tally.others,
        bytes: saved.tally.bytes,
        bytes_read: counts.bytes_read.load(Ordering::Relaxed),
        chunks: saved.chunks,
        chunks_new: saved.chunks_new,
        tensors: counts.tensors.load(Ordering::Relaxed),
        tensors_new: counts.tensors_new.load(Ordering::Relaxed),
        bytes_new: saved.bytes_new,
        bytes_stored: saved.bytes_stored,
        containers: saved.containers,
        containers_adopted,
        containers_unread: listing.unread_count(),
        marks_unread: listing.marks_unread(),
        problems: counts.problems.load(Ordering::Relaxed),
        seconds: started.elapsed().as_secs_f64(),
        index_hits,
        stages: metrics.iter().map(StageMetrics::summary).collect(),
        durable_us: indexes.durable_us(),
        metrics,
    })
}

/// The first stage, and the metadata of the snapshot's root. The run began at `time_ns`.
fn input<'a>(
    repository: &Repository,
    config: &Config,
    request: &BackupRequest,
    prepared: &Prepared,
    (plan, time_ns): (WalkPlan, i64),
    (progress, counts): (&'a Progress, &Arc<ReadCounts>),
    stop: &Arc<AtomicBool>,
) -> Result<(InputStage<'a>, Option<Node>)> {
    if let Some(stream) = &request.stream {
        let time_ns = request.time_ns.unwrap_or(time_ns);
        let stage = StreamStage::open(stream, time_ns, config, progress, counts.clone())?;
        return Ok((InputStage::Stream(Box::new(stage)), None));
    }
    if let Some(copied) = &request.copied {
        let input = stored(repository, config, copied, prepared, (progress, counts), stop)?;
        return Ok((input, copied.original.snapshot.root_node.clone()));
    }
    if !request.files.is_empty() {
        return Ok((memory(repository, config, request, prepared, time_ns, (progress, counts))?, None));
    }
    Ok(tree(repository, config, request, prepared, plan, (progress, counts), stop))
}

/// Readies the repository for the run, unless nothing may be written, and finds the parents.
fn prepare(repository: &Repository, request: &BackupRequest, paths: &[Vec<u8>]) -> Result<Prepared> {
    let cache = cache_directory(repository)?;
    if let Err(error) = create_private(&cache) {
        tracing::warn!("nothing is cached, so more is read and similar data may not be found: {error}");
    }
    let (listing, containers_adopted) = if request.dry_run {
        let mut listing = ContainerListing::take(&repository.store)?;
        listing.forget_orphans();
        count_lost(&mut listing, &HashSet::new())?;
        (Arc::new(listing), 0)
    } else {
        repository.check_writable()?;
        let marks = Marks::read(repository.store.as_ref())?;
        marks.check_writable()?;
        repository.store.clean_temporaries()?;
        if repository.config_is_doubtful
            && let Err(error) = repository.heal_config()
        {
            if error.kind() == ErrorKind::Interrupted {
                return Err(error);
            }
            tracing::warn!("a copy of the configuration is damaged and cannot be written again: {error}");
        }
        let (listing, containers_adopted) = adopt_orphans(repository, marks)?;
        heal_segments(repository, &listing)?;
        (listing, containers_adopted)
    };
    if let Some(copied) = &request.copied {
        let parents = copied.previous.iter().map(|(_, copy)| copy.clone()).collect();
        let container_indexes = Arc::default();
        return Ok(Prepared { listing, containers_adopted, parents, snapshots: None, cache, container_indexes });
    }
    let (parents, snapshots) = match &request.parent {
        _ if request.force || request.stream.is_some() => (Vec::new(), None),
        Some(id) => (vec![find_snapshot(repository, id, &SnapshotFilter::default())?], None),
        None => {
            let (parents, count) = find_parents(repository, &request.host, paths)?;
            (parents, Some(count))
        }
    };
    Ok(Prepared { listing, containers_adopted, parents, snapshots, cache, container_indexes: Arc::default() })
}

/// The stage that reads a snapshot of another repository.
fn stored<'a>(
    repository: &Repository,
    config: &Config,
    copied: &CopiedSnapshot,
    prepared: &Prepared,
    (progress, counts): (&'a Progress, &Arc<ReadCounts>),
    stop: &Arc<AtomicBool>,
) -> Result<InputStage<'a>> {
    let source = copied.repository.stopped_by(stop);
    let source_listing = Arc::new(ContainerListing::take(&source.store)?);
    let reader = Reader::new(&source, source_listing.clone());
    let (before, copy) = match &copied.previous {
        Some((before, copy)) => (before.snapshot.clone(), copy.snapshot.clone()),
        None => (Snapshot::default(), Snapshot::default()),
    };
    let same_chunks = source.key == repository.key && source.config == repository.config;
    let (target, listing) = (repository.clone(), prepared.listing.clone());
    let (shared, recheck_seconds) = (prepared.container_indexes.clone(), config.read.recheck_seconds);
    let new_known = move || KnownFiles {
        same_chunks,
        before: cursor(&source, &source_listing, &Arc::default(), &before, recheck_seconds),
        copy: cursor(&target, &listing, &shared, &copy, recheck_seconds),
    };
    let stored = StoredTree {
        root: copied.original.snapshot.root,
        exclude: copied.exclude.clone(),
        reader,
        new_known: Box::new(new_known),
    };
    let stage = StoredStage::new(stored, config, progress, counts.clone());
    Ok(InputStage::Stored(Box::new(stage)))
}

/// The stage that sends the files of the request.
fn memory<'a>(
    repository: &Repository,
    config: &Config,
    request: &BackupRequest,
    prepared: &Prepared,
    time_ns: i64,
    (progress, counts): (&'a Progress, &Arc<ReadCounts>),
) -> Result<InputStage<'a>> {
    let (listing, shared) = (&prepared.listing, &prepared.container_indexes);
    let cursor =
        |parent: &NamedSnapshot| cursor(repository, listing, shared, &parent.snapshot, config.read.recheck_seconds);
    let parents = ParentCursors(prepared.parents.iter().map(cursor).collect());
    let run = request.checkpoint.as_ref().map(|checkpoint| checkpoint.run.clone());
    let of = (run, request.time_ns.unwrap_or(time_ns));
    let stage = MemoryStage::new(memory::sorted(&request.files)?, parents, of, config, (progress, counts.clone()));
    Ok(InputStage::Memory(Box::new(stage)))
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
    let skip = [repository.store.local_path(), Some(prepared.cache.clone())];
    let skip: BTreeSet<FileIdentity> = skip.iter().flatten().filter_map(|path| identity(path)).collect();
    let candidates = if config.model.detect_formats {
        prescan(&request.paths, &skip, &request.choice, MODEL_CANDIDATES_MAX, stop)
    } else {
        Vec::new()
    };
    let walker = Walker::new(plan, skip, request.choice.clone());
    let root_node = walker.root().cloned();
    let (listing, shared) = (&prepared.listing, &prepared.container_indexes);
    let cursor =
        |parent: &NamedSnapshot| cursor(repository, listing, shared, &parent.snapshot, config.read.recheck_seconds);
    let cursors = ParentCursors(prepared.parents.iter().map(cursor).collect());
    let stage = WalkStage::new(walker, cursors, candidates, config, progress, counts.clone());
    (InputStage::Tree(Box::new(stage)), root_node)
}

fn plan(request: &BackupRequest) -> Result<WalkPlan> {
    if let Some(stream) = &request.stream {
        return stream.check().map(|()| WalkPlan::default());
    }
    if request.copied.is_some() || !request.files.is_empty() {
        return Ok(WalkPlan::default());
    }
    let plan = if request.bare { WalkPlan::bare(&request.paths)? } else { WalkPlan::new(&request.paths)? };
    if plan.found() == 0 {
        if let Some(error) = plan.failure() {
            return Err(error.duplicate());
        }
        let names: Vec<String> = request.paths.iter().take(4).map(|path| path.display().to_string()).collect();
        let more = if request.paths.len() > names.len() { ", ..." } else { "" };
        return Err(Error::Usage(format!("nothing to back up: {}{more} does not exist", names.join(", "))));
    }
    Ok(plan)
}

/// A cursor at the root of a snapshot.
fn cursor(
    repository: &Repository,
    listing: &Arc<ContainerListing>,
    shared: &Arc<SharedContainerIndexes>,
    snapshot: &Snapshot,
    recheck_seconds: u64,
) -> ParentCursor {
    let reader = ChunkReader::new(repository, listing.clone());
    let presence = ChunkPresence::new(repository.store.clone(), listing.clone(), shared.clone());
    ParentCursor::new(reader, presence, snapshot, recheck_seconds)
}

/// The absolute paths of the request that exist, sorted, without duplicates. A missing path is not recorded: the next
/// backup of it shall look for a parent that has it.
fn recorded_paths(request: &BackupRequest) -> Result<Vec<Vec<u8>>> {
    if let Some(copied) = &request.copied {
        return Ok(copied.original.snapshot.paths.iter().map(|path| path.to_vec()).collect());
    }
    if let Some(stream) = &request.stream {
        return Ok(vec![[b"/", stream.name.as_encoded_bytes()].concat()]);
    }
    if !request.files.is_empty() {
        let paths = memory::sorted(&request.files)?;
        return Ok(paths.iter().map(|file| [b"/", file.path.as_encoded_bytes()].concat()).collect());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_all_of_them_take_less_than_two_minutes() {
        let pauses: Vec<Duration> = (1..RUNS_MAX).map(pause_after).collect();
        assert!(pauses.is_sorted() && pauses[0] < pauses[1] && pauses[0] >= Duration::from_millis(200), "{pauses:?}");
        let sum: Duration = pauses.iter().sum();
        assert!((Duration::from_secs(60)..Duration::from_secs(120)).contains(&sum), "{sum:?}");
        assert_eq!(pause_after(u32::MAX), PAUSE_MAX);
    }
}
