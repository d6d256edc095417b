//! Deletion beside writers: every order of the store calls of backups, prunes and `forget`, with the production code.
//!
//! A run has two actors over one store in memory. Each call that touches what actors share is a point at which the other
//! one may go on. The search is depth-first and complete where it says so; `FHRD_INTERLEAVINGS` sets another number of
//! runs for each case. At the end of each run every reported snapshot is read to the last byte. Each rule of the
//! protocol is then left out in turn, and the search must find a loss.

mod scheduler;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fhrd::backup::{BackupRequest, backup};
use fhrd::config::{Config, RepositoryConfig};
use fhrd::keep::{PruneOptions, prune};
use fhrd::metrics::Progress;
use fhrd::repo::Repository;
use fhrd::repo::index::ContainerListing;
use fhrd::repo::paths::cache_directory;
use fhrd::repo::reader::{ChunkReader, RecipeWalk};
use fhrd::repo::recipe::ContentReference;
use fhrd::repo::salts::Salts;
use fhrd::repo::snapshot::{self, Snapshot};
use fhrd::repo::tree::{NodeKind, TreeCursor};
use fhrd::store::{FaultyStore, InjectedFault, MemoryStore, Store};
use fhrd::types::SnapshotId;

use crate::input::edit;
use crate::trees::Random;
use scheduler::{ActorStore, Broken, Explored, Scheduler, explore};

/// Runs of a case, at most, unless the environment says otherwise.
const RUNS_MAX: usize = 600;

fn runs_max() -> usize {
    let number = std::env::var("FHRD_INTERLEAVINGS").ok().and_then(|text| text.parse().ok());
    number.unwrap_or(RUNS_MAX)
}

fn config() -> Config {
    let mut config = Config::default();
    config.pipeline.workers = 1;
    config.model.detect_formats = false;
    config
}

fn no_grace() -> PruneOptions {
    PruneOptions { grace: Duration::ZERO, dry_run: false, repack_bytes_max: u64::MAX, container_bytes: 32 << 20 }
}

/// The blobs of a store.
type Blobs = BTreeMap<String, Vec<u8>>;

fn blobs_of(store: &dyn Store) -> Blobs {
    let listed = store.list("").unwrap();
    listed.into_iter().map(|blob| (blob.name.clone(), store.get(&blob.name, 1 << 30).unwrap())).collect()
}

fn store_with(blobs: &Blobs) -> Arc<MemoryStore> {
    let store = MemoryStore::new();
    blobs.iter().for_each(|(name, bytes)| store.replace(name, bytes));
    Arc::new(store)
}

fn back_up(repository: &Repository, source: &Path, force: bool) -> fhrd::Result<SnapshotId> {
    let request =
        BackupRequest { paths: vec![source.into()], host: "test".into(), bare: true, force, ..Default::default() };
    let report = backup(repository, &config(), &request, &Progress::default(), &Arc::default())?;
    Ok(SnapshotId::parse(&report.snapshot).unwrap())
}

fn clear_cache(repository: &Repository) {
    let _ = fs::remove_dir_all(cache_directory(repository).unwrap());
}

/// Reads everything that a snapshot needs, and checks every chunk.
fn read_whole(repository: &Repository, id: &SnapshotId) -> fhrd::Result<()> {
    let snapshot = Snapshot::load(repository.store.as_ref(), id)?;
    let listing = Arc::new(ContainerListing::take(&repository.store)?);
    let mut reader = ChunkReader::new(repository, listing, 8 << 20);
    let mut contents = vec![(snapshot.root, true)];
    while let Some((content, is_directory)) = contents.pop() {
        if is_directory {
            let mut cursor = TreeCursor::open(content);
            while let Some(node) = cursor.next(&mut reader)? {
                contents.push((node.content, node.kind == NodeKind::Directory));
            }
        } else if let Some(content) = content {
            let mut walk = RecipeWalk::new(content);
            while let Some(reference) = walk.next(&mut reader)? {
                if let ContentReference::Chunk { fingerprint, len } = reference {
                    reader.read_exact(&fingerprint, len)?;
                }
            }
        }
    }
    Ok(())
}

/// A repository, and sources to back up.
struct Scene {
    directory: tempfile::TempDir,
    blobs: Blobs,
    /// Snapshots that exist at the start and that nobody deletes.
    snapshots: Vec<SnapshotId>,
}

