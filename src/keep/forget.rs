//! Forget: chooses by rules which snapshots stay, and deletes the others.
//!
//! 1. Snapshots are grouped, by host and paths unless said otherwise. In each group the rules look at the snapshots
//!    from the latest to the oldest. A rule for a period keeps the latest snapshot of each of the last n periods that
//!    have one, by the calendar of the given time zone. A snapshot stays if any rule keeps it.
//! 2. Snapshots of training runs are left alone unless the rules name runs. Then each run is a group, its last
//!    snapshots are those of its highest steps, and its best ones are kept by a metric. Rules that only say which steps
//!    are best are about no other snapshots. A run in which no step has the metric stays whole, and so does a step of
//!    which files are in several snapshots, if a rule keeps one of them.
//! 3. Snapshots [from the future](crate::repo::clock) stay, and count for no rule.
//! 4. A group of which no rule keeps anything is an error unless that is allowed: the rules have a slip, such as a tag
//!    that nobody has.
//!
//! [Published](crate::repo::published) snapshots and [uploads](crate::repo::upload) are left alone, and count for no
//! rule.
//! Snapshots that their backup has not reported yet count for no rule and are never deleted.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, Zoned};

use super::run_rules::{BestRule, RunPattern, StepVerdicts};
use crate::error::{Error, ErrorKind, Result};
use crate::repo::Repository;
use crate::repo::checkpoint::{self, Checkpoint, RunStep};
use crate::repo::marks::check_writable;
use crate::repo::overwritten::check_deletable;
use crate::repo::share_record::ShareRecord;
use crate::repo::snapshot::{self, NamedSnapshot};
use crate::repo::snapshot_groups::{GroupBy, GroupValues, grouped};
use crate::repo::snapshot_listing;
use crate::repo::tags::has_tags;
use crate::repo::upload::StoredUpload;
use crate::repo::vanished;
use crate::store::{Durable, StoreExt, map_parallel};
use crate::types::SnapshotId;

/// Groups that an error names, at most.
const SHOWN_MAX: usize = 4;

/// The rules. Without any, nothing is deleted.
#[derive(Debug, Clone, Default)]
pub struct ForgetPolicy {
    /// Keep the last snapshots.
    pub last: u32,
    /// Keep the last of each of so many hours.
    pub hourly: u32,
    /// Days.
    pub daily: u32,
    /// Weeks, from Monday on, by ISO 8601.
    pub weekly: u32,
    /// Months.
    pub monthly: u32,
    /// Years.
    pub yearly: u32,
    /// Keep what is at most so old, counted from the latest snapshot of the group.
    pub within: Option<Span>,
    /// Keep snapshots with all tags of any of these lists, see [`has_tags`].
    pub tags: Vec<String>,
    /// Keep the best steps of runs.
    pub best: Vec<BestRule>,
    /// Decide only about the snapshots of these runs.
    pub runs: Option<RunPattern>,
    /// What the snapshots of a group have in common.
    pub group_by: GroupBy,
    /// Whether all snapshots of a group may be deleted.
    pub allow_empty_group: bool,
}

impl ForgetPolicy {
    /// Whether it has no rule.
    pub fn is_empty(&self) -> bool {
        self.best.is_empty() && !self.has_common_rule()
    }

    /// Whether it has a rule for snapshots that belong to no run.
    fn has_common_rule(&self) -> bool {
        let counts = [self.last, self.hourly, self.daily, self.weekly, self.monthly, self.yearly];
        counts.iter().any(|count| *count > 0) || self.within.is_some() || !self.tags.is_empty()
    }

    /// Whether it decides about a run of this name.
    fn decides_about_run(&self, run: &str) -> bool {
        self.runs.as_ref().map_or(!self.best.is_empty(), |runs| runs.matches(run))
    }
}

/// A snapshot with the rules that keep it.
#[derive(Debug, Clone)]
pub struct RetainedSnapshot {
    /// The snapshot.
    pub snapshot: NamedSnapshot,
    /// Such as `daily`; none if it is deleted.
    pub reasons: Vec<&'static str>,
}

