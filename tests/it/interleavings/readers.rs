//! Readers beside a prune that compacts: at each of their store calls in turn, a whole prune runs.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fhrd::Result;
use fhrd::config::Config;
use fhrd::inspect::check::{ReadData, check};
use fhrd::keep::prune;
use fhrd::metrics::Progress;
use fhrd::repo::Repository;
use fhrd::repo::snapshot;
use fhrd::restore::restore;
use fhrd::store::{BlobMetadata, ListedBlob, MemoryStore, Store};

use super::scene::{Scene, no_grace, open, read_whole, store_with};
use crate::trees::{assert_same, describe};

/// A store in which a prune runs before the call number `at`.
struct Pruned {
    inner: Arc<MemoryStore>,
    at: u64,
    calls: AtomicU64,
}

impl Pruned {
    fn step(&self) {
        if self.calls.fetch_add(1, Ordering::SeqCst) == self.at {
            let report = prune(&open(self.inner.clone(), 77), &no_grace(), &Arc::default()).unwrap();
            assert!(report.containers_deleted > 0 && report.containers_written > 0, "{report:?}");
        }
    }
}

impl Store for Pruned {
    fn put_if_absent(&self, name: &str, parts: &[&[u8]]) -> Result<bool> {
        self.inner.put_if_absent(name, parts)
    }

    fn get(&self, name: &str, bytes_max: u64) -> Result<Vec<u8>> {
        self.step();
        self.inner.get(name, bytes_max)
    }

    fn get_range(&self, name: &str, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.step();
        self.inner.get_range(name, offset, len)
    }

    fn head(&self, name: &str) -> Result<Option<BlobMetadata>> {
        self.step();
        self.inner.head(name)
    }

    fn list(&self, prefix: &str) -> Result<Vec<ListedBlob>> {
        self.step();
        self.inner.list(prefix)
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.inner.delete(name)
    }

    fn location(&self) -> String {
        "pruned".into()
    }
}

/// Calls `read` with a repository that is pruned at each of its store calls in turn.
fn at_each_call(scene: &Scene, read: impl Fn(&Repository, &str)) {
    for at in 0.. {
        let store = store_with(&scene.blobs);
        let repository = Repository::open(store.clone()).unwrap();
        let pruned = Arc::new(Pruned { inner: store, at, calls: AtomicU64::default() });
        read(&Repository { store: pruned.clone(), ..repository }, &format!("pruned at call {at}"));
        if pruned.calls.load(Ordering::SeqCst) <= at {
            assert!(at > 8, "{at}");
            return;
        }
    }
}

#[test]
fn a_restore_beside_a_prune_writes_every_byte() {
    let scene = Scene::with_half_a_container();
    let source = scene.half();
    at_each_call(&scene, |repository, what| {
        let named = snapshot::find(repository.store.as_ref(), "latest").unwrap();
        let target = tempfile::tempdir().unwrap();
        let (progress, stop) = (Progress::default(), Arc::default());
        let into = target.path().join("restored");
        let report = restore(repository, &Config::default(), &named, &into, &progress, &stop).unwrap();
        assert_eq!((report.damaged, report.problems), (0, 0), "{what}");
        let restored = into.join(source.file_name().unwrap());
        assert_same(&describe(&source), &describe(&restored), what);
        fs::remove_dir_all(target.path()).unwrap();
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
