//! The table of what each stage did.

use std::io::Write;

use super::output::{Align, size, write_table};
use crate::error::Result;
use crate::metrics::{DistributionSummary, StageSummary};

/// Writes a line per stage: items and bytes in and out, seconds of CPU time, then work, input wait and output wait.
/// Each of the three is a median and a 99th percentile (milliseconds per item) and a total (seconds).
///
/// # Errors
/// Errors of writing.
pub fn write_stages(out: &mut dyn Write, stages: &[StageSummary]) -> Result<()> {
    use Align::{Left, Right};
    let columns = [
        ("stage", Left),
        ("workers", Right),
        ("items in", Right),
        ("out", Right),
        ("bytes in", Right),
        ("out", Right),
        ("CPU s", Right),
        ("work p50 ms", Right),
        ("p99", Right),
        ("total s", Right),
        ("input wait p50 ms", Right),
        ("p99", Right),
        ("total s", Right),
        ("output wait p50 ms", Right),
        ("p99", Right),
        ("total s", Right),
    ];
    let rows: Vec<Vec<String>> = stages.iter().map(row).collect();
    write_table(out, &columns, &rows)
}

fn row(stage: &StageSummary) -> Vec<String> {
    let mut row = vec![
        stage.name.to_string(),
        stage.workers.to_string(),
        stage.items_in.to_string(),
        stage.items_out.to_string(),
        size(stage.bytes_in),
        size(stage.bytes_out),
        format!("{:.2}", stage.cpu_us as f64 / 1e6),
    ];
    let times = [&stage.service_us, &stage.receive_wait_us, &stage.send_wait_us];
    row.extend(times.into_iter().flat_map(times_of));
    row
}

fn times_of(times: &DistributionSummary) -> [String; 3] {
    let in_units = |microseconds: u64, unit: f64| format!("{:.2}", microseconds as f64 / unit);
    [in_units(times.p50, 1e3), in_units(times.p99, 1e3), in_units(times.total, 1e6)]
}
