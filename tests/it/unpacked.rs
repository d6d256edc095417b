//! A tree that is unpacked again: every file has another inode and other times. Its listings are differences to those
//! of the parent snapshot.

use std::collections::BTreeMap;
use std::fs;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use fhrd::backup::{BackupRequest, TreeSource, backup};
use fhrd::metrics::Progress;
use fhrd::repo::Repository;
use fhrd::repo::container::{ContainerIndex, ContainerKind, parse_name};
use fhrd::repo::index::read_container_index;
use fhrd::repo::salts::Salts;
use fhrd::store::{BlobKind, BlobName, LocalStore, Store};
use serde_json::Value;

use crate::independent;
use crate::input::{TestRepository, copy_directory, write};
use crate::program::{Place, number};
use crate::trees::{Looks, Random, assert_same, describe};

/// Directories of the tree, and files in each.
const DIRECTORIES: u64 = 12;
const FILES: u64 = 70;

/// Unpacks revision `revision` of a tree again at `target`: one file of its content differs from the one before.
fn unpack(target: &Path, revision: u64) {
    let _ = fs::remove_dir_all(target);
    for directory in 0..DIRECTORIES {
        for number in 0..FILES {
            let mut text = Random(directory * FILES + number).text(40 + number as usize);
            if directory == 3 && number == 5 {
                text.extend_from_slice(format!("revision {revision}").as_bytes());
            }
            let path = target.join(format!("directory-{directory}/part-{}/file-{number}.txt", number % 3));
            write(path.clone(), &text);
            let time = UNIX_EPOCH + Duration::from_secs(1_600_000_000 + revision * 1000);
            File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
        }
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn back_up(place: &Place, source: &Path) -> Value {
    place.run(&["backup", text(source)])
}

/// Restores a snapshot and compares it with what is at `source`.
fn assert_restores(place: &Place, id: &str, source: &Path, expected: &BTreeMap<String, Looks>) {
    let target = tempfile::tempdir().unwrap();
    let restored = target.path().join("restored");
    place.run(&["restore", id, "--target", text(&restored)]);
    assert_same(expected, &describe(&restored.join(source.strip_prefix("/").unwrap())), id);
}

fn id_of(report: &Value) -> &str {
    report["snapshot"].as_str().unwrap()
}

/// Inode and times of every entry as a snapshot lists them.
fn listed(place: &Place, id: &str) -> Vec<Value> {
    let output = place.run(&["ls", id]);
    let nodes = output.as_array().unwrap_or_else(|| panic!("{output}"));
    // Directories above the tree change beside the test.
    let nodes = nodes.iter().filter(|node| node["path"].as_str().unwrap().contains("/source/"));
    nodes.map(|node| serde_json::json!([node["path"], node["inode"], node["mtime"], node["ctime"]])).collect()
}

/// Metadata containers with the depths of their entries. Deltas have one above 1.
fn metadata(repository: &Path) -> BTreeMap<BlobName, Vec<u8>> {
    let store = LocalStore::open(repository).unwrap();
    let containers = store.list(BlobKind::Container.into()).unwrap().into_iter();
    let indexes = containers.map(|listed| {
        let index = read_container_index(&store, &parse_name(&listed.name).unwrap()).unwrap();
        (listed.name.clone(), index)
    });
    let indexes = indexes.filter(|(_, index)| index.kind == ContainerKind::Metadata);
    let depths = |index: &ContainerIndex| {
        index.entries.iter().map(|entry| if index.is_delta(entry) { entry.depth } else { 1 }).collect()
    };
    indexes.map(|(name, index)| (name, depths(&index))).collect()
}

fn delta_count(repository: &Path) -> usize {
    metadata(repository).values().flatten().filter(|depth| **depth > 1).count()
}

/// Changes a byte in the first frame of each of these containers.
fn damage<'a>(repository: &Path, containers: impl IntoIterator<Item = &'a BlobName>) {
    for name in containers {
        let path = repository.join(name);
        let mut bytes = fs::read(&path).unwrap();
        bytes[64 + 32 + 100] ^= 1;
        fs::write(path, bytes).unwrap();
    }
}

/// A place with two snapshots of a tree that was unpacked again, what it was like each time, and their reports.
struct Scene {
    place: Place,
    source: std::path::PathBuf,
    looks: [BTreeMap<String, Looks>; 2],
    reports: [Value; 2],
    /// The metadata containers of the first snapshot.
    first: BTreeMap<BlobName, Vec<u8>>,
}

impl Scene {
    fn new() -> Self {
        let place = Place::with_repository();
        let source = place.path("source");
        unpack(&source, 1);
        let report = back_up(&place, &source);
        let (before, first) = (describe(&source), metadata(&place.repository()));
        assert_eq!(delta_count(&place.repository()), 0);
        unpack(&source, 2);
        let reports = [report, back_up(&place, &source)];
        let looks = [before, describe(&source)];
        Scene { place, source, looks, reports, first }
    }

    fn id(&self, number: usize) -> &str {
        id_of(&self.reports[number])
    }

    fn assert_both_restore(&self, place: &Place) {
        (0..2).for_each(|number| assert_restores(place, self.id(number), &self.source, &self.looks[number]));
    }
}

#[test]
fn a_tree_that_is_unpacked_again_costs_little_and_comes_back() {
    let scene = Scene::new();
    let Scene { place, source, .. } = &scene;
    let added = number(&scene.reports[1], "bytes_stored");
    assert!(delta_count(&place.repository()) >= DIRECTORIES as usize * 3, "{:?}", metadata(&place.repository()));
    assert!(added < 14_000, "{added}");
    scene.assert_both_restore(place);
    independent::assert_restores_latest(place, source);
    assert_eq!(number(&place.run(&["check", "--read-data"]), "defect_count"), 0);
    assert_ne!(listed(place, scene.id(0)), listed(place, scene.id(1)));
    // The listings have the new inodes and times, so nothing is read again.
    let third = back_up(place, source);
    assert_eq!((number(&third, "files_changed"), number(&third, "files_new")), (0, 0), "{third}");
    assert_eq!(listed(place, id_of(&third)), listed(place, scene.id(1)));
    // Later ones build on the same listings: no chain grows.
    for revision in 3..6 {
        unpack(source, revision);
        let added = number(&back_up(place, source), "bytes_stored");
        assert!(added < 15_000, "revision {revision}: {added}");
    }
    let depths = metadata(&place.repository());
    assert!(depths.values().flatten().all(|depth| *depth <= 2), "{depths:?}");
    assert_restores(place, "latest", source, &describe(source));
    independent::assert_restores_latest(place, source);
}

#[test]
fn a_changed_file_costs_no_copy_of_the_listings_above_it() {
    let scene = Scene::new();
    write(scene.source.join("directory-4/part-1/file-4.txt"), b"changed");
    let added = number(&back_up(&scene.place, &scene.source), "bytes_stored");
    assert!(added < 2500, "{added}");
    assert_restores(&scene.place, "latest", &scene.source, &describe(&scene.source));
}

#[test]
fn the_containers_do_not_depend_on_the_number_of_workers() {
    let (source, one) = (tempfile::tempdir().unwrap(), TestRepository::new());
    let source = &source.path().join("tree");
    let others = [one.copy(), one.copy()];
    for revision in 0..3 {
        unpack(source, revision);
        let mut stored = Vec::new();
        for (repository, workers) in [(&one, 1), (&others[0], 2), (&others[1], 8)] {
            let mut config = TestRepository::config();
            config.pipeline.workers = workers;
            let tree = TreeSource { bare: true, ..TreeSource::new(vec![source.clone()], "test") };
            let opened = Repository { salts: Salts::fixed(revision), ..repository.open() };
            backup(&opened, &config, &BackupRequest::new(tree), &Progress::default(), &std::sync::Arc::default())
                .unwrap();
            let names = repository.names().into_iter().filter(|name| name.starts_with("containers"));
            stored.push(names.map(|name| (name.clone(), repository.read(&name))).collect::<BTreeMap<_, _>>());
        }
        assert!(stored[0] == stored[1] && stored[1] == stored[2], "revision {revision}");
        assert!(revision == 0 || delta_count(&one.path()) > 0);
    }
}

#[test]
fn a_damaged_or_missing_base_is_not_used_and_ends_no_backup() {
    for is_missing in [false, true] {
        let place = Place::with_repository();
        let source = place.path("source");
        unpack(&source, 1);
        back_up(&place, &source);
        let first = metadata(&place.repository());
        if is_missing {
            first.keys().for_each(|name| fs::remove_file(place.repository().join(name)).unwrap());
        } else {
            damage(&place.repository(), first.keys());
        }
        unpack(&source, 2);
        // A lost container has an exit code of its own.
        let output = place.command(Path::new("/"), &["backup", text(&source)]).output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_restores(&place, id_of(&report), &source, &describe(&source));
        let found = metadata(&place.repository());
        let written = found.iter().filter(|(name, _)| !first.contains_key(*name)).flat_map(|(_, depths)| depths);
        assert!(written.copied().all(|depth| depth == 1), "missing: {is_missing}: {found:?}");
    }
}

#[test]
fn damage_of_a_base_is_reported_and_a_later_backup_heals_it() {
    let scene = Scene::new();
    let Scene { place, source, .. } = &scene;
    damage(&place.repository(), scene.first.keys());
    let output = place.command(Path::new("/"), &["check", "--read-data"]).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(number(&report, "defect_count") > 0, "{report}");
    for number in 0..2 {
        let target = place.path(&format!("damaged-{number}"));
        let words = ["restore", scene.id(number), "--target", text(&target)];
        assert!(!place.command(Path::new("/"), &words).output().unwrap().status.success(), "snapshot {number}");
    }
    // An unchanged source is stored again, whole where its bases are damaged.
    let healed = back_up(place, source);
    assert_restores(place, id_of(&healed), source, &describe(source));
    assert_restores(place, scene.id(1), source, &scene.looks[1]);
    // The mark keeps later listings from the damaged ones.
    unpack(source, 3);
    let later = back_up(place, source);
    assert_restores(place, id_of(&later), source, &describe(source));
}

#[test]
fn bases_stay_when_the_parent_is_forgotten_and_pruned() {
    let scene = Scene::new();
    let Scene { place, source, .. } = &scene;
    place.run(&["forget", scene.id(0)]);
    place.run(&["prune", "--grace", "0"]);
    assert_restores(place, "latest", source, &scene.looks[1]);
    assert_eq!(number(&place.run(&["check", "--read-data"]), "defect_count"), 0);
    independent::assert_restores_latest(place, source);
    place.run(&["recompress", "--grace", "0"]);
    assert_restores(place, "latest", source, &scene.looks[1]);
    unpack(source, 3);
    back_up(place, source);
    assert_restores(place, "latest", source, &describe(source));
    assert_eq!(number(&place.run(&["check", "--read-data"]), "defect_count"), 0);
}

#[test]
fn copies_and_rewritten_snapshots_are_whole() {
    let scene = Scene::new();
    let other = Place::new();
    other.run(&["init"]);
    other.run(&["copy", "--from-repo", text(&scene.place.repository())]);
    let output = other.run(&["snapshots"]);
    assert_eq!(output.as_array().map(Vec::len), Some(2), "{output}");
    assert_restores(&other, "latest", &scene.source, &scene.looks[1]);
    assert_eq!(number(&other.run(&["check", "--read-data"]), "defect_count"), 0);
    let mut expected = scene.looks[1].clone();
    expected.retain(|path, _| !path.starts_with("directory-5"));
    scene.place.run(&["rewrite", scene.id(1), "--exclude", "directory-5"]);
    let target = scene.place.path("rewritten");
    scene.place.run(&["restore", "latest", "--target", text(&target)]);
    let found = describe(&target.join(scene.source.strip_prefix("/").unwrap()));
    assert_eq!(found.len(), expected.len());
    assert_eq!(number(&scene.place.run(&["check", "--read-data"]), "defect_count"), 0);
}

#[test]
fn a_repository_of_an_earlier_version_has_no_differences_before_an_upgrade() {
    let place = Place::new();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1/repository");
    copy_directory(&fixture, &place.repository());
    let source = place.path("source");
    for revision in 1..3 {
        unpack(&source, revision);
        back_up(&place, &source);
    }
    assert_eq!(delta_count(&place.repository()), 0);
    place.run(&["upgrade"]);
    unpack(&source, 3);
    back_up(&place, &source);
    assert!(delta_count(&place.repository()) > 0);
    assert_restores(&place, "latest", &source, &describe(&source));
}
