//! Measures float codecs on blocks of real tensors: one thread, no chunks, containers or files.
//!
//! 1. A class lists model files. Tensors of its dtype whose names match are split into blocks. At most `blocks` of
//!    them are measured, evenly spaced.
//! 2. If a class has a `base`, the base of a block is the same range of the tensor of the same name there. Deltas need
//!    a base.
//! 3. Every method encodes all blocks and decodes them, in several rounds. The speed is that of the fastest round,
//!    which other processes disturbed least. A method fails if a decoded block differs.
//! 4. If BitX is among the methods, the others are compared with it block by block. *Worst* is the largest encoding
//!    less `ALLOWED_BYTES`, divided by the encoding of BitX.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bytesize::ByteSize;
use fhrd::codec::delta::{self, Derivation};
use fhrd::codec::{BlockHint, Codec, ElementType, Planes, Scratch};
use fhrd::config::FloatCodec;
use fhrd::error::{Error, Result};
use fhrd::format::{Dtype, Tensor, Window};
use fhrd::inspect::distance::OpenModel;
use serde::{Deserialize, Serialize};

use super::claim::Claim;
use super::comparison::corpus_directory;
use super::data::{expand, files_below, lack};
use super::lz4_frame::Framed;
use super::measurement::{Measurement, Outline};
use super::report::{Grid, Report, objects, pictures};
use super::speed::noise_of_fastest;
use super::table::{flush, or_dash, two, write_line};

/// Configuration of a measurement of codecs.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CodecBench {
    /// `"codecs"`.
    pub kind: String,
    /// Title of the report.
    #[serde(default = "title")]
    pub title: String,
    /// Directory that paths are relative to. Default: the environment's `FHRD_CORPUS`, else `corpus`.
    pub corpus: Option<PathBuf>,
    /// Maximum number of blocks of each class.
    #[serde(default = "blocks")]
    pub blocks: usize,
    /// Length of a block. The rest of a tensor is not measured.
    #[serde(default = "block_bytes")]
    pub block_bytes: ByteSize,
    /// Number of rounds.
    #[serde(default = "repeats")]
    pub repeats: usize,
    /// Codecs by their names in `model.codec`, the deltas `context` and `bitx`, and LZ4 frames by the names of
    /// `lz4_frame.rs`.
    pub methods: Vec<String>,
    /// Level of zstd, for methods that use it.
    #[serde(default = "level")]
    pub level: i32,
    /// Classes to measure.
    pub class: Vec<CodecClass>,
    /// Claims of papers about the measured values.
    #[serde(default)]
    pub claim: Vec<Claim>,
}

/// A class: tensors of one dtype in some model files.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CodecClass {
    /// Name in the report.
    pub name: String,
    /// Model files.
    pub files: Vec<String>,
    /// Dtype of the tensors, such as `BF16`.
    pub dtype: String,
    /// Pattern of the tensor names, with `*`.
    #[serde(default = "any")]
    pub tensors: String,
    /// Model file that the models were fine-tuned from.
    pub base: Option<String>,
}

fn title() -> String {
    "Codecs".into()
}
fn blocks() -> usize {
    64
}
fn block_bytes() -> ByteSize {
    ByteSize::kib(512)
}
fn repeats() -> usize {
    5
}
fn level() -> i32 {
    1
}
fn any() -> String {
    "*".into()
}

/// The delta that other methods are compared with.
const BITX: &str = "bitx";
/// Names of the deltas.
const DELTAS: [&str; 2] = ["context", BITX];
/// Extra bytes of a block that do not count as worse: the description of the encoding.
const ALLOWED_BYTES: u64 = 32;

