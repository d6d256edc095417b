//! Damage that parity gives back, where the parity was not tried: it counts as unreadable, and nothing is dropped.

use std::io;
use std::sync::Arc;

use fhrd::config::RepositoryConfig;
use fhrd::error::Error;
use fhrd::inspect::check::check;
use fhrd::keep::prune;
use fhrd::metrics::Progress;
use fhrd::model::CatalogueBlob;
use fhrd::repair::containers::repair_containers;
use fhrd::repair::index::repair_index;
use fhrd::repair::quarantine;
use fhrd::repair::snapshots::{SnapshotRepair, repair_snapshots};
use fhrd::repo::Repository;
use fhrd::repo::container::{ContainerKind, HEADER_BYTES, read_kind};
use fhrd::repo::heal::heal;
use fhrd::repo::marks::{Mark, MarkKind, Marks};
use fhrd::repo::parity;
use fhrd::repo::paths::cache_directory;
use fhrd::repo::snapshot;
use fhrd::repo::snapshot_listing;
use fhrd::store::{
    BlobKind, BlobName, Durable, MemoryStore, NewName, ObservedStore, PutOptions, Reading, Store, StoreCall,
    StoreObserver,
};

use crate::flips::{back_up, config, run_check};
use crate::input::write;
use crate::interleavings::scene::no_grace;
use crate::parity::{lost_files, open, share};
use crate::trees::Random;
use crate::weights::{Tensor, float32, safetensors};

/// A repository with parity, and its containers.
struct Scene {
    store: Arc<MemoryStore>,
    source: tempfile::TempDir,
    snapshot: String,
    containers: Vec<(ContainerKind, BlobName)>,
}

/// Why the parity is not tried.
#[derive(Debug, Clone, Copy)]
enum Obstacle {
    /// It takes more memory.
    Memory,
    /// It is in cold storage.
    Cold,
    /// The device cannot read it.
    Device,
    /// The server does not give it.
    Failure,
}

impl StoreObserver for Obstacle {
    fn before(&self, call: StoreCall, name: &str) -> fhrd::Result<u64> {
        let is_read = matches!(call, StoreCall::Get | StoreCall::GetRange) && name.starts_with("parity/");
        match self {
            Obstacle::Cold if is_read => Err(Error::Cold { what: name.into() }),
            Obstacle::Device if is_read => {
                let source = io::Error::other("a bad sector");
                Err(Error::Unreadable { what: name.into(), offset: 0, source })
            }
            Obstacle::Failure if is_read => Err(Error::io("read", name, io::Error::other("no answer"))),
            _ => Ok(0),
        }
    }
}

impl Scene {
    fn new() -> Self {
        let store = Arc::new(MemoryStore::new());
        let repository = Repository::init(store.clone(), &RepositoryConfig::default()).unwrap();
        parity::set(&repository, share()).unwrap();
        let (source, mut random) = (tempfile::tempdir().unwrap(), Random(4));
        write(source.path().join("file"), &random.bytes(400_000));
        write(source.path().join("directory/other"), &random.bytes(4000));
        let snapshot = back_up(&repository, source.path());
        let listed = store.list(BlobKind::Container.into()).unwrap().into_iter().map(|blob| blob.name);
        let kind = |name: &BlobName| read_kind(repository.store.as_ref(), name, Reading::FromStore).unwrap();
        let containers = listed.map(|name| (kind(&name), name)).collect();
        Scene { store, source, snapshot, containers }
    }

    fn open(&self, obstacle: Obstacle) -> Repository {
        let repository = Repository::open(Arc::new(ObservedStore::with(self.store.clone(), obstacle))).unwrap();
        let _ = std::fs::remove_dir_all(cache_directory(&repository).unwrap());
        if matches!(obstacle, Obstacle::Memory) {
            repository.parity.set_memory(0);
        }
        repository
    }

