//! The index at the scale of a large repository: real containers, segments and caches, random fingerprints, no data.
//!
//! `cargo bench --bench index_scale -- CHUNKS [DIRECTORY]` builds a repository of CHUNKS chunks (a million without the
//! argument) below DIRECTORY and removes it at the end. A chunk needs about 220 bytes of disk. Each step prints its time,
//! CPU time and reads, and the memory of the process. Ordinary page cache applies: reads are what a cold disk pays.
#![expect(clippy::expect_used, reason = "a bench fails by panicking")]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use fhrd::config::IndexConfig;
use fhrd::repo::container::{ContainerKind, ContainerWriter, EntryFields, OperationList};
use fhrd::repo::index::{
    ChunkIndex, ContainerIndexes, ContainerListing, FILTER_FILE, IndexRecord, NewSegment, SimilarityFiles,
    SimilarityIndex, merge_segments, write_segment,
};
use fhrd::store::{CountingStore, LocalStore, Store};
use fhrd::types::{ContainerId, Fingerprint};

/// Chunks of a container: 32 MiB in chunks of 64 KiB.
const CONTAINER_CHUNKS: u64 = 512;
/// Records of the segments that a backup writes.
const SEGMENT_RECORDS: u64 = 1 << 18;
/// Segments of a backup, after which small segments are merged.
const BACKUP_SEGMENTS: u64 = 4;
/// Look-ups of a sample.
const SAMPLE: u64 = 10_000;

fn mixed(seed: u64) -> u64 {
    let mut bits = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Chunk `number` of the repository. Those from 2^40 on are new.
fn fingerprint(number: u64) -> Fingerprint {
    let mut bytes = [0; 32];
    for (lane, at) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(0u64..) {
        *lane = mixed(number * 4 + at).to_le_bytes();
    }
    Fingerprint(bytes)
}

/// A field of `/proc/self/status`, KiB; 0 elsewhere.
fn memory_kib(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(field));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
}

/// CPU seconds of the process so far; 0 where the system does not tell.
fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

type Counting = Arc<CountingStore<LocalStore>>;

/// Runs and reports a step of `items` items.
fn step<T>(what: &str, items: u64, store: &Counting, run: impl FnOnce() -> T) -> T {
    let (started, cpu, before) = (Instant::now(), cpu_seconds(), store.counts());
    let result = run();
    let (seconds, cpu, after) = (started.elapsed().as_secs_f64(), cpu_seconds() - cpu, store.counts());
    let each = |total: f64| total / items.max(1) as f64;
    println!(
        "{what}: {seconds:.2} s, {cpu:.2} CPU s, {:.2} us each, {:.2} reads each, {} MB read, {} MB written, {} MB resident, {} MB at most",
        each(seconds * 1e6),
        each((after.ranges - before.ranges + after.gets - before.gets) as f64),
        (after.bytes_read - before.bytes_read) >> 20,
        (after.bytes_written - before.bytes_written) >> 20,
        memory_kib("VmRSS:") >> 10,
        memory_kib("VmHWM:") >> 10,
    );
    result
}

/// Writes a container of the chunks from `first` on. Its entries are empty, and each has eight features.
fn put_container(root: &Path, first: u64) -> ContainerId {
    let mut writer = ContainerWriter::new(ContainerKind::Data, &[7; 16]);
    for number in first..first + CONTAINER_CHUNKS {
        let fields = EntryFields {
            fingerprint: fingerprint(number),
            raw_len: 0,
            frame: 0,
            literal_offset: 0,
            literal_len: 0,
            depth: 1,
        };
        let features: [u64; 8] = std::array::from_fn(|at| mixed(number * 8 + at as u64 + (1 << 60)) >> 16);
        writer.push_entry(fields, &OperationList::default(), &features).expect("accepts the entry");
    }
    let sealed = writer.seal().expect("seals");
    // Not through the store, whose syncs would take hours.
    let path = root.join(sealed.blob_name());
    fs::create_dir_all(path.parent().expect("below the root")).expect("a directory");
    fs::write(path, sealed.parts.iter().map(AsRef::as_ref).collect::<Vec<&[u8]>>().concat()).expect("writes");
    sealed.id()
}

/// Writes the repository as backups of a million chunks each would.
fn build(store: &Counting, shared: &Arc<dyn Store>, root: &Path, cache: &Path, chunks: u64) {
    let (mut slowest, mut merges, mut segments, mut merging) = (0.0f64, 0, 0, 0.0);
    let mut most = 0;
    let mut first = 0;
    while first < chunks {
        let (mut containers, mut records) = (Vec::new(), Vec::new());
        while first < chunks && (records.len() as u64) < SEGMENT_RECORDS {
            let container = containers.len() as u32;
            containers.push(put_container(root, first));
            let numbered = (first..first + CONTAINER_CHUNKS).zip(0u32..);
            records.extend(numbered.map(|(n, entry)| IndexRecord { fingerprint: fingerprint(n), container, entry }));
            first += CONTAINER_CHUNKS;
        }
        write_segment(store.as_ref(), NewSegment::padded([7; 16]), &containers, &[], records).expect("writes");
        segments += 1;
        if segments % BACKUP_SEGMENTS == 0 || first >= chunks {
            // Only the segments matter: listing the containers each time would take longest.
            let listing = ContainerListing::of_segments(shared).expect("lists");
            let started = Instant::now();
            merges += merge_segments(&listing, cache, &AtomicBool::new(false)).expect("merges");
            merging += started.elapsed().as_secs_f64();
            slowest = slowest.max(started.elapsed().as_secs_f64());
            most = most.max(listing.segments().len());
        }
    }
    println!(
        "{merges} merges: {merging:.1} s, at most {slowest:.1} s after a backup, at most {most} segments after it"
    );
}

