//! Configuration: every parameter of every stage, in TOML. `configs/default.toml` documents the defaults.
//!
//! `[repository]` is fixed when a repository is created. All other tables belong to one run. An unknown key is an
//! error that names the key. Sizes are whole bytes or text such as `"64 KiB"`.

mod cache;
mod memory;
mod names;
mod pipeline;
mod profile;
mod work_share;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use bytesize::ByteSize;
use serde::{Deserialize, Serialize};

pub use self::cache::CacheConfig;
use self::memory::check_memory;
pub use self::memory::{MEMORY_DEFAULT, parse_memory};
pub use self::names::{
    ChunkerKind, CompressCodec, FloatCodec, IdentifyRule, LastLevel, ModelDelta, OpenStreams, StrategyKind,
};
pub use self::pipeline::{AUTOMATIC_WORKERS_MAX, PipelineConfig};
pub use self::profile::{BackupProfile, Hooks, NotifyProfile, RetentionProfile, SecretUrl, UserProfile};
pub use self::work_share::{WorkShare, share_of};
use crate::error::{Error, Result};
use crate::wire::{input_failed, read_text_file};

/// Bytes of a configuration, at most.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Largest value of `repository.chunk_bytes_max`, bytes.
pub const CHUNK_BYTES_LIMIT: u64 = 16 << 20;
/// Largest base of a delta, bytes. Readers refuse more.
pub const DELTA_BASE_BYTES_LIMIT: u64 = 2 * CHUNK_BYTES_LIMIT;
/// Largest raw length of one frame, bytes. Readers refuse more.
pub const FRAME_BYTES_LIMIT: u64 = 64 << 20;
/// Greatest level that [`CompressConfig::text_levels`] gives: higher ones need much more memory.
const TEXT_LEVEL_MAX: i32 = 19;

/// All tables of a configuration file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Memory that a process may take, about. Sizes of caches and queues that are not set follow from it when a
    /// configuration is parsed, and in [`Config::within`].
    pub memory: ByteSize,
    /// Chunking, fixed when a repository is created.
    pub repository: RepositoryConfig,
    /// Worker threads and queues.
    pub pipeline: PipelineConfig,
    /// Reading of source files.
    pub read: ReadConfig,
    /// Index caches.
    pub index: IndexConfig,
    /// Classification of chunks by entropy.
    pub identify: IdentifyConfig,
    /// Sub-block deduplication.
    pub subdedup: SubdedupConfig,
    /// Models and other float data.
    pub model: ModelConfig,
    /// General compression.
    pub compress: CompressConfig,
    /// Container size.
    pub container: ContainerConfig,
    /// Memory of a restore.
    pub restore: RestoreConfig,
    /// Copies of remote indexes on the local disk.
    pub cache: CacheConfig,
}

/// `[repository]`: chunking, fixed for the lifetime of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RepositoryConfig {
    /// Chunker of opaque bytes.
    pub chunker: ChunkerKind,
    /// Smallest chunk, bytes (even).
    pub chunk_bytes_min: ByteSize,
    /// Average chunk, bytes (even; a power of two for `"gear-xet"`).
    pub chunk_bytes_avg: ByteSize,
    /// Largest chunk, bytes (even).
    pub chunk_bytes_max: ByteSize,
    /// Append zeros to containers, so that their lengths tell little: at most 12 % more.
    pub pad_containers: bool,
}

/// `[read]`: reading of source files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReadConfig {
    /// Holes of at least this many bytes are recorded as holes and not read.
    pub hole_bytes_min: ByteSize,
    /// Most inodes with several names that are remembered at a time.
    pub hard_links_max: usize,
    /// Files that changed less than this before the parent snapshot are read again, seconds.
    pub recheck_seconds: u64,
    /// Which compressed files are stored as what they unpack to.
    pub open: OpenStreams,
}