    /// Damages `len` bytes of the first container of this kind, in its frames or at its end.
    fn damage(&self, kind: ContainerKind, len: usize, is_in_frames: bool) -> BlobName {
        let (_, name) = self.containers.iter().find(|(of, _)| *of == kind).unwrap();
        let mut bytes = self.store.get(name, 1 << 30).unwrap();
        let at = if is_in_frames { HEADER_BYTES + 40 } else { bytes.len() - len - 70 };
        bytes[at..at + len].fill(0x55);
        self.store.replace(name, &bytes);
        name.clone()
    }
}

#[test]
fn damage_whose_parity_was_not_tried_is_unreadable_and_costs_no_snapshot() {
    for obstacle in [Obstacle::Memory, Obstacle::Cold, Obstacle::Device] {
        for (kind, is_in_frames) in
            [(ContainerKind::Data, true), (ContainerKind::Data, false), (ContainerKind::Metadata, true)]
        {
            let (what, scene) = (format!("{obstacle:?}, {kind:?}, frames: {is_in_frames}"), Scene::new());
            let name = scene.damage(kind, 30, is_in_frames);
            let repository = scene.open(obstacle);
            let before = Marks::read(repository.store.as_ref()).unwrap();
            let report = run_check(&repository);
            let said = |reason: &str| report.defects.iter().any(|text| text.contains(reason));
            assert!(said("its parity was not tried: "), "{what}: {report:#?}");
            assert!(!matches!(obstacle, Obstacle::Memory) || said("`--memory 1MiB`"), "{what}: {report:#?}");
            quarantine::record(&repository, &before, &report).unwrap();
            assert!(repository.parity.untried(&name).is_some(), "{what}");
            let healed = heal(&repository, &report.healable).unwrap();
            assert_eq!(healed.containers, 0, "{what}: {healed:#?}");
            repair_containers(&scene.open(obstacle), &config(), &Arc::default()).unwrap();
            let forget = SnapshotRepair { forget: true, ..SnapshotRepair::default() };
            let repaired = repair_snapshots(&scene.open(obstacle), &config(), forget, &Arc::default()).unwrap();
            assert!(repaired.forgotten.is_empty(), "{what}: {repaired:#?}");
            assert!(repaired.damaged.iter().all(|damaged| damaged.may_come_back), "{what}: {repaired:#?}");
            // Without the index, what its frames have was stored again.
            assert_eq!(repaired.whole == 0, is_in_frames, "{what}: {repaired:#?}");
            assert_eq!(snapshot::list(scene.store.as_ref()).unwrap().0.len(), 1, "{what}");
            // Without the obstacle, nothing is lost and no mark is left.
            let repository = open(&scene.store);
            let before = Marks::read(repository.store.as_ref()).unwrap();
            let report = run_check(&repository);
            assert_eq!(report.defect_count, 0, "{what}: {report:#?}");
            quarantine::record(&repository, &before, &report).unwrap();
            let healed = heal(&repository, &report.healable).unwrap();
            assert_eq!((healed.containers, healed.left.len()), (1, 0), "{what}: {healed:#?}");
            assert!(Marks::read(repository.store.as_ref()).unwrap().quarantine.is_empty(), "{what}");
            let lost = lost_files(&open(&scene.store), &scene.snapshot, scene.source.path(), &what);
            assert_eq!(lost, [""; 0], "{what}");
        }
    }
}

#[test]
fn damage_whose_parity_a_server_does_not_give_costs_no_snapshot() {
    for kind in [ContainerKind::Data, ContainerKind::Metadata] {
        let scene = Scene::new();
        scene.damage(kind, 30, true);
        let repository = || scene.open(Obstacle::Failure);
        let checked = check(&repository(), &config(), true, &Progress::default(), &Arc::default());
        assert!(checked.is_err(), "{kind:?}: what was not read is not judged: {checked:#?}");
        let forget = SnapshotRepair { forget: true, ..SnapshotRepair::default() };
        let repaired = repair_snapshots(&repository(), &config(), forget, &Arc::default());
        let is_kept = repaired.as_ref().is_ok_and(|repaired| {
            repaired.forgotten.is_empty() && repaired.damaged.iter().all(|damaged| damaged.may_come_back)
        });
        assert!(is_kept || repaired.is_err(), "{kind:?}: {repaired:#?}");
        assert_eq!(snapshot::list(scene.store.as_ref()).unwrap().0.len(), 1, "{kind:?}");
        let lost = lost_files(&open(&scene.store), &scene.snapshot, scene.source.path(), "healed");
        assert_eq!(lost, [""; 0], "{kind:?}");
    }
}

