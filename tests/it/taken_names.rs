//! Deletions and heals of blobs under whose names the bytes of others lie, and what a heal of many blobs asks for.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use fhrd::keep::{TagChange, forget, prune, tag};
use fhrd::repair::index::repair_index;
use fhrd::repo::Repository;
use fhrd::repo::bundle;
use fhrd::repo::container::parse_name;
use fhrd::repo::heal::{Healable, heal};
use fhrd::repo::marks::{BadParts, Mark, MarkKind, Quarantine};
use fhrd::repo::snapshot;
use fhrd::repo::snapshot_listing::maintain_bundles;
use fhrd::repo::sweep::sweep;
use fhrd::store::{BlobKind, BlobName, Durable, ObservedStore, Store, StoreCall, StoreObserver};

use crate::far::scene::Place;
use crate::flips::{back_up, run_check};
use crate::hooked::HookedStore;
use crate::input::write;
use crate::interleavings::scene::no_grace;
use crate::overwritten::{move_second, names, parity_of, scene};
use crate::parity::{lost_files, open};
use crate::trees::Random;

#[test]
fn a_snapshot_that_is_not_forgotten_is_in_the_way_of_no_other() {
    let (store, source, [_, second]) = scene(false);
    write(source.path().join("third"), b"more");
    let third = back_up(&open(&store), source.path());
    let [moved, first] = [true, false].map(|is_second| {
        let of = |name: &BlobName| !name.contains(&third) && name.contains(&second) == is_second;
        names(&store, BlobKind::Snapshot).into_iter().find(of).unwrap()
    });
    store.replace(&first, &store.get(&moved, 1 << 20).unwrap());
    store.delete(&moved, Durable::OnReturn).unwrap();
    let repository = open(&store);
    let mut ids: Vec<_> = snapshot::list(repository.store.as_ref()).unwrap().0.iter().map(|named| named.id).collect();
    ids.sort_by_key(|id| !first.contains(&id.to_string()));
    assert_eq!(ids.len(), 2);
    let refused = forget(&repository, &ids);
    assert!(refused.as_ref().is_err_and(|error| error.to_string().contains(moved.as_str())), "{refused:?}");
    assert_eq!(names(&store, BlobKind::Snapshot), [first], "the third one is forgotten");
}

#[test]
fn a_segment_that_others_replace_stays_if_a_snapshot_lies_there() {
    for is_encrypted in [false, true] {
        for is_healed in [false, true] {
            let (store, source, [_, second]) = scene(is_encrypted);
            let moved = names(&store, BlobKind::Snapshot).into_iter().find(|name| name.contains(&second)).unwrap();
            let segment = names(&store, BlobKind::Segment).swap_remove(0);
            // `mv snapshots/SECOND segments/ONE`
            let bytes = store.get(&moved, 1 << 20).unwrap();
            store.replace(&segment, &bytes);
            store.delete(&moved, Durable::OnReturn).unwrap();
            if !is_healed {
                store.delete(&parity_of(&segment), Durable::OnReturn).unwrap();
            }
            let what = format!("encrypted: {is_encrypted}, healed: {is_healed}");
            let repository = open(&store);
            repair_index(&repository, &Arc::default()).unwrap();
            assert!(store.get(&segment, 1 << 20).unwrap() == bytes, "{what}");
            write(source.path().join("third"), b"more");
            back_up(&open(&store), source.path());
            assert!(store.get(&segment, 1 << 20).unwrap() == bytes, "{what}");
            store.replace(&moved, &bytes);
            repair_index(&open(&store), &Arc::default()).unwrap();
            assert!(store.get(&segment, 1 << 20).map_or(true, |now| now != bytes), "{what}: moved back, it may go");
            std::fs::remove_file(source.path().join("third")).unwrap();
            assert_eq!(lost_files(&open(&store), &second, source.path(), &what), [""; 0], "{what}");
        }
    }
}

#[test]
fn a_prune_and_a_forget_look_for_damaged_bytes_and_under_names_that_nobody_has_read() {
    for is_encrypted in [false, true] {
        let (store, source, [_, second]) = scene(is_encrypted);
        let ([first, moved], bytes) = move_second(&store, &second);
        let id = snapshot::parse_name(&first).unwrap();
        let what = |refused: fhrd::Result<()>| {
            assert!(refused.as_ref().is_err_and(|error| error.to_string().contains(moved.as_str())), "{refused:?}");
        };
        // Nobody has read what is under the name.
        what(forget(&open(&store), &[id]));
        let mut damaged = bytes.clone();
        damaged[bytes.len() / 2] ^= 1;
        store.replace(&first, &damaged);
        what(forget(&open(&store), &[id]));
        what(prune(&open(&store), &no_grace(), &Arc::default()).map(drop));
        assert!(store.get(&first, 1 << 20).unwrap() == damaged);
        store.replace(&moved, &damaged);
        forget(&open(&store), &[id]).unwrap();
        prune(&open(&store), &no_grace(), &Arc::default()).unwrap();
        assert_eq!(lost_files(&open(&store), &second, source.path(), "moved back"), [""; 0]);
    }
}

