//! Deletion beside writers: every order of the store calls of backups, uploads, prunes and `forget`, with the
//! production code.
//!
//! Actors run over one store in memory. Each call that touches what they share is a point at which another one may go
//! on. The search is depth-first, orders with few switches first. `FHRD_INTERLEAVINGS` sets the number of runs of each
//! case. Searches of two prunes end by themselves within 3,000 runs; of the others, all orders with at most two switches
//! are among the first few hundred runs. At the end of each run every reported snapshot is read to the last byte. Each rule of the protocol is then left out in turn, and the search must find a loss.

mod broken;
mod heals;
mod pairs;
mod readers;
pub mod scene;
mod scheduler;
mod search;
mod uploads;

use std::fs;
use std::sync::Arc;

use fhrd::config::RepositoryConfig;
use fhrd::keep::{SkippedRule, prune};
use fhrd::repo::Repository;
use fhrd::repo::salts::Salts;
use fhrd::repo::snapshot;
use fhrd::store::{BlobKind, FaultyStore, InjectedFault, MemoryStore, Store};

use crate::input::edit;
use crate::trees::Random;
use broken::Broken;
use scene::{Act, Blobs, Scene, Search, back_up, clear_cache, no_grace, open, read_whole, store_with};
use scheduler::Weather;

/// Runs of a safe case, at most, unless the environment says otherwise.
const RUNS_MAX: usize = 40;
/// Runs in which a rule that is left out must lose something.
const RUNS_TO_LOSE: usize = 4000;

fn runs_max(default: usize) -> usize {
    let number = std::env::var("FHRD_INTERLEAVINGS").ok().and_then(|text| text.parse().ok());
    number.unwrap_or(default)
}

fn assert_safe_in(weather: Weather, what: &str, scene: &Scene, blobs: &Blobs, acts: &[Act]) {
    let explored = Search { scene, blobs, acts, broken: &[], weather, begin: &[] }.run(runs_max(RUNS_MAX));
    eprintln!("{what}, {acts:?}, {weather:?}: {explored:?}");
    assert!(explored.loss.is_none(), "{what}, {acts:?}, {weather:?}: {:?}", explored.loss);
    assert!(explored.runs > 10, "{what}: {explored:?}");
}

fn assert_safe(what: &str, scene: &Scene, acts: &[Act]) {
    assert_safe_in(Weather::Fair, what, scene, &scene.blobs, acts);
}

/// Actors of which some break a rule lose something.
fn assert_loses(scene: &Scene, acts: &[Act], broken: &[Broken]) {
    let weather = Weather::Fair;
    assert_search_loses(&Search { scene, blobs: &scene.blobs, acts, broken, weather, begin: &[] });
}

fn assert_search_loses(search: &Search<'_>) {
    let explored = search.run(runs_max(RUNS_TO_LOSE).max(RUNS_TO_LOSE));
    let what = format!("{:?} without {:?}", search.acts, search.broken);
    eprintln!("{what}: {explored:?}");
    assert!(explored.loss.is_some(), "{what} loses nothing: {} runs", explored.runs);
}

#[test]
fn a_backup_beside_a_prune_loses_nothing() {
    for retained in [vec![], vec![0], vec![1]] {
        let scene = Scene::new(&retained);
        for version in [1, 2] {
            for second in [Act::Prune, Act::PatientPrune] {
                assert_safe(&format!("{retained:?} stay"), &scene, &[Act::Backup(version), second]);
            }
        }
    }
}

#[test]
fn a_backup_beside_a_prune_loses_nothing_whatever_the_store_does() {
    let scene = Scene::new(&[0]);
    for weather in [Weather::Pages, Weather::RepeatedDeletes, Weather::SlowReads] {
        for second in [Act::Prune, Act::PatientPrune] {
            assert_safe_in(weather, "0 stays", &scene, &scene.blobs, &[Act::Backup(1), second]);
        }
    }
}

