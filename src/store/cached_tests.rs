//! Tests of the store that caches blobs on the local disk.

use std::sync::Arc;

use super::*;
use crate::crypto::{CipherSuite, Keyring, SecretKey};
use crate::store::named;
use crate::store::{CountingStore, MemoryStore, SealedStore, StoreExt, contract, read_again};

type Counted = Arc<CountingStore<Arc<MemoryStore>>>;

/// A store, the requests that reach it, and one that keeps copies of it.
struct Fixture {
    directory: tempfile::TempDir,
    memory: Arc<MemoryStore>,
    counted: Counted,
}

impl Fixture {
    fn new() -> Self {
        let (directory, memory) = (tempfile::tempdir().unwrap(), Arc::<MemoryStore>::default());
        Fixture { directory, counted: Arc::new(CountingStore::new(memory.clone())), memory }
    }

    /// Opens the store as another process would.
    fn open(&self) -> CachedStore<Counted> {
        CachedStore::new(self.counted.clone(), self.directory.path().join("blobs"), 1 << 30)
    }

    fn reads(&self) -> u64 {
        let counts = self.counted.counts();
        counts.gets + counts.ranges + counts.heads
    }

    fn files(&self) -> Vec<PathBuf> {
        let shards = std::fs::read_dir(self.directory.path().join("blobs")).into_iter().flatten().flatten();
        shards.flat_map(|shard| std::fs::read_dir(shard.path()).unwrap().flatten().map(|file| file.path())).collect()
    }
}

fn bytes(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at / 3) as u8 ^ seed).collect()
}

/// Puts a container whose bytes from `from` on will be read again.
fn put_cached(store: &impl Store, parts: &[&[u8]], from: u64) -> BlobName {
    let options = PutOptions { read_again_from: Some(from), ..PutOptions::default() };
    store.put(NewName::Hashed(BlobKind::Container), parts, options).unwrap().name
}

#[test]
fn meets_the_contract() {
    contract::check(&Fixture::new().open());
}

#[test]
fn a_segment_is_fetched_by_one_request_and_later_processes_need_none() {
    let fixture = Fixture::new();
    let whole = bytes(200_000, 1);
    let name = fixture.memory.put_hashed(BlobKind::Segment, &[&whole]).unwrap();
    for requests in [1, 0] {
        let store = fixture.open();
        store.list(BlobKind::Segment.into()).unwrap();
        let before = fixture.reads();
        for offset in (0..190_000).step_by(4096) {
            assert_eq!(store.get_range(&name, offset, 5000, Reading::Once).unwrap(), whole[offset as usize..][..5000]);
        }
        assert_eq!(store.len_of(&name).unwrap(), Some(200_000));
        assert_eq!(fixture.reads() - before, requests);
    }
}

#[test]
fn what_was_put_is_not_read_from_the_store() {
    let fixture = Fixture::new();
    let whole = bytes(20 << 20, 2);
    let store = fixture.open();
    let (head, tail) = whole.split_at(7_000_000);
    let stream = &mut io::Cursor::new(&whole);
    let segment = store.put_stream(NewName::Hashed(BlobKind::Segment), 20 << 20, stream).unwrap().name;
    let small = store.put_hashed(BlobKind::Snapshot, &[b"a", b"b"]).unwrap();
    let index_at = (20 << 20) - 300_000;
    let container = put_cached(&store, &[head, tail], index_at);
    drop(store);
    let store = fixture.open();
    store.list(BlobPrefix::All).unwrap();
    let before = fixture.reads();
    assert!(store.get(&segment, 20 << 20).unwrap() == whole);
    assert_eq!(store.get_range(&segment, (8 << 20) - 1, 2, Reading::Once).unwrap(), whole[(8 << 20) - 1..][..2]);
    assert_eq!(store.get(&small, 2).unwrap(), b"ab");
    for (start, len) in [(index_at, 300_000), (0, 64), (64, 16_400), ((20 << 20) - 64, 64)] {
        assert!(
            store.get_range(&container, start, len, Reading::Again).unwrap() == whole[start as usize..][..len],
            "{start}"
        );
    }
    assert_eq!(fixture.reads(), before);
}

#[test]
fn reads_of_data_are_not_kept() {
    let fixture = Fixture::new();
    let whole = bytes(9 << 20, 3);
    let name = fixture.memory.put_hashed(BlobKind::Container, &[&whole]).unwrap();
    let store = fixture.open();
    store.list(BlobKind::Container.into()).unwrap();
    for _ in 0..2 {
        let before = fixture.reads();
        assert!(store.get_range(&name, 100, 1 << 20, Reading::Once).unwrap() == whole[100..][..1 << 20]);
        assert_eq!(fixture.reads() - before, 1);
    }
    assert_eq!(fixture.files(), [] as [PathBuf; 0]);
}

