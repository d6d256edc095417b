//! Restore: from a snapshot to a directory.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use crate::codec::Scratch;
use crate::config::Config;
use crate::error::Result;
use crate::filesystem::Target;
use crate::metrics::{Progress, StageMetrics, StageSummary};
use crate::pipeline::Pipeline;
use crate::repo::Repository;
use crate::repo::index::Listing;
use crate::repo::reader::ChunkReader;
use crate::repo::snapshot::Named;
use crate::restore::decode::DecodeWorker;
use crate::restore::fetch::FetchWorker;
use crate::restore::finish::FinishStage;
use crate::restore::gather::GatherStage;
use crate::restore::message::RestoreCounts;
use crate::restore::plan::PlanStage;
use crate::restore::write::WriteWorker;

/// Decoded frames of recipes and listings kept, bytes.
const METADATA_CACHE_BYTES: usize = 16 << 20;

/// What a restore did.
#[derive(Debug, Clone, serde::Serialize)]
pub struct RestoreReport {
    /// The snapshot, 64 hex digits.
    pub snapshot: String,
    /// Where the tree was written.
    pub target: String,
    /// Regular files written completely.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Links and special files.
    pub others: u64,
    /// Bytes of content.
    pub bytes: u64,
    /// LoadedFrames decoded.
    pub frames: u64,
    /// Bytes those frames decoded to.
    pub frame_bytes: u64,
    /// Entries that could not be written: each was reported.
    pub problems: u64,
    /// Files lost to damage in the repository: each was reported.
    pub damaged: u64,
    /// Seconds.
    pub seconds: f64,
    /// What each stage did.
    pub stages: Vec<StageSummary>,
    /// The same with whole distributions.
    #[serde(skip)]
    pub metrics: Vec<StageMetrics>,
}

/// Restores a snapshot below `target`, which is created if absent; nothing that exists is overwritten.
/// Problems with single entries are logged (`tracing::error!`) and counted, and the rest goes on.
///
/// # Errors
/// Anything that ends the restore as a whole: the target cannot be made or is full, an interruption.
pub fn restore(
    repository: &Repository,
    config: &Config,
    snapshot: &Named,
    target: &Path,
    progress: &Progress,
    stop: &Arc<AtomicBool>,
) -> Result<RestoreReport> {
    let started = Instant::now();
    let listing = Arc::new(Listing::take(&repository.store)?);
    let reader = ChunkReader::new(repository, listing, METADATA_CACHE_BYTES);
    let root = Arc::new(Target::create(target)?);
    let counts = Arc::new(RestoreCounts::default());
    let plan = PlanStage::new(reader, snapshot.snapshot.root, root.clone(), &config.restore, counts.clone());
    let finish = FinishStage { target: root.clone(), root: target.into(), counts: counts.clone(), progress };

    let workers = &config.pipeline;
    let mut line = Pipeline::new(workers.queue_depth, stop.clone());
    let link = line.source(plan);
    let link = line
        .parallel(link, workers.workers_of(workers.fetch_workers), || FetchWorker { store: repository.store.clone() });
    let link = line.parallel(link, workers.workers_of(workers.decode_workers), DecodeWorker::default);
    let link = line.stage(link, GatherStage::default());
    let link = line.parallel(link, workers.workers_of(workers.write_workers), || WriteWorker {
        key: repository.key,
        space: Vec::new(),
        scratch: Scratch::default(),
        counts: counts.clone(),
        progress,
    });
    let ((), stages) = line.run(link, finish)?;
    if let Some(node) = &snapshot.snapshot.root_node {
        let mut problems = Vec::new();
        root.finish_root(node, &mut problems);
        problems.iter().for_each(|error| counts.problem(error));
    }
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
        seconds: started.elapsed().as_secs_f64(),
        stages: stages.iter().map(StageMetrics::summary).collect(),
        metrics: stages,
    })
}
