//! Forget: chooses by rules which snapshots stay, and deletes the others.
//!
//! Snapshots are grouped, by host and paths unless said otherwise. In each group the rules look at the snapshots from
//! the latest to the oldest. A rule for a period keeps the latest snapshot of each of the last n periods that have one,
//! by the calendar of the given time zone. A snapshot stays if any rule keeps it. Snapshots that their backup has not
//! reported yet count for no rule and are never deleted.

use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, Zoned};

use crate::error::{Error, Result};
use crate::repo::Repository;
use crate::repo::marks::check_writable;
use crate::repo::snapshot::{self, NamedSnapshot};
use crate::repo::snapshot_groups::{GroupBy, GroupValues, grouped};
use crate::types::SnapshotId;

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
    /// Keep snapshots with any of these tags.
    pub tags: Vec<String>,
    /// What the snapshots of a group have in common.
    pub group_by: GroupBy,
}

impl ForgetPolicy {
    /// Whether it has no rule.
    pub fn is_empty(&self) -> bool {
        let counts = [self.last, self.hourly, self.daily, self.weekly, self.monthly, self.yearly];
        counts.iter().all(|count| *count == 0) && self.within.is_none() && self.tags.is_empty()
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
    /// Its snapshots.
    pub snapshots: Vec<RetainedSnapshot>,
}

impl ForgetGroup {
    /// The snapshots that no rule keeps.
    pub fn deleted(&self) -> impl Iterator<Item = SnapshotId> {
        self.snapshots.iter().filter(|retained| retained.reasons.is_empty()).map(|retained| retained.snapshot.id)
    }
}

/// Keeps the latest snapshot of each of the last `left` periods.
struct PeriodRule {
    name: &'static str,
    left: u32,
    period: fn(&Zoned) -> (i16, i16, i16),
    last: Option<(i16, i16, i16)>,
}

fn day_of(time: &Zoned) -> (i16, i16, i16) {
    (time.year(), time.day_of_year(), 0)
}

fn rules(policy: &ForgetPolicy) -> Vec<PeriodRule> {
    let rule = |name, left, period| PeriodRule { name, left, period, last: None };
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

/// Decides for `snapshots`, oldest first, which stay.
///
/// # Errors
/// [`Error::Usage`] for a time span or a time of a snapshot that the calendar does not reach.
pub fn plan_forget(snapshots: &[NamedSnapshot], policy: &ForgetPolicy, zone: &TimeZone) -> Result<Vec<ForgetGroup>> {
    let latest_first = snapshots.iter().rev().cloned().collect();
    let group = |(values, snapshots): (GroupValues, Vec<NamedSnapshot>)| {
        Ok(ForgetGroup { values, snapshots: decide(snapshots, policy, zone)? })
    };
    grouped(latest_first, &policy.group_by).into_iter().map(group).collect()
}

/// Applies the rules to the snapshots of a group, latest first.
fn decide(snapshots: Vec<NamedSnapshot>, policy: &ForgetPolicy, zone: &TimeZone) -> Result<Vec<RetainedSnapshot>> {
    let time_of = |named: &NamedSnapshot| {
        let time = Timestamp::from_nanosecond(i128::from(named.snapshot.time_ns));
        let time = time.map_err(|error| Error::Usage(format!("time of snapshot {}: {error}", named.id)))?;
        Ok::<Zoned, Error>(time.to_zoned(zone.clone()))
    };
    let oldest = match (&policy.within, snapshots.first()) {
        (Some(span), Some(latest)) => {
            let oldest = time_of(latest)?.checked_sub(*span);
            Some(oldest.map_err(|error| Error::Usage(format!("the time span {span} cannot be counted: {error}")))?)
        }
        _ => None,
    };
    let (mut rules, mut last, mut retained) = (rules(policy), policy.last, Vec::with_capacity(snapshots.len()));
    for named in snapshots {
        let (time, mut reasons) = (time_of(&named)?, Vec::new());
        if last > 0 {
            last -= 1;
            reasons.push("last");
        }
        for rule in &mut rules {
            let period = (rule.period)(&time);
            if rule.left > 0 && rule.last != Some(period) {
                (rule.left, rule.last) = (rule.left - 1, Some(period));
                reasons.push(rule.name);
            }
        }
        if oldest.as_ref().is_some_and(|oldest| time >= *oldest) {
            reasons.push("within");
        }
        if named.snapshot.tags.iter().any(|tag| policy.tags.contains(tag)) {
            reasons.push("tag");
        }
        retained.push(RetainedSnapshot { snapshot: named, reasons });
    }
    Ok(retained)
}

/// Deletes snapshots.
///
/// # Errors
/// Those of the store.
pub fn forget(repository: &Repository, ids: &[SnapshotId]) -> Result<()> {
    check_writable(repository)?;
    ids.iter().try_for_each(|id| snapshot::delete(repository.store.as_ref(), id))
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;
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
        let groups = plan_forget(snapshots, policy, &TimeZone::UTC).unwrap();
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
        let snapshots: Vec<_> =
            times.iter().map(|(month, day, hour)| snapshot(*month, *day, *hour, "h", &[])).collect();
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
        assert!(retained(&snapshots, &ForgetPolicy::default())[0].is_empty());
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
}
