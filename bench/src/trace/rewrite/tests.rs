//! Tests of rewriting methods on small layouts with known results.

use bytesize::ByteSize;
use proptest::prelude::*;

use super::*;
use crate::trace::plan::{CappingPlan, CbrPlan, CflPlan, HarPlan};

/// Bytes of a chunk.
const CHUNK: u32 = 10;
/// Bytes of a container of ten chunks.
const CONTAINER: u64 = 100;

fn plan() -> TraceBench {
    TraceBench::parse("kind = \"trace\"\nstreams = [\"x\"]\ncontainer_bytes = 1024\n", "x").unwrap()
}

/// Container 0 has chunks 0-9, container 1 has 10-19, and so on. All containers are closed.
fn stored(containers: u32) -> SimulatedContainers {
    let mut stored = SimulatedContainers::new(CONTAINER);
    for chunk in 0..containers * 10 {
        let mut name = [0; 20];
        name[..4].copy_from_slice(&chunk.to_le_bytes());
        let number = stored.number(&name).unwrap();
        assert_eq!((number, stored.store(number, CHUNK).unwrap()), (chunk, chunk / 10));
    }
    stored.close();
    stored
}

fn found(chunk: u32) -> Located {
    Located { chunk, fingerprint: [0; 20], bytes: CHUNK, found: Found::In(chunk / 10) }
}

fn new(chunk: u32) -> Located {
    Located { chunk, fingerprint: [0; 20], bytes: CHUNK, found: Found::Nowhere }
}

/// The rewritten chunks, in order.
fn rewritten(rewriter: &mut dyn Rewriter, chunks: &[Located], inherited: &[u32]) -> Vec<u32> {
    let again = decisions(rewriter, chunks, inherited);
    chunks.iter().zip(again).filter(|(_, again)| *again).map(|(chunk, _)| chunk.chunk).collect()
}

/// Whether each chunk is rewritten. Asserts that all are returned in order. New copies go to container 1000.
fn decisions(rewriter: &mut dyn Rewriter, chunks: &[Located], inherited: &[u32]) -> Vec<bool> {
    let (containers, inherited) = (stored(9), inherited.iter().copied().collect());
    let context = RewriteContext { containers: &containers, inherited: &inherited };
    let (mut decided, mut all) = (Vec::new(), Vec::new());
    let mut take = |rewriter: &mut dyn Rewriter, decided: &mut Vec<Decided>| {
        for one in decided.drain(..) {
            let container = match one.chunk.found {
                Found::In(container) if !one.rewrite => container,
                _ => 1000,
            };
            rewriter.placed(container, one.chunk.bytes);
            all.push(one);
        }
    };
    for chunk in chunks {
        rewriter.push(*chunk, &context, &mut decided);
        take(rewriter, &mut decided);
    }
    rewriter.finish(&context, &mut decided);
    take(rewriter, &mut decided);
    assert_eq!(all.iter().map(|one| one.chunk).collect::<Vec<_>>(), chunks);
    all.iter().map(|one| one.rewrite).collect()
}

fn chunks(numbers: &[u32]) -> Vec<Located> {
    numbers.iter().map(|number| found(*number)).collect()
}

#[test]
fn nothing_is_rewritten_without_a_method() {
    assert_eq!(rewritten(rewriter("none", &plan()).as_mut(), &chunks(&[1, 11, 21, 1]), &[0]), [0; 0]);
}

#[test]
fn capping_keeps_the_containers_with_most_bytes_of_each_segment() {
    let plan = CappingPlan { level: 2, segment_bytes: ByteSize(70) };
    let first = [0, 11, 1, 20, 2, 30, 11, 31, 21, 11];
    let capped = rewritten(&mut capping::Capping::new(&plan), &chunks(&first[..7]), &[]);
    // Container 0 has three chunks; 1, 2 and 3 have one distinct chunk each, and the newest of them stays.
    assert_eq!(capped, [11, 20, 11]);
    // With three more chunks, 2 and 3 have two each, and 1 still has one.
    let larger = CappingPlan { level: 2, segment_bytes: ByteSize(100) };
    assert_eq!(rewritten(&mut capping::Capping::new(&larger), &chunks(&first), &[]), [11, 20, 11, 21, 11]);
    // Segments are independent, and the last one can be short. New chunks are not duplicates.
    let plan = CappingPlan { level: 1, segment_bytes: ByteSize(30) };
    let stream = [found(0), found(1), found(10), found(20), new(900), found(21), found(30), found(40)];
    assert_eq!(rewritten(&mut capping::Capping::new(&plan), &stream, &[]), [10, 30]);
    let none = CappingPlan { level: 0, segment_bytes: ByteSize(30) };
    assert_eq!(rewritten(&mut capping::Capping::new(&none), &stream, &[]), [0, 1, 10, 20, 21, 30, 40]);
}

