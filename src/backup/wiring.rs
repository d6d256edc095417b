//! Wiring: builds each stage of a backup from the configuration and links it to the stage before.
//!
//! A stage that has nothing to do under this configuration is left out: its link is passed on. Only ModelEncode can
//! be left out. Identify runs even with `identify.enabled = false`, because it also finds incompressible chunks in
//! parallel; SubDedup fills the frames and Compress encodes them whatever the configuration.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::choose::ChooseStage;
use super::chunk::ChunkStage;
use super::compress::CompressWorker;
use super::counts::ReadCounts;
use super::dedup::DedupStage;
use super::diff::DiffWorker;
use super::estimate::EstimateStage;
use super::fine_dedup::FineDedupStage;
use super::fine_hash::FineHashWorker;
use super::hash::HashWorker;
use super::identify::IdentifyWorker;
use super::indexes::Indexes;
use super::matching::MatchWorker;
use super::message::{ChunkBatch, Packet, ReadBatch};
use super::model_encode::{BaseReader, ModelEncodeWorker};
use super::save::{SaveOptions, SaveStage};
use super::saved::Saved;
use super::scan::CHUNKER_SEED;
use super::source::FirstStages;
use super::subdedup::{Searcher, SubDedupStage};
use super::uploads::Uploads;
use crate::chunk::classify::ChunkClassifier;
use crate::chunk::plain::PlainTrial;
use crate::codec::{Scratch, compress_codec};
use crate::config::{Config, FloatCodec, ModelDelta, StrategyKind};
use crate::error::Result;
use crate::kernel::sieve::Sieve;
use crate::metrics::{Progress, StageMetrics};
use crate::model::DeltaPlanner;
use crate::pipeline::{Link, Pipeline};
use crate::repo::container::FramesInFlight;
use crate::repo::features::{Feature, Features};
use crate::repo::{MetadataWriter, Repository};
use crate::similar::{
    AnchorMatcher, Bases, Candidates, Chooser, PeakFinder, SLICE_BASES_MAX, SharedBases, SliceSearch, SubBlockChooser,
    SubBlockHasher, SubBlockMatcher, WorkerBases, strategy,
};

/// Packets from SubDedup that a queue holds for each batch in the queues before it. A packet is smaller than a batch,
/// and most packets need no encoding, so longer queues keep the workers busy.
const PACKETS_PER_BATCH: usize = 4;

/// Memory for bases that SubDedup itself reads if other stages search for copies: recipes and records of models. Bytes.
const SUBDEDUP_BYTES_MAX: usize = 8 << 20;

/// Memory of batches on their way through one worker of Match or Diff, bytes. The base cache is smaller by it.
const MATCH_BYTES: usize = 3 << 20;

/// The objects of a run that several stages share.
#[derive(Clone, Copy)]
pub struct RunParts<'a> {
    /// Where to store.
    pub repository: &'a Repository,
    /// Configuration of the run.
    pub config: &'a Config,
    /// Indexes of stored chunks.
    pub indexes: &'a Indexes,
    /// Counters for the progress display.
    pub progress: &'a Progress,
    /// Counters of the report.
    pub counts: &'a ReadCounts,
    /// Start of the backup, nanoseconds since 1970.
    pub time_ns: i64,
    /// What the repository may have that older programs do not know.
    pub features: Features,
}

impl RunParts<'_> {
    /// Whether tensors may follow from others in ways that older programs do not know.
    fn derives(&self) -> bool {
        self.config.model.detect_formats && self.features.have(Feature::Derivations)
    }
}

/// A pipeline under construction and the objects that its stages share.
pub struct Wiring<'a> {
    parts: RunParts<'a>,
    pipeline: Pipeline<'a>,
    in_flight: Arc<FramesInFlight>,
    chunker_seed: u64,
}

