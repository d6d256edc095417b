//! The filter before the last level, and the segments of a run.

use super::*;
use crate::repo::container::{ContainerKind, ContainerWriter, EntryFields, OperationList};
use crate::repo::index::{NewSegment, merge_segments, name_all_containers, replace_damaged_segments};
use crate::store::{BlobKind, MemoryStore, StoreExt};

fn print(n: u64) -> Fingerprint {
    Fingerprint(*blake3::hash(&n.to_le_bytes()).as_bytes())
}

fn index(filter_bytes: u64) -> ChunkIndex {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let records = (0..3200).map(|n| IndexRecord { fingerprint: print(n), container: 0, entry: 0 }).collect();
    write_segment(store.as_ref(), NewSegment::padded([7; 16]), &[ContainerId([0; 32])], &[], records).expect("writes");
    let listing = Arc::new(ContainerListing::take(&store).expect("lists"));
    let config = IndexConfig { filter_bytes: bytesize::ByteSize::b(filter_bytes), ..IndexConfig::default() };
    let local = ContainerIndexes::new(store.clone(), 1, 1 << 20);
    ChunkIndex::new(store, listing, local, &config, None)
}

#[test]
fn the_filter_is_built_after_enough_misses_and_passes_all_stored_chunks() {
    let mut index = index(1 << 20);
    for n in 10_000..10_300 {
        assert!(!index.contains_or_claim(&print(n)).expect("asks"));
    }
    let hits = index.hits;
    assert_eq!((hits.misses, hits.absent + hits.filter_wrong), (300, 275), "{hits:?}");
    assert!(hits.absent > 250, "{hits:?}");
    assert!((0..3200).all(|n| index.filter.may_hold(&print(n)) == Some(true)));
}

/// A durable container of the chunks `numbers`.
fn store_container(index: &mut ChunkIndex, numbers: std::ops::Range<u64>) {
    let salt = *print(numbers.start).0.first_chunk().expect("32 bytes");
    let mut writer = ContainerWriter::new(ContainerKind::Data, &salt);
    for number in numbers {
        assert!(!index.contains_or_claim(&print(number)).expect("asks"), "{number}");
        let fingerprint = print(number);
        let (frame, literal_offset, literal_len) = (0, 0, 0);
        let fields = EntryFields { fingerprint, raw_len: 0, frame, literal_offset, literal_len, depth: 1 };
        writer.push_entry(fields, &OperationList::default(), &[]).expect("accepts the entry");
    }
    let sealed = writer.seal().expect("seals");
    let parts: Vec<&[u8]> = sealed.parts.iter().map(AsRef::as_ref).collect();
    index.store.put_hashed(BlobKind::Container, &parts).expect("stores");
    index.add_container(sealed.id(), Arc::new(sealed.container_index)).expect("adds");
}

/// An index of a run that writes a segment for each hundred chunks.
fn long_run() -> ChunkIndex {
    let mut index = index(0);
    index.segment_records_max = 100;
    index.recent = LruCache::new(NonZeroUsize::MIN);
    index
}

#[test]
fn a_long_run_asks_few_segments_and_knows_every_chunk() {
    let mut index = long_run();
    for first in (10_000..18_000).step_by(100) {
        store_container(&mut index, first..first + 100);
        assert!(index.written.len() < 12, "{} segments", index.written.len());
    }
    assert!((10_000..18_000).all(|number| index.contains_or_claim(&print(number)).expect("asks")));
    assert_eq!(index.hits.misses, 8_000);
    index.finish().expect("writes");
    let listing = ContainerListing::take(&index.store).expect("lists");
    assert!(listing.orphans().is_empty() && listing.replaced().is_empty());
}

#[test]
fn a_run_whose_segments_another_process_has_merged_goes_on() {
    let mut index = long_run();
    for first in (10_000..12_000).step_by(100) {
        store_container(&mut index, first..first + 100);
        let other = ContainerListing::take(&index.store).expect("lists");
        merge_segments(&other, &std::env::temp_dir(), &false.into()).expect("merges");
    }
    assert!(index.written.len() < 8, "{} segments", index.written.len());
    index.finish().expect("writes");
    let listing = ContainerListing::take(&index.store).expect("lists");
    assert!(listing.orphans().is_empty());
    for number in 10_000..12_000 {
        assert!(listing.search(&print(number), |_, _| Some(())).expect("searches").is_some(), "{number}");
    }
}

#[test]
fn a_filter_of_zero_bytes_is_not_built() {
    let mut index = index(0);
    for n in 10_000..10_300 {
        assert!(!index.contains_or_claim(&print(n)).expect("asks"));
    }
    assert_eq!((index.hits.misses, index.hits.absent, index.hits.filter_wrong), (300, 0, 0));
}

#[test]
fn a_segment_of_the_run_that_proves_damaged_is_replaced_before_the_commit() {
    let mut index = long_run();
    let store = Arc::new(MemoryStore::new());
    index.store = store.clone();
    index.listing = Arc::new(ContainerListing::take(&index.store).expect("lists"));
    for first in (10_000..10_800).step_by(100) {
        store_container(&mut index, first..first + 100);
        if let [segment] = index.written.as_slice()
            && first == 10_000
        {
            let mut bytes = store.get(segment.name(), 1 << 20).expect("reads");
            let last = bytes.len() - 1000;
            bytes[last] ^= 1;
            store.replace(segment.name(), &bytes);
        }
    }
    index.finish().expect("writes");
    assert_eq!(index.listing.damaged_segments().len(), 1);
    assert_eq!(replace_damaged_segments(&index.listing).expect("replaces"), 1);
    name_all_containers(&index.listing, index.stored()).expect("names");
    let listing = ContainerListing::take(&index.store).expect("lists");
    assert!(listing.orphans().is_empty());
    for segment in listing.segments().iter() {
        segment.visit_fingerprints(|_| {}).expect("is sound");
    }
    assert!((10_000..10_800).all(|n| listing.search(&print(n), |_, _| Some(())).expect("searches").is_some()));
}
