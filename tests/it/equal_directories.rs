//! Few listings that describe a tree of any size, because its directories are equal: what has to end, ends.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fhrd::Error;
use fhrd::filesystem::PatternsBuilder;
use fhrd::inspect::dump::Dump;
use fhrd::inspect::find::{FindQuery, find_entries};
use fhrd::inspect::lineage::lineage;
use fhrd::inspect::list::{Depth, list};
use fhrd::inspect::models::models;
use fhrd::inspect::usage::{TreeUsage, usage};
use fhrd::keep::{Copier, CopyOutcome, RewriteOutcome, RewriteRequest, rewrite};
use fhrd::metrics::Progress;
use fhrd::repair::snapshots::{SnapshotRepair, repair_snapshots};
use fhrd::repo::Repository;
use fhrd::repo::recipe::ContentReference;
use fhrd::repo::snapshot::{self, NamedSnapshot, Snapshot};
use fhrd::repo::tree::{FileIdentity, Node, NodeKind};
use fhrd::store::MemoryStore;
use fhrd::types::Fingerprint;

use crate::hostile_repository::HostileRepository;
use crate::input::TestRepository;

const DEPTH: usize = 14;
const WIDTH: usize = 50;

fn file(name: &str, content: Option<ContentReference>) -> Node {
    let size = content.map_or(0, |content| content.content_len());
    Node { name: name.into(), mode: 0o644, size, content, ..Node::default() }
}

/// A reference to a chunk that is in no container.
fn missing() -> Option<ContentReference> {
    Some(ContentReference::Chunk { fingerprint: Fingerprint([3; 32]), len: 10 })
}

/// Directories of 50 equal directories, 14 of them below each other, above a file.
fn laughs(content: Option<ContentReference>, depth: usize) -> TestRepository {
    equal(content, depth, WIDTH)
}

fn equal(content: Option<ContentReference>, depth: usize, width: usize) -> TestRepository {
    let mut hostile = HostileRepository::new();
    let small = ContentReference::Chunk { fingerprint: hostile.whole(b"0123456789").fingerprint, len: 10 };
    let mut listing = hostile.listing(&[file("file.txt", Some(content.unwrap_or(small)))]);
    for _ in 0..depth {
        let directory = |number: usize| Node {
            name: format!("d{number:02}").into(),
            kind: NodeKind::Directory,
            mode: 0o755,
            content: Some(listing),
            ..Node::default()
        };
        listing = hostile.listing(&(0..width).map(directory).collect::<Vec<_>>());
    }
    hostile.finish_with(listing, Vec::new(), 1).0
}

#[test]
fn counting_and_searching_end() {
    let (home, stop) = (laughs(None, DEPTH), AtomicBool::new(false));
    let repository = home.open();
    let snapshots = snapshot::list(repository.store.as_ref()).unwrap().0;
    let counted = usage(&repository, &snapshots[0], None, &stop).unwrap();
    assert_eq!((counted.files, counted.bytes), (u64::MAX, u64::MAX), "no number is large enough");
    assert_eq!(models(&repository, &snapshots, &stop).unwrap().models.len(), 0);
    assert_eq!(lineage(&repository, &snapshots, &stop).unwrap().members.len(), 0);
    let query = FindQuery::new(&["nothing*".into()], false).unwrap();
    let mut found = |_| panic!("nothing has that name");
    assert_eq!(find_entries(&repository, &snapshots, &query, &stop, &mut found).unwrap(), (0, 0));
}

#[test]
fn equal_directories_count_each_time() {
    let (home, stop) = (laughs(None, 2), AtomicBool::new(false));
    let repository = home.open();
    let snapshots = snapshot::list(repository.store.as_ref()).unwrap().0;
    let files = (WIDTH * WIDTH) as u64;
    let counted = usage(&repository, &snapshots[0], None, &stop).unwrap();
    assert_eq!((counted.files, counted.directories, counted.bytes), (files, files + WIDTH as u64, 10 * files));
    assert_eq!((counted.kinds["txt"].files, counted.kinds["txt"].bytes), (files, 10 * files));
    let counted = usage(&repository, &snapshots[0], Some(Path::new("d07")), &stop).unwrap();
    assert_eq!((counted.files, counted.directories), (WIDTH as u64, WIDTH as u64 + 1));
    let query = FindQuery::new(&["file*".into(), "d00".into()], false).unwrap();
    let mut found = 0;
    let mut count = |_| {
        found += 1;
        Ok(())
    };
    find_entries(&repository, &snapshots, &query, &stop, &mut count).unwrap();
    assert_eq!(found, files + 1 + WIDTH as u64);
}

