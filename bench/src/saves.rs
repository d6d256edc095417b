//! Latency of saving and loading checkpoints (TensorCAS): the files of a set are backed up one after another into one
//! repository. After the numbers of checkpoints that `at` lists, the newest one is restored.
//!
//! Each number has a line for each scheme: the median wall time of the saves since the number before, without the first
//! save of a repository, and of the restore. Both are whole operations in one process. A save reads the file, splits,
//! hashes and stores it, and writes a snapshot. A load opens the snapshot and writes the file.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fhrd::error::Result;
use fhrd::store::BlobPrefix;
use serde_json::{Value, json};

use super::comparison::{Case, Comparison};
use super::data::SetSource;
use super::report::{Grid, Plot, Report, Scales};
use super::speed::noise;
use super::table::{flush, mb, or_dash, write_line};
use super::versions::versions_of;
use super::workbench::{PageCache, Workbench, median, rounds, warm};

/// Times after one number of checkpoints, milliseconds.
#[derive(Debug, Clone, PartialEq, Default)]
struct Stop {
    checkpoints: usize,
    saves: Vec<f64>,
    load: f64,
    stored: u64,
}

const TITLES: [&str; 5] = ["chunk KiB", "number", "save ms", "load ms", "MB stored"];

/// One round: saves all versions and loads the newest at each stop.
fn measure(bench: &Workbench, comparison: &Comparison, case: &Case, versions: &[PathBuf]) -> Result<Vec<Stop>> {
    let repository = bench.repository(&case.config)?;
    let (mut stops, mut saves) = (Vec::new(), Vec::new());
    for (number, version) in (1..).zip(versions) {
        let paths = std::slice::from_ref(version);
        let (report, cost) = bench.backup(&repository, &case.config, paths)?;
        if number > 1 {
            saves.push(1e3 * cost.wall_seconds);
        }
        if comparison.at.contains(&number) {
            let restored = bench.restore(&repository, &case.config, &report, paths, PageCache::Warm)?;
            stops.push(Stop {
                checkpoints: number,
                saves: std::mem::take(&mut saves),
                load: 1e3 * restored.cost.wall_seconds,
                stored: repository.store.list(BlobPrefix::All)?.iter().map(|blob| blob.len).sum(),
            });
        }
    }
    bench.discard(&repository)?;
    Ok(stops)
}

/// A stop of all rounds together: medians of its times, with their noise.
#[derive(Debug, Clone, PartialEq)]
struct MergedStop {
    checkpoints: usize,
    save: Option<f64>,
    save_noise: Option<f64>,
    load: f64,
    load_noise: Option<f64>,
    stored: u64,
}

/// The stops of all rounds together.
fn merged(rounds: &[Vec<Stop>]) -> Vec<MergedStop> {
    let count = rounds.first().map_or(0, Vec::len);
    let at = |number: usize| {
        let stops: Vec<&Stop> = rounds.iter().filter_map(|stops| stops.get(number)).collect();
        let saves: Vec<f64> = stops.iter().flat_map(|stop| stop.saves.iter().copied()).collect();
        let loads: Vec<f64> = stops.iter().map(|stop| stop.load).collect();
        let (checkpoints, stored) = stops.first().map_or((0, 0), |stop| (stop.checkpoints, stop.stored));
        MergedStop {
            checkpoints,
            save: (!saves.is_empty()).then(|| median(saves.iter().copied())),
            save_noise: noise(&[saves]),
            load: median(loads.iter().copied()),
            load_noise: noise(&[loads]),
            stored,
        }
    };
    (0..count).map(at).collect()
}

fn lines(source: &SetSource, case: &Case, outcome: &Result<Vec<Vec<Stop>>, String>) -> Vec<Value> {
    let name =
        json!({"set": source.name, "scheme": case.scheme, "chunk_bytes": case.config.repository.chunk_bytes_avg.0});
    let with = |more: Value| {
        let mut line = name.clone();
        if let (Some(line), Value::Object(more)) = (line.as_object_mut(), more) {
            line.extend(more);
        }
        line
    };
    match outcome {
        Err(error) => vec![with(json!({"failure": error}))],
        Ok(rounds) => {
            let stops = merged(rounds);
            let line = |stop: &MergedStop| {
                let mut parameters = json!(case.parameters);
                if let Some(parameters) = parameters.as_object_mut() {
                    parameters.insert("checkpoints".into(), json!(stop.checkpoints));
                }
                with(json!({
                    "parameters": parameters, "stored": stop.stored,
                    "save_ms": stop.save, "save_noise": stop.save_noise,
                    "load_ms": stop.load, "load_noise": stop.load_noise,
                }))
            };
            stops.iter().map(line).collect()
        }
    }
}

