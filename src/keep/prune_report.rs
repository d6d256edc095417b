//! What a prune is asked, and what it reports.

use std::time::Duration;

use jiff::Timestamp;

use super::plan::{Occupancy, PlanBounds};
use super::solid_frames::FrameEncoding;

/// What a prune may do.
#[derive(Debug, Clone, Copy)]
pub struct PruneOptions {
    /// Containers younger than this stay, and intents younger than this count as those of a living writer.
    pub grace: Duration,
    /// Only report what would be done.
    pub dry_run: bool,
    /// Goes on even if most containers that segments name are missing.
    pub allow_no_containers: bool,
    /// Bytes that may be moved, at most.
    pub repack_bytes_max: u64,
    /// Bytes of a full container.
    pub container_bytes: u64,
    /// How long it waits for another prune or a backup that is in the way.
    pub patience: Duration,
    /// What stays is locked by the store for so long, each time that less than half of it is left.
    pub extend_locks: Option<Duration>,
    /// Threads that encode loose solid frames again as archives do. 0 = such frames stay.
    pub recompress_threads: usize,
    /// Data containers younger than this stay, because the service bills them for so long anyway.
    pub min_age: Option<Duration>,
    /// A rule that is left out.
    #[doc(hidden)]
    pub skipped_rule: SkippedRule,
}

impl PruneOptions {
    /// How new solid frames are encoded.
    pub fn encoding(&self) -> FrameEncoding {
        if self.recompress_threads > 0 { FrameEncoding::ARCHIVE } else { FrameEncoding::ORDINARY }
    }
}

/// A rule that the proof leaves out, to show that data is lost without it.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SkippedRule {
    /// None.
    Nothing,
    /// The bases of entries in containers that stay do not stay, unless a snapshot needs them.
    BasesOfStaying,
    /// Bases do not stay.
    Bases,
}

/// Result of a prune.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct PruneReport {
    /// Snapshots in the repository.
    pub snapshots: u64,
    /// Containers before.
    pub containers: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of them that snapshots need, estimated.
    pub bytes_needed: u64,
    /// Containers deleted; with `dry_run`, those that would be.
    pub containers_deleted: u64,
    /// Their bytes.
    pub bytes_deleted: u64,
    /// Containers written in place of some of them.
    pub containers_written: u64,
    /// Their bytes; with `dry_run`, an estimate.
    pub bytes_written: u64,
    /// Stored bytes of the containers that were moved.
    pub bytes_moved: u64,
    /// Bytes in short solid frames of containers that are older than the grace period, before; only of `recompress`.
    pub bytes_loose: u64,
    /// Containers that nobody needs and that stay because they are younger than the grace period.
    pub containers_young: u64,
    /// Their bytes.
    pub bytes_young: u64,
    /// Data containers that nobody needs and that stay because they are younger than the minimum age.
    pub containers_min_age: u64,
    /// Their bytes.
    pub bytes_min_age: u64,
    /// What the service would bill for the rest of that age if they were deleted now: bytes times days.
    pub byte_days_min_age: u64,
    /// Candidates that stay because a backup relies on them.
    pub containers_held: u64,
    /// Containers that nobody needs and that the store refuses to delete, such as those under a retention lock.
    pub containers_refused: u64,
    /// Containers that nobody needs and that stay because the store has locked them.
    pub containers_locked: u64,
    /// Their bytes.
    pub bytes_locked: u64,
    /// When the last of these locks ends.
    pub locked_until: Option<Timestamp>,
    /// Blobs whose lock was extended; with `dry_run`, those whose lock would be.
    pub locks_extended: u64,
    /// Parity of containers that are gone, deleted.
    pub parity_deleted: u64,
    /// Hot indexes of containers that are gone, deleted.
    pub hot_indexes_deleted: u64,
    /// Intents of writers that were taken for dead.
    pub intents_broken: u64,
    /// Pending entries of dead prunes that were finished.
    pub prunes_finished: u64,
    /// Whether another prune was running, so that this one has only done its finishing work.
    pub withdrawn: bool,
    /// Whether nothing was changed.
    pub dry_run: bool,
}

impl PruneReport {
    /// Notes what stays because it is younger than `min_age`.
    pub(super) fn note_min_age(&mut self, containers: &[Occupancy], min_age: Option<Duration>, bounds: &PlanBounds) {
        (self.containers_min_age, self.bytes_min_age, self.byte_days_min_age) = (0, 0, 0);
        for one in containers.iter().filter(|one| one.live_bytes == 0 && bounds.is_old(one.modified)) {
            let left = one.until_min_age(min_age, bounds.now);
            if !left.is_zero() {
                self.containers_min_age += 1;
                self.bytes_min_age += one.bytes;
                self.byte_days_min_age += one.bytes.saturating_mul(left.as_secs().div_ceil(24 * 3600));
            }
        }
    }

    /// This report with what a later round has done.
    pub fn with_round(mut self, round: &PruneReport) -> PruneReport {
        self.snapshots = round.snapshots;
        for (sum, part) in [
            (&mut self.containers_deleted, round.containers_deleted),
            (&mut self.bytes_deleted, round.bytes_deleted),
            (&mut self.containers_written, round.containers_written),
            (&mut self.bytes_written, round.bytes_written),
            (&mut self.bytes_moved, round.bytes_moved),
            (&mut self.locks_extended, round.locks_extended),
            (&mut self.parity_deleted, round.parity_deleted),
            (&mut self.hot_indexes_deleted, round.hot_indexes_deleted),
            (&mut self.intents_broken, round.intents_broken),
            (&mut self.prunes_finished, round.prunes_finished),
        ] {
            *sum += part;
        }
        (self.containers_young, self.bytes_young) = (round.containers_young, round.bytes_young);
        (self.containers_min_age, self.bytes_min_age) = (round.containers_min_age, round.bytes_min_age);
        self.byte_days_min_age = round.byte_days_min_age;
        (self.containers_held, self.containers_refused) = (round.containers_held, round.containers_refused);
        (self.containers_locked, self.bytes_locked) = (round.containers_locked, round.bytes_locked);
        (self.locked_until, self.withdrawn) = (round.locked_until, round.withdrawn);
        self
    }
}
