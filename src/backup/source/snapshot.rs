//! A stored snapshot, of another repository or of this one, that is to be stored again: Stored reads it.

use std::fmt;
use std::sync::Arc;

use super::in_target::FilesInTarget;
use super::labels::{SnapshotLabels, encoded};
use super::open::{OpenSource, SourceKind, SourcePlan, SourceRun, cursor};
use super::parents::FoundParents;
use super::stored::{StoredStage, StoredTree};
use crate::error::{Error, Result};
use crate::filesystem::Patterns;
use crate::repo::Repository;
use crate::repo::features::{Feature, has};
use crate::repo::index::ContainerListing;
use crate::repo::read::Reader;
use crate::repo::snapshot::{
    COPIED_FROM_KEY, EXCLUDES_KEY, NamedSnapshot, REWRITTEN_FROM_KEY, Snapshot, blob_name, is_reported,
};
use crate::types::SnapshotId;

/// A stored snapshot that is to be stored again, in another repository or without some entries.
#[derive(Clone)]
pub struct SnapshotSource {
    /// The repository that has it.
    pub repository: Repository,
    /// The snapshot.
    pub original: NamedSnapshot,
    /// Why it is stored again.
    pub purpose: CopyPurpose,
    /// Entries to leave out, with all that is below them.
    pub exclude: Patterns,
    /// An earlier snapshot of the other repository, and its copy in this one: what did not change is not read.
    pub previous: Option<(NamedSnapshot, NamedSnapshot)>,
    /// Store nothing if there are as many problems as this, or more.
    pub problems_limit: Option<u64>,
}

/// Why a snapshot is stored again. The new one records it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyPurpose {
    /// To be in another repository. The snapshot that it was at first, in the first repository.
    Copy(SnapshotId),
    /// To lose entries: what is left out in addition, an option and its value each.
    Rewrite(Vec<String>),
}

impl fmt::Debug for SnapshotSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "snapshot {} of repository {}", self.original.id, self.repository.id)
    }
}

impl SnapshotSource {
    /// Problems of the original that the new snapshot has, too. Those of a backup are what its source did not give, so
    /// a copy of it can be complete; one of a poor copy cannot.
    fn inherited_problems(&self) -> u64 {
        match self.purpose {
            CopyPurpose::Copy(_) => self.original.copy_problems(),
            CopyPurpose::Rewrite(_) => self.original.snapshot.problems(),
        }
    }

    /// The stage that reads the snapshot.
    fn open<'a>(&self, run: SourceRun<'a>) -> Result<OpenSource<'a>> {
        let SourceRun { repository, config, progress, counts, .. } = run;
        let source = self.repository.stopped_by(run.stop);
        let source_listing = Arc::new(ContainerListing::take(&source.store)?);
        let reader = Reader::new(&source, source_listing.clone());
        let (before, copy) = match &self.previous {
            Some((before, copy)) => (before.snapshot.clone(), copy.snapshot.clone()),
            None => (Snapshot::default(), Snapshot::default()),
        };
        let same_chunks = source.key == repository.key && source.config == repository.config;
        let (target, listing) = (repository.clone(), run.listing.clone());
        let (shared, recheck_seconds) = (run.container_indexes.clone(), config.read.recheck_seconds);
        let (takes_rebuilt, target_key) = (has(repository, Feature::Rebuilt)?, repository.key);
        let new_in_target = move || FilesInTarget {
            same_chunks,
            takes_rebuilt,
            before: cursor(1, &source, &source_listing, &Arc::default(), &before, recheck_seconds),
            copy: cursor(1, &target, &listing, &shared, &copy, recheck_seconds),
        };
        let stored = StoredTree {
            root: self.original.snapshot.root,
            exclude: self.exclude.clone(),
            reader,
            target_key,
            new_in_target: Box::new(new_in_target),
        };
        let stage = StoredStage::new(stored, config, progress, counts.clone());
        let root_node = self.original.snapshot.root_node.clone();
        Ok(OpenSource { root_node, ..OpenSource::of_stage(stage) })
    }
}

impl SourceKind for SnapshotSource {
    fn is_repeatable(&self) -> bool {
        true
    }

    fn labels(&self) -> Option<&SnapshotLabels> {
        None
    }

    fn plan(&self) -> Result<SourcePlan<'_>> {
        let paths = self.original.snapshot.paths.iter().map(|path| path.to_vec()).collect();
        Ok(SourcePlan::new(paths, |run| self.open(run)))
    }

    fn parents(&self, _: &Repository, _: &[Vec<u8>]) -> Result<FoundParents> {
        let snapshots = self.previous.iter().map(|(_, copy)| copy.clone()).collect();
        Ok(FoundParents { snapshots, ..FoundParents::default() })
    }

    /// What the original says about itself, and where the new one comes from.
    fn description(&self, _: i64) -> Result<Snapshot> {
        let mut snapshot = self.original.snapshot.clone();
        match &self.purpose {
            CopyPurpose::Copy(origin) => {
                snapshot.extra.insert(COPIED_FROM_KEY.into(), origin.0.to_vec().into());
                // That is a snapshot of the other repository.
                snapshot.extra.remove(REWRITTEN_FROM_KEY);
            }
            CopyPurpose::Rewrite(excludes) => {
                snapshot.extra.insert(REWRITTEN_FROM_KEY.into(), self.original.id.0.to_vec().into());
                let excludes: Vec<String> = snapshot.excludes().into_iter().chain(excludes.iter().cloned()).collect();
                snapshot.extra.insert(EXCLUDES_KEY.into(), encoded(&excludes)?.into());
                // It follows the original.
                snapshot.time_ns = snapshot.time_ns.saturating_add(1);
            }
        }
        Ok(snapshot)
    }

    /// Also fails with [`Error::NoSuchSnapshot`] if the original of a rewrite, or of a copy with problems, was deleted
    /// or withdrawn meanwhile, and with errors of the store.
    fn decide(&self, problems: u64) -> Result<u64> {
        let (store, id) = (self.repository.store.as_ref(), self.original.id);
        if matches!(self.purpose, CopyPurpose::Rewrite(_)) || problems > 0 {
            let is_there = store.head(&blob_name(&id))?.is_some() && is_reported(store, &self.original)?;
            if !is_there {
                let hint = ": it was deleted or withdrawn meanwhile".into();
                return Err(Error::NoSuchSnapshot { id: id.to_string(), hint });
            }
        }
        match self.problems_limit.is_some_and(|limit| problems >= limit) {
            true => Err(Error::Incomplete { snapshot: id.to_string(), problems }),
            false => Ok(problems + self.inherited_problems()),
        }
    }
}
