//! Compares configurations on real files. Each case backs up and restores each set in its own repository.
//!
//! The values are medians of the rounds:
//!
//! - *stored*: bytes of all blobs of the repository. *ratio*: bytes of content divided by stored bytes.
//! - *index*: bytes of the index segments, and 8 bytes for each similarity feature in container indexes (its slot in
//!   the similarity table).
//! - Wall and CPU seconds of backup and restore, MB/s of the restore, and *decoded*: decoded bytes of frames per
//!   restored byte.
//! - Speeds that are comparable between runs, in MB per normalised second, and their noise (see `speed.rs`).
//!
//! The restore verifies each chunk by its fingerprint. The restored files are then compared with their source byte by
//! byte. A case that fails is reported and not run again; the other cases continue.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fhrd::error::Result;
use fhrd::inspect::stats::repository_stats;
use fhrd::metrics::StageMetrics;
use serde::Serialize;

use super::comparison::{Case, Comparison};
use super::report::{Grid, Plot, Profile, Report, Scale, Scales, objects, pictures};
use super::speed::{Speeds, Timing};
use super::table::{ComparisonLine, flush, mb, or_dash, two, write_line};
use super::workbench::{Cost, PageCache, Restored, Workbench, median, median_u64, merge_stages, rounds, warm};

/// Bytes of a slot in the similarity table.
const FEATURE_BYTES: u64 = 8;
/// Space in memory for a set, relative to its bytes: the source is stored and restored.
const MEMORY_SHARE: u64 = 3;
/// Titles of the columns.
const TITLES: [&str; 12] = [
    "chunk KiB",
    "MB",
    "MB stored",
    "ratio",
    "index MB",
    "backup s",
    "± %",
    "CPU s",
    "restore s",
    "CPU s",
    "MB/s",
    "decoded",
];
/// Fields to plot.
const PICTURES: [(&str, &str, &str); 4] = [
    ("ratio", "Ratio of content to stored bytes", "times"),
    ("backup_mb_per_s", "Backup", "MB/s"),
    ("restore_mb_per_s", "Restore", "MB/s"),
    ("backup_cpu_seconds", "CPU time of the backup", "s"),
];

/// Measurements of a case.
#[derive(Debug, Clone, Serialize)]
pub struct SchemeMeasurements {
    /// Bytes of content.
    pub bytes: u64,
    /// Bytes of the repository's blobs.
    pub stored: u64,
    /// Of those, bytes of index segments.
    pub segment_bytes: u64,
    /// Bytes of the slots of features in the similarity table.
    pub feature_bytes: u64,
    /// Bytes of content per stored byte.
    pub ratio: f64,
    /// Wall seconds of the backup.
    pub backup_seconds: f64,
    /// MB of content backed up per second.
    pub backup_mb_per_s: f64,
    /// MB of content backed up per normalised second.
    pub backup_mb_per_normalised_s: Option<f64>,
    /// The same speed of another run differs by at most the factor 1 + this value.
    pub backup_noise: Option<f64>,
    /// CPU seconds of the backup.
    pub backup_cpu_seconds: f64,
    /// CPU seconds of the backup per wall second: how many processors its stages keep busy.
    pub backup_parallel: f64,
    /// Wall seconds of the restore.
    pub restore_seconds: Option<f64>,
    /// CPU seconds of the restore.
    pub restore_cpu_seconds: Option<f64>,
    /// MB restored per second.
    pub restore_mb_per_s: Option<f64>,
    /// MB restored per normalised second.
    pub restore_mb_per_normalised_s: Option<f64>,
    /// The same speed of another run differs by at most the factor 1 + this value.
    pub restore_noise: Option<f64>,
    /// Milliseconds of one run of the fixed task.
    pub fixed_task_ms: f64,
    /// Speed of the restore as a multiple of that of the backup.
    pub restore_over_backup: Option<f64>,
    /// Decoded bytes of frames per restored byte.
    pub amplification: Option<f64>,
    /// Metrics of the stages of all backups and of all restores.
    #[serde(skip)]
    pub stages: [Vec<StageMetrics>; 2],
}

