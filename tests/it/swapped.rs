//! Files of containers that were mixed up: whole bytes of one container are under the name of another.

use std::sync::Arc;

use fhrd::config::RepositoryConfig;
use fhrd::inspect::check::{CheckReport, check};
use fhrd::metrics::Progress;
use fhrd::repo::Repository;
use fhrd::repo::cold;
use fhrd::repo::container::{ContainerKind, parse_name, read_kind};
use fhrd::repo::heal::heal;
use fhrd::repo::parity;
use fhrd::store::{BlobKind, BlobName, Durable, MemoryStore, Reading, Store};

use crate::flips::{back_up, config, run_check};
use crate::input::write;
use crate::parity::{lost_files, open, share, unlock};
use crate::trees::Random;

/// A repository with two data containers, a short one and a longer one, of two snapshots.
struct Scene {
    store: Arc<MemoryStore>,
    source: tempfile::TempDir,
    /// The containers with their bytes, the shorter one first.
    containers: [(BlobName, Vec<u8>); 2],
    snapshot: String,
}

impl Scene {
    fn new(is_encrypted: bool, is_cold: bool, has_parity: bool) -> Self {
        let (store, config) = (Arc::new(MemoryStore::new()), RepositoryConfig::default());
        let repository = match is_encrypted {
            true => Repository::init_encrypted(store.clone(), &config, None, &unlock(), "test").unwrap(),
            false => Repository::init(store.clone(), &config).unwrap(),
        };
        if is_cold {
            cold::set(&repository, true).unwrap();
        }
        if has_parity {
            parity::set(&repository, share()).unwrap();
        }
        let (source, mut random) = (tempfile::tempdir().unwrap(), Random(4));
        write(source.path().join("first"), &random.bytes(3_000));
        back_up(&repository, source.path());
        write(source.path().join("second"), &random.bytes(400_000));
        let snapshot = back_up(&repository, source.path());
        let listed = store.list(BlobKind::Container.into()).unwrap().into_iter().map(|blob| blob.name);
        let is_data = |name: &BlobName| {
            read_kind(repository.store.as_ref(), name, Reading::FromStore).unwrap() == ContainerKind::Data
        };
        let mut all: Vec<(BlobName, Vec<u8>)> =
            listed.filter(is_data).map(|name| (name.clone(), store.get(&name, 1 << 30).unwrap())).collect();
        all.sort_by_key(|(_, bytes)| bytes.len());
        Scene { store, source, containers: all.try_into().unwrap(), snapshot }
    }

    /// Puts the bytes of the longer container under the name of the shorter one, and deletes the longer one, or puts
    /// the bytes of the shorter one there.
    fn mix_up(&self, is_moved: bool) {
        let [(short, short_bytes), (long, long_bytes)] = &self.containers;
        self.store.replace(short, long_bytes);
        match is_moved {
            true => self.store.delete(long, Durable::OnReturn).unwrap(),
            false => self.store.replace(long, short_bytes),
        }
    }
}

#[test]
fn what_was_swapped_is_stored_again_whole() {
    for (is_encrypted, is_cold) in [(false, false), (true, false), (false, true), (true, true)] {
        let what = format!("encrypted: {is_encrypted}, cold: {is_cold}");
        let scene = Scene::new(is_encrypted, is_cold, false);
        scene.mix_up(false);
        // In cold storage, a backup relies on the hot indexes, and only reading the data shows what is wrong.
        if !is_cold {
            // Files that are unchanged are not read.
            for file in ["first", "second"].map(|file| scene.source.path().join(file)) {
                write(file.clone(), &std::fs::read(file).unwrap());
            }
            let snapshot = back_up(&open(&scene.store), scene.source.path());
            let lost = lost_files(&open(&scene.store), &snapshot, scene.source.path(), &what);
            assert_eq!(lost, [""; 0], "{what}: before a check");
        }
        let report = run_check(&open(&scene.store));
        assert!(report.defect_count > 0 || !is_cold, "{what}: {report:#?}");
        let bad: Vec<_> = report.bad.containers().map(|(id, _)| *id).collect();
        assert!(scene.containers.iter().all(|(name, _)| bad.contains(&parse_name(name).unwrap())), "{what}: {bad:?}");
        let snapshot = back_up(&open(&scene.store), scene.source.path());
        let lost = lost_files(&open(&scene.store), &snapshot, scene.source.path(), &what);
        assert_eq!(lost, [""; 0], "{what}: after a check");
        let report = run_check(&open(&scene.store));
        assert_eq!(report.defect_count, 0, "{what}: {report:#?}");
    }
}

#[test]
fn what_heals_does_not_overwrite_the_only_bytes_of_another_container() {
    for (is_encrypted, is_moved) in [(false, false), (false, true), (true, false), (true, true)] {
        let what = format!("encrypted: {is_encrypted}, moved: {is_moved}");
        let scene = Scene::new(is_encrypted, false, true);
        scene.mix_up(is_moved);
        let repository = open(&scene.store);
        let report = run_check(&repository);
        assert!(report.containers_healed > 0, "{what}: {report:#?}");
        let healed = heal(&repository, &report.healable).unwrap();
        assert!(healed.containers == 2 && healed.put_back.len() == 1, "{what}: {healed:#?}");
        for (name, bytes) in &scene.containers {
            assert!(scene.store.get(name, 1 << 30).is_ok_and(|stored| stored == *bytes), "{what}: {name}");
        }
        let report = run_check(&open(&scene.store));
        assert_eq!(report.defect_count, 0, "{what}: {report:#?}");
        let lost = lost_files(&open(&scene.store), &scene.snapshot, scene.source.path(), &what);
        assert_eq!(lost, [""; 0], "{what}");
    }
}

#[test]
fn a_check_without_data_sees_that_containers_in_cold_storage_have_other_lengths() {
    for is_encrypted in [false, true] {
        let scene = Scene::new(is_encrypted, true, false);
        assert_eq!(run_quick_check(&scene).defect_count, 0);
        scene.mix_up(false);
        let report = run_quick_check(&scene);
        for (name, _) in &scene.containers {
            assert!(report.defects.iter().any(|text| text.contains(name.as_str())), "{name}: {:#?}", report.defects);
        }
    }
}

fn run_quick_check(scene: &Scene) -> CheckReport {
    check(&open(&scene.store), &config(), false, &Progress::default(), &Arc::default()).unwrap()
}
