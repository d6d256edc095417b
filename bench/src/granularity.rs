//! Deduplication of model files by files, layers, tensors or chunks (ZipLLM, table 5), what each finds in one model
//! (its figure 10), and compression before or after deduplication (its section 5.2.1).
//!
//! - *file*: the whole content. *layer*: the tensors of a file whose names are equal up to their number. *tensor*: each
//!   tensor. *chunk*: each chunk of the configured chunker. For *layer* and *tensor*, the bytes outside tensors are one
//!   more unit of the file.
//! - A repeated unit costs a reference. *Metadata* are the index entries of all distinct units: 64 bytes each, as the
//!   paper assumes. `projected_bytes` are those of 17 PB with as many distinct units per byte, as in the paper.
//! - The throughput is that of one thread that finds the units' boundaries, hashes them and looks them up.
//! - *dedup, zstd*: chunks are deduplicated, and each distinct one is compressed alone. *zstd, dedup*, *zipnn, dedup*
//!   and *bitx, dedup*: each file is encoded whole by that method (see `whole_model.rs`), split into chunks and
//!   deduplicated. *tensor, bitx*: equal tensors are stored once, each distinct one with BitX, as ZipLLM does.
//! - *bitx* needs the base of a set, which the key `bases` names.
//! - *source of repeats*: of the bytes of repeated chunks, the share in tensors that are repeated as a whole, in other
//!   tensors, and outside tensors.

mod finds;
mod orders;

use std::collections::{BTreeMap, HashSet};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use fhrd::chunk::chunker;
use fhrd::config::{Config, RepositoryConfig};
use fhrd::error::{Error, Result};
use serde::{Deserialize, Serialize};

use self::finds::{Finds, Repeats};
use self::orders::Orders;
use super::claim::Claim;
use super::comparison::corpus_directory;
use super::data::{Set, files_below};
use super::measurement::{Measurement, Outline};
use super::report::{Grid, Report, objects, pictures};
use super::table::{flush, mb, or_dash, two, write_line};
use super::whole_model::{ModelBytes, base_of};

/// Configuration of a measurement of units.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GranularityBench {
    /// `"granularity"`.
    pub kind: String,
    /// Title of the report.
    #[serde(default = "title")]
    pub title: String,
    /// Directory that paths are relative to. Default: the environment's `FHRD_CORPUS`, else `corpus`.
    pub corpus: Option<PathBuf>,
    /// Directory for generated sets.
    pub work: PathBuf,
    /// Model files. Other files count as files without tensors.
    pub sets: Vec<Set>,
    /// Parameters of the chunker.
    #[serde(default)]
    pub repository: RepositoryConfig,
    /// Level of zstd.
    #[serde(default = "level")]
    pub level: i32,
    /// For the name of a set, the end of the path of its base.
    #[serde(default)]
    pub bases: BTreeMap<String, PathBuf>,
    /// For the name of a set, the end of the path of the file to draw. It is compared with the files before it.
    #[serde(default)]
    pub drawn: BTreeMap<String, PathBuf>,
    /// Claims of papers about the measured values.
    #[serde(default)]
    pub claim: Vec<Claim>,
}

fn title() -> String {
    "Units of deduplication".into()
}
fn level() -> i32 {
    3
}

/// Bytes of an index entry, as the paper assumes.
const ENTRY_BYTES: u64 = 64;
/// Bytes of the hub that the paper projects to.
const HUB_BYTES: f64 = 17e15;
/// Seed of chunkers that have a key.
const SEED: u64 = 0;

/// Measurements of one unit on one set.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GranularityLine {
    /// Name of the set.
    pub set: String,
    /// Unit, or order of deduplication and compression.
    pub method: String,
    /// Bytes of all files.
    pub bytes: u64,
    /// Number of units.
    pub units: u64,
    /// Number of distinct units.
    pub distinct: u64,
    /// Stored bytes.
    pub stored: u64,
    /// Percent of the bytes that are not stored.
    pub reduction: f64,
    /// Bytes of the index entries of distinct units.
    pub metadata_bytes: u64,
    /// Bytes of the largest unit.
    pub largest: u64,
    /// Bytes of an average unit.
    pub average: f64,
    /// Bytes of the index entries of 17 PB with as many distinct units per byte.
    pub projected_bytes: f64,
    /// MB per second of one thread; `None` for orders of compression.
    pub mb_per_s: Option<f64>,
}

