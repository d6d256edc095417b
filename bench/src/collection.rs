//! The time of garbage collection against what is live (TensorCAS): mark and sweep after numbers of checkpoints.
//!
//! For each number that `at` lists, a new repository is filled with as many versions of a set, each as its own
//! snapshot.
//!
//! 1. *mark*: a prune that changes nothing. It finds what the snapshots need, which is everything.
//! 2. The older half of the snapshots is forgotten, and *sweep* is a prune without a grace period.
//! 3. The newest version is restored and compared.
//!
//! Times are medians of the rounds, in one process. *Live* are the chunks that the repository has at the mark.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use fhrd::error::{Error, Result};
use fhrd::inspect::stats::repository_stats;
use fhrd::keep::{PruneOptions, PruneReport, SkippedRule, estimate_prune, forget, prune};
use fhrd::repo::{Repository, snapshot};
use serde_json::{Value, json};

use super::comparison::{Case, Comparison};
use super::data::SetSource;
use super::report::{Grid, Plot, Report, Scales};
use super::speed::noise;
use super::table::{flush, mb, or_dash, write_line};
use super::versions::versions_of;
use super::workbench::{PageCache, Workbench, median, median_u64, rounds, warm};

/// A collection after one number of checkpoints.
#[derive(Debug, Clone, PartialEq, Default)]
struct Collected {
    checkpoints: usize,
    live: u64,
    mark: f64,
    sweep: f64,
    stored: u64,
    freed: u64,
}

const TITLES: [&str; 7] = ["chunk KiB", "number", "live", "mark ms", "sweep ms", "MB stored", "MB freed"];

/// One round: a collection for each number of `at` that the set has versions for.
fn measure(
    bench: &Workbench,
    comparison: &Comparison,
    case: &Case,
    versions: &[PathBuf],
    stop: &Arc<AtomicBool>,
) -> Result<Vec<Collected>> {
    let numbers = comparison.at.iter().filter(|number| **number <= versions.len());
    numbers
        .map(|number| {
            let repository = bench.repository(&case.config)?;
            let collected = collect(bench, &repository, case, versions.get(..*number).unwrap_or_default(), stop)?;
            bench.discard(&repository)?;
            Ok(collected)
        })
        .collect()
}

/// Saves `versions`, and collects with all and with the newer half of them.
fn collect(
    bench: &Workbench,
    repository: &Repository,
    case: &Case,
    versions: &[PathBuf],
    stop: &Arc<AtomicBool>,
) -> Result<Collected> {
    let mut newest = None;
    for version in versions {
        newest = Some((bench.backup(repository, &case.config, std::slice::from_ref(version))?.0, version));
    }
    let stats = repository_stats(repository)?;
    let options = PruneOptions {
        grace: Duration::ZERO,
        dry_run: false,
        allow_no_containers: false,
        repack_bytes_max: u64::MAX,
        container_bytes: case.config.container.bytes_target.0,
        patience: Duration::ZERO,
        extend_locks: None,
        recompress_threads: 0,
        min_age: None,
        skipped_rule: SkippedRule::Nothing,
    };
    let (marked, mark) = timed(|| estimate_prune(repository, &options, &[], stop))?;
    let (snapshots, unreadable) = snapshot::list(repository.store.as_ref())?;
    if marked.snapshots != versions.len() as u64 || !unreadable.is_empty() {
        return Err(Error::Usage(format!("{} of {} snapshots were marked", marked.snapshots, versions.len())));
    }
    let mut ids: Vec<_> = snapshots.iter().map(|named| (named.snapshot.started_ns(), named.id)).collect();
    ids.sort_unstable_by_key(|(started, _)| *started);
    let older: Vec<_> = ids.iter().take(versions.len() / 2).map(|(_, id)| *id).collect();
    forget(repository, &older)?;
    let (swept, sweep) = timed(|| prune(repository, &options, stop))?;
    if let Some((report, version)) = newest {
        let paths = std::slice::from_ref(version);
        bench.restore(repository, &case.config, &report, paths, PageCache::Warm)?;
    }
    let after = repository_stats(repository)?;
    Ok(Collected {
        checkpoints: versions.len(),
        live: stats.chunks,
        mark,
        sweep,
        stored: stats.stored_bytes.total,
        freed: freed(&swept, stats.stored_bytes.total, after.stored_bytes.total)?,
    })
}

