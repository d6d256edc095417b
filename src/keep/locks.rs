//! Locks during a prune, in stores that have them (S3 Object Lock).
//!
//! 1. Everything that stays is locked for some period. A lock is extended when less than half of the period is left, so
//!    prunes must come more often than that.
//! 2. A container that nobody needs waits for the end of its lock. Until then a backup may use it again.
//! 3. A container that is worth compacting waits until its lock would have to be extended. Then what is needed of it
//!    moves. The store hides the container, and destroys it after the lock.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;

use super::live::LiveSet;
use super::plan::Occupancy;
use super::prune_report::PruneReport;
use crate::error::{Error, Result};
use crate::repo::Repository;
use crate::repo::container::{blob_name, parse_name};
use crate::repo::index::ContainerListing;
use crate::store::{BlobKind, BlobName, BlobPrefix, Store, StoreExt, try_map_parallel};
use crate::types::ContainerId;

/// The part of the period that every lock has left after a prune: one half.
const LEFT_PART: u32 = 2;

/// Knows and extends the locks of one repository.
pub struct LockKeeper<'a> {
    store: &'a dyn Store,
    stop: &'a AtomicBool,
    now: SystemTime,
    /// Locks that end before this are extended.
    due: SystemTime,
    /// When extended locks end.
    until: SystemTime,
    /// When the locks of containers end, as far as they were looked at.
    ends: HashMap<ContainerId, Option<SystemTime>>,
    /// Containers of which nothing is needed.
    unneeded: HashSet<ContainerId>,
}

impl<'a> LockKeeper<'a> {
    /// Locks of `period`.
    ///
    /// # Errors
    /// [`Error::Usage`] if the store has no locks, or for a period that does not end. Errors of the store.
    pub fn new(repository: &'a Repository, period: Duration, stop: &'a AtomicBool) -> Result<Self> {
        let (store, now) = (repository.store.as_ref(), SystemTime::now());
        let end = |period| now.checked_add(period).ok_or_else(|| Error::Usage("cannot lock for so long".into()));
        let (due, until) = (end(period / LEFT_PART)?, end(period)?);
        let keeper = LockKeeper { store, stop, now, due, until, ends: HashMap::new(), unneeded: HashSet::new() };
        // Whether the store has locks shows with any name.
        keeper.end_of(&BlobName::only(BlobKind::Config))?;
        Ok(keeper)
    }

    /// When the lock of a blob ends. `None` also if the blob is gone.
    fn end_of(&self, name: &BlobName) -> Result<Option<SystemTime>> {
        match self.store.need_locks()?.locked_until(name) {
            Err(Error::BlobMissing { .. }) => Ok(None),
            end => end,
        }
    }

    /// Remembers which of `all` containers nobody needs.
    pub fn see(&mut self, all: &ContainerListing, live: &LiveSet) {
        self.unneeded = all.containers.iter().filter(|id| !live.has_any(id)).copied().collect();
    }

    /// Asks for the locks of these containers.
    ///
    /// # Errors
    /// Errors of the store; [`Error::Interrupted`].
    pub fn look_at(&mut self, containers: &[Occupancy]) -> Result<()> {
        let ends = try_map_parallel(self.store.requests_max(), containers, |one| {
            self.check_stop()?;
            Ok((one.id, self.end_of(&blob_name(&one.id))?))
        })?;
        self.ends = ends.into_iter().collect();
        Ok(())
    }

    /// Whether a prune may delete or compact a container.
    pub fn may_go(&self, id: &ContainerId) -> bool {
        let end = self.ends.get(id).copied().flatten();
        end.is_none_or(|end| end <= if self.unneeded.contains(id) { self.now } else { self.due })
    }

    /// Reports those of `chosen` that nobody needs and that must wait.
    pub fn report(&self, chosen: &HashSet<ContainerId>, containers: &[Occupancy], report: &mut PruneReport) {
        let waits =
            |one: &&Occupancy| chosen.contains(&one.id) && self.unneeded.contains(&one.id) && !self.may_go(&one.id);
        let waiting: Vec<&Occupancy> = containers.iter().filter(waits).collect();
        let end = waiting.iter().filter_map(|one| self.ends.get(&one.id).copied().flatten()).max();
        report.containers_locked = waiting.len() as u64;
        report.bytes_locked = waiting.iter().map(|one| one.bytes).sum();
        report.locked_until = end.and_then(|end| Timestamp::try_from(end).ok());
    }

    /// Extends the locks of everything that stays, if they end too soon. Returns how many; with `dry_run`, it only
    /// counts them.
    ///
    /// # Errors
    /// Errors of the store; [`Error::Interrupted`].
    pub fn extend(&self, dry_run: bool) -> Result<u64> {
        let unneeded: HashSet<BlobName> = self.unneeded.iter().map(blob_name).collect();
        let mut names: Vec<BlobName> =
            self.store.list(BlobPrefix::All)?.into_iter().map(|listed| listed.name).collect();
        names.retain(|name| !is_claim(name) && !unneeded.contains(name));
        let extended = try_map_parallel(self.store.requests_max(), &names, |name| {
            self.check_stop()?;
            let known = parse_name(name).and_then(|id| self.ends.get(&id).copied());
            let end = known.map_or_else(|| self.end_of(name), Ok)?;
            if end.is_some_and(|end| end >= self.due) {
                return Ok(0);
            }
            if dry_run {
                return Ok(1);
            }
            match self.store.need_locks()?.lock(name, self.until) {
                // Somebody has just deleted it.
                Err(Error::BlobMissing { .. }) => Ok(0),
                locked => locked.map(|()| 1),
            }
        })?;
        Ok(extended.into_iter().sum())
    }

    fn check_stop(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }
}

/// Whether a blob is an intent or a pending entry, which are deleted soon.
fn is_claim(name: &BlobName) -> bool {
    matches!(name.kind(), BlobKind::Intent | BlobKind::Pending)
}
