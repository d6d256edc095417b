//! Containers with damage, their defects, and whether a snapshot needs what is damaged.
//!
//! Damage that no mark lists is a defect. Damage that a mark lists is one only if a snapshot needs it. Otherwise every
//! chunk that a snapshot needs has been stored again, and the report only mentions it.
//!
//! A container that is gone is no defect by itself: a prune deletes containers before it writes segments without them,
//! and it may be killed in between. It is one if something that a snapshot needs is lost.

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

impl LostChunks {
    /// Adds what `other` has.
    pub(super) fn merge(&mut self, other: LostChunks) {
        self.containers.extend(other.containers);
        self.is_any_unlocated |= other.is_any_unlocated;
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct DamagedContainers {
    found: BTreeMap<ContainerId, (BadParts, DefectLog)>,
    texts: usize,
    /// Containers that are gone, with the segment or the mark that names each.
    missing: BTreeMap<ContainerId, String>,
    /// Containers that pending entries name.
    pending: HashSet<ContainerId>,
    /// Entries whose bases are not there, in containers that a backup writes or a prune deletes.
    doubtful: Quarantine,
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

    /// Adds a container that is gone and that `segment` names.
    pub(super) fn miss(&mut self, id: ContainerId, segment: &str) {
        self.missing.entry(id).or_insert_with(|| segment.into());
    }

    /// Remembers the containers that pending entries name.
    pub(super) fn add_pending(&mut self, pending: HashSet<ContainerId>) {
        self.pending.extend(pending);
    }

    /// Adds entries that are no defect, but that nobody may rely on unseen.
    pub(super) fn doubt(&mut self, id: ContainerId, entries: PositionSet) {
        self.doubtful.insert(id, &BadParts::Parts { frames: PositionSet::default(), entries });
    }

    /// Whether nothing is damaged or gone.
    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty() && self.missing.is_empty()
    }

    /// What readers must not rely on: everything that is bad or doubtful.
    pub(super) fn unreliable(&self) -> Quarantine {
        let mut quarantine = self.quarantine();
        quarantine.merge(&self.doubtful);
        quarantine
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
        let is_any_lost = lost.is_any_unlocated || !lost.containers.is_empty();
        for (id, segment) in self.missing {
            let text = format!("{} is missing: {segment} refers to it", blob_name(&id));
            if lost.containers.contains(&id) || is_any_lost && !self.pending.contains(&id) {
                report.bad.insert(id, &BadParts::Whole);
                report.missing_containers += 1;
                log.add(text);
            } else if report.notes.len() < DEFECTS_MAX {
                report.notes.push(format!("{text}; no snapshot needs it"));
            }
        }
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

/// Counts what is bad.
pub(super) fn count_bad(report: &mut CheckReport) {
    (report.bad_containers, report.bad_frames, report.bad_chunks) = (0, 0, 0);
    for (_, parts) in report.bad.containers() {
        match parts {
            BadParts::Whole => report.bad_containers += 1,
            BadParts::Parts { frames, entries } => {
                report.bad_frames += frames.count();
                report.bad_chunks += entries.count();
            }
        }
    }
}