/// Bytes that a prune gave back.
///
/// # Errors
/// [`Error::Usage`] if it withdrew: then its time is that of nothing.
fn freed(swept: &PruneReport, before: u64, after: u64) -> Result<u64> {
    match swept.withdrawn {
        true => Err(Error::Usage("the prune withdrew for another one".into())),
        false => Ok(before.saturating_sub(after)),
    }
}

/// Milliseconds that `work` takes.
fn timed(work: impl FnOnce() -> Result<PruneReport>) -> Result<(PruneReport, f64)> {
    let start = Instant::now();
    let report = work()?;
    Ok((report, 1e3 * start.elapsed().as_secs_f64()))
}

/// The lines of a case: one for each number of checkpoints, with medians of the rounds.
fn lines(source: &SetSource, case: &Case, outcome: &Result<Vec<Vec<Collected>>, String>) -> Vec<Value> {
    let chunk_bytes = case.config.repository.chunk_bytes_avg.0;
    let of_rounds = match outcome {
        Err(error) => {
            let name = json!({"set": source.name, "scheme": case.scheme, "chunk_bytes": chunk_bytes});
            let mut failed = name;
            failed["failure"] = json!(error);
            return vec![failed];
        }
        Ok(of_rounds) => of_rounds,
    };
    let at = |number: usize| {
        let all: Vec<&Collected> = of_rounds.iter().filter_map(|round| round.get(number)).collect();
        let times = |value: fn(&Collected) -> f64| all.iter().map(|one| value(one)).collect::<Vec<f64>>();
        let bytes = |value: fn(&Collected) -> u64| median_u64(all.iter().map(|one| value(one)));
        let (mark, sweep) = (times(|one| one.mark), times(|one| one.sweep));
        let mut parameters = json!(case.parameters);
        parameters["checkpoints"] = json!(all.first().map_or(0, |one| one.checkpoints));
        json!({
            "set": source.name, "scheme": case.scheme, "chunk_bytes": chunk_bytes, "parameters": parameters,
            "live": bytes(|one| one.live), "stored": bytes(|one| one.stored), "freed": bytes(|one| one.freed),
            "mark_ms": median(mark.iter().copied()), "mark_noise": noise(&[mark]),
            "sweep_ms": median(sweep.iter().copied()), "sweep_noise": noise(&[sweep]),
        })
    };
    (0..of_rounds.first().map_or(0, Vec::len)).map(at).collect()
}

fn cells(line: &Value) -> Vec<String> {
    let number = |key: &str| line.get(key).and_then(Value::as_f64);
    if let Some(failure) = line.get("failure").and_then(Value::as_str) {
        return vec![format!("FAILED: {failure}")];
    }
    let checkpoints = line.pointer("/parameters/checkpoints").and_then(Value::as_u64).unwrap_or_default();
    let bytes = |key: &str| mb(number(key).unwrap_or_default() as u64);
    let time = |key: &str| or_dash(number(key), |ms| format!("{ms:.1}"));
    vec![
        format!("{:.0}", number("chunk_bytes").unwrap_or_default() / 1024.0),
        checkpoints.to_string(),
        or_dash(number("live"), |live| format!("{live:.0}")),
        time("mark_ms"),
        time("sweep_ms"),
        bytes("stored"),
        bytes("freed"),
    ]
}

