//! Connects the eight stages of a restore and runs them.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use parking_lot::Mutex;

use super::base::RestoreRoot;
use super::decode::DecodeWorker;
use super::delete::{Deletion, check_deletion};
use super::fetch::FetchWorker;
use super::finish::FinishStage;
use super::gather::GatherStage;
use super::locate::LocateWorker;
use super::lost::DamagedFile;
use super::message::RestoreCounts;
use super::order::OrderStage;
use super::plan::{PlanParts, PlanStage};
use super::request::RestoreRequest;
use super::rescue::Rescue;
use super::verify::Verification;
use super::window::{JobSize, RestoreWindow};
use super::write::WriteWorker;
use crate::codec::Scratch;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::filesystem::{Target, TargetOptions};
use crate::metrics::{Progress, StageMetrics, StageSummary};
use crate::pipeline::Pipeline;
use crate::repo::Repository;
use crate::repo::index::ContainerListing;
use crate::repo::paths::cache_directory;
use crate::repo::read::ChunkReader;
use crate::repo::snapshot::{NamedSnapshot, explain_loss, forgotten, is_forgotten};
use crate::store::StoreExt;

/// Cache of decoded frames that hold recipes and listings, bytes.
pub(super) const METADATA_CACHE_BYTES: usize = 16 << 20;

/// Workers of Locate, at most. Each one has a cache of container indexes.
const LOCATE_WORKERS_MAX: usize = 4;
/// That cache, bytes.
const LOCATE_INDEX_BYTES: usize = 16 << 20;

/// Result of a restore.
#[derive(Debug, Clone, serde::Serialize)]
pub struct RestoreReport {
    /// Snapshot id, 64 hex digits.
    pub snapshot: String,
    /// Directory that holds the restored tree.
    pub target: String,
    /// Regular files that are complete.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Links and special files.
    pub others: u64,
    /// Files, links and special files that were the same already.
    pub unchanged: u64,
    /// Existing entries that were replaced. They also count as files or others.
    pub replaced: u64,
    /// Existing entries that differ and were left alone.
    pub left_alone: u64,
    /// Hard links that the target refused and that are copies. They also count as files or others, and as warnings.
    pub copied_links: u64,
    /// Metadata and hard links that the target refused. Each is logged.
    pub warnings: u64,
    /// Entries that were compared with the snapshot afterwards and are the same.
    pub verified: u64,
    /// Entries that the snapshot does not have and that were deleted.
    pub deleted: u64,
    /// Paths of these below the target, at most 1000.
    pub deleted_entries: Vec<String>,
    /// Bytes of file content that were written from the repository.
    pub bytes: u64,
    /// Bytes of file content that the target held already.
    pub bytes_reused: u64,
    /// Whether nothing was changed, and the counts say what would be done.
    pub dry_run: bool,
    /// Frames decoded.
    pub frames: u64,
    /// Decoded bytes of those frames.
    pub frame_bytes: u64,
    /// Entries that could not be written, or that only a newer version can read. Each is logged.
    pub problems: u64,
    /// Files and directories that damage in the repository has cost bytes. Each is logged.
    pub damaged: u64,
    /// Files that are not whole, at most 1000.
    pub damaged_files: Vec<DamagedFile>,
    /// Number of such files that are not listed.
    pub damaged_files_more: u64,
    /// Duration, seconds.
    pub seconds: f64,
    /// Metrics of each stage.
    pub stages: Vec<StageSummary>,
    /// The same metrics with full distributions.
    #[serde(skip)]
    pub metrics: Vec<StageMetrics>,
}

