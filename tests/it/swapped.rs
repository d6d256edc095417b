//! Files of containers that were mixed up: whole bytes of one container are under the name of another.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use fhrd::config::RepositoryConfig;
use fhrd::error::Error;
use fhrd::inspect::check::{CheckReport, check};
use fhrd::metrics::Progress;
use fhrd::repair::index::repair_index;
use fhrd::repair::quarantine::look_again;
use fhrd::repo::Repository;
use fhrd::repo::claims::{ClaimKind, ContainerClaim};
use fhrd::repo::cold;
use fhrd::repo::container::{ContainerKind, HEADER_BYTES, parse_name, read_kind};
use fhrd::repo::heal::{HealReport, heal};
use fhrd::repo::marks::{BadParts, Mark, MarkKind, Marks, Quarantine};
use fhrd::repo::parity;
use fhrd::repo::paths::cache_directory;
use fhrd::store::{BlobKind, BlobName, Durable, MemoryStore, ObservedStore, Reading, Store, StoreCall, StoreObserver};
use fhrd::types::ContainerId;

use crate::flips::{back_up, config, run_check};
use crate::input::write;
use crate::parity::{lost_files, open, share, unlock};
use crate::trees::Random;
use crate::unreadable::BadSectors;

/// A repository with two data containers, a short one and a longer one, of two snapshots.
struct Scene {
    store: Arc<MemoryStore>,
    source: tempfile::TempDir,
    /// The containers with their bytes, the shorter one first.
    containers: [(BlobName, Vec<u8>); 2],
    /// One of those with metadata.
    metadata: (BlobName, Vec<u8>),
    snapshot: String,
}

impl Scene {
    fn new(is_encrypted: bool, is_cold: bool, has_parity: bool) -> Self {
        let (store, config) = (Arc::new(MemoryStore::new()), RepositoryConfig::default());
        let repository = match is_encrypted {
            true => Repository::init_encrypted(store.clone(), &config, None, &unlock(), "test").unwrap(),
            false => Repository::init(store.clone(), &config).unwrap(),
        };
        if is_cold {
            cold::set(&repository, true).unwrap();
        }
        if has_parity {
            parity::set(&repository, share()).unwrap();
        }
        let (source, mut random) = (tempfile::tempdir().unwrap(), Random(4));
        write(source.path().join("first"), &random.bytes(3_000));
        back_up(&repository, source.path());
        write(source.path().join("second"), &random.bytes(400_000));
        let snapshot = back_up(&repository, source.path());
        let listed = store.list(BlobKind::Container.into()).unwrap().into_iter().map(|blob| blob.name);
        let is_data = |name: &BlobName| {
            read_kind(repository.store.as_ref(), name, Reading::FromStore).unwrap() == ContainerKind::Data
        };
        let with_bytes = |name: BlobName| (name.clone(), store.get(&name, 1 << 30).unwrap());
        let (mut all, mut others): (Vec<_>, Vec<_>) = listed.map(with_bytes).partition(|(name, _)| is_data(name));
        all.sort_by_key(|(_, bytes)| bytes.len());
        Scene { store, source, containers: all.try_into().unwrap(), metadata: others.pop().unwrap(), snapshot }
    }

    /// Opened over a store that refuses to `refuse`.
    fn opened(&self, refuse: impl Fn(StoreCall, &str) -> bool + Send + Sync + 'static) -> Repository {
        let store = ObservedStore::with(self.store.clone(), Refusing(Box::new(refuse)));
        let repository = Repository::open_with(Arc::new(store), &|| Ok(unlock())).unwrap();
        let _ = std::fs::remove_dir_all(cache_directory(&repository).unwrap());
        repository
    }

    /// Reads everything and heals.
    fn heal(&self, repository: &Repository) -> HealReport {
        let report = run_check(repository);
        heal(repository, &report.healable).unwrap()
    }

    fn has(&self, name: &BlobName, bytes: &[u8]) -> bool {
        self.store.get(name, 1 << 30).is_ok_and(|stored| stored == bytes)
    }

