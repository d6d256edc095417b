//! The configuration of a simulation, `kind = "trace"`: traces in the order of their backups, and lists of indexes,
//! rewriting methods and restore caches.
//!
//! Every index is simulated with every rewriting method. The result is restored with every cache in every size.

use std::path::PathBuf;

use bytesize::ByteSize;
use fhrd::error::{Error, Result};
use serde::Deserialize;

use super::restore::{FORWARD_ASSEMBLY, RESTORE_CACHES};
use super::rewrite::REWRITERS;
use crate::claim::Claim;
use crate::comparison::{Versions, corpus_directory};
use crate::versions::versions_of;

/// Values of `index`.
pub const INDEXES: &[&str] = &["exact", "sampled"];
/// Maximum containers of a cache.
const CACHE_CONTAINERS_MAX: usize = 1 << 20;

/// Configuration of a simulation.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceBench {
    /// `"trace"`.
    pub kind: String,
    /// Title of the report.
    #[serde(default = "title")]
    pub title: String,
    /// Directory that `streams` are relative to. Default: the environment's `FHRD_CORPUS`, else `corpus`.
    pub corpus: Option<PathBuf>,
    /// Traces of successive backups. A directory stands for its files, sorted by name.
    pub streams: Vec<PathBuf>,
    /// Length of a full container.
    #[serde(default = "container_bytes")]
    pub container_bytes: ByteSize,
    /// Fingerprint indexes, of `INDEXES`.
    #[serde(default = "all_indexes")]
    pub index: Vec<String>,
    /// The sampled index holds one in this many fingerprints.
    #[serde(default = "sample_rate")]
    pub sample_rate: u64,
    /// Containers whose fingerprints the index caches.
    #[serde(default = "fingerprint_cache_containers")]
    pub fingerprint_cache_containers: usize,
    /// Rewriting methods, of `REWRITERS`.
    #[serde(default = "all_rewriters")]
    pub rewrite: Vec<String>,
    /// Restore caches, of `RESTORE_CACHES`.
    #[serde(default = "all_restore_caches")]
    pub restore_cache: Vec<String>,
    /// Sizes of the restore caches, containers.
    #[serde(default = "cache_containers")]
    pub cache_containers: Vec<usize>,
    /// Streams to restore.
    #[serde(default)]
    pub restore: RestoreOf,
    /// Parameters of capping.
    #[serde(default)]
    pub capping: CappingPlan,
    /// Parameters of context-based rewriting.
    #[serde(default)]
    pub cbr: CbrPlan,
    /// Parameters of selective deduplication by the fragmentation level.
    #[serde(default)]
    pub cfl: CflPlan,
    /// Parameters of history-aware rewriting. They also define sparse containers for all methods.
    #[serde(default)]
    pub har: HarPlan,
    /// Claims of papers about the measured values.
    #[serde(default)]
    pub claim: Vec<Claim>,
}

/// Streams to restore, each after it is stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RestoreOf {
    /// Only the last one.
    #[default]
    Last,
    /// All of them.
    Each,
}

/// Parameters of capping.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CappingPlan {
    /// Maximum number of old containers that a segment refers to.
    pub level: usize,
    /// Length of a segment.
    pub segment_bytes: ByteSize,
}

/// Parameters of context-based rewriting.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CbrPlan {
    /// Maximum fraction of the stream that is rewritten.
    pub limit: f64,
    /// Minimum rewrite utility of a duplicate that is rewritten.
    pub minimal_utility: f64,
    /// Length of the stream context.
    pub stream_context_bytes: ByteSize,
}

/// Parameters of selective deduplication by the fragmentation level.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CflPlan {
    /// If the level is at least this, no duplicate is rewritten.
    pub threshold: f64,
    /// Below the threshold, runs of at least this fraction of a container are not rewritten.
    pub usage: f64,
    /// Containers of the cache that the level assumes.
    pub cache_containers: usize,
}

/// Parameters of history-aware rewriting.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HarPlan {
    /// A container is sparse if a smaller fraction of it is used.
    pub utilisation: f64,
    /// Maximum fraction of a stream that comes from inherited sparse containers.
    pub limit: f64,
}

impl Default for CappingPlan {
    fn default() -> Self {
        CappingPlan { level: 20, segment_bytes: ByteSize::mib(20) }
    }
}

impl Default for CbrPlan {
    fn default() -> Self {
        CbrPlan { limit: 0.05, minimal_utility: 0.7, stream_context_bytes: ByteSize::mib(16) }
    }
}

impl Default for CflPlan {
    fn default() -> Self {
        CflPlan { threshold: 0.6, usage: 0.03, cache_containers: 8 }
    }
}

impl Default for HarPlan {
    fn default() -> Self {
        HarPlan { utilisation: 0.5, limit: 0.05 }
    }
}

fn title() -> String {
    "Traces".into()
}

fn container_bytes() -> ByteSize {
    ByteSize::mib(4)
}

fn sample_rate() -> u64 {
    64
}

fn fingerprint_cache_containers() -> usize {
    32
}

fn cache_containers() -> Vec<usize> {
    vec![4, 16, 64]
}

fn all_indexes() -> Vec<String> {
    INDEXES.iter().map(ToString::to_string).collect()
}

fn all_rewriters() -> Vec<String> {
    REWRITERS.iter().map(ToString::to_string).collect()
}

fn all_restore_caches() -> Vec<String> {
    RESTORE_CACHES.iter().map(|(name, _)| name.to_string()).collect()
}

