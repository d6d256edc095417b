//! Scores the classification of blocks against real encodings.
//!
//! 1. Every block is encoded with zstd level 1, with zstd level 3, and by byte groups in every layout. It is *float*
//!    if the best layout saves more than 10 % and is 2 % smaller than zstd level 1. It is *incompressible* if nothing
//!    saves 2 %. All others are *ordinary*.
//! 2. The answer of each of the [methods](super::methods) is compared with that label. Its bytes (float: planes;
//!    ordinary: zstd level 3, or raw if that is smaller; incompressible: raw) are compared with the smallest encoding.
//!    Shifted bits are not among these encodings, so that method can store less.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use fhrd::chunk::classify::ChunkClass;
use fhrd::codec::{ByteGroupLayout, Planes, Scratch};
use fhrd::config::IdentifyConfig;
use fhrd::error::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::blocks::{Blocks, DrawnBlock, Transform};
use super::claim::Claim;
use super::comparison::corpus_directory;
use super::data::lack;
use super::measurement::{Measurement, Outline};
use super::methods::{Answer, Answers, IdentifyMethod};
use super::report::{Grid, Report, pictures};
use super::score::{FLOAT, HEADING, INCOMPRESSIBLE, ORDINARY, Score};

/// Configuration of a measurement of classification.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdentifyBench {
    /// `"identify"`.
    pub kind: String,
    /// Title of the report.
    #[serde(default = "default_title")]
    pub title: String,
    /// Directory that paths are relative to. Default: the environment's `FHRD_CORPUS`, else `corpus`.
    pub corpus: Option<PathBuf>,
    /// Number of blocks drawn from each class.
    #[serde(default = "default_blocks")]
    pub blocks: usize,
    /// Length of a block.
    #[serde(default = "default_block_bytes")]
    pub block_bytes: usize,
    /// Seed of the random positions.
    #[serde(default)]
    pub seed: u64,
    /// Level of zstd for the low byte groups.
    #[serde(default = "default_level")]
    pub level: i32,
    /// Methods to score, each with its own lines.
    #[serde(default = "default_methods")]
    pub methods: Vec<IdentifyMethod>,
    /// Parameters of the classifier.
    #[serde(default)]
    pub identify: IdentifyConfig,
    /// Classes to measure.
    pub class: Vec<IdentifyClass>,
    /// Claims of papers about the measured values.
    #[serde(default)]
    pub claim: Vec<Claim>,
}

/// A class of blocks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdentifyClass {
    /// Name in the report.
    pub name: String,
    /// Whether its blocks are float weights, which count for the recall.
    pub kind: ClassKind,
    /// Names of the totals that include the class.
    #[serde(default)]
    pub sets: Vec<String>,
    /// Paths; `*` matches any part of a name. A directory stands for all files below it.
    pub files: Vec<String>,
    /// Read safetensors files, and of them only the tensors of this dtype, such as `"BF16"`.
    pub tensor_dtype: Option<String>,
    /// Conversion of the data to another representation.
    pub transform: Option<Transform>,
}

/// Whether a class has float weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClassKind {
    /// Float weights.
    Float,
    /// Other data.
    Other,
}

fn default_title() -> String {
    "Identification".into()
}
fn default_blocks() -> usize {
    200
}
fn default_block_bytes() -> usize {
    64 << 10
}
fn default_methods() -> Vec<IdentifyMethod> {
    vec![IdentifyMethod::default()]
}
fn default_level() -> i32 {
    1
}

/// Scores of every class and every set, for each method.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IdentifyReport {
    /// Scores of classes, in the order of the configuration.
    pub classes: Vec<Score>,
    /// Scores of sets, in order of first mention.
    pub sets: Vec<Score>,
}

impl IdentifyBench {
    /// Parses TOML text; `origin` names it in errors.
    ///
    /// # Errors
    /// [`Error::Config`] for syntax, unknown keys and unusable values.
    pub fn parse(text: &str, origin: &str) -> Result<Self> {
        let wrong = |message: String| Error::Config { origin: origin.into(), message };
        let config: IdentifyBench = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        if config.kind != "identify" {
            return Err(wrong(format!("`kind` must be `identify`, found `{}`", config.kind)));
        }
        if config.block_bytes < 1024 || config.blocks == 0 {
            return Err(wrong("`block_bytes` must be at least 1024 and `blocks` at least 1".into()));
        }
        if config.methods.is_empty() {
            return Err(wrong("`methods` must have at least one element".into()));
        }
        Ok(config)
    }

    /// Classes whose files are missing, each with the reason. Reads no content.
    pub fn missing(&self) -> Vec<String> {
        let corpus = corpus_directory(self.corpus.as_deref());
        let of_class = |class: &IdentifyClass| {
            let fault = class.files.iter().find_map(|pattern| lack(&corpus, pattern));
            fault.map(|error| format!("class `{}`: {error}", class.name))
        };
        self.class.iter().filter_map(of_class).collect()
    }
}

