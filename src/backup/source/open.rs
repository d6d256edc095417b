//! What a run asks of its source, and what it tells the source.
//!
//! 1. [`SourceKind::plan`] looks at the source before the repository is touched: a source that cannot be read costs
//!    nothing.
//! 2. [`SourceKind::parents`] finds the snapshots that the source is compared with.
//! 3. [`SourcePlan::open`] opens the source and gives its first stages, which [`FirstStages`] put into the pipeline.
//! 4. Before the commit, [`SourceKind::decide`] has the last word, and [`SourceKind::description`] says what the
//!    snapshot records beside its content.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::labels::{ShareLabel, SnapshotLabels};
use super::parent::ParentCursor;
use super::parents::{FoundParents, ParentCursors};
use crate::backup::counts::ReadCounts;
use crate::backup::message::ReadBatch;
use crate::config::Config;
use crate::error::Result;
use crate::metrics::Progress;
use crate::pipeline::{Link, Pipeline, Source};
use crate::repo::Repository;
use crate::repo::index::{ChunkPresence, ContainerListing, SharedContainerIndexes};
use crate::repo::read::ChunkReader;
use crate::repo::snapshot::{NamedSnapshot, Snapshot};
use crate::repo::tree::Node;

/// A kind of source.
pub trait SourceKind {
    /// Whether it can be read more than once.
    fn is_repeatable(&self) -> bool;

    /// What the caller says about the snapshot; `None` if the source has its own description.
    fn labels(&self) -> Option<&SnapshotLabels>;

    /// Looks at the source without reading it.
    ///
    /// # Errors
    /// [`Error::Usage`](crate::error::Error::Usage) if there is nothing to store, or if a name is wrong.
    fn plan(&self) -> Result<SourcePlan<'_>>;

    /// The snapshots of `repository` that the source is compared with. `paths` are those of the plan.
    ///
    /// # Errors
    /// Errors of the store, and that of a snapshot that was asked for and is not there.
    fn parents(&self, repository: &Repository, paths: &[Vec<u8>]) -> Result<FoundParents>;

    /// What the snapshot of a backup that began at `started_ns`, nanoseconds since 1970, says about itself.
    ///
    /// # Errors
    /// Errors of encoding.
    fn description(&self, started_ns: i64) -> Result<Snapshot>;

    /// Decides whether a snapshot may be stored in which `problems` entries could not be read. Returns how many the
    /// snapshot records.
    ///
    /// # Errors
    /// [`Error::Incomplete`](crate::error::Error::Incomplete) if there are too many, and others of the source.
    fn decide(&self, problems: u64) -> Result<u64>;
}

/// A source that was looked at.
pub struct SourcePlan<'s> {
    /// Absolute paths that the snapshot records, sorted, without duplicates.
    pub paths: Vec<Vec<u8>>,
    open: Box<dyn for<'a> FnOnce(SourceRun<'a>) -> Result<OpenSource<'a>> + 's>,
}

impl<'s> SourcePlan<'s> {
    /// A source that has `paths`, and that `open` opens.
    pub fn new(paths: Vec<Vec<u8>>, open: impl for<'a> FnOnce(SourceRun<'a>) -> Result<OpenSource<'a>> + 's) -> Self {
        SourcePlan { paths, open: Box::new(open) }
    }

    /// Opens the source.
    ///
    /// # Errors
    /// Errors of the source.
    pub fn open(self, run: SourceRun<'_>) -> Result<OpenSource<'_>> {
        (self.open)(run)
    }
}

/// Puts the first stages of a source into an empty pipeline.
pub type FirstStages<'a> = Box<dyn FnOnce(&mut Pipeline<'a>) -> Link<'a, ReadBatch> + 'a>;

/// A source that can be read now.
pub struct OpenSource<'a> {
    /// Its stages.
    pub first: FirstStages<'a>,
    /// Metadata of the snapshot's root.
    pub root_node: Option<Node>,
    /// Whether the stages count which files are new, changed or gone.
    pub counts_changes: bool,
}

