//! A check of chosen containers alone, for runs that prove a large repository in parts.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;

use super::damaged_containers::{DamagedContainers, LostChunks};
use super::defect_log::DefectLog;
use super::read_data::ReadData;
use super::run::{CheckReport, CheckRun, take_note};
use super::{containers, marked};
use crate::config::Config;
use crate::error::Result;
use crate::keep::is_everything_there;
use crate::metrics::Progress;
use crate::repo::Repository;
use crate::repo::container::blob_name;
use crate::repo::index::{ContainerListing, missing_containers};
use crate::repo::marks::{BadParts, Quarantine};
use crate::types::ContainerId;

/// Reads the containers `chosen` whole. No tree is walked, so whatever is damaged is a defect, also if no snapshot
/// needs it. Of what marks list, only containers that are gone are one, as long as a snapshot lacks anything.
/// Segments that do not open and directories that cannot be listed are defects, too.
///
/// # Errors
/// Errors of [`check`](super::check).
pub fn check_containers(
    repository: &Repository,
    config: &Config,
    chosen: &HashSet<ContainerId>,
    progress: &Progress,
    stop: &Arc<AtomicBool>,
) -> Result<CheckReport> {
    let repository = &repository.stopped_by(stop);
    let mut report = CheckReport::default();
    let mut listing = ContainerListing::take(&repository.store)?;
    let mut log = DefectLog::default();
    let has_newer_segments = super::segments::unopened(&mut listing, &mut log, stop)?;
    report.set_listed(&listing);
    let run = CheckRun {
        repository,
        config,
        listing: Arc::new(listing),
        read_data: ReadData::Everything,
        is_whole: false,
        disproved: Mutex::default(),
        has_newer_segments,
        progress,
        stop,
    };
    let (known, mut damaged) = (run.listing.quarantine(), DamagedContainers::default());
    // What is not there cannot be read: it is the worst damage.
    let missing = missing_containers(&run.listing)?;
    if !chosen.is_empty() {
        containers::check(&run, Some(chosen), &mut report, &mut damaged)?;
    }
    take_note(&run, &known, &damaged, &mut report);
    let lost = lost_for_marks(&run, &known)?;
    lost.iter().for_each(|id| log.add(format!("{} is missing: a mark refers to it", blob_name(id))));
    missing.lost.iter().for_each(|id| log.add(format!("{} is missing: a segment refers to it", blob_name(id))));
    for id in &missing.unlisted {
        log.add(format!("{} cannot be looked at: its directory cannot be listed", blob_name(id)));
    }
    log.merge(damaged.finish(&Quarantine::default(), &LostChunks::default(), &HashSet::new(), &mut report));
    (report.newer_count, report.newer) = (log.newer_count(), log.take_newer());
    report.missing_containers = (missing.lost.len() + missing.unlisted.len() + lost.len()) as u64;
    report.defect_count = log.count();
    (report.defects, report.defects_more) = log.into_texts();
    Ok(report)
}

/// The containers that marks call bad as a whole and that are not there, if a snapshot lacks anything.
fn lost_for_marks(run: &CheckRun<'_>, known: &Quarantine) -> Result<BTreeSet<ContainerId>> {
    let mut lost = marked::gone(run, known)?;
    lost.retain(|id| known.of(id) == Some(&BadParts::Whole));
    let is_fine = lost.is_empty() || is_everything_there(run.repository, run.stop)?;
    Ok(if is_fine { BTreeSet::new() } else { lost })
}
