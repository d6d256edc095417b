//! Copies and rewrites that could not read everything: what they lack is never taken for done.

use std::fs;
use std::sync::Arc;

use fhrd::Error;
use fhrd::filesystem::{Patterns, PatternsBuilder};
use fhrd::keep::{Copier, CopyOutcome, RewriteOutcome, RewriteRequest, rewrite};
use fhrd::metrics::Progress;
use fhrd::repo::Repository;
use fhrd::repo::snapshot::{self, NamedSnapshot};
use fhrd::store::{BlobKind, Durable, MemoryStore, Store, StoreExt};

use crate::copied::{assert_restores, back_up, config, copy, planted, stop};
use crate::double::named;
use crate::trees::Random;

/// A repository in memory with one snapshot of the files in a directory.
struct Scene {
    directory: tempfile::TempDir,
    repository: Repository,
}

impl Scene {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        planted(&directory.path().join("source"));
        // Chunks end at a random key, and a group of them may fill two containers' length in one: enough for a third.
        fs::write(directory.path().join("source/more"), Random(8).bytes(1_500_000)).unwrap();
        let repository = Repository::init(Arc::new(MemoryStore::new()), &config().repository).unwrap();
        back_up(&repository, &directory.path().join("source")).unwrap();
        Scene { directory, repository }
    }

    fn containers(&self) -> Vec<String> {
        let listed = self.repository.store.list(BlobKind::Container.into()).unwrap();
        assert!(listed.len() > 2, "{}", listed.len());
        listed.into_iter().map(|listed| listed.name.into()).collect()
    }

    fn target(&self, is_alike: bool) -> Repository {
        let store = Arc::new(MemoryStore::new());
        match is_alike {
            true => Repository::init_like(store, &self.repository).unwrap(),
            false => Repository::init(store, &config().repository).unwrap(),
        }
    }

    /// Does something while a container is away.
    fn without<T>(&self, container: &str, action: impl FnOnce() -> T) -> T {
        let store = self.repository.store.as_ref();
        let bytes = store.get(&named(container), 1 << 30).unwrap();
        store.delete(&named(container), Durable::OnReturn).unwrap();
        let done = action();
        store.put_if_absent(&named(container), &[&bytes]).unwrap();
        done
    }

    fn assert_restores(&self, repository: &Repository, what: &str) {
        assert_eq!(assert_restores(repository, &self.directory.path().join("source"), what), 1, "{what}");
    }

    fn original(&self) -> NamedSnapshot {
        snapshot::find(self.repository.store.as_ref(), "latest").unwrap()
    }
}

/// Copies the only snapshot.
fn copy_one(source: &Repository, target: &Repository) -> fhrd::Result<CopyOutcome> {
    Ok(copy(source, target)?.remove(0))
}

fn reported(repository: &Repository) -> Vec<NamedSnapshot> {
    snapshot::list_reported(repository.store.as_ref()).unwrap().0
}

#[test]
fn a_copy_without_any_container_is_completed_later_and_the_poor_one_replaced() {
    let scene = Scene::new();
    let (mut poor, mut refused) = (0, 0);
    for is_alike in [false, true] {
        for first in scene.containers() {
            for second in scene.containers() {
                let what = format!("alike: {is_alike}, without {first}, then {second}");
                let target = scene.target(is_alike);
                for away in [&first, &second] {
                    match scene.without(away, || copy_one(&scene.repository, &target)) {
                        Ok(outcome) => {
                            poor += usize::from(outcome.problems > 0);
                            let copy = outcome.copy.unwrap();
                            let stored = snapshot::find(target.store.as_ref(), &copy.to_string()).unwrap();
                            assert_eq!(stored.snapshot.problems(), outcome.problems, "{what}");
                            assert!(outcome.problems == 0 || stored.snapshot.root.is_some(), "{what}");
                        }
                        Err(error) => {
                            assert_eq!(error.kind(), fhrd::error::ErrorKind::Damaged, "{what}: {error}");
                            refused += 1;
                        }
                    }
                }
                let before = reported(&target);
                let was_whole = before.iter().any(|copy| copy.snapshot.problems() == 0);
                let outcome = copy_one(&scene.repository, &target).unwrap();
                assert_eq!((outcome.report.is_none(), outcome.problems), (was_whole, 0), "{what}");
                assert_eq!(outcome.replaced.len(), before.len() - usize::from(was_whole), "{what}");
                scene.assert_restores(&target, &what);
                assert!(copy_one(&scene.repository, &target).unwrap().report.is_none(), "{what}");
            }
        }
    }
    assert!(poor > 10 && refused > 4, "{poor} poor copies, {refused} refused");
}