#[test]
fn any_kept_range_of_a_container_is_right_and_read_once() {
    let fixture = Fixture::new();
    for len in [10usize, 100_000, 200_000, 1 << 20, (9 << 20) + 5, (20 << 20) + 1] {
        let whole = bytes(len, len as u8);
        let name = fixture.memory.put_hashed(BlobKind::Container, &[&whole]).unwrap();
        let store = fixture.open();
        store.list(BlobKind::Container.into()).unwrap();
        let ends = [0, 1, 64, 16_464, 32 << 10, 4 << 20, 8 << 20, len / 2, len - 1, len];
        let ranges: Vec<(usize, usize)> =
            ends.iter().flat_map(|start| ends.map(|end| (*start, end))).filter(|(s, e)| s <= e && *e <= len).collect();
        for round in 0..2 {
            let before = fixture.reads();
            for (start, end) in &ranges {
                let read = store.get_range(&name, *start as u64, end - start, Reading::Again).unwrap();
                assert!(read == whole[*start..*end], "{start}..{end} of {len}");
            }
            assert!(round == 0 || fixture.reads() == before, "{len}: {} reads", fixture.reads() - before);
        }
        assert!(store.get_range(&name, 1, len, Reading::Again).is_err(), "beyond the end");
    }
}

#[test]
fn a_blob_that_the_store_does_not_list_is_not_there() {
    let fixture = Fixture::new();
    let store = fixture.open();
    let whole = bytes(100_000, 4);
    let name = put_cached(&store, &[&whole], 0);
    let segment = store.put_hashed(BlobKind::Segment, &[&whole]).unwrap();
    // Another process prunes.
    fixture.memory.delete(&name, Durable::OnReturn).unwrap();
    fixture.memory.delete(&segment, Durable::OnReturn).unwrap();
    assert!(store.list(BlobPrefix::All).unwrap().is_empty() && store.head(&name).unwrap().is_none());
    for store in [store, fixture.open()] {
        for name in [&name, &segment] {
            assert!(matches!(store.get_range(name, 0, 10, Reading::Again), Err(Error::BlobMissing { .. })), "{name}");
            assert!(matches!(store.get(name, 1 << 20), Err(Error::BlobMissing { .. })), "{name}");
            assert_eq!(store.len_of(name).unwrap(), None);
        }
    }
    assert!(!fixture.files().is_empty(), "the copies are there");
}

#[test]
fn damaged_and_deleted_copies_are_fetched_again() {
    let fixture = Fixture::new();
    let whole = bytes(300_000, 5);
    let store = fixture.open();
    let name = store.put_hashed(BlobKind::Segment, &[&whole]).unwrap();
    for damage in 0..4 {
        for file in fixture.files() {
            let mut copy = std::fs::read(&file).unwrap();
            match damage {
                0 => copy[150_000] ^= 1,
                1 => copy.truncate(1000),
                2 => copy.clear(),
                _ => {
                    std::fs::remove_dir_all(fixture.directory.path().join("blobs")).unwrap();
                    break;
                }
            }
            std::fs::write(&file, &copy).unwrap();
        }
        for requests in [1, 0] {
            let before = fixture.reads();
            assert!(store.get(&name, 1 << 20).unwrap() == whole, "damage {damage}");
            assert_eq!(fixture.reads() - before, requests, "damage {damage}");
        }
    }
}

#[test]
fn a_copy_of_damaged_bytes_is_not_kept() {
    let fixture = Fixture::new();
    let name = BlobName::hashed(BlobKind::Segment, blake3::hash(b"right").as_bytes());
    fixture.memory.put_if_absent(&name, &[b"wrong"]).unwrap();
    let store = fixture.open();
    store.list(BlobKind::Segment.into()).unwrap();
    assert_eq!(store.get_range(&name, 0, 5, Reading::Once).unwrap(), b"wrong");
    assert_eq!(fixture.files(), [] as [PathBuf; 0]);
    fixture.memory.replace(&name, b"right");
    assert_eq!(store.get(&name, 5).unwrap(), b"right");
}

#[test]
fn short_lived_and_secret_blobs_are_never_kept() {
    let fixture = Fixture::new();
    let store = fixture.open();
    for directory in ["keys", "intents", "pending", "config"] {
        let name = named(&format!("{directory}/{}", blake3::hash(b"text").to_hex()));
        store.put_if_absent(&name, &[b"text"]).unwrap();
        store.list(BlobPrefix::All).unwrap();
        assert_eq!(store.get(&name, 10).unwrap(), b"text");
        assert_eq!(store.get_range(&name, 1, 2, Reading::Again).unwrap(), b"ex");
    }
    assert_eq!(fixture.files(), [] as [PathBuf; 0]);
}

