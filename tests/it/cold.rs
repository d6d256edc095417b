//! Cold repositories: only restores and checks of data read data containers, and no hot index is missing.
//!
//! The store of these tests refuses reads of data containers, as a bucket does whose data is in GLACIER, and counts
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fhrd::config::RepositoryConfig;
use fhrd::error::{Error, ErrorKind};
use fhrd::inspect::check::{CheckReport, check};
use fhrd::inspect::find::{FindQuery, find_entries};
use fhrd::inspect::list::{Depth, list};
use fhrd::inspect::stats::repository_stats;
use fhrd::keep::{Copier, PruneOptions, prune, recompress};
use fhrd::metrics::Progress;
use fhrd::repo::Repository;
use fhrd::repo::cold::{add, indexed, set};
use fhrd::repo::container::{ContainerKind, blob_name, parse_name, read_kind};
use fhrd::repo::index::{ContainerListing, read_container_index};
use fhrd::repo::parity;
use fhrd::repo::paths::cache_directory;
use fhrd::repo::snapshot;
use fhrd::repo::sweep::sweep;
use fhrd::restore::restore;
use fhrd::store::{
    BlobKind, BlobName, BlobPrefix, Durable, FaultyStore, InjectedFault, MemoryStore, ObservedStore, ParityShare,
    Reading, Store, StoreCall, StoreObserver,
};
use fhrd::types::ContainerId;

use crate::flips::{back_up, config};
use crate::input::{edit, files, write};
use crate::interleavings::scene::no_grace;
use crate::parity::lost_files;
use crate::trees::Random;
use crate::weights::{Tensor, bfloat16, float32, safetensors, tuned, weights};

/// Refuses reads of data containers until they are thawed, and counts them.
#[derive(Clone)]
pub struct Freezer {
    store: Arc<MemoryStore>,
    pub reads: Arc<AtomicU64>,
    pub is_thawed: Arc<AtomicBool>,
}

pub type Frozen = ObservedStore<Arc<MemoryStore>, Freezer>;

impl StoreObserver for Freezer {
    fn before(&self, call: StoreCall, name: &str) -> fhrd::Result<u64> {
        let is_read = matches!(call, StoreCall::Get | StoreCall::GetRange | StoreCall::StoredHash);
        if is_read && is_data(&self.store, name) {
            self.reads.fetch_add(1, Ordering::SeqCst);
            if !self.is_thawed.load(Ordering::SeqCst) {
                // As the stores of buckets say it.
                return Err(Error::Cold { what: format!("{name} in s3://bucket/prefix") });
            }
        }
        Ok(0)
    }
}

/// Whether a data container has this name.
pub fn is_data(store: &Arc<MemoryStore>, name: &str) -> bool {
    let name = BlobName::parse(name).ok().filter(|name| name.kind() == BlobKind::Container);
    name.is_some_and(|name| read_kind(store, &name, Reading::Once).is_ok_and(|kind| kind == ContainerKind::Data))
}

pub fn freeze(store: &Arc<MemoryStore>) -> (Arc<Frozen>, Freezer) {
    let freezer = Freezer { store: store.clone(), reads: Arc::default(), is_thawed: Arc::default() };
    (Arc::new(ObservedStore::with(store.clone(), freezer.clone())), freezer)
}

pub fn open(store: Arc<dyn Store>) -> Repository {
    let repository = Repository::open(store).unwrap();
    let _ = fs::remove_dir_all(cache_directory(&repository).unwrap());
    repository
}

pub fn store_with(blobs: &BTreeMap<BlobName, Vec<u8>>) -> Arc<MemoryStore> {
    let store = MemoryStore::new();
    blobs.iter().for_each(|(name, bytes)| store.replace(name, bytes));
    Arc::new(store)
}

pub fn blobs_of(store: &dyn Store) -> BTreeMap<BlobName, Vec<u8>> {
    let listed = store.list(BlobPrefix::All).unwrap();
    listed.into_iter().map(|blob| (blob.name.clone(), store.get(&blob.name, 1 << 30).unwrap())).collect()
}

pub fn containers(store: &dyn Store) -> BTreeSet<ContainerId> {
    store.list(BlobKind::Container.into()).unwrap().iter().filter_map(|blob| parse_name(&blob.name)).collect()
}

/// Fails unless every container has a sound hot index, and nothing else has one.
fn assert_indexed(repository: &Repository, what: &str) {
    let store = repository.store.as_ref();
    let indexed: BTreeSet<ContainerId> = indexed(store).unwrap().into_keys().collect();
    assert_eq!(containers(store), indexed, "{what}");
    indexed.iter().for_each(|id| _ = fhrd::repo::cold::verify(store, id).unwrap());
}

