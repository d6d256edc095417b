//! Keep rules against a slow model: for each snapshot alone it asks how many others are in its way.

use std::collections::{BTreeMap, BTreeSet};

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};

use super::{BestRule, ForgetPolicy, plan_forget};
use crate::repo::checkpoint::{BestMode, Checkpoint, KEY};
use crate::repo::clock::TOLERANCE_NS;
use crate::repo::snapshot::{NamedSnapshot, Snapshot};
use crate::repo::snapshot_groups::{GroupBy, GroupField};
use crate::types::SnapshotId;

const SECOND: i64 = 1_000_000_000;
/// Zones with winter and summer time, also where the clock returns to the day before, and where halves count.
const ZONES: [&str; 5] = [
    "UTC0",
    "CET-1CEST,M3.5.0,M10.5.0/3",
    "EST5EDT,M3.2.0,M11.1.0",
    "NST3:30NDT,M3.2.0/0:01,M11.1.0/0:01",
    "<+1030>-10:30<+11>-11,M10.1.0,M4.1.0",
];

/// A generator of numbers, splitmix64.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: i64) -> i64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % limit as u64) as i64
    }

    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as i64) as usize].clone()
    }

    /// True once in `times`.
    fn once_in(&mut self, times: i64) -> bool {
        self.below(times) == 0
    }
}

/// Seconds of a moment of 2024.
fn at(text: &str) -> i64 {
    text.parse::<DateTime>().unwrap().to_zoned(TimeZone::UTC).unwrap().timestamp().as_second()
}

/// Snapshots at random times, many close to changes of the clock.
fn snapshots(numbers: &mut Numbers) -> Vec<NamedSnapshot> {
    let changes = ["2024-03-31T01:00", "2024-10-27T01:00", "2024-11-03T04:00", "2024-03-10T07:00", "2024-12-31T23:00"];
    let mut all: Vec<NamedSnapshot> = (0..numbers.below(40))
        .map(|number| {
            let seconds = match numbers.below(4) {
                0 => at("2022-01-01T00:00") + numbers.below(3 * 366 * 86_400),
                1 => at("2024-02-28T00:00") + numbers.below(3 * 86_400),
                _ => at(numbers.one(&changes)) + numbers.below(36 * 3600) - 18 * 3600,
            };
            let mut snapshot = Snapshot {
                time_ns: seconds * SECOND + numbers.below(3),
                host: numbers.one(&["one", "two"]).to_string(),
                paths: vec![numbers.one(&["/a", "/b"]).as_bytes().to_vec().into()],
                tags: ["x", "y", "x,y", "z"].iter().filter(|_| numbers.once_in(4)).map(ToString::to_string).collect(),
                ..Snapshot::default()
            };
            if numbers.once_in(2) {
                let loss = numbers.one(&[0.5, 0.25, 0.25, f64::NAN, f64::INFINITY, -0.0, 0.0, 7.0]);
                let metrics = BTreeMap::from([(numbers.one(&["loss", "loss", "acc"]).to_string(), loss)]);
                let run = numbers.one(&["tune/1", "tune/2", "base"]).to_string();
                let checkpoint = Checkpoint { run, step: numbers.below(8) as u64, metrics };
                checkpoint.attach(&mut snapshot.extra).unwrap();
                if numbers.once_in(12) {
                    snapshot.extra.insert(KEY.into(), b"of a newer program".to_vec().into());
                }
            }
            NamedSnapshot { id: SnapshotId([(number as u8).wrapping_mul(37); 32]), snapshot }
        })
        .collect();
    all.sort_by_key(|named| (named.snapshot.time_ns, named.id));
    all
}

fn policy(numbers: &mut Numbers) -> ForgetPolicy {
    // Some have few rules, which keep nothing of many groups.
    let rarely = numbers.one(&[1, 5]);
    let mut count = |times: i64| if numbers.once_in(times * rarely) { numbers.below(6) as u32 } else { 0 };
    let (last, hourly, daily, weekly) = (count(3), count(3), count(3), count(4));
    let (monthly, yearly) = (count(4), count(5));
    let spans = ["1d", "36h", "1w", "1mo", "1y2mo", "5mo 7d"];
    let best = ["loss:min", "loss:max:2", "acc:max:3", "other:min"];
    let fields = [vec![GroupField::Host, GroupField::Paths], vec![], vec![GroupField::Tags], vec![GroupField::Host]];
    ForgetPolicy {
        last,
        hourly,
        daily,
        weekly,
        monthly,
        yearly,
        within: numbers.once_in(3 * rarely).then(|| numbers.one(&spans).parse().unwrap()),
        tags: ["x", "x,y", "z,x", "", "none"].iter().filter(|_| numbers.once_in(9)).map(ToString::to_string).collect(),
        best: best.iter().filter(|_| numbers.once_in(6)).map(|rule| rule.parse().unwrap()).collect(),
        runs: numbers.once_in(3).then(|| numbers.one(&["*", "tune/*", "base"]).parse().unwrap()),
        group_by: GroupBy(numbers.one(&fields)),
        allow_empty_group: numbers.once_in(2),
    }
}

