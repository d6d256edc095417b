//! A share that comes and goes: listings that lack what is there, and one wrong or failed read. What was not read is not
//! absent, and what a listing lacks is asked for by name.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use fhrd::backup::{BackupReport, BackupRequest, ParentChoice, TreeSource, backup};
use fhrd::config::Config;
use fhrd::error::{Error, Result};
use fhrd::inspect::check::{CheckReport, check};
use fhrd::keep::{PruneOptions, TagChange, forget, prune, tag};
use fhrd::metrics::Progress;
use fhrd::repair::containers::repair_containers;
use fhrd::repair::index::repair_index;
use fhrd::repair::quarantine;
use fhrd::repair::snapshots::{SnapshotRepair, SnapshotsReport, repair_snapshots};
use fhrd::repo::Repository;
use fhrd::repo::bundle;
use fhrd::repo::claims::{ClaimKind, ContainerClaim};
use fhrd::repo::container::{blob_name, parse_name};
use fhrd::repo::index::ContainerListing;
use fhrd::repo::marks::Marks;
use fhrd::repo::paths::cache_directory;
use fhrd::repo::snapshot;
use fhrd::repo::snapshot_listing;
use fhrd::store::ListedBlob;

use crate::copied::assert_restores;
use crate::hooked::HookedStore;
use crate::input::{TestRepository, write};
use crate::interleavings::scene::no_grace;
use crate::trees::Random;

/// A repository with two snapshots. The second one has a file less.
struct Scene {
    place: TestRepository,
    source: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let scene = Scene { place: TestRepository::new(), source: tempfile::tempdir().unwrap() };
        for seed in 0..4 {
            write(scene.source.path().join(seed.to_string()), &Random(seed).bytes(200_000));
        }
        back_up(&scene.place.open(), scene.source.path()).unwrap();
        fs::remove_file(scene.source.path().join("3")).unwrap();
        back_up(&scene.place.open(), scene.source.path()).unwrap();
        scene
    }

    /// The same without its first snapshot.
    fn with_waste() -> Self {
        let scene = Self::new();
        let first = snapshot::list(scene.place.open().store.as_ref()).unwrap().0.remove(0);
        forget(&scene.place.open(), &[first.id]).unwrap();
        scene
    }

    /// Lets bundles have copies of all snapshots.
    fn bundle(&self) {
        assert!(bundle::maintain(self.place.open().store.as_ref(), 1).unwrap() > 0);
    }

    fn forget_bundles(&self) {
        self.names("bundles").iter().for_each(|name| fs::remove_file(self.place.path().join(name)).unwrap());
    }

    fn forget_cache(&self) {
        let _ = fs::remove_dir_all(cache_directory(&self.place.open()).unwrap());
    }

    fn spoil(&self, name: &str) {
        let mut bytes = self.place.read(name);
        let at = bytes.len() / 4;
        bytes[at] ^= 1;
        fs::write(self.place.path().join(name), bytes).unwrap();
    }

    fn names(&self, prefix: &str) -> Vec<String> {
        names(&self.place, prefix)
    }

    /// The container of the first files.
    fn container(&self) -> String {
        self.names("containers").into_iter().max_by_key(|name| self.place.read(name).len()).unwrap()
    }
}

fn names(place: &TestRepository, prefix: &str) -> Vec<String> {
    place.names().into_iter().filter(|name| name.starts_with(prefix)).collect()
}

fn back_up(repository: &Repository, source: &Path) -> Result<BackupReport> {
    let (paths, force, without_pauses) = (vec![source.into()], true, true);
    let request = BackupRequest {
        without_pauses,
        ..BackupRequest::new(TreeSource { parents: ParentChoice::new(force, None), ..TreeSource::new(paths, "test") })
    };
    backup(repository, &TestRepository::config(), &request, &Progress::default(), &Arc::default())
}

