//! Which containers are to be thawed: those that the restore will read, and no other.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fhrd::config::RepositoryConfig;
use fhrd::error::ErrorKind;
use fhrd::keep::prune;
use fhrd::metrics::Progress;
use fhrd::repair::index::repair_index;
use fhrd::repo::Repository;
use fhrd::repo::cold::{add, set, verify};
use fhrd::repo::container::parse_name;
use fhrd::repo::index::ContainerListing;
use fhrd::repo::marks::{BadParts, Mark, MarkKind, Quarantine};
use fhrd::repo::snapshot::{self, NamedSnapshot};
use fhrd::restore::{Overwrite, RestoreRequest, needed_containers, restore};
use fhrd::store::{
    BlobKind, BlobName, BlobPrefix, Durable, MemoryStore, ObservedStore, Store, StoreCall, StoreObserver,
};

use crate::cold::{freeze, is_data, open, run_check};
use crate::flips::{back_up, config};
use crate::input::write;
use crate::interleavings::scene::no_grace;
use crate::trees::Random;

/// Notes the data containers that are read.
#[derive(Clone, Default)]
struct Reads {
    store: Arc<MemoryStore>,
    names: Arc<std::sync::Mutex<BTreeSet<String>>>,
}

impl StoreObserver for Reads {
    fn before(&self, call: StoreCall, name: &str) -> fhrd::Result<u64> {
        if matches!(call, StoreCall::Get | StoreCall::GetRange) && is_data(&self.store, name) {
            self.names.lock().unwrap().insert(name.into());
        }
        Ok(0)
    }
}

/// What is said to be needed, and what the restore then reads.
fn needed_and_read(reads: &Reads, named: &NamedSnapshot, request: &RestoreRequest) -> [BTreeSet<String>; 2] {
    let repository = open(Arc::new(ObservedStore::with(reads.store.clone(), reads.clone())));
    reads.names.lock().unwrap().clear();
    let needed = needed_containers(&repository, named, request, &Arc::default()).unwrap();
    assert!(reads.names.lock().unwrap().is_empty(), "to know what is needed, nothing cold is read");
    restore(&repository, &config(), named, request.clone(), &Progress::default(), &Arc::default()).unwrap();
    let text = |name: &BlobName| name.to_string();
    assert_eq!((needed.missing, needed.missing_count), (Vec::new(), 0));
    [needed.there.iter().map(|one| text(&one.name)).collect(), std::mem::take(&mut *reads.names.lock().unwrap())]
}

#[test]
fn what_the_target_has_is_not_asked_for() {
    let reads = Reads::default();
    let repository = Repository::init(reads.store.clone(), &RepositoryConfig::default()).unwrap();
    set(&repository, true).unwrap();
    let (source, mut random) = (tempfile::tempdir().unwrap(), Random(9));
    // Each backup stores a container of its own.
    for number in 0..4 {
        write(source.path().join(format!("directory-{number}/file")), &random.bytes(5000));
        back_up(&repository, source.path());
    }
    let (all, damaged) = snapshot::list(repository.store.as_ref()).unwrap();
    assert!(damaged.is_empty());
    let named = all.into_iter().max_by_key(|named| named.snapshot.time_ns).unwrap();
    let target = tempfile::tempdir().unwrap();
    let target = target.path().join("target");
    let request = |overwrite| RestoreRequest { target: target.clone(), overwrite, ..RestoreRequest::default() };
    let check = |overwrite, expected: usize, what: &str| {
        let [needed, read] = needed_and_read(&reads, &named, &request(overwrite));
        assert_eq!((needed.len(), &needed), (expected, &read), "{what}");
    };
    check(Overwrite::Never, 4, "an empty target");
    check(Overwrite::Never, 0, "all is there");
    check(Overwrite::IfChanged, 0, "all is there and the same");
    check(Overwrite::Always, 0, "all is compared");
    let root = target.join(source.path().file_name().unwrap());
    let file = |number: usize| root.join(format!("directory-{number}/file"));
    fs::remove_dir_all(file(1).parent().unwrap()).unwrap();
    check(Overwrite::Never, 1, "a directory is missing");
    let change = |path: &Path| {
        let mut bytes = fs::read(path).unwrap();
        bytes[100] ^= 1;
        fs::write(path, &bytes).unwrap();
    };
    change(&file(2));
    check(Overwrite::Never, 0, "what differs stays");
    check(Overwrite::IfChanged, 1, "what differs is replaced");
    fs::set_permissions(file(3), fs::Permissions::from_mode(0o700)).unwrap();
    check(Overwrite::IfChanged, 0, "only metadata differs");
    fs::remove_file(file(0)).unwrap();
    fs::create_dir(file(0)).unwrap();
    // The restore reports the directory in the way, and reads nothing for it.
    let needed = needed_containers(&open(reads.store.clone()), &named, &request(Overwrite::Always), &Arc::default());
    assert!(needed.unwrap().there.is_empty());
    assert!(reads.store.properties().local_path.is_none());
}

