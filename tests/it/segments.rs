//! Index segments only find chunks: whatever happens to them, restores and later backups are whole.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use fhrd::backup::{BackupReport, BackupRequest, backup};
use fhrd::inspect::check::{CheckReport, check};
use fhrd::metrics::Progress;
use fhrd::repo::Repository;
use fhrd::repo::paths::cache_directory;
use fhrd::repo::snapshot;
use fhrd::restore::restore;

use crate::input::{TestRepository, copy_directory, write};
use crate::trees::{Looks, Random, assert_same, describe};

fn back_up(repository: &Repository, source: &Path, force: bool) -> fhrd::Result<BackupReport> {
    let request = BackupRequest { paths: vec![source.into()], host: "test".into(), force, ..Default::default() };
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
    let pages = (whole.len() - 64) / 4096;
    assert!(pages >= 3 && segments(&stored).len() == 1);
    // In the header, in the table of containers, and in each page.
    let places = [3, 9, 40, 64 + 5].into_iter().chain((1..=pages).map(|page| whole.len() - page * 4096 + 100));
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
