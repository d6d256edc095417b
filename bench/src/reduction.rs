//! Data reduction of single models by method and family (ZipLLM, figures 9 and 11).
//!
//! Each model but the base of its family is encoded on its own: by zstd, by ZipNN, and by BitX against the base. Its
//! reduction is the share of its bytes that is not stored. A family has a line for each of its models and methods, and
//! one with the quartiles over its models. The sets *real families*, *made families* and *all families* have the
//! quartiles over their models.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fhrd::codec::Scratch;
use fhrd::error::{Error, Result};
use serde::Deserialize;
use serde_json::{Value, json};

use super::claim::Claim;
use super::comparison::corpus_directory;
use super::data::{Set, files_below, set_with};
use super::measurement::{Measurement, Outline};
use super::report::{Grid, Plot, Report, Violins, quantile};
use super::table::{flush, write_line};
use super::whole_model::{FileMethod, ModelBytes, base_of};

/// Configuration of a measurement of single models.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReductionBench {
    /// `"reduction-by-model"`.
    pub kind: String,
    /// Title of the report.
    #[serde(default = "title")]
    pub title: String,
    /// Directory that paths are relative to. Default: the environment's `FHRD_CORPUS`, else `corpus`.
    pub corpus: Option<PathBuf>,
    /// Directory for generated sets.
    pub work: PathBuf,
    /// Level of zstd.
    #[serde(default = "level")]
    pub level: i32,
    /// Families.
    pub family: Vec<ReducedFamily>,
    /// Claims of papers about the measured values.
    #[serde(default)]
    pub claim: Vec<Claim>,
}

/// A family, as the configuration describes it: a set and `base_file`.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "toml::Value")]
pub struct ReducedFamily {
    /// The models.
    pub models: Set,
    /// End of the path of the base, which is one of the models.
    pub base: PathBuf,
}

#[derive(Deserialize)]
struct ReducedFamilyKeys {
    base_file: PathBuf,
}

impl TryFrom<toml::Value> for ReducedFamily {
    type Error = String;

    fn try_from(value: toml::Value) -> std::result::Result<Self, String> {
        let (ReducedFamilyKeys { base_file }, models) = set_with(value, &["base_file"])?;
        Ok(ReducedFamily { models, base: base_file })
    }
}

fn title() -> String {
    "Reduction of single models".into()
}
fn level() -> i32 {
    3
}

/// The set of all models.
const ALL: &str = "all families";
/// Names of the groups of models.
const KINDS: [&str; 2] = ["real", "made"];
const TITLES: [&str; 6] = ["models", "lowest %", "25 %", "median %", "75 %", "highest %"];

impl ReductionBench {
    /// Parses TOML text; `origin` names it in errors.
    ///
    /// # Errors
    /// [`Error::Config`] for syntax and unknown keys.
    pub fn parse(text: &str, origin: &str) -> Result<Self> {
        toml::from_str(text).map_err(|error| Error::Config { origin: origin.into(), message: error.to_string() })
    }

    /// Families with missing files, each with the reason. Reads no content.
    pub fn missing(&self) -> Vec<String> {
        let corpus = corpus_directory(self.corpus.as_deref());
        let of_family = |family: &ReducedFamily| {
            family.models.missing(&corpus).map(|reason| format!("family `{}`: {reason}", family.models.name))
        };
        self.family.iter().filter_map(of_family).collect()
    }
}

/// Reduction of one model by one method.
struct Reduction {
    family: String,
    is_made: bool,
    model: String,
    method: FileMethod,
    bytes: u64,
    stored: u64,
}

impl Reduction {
    fn share(&self) -> f64 {
        1.0 - self.stored as f64 / (self.bytes as f64).max(1.0)
    }

    fn line(&self) -> Value {
        json!({
            "set": self.family, "method": self.method.name(), "model": self.model, "bytes": self.bytes,
            "stored": self.stored, "reduction": self.share(),
        })
    }
}

fn measure(config: &ReductionBench, family: &ReducedFamily, stop: &AtomicBool) -> Result<Vec<Reduction>> {
    let corpus = corpus_directory(config.corpus.as_deref());
    let mut files = Vec::new();
    for source in family.models.sources(&corpus, &config.work.join("sets"))? {
        for path in &source.paths {
            files.extend(files_below(path)?);
        }
    }
    let base_path = base_of(&files, &family.base)?;
    let base = ModelBytes::read(base_path)?;
    let (mut found, mut scratch) = (Vec::new(), Scratch::default());
    for file in files.iter().filter(|file| *file != base_path) {
        let content = ModelBytes::read(file)?;
        if content.model.is_none() {
            continue;
        }
        let directory = file.parent().and_then(|directory| directory.file_name()).unwrap_or(file.as_os_str());
        let name = match file.file_stem() {
            Some(stem) if stem != "model" => stem.to_string_lossy().into_owned(),
            _ => directory.to_string_lossy().into_owned(),
        };
        for method in FileMethod::ALL {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let stored = method.encode(&content, Some(&base), config.level, &mut scratch)?.len() as u64;
            found.push(Reduction {
                family: family.models.name.clone(),
                is_made: family.models.is_generated(),
                model: name.clone(),
                method,
                bytes: content.bytes.len() as u64,
                stored,
            });
        }
    }
    Ok(found)
}

/// The reductions of one method, sorted.
fn sorted<'a>(found: impl Iterator<Item = &'a Reduction>, method: FileMethod) -> Vec<f64> {
    let mut shares: Vec<f64> = found.filter(|one| one.method == method).map(Reduction::share).collect();
    shares.sort_by(f64::total_cmp);
    shares
}

impl Measurement for ReductionBench {
    fn claims(&self) -> &[Claim] {
        &self.claim
    }

