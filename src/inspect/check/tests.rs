//! Checks of small repositories in memory, each with one defect.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;

use super::{CheckReport, check};
use crate::Error;
use crate::config::{Config, RepositoryConfig};
use crate::metrics::Progress;
use crate::repo::Repository;
use crate::repo::container::{
    Base, ContainerKind, ContainerWriter, EntryFields, Operation, OperationList, SealedContainer, StoredFrame,
    WHOLE_DIGEST,
};
use crate::repo::index::{IndexRecord, NewSegment, write_segment};
use crate::repo::salts::Salts;
use crate::store::{BlobKind, CountingStore, MemoryStore, ParityStore, Store, StoreExt};
use crate::types::{Fingerprint, RepositoryKey};

const KEY: RepositoryKey = RepositoryKey([7; 32]);

/// A container with one frame of 100 bytes. Each entry has fingerprint, length, literal offset and length, operations.
fn container(entries: &[(Fingerprint, u32, u32, u32, OperationList)]) -> SealedContainer {
    let mut writer = ContainerWriter::new(ContainerKind::Data, &[7; 16]);
    let payload: Vec<u8> = (0..100).collect();
    let frame = writer.push_frame(&StoredFrame { codec: 0, raw_len: 100, payload: Bytes::from(payload) }).unwrap();
    for (fingerprint, raw_len, literal_offset, literal_len, operations) in entries {
        let (fingerprint, raw_len, literal_offset, literal_len) =
            (*fingerprint, *raw_len, *literal_offset, *literal_len);
        let depth = 1 + u8::from(!operations.bases.is_empty());
        let fields = EntryFields { fingerprint, raw_len, frame, literal_offset, literal_len, depth };
        writer.push_entry(fields, operations, &[]).unwrap();
    }
    writer.seal().unwrap()
}

fn put(store: &MemoryStore, sealed: &SealedContainer) {
    store.put_if_absent(&sealed.blob_name(), &[&sealed.parts.concat()]).unwrap();
}

fn index(store: &MemoryStore, sealed: &SealedContainer, wrong_entry: bool) {
    let records = sealed.container_index.entries.iter().zip(0u32..).map(|(entry, number)| IndexRecord {
        fingerprint: entry.fingerprint,
        container: 0,
        entry: number + u32::from(wrong_entry),
    });
    write_segment(store, NewSegment::padded([7; 16]), &[sealed.id()], &[], records.collect()).unwrap();
}

fn run(store: &Arc<impl Store + 'static>, read_data: bool) -> CheckReport {
    let repository = Repository {
        store: store.clone(),
        parity: Arc::new(ParityStore::new(store.clone())),
        id: "0".repeat(32),
        key: KEY,
        config: RepositoryConfig::default(),
        writer_features: 0,
        salts: Salts::default(),
        encryption: None,
        requests: Arc::default(),
        config_is_doubtful: true,
        clock: crate::repo::clock::Clock::default(),
        cache_directory: None,
    };
    let mut config = Config::default();
    config.pipeline.workers = 2;
    let mut report = check(&repository, &config, read_data, &Progress::default(), &Arc::default()).unwrap();
    // These repositories have no configuration, which gives two defects.
    report.defects.retain(|defect| !defect.starts_with("config"));
    report.defect_count -= 2;
    report
}

fn literal(len: u32) -> Fingerprint {
    KEY.fingerprint(&(0..len as u8).collect::<Vec<u8>>())
}

/// A sound container: a chunk of 20 literal bytes, and a chunk of 10 bytes copied from its middle.
fn sound() -> SealedContainer {
    let base = Base { fingerprint: literal(20), digest: WHOLE_DIGEST };
    let copy = OperationList { operations: vec![Operation::Copy { base: 0, offset: 5, len: 10 }], bases: vec![base] };
    let copied = KEY.fingerprint(&(5..15).collect::<Vec<u8>>());
    container(&[(literal(20), 20, 0, 20, OperationList::default()), (copied, 10, 20, 0, copy)])
}

#[test]
fn a_sound_container_has_no_defects_and_every_byte_is_read() {
    let store = Arc::new(MemoryStore::new());
    put(&store, &sound());
    index(&store, &sound(), false);
    let report = run(&store, false);
    assert_eq!((report.defect_count, report.containers, report.chunks, report.frames), (0, 1, 2, 1), "{report:?}");
    assert_eq!((report.segments, report.unreferenced_containers, report.bytes_raw), (1, 0, 30));
    let report = run(&store, true);
    assert_eq!((report.defect_count, report.bytes_raw), (0, 30), "{report:?}");
    assert_eq!(report.bytes_stored, sound().len);
}