/// Measurements of one round.
struct SchemeSample {
    bytes: u64,
    stored: u64,
    segment_bytes: u64,
    features: u64,
    backup: Cost,
    stages: Vec<StageMetrics>,
    restored: Option<Restored>,
}

fn measure(bench: &Workbench, comparison: &Comparison, case: &Case, paths: &[PathBuf]) -> Result<SchemeSample> {
    tracing::info!("measuring {}", case.scheme);
    let repository = bench.repository(&case.config)?;
    let (report, backup) = bench.backup(&repository, &case.config, paths)?;
    let stats = repository_stats(&repository)?;
    let page_cache = if comparison.cold { PageCache::Cold } else { PageCache::Warm };
    let restored = match comparison.restore {
        true => Some(bench.restore(&repository, &case.config, &report, paths, page_cache)?),
        false => None,
    };
    bench.discard(&repository)?;
    Ok(SchemeSample {
        bytes: report.bytes,
        stored: stats.stored_bytes.total,
        segment_bytes: stats.stored_bytes.index,
        features: stats.features,
        backup,
        stages: report.metrics,
        restored,
    })
}

impl SchemeSample {
    fn backup_timing(&self) -> Option<Timing> {
        Some(timing(self.bytes, &self.backup))
    }

    fn restore_timing(&self) -> Option<Timing> {
        self.restored.as_ref().map(|restored| timing(restored.bytes, &restored.cost))
    }
}

fn timing(bytes: u64, cost: &Cost) -> Timing {
    Timing { bytes, seconds: cost.wall_seconds, fixed_task_seconds: cost.fixed_task_seconds }
}

/// Speeds of all cases of a set.
fn speeds(outcomes: &[Result<Vec<SchemeSample>, String>], timing: fn(&SchemeSample) -> Option<Timing>) -> Speeds {
    let of_case = |outcome: &Result<Vec<SchemeSample>, String>| {
        outcome.as_ref().map_or_else(|_| Vec::new(), |samples| samples.iter().filter_map(timing).collect())
    };
    Speeds::of(&outcomes.iter().map(of_case).collect::<Vec<_>>())
}

impl SchemeMeasurements {
    fn of(samples: &[SchemeSample]) -> Self {
        let number = |value: fn(&SchemeSample) -> u64| median_u64(samples.iter().map(value));
        let of_restores = |value: fn(&Restored) -> f64| -> Vec<f64> {
            samples.iter().filter_map(|sample| sample.restored.as_ref()).map(value).collect()
        };
        let restored = |value| Some(of_restores(value)).filter(|values| !values.is_empty()).map(median);
        let (bytes, stored) = (number(|sample| sample.bytes), number(|sample| sample.stored));
        let seconds: Vec<f64> = samples.iter().map(|sample| sample.backup.wall_seconds).collect();
        let restores = samples.iter().filter_map(|sample| sample.restored.as_ref());
        let speed = bytes as f64 / 1e6 / median(seconds).max(1e-9);
        SchemeMeasurements {
            restore_over_backup: restored(Restored::mb_per_second).map(|restore| restore / speed.max(1e-9)),
            bytes,
            stored,
            ratio: bytes as f64 / (stored as f64).max(1.0),
            backup_mb_per_s: speed,
            backup_mb_per_normalised_s: None,
            backup_noise: None,
            restore_mb_per_normalised_s: None,
            restore_noise: None,
            fixed_task_ms: 1e3 * median(samples.iter().map(|sample| sample.backup.fixed_task_seconds)),
            stages: [
                merge_stages(samples.iter().map(|sample| sample.stages.as_slice())),
                merge_stages(restores.map(|restored| restored.metrics.as_slice())),
            ],
            segment_bytes: number(|sample| sample.segment_bytes),
            feature_bytes: FEATURE_BYTES * number(|sample| sample.features),
            backup_seconds: median(samples.iter().map(|sample| sample.backup.wall_seconds)),
            backup_cpu_seconds: median(samples.iter().map(|sample| sample.backup.cpu_seconds)),
            backup_parallel: median(
                samples.iter().map(|sample| sample.backup.cpu_seconds / sample.backup.wall_seconds.max(1e-9)),
            ),
            restore_seconds: restored(|restored| restored.cost.wall_seconds),
            restore_cpu_seconds: restored(|restored| restored.cost.cpu_seconds),
            restore_mb_per_s: restored(Restored::mb_per_second),
            amplification: restored(Restored::amplification),
        }
    }

