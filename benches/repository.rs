//! Speed of writing containers and of looking up chunks: `cargo bench --bench repository`.
//!
//! Blobs are in memory, so the time excludes the disk. Items are look-ups.
#![expect(clippy::expect_used, reason = "a bench fails by panicking")]

mod data;

use std::sync::Arc;

use bytes::Bytes;
use data::generated;
use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use fhrd::codec::{Codec, Raw};
use fhrd::config::{Config, IndexConfig};
use fhrd::repo::container::{ContainerKind, ContainerWriter, EntryFields, OperationList, SealedContainer, StoredFrame};
use fhrd::repo::index::{
    ChunkIndex, ContainerIndexes, ContainerListing, Hits, IndexRecord, NewSegment, read_container_index, write_segment,
};
use fhrd::store::{MemoryStore, Store, StoreExt};
use fhrd::types::Fingerprint;

const FRAME_BYTES: usize = 256 << 10;
const FRAMES: u32 = 16;
/// Chunks of a container.
const CHUNKS: u64 = 256;
/// Containers of the repository for look-ups.
const CONTAINERS: u64 = 64;
const CONTAINER_INDEX_BYTES_MAX: usize = 1 << 20;

fn main() {
    divan::main();
}

fn fingerprint(number: u64) -> Fingerprint {
    Fingerprint(*blake3::hash(&number.to_le_bytes()).as_bytes())
}

/// A container of `frames` frames with the chunks `first..first + CHUNKS`, all of equal length.
fn sealed(first: u64, frames: u32, payload: &Bytes) -> SealedContainer {
    let mut writer = ContainerWriter::new(ContainerKind::Data, &[7; 16]);
    let raw_len = payload.len() as u32;
    let frame = StoredFrame { codec: Raw.id(), raw_len, payload: payload.clone() };
    (0..frames).for_each(|_| {
        writer.push_frame(&frame).expect("accepts the frame");
    });
    let of_frame = CHUNKS as u32 / frames;
    let chunk_bytes = raw_len / of_frame;
    for number in 0..CHUNKS as u32 {
        let fields = EntryFields {
            fingerprint: fingerprint(first + u64::from(number)),
            raw_len: chunk_bytes,
            frame: number / of_frame,
            literal_offset: number % of_frame * chunk_bytes,
            literal_len: chunk_bytes,
            depth: 1,
        };
        let features: [u64; 8] = std::array::from_fn(|feature| (first + u64::from(number)) * 8 + feature as u64);
        writer.push_entry(fields, &OperationList::default(), &features).expect("accepts the entry");
    }
    writer.seal().expect("seals")
}

fn put(store: &dyn Store, sealed: &SealedContainer) {
    let parts: Vec<&[u8]> = sealed.parts.iter().map(AsRef::as_ref).collect();
    assert!(store.put_if_absent(&sealed.blob_name(), &parts).expect("puts"), "a new container");
}

/// Builds a container with frames, entries, checksums and name, and puts it into a store in memory.
#[divan::bench]
fn container_write(bencher: Bencher<'_, '_>) {
    let payload = Bytes::from(generated("noise", FRAME_BYTES));
    bencher.counter(BytesCount::new(FRAME_BYTES * FRAMES as usize)).bench(|| {
        let (store, sealed) = (MemoryStore::new(), sealed(0, FRAMES, &payload));
        put(&store, &sealed);
        sealed.len
    });
}

#[divan::bench]
fn container_index_read(bencher: Bencher<'_, '_>) {
    let (store, sealed) = (MemoryStore::new(), sealed(0, FRAMES, &generated("noise", FRAME_BYTES).into()));
    put(&store, &sealed);
    bencher
        .counter(ItemsCount::new(CHUNKS as usize))
        .bench(|| read_container_index(&store, &sealed.id()).expect("reads").entries.len());
}