    /// Fails unless every container has its own bytes.
    fn assert_whole(&self, what: &str) {
        for (name, bytes) in self.containers.iter().chain([&self.metadata]) {
            assert!(self.has(name, bytes), "{what}: {name}");
        }
        let report = run_check(&open(&self.store));
        assert_eq!(report.defect_count, 0, "{what}: {report:#?}");
        assert_eq!(lost_files(&open(&self.store), &self.snapshot, self.source.path(), what), [""; 0], "{what}");
    }

    /// Puts the bytes of the longer container under the name of the shorter one, those of metadata under the name of
    /// the longer one, and `third` under the name of the metadata.
    fn rotate(&self, third: Option<&[u8]>) {
        let ([(short, _), (long, long_bytes)], (metadata, metadata_bytes)) = (&self.containers, &self.metadata);
        self.store.replace(short, long_bytes);
        self.store.replace(long, metadata_bytes);
        match third {
            Some(bytes) => self.store.replace(metadata, bytes),
            None => self.store.delete(metadata, Durable::OnReturn).unwrap(),
        }
    }

    /// Puts the bytes of the longer container under the name of the shorter one, and deletes the longer one, or puts
    /// the bytes of the shorter one there.
    fn mix_up(&self, is_moved: bool) {
        let [(short, short_bytes), (long, long_bytes)] = &self.containers;
        self.store.replace(short, long_bytes);
        match is_moved {
            true => self.store.delete(long, Durable::OnReturn).unwrap(),
            false => self.store.replace(long, short_bytes),
        }
    }
}

/// Whether a call about a blob fails.
type Refusal = Box<dyn Fn(StoreCall, &str) -> bool + Send + Sync>;

/// As a full disk or a server with an error does.
struct Refusing(Refusal);

impl StoreObserver for Refusing {
    fn before(&self, call: StoreCall, name: &str) -> fhrd::Result<u64> {
        match (self.0)(call, name) {
            true => Err(Error::io("write", name, io::Error::other("refused"))),
            false => Ok(0),
        }
    }
}

#[test]
fn what_was_swapped_is_stored_again_whole() {
    for (is_encrypted, is_cold) in [(false, false), (true, false), (false, true), (true, true)] {
        let what = format!("encrypted: {is_encrypted}, cold: {is_cold}");
        let scene = Scene::new(is_encrypted, is_cold, false);
        scene.mix_up(false);
        // In cold storage, a backup relies on the hot indexes, and only reading the data shows what is wrong.
        if !is_cold {
            // Files that are unchanged are not read.
            for file in ["first", "second"].map(|file| scene.source.path().join(file)) {
                write(file.clone(), &std::fs::read(file).unwrap());
            }
            let snapshot = back_up(&open(&scene.store), scene.source.path());
            let lost = lost_files(&open(&scene.store), &snapshot, scene.source.path(), &what);
            assert_eq!(lost, [""; 0], "{what}: before a check");
        }
        let report = run_check(&open(&scene.store));
        assert!(report.defect_count > 0 || !is_cold, "{what}: {report:#?}");
        let bad: Vec<_> = report.bad.containers().map(|(id, _)| *id).collect();
        assert!(scene.containers.iter().all(|(name, _)| bad.contains(&parse_name(name).unwrap())), "{what}: {bad:?}");
        let snapshot = back_up(&open(&scene.store), scene.source.path());
        let lost = lost_files(&open(&scene.store), &snapshot, scene.source.path(), &what);
        assert_eq!(lost, [""; 0], "{what}: after a check");
        let report = run_check(&open(&scene.store));
        assert_eq!(report.defect_count, 0, "{what}: {report:#?}");
    }
}