    fn cells(&self) -> Vec<String> {
        vec![
            mb(self.bytes),
            mb(self.stored),
            two(self.ratio),
            two((self.segment_bytes + self.feature_bytes) as f64 / 1e6),
            two(self.backup_seconds),
            or_dash(self.backup_noise, |noise| format!("{:.1}", 100.0 * noise)),
            two(self.backup_cpu_seconds),
            or_dash(self.restore_seconds, two),
            or_dash(self.restore_cpu_seconds, two),
            or_dash(self.restore_mb_per_s, |rate| format!("{rate:.0}")),
            or_dash(self.amplification, two),
        ]
    }
}

/// Runs the comparison and prints the table of each set.
///
/// # Errors
/// A missing set; [`Error::Interrupted`](fhrd::error::Error::Interrupted). Cases that fail are lines.
pub fn run(comparison: &Comparison, stop: &Arc<AtomicBool>, out: &mut dyn Write) -> Result<Report> {
    let sources = comparison.sources()?;
    let mut bench = Workbench::new(&comparison.work, stop)?;
    write_line(out, "set", "scheme", &TITLES)?;
    let mut lines = Vec::new();
    for source in &sources {
        let bytes = source.paths.iter().map(|path| warm(path)).sum::<Result<u64>>()?;
        if comparison.memory && !bench.move_to_memory(bytes.saturating_mul(MEMORY_SHARE)) {
            tracing::warn!("no file system in memory has space for {}: its files are written to disk", source.name);
        }
        let outcomes = rounds(&comparison.cases, (comparison.warm_up, comparison.repeats), |case| {
            measure(&bench, comparison, case, &source.paths)
        })?;
        let [backups, restores] =
            [SchemeSample::backup_timing, SchemeSample::restore_timing].map(|timing| speeds(&outcomes, timing));
        for (number, (case, outcome)) in comparison.cases.iter().zip(outcomes).enumerate() {
            let line = ComparisonLine::new(source, case, outcome, |samples| SchemeMeasurements {
                backup_mb_per_normalised_s: backups.medians.get(number).copied().flatten(),
                backup_noise: backups.noise,
                restore_mb_per_normalised_s: restores.medians.get(number).copied().flatten(),
                restore_noise: restores.noise,
                ..SchemeMeasurements::of(samples)
            });
            line.write(out, SchemeMeasurements::cells)?;
            lines.push(line);
        }
        flush(out)?;
    }
    bench.clear()?;
    report(comparison, &lines)
}

fn report(comparison: &Comparison, lines: &[ComparisonLine<SchemeMeasurements>]) -> Result<Report> {
    let titles = ["set", "scheme"].into_iter().chain(TITLES).map(str::to_string).collect();
    let rows = lines.iter().map(|line| line.row(SchemeMeasurements::cells)).collect();
    let objects = objects(lines)?;
    let mut plots = pictures(&objects, &PICTURES);
    plots.push(ratio_by_speed(lines));
    Ok(Report {
        title: comparison.title.clone(),
        failures: lines.iter().filter(|line| line.failure.is_some()).count(),
        grids: vec![Grid { title: String::new(), columns: titles, rows }, comparable(lines)],
        plots,
        profiles: lines.iter().flat_map(profiles).collect(),
        lines: objects,
    })
}

