//! Speed of finding a chunk's ranges in a stored chunk: `cargo bench --bench strategies`.
//!
//! The base is the only other chunk and its frame is still open, as for the next version of a file in one backup.
#![expect(clippy::expect_used, reason = "a bench fails by panicking")]

mod data;

use std::path::Path;
use std::sync::Arc;

use data::generated;
use divan::Bencher;
use divan::counter::BytesCount;
use fhrd::config::{Config, IndexConfig, StrategyKind, SubdedupConfig};
use fhrd::kernel::sieve::Sieve;
use fhrd::repo::container::{Base, FrameNumber, FramesInFlight, OpenFrame, WHOLE_DIGEST};
use fhrd::repo::index::{
    ChunkIndex, ContainerIndexes, ContainerListing, Locator, Resolver, SimilarityFiles, SimilarityIndex,
};
use fhrd::similar::{
    AnchorMatcher, BaseChunk, Bases, Candidates, Chooser, SessionEntry, SharedBases, Strategy, StrategyOutput,
    WorkerBases, features, strategy,
};
use fhrd::store::{MemoryStore, Store};
use fhrd::types::RepositoryKey;
use parking_lot::Mutex;

const CHUNK_BYTES: usize = 128 << 10;
const SEED: u64 = 7;

/// Every strategy that looks into bases.
fn strategies() -> impl Iterator<Item = StrategyKind> {
    StrategyKind::ALL.iter().copied().filter(|kind| *kind != StrategyKind::None)
}

fn main() {
    divan::main();
}

/// Searches one chunk after the other.
enum Finder {
    Strategy(Box<dyn Strategy>, Box<Bases>),
    Anchors(Box<Chooser>, Box<AnchorMatcher>, Sieve),
}

impl Finder {
    /// In an empty session of an empty repository.
    fn new(config: &SubdedupConfig, directory: &Path) -> Self {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let listing = Arc::new(ContainerListing::take(&store).expect("lists"));
        let files = SimilarityFiles {
            directory: directory.into(),
            repository: String::new(),
            memory_bytes: 1 << 20,
            file_bytes: 1 << 20,
            key: None,
        };
        let similarity = Arc::new(Mutex::new(SimilarityIndex::new(store.clone(), listing.clone(), files)));
        let locator = || Locator::new(listing.clone(), ContainerIndexes::new(store.clone(), 8, 1 << 20));
        let candidates = || Candidates::new(similarity.clone());
        let in_flight = Arc::new(FramesInFlight::default());
        let container_indexes = ContainerIndexes::new(store.clone(), 8, 1 << 20);
        let chunks = ChunkIndex::new(store.clone(), listing.clone(), container_indexes, &IndexConfig::default(), None);
        let (resolver, chunks) = (Resolver::new(locator()), Arc::new(Mutex::new(chunks)));
        let bases = Bases::new(store.clone(), resolver, in_flight, chunks, config, 8 << 20, candidates());
        if let Some(strategy) = strategy(config, SEED) {
            return Finder::Strategy(strategy, Box::new(bases));
        }
        let shared = Arc::new(SharedBases::new(8 << 20));
        let chooser = Chooser::new(shared.clone(), &bases, locator(), candidates(), config, CHUNK_BYTES as u64);
        let matcher = AnchorMatcher::new(WorkerBases::new(shared, &bases, locator()), config, SEED);
        Finder::Anchors(Box::new(chooser), Box::new(matcher), Sieve::new(SEED))
    }

    /// Finds the ranges of a chunk. If `is_base`, later chunks may be compared with it.
    fn find(&mut self, chunk: &[u8], is_base: bool) -> StrategyOutput {
        match self {
            Finder::Strategy(strategy, bases) => {
                let found = strategy.find(chunk, bases).expect("finds");
                if is_base {
                    add(chunk, &found, bases);
                }
                found
            }
            Finder::Anchors(chooser, matcher, sieve) => {
                let anchors = sieve.anchors(chunk);
                let features = features(&anchors);
                let chunk = Arc::new(BaseChunk::new(chunk.to_vec().into(), Some(anchors)));
                let entries = chooser.choose(&features, &chunk, is_base).expect("chooses");
                matcher.find(&chunk, features, &entries).expect("finds")
            }
        }
    }
}

/// Stores a chunk whole.
fn add(chunk: &[u8], found: &StrategyOutput, bases: &mut Bases) {
    let len = chunk.len() as u32;
    let number = bases.entries.ring.push(SessionEntry {
        name: Base { fingerprint: RepositoryKey([7; 32]).fingerprint(chunk), digest: WHOLE_DIGEST },
        raw_len: len,
        frame: FrameNumber::open(OpenFrame::Solid),
        literal_offset: bases.open_solid.len() as u32,
        literal_len: len,
        depth: 1,
        features: found.features.clone(),
        operations: Arc::default(),
    });
    bases.open_solid.extend_from_slice(chunk);
    bases.index(number, &found.features);
}

/// The next version of `chunk`: 20 bytes replaced by 33 at four offsets around the middle. Sub-blocks at both ends are
/// unchanged.
fn edited(chunk: &[u8]) -> Vec<u8> {
    let mut edited = chunk.to_vec();
    for at in (CHUNK_BYTES / 3..CHUNK_BYTES * 2 / 3).step_by(CHUNK_BYTES / 12) {
        edited.splice(at..at + 20, *b"another text that lies here now, ");
    }
    edited
}

fn run(bencher: Bencher<'_, '_>, kind: StrategyKind, is_version: bool) {
    let config = SubdedupConfig { strategy: kind, ..Config::default().subdedup };
    let directory = tempfile::tempdir().expect("makes a directory");
    let mut finder = Finder::new(&config, directory.path());
    let base = generated("text", CHUNK_BYTES);
    finder.find(&base, true);
    let chunk = if is_version { edited(&base) } else { generated("noise", CHUNK_BYTES) };
    let found = finder.find(&chunk, false);
    assert_eq!(is_version, !found.matches.is_empty(), "{kind}: {} matches", found.matches.len());
    bencher.counter(BytesCount::of_slice(&chunk)).bench_local(|| finder.find(&chunk, false).matches.len());
}

/// The base is the previous version.
#[divan::bench(args = strategies())]
fn version(bencher: Bencher<'_, '_>, strategy: StrategyKind) {
    run(bencher, strategy, true);
}

/// The base shares nothing.
#[divan::bench(args = strategies())]
fn unlike(bencher: Bencher<'_, '_>, strategy: StrategyKind) {
    run(bencher, strategy, false);
}
