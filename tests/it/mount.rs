//! The files of a mount, asked as a driver asks, without a kernel.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fhrd::mount::{FileEntry, ROOT, ReadOnlyFiles, SnapshotFiles};
use fhrd::repo::Repository;
use fhrd::repo::snapshot;
use fhrd::repo::tree::NodeKind;
use fhrd::store::{ObservedStore, StoreCall, StoreObserver};

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

/// Counts reads of containers by threads that read ahead.
struct AheadObserver(Arc<AtomicU64>);

impl StoreObserver for AheadObserver {
    fn before(&self, call: StoreCall, name: &str) -> fhrd::Result<u64> {
        let is_ahead = std::thread::current().name() == Some("read ahead");
        if is_ahead && call == StoreCall::GetRange && name.starts_with("containers/") {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        Ok(0)
    }
}

/// The file `image` of a repository, and the number of reads ahead of those who read it.
fn observed(repository: &TestRepository, source: &std::path::Path) -> (SnapshotFiles, u64, Arc<AtomicU64>) {
    let (opened, count) = (repository.open(), Arc::<AtomicU64>::default());
    let store = Arc::new(ObservedStore::with(opened.store.clone(), AheadObserver(count.clone())));
    let opened = Repository { store, ..opened };
    let (snapshots, _) = snapshot::list(opened.store.as_ref()).unwrap();
    let files = SnapshotFiles::new(&opened, snapshots).unwrap();
    let image = enter(&files, tree(&files, source).inode, "image").inode;
    (files, image, count)
}

#[test]
fn a_sequential_reader_is_read_ahead_of_in_whatever_order_its_reads_come() {
    let (repository, source, expected) = stored();
    let (files, image, ahead) = observed(&repository, source.path());
    let step = 128 << 10;
    for pair in 0..16 {
        // As two threads of a driver answer them.
        for number in [2 * pair + 1, 2 * pair] {
            let bytes = files.read(image, (number * step) as u64, step).unwrap().unwrap();
            assert!(bytes == expected["image"][number * step..(number + 1) * step], "{number}");
        }
    }
    let started = Instant::now();
    while ahead.load(Ordering::Relaxed) == 0 {
        assert!(started.elapsed() < Duration::from_secs(20), "nothing was read ahead");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn reads_at_random_offsets_are_not_read_ahead_of() {
    let (repository, source, expected) = stored();
    let (files, image, ahead) = observed(&repository, source.path());
    let len = 64 << 10;
    for number in [50, 10, 70, 30, 60, 20] {
        // Pieces of a mapping cross from one read to the next.
        for offset in [number * len, (number + 1) * len] {
            let bytes = files.read(image, offset as u64, len).unwrap().unwrap();
            assert!(bytes == expected["image"][offset..(offset + len).min(expected["image"].len())], "{offset}");
        }
    }
    drop(files);
    assert_eq!(ahead.load(Ordering::Relaxed), 0);
}
