//! The hot indexes of a cold repository: each container has one, and every byte of it is checked.

use serde::Serialize;

use super::defect_log::{DEFECTS_MAX, damage};
use super::run::{CheckReport, CheckRun};
use crate::error::{Error, ErrorKind, Result};
use crate::repo::cold::{indexed, is_cold, verify};
use crate::repo::container::blob_name;
use crate::types::ContainerId;

/// Hot indexes of a cold repository. None is a defect: the container has the same bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct HotIndexCounts {
    /// Read and sound.
    pub sound: u64,
    /// Containers without one.
    pub missing: u64,
    /// Damaged.
    pub damaged: u64,
}

/// Reads the hot indexes of the listed containers, and notes which are missing or damaged.
pub(super) fn check(run: &CheckRun<'_>, report: &mut CheckReport) -> Result<()> {
    if !is_cold(run.repository) {
        return Ok(());
    }
    let store = run.repository.store.as_ref();
    let indexed = match indexed(store) {
        Err(error @ Error::Unreadable { .. }) => {
            report.notes.push(format!("hot indexes cannot be listed: {error}"));
            return Ok(());
        }
        listed => listed?,
    };
    let note = |notes: &mut Vec<String>, text: String| {
        if notes.len() < DEFECTS_MAX {
            notes.push(format!("{text}; `fhrd cold add` writes it again from a container that can be read"));
        }
    };
    let mut ids: Vec<&ContainerId> = run.listing.containers.iter().collect();
    ids.sort_unstable();
    for id in ids {
        run.check_stop()?;
        if !indexed.contains_key(id) {
            report.hot_indexes.missing += 1;
            note(&mut report.notes, format!("{} has no hot index", blob_name(id)));
            continue;
        }
        match verify(store, id) {
            Ok(()) => report.hot_indexes.sound += 1,
            // A prune has deleted the container, and then this.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                report.hot_indexes.damaged += 1;
                note(&mut report.notes, format!("the hot index of {} is damaged: {}", blob_name(id), damage(error)?));
            }
        }
    }
    Ok(())
}
