//! Repairs of the small repository of `flips`: what they do, and that they may be killed at any operation.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fhrd::Result;
use fhrd::inspect::check::CheckReport;
use fhrd::inspect::usage::usage;
use fhrd::keep::prune;
use fhrd::repair::containers::{ContainersReport, repair_containers};
use fhrd::repair::index::{IndexReport, repair_index};
use fhrd::repair::snapshots::{SnapshotRepair, SnapshotsReport, repair_snapshots};
use fhrd::repo::Repository;
use fhrd::repo::container::{FOOTER_BYTES, parse_name};
use fhrd::repo::index::{ContainerListing, read_container_index};
use fhrd::repo::snapshot;
use fhrd::store::{Durable, FaultyStore, InjectedFault, MemoryStore, Store};

use crate::double::named;
use crate::flips::{NO_FILES, Scene, config, intact, one_at_a_time, open, run_check};
use crate::interleavings::scene::no_grace;

fn index(repository: &Repository) -> Result<IndexReport> {
    repair_index(repository, &Arc::default())
}

fn containers(repository: &Repository) -> Result<ContainersReport> {
    repair_containers(repository, &config(), &Arc::default())
}

fn snapshots(repository: &Repository, dry_run: bool, forget: bool) -> Result<SnapshotsReport> {
    repair_snapshots(
        repository,
        &config(),
        SnapshotRepair { dry_run, forget, ..SnapshotRepair::default() },
        &Arc::default(),
    )
}

fn flip(store: &MemoryStore, name: &str, from_end: usize) {
    let mut bytes = store.get(&named(name), 1 << 20).unwrap();
    let at = bytes.len() - 1 - from_end;
    bytes[at] ^= 1;
    store.replace(&named(name), &bytes);
}

fn names(store: &MemoryStore, prefix: &str) -> Vec<String> {
    crate::double::names_in(store, prefix)
}

/// The container whose entries of whole chunks are the most. Its index is damaged in the store that is returned.
fn with_damaged_index() -> (Arc<MemoryStore>, String) {
    let store = Arc::new(intact(&Scene::get().blobs));
    let whole = |name: &String| {
        let index = read_container_index(store.as_ref(), &parse_name(name).unwrap()).unwrap();
        let is_data = store.get(&named(name), 1 << 20).unwrap()[10] == 0;
        let whole = index.entries.iter().filter(|entry| index.operations(entry).is_empty()).count();
        if is_data { whole } else { 0 }
    };
    let name = names(&store, "containers").into_iter().max_by_key(whole).unwrap();
    flip(&store, &name, FOOTER_BYTES);
    (store, name)
}

#[test]
fn an_index_is_written_again_from_the_containers() {
    let _turn = one_at_a_time();
    let scene = Scene::get();
    let store = Arc::new(intact(&scene.blobs));
    // A page of one segment, the header of another, the catalogue, a copy of the configuration.
    let segments = names(&store, "index");
    flip(&store, &segments[0], 100);
    if let Some(second) = segments.get(1) {
        let len = store.get(&named(second), 1 << 20).unwrap().len();
        flip(&store, second, len - 3);
    }
    let catalogue = names(&store, "models").remove(0);
    flip(&store, &catalogue, 50);
    flip(&store, "config", 20);
    let repository = open(&store);
    assert!(run_check(&repository).defect_count > 0);
    let report = index(&repository).unwrap();
    assert_eq!((report.segments_damaged.len(), report.catalogues_replaced), (segments.len().min(2), 1), "{report:?}");
    assert_eq!((report.configs_healed, report.missing.len(), report.unreadable.len()), (1, 0, 0), "{report:?}");
    assert_eq!(run_check(&repository).defects, [""; 0]);
    assert!(names(&store, "index").iter().all(|name| !segments.contains(name)));
    assert_eq!(scene.lost_files(&repository, &scene.last, "repaired"), NO_FILES);
    let models = |store: &MemoryStore| fhrd::model::CatalogueBlob::load_all(store).unwrap().len();
    assert_eq!(models(&store), models(&intact(&scene.blobs)), "no model is forgotten");
}

