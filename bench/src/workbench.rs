//! Backs up and restores in a temporary directory, and measures time and bytes.
//!
//! 1. All repositories have the same id and key, so chunk boundaries and sizes are the same in every run.
//! 2. A backup starts without the cache of a previous repository of the same id.
//! 3. A restore writes to a new directory. The page cache is as the backup left it, or *cold*: the repository's files
//!    are synced and dropped from it (names and inodes stay cached).
//! 4. The fixed task is timed before and after (see [`super::speed`]), because the speed of a machine varies.
//! 5. The restored files are compared with the source byte for byte.

use std::fs::{File, TryLockError};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use fhrd::backup::{BackupReport, BackupRequest, TreeSource, backup};
use fhrd::config::Config;
use fhrd::error::{Error, ErrorKind, Result};
use fhrd::filesystem::last_names;
use fhrd::metrics::{Progress, StageMetrics};
use fhrd::repo::Repository;
use fhrd::repo::paths::local_cache_directory;
use fhrd::repo::snapshot;
use fhrd::restore::restore;
use fhrd::store;
use fhrd::types::hex;
use rustix::time::{ClockId, clock_gettime};
use tempfile::TempDir;

use super::same::compare;
use super::speed::FixedTask;

/// Time of an operation, seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Cost {
    /// Wall time.
    pub wall_seconds: f64,
    /// CPU time of all threads.
    pub cpu_seconds: f64,
    /// Wall time of one run of the fixed task, the mean of before and after.
    pub fixed_task_seconds: f64,
}

/// Measurements of a restore.
#[derive(Debug, Clone, Default)]
pub struct Restored {
    /// Time of the restore.
    pub cost: Cost,
    /// Bytes of content.
    pub bytes: u64,
    /// Decoded bytes of frames.
    pub frame_bytes: u64,
    /// Metrics of the stages.
    pub metrics: Vec<StageMetrics>,
}

impl Restored {
    /// MB restored per second.
    pub fn mb_per_second(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.cost.wall_seconds.max(1e-9)
    }

    /// Decoded bytes of frames per restored byte.
    pub fn amplification(&self) -> f64 {
        self.frame_bytes as f64 / (self.bytes as f64).max(1.0)
    }
}

/// Whether the repository is in the page cache during a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageCache {
    /// The page cache is as the previous operation left it.
    Warm,
    /// The repository's files are dropped from it.
    Cold,
}

/// A directory to measure in. Drop removes the temporary files.
pub struct Workbench {
    work: PathBuf,
    /// Holds the directory as long as it is open.
    _lock: File,
    /// Directory in memory, used instead of `work` if requested.
    memory: Option<TempDir>,
    fixed_task: FixedTask,
    stop: Arc<AtomicBool>,
}

/// Id and key of every repository of measurements.
const IDENTITY: &[u8; 48] = b"fhrd bench idthe key of every repository of it..";
/// File system in memory on Linux.
const MEMORY_DIRECTORY: &str = "/dev/shm";
/// File that a process locks while it measures.
const LOCK_FILE: &str = "lock";
/// Directories that are removed after use.
const TEMPORARY_DIRECTORIES: [&str; 2] = ["repository", "restored"];

/// Locks the directory `work`: two processes that measure there would delete each other's repositories.
fn lock(work: &Path) -> Result<File> {
    let path = work.join(LOCK_FILE);
    let file = File::create(&path).map_err(|error| Error::io("create", &path, error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let text = format!("another process measures in {}; wait, or use another `work`", work.display());
            Err(Error::Usage(text))
        }
        Err(TryLockError::Error(error)) => Err(Error::io("lock", &path, error)),
    }
}

impl Workbench {
    /// Measures below `work` until `stop` is set.
    ///
    /// # Errors
    /// [`Error::Usage`] if another process measures there. [`Error::Io`] if the files of a previous run cannot be
    /// removed.
    pub fn new(work: &Path, stop: &Arc<AtomicBool>) -> Result<Self> {
        let real = std::fs::create_dir_all(work).and_then(|()| std::fs::canonicalize(work));
        let work = real.map_err(|error| Error::io("create", work, error))?;
        let lock = lock(&work)?;
        let bench = Workbench { work, _lock: lock, memory: None, fixed_task: FixedTask::new(), stop: stop.clone() };
        bench.clear()?;
        Ok(bench)
    }