#[test]
fn every_flipped_byte_of_a_container_is_found() {
    let sealed = sound();
    let bytes = sealed.parts.concat();
    for at in 0..bytes.len() {
        let store = Arc::new(MemoryStore::new());
        index(&store, &sealed, false);
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x40;
        store.put_if_absent(&sealed.blob_name(), &[&damaged]).unwrap();
        let report = run(&store, true);
        assert!(
            report.defects.iter().any(|defect| defect.contains(sealed.blob_name().as_str())),
            "byte {at}: {report:?}"
        );
        assert!(report.defect_count >= report.defects.len() as u64 && report.defects_more == 0, "{report:?}");
    }
}

#[test]
fn a_truncated_container_is_found_without_reading_data() {
    let sealed = sound();
    let bytes = sealed.parts.concat();
    for len in 0..bytes.len() {
        let store = Arc::new(MemoryStore::new());
        index(&store, &sealed, false);
        store.put_if_absent(&sealed.blob_name(), &[&bytes[..len]]).unwrap();
        let report = run(&store, false);
        assert!(
            report.defects.iter().any(|defect| defect.contains(sealed.blob_name().as_str())),
            "length {len}: {report:?}"
        );
    }
}

#[test]
fn a_chunk_that_does_not_match_its_fingerprint_is_found_by_reading() {
    let store = Arc::new(MemoryStore::new());
    let sealed = container(&[(Fingerprint([1; 32]), 20, 0, 20, OperationList::default())]);
    put(&store, &sealed);
    index(&store, &sealed, false);
    assert_eq!(run(&store, false).defect_count, 0);
    let report = run(&store, true);
    assert_eq!(report.defect_count, 1, "{report:?}");
    assert!(
        report.defects[0].contains(sealed.blob_name().as_str()) && report.defects[0].contains("0101"),
        "{report:?}"
    );
}

#[test]
fn a_missing_base_is_found_without_reading_data() {
    let store = Arc::new(MemoryStore::new());
    let base = Base { fingerprint: Fingerprint([9; 32]), digest: 1 };
    let copy = OperationList { operations: vec![Operation::Copy { base: 0, offset: 0, len: 10 }], bases: vec![base] };
    let sealed = container(&[(Fingerprint([1; 32]), 10, 0, 0, copy)]);
    put(&store, &sealed);
    index(&store, &sealed, false);
    let report = run(&store, false);
    assert_eq!(report.defect_count, 1, "{report:?}");
    assert!(report.defects[0].contains("entry 0") && report.defects[0].contains(&"09".repeat(32)), "{report:?}");
}

#[test]
fn a_missing_container_and_a_wrong_record_are_found() {
    let store = Arc::new(MemoryStore::new());
    index(&store, &sound(), false);
    let report = run(&store, false);
    // No snapshot needs it.
    assert_eq!((report.defect_count, report.notes.len()), (0, 1), "{report:?}");
    assert!(
        report.notes[0].contains(sound().blob_name().as_str()) && report.notes[0].contains("missing"),
        "{report:?}"
    );

    put(&store, &sound());
    index(&store, &sound(), true);
    let report = run(&store, false);
    assert_eq!(report.defect_count, 2, "{report:?}");
    assert!(report.defects.iter().all(|defect| defect.starts_with("index/")), "{report:?}");
}

/// A store with containers of so many one-byte chunks each, whose bytes nobody reads, and one segment of them. `change`
/// changes the records.
fn many(chunks: &[u32], change: impl FnOnce(&mut Vec<IndexRecord>)) -> (MemoryStore, Vec<String>) {
    let (store, mut ids, mut records, mut names) = (MemoryStore::new(), Vec::new(), Vec::new(), Vec::new());
    for (number, count) in (0u32..).zip(chunks) {
        let print = |entry: u32| KEY.fingerprint(&[number.to_le_bytes(), entry.to_le_bytes()].concat());
        let entry = |entry: u32| (print(entry), 1, entry % 100, 1, OperationList::default());
        let sealed = container(&(0..*count).map(entry).collect::<Vec<_>>());
        put(&store, &sealed);
        ids.push(sealed.id());
        names.push(sealed.blob_name().to_string());
        records.extend((0..*count).map(|entry| IndexRecord { fingerprint: print(entry), container: number, entry }));
    }
    change(&mut records);
    write_segment(&store, NewSegment::padded([7; 16]), &ids, &[], records).unwrap();
    (store, names)
}