/// Measurements of one method on one class.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CodecLine {
    /// Name of the class.
    pub set: String,
    /// Name of the method.
    pub method: String,
    /// Number of blocks.
    pub blocks: usize,
    /// Bytes of all blocks.
    pub bytes: u64,
    /// Bytes of all encodings.
    pub stored: u64,
    /// Bytes divided by encoded bytes.
    pub ratio: f64,
    /// Ratio of single blocks: 10th, 50th and 90th percentile.
    pub block_ratios: [f64; 3],
    /// Largest encoding less `ALLOWED_BYTES`, relative to that of BitX for the same block.
    pub worst_of_bitx: Option<f64>,
    /// Fraction of the bytes that the compressor does not get, if byte groups were left out.
    pub left_out: Option<f64>,
    /// MB encoded per second by one thread.
    pub encode_mb_per_s: f64,
    /// MB decoded per second by one thread.
    pub decode_mb_per_s: f64,
    /// By what share the median round of encoding takes longer than the fastest; `None` for one round.
    pub encode_noise: Option<f64>,
    /// The same of decoding.
    pub decode_noise: Option<f64>,
    /// Encoded bytes of each block.
    #[serde(skip)]
    pub sizes: Vec<u64>,
    /// Error message if the measurement failed.
    pub failure: Option<String>,
}

/// A block and, for deltas, its base.
struct CodecBlock {
    raw: Vec<u8>,
    base: Option<Vec<u8>>,
}

/// A codec, an LZ4 frame, or a delta (true for BitX).
#[derive(Debug, Clone, Copy)]
enum CodecMethod {
    Alone(FloatCodec),
    Framed(Framed),
    Delta(bool),
}

impl CodecMethod {
    fn named(name: &str) -> Option<Self> {
        match name {
            "context" => Some(CodecMethod::Delta(false)),
            BITX => Some(CodecMethod::Delta(true)),
            _ => {
                let framed = || Framed::named(name).map(CodecMethod::Framed);
                FloatCodec::from_name(name).map(CodecMethod::Alone).or_else(framed)
            }
        }
    }

    fn encode(
        self,
        element_type: ElementType,
        block: &CodecBlock,
        level: i32,
        space: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<UsedCodec> {
        match (self, &block.base) {
            (CodecMethod::Alone(codec), _) => {
                codec.encode(BlockHint::ElementType(element_type), &block.raw, level, space, out).map(UsedCodec::Alone)
            }
            (CodecMethod::Framed(framed), _) => {
                framed.encode(element_type.width(), &block.raw, space, out).map(|()| UsedCodec::Framed(framed))
            }
            (CodecMethod::Delta(is_plain), base) => {
                let derivation = if is_plain { Derivation::Xor } else { Derivation::Context(element_type) };
                let base = base.as_deref().unwrap_or_default();
                delta::encode(derivation, &block.raw, base, space, out).map(|()| UsedCodec::Delta(derivation))
            }
        }
    }
}

/// The codec or delta that made an encoding.
#[derive(Clone, Copy)]
enum UsedCodec {
    Alone(&'static dyn Codec),
    Framed(Framed),
    Delta(Derivation),
}

impl UsedCodec {
    fn decode(self, payload: &[u8], block: &CodecBlock, space: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
        let base = block.base.as_deref().unwrap_or_default();
        match self {
            UsedCodec::Alone(codec) => codec.decode(payload, block.raw.len(), space, out),
            UsedCodec::Framed(framed) => framed.decode(payload, block.raw.len(), space, out),
            UsedCodec::Delta(derivation) => delta::decode(derivation.id(), payload, base, block.raw.len(), space, out),
        }
    }
}

impl CodecBench {
    /// Parses TOML text; `origin` names it in errors.
    ///
    /// # Errors
    /// [`Error::Config`] for syntax, unknown keys and unusable values.
    pub fn parse(text: &str, origin: &str) -> Result<Self> {
        let wrong = |message: String| Error::Config { origin: origin.into(), message };
        let config: CodecBench = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        if let Some(unknown) = config.methods.iter().find(|name| CodecMethod::named(name).is_none()) {
            let codecs = FloatCodec::ALL.iter().map(|codec| codec.name());
            let names = codecs.chain(DELTAS).chain(Framed::ALL.map(|framed| framed.0)).collect::<Vec<_>>().join(", ");
            return Err(wrong(format!("`methods` must be among {names}, found `{unknown}`")));
        }
        if let Some(class) = config.class.iter().find(|class| Dtype::named(&class.dtype).is_none()) {
            return Err(wrong(format!("class `{}`: unknown dtype `{}`", class.name, class.dtype)));
        }
        if config.blocks == 0 || config.repeats == 0 || !(4096..=64 << 20).contains(&config.block_bytes.0) {
            return Err(wrong(
                "`blocks` and `repeats` must be at least 1, and `block_bytes` from 4 KiB to 64 MiB".into(),
            ));
        }
        Ok(config)
    }

