//! Checkpoints: snapshots that are a step of a training run, with its metrics.
//!
//! They are stored in the open map of the snapshot. A run is all snapshots with its name. Of several snapshots of one
//! step the last one counts; one [from the future](crate::repo::clock) only if there is no other. Some snapshots have
//! only a part of the files of a step: they belong to it as long as it stays.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

use crate::error::{Error, Result};
use crate::repo::clock::future_first;
use crate::repo::snapshot::{NamedSnapshot, Snapshot};
use crate::types::SnapshotId;

/// Key in the open map of a snapshot.
pub const KEY: &str = "checkpoint";
/// Longest name of a run or a metric, bytes.
const NAME_BYTES_MAX: usize = 255;
/// Metrics of one checkpoint.
const METRICS_MAX: usize = 1024;

/// A step of a run: a CBOR map with integer keys.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct Checkpoint {
    /// Name of the run.
    #[n(0)]
    pub run: String,
    /// Number of the step.
    #[n(1)]
    pub step: u64,
    /// Metrics by name.
    #[n(2)]
    pub metrics: BTreeMap<String, f64>,
}

/// Which value of a metric is best.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BestMode {
    /// The smallest.
    Min,
    /// The largest.
    Max,
}

impl Checkpoint {
    /// Describes what makes the checkpoint invalid, if anything. Invalid ones are neither written nor read.
    pub fn defect(&self) -> Option<&'static str> {
        if !is_name(&self.run, &[':', '@']) {
            Some("the name of a run has 1 to 255 bytes, and none of `:`, `@` and control characters")
        } else if self.metrics.keys().any(|name| !is_name(name, &[':', '='])) {
            Some("the name of a metric has 1 to 255 bytes, and none of `:`, `=` and control characters")
        } else if self.metrics.len() > METRICS_MAX {
            Some("a checkpoint has at most 1024 metrics")
        } else {
            None
        }
    }

    /// Adds the checkpoint to the open map of a snapshot.
    ///
    /// # Errors
    /// [`Error::Usage`] if it is invalid.
    pub fn attach(&self, extra: &mut BTreeMap<String, ByteVec>) -> Result<()> {
        if let Some(defect) = self.defect() {
            return Err(Error::Usage(defect.into()));
        }
        let bytes = minicbor::to_vec(self);
        let bytes = bytes.map_err(|error| Error::internal(format!("cannot store the checkpoint: {error}")))?;
        extra.insert(KEY.into(), bytes.into());
        Ok(())
    }

    /// The checkpoint of a snapshot, if it is one. An invalid one is ignored.
    pub fn of(snapshot: &Snapshot) -> Option<Checkpoint> {
        let checkpoint: Checkpoint = minicbor::decode(snapshot.extra.get(KEY)?).ok()?;
        checkpoint.defect().is_none().then_some(checkpoint)
    }
}

fn is_name(name: &str, reserved: &[char]) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.contains(|c: char| c.is_control() || reserved.contains(&c))
}

/// A checkpoint with its snapshot.
#[derive(Debug, Clone)]
pub struct RunStep {
    /// The snapshot that counts.
    pub named: NamedSnapshot,
    /// What it records.
    pub checkpoint: Checkpoint,
    /// Other snapshots that have files of the step ([`is_part`]).
    pub parts: Vec<SnapshotId>,
}

/// Whether a snapshot has some files of a step, which those that come later do not replace: files that were written
/// through the Python package's file system, unless they are all of a sharded checkpoint, and one of several
/// checkpoints that Lightning has of a step.
pub fn is_part(snapshot: &Snapshot) -> bool {
    let has_tag = |tag: &str| snapshot.tags.iter().any(|own| own == tag);
    let starts_tag = |start: &str| snapshot.tags.iter().any(|own| own.starts_with(start));
    (has_tag("fsspec") && !has_tag("sharded")) || starts_tag("lightning:") || starts_tag("lightning-quoted:")
}