#[test]
fn what_a_restore_survives_does_not_end_the_list_of_what_it_needs() {
    let (store, named) = two_containers();
    let request = RestoreRequest { target: "/nowhere".into(), ..RestoreRequest::default() };
    let needed = |repository: &Repository| needed_containers(repository, &named, &request, &Arc::default()).unwrap();
    let all = needed(&open(store.clone())).there;
    assert_eq!(all.len(), 2);
    // Listings and recipes of single directories and files are lost, the containers of metadata one at a time.
    let is_metadata = |name: &BlobName| !all.iter().any(|needed| needed.name == *name);
    let (mut partial, containers) = (0, store.list(BlobKind::Container.into()).unwrap());
    for blob in containers.iter().filter(|blob| is_metadata(&blob.name)) {
        let copy = Arc::new(MemoryStore::new());
        for blob in store.list(BlobPrefix::All).unwrap() {
            copy.replace(&blob.name, &store.get(&blob.name, 1 << 30).unwrap());
        }
        for at in (0..blob.len as usize).step_by(64) {
            let right = store.get(&blob.name, 1 << 30).unwrap();
            let mut bytes = right.clone();
            bytes[at] ^= 1;
            copy.replace(&blob.name, &bytes);
            let Ok(found) = needed_containers(&open(copy.clone()), &named, &request, &Arc::default()) else { continue };
            if found.there.len() < all.len() {
                assert!(found.missing_count > 0, "{at} of {}", blob.name);
                partial += usize::from(found.there.len() == 1);
            }
        }
    }
    assert!(partial > 0, "one directory is lost, and the other one is needed");
}

/// A cold repository with two data containers, and its last snapshot, which needs both.
fn two_containers() -> (Arc<MemoryStore>, NamedSnapshot) {
    let store = Arc::new(MemoryStore::new());
    let repository = Repository::init(store.clone(), &RepositoryConfig::default()).unwrap();
    set(&repository, true).unwrap();
    let (source, mut random) = (tempfile::tempdir().unwrap(), Random(9));
    for number in 0..2 {
        write(source.path().join(format!("directory-{number}/file")), &random.bytes(5000));
        back_up(&repository, source.path());
    }
    let all = snapshot::list(repository.store.as_ref()).unwrap().0;
    let named = all.into_iter().max_by_key(|named| named.snapshot.time_ns).unwrap();
    (store, named)
}

#[test]
fn what_is_missing_is_named_with_and_without_its_hot_index() {
    let (store, named) = two_containers();
    let target = tempfile::tempdir().unwrap();
    let request = RestoreRequest { target: target.path().join("target"), ..RestoreRequest::default() };
    let needed = || needed_containers(&open(store.clone()), &named, &request, &Arc::default()).unwrap();
    let lost = needed().there[0].name.clone();
    store.delete(&lost, Durable::OnReturn).unwrap();
    let is_named = || {
        let found = needed();
        found.there.len() == 1 && found.missing_count > 0 && found.missing.contains(&format!("{lost} is missing"))
    };
    assert!(is_named(), "{:?}", needed());
    store.delete(&BlobName::hot_index_of(&lost.hash().unwrap()), Durable::OnReturn).unwrap();
    assert!(is_named(), "{:?}", needed());
}

