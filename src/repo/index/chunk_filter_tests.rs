//! When the filter is filled and loaded, and damaged filter files.

use super::*;
use crate::repo::index::{NewSegment, merge_segments, write_segment};
use crate::store::{CountingStore, MemoryStore, Store};

const RECORDS: u64 = 140_000;
const CONTAINER_RECORDS: u64 = 700;

fn print(n: u64) -> Fingerprint {
    Fingerprint(*blake3::hash(&n.to_le_bytes()).as_bytes())
}

fn container(n: u64) -> ContainerId {
    ContainerId(print(n + (1 << 40)).0)
}

/// Writes a segment of the chunks in `numbers`, whose containers nothing else has.
fn put(store: &dyn Store, numbers: std::ops::Range<u64>) {
    let first = numbers.start / CONTAINER_RECORDS;
    let containers: Vec<_> = (first..=(numbers.end - 1) / CONTAINER_RECORDS).map(container).collect();
    let record = |n: u64| IndexRecord {
        fingerprint: print(n),
        container: (n / CONTAINER_RECORDS - first) as u32,
        entry: (n % CONTAINER_RECORDS) as u32,
    };
    write_segment(store, NewSegment::padded([7; 16]), &containers, &[], numbers.map(record).collect()).unwrap();
}

struct Fixture {
    counting: Arc<CountingStore<MemoryStore>>,
    store: Arc<dyn Store>,
    cache: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        let counting = Arc::new(CountingStore::new(MemoryStore::new()));
        let store: Arc<dyn Store> = counting.clone();
        put(store.as_ref(), 0..RECORDS);
        Fixture { counting, store, cache: tempfile::tempdir().unwrap() }
    }

    fn file(&self) -> PathBuf {
        self.cache.path().join(FILTER_FILE)
    }

    /// A filter after it is ready, with the number of misses and of reads until then.
    fn ready(&self, bytes_max: u64) -> (ChunkFilter, u64, u64) {
        let listing = ContainerListing::take(&self.store).unwrap();
        let mut filter = ChunkFilter::new(Some(self.cache.path()), bytes_max);
        let read = self.counting.counts().ranges;
        let indexed = IndexedChunks { listing: &listing, written: &[], log_containers: &[], log: &[] };
        while filter.may_hold(&print(0)).is_none() {
            filter.count_miss(&indexed).unwrap();
            assert!(filter.misses <= RECORDS, "never ready");
        }
        (filter, listing.segments().iter().map(|it| it.records()).sum(), self.counting.counts().ranges - read)
    }
}

fn assert_complete(filter: &ChunkFilter, records: u64, what: &str) {
    let lost = (0..records).find(|n| filter.may_hold(&print(*n)) != Some(true));
    assert_eq!(lost, None, "{what}");
}

#[test]
fn a_stored_filter_is_loaded_after_few_misses_and_segments_are_read_only_for_new_containers() {
    let fixture = Fixture::new();
    let (mut filter, records, reads) = fixture.ready(1 << 20);
    assert!(filter.misses >= records / RECORDS_PER_MISS && reads > 10, "{} misses, {reads} reads", filter.misses);
    assert_complete(&filter, records, "filled");
    filter.save();
    assert!(fixture.file().exists());

    let (filter, _, reads) = fixture.ready(1 << 20);
    assert!(filter.misses < 10 && reads == 0, "{} misses, {reads} reads", filter.misses);
    assert_complete(&filter, RECORDS, "loaded");

    // New containers are read, also after their segments were merged with known ones.
    for number in 0..4 {
        put(fixture.store.as_ref(), RECORDS + 35_000 * number..RECORDS + 35_000 * (number + 1));
    }
    let all = 2 * RECORDS;
    let (mut filter, _, _) = fixture.ready(1 << 20);
    assert_complete(&filter, all, "with new segments");
    filter.save();
    let listing = ContainerListing::take(&fixture.store).unwrap();
    assert!(merge_segments(&listing, fixture.cache.path(), &false.into()).unwrap() > 0);
    let (filter, _, reads) = fixture.ready(1 << 20);
    assert!(filter.misses < 20 && reads == 0, "{} misses, {reads} reads of merged segments", filter.misses);
    assert_complete(&filter, all, "merged");
    let passing = (0..10_000).filter(|n| filter.may_hold(&print(u64::MAX - n)) == Some(true)).count();
    assert!(passing < 400, "{passing} of 10000 absent chunks pass");
}