/// The steps of each run, by ascending step. `snapshots` are sorted by time; it is `now_ns`.
///
/// The last snapshot of a step counts that is no part of one, else the last part with metrics. Those from the future
/// count only if there is no other.
pub fn runs(snapshots: Vec<NamedSnapshot>, now_ns: i64) -> BTreeMap<String, Vec<RunStep>> {
    let mut runs: BTreeMap<String, BTreeMap<u64, RunStep>> = BTreeMap::new();
    let rank = |named: &NamedSnapshot, checkpoint: &Checkpoint| {
        let is_whole = !is_part(&named.snapshot);
        (!named.snapshot.is_future(now_ns), is_whole, is_whole || !checkpoint.metrics.is_empty())
    };
    for named in future_first(snapshots, |named| named.snapshot.is_future(now_ns)) {
        let Some(checkpoint) = Checkpoint::of(&named.snapshot) else { continue };
        let new = RunStep { named, checkpoint, parts: Vec::new() };
        match runs.entry(new.checkpoint.run.clone()).or_default().entry(new.checkpoint.step) {
            Entry::Vacant(entry) => {
                entry.insert(new);
            }
            Entry::Occupied(mut entry) => {
                let step = entry.get_mut();
                let is_newer = rank(&new.named, &new.checkpoint) >= rank(&step.named, &step.checkpoint);
                let other = if is_newer {
                    let parts = std::mem::take(&mut step.parts);
                    std::mem::replace(step, RunStep { parts, ..new })
                } else {
                    new
                };
                step.parts.extend(is_part(&other.named.snapshot).then_some(other.named.id));
            }
        }
    }
    runs.into_iter().map(|(name, steps)| (name, steps.into_values().collect())).collect()
}

/// The step with the best value of a metric, as [`ranked`] has it.
pub fn best<'a>(steps: &'a [RunStep], metric: &str, mode: BestMode) -> Option<&'a RunStep> {
    ranked(steps, metric, mode).into_iter().next()
}

/// The steps by the value of a metric, the best first, and the first of equal ones before the others. Steps without a
/// number for it are left out.
pub fn ranked<'a>(steps: &'a [RunStep], metric: &str, mode: BestMode) -> Vec<&'a RunStep> {
    let value = |step: &RunStep| step.checkpoint.metrics.get(metric).copied().filter(|value| !value.is_nan());
    let mut found: Vec<(f64, &RunStep)> = steps.iter().filter_map(|step| Some((value(step)?, step))).collect();
    found.sort_by(|(one, _), (other, _)| {
        let (one, other) = if mode == BestMode::Min { (one, other) } else { (other, one) };
        // Both zeros are equal, and no value is NaN.
        one.partial_cmp(other).unwrap_or(Ordering::Equal)
    });
    found.into_iter().map(|(_, step)| step).collect()
}

/// A counter of the backup of a step; 0 if it recorded none.
pub fn statistic(step: &RunStep, name: &str) -> u64 {
    step.named.snapshot.statistics.get(name).copied().unwrap_or(0)
}

