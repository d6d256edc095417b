//! The commit of a backup: holds what it relies on, completes the index and writes the snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::indexes::Indexes;
use super::input::ReadCounts;
use super::report::{BackupRequest, CopiedSnapshot, CopyPurpose, statistics};
use super::save::Saved;
use super::segments::prove_containers;
use crate::error::{Error, Result};
use crate::repo::Repository;
use crate::repo::index::{ContainerListing, Hits, drop_deleted_containers};
use crate::repo::marks::{Marks, Quarantine};
use crate::repo::reliance::Reliance;
use crate::repo::salts::Salt;
use crate::repo::snapshot::{
    COPIED_FROM_KEY, EXCLUDES_KEY, FLAGS_RECORDED_KEY, PROBLEMS, REWRITTEN_FROM_KEY, STARTED_KEY, Snapshot, blob_name,
    is_reported,
};
use crate::repo::tree::Node;
use crate::types::SnapshotId;

/// What a snapshot records about the start of its backup.
pub struct SnapshotStart {
    /// Nanoseconds since 1970.
    pub time_ns: i64,
    /// Absolute paths, sorted.
    pub paths: Vec<Vec<u8>>,
    /// The parent.
    pub parent: Option<SnapshotId>,
    /// Metadata of the root.
    pub root_node: Option<Node>,
    /// Whether the source has file flags that were read.
    pub has_flags: bool,
}

/// What the commit of a run needs.
pub struct Commit<'a> {
    repository: &'a Repository,
    request: &'a BackupRequest,
    listing: &'a ContainerListing,
    indexes: &'a Indexes,
    reliance: Arc<Reliance>,
}

impl<'a> Commit<'a> {
    /// For a run whose stages have not started: a segment that is written before the end needs an intent, too.
    pub fn new(
        repository: &'a Repository,
        request: &'a BackupRequest,
        listing: &'a ContainerListing,
        indexes: &'a Indexes,
    ) -> Self {
        let reliance = Arc::new(Reliance::new(repository, indexes.container_indexes.clone()));
        let guard = reliance.clone();
        indexes.set_guard(Box::new(move |stored| guard.hold(stored).map(drop)));
        Commit { repository, request, listing, indexes, reliance }
    }

    /// Deletes the intents of the run, which has committed or failed. Returns whether the store lets this run
    /// delete. If not, it must not merge: it would merge again and again what cannot be deleted.
    ///
    /// # Errors
    /// Those of the store. An intent stays then, and readers leave the snapshot out until a prune takes it for dead.
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
    /// [`Error::Pruned`] if a prune may delete, or has deleted, what the run relies on; those of the store.
    pub fn run(&self, start: SnapshotStart, saved: &Saved, counts: &ReadCounts) -> Result<(SnapshotId, Hits)> {
        let stored = self.indexes.stored();
        let intent = self.reliance.hold(&stored)?;
        let index_hits = self.indexes.finish_chunks()?;
        prove_containers(self.listing, self.indexes)?;
        self.obey_new_marks()?;
        let intent = self.reliance.renew(intent, &stored)?;
        if let Some(copied) = &self.request.copied {
            copied.check(counts.problems.load(Ordering::Relaxed))?;
        }
        let snapshot = self.snapshot(start, saved, counts, &intent)?;
        let id = snapshot.save(self.repository.store.as_ref())?;
        self.reliance.confirm(&id, &intent, &stored)?;
        Ok((id, index_hits))
    }

    fn snapshot(&self, start: SnapshotStart, saved: &Saved, counts: &ReadCounts, intent: &Salt) -> Result<Snapshot> {
        let root_node = start.root_node.map(|node| Node { partial: node.partial || saved.root_is_partial, ..node });
        let snapshot = match &self.request.copied {
            Some(copied) => copied.described()?,
            None => self.described(start.time_ns, start.has_flags)?,
        };
        let mut statistics = statistics(saved, counts);
        if let Some(copied) = &self.request.copied {
            *statistics.entry(PROBLEMS.into()).or_default() += copied.inherited_problems();
        }
        Ok(Snapshot {
            paths: start.paths.into_iter().map(Into::into).collect(),
            root: saved.root,
            parent: start.parent,
            program: concat!("fhrd ", env!("CARGO_PKG_VERSION")).into(),
            statistics,
            root_node,
            intent: Some(intent.to_vec()),
            ..snapshot
        })
    }

    /// What the request says about the snapshot of a backup that began at `time_ns`.
    fn described(&self, time_ns: i64, has_flags: bool) -> Result<Snapshot> {
        let mut extra = BTreeMap::new();
        if has_flags {
            extra.insert(FLAGS_RECORDED_KEY.into(), Vec::new().into());
        }
        if self.request.time_ns.is_some() {
            extra.insert(STARTED_KEY.into(), time_ns.to_le_bytes().to_vec().into());
        }
        if !self.request.excludes.is_empty() {
            extra.insert(EXCLUDES_KEY.into(), encoded(&self.request.excludes)?.into());
        }
        self.request.checkpoint.as_ref().map_or(Ok(()), |checkpoint| checkpoint.attach(&mut extra))?;
        Ok(Snapshot {
            time_ns: self.request.time_ns.unwrap_or(time_ns),
            host: self.request.host.clone(),
            user: uzers::get_current_username().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
            tags: self.request.tags.clone(),
            extra,
            ..Snapshot::default()
        })
    }
}

impl CopiedSnapshot {
    /// Problems of the original that the new snapshot has, too. Those of a backup are what its source did not give, so
    /// a copy of it can be complete; one of a poor copy cannot.
    fn inherited_problems(&self) -> u64 {
        match self.purpose {
            CopyPurpose::Copy(_) => self.original.copy_problems(),
            CopyPurpose::Rewrite(_) => self.original.snapshot.problems(),
        }
    }

    /// Fails if a new snapshot with this many problems must not be stored.
    ///
    /// # Errors
    /// [`Error::Incomplete`] if there are too many. [`Error::NoSuchSnapshot`] if the original of a rewrite, or of a
    /// copy with problems, was deleted or withdrawn meanwhile. Those of the store.
    fn check(&self, problems: u64) -> Result<()> {
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
            false => Ok(()),
        }
    }

    /// What the original says about itself, and where the new one comes from.
    fn described(&self) -> Result<Snapshot> {
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
}

fn encoded(excludes: &[String]) -> Result<Vec<u8>> {
    minicbor::to_vec(excludes).map_err(|error| Error::internal(error.to_string()))
}
