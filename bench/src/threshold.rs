//! Accuracy of a bit distance threshold that decides whether two models are of one family (ZipLLM, section A.1), and
//! the distances of all pairs (its section 3.4.3).
//!
//! 1. All pairs of models of equal shape are compared value by value. Pairs without comparable tensors are left out.
//! 2. Two models count as one family if their distance is below the threshold. The result is accuracy, precision,
//!    recall and F1 over all pairs, over those of real models, and over those of generated ones.
//! 3. A family with `layers` is another one whose layers are renumbered: layer N becomes layer N + `layers`, modulo the
//!    number of layers, and tensors outside layers are left out. Its models have real weights of the shapes of the
//!    other family, but no tensor derives from the one it is compared with. They are not compared with each other.

mod profiles;
mod similarity;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fhrd::error::{Error, Result};
use fhrd::format::Tensor;
use fhrd::inspect::distance::{OpenModel, distance};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::profiles::Profiles;
use super::claim::Claim;
use super::comparison::corpus_directory;
use super::data::{Set, files_below, set_with};
use super::measurement::{Measurement, Outline};
use super::report::{Grid, Report, pictures};
use super::table::{flush, two};

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
    pub family: Vec<Family>,
    /// Claims of papers about the measured values.
    #[serde(default)]
    pub claim: Vec<Claim>,
}

/// A family, as the configuration describes it: a set and `layers`.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "toml::Value")]
pub struct Family {
    /// The models.
    pub models: Set,
    /// By how many its layers are renumbered.
    pub layers: u32,
}

#[derive(Deserialize)]
struct FamilyKeys {
    #[serde(default)]
    layers: u32,
}

impl TryFrom<toml::Value> for Family {
    type Error = String;

    fn try_from(value: toml::Value) -> std::result::Result<Self, String> {
        let (FamilyKeys { layers }, models) = set_with(value, &["layers"])?;
        Ok(Family { models, layers })
    }
}

fn title() -> String {
    "Families by bit distance".into()
}

/// A model and its family.
struct Member {
    family: usize,
    is_made: bool,
    model: OpenModel,
}