/// Runs the comparison and prints a line for each scheme and number of checkpoints.
///
/// # Errors
/// A missing set; [`Error::Interrupted`]. Cases that fail are lines.
pub fn run(comparison: &Comparison, stop: &Arc<AtomicBool>, out: &mut dyn Write) -> Result<Report> {
    let sources = comparison.sources()?;
    let bench = Workbench::new(&comparison.work, stop)?;
    let (mut all, mut rows, mut plots) = (Vec::new(), Vec::new(), Vec::new());
    write_line(out, "set", "scheme", &TITLES)?;
    for source in &sources {
        let versions = versions_of(&source.paths, comparison.versions)?;
        versions.iter().try_for_each(|path| warm(path).map(drop))?;
        let outcomes = rounds(&comparison.cases, (comparison.warm_up, comparison.repeats), |case| {
            measure(&bench, comparison, case, &versions, stop)
        })?;
        let mut series = Vec::new();
        for (case, outcome) in comparison.cases.iter().zip(&outcomes) {
            let of_case = lines(source, case, outcome);
            let point = |line: &Value| Some((line.get("live")?.as_f64()?, line.get("mark_ms")?.as_f64()?));
            series.push((case.scheme.clone(), of_case.iter().filter_map(point).collect()));
            for line in &of_case {
                write_line(out, &source.name, &case.scheme, &cells(line))?;
                rows.push([source.name.clone(), case.scheme.clone()].into_iter().chain(cells(line)).collect());
            }
            all.extend(of_case);
        }
        flush(out)?;
        plots.push(Plot::Lines {
            title: format!("{}: time to mark", source.name),
            across: "live chunks".into(),
            unit: "ms".into(),
            scales: Scales::default(),
            series,
        });
    }
    bench.clear()?;
    let columns = ["set", "scheme"].into_iter().chain(TITLES).map(str::to_string).collect();
    Ok(Report {
        title: comparison.title.clone(),
        failures: all.iter().filter(|line| line.get("failure").is_some()).count(),
        grids: vec![Grid { title: String::new(), columns, rows }],
        plots,
        lines: all,
        ..Report::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_live_grows_with_the_checkpoints_and_a_sweep_frees_the_older_half() {
        let directory = tempfile::tempdir().unwrap();
        let text = format!(
            "kind = \"collection\"\ncorpus = {0:?}\nwork = {0:?}\nat = [2, 4, 9]\nrepeats = 2\nsets = [{{ name = \
            \"sweep\", generate = {{ seed = 1, sweep = {{ runs = 1, epochs = 4, tensors = 2, backbone_values = 4000, \
            head_values = 60000 }} }} }}]\n[[scheme]]\nname = \"default\"\n",
            directory.path()
        );
        let comparison = Comparison::parse(&text, "x.toml".as_ref()).unwrap();
        let report = run(&comparison, &Arc::default(), &mut std::io::sink()).unwrap();
        assert_eq!((report.lines.len(), report.failures, report.plots.len()), (2, 0, 1), "{:?}", report.lines);
        let of = |number: usize, key: &str| report.lines[number][key].as_f64().unwrap();
        assert!(of(1, "live") > of(0, "live") && of(1, "mark_noise") >= 0.0, "{:?}", report.lines);
        assert_eq!((&report.lines[0]["parameters"]["checkpoints"], of(0, "mark_ms") > 0.0), (&json!(2), true));
        // Heads of 240 kB differ in every checkpoint, and two of four are forgotten.
        assert!((300_000.0..500_000.0).contains(&of(1, "freed")) && of(1, "sweep_ms") > 0.0, "{:?}", report.lines);
    }

    #[test]
    fn a_prune_that_withdrew_has_no_time() {
        assert_eq!(freed(&PruneReport::default(), 9, 4).unwrap(), 5);
        let withdrawn = PruneReport { withdrawn: true, ..PruneReport::default() };
        assert!(freed(&withdrawn, 9, 4).unwrap_err().to_string().contains("withdrew"));
    }
}
