//! Damage of containers and of their parity, without a repository.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::blob::{ParityBlob, encode};
use super::code::ParityEncoder;
use super::layout::{HEADER_BYTES, ParityLayout};
use super::{ParityFound, ParityShare, ParityStore, SHORT_KINDS};
use crate::error::{Error, Result};
use crate::store::{
    BlobKind, BlobName, Durable, MemoryStore, NewName, ObservedStore, PutOptions, Reading, Store, StoreCall, StoreExt,
    StoreObserver, check_hash, contract, read_again,
};

const SECTOR: usize = 512;

fn share(parts: u32) -> ParityShare {
    ParityShare::new(parts).unwrap()
}

/// Bytes that do not repeat.
fn noise(len: usize, seed: u8) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new().update(&[seed]).finalize_xof().fill(&mut bytes);
    bytes
}

/// A container and its parity, as a store keeps them.
struct Scene {
    name: BlobName,
    parity: BlobName,
    container: Vec<u8>,
    blob: Vec<u8>,
}

impl Scene {
    fn new(container: Vec<u8>, share: ParityShare) -> Self {
        let store = ParityStore::new(Arc::new(MemoryStore::new()));
        store.set_share(Some(share));
        let third = container.len() / 3;
        let name = store.put_hashed(BlobKind::Container, &[&container[..third], &container[third..]]).unwrap();
        let parity = BlobName::parity_of(&name.hash().unwrap());
        let blob = store.get(&parity, 1 << 30).unwrap();
        Scene { name, parity, container, blob }
    }

    /// A store with these bytes, opened again.
    fn store(&self, container: &[u8], blob: &[u8]) -> ParityStore {
        let inner = Arc::new(MemoryStore::new());
        inner.replace(&self.name, container);
        inner.replace(&self.parity, blob);
        ParityStore::new(inner)
    }

    /// Whether a reader that checks hashes gets the container, whole and in ranges.
    fn heals(&self, container: &[u8], blob: &[u8]) -> bool {
        let store = self.store(container, blob);
        let read = read_again(&store, &self.name, || {
            let bytes = store.get(&self.name, 1 << 30)?;
            check_hash(&self.name, &bytes).map(|()| bytes)
        });
        let Ok(read) = read else { return false };
        assert!(read == self.container);
        let len = self.container.len();
        assert_eq!(store.len_of(&self.name).unwrap(), Some(len as u64));
        for (offset, count) in [(0, len), (len / 2, len - len / 2), (len - 1, 1), (len / 3, len / 3)] {
            let range = store.get_range(&self.name, offset as u64, count, Reading::FromStore).unwrap();
            assert!(range == self.container[offset..][..count]);
        }
        true
    }
}

/// Calls `each` with every damage of one place: a flipped byte, a zeroed sector, a cut of a sector.
fn damages(bytes: &[u8], step: usize, mut each: impl FnMut(&str, usize, &[u8])) {
    for at in (0..bytes.len()).step_by(step) {
        let mut flipped = bytes.to_vec();
        flipped[at] ^= 1 << (at % 8);
        each("flipped", at, &flipped);
    }
    for at in (0..bytes.len()).step_by(SECTOR) {
        let mut zeroed = bytes.to_vec();
        zeroed[at..(at + SECTOR).min(bytes.len())].fill(0);
        each("zeroed", at, &zeroed);
        each("cut", at, &bytes[..at]);
    }
}

#[test]
fn every_damage_of_one_place_of_a_container_heals_and_of_its_parity_is_noticed() {
    for len in [1, 700, 4096, 9_001, 20_000] {
        let scene = Scene::new(noise(len, 1), share(300));
        damages(&scene.container, 7, |what, at, damaged| {
            // A copy gives back all of it; a cut of everything is a blob that is there without a byte.
            assert!(scene.heals(damaged, &scene.blob), "{len}: {what} at {at}");
        });
        damages(&scene.blob, 7, |what, at, damaged| {
            assert!(scene.heals(&scene.container, damaged), "{len}: {what} at {at} of the parity");
            let found = scene.store(&scene.container, damaged).inspect(&scene.name).unwrap();
            let is_same = damaged == scene.blob;
            assert!(matches!(found, ParityFound::Damaged(_)) != is_same, "{len}: {what} at {at}: {found:?}");
        });
        assert!(matches!(scene.store(&[], &scene.blob).inspect(&scene.name), Ok(ParityFound::Whole)));
    }
}