    fn outline(&self) -> Outline {
        Outline::of("family", self.family.iter().map(|family| &family.models.name), self.missing())
    }

    fn run(&self, stop: &Arc<AtomicBool>, out: &mut dyn Write) -> Result<Report> {
        run(self, stop, out)
    }
}

/// Measures every family and prints the quartiles of its models by method.
///
/// # Errors
/// A file that cannot be read; a family without its base; [`Error::Interrupted`].
fn run(config: &ReductionBench, stop: &Arc<AtomicBool>, out: &mut dyn Write) -> Result<Report> {
    let (mut found, mut rows, mut lines) = (Vec::new(), Vec::new(), Vec::new());
    write_line(out, "family", "method", &TITLES)?;
    let mut summarise = |set: &str, of_set: Vec<&Reduction>, out: &mut dyn Write| -> Result<()> {
        for method in FileMethod::ALL {
            let shares = sorted(of_set.iter().copied(), method);
            let ends = [0.0, 0.25, 0.5, 0.75, 1.0].map(|at| quantile(&shares, at).unwrap_or_default());
            let [lowest, lower, median, upper, highest] = ends;
            let half = shares.iter().filter(|share| **share > 0.5).count() as f64 / shares.len().max(1) as f64;
            lines.push(json!({
                "set": set, "method": method.name(), "models": shares.len(), "lowest": lowest, "lower": lower,
                "median": median, "upper": upper, "highest": highest, "above_half": half,
            }));
            let percents = ends.map(|share| format!("{:.2}", 100.0 * share));
            let cells: Vec<String> = std::iter::once(shares.len().to_string()).chain(percents).collect();
            write_line(out, set, method.name(), &cells)?;
            rows.push([set.to_string(), method.name().into()].into_iter().chain(cells).collect());
        }
        flush(out)
    };
    for family in &config.family {
        let of_family = measure(config, family, stop)?;
        summarise(&family.models.name, of_family.iter().collect(), out)?;
        found.extend(of_family);
    }
    for (is_made, kind) in [(false, KINDS[0]), (true, KINDS[1])] {
        let of_kind: Vec<&Reduction> = found.iter().filter(|one| one.is_made == is_made).collect();
        if !of_kind.is_empty() {
            summarise(&format!("{kind} families"), of_kind, out)?;
        }
    }
    summarise(ALL, found.iter().collect(), out)?;
    lines.extend(found.iter().map(Reduction::line));
    let columns = ["family", "method"].into_iter().chain(TITLES).map(str::to_string).collect();
    Ok(Report {
        title: config.title.clone(),
        grids: vec![Grid { title: "Quartiles of the reduction".into(), columns, rows }, models(&found)],
        plots: violins(config, &found),
        lines,
        ..Report::default()
    })
}

fn models(found: &[Reduction]) -> Grid {
    let row = |one: &Reduction| {
        let share = format!("{:.2}", 100.0 * one.share());
        vec![one.family.clone(), one.model.clone(), one.method.name().into(), share]
    };
    let columns = ["family", "model", "method", "reduced %"].map(str::to_string).to_vec();
    Grid { title: "Models".into(), columns, rows: found.iter().map(row).collect() }
}

/// All models by method, and BitX by family.
fn violins(config: &ReductionBench, found: &[Reduction]) -> Vec<Plot> {
    let percents = |shares: Vec<f64>| shares.into_iter().map(|share| 100.0 * share).collect::<Vec<f64>>();
    let of_method = |method: FileMethod| (method.name().to_string(), percents(sorted(found.iter(), method)));
    let of_family = |family: &ReducedFamily| {
        let of_it = found.iter().filter(|one| one.family == family.models.name);
        (family.models.name.clone(), percents(sorted(of_it, FileMethod::BitX)))
    };
    let plot = |title: &str, groups| Plot::Violins(Violins { title: title.into(), unit: "% reduced".into(), groups });
    vec![
        plot("Reduction of each model, by method", FileMethod::ALL.iter().map(|method| of_method(*method)).collect()),
        plot("Reduction of each model by BitX, by family", config.family.iter().map(of_family).collect()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_model_but_the_base_is_reduced_alone() {
        let directory = tempfile::tempdir().unwrap();
        let text = format!(
            "kind = \"reduction-by-model\"\ncorpus = {0:?}\nwork = {0:?}\n[[family]]\nbase_file = \"base/model.safetensors\"\n\
            name = \"made\"\ngenerate = {{ seed = 2, models = {{ layers = 1, hidden = 64, vocabulary = 256, \
            fine_tunes = 3, sigma_delta = [0.0002, 0.02] }} }}\n",
            directory.path()
        );
        let config = ReductionBench::parse(&text, "x").unwrap();
        let report = run(&config, &Arc::default(), &mut std::io::sink()).unwrap();
        let of = |set: &str, method: &str, key: &str| {
            let is_it = |line: &&Value| line["set"] == set && line["method"] == method && line["models"].is_u64();
            report.lines.iter().find(is_it).unwrap()[key].as_f64().unwrap()
        };
        assert_eq!((of("made", "bitx", "models"), report.grids[1].rows.len()), (3.0, 9));
        assert!(of("made", "bitx", "median") > of("made", "zipnn", "median"), "{:?}", report.lines);
        assert!(of("made", "zipnn", "lowest") > of("made", "zstd", "highest"));
        assert_eq!(of(ALL, "bitx", "median"), of("made families", "bitx", "median"));
        let wrong = ReductionBench::parse(&text.replace("base/model", "bass/model"), "x").unwrap();
        assert!(run(&wrong, &Arc::default(), &mut std::io::sink()).is_err());
    }
}