/// `[index]`: index caches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IndexConfig {
    /// Container indexes cached after a hit (level 1).
    pub local_containers: usize,
    /// Fingerprints in the global LRU (level 3).
    pub lru_entries: usize,
    /// Features of sub-blocks in the LRU before the similarity index; 0 = none.
    pub similar_lru_entries: usize,
    /// Most memory of the filter before level 4, bytes; 0 = no filter.
    pub filter_bytes: ByteSize,
    /// What answers in level 4.
    pub last_level: LastLevel,
    /// Memory of the cache of redb, bytes.
    pub redb_cache_bytes: ByteSize,
    /// Most memory of the similarity index, bytes.
    pub similarity_bytes: ByteSize,
    /// Most disk space of the similarity index, bytes. New entries overwrite the oldest.
    pub similarity_file_bytes: ByteSize,
    /// Memory for the container indexes of level 1, and again for those of bases, bytes. Each cache holds at least one.
    pub container_index_bytes: ByteSize,
}

/// `[identify]`: classification of chunks by entropy (FHRD 3.3).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IdentifyConfig {
    /// `false`: no chunk is classified as floats.
    pub enabled: bool,
    /// Samples per byte group.
    pub samples: usize,
    /// Entropy below which a byte group is low, bits per byte.
    pub low_bits: f64,
    /// Entropy above which one byte group lets entropies alone decide, bits per byte. Otherwise the probes decide.
    pub high_bits: f64,
    /// Length of each of the two probes, bytes.
    pub probe_bytes: ByteSize,
    /// Fraction by which the planes codec must beat zstd on a whole chunk.
    pub probe_gain: f64,
    /// How a chunk is recognised.
    pub method: IdentifyRule,
    /// Float chunks are not searched for duplicates below the chunk, and are no bases.
    pub separate: bool,
}

/// `[subdedup]`: deduplication below the chunk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SubdedupConfig {
    /// How duplicates below the chunk are found.
    pub strategy: StrategyKind,
    /// Extend matching sub-blocks byte by byte, for the strategies with sub-blocks. Others always do.
    pub extend_matches: bool,
    /// Equal parts of a chunk, for `uniform`.
    pub parts: usize,
    /// Smallest chunk that is searched for duplicates, bytes. `anchors` ignores it.
    pub chunk_bytes_min: ByteSize,
    /// Shortest copy, bytes. Shorter matches are stored as literal bytes.
    pub copy_bytes_min: ByteSize,
    /// Most similar chunks tried for a feature.
    pub candidates_max: usize,
    /// Longest chain of copies from chunk to chunk.
    pub depth_max: u8,
    /// Memory for the base cache (chunks and raw frames), bytes. Frames take at most half.
    pub base_cache_bytes: ByteSize,
    /// Frames that may be read from containers for bases per MiB of new chunks.
    pub base_reads_per_mib: u32,
    /// Most containers that the copies of a batch may use; 0 = no limit. The running session counts as one container.
    pub base_containers_max: usize,
}

/// `[model]`: models and other float data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelConfig {
    /// Recognise model files. `false`: treat their bytes as opaque.
    pub detect_formats: bool,
    /// Length of the blocks of a tensor, bytes.
    pub block_bytes: ByteSize,
    /// Codec of float chunks, and of tensor blocks that are not deltas.
    pub codec: FloatCodec,
    /// Codec of deltas to tensors of stored models.
    pub delta: ModelDelta,
    /// Longest chain of deltas from a block to a block without a base.
    pub delta_depth_max: u8,
    /// Decode and compare every float block before it is stored.
    pub verify: bool,
    /// zstd level of the byte groups of `"planes"` and `"all-planes"`.
    pub planes_zstd_level: i32,
    /// Memory for outlines of stored models, and again for records of models of this run, bytes.
    pub outline_bytes: ByteSize,
}

/// `[compress]`: general compression.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CompressConfig {
    /// Codec of frames without floats.
    pub codec: CompressCodec,
    /// zstd level: 1 is fast, 3 the default, 19 for archives. LZ4 has no levels.
    pub level: i32,
    /// zstd levels added for new text in long chunks; 0 = none. LZ4 has no levels.
    pub text_levels: i32,
    /// Most raw bytes of a solid frame; `frame_chunks` average chunks are a second bound. 0 = one frame per chunk.
    pub frame_bytes: ByteSize,
    /// Most average chunks in a solid frame.
    pub frame_chunks: u32,
}

