//! Entropies of byte groups by kind of data, and the rule of FHRD that classifies floats by them.
//!
//! 1. Blocks are drawn from each class. The entropy of every byte group of an element is measured over the whole
//!    block. A block can start inside an element, which permutes its groups. So groups are ranked: group 1 has the
//!    lowest entropy.
//! 2. Each rank of a class has a line: quantiles of its entropy, and the fraction of its bytes that remains after zstd
//!    compresses the group alone.
//! 3. Each class has a line with the fraction of blocks that have one group below `low_bits` and one above
//!    `high_bits`, at an element length of 2, 4 or 8 bytes. This rule alone would classify them as floats.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fhrd::codec::Scratch;
use fhrd::error::{Error, Result};
use fhrd::kernel::entropy::EntropyProfile;
use fhrd::kernel::planes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::blocks::{Blocks, DrawnBlock, Transform};
use super::claim::Claim;
use super::comparison::corpus_directory;
use super::data::lack;
use super::measurement::{Measurement, Outline};
use super::report::{Grid, Report, pictures};
use super::table::{flush, two, write_line};

/// Configuration of a measurement of entropies.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EntropyBench {
    /// `"entropies"`.
    pub kind: String,
    /// Title of the report.
    #[serde(default = "title")]
    pub title: String,
    /// Directory that paths are relative to. Default: the environment's `FHRD_CORPUS`, else `corpus`.
    pub corpus: Option<PathBuf>,
    /// Number of blocks drawn from each class.
    pub blocks: usize,
    /// Length of a block.
    pub block_bytes: usize,
    /// Seed of the random positions.
    #[serde(default)]
    pub seed: u64,
    /// Level of zstd for the groups.
    pub level: i32,
    /// A group with fewer bits per byte is low.
    pub low_bits: f64,
    /// A group with more bits per byte is high.
    pub high_bits: f64,
    /// Classes to measure.
    pub class: Vec<EntropyClass>,
    /// Claims of papers about the measured values.
    #[serde(default)]
    pub claim: Vec<Claim>,
}

/// A class of blocks.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EntropyClass {
    /// Name in the report.
    pub name: String,
    /// Whether its blocks are floats.
    pub floats: bool,
    /// Bytes of an element: 2, 4 or 8.
    pub element_bytes: usize,
    /// Paths; `*` matches any part of a name. A directory stands for all files below it.
    pub files: Vec<String>,
    /// Read safetensors files, and of them only the tensors of this dtype, such as `"BF16"`.
    pub tensor_dtype: Option<String>,
    /// Conversion of the data to another representation.
    pub transform: Option<Transform>,
}

fn title() -> String {
    "Entropies of byte groups".into()
}

impl EntropyBench {
    /// Parses TOML text; `origin` names it in errors.
    ///
    /// # Errors
    /// [`Error::Config`] for syntax, unknown keys and unusable values.
    pub fn parse(text: &str, origin: &str) -> Result<Self> {
        let wrong = |message: String| Error::Config { origin: origin.into(), message };
        let config: EntropyBench = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        if config.block_bytes < 1024 || config.blocks == 0 {
            return Err(wrong("`block_bytes` must be at least 1024 and `blocks` at least 1".into()));
        }
        match config.class.iter().find(|class| ![2, 4, 8].contains(&class.element_bytes)) {
            Some(class) => Err(wrong(format!("`element_bytes` of class `{}` must be 2, 4 or 8", class.name))),
            None => Ok(config),
        }
    }

    /// Classes whose files are missing, each with the reason. Reads no content.
    pub fn missing(&self) -> Vec<String> {
        let corpus = corpus_directory(self.corpus.as_deref());
        let of_class = |class: &EntropyClass| {
            let fault = class.files.iter().find_map(|pattern| lack(&corpus, pattern));
            fault.map(|error| format!("class `{}`: {error}", class.name))
        };
        self.class.iter().filter_map(of_class).collect()
    }

    /// Whether the rule classifies a block as floats.
    fn separates(&self, profile: &EntropyProfile) -> bool {
        [2, 4, 8].iter().any(|width| {
            let bits = || profile.bits(*width).iter().map(|bits| f64::from(*bits));
            bits().any(|bits| bits < self.low_bits) && bits().any(|bits| bits > self.high_bits)
        })
    }
}

/// Byte groups of one rank: the entropy in each block, and their bytes.
#[derive(Default, Clone)]
struct Rank {
    bits: Vec<f64>,
    raw_bytes: u64,
    stored_bytes: u64,
}