fn cells(line: &Value) -> Vec<String> {
    let number = |key: &str| line.get(key).and_then(Value::as_f64);
    if let Some(failure) = line.get("failure").and_then(Value::as_str) {
        return vec![format!("FAILED: {failure}")];
    }
    let checkpoints = line.pointer("/parameters/checkpoints").and_then(Value::as_u64).unwrap_or_default();
    vec![
        format!("{:.0}", number("chunk_bytes").unwrap_or_default() / 1024.0),
        checkpoints.to_string(),
        or_dash(number("save_ms"), |ms| format!("{ms:.1}")),
        or_dash(number("load_ms"), |ms| format!("{ms:.1}")),
        mb(number("stored").unwrap_or_default() as u64),
    ]
}

/// Runs the comparison and prints a line for each scheme and number of checkpoints.
///
/// # Errors
/// A missing set; [`Error::Interrupted`](fhrd::error::Error::Interrupted). Cases that fail are lines.
pub fn run(comparison: &Comparison, stop: &Arc<AtomicBool>, out: &mut dyn Write) -> Result<Report> {
    let sources = comparison.sources()?;
    let bench = Workbench::new(&comparison.work, stop)?;
    let (mut all, mut rows, mut plots) = (Vec::new(), Vec::new(), Vec::new());
    write_line(out, "set", "scheme", &TITLES)?;
    for source in &sources {
        let versions = versions_of(&source.paths, comparison.versions)?;
        versions.iter().try_for_each(|path| warm(path).map(drop))?;
        let outcomes = rounds(&comparison.cases, (comparison.warm_up, comparison.repeats), |case| {
            measure(&bench, comparison, case, &versions)
        })?;
        let mut series = [Vec::new(), Vec::new()];
        for (case, outcome) in comparison.cases.iter().zip(&outcomes) {
            let of_case = lines(source, case, outcome);
            for (series, key) in series.iter_mut().zip(["save_ms", "load_ms"]) {
                series.push((case.scheme.clone(), points(&of_case, key)));
            }
            for line in &of_case {
                write_line(out, &source.name, &case.scheme, &cells(line))?;
                rows.push([source.name.clone(), case.scheme.clone()].into_iter().chain(cells(line)).collect());
            }
            all.extend(of_case);
        }
        flush(out)?;
        for (series, what) in series.into_iter().zip(["save", "load"]) {
            plots.push(Plot::Lines {
                title: format!("{}: time to {what} a checkpoint", source.name),
                across: "checkpoints in the repository".into(),
                unit: "ms".into(),
                scales: Scales::default(),
                series,
            });
        }
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

fn points(lines: &[Value], key: &str) -> Vec<(f64, f64)> {
    let point = |line: &Value| {
        let checkpoints = line.pointer("/parameters/checkpoints")?.as_f64()?;
        Some((checkpoints, line.get(key)?.as_f64()?))
    };
    lines.iter().filter_map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saves_and_loads_are_timed_at_each_number_of_checkpoints() {
        let directory = tempfile::tempdir().unwrap();
        let text = format!(
            "kind = \"saves\"\ncorpus = {0:?}\nwork = {0:?}\nat = [1, 3]\nrepeats = 2\nsets = [{{ name = \"trees\", \
            generate = {{ seed = 1, trees = {{ checkpoints = 3, trees = 4, added = 2, nodes = 9 }} }} }}]\n\
            [[scheme]]\nname = \"default\"\n",
            directory.path()
        );
        let comparison = Comparison::parse(&text, "x.toml".as_ref()).unwrap();
        let sets = comparison.sources().unwrap();
        assert_eq!(sets.len(), 1);
        let report = run(&comparison, &Arc::default(), &mut std::io::sink()).unwrap();
        assert_eq!((report.lines.len(), report.failures, report.plots.len()), (2, 0, 2), "{:?}", report.lines);
        assert!(report.lines[0]["save_ms"].is_null(), "the first save is left out");
        assert!(
            report.lines[1]["save_ms"].as_f64().unwrap() > 0.0 && report.lines[1]["load_ms"].as_f64().unwrap() > 0.0
        );
        assert_eq!(report.lines[1]["parameters"]["checkpoints"], 3);
    }

    #[test]
    fn rounds_are_merged_by_their_medians() {
        let stop = |saves: &[f64], load| Stop { checkpoints: 5, saves: saves.to_vec(), load, stored: 9 };
        let all = [vec![stop(&[1.0, 9.0], 4.0)], vec![stop(&[2.0], 6.0)]];
        let of_all = &merged(&all)[0];
        assert_eq!((of_all.checkpoints, of_all.save, of_all.load, of_all.stored), (5, Some(2.0), 5.0, 9));
        assert!(of_all.save_noise > of_all.load_noise && of_all.load_noise > Some(0.0), "{of_all:?}");
        assert_eq!(merged(&all[1..])[0].load_noise, None, "one round has no noise");
    }
}
