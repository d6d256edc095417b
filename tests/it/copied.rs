//! Copies over stores that fail, and what an incremental backup relies on.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytesize::ByteSize;
use fhrd::backup::{BackupReport, BackupRequest, TreeSource, backup};
use fhrd::config::Config;
use fhrd::inspect::check::check;
use fhrd::keep::{Copier, CopyOutcome};
use fhrd::metrics::Progress;
use fhrd::repo::Repository;
use fhrd::repo::claims::{ClaimKind, ContainerClaim};
use fhrd::repo::index::ContainerListing;
use fhrd::repo::snapshot;
use fhrd::restore::restore;
use fhrd::store::{FaultyStore, InjectedFault, MemoryStore};

use crate::crash::copy_directory;
use crate::trees::{Random, assert_same, describe};

pub fn config() -> Config {
    let mut config = Config::default();
    config.container.bytes_target = ByteSize::mib(1);
    config.pipeline.workers = 1;
    config.read.recheck_seconds = 0;
    config.compress.frame_bytes = ByteSize::b(0);
    config
}

pub fn stop() -> Arc<AtomicBool> {
    Arc::new(AtomicBool::new(false))
}

pub fn back_up(repository: &Repository, source: &Path) -> fhrd::Result<BackupReport> {
    let request = BackupRequest::new(TreeSource::new(vec![source.into()], "test"));
    backup(repository, &config(), &request, &Progress::default(), &stop())
}

pub fn copy(source: &Repository, target: &Repository) -> fhrd::Result<Vec<CopyOutcome>> {
    let config = config();
    let mut copier = Copier::new(source, target, &config)?;
    let (snapshots, _) = snapshot::list(source.store.as_ref())?;
    snapshots.iter().map(|named| copier.copy(named, false, &Progress::default(), &stop())).collect()
}

pub fn planted(directory: &Path) {
    let mut random = Random(7);
    fs::create_dir_all(directory.join("below")).unwrap();
    fs::write(directory.join("large"), random.bytes(2_300_000)).unwrap();
    fs::write(directory.join("below/text"), random.text(200_000)).unwrap();
    fs::hard_link(directory.join("below/text"), directory.join("below/another name")).unwrap();
}

/// Restores every snapshot and compares it; returns how many were reported.
pub fn assert_restores(repository: &Repository, source: &Path, what: &str) -> usize {
    let (snapshots, damaged) = snapshot::list(repository.store.as_ref()).unwrap();
    assert!(damaged.is_empty(), "{what}");
    for named in &snapshots {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("restored");
        let report = restore(repository, &config(), named, &target, &Progress::default(), &stop()).unwrap();
        assert_eq!((report.damaged, report.problems), (0, 0), "{what}");
        let restored = describe(&target.join(source.strip_prefix("/").unwrap()));
        assert_same(&describe(source), &restored, what);
    }
    let checked = check(repository, &config(), true, &Progress::default(), &stop()).unwrap();
    assert_eq!(checked.defects, Vec::<String>::new(), "{what}");
    snapshot::list_reported(repository.store.as_ref()).unwrap().0.len()
}

#[test]
fn every_operation_of_a_copy_may_fail() {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("source");
    planted(&source);
    let from = Repository::init(Arc::new(MemoryStore::new()), &config().repository).unwrap();
    back_up(&from, &source).unwrap();
    for is_alike in [false, true] {
        let mut interrupted = 0;
        for operation in 0.. {
            let what = format!("alike: {is_alike}, operation {operation}");
            let place = tempfile::tempdir().unwrap();
            let location = place.path().join("repository");
            let mut target = match is_alike {
                true => Repository::init_like(fhrd::store::create(&location).unwrap(), &from).unwrap(),
                false => Repository::init_at(&location, &config().repository).unwrap(),
            };
            let sound = target.clone();
            let cut = InjectedFault::PowerCut { operation, took_effect: operation % 2 == 0 };
            let store = Arc::new(FaultyStore::new(target.store.clone(), cut));
            target.store = store.clone();
            let copied = copy(&from, &target);
            let left = assert_restores(&sound, &source, &what);
            // Whether a copy was reported shows in its intent, which a power cut may leave.
            assert!(left <= 1, "{what}");
            if store.operations() <= operation {
                break;
            }
            interrupted += usize::from(copied.is_err());
            let again = copy(&from, &sound).unwrap();
            assert_eq!((again.len(), assert_restores(&sound, &source, &what)), (1, 1), "{what}");
        }
        assert!(interrupted > 10, "{interrupted}");
    }
}

#[test]
fn a_backup_relies_on_the_recipes_of_unchanged_files() {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("source");
    planted(&source);
    // Nothing but the file itself is found again in the container of its recipe.
    fs::remove_dir_all(source.join("below")).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(50));
    let repository = Repository::init_at(directory.path().join("repository"), &config().repository).unwrap();
    assert!(back_up(&repository, &source).unwrap().chunks > 10);
    let first = ContainerListing::take(&repository.store).unwrap().containers.clone();
    fs::write(source.join("new"), b"new").unwrap();
    // Each run has a repository of its own, so that all do the same operations.
    let run = |fault| {
        let own = tempfile::tempdir().unwrap();
        copy_directory(&directory.path().join("repository"), &own.path().join("repository"));
        let opened = Repository::open_at(own.path().join("repository")).unwrap();
        let store = Arc::new(FaultyStore::new(opened.store.clone(), fault));
        let backed_up = back_up(&Repository { store: store.clone(), ..opened.clone() }, &source);
        let intents = ContainerClaim::containers_of(opened.store.as_ref(), ClaimKind::Intent).unwrap();
        (backed_up.is_ok(), store.operations(), intents)
    };
    let (_, operations, _) = run(InjectedFault::None);
    for operation in (0..operations).rev() {
        let (is_stored, _, intents) = run(InjectedFault::PowerCut { operation, took_effect: false });
        if !is_stored {
            let missing = first.iter().filter(|id| !intents.contains(id)).count();
            assert_eq!(missing, 0, "containers with data, and the one with the recipe");
            return;
        }
    }
    panic!("no operation failed after the intent was put");
}