#[test]
fn the_copies_of_an_encrypted_store_are_sealed_and_serve_it() {
    let fixture = Fixture::new();
    let keyring = Arc::new(Keyring::new(SecretKey::new([1; 32]), [2; 32]).unwrap());
    let open = || SealedStore::new(Arc::new(fixture.open()), CipherSuite::Aes256Gcm, keyring.clone());
    let whole = vec![b'x'; 3 << 20];
    let store = open();
    let names = [
        store.put_hashed(BlobKind::Segment, &[&whole]).unwrap(),
        put_cached(&store, &[&whole], 0),
        put_cached(&store, &[&whole], (3 << 20) - 40_000),
    ];
    let store = open();
    store.list(BlobPrefix::All).unwrap();
    let before = fixture.reads();
    for name in &names {
        for (offset, len) in [(0, 64), ((3 << 20) - 64, 64), ((3 << 20) - 40_000, 40_000)] {
            assert_eq!(store.len_of(name).unwrap(), Some(3 << 20));
            assert!(
                store.get_range(name, offset, len, Reading::Again).unwrap() == whole[offset as usize..][..len],
                "{name}"
            );
        }
    }
    assert_eq!(fixture.reads(), before);
    for file in fixture.files() {
        let copy = std::fs::read(&file).unwrap();
        assert!(!copy.windows(16).any(|window| window == &whole[..16]), "{} is in the clear", file.display());
    }
}

#[test]
fn threads_that_want_one_block_send_one_request() {
    let fixture = Fixture::new();
    let whole = bytes(1 << 20, 6);
    let name = fixture.memory.put_hashed(BlobKind::Segment, &[&whole]).unwrap();
    let store = fixture.open();
    store.list(BlobKind::Segment.into()).unwrap();
    let before = fixture.reads();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert!(store.get(&name, 1 << 20).unwrap() == whole));
        }
    });
    assert_eq!(fixture.reads() - before, 1);
}

#[test]
fn a_temporary_cache_begins_empty_and_leaves_nothing() {
    let fixture = Fixture::new();
    let name = fixture.open().put_hashed(BlobKind::Segment, &[b"text"]).unwrap();
    let directory = fixture.directory.path().join("blobs");
    let store = CachedStore::temporary(fixture.counted.clone(), directory.clone(), 1 << 20);
    store.list(BlobKind::Segment.into()).unwrap();
    for requests in [1, 0] {
        let before = fixture.reads();
        store.get(&name, 10).unwrap();
        assert_eq!(fixture.reads() - before, requests);
    }
    drop(store);
    assert!(!directory.exists());
}

#[test]
fn a_temporary_cache_reads_each_container_by_one_request_even_if_it_is_damaged() {
    let fixture = Fixture::new();
    let whole = bytes(3 << 20, 7);
    let name = fixture.memory.put_hashed(BlobKind::Container, &[&whole]).unwrap();
    let damaged = BlobName::hashed(BlobKind::Container, blake3::hash(b"other").as_bytes());
    fixture.memory.put_if_absent(&damaged, &[&whole]).unwrap();
    let store = CachedStore::temporary(fixture.counted.clone(), fixture.directory.path().join("fresh"), 1 << 30);
    store.list(BlobKind::Container.into()).unwrap();
    for name in [&name, &damaged] {
        let before = fixture.reads();
        for offset in (0..3 << 20).step_by(100_000) {
            let len = (whole.len() - offset).min(150_000);
            assert!(store.get_range(name, offset as u64, len, Reading::Once).unwrap() == whole[offset..][..len]);
            assert!(store.get_range(name, offset as u64, len, Reading::Again).unwrap() == whole[offset..][..len]);
        }
        assert_eq!(store.stored_hash(name, &|| Ok(())).unwrap(), *blake3::hash(&whole).as_bytes());
        assert!(store.get_range(name, 1, whole.len(), Reading::Once).is_err());
        assert_eq!(fixture.reads() - before, 1);
    }
}

#[test]
fn a_copy_whose_bytes_were_wrong_on_the_way_is_read_again() {
    let fixture = Fixture::new();
    let whole = bytes(20 << 20, 9);
    for kind in [BlobKind::Segment, BlobKind::Container] {
        let name = fixture.memory.put_hashed(kind, &[&whole]).unwrap();
        let mut wrong = whole.clone();
        let at = whole.len() - 50;
        wrong[at] ^= 1;
        let read = |store: &CachedStore<Counted>| {
            let bytes = store.get_range(&name, at as u64, 10, Reading::Again)?;
            if bytes == whole[at..at + 10] {
                return Ok(bytes);
            }
            Err(Error::corrupt(&name, at as u64, "the bytes that were put", "others"))
        };
        // The store, or the network, gives other bytes once.
        fixture.memory.replace(&name, &wrong);
        let store = fixture.open();
        store.list(BlobPrefix::All).unwrap();
        assert!(read(&store).is_err());
        fixture.memory.replace(&name, &whole);
        assert!(read(&store).is_err(), "{name}: this test must begin with a wrong copy");
        assert!(read_again(&store, &name, || read(&store)).is_ok(), "{name}");
        assert!(read(&store).is_ok() && !fixture.files().is_empty());
        // Damage in the store stays damage.
        fixture.memory.replace(&name, &wrong);
        assert!(store.other_copy(&name).is_there && read_again(&store, &name, || read(&store)).is_err());
    }
}
