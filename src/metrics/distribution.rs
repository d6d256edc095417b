//! Distributions of whole numbers: an HDR histogram with an exact total and maximum.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Largest value of the histogram: one hour in microseconds. Larger values count as this one.
const VALUE_MAX: u64 = 3_600_000_000;
/// Significant decimal digits of the histogram.
const SIGNIFICANT_DIGITS: u8 = 2;

/// A distribution of whole numbers in constant memory. Total and maximum are exact.
#[derive(Debug, Clone)]
pub struct Distribution {
    histogram: Histogram<u64>,
    total: u64,
    max: u64,
}

impl Default for Distribution {
    fn default() -> Self {
        #[expect(clippy::unwrap_used, reason = "the histogram accepts these constant bounds; tests make one")]
        let histogram = Histogram::new_with_bounds(1, VALUE_MAX, SIGNIFICANT_DIGITS).unwrap();
        Distribution { histogram, total: 0, max: 0 }
    }
}

impl Distribution {
    /// Records one value.
    pub fn record(&mut self, value: u64) {
        self.histogram.saturating_record(value);
        self.total = self.total.saturating_add(value);
        self.max = self.max.max(value);
    }

    /// Records a duration in whole microseconds.
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

    /// The recorded values and their counts, in ascending order. Values of one histogram bucket count as its largest
    /// value.
    pub fn counts(&self) -> impl Iterator<Item = (u64, u64)> {
        self.histogram.iter_recorded().map(|step| (step.value_iterated_to(), step.count_since_last_iteration()))
    }

    /// The value, to two digits, that the fraction `quantile` (0 to 1) of all values does not exceed.
    pub fn quantile(&self, quantile: f64) -> u64 {
        self.histogram.value_at_quantile(quantile).min(self.max)
    }

    /// The statistics that reports print.
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

/// Statistics of a [`Distribution`], in the unit of the field that holds them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct DistributionSummary {
    /// Number of values.
    pub count: u64,
    /// Sum of the values.
    pub total: u64,
    /// Median, to two digits.
    pub p50: u64,
    /// 99th percentile, to two digits.
    pub p99: u64,
    /// Largest value, exact.
    pub max: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_have_two_digits_and_values_out_of_range_count_as_the_largest() {
        let mut distribution = Distribution::default();
        (1..=10_000).for_each(|value| distribution.record(value));
        let summary = distribution.summary();
        assert!(summary.p50.abs_diff(5_000) <= 50 && summary.p99.abs_diff(9_900) <= 99, "{summary:?}");
        distribution.record(u64::MAX);
        assert_eq!((distribution.summary().count, distribution.summary().max), (10_001, u64::MAX));
        assert_eq!(Distribution::default().summary(), DistributionSummary::default());
    }
}