/// The chunk index of a repository of [`CONTAINERS`] containers. It caches one container index.
fn index(config: IndexConfig) -> ChunkIndex {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let (mut ids, mut records) = (Vec::new(), Vec::new());
    for container in 0..CONTAINERS {
        let sealed = sealed(container * CHUNKS, 1, &Bytes::from_static(&[0; CHUNKS as usize]));
        put(store.as_ref(), &sealed);
        ids.push(sealed.id());
        records.extend((0..CHUNKS as u32).map(|entry| IndexRecord {
            fingerprint: fingerprint(container * CHUNKS + u64::from(entry)),
            container: container as u32,
            entry,
        }));
    }
    write_segment(store.as_ref(), NewSegment::padded([7; 16]), &ids, &[], records).expect("writes");
    let listing = Arc::new(ContainerListing::take(&store).expect("lists"));
    let local = ContainerIndexes::new(store.clone(), 1, CONTAINER_INDEX_BYTES_MAX);
    ChunkIndex::new(store, listing, local, &config, None)
}

/// Times look-ups of the stored chunks `order`, repeated in a cycle. Returns the hits of each level.
fn look_up(bencher: Bencher<'_, '_>, index: &mut ChunkIndex, order: &[Fingerprint]) -> Hits {
    let mut turn = order.iter().cycle();
    let before = index.hits;
    bencher.counter(ItemsCount::new(1usize)).bench_local(|| {
        let fingerprint = turn.next().expect("a cycle");
        assert!(index.contains_or_claim(fingerprint).expect("asks"), "a stored chunk");
    });
    let after = index.hits;
    assert_eq!((before.misses, before.temporary), (after.misses, after.temporary));
    Hits {
        local: after.local - before.local,
        lru: after.lru - before.lru,
        segments: after.segments - before.segments,
        ..Hits::default()
    }
}

/// Chunks of the first container.
fn of_first() -> Vec<Fingerprint> {
    (0..CHUNKS).map(fingerprint).collect()
}

/// The first chunk of each container, then the second of each, and so on, so that no cached container index helps.
fn in_turns() -> Vec<Fingerprint> {
    (0..CHUNKS)
        .flat_map(|chunk| (0..CONTAINERS).map(move |container| fingerprint(container * CHUNKS + chunk)))
        .collect()
}

#[divan::bench]
fn hit_in_container_index(bencher: Bencher<'_, '_>) {
    let mut index = index(Config::default().index);
    let order = of_first();
    assert!(index.contains_or_claim(&order[0]).expect("asks"), "a stored chunk");
    let hits = look_up(bencher, &mut index, &order);
    assert_eq!((hits.lru, hits.segments), (0, 0));
}

#[divan::bench]
fn hit_in_lru(bencher: Bencher<'_, '_>) {
    let mut index = index(Config::default().index);
    // Chunks of two containers in turns: each container index evicts the other, and all chunks enter the LRU.
    for number in 0..CHUNKS {
        for chunk in [number, CHUNKS + number] {
            assert!(index.contains_or_claim(&fingerprint(chunk)).expect("asks"), "a stored chunk");
        }
    }
    let hits = look_up(bencher, &mut index, &of_first());
    assert_eq!((hits.local, hits.segments), (0, 0));
}

/// Every look-up reads the container index.
#[divan::bench]
fn hit_in_last_level(bencher: Bencher<'_, '_>) {
    let config = IndexConfig { lru_entries: 1, ..Config::default().index };
    let hits = look_up(bencher, &mut index(config), &in_turns());
    assert_eq!((hits.local, hits.lru), (0, 0));
}

/// New chunks. Without a filter, each is looked up in the segments.
#[divan::bench(args = [true, false])]
fn miss(bencher: Bencher<'_, '_>, with_filter: bool) {
    let mut config = Config::default().index;
    if !with_filter {
        config.filter_bytes.0 = 0;
    }
    let mut index = index(config);
    let mut number = u64::MAX;
    let mut new = || {
        number -= 1;
        fingerprint(number)
    };
    // The filter is built after enough look-ups have missed.
    (0..CONTAINERS * CHUNKS).for_each(|_| {
        index.contains_or_claim(&new()).expect("asks");
    });
    let before = index.hits.absent;
    bencher.counter(ItemsCount::new(1usize)).with_inputs(new).bench_local_values(|fingerprint| {
        assert!(!index.contains_or_claim(&fingerprint).expect("asks"), "a new chunk");
    });
    assert_eq!(with_filter, index.hits.absent > before);
}