/// The snapshots of a group, latest first.
#[derive(Debug, Clone)]
pub struct ForgetGroup {
    /// What they have in common.
    pub values: GroupValues,
    /// The run that they are steps of, if they were grouped so.
    pub run: Option<String>,
    /// Its snapshots.
    pub snapshots: Vec<RetainedSnapshot>,
}

impl ForgetGroup {
    /// The snapshots that no rule keeps.
    pub fn deleted(&self) -> impl Iterator<Item = SnapshotId> {
        self.snapshots.iter().filter(|retained| retained.reasons.is_empty()).map(|retained| retained.snapshot.id)
    }

    /// Names the group, for people.
    fn title(&self) -> String {
        if let Some(run) = &self.run {
            return format!("run {run}");
        }
        let title = self.values.title();
        if title.is_empty() { "the repository".into() } else { title }
    }
}

/// What rules decide.
#[derive(Debug, Clone, Default)]
pub struct ForgetPlan {
    /// The groups.
    pub groups: Vec<ForgetGroup>,
    /// Snapshots that are left alone because they belong to a run.
    pub runs_left: usize,
    /// Snapshots that are left alone because they are published.
    pub published_left: usize,
}

/// Keeps the latest snapshot of each of the last `count` periods.
struct PeriodRule {
    name: &'static str,
    count: usize,
    period: fn(&Zoned) -> (i16, i16, i16),
    /// Periods that have a snapshot. A clock that is set back may return to one.
    seen: BTreeSet<(i16, i16, i16)>,
}

fn day_of(time: &Zoned) -> (i16, i16, i16) {
    (time.year(), time.day_of_year(), 0)
}

fn rules(policy: &ForgetPolicy) -> Vec<PeriodRule> {
    let rule = |name, count: u32, period| PeriodRule {
        name,
        count: usize::try_from(count).unwrap_or(usize::MAX),
        period,
        seen: BTreeSet::new(),
    };
    vec![
        rule("hourly", policy.hourly, |time| (time.year(), time.day_of_year(), i16::from(time.hour()))),
        rule("daily", policy.daily, day_of),
        rule("weekly", policy.weekly, |time| {
            let week = time.date().iso_week_date();
            (week.year(), i16::from(week.week()), 0)
        }),
        rule("monthly", policy.monthly, |time| (time.year(), i16::from(time.month()), 0)),
        rule("yearly", policy.yearly, |time| (time.year(), 0, 0)),
    ]
}

/// Decides for `snapshots`, oldest first, which stay. It is `now_ns`.
///
/// # Errors
/// [`Error::Usage`] if a group would lose all its snapshots, and for a time span or a time of a snapshot that the
/// calendar does not reach.
pub fn plan_forget(
    snapshots: &[NamedSnapshot],
    policy: &ForgetPolicy,
    zone: &TimeZone,
    now_ns: i64,
) -> Result<ForgetPlan> {
    let (mut common, mut runs) = (Vec::new(), BTreeMap::<String, Vec<NamedSnapshot>>::new());
    let (mut runs_left, mut published_left) = (0, 0);
    for named in snapshots.iter().rev() {
        if named.snapshot.is_published() {
            published_left += usize::from(StoredUpload::of(&named.snapshot).is_none());
            continue;
        }
        let run = Checkpoint::of(&named.snapshot).map(|checkpoint| checkpoint.run);
        // One that cannot be read belongs to a run, too.
        match run.filter(|run| policy.decides_about_run(run)) {
            Some(run) => runs.entry(run).or_default().push(named.clone()),
            None if named.snapshot.extra.contains_key(checkpoint::KEY) => runs_left += 1,
            None if policy.has_common_rule() && policy.runs.is_none() => common.push(named.clone()),
            None => {}
        }
    }
    let rules = AppliedRules { policy, zone, now_ns };
    let mut plan = ForgetPlan { groups: Vec::new(), runs_left, published_left };
    for (values, members) in grouped(common, &policy.group_by) {
        let last = members.iter().filter(|named| !named.snapshot.is_future(now_ns)).map(|named| named.id);
        let last = last.take(usize::try_from(policy.last).unwrap_or(usize::MAX)).collect();
        let verdicts = StepVerdicts { last, ..StepVerdicts::default() };
        plan.groups.push(ForgetGroup { values, run: None, snapshots: rules.decide(members, &verdicts)? });
    }
    keep_jobs(&mut plan.groups);
    for (run, members) in runs {
        let present = members.iter().rev().filter(|named| !named.snapshot.is_future(now_ns)).cloned().collect();
        let steps = checkpoint::runs(present, now_ns).remove(&run).unwrap_or_default();
        let verdicts = StepVerdicts::new(&steps, policy.last, &policy.best);
        let mut snapshots = rules.decide(members, &verdicts)?;
        keep_parts(&mut snapshots, &steps);
        plan.groups.push(ForgetGroup { values: GroupValues::default(), run: Some(run), snapshots });
    }
    if !policy.allow_empty_group {
        check_groups(&plan.groups)?;
    }
    Ok(plan)
}

