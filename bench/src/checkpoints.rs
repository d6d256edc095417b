//! Checkpoints of training runs: how many arrays stay the same, and what each unit of storage needs (TensorCAS).
//!
//! A run is a series of files. Its arrays are the tensors of model files, or those that `extract` names: for a JSON
//! document of XGBoost an array for each tree, and one for the document without its trees.
//!
//! - *no-op rate*: of the arrays that a step and the step before both have, the share that is the same. `first_rate`
//!   counts only the first arrays of the first step, as many as `first` says.
//! - *file*, *array*, *concatenated*: bytes of the distinct units. In the concatenated form, all arrays of a step whose
//!   names are equal but for numbers are one array.
//! - *compressed*: the distinct units, each with zstd.
//! - *chunks*: of the bytes of arrays that changed in a step, the share in chunks that this array had in the step
//!   before.

mod arrays;

use std::collections::{BTreeMap, HashSet};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytesize::ByteSize;
use fhrd::codec::{Codec, Scratch, Zstandard};
use fhrd::error::{Error, Result};
use serde::Deserialize;
use serde_json::{Value, json};

use self::arrays::{Extraction, concatenated};
use super::claim::Claim;
use super::comparison::{Versions, corpus_directory};
use super::data::{Set, set_with};
use super::measurement::{Measurement, Outline};
use super::report::{Grid, Report, pictures};
use super::table::{flush, mb, two, write_line};
use super::versions::versions_of;

/// Configuration of a measurement of checkpoints.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckpointBench {
    /// `"checkpoints"`.
    pub kind: String,
    /// Title of the report.
    #[serde(default = "title")]
    pub title: String,
    /// Directory that paths are relative to. Default: the environment's `FHRD_CORPUS`, else `corpus`.
    pub corpus: Option<PathBuf>,
    /// Directory for generated sets.
    pub work: PathBuf,
    /// Lengths of the chunks that are compared within changed arrays.
    #[serde(default = "chunk_bytes")]
    pub chunk_bytes: Vec<ByteSize>,
    /// Level of zstd.
    #[serde(default = "level")]
    pub level: i32,
    /// Runs.
    pub run: Vec<Run>,
    /// Claims of papers about the measured values.
    #[serde(default)]
    pub claim: Vec<Claim>,
}

/// A run, as the configuration describes it: a set, `extract` and `first`.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "toml::Value")]
pub struct Run {
    /// The files; those of a directory in the order of their names.
    pub steps: Set,
    /// How arrays are found.
    pub extract: Extraction,
    /// Arrays of the first step that `first_rate` counts.
    pub first: usize,
}

#[derive(Deserialize)]
struct RunKeys {
    #[serde(default)]
    extract: Extraction,
    #[serde(default = "first")]
    first: usize,
}

impl TryFrom<toml::Value> for Run {
    type Error = String;

    fn try_from(value: toml::Value) -> std::result::Result<Self, String> {
        let (RunKeys { extract, first }, steps) = set_with(value, &["extract", "first"])?;
        Ok(Run { steps, extract, first })
    }
}

fn title() -> String {
    "Checkpoints".into()
}
fn chunk_bytes() -> Vec<ByteSize> {
    vec![ByteSize::mib(1), ByteSize::kib(64), ByteSize::kib(4)]
}
fn level() -> i32 {
    3
}
fn first() -> usize {
    10
}

const TITLES: [&str; 7] = ["steps", "arrays", "no-op %", "MB", "MB stored", "times", "MB zstd"];
const UNITS: [&str; 3] = ["file", "array", "concatenated"];

impl CheckpointBench {
    /// Parses TOML text; `origin` names it in errors.
    ///
    /// # Errors
    /// [`Error::Config`] for syntax, unknown keys and unusable values.
    pub fn parse(text: &str, origin: &str) -> Result<Self> {
        let wrong = |message: String| Error::Config { origin: origin.into(), message };
        let config: CheckpointBench = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        if config.chunk_bytes.iter().any(|len| !(64..=64 << 20).contains(&len.0)) {
            return Err(wrong("`chunk_bytes` must be from 64 bytes to 64 MiB".into()));
        }
        Ok(config)
    }

    /// Runs with missing files, each with the reason. Reads no content.
    pub fn missing(&self) -> Vec<String> {
        let corpus = corpus_directory(self.corpus.as_deref());
        let reason = |run: &Run| run.steps.missing(&corpus).map(|reason| format!("run `{}`: {reason}", run.steps.name));
        self.run.iter().filter_map(reason).collect()
    }
}

/// Distinct units, raw and compressed.
#[derive(Default)]
struct Distinct {
    seen: HashSet<blake3::Hash>,
    stored: u64,
    compressed: u64,
}

