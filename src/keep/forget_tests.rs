//! Keep rules by example, and against a slow model that is right by its looks.

use jiff::civil::date;

use super::*;
use crate::repo::clock::check_clock;
use crate::repo::snapshot::Snapshot;

/// A snapshot at a time of 2024, in UTC.
fn snapshot(month: i8, day: i8, hour: i8, host: &str, tags: &[&str]) -> NamedSnapshot {
    let time = date(2024, month, day).at(hour, 30, 0, 0).to_zoned(TimeZone::UTC).unwrap();
    let snapshot = Snapshot {
        time_ns: time.timestamp().as_nanosecond() as i64,
        host: host.into(),
        paths: vec![b"/a".to_vec().into()],
        tags: tags.iter().map(ToString::to_string).collect(),
        ..Snapshot::default()
    };
    NamedSnapshot { id: SnapshotId([month as u8 * 32 + day as u8 + hour as u8; 32]), snapshot }
}

/// Month, day and hour of what stays in each group, latest first, with the reasons.
fn retained(snapshots: &[NamedSnapshot], policy: &ForgetPolicy) -> Vec<Vec<(String, String)>> {
    let text = |retained: &RetainedSnapshot| {
        let time = Timestamp::from_nanosecond(i128::from(retained.snapshot.snapshot.time_ns)).unwrap();
        (time.strftime("%m-%d %H").to_string(), retained.reasons.join(" "))
    };
    let groups = plan_forget(snapshots, policy, &TimeZone::UTC, i64::MAX).unwrap().groups;
    let stays = |group: &ForgetGroup| {
        group.snapshots.iter().filter(|retained| !retained.reasons.is_empty()).map(text).collect()
    };
    groups.iter().map(stays).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(time, reasons)| (time.to_string(), reasons.to_string())).collect()
}

#[test]
fn each_period_keeps_its_latest_snapshot() {
    let times = [(1, 1, 5), (1, 31, 1), (1, 31, 2), (2, 1, 1), (2, 1, 23), (2, 2, 0), (2, 2, 1), (2, 2, 1)];
    let numbered = times.iter().zip(0..).map(|((month, day, hour), number)| NamedSnapshot {
        id: SnapshotId([number; 32]),
        ..snapshot(*month, *day, *hour, "h", &[])
    });
    let snapshots: Vec<_> = numbered.collect();
    let daily = ForgetPolicy { daily: 3, ..ForgetPolicy::default() };
    let expected = pairs(&[("02-02 01", "daily"), ("02-01 23", "daily"), ("01-31 02", "daily")]);
    assert_eq!(retained(&snapshots, &daily), [expected]);
    let mixed = ForgetPolicy { last: 1, hourly: 2, monthly: 5, yearly: 1, ..ForgetPolicy::default() };
    let expected =
        pairs(&[("02-02 01", "last hourly monthly yearly"), ("02-02 00", "hourly"), ("01-31 02", "monthly")]);
    assert_eq!(retained(&snapshots, &mixed), [expected]);
    // 31 January to 2 February 2024 are Wednesday to Friday of one week; 1 January is a Monday.
    let weekly = ForgetPolicy { weekly: 9, ..ForgetPolicy::default() };
    assert_eq!(retained(&snapshots, &weekly), [pairs(&[("02-02 01", "weekly"), ("01-01 05", "weekly")])]);
    assert!(retained(&snapshots, &ForgetPolicy::default()).is_empty());
}

#[test]
fn within_counts_from_the_latest_and_tags_keep() {
    let snapshots = [
        snapshot(1, 1, 0, "h", &["release"]),
        snapshot(1, 2, 0, "h", &[]),
        snapshot(2, 1, 0, "h", &["x"]),
        snapshot(2, 2, 0, "h", &[]),
    ];
    let policy =
        ForgetPolicy { within: Some("1d".parse().unwrap()), tags: vec!["release".into()], ..Default::default() };
    let expected = pairs(&[("02-02 00", "within"), ("02-01 00", "within"), ("01-01 00", "tag")]);
    assert_eq!(retained(&snapshots, &policy), [expected]);
    let month = ForgetPolicy { within: Some("1mo".parse().unwrap()), ..Default::default() };
    assert_eq!(retained(&snapshots, &month)[0].len(), 3);
}

#[test]
fn groups_are_kept_apart() {
    let snapshots = [
        snapshot(1, 1, 0, "one", &["x", "y"]),
        snapshot(1, 2, 0, "two", &["y", "x"]),
        snapshot(1, 3, 0, "one", &["x", "y"]),
    ];
    let policy =
        |group_by: &str| ForgetPolicy { last: 1, group_by: group_by.parse().unwrap(), ..ForgetPolicy::default() };
    assert_eq!(retained(&snapshots, &policy("host,paths")).len(), 2);
    assert_eq!(retained(&snapshots, &policy("tags")), [pairs(&[("01-03 00", "last")])]);
    assert_eq!(retained(&snapshots, &policy("")), [pairs(&[("01-03 00", "last")])]);
}

