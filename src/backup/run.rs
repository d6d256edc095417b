//! Backup: the nine stages from a source tree to a snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::adopt::adopt_orphans;
use crate::backup::chunk::ChunkStage;
use crate::backup::compress::CompressWorker;
use crate::backup::dedup::DedupStage;
use crate::backup::hash::HashWorker;
use crate::backup::identify::IdentifyWorker;
use crate::backup::metadata::MetadataWriter;
use crate::backup::model_encode::{BaseReader, ModelEncodeWorker};
use crate::backup::parent::Parent;
use crate::backup::read::{ReadCounts, ReadStage};
use crate::backup::save::{SaveStage, Saved};
use crate::backup::subdedup::SubDedupStage;
use crate::chunk::classify::ChunkClassifier;
use crate::codec::{Scratch, compress_codec};
use crate::config::{Config, FloatCodec};
use crate::error::{Error, Result};
use crate::filesystem::{WalkPlan, Walker, prescan};
use crate::kernel::sieve::Sieve;
use crate::metrics::{Progress, StageMetrics, StageSummary};
use crate::model::delta_plan::DeltaPlanner;
use crate::pipeline::Pipeline;
use crate::repo::Repository;
use crate::repo::container::{ContainerRange, FramesInFlight};
use crate::repo::index::{
    ChunkIndex, ContainerIndexes, DATABASE_FILE, Database, Hits, Listing, Locator, Presence, Resolver, SessionShare,
    SharedContainerIndexes, SimilarityIndex, SimilarityPlace,
};
use crate::repo::paths::{cache_directory, create_private};
use crate::repo::reader::ChunkReader;
use crate::repo::snapshot::{self, NamedSnapshot, Snapshot};
use crate::repo::tree::{FileIdentity, Node};
use crate::similar::{Bases, Candidates, strategy};
use crate::types::SnapshotId;

/// Directories the first index level keeps, bytes.
const LOCAL_BYTES_MAX: usize = 32 << 20;
/// Container directories kept for bases.
const BASE_CONTAINER_INDEXES: usize = 64;
/// Files looked at for models before the walk.
const MODEL_CANDIDATES_MAX: usize = 1 << 14;
/// What SubDedup sends is smaller than the batches it gets, and most of it is no work to encode: so many more queue.
const PACKETS_PER_BATCH: usize = 4;
/// Directories a worker of ModelEncode keeps.
const WORKER_CONTAINER_INDEXES: usize = 4;
const WORKER_CONTAINER_INDEX_BYTES_MAX: usize = 4 << 20;
/// Decoded frames kept while walking the parent snapshot, bytes.
const PARENT_CACHE_BYTES: usize = 8 << 20;

/// What to back up and how to label it.
#[derive(Debug, Clone, Default)]
pub struct BackupRequest {
    /// Paths as given.
    pub paths: Vec<PathBuf>,
    /// Labels of the snapshot.
    pub tags: Vec<String>,
    /// Host name to record.
    pub host: String,
    /// Read every file, whatever the parent snapshot says.
    pub force: bool,
    /// Store the paths under their last names, as [`WalkPlan::bare`] does.
    pub bare: bool,
}

/// What a backup did.
#[derive(Debug, Clone, serde::Serialize)]
pub struct BackupReport {
    /// The new snapshot, 64 hex digits.
    pub snapshot: String,
    /// Its parent, if there was one.
    pub parent: Option<String>,
    /// Regular files in the snapshot.
    pub files: u64,
    /// Of those, unchanged since the parent and not read.
    pub files_unchanged: u64,
    /// Directories in the snapshot.
    pub directories: u64,
    /// Other entries in the snapshot.
    pub others: u64,
    /// Bytes of content in the snapshot.
    pub bytes: u64,
    /// Bytes read from the source.
    pub bytes_read: u64,
    /// Chunks seen.
    pub chunks: u64,
    /// Chunks that were not in the repository.
    pub chunks_new: u64,
    /// Bytes of those chunks.
    pub bytes_new: u64,
    /// Bytes added to the repository (containers).
    pub bytes_stored: u64,
    /// Containers written.
    pub containers: u64,
    /// Containers of interrupted runs taken over.
    pub containers_adopted: u64,
    /// Entries that could not be read, or changed while they were: each was reported.
    pub problems: u64,
    /// Seconds from start to commit.
    pub seconds: f64,
    /// Look-ups answered by each level of the index.
    pub index_hits: Hits,
    /// What each stage did.
    pub stages: Vec<StageSummary>,
    /// The same with whole distributions.
    #[serde(skip)]
    pub metrics: Vec<StageMetrics>,
}