impl<'a> OpenSource<'a> {
    /// A source that one stage reads and that has no root of its own.
    pub fn of_stage(stage: impl Source<Out = ReadBatch> + 'a) -> Self {
        OpenSource { first: Box::new(|pipeline| pipeline.source(stage)), root_node: None, counts_changes: false }
    }
}

/// The run that a source is opened for.
#[derive(Clone, Copy)]
pub struct SourceRun<'a> {
    /// Where to store.
    pub repository: &'a Repository,
    /// The configuration.
    pub config: &'a Config,
    /// What the repository has.
    pub listing: &'a Arc<ContainerListing>,
    /// Container indexes in memory. What the run loads, it relies on.
    pub container_indexes: &'a Arc<SharedContainerIndexes>,
    /// The snapshots that [`SourceKind::parents`] has found.
    pub parents: &'a [NamedSnapshot],
    /// Parents, too, unless [`Self::for_split`] says that they are not needed.
    pub others: &'a [NamedSnapshot],
    /// Whether what they have and the source does not is gone.
    pub counts_gone: bool,
    /// Directory of the caches.
    pub cache: &'a Path,
    /// Start of the backup, nanoseconds since 1970.
    pub started_ns: i64,
    /// Counters for the progress display.
    pub progress: &'a Progress,
    /// Counters of the report.
    pub counts: &'a Arc<ReadCounts>,
    /// Whether the run is to stop.
    pub stop: &'a Arc<AtomicBool>,
}

impl SourceRun<'_> {
    /// The run of a source whose files fall to the shares that `label` knows, once the listing was taken.
    pub fn for_split(self, label: Option<&ShareLabel>) -> Self {
        let is_same = |label: &ShareLabel| self.parents.iter().all(|parent| label.is_split_as(&parent.snapshot));
        if self.others.is_empty() || label.is_none_or(is_same) {
            return SourceRun { others: &[], ..self };
        }
        tracing::info!("the work is split otherwise than last time: all shares of the last job are parents");
        SourceRun { counts_gone: false, ..self }
    }

    /// Cursors at the roots of the parents.
    pub fn parent_cursors(&self) -> ParentCursors {
        self.parent_cursors_with(self.config.read.recheck_seconds)
    }

    /// Cursors at the roots of the parents, for files that change with their identity: none changes later unseen.
    pub fn parent_cursors_of_objects(&self) -> ParentCursors {
        self.parent_cursors_with(0)
    }

    fn parent_cursors_with(&self, recheck_seconds: u64) -> ParentCursors {
        let cursor = |parent: &NamedSnapshot| {
            let (snapshot, listing) = (&parent.snapshot, self.listing);
            let count = self.parents.len() + self.others.len();
            cursor(count, self.repository, listing, self.container_indexes, snapshot, recheck_seconds)
        };
        ParentCursors::new(self.parents.iter().chain(self.others).map(cursor).collect(), self.counts_gone)
    }

    /// A cursor at nothing, which knows what the repository has.
    pub fn empty_cursor(&self) -> ParentCursor {
        let recheck_seconds = self.config.read.recheck_seconds;
        cursor(1, self.repository, self.listing, self.container_indexes, &Snapshot::default(), recheck_seconds)
    }
}

/// One of `count` cursors, at the root of a snapshot. They share the memory of one.
pub fn cursor(
    count: usize,
    repository: &Repository,
    listing: &Arc<ContainerListing>,
    shared: &Arc<SharedContainerIndexes>,
    snapshot: &Snapshot,
    recheck_seconds: u64,
) -> ParentCursor {
    let reader = ChunkReader::one_of(count, repository, listing.clone());
    let presence = ChunkPresence::one_of(count, repository.store.clone(), listing.clone(), shared.clone());
    ParentCursor::new(reader, presence, snapshot, recheck_seconds)
}