#[test]
fn a_repair_of_equal_directories_ends_and_leaves_out_what_is_lost_in_each() {
    let config = TestRepository::config();
    let home = laughs(None, DEPTH);
    let repaired = repair_snapshots(&home.open(), &config, SnapshotRepair::default(), &Arc::default()).unwrap();
    assert_eq!((repaired.whole, repaired.damaged.len()), (1, 0));
    for depth in [2, DEPTH] {
        let home = laughs(missing(), depth);
        let repository = home.open();
        let repaired = repair_snapshots(&repository, &config, SnapshotRepair::default(), &Arc::default()).unwrap();
        let [damaged] = repaired.damaged.try_into().unwrap();
        let lost = (WIDTH as u64).saturating_pow(depth as u32);
        assert_eq!(damaged.dropped_count, lost);
        let stop = AtomicBool::new(false);
        let named = snapshot::find(repository.store.as_ref(), &damaged.replaced_by.unwrap()).unwrap();
        let counted = usage(&repository, &named, None, &stop).unwrap();
        let directories = (1..=depth as u32).fold(0u64, |sum, level| sum.saturating_add(50u64.saturating_pow(level)));
        assert_eq!((counted.files, counted.directories), (0, directories));
        let counts = ["files", "directories", "others", "bytes"].map(|name| named.snapshot.statistics[name]);
        assert_eq!(counts, [0, directories, 0, 0]);
    }
}

fn only_snapshot(repository: &Repository) -> NamedSnapshot {
    snapshot::find(repository.store.as_ref(), "latest").unwrap()
}

fn used(repository: &Repository, named: &NamedSnapshot, path: &str) -> TreeUsage {
    usage(repository, named, Some(Path::new(path)).filter(|_| !path.is_empty()), &AtomicBool::new(false)).unwrap()
}

fn copied(home: &TestRepository, is_alike: bool) -> (Repository, NamedSnapshot, CopyOutcome) {
    let (source, config, store) = (home.open(), TestRepository::config(), Arc::new(MemoryStore::new()));
    let target = match is_alike {
        true => Repository::init_like(store, &source).unwrap(),
        false => Repository::init(store, &config.repository).unwrap(),
    };
    let mut copier = Copier::new(&source, &target, &config).unwrap();
    let outcome = copier.copy(&only_snapshot(&source), false, &Progress::default(), &Arc::default()).unwrap();
    let copy = only_snapshot(&target);
    (target, copy, outcome)
}

#[test]
fn a_copy_of_equal_directories_ends_and_has_all_of_them() {
    for is_alike in [false, true] {
        for depth in [2, DEPTH] {
            let home = laughs(None, depth);
            let (target, copy, outcome) = copied(&home, is_alike);
            let (original, report) = (only_snapshot(&home.open()), outcome.report.unwrap());
            let [before, after] = [(&home.open(), &original), (&target, &copy)].map(|(at, named)| used(at, named, ""));
            assert_eq!((after.files, after.directories, after.bytes), (before.files, before.directories, before.bytes));
            assert_eq!((report.files, report.bytes, report.problems), (before.files, before.bytes, 0));
            assert_eq!(report.directories, before.directories);
            assert_eq!(copy.snapshot.root == original.snapshot.root, is_alike, "the listings are the same");
            // What is lost in one of them is lost in each.
            let (target, copy, outcome) = copied(&laughs(missing(), depth), is_alike);
            let lost = (WIDTH as u64).saturating_pow(depth as u32);
            assert_eq!((outcome.problems, copy.snapshot.problems()), (lost, lost));
            let after = used(&target, &copy, "");
            assert_eq!((after.files, after.directories), (0, before.directories));
        }
    }
}