#[test]
fn a_container_and_its_parity_damaged_at_once_heal_up_to_the_share() {
    let scene = Scene::new(noise(400_000, 2), share(500));
    let layout = ParityLayout::new(400_000, share(500)).unwrap();
    assert_eq!((layout.data_shards, layout.recovery_shards), (98, 5));
    for round in 0..40 {
        let draw = noise(64, round);
        let (mut container, mut blob) = (scene.container.clone(), scene.blob.clone());
        // Some recovery shards are bad, and as many shards of the container as the others give back.
        let bad_recovery = usize::from(draw[0]) % 5;
        for number in 0..bad_recovery {
            blob[layout.shards_start() + number * layout.shard_bytes + usize::from(draw[1])] ^= 1;
        }
        let mut bad = std::collections::BTreeSet::new();
        for byte in &draw[2..] {
            if bad.len() < 5 - bad_recovery {
                bad.insert(usize::from(*byte) % layout.data_shards);
            }
        }
        bad.iter().for_each(|shard| container[shard * layout.shard_bytes + usize::from(draw[2])] ^= 0x40);
        // One of the two headers, and one of the two tables, may be lost on top of that.
        match round % 3 {
            0 => blob[..layout.shards_start()].fill(0),
            1 => blob[layout.second_table_start()..].fill(0),
            _ => {}
        }
        assert!(scene.heals(&container, &blob), "round {round}");
        let one_more = (0..layout.data_shards).find(|shard| !bad.contains(shard)).unwrap();
        container[one_more * layout.shard_bytes] ^= 1;
        assert!(!scene.heals(&container, &blob), "round {round}: one shard more than the parity gives back");
    }
}

#[test]
fn bursts_cost_the_shards_that_they_touch() {
    let scene = Scene::new(noise(8 << 20, 3), share(300));
    let burst = 60 * 4096;
    for start in [0, 1, 4095, 3 << 20, (8 << 20) - burst] {
        let mut container = scene.container.clone();
        container[start..start + burst].fill(0xa5);
        assert!(scene.heals(&container, &scene.blob), "{start}");
    }
    assert!(!scene.heals(&scene.container[..(8 << 20) - 63 * 4096], &scene.blob), "63 of 2048 shards, with 3 %");
    assert!(scene.heals(&scene.container[..(8 << 20) - 61 * 4096 - 1000], &scene.blob), "61 shards and a part");
}

#[test]
fn zeros_that_are_lost_come_back_and_what_was_appended_goes() {
    let mut bytes = noise(300_000, 4);
    bytes[200_000..].fill(0);
    let scene = Scene::new(bytes, share(3000));
    for len in [299_999, 295_000, 206_000] {
        assert!(scene.heals(&scene.container[..len], &scene.blob), "{len}");
    }
    let mut longer = scene.container.clone();
    longer.extend_from_slice(b"something else");
    assert!(scene.heals(&longer, &scene.blob));
}

#[test]
fn nothing_heals_with_the_parity_of_another_container_or_of_a_newer_version() {
    let (scene, other) = (Scene::new(noise(20_000, 5), share(300)), Scene::new(noise(20_000, 6), share(300)));
    let mut damaged = scene.container.clone();
    damaged[5000] ^= 1;
    assert!(!scene.heals(&damaged, &other.blob));
    let found = scene.store(&scene.container, &other.blob).inspect(&scene.name).unwrap();
    assert!(matches!(found, ParityFound::Damaged(_)), "{found:?}");
    let mut newer = scene.blob.clone();
    for start in [0, newer.len() - HEADER_BYTES] {
        newer[start + 8] = 2;
        let sum = *blake3::hash(&newer[start..start + 64]).as_bytes();
        newer[start + 64..start + 80].copy_from_slice(&sum[..16]);
    }
    assert!(!scene.heals(&damaged, &newer));
    assert!(scene.store(&damaged, &newer).inspect(&scene.name).unwrap_err().is_newer());
}

