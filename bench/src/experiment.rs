//! A measurement as its configuration describes it. The key `kind` selects the measurement.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fhrd::error::{Error, Result};
use serde_json::{Value, json};

use super::bits::{self, BitBench};
use super::claim::{Claim, UntestedBench, Verdict};
use super::codecs::{self, CodecBench};
use super::comparison::{Comparison, ComparisonKind};
use super::entropies::{self, EntropyBench};
use super::granularity::{self, GranularityBench};
use super::identify::{self, IdentifyBench};
use super::latency::{self, LatencyBench};
use super::model_experiment::ModelExperiment;
use super::report::{Grid, Report, pictures};
use super::score::Score;
use super::threshold::{self, ThresholdBench};
use super::trace::{self, TraceBench};
use super::{saves, scaling, schemes, versions};

/// A measurement.
pub enum Experiment {
    /// Compares configurations on sets.
    Comparison(Box<Comparison>),
    /// Scores the classification of chunks.
    Identify(Box<IdentifyBench>),
    /// Measures entropies of byte groups.
    Entropies(Box<EntropyBench>),
    /// Measures float codecs on blocks of tensors.
    Codecs(Box<CodecBench>),
    /// Deduplicates files, layers, tensors and chunks.
    Granularity(Box<GranularityBench>),
    /// Assigns models to families by bit distance.
    Threshold(Box<ThresholdBench>),
    /// Simulates indexes, rewriting methods and restore caches on traces.
    Trace(Box<TraceBench>),
    /// Measures latencies of look-ups and tensors.
    Latency(Box<LatencyBench>),
    /// Measures entropies of bits.
    Bits(Box<BitBench>),
    /// Lists claims that are not measured.
    Untested(Box<UntestedBench>),
    /// Compares models or checkpoints.
    Models(Box<ModelExperiment>),
}

/// Plan of a measurement.
pub struct Outline {
    /// One line for each run.
    pub runs: Vec<String>,
    /// Missing data, as far as known without running.
    pub missing: Vec<String>,
}

/// Values of `kind`.
const KINDS: &str = "`bits`, `checkpoints`, `chunkers`, `codecs`, `differences`, `entropies`, `granularity`, `identify`, \
    `latency`, `monte-carlo`, `page`, `quantised`, `reduction-by-model`, `saves`, `scaling`, `schemes`, `threshold`, \
    `trace`, `untested` or `versions`";

impl Experiment {
    /// Parses TOML text. `path` is the path of the file.
    ///
    /// # Errors
    /// [`Error::Config`] for an unknown kind, and the errors of that kind.
    pub fn parse(text: &str, path: &Path) -> Result<Self> {
        let origin = path.display().to_string();
        let wrong = |message: String| Error::Config { origin: origin.clone(), message };
        let table: toml::Table = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let kind = table.get("kind").and_then(toml::Value::as_str);
        let kind = kind.ok_or_else(|| wrong("the key `kind`, which selects the measurement, is missing".into()))?;
        let experiment = Self::of_kind(kind, text, path)?;
        let fault = |claim: &Claim| Some(format!("the `rule` of the claim `{}` {}", claim.text, claim.rule.fault()?));
        experiment.claims().iter().find_map(fault).map_or(Ok(experiment), |fault| Err(wrong(fault)))
    }

    fn of_kind(kind: &str, text: &str, path: &Path) -> Result<Self> {
        let origin = path.display().to_string();
        match kind {
            "schemes" | "versions" | "saves" | "scaling" => {
                Ok(Experiment::Comparison(Box::new(Comparison::parse(text, path)?)))
            }
            "identify" => Ok(Experiment::Identify(Box::new(IdentifyBench::parse(text, &origin)?))),
            "entropies" => Ok(Experiment::Entropies(Box::new(EntropyBench::parse(text, &origin)?))),
            "codecs" => Ok(Experiment::Codecs(Box::new(CodecBench::parse(text, &origin)?))),
            "granularity" => Ok(Experiment::Granularity(Box::new(GranularityBench::parse(text, &origin)?))),
            "threshold" => Ok(Experiment::Threshold(Box::new(ThresholdBench::parse(text, &origin)?))),
            "latency" => Ok(Experiment::Latency(Box::new(LatencyBench::parse(text, &origin)?))),
            "bits" => Ok(Experiment::Bits(Box::new(BitBench::parse(text, &origin)?))),
            "trace" => Ok(Experiment::Trace(Box::new(TraceBench::parse(text, &origin)?))),
            "untested" => Ok(Experiment::Untested(Box::new(UntestedBench::parse(text, &origin)?))),
            other => match ModelExperiment::parse(other, text, &origin)? {
                Some(experiment) => Ok(Experiment::Models(Box::new(experiment))),
                None => Err(Error::Config { origin, message: format!("`kind` must be {KINDS}, found `{other}`") }),
            },
        }
    }

