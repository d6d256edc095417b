//! Check: proves that a repository can be read, part by part, and goes on after each defect.
//!
//! 1. Both copies of the configuration parse, and every snapshot loads.
//! 2. Every index segment opens, its pages verify, and its records point to entries with their fingerprints.
//! 3. Every container, in parallel: header, footer, directory; every entry resolves to literal bytes within frames.
//!    With `read_data` every byte is read: the container has its name, frames decode, chunks have their fingerprints.
//! 4. Every snapshot's tree: listings and recipes decode, and the chunks they name are in listed containers.
//!
//! Snapshots are listed before segments and segments before containers, the reverse of the order of writing: what a
//! backup running meanwhile adds is either seen whole or not missed. Containers that no segment names are left from an
//! interrupted backup or belong to one that runs: they must be sound, but what they refer to may not be there yet.

mod containers;
mod log;
mod segments;
#[cfg(test)]
mod tests;
mod trees;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

use self::log::{DefectLog, damage};
use crate::config::Config;
use crate::error::{Error, ErrorKind, Result};
use crate::metrics::Progress;
use crate::model;
use crate::repo::Repository;
use crate::repo::index::ContainerListing;
use crate::repo::snapshot;

/// Defects a report tells of, at most; the rest is only counted.
const DEFECTS_MAX: usize = 1000;

/// What a check found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// Snapshots that load.
    pub snapshots: u64,
    /// Index segments that open.
    pub segments: u64,
    /// Containers, sound or not.
    pub containers: u64,
    /// Chunk entries in containers whose directory can be read.
    pub chunks: u64,
    /// Frames in those containers.
    pub frames: u64,
    /// Bytes of all containers.
    pub bytes_stored: u64,
    /// Bytes of the chunks.
    pub bytes_raw: u64,
    /// Containers that no segment names: not a defect, the next backup takes them over.
    pub unreferenced_containers: u64,
    /// Defects found; 0 means that everything checked is sound.
    pub defect_count: u64,
    /// The first 1000 of them: damaged blobs before what suffers from them.
    pub defects: Vec<String>,
}

/// Checks the repository: its structure, and every stored byte too where `read_data` says so. `progress` counts
/// containers as files, and with `read_data` their bytes.
///
/// # Errors
/// Only what keeps the check from going on: a store that cannot be read for a reason other than damage,
/// [`Error::Interrupted`]. Damage is in the report.
pub fn check(
    repository: &Repository,
    config: &Config,
    read_data: bool,
    progress: &Progress,
    stop: &Arc<AtomicBool>,
) -> Result<CheckReport> {
    let mut report = CheckReport::default();
    let mut log = DefectLog::default();
    for (name, error) in repository.config_defects() {
        log.damaged(name, &damage(error)?);
    }
    let (snapshots, damaged) = snapshot::list(repository.store.as_ref())?;
    // One that is gone was deleted since the listing, on purpose.
    for (name, error) in damaged.into_iter().filter(|(_, error)| error.kind() != ErrorKind::NotFound) {
        log.damaged(&name, &damage(error)?);
    }
    report.snapshots = snapshots.len() as u64;
    for listed in repository.store.list(model::PREFIX)? {
        if let Err(error) = model::CatalogueBlob::load(repository.store.as_ref(), &listed.name)
            && error.kind() != ErrorKind::NotFound
        {
            log.damaged(&listed.name, &damage(error)?);
        }
    }

    let mut listing = ContainerListing::take(&repository.store)?;
    for (name, error) in listing.damaged.drain(..) {
        log.damaged(&name, &damage(error)?);
    }
    report.segments = listing.segments.len() as u64;
    let listing = Arc::new(listing);
    segments::check(repository, &listing, &mut log, stop)?;
    containers::check(repository, config, &listing, read_data, progress, stop, &mut report, &mut log)?;
    trees::check(repository, config, &listing, &snapshots, &mut log, stop)?;
    report.defect_count = log.count();
    report.defects = log.into_texts();
    Ok(report)
}

/// Fails when the user asked to stop.
fn go_on(stop: &AtomicBool) -> Result<()> {
    if stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
}