/// zstd level of archives.
pub const ARCHIVE_LEVEL: i32 = 19;
/// Most raw bytes of a solid frame of an archive.
pub const ARCHIVE_FRAME_BYTES: ByteSize = ByteSize::mib(4);

impl CompressConfig {
    /// For archives: slow to write, with long solid frames.
    pub fn archive(self) -> Self {
        let (level, frame_bytes) = (ARCHIVE_LEVEL, ARCHIVE_FRAME_BYTES);
        CompressConfig { level, text_levels: 0, frame_bytes, frame_chunks: 4096, ..self }
    }

    /// zstd level of new text in long chunks: `text_levels` more than `level`. Levels below 1 stay, as who chooses one
    /// wants speed alone.
    pub fn text_level(&self) -> i32 {
        let text_level = (self.level + self.text_levels).min(TEXT_LEVEL_MAX);
        if self.level < 1 { self.level } else { self.level.max(text_level) }
    }

    /// zstd level of plain blocks of tensors: one more than that of new text, unless text has no level of its own.
    pub fn plain_level(&self) -> i32 {
        let text_level = self.text_level();
        if text_level == self.level { text_level } else { (text_level + 1).min(TEXT_LEVEL_MAX) }
    }
}

/// `[container]`: container size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ContainerConfig {
    /// Stored bytes at which a container is sealed.
    pub bytes_target: ByteSize,
}

/// `[restore]`: memory of a restore.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RestoreConfig {
    /// Memory for decoded frames and for the plan, bytes. The plan takes at most a fifth.
    pub cache_bytes: ByteSize,
    /// Keep what is good of a damaged file, as `NAME.damaged`.
    pub keep_damaged: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            memory: MEMORY_DEFAULT,
            repository: RepositoryConfig::default(),
            pipeline: PipelineConfig::default(),
            read: ReadConfig::default(),
            index: IndexConfig::default(),
            identify: IdentifyConfig::default(),
            subdedup: SubdedupConfig::default(),
            model: ModelConfig::default(),
            compress: CompressConfig::default(),
            container: ContainerConfig::default(),
            restore: RestoreConfig::default(),
            cache: CacheConfig::default(),
        }
    }
}

impl Default for RepositoryConfig {
    fn default() -> Self {
        RepositoryConfig {
            chunker: ChunkerKind::Sieve,
            chunk_bytes_min: ByteSize::kib(64),
            chunk_bytes_avg: ByteSize::kib(128),
            chunk_bytes_max: ByteSize::kib(512),
            pad_containers: false,
        }
    }
}

impl Default for ReadConfig {
    fn default() -> Self {
        ReadConfig {
            hole_bytes_min: ByteSize::kib(64),
            hard_links_max: 1 << 20,
            recheck_seconds: 60,
            open: OpenStreams::Never,
        }
    }
}

impl Default for IndexConfig {
    fn default() -> Self {
        IndexConfig {
            local_containers: 8,
            lru_entries: 1 << 16,
            similar_lru_entries: 0,
            filter_bytes: ByteSize::mib(64),
            last_level: LastLevel::Segments,
            redb_cache_bytes: ByteSize::mib(16),
            similarity_bytes: ByteSize::mib(16),
            similarity_file_bytes: ByteSize::gib(1),
            container_index_bytes: ByteSize::mib(32),
        }
    }
}

impl Default for IdentifyConfig {
    fn default() -> Self {
        IdentifyConfig {
            enabled: true,
            samples: 512,
            low_bits: 6.2,
            high_bits: 7.3,
            probe_bytes: ByteSize::kib(4),
            probe_gain: 0.02,
            method: IdentifyRule::Probes,
            separate: false,
        }
    }
}