fn checked(repository: &Repository) -> CheckReport {
    check(repository, &Config::default(), true, &Progress::default(), &Arc::default()).unwrap()
}

fn assert_sound(place: &TestRepository, what: &str) {
    let report = checked(&place.open());
    assert_eq!((report.defects, report.snapshots), (Vec::new(), 1), "{what}");
}

/// Empties listing number `nth` of what is below `wanted`.
fn without_listing(
    wanted: &'static str,
    nth: usize,
) -> impl Fn(&str, Vec<ListedBlob>) -> Vec<ListedBlob> + Send + Sync + 'static {
    let count = AtomicUsize::new(0);
    move |prefix, listed| {
        let is_it = prefix == wanted && count.fetch_add(1, Ordering::SeqCst) == nth;
        if is_it { Vec::new() } else { listed }
    }
}

fn repaired(repository: &Repository, dry_run: bool) -> SnapshotsReport {
    let request = SnapshotRepair { dry_run, forget: true, ..SnapshotRepair::default() };
    repair_snapshots(repository, &TestRepository::config(), request, &Arc::default()).unwrap()
}

#[test]
fn a_prune_does_not_take_a_snapshot_that_one_listing_lacks_for_forgotten() {
    let scene = Scene::with_waste();
    scene.bundle();
    for nth in 0..4 {
        // The copy has no local cache: what is known of the first listing is in a bundle.
        let place = scene.place.copy();
        let pruning = HookedStore::new(&place).listing(without_listing("snapshots", nth)).open();
        let report = prune(&pruning, &no_grace(), &Arc::default()).unwrap();
        assert!(report.containers_deleted > 0 && report.snapshots == 1, "listing {nth}: {report:?}");
        assert_sound(&place, &format!("listing {nth}"));
    }
    // Listings that stay short give an error, also if only the local cache knows the snapshot.
    for has_bundle in [true, false] {
        if !has_bundle {
            assert_eq!(snapshot_listing::list(&scene.place.open()).unwrap().snapshots.len(), 1);
            scene.forget_bundles();
        }
        let pruning = HookedStore::new(&scene.place).listing(|prefix, listed| match prefix {
            "snapshots" => Vec::new(),
            _ => listed,
        });
        let error = prune(&pruning.open(), &no_grace(), &Arc::default()).unwrap_err();
        assert!(error.to_string().contains("a listing of its directory lacks it"), "{error}");
        assert_sound(&scene.place, "after short listings");
    }
}

#[test]
fn a_prune_does_not_take_an_intent_or_an_entry_that_one_listing_lacks_for_gone() {
    let scene = Scene::with_waste();
    let all: Vec<String> = scene.names("containers");
    for name in &all {
        let file = File::options().write(true).open(scene.place.path().join(name)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(100_000)).unwrap();
    }
    let ids = all.iter().map(|name| parse_name(name).unwrap()).collect();
    ContainerClaim::put(scene.place.open().store.as_ref(), ClaimKind::Intent, &[7; 16], &ids).unwrap();
    let options = PruneOptions { grace: Duration::from_secs(3600), ..no_grace() };
    // The first listing of intents is that of notes.
    for (prefix, nth) in [("intents", 1), ("intents", 2), ("intents", 3), ("pending", 1), ("pending", 2)] {
        let pruning = HookedStore::new(&scene.place).listing(without_listing(prefix, nth)).open();
        let report = prune(&pruning, &options, &Arc::default()).unwrap();
        assert_eq!((report.containers_deleted, scene.names("containers")), (0, all.clone()), "{prefix} {nth}");
        assert!(report.containers_held > 0, "{prefix} {nth}: {report:?}");
    }
}

