//! Runs a simulation and reports it with the columns of Destor's logs.
//!
//! For every backup: stored bytes and counters of the index. For every restore: containers read and the *speed
//! factor*, MiB restored per container read.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fhrd::error::{Error, Result};
use serde::Serialize;

use super::plan::{RestoreOf, TraceBench};
use super::restore::{CacheSize, RecipeChunk, containers_read};
use super::simulate::{Simulation, StoredStream};
use crate::table::{flush, mb, two};

/// Characters of a stream's name in a table. The end of the name distinguishes versions.
const NAME_CHARACTERS: usize = 20;
pub(super) const BACKUP_TITLES: [&str; 13] = [
    "MB",
    "stored MB",
    "dedup %",
    "rewritten %",
    "containers",
    "sparse",
    "inherited",
    "look-ups",
    "updates",
    "cache hits",
    "index KB",
    "missed",
    "MB/s",
];
pub(super) const RESTORE_TITLES: [&str; 5] = ["           cache", "containers", "MB", "read", "MiB/read"];

/// A simulated backup.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct SimulatedBackup {
    /// Name of the index.
    pub index: String,
    /// Name of the rewriting method.
    pub rewrite: String,
    /// Number of the backup, from 0.
    pub job: usize,
    /// File name of the trace.
    pub stream: String,
    /// Number of files.
    pub files: u64,
    /// Number of chunks.
    pub chunks: u64,
    /// Bytes of all chunks.
    pub bytes: u64,
    /// Bytes of all containers after the backup.
    pub stored_bytes: u64,
    /// Fraction of the bytes that was not stored.
    pub deduplication_rate: f64,
    /// Fraction of the bytes that was rewritten.
    pub rewritten_rate: f64,
    /// Bytes of chunks that the index did not find.
    pub new_bytes: u64,
    /// Bytes of rewritten duplicates.
    pub rewritten_bytes: u64,
    /// Containers that the backup refers to.
    pub containers: u64,
    /// Of those, sparse containers.
    pub sparse_containers: u64,
    /// Sparse containers inherited from the previous backup.
    pub inherited_sparse_containers: u64,
    /// Queries of the index.
    pub index_lookups: u64,
    /// Fingerprints written to the index.
    pub index_updates: u64,
    /// Chunks found in memory.
    pub cache_hits: u64,
    /// Bytes of the index.
    pub index_bytes: u64,
    /// Duplicates stored because the index did not find them.
    pub missed_chunks: u64,
    /// Bytes of those duplicates.
    pub missed_bytes: u64,
    /// MB simulated per second.
    pub mb_per_s: f64,
    /// Restores of the backup.
    pub restores: Vec<SimulatedRestore>,
}

/// A simulated restore.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SimulatedRestore {
    /// Name of the cache.
    pub cache: String,
    /// Size of the cache, containers.
    pub cache_containers: usize,
    /// Bytes restored.
    pub bytes: u64,
    /// Containers read.
    pub containers_read: u64,
    /// MiB restored per container read.
    pub speed_factor: f64,
}

/// `of` as a fraction of `whole`; 0 if `whole` is 0.
fn part(of: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { of as f64 / whole as f64 }
}

impl SimulatedBackup {
    fn new(names: (&str, &str), (job, path): (usize, &Path), stored: &StoredStream) -> Self {
        let deduplicated = stored.bytes.saturating_sub(stored.new_bytes + stored.rewritten_bytes);
        SimulatedBackup {
            index: names.0.into(),
            rewrite: names.1.into(),
            job,
            stream: path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
            files: stored.files,
            chunks: stored.chunks,
            bytes: stored.bytes,
            stored_bytes: stored.accumulated_bytes,
            deduplication_rate: part(deduplicated, stored.bytes),
            rewritten_rate: part(stored.rewritten_bytes, stored.bytes),
            new_bytes: stored.new_bytes,
            rewritten_bytes: stored.rewritten_bytes,
            containers: stored.usage.containers,
            sparse_containers: stored.usage.sparse,
            inherited_sparse_containers: stored.usage.inherited,
            index_lookups: stored.index.lookups,
            index_updates: stored.index.updates,
            cache_hits: stored.index.cache_hits,
            index_bytes: stored.index_bytes,
            missed_chunks: stored.missed_chunks,
            missed_bytes: stored.missed_bytes,
            mb_per_s: if stored.seconds > 0.0 { stored.bytes as f64 / 1e6 / stored.seconds } else { 0.0 },
            restores: Vec::new(),
        }
    }

