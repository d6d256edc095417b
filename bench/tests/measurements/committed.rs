//! The committed measurements: every file below configs/ is valid, and the quick one runs with the committed sample.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fhrd::config::{Config, StrategyKind};
use fhrd_bench::agreement::Agreement;
use fhrd_bench::claim::{Claim, Measure, VerdictKind};
use fhrd_bench::comparison::Comparison;
use fhrd_bench::experiment::{Experiment, parse};
use fhrd_bench::page::planned;
use fhrd_bench::report::{ReportDocument, write};
use serde_json::Value;

use super::below_checkout;

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

#[test]
fn every_committed_configuration_is_valid() {
    let (mut measurements, mut schemes) = (0, 0);
    for path in toml_files(&below_checkout("configs")) {
        let text = std::fs::read_to_string(&path).unwrap();
        let table: toml::Table = toml::from_str(&text).unwrap();
        if table.contains_key("kind") {
            for part in planned(&path).unwrap_or_else(|error| panic!("{error}")) {
                assert!(!part.experiment.outline().runs.is_empty(), "{} runs nothing", part.path.display());
            }
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
    let path = below_checkout("configs/bench/quick.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let corpus = below_checkout("datasets/sample");
    let text = text
        .replace("corpus = \"datasets/sample\"", &format!("corpus = {corpus:?}"))
        .replace("repeats = 11", "repeats = 3")
        .replace("work = \"target/bench\"", &format!("work = {work:?}"));
    (parse(&text, &path).unwrap(), text, path)
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
    let claims = experiment.judge(&first.lines);
    assert!(!claims.is_empty() && claims.iter().all(|verdict| verdict.measured.is_some()), "{claims:?}");
    let out = directory.path().join("report");
    let document = ReportDocument::new(&first, claims, (&path, &text), (String::new(), 1.0));
    write(&out, &first, &document).unwrap();
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.matches("<svg").count() >= 3 + 2 * first.profiles.len(), "three plots, and two of each run");
    let histograms = std::fs::read_dir(out.join("histograms")).unwrap().count();
    assert!(histograms >= 2 * 9, "{histograms} histograms");
}

/// The claims of every committed measurement, each with the path of its file.
fn committed_claims() -> Vec<(PathBuf, Claim)> {
    let paths = toml_files(&below_checkout("configs/bench"));
    let claims = |path: &PathBuf| {
        let own = planned(path).unwrap_or_else(|error| panic!("{error}"));
        let claims = own.iter().flat_map(|part| part.experiment.claims().to_vec()).collect::<Vec<_>>();
        claims.into_iter().map(|claim| (path.clone(), claim)).collect::<Vec<_>>()
    };
    paths.iter().flat_map(claims).collect()
}

#[test]
fn a_remark_has_no_figure_of_another_run() {
    let claims = committed_claims();
    assert!(claims.len() > 300, "{}", claims.len());
    for (path, claim) in claims {
        // The form of the page that measures a row is not known when its remark is written.
        assert!(!claim.remark.contains("complete form"), "{}: {}", path.display(), claim.remark);
    }
}

#[test]
fn a_figure_that_is_a_time_has_noise() {
    let is_time = |figure: &str| ["_s", "_us", "_ms", "_seconds"].iter().any(|end| figure.ends_with(end));
    let mut times = 0;
    for (path, claim) in committed_claims().into_iter().filter(|(_, claim)| is_time(&claim.figure)) {
        let line = serde_json::json!({"set": "x", claim.figure.clone(): 1.0});
        let timed = Claim {
            of: [("set".to_string(), "x".into())].into(),
            over: None,
            measure: Measure::Value,
            other_data: None,
            by_construction: None,
            ..claim
        };
        let verdict = timed.judge(&[line]).verdict;
        assert_eq!(verdict, VerdictKind::TooNoisy, "{}: {} has no field of noise", path.display(), timed.figure);
        times += 1;
    }
    assert!(times > 20, "{times}");
}

#[test]
fn the_strategies_measurement_compares_every_strategy() {
    let text = include_str!("../../../configs/bench/strategies.toml");
    let bench = Comparison::parse(text, "configs/bench/strategies.toml".as_ref()).unwrap();
    let mut compared: Vec<StrategyKind> = bench.cases.iter().map(|case| case.config.subdedup.strategy).collect();
    compared.dedup();
    assert_eq!(compared, StrategyKind::ALL);
}

/// The keys of the tables of docs/BENCH.md by heading.
fn documented_keys() -> BTreeMap<String, BTreeSet<String>> {
    let page = std::fs::read_to_string(below_checkout("docs/BENCH.md")).unwrap();
    let (mut heading, mut keys) = (String::new(), BTreeMap::<String, BTreeSet<String>>::new());
    for line in page.lines() {
        if let Some(text) = line.strip_prefix("### ").or_else(|| line.strip_prefix("#### ")) {
            heading = text.replace('`', "");
        } else if let Some(row) = line.strip_prefix("| `") {
            let key = row.split('`').next().unwrap().to_string();
            keys.entry(heading.clone()).or_default().insert(key);
        }
    }
    keys
}

/// The keys that a table knows: those in the error about one that it does not know.
fn known_keys(text: &str) -> BTreeSet<String> {
    let error = match parse(text, Path::new("x.toml")) {
        Ok(_) => panic!("{text} has an unknown key"),
        Err(error) => error.to_string(),
    };
    let (_, expected) = error.split_once("unknown field `zzz`, expected ").unwrap_or_else(|| panic!("{text}: {error}"));
    let list = expected.lines().next().unwrap();
    list.split('`').skip(1).step_by(2).map(str::to_string).collect()
}

#[test]
fn every_key_of_a_measurement_is_documented() {
    let documented = documented_keys();
    let refused = parse("kind = \"magic\"", Path::new("x.toml")).err().unwrap().to_string();
    let kinds: Vec<String> = refused.split('`').skip(1).step_by(2).map(str::to_string).collect();
    let kinds: Vec<&str> =
        kinds.iter().map(String::as_str).filter(|kind| !["kind", "magic", "page"].contains(kind)).collect();
    assert!(kinds.len() >= 11 && kinds.contains(&"schemes"), "{kinds:?}");
    let mut tables: Vec<(String, String)> =
        kinds.iter().map(|kind| (kind.to_string(), format!("kind = \"{kind}\"\nzzz = 1\n"))).collect();
    let within = |heading: &str, kind: &str, text: &str| (heading.to_string(), format!("kind = \"{kind}\"\n{text}"));
    tables.extend([
        within("[[scheme]]", "schemes", "[[scheme]]\nzzz = 1\n"),
        within("[[sweep]]", "schemes", "[[sweep]]\nzzz = 1\n"),
        within("[[class]] of codecs", "codecs", "[[class]]\nzzz = 1\n"),
        within("[[class]] of codecs", "bits", "[[class]]\nzzz = 1\n"),
        within("[[class]] of entropies", "entropies", "[[class]]\nzzz = 1\n"),
        within("[[class]] of identify", "identify", "[[class]]\nzzz = 1\n"),
        within("[[chunker]]", "chunkers", "[[chunker]]\nzzz = 1\n"),
        within("[[program]]", "program", "[[program]]\nzzz = 1\n"),
        within("[[untested]]", "untested", "[[untested]]\nzzz = 1\n"),
        within("[[claim]]", "codecs", "[[claim]]\nzzz = 1\n"),
        within("rule", "codecs", "[[claim]]\nrule = { zzz = 1 }\n"),
        within("set", "schemes", "sets = [{ zzz = 1 }]\n"),
        within("mix", "schemes", "sets = [{ name = \"x\", mix = { zzz = 1 } }]\n"),
        within("generate", "schemes", "sets = [{ name = \"x\", generate = { zzz = 1 } }]\n"),
    ]);
    for part in ["models", "text", "images", "sweep", "trees"] {
        let text = format!("sets = [{{ name = \"x\", generate = {{ seed = 1, {part} = {{ zzz = 1 }} }} }}]\n");
        tables.push(within(&format!("generate.{part}"), "schemes", &text));
    }
    for (heading, text) in &tables {
        assert_eq!(documented.get(heading), Some(&known_keys(text)), "docs/BENCH.md, {heading}");
    }
    let directory = tempfile::tempdir().unwrap();
    let of_pages = ["page", "[[measurement]]", "[[paper]]"];
    for (heading, text) in
        of_pages.iter().map(|name| (*name, format!("{}\nzzz = 1\n", name.trim_start_matches("page"))))
    {
        let path = directory.path().join("page.toml");
        std::fs::write(&path, format!("kind = \"page\"\n{text}")).unwrap();
        let error = planned(&path).err().unwrap().to_string();
        let known: BTreeSet<String> = error
            .split_once("expected ")
            .unwrap()
            .1
            .lines()
            .next()
            .unwrap()
            .split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_string)
            .collect();
        assert_eq!(documented.get(heading), Some(&known), "docs/BENCH.md, {heading}");
    }
}