/// Runs a backup. Problems with single entries are logged (`tracing::warn!`) and counted, and the rest goes on.
///
/// # Errors
/// Anything that keeps the snapshot from being complete: the store, the configuration, an interruption, none of the
/// paths existing.
pub fn backup(
    repository: &Repository,
    config: &Config,
    request: &BackupRequest,
    progress: &Progress,
    stop: &Arc<AtomicBool>,
) -> Result<BackupReport> {
    let started = Instant::now();
    let time_ns = now_ns();
    repository.check_writable()?;
    repository.check_run(&config.repository)?;
    let plan = if request.bare { WalkPlan::bare(&request.paths)? } else { WalkPlan::new(&request.paths)? };
    if plan.found() == 0 {
        let names: Vec<String> = request.paths.iter().map(|path| path.display().to_string()).collect();
        return Err(Error::Usage(format!("nothing to back up: {} does not exist", names.join(", "))));
    }
    repository.store.clean_temporaries()?;
    let cache = cache_directory(repository)?;
    create_private(&cache)?;
    let (listing, adopted) = adopt_orphans(repository)?;
    let paths = absolute_paths(&request.paths)?;
    let parent = if request.force { None } else { find_parent(repository, request, &paths)? };
    let skip: BTreeSet<FileIdentity> =
        [repository.store.local_path(), Some(cache.as_path())].into_iter().flatten().filter_map(identity).collect();
    let candidates =
        if config.model.detect_formats { prescan(&request.paths, &skip, MODEL_CANDIDATES_MAX) } else { Vec::new() };
    let walker = Walker::new(plan, skip);
    let root_node = walker.root().cloned();

    let indexes = Indexes::open(repository, config, &listing, cache)?;
    let counts = Arc::new(ReadCounts::default());
    let parent_view = parent.as_ref().map(|parent| {
        let reader = ChunkReader::new(repository, listing.clone(), PARENT_CACHE_BYTES);
        let presence = Presence::new(repository.store.clone(), listing.clone());
        Parent::new(reader, presence, parent.snapshot.root, parent.snapshot.time_ns)
    });
    let read = ReadStage::new(walker, parent_view, candidates, config, progress, counts.clone());
    let (saved, stages) = run_stages(repository, config, &indexes, (read, time_ns), progress, stop)?;

    let hits = {
        let mut index = indexes.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        index.finish()?;
        index.hits
    };
    let id = commit(repository, request, paths, &saved, &counts, (time_ns, parent.as_ref(), root_node))?;
    let (problems, files_unchanged) = (counts.problems.load(Ordering::Relaxed), counts.unchanged());
    Ok(BackupReport {
        snapshot: id.to_string(),
        parent: parent.map(|parent| parent.id.to_string()),
        files: saved.files,
        files_unchanged,
        directories: saved.directories,
        others: saved.others,
        bytes: saved.bytes,
        bytes_read: counts.bytes_read.load(Ordering::Relaxed),
        chunks: saved.chunks,
        chunks_new: saved.chunks_new,
        bytes_new: saved.bytes_new,
        bytes_stored: saved.bytes_stored,
        containers: saved.containers,
        containers_adopted: adopted,
        problems,
        seconds: started.elapsed().as_secs_f64(),
        index_hits: hits,
        stages: stages.iter().map(StageMetrics::summary).collect(),
        metrics: stages,
    })
}

