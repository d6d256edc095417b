//! What a heal, a repair, a sweep and a mark may not take away: bytes that are the only ones of another blob, and the
//! parity that says whether other parity is away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fhrd::config::RepositoryConfig;
use fhrd::error::Error;
use fhrd::keep::{forget, prune};
use fhrd::repair::snapshots::{SnapshotRepair, repair_snapshots};
use fhrd::repo::Repository;
use fhrd::repo::claims::{ClaimKind, ContainerClaim};
use fhrd::repo::cold;
use fhrd::repo::container::parse_name;
use fhrd::repo::heal::{Healable, heal};
use fhrd::repo::marks::{BadParts, Mark, MarkKind, Marks, Quarantine};
use fhrd::repo::overwritten::overwritten;
use fhrd::repo::parity;
use fhrd::repo::snapshot;
use fhrd::repo::snapshot_listing;
use fhrd::repo::sweep::sweep;
use fhrd::store::{
    BlobKind, BlobName, BlobPrefix, Durable, FaultyStore, InjectedFault, MemoryStore, ObservedStore, ParityShare,
    Store, StoreCall, StoreObserver,
};

use crate::cold::{freeze, is_data};
use crate::flips::{back_up, config, run_check};
use crate::input::write;
use crate::interleavings::scene::no_grace;
use crate::parity::{lost_files, open, share, unlock};
use crate::trees::Random;

pub fn names(store: &MemoryStore, kind: BlobKind) -> Vec<BlobName> {
    store.list(kind.into()).unwrap().into_iter().map(|blob| blob.name).collect()
}

pub fn parity_of(name: &BlobName) -> BlobName {
    BlobName::parity_of(&name.hash().unwrap())
}

/// A repository with parity and two snapshots, and the source of the second one.
pub fn scene(is_encrypted: bool) -> (Arc<MemoryStore>, tempfile::TempDir, [String; 2]) {
    let (store, config) = (Arc::new(MemoryStore::new()), RepositoryConfig::default());
    let repository = match is_encrypted {
        true => Repository::init_encrypted(store.clone(), &config, None, &unlock(), "test").unwrap(),
        false => Repository::init(store.clone(), &config).unwrap(),
    };
    parity::set(&repository, share()).unwrap();
    let (source, mut random) = (tempfile::tempdir().unwrap(), Random(6));
    write(source.path().join("first"), &random.bytes(3000));
    let first = back_up(&repository, source.path());
    write(source.path().join("second"), &random.bytes(50_000));
    let second = back_up(&repository, source.path());
    (store, source, [first, second])
}

#[test]
fn the_only_bytes_of_another_short_blob_are_not_overwritten() {
    for is_encrypted in [false, true] {
        for kind in [BlobKind::Snapshot, BlobKind::Segment] {
            for has_parity in [true, false] {
                if kind == BlobKind::Segment && !has_parity {
                    continue;
                }
                let what = format!("{kind}, encrypted: {is_encrypted}, parity: {has_parity}");
                let (store, source, [_, second]) = scene(is_encrypted);
                let (first, moved) = match kind {
                    BlobKind::Snapshot => {
                        let all = names(&store, kind);
                        let is_second = |name: &&BlobName| name.to_string().contains(second.as_str());
                        let moved = all.iter().find(is_second).unwrap().clone();
                        (all.into_iter().find(|name| *name != moved).unwrap(), moved)
                    }
                    _ => {
                        let all = names(&store, kind);
                        (all[0].clone(), all[1].clone())
                    }
                };
                // `mv snapshots/SECOND snapshots/FIRST`
                let (right, bytes) = (store.get(&first, 1 << 20).unwrap(), store.get(&moved, 1 << 20).unwrap());
                store.replace(&first, &bytes);
                store.delete(&moved, Durable::OnReturn).unwrap();
                if !has_parity {
                    store.delete(&parity_of(&moved), Durable::OnReturn).unwrap();
                }
                let repository = open(&store);
                let report = run_check(&repository);
                let healed = heal(&repository, &report.healable).unwrap();
                assert!(store.get(&first, 1 << 20).unwrap() == bytes, "{what}: {healed:#?}");
                let is_named = |text: &String| text.contains(moved.as_str()) && text.contains(first.as_str());
                assert!(healed.left.iter().any(is_named), "{what}: {healed:#?}");
                // Once they are moved back, the other one heals.
                store.replace(&moved, &bytes);
                let repository = open(&store);
                let report = run_check(&repository);
                let healed = heal(&repository, &report.healable).unwrap();
                assert!(healed.left.is_empty(), "{what}: {healed:#?}");
                assert!(store.get(&first, 1 << 20).unwrap() == right, "{what}");
                assert_eq!(lost_files(&open(&store), &second, source.path(), &what), [""; 0], "{what}");
            }
        }
    }
}

