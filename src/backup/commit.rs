//! The commit of a backup: holds what it relies on, completes the index and writes the snapshot.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::counts::ReadCounts;
use super::indexes::Indexes;
use super::report::statistics;
use super::saved::Saved;
use super::segments::prove_containers;
use super::source::SourceKind;
use crate::error::Result;
use crate::repo::Repository;
use crate::repo::index::{ContainerListing, Hits, drop_deleted_containers};
use crate::repo::marks::{Marks, Quarantine};
use crate::repo::reliance::{LookPatience, Reliance};
use crate::repo::salts::Salt;
use crate::repo::snapshot::Snapshot;
use crate::repo::tree::Node;
use crate::types::SnapshotId;

/// What a snapshot records about the start of its backup.
pub struct SnapshotStart {
    /// Nanoseconds since 1970.
    pub started_ns: i64,
    /// Absolute paths, sorted.
    pub paths: Vec<Vec<u8>>,
    /// The parent.
    pub parent: Option<SnapshotId>,
    /// Metadata of the root.
    pub root_node: Option<Node>,
}

/// What the commit of a run needs.
pub struct Commit<'a> {
    repository: &'a Repository,
    source: &'a dyn SourceKind,
    listing: &'a ContainerListing,
    indexes: &'a Indexes,
    reliance: Arc<Reliance>,
}

impl<'a> Commit<'a> {
    /// For a run whose stages have not started: a segment that is written before the end needs an intent, too.
    pub fn new(
        repository: &'a Repository,
        source: &'a dyn SourceKind,
        listing: &'a ContainerListing,
        indexes: &'a Indexes,
        patience: LookPatience,
    ) -> Self {
        let reliance = Reliance::new(repository, indexes.container_indexes.clone()).with_patience(patience);
        let reliance = Arc::new(reliance);
        let guard = reliance.clone();
        indexes.set_guard(Box::new(move |stored| guard.hold(stored).map(drop)));
        Commit { repository, source, listing, indexes, reliance }
    }

    /// Deletes the intents of the run, which has committed or failed. Returns whether the store lets this run
    /// delete. If not, it must not merge: it would merge again and again what cannot be deleted.
    ///
    /// # Errors
    /// Errors of the store. An intent stays then, and readers leave the snapshot out until a prune takes it for dead.
    pub fn release(&self) -> Result<bool> {
        self.reliance
            .release()
            .inspect_err(|error| tracing::warn!("an intent stays until a prune takes it for dead: {error}"))
    }

    /// After a failure. A prune may have taken this run for dead, and deleted its containers before a segment that
    /// names them was put: they are taken out of the segments, so that nobody takes them for lost.
    pub fn take_back(&self) {
        let taken = drop_deleted_containers(self.listing, &self.indexes.stored(), &AtomicBool::new(false));
        taken.unwrap_or_else(|error| tracing::debug!("segments of this run may name what is gone: {error}"));
    }

    /// Obeys marks that were set while the backup ran. What they list may be in the snapshot already. The same holds
    /// for those that the first listing lacked.
    fn obey_new_marks(&self) -> Result<()> {
        let marks = Marks::read(self.repository.store.as_ref())?;
        marks.check_writable()?;
        let known = self.listing.quarantine();
        let mut all = Quarantine::clone(&known);
        all.merge(&marks.quarantine);
        if all != *known {
            tracing::warn!("a mark lists damage that was not known at first; another backup stores that again");
            self.listing.note_marks_unread(1);
        }
        Ok(())
    }

    /// Writes the snapshot. All containers are durable.
    ///
    /// # Errors
    /// [`Error::Pruned`](crate::error::Error::Pruned) if a prune may delete, or has deleted, what the run relies on;
    /// errors of the store and of the source.
    pub fn run(&self, start: SnapshotStart, saved: &Saved, counts: &ReadCounts) -> Result<(SnapshotId, Hits)> {
        let stored = self.indexes.stored();
        let intent = self.reliance.hold(&stored)?;
        let index_hits = self.indexes.finish_chunks()?;
        prove_containers(self.listing, self.indexes)?;
        self.obey_new_marks()?;
        let intent = self.reliance.renew(intent, &stored)?;
        let problems = self.source.decide(counts.problems.load(Ordering::Relaxed))?;
        let snapshot = self.snapshot(start, (saved, counts), problems, &intent)?;
        let id = snapshot.save(self.repository.store.as_ref())?;
        self.reliance.confirm(&id, &intent, &stored)?;
        Ok((id, index_hits))
    }

    fn snapshot(
        &self,
        start: SnapshotStart,
        (saved, counts): (&Saved, &ReadCounts),
        problems: u64,
        intent: &Salt,
    ) -> Result<Snapshot> {
        let root_node = start.root_node.map(|node| Node { partial: node.partial || saved.root_is_partial, ..node });
        Ok(Snapshot {
            paths: start.paths.into_iter().map(Into::into).collect(),
            root: saved.root,
            parent: start.parent,
            program: concat!("fhrd ", env!("CARGO_PKG_VERSION")).into(),
            statistics: statistics(saved, counts, problems),
            root_node,
            intent: Some(intent.to_vec()),
            ..self.source.description(start.started_ns)?
        })
    }
}