/// Restores what `request` asks for of a snapshot: by default all of it, without replacing anything.
///
/// A problem with a single entry is logged (`tracing::error!`) and counted, and the restore continues. A file has its
/// name only if it is whole. Otherwise it is called `NAME.damaged`, unless `config.restore.keep_damaged` is off.
///
/// # Errors
/// Fails if the target is in the repository or cannot be created, the disk is full, or the user interrupts the restore.
pub fn restore(
    repository: &Repository,
    config: &Config,
    snapshot: &NamedSnapshot,
    request: impl Into<RestoreRequest>,
    progress: &Progress,
    stop: &Arc<AtomicBool>,
) -> Result<RestoreReport> {
    let (started, mut request) = (Instant::now(), request.into());
    let repository = &repository.stopped_by(stop);
    check_deletion(&request)?;
    let options = target_options(repository, &request);
    let listing = Arc::new(ContainerListing::take(&repository.store)?);
    let reader = || ChunkReader::with_cache(repository, listing.clone(), METADATA_CACHE_BYTES);
    let base = find_root(repository, snapshot, &mut request, &mut reader())?;
    let root = Arc::new(Target::create(&request.target, options.clone())?);
    let counts = Arc::new(RestoreCounts::default());
    let rescue = Arc::new(Rescue { reader: Mutex::new(reader()), counts: counts.clone(), progress });
    let plan_reader = reader();
    let locating = plan_reader.sharing(LOCATE_INDEX_BYTES);
    let parts = PlanParts {
        reader: plan_reader,
        root: &base,
        target: root.clone(),
        key: repository.key,
        counts: counts.clone(),
        progress,
    };
    let plan = PlanStage::new(parts, &request, &config.restore);
    let finish = FinishStage {
        target: root.clone(),
        keep_damaged: config.restore.keep_damaged,
        counts: counts.clone(),
        progress,
    };

    let parts = LaterParts { repository, config, target: root.clone(), counts: counts.clone(), rescue, locating };
    let root_node = base.node.as_ref().filter(|_| request.selection.root().is_chosen());
    let write = || {
        let stages = run_stages(plan, parts, finish, stop)?;
        let mut problems = Vec::new();
        root.finish_root(root_node, &mut problems);
        problems.iter().for_each(|error| counts.problem(error));
        let deletion = Deletion::new(reader(), &request, counts.clone(), options.notes.clone(), stop.clone());
        let deleted = if request.delete { deletion.run(&base, &root, options.clone())? } else { Vec::new() };
        Ok((stages, deleted))
    };
    let written: Result<_> = write();
    set_late_flags(&root, &counts);
    let (stages, deleted) = written?;
    if request.verify && !request.dry_run {
        let target = Target::create(&request.target, TargetOptions { dry_run: true, sync: false, ..options })?;
        let (target, key, counts, stop) = (Arc::new(target), repository.key, counts.clone(), stop.clone());
        let verification = Verification { reader: reader(), target, key, counts, stop };
        root_node.into_iter().for_each(|node| verification.root(node));
        verification.run(&base, request.selection.clone())?;
    }
    if counts.damaged.get() > 0 && is_forgotten(repository.store.as_ref(), &snapshot.id)? {
        return Err(forgotten(&snapshot.id));
    }
    Ok(report(snapshot, &request, &counts, deleted, root.warnings(), started, stages))
}

/// What `request` restores. A base that is no directory becomes the only path that is chosen.
///
/// # Errors
/// Errors of [`RestoreRoot::find`]; [`Error::Usage`] if paths are chosen below what is no directory.
pub(super) fn find_root(
    repository: &Repository,
    snapshot: &NamedSnapshot,
    request: &mut RestoreRequest,
    reader: &mut ChunkReader,
) -> Result<RestoreRoot> {
    let base = RestoreRoot::find(&snapshot.snapshot, request.base.as_deref(), reader);
    let base = base.map_err(|error| explain_loss(repository.store.as_ref(), [&snapshot.id], error))?;
    match &base.only {
        Some(only) if request.selection.paths.is_empty() => request.selection.paths.push(only.clone()),
        Some(only) => return Err(Error::Usage(format!("{} is no directory", only.display()))),
        None => {}
    }
    Ok(base)
}

fn target_options(repository: &Repository, request: &RestoreRequest) -> TargetOptions {
    let keep_temporary = request.selection.has_patterns();
    let (dry_run, sync) = (request.dry_run, request.sync);
    let mut options = TargetOptions { dry_run, sync, keep_temporary, ..TargetOptions::default() };
    repository.store.local_path().into_iter().for_each(|path| options.protect(&path));
    cache_directory(repository).iter().for_each(|path| options.protect(path));
    options
}