/// Distinct units of one kind.
#[derive(Default)]
struct Units {
    seen: HashSet<[u8; 32]>,
    units: u64,
    stored: u64,
    largest: u64,
    /// Seconds of one thread; `None` if it is not measured.
    seconds: Option<f64>,
}

impl Units {
    /// Adds a unit with the bytes of `parts`. Returns whether it is new.
    fn add<'a>(&mut self, parts: impl Iterator<Item = &'a [u8]>) -> bool {
        let (mut hasher, mut len) = (blake3::Hasher::new(), 0);
        for part in parts {
            hasher.update(part);
            len += part.len() as u64;
        }
        self.units += 1;
        self.largest = self.largest.max(len);
        let is_new = self.seen.insert(*hasher.finalize().as_bytes());
        self.stored += if is_new { len } else { 0 };
        is_new
    }

    fn line(&self, set: &str, method: &str, bytes: u64) -> GranularityLine {
        GranularityLine {
            set: set.into(),
            method: method.into(),
            bytes,
            units: self.units,
            distinct: self.seen.len() as u64,
            stored: self.stored,
            reduction: 100.0 * (1.0 - self.stored as f64 / (bytes as f64).max(1.0)),
            metadata_bytes: self.seen.len() as u64 * ENTRY_BYTES,
            largest: self.largest,
            average: bytes as f64 / (self.units as f64).max(1.0),
            projected_bytes: HUB_BYTES * self.seen.len() as f64 / (bytes as f64).max(1.0) * ENTRY_BYTES as f64,
            mb_per_s: self.seconds.map(|seconds| bytes as f64 / 1e6 / seconds.max(1e-9)),
        }
    }
}

/// The name of a tensor up to its first number: `model.layers.3` of `model.layers.3.mlp.weight`. A name without a
/// number is a layer of its own.
fn layer_of(name: &str) -> String {
    let parts: Vec<&str> = name.split('.').collect();
    let number = parts.iter().position(|part| part.parse::<u32>().is_ok());
    number
        .map_or_else(|| name.to_string(), |number| parts.iter().take(number + 1).copied().collect::<Vec<_>>().join("."))
}

/// The parts of a file.
struct Parts<'a> {
    /// Names and bytes of its tensors.
    tensors: Vec<(String, &'a [u8])>,
    /// Bytes outside tensors.
    outside: Vec<&'a [u8]>,
}

fn parts_of(file: &ModelBytes) -> Parts<'_> {
    let content = file.bytes.as_slice();
    let Some(model) = &file.model else { return Parts { tensors: Vec::new(), outside: vec![content] } };
    let (mut tensors, mut outside, mut end) = (Vec::new(), Vec::new(), 0);
    for tensor in &model.tensors {
        let (start, after) = (tensor.offset as usize, (tensor.offset + tensor.len) as usize);
        outside.push(content.get(end..start).unwrap_or_default());
        tensors.push((tensor.name.clone(), content.get(start..after).unwrap_or_default()));
        end = after;
    }
    outside.push(content.get(end..).unwrap_or_default());
    Parts { tensors, outside }
}

/// Units of every kind in a set.
struct Tally<'a> {
    config: &'a GranularityBench,
    kinds: [Units; 4],
    repeats: Repeats,
}

const METHODS: [&str; 4] = ["file", "layer", "tensor", "chunk"];

impl Tally<'_> {
    /// Adds a file to every kind. Returns what each finds in it.
    fn add(&mut self, file: &ModelBytes) -> Result<Finds> {
        let [files, layers, tensors, chunks] = &mut self.kinds;
        let mut finds = Finds::new(file);
        files.timed(|files| {
            if !files.add(std::iter::once(file.bytes.as_slice())) {
                finds.add(0, (0, file.bytes.len()));
            }
            Ok(())
        })?;
        let Parts { tensors: parts, outside } = parts_of(file);
        let mut by_layer: BTreeMap<String, Vec<&[u8]>> = BTreeMap::new();
        for (name, bytes) in &parts {
            by_layer.entry(layer_of(name)).or_default().push(bytes);
        }
        layers.timed(|layers| {
            for layer in by_layer.values() {
                if !layers.add(layer.iter().copied()) {
                    layer.iter().for_each(|part| finds.add(1, finds.range(part)));
                }
            }
            layers.add(outside.iter().copied());
            Ok(())
        })?;
        tensors.timed(|tensors| {
            for (_, part) in &parts {
                if !tensors.add(std::iter::once(*part)) {
                    finds.add(2, finds.range(part));
                }
            }
            tensors.add(outside.iter().copied());
            Ok(())
        })?;
        chunks.timed(|chunks| {
            each_chunk(&self.config.repository, &file.bytes, |chunk| {
                if !chunks.add(std::iter::once(chunk)) {
                    finds.add(3, finds.range(chunk));
                }
                Ok(())
            })
        })?;
        self.repeats.add(&finds);
        Ok(finds)
    }
}

