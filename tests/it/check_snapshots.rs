//! A check of chosen snapshots: it finds what a restore of them would lose, and pays for nothing else.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use fhrd::inspect::check::{CheckReport, ReadData, check_snapshots};
use fhrd::metrics::Progress;
use fhrd::repair::quarantine;
use fhrd::repo::Repository;
use fhrd::repo::container::{HEADER_BYTES, parse_name};
use fhrd::repo::marks::Marks;
use fhrd::repo::recipe::ContentReference;
use fhrd::repo::snapshot::{self, NamedSnapshot};
use fhrd::repo::tree::{Node, NodeKind};
use fhrd::restore::restore;
use fhrd::store::CountingStore;

use crate::hostile_repository::HostileRepository;
use crate::input::{TestRepository, edit, write};
use crate::trees::Random;

fn checked(repository: &Repository, named: &NamedSnapshot, read_data: impl Into<ReadData>) -> CheckReport {
    let (config, chosen) = (TestRepository::config(), std::slice::from_ref(named));
    check_snapshots(repository, &config, chosen, read_data, &Progress::default(), &Arc::default()).unwrap()
}

fn restores(repository: &Repository, named: &NamedSnapshot) -> bool {
    let target = tempfile::tempdir().unwrap();
    let (config, back) = (TestRepository::config(), target.path().join("back"));
    match restore(repository, &config, named, &back, &Progress::default(), &Arc::default()) {
        Ok(report) => report.damaged == 0 && report.problems == 0,
        Err(error) => {
            assert!(error.is_unreadable(), "{error}");
            false
        }
    }
}

