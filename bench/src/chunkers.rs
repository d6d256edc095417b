//! Chunkers compared: what deduplication finds with each, how long the chunks are, how fast they are found, and how
//! many bytes an insertion makes new (Xet).
//!
//! 1. All files of a set are split by each chunker. A chunk that occurred before, in the same file or an earlier one,
//!    is not stored again.
//! 2. The throughput is that of one thread that finds boundaries and does nothing else, the fastest of several rounds.
//! 3. An insertion: a few bytes are inserted at random positions of a file, one at a time, and the file is split again.
//!    Bytes in chunks that the file did not have before are new.

use std::collections::HashSet;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use fhrd::chunk::{Chunker, chunker, ultracdc_with_papers_masks};
use fhrd::config::{ChunkerKind, Config, RepositoryConfig};
use fhrd::error::{Error, Result};
use serde::{Deserialize, Serialize};

use super::claim::Claim;
use super::comparison::corpus_directory;
use super::data::{Random, Set, SetSource, files_below};
use super::measurement::{Measurement, Outline};
use super::report::{Grid, Report, objects, pictures};
use super::speed::noise_of_fastest;
use super::table::{flush, mb, two, write_line};
use super::whole_model::ModelBytes;

/// Configuration of a comparison of chunkers.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChunkerBench {
    /// `"chunkers"`.
    pub kind: String,
    /// Title of the report.
    #[serde(default = "title")]
    pub title: String,
    /// Directory that paths are relative to. Default: the environment's `FHRD_CORPUS`, else `corpus`.
    pub corpus: Option<PathBuf>,
    /// Directory for generated sets.
    pub work: PathBuf,
    /// Sets of files.
    pub sets: Vec<Set>,
    /// Number of rounds; the fastest one counts.
    #[serde(default = "repeats")]
    pub repeats: usize,
    /// Number of insertions into the longest file of each set.
    #[serde(default = "insertions")]
    pub insertions: u64,
    /// Chunkers to compare.
    pub chunker: Vec<NamedChunker>,
    /// Claims of papers about the measured values.
    #[serde(default)]
    pub claim: Vec<Claim>,
}

/// A chunker and its lengths.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedChunker {
    /// Name in the report.
    pub name: String,
    /// Its parameters.
    pub repository: RepositoryConfig,
    /// Whether UltraCDC has the masks of its paper, whatever the lengths.
    #[serde(default)]
    pub papers_masks: bool,
}

impl NamedChunker {
    fn chunker(&self) -> Box<dyn Chunker> {
        if self.papers_masks { ultracdc_with_papers_masks(&self.repository) } else { chunker(&self.repository, SEED) }
    }
}

fn title() -> String {
    "Chunkers".into()
}
fn repeats() -> usize {
    3
}
fn insertions() -> u64 {
    32
}

/// Seed of chunkers that have a key, and of the positions of insertions.
const SEED: u64 = 0;
/// Bytes of an insertion.
const INSERTED: &[u8; 3] = b"XYZ";
/// Only the first bytes of a file get insertions.
const EDITED_BYTES: usize = 8 << 20;
const TITLES: [&str; 6] = ["MB", "chunks", "KiB/chunk", "reduced %", "MB/s", "KiB/edit"];
const PICTURES: [(&str, &str, &str); 3] = [
    ("reduction", "Bytes that are not stored", "%"),
    ("mb_per_s", "Finding boundaries, one thread", "MB/s"),
    ("edit_bytes", "New bytes of an insertion of 3 bytes", "bytes"),
];

/// Measurements of a chunker on a set.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChunkerLine {
    /// Name of the set.
    pub set: String,
    /// Name of the chunker.
    pub method: String,
    /// The configured average length.
    pub block_bytes: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Number of chunks.
    pub chunks: u64,
    /// Bytes of a chunk on average.
    pub average: f64,
    /// Bytes of all distinct chunks.
    pub stored: u64,
    /// Percent of the bytes that are not stored.
    pub reduction: f64,
    /// MB split per second by one thread.
    pub mb_per_s: f64,
    /// By what share the median round takes longer than the fastest; `None` for one round.
    pub noise: Option<f64>,
    /// New bytes of an insertion on average.
    pub edit_bytes: f64,
    /// The same in average chunks.
    pub edit_chunks: f64,
}