fn chunk_index(shared: &Arc<dyn Store>, listing: &Arc<ContainerListing>, filter: u64, cache: &Path) -> ChunkIndex {
    let config = IndexConfig { filter_bytes: bytesize::ByteSize::b(filter), ..IndexConfig::default() };
    let local = ContainerIndexes::new(shared.clone(), config.local_containers, 32 << 20);
    ChunkIndex::new(shared.clone(), listing.clone(), local, &config, Some(cache))
}

fn ask_new(index: &mut ChunkIndex, count: u64, first: u64) {
    for number in 0..count {
        assert!(!index.contains_or_claim(&fingerprint((1 << 40) + first + number)).expect("asks"), "a new chunk");
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|it| it != "--bench").collect();
    let chunks: u64 = arguments.first().map_or(1_000_000, |number| number.parse().expect("a number of chunks"));
    let parent = arguments.get(1).map_or_else(std::env::temp_dir, Into::into);
    let directory = tempfile::tempdir_in(parent).expect("a directory");
    let (root, cache) = (directory.path().join("repository"), directory.path().join("cache"));
    fs::create_dir(&cache).expect("a directory");
    let store: Counting = Arc::new(CountingStore::new(LocalStore::create(&root).expect("a store")));
    let shared: Arc<dyn Store> = store.clone();
    let filter_bytes = IndexConfig::default().filter_bytes.0;

    step("build", chunks, &store, || build(&store, &shared, &root, &cache, chunks));
    let listing = step("list containers and open segments", 1, &store, || ContainerListing::take(&shared));
    let listing = Arc::new(listing.expect("lists"));
    let (segments, containers) = (listing.segments(), listing.containers.len());
    let sizes: Vec<u64> = segments.iter().map(|it| it.records()).collect();
    println!("{containers} containers, segments of {sizes:?} records");

    let random = |n: u64| fingerprint(mixed(n) % chunks);
    step("hit, segments only", SAMPLE, &store, || {
        for number in 0..SAMPLE {
            let found = listing.search(&random(number), |container, entry| Some((container, entry))).expect("searches");
            assert!(found.is_some(), "a stored chunk");
        }
    });
    step("hit at random, with its container index", SAMPLE, &store, || {
        let mut index = chunk_index(&shared, &listing, 0, &cache);
        for number in 0..SAMPLE {
            assert!(index.contains_or_claim(&random(number)).expect("asks"), "a stored chunk");
        }
    });
    let in_order = SAMPLE * 10;
    step("hit in the order of storing", in_order, &store, || {
        let mut index = chunk_index(&shared, &listing, 0, &cache);
        for number in 0..in_order.min(chunks) {
            assert!(index.contains_or_claim(&fingerprint(number)).expect("asks"), "a stored chunk");
        }
    });
    step("miss without a filter", SAMPLE, &store, || {
        ask_new(&mut chunk_index(&shared, &listing, 0, &cache), SAMPLE, 0)
    });
    step("lost cache: first look-up", 1, &store, || {
        ask_new(&mut chunk_index(&shared, &listing, filter_bytes, &cache), 1, 1 << 30);
    });
    let many = chunks / 16;
    step("lost cache: misses that fill the filter", many, &store, || {
        let mut index = chunk_index(&shared, &listing, filter_bytes, &cache);
        ask_new(&mut index, many, 2 << 30);
        println!("{:?}", index.hits);
        index.save_filter();
    });
    let stored = fs::metadata(cache.join(FILTER_FILE)).map_or(0, |metadata| metadata.len());
    println!("filter file: {} MB", stored >> 20);
    step("misses that load the filter", many, &store, || {
        let mut index = chunk_index(&shared, &listing, filter_bytes, &cache);
        ask_new(&mut index, many, 3 << 30);
        println!("{:?}", index.hits);
    });
    let files = SimilarityFiles {
        directory: cache.clone(),
        repository: "scale".into(),
        memory_bytes: IndexConfig::default().similarity_bytes.0,
        file_bytes: IndexConfig::default().similarity_file_bytes.0,
        key: None,
    };
    for what in ["lost cache: open the similarity index", "open the similarity index again"] {
        step(what, 1, &store, || {
            let mut similarity = SimilarityIndex::new(shared.clone(), listing.clone(), files.clone());
            let found = similarity.find(7).count();
            similarity.finish(&[], std::iter::empty());
            found
        });
    }
    let sizes = ["similarity.pages", "similarity.numbers"]
        .map(|name| fs::metadata(cache.join(name)).map_or(0, |it| it.len()) >> 20);
    println!("similarity files: {sizes:?} MB");
}
