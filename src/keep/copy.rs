//! Copy: stores snapshots of another repository in this one.
//!
//! 1. A snapshot that was copied before is skipped: its copy names it.
//! 2. The others are copied one by one, the oldest first, each by a backup that reads the snapshot in place of a source
//!    tree. So the commit, and what a prune beside it does, are those of a backup.
//! 3. Files that did not change since an earlier snapshot that has a copy are not read.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::backup::{BackupReport, BackupRequest, CopiedSnapshot, CopyPurpose, backup};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::filesystem::Patterns;
use crate::metrics::Progress;
use crate::repo::Repository;
use crate::repo::snapshot::{self, NamedSnapshot, Snapshot};
use crate::types::SnapshotId;

/// What became of a snapshot.
#[derive(Debug)]
pub struct CopyOutcome {
    /// The snapshot in the other repository.
    pub original: NamedSnapshot,
    /// The copy. None after a dry run.
    pub copy: Option<SnapshotId>,
    /// What was stored for it. `None` if it was there before.
    pub report: Option<BackupReport>,
}

/// Copies snapshots into a repository.
pub struct Copier<'a> {
    source: &'a Repository,
    target: &'a Repository,
    config: &'a Config,
    /// All snapshots of the source, oldest first.
    originals: Vec<NamedSnapshot>,
    /// Snapshots of the target by their origin.
    copies: HashMap<SnapshotId, NamedSnapshot>,
}

impl<'a> Copier<'a> {
    /// From `source` to `target`. Lists both.
    ///
    /// # Errors
    /// [`Error::Usage`] if both are the same repository. Those of listing snapshots.
    pub fn new(source: &'a Repository, target: &'a Repository, config: &'a Config) -> Result<Self> {
        if source.id == target.id {
            return Err(Error::Usage("cannot copy a repository into itself".into()));
        }
        let (originals, _) = snapshot::list_reported(source.store.as_ref())?;
        let (copies, damaged) = snapshot::list_reported(target.store.as_ref())?;
        for (name, error) in damaged {
            tracing::warn!("skipping {name}: {error}");
        }
        let copies = copies.into_iter().map(|named| (named.origin(), named)).collect();
        Ok(Copier { source, target, config, originals, copies })
    }

    /// Copies one snapshot, unless the target has it. With `dry_run` only says what would be new.
    ///
    /// # Errors
    /// Those of [`backup`].
    pub fn copy(
        &mut self,
        original: &NamedSnapshot,
        dry_run: bool,
        progress: &Progress,
        stop: &Arc<AtomicBool>,
    ) -> Result<CopyOutcome> {
        let origin = original.origin();
        if let Some(copy) = self.copies.get(&origin) {
            return Ok(CopyOutcome { original: original.clone(), copy: Some(copy.id), report: None });
        }
        let copied = CopiedSnapshot {
            repository: self.source.clone(),
            original: original.clone(),
            purpose: CopyPurpose::Copy(origin),
            exclude: Patterns::default(),
            previous: self.previous(&original.snapshot),
        };
        let request = BackupRequest { copied: Some(copied), dry_run, ..BackupRequest::default() };
        let report = backup(self.target, self.config, &request, progress, stop)?;
        let copy = SnapshotId::parse(&report.snapshot);
        if let Some(id) = copy {
            let snapshot = Snapshot::load(self.target.store.as_ref(), &id)?;
            self.copies.insert(origin, NamedSnapshot { id, snapshot });
        }
        Ok(CopyOutcome { original: original.clone(), copy, report: Some(report) })
    }

    /// The snapshot with a copy that is probably most like `snapshot`: of the same host and paths before others, then
    /// the last one before it.
    fn previous(&self, snapshot: &Snapshot) -> Option<(NamedSnapshot, NamedSnapshot)> {
        let pairs = self.originals.iter().filter_map(|named| Some((named, self.copies.get(&named.origin())?)));
        let likeness = |(named, _): &(&NamedSnapshot, &NamedSnapshot)| {
            let other = &named.snapshot;
            let is_before = other.time_ns <= snapshot.time_ns;
            let distance = other.time_ns.abs_diff(snapshot.time_ns);
            (other.paths == snapshot.paths, other.host == snapshot.host, is_before, std::cmp::Reverse(distance))
        };
        pairs.max_by_key(likeness).map(|(named, copy)| (named.clone(), copy.clone()))
    }
}
