//! Tests: frames do not depend on who has classified the chunks, nor on the number of workers.

use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;

use super::*;
use crate::backup::choose::ChooseStage;
use crate::backup::matching::MatchWorker;
use crate::kernel::sieve::Sieve;
use crate::pipeline::{Pipeline, Sink, Source};
use crate::repo::container::FramesInFlight;
use crate::repo::index::{
    ChunkIndex, ContainerIndexes, ContainerListing, Locator, Resolver, SimilarityFiles, SimilarityIndex,
};
use crate::similar::{AnchorMatcher, Candidates, Chooser, WorkerBases, features};
use crate::store::{MemoryStore, Store};
use crate::types::Fingerprint;

const LEN: usize = 128 << 10;
/// Chunks of a batch.
const BATCH: usize = 4;

struct Chunks(Vec<Chunk>);

impl Source for Chunks {
    type Out = ChunkBatch;

    fn name(&self) -> &'static str {
        "chunks"
    }

    fn run(&mut self, emit: &mut Emit<ChunkBatch>) -> Result<()> {
        while !self.0.is_empty() {
            let items = self.0.drain(..self.0.len().min(BATCH)).map(ChunkItem::Chunk).collect();
            emit.emit(ChunkBatch { items, ..ChunkBatch::default() })?;
        }
        Ok(())
    }
}

/// Collects the packets.
struct Sent(Vec<Packet>);

impl Sink for Sent {
    type In = Packet;
    type Output = Vec<Packet>;