/// Backups of two directories that share nothing, of which one is edited: later states copy from earlier ones.
fn stored() -> (TestRepository, Vec<NamedSnapshot>) {
    let (repository, one, other) = (TestRepository::new(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut random = Random(4);
    let mut text = random.text(60_000);
    write(other.path().join("noise"), &random.bytes(60_000));
    repository.backup(other.path(), &TestRepository::config());
    for version in 0..3 {
        write(one.path().join("edited.txt"), &text);
        write(one.path().join(format!("new-{version}.txt")), &random.text(20_000));
        repository.backup(one.path(), &TestRepository::config());
        text = edit(&mut random, &text, 5);
    }
    let (snapshots, _) = snapshot::list(repository.open().store.as_ref()).unwrap();
    (repository, snapshots)
}

fn containers(repository: &TestRepository) -> Vec<String> {
    repository.names().into_iter().filter(|name| name.starts_with("containers/")).collect()
}

#[test]
fn a_snapshot_is_sound_exactly_if_it_restores() {
    let (repository, snapshots) = stored();
    let opened = repository.open();
    let all = containers(&repository);
    let (mut lost, mut whole) = (0, 0);
    for name in &all {
        let path = repository.path().join(name);
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        for named in &snapshots {
            let report = checked(&opened, named, false);
            let is_whole = restores(&opened, named);
            assert_eq!(report.defect_count == 0, is_whole, "without {name}: {:#?}", report.defects);
            assert!(is_whole || report.defects.iter().any(|defect| defect.contains(&named.id.to_string())));
            (lost, whole) = (lost + usize::from(!is_whole), whole + usize::from(is_whole));
        }
        fs::write(&path, &bytes).unwrap();
    }
    assert!(lost > 4 && whole > 4, "{lost} and {whole} of {} containers", all.len());
}

#[test]
fn data_is_read_in_the_containers_that_the_snapshot_needs() {
    let (repository, snapshots) = stored();
    let opened = repository.open();
    for name in containers(&repository) {
        let path = repository.path().join(&name);
        let bytes = fs::read(&path).unwrap();
        let mut flipped = bytes.clone();
        flipped[HEADER_BYTES + 40] ^= 1;
        fs::write(&path, flipped).unwrap();
        let mut finds = Vec::new();
        for named in &snapshots {
            assert_eq!(checked(&opened, named, false).bytes_read, 0);
            let report = checked(&opened, named, true);
            let is_named = report.defects.iter().any(|defect| defect.contains(&name));
            assert_eq!(is_named, report.defect_count > 0, "{name}: {:#?}", report.defects);
            assert_eq!(is_named, report.bad.of(&parse_name(&name).unwrap()).is_some(), "{name}");
            assert!(is_named || restores(&opened, named), "{name}");
            finds.push(is_named);
        }
        assert!(finds.contains(&true) && finds.contains(&false), "{name}: {finds:?}");
        fs::write(&path, &bytes).unwrap();
    }
    let part = checked(&opened, &snapshots[3], "1/1".parse::<ReadData>().unwrap());
    assert_eq!((part.containers_read, part.defect_count), (part.containers, 0));
    assert!(part.containers < containers(&repository).len() as u64);
}

#[test]
fn a_quarantine_of_other_containers_stays() {
    let (repository, snapshots) = stored();
    let opened = repository.open();
    let other = checked(&opened, &snapshots[0], true);
    assert_eq!(other.defects, [""; 0]);
    let mut quarantined = 0;
    // Byte 10 is the kind: with the trees, no snapshot would be readable.
    let data: Vec<String> = containers(&repository).into_iter().filter(|name| repository.read(name)[10] == 0).collect();
    for name in &data {
        let path = repository.path().join(name);
        let mut bytes = fs::read(&path).unwrap();
        bytes[HEADER_BYTES + 40] ^= 1;
        fs::write(&path, bytes).unwrap();
    }
    for named in &snapshots {
        let before = Marks::read(opened.store.as_ref()).unwrap();
        let report = checked(&opened, named, true);
        assert!(report.defect_count > 0);
        let done = quarantine::record(&opened, &before, &report).unwrap();
        assert!(done.containers >= quarantined, "{done:?} after {quarantined}");
        quarantined = done.containers;
    }
    assert!(data.len() > 3);
    assert_eq!(quarantined, data.len() as u64);
}

#[test]
fn the_rest_of_the_repository_costs_nothing() {
    let repository = TestRepository::new();
    let source = tempfile::tempdir().unwrap();
    let mut random = Random(9);
    let reads = |repository: &TestRepository, path: &Path| {
        write(path.join("file"), &Random(1).text(5000));
        repository.backup(path, &TestRepository::config());
        let counting = Arc::new(CountingStore::new(fhrd::store::LocalStore::open(&repository.path()).unwrap()));
        let opened = Repository::open(counting.clone()).unwrap();
        let named = snapshot::find(opened.store.as_ref(), "latest").unwrap();
        let before = counting.counts();
        assert_eq!(checked(&opened, &named, true).defects, [""; 0]);
        let after = counting.counts();
        after.gets + after.ranges - before.gets - before.ranges
    };
    let first = reads(&repository, source.path());
    for number in 0..40 {
        let other = tempfile::tempdir().unwrap();
        write(other.path().join("file"), &random.bytes(5000 + number));
        repository.backup(other.path(), &TestRepository::config());
    }
    let last = reads(&repository, source.path());
    assert!(last <= 2 * first, "{last} reads after 40 other backups, {first} before");
}

#[test]
fn what_was_fine_as_a_file_is_checked_again_as_a_directory_and_with_another_length() {
    for is_directory in [true, false] {
        let mut hostile = HostileRepository::new();
        let chunk = ContentReference::Chunk { fingerprint: hostile.whole(b"no listing").fingerprint, len: 10 };
        let recipe = hostile.recipe(1, &[chunk]);
        let ContentReference::Recipe { level, fingerprint, .. } = recipe else { panic!("a recipe") };
        let longer = ContentReference::Recipe { level, fingerprint, len: 11 };
        let file =
            |name: &str, size, content| Node { name: name.into(), size, content: Some(content), ..Node::default() };
        let odd = match is_directory {
            true => Node { kind: NodeKind::Directory, ..file("odd", 0, recipe) },
            false => file("odd", 11, longer),
        };
        let root = hostile.listing(&[file("fine", 10, recipe), odd]);
        let (home, _) = hostile.finish_with(root, Vec::new(), 1);
        let repository = home.open();
        let (snapshots, _) = snapshot::list(repository.store.as_ref()).unwrap();
        let report = checked(&repository, &snapshots[0], false);
        assert_eq!(report.defects.len(), 1, "{report:?}");
        assert!(report.defects[0].contains("/odd"), "{:?}", report.defects);
    }
}
