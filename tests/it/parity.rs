//! Parity in whole repositories: every writer protects what it stores, every reader heals, and what a crash leaves.
//!
//! `FHRD_FLIPS=all` damages every byte and every sector of 512 bytes, `FHRD_FLIPS=2/4` the second quarter of them. Without
//! it, a fixed sample is tested.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fhrd::config::RepositoryConfig;
use fhrd::crypto::{SecretBytes, Unlock};
use fhrd::inspect::check::{CheckReport, check};
use fhrd::keep::{Copier, prune, recompress};
use fhrd::metrics::Progress;
use fhrd::repo::Repository;
use fhrd::repo::claims::{ClaimKind, ContainerClaim};
use fhrd::repo::cold;
use fhrd::repo::container::parse_name;
use fhrd::repo::heal::{Healable, heal};
use fhrd::repo::index::ContainerListing;
use fhrd::repo::parity::{add, protected, set};
use fhrd::repo::paths::cache_directory;
use fhrd::repo::snapshot;
use fhrd::repo::sweep::sweep;
use fhrd::restore::restore;
use fhrd::store::{
    BlobKind, BlobName, BlobPrefix, Durable, FaultyStore, InjectedFault, MemoryStore, ParityFound, ParityShare,
    SHORT_KINDS, Store,
};

use crate::flips::{back_up, config, offsets};
use crate::input::{edit, files, write};
use crate::interleavings::scene::no_grace;
use crate::trees::Random;

const SECTOR: usize = 512;

pub fn share() -> Option<ParityShare> {
    ParityShare::new(300)
}

pub fn unlock() -> Unlock {
    Unlock::KeyFile(SecretBytes::new(vec![7; 32]))
}

pub fn open(store: &Arc<MemoryStore>) -> Repository {
    let repository = Repository::open_with(store.clone(), &|| Ok(unlock())).unwrap();
    let _ = fs::remove_dir_all(cache_directory(&repository).unwrap());
    repository
}

/// A small repository with parity, and the source of its snapshot.
struct Scene {
    source: tempfile::TempDir,
    blobs: BTreeMap<BlobName, Vec<u8>>,
    snapshot: String,
}

impl Scene {
    fn new(is_encrypted: bool) -> Self {
        Self::of(is_encrypted, false)
    }

    fn of(is_encrypted: bool, is_cold: bool) -> Self {
        let store = Arc::new(MemoryStore::new());
        let created = match is_encrypted {
            true => Repository::init_encrypted(store.clone(), &RepositoryConfig::default(), None, &unlock(), "test"),
            false => Repository::init(store.clone(), &RepositoryConfig::default()),
        };
        let repository = created.unwrap();
        assert_eq!(set(&repository, share()).unwrap(), None);
        assert!(!is_cold || !cold::set(&repository, true).unwrap());
        let source = tempfile::tempdir().unwrap();
        let mut random = Random(3);
        let text = random.text(20_000);
        write(source.path().join("text/first.txt"), &text);
        write(source.path().join("noise.bin"), &random.bytes(7000));
        back_up(&repository, source.path());
        write(source.path().join("text/second.txt"), &edit(&mut random, &text, 5));
        let snapshot = back_up(&repository, source.path());
        let _ = fs::remove_dir_all(cache_directory(&repository).unwrap());
        Scene { source, blobs: blobs_of(store.as_ref()), snapshot }
    }

    fn store_with(&self, damaged: &[(&BlobName, &[u8])]) -> Arc<MemoryStore> {
        let store = MemoryStore::new();
        self.blobs.iter().for_each(|(name, bytes)| store.replace(name, bytes));
        damaged.iter().for_each(|(name, bytes)| store.replace(name, bytes));
        Arc::new(store)
    }

    fn of_kind(&self, kind: BlobKind) -> impl Iterator<Item = (&BlobName, &Vec<u8>)> {
        self.blobs.iter().filter(move |(name, _)| name.kind() == kind)
    }

