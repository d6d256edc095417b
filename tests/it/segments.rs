//! Index segments only find chunks: whatever happens to them, restores and later backups are whole.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use fhrd::backup::{BackupReport, BackupRequest, ParentChoice, TreeSource, backup};
use fhrd::inspect::check::{CheckReport, check};
use fhrd::metrics::Progress;
use fhrd::repo::Repository;
use fhrd::repo::index::ContainerListing;
use fhrd::repo::paths::cache_directory;
use fhrd::repo::snapshot;
use fhrd::restore::restore;
use fhrd::store::{BlobKind, CountingStore, FaultyStore, InjectedFault, Store, StoreCounts};

use crate::far::scene::{Place, tree};
use crate::input::{TestRepository, copy_directory, write};
use crate::trees::{Looks, Random, assert_same, describe};

fn back_up(repository: &Repository, source: &Path, force: bool) -> fhrd::Result<BackupReport> {
    let request = BackupRequest::new(TreeSource {
        parents: ParentChoice::new(force, None),
        ..TreeSource::new(vec![source.into()], "test")
    });
    backup(repository, &TestRepository::config(), &request, &Progress::default(), &Arc::default())
}

/// Fails unless the snapshot `id` restores whole.
fn assert_restores(repository: &Repository, id: &str, source: &Path, want: &BTreeMap<String, Looks>, what: &str) {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("restored");
    let named = snapshot::find(repository.store.as_ref(), id).unwrap();
    let config = TestRepository::config();
    let report = restore(repository, &config, &named, &target, &Progress::default(), &Arc::default()).unwrap();
    assert_eq!((report.damaged, report.problems), (0, 0), "{what}");
    assert_same(want, &describe(&target.join(source.strip_prefix("/").unwrap())), what);
}

fn run_check(repository: &Repository) -> CheckReport {
    check(repository, &TestRepository::config(), true, &Progress::default(), &Arc::default()).unwrap()
}

fn segments(repository: &TestRepository) -> Vec<String> {
    repository.names().into_iter().filter(|name| name.starts_with("index/")).collect()
}

/// A source of `files` small files.
fn source(files: u64) -> tempfile::TempDir {
    let source = tempfile::tempdir().unwrap();
    let mut random = Random(5);
    for number in 0..files {
        write(source.path().join(format!("{}/{number}", number % 3)), &random.text(2000));
    }
    write(source.path().join("noise"), &random.bytes(600_000));
    source
}

#[test]
fn a_damaged_segment_costs_nothing_and_the_next_backup_replaces_it() {
    let (source, stored) = (source(250), TestRepository::new());
    let first = back_up(&stored.open(), source.path(), true).unwrap();
    let want = describe(source.path());
    let name = segments(&stored).remove(0);
    let whole = stored.read(&name);
    let containers = u32::from_le_bytes(whole[12..16].try_into().unwrap()) as usize;
    let pages = (80 + 32 * containers + 16..whole.len()).step_by(4096);
    assert!(pages.len() >= 3 && segments(&stored).len() == 1);
    // In the header, in the table of containers, and in each page.
    let places = [3, 9, 40, 64 + 5, whole.len() - 1].into_iter().chain(pages.map(|page| page + 100));
    for (number, at) in places.enumerate() {
        let copy = stored.copy();
        if number % 2 == 0 {
            let cache = cache_directory(&copy.open()).unwrap();
            copy_directory(&cache_directory(&stored.open()).unwrap(), &cache);
        }
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        fs::write(copy.path().join(&name), bytes).unwrap();
        let what = format!("byte {at}");
        assert_restores(&copy.open(), &first.snapshot, source.path(), &want, &what);
        assert!(run_check(&copy.open()).defects.iter().any(|defect| defect.contains(&name)), "{what}");
        write(source.path().join("new"), format!("new {at}").as_bytes());
        let second = back_up(&copy.open(), source.path(), number % 4 < 2).unwrap();
        assert!(second.bytes_new < 100_000, "{what}: {} bytes are stored again", second.bytes_new);
        assert_restores(&copy.open(), &second.snapshot, source.path(), &describe(source.path()), &what);
        assert_restores(&copy.open(), &first.snapshot, source.path(), &want, &what);
        assert!(!segments(&copy).contains(&name) || copy.read(&name) == whole, "{what}");
        let report = run_check(&copy.open());
        assert_eq!((report.defects, report.unreferenced_containers), (Vec::new(), 0), "{what}");
        fs::remove_file(source.path().join("new")).unwrap();
        fs::remove_dir_all(cache_directory(&copy.open()).unwrap()).unwrap();
        let third = back_up(&copy.open(), source.path(), true).unwrap();
        assert_eq!(third.bytes_new, 0, "{what}");
        assert_restores(&copy.open(), &third.snapshot, source.path(), &describe(source.path()), &what);
    }
}