    pub(super) fn head(&self) -> [String; 4] {
        let count = self.stream.chars().count();
        let name = self.stream.chars().skip(count.saturating_sub(NAME_CHARACTERS)).collect();
        [self.index.clone(), self.rewrite.clone(), self.job.to_string(), name]
    }

    pub(super) fn cells(&self) -> Vec<String> {
        vec![
            mb(self.bytes),
            mb(self.stored_bytes),
            two(100.0 * self.deduplication_rate),
            two(100.0 * self.rewritten_rate),
            self.containers.to_string(),
            self.sparse_containers.to_string(),
            self.inherited_sparse_containers.to_string(),
            self.index_lookups.to_string(),
            self.index_updates.to_string(),
            self.cache_hits.to_string(),
            format!("{:.1}", self.index_bytes as f64 / 1e3),
            self.missed_chunks.to_string(),
            format!("{:.0}", self.mb_per_s),
        ]
    }
}

impl SimulatedRestore {
    pub(super) fn cells(&self) -> Vec<String> {
        vec![
            format!("{:>16}", self.cache),
            self.cache_containers.to_string(),
            mb(self.bytes),
            self.containers_read.to_string(),
            two(self.speed_factor),
        ]
    }
}

fn restores(plan: &TraceBench, recipe: &[RecipeChunk]) -> Vec<SimulatedRestore> {
    let bytes: u64 = recipe.iter().map(|chunk| u64::from(chunk.bytes)).sum();
    let one = |cache: &String, containers: usize| {
        let size = CacheSize { containers, container_bytes: plan.container_bytes.0 };
        let read = containers_read(cache, recipe, size);
        SimulatedRestore {
            cache: cache.clone(),
            cache_containers: containers,
            bytes,
            containers_read: read,
            speed_factor: part(bytes, read) / f64::from(1 << 20),
        }
    };
    let sizes = |cache| plan.cache_containers.iter().map(move |containers| one(cache, *containers));
    plan.restore_cache.iter().flat_map(sizes).collect()
}

/// Runs the simulation. Prints the backups and restores of every index with every rewriting method.
///
/// # Errors
/// [`Error::Io`] and [`Error::Malformed`] for a trace that cannot be read; [`Error::Interrupted`] once `stop` is set.
pub fn run(plan: &TraceBench, stop: &Arc<AtomicBool>, out: &mut dyn Write) -> Result<Vec<SimulatedBackup>> {
    let traces = plan.traces()?;
    let mut jobs = Vec::new();
    for index in &plan.index {
        for rewrite in &plan.rewrite {
            let mut simulation = Simulation::new(plan, index, rewrite);
            let first = jobs.len();
            write_row(out, &["index", "rewrite", "job", "stream"], &BACKUP_TITLES)?;
            for (number, path) in traces.iter().enumerate() {
                let is_restored = plan.restore == RestoreOf::Each || number + 1 == traces.len();
                let (stored, recipe) = simulation.store_file(path, is_restored, stop)?;
                let mut job = SimulatedBackup::new((index, rewrite), (number, path), &stored);
                write_row(out, &job.head(), &job.cells())?;
                flush(out)?;
                if is_restored {
                    job.restores = restores(plan, &recipe);
                }
                jobs.push(job);
            }
            write_restores(out, jobs.get(first..).unwrap_or_default())?;
        }
    }
    Ok(jobs)
}

fn write_restores(out: &mut dyn Write, jobs: &[SimulatedBackup]) -> Result<()> {
    if jobs.iter().all(|job| job.restores.is_empty()) {
        return Ok(());
    }
    write_row(out, &["index", "rewrite", "job", "restored"], &RESTORE_TITLES)?;
    for job in jobs {
        job.restores.iter().try_for_each(|restore| write_row(out, &job.head(), &restore.cells()))?;
    }
    flush(out)
}

fn write_row<H: AsRef<str>, C: AsRef<str>>(out: &mut dyn Write, head: &[H; 4], cells: &[C]) -> Result<()> {
    let [index, rewrite, job, stream] = head.each_ref().map(AsRef::as_ref);
    let numbers: String = cells.iter().map(|cell| format!(" {:>11}", cell.as_ref())).collect();
    writeln!(out, "{index:<8} {rewrite:<8} {job:>3} {stream:<NAME_CHARACTERS$}{numbers}")
        .map_err(|error| Error::io("write", "the table", error))
}
