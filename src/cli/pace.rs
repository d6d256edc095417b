//! The speed of a run and the time that is left, from the last half minute.
//!
//! Work comes at different speeds: files that are skipped, data that is stored already, data that compresses badly. So
//! the mean since the start says little about the rest, and the last second even less.

use std::collections::VecDeque;
use std::time::Duration;

/// The speed is the mean over this time.
const WINDOW: Duration = Duration::from_secs(30);
/// Before this time the speed is not known well enough for a time left.
const WARM_UP: Duration = Duration::from_secs(3);
/// Samples closer than this are not kept.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(500);

/// What was done at which time.
#[derive(Debug, Default)]
pub struct Pace {
    /// Time since the start and amount until then, ascending. One sample is as old as the window, or older.
    samples: VecDeque<(Duration, u64)>,
    now: (Duration, u64),
}

impl Pace {
    /// Records that `done` was done `at` this time after the start. Times must ascend.
    pub fn record(&mut self, at: Duration, done: u64) {
        self.now = (at, done);
        if self.samples.is_empty() {
            self.samples.push_back((Duration::ZERO, 0));
        }
        if self.samples.back().is_none_or(|last| at >= last.0 + SAMPLE_INTERVAL) {
            self.samples.push_back(self.now);
        }
        while self.samples.get(1).is_some_and(|second| second.0 + WINDOW <= at) {
            self.samples.pop_front();
        }
    }

    /// Amount per second.
    pub fn rate(&self) -> f64 {
        let (from, before) = self.samples.front().copied().unwrap_or_default();
        let seconds = self.now.0.saturating_sub(from).as_secs_f64();
        if seconds > 0.0 { self.now.1.saturating_sub(before) as f64 / seconds } else { 0.0 }
    }

    /// Time until `total` is done at this speed. `None` as long as nobody can know.
    pub fn left(&self, total: u64) -> Option<Duration> {
        let rate = self.rate();
        if self.now.0 < WARM_UP || rate <= 0.0 {
            return None;
        }
        Duration::try_from_secs_f64(total.saturating_sub(self.now.1) as f64 / rate).ok()
    }
}

/// A duration in its two largest units, such as `2 h 05 min`.
pub fn rounded(duration: Duration) -> String {
    let seconds = duration.as_secs() + u64::from(duration.subsec_millis() >= 500);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {:02} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_speed_follows_the_last_half_minute() {
        let mut pace = Pace::default();
        // A minute at 100 a second, then slow work at 10 a second.
        for second in 0..=60 {
            pace.record(seconds(second), second * 100);
        }
        assert_eq!((pace.rate().round(), pace.left(7000)), (100.0, Some(seconds(10))));
        for second in 61..=95 {
            pace.record(seconds(second), 6000 + (second - 60) * 10);
        }
        assert_eq!((pace.rate().round(), pace.left(6350 + 100)), (10.0, Some(seconds(10))));
        assert!(pace.samples.len() < 70, "{}", pace.samples.len());
    }

    #[test]
    fn no_time_is_left_to_tell_before_the_speed_is_known() {
        let mut pace = Pace::default();
        assert_eq!((pace.rate(), pace.left(100)), (0.0, None));
        pace.record(seconds(1), 10);
        assert_eq!((pace.rate(), pace.left(100)), (10.0, None));
        pace.record(seconds(4), 40);
        assert_eq!(pace.left(100), Some(seconds(6)));
        assert_eq!(pace.left(5), Some(seconds(0)));
        for second in 5..60 {
            pace.record(seconds(second), 40);
        }
        assert_eq!(pace.left(100), None, "nothing moves");
    }

    #[test]
    fn durations_have_two_units() {
        let shown = [0, 59, 60, 3_599, 3_600, 90_061, 1_000_000].map(|number| rounded(seconds(number)));
        assert_eq!(shown, ["0 s", "59 s", "1 min 00 s", "59 min 59 s", "1 h 00 min", "1 d 01 h", "11 d 13 h"]);
        assert_eq!(rounded(Duration::from_millis(59_700)), "1 min 00 s");
    }
}