impl Rank {
    /// Entropy that the fraction `share` of the blocks does not exceed, bits per byte.
    fn quantile(&self, share: f64) -> f64 {
        let last = self.bits.len().saturating_sub(1) as f64;
        self.bits.get((last * share).round() as usize).copied().unwrap_or_default()
    }

    /// Fraction of the bytes that remains after zstd.
    fn remaining(&self) -> f64 {
        self.stored_bytes as f64 / self.raw_bytes.max(1) as f64
    }
}

/// Measurements of a class.
struct EntropyMeasurements {
    ranks: Vec<Rank>,
    separated: usize,
}

fn measure(config: &EntropyBench, class: &EntropyClass, blocks: &[DrawnBlock]) -> Result<EntropyMeasurements> {
    let mut measured = EntropyMeasurements { ranks: vec![Rank::default(); class.element_bytes], separated: 0 };
    let (mut scratch, mut stored) = (Scratch::default(), Vec::new());
    for block in blocks {
        let profile = EntropyProfile::of(&block.bytes, usize::MAX);
        measured.separated += usize::from(config.separates(&profile));
        let elements = block.bytes.len() / class.element_bytes;
        let mut groups = vec![0; elements * class.element_bytes];
        planes::deinterleave(&block.bytes, class.element_bytes, &mut groups);
        let mut ranked: Vec<_> = profile.bits(class.element_bytes).iter().zip(groups.chunks(elements)).collect();
        ranked.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        for (rank, (bits, group)) in measured.ranks.iter_mut().zip(ranked) {
            stored.clear();
            scratch.compress(group, config.level, &mut stored)?;
            rank.bits.push(f64::from(*bits));
            rank.raw_bytes += group.len() as u64;
            rank.stored_bytes += stored.len().min(group.len()) as u64;
        }
    }
    measured.ranks.iter_mut().for_each(|rank| rank.bits.sort_by(f64::total_cmp));
    Ok(measured)
}

const COLUMNS: [&str; 6] = ["least", "p10", "median", "p90", "most", "remaining"];
const PICTURES: [(&str, &str, &str); 3] = [
    ("bits_median", "Entropy of byte groups, lowest first (median of blocks)", "bits per byte"),
    ("remaining", "Bytes of a byte group that remain after zstd, lowest entropy first", "fraction"),
    ("separated", "Blocks with a low and a high byte group", "fraction"),
];

impl Measurement for EntropyBench {
    fn claims(&self) -> &[Claim] {
        &self.claim
    }

    fn outline(&self) -> Outline {
        Outline::of("class", self.class.iter().map(|class| &class.name), self.missing())
    }

    fn run(&self, _stop: &Arc<AtomicBool>, out: &mut dyn Write) -> Result<Report> {
        run(self, out)
    }
}

/// Measures every class and prints a line for each byte group.
///
/// # Errors
/// [`Error::Io`] if reading fails; [`Error::Usage`] if the files of a class are too short for a block.
fn run(config: &EntropyBench, out: &mut dyn Write) -> Result<Report> {
    let corpus = corpus_directory(config.corpus.as_deref());
    let (mut lines, mut groups, mut shares) = (Vec::new(), Vec::new(), Vec::new());
    write_line(out, "class", "byte group, lowest first", &COLUMNS)?;
    for class in &config.class {
        let (dtype, bytes) = (class.tensor_dtype.as_deref(), config.block_bytes);
        let mut blocks = Blocks::find(&corpus, &class.files, dtype, class.transform, bytes, config.seed)?;
        let drawn = (0..config.blocks).map(|_| blocks.draw()).collect::<Result<Vec<_>>>()?;
        let measured = measure(config, class, &drawn)?;
        for (number, rank) in (1..).zip(&measured.ranks) {
            let quantiles = [0.0, 0.1, 0.5, 0.9, 1.0].map(|share| rank.quantile(share));
            let cells: Vec<String> = quantiles.into_iter().chain([rank.remaining()]).map(two).collect();
            let name = format!("group {number}");
            write_line(out, &class.name, &format!("{name} of {}", class.element_bytes), &cells)?;
            let [least, p10, median, p90, most] = quantiles;
            lines.push(json!({
                "set": class.name, "floats": class.floats.to_string(), "method": name,
                "bits_least": least, "bits_p10": p10, "bits_median": median, "bits_p90": p90, "bits_most": most,
                "remaining": rank.remaining(),
            }));
            groups.push([vec![class.name.clone(), name], cells].concat());
        }
        let share = measured.separated as f64 / drawn.len() as f64;
        shares.push((class.name.clone(), share));
        lines
            .push(json!({"set": class.name, "floats": class.floats.to_string(), "method": "rule", "separated": share}));
    }
    write_line(out, "\nclass", "a low and a high group", &["% of blocks"])?;
    for (name, share) in &shares {
        write_line(out, name, "", &[two(100.0 * share)])?;
    }
    flush(out)?;
    Ok(report(config, lines, groups, &shares))
}