impl Units {
    /// Runs `work` and adds its time.
    fn timed(&mut self, work: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let start = Instant::now();
        let done = work(self);
        self.seconds = Some(self.seconds.unwrap_or_default() + start.elapsed().as_secs_f64());
        done
    }
}

fn each_chunk(config: &RepositoryConfig, content: &[u8], mut visit: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let (chunker, mut rest) = (chunker(config, SEED), content);
    while !rest.is_empty() {
        let len = chunker.cut(rest, &mut Vec::new()).clamp(1, rest.len());
        let (chunk, after) = rest.split_at(len);
        visit(chunk)?;
        rest = after;
    }
    Ok(())
}

impl GranularityBench {
    /// Parses TOML text; `origin` names it in errors.
    ///
    /// # Errors
    /// [`Error::Config`] for syntax, unknown keys and unusable values.
    pub fn parse(text: &str, origin: &str) -> Result<Self> {
        let wrong = |message: String| Error::Config { origin: origin.into(), message };
        let config: GranularityBench = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let whole = Config { repository: config.repository.clone(), ..Config::default() };
        whole.validate().map_err(wrong)?;
        Ok(config)
    }

    /// Sets with missing files, each with the reason. Reads no content.
    pub fn missing(&self) -> Vec<String> {
        let corpus = corpus_directory(self.corpus.as_deref());
        let reason = |set: &Set| set.missing(&corpus).map(|reason| format!("set `{}`: {reason}", set.name));
        self.sets.iter().filter_map(reason).collect()
    }
}

const TITLES: [&str; 9] = ["MB", "units", "distinct", "MB stored", "reduced %", "meta KB", "avg MB", "max MB", "MB/s"];
const PICTURES: [(&str, &str, &str); 2] = [
    ("reduction", "Bytes that are not stored", "%"),
    ("metadata_bytes", "Index entries of the distinct units", "bytes"),
];

impl Measurement for GranularityBench {
    fn claims(&self) -> &[Claim] {
        &self.claim
    }

    fn outline(&self) -> Outline {
        Outline::of("set", self.sets.iter().map(|set| &set.name), self.missing())
    }

    fn run(&self, stop: &Arc<AtomicBool>, out: &mut dyn Write) -> Result<Report> {
        run(self, stop, out)
    }
}

/// Measures every set with every unit and prints a line for each.
///
/// # Errors
/// A set that cannot be read; [`Error::Interrupted`].
fn run(config: &GranularityBench, stop: &Arc<AtomicBool>, out: &mut dyn Write) -> Result<Report> {
    let corpus = corpus_directory(config.corpus.as_deref());
    write_line(out, "set", "unit", &TITLES)?;
    let mut lines: Vec<GranularityLine> = Vec::new();
    let (mut others, mut drawings, mut plots) = (Vec::new(), Vec::new(), Vec::new());
    for set in &config.sets {
        for source in set.sources(&corpus, &config.work.join("sets"))? {
            let files = source.paths.iter().map(|path| files_below(path)).collect::<Result<Vec<_>>>()?.concat();
            let base = config.bases.get(&source.name).map(|base| base_of(&files, base)).transpose()?;
            let base = base.map(|base| ModelBytes::read(base)).transpose()?;
            let drawn = config.drawn.get(&source.name).map(|drawn| base_of(&files, drawn)).transpose()?;
            let kinds = std::array::from_fn(|_| Units::default());
            let mut tally = Tally { config, kinds, repeats: Repeats::default() };
            let mut orders = Orders::new(config, base);
            let mut bytes = 0;
            for file in &files {
                if stop.load(Ordering::Relaxed) {
                    return Err(Error::Interrupted);
                }
                let content = ModelBytes::read(file)?;
                bytes += content.bytes.len() as u64;
                let finds = tally.add(&content)?;
                if drawn == Some(file) {
                    plots.push(finds.plot(&source.name, file));
                    drawings.extend(finds.lines(&source.name));
                }
                orders.add(&content)?;
            }
            let methods = tally.kinds.iter().zip(METHODS).chain(orders.units());
            for (units, method) in methods {
                let line = units.line(&source.name, method, bytes);
                write_line(out, &line.set, &line.method, &line.cells())?;
                lines.push(line);
            }
            others.push(tally.repeats.line(&source.name));
            flush(out)?;
        }
    }
    let mut objects = objects(&lines)?;
    let columns = ["set", "unit"].into_iter().chain(TITLES).map(str::to_string).collect();
    let row =
        |line: &GranularityLine| [line.set.clone(), line.method.clone()].into_iter().chain(line.cells()).collect();
    plots.splice(0..0, pictures(&objects, &PICTURES));
    objects.extend(others.iter().cloned().chain(drawings));
    Ok(Report {
        title: config.title.clone(),
        grids: vec![
            Grid { title: String::new(), columns, rows: lines.iter().map(row).collect() },
            finds::grid(&others),
        ],
        plots,
        lines: objects,
        ..Report::default()
    })
}