/// A cold repository with two snapshots, of which one data container has no hot index and is in cold storage.
fn without_hot_index() -> (Arc<MemoryStore>, NamedSnapshot, BlobName) {
    let (store, named) = two_containers();
    let request = RestoreRequest { target: "/nonexistent/target".into(), ..RestoreRequest::default() };
    let needed = needed_containers(&open(store.clone()), &named, &request, &Arc::default()).unwrap();
    assert!(needed.there.len() == 2 && !needed.lacks_indexes);
    let bare = needed.there[0].name.clone();
    store.delete(&BlobName::hot_index_of(&bare.hash().unwrap()), Durable::OnReturn).unwrap();
    (store, named, bare)
}

#[test]
fn a_cold_container_without_a_hot_index_is_asked_for_and_stops_no_repair() {
    let (store, named, bare) = without_hot_index();
    let target = tempfile::tempdir().unwrap();
    let request = RestoreRequest { target: target.path().join("target"), ..RestoreRequest::default() };
    let frozen = || open(freeze(&store).0);
    let needed = needed_containers(&frozen(), &named, &request, &Arc::default()).unwrap();
    assert!(needed.lacks_indexes && needed.there.iter().any(|one| one.name == bare), "{needed:?}");
    assert_eq!(needed.missing_count, 0, "{needed:?}");
    let checked = run_check(&frozen(), false).unwrap();
    assert!(checked.defects.iter().any(|text| text.contains(bare.as_str())), "{checked:#?}");
    // Nor does a repair of the index end, whatever a mark says of it.
    let mut bad = Quarantine::default();
    bad.insert(parse_name(&bare).unwrap(), &BadParts::Whole);
    Mark::new(MarkKind::Quarantine(bad), "a test").save(store.as_ref()).unwrap();
    let report = repair_index(&frozen(), &Arc::default()).unwrap();
    assert!(report.unreadable.iter().any(|text| text.contains(bare.as_str())), "{report:?}");
    let checked = run_check(&frozen(), false).unwrap();
    assert!(checked.defects.iter().any(|text| text.contains(bare.as_str())), "{checked:#?}");
}

#[test]
fn a_prune_that_needs_a_container_without_a_hot_index_says_what_to_do() {
    let (store, named, bare) = without_hot_index();
    let error = prune(&open(freeze(&store).0), &no_grace(), &Arc::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cold, "{error:?}");
    let text = error.to_string();
    assert!(text.contains(bare.as_str()) && text.contains("`fhrd cold add`"), "{text}");
    // It was asked for, and can be read for a while.
    add(&open(store.clone()), &Progress::default(), &AtomicBool::new(false)).unwrap();
    let (frozen, freezer) = freeze(&store);
    prune(&open(frozen), &no_grace(), &Arc::default()).unwrap();
    assert_eq!(freezer.reads.load(Ordering::SeqCst), 0);
    let target = tempfile::tempdir().unwrap();
    let request = RestoreRequest { target: target.path().join("target"), ..RestoreRequest::default() };
    restore(&open(store), &config(), &named, request, &Progress::default(), &Arc::default()).unwrap();
}

#[test]
fn a_container_that_is_adopted_has_a_hot_index_before_a_segment_names_it() {
    let (store, named, bare) = without_hot_index();
    // Its writer was killed before it put the hot index, and the segment.
    snapshot::delete(store.as_ref(), &named.id).unwrap();
    for segment in store.list(BlobKind::Segment.into()).unwrap() {
        store.delete(&segment.name, Durable::OnReturn).unwrap();
    }
    let source = tempfile::tempdir().unwrap();
    write(source.path().join("file"), b"another");
    back_up(&open(store.clone()), source.path());
    let listing = ContainerListing::take(&(store.clone() as Arc<dyn Store>)).unwrap();
    let id = parse_name(&bare).unwrap();
    assert!(listing.segments().iter().any(|segment| segment.containers().contains(&id)));
    verify(store.as_ref(), &id).unwrap();
}