impl Scene {
    /// Two versions of a text, of which the second is stored as copies from the first, each in a source of its own; the
    /// snapshots of `retained` versions stay.
    fn new(retained: &[usize]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut random = Random(7);
        let mut text = random.text(60_000);
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let repository = Repository::init(store, &RepositoryConfig::default()).unwrap();
        let repository = Repository { salts: Salts::fixed(1), ..repository };
        let mut snapshots = Vec::new();
        for version in 0..3 {
            let source = directory.path().join(version.to_string());
            fs::create_dir(&source).unwrap();
            fs::write(source.join("text"), &text).unwrap();
            fs::write(source.join("noise"), Random(version).bytes(3000)).unwrap();
            text = edit(&mut random, &text, 12);
            if version < 2 {
                let id = back_up(&repository, &source, true).unwrap();
                if retained.contains(&(version as usize)) {
                    snapshots.push(id);
                } else {
                    snapshot::delete(repository.store.as_ref(), &id).unwrap();
                }
            }
        }
        clear_cache(&repository);
        let blobs = blobs_of(repository.store.as_ref());
        Scene { directory, blobs, snapshots }
    }

    /// The blobs after a prune that was killed at its `operation`-th store call.
    fn after_killed_prune(&self, operation: u64) -> Blobs {
        let store = store_with(&self.blobs);
        let fault = InjectedFault::PowerCut { operation, took_effect: true };
        let faulty: Arc<dyn Store> = Arc::new(FaultyStore::new(store.clone(), InjectedFault::None));
        let repository = Repository::open(faulty).unwrap();
        let faulty = Arc::new(FaultyStore::new(store.clone(), fault));
        let repository = Repository { store: faulty, salts: Salts::fixed(9), ..repository };
        let _ = prune(&repository, &no_grace(), &Arc::default());
        blobs_of(store.as_ref())
    }
}

/// What an actor does.
#[derive(Debug, Clone, Copy)]
enum Act {
    /// Backs up a version.
    Backup(usize),
    /// Prunes without a grace period, so that it takes every writer for dead.
    Prune,
    /// Prunes, and takes no writer for dead.
    PatientPrune,
    /// Deletes all snapshots of the start, then prunes.
    ForgetAndPrune,
}

fn act(repository: &Repository, act: Act, sources: &Path) -> fhrd::Result<Option<SnapshotId>> {
    match act {
        Act::Backup(version) => {
            let id = back_up(repository, &sources.join(version.to_string()), true);
            clear_cache(repository);
            id.map(Some)
        }
        Act::Prune => prune(repository, &no_grace(), &Arc::default()).map(|_| None),
        Act::PatientPrune => {
            let options = PruneOptions { grace: Duration::from_secs(3600), ..no_grace() };
            prune(repository, &options, &Arc::default()).map(|_| None)
        }
        Act::ForgetAndPrune => {
            for named in snapshot::list_reported(repository.store.as_ref())?.0 {
                snapshot::delete(repository.store.as_ref(), &named.id)?;
            }
            prune(repository, &no_grace(), &Arc::default()).map(|_| None)
        }
    }
}

/// Searches the orders of two actors that begin with `blobs`. `broken` says who leaves out which rule.
fn search(scene: &Scene, blobs: &Blobs, acts: [Act; 2], broken: [Broken; 2], runs: usize) -> Explored {
    let current: Mutex<Arc<MemoryStore>> = Mutex::default();
    let start = |scheduler: &Arc<Scheduler>| {
        let store = store_with(blobs);
        *current.lock().unwrap() = store.clone();
        let repository = Repository::open(store.clone()).unwrap();
        let reported: Arc<Mutex<Vec<SnapshotId>>> = Arc::default();
        let sources = scene.directory.path();
        let mut threads = Vec::new();
        for actor in 0..acts.len() {
            let own = ActorStore {
                inner: store.clone(),
                scheduler: scheduler.clone(),
                actor,
                run: sources.display().to_string(),
                broken: broken[actor],
                first_lists: Mutex::default(),
            };
            let salts = Salts::fixed(100 + actor as u64);
            let repository = Repository { store: Arc::new(own), salts, ..repository.clone() };
            let (scheduler, reported, action) = (scheduler.clone(), reported.clone(), acts[actor]);
            let sources = sources.to_path_buf();
            threads.push(std::thread::spawn(move || {
                if let Ok(Some(id)) = act(&repository, action, &sources) {
                    reported.lock().unwrap().push(id);
                }
                scheduler.finish(actor);
            }));
        }
        let (is_forgetting, snapshots) =
            (acts.iter().any(|act| matches!(act, Act::ForgetAndPrune)), scene.snapshots.clone());
        let check: Box<dyn FnOnce() -> Result<(), String>> = Box::new(move || {
            for thread in threads {
                thread.join().map_err(|_| "an actor panicked".to_string())?;
            }
            let mut wanted = reported.lock().unwrap().clone();
            if !is_forgetting {
                wanted.extend(snapshots);
            }
            for id in wanted {
                read_whole(&repository, &id).map_err(|error| format!("snapshot {id}: {error}"))?;
            }
            Ok(())
        });
        check
    };
    explore(&|| current.lock().unwrap().clone(), acts.len(), runs, &start)
}