/// Names of all metrics of a run.
pub fn metric_names(steps: &[RunStep]) -> Vec<&str> {
    let mut names: Vec<&str> =
        steps.iter().flat_map(|step| step.checkpoint.metrics.keys().map(String::as_str)).collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(time_ns: i64, checkpoint: Option<Checkpoint>) -> NamedSnapshot {
        let mut extra = BTreeMap::new();
        checkpoint.into_iter().for_each(|checkpoint| checkpoint.attach(&mut extra).unwrap());
        let snapshot = Snapshot { time_ns, extra, ..Snapshot::default() };
        NamedSnapshot { id: SnapshotId([time_ns as u8; 32]), snapshot }
    }

    fn checkpoint(run: &str, step: u64, loss: f64) -> Checkpoint {
        Checkpoint { run: run.into(), step, metrics: BTreeMap::from([("loss".into(), loss)]) }
    }

    #[test]
    fn the_encoding_never_changes() {
        let mut extra = BTreeMap::new();
        checkpoint("a", 10, 0.5).attach(&mut extra).unwrap();
        let expected = "a3006161010a02a1646c6f7373fb3fe0000000000000";
        assert_eq!(crate::types::hex(&extra[KEY]), expected);
    }

    #[test]
    fn the_last_snapshot_of_a_step_counts_and_steps_ascend() {
        let snapshots = vec![
            snapshot(1, Some(checkpoint("a", 20, 0.4))),
            snapshot(2, Some(checkpoint("a", 10, 0.9))),
            snapshot(3, None),
            snapshot(4, Some(checkpoint("b", 10, f64::NAN))),
            snapshot(5, Some(checkpoint("a", 20, 0.2))),
            snapshot(6, Some(checkpoint("a", 30, 0.2))),
        ];
        let runs = runs(snapshots, 1_000);
        let times: Vec<i64> = runs["a"].iter().map(|step| step.named.snapshot.time_ns).collect();
        assert_eq!((runs.len(), times), (2, vec![2, 5, 6]));
        let found = |run: &str, mode| best(&runs[run], "loss", mode).map(|step| step.checkpoint.step);
        assert_eq!((found("a", BestMode::Min), found("a", BestMode::Max)), (Some(20), Some(10)));
        assert_eq!(found("b", BestMode::Min), None, "no value is a number");
        assert!(best(&runs["a"], "accuracy", BestMode::Max).is_none());
    }

    #[test]
    fn parts_of_a_step_stand_for_it_only_if_nothing_else_does() {
        let tagged = |time_ns, loss: Option<f64>, tags: &[&str]| {
            let metrics = loss.map(|loss| ("loss".to_string(), loss)).into_iter().collect();
            let mut named = snapshot(time_ns, Some(Checkpoint { run: "a".into(), step: 1, metrics }));
            named.snapshot.tags = tags.iter().map(ToString::to_string).collect();
            named
        };
        let found = |snapshots: Vec<NamedSnapshot>| {
            let [step] = &runs(snapshots, 100)["a"][..] else { panic!("one step") };
            (step.named.snapshot.time_ns, step.parts.iter().map(|id| id.0[0]).collect::<Vec<_>>())
        };
        let (whole, beside) = (|time| tagged(time, None, &[]), |time| tagged(time, None, &["x", "fsspec"]));
        assert_eq!(found(vec![whole(1), beside(2), beside(3)]), (1, vec![2, 3]));
        assert_eq!(found(vec![beside(1), whole(2), whole(3), beside(4)]), (3, vec![1, 4]));
        assert_eq!(found(vec![beside(1), tagged(2, Some(0.5), &["fsspec"]), beside(3)]), (2, vec![1, 3]));
        let sharded = tagged(2, None, &["fsspec", "sharded"]);
        assert_eq!(found(vec![beside(1), sharded, beside(3)]), (2, vec![1, 3]));
        let lightning = |time, tag| tagged(time, Some(0.5), &[tag]);
        assert_eq!(found(vec![lightning(1, "lightning:a"), lightning(2, "lightning-quoted:b")]), (2, vec![1]));
        assert_eq!(found(vec![beside(1), whole(i64::MAX)]), (1, vec![]));
    }

    #[test]
    fn steps_are_ranked_without_those_that_have_no_number() {
        let values =
            [(1, 0.5), (2, f64::NAN), (3, f64::NEG_INFINITY), (4, -0.0), (5, 0.0), (6, 0.5), (7, f64::INFINITY)];
        let snapshots = values.iter().map(|(step, loss)| snapshot(*step as i64, Some(checkpoint("a", *step, *loss))));
        let runs = runs(snapshots.collect(), 1_000);
        let order = |mode| ranked(&runs["a"], "loss", mode).iter().map(|step| step.checkpoint.step).collect::<Vec<_>>();
        assert_eq!((order(BestMode::Min), order(BestMode::Max)), (vec![3, 4, 5, 1, 6, 7], vec![7, 1, 6, 4, 5, 3]));
        assert!(ranked(&runs["a"], "other", BestMode::Min).is_empty());
    }

    #[test]
    fn a_step_from_the_future_counts_only_if_there_is_no_other() {
        let future = crate::repo::clock::TOLERANCE_NS + 1_001;
        let steps = |times: &[i64]| {
            let snapshots = times.iter().map(|time| snapshot(*time, Some(checkpoint("a", 1, 0.0)))).collect();
            runs(snapshots, 1_000)["a"][0].named.snapshot.time_ns
        };
        assert_eq!((steps(&[5, 7, future]), steps(&[future, future + 1])), (7, future + 1));
    }

    #[test]
    fn names_that_the_grammar_needs_are_refused_and_foreign_bytes_ignored() {
        for run in ["", "a@1", "a:b", "a\n", &"x".repeat(256)] {
            assert!(checkpoint(run, 1, 0.0).attach(&mut BTreeMap::new()).is_err(), "{run}");
        }
        let metrics = BTreeMap::from([("a=b".to_string(), 0.0)]);
        assert!(Checkpoint { metrics, ..checkpoint("a", 1, 0.0) }.attach(&mut BTreeMap::new()).is_err());
        let mut named = snapshot(1, None);
        for bytes in [&b""[..], b"\xff", b"\xa1\x00\x01", b"\xa3\x00\x60\x01\x00\x02\xa0"] {
            named.snapshot.extra.insert(KEY.into(), bytes.to_vec().into());
            assert_eq!(Checkpoint::of(&named.snapshot), None, "{bytes:?}");
        }
    }
}
