//! What bundles save, what damage to them costs, and how many there are.

use super::*;
use crate::store::{CountingStore, Durable, FaultyStore, InjectedFault, MemoryStore, StoreExt};

fn maintained(store: &dyn Store, loose_min: usize) -> Result<usize> {
    let delete = |name: &BlobName| store.delete(name, Durable::OnReturn).map(|()| true);
    maintain_with(store, loose_min, |_| Vec::new(), delete)
}

fn snapshot(time_ns: i64) -> Snapshot {
    Snapshot { time_ns, host: "host".into(), ..Snapshot::default() }
}

fn save(store: &dyn Store, times: std::ops::Range<i64>) -> Vec<SnapshotId> {
    times.map(|time| snapshot(time).save(store).unwrap()).collect()
}

fn bundles(store: &dyn Store) -> Vec<BlobName> {
    store.list(BlobKind::Bundle.into()).unwrap().into_iter().map(|blob| blob.name).collect()
}

/// The times of the wanted snapshots that bundles have, sorted.
fn found(store: &dyn Store, ids: &[SnapshotId]) -> Vec<i64> {
    let mut wanted: HashSet<SnapshotId> = ids.iter().copied().collect();
    let mut times = Vec::new();
    find(store, &mut wanted, |named, blob, len| {
        assert_eq!((named.id.0, len), (*blake3::hash(blob).as_bytes(), blob.len() as u64));
        times.push(named.snapshot.time_ns);
    })
    .unwrap();
    assert_eq!(times.len() + wanted.len(), ids.len());
    times.sort_unstable();
    times
}

#[test]
fn few_bundles_have_nearly_all_snapshots_and_little_is_written_twice() {
    let store = CountingStore::new(MemoryStore::new());
    let mut ids = Vec::new();
    let mut most = 0;
    for count in 1..=3000i64 {
        ids.extend(save(&store, count - 1..count));
        if (count as usize).is_multiple_of(LOOSE_MIN) {
            maintained(&store, LOOSE_MIN / 2).unwrap();
            most = most.max(bundles(&store).len());
            assert_eq!(found(&store, &ids), (0..count).collect::<Vec<_>>());
        }
    }
    // log2(3000 / 32) is 6.6.
    assert!(most <= 8, "{most} bundles");
    let snapshots: u64 = store.list(BlobKind::Snapshot.into()).unwrap().iter().map(|blob| blob.len).sum();
    let written = store.counts().bytes_written - snapshots;
    assert!(written < 8 * snapshots, "{written} bytes for {snapshots}");
}

#[test]
fn fewer_loose_snapshots_are_left_alone_and_a_bundle_of_deleted_ones_goes() {
    let store = MemoryStore::new();
    let ids = save(&store, 0..31);
    assert_eq!(maintained(&store, 32).unwrap(), 0);
    assert_eq!(bundles(&store).len(), 0);
    assert_eq!(maintained(&store, 31).unwrap(), 31);
    let first = bundles(&store);
    for id in &ids[..15] {
        snapshot::delete(&store, id).unwrap();
    }
    assert_eq!((maintained(&store, 32).unwrap(), bundles(&store)), (0, first.clone()));
    for id in &ids[15..20] {
        snapshot::delete(&store, id).unwrap();
    }
    assert_eq!(maintained(&store, 32).unwrap(), 11);
    assert!(bundles(&store).len() == 1 && bundles(&store) != first);
    assert_eq!(found(&store, &ids), (20..31).collect::<Vec<_>>());
    for id in &ids[20..] {
        snapshot::delete(&store, id).unwrap();
    }
    assert_eq!((maintained(&store, 32).unwrap(), bundles(&store).len()), (0, 0));
}

