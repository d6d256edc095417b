//! Backs up the sample into temporary repositories, and extrapolates.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use bytesize::ByteSize;

use super::sample::FileSample;
use super::{BackupEstimate, EstimatedBytes};
use crate::backup::{BackupRequest, ParentChoice, TreeSource, backup};
use crate::config::{ChunkerKind, CompressCodec, Config, ModelDelta, StrategyKind};
use crate::error::{Error, Result};
use crate::filesystem::{EntryChoice, suggests_model};
use crate::inspect::stats::repository_stats;
use crate::metrics::Progress;
use crate::repo::{Repository, ScratchDirectory};
use crate::store;

/// Sources up to this size are read whole, in one backup, if the time allows.
const WHOLE_BYTES_MAX: u64 = 256 << 20;
/// Groups of a larger source, at least.
const GROUPS_MIN: u64 = 64;
/// Bytes of a group, at most.
const GROUP_BYTES_MAX: u64 = 128 << 20;
/// Files of a group, at most.
const GROUP_FILES_MAX: usize = 4000;

/// How much an estimate may take.
#[derive(Debug, Clone)]
pub struct EstimateLimits {
    /// After this time no further group begins.
    pub time: Duration,
    /// Directory for the temporary repositories.
    pub directory: PathBuf,
}

/// What a group has read and stored, bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct GroupSizes {
    pub(super) bytes: u64,
    pub(super) stored: u64,
    pub(super) exact: u64,
}

/// A repository that is deleted at the end.
struct Trial {
    repository: Repository,
    config: Config,
    _directory: ScratchDirectory,
}

impl Trial {
    fn new(config: Config, limits: &EstimateLimits) -> Result<Trial> {
        let failed = |error| Error::io("create a directory in", &limits.directory, error);
        let directory = ScratchDirectory::create(&limits.directory, "estimate-").map_err(failed)?;
        let store = store::create(directory.path().join("store"))?;
        let mut repository = Repository::init(store, &config.repository)?;
        repository.cache_directory = Some(directory.path().join("cache").into());
        Ok(Trial { repository, config, _directory: directory })
    }

    /// Backs up `paths`, and returns the bytes that this stored, and those of new chunks.
    fn store(
        &self,
        (paths, number): (&[PathBuf], usize),
        choice: &EntryChoice,
        progress: &Progress,
        stop: &Arc<AtomicBool>,
    ) -> Result<(u64, u64)> {
        // Each group has a host of its own, so that none is the parent of another one.
        let source = TreeSource::new(paths.to_vec(), &format!("group-{number}"));
        let request =
            BackupRequest::new(TreeSource { choice: choice.clone(), parents: ParentChoice::Nothing, ..source });
        let report = backup(&self.repository, &self.config, &request, progress, stop)?;
        Ok((report.bytes_stored, report.bytes_new))
    }
}

/// Exact chunks of about 1 MiB, each compressed with zstd: what restic does.
fn exact_chunks(config: &Config) -> Config {
    let mut exact = config.clone();
    exact.repository.chunker = ChunkerKind::FastCdc;
    exact.repository.chunk_bytes_min = ByteSize::kib(512);
    exact.repository.chunk_bytes_avg = ByteSize::mib(1);
    exact.repository.chunk_bytes_max = ByteSize::mib(8);
    exact.identify.enabled = false;
    exact.subdedup.strategy = StrategyKind::None;
    exact.model.detect_formats = false;
    exact.model.delta = ModelDelta::None;
    exact.compress.codec = CompressCodec::Zstandard;
    (exact.compress.level, exact.compress.text_levels, exact.compress.frame_bytes) = (3, 0, ByteSize::b(0));
    exact
}