#[test]
fn snapshots_that_are_exchanged_heal() {
    let (store, source, [first, second]) = scene(false);
    let all = names(&store, BlobKind::Snapshot);
    let right = [0, 1].map(|at| store.get(&all[at], 1 << 20).unwrap());
    store.replace(&all[0], &right[1]);
    store.replace(&all[1], &right[0]);
    let repository = open(&store);
    let report = run_check(&repository);
    let healed = heal(&repository, &report.healable).unwrap();
    assert!(healed.left.is_empty(), "{healed:#?}");
    assert!([0, 1].map(|at| store.get(&all[at], 1 << 20).unwrap()) == right);
    assert_eq!(lost_files(&open(&store), &second, source.path(), &first), [""; 0]);
}

#[test]
fn the_bytes_of_a_container_under_another_name_are_overwritten() {
    let (store, source, [_, second]) = scene(false);
    let snapshot = names(&store, BlobKind::Snapshot).swap_remove(0);
    let right = store.get(&snapshot, 1 << 20).unwrap();
    // `cp containers/…/X snapshots/FIRST`
    store.replace(&snapshot, &store.get(&names(&store, BlobKind::Container)[0], 1 << 30).unwrap());
    let repository = open(&store);
    let report = run_check(&repository);
    let healed = heal(&repository, &report.healable).unwrap();
    assert!(healed.left.is_empty() && store.get(&snapshot, 1 << 20).unwrap() == right, "{healed:#?}");
    assert_eq!(lost_files(&open(&store), &second, source.path(), "container"), [""; 0]);
}

#[test]
fn bytes_that_may_be_those_of_a_container_in_cold_storage_are_not_overwritten() {
    let (store, _source, _) = scene(false);
    cold::set(&open(&store), true).unwrap();
    cold::add(&open(&store), &Default::default(), &AtomicBool::new(false)).unwrap();
    let snapshot = names(&store, BlobKind::Snapshot).swap_remove(0);
    let data = names(&store, BlobKind::Container).into_iter().find(|name| is_data(&store, name)).unwrap();
    let (right, bytes) = (store.get(&snapshot, 1 << 20).unwrap(), store.get(&data, 1 << 30).unwrap());
    store.replace(&snapshot, &bytes);
    let (frozen, freezer) = freeze(&store);
    let healed = |expected: &[u8]| {
        let repository = Repository::open(frozen.clone()).unwrap();
        assert!(repository.parity.other_copy(&snapshot).is_there);
        let healed = heal(&repository, &Healable::default()).unwrap();
        assert!(store.get(&snapshot, 1 << 30).unwrap() == expected, "{healed:#?}");
        healed.left
    };
    // Nobody has read the container.
    assert!(matches!(&healed(&bytes)[..], [text] if text.contains(data.as_str())));
    freezer.is_thawed.store(true, Ordering::SeqCst);
    assert!(healed(&right).is_empty());
}

#[test]
fn short_blobs_heal_while_a_container_cannot_be_deleted() {
    let (store, _source, _) = scene(false);
    let id = parse_name(&names(&store, BlobKind::Container)[0]).unwrap();
    // As a prune leaves it that an Object Lock stops.
    ContainerClaim::put(store.as_ref(), ClaimKind::Pending, &open(&store).salts.draw().unwrap(), &[id].into()).unwrap();
    for kind in [BlobKind::Snapshot, BlobKind::Segment] {
        let name = names(&store, kind).swap_remove(0);
        let right = store.get(&name, 1 << 20).unwrap();
        let mut bytes = right.clone();
        bytes[20] ^= 1;
        store.replace(&name, &bytes);
        let repository = open(&store);
        let healed = heal(&repository, &run_check(&repository).healable).unwrap();
        assert!(healed.left.is_empty() && store.get(&name, 1 << 20).unwrap() == right, "{name}: {healed:#?}");
    }
}