/// What is asked about one snapshot among those of its group that are not from the future.
struct Model<'a> {
    policy: &'a ForgetPolicy,
    zone: &'a TimeZone,
    group: Vec<&'a NamedSnapshot>,
    is_run: bool,
}

fn rank(named: &NamedSnapshot) -> (i64, SnapshotId) {
    (named.snapshot.time_ns, named.id)
}

impl Model<'_> {
    fn label(&self, named: &NamedSnapshot, format: &str) -> String {
        let time = Timestamp::from_nanosecond(i128::from(named.snapshot.time_ns)).unwrap();
        time.to_zoned(self.zone.clone()).strftime(format).to_string()
    }

    /// Whether the snapshot is the last one of its period, and fewer than `count` periods have a later last one.
    fn keeps_period(&self, named: &NamedSnapshot, format: &str, count: u32) -> bool {
        let own = self.label(named, format);
        let is_last = |of: &NamedSnapshot, label: &str| {
            self.group.iter().all(|other| self.label(other, format) != label || rank(other) <= rank(of))
        };
        let later =
            self.group.iter().filter(|other| rank(other) > rank(named) && is_last(other, &self.label(other, format)));
        is_last(named, &own) && later.count() < count as usize
    }

    /// The steps of a run, each by its last snapshot.
    fn steps(&self) -> Vec<(u64, &NamedSnapshot)> {
        let step = |named: &NamedSnapshot| Checkpoint::of(&named.snapshot).unwrap().step;
        let is_last =
            |of: &NamedSnapshot| self.group.iter().all(|other| step(other) != step(of) || rank(other) <= rank(of));
        self.group.iter().filter(|named| is_last(named)).map(|named| (step(named), *named)).collect()
    }

    fn keeps_last(&self, named: &NamedSnapshot) -> bool {
        let count = self.policy.last as usize;
        if !self.is_run {
            return self.group.iter().filter(|other| rank(other) > rank(named)).count() < count;
        }
        let steps = self.steps();
        let Some((own, _)) = steps.iter().find(|(_, step)| step.id == named.id) else { return false };
        steps.iter().filter(|(step, _)| step > own).count() < count
    }

    fn keeps_within(&self, named: &NamedSnapshot, span: Span) -> bool {
        let latest = self.group.iter().map(|named| named.snapshot.time_ns).max().unwrap();
        let latest = Timestamp::from_nanosecond(i128::from(latest)).unwrap().to_zoned(self.zone.clone());
        // Years to days by the calendar, then hours by the clock.
        let days = Span::new().years(span.get_years()).months(span.get_months());
        let days = days.weeks(span.get_weeks()).days(span.get_days());
        let moved = latest.datetime().checked_sub(days).unwrap();
        let moved =
            if moved == latest.datetime() { latest } else { self.zone.to_ambiguous_zoned(moved).compatible().unwrap() };
        let oldest = moved.timestamp().as_nanosecond() - i128::from(span.get_hours()) * 3600 * i128::from(SECOND);
        i128::from(named.snapshot.time_ns) >= oldest
    }

    fn keeps_tag(&self, named: &NamedSnapshot) -> bool {
        let own: BTreeSet<&str> = named.snapshot.tags.iter().map(String::as_str).collect();
        self.policy.tags.iter().any(|list| match list.as_str() {
            "" => own.is_empty(),
            list => own.contains(list) || list.split(',').collect::<BTreeSet<_>>().is_subset(&own),
        })
    }

    fn keeps_best(&self, named: &NamedSnapshot, rule: &BestRule) -> bool {
        let value = |named: &NamedSnapshot| {
            let value = Checkpoint::of(&named.snapshot).unwrap().metrics.get(&rule.metric).copied();
            let sign = if rule.mode == BestMode::Min { 1.0 } else { -1.0 };
            value.filter(|value| !value.is_nan()).map(|value| value * sign)
        };
        let numbered: Vec<(u64, f64, SnapshotId)> =
            self.steps().iter().filter_map(|(step, named)| Some((*step, value(named)?, named.id))).collect();
        if numbered.is_empty() {
            return true;
        }
        let Some((step, own, _)) = numbered.iter().find(|(_, _, id)| *id == named.id) else { return false };
        let better = numbered.iter().filter(|(other, value, _)| value < own || (value == own && other < step));
        better.count() < rule.count
    }

    fn keeps(&self, named: &NamedSnapshot) -> bool {
        let policy = self.policy;
        let periods = [
            ("%Y-%m-%d %H", policy.hourly),
            ("%Y-%m-%d", policy.daily),
            ("%G-%V", policy.weekly),
            ("%Y-%m", policy.monthly),
            ("%Y", policy.yearly),
        ];
        self.keeps_last(named)
            || periods.iter().any(|(format, count)| self.keeps_period(named, format, *count))
            || policy.within.is_some_and(|span| self.keeps_within(named, span))
            || self.keeps_tag(named)
            || (self.is_run && policy.best.iter().any(|rule| self.keeps_best(named, rule)))
    }
}

