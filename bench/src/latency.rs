//! Latencies: of a chunk from Read to durable, of a look-up in the chunk index by level, and of one tensor of a stored
//! model.
//!
//! 1. Each set is backed up. The latency of a new chunk is the time from when Chunk gets its first bytes from Read
//!    until its container is durable.
//! 2. *Look-ups*: the fingerprints of all stored chunks are looked up twice, a run of each container in turn, as a
//!    backup of a changed source would do, and after each one a new one. Each look-up is timed and counted for the
//!    level that answers it. That is done with each level of the cache at its default, and with each in turn at its
//!    least size: one container index, one fingerprint, no filter.
//! 3. *Tensors*: at most `tensors` of them, evenly spaced, are read from the snapshot, each with a reader of its own.
//!    So the time includes finding the file, its header and its recipe. The repository is in the page cache.
//!
//! A clock reading costs some tens of nanoseconds, which a latency includes.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bytesize::ByteSize;
use fhrd::backup::BackupReport;
use fhrd::config::{Config, IndexConfig, LastLevel};
use fhrd::error::{Error, Result};
use fhrd::filesystem::last_names;
use fhrd::format::Window;
use fhrd::inspect::distance::SnapshotModels;
use fhrd::metrics::Distribution;
use fhrd::repo::Repository;
use fhrd::repo::index::{ChunkIndex, ContainerIndexes, ContainerListing, DatabaseFile, Hits, read_container_index};
use fhrd::repo::paths::local_cache_directory;
use fhrd::repo::snapshot;
use fhrd::types::Fingerprint;
use serde::Deserialize;
use serde_json::{Value, json};

use super::claim::Claim;
use super::comparison::corpus_directory;
use super::data::{Random, Set, files_below};
use super::measurement::{Measurement, Outline};
use super::report::{Grid, Plot, Report, Scale, Scales, pictures};
use super::speed::noise_of_fastest;
use super::table::{flush, write_line};
use super::workbench::{Workbench, warm};

/// Configuration of a measurement of latencies.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatencyBench {
    /// `"latency"`.
    pub kind: String,
    /// Title of the report.
    #[serde(default = "title")]
    pub title: String,
    /// Directory that paths are relative to. Default: the environment's `FHRD_CORPUS`, else `corpus`.
    pub corpus: Option<PathBuf>,
    /// Directory for repositories and generated sets.
    pub work: PathBuf,
    /// Sets to back up.
    pub sets: Vec<Set>,
    /// Rounds of look-ups; the fastest of a level counts.
    #[serde(default = "repeats")]
    pub repeats: usize,
    /// Most tensors that are read from a set.
    #[serde(default = "tensors")]
    pub tensors: usize,
    /// Differences of the configuration from the defaults.
    #[serde(default)]
    pub config: Config,
    /// Claims of papers about the measured values.
    #[serde(default)]
    pub claim: Vec<Claim>,
}

fn title() -> String {
    "Latencies".into()
}
fn repeats() -> usize {
    3
}
fn tensors() -> usize {
    200
}

/// Bytes of container indexes that the first level caches, as in a backup.
const CONTAINER_INDEX_BYTES_MAX: usize = 32 << 20;
/// Chunks of a container that are looked up in a row.
const RUN_CHUNKS: usize = 32;
/// Quantiles of a latency, with their names.
const QUANTILES: [(&str, f64); 4] = [("p10", 0.1), ("p50", 0.5), ("p90", 0.9), ("p99", 0.99)];
const TITLES: [&str; 8] = ["asked", "count", "share %", "mean", "p10", "p50", "p90", "p99"];

/// Latencies of one kind, nanoseconds.
#[derive(Debug, Clone, Default)]
struct Latencies {
    nanoseconds: Vec<u64>,
    /// Look-ups that came to this level, which answered some; 0 if all count.
    asked: u64,
    /// By what share the median round takes longer than the fastest; `None` for one round.
    noise: Option<f64>,
}

