//! A check finds damage wherever it is, names the blob, and goes on; what is sound it calls sound.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use fhrd::Error;
use fhrd::inspect::check::{CheckReport, check};
use fhrd::metrics::Progress;
use fhrd::repo::bundle;
use fhrd::repo::container::{FOOTER_BYTES, Footer, HEADER_BYTES};

use crate::input::{TestRepository, edit, write, write_sparse};
use crate::trees::Random;

fn write_input(directory: &Path, version: u64) {
    let mut random = Random(version);
    let text = Random(100).text(150_000);
    write(directory.join("text/a.txt"), &edit(&mut random, &text, 5 * version as usize));
    write(directory.join("text/b.txt"), &edit(&mut random, &text, 20));
    write(directory.join("model/weights.f32"), &random.floats(20_000));
    write(directory.join(format!("media/noise-{version}.bin")), &random.bytes(40_000));
    for number in 0..30 {
        write(directory.join(format!("small/{}/{number}.txt", number % 3)), &random.text(300));
    }
    write_sparse(directory.join("media/disk.img"), 1 << 20, &mut Random(7));
}

/// Three backups of a tree that changes; made once, copied for each test.
fn stored() -> TestRepository {
    static STORED: OnceLock<TestRepository> = OnceLock::new();
    let make = || {
        let (repository, source) = (TestRepository::new(), tempfile::tempdir().unwrap());
        for version in 0..3 {
            write_input(source.path(), version);
            repository.backup(source.path(), &TestRepository::config());
        }
        assert_eq!(bundle::maintain(repository.open().store.as_ref(), 1).unwrap(), 3);
        repository
    };
    STORED.get_or_init(make).copy()
}

fn run(repository: &TestRepository, read_data: bool) -> CheckReport {
    let mut config = TestRepository::config();
    config.pipeline.workers = 2;
    check(&repository.open(), &config, read_data, &Progress::default(), &Arc::default()).unwrap()
}

/// Asserts that damage of the blob `name` is found and named.
fn assert_named(repository: &TestRepository, name: &str, read_data: bool, what: &str) {
    let report = run(repository, read_data);
    // A bundle only has copies.
    let texts = if name.starts_with("bundles/") { &report.notes } else { &report.defects };
    let named = texts.iter().any(|text| text.contains(name));
    assert!(named, "{name}, {what}: {:#?}", report.defects);
    assert!(report.defect_count >= report.defects.len() as u64, "{name}, {what}");
}

fn flip(bytes: &[u8], at: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at] ^= 1 << (at % 8);
    bytes
}

#[test]
fn what_backups_wrote_is_sound() {
    let repository = stored();
    let (quick, thorough) = (run(&repository, false), run(&repository, true));
    assert_eq!(quick.defects, [""; 0]);
    assert_eq!((thorough.containers_read, thorough.bytes_read), (thorough.containers, thorough.bytes_stored));
    assert_eq!(
        quick,
        CheckReport { containers_read: 0, bytes_read: 0, is_everything_read: false, read: Vec::new(), ..thorough }
    );
    assert_eq!((quick.snapshots, quick.defect_count, quick.unreferenced_containers), (3, 0, 0));
    let count = |directory: &str| repository.names().iter().filter(|name| name.starts_with(directory)).count() as u64;
    assert_eq!((quick.segments, quick.containers), (count("index/"), count("containers/")));
    assert!(quick.chunks > 30 && quick.frames > 6 && quick.bytes_raw > quick.bytes_stored, "{quick:?}");
}