#[test]
fn context_based_rewriting_rewrites_single_chunks_and_keeps_shared_containers() {
    let plan = |limit, minimal_utility| CbrPlan { limit, minimal_utility, stream_context_bytes: ByteSize(50) };
    // Container 0 has one chunk in the window: utility 0.9. Container 1 has six: utility 0.4.
    let stream = chunks(&[0, 10, 11, 12, 13, 14, 15, 20]);
    assert_eq!(rewritten(&mut cbr::Cbr::new(&plan(1.0, 0.7)), &stream, &[]), [0, 20]);
    // With a minimum of 0.4, container 1 is rewritten, too, and each rewritten chunk raises the next utility.
    let all = [0, 10, 11, 12, 13, 14, 15, 20];
    assert_eq!(rewritten(&mut cbr::Cbr::new(&plan(1.0, 0.4)), &stream, &[]), all);
    // Each window has three chunks of a container, fewer at the end. If 10 stays, so do 11 and 12. 13 came later and is
    // evaluated with 14 and 15.
    let long = chunks(&[10, 11, 12, 0, 1, 2, 13, 14, 15]);
    assert_eq!(rewritten(&mut cbr::Cbr::new(&plan(1.0, 0.65)), &long, &[]), [10, 11, 12, 0, 1, 2, 13, 14, 15]);
    assert_eq!(rewritten(&mut cbr::Cbr::new(&plan(1.0, 0.75)), &long, &[]), [0; 0]);
    // Rewriting 10 bytes at a limit of 0.05 needs 200 bytes of the stream.
    let mut stream: Vec<Located> = (0..19).map(|number| new(900 + number)).collect();
    stream.extend(chunks(&[0, 10, 20]));
    assert_eq!(rewritten(&mut cbr::Cbr::new(&plan(0.05, 0.7)), &stream, &[]), [0]);
    stream.remove(0);
    assert_eq!(rewritten(&mut cbr::Cbr::new(&plan(0.05, 0.7)), &stream, &[]), [10]);
}

#[test]
fn context_based_rewriting_rewrites_the_highest_utilities() {
    // The limit is a quarter. After five duplicates of utility 0.9, one of 0.8 is not in the highest quarter.
    let plan = CbrPlan { limit: 0.25, minimal_utility: 0.5, stream_context_bytes: ByteSize(20) };
    let mut stream: Vec<Located> = (0..40).map(|number| new(900 + number)).collect();
    for (at, number) in [0, 10, 20, 30, 40].into_iter().enumerate() {
        stream.extend([found(number), new(990 + 3 * at as u32), new(991 + 3 * at as u32)]);
    }
    stream.extend([found(50), found(51)]);
    let found = rewritten(&mut cbr::Cbr::new(&plan), &stream, &[]);
    assert_eq!(found, [0, 10, 20, 30, 40]);
}

