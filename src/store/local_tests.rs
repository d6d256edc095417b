//! Tests of local stores.

use std::os::unix::fs::PermissionsExt;
use std::sync::Barrier;
use std::thread;

use super::*;
use crate::store::{Durable, PutOptions, StoreExt, contract, named};

fn fresh() -> (tempfile::TempDir, LocalStore) {
    let directory = tempfile::tempdir().expect("creates a directory");
    let store = LocalStore::create(&directory.path().join("deep/store")).expect("creates");
    (directory, store)
}

#[test]
fn meets_the_contract() {
    let (_directory, store) = fresh();
    contract::check(&store);
    assert_eq!(fs::read_dir(store.root.join("tmp")).expect("exists").count(), 0, "no temporaries are left");
}

/// A deletion beside a writer that replaces the blob: whoever comes first, nothing is there afterwards.
#[test]
fn what_is_deleted_beside_a_writer_that_replaces_it_stays_deleted() {
    let (_directory, store) = fresh();
    let name = named("a/b");
    let mut replaced = 0;
    for _ in 0..200 {
        store.put_if_absent(&name, &[b"old"]).expect("puts");
        let start = Barrier::new(2);
        thread::scope(|scope| {
            let writer = scope.spawn(|| {
                start.wait();
                store.overwrite_if_present(&name, &[b"new"], PutOptions::default()).expect("replaces it or not")
            });
            start.wait();
            store.delete(&name, Durable::OnReturn).expect("deletes");
            replaced += u32::from(writer.join().expect("ends"));
        });
        assert_eq!(store.head(&name).expect("queries"), None);
    }
    assert_eq!(fs::read_dir(store.root.join("tmp")).expect("exists").count(), 0, "after {replaced}");
}

#[test]
fn only_the_owner_can_read_the_store() {
    let (_directory, store) = fresh();
    store.put_if_absent(&named("containers/ab/ab"), &[b"x"]).expect("puts");
    let mode = |path| fs::metadata(store.root.join(path)).expect("exists").permissions().mode() & 0o777;
    assert_eq!((mode(""), mode("containers/ab"), mode("containers/ab/ab")), (0o700, 0o700, 0o600));
}

#[test]
fn foreign_files_are_not_listed_and_temporaries_are_cleaned() {
    let (_directory, store) = fresh();
    store.put_if_absent(&named("models/a"), &[b"x"]).expect("puts");
    for foreign in ["models/.DS_Store", "models/Upper", "tmp/0123"] {
        fs::write(store.root.join(foreign), b"foreign").expect("writes");
    }
    std::os::unix::fs::symlink("a", store.root.join("models/link")).expect("links");
    let names: Vec<_> = store.list(BlobPrefix::All).expect("lists").into_iter().map(|listed| listed.name).collect();
    assert_eq!(names, ["models/a"]);
    assert_eq!((store.clean_temporaries().expect("cleans"), store.clean_temporaries().expect("cleans")), (1, 0));
}

#[test]
fn a_directory_is_not_a_blob() {
    let (_directory, store) = fresh();
    store.put_if_absent(&named("a/b"), &[b"x"]).expect("puts");
    assert!(matches!(store.put_if_absent(&named("a"), &[b"x"]), Err(Error::AlreadyExists { .. })));
    assert_eq!(store.head(&named("a")).expect("queries"), None);
    assert!(matches!(store.get(&named("a"), 10), Err(Error::BlobMissing { .. })));
    assert!(matches!(store.get_range(&named("a"), 0, 1, Reading::Once), Err(Error::BlobMissing { .. })));
}

#[test]
fn a_removed_directory_is_created_again() {
    let (_directory, store) = fresh();
    store.put_if_absent(&named("a/b/c"), &[b"x"]).expect("puts");
    fs::remove_dir_all(store.root.join("a")).expect("removes");
    fs::remove_dir(store.root.join("tmp")).expect("removes");
    assert!(store.put_if_absent(&named("a/b/c"), &[b"y"]).expect("puts again"));
    assert_eq!(store.get(&named("a/b/c"), 10).expect("reads"), b"y");
}

/// Between the first look and the rename, as when a share goes away while a container is written.
#[test]
fn a_lasting_directory_that_goes_away_during_a_put_is_not_created_again() {
    let (_directory, store) = fresh();
    store.make_directories(false).expect("makes");
    let (name, path) = (named("containers/aa/b"), store.root.join("containers"));
    for is_first in [true, false] {
        let mut fill = |_: &Temporary| fs::rename(&path, store.root.join("away"));
        let text = store.put_file(&name, &mut fill).expect_err("away").to_string();
        assert!(text.contains("containers") && !path.exists(), "{is_first}: {text}");
        fs::rename(store.root.join("away"), &path).expect("comes back");
        store.put_if_absent(&named("containers/aa/other"), &[b"x"]).expect("puts");
    }
}

#[test]
fn a_removed_root_is_not_created_again() {
    let (_directory, store) = fresh();
    fs::remove_dir_all(&store.root).expect("removes");
    let text = store.put_if_absent(&named("a/b"), &[b"x"]).expect_err("no root").to_string();
    assert!(text.contains("a/b") && !store.root.exists(), "{text}");
}

#[test]
fn ranged_reads_keep_few_files_open_and_notice_deleted_blobs() {
    let (_directory, store) = fresh();
    for number in 0..100u8 {
        store.put_if_absent(&named(&format!("a/{number}")), &[&[number; 3]]).expect("puts");
        assert_eq!(store.get_range(&named(&format!("a/{number}")), 1, 2, Reading::Once).expect("reads"), [number; 2]);
    }
    assert_eq!(store.open_files.lock().len(), OPEN_FILES_MAX.get());
    fs::remove_file(store.root.join("a/99")).expect("removes");
    assert!(matches!(store.get_range(&named("a/99"), 0, 1, Reading::Once), Err(Error::BlobMissing { .. })));
    store.put_if_absent(&named("a/99"), &[b"new"]).expect("puts");
    assert_eq!(store.get_range(&named("a/99"), 0, 3, Reading::Once).expect("reads"), b"new");
}

#[test]
fn a_bad_sector_is_damage_of_the_blob_and_a_denied_permission_is_not() {
    use rustix::io::Errno;
    let (_directory, store) = fresh();
    let failed = |errno: Errno| store.read_failed("read", &named("containers/ab/cd"), 4096, errno.into());
    for errno in [Errno::IO, Errno::BADMSG] {
        let error = failed(errno);
        assert_eq!(error.kind(), crate::error::ErrorKind::Damaged, "{error}");
        assert!(error.is_unreadable() && error.duplicate().is_unreadable());
        let text = error.to_string();
        assert!(text.contains("containers/ab/cd") && text.contains("byte 4096"), "{text}");
        assert_eq!(error.duplicate().to_string(), text);
    }
    assert!(!failed(Errno::ACCESS).is_unreadable() && !failed(Errno::NFILE).is_unreadable());
}

#[test]
fn a_root_must_be_an_existing_directory() {
    let (directory, _) = fresh();
    assert!(matches!(LocalStore::open(&directory.path().join("none")), Err(Error::NoRepository { .. })));
    fs::write(directory.path().join("file"), b"").expect("writes");
    assert!(matches!(LocalStore::open(&directory.path().join("file")), Err(Error::NoRepository { .. })));
}