fn rewritten(repository: &Repository, pattern: &str) -> fhrd::Result<RewriteOutcome> {
    let mut patterns = PatternsBuilder::default();
    patterns.add(pattern, false, "test").unwrap();
    let request = RewriteRequest {
        exclude: patterns.build().unwrap(),
        excludes: Vec::new(),
        forget: true,
        allow_problems: false,
        dry_run: false,
    };
    let original = only_snapshot(repository);
    rewrite(repository, &TestRepository::config(), &original, &request, &Progress::default(), &Arc::default())
}

#[test]
fn a_rewrite_by_name_of_equal_directories_ends() {
    for depth in [2, DEPTH] {
        let home = laughs(None, depth);
        let repository = home.open();
        let report = rewritten(&repository, "d07").unwrap().report;
        let power = |level: usize| (WIDTH as u64 - 1).saturating_pow(level as u32);
        let sum = |from, to| (from..to).fold(0u64, |sum, level| sum.saturating_add(power(level)));
        let counts = (power(depth), sum(1, depth + 1), sum(0, depth));
        assert_eq!((report.files, report.directories, report.excluded), counts);
        let named = only_snapshot(&repository);
        let after = used(&repository, &named, "");
        assert_eq!((after.files, after.directories), (report.files, report.directories));
        assert_eq!((named.snapshot.statistics["files"], named.snapshot.problems()), (report.files, 0));
    }
}

#[test]
fn a_rewrite_by_path_reads_each_of_equal_directories_or_says_that_there_are_too_many() {
    let home = laughs(None, 2);
    let repository = home.open();
    let report = rewritten(&repository, "/d01/d07").unwrap().report;
    assert_eq!((report.files, report.excluded), ((WIDTH * WIDTH - 1) as u64, 1));
    let named = only_snapshot(&repository);
    let files = ["d00", "d01", "d02"].map(|path| used(&repository, &named, path).files as usize);
    assert_eq!(files, [WIDTH, WIDTH - 1, WIDTH]);
    let home = equal(None, 40, 2);
    let error = rewritten(&home.open(), "/d01/d00").unwrap_err();
    assert!(error.to_string().contains("equal directories"), "{error}");
    assert_eq!(rewritten(&home.open(), "d00").unwrap().report.files, 1);
}

