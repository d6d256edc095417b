//! Quarantine: records in marks what a check of data found bad.
//!
//! 1. The marks that say what the check found are written, unless they are there already.
//! 2. Older marks of the kind `quarantine` are deleted: the new ones list what the check has not read, too. Damaged
//!    optional marks are deleted if the check has read every container.
//! 3. Damaged key slots are written again from their second copies.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::Serialize;

use super::index::repair_index;
use crate::error::Result;
use crate::inspect::check::CheckReport;
use crate::repo::Repository;
use crate::repo::keys;
use crate::repo::marks::{Mark, MarkKind, Marks};
use crate::repo::overwritten::delete_damaged;
use crate::store::{BlobKind, BlobName};

/// What [`record`] did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct QuarantineReport {
    /// Containers with bad parts, now in quarantine.
    pub containers: u64,
    /// Marks written.
    pub marks_written: u64,
    /// Marks deleted, because they were out of date or damaged.
    pub marks_deleted: u64,
}

/// Records what a check that read data found bad. `before` are the marks that were read before that check began:
/// only those are replaced, because another check may have added others since.
///
/// # Errors
/// Errors of the store, and [`Error::ReadOnly`](crate::Error::ReadOnly) and others if a mark forbids writing.
pub fn record(repository: &Repository, before: &Marks, report: &CheckReport) -> Result<QuarantineReport> {
    let store = repository.store.as_ref();
    if repository.check_writable().and_then(|()| before.check_writable()).is_ok()
        && let Err(error) = keys::heal_slots(repository)
    {
        tracing::warn!("key slots are not healed: {error}");
    }
    let mut done = QuarantineReport { containers: report.bad.containers().count() as u64, ..Default::default() };
    let is_same = *before.quarantine == report.bad;
    let damaged = before.damaged.iter().filter(|(_, error)| error.is_proven_damage());
    let damaged = damaged.filter(|_| report.is_everything_read).filter_map(|(name, _)| BlobName::parse(name).ok());
    let mut obsolete: HashSet<BlobName> = damaged.filter(|name| name.kind() == BlobKind::OptionalMark).collect();
    if is_same && obsolete.is_empty() {
        return Ok(done);
    }
    before.admit_writer(repository)?;
    if !is_same {
        if !report.bad.is_empty() {
            let mark = Mark::new(MarkKind::Quarantine(report.bad.clone()), "check --read-data found damage");
            done.marks_written = mark.save(store)?.len() as u64;
        }
        obsolete.extend(before.quarantine_names.iter().cloned());
    }
    for name in obsolete {
        done.marks_deleted += u64::from(delete_damaged(repository, &name)?);
    }
    Ok(done)
}

/// Lets `look` check again after a heal has put containers back, and records what is bad now. Segments that were
/// written while files were mixed up name entries that are elsewhere: they are written again first.
///
/// # Errors
/// Errors of `look`, of [`repair_index`] and of [`record`].
pub fn look_again(
    repository: &Repository,
    stop: &Arc<AtomicBool>,
    look: impl Fn() -> Result<CheckReport>,
) -> Result<CheckReport> {
    // Marks that others add while it looks stay.
    let look = || Ok::<_, crate::Error>((Marks::read(repository.store.as_ref())?, look()?));
    let (mut before, mut report) = look()?;
    if report.defect_count > 0 {
        repair_index(repository, stop)?;
        (before, report) = look()?;
    }
    record(repository, &before, &report)?;
    Ok(report)
}