fn assert_safe(what: &str, scene: &Scene, blobs: &Blobs, acts: [Act; 2]) {
    let explored = search(scene, blobs, acts, [Broken::None; 2], runs_max());
    eprintln!("{what}: {} runs, {} states, complete: {}", explored.runs, explored.states, explored.is_complete);
    assert!(explored.loss.is_none(), "{what}: {:?}", explored.loss);
    assert!(explored.runs > 10, "{what}: {explored:?}");
}

/// The first rule that is left out belongs to the first actor.
fn assert_loses(scene: &Scene, blobs: &Blobs, acts: [Act; 2], broken: [Broken; 2]) {
    let explored = search(scene, blobs, acts, broken, 20 * runs_max());
    let what = format!("{acts:?} without {broken:?}");
    eprintln!("{what}: {} runs, {:?}", explored.runs, explored.loss);
    assert!(explored.loss.is_some(), "{what} loses nothing: {} runs", explored.runs);
}

#[test]
#[ignore = "part of the proof of prune, whose verb is hidden until all of it has passed"]
fn a_backup_beside_a_prune_loses_nothing() {
    for retained in [vec![], vec![0], vec![1]] {
        let scene = Scene::new(&retained);
        for version in [1, 2] {
            for second in [Act::Prune, Act::PatientPrune] {
                let what = format!("backup of version {version} beside {second:?}, {retained:?} stay");
                assert_safe(&what, &scene, &scene.blobs, [Act::Backup(version), second]);
            }
        }
    }
}

#[test]
#[ignore = "part of the proof of prune, whose verb is hidden until all of it has passed"]
fn two_prunes_lose_nothing() {
    for retained in [vec![0], vec![1]] {
        let scene = Scene::new(&retained);
        assert_safe("two prunes", &scene, &scene.blobs, [Act::Prune, Act::Prune]);
    }
}

#[test]
#[ignore = "part of the proof of prune, whose verb is hidden until all of it has passed"]
fn forget_beside_a_backup_loses_nothing() {
    let scene = Scene::new(&[0, 1]);
    assert_safe("forget", &scene, &scene.blobs, [Act::Backup(1), Act::ForgetAndPrune]);
    assert_safe("forget", &scene, &scene.blobs, [Act::Backup(2), Act::ForgetAndPrune]);
}

#[test]
#[ignore = "part of the proof of prune, whose verb is hidden until all of it has passed"]
fn a_dead_prune_is_finished_beside_writers_and_prunes() {
    let scene = Scene::new(&[1]);
    let mut with_entry = 0;
    for operation in 0..200 {
        let blobs = scene.after_killed_prune(operation);
        if !blobs.keys().any(|name| name.starts_with("pending/")) {
            continue;
        }
        with_entry += 1;
        if with_entry % 6 == 1 {
            let what = format!("a prune killed at call {operation}");
            assert_safe(&what, &scene, &blobs, [Act::Backup(1), Act::Prune]);
            assert_safe(&what, &scene, &blobs, [Act::Prune, Act::Prune]);
        }
    }
    assert!(with_entry > 3, "{with_entry}");
}

#[test]
#[ignore = "part of the proof of prune, whose verb is hidden until all of it has passed"]
fn each_rule_of_a_writer_is_needed() {
    let scene = Scene::new(&[]);
    let acts = [Act::Backup(1), Act::PatientPrune];
    for broken in [Broken::NoIntent, Broken::NoPendingLook, Broken::StaleContainersOfBackup] {
        assert_loses(&scene, &scene.blobs, acts, [broken, Broken::None]);
    }
    assert_loses(&scene, &scene.blobs, [Act::Backup(1), Act::Prune], [Broken::NoRecheck, Broken::None]);
}

