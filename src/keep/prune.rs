//! Prune: gives back the space of what no snapshot needs, beside writers and other prunes, without locks.
//!
//! 1. Entries of prunes that died are finished: what is still needed of their containers is moved, then all of them are
//!    deleted. Such an entry is never simply removed, because its owner may wake up and go on deleting.
//! 2. *Plan.* Everything that snapshots need is marked. Containers with little of it become candidates.
//! 3. *Announce.* A pending entry with the candidates is put. Then the pending entries are listed: whoever sees another
//!    prune withdraws. Intents older than the grace period are deleted.
//! 4. *Decide.* The intents are listed, then the snapshots, then the containers. Candidates that an intent names stay.
//!    Everything needed is marked again, preferring copies outside the candidates, and so are the bases of every entry
//!    in a container that stays.
//! 5. *Move.* What is marked in the candidates is moved to new containers, and a segment lists these.
//! 6. *Delete.* The candidates are deleted, then segments are written again without them, then their parity, then the
//!    entry is removed.
//!
//! In a cold repository, a data container is deleted whole or stays: nothing is read of it to move it.
//! With locks to extend, containers that nobody needs wait for the end of their lock: see [`super::locks`].
//! A container that the store does not let go stays in the entry, so that no writer uses it: what it copies from may be
//! gone. Each later prune tries again, and goes on.
//! Whatever cannot be read before step 6 ends the prune, and nothing is deleted. If another prune or a backup is in the
//! way, everything begins again, for some time. See [`crate::repo::claims`] for why this is safe.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use super::ages::BlobAges;
use super::compact::{Mover, check_claim};
use super::lacking::{lacking_bases, lacking_orphans};
use super::live::LiveSet;
use super::locks::LockKeeper;
use super::looks::Looks;
use super::mark::Marker;
use super::plan::{Occupancy, PlanBounds, choose};
use super::prune_report::{PruneOptions, PruneReport, SkippedRule};
use super::view::View;
use crate::crypto::any_number;
use crate::error::{Error, ErrorKind, Result};
use crate::repo::Repository;
use crate::repo::claims::{ClaimKind, ContainerClaim};
use crate::repo::cold;
use crate::repo::container::blob_name;
use crate::repo::features::list_to_write;
use crate::repo::index::similarity::clues;
use crate::repo::index::{check_most_there, drop_gone_containers, name_containers, read_container_index};
use crate::repo::marks::{Marks, check_writable};
use crate::repo::overwritten::check_stored_snapshots;
use crate::repo::pause::{jittered, pause};
use crate::repo::reads;
use crate::repo::seen::SeenNames;
use crate::repo::snapshot;
use crate::repo::snapshot_listing::all_names;
use crate::repo::sweep;
use crate::store::{BlobKind, BlobName, Durable};
use crate::types::{ContainerId, SnapshotId};

/// Time between two looks at whether another one is still in the way. Half of it to all of it, so that two prunes do
/// not always meet.
const PAUSE: Duration = Duration::from_millis(800);

/// Deletes and compacts containers.
///
/// # Errors
/// [`Error::Mark`] and other errors of whatever cannot be read: nothing was deleted then. [`Error::Usage`] if most
/// containers are missing, unless that is allowed. Errors of the store.
pub fn prune(repository: &Repository, options: &PruneOptions, stop: &Arc<AtomicBool>) -> Result<PruneReport> {
    prune_without(repository, options, &[], stop)
}

/// Reports what [`prune`] would do if the snapshots `forgotten` did not exist, and changes nothing.
///
/// # Errors
/// Errors of [`prune`].
pub fn estimate_prune(
    repository: &Repository,
    options: &PruneOptions,
    forgotten: &[SnapshotId],
    stop: &Arc<AtomicBool>,
) -> Result<PruneReport> {
    prune_without(repository, &PruneOptions { dry_run: true, ..*options }, forgotten, stop)
}

