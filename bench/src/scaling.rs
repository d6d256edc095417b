//! A model of scale: CPU time of each stage, and the throughput that follows on other machines.
//!
//! 1. Each set is backed up and restored with one worker and with two workers in each parallel stage. Its files are in
//!    the page cache.
//! 2. A stage with one owner cannot take more than one core. A parallel stage can take as many cores as it has workers.
//! 3. The time of a GB on C cores with a disk of D GB/s is the longest of: the CPU time of all stages over C, the CPU
//!    time of each stage over its workers, and 1 / D. It takes the CPU times with two workers.
//!
//! The assumptions: stages overlap without a gap, all cores are equal, and neither memory bandwidth nor shared caches
//! slow them down. So the prediction is an upper bound. The first check of it is the wall time measured with two
//! workers; a test on a machine with more cores is the next.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fhrd::config::AUTOMATIC_WORKERS_MAX;
use fhrd::error::Result;
use fhrd::metrics::StageMetrics;
use serde::Serialize;

use super::comparison::{Case, Comparison};
use super::data::SetSource;
use super::report::{Grid, Report, objects};
use super::table::{flush, write_line};
use super::workbench::{PageCache, Workbench, median, rounds, warm};

/// Cores of the machines whose throughput is predicted.
const CORES: [usize; 3] = [4, 16, 64];
/// Speeds of their disks, GB/s.
const DISKS: [f64; 3] = [0.2, 1.0, 5.0];
/// Workers of parallel stages in the measured runs.
const WORKERS: [usize; 2] = [1, 2];

/// CPU time of a stage, seconds per GB of content.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StageCost {
    /// Name of the stage.
    pub stage: String,
    /// Whether one thread does all its work, whatever the configuration.
    pub has_one_owner: bool,
    /// With one worker in each parallel stage.
    pub one_worker: f64,
    /// With two.
    pub two_workers: f64,
}

/// Predicted throughput.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Prediction {
    /// Cores of the machine.
    pub cores: usize,
    /// Speed of its disk, GB/s.
    pub disk: f64,
    /// Throughput, MB/s of content.
    pub mb_per_second: f64,
    /// What bounds it: `cores`, `disk`, or a stage.
    pub bound: String,
}

/// Result for a set and an operation.
#[derive(Debug, Clone, Serialize)]
pub struct ScalingLine {
    /// Name of the set.
    pub set: String,
    /// `backup` or `restore`.
    pub operation: &'static str,
    /// Name of the scheme.
    pub scheme: String,
    /// Error message if the measurement failed.
    pub failure: Option<String>,
    /// Measured throughput with two workers, MB/s.
    pub mb_per_second: f64,
    /// What the model says of the machine that measured, without a limit by its disk, MB/s.
    pub modelled_mb_per_second: f64,
    /// Largest share of the CPU time, with two workers, of a stage with one owner.
    pub one_owner_share: f64,
    /// The stages.
    pub stages: Vec<StageCost>,
    /// The predictions.
    pub predictions: Vec<Prediction>,
}

/// Stages and wall time of one run.
struct MeasuredRun {
    stages: Vec<StageMetrics>,
    wall_seconds: f64,
    bytes: u64,
}

/// The longest of the times that bound a GB, seconds, and its name. `disk` in GB/s; without one it is no bound.
fn bound(stages: &[StageCost], cores: usize, disk: Option<f64>) -> (f64, String) {
    let cores_f = cores.max(1) as f64;
    let workers = cores.clamp(1, AUTOMATIC_WORKERS_MAX) as f64;
    let all: f64 = stages.iter().map(|stage| stage.two_workers).sum();
    let of_stage = |stage: &StageCost| {
        let seconds = if stage.has_one_owner { stage.two_workers } else { stage.two_workers / workers };
        (seconds, stage.stage.clone())
    };
    let of_disk = disk.map(|disk| (1.0 / disk, "disk".to_string()));
    let bounds = stages.iter().map(of_stage).chain([(all / cores_f, "cores".to_string())]).chain(of_disk);
    bounds.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or_default()
}

fn costs(one: &[&MeasuredRun], two: &[&MeasuredRun]) -> Vec<StageCost> {
    let per_gb = |runs: &[&MeasuredRun], name: &str| {
        let of_run = |run: &&MeasuredRun| {
            let stages = run.stages.iter().filter(|stage| stage.name == name);
            stages.map(|stage| stage.cpu_us as f64 / 1e6).sum::<f64>() / (run.bytes as f64 / 1e9).max(1e-9)
        };
        median(runs.iter().map(of_run))
    };
    let stages = two.first().map_or(&[][..], |run| &run.stages);
    let cost = |stage: &StageMetrics| StageCost {
        stage: stage.name.into(),
        has_one_owner: stage.workers == 1,
        one_worker: per_gb(one, stage.name),
        two_workers: per_gb(two, stage.name),
    };
    stages.iter().map(cost).collect()
}

