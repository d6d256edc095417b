//! What records say together, what damage to them costs, and how many there are.

use std::collections::HashSet;
use std::sync::Arc;

use super::record::{ReadRecord, Row, prefix};
use super::*;
use crate::config::RepositoryConfig;
use crate::repo::Repository;
use crate::repo::clock::Clock;
use crate::repo::marks::{Mark, MarkKind};
use crate::store::{BlobKind, BlobName, Durable, FaultyStore, InjectedFault, MemoryStore, Store, StoreExt};
use crate::types::ContainerId;

const MINUTE: i64 = 60 * 1_000_000_000;
/// A time that is a whole minute.
const START: i64 = 30_000_000 * MINUTE;

fn container(number: u64) -> ContainerId {
    ContainerId(*blake3::hash(&number.to_le_bytes()).as_bytes())
}

fn containers(count: u64) -> HashSet<ContainerId> {
    (0..count).map(container).collect()
}

/// A repository in `store`, as one sees it `minutes` after the start.
fn at(store: &Arc<dyn Store>, minutes: i64) -> Repository {
    let mut repository = Repository::open(store.clone()).unwrap();
    repository.clock = Clock::at(START + minutes * MINUTE);
    repository
}

fn store() -> Arc<dyn Store> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    Repository::init(store.clone(), &RepositoryConfig::default()).unwrap();
    store
}

fn run(bytes: u64) -> ReadRun {
    ReadRun { verb: "check".into(), bytes, ..ReadRun::default() }
}

fn names(store: &Arc<dyn Store>) -> Vec<BlobName> {
    store.list(BlobKind::ReadRecord.into()).unwrap().into_iter().map(|blob| blob.name).collect()
}

/// Minutes after the start, and result, of the last read of a container.
fn last(store: &Arc<dyn Store>, minutes: i64, number: u64) -> Option<(i64, bool)> {
    let ledger = ReadLedger::load(store.as_ref(), START + minutes * MINUTE).unwrap();
    ledger.last_read(&container(number)).map(|read| ((read.time_ns - START) / MINUTE, read.is_sound))
}

#[test]
fn the_newest_read_counts_and_few_records_stay() {
    let (store, all) = (store(), containers(10));
    for minutes in 0..200 {
        let (number, is_sound) = (minutes as u64 % 10, minutes % 3 != 0);
        save(&at(&store, minutes), run(minutes as u64), &[(container(number), is_sound)], &all).unwrap();
        assert!(names(&store).len() <= 17, "{minutes}: {}", names(&store).len());
        assert_eq!(last(&store, minutes, number), Some((minutes, is_sound)));
    }
    assert_eq!(last(&store, 200, 3), Some((193, 193 % 3 != 0)));
    let ledger = ReadLedger::load(store.as_ref(), START + 200 * MINUTE).unwrap();
    let bytes: Vec<u64> = ledger.runs.iter().map(|run| run.bytes).collect();
    assert!(bytes.len() >= 64 && bytes.is_sorted() && bytes.last() == Some(&199), "{bytes:?}");
    // A prune has deleted all but one.
    maintain(&at(&store, 200), &containers(1)).unwrap();
    assert_eq!((names(&store).len(), last(&store, 200, 0), last(&store, 200, 3)), (1, Some((190, true)), None));
}

#[test]
fn a_listing_without_any_container_drops_nothing() {
    let (store, all) = (store(), containers(3));
    for number in 0..3 {
        save(&at(&store, number), run(1), &[(container(number as u64), true)], &all).unwrap();
    }
    for minutes in 3..40 {
        save(&at(&store, minutes), run(1), &[], &HashSet::new()).unwrap();
    }
    assert!((0..3).all(|number| last(&store, 40, number) == Some((number as i64, true))));
    assert!(names(&store).len() <= 17, "{}", names(&store).len());
}

#[test]
fn what_is_from_the_future_does_not_count_and_damage_of_the_same_minute_does() {
    let (store, all) = (store(), containers(2));
    save(&at(&store, 100), run(1), &[(container(0), true)], &all).unwrap();
    assert_eq!((last(&store, 90, 0), last(&store, 95, 0)), (None, Some((100, true))));
    save(&at(&store, 100), run(2), &[(container(0), false)], &all).unwrap();
    save(&at(&store, 100), run(3), &[(container(0), true)], &all).unwrap();
    assert_eq!(last(&store, 100, 0), Some((100, false)));
}