#[test]
fn every_flipped_truncated_or_missing_blob_is_named() {
    let repository = stored();
    for name in repository.names() {
        let path = repository.path().join(&name);
        let bytes = fs::read(&path).unwrap();
        let positions = (0..7).map(|part| (bytes.len() - 1) * part / 6);
        for at in positions.chain([9, bytes.len() / 2 + 1]) {
            fs::write(&path, flip(&bytes, at)).unwrap();
            assert_named(&repository, &name, true, &format!("bit flipped in byte {at}"));
        }
        for len in [0, 20, bytes.len() / 2, bytes.len() - 1] {
            fs::write(&path, &bytes[..len]).unwrap();
            assert_named(&repository, &name, true, &format!("cut to {len} bytes"));
        }
        fs::write(&path, [&bytes[..], b"more"].concat()).unwrap();
        assert_named(&repository, &name, true, "longer");
        fs::remove_file(&path).unwrap();
        match name.split('/').next() {
            Some("snapshots" | "bundles") => {
                assert_eq!(run(&repository, true).defects, [""; 0], "deleted is no defect")
            }
            Some("index") => {
                let report = run(&repository, true);
                assert!(report.defect_count > 0 && report.unreferenced_containers > 0, "{name}: {report:?}");
            }
            _ => assert_named(&repository, &name, true, "missing"),
        }
        fs::write(&path, &bytes).unwrap();
    }
    assert_eq!(run(&repository, true).defects, [""; 0]);
}

#[test]
fn the_structure_is_checked_without_reading_the_data() {
    let repository = stored();
    for name in repository.names() {
        let path = repository.path().join(&name);
        let bytes = fs::read(&path).unwrap();
        let positions: Vec<usize> = if name.starts_with("containers/") {
            let footer = bytes.len() - FOOTER_BYTES;
            let directory = Footer::parse(&name, bytes.len() as u64, &bytes[footer..]).unwrap().index_offset as usize;
            let header = [0, 8, 10, 13, 30, HEADER_BYTES - 1];
            let rest =
                [directory, (directory + footer) / 2, footer - 1, footer, footer + 20, footer + 50, bytes.len() - 1];
            header.into_iter().chain(rest).collect()
        } else {
            (0..10).map(|part| (bytes.len() - 1) * part / 9).collect()
        };
        for at in positions {
            fs::write(&path, flip(&bytes, at)).unwrap();
            assert_named(&repository, &name, false, &format!("bit flipped in byte {at}"));
        }
        fs::write(&path, &bytes).unwrap();
    }
}

#[test]
fn many_damaged_blobs_are_all_named() {
    let repository = stored();
    let containers: Vec<String> =
        repository.names().into_iter().filter(|name| name.starts_with("containers/")).collect();
    for name in &containers {
        let bytes = repository.read(name);
        fs::write(repository.path().join(name), flip(&bytes, HEADER_BYTES + 40)).unwrap();
    }
    let report = run(&repository, true);
    for name in &containers {
        assert!(report.defects.iter().any(|defect| defect.contains(name.as_str())), "{name}: {:#?}", report.defects);
    }
}

#[test]
fn what_an_interrupted_backup_left_is_no_defect() {
    let repository = stored();
    for name in repository.names().iter().filter(|name| name.starts_with("index/") || name.starts_with("snapshots/")) {
        fs::remove_file(repository.path().join(name)).unwrap();
    }
    let report = run(&repository, true);
    assert_eq!(report.defects, [""; 0]);
    assert!(report.containers >= 6 && report.unreferenced_containers == report.containers, "{report:?}");
}

#[test]
fn backups_that_run_meanwhile_cause_no_defects() {
    let repository = TestRepository::new();
    let running = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let backups = [10, 20].map(|seed| {
            let repository = &repository;
            scope.spawn(move || {
                let source = tempfile::tempdir().unwrap();
                for version in 0..3 {
                    write_input(source.path(), seed + version);
                    repository.backup(source.path(), &TestRepository::config());
                }
            })
        });
        let checks = scope.spawn(|| {
            while running.load(Ordering::Relaxed) {
                assert_eq!(run(&repository, true).defects, [""; 0]);
            }
        });
        backups.into_iter().for_each(|backup| backup.join().unwrap());
        running.store(false, Ordering::Relaxed);
        checks.join().unwrap();
    });
    let report = run(&repository, true);
    assert_eq!((report.snapshots, report.defects), (6, Vec::new()));
}

#[test]
fn a_check_can_be_interrupted() {
    let repository = stored();
    let stop = Arc::new(AtomicBool::new(true));
    let outcome = check(&repository.open(), &TestRepository::config(), true, &Progress::default(), &stop);
    assert!(matches!(outcome, Err(Error::Interrupted)), "{outcome:?}");
}
