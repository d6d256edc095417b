//! The contract of stores as one test suite. Each implementation and each wrapper runs [`check`] on an empty store.
//! `tests/it/servers` includes this file, for stores that need a server.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use super::{Error, ListedBlob, Store};

/// Runs the whole suite on the empty `store` and leaves it empty.
pub(super) fn check<S: Store>(store: &S) {
    check_with(store, 1);
}

/// As [`check`]. Of [`WRITERS`] that put one name at the same moment, at most `winners_max` are told that they stored
/// it: more than one if the store cannot refuse a name that was taken a moment ago.
pub(super) fn check_with<S: Store>(store: &S, winners_max: usize) {
    check_all_but_races(store);
    concurrent_puts(store, winners_max);
    remove_all(store);
}

fn remove_all(store: &impl Store) {
    for listed in store.list("").expect("lists") {
        store.delete(&listed.name).expect("deletes");
    }
    assert_eq!(store.list("").expect("lists"), []);
}

fn check_all_but_races<S: Store>(store: &S) {
    let parts: [fn(&S); 8] =
        [reads, streams, never_replaces, overwrites, missing_blobs, limits, listings, invalid_names];
    assert_eq!(store.list("").expect("lists"), []);
    for part in parts {
        part(store);
        remove_all(store);
    }
    assert!(!store.location().is_empty());
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
    for (name, parts) in cases {
        let whole = parts.concat();
        assert!(store.put_if_absent(name, parts).expect("puts"), "{name} is new");
        assert_eq!(store.get(name, whole.len() as u64).expect("reads"), whole, "{name}");
        let head = store.head(name).expect("queries").expect("exists");
        assert_eq!(head.len, whole.len() as u64, "{name}");
        assert!(head.modified >= before && head.modified <= SystemTime::now() + Duration::from_secs(2), "{name}");
        for (start, end) in [(0, whole.len()), (whole.len() / 3, whole.len() / 2), (whole.len(), whole.len())] {
            let range = store.get_range(name, start as u64, end - start).expect("reads");
            assert_eq!(range, &whole[start..end], "{name} {start}..{end}");
        }
    }
}

fn streams(store: &impl Store) {
    for len in [0u64, 1, 16 << 20, (33 << 20) + 5] {
        let whole: Vec<u8> = (0..len).map(|at| (at / 7) as u8).collect();
        let name = format!("index/{len}");
        for wrong in [len + 1, len.wrapping_sub(1)] {
            store.put_stream_if_absent(&name, wrong, &mut whole.as_slice()).expect_err("another length");
        }
        assert!(store.put_stream_if_absent(&name, len, &mut whole.as_slice()).expect("puts"), "{len}");
        assert!(!store.put_stream_if_absent(&name, len, &mut whole.as_slice()).expect("exists"), "{len}");
        assert!(store.get(&name, len).expect("reads") == whole, "{len}");
    }
    struct Failing;
    impl std::io::Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("a bad disk"))
        }
    }
    store.put_stream_if_absent("index/bad", 5, &mut Failing).expect_err("a stream that fails");
    assert!(store.head("index/bad").expect("queries").is_none());
}

fn never_replaces(store: &impl Store) {
    assert!(store.put_if_absent("a/b", &[b"first"]).expect("puts"));
    assert!(!store.put_if_absent("a/b", &[b"second"]).expect("exists"));
    assert_eq!(store.get("a/b", 100).expect("reads"), b"first");
    assert_eq!(store.get_range("a/b", 0, 5).expect("reads"), b"first");
    store.delete("a/b").expect("deletes");
    assert!(store.put_if_absent("a/b", &[b"second"]).expect("puts"), "a deleted name is free");
    assert_eq!(store.get_range("a/b", 0, 6).expect("reads"), b"second");
}

