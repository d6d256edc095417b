//! Readers beside a prune that compacts: at each of their store calls in turn, a whole prune runs, and a second one a
//! few calls later.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use fhrd::Result;
use fhrd::config::Config;
use fhrd::inspect::check::{ReadData, check};
use fhrd::keep::{Copier, prune};
use fhrd::metrics::Progress;
use fhrd::mount::{ROOT, ReadOnlyFiles, SnapshotFiles};
use fhrd::repo::Repository;
use fhrd::repo::snapshot::{self, NamedSnapshot};
use fhrd::restore::restore;
use fhrd::store::{BlobMetadata, BlobName, BlobPrefix, Durable, ListedBlob, MemoryStore, Reading, Store, StoreExt};
use fhrd::types::SnapshotId;

use super::scene::{Scene, clear_cache, no_grace, open, read_whole, store_with};
use crate::double::{Double, double_store};
use crate::trees::{assert_same, describe};

/// Calls between two prunes, at most.
const GAP_MAX: u64 = 9;

/// A store in which a prune runs before the call number `at`.
struct Pruned {
    inner: Arc<MemoryStore>,
    at: u64,
    /// The call before which a snapshot is forgotten, and a second prune runs.
    again: Option<(u64, SnapshotId)>,
    /// Nobody calls during a prune.
    calls: Mutex<u64>,
}

impl Pruned {
    fn step(&self) {
        let mut calls = self.calls.lock().unwrap();
        let call = *calls;
        *calls += 1;
        if let Some((_, forgotten)) = self.again.filter(|(again, _)| *again == call) {
            snapshot::delete(self.inner.as_ref(), &forgotten).unwrap();
            self.prune(78);
        }
        if call == self.at {
            self.prune(77);
        }
    }

    fn prune(&self, seed: u64) {
        let report = prune(&open(self.inner.clone(), seed), &no_grace(), &Arc::default()).unwrap();
        assert!(report.containers_deleted > 0 && report.containers_written > 0, "{report:?}");
    }
}

double_store!(Pruned);

impl Double for Pruned {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn put(&self, name: &BlobName, parts: &[&[u8]]) -> Result<bool> {
        self.inner.put_if_absent(name, parts)
    }

    fn get(&self, name: &BlobName, bytes_max: u64) -> Result<Vec<u8>> {
        self.step();
        self.inner.get(name, bytes_max)
    }

    fn get_range(&self, name: &BlobName, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.step();
        self.inner.get_range(name, offset, len, Reading::Once)
    }

    fn head(&self, name: &BlobName) -> Result<Option<BlobMetadata>> {
        self.step();
        self.inner.head(name)
    }

    fn list(&self, prefix: BlobPrefix) -> Result<Vec<ListedBlob>> {
        self.step();
        self.inner.list(prefix)
    }

    fn delete(&self, name: &BlobName) -> Result<()> {
        self.inner.delete(name, Durable::OnReturn)
    }

    fn location(&self) -> String {
        "pruned".into()
    }
}

/// Calls `read` with a repository that is pruned at call `at`, and perhaps again. Returns whether there was such a call.
fn at_call(scene: &Scene, at: u64, again: Option<(u64, SnapshotId)>, read: &impl Fn(&Repository, &str)) -> bool {
    let store = store_with(&scene.blobs);
    let repository = Repository::open(store.clone()).unwrap();
    let pruned = Arc::new(Pruned { inner: store, at, again, calls: Mutex::default() });
    let what = format!("pruned at call {at}, then at {again:?}");
    read(&Repository { store: pruned.clone(), ..repository }, &what);
    *pruned.calls.lock().unwrap() > at
}

/// Calls `read` with a repository that is pruned at each of its store calls in turn.
fn at_each_call(scene: &Scene, read: impl Fn(&Repository, &str)) {
    let calls = (0..).take_while(|at| at_call(scene, *at, None, &read)).count();
    assert!(calls > 8, "{calls}");
}