#[test]
fn a_copy_of_a_poor_copy_is_poor() {
    let scene = Scene::new();
    let (between, last) = (scene.target(false), scene.target(false));
    let is_poor = |container: &String| {
        let target = scene.target(false);
        let copied = scene.without(container, || copy_one(&scene.repository, &target));
        copied.is_ok_and(|outcome| outcome.problems > 0)
    };
    let container = scene.containers().into_iter().find(is_poor).unwrap();
    let poor = scene.without(&container, || copy_one(&scene.repository, &between)).unwrap();
    let copied = copy_one(&between, &last).unwrap();
    assert_eq!((copied.problems, reported(&last)[0].snapshot.problems()), (poor.problems, poor.problems));
    // It has all that is there to copy.
    let again = copy_one(&between, &last).unwrap();
    assert!(again.report.is_none() && again.problems == poor.problems);
    // A rewrite of a poor copy is poor, too.
    let request = RewriteRequest { exclude: excluded("below"), ..rewriting(false) };
    let named = reported(&last).remove(0);
    let rewritten = rewrite(&last, &config(), &named, &request, &Progress::default(), &stop()).unwrap();
    assert_eq!((rewritten.report.problems, reported(&last)[1].snapshot.problems()), (0, poor.problems));
    // A whole copy replaces the poor one, but not what the user has rewritten.
    let whole = copy_one(&scene.repository, &last).unwrap();
    assert_eq!((whole.problems, whole.replaced), (0, vec![named.id]));
    let left: Vec<_> = reported(&last).iter().map(|named| named.id).collect();
    assert!(left.len() == 2 && left.contains(&rewritten.rewritten.unwrap()), "{left:?}");
    snapshot::delete(last.store.as_ref(), &rewritten.rewritten.unwrap()).unwrap();
    scene.assert_restores(&last, "the last one");
}

#[test]
fn a_rewritten_copy_is_no_copy_of_what_it_was_copied_from() {
    let scene = Scene::new();
    let (between, first, last) = (scene.target(false), scene.target(false), scene.target(false));
    copy_one(&scene.repository, &between).unwrap();
    let whole = reported(&between).remove(0);
    let request = rewriting(false);
    let rewritten = rewrite(&between, &config(), &whole, &request, &Progress::default(), &stop()).unwrap();
    let rewritten = reported(&between).into_iter().find(|named| Some(named.id) == rewritten.rewritten).unwrap();
    let copy_named = |named: &NamedSnapshot, target| {
        let config = config();
        let mut copier = Copier::new(&between, target, &config).unwrap();
        copier.copy(named, false, &Progress::default(), &stop()).unwrap()
    };
    let poorer = copy_named(&rewritten, &first).copy.unwrap();
    assert!(copy_one(&scene.repository, &first).unwrap().report.is_some(), "the original is not there yet");
    assert!(copy_named(&whole, &first).report.is_none(), "the copy of the original is there");
    snapshot::delete(first.store.as_ref(), &poorer).unwrap();
    scene.assert_restores(&first, "the original after the rewritten one");
    // The other order, and on, and back.
    for (from, to) in [(&between, &last), (&last, &scene.repository), (&scene.repository, &between)] {
        copy(from, to).unwrap();
        let ids: Vec<_> = reported(to).iter().map(|named| named.id).collect();
        assert_eq!(ids.len(), 2, "{ids:?}");
    }
    // What was left out does not come back.
    snapshot::delete(between.store.as_ref(), &whole.id).unwrap();
    assert!(copy(&scene.repository, &between).unwrap().iter().all(|outcome| outcome.report.is_none()));
}