#[test]
fn a_prune_takes_no_container_that_one_listing_lacks_for_gone() {
    let scene = Scene::with_waste();
    let mut shortened = 0;
    for hidden in scene.names("containers") {
        for nth in 0..8 {
            let what = format!("without {hidden} in listing {nth}");
            let place = scene.place.copy();
            let (hidden, count) = (hidden.clone(), Arc::new(AtomicUsize::new(0)));
            let listings = count.clone();
            let pruning = HookedStore::new(&place).listing(move |prefix, mut listed| {
                if prefix == "containers" && listings.fetch_add(1, Ordering::SeqCst) == nth {
                    listed.retain(|blob| *blob.name != *hidden);
                }
                listed
            });
            prune(&pruning.open(), &no_grace(), &Arc::default()).unwrap();
            shortened += usize::from(count.load(Ordering::SeqCst) > nth);
            assert_sound(&place, &what);
            assert_eq!(checked(&place.open()).unreferenced_containers, 0, "{what}");
        }
    }
    assert!(shortened > 8, "{shortened}");
    // A listing that stays short gives an error, and nothing is deleted.
    let (before, hidden) = (scene.names("containers"), scene.container());
    let pruning = HookedStore::new(&scene.place).listing(move |_, mut listed| {
        listed.retain(|blob| *blob.name != *hidden);
        listed
    });
    let error = prune(&pruning.open(), &no_grace(), &Arc::default()).unwrap_err();
    assert!(error.to_string().contains("a listing of its directory lacks it"), "{error}");
    assert_eq!(scene.names("containers"), before);
}

#[test]
fn what_a_listing_of_containers_lacks_is_found_by_name() {
    let scene = Scene::with_waste();
    // It is restored as the second snapshot has it.
    for name in scene.names("containers") {
        let hidden = name.clone();
        let hide = move |_: &str, listed: Vec<ListedBlob>| {
            listed.into_iter().filter(|blob| *blob.name != *hidden).collect::<Vec<_>>()
        };
        let reading = HookedStore::new(&scene.place).listing(hide.clone()).open();
        assert_restores(&reading, scene.source.path(), &name);
        let report = checked(&reading);
        assert_eq!((report.defects, report.containers), (Vec::new(), scene.names("containers").len() as u64));
        assert!(report.notes.iter().any(|note| note.contains(&name)), "{:?}", report.notes);
        let report = repaired(&reading, false);
        assert_eq!((report.whole, report.damaged.len(), report.forgotten.len()), (1, 0, 0), "{name}: {report:?}");
        // If nobody can look, the snapshot is left as it is.
        let unseen = name.clone();
        let failing = HookedStore::new(&scene.place).listing(hide).before(move |call, name| {
            let source = std::io::Error::from_raw_os_error(5);
            let error = Error::Unreadable { what: name.into(), offset: 0, source };
            if call == "head" && name == unseen { Err(error) } else { Ok(()) }
        });
        let report = repaired(&failing.open(), false);
        assert!(report.forgotten.is_empty(), "{name}: {report:?}");
        assert!(report.damaged.iter().all(|damaged| damaged.replaced_by.is_none()), "{name}: {report:?}");
    }
    // What is really gone is still said.
    fs::remove_file(scene.place.path().join(scene.container())).unwrap();
    let report = repaired(&scene.place.open(), false);
    assert_eq!((report.damaged.len(), report.forgotten.len()), (1, 1), "{report:?}");
}

#[test]
fn what_a_second_listing_of_containers_lacks_is_still_there() {
    let scene = Scene::with_waste();
    let lost = scene.container();
    // Readers list again because one container is gone. The second listing lacks all others.
    let data = scene.place.read(&lost);
    let (path, count) = (scene.place.path().join(&lost), AtomicUsize::new(0));
    let reading = HookedStore::new(&scene.place).listing(move |prefix, listed| match prefix {
        "containers" if count.fetch_add(1, Ordering::SeqCst) == 0 => {
            fs::remove_file(&path).unwrap();
            listed
        }
        "containers" => Vec::new(),
        _ => listed,
    });
    let report = repaired(&reading.open(), true);
    assert_eq!(report.damaged.len(), 1, "{report:?}");
    assert!(report.damaged[0].dropped.iter().all(|text| !text.contains("directory")), "{report:?}");
    write(scene.place.path().join(&lost), &data);
    assert_sound(&scene.place, "at the end");
}

