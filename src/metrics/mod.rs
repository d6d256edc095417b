//! Counters and histograms of a run: every worker measures alone, and a stage's figures are the merge.
//!
//! 1. A [`Distribution`] is an HDR histogram of constant size (about 26 KB, two significant digits).
//! 2. A [`StageMetrics`] says what a stage took, gave, and spent its time on: serving, waiting for input, waiting
//!    for room at the output.
//! 3. [`StageMetrics::summary`] is what `--stats` and the bench print as JSON.
//! 4. A [`Timeline`] says how a quantity went over the time of a run, also in constant memory.
//! 5. [`Progress`] holds the few shared counters a progress bar shows.

mod timeline;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

pub use timeline::Timeline;

/// Largest value a [`Distribution`] tells apart, microseconds (one hour); longer ones count as this.
const VALUE_MAX: u64 = 3_600_000_000;
/// Decimal digits a [`Distribution`] keeps.
const SIGNIFICANT_DIGITS: u8 = 2;

/// A distribution of whole numbers in constant memory; its total and maximum are exact.
#[derive(Debug, Clone)]
pub struct Distribution {
    histogram: Histogram<u64>,
    total: u64,
    max: u64,
}

impl Default for Distribution {
    fn default() -> Self {
        #[expect(clippy::unwrap_used, reason = "the bounds are constants that the histogram accepts; tests make one")]
        let histogram = Histogram::new_with_bounds(1, VALUE_MAX, SIGNIFICANT_DIGITS).unwrap();
        Distribution { histogram, total: 0, max: 0 }
    }
}

impl Distribution {
    /// Adds one value.
    pub fn record(&mut self, value: u64) {
        self.histogram.saturating_record(value);
        self.total = self.total.saturating_add(value);
        self.max = self.max.max(value);
    }

    /// Adds a duration in whole microseconds.
    pub fn record_duration(&mut self, duration: Duration) {
        self.record(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
    }

    /// Adds all values of `other`.
    pub fn merge(&mut self, other: &Distribution) {
        let added = self.histogram.add(&other.histogram);
        debug_assert!(added.is_ok(), "all distributions have the same bounds");
        self.total = self.total.saturating_add(other.total);
        self.max = self.max.max(other.max);
    }

    /// The values recorded and how often each was, ascending; values that the histogram does not tell apart count as
    /// the largest of them.
    pub fn counts(&self) -> impl Iterator<Item = (u64, u64)> {
        self.histogram.iter_recorded().map(|step| (step.value_iterated_to(), step.count_since_last_iteration()))
    }

    /// Steps through the values: each is a fraction of them and the value they do not exceed, five steps for each
    /// halving of what is left.
    pub fn quantiles(&self) -> impl Iterator<Item = QuantileStep> {
        let steps =
            self.histogram.iter_quantiles(5).map(|step| (step.value_iterated_to(), step.quantile_iterated_to()));
        let total = self.histogram.len();
        let steps = steps.take(if total == 0 { 0 } else { usize::MAX });
        steps.map(move |(value, fraction)| {
            let count = self.histogram.count_between(0, value);
            QuantileStep { value: value.min(self.max), fraction, count: count.min(total) }
        })
    }

    /// The value at or below which the fraction `quantile` (0 to 1) of all values lies, to two digits.
    pub fn quantile(&self, quantile: f64) -> u64 {
        self.histogram.value_at_quantile(quantile).min(self.max)
    }

    /// The mean of the values, and their standard deviation as far as the histogram tells them apart.
    pub fn mean_and_deviation(&self) -> (f64, f64) {
        (self.total as f64 / self.histogram.len().max(1) as f64, self.histogram.stdev())
    }

    /// The figures worth printing.
    pub fn summary(&self) -> DistributionSummary {
        DistributionSummary {
            count: self.histogram.len(),
            total: self.total,
            p50: self.quantile(0.50),
            p99: self.quantile(0.99),
            max: self.max,
        }
    }
}

/// A step through the values of a [`Distribution`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QuantileStep {
    /// The value, to two digits.
    pub value: u64,
    /// The fraction of the values up to it, 0 to 1.
    pub fraction: f64,
    /// Their number.
    pub count: u64,
}

/// Figures of a [`Distribution`]; the unit is that of the field it stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct DistributionSummary {
    /// Values recorded.
    pub count: u64,
    /// Their sum.
    pub total: u64,
    /// Median, to two digits.
    pub p50: u64,
    /// 99th percentile, to two digits.
    pub p99: u64,
    /// Largest, exact.
    pub max: u64,
}

