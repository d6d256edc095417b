//! Backs up and restores in a directory of its own and measures what that takes.
//!
//! 1. All repositories have the same id and key, in every run: chunks are cut alike and sizes do not vary.
//! 2. A backup starts without a cache of an earlier one of the same id.
//! 3. A restore goes to a new directory, from the page cache as the backup left it, or *cold*: every file of the
//!    repository is written out and the system advised to forget its pages (names and inodes stay cached).
//! 4. The reference work is timed before and after (see [`super::speed`]), for machines that are not always as fast.
//! 5. What was restored is compared with the source byte for byte.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};
use tempfile::TempDir;

use super::same::compare;
use super::speed::FixedTask;
use crate::backup::{BackupReport, BackupRequest, backup};
use crate::config::Config;
use crate::error::{Error, ErrorKind, Result};
use crate::filesystem::last_names;
use crate::metrics::{Progress, StageMetrics};
use crate::repo::Repository;
use crate::repo::paths::local_cache_directory;
use crate::repo::snapshot;
use crate::restore::restore;
use crate::store;
use crate::types::hex;

/// What something took, seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Cost {
    /// By the clock.
    pub wall_seconds: f64,
    /// Of all processors together.
    pub cpu_seconds: f64,
    /// Of one reference work about that time, by the clock.
    pub fixed_task_seconds: f64,
}

/// What a restore did and took.
#[derive(Debug, Clone, Default)]
pub struct Restored {
    /// Its time.
    pub cost: Cost,
    /// Bytes of content.
    pub bytes: u64,
    /// Bytes of the frames decoded for them.
    pub frame_bytes: u64,
    /// What each stage did.
    pub metrics: Vec<StageMetrics>,
}

impl Restored {
    /// Millions of bytes restored per second.
    pub fn mb_per_second(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.cost.wall_seconds.max(1e-9)
    }

    /// Bytes of frames decoded for each byte restored.
    pub fn amplification(&self) -> f64 {
        self.frame_bytes as f64 / (self.bytes as f64).max(1.0)
    }
}

/// Whether a restore finds the repository in the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageCache {
    /// As the work before left it.
    Warm,
    /// Emptied of the repository's files.
    Cold,
}

/// A directory to measure in; what was made there goes with it.
pub struct Workbench {
    work: PathBuf,
    /// In place of the directory, where memory was asked for.
    memory: Option<TempDir>,
    fixed_task: FixedTask,
    stop: Arc<AtomicBool>,
}

/// Id and key of every repository made here.
const IDENTITY: &[u8; 48] = b"fhrd bench idthe key of every repository of it..";
/// Where Linux has a file system in memory.
const MEMORY_DIRECTORY: &str = "/dev/shm";
/// What is removed after use.
const TEMPORARY_DIRECTORIES: [&str; 2] = ["repository", "restored"];

impl Workbench {
    /// Measures below `work` until `stop` is set.
    ///
    /// # Errors
    /// [`Error::Io`] when what an earlier one left there cannot be removed.
    pub fn new(work: &Path, stop: &Arc<AtomicBool>) -> Result<Self> {
        let real = std::fs::create_dir_all(work).and_then(|()| std::fs::canonicalize(work));
        let work = real.map_err(|error| Error::io("create", work, error))?;
        let bench = Workbench { work, memory: None, fixed_task: FixedTask::new(), stop: stop.clone() };
        bench.clear()?;
        Ok(bench)
    }

    /// Measures in memory instead, where the system has a file system there with room for `bytes`: how long files take
    /// to come to a disk is another thing to compare than what is done with their content. Says whether it does.
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

    /// Removes what was made, the caches of its repositories, too.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn clear(&self) -> Result<()> {
        let id = hex(IDENTITY.get(..16).unwrap_or_default());
        remove(&local_cache_directory(&self.work.join("repository"), &id)?)?;
        TEMPORARY_DIRECTORIES.iter().try_for_each(|name| remove(&self.work.join(name)))
    }

    /// A new, empty repository in place of the last.
    ///
    /// # Errors
    /// Those of creating it.
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
    /// Those of the engine; entries that could not be read.
    pub fn backup(&self, repository: &Repository, config: &Config, paths: &[PathBuf]) -> Result<(BackupReport, Cost)> {
        // What lies above the paths has times that change from run to run.
        let request =
            BackupRequest { paths: paths.into(), host: "bench".into(), bare: true, ..BackupRequest::default() };
        let (report, cost) = self.timed(|| backup(repository, config, &request, &Progress::default(), &self.stop))?;
        match report.problems {
            0 => Ok((report, cost)),
            problems => Err(Error::Usage(format!("{problems} entries could not be backed up as they are"))),
        }
    }

    /// Restores the snapshot of a backup of `paths`, absolute ones, and compares.
    ///
    /// # Errors
    /// Those of the engine; a restore that is not complete or differs from `paths`.
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
            return Err(Error::Usage("the restore was not complete".into()));
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
    /// Leaves nothing behind after an error, either.
    fn drop(&mut self) {
        if let Err(error) = self.clear() {
            tracing::warn!("{error}");
        }
    }
}

/// Runs `measure` for each of `cases`, `warm_up` and then `repeats` times: round by round, every second one backwards,
/// so that drift of the machine hits all alike. Gives for each case its values, or why it failed: rounds that only warm
/// up give none, and a failed case is not run again.
///
/// # Errors
/// An interruption.
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

/// The middle value, or the mean of the two; 0 of none.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len().saturating_sub(1) / 2;
    let both = values.get(middle..=values.len() / 2).filter(|both| !both.is_empty()).unwrap_or(&[0.0]);
    both.iter().sum::<f64>() / both.len() as f64
}

/// The stages of several runs as those of one. A stage that a run left out counts for the others only.
pub fn together<'a>(runs: impl IntoIterator<Item = &'a [StageMetrics]>) -> Vec<StageMetrics> {
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

/// Reads every byte below `path` once, so that all cases find it in the page cache; says how many there are.
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

/// Writes out every file below `path` and lets the system forget its pages.
#[cfg(target_os = "linux")]
fn forget(path: &Path) -> Result<()> {
    use rustix::fs::{Advice, fadvise};
    each_file(path, &mut |path, file| {
        file.sync_all().map_err(|error| Error::io("write out", path, error))?;
        fadvise(&file, 0, None, Advice::DontNeed).map_err(|error| Error::io("forget", path, error))
    })
}

/// Not every system can be asked to forget a file's pages.
#[cfg(not(target_os = "linux"))]
fn forget(_: &Path) -> Result<()> {
    Err(Error::Usage("`cold` needs posix_fadvise, which this system lacks".into()))
}

/// Opens the regular files at and below `path`, links not followed.
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

/// Where an absolute path lies in a restored tree.
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
