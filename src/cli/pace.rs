//! The speed of a run and the time that is left, from the last half minute.
//!
//! Work comes at different speeds: files that are skipped, data that is stored already, data that compresses badly. So
//! the mean since the start says little about the rest, and the last second even less. What is skipped is no speed: of
//! the rest, the same share as so far is expected to be read. Many small files take longer than a large one, so an
//! entry counts as some bytes.

use std::collections::VecDeque;
use std::time::Duration;

/// The speed is the mean over this time.
const WINDOW: Duration = Duration::from_secs(30);
/// Before this time the speed is not known well enough for a time left.
const WARM_UP: Duration = Duration::from_secs(3);
/// Samples closer than this are not kept.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(500);

/// Work on an entry beside its bytes, as bytes that take as long to read.
const ENTRY_BYTES: u64 = 16 << 10;

/// Amounts of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amounts {
    /// Entries.
    pub entries: u64,
    /// Bytes that were read or written.
    pub bytes: u64,
    /// Bytes that needed no reading.
    pub skipped: u64,
}

impl Amounts {
    /// The work that they took, in bytes. To skip a file is to look at its entry.
    fn work(self) -> u64 {
        self.bytes.saturating_add(self.entries.saturating_mul(ENTRY_BYTES))
    }
}

/// What was done at which time.
#[derive(Debug, Default)]
pub struct Pace {
    /// Time since the start and amounts until then, ascending. One sample is as old as the window, or older.
    samples: VecDeque<(Duration, Amounts)>,
    now: (Duration, Amounts),
}

impl Pace {
    /// Records that `done` was done `at` this time after the start. Times must ascend.
    pub fn record(&mut self, at: Duration, done: Amounts) {
        self.now = (at, done);
        if self.samples.is_empty() {
            self.samples.push_back((Duration::ZERO, Amounts::default()));
        }
        if self.samples.back().is_none_or(|last| at >= last.0 + SAMPLE_INTERVAL) {
            self.samples.push_back(self.now);
        }
        while self.samples.get(1).is_some_and(|second| second.0 + WINDOW <= at) {
            self.samples.pop_front();
        }
    }

    /// Amount of `of` per second.
    fn rate_of(&self, of: fn(Amounts) -> u64) -> f64 {
        let (from, before) = self.samples.front().copied().unwrap_or_default();
        let seconds = self.now.0.saturating_sub(from).as_secs_f64();
        if seconds > 0.0 { of(self.now.1).saturating_sub(of(before)) as f64 / seconds } else { 0.0 }
    }

    /// Bytes read or written per second.
    pub fn bytes_per_second(&self) -> f64 {
        self.rate_of(|amounts| amounts.bytes)
    }

    /// Time until so many entries and bytes are done at this speed, if as large a share of the rest must be read as of
    /// what is done. `None` as long as nobody can know.
    pub fn left(&self, entries: u64, bytes: u64) -> Option<Duration> {
        let (rate, done) = (self.rate_of(Amounts::work), self.now.1);
        if self.now.0 < WARM_UP || rate <= 0.0 {
            return None;
        }
        let bytes_done = done.bytes.saturating_add(done.skipped);
        let share = if bytes_done > 0 { done.bytes as f64 / bytes_done as f64 } else { 1.0 };
        let to_read = bytes.saturating_sub(bytes_done) as f64 * share;
        let to_look_at = entries.saturating_sub(done.entries).saturating_mul(ENTRY_BYTES) as f64;
        Duration::try_from_secs_f64((to_read + to_look_at) / rate).ok()
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

    fn bytes(bytes: u64) -> Amounts {
        Amounts { bytes, ..Amounts::default() }
    }

    #[test]
    fn the_speed_follows_the_last_half_minute() {
        let mut pace = Pace::default();
        // A minute at 100 a second, then slow work at 10 a second.
        for second in 0..=60 {
            pace.record(seconds(second), bytes(second * 100));
        }
        assert_eq!((pace.bytes_per_second().round(), pace.left(0, 7000)), (100.0, Some(seconds(10))));
        for second in 61..=95 {
            pace.record(seconds(second), bytes(6000 + (second - 60) * 10));
        }
        assert_eq!((pace.bytes_per_second().round(), pace.left(0, 6350 + 100)), (10.0, Some(seconds(10))));
        assert!(pace.samples.len() < 70, "{}", pace.samples.len());
    }

    #[test]
    fn no_time_is_left_to_tell_before_the_speed_is_known() {
        let mut pace = Pace::default();
        assert_eq!((pace.bytes_per_second(), pace.left(0, 100)), (0.0, None));
        pace.record(seconds(1), bytes(10));
        assert_eq!((pace.bytes_per_second(), pace.left(0, 100)), (10.0, None));
        pace.record(seconds(4), bytes(40));
        assert_eq!(pace.left(0, 100), Some(seconds(6)));
        assert_eq!(pace.left(0, 5), Some(seconds(0)));
        for second in 5..60 {
            pace.record(seconds(second), bytes(40));
        }
        assert_eq!(pace.left(0, 100), None, "nothing moves");
    }

    /// A source: files of these sizes in this order, and whether each is read.
    type Source = Vec<(u64, bool)>;

    /// The time left that is said when a quarter of the time is over, in parts of the true one. Reading takes a second
    /// for 50 MB, and each entry 1/2000 s.
    fn estimate_after_a_quarter(source: &Source) -> f64 {
        let cost = |(size, is_read): &(u64, bool)| 0.0005 + if *is_read { *size as f64 / 50e6 } else { 0.0 };
        let whole: f64 = source.iter().map(cost).sum();
        let (mut pace, mut now, mut done, mut next) = (Pace::default(), 0.0, Amounts::default(), 0.5);
        for file in source {
            now += cost(file);
            done.entries += 1;
            if file.1 {
                done.bytes += file.0
            } else {
                done.skipped += file.0
            }
            if now >= next {
                pace.record(Duration::from_secs_f64(now), done);
                next = now + 0.5;
            }
            if now >= whole / 4.0 {
                break;
            }
        }
        let total = source.iter().map(|(size, _)| size).sum();
        let left = pace.left(source.len() as u64, total).unwrap();
        left.as_secs_f64() / (whole - now)
    }

    #[test]
    fn after_a_quarter_of_the_work_the_time_left_is_known() {
        let mixed = |read_one_in: u64| -> Source {
            let size = |at: u64| 1000 + at.wrapping_mul(2_654_435_761) % 400_000;
            (0..60_000).map(|at| (size(at), at.wrapping_mul(40_503) % read_one_in == 0)).collect()
        };
        let small_then_large: Source = (0..40_000).map(|_| (20_000, true)).chain([(200_000_000, true); 12]).collect();
        let sources = [mixed(1), mixed(3), mixed(20), small_then_large, vec![(4000, true); 80_000]];
        for (number, source) in sources.iter().enumerate() {
            let ratio = estimate_after_a_quarter(source);
            assert!((0.7..1.3).contains(&ratio), "{number}: {ratio}");
        }
    }

    #[test]
    fn durations_have_two_units() {
        let shown = [0, 59, 60, 3_599, 3_600, 90_061, 1_000_000].map(|number| rounded(seconds(number)));
        assert_eq!(shown, ["0 s", "59 s", "1 min 00 s", "59 min 59 s", "1 h 00 min", "1 d 01 h", "11 d 13 h"]);
        assert_eq!(rounded(Duration::from_millis(59_700)), "1 min 00 s");
    }
}
