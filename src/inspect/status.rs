//! The state of a repository at a glance: last snapshots, reads that proved it, damage, space, what waits for deletion.
//!
//! Only names, snapshots and small blobs are read, no container: it takes one listing of the store, the snapshots from
//! the local file or from bundles, marks, pending entries and read records. So which snapshots there are comes from the
//! store, and the lengths of their blobs. A flipped bit in the blob of a snapshot that is known goes unseen: `verify`
//! and `check` read these blobs.

use std::collections::{HashMap, HashSet};

use serde::Serialize;

use crate::error::{Error, Result};
use crate::repo::Repository;
use crate::repo::claims::{ClaimKind, ContainerClaim};
use crate::repo::clock::future_first;
use crate::repo::container::parse_name;
use crate::repo::marks::{BadParts, Marks, Quarantine};
use crate::repo::naming::SnapshotFilter;
use crate::repo::reads::{ReadLedger, ReadRun};
use crate::repo::snapshot::NamedSnapshot;
use crate::repo::snapshot_groups::{GroupBy, GroupField, grouped};
use crate::repo::snapshot_listing::{self, SnapshotListing};
use crate::repo::vanished;
use crate::store::{BlobKind, BlobPrefix, ParityStore};
use crate::types::ContainerId;

const NS_PER_DAY: i64 = 86_400 * 1_000_000_000;
/// Days of which the growth is reported.
const GROWTH_DAYS: [i64; 2] = [7, 30];
/// Name of the counter of a backup with the bytes that it added to the repository.
const BYTES_STORED: &str = "bytes_stored";

/// The state of a repository. Times are nanoseconds since 1970.
#[derive(Debug)]
pub struct RepositoryStatus {
    /// The time of this status.
    pub now_ns: i64,
    /// The last snapshot of each host and its paths, in the order of these.
    pub sources: Vec<SourceStatus>,
    /// Names of snapshots that cannot be read, or whose blobs have another length than a copy.
    pub unreadable_snapshots: Vec<(String, Error)>,
    /// Bytes of containers, if there is no snapshot at all.
    pub bytes_without_snapshots: u64,
    /// Snapshots that this machine has seen and that were [all gone at once](vanished).
    pub snapshots_gone: usize,
    /// Whether there is no container, although snapshots have content.
    pub lacks_containers: bool,
    /// Snapshots whose backup runs, or was killed before it reported them.
    pub unreported: usize,
    /// The last `check` that read data.
    pub last_check: Option<ReadRun>,
    /// The last `verify`.
    pub last_verify: Option<ReadRun>,
    /// What reads have proven.
    pub proof: ProofStatus,
    /// Damage that marks list.
    pub damage: DamageStatus,
    /// Stored bytes and their growth.
    pub space: SpaceStatus,
    /// What heals without the source.
    pub parity: ParityStatus,
    /// Whether data is in cold storage.
    pub cold: ColdStatus,
    /// What prunes left for deletion.
    pub pending: PendingStatus,
}

/// The snapshots of a host and its paths.
#[derive(Debug)]
pub struct SourceStatus {
    /// The last one. One from the future only if there is no other.
    pub last: NamedSnapshot,
    /// Their number.
    pub snapshots: usize,
}

impl SourceStatus {
    /// Seconds since the last snapshot. Negative if it is from the future.
    pub fn age_seconds(&self, now_ns: i64) -> i64 {
        now_ns.saturating_sub(self.last.snapshot.time_ns).div_euclid(1_000_000_000)
    }
}

/// Which containers were read whole, by read records.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub struct ProofStatus {
    /// Bytes of containers that were read whole and proved sound the last time.
    pub bytes: u64,
    /// Bytes of those that were read in the last 30 days.
    pub bytes_30_days: u64,
    /// Bytes of containers that were never read whole, as far as records say.
    pub bytes_never: u64,
    /// Containers that were damaged when they were read last.
    pub containers_damaged: u64,
    /// Containers that marks call bad as a whole and that are not there. Nothing proves them.
    pub containers_lost: u64,
    /// When the proven container that was not read for longest was read.
    #[serde(skip)]
    pub oldest_ns: Option<i64>,
}

/// What marks list.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub struct DamageStatus {
    /// Containers with damaged parts.
    pub containers: u64,
    /// Frames of these.
    pub frames: u64,
    /// Chunks of these.
    pub chunks: u64,
    /// Containers that are damaged whole or missing.
    pub whole_containers: u64,
    /// Marks that cannot be read, so damage may be unknown.
    pub marks_unreadable: u64,
    /// Whether a `check` that read everything found that no snapshot needs any of it.
    pub is_unneeded: bool,
}