/// Adds what a crash has left without a hot index, which is metadata. Fails if a container cannot be read for it.
fn assert_all_can_be_indexed(repository: &Repository, what: &str) {
    let added = add(repository, &Progress::default(), &Arc::default()).unwrap();
    assert_eq!(added.unread, 0, "{what}: {added:?}");
    assert_indexed(repository, what);
}

pub fn run_check(repository: &Repository, read_data: bool) -> fhrd::Result<CheckReport> {
    check(repository, &config(), read_data, &Progress::default(), &Arc::default())
}

/// A cold repository with two snapshots, and the source of the second.
pub struct Scene {
    source: tempfile::TempDir,
    pub blobs: BTreeMap<BlobName, Vec<u8>>,
    pub first: String,
    pub second: String,
}

impl Scene {
    pub fn new() -> Self {
        let store = Arc::new(MemoryStore::new());
        let (frozen, freezer) = freeze(&store);
        let repository = Repository::init(frozen, &RepositoryConfig::default()).unwrap();
        assert!(!set(&repository, true).unwrap());
        let source = tempfile::tempdir().unwrap();
        let mut random = Random(3);
        let text = random.text(20_000);
        write(source.path().join("text/first.txt"), &text);
        write(source.path().join("noise.bin"), &random.bytes(7000));
        let first = back_up(&repository, source.path());
        write(source.path().join("text/second.txt"), &edit(&mut random, &text, 5));
        let second = back_up(&repository, source.path());
        assert_eq!(freezer.reads.load(Ordering::SeqCst), 0, "backups read no data container");
        let _ = fs::remove_dir_all(cache_directory(&repository).unwrap());
        Scene { source, blobs: blobs_of(store.as_ref()), first, second }
    }

    fn hot_indexes(&self) -> impl Iterator<Item = (&BlobName, &Vec<u8>)> {
        self.blobs.iter().filter(|(name, _)| name.kind() == BlobKind::HotIndex)
    }

    pub fn path(&self) -> &Path {
        self.source.path()
    }
}

pub fn forget(store: &dyn Store, id: &str) {
    snapshot::delete(store, &snapshot::find(store, id).unwrap().id).unwrap();
}

#[test]
fn only_a_restore_reads_data_containers() {
    let scene = Scene::new();
    let store = store_with(&scene.blobs);
    let (frozen, freezer) = freeze(&store);
    let repository = open(frozen.clone());
    let reads = |what: &str| assert_eq!(freezer.reads.load(Ordering::SeqCst), 0, "{what}");
    assert_indexed(&repository, "two backups");
    fs::remove_file(scene.path().join("noise.bin")).unwrap();
    let third = back_up(&repository, scene.path());
    reads("backup");
    let snapshots = snapshot::list(repository.store.as_ref()).unwrap().0;
    let mut names = Vec::new();
    let mut visit = |path: &Path, _: &fhrd::repo::tree::Node| {
        names.push(path.display().to_string());
        Ok(())
    };
    let _ = list(&open(frozen.clone()), &snapshots[0], None, Depth::All, &mut visit).unwrap();
    assert!(names.iter().any(|name| name.ends_with("text/first.txt")), "{names:?}");
    let (query, mut found) = (FindQuery::new(&["*.txt".into()], false).unwrap(), 0);
    let mut visit = |_| {
        found += 1;
        Ok(())
    };
    find_entries(&open(frozen.clone()), &snapshots, &query, &AtomicBool::default(), &mut visit).unwrap();
    assert!(found >= 2, "{found}");
    assert!(repository_stats(&open(frozen.clone())).unwrap().containers > 0);
    reads("list, find and stats");
    let report = run_check(&open(frozen.clone()), false).unwrap();
    assert_eq!((report.defect_count, report.hot_indexes.missing), (0, 0), "{report:#?}");
    assert_eq!(report.hot_indexes.sound, containers(store.as_ref()).len() as u64);
    reads("check");
    let repository = open(frozen.clone());
    forget(repository.store.as_ref(), &scene.first);
    forget(repository.store.as_ref(), &scene.second);
    let report = prune(&open(frozen.clone()), &no_grace(), &Arc::default()).unwrap();
    assert!(report.containers_deleted > 0 && report.hot_indexes_deleted >= report.containers_deleted, "{report:?}");
    reads("prune");
    assert_indexed(&open(frozen.clone()), "prune");
    recompress(&open(frozen.clone()), &no_grace(), 1, &Arc::default()).unwrap();
    reads("recompress");
    assert_cold(&open(frozen.clone()), &third);
    let read = run_check(&open(frozen.clone()), true).unwrap_err();
    assert_eq!(read.kind(), ErrorKind::Cold, "{read}");
    freezer.is_thawed.store(true, Ordering::SeqCst);
    assert_eq!(lost_files(&open(frozen.clone()), &third, scene.path(), "thawed"), [""; 0]);
    assert_eq!(run_check(&open(frozen), true).unwrap().defect_count, 0);
}

