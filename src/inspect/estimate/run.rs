//! Backs up the sample into temporary repositories, and extrapolates.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use bytesize::ByteSize;

use super::sample::FileSample;
use super::{BackupEstimate, EstimatedBytes};
use crate::backup::{BackupReport, BackupRequest, ParentChoice, TreeSource, backup};
use crate::config::{ChunkerKind, CompressCodec, Config, ModelDelta, StrategyKind};
use crate::error::{Error, ErrorKind, Result};
use crate::filesystem::{EntryChoice, suggests_model};
use crate::inspect::stats::{RepositoryStats, repository_stats};
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
/// Time between two looks at whether the user asks to stop.
const PATIENCE: Duration = Duration::from_millis(20);

/// What an estimate looks at.
#[derive(Debug)]
pub struct EstimateSource<'a> {
    /// Paths as given.
    pub paths: &'a [PathBuf],
    /// What of them a backup would store.
    pub choice: &'a EntryChoice,
    /// Directories that it would leave out: the repository and its caches.
    pub skip: &'a [PathBuf],
    /// The files.
    pub sample: FileSample,
}

/// How much an estimate may take.
#[derive(Debug, Clone)]
pub struct EstimateLimits {
    /// After this time the group that is read is given up, and no further one begins.
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

    fn store(&self, request: &BackupRequest, progress: &Progress, stop: &Arc<AtomicBool>) -> Result<BackupReport> {
        backup(&self.repository, &self.config, request, progress, stop)
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

/// A part of the sample that is read at once.
struct SampleGroup {
    paths: Vec<PathBuf>,
    bytes: u64,
    model_bytes: u64,
}

impl SampleGroup {
    fn of(files: Vec<(PathBuf, u64)>) -> Self {
        let models = |(path, len): &(PathBuf, u64)| if suggests_model(path) { *len } else { 0 };
        SampleGroup {
            bytes: files.iter().map(|(_, len)| len).sum(),
            model_bytes: files.iter().map(models).sum(),
            paths: files.into_iter().map(|(path, _)| path).collect(),
        }
    }
}

/// What the groups have given that were read whole.
#[derive(Default)]
struct GroupTally {
    sizes: Vec<GroupSizes>,
    files: u64,
    /// Bytes of all of these groups.
    bytes: u64,
    bytes_read: u64,
    new_bytes: u64,
    model_bytes: u64,
    problems: u64,
    stats: RepositoryStats,
}

/// Both repositories.
struct Trials<'a> {
    ours: Trial,
    exact: Trial,
    choice: &'a EntryChoice,
    skip: &'a [PathBuf],
    progress: &'a Progress,
}

impl Trials<'_> {
    /// Reads the groups until `over` is set. One that is cut off does not count.
    fn read(&self, groups: &[SampleGroup], over: &Arc<AtomicBool>) -> Result<GroupTally> {
        let mut tally = GroupTally::default();
        for (number, group) in groups.iter().enumerate() {
            if groups.len() > 1 && group.paths.iter().all(|path| path.symlink_metadata().is_err()) {
                tracing::warn!("{} files of a part of the sample are gone", group.paths.len());
                tally.problems += group.paths.len() as u64;
                continue;
            }
            match self.read_one(group, number, &mut tally, over) {
                Err(error) if error.kind() == ErrorKind::Interrupted => break,
                read => read?,
            }
        }
        Ok(tally)
    }

    fn read_one(
        &self,
        group: &SampleGroup,
        number: usize,
        tally: &mut GroupTally,
        over: &Arc<AtomicBool>,
    ) -> Result<()> {
        if over.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        // Each group has a host of its own, so that none is the parent of another one.
        let request = BackupRequest::new(TreeSource {
            choice: self.choice.clone(),
            skip: self.skip.to_vec(),
            parents: ParentChoice::Nothing,
            ..TreeSource::new(group.paths.clone(), &format!("group-{number}"))
        });
        let again = BackupRequest { without_names: true, ..request.clone() };
        let exact = self.exact.store(&again, &Progress::default(), over)?;
        // Last, so that the statistics have nothing of a group that is cut off.
        let ours = self.ours.store(&request, self.progress, over)?;
        tally.stats = repository_stats(&self.ours.repository)?;
        tally.sizes.push(GroupSizes { bytes: group.bytes, stored: ours.bytes_stored, exact: exact.bytes_stored });
        tally.files += ours.files;
        tally.bytes += group.bytes;
        tally.bytes_read += ours.bytes_read;
        tally.new_bytes += ours.bytes_new;
        tally.model_bytes += group.model_bytes;
        tally.problems += ours.problems;
        Ok(())
    }
}

