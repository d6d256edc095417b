//! The hot indexes of a cold repository: each container has one, and every byte of it is checked.

use std::collections::{BTreeSet, HashMap, HashSet};

use serde::Serialize;

use super::defect_log::{DEFECTS_MAX, DefectLog, damage};
use super::run::{CheckReport, CheckRun};
use crate::error::{Error, ErrorKind, Result};
use crate::repo::cold::{indexed, is_cold, rebuilt_container, verify};
use crate::repo::container::{blob_name, parse_name};
use crate::store::BlobKind;
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

/// Reads the hot indexes of the listed containers, and notes which are missing or damaged. Logs the containers that are
/// longer than theirs say: the bytes of another one may be in the way, and whoever reads no data sees only that.
pub(super) fn check(run: &CheckRun<'_>, report: &mut CheckReport, log: &mut DefectLog) -> Result<()> {
    if !is_cold(run.repository) {
        return Ok(());
    }
    let store = run.repository.store.as_ref();
    let listed = indexed(store).and_then(|indexed| Ok((indexed, store.list(BlobKind::Container.into())?)));
    let (indexed, lens) = match listed {
        Err(error @ Error::Unreadable { .. }) => {
            report.notes.push(format!("hot indexes cannot be listed: {error}"));
            return Ok(());
        }
        listed => listed?,
    };
    let lens: HashMap<ContainerId, u64> =
        lens.into_iter().filter_map(|blob| Some((parse_name(&blob.name)?, blob.len))).collect();
    let note = |notes: &mut Vec<String>, text: String| {
        if notes.len() < DEFECTS_MAX {
            notes.push(format!("{text}; `fhrd cold add` writes it again from a container that can be read"));
        }
    };
    let mut ids: Vec<&ContainerId> = run.listing.containers.iter().collect();
    ids.sort_unstable();
    let read: HashSet<ContainerId> = report.read.iter().map(|(id, _)| *id).collect();
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
            Ok(len) => {
                report.hot_indexes.sound += 1;
                if let Some(longer) = lens.get(id).filter(|longer| **longer > len)
                    && !read.contains(id)
                {
                    let text = "its hot index says; `fhrd check --read-data` tells whose bytes they are";
                    log.add(format!("{} has {longer} bytes, and not {len}, as {text}", blob_name(id)));
                }
            }
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

/// Notes a container that [`is_rebuilt`].
pub(super) fn note_rebuilt(report: &mut CheckReport, id: &ContainerId, is_cold: bool) {
    let how = if is_cold { "outside its frames; its hot index is whole" } else { "in its padding, which is zeros" };
    let count = if is_cold { &mut report.hot_indexes.rebuilt } else { &mut report.padding_damaged };
    *count += 1;
    report.containers_healed += u64::from(is_cold);
    report.healable.containers.insert(*id);
    if report.notes.len() < DEFECTS_MAX {
        report.notes.push(format!("{} is damaged {how}", blob_name(id)));
    }
}

/// Whether the hot index of a container, of which bytes proved wrong, gives them back, or zeros in its padding do.
pub(super) fn is_rebuilt(run: &CheckRun<'_>, id: &ContainerId) -> Result<bool> {
    match rebuilt_container(run.repository, id) {
        Err(Error::Usage(text)) => {
            tracing::warn!("{} is not rebuilt: {text}", blob_name(id));
            Ok(false)
        }
        Err(error) if error.is_unavailable() => Ok(false),
        rebuilt => Ok(rebuilt?.is_some()),
    }
}
