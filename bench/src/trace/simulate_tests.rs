//! Tests of simulated backups: small streams with known results, and invariants of any streams and methods.

use proptest::prelude::*;

use super::*;
use crate::trace::plan::INDEXES;
use crate::trace::rewrite::REWRITERS;

/// Bytes of a chunk. A container has four.
const CHUNK: u32 = 256;

fn plan(more: &str) -> TraceBench {
    let text = format!("kind = \"trace\"\nstreams = [\"x\"]\ncontainer_bytes = 1024\nsample_rate = 4\n{more}");
    TraceBench::parse(&text, "x").unwrap()
}

/// One file of chunks. The number of a chunk is the first byte of its name, so multiples of four are hooks.
fn stream(chunks: &[u8]) -> Trace {
    let chunk = |number: u8| {
        let fingerprint = std::array::from_fn(|at| if at == 0 { number } else { 0 });
        Ok(TraceItem::Chunk(TraceChunk { fingerprint, bytes: CHUNK }))
    };
    let mut items = vec![Ok(TraceItem::FileStart { name: Vec::new() })];
    items.extend(chunks.iter().map(|number| chunk(*number)));
    items.extend([Ok(TraceItem::FileEnd), Ok(TraceItem::StreamEnd)]);
    Box::new(items.into_iter())
}

/// Stores a stream. Returns the result without its time, and the containers of its chunks.
fn store(simulation: &mut Simulation<'_>, chunks: &[u8]) -> (StoredStream, Vec<u32>) {
    let (stored, recipe) = simulation.store(stream(chunks), true, &AtomicBool::new(false)).unwrap();
    assert!(recipe.iter().all(|chunk| chunk.bytes == CHUNK));
    (StoredStream { seconds: 0.0, ..stored }, recipe.iter().map(|chunk| chunk.container).collect())
}

fn bytes(chunks: u64) -> u64 {
    chunks * u64::from(CHUNK)
}

