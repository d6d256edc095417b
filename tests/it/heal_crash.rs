//! A heal that fails or ends at any store call: every snapshot restores, and the next heal makes every blob what it was.
//!
//! By default the calls of the heal itself fail. With `FHRD_FLIPS=all` those of opening the repository and of the check
//! before it fail, too; `FHRD_FLIPS=2/4` is the second quarter of these.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;

use fhrd::config::RepositoryConfig;
use fhrd::inspect::check::check;
use fhrd::keep::prune;
use fhrd::metrics::Progress;
use fhrd::repair::quarantine;
use fhrd::repo::Repository;
use fhrd::repo::claims::{ClaimKind, ContainerClaim};
use fhrd::repo::cold;
use fhrd::repo::container::{ContainerKind, read_kind};
use fhrd::repo::heal::{HealReport, heal};
use fhrd::repo::marks::Marks;
use fhrd::repo::parity;
use fhrd::repo::paths::cache_directory;
use fhrd::store::{BlobKind, BlobName, FaultyStore, InjectedFault, MemoryStore, Reading, SHORT_KINDS, Store};

use crate::cold::{blobs_of, store_with};
use crate::flips::{back_up, config, part};
use crate::input::{edit, write};
use crate::interleavings::scene::no_grace;
use crate::parity::{lost_files, open, run_check, share, unlock};
use crate::trees::Random;

/// A repository of two snapshots in which everything that heals is damaged.
struct Scene {
    source: tempfile::TempDir,
    /// The blobs before the damage.
    sound: BTreeMap<BlobName, Vec<u8>>,
    damaged: BTreeMap<BlobName, Vec<u8>>,
    /// What is damaged or missing.
    bad: BTreeSet<BlobName>,
    snapshot: String,
    has_parity: bool,
}

impl Scene {
    fn new(has_parity: bool, is_cold: bool, is_encrypted: bool) -> Self {
        let store = Arc::new(MemoryStore::new());
        let created = match is_encrypted {
            true => Repository::init_encrypted(store.clone(), &RepositoryConfig::default(), None, &unlock(), "test"),
            false => Repository::init(store.clone(), &RepositoryConfig::default()),
        };
        let repository = created.unwrap();
        if has_parity {
            parity::set(&repository, share()).unwrap();
        }
        if is_cold {
            cold::set(&repository, true).unwrap();
        }
        let (source, mut random) = (tempfile::tempdir().unwrap(), Random(8));
        let text = random.text(9000);
        write(source.path().join("text/first.txt"), &text);
        write(source.path().join("noise.bin"), &random.bytes(3000));
        back_up(&repository, source.path());
        write(source.path().join("text/second.txt"), &edit(&mut random, &text, 5));
        let snapshot = back_up(&repository, source.path());
        let _ = fs::remove_dir_all(cache_directory(&repository).unwrap());
        let sound = blobs_of(store.as_ref());
        let mut scene = Scene { source, damaged: sound.clone(), sound, bad: BTreeSet::new(), snapshot, has_parity };
        if has_parity {
            scene.damage_what_parity_heals();
        }
        if is_cold {
            scene.damage_what_is_cold(&repository);
        }
        scene
    }

    fn names(&self, kind: BlobKind) -> Vec<BlobName> {
        self.sound.keys().filter(|name| name.kind() == kind).cloned().collect()
    }

    fn damage(&mut self, name: &BlobName, change: impl FnOnce(&mut Vec<u8>)) {
        change(self.damaged.get_mut(name).unwrap());
        self.bad.insert(name.clone());
    }

    /// The parity of one container, and a part of every other blob that has parity.
    fn damage_what_parity_heals(&mut self) {
        let mut containers = self.names(BlobKind::Container);
        let whole = containers.pop().unwrap();
        self.damage(&BlobName::parity_of(&whole.hash().unwrap()), |bytes| bytes.truncate(100));
        let short: Vec<BlobName> = SHORT_KINDS.into_iter().flat_map(|kind| self.names(kind)).collect();
        for name in short.into_iter().chain(containers) {
            self.damage(&name, |bytes| {
                let (from, until) = (bytes.len() / 3, bytes.len() / 2);
                bytes[from..until].fill(0x55);
            });
        }
    }