#[test]
fn a_forged_header_costs_no_memory() {
    let mut forged = vec![0; HEADER_BYTES];
    forged[..8].copy_from_slice(b"FHRDPRTY");
    forged[8] = 1;
    forged[12..16].copy_from_slice(&(128u32 << 10).to_le_bytes());
    forged[16..24].copy_from_slice(&(4u64 << 30).to_le_bytes());
    forged[24..28].copy_from_slice(&32_768u32.to_le_bytes());
    let sum = *blake3::hash(&forged[..64]).as_bytes();
    forged[64..].copy_from_slice(&sum[..16]);
    assert!(ParityBlob::parse("x", forged).is_err());
}

/// Whoever doubts a sound container, whose last shard is not full, gets it as it is.
#[test]
fn a_sound_container_is_not_rebuilt() {
    for len in [50_000, 300_000, 4096 * 80] {
        let scene = Scene::new(noise(len, 6), share(300));
        let store = scene.store(&scene.container, &scene.blob);
        store.other_copy(&scene.name);
        assert!(store.healed().is_empty(), "{len}");
    }
}

#[test]
fn what_is_written_back_is_in_the_store() {
    let scene = Scene::new(noise(50_000, 7), share(300));
    let mut damaged = scene.container.clone();
    damaged[1] ^= 1;
    let store = scene.store(&damaged, &scene.blob);
    assert!(store.other_copy(&scene.name).is_there);
    assert_eq!(store.healed(), std::slice::from_ref(&scene.name));
    store.write_back(&scene.name, PutOptions::default()).unwrap();
    assert!(store.healed().is_empty());
    assert!(store.get(&scene.name, 1 << 20).unwrap() == scene.container);
    let beyond = scene.store(&damaged[..10], &scene.blob[..100]);
    assert!(beyond.write_back(&scene.name, PutOptions::default()).is_err());
    assert!(beyond.get(&scene.name, 1 << 20).unwrap() == damaged[..10], "what is not healed stays");
}

#[test]
fn a_container_gets_the_same_parity_later_as_when_it_is_put() {
    let scene = Scene::new(noise(30_000, 8), share(300));
    let mut damaged = scene.container.clone();
    damaged[77] = !damaged[77];
    for (container, blob) in [(&scene.container, &scene.blob[..9]), (&damaged, &scene.blob[..])] {
        let store = scene.store(container, blob);
        assert!(!store.add(&scene.name, PutOptions::default()).unwrap(), "no share is set");
        store.set_share(Some(share(300)));
        assert!(store.add(&scene.name, PutOptions::default()).unwrap());
        assert!(store.get(&scene.parity, 1 << 20).unwrap() == scene.blob);
    }
    let store = scene.store(&damaged, b"no parity");
    store.set_share(Some(share(300)));
    assert!(store.add(&scene.name, PutOptions::default()).is_err(), "parity of wrong bytes would keep them");
}

#[test]
fn what_heals_gets_parity_and_only_with_a_share() {
    let store = ParityStore::new(Arc::new(MemoryStore::new()));
    store.put_hashed(BlobKind::Container, &[b"without a share"]).unwrap();
    store.set_share(Some(share(300)));
    for kind in [BlobKind::Bundle, BlobKind::Model, BlobKind::ReadRecord, BlobKind::Key] {
        store.put_hashed(kind, &[b"of no use"]).unwrap();
    }
    assert!(store.list(BlobKind::Parity.into()).unwrap().is_empty());
    for kind in SHORT_KINDS.into_iter().chain([BlobKind::Container]) {
        let content = kind.to_string();
        let parts = [b"with ".as_slice(), content.as_bytes()];
        let name = store.put_hashed(kind, &parts).unwrap();
        let parity = BlobName::parity_of(&name.hash().unwrap());
        assert!(store.head(&parity).unwrap().is_some(), "{kind}");
        store.delete(&name, Durable::OnReturn).unwrap();
        // A prune sweeps that of containers.
        assert_eq!(store.head(&parity).unwrap().is_some(), kind == BlobKind::Container, "{kind}");
        let whole = parts.concat();
        let mut stream = std::io::Cursor::new(&whole);
        store.put_stream(NewName::Hashed(kind), whole.len() as u64, &mut stream).unwrap();
        assert!(store.head(&parity).unwrap().is_some(), "{kind}, from a stream");
    }
}