#[test]
fn what_heals_does_not_overwrite_the_only_bytes_of_another_container() {
    for (is_encrypted, is_moved) in [(false, false), (false, true), (true, false), (true, true)] {
        let what = format!("encrypted: {is_encrypted}, moved: {is_moved}");
        let scene = Scene::new(is_encrypted, false, true);
        scene.mix_up(is_moved);
        let repository = open(&scene.store);
        let report = run_check(&repository);
        assert!(report.containers_healed > 0, "{what}: {report:#?}");
        let healed = heal(&repository, &report.healable).unwrap();
        assert!(healed.containers == 2 && healed.put_back.len() == 1, "{what}: {healed:#?}");
        for (name, bytes) in &scene.containers {
            assert!(scene.store.get(name, 1 << 30).is_ok_and(|stored| stored == *bytes), "{what}: {name}");
        }
        let report = run_check(&open(&scene.store));
        assert_eq!(report.defect_count, 0, "{what}: {report:#?}");
        let lost = lost_files(&open(&scene.store), &scene.snapshot, scene.source.path(), &what);
        assert_eq!(lost, [""; 0], "{what}");
    }
}

#[test]
fn bytes_that_cannot_be_put_back_are_not_overwritten() {
    for is_encrypted in [false, true] {
        for (number, refused) in [StoreCall::Put, StoreCall::Head, StoreCall::GetRange].into_iter().enumerate() {
            let what = format!("encrypted: {is_encrypted}, {refused:?}");
            let scene = Scene::new(is_encrypted, false, true);
            scene.mix_up(true);
            let [(short, short_bytes), (long, long_bytes)] = scene.containers.clone();
            let (is_armed, name) = (Arc::new(Mutex::new(false)), long.clone());
            let armed = is_armed.clone();
            let repository = scene.opened(move |call, of| *armed.lock() && call == refused && of == name.as_str());
            let report = run_check(&repository);
            assert!(report.containers_healed > 0, "{what}: {report:#?}");
            *is_armed.lock() = true;
            let healed = heal(&repository, &report.healable).unwrap();
            assert!(healed.left.len() == 1 && healed.left[0].contains(short.as_str()), "{what}: {healed:#?}");
            assert!(healed.containers == 0 && healed.put_back.is_empty(), "{what}: {healed:#?}");
            assert!(scene.has(&short, &long_bytes) && !scene.has(&short, &short_bytes), "{what}: the only bytes");
            // A put that cannot be read again may have been done.
            assert!(number == 2 || !scene.has(&long, &long_bytes), "{what}: it was put");
            scene.heal(&open(&scene.store));
            scene.assert_whole(&what);
        }
    }
}

#[test]
fn bytes_of_a_container_that_a_prune_may_be_deleting_or_that_is_too_long_to_look_at_are_not_overwritten() {
    for is_too_long in [false, true] {
        let scene = Scene::new(false, false, true);
        scene.mix_up(true);
        let [(short, _), (long, long_bytes)] = &scene.containers;
        let repository = open(&scene.store);
        let report = run_check(&repository);
        match is_too_long {
            true => repository.parity.set_memory(500_000),
            false => {
                let ids = [parse_name(long).unwrap()].into();
                ContainerClaim::put(scene.store.as_ref(), ClaimKind::Pending, &[3; 16], &ids).map(drop).unwrap();
            }
        }
        let healed = heal(&repository, &report.healable).unwrap();
        assert!(healed.left.len() == 1 && healed.containers == 0, "{is_too_long}: {healed:#?}");
        assert!(!is_too_long || healed.left[0].contains("--memory 1MiB"), "{healed:#?}");
        assert!(scene.has(short, long_bytes), "{is_too_long}: the only bytes");
    }
}

#[test]
fn a_container_of_a_newer_version_in_the_way_is_put_back() {
    let scene = Scene::new(false, false, true);
    let [(short, short_bytes), (_, long_bytes)] = &scene.containers;
    let mut newer = long_bytes.clone();
    newer[19] = 0x80;
    let sum = *blake3::hash(&newer[..48]).as_bytes();
    newer[48..64].copy_from_slice(&sum[..16]);
    let name = fhrd::repo::container::blob_name(&ContainerId(*blake3::hash(&newer).as_bytes()));
    scene.store.replace(short, &newer);
    let healed = scene.heal(&open(&scene.store));
    assert!(scene.has(&name, &newer) && scene.has(short, short_bytes), "{healed:#?}");
}

