//! Percentiles of a distribution, and their text in the percentile format of HdrHistogram's plotters (`.hgrm`).
//!
//! A line of the text holds a value in milliseconds, the fraction of values up to it, their number, and
//! 1/(1 − fraction).

use std::fmt::Write;

use fhrd::metrics::Distribution;
use hdrhistogram::Histogram;

/// Significant decimal digits of the histogram, as in [`Distribution`].
const SIGNIFICANT_DIGITS: u8 = 2;
/// Steps for each halving of the remaining fraction.
const STEPS_PER_HALVING: u32 = 5;

/// A quantile of a [`Distribution`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QuantileStep {
    /// The value, to two digits.
    pub value: u64,
    /// Fraction of the values up to it, 0 to 1.
    pub fraction: f64,
    /// Number of the values up to it.
    pub count: u64,
}

/// The histogram of a distribution: the same buckets with the same counts.
fn histogram(distribution: &Distribution) -> Histogram<u64> {
    #[expect(clippy::unwrap_used, reason = "the histogram accepts this constant; tests make one")]
    let mut histogram = Histogram::new(SIGNIFICANT_DIGITS).unwrap();
    for (value, count) in distribution.counts() {
        let recorded = histogram.record_n(value, count);
        debug_assert!(recorded.is_ok(), "the histogram grows as needed");
    }
    histogram
}

/// Quantiles in ascending order: five steps for each halving of the remaining fraction.
pub fn quantiles(distribution: &Distribution) -> Vec<QuantileStep> {
    let histogram = histogram(distribution);
    let (total, max) = (histogram.len(), distribution.summary().max);
    if total == 0 {
        return Vec::new();
    }
    let steps = histogram.iter_quantiles(STEPS_PER_HALVING).map(|step| {
        let value = step.value_iterated_to();
        let count = histogram.count_between(0, value).min(total);
        QuantileStep { value: value.min(max), fraction: step.quantile_iterated_to(), count }
    });
    steps.collect()
}

/// The `.hgrm` text of a distribution of microseconds.
pub fn hgrm(distribution: &Distribution) -> String {
    let mut out = format!("{:>12} {:>14} {:>10} {:>14}\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)");
    let mut line = |value: f64, fraction: f64, count: u64| {
        let rest = 1.0 - fraction;
        let inverse = if rest > 0.0 { format!("{:14.2}", 1.0 / rest) } else { String::new() };
        // Writing into a string cannot fail.
        let _ = writeln!(out, "{value:12.3} {fraction:2.12} {count:10} {inverse}");
    };
    for step in quantiles(distribution) {
        line(step.value as f64 / 1e3, step.fraction, step.count);
    }
    let summary = distribution.summary();
    let mean = summary.total as f64 / summary.count.max(1) as f64;
    let deviation = histogram(distribution).stdev();
    let _ = writeln!(out, "#[Mean    = {:12.3}, StdDeviation   = {:12.3}]", mean / 1e3, deviation / 1e3);
    let _ = writeln!(out, "#[Max     = {:12.3}, Total count    = {:12}]", summary.max as f64 / 1e3, summary.count);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_counts_all_values() {
        let mut distribution = Distribution::default();
        (1..=1000).for_each(|value| distribution.record(value * 1000));
        let text = hgrm(&distribution);
        let lines: Vec<Vec<f64>> = text
            .lines()
            .skip(2)
            .filter(|line| !line.starts_with('#'))
            .map(|line| line.split_whitespace().map(|field| field.parse().unwrap()).collect())
            .collect();
        assert!(lines.windows(2).all(|pair| pair[0][0] <= pair[1][0] && pair[0][2] <= pair[1][2]), "{text}");
        let middle = lines.iter().find(|line| line[1] >= 0.5).unwrap();
        assert!((middle[0] - 500.0).abs() < 6.0 && middle[3] >= 2.0, "{middle:?}");
        let last = lines.last().unwrap();
        assert!(last[1] == 1.0 && last[2] == 1000.0 && last.len() == 3, "{last:?}");
        assert!(text.contains("#[Max     =     1000.000, Total count    =         1000]"), "{text}");
        assert!(text.contains("#[Mean    =      500.500"), "{text}");
        assert!(hgrm(&Distribution::default()).contains("Total count    =            0]"));
    }
}
