//! The contract of stores as one test suite. Each implementation and each wrapper runs [`check`] on an empty store.
//! `tests/it/servers` includes this file, for stores that need a server.

use std::io::Cursor;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use super::{
    BlobKind, BlobName, BlobPrefix, Durable, Error, ListedBlob, NewName, PutOptions, Reading, Store, StoreExt,
};

/// Runs the whole suite on the empty `store` and leaves it empty.
pub(super) fn check<S: Store>(store: &S) {
    check_with(store, 1);
}

/// Like [`check`]. Of [`WRITERS`] that put one name at the same moment, at most `winners_max` are told that they stored
/// it: more than one if the store cannot refuse a name that was taken a moment ago.
pub(super) fn check_with<S: Store>(store: &S, winners_max: usize) {
    check_all_but_races(store);
    concurrent_puts(store, winners_max);
    remove_all(store);
}

fn remove_all(store: &impl Store) {
    let mut names = Vec::new();
    for (listed, durable) in list(store).into_iter().zip([Durable::OnReturn, Durable::AfterSync].into_iter().cycle()) {
        store.delete(&listed.name, durable).expect("deletes");
        names.push(listed.name);
    }
    names.push(name("containers/00/of-a-directory-that-is-not-there"));
    store.sync_deletions(&names).expect("syncs what was deleted and what was never there");
    assert_eq!(list(store), []);
}

fn list(store: &impl Store) -> Vec<ListedBlob> {
    store.list(BlobPrefix::All).expect("lists")
}

fn name(text: &str) -> BlobName {
    BlobName::parse(text).expect(text)
}

fn check_all_but_races<S: Store>(store: &S) {
    let parts: [fn(&S); 9] =
        [reads, streams, hashed_names, never_replaces, overwrites, missing_blobs, limits, listings, the_rest];
    assert_eq!(list(store), []);
    for part in parts {
        part(store);
        remove_all(store);
    }
    assert!(!store.properties().location.is_empty());
    assert!(store.properties().requests_max > 0);
    assert_eq!(store.clean_temporaries().expect("cleans"), 0, "every writer has finished");
}

fn reads(store: &impl Store) {
    let long = vec![7u8; 300_000];
    let cases: [(&str, &[&[u8]]); 5] = [
        ("config", &[b"one"]),
        ("containers/ab/abcdef", &[b"one", b"", b"two"]),
        ("empty", &[]),
        ("also-empty", &[b""]),
        ("long_one.v1", &[b"x", &long, b"y"]),
    ];
    let before = SystemTime::now() - Duration::from_secs(2);
    for (text, parts) in cases {
        let (name, whole) = (name(text), parts.concat());
        assert!(store.put_if_absent(&name, parts).expect("puts"), "{name} is new");
        assert_eq!(store.get(&name, whole.len() as u64).expect("reads"), whole, "{name}");
        let head = store.head(&name).expect("queries").expect("exists");
        assert_eq!(head.len, whole.len() as u64, "{name}");
        assert_eq!(store.len_of(&name).expect("queries"), Some(head.len), "{name}");
        assert!(head.modified >= before && head.modified <= SystemTime::now() + Duration::from_secs(2), "{name}");
        for (start, end) in [(0, whole.len()), (whole.len() / 3, whole.len() / 2), (whole.len(), whole.len())] {
            for reading in [Reading::Once, Reading::Again, Reading::FromStore] {
                let range = store.get_range(&name, start as u64, end - start, reading).expect("reads");
                assert_eq!(range, &whole[start..end], "{name} {start}..{end} {reading:?}");
            }
        }
    }
}

fn streams(store: &impl Store) {
    for len in [0u64, 1, 16 << 20, (33 << 20) + 5] {
        let whole: Vec<u8> = (0..len).map(|at| (at / 7) as u8).collect();
        let name = name(&format!("index/{len}"));
        let put = |len: u64| store.put_stream(NewName::Given(&name), len, &mut Cursor::new(&whole));
        for wrong in [len + 1, len.wrapping_sub(1)] {
            put(wrong).expect_err("another length");
        }
        assert!(put(len).expect("puts").is_new, "{len}");
        assert!(!put(len).expect("exists").is_new, "{len}");
        assert!(store.get(&name, len).expect("reads") == whole, "{len}");
    }
    struct Failing;
    impl std::io::Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("a bad disk"))
        }
    }
    impl std::io::Seek for Failing {
        fn seek(&mut self, _: std::io::SeekFrom) -> std::io::Result<u64> {
            Ok(0)
        }
    }
    let bad = name("index/bad");
    store.put_stream(NewName::Given(&bad), 5, &mut Failing).expect_err("a stream that fails");
    assert!(store.head(&bad).expect("queries").is_none());
}

