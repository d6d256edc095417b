//! Tests of the store that caches blobs on the local disk.

use std::sync::Arc;

use super::*;
use crate::crypto::{CipherSuite, Keyring, SecretKey};
use crate::store::{CountingStore, MemoryStore, SealedStore, contract, read_again};
use crate::types::hex;

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

    /// As another process would open it.
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

fn segment_name(hash: &[u8; 32]) -> String {
    format!("index/{}", hex(hash))
}

fn container_name(hash: &[u8; 32]) -> String {
    format!("containers/{:02x}/{}", hash[0], hex(hash))
}

#[test]
fn meets_the_contract() {
    contract::check(&Fixture::new().open());
}

#[test]
fn a_segment_is_fetched_by_one_request_and_later_processes_need_none() {
    let fixture = Fixture::new();
    let whole = bytes(200_000, 1);
    let name = segment_name(&fixture.memory.put_hashed(segment_name, &[&whole]).unwrap());
    for requests in [1, 0] {
        let store = fixture.open();
        store.list("index").unwrap();
        let before = fixture.reads();
        for offset in (0..190_000).step_by(4096) {
            assert_eq!(store.get_range(&name, offset, 5000).unwrap(), whole[offset as usize..][..5000]);
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
    let segment = segment_name(&store.put_stream_hashed(segment_name, 20 << 20, &mut io::Cursor::new(&whole)).unwrap());
    let snapshot = |hash: &[u8; 32]| format!("snapshots/{}", hex(hash));
    let small = snapshot(&store.put_hashed(snapshot, &[b"a", b"b"]).unwrap());
    let index_at = (20 << 20) - 300_000;
    let container = container_name(&store.put_hashed_cached(container_name, &[head, tail], index_at).unwrap());
    drop(store);
    let store = fixture.open();
    store.list("").unwrap();
    let before = fixture.reads();
    assert!(store.get(&segment, 20 << 20).unwrap() == whole);
    assert_eq!(store.get_range(&segment, (8 << 20) - 1, 2).unwrap(), whole[(8 << 20) - 1..][..2]);
    assert_eq!(store.get(&small, 2).unwrap(), b"ab");
    for (start, len) in [(index_at, 300_000), (0, 64), (64, 16_400), ((20 << 20) - 64, 64)] {
        assert!(store.get_range_cached(&container, start, len).unwrap() == whole[start as usize..][..len], "{start}");
    }
    assert_eq!(fixture.reads(), before);
}

#[test]
fn reads_of_data_are_not_kept() {
    let fixture = Fixture::new();
    let whole = bytes(9 << 20, 3);
    let name = container_name(&fixture.memory.put_hashed(container_name, &[&whole]).unwrap());
    let store = fixture.open();
    store.list("containers").unwrap();
    for _ in 0..2 {
        let before = fixture.reads();
        assert!(store.get_range(&name, 100, 1 << 20).unwrap() == whole[100..][..1 << 20]);
        assert_eq!(fixture.reads() - before, 1);
    }
    assert_eq!(fixture.files(), [] as [PathBuf; 0]);
}

#[test]
fn any_kept_range_of_a_container_is_right_and_read_once() {
    let fixture = Fixture::new();
    for len in [10usize, 100_000, 200_000, 1 << 20, (9 << 20) + 5, (20 << 20) + 1] {
        let whole = bytes(len, len as u8);
        let name = container_name(&fixture.memory.put_hashed(container_name, &[&whole]).unwrap());
        let store = fixture.open();
        store.list("containers").unwrap();
        let ends = [0, 1, 64, 16_464, 32 << 10, 4 << 20, 8 << 20, len / 2, len - 1, len];
        let ranges: Vec<(usize, usize)> =
            ends.iter().flat_map(|start| ends.map(|end| (*start, end))).filter(|(s, e)| s <= e && *e <= len).collect();
        for round in 0..2 {
            let before = fixture.reads();
            for (start, end) in &ranges {
                let read = store.get_range_cached(&name, *start as u64, end - start).unwrap();
                assert!(read == whole[*start..*end], "{start}..{end} of {len}");
            }
            assert!(round == 0 || fixture.reads() == before, "{len}: {} reads", fixture.reads() - before);
        }
        assert!(store.get_range_cached(&name, 1, len).is_err(), "beyond the end");
    }
}

#[test]
fn a_blob_that_the_store_does_not_list_is_not_there() {
    let fixture = Fixture::new();
    let store = fixture.open();
    let whole = bytes(100_000, 4);
    let name = container_name(&store.put_hashed_cached(container_name, &[&whole], 0).unwrap());
    let segment = segment_name(&store.put_hashed(segment_name, &[&whole]).unwrap());
    // Another process prunes.
    fixture.memory.delete(&name).unwrap();
    fixture.memory.delete(&segment).unwrap();
    assert!(store.list("").unwrap().is_empty() && store.head(&name).unwrap().is_none());
    for store in [store, fixture.open()] {
        for name in [&name, &segment] {
            assert!(matches!(store.get_range_cached(name, 0, 10), Err(Error::BlobMissing { .. })), "{name}");
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
    let name = segment_name(&store.put_hashed(segment_name, &[&whole]).unwrap());
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
    let name = segment_name(blake3::hash(b"right").as_bytes());
    fixture.memory.put_if_absent(&name, &[b"wrong"]).unwrap();
    let store = fixture.open();
    store.list("index").unwrap();
    assert_eq!(store.get_range(&name, 0, 5).unwrap(), b"wrong");
    assert_eq!(fixture.files(), [] as [PathBuf; 0]);
    fixture.memory.replace(&name, b"right");
    assert_eq!(store.get(&name, 5).unwrap(), b"right");
}

#[test]
fn short_lived_and_secret_blobs_are_never_kept() {
    let fixture = Fixture::new();
    let store = fixture.open();
    for directory in ["keys", "intents", "pending", "config"] {
        let name = format!("{directory}/{}", hex(blake3::hash(b"text").as_bytes()));
        store.put_if_absent(&name, &[b"text"]).unwrap();
        store.list("").unwrap();
        assert_eq!(store.get(&name, 10).unwrap(), b"text");
        assert_eq!(store.get_range_cached(&name, 1, 2).unwrap(), b"ex");
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
        segment_name(&store.put_hashed(segment_name, &[&whole]).unwrap()),
        container_name(&store.put_hashed_cached(container_name, &[&whole], 0).unwrap()),
        container_name(&store.put_hashed_cached(container_name, &[&whole], (3 << 20) - 40_000).unwrap()),
    ];
    let store = open();
    store.list("").unwrap();
    let before = fixture.reads();
    for name in &names {
        for (offset, len) in [(0, 64), ((3 << 20) - 64, 64), ((3 << 20) - 40_000, 40_000)] {
            assert_eq!(store.len_of(name).unwrap(), Some(3 << 20));
            assert!(store.get_range_cached(name, offset, len).unwrap() == whole[offset as usize..][..len], "{name}");
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
    let name = segment_name(&fixture.memory.put_hashed(segment_name, &[&whole]).unwrap());
    let store = fixture.open();
    store.list("index").unwrap();
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
    let name = segment_name(&fixture.open().put_hashed(segment_name, &[b"text"]).unwrap());
    let directory = fixture.directory.path().join("blobs");
    let store = CachedStore::temporary(fixture.counted.clone(), directory.clone(), 1 << 20);
    store.list("index").unwrap();
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
    let name = container_name(&fixture.memory.put_hashed(container_name, &[&whole]).unwrap());
    let damaged = container_name(blake3::hash(b"other").as_bytes());
    fixture.memory.put_if_absent(&damaged, &[&whole]).unwrap();
    let store = CachedStore::temporary(fixture.counted.clone(), fixture.directory.path().join("fresh"), 1 << 30);
    store.list("containers").unwrap();
    for name in [&name, &damaged] {
        let before = fixture.reads();
        for offset in (0..3 << 20).step_by(100_000) {
            let len = (whole.len() - offset).min(150_000);
            assert!(store.get_range(name, offset as u64, len).unwrap() == whole[offset..][..len]);
            assert!(store.get_range_cached(name, offset as u64, len).unwrap() == whole[offset..][..len]);
        }
        assert_eq!(store.stored_hash(name, &|| Ok(())).unwrap(), *blake3::hash(&whole).as_bytes());
        assert!(store.get_range(name, 1, whole.len()).is_err());
        assert_eq!(fixture.reads() - before, 1);
    }
}

#[test]
fn a_copy_whose_bytes_were_wrong_on_the_way_is_read_again() {
    let fixture = Fixture::new();
    let whole = bytes(20 << 20, 9);
    for name_of in [segment_name as NameOfHash, container_name] {
        let name = name_of(&fixture.memory.put_hashed(name_of, &[&whole]).unwrap());
        let mut wrong = whole.clone();
        let at = whole.len() - 50;
        wrong[at] ^= 1;
        let read = |store: &CachedStore<Counted>| {
            let bytes = store.get_range_cached(&name, at as u64, 10)?;
            if bytes == whole[at..at + 10] {
                return Ok(bytes);
            }
            Err(Error::corrupt(&name, at as u64, "the bytes that were put", "others"))
        };
        // The store, or the network, gives other bytes once.
        fixture.memory.replace(&name, &wrong);
        let store = fixture.open();
        store.list("").unwrap();
        assert!(read(&store).is_err());
        fixture.memory.replace(&name, &whole);
        assert!(read(&store).is_err(), "{name}: this test must begin with a wrong copy");
        assert!(read_again(&store, &name, || read(&store)).is_ok(), "{name}");
        assert!(read(&store).is_ok() && !fixture.files().is_empty());
        // Damage in the store stays damage.
        fixture.memory.replace(&name, &wrong);
        assert!(store.forget_copies(&name) && read_again(&store, &name, || read(&store)).is_err());
    }
}
