//! Writers, prunes and repairs that meet at one moment, and what is left when some of them were killed.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use fhrd::backup::{BackupReport, BackupRequest, TreeSource, backup};
use fhrd::config::Config;
use fhrd::error::{Error, Result};
use fhrd::inspect::check::check;
use fhrd::keep::{PruneOptions, TagChange, forget, prune, tag};
use fhrd::metrics::Progress;
use fhrd::repair::index::repair_index;
use fhrd::repair::snapshots::{SnapshotRepair, repair_snapshots};
use fhrd::repo::Repository;
use fhrd::repo::claims::{ClaimKind, ContainerClaim, IntentNote};
use fhrd::repo::container::parse_name;
use fhrd::repo::index::read_container_index;
use fhrd::repo::snapshot::{self, NamedSnapshot};
use fhrd::store::{Durable, StoreExt};
use fhrd::types::ContainerId;

use crate::double::named;
use crate::hooked::hooked;
use crate::input::{TestRepository, edit, write};
use crate::interleavings::scene::no_grace;
use crate::trees::Random;

fn back_up(repository: &Repository, source: &Path) -> Result<BackupReport> {
    let request = BackupRequest::new(TreeSource::new(vec![source.into()], "test"));
    backup(repository, &TestRepository::config(), &request, &Progress::default(), &Arc::default())
}

fn names(place: &TestRepository, prefix: &str) -> Vec<String> {
    place.names().into_iter().filter(|name| name.starts_with(prefix)).collect()
}

fn snapshots(place: &TestRepository) -> Vec<NamedSnapshot> {
    snapshot::list(place.open().store.as_ref()).unwrap().0
}

fn assert_sound(place: &TestRepository) {
    let report = check(&place.open(), &Config::default(), true, &Progress::default(), &Arc::default()).unwrap();
    assert_eq!(report.defect_count, 0, "{report:?}");
}

fn delete(place: &TestRepository, names: &[String]) {
    let store = place.open().store;
    names.iter().for_each(|name| store.delete(&named(name), Durable::OnReturn).unwrap());
}

/// Forgets everything and prunes.
fn forget_and_prune(place: &TestRepository) {
    let ids: Vec<_> = snapshots(place).iter().map(|named| named.id).collect();
    forget(&place.open(), &ids).unwrap();
    prune(&place.open(), &no_grace(), &Arc::default()).unwrap();
}

/// Two versions of a text, of which the second copies from the first, with a file of noise beside the second.
struct Versions {
    place: Arc<TestRepository>,
    source: tempfile::TempDir,
    second: Vec<u8>,
    /// The containers of the first version, and those of the second.
    containers: [Vec<String>; 2],
    /// The segments of the second.
    segments: Vec<String>,
}

impl Versions {
    fn new() -> Self {
        // Whether a chunk copies from another one depends on the key of the repository.
        (0..20).find_map(Self::with_key).unwrap()
    }

    fn with_key(_: u32) -> Option<Self> {
        let (place, source) = (Arc::new(TestRepository::new()), tempfile::tempdir().unwrap());
        let mut random = Random(5);
        let first = random.text(400_000);
        let second = edit(&mut random, &first, 12);
        write(source.path().join("text"), &first);
        back_up(&place.open(), source.path()).unwrap();
        let [old, segments] = ["containers", "index"].map(|prefix| names(&place, prefix));
        write(source.path().join("text"), &second);
        write(source.path().join("noise"), &Random(9).bytes(300_000));
        back_up(&place.open(), source.path()).unwrap();
        let [new, new_segments] = [("containers", &old), ("index", &segments)]
            .map(|(prefix, old)| names(&place, prefix).into_iter().filter(|name| !old.contains(name)).collect());
        let versions = Versions { place, source, second, containers: [old, new], segments: new_segments };
        let copies = versions.containers[1].iter().any(|name| {
            let index = read_container_index(versions.place.open().store.as_ref(), &parse_name(name).unwrap()).unwrap();
            !index.bases_elsewhere().is_empty()
        });
        copies.then_some(versions)
    }
}

#[test]
fn adopted_containers_keep_their_bases() {
    let Versions { place, source, containers: [old, _], segments, .. } = Versions::new();
    delete(&place, &segments);
    let gone = [old, names(&place, "index")].concat();
    delete(&place, &names(&place, "snapshots"));
    // A prune deletes the first version when the backup has seen it and is about to name what copies from it.
    let (other, is_done) = (place.clone(), AtomicBool::new(false));
    let writer = hooked(&place, move |call, _| {
        if call == "put" && !is_done.swap(true, Ordering::SeqCst) {
            delete(&other, &gone);
        }
        Ok(())
    });
    back_up(&writer, source.path()).unwrap();
    assert_sound(&place);
    assert_eq!((snapshots(&place).len(), names(&place, "intents").len()), (1, 0));
}

