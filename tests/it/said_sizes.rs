//! Files whose size is not what they have.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytesize::ByteSize;
use fhrd::backup::{
    BackupReport, BackupRequest, MemoryContent, MemoryFile, MemorySource, SnapshotLabels, TreeSource, backup,
};
use fhrd::config::Config;
use fhrd::inspect::list::{Depth, list};
use fhrd::metrics::Progress;
use fhrd::repo::snapshot;
use fhrd::repo::tree::Node;
use fhrd::restore::restore;

use crate::input::TestRepository;

fn config() -> Config {
    let mut config = TestRepository::config();
    // A few hundred bytes are more than a batch.
    config.pipeline.batch_bytes = ByteSize::b(64);
    config.read.recheck_seconds = 0;
    config
}

fn back_up(repository: &TestRepository, paths: &[&str], config: &Config) -> BackupReport {
    let paths = paths.iter().map(PathBuf::from).collect();
    let request = BackupRequest::new(TreeSource::new(paths, "test"));
    backup(&repository.open(), config, &request, &Progress::default(), &Arc::default()).unwrap()
}

fn restored(repository: &TestRepository, path: &str) -> (Node, Vec<u8>) {
    let (repository, directory) = (repository.open(), tempfile::tempdir().unwrap());
    let named = snapshot::find(repository.store.as_ref(), "latest").unwrap();
    let target = directory.path().join("t");
    let report =
        restore(&repository, &TestRepository::config(), &named, &target, &Progress::default(), &Arc::default())
            .unwrap();
    assert_eq!((report.damaged, report.problems), (0, 0));
    let mut found = None;
    let mut visit = |_: &Path, node: &Node| {
        found = Some(node.clone());
        Ok(())
    };
    let unread = list(&repository, &named, Some(Path::new(path)), Depth::One, &mut visit).unwrap();
    assert_eq!(unread.count, 0);
    (found.unwrap(), fs::read(target.join(path.trim_start_matches('/'))).unwrap())
}

#[test]
fn a_file_whose_size_is_said_to_be_0_is_read_to_its_end_and_reported_each_time() {
    const PATH: &str = "/proc/version";
    let expected = fs::read(PATH).unwrap();
    assert!(!expected.is_empty() && fs::metadata(PATH).unwrap().len() == 0);
    for config in [config(), TestRepository::config()] {
        let repository = TestRepository::new();
        for _ in 0..2 {
            let report = back_up(&repository, &[PATH], &config);
            assert_eq!((report.files, report.files_unchanged, report.problems), (1, 0, 1));
            assert_eq!((report.bytes, report.bytes_read), (expected.len() as u64, expected.len() as u64));
            let (node, content) = restored(&repository, PATH);
            assert_eq!((node.size, node.changed, content), (expected.len() as u64, true, expected.clone()));
        }
    }
}

#[test]
fn a_file_that_fails_behind_its_size_is_left_out_and_a_dry_run_counts_what_is_read() {
    let repository = TestRepository::new();
    let report = back_up(&repository, &["/proc/self/mem", "/proc/filesystems"], &config());
    assert_eq!((report.files, report.problems), (1, 2));
    assert_eq!(restored(&repository, "/proc/filesystems").1, fs::read("/proc/filesystems").unwrap());
    let request =
        BackupRequest { dry_run: true, ..BackupRequest::new(TreeSource::new(vec!["/proc/version".into()], "test")) };
    let report = backup(&repository.open(), &config(), &request, &Progress::default(), &Arc::default()).unwrap();
    assert_eq!(report.bytes, fs::read("/proc/version").unwrap().len() as u64);
}

#[test]
fn an_empty_file_is_looked_at_each_time_and_counts_as_unchanged() {
    let (repository, directory) = (TestRepository::new(), tempfile::tempdir().unwrap());
    fs::write(directory.path().join("empty"), "").unwrap();
    fs::write(directory.path().join("other"), "other").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(50));
    let path = directory.path().to_str().unwrap();
    let unchanged = |repository: &TestRepository| {
        let report = back_up(repository, &[path], &config());
        (report.files, report.files_unchanged, report.problems)
    };
    assert_eq!(unchanged(&repository), (2, 0, 0));
    assert_eq!(unchanged(&repository), (2, 2, 0));
}

#[test]
fn a_file_that_a_program_gives_by_its_path_must_have_its_size() {
    let repository = TestRepository::new();
    let content = MemoryContent::Disk("/proc/version".into());
    let files = vec![MemoryFile { path: "version".into(), content }];
    let request =
        BackupRequest::new(MemorySource { files, labels: SnapshotLabels::of_host("test"), ..MemorySource::default() });
    let failed = backup(&repository.open(), &config(), &request, &Progress::default(), &Arc::default()).unwrap_err();
    assert!(failed.to_string().contains("/proc/version"), "{failed}");
    assert_eq!(snapshot::list(repository.open().store.as_ref()).unwrap().0.len(), 0);
}
