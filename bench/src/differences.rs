//! Differences of two models, value by value: their distribution (ZipLLM, figure 3), the bits in which values differ
//! (its figure 5), and how well XOR and numerical differences compress (its section 4.2; TensorCAS's tau).
//!
//! A pair has one line of its *distribution* and one for each *method*:
//!
//! - *values*: the values themselves, without the base.
//! - *xor*: XOR of the two values.
//! - *arithmetic*: the difference of the two numbers, rounded to their dtype. It is lossy if base + difference is not
//!   the value; `restored` is the share of values for which it is.
//! - *bits as integers*: the difference of the two bit patterns as unsigned integers, which is lossless.
//!
//! Each result is compressed in blocks, with zstd as it is and with the codec `floats`, which splits it into byte
//! planes. *tau* is the compressed length divided by that of the values as they are.

mod distribution;
mod encodings;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytesize::ByteSize;
use fhrd::error::{Error, Result};
use serde::Deserialize;
use serde_json::Value;

use self::distribution::DifferenceDistribution;
use self::encodings::{Encodings, Method};
use super::claim::Claim;
use super::comparison::corpus_directory;
use super::measurement::{Measurement, Outline};
use super::pair_source::{PairSource, bytes_of};
use super::report::{Bins, Grid, HistogramPlot, Plot, Report, Scales, pictures};
use super::table::{flush, write_line};

/// Configuration of a measurement of differences.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DifferenceBench {
    /// `"differences"`.
    pub kind: String,
    /// Title of the report.
    #[serde(default = "title")]
    pub title: String,
    /// Directory that paths are relative to. Default: the environment's `FHRD_CORPUS`, else `corpus`.
    pub corpus: Option<PathBuf>,
    /// Directory for generated sets.
    pub work: PathBuf,
    /// The histogram reaches from minus this difference to plus this difference.
    #[serde(default = "reach")]
    pub reach: f64,
    /// Length of a compressed block.
    #[serde(default = "block_bytes")]
    pub block_bytes: ByteSize,
    /// Level of zstd.
    #[serde(default = "level")]
    pub level: i32,
    /// Pairs of models.
    pub pair: Vec<PairSource>,
    /// Claims of papers about the measured values.
    #[serde(default)]
    pub claim: Vec<Claim>,
}

fn title() -> String {
    "Differences of models".into()
}
fn reach() -> f64 {
    0.02
}
fn block_bytes() -> ByteSize {
    ByteSize::kib(256)
}
fn level() -> i32 {
    3
}

/// Bins of the histogram.
const BINS: usize = 121;
const TITLES: [&str; 6] = ["zero bits", "zstd", "tau", "planes", "tau", "restored"];
const PICTURES: [(&str, &str, &str); 2] = [
    ("tau", "Compressed difference, as a share of the values", "fraction"),
    ("zero_bits", "Bits that are zero", "fraction"),
];

impl DifferenceBench {
    /// Parses TOML text; `origin` names it in errors.
    ///
    /// # Errors
    /// [`Error::Config`] for syntax, unknown keys and unusable values.
    pub fn parse(text: &str, origin: &str) -> Result<Self> {
        let wrong = |message: String| Error::Config { origin: origin.into(), message };
        let config: DifferenceBench = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        if !(config.reach > 0.0 && config.reach.is_finite()) {
            return Err(wrong("`reach` must be a number above 0".into()));
        }
        if config.pair.is_empty() || !(4096..=64 << 20).contains(&config.block_bytes.0) {
            return Err(wrong("a `[[pair]]` is needed, and `block_bytes` must be from 4 KiB to 64 MiB".into()));
        }
        Ok(config)
    }

    /// Pairs with missing files, each with the reason. Reads no content.
    pub fn missing(&self) -> Vec<String> {
        let corpus = corpus_directory(self.corpus.as_deref());
        self.pair.iter().filter_map(|pair| pair.missing(&corpus)).collect()
    }
}

impl Measurement for DifferenceBench {
    fn claims(&self) -> &[Claim] {
        &self.claim
    }

    fn outline(&self) -> Outline {
        Outline::of("pair", self.pair.iter().map(|pair| &pair.data.name), self.missing())
    }

    fn run(&self, stop: &Arc<AtomicBool>, out: &mut dyn Write) -> Result<Report> {
        run(self, stop, out)
    }
}

