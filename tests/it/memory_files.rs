//! Backups of files in memory.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use fhrd::backup::{BackupReport, BackupRequest, MemoryContent, MemoryFile, MemorySource, SnapshotLabels, backup};
use fhrd::config::Config;
use fhrd::error::{Error, Result};
use fhrd::metrics::Progress;
use fhrd::repo::Repository;
use fhrd::repo::naming::{SnapshotFilter, find_snapshot};
use fhrd::restore::restore;
use fhrd::store::{FaultyStore, InjectedFault};

use crate::input::TestRepository;
use crate::trees::Random;

fn stop() -> Arc<AtomicBool> {
    Arc::new(AtomicBool::new(false))
}

fn back_up(repository: &Repository, files: Vec<MemoryFile>) -> Result<BackupReport> {
    let request =
        BackupRequest::new(MemorySource { files, labels: SnapshotLabels::of_host("test"), ..MemorySource::default() });
    backup(repository, &Config::default(), &request, &Progress::default(), &stop())
}

fn file(path: &str, content: MemoryContent) -> MemoryFile {
    MemoryFile { path: path.into(), content }
}

fn parts(parts: &[&[u8]]) -> Vec<Bytes> {
    parts.iter().map(|part| Bytes::copy_from_slice(part)).collect()
}

fn borrowed(parts: &[Bytes]) -> MemoryContent {
    MemoryContent::Borrowed(parts.to_vec())
}

/// A safetensors file in parts: its header and two arrays of bytes, one larger than a block.
fn model(random: &mut Random) -> Vec<Bytes> {
    let (large, small) = (random.bytes(1_300_000), random.bytes(70_000));
    let end = large.len() + small.len();
    let mut header = format!(
        r#"{{"a":{{"dtype":"U8","shape":[{0}],"data_offsets":[0,{0}]}},"b":{{"dtype":"U8","shape":[{1}],"data_offsets":[{0},{end}]}}}}"#,
        large.len(),
        small.len()
    );
    header.push_str(&" ".repeat(header.len().next_multiple_of(8) - header.len()));
    let head = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
    parts(&[&head, &large, &small])
}

fn restored(repository: &Repository, target: &Path) {
    let named = find_snapshot(repository, "latest", &SnapshotFilter::default()).unwrap();
    let report = restore(repository, &Config::default(), &named, target, &Progress::default(), &stop()).unwrap();
    assert_eq!((report.damaged, report.problems), (0, 0));
}

#[test]
fn files_in_memory_come_back_in_their_directories() {
    let (test, directory) = (TestRepository::new(), tempfile::tempdir().unwrap());
    let (repository, on_disk) = (test.open(), directory.path().join("source"));
    let model = model(&mut Random(1));
    std::fs::write(&on_disk, b"from the disk").unwrap();
    let files = vec![
        file("sub/z", MemoryContent::Disk(on_disk)),
        file("sub.x", MemoryContent::Parts(Vec::new())),
        file("sub/below/model.safetensors", borrowed(&model)),
        file("a", MemoryContent::Parts(parts(&[b"one", b"", b"two"]))),
    ];
    let report = back_up(&repository, files).unwrap();
    assert_eq!((report.files, report.directories, report.problems), (4, 2, 0));
    let target = directory.path().join("target");
    restored(&repository, &target);
    let read = |name: &str| std::fs::read(target.join(name)).unwrap();
    assert_eq!((read("a"), read("sub.x"), read("sub/z")), (b"onetwo".to_vec(), Vec::new(), b"from the disk".to_vec()));
    assert_eq!(read("sub/below/model.safetensors"), model.concat());
}

#[test]
fn a_model_in_memory_is_cut_like_the_file_on_disk() {
    let (test, source) = (TestRepository::new(), tempfile::tempdir().unwrap());
    let (repository, model) = (test.open(), model(&mut Random(2)));
    std::fs::write(source.path().join("model.safetensors"), model.concat()).unwrap();
    let first = test.backup(source.path(), &Config::default());
    for content in [borrowed(&model), MemoryContent::Parts(model)] {
        let report = back_up(&repository, vec![file("model.safetensors", content)]).unwrap();
        assert_eq!((report.chunks, report.chunks_new, report.bytes_new), (first.chunks, 0, 0));
    }
}

#[test]
fn paths_that_are_no_files_are_refused() {
    let repository = TestRepository::new().open();
    let refused = |paths: &[&str]| {
        let files = paths.iter().map(|path| file(path, MemoryContent::Parts(parts(&[b"x"])))).collect();
        assert!(matches!(back_up(&repository, files), Err(Error::Usage(_))), "{paths:?}");
    };
    for path in ["", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "a\0b", &"a/".repeat(65)] {
        refused(&[path]);
    }
    refused(&["a", "a"]);
    refused(&["a", "a/b"]);
    refused(&["a/b", "c", "a"]);
    assert!(back_up(&repository, vec![file("x", MemoryContent::Disk("/missing".into()))]).is_err());
    assert!(find_snapshot(&repository, "latest", &SnapshotFilter::default()).is_err(), "no snapshot is left");
}

#[test]
fn every_operation_of_the_store_may_fail() {
    let model = model(&mut Random(3));
    let files = || vec![file("model.safetensors", borrowed(&model))];
    let assert_whole = |repository: &Repository, what: &str| {
        let target = tempfile::tempdir().unwrap();
        restored(repository, target.path());
        assert!(std::fs::read(target.path().join("model.safetensors")).unwrap() == model.concat(), "{what}");
    };
    let mut interrupted = 0;
    for operation in 0.. {
        let what = format!("operation {operation}");
        let test = TestRepository::new();
        let mut repository = test.open();
        let cut = InjectedFault::PowerCut { operation, took_effect: operation % 2 == 0 };
        let store = Arc::new(FaultyStore::new(repository.store.clone(), cut));
        repository.store = store.clone();
        match back_up(&repository, files()) {
            Ok(_) => assert_whole(&test.open(), &what),
            Err(_) => interrupted += 1,
        }
        back_up(&test.open(), files()).unwrap();
        assert_whole(&test.open(), &what);
        if store.operations() <= operation {
            break;
        }
    }
    assert!(interrupted > 10, "{interrupted}");
}