/// Stored bytes.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub struct SpaceStatus {
    /// Bytes of all blobs.
    pub bytes: u64,
    /// Bytes of containers.
    pub bytes_containers: u64,
    /// Containers.
    pub containers: u64,
    /// Bytes that the snapshots of the last 7 days added.
    pub added_7_days: u64,
    /// Bytes that the snapshots of the last 30 days added.
    pub added_30_days: u64,
}

/// Parity.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub struct ParityStatus {
    /// The share that containers get, as `3%`. None without parity.
    pub share: Option<String>,
    /// Containers that have parity.
    pub containers: u64,
    /// Containers that have none.
    pub containers_without: u64,
    /// Number of these that are too long for parity.
    pub containers_too_long: u64,
    /// Bytes of parity.
    pub bytes: u64,
}

/// Whether data containers are in cold storage.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub struct ColdStatus {
    /// Whether the repository is cold.
    pub is_cold: bool,
    /// Containers that have hot indexes.
    pub hot_indexes: u64,
    /// Containers that have none.
    pub hot_indexes_missing: u64,
}

/// What prunes left for deletion.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub struct PendingStatus {
    /// Pending entries: prunes that run, or were killed.
    pub entries: u64,
    /// Containers that they name and that are there.
    pub containers: u64,
    /// Bytes of these.
    pub bytes: u64,
}

/// Looks at the repository. `filter` chooses among the snapshots.
///
/// # Errors
/// Errors of listing the store. What cannot be read is in the status.
pub fn status(repository: &Repository, filter: &SnapshotFilter) -> Result<RepositoryStatus> {
    let (store, now_ns) = (repository.store.as_ref(), repository.clock.now_ns());
    let SnapshotListing { mut snapshots, unreported, damaged, resized } = snapshot_listing::list(repository)?;
    let has_content = snapshots.iter().any(|named| named.snapshot.root.is_some());
    // What is published is no backup.
    snapshots.retain(|named| filter.passes(&named.snapshot) && !named.snapshot.is_published());
    let (mut containers, mut space, mut has_snapshots) = (HashMap::new(), SpaceStatus::default(), false);
    let (mut protected, mut indexed) = (HashMap::new(), HashSet::new());
    for blob in store.list(BlobPrefix::All)? {
        space.bytes += blob.len;
        has_snapshots |= blob.name.kind() == BlobKind::Snapshot;
        protected.extend(blob.name.protected().map(|hash| (hash, blob.len)));
        indexed.extend(blob.name.indexed().map(ContainerId));
        if let (BlobKind::Container, Some(id)) = (blob.name.kind(), parse_name(&blob.name)) {
            containers.insert(id, blob.len);
            space.bytes_containers += blob.len;
        }
    }
    space.containers = containers.len() as u64;
    [space.added_7_days, space.added_30_days] = GROWTH_DAYS.map(|days| added(&snapshots, now_ns, days));
    let ledger = ReadLedger::load(store, now_ns)?;
    let last_run = |verb: &str| ledger.runs.iter().rfind(|run| run.verb == verb).cloned();
    let (last_verify, last_check) = (last_run("verify"), last_run("check"));
    let marks = Marks::read(store)?;
    let proof =
        ProofStatus { containers_lost: lost(&marks.quarantine, &containers), ..proof(&ledger, &containers, now_ns) };
    let listed = Some(marks.quarantine.hash());
    let is_unneeded = ledger.runs.iter().any(|run| run.unneeded == listed);
    Ok(RepositoryStatus {
        now_ns,
        sources: sources(snapshots, now_ns),
        unreadable_snapshots: damaged.into_iter().chain(resized).collect(),
        bytes_without_snapshots: if has_snapshots { 0 } else { space.bytes_containers },
        snapshots_gone: vanished::count_or_warn(repository),
        lacks_containers: has_content && space.containers == 0,
        unreported: unreported.len(),
        last_check,
        last_verify,
        proof,
        damage: DamageStatus {
            marks_unreadable: marks.unread().count() as u64,
            is_unneeded,
            ..damage(&marks.quarantine)
        },
        space,
        parity: parity(&marks, &containers, &protected),
        cold: cold(&marks, &containers, &indexed),
        pending: pending(repository, &containers)?,
    })
}