/// Moves the blob of the second snapshot to the name of the first one. Returns both names, the first one's first, and
/// the bytes.
pub fn move_second(store: &MemoryStore, second: &str) -> ([BlobName; 2], Vec<u8>) {
    let all = names(store, BlobKind::Snapshot);
    let (moved, first): (Vec<_>, Vec<_>) = all.into_iter().partition(|name| name.to_string().contains(second));
    let bytes = store.get(&moved[0], 1 << 20).unwrap();
    store.replace(&first[0], &bytes);
    store.delete(&moved[0], Durable::OnReturn).unwrap();
    ([first[0].clone(), moved[0].clone()], bytes)
}

#[test]
fn a_snapshot_that_lies_under_the_name_of_another_is_not_forgotten() {
    for is_encrypted in [false, true] {
        let (store, source, [_, second]) = scene(is_encrypted);
        let ([first, moved], bytes) = move_second(&store, &second);
        let before = store.list(BlobPrefix::All).unwrap().len();
        let refused = prune(&open(&store), &no_grace(), &Arc::default());
        assert!(refused.as_ref().is_err_and(|error| error.to_string().contains(moved.as_str())), "{refused:?}");
        let repository = open(&store);
        let (listed, damaged) = snapshot::list(repository.store.as_ref()).unwrap();
        assert!(listed.len() == 1 && damaged.is_empty(), "readers get the first one's bytes");
        let refused = forget(&repository, &[listed[0].id]);
        assert!(refused.as_ref().is_err_and(|error| error.to_string().contains(moved.as_str())), "{refused:?}");
        assert_eq!(store.list(BlobPrefix::All).unwrap().len(), before);
        // Moved back, the first one may be forgotten.
        store.replace(&moved, &bytes);
        let repository = open(&store);
        let listed = snapshot::list(repository.store.as_ref()).unwrap().0;
        let id = listed.iter().find(|named| first.contains(&named.id.to_string())).unwrap().id;
        forget(&repository, &[id]).unwrap();
        prune(&open(&store), &no_grace(), &Arc::default()).unwrap();
        assert_eq!(lost_files(&open(&store), &second, source.path(), "forgotten"), [""; 0]);
    }
}

#[test]
fn damaged_bytes_of_a_missing_snapshot_are_not_overwritten() {
    for is_encrypted in [false, true] {
        let (store, source, [_, second]) = scene(is_encrypted);
        let ([first, moved], mut bytes) = move_second(&store, &second);
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        store.replace(&first, &bytes);
        let repository = open(&store);
        let report = run_check(&repository);
        let healed = heal(&repository, &report.healable).unwrap();
        assert!(store.get(&first, 1 << 20).unwrap() == bytes, "{healed:#?}");
        assert!(healed.left.iter().any(|text| text.contains(moved.as_str())), "{healed:#?}");
        store.replace(&moved, &bytes);
        let repository = open(&store);
        let report = run_check(&repository);
        let healed = heal(&repository, &report.healable).unwrap();
        assert!(healed.left.is_empty() && healed.short_blobs == 2, "{healed:#?}");
        assert_eq!(lost_files(&open(&store), &second, source.path(), "healed"), [""; 0]);
    }
}

#[test]
fn what_a_power_cut_leaves_is_nobodys_whatever_parity_is_left() {
    for is_encrypted in [false, true] {
        let (store, _source, [_, second]) = scene(is_encrypted);
        // Its parity is left of a snapshot that is gone, and of a short segment.
        let mut all = names(&store, BlobKind::Snapshot);
        all.sort_by_key(|name| name.to_string().contains(&second));
        let [name, gone] = <[BlobName; 2]>::try_from(all).unwrap();
        store.delete(&gone, Durable::OnReturn).unwrap();
        store.delete(&names(&store, BlobKind::Segment)[0], Durable::OnReturn).unwrap();
        let right = store.get(&name, 1 << 20).unwrap();
        let (noise, len) = (Random(3).bytes(right.len()), right.len());
        for bytes in [Vec::new(), vec![0; len], vec![0; len * 2], noise, right[..len / 2].to_vec()] {
            store.replace(&name, &bytes);
            let repository = open(&store);
            let healed = heal(&repository, &run_check(&repository).healable).unwrap();
            assert!(store.get(&name, 1 << 20).unwrap() == right, "{} bytes: {healed:#?}", bytes.len());
        }
    }
}