fn prune_without(
    repository: &Repository,
    options: &PruneOptions,
    forgotten: &[SnapshotId],
    stop: &Arc<AtomicBool>,
) -> Result<PruneReport> {
    let repository = &repository.stopped_by(stop);
    match options.dry_run {
        true => repository.check_writable()?,
        false => check_writable(repository).and_then(|()| crate::repo::keys::clean(repository))?,
    }
    let locks = options.extend_locks.map(|period| LockKeeper::new(repository, period, stop)).transpose()?;
    let (started, mut looks) = (Instant::now(), Looks::new(options.patience));
    let (damaged, report) = (Vec::new(), PruneReport::default());
    let (ages, locked) = (BlobAges::load(repository), HashSet::new());
    let mut seen = SeenNames::default();
    seen.add(all_names(repository)?);
    check_stored_snapshots(repository)?;
    let mut run =
        PruneRun { repository, options, forgotten, stop, ages, locks, stuck: None, damaged, locked, seen, report };
    loop {
        run.report.withdrawn = false;
        let result = match run.all() {
            // Another prune took this one for dead and has finished it.
            Err(Failure { error: Error::Pruned { .. }, has_deleted: false }) => {
                run.report.withdrawn = true;
                Ok(())
            }
            result => result,
        };
        match result {
            Ok(()) if !run.report.withdrawn || started.elapsed() >= options.patience => break,
            Ok(()) => tracing::debug!("beginning again"),
            // Another prune may have moved it, or a backup has withdrawn the snapshot: list again.
            Err(Failure { error, has_deleted: false }) if error.is_unreadable() => {
                looks.fail(repository.store.as_ref(), error)?;
            }
            Err(failure) => return Err(failure.error),
        }
        pause(jittered(PAUSE).min(options.patience), stop)?;
    }
    run.ages.save();
    if !options.dry_run {
        reads::leave_out_gone(repository);
    }
    if let Some(locks) = &run.locks {
        run.report.locks_extended = locks.extend(options.dry_run)?;
    }
    if !options.dry_run {
        match clues::sweep(repository, any_number()) {
            Err(error) if error.kind() == ErrorKind::Interrupted => return Err(error),
            // What is left of them only costs reads.
            swept => _ = swept.inspect_err(|error| tracing::warn!("clues of deleted containers stay: {error}")),
        }
    }
    Ok(run.report)
}

/// A prune, and what it knows.
pub(super) struct PruneRun<'a> {
    pub(super) repository: &'a Repository,
    pub(super) options: &'a PruneOptions,
    /// Snapshots that count as deleted. Empty unless nothing is changed.
    forgotten: &'a [SnapshotId],
    stop: &'a AtomicBool,
    pub(super) ages: BlobAges,
    locks: Option<LockKeeper<'a>>,
    /// The pending entry with what the store does not let go.
    stuck: Option<ContainerClaim>,
    /// Pending entries that nobody can read, older than the grace period.
    pub(super) damaged: Vec<BlobName>,
    /// What these may list and cannot be deleted now. It needs another entry.
    locked: HashSet<ContainerId>,
    /// Claims and snapshots that must not be missing in a listing while they are there.
    pub(super) seen: SeenNames,
    pub(super) report: PruneReport,
}