    /// Claims of papers about its values.
    pub fn claims(&self) -> &[Claim] {
        match self {
            Experiment::Comparison(comparison) => &comparison.claims,
            Experiment::Identify(bench) => &bench.claim,
            Experiment::Entropies(bench) => &bench.claim,
            Experiment::Codecs(bench) => &bench.claim,
            Experiment::Granularity(bench) => &bench.claim,
            Experiment::Threshold(bench) => &bench.claim,
            Experiment::Trace(plan) => &plan.claim,
            Experiment::Latency(bench) => &bench.claim,
            Experiment::Bits(bench) => &bench.claim,
            Experiment::Untested(_) => &[],
            Experiment::Models(experiment) => experiment.claims(),
        }
    }

    /// A verdict on each of its claims, from the lines of its report.
    pub fn judge(&self, lines: &[Value]) -> Vec<Verdict> {
        match self {
            Experiment::Untested(bench) => bench.untested.iter().map(|claim| claim.verdict()).collect(),
            _ => self.claims().iter().map(|claim| claim.judge(lines)).collect(),
        }
    }

    /// The plan of the measurement.
    pub fn outline(&self) -> Outline {
        match self {
            Experiment::Comparison(comparison) => {
                let case = |case: &super::comparison::Case| {
                    let parameters = case.parameters.iter().map(|(name, value)| format!(" {name} {value}"));
                    let chunk_bytes = case.config.repository.chunk_bytes_avg.0 >> 10;
                    format!("{}{}, {chunk_bytes} KiB", case.scheme, parameters.collect::<String>())
                };
                let missing = comparison.sets.iter().filter_map(|set| {
                    set.missing(&comparison.corpus).map(|reason| format!("set `{}`: {reason}", set.name))
                });
                Outline { runs: comparison.cases.iter().map(case).collect(), missing: missing.collect() }
            }
            Experiment::Identify(bench) => {
                let runs = bench.class.iter().map(|class| format!("class {}", class.name)).collect();
                Outline { runs, missing: bench.missing() }
            }
            Experiment::Entropies(bench) => {
                let runs = bench.class.iter().map(|class| format!("class {}", class.name)).collect();
                Outline { runs, missing: bench.missing() }
            }
            Experiment::Codecs(bench) => {
                let of_class = |class: &codecs::CodecClass| -> Vec<String> {
                    bench.methods.iter().map(|method| format!("class {}, {method}", class.name)).collect()
                };
                Outline { runs: bench.class.iter().flat_map(of_class).collect(), missing: bench.missing() }
            }
            Experiment::Granularity(bench) => {
                let runs = bench.sets.iter().map(|set| format!("set {}", set.name)).collect();
                Outline { runs, missing: bench.missing() }
            }
            Experiment::Threshold(bench) => {
                let runs = bench.thresholds.iter().map(|bits| format!("threshold {bits}")).collect();
                Outline { runs, missing: bench.missing() }
            }
            Experiment::Trace(plan) => {
                let of_index = |index: &String| -> Vec<String> {
                    plan.rewrite.iter().map(|rewrite| format!("{index} {rewrite}")).collect()
                };
                let missing = plan.traces().err().map(|error| error.to_string());
                Outline { runs: plan.index.iter().flat_map(of_index).collect(), missing: missing.into_iter().collect() }
            }
            Experiment::Latency(bench) => {
                let runs = bench.sets.iter().map(|set| format!("set {}", set.name)).collect();
                Outline { runs, missing: bench.missing() }
            }
            Experiment::Bits(bench) => {
                let runs = bench.class.iter().map(|class| format!("class {}", class.name)).collect();
                Outline { runs, missing: bench.missing() }
            }
            Experiment::Untested(bench) => {
                let runs = bench.untested.iter().map(|claim| format!("not measured: {}", claim.text)).collect();
                Outline { runs, missing: Vec::new() }
            }
            Experiment::Models(experiment) => experiment.outline(),
        }
    }

