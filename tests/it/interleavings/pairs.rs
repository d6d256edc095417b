//! Every verb beside every verb that is killed or stopped at its store calls: no false alarm, and nothing is lost.
//!
//! 1. *Killed*: the first verb dies before one of its writes, so each state that it can leave is met. Then the second
//!    one runs.
//! 2. *Stopped*: at one of the first verb's store calls the whole second one runs, then the first one goes on.
//! 3. Both must call nothing damaged. Afterwards a check finds nothing, and every snapshot that is not forgotten is read
//!    to the last byte, before and after one more prune.
//!
//! Some points of each pair are tried. With `FHRD_VERB_PAIRS=all` every point is.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fhrd::Error;
use fhrd::config::{Config, RepositoryConfig};
use fhrd::error::ErrorKind;
use fhrd::inspect::check::{ReadData, check, check_snapshots};
use fhrd::inspect::diff::{DiffSide, diff};
use fhrd::inspect::list::{Depth, list};
use fhrd::inspect::usage::usage;
use fhrd::keep::{Copier, RewriteRequest, TagChange, prune, rewrite, tag};
use fhrd::metrics::Progress;
use fhrd::mount::SnapshotFiles;
use fhrd::repair::containers::repair_containers;
use fhrd::repair::index::repair_index;
use fhrd::repair::snapshots::{SnapshotRepair, repair_snapshots};
use fhrd::repo::Repository;
use fhrd::repo::salts::Salts;
use fhrd::repo::snapshot::{self, NamedSnapshot};
use fhrd::restore::restore;
use fhrd::store::{
    BlobKind, BlobMetadata, BlobName, BlobPrefix, Durable, ListedBlob, MemoryStore, PutOptions, Reading, Store,
    StoreExt,
};
use fhrd::types::SnapshotId;

type Result<T, E = Error> = std::result::Result<T, E>;

use super::scene::{Scene, back_up, blobs_of, clear_cache, no_grace, open, read_whole, store_with};
use super::uploads::{commit, upload};
use crate::double::{Double, double_store};
use crate::trees::Random;

/// Points of a pair that are tried unless all are.
const POINTS: u64 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Backup,
    Prune,
    /// Forgets one of two snapshots, and prunes.
    Forget,
    Tag,
    Rewrite,
    Copy,
    /// Uploads an object, and commits it.
    Upload,
    RepairIndex,
    RepairContainers,
    RepairSnapshots,
    Check,
    CheckData,
    CheckSnapshots,
    Restore,
    /// List, diff, usage and mount.
    Look,
}

const VERBS: [Verb; 15] = [
    Verb::Backup,
    Verb::Prune,
    Verb::Forget,
    Verb::Tag,
    Verb::Rewrite,
    Verb::Copy,
    Verb::Upload,
    Verb::RepairIndex,
    Verb::RepairContainers,
    Verb::RepairSnapshots,
    Verb::Check,
    Verb::CheckData,
    Verb::CheckSnapshots,
    Verb::Restore,
    Verb::Look,
];

/// Where the store is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Distance {
    /// It takes one request at a time.
    Here,
    /// It takes several, so that machines share clues to near versions.
    Far,
}

/// What happens at a point of a verb.
enum At {
    Nothing,
    /// It is killed before the write with this number.
    Killed(u64),
    /// Something else runs before the call with this number.
    Stopped(u64, Mutex<Option<Box<dyn FnOnce() + Send>>>),
}

/// The store as a verb sees it.
struct Seen {
    inner: Arc<MemoryStore>,
    location: String,
    requests_max: usize,
    at: At,
    calls: AtomicU64,
    writes: AtomicU64,
}

impl Seen {
    fn new(inner: &Arc<MemoryStore>, distance: Distance, location: &str, at: At) -> Arc<Self> {
        let (calls, writes) = (AtomicU64::default(), AtomicU64::default());
        let requests_max = if distance == Distance::Far { 4 } else { 1 };
        Arc::new(Seen { inner: inner.clone(), location: location.into(), requests_max, at, calls, writes })
    }

