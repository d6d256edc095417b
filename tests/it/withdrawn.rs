//! Snapshots that a writer has put and cannot prove, beside prunes; and what a prune or a backup holds in memory.

use std::collections::HashSet;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytesize::ByteSize;
use fhrd::backup::{BackupReport, BackupRequest, SnapshotLabels, StreamInput, StreamSource, TreeSource, backup};
use fhrd::config::{Config, RepositoryConfig};
use fhrd::error::{Error, Result};
use fhrd::inspect::check::check;
use fhrd::keep::{PruneOptions, prune};
use fhrd::metrics::Progress;
use fhrd::repair::snapshots::{SnapshotRepair, repair_snapshots};
use fhrd::repo::Repository;
use fhrd::repo::claims::{ClaimKind, ContainerClaim, IntentNote};
use fhrd::repo::container::{ContainerKind, HEADER_BYTES, blob_name, parse_header};
use fhrd::repo::index::{ContainerListing, missing_containers};
use fhrd::repo::recipe::ContentReference;
use fhrd::repo::snapshot::{self, NamedSnapshot, Snapshot};
use fhrd::restore::restore;
use fhrd::store::{BlobKind, Durable, ListedBlob, Reading, Store, StoreExt};
use fhrd::types::{ContainerId, Fingerprint};

use crate::double::named;
use crate::hooked::hooked;
use crate::input::{TestRepository, write};
use crate::interleavings::scene::no_grace;
use crate::trees::Random;

fn back_up(repository: &Repository, source: &Path, config: &Config) -> Result<BackupReport> {
    let request = BackupRequest::new(TreeSource::new(vec![source.into()], "test"));
    backup(repository, config, &request, &Progress::default(), &Arc::default())
}

fn names(place: &TestRepository, prefix: &str) -> Vec<String> {
    place.names().into_iter().filter(|name| name.starts_with(prefix)).collect()
}

fn reported(place: &TestRepository) -> usize {
    snapshot::list_reported(place.open().store.as_ref()).unwrap().0.len()
}

#[test]
fn a_snapshot_that_nobody_could_look_at_is_not_reported_until_a_prune_has() {
    let (place, source) = (TestRepository::new(), tempfile::tempdir().unwrap());
    write(source.path().join("file"), &Random(1).bytes(300_000));
    // The last look is after the snapshot.
    let is_stored = AtomicBool::new(false);
    let writer = hooked(&place, move |call, name| {
        is_stored.fetch_or(call == "put" && name.starts_with("snapshots"), Ordering::SeqCst);
        match call == "list" && name == "pending" && is_stored.load(Ordering::SeqCst) {
            true => Err(Error::io("list", name, std::io::ErrorKind::TimedOut)),
            false => Ok(()),
        }
    });
    assert!(back_up(&writer, source.path(), &TestRepository::config()).is_err());
    assert_eq!((names(&place, "snapshots").len(), reported(&place)), (1, 0));
    prune(&place.open(), &no_grace(), &Arc::default()).unwrap();
    assert_eq!((names(&place, "snapshots").len(), reported(&place)), (1, 1), "it is whole");
    assert_eq!(names(&place, "intents"), [""; 0]);
}

#[test]
fn what_a_snapshot_lacks_that_is_not_reported_is_no_damage() {
    let (place, source) = (TestRepository::new(), tempfile::tempdir().unwrap());
    write(source.path().join("file"), b"content");
    back_up(&place.open(), source.path(), &TestRepository::config()).unwrap();
    let (repository, config) = (place.open(), TestRepository::config());
    let store = repository.store.as_ref();
    let salt = [7; 16];
    let intent = ContainerClaim::put(store, ClaimKind::Intent, &salt, &HashSet::new()).unwrap();
    let root = Some(ContentReference::Chunk { fingerprint: Fingerprint([9; 32]), len: 5 });
    let written = snapshot::list(store).unwrap().0.remove(0).snapshot;
    let lacking = Snapshot { root, intent: Some(salt.to_vec()), ..written };
    let id = lacking.save(store).unwrap();
    let look = || check(&repository, &config, false, &Progress::default(), &Arc::default()).unwrap();
    let report = look();
    assert_eq!(report.defects, [""; 0]);
    assert!(report.notes.iter().any(|note| note.contains(&id.to_string()[..8]) && note.contains("not reported yet")));
    // Its writer withdraws it, and may not delete it.
    IntentNote::Withdrawn.put(store, &intent.name).unwrap();
    store.delete(&intent.name, Durable::OnReturn).unwrap();
    assert_eq!(look().defects, [""; 0]);
    store.delete(&IntentNote::Withdrawn.name(&intent.name), Durable::OnReturn).unwrap();
    assert_eq!(look().defect_count, 1);
}