impl PruneRun<'_> {
    fn all(&mut self) -> Result<(), Failure> {
        self.report.dry_run = self.options.dry_run;
        (self.report.containers_refused, self.stuck) = (0, None);
        self.damaged.clear();
        let store = self.repository.store.as_ref();
        let dead = self.dead_prunes()?;
        if !self.options.dry_run {
            self.break_intents()?;
            if !dead.is_empty() && !self.finish(&dead)? {
                return Ok(());
            }
        }
        let (candidates, has_unreported) = self.plan()?;
        if self.options.dry_run {
            return Ok(());
        }
        if candidates.is_empty() && !has_unreported {
            self.delete_damaged()?;
            self.clean_segments()?;
            return Ok(self.sweep()?);
        }
        let own = ContainerClaim::put(store, ClaimKind::Pending, &self.repository.salts.draw()?, &candidates)?;
        let Some(held) = self.look(&own).map_err(|error| self.withdraw(&own, error.into()))? else {
            tracing::info!("another prune is running; this one withdraws");
            self.report.withdrawn = true;
            return Ok(store.delete(&own.name, Durable::OnReturn)?);
        };
        if !self.damaged.is_empty() && !candidates.is_disjoint(&held) {
            tracing::info!(
                "a backup relies on containers that an earlier prune may have listed; a later prune goes on"
            );
            self.report.withdrawn = true;
            return Ok(store.delete(&own.name, Durable::OnReturn)?);
        }
        let doomed: HashSet<ContainerId> = candidates.difference(&held).copied().collect();
        self.report.containers_held = (candidates.len() - doomed.len()) as u64;
        if self.move_and_delete(&doomed, &own, true).map_err(|failure| self.withdraw(&own, failure))? > 0 {
            // Without what a backup relies on.
            ContainerClaim::put(store, ClaimKind::Pending, &self.repository.salts.draw()?, &doomed)?;
        }
        self.delete_damaged()?;
        Ok(store.delete(&own.name, Durable::OnReturn)?)
    }

    /// The containers that writers rely on; none if another prune is there besides the entry `own`.
    fn look(&mut self, own: &ContainerClaim) -> Result<Option<HashSet<ContainerId>>> {
        let store = self.repository.store.as_ref();
        // The own entry is there, so a listing without it is short.
        self.seen.add([own.name.clone()]);
        let others = self.seen.list(store, BlobKind::Pending)?;
        let stuck = self.stuck.as_ref().map(|claim| &claim.name);
        let is_known = |name: &BlobName| *name == own.name || Some(name) == stuck || self.damaged.contains(name);
        if others.iter().any(|listed| !is_known(&listed.name)) {
            return Ok(None);
        }
        ContainerClaim::containers_of_seen(store, ClaimKind::Intent, &mut self.seen).map(Some)
    }

    /// Deletes the pending entries that nobody can read, once this prune has deleted what no snapshot needs. Until then
    /// they keep writers from containers whose bases their owner may have deleted.
    fn delete_damaged(&mut self) -> Result<()> {
        if !self.damaged.is_empty() && !self.locked.is_empty() {
            let (store, salt) = (self.repository.store.as_ref(), self.repository.salts.draw()?);
            ContainerClaim::put(store, ClaimKind::Pending, &salt, &self.locked)?;
        }
        self.damaged.drain(..).try_for_each(|name| self.repository.store.delete(&name, Durable::OnReturn))
    }

    /// Removes the own entry after a failure before the first deletion.
    fn withdraw(&self, own: &ContainerClaim, failure: Failure) -> Failure {
        if !failure.has_deleted
            && let Err(second) = self.repository.store.delete(&own.name, Durable::OnReturn)
        {
            tracing::warn!("{} stays, and the next prune finishes it: {second}", own.name);
        }
        failure
    }

    /// Finishes the prunes that left these entries. Returns whether it could: a living intent may hold a container.
    fn finish(&mut self, dead: &[ContainerClaim]) -> Result<bool, Failure> {
        let store = self.repository.store.as_ref();
        let doomed: HashSet<ContainerId> = dead.iter().flat_map(|claim| claim.containers.iter().copied()).collect();
        let own = ContainerClaim::put(store, ClaimKind::Pending, &self.repository.salts.draw()?, &doomed)?;
        let held = ContainerClaim::containers_of_seen(store, ClaimKind::Intent, &mut self.seen)?;
        if !doomed.is_disjoint(&held) {
            tracing::info!("a backup relies on containers of an earlier prune; a later prune finishes that");
            self.report.withdrawn = true;
            // The other entries keep these containers from new writers. This one has deleted nothing.
            store.delete(&own.name, Durable::OnReturn)?;
            return Ok(false);
        }
        let refused = self.move_and_delete(&doomed, &own, false).map_err(|failure| self.withdraw(&own, failure))?;
        dead.iter().try_for_each(|claim| store.delete(&claim.name, Durable::OnReturn))?;
        if refused > 0 {
            self.stuck = Some(own);
            return Ok(true);
        }
        self.report.prunes_finished += dead.len() as u64;
        store.delete(&own.name, Durable::OnReturn)?;
        Ok(true)
    }

    pub(super) fn bounds(&self) -> PlanBounds {
        PlanBounds {
            grace: self.options.grace,
            now: SystemTime::now(),
            repack_bytes_max: self.options.repack_bytes_max,
            container_bytes: self.options.container_bytes,
        }
    }

    /// What is there now. The containers in `doomed` do not stay.
    fn view(&mut self, doomed: &HashSet<ContainerId>) -> Result<View> {
        let stuck = self.stuck.iter().flat_map(|claim| &claim.containers);
        let leaving = doomed.iter().chain(stuck).copied().collect();
        let view = View::take(self.repository, self.forgotten, &leaving, &mut self.seen, self.stop)?;
        if !self.options.allow_no_containers {
            check_most_there(&view.all, 0)?;
        }
        Ok(view)
    }

    fn mark<'a>(&'a self, view: &View) -> Result<Marker<'a>> {
        let mut marker = Marker::new(self.repository, view.retained.clone(), view.all.clone(), self.stop);
        marker.skipped_rule = self.options.skipped_rule;
        view.snapshots.iter().try_for_each(|named| marker.snapshot(named))?;
        marker.models(self.repository)?;
        Ok(marker)
    }

    /// Chooses candidates. Also says whether there is something to do about snapshots that nobody has reported.
    fn plan(&mut self) -> Result<(HashSet<ContainerId>, bool)> {
        let view = self.view(&HashSet::new())?;
        let live = self.mark(&view)?.into_live();
        self.report.snapshots = view.snapshots.len() as u64;
        let containers = self.occupancies(&view, &live)?;
        let bounds = self.bounds();
        if let Some(locks) = &mut self.locks {
            locks.see(&view.all, &live);
            locks.look_at(&containers)?;
            locks.report(&choose(&containers, &bounds), &containers, &mut self.report);
        }
        let is_stuck =
            |id: &ContainerId| self.stuck.as_ref().is_some_and(|claim| claim.containers.binary_search(id).is_ok());
        let (is_cold, min_age) = (cold::is_cold(self.repository), self.options.min_age);
        let is_free = |one: &&Occupancy| {
            !is_stuck(&one.id)
                && self.locks.as_ref().is_none_or(|locks| locks.may_go(&one.id))
                && one.may_go(is_cold, min_age, bounds.now)
        };
        let free: Vec<Occupancy> = containers.iter().filter(is_free).copied().collect();
        let mut candidates = choose(&free, &bounds);
        self.locked.clear();
        if !self.damaged.is_empty() {
            // Once the entries that cannot be read are gone, writers would use what lacks its bases.
            let lacking = lacking_bases(self.repository, &view.all, &|| self.check_stop())?;
            candidates.extend(free.iter().map(|one| one.id).filter(|id| lacking.contains(id)));
            self.locked = lacking.into_iter().filter(|id| !candidates.contains(id) && !is_stuck(id)).collect();
        }
        let chosen = || containers.iter().filter(|one| candidates.contains(&one.id));
        let report = &mut self.report;
        report.containers = containers.len() as u64;
        let loose = free.iter().filter(|one| bounds.is_old(one.modified));
        report.bytes_loose = loose.map(|one| one.loose_bytes).sum();
        report.bytes = containers.iter().map(|one| one.bytes).sum();
        report.bytes_needed = containers.iter().map(|one| one.live_bytes).sum();
        let young = || containers.iter().filter(|one| one.live_bytes == 0 && !bounds.is_old(one.modified));
        report.containers_young = young().count() as u64;
        report.bytes_young = young().map(|one| one.bytes).sum();
        report.note_min_age(&containers, min_age, &bounds);
        if self.options.dry_run {
            report.containers_deleted = candidates.len() as u64;
            report.bytes_deleted = chosen().map(|one| one.bytes).sum();
            report.bytes_written = chosen().map(|one| one.live_bytes).sum();
        }
        let has_unreported = self.has_unreported(&view)?;
        Ok((candidates, has_unreported))
    }

    /// Moves what is needed out of the doomed containers, and deletes them. The pending entry is in the store, and the
    /// intents were listed after that. Returns how many the store does not let go: the entry must stay for these,
    /// because what their entries copy from may be gone. If this prune `is_alone`, it decides about snapshots that
    /// nobody has reported.
    fn move_and_delete(
        &mut self,
        doomed: &HashSet<ContainerId>,
        own: &ContainerClaim,
        is_alone: bool,
    ) -> Result<u64, Failure> {
        let view = self.view(doomed)?;
        if is_alone {
            let expired = self.expired(&view)?;
            let check_alone = || check_claim(self.repository.store.as_ref(), &own.name);
            view.intents.clean(self.repository, &view, &expired, &check_alone)?;
        }
        let (existing, mut refused) = (self.move_needed(&view, doomed, own)?, 0);
        self.record_pruned(&view, doomed);
        let store = self.repository.store.as_ref();
        // A snapshot that comes back after a power cut would lack what is deleted now.
        store.sync_deletions(&[snapshot::blob_name(&SnapshotId([0; 32]))])?;
        let names: Vec<BlobName> = existing.iter().map(|(id, _)| blob_name(id)).collect();
        for (id, bytes) in existing {
            match self.check_stop().and_then(|()| store.delete(&blob_name(&id), Durable::AfterSync)) {
                Ok(()) => {
                    self.report.containers_deleted += 1;
                    self.report.bytes_deleted += bytes;
                }
                Err(error) if error.is_refused() => {
                    if refused == 0 {
                        tracing::warn!("{error}; a later prune tries again");
                    }
                    refused += 1;
                }
                Err(error) => return Err(Failure { error, has_deleted: true }),
            }
        }
        self.report.containers_refused += refused;
        // A container that comes back after a power cut may lack bases, so the entry must not go first.
        let cleaned = self.clean_segments().and_then(|()| store.sync_deletions(&names));
        let cleaned = cleaned.and_then(|()| self.sweep());
        cleaned.map_err(|error| Failure { error, has_deleted: true })?;
        Ok(refused)
    }

    /// Moves what is needed out of the doomed containers. Returns those that exist, with their bytes.
    fn move_needed(
        &mut self,
        view: &View,
        doomed: &HashSet<ContainerId>,
        own: &ContainerClaim,
    ) -> Result<Vec<(ContainerId, u64)>> {
        let store = self.repository.store.as_ref();
        let lacking = lacking_orphans(self.repository, view, &|| self.check_stop())?;
        let live = self.mark_for_deletion(view, &lacking)?;
        if let Some(locks) = &mut self.locks {
            locks.see(&view.all, &live);
        }
        let mut existing: Vec<ContainerId> = doomed.intersection(&view.all.containers).copied().collect();
        existing.sort_unstable();
        let PruneOptions { container_bytes, recompress_threads, .. } = *self.options;
        let encoding = self.options.encoding();
        let mut mover = Mover::new(self.repository, container_bytes, encoding, recompress_threads);
        let mut sizes = Vec::with_capacity(existing.len());
        for id in existing {
            self.check_stop()?;
            let Some(head) = store.head(&blob_name(&id))? else { continue };
            if live.has_any(&id) {
                mover.move_container(&id, &live)?;
                self.report.bytes_moved += head.len;
            }
            sizes.push((id, head.len));
        }
        // Copies that stay must be found without the segments of those that go. Writers must not find what lacks bases,
        // so what is needed of such a container moves.
        let (left, used): (Vec<_>, Vec<_>) =
            view.retained.take_orphans_used().into_iter().partition(|id| lacking.contains(id));
        left.iter().try_for_each(|id| mover.move_container(id, &live))?;
        let (written, bytes_written) = mover.finish()?;
        for containers in [&written, &used].into_iter().filter(|containers| !containers.is_empty()) {
            check_claim(store, &own.name)?;
            name_containers(&view.retained, containers)?;
        }
        self.report.containers_written += written.len() as u64;
        self.report.bytes_written += bytes_written;
        Ok(sizes)
    }

    /// Marks what snapshots need, and the bases of everything in containers that stay, without those that are
    /// `lacking`: what is moved can be found by writers, so it must not lack anything.
    fn mark_for_deletion(&self, view: &View, lacking: &HashSet<ContainerId>) -> Result<LiveSet> {
        let store = self.repository.store.as_ref();
        let mut marker = self.mark(view)?;
        if self.options.skipped_rule == SkippedRule::BasesOfStaying {
            return Ok(marker.into_live());
        }
        let mut retained: Vec<&ContainerId> = view.retained.containers.difference(lacking).collect();
        retained.sort_unstable();
        for id in retained {
            self.check_stop()?;
            match read_container_index(store, id) {
                Ok(container_index) => marker.container(&container_index.bases_elsewhere())?,
                // Nobody can read its entries, so nobody relies on them.
                // No segment names a container before its hot index is there.
                Err(Error::Cold { what }) if view.is_orphan(id) => {
                    tracing::debug!("leaving {what}: it has no hot index, and no segment names it");
                }
                Err(error @ (Error::Corrupt { .. } | Error::ChecksumMismatch { .. })) => {
                    tracing::warn!("leaving a damaged container that no snapshot needs: {error}");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(marker.into_live())
    }

    /// Writes segments again that name containers that are gone.
    fn clean_segments(&self) -> Result<()> {
        let marks = Marks::read(self.repository.store.as_ref())?;
        let listing = list_to_write(self.repository, marks)?;
        drop_gone_containers(&listing, self.stop)
    }

    /// Deletes the parity and the hot indexes of what is gone.
    fn sweep(&mut self) -> Result<()> {
        let swept = sweep::sweep(self.repository, self.stop)?;
        self.report.parity_deleted += swept.parity;
        self.report.hot_indexes_deleted += swept.hot_indexes;
        Ok(())
    }

    pub(super) fn check_stop(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }
}

/// An error of a prune that may have deleted containers.
struct Failure {
    error: Error,
    has_deleted: bool,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure { error, has_deleted: false }
    }
}