#[test]
#[ignore = "part of the proof of prune, whose verb is hidden until all of it has passed"]
fn each_rule_of_a_prune_is_needed() {
    let scene = Scene::new(&[]);
    let acts = [Act::Backup(1), Act::PatientPrune];
    for broken in [Broken::NoPendingEntry, Broken::NoIntentsRead, Broken::StaleSnapshots] {
        assert_loses(&scene, &scene.blobs, acts, [Broken::None, broken]);
    }
    let scene = Scene::new(&[1]);
    for broken in [Broken::NoWithdrawal, Broken::StaleContainersOfPrune] {
        assert_loses(&scene, &scene.blobs, [Act::Prune, Act::Prune], [broken, broken]);
    }
}

/// Bytes of the containers.
fn container_bytes(store: &MemoryStore) -> u64 {
    store.list("containers").unwrap().iter().map(|blob| blob.len).sum()
}

#[test]
#[ignore = "part of the proof of prune, whose verb is hidden until all of it has passed"]
fn a_prune_killed_at_any_call_loses_nothing_and_the_next_one_finishes() {
    let scene = Scene::new(&[1]);
    let open = |store: Arc<dyn Store>, seed| {
        let repository = Repository::open(store).unwrap();
        Repository { salts: Salts::fixed(seed), ..repository }
    };
    let clean = store_with(&scene.blobs);
    prune(&open(clean.clone(), 5), &no_grace(), &Arc::default()).unwrap();
    let (before, after) = (container_bytes(&store_with(&scene.blobs)), container_bytes(&clean));
    assert!(after < before, "{after} of {before} bytes");
    let assert_whole = |repository: &Repository, what: &str| {
        for id in &scene.snapshots {
            read_whole(repository, id).unwrap_or_else(|error| panic!("{what}: {error}"));
        }
    };
    for number in 0.. {
        let (operation, took_effect) = (number / 2, number % 2 == 1);
        let store = store_with(&scene.blobs);
        let repository = open(store.clone(), 6);
        let faulty = Arc::new(FaultyStore::new(store.clone(), InjectedFault::PowerCut { operation, took_effect }));
        let result = prune(&Repository { store: faulty.clone(), ..repository.clone() }, &no_grace(), &Arc::default());
        if faulty.operations() <= operation {
            result.unwrap();
            assert!(operation > 50, "{operation}");
            break;
        }
        let what = format!("killed at call {operation}, done: {took_effect}");
        assert_whole(&repository, &what);
        let next = Repository { salts: Salts::fixed(7), ..repository.clone() };
        for _ in 0..2 {
            prune(&next, &no_grace(), &Arc::default()).unwrap_or_else(|error| panic!("{what}: {error}"));
        }
        assert_whole(&repository, &what);
        assert!(store.list("pending").unwrap().is_empty(), "{what}");
        assert!(container_bytes(&store) <= after + 4096, "{what}: {} bytes, not {after}", container_bytes(&store));
    }
}

#[test]
#[ignore = "part of the proof of prune, whose verb is hidden until all of it has passed"]
fn the_last_of_twenty_versions_takes_little_more_than_a_fresh_repository_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path();
    let mut random = Random(11);
    let mut texts: Vec<Vec<u8>> = (0..8).map(|_| random.text(300_000)).collect();
    let create = || {
        let store = Arc::new(MemoryStore::new());
        (store.clone(), Repository::init(store, &RepositoryConfig::default()).unwrap())
    };
    let (store, repository) = create();
    for _ in 0..20 {
        for (number, text) in texts.iter_mut().enumerate() {
            *text = edit(&mut random, text, 10);
            fs::write(source.join(number.to_string()), &text).unwrap();
        }
        back_up(&repository, source, true).unwrap();
    }
    let (snapshots, _) = snapshot::list(store.as_ref()).unwrap();
    let (last, others) = snapshots.split_last().unwrap();
    others.iter().for_each(|named| snapshot::delete(store.as_ref(), &named.id).unwrap());
    let report = prune(&repository, &no_grace(), &Arc::default()).unwrap();
    read_whole(&repository, &last.id).unwrap();
    clear_cache(&repository);
    let (fresh, repository) = create();
    back_up(&repository, source, true).unwrap();
    clear_cache(&repository);
    let (pruned, fresh) = (container_bytes(&store), container_bytes(&fresh));
    eprintln!("{pruned} bytes after prune, {fresh} fresh: {report:?}");
    assert!(pruned * 100 <= fresh * 115, "{pruned} bytes, fresh {fresh}: {report:?}");
}