/// Bytes that the snapshots of the last `days` added.
fn added(snapshots: &[NamedSnapshot], now_ns: i64, days: i64) -> u64 {
    let is_recent = |named: &&NamedSnapshot| {
        let time_ns = named.snapshot.time_ns;
        time_ns > now_ns.saturating_sub(days * NS_PER_DAY) && !named.snapshot.is_future(now_ns)
    };
    let stored = |named: &NamedSnapshot| named.snapshot.statistics.get(BYTES_STORED).copied().unwrap_or(0);
    snapshots.iter().filter(is_recent).map(stored).fold(0, u64::saturating_add)
}

fn sources(snapshots: Vec<NamedSnapshot>, now_ns: i64) -> Vec<SourceStatus> {
    let groups = grouped(snapshots, &GroupBy(vec![GroupField::Host, GroupField::Paths]));
    let source = |members: Vec<NamedSnapshot>| {
        let snapshots = members.len();
        let last = future_first(members, |named| named.snapshot.is_future(now_ns)).pop()?;
        Some(SourceStatus { last, snapshots })
    };
    groups.into_iter().filter_map(|(_, members)| source(members)).collect()
}

fn proof(ledger: &ReadLedger, containers: &HashMap<ContainerId, u64>, now_ns: i64) -> ProofStatus {
    let mut proof = ProofStatus::default();
    for (id, len) in containers {
        match ledger.last_read(id) {
            None => proof.bytes_never += len,
            Some(read) if !read.is_sound => proof.containers_damaged += 1,
            Some(read) => {
                proof.bytes += len;
                if read.time_ns >= now_ns.saturating_sub(30 * NS_PER_DAY) {
                    proof.bytes_30_days += len;
                }
                proof.oldest_ns = Some(proof.oldest_ns.map_or(read.time_ns, |oldest| oldest.min(read.time_ns)));
            }
        }
    }
    proof
}

/// Containers that marks call bad as a whole and that are not among `containers`.
fn lost(quarantine: &Quarantine, containers: &HashMap<ContainerId, u64>) -> u64 {
    let is_lost = |(id, parts): &(&ContainerId, &BadParts)| **parts == BadParts::Whole && !containers.contains_key(id);
    quarantine.containers().filter(is_lost).count() as u64
}

fn damage(quarantine: &Quarantine) -> DamageStatus {
    let mut damage = DamageStatus::default();
    for (_, parts) in quarantine.containers() {
        damage.containers += 1;
        match parts {
            BadParts::Whole => damage.whole_containers += 1,
            BadParts::Parts { frames, entries } => {
                damage.frames += frames.count();
                damage.chunks += entries.count();
            }
        }
    }
    damage
}

fn parity(marks: &Marks, containers: &HashMap<ContainerId, u64>, protected: &HashMap<[u8; 32], u64>) -> ParityStatus {
    let with = containers.keys().filter(|id| protected.contains_key(&id.0)).count() as u64;
    let too_long =
        containers.iter().filter(|(id, len)| ParityStore::is_too_long(**len) && !protected.contains_key(&id.0));
    ParityStatus {
        containers_too_long: too_long.count() as u64,
        share: marks.parity().map(|share| share.to_string()),
        containers: with,
        containers_without: containers.len() as u64 - with,
        bytes: protected.values().sum(),
    }
}

fn cold(marks: &Marks, containers: &HashMap<ContainerId, u64>, indexed: &HashSet<ContainerId>) -> ColdStatus {
    let with = containers.keys().filter(|id| indexed.contains(*id)).count() as u64;
    let (is_cold, without) = (marks.is_cold(), containers.len() as u64 - with);
    ColdStatus { is_cold, hot_indexes: with, hot_indexes_missing: if is_cold { without } else { 0 } }
}

fn pending(repository: &Repository, containers: &HashMap<ContainerId, u64>) -> Result<PendingStatus> {
    let (claims, damaged) = ContainerClaim::list_with_damaged(repository.store.as_ref(), ClaimKind::Pending)?;
    let entries = (claims.len() + damaged.len()) as u64;
    let named: HashSet<ContainerId> = claims.into_iter().flat_map(|claim| claim.containers).collect();
    let lens: Vec<u64> = named.iter().filter_map(|id| containers.get(id)).copied().collect();
    Ok(PendingStatus { entries, containers: lens.len() as u64, bytes: lens.iter().sum() })
}