#[test]
fn a_snapshot_is_not_tagged_once_it_is_forgotten() {
    let Versions { place, .. } = Versions::new();
    let named = snapshots(&place).remove(1);
    let (other, is_done) = (place.clone(), AtomicBool::new(false));
    let tagging = hooked(&place, move |call, name| {
        if call == "put" && name.starts_with("snapshots") && !is_done.swap(true, Ordering::SeqCst) {
            forget_and_prune(&other);
        }
        Ok(())
    });
    let change = TagChange { add: vec!["kept".into()], ..TagChange::default() };
    assert!(matches!(tag(&tagging, &named, &change), Err(Error::NoSuchSnapshot { .. })));
    assert_eq!(names(&place, "snapshots"), [""; 0]);
}

#[test]
fn a_snapshot_whose_backup_may_still_withdraw_it_is_not_tagged() {
    let Versions { place, .. } = Versions::new();
    let named = snapshots(&place).remove(1);
    let store = place.open().store;
    store.put_if_absent(&named.intent_name().unwrap(), &[b"an intent"]).unwrap();
    let change = TagChange { add: vec!["kept".into()], ..TagChange::default() };
    assert!(matches!(tag(&place.open(), &named, &change), Err(Error::Usage(_))));
    store.delete(&named.intent_name().unwrap(), Durable::OnReturn).unwrap();
    assert!(tag(&place.open(), &named, &change).unwrap().is_some());
}

#[test]
fn a_repair_does_not_outlive_what_it_repairs_and_is_not_repeated() {
    let Versions { place, containers: [_, new], .. } = Versions::new();
    // The second version loses its data, so its snapshot can be repaired; the first one stays whole.
    let data = new.iter().max_by_key(|name| place.read(name).len()).unwrap();
    delete(&place, std::slice::from_ref(data));
    let again = place.copy();
    let (other, is_done) = (place.clone(), AtomicBool::new(false));
    let repairing = hooked(&place, move |call, name| {
        if call == "put" && name.starts_with("snapshots") && !is_done.swap(true, Ordering::SeqCst) {
            let ids: Vec<_> = snapshots(&other).iter().map(|named| named.id).collect();
            forget(&other.open(), &ids).unwrap();
        }
        Ok(())
    });
    let repair = |repository: &Repository| {
        repair_snapshots(repository, &TestRepository::config(), SnapshotRepair::default(), &Arc::default())
    };
    assert_eq!(repair(&repairing).unwrap().damaged, []);
    assert_eq!(names(&place, "snapshots"), [""; 0]);
    let replaced: Vec<Option<String>> =
        (0..2).map(|_| repair(&again.open()).unwrap().damaged[0].replaced_by.clone()).collect();
    assert!(replaced[0].is_some() && replaced[0] == replaced[1], "{replaced:?}");
    assert_eq!(names(&again, "snapshots").len(), 3);
    // Only for a replacement of its own does a repair delete a snapshot.
    let request = SnapshotRepair { forget: true, ..SnapshotRepair::default() };
    let report = repair_snapshots(&again.open(), &TestRepository::config(), request, &Arc::default()).unwrap();
    let own = report.damaged[0].replaced_by.clone().unwrap();
    assert_ne!(Some(&own), replaced[0].as_ref(), "{report:?}");
    // The equal one of the earlier repair goes with it.
    assert!(report.forgotten.len() == 2 && report.forgotten.contains(replaced[0].as_ref().unwrap()), "{report:?}");
    let left = names(&again, "snapshots");
    assert!(left.len() == 2 && left.iter().any(|name| name.ends_with(&own)), "{left:?}");
}

#[test]
fn a_container_that_is_there_again_counts_once_what_it_copies_from_is_there_too() {
    let Versions { place, containers: [old, new], .. } = Versions::new();
    let all = [old.clone(), new.clone()].concat();
    let blobs: Vec<Vec<u8>> = all.iter().map(|name| place.read(name)).collect();
    delete(&place, &all);
    let repair = || repair_index(&place.open(), &Arc::default()).unwrap();
    assert_eq!(repair().missing.len(), all.len());
    let put = |wanted: &[String]| {
        for (name, bytes) in all.iter().zip(&blobs).filter(|(name, _)| wanted.contains(name)) {
            place.open().store.put_if_absent(&named(name), &[bytes]).unwrap();
        }
        repair().returned as usize
    };
    let returned = put(&new);
    assert!(returned < new.len(), "{returned} of {}", new.len());
    assert_eq!(returned + put(&old), all.len());
    assert_eq!(names(&place, "marks"), [""; 0]);
    assert_sound(&place);
}

