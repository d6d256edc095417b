//! Connects the six stages of a restore and runs them.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::decode::DecodeWorker;
use super::fetch::FetchWorker;
use super::finish::FinishStage;
use super::gather::GatherStage;
use super::lost::DamagedFile;
use super::message::RestoreCounts;
use super::plan::PlanStage;
use super::write::WriteWorker;
use crate::codec::Scratch;
use crate::config::Config;
use crate::error::Result;
use crate::filesystem::Target;
use crate::metrics::{Progress, StageMetrics, StageSummary};
use crate::pipeline::Pipeline;
use crate::repo::Repository;
use crate::repo::index::ContainerListing;
use crate::repo::reader::ChunkReader;
use crate::repo::snapshot::NamedSnapshot;

/// Cache of decoded frames that hold recipes and listings, bytes.
const METADATA_CACHE_BYTES: usize = 16 << 20;

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
    /// Bytes of file content.
    pub bytes: u64,
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

/// Restores a snapshot into the directory `target`, which is created if it is absent. Nothing is overwritten.
///
/// A problem with a single entry is logged (`tracing::error!`) and counted, and the restore continues. A file has its
/// name only if it is whole. Otherwise it is called `NAME.damaged`, unless `config.restore.keep_damaged` is off.
///
/// # Errors
/// Fails if the target cannot be created, the disk is full, or the user interrupts the restore.
pub fn restore(
    repository: &Repository,
    config: &Config,
    snapshot: &NamedSnapshot,
    target: &Path,
    progress: &Progress,
    stop: &Arc<AtomicBool>,
) -> Result<RestoreReport> {
    let started = Instant::now();
    let repository = &repository.stopped_by(stop);
    let listing = Arc::new(ContainerListing::take(&repository.store)?);
    let reader = ChunkReader::new(repository, listing.clone(), METADATA_CACHE_BYTES);
    let rescue = Arc::new(Mutex::new(ChunkReader::new(repository, listing, METADATA_CACHE_BYTES)));
    let root = Arc::new(Target::create(target)?);
    let counts = Arc::new(RestoreCounts::default());
    let plan = PlanStage::new(reader, snapshot.snapshot.root, root.clone(), &config.restore, counts.clone());
    let finish = FinishStage {
        target: root.clone(),
        keep_damaged: config.restore.keep_damaged,
        counts: counts.clone(),
        progress,
    };

    let workers = &config.pipeline;
    let mut line = Pipeline::new(workers.queue_depth, stop.clone());
    let link = line.source(plan);
    let link = line
        .parallel(link, workers.workers_of(workers.fetch_workers), || FetchWorker { store: repository.store.clone() });
    let link = line.parallel(link, workers.workers_of(workers.decode_workers), DecodeWorker::default);
    let link = line.stage(link, GatherStage::default());
    let link = line.parallel(link, workers.workers_of(workers.write_workers), || WriteWorker {
        key: repository.key,
        buffer: Vec::new(),
        scratch: Scratch::default(),
        counts: counts.clone(),
        progress,
        rescue: rescue.clone(),
    });
    let ((), stages) = line.run(link, finish)?;
    if let Some(node) = &snapshot.snapshot.root_node {
        let mut problems = Vec::new();
        root.finish_root(node, &mut problems);
        problems.iter().for_each(|error| counts.problem(error));
    }
    let damaged_files = counts.damaged_files.take();
    Ok(RestoreReport {
        snapshot: snapshot.id.to_string(),
        target: target.display().to_string(),
        files: counts.files.get(),
        directories: counts.directories.get(),
        others: counts.others.get(),
        bytes: counts.bytes.get(),
        frames: counts.frames.get(),
        frame_bytes: counts.frame_bytes.get(),
        problems: counts.problems.get(),
        damaged: counts.damaged.get(),
        damaged_files: damaged_files.files,
        damaged_files_more: damaged_files.more,
        seconds: started.elapsed().as_secs_f64(),
        stages: stages.iter().map(StageMetrics::summary).collect(),
        metrics: stages,
    })
}