#[test]
fn a_prune_beside_copies_on_its_machine_looks_at_what_the_store_has() {
    for is_encrypted in [false, true] {
        let (here, source, mut random) = (Place::new(is_encrypted), tempfile::tempdir().unwrap(), Random(8));
        let there = here.other();
        // Two snapshots of one length, of which one is unknown here.
        let mut known = HashMap::new();
        let (first, moved) = loop {
            assert!(known.len() < 40, "all snapshots have different lengths");
            let names_of = |place: &Place| {
                write(source.path().join("file"), &random.bytes(3000));
                let before = names(&here.memory, BlobKind::Snapshot);
                place.back_up(source.path());
                names(&here.memory, BlobKind::Snapshot).into_iter().find(|name| !before.contains(name)).unwrap()
            };
            let len = |name: &BlobName| here.memory.len_of(name).unwrap().unwrap();
            let [one, other] = [&here, &there].map(names_of);
            let one_len = len(&one);
            known.insert(one_len, one);
            if let Some(first) = known.get(&len(&other)) {
                break (first.clone(), other);
            }
        };
        assert!(snapshot::list(here.open().0.store.as_ref()).unwrap().1.is_empty());
        let bytes = here.memory.get(&moved, 1 << 20).unwrap();
        here.memory.replace(&first, &bytes);
        here.memory.delete(&moved, Durable::OnReturn).unwrap();
        let refused = prune(&here.open().0, &no_grace(), &Arc::default());
        assert!(refused.as_ref().is_err_and(|error| error.to_string().contains(moved.as_str())), "{refused:?}");
        here.memory.replace(&moved, &bytes);
        let id = snapshot::parse_name(&moved).unwrap().to_string();
        prune(&here.open().0, &no_grace(), &Arc::default()).unwrap();
        there.assert_restores(&id, source.path());
    }
}

#[test]
fn a_snapshot_is_deleted_unseen_by_no_verb() {
    let (store, _source, [first, second]) = scene(false);
    let named = snapshot::list(open(&store).store.as_ref()).unwrap().0;
    let named = named.into_iter().find(|named| named.id.to_string() == first).unwrap();
    let ([name, moved], bytes) = move_second(&store, &second);
    for has_parity in [true, false] {
        if !has_parity {
            names(&store, BlobKind::Parity).iter().for_each(|name| store.delete(name, Durable::OnReturn).unwrap());
        }
        let change = TagChange { add: vec!["new".into()], ..TagChange::default() };
        let refused = tag(&open(&store), &named, &change);
        assert!(refused.as_ref().is_err_and(|error| error.to_string().contains(moved.as_str())), "{refused:?}");
        assert!(store.get(&name, 1 << 20).unwrap() == bytes);
    }
}

#[test]
fn damaged_blobs_that_are_only_copies_stay_if_a_snapshot_lies_there() {
    for kind in [BlobKind::OptionalMark, BlobKind::Bundle] {
        let (store, source, [_, second]) = scene(false);
        for number in 0..3u8 {
            write(source.path().join(format!("more {number}")), &[number; 100]);
            back_up(&open(&store), source.path());
        }
        let repository = open(&store);
        maintain_bundles(&repository, 1).unwrap();
        let mut bad = Quarantine::default();
        bad.insert(parse_name(&names(&store, BlobKind::Container)[0]).unwrap(), &BadParts::Whole);
        Mark::new(MarkKind::Quarantine(bad), "a test").save(repository.store.as_ref()).unwrap();
        let name = names(&store, kind).swap_remove(0);
        let moved = names(&store, BlobKind::Snapshot).into_iter().find(|name| name.contains(&second)).unwrap();
        let bytes = store.get(&moved, 1 << 20).unwrap();
        store.replace(&name, &bytes);
        store.delete(&moved, Durable::OnReturn).unwrap();
        names(&store, BlobKind::Parity).iter().for_each(|name| store.delete(name, Durable::OnReturn).unwrap());
        let repository = open(&store);
        run_check(&repository);
        bundle::delete_damaged_bundles(&repository, u64::MAX, 0).unwrap();
        maintain_bundles(&repository, 1).unwrap();
        assert!(store.get(&name, 1 << 20).unwrap() == bytes, "{kind}");
        store.replace(&moved, &bytes);
        let repository = open(&store);
        run_check(&repository);
        bundle::delete_damaged_bundles(&repository, u64::MAX, 0).unwrap();
        assert!(store.head(&name).unwrap().is_none(), "{kind}: moved back, it goes");
    }
}