#[test]
fn a_poor_copy_stays_beside_one_that_lacks_fewer_but_other_entries() {
    let scene = Scene::new();
    let mut compared = 0;
    for first in scene.containers() {
        for second in scene.containers() {
            let what = format!("without {first}, and without {second}");
            let (between, last) = (scene.target(false), scene.target(false));
            let fewer = scene.without(&first, || copy_one(&scene.repository, &between));
            let more = scene.without(&second, || copy_one(&scene.repository, &last));
            let (Ok(fewer), Ok(more)) = (fewer, more) else { continue };
            if !(1..more.problems).contains(&fewer.problems) {
                continue;
            }
            compared += 1;
            let outcome = copy_one(&between, &last).unwrap();
            assert_eq!((outcome.problems, outcome.replaced.len()), (fewer.problems, 0), "{what}");
            assert!(reported(&last).iter().any(|named| Some(named.id) == more.copy), "{what}");
            let whole = copy_one(&scene.repository, &last).unwrap();
            assert_eq!((whole.problems, whole.replaced.len()), (0, 2), "{what}");
            scene.assert_restores(&last, &what);
        }
    }
    assert!(compared > 0);
}

#[test]
fn a_copy_with_problems_of_a_forgotten_snapshot_is_not_stored() {
    let scene = Scene::new();
    let mut refused = 0;
    for container in scene.containers() {
        let (target, store) = (scene.target(false), &scene.repository.store);
        let (id, config) = (scene.original(), config());
        let mut copier = Copier::new(&scene.repository, &target, &config).unwrap();
        let name = snapshot::blob_name(&id.id);
        let bytes = store.get(&name, 1 << 20).unwrap();
        store.delete(&name, Durable::OnReturn).unwrap();
        let copied = scene.without(&container, || copier.copy(&id, false, &Progress::default(), &stop()));
        store.put_if_absent(&name, &[&bytes]).unwrap();
        match copied {
            Ok(outcome) => assert_eq!(outcome.problems, 0, "{container}"),
            Err(_) => {
                refused += 1;
                assert!(reported(&target).is_empty(), "{container}");
            }
        }
    }
    assert!(refused > 1);
}

fn excluded(pattern: &str) -> Patterns {
    let mut patterns = PatternsBuilder::default();
    patterns.add(pattern, false, "test").unwrap();
    patterns.build().unwrap()
}

fn rewriting(allow_problems: bool) -> RewriteRequest {
    let exclude = excluded("large");
    RewriteRequest { exclude, excludes: Vec::new(), forget: false, allow_problems, dry_run: false }
}

fn rewrite_it(scene: &Scene, original: &NamedSnapshot, allow_problems: bool) -> fhrd::Result<RewriteOutcome> {
    let request = rewriting(allow_problems);
    rewrite(&scene.repository, &config(), original, &request, &Progress::default(), &stop())
}

#[test]
fn a_rewrite_that_cannot_read_everything_stores_nothing_unless_asked_to() {
    let scene = Scene::new();
    let original = scene.original();
    let (mut poor, mut refused) = (0, 0);
    for container in scene.containers() {
        for allow_problems in [false, true] {
            let rewritten = scene.without(&container, || rewrite_it(&scene, &original, allow_problems));
            let what = format!("{container}: {rewritten:?}");
            let new: Vec<_> = reported(&scene.repository).into_iter().filter(|named| named.id != original.id).collect();
            match rewritten {
                Ok(outcome) if outcome.report.problems > 0 => {
                    assert_eq!(new.len(), usize::from(allow_problems), "{what}");
                    assert_eq!(outcome.rewritten.is_some(), allow_problems, "{what}");
                    assert!(new.iter().all(|named| named.snapshot.problems() == outcome.report.problems), "{what}");
                    poor += 1;
                }
                Ok(_) => assert_eq!(new.len(), 1, "{what}"),
                Err(_) => {
                    refused += 1;
                    assert!(new.is_empty(), "{what}");
                }
            }
            new.iter().for_each(|named| snapshot::delete(scene.repository.store.as_ref(), &named.id).unwrap());
        }
    }
    assert!(poor > 0 && refused > 1, "{poor} poor, {refused} refused");
    let rewritten = rewrite_it(&scene, &original, false).unwrap();
    assert_eq!((rewritten.report.problems, rewritten.report.excluded), (0, 1));
}

#[test]
fn a_snapshot_that_is_forgotten_meanwhile_is_not_written_again() {
    let scene = Scene::new();
    let (original, store) = (scene.original(), scene.repository.store.as_ref());
    snapshot::delete(store, &original.id).unwrap();
    let error = rewrite_it(&scene, &original, false).unwrap_err();
    assert!(matches!(error, Error::NoSuchSnapshot { .. }), "{error}");
    assert!(snapshot::list(store).unwrap().0.is_empty());
}