/// Name of the group that decides about a snapshot, if one does.
fn group_of(named: &NamedSnapshot, policy: &ForgetPolicy) -> Option<(bool, String)> {
    if named.snapshot.extra.contains_key(KEY) {
        let run = Checkpoint::of(&named.snapshot)?.run;
        let is_meant = match &policy.runs {
            Some(pattern) => pattern.matches(&run),
            None => !policy.best.is_empty(),
        };
        return is_meant.then_some((true, run));
    }
    let counts = policy.last + policy.hourly + policy.daily + policy.weekly + policy.monthly + policy.yearly;
    let has_rule = counts > 0 || policy.within.is_some() || !policy.tags.is_empty();
    let tags: BTreeSet<&String> = named.snapshot.tags.iter().collect();
    let value = |field: &GroupField| match field {
        GroupField::Host => format!("{}\n", named.snapshot.host),
        GroupField::Paths => format!("{:?}\n", named.snapshot.paths),
        GroupField::Tags => format!("{tags:?}\n"),
    };
    (has_rule && policy.runs.is_none()).then(|| (false, policy.group_by.0.iter().map(value).collect()))
}

/// What is deleted; nothing if the rules must be refused.
fn expected(
    all: &[NamedSnapshot],
    policy: &ForgetPolicy,
    zone: &TimeZone,
    now_ns: i64,
) -> Option<BTreeSet<SnapshotId>> {
    let mut groups: BTreeMap<(bool, String), Vec<&NamedSnapshot>> = BTreeMap::new();
    for named in
        all.iter().filter(|named| i128::from(named.snapshot.time_ns) <= i128::from(now_ns) + i128::from(TOLERANCE_NS))
    {
        if let Some(group) = group_of(named, policy) {
            groups.entry(group).or_default().push(named);
        }
    }
    let mut deleted = BTreeSet::new();
    for ((is_run, _), group) in groups {
        let model = Model { policy, zone, group, is_run };
        let lost: Vec<SnapshotId> =
            model.group.iter().filter(|named| !model.keeps(named)).map(|named| named.id).collect();
        if lost.len() == model.group.len() && !policy.allow_empty_group {
            return None;
        }
        deleted.extend(lost);
    }
    Some(deleted)
}

#[test]
fn rules_decide_as_a_slow_model_does() {
    let (mut refused, mut deleted_count, mut runs_left, mut future) = (0, 0, 0, 0);
    for seed in 0..2_000 {
        let mut numbers = Numbers(seed);
        let (all, policy) = (snapshots(&mut numbers), policy(&mut numbers));
        let zone = TimeZone::posix(numbers.one(&ZONES)).unwrap();
        let now = numbers.one(&[
            "1970-01-01T00:00",
            "2024-03-31T01:00",
            "2024-10-27T01:00",
            "2025-06-01T00:00",
            "2099-01-01T00:00",
        ]);
        let now_ns = at(now) * SECOND;
        let planned = plan_forget(&all, &policy, &zone, now_ns);
        let wanted = expected(&all, &policy, &zone, now_ns);
        let context = format!("seed {seed}: {policy:?}\n{all:#?}");
        match (&planned, &wanted) {
            (Err(error), None) => {
                assert!(error.to_string().contains("--allow-empty-group"), "{error}");
                refused += 1;
            }
            (Ok(plan), Some(wanted)) => {
                let deleted: BTreeSet<SnapshotId> = plan.groups.iter().flat_map(|group| group.deleted()).collect();
                assert_eq!(&deleted, wanted, "{context}");
                let left = |named: &&NamedSnapshot| {
                    named.snapshot.extra.contains_key(KEY) && group_of(named, &policy).is_none()
                };
                assert_eq!(plan.runs_left, all.iter().filter(left).count(), "{context}");
                deleted_count += deleted.len();
                runs_left += plan.runs_left;
                let shown = plan.groups.iter().flat_map(|group| &group.snapshots);
                future += shown.filter(|retained| retained.reasons == ["future"]).count();
            }
            _ => panic!("{context}\n{planned:?}\n{wanted:?}"),
        }
    }
    assert!(refused > 50 && deleted_count > 2_000, "{refused} {deleted_count}");
    assert!(runs_left > 2_000 && future > 1_000, "{runs_left} {future}");
}
