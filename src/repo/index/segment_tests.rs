//! Segments: damage, look-ups, and short last pages.

use super::*;
use crate::error::ErrorKind;
use crate::repo::index::{NewSegment, write_segment};
use crate::store::{CountingStore, MemoryStore, StoreExt, named};
use crate::wire::checksum;

/// A segment of 200 records, as bytes.
fn segment() -> Vec<u8> {
    let store = MemoryStore::new();
    let fingerprint = |number: u8| Fingerprint(*blake3::hash(&[number]).as_bytes());
    let records =
        (0..200).map(|n| IndexRecord { fingerprint: fingerprint(n), container: 0, entry: n.into() }).collect();
    let name = write_segment(&store, NewSegment::padded([7; 16]), &[ContainerId([5; 32])], &[], records).unwrap();
    store.get(&name, 1 << 20).unwrap()
}

fn open(blob: &[u8]) -> Result<IndexSegment> {
    let store = MemoryStore::new();
    store.put_if_absent(&named("index/x"), &[blob]).unwrap();
    IndexSegment::open(Arc::new(store), &named("index/x"))
}

/// `blob` with another header and the right checksum for it.
fn with_header(mut blob: Vec<u8>, edit: impl FnOnce(&mut [u8])) -> Vec<u8> {
    edit(&mut blob[..HEADER_BYTES - 16]);
    let recorded = checksum::<16>(&[&blob[..HEADER_BYTES - 16]]);
    blob[HEADER_BYTES - 16..HEADER_BYTES].copy_from_slice(&recorded);
    blob
}

#[test]
fn every_flipped_bit_of_a_segment_header_is_damage() {
    let intact = segment();
    assert_eq!(open(&intact).unwrap().records(), 200);
    for bit in 0..HEADER_BYTES * 8 {
        let mut blob = intact.clone();
        blob[bit / 8] ^= 1 << (bit % 8);
        let error = open(&blob).map(drop).expect_err("a flipped bit");
        assert_eq!(error.kind(), ErrorKind::Damaged, "bit {bit}: {error}");
    }
}

#[test]
fn an_intact_segment_of_another_version_names_the_version() {
    let error = open(&with_header(segment(), |header| header[8] = 2)).map(drop).expect_err("another version");
    assert_eq!(error.to_string(), "index/x needs a newer fhrd: unknown format version 2");
}

#[test]
fn a_look_up_in_a_large_segment_reads_few_pages() {
    let store = Arc::new(CountingStore::new(MemoryStore::new()));
    let fingerprint = |number: u64| Fingerprint(*blake3::hash(&number.to_le_bytes()).as_bytes());
    let records = (0..300_000).map(|n| IndexRecord { fingerprint: fingerprint(n), container: 0, entry: n as u32 });
    let name =
        write_segment(store.as_ref(), NewSegment::padded([7; 16]), &[ContainerId([5; 32])], &[], records.collect())
            .unwrap();
    let segment = IndexSegment::open(store.clone(), &name).unwrap();
    let before = store.counts().ranges;
    for number in (0..300_000).step_by(1000) {
        assert_eq!(segment.find(&fingerprint(number)).unwrap(), [(ContainerId([5; 32]), number as u32)]);
        assert_eq!(segment.find(&fingerprint(1 << 40 | number)).unwrap(), []);
    }
    let read = store.counts().ranges - before;
    assert!(read < 600 * 5 / 2, "{read} pages for 600 look-ups");
}

#[test]
fn the_pages_of_a_small_segment_are_read_once_and_verified_each_time() {
    let memory = Arc::new(MemoryStore::new());
    let blob = segment();
    memory.put_if_absent(&named("index/x"), &[&blob]).unwrap();
    let store = Arc::new(CountingStore::new(memory.clone()));
    let mut segment = IndexSegment::open(store.clone(), &named("index/x")).unwrap();
    segment.cache_pages();
    let find = |segment: &IndexSegment, n: u8| segment.find(&Fingerprint(*blake3::hash(&[n]).as_bytes()));
    let before = store.counts().ranges;
    for n in 0..200 {
        assert_eq!(find(&segment, n).unwrap(), [(ContainerId([5; 32]), n.into())]);
    }
    let read = store.counts().ranges - before;
    assert!(read <= u64::from(PAGES_BEFORE_CACHED) + 1, "{read} reads");

    let mut damaged = blob.clone();
    damaged[blob.len() - 100] ^= 1;
    memory.replace(&named("index/x"), &damaged);
    let mut segment = IndexSegment::open(store, &named("index/x")).unwrap();
    segment.cache_pages();
    let (good, bad) = (0..200).partition::<Vec<u8>, _>(|n| find(&segment, *n).is_ok());
    assert!(good.len() > 50 && bad.len() > 50, "{} and {}", good.len(), bad.len());
}