    fn name(&self) -> &'static str {
        "sent"
    }

    fn process(&mut self, packet: Packet) -> Result<()> {
        self.0.push(packet);
        Ok(())
    }

    fn finish(self) -> Result<Vec<Packet>> {
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

/// Runs Choose, Match and SubDedup over batches of chunks with these bytes, classified by Identify or not. `seed` keys
/// the anchors.
fn sent(chunks_bytes: &[Vec<u8>], seed: u64, is_identified: bool, workers: usize) -> Vec<Packet> {
    let config = Config::default();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let listing = Arc::new(ContainerListing::take(&store).expect("lists"));
    let directory = tempfile::tempdir().expect("makes a directory");
    let (path, repository) = (directory.path().into(), String::new());
    let files = SimilarityFiles { directory: path, repository, memory_bytes: 1 << 20, file_bytes: 1 << 20, key: None };
    let similarity = Arc::new(Mutex::new(SimilarityIndex::new(store.clone(), listing.clone(), files)));
    let locator = || Locator::new(listing.clone(), ContainerIndexes::new(store.clone(), 8, 1 << 20));
    let candidates = || Candidates::new(similarity.clone());
    let (in_flight, subdedup) = (Arc::new(FramesInFlight::default()), &config.subdedup);
    let container_indexes = ContainerIndexes::new(store.clone(), 8, 1 << 20);
    let chunks = ChunkIndex::new(store.clone(), listing.clone(), container_indexes, &config.index, None);
    let (resolver, chunks) = (Resolver::new(locator()), Arc::new(Mutex::new(chunks)));
    let bases = Bases::new(store.clone(), resolver, in_flight, chunks, subdedup, 8 << 20, candidates());
    let shared = Arc::new(SharedBases::new(64 << 20));
    let classifier = || ChunkClassifier::new(&config.identify, config.model.planes_zstd_level);
    let choose = ChooseStage {
        chooser: Chooser::new(shared.clone(), &bases, locator(), candidates(), subdedup, LEN as u64),
        classifier: classifier(),
        separates: false,
        makes_deltas: true,
        has_previous_version: false,
    };
    let (sieve, mut identify) = (Sieve::new(seed), classifier());
    let chunk = |bytes: &Vec<u8>| {
        let anchors = sieve.anchors(bytes);
        Chunk {
            is_borrowed: false,
            bytes: Bytes::copy_from_slice(bytes),
            len: bytes.len() as u32,
            fingerprint: Fingerprint(*blake3::hash(bytes).as_bytes()),
            is_new: true,
            class: is_identified.then(|| identify.classify(bytes)),
            search: CopySearch::Features(features(&anchors)),
            anchors: Some(anchors),
            slices: None,
            block: None,
        }
    };
    let chunks: Vec<Chunk> = chunks_bytes.iter().map(chunk).collect();
    let mut line = Pipeline::new(4, Arc::new(AtomicBool::new(false)));
    let link = line.source(Chunks(chunks));
    let link = line.stage(link, choose);
    let link = line.parallel(link, workers, || {
        let worker_bases = WorkerBases::new(shared.clone(), &bases, locator());
        MatchWorker { matcher: AnchorMatcher::new(worker_bases, subdedup, seed), classifier: classifier() }
    });
    let planner = DeltaPlanner::new(store.clone(), &config.model, true);
    let stage =
        SubDedupStage::new(Searcher::Match(shared), bases, planner, SliceSearch::new(1, 16), &config, LEN as u64);
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
    let text_of = |is_identified, workers| -> Vec<String> {
        sent(&chunks_bytes, 1, is_identified, workers).iter().map(|packet| format!("{packet:?}")).collect()
    };
    let known = text_of(true, 1);
    assert_eq!(known, text_of(false, 1));
    let of_kind = |kind: &str| known.iter().filter(|packet| packet.contains(&format!("kind: {kind}"))).count();
    assert_eq!((of_kind("Float"), of_kind("Incompressible"), of_kind("Solid")), (2, 1, 1));
}

/// Pages of 8 KiB as a database writes them: a header, a list of rows, a hole, and rows of one shape. In each later
/// version a few rows are other ones.
fn pages(version: u32) -> Vec<Vec<u8>> {
    let mut state = 1u32;
    let mut random = |below: u32| {
        state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        (state >> 8) % below
    };
    let mut page = |number: u32| {
        let mut page = vec![0; 8192];
        page[..4].copy_from_slice(&(number * 1000 + random(1000)).to_le_bytes());
        for row in 0..61u32 {
            let end = 8192 - 128 * row as usize;
            let is_changed = random(100) == 0;
            let transaction = if is_changed { 700 + version * 100 + random(90) } else { 700 };
            page[24 + 4 * row as usize..][..4].copy_from_slice(&(end as u32 - 128).to_le_bytes());
            page[end - 128..end - 124].copy_from_slice(&transaction.to_le_bytes());
            page[end - 112..end - 108].copy_from_slice(&(row << 16 | 0x0900).to_le_bytes());
            page[end - 104..end - 100].copy_from_slice(&(number * 61 + row).to_le_bytes());
            page[end - 96..end].fill(b' ');
        }
        page
    };
    let pages: Vec<Vec<u8>> = (0..12 * LEN as u32 / 8192).map(&mut page).collect();
    pages.chunks(LEN / 8192).map(|pages| pages.concat()).collect()
}

#[test]
fn copies_in_database_pages_pay_with_every_key() {
    let chunks_bytes: Vec<Vec<u8>> = (0..3).flat_map(pages).collect();
    let mut costs = Vec::new();
    for seed in 1..=12 {
        let (mut operations, mut stored) = (0, 0);
        for packet in sent(&chunks_bytes, seed, true, 2) {
            match packet {
                Packet::Entries(entries) => {
                    operations += entries.iter().map(|entry| entry.operations.list.operations.len()).sum::<usize>();
                }
                Packet::Frame(frame) => stored += zstd::bulk::compress(&frame.raw, 3).expect("compresses").len(),
                Packet::Items(_) => {}
            }
        }
        assert!(operations <= 40 * chunks_bytes.len(), "{seed}: {operations} operations");
        // An operation takes about three bytes of a container index.
        costs.push(stored + 3 * operations);
    }
    costs.sort_unstable();
    assert!(costs[11] <= costs[0] * 4 / 3, "{costs:?}");
}

#[test]
fn packets_do_not_depend_on_the_number_of_workers() {
    let chunks_bytes: Vec<Vec<u8>> = (0..5).flat_map(pages).collect();
    let text_of = |workers| -> Vec<String> {
        sent(&chunks_bytes, 3, false, workers).iter().map(|packet| format!("{packet:?}")).collect()
    };
    let one = text_of(1);
    assert!(one.iter().any(|packet| packet.contains("Copy")));
    for workers in [2, 3, 8, 8, 8] {
        assert!(one == text_of(workers), "{workers} workers");
    }
}

/// Lines of a log; `first` is the number of the first one.
fn lines(first: u64, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len + 100);
    for number in first.. {
        let size = number.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 40;
        bytes.extend_from_slice(format!("2026-01-01 {number:08} GET /page/{} 200 {size}\n", size % 977).as_bytes());
        if bytes.len() >= len {
            break;
        }
    }
    bytes.truncate(len);
    bytes
}