#[test]
fn an_exact_index_without_rewriting() {
    let plan = plan("");
    let mut simulation = Simulation::new(&plan, "exact", "none");
    let (first, recipe) = store(&mut simulation, &[0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(recipe, [0, 0, 0, 0, 1, 1, 1, 1]);
    let expected = StoredStream {
        files: 1,
        chunks: 8,
        bytes: bytes(8),
        new_bytes: bytes(8),
        accumulated_bytes: bytes(8),
        index: IndexCounts { lookups: 8, cache_hits: 0, updates: 8 },
        index_bytes: 8 * 28,
        usage: Usage { containers: 2, sparse: 0, inherited: 0 },
        ..StoredStream::default()
    };
    assert_eq!(first, expected);
    // The look-up of 0 loads 1; 9 is new; 5 is looked up; the second 9 is in the open container.
    let (second, recipe) = store(&mut simulation, &[0, 1, 9, 5, 9]);
    assert_eq!(recipe, [0, 0, 2, 1, 2]);
    let expected = StoredStream {
        files: 1,
        chunks: 5,
        bytes: bytes(5),
        new_bytes: bytes(1),
        accumulated_bytes: bytes(9),
        index: IndexCounts { lookups: 3, cache_hits: 2, updates: 1 },
        index_bytes: 9 * 28,
        usage: Usage { containers: 3, sparse: 2, inherited: 0 },
        ..StoredStream::default()
    };
    assert_eq!(second, expected);
}

#[test]
fn a_sampled_index_misses_chunks_that_no_hook_loaded() {
    let plan = plan("fingerprint_cache_containers = 1\n");
    let mut simulation = Simulation::new(&plan, "sampled", "none");
    let (first, _) = store(&mut simulation, &[0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!((first.index, first.index_bytes), (IndexCounts { lookups: 2, cache_hits: 0, updates: 2 }, 2 * 28));
    // 1 is missed before 0 loads it, 5 before 4; then 2 is missed because 4 evicted its container.
    let (second, recipe) = store(&mut simulation, &[1, 0, 2, 5, 4, 6, 2]);
    assert_eq!(recipe, [2, 0, 0, 2, 1, 1, 2]);
    assert_eq!((second.missed_chunks, second.missed_bytes, second.new_bytes), (3, bytes(3), bytes(3)));
    assert_eq!(second.index, IndexCounts { lookups: 2, cache_hits: 2, updates: 0 });
    assert_eq!(second.accumulated_bytes, bytes(11));
}

#[test]
fn har_moves_chunks_of_sparse_containers_to_new_ones_once() {
    let plan = plan("[har]\nlimit = 1.0\n");
    let mut simulation = Simulation::new(&plan, "exact", "har");
    store(&mut simulation, &[0, 1, 2, 3, 4, 5, 6, 7]);
    let (second, recipe) = store(&mut simulation, &[0, 1, 9, 5]);
    assert_eq!((recipe, second.rewritten_bytes), (vec![0, 0, 2, 1], 0));
    assert_eq!(second.usage, Usage { containers: 3, sparse: 2, inherited: 0 });
    // Containers 1 and 2 were sparse: their chunks move to 3, each once.
    let (third, recipe) = store(&mut simulation, &[0, 1, 9, 5, 5]);
    assert_eq!((recipe, third.rewritten_bytes), (vec![0, 0, 3, 3, 3], bytes(2)));
    assert_eq!(third.usage, Usage { containers: 2, sparse: 0, inherited: 2 });
    let (fourth, recipe) = store(&mut simulation, &[0, 1, 9, 5]);
    assert_eq!((recipe, fourth.rewritten_bytes), (vec![0, 0, 3, 3], 0));
    assert_eq!(fourth.accumulated_bytes, bytes(11));
}

#[test]
fn capping_rewrites_a_repeated_chunk_of_a_segment_once() {
    let plan = plan("[capping]\nlevel = 1\nsegment_bytes = 2048\n");
    let mut simulation = Simulation::new(&plan, "exact", "capping");
    let (first, recipe) = store(&mut simulation, &[0, 1, 0, 2, 3, 4, 5, 6]);
    assert_eq!((recipe, first.new_bytes), (vec![0, 0, 0, 0, 0, 1, 1, 1], bytes(7)));
    // Container 0 has two chunks of the segment, container 1 has one, which is stored again once.
    let (second, recipe) = store(&mut simulation, &[4, 0, 9, 1, 4, 9]);
    assert_eq!((recipe, second.rewritten_bytes, second.new_bytes), (vec![2, 0, 2, 0, 2, 2], bytes(1), bytes(1)));
}

#[test]
fn an_empty_stream_stores_nothing_and_a_stop_interrupts() {
    let plan = plan("");
    let mut simulation = Simulation::new(&plan, "exact", "cbr");
    assert_eq!(store(&mut simulation, &[]), (StoredStream { files: 1, ..StoredStream::default() }, Vec::new()));
    let stopped = simulation.store(stream(&[1]), false, &AtomicBool::new(true));
    assert!(matches!(stopped, Err(Error::Interrupted)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_recipe_refers_to_containers_that_have_its_chunks(
        streams in prop::collection::vec(prop::collection::vec(0u8..60, 0..120), 1..5),
        cache in 1usize..4,
    ) {
        let plan = plan(&format!(
            "fingerprint_cache_containers = {cache}\n[capping]\nlevel = 1\nsegment_bytes = 2560\n\
            [cbr]\nlimit = 0.2\nstream_context_bytes = 2048\n[cfl]\nusage = 0.5\n[har]\nlimit = 0.3\n"
        ));
        for index in INDEXES {
            for rewrite in REWRITERS {
                let mut simulation = Simulation::new(&plan, index, rewrite);
                let mut total = 0;
                for chunks in &streams {
                    let (stored, recipe) = store(&mut simulation, chunks);
                    total += stored.new_bytes + stored.rewritten_bytes;
                    prop_assert_eq!(stored.accumulated_bytes, total);
                    prop_assert_eq!(recipe.len(), chunks.len());
                    for (chunk, container) in chunks.iter().zip(&recipe) {
                        let name = std::array::from_fn(|at| if at == 0 { *chunk } else { 0 });
                        let number = simulation.containers.number(&name).unwrap();
                        let holds = simulation.containers.copies(number).any(|copy| copy == *container);
                        prop_assert!(holds, "{} {}: chunk {} in {}", index, rewrite, chunk, container);
                    }
                    let distinct = recipe.iter().collect::<HashSet<_>>().len() as u64;
                    prop_assert_eq!(stored.usage.containers, distinct);
                    prop_assert!(*index == "sampled" || stored.missed_chunks == 0);
                    prop_assert!(*rewrite != "none" || stored.rewritten_bytes == 0);
                    prop_assert!(*rewrite != "cbr" || stored.rewritten_bytes as f64 <= 0.2 * stored.bytes as f64);
                    prop_assert!(simulation.in_flight.is_empty());
                }
                let all = simulation.containers.bytes(0);
                prop_assert!(all <= simulation.containers.bytes_target());
            }
        }
    }
}
