//! Copy: stores snapshots of another repository in this one.
//!
//! 1. A snapshot that was copied before is skipped: its copy names it. One that was rewritten after it was copied is a
//!    snapshot of its own. A copy that lacks entries, because they could
//!    not be read, does not count. It is made again, with what the poor one has, and the poor one is deleted once a
//!    copy is complete. Until then a new one is stored beside it, and only if it lacks fewer entries.
//! 2. The others are copied one by one, the oldest first, each by a backup that reads the snapshot in place of a source
//!    tree. So the commit, and what a prune beside it does, are those of a backup.
//! 3. Files that did not change since an earlier snapshot that has a copy are not read.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::backup::{BackupReport, BackupRequest, CopyPurpose, SnapshotSource, backup};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::filesystem::Patterns;
use crate::metrics::Progress;
use crate::repo::Repository;
use crate::repo::features::{self, Feature};
use crate::repo::snapshot::{self, NamedSnapshot, Snapshot, explain_loss};
use crate::types::SnapshotId;

/// What became of a snapshot.
#[derive(Debug)]
pub struct CopyOutcome {
    /// The snapshot in the other repository.
    pub original: NamedSnapshot,
    /// The copy. None after a dry run.
    pub copy: Option<SnapshotId>,
    /// What was stored for it. `None` if it was there before, and nothing better could be stored.
    pub report: Option<BackupReport>,
    /// Entries that the copy lacks because they could not be read.
    pub problems: u64,
    /// Copies of the same snapshot that lacked entries, and that were deleted.
    pub replaced: Vec<SnapshotId>,
}

/// Copies snapshots into a repository.
pub struct Copier<'a> {
    source: &'a Repository,
    target: &'a Repository,
    config: &'a Config,
    /// All snapshots of the source, oldest first.
    originals: Vec<NamedSnapshot>,
    /// Snapshots of the target by their origin, the best one of each first.
    copies: HashMap<SnapshotId, Vec<NamedSnapshot>>,
    /// Whether every version that writes to the target knows published snapshots.
    takes_published: bool,
}

impl<'a> Copier<'a> {
    /// From `source` to `target`. Lists both.
    ///
    /// # Errors
    /// [`Error::Usage`] if both are the same repository. Errors of listing snapshots.
    pub fn new(source: &'a Repository, target: &'a Repository, config: &'a Config) -> Result<Self> {
        if source.id == target.id {
            return Err(Error::Usage("cannot copy a repository into itself".into()));
        }
        let (originals, _) = snapshot::list_reported(source.store.as_ref())?;
        let (copies, damaged) = snapshot::list_reported(target.store.as_ref())?;
        for (name, error) in damaged {
            tracing::warn!("skipping {name}: {error}");
        }
        let takes_published = features::has(target, Feature::Derivations)?;
        let mut copier = Copier { source, target, config, originals, copies: HashMap::new(), takes_published };
        for named in copies {
            // One that was rewritten here stands for what it was copied from, too: what it leaves out stays out.
            if let Some(from) = named.copied_from().filter(|from| *from != named.origin()) {
                copier.add(from, named.clone());
            }
            copier.add(named.origin(), named);
        }
        Ok(copier)
    }

    /// Adds a copy, before those that lack as many entries or more.
    fn add(&mut self, origin: SnapshotId, copy: NamedSnapshot) {
        let copies = self.copies.entry(origin).or_default();
        copies.insert(copies.partition_point(|other| other.copy_problems() < copy.copy_problems()), copy);
    }

    /// Whether the target may have a copy of this snapshot: older versions would take what is published for a backup,
    /// and their rules would delete others for it.
    pub fn takes(&self, original: &NamedSnapshot) -> bool {
        self.takes_published || !original.snapshot.is_published()
    }

    fn best(&self, origin: &SnapshotId) -> Option<&NamedSnapshot> {
        self.copies.get(origin).and_then(|copies| copies.first())
    }

