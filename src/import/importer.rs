//! Imports one snapshot after another.

use std::collections::HashMap;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::fs::{XattrFlags, setxattr};
use rustix::io::Errno;

use super::compare;
use super::restic::{ForeignSnapshot, Restic};
use crate::backup::{BackupReport, BackupRequest, ParentChoice, SnapshotLabels, TreeSource, backup};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::filesystem::EntryChoice;
use crate::keep::{forget, lacking_snapshots};
use crate::metrics::Progress;
use crate::repo::paths::{cache_directory, create_private, estimate_directory, lock_cache_file};
use crate::repo::snapshot::{self, NamedSnapshot};
use crate::repo::{Repository, ScratchDirectory, snapshot_listing};
use crate::restore::compare_with;
use crate::types::SnapshotId;

/// Directory below the scratch directory that has the snapshot.
const TREE: &str = "tree";
/// Name of the locked file.
const LOCK: &str = "import.lock";

/// Imports snapshots into one repository.
pub struct Importer<'a> {
    restic: &'a Restic,
    repository: &'a Repository,
    config: &'a Config,
    scratch: ScratchDirectory,
    /// Snapshots that were imported before, by what they record of their origin.
    existing: HashMap<String, NamedSnapshot>,
    /// The ones that lack something, in the same way.
    damaged: HashMap<String, SnapshotId>,
    /// Locked, so that no other import into the repository runs on this machine. `None`: there is no cache directory.
    _lock: Option<File>,
}

impl<'a> Importer<'a> {
    /// Reads which snapshots the repository has. Restored files go below `directory` meanwhile.
    ///
    /// # Errors
    /// [`Error::Usage`] if another import runs. Errors of listing the snapshots, and of making a directory.
    pub fn new(restic: &'a Restic, repository: &'a Repository, config: &'a Config, directory: &Path) -> Result<Self> {
        let failed = |error| Error::io("create a directory in", directory, error);
        let lock = lock(repository)?;
        let scratch = ScratchDirectory::create(directory, "import-").map_err(failed)?;
        let attribute = setxattr(scratch.path(), "user.fhrd", b"", XattrFlags::empty());
        if attribute == Err(Errno::OPNOTSUPP) {
            let directory = directory.display();
            tracing::warn!("extended attributes are not imported, because {directory} cannot have them");
        }
        let listed = snapshot_listing::list(repository)?;
        let origin = |named: NamedSnapshot| Some((named.snapshot.imported_from()?, named));
        let existing = listed.snapshots.into_iter().filter_map(origin).collect();
        Ok(Importer { restic, repository, config, scratch, existing, damaged: HashMap::new(), _lock: lock })
    }

    /// The snapshot that an earlier import made of `foreign`.
    pub fn existing(&self, foreign: &ForeignSnapshot) -> Option<SnapshotId> {
        self.existing.get(&foreign.origin()).map(|named| named.id)
    }

    /// Looks for snapshots of earlier imports that lack something, if anything is known to be bad or missing. They
    /// count as not there: another import stores again what they lack.
    ///
    /// # Errors
    /// Errors of the repository.
    pub fn look_for_damage(&mut self, all: &[ForeignSnapshot], stop: &Arc<AtomicBool>) -> Result<()> {
        let existing = all.iter().filter_map(|foreign| self.existing.get(&foreign.origin()));
        let lacking = lacking_snapshots(self.repository, existing, stop)?;
        for (id, error) in &lacking {
            tracing::warn!("snapshot {id:.8} is damaged, and imported again: {error}");
        }
        let damaged = self.existing.extract_if(|_, named| lacking.contains_key(&named.id));
        self.damaged.extend(damaged.map(|(origin, named)| (origin, named.id)));
        Ok(())
    }

    /// Compares what was imported last, because an import may have been killed between storing and comparing it. If it
    /// differs it is deleted, and imported again.
    ///
    /// # Errors
    /// Errors of the other program and of the repository.
    pub fn compare_last(&mut self, all: &[ForeignSnapshot], stop: &AtomicBool) -> Result<()> {
        let last = all.iter().filter_map(|foreign| Some((foreign, self.existing.get(&foreign.origin())?)));
        let Some((foreign, named)) = last.max_by_key(|(_, named)| named.snapshot.started_ns()) else { return Ok(()) };
        match self.compare_listing(foreign, named, stop) {
            Err(Error::Usage(difference)) => {
                tracing::warn!("snapshot {:.8} is imported again: {difference}", named.id);
                forget(self.repository, &[named.id])?;
                self.existing.remove(&foreign.origin());
                Ok(())
            }
            compared => compared,
        }
    }

    /// Imports a snapshot that is not there, or is damaged. The damaged one is deleted then.
    ///
    /// # Errors
    /// [`Error::Incomplete`] if not all of it could be read. [`Error::Usage`] if what is stored differs from what the
    /// other program has. Errors of the other program, of a backup and of reading the repository. Then there is no new
    /// snapshot.
    pub fn import(
        &self,
        foreign: &ForeignSnapshot,
        progress: &Progress,
        stop: &Arc<AtomicBool>,
    ) -> Result<BackupReport> {
        let time_ns = foreign.checked_time_ns()?;
        let tree = self.scratch.path().join(TREE);
        // What is left of another snapshot would share inodes and attributes with this one.
        match std::fs::remove_dir_all(&tree) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(Error::io("remove", tree, error)),
            _ => {}
        }
        self.restic.restore(foreign, &tree, stop)?;
        let report = self.store(foreign, time_ns, &tree, progress, stop)?;
        let id = SnapshotId::parse(&report.snapshot).ok_or_else(|| Error::internal("a backup has made no snapshot"))?;
        if let Err(error) = self.compare(foreign, &id, &tree, stop) {
            // A later import shall try again.
            forget(self.repository, &[id])?;
            return Err(error);
        }
        if let Some(damaged) = self.damaged.get(&foreign.origin()) {
            forget(self.repository, &[*damaged])?;
        }
        Ok(report)
    }

    fn store(
        &self,
        foreign: &ForeignSnapshot,
        time_ns: i64,
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
            time_ns: Some(time_ns),
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
        let snapshot = snapshot::find(self.repository.store.as_ref(), &id.to_string())?;
        self.compare_listing(foreign, &snapshot, stop)?;
        let problems = compare_with(self.repository, &snapshot, tree, stop)?;
        match problems {
            0 => Ok(()),
            problems => Err(Error::Incomplete { snapshot: foreign.short_id(), problems }),
        }
    }

    fn compare_listing(&self, foreign: &ForeignSnapshot, snapshot: &NamedSnapshot, stop: &AtomicBool) -> Result<()> {
        self.restic.list(foreign, stop, |listing| compare::with_listing(self.repository, snapshot, listing, stop))
    }
}

/// Locks a file in the cache directory of `repository`.
fn lock(repository: &Repository) -> Result<Option<File>> {
    let path = cache_directory(repository)?.join(LOCK);
    let locked = path.parent().map_or(Ok(()), create_private);
    match locked.and_then(|()| lock_cache_file(&path).map_err(|error| Error::io("lock", &path, error))) {
        Ok(None) => Err(Error::Usage("another import into this repository runs".into())),
        Ok(file) => Ok(file),
        Err(error) => {
            tracing::debug!("another import would not be noticed: {error}");
            Ok(None)
        }
    }
}

/// Directory for what an import restores.
///
/// # Errors
/// [`Error::Usage`] if the user has no home directory.
pub fn default_directory() -> Result<PathBuf> {
    Ok(estimate_directory()?.with_file_name("imports"))
}
