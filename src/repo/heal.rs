//! Heal: writes back what a check has found to be damaged and of which there is a second copy.
//!
//! 1. Parity gives back containers and short blobs, and is made again where it is damaged itself.
//! 2. The hot index gives back the header, the index and the footer of a container of a cold repository. It is made
//!    again from a sound container where it is damaged or missing.
//!
//! Files may have been mixed up. If the bytes in the way are those of another container, which is missing or damaged
//! under its own name, they are put there before anything is overwritten ([`moved`](super::moved)).
//!
//! A container is written back only if its bytes have the hash that is its name. What else is damaged is quarantined
//! by the check, and the next backup stores its chunks again. A container that a prune may be deleting is left: it must
//! not come back. Other blobs are not left, because an Object Lock may stop a prune for months. The store replaces only
//! what is there; servers that are asked first may bring back what is deleted between the two requests.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use serde::Serialize;

use super::Repository;
use super::claims::{ClaimKind, ContainerClaim};
use super::cold::{options_of, write_container, write_hot_index};
use super::container::{blob_name, parse_name};
use super::marks::check_writable;
use super::moved::MovedContainers;
use super::overwritten::check_overwritten;
use super::reliance::Reliance;
use crate::error::{Error, ErrorKind, Result};
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
    /// The containers whose bytes were under the names of others, and that were put back, which `containers` counts.
    #[serde(skip)]
    pub put_back: BTreeSet<ContainerId>,
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
    let is_claimed = |name: &BlobName| container(name).is_some_and(|id| pending.contains(&id));
    let (left, mut held): (Vec<&BlobName>, Vec<&BlobName>) = wanted.iter().partition(|name| is_claimed(name));
    report.left.extend(
        left.iter()
            .map(|name| format!("{name}: a prune may be deleting it; `fhrd prune` completes one that was killed")),
    );
    // What somebody has deleted since it was read stays deleted.
    held.retain(|name| container(name).is_none() || !matches!(repository.store.head(name), Ok(None)));
    // What parity gives back comes first: bytes of it that lie elsewhere can be overwritten.
    held.sort_by_key(|name| !rebuilt.contains(*name));
    let containers: Vec<ContainerId> = held.iter().filter_map(|name| container(name)).collect();
    let mut moved =
        MovedContainers::new(repository, &containers, rebuilt.iter().filter_map(container).collect(), pending)?;
    // What cannot be looked at is said when it is to be put back.
    let owners: HashSet<ContainerId> = containers.iter().filter_map(|id| moved.owners(*id).ok()).flatten().collect();
    let there: HashSet<ContainerId> = containers.iter().copied().collect();
    // As a writer that relies on these, so that no prune deletes them meanwhile.
    let reliance = Reliance::new(repository, Arc::default());
    let done = reliance.hold_with(&there, &owners).and_then(|_| {
        moved.look_again(ContainerClaim::containers_of(repository.store.as_ref(), ClaimKind::Pending)?);
        let refused = put_back(&moved, &containers, &there.union(&owners).copied().collect(), &mut report);
        for name in &held {
            let stays = container(name).is_some_and(|id| refused.contains(&id) || report.put_back.contains(&id));
            if !stays {
                heal_or_leave(repository, name, rebuilt.contains(*name), found, &mut report);
            }
        }
        Ok(())
    });
    reliance.release()?;
    match done {
        // Of what needs no intent, none was healed.
        Err(Error::Pruned { .. }) => {
            for name in held {
                match container(name) {
                    Some(_) => {
                        report.left.push(format!("{name}: a prune has deleted containers meanwhile; heal again"))
                    }
                    None => heal_or_leave(repository, name, rebuilt.contains(name), found, &mut report),
                }
            }
        }
        done => done?,
    }
    Ok(report)
}

fn heal_or_leave(
    repository: &Repository,
    name: &BlobName,
    is_rebuilt: bool,
    found: &Healable,
    report: &mut HealReport,
) {
    if let Err(error) = heal_blob(repository, name, is_rebuilt, found, report) {
        report.left.push(format!("{name}: {error}"));
    }
}

/// Puts the bytes that are in the way of `containers` under their own names, which are among `held`. Returns those of
/// which nothing may be overwritten: they have, or may have, bytes of others that were not put back.
fn put_back(
    moved: &MovedContainers<'_>,
    containers: &[ContainerId],
    held: &HashSet<ContainerId>,
    report: &mut HealReport,
) -> BTreeSet<ContainerId> {
    let mut refused = BTreeMap::new();
    for id in containers {
        if report.put_back.contains(id) {
            continue;
        }
        if let Err(error) = moved.put_back(*id, held, &mut report.put_back) {
            refused.insert(*id, error.to_string());
        }
    }
    report.containers += report.put_back.len() as u64;
    refused.retain(|id, _| !report.put_back.contains(id));
    for (id, text) in &refused {
        let name = blob_name(id);
        report.left.push(if text.contains(name.as_str()) { text.clone() } else { format!("{name}: {text}") });
    }
    refused.into_keys().collect()
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
        check_overwritten(repository, name)?;
        // Somebody has deleted it, or has healed it.
        let is_written = parity.write_back(name, options)?;
        *(if id.is_some() { &mut report.containers } else { &mut report.short_blobs }) += u64::from(is_written);
    } else if let Some(id) = id.filter(|id| found.containers.contains(id)) {
        if !write_container(repository, &id)? {
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