/// Whether each solid frame of these chunks is mostly new.
fn is_mostly_new(chunks_bytes: &[Vec<u8>]) -> Vec<bool> {
    let kind = |packet| match packet {
        Packet::Frame(PendingFrame { kind: FrameKind::Solid { is_mostly_new }, .. }) => Some(is_mostly_new),
        _ => None,
    };
    sent(chunks_bytes, 1, true, 2).into_iter().filter_map(kind).collect()
}

#[test]
fn frames_of_long_chunks_that_copy_little_are_mostly_new() {
    let long: Vec<Vec<u8>> = (0..5).map(|number| lines(number * 1_000_000, LEN)).collect();
    assert_eq!(is_mostly_new(&long), [true, true]);
    let short: Vec<Vec<u8>> = (20..29).map(|number| lines(number * 1_000_000, LEN / 2 - 2)).collect();
    assert_eq!(is_mostly_new(&short), [false, false]);
    // Half of the bytes decide.
    assert_eq!(is_mostly_new(&[&long[..2], &short[..4]].concat()), [true]);
    assert_eq!(is_mostly_new(&[&long[..1], &short[..4]].concat()), [false]);
    // Each frame counts for itself.
    assert_eq!(is_mostly_new(&[&long[..4], &short[..4]].concat()), [true, false]);
}

#[test]
fn frames_of_edited_chunks_are_not_mostly_new() {
    let old = noise(5);
    // Half of the bytes and one more are copied. Noise is a frame of its own, and the rest is ordinary.
    let edited: Vec<Vec<u8>> =
        (0..3).map(|number| [&old[..LEN / 2 + 4096], &lines(number * 1_000_000, LEN / 2 - 4096)].concat()).collect();
    assert_eq!(is_mostly_new(&[&[old][..], &edited].concat()), [false]);
}

/// Events of services in JSON, `count` of them: what is constant is long, and what varies is short.
fn events(seed: u64, count: u64) -> Vec<u8> {
    let event = |number: u64| {
        let noise = (seed * 1_000_000 + number).wrapping_mul(0xd6e8_feb8_6659_fd93);
        format!(
            "{{\"level\":\"INFO\",\"service\":\"code-service\",\"host\":\"node-{:02}.eu-1.example.internal\",\
             \"trace_id\":\"{noise:016x}\",\"message\":\"request completed\",\"http\":{{\"method\":\"GET\"}},\
             \"user_id\":{}}}\n",
            noise >> 60,
            noise >> 44
        )
    };
    (0..count).flat_map(|number| event(number).into_bytes()).collect()
}

/// The bytes that the entries of these chunks copy.
fn copied_bytes(chunks_bytes: &[Vec<u8>], seed: u64) -> u32 {
    let copied = |packet| match packet {
        Packet::Entries(entries) => entries.iter().map(|entry| entry.raw_len - entry.literal_len).sum(),
        _ => 0,
    };
    sent(chunks_bytes, seed, true, 2).into_iter().map(copied).sum()
}

#[test]
fn long_text_copies_versions_and_not_words() {
    let count = LEN as u64 * 2 / 3 / 170;
    let log: Vec<Vec<u8>> = (0..4).map(|number| events(number, count)).collect();
    let mut edited = log[0].clone();
    edited.splice(LEN / 3..LEN / 3 + 20, *b"another");
    for seed in 1..=4 {
        assert_eq!(copied_bytes(&log, seed), 0, "{seed}");
        let copied = copied_bytes(&[log[0].clone(), edited.clone()], seed) as usize;
        assert!(copied > edited.len() * 9 / 10, "{seed}: {copied} of {}", edited.len());
    }
}

#[test]
fn a_chunk_is_never_a_copy_of_itself() {
    // A chunk counts as new once more where its entry is in no segment, and is found by likeness all the same.
    let version = events(1, LEN as u64 * 2 / 3 / 170);
    for seed in 1..=4 {
        assert_eq!(copied_bytes(&[version.clone(), version.clone()], seed), 0, "{seed}");
    }
}
