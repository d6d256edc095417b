//! Containers of killed backups whose bases a prune has deleted: nobody may come to rely on them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use fhrd::backup::{BackupRequest, TreeSource, backup};
use fhrd::config::Config;
use fhrd::inspect::check::check;
use fhrd::keep::{PruneOptions, prune};
use fhrd::metrics::Progress;
use fhrd::repair::index::repair_index;
use fhrd::repo::Repository;
use fhrd::repo::claims::{ClaimKind, ContainerClaim};
use fhrd::repo::container::{Base, parse_name};
use fhrd::repo::index::read_container_index;
use fhrd::repo::recipe::ContentReference;
use fhrd::repo::snapshot::Snapshot;
use fhrd::store::{Durable, StoreExt};
use fhrd::types::Fingerprint;

use crate::double::named;
use crate::hooked::hooked;
use crate::input::{TestRepository, edit, write};
use crate::interleavings::scene::no_grace;
use crate::trees::Random;

fn back_up(repository: &Repository, source: &Path) {
    let request = BackupRequest::new(TreeSource::new(vec![source.into()], "test"));
    backup(repository, &TestRepository::config(), &request, &Progress::default(), &Arc::default()).unwrap();
}

fn names(place: &TestRepository, prefix: &str) -> Vec<String> {
    place.names().into_iter().filter(|name| name.starts_with(prefix)).collect()
}

fn delete(place: &TestRepository, names: &[String]) {
    let store = place.open().store;
    names.iter().for_each(|name| store.delete(&named(name), Durable::OnReturn).unwrap());
}

fn defects(place: &TestRepository) -> Vec<String> {
    check(&place.open(), &Config::default(), true, &Progress::default(), &Arc::default()).unwrap().defects
}

/// Whether an entry in one of the containers `from` copies from one in `to`.
fn copies(place: &TestRepository, from: &[String], to: &[String]) -> bool {
    let index = |name: &String| read_container_index(place.open().store.as_ref(), &parse_name(name).unwrap()).unwrap();
    let has = |base: &Base| to.iter().any(|name| index(name).find_encoding(base).is_some());
    from.iter().any(|name| index(name).bases_elsewhere().iter().any(has))
}

/// Backs up the source. Returns the containers that this adds.
fn added(place: &TestRepository, source: &Path) -> Vec<String> {
    let before = names(place, "containers");
    back_up(&place.open(), source);
    names(place, "containers").into_iter().filter(|name| !before.contains(name)).collect()
}

/// Three versions of a text, of which each copies from the one before, as the containers of each.
fn three_versions() -> (TestRepository, tempfile::TempDir, [Vec<u8>; 3], [Vec<String>; 3]) {
    // Whether a chunk copies from another one depends on the key of the repository.
    let with_key = |_| {
        let (place, source, mut random) = (TestRepository::new(), tempfile::tempdir().unwrap(), Random(5));
        let first = random.text(400_000);
        let second = edit(&mut random, &first, 12);
        let third = edit(&mut random, &second, 12);
        let texts = [first, second, third];
        let containers = texts.each_ref().map(|text| {
            write(source.path().join("text"), text);
            added(&place, source.path())
        });
        let [old, middle, new] = &containers;
        let is_chain = copies(&place, middle, old) && copies(&place, new, middle);
        is_chain.then_some((place, source, texts, containers))
    };
    (0..50).find_map(with_key).unwrap()
}

#[test]
fn a_prune_gives_nothing_to_writers_that_lacks_a_base() {
    let (place, source, texts, [old, middle, _]) = three_versions();
    // Two backups were killed before they wrote segments. A prune that did not see their containers has deleted the
    // first version. The containers of the second are older than the grace period, those of the third are not.
    delete(&place, &[names(&place, "index"), names(&place, "snapshots"), old].concat());
    let long_ago = SystemTime::now() - Duration::from_secs(7200);
    for name in &middle {
        let path = place.open().store.local_path().unwrap().join(name);
        std::fs::File::options().append(true).open(path).unwrap().set_modified(long_ago).unwrap();
    }
    let options = PruneOptions { grace: Duration::from_secs(3600), ..no_grace() };
    let report = prune(&place.open(), &options, &Arc::default()).unwrap();
    assert!(report.containers_deleted > 0 && report.containers_young > 0, "{report:?}");
    write(source.path().join("text"), &texts[1]);
    back_up(&place.open(), source.path());
    assert_eq!(defects(&place), [""; 0]);
}