#[test]
fn a_prune_that_another_one_has_finished_names_nothing() {
    let (place, source) = (Arc::new(TestRepository::new()), tempfile::tempdir().unwrap());
    (0..8).for_each(|seed| write(source.path().join(seed.to_string()), &Random(seed).bytes(100_000)));
    back_up(&place.open(), source.path()).unwrap();
    let first = snapshots(&place).remove(0).id;
    (2..8).for_each(|seed| std::fs::remove_file(source.path().join(seed.to_string())).unwrap());
    back_up(&place.open(), source.path()).unwrap();
    forget(&place.open(), &[first]).unwrap();
    let (other, is_done) = (place.clone(), AtomicBool::new(false));
    let pruning = hooked(&place, move |call, name| {
        if call == "put" && name.starts_with("containers") && !is_done.swap(true, Ordering::SeqCst) {
            prune(&other.open(), &no_grace(), &Arc::default()).unwrap();
        }
        Ok(())
    });
    let report = prune(&pruning, &no_grace(), &Arc::default()).unwrap();
    assert!(report.withdrawn, "{report:?}");
    assert_eq!((report.containers_deleted, names(&place, "pending").len()), (0, 0));
    assert_sound(&place);
    prune(&place.open(), &no_grace(), &Arc::default()).unwrap();
    assert_sound(&place);
}

#[test]
fn what_copies_from_nothing_goes_before_an_entry_that_nobody_can_read() {
    let Versions { place, source, second, containers: [old, _], .. } = Versions::new();
    std::fs::remove_file(source.path().join("text")).unwrap();
    back_up(&place.open(), source.path()).unwrap();
    // A prune was killed when it had deleted the first version, and its entry is damaged.
    let ids: Vec<_> = snapshots(&place)[..2].iter().map(|named| named.id).collect();
    forget(&place.open(), &ids).unwrap();
    delete(&place, &old);
    place.open().store.put_if_absent(&named(&format!("pending/{}", "ab".repeat(16))), &[b"garbage"]).unwrap();
    let options = PruneOptions { repack_bytes_max: 0, ..no_grace() };
    prune(&place.open(), &options, &Arc::default()).unwrap();
    assert_eq!(names(&place, "pending"), [""; 0]);
    write(source.path().join("text"), &second);
    back_up(&place.open(), source.path()).unwrap();
    assert_sound(&place);
}

#[test]
fn an_entry_that_takes_the_place_of_another_one_is_seen() {
    let place = Arc::new(TestRepository::new());
    let ids = |byte| [ContainerId([byte; 32])].into_iter().collect();
    let put = |place: &TestRepository, id, containers| {
        ContainerClaim::put(place.open().store.as_ref(), ClaimKind::Pending, &[id; 16], &containers).unwrap()
    };
    let first = put(&place, 1, ids(1));
    let (other, is_done) = (place.clone(), AtomicBool::new(false));
    let looking = hooked(&place, move |call, name| {
        if call == "get" && name == first.name.as_str() && !is_done.swap(true, Ordering::SeqCst) {
            put(&other, 2, ids(2));
            delete(&other, &[first.name.to_string()]);
        }
        Ok(())
    });
    assert_eq!(ContainerClaim::containers_of(looking.store.as_ref(), ClaimKind::Pending).unwrap(), ids(2));
}

#[test]
fn a_prune_that_gives_way_leaves_what_writers_have_noted() {
    let Versions { place, .. } = Versions::new();
    let named = snapshots(&place).remove(1);
    let note = IntentNote::Withdrawn.name(&named.intent_name().unwrap());
    place.open().store.put_if_absent(&note, &[]).unwrap();
    let (other, lists) = (place.clone(), AtomicUsize::new(0));
    let pruning = hooked(&place, move |call, name| {
        // Before it begins, a prune lists the snapshots once.
        if call == "list" && name == "snapshots" && lists.fetch_add(1, Ordering::SeqCst) == 1 {
            let claim = [ContainerId([7; 32])].into_iter().collect();
            ContainerClaim::put(other.open().store.as_ref(), ClaimKind::Pending, &[3; 16], &claim).unwrap();
        }
        Ok(())
    });
    assert!(prune(&pruning, &no_grace(), &Arc::default()).unwrap().withdrawn);
    assert_eq!(names(&place, "intents"), [note]);
    prune(&place.open(), &no_grace(), &Arc::default()).unwrap();
    assert_eq!((names(&place, "intents").len(), names(&place, "snapshots").len()), (0, 2), "it is whole");
}

#[test]
fn a_backup_that_was_taken_for_dead_puts_its_intent_again() {
    let Versions { place, source, .. } = Versions::new();
    write(source.path().join("more"), &Random(11).bytes(100_000));
    let (other, looks) = (place.clone(), AtomicUsize::new(0));
    let held = Arc::<Mutex<Vec<usize>>>::default();
    let seen = held.clone();
    let writer = hooked(&place, move |call, name| {
        // The second look at the marks is just before the snapshot.
        if call == "list" && name == "marks" && looks.fetch_add(1, Ordering::SeqCst) == 1 {
            delete(&other, &names(&other, "intents"));
        }
        if call == "put" && name.starts_with("snapshots") {
            seen.lock().unwrap().push(names(&other, "intents").len());
        }
        Ok(())
    });
    back_up(&writer, source.path()).unwrap();
    assert_eq!(*held.lock().unwrap(), [1]);
    assert_eq!(names(&place, "intents"), [""; 0]);
}