/// Estimates what a first backup of `paths` stores, whose files are in `sample`.
///
/// # Errors
/// Those of a backup and of the temporary directory.
pub fn estimate(
    paths: &[PathBuf],
    choice: &EntryChoice,
    sample: FileSample,
    config: &Config,
    limits: &EstimateLimits,
    progress: &Progress,
    stop: &Arc<AtomicBool>,
) -> Result<BackupEstimate> {
    let (files, bytes, all_models) = (sample.files, sample.bytes, sample.model_bytes);
    let is_small = bytes <= WHOLE_BYTES_MAX && sample.has_all();
    let group_bytes = (bytes / GROUPS_MIN).clamp(1, GROUP_BYTES_MAX);
    let groups = if is_small { vec![Vec::new()] } else { sample.into_groups(group_bytes, GROUP_FILES_MAX) };
    let (trial, exact) = (Trial::new(config.clone(), limits)?, Trial::new(exact_chunks(config), limits)?);
    let started = Instant::now();
    let (mut sizes, mut estimate) = (Vec::new(), BackupEstimate { files, bytes, ..BackupEstimate::default() });
    let (mut new_bytes, mut model_bytes) = (0, 0);
    let models = |path: &PathBuf, len: u64| if suggests_model(path) { len } else { 0 };
    for (number, group) in groups.iter().enumerate() {
        if number > 0 && started.elapsed() >= limits.time {
            break;
        }
        let group_paths: Vec<PathBuf> = group.iter().map(|(path, _)| path.clone()).collect();
        let stored = if is_small { paths } else { &group_paths };
        let (ours, new) = trial.store((stored, number), choice, progress, stop)?;
        let (theirs, _) = exact.store((stored, number), choice, &Progress::default(), stop)?;
        let read = if is_small { bytes } else { group.iter().map(|(_, len)| len).sum() };
        sizes.push(GroupSizes { bytes: read, stored: ours, exact: theirs });
        new_bytes += new;
        model_bytes += group.iter().map(|(path, len)| models(path, *len)).sum::<u64>();
        estimate.files_read += if is_small { files } else { group.len() as u64 };
        estimate.bytes_read += read;
    }
    if is_small {
        model_bytes = all_models;
    }
    estimate.whole = estimate.files_read == files;
    let rest = bytes.saturating_sub(estimate.bytes_read);
    estimate.stored = extrapolated(&sizes, rest, |group| group.stored);
    estimate.exact_chunks = extrapolated(&sizes, rest, |group| group.exact);
    let stats = repository_stats(&trial.repository)?;
    let share = |part: u64| if estimate.bytes_read == 0 { 0.0 } else { part as f64 / estimate.bytes_read as f64 };
    estimate.duplicate = share(estimate.bytes_read.saturating_sub(new_bytes));
    estimate.near_duplicate = share(stats.copied_bytes);
    estimate.incompressible = share(stats.frames.get("raw").map_or(0, |frames| frames.raw_bytes));
    estimate.models = share(model_bytes);
    Ok(estimate)
}

/// What the groups stored, and what `rest` more bytes take: the mean of two ways, each of which errs on one side. The
/// rate of the later half of the groups stays the same, or it goes on falling as it did.
pub(super) fn extrapolated(groups: &[GroupSizes], rest: u64, of: fn(&GroupSizes) -> u64) -> EstimatedBytes {
    let sum = groups.iter().map(of).sum::<u64>();
    if rest == 0 {
        return EstimatedBytes { bytes: sum, error: 0 };
    }
    let later = groups.get(groups.len() / 2..).unwrap_or_default();
    let bytes: u64 = later.iter().map(|group| group.bytes).sum();
    let rate = later.iter().map(of).sum::<u64>() as f64 / bytes.max(1) as f64;
    // The variance of a ratio: of what each group stores more or less than its bytes let expect.
    let count = later.len() as f64;
    let squares: f64 = later.iter().map(|group| (of(group) as f64 - rate * group.bytes as f64).powi(2)).sum();
    let standard_error = if later.len() < 2 { rate } else { (squares * count / (count - 1.0)).sqrt() / bytes as f64 };
    let (steady, rest) = (rate * rest as f64, rest as f64);
    let read: u64 = groups.iter().map(|group| group.bytes).sum();
    let growth = 1.0 + rest / read.max(1) as f64;
    let falling = (sum as f64 * (growth.powf(1.0 + decline(groups, of)) - 1.0)).min(steady);
    let error = 2.0 * standard_error * rest + (steady - falling) / 2.0;
    EstimatedBytes { bytes: sum + ((steady + falling) / 2.0).round() as u64, error: error as u64 }
}

/// The exponent by which the rate falls with the bytes that were read before: 0 if it does not, at least -0.5. The more
/// is stored, the more of what follows is there already.
fn decline(groups: &[GroupSizes], of: fn(&GroupSizes) -> u64) -> f64 {
    let (mut before, mut points) = (0.0, Vec::new());
    for group in groups.iter().filter(|group| group.bytes > 0 && of(group) > 0) {
        let bytes = group.bytes as f64;
        points.push(((before + bytes / 2.0).ln(), (of(group) as f64 / bytes).ln(), bytes));
        before += bytes;
    }
    let weight: f64 = points.iter().map(|(.., weight)| weight).sum();
    let mean = |of: fn(&(f64, f64, f64)) -> f64| points.iter().map(|point| of(point) * point.2).sum::<f64>() / weight;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let covariance: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y) * point.2).sum();
    let variance: f64 = points.iter().map(|point| (point.0 - x).powi(2) * point.2).sum();
    if variance > 0.0 { (covariance / variance).clamp(-0.5, 0.0) } else { 0.0 }
}