/// What one stage did during a run.
#[derive(Debug, Clone, Default)]
pub struct StageMetrics {
    /// Name of the stage.
    pub name: &'static str,
    /// Threads it ran on.
    pub workers: usize,
    /// Items received (0 for a source).
    pub items_in: u64,
    /// Items emitted (0 for a sink).
    pub items_out: u64,
    /// Bytes of the items received.
    pub bytes_in: u64,
    /// Bytes of the items emitted.
    pub bytes_out: u64,
    /// Microseconds of work per item, without waiting.
    pub service_us: Distribution,
    /// Microseconds blocked on receiving, per item.
    pub receive_wait_us: Distribution,
    /// Microseconds blocked on sending, per item.
    pub send_wait_us: Distribution,
    /// Items waiting in the queue when one was received, that one included.
    pub queue_depth: Distribution,
    /// The same over the time of the run.
    pub occupancy: Timeline,
}

impl StageMetrics {
    /// Nothing done yet, by one worker.
    pub fn new(name: &'static str) -> Self {
        StageMetrics { name, workers: 1, ..StageMetrics::default() }
    }

    /// Adds the figures of another worker of the same stage.
    pub fn merge(&mut self, other: &StageMetrics) {
        self.workers += other.workers;
        self.items_in += other.items_in;
        self.items_out += other.items_out;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        self.service_us.merge(&other.service_us);
        self.receive_wait_us.merge(&other.receive_wait_us);
        self.send_wait_us.merge(&other.send_wait_us);
        self.queue_depth.merge(&other.queue_depth);
        self.occupancy.merge(&other.occupancy);
    }

    /// The figures worth printing.
    pub fn summary(&self) -> StageSummary {
        StageSummary {
            name: self.name,
            workers: self.workers,
            items_in: self.items_in,
            items_out: self.items_out,
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            service_us: self.service_us.summary(),
            receive_wait_us: self.receive_wait_us.summary(),
            send_wait_us: self.send_wait_us.summary(),
            queue_depth: self.queue_depth.summary(),
        }
    }
}

/// [`StageMetrics`] with its distributions summed up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StageSummary {
    /// Name of the stage.
    pub name: &'static str,
    /// Threads it ran on.
    pub workers: usize,
    /// Items received.
    pub items_in: u64,
    /// Items emitted.
    pub items_out: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes emitted.
    pub bytes_out: u64,
    /// Microseconds of work per item.
    pub service_us: DistributionSummary,
    /// Microseconds blocked on receiving, per item.
    pub receive_wait_us: DistributionSummary,
    /// Microseconds blocked on sending, per item.
    pub send_wait_us: DistributionSummary,
    /// Queue length seen at each receive, items.
    pub queue_depth: DistributionSummary,
}

/// A number that several threads add to; reads may lag behind.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `amount`.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// The value now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a progress bar shows; the stages add, one thread reads.
#[derive(Debug, Default)]
pub struct Progress {
    /// Files expected, as far as the scan knows.
    pub files_total: Counter,
    /// Files done.
    pub files_done: Counter,
    /// Bytes expected, as far as the scan knows.
    pub bytes_total: Counter,
    /// Bytes read from the source, or written to the target.
    pub bytes_read: Counter,
    /// Bytes of chunks that were not in the repository.
    pub bytes_new: Counter,
    /// Bytes added to the repository.
    pub bytes_stored: Counter,
    /// Files that could not be read or written.
    pub errors: Counter,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merge_counts_what_both_workers_did() {
        let mut first = StageMetrics { items_in: 2, bytes_in: 10, ..StageMetrics::new("hash") };
        let mut second = StageMetrics { items_in: 3, bytes_in: 20, ..StageMetrics::new("hash") };
        for value in [1, 2, 3] {
            first.service_us.record(value);
        }
        second.service_us.record(1000);
        first.merge(&second);
        let summary = first.summary();
        assert_eq!((summary.workers, summary.items_in, summary.bytes_in), (2, 5, 30));
        let service = summary.service_us;
        assert_eq!((service.count, service.total, service.p50, service.max), (4, 1006, 2, 1000));
    }

    #[test]
    fn quantiles_keep_two_digits_and_values_out_of_range_count_as_the_largest() {
        let mut distribution = Distribution::default();
        (1..=10_000).for_each(|value| distribution.record(value));
        let summary = distribution.summary();
        assert!(summary.p50.abs_diff(5_000) <= 50 && summary.p99.abs_diff(9_900) <= 99, "{summary:?}");
        distribution.record(u64::MAX);
        assert_eq!((distribution.summary().count, distribution.summary().max), (10_001, u64::MAX));
        assert_eq!(Distribution::default().summary(), DistributionSummary::default());
    }

    #[test]
    fn the_summary_is_json_with_units_in_its_keys() {
        let text = serde_json::to_string(&StageMetrics::new("read").summary()).expect("serializes");
        assert!(text.contains(r#""name":"read""#) && text.contains(r#""send_wait_us":{"count":0"#), "{text}");
    }
}