    /// The end of each data container, or its hot index, in turn.
    fn damage_what_is_cold(&mut self, repository: &Repository) {
        let kind = |name: &BlobName| read_kind(repository.store.as_ref(), name, Reading::FromStore).unwrap();
        let containers = self.names(BlobKind::Container);
        let (data, others): (Vec<_>, Vec<_>) =
            containers.into_iter().partition(|name| kind(name) == ContainerKind::Data);
        for (number, name) in data.into_iter().enumerate() {
            let hot_index = BlobName::hot_index_of(&name.hash().unwrap());
            match number % 2 {
                // Without parity the hot index gives back what is not in a frame.
                0 if self.has_parity => self.damage(&hot_index, |bytes| bytes[20] ^= 1),
                0 => self.damage(&name, |bytes| *bytes.last_mut().unwrap() ^= 1),
                _ => {
                    self.damaged.remove(&hot_index);
                    self.bad.insert(hot_index);
                }
            }
        }
        let hot_index = BlobName::hot_index_of(&others[0].hash().unwrap());
        self.damage(&hot_index, |bytes| bytes.truncate(70));
    }

    /// Fails unless the blobs are those from before the damage, besides intents. A hot index that is sealed again has
    /// other bytes, so it is compared as it reads.
    fn assert_as_before(&self, store: &Arc<MemoryStore>, what: &str) {
        let (found, sound) = (blobs_of(store.as_ref()), store_with(&self.sound));
        let [repository, sound] = [open(store), open(&sound)];
        for (name, bytes) in &self.sound {
            let is_same = match name.kind() {
                BlobKind::HotIndex => {
                    let [read, wanted] = [&repository, &sound].map(|one| one.store.get(name, 1 << 20).unwrap());
                    read == wanted
                }
                _ => found.get(name) == Some(bytes),
            };
            assert!(is_same, "{what}: {name} is not what it was");
        }
        let extra: Vec<_> = found.keys().filter(|name| !self.sound.contains_key(*name)).collect();
        assert!(extra.iter().all(|name| name.kind() == BlobKind::Intent), "{what}: {extra:?}");
    }

    fn assert_restores(&self, store: &Arc<MemoryStore>, what: &str) {
        assert_eq!(lost_files(&open(store), &self.snapshot, self.source.path(), what), [""; 0], "{what}");
        let report = run_check(&open(store));
        assert_eq!((report.snapshots, report.defects), (2, Vec::new()), "{what}");
    }
}

/// How a heal over a store that fails went.
struct Troubled {
    /// None if the repository did not open.
    outcome: Option<fhrd::Result<HealReport>>,
    /// Calls before the heal: of opening and of the check.
    calls_before: u64,
    calls: u64,
}

/// Does what `fhrd check --read-data --heal` does, over a store with this fault.
fn troubled(store: &Arc<MemoryStore>, fault: InjectedFault) -> Troubled {
    let faulty = Arc::new(FaultyStore::new(store.clone(), fault));
    let mut calls_before = 0;
    let outcome = Repository::open_with(faulty.clone(), &|| Ok(unlock())).ok().map(|repository| {
        let mut check_and_heal = || {
            let before = Marks::read(repository.store.as_ref())?;
            let report = check(&repository, &config(), true, &Progress::default(), &Arc::default())?;
            quarantine::record(&repository, &before, &report)?;
            calls_before = faulty.operations();
            heal(&repository, &report.healable)
        };
        let outcome = check_and_heal();
        let _ = fs::remove_dir_all(cache_directory(&repository).unwrap());
        outcome
    });
    Troubled { outcome, calls_before, calls: faulty.operations() }
}

/// Heals without a fault, and fails if anything is left.
fn healed(store: &Arc<MemoryStore>, what: &str) -> HealReport {
    let report = troubled(store, InjectedFault::None).outcome.unwrap().unwrap();
    assert_eq!(report.left, [""; 0], "{what}");
    report
}