    /// Restores the snapshot without the source, and returns the files that did not come back.
    fn lost(&self, repository: &Repository, what: &str) -> Vec<String> {
        lost_files(repository, &self.snapshot, self.source.path(), what)
    }

    fn assert_heals(&self, damaged: &[(&BlobName, &[u8])], what: &str) {
        let store = self.store_with(damaged);
        assert_eq!(self.lost(&open(&store), what), [""; 0], "{what}");
        for (name, bytes) in damaged {
            assert!(store.get(name, 1 << 20).unwrap() == *bytes, "{what}: a restore has written {name}");
        }
        let repository = open(&store);
        let report = run_check(&repository);
        assert_eq!((report.defects.clone(), report.bad.is_empty()), (Vec::new(), true), "{what}: {report:#?}");
        let healed = heal(&repository, &report.healable).unwrap();
        assert!(healed.left.is_empty() && blobs_of(store.as_ref()) == self.blobs, "{what}: {healed:?}");
    }

    /// Every place of a blob that is damaged alone, as a flipped byte, as a sector of zeros, and as the end. Returns how
    /// many damages these are.
    fn assert_heals_everywhere(&self, name: &BlobName, bytes: &[u8]) -> usize {
        let mut damages = 0;
        for at in offsets(bytes.len(), 1, 997) {
            let mut flipped = bytes.to_vec();
            flipped[at] ^= 1 << (at % 8);
            self.assert_heals(&[(name, &flipped)], &format!("{name}, byte {at}"));
            damages += 1;
        }
        for at in offsets(bytes.len(), SECTOR, 7) {
            let mut zeroed = bytes.to_vec();
            zeroed[at..(at + SECTOR).min(bytes.len())].fill(0);
            self.assert_heals(&[(name, &zeroed)], &format!("{name}, sector at {at}"));
            self.assert_heals(&[(name, &bytes[..at])], &format!("{name}, cut at {at}"));
            damages += 2;
        }
        damages
    }
}

pub fn lost_files(repository: &Repository, id: &str, source: &Path, what: &str) -> Vec<String> {
    let target = tempfile::tempdir().unwrap();
    let named = snapshot::find(repository.store.as_ref(), id).unwrap();
    let path: PathBuf = target.path().join("restored");
    let report = restore(repository, &config(), &named, &path, &Progress::default(), &Arc::default()).unwrap();
    let _ = fs::remove_dir_all(cache_directory(repository).unwrap());
    let restored = path.join(source.file_name().unwrap());
    let is_lost = |name: &String| match fs::read(restored.join(name)) {
        Ok(bytes) => {
            assert!(bytes == fs::read(source.join(name)).unwrap(), "{what}: {name} has wrong bytes");
            false
        }
        Err(_) => true,
    };
    let lost: Vec<String> = files(source).into_iter().filter(is_lost).collect();
    assert_eq!((report.damaged == 0, report.problems), (lost.is_empty(), 0), "{what}: {report:?}");
    lost
}

fn blobs_of(store: &dyn Store) -> BTreeMap<BlobName, Vec<u8>> {
    let listed = store.list(BlobPrefix::All).unwrap();
    listed.into_iter().map(|blob| (blob.name.clone(), store.get(&blob.name, 1 << 30).unwrap())).collect()
}

pub fn run_check(repository: &Repository) -> CheckReport {
    check(repository, &config(), true, &Progress::default(), &Arc::default()).unwrap()
}

/// Kinds of blobs that have parity.
fn kinds() -> impl Iterator<Item = BlobKind> {
    SHORT_KINDS.into_iter().chain([BlobKind::Container])
}