fn hashed_names(store: &impl Store) {
    for kind in [BlobKind::Segment, BlobKind::Container, BlobKind::OptionalMark] {
        let whole: Vec<u8> = (0..100_000u32).map(|at| (at / 5) as u8).collect();
        let (one, other) = whole.split_at(33_333);
        let options = PutOptions { read_again_from: Some(70_000), ..PutOptions::default() };
        let put = store.put(NewName::Hashed(kind), &[one, other], options).expect("puts");
        let streamed = store.put_stream(NewName::Hashed(kind), whole.len() as u64, &mut Cursor::new(&whole));
        for name in [put.name, streamed.expect("puts").name] {
            assert_eq!(name.kind(), kind);
            assert!(store.get(&name, 1 << 20).expect("reads") == whole);
            let stored = store.get_stored(&name, 1 << 20).expect("reads");
            assert_eq!(name.hash(), Some(*blake3::hash(&stored).as_bytes()), "{name}");
            assert_eq!(store.stored_hash(&name, &|| Ok(())).expect("reads"), *blake3::hash(&stored).as_bytes());
            assert!(store.open_stored(&name, stored).expect("opens") == whole);
            assert!(store.get_range(&name, 69_000, 20_000, Reading::Again).expect("reads") == whole[69_000..89_000]);
        }
    }
}

fn never_replaces(store: &impl Store) {
    let name = name("a/b");
    assert!(store.put_if_absent(&name, &[b"first"]).expect("puts"));
    assert!(!store.put_if_absent(&name, &[b"second"]).expect("exists"));
    assert_eq!(store.get(&name, 100).expect("reads"), b"first");
    assert_eq!(store.get_range(&name, 0, 5, Reading::Once).expect("reads"), b"first");
    store.delete(&name, Durable::OnReturn).expect("deletes");
    assert!(store.put_if_absent(&name, &[b"second"]).expect("puts"), "a deleted name is free");
    assert_eq!(store.get_range(&name, 0, 6, Reading::Once).expect("reads"), b"second");
}

fn overwrites(store: &impl Store) {
    let name = name("snapshots/b");
    store.overwrite(&name, &[b"fir", b"st"], PutOptions::default()).expect("puts a new blob");
    assert_eq!(store.get_range(&name, 0, 5, Reading::Once).expect("reads"), b"first");
    store.overwrite(&name, &[b"second"], PutOptions::default()).expect("replaces it");
    assert_eq!(store.get_range(&name, 0, 6, Reading::Once).expect("reads"), b"second", "not from a cache");
    assert_eq!(store.get(&name, 100).expect("reads"), b"second");
    assert_eq!(store.list(BlobKind::Snapshot.into()).expect("lists").len(), 1);
    let stored = store.get_stored(&name, 100).expect("reads what is stored");
    store.overwrite(&name, &[b"damage"], PutOptions::default()).expect("replaces it");
    assert!(store.overwrite_stored(&name, &stored, PutOptions::default()).expect("replaces it"));
    assert_eq!(store.get_stored(&name, 100).expect("reads what is stored"), stored);
    assert_eq!(store.get(&name, 100).expect("reads"), b"second");
    assert!(store.overwrite_if_present(&name, &[b"again"], PutOptions::default()).expect("replaces it"));
    assert_eq!(store.get(&name, 100).expect("reads"), b"again", "not from a cache");
    store.delete(&name, Durable::OnReturn).expect("deletes");
    assert!(!store.overwrite_if_present(&name, &[b"x"], PutOptions::default()).expect("writes nothing"));
    assert!(!store.overwrite_stored(&name, &stored, PutOptions::default()).expect("writes nothing"));
    assert!(store.head(&name).expect("looks").is_none(), "what is deleted stays deleted");
}

