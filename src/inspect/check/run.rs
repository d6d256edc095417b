//! Runs the steps of a check and collects their defects in a report.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

use super::defect_log::{DefectLog, damage};
use super::read_data::ReadData;
use super::{containers, segments, trees};
use crate::config::Config;
use crate::error::{Error, ErrorKind, Result};
use crate::metrics::Progress;
use crate::model;
use crate::repo::Repository;
use crate::repo::container::blob_name;
use crate::repo::index::ContainerListing;
use crate::repo::snapshot;

/// Result of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// Snapshots that load.
    pub snapshots: u64,
    /// Index segments that open.
    pub segments: u64,
    /// All containers, sound or damaged.
    pub containers: u64,
    /// Chunk entries of containers with a readable index.
    pub chunks: u64,
    /// Frames of those containers.
    pub frames: u64,
    /// Bytes of all containers.
    pub bytes_stored: u64,
    /// Decoded bytes of the chunk entries.
    pub bytes_raw: u64,
    /// Containers that were read whole.
    pub containers_read: u64,
    /// Bytes of these containers.
    pub bytes_read: u64,
    /// Containers that no segment lists. They are no defect: the next backup adds them to the index.
    pub unreferenced_containers: u64,
    /// Number of defects; 0 for a sound repository.
    pub defect_count: u64,
    /// The first 1000 defects: damaged blobs come before defects that they cause.
    pub defects: Vec<String>,
}

/// The inputs that all steps of a check share.
pub(super) struct CheckRun<'a> {
    pub repository: &'a Repository,
    pub config: &'a Config,
    pub listing: Arc<ContainerListing>,
    pub read_data: ReadData,
    pub progress: &'a Progress,
    pub stop: &'a Arc<AtomicBool>,
}

impl CheckRun<'_> {
    /// Fails with [`Error::Interrupted`] once the user has asked to stop.
    pub(super) fn check_stop(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }
}

/// Checks the structure of a repository, and every byte of the containers that `read_data` chooses.
///
/// `progress` counts containers as files, and the bytes of those that are read.
///
/// # Errors
/// Fails if the store cannot be read for a reason other than damage, and with [`Error::Interrupted`] once `stop` is
/// set. Damage is reported, not returned.
pub fn check(
    repository: &Repository,
    config: &Config,
    read_data: impl Into<ReadData>,
    progress: &Progress,
    stop: &Arc<AtomicBool>,
) -> Result<CheckReport> {
    let (repository, read_data) = (&repository.stopped_by(stop), read_data.into());
    let mut report = CheckReport::default();
    let mut log = DefectLog::default();
    for (name, error) in repository.config_defects() {
        log.damaged_blob(name, &damage(error)?);
    }
    let (snapshots, damaged) = snapshot::list(repository.store.as_ref())?;
    // A missing snapshot was deleted on purpose after the listing.
    for (name, error) in damaged.into_iter().filter(|(_, error)| error.kind() != ErrorKind::NotFound) {
        log.damaged_blob(&name, &damage(error)?);
    }
    report.snapshots = snapshots.len() as u64;
    for listed in repository.store.list(model::PREFIX)? {
        if let Err(error) = model::CatalogueBlob::load(repository.store.as_ref(), &listed.name)
            && error.kind() != ErrorKind::NotFound
        {
            log.damaged_blob(&listed.name, &damage(error)?);
        }
    }

    let mut listing = ContainerListing::take(&repository.store)?;
    for (name, error) in listing.damaged.drain(..) {
        log.damaged_blob(&name, &damage(error)?);
    }
    report.segments = listing.segments().len() as u64;
    let run = CheckRun { repository, config, listing: Arc::new(listing), read_data, progress, stop };
    segments::check(&run, &mut log)?;
    containers::check(&run, &mut report, &mut log)?;
    run.listing.take_orphans_used();
    trees::check(&run, &snapshots, &mut log)?;
    for id in run.listing.take_orphans_used() {
        log.consequence(format!("{} is in no index segment, but a snapshot needs it", blob_name(&id)));
    }
    report.defect_count = log.count();
    report.defects = log.into_texts();
    Ok(report)
}