#[test]
fn chunks_of_a_container_without_an_index_are_stored_again() {
    let _turn = one_at_a_time();
    let scene = Scene::get();
    let (store, name) = with_damaged_index();
    let repository = open(&store);
    let before = scene.lost_files(&repository, &scene.last, "before");
    assert!(!before.is_empty());
    let report = containers(&repository).unwrap();
    let [repair] = report.containers.as_slice() else { panic!("{report:?}") };
    assert!(repair.container == name && repair.chunks_saved > 0, "{report:?}");
    let after = scene.lost_files(&repository, &scene.last, "after");
    assert!(after.len() < before.len() || repair.chunks_lost > 0, "{before:?} {after:?} {report:?}");
    if repair.chunks_lost == 0 {
        assert_eq!(after, NO_FILES, "{report:?}");
        assert_eq!(run_check(&repository).defects, [""; 0]);
    }
    let again = containers(&repository).unwrap();
    assert_eq!(again.containers[0].chunks_saved, 0, "stored once: {again:?}");
    // Without segments nobody knows what it had, which is not nothing.
    let (store, _) = with_damaged_index();
    names(&store, "index").iter().for_each(|name| store.delete(&named(name), Durable::OnReturn).unwrap());
    let report = containers(&open(&store)).unwrap();
    assert_eq!((report.unnamed, report.containers[0].is_named), (1, false), "{report:?}");
}

#[test]
fn a_snapshot_is_written_again_without_what_is_lost() {
    let _turn = one_at_a_time();
    let scene = Scene::get();
    let (store, name) = with_damaged_index();
    let repository = open(&store);
    let dry = snapshots(&repository, true, false).unwrap();
    let lost = scene.lost_files(&repository, &scene.last, "before");
    let of_last = dry.damaged.iter().find(|damaged| damaged.snapshot == scene.last).unwrap();
    assert_eq!((of_last.dropped_count as usize, &of_last.replaced_by), (lost.len(), &None), "{dry:?}");
    for path in &lost {
        let path = path.display().to_string();
        assert!(of_last.dropped.iter().any(|text| text.contains(&path) && text.contains(&name)), "{of_last:?}");
    }
    assert_eq!(names(&store, "").len(), scene.blobs.len(), "a dry run changes nothing");

    let done = snapshots(&repository, false, false).unwrap();
    let new = done.damaged.iter().find(|damaged| damaged.snapshot == scene.last).unwrap().replaced_by.clone().unwrap();
    // The new snapshot is whole without those files, and the latest.
    assert_eq!(snapshot::find(store.as_ref(), "latest").unwrap().id.to_string(), new);
    let named = snapshot::find(store.as_ref(), &new).unwrap();
    let target = tempfile::tempdir().unwrap();
    let target = target.path().join("new");
    let report =
        fhrd::restore::restore(&repository, &config(), &named, &target, &Default::default(), &Arc::default()).unwrap();
    assert_eq!((report.damaged, report.problems), (0, 0));
    // It says what it has.
    let counted = usage(&repository, &named, None, &AtomicBool::new(false)).unwrap();
    let counts = ["files", "directories", "others", "bytes"].map(|name| named.snapshot.statistics[name]);
    assert_eq!(counts, [counted.files, counted.directories, counted.others, counted.bytes]);
    // Once more, nothing new is made; on request the damaged ones go.
    let count = names(&store, "snapshots").len();
    snapshots(&repository, false, false).unwrap();
    assert_eq!(names(&store, "snapshots").len(), count);
    let forgotten = snapshots(&repository, false, true).unwrap().forgotten;
    assert!(
        forgotten.contains(&scene.last) && !names(&store, "snapshots").iter().any(|name| name.contains(&scene.last))
    );
    run_check(&repository);
    assert_eq!(run_check(&repository).defects, [""; 0]);
}