#[test]
fn a_deletion_looks_also_if_the_right_bytes_cannot_be_had_again() {
    let (store, _source, [_, second]) = scene(false);
    let segment = names(&store, BlobKind::Segment).swap_remove(0);
    let moved = names(&store, BlobKind::Snapshot).into_iter().find(|name| name.contains(&second)).unwrap();
    let bytes = store.get(&moved, 1 << 20).unwrap();
    store.replace(&segment, &bytes);
    store.delete(&moved, Durable::OnReturn).unwrap();
    let repository = open(&store);
    assert!(repository.parity.other_copy(&segment).is_there);
    // The right bytes are evicted, and what gave them is gone.
    repository.parity.set_memory(0);
    store.delete(&parity_of(&segment), Durable::OnReturn).unwrap();
    let refused = repository.store.delete(&segment, Durable::OnReturn);
    let hash = moved.split('/').next_back().unwrap();
    assert!(refused.as_ref().is_err_and(|error| error.to_string().contains(hash)), "{refused:?}");
    assert!(store.get(&segment, 1 << 20).unwrap() == bytes);
}

#[test]
fn a_container_that_is_deleted_meanwhile_stops_no_heal_of_others() {
    let (store, _source, _) = scene(false);
    let flip = |name: &BlobName| {
        let right = store.get(name, 1 << 30).unwrap();
        let mut bytes = right.clone();
        bytes[200] ^= 1;
        store.replace(name, &bytes);
        right
    };
    let containers = names(&store, BlobKind::Container);
    let snapshot = names(&store, BlobKind::Snapshot).swap_remove(0);
    containers.iter().for_each(|name| drop(flip(name)));
    let right = flip(&snapshot);
    let repository = open(&store);
    containers.iter().chain([&snapshot]).for_each(|name| assert!(repository.parity.other_copy(name).is_there));
    // As a prune of another process.
    store.delete(&containers[0], Durable::OnReturn).unwrap();
    let healed = heal(&repository, &Healable::default()).unwrap();
    assert!(healed.left.is_empty(), "{healed:#?}");
    assert_eq!((healed.containers, healed.short_blobs), (containers.len() as u64 - 1, 1));
    assert!(store.get(&snapshot, 1 << 20).unwrap() == right && store.head(&containers[0]).unwrap().is_none());
}

#[test]
fn a_sweep_leaves_the_parity_of_a_snapshot_that_a_listing_lacks() {
    let (store, _source, _) = scene(false);
    let snapshot = names(&store, BlobKind::Snapshot).swap_remove(0);
    let hidden = snapshot.clone();
    let listing = HookedStore::of(store.clone()).listing(move |_, mut listed| {
        listed.retain(|blob| blob.name != hidden);
        listed
    });
    let swept = sweep(&listing.open(), &AtomicBool::new(false)).unwrap();
    assert_eq!(swept.parity, 0);
    assert!(store.head(&parity_of(&snapshot)).unwrap().is_some());
}

/// Counts lists, and reads of parity.
struct ParityReads(Arc<[AtomicUsize; 2]>);

impl StoreObserver for ParityReads {
    fn before(&self, call: StoreCall, name: &str) -> fhrd::Result<u64> {
        match call {
            StoreCall::List => drop(self.0[0].fetch_add(1, Ordering::SeqCst)),
            StoreCall::Get | StoreCall::GetRange if name.starts_with("parity/") => {
                self.0[1].fetch_add(1, Ordering::SeqCst);
            }
            _ => {}
        }
        Ok(0)
    }
}

#[test]
fn a_heal_of_many_snapshots_looks_once_for_what_is_missing() {
    let counts = [1, 6].map(|damaged| {
        let (store, source, _) = scene(false);
        for number in 0..5u8 {
            // The first container is longer than any of which a short blob may be a part.
            let more = Random(9).bytes(if number == 0 { 500_000 } else { 100 });
            write(source.path().join(format!("more {number}")), &more);
            back_up(&open(&store), source.path());
        }
        // The parity of a container that a prune has deleted is far too long for a snapshot.
        let all = names(&store, BlobKind::Container).into_iter();
        let long = all.max_by_key(|name| store.get(name, 1 << 30).unwrap().len()).unwrap();
        store.delete(&long, Durable::OnReturn).unwrap();
        let snapshots = names(&store, BlobKind::Snapshot);
        for name in snapshots.iter().take(damaged) {
            let mut bytes = store.get(name, 1 << 20).unwrap();
            bytes[20] ^= 1;
            store.replace(name, &bytes);
        }
        let counts = Arc::<[AtomicUsize; 2]>::default();
        let observed = Arc::new(ObservedStore::with(store.clone(), ParityReads(counts.clone())));
        let repository = Repository::open(observed).unwrap();
        snapshots.iter().take(damaged).for_each(|name| assert!(repository.parity.other_copy(name).is_there));
        let before = [0, 1].map(|at| counts[at].swap(0, Ordering::SeqCst));
        let healed = heal(&repository, &Healable::default()).unwrap();
        assert_eq!(healed.short_blobs, damaged as u64, "{healed:#?}");
        assert!(before[1] > 0);
        [0, 1].map(|at| counts[at].load(Ordering::SeqCst))
    });
    assert_eq!(counts[0], counts[1], "lists, and reads of parity");
}
