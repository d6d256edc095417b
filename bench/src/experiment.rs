//! The kinds of measurements. The key `kind` of a configuration selects one.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fhrd::error::{Error, Result};

use super::bits::BitBench;
use super::checkpoints::CheckpointBench;
use super::chunkers::ChunkerBench;
use super::claim::{Claim, UntestedBench};
use super::codecs::CodecBench;
use super::comparison::{Case, Comparison, ComparisonKind};
use super::differences::DifferenceBench;
use super::entropies::EntropyBench;
use super::granularity::GranularityBench;
use super::identify::IdentifyBench;
use super::latency::LatencyBench;
use super::measurement::{Measurement, Outline};
use super::monte_carlo::MonteCarloBench;
use super::program::ProgramBench;
use super::quantised::QuantisedBench;
use super::reduction::ReductionBench;
use super::report::Report;
use super::threshold::ThresholdBench;
use super::trace::TraceBench;
use super::{collection, saves, scaling, schemes, versions};

/// A measurement of any kind.
pub type Experiment = Box<dyn Measurement>;

/// Parses TOML text of one kind. The second text names it in errors.
type ParseKind = fn(&str, &str) -> Result<Experiment>;

/// Value of `kind` for several measurements, each in a file of its own.
pub(super) const PAGE: &str = "page";

/// Values of `kind`, sorted.
const KINDS: [(&str, ParseKind); 21] = [
    ("bits", |text, origin| Ok(Box::new(BitBench::parse(text, origin)?))),
    ("checkpoints", |text, origin| Ok(Box::new(CheckpointBench::parse(text, origin)?))),
    ("chunkers", |text, origin| Ok(Box::new(ChunkerBench::parse(text, origin)?))),
    ("codecs", |text, origin| Ok(Box::new(CodecBench::parse(text, origin)?))),
    ("collection", comparison),
    ("differences", |text, origin| Ok(Box::new(DifferenceBench::parse(text, origin)?))),
    ("entropies", |text, origin| Ok(Box::new(EntropyBench::parse(text, origin)?))),
    ("granularity", |text, origin| Ok(Box::new(GranularityBench::parse(text, origin)?))),
    ("identify", |text, origin| Ok(Box::new(IdentifyBench::parse(text, origin)?))),
    ("latency", |text, origin| Ok(Box::new(LatencyBench::parse(text, origin)?))),
    ("monte-carlo", |text, origin| Ok(Box::new(MonteCarloBench::parse(text, origin)?))),
    ("program", |text, origin| Ok(Box::new(ProgramBench::parse(text, origin)?))),
    ("quantised", |text, origin| Ok(Box::new(QuantisedBench::parse(text, origin)?))),
    ("reduction-by-model", |text, origin| Ok(Box::new(ReductionBench::parse(text, origin)?))),
    ("saves", comparison),
    ("scaling", comparison),
    ("schemes", comparison),
    ("threshold", |text, origin| Ok(Box::new(ThresholdBench::parse(text, origin)?))),
    ("trace", |text, origin| Ok(Box::new(TraceBench::parse(text, origin)?))),
    ("untested", |text, origin| Ok(Box::new(UntestedBench::parse(text, origin)?))),
    ("versions", comparison),
];

/// Parses TOML text. `path` is the path of the file.
///
/// # Errors
/// [`Error::Config`] for an unknown kind, and the errors of that kind.
pub fn parse(text: &str, path: &Path) -> Result<Experiment> {
    let origin = path.display().to_string();
    let wrong = |message: String| Error::Config { origin: origin.clone(), message };
    let table: toml::Table = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
    let kind = table.get("kind").and_then(toml::Value::as_str);
    let kind = kind.ok_or_else(|| wrong("the key `kind`, which selects the measurement, is missing".into()))?;
    let parse = KINDS.iter().find(|(name, _)| *name == kind).map(|(_, parse)| parse);
    let experiment = parse.ok_or_else(|| wrong(format!("`kind` must be {}, found `{kind}`", names())))?(text, &origin)?;
    experiment.claims().iter().find_map(Claim::fault).map_or(Ok(experiment), |fault| Err(wrong(fault)))
}

/// The values of `kind` as a sentence lists them.
fn names() -> String {
    let mut names: Vec<&str> = KINDS.iter().map(|(name, _)| *name).chain([PAGE]).collect();
    names.sort_unstable();
    let last = names.pop().unwrap_or_default();
    format!("`{}` or `{last}`", names.join("`, `"))
}

fn comparison(text: &str, origin: &str) -> Result<Experiment> {
    Ok(Box::new(Comparison::parse(text, origin.as_ref())?))
}

impl Measurement for Comparison {
    fn claims(&self) -> &[Claim] {
        &self.claims
    }

    fn outline(&self) -> Outline {
        let case = |case: &Case| {
            let parameters = case.parameters.iter().map(|(name, value)| format!(" {name} {value}"));
            let chunk_bytes = case.config.repository.chunk_bytes_avg.0 >> 10;
            format!("{}{}, {chunk_bytes} KiB", case.scheme, parameters.collect::<String>())
        };
        let missing = self
            .sets
            .iter()
            .filter_map(|set| set.missing(&self.corpus).map(|reason| format!("set `{}`: {reason}", set.name)));
        Outline { runs: self.cases.iter().map(case).collect(), missing: missing.collect() }
    }

    fn run(&self, stop: &Arc<AtomicBool>, out: &mut dyn Write) -> Result<Report> {
        match self.kind {
            ComparisonKind::Schemes => schemes::run(self, stop, out),
            ComparisonKind::Versions => versions::run(self, stop, out),
            ComparisonKind::Saves => saves::run(self, stop, out),
            ComparisonKind::Collection => collection::run(self, stop, out),
            ComparisonKind::Scaling => scaling::run(self, stop, out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_selects_the_measurement() {
        let message = |text: &str| {
            let parsed = parse(text, Path::new("x.toml"));
            parsed.err().map_or_else(String::new, |error| error.to_string())
        };
        assert!(message("work = \"w\"").contains("`kind`, which"), "{}", message("work = \"w\""));
        let magic = message("kind = \"magic\"");
        assert!(magic.contains("`kind` must be `bits`, `checkpoints`, ") && magic.contains("found `magic`"), "{magic}");
        assert!(magic.contains(", `page`, ") && magic.contains("`untested` or `versions`"), "{magic}");
        assert!(message("kind = \"schemes\"").contains("x.toml"));
    }

    #[test]
    fn an_outline_names_every_case_and_missing_data() {
        let text = "kind = \"schemes\"\nwork = \"w\"\ncorpus = \"/nowhere\"\nsets = [\"code\", { name = \"made\", \
            generate = { seed = 1, text = { files = 1, file_bytes = 1, versions = 1 } } }]\n[[scheme]]\nname = \"one\"\n\
            [[sweep]]\nkey = \"compress.level\"\nvalues = [1, 3]\n";
        let Outline { runs, missing } = parse(text, Path::new("x.toml")).unwrap().outline();
        assert_eq!(runs, ["one level 1, 128 KiB", "one level 3, 128 KiB"]);
        assert!(
            missing.len() == 1 && missing[0].contains("set `code`") && missing[0].contains("/nowhere"),
            "{missing:?}"
        );
    }
}
