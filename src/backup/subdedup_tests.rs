//! Tests: frames do not depend on whether Identify has classified the chunks.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use super::*;
use crate::kernel::sieve::Sieve;
use crate::pipeline::{Pipeline, Sink, Source};
use crate::repo::container::FramesInFlight;
use crate::repo::index::{ContainerIndexes, ContainerListing, Locator, Resolver, SimilarityFiles, SimilarityIndex};
use crate::similar::{Candidates, strategy};
use crate::store::{MemoryStore, Store};
use crate::types::Fingerprint;

const LEN: usize = 128 << 10;

struct Chunks(Vec<Chunk>);

impl Source for Chunks {
    type Out = ChunkBatch;

    fn name(&self) -> &'static str {
        "chunks"
    }

    fn run(&mut self, emit: &mut Emit<ChunkBatch>) -> Result<()> {
        let items = self.0.drain(..).map(ChunkItem::Chunk).collect();
        emit.emit(ChunkBatch { items, bytes: 0 })
    }
}

/// Collects the packets as text.
struct Sent(Vec<String>);

impl Sink for Sent {
    type In = Packet;
    type Output = Vec<String>;

    fn name(&self) -> &'static str {
        "sent"
    }

    fn process(&mut self, packet: Packet) -> Result<()> {
        self.0.push(format!("{packet:?}"));
        Ok(())
    }

    fn finish(self) -> Result<Vec<String>> {
        Ok(self.0)
    }
}

/// Random bytes; xorshift.
fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..LEN).map(|_| next()).collect()
}

/// BF16 values of similar size.
fn floats(seed: u64) -> Vec<u8> {
    let mut bytes = noise(seed);
    bytes.iter_mut().skip(1).step_by(2).for_each(|byte| *byte = 0x3c | *byte & 0x81);
    bytes
}

/// Runs the stage over chunks with these bytes, classified by Identify or not.
fn sent(chunks_bytes: &[Vec<u8>], is_identified: bool) -> Vec<String> {
    let config = Config::default();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let listing = Arc::new(ContainerListing::take(&store).expect("lists"));
    let directory = tempfile::tempdir().expect("makes a directory");
    let (path, repository) = (directory.path().into(), String::new());
    let files = SimilarityFiles { directory: path, repository, memory_bytes: 1 << 20, file_bytes: 1 << 20 };
    let similarity = SimilarityIndex::new(store.clone(), listing.clone(), files);
    let resolver = Resolver::new(Locator::new(listing, ContainerIndexes::new(store.clone(), 8, 1 << 20)));
    let candidates = Candidates::new(Arc::new(Mutex::new(similarity)));
    let bases = Bases::new(store.clone(), resolver, Arc::new(FramesInFlight::default()), &config.subdedup, candidates);
    let models = DeltaPlanner::new(store, &config.model);
    let stage = SubDedupStage::new(strategy(&config.subdedup, 1, 1), bases, models, &config, LEN as u64);
    let mut classifier = ChunkClassifier::new(&config.identify, config.model.planes_zstd_level);
    let chunk = |(number, bytes): (u8, &Vec<u8>)| Chunk {
        bytes: Bytes::copy_from_slice(bytes),
        len: bytes.len() as u32,
        fingerprint: Fingerprint([number; 32]),
        is_new: true,
        class: is_identified.then(|| classifier.classify(bytes)),
        anchors: Some(Sieve::new(1).anchors(bytes)),
        block: None,
    };
    let chunks = (0..).zip(chunks_bytes).map(chunk).collect();
    let mut line = Pipeline::new(4, Arc::new(AtomicBool::new(false)));
    let link = line.source(Chunks(chunks));
    let link = line.stage(link, stage);
    line.run(link, Sent(Vec::new())).expect("runs").0
}

#[test]
fn frames_do_not_depend_on_who_classifies_a_chunk() {
    let (media, weights) = (noise(5), floats(7));
    // Two chunks that are copied for the most part and for the lesser part.
    let (mut most, mut some) = (media.clone(), weights.clone());
    most[LEN * 3 / 4..].copy_from_slice(&weights[LEN * 3 / 4..]);
    some[LEN / 3..].copy_from_slice(&floats(9)[LEN / 3..]);
    let text = include_bytes!("subdedup.rs").to_vec();
    let chunks_bytes = [media, weights, text, most, some];
    let (known, found) = (sent(&chunks_bytes, true), sent(&chunks_bytes, false));
    assert_eq!(known, found);
    let of_kind = |kind: &str| known.iter().filter(|packet| packet.contains(&format!("kind: {kind}"))).count();
    assert_eq!((of_kind("Float"), of_kind("Incompressible"), of_kind("Solid")), (2, 1, 1));
}
