//! Heal: writes back what a check has found to be damaged and of which there is a second copy.
//!
//! 1. Parity gives back containers and short blobs, and is made again where it is damaged itself.
//! 2. The hot index gives back the header, the index and the footer of a container of a cold repository. It is made
//!    again from a sound container where it is damaged or missing.
//!
//! A container is written back only if its bytes have the hash that is its name. What else is damaged is quarantined
//! by the check, and the next backup stores its chunks again. A container that a prune may be deleting is left: it must
//! not come back. Nor must any other blob while a prune runs.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;

use super::Repository;
use super::claims::{ClaimKind, ContainerClaim};
use super::cold::{options_of, write_container, write_hot_index};
use super::container::{blob_name, parse_name};
use super::marks::check_writable;
use super::reliance::Reliance;
use crate::error::{ErrorKind, Result};
use crate::store::{BlobKind, BlobName};
use crate::types::ContainerId;

/// What [`heal`] has done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct HealReport {
    /// Containers that were written again with their right bytes.
    pub containers: u64,
    /// Snapshots, segments and marks that were written again.
    pub short_blobs: u64,
    /// Damaged parity that was made again.
    pub parity: u64,
    /// Hot indexes that were made again.
    pub hot_indexes: u64,
    /// What was not written, with the reason.
    pub left: Vec<String>,
}

/// What a check has found, besides what parity has rebuilt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Healable {
    /// Blobs whose parity is damaged.
    pub parity: BTreeSet<BlobName>,
    /// Containers that their hot indexes give back.
    pub containers: BTreeSet<ContainerId>,
    /// Sound containers whose hot index is damaged or missing.
    pub hot_indexes: BTreeSet<ContainerId>,
}

impl Healable {
    fn blobs(&self) -> impl Iterator<Item = BlobName> {
        self.parity.iter().cloned().chain(self.containers.union(&self.hot_indexes).map(blob_name))
    }
}

/// Writes back what was rebuilt for readers, and what is `found`.
///
/// # Errors
/// If somebody forbids this program to write, or a prune begins meanwhile. Errors of the store.
pub fn heal(repository: &Repository, found: &Healable) -> Result<HealReport> {
    let mut report = HealReport::default();
    let rebuilt: BTreeSet<BlobName> = repository.parity.healed().into_iter().collect();
    let wanted: BTreeSet<BlobName> = rebuilt.iter().cloned().chain(found.blobs()).collect();
    if wanted.is_empty() {
        return Ok(report);
    }
    check_writable(repository)?;
    let pending = ContainerClaim::containers_of(repository.store.as_ref(), ClaimKind::Pending)?;
    let is_claimed = |name: &BlobName| match container(name) {
        Some(id) => pending.contains(&id),
        None => !pending.is_empty(),
    };
    let (left, held): (Vec<&BlobName>, Vec<&BlobName>) = wanted.iter().partition(|name| is_claimed(name));
    report.left.extend(left.iter().map(|name| format!("{name}: a prune may be deleting it")));
    // As a writer that relies on these, so that no prune deletes them meanwhile.
    let reliance = Reliance::new(repository, Arc::default());
    let done = reliance.hold(&held.iter().filter_map(|name| container(name)).collect()).map(|_| {
        for name in &held {
            if let Err(error) = heal_blob(repository, name, rebuilt.contains(*name), found, &mut report) {
                report.left.push(format!("{name}: {error}"));
            }
        }
    });
    reliance.release()?;
    done.map(|()| report)
}

fn container(name: &BlobName) -> Option<ContainerId> {
    parse_name(name).filter(|_| name.kind() == BlobKind::Container)
}

/// Writes back one blob if it `is_rebuilt` or is among what is `found`, then its parity and its hot index. What
/// somebody has deleted since it was read stays deleted.
fn heal_blob(
    repository: &Repository,
    name: &BlobName,
    is_rebuilt: bool,
    found: &Healable,
    report: &mut HealReport,
) -> Result<()> {
    let (store, parity) = (repository.store.as_ref(), repository.parity.as_ref());
    let (id, options) = (container(name), options_of(store, name)?);
    if is_rebuilt {
        if !parity.write_back(name, options)? {
            return Ok(());
        }
        *(if id.is_some() { &mut report.containers } else { &mut report.short_blobs }) += 1;
    } else if let Some(id) = id.filter(|id| found.containers.contains(id)) {
        if !write_container(store, &id)? {
            return Ok(());
        }
        report.containers += 1;
    }
    match found.parity.contains(name).then(|| parity.add(name, options)) {
        Some(Err(error)) if error.kind() != ErrorKind::NotFound => return Err(error),
        Some(Ok(true)) => report.parity += 1,
        _ => {}
    }
    match id.filter(|id| found.hot_indexes.contains(id)).map(|id| write_hot_index(store, &id)) {
        Some(Err(error)) if error.kind() != ErrorKind::NotFound => return Err(error),
        Some(Ok(_)) => report.hot_indexes += 1,
        _ => {}
    }
    Ok(())
}