#[test]
fn the_fragmentation_level_decides_when_short_runs_are_rewritten() {
    let plan = CflPlan { threshold: 0.6, usage: 0.2, cache_containers: 1 };
    let cfl = |stream: &[u32]| rewritten(&mut cfl::Cfl::new(&plan, CONTAINER), &chunks(stream), &[]);
    // The optimum of a stream shorter than a container is one read. After two reads the level is 1/2, after three 1/3.
    assert_eq!(cfl(&[0, 10, 20, 30]), [20, 30]);
    // Runs of two chunks are a fifth of a container and stay at any level.
    assert_eq!(cfl(&[0, 10, 20, 21, 30, 31, 40]), [40]);
    // A stream in its own order has level 1.
    assert_eq!(cfl(&(0..40).collect::<Vec<_>>()), [0; 0]);
    // With a cache of two containers, each is read once, and the level stays at 1/2.
    let cached = CflPlan { cache_containers: 2, threshold: 0.5, ..plan };
    let stream = chunks(&[0, 10, 1, 11, 2, 12, 3, 13]);
    assert_eq!(rewritten(&mut cfl::Cfl::new(&cached, CONTAINER), &stream, &[]), [0; 0]);
}

#[test]
fn har_rewrites_only_chunks_of_inherited_containers() {
    let stream = [found(0), new(900), found(10), found(11), found(20)];
    assert_eq!(rewritten(&mut har::Har, &stream, &[1, 7]), [10, 11]);
    assert_eq!(rewritten(&mut har::Har, &stream, &[]), [0; 0]);
}

#[test]
fn sparse_containers_are_inherited_least_used_first_within_the_limit() {
    let history = |limit| {
        let mut history = History::new(&HarPlan { utilisation: 0.5, limit });
        // Used bytes of 100: all of container 0, 40 of 1, 20 of 2 (one chunk twice), 50 of 3.
        let uses = (0..10).map(|chunk| (0, chunk)).chain((10..14).map(|chunk| (1, chunk)));
        let uses = uses.chain([(2, 20), (2, 21), (2, 20)]).chain((30..35).map(|chunk| (3, chunk)));
        uses.for_each(|(container, chunk)| history.refer(container, chunk, CHUNK));
        (history.end_stream(CONTAINER), history)
    };
    let sorted = |history: &History| {
        let mut inherited: Vec<u32> = history.inherited().iter().copied().collect();
        inherited.sort_unstable();
        inherited
    };
    let (usage, mut history_all) = history(1.0);
    assert_eq!(usage, Usage { containers: 4, sparse: 2, inherited: 0 });
    assert_eq!(sorted(&history_all), [1, 2]);
    // Of 220 bytes, a tenth admits only container 2, and a hundredth admits none.
    assert_eq!(sorted(&history(0.1).1), [2]);
    assert_eq!(sorted(&history(0.01).1), [0; 0]);
    assert_eq!(history_all.end_stream(CONTAINER), Usage { containers: 0, sparse: 0, inherited: 2 });
    assert_eq!(sorted(&history_all), [0; 0]);
}

proptest! {
    #[test]
    fn every_method_returns_all_chunks_in_order(
        numbers in prop::collection::vec((0u32..90, any::<bool>()), 0..200),
        limit in 0.0f64..0.3,
    ) {
        let mut plan = plan();
        (plan.capping.segment_bytes, plan.capping.level) = (ByteSize(150), 2);
        (plan.cbr.stream_context_bytes, plan.cbr.limit) = (ByteSize(80), limit);
        let stream: Vec<Located> =
            numbers.iter().map(|(number, is_new)| if *is_new { new(900 + number) } else { found(*number) }).collect();
        for name in REWRITERS {
            let again = rewritten(rewriter(name, &plan).as_mut(), &stream, &[1, 2]);
            if *name == "cbr" {
                prop_assert!(again.len() as f64 <= limit * stream.len() as f64);
            }
            if *name == "har" {
                prop_assert!(again.iter().all(|chunk| (10..30).contains(chunk)));
            }
        }
    }

    #[test]
    fn capping_bounds_the_old_containers_of_every_segment(
        numbers in prop::collection::vec(0u32..90, 0..200),
        level in 0usize..5,
    ) {
        let stream = chunks(&numbers);
        let plan = CappingPlan { level, segment_bytes: ByteSize(100) };
        let again = decisions(&mut capping::Capping::new(&plan), &stream, &[]);
        for (segment, again) in numbers.chunks(10).zip(again.chunks(10)) {
            let staying = segment.iter().zip(again).filter(|(_, again)| !**again);
            let containers: HashSet<u32> = staying.map(|(number, _)| number / 10).collect();
            prop_assert!(containers.len() <= level);
        }
    }
}