/// The ratio of every line over its speed, a series for each scheme.
fn ratio_by_speed(lines: &[ComparisonLine<SchemeMeasurements>]) -> Plot {
    let mut series: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    for line in lines {
        let Some(measurements) = &line.measurements else { continue };
        let point = (measurements.backup_mb_per_s, measurements.ratio);
        match series.iter_mut().find(|(name, _)| *name == line.scheme) {
            Some((_, points)) => points.push(point),
            None => series.push((line.scheme.clone(), vec![point])),
        }
    }
    Plot::Scatter {
        title: "Ratio over the speed of the backup, all sets and parameters".into(),
        across: "MB/s".into(),
        unit: "times".into(),
        scales: Scales { across: Scale::Logarithmic, logarithmic: true },
        series,
    }
}

/// Speeds that are comparable between runs.
fn comparable(lines: &[ComparisonLine<SchemeMeasurements>]) -> Grid {
    let percent = |noise: f64| format!("{:.0}", 100.0 * noise);
    let row = |line: &ComparisonLine<SchemeMeasurements>| {
        let measurements = line.measurements.as_ref()?;
        let speeds = [
            or_dash(measurements.backup_mb_per_normalised_s, |speed| format!("{speed:.1}")),
            or_dash(measurements.backup_noise, percent),
            or_dash(measurements.restore_mb_per_normalised_s, |speed| format!("{speed:.1}")),
            or_dash(measurements.restore_noise, percent),
            two(measurements.fixed_task_ms),
        ];
        Some([line.set.clone(), line.label()].into_iter().chain(speeds).collect())
    };
    let columns = ["set", "scheme", "backup MB/norm. s", "± %", "restore MB/norm. s", "± %", "fixed task ms"];
    Grid {
        title: "Speeds that are comparable between runs".into(),
        columns: columns.map(str::to_string).to_vec(),
        rows: lines.iter().filter_map(row).collect(),
    }
}

fn profiles(line: &ComparisonLine<SchemeMeasurements>) -> Vec<Profile> {
    let runs =
        line.measurements.iter().flat_map(|measurements| ["backup", "restore"].into_iter().zip(&measurements.stages));
    let profile = |(run, stages): (&str, &Vec<StageMetrics>)| {
        let name = format!("{}, {}, {} KiB: {run}", line.set, line.label(), line.chunk_bytes >> 10);
        Profile { name, stages: stages.clone() }
    };
    runs.filter(|(_, stages)| !stages.is_empty()).map(profile).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(wall_seconds: f64, restored: bool) -> SchemeSample {
        let cost = Cost { wall_seconds, cpu_seconds: 2.0 * wall_seconds, fixed_task_seconds: 0.002 };
        SchemeSample {
            bytes: 4_000_000,
            stored: 1_000_000,
            segment_bytes: 20_000,
            features: 10_000,
            backup: cost,
            stages: Vec::new(),
            restored: restored.then(|| Restored {
                cost,
                bytes: 4_000_000,
                frame_bytes: 3_000_000,
                metrics: Vec::new(),
            }),
        }
    }

    #[test]
    fn values_are_medians_and_the_index_includes_features() {
        let measurements = SchemeMeasurements::of(&[sample(1.0, true), sample(9.0, true), sample(2.0, true)]);
        let cells = SchemeMeasurements { backup_noise: Some(0.123), ..measurements }.cells();
        assert_eq!(cells, ["4.0", "1.0", "4.00", "0.10", "2.00", "12.3", "4.00", "2.00", "4.00", "2", "0.75"]);
        let cells = SchemeMeasurements::of(&[sample(1.0, false)]).cells();
        assert_eq!((cells[5].as_str(), &cells[7..]), ("-", &["-"; 4].map(str::to_string)[..]));
    }

    #[test]
    fn speeds_are_of_rounds_that_did_not_fail() {
        let outcomes = [Ok(vec![sample(1.0, true), sample(2.0, true)]), Err("no".into())];
        let restores = speeds(&outcomes, SchemeSample::restore_timing);
        // The fixed task takes 2 ms, so a normalised second (500 runs) is one second.
        assert_eq!(restores.medians, [Some(3.0), None]);
        assert_eq!(speeds(&[Ok(vec![sample(1.0, false)])], SchemeSample::restore_timing).medians, [None]);
    }
}
