//! Verify: proves in small runs that what is stored can be read, without a restore.
//!
//! - [`verify_sample`] decodes a random share of the files of snapshots whole, as a restore would, and writes them
//!   nowhere (`sample`). It reads the own blobs of the same share of the snapshots (`snapshots`).
//! - [`verify_turn`] reads containers whole, those that were not read for longest first, as many as it takes so that
//!   regular runs read each one within a given time (`turn`).
//!
//! Containers that a damaged file needs are then read whole, too. So are those that were damaged when they were read
//! last, as a read record says, and that no mark lists: the marks are lost. So in both cases a check has looked at what
//! is bad, and says it as precisely as `check --read-data` does.

mod sample;
mod share;
mod snapshots;
#[cfg(test)]
mod tests;
mod turn;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::Serialize;

pub use sample::SampledFiles;
use share::SampleDraw;
pub use share::SampleShare;

use crate::config::{Config, WorkShare};
use crate::error::Result;
use crate::inspect::check::{CheckReport, check_containers};
use crate::metrics::Progress;
use crate::repo::Repository;
use crate::repo::container::parse_name;
use crate::repo::marks::Marks;
use crate::repo::reads::ReadLedger;
use crate::repo::snapshot::NamedSnapshot;
use crate::store::BlobKind;
use crate::types::ContainerId;

/// The verb in records of what was read.
pub const VERB: &str = "verify";

/// Result of a verification.
#[derive(Debug, Default, Serialize)]
pub struct VerifyReport {
    /// The files that were decoded.
    #[serde(flatten)]
    pub files: SampledFiles,
    /// Containers in the repository.
    pub containers: u64,
    /// Bytes of these.
    pub bytes_of_all: u64,
    /// Containers that were not read, because marks list them as damaged.
    pub containers_marked: u64,
    /// What reading containers whole has found.
    #[serde(skip)]
    pub check: CheckReport,
}

/// Decodes a random share of the files of `snapshots`, of what falls to a share of the work, and reads the blobs of the
/// same share of these. `progress` counts the files and their bytes.
///
/// # Errors
/// Errors of [`check`](crate::inspect::check::check()).
pub fn verify_sample(
    repository: &Repository,
    config: &Config,
    snapshots: Vec<NamedSnapshot>,
    (sample, share): (SampleShare, Option<WorkShare>),
    progress: &Progress,
    stop: &Arc<AtomicBool>,
) -> Result<VerifyReport> {
    let all = stored(repository)?;
    let draw = SampleDraw::new(sample, share)?;
    let own = snapshots::read(repository, &snapshots, &draw, progress)?;
    let (files, mut doubted) = sample::decode(repository, config, snapshots, &draw, own, progress, stop)?;
    let (store, now_ns) = (repository.store.as_ref(), repository.clock.now_ns());
    let marks = Marks::read(store)?;
    doubted.extend(ReadLedger::load(store, now_ns)?.unmarked(all.iter().map(|(id, _)| id), &marks.quarantine));
    let check = check_containers(repository, config, &doubted, progress, stop)?;
    Ok(VerifyReport { files, check, ..totals(&all) })
}

/// Reads the containers whole whose turn it is, so that runs at regular times read all of them within `within_ns`
/// nanoseconds. Of a share of the work, those that fall to it.
///
/// # Errors
/// Errors of [`check`](crate::inspect::check::check()).
pub fn verify_turn(
    repository: &Repository,
    config: &Config,
    (within_ns, share): (i64, Option<WorkShare>),
    progress: &Progress,
    stop: &Arc<AtomicBool>,
) -> Result<VerifyReport> {
    let all = stored(repository)?;
    let (store, now_ns) = (repository.store.as_ref(), repository.clock.now_ns());
    let marks = Marks::read(store)?;
    let is_sound = |(id, _): &&(ContainerId, u64)| marks.quarantine.of(id).is_none();
    let sound: Vec<(ContainerId, u64)> = all.iter().filter(is_sound).copied().collect();
    let is_own = |(id, _): &&(ContainerId, u64)| share.is_none_or(|share| share.has(&id.0));
    let own: Vec<(ContainerId, u64)> = sound.iter().filter(is_own).copied().collect();
    let ledger = ReadLedger::load(store, now_ns)?;
    let mut chosen = turn::choose(&own, &ledger, share, (now_ns, within_ns));
    chosen.extend(ledger.unmarked(own.iter().map(|(id, _)| id), &marks.quarantine));
    let check = check_containers(repository, config, &chosen, progress, stop)?;
    Ok(VerifyReport { check, containers_marked: (all.len() - sound.len()) as u64, ..totals(&all) })
}

/// All containers with their lengths. From then on, parity that is away shows itself.
fn stored(repository: &Repository) -> Result<Vec<(ContainerId, u64)>> {
    Marks::read(repository.store.as_ref())?.set_parity(repository);
    let listed = repository.store.list(BlobKind::Container.into())?;
    Ok(listed.iter().filter_map(|blob| Some((parse_name(&blob.name)?, blob.len))).collect())
}

fn totals(all: &[(ContainerId, u64)]) -> VerifyReport {
    let bytes_of_all = all.iter().map(|(_, len)| len).sum();
    VerifyReport { containers: all.len() as u64, bytes_of_all, ..VerifyReport::default() }
}
