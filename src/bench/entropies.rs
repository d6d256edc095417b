//! Entropies of byte groups by kind of data: what tells floats from the rest (FHRD).
//!
//! 1. Blocks are drawn from each class, and the entropy of every byte of a word is taken over the whole block. A block
//!    may start amid a word, which permutes its groups, so they go by rank: group 1 has the lowest entropy.
//! 2. Each rank of a class has a line: quantiles of its entropy, and the share of its bytes that zstd leaves of that
//!    group alone.
//! 3. Each class has a line with the share of its blocks that have one group below `low_bits` and one above
//!    `high_bits`, words of any length from 2 to 8 bytes: the rule by which floats would be told without any probe.

use std::io::Write;
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Value, json};

use super::blocks::{Blocks, DrawnBlock, Transform};
use super::claim::Claim;
use super::comparison::corpus_directory;
use super::data::expand;
use super::report::{Grid, Report, pictures};
use super::table::{flush, two, write_line};
use crate::codec::Scratch;
use crate::error::{Error, Result};
use crate::kernel::entropy::EntropyProfile;
use crate::kernel::planes;

/// A measurement of entropies, as read from TOML.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EntropyBench {
    /// `"entropies"`.
    pub kind: String,
    /// What the report is called.
    #[serde(default = "title")]
    pub title: String,
    /// Folder that the classes' paths are relative to; without it `FHRD_CORPUS` of the environment, or `corpus`.
    pub corpus: Option<PathBuf>,
    /// Blocks drawn of each class.
    pub blocks: usize,
    /// Bytes of a block.
    pub block_bytes: usize,
    /// Where the random positions start from.
    #[serde(default)]
    pub seed: u64,
    /// zstd level of the groups.
    pub level: i32,
    /// A group below this many bits per byte is low.
    pub low_bits: f64,
    /// A group above this many bits per byte is high.
    pub high_bits: f64,
    /// What is measured.
    pub class: Vec<EntropyClass>,
    /// What others say of the same figures.
    #[serde(default)]
    pub claim: Vec<Claim>,
}

/// One class of blocks.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EntropyClass {
    /// Name in the report.
    pub name: String,
    /// Whether its blocks are floats.
    pub floats: bool,
    /// Bytes of a word: 2, 4 or 8.
    pub element_bytes: usize,
    /// Paths, with `*` for any part of a name; directories are taken whole.
    pub files: Vec<String>,
    /// Take only the tensors of this dtype of safetensors files, such as `"BF16"`.
    pub tensor_dtype: Option<String>,
    /// Another representation of the same data.
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

    /// Why classes cannot be drawn from, as far as that shows from their paths.
    pub fn missing(&self) -> Vec<String> {
        let corpus = corpus_directory(self.corpus.as_deref());
        let of_class = |class: &EntropyClass| {
            let fault = class.files.iter().find_map(|pattern| expand(&corpus, pattern).err());
            fault.map(|error| format!("class `{}`: {error}", class.name))
        };
        self.class.iter().filter_map(of_class).collect()
    }

    /// Whether the rule alone takes a block for floats.
    fn separates(&self, profile: &EntropyProfile) -> bool {
        [2, 4, 8].iter().any(|width| {
            let bits = || profile.bits(*width).iter().map(|bits| f64::from(*bits));
            bits().any(|bits| bits < self.low_bits) && bits().any(|bits| bits > self.high_bits)
        })
    }
}

/// Entropies of the groups of one rank, a number for each block, and their bytes.
#[derive(Default, Clone)]
struct Rank {
    bits: Vec<f64>,
    raw_bytes: u64,
    stored_bytes: u64,
}

impl Rank {
    /// The entropy that `share` of the blocks do not exceed, bits per byte.
    fn quantile(&self, share: f64) -> f64 {
        let last = self.bits.len().saturating_sub(1) as f64;
        self.bits.get((last * share).round() as usize).copied().unwrap_or_default()
    }

    /// Share of its bytes that zstd leaves.
    fn remaining(&self) -> f64 {
        self.stored_bytes as f64 / self.raw_bytes.max(1) as f64
    }
}

/// All blocks of a class.
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
    ("remaining", "What zstd leaves of a byte group alone, lowest entropy first", "of 1"),
    ("separated", "Blocks with a low and a high byte group", "of 1"),
];

/// Measures every class and prints a line for each group of a word.
///
/// # Errors
/// Reading fails, or a class has nothing to draw from.
pub fn run(config: &EntropyBench, out: &mut dyn Write) -> Result<Report> {
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
                title: "Bits per byte, and the share of bytes that zstd leaves".into(),
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

    /// Words whose first byte is noise and whose second is always the same, and noise alone.
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
            format!("[[class]]\nname = {name:?}\nfloats = {floats}\nword_bytes = {element_bytes}\nfiles = [{name:?}]\n")
        };
        format!("{head}\ncorpus = {directory:?}\n{}{}", class("floats", true), class("noise", false))
    }

    #[test]
    fn groups_go_by_rank_whatever_byte_a_block_starts_at() {
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
    fn words_of_other_lengths_and_missing_files_are_named() {
        let directory = directory();
        let error = EntropyBench::parse(&config(directory.path(), 3), "x.toml").unwrap_err().to_string();
        assert!(error.contains("x.toml") && error.contains("`floats`"), "{error}");
        let bench = EntropyBench::parse(&config(&directory.path().join("none"), 4), "x").unwrap();
        assert!(bench.missing()[0].contains("class `floats`"), "{:?}", bench.missing());
    }
}