#[test]
fn no_container_is_left_without_its_parity() {
    for retained in [vec![], vec![1]] {
        let scene = Scene::with_parity(&retained);
        for second in [Act::Prune, Act::PatientPrune] {
            assert_safe("parity", &scene, &[Act::Backup(2), second]);
        }
        assert_safe("parity", &scene, &[Act::Prune, Act::Prune]);
    }
}

#[test]
fn no_container_is_left_without_its_hot_index() {
    for retained in [vec![], vec![1]] {
        let scene = Scene::cold(&retained);
        for second in [Act::Prune, Act::PatientPrune] {
            assert_safe("cold", &scene, &[Act::Backup(2), second]);
        }
        assert_safe("cold", &scene, &[Act::Prune, Act::Prune]);
    }
}

#[test]
fn two_prunes_lose_nothing() {
    for retained in [vec![0], vec![1]] {
        let scene = Scene::new(&retained);
        assert_safe(&format!("{retained:?} stay"), &scene, &[Act::Prune, Act::Prune]);
    }
    let scene = Scene::with_half_a_container();
    assert_safe("half a container", &scene, &[Act::Prune, Act::Prune]);
}

#[test]
fn a_backup_beside_a_prune_that_moves_nothing_keeps_its_bases() {
    let scene = Scene::with_half_a_container();
    assert_safe("half a container", &scene, &[Act::Backup(1), Act::LazyPrune(SkippedRule::Nothing)]);
}

#[test]
fn forget_beside_a_backup_loses_nothing() {
    let scene = Scene::new(&[0, 1]);
    assert_safe("forget", &scene, &[Act::Backup(1), Act::ForgetAndPrune]);
    assert_safe("forget", &scene, &[Act::Backup(2), Act::ForgetAndPrune]);
}

#[test]
fn writers_that_store_each_others_base_lose_nothing() {
    for retained in [vec![0], vec![1, 2], vec![0, 1, 2, 3]] {
        let scene = Scene::with_mutual_bases(&retained);
        let store = store_with(&scene.blobs);
        let repository = open(store, 6);
        for _ in 0..2 {
            prune(&repository, &no_grace(), &Arc::default()).unwrap();
            scene.snapshots.iter().for_each(|id| read_whole(&repository, id).unwrap());
        }
        assert_safe(&format!("{retained:?} stay"), &scene, &[Act::Backup(1), Act::PatientPrune]);
    }
}

/// The blobs after a backup that was killed behind its intent, and the number of its intents.
fn with_dead_intent(scene: &Scene) -> Blobs {
    let mut all = (0..300).map(|operation| {
        scene.after_killed(operation, |repository| {
            let _ = back_up(repository, &scene.source(2), true);
        })
    });
    let has_intent = |blobs: &Blobs| blobs.keys().any(|name| name.starts_with("intents/"));
    all.find(has_intent).unwrap()
}

#[test]
fn a_dead_intent_is_broken_beside_a_backup_and_a_prune() {
    let scene = Scene::new(&[0]);
    let blobs = with_dead_intent(&scene);
    assert_safe_in(Weather::Fair, "a dead intent", &scene, &blobs, &[Act::Backup(1), Act::Prune]);
    let acts = [Act::Backup(1), Act::PatientPrune, Act::BreakIntents];
    assert_safe_in(Weather::Fair, "a dead intent", &scene, &blobs, &acts);
}

/// Blobs of different moments at which a prune was killed behind its entry.
fn with_dead_prune(scene: &Scene) -> Vec<(u64, Blobs)> {
    let killed = (0..200).map(|operation| {
        let prune_all = |repository: &Repository| _ = prune(repository, &no_grace(), &Arc::default());
        (operation, scene.after_killed(operation, prune_all))
    });
    let has_entry = |(_, blobs): &(u64, Blobs)| blobs.keys().any(|name| name.starts_with("pending/"));
    let found: Vec<_> = killed.filter(has_entry).collect();
    assert!(found.len() > 3, "{}", found.len());
    found.into_iter().step_by(8).collect()
}

