//! The committed measurements: every file below configs/ is valid, and the quick one runs with the committed sample.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fhrd::bench::agreement::Agreement;
use fhrd::bench::comparison::Comparison;
use fhrd::bench::experiment::Experiment;
use fhrd::bench::report::{ReportDocument, write};
use fhrd::config::{Config, StrategyKind};
use serde_json::Value;

fn toml_files(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(toml_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "toml") {
            files.push(path);
        }
    }
    files.sort();
    files
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn every_committed_configuration_is_valid() {
    let (mut measurements, mut schemes) = (0, 0);
    for path in toml_files(&root().join("configs")) {
        let text = std::fs::read_to_string(&path).unwrap();
        let table: toml::Table = toml::from_str(&text).unwrap();
        if table.contains_key("kind") {
            let experiment = Experiment::parse(&text, &path).unwrap_or_else(|error| panic!("{error}"));
            let outline = experiment.outline();
            assert!(!outline.runs.is_empty(), "{} runs nothing", path.display());
            measurements += 1;
        } else {
            Config::load(&path).unwrap_or_else(|error| panic!("{error}"));
            schemes += 1;
        }
        let head = text.lines().next().unwrap_or_default();
        assert!(head.starts_with("# "), "{} has no description in its first line", path.display());
    }
    assert!(measurements >= 8 && schemes >= 11, "{measurements} measurements, {schemes} schemes");
}

/// The quick measurement on the sample, with its own work directory.
fn quick(work: &Path) -> (Experiment, String, PathBuf) {
    let path = root().join("configs/bench/quick.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let corpus = root().join("datasets/sample");
    let text = text
        .replace("corpus = \"datasets/sample\"", &format!("corpus = {corpus:?}"))
        .replace("repeats = 11", "repeats = 3")
        .replace("work = \"target/bench\"", &format!("work = {work:?}"));
    (Experiment::parse(&text, &path).unwrap(), text, path)
}

#[test]
fn the_quick_measurement_runs_offline_with_equal_ratios_in_two_runs() {
    let directory = tempfile::tempdir().unwrap();
    let (experiment, text, path) = quick(&directory.path().join("work"));
    assert_eq!(experiment.outline().missing, [""; 0], "all its data is committed");
    let run = || {
        let mut printed = Vec::new();
        let report = experiment.run(&Arc::default(), &mut printed).unwrap();
        assert_eq!(report.failures, 0, "{}", String::from_utf8_lossy(&printed));
        report
    };
    let (first, second) = (run(), run());
    let ratios = |lines: &[Value]| -> Vec<(String, String, f64)> {
        let text = |line: &Value, key: &str| line[key].as_str().unwrap().to_string();
        lines.iter().map(|line| (text(line, "set"), text(line, "scheme"), line["ratio"].as_f64().unwrap())).collect()
    };
    assert_eq!(ratios(&first.lines), ratios(&second.lines));
    for speed in ["backup_mb_per_normalised_s", "backup_noise", "restore_mb_per_normalised_s", "restore_noise"] {
        assert!(first.lines.iter().all(|line| line[speed].as_f64().is_some_and(|value| value > 0.0)), "{speed}");
    }
    let previous = serde_json::json!({"lines": first.lines}).to_string();
    let agreement = Agreement::of(&second.lines, &previous, "the first").unwrap();
    assert!(agreement.has_same_ratios() && agreement.unmatched.is_empty(), "{agreement}");
    assert_eq!((agreement.ratios, agreement.speeds), (first.lines.len(), 2 * first.lines.len()));
    let claims: Vec<_> = experiment.claims().iter().map(|claim| claim.judge(&first.lines)).collect();
    assert!(!claims.is_empty() && claims.iter().all(|verdict| verdict.measured.is_some()), "{claims:?}");
    let out = directory.path().join("report");
    let document = ReportDocument::new(&first, claims, (&path, &text), (String::new(), 1.0));
    write(&out, &first, &document).unwrap();
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.matches("<svg").count() >= 3 + 2 * first.profiles.len(), "three plots, and two of each run");
    let histograms = std::fs::read_dir(out.join("histograms")).unwrap().count();
    assert!(histograms >= 2 * 9, "{histograms} histograms");
}

#[test]
fn the_strategies_measurement_compares_every_strategy() {
    let text = include_str!("../../configs/bench/strategies.toml");
    let bench = Comparison::parse(text, "configs/bench/strategies.toml".as_ref()).unwrap();
    let mut compared: Vec<StrategyKind> = bench.cases.iter().map(|case| case.config.subdedup.strategy).collect();
    compared.dedup();
    assert_eq!(compared, StrategyKind::ALL);
}