fn overwrites(store: &impl Store) {
    store.overwrite("a/b", &[b"fir", b"st"]).expect("puts a new blob");
    assert_eq!(store.get_range("a/b", 0, 5).expect("reads"), b"first");
    store.overwrite("a/b", &[b"second"]).expect("replaces it");
    assert_eq!(store.get_range("a/b", 0, 6).expect("reads"), b"second", "not from a cache");
    assert_eq!(store.get("a/b", 100).expect("reads"), b"second");
    assert_eq!(store.list("a").expect("lists").len(), 1);
    let stored = store.get_stored("a/b", 100).expect("reads what is stored");
    store.overwrite("a/b", &[b"damage"]).expect("replaces it");
    store.overwrite_stored("a/b", &stored).expect("replaces it");
    assert_eq!(store.get_stored("a/b", 100).expect("reads what is stored"), stored);
    assert_eq!(store.get("a/b", 100).expect("reads"), b"second");
}

fn missing_blobs(store: &impl Store) {
    store.put_if_absent("a/b", &[b"x"]).expect("puts");
    for name in ["none", "a/none", "none/b", "a/b/c"] {
        assert!(matches!(store.get(name, 10), Err(Error::BlobMissing { what }) if what == name), "{name}");
        assert!(matches!(store.get_range(name, 0, 0), Err(Error::BlobMissing { what }) if what == name), "{name}");
        assert_eq!(store.head(name).expect("queries"), None, "{name}");
        store.delete(name).expect("nothing to delete");
    }
    store.get_range("a/b", 0, 1).expect("reads");
    store.delete("a/b").expect("deletes");
    assert!(matches!(store.get_range("a/b", 0, 1), Err(Error::BlobMissing { .. })), "not from a cache");
}

fn limits(store: &impl Store) {
    store.put_if_absent("a/b", &[b"12345"]).expect("puts");
    let text = store.get("a/b", 4).expect_err("too long").to_string();
    assert!(text.contains("a/b") && text.contains("at most 4 bytes") && text.contains("5 bytes"), "{text}");
    for (offset, len) in [(0, 6), (5, 1), (6, 0), (u64::MAX, 1), (u64::MAX, usize::MAX), (1, usize::MAX)] {
        let error = store.get_range("a/b", offset, len).expect_err("beyond the end");
        let text = error.to_string();
        assert!(matches!(error, Error::Corrupt { offset: at, .. } if at == offset), "{text}");
        assert!(text.contains("a/b") && text.contains(&format!("expected {len} bytes")), "{text}");
    }
}

fn listings(store: &impl Store) {
    let names = ["containers/00/00ff", "containers/ab/abcd", "containers/ab/abce", "containers-2/x", "config"];
    for (number, name) in names.iter().enumerate() {
        store.put_if_absent(name, &[&b"12345"[..number]]).expect("puts");
    }
    let listed = |number: usize| ListedBlob { name: names[number].into(), len: number as u64 };
    assert_eq!(store.list("containers").expect("lists"), [listed(0), listed(1), listed(2)]);
    assert_eq!(store.list("containers/ab").expect("lists"), [listed(1), listed(2)]);
    assert_eq!(store.list("none").expect("lists"), []);
    assert_eq!(store.list("config").expect("lists"), [], "a blob is not a prefix of itself");
    assert_eq!(store.list("").expect("lists").len(), names.len());
    assert_eq!(store.list("containers/a").expect("lists"), [], "a prefix consists of whole components");
    assert!(!store.is_unused().expect("lists"));
}

fn invalid_names(store: &impl Store) {
    let long = "a".repeat(256);
    let names =
        ["", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", ".a", "A", "a b", "a\0", "ä", "tmp/a"];
    for name in names.into_iter().chain([long.as_str()]) {
        let usage = |error: Error| assert!(matches!(error, Error::Usage(_)), "{name:?}: {error}");
        usage(store.put_if_absent(name, &[b"x"]).expect_err(name));
        usage(store.overwrite(name, &[b"x"]).expect_err(name));
        usage(store.get(name, 10).expect_err(name));
        usage(store.get_range(name, 0, 0).expect_err(name));
        usage(store.head(name).expect_err(name));
        usage(store.delete(name).expect_err(name));
        if !name.is_empty() {
            usage(store.list(name).expect_err(name));
        }
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
        let name = format!("race/{round}");
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
