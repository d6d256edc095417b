//! Backs up the sample into temporary repositories, and extrapolates.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use bytesize::ByteSize;

use super::extrapolate::{GroupSizes, extrapolated};
use super::sample::FileSample;
use super::units::{GroupLimits, SampleGroup, SampleMember};
use super::{BackupEstimate, EstimatedBytes};
use crate::backup::{
    BackupReport, BackupRequest, BackupSource, MemoryContent, MemoryFile, MemorySource, ParentChoice, SnapshotLabels,
    TreeSource, backup,
};
use crate::config::{ChunkerKind, CompressCodec, Config, ModelDelta, StrategyKind};
use crate::error::{Error, ErrorKind, Result};
use crate::filesystem::EntryChoice;
use crate::inspect::stats::{RepositoryStats, repository_stats};
use crate::metrics::Progress;
use crate::read_at::fill;
use crate::repo::{Repository, ScratchDirectory};
use crate::store;
use crate::wire::open_regular;

/// Of a source up to this size, all may be read; of a larger one, so many bytes or the share below.
const READ_BYTES_MAX: u64 = 1 << 30;
/// One byte in so many of a large source is read, at most.
const READ_SHARE: u64 = 20;
/// Groups of a source that is not read whole, at least.
const GROUPS_MIN: u64 = 64;
/// Bytes of a group, about, at most.
const GROUP_BYTES_MAX: u64 = 32 << 20;
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
    /// Bytes of groups that are too large to be read.
    too_large: u64,
}

impl GroupTally {
    fn add(&mut self, ours: &BackupReport) {
        self.bytes_read += ours.bytes_read;
        self.new_bytes += ours.bytes_new;
        self.problems += ours.problems;
    }
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
    /// Reads groups of about `limits.bytes` until `over` is set, or `budget` bytes were read. A group that is cut off
    /// does not count.
    fn read(
        &self,
        groups: Vec<SampleGroup>,
        limits: &GroupLimits,
        budget: u64,
        over: &Arc<AtomicBool>,
    ) -> Result<GroupTally> {
        let mut tally = GroupTally::default();
        for (number, group) in groups.into_iter().enumerate() {
            let left = budget.saturating_sub(tally.bytes);
            if group.bytes > left && left < limits.bytes {
                break;
            } else if group.bytes > left {
                tally.too_large += group.bytes;
                continue;
            }
            if group.members.iter().all(|member| member.path.symlink_metadata().is_err()) {
                tracing::warn!("{} files of a part of the sample are gone", group.members.len());
                tally.problems += group.members.len() as u64;
                continue;
            }
            match self.read_group(group, number, &mut tally, over) {
                Err(error) if error.kind() == ErrorKind::Interrupted => break,
                read => read?,
            }
        }
        Ok(tally)
    }

    fn read_group(
        &self,
        group: SampleGroup,
        number: usize,
        tally: &mut GroupTally,
        over: &Arc<AtomicBool>,
    ) -> Result<()> {
        let SampleGroup { members, bytes, model_bytes } = group;
        let (parts, whole): (Vec<_>, Vec<_>) = members.into_iter().partition(|member| member.start.is_some());
        let (files, first_parts) = (whole.len(), parts.iter().filter(|part| part.start == Some(0)).count());
        let whole: Vec<PathBuf> = whole.into_iter().map(|member| member.path).collect();
        let mut problems = 0;
        let tree = (!whole.is_empty()).then(|| self.tree(whole, &format!("group-{number}")));
        let given = parts_source(parts, &format!("parts-{number}"), &mut problems);
        let mut sizes = GroupSizes { bytes, stored: 0, exact: 0 };
        let mut reports = Vec::new();
        for source in tree.into_iter().chain(given) {
            let (ours, exact) = self.store(source, over)?;
            sizes.stored += ours.bytes_stored;
            sizes.exact += exact;
            reports.push(ours);
        }
        // Files may have become shorter since the scan, or something else.
        let read: u64 = reports.iter().map(|ours| ours.bytes).sum();
        if read < bytes {
            problems += u64::from(problems == 0 && reports.iter().all(|ours| ours.problems == 0));
            sizes.bytes = read;
        }
        reports.iter().for_each(|ours| tally.add(ours));
        tally.sizes.push(sizes);
        tally.files += (files + first_parts) as u64;
        tally.bytes += bytes;
        tally.model_bytes += model_bytes;
        tally.problems += problems;
        Ok(())
    }

    /// Each group has a host of its own, so that none is the parent of another one.
    fn tree(&self, paths: Vec<PathBuf>, host: &str) -> BackupSource {
        let tree = TreeSource {
            choice: self.choice.clone(),
            skip: self.skip.to_vec(),
            parents: ParentChoice::Nothing,
            ..TreeSource::new(paths, host)
        };
        tree.into()
    }

    /// Stores the source in both repositories: the report of ours, and the bytes that the other one stored.
    fn store(&self, source: BackupSource, over: &Arc<AtomicBool>) -> Result<(BackupReport, u64)> {
        if over.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        let request = BackupRequest::new(source);
        let ours = self.ours.store(&request, self.progress, over)?;
        let again = BackupRequest { without_names: true, ..request };
        let exact = self.exact.store(&again, &Progress::default(), over)?;
        Ok((ours, exact.bytes_stored))
    }
}