/// Fails unless a restore ends because the data is cold.
fn assert_cold(repository: &Repository, id: &str) {
    let target = tempfile::tempdir().unwrap();
    let named = snapshot::find(repository.store.as_ref(), id).unwrap();
    let path = target.path().join("restored");
    let error = restore(repository, &config(), &named, &path, &Progress::default(), &Arc::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cold, "{error}");
    assert!(error.to_string().contains("restore --thaw"), "{error}");
}

#[test]
fn nothing_is_stored_as_a_copy_of_what_is_cold() {
    let scene = Scene::new();
    let store = store_with(&scene.blobs);
    let repository = open(store.clone());
    let indexes = containers(store.as_ref()).into_iter();
    let indexes: Vec<_> =
        indexes.map(|id| (id, read_container_index(repository.store.as_ref(), &id).unwrap())).collect();
    // Listings are differences to others, which stay hot.
    let (hot, data): (Vec<_>, Vec<_>) =
        indexes.iter().partition(|(_, container_index)| container_index.kind == ContainerKind::Metadata);
    let stored: BTreeSet<_> = hot.iter().flat_map(|(_, index)| &index.entries).map(|entry| entry.fingerprint).collect();
    for (id, container_index) in data {
        assert!(container_index.bases.is_empty(), "{id} copies from {:?}", container_index.bases);
    }
    let bases: Vec<_> = hot.iter().flat_map(|(_, index)| &index.bases).collect();
    assert!(bases.iter().all(|base| stored.contains(&base.fingerprint)), "{bases:?}");
}

#[test]
fn no_model_is_compared_with_a_stored_one() {
    let store = Arc::new(MemoryStore::new());
    let (frozen, freezer) = freeze(&store);
    set(&Repository::init(frozen.clone(), &RepositoryConfig::default()).unwrap(), true).unwrap();
    let source = tempfile::tempdir().unwrap();
    let (mut values, mut last) = (weights(3, 80_000), String::new());
    for step in 0..3 {
        let model = safetensors(&[
            Tensor::new("layer.weight", "BF16", &[160, 500], bfloat16(&values)),
            Tensor::new("layer.wide", "F32", &[160, 500], float32(&values)),
        ]);
        write(source.path().join("model.safetensors"), &model);
        write(source.path().join(format!("step-{step}.safetensors")), &model);
        last = back_up(&open(frozen.clone()), source.path());
        values = tuned(&values, step, 0.001);
    }
    assert_eq!(freezer.reads.load(Ordering::SeqCst), 0);
    freezer.is_thawed.store(true, Ordering::SeqCst);
    assert_eq!(lost_files(&open(frozen), &last, source.path(), "thawed"), [""; 0]);
}

#[test]
fn a_missing_or_damaged_hot_index_is_noticed_and_written_again_from_its_container() {
    let scene = Scene::new();
    for (name, bytes) in scene.hot_indexes() {
        let id = ContainerId(name.indexed().unwrap());
        let flipped = |at: usize| {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            Some(flipped)
        };
        // One of another container is as bad: whoever believed it would take chunks of one for those of the other.
        let others = scene.hot_indexes().filter(|(other, _)| *other != name).map(|(_, other)| Some(other.clone()));
        let damaged = [None, flipped(0), flipped(70), flipped(bytes.len() - 1), Some(bytes[..100].to_vec())];
        for damaged in damaged.into_iter().chain(others) {
            let what = format!("{name}: {:?}", damaged.as_ref().map(Vec::len));
            let store = store_with(&scene.blobs);
            match &damaged {
                None => store.delete(name, Durable::OnReturn).unwrap(),
                Some(bytes) => store.replace(name, bytes),
            }
            let (frozen, freezer) = freeze(&store);
            if is_data(&store, &blob_name(&id)) {
                // What cannot be read counts as not stored, and is not needed any more.
                let (again, freezer) = freeze(&store_with(&blobs_of(store.as_ref())));
                let next = back_up(&open(again.clone()), scene.path());
                prune(&open(again.clone()), &no_grace(), &Arc::default()).unwrap();
                freezer.is_thawed.store(true, Ordering::SeqCst);
                for snapshot in [&next, &scene.second] {
                    assert_eq!(lost_files(&open(again.clone()), snapshot, scene.path(), &what), [""; 0]);
                }
            }
            freezer.is_thawed.store(true, Ordering::SeqCst);
            let report = run_check(&open(frozen.clone()), false).unwrap();
            let counts = (report.hot_indexes.missing, report.hot_indexes.damaged);
            assert_eq!(counts, if damaged.is_none() { (1, 0) } else { (0, 1) }, "{what}: {report:#?}");
            assert!(report.notes.iter().any(|note| note.contains(&id.to_string())), "{what}: {:?}", report.notes);
            assert_eq!(report.defect_count, 0, "{what}: {report:#?}");
            assert_eq!(lost_files(&open(frozen.clone()), &scene.second, scene.path(), &what), [""; 0]);
            let added = add(&open(frozen), &Progress::default(), &Arc::default()).unwrap();
            assert_eq!((added.containers, added.unread), (1, 0), "{what}: {added:?}");
            assert!(store.get(name, 1 << 20).unwrap() == *bytes, "{what}: the same as when it was put");
        }
    }
}