    fn step(&self, is_write: bool) -> Result<()> {
        let number = self.calls.fetch_add(1, Ordering::SeqCst);
        let write =
            if is_write { self.writes.fetch_add(1, Ordering::SeqCst) } else { self.writes.load(Ordering::SeqCst) };
        match &self.at {
            At::Killed(at) if write > *at || is_write && write == *at => Err(Error::Interrupted),
            At::Stopped(at, other) if number == *at => {
                let other = other.lock().unwrap().take();
                other.into_iter().for_each(|other| other());
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

double_store!(Seen);

impl Double for Seen {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn put(&self, name: &BlobName, parts: &[&[u8]]) -> Result<bool> {
        self.step(true)?;
        self.inner.put_if_absent(name, parts)
    }

    fn overwrite(&self, name: &BlobName, parts: &[&[u8]]) -> Result<()> {
        self.step(true)?;
        self.inner.overwrite(name, parts, PutOptions::default())
    }

    fn get(&self, name: &BlobName, bytes_max: u64) -> Result<Vec<u8>> {
        self.step(false)?;
        self.inner.get(name, bytes_max)
    }

    fn get_range(&self, name: &BlobName, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.step(false)?;
        self.inner.get_range(name, offset, len, Reading::Once)
    }

    fn head(&self, name: &BlobName) -> Result<Option<BlobMetadata>> {
        self.step(false)?;
        self.inner.head(name)
    }

    fn list(&self, prefix: BlobPrefix) -> Result<Vec<ListedBlob>> {
        self.step(false)?;
        self.inner.list(prefix)
    }

    fn delete(&self, name: &BlobName) -> Result<()> {
        self.step(true)?;
        self.inner.delete(name, Durable::OnReturn)
    }

    fn location(&self) -> String {
        self.location.clone()
    }

    fn requests_max(&self) -> usize {
        self.requests_max
    }
}

fn config() -> Config {
    let mut config = Config::default();
    config.pipeline.workers = 1;
    config.model.detect_formats = false;
    config
}

/// Everything that a verb says is damaged.
type Alarms = Vec<String>;

fn run(verb: Verb, repository: &Repository, scene: &Scene) -> Result<Alarms> {
    let (config, progress, stop) = (config(), Progress::default(), Arc::default());
    let store = repository.store.as_ref();
    let named = || -> Result<NamedSnapshot> { snapshot::find(store, &scene.snapshots[0].to_string()) };
    let all = || -> Result<Vec<NamedSnapshot>> { Ok(snapshot::list_reported(store)?.0) };
    Ok(match verb {
        Verb::Backup => back_up(repository, &scene.source(2), true).map(|_| Vec::new())?,
        Verb::Prune => prune(repository, &no_grace(), &stop).map(|_| Vec::new())?,
        Verb::Forget => {
            snapshot::delete(store, &scene.snapshots[0])?;
            prune(repository, &no_grace(), &stop).map(|_| Vec::new())?
        }
        Verb::Tag => {
            let change = TagChange { add: vec!["tag".into()], ..TagChange::default() };
            tag(repository, &snapshot::find(store, &scene.snapshots[1].to_string())?, &change).map(|_| Vec::new())?
        }
        Verb::Rewrite => {
            let mut exclude = fhrd::filesystem::PatternsBuilder::default();
            exclude.add("noise", false, "test")?;
            let (exclude, excludes) = (exclude.build()?, Vec::new());
            let request = RewriteRequest { exclude, excludes, forget: false, allow_problems: false, dry_run: false };
            let outcome = rewrite(repository, &config, &named()?, &request, &progress, &stop)?;
            problems(repository, scene, outcome.report.problems)
        }
        Verb::Copy => {
            let target = Repository::init(Arc::new(MemoryStore::new()), &RepositoryConfig::default())?;
            let copied = Copier::new(repository, &target, &config)?.copy(&named()?, false, &progress, &stop);
            clear_cache(&target);
            problems(repository, scene, copied?.report.map_or(0, |report| report.problems))
        }
        Verb::Upload => {
            upload(repository, &scene.source(2))?;
            commit(repository, &scene.source(2)).map(|_| Vec::new())?
        }
        Verb::RepairIndex => {
            let report = repair_index(repository, &stop)?;
            [report.missing, report.unreadable, report.segments_damaged].concat()
        }
        Verb::RepairContainers => {
            let report = repair_containers(repository, &config, &stop)?;
            report.containers.iter().map(|container| format!("{container:?}")).collect()
        }
        Verb::RepairSnapshots => {
            let report = repair_snapshots(repository, &config, SnapshotRepair::default(), &stop)?;
            report.damaged.iter().map(|one| format!("{one:?}")).chain(report.unreadable).collect()
        }
        Verb::Check => check(repository, &config, ReadData::Nothing, &progress, &stop)?.defects,
        Verb::CheckData => check(repository, &config, ReadData::Everything, &progress, &stop)?.defects,
        Verb::CheckSnapshots => {
            check_snapshots(repository, &config, &all()?, ReadData::Everything, &progress, &stop)?.defects
        }
        Verb::Restore => {
            let target = tempfile::tempdir().unwrap();
            let into = target.path().join("restored");
            let report = restore(repository, &config, &named()?, into.as_path(), &progress, &stop)?;
            report.damaged_files.iter().map(|file| format!("{file:?}")).collect()
        }
        Verb::Look => look(repository, &named()?, all()?)?,
    })
}

/// What could not be read of the first snapshot. If it is forgotten meanwhile, that is right.
fn problems(repository: &Repository, scene: &Scene, count: u64) -> Alarms {
    let is_there = !snapshot::is_forgotten(repository.store.as_ref(), &scene.snapshots[0]).unwrap();
    (0..count).filter(|_| is_there).map(|_| "a problem".into()).collect()
}

fn look(repository: &Repository, named: &NamedSnapshot, all: Vec<NamedSnapshot>) -> Result<Alarms> {
    let stop = Arc::default();
    if let Some(error) = list(repository, named, None, Depth::All, &mut |_, _| Ok(()))?.first {
        return Err(error);
    }
    if let Some(other) = all.last() {
        let side = |named: &NamedSnapshot| DiffSide { snapshot: named.clone(), path: None };
        diff(repository, [&side(named), &side(other)], &stop, &mut |_| Ok(()))?;
    }
    usage(repository, named, None, &stop)?;
    SnapshotFiles::new(repository, all).map(|_| Vec::new())
}

/// What a verb says, if it is a false alarm.
fn alarm(result: Result<Alarms>) -> Option<String> {
    match result {
        Ok(alarms) if alarms.is_empty() => None,
        Ok(alarms) => Some(alarms.join("; ")),
        Err(error) if matches!(error.kind(), ErrorKind::Failed | ErrorKind::Interrupted) => None,
        Err(error) => Some(format!("{:?}: {error}", error.kind())),
    }
}

/// Runs a verb to its end. Gives its calls and its writes.
fn counted(verb: Verb, scene: &Scene, distance: Distance) -> (u64, u64) {
    let store = store_with(&scene.blobs);
    let seen = Seen::new(&store, distance, "counted", At::Nothing);
    let repository = Repository { store: seen.clone(), ..open(store, 100) };
    assert_eq!(alarm(run(verb, &repository, scene)), None, "{verb:?} alone");
    clear_cache(&repository);
    (seen.calls.load(Ordering::SeqCst), seen.writes.load(Ordering::SeqCst))
}

/// Reads everything that must be there at the end.
fn whole(store: &Arc<MemoryStore>, scene: &Scene, has_forgotten: bool) -> Result<(), String> {
    let repository = open(store.clone(), 300);
    for round in 0..2 {
        if let Some(alarm) = alarm(run(Verb::Check, &repository, scene)) {
            return Err(format!("the check at the end, round {round}: {alarm}"));
        }
        let (snapshots, damaged) = snapshot::list_reported(store.as_ref()).unwrap();
        let ids: Vec<SnapshotId> = snapshots.iter().map(|named| named.id).collect();
        let has_first = has_forgotten || ids.contains(&scene.snapshots[0]);
        if !damaged.is_empty() || !has_first || ids.len() < 2 - usize::from(has_forgotten) {
            return Err(format!("a snapshot is lost: {ids:?}, {damaged:?}"));
        }
        for id in ids {
            read_whole(&repository, &id).map_err(|error| format!("snapshot {id}: {error}"))?;
        }
        prune(&repository, &no_grace(), &Arc::default()).map_err(|error| format!("a prune at the end: {error}"))?;
    }
    clear_cache(&repository);
    Ok(())
}

fn killed([first, second]: [Verb; 2], at: u64, scene: &Scene, distance: Distance) -> Option<String> {
    let store = store_with(&scene.blobs);
    let seen = Seen::new(&store, distance, "first", At::Killed(at));
    let repository = open(store.clone(), 100);
    let dead = Repository { store: seen, ..repository.clone() };
    let _ = run(first, &dead, scene);
    clear_cache(&dead);
    let own = Seen::new(&store, distance, "second", At::Nothing);
    let own = Repository { store: own, salts: Salts::fixed(200), ..repository };
    let found = alarm(run(second, &own, scene));
    clear_cache(&own);
    let found = found.or_else(|| whole(&store, scene, [first, second].contains(&Verb::Forget)).err());
    found.map(|text| format!("{second:?} after {first:?} was killed before write {at}: {text}"))
}

fn stopped([first, second]: [Verb; 2], at: u64, scene: &Arc<Scene>, distance: Distance) -> Option<String> {
    let store = store_with(&scene.blobs);
    let repository = open(store.clone(), 100);
    let own = Seen::new(&store, distance, "second", At::Nothing);
    let own = Repository { store: own, salts: Salts::fixed(200), ..repository.clone() };
    let found = Arc::new(Mutex::new(None));
    let other = {
        let (own, scene, found) = (own.clone(), scene.clone(), found.clone());
        move || *found.lock().unwrap() = alarm(run(second, &own, &scene))
    };
    let seen = Seen::new(&store, distance, "first", At::Stopped(at, Mutex::new(Some(Box::new(other)))));
    let outer = Repository { store: seen, ..repository };
    let first_found = alarm(run(first, &outer, scene)).map(|text| format!("the first one: {text}"));
    clear_cache(&outer);
    clear_cache(&own);
    let found = found.lock().unwrap().take().or(first_found);
    let found = found.or_else(|| whole(&store, scene, [first, second].contains(&Verb::Forget)).err());
    found.map(|text| format!("{second:?} while {first:?} is stopped before call {at}: {text}"))
}

/// The points below `count` to try, of pair number `pair`.
fn points(count: u64, pair: usize) -> Vec<u64> {
    if std::env::var("FHRD_VERB_PAIRS").is_ok_and(|value| value == "all") {
        return (0..count).collect();
    }
    // The golden ratio spreads them over all pairs.
    let of = |number: u64| (pair as u64 * POINTS + number).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    let mut points: Vec<u64> = (0..POINTS.min(count)).map(|number| of(number) % count).collect();
    points.sort_unstable();
    points.dedup();
    points
}

/// What is wrong where each verb runs beside each other one, killed or stopped.
fn wrong_pairs(verbs: &[Verb], scene: &Arc<Scene>, distance: Distance) -> Vec<String> {
    let mut wrong = Vec::new();
    for (row, first) in verbs.iter().enumerate() {
        let (calls, writes) = counted(*first, scene, distance);
        for (column, second) in verbs.iter().enumerate() {
            let (pair, number) = ([*first, *second], row * verbs.len() + column);
            wrong.extend(points(writes, number).into_iter().filter_map(|at| killed(pair, at, scene, distance)));
            wrong.extend(points(calls, number).into_iter().filter_map(|at| stopped(pair, at, scene, distance)));
        }
    }
    wrong
}

#[test]
fn every_verb_beside_every_killed_or_stopped_verb_is_right() {
    assert_eq!(wrong_pairs(&VERBS, &Arc::new(Scene::for_verbs()), Distance::Here), [""; 0]);
}

#[test]
fn verbs_that_read_write_or_delete_clues_are_right_beside_each_other() {
    let verbs = [
        Verb::Backup,
        Verb::Prune,
        Verb::Forget,
        Verb::Rewrite,
        Verb::RepairIndex,
        Verb::RepairContainers,
        Verb::Check,
        Verb::CheckData,
    ];
    let mut scene = Scene::for_verbs();
    let store = store_with(&scene.blobs);
    // One more blob, and all of them are merged.
    for number in 0..7 {
        let source = tempfile::tempdir().unwrap();
        std::fs::write(source.path().join("text"), Random(50 + number).text(60_000)).unwrap();
        let far = Seen::new(&store, Distance::Far, "before", At::Nothing);
        let repository = Repository { store: far, ..open(store.clone(), 400 + number) };
        back_up(&repository, source.path(), true).unwrap();
        clear_cache(&repository);
    }
    assert_eq!(store.list(BlobKind::Similarity.into()).unwrap().len(), 7);
    scene.blobs = blobs_of(store.as_ref());
    assert_eq!(wrong_pairs(&verbs, &Arc::new(scene), Distance::Far), [""; 0]);
}

#[test]
fn every_verb_after_a_prune_killed_at_any_write_is_right() {
    let (scene, mut wrong) = (Scene::for_verbs(), Vec::new());
    for first in [Verb::Prune, Verb::Forget] {
        let (_, writes) = counted(first, &scene, Distance::Here);
        assert!(writes > 6, "{first:?}: {writes}");
        for second in [Verb::Check, Verb::CheckData, Verb::RepairIndex, Verb::RepairSnapshots] {
            wrong.extend((0..writes).filter_map(|at| killed([first, second], at, &scene, Distance::Here)));
        }
    }
    assert_eq!(wrong, [""; 0]);
}