/// Label of a block and the lengths of its real encodings.
#[derive(Clone, Copy)]
struct Encoded {
    label: usize,
    zstd: u64,
    best: u64,
}

/// Encodes blocks in every way.
struct Oracle {
    level: i32,
    planes: Scratch,
    fast: Scratch,
    normal: Scratch,
    out: Vec<u8>,
}

impl Oracle {
    fn new(level: i32) -> Self {
        let (planes, fast, normal) = (Scratch::default(), Scratch::default(), Scratch::default());
        Oracle { level, planes, fast, normal, out: Vec::new() }
    }

    fn layout_bytes(&mut self, layout: ByteGroupLayout, block: &[u8]) -> Result<u64> {
        self.out.clear();
        Planes.encode_layout(layout, block, self.level, &mut self.planes, &mut self.out)?;
        Ok(self.out.len() as u64)
    }

    /// Length in the best layout. Groups are compressed separately, so each is judged alone.
    fn best_layout_bytes(&mut self, block: &[u8]) -> Result<u64> {
        let mut best = block.len() as u64;
        for width in [2u8, 4, 8] {
            let stored = self.layout_bytes(ByteGroupLayout::new(width, 0).unwrap_or(ByteGroupLayout::RAW), block)?;
            let mut mask = 0;
            for group in 0..width {
                let alone = ByteGroupLayout::new(width, 1 << group).unwrap_or(ByteGroupLayout::RAW);
                mask |= u8::from(self.layout_bytes(alone, block)? < stored) << group;
            }
            best =
                best.min(self.layout_bytes(ByteGroupLayout::new(width, mask).unwrap_or(ByteGroupLayout::RAW), block)?);
        }
        Ok(best)
    }

    fn zstd_bytes(scratch: &mut Scratch, level: i32, block: &[u8], out: &mut Vec<u8>) -> Result<u64> {
        out.clear();
        scratch.compress(block, level, out)?;
        Ok(out.len() as u64)
    }

    fn encode(&mut self, block: &[u8]) -> Result<Encoded> {
        let raw = block.len() as u64;
        let fast = Self::zstd_bytes(&mut self.fast, 1, block, &mut self.out)?;
        let zstd = Self::zstd_bytes(&mut self.normal, 3, block, &mut self.out)?.min(raw);
        let planes = self.best_layout_bytes(block)?;
        let best = planes.min(zstd);
        let float = planes * 10 < raw * 9 && planes * 100 < fast * 98;
        let label = if float { FLOAT } else { if best * 100 < raw * 98 { ORDINARY } else { INCOMPRESSIBLE } };
        Ok(Encoded { label, zstd, best })
    }
}

impl Measurement for IdentifyBench {
    fn claims(&self) -> &[Claim] {
        &self.claim
    }

    fn outline(&self) -> Outline {
        Outline::of("class", self.class.iter().map(|class| &class.name), self.missing())
    }

    fn run(&self, _stop: &Arc<AtomicBool>, out: &mut dyn Write) -> Result<Report> {
        Ok(report(self, &run(self, out)?))
    }
}

