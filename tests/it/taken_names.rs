//! Deletions and heals of blobs under whose names the bytes of others lie, and what a heal of many blobs asks for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fhrd::keep::forget;
use fhrd::repair::index::repair_index;
use fhrd::repo::Repository;
use fhrd::repo::heal::{Healable, heal};
use fhrd::repo::snapshot;
use fhrd::store::{BlobKind, BlobName, Durable, ObservedStore, Store, StoreCall, StoreObserver};

use crate::flips::back_up;
use crate::input::write;
use crate::overwritten::{names, parity_of, scene};
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