/// Keeps all snapshots that make up a step if a rule keeps one of them.
fn keep_parts(snapshots: &mut [RetainedSnapshot], steps: &[RunStep]) {
    let mut step_of = HashMap::new();
    for step in steps.iter().filter(|step| !step.parts.is_empty()) {
        let ids = step.parts.iter().chain([&step.named.id]);
        step_of.extend(ids.map(|id| (*id, step.checkpoint.step)));
    }
    let stays = snapshots.iter().filter(|retained| !retained.reasons.is_empty());
    let stays: BTreeSet<u64> = stays.filter_map(|retained| step_of.get(&retained.snapshot.id).copied()).collect();
    for retained in snapshots.iter_mut().filter(|retained| retained.reasons.is_empty()) {
        if step_of.get(&retained.snapshot.id).is_some_and(|step| stays.contains(step)) {
            retained.reasons.push("step");
        }
    }
}

/// Keeps the latest snapshot of each share of a job of which the rules keep another share: shares are stored at
/// different times, and a share may have been stored twice. `groups` have their snapshots latest first.
fn keep_jobs(groups: &mut [ForgetGroup]) {
    let job_of = |retained: &RetainedSnapshot| {
        let record = ShareRecord::of(&retained.snapshot.snapshot)?;
        let share = record.share()?;
        let paths: Vec<Vec<u8>> = retained.snapshot.snapshot.paths.iter().map(|path| path.to_vec()).collect();
        Some(((record.group, share.count(), paths), share.index()))
    };
    let mut stays: BTreeMap<_, BTreeSet<u32>> = BTreeMap::new();
    let all = groups.iter().flat_map(|group| &group.snapshots);
    for retained in all.filter(|retained| !retained.reasons.is_empty()) {
        if let Some((job, share)) = job_of(retained) {
            stays.entry(job).or_default().insert(share);
        }
    }
    for retained in groups.iter_mut().flat_map(|group| &mut group.snapshots) {
        let Some((job, share)) = job_of(retained) else { continue };
        if retained.reasons.is_empty()
            && let Some(shares) = stays.get_mut(&job)
            && shares.insert(share)
        {
            retained.reasons.push("job");
        }
    }
}

/// Fails if a group would lose all snapshots about which the rules decide.
fn check_groups(groups: &[ForgetGroup]) -> Result<()> {
    let is_emptied = |group: &&ForgetGroup| {
        let mut decided = group.snapshots.iter().filter(|retained| retained.reasons != [FUTURE]).peekable();
        decided.peek().is_some() && decided.all(|retained| retained.reasons.is_empty())
    };
    let emptied: Vec<&ForgetGroup> = groups.iter().filter(is_emptied).collect();
    let mut names: Vec<String> =
        emptied.iter().take(SHOWN_MAX).map(|group| group.title().escape_debug().to_string()).collect();
    if emptied.len() > SHOWN_MAX {
        names.push(format!("{} more", emptied.len() - SHOWN_MAX));
    }
    match emptied.is_empty() {
        true => Ok(()),
        false => Err(Error::Usage(format!(
            "nothing was deleted, because the rules keep no snapshot of {}; if that is meant, give --allow-empty-group",
            names.join("; ")
        ))),
    }
}