    /// Measures in memory instead, if the system has a file system there with space for `bytes`. The time of disk
    /// writes then does not hide differences between schemes. Returns whether it measures in memory.
    pub fn move_to_memory(&mut self, bytes: u64) -> bool {
        let has_space = rustix::fs::statvfs(MEMORY_DIRECTORY)
            .is_ok_and(|system| system.f_bavail.saturating_mul(system.f_frsize) >= bytes);
        let directory =
            has_space.then(|| tempfile::Builder::new().prefix("fhrd-bench-").tempdir_in(MEMORY_DIRECTORY).ok());
        if let Some(directory) = directory.flatten() {
            self.work = directory.path().into();
            self.memory = Some(directory);
        }
        self.memory.is_some()
    }

    /// Removes temporary files and the caches of their repositories.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn clear(&self) -> Result<()> {
        let id = hex(IDENTITY.get(..16).unwrap_or_default());
        remove(&local_cache_directory(&self.work.join("repository"), &id)?)?;
        TEMPORARY_DIRECTORIES.iter().try_for_each(|name| remove(&self.work.join(name)))
    }

    /// Creates an empty repository in place of the previous one.
    ///
    /// # Errors
    /// Errors of creating it.
    pub fn repository(&self, config: &Config) -> Result<Repository> {
        let path = self.work.join("repository");
        remove(&path)?;
        let repository = Repository::init_with(store::create(&path)?, &config.repository, IDENTITY)?;
        remove(&local_cache_directory(&path, &repository.id)?)?;
        Ok(repository)
    }

    /// Removes a repository and its cache.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn discard(&self, repository: &Repository) -> Result<()> {
        let path = self.work.join("repository");
        remove(&local_cache_directory(&path, &repository.id)?)?;
        remove(&path)
    }

    /// Backs up `paths` as one snapshot.
    ///
    /// # Errors
    /// Errors of the backup; entries that could not be read.
    pub fn backup(&self, repository: &Repository, config: &Config, paths: &[PathBuf]) -> Result<(BackupReport, Cost)> {
        // `bare`: the times of directories above the paths change from run to run.
        let request = BackupRequest::new(TreeSource { bare: true, ..TreeSource::new(paths.into(), "bench") });
        let (report, cost) = self.timed(|| backup(repository, config, &request, &Progress::default(), &self.stop))?;
        match report.problems {
            0 => Ok((report, cost)),
            problems => Err(Error::Usage(format!("{problems} entries could not be backed up completely"))),
        }
    }

    /// Restores the snapshot of a backup of `paths`, which are absolute, and compares.
    ///
    /// # Errors
    /// Errors of the restore; a restore that is incomplete or differs from `paths`.
    pub fn restore(
        &self,
        repository: &Repository,
        config: &Config,
        report: &BackupReport,
        paths: &[PathBuf],
        page_cache: PageCache,
    ) -> Result<Restored> {
        let target = self.work.join("restored");
        remove(&target)?;
        if page_cache == PageCache::Cold {
            forget(&self.work.join("repository"))?;
        }
        let named = snapshot::find(repository.store.as_ref(), &report.snapshot)?;
        let (restored, cost) =
            self.timed(|| restore(repository, config, &named, &target, &Progress::default(), &self.stop))?;
        if restored.damaged + restored.problems > 0 || restored.files != report.files {
            return Err(Error::Usage("the restore is incomplete".into()));
        }
        let names = last_names(paths).map(|names| names.into_iter().map(PathBuf::from).collect::<Vec<_>>());
        let names = names.unwrap_or_else(|| paths.iter().map(|path| below_root(path)).collect());
        paths.iter().zip(names).try_for_each(|(path, name)| compare(path, &target.join(name)))?;
        remove(&target)?;
        Ok(Restored { cost, bytes: restored.bytes, frame_bytes: restored.frame_bytes, metrics: restored.metrics })
    }

    fn timed<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<(T, Cost)> {
        let before = self.fixed_task.seconds();
        let (start, cpu) = (Instant::now(), cpu_seconds());
        let value = work()?;
        let (wall_seconds, cpu_seconds) = (start.elapsed().as_secs_f64(), cpu_seconds() - cpu);
        let fixed_task_seconds = (before + self.fixed_task.seconds()) / 2.0;
        Ok((value, Cost { wall_seconds, cpu_seconds, fixed_task_seconds }))
    }
}

impl Drop for Workbench {
    /// Removes temporary files, also after an error.
    fn drop(&mut self) {
        if let Err(error) = self.clear() {
            tracing::warn!("{error}");
        }
    }
}