#[test]
fn what_a_snapshot_needs_of_a_container_that_lacks_bases_is_moved() {
    // A snapshot of noise. A killed backup has stored the noise again, beside a text whose base is gone.
    let (place, source, texts, [old, ..]) = three_versions();
    let noise = tempfile::tempdir().unwrap();
    write(noise.path().join("noise"), &Random(9).bytes(300_000));
    let (again, snapshots, segments) = (place.copy(), names(&place, "snapshots"), names(&place, "index"));
    let needed = added(&place, noise.path());
    let later = edit(&mut Random(6), &texts[0], 9);
    write(source.path().join("text"), &later);
    write(source.path().join("noise"), &Random(9).bytes(300_000));
    let killed = added(&again, source.path());
    let all = names(&place, "containers");
    for name in &killed {
        place.open().store.put_if_absent(&named(name), &[&again.read(name)]).unwrap();
    }
    let gone: Vec<String> = all.into_iter().filter(|name| !needed.contains(name)).collect();
    assert!(old.iter().all(|name| gone.contains(name)));
    delete(&place, &[gone, segments, snapshots].concat());
    // A prune was about to delete the other copy, and was killed.
    let doomed = needed.iter().map(|name| parse_name(name).unwrap()).collect();
    ContainerClaim::put(place.open().store.as_ref(), ClaimKind::Pending, &[3; 16], &doomed).unwrap();
    // The segments still name what is gone here.
    let options = PruneOptions { repack_bytes_max: 0, allow_no_containers: true, ..no_grace() };
    let report = prune(&place.open(), &options, &Arc::default()).unwrap();
    assert_eq!(report.prunes_finished, 1);
    assert_eq!(defects(&place), [""; 0]);
    assert!(killed.iter().any(|name| names(&place, "containers").contains(name)), "one is still there");
}

#[test]
fn a_prune_looks_again_as_long_as_others_change_the_repository() {
    let (place, source) = (Arc::new(TestRepository::new()), tempfile::tempdir().unwrap());
    write(source.path().join("file"), &Random(1).bytes(300_000));
    back_up(&place.open(), source.path());
    // At each of the first lists there is another snapshot that its backup withdraws later.
    let (other, lists) = (place.open().store, AtomicUsize::new(0));
    let last = std::sync::Mutex::new(None);
    let pruning = hooked(&place, move |call, name| {
        if call == "list" && name == "snapshots" && lists.load(Ordering::SeqCst) < 6 {
            let number = lists.fetch_add(1, Ordering::SeqCst) as u8;
            let root = Some(ContentReference::Chunk { fingerprint: Fingerprint([number; 32]), len: 100 });
            let id = Snapshot { root, ..Snapshot::default() }.save(other.as_ref())?;
            if let Some(before) = last.lock().unwrap().replace(id) {
                fhrd::repo::snapshot::delete(other.as_ref(), &before)?;
            }
        } else if call == "list" && name == "snapshots" {
            last.lock().unwrap().take().map_or(Ok(()), |id| fhrd::repo::snapshot::delete(other.as_ref(), &id))?;
        }
        Ok(())
    });
    let options = PruneOptions { patience: Duration::from_secs(20), ..no_grace() };
    prune(&pruning, &options, &Arc::default()).unwrap();
    assert_eq!(names(&place, "snapshots").len(), 1);
}

#[test]
fn a_prune_of_a_damaged_repository_ends_although_others_change_it() {
    let (place, source) = (Arc::new(TestRepository::new()), tempfile::tempdir().unwrap());
    write(source.path().join("file"), &Random(1).bytes(300_000));
    back_up(&place.open(), source.path());
    delete(&place, &names(&place, "containers")[..1]);
    let (other, lists) = (place.open().store, AtomicUsize::new(0));
    let pruning = hooked(&place, move |call, name| {
        if call == "list" && name == "snapshots" {
            let intent = format!("intents/{:032x}", lists.fetch_add(1, Ordering::SeqCst));
            other.put_if_absent(&named(&intent), &[])?;
        }
        Ok(())
    });
    let options = PruneOptions { patience: Duration::from_secs(2), ..no_grace() };
    assert!(prune(&pruning, &options, &Arc::default()).unwrap_err().is_unreadable());
}

#[test]
fn a_repair_of_the_index_looks_again_as_long_as_others_change_the_repository() {
    let (place, source) = (Arc::new(TestRepository::new()), tempfile::tempdir().unwrap());
    write(source.path().join("file"), &Random(1).bytes(300_000));
    back_up(&place.open(), source.path());
    let first = names(&place, "snapshots");
    let needless = {
        write(source.path().join("file"), &Random(2).bytes(300_000));
        added(&place, source.path())
    };
    // A prune deletes what no snapshot needs while the index is repaired. A backup withdraws its snapshot later.
    let second = names(&place, "snapshots").into_iter().find(|name| !first.contains(name)).unwrap();
    let (other, lists, is_pruned) = (place.clone(), AtomicUsize::new(0), AtomicUsize::new(0));
    let repairing = hooked(&place, move |call, name| {
        if call == "list" && name == "marks" && is_pruned.fetch_add(1, Ordering::SeqCst) == 1 {
            delete(&other, &needless);
        } else if call == "list" && name == "snapshots" && lists.fetch_add(1, Ordering::SeqCst) == 2 {
            delete(&other, std::slice::from_ref(&second));
        }
        Ok(())
    });
    let report = repair_index(&repairing, &Arc::default()).unwrap();
    assert!(report.missing.is_empty() && report.gone > 0, "{report:?}");
}
