//! The manifests of the data: each experiment's sets are described, and what is committed is as described.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use fhrd_bench::data::paths_read;
use toml::{Table, Value};

use super::below_checkout;

/// Every TOML file of a directory with its name.
fn tables(directory: &str) -> Vec<(String, Table)> {
    let paths = std::fs::read_dir(below_checkout(directory)).unwrap().map(|entry| entry.unwrap().path());
    let paths = paths.filter(|path| path.extension().is_some_and(|extension| extension == "toml"));
    let table = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        (name, toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
    };
    paths.map(table).collect()
}

fn strings(value: Option<&Value>) -> Vec<&str> {
    value.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The tables that a value is or lists.
fn tables_in(value: &Value) -> impl Iterator<Item = &Table> {
    value.as_table().into_iter().chain(value.as_array().into_iter().flatten().filter_map(Value::as_table))
}

/// Everything that an experiment has made.
fn generates(experiment: &Table) -> Vec<&Table> {
    let below = experiment.values().flat_map(tables_in).flat_map(generates);
    experiment.get("generate").and_then(Value::as_table).into_iter().chain(below).collect()
}

fn files(manifest: &Table) -> impl Iterator<Item = &Value> {
    manifest.get("files").and_then(Value::as_array).into_iter().flatten()
}

/// Whether a manifest has a file that is `path`, lies below it, or below what fits its pattern.
fn describes(manifest: &Table, prefix: &str, path: &str) -> bool {
    let path = format!("{prefix}{path}");
    let pattern = glob::Pattern::new(&path).unwrap();
    let fits = |file: &Path| file == Path::new(&path) || pattern.matches_path(file);
    files(manifest).filter_map(|file| file["path"].as_str()).any(|file| Path::new(file).ancestors().any(fits))
}

#[test]
fn every_path_of_an_experiment_is_in_a_manifest_that_names_it() {
    let manifests = tables("datasets/manifests");
    let (mut read, mut named) = (0, BTreeSet::new());
    for (name, experiment) in tables("configs/bench") {
        let prefix = experiment.get("corpus").map_or_else(String::new, |place| format!("{}/", place.as_str().unwrap()));
        let own = || manifests.iter().filter(|(_, table)| strings(table.get("experiments")).contains(&name.as_str()));
        for path in paths_read(&experiment) {
            let found = own().any(|(_, manifest)| describes(manifest, &prefix, &path));
            assert!(found, "no manifest that names `{name}` describes {path}");
            read += 1;
        }
        named.insert(name);
    }
    assert!(read > 40, "{read} paths were found");
    for (manifest, table) in &manifests {
        let experiments = strings(table.get("experiments"));
        assert!(!experiments.is_empty() && experiments.iter().all(|name| named.contains(*name)), "{manifest}");
        for key in ["source", "licence", "build", "reproducible"] {
            assert!(table.get(key).is_some_and(Value::is_str), "{manifest} has no `{key}`");
        }
    }
}

#[test]
fn every_file_of_a_manifest_is_pinned() {
    let mut pinned = 0;
    for (name, manifest) in tables("datasets/manifests") {
        // Files of the machine that builds it: a row that reads them says that nothing pins them.
        let is_of_machine = name == "extra";
        for file in files(&manifest) {
            let sum = file.get("sha256").and_then(Value::as_str);
            let is_pin = sum.is_some_and(|sum| sum.len() == 64) && file.get("bytes").is_some_and(Value::is_integer);
            assert!(is_pin || is_of_machine, "{name}: {file} has no checksum");
            pinned += usize::from(is_pin);
        }
    }
    assert!(pinned > 150, "{pinned}");
}

#[test]
fn the_committed_sample_is_as_its_manifest_says() {
    let manifests = tables("datasets/manifests");
    let (_, sample) = manifests.iter().find(|(name, _)| name == "sample").unwrap();
    let sums = std::fs::read_to_string(below_checkout("datasets/sample/SHA256SUMS")).unwrap();
    let mut lines = 0;
    for file in files(sample) {
        let path = file["path"].as_str().unwrap();
        let bytes = std::fs::metadata(below_checkout(path)).unwrap().len();
        assert_eq!(Some(bytes), file["bytes"].as_integer().map(|bytes| bytes as u64), "{path}");
        let line = format!("{}  {}", file["sha256"].as_str().unwrap(), path.strip_prefix("datasets/sample/").unwrap());
        assert!(sums.lines().any(|sum| sum == line), "{path} has another checksum in SHA256SUMS");
        lines += 1;
    }
    assert_eq!(lines, sums.lines().count());
}

#[test]
fn what_is_generated_is_as_its_manifest_says() {
    let manifests = tables("datasets/manifests");
    let (_, generated) = manifests.iter().find(|(name, _)| name == "generated").unwrap();
    let mut seeds = 0;
    for (name, experiment) in tables("configs/bench") {
        for made in generates(&experiment) {
            let is_it = |described: &Table| {
                let mut described = described.clone();
                let listed = described.remove("seeds").unwrap();
                let has_seed = listed.as_array().unwrap().contains(&made["seed"]);
                described.insert("seed".into(), made["seed"].clone());
                has_seed && described == *made
            };
            assert!(tables_in(&generated[&name]).any(is_it), "{name}: {made}");
            seeds += 1;
        }
    }
    assert!(seeds >= 16, "{seeds}");
}
