//! What a prune is asked, and what it reports.

use std::time::Duration;

use jiff::Timestamp;

/// What a prune may do.
#[derive(Debug, Clone, Copy)]
pub struct PruneOptions {
    /// Containers younger than this stay, and intents younger than this count as those of a living writer.
    pub grace: Duration,
    /// Only report what would be done.
    pub dry_run: bool,
    /// Bytes that may be moved, at most.
    pub repack_bytes_max: u64,
    /// Bytes of a full container.
    pub container_bytes: u64,
    /// How long it waits for another prune or a backup that is in the way.
    pub patience: Duration,
    /// What stays is locked by the store for so long, each time that less than half of it is left.
    pub extend_locks: Option<Duration>,
    /// A rule that is left out.
    #[doc(hidden)]
    pub skipped_rule: SkippedRule,
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
    /// Containers that nobody needs and that stay because they are younger than the grace period.
    pub containers_young: u64,
    /// Their bytes.
    pub bytes_young: u64,
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
    /// Intents of writers that were taken for dead.
    pub intents_broken: u64,
    /// Pending entries of dead prunes that were finished.
    pub prunes_finished: u64,
    /// Whether another prune was running, so that this one has only done its finishing work.
    pub withdrawn: bool,
    /// Whether nothing was changed.
    pub dry_run: bool,
}