#[test]
fn a_dead_prune_is_finished_beside_writers_and_prunes() {
    let scene = Scene::new(&[1]);
    for (operation, blobs) in with_dead_prune(&scene) {
        let what = format!("a prune killed at call {operation}");
        for acts in [[Act::Backup(1), Act::Prune], [Act::Prune, Act::Prune]] {
            assert_safe_in(Weather::Fair, &what, &scene, &blobs, &acts);
        }
    }
}

#[test]
fn each_rule_of_a_writer_is_needed() {
    let scene = Scene::new(&[]);
    for broken in [Broken::NoIntent, Broken::NoPendingLook, Broken::StaleContainersOfBackup] {
        assert_loses(&scene, &[Act::Backup(1), Act::PatientPrune], &[broken]);
    }
    assert_loses(&scene, &[Act::Backup(1), Act::Prune], &[Broken::NoRecheck]);
    let acts = [Act::Backup(0), Act::PatientPrune];
    let (broken, weather) = ([Broken::NamesReturn], Weather::RepeatedDeletes);
    assert_search_loses(&Search {
        scene: &scene,
        blobs: &scene.blobs,
        acts: &acts,
        broken: &broken,
        weather,
        begin: &[],
    });
}

#[test]
fn each_rule_of_a_prune_is_needed() {
    let scene = Scene::new(&[]);
    for broken in [Broken::NoPendingEntry, Broken::StaleSnapshots] {
        assert_loses(&scene, &[Act::Backup(1), Act::PatientPrune], &[Broken::None, broken]);
    }
    // A writer that looks after its commit notices a prune that has not seen its intent.
    let (acts, broken) = ([Act::Backup(1), Act::PatientPrune], [Broken::None, Broken::NoIntentsRead]);
    let (blobs, weather) = (&scene.blobs, Weather::Fair);
    let noticed = Search { scene: &scene, blobs, acts: &acts, broken: &broken, weather, begin: &[] };
    let explored = noticed.run(runs_max(10 * RUNS_MAX));
    assert!(explored.loss.is_none(), "{:?}", explored.loss);
    assert_loses(&scene, &acts, &[Broken::NoRecheck, Broken::NoIntentsRead]);
    let half = Scene::with_half_a_container();
    assert_loses(&half, &[Act::Backup(1), Act::LazyPrune(SkippedRule::BasesOfStaying)], &[]);
    // The second one finds what the first has moved in the old place, and takes the new one for needless.
    assert_loses(&half, &[Act::Prune, Act::LazyPrune(SkippedRule::Nothing)], &[Broken::NoWithdrawal; 2]);
    assert_loses(&Scene::new(&[1]), &[Act::Backup(2), Act::LazyPrune(SkippedRule::Bases)], &[]);
}

#[test]
fn a_finisher_needs_an_entry_of_its_own() {
    let scene = Scene::new(&[]);
    let acts = [Act::Backup(1), Act::Announce, Act::PatientPrune];
    // The backup has listed everything when the entry appears. The second prune, which finishes it, has seen no intent.
    let search = |broken| Search {
        scene: &scene,
        blobs: &scene.blobs,
        acts: &acts,
        broken,
        weather: Weather::Fair,
        begin: &[0, 0, 1, 1, 2, 2, 2, 2, 2],
    };
    assert_search_loses(&search(&[Broken::None, Broken::None, Broken::NoEntryOfFinisher]));
    let explored = search(&[]).run(runs_max(RUNS_MAX));
    eprintln!("a finisher with its entry: {explored:?}");
    assert!(explored.loss.is_none(), "{:?}", explored.loss);
}

/// Bytes of the containers.
fn container_bytes(store: &MemoryStore) -> u64 {
    store.list(BlobKind::Container.into()).unwrap().iter().map(|blob| blob.len).sum()
}

#[test]
fn a_prune_killed_at_any_call_loses_nothing_and_the_next_one_finishes() {
    let scene = Scene::new(&[1]);
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
        assert!(store.list(BlobKind::Pending.into()).unwrap().is_empty(), "{what}");
        assert!(container_bytes(&store) <= after + 4096, "{what}: {} bytes, not {after}", container_bytes(&store));
    }
}

#[test]
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
