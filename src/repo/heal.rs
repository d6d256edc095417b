//! Heal: writes back what a check has found to be damaged and of which there is a second copy.
//!
//! 1. Parity gives back containers and short blobs, and is made again where it is damaged itself.
//! 2. The hot index gives back the header, the index and the footer of a container of a cold repository. It is made
//!    again from a sound container where it is damaged or missing.
//!
//! Files may have been mixed up. If the bytes in the way are those of another container, which is missing or damaged
//! under its own name, they are put there before anything is overwritten.
//!
//! A container is written back only if its bytes have the hash that is its name. What else is damaged is quarantined
//! by the check, and the next backup stores its chunks again. A container that a prune may be deleting is left: it must
//! not come back. Nor must any other blob while a prune runs.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use serde::Serialize;

use super::Repository;
use super::claims::{ClaimKind, ContainerClaim};
use super::cold::{options_of, options_of_kind, write_container, write_hot_index};
use super::container::{FOOTER_BYTES, Footer, HEADER_BYTES, blob_name, parse_header, parse_name};
use super::index::ContainerListing;
use super::marks::check_writable;
use super::reliance::Reliance;
use crate::error::{ErrorKind, Result};
use crate::store::{BlobKind, BlobName, Reading, Store, StoreExt};
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
    let is_claimed = |name: &BlobName| match container(name) {
        Some(id) => pending.contains(&id),
        None => !pending.is_empty(),
    };
    let (left, held): (Vec<&BlobName>, Vec<&BlobName>) = wanted.iter().partition(|name| is_claimed(name));
    report.left.extend(left.iter().map(|name| format!("{name}: a prune may be deleting it")));
    // As a writer that relies on these, so that no prune deletes them meanwhile.
    let reliance = Reliance::new(repository, Arc::default());
    let done = reliance.hold(&held.iter().filter_map(|name| container(name)).collect()).and_then(|_| {
        let put_back = put_back(repository, &held, &pending, &mut report)?;
        for name in held.iter().filter(|name| !put_back.contains(**name)) {
            if let Err(error) = heal_blob(repository, name, rebuilt.contains(*name), found, &mut report) {
                report.left.push(format!("{name}: {error}"));
            }
        }
        Ok(())
    });
    reliance.release()?;
    done.map(|()| report)
}

/// Puts the bytes that are in the way of `held` containers under their own names, if they are those of others. Returns
/// the names, which need nothing else.
fn put_back(
    repository: &Repository,
    held: &[&BlobName],
    pending: &HashSet<ContainerId>,
    report: &mut HealReport,
) -> Result<BTreeSet<BlobName>> {
    let mut done = BTreeSet::new();
    let containers: Vec<&BlobName> = held.iter().filter(|name| container(name).is_some()).copied().collect();
    if containers.is_empty() {
        return Ok(done);
    }
    let segments = ContainerListing::of_segments(&repository.store)?.segments();
    let named = segments.iter().flat_map(|segment| segment.containers().iter().copied()).collect();
    for name in containers {
        match put_back_from(repository, name, pending, &named) {
            Ok(Some(owner)) => {
                report.containers += 1;
                report.put_back.extend(container(&owner));
                done.insert(owner);
            }
            Ok(None) => {}
            Err(error) => report.left.push(format!("{name} has the bytes of another container: {error}")),
        }
    }
    Ok(done)
}

/// Returns the name of the container whose bytes were under `name`, if they were put back.
fn put_back_from(
    repository: &Repository,
    name: &BlobName,
    pending: &HashSet<ContainerId>,
    named: &HashSet<ContainerId>,
) -> Result<Option<BlobName>> {
    let (store, parity) = (repository.store.as_ref(), repository.parity.as_ref());
    let Some(moved) = parity.bytes_in_the_way(name)? else { return Ok(None) };
    let owner = ContainerId(*blake3::hash(&moved).as_bytes());
    let owner_name = blob_name(&owner);
    if owner_name == *name || pending.contains(&owner) {
        return Ok(None);
    }
    // Bytes with damage have a hash, too, and are no container's.
    let Ok(bytes) = store.open_stored(&owner_name, moved.clone()) else { return Ok(None) };
    let header = bytes.get(..HEADER_BYTES).unwrap_or_default();
    let Ok(kind) = parse_header(&owner_name, header) else { return Ok(None) };
    let is_known = named.contains(&owner) || store.head(&owner_name)?.is_some();
    if !is_known && !is_of_other(store, name, &bytes)? {
        return Ok(None);
    }
    let is_new = parity.put_back(&owner_name, &moved, options_of_kind(store, kind))?;
    Ok(is_new.then_some(owner_name))
}

/// Whether `bytes`, which are under the name of a container, end with the intact footer of another one. Segments may
/// not name that any more.
fn is_of_other(store: &dyn Store, name: &BlobName, bytes: &[u8]) -> Result<bool> {
    let end = |bytes: &[u8]| bytes.len().checked_sub(FOOTER_BYTES).and_then(|at| bytes.get(at..).map(<[u8]>::to_vec));
    let Some(footer) = end(bytes).filter(|footer| Footer::parse(name, bytes.len() as u64, footer).is_ok()) else {
        return Ok(false);
    };
    let len = store.len_of(name)?.unwrap_or_default();
    let Some(at) = len.checked_sub(FOOTER_BYTES as u64) else { return Ok(false) };
    Ok(store.get_range(name, at, FOOTER_BYTES, Reading::Again)? != footer)
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