#[test]
fn a_failure_at_any_call_loses_at_most_the_own_record() {
    for took_effect in [false, true] {
        for operation in 0.. {
            let (inner, all) = (store(), containers(40));
            for minutes in 0..16 {
                save(&at(&inner, minutes), run(1), &[(container(minutes as u64), true)], &all).unwrap();
            }
            let fault = InjectedFault::PowerCut { operation, took_effect };
            let faulty = Arc::new(FaultyStore::new(inner.clone(), fault));
            let saved = Repository::open(faulty.clone()).and_then(|mut repository| {
                repository.clock = Clock::at(START + 16 * MINUTE);
                save(&repository, run(1), &[(container(16), true)], &all)
            });
            for number in 0..16 {
                assert_eq!(last(&inner, 20, number), Some((number as i64, true)), "{operation}");
            }
            assert!(saved.is_err() || last(&inner, 20, 16).is_some(), "{operation}");
            save(&at(&inner, 17), run(1), &[(container(17), true)], &all).unwrap();
            assert!(last(&inner, 20, 17).is_some() && names(&inner).len() <= 17, "{operation}");
            if faulty.operations() <= operation {
                assert!(saved.is_ok());
                break;
            }
        }
    }
}

#[test]
fn two_machines_that_tidy_at_the_same_time_lose_nothing() {
    let (store, all) = (store(), containers(40));
    let record = |number: u64| ReadRecord {
        runs: vec![run(number)],
        rows: vec![Row { prefix: prefix(&container(number)), minutes: 30_000_000, is_sound: true }],
        taken: Vec::new(),
    };
    let singles: Vec<BlobName> = (0..20).map(|number| record(number).put(store.as_ref()).unwrap()).collect();
    // Each machine took in what it had listed, and has not deleted it yet.
    for range in [0..18, 2..20] {
        let rows = range.clone().flat_map(|number| record(number as u64).rows).collect();
        let taken = singles[range].iter().filter_map(BlobName::hash).collect();
        ReadRecord { rows, taken, runs: Vec::new() }.put(store.as_ref()).unwrap();
    }
    for name in &singles {
        store.delete(name, Durable::OnReturn).unwrap();
    }
    maintain(&at(&store, 1), &all).unwrap();
    assert!((0..20).all(|number| last(&store, 1, number).is_some()));
}

#[test]
fn damaged_records_cost_what_they_say_and_are_deleted() {
    let (store, all) = (store(), containers(2));
    let memory = MemoryStore::new();
    save(&at(&store, 0), run(1), &[(container(0), true)], &all).unwrap();
    let blob = store.get(&names(&store)[0], 1 << 20).unwrap();
    for at in 0..blob.len() {
        let mut flipped = blob.clone();
        flipped[at] ^= 1 << (at % 8);
        memory.replace(&names(&store)[0], &flipped);
        let ledger = ReadLedger::load(&memory, START).unwrap();
        assert!(ledger.unreadable.len() == 1 && ledger.last_read(&container(0)).is_none(), "byte {at}");
    }
    let damaged = BlobName::hashed(BlobKind::ReadRecord, &[7; 32]);
    store.put_if_absent(&damaged, &[b"FHRDREAD, but nothing else"]).unwrap();
    save(&at(&store, 1), run(1), &[(container(1), true)], &all).unwrap();
    assert!(!names(&store).contains(&damaged) && last(&store, 1, 0).is_some());
}

#[test]
fn a_repository_that_is_read_only_gets_no_record() {
    let (store, all) = (store(), containers(1));
    Mark::new(MarkKind::ReadOnly, "the archive is full").save(store.as_ref()).unwrap();
    let saved = save(&at(&store, 0), run(1), &[(container(0), true)], &all);
    assert!(saved.is_err_and(|error| error.to_string().contains("read-only")));
    assert!(names(&store).is_empty());
}

/// A record of this version, byte for byte. Whoever changes it changes the format.
#[test]
fn the_bytes_of_a_record_are_frozen() {
    let store = MemoryStore::new();
    let run = ReadRun {
        time_ns: 1_800_000_000_000_000_000,
        host: "host".into(),
        verb: "verify".into(),
        containers: 2,
        bytes: 256,
        files: 5,
        content_bytes: 1000,
        damaged: 1,
        bytes_of_all: 1024,
        unneeded: None,
    };
    let row = |prefix, minutes, is_sound| Row { prefix, minutes, is_sound };
    let record = || ReadRecord {
        runs: vec![run.clone()],
        rows: vec![row([0xfe; 8], 30_000_001, false), row([1; 8], 30_000_000, true)],
        taken: vec![[9; 32]],
    };
    let name = record().put(&store).unwrap();
    let blob = store.get(&name, 1 << 20).unwrap();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/v1-reads/record");
    assert!(std::fs::read(path).unwrap() == blob, "another format of read records");
    let loaded = ReadRecord::load(&store, &name).unwrap();
    assert_eq!((loaded.runs, loaded.taken), (record().runs, record().taken));
    assert_eq!(loaded.rows, [row([1; 8], 30_000_000, true), row([0xfe; 8], 30_000_001, false)]);
}