/// The line of an operation; each element of `rounds` has a run for each of [`WORKERS`].
fn line(source: &SetSource, case: &Case, operation: &'static str, rounds: &[Vec<MeasuredRun>]) -> ScalingLine {
    let of = |number: usize| rounds.iter().filter_map(|runs| runs.get(number)).collect::<Vec<&MeasuredRun>>();
    let (one, two) = (of(0), of(1));
    let stages = costs(&one, &two);
    let speed = |run: &&MeasuredRun| run.bytes as f64 / 1e6 / run.wall_seconds.max(1e-9);
    let all: f64 = stages.iter().map(|stage| stage.two_workers).sum();
    let owners = stages.iter().filter(|stage| stage.has_one_owner).map(|stage| stage.two_workers);
    let predict = |cores: usize, disk: f64| {
        let (seconds, bound) = bound(&stages, cores, Some(disk));
        Prediction { cores, disk, mb_per_second: 1000.0 / seconds.max(1e-9), bound }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    ScalingLine {
        set: source.name.clone(),
        operation,
        scheme: case.scheme.clone(),
        failure: None,
        mb_per_second: median(two.iter().map(speed)),
        modelled_mb_per_second: 1000.0 / bound(&stages, cores.min(2), None).0.max(1e-9),
        one_owner_share: owners.fold(0.0, f64::max) / all.max(1e-9),
        predictions: CORES.iter().flat_map(|cores| DISKS.iter().map(|disk| predict(*cores, *disk))).collect(),
        stages,
    }
}

/// One round: the backups and the restores with each number of workers.
fn measure(bench: &Workbench, case: &Case, source: &SetSource) -> Result<[Vec<MeasuredRun>; 2]> {
    let mut runs = [Vec::new(), Vec::new()];
    for workers in WORKERS {
        let mut config = case.config.clone();
        config.pipeline.workers = workers;
        let repository = bench.repository(&config)?;
        let (report, cost) = bench.backup(&repository, &config, &source.paths)?;
        let restored = bench.restore(&repository, &config, &report, &source.paths, PageCache::Warm)?;
        let saved = MeasuredRun { stages: report.metrics, wall_seconds: cost.wall_seconds, bytes: report.bytes };
        let wall_seconds = restored.cost.wall_seconds;
        let loaded = MeasuredRun { stages: restored.metrics, wall_seconds, bytes: restored.bytes };
        runs.iter_mut().zip([saved, loaded]).for_each(|(runs, run)| runs.push(run));
        bench.discard(&repository)?;
    }
    Ok(runs)
}

/// Runs the comparison and prints the costs of all stages and the predictions.
///
/// # Errors
/// A missing set; [`Error::Interrupted`](fhrd::error::Error::Interrupted). Cases that fail are lines.
pub fn run(comparison: &Comparison, stop: &Arc<AtomicBool>, out: &mut dyn Write) -> Result<Report> {
    let sources = comparison.sources()?;
    let bench = Workbench::new(&comparison.work, stop)?;
    let mut lines = Vec::new();
    for source in &sources {
        source.paths.iter().try_for_each(|path| warm(path).map(drop))?;
        let outcomes =
            rounds(&comparison.cases, (comparison.warm_up, comparison.repeats), |case| measure(&bench, case, source))?;
        for (case, outcome) in comparison.cases.iter().zip(outcomes) {
            lines.extend(lines_of(source, case, outcome));
        }
    }
    bench.clear()?;
    let grids = grids(&lines);
    for grid in &grids {
        write_line(out, &grid.title, "", &[""; 0])?;
        for row in std::iter::once(&grid.columns).chain(&grid.rows) {
            let (set, cells) = row.split_first().map_or(("", &[][..]), |(set, cells)| (set, cells));
            let (operation, cells) = cells.split_first().map_or(("", &[][..]), |(name, cells)| (name, cells));
            write_line(out, set, operation, cells)?;
        }
    }
    flush(out)?;
    Ok(Report {
        title: comparison.title.clone(),
        failures: lines.iter().filter(|line| line.failure.is_some()).count(),
        grids,
        lines: objects(&lines)?,
        ..Report::default()
    })
}

fn lines_of(source: &SetSource, case: &Case, outcome: Result<Vec<[Vec<MeasuredRun>; 2]>, String>) -> Vec<ScalingLine> {
    let rounds = match outcome {
        Ok(rounds) => rounds,
        Err(error) => {
            let failed = line(source, case, "backup", &[]);
            return vec![ScalingLine { failure: Some(error), predictions: Vec::new(), ..failed }];
        }
    };
    let (backups, restores): (Vec<_>, Vec<_>) = rounds.into_iter().map(|[backup, restore]| (backup, restore)).unzip();
    vec![line(source, case, "backup", &backups), line(source, case, "restore", &restores)]
}

fn grids(lines: &[ScalingLine]) -> Vec<Grid> {
    let name = |line: &ScalingLine| [line.set.clone(), line.operation.to_string(), line.scheme.clone()];
    let columns = |more: &[&str]| {
        ["set", "operation", "scheme"].iter().chain(more).map(|title| title.to_string()).collect::<Vec<_>>()
    };
    let stages = lines.iter().flat_map(|line| {
        line.stages.iter().map(move |stage| {
            let threads = if stage.has_one_owner { "one" } else { "workers" };
            let numbers = [stage.one_worker, stage.two_workers].map(|seconds| format!("{seconds:.3}"));
            name(line).into_iter().chain([stage.stage.clone(), threads.into()]).chain(numbers).collect::<Vec<_>>()
        })
    });
    let summary = |line: &ScalingLine| {
        let numbers = match &line.failure {
            Some(failure) => vec![format!("FAILED: {failure}")],
            None => vec![
                format!("{:.0}", line.mb_per_second),
                format!("{:.0}", line.modelled_mb_per_second),
                format!("{:.1}", 100.0 * line.one_owner_share),
            ],
        };
        name(line).into_iter().chain(numbers).collect::<Vec<_>>()
    };
    let predictions = lines.iter().flat_map(|line| {
        line.predictions.iter().map(move |found| {
            let cells = [
                found.cores.to_string(),
                format!("{:.1}", found.disk),
                format!("{:.0}", found.mb_per_second),
                found.bound.clone(),
            ];
            name(line).into_iter().chain(cells).collect::<Vec<_>>()
        })
    });
    vec![
        Grid {
            title: "CPU seconds for each GB of content".into(),
            columns: columns(&["stage", "threads", "1 worker", "2 workers"]),
            rows: stages.collect(),
        },
        Grid {
            title: "Throughput with two workers, MB/s, and the largest share of a stage with one thread".into(),
            columns: columns(&["measured", "modelled", "share %"]),
            rows: lines.iter().map(summary).collect(),
        },
        Grid {
            title:
                "Predicted throughput: stages overlap without a gap, cores are equal, memory does not slow them down"
                    .into(),
            columns: columns(&["cores", "disk GB/s", "MB/s", "bound by"]),
            rows: predictions.collect(),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(stage: &str, has_one_owner: bool, seconds: f64) -> StageCost {
        StageCost { stage: stage.into(), has_one_owner, one_worker: seconds, two_workers: seconds }
    }

    #[test]
    fn the_slowest_resource_bounds_the_throughput() {
        let stages = [cost("owner", true, 0.5), cost("workers", false, 3.5)];
        let of = |cores, disk| bound(&stages, cores, disk);
        assert_eq!(of(2, None), (2.0, "cores".into()));
        assert_eq!(of(4, Some(0.2)), (5.0, "disk".into()));
        // Eight workers take 0.4375 s, the owner more.
        assert_eq!(of(64, Some(5.0)), (0.5, "owner".into()));
        assert_eq!(of(1, None).0, 4.0);
    }

    #[test]
    fn a_set_is_measured_with_one_and_two_workers() {
        let directory = tempfile::tempdir().unwrap();
        let text = format!(
            "kind = \"scaling\"\ncorpus = {0:?}\nwork = {0:?}\nsets = [{{ name = \"text\", generate = {{ seed = 1, \
            text = {{ files = 20, file_bytes = 30000, versions = 3 }} }} }}]\n[[scheme]]\nname = \"default\"\n",
            directory.path()
        );
        let comparison = Comparison::parse(&text, "x.toml".as_ref()).unwrap();
        let report = run(&comparison, &Arc::default(), &mut std::io::sink()).unwrap();
        assert_eq!((report.lines.len(), report.failures, report.grids.len()), (2, 0, 3), "{:?}", report.lines);
        let backup = &report.lines[0];
        let stages = backup["stages"].as_array().unwrap();
        let owner = |name: &str| stages.iter().find(|stage| stage["stage"] == name).unwrap()["has_one_owner"].clone();
        assert!(owner("subdedup") == true && owner("match") == false && owner("read") == false);
        assert!(stages.iter().any(|stage| stage["two_workers"].as_f64().unwrap() > 0.0));
        let predictions = backup["predictions"].as_array().unwrap();
        assert_eq!(predictions.len(), CORES.len() * DISKS.len());
        assert!(predictions.iter().all(|found| found["mb_per_second"].as_f64().unwrap() <= 5000.0));
    }
}