/// Fails unless every container, snapshot, segment and mark has whole parity, and nothing else has.
pub fn assert_protected(repository: &Repository, what: &str) {
    let listed = |kind: BlobKind| repository.store.list(kind.into()).unwrap();
    let names: BTreeSet<BlobName> = kinds().flat_map(listed).map(|blob| blob.name).collect();
    let hashes: BTreeSet<_> = names.iter().map(|name| name.hash().unwrap()).collect();
    let protected: BTreeSet<_> = protected(repository.store.as_ref()).unwrap().into_keys().collect();
    assert_eq!(hashes, protected, "{what}");
    for name in names {
        let found = repository.parity.inspect(&name).unwrap();
        assert!(matches!(found, ParityFound::Whole), "{what}: {name}: {found:?}");
    }
}

#[test]
fn every_damage_of_one_place_heals_without_the_source() {
    for (is_encrypted, is_cold) in [(false, false), (true, false), (false, true)] {
        let scene = Scene::of(is_encrypted, is_cold);
        let protected = kinds().flat_map(|kind| scene.of_kind(kind));
        let others = [BlobKind::Parity, BlobKind::HotIndex].into_iter().flat_map(|kind| scene.of_kind(kind));
        let all: Vec<_> = protected.chain(others).collect();
        let damages: usize = all.iter().map(|(name, bytes)| scene.assert_heals_everywhere(name, bytes)).sum();
        let bytes: usize = all.iter().map(|(_, bytes)| bytes.len()).sum();
        eprintln!(
            "encrypted {is_encrypted}, cold {is_cold}: {damages} damages of {} blobs of {bytes} bytes",
            all.len()
        );
        assert!(damages > 50, "{damages}");
    }
}

#[test]
fn every_container_damaged_at_once_heals_and_is_written_back() {
    let scene = Scene::new(true);
    let mut damaged: Vec<(BlobName, Vec<u8>)> = Vec::new();
    for (name, bytes) in kinds().flat_map(|kind| scene.of_kind(kind)) {
        let mut bytes = bytes.clone();
        let (from, until) = (bytes.len() / 3, bytes.len() / 2);
        bytes[from..until].fill(0x55);
        damaged.push((name.clone(), bytes));
    }
    let refs: Vec<(&BlobName, &[u8])> = damaged.iter().map(|(name, bytes)| (name, bytes.as_slice())).collect();
    scene.assert_heals(&refs, "all at once");
    let store = scene.store_with(&refs);
    let repository = open(&store);
    let report = run_check(&repository);
    let containers = scene.of_kind(BlobKind::Container).count() as u64;
    assert_eq!((report.defects.clone(), report.containers_healed), (Vec::new(), containers), "{report:#?}");
    assert_eq!(report.short_blobs_healed, damaged.len() as u64 - containers, "{report:#?}");
    assert!(report.bad.is_empty(), "{report:#?}");
    assert!(damaged.iter().all(|(name, bytes)| store.get(name, 1 << 20).unwrap() == *bytes), "a check has written");
    let healed = heal(&repository, &report.healable).unwrap();
    assert_eq!((healed.containers, healed.left.len()), (containers, 0), "{healed:?}");
    assert_eq!(healed.short_blobs, damaged.len() as u64 - containers, "{healed:?}");
    assert!(blobs_of(store.as_ref()) == scene.blobs, "the repository is what it was");
    let again = run_check(&open(&store));
    assert_eq!((again.defect_count, again.containers_healed, again.short_blobs_healed), (0, 0, 0), "{again:#?}");
}

#[test]
fn damaged_parity_is_noticed_and_made_again() {
    let scene = Scene::new(false);
    for (name, bytes) in scene.of_kind(BlobKind::Parity) {
        for at in [0, 100, bytes.len() / 2, bytes.len() - 1] {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            let store = scene.store_with(&[(name, &flipped)]);
            let repository = open(&store);
            let report = run_check(&repository);
            assert_eq!((report.defect_count, report.parity_damaged), (0, 1), "{name}, {at}: {report:#?}");
            assert_eq!(heal(&repository, &report.healable).unwrap().parity, 1);
            assert!(store.get(name, 1 << 20).unwrap() == *bytes);
        }
    }
}