#[test]
fn fingerprints_that_are_not_spread_are_found_in_a_bounded_number_of_reads() {
    let store = Arc::new(CountingStore::new(MemoryStore::new()));
    // Half of them share their first eight bytes, the others are close to each other.
    let fingerprint = |number: u32| {
        let mut bytes = [0xee; 32];
        bytes[7] = if number.is_multiple_of(2) { 0xee } else { (number >> 16) as u8 };
        bytes[28..].copy_from_slice(&number.swap_bytes().to_le_bytes());
        Fingerprint(bytes)
    };
    let records = (0..200_000).map(|n| IndexRecord { fingerprint: fingerprint(n), container: 0, entry: n });
    let name =
        write_segment(store.as_ref(), NewSegment::padded([7; 16]), &[ContainerId([5; 32])], &[], records.collect())
            .unwrap();
    let segment = IndexSegment::open(store.clone(), &name).unwrap();
    for number in (0..200_000).step_by(997) {
        let before = store.counts().ranges;
        assert_eq!(segment.find(&fingerprint(number)).unwrap(), [(ContainerId([5; 32]), number)]);
        let read = store.counts().ranges - before;
        assert!(read <= u64::from(GUESSES_MAX) + 13, "{read} reads");
    }
}

#[test]
fn counts_that_do_not_fit_the_length_of_the_blob_are_damage() {
    let claims = [(12, 1u64 << 23), (16, 1 << 23), (24, 1 << 48), (24, 205), (24, 102), (24, 0)];
    for (field, claim) in claims {
        let blob = with_header(segment(), |header| {
            let len = if field == 24 { 8 } else { 4 };
            header[field..field + len].copy_from_slice(&claim.to_le_bytes()[..len]);
        });
        let error = open(&blob).map(drop).expect_err("a wrong count");
        assert!(error.kind() == ErrorKind::Damaged && error.to_string().contains("index/x"), "{error}");
    }
}

/// The record of this number, which is also its entry.
fn record_of(number: u64) -> IndexRecord {
    let fingerprint = Fingerprint(*blake3::hash(&number.to_le_bytes()).as_bytes());
    IndexRecord { fingerprint, container: 0, entry: number as u32 }
}

/// A segment of so many records that may have a short last page, as bytes.
fn short(records: u64) -> Vec<u8> {
    let store = MemoryStore::new();
    let new = NewSegment { salt: [7; 16], shortens_page: true };
    // Without records it has no container, and replaces another segment.
    let containers = if records > 0 { vec![ContainerId([5; 32])] } else { Vec::new() };
    let replaced = if records > 0 { Vec::new() } else { vec![BlobName::hashed(BlobKind::Segment, &[6; 32])] };
    let records = (0..records).map(record_of).collect();
    let name = write_segment(&store, new, &containers, &replaced, records).unwrap();
    store.get(&name, 1 << 20).unwrap()
}

fn reader_features(blob: &[u8]) -> u64 {
    u64::from_le_bytes(blob[32..40].try_into().unwrap())
}

