//! Writers that may put and read, but not delete or overwrite, and stores that refuse to delete some blobs.

use std::path::Path;
use std::sync::Arc;

use fhrd::backup::{BackupReport, BackupRequest, TreeSource, backup};
use fhrd::config::Config;
use fhrd::error::{Error, Result};
use fhrd::inspect::check::check;
use fhrd::keep::{PruneOptions, PruneReport, prune};
use fhrd::metrics::Progress;
use fhrd::repo::Repository;
use fhrd::repo::snapshot;
use fhrd::store::{Durable, StoreExt};

use crate::double::named;
use crate::hooked::hooked;
use crate::input::{TestRepository, edit, write};
use crate::interleavings::scene::no_grace;
use crate::trees::Random;

/// The repository, as one sees it who may not delete below `prefix`.
fn refusing(place: &TestRepository, prefix: &'static str) -> Repository {
    hooked(place, move |call, name| match ["overwrite", "delete"].contains(&call) && name.starts_with(prefix) {
        true => Err(Error::io("change", name, std::io::ErrorKind::PermissionDenied)),
        false => Ok(()),
    })
}

fn back_up(repository: &Repository, source: &Path) -> BackupReport {
    let request = BackupRequest::new(TreeSource::new(vec![source.into()], "test"));
    backup(repository, &TestRepository::config(), &request, &Progress::default(), &Arc::default()).unwrap()
}

fn pruned(repository: &Repository) -> Result<PruneReport> {
    let options = PruneOptions { container_bytes: 1 << 20, ..no_grace() };
    prune(repository, &options, &Arc::default())
}

fn names(place: &TestRepository, prefix: &str) -> Vec<String> {
    place.names().into_iter().filter(|name| name.starts_with(prefix)).collect()
}

fn assert_sound(place: &TestRepository) {
    let report = check(&place.open(), &Config::default(), true, &Progress::default(), &Arc::default()).unwrap();
    assert_eq!(report.defect_count, 0, "{report:?}");
}

fn reported(place: &TestRepository) -> usize {
    snapshot::list_reported(place.open().store.as_ref()).unwrap().0.len()
}

#[test]
fn a_backup_needs_no_right_to_delete_and_a_prune_elsewhere_tidies_up() {
    let (place, source) = (TestRepository::new(), tempfile::tempdir().unwrap());
    let writer = refusing(&place, "");
    for number in 0..6u64 {
        write(source.path().join(number.to_string()), &Random(number).bytes(300_000));
        let report = back_up(&writer, source.path());
        assert_eq!(report.parent.is_some(), number > 0, "the last snapshot counts although its intent is there");
        assert_eq!(reported(&place), number as usize + 1);
    }
    let notes = names(&place, "intents").iter().filter(|name| name.ends_with(".released")).count();
    assert!(notes >= 6 && names(&place, "intents").len() == 2 * notes, "{:?}", names(&place, "intents"));
    assert_sound(&place);
    let report = pruned(&place.open()).unwrap();
    assert_eq!((report.intents_broken, report.withdrawn), (0, false), "no writer counts as dead");
    assert_eq!(names(&place, "intents"), [""; 0]);
    assert_eq!(reported(&place), 6);
    assert_sound(&place);
}

#[test]
fn a_note_that_anybody_forges_takes_no_snapshot_from_anybody() {
    let (place, source) = (TestRepository::new(), tempfile::tempdir().unwrap());
    write(source.path().join("file"), &Random(1).bytes(2_000_000));
    back_up(&place.open(), source.path());
    let repository = place.open();
    let (snapshots, _) = snapshot::list(repository.store.as_ref()).unwrap();
    let note = format!("{}.withdrawn", snapshots[0].intent_name().unwrap());
    repository.store.put_if_absent(&named(&note), &[]).unwrap();
    assert_eq!(reported(&place), 0, "it is not the latest");
    pruned(&place.open()).unwrap();
    assert_eq!((reported(&place), names(&place, "intents").len()), (1, 0), "a prune sees that it is whole");
    assert_sound(&place);

    // The note of a writer to whom a prune was faster.
    repository.store.put_if_absent(&named(&note), &[]).unwrap();
    let container = names(&place, "containers").remove(0);
    repository.store.delete(&named(&container), Durable::OnReturn).unwrap();
    pruned(&place.open()).unwrap();
    assert_eq!((names(&place, "snapshots").len(), names(&place, "intents").len()), (0, 0));
    assert_eq!(names(&place, "containers"), [""; 0], "nobody needs the rest");
}

#[test]
fn a_prune_leaves_what_the_store_does_not_let_go_for_a_later_one() {
    let (place, source) = (TestRepository::new(), tempfile::tempdir().unwrap());
    for number in 0..3u64 {
        write(source.path().join("file"), &Random(number).bytes(2_000_000));
        back_up(&place.open(), source.path());
    }
    let repository = place.open();
    let (snapshots, _) = snapshot::list(repository.store.as_ref()).unwrap();
    snapshot::delete(repository.store.as_ref(), &snapshots[0].id).unwrap();
    let report = pruned(&refusing(&place, "containers")).unwrap();
    assert!(report.containers_refused > 0 && report.containers_deleted == 0, "{report:?}");
    assert_eq!(names(&place, "pending").len(), 1);
    assert_sound(&place);
    // What they copy from may be gone, so no backup uses them again.
    write(source.path().join("file"), &Random(0).bytes(2_000_000));
    assert!(back_up(&place.open(), source.path()).bytes_stored > 2_000_000);
    snapshot::delete(repository.store.as_ref(), &snapshots[1].id).unwrap();
    let report = pruned(&place.open()).unwrap();
    assert!(report.containers_deleted > 0 && report.containers_refused == 0, "{report:?}");
    assert_sound(&place);
}

#[test]
fn what_the_store_does_not_let_go_is_not_used_without_its_bases() {
    let mut refusals = 0;
    for number in 0..3 {
        let (place, source) = (TestRepository::new(), tempfile::tempdir().unwrap());
        let mut random = Random(5);
        let text = random.text(200_000);
        write(source.path().join("file"), &text);
        back_up(&place.open(), source.path());
        let first = names(&place, "containers");
        // Its chunks are copied from the first version for the most part.
        write(source.path().join("file"), &edit(&mut random, &text, 12));
        back_up(&place.open(), source.path());
        let mut second = names(&place, "containers");
        second.retain(|name| !first.contains(name));
        let Some(refused) = second.get(number) else { continue };
        let repository = place.open();
        for named in snapshot::list(repository.store.as_ref()).unwrap().0 {
            snapshot::delete(repository.store.as_ref(), &named.id).unwrap();
        }
        let refused: &'static str = Box::leak(refused.clone().into_boxed_str());
        let report = pruned(&refusing(&place, refused)).unwrap();
        assert_eq!((report.containers_refused, names(&place, "containers").len()), (1, 1), "{report:?}");
        refusals += 1;
        // The same once more.
        back_up(&place.open(), source.path());
        assert_sound(&place);
        // A prune that is refused again does the rest.
        let report = pruned(&refusing(&place, refused)).unwrap();
        assert_eq!((report.containers_refused, report.withdrawn), (1, false), "{report:?}");
        assert_eq!(reported(&place), 1);
        assert_sound(&place);
        // And one that is not.
        let report = pruned(&place.open()).unwrap();
        assert_eq!((report.containers_refused, report.prunes_finished), (0, 1), "{report:?}");
        assert!(!names(&place, "containers").iter().any(|name| name == refused));
        assert_eq!(names(&place, "pending"), [""; 0]);
        assert_sound(&place);
    }
    assert!(refusals > 1);
}