fn missing_blobs(store: &impl Store) {
    let there = name("a/b");
    store.put_if_absent(&there, &[b"x"]).expect("puts");
    for text in ["none", "a/none", "none/b", "a/b/c"] {
        let name = name(text);
        let is_missing =
            |error: Error| assert!(matches!(&error, Error::BlobMissing { what } if what == text), "{error}");
        is_missing(store.get(&name, 10).expect_err(text));
        is_missing(store.get_range(&name, 0, 0, Reading::Once).expect_err(text));
        is_missing(store.stored_hash(&name, &|| Ok(())).expect_err(text));
        assert_eq!(store.head(&name).expect("queries"), None, "{name}");
        assert_eq!(store.len_of(&name).expect("queries"), None, "{name}");
        store.delete(&name, Durable::OnReturn).expect("nothing to delete");
    }
    store.get_range(&there, 0, 1, Reading::Once).expect("reads");
    store.delete(&there, Durable::OnReturn).expect("deletes");
    assert!(matches!(store.get_range(&there, 0, 1, Reading::Once), Err(Error::BlobMissing { .. })), "not from a cache");
}

fn limits(store: &impl Store) {
    let name = name("a/b");
    store.put_if_absent(&name, &[b"12345"]).expect("puts");
    let text = store.get(&name, 4).expect_err("too long").to_string();
    assert!(text.contains("a/b") && text.contains("at most 4 bytes") && text.contains("5 bytes"), "{text}");
    for (offset, len) in [(0, 6), (5, 1), (6, 0), (u64::MAX, 1), (u64::MAX, usize::MAX), (1, usize::MAX)] {
        let error = store.get_range(&name, offset, len, Reading::Once).expect_err("beyond the end");
        let text = error.to_string();
        assert!(matches!(error, Error::Corrupt { offset: at, .. } if at == offset), "{text}");
        assert!(text.contains("a/b") && text.contains(&format!("expected {len} bytes")), "{text}");
    }
}

fn listings(store: &impl Store) {
    let names = ["containers/00/00ff", "containers/ab/abcd", "containers/ab/abce", "containers-2/x", "config"];
    for (number, text) in names.iter().enumerate() {
        store.put_if_absent(&name(text), &[&b"12345"[..number]]).expect("puts");
    }
    let listed = |number: usize| ListedBlob { name: name(names[number]), len: number as u64 };
    let list_of = |prefix: BlobPrefix| store.list(prefix).expect("lists");
    assert_eq!(list_of(BlobKind::Container.into()), [listed(0), listed(1), listed(2)]);
    assert_eq!(list_of(BlobPrefix::Containers(0xab)), [listed(1), listed(2)]);
    assert_eq!(list_of(BlobKind::Pending.into()), []);
    assert_eq!(list_of(BlobKind::Config.into()), [], "a blob is not below itself");
    assert_eq!(list(store).len(), names.len());
    assert_eq!(list_of(BlobPrefix::Containers(0xa)), [], "a prefix consists of whole components");
    assert!(!store.is_unused().expect("lists"));
}

/// Methods whose answer depends on the store.
fn the_rest(store: &impl Store) {
    let name = name("config-copy");
    store.put_if_absent(&name, &[b"x"]).expect("puts");
    store.puts_exclusively(&name).expect("looks");
    assert!(!store.other_copy(&name).is_there, "what was not read has no copy");
    assert_eq!(store.get(&name, 10).expect("reads"), b"x");
    if let Some(locks) = store.locks() {
        // A bucket that may have locks can turn out to have none.
        let _ = locks.locked_until(&name);
    }
}

/// Threads that put one name at the same time.
pub(super) const WRITERS: usize = 6;

/// What one of the threads has put.
fn assert_one(seen: &[u8]) {
    assert!(seen.len() == 1500 && seen.iter().all(|byte| *byte == seen[0]), "it is whole");
}

fn concurrent_puts(store: &impl Store, winners_max: usize) {
    for round in 0..20 {
        let name = name(&format!("race/{round}"));
        let winners = AtomicUsize::new(0);
        thread::scope(|scope| {
            for writer in 0..WRITERS as u8 {
                let (name, winners) = (&name, &winners);
                scope.spawn(move || {
                    if store.put_if_absent(name, &[&[writer; 1000], &[writer; 500]]).expect("puts") {
                        winners.fetch_add(1, Ordering::SeqCst);
                    }
                    match store.get(name, 10_000) {
                        // Where puts replace each other, a server may have no version for a moment.
                        Err(Error::BlobMissing { .. }) if winners_max > 1 => {}
                        seen => assert_one(&seen.expect("exists, whoever won")),
                    }
                });
            }
        });
        assert_one(&store.get(&name, 10_000).expect("exists in the end"));
        let winners = winners.into_inner();
        assert!((1..=winners_max).contains(&winners), "{name}: {winners} of {WRITERS} writers stored it");
    }
}