#[test]
fn of_three_containers_that_were_rotated_none_is_lost() {
    for (is_encrypted, is_rebuilt) in [(false, false), (false, true), (true, false), (true, true)] {
        let scene = Scene::new(is_encrypted, false, true);
        let ([(short, short_bytes), (_, long_bytes)], (metadata, _)) = (&scene.containers, &scene.metadata);
        // Missing, a second copy of the longer one, the shorter one, and nobody's.
        for third in [None, Some(&long_bytes[..]), Some(&short_bytes[..]), Some(&[7; 500])] {
            let what = format!("encrypted: {is_encrypted}, {is_rebuilt}, {:?}", third.map(<[u8]>::len));
            scene.rotate(third);
            if !is_rebuilt {
                scene.store.replace(&BlobName::parity_of(&metadata.hash().unwrap()), b"damaged");
            }
            // The disk is full as long as it takes.
            let name = metadata.clone();
            let is_put = |call| matches!(call, StoreCall::Put | StoreCall::Overwrite);
            let healed = scene.heal(&scene.opened(move |call, of| is_put(call) && of == name.as_str()));
            assert!(!healed.left.is_empty(), "{what}: {healed:#?}");
            if !is_rebuilt {
                assert!(healed.put_back.is_empty() && scene.has(short, long_bytes), "{what}: {healed:#?}");
            }
            let healed = scene.heal(&open(&scene.store));
            assert!(healed.left.is_empty() && (is_rebuilt || healed.put_back.len() == 2), "{what}: {healed:#?}");
            scene.assert_whole(&what);
        }
    }
}

#[test]
fn containers_that_have_the_bytes_of_each_other_stay_if_parity_gives_back_neither() {
    let scene = Scene::new(false, false, true);
    scene.mix_up(false);
    let [(short, short_bytes), (long, long_bytes)] = &scene.containers;
    for name in [short, long] {
        let parity = BlobName::parity_of(&name.hash().unwrap());
        scene.store.replace(&parity, b"damaged");
    }
    let healed = scene.heal(&open(&scene.store));
    assert_eq!((healed.containers, healed.left.len()), (0, 2), "{healed:#?}");
    assert!(scene.has(short, long_bytes) && scene.has(long, short_bytes), "the only bytes of both");
}

#[test]
fn damaged_bytes_of_another_container_stay_and_become_none() {
    for is_encrypted in [false, true] {
        let scene = Scene::new(is_encrypted, false, true);
        let [(short, _), (long, long_bytes)] = &scene.containers;
        let len = long_bytes.len();
        // In its header, its frames and its footer, then cut, then longer.
        for (number, cut) in [(20, len), (HEADER_BYTES + 40, len), (len - 10, len), (9, len - 1), (9, len + 1)] {
            let what = format!("encrypted: {is_encrypted}, {number}, {cut}");
            let mut damaged = long_bytes.clone();
            damaged.resize(cut, 3);
            damaged[number] ^= u8::from(cut == len);
            scene.store.replace(short, &damaged);
            scene.store.delete(long, Durable::OnReturn).unwrap();
            let before = scene.store.list(BlobKind::Container.into()).unwrap().len();
            let healed = scene.heal(&open(&scene.store));
            assert!(healed.left.iter().any(|left| left.contains(" stay")), "{what}: {healed:#?}");
            let after = scene.store.list(BlobKind::Container.into()).unwrap().len();
            assert_eq!((healed.containers, after), (0, before), "{what}");
            assert!(scene.has(short, &damaged), "{what}: its other bytes are the only ones");
            // The file is moved back.
            scene.store.replace(long, &damaged);
            scene.store.replace(short, &[]);
            let healed = scene.heal(&open(&scene.store));
            assert!(healed.left.is_empty(), "{what}: {healed:#?}");
            scene.assert_whole(&what);
        }
    }
}