impl ChunkerBench {
    /// Parses TOML text; `origin` names it in errors.
    ///
    /// # Errors
    /// [`Error::Config`] for syntax, unknown keys and unusable values.
    pub fn parse(text: &str, origin: &str) -> Result<Self> {
        let wrong = |message: String| Error::Config { origin: origin.into(), message };
        let config: ChunkerBench = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        if config.repeats == 0 || config.chunker.is_empty() {
            return Err(wrong("`repeats` must be at least 1, and a `[[chunker]]` is needed".into()));
        }
        for NamedChunker { name, repository, papers_masks } in &config.chunker {
            let whole = Config { repository: repository.clone(), ..Config::default() };
            whole.validate().map_err(|message| wrong(format!("chunker `{name}`: {message}")))?;
            if *papers_masks && repository.chunker != ChunkerKind::UltraCdc {
                return Err(wrong(format!("chunker `{name}`: `papers_masks` is for ultracdc alone")));
            }
        }
        Ok(config)
    }

    /// Sets with missing files, each with the reason. Reads no content.
    pub fn missing(&self) -> Vec<String> {
        let corpus = corpus_directory(self.corpus.as_deref());
        let reason = |set: &Set| set.missing(&corpus).map(|reason| format!("set `{}`: {reason}", set.name));
        self.sets.iter().filter_map(reason).collect()
    }
}

/// Calls `visit` for every chunk of `content`.
fn split(chunker: &dyn Chunker, content: &[u8], mut visit: impl FnMut(&[u8])) {
    let (mut rest, mut anchors) = (content, Vec::new());
    while !rest.is_empty() {
        anchors.clear();
        let len = chunker.cut(rest, &mut anchors).clamp(1, rest.len());
        let (chunk, after) = rest.split_at(len);
        visit(chunk);
        rest = after;
    }
}

/// Seconds of each of `rounds` splits of `content`.
fn seconds(chunker: &dyn Chunker, content: &[u8], rounds: usize) -> Vec<f64> {
    let round = |_| {
        let (start, mut chunks) = (Instant::now(), 0u64);
        split(chunker, content, |_| chunks += 1);
        std::hint::black_box(chunks);
        start.elapsed().as_secs_f64()
    };
    (0..rounds).map(round).collect()
}

/// New bytes of an insertion into `content` on average.
fn edit_bytes(chunker: &dyn Chunker, content: &[u8], insertions: u64) -> f64 {
    let content = content.get(..content.len().min(EDITED_BYTES)).unwrap_or_default();
    let mut known = HashSet::new();
    split(chunker, content, |chunk| {
        known.insert(blake3::hash(chunk));
    });
    let (mut random, mut new) = (Random::new(SEED), 0);
    for _ in 0..insertions {
        let (before, after) = content.split_at(random.below(content.len() as u64 + 1) as usize);
        split(chunker, &[before, INSERTED, after].concat(), |chunk| {
            new += if known.contains(&blake3::hash(chunk)) { 0 } else { chunk.len() as u64 };
        });
    }
    new as f64 / (insertions as f64).max(1.0)
}

fn measure(config: &ChunkerBench, named: &NamedChunker, source: &SetSource, stop: &AtomicBool) -> Result<ChunkerLine> {
    let chunker = named.chunker();
    let (mut seen, mut bytes, mut chunks, mut stored) = (HashSet::new(), 0, 0, 0);
    let (mut times, mut edits) = (vec![0.0; config.repeats], None);
    let files = source.paths.iter().map(|path| files_below(path)).collect::<Result<Vec<_>>>()?.concat();
    let longest = files.iter().max_by_key(|file| file.metadata().map_or(0, |metadata| metadata.len()));
    for file in &files {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        let content = ModelBytes::read(file)?.bytes;
        bytes += content.len() as u64;
        split(&*chunker, &content, |chunk| {
            chunks += 1;
            stored += if seen.insert(blake3::hash(chunk)) { chunk.len() as u64 } else { 0 };
        });
        times.iter_mut().zip(seconds(&*chunker, &content, config.repeats)).for_each(|(sum, time)| *sum += time);
        if longest == Some(file) {
            edits = Some(edit_bytes(&*chunker, &content, config.insertions));
        }
    }
    let average = bytes as f64 / (chunks as f64).max(1.0);
    let edit_bytes = edits.unwrap_or_default();
    Ok(ChunkerLine {
        set: source.name.clone(),
        method: named.name.clone(),
        block_bytes: named.repository.chunk_bytes_avg.0,
        bytes,
        chunks,
        average,
        stored,
        reduction: 100.0 * (1.0 - stored as f64 / (bytes as f64).max(1.0)),
        mb_per_s: bytes as f64 / 1e6 / times.iter().copied().fold(f64::MAX, f64::min).max(1e-9),
        noise: noise_of_fastest(&times),
        edit_bytes,
        edit_chunks: edit_bytes / average.max(1.0),
    })
}