#[test]
fn segments_of_any_number_of_records_read_back_and_have_no_byte_too_many() {
    for count in 0..=3 * PAGE_RECORDS as u64 + 1 {
        let blob = short(count);
        let pages = count.div_ceil(PAGE_RECORDS as u64);
        assert_eq!(blob.len() as u64, 80 + 32 + 16 + count * 40 + pages * 16, "{count} records");
        assert_eq!(reader_features(&blob) != 0, !count.is_multiple_of(PAGE_RECORDS as u64), "{count} records");
        let mut expected: Vec<IndexRecord> = (0..count).map(record_of).collect();
        expected.sort_unstable();
        for may_cache in [false, true] {
            let mut segment = open(&blob).unwrap();
            segment.may_cache = may_cache;
            assert_eq!((segment.page_count(), segment.page_bytes()), (pages, count * 40 + pages * 16));
            let read: Vec<IndexRecord> = segment.pages().flat_map(Result::unwrap).collect();
            assert_eq!(read, expected, "{count} records");
            let mut visited = Vec::new();
            segment.visit_fingerprints(|fingerprint| visited.push(*fingerprint)).unwrap();
            assert!(visited.iter().eq(expected.iter().map(|record| &record.fingerprint)));
            let ends = expected.chunks(PAGE_RECORDS).flat_map(|page| [page.first(), page.last()]).flatten();
            for record in ends {
                assert_eq!(segment.find(&record.fingerprint).unwrap(), [(ContainerId([5; 32]), record.entry)]);
            }
            assert_eq!(segment.find(&record_of(1 << 40).fingerprint).unwrap(), []);
        }
    }
}

#[test]
fn large_segments_are_padded_so_that_older_programs_read_them() {
    let [small, large] = [1024, 1025].map(short);
    assert_eq!((small.len(), reader_features(&small)), (80 + 32 + 16 + 1024 * 40 + 11 * 16, SHORT_PAGE));
    assert_eq!((large.len(), reader_features(&large)), (80 + 32 + 16 + 11 * 4096, 0));
    for (blob, count) in [(small, 1024), (large, 1025)] {
        assert_eq!(open(&blob).unwrap().pages().map(|page| page.unwrap().len()).sum::<usize>(), count);
    }
}

#[test]
fn every_flipped_bit_of_a_short_segment_is_damage() {
    for count in [3, 105] {
        let intact = short(count);
        for bit in 0..intact.len() * 8 {
            let mut blob = intact.clone();
            blob[bit / 8] ^= 1 << (bit % 8);
            let read = open(&blob).and_then(|segment| segment.pages().collect::<Result<Vec<_>>>());
            let error = read.map(drop).expect_err("a flipped bit");
            assert_eq!(error.kind(), ErrorKind::Damaged, "bit {bit}: {error}");
        }
    }
}

#[test]
fn a_short_segment_of_another_length_or_count_is_damage() {
    let is_damaged = |blob: &[u8], what: &str| {
        let error = open(blob).map(drop).expect_err(what);
        assert!(error.kind() == ErrorKind::Damaged && error.to_string().contains("index/x"), "{what}: {error}");
    };
    let (intact, padded) = (short(105), segment());
    for len in 0..intact.len() {
        is_damaged(&intact[..len], &format!("{len} bytes"));
    }
    is_damaged(&[&intact[..], &[0]].concat(), "a byte more");
    is_damaged(&[&intact[..], &[0; PAGE_BYTES - 3 * 40 - 16]].concat(), "as many bytes as padding has");
    let set_features = |features: u64| move |header: &mut [u8]| header[32..40].copy_from_slice(&features.to_le_bytes());
    is_damaged(&with_header(intact.clone(), set_features(0)), "short, and the header says padded");
    is_damaged(&with_header(padded, set_features(SHORT_PAGE)), "padded, and the header says short");
    for records in [0, 1, 102, 104, 106, 204, 1 << 48, u64::MAX] {
        let set_records = |header: &mut [u8]| header[24..32].copy_from_slice(&records.to_le_bytes());
        is_damaged(&with_header(intact.clone(), set_records), &format!("{records} records"));
    }
}

#[test]
fn a_feature_that_this_version_does_not_know_is_named_without_the_known_one() {
    let set_features = |header: &mut [u8]| header[32..40].copy_from_slice(&(SHORT_PAGE | 1 << 1).to_le_bytes());
    let error = open(&with_header(short(3), set_features)).map(drop).expect_err("an unknown feature");
    assert_eq!(error.to_string(), "index/x needs a newer fhrd: unknown feature bits 0x2");
}
