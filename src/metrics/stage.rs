//! Measurements of the stages of a run.

use serde::Serialize;

use super::distribution::{Distribution, DistributionSummary};
use super::timeline::Timeline;

/// Measurements of one stage, or of one of its workers.
#[derive(Debug, Clone, Default)]
pub struct StageMetrics {
    /// Name of the stage.
    pub name: &'static str,
    /// Number of threads.
    pub workers: usize,
    /// Items received, 0 for a source.
    pub items_in: u64,
    /// Items emitted, 0 for a sink.
    pub items_out: u64,
    /// Bytes of the items received.
    pub bytes_in: u64,
    /// Bytes of the items emitted.
    pub bytes_out: u64,
    /// Microseconds of CPU time of its threads.
    pub cpu_us: u64,
    /// Microseconds of work per item, without blocked time.
    pub service_us: Distribution,
    /// Microseconds per item blocked because the input queue is empty.
    pub receive_wait_us: Distribution,
    /// Microseconds per item blocked because the output queue is full.
    pub send_wait_us: Distribution,
    /// Items in the input queue at each receive, the received one included.
    pub queue_depth: Distribution,
    /// Items in the input queue over the time of the run.
    pub occupancy: Timeline,
}

impl StageMetrics {
    /// Empty measurements of one worker.
    pub fn new(name: &'static str) -> Self {
        StageMetrics { name, workers: 1, ..StageMetrics::default() }
    }

    /// Adds the measurements of another worker of the same stage.
    pub fn merge(&mut self, other: &StageMetrics) {
        self.workers += other.workers;
        self.cpu_us += other.cpu_us;
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

    /// The statistics that reports print.
    pub fn summary(&self) -> StageSummary {
        StageSummary {
            name: self.name,
            workers: self.workers,
            items_in: self.items_in,
            items_out: self.items_out,
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            cpu_us: self.cpu_us,
            service_us: self.service_us.summary(),
            receive_wait_us: self.receive_wait_us.summary(),
            send_wait_us: self.send_wait_us.summary(),
            queue_depth: self.queue_depth.summary(),
        }
    }
}

/// Statistics of [`StageMetrics`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StageSummary {
    /// Name of the stage.
    pub name: &'static str,
    /// Number of threads.
    pub workers: usize,
    /// Items received.
    pub items_in: u64,
    /// Items emitted.
    pub items_out: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes emitted.
    pub bytes_out: u64,
    /// Microseconds of CPU time of its threads.
    pub cpu_us: u64,
    /// Microseconds of work per item.
    pub service_us: DistributionSummary,
    /// Microseconds per item blocked because the input queue is empty.
    pub receive_wait_us: DistributionSummary,
    /// Microseconds per item blocked because the output queue is full.
    pub send_wait_us: DistributionSummary,
    /// Items in the input queue at each receive.
    pub queue_depth: DistributionSummary,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merge_adds_the_measurements_of_both_workers() {
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
    fn the_summary_is_json_with_units_in_its_keys() {
        let text = serde_json::to_string(&StageMetrics::new("read").summary()).expect("serializes");
        assert!(text.contains(r#""name":"read""#) && text.contains(r#""send_wait_us":{"count":0"#), "{text}");
    }
}