#[test]
fn a_failure_at_any_call_loses_no_snapshot_and_is_made_good() {
    for took_effect in [false, true] {
        for operation in 0.. {
            let store = MemoryStore::new();
            let mut ids = save(&store, 0..40);
            maintained(&store, 32).unwrap();
            ids.extend(save(&store, 40..100));
            let store = std::sync::Arc::new(store);
            let faulty = FaultyStore::new(store.clone(), InjectedFault::PowerCut { operation, took_effect });
            let result = maintained(&faulty, 32);
            assert!(!found(store.as_ref(), &ids).is_empty());
            maintained(store.as_ref(), 1).unwrap();
            assert_eq!(found(store.as_ref(), &ids), (0..100).collect::<Vec<_>>(), "operation {operation}");
            let most = if result.is_ok() { 2 } else { 1 };
            assert!(bundles(store.as_ref()).len() <= most, "operation {operation}: {:?}", bundles(store.as_ref()));
            if faulty.operations() <= operation {
                assert!(operation > 60, "{operation} operations");
                break;
            }
        }
    }
}

#[test]
fn whatever_a_bundle_holds_only_true_copies_of_wanted_snapshots_count() {
    let store = MemoryStore::new();
    let ids = save(&store, 0..12);
    maintained(&store, 1).unwrap();
    let name = bundles(&store).remove(0);
    let whole = store.get(&name, 1 << 20).unwrap();
    let mut variants: Vec<Vec<u8>> = (0..whole.len()).step_by(11).map(|len| whole[..len].to_vec()).collect();
    variants.extend((0..whole.len()).map(|at| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        bytes
    }));
    for (number, bytes) in variants.into_iter().enumerate() {
        store.replace(&name, &bytes);
        assert!(verify(&store, &name).is_err(), "variant {number}");
        assert_eq!(found(&store, &ids), [0; 0], "variant {number}");
    }
    // It is replaced.
    assert_eq!(maintained(&store, 1).unwrap(), 12);
    assert_eq!(bundles(&store), [name.as_str()]);
    assert_eq!(found(&store, &ids), (0..12).collect::<Vec<_>>());

    // Under right checksums: no map, endless counts, garbage in place of a snapshot, and other keys.
    let put = |payload: &[u8]| {
        let blob = Envelope::new(MAGIC).seal(payload);
        store.put_hashed(BlobKind::Bundle, &[&blob]).unwrap()
    };
    store.delete(&name, Durable::OnReturn).unwrap();
    let endless = [0xa1, 0x00, 0x9b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
    let nested = vec![0x81; 100_000];
    for payload in [&[][..], &[0x80], &[0xbf, 0xff], &endless, &[&[0xa1, 0x05][..], &nested].concat()] {
        let name = put(payload);
        assert!(matches!(verify(&store, &name), Err(Error::Corrupt { .. })), "{:?}", verify(&store, &name));
        assert_eq!(found(&store, &ids), [0; 0]);
        store.delete(&name, Durable::OnReturn).unwrap();
    }
    let mut encoder = Encoder::new(Vec::new());
    let other = store.get(&snapshot::blob_name(&ids[3]), 1 << 20).unwrap();
    encoder.map(2).unwrap().u8(7).unwrap().str("of a later version").unwrap();
    encoder.u8(0).unwrap().array(3).unwrap().bytes(b"garbage").unwrap().bytes(&other).unwrap().bytes(&other).unwrap();
    let name = put(encoder.writer());
    verify(&store, &name).unwrap();
    assert_eq!(found(&store, &ids), [3]);
}

#[test]
fn few_of_the_snapshots_that_only_bundles_have_are_named() {
    let store = MemoryStore::new();
    let ids = save(&store, 0..40);
    maintained(&store, 1).unwrap();
    let unlisted = |listed: &[SnapshotId], count_max| {
        let mut found = HashSet::new();
        add_unlisted(&store, &listed.iter().copied().collect(), count_max, &mut found).unwrap();
        found
    };
    assert_eq!(unlisted(&ids[..30], 100), ids[30..].iter().copied().collect());
    assert_eq!(unlisted(&ids, 100).len(), 0);
    assert_eq!(unlisted(&[], 7).len(), 7);
    // What is no snapshot is none, however much of it somebody puts there.
    put(&store, (0..500u32).map(|number| (SnapshotId([0; 32]), number.to_le_bytes().to_vec())).collect()).unwrap();
    assert_eq!(unlisted(&ids, 1000).len(), 0);
}