#[test]
fn beyond_the_share_damage_costs_what_it_costs_without_parity() {
    let scene = Scene::new(false);
    let (name, bytes) = scene.of_kind(BlobKind::Container).max_by_key(|(_, bytes)| bytes.len()).unwrap();
    let parity = BlobName::parity_of(&name.hash().unwrap());
    let mut flipped = bytes.clone();
    (0..bytes.len()).step_by(4096).for_each(|at| flipped[at] ^= 1);
    let store = scene.store_with(&[(name, &flipped), (&parity, &scene.blobs[&parity][..4096 * 3])]);
    let repository = open(&store);
    let report = run_check(&repository);
    assert!(report.defect_count > 0 && report.containers_healed == 0, "{report:#?}");
    assert!(heal(&repository, &Healable::default()).unwrap().containers == 0);
    assert!(store.get(name, 1 << 20).unwrap() == flipped, "nothing is written that is not the container");
}

#[test]
fn a_container_that_a_prune_may_be_deleting_is_not_written_back() {
    let scene = Scene::new(false);
    let (name, bytes) = scene.of_kind(BlobKind::Container).next().unwrap();
    let mut flipped = bytes.clone();
    flipped[70] ^= 1;
    let store = scene.store_with(&[(name, &flipped)]);
    let repository = open(&store);
    let id = [parse_name(name).unwrap()].into();
    ContainerClaim::put(store.as_ref(), ClaimKind::Pending, &repository.salts.draw().unwrap(), &id).unwrap();
    assert_eq!(run_check(&repository).containers_healed, 1);
    let healed = heal(&repository, &Healable::default()).unwrap();
    assert_eq!((healed.containers, healed.left.len()), (0, 1), "{healed:?}");
    assert!(store.get(name, 1 << 20).unwrap() == flipped);
    assert!(store.list(BlobKind::Intent.into()).unwrap().is_empty(), "the intent is gone");
}

#[test]
fn whoever_writes_containers_protects_them() {
    let scene = Scene::new(false);
    let store = scene.store_with(&[]);
    let repository = open(&store);
    let path = |name: &str| scene.source.path().join(name);
    write(path("large.bin"), &Random(21).bytes(60_000));
    write(path("small.bin"), &Random(22).bytes(3000));
    back_up(&repository, scene.source.path());
    assert_protected(&repository, "backup");
    // Something to delete and something to move.
    ["large.bin", "text/first.txt"].iter().for_each(|name| fs::remove_file(path(name)).unwrap());
    let last = back_up(&repository, scene.source.path());
    for named in snapshot::list(store.as_ref()).unwrap().0.iter().filter(|named| named.id.to_string() != last) {
        snapshot::delete(store.as_ref(), &named.id).unwrap();
    }
    let before = store.list(BlobKind::Container.into()).unwrap();
    let report = prune(&open(&store), &no_grace(), &Arc::default()).unwrap();
    assert!(report.containers_deleted > 0 && report.containers_written > 0, "{report:?}");
    // Also that of the snapshots, which were deleted without it.
    assert!(report.parity_deleted > report.containers_deleted, "{report:?}");
    assert!(before != store.list(BlobKind::Container.into()).unwrap());
    assert_protected(&repository, "prune");
    recompress(&open(&store), &no_grace(), 1, &Arc::default()).unwrap();
    assert_protected(&repository, "recompress");
    assert_eq!(lost_files(&open(&store), &last, scene.source.path(), "moved"), [""; 0]);
    let target = Arc::new(MemoryStore::new());
    let copied = Repository::init(target.clone(), &RepositoryConfig::default()).unwrap();
    set(&copied, share()).unwrap();
    let config = config();
    let mut copier = Copier::new(&repository, &copied, &config).unwrap();
    for named in snapshot::list(store.as_ref()).unwrap().0 {
        copier.copy(&named, false, &Progress::default(), &Arc::default()).unwrap();
    }
    assert!(!target.list(BlobKind::Container.into()).unwrap().is_empty());
    assert_protected(&open(&target), "copy");
}