#[test]
fn what_reads_trees_goes_on_behind_a_directory_that_cannot_be_read() {
    let mut hostile = HostileRepository::new();
    let good = ContentReference::Chunk { fingerprint: hostile.whole(b"0123456789").fingerprint, len: 10 };
    let bad = Node { kind: NodeKind::Directory, mode: 0o755, ..file("bad", missing()) };
    let inner = hostile.listing(&[Node { size: 0, ..bad.clone() }, file("z", Some(good))]);
    let directory = Node { kind: NodeKind::Directory, mode: 0o755, content: Some(inner), ..file("d", None) };
    let root = hostile.listing(&[directory.clone(), file("e", Some(good))]);
    let readable = hostile.listing(&[file("y", Some(good))]);
    let readable = Node { size: 0, content: Some(readable), ..bad };
    let inner = hostile.listing(&[readable, file("z", Some(good))]);
    let later = hostile.listing(&[Node { content: Some(inner), ..directory }, file("e", Some(good))]);
    let (home, _) = hostile.finish_with(root, Vec::new(), 2);
    let repository = home.open();
    let named = snapshot::find(repository.store.as_ref(), "latest").unwrap();
    let expected = ["d", "d/bad", "d/z", "e"];
    let mut paths = Vec::new();
    let unread = list(&repository, &named, None, Depth::All, &mut |path, _| {
        paths.push(path.display().to_string());
        Ok(())
    });
    let unread = unread.unwrap();
    assert_eq!((paths, unread.count, unread.newer), (expected.map(String::from).to_vec(), 1, 0));
    let (stop, mut archive) = (AtomicBool::new(false), Vec::new());
    let failed = |error| Error::io("write", "memory", error);
    let report = Dump::new(&repository, &stop).unwrap().archive(&named, None, &mut archive, failed).unwrap();
    assert_eq!((report.entries, report.damaged, report.newer), (4, 1, 0));
    assert!(archive.ends_with(&[0; 1024]));
    let usage = usage(&repository, &named, None, &stop).unwrap();
    assert_eq!((usage.files, usage.directories, usage.unreadable), (2, 2, 1));
    let mut found = Vec::new();
    let query = FindQuery::new(&["*".into()], false).unwrap();
    let (unreadable, _) = find_entries(&repository, std::slice::from_ref(&named), &query, &stop, &mut |entry| {
        found.push(entry.path.display().to_string());
        Ok(())
    })
    .unwrap();
    assert_eq!((found, unreadable), (expected.map(String::from).to_vec(), 1));
    // A snapshot before that cannot be read hides nothing of the next one.
    let store = repository.store.as_ref();
    let (time_ns, root) = (named.snapshot.time_ns + 1, Some(later));
    let next = Snapshot { time_ns, root, ..named.snapshot.clone() }.save(store).unwrap();
    let both = [named, snapshot::find(store, &next.to_string()).unwrap()];
    let mut found = Vec::new();
    let (unreadable, _) = find_entries(&repository, &both, &query, &stop, &mut |entry| {
        found.push((entry.path.display().to_string(), entry.first, entry.last));
        Ok(())
    })
    .unwrap();
    let expected = [("d", 0, 1), ("d/bad", 0, 1), ("d/bad/y", 1, 1), ("d/z", 0, 1), ("e", 0, 1)];
    let expected = expected.map(|(path, first, last)| (path.to_string(), first, last));
    assert_eq!((found.as_slice(), unreadable), (expected.as_slice(), 1));
    // Also where that is the root.
    let mut hostile = HostileRepository::new();
    hostile.whole(b"anything");
    let (home, _) = hostile.finish_with(missing().unwrap(), Vec::new(), 0);
    let repository = home.open();
    let named = snapshot::find(repository.store.as_ref(), "latest").unwrap();
    let unread = list(&repository, &named, None, Depth::All, &mut |_, _| Ok(())).unwrap();
    assert_eq!((unread.count, unread.first.is_some()), (1, true));
}

#[test]
fn an_archive_gives_damaged_files_the_names_that_a_restore_does() {
    let (mut hostile, directory) = (HostileRepository::new(), tempfile::tempdir().unwrap());
    let good = ContentReference::Chunk { fingerprint: hostile.whole(b"0123456789").fingerprint, len: 10 };
    let half = hostile.recipe(1, &[good, missing().unwrap()]);
    let hard_link = Some(FileIdentity { device: 1, inode: 9 });
    let root = hostile.listing(&[
        Node { hard_link, ..file("a", Some(half)) },
        file("a.damaged", Some(good)),
        Node { hard_link, ..file("b", Some(half)) },
        file("c", Some(good)),
    ]);
    let (home, _) = hostile.finish_with(root, Vec::new(), 1);
    let repository = home.open();
    let named = snapshot::find(repository.store.as_ref(), "latest").unwrap();
    let (stop, mut archive) = (AtomicBool::new(false), Vec::new());
    let failed = |error| Error::io("write", "memory", error);
    let report = Dump::new(&repository, &stop).unwrap().archive(&named, None, &mut archive, failed).unwrap();
    assert_eq!((report.entries, report.damaged), (4, 2));
    let path = directory.path().join("archive");
    std::fs::write(&path, archive).unwrap();
    let extracted = Command::new("tar").arg("-xf").arg(&path).arg("-C").arg(directory.path()).status().unwrap();
    assert!(extracted.success());
    std::fs::remove_file(&path).unwrap();
    let mut names: Vec<_> =
        std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["a.damaged", "a.damaged-2", "b.damaged", "c"]);
    for (name, content) in [
        ("a.damaged", &b"0123456789"[..]),
        ("a.damaged-2", b"0123456789\0\0\0\0\0\0\0\0\0\0"),
        ("b.damaged", b"0123456789\0\0\0\0\0\0\0\0\0\0"),
    ] {
        assert_eq!(std::fs::read(directory.path().join(name)).unwrap(), content, "{name}");
    }
}