#[test]
fn bytes_of_a_container_that_no_segment_names_any_more_are_put_back() {
    for is_encrypted in [false, true] {
        let what = format!("encrypted: {is_encrypted}");
        let scene = Scene::new(is_encrypted, false, true);
        let (metadata, metadata_bytes) = &scene.metadata;
        scene.rotate(None);
        let repository = open(&scene.store);
        repair_index(&repository, &Arc::default()).unwrap();
        let healed = scene.heal(&open(&scene.store));
        let is_there = scene
            .store
            .list(BlobKind::Container.into())
            .unwrap()
            .into_iter()
            .any(|blob| scene.store.get(&blob.name, 1 << 30).unwrap() == *metadata_bytes);
        assert!(is_there, "{what}: the only bytes of {metadata}: {healed:#?}");
    }
}

#[test]
fn no_prune_that_begins_meanwhile_may_delete_what_is_put_back() {
    let scene = Scene::new(false, false, true);
    scene.mix_up(true);
    let (long, store) = (scene.containers[1].0.clone(), scene.store.clone());
    let (seen, id) = (Arc::new(Mutex::new(Vec::new())), parse_name(&long).unwrap());
    let held = seen.clone();
    let repository = scene.opened(move |call, name| {
        if call == StoreCall::Put && name == long.as_str() {
            let intents = ContainerClaim::containers_of(store.as_ref(), ClaimKind::Intent).unwrap();
            held.lock().push(intents.contains(&id));
        }
        false
    });
    let healed = scene.heal(&repository);
    assert_eq!((healed.put_back.len(), &*seen.lock()), (1, &vec![true]), "{healed:#?}");
    assert!(scene.store.list(BlobKind::Intent.into()).unwrap().is_empty());
}

#[test]
fn what_another_check_quarantines_during_the_second_look_stays() {
    let scene = Scene::new(false, false, true);
    let repository = open(&scene.store);
    let mark = |number: usize| {
        let mut bad = Quarantine::default();
        bad.insert(parse_name(&scene.containers[number].0).unwrap(), &BadParts::Whole);
        Mark::new(MarkKind::Quarantine(bad), "another check").save(repository.store.as_ref()).unwrap();
    };
    mark(0);
    let looked = look_again(&repository, &Arc::default(), || {
        let report = run_check(&repository);
        mark(1);
        Ok(report)
    });
    assert_eq!(looked.unwrap().defect_count, 0);
    let marks = Marks::read(repository.store.as_ref()).unwrap();
    let marked: Vec<ContainerId> = marks.quarantine.containers().map(|(id, _)| *id).collect();
    assert_eq!(marked, [parse_name(&scene.containers[1].0).unwrap()], "only what was there before goes");
}

#[test]
fn the_index_of_another_container_is_no_hot_index() {
    for (is_encrypted, has_parity) in [(false, false), (true, false), (false, true), (true, true)] {
        let what = format!("encrypted: {is_encrypted}, parity: {has_parity}");
        let scene = Scene::new(is_encrypted, true, has_parity);
        scene.mix_up(false);
        for hot_index in scene.store.list(BlobKind::HotIndex.into()).unwrap() {
            scene.store.delete(&hot_index.name, Durable::OnReturn).unwrap();
        }
        let repository = open(&scene.store);
        let added = cold::add(&repository, &Progress::default(), &Default::default()).unwrap();
        // Parity gives back the short one.
        let lost = if has_parity { 1 } else { 2 };
        assert_eq!((added.damaged, added.unread), (lost, lost), "{what}: {added:#?}");
        let indexed = cold::indexed(&scene.store).unwrap();
        let is_indexed = scene.containers.each_ref().map(|(name, _)| indexed.contains_key(&parse_name(name).unwrap()));
        assert_eq!(is_indexed, [has_parity, false], "{what}");
    }
}

#[test]
fn a_check_without_data_sees_that_containers_in_cold_storage_have_other_lengths() {
    for is_encrypted in [false, true] {
        let scene = Scene::new(is_encrypted, true, false);
        assert_eq!(run_quick_check(&scene).defect_count, 0);
        scene.mix_up(false);
        let report = run_quick_check(&scene);
        for (name, _) in &scene.containers {
            assert!(report.defects.iter().any(|text| text.contains(name.as_str())), "{name}: {:#?}", report.defects);
        }
    }
}

