//! The hot indexes of a cold repository: each container has one, and every byte of it is checked.

use std::collections::BTreeSet;

use serde::Serialize;

use super::defect_log::{DEFECTS_MAX, damage};
use super::run::{CheckReport, CheckRun};
use crate::error::{Error, ErrorKind, Result};
use crate::repo::cold::{indexed, is_cold, rebuilt_container, verify};
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
    /// Containers whose own header, index or footer is damaged, and that theirs give back.
    pub rebuilt: u64,
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
    let mut bad = BTreeSet::new();
    for id in ids {
        run.check_stop()?;
        if !indexed.contains_key(id) {
            report.hot_indexes.missing += 1;
            note(&mut report.notes, format!("{} has no hot index", blob_name(id)));
            bad.insert(*id);
            continue;
        }
        match verify(store, id) {
            Ok(()) => report.hot_indexes.sound += 1,
            // A prune has deleted the container, and then this.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                report.hot_indexes.damaged += 1;
                bad.insert(*id);
                note(&mut report.notes, format!("the hot index of {} is damaged: {}", blob_name(id), damage(error)?));
            }
        }
    }
    // Of a container that was not read nobody knows whether it is sound, and whether it can be read.
    let sound = report.read.iter().filter(|(_, is_sound)| *is_sound).map(|(id, _)| id);
    report.healable.hot_indexes = sound.filter(|id| bad.contains(id)).copied().collect();
    Ok(())
}

/// Whether the hot index of a container, of which bytes proved wrong, gives them back.
pub(super) fn is_rebuilt(run: &CheckRun<'_>, id: &ContainerId) -> Result<bool> {
    if !is_cold(run.repository) {
        return Ok(false);
    }
    match rebuilt_container(run.repository.store.as_ref(), id) {
        Err(error) if error.is_unavailable() => Ok(false),
        rebuilt => Ok(rebuilt?.is_some()),
    }
}