/// Everything damaged that a repair mends: a container index, a segment, the catalogue, a listing. The segment is the one
/// that names the damaged container if `is_its` is true. The store, and the segment.
fn all_damaged(is_its: bool) -> (Arc<MemoryStore>, String) {
    let (store, container) = with_damaged_index();
    let listing = ContainerListing::take(&(store.clone() as Arc<dyn Store>)).unwrap();
    let container = parse_name(&container).unwrap();
    let segments = listing.segments();
    let segment = segments.iter().find(|segment| segment.containers().contains(&container) == is_its);
    let segment = segment.unwrap().name().to_string();
    flip(&store, &segment, 100);
    let catalogue = names(&store, "models").remove(0);
    flip(&store, &catalogue, 50);
    (store, segment)
}

#[test]
fn a_segment_stays_until_a_prune_if_only_it_names_a_damaged_container() {
    let _turn = one_at_a_time();
    let (store, segment) = all_damaged(true);
    let repository = open(&store);
    for _ in 0..2 {
        index(&repository).unwrap();
        containers(&repository).unwrap();
        snapshots(&repository, false, true).unwrap();
    }
    run_check(&repository);
    let defects = run_check(&repository).defects;
    assert!(defects.len() == 1 && defects[0].contains(&segment), "{defects:?}");
    prune(&repository, &no_grace(), &Arc::default()).unwrap();
    assert!(!names(&store, "index").contains(&segment));
    assert_eq!(run_check(&repository).defects, [""; 0]);
}

/// A repair with its name.
type NamedRepair<'a> = (&'a str, &'a dyn Fn(&Repository) -> Result<()>);

#[test]
fn repairs_may_be_killed_at_every_operation() {
    let _turn = one_at_a_time();
    let scene = Scene::get();
    let copy = |store: &MemoryStore| {
        let copy = MemoryStore::new();
        names(store, "").iter().for_each(|name| copy.replace(&named(name), &store.get(&named(name), 1 << 20).unwrap()));
        Arc::new(copy)
    };
    let (damaged, _) = all_damaged(false);
    let repairs: [NamedRepair<'_>; 3] = [
        ("index", &|repository| index(repository).map(drop)),
        ("containers", &|repository| containers(repository).map(drop)),
        ("snapshots", &|repository| snapshots(repository, false, true).map(drop)),
    ];
    let all = |repository: &Repository| repairs.iter().try_for_each(|(_, repair)| repair(repository));
    let sound = |report: CheckReport| assert_eq!(report.defects, [""; 0]);
    let mut latest = Vec::new();
    for (what, repair) in repairs {
        let before = scene.lost_files(&open(&damaged), &scene.last, what).len();
        for operation in 0.. {
            let (store, took_effect) = (copy(&damaged), operation % 2 == 0);
            let faulty = Arc::new(FaultyStore::new(store.clone(), InjectedFault::PowerCut { operation, took_effect }));
            let Ok(repository) = Repository::open(faulty.clone()) else { continue };
            let outcome = repair(&repository);
            let is_over = faulty.operations() <= operation;
            let repository = open(&store);
            if what == "containers" && outcome.is_ok() && !is_over {
                // At its end it looks up what snapshots need. A look-up may do without one of several segments, and in
                // which of them a chunk is found first is a matter of chance. Nothing must be left to do then.
                let done = names(&store, "");
                repair(&repository).unwrap();
                assert_eq!(names(&store, ""), done, "operation {operation}");
            } else {
                assert_eq!(outcome.is_ok(), is_over, "{what}, operation {operation}: {outcome:?}");
            }
            // Nothing is worse than before, and whoever goes on comes to the same end.
            if snapshot::find(store.as_ref(), &scene.last).is_ok() {
                let lost = scene.lost_files(&repository, &scene.last, what).len();
                assert!(lost <= before, "{what}, operation {operation}: {lost} files lost, {before} before");
            }
            all(&repository).unwrap();
            // A damaged segment stays as long as a container that only it names cannot be read.
            index(&repository).unwrap();
            run_check(&repository);
            sound(run_check(&repository));
            let found = snapshot::list(store.as_ref()).unwrap().0.len();
            latest.push(found);
            if is_over {
                break;
            }
        }
    }
    // One that was killed between a new snapshot and its damaged one may leave both, if the latter was healed then.
    let intact = names(&damaged, "snapshots").len();
    assert!(latest.len() > 30 && latest.iter().all(|count| (intact..=intact + 1).contains(count)), "{latest:?}");
}