#[test]
fn what_exists_is_protected_later_and_nothing_is_without_a_share() {
    let scene = Scene::new(true);
    let store = scene.store_with(&[]);
    let repository = open(&store);
    assert_eq!(set(&repository, None).unwrap(), share());
    assert!(add(&repository, &Progress::default(), &Arc::default()).is_err(), "nothing is set");
    scene.of_kind(BlobKind::Parity).for_each(|(name, _)| store.delete(name, Durable::OnReturn).unwrap());
    write(scene.source.path().join("new"), &Random(8).bytes(5000));
    let repository = open(&store);
    back_up(&repository, scene.source.path());
    assert!(store.list(BlobKind::Parity.into()).unwrap().is_empty(), "parity is off");
    assert_eq!(set(&repository, share()).unwrap(), None);
    let added = add(&repository, &Progress::default(), &Arc::default()).unwrap();
    assert!(added.containers > 2 && added.containers_before == 0 && added.damaged == 0, "{added:?}");
    assert_protected(&repository, "add");
    for (name, _) in scene.of_kind(BlobKind::Container) {
        let parity = BlobName::parity_of(&name.hash().unwrap());
        assert!(store.get(&parity, 1 << 20).unwrap() == scene.blobs[&parity], "the same as when it was put: {name}");
    }
    assert_eq!(add(&repository, &Progress::default(), &Arc::default()).unwrap().containers, 0);
}

#[test]
fn a_sweep_takes_the_parity_of_what_is_gone_and_of_nothing_that_was_lost() {
    let scene = Scene::new(false);
    let (store, stop) = (scene.store_with(&[]), Arc::default());
    let (name, bytes) = scene.of_kind(BlobKind::Container).next().unwrap();
    store.delete(name, Durable::OnReturn).unwrap();
    assert_eq!(sweep(&open(&store), &stop).unwrap().parity, 0, "a segment names it");
    store.replace(name, bytes);
    let stray = BlobName::parity_of(&[9; 32]);
    store.replace(&stray, b"parity");
    assert_eq!(sweep(&open(&store), &stop).unwrap().parity, 1);
    assert!(store.head(&stray).unwrap().is_none());
    assert_protected(&open(&store), "the others stay");
}

/// Fails if a segment names a container without parity.
fn assert_named_are_protected(repository: &Repository, what: &str) {
    let listing = ContainerListing::take(&repository.store).unwrap();
    let (protected, segments) = (protected(repository.store.as_ref()).unwrap(), listing.segments());
    let named = segments.iter().flat_map(|segment| segment.containers().iter().copied());
    let unprotected: Vec<_> = named.filter(|id| !protected.contains_key(&id.0)).collect();
    assert!(unprotected.is_empty(), "{what}: {unprotected:?}");
}

#[test]
fn what_a_crash_leaves_is_protected_before_a_segment_names_it() {
    let scene = Scene::new(false);
    write(scene.source.path().join("more"), &Random(12).bytes(9000));
    for took_effect in [false, true] {
        for operation in 0.. {
            let store = scene.store_with(&[]);
            let fault = InjectedFault::PowerCut { operation, took_effect };
            let faulty = Arc::new(FaultyStore::new(store.clone(), fault));
            if let Ok(repository) = Repository::open(faulty.clone()) {
                let request = fhrd::backup::BackupRequest::new(fhrd::backup::TreeSource {
                    bare: true,
                    ..fhrd::backup::TreeSource::new(vec![scene.source.path().into()], "test")
                });
                let _ = fhrd::backup::backup(&repository, &config(), &request, &Progress::default(), &Arc::default());
                let _ = fs::remove_dir_all(cache_directory(&repository).unwrap());
            }
            let what = format!("operation {operation}, done: {took_effect}");
            let repository = open(&store);
            assert_named_are_protected(&repository, &what);
            let next = back_up(&repository, scene.source.path());
            assert_eq!(lost_files(&repository, &next, scene.source.path(), &what), [""; 0]);
            // What the crash left was adopted: its parity was put before it was named, and not by `add`.
            assert_named_are_protected(&repository, &what);
            add(&repository, &Progress::default(), &Arc::default()).unwrap();
            assert_protected(&repository, &what);
            if faulty.operations() <= operation {
                break;
            }
        }
    }
}

