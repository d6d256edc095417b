//! Segments that a writer puts after a prune has deleted what they name: nothing is lost, and nobody says so.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use fhrd::backup::{BackupReport, BackupRequest, TreeSource, backup};
use fhrd::inspect::check::check;
use fhrd::keep::{forget, prune};
use fhrd::metrics::Progress;
use fhrd::repair::index::repair_index;
use fhrd::repo::Repository;
use fhrd::repo::claims::{ClaimKind, ContainerClaim};
use fhrd::repo::container::blob_name;
use fhrd::repo::index::{ContainerListing, IndexRecord, NewSegment, merge_segments, missing_containers, write_segment};
use fhrd::repo::snapshot;
use fhrd::store::{Durable, StoreExt};
use fhrd::types::{ContainerId, Fingerprint};

use crate::double::named;
use crate::hooked::hooked;
use crate::input::{TestRepository, write};
use crate::interleavings::scene::no_grace;
use crate::trees::Random;

fn back_up(repository: &Repository, source: &Path) -> BackupReport {
    let paths = vec![source.into()];
    let request = BackupRequest { without_pauses: true, ..BackupRequest::new(TreeSource::new(paths, "test")) };
    backup(repository, &TestRepository::config(), &request, &Progress::default(), &Arc::default()).unwrap()
}

fn names(place: &TestRepository, prefix: &str) -> Vec<String> {
    place.names().into_iter().filter(|name| name.starts_with(prefix)).collect()
}

/// A repository with a snapshot, and a source with another file.
fn with_snapshot() -> (Arc<TestRepository>, tempfile::TempDir) {
    let (place, source) = (Arc::new(TestRepository::new()), tempfile::tempdir().unwrap());
    write(source.path().join("first"), &Random(1).bytes(300_000));
    back_up(&place.open(), source.path());
    write(source.path().join("second"), &Random(2).bytes(300_000));
    (place, source)
}

/// Opens the repository. Before it puts the segment with this number, somebody forgets everything and prunes.
fn pruned_at(place: &Arc<TestRepository>, segment: usize) -> Repository {
    let (other, puts) = (place.clone(), AtomicUsize::new(0));
    hooked(place, move |call, name| {
        if call == "put" && name.starts_with("index/") && puts.fetch_add(1, Ordering::SeqCst) == segment {
            let (snapshots, _) = snapshot::list(other.open().store.as_ref())?;
            forget(&other.open(), &snapshots.iter().map(|named| named.id).collect::<Vec<_>>())?;
            let report = prune(&other.open(), &no_grace(), &Arc::default())?;
            assert!(report.containers_deleted > 0, "{report:?}");
        }
        Ok(())
    })
}

/// Nothing is called lost: neither now nor by a prune or a backup that follows.
fn assert_nothing_is_lost(place: &TestRepository, source: &Path) {
    let listing = ContainerListing::take(&place.open().store).unwrap();
    let missing = missing_containers(&listing).unwrap();
    assert!(missing.lost.is_empty() && missing.unlisted.is_empty(), "{missing:?}");
    prune(&place.open(), &no_grace(), &Arc::default()).unwrap();
    assert_eq!(back_up(&place.open(), source).containers_unread, 0);
    assert_eq!((names(place, "marks").len(), names(place, "intents").len()), (0, 0));
    let report = check(&place.open(), &TestRepository::config(), true, &Progress::default(), &Arc::default()).unwrap();
    assert_eq!(report.defects, [""; 0]);
}

#[test]
fn a_backup_that_was_taken_for_dead_takes_its_segment_back() {
    let (place, source) = with_snapshot();
    back_up(&pruned_at(&place, 0), source.path());
    assert_nothing_is_lost(&place, source.path());
}

#[test]
fn a_merged_segment_does_not_name_what_was_deleted_meanwhile() {
    let (place, source) = with_snapshot();
    for seed in 3..5 {
        back_up(&place.open(), source.path());
        write(source.path().join("second"), &Random(seed).bytes(300_000));
    }
    assert_eq!(names(&place, "index").len(), 3);
    // The backup puts its own segment, and then the merged one.
    back_up(&pruned_at(&place, 1), source.path());
    assert_nothing_is_lost(&place, source.path());
}

#[test]
fn adopted_containers_that_were_deleted_meanwhile_are_in_no_segment() {
    let (place, source) = with_snapshot();
    let store = place.open().store;
    names(&place, "index").iter().chain(&names(&place, "snapshots")).for_each(|name| {
        store.delete(&named(name), Durable::OnReturn).unwrap();
    });
    back_up(&pruned_at(&place, 0), source.path());
    assert_nothing_is_lost(&place, source.path());
}

#[test]
fn a_repaired_index_does_not_name_what_was_deleted_meanwhile() {
    let (place, source) = with_snapshot();
    let report = repair_index(&pruned_at(&place, 0), &Arc::default()).unwrap();
    assert_eq!((report.missing, report.unreadable), (vec![], vec![]));
    assert_nothing_is_lost(&place, source.path());
}

