//! The files of a mount, asked as a driver asks, without a kernel.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fhrd::mount::{FileEntry, ROOT, ReadOnlyFiles, SnapshotFiles};
use fhrd::repo::snapshot;
use fhrd::repo::tree::NodeKind;

use crate::input::{TestRepository, write};
use crate::trees::Random;

fn files(repository: &TestRepository) -> SnapshotFiles {
    let repository = repository.open();
    let (snapshots, damaged) = snapshot::list(repository.store.as_ref()).unwrap();
    assert!(damaged.is_empty());
    SnapshotFiles::new(&repository, snapshots).unwrap()
}

fn listed(files: &SnapshotFiles, inode: u64) -> Vec<(Vec<u8>, u64)> {
    let handle = files.open_directory(inode).unwrap().unwrap();
    let mut names = Vec::new();
    // Three entries fit into each answer.
    loop {
        let before = names.len();
        files
            .list(handle, before as u64, &mut |at, entry| {
                assert_eq!(at, names.len() as u64);
                let fits = names.len() < before + 3;
                if fits {
                    names.push((entry.name.clone(), entry.entry.inode));
                }
                fits
            })
            .unwrap();
        if names.len() == before {
            files.close_directory(handle);
            return names;
        }
    }
}

fn enter(files: &SnapshotFiles, from: u64, path: &str) -> FileEntry {
    let mut entry = files.entry(from).unwrap().unwrap();
    for name in path.split('/').filter(|name| !name.is_empty()) {
        entry = files.look_up(entry.inode, OsStr::new(name)).unwrap().unwrap_or_else(|| panic!("no {name} of {path}"));
    }
    entry
}

/// The only snapshot, and the directory in it that was backed up.
fn tree(files: &SnapshotFiles, source: &std::path::Path) -> FileEntry {
    let ids = enter(files, ROOT, "ids").inode;
    let [(id, _)] = listed(files, ids).try_into().unwrap();
    let root = files.look_up(ids, OsStr::from_bytes(&id)).unwrap().unwrap();
    enter(files, root.inode, source.canonicalize().unwrap().to_str().unwrap())
}

fn stored() -> (TestRepository, tempfile::TempDir, BTreeMap<String, Vec<u8>>) {
    let (repository, source) = (TestRepository::new(), tempfile::tempdir().unwrap());
    let mut expected = BTreeMap::new();
    for number in 0..40 {
        let name = format!("directory/{number:02}");
        expected.insert(name, Random(number).bytes(1000 + number as usize));
    }
    expected.insert("image".into(), Random(99).bytes(5_000_000));
    expected.insert("empty".into(), Vec::new());
    expected.iter().for_each(|(name, bytes)| write(source.path().join(name), bytes));
    std::fs::hard_link(source.path().join("image"), source.path().join("directory/another name")).unwrap();
    repository.backup(source.path(), &TestRepository::config());
    (repository, source, expected)
}

#[test]
fn the_top_directories_lead_to_the_snapshots() {
    let (repository, source, _) = stored();
    let files = files(&repository);
    let names: Vec<Vec<u8>> = listed(&files, ROOT).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, [&b"hosts"[..], b"ids", b"latest", b"snapshots", b"tags"]);
    for path in ["latest", "snapshots/latest", "hosts/test/latest"] {
        let link = enter(&files, ROOT, path).node;
        assert_eq!(link.kind, NodeKind::Symlink);
        let depth = path.matches('/').count();
        let target = String::from_utf8(link.link_target.unwrap()).unwrap();
        let below = target.strip_prefix(&"../".repeat(depth)).unwrap();
        assert_eq!(enter(&files, ROOT, below).node.kind, NodeKind::Directory, "{path}");
    }
    assert_eq!(tree(&files, source.path()).node.kind, NodeKind::Directory);
    assert!(files.look_up(ROOT, OsStr::new("absent")).unwrap().is_none());
    assert!(files.entry(12345).unwrap().is_none() && files.open_directory(12345).unwrap().is_none());
}

#[test]
fn names_in_any_order_are_found_and_numbers_stay_after_they_are_forgotten() {
    let (repository, source, expected) = stored();
    let files = files(&repository);
    let root = tree(&files, source.path());
    let directory = enter(&files, root.inode, "directory");
    let entries = listed(&files, directory.inode);
    assert_eq!(entries.len(), 41);
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_by_key(|at| at * 17 % 41);
    for at in order {
        let (name, inode) = &entries[at];
        let found = files.look_up(directory.inode, OsStr::from_bytes(name)).unwrap().unwrap();
        assert_eq!(found.inode, *inode, "a listing and a look-up agree");
        files.forget(found.inode, 1);
        assert!(files.entry(found.inode).unwrap().is_none(), "it is forgotten");
        assert_eq!(files.look_up(directory.inode, OsStr::from_bytes(name)).unwrap().unwrap().inode, *inode);
        let bytes = files.read(*inode, 0, 10_000).unwrap().unwrap();
        let name = format!("directory/{}", String::from_utf8_lossy(name));
        assert!(expected.get(&name).is_none_or(|expected| *expected == bytes), "{name}");
    }
    assert!(files.look_up(directory.inode, OsStr::new("00x")).unwrap().is_none());
    let (image, other) = (enter(&files, root.inode, "image"), enter(&files, directory.inode, "another name"));
    assert_eq!(image.inode, other.inode, "names of one file");
    let again = tree(&self::files(&repository), source.path());
    assert_eq!(again.inode, root.inode, "in the next mount, too");
}

#[test]
fn any_range_is_what_the_file_has() {
    let (repository, source, expected) = stored();
    let files = files(&repository);
    let root = tree(&files, source.path());
    let image = enter(&files, root.inode, "image").inode;
    let bytes = &expected["image"];
    let read = |offset: u64, count: usize| files.read(image, offset, count).unwrap().unwrap();
    let mut random = Random(5);
    for _ in 0..500 {
        let offset = random.next() as usize % (bytes.len() + 5000);
        let end = (offset + 4096).min(bytes.len());
        assert_eq!(read(offset as u64, 4096), bytes.get(offset..end).unwrap_or_default());
    }
    // In sequence, so that the thread reads ahead.
    let mut all = Vec::new();
    while all.len() < bytes.len() {
        all.extend(read(all.len() as u64, 128 << 10));
    }
    assert_eq!(all, *bytes);
    assert_eq!(read(bytes.len() as u64, 10), b"");
    assert_eq!(read(u64::MAX - 5, usize::MAX), b"");
    assert_eq!(files.read(enter(&files, root.inode, "empty").inode, 0, 10).unwrap().unwrap(), b"");
    assert!(files.read(root.inode, 0, 10).is_err(), "a directory has no bytes");
    assert!(files.read(12345, 0, 10).unwrap().is_none());
}