#[test]
fn a_required_mark_is_never_there_before_its_parity() {
    /// Fails each put but the first few, and deletes the parity before the mark is put, as a prune may.
    struct Fault {
        puts_left: AtomicU32,
        sweeps: bool,
        store: Arc<MemoryStore>,
    }
    impl StoreObserver for Fault {
        fn before(&self, call: StoreCall, name: &str) -> Result<u64> {
            if call != StoreCall::Put {
                return Ok(0);
            }
            if self.sweeps && !name.starts_with("parity/") {
                for blob in self.store.list(BlobKind::Parity.into())? {
                    self.store.delete(&blob.name, Durable::OnReturn)?;
                }
            }
            let left = self.puts_left.load(Ordering::Relaxed).checked_sub(1);
            let left = left.ok_or_else(|| Error::io("write", name, io::Error::other("no space")))?;
            self.puts_left.store(left, Ordering::Relaxed);
            Ok(0)
        }
    }
    for (puts, sweeps, expected) in [(0, false, [0, 0]), (1, false, [0, 1]), (2, false, [1, 1]), (3, true, [1, 1])] {
        let inner = Arc::new(MemoryStore::new());
        let fault = Fault { puts_left: puts.into(), sweeps, store: inner.clone() };
        let store = ParityStore::new(Arc::new(ObservedStore::with(inner.clone(), fault)));
        let put = store.put_hashed(BlobKind::RequiredMark, &[b"a ", b"mark"]);
        let there = [BlobKind::RequiredMark, BlobKind::Parity].map(|kind| inner.list(kind.into()).unwrap().len());
        assert_eq!((put.is_ok(), there), (puts > 1, expected), "{puts} puts");
    }
}

#[test]
fn a_heal_stays_in_its_memory_and_says_what_does_not_fit() {
    let scene = Scene::new(noise(600_000, 3), share(300));
    let mut damaged = scene.container.clone();
    (0..5).for_each(|number| damaged[number * 100_000] ^= 1);
    let heals = |memory: u64| {
        let store = scene.store(&damaged, &scene.blob);
        store.set_memory(memory);
        let is_read = read_again(&store, &scene.name, || {
            let bytes = store.get(&scene.name, 1 << 20)?;
            check_hash(&scene.name, &bytes).map(|()| bytes)
        });
        assert_eq!(store.too_large(), if is_read.is_ok() { vec![] } else { vec![scene.name.clone()] }, "{memory}");
        assert_eq!(store.healed().is_empty(), is_read.is_err(), "{memory}");
        if let Err(error) = &is_read {
            assert!(!error.is_proven_damage() && error.to_string().contains("--memory 2MiB"), "{memory}: {error}");
            let back = store.write_back(&scene.name, PutOptions::default());
            assert!(back.is_err() && store.get(&scene.name, 1 << 20).unwrap() == damaged, "{memory}");
        }
        is_read.is_ok_and(|bytes| bytes == scene.container)
    };
    // Container and parity take 640 kB, for which there are 9 parts of 16.
    assert!([1 << 30, 4 << 20, 5 << 18].into_iter().all(heals));
    assert!(![1 << 20, 1 << 18, 0].into_iter().any(heals));
    // More is rebuilt than may stay: 147 shards of 4 KiB, and 2 parts of 16.
    let mut many = scene.container.clone();
    let whole = Scene::new(scene.container.clone(), share(10_000));
    (0..147).for_each(|number| many[number * 4096] ^= 1);
    let store = whole.store(&many, &whole.blob);
    store.set_memory(3 << 20);
    assert!(!store.other_copy(&whole.name).is_there && store.too_large() == std::slice::from_ref(&whole.name));
    let store = whole.store(&many, &whole.blob);
    store.set_memory(6 << 20);
    assert!(store.other_copy(&whole.name).is_there && store.too_large().is_empty());
}