/// A step of a run, saved in January 2024, with its loss.
fn step(day: i8, run: &str, step: u64, loss: f64) -> NamedSnapshot {
    let mut named = snapshot(1, day, 0, "h", &[]);
    let metrics = BTreeMap::from([("loss".to_string(), loss)]);
    Checkpoint { run: run.into(), step, metrics }.attach(&mut named.snapshot.extra).unwrap();
    named
}

fn planned(snapshots: &[NamedSnapshot], policy: &ForgetPolicy, now: i64) -> Result<ForgetPlan> {
    plan_forget(snapshots, policy, &TimeZone::UTC, now)
}

fn deleted(plan: &ForgetPlan) -> Vec<SnapshotId> {
    plan.groups.iter().flat_map(ForgetGroup::deleted).collect()
}

#[test]
fn rules_that_would_empty_a_group_delete_nothing() {
    let snapshots = [snapshot(1, 1, 0, "one", &["x"]), snapshot(1, 2, 0, "two", &["y"]), snapshot(1, 3, 0, "one", &[])];
    let mut policy = ForgetPolicy { tags: vec!["x".into()], group_by: "host".parse().unwrap(), ..Default::default() };
    let error = planned(&snapshots, &policy, i64::MAX).unwrap_err().to_string();
    assert!(
        error.contains("host two") && !error.contains("host one") && error.contains("--allow-empty-group"),
        "{error}"
    );
    policy.allow_empty_group = true;
    assert_eq!(deleted(&planned(&snapshots, &policy, i64::MAX).unwrap()).len(), 2);
    policy.allow_empty_group = false;
    let with_last = ForgetPolicy { last: 1, ..policy.clone() };
    assert_eq!(deleted(&planned(&snapshots, &with_last, i64::MAX).unwrap()), []);
    // A snapshot that only stays because it is from the future does not make a group whole.
    let with_future = [&snapshots[..], &[snapshot(7, 1, 0, "two", &[])]].concat();
    let now = snapshots[2].snapshot.time_ns;
    assert!(planned(&with_future, &policy, now).unwrap_err().to_string().contains("host two"));
    assert!(planned(&with_future[3..], &policy, now).is_ok(), "nothing else is there");
}

#[test]
fn a_snapshot_from_the_future_stays_and_counts_for_no_rule() {
    let snapshots = [(1, 1), (1, 20), (2, 1), (2, 2), (7, 1)].map(|(month, day)| snapshot(month, day, 0, "h", &[]));
    let now = snapshots[3].snapshot.time_ns + 3600 * 1_000_000_000;
    let reasons = |policy: &ForgetPolicy, now: i64| {
        let plan = planned(&snapshots, policy, now).unwrap();
        plan.groups[0].snapshots.iter().rev().map(|retained| retained.reasons.join(" ")).collect::<Vec<_>>()
    };
    let policy = ForgetPolicy { last: 1, daily: 2, within: Some("14d".parse().unwrap()), ..Default::default() };
    assert_eq!(reasons(&policy, now), ["", "within", "daily within", "last daily within", "future"]);
    // A clock of 1970 decides about nothing, and one of 2262 about all.
    assert_eq!(reasons(&policy, 0), ["future"; 5]);
    assert_eq!(reasons(&policy, i64::MAX), ["", "", "", "daily", "last daily within"]);
}

#[test]
fn nightly_forgets_with_a_clock_that_jumps_lose_nothing_of_a_right_clock() {
    const DAY_NS: i64 = 86_400 * 1_000_000_000;
    let policy = ForgetPolicy { last: 3, within: Some("7d".parse().unwrap()), ..Default::default() };
    let mut deleted_count = 0;
    for seed in 1..200u64 {
        let (mut all, mut right): (Vec<NamedSnapshot>, Vec<SnapshotId>) = (Vec::new(), Vec::new());
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for day in 0..60u8 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let today = (20_000 + i64::from(day)) * DAY_NS;
            let clock = match state >> 57 {
                0..10 => i64::from(day) * 1_000_000_000,
                10 => 47_000 * DAY_NS + i64::from(day),
                _ => today,
            };
            let snapshot = Snapshot { time_ns: clock, ..snapshot(1, 1, 0, "h", &[]).snapshot };
            all.push(NamedSnapshot { id: SnapshotId([day; 32]), snapshot });
            all.sort_by_key(|named| (named.snapshot.time_ns, named.id));
            if clock == today {
                right.push(SnapshotId([day; 32]));
            }
            // A machine whose clock is years later cannot know that, so another one forgets.
            let now = clock.min(today);
            if check_clock(&all, now).is_ok() {
                let deleted = deleted(&planned(&all, &policy, now).unwrap());
                right.iter().rev().take(3).for_each(|id| assert!(!deleted.contains(id), "seed {seed}, day {day}"));
                all.retain(|named| !deleted.contains(&named.id));
                right.retain(|id| !deleted.contains(id));
                deleted_count += deleted.len();
            }
        }
    }
    assert!(deleted_count > 5_000, "{deleted_count}");
}