/// Does `work` with a flag that is set once the time is over or `stop` is set.
fn in_time<T>(time: Duration, stop: &AtomicBool, work: impl FnOnce(&Arc<AtomicBool>) -> T) -> T {
    let over = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        // Also dropped after a panic of the work.
        let (alive, ended) = channel();
        let flag = over.clone();
        scope.spawn(move || watch(time, stop, &flag, &ended));
        let done = work(&over);
        drop(alive);
        done
    })
}

/// Sets `over` once the time is over or `stop` is set. Ends when the sender of `ended` is dropped.
fn watch(time: Duration, stop: &AtomicBool, over: &AtomicBool, ended: &Receiver<()>) {
    let started = Instant::now();
    while ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
        if stop.load(Ordering::Relaxed) || started.elapsed() >= time {
            over.store(true, Ordering::Relaxed);
            return;
        }
    }
}

/// Estimates what a first backup of `source` stores. Entries that cannot be read are named and counted.
///
/// # Errors
/// Errors of a backup and of the temporary directory; [`Error::Usage`] if nothing was read whole in the time.
pub fn estimate(
    source: EstimateSource<'_>,
    config: &Config,
    limits: &EstimateLimits,
    progress: &Progress,
    stop: &Arc<AtomicBool>,
) -> Result<BackupEstimate> {
    let EstimateSource { paths, choice, skip, mut sample } = source;
    let (files, bytes, model_bytes, has_all) = (sample.files, sample.bytes, sample.model_bytes, sample.has_all());
    let group_bytes = (bytes / GROUPS_MIN).clamp(1, GROUP_BYTES_MAX);
    let mut problems = 0;
    let groups: Vec<SampleGroup> = match bytes <= WHOLE_BYTES_MAX && has_all {
        // The backup of all of it meets what cannot be looked at.
        true => vec![SampleGroup { paths: paths.to_vec(), bytes, model_bytes }],
        false => {
            problems = sample.problems;
            sample.unread.drain(..).for_each(|error| tracing::warn!("{error}"));
            sample.into_groups(group_bytes, GROUP_FILES_MAX).into_iter().map(SampleGroup::of).collect()
        }
    };
    let (ours, exact) = (Trial::new(config.clone(), limits)?, Trial::new(exact_chunks(config), limits)?);
    let trials = Trials { ours, exact, choice, skip, progress };
    let tally = in_time(limits.time, stop, |over| trials.read(&groups, over))?;
    if stop.load(Ordering::Relaxed) {
        return Err(Error::Interrupted);
    }
    if tally.sizes.is_empty() {
        let text = format!("no part of the files was read whole in {:?}: give more time with --time", limits.time);
        return Err(Error::Usage(text));
    }
    let rest = bytes.saturating_sub(tally.bytes);
    let share = |part: u64| if part == 0 { 0.0 } else { (part as f64 / tally.bytes_read.max(1) as f64).min(1.0) };
    Ok(BackupEstimate {
        files,
        bytes,
        files_read: tally.files,
        bytes_read: tally.bytes_read,
        whole: has_all && tally.sizes.len() == groups.len(),
        stored: extrapolated(&tally.sizes, rest, |group| group.stored),
        exact_chunks: extrapolated(&tally.sizes, rest, |group| group.exact),
        duplicate: share(tally.bytes_read.saturating_sub(tally.new_bytes)),
        near_duplicate: share(tally.stats.copied_bytes),
        models: share(tally.model_bytes),
        incompressible: share(tally.stats.frames.get("raw").map_or(0, |frames| frames.raw_bytes)),
        problems: problems + tally.problems,
    })
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