/// An unchanged source asks only segments with more records, which answer first.
#[test]
fn a_damaged_segment_that_no_look_up_reaches_is_replaced_far_away_too() {
    let (place, note, large) = (Place::new(false), tempfile::tempdir().unwrap(), tree(300, 3));
    write(note.path().join("note"), b"a note");
    place.back_up(note.path());
    let name = place.memory.list(BlobKind::Segment.into()).unwrap().remove(0).name;
    let first = place.back_up(large.path()).0;
    let mut bytes = place.memory.get(&name, 1 << 20).unwrap();
    let last_record = bytes.len() - 20;
    bytes[last_record] ^= 4;
    place.memory.replace(&name, &bytes);
    // Copies of what was sound are in the cache of the first machine.
    let other = place.other();
    assert!(run_check(&other.open().0).defects.iter().any(|defect| defect.contains(name.as_str())));
    let (unchanged, _) = other.other().back_up(large.path());
    assert_eq!((unchanged.files_unchanged, unchanged.chunks_new), (first.files, 0));
    assert!(place.memory.list(BlobKind::Segment.into()).unwrap().iter().all(|listed| listed.name != name));
    assert_eq!(run_check(&place.other().open().0).defects, [""; 0]);
    place.other().assert_restores("latest", large.path());
}

#[test]
fn a_lost_segment_costs_nothing() {
    let (source, stored) = (source(50), TestRepository::new());
    let first = back_up(&stored.open(), source.path(), true).unwrap();
    let want = describe(source.path());
    fs::remove_file(stored.path().join(segments(&stored).remove(0))).unwrap();
    assert_restores(&stored.open(), &first.snapshot, source.path(), &want, "no segment");
    let report = run_check(&stored.open());
    assert!(report.defect_count > 0 && report.unreferenced_containers > 0, "{report:?}");
    let second = back_up(&stored.open(), source.path(), true).unwrap();
    assert_eq!((second.bytes_new, second.containers_adopted), (0, report.containers));
    assert_eq!(run_check(&stored.open()).defects, [""; 0]);
}

/// Operations of `run` that open a blob: all but listings, puts and deletions.
fn opens(stored: &TestRepository, run: impl FnOnce(&Repository)) -> u64 {
    let mut repository = stored.open();
    let store = Arc::new(CountingStore::new(repository.store.clone()));
    repository.store = store.clone();
    run(&repository);
    let StoreCounts { gets, ranges, heads, .. } = store.counts();
    gets + ranges + heads
}

/// Stores a snapshot of ten files, one of them new, and counts the opens of a restore and of another backup.
fn opens_after_backup(stored: &TestRepository, source: &Path, number: u64) -> [u64; 2] {
    write(source.join("changing"), &Random(1000 + number).text(3000));
    let id = back_up(&stored.open(), source, true).unwrap().snapshot;
    let want = describe(source);
    let restored = opens(stored, |repository| assert_restores(repository, &id, source, &want, "restored"));
    let backed_up = opens(stored, |repository| drop(back_up(repository, source, false).unwrap()));
    [restored, backed_up]
}

#[test]
fn a_restore_and_a_backup_cost_about_the_same_after_many_backups() {
    let (source, stored) = (tempfile::tempdir().unwrap(), TestRepository::new());
    for number in 0..9 {
        write(source.path().join(number.to_string()), &Random(number).text(3000));
    }
    let first = opens_after_backup(&stored, source.path(), 0);
    let mut most = [0; 2];
    for number in 1..100 {
        let opens = opens_after_backup(&stored, source.path(), number);
        most.iter_mut().zip(opens).for_each(|(most, opens)| *most = opens.max(*most));
        assert!(segments(&stored).len() < 10, "{number}: {} segments", segments(&stored).len());
    }
    assert!(most.iter().zip(first).all(|(most, first)| *most <= 3 * first), "first {first:?}, later {most:?} opens");
    assert_eq!(run_check(&stored.open()).defects, [""; 0]);
}

#[test]
fn a_backup_that_merges_may_fail_at_every_operation() {
    let (source, stored) = (source(20), TestRepository::new());
    let mut snapshots = Vec::new();
    for number in 0..3 {
        write(source.path().join("changing"), &Random(number).text(3000));
        let id = back_up(&stored.open(), source.path(), true).unwrap().snapshot;
        snapshots.push((id, describe(source.path())));
    }
    write(source.path().join("changing"), b"the fourth");
    let want = describe(source.path());
    assert_eq!(segments(&stored).len(), 3);
    let mut merged = 0;
    for operation in 0.. {
        let took_effect = operation % 2 == 0;
        let fault = match operation % 3 {
            0 => InjectedFault::Fail { operation, took_effect },
            _ => InjectedFault::PowerCut { operation, took_effect },
        };
        let copy = stored.copy();
        let mut repository = copy.open();
        let store = Arc::new(FaultyStore::new(repository.store.clone(), fault));
        repository.store = store.clone();
        let what = format!("{fault:?}");
        let result = back_up(&repository, source.path(), true);
        merged += u32::from(result.is_ok() && segments(&copy).len() > 1);
        if let Ok(report) = result {
            assert_restores(&copy.open(), &report.snapshot, source.path(), &want, &what);
        }
        let (id, first) = &snapshots[operation as usize % 3];
        assert_restores(&copy.open(), id, source.path(), first, &what);
        let again = back_up(&copy.open(), source.path(), true).unwrap();
        assert_restores(&copy.open(), &again.snapshot, source.path(), &want, &what);
        assert_eq!(run_check(&copy.open()).defects, [""; 0], "{what}");
        assert_eq!(ContainerListing::take(&copy.open().store).unwrap().orphans(), [], "{what}");
        if store.operations() <= operation {
            break;
        }
    }
    assert!(merged > 3, "{merged} faults during the merge");
}
