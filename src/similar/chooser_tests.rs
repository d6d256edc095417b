//! Which entries are chosen: by shared features, by what was chosen or stored lately, and within the budget of reads.

use parking_lot::Mutex;

use super::*;
use crate::config::IndexConfig;
use crate::repo::container::FramesInFlight;
use crate::repo::index::{ChunkIndex, ContainerIndexes, ContainerListing, Resolver, SimilarityFiles, SimilarityIndex};
use crate::store::{MemoryStore, Store};

/// Chunks of this many bytes. Their content does not matter here.
const LEN: usize = 1 << 10;

fn chooser(reads_per_mib: u32, regions: u64) -> (Chooser, Arc<SharedBases>) {
    let config = SubdedupConfig {
        base_reads_per_mib: reads_per_mib,
        base_cache_bytes: bytesize::ByteSize((regions * LEN as u64) << (REGION_POWER - 1)),
        ..SubdedupConfig::default()
    };
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let listing = Arc::new(ContainerListing::take(&store).expect("lists"));
    let files = SimilarityFiles {
        directory: "/nonexistent".into(),
        repository: String::new(),
        memory_bytes: 1 << 20,
        file_bytes: 1 << 20,
        key: None,
    };
    let index = Arc::new(Mutex::new(SimilarityIndex::new(store.clone(), listing.clone(), files)));
    let locator = || Locator::new(listing.clone(), ContainerIndexes::new(store.clone(), 8, 1 << 20));
    let candidates = || Candidates::new(index.clone());
    let in_flight = Arc::new(FramesInFlight::default());
    let container_indexes = ContainerIndexes::new(store.clone(), 8, 1 << 20);
    let chunks = ChunkIndex::new(store.clone(), listing.clone(), container_indexes, &IndexConfig::default(), None);
    let (resolver, chunks) = (Resolver::new(locator()), Arc::new(Mutex::new(chunks)));
    let bases = Bases::new(store.clone(), resolver, in_flight, chunks, &config, 8 << 20, candidates());
    let shared = Arc::new(SharedBases::new(8 << 20));
    (Chooser::new(shared.clone(), &bases, locator(), candidates(), &config, LEN as u64), shared)
}

/// Features of a chunk like no other.
fn unlike(number: u64) -> Vec<u64> {
    (0..FEATURES as u64).map(|at| ((number * 100 + at + 1) * 0x9e37_79b9) & super::super::HASH_MASK).collect()
}

/// `count` features of `of`, the others like no other chunk's.
fn sharing(of: &[u64], count: usize, number: u64) -> Vec<u64> {
    of.iter().copied().take(count).chain(unlike(number)).take(FEATURES).collect()
}

fn session(number: u64) -> EntryNumber {
    EntryNumber::session(SessionEntryNumber(number))
}

fn choose(chooser: &mut Chooser, features: &[u64], is_base: bool) -> Vec<EntryNumber> {
    let chunk = Arc::new(BaseChunk::new(vec![0; LEN].into(), None));
    chooser.choose(features, &chunk, is_base).expect("chooses")
}

#[test]
fn each_chosen_entry_adds_features_and_followers_come_last() {
    let (mut chooser, _) = chooser(16, 64);
    let all = unlike(0);
    assert_eq!(choose(&mut chooser, &all, true), []);
    // Two versions of the first chunk, the second one nearer. Both end with features of their own.
    choose(&mut chooser, &sharing(&all, 4, 1), true);
    choose(&mut chooser, &sharing(&all, 6, 2), true);
    assert_eq!(choose(&mut chooser, &all, true), [session(0)], "it has all features");
    // The newer of two equal ones, and nothing that adds no feature.
    assert_eq!(choose(&mut chooser, &all, true)[0], session(3));
    // A chunk without known features follows the bases of the last one.
    assert_eq!(choose(&mut chooser, &unlike(9), true), [session(4)]);
}

#[test]
fn an_entry_that_may_become_a_delta_is_no_base() {
    let (mut chooser, _) = chooser(16, 64);
    choose(&mut chooser, &unlike(0), true);
    choose(&mut chooser, &unlike(1), false);
    chooser.skip(LEN as u32);
    choose(&mut chooser, &unlike(3), true);
    assert_eq!(choose(&mut chooser, &unlike(1), true), []);
    // Entry 1 follows entry 0, but nothing may be copied from it.
    assert_eq!(choose(&mut chooser, &sharing(&unlike(0), 7, 5), true), [session(0)]);
    assert_eq!(choose(&mut chooser, &unlike(6), true), []);
}

#[test]
fn old_entries_need_three_features_and_a_read() {
    // Room for 8 regions, of which 2 are fresh; reads for 8 MiB of new bytes at first.
    let (mut chooser, _) = chooser(1, 8);
    for number in 0..1000 {
        choose(&mut chooser, &unlike(number), true);
    }
    assert_eq!(choose(&mut chooser, &sharing(&unlike(999), 1, 2000), true), [session(999)], "a fresh one");
    assert_eq!(choose(&mut chooser, &sharing(&unlike(3), 2, 2001), true)[..], [session(1000)], "only a follower");
    // Each of these takes a read, until none is left.
    let mut read = 0;
    for number in 0..60 {
        let old = session(number * 16);
        let chosen = choose(&mut chooser, &sharing(&unlike(number * 16), 3, 3000 + number), true);
        read += usize::from(chosen.contains(&old));
    }
    assert!((8..=10).contains(&read), "{read}");
}

#[test]
fn a_pinned_chunk_is_found_until_it_is_released_and_evicted() {
    let (mut chooser, shared) = chooser(16, 64);
    let chunk = |byte: u8, len: usize| Arc::new(BaseChunk::new(vec![byte; len].into(), None));
    for number in 0..20 {
        chooser.choose(&unlike(u64::from(number)), &chunk(number, 1 << 20), true).expect("chooses");
    }
    let is_known = |number: u64| shared.find(session(number)).is_some();
    assert!((0..20).all(is_known), "pinned chunks have no limit but the groups of SubDedup");
    shared.release(SessionEntryNumber(0), SessionEntryNumber(19));
    let known: Vec<u64> = (0..20).filter(|number| is_known(*number)).collect();
    assert!(known.len() <= 8 && known.contains(&19) && known.contains(&18), "{known:?}");
    let found = shared.find(session(18)).expect("is cached");
    assert_eq!(found.bytes(), vec![18; 1 << 20]);
}