#[test]
fn a_damaged_filter_file_is_replaced_and_loses_no_chunk() {
    let fixture = Fixture::new();
    let (mut filter, ..) = fixture.ready(1 << 20);
    filter.save();
    let whole = std::fs::read(fixture.file()).unwrap();
    let mut damaged: Vec<(String, Vec<u8>)> = Vec::new();
    for len in [0, 1, 8, 16, 31, 32, 100, whole.len() / 2, whole.len() - 1] {
        damaged.push((format!("cut to {len}"), whole[..len].to_vec()));
    }
    for at in (0..40).chain((40..whole.len()).step_by(whole.len() / 20)).chain([whole.len() - 1]) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        damaged.push((format!("byte {at} flipped"), bytes));
    }
    damaged.push(("garbage".into(), whole.iter().map(|byte| byte.wrapping_mul(77) ^ 0x5a).collect()));
    damaged.push(("longer".into(), [whole.as_slice(), b"more"].concat()));
    for (what, bytes) in damaged {
        std::fs::write(fixture.file(), bytes).unwrap();
        let (mut filter, _, reads) = fixture.ready(1 << 20);
        assert!(reads > 10, "{what}: the segments are read");
        assert_complete(&filter, RECORDS, &what);
        filter.save();
        assert!(fixture.ready(1 << 20).2 == 0, "{what}: the file is whole again");
    }
}

#[test]
fn a_filter_file_beyond_the_configured_memory_is_not_loaded() {
    let fixture = Fixture::new();
    let (mut filter, ..) = fixture.ready(1 << 20);
    filter.save();
    let (filter, _, reads) = fixture.ready(16 << 10);
    assert!(reads > 10);
    assert_complete(&filter, RECORDS, "smaller");
    let FilterState::Ready(filled) = &filter.state else { panic!("not ready") };
    assert!(filled.filter.memory_bytes() <= 16 << 10);
}

#[test]
fn a_filter_of_chunks_that_are_gone_is_filled_again() {
    let fixture = Fixture::new();
    let (mut filter, ..) = fixture.ready(4 << 20);
    for n in RECORDS..5 * RECORDS {
        filter.insert(&container(n), [print(n)].iter());
    }
    filter.save();
    let (mut filter, ..) = fixture.ready(4 << 20);
    let listing = ContainerListing::take(&fixture.store).unwrap();
    let indexed = IndexedChunks { listing: &listing, written: &[], log_containers: &[], log: &[] };
    for _ in 0..RECORDS / 8 {
        filter.count_miss(&indexed).unwrap();
    }
    let FilterState::Ready(filled) = &filter.state else { panic!("not ready") };
    assert!(filled.filter.chunks() <= RECORDS, "{} chunks", filled.filter.chunks());
    assert_complete(&filter, RECORDS, "filled again");
}

/// A filter of at most `bytes_max` bytes after a run that stored so many chunks, and how many of 10,000 absent ones
/// pass.
fn after_a_long_run(chunks: u64, bytes_max: u64) -> (ChunkFilter, usize) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    put(store.as_ref(), 0..CONTAINER_RECORDS);
    let listing = ContainerListing::take(&store).unwrap();
    let (mut filter, mut written) = (ChunkFilter::new(None, bytes_max), Vec::new());
    for first in (CONTAINER_RECORDS..chunks).step_by(100 * CONTAINER_RECORDS as usize) {
        let numbers = first..chunks.min(first + 100 * CONTAINER_RECORDS);
        let mut log = Vec::new();
        for number in numbers.clone() {
            let indexed = IndexedChunks { listing: &listing, written: &written, log_containers: &[], log: &log };
            filter.count_miss(&indexed).unwrap();
            let fingerprint = print(number);
            filter.insert(&container(number / CONTAINER_RECORDS), [fingerprint].iter());
            log.push(IndexRecord { fingerprint, container: 0, entry: 0 });
        }
        let known = store.list(crate::store::BlobKind::Segment.into()).unwrap();
        put(store.as_ref(), numbers);
        for listed in store.list(crate::store::BlobKind::Segment.into()).unwrap() {
            if known.iter().all(|it| it.name != listed.name) {
                written.push(Arc::new(IndexSegment::open(store.clone(), &listed.name).unwrap()));
            }
        }
    }
    assert!((0..chunks).step_by(997).all(|n| filter.may_hold(&print(n)) == Some(true)));
    let passing = (0..10_000).filter(|n| filter.may_hold(&print(u64::MAX - n)) == Some(true)).count();
    (filter, passing)
}

#[test]
fn a_filter_that_grows_in_a_long_run_is_filled_again() {
    let (filter, passing) = after_a_long_run(950_000, 4 << 20);
    let FilterState::Ready(filled) = &filter.state else { panic!("not ready") };
    assert!(filled.filter.parts() <= PARTS_MAX, "{} parts", filled.filter.parts());
    assert!(passing < 500, "{passing} of 10000 absent chunks pass");
}

#[test]
fn a_filter_that_can_grow_no_more_is_filled_again_as_one_part() {
    // It grows to three parts. Then there are six bits a chunk, with which one part lets 1 in 12 pass.
    let (filter, passing) = after_a_long_run(500_000, 384_000);
    let FilterState::Ready(filled) = &filter.state else { panic!("not ready") };
    assert_eq!(filled.filter.parts(), 1);
    assert!(filled.filter.memory_bytes() <= 384_000);
    assert!(passing < 1200, "{passing} of 10000 absent chunks pass");
}