/// Runs `measure` for each of `cases`, `warm_up` and then `repeats` times.
///
/// Rounds alternate their direction so that drift of the machine affects all cases equally. Returns the values of each
/// case without the warm-up rounds, or its error. A failed case is not run again.
///
/// # Errors
/// [`Error::Interrupted`].
pub fn rounds<C, T>(
    cases: &[C],
    (warm_up, repeats): (usize, usize),
    mut measure: impl FnMut(&C) -> Result<T>,
) -> Result<Vec<Result<Vec<T>, String>>> {
    let mut outcomes: Vec<Result<Vec<T>, String>> = cases.iter().map(|_| Ok(Vec::new())).collect();
    for round in 0..warm_up + repeats {
        let mut order: Vec<_> = cases.iter().zip(&mut outcomes).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for (case, outcome) in order {
            let Ok(values) = outcome else { continue };
            match measure(case) {
                Ok(_) if round < warm_up => {}
                Ok(value) => values.push(value),
                Err(error) if error.kind() == ErrorKind::Interrupted => return Err(error),
                Err(error) => *outcome = Err(error.to_string()),
            }
        }
    }
    Ok(outcomes)
}

/// The median, or the mean of the two middle values; 0 without values.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len().saturating_sub(1) / 2;
    let both = values.get(middle..=values.len() / 2).filter(|both| !both.is_empty()).unwrap_or(&[0.0]);
    both.iter().sum::<f64>() / both.len() as f64
}

/// Merges the stages of several runs. The number of workers is that of the first run.
pub fn merge_stages<'a>(runs: impl IntoIterator<Item = &'a [StageMetrics]>) -> Vec<StageMetrics> {
    let mut all: Vec<StageMetrics> = Vec::new();
    for stage in runs.into_iter().flatten() {
        match all.iter_mut().find(|sum| sum.name == stage.name) {
            Some(sum) => {
                let workers = sum.workers;
                sum.merge(stage);
                sum.workers = workers;
            }
            None => all.push(stage.clone()),
        }
    }
    all
}

/// [`median`] of whole numbers.
pub fn median_u64(values: impl IntoIterator<Item = u64>) -> u64 {
    median(values.into_iter().map(|value| value as f64)).round() as u64
}

/// Reads every byte below `path` so that it is in the page cache for all cases. Returns the number of bytes.
///
/// # Errors
/// [`Error::Io`].
pub fn warm(path: &Path) -> Result<u64> {
    let mut bytes = 0;
    each_file(path, &mut |path, mut file| {
        bytes += std::io::copy(&mut file, &mut std::io::sink()).map_err(|error| Error::io("read", path, error))?;
        Ok(())
    })?;
    Ok(bytes)
}

/// Syncs every file below `path` and drops it from the page cache.
#[cfg(target_os = "linux")]
fn forget(path: &Path) -> Result<()> {
    use rustix::fs::{Advice, fadvise};
    each_file(path, &mut |path, file| {
        file.sync_all().map_err(|error| Error::io("write out", path, error))?;
        fadvise(&file, 0, None, Advice::DontNeed).map_err(|error| Error::io("forget", path, error))
    })
}

/// Only Linux can drop a file from the page cache.
#[cfg(not(target_os = "linux"))]
fn forget(_: &Path) -> Result<()> {
    Err(Error::Usage("`cold` needs posix_fadvise, which this system lacks".into()))
}

/// Calls `visit` for the regular files at and below `path`. Links are not followed.
fn each_file(path: &Path, visit: &mut dyn FnMut(&Path, std::fs::File) -> Result<()>) -> Result<()> {
    let fail = |action| move |error| Error::io(action, path, error);
    let kind = std::fs::symlink_metadata(path).map_err(fail("look at"))?;
    if kind.is_file() {
        return visit(path, std::fs::File::open(path).map_err(fail("read"))?);
    }
    if kind.is_dir() {
        for entry in std::fs::read_dir(path).map_err(fail("list"))? {
            each_file(&entry.map_err(fail("list"))?.path(), visit)?;
        }
    }
    Ok(())
}

/// Path of an absolute path below the target of a restore.
fn below_root(path: &Path) -> PathBuf {
    path.components().filter(|part| !matches!(part, Component::RootDir)).collect()
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn remove(directory: &Path) -> Result<()> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", directory, error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "workbench_tests.rs"]
mod tests;
