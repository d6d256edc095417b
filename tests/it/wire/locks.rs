//! Prunes that extend locks in a bucket that has some.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fhrd::error::ErrorKind;
use fhrd::keep::{PruneOptions, PruneReport, forget, prune};
use fhrd::repo::{Repository, snapshot};

use super::server::Behaviour;
use super::{Scene, config, forget_cache, open};
use crate::input::{TestRepository, init_with_key};
use crate::interleavings::scene::no_grace;

const DAY: Duration = Duration::from_secs(86_400);
/// For how long the prunes lock.
const PERIOD: Duration = Duration::from_secs(10 * 86_400);

/// A scene whose bucket can lock objects, and a repository in it.
fn scene() -> (Scene, Repository) {
    let mut scene = Scene::new();
    scene.behaviour.has_locks = true;
    scene.server.behave(scene.behaviour.clone());
    // With the key, chunks and containers are always the same.
    let repository = init_with_key(open(&scene.server), &config().repository);
    (scene, repository)
}

fn pruned(repository: &Repository, dry_run: bool) -> fhrd::Result<PruneReport> {
    let options = PruneOptions { container_bytes: 1 << 20, extend_locks: Some(PERIOD), dry_run, ..no_grace() };
    prune(repository, &options, &Arc::default())
}

fn forget_snapshot(repository: &Repository, id: &str) {
    forget(repository, &[snapshot::find(repository.store.as_ref(), id).unwrap().id]).unwrap();
}

/// A time so many days from now, as the server writes it.
fn in_days(days: i64) -> String {
    let now = jiff::Timestamp::try_from(SystemTime::now()).unwrap();
    (now + jiff::SignedDuration::from_hours(24 * days)).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Objects whose lock ends within so many days, or that have none.
fn ending_within(scene: &Scene, days: i64) -> Vec<String> {
    let (objects, locks, end) = (scene.server.objects(), scene.server.locks(), in_days(days));
    objects.keys().filter(|key| locks.get(*key).is_none_or(|until| *until < end)).cloned().collect()
}

#[test]
fn what_stays_is_locked_and_what_nobody_needs_waits_for_the_end_of_its_lock() {
    let (mut scene, repository) = scene();
    let first = scene.back_up(&repository).unwrap();
    assert!(pruned(&repository, true).unwrap().locks_extended > 0);
    assert!(scene.server.locks().is_empty(), "a dry run");
    let report = pruned(&repository, false).unwrap();
    assert_eq!(report.locks_extended, scene.server.objects().len() as u64);
    assert_eq!(ending_within(&scene, 9), [""; 0]);
    assert_eq!(pruned(&repository, false).unwrap().locks_extended, 0, "enough is left");

    scene.change();
    let second = scene.back_up(&repository).unwrap();
    forget_snapshot(&repository, &first);
    let report = pruned(&repository, false).unwrap();
    assert!(report.containers_locked > 0 && report.bytes_locked > 1_000_000, "{report:?}");
    assert_eq!((report.containers_deleted, report.containers_refused), (0, 0), "{report:?}");
    let until = SystemTime::from(report.locked_until.unwrap());
    assert!(until > SystemTime::now() + 9 * DAY && until < SystemTime::now() + PERIOD, "{report:?}");
    assert_eq!(ending_within(&scene, 9), [""; 0]);

    // Six days later.
    for end in scene.server.locks().values_mut() {
        *end = in_days(4);
    }
    let report = pruned(&repository, false).unwrap();
    let waiting = ending_within(&scene, 9);
    assert_eq!(waiting.len() as u64, report.containers_locked, "only what nobody needs is not locked again");
    assert!(report.containers_locked > 0 && waiting.iter().all(|key| key.contains("/containers/")), "{waiting:?}");

    // And when their locks have ended.
    for key in &waiting {
        scene.server.locks().insert(key.clone(), in_days(-1));
    }
    let report = pruned(&repository, false).unwrap();
    assert_eq!((report.containers_deleted, report.containers_locked), (waiting.len() as u64, 0), "{report:?}");
    assert_eq!(ending_within(&scene, 9), [""; 0]);
    scene.assert_restores(&repository, &second, 1, "after the locks");
}

#[test]
fn a_container_worth_compacting_moves_when_its_lock_would_be_extended() {
    let (mut scene, repository) = scene();
    let first = scene.back_up(&repository).unwrap();
    // Of the container with both files, only the text is needed.
    scene.change();
    let second = scene.back_up(&repository).unwrap();
    pruned(&repository, false).unwrap();
    forget_snapshot(&repository, &first);
    let report = pruned(&repository, false).unwrap();
    assert_eq!((report.containers_written, report.containers_deleted), (0, 0), "{report:?}");
    for end in scene.server.locks().values_mut() {
        *end = in_days(4);
    }
    let report = pruned(&repository, false).unwrap();
    assert!(report.containers_written > 0 && report.containers_deleted > 0, "{report:?}");
    let left = ending_within(&scene, 9);
    assert_eq!(left.len() as u64, report.containers_locked, "what was written is locked: {left:?}");
    scene.assert_restores(&repository, &second, 1, "after compaction");
}

#[test]
fn any_request_of_a_prune_that_extends_locks_may_go_wrong() {
    let (mut scene, repository) = scene();
    let first = scene.back_up(&repository).unwrap();
    scene.change();
    let second = scene.back_up(&repository).unwrap();
    let objects = scene.server.objects().clone();
    let work = || {
        let repository = Repository::open(open(&scene.server))?;
        forget(&repository, &[snapshot::find(repository.store.as_ref(), &first)?.id])?;
        pruned(&repository, false)
    };
    scene.with_each_fault(&objects, work, |report, what| {
        assert!(report.containers_deleted > 0 && report.locks_extended > 0, "{what}: {report:?}");
        assert_eq!(ending_within(&scene, 9), [""; 0], "{what}");
        let repository = Repository::open(open(&scene.server)).unwrap();
        scene.assert_restores(&repository, &second, 1, what);
    });
}

#[test]
fn a_store_without_locks_is_refused_before_anything_happens() {
    let (mut scene, repository) = scene();
    let id = scene.back_up(&repository).unwrap();
    forget_snapshot(&repository, &id);
    let before = scene.server.objects().len();
    scene.behaviour = Behaviour::default();
    scene.server.behave(Behaviour::default());
    let repository = Repository::open(open(&scene.server)).unwrap();
    for repository in [repository, TestRepository::new().open()] {
        let error = pruned(&repository, false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Failed, "{error}");
        assert!(error.to_string().contains("has no locks to extend"), "{error}");
        forget_cache(&repository);
    }
    assert_eq!(scene.server.objects().len(), before);
}
