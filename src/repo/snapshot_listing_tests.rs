//! The file of local snapshots: what it saves, and what damage to it costs.

use std::fs;
use std::sync::Arc;

use super::*;
use crate::store::{CountingStore, Durable, MemoryStore, StoreExt, named};

fn snapshot(time_ns: i64) -> Snapshot {
    Snapshot { time_ns, ..Snapshot::default() }
}

struct Fixture {
    store: Arc<CountingStore<MemoryStore>>,
    directory: tempfile::TempDir,
    ids: Vec<SnapshotId>,
}

impl Fixture {
    /// A store with `count` snapshots.
    fn new(count: i64) -> Self {
        let store = Arc::new(CountingStore::new(MemoryStore::new()));
        let ids = (0..count).map(|time| snapshot(time).save(store.as_ref()).unwrap()).collect();
        Fixture { store, directory: tempfile::tempdir().unwrap(), ids }
    }

    fn path(&self) -> std::path::PathBuf {
        self.directory.path().join(SNAPSHOTS_FILE)
    }

    /// The times of the snapshots, the number of damaged ones, and the number of snapshots read.
    fn listed(&self) -> (Vec<i64>, usize, u64) {
        let before = self.store.counts().gets;
        let SnapshotListing { snapshots, damaged, .. } = list_with(self.store.as_ref(), Some(self.path())).unwrap();
        let times = snapshots.iter().map(|named| named.snapshot.time_ns).collect();
        (times, damaged.len(), self.store.counts().gets - before)
    }
}

#[test]
fn a_local_snapshot_is_not_read_again() {
    let fixture = Fixture::new(40);
    assert_eq!(fixture.listed(), ((0..40).collect(), 0, 40));
    assert_eq!(fixture.listed(), ((0..40).collect(), 0, 0));
    snapshot(40).save(fixture.store.as_ref()).unwrap();
    assert_eq!(fixture.listed(), ((0..41).collect(), 0, 1));
    assert_eq!(fixture.listed(), ((0..41).collect(), 0, 0));
}

#[test]
fn only_snapshots_of_the_store_count() {
    let fixture = Fixture::new(10);
    fixture.listed();
    fixture.store.delete(&named(&format!("snapshots/{}", fixture.ids[8])), Durable::OnReturn).unwrap();
    assert_eq!(fixture.listed(), ((0..8).chain([9]).collect(), 0, 0));
    fixture.store.put_if_absent(&named(&format!("snapshots/{}", fixture.ids[8])), &[b"damaged"]).unwrap();
    fixture.store.delete(&named(&format!("snapshots/{}", fixture.ids[0])), Durable::OnReturn).unwrap();
    fs::remove_file(fixture.path()).unwrap();
    assert_eq!(fixture.listed(), ((1..8).chain([9]).collect(), 1, 9));
}

#[test]
fn the_file_is_written_again_without_the_snapshots_that_are_gone() {
    let fixture = Fixture::new(60);
    fixture.listed();
    let whole = fs::metadata(fixture.path()).unwrap().len();
    for id in &fixture.ids[..50] {
        fixture.store.delete(&named(&format!("snapshots/{id}")), Durable::OnReturn).unwrap();
    }
    fixture.listed();
    let rest = fs::metadata(fixture.path()).unwrap().len();
    assert!(rest < whole / 5, "{rest} of {whole} bytes");
    assert_eq!(fixture.listed(), ((50..60).collect(), 0, 0));
}

#[test]
fn whatever_the_file_holds_the_answer_is_right_and_the_file_heals() {
    let fixture = Fixture::new(12);
    fixture.listed();
    let whole = fs::read(fixture.path()).unwrap();
    let mut variants: Vec<Vec<u8>> = (0..whole.len()).step_by(7).map(|len| whole[..len].to_vec()).collect();
    variants.extend((0..whole.len()).map(|at| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        bytes
    }));
    variants.push(vec![0xff; 5000]);
    variants.push(vec![0; 5000]);
    variants.push([whole.as_slice(), whole.as_slice()].concat());
    variants.push([whole.as_slice(), b"garbage"].concat());
    for (number, bytes) in variants.into_iter().enumerate() {
        fs::write(fixture.path(), bytes).unwrap();
        assert_eq!(fixture.listed().0, (0..12).collect::<Vec<_>>(), "variant {number}");
        assert_eq!(fixture.listed(), ((0..12).collect(), 0, 0), "variant {number}: healed");
    }
    // A directory in its place.
    fs::remove_file(fixture.path()).unwrap();
    fs::create_dir(fixture.path()).unwrap();
    assert_eq!(fixture.listed().0.len(), 12);
}

#[test]
fn a_machine_that_knows_no_snapshot_reads_few_blobs() {
    let fixture = Fixture::new(100);
    assert_eq!(bundle::maintain(fixture.store.as_ref(), 32).unwrap(), 100);
    snapshot(100).save(fixture.store.as_ref()).unwrap();
    assert_eq!(fixture.listed(), ((0..101).collect(), 0, 2), "one bundle, and the one that is in none");
    assert_eq!(fixture.listed(), ((0..101).collect(), 0, 0));
    // A bundle does not bring back what was deleted, and damage to it costs reads.
    fs::remove_file(fixture.path()).unwrap();
    fixture.store.delete(&named(&format!("snapshots/{}", fixture.ids[7])), Durable::OnReturn).unwrap();
    assert_eq!(fixture.listed(), ((0..7).chain(8..101).collect(), 0, 2));
    fs::remove_file(fixture.path()).unwrap();
    let name = fixture.store.list(BlobKind::Bundle.into()).unwrap().remove(0).name;
    let mut damaged = fixture.store.get(&name, 1 << 20).unwrap();
    damaged[60] ^= 1;
    fixture.store.delete(&name, Durable::OnReturn).unwrap();
    fixture.store.put_if_absent(&name, &[&damaged]).unwrap();
    assert_eq!(fixture.listed(), ((0..7).chain(8..101).collect(), 0, 1 + 100));
}