/// The parts that can be read, as files in memory. The others are named and counted.
pub(super) fn parts_source(parts: Vec<SampleMember>, host: &str, problems: &mut u64) -> Option<BackupSource> {
    let mut files = Vec::new();
    for (number, part) in parts.into_iter().enumerate() {
        let mut space = vec![0; usize::try_from(part.bytes).unwrap_or_default()];
        let read = open_regular(&part.path).and_then(|file| fill(&file, part.start.unwrap_or_default(), &mut space));
        match (read, part.path.file_name()) {
            (Ok(()), Some(name)) => {
                let path = [format!("{number:04}/").as_ref(), name].into_iter().collect();
                files.push(MemoryFile { path, content: MemoryContent::Parts(vec![Bytes::from(space)]) });
            }
            (Err(error), _) => {
                tracing::warn!("{}", Error::io("read", &part.path, error));
                *problems += 1;
            }
            (Ok(()), None) => {}
        }
    }
    (!files.is_empty())
        .then(|| MemorySource { files, labels: SnapshotLabels::of_host(host), ..MemorySource::default() }.into())
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
    let started = Instant::now();
    let trials = || -> Result<Trials<'_>> {
        let (ours, exact) = (Trial::new(config.clone(), limits)?, Trial::new(exact_chunks(config), limits)?);
        Ok(Trials { ours, exact, choice: source.choice, skip: source.skip, progress })
    };
    if source.sample.bytes <= READ_BYTES_MAX && source.sample.has_all() {
        let whole = in_time(limits.time / 2, stop, |over| read_whole(&trials()?, &source, over));
        match whole {
            Err(error) if error.kind() == ErrorKind::Interrupted && !stop.load(Ordering::Relaxed) => {}
            whole => return whole,
        }
    }
    let left = EstimateLimits { time: limits.time.saturating_sub(started.elapsed()), ..limits.clone() };
    let trials = trials()?;
    extrapolate(trials, source.sample, &left, stop)
}

/// Reads all of a source in one backup.
fn read_whole(trials: &Trials<'_>, source: &EstimateSource<'_>, over: &Arc<AtomicBool>) -> Result<BackupEstimate> {
    let FileSample { files, bytes, model_bytes, .. } = source.sample;
    let (ours, exact) = trials.store(trials.tree(source.paths.to_vec(), "all"), over)?;
    let mut tally = GroupTally { files: ours.files, bytes, model_bytes, ..GroupTally::default() };
    tally.add(&ours);
    let size = |bytes: u64| EstimatedBytes { bytes, error: 0 };
    let sizes = BackupEstimate {
        files,
        bytes,
        whole: true,
        stored: size(ours.bytes_stored),
        exact_chunks: size(exact),
        problems: ours.problems,
        ..BackupEstimate::default()
    };
    Ok(with_shares(sizes, &tally, &repository_stats(&trials.ours.repository)?))
}

/// Reads a part of the source, and extrapolates.
fn extrapolate(
    trials: Trials<'_>,
    mut sample: FileSample,
    limits: &EstimateLimits,
    stop: &AtomicBool,
) -> Result<BackupEstimate> {
    let FileSample { files, bytes, problems, further_bytes, .. } = sample;
    let to_read = bytes.saturating_sub(further_bytes);
    sample.unread.drain(..).for_each(|error| tracing::warn!("{error}"));
    let budget = READ_BYTES_MAX.max(to_read / READ_SHARE);
    let group_limits = GroupLimits {
        bytes: (to_read / GROUPS_MIN).clamp(1, GROUP_BYTES_MAX),
        files: GROUP_FILES_MAX,
        model_bytes: budget / 4,
    };
    let groups = sample.into_groups(&group_limits);
    let tally = in_time(limits.time, stop, |over| trials.read(groups, &group_limits, budget, over))?;
    if stop.load(Ordering::Relaxed) {
        return Err(Error::Interrupted);
    }
    if tally.sizes.is_empty() {
        let text = match tally.too_large {
            0 => format!("no part of the files was read whole in {:?}: give more time with --time", limits.time),
            _ => "the files are too large for a sample; `fhrd backup --dry-run` reads them whole".into(),
        };
        return Err(Error::Usage(text));
    }
    let rest = to_read.saturating_sub(tally.bytes);
    let of = |part: fn(&GroupSizes) -> u64| extrapolated(&tally.sizes, rest, tally.too_large, part);
    let sizes = BackupEstimate {
        files,
        bytes,
        stored: of(|group| group.stored),
        exact_chunks: of(|group| group.exact),
        problems: problems + tally.problems,
        ..BackupEstimate::default()
    };
    Ok(with_shares(sizes, &tally, &repository_stats(&trials.ours.repository)?))
}

/// Adds what was read. The statistics may have a part of a group that was cut off, so they tell shares only.
fn with_shares(sizes: BackupEstimate, tally: &GroupTally, stats: &RepositoryStats) -> BackupEstimate {
    let share = |part: u64, of: u64| if part == 0 { 0.0 } else { (part as f64 / of.max(1) as f64).min(1.0) };
    let new = share(tally.new_bytes, tally.bytes_read);
    let raw = stats.frames.get("raw").map_or(0, |frames| frames.raw_bytes);
    BackupEstimate {
        files_read: tally.files,
        bytes_read: tally.bytes_read,
        duplicate: share(tally.bytes_read.saturating_sub(tally.new_bytes), tally.bytes_read),
        near_duplicate: new * share(stats.copied_bytes, stats.raw_bytes),
        models: share(tally.model_bytes, tally.bytes_read),
        incompressible: new * share(raw, stats.raw_bytes),
        ..sizes
    }
}