    /// Runs the measurement and prints its tables to `out`.
    ///
    /// # Errors
    /// Errors that stop the measurement. Lines that fail are counted in the report.
    pub fn run(&self, stop: &Arc<AtomicBool>, out: &mut dyn Write) -> Result<Report> {
        match self {
            Experiment::Comparison(comparison) => match comparison.kind {
                ComparisonKind::Schemes => schemes::run(comparison, stop, out),
                ComparisonKind::Versions => versions::run(comparison, stop, out),
                ComparisonKind::Saves => saves::run(comparison, stop, out),
                ComparisonKind::Scaling => scaling::run(comparison, stop, out),
            },
            Experiment::Identify(bench) => Ok(identification(bench, &identify::run(bench, out)?)),
            Experiment::Entropies(bench) => entropies::run(bench, out),
            Experiment::Codecs(bench) => codecs::run(bench, stop, out),
            Experiment::Granularity(bench) => granularity::run(bench, stop, out),
            Experiment::Threshold(bench) => threshold::run(bench, stop, out),
            Experiment::Trace(plan) => trace::summary(plan, &trace::run(plan, stop, out)?),
            Experiment::Latency(bench) => latency::run(bench, stop, out),
            Experiment::Bits(bench) => bits::run(bench, stop, out),
            Experiment::Untested(bench) => bench.run(out),
            Experiment::Models(experiment) => experiment.run(stop, out),
        }
    }
}

/// The report of scores.
fn identification(bench: &IdentifyBench, scores: &identify::IdentifyReport) -> Report {
    let line = |kind: &str, score: &Score| -> Value {
        json!({
            "set": score.name,
            "scope": kind,
            "method": score.method.name(),
            "confusion": score.confusion,
            "weights": score.weights,
            "weights_found": score.weights_found,
            "recall": score.recall(),
            "accuracy": score.accuracy(),
            "bytes": score.bytes,
            "bytes_best": score.bytes_best,
            "excess": score.excess(),
            "block_us": score.block_us(),
        })
    };
    let classes = scores.classes.iter().map(|score| line("class", score));
    let lines: Vec<Value> = classes.chain(scores.sets.iter().map(|score| line("all", score))).collect();
    let percent = |value: f64| format!("{:.2}", 100.0 * value);
    let row = |score: &Score| {
        let speed = format!("{:.1}", score.block_us());
        let names = [score.name.clone(), score.method.name().to_string()];
        let numbers = [percent(score.recall()), percent(score.accuracy()), percent(score.excess()), speed];
        names.into_iter().chain(numbers).collect()
    };
    let columns = ["class", "method", "recall %", "accuracy %", "bytes above the best %", "µs per block"]
        .map(str::to_string)
        .to_vec();
    let measurements = [
        ("accuracy", "Share of blocks classified correctly", "fraction"),
        ("excess", "Bytes above the best encodings", "fraction"),
        ("block_us", "Time per block", "µs"),
    ];
    Report {
        title: bench.title.clone(),
        grids: vec![Grid {
            title: String::new(),
            columns,
            rows: scores.classes.iter().chain(&scores.sets).map(row).collect(),
        }],
        plots: pictures(&lines, &measurements),
        lines,
        ..Report::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_selects_the_measurement() {
        let message = |text: &str| {
            let parsed = Experiment::parse(text, Path::new("x.toml"));
            parsed.err().map_or_else(String::new, |error| error.to_string())
        };
        assert!(message("work = \"w\"").contains("`kind`, which"), "{}", message("work = \"w\""));
        assert!(message("kind = \"magic\"").contains("found `magic`"));
        assert!(message("kind = \"schemes\"").contains("x.toml"));
    }

    #[test]
    fn an_outline_names_every_case_and_missing_data() {
        let text = "kind = \"schemes\"\nwork = \"w\"\ncorpus = \"/nowhere\"\nsets = [\"code\", { name = \"made\", \
            generate = { seed = 1, text = { files = 1, file_bytes = 1, versions = 1 } } }]\n[[scheme]]\nname = \"one\"\n\
            [[sweep]]\nkey = \"compress.level\"\nvalues = [1, 3]\n";
        let Outline { runs, missing } = Experiment::parse(text, Path::new("x.toml")).unwrap().outline();
        assert_eq!(runs, ["one level 1, 128 KiB", "one level 3, 128 KiB"]);
        assert!(
            missing.len() == 1 && missing[0].contains("set `code`") && missing[0].contains("/nowhere"),
            "{missing:?}"
        );
    }
}