#[test]
fn what_a_backup_lacks_that_was_taken_for_dead_is_no_damage() {
    // It is stopped just before its snapshot, and then goes on or is killed.
    for is_killed in [false, true] {
        let (place, source) = (Arc::new(TestRepository::new()), tempfile::tempdir().unwrap());
        write(source.path().join("file"), &Random(1).bytes(2_000_000));
        back_up(&place.open(), source.path(), &TestRepository::config()).unwrap();
        write(source.path().join("file"), &Random(2).bytes(2_000_000));
        let (other, puts, looked) = (place.clone(), AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
        let (is_dead, looks) = (AtomicBool::new(false), looked.clone());
        let look = move |place: &TestRepository| {
            let report = check(&place.open(), &Config::default(), true, &Progress::default(), &Arc::default()).unwrap();
            assert_eq!(report.defects, [""; 0]);
            assert_eq!(report.notes.iter().filter(|note| note.contains("not reported yet")).count(), 1, "{report:?}");
            assert_eq!(reported(place), 1);
        };
        let writer = hooked(&place, move |call, name| {
            if call == "put" && name.starts_with("snapshots") && puts.fetch_add(1, Ordering::SeqCst) == 0 {
                assert_eq!(prune(&other.open(), &no_grace(), &Arc::default())?.intents_broken, 1);
            } else if call == "list" && name == "pending" && puts.load(Ordering::SeqCst) == 1 {
                if looks.fetch_add(1, Ordering::SeqCst) == 0 {
                    look(&other);
                }
                is_dead.store(is_killed, Ordering::SeqCst);
            }
            match is_dead.load(Ordering::SeqCst) {
                true => Err(Error::io("ask", name, std::io::ErrorKind::TimedOut)),
                false => Ok(()),
            }
        });
        let done = back_up(&writer, source.path(), &TestRepository::config());
        assert_eq!((done.is_err(), looked.load(Ordering::SeqCst) > 0), (is_killed, true), "{done:?}");
        if is_killed {
            look(&place);
        }
        prune(&place.open(), &no_grace(), &Arc::default()).unwrap();
        prune(&place.open(), &no_grace(), &Arc::default()).unwrap();
        let there = 1 + usize::from(!is_killed);
        assert_eq!((names(&place, "snapshots").len(), reported(&place)), (there, there));
        assert_eq!(names(&place, "intents"), [""; 0]);
        let report = check(&place.open(), &Config::default(), true, &Progress::default(), &Arc::default()).unwrap();
        assert_eq!(report.defects, [""; 0]);
    }
}

#[test]
fn what_a_late_segment_names_that_a_prune_has_deleted_is_not_lost() {
    let (place, source) = (Arc::new(TestRepository::new()), tempfile::tempdir().unwrap());
    write(source.path().join("file"), &Random(1).bytes(2_000_000));
    back_up(&place.open(), source.path(), &TestRepository::config()).unwrap();
    let sound = names(&place, "containers");
    write(source.path().join("file"), &Random(2).bytes(2_000_000));
    // The writer is stopped just before its segment, and killed behind it.
    let (other, puts) = (place.clone(), AtomicUsize::new(0));
    let writer = hooked(&place, move |call, name| {
        if call == "put" && name.starts_with("index") && puts.fetch_add(1, Ordering::SeqCst) == 0 {
            prune(&other.open(), &no_grace(), &Arc::default())?;
        } else if puts.load(Ordering::SeqCst) > 0 {
            return Err(Error::io("ask", name, std::io::ErrorKind::TimedOut));
        }
        Ok(())
    });
    assert!(back_up(&writer, source.path(), &TestRepository::config()).is_err());
    assert_eq!((names(&place, "containers"), names(&place, "index").len()), (sound, 2));
    let missing = || missing_containers(&ContainerListing::take(&place.open().store).unwrap()).unwrap().lost.len();
    for _ in 0..3 {
        assert_eq!(missing(), 0);
        let report = check(&place.open(), &Config::default(), true, &Progress::default(), &Arc::default()).unwrap();
        assert_eq!(report.defects, [""; 0]);
        let report = back_up(&place.open(), source.path(), &TestRepository::config()).unwrap();
        assert!(report.is_complete(), "{report:?}");
        prune(&place.open(), &no_grace(), &Arc::default()).unwrap();
    }
    // No segment names it any more, so the record may go.
    for name in names(&place, "intents") {
        place.open().store.delete(&named(&name), Durable::OnReturn).unwrap();
    }
    assert_eq!(missing(), 0);
    // What is deleted by hand is lost.
    let gone = names(&place, "containers").remove(0);
    place.open().store.delete(&named(&gone), Durable::OnReturn).unwrap();
    assert_eq!(missing(), 1);
}

#[test]
fn a_record_of_deleted_containers_hides_no_loss_from_backups() {
    let (place, source) = (TestRepository::new(), tempfile::tempdir().unwrap());
    let (first, config) = (Random(1).bytes(2_000_000), TestRepository::config());
    write(source.path().join("file"), &first);
    back_up(&place.open(), source.path(), &config).unwrap();
    let containers: HashSet<ContainerId> = ContainerListing::take(&place.open().store).unwrap().containers;
    let second: Vec<u8> = [&first[..1_000_000], b"edit", &first[1_000_000..]].concat();
    write(source.path().join("file"), &second);
    back_up(&place.open(), source.path(), &config).unwrap();
    // What the second copies from is lost, and somebody says that a prune has deleted it.
    let store = place.open().store;
    let intent = ContainerClaim::put(store.as_ref(), ClaimKind::Intent, &[7; 16], &containers).unwrap();
    IntentNote::Broken.put(store.as_ref(), &intent.name).unwrap();
    let lost: Vec<ContainerId> = containers.into_iter().collect();
    ContainerClaim::put_pruned(store.as_ref(), &intent.name, &[8; 16], lost.clone()).unwrap();
    lost.iter().for_each(|id| store.delete(&blob_name(id), Durable::OnReturn).unwrap());
    let (other, known) = (tempfile::tempdir().unwrap(), names(&place, "snapshots"));
    write(other.path().join("other"), &second);
    back_up(&place.open(), other.path(), &config).unwrap();
    let new = names(&place, "snapshots").into_iter().find(|name| !known.contains(name)).unwrap();
    let (repository, target) = (place.open(), tempfile::tempdir().unwrap());
    let (snapshots, _) = snapshot::list(repository.store.as_ref()).unwrap();
    let restored = |named: &NamedSnapshot| {
        restore(&repository, &config, named, target.path(), &Progress::default(), &Arc::default()).unwrap().damaged
    };
    let is_new = |named: &&NamedSnapshot| snapshot::blob_name(&named.id) == new.as_str();
    assert_eq!(restored(snapshots.iter().find(is_new).unwrap()), 0);
    assert!(restored(snapshots.iter().find(|named| !is_new(named)).unwrap()) > 0);
}

#[test]
fn a_snapshot_that_nobody_has_reported_is_left_alone_by_a_repair_and_ends_no_prune() {
    let (place, source) = (TestRepository::new(), tempfile::tempdir().unwrap());
    write(source.path().join("file"), b"content");
    back_up(&place.open(), source.path(), &TestRepository::config()).unwrap();
    let (repository, sound) = (place.open(), names(&place, "snapshots"));
    let store = repository.store.as_ref();
    ContainerClaim::put(store, ClaimKind::Intent, &[7; 16], &HashSet::new()).unwrap();
    let root = Some(ContentReference::Chunk { fingerprint: Fingerprint([9; 32]), len: 5 });
    let written = snapshot::list(store).unwrap().0.remove(0).snapshot;
    Snapshot { root, intent: Some(vec![7; 16]), ..written }.save(store).unwrap();
    let request = SnapshotRepair::default();
    let report = repair_snapshots(&repository, &TestRepository::config(), request, &Arc::default()).unwrap();
    assert_eq!((report.damaged.len(), names(&place, "snapshots").len()), (0, 2), "its writer may withdraw it");
    let report = prune(&repository, &no_grace(), &Arc::default()).unwrap();
    assert_eq!((report.intents_broken, names(&place, "snapshots")), (1, sound));
    assert_eq!(names(&place, "intents"), [""; 0]);
}

#[test]
fn a_broken_intent_without_a_snapshot_stays_for_a_week() {
    let place = TestRepository::new();
    let intent =
        ContainerClaim::put(place.open().store.as_ref(), ClaimKind::Intent, &[7; 16], &HashSet::new()).unwrap();
    let note = IntentNote::Broken.name(&intent.name);
    for (days, is_there) in [(0, true), (6, true), (8, false)] {
        prune(&place.open(), &no_grace(), &Arc::default()).unwrap();
        let put_at = SystemTime::now() - Duration::from_secs(days * 24 * 3600);
        File::options().write(true).open(place.path().join(note.as_str())).unwrap().set_modified(put_at).unwrap();
        let report = prune(&place.open(), &no_grace(), &Arc::default()).unwrap();
        assert_eq!((report.intents_broken, names(&place, "intents").len()), (0, 2 * usize::from(is_there)), "{days}");
    }
    // A note without its intent says nothing.
    place.open().store.put_if_absent(&note, &[]).unwrap();
    prune(&place.open(), &no_grace(), &Arc::default()).unwrap();
    assert_eq!(names(&place, "intents"), [""; 0]);
}

#[test]
fn a_backup_outlasts_prunes_that_are_in_the_way_again_and_again() {
    let (place, source) = (Arc::new(TestRepository::new()), tempfile::tempdir().unwrap());
    write(source.path().join("file"), &Random(1).bytes(300_000));
    let (prunes, store) = (AtomicUsize::new(0), place.open().store);
    // A prune announces all containers just before the backup looks, eight times.
    let writer = hooked(&place, move |call, name| {
        if call == "put" && name.starts_with("intents") && prunes.fetch_add(1, Ordering::SeqCst) < 8 {
            let containers = ContainerListing::take(&store)?.containers;
            let salt = [prunes.load(Ordering::SeqCst) as u8; 16];
            ContainerClaim::put(store.as_ref(), ClaimKind::Pending, &salt, &containers)?;
        }
        Ok(())
    });
    let paths = vec![source.path().into()];
    let request = BackupRequest { without_pauses: true, ..BackupRequest::new(TreeSource::new(paths, "test")) };
    let config = TestRepository::config();
    backup(&writer, &config, &request, &Progress::default(), &Arc::default()).unwrap();
    prune(&place.open(), &no_grace(), &Arc::default()).unwrap();
    assert_eq!(reported(&place), 1);
    let report = check(&place.open(), &config, true, &Progress::default(), &Arc::default()).unwrap();
    assert_eq!(report.defects, [""; 0]);
}

#[test]
fn a_stream_waits_for_a_prune_that_leaves_what_it_needs() {
    let (place, source) = (Arc::new(TestRepository::new()), tempfile::tempdir().unwrap());
    write(source.path().join("file"), &Random(1).bytes(300_000));
    let path = source.path().join("file").into_os_string();
    let back_up_stream = |repository: &Repository| {
        let input = StreamInput::Command(vec!["cat".into(), path.clone()]);
        let stream = StreamSource::new("stream", input, SnapshotLabels::default());
        let request = BackupRequest { without_pauses: true, ..BackupRequest::new(stream) };
        backup(repository, &TestRepository::config(), &request, &Progress::default(), &Arc::default())
    };
    back_up_stream(&place.open()).unwrap();
    // The prune announces itself just before a look, and ends while the stream waits or never.
    for (nth, ends_after) in [(0, 1), (0, 3), (1, 2), (0, 100)] {
        let (store, intents, lists) = (place.open().store, AtomicUsize::new(0), AtomicUsize::new(0));
        let entry: Mutex<Option<_>> = Mutex::default();
        let writer = hooked(&place, move |call, name| {
            if call == "put" && name.starts_with("intents") && intents.fetch_add(1, Ordering::SeqCst) == nth {
                let containers = ContainerListing::take(&store)?.containers;
                let claim = ContainerClaim::put(store.as_ref(), ClaimKind::Pending, &[7; 16], &containers)?;
                *entry.lock().unwrap() = Some(claim.name);
            }
            if call == "list" && name == "pending" {
                let mut entry = entry.lock().unwrap();
                let is_over = entry.is_some() && lists.fetch_add(1, Ordering::SeqCst) == ends_after;
                if let Some(name) = if is_over { entry.take() } else { None } {
                    store.delete(&name, Durable::OnReturn)?;
                }
            }
            Ok(())
        });
        let before = reported(&place);
        let done = back_up_stream(&writer);
        assert_eq!(done.is_ok(), ends_after < 100, "{nth} {ends_after}: {done:?}");
        assert_eq!(reported(&place), before + usize::from(done.is_ok()));
        prune(&place.open(), &no_grace(), &Arc::default()).unwrap();
    }
    let report = check(&place.open(), &TestRepository::config(), true, &Progress::default(), &Arc::default()).unwrap();
    assert_eq!(report.defects, [""; 0]);
}

#[test]
fn a_note_about_a_snapshot_that_a_prune_has_not_listed_stays() {
    let (place, source) = (Arc::new(TestRepository::new()), tempfile::tempdir().unwrap());
    write(source.path().join("file"), &Random(1).bytes(2_000_000));
    back_up(&place.open(), source.path(), &TestRepository::config()).unwrap();
    let sound = names(&place, "snapshots");
    let containers = names(&place, "containers");
    write(source.path().join("file"), &Random(2).bytes(2_000_000));
    back_up(&place.open(), source.path(), &TestRepository::config()).unwrap();
    // The second snapshot loses its containers, and comes back with its note when a prune has listed the snapshots.
    let broken = names(&place, "snapshots").into_iter().find(|name| !sound.contains(name)).unwrap();
    let (snapshots, _) = snapshot::list(place.open().store.as_ref()).unwrap();
    let intent = snapshots.iter().find(|named| broken.ends_with(&named.id.to_string())).unwrap().intent_name().unwrap();
    let bytes = place.read(&broken);
    let plain = place.open().store;
    for name in names(&place, "containers").iter().filter(|name| !containers.contains(name)).chain([&broken]) {
        plain.delete(&named(name), Durable::OnReturn).unwrap();
    }
    let (has_listed, has_come) = (AtomicBool::new(false), AtomicBool::new(false));
    let (name, note) = (broken.clone(), named(&format!("{intent}.withdrawn")));
    let pruning = hooked(&place, move |call, prefix| {
        let is_listing = |directory| call == "list" && prefix == directory;
        if is_listing("snapshots") {
            has_listed.store(true, Ordering::SeqCst);
        } else if is_listing("containers")
            && has_listed.load(Ordering::SeqCst)
            && !has_come.swap(true, Ordering::SeqCst)
        {
            assert!(plain.put_if_absent(&named(&name), &[&bytes])? && plain.put_if_absent(&note, &[])?);
        }
        Ok(())
    });
    // Later lists of this prune may see both.
    let _ = prune(&pruning, &no_grace(), &Arc::default());
    let is_there = names(&place, "snapshots").contains(&broken);
    assert_eq!(names(&place, "intents").len(), usize::from(is_there), "snapshot and note go together");
    assert_eq!(reported(&place), 1);
    prune(&place.open(), &no_grace(), &Arc::default()).unwrap();
    assert_eq!((names(&place, "snapshots"), names(&place, "intents").len()), (sound, 0));
}

#[test]
fn a_damaged_entry_of_a_dead_prune_stays_until_what_it_may_list_is_deleted() {
    let (place, source) = (Arc::new(TestRepository::new()), tempfile::tempdir().unwrap());
    for seed in 1..=2 {
        write(source.path().join("file"), &Random(seed).bytes(2_000_000));
        back_up(&place.open(), source.path(), &TestRepository::config()).unwrap();
    }
    let all = names(&place, "containers").len();
    let (snapshots, _) = snapshot::list(place.open().store.as_ref()).unwrap();
    snapshot::delete(place.open().store.as_ref(), &snapshots[0].id).unwrap();
    let damaged = format!("pending/{}", "ab".repeat(16));
    place.open().store.put_if_absent(&named(&damaged), &[b"garbage"]).unwrap();
    assert!(back_up(&place.open(), source.path(), &TestRepository::config()).is_err(), "nobody knows what it lists");
    let (seen, left) = (place.clone(), Arc::<Mutex<Vec<usize>>>::default());
    let (name, counts) = (damaged.clone(), left.clone());
    let pruning = hooked(&place, move |call, deleted| {
        if call == "delete" && deleted == name {
            assert_eq!(names(&seen, "pending").len(), 2, "the entry of this prune is there too");
            counts.lock().unwrap().push(names(&seen, "containers").len());
        }
        Ok(())
    });
    prune(&pruning, &no_grace(), &Arc::default()).unwrap();
    let left = left.lock().unwrap().clone();
    assert!(left.len() == 1 && left[0] < all, "{left:?} of {all}");
    assert_eq!(names(&place, "pending"), [""; 0]);
    back_up(&place.open(), source.path(), &TestRepository::config()).unwrap();
}

#[test]
fn moved_frames_fill_one_container_after_the_other() {
    let (place, source) = (TestRepository::new(), tempfile::tempdir().unwrap());
    let config = TestRepository::config();
    write(source.path().join("a text"), &Random(7).text(3_000));
    for number in 0..60u64 {
        write(source.path().join(format!("noise {number}")), &Random(number).bytes(400_000));
    }
    back_up(&place.open(), source.path(), &config).unwrap();
    let first = snapshot::list(place.open().store.as_ref()).unwrap().0.remove(0).id;
    for number in (0..60u64).step_by(2) {
        std::fs::remove_file(source.path().join(format!("noise {number}"))).unwrap();
    }
    back_up(&place.open(), source.path(), &config).unwrap();
    snapshot::delete(place.open().store.as_ref(), &first).unwrap();
    let options = PruneOptions { container_bytes: 1 << 20, ..no_grace() };
    let report = prune(&place.open(), &options, &Arc::default()).unwrap();
    assert!(report.bytes_written > 8_000_000, "{report:?}");
    let containers = place.open().store.list(BlobKind::Container.into()).unwrap();
    let longest = containers.iter().map(|listed| listed.len).max().unwrap();
    assert!(longest < 2_500_000, "{longest} bytes in one container of {}", containers.len());
}

#[test]
fn the_recipe_of_one_file_fills_several_containers() {
    let lengths = RepositoryConfig {
        chunk_bytes_min: ByteSize::b(256),
        chunk_bytes_avg: ByteSize::b(512),
        chunk_bytes_max: ByteSize::b(2048),
        ..RepositoryConfig::default()
    };
    let (place, source) = (TestRepository::with(&lengths), tempfile::tempdir().unwrap());
    write(source.path().join("file"), &Random(3).bytes(24_000_000));
    let mut config = TestRepository::config();
    config.repository = lengths;
    back_up(&place.open(), source.path(), &config).unwrap();
    let store = place.open().store;
    let is_metadata = |listed: &&ListedBlob| {
        let header = store.get_range(&listed.name, 0, HEADER_BYTES, Reading::Once).unwrap();
        parse_header(&listed.name, &header).unwrap() == ContainerKind::Metadata
    };
    let containers = store.list(BlobKind::Container.into()).unwrap();
    let lengths: Vec<u64> = containers.iter().filter(is_metadata).map(|listed| listed.len).collect();
    assert!(lengths.len() > 1 && lengths.iter().all(|len| *len < 1_600_000), "{lengths:?}");
}