/// Writes the snapshot: everything it names is durable.
fn commit(
    repository: &Repository,
    request: &BackupRequest,
    paths: Vec<Vec<u8>>,
    saved: &Saved,
    counts: &ReadCounts,
    (time_ns, parent, root_node): (i64, Option<&NamedSnapshot>, Option<Node>),
) -> Result<SnapshotId> {
    let snapshot = Snapshot {
        time_ns,
        host: request.host.clone(),
        user: uzers::get_current_username().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
        paths: paths.into_iter().map(Into::into).collect(),
        root: saved.root,
        parent: parent.map(|parent| parent.id),
        tags: request.tags.clone(),
        program: concat!("fhrd ", env!("CARGO_PKG_VERSION")).into(),
        statistics: statistics(saved, counts.problems.load(Ordering::Relaxed), counts.unchanged()),
        extra: BTreeMap::new(),
        root_node,
    };
    snapshot.save(repository.store.as_ref())
}

/// The pipeline: its order is the design.
fn run_stages(
    repository: &Repository,
    config: &Config,
    indexes: &Indexes,
    (read, time_ns): (ReadStage<'_>, i64),
    progress: &Progress,
    stop: &Arc<AtomicBool>,
) -> Result<(Saved, Vec<StageMetrics>)> {
    let (store, key, workers) = (&repository.store, repository.key, &config.pipeline);
    let index = &indexes.chunks;
    let in_flight = Arc::new(FramesInFlight::default());
    let shared = &indexes.container_indexes;
    let container_indexes =
        ContainerIndexes::sharing(store.clone(), BASE_CONTAINER_INDEXES, LOCAL_BYTES_MAX, shared.clone());
    let resolver = Resolver::new(Locator::new(indexes.listing.clone(), container_indexes));
    let candidates = Candidates::new(indexes.similarity.clone());
    let bases = Bases::new(store.clone(), resolver, in_flight.clone(), &config.subdedup, candidates);
    let chunker_seed = key.seed("chunker");
    let strategy = strategy(&config.subdedup, key.seed("sub-blocks"), chunker_seed);
    let sieve = strategy.wants_anchors().then(|| Sieve::new(chunker_seed));
    let target = config.container.bytes_target.0;
    let metadata = MetadataWriter::new(key, index.clone(), target);

    let mut line = Pipeline::new(workers.queue_depth, stop.clone());
    let link = line.source(read);
    let link = line.stage(link, ChunkStage::new(&repository.config, chunker_seed, workers.batch_bytes.0));
    let link = line.parallel(link, workers.workers_of(workers.hash_workers), || HashWorker { key });
    let link = line.stage(link, DedupStage { index: index.clone() });
    let link = line.parallel(link, workers.workers_of(workers.identify_workers), || IdentifyWorker {
        classifier: ChunkClassifier::new(&config.identify, config.model.planes_zstd_level),
        sieve: sieve.clone(),
        candidates: Candidates::new(indexes.similarity.clone()),
    });
    let models = DeltaPlanner::new(store.clone(), &config.model);
    let chunk_bytes_avg = repository.config.chunk_bytes_avg.0;
    let link = line.stage(link, SubDedupStage::new(strategy, bases, models, config, chunk_bytes_avg));
    line.set_queue_depth(PACKETS_PER_BATCH * workers.queue_depth);
    let link = line.parallel(link, workers.workers_of(workers.model_encode_workers), || ModelEncodeWorker {
        codec: config.model.codec,
        verify: config.model.verify,
        back: Vec::new(),
        level: float_level(config),
        scratch: Scratch::default(),
        bases: BaseReader {
            store: store.clone(),
            in_flight: in_flight.clone(),
            container_indexes: ContainerIndexes::sharing(
                store.clone(),
                WORKER_CONTAINER_INDEXES,
                WORKER_CONTAINER_INDEX_BYTES_MAX,
                shared.clone(),
            ),
        },
    });
    let link = line.parallel(link, workers.workers_of(workers.compress_workers), || CompressWorker {
        codec: compress_codec(config.compress.codec),
        level: config.compress.level,
        scratch: Scratch::default(),
        space: Vec::new(),
    });
    let links_max = config.read.hard_links_max;
    let save = SaveStage::new(
        store.clone(),
        index.clone(),
        in_flight.clone(),
        metadata,
        target,
        (links_max, time_ns),
        progress,
    );
    let done = line.run(link, save)?;
    indexes.keep_similarity(&in_flight);
    Ok(done)
}

/// zstd level of float frames that are not deltas.
fn float_level(config: &Config) -> i32 {
    match config.model.codec {
        FloatCodec::Zstandard => config.compress.level,
        _ => config.model.planes_zstd_level,
    }
}

/// What is known of stored chunks.
struct Indexes {
    listing: Arc<Listing>,
    /// What the caches of directories have between them.
    container_indexes: Arc<SharedContainerIndexes>,
    chunks: Arc<Mutex<ChunkIndex>>,
    similarity: Arc<Mutex<SimilarityIndex>>,
}

impl Indexes {
    fn open(repository: &Repository, config: &Config, listing: &Arc<Listing>, cache: PathBuf) -> Result<Self> {
        let (store, config) = (&repository.store, &config.index);
        let database = Database::open(&cache.join(DATABASE_FILE), config.database_cache_bytes.0 as usize)?;
        let container_indexes = Arc::<SharedContainerIndexes>::default();
        let local = ContainerIndexes::sharing(
            store.clone(),
            config.local_containers,
            LOCAL_BYTES_MAX,
            container_indexes.clone(),
        );
        let chunks = ChunkIndex::new(store.clone(), listing.clone(), local, config, database)?;
        let place = SimilarityPlace {
            directory: cache,
            repository: repository.id.clone(),
            memory_bytes: config.similarity_bytes.0,
            file_bytes: config.similarity_file_bytes.0,
        };
        Ok(Indexes {
            listing: listing.clone(),
            container_indexes,
            chunks: Arc::new(Mutex::new(chunks)),
            similarity: Arc::new(Mutex::new(SimilarityIndex::new(store.clone(), listing.clone(), place))),
        })
    }

    /// Keeps for the next run which of the containers just stored hold which session entries.
    fn keep_similarity(&self, in_flight: &FramesInFlight) {
        let share = |container_range: ContainerRange| SessionShare {
            first: container_range.first_entry,
            entries: container_range.entries,
            container: container_range.container,
        };
        let shares: Vec<SessionShare> = in_flight.stored().into_iter().map(share).collect();
        let chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        let mut similarity = self.similarity.lock().unwrap_or_else(PoisonError::into_inner);
        similarity.finish(&shares, chunks.stored().iter().copied());
    }
}

/// The latest snapshot of the same paths on the same host.
fn find_parent(repository: &Repository, request: &BackupRequest, paths: &[Vec<u8>]) -> Result<Option<NamedSnapshot>> {
    let (snapshots, damaged) = snapshot::list(repository.store.as_ref())?;
    for (name, error) in damaged {
        tracing::warn!("passing over {name}: {error}");
    }
    let same = |named: &NamedSnapshot| {
        let recorded = named.snapshot.paths.iter().map(|path| path.as_slice());
        named.snapshot.host == request.host && recorded.eq(paths.iter().map(Vec::as_slice))
    };
    Ok(snapshots.into_iter().rev().find(same))
}

/// The paths made absolute, sorted, without repetitions.
fn absolute_paths(paths: &[PathBuf]) -> Result<Vec<Vec<u8>>> {
    let absolute = |path: &PathBuf| {
        let path = std::path::absolute(path).map_err(|error| Error::io("find", path, error))?;
        Ok(path.into_os_string().into_encoded_bytes())
    };
    let mut paths = paths.iter().map(absolute).collect::<Result<Vec<_>>>()?;
    paths.sort();
    paths.dedup();
    Ok(paths)
}

fn identity(path: &Path) -> Option<FileIdentity> {
    let metadata = std::fs::metadata(path).ok()?;
    Some(FileIdentity { device: metadata.dev(), inode: metadata.ino() })
}

fn now_ns() -> i64 {
    jiff::Timestamp::now().as_nanosecond() as i64
}

fn statistics(saved: &Saved, problems: u64, files_unchanged: u64) -> BTreeMap<String, u64> {
    let counters = [
        ("files", saved.files),
        ("files_unchanged", files_unchanged),
        ("directories", saved.directories),
        ("others", saved.others),
        ("bytes", saved.bytes),
        ("chunks", saved.chunks),
        ("chunks_new", saved.chunks_new),
        ("bytes_new", saved.bytes_new),
        ("bytes_stored", saved.bytes_stored),
        ("containers", saved.containers),
        ("problems", problems),
    ];
    counters.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
}