#[test]
fn what_a_repair_has_listed_once_is_not_lost_because_later_listings_are_empty() {
    let scene = Scene::new();
    let before = scene.names("snapshots");
    let mut emptied = 0;
    for first in 0..12 {
        for count in 1..8 {
            let (place, listings) = (scene.place.copy(), Arc::new(AtomicUsize::new(0)));
            let counted = listings.clone();
            let reading = HookedStore::new(&place).listing(move |prefix, listed| match prefix {
                "containers" | "index" if (first..first + count).contains(&counted.fetch_add(1, Ordering::SeqCst)) => {
                    Vec::new()
                }
                _ => listed,
            });
            let request = SnapshotRepair { forget: true, ..SnapshotRepair::default() };
            let config = TestRepository::config();
            let report = repair_snapshots(&reading.open(), &config, request, &Arc::default());
            emptied += usize::from(listings.load(Ordering::SeqCst) > first);
            assert_eq!(names(&place, "snapshots"), before, "listings {first} and {count} in all: {report:?}");
        }
    }
    assert!(emptied > 20, "{emptied}");
}

#[test]
fn what_a_repair_has_listed_once_is_not_lost_because_later_listings_lack_it() {
    let scene = Scene::new();
    write(scene.source.path().join("new"), &Random(9).bytes(200_000));
    back_up(&scene.place.open(), scene.source.path()).unwrap();
    let (before, store) = (scene.names("snapshots"), scene.place.open().store);
    let segments = ContainerListing::take(&store).unwrap().segments();
    assert!(segments.len() > 1, "the others are still listed");
    for segment in segments.iter() {
        let mut hidden: Vec<String> = segment.containers().iter().map(|id| blob_name(id).to_string()).collect();
        hidden.push(segment.name().to_string());
        let mut shortened = 0;
        for first in 0..12 {
            // Nobody can know what no listing has shown.
            for count in [1, 2, 20].into_iter().filter(|count| first > 0 || *count < 20) {
                let (place, listings, hidden) = (scene.place.copy(), Arc::new(AtomicUsize::new(0)), hidden.clone());
                let counted = listings.clone();
                let reading = HookedStore::new(&place).listing(move |prefix, listed| match prefix {
                    "containers" | "index"
                        if (first..first + count).contains(&counted.fetch_add(1, Ordering::SeqCst)) =>
                    {
                        listed
                            .into_iter()
                            .filter(|blob| !hidden.iter().any(|name| blob.name == *name.as_str()))
                            .collect()
                    }
                    _ => listed,
                });
                let request = SnapshotRepair { forget: true, ..SnapshotRepair::default() };
                let config = TestRepository::config();
                let report = repair_snapshots(&reading.open(), &config, request, &Arc::default());
                shortened += usize::from(listings.load(Ordering::SeqCst) > first);
                let what = format!("{} {first} {count}: {report:?}", segment.name());
                assert_eq!(names(&place, "snapshots"), before, "{what}");
            }
        }
        assert!(shortened > 10, "{shortened}");
    }
}

/// Puts the entry of a prune that may delete all containers.
fn announce_prune(place: &TestRepository) {
    let ids = names(place, "containers").iter().map(|name| parse_name(name).unwrap()).collect();
    ContainerClaim::put(place.open().store.as_ref(), ClaimKind::Pending, &[7; 16], &ids).unwrap();
}