/// Sets the flags that end all changes of an entry. After a failure, too: what was unlocked is locked again.
fn set_late_flags(root: &Target, counts: &RestoreCounts) {
    let mut problems = Vec::new();
    root.set_late_flags(&mut problems);
    problems.iter().for_each(|error| counts.problem(error));
}

/// What the stages between Plan and Finish share.
struct LaterParts<'a> {
    repository: &'a Repository,
    config: &'a Config,
    target: Arc<Target>,
    counts: Arc<RestoreCounts>,
    /// Finds other entries of chunks whose frames are damaged.
    rescue: Arc<Rescue<'a>>,
    /// Shares what it reads with Plan.
    locating: ChunkReader,
}

/// Links the stages and runs them.
fn run_stages(
    plan: PlanStage<'_>,
    parts: LaterParts<'_>,
    finish: FinishStage<'_>,
    stop: &Arc<AtomicBool>,
) -> Result<Vec<StageMetrics>> {
    let LaterParts { repository, config, target, counts, rescue, locating } = parts;
    let (workers, store) = (&config.pipeline, &repository.store);
    let job_size = JobSize::of_store(store.requests_max());
    let window = RestoreWindow::new(config.restore.cache_bytes.0, job_size, counts.clone());
    let mut line = Pipeline::new(workers.queue_depth, stop.clone());
    let link = line.source(plan);
    let link = line.parallel(link, workers.workers_of(0).min(LOCATE_WORKERS_MAX), || LocateWorker {
        reader: locating.sharing(LOCATE_INDEX_BYTES),
        counts: counts.clone(),
    });
    let link = line.stage(link, OrderStage { window, resolver: locating.resolver, rescue: rescue.clone() });
    let link = line.parallel(link, fetch_workers(config, repository), || FetchWorker { store: store.clone() });
    let link = line.parallel(link, workers.workers_of(workers.decode_workers), || DecodeWorker {
        store: store.clone(),
        scratch: Scratch::default(),
    });
    let link = line.stage(link, GatherStage::default());
    let link = line.parallel(link, workers.workers_of(workers.write_workers), || WriteWorker {
        target: target.clone(),
        key: repository.key,
        buffer: Vec::new(),
        scratch: Scratch::default(),
        counts: counts.clone(),
        rescue: rescue.clone(),
        stop: stop.clone(),
    });
    let ((), stages) = line.run(link, finish)?;
    Ok(stages)
}

/// Workers of Fetch: of a remote store as many as it takes requests, unless the configuration says how many.
fn fetch_workers(config: &Config, repository: &Repository) -> usize {
    let (workers, requests_max) = (&config.pipeline, repository.store.requests_max());
    let is_set = workers.fetch_workers > 0 || requests_max == 1;
    if is_set { workers.workers_of(workers.fetch_workers) } else { requests_max }
}

fn report(
    snapshot: &NamedSnapshot,
    request: &RestoreRequest,
    counts: &RestoreCounts,
    deleted: Vec<String>,
    warnings: u64,
    started: Instant,
    stages: Vec<StageMetrics>,
) -> RestoreReport {
    let damaged_files = counts.damaged_files.take();
    RestoreReport {
        snapshot: snapshot.id.to_string(),
        target: request.target.display().to_string(),
        files: counts.files.get(),
        directories: counts.directories.get(),
        others: counts.others.get(),
        unchanged: counts.unchanged.get(),
        replaced: counts.replaced.get(),
        left_alone: counts.left_alone.get(),
        copied_links: counts.copied_links.get(),
        warnings,
        verified: counts.verified.get(),
        deleted: counts.deleted.get(),
        deleted_entries: deleted,
        bytes: counts.bytes.get(),
        bytes_reused: counts.bytes_reused.get(),
        dry_run: request.dry_run,
        frames: counts.frames.get(),
        frame_bytes: counts.frame_bytes.get(),
        problems: counts.problems.get(),
        damaged: counts.damaged.get(),
        damaged_files: damaged_files.files,
        damaged_files_more: damaged_files.more,
        seconds: started.elapsed().as_secs_f64(),
        stages: stages.iter().map(StageMetrics::summary).collect(),
        metrics: stages,
    }
}