#[test]
fn a_segment_that_a_prune_puts_too_late_is_taken_back() {
    let (place, source) = (Arc::new(TestRepository::new()), tempfile::tempdir().unwrap());
    ["one", "two"].iter().zip(1..).for_each(|(name, seed)| {
        write(source.path().join(name), &Random(seed).bytes(300_000));
    });
    back_up(&place.open(), source.path());
    let first = snapshot::list(place.open().store.as_ref()).unwrap().0[0].id;
    std::fs::remove_file(source.path().join("one")).unwrap();
    back_up(&place.open(), source.path());
    forget(&place.open(), &[first]).unwrap();
    // It has moved what is needed, and is about to name the new container.
    let report = prune(&pruned_at(&place, 0), &no_grace(), &Arc::default()).unwrap();
    assert!(report.containers_written > 0, "{report:?}");
    assert_nothing_is_lost(&place, source.path());
}

#[test]
fn what_is_deleted_while_a_segment_is_taken_back_is_taken_out_too() {
    let place = Arc::new(TestRepository::new());
    let (store, id) = (place.open().store, |number: u8| ContainerId([number; 32]));
    (1..=5).for_each(|number| _ = store.put_if_absent(&blob_name(&id(number)), &[b"a container"]).unwrap());
    let put = |containers: &[ContainerId], records: u32| {
        let count = containers.len() as u32;
        let record = |nth: u32| IndexRecord {
            fingerprint: Fingerprint(*blake3::hash(&nth.to_le_bytes()).as_bytes()),
            container: nth % count,
            entry: nth / count,
        };
        write_segment(
            store.as_ref(),
            NewSegment::padded([containers[0].0[0]; 16]),
            containers,
            &[],
            (0..records).map(record).collect(),
        )
    };
    (1..=4).for_each(|number| _ = put(&[id(number)], 8).unwrap());
    // A large segment also names the first container, and one that no small segment names.
    put(&[id(5), id(1)], 9000).unwrap();
    let (plain, puts) = (store.clone(), AtomicUsize::new(0));
    let merging = hooked(&place, move |call, name| match (call, name.starts_with("index/")) {
        ("put", true) => match puts.fetch_add(1, Ordering::SeqCst) {
            0 => plain.delete(&blob_name(&id(1)), Durable::OnReturn),
            1 => plain.delete(&blob_name(&id(5)), Durable::OnReturn),
            _ => Ok(()),
        },
        _ => Ok(()),
    });
    let listing = ContainerListing::take(&merging.store).unwrap();
    assert_eq!(merge_segments(&listing, &std::env::temp_dir(), &AtomicBool::new(false)).unwrap(), 1);
    let segments = ContainerListing::take(&store).unwrap().segments();
    let mut named: Vec<ContainerId> = segments.iter().flat_map(|segment| segment.containers().to_vec()).collect();
    named.sort_unstable();
    assert_eq!(named, [2, 3, 4].map(id));
}

#[test]
fn what_a_prune_lets_go_while_a_backup_begins_is_not_called_unreadable() {
    let (place, source) = with_snapshot();
    let store = place.open().store;
    let all = ContainerListing::take(&store).unwrap().containers;
    let entry = ContainerClaim::put(store.as_ref(), ClaimKind::Pending, &[3; 16], &all).unwrap().name;
    let is_done = AtomicBool::new(false);
    // The prune is interrupted when the backup has seen its entry.
    let writer = hooked(&place, move |call, name| match call == "list" && name == "containers" {
        true if !is_done.swap(true, Ordering::SeqCst) => store.delete(&entry, Durable::OnReturn),
        _ => Ok(()),
    });
    assert_eq!(back_up(&writer, source.path()).containers_unread, 0);
    assert_nothing_is_lost(&place, source.path());
}

#[test]
fn what_a_segment_names_that_is_taken_back_meanwhile_is_not_lost() {
    let (place, _source) = with_snapshot();
    let store = place.open().store;
    let gone = ContainerId([7; 32]);
    let record = IndexRecord { fingerprint: Fingerprint([1; 32]), container: 0, entry: 0 };
    let put = || write_segment(store.as_ref(), NewSegment::padded([9; 16]), &[gone], &[], vec![record]).unwrap();
    for looks in 1..4 {
        let (late, plain, lists) = (put(), store.clone(), AtomicUsize::new(0));
        let reading = hooked(&place, move |call, name| match call == "list" && name == "pending" {
            true if lists.fetch_add(1, Ordering::SeqCst) == looks => plain.delete(&late, Durable::OnReturn),
            _ => Ok(()),
        });
        let listing = ContainerListing::take(&reading.store).unwrap();
        let lost = missing_containers(&listing).unwrap().lost;
        assert_eq!(lost.contains(&gone), looks > 2, "{looks} looks");
    }
}

#[test]
fn a_lost_container_stays_lost_in_a_merged_segment() {
    let (place, source) = with_snapshot();
    let gone = names(&place, "containers").remove(0);
    for seed in 3..6 {
        write(source.path().join("second"), &Random(seed).bytes(300_000));
        if seed == 5 {
            place.open().store.delete(&named(&gone), Durable::OnReturn).unwrap();
        }
        back_up(&place.open(), source.path());
    }
    assert!(names(&place, "index").len() < 3, "{:?}", names(&place, "index"));
    let listing = ContainerListing::take(&place.open().store).unwrap();
    let lost: Vec<String> = missing_containers(&listing).unwrap().lost.iter().map(|id| id.to_string()).collect();
    assert!(lost.len() == 1 && gone.ends_with(&lost[0]), "{lost:?}");
}