#[test]
fn whoever_writes_containers_writes_hot_indexes() {
    let scene = Scene::new();
    let source = open(store_with(&scene.blobs));
    let target = Arc::new(MemoryStore::new());
    let (frozen, freezer) = freeze(&target);
    let copied = Repository::init(frozen, &RepositoryConfig::default()).unwrap();
    parity::set(&copied, ParityShare::new(300)).unwrap();
    set(&copied, true).unwrap();
    let config = config();
    let mut copier = Copier::new(&source, &copied, &config).unwrap();
    for named in snapshot::list(source.store.as_ref()).unwrap().0 {
        copier.copy(&named, false, &Progress::default(), &Arc::default()).unwrap();
    }
    assert!(!containers(target.as_ref()).is_empty());
    assert_indexed(&copied, "copy");
    assert_eq!(freezer.reads.load(Ordering::SeqCst), 0);
    crate::parity::assert_protected(&open(target), "copy");
}

#[test]
fn what_exists_gets_hot_indexes_later() {
    let scene = Scene::new();
    let store = store_with(&scene.blobs);
    let repository = open(store.clone());
    assert!(set(&repository, false).unwrap());
    assert!(add(&repository, &Progress::default(), &Arc::default()).is_err(), "it is not cold");
    scene.hot_indexes().for_each(|(name, _)| store.delete(name, Durable::OnReturn).unwrap());
    write(scene.path().join("new"), &Random(8).bytes(5000));
    let repository = open(store.clone());
    back_up(&repository, scene.path());
    assert!(indexed(store.as_ref()).unwrap().is_empty(), "it is off");
    assert!(!set(&repository, true).unwrap());
    let added = add(&repository, &Progress::default(), &Arc::default()).unwrap();
    assert!(added.containers > 2 && added.containers_before == 0 && added.unread == 0, "{added:?}");
    assert_indexed(&repository, "add");
    scene.hot_indexes().for_each(|(name, bytes)| assert!(store.get(name, 1 << 20).unwrap() == *bytes, "{name}"));
    assert_eq!(add(&repository, &Progress::default(), &Arc::default()).unwrap().containers, 0);
}

#[test]
fn what_a_crash_leaves_has_hot_indexes_before_a_segment_names_it() {
    let scene = Scene::new();
    write(scene.path().join("more"), &Random(12).bytes(9000));
    for took_effect in [false, true] {
        for operation in 0.. {
            let store = store_with(&scene.blobs);
            let fault = InjectedFault::PowerCut { operation, took_effect };
            let faulty = Arc::new(FaultyStore::new(freeze(&store).0, fault));
            if let Ok(repository) = Repository::open(faulty.clone()) {
                let request = fhrd::backup::BackupRequest::new(fhrd::backup::TreeSource {
                    bare: true,
                    ..fhrd::backup::TreeSource::new(vec![scene.path().into()], "test")
                });
                let _ = fhrd::backup::backup(&repository, &config(), &request, &Progress::default(), &Arc::default());
                let _ = fs::remove_dir_all(cache_directory(&repository).unwrap());
            }
            let what = format!("operation {operation}, done: {took_effect}");
            let (frozen, freezer) = freeze(&store);
            let repository = open(frozen.clone());
            let listing = ContainerListing::take(&repository.store).unwrap();
            let there = indexed(store.as_ref()).unwrap();
            let segments = listing.segments();
            let named = segments.iter().flat_map(|segment| segment.containers().iter().copied());
            let missing: Vec<_> = named.filter(|id| !there.contains_key(id)).collect();
            assert!(missing.is_empty(), "{what}: {missing:?}");
            let next = back_up(&repository, scene.path());
            // A container whose hot index was not put is of no use, and goes.
            prune(&open(frozen.clone()), &no_grace(), &Arc::default()).unwrap();
            assert_all_can_be_indexed(&open(frozen.clone()), &what);
            freezer.is_thawed.store(true, Ordering::SeqCst);
            assert_eq!(lost_files(&open(frozen), &next, scene.path(), &what), [""; 0]);
            if faulty.operations() <= operation {
                break;
            }
        }
    }
}