    /// Copies one snapshot, unless the target has all of it. With `dry_run` only says what would be new.
    ///
    /// # Errors
    /// [`Error::Usage`] for one that the target does not [take](Self::takes). Errors of [`backup`]. That of the root,
    /// if it cannot be read: then nothing is stored.
    pub fn copy(
        &mut self,
        original: &NamedSnapshot,
        dry_run: bool,
        progress: &Progress,
        stop: &Arc<AtomicBool>,
    ) -> Result<CopyOutcome> {
        if !self.takes(original) {
            return Err(Error::Usage("what is published needs `fhrd upgrade` of the repository to copy to".into()));
        }
        let (origin, missing) = (original.origin(), original.copy_problems());
        let best = self.best(&origin).cloned();
        let existing = |copy: &NamedSnapshot| CopyOutcome {
            original: original.clone(),
            copy: Some(copy.id),
            report: None,
            problems: copy.copy_problems(),
            replaced: Vec::new(),
        };
        if let Some(copy) = best.as_ref().filter(|copy| copy.copy_problems() <= missing) {
            return Ok(existing(copy));
        }
        let source = SnapshotSource {
            repository: self.source.clone(),
            original: original.clone(),
            purpose: CopyPurpose::Copy(origin),
            exclude: Patterns::default(),
            // What a poor copy has needs no reading.
            previous: best.clone().map(|copy| (original.clone(), copy)).or_else(|| self.previous(&original.snapshot)),
            problems_limit: best.as_ref().map(|copy| copy.copy_problems() - missing),
        };
        let request = BackupRequest { dry_run, ..BackupRequest::new(source) };
        let report = match (backup(self.target, self.config, &request, progress, stop), best) {
            (Err(Error::Incomplete { .. }), Some(copy)) => return Ok(existing(&copy)),
            (report, _) => report.map_err(|error| explain_loss(self.source.store.as_ref(), [&original.id], error))?,
        };
        let (copy, problems) = (SnapshotId::parse(&report.snapshot), report.problems.saturating_add(missing));
        let mut replaced = Vec::new();
        if let Some(id) = copy {
            let snapshot = Snapshot::load(self.target.store.as_ref(), &id)?;
            self.add(origin, NamedSnapshot { id, snapshot });
            // Of two poor ones, each may have what the other lacks, whatever their numbers say.
            if problems == 0 {
                replaced = self.delete_poor(&origin)?;
            }
        }
        Ok(CopyOutcome { original: original.clone(), copy, report: Some(report), problems, replaced })
    }

    /// Deletes the copies that lack entries: there is a whole one. Returns their ids. One that was rewritten stays, as
    /// what it lacks was left out on purpose, too.
    fn delete_poor(&mut self, origin: &SnapshotId) -> Result<Vec<SnapshotId>> {
        let copies = self.copies.entry(*origin).or_default();
        let poor: Vec<NamedSnapshot> = copies.extract_if(.., |copy| copy.copy_problems() > 0).collect();
        let mut deleted = Vec::new();
        for copy in poor {
            if copy.is_rewritten() {
                tracing::warn!("the copy {}, which lacks entries, stays: it was rewritten", copy.id);
                continue;
            }
            match snapshot::delete(self.target.store.as_ref(), &copy.id) {
                Ok(()) => deleted.push(copy.id),
                Err(error) if error.is_refused() => {
                    tracing::warn!("the copy {}, which lacks entries, stays: {error}", copy.id);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(deleted)
    }

    /// The snapshot with a copy that is probably most like `snapshot`: of the same host and paths before others, then
    /// the last one before it.
    fn previous(&self, snapshot: &Snapshot) -> Option<(NamedSnapshot, NamedSnapshot)> {
        let pairs = self.originals.iter().filter_map(|named| Some((named, self.best(&named.origin())?)));
        let likeness = |(named, _): &(&NamedSnapshot, &NamedSnapshot)| {
            let other = &named.snapshot;
            let is_before = other.time_ns <= snapshot.time_ns;
            let distance = other.time_ns.abs_diff(snapshot.time_ns);
            (other.paths == snapshot.paths, other.host == snapshot.host, is_before, std::cmp::Reverse(distance))
        };
        pairs.max_by_key(likeness).map(|(named, copy)| (named.clone(), copy.clone()))
    }
}
