//! Imports one snapshot after another.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::compare;
use super::restic::{ForeignSnapshot, Restic};
use crate::backup::{BackupReport, BackupRequest, ParentChoice, SnapshotLabels, TreeSource, backup};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::filesystem::EntryChoice;
use crate::keep::forget;
use crate::metrics::Progress;
use crate::repo::snapshot::NamedSnapshot;
use crate::repo::{Repository, ScratchDirectory, snapshot_cache};
use crate::restore::compare_with;
use crate::types::SnapshotId;

/// Directory below the scratch directory that has the snapshot.
const TREE: &str = "tree";

/// Imports snapshots into one repository.
pub struct Importer<'a> {
    restic: &'a Restic,
    repository: &'a Repository,
    config: &'a Config,
    scratch: ScratchDirectory,
    /// Snapshots that were imported before, by what they record of their origin.
    existing: HashMap<String, SnapshotId>,
}

/// What an import has done with a snapshot.
#[derive(Debug)]
pub struct ImportedSnapshot {
    /// The snapshot of this repository.
    pub id: SnapshotId,
    /// What was stored; `None` if it was there before.
    pub report: Option<BackupReport>,
}

impl<'a> Importer<'a> {
    /// Reads which snapshots the repository has. Restored files go below `directory` meanwhile.
    ///
    /// # Errors
    /// Those of listing the snapshots, and of making a directory.
    pub fn new(restic: &'a Restic, repository: &'a Repository, config: &'a Config, directory: &Path) -> Result<Self> {
        let failed = |error| Error::io("create a directory in", directory, error);
        let scratch = ScratchDirectory::create(directory, "import-").map_err(failed)?;
        let listed = snapshot_cache::list(repository)?;
        let origin = |named: &NamedSnapshot| Some((named.snapshot.imported_from()?, named.id));
        let existing = listed.snapshots.iter().filter_map(origin).collect();
        Ok(Importer { restic, repository, config, scratch, existing })
    }

    /// The snapshot that an earlier import made of `foreign`.
    pub fn existing(&self, foreign: &ForeignSnapshot) -> Option<SnapshotId> {
        self.existing.get(&foreign.origin()).copied()
    }

    /// Imports a snapshot, unless it is there already.
    ///
    /// # Errors
    /// [`Error::Incomplete`] if not all of it could be read. [`Error::Usage`] if what is stored differs from what the
    /// other program has. Those of the other program, of a backup and of reading the repository. Then there is no new
    /// snapshot.
    pub fn import(
        &self,
        foreign: &ForeignSnapshot,
        progress: &Progress,
        stop: &Arc<AtomicBool>,
    ) -> Result<ImportedSnapshot> {
        if let Some(id) = self.existing(foreign) {
            return Ok(ImportedSnapshot { id, report: None });
        }
        let tree = self.scratch.path().join(TREE);
        self.restic.restore(foreign, &tree, stop)?;
        let report = self.store(foreign, &tree, progress, stop)?;
        let id = SnapshotId::parse(&report.snapshot).ok_or_else(|| Error::internal("a backup has made no snapshot"))?;
        if let Err(error) = self.compare(foreign, &id, &tree, stop) {
            // A later import shall try again.
            forget(self.repository, &[id])?;
            return Err(error);
        }
        Ok(ImportedSnapshot { id, report: Some(report) })
    }

    fn store(
        &self,
        foreign: &ForeignSnapshot,
        tree: &Path,
        progress: &Progress,
        stop: &Arc<AtomicBool>,
    ) -> Result<BackupReport> {
        let failed = |error| Error::io("read", tree, error);
        let entries = std::fs::read_dir(tree).map_err(failed)?;
        let mut paths = Vec::new();
        for entry in entries {
            paths.push(entry.map_err(failed)?.path());
        }
        let labels = SnapshotLabels {
            tags: foreign.tags.clone(),
            host: foreign.hostname.clone(),
            time_ns: Some(foreign.time_ns),
            imported_from: Some(foreign.origin()),
            ..SnapshotLabels::default()
        };
        let source = TreeSource {
            paths,
            bare: true,
            recorded: Some(foreign.paths.iter().map(|path| path.clone().into_bytes()).collect()),
            choice: EntryChoice::everything()?,
            excludes: foreign.excludes.iter().map(|pattern| format!("exclude={pattern}")).collect(),
            parents: ParentChoice::default(),
            labels,
            problems_limit: Some(1),
            ..TreeSource::default()
        };
        backup(self.repository, self.config, &BackupRequest::new(source), progress, stop)
    }

    /// Compares what was stored with the listing of the other program, and with the directory.
    fn compare(&self, foreign: &ForeignSnapshot, id: &SnapshotId, tree: &Path, stop: &Arc<AtomicBool>) -> Result<()> {
        let snapshot = crate::repo::snapshot::find(self.repository.store.as_ref(), &id.to_string())?;
        self.restic.list(foreign, stop, |listing| compare::with_listing(self.repository, &snapshot, listing, stop))?;
        let problems = compare_with(self.repository, &snapshot, tree, stop)?;
        match problems {
            0 => Ok(()),
            problems => Err(Error::Incomplete { snapshot: foreign.short_id().into(), problems }),
        }
    }
}

/// Directory for what an import restores.
///
/// # Errors
/// [`Error::Usage`] if the user has no home directory.
pub fn default_directory() -> Result<PathBuf> {
    Ok(crate::repo::paths::estimate_directory()?.with_file_name("imports"))
}
