//! Containers with damage, their defects, and whether a snapshot needs what is damaged.
//!
//! Damage that no mark lists is a defect. Damage that a mark lists is one only if a snapshot needs it. Otherwise every
//! chunk that a snapshot needs has been stored again, and the report only mentions it.

use std::collections::{BTreeMap, HashSet};

use super::defect_log::{DEFECTS_MAX, DefectLog};
use super::run::CheckReport;
use crate::repo::container::blob_name;
use crate::repo::marks::{BadParts, PositionSet, Quarantine};
use crate::types::ContainerId;

/// Texts of defects in memory, at most.
const TEXTS_MAX: usize = 4 * DEFECTS_MAX;

/// What the snapshots need of damaged containers.
#[derive(Debug, Default)]
pub(super) struct LostChunks {
    /// Containers that have entries of chunks which no entry gives, or frames of them.
    pub(super) containers: HashSet<ContainerId>,
    /// Whether one of those chunks is in no readable index.
    pub(super) is_any_unlocated: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct DamagedContainers {
    found: BTreeMap<ContainerId, (BadParts, DefectLog)>,
    texts: usize,
}

impl DamagedContainers {
    /// Adds damage of a container with its defects.
    pub(super) fn add(&mut self, id: ContainerId, parts: &BadParts, mut log: DefectLog) {
        if self.texts + log.texts() > TEXTS_MAX {
            log.drop_texts();
        }
        self.texts += log.texts();
        let none = || {
            (BadParts::Parts { frames: PositionSet::default(), entries: PositionSet::default() }, DefectLog::default())
        };
        let known = self.found.entry(id).or_insert_with(none);
        known.0.merge(parts);
        known.1.merge(log);
    }

    /// Whether nothing is damaged.
    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Everything that is bad.
    pub(super) fn quarantine(&self) -> Quarantine {
        let mut quarantine = Quarantine::default();
        self.found.iter().for_each(|(id, (parts, _))| {
            if *parts != (BadParts::Parts { frames: PositionSet::default(), entries: PositionSet::default() }) {
                quarantine.insert(*id, parts);
            }
        });
        quarantine
    }

    /// Adds the defects to `log`, and what no snapshot needs to the notes of `report`. `known` is what marks list,
    /// `named` the containers that segments name.
    pub(super) fn finish(
        self,
        known: &Quarantine,
        lost: &LostChunks,
        named: &HashSet<ContainerId>,
        report: &mut CheckReport,
    ) -> DefectLog {
        let mut log = DefectLog::default();
        for (id, (parts, defects)) in self.found {
            let is_needed = lost.containers.contains(&id)
                || (lost.is_any_unlocated && parts == BadParts::Whole && !named.contains(&id));
            let is_known = known.of(&id).is_some_and(|listed| {
                let mut both = listed.clone();
                both.merge(&parts);
                both == *listed
            });
            if is_needed || !is_known {
                log.merge(defects);
            } else if report.notes.len() < DEFECTS_MAX {
                report.notes.push(format!(
                    "{}: {} no longer needed; every chunk of a snapshot is sound elsewhere",
                    blob_name(&id),
                    description(&parts)
                ));
            }
        }
        log
    }
}

/// What is damaged, as the beginning of a sentence.
fn description(parts: &BadParts) -> String {
    match parts {
        BadParts::Whole => "the damaged or missing container is".into(),
        BadParts::Parts { frames, entries } => {
            format!("{} damaged frames and {} chunks that need them are", frames.count(), entries.count())
        }
    }
}
