//! The manifests of the data: each experiment's sets are described, and what is committed is as described.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

fn below_checkout(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)
}

/// Every TOML file of a folder with its name.
fn tables(folder: &str) -> Vec<(String, Table)> {
    let paths = std::fs::read_dir(below_checkout(folder)).unwrap().map(|entry| entry.unwrap().path());
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

/// Paths and patterns that an experiment reads in the corpus.
fn paths_read(experiment: &Table) -> Vec<&str> {
    let mut paths = strings(experiment.get("streams"));
    let tables = |key: &str| experiment.get(key).and_then(Value::as_array).into_iter().flatten();
    for set in tables("sets").chain(tables("family")) {
        paths.extend(set.as_str());
        paths.extend(strings(set.get("paths")));
        let mix = set.get("mix");
        paths.extend(["models", "others"].iter().flat_map(|side| strings(mix.and_then(|mix| mix.get(*side)))));
    }
    for class in tables("class") {
        paths.extend(strings(class.get("files")));
        paths.extend(class.get("base").and_then(Value::as_str));
    }
    paths
}

fn files(manifest: &Table) -> impl Iterator<Item = &Value> {
    manifest.get("files").and_then(Value::as_array).into_iter().flatten()
}

/// Whether a manifest has a file that is `path`, lies below it, or fits its pattern or lies below what does.
fn describes(manifest: &Table, prefix: &str, path: &str) -> bool {
    let path = format!("{prefix}{path}");
    let pattern = glob::Pattern::new(&path).unwrap();
    files(manifest)
        .filter_map(|file| file["path"].as_str())
        .any(|file| Path::new(file).ancestors().any(|place| place == Path::new(&path) || pattern.matches_path(place)))
}

#[test]
fn every_path_of_an_experiment_is_in_a_manifest_that_names_it() {
    let manifests = tables("datasets/manifests");
    let (mut read, mut named) = (0, BTreeSet::new());
    for (name, experiment) in tables("configs/bench") {
        let prefix = experiment.get("corpus").map_or_else(String::new, |place| format!("{}/", place.as_str().unwrap()));
        let own = || manifests.iter().filter(|(_, table)| strings(table.get("experiments")).contains(&name.as_str()));
        for path in paths_read(&experiment) {
            let found = own().any(|(_, manifest)| describes(manifest, &prefix, path));
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
fn the_generated_set_is_what_the_quick_experiment_makes() {
    let manifests = tables("datasets/manifests");
    let (_, generated) = manifests.iter().find(|(name, _)| name == "generated").unwrap();
    let experiments = tables("configs/bench");
    let (_, quick) = experiments.iter().find(|(name, _)| name == "quick").unwrap();
    let sets = quick["sets"].as_array().unwrap();
    let made = sets.iter().find_map(|set| set.get("generate")).unwrap();
    assert_eq!(made, &generated["quick"]);
}