fn run_quick_check(scene: &Scene) -> CheckReport {
    check(&open(&scene.store), &config(), false, &Progress::default(), &Arc::default()).unwrap()
}

#[test]
fn other_bytes_of_which_a_sector_cannot_be_read_are_not_overwritten() {
    for is_encrypted in [false, true] {
        for is_own in [false, true] {
            let what = format!("encrypted: {is_encrypted}, its own: {is_own}");
            let scene = Scene::new(is_encrypted, false, true);
            let [(short, short_bytes), (long, long_bytes)] = scene.containers.clone();
            let (name, sector) = if is_own { (long.clone(), 8192..8193) } else { (short.clone(), 4096..4097) };
            if !is_own {
                scene.mix_up(true);
            }
            let store = BadSectors {
                inner: scene.store.clone(),
                hidden: None.into(),
                bad: [(name.to_string(), sector)].into_iter().collect::<BTreeMap<_, _>>().into(),
            };
            let repository = Repository::open_with(Arc::new(store), &|| Ok(unlock())).unwrap();
            let _ = std::fs::remove_dir_all(cache_directory(&repository).unwrap());
            let healed = scene.heal(&repository);
            match is_own {
                true => assert!(healed.containers == 1 && healed.left.is_empty(), "{what}: {healed:#?}"),
                false => {
                    assert!(healed.left.iter().any(|left| left.contains("cannot all be read")), "{what}: {healed:#?}");
                    assert!(scene.has(&short, &long_bytes), "{what}: the only bytes");
                }
            }
            // The device gives the sector again.
            scene.heal(&open(&scene.store));
            assert!(scene.has(&short, &short_bytes) && scene.has(&long, &long_bytes), "{what}");
            scene.assert_whole(&what);
        }
    }
}

/// Reads of containers.
#[derive(Default)]
struct Reads(AtomicU64);

impl StoreObserver for &'static Reads {
    fn before(&self, call: StoreCall, name: &str) -> fhrd::Result<u64> {
        let is_read = matches!(call, StoreCall::Get | StoreCall::GetRange) && name.starts_with("containers/");
        self.0.fetch_add(u64::from(is_read), Ordering::Relaxed);
        Ok(0)
    }
}

#[test]
fn the_reads_of_a_heal_grow_with_the_containers_that_were_rotated() {
    let [few, many] = [8, 32].map(|count| {
        let scene = Scene::new(false, false, true);
        let mut random = Random(7);
        for number in 0..count {
            write(scene.source.path().join(format!("more-{number}")), &random.bytes(2_000));
            back_up(&open(&scene.store), scene.source.path());
        }
        let listed = scene.store.list(BlobKind::Container.into()).unwrap().into_iter().map(|blob| blob.name);
        let all: Vec<(BlobName, Vec<u8>)> =
            listed.map(|name| (name.clone(), scene.store.get(&name, 1 << 30).unwrap())).collect();
        for ((name, _), (_, bytes)) in all.iter().zip(all.iter().cycle().skip(1)) {
            scene.store.replace(name, bytes);
        }
        let reads: &'static Reads = Box::leak(Box::default());
        let repository = Repository::open(Arc::new(ObservedStore::with(scene.store.clone(), reads))).unwrap();
        let _ = std::fs::remove_dir_all(cache_directory(&repository).unwrap());
        let report = run_check(&repository);
        let before = reads.0.load(Ordering::Relaxed);
        let healed = heal(&repository, &report.healable).unwrap();
        assert!(healed.left.is_empty(), "{healed:#?}");
        assert!(all.iter().all(|(name, bytes)| scene.has(name, bytes)), "{count}");
        (reads.0.load(Ordering::Relaxed) - before) / all.len() as u64
    });
    assert!(many <= few + 2, "{many} reads a container, {few} with a quarter of the containers");
}