#[test]
fn what_a_crash_of_a_prune_leaves_is_swept_by_the_next() {
    let scene = Scene::new(false);
    for operation in 0.. {
        let store = scene.store_with(&[]);
        snapshot::list(store.as_ref()).unwrap().0.iter().for_each(|named| {
            if named.id.to_string() != scene.snapshot {
                snapshot::delete(store.as_ref(), &named.id).unwrap();
            }
        });
        let fault = InjectedFault::PowerCut { operation, took_effect: true };
        let faulty = Arc::new(FaultyStore::new(store.clone(), fault));
        if let Ok(repository) = Repository::open(faulty.clone()) {
            let _ = prune(&repository, &no_grace(), &Arc::default());
        }
        let what = format!("operation {operation}");
        assert_eq!(scene.lost(&open(&store), &what), [""; 0]);
        prune(&open(&store), &no_grace(), &Arc::default()).unwrap();
        // A segment or a mark whose parity was not put is merely unprotected.
        assert_eq!(add(&open(&store), &Progress::default(), &Arc::default()).unwrap().containers, 0, "{what}");
        assert_protected(&open(&store), &what);
        assert_eq!(scene.lost(&open(&store), &what), [""; 0]);
        if faulty.operations() <= operation {
            break;
        }
    }
}

#[test]
fn older_programs_read_and_do_not_write_while_there_is_parity() {
    let scene = Scene::new(false);
    let marks: Vec<_> = scene.of_kind(BlobKind::RequiredMark).collect();
    assert_eq!(marks.len(), 1, "a kind of mark that they do not know, and must");
    let store = scene.store_with(&[]);
    set(&open(&store), ParityShare::new(500)).unwrap();
    assert_eq!(store.list(BlobKind::RequiredMark.into()).unwrap().len(), 1, "one mark at a time");
    set(&open(&store), None).unwrap();
    assert!(store.list(BlobKind::Mark.into()).unwrap().is_empty(), "now they write again");
}

#[test]
fn what_was_forgotten_does_not_come_back() {
    let scene = Scene::new(false);
    let (store, mut bytes) = (scene.store_with(&[]), Vec::new());
    let named = snapshot::find(store.as_ref(), &scene.snapshot).unwrap();
    let name = scene.of_kind(BlobKind::Snapshot).find(|(name, _)| name.last() == scene.snapshot).unwrap().0;
    bytes.extend_from_slice(&scene.blobs[name]);
    bytes[20] ^= 1;
    store.replace(name, &bytes);
    let repository = open(&store);
    // It is read through its parity, then somebody else forgets it.
    assert!(snapshot::Snapshot::load(repository.store.as_ref(), &named.id).is_ok());
    let other = open(&store);
    // Whoever deletes has read the marks.
    set(&other, share()).unwrap();
    snapshot::delete(other.store.as_ref(), &named.id).unwrap();
    let parity = BlobName::parity_of(&name.hash().unwrap());
    assert!(store.head(&parity).unwrap().is_none(), "a copy never outlives a deletion");
    assert!(snapshot::Snapshot::load(repository.store.as_ref(), &named.id).is_err());
    assert_eq!(heal(&repository, &Healable::default()).unwrap().short_blobs, 0);
    assert!(store.head(name).unwrap().is_none());
    assert_protected(&open(&store), "the others stay");
}