    /// Classes whose files are missing, each with the reason. Reads no content.
    pub fn missing(&self) -> Vec<String> {
        let corpus = corpus_directory(self.corpus.as_deref());
        let of_class = |class: &CodecClass| {
            let fault = class.files.iter().chain(&class.base).find_map(|pattern| lack(&corpus, pattern));
            fault.map(|error| format!("class `{}`: {error}", class.name))
        };
        self.class.iter().filter_map(of_class).collect()
    }

    /// Reads the blocks of a class.
    fn blocks_of(&self, class: &CodecClass) -> Result<Vec<CodecBlock>> {
        let corpus = corpus_directory(self.corpus.as_deref());
        let one = |pattern: &String| -> Result<Option<PathBuf>> { Ok(expand(&corpus, pattern)?.into_iter().next()) };
        let base =
            class.base.as_ref().map(one).transpose()?.flatten().map(|path| OpenModel::open(&path)).transpose()?;
        let mut sides = Vec::new();
        for pattern in &class.files {
            for path in expand(&corpus, pattern)? {
                for file in files_below(&path)? {
                    sides.push(OpenModel::open(&file)?);
                }
            }
        }
        let wrong = |what: &str| Error::Usage(format!("class `{}`: {what}", class.name));
        let pattern = glob::Pattern::new(&class.tensors).map_err(|error| wrong(&error.to_string()))?;
        let len = self.block_bytes.0;
        let mut positions = Vec::new();
        for side in &sides {
            let is_one = |tensor: &&Tensor| tensor.dtype.name() == class.dtype && pattern.matches(&tensor.name);
            for tensor in side.model.tensors.iter().filter(is_one) {
                let of_base = base.as_ref().and_then(|base| {
                    let found = base.model.tensors.iter().find(|other| other.name == tensor.name)?;
                    (found.len == tensor.len).then_some((base, found.offset))
                });
                if base.is_some() == of_base.is_some() {
                    positions.extend(
                        (0..tensor.len / len).map(|block| (side, tensor.offset + block * len, of_base, block * len)),
                    );
                }
            }
        }
        let step = positions.len().div_ceil(self.blocks).max(1);
        let read = |side: &OpenModel, offset: u64| {
            let window = Window::new(side.source(), u64::MAX);
            window.read(offset, len).map_err(|_| wrong(&format!("{} cannot be read at {offset}", side.label)))
        };
        let block = |(side, offset, of_base, within): &(&OpenModel, u64, Option<(&OpenModel, u64)>, u64)| {
            let base = of_base.map(|(base, start)| read(base, start + within)).transpose()?;
            Ok(CodecBlock { raw: read(side, *offset)?, base })
        };
        let blocks = positions.iter().step_by(step).map(block).collect::<Result<Vec<_>>>()?;
        if blocks.is_empty() { Err(wrong("no tensor is long enough for a block")) } else { Ok(blocks) }
    }
}

/// Encodes and decodes the blocks with one method.
fn measure(config: &CodecBench, class: &CodecClass, name: &str, blocks: &[CodecBlock]) -> Result<CodecLine> {
    let method = CodecMethod::named(name).ok_or_else(|| Error::Usage(format!("no method {name}")))?;
    let element_type = Dtype::named(&class.dtype).map_or(ElementType::Unknown, Dtype::element_type);
    let (mut scratch, mut encodings) = (Scratch::default(), Vec::new());
    let (mut encode_seconds, mut decode_seconds) = (Vec::new(), Vec::new());
    let mut failure = None;
    for _ in 0..config.repeats {
        encodings = blocks.iter().map(|block| (None, Vec::with_capacity(block.raw.len() + 4096))).collect::<Vec<_>>();
        let start = Instant::now();
        for (block, (used, out)) in blocks.iter().zip(&mut encodings) {
            *used = Some(method.encode(element_type, block, config.level, &mut scratch, out)?);
        }
        encode_seconds.push(start.elapsed().as_secs_f64());
        let mut seconds = 0.0;
        let mut back = Vec::with_capacity(config.block_bytes.0 as usize);
        for (block, (used, payload)) in blocks.iter().zip(&encodings) {
            back.clear();
            let start = Instant::now();
            let decoded = used.map_or(Ok(()), |used| used.decode(payload, block, &mut scratch, &mut back));
            seconds += start.elapsed().as_secs_f64();
            if decoded.is_err() || back != block.raw {
                failure = Some("a decoded block differs from its source".to_string());
            }
        }
        decode_seconds.push(seconds);
    }
    let raw_bytes = |block: &CodecBlock| block.raw.len() as u64;
    let bytes: u64 = blocks.iter().map(raw_bytes).sum();
    // A block that does not become smaller is stored raw.
    let sizes = blocks.iter().zip(&encodings).map(|(block, (_, payload))| (raw_bytes(block), payload.len() as u64));
    let sizes: Vec<(u64, u64)> = sizes.map(|(raw, stored)| (raw, stored.min(raw))).collect();
    let stored = sizes.iter().map(|(_, stored)| stored).sum::<u64>();
    let mut ratios: Vec<f64> = sizes.iter().map(|(raw, stored)| *raw as f64 / (*stored as f64).max(1.0)).collect();
    ratios.sort_by(f64::total_cmp);
    let at = |tenths: usize| ratios.get((ratios.len() - 1) * tenths / 10).copied().unwrap_or(0.0);
    let speed = |seconds: &[f64]| bytes as f64 / 1e6 / seconds.iter().copied().fold(f64::MAX, f64::min).max(1e-9);
    Ok(CodecLine {
        set: class.name.clone(),
        method: name.into(),
        blocks: blocks.len(),
        bytes,
        stored,
        ratio: bytes as f64 / (stored as f64).max(1.0),
        block_ratios: [at(1), at(5), at(9)],
        worst_of_bitx: None,
        left_out: left_out(&encodings),
        sizes: sizes.into_iter().map(|(_, stored)| stored).collect(),
        encode_mb_per_s: speed(&encode_seconds),
        decode_mb_per_s: speed(&decode_seconds),
        encode_noise: noise_of_fastest(&encode_seconds),
        decode_noise: noise_of_fastest(&decode_seconds),
        failure,
    })
}

/// Mean fraction of the byte groups that encodings by planes store. Their payloads begin with the width of an element
/// and the mask of the compressed groups. `None` if another codec made one.
fn left_out(encodings: &[(Option<UsedCodec>, Vec<u8>)]) -> Option<f64> {
    let of_block = |(used, payload): &(Option<UsedCodec>, Vec<u8>)| match (used, payload.as_slice()) {
        (Some(UsedCodec::Alone(codec)), [width, mask, ..]) if codec.id() == Planes.id() => {
            Some(1.0 - f64::from(mask.count_ones()) / f64::from(*width).max(1.0))
        }
        _ => None,
    };
    let fractions = encodings.iter().map(of_block).collect::<Option<Vec<f64>>>()?;
    (!fractions.is_empty()).then(|| fractions.iter().sum::<f64>() / fractions.len() as f64)
}

impl CodecLine {
    fn cells(&self) -> Vec<String> {
        let [low, middle, high] = self.block_ratios.map(two);
        let speeds = [self.encode_mb_per_s, self.decode_mb_per_s].map(|speed| format!("{speed:.0}"));
        let failed = self.failure.iter().map(|failure| format!(" FAILED: {failure}"));
        let worst = or_dash(self.worst_of_bitx, |worst| format!("{worst:.3}"));
        let mut cells = vec![self.blocks.to_string(), format!("{:.4}", self.ratio), low, middle, high, worst];
        cells.extend(speeds.into_iter().chain(failed));
        cells
    }
}

const TITLES: [&str; 8] = ["blocks", "ratio", "10 %", "50 %", "90 %", "worst", "encode", "decode"];
const PICTURES: [(&str, &str, &str); 3] = [
    ("ratio", "Ratio of bytes to their encodings", "times"),
    ("encode_mb_per_s", "Encoding, one thread", "MB/s"),
    ("decode_mb_per_s", "Decoding, one thread", "MB/s"),
];

/// Sets `worst_of_bitx` of all methods but BitX.
fn compare_with_bitx(lines: &mut [CodecLine]) {
    let Some(bitx) = lines.iter().find(|line| line.method == BITX).map(|line| line.sizes.clone()) else { return };
    for line in lines.iter_mut().filter(|line| line.method != BITX) {
        let multiples = line.sizes.iter().zip(&bitx);
        let multiples =
            multiples.map(|(size, of_bitx)| size.saturating_sub(ALLOWED_BYTES) as f64 / (*of_bitx as f64).max(1.0));
        line.worst_of_bitx = multiples.reduce(f64::max);
    }
}

impl Measurement for CodecBench {
    fn claims(&self) -> &[Claim] {
        &self.claim
    }