/// Measures every pair and prints a line for each method.
///
/// # Errors
/// A model that cannot be read; [`Error::Interrupted`].
fn run(config: &DifferenceBench, stop: &Arc<AtomicBool>, out: &mut dyn Write) -> Result<Report> {
    let corpus = corpus_directory(config.corpus.as_deref());
    let mut report = Report { title: config.title.clone(), ..Report::default() };
    let (mut histograms, mut bits, mut rows, mut shapes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    write_line(out, "pair", "method", &TITLES)?;
    for pair in &config.pair {
        let models = pair.open(&corpus, &config.work.join("sets"))?;
        let mut distribution: Option<DifferenceDistribution> = None;
        let mut encodings = Encodings::new(config.block_bytes.0 as usize, config.level);
        for (one, other) in pair.tensors(&models)? {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let (values, base) = (bytes_of(&models[0], one)?, bytes_of(&models[1], other)?);
            let of_pair = distribution.get_or_insert_with(|| {
                DifferenceDistribution::new(one.dtype, Bins::new(-config.reach, config.reach, BINS))
            });
            if of_pair.dtype() == one.dtype && of_pair.add(&values, &base) {
                encodings.add(one.dtype, &values, &base)?;
            }
        }
        let Some(distribution) = distribution else { continue };
        let name = &pair.data.name;
        report.lines.push(distribution.line(name, &pair.relation));
        shapes.push(distribution.row(name, &pair.relation));
        for method in Method::ALL {
            let line = encodings.line(name, &pair.relation, method);
            let cells = Encodings::cells(&line);
            write_line(out, name, method.name(), &cells)?;
            rows.push([name.clone(), method.name().into()].into_iter().chain(cells).collect());
            report.lines.push(line);
        }
        flush(out)?;
        histograms.push((format!("{name} ({})", pair.relation), distribution.bins().clone()));
        bits.push((format!("{name} ({})", pair.relation), distribution.bit_points()));
    }
    report.grids = vec![
        Grid { title: "Compressed differences".into(), columns: titles(&TITLES), rows },
        Grid {
            title: "DifferenceDistribution of differences".into(),
            columns: titles(&distribution::TITLES),
            rows: shapes,
        },
    ];
    report.plots = plots(histograms, bits, &report.lines);
    Ok(report)
}

fn titles(titles: &[&str]) -> Vec<String> {
    ["pair", "method"].iter().chain(titles).map(|title| title.to_string()).collect()
}

fn plots(histograms: Vec<(String, Bins)>, bits: Vec<(String, Vec<(f64, f64)>)>, lines: &[Value]) -> Vec<Plot> {
    let histogram = HistogramPlot {
        title: "Differences of values".into(),
        across: "value less value of the base; the outer bins hold all beyond them".into(),
        series: histograms,
    };
    let positions = Plot::Lines {
        title: "Bits that differ, by position: 0 is the lowest".into(),
        across: "bit".into(),
        unit: "share of all differing bits".into(),
        scales: Scales::default(),
        series: bits,
    };
    [Plot::Histogram(histogram), positions].into_iter().chain(pictures(lines, &PICTURES)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_models_have_small_differences_and_xor_compresses_them() {
        let directory = tempfile::tempdir().unwrap();
        let family = |seed: u64| {
            format!(
                "seed = {seed}, models = {{ layers = 2, hidden = 64, vocabulary = 256, fine_tunes = 1, \
                sigma_delta = [0.0005] }}"
            )
        };
        let text = format!(
            "kind = \"differences\"\ncorpus = {0:?}\nwork = {0:?}\nblock_bytes = \"16 KiB\"\n\
            [[pair]]\nrelation = \"one family\"\nname = \"one\"\ngenerate = {{ {1} }}\nmembers = [\"models/fine-tune-00/model.safetensors\", \
            \"models/base/model.safetensors\"]\n[[pair]]\nrelation = \"two families\"\nname = \"two\"\n\
            generate = {{ {1} }}\nother = {{ name = \"other\", generate = {{ {2} }} }}\n\
            members = [\"models/base/model.safetensors\", \"models/base/model.safetensors\"]\n",
            directory.path(),
            family(1),
            family(2)
        );
        let config = DifferenceBench::parse(&text, "x").unwrap();
        assert_eq!(config.missing(), [""; 0]);
        let report = run(&config, &Arc::default(), &mut std::io::sink()).unwrap();
        let of = |relation: &str, method: &str, key: &str| {
            let is_it = |line: &&Value| line["relation"] == relation && line["method"] == method;
            report.lines.iter().find(is_it).unwrap()[key].as_f64().unwrap()
        };
        for relation in ["one family", "two families"] {
            assert_eq!(of(relation, "xor", "restored"), 1.0);
            assert!(of(relation, "arithmetic", "restored") > 0.5);
        }
        assert!(
            of("one family", "distribution", "sigma_delta") < 0.1 * of("two families", "distribution", "sigma_delta")
        );
        assert!(of("one family", "xor", "tau") < of("one family", "values", "tau"), "{:?}", report.lines);
        assert!(of("two families", "xor", "tau") > of("two families", "values", "tau"), "{:?}", report.lines);
        assert!(of("one family", "xor", "zero_bits") > of("two families", "xor", "zero_bits"));
        assert!(of("two families", "distribution", "bit_distance") > 4.0);
        assert_eq!((report.lines.len(), report.plots.len()), (10, 4));
        let wrong = DifferenceBench::parse(&text.replace("[\"models/base/model.safetensors\", \"", "[\"x\", \""), "x");
        assert!(run(&wrong.unwrap(), &Arc::default(), &mut std::io::sink()).is_err());
    }
}