#[test]
fn a_mark_that_somebody_has_healed_stops_no_prune() {
    let (store, _source, _) = scene(false);
    let mut bad = Quarantine::default();
    bad.insert(parse_name(&names(&store, BlobKind::Container)[0]).unwrap(), &BadParts::Whole);
    Mark::new(MarkKind::Quarantine(bad), "a test").save(open(&store).store.as_ref()).unwrap();
    let mark = names(&store, BlobKind::OptionalMark).swap_remove(0);
    assert!(overwritten(&open(&store), &mark).unwrap().is_none());
}

#[test]
fn the_only_bytes_of_a_container_are_named_as_a_container() {
    for is_encrypted in [false, true] {
        let (store, _source, _) = scene(is_encrypted);
        let snapshot = names(&store, BlobKind::Snapshot).swap_remove(0);
        let container = names(&store, BlobKind::Container).swap_remove(0);
        // `mv containers/…/X snapshots/FIRST`
        let (right, bytes) = (store.get(&snapshot, 1 << 20).unwrap(), store.get(&container, 1 << 30).unwrap());
        store.replace(&snapshot, &bytes);
        store.delete(&container, Durable::OnReturn).unwrap();
        let repository = open(&store);
        let report = run_check(&repository);
        let healed = heal(&repository, &report.healable).unwrap();
        assert!(store.get(&snapshot, 1 << 30).unwrap() == bytes, "{healed:#?}");
        let is_named = |text: &String| text.contains(&format!("put it under {container}"));
        assert!(healed.left.iter().any(is_named), "{healed:#?}");
        // Where they belong, all heals.
        store.replace(&container, &bytes);
        let repository = open(&store);
        let report = run_check(&repository);
        let healed = heal(&repository, &report.healable).unwrap();
        assert!(healed.left.is_empty() && store.get(&snapshot, 1 << 20).unwrap() == right, "{healed:#?}");
        // Somebody puts them below `snapshots`, under the right hash.
        let wrong = BlobName::hashed(BlobKind::Snapshot, &container.hash().unwrap());
        store.replace(&wrong, &bytes);
        store.delete(&container, Durable::OnReturn).unwrap();
        let request = SnapshotRepair { forget: true, ..SnapshotRepair::default() };
        let _ = repair_snapshots(&open(&store), &config(), request, &Arc::default());
        assert!(store.get(&wrong, 1 << 30).unwrap() == bytes);
    }
}

#[test]
fn a_repair_leaves_the_only_bytes_of_another_snapshot() {
    for has_copy in [true, false] {
        let (store, _source, [_, second]) = scene(false);
        let cached = snapshot_listing::list(&open(&store)).unwrap();
        assert_eq!(cached.snapshots.len(), 2);
        let ([first, moved], bytes) = move_second(&store, &second);
        for kind in [BlobKind::Parity, BlobKind::Bundle, BlobKind::RequiredMark] {
            names(&store, kind).iter().for_each(|name| store.delete(name, Durable::OnReturn).unwrap());
        }
        // This machine has copies of both, or none.
        let repository = if has_copy { Repository::open(store.clone()).unwrap() } else { open(&store) };
        let forget = SnapshotRepair { forget: true, ..SnapshotRepair::default() };
        let repaired = repair_snapshots(&repository, &config(), forget, &Arc::default());
        assert!(store.get(&first, 1 << 20).unwrap() == bytes, "{has_copy}: {repaired:#?}");
        let repaired = repaired.unwrap();
        assert!(repaired.unreadable.iter().any(|text| text.contains(moved.as_str())), "{has_copy}: {repaired:#?}");
    }
}