impl Default for SubdedupConfig {
    fn default() -> Self {
        SubdedupConfig {
            strategy: StrategyKind::Anchors,
            extend_matches: true,
            parts: 10,
            chunk_bytes_min: ByteSize::kib(1),
            copy_bytes_min: ByteSize::b(32),
            candidates_max: 4,
            depth_max: 8,
            base_cache_bytes: ByteSize::mib(48),
            base_reads_per_mib: 16,
            base_containers_max: 0,
        }
    }
}

impl Default for ModelConfig {
    fn default() -> Self {
        ModelConfig {
            detect_formats: true,
            block_bytes: ByteSize::kib(512),
            codec: FloatCodec::Floats,
            delta: ModelDelta::Context,
            delta_depth_max: 8,
            verify: true,
            planes_zstd_level: 1,
            outline_bytes: ByteSize::mib(16),
        }
    }
}

impl Default for CompressConfig {
    fn default() -> Self {
        CompressConfig {
            codec: CompressCodec::Zstandard,
            level: 3,
            text_levels: 3,
            frame_bytes: ByteSize::kib(512),
            frame_chunks: 16,
        }
    }
}

impl Default for ContainerConfig {
    fn default() -> Self {
        ContainerConfig { bytes_target: ByteSize::mib(32) }
    }
}

impl Default for RestoreConfig {
    fn default() -> Self {
        RestoreConfig { cache_bytes: ByteSize::mib(96), keep_damaged: true }
    }
}

impl Config {
    /// Parses TOML text. Errors name `origin`.
    ///
    /// # Errors
    /// [`Error::Config`], which names the key, for bad syntax, unknown keys and values out of range.
    pub fn parse(text: &str, origin: &str) -> Result<Self> {
        Self::parse_within(text, origin, None)
    }

    /// The same, for a process of this memory, whatever the text says about it. Sizes that the text gives stay.
    ///
    /// # Errors
    /// Errors of [`Self::parse`].
    pub fn parse_within(text: &str, origin: &str, memory: Option<ByteSize>) -> Result<Self> {
        let invalid = |message: String| Error::Config { origin: origin.into(), message };
        let syntax = |error: toml::de::Error| invalid(error.to_string().trim_end().to_string());
        let mut config: Config = toml::from_str(text).map_err(syntax)?;
        let given: toml::Table = toml::from_str(text).map_err(syntax)?;
        let is_given = |table: &str, key: &str| given.get(table).and_then(|table| table.get(key)).is_some();
        config.set_memory(memory.unwrap_or(config.memory), is_given);
        config.validate().map_err(invalid)?;
        Ok(config)
    }

    /// Reads and parses a file.
    ///
    /// # Errors
    /// [`Error::Io`], and those of [`Self::parse`].
    pub fn load(path: &Path) -> Result<Self> {
        Self::load_unless(path, None, &AtomicBool::new(false))
    }

    /// The same as [`Self::parse_within`], until `stop` is set: the file may be a pipe.
    ///
    /// # Errors
    /// Errors of [`Self::load`], and [`Error::Interrupted`].
    pub fn load_unless(path: &Path, memory: Option<ByteSize>, stop: &AtomicBool) -> Result<Self> {
        let text = read_text_file(path, FILE_BYTES_MAX, stop)
            .map_err(|error| input_failed("read configuration", path, error))?;
        Self::parse_within(&text, &path.display().to_string(), memory)
    }