    fn outline(&self) -> Outline {
        let of_class = |class: &CodecClass| -> Vec<String> {
            self.methods.iter().map(|method| format!("class {}, {method}", class.name)).collect()
        };
        Outline { runs: self.class.iter().flat_map(of_class).collect(), missing: self.missing() }
    }

    fn run(&self, stop: &Arc<AtomicBool>, out: &mut dyn Write) -> Result<Report> {
        run(self, stop, out)
    }
}

/// Measures every class with every method. Prints a line for each: ratio, percentiles of the blocks' ratios, the worst
/// block relative to BitX, and MB/s of one thread.
///
/// # Errors
/// A class that cannot be read; [`Error::Interrupted`].
fn run(config: &CodecBench, stop: &Arc<AtomicBool>, out: &mut dyn Write) -> Result<Report> {
    write_line(out, "class", "method", &TITLES)?;
    let mut lines = Vec::new();
    for class in &config.class {
        let blocks = config.blocks_of(class)?;
        let mut of_class = Vec::new();
        for name in &config.methods {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            if DELTAS.contains(&name.as_str()) && class.base.is_none() {
                continue;
            }
            of_class.push(measure(config, class, name, &blocks)?);
        }
        compare_with_bitx(&mut of_class);
        of_class.iter().try_for_each(|line| write_line(out, &line.set, &line.method, &line.cells()))?;
        lines.extend(of_class);
        flush(out)?;
    }
    let columns = ["class", "method"].into_iter().chain(TITLES).map(str::to_string).collect();
    let row = |line: &CodecLine| [line.set.clone(), line.method.clone()].into_iter().chain(line.cells()).collect();
    let objects = objects(&lines)?;
    Ok(Report {
        title: config.title.clone(),
        failures: lines.iter().filter(|line| line.failure.is_some()).count(),
        grids: vec![Grid { title: String::new(), columns, rows: lines.iter().map(row).collect() }],
        plots: pictures(&objects, &PICTURES),
        lines: objects,
        ..Report::default()
    })
}

#[cfg(test)]
#[path = "codecs_tests.rs"]
mod tests;