#[test]
fn parity_that_takes_more_memory_is_not_read() {
    let scene = Scene::new(noise(600_000, 3), share(10_000));
    let store = scene.store(&scene.container, &scene.blob);
    assert!(matches!(store.inspect(&scene.name).unwrap(), ParityFound::Whole));
    store.set_memory(1 << 20);
    let found = store.inspect(&scene.name).unwrap();
    assert!(matches!(&found, ParityFound::TooLarge(text) if text.contains("--memory 2MiB")), "{found:?}");
}

#[test]
fn the_code_gives_the_same_bytes_however_wide_its_columns_are() {
    let (bytes, share) = (noise(3_000_000, 4), share(300));
    let layout = ParityLayout::new(bytes.len() as u64, share).unwrap();
    let id = *blake3::hash(&bytes).as_bytes();
    let parity = encode(&mut ParityEncoder::default(), &layout, &id, &[&bytes]).unwrap();
    let parity = ParityBlob::parse("x", parity).unwrap();
    for work in [0, 100_000, 1_000_000, 1 << 24, usize::MAX] {
        let mut container = bytes.clone();
        container.resize(layout.padded_bytes(), 0);
        let bad: Vec<usize> = (0..layout.recovery_shards).map(|number| number * 31).collect();
        bad.iter().for_each(|number| container[number * layout.shard_bytes..][..100].fill(7));
        assert!(parity.rebuild(&mut container, &bad, work).unwrap(), "{work}");
        assert!(container[..bytes.len()] == bytes, "{work}");
    }
}

#[test]
fn containers_too_long_for_parity_are_unprotected_and_otherwise_sound() {
    // Zeros, which no test has to fill.
    let long = vec![0; (256 << 20) + 1];
    let inner = Arc::new(MemoryStore::new());
    let store = ParityStore::new(inner);
    store.set_share(Some(share(1)));
    assert_eq!(store.parity_len(BlobKind::Container, long.len() as u64), None);
    assert!(ParityStore::is_too_long(long.len() as u64));
    assert!(!ParityStore::is_too_long(256 << 20), "the longest that has a layout");
    assert!(store.parity_len(BlobKind::Container, 256 << 20).is_some());
    let name = store.put_hashed(BlobKind::Container, &[&long]).unwrap();
    assert!(store.list(BlobKind::Parity.into()).unwrap().is_empty());
    assert!(matches!(store.inspect(&name).unwrap(), ParityFound::Absent));
    assert_eq!(store.len_of(&name).unwrap(), Some(long.len() as u64));
    assert!(store.get_range(&name, 0, 100, Reading::Once).unwrap().iter().all(|byte| *byte == 0));
    assert!(!store.other_copy(&name).is_there, "nothing gives it back");
    assert!(!store.add(&name, PutOptions::default()).unwrap(), "it gets none");
}

#[test]
fn meets_the_contract() {
    let store = ParityStore::new(Arc::new(MemoryStore::new()));
    store.set_share(Some(share(300)));
    contract::check(&store);
}

/// Frozen.
#[test]
fn parity_is_what_it_was() {
    let mut encoder = ParityEncoder::default();
    let mut hash = |len: usize, parts: u32| {
        let bytes = noise(len, 9);
        let layout = ParityLayout::new(len as u64, share(parts)).unwrap();
        let blob = encode(&mut encoder, &layout, blake3::hash(&bytes).as_bytes(), &[&bytes]).unwrap();
        assert_eq!(blob.len(), layout.blob_bytes());
        blake3::hash(&blob).to_hex().to_string()[..16].to_string()
    };
    let frozen = [
        (1, 300, "f630d0314026dc5e"),
        (4096, 300, "c7d09de417663cdf"),
        (20_000, 300, "e57f7aee782ab519"),
        (170_000, 300, "0b9fe7cc3db0ea51"),
        (3_000_000, 500, "7730d2d8dc7abd0e"),
    ];
    for (len, parts, expected) in frozen {
        assert_eq!(hash(len, parts), expected, "{len}, {parts}");
    }
}
