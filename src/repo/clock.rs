//! The clock of this machine, and snapshots from the future.
//!
//! A snapshot is *from the future* if its time is later than now by more than [`TOLERANCE_NS`]. Clocks of machines
//! differ by seconds or a few minutes; more than that means that a clock is wrong, or was wrong when the snapshot was
//! made. Such a snapshot stays the last one for years, so it is `latest` only if there is no other, no rule deletes it,
//! and it counts for no rule.

use crate::error::{Error, Result};
use crate::repo::snapshot::{NamedSnapshot, Snapshot};
use crate::types::hex;

/// How much later than now a snapshot may be: five minutes.
pub const TOLERANCE_NS: i64 = 300 * 1_000_000_000;
/// Snapshots that a message names, at most.
const SHOWN_MAX: usize = 4;

/// Tells the time: that of this machine, or a fixed one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Clock(Option<i64>);

impl Clock {
    /// A clock that stands still at `time_ns`, nanoseconds since 1970.
    pub fn at(time_ns: i64) -> Self {
        Clock(Some(time_ns))
    }

    /// Nanoseconds since 1970.
    pub fn now_ns(self) -> i64 {
        self.0.unwrap_or_else(|| i64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX))
    }
}

/// Whether a time is so much later than now that it is from the future.
pub fn is_future(time_ns: i64, now_ns: i64) -> bool {
    time_ns > now_ns.saturating_add(TOLERANCE_NS)
}

impl Snapshot {
    /// Whether its time is from the future.
    pub fn is_future(&self, now_ns: i64) -> bool {
        is_future(self.time_ns, now_ns)
    }
}

/// The snapshots, which are in some order, with those from the future first. The last one is then `latest`.
pub fn future_first<T>(snapshots: Vec<T>, is_future: impl Fn(&T) -> bool) -> Vec<T> {
    let (mut ordered, others): (Vec<T>, Vec<T>) = snapshots.into_iter().partition(is_future);
    ordered.extend(others);
    ordered
}

/// The last of some snapshots, oldest first, as `latest` names it: one from the future only if there is no other. A
/// warning names those that are skipped. A [published](crate::repo::published) one is never `latest`.
pub fn latest(mut snapshots: Vec<NamedSnapshot>, now_ns: i64) -> Option<NamedSnapshot> {
    snapshots.retain(|named| !named.snapshot.is_published());
    let is_present = |named: &NamedSnapshot| !named.snapshot.is_future(now_ns);
    let Some(at) = snapshots.iter().rposition(is_present) else { return snapshots.pop() };
    let skipped = snapshots.split_off(at + 1);
    if let Some(text) = describe_future(&skipped, now_ns) {
        tracing::warn!("{text}; `latest` is the last snapshot before it");
    }
    snapshots.pop()
}

/// Names the snapshots from the future, if there are any.
pub fn describe_future(snapshots: &[NamedSnapshot], now_ns: i64) -> Option<String> {
    let future: Vec<&NamedSnapshot> = snapshots.iter().filter(|named| named.snapshot.is_future(now_ns)).collect();
    let shown = |named: &&NamedSnapshot| {
        let (id, time) = (hex(named.id.0.get(..4).unwrap_or_default()), shown_time(named.snapshot.time_ns));
        format!("{id} of {} ({time})", named.snapshot.host.escape_debug())
    };
    let mut names: Vec<String> = future.iter().take(SHOWN_MAX).map(shown).collect();
    if future.len() > SHOWN_MAX {
        names.push("...".into());
    }
    let names = names.join(", ");
    match future.len() {
        0 => None,
        1 => Some(format!("snapshot {names} is from the future")),
        count => {
            let now = shown_time(now_ns);
            Some(format!("{count} snapshots are from the future: {names} (this machine says that it is {now})"))
        }
    }
}

/// Fails if the clock of this machine is not to be trusted: if more than one of the repository's snapshots is from the
/// future. One may come from a wrong clock elsewhere; several mean that this clock is behind, as far as one can tell.
///
/// # Errors
/// [`Error::Usage`], which names the snapshots.
pub fn check_clock(snapshots: &[NamedSnapshot], now_ns: i64) -> Result<()> {
    let future = snapshots.iter().filter(|named| named.snapshot.is_future(now_ns)).count();
    match describe_future(snapshots, now_ns).filter(|_| future > 1) {
        Some(text) => {
            Err(Error::Usage(format!("no rule deletes anything: {text}. Is the clock of this machine right?")))
        }
        None => Ok(()),
    }
}

/// A time as messages show it, in UTC.
pub fn shown_time(time_ns: i64) -> String {
    jiff::Timestamp::from_nanosecond(i128::from(time_ns))
        .map_or_else(|_| format!("{time_ns} ns since 1970"), |time| time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::SnapshotId;

    const NOW: i64 = 1_800_000_000_000_000_000;

    fn snapshots(ages_s: &[i64]) -> Vec<NamedSnapshot> {
        let snapshot = |age: &i64| {
            let snapshot = Snapshot { time_ns: NOW - age * 1_000_000_000, host: "h\n".into(), ..Snapshot::default() };
            NamedSnapshot { id: SnapshotId([*age as u8; 32]), snapshot }
        };
        ages_s.iter().map(snapshot).collect()
    }

    #[test]
    fn a_clock_may_differ_by_minutes_and_ends_of_time_do_not_overflow() {
        assert!(!is_future(NOW, NOW) && !is_future(NOW + TOLERANCE_NS, NOW) && is_future(NOW + TOLERANCE_NS + 1, NOW));
        assert!(!is_future(i64::MAX, i64::MAX) && !is_future(i64::MIN, i64::MAX) && is_future(i64::MAX, i64::MIN));
        assert_eq!((Clock::at(5).now_ns(), Clock::at(-5).now_ns()), (5, -5));
        assert!(Clock::default().now_ns() > NOW / 2);
        assert!(shown_time(i64::MAX).starts_with("2262") && shown_time(i64::MIN).starts_with("1677"));
    }

    #[test]
    fn latest_is_from_the_future_only_if_all_are() {
        let of =
            |ages: &[i64]| latest(snapshots(ages), NOW).map(|named| (NOW - named.snapshot.time_ns) / 1_000_000_000);
        assert_eq!(of(&[50, 40, -200, -4000, -5000]), Some(-200), "within the tolerance");
        assert_eq!(of(&[50, 40, -4000]), Some(40));
        assert_eq!(of(&[-4000, -5000]), Some(-5000));
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn one_snapshot_from_the_future_is_named_and_two_accuse_the_clock() {
        assert_eq!(describe_future(&snapshots(&[1, 2]), NOW), None);
        let one = snapshots(&[1, -4000]);
        let text = describe_future(&one, NOW).unwrap();
        assert!(text.contains("of h\\n (2027-01-15") && text.contains("is from the future"), "{text}");
        assert!(check_clock(&one, NOW).is_ok());
        // Callers go on behind it.
        assert!(!describe_future(&snapshots(&[-4000, -5000]), NOW).unwrap().ends_with(['.', '?']));
        let error = check_clock(&snapshots(&[1, -4000, -5000, -6000, -7000, -8000]), NOW).unwrap_err().to_string();
        assert!(
            error.contains("5 snapshots") && error.contains("...") && error.ends_with("clock of this machine right?"),
            "{error}"
        );
    }
}
