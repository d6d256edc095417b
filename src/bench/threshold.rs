//! Accuracy of a bit distance threshold that decides whether two models are of one family (ZipLLM, figure 11).
//!
//! 1. All pairs of models of equal shape are compared value by value. Pairs without comparable tensors are left out.
//! 2. Two models count as one family if their distance is below the threshold. The result is accuracy, precision and
//!    recall over all pairs.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::claim::Claim;
use super::comparison::corpus_directory;
use super::data::{Set, files_below};
use super::report::{Grid, Report, pictures};
use super::table::{flush, two};
use crate::error::{Error, Result};
use crate::inspect::distance::{OpenModel, distance};

/// Configuration of a measurement of thresholds.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThresholdBench {
    /// `"threshold"`.
    pub kind: String,
    /// Title of the report.
    #[serde(default = "title")]
    pub title: String,
    /// Directory that paths are relative to. Default: the environment's `FHRD_CORPUS`, else `corpus`.
    pub corpus: Option<PathBuf>,
    /// Thresholds, bits per value.
    pub thresholds: Vec<f64>,
    /// Directory for generated sets.
    pub work: PathBuf,
    /// Families. The model files of a set are one family.
    pub family: Vec<Set>,
    /// Claims of papers about the measured values.
    #[serde(default)]
    pub claim: Vec<Claim>,
}

fn title() -> String {
    "Families by bit distance".into()
}

/// A pair of models.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct ModelPair {
    name: String,
    is_family: bool,
    bits: f64,
}

/// Pairs by their true and their decided family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct PairCounts {
    found: u64,
    missed: u64,
    wrong: u64,
    apart: u64,
}

impl PairCounts {
    fn of(pairs: &[ModelPair], threshold: f64) -> Self {
        let mut counts = PairCounts::default();
        for pair in pairs {
            let count = match (pair.is_family, pair.bits < threshold) {
                (true, true) => &mut counts.found,
                (true, false) => &mut counts.missed,
                (false, true) => &mut counts.wrong,
                (false, false) => &mut counts.apart,
            };
            *count += 1;
        }
        counts
    }

    /// Accuracy, precision and recall, 0 to 1; 1 without pairs to decide.
    fn scores(self) -> [f64; 3] {
        let share = |part: u64, whole: u64| if whole == 0 { 1.0 } else { part as f64 / whole as f64 };
        let PairCounts { found, missed, wrong, apart } = self;
        [
            share(found + apart, found + missed + wrong + apart),
            share(found, found + wrong),
            share(found, found + missed),
        ]
    }
}

impl ThresholdBench {
    /// Parses TOML text; `origin` names it in errors.
    ///
    /// # Errors
    /// [`Error::Config`] for syntax, unknown keys and unusable values.
    pub fn parse(text: &str, origin: &str) -> Result<Self> {
        let wrong = |message: &str| Error::Config { origin: origin.into(), message: message.into() };
        let config: ThresholdBench = toml::from_str(text).map_err(|error| wrong(&error.to_string()))?;
        if config.thresholds.is_empty() || config.thresholds.iter().any(|bits| !bits.is_finite()) {
            return Err(wrong("`thresholds` must have at least one finite number of bits"));
        }
        Ok(config)
    }

    /// Families with missing files, each with the reason. Reads no content.
    pub fn missing(&self) -> Vec<String> {
        let corpus = corpus_directory(self.corpus.as_deref());
        let of_family = |set: &Set| set.missing(&corpus).map(|reason| format!("family `{}`: {reason}", set.name));
        self.family.iter().filter_map(of_family).collect()
    }

    fn models(&self) -> Result<Vec<(usize, OpenModel)>> {
        let corpus = corpus_directory(self.corpus.as_deref());
        let mut models = Vec::new();
        for (number, set) in self.family.iter().enumerate() {
            for source in set.sources(&corpus, &self.work.join("sets"))? {
                for path in &source.paths {
                    for file in files_below(path)? {
                        match OpenModel::open(&file) {
                            Ok(side) => models.push((number, side)),
                            // Other files of a model directory, such as cards and vocabularies.
                            Err(Error::Usage(_)) => {}
                            Err(error) => return Err(error),
                        }
                    }
                }
            }
        }
        Ok(models)
    }

    fn pairs(&self, stop: &AtomicBool) -> Result<Vec<ModelPair>> {
        let models = self.models()?;
        let mut pairs = Vec::new();
        for (at, (family, one)) in models.iter().enumerate() {
            for (other_family, other) in models.iter().skip(at + 1) {
                let Some(bits) = distance(one, other, stop)?.bit_distance() else { continue };
                let name = format!("{} and {}", one.label, other.label);
                pairs.push(ModelPair { name, is_family: family == other_family, bits });
            }
        }
        match pairs.is_empty() {
            true => Err(Error::Usage("no two models can be compared".into())),
            false => Ok(pairs),
        }
    }
}