#[test]
fn runs_are_left_alone_unless_a_rule_names_them() {
    let mut snapshots = vec![
        step(1, "a", 10, 0.5),
        step(2, "a", 20, 0.1),
        step(3, "a", 30, f64::NAN),
        step(4, "a", 40, 0.3),
        step(5, "b", 10, 0.7),
        snapshot(1, 6, 0, "h", &[]),
        step(7, "a", 10, 0.2),
        snapshot(1, 8, 0, "h", &[]),
    ];
    let days_deleted = |snapshots: &[NamedSnapshot], policy: &ForgetPolicy| {
        let plan = planned(snapshots, policy, i64::MAX).unwrap();
        let mut days: Vec<u8> = deleted(&plan).iter().map(|id| id.0[0] - 32).collect();
        days.sort_unstable();
        (days, plan.runs_left)
    };
    let best = |rule: &str| ForgetPolicy { best: vec![rule.parse().unwrap()], ..Default::default() };
    let last = ForgetPolicy { last: 1, ..Default::default() };
    assert_eq!(days_deleted(&snapshots, &last), (vec![6], 6));
    // The step 10 that was saved again counts with its last snapshot.
    assert_eq!(days_deleted(&snapshots, &best("loss:min")), (vec![1, 3, 4, 7], 0), "nothing but steps");
    assert_eq!(days_deleted(&snapshots, &best("loss:max:2")), (vec![1, 2, 3], 0));
    assert_eq!(days_deleted(&snapshots, &best("los:min")), (vec![], 0), "no step has the metric, so all stay");
    let both = ForgetPolicy { last: 1, ..best("loss:min") };
    assert_eq!(days_deleted(&snapshots, &both), (vec![1, 3, 6, 7], 0), "the highest step, not the last snapshot");
    let some = ForgetPolicy { runs: Some("b*".parse().unwrap()), ..both };
    assert_eq!(days_deleted(&snapshots, &some), (vec![], 5));
    let all = ForgetPolicy { runs: Some("*".parse().unwrap()), ..last.clone() };
    assert_eq!(days_deleted(&snapshots, &all), (vec![1, 2, 3, 7], 0));
    // A checkpoint that cannot be read belongs to a run as well.
    snapshots[5].snapshot.extra.insert(checkpoint::KEY.into(), b"newer".to_vec().into());
    let none = (vec![], 7);
    assert_eq!((days_deleted(&snapshots, &last), days_deleted(&snapshots, &all)), (none, (vec![1, 2, 3, 7], 1)));
}

#[test]
fn a_step_in_several_snapshots_stays_whole_or_goes() {
    let beside = |day, number| {
        let mut named = step(day, "a", number, f64::NAN);
        named.snapshot.tags = vec!["fsspec".into()];
        named
    };
    let snapshots = [
        step(1, "a", 10, 0.5),
        step(2, "a", 20, 0.1),
        beside(3, 10),
        step(4, "a", 10, 0.4),
        beside(5, 20),
        beside(6, 10),
        step(7, "a", 30, 0.3),
    ];
    let days_deleted = |policy: ForgetPolicy| {
        let policy = ForgetPolicy { runs: Some("*".parse().unwrap()), ..policy };
        let plan = planned(&snapshots, &policy, i64::MAX).unwrap();
        let mut days: Vec<u8> = deleted(&plan).iter().map(|id| id.0[0] - 32).collect();
        days.sort_unstable();
        days
    };
    // What was saved again goes, and all of a step that no rule keeps.
    assert_eq!(days_deleted(ForgetPolicy { last: 3, ..Default::default() }), [1]);
    assert_eq!(days_deleted(ForgetPolicy { last: 2, ..Default::default() }), [1, 3, 4, 6]);
    assert_eq!(days_deleted(ForgetPolicy { last: 1, ..Default::default() }), [1, 2, 3, 4, 5, 6]);
    assert_eq!(
        days_deleted(ForgetPolicy { best: vec!["loss:min".parse().unwrap()], ..Default::default() }),
        [1, 3, 4, 6, 7]
    );
    // The last two days have a file of one step, and another step.
    assert_eq!(days_deleted(ForgetPolicy { daily: 2, ..Default::default() }), [1, 2, 5]);
}
