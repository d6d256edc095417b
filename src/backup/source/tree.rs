//! Files and directories of a file system: Walk walks them, Read reads them.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::labels::{SnapshotLabels, encoded};
use super::open::{OpenSource, SourceKind, SourcePlan, SourceRun};
use super::open_rule::OpenRule;
use super::parents::{FoundParents, ParentChoice};
use super::read::ReadWorker;
use super::walk::WalkStage;
use crate::backup::buffers::BufferPool;
use crate::backup::opening::FileOpener;
use crate::backup::scan::AnchorScanner;
use crate::config::OpenStreams;
use crate::error::{Error, Result};
use crate::filesystem::{EntryChoice, WalkPlan, Walker, absolute_path, prescan};
use crate::model::CANDIDATES_MAX;
use crate::pipeline::Pipeline;
use crate::repo::Repository;
use crate::repo::features::{Feature, has};
use crate::repo::paths::own_directories;
use crate::repo::snapshot::{EXCLUDES_KEY, FLAGS_RECORDED_KEY, Snapshot};
use crate::repo::tree::FileIdentity;

/// Paths of a file system, and what to store of them.
#[derive(Debug, Clone, Default)]
pub struct TreeSource {
    /// Paths as given.
    pub paths: Vec<PathBuf>,
    /// Store the paths under their last names, as [`WalkPlan::bare`] does.
    pub bare: bool,
    /// Store the one path as if it were this one. The choice is to know it, too: [`EntryChoice::rename`].
    pub as_path: Option<PathBuf>,
    /// Absolute paths that the snapshot records, if they are not those that are read.
    pub recorded: Option<Vec<Vec<u8>>>,
    /// Store nothing if there are as many problems as this, or more.
    pub problems_limit: Option<u64>,
    /// What to store of the paths.
    pub choice: EntryChoice,
    /// Directories to leave out, besides those of the repository.
    pub skip: Vec<PathBuf>,
    /// The choice as the snapshot records it, an option and its value each.
    pub excludes: Vec<String>,
    /// The snapshots whose unchanged files are not read.
    pub parents: ParentChoice,
    /// What the snapshot says about itself.
    pub labels: SnapshotLabels,
}

impl TreeSource {
    /// All of `paths`, on `host`.
    pub fn new(paths: Vec<PathBuf>, host: &str) -> Self {
        TreeSource { paths, labels: SnapshotLabels::of_host(host), ..TreeSource::default() }
    }

    /// The absolute paths that exist, sorted, without duplicates. A missing path is not recorded: the next backup of it
    /// shall look for a parent that has it.
    fn recorded_paths(&self) -> Result<Vec<Vec<u8>>> {
        if let Some(mut recorded) = self.recorded.clone() {
            recorded.sort();
            recorded.dedup();
            return Ok(recorded);
        }
        let absolute = |path: &PathBuf| Ok(absolute_path(path)?.into_os_string().into_encoded_bytes());
        if let Some(stored) = &self.as_path {
            // Components without `.` and repeated slashes.
            return Ok(vec![absolute(&stored.components().collect())?]);
        }
        let found = self.paths.iter().filter(|path| path.symlink_metadata().is_ok());
        let mut paths = found.map(absolute).collect::<Result<Vec<_>>>()?;
        paths.sort();
        paths.dedup();
        Ok(paths)
    }

    fn walk_plan(&self) -> Result<WalkPlan> {
        let plan = match (&self.as_path, self.paths.as_slice()) {
            (Some(stored), [path]) => WalkPlan::stored_as(path, stored)?,
            (Some(stored), paths) => {
                let (stored, count) = (stored.display(), paths.len());
                return Err(Error::Usage(format!("one path can be stored as {stored}, not {count}")));
            }
            (None, paths) if self.bare => WalkPlan::bare(paths)?,
            (None, paths) => WalkPlan::new(paths)?,
        };
        if plan.found() == 0 {
            if let Some(error) = plan.failure() {
                return Err(error.duplicate());
            }
            let names: Vec<String> = self.paths.iter().take(4).map(|path| path.display().to_string()).collect();
            let more = if self.paths.len() > names.len() { ", ..." } else { "" };
            return Err(Error::Usage(format!("nothing to back up: {}{more} does not exist", names.join(", "))));
        }
        Ok(plan)
    }