impl TraceBench {
    /// Parses TOML text. `origin` names it in errors.
    ///
    /// # Errors
    /// [`Error::Config`] for syntax, unknown keys and invalid values, with the key.
    pub fn parse(text: &str, origin: &str) -> Result<Self> {
        let wrong = |message: String| Error::Config { origin: origin.into(), message };
        let plan: Self = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        plan.validate().map_err(wrong)?;
        Ok(plan)
    }

    fn validate(&self) -> Result<(), String> {
        one_of("kind", std::slice::from_ref(&self.kind), &["trace"])?;
        one_of("index", &self.index, INDEXES)?;
        one_of("rewrite", &self.rewrite, REWRITERS)?;
        let caches: Vec<&str> = RESTORE_CACHES.iter().map(|(name, _)| *name).collect();
        one_of("restore_cache", &self.restore_cache, &caches)?;
        if self.streams.is_empty() || self.index.is_empty() || self.rewrite.is_empty() {
            return Err("`streams`, `index` and `rewrite` must have at least one element each".into());
        }
        let within = |key: &str, value: u64, low: u64, high: u64| match (low..=high).contains(&value) {
            true => Ok(()),
            false => Err(format!("`{key}` must be between {low} and {high}, found {value}")),
        };
        within("container_bytes", self.container_bytes.0, 1 << 10, 1 << 32)?;
        within("sample_rate", self.sample_rate, 1, 1 << 32)?;
        let most = CACHE_CONTAINERS_MAX as u64;
        within("fingerprint_cache_containers", self.fingerprint_cache_containers as u64, 1, most)?;
        let has_assembly = self.restore_cache.iter().any(|name| name == FORWARD_ASSEMBLY);
        for count in &self.cache_containers {
            // Forward assembly needs one container as its read buffer.
            within("cache_containers", *count as u64, if has_assembly { 2 } else { 1 }, most)?;
        }
        within("capping.level", self.capping.level as u64, 0, 1 << 32)?;
        within("capping.segment_bytes", self.capping.segment_bytes.0, 1, 1 << 40)?;
        within("cbr.stream_context_bytes", self.cbr.stream_context_bytes.0, 1, 1 << 40)?;
        within("cfl.cache_containers", self.cfl.cache_containers as u64, 1, most)?;
        for (key, part) in [
            ("cbr.limit", self.cbr.limit),
            ("cbr.minimal_utility", self.cbr.minimal_utility),
            ("cfl.threshold", self.cfl.threshold),
            ("cfl.usage", self.cfl.usage),
            ("har.utilisation", self.har.utilisation),
            ("har.limit", self.har.limit),
        ] {
            if !(0.0..=1.0).contains(&part) {
                return Err(format!("`{key}` must be between 0 and 1, found {part}"));
            }
        }
        Ok(())
    }

    /// The traces, in order.
    ///
    /// # Errors
    /// [`Error::Io`] for a missing path; [`Error::Usage`] if there is no trace.
    pub fn traces(&self) -> Result<Vec<PathBuf>> {
        let corpus = corpus_directory(self.corpus.as_deref());
        let real = |path: &PathBuf| {
            let path = corpus.join(path);
            std::fs::canonicalize(&path).map_err(|error| Error::io("find", path, error))
        };
        versions_of(&self.streams.iter().map(real).collect::<Result<Vec<_>>>()?, Versions::Files)
    }
}

fn one_of(key: &str, values: &[String], names: &[&str]) -> Result<(), String> {
    match values.iter().find(|value| !names.contains(&value.as_str())) {
        None => Ok(()),
        Some(value) => Err(format!("`{key}` must be among {}, found `{value}`", names.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_simulation_parses() {
        let plan = TraceBench::parse(include_str!("../../../configs/bench/trace.toml"), "trace.toml").unwrap();
        assert_eq!((plan.index.len(), plan.rewrite.len(), plan.restore_cache.len()), (2, 5, 3));
        let plain = TraceBench::parse("kind = \"trace\"\nstreams = [\"x\"]", "x").unwrap();
        assert_eq!((plain.capping, plain.cbr, plain.cfl, plain.har), (plan.capping, plan.cbr, plan.cfl, plan.har));
        assert_eq!((plain.index, plain.rewrite, plain.restore_cache), (plan.index, plan.rewrite, plan.restore_cache));
    }

    #[test]
    fn invalid_values_are_refused_by_name() {
        for (text, part) in [
            ("index = [\"bloom\"]", "`index` must be among exact, sampled, found `bloom`"),
            ("rewrite = [\"x\"]", "none, capping, cbr, cfl, har"),
            ("rewrite = []", "`rewrite`"),
            ("restore_cache = [\"arc\"]", "lru, forward-assembly, belady"),
            ("cache_containers = [1]", "`cache_containers` must be between 2"),
            ("container_bytes = \"1 B\"", "container_bytes"),
            ("sample_rate = 0", "sample_rate"),
            ("[cbr]\nlimit = 1.5", "`cbr.limit` must be between 0 and 1, found 1.5"),
            ("[har]\nutilisation = nan", "har.utilisation"),
            ("[cfl]\ncache_containers = 0", "cfl.cache_containers"),
            ("[capping]\nlevle = 1", "levle"),
        ] {
            let text = format!("kind = \"trace\"\nstreams = [\"a\"]\n{text}\n");
            let message = TraceBench::parse(&text, "x.toml").unwrap_err().to_string();
            assert!(message.contains(part) && message.contains("x.toml"), "{message}");
        }
        let one = "kind = \"trace\"\nstreams = [\"a\"]\nrestore_cache = [\"lru\"]\ncache_containers = [1]\n";
        assert!(TraceBench::parse(one, "x").is_ok());
    }
}
