//! Snapshots that call entries names of one file which do not hold the same: nobody gives one the content of another.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::sync::atomic::AtomicBool;

use fhrd::Error;
use fhrd::inspect::dump::Dump;
use fhrd::metrics::Progress;
use fhrd::mount::{ROOT, ReadOnlyFiles, SnapshotFiles};
use fhrd::repo::recipe::ContentReference;
use fhrd::repo::snapshot;
use fhrd::repo::tree::{FileIdentity, Node, Timestamp};
use fhrd::restore::restore;

use crate::hostile_repository::HostileRepository;
use crate::input::TestRepository;

/// Two names of one file, and others that claim its inode: with another content, mode, time, and another reference to
/// a content of the same length.
fn claimed() -> TestRepository {
    let mut hostile = HostileRepository::new();
    let [first, second] = [b"AAAA", b"BBBB"].map(|content| {
        let fingerprint = hostile.whole(content).fingerprint;
        Some(ContentReference::Chunk { fingerprint, len: 4 })
    });
    let identity = FileIdentity { device: 1, inode: 7 };
    let node = |name: &str, content| Node {
        name: name.into(),
        mode: 0o644,
        size: 4,
        content,
        mtime: Timestamp { seconds: 5, nanoseconds: 0 },
        hard_link: Some(identity),
        ..Node::default()
    };
    let later = Timestamp { seconds: 6, nanoseconds: 0 };
    let root = hostile.listing(&[
        node("a first", first),
        node("b content", second),
        Node { mode: 0o600, ..node("c mode", first) },
        Node { ctime: later, ..node("d linked later", first) },
        Node { mtime: later, ..node("e time", first) },
        node("f content", second),
    ]);
    hostile.finish_with(root, Vec::new(), 1).0
}

/// Contents by name, and the number of the file that each name belongs to.
const EXPECTED: [(&str, &str, usize); 6] = [
    ("a first", "AAAA", 0),
    ("b content", "BBBB", 1),
    ("c mode", "AAAA", 2),
    ("d linked later", "AAAA", 0),
    ("e time", "AAAA", 3),
    ("f content", "BBBB", 1),
];

fn assert_expected(found: &[(String, String, u64)], what: &str) {
    let expected: Vec<_> = EXPECTED.iter().map(|(name, content, _)| (name.to_string(), content.to_string())).collect();
    let names: Vec<_> = found.iter().map(|(name, content, _)| (name.clone(), content.clone())).collect();
    assert_eq!(names, expected, "{what}");
    for (one, (_, _, file)) in found.iter().zip(EXPECTED) {
        for (other, (_, _, other_file)) in found.iter().zip(EXPECTED) {
            assert_eq!(one.2 == other.2, file == other_file, "{what}: {} and {}", one.0, other.0);
        }
    }
}

fn files_in(directory: &std::path::Path) -> Vec<(String, String, u64)> {
    let file = |(name, _, _): (&str, &str, usize)| {
        let path = directory.join(name);
        (name.to_string(), fs::read_to_string(&path).unwrap(), path.metadata().unwrap().ino())
    };
    EXPECTED.map(file).to_vec()
}

#[test]
fn a_restore_joins_only_names_that_hold_the_same() {
    let (repository, directory) = (claimed(), tempfile::tempdir().unwrap());
    let (repository, config) = (repository.open(), TestRepository::config());
    let named = snapshot::find(repository.store.as_ref(), "latest").unwrap();
    let target = directory.path().join("restored");
    let restored = restore(&repository, &config, &named, &target, &Progress::default(), &Default::default()).unwrap();
    assert_eq!((restored.damaged, restored.problems, restored.files), (0, 0, 6));
    assert_expected(&files_in(&target), "restore");
}

#[test]
fn an_archive_links_only_names_that_hold_the_same() {
    let (repository, directory) = (claimed(), tempfile::tempdir().unwrap());
    let repository = repository.open();
    let named = snapshot::find(repository.store.as_ref(), "latest").unwrap();
    let (stop, mut archive) = (AtomicBool::new(false), Vec::new());
    let failed = |error| Error::io("write", "memory", error);
    Dump::new(&repository, &stop).unwrap().archive(&named, None, &mut archive, failed).unwrap();
    let path = directory.path().join("archive");
    fs::write(&path, archive).unwrap();
    let extracted = Command::new("tar").arg("-xf").arg(&path).arg("-C").arg(directory.path()).status().unwrap();
    assert!(extracted.success());
    assert_expected(&files_in(directory.path()), "archive");
}

#[test]
fn a_mount_has_one_inode_only_for_names_that_hold_the_same() {
    let repository = claimed();
    let repository = repository.open();
    let snapshots = snapshot::list(repository.store.as_ref()).unwrap().0;
    let id = snapshots[0].id.to_string();
    let files = SnapshotFiles::new(&repository, snapshots).unwrap();
    let ids = files.look_up(ROOT, OsStr::new("ids")).unwrap().unwrap();
    let root = files.look_up(ids.inode, OsStr::new(&id[..8])).unwrap();
    let root = root.or_else(|| files.look_up(ids.inode, OsStr::new(&id)).unwrap()).unwrap();
    let found = EXPECTED.map(|(name, _, _)| {
        let entry = files.look_up(root.inode, OsStr::new(name)).unwrap().unwrap();
        (entry.node.content, entry.inode)
    });
    for (one, (_, _, file)) in found.iter().zip(EXPECTED) {
        for (other, (_, _, other_file)) in found.iter().zip(EXPECTED) {
            assert_eq!(one.1 == other.1, file == other_file);
            assert!(one.1 != other.1 || one.0 == other.0, "one inode with two contents");
        }
    }
}