#[test]
fn what_a_crash_of_a_prune_leaves_is_swept_by_the_next() {
    let scene = Scene::new();
    fs::remove_file(scene.path().join("noise.bin")).unwrap();
    let store = store_with(&scene.blobs);
    let last = back_up(&open(store.clone()), scene.path());
    forget(store.as_ref(), &scene.first);
    forget(store.as_ref(), &scene.second);
    let blobs = blobs_of(store.as_ref());
    for operation in 0.. {
        let store = store_with(&blobs);
        let fault = InjectedFault::PowerCut { operation, took_effect: true };
        let (frozen, freezer) = freeze(&store);
        let faulty = Arc::new(FaultyStore::new(frozen.clone(), fault));
        if let Ok(repository) = Repository::open(faulty.clone()) {
            let _ = prune(&repository, &no_grace(), &Arc::default());
        }
        let what = format!("operation {operation}");
        prune(&open(frozen.clone()), &no_grace(), &Arc::default()).unwrap();
        assert_all_can_be_indexed(&open(frozen.clone()), &what);
        assert_eq!(freezer.reads.load(Ordering::SeqCst), 0, "{what}");
        freezer.is_thawed.store(true, Ordering::SeqCst);
        assert_eq!(lost_files(&open(frozen), &last, scene.path(), &what), [""; 0]);
        if faulty.operations() <= operation {
            break;
        }
    }
}

#[test]
fn a_sweep_takes_the_hot_indexes_of_what_is_gone_and_of_nothing_that_was_lost() {
    let scene = Scene::new();
    let (store, stop) = (store_with(&scene.blobs), Arc::default());
    let (name, bytes) = scene.blobs.iter().find(|(name, _)| name.kind() == BlobKind::Container).unwrap();
    store.delete(name, Durable::OnReturn).unwrap();
    assert_eq!(sweep(&open(store.clone()), &stop).unwrap().hot_indexes, 0, "a segment names it");
    store.replace(name, bytes);
    let stray = BlobName::hot_index_of(&[9; 32]);
    store.replace(&stray, b"index");
    assert_eq!(sweep(&open(store.clone()), &stop).unwrap().hot_indexes, 1);
    assert!(store.head(&stray).unwrap().is_none());
    assert_indexed(&open(store), "the others stay");
}

#[test]
fn older_programs_read_and_do_not_write_while_it_is_cold() {
    let scene = Scene::new();
    let marks = scene.blobs.keys().filter(|name| name.kind() == BlobKind::RequiredMark).count();
    assert_eq!(marks, 1, "a kind of mark that they do not know, and must");
    let store = store_with(&scene.blobs);
    assert!(set(&open(store.clone()), true).unwrap());
    assert_eq!(store.list(BlobKind::RequiredMark.into()).unwrap().len(), 1, "one mark at a time");
    assert!(set(&open(store.clone()), false).unwrap());
    assert!(store.list(BlobKind::Mark.into()).unwrap().is_empty(), "now they write again");
}

#[test]
fn data_containers_stay_until_their_minimum_age() {
    let scene = Scene::new();
    let store = store_with(&scene.blobs);
    forget(store.as_ref(), &scene.first);
    forget(store.as_ref(), &scene.second);
    let old = PruneOptions { min_age: Some(Duration::from_secs(180 * 24 * 3600)), ..no_grace() };
    let data = containers(store.as_ref()).into_iter().filter(|id| is_data(&store, &blob_name(id))).count() as u64;
    fs::remove_file(scene.path().join("noise.bin")).unwrap();
    let report = prune(&open(store.clone()), &old, &Arc::default()).unwrap();
    assert_eq!(report.containers_min_age, data, "{report:?}");
    assert!(report.containers_deleted > 0, "metadata is not billed so: {report:?}");
    assert_eq!(report.byte_days_min_age / report.bytes_min_age, 180, "{report:?}");
    let report = prune(&open(store.clone()), &no_grace(), &Arc::default()).unwrap();
    assert_eq!((report.containers_deleted, report.containers_min_age), (data, 0), "{report:?}");
    assert!(files(scene.path()).len() > 1);
}
