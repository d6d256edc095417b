//! Files in the local cache directory: whatever happens to them, backups and restores are whole.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use fhrd::backup::{BackupReport, BackupRequest, TreeSource, backup};
use fhrd::inspect::check::check;
use fhrd::metrics::Progress;
use fhrd::repo::index::FILTER_FILE;
use fhrd::repo::paths::cache_directory;
use fhrd::repo::{snapshot, snapshot_listing};
use fhrd::restore::restore;

use crate::input::{TestRepository, copy_directory, files, write};
use crate::trees::{Random, assert_same, describe};

fn back_up(stored: &TestRepository, source: &Path) -> BackupReport {
    let request = BackupRequest::new(TreeSource::new(vec![source.into()], "test"));
    backup(&stored.open(), &TestRepository::config(), &request, &Progress::default(), &Arc::default()).unwrap()
}

/// `bytes` cut, with flipped bits, replaced and extended.
fn damages(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut damaged: Vec<(String, Vec<u8>)> = Vec::new();
    for len in [0, 1, 7, 40, bytes.len() / 2, bytes.len().saturating_sub(1)] {
        damaged.push((format!("cut to {len}"), bytes.iter().take(len).copied().collect()));
    }
    for at in [0, 8, 20, 41, 70, bytes.len() / 3, bytes.len() / 2, bytes.len().saturating_sub(1)] {
        let mut flipped = bytes.to_vec();
        if let Some(byte) = flipped.get_mut(at) {
            *byte ^= 0x10;
            damaged.push((format!("byte {at} flipped"), flipped));
        }
    }
    damaged.push(("garbage".into(), Random(9).bytes(bytes.len().max(5000))));
    damaged.push(("zeros".into(), vec![0; bytes.len()]));
    damaged.push(("longer".into(), [bytes, &[7; 5000]].concat()));
    damaged
}

#[test]
fn every_damage_to_a_cache_file_is_no_loss() {
    let (source, stored) = (tempfile::tempdir().unwrap(), TestRepository::new());
    let mut random = Random(3);
    for number in 0..20 {
        write(source.path().join(number.to_string()), &random.text(30_000));
    }
    back_up(&stored, source.path());
    write(source.path().join("5"), &random.text(30_000));
    back_up(&stored, source.path());
    let cache = cache_directory(&stored.open()).unwrap();
    let mut names = files(&cache);
    assert!(names.iter().any(|name| name == snapshot_listing::SNAPSHOTS_FILE), "{names:?}");
    assert!(names.iter().any(|name| name.starts_with("similarity")), "{names:?}");
    // A repository this small needs no filter file.
    names.push(FILTER_FILE.into());
    write(source.path().join("6"), &random.text(30_000));
    let want = describe(source.path());
    for name in names {
        let whole = fs::read(cache.join(&name)).unwrap_or_else(|_| vec![1; 5000]);
        for (what, bytes) in damages(&whole) {
            let what = format!("{name} {what}");
            let copy = stored.copy();
            let own = cache_directory(&copy.open()).unwrap();
            copy_directory(&cache, &own);
            fs::write(own.join(&name), bytes).unwrap();
            let report = back_up(&copy, source.path());
            assert!(report.parent.is_some(), "{what}");
            assert_eq!(report.problems, 0, "{what}");
            assert!(report.bytes_new < 40_000, "{what}: {} new bytes", report.bytes_new);
            let repository = copy.open();
            let named = snapshot::find(repository.store.as_ref(), "latest").unwrap();
            assert_eq!(named.id.to_string(), report.snapshot, "{what}");
            let directory = tempfile::tempdir().unwrap();
            let (target, config) = (directory.path().join("back"), TestRepository::config());
            let (progress, stop) = (Progress::default(), Arc::default());
            let restored = restore(&repository, &config, &named, &target, &progress, &stop).unwrap();
            assert_eq!((restored.damaged, restored.problems), (0, 0), "{what}");
            assert_same(&want, &describe(&target.join(source.path().strip_prefix("/").unwrap())), &what);
            assert_eq!(check(&repository, &config, true, &progress, &stop).unwrap().defects, [""; 0], "{what}");
            fs::remove_dir_all(own).unwrap();
        }
    }
}