fn report(config: &EntropyBench, lines: Vec<Value>, groups: Vec<Vec<String>>, shares: &[(String, f64)]) -> Report {
    let titles = ["class", "byte group"].iter().chain(&COLUMNS).map(ToString::to_string).collect();
    let rows = shares.iter().map(|(name, share)| vec![name.clone(), two(100.0 * share)]).collect();
    let rule = format!("Blocks with a group below {} bits and one above {}", config.low_bits, config.high_bits);
    Report {
        title: config.title.clone(),
        grids: vec![
            Grid {
                title: "Bits per byte, and the fraction of bytes that remains after zstd".into(),
                columns: titles,
                rows: groups,
            },
            Grid { title: rule, columns: vec!["class".into(), "% of blocks".into()], rows },
        ],
        plots: pictures(&lines, &PICTURES),
        lines,
        ..Report::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Elements with one byte of noise and one constant byte, and noise alone.
    fn directory() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let noise = || (0..40_000u32).map(|i| (i.wrapping_mul(0x9e37_79b9) ^ (i << 7)).wrapping_mul(0x85eb_ca6b) >> 24);
        let floats: Vec<u8> = noise().flat_map(|byte| [byte as u8, 0x3f]).collect();
        std::fs::write(directory.path().join("floats"), floats).unwrap();
        std::fs::write(directory.path().join("noise"), noise().map(|byte| byte as u8).collect::<Vec<u8>>()).unwrap();
        directory
    }

    fn config(directory: &std::path::Path, element_bytes: usize) -> String {
        let head = "kind = \"entropies\"\nblocks = 5\nblock_bytes = 8192\nlevel = 1\nlow_bits = 6.2\nhigh_bits = 7.3";
        let class = |name: &str, floats: bool| {
            format!(
                "[[class]]\nname = {name:?}\nfloats = {floats}\nelement_bytes = {element_bytes}\nfiles = [{name:?}]\n"
            )
        };
        format!("{head}\ncorpus = {directory:?}\n{}{}", class("floats", true), class("noise", false))
    }

    #[test]
    fn groups_are_ranked_by_entropy_at_any_start_of_a_block() {
        let directory = directory();
        let bench = EntropyBench::parse(&config(directory.path(), 2), "x").unwrap();
        let mut printed = Vec::new();
        let report = run(&bench, &mut printed).unwrap();
        let value = |set: &str, method: &str, key: &str| {
            let line = report.lines.iter().find(|line| line["set"] == set && line["method"] == method).unwrap();
            line[key].as_f64().unwrap()
        };
        assert_eq!((value("floats", "group 1", "bits_most"), value("floats", "rule", "separated")), (0.0, 1.0));
        assert!(value("floats", "group 2", "bits_least") > 7.5 && value("floats", "group 2", "remaining") > 0.95);
        assert!(value("floats", "group 1", "remaining") < 0.02);
        assert!(value("noise", "group 1", "bits_least") > 7.5 && value("noise", "rule", "separated") == 0.0);
        assert_eq!((report.plots.len(), report.grids[0].rows.len(), report.grids[1].rows.len()), (3, 4, 2));
        let printed = String::from_utf8(printed).unwrap();
        assert!(printed.contains("group 2 of 2") && printed.contains("100.00"), "{printed}");
    }

    #[test]
    fn invalid_element_lengths_and_missing_files_are_named() {
        let directory = directory();
        let error = EntropyBench::parse(&config(directory.path(), 3), "x.toml").unwrap_err().to_string();
        assert!(error.contains("x.toml") && error.contains("`floats`"), "{error}");
        let bench = EntropyBench::parse(&config(&directory.path().join("none"), 4), "x").unwrap();
        assert!(bench.missing()[0].contains("class `floats`"), "{:?}", bench.missing());
    }
}