/// A pair of models.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct ModelPair {
    /// Numbers of the two models.
    members: (usize, usize),
    is_family: bool,
    is_made: bool,
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
    fn of<'a>(pairs: impl Iterator<Item = &'a ModelPair>, threshold: f64) -> Self {
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

    /// Accuracy, precision, recall and F1, 0 to 1; 1 without pairs to decide.
    fn scores(self) -> [f64; 4] {
        let share = |part: u64, whole: u64| if whole == 0 { 1.0 } else { part as f64 / whole as f64 };
        let PairCounts { found, missed, wrong, apart } = self;
        [
            share(found + apart, found + missed + wrong + apart),
            share(found, found + wrong),
            share(found, found + missed),
            share(2 * found, 2 * found + wrong + missed),
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
        let of_family = |Family { models, .. }: &Family| {
            models.missing(&corpus).map(|reason| format!("family `{}`: {reason}", models.name))
        };
        self.family.iter().filter_map(of_family).collect()
    }

    fn models(&self) -> Result<Vec<Member>> {
        let corpus = corpus_directory(self.corpus.as_deref());
        let mut members = Vec::new();
        for (family, Family { models, layers }) in self.family.iter().enumerate() {
            let is_made = models.is_generated();
            for source in models.sources(&corpus, &self.work.join("sets"))? {
                for path in &source.paths {
                    for file in files_below(path)? {
                        match OpenModel::open(&file) {
                            Ok(mut model) => {
                                renumber(&mut model.model.tensors, *layers);
                                members.push(Member { family, is_made, model });
                            }
                            // Other files of a model directory, such as cards and vocabularies.
                            Err(Error::Usage(_)) => {}
                            Err(error) => return Err(error),
                        }
                    }
                }
            }
        }
        Ok(members)
    }

    /// All pairs that can be compared, and the bits in which their values differ.
    fn pairs(&self, members: &[Member], stop: &AtomicBool) -> Result<(Vec<ModelPair>, Profiles)> {
        let (mut pairs, mut profiles) = (Vec::new(), Profiles::default());
        for (at, one) in members.iter().enumerate() {
            for (later, other) in members.iter().enumerate().skip(at + 1) {
                let is_renumbered = |member: &Member| self.family.get(member.family).is_some_and(|it| it.layers > 0);
                if is_renumbered(one) && is_renumbered(other) {
                    continue;
                }
                let found = distance(&one.model, &other.model, stop)?;
                let Some(bits) = found.bit_distance() else { continue };
                let (is_family, is_made) = (one.family == other.family, one.is_made || other.is_made);
                profiles.add(is_family, is_made, &found);
                pairs.push(ModelPair { members: (at, later), is_family, is_made, bits });
            }
        }
        match pairs.is_empty() {
            true => Err(Error::Usage("no two models can be compared".into())),
            false => Ok((pairs, profiles)),
        }
    }
}

/// Renumbers the layers of a model, and leaves out what is in no layer.
fn renumber(tensors: &mut Vec<Tensor>, by: u32) {
    let number = |name: &str| name.split('.').find_map(|part| part.parse::<u32>().ok());
    let layers = tensors.iter().filter_map(|tensor| number(&tensor.name)).max().map_or(0, |last| last + 1);
    if by == 0 || layers == 0 {
        return;
    }
    tensors.retain(|tensor| number(&tensor.name).is_some());
    for tensor in tensors {
        let Some(layer) = number(&tensor.name) else { continue };
        let (from, to) = (layer.to_string(), ((layer + by) % layers).to_string());
        let mut is_done = false;
        let parts = tensor.name.split('.').map(|part| match part == from && !is_done {
            true => {
                is_done = true;
                to.as_str()
            }
            false => part,
        });
        tensor.name = parts.collect::<Vec<_>>().join(".");
    }
}

const COLUMNS: [&str; 10] =
    ["pairs", "bits", "found", "missed", "wrong", "apart", "accuracy %", "precision %", "recall %", "F1 %"];
const PICTURES: [(&str, &str, &str); 4] = [
    ("accuracy", "Pairs classified correctly", "fraction"),
    ("precision", "Precision: pairs below the threshold that are of one family", "fraction"),
    ("recall", "Recall: pairs of one family that are below the threshold", "fraction"),
    ("f1", "F1: harmonic mean of precision and recall", "fraction"),
];

impl Measurement for ThresholdBench {
    fn claims(&self) -> &[Claim] {
        &self.claim
    }

    fn outline(&self) -> Outline {
        let runs = self.thresholds.iter().map(|bits| format!("threshold {bits}")).collect();
        Outline { runs, missing: self.missing() }
    }

    fn run(&self, stop: &Arc<AtomicBool>, out: &mut dyn Write) -> Result<Report> {
        run(self, stop, out)
    }
}

/// Compares all pairs and prints a line for each threshold.
///
/// # Errors
/// A model that cannot be read; [`Error::Interrupted`].
fn run(config: &ThresholdBench, stop: &Arc<AtomicBool>, out: &mut dyn Write) -> Result<Report> {
    let members = config.models()?;
    let (pairs, profiles) = config.pairs(&members, stop)?;
    let failed = |error| Error::io("write", "the table", error);
    let (mut lines, mut rows) = (Vec::new(), Vec::new());
    let titles: String = COLUMNS.iter().map(|title| format!(" {title:>11}")).collect();
    writeln!(out, "{} pairs of models\n{titles}", pairs.len()).map_err(failed)?;
    for (scope, counts_of) in [("all pairs", None), ("real pairs", Some(false)), ("made pairs", Some(true))] {
        let of_scope = || pairs.iter().filter(|pair| counts_of.is_none_or(|is_made| pair.is_made == is_made));
        if of_scope().next().is_none() {
            continue;
        }
        for threshold in &config.thresholds {
            let counts = PairCounts::of(of_scope(), *threshold);
            lines.push(counts.line(scope, *threshold));
            let row = counts.row(scope, *threshold);
            let cells: String = row.iter().map(|cell| format!(" {cell:>11}")).collect();
            writeln!(out, "{cells}").map_err(failed)?;
            rows.push(row);
        }
    }
    flush(out)?;
    let mut plots = pictures(&lines, &PICTURES);
    lines.extend(similarity::lines(&pairs));
    lines.extend(profiles.lines());
    plots.extend(similarity::plots(config, &members, &pairs));
    plots.push(profiles.plot());
    let kind = |pair: &ModelPair| if pair.is_family { "one" } else { "two" };
    let label = |at: usize| members.get(at).map_or_else(String::new, |member| member.model.label.clone());
    let distance = |pair: &ModelPair| {
        let name = format!("{} and {}", label(pair.members.0), label(pair.members.1));
        vec![name, kind(pair).into(), two(pair.bits)]
    };
    let distances = Grid {
        title: "Pairs".into(),
        columns: ["pair", "families", "bits"].map(str::to_string).to_vec(),
        rows: pairs.iter().map(distance).collect(),
    };
    let thresholds = Grid { title: "Thresholds".into(), columns: COLUMNS.map(str::to_string).to_vec(), rows };
    Ok(Report { title: config.title.clone(), grids: vec![thresholds, distances], plots, lines, ..Report::default() })
}

impl PairCounts {
    fn line(self, scope: &str, threshold: f64) -> Value {
        let [accuracy, precision, recall, f1] = self.scores();
        let PairCounts { found, missed, wrong, apart } = self;
        json!({
            "set": scope,
            "parameters": {"threshold": threshold},
            "found": found, "missed": missed, "wrong": wrong, "apart": apart,
            "accuracy": accuracy, "precision": precision, "recall": recall, "f1": f1,
        })
    }

    fn row(self, scope: &str, threshold: f64) -> Vec<String> {
        let PairCounts { found, missed, wrong, apart } = self;
        let counts = [found, missed, wrong, apart].map(|count| count.to_string());
        let shares = self.scores().map(|share| two(100.0 * share));
        [scope.to_string(), two(threshold)].into_iter().chain(counts).chain(shares).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_counted_by_family_and_decision() {
        let pair = |is_family, bits| ModelPair { members: (0, 1), is_family, is_made: false, bits };
        let pairs = [pair(true, 1.0), pair(true, 5.0), pair(false, 3.0), pair(false, 6.0), pair(false, 7.0)];
        let counts = PairCounts::of(pairs.iter(), 4.0);
        assert_eq!(counts, PairCounts { found: 1, missed: 1, wrong: 1, apart: 2 });
        assert_eq!(counts.scores(), [0.6, 0.5, 0.5, 0.5]);
        assert_eq!(PairCounts::of(pairs.iter(), 0.5).scores(), [0.6, 1.0, 0.0, 0.0]);
    }

    #[test]
    fn families_of_two_seeds_are_separated() {
        let directory = tempfile::tempdir().unwrap();
        for seed in [1, 2] {
            let text = format!(
                "seed = {seed}\nmodels = {{ layers = 1, hidden = 32, vocabulary = 256, fine_tunes = 1, sigma_delta = [0.0005] }}"
            );
            let generate: crate::data::Generate = toml::from_str(&text).unwrap();
            generate.write(&directory.path().join(seed.to_string())).unwrap();
        }
        let text = format!(
            "kind = \"threshold\"\ncorpus = {0:?}\nwork = {0:?}\nthresholds = [0.1, 4, 16]\n\
            [[family]]\nname = \"one\"\npaths = [\"1\"]\n\
            [[family]]\nname = \"two\"\npaths = [\"2/models/*\"]\n",
            directory.path()
        );
        let config = ThresholdBench::parse(&text, "x").unwrap();
        assert_eq!(config.missing(), [""; 0]);
        let report = run(&config, &Arc::default(), &mut std::io::sink()).unwrap();
        let of_all = report.lines.iter().filter(|line| line["set"] == "all pairs");
        let accuracies: Vec<f64> = of_all.map(|line| line["accuracy"].as_f64().unwrap()).collect();
        assert!((accuracies[1], accuracies[0] < 0.7, accuracies[2] < 0.4) == (1.0, true, true), "{accuracies:?}");
        assert_eq!(
            (report.grids[1].rows.len(), report.plots.len()),
            (6, 11),
            "scores of two scopes, matrix, graph and bits"
        );
    }
}