#[test]
fn a_snapshot_whose_parity_was_not_tried_is_written_again_from_a_copy() {
    for obstacle in [Obstacle::Memory, Obstacle::Device] {
        let scene = Scene::new();
        let name = scene.store.list(BlobKind::Snapshot.into()).unwrap().swap_remove(0).name;
        let right = scene.store.get(&name, 1 << 20).unwrap();
        // This machine has a copy.
        assert_eq!(snapshot_listing::list(&open(&scene.store)).unwrap().snapshots.len(), 1);
        let mut wrong = right.clone();
        wrong[40] ^= 1;
        scene.store.replace(&name, &wrong);
        let repository = Repository::open(Arc::new(ObservedStore::with(scene.store.clone(), obstacle))).unwrap();
        if matches!(obstacle, Obstacle::Memory) {
            repository.parity.set_memory(0);
        }
        let forget = SnapshotRepair { forget: true, ..SnapshotRepair::default() };
        let repaired = repair_snapshots(&repository, &config(), forget, &Arc::default()).unwrap();
        assert!(repaired.forgotten.is_empty() && repaired.damaged.is_empty(), "{obstacle:?}: {repaired:#?}");
        assert!(scene.store.get(&name, 1 << 20).unwrap() == right, "{obstacle:?}: {repaired:#?}");
    }
}

#[test]
fn without_any_parity_where_it_is_set_damage_is_not_proven() {
    let scene = Scene::new();
    let name = scene.damage(ContainerKind::Data, 30, false);
    let away: Vec<(BlobName, Vec<u8>)> = scene
        .store
        .list(BlobKind::Parity.into())
        .unwrap()
        .into_iter()
        .map(|blob| (blob.name.clone(), scene.store.get(&blob.name, 1 << 30).unwrap()))
        .collect();
    assert!(!away.is_empty());
    for (name, _) in &away {
        scene.store.delete(name, Durable::OnReturn).unwrap();
    }
    let report = run_check(&open(&scene.store));
    assert!(report.defects.iter().any(|text| text.contains("its parity was not tried")), "{report:#?}");
    let forget = || SnapshotRepair { forget: true, ..SnapshotRepair::default() };
    let repaired = repair_snapshots(&open(&scene.store), &config(), forget(), &Arc::default()).unwrap();
    assert!(repaired.forgotten.is_empty(), "{repaired:#?}");
    assert!(repaired.damaged.iter().all(|damaged| damaged.may_come_back), "{repaired:#?}");
    // That of one blob alone is gone: the damage is proven.
    for (name, bytes) in &away {
        scene.store.put(NewName::Given(name), &[bytes], PutOptions::default()).unwrap();
    }
    scene.store.delete(&BlobName::parity_of(&name.hash().unwrap()), Durable::OnReturn).unwrap();
    let repaired = repair_snapshots(&open(&scene.store), &config(), forget(), &Arc::default()).unwrap();
    assert!(repaired.damaged.iter().any(|damaged| !damaged.may_come_back), "{repaired:#?}");
}

#[test]
fn without_the_parity_of_a_mark_damage_is_not_proven_whatever_others_have_put() {
    let scene = Scene::new();
    scene.damage(ContainerKind::Data, 30, false);
    for blob in scene.store.list(BlobKind::Parity.into()).unwrap() {
        scene.store.delete(&blob.name, Durable::OnReturn).unwrap();
    }
    let forget = SnapshotRepair { forget: true, ..SnapshotRepair::default() };
    repair_index(&open(&scene.store), &Arc::default()).unwrap();
    write(scene.source.path().join("new"), b"new");
    back_up(&open(&scene.store), scene.source.path());
    assert!(!scene.store.list(BlobKind::Parity.into()).unwrap().is_empty());
    let repaired = repair_snapshots(&open(&scene.store), &config(), forget, &Arc::default()).unwrap();
    assert!(repaired.forgotten.is_empty(), "{repaired:#?}");
    assert!(repaired.damaged.iter().all(|damaged| damaged.may_come_back), "{repaired:#?}");
}