    /// Checks the range of every value.
    ///
    /// # Errors
    /// A message that names the key.
    pub fn validate(&self) -> std::result::Result<(), String> {
        let within = |key: &str, value: u64, low: u64, high: u64| {
            let ok = (low..=high).contains(&value);
            if ok { Ok(()) } else { Err(format!("`{key}` must be between {low} and {high}, found {value}")) }
        };
        check_memory(self.memory)?;
        let repository = &self.repository;
        let (min, avg, max) =
            (repository.chunk_bytes_min.0, repository.chunk_bytes_avg.0, repository.chunk_bytes_max.0);
        within("repository.chunk_bytes_min", min, 64, 1 << 20)?;
        within("repository.chunk_bytes_avg", avg, min.max(512), 4 << 20)?;
        within("repository.chunk_bytes_max", max, avg.max(1024), CHUNK_BYTES_LIMIT)?;
        if (min | avg | max) & 1 == 1 {
            return Err("`repository.chunk_bytes_*` must be even".into());
        }
        if repository.chunker == ChunkerKind::GearXet && !avg.is_power_of_two() {
            return Err(format!("`repository.chunk_bytes_avg` must be a power of two for `gear-xet`, found {avg}"));
        }
        within("pipeline.queue_depth", self.pipeline.queue_depth as u64, 1, 1024)?;
        within("pipeline.batch_bytes", self.pipeline.batch_bytes.0, 4096, 64 << 20)?;
        within("pipeline.workers_max", self.pipeline.workers_max as u64, 1, 1024)?;
        within("read.hole_bytes_min", self.read.hole_bytes_min.0, 4096, 1 << 40)?;
        within("read.hard_links_max", self.read.hard_links_max as u64, 1, 1 << 30)?;
        within("read.recheck_seconds", self.read.recheck_seconds, 0, 1 << 32)?;
        within("index.local_containers", self.index.local_containers as u64, 1, 4096)?;
        within("index.lru_entries", self.index.lru_entries as u64, 1, 1 << 30)?;
        within("index.similar_lru_entries", self.index.similar_lru_entries as u64, 0, 1 << 24)?;
        within("index.filter_bytes", self.index.filter_bytes.0, 0, 1 << 40)?;
        within("index.redb_cache_bytes", self.index.redb_cache_bytes.0, 1 << 20, 1 << 40)?;
        within("index.similarity_bytes", self.index.similarity_bytes.0, 1 << 16, 1 << 40)?;
        within("index.similarity_file_bytes", self.index.similarity_file_bytes.0, 1 << 16, 4 << 30)?;
        within("index.container_index_bytes", self.index.container_index_bytes.0, 1 << 20, 1 << 40)?;
        within("model.outline_bytes", self.model.outline_bytes.0, 1 << 20, 1 << 40)?;
        within("identify.samples", self.identify.samples as u64, 64, 1 << 16)?;
        within("identify.probe_bytes", self.identify.probe_bytes.0, 256, 1 << 20)?;
        within("subdedup.chunk_bytes_min", self.subdedup.chunk_bytes_min.0, 256, CHUNK_BYTES_LIMIT)?;
        within("subdedup.copy_bytes_min", self.subdedup.copy_bytes_min.0, 1, 1 << 20)?;
        within("subdedup.candidates_max", self.subdedup.candidates_max as u64, 1, 8)?;
        within("subdedup.parts", self.subdedup.parts as u64, 2, 100)?;
        within("subdedup.depth_max", u64::from(self.subdedup.depth_max), 1, 64)?;
        within("model.block_bytes", self.model.block_bytes.0, 64 << 10, 4 << 20)?;
        if !self.model.block_bytes.0.is_multiple_of(4096) {
            return Err(format!("`model.block_bytes` must be a multiple of 4096, found {}", self.model.block_bytes.0));
        }
        within("model.delta_depth_max", u64::from(self.model.delta_depth_max), 1, 32)?;
        within("subdedup.base_cache_bytes", self.subdedup.base_cache_bytes.0, 4 << 20, 1 << 40)?;
        within("compress.text_levels", u64::try_from(self.compress.text_levels).unwrap_or(u64::MAX), 0, 18)?;
        within("compress.frame_bytes", self.compress.frame_bytes.0, 0, FRAME_BYTES_LIMIT / 2)?;
        within("compress.frame_chunks", self.compress.frame_chunks.into(), 1, 4096)?;
        within("container.bytes_target", self.container.bytes_target.0, 1 << 20, 1 << 30)?;
        within("restore.cache_bytes", self.restore.cache_bytes.0, 4 << 20, 1 << 40)?;
        for (key, level) in
            [("compress.level", self.compress.level), ("model.planes_zstd_level", self.model.planes_zstd_level)]
        {
            if !(-7..=22).contains(&level) || level == 0 {
                return Err(format!("`{key}` must be a zstd level from -7 to 22 and not 0, found {level}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