#[test]
fn a_prune_that_one_listing_lacks_is_in_the_way_of_tags_and_repairs() {
    let scene = Scene::with_waste();
    announce_prune(&scene.place);
    let before = scene.names("snapshots");
    let shortened = Arc::new(AtomicUsize::new(0));
    for nth in 0..3 {
        let place = scene.place.copy();
        let counted = shortened.clone();
        let hide = without_listing("pending", nth);
        let tagging = HookedStore::new(&place).listing(move |prefix, listed| {
            let len = listed.len();
            let shown = hide(prefix, listed);
            counted.fetch_add(usize::from(shown.len() < len), Ordering::SeqCst);
            shown
        });
        let repository = tagging.open();
        let named = snapshot::list(repository.store.as_ref()).unwrap().0.remove(0);
        let change = TagChange { add: vec!["more".into()], ..TagChange::default() };
        let error = tag(&repository, &named, &change).unwrap_err();
        assert!(error.to_string().contains("a prune is running"), "{error}");
        assert_eq!(names(&place, "snapshots"), before, "listing {nth}");
    }
    // What the repair of containers has stored may go before a mark says that it is elsewhere.
    let container = scene.container();
    let mut bytes = scene.place.read(&container);
    let end = bytes.len();
    bytes[end - 100] ^= 1;
    fs::write(scene.place.path().join(&container), bytes).unwrap();
    for nth in 0..6 {
        let place = scene.place.copy();
        let repairing = HookedStore::new(&place).listing(without_listing("pending", nth)).open();
        let error = repair_containers(&repairing, &TestRepository::config(), &Arc::default()).unwrap_err();
        assert!(error.to_string().contains("a prune is running"), "listing {nth}: {error}");
        assert_eq!(names(&place, "marks"), [""; 0], "listing {nth}");
    }
    assert!(shortened.load(Ordering::SeqCst) > 0);
}

#[test]
fn a_damaged_snapshot_of_which_there_is_a_copy_is_written_again() {
    for has_bundle in [true, false] {
        let scene = Scene::new();
        if has_bundle {
            scene.bundle();
            scene.forget_cache();
        } else {
            assert_eq!(snapshot_listing::list(&scene.place.open()).unwrap().snapshots.len(), 2);
        }
        let name = scene.names("snapshots").remove(0);
        let (sound, id) = (scene.place.read(&name), name.rsplit('/').next().unwrap().to_string());
        scene.spoil(&name);
        let report = repaired(&scene.place.open(), true);
        assert_eq!((report.healed.as_slice(), report.whole), ([id.clone()].as_slice(), 2), "{report:?}");
        assert_ne!(scene.place.read(&name), sound, "a dry run writes nothing");
        let report = repaired(&scene.place.open(), false);
        assert_eq!((report.healed.as_slice(), report.whole, report.forgotten.len()), ([id].as_slice(), 2, 0));
        assert_eq!(scene.place.read(&name), sound);
        scene.spoil(&name);
        assert_eq!(repair_index(&scene.place.open(), &Arc::default()).unwrap().snapshots_healed, 1);
        assert_eq!(scene.place.read(&name), sound);
        // Without a copy it is lost.
        scene.spoil(&name);
        scene.forget_bundles();
        scene.forget_cache();
        let report = repaired(&scene.place.open(), false);
        assert_eq!((report.healed.len(), report.unreadable.len(), report.forgotten.len()), (0, 1, 1), "{report:?}");
        assert_eq!(scene.names("snapshots").len(), 1);
    }
}

#[test]
fn one_wrong_read_of_a_snapshot_deletes_nothing() {
    let scene = Scene::new();
    scene.forget_cache();
    let (wanted, reads) = (scene.names("snapshots").remove(0), AtomicUsize::new(0));
    let reading = HookedStore::new(&scene.place).bytes(move |name, mut bytes| {
        if name == wanted && reads.fetch_add(1, Ordering::SeqCst) == 0 {
            bytes[20] ^= 1;
        }
        bytes
    });
    let report = repaired(&reading.open(), false);
    assert_eq!((report.whole, report.unreadable.len(), report.forgotten.len()), (2, 0, 0), "{report:?}");
    assert_eq!(scene.names("snapshots").len(), 2);
}