impl<'a> Wiring<'a> {
    /// An empty pipeline; setting `stop` interrupts the run.
    pub fn new(parts: RunParts<'a>, stop: &Arc<AtomicBool>) -> Self {
        let pipeline = Pipeline::new(parts.config.pipeline.queue_depth, stop.clone());
        let chunker_seed = parts.repository.key.seed(CHUNKER_SEED);
        Wiring { parts, pipeline, in_flight: Arc::default(), chunker_seed }
    }

    /// Starts the pipeline with the first stages of the source.
    pub fn read(&mut self, first: FirstStages<'a>) -> Link<'a, ReadBatch> {
        first(&mut self.pipeline)
    }

    /// Adds Chunk.
    pub fn chunk(&mut self, link: Link<'a, ReadBatch>) -> Link<'a, ChunkBatch> {
        let RunParts { repository, config, .. } = self.parts;
        let stage = ChunkStage::new(&repository.config, self.chunker_seed, config.pipeline.batch_bytes.0);
        self.pipeline.stage(link, stage)
    }

    /// Adds Hash.
    pub fn hash(&mut self, link: Link<'a, ChunkBatch>) -> Link<'a, ChunkBatch> {
        let RunParts { repository, config, .. } = self.parts;
        let workers = config.pipeline.workers_of(config.pipeline.hash_workers);
        self.pipeline.parallel(link, workers, || HashWorker { key: repository.key })
    }

    /// Adds Dedup.
    pub fn dedup(&mut self, link: Link<'a, ChunkBatch>) -> Link<'a, ChunkBatch> {
        let RunParts { repository, indexes, counts, .. } = self.parts;
        let (index, key) = (indexes.chunks.clone(), repository.key);
        self.pipeline.stage(link, DedupStage { index, key, counts, tensors_new: HashSet::new() })
    }

    /// Adds Identify.
    pub fn identify(&mut self, link: Link<'a, ChunkBatch>) -> Link<'a, ChunkBatch> {
        let RunParts { repository, config, indexes, .. } = self.parts;
        let has_anchors = config.subdedup.strategy == StrategyKind::Anchors;
        let sieve = has_anchors.then(|| Sieve::new(self.chunker_seed));
        let slices_seed = self.finds_slices().then(|| repository.key.seed("sub-blocks"));
        let workers = config.pipeline.workers_of(config.pipeline.identify_workers);
        self.pipeline.parallel(link, workers, || IdentifyWorker {
            classifier: ChunkClassifier::new(&config.identify, config.model.planes_zstd_level),
            plain: PlainTrial::new(config.model.codec, config.compress.level, self.parts.derives()),
            sieve: sieve.clone(),
            peaks: slices_seed.map(PeakFinder::new),
            candidates: Candidates::new(indexes.similarity.clone()),
        })
    }

    /// Whether blocks of weights are searched for ranges of others: not with the strategies of the papers.
    fn finds_slices(&self) -> bool {
        let Config { subdedup, identify, .. } = self.parts.config;
        subdedup.strategy == StrategyKind::Anchors && !identify.separate
    }

    /// Adds the stages that search for copies, then SubDedup, and longer queues after it.
    pub fn subdedup(&mut self, link: Link<'a, ChunkBatch>) -> Link<'a, Packet> {
        let RunParts { repository, config, .. } = self.parts;
        let chunk_bytes_avg = repository.config.chunk_bytes_avg.0;
        let (searcher, bases, link) = match strategy(&config.subdedup, repository.key.seed("sub-blocks")) {
            Some(strategy) => {
                let bases = self.bases(config.subdedup.base_cache_bytes.0 as usize);
                (Searcher::Strategy(strategy), bases, link)
            }
            None => {
                let (bases, shared) = (self.bases(SUBDEDUP_BYTES_MAX), self.shared_bases());
                let link = match config.subdedup.strategy {
                    StrategyKind::Anchors => self.anchors(link, &bases, &shared),
                    _ => self.sub_blocks(link, &bases, &shared),
                };
                (Searcher::Match(shared), bases, link)
            }
        };
        let planner = DeltaPlanner::new(repository.store.clone(), &config.model, self.parts.derives());
        let slices = SliceSearch::new(repository.key.seed("sub-blocks"), config.subdedup.base_reads_per_mib);
        let stage = SubDedupStage::new(searcher, bases, planner, slices, config, chunk_bytes_avg);
        let link = self.pipeline.stage(link, stage);
        self.pipeline.set_queue_depth(PACKETS_PER_BATCH * config.pipeline.queue_depth);
        link
    }

    fn candidates(&self) -> Candidates {
        Candidates::new(self.parts.indexes.similarity.clone())
    }

    /// The bases of SubDedup, in `bytes_max` bytes of memory.
    fn bases(&self, bytes_max: usize) -> Bases {
        let RunParts { repository, config, indexes, .. } = self.parts;
        let store = repository.store.clone();
        let (resolver, index) = (indexes.resolver(&store), indexes.chunks.clone());
        let in_flight = self.in_flight.clone();
        Bases::new(store, resolver, in_flight, index, &config.subdedup, bytes_max, self.candidates())
    }

    /// The bases of the workers that search.
    fn shared_bases(&self) -> Arc<SharedBases> {
        let config = self.parts.config;
        let bytes_max = config.subdedup.base_cache_bytes.0 as usize;
        let workers = config.pipeline.workers_of(config.pipeline.match_workers);
        let taken = SUBDEDUP_BYTES_MAX + SLICE_BASES_MAX + workers * MATCH_BYTES;
        Arc::new(SharedBases::new(bytes_max.saturating_sub(taken).max(bytes_max / 2)))
    }

    /// Adds Choose and Match.
    fn anchors(
        &mut self,
        link: Link<'a, ChunkBatch>,
        bases: &Bases,
        shared: &Arc<SharedBases>,
    ) -> Link<'a, ChunkBatch> {
        let RunParts { repository, config, indexes, .. } = self.parts;
        let (store, chunk_bytes_avg) = (&repository.store, repository.config.chunk_bytes_avg.0);
        let locator = indexes.worker_locator(store);
        let chooser =
            Chooser::new(shared.clone(), bases, locator, self.candidates(), &config.subdedup, chunk_bytes_avg);
        let new_classifier = || ChunkClassifier::new(&config.identify, config.model.planes_zstd_level);
        let choose = ChooseStage {
            chooser,
            classifier: new_classifier(),
            separates: config.identify.separate,
            makes_deltas: config.model.delta != ModelDelta::None,
            has_previous_version: false,
        };
        let link = self.pipeline.stage(link, choose);
        let (workers, seed) = (config.pipeline.workers_of(config.pipeline.match_workers), self.chunker_seed);
        self.pipeline.parallel(link, workers, || {
            let worker_bases = WorkerBases::new(shared.clone(), bases, indexes.worker_locator(store));
            let matcher = AnchorMatcher::new(worker_bases, &config.subdedup, seed);
            MatchWorker { matcher, classifier: new_classifier() }
        })
    }

    /// Adds FineHash, FineDedup and Diff.
    fn sub_blocks(
        &mut self,
        link: Link<'a, ChunkBatch>,
        bases: &Bases,
        shared: &Arc<SharedBases>,
    ) -> Link<'a, ChunkBatch> {
        let RunParts { repository, config, indexes, .. } = self.parts;
        let (store, chunk_bytes_avg) = (&repository.store, repository.config.chunk_bytes_avg.0);
        let (seed, separates) = (repository.key.seed("sub-blocks"), config.identify.separate);
        let workers = config.pipeline.workers_of(config.pipeline.hash_workers);
        let link = self.pipeline.parallel(link, workers, || {
            let hasher = SubBlockHasher::new(&config.subdedup, seed);
            FineHashWorker { hasher, separates }
        });
        let locator = indexes.worker_locator(store);
        let candidates = self.candidates().with_lru(config.index.similar_lru_entries);
        let chooser =
            SubBlockChooser::new(shared.clone(), bases, locator, candidates, &config.subdedup, chunk_bytes_avg);
        let makes_deltas = config.model.delta != ModelDelta::None;
        let link = self.pipeline.stage(link, FineDedupStage { chooser, makes_deltas, has_previous_version: false });
        let workers = config.pipeline.workers_of(config.pipeline.match_workers);
        self.pipeline.parallel(link, workers, || {
            let worker_bases = WorkerBases::new(shared.clone(), bases, indexes.worker_locator(store));
            DiffWorker { matcher: SubBlockMatcher::new(worker_bases, &config.subdedup) }
        })
    }

    /// Adds ModelEncode, unless no frame can be a float frame or a delta.
    pub fn model_encode(&mut self, link: Link<'a, Packet>) -> Link<'a, Packet> {
        let RunParts { repository, config, indexes, .. } = self.parts;
        if !config.model.detect_formats && !config.identify.enabled {
            return link;
        }
        let (store, in_flight) = (&repository.store, &self.in_flight);
        let workers = config.pipeline.workers_of(config.pipeline.model_encode_workers);
        self.pipeline.parallel(link, workers, || ModelEncodeWorker {
            codec: config.model.codec,
            level: float_level(config),
            verify: config.model.verify,
            decoded: Vec::new(),
            scratch: Scratch::of_writer(self.parts.derives()),
            bases: BaseReader {
                store: store.clone(),
                in_flight: in_flight.clone(),
                container_indexes: indexes.worker_container_indexes(store),
                key: config.model.verify.then_some(repository.key),
            },
        })
    }

    /// Adds Compress.
    pub fn compress(&mut self, link: Link<'a, Packet>) -> Link<'a, Packet> {
        let config = self.parts.config;
        let workers = config.pipeline.workers_of(config.pipeline.compress_workers);
        self.pipeline.parallel(link, workers, || CompressWorker {
            codec: compress_codec(config.compress.codec),
            level: config.compress.level,
            text_level: config.compress.text_level(),
            plain_level: config.compress.plain_level(),
            scratch: Scratch::default(),
            space: Vec::new(),
        })
    }

    /// Ends the pipeline with Save and runs it. Returns the totals and the metrics of each stage.
    ///
    /// # Errors
    /// The first error of any stage.
    pub fn save(self, link: Link<'a, Packet>) -> Result<(Saved, Vec<StageMetrics>)> {
        let RunParts { repository, config, indexes, progress, time_ns, .. } = self.parts;
        let (index, container_bytes) = (&indexes.chunks, config.container.bytes_target.0);
        let metadata =
            MetadataWriter::new(repository.key, repository.new_containers(), index.clone(), container_bytes)?;
        let bases = self.parts.features.have(Feature::Listings).then(|| indexes.listing_bases(repository));
        let (metadata, options) = ((metadata, bases), SaveOptions { container_bytes, time_ns });
        let uploads = Arc::new(Uploads::new(repository.store.clone(), index.clone(), self.in_flight.clone()));
        let save = SaveStage::new(repository, uploads.clone(), self.in_flight.clone(), metadata, options, progress)?;
        let done = uploads.run(|| self.pipeline.run(link, save))?;
        indexes.finish_similarity(&self.in_flight);
        Ok(done)
    }

    /// Ends the pipeline of a dry run with Estimate and runs it. Returns what would be stored and the metrics of each
    /// stage.
    ///
    /// # Errors
    /// The first error of any stage.
    pub fn estimate(self, link: Link<'a, ChunkBatch>) -> Result<(Saved, Vec<StageMetrics>)> {
        let RunParts { indexes, progress, .. } = self.parts;
        self.pipeline.run(link, EstimateStage::new(indexes.chunks.clone(), progress))
    }
}

/// zstd level of float frames that are not deltas.
fn float_level(config: &Config) -> i32 {
    match config.model.codec {
        FloatCodec::Zstandard => config.compress.level,
        _ => config.model.planes_zstd_level,
    }
}