    /// Pre-scans the paths for model files, whose order of storing matters, and readies Walk and Read.
    fn open<'a>(&self, plan: WalkPlan, run: SourceRun<'a>) -> Result<OpenSource<'a>> {
        let SourceRun { repository, config, progress, counts, stop, .. } = run;
        let own = own_directories(repository, run.cache);
        let skip: BTreeSet<FileIdentity> = own.iter().chain(&self.skip).filter_map(|path| identity(path)).collect();
        let candidates = if config.model.detect_formats {
            prescan(&self.paths, &skip, &self.choice, CANDIDATES_MAX, stop)
        } else {
            Vec::new()
        };
        let walker = Walker::new(plan, skip, self.choice.clone());
        let root_node = walker.root().cloned();
        let has_feature = has(repository, Feature::Rebuilt)?;
        let open = if has_feature { config.read.open } else { OpenStreams::Never };
        let rule = OpenRule::new(open);
        let parents = run.for_split(self.labels.share.as_ref()).parent_cursors();
        let walk = WalkStage::new(walker, parents, candidates, rule, config, progress, counts.clone());
        let opener = FileOpener { key: repository.key, directory: run.cache.into(), stop: stop.clone() };
        let first = move |pipeline: &mut Pipeline<'a>| {
            let link = pipeline.source(walk);
            let buffers_max = 4 * config.pipeline.queue_depth + 8;
            let pool = Arc::new(BufferPool::new(config.pipeline.batch_bytes.0 as usize, buffers_max));
            pipeline.parallel(link, config.pipeline.workers_of_read(), || ReadWorker {
                pool: pool.clone(),
                hole_bytes_min: config.read.hole_bytes_min.0,
                model: config.model.clone(),
                progress,
                counts: counts.clone(),
                stop: stop.clone(),
                opener: opener.clone(),
                scanner: AnchorScanner::of(repository),
            })
        };
        Ok(OpenSource { first: Box::new(first), root_node, counts_changes: true })
    }
}

impl SourceKind for TreeSource {
    fn is_repeatable(&self) -> bool {
        true
    }

    fn labels(&self) -> Option<&SnapshotLabels> {
        Some(&self.labels)
    }

    fn plan(&self) -> Result<SourcePlan<'_>> {
        let plan = self.walk_plan()?;
        Ok(SourcePlan::new(self.recorded_paths()?, move |run| self.open(plan, run)))
    }

    fn parents(&self, repository: &Repository, paths: &[Vec<u8>]) -> Result<FoundParents> {
        self.parents.find(repository, self.labels.parents_of(), paths)
    }

    fn description(&self, started_ns: i64) -> Result<Snapshot> {
        let mut snapshot = self.labels.description(started_ns)?;
        if cfg!(target_os = "linux") {
            snapshot.extra.insert(FLAGS_RECORDED_KEY.into(), Vec::new().into());
        }
        if !self.excludes.is_empty() {
            snapshot.extra.insert(EXCLUDES_KEY.into(), encoded(&self.excludes)?.into());
        }
        Ok(snapshot)
    }

    fn decide(&self, problems: u64) -> Result<u64> {
        if self.problems_limit.is_some_and(|limit| problems >= limit) {
            let names: Vec<String> = self.paths.iter().take(1).map(|path| path.display().to_string()).collect();
            return Err(Error::Incomplete { snapshot: names.concat(), problems });
        }
        Ok(problems)
    }
}

fn identity(path: &Path) -> Option<FileIdentity> {
    let metadata = std::fs::metadata(path).ok()?;
    Some(FileIdentity { device: metadata.dev(), inode: metadata.ino() })
}