/// Measurements of one run.
struct RunTally<'a> {
    config: &'a CheckpointBench,
    run: &'a Run,
    steps: u64,
    bytes: u64,
    units: [Distinct; 3],
    arrays: u64,
    compared: u64,
    identical: u64,
    /// Compared and identical ones of the first arrays.
    first: [u64; 2],
    first_names: Option<HashSet<String>>,
    changed_bytes: u64,
    /// Bytes of changed arrays in known chunks, for each chunk length.
    reused: Vec<u64>,
    before: BTreeMap<String, Vec<u8>>,
    scratch: Scratch,
}

impl<'a> RunTally<'a> {
    fn new(config: &'a CheckpointBench, run: &'a Run) -> Self {
        RunTally {
            config,
            run,
            steps: 0,
            bytes: 0,
            units: Default::default(),
            arrays: 0,
            compared: 0,
            identical: 0,
            first: [0; 2],
            first_names: None,
            changed_bytes: 0,
            reused: vec![0; config.chunk_bytes.len()],
            before: BTreeMap::new(),
            scratch: Scratch::default(),
        }
    }

    fn store(&mut self, unit: usize, bytes: &[u8]) -> Result<()> {
        let Some(distinct) = self.units.get_mut(unit) else { return Ok(()) };
        if distinct.seen.insert(blake3::hash(bytes)) {
            let mut out = Vec::new();
            Zstandard.encode(bytes, self.config.level, &mut self.scratch, &mut out)?;
            distinct.stored += bytes.len() as u64;
            distinct.compressed += out.len().min(bytes.len()) as u64;
        }
        Ok(())
    }

    /// Adds the next step.
    fn add(&mut self, content: Vec<u8>, origin: &std::path::Path) -> Result<()> {
        self.steps += 1;
        self.bytes += content.len() as u64;
        self.store(0, &content)?;
        let arrays = self.run.extract.arrays(&content, origin)?;
        self.arrays += arrays.len() as u64;
        for bytes in arrays.values() {
            self.store(1, bytes)?;
        }
        for bytes in concatenated(&arrays).values() {
            self.store(2, bytes)?;
        }
        let limit = self.run.first;
        let firsts = self.first_names.get_or_insert_with(|| arrays::first_names(&arrays, limit));
        for (name, bytes) in &arrays {
            let Some(before) = self.before.get(name) else { continue };
            let is_same = before == bytes;
            self.compared += 1;
            self.identical += u64::from(is_same);
            if firsts.contains(name) {
                self.first[0] += 1;
                self.first[1] += u64::from(is_same);
            }
            if !is_same {
                self.changed_bytes += bytes.len() as u64;
                for (len, reused) in self.config.chunk_bytes.iter().zip(&mut self.reused) {
                    let known: HashSet<&[u8]> = before.chunks(len.0 as usize).collect();
                    let chunks = bytes.chunks(len.0 as usize).filter(|chunk| known.contains(chunk));
                    *reused += chunks.map(|chunk| chunk.len() as u64).sum::<u64>();
                }
            }
        }
        self.before = arrays;
        Ok(())
    }

    fn lines(&self) -> Vec<Value> {
        let share = |part: u64, whole: u64| part as f64 / (whole as f64).max(1.0);
        let name = &self.run.steps.name;
        let rate = (self.compared > 0).then(|| share(self.identical, self.compared));
        let first_rate = (self.first[0] > 0).then(|| share(self.first[1], self.first[0]));
        let unit = |(unit, distinct): (&str, &Distinct)| {
            json!({
                "set": name, "method": unit, "steps": self.steps, "bytes": self.bytes, "stored": distinct.stored,
                "compressed": distinct.compressed, "ratio": share(self.bytes, distinct.stored),
                "compressed_ratio": share(self.bytes, distinct.compressed),
            })
        };
        let mut lines: Vec<Value> = UNITS.into_iter().zip(&self.units).map(unit).collect();
        lines.push(json!({
            "set": name, "method": "no-op", "steps": self.steps, "arrays": self.arrays, "compared": self.compared,
            "identical": self.identical, "rate": rate, "first_rate": first_rate,
        }));
        for (len, reused) in self.config.chunk_bytes.iter().zip(&self.reused) {
            let reuse = (self.changed_bytes > 0).then(|| share(*reused, self.changed_bytes));
            let parameters = json!({"chunk": len.0});
            lines.push(json!({
                "set": name, "method": "chunks", "parameters": parameters, "changed_bytes": self.changed_bytes,
                "reused": reuse,
            }));
        }
        lines
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let rate = 100.0 * self.identical as f64 / (self.compared as f64).max(1.0);
        let row = |(unit, distinct): (&str, &Distinct)| {
            vec![
                self.run.steps.name.clone(),
                unit.to_string(),
                self.steps.to_string(),
                self.arrays.to_string(),
                two(rate),
                mb(self.bytes),
                mb(distinct.stored),
                two(self.bytes as f64 / (distinct.stored as f64).max(1.0)),
                mb(distinct.compressed),
            ]
        };
        UNITS.into_iter().zip(&self.units).map(row).collect()
    }
}

impl Measurement for CheckpointBench {
    fn claims(&self) -> &[Claim] {
        &self.claim
    }