#[test]
fn a_mark_of_a_program_without_parity_says_nothing_about_that_of_others() {
    let scene = Scene::new();
    let mark = Mark::new(MarkKind::WriterFeatures(0), "a test").save(scene.store.as_ref()).unwrap().swap_remove(0);
    assert!(scene.store.head(&BlobName::parity_of(&mark.hash().unwrap())).unwrap().is_none());
    let name = scene.damage(ContainerKind::Data, 30, false);
    scene.store.delete(&BlobName::parity_of(&name.hash().unwrap()), Durable::OnReturn).unwrap();
    let forget = SnapshotRepair { forget: true, ..SnapshotRepair::default() };
    let repaired = repair_snapshots(&open(&scene.store), &config(), forget, &Arc::default()).unwrap();
    assert!(repaired.damaged.iter().any(|damaged| !damaged.may_come_back), "{repaired:#?}");
}

#[test]
fn what_a_cut_container_lacks_is_no_untried_parity() {
    let scene = Scene::new();
    let (_, name) = scene.containers.iter().find(|(kind, _)| *kind == ContainerKind::Data).unwrap();
    let mut bytes = scene.store.get(name, 1 << 30).unwrap();
    let len = bytes.len() - 4000;
    bytes.truncate(len);
    // Every sector, so parity cannot help.
    bytes.iter_mut().skip(HEADER_BYTES).step_by(1000).for_each(|byte| *byte ^= 1);
    scene.store.replace(name, &bytes);
    let repository = open(&scene.store);
    let report = run_check(&repository);
    assert!(report.defect_count > 0, "{report:#?}");
    assert_eq!(repository.parity.untried(name), None, "{report:#?}");
}

#[test]
fn a_catalogue_that_cannot_be_read_now_costs_no_records() {
    let scene = Scene::new();
    write(
        scene.source.path().join("model.safetensors"),
        &safetensors(&[Tensor::new("w", "F32", &[65536], float32(&[0.5; 65536]))]),
    );
    back_up(&open(&scene.store), scene.source.path());
    assert_eq!(scene.store.list(BlobKind::Model.into()).unwrap().len(), 1);
    let opened = |error: fn(&str) -> Error| {
        let observer = Unreadable(error);
        Repository::open(Arc::new(ObservedStore::with(scene.store.clone(), observer))).unwrap()
    };
    let options = no_grace();
    for error in [(|name| Error::Cold { what: name.into() }) as fn(&str) -> Error, |name| Error::Unreadable {
        what: name.into(),
        offset: 0,
        source: io::Error::other("a bad sector"),
    }] {
        let pruned = prune(&opened(error), &options, &Arc::default());
        assert!(pruned.is_err(), "{pruned:#?}");
    }
    repair_index(
        &opened(|name| Error::Unreadable { what: name.into(), offset: 0, source: io::Error::other("it") }),
        &Arc::default(),
    )
    .unwrap();
    assert_eq!(
        CatalogueBlob::load_all(scene.store.as_ref()).unwrap().len(),
        1,
        "what cannot be read was written again"
    );
    let corrupt = |name: &str| Error::corrupt(name, 0, "a catalogue", "junk");
    prune(&opened(corrupt), &options, &Arc::default()).unwrap();
}

/// Blobs of the catalogue cannot be read.
struct Unreadable(fn(&str) -> Error);

impl StoreObserver for Unreadable {
    fn before(&self, call: StoreCall, name: &str) -> fhrd::Result<u64> {
        match matches!(call, StoreCall::Get | StoreCall::GetRange) && name.starts_with("models/") {
            true => Err((self.0)(name)),
            false => Ok(0),
        }
    }
}