/// A scene whose largest container has damage that a mark lists.
fn marked() -> Scene {
    let scene = Scene::with_waste();
    scene.spoil(&scene.container());
    let before = Marks::read(scene.place.open().store.as_ref()).unwrap();
    quarantine::record(&scene.place.open(), &before, &checked(&scene.place.open())).unwrap();
    assert_eq!(scene.names("marks").len(), 1);
    scene
}

/// Lets each read of a mark fail.
fn fail_on_marks(call: &str, name: &str) -> Result<()> {
    let source = std::io::Error::from_raw_os_error(5);
    let error = Error::Unreadable { what: name.into(), offset: 0, source };
    if call == "get" && name.starts_with("marks/") { Err(error) } else { Ok(()) }
}

#[test]
fn a_backup_says_that_it_could_not_read_what_is_marked_as_bad() {
    let scene = marked();
    let writer = HookedStore::new(&scene.place).before(fail_on_marks).open();
    let report = back_up(&writer, scene.source.path()).unwrap();
    assert!(report.marks_unread == 1 && !report.is_complete(), "{report:?}");
    let writer = HookedStore::new(&scene.place).listing(without_listing("marks", 0)).open();
    let report = back_up(&writer, scene.source.path()).unwrap();
    assert!(report.marks_unread == 1 && !report.is_complete(), "{report:?}");
    let report = back_up(&scene.place.open(), scene.source.path()).unwrap();
    assert!(report.marks_unread == 0 && report.bytes_new > 0, "{report:?}");
}

#[test]
fn a_prune_keeps_what_was_stored_in_place_of_marked_bytes_if_the_mark_cannot_be_read() {
    let scene = marked();
    back_up(&scene.place.open(), scene.source.path()).unwrap();
    let options = PruneOptions { repack_bytes_max: 0, ..no_grace() };
    let before = scene.names("containers");
    let pruning = HookedStore::new(&scene.place).before(fail_on_marks).open();
    let error = prune(&pruning, &options, &Arc::default()).unwrap_err();
    assert!(error.to_string().contains("marks/"), "{error}");
    assert_eq!((scene.names("containers"), scene.names("pending").len()), (before, 0));
    let restores = |place: &TestRepository, what: &str| {
        let report = checked(&place.open());
        assert_eq!((report.defects, report.snapshots), (Vec::new(), 2), "{what}");
    };
    for nth in 0..3 {
        let place = scene.place.copy();
        let pruning = HookedStore::new(&place).listing(without_listing("marks", nth)).open();
        drop(prune(&pruning, &options, &Arc::default()));
        restores(&place, &format!("listing {nth} of marks"));
    }
}

#[test]
fn a_backup_whose_intent_a_prune_has_not_seen_stores_again_what_that_has_deleted() {
    let scene = Scene::with_waste();
    let named = snapshot::list(scene.place.open().store.as_ref()).unwrap().0.remove(0);
    forget(&scene.place.open(), &[named.id]).unwrap();
    let (path, is_done) = (scene.place.path(), AtomicUsize::new(0));
    let blind = HookedStore::new(&scene.place).listing(|prefix, listed| match prefix {
        "intents" => Vec::new(),
        _ => listed,
    });
    let blind = blind.open();
    let writer = HookedStore::new(&scene.place).before(move |call, name| {
        if call == "put" && name.starts_with("snapshots") && is_done.fetch_add(1, Ordering::SeqCst) == 0 {
            let report = prune(&blind, &no_grace(), &Arc::default()).unwrap();
            assert!(report.containers_deleted > 0 && path.exists(), "{report:?}");
        }
        Ok(())
    });
    back_up(&writer.open(), scene.source.path()).unwrap();
    assert_sound(&scene.place, "at the end");
    assert_restores(&scene.place.open(), scene.source.path(), "at the end");
}