/// The reason of snapshots from the future.
const FUTURE: &str = "future";

/// The rules with the calendar and the clock.
struct AppliedRules<'a> {
    policy: &'a ForgetPolicy,
    zone: &'a TimeZone,
    now_ns: i64,
}

impl AppliedRules<'_> {
    fn time_of(&self, named: &NamedSnapshot) -> Result<Zoned> {
        let time = Timestamp::from_nanosecond(i128::from(named.snapshot.time_ns));
        let time = time.map_err(|error| Error::Usage(format!("time of snapshot {:.8}: {error}", named.id)))?;
        Ok(time.to_zoned(self.zone.clone()))
    }

    /// Applies the rules to the snapshots of a group, latest first.
    fn decide(&self, snapshots: Vec<NamedSnapshot>, verdicts: &StepVerdicts) -> Result<Vec<RetainedSnapshot>> {
        let is_future = |named: &NamedSnapshot| named.snapshot.is_future(self.now_ns);
        let oldest = match (&self.policy.within, snapshots.iter().find(|named| !is_future(named))) {
            (Some(span), Some(latest)) => {
                let oldest = self.time_of(latest)?.checked_sub(*span);
                Some(
                    oldest
                        .map_err(|error| Error::Usage(format!("the time span {span:#} cannot be counted: {error}")))?,
                )
            }
            _ => None,
        };
        let (mut periods, mut retained) = (rules(self.policy), Vec::with_capacity(snapshots.len()));
        for named in snapshots {
            if is_future(&named) {
                retained.push(RetainedSnapshot { snapshot: named, reasons: vec![FUTURE] });
                continue;
            }
            let (time, mut reasons) = (self.time_of(&named)?, Vec::new());
            if verdicts.last.contains(&named.id) {
                reasons.push("last");
            }
            for rule in &mut periods {
                if rule.seen.len() < rule.count && rule.seen.insert((rule.period)(&time)) {
                    reasons.push(rule.name);
                }
            }
            if oldest.as_ref().is_some_and(|oldest| time >= *oldest) {
                reasons.push("within");
            }
            if self.policy.tags.iter().any(|list| has_tags(&named.snapshot.tags, list)) {
                reasons.push("tag");
            }
            if verdicts.best.contains(&named.id) {
                reasons.push("best");
            }
            if verdicts.is_unranked {
                reasons.push("unranked");
            }
            retained.push(RetainedSnapshot { snapshot: named, reasons });
        }
        Ok(retained)
    }
}

/// Deletes snapshots. One that the store or other bytes under its name protect is in the way of no other one.
///
/// # Errors
/// [`Error::Unreadable`] if all that there is of another blob lies under the name of a snapshot, which stays. Errors of
/// the store.
pub fn forget(repository: &Repository, ids: &[SnapshotId]) -> Result<()> {
    check_writable(repository)?;
    // Snapshots that are back are not gone, whoever deletes them now.
    vanished::count_or_warn(repository);
    let store = repository.store.as_ref();
    let checked = map_parallel(store.requests_max(), ids, |id| check_deletable(repository, id));
    let (mut deleted, mut first) = (Vec::with_capacity(ids.len()), Ok(()));
    for (name, checked) in ids.iter().map(snapshot::blob_name).zip(checked) {
        match checked.and_then(|()| store.delete(&name, Durable::AfterSync)) {
            Ok(()) => deleted.push(name),
            Err(error) => {
                let is_its_own = error.is_refused() || error.kind() == ErrorKind::Damaged;
                first = first.and(Err(error));
                if !is_its_own {
                    break;
                }
            }
        }
    }
    let synced = store.sync_deletions(&deleted);
    snapshot_listing::forget_all(repository);
    first.and(synced)
}

#[cfg(test)]
#[path = "forget_model_tests.rs"]
mod model_tests;
#[cfg(test)]
#[path = "forget_tests.rs"]
mod tests;