impl Latencies {
    /// The values of a distribution of microseconds, to its precision.
    fn of(distribution: &Distribution) -> Self {
        let values = distribution.counts().flat_map(|(us, count)| std::iter::repeat_n(1000 * us, count as usize));
        Latencies { nanoseconds: values.collect(), ..Latencies::default() }
    }

    fn add(&mut self, since: Instant) {
        self.nanoseconds.push(u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }

    fn mean(&self) -> f64 {
        self.nanoseconds.iter().sum::<u64>() as f64 / (self.nanoseconds.len() as f64).max(1.0)
    }

    /// The quantile `share` of sorted values.
    fn quantile(&self, share: f64) -> f64 {
        let last = self.nanoseconds.len().saturating_sub(1) as f64;
        self.nanoseconds.get((last * share).round() as usize).copied().unwrap_or_default() as f64
    }
}

/// Levels of the chunk index, and two kinds of misses.
const LEVELS: [&str; 7] = ["local", "temporary", "lru", "database", "segments", "miss, filtered", "miss"];

/// Number of the level that answered the look-up between two counts.
fn level(before: Hits, after: Hits) -> usize {
    let counters =
        |hits: Hits| [hits.local, hits.temporary, hits.lru, hits.database, hits.segments, hits.absent, hits.misses];
    let changed = counters(before).into_iter().zip(counters(after)).position(|(before, after)| after > before);
    changed.unwrap_or(LEVELS.len() - 1)
}

/// The index as configured, with each level reduced, and with the database as the last level.
fn variants(config: &IndexConfig) -> [(&'static str, IndexConfig); 6] {
    let redb = IndexConfig { last_level: LastLevel::Redb, ..config.clone() };
    [
        ("all levels", config.clone()),
        ("local: 1 container", IndexConfig { local_containers: 1, ..config.clone() }),
        ("lru: 1 fingerprint", IndexConfig { lru_entries: 1, ..config.clone() }),
        ("no filter", IndexConfig { filter_bytes: ByteSize(0), ..config.clone() }),
        ("redb", redb.clone()),
        ("redb, no filter", IndexConfig { filter_bytes: ByteSize(0), ..redb }),
    ]
}

impl LatencyBench {
    /// Parses TOML text; `origin` names it in errors.
    ///
    /// # Errors
    /// [`Error::Config`] for syntax, unknown keys and unusable values.
    pub fn parse(text: &str, origin: &str) -> Result<Self> {
        let wrong = |message: String| Error::Config { origin: origin.into(), message };
        let config: LatencyBench = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        if config.repeats == 0 || config.sets.is_empty() {
            return Err(wrong("`repeats` must be at least 1, and `sets` must not be empty".into()));
        }
        config.config.validate().map_err(wrong)?;
        Ok(config)
    }

    /// Sets whose data is missing, each with the reason.
    pub fn missing(&self) -> Vec<String> {
        let corpus = corpus_directory(self.corpus.as_deref());
        let reason = |set: &Set| set.missing(&corpus).map(|reason| format!("set `{}`: {reason}", set.name));
        self.sets.iter().filter_map(reason).collect()
    }

    /// Times the look-ups of `stored` with one variant of the index: of each level, and of all of them.
    fn look_up(&self, repository: &Repository, config: &IndexConfig, stored: &[Fingerprint]) -> Result<Vec<Latencies>> {
        let mut rounds = Vec::new();
        for round in 0..self.repeats {
            let listing = Arc::new(ContainerListing::take(&repository.store)?);
            let (containers, shared) = (config.local_containers, Arc::default());
            let local =
                ContainerIndexes::sharing(repository.store.clone(), containers, CONTAINER_INDEX_BYTES_MAX, shared);
            let cache = local_cache_directory(&self.work.join("repository"), &repository.id)?;
            let mut index = ChunkIndex::new(repository.store.clone(), listing, local, config, Some(&cache));
            if config.last_level == LastLevel::Redb {
                index.set_database(DatabaseFile {
                    directory: cache,
                    repository: repository.id.clone(),
                    cache_bytes: config.redb_cache_bytes.0,
                    key: repository.cache_key(),
                });
                index.open_database()?;
            }
            let mut random = Random::new(round as u64);
            let mut latencies = vec![Latencies::default(); LEVELS.len()];
            let mut ask = |fingerprint: &Fingerprint| -> Result<()> {
                let (before, start) = (index.hits, Instant::now());
                index.contains_or_claim(fingerprint)?;
                let answered = level(before, index.hits);
                latencies.get_mut(answered).into_iter().for_each(|of_level| of_level.add(start));
                Ok(())
            };
            for fingerprint in stored {
                ask(fingerprint)?;
                let mut new = [0u8; 32];
                new.as_chunks_mut::<8>().0.iter_mut().for_each(|part| *part = random.bits().to_le_bytes());
                ask(&Fingerprint(new))?;
            }
            let hits = index.hits;
            let asked = hits.levels().map(|(_, lookups, _)| lookups).into_iter().chain([hits.misses; 2]);
            latencies.iter_mut().zip(asked).for_each(|(latencies, asked)| latencies.asked = asked);
            let all = latencies.iter().flat_map(|one| &one.nanoseconds).copied().collect();
            latencies.push(Latencies { nanoseconds: all, ..Latencies::default() });
            rounds.push(latencies);
        }
        Ok(fastest(rounds))
    }

    /// Reads tensors of the models of a snapshot, each with a reader of its own. Returns their latencies and bytes.
    fn read_tensors(
        &self,
        repository: &Repository,
        report: &BackupReport,
        paths: &[PathBuf],
        stop: &AtomicBool,
    ) -> Result<(Latencies, u64)> {
        let named = snapshot::find(repository.store.as_ref(), &report.snapshot)?;
        let mut tensors = Vec::new();
        for path in models_in(paths)? {
            let models = SnapshotModels::new(repository)?;
            // What is not a model has no tensors.
            let Ok(model) = models.open(&named, &path, &path.display().to_string()) else { continue };
            tensors.extend(model.model.tensors.into_iter().map(|tensor| (path.clone(), tensor)));
        }
        let (mut latencies, mut bytes) = (Latencies::default(), 0);
        let step = tensors.len().div_ceil(self.tensors.max(1)).max(1);
        for (path, tensor) in tensors.iter().step_by(step) {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let start = Instant::now();
            let model = SnapshotModels::new(repository)?.open(&named, path, &path.display().to_string())?;
            let content = Window::new(model.source(), u64::MAX).read(tensor.offset, tensor.len);
            let content: Vec<u8> = content.map_err(|_| Error::Usage(format!("{} cannot be read", path.display())))?;
            latencies.add(start);
            bytes += content.len() as u64;
        }
        latencies.nanoseconds.sort_unstable();
        Ok((latencies, bytes))
    }
}

/// The fastest of rounds whose last element is all levels together. Each level has its noise over the rounds.
fn fastest(rounds: Vec<Vec<Latencies>>) -> Vec<Latencies> {
    let means = |level: usize| -> Vec<f64> {
        let of_level = rounds.iter().filter_map(|round| round.get(level));
        of_level.filter(|one| !one.nanoseconds.is_empty()).map(Latencies::mean).collect()
    };
    let noises: Vec<Option<f64>> = (0..=LEVELS.len()).map(|level| noise_of_fastest(&means(level))).collect();
    let total = |round: &Vec<Latencies>| round.last().map_or(0, |all| all.nanoseconds.iter().sum::<u64>());
    let mut best = rounds.into_iter().min_by_key(total).unwrap_or_default();
    for (latencies, noise) in best.iter_mut().zip(noises) {
        latencies.nanoseconds.sort_unstable();
        latencies.noise = noise;
    }
    best
}

/// Names in a snapshot of the files at and below `paths`.
fn models_in(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let names = last_names(paths).unwrap_or_default();
    let mut all = Vec::new();
    for (path, name) in paths.iter().zip(names) {
        for file in files_below(path)? {
            let below = file.strip_prefix(path).unwrap_or(Path::new(""));
            let name = Path::new(&name);
            all.push(if below.as_os_str().is_empty() { name.to_path_buf() } else { name.join(below) });
        }
    }
    Ok(all)
}

/// Fingerprints of the stored chunks: [`RUN_CHUNKS`] of each container in turn, as they are stored, and all of them
/// twice. A later version of a source also returns to each container again and again.
fn stored_chunks(repository: &Repository) -> Result<Vec<Fingerprint>> {
    let mut by_container = Vec::new();
    let mut containers: Vec<_> = ContainerListing::take(&repository.store)?.containers.iter().copied().collect();
    containers.sort_unstable_by_key(|id| id.0);
    for id in containers {
        let index = read_container_index(repository.store.as_ref(), &id)?;
        by_container.push(index.entries.iter().map(|entry| entry.fingerprint).collect::<Vec<_>>());
    }
    let longest = by_container.iter().map(Vec::len).max().unwrap_or(0);
    let mut stored: Vec<Fingerprint> = Vec::new();
    for start in (0..longest).step_by(RUN_CHUNKS) {
        let runs = by_container.iter().filter_map(|container| container.get(start..));
        stored.extend(runs.flat_map(|rest| rest.iter().take(RUN_CHUNKS)));
    }
    Ok(stored.repeat(2))
}

/// A line of the result and its cells.
fn line(set: &str, method: &str, level: &str, latencies: &Latencies, share: f64) -> (Value, Vec<String>) {
    let count = latencies.nanoseconds.len() as u64;
    let asked = latencies.asked.max(count);
    let mut object = json!({"set": set, "method": method, "level": level, "asked": asked, "count": count,
        "share": share, "mean_us": latencies.mean() / 1e3, "noise": latencies.noise});
    let mut cells = vec![
        asked.to_string(),
        count.to_string(),
        format!("{:.2}", 100.0 * share),
        format!("{:.2}", latencies.mean() / 1e3),
    ];
    for (name, quantile) in QUANTILES {
        let value = latencies.quantile(quantile) / 1e3;
        cells.push(format!("{value:.2}"));
        if let Some(object) = object.as_object_mut() {
            object.insert(format!("{name}_us"), value.into());
        }
    }
    (object, cells)
}

impl Measurement for LatencyBench {
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

/// Measures every set and prints a line for each level of each variant, all of them together, and the tensors.
///
/// # Errors
/// Errors of the backup and of reading; [`Error::Interrupted`].
fn run(config: &LatencyBench, stop: &Arc<AtomicBool>, out: &mut dyn Write) -> Result<Report> {
    let corpus = corpus_directory(config.corpus.as_deref());
    let bench = Workbench::new(&config.work, stop)?;
    let (mut lines, mut rows, mut curves) = (Vec::new(), Vec::new(), Vec::new());
    write_line(out, "set", "µs", &TITLES)?;
    for set in &config.sets {
        for source in set.sources(&corpus, &config.work.join("sets"))? {
            source.paths.iter().try_for_each(|path| warm(path).map(drop))?;
            let repository = bench.repository(&config.config)?;
            let (report, _) = bench.backup(&repository, &config.config, &source.paths)?;
            let durable = Latencies::of(&report.durable_us);
            let stored = stored_chunks(&repository)?;
            let mut measured: Vec<(String, String, Latencies, f64)> =
                vec![("chunk".into(), "from Read to durable".into(), durable, 1.0)];
            for (name, index) in variants(&config.config.index) {
                let mut levels = config.look_up(&repository, &index, &stored)?;
                let all = levels.pop().unwrap_or_default();
                let count = all.nanoseconds.len().max(1) as f64;
                for (level, latencies) in LEVELS.iter().zip(levels).filter(|(_, one)| !one.nanoseconds.is_empty()) {
                    let share = latencies.nanoseconds.len() as f64 / count;
                    measured.push((name.into(), (*level).into(), latencies, share));
                }
                measured.push((name.into(), "all".into(), all, 1.0));
            }
            let (tensors, bytes) = config.read_tensors(&repository, &report, &source.paths, stop)?;
            if bytes > 0 {
                let mean = bytes / tensors.nanoseconds.len().max(1) as u64;
                measured.push(("tensor".into(), format!("{} KiB on average", mean >> 10), tensors, 1.0));
            }
            for (method, level, latencies, share) in &measured {
                let (object, cells) = line(&source.name, method, level, latencies, *share);
                write_line(out, &source.name, &format!("{method}, {level}"), &cells)?;
                rows.push([vec![source.name.clone(), method.clone(), level.clone()], cells].concat());
                lines.push(object);
                if ["chunk", "tensor"].contains(&method.as_str()) || level == "all" {
                    let points = [0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999];
                    let points = points.map(|share| (share, latencies.quantile(share) / 1e3));
                    curves.push((format!("{}, {method}", source.name), points.to_vec()));
                }
            }
            flush(out)?;
            bench.discard(&repository)?;
        }
    }
    bench.clear()?;
    let titles = ["set", "what", "level"].iter().chain(&TITLES).map(ToString::to_string).collect();
    let by_level: Vec<Value> =
        lines.iter().filter(|line| line["method"] == "all levels").cloned().map(renamed).collect();
    let mut plots = pictures(&by_level, &[("mean_us", "Mean time of a look-up by the level that answers", "µs")]);
    plots.push(Plot::Lines {
        title: "Latencies".into(),
        across: "share of the operations".into(),
        unit: "µs".into(),
        scales: Scales { across: Scale::Nines, logarithmic: true },
        series: curves,
    });
    Ok(Report {
        title: config.title.clone(),
        grids: vec![Grid { title: "Microseconds".into(), columns: titles, rows }],
        plots,
        lines,
        ..Report::default()
    })
}

/// A line whose method is its level, for a plot of the levels.
fn renamed(mut line: Value) -> Value {
    let level = line.get("level").cloned().unwrap_or_default();
    if let Some(object) = line.as_object_mut() {
        object.insert("method".into(), level);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_look_up_is_counted_for_the_level_that_answers() {
        let directory = tempfile::tempdir().unwrap();
        let text = format!(
            "kind = \"latency\"\nwork = {:?}\nrepeats = 1\ntensors = 3\n\
            sets = [{{ name = \"made\", generate = {{ seed = 1, models = {{ layers = 1, hidden = 64, vocabulary = 512, \
            fine_tunes = 0 }}, text = {{ files = 4, file_bytes = \"64 KiB\", versions = 1 }} }} }}]\n",
            directory.path()
        );
        let bench = LatencyBench::parse(&text, "x").unwrap();
        assert_eq!(bench.missing(), [""; 0]);
        let report = run(&bench, &Arc::default(), &mut Vec::new()).unwrap();
        let count = |method: &str, level: &str| {
            let found = report.lines.iter().find(|line| line["method"] == method && line["level"] == level);
            found.map_or(0, |line| line["count"].as_u64().unwrap())
        };
        for (method, _) in variants(&IndexConfig::default()) {
            let all = count(method, "all");
            assert_eq!(LEVELS.iter().map(|level| count(method, level)).sum::<u64>(), all, "{method}");
            assert!(
                all > 0
                    && ["local", "lru", "database", "segments"].map(|level| count(method, level)).iter().sum::<u64>()
                        == all / 2,
                "{method}"
            );
            let (last, other) =
                if method.starts_with("redb") { ("database", "segments") } else { ("segments", "database") };
            assert!(count(method, last) >= 1, "the first look-up of a container goes to the last level");
            assert_eq!(count(method, other), 0, "{method}");
        }
        assert_eq!(count("no filter", "miss, filtered"), 0);
        let durable = count("chunk", "from Read to durable");
        assert!(durable > 0 && durable <= count("all levels", "all") / 2, "each new chunk once: {durable}");
        assert!(report.lines.iter().any(|line| line["method"] == "tensor" && line["count"] == 3), "{:?}", report.lines);
        let error = LatencyBench::parse(&text.replace("repeats = 1", "repeats = 0"), "x.toml").unwrap_err().to_string();
        assert!(error.contains("repeats") && error.contains("x.toml"), "{error}");
    }
}