#[test]
fn the_index_of_a_container_is_read_as_often_whatever_the_records() {
    let reads = |chunks: &[u32]| {
        let store = Arc::new(CountingStore::new(many(chunks, |_| {}).0));
        let report = run(&store, false);
        assert_eq!(report.defect_count, 0, "{report:?}");
        store.counts().ranges
    };
    // Twice three for each container, here and in the check of containers, and the pages.
    assert!(reads(&[10, 10, 10]) < 35);
    assert!(reads(&[2000, 2000, 2000]) < 35);
}

#[test]
fn wrong_records_are_found_in_the_largest_segment() {
    let swap = |records: &mut Vec<IndexRecord>| {
        let at = |container, entry| {
            records.iter().position(|record| (record.container, record.entry) == (container, entry)).unwrap()
        };
        let [one, other] = [at(1, 3), at(1, 30)];
        (records[one].entry, records[other].entry) = (30, 3);
    };
    // Both are named, whatever else the segment has.
    let (store, names) = many(&[500, 40, 500], swap);
    let report = run(&Arc::new(store), false);
    assert_eq!(report.defect_count, 2, "{report:?}");
    let is_named = |text: &String| text.starts_with("index/") && text.ends_with(&format!("of {}", names[1]));
    assert!(report.defects.iter().all(|text| text.contains("is not entry") && is_named(text)), "{report:?}");

    // One record too few, one of another container, and none at all.
    let lose = |records: &mut Vec<IndexRecord>| {
        records.retain(|record| (record.container, record.entry) != (0, 499));
        let moved = records.iter_mut().find(|record| (record.container, record.entry) == (1, 7)).unwrap();
        (moved.container, moved.entry) = (3, 10);
        records.retain(|record| record.container != 2);
    };
    let (store, names) = many(&[500, 40, 10, 10], lose);
    let report = run(&Arc::new(store), false);
    let named = |number: usize, text: &str| {
        let id = names[number].rsplit('/').next().unwrap();
        report.defects.iter().filter(|defect| defect.contains(id) && defect.contains(text)).count()
    };
    assert_eq!([named(0, "499 records"), named(1, "39 records"), named(2, "0 records")], [1, 1, 1], "{report:?}");
    assert_eq!(named(3, "is not entry 10"), 1, "{report:?}");

    // More than are compared.
    let (store, names) = many(&[40, 40, 40], |records| records.iter_mut().for_each(|record| record.entry += 1));
    let report = run(&Arc::new(store), false);
    assert_eq!(report.defect_count, 42, "{report:?}");
    let named = |name: &String| {
        let end = format!(": not all records of {name} are right");
        report.defects.iter().any(|defect| defect.starts_with("index/") && defect.ends_with(&end))
    };
    assert_eq!(names.iter().filter(|name| named(name)).count(), 2, "{report:?}");
}

#[test]
fn a_damaged_page_does_not_hide_that_others_are_wrong_or_not_compared() {
    let shift = |records: &mut Vec<IndexRecord>| records.iter_mut().for_each(|record| record.entry ^= 1);
    let (store, names) = many(&[2000, 60, 2000], shift);
    let segment = store.list(BlobKind::Segment.into()).unwrap().remove(0);
    let mut bytes = store.get(&segment.name, segment.len).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    store.replace(&segment.name, &bytes);
    let report = run(&Arc::new(store), false);
    let wrong = report.defects.iter().filter(|it| it.contains("is not entry") && it.ends_with(&names[1])).count();
    assert!(wrong > 50 && report.defect_count == 2 + wrong as u64, "{report:?}");
    let is_named = |defect: &String| defect.contains("the records of 2 containers were not compared");
    assert!(report.defects.iter().any(is_named), "{report:?}");
}

#[test]
fn a_container_of_an_interrupted_backup_is_unreferenced_and_no_defect() {
    let store = Arc::new(MemoryStore::new());
    put(&store, &sound());
    for read_data in [false, true] {
        let report = run(&store, read_data);
        assert_eq!((report.defect_count, report.unreferenced_containers, report.containers), (0, 1, 1), "{report:?}");
    }
}

#[test]
fn an_interruption_ends_the_check() {
    let store = Arc::new(MemoryStore::new());
    put(&store, &sound());
    let stop = Arc::new(AtomicBool::new(true));
    let repository = Repository {
        store: store.clone(),
        parity: Arc::new(ParityStore::new(store)),
        id: String::new(),
        key: KEY,
        config: RepositoryConfig::default(),
        writer_features: 0,
        salts: Salts::default(),
        encryption: None,
        requests: Arc::default(),
        config_is_doubtful: true,
        clock: crate::repo::clock::Clock::default(),
        cache_directory: None,
    };
    let outcome = check(&repository, &Config::default(), true, &Progress::default(), &stop);
    assert!(matches!(outcome, Err(Error::Interrupted)));
}