impl Measurement for ChunkerBench {
    fn claims(&self) -> &[Claim] {
        &self.claim
    }

    fn outline(&self) -> Outline {
        Outline::of("chunker", self.chunker.iter().map(|named| &named.name), self.missing())
    }

    fn run(&self, stop: &Arc<AtomicBool>, out: &mut dyn Write) -> Result<Report> {
        run(self, stop, out)
    }
}

/// Measures every set with every chunker and prints a line for each.
///
/// # Errors
/// A set that cannot be read; [`Error::Interrupted`].
fn run(config: &ChunkerBench, stop: &Arc<AtomicBool>, out: &mut dyn Write) -> Result<Report> {
    let corpus = corpus_directory(config.corpus.as_deref());
    write_line(out, "set", "chunker", &TITLES)?;
    let mut lines = Vec::new();
    for set in &config.sets {
        for source in set.sources(&corpus, &config.work.join("sets"))? {
            for named in &config.chunker {
                let line = measure(config, named, &source, stop)?;
                write_line(out, &line.set, &line.method, &line.cells())?;
                lines.push(line);
            }
            flush(out)?;
        }
    }
    let objects = objects(&lines)?;
    let columns = ["set", "chunker"].into_iter().chain(TITLES).map(str::to_string).collect();
    let row = |line: &ChunkerLine| [line.set.clone(), line.method.clone()].into_iter().chain(line.cells()).collect();
    Ok(Report {
        title: config.title.clone(),
        grids: vec![Grid { title: String::new(), columns, rows: lines.iter().map(row).collect() }],
        plots: pictures(&objects, &PICTURES),
        lines: objects,
        ..Report::default()
    })
}

impl ChunkerLine {
    fn cells(&self) -> Vec<String> {
        vec![
            mb(self.bytes),
            self.chunks.to_string(),
            format!("{:.1}", self.average / 1024.0),
            two(self.reduction),
            format!("{:.0}", self.mb_per_s),
            format!("{:.1}", self.edit_bytes / 1024.0),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_insertion_changes_few_content_defined_chunks_and_most_fixed_ones() {
        let directory = tempfile::tempdir().unwrap();
        let text = format!(
            "kind = \"chunkers\"\ncorpus = {0:?}\nwork = {0:?}\nrepeats = 1\ninsertions = 8\nsets = [{{ name = \"made\", \
            generate = {{ seed = 1, text = {{ files = 1, file_bytes = \"512 KiB\", versions = 2, files_edited = 1.0 }} }} }}]\n\
            [[chunker]]\nname = \"gear\"\n[chunker.repository]\nchunker = \"gear-xet\"\nchunk_bytes_min = \"2 KiB\"\n\
            chunk_bytes_avg = \"8 KiB\"\nchunk_bytes_max = \"32 KiB\"\n[[chunker]]\nname = \"fixed\"\n\
            [chunker.repository]\nchunker = \"fixed\"\nchunk_bytes_min = \"4 KiB\"\nchunk_bytes_avg = \"8 KiB\"\n\
            chunk_bytes_max = \"32 KiB\"\n",
            directory.path()
        );
        let config = ChunkerBench::parse(&text, "x").unwrap();
        let report = run(&config, &Arc::default(), &mut std::io::sink()).unwrap();
        let of = |method: &str, key: &str| {
            report.lines.iter().find(|line| line["method"] == method).unwrap()[key].as_f64().unwrap()
        };
        assert!(of("gear", "edit_bytes") < 40_000.0 && of("fixed", "edit_bytes") > 100_000.0, "{:?}", report.lines);
        assert!(of("gear", "reduction") > of("fixed", "reduction"));
        assert!((7000.0..=8192.0).contains(&of("fixed", "average")), "only the last chunk of a file is shorter");
        assert!(ChunkerBench::parse(&text.replace("gear-xet", "gears"), "x").is_err());
        let masks = |name: &str| text.replace(&format!("name = \"{name}\""), "name = \"x\"\npapers_masks = true");
        let error = ChunkerBench::parse(&masks("gear"), "x").unwrap_err().to_string();
        assert!(error.contains("ultracdc alone"), "{error}");
        assert!(ChunkerBench::parse(&masks("gear").replace("gear-xet", "ultracdc"), "x").is_ok());
    }
}