/// The report of scores.
fn report(bench: &IdentifyBench, scores: &IdentifyReport) -> Report {
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

/// Scores every class and prints the tables to `out`.
///
/// # Errors
/// [`Error::Io`] if reading fails; [`Error::Usage`] if the files of a class are too short for a block.
fn run(config: &IdentifyBench, out: &mut dyn Write) -> Result<IdentifyReport> {
    let corpus = corpus_directory(config.corpus.as_deref());
    let failed = |error| Error::io("write", "the report", error);
    let mut report = IdentifyReport::default();
    writeln!(out, "{HEADING}").map_err(failed)?;
    let mut oracle = Oracle::new(config.level);
    for class in &config.class {
        let dtype = class.tensor_dtype.as_deref();
        let bytes = config.block_bytes;
        let mut blocks = Blocks::find(&corpus, &class.files, dtype, class.transform, bytes, config.seed)?;
        let drawn = (0..config.blocks).map(|_| blocks.draw()).collect::<Result<Vec<_>>>()?;
        let encoded = drawn.iter().map(|block| oracle.encode(&block.bytes)).collect::<Result<Vec<_>>>()?;
        for method in &config.methods {
            let mut answers = Answers::new(*method, &config.identify, config.level);
            let mut score = Score { name: class.name.clone(), method: *method, ..Score::default() };
            let started = Instant::now();
            let given = drawn.iter().map(|block| answers.answer(block, &blocks)).collect::<Result<Vec<_>>>()?;
            score.time = started.elapsed();
            for ((block, encoded), answer) in drawn.iter().zip(&encoded).zip(given) {
                judge(class.kind, block, *encoded, answer, &mut oracle, &mut score)?;
            }
            score.print(out).map_err(failed)?;
            report.add(&class.sets, score);
        }
    }
    writeln!(out, "\n{HEADING}").map_err(failed)?;
    report.sets.iter().try_for_each(|set| set.print(out)).map_err(failed)?;
    Ok(report)
}

impl IdentifyReport {
    /// Adds the score of a class, also to its sets.
    fn add(&mut self, sets: &[String], score: Score) {
        for name in sets {
            let is_same = |set: &Score| set.name == *name && set.method == score.method;
            match self.sets.iter_mut().find(|set| is_same(set)) {
                Some(set) => set.add(&score),
                None => self.sets.push(Score { name: name.clone(), ..score.clone() }),
            }
        }
        self.classes.push(score);
    }
}

/// Counts one answer.
fn judge(
    kind: ClassKind,
    block: &DrawnBlock,
    encoded: Encoded,
    answer: Answer,
    oracle: &mut Oracle,
    score: &mut Score,
) -> Result<()> {
    let float_bytes = answer.float_bytes(&block.bytes, oracle.level, &mut oracle.planes)?;
    let (column, bytes) = match (float_bytes, answer) {
        (Some(bytes), _) => (FLOAT, bytes),
        (None, Answer::Class(ChunkClass::Incompressible)) => (INCOMPRESSIBLE, block.bytes.len() as u64),
        (None, _) => (ORDINARY, encoded.zstd),
    };
    if let Some(count) = score.confusion.get_mut(encoded.label).and_then(|row| row.get_mut(column)) {
        *count += 1;
    }
    if kind == ClassKind::Float && encoded.label == FLOAT {
        score.weights += 1;
        score.weights_found += u64::from(column == FLOAT);
    }
    score.bytes += bytes;
    score.bytes_best += encoded.best;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_configuration_parses_and_mistakes_are_named() {
        let text = include_str!("../../configs/bench/identify.toml");
        let config = IdentifyBench::parse(text, "identify.toml").unwrap();
        assert!(config.class.len() > 20 && config.class.iter().any(|class| class.kind == ClassKind::Float));
        let error = IdentifyBench::parse(&text.replace("seed =", "sed ="), "x.toml").unwrap_err().to_string();
        assert!(error.contains("x.toml") && error.contains("sed"), "{error}");
        let error = IdentifyBench::parse(&text.replace("\"identify\"", "\"all\""), "x.toml").unwrap_err().to_string();
        assert!(error.contains("`kind`") && error.contains("all"), "{error}");
    }

    #[test]
    fn floats_and_text_are_scored_by_class_and_in_total() {
        let directory = tempfile::tempdir().unwrap();
        let wave = (0..60_000u32).map(|i| (i as f32 * 0.7).sin() * (i.wrapping_mul(2_654_435_761) >> 8) as f32 * 1e-9);
        std::fs::write(directory.path().join("floats"), wave.flat_map(f32::to_le_bytes).collect::<Vec<u8>>()).unwrap();
        std::fs::write(directory.path().join("text"), "all work and no play ".repeat(9000)).unwrap();
        let class = |name: &str, kind| IdentifyClass {
            name: name.into(),
            kind,
            sets: vec!["all".into()],
            files: vec![directory.path().join(name).display().to_string()],
            tensor_dtype: None,
            transform: None,
        };
        let config = IdentifyBench {
            kind: "identify".into(),
            title: String::new(),
            claim: Vec::new(),
            corpus: None,
            blocks: 5,
            block_bytes: 65_536,
            seed: 1,
            level: 1,
            methods: vec![IdentifyMethod::Byte, IdentifyMethod::Bit, IdentifyMethod::File],
            identify: IdentifyConfig::default(),
            class: vec![class("floats", ClassKind::Float), class("text", ClassKind::Other)],
        };
        let mut printed = Vec::new();
        let report = run(&config, &mut printed).unwrap();
        let [byte, bit, file] = report.sets.as_slice() else { panic!("{:?}", report.sets) };
        let by = |score: &Score| (score.method, score.name.clone());
        let classes: Vec<_> = report.classes.iter().map(by).collect();
        let method = |name: &str| config.methods.iter().map(|method| (*method, name.to_string())).collect::<Vec<_>>();
        assert_eq!(classes, [method("floats"), method("text")].concat());
        assert_eq!(report.classes[0].confusion[FLOAT], [5, 0, 0]);
        assert_eq!(report.classes[3].confusion[ORDINARY], [0, 5, 0]);
        for score in [byte, bit, file] {
            assert_eq!((score.recall(), score.accuracy(), score.weights), (1.0, 1.0, 5), "{score:?}");
        }
        assert!(byte.excess() < 0.001, "{}", byte.excess());
        assert!([bit, file].iter().all(|score| score.bytes_best == byte.bytes_best), "the blocks are equal");
        let printed = String::from_utf8(printed).unwrap();
        assert!(printed.contains("floats") && printed.contains(" bit "), "{printed}");
    }
}