const COLUMNS: [&str; 8] = ["bits", "found", "missed", "wrong", "apart", "accuracy %", "precision %", "recall %"];
const PICTURES: [(&str, &str, &str); 3] = [
    ("accuracy", "Pairs classified correctly", "fraction"),
    ("precision", "Precision: pairs below the threshold that are of one family", "fraction"),
    ("recall", "Recall: pairs of one family that are below the threshold", "fraction"),
];

/// Compares all pairs and prints a line for each threshold.
///
/// # Errors
/// A model that cannot be read; [`Error::Interrupted`].
pub fn run(config: &ThresholdBench, stop: &Arc<AtomicBool>, out: &mut dyn Write) -> Result<Report> {
    let pairs = config.pairs(stop)?;
    let failed = |error| Error::io("write", "the table", error);
    let mut lines: Vec<Value> = Vec::new();
    let mut rows: Vec<Vec<String>> = Vec::new();
    let titles: String = COLUMNS.iter().map(|title| format!(" {title:>11}")).collect();
    writeln!(out, "{} pairs of models\n{titles}", pairs.len()).map_err(failed)?;
    for threshold in &config.thresholds {
        let counts = PairCounts::of(&pairs, *threshold);
        let [accuracy, precision, recall] = counts.scores();
        let PairCounts { found, missed, wrong, apart } = counts;
        lines.push(json!({
            "set": "pairs",
            "parameters": {"threshold": threshold},
            "found": found, "missed": missed, "wrong": wrong, "apart": apart,
            "accuracy": accuracy, "precision": precision, "recall": recall,
        }));
        let mut row = vec![two(*threshold)];
        row.extend([found, missed, wrong, apart].map(|count| count.to_string()));
        row.extend([accuracy, precision, recall].map(|share| two(100.0 * share)));
        let cells: String = row.iter().map(|cell| format!(" {cell:>11}")).collect();
        writeln!(out, "{cells}").map_err(failed)?;
        rows.push(row);
    }
    flush(out)?;
    let kind = |pair: &ModelPair| if pair.is_family { "one" } else { "two" };
    let distances = pairs.iter().map(|pair| vec![pair.name.clone(), kind(pair).into(), two(pair.bits)]).collect();
    let plots = pictures(&lines, &PICTURES);
    Ok(Report {
        title: config.title.clone(),
        grids: vec![
            Grid { title: "Thresholds".into(), columns: COLUMNS.map(str::to_string).to_vec(), rows },
            Grid {
                title: "Pairs".into(),
                columns: ["pair", "families", "bits"].map(str::to_string).to_vec(),
                rows: distances,
            },
        ],
        plots,
        lines,
        ..Report::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_counted_by_family_and_decision() {
        let pair = |is_family, bits| ModelPair { name: String::new(), is_family, bits };
        let pairs = [pair(true, 1.0), pair(true, 5.0), pair(false, 3.0), pair(false, 6.0), pair(false, 7.0)];
        let counts = PairCounts::of(&pairs, 4.0);
        assert_eq!(counts, PairCounts { found: 1, missed: 1, wrong: 1, apart: 2 });
        assert_eq!(counts.scores(), [0.6, 0.5, 0.5]);
        assert_eq!(PairCounts::of(&pairs, 0.5).scores(), [0.6, 1.0, 0.0]);
    }

    #[test]
    fn families_of_two_seeds_are_separated() {
        let directory = tempfile::tempdir().unwrap();
        for seed in [1, 2] {
            let text = format!(
                "seed = {seed}\nmodels = {{ layers = 1, hidden = 32, vocabulary = 256, fine_tunes = 1, sigma_delta = [0.0005] }}"
            );
            let generate: crate::bench::data::Generate = toml::from_str(&text).unwrap();
            generate.write(&directory.path().join(seed.to_string())).unwrap();
        }
        let text = format!(
            "kind = \"threshold\"\ncorpus = {0:?}\nwork = {0:?}\nthresholds = [0.1, 4, 16]\n\
            [[family]]\nname = \"one\"\npaths = [\"1\"]\n[[family]]\nname = \"two\"\npaths = [\"2/models/*\"]\n",
            directory.path()
        );
        let config = ThresholdBench::parse(&text, "x").unwrap();
        assert_eq!(config.missing(), [""; 0]);
        let report = run(&config, &Arc::default(), &mut std::io::sink()).unwrap();
        let accuracies: Vec<f64> = report.lines.iter().map(|line| line["accuracy"].as_f64().unwrap()).collect();
        assert!((accuracies[1], accuracies[0] < 0.7, accuracies[2] < 0.4) == (1.0, true, true), "{accuracies:?}");
        assert_eq!((report.grids[1].rows.len(), report.plots.len()), (6, 3));
    }
}