impl GranularityLine {
    fn cells(&self) -> Vec<String> {
        vec![
            mb(self.bytes),
            self.units.to_string(),
            self.distinct.to_string(),
            mb(self.stored),
            two(self.reduction),
            format!("{:.1}", self.metadata_bytes as f64 / 1e3),
            format!("{:.3}", self.average / 1e6),
            mb(self.largest),
            or_dash(self.mb_per_s, |speed| format!("{speed:.0}")),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_is_named_up_to_its_number() {
        assert_eq!(layer_of("model.layers.12.mlp.up.weight"), "model.layers.12");
        assert_eq!(layer_of("embeddings.weight"), "embeddings.weight");
        assert_eq!(layer_of("7"), "7");
    }

    #[test]
    fn finer_units_find_more_duplicates_and_compression_hides_them() {
        let directory = tempfile::tempdir().unwrap();
        let text = format!(
            "kind = \"granularity\"\ncorpus = {0:?}\nwork = {0:?}\nbases = {{ made = \"base/model.safetensors\" }}\n\
            drawn = {{ made = \"fine-tune-01/model.safetensors\" }}\nsets = [{{ name = \"made\", generate = {{ seed = 1, \
            models = {{ layers = 3, hidden = 64, vocabulary = 512, fine_tunes = 2, sigma_delta = [0, 0.002] }} }} }}]\n\
            [repository]\nchunker = \"fastcdc\"\nchunk_bytes_min = \"4 KiB\"\nchunk_bytes_avg = \"8 KiB\"\n\
            chunk_bytes_max = \"32 KiB\"\n",
            directory.path()
        );
        let config = GranularityBench::parse(&text, "x").unwrap();
        let report = run(&config, &Arc::default(), &mut std::io::sink()).unwrap();
        let of = |method: &str, key: &str| {
            let line = report.lines.iter().find(|line| line["method"] == method).unwrap();
            line[key].as_f64().unwrap()
        };
        let found = |method| of(method, "reduction");
        assert!(found("file") < 1.0 && found("layer") <= found("tensor"), "{:?}", report.lines);
        assert!(found("tensor") > 10.0 && found("chunk") > 0.7 * found("tensor"), "{:?}", report.lines);
        assert!(of("tensor", "metadata_bytes") < of("chunk", "metadata_bytes"));
        assert!(of("dedup, zstd", "stored") < of("zstd, dedup", "stored"), "{:?}", report.lines);
        assert!(of("tensor, bitx", "stored") <= of("bitx, dedup", "stored"), "{:?}", report.lines);
        assert!(of("bitx, dedup", "stored") < of("zipnn, dedup", "stored"), "{:?}", report.lines);
        let shares = ["whole_tensors", "other_tensors", "outside"].map(|key| of("source of repeats", key));
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9 && shares[0] > 0.5, "{shares:?}");
        assert!(of("tensor, in one model", "found") > 0.1 && of("file, in one model", "found") == 0.0);
        assert!(report.plots.iter().any(|plot| plot.title().contains("fine-tune-01")));
        assert_eq!((of("file", "units"), of("file", "distinct")), (5.0, 4.0), "three models and two equal model cards");
    }
}
