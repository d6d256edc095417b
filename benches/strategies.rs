//! Speed of finding a chunk's ranges in a stored chunk: `cargo bench --bench strategies`.
//!
//! The base is the only other chunk and its frame is still open, as for the next version of a file in one backup.
#![expect(clippy::expect_used, reason = "a bench fails by panicking")]

mod data;

use std::path::Path;
use std::sync::{Arc, Mutex};

use data::generated;
use divan::Bencher;
use divan::counter::BytesCount;
use fhrd::config::{Config, StrategyKind, SubdedupConfig};
use fhrd::kernel::sieve::{Anchor, Sieve};
use fhrd::repo::container::{Base, FrameNumber, FramesInFlight, OpenFrame, WHOLE_DIGEST};
use fhrd::repo::index::{ContainerIndexes, ContainerListing, Locator, Resolver, SimilarityFiles, SimilarityIndex};
use fhrd::similar::{Bases, Candidates, SessionEntry, Strategy, strategy};
use fhrd::store::{MemoryStore, Store};
use fhrd::types::RepositoryKey;

const CHUNK_BYTES: usize = 128 << 10;
const SEED: u64 = 7;

/// Every strategy that looks into bases.
fn strategies() -> impl Iterator<Item = StrategyKind> {
    StrategyKind::ALL.iter().copied().filter(|kind| *kind != StrategyKind::None)
}

fn main() {
    divan::main();
}

fn anchors_of(bytes: &[u8]) -> Vec<Anchor> {
    Sieve::new(SEED).anchors(bytes)
}

/// Bases of an empty session in an empty repository.
fn no_bases(config: &SubdedupConfig, directory: &Path) -> Bases {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let listing = Arc::new(ContainerListing::take(&store).expect("lists"));
    let files = SimilarityFiles {
        directory: directory.into(),
        repository: String::new(),
        memory_bytes: 1 << 20,
        file_bytes: 1 << 20,
        key: None,
    };
    let similarity = SimilarityIndex::new(store.clone(), listing.clone(), files);
    let resolver = Resolver::new(Locator::new(listing, ContainerIndexes::new(store.clone(), 8, 1 << 20)));
    let candidates = Candidates::new(Arc::new(Mutex::new(similarity)));
    Bases::new(store, resolver, Arc::new(FramesInFlight::default()), config, candidates)
}

/// Stores a chunk whole.
fn add(chunk: &[u8], strategy: &mut dyn Strategy, bases: &mut Bases) {
    let anchors = anchors_of(chunk);
    let found = strategy.find(chunk, &anchors, bases).expect("finds");
    let len = chunk.len() as u32;
    let number = bases.ring.push(SessionEntry {
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
    if strategy.wants_anchors() {
        bases.cache_chunk(number, chunk, Some(anchors)).expect("has memory");
    }
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
    let (mut strategy, mut bases) = (strategy(&config, SEED, SEED), no_bases(&config, directory.path()));
    let base = generated("text", CHUNK_BYTES);
    add(&base, strategy.as_mut(), &mut bases);
    let chunk = if is_version { edited(&base) } else { generated("noise", CHUNK_BYTES) };
    let anchors = anchors_of(&chunk);
    let found = strategy.find(&chunk, &anchors, &mut bases).expect("finds");
    assert_eq!(is_version, !found.matches.is_empty(), "{kind}: {} matches", found.matches.len());
    bencher
        .counter(BytesCount::of_slice(&chunk))
        .bench_local(|| strategy.find(&chunk, &anchors, &mut bases).expect("finds").matches.len());
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