fn faults(operation: u64) -> [InjectedFault; 3] {
    [
        InjectedFault::PowerCut { operation, took_effect: false },
        InjectedFault::PowerCut { operation, took_effect: true },
        InjectedFault::Fail { operation, took_effect: operation.is_multiple_of(2) },
    ]
}

/// Lets every call of a heal fail in turn, and heals again.
fn assert_heals_after_every_fault(has_parity: bool, is_cold: bool, is_encrypted: bool) {
    let scene = Scene::new(has_parity, is_cold, is_encrypted);
    let whole = troubled(&store_with(&scene.damaged), InjectedFault::None);
    let (first, (part, parts)) = part().map_or((whole.calls_before, (1, 1)), |part| (0, part));
    let (mut interrupted, mut half_done) = (0, 0);
    for fault in (first..whole.calls).flat_map(faults).skip(part - 1).step_by(parts) {
        let what = format!("parity {has_parity}, cold {is_cold}, {fault:?}");
        let store = store_with(&scene.damaged);
        let Troubled { outcome, .. } = troubled(&store, fault);
        let is_whole = outcome.is_some_and(|outcome| outcome.is_ok_and(|report| report.left.is_empty()));
        interrupted += u64::from(!is_whole);
        half_done += u64::from(!is_whole && blobs_of(store.as_ref()) != scene.damaged);
        scene.assert_restores(&store, &what);
        healed(&store, &what);
        scene.assert_as_before(&store, &what);
        assert_eq!(healed(&store, &what), HealReport::default(), "{what}: nothing is left to heal");
    }
    let calls = first..whole.calls;
    eprintln!("parity {has_parity}, cold {is_cold}: calls {calls:?}, {interrupted} interrupted, {half_done} half done");
    assert!(interrupted > 15 && half_done > 5, "{interrupted}, {half_done}");
}

#[test]
fn a_heal_from_parity_that_ends_at_any_call_is_made_good_by_the_next() {
    assert_heals_after_every_fault(true, false, false);
}

#[test]
fn a_heal_of_a_cold_repository_that_ends_at_any_call_is_made_good_by_the_next() {
    assert_heals_after_every_fault(false, true, false);
}

#[test]
fn a_heal_of_an_encrypted_cold_repository_with_parity_that_ends_at_any_call_is_made_good_by_the_next() {
    assert_heals_after_every_fault(true, true, true);
}

/// A disk that keeps half of what it is given: parity heals that, too.
#[test]
fn what_a_heal_wrote_and_the_disk_cut_is_healed_by_the_next() {
    let scene = Scene::new(true, true, false);
    let mut cut = 0;
    // One put is that of the intent, and what is there is first put as if it were new.
    for put in 0..=2 * scene.bad.len() as u64 {
        let (what, store) = (format!("put {put}"), store_with(&scene.damaged));
        let first = troubled(&store, InjectedFault::Truncate { put }).outcome.unwrap().unwrap();
        let found = blobs_of(store.as_ref());
        let is_cut = scene.sound.iter().any(|(name, bytes)| found[name] != *bytes);
        cut += usize::from(is_cut);
        assert!(is_cut || first.left.is_empty(), "{what}: {first:?}");
        scene.assert_restores(&store, &what);
        healed(&store, &what);
        scene.assert_as_before(&store, &what);
    }
    assert_eq!(cut, scene.bad.len());
}

#[test]
fn the_intent_of_a_heal_that_was_killed_is_broken_by_a_prune() {
    let scene = Scene::new(true, false, false);
    let held = |store: &MemoryStore| ContainerClaim::containers_of(store, ClaimKind::Intent).unwrap();
    let killed = (0..).find_map(|operation| {
        let store = store_with(&scene.damaged);
        let _ = troubled(&store, InjectedFault::PowerCut { operation, took_effect: true });
        (!held(&store).is_empty()).then_some(store)
    });
    let store = killed.unwrap();
    assert_eq!(prune(&open(&store), &no_grace(), &Arc::default()).unwrap().intents_broken, 1);
    assert!(held(&store).is_empty());
    scene.assert_restores(&store, "pruned");
}