    fn outline(&self) -> Outline {
        Outline::of("run", self.run.iter().map(|run| &run.steps.name), self.missing())
    }

    fn run(&self, stop: &Arc<AtomicBool>, out: &mut dyn Write) -> Result<Report> {
        run(self, stop, out)
    }
}

/// Measures every run and prints a line for each unit.
///
/// # Errors
/// A checkpoint that cannot be read; [`Error::Interrupted`].
fn run(config: &CheckpointBench, stop: &Arc<AtomicBool>, out: &mut dyn Write) -> Result<Report> {
    let corpus = corpus_directory(config.corpus.as_deref());
    write_line(out, "run", "unit", &TITLES)?;
    let (mut lines, mut rows, mut reuse) = (Vec::new(), Vec::new(), Vec::new());
    for run in &config.run {
        let mut tally = RunTally::new(config, run);
        for source in run.steps.sources(&corpus, &config.work.join("sets"))? {
            for file in versions_of(&source.paths, Versions::Files)? {
                if stop.load(Ordering::Relaxed) {
                    return Err(Error::Interrupted);
                }
                let content = std::fs::read(&file).map_err(|error| Error::io("read", &file, error))?;
                tally.add(content, &file)?;
            }
        }
        for row in tally.rows() {
            if let [name, unit, cells @ ..] = row.as_slice() {
                write_line(out, name, unit, cells)?;
            }
            rows.push(row);
        }
        let of_run = tally.lines();
        reuse.extend(of_run.iter().filter(|line| line.get("parameters").is_some()).map(reuse_row));
        lines.extend(of_run);
        flush(out)?;
    }
    let columns = ["run", "unit"].into_iter().chain(TITLES).map(str::to_string).collect();
    let chunks = ["run", "chunk bytes", "MB of changed arrays", "reused %"].map(str::to_string).to_vec();
    let stored: Vec<Value> = lines.iter().filter(|line| line.get("stored").is_some()).cloned().collect();
    Ok(Report {
        title: config.title.clone(),
        grids: vec![
            Grid { title: String::new(), columns, rows },
            Grid { title: "Chunks within changed arrays".into(), columns: chunks, rows: reuse },
        ],
        plots: pictures(&stored, &[("ratio", "Ratio of all checkpoints to distinct units", "times")]),
        lines,
        ..Report::default()
    })
}

fn reuse_row(line: &Value) -> Vec<String> {
    let number = |key: &str| line.get(key).and_then(Value::as_f64);
    let chunk = line.get("parameters").and_then(|of| of.get("chunk")).and_then(Value::as_u64).unwrap_or_default();
    vec![
        line.get("set").and_then(Value::as_str).unwrap_or_default().to_string(),
        chunk.to_string(),
        format!("{:.1}", number("changed_bytes").unwrap_or_default() / 1e6),
        number("reused").map_or_else(|| "-".into(), |share| two(100.0 * share)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_of_a_grown_model_stay_the_same_and_concatenation_hides_it() {
        let directory = tempfile::tempdir().unwrap();
        for rounds in 1..=4usize {
            let trees: Vec<Value> = (0..rounds * 3).map(|tree| json!({"id": tree, "splits": vec![tree; 40]})).collect();
            let document = json!({"version": [3, 0], "learner": {"rounds": rounds,
                "gradient_booster": {"model": {"trees": trees}}}});
            std::fs::write(directory.path().join(format!("round-{rounds}.json")), document.to_string()).unwrap();
        }
        let text = format!(
            "kind = \"checkpoints\"\ncorpus = {0:?}\nwork = {0:?}\nchunk_bytes = [64]\n[[run]]\n\
            name = \"grown\"\npaths = [\"*.json\"]\nextract = \"xgboost\"\nfirst = 2\n",
            directory.path()
        );
        let config = CheckpointBench::parse(&text, "x").unwrap();
        let report = run(&config, &Arc::default(), &mut std::io::sink()).unwrap();
        let of = |method: &str, key: &str| {
            report.lines.iter().find(|line| line["method"] == method).unwrap()[key].as_f64().unwrap()
        };
        // Steps 2 to 4 have 3, 6 and 9 trees and a skeleton in common with the step before.
        assert_eq!((of("no-op", "compared"), of("no-op", "identical")), (21.0, 18.0));
        assert_eq!(of("no-op", "first_rate"), 6.0 / 9.0, "two trees and the skeleton, three times");
        assert!(of("array", "stored") < 0.6 * of("file", "stored"), "{:?}", report.lines);
        assert!(of("concatenated", "stored") > 1.5 * of("array", "stored"), "{:?}", report.lines);
        assert!(of("chunks", "changed_bytes") > 0.0);
        std::fs::write(directory.path().join("round-5.json"), "{}").unwrap();
        let error = run(&config, &Arc::default(), &mut std::io::sink()).unwrap_err().to_string();
        assert!(error.contains("round-5.json"), "{error}");
    }
}