#[test]
fn a_set_of_parity_that_is_stopped_at_any_call_leaves_no_mark_without_parity() {
    let (store, _source, _) = scene(false);
    for operation in 0.. {
        let mut whole = true;
        for after in [None, share(), ParityShare::new(700)] {
            for took_effect in [false, true] {
                let copy = Arc::new(MemoryStore::new());
                for blob in store.list(BlobPrefix::All).unwrap() {
                    copy.replace(&blob.name, &store.get(&blob.name, 1 << 30).unwrap());
                }
                let fault = InjectedFault::PowerCut { operation, took_effect };
                let faulty = Arc::new(FaultyStore::new(copy.clone(), fault));
                let done = Repository::open(faulty).and_then(|repository| parity::set(&repository, after));
                whole &= done.is_ok();
                for mark in names(&copy, BlobKind::RequiredMark) {
                    assert!(copy.head(&parity_of(&mark)).unwrap().is_some(), "{operation}, {after:?}: {done:?}");
                }
            }
        }
        if whole {
            assert!(operation > 2);
            return;
        }
    }
}

#[test]
fn while_parity_is_away_no_other_share_is_set() {
    let (store, _source, _) = scene(false);
    for name in names(&store, BlobKind::Parity) {
        store.delete(&name, Durable::OnReturn).unwrap();
    }
    let marks = names(&store, BlobKind::RequiredMark);
    let refused = parity::set(&open(&store), ParityShare::new(700));
    assert!(matches!(refused, Err(Error::Unreadable { .. })), "{refused:?}");
    assert_eq!(names(&store, BlobKind::RequiredMark), marks);
    assert!(names(&store, BlobKind::Parity).is_empty());
    parity::add(&open(&store), &Default::default(), &AtomicBool::new(false)).unwrap();
    parity::set(&open(&store), ParityShare::new(700)).unwrap();
}

/// Puts a required mark, and its parity long before, while a sweep deletes that.
struct MarkWriter {
    store: Arc<MemoryStore>,
    mark: (BlobName, Vec<u8>),
    is_done: AtomicBool,
}

impl StoreObserver for MarkWriter {
    fn before(&self, call: StoreCall, name: &str) -> fhrd::Result<u64> {
        if call == StoreCall::Delete && parity_of(&self.mark.0) == name {
            self.store.replace(&self.mark.0, &self.mark.1);
            self.is_done.store(true, Ordering::SeqCst);
        }
        Ok(0)
    }
}

#[test]
fn a_sweep_leaves_no_mark_without_parity_that_is_put_meanwhile() {
    let (store, _source, _) = scene(false);
    Mark::new(MarkKind::Cold, "a test").save(open(&store).store.as_ref()).unwrap();
    let is_cold = |name: &BlobName| Marks::read(&*store).unwrap().cold_names.contains(name);
    let mark = names(&store, BlobKind::RequiredMark).into_iter().find(is_cold).unwrap();
    let bytes = store.get(&mark, 1 << 20).unwrap();
    assert!(store.head(&parity_of(&mark)).unwrap().is_some());
    // The writer has put the parity only.
    store.delete(&mark, Durable::OnReturn).unwrap();
    let observer = MarkWriter { store: store.clone(), mark: (mark.clone(), bytes), is_done: AtomicBool::new(false) };
    let observed = Arc::new(ObservedStore::with(store.clone(), observer));
    let swept = sweep(&Repository::open(observed.clone()).unwrap(), &AtomicBool::new(false)).unwrap();
    assert_eq!(swept.parity, 1);
    assert!(store.head(&mark).unwrap().is_some());
    assert!(store.head(&parity_of(&mark)).unwrap().is_some(), "the sweep makes it again");
}

#[test]
fn what_a_footer_says_takes_no_more_memory_than_a_heal() {
    let (store, _source, _) = scene(false);
    let repository = open(&store);
    let all = names(&store, BlobKind::Container);
    let id = all.iter().filter_map(|name| parse_name(name)).next().unwrap();
    cold::set(&repository, true).unwrap();
    cold::add(&repository, &Default::default(), &AtomicBool::new(false)).unwrap();
    assert!(cold::rebuilt_container(&repository, &id).unwrap().is_some());
    repository.parity.set_memory(1000);
    let refused = cold::rebuilt_container(&repository, &id);
    assert!(matches!(refused, Err(Error::Usage(_))), "{refused:?}");
}