/// Calls `read` with a repository that is pruned at each of its store calls in turn, and again a few calls later.
fn at_each_two_calls(scene: &Scene, read: impl Fn(&Repository, &NamedSnapshot, &str)) {
    let read = |repository: &Repository, what: &str| {
        let named = snapshot::find(repository.store.as_ref(), &scene.snapshots[1].to_string()).unwrap();
        read(repository, &named, what);
    };
    for gap in 1..=GAP_MAX {
        let again = |at| Some((at + gap, scene.snapshots[0]));
        let calls = (0..).take_while(|at| at_call(scene, *at, again(*at), &read)).count();
        assert!(calls > 8, "{calls}");
    }
}

#[test]
fn a_restore_beside_a_prune_writes_every_byte() {
    let scene = Scene::with_half_a_container();
    let source = scene.half();
    at_each_call(&scene, |repository, what| {
        let named = snapshot::find(repository.store.as_ref(), "latest").unwrap();
        restored(repository, &named, &source, what);
    });
}

#[test]
fn a_reader_and_a_check_beside_a_prune_find_everything() {
    let scene = Scene::with_half_a_container();
    at_each_call(&scene, |repository, what| {
        read_whole(repository, &scene.snapshots[0]).unwrap_or_else(|error| panic!("{what}: {error}"));
    });
    at_each_call(&scene, |repository, what| {
        let (progress, stop) = (Progress::default(), Arc::default());
        let report = check(repository, &Config::default(), ReadData::Everything, &progress, &stop).unwrap();
        assert_eq!(report.defects, [""; 0], "{what}");
    });
}

fn restored(repository: &Repository, named: &NamedSnapshot, source: &Path, what: &str) {
    let target = tempfile::tempdir().unwrap();
    let into = target.path().join("restored");
    let report = restore(repository, &Config::default(), named, &into, &Progress::default(), &Arc::default()).unwrap();
    assert_eq!((report.damaged, report.problems), (0, 0), "{what}");
    assert_same(&describe(source), &describe(&into.join(source.file_name().unwrap())), what);
}

#[test]
fn a_restore_beside_two_prunes_writes_every_byte() {
    let scene = Scene::that_moves_twice();
    at_each_two_calls(&scene, |repository, named, what| restored(repository, named, &scene.half(), what));
}

#[test]
fn a_reader_and_a_check_beside_two_prunes_find_everything() {
    let scene = Scene::that_moves_twice();
    at_each_two_calls(&scene, |repository, named, what| {
        read_whole(repository, &named.id).unwrap_or_else(|error| panic!("{what}: {error}"));
    });
    at_each_two_calls(&scene, |repository, _, what| {
        let (progress, stop) = (Progress::default(), Arc::default());
        let report = check(repository, &Config::default(), ReadData::Everything, &progress, &stop).unwrap();
        assert_eq!(report.defects, [""; 0], "{what}");
    });
}

#[test]
fn a_copy_beside_two_prunes_has_every_byte() {
    let (scene, config) = (Scene::that_moves_twice(), Config::default());
    at_each_two_calls(&scene, |repository, named, what| {
        let target = Repository::init_like(Arc::new(MemoryStore::new()), repository).unwrap();
        let mut copier = Copier::new(repository, &target, &config).unwrap();
        let copied = copier.copy(named, false, &Progress::default(), &Arc::default()).unwrap();
        assert_eq!(copied.problems, 0, "{what}");
        let copy = snapshot::find(target.store.as_ref(), "latest").unwrap();
        restored(&target, &copy, &scene.half(), what);
        clear_cache(&target);
    });
}

#[test]
fn a_mount_beside_two_prunes_reads_every_byte() {
    let scene = Scene::that_moves_twice();
    at_each_two_calls(&scene, |repository, named, what| {
        let files = SnapshotFiles::new(repository, vec![named.clone()]).unwrap();
        let look_up = |parent, name: &str| files.look_up(parent, OsStr::new(name)).unwrap().unwrap().inode;
        let path = ["ids", &named.id.to_string()[..8], "half", "0"];
        let file = path.into_iter().fold(ROOT, look_up);
        let read = files.read(file, 0, 5000).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(read.unwrap(), fs::read(scene.half().join("0")).unwrap(), "{what}");
    });
}
