//! Trees and recipes that repeat themselves: a small repository that claims more than any disk holds.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Instant;

use fhrd::backup::{BackupRequest, TreeSource, backup};
use fhrd::metrics::Progress;
use fhrd::repo::tree::{Node, NodeKind, Timestamp};

use crate::hostile::{TIME_MAX, assert_bad_is_lost, checked};
use crate::hostile_repository::HostileRepository;
use crate::input::{TestRepository, write};

#[test]
fn a_recipe_that_repeats_itself_costs_no_more_than_the_file_claims() {
    // Longer than the file: written up to the length of the file.
    let mut hostile = HostileRepository::new();
    let recipe = hostile.repeated_recipe();
    assert!(recipe.content_len() == 1 << 60);
    let (repository, _) = hostile.finish(Some(recipe), 8);
    assert_bad_is_lost(&repository, "/bad");

    // Of the length that the file claims: a check walks each recipe once.
    let mut hostile = HostileRepository::new();
    let recipe = hostile.repeated_recipe();
    let (repository, _) = hostile.finish(Some(recipe), recipe.content_len());
    let started = Instant::now();
    assert_eq!(checked(&repository).defects, [""; 0]);
    assert!(started.elapsed() < TIME_MAX, "{:?}", started.elapsed());
}

#[test]
fn directories_that_repeat_themselves_are_checked_once() {
    let mut hostile = HostileRepository::new();
    let mut content = None;
    for _ in 0..60 {
        let node = |name: &str| Node { name: name.into(), kind: NodeKind::Directory, content, ..Node::default() };
        content = Some(hostile.listing(&[node("one"), node("two")]));
    }
    let (repository, _) = hostile.finish_with(content.unwrap(), Vec::new(), 1);
    let started = Instant::now();
    assert_eq!(checked(&repository).defects, [""; 0]);
    assert!(started.elapsed() < TIME_MAX, "{:?}", started.elapsed());
}

#[test]
fn a_backup_does_not_walk_a_parent_whose_content_is_longer_than_its_file() {
    let source = tempfile::tempdir().unwrap();
    let path = source.path().join("file");
    write(path.clone(), b"8 bytes.");
    let metadata = fs::metadata(&path).unwrap();
    let mut hostile = HostileRepository::new();
    let content = Some(hostile.repeated_recipe());
    let time = |seconds, nanoseconds: i64| Timestamp { seconds, nanoseconds: nanoseconds as u32 };
    let mut node = Node {
        name: "file".into(),
        size: 8,
        inode: metadata.ino(),
        mtime: time(metadata.mtime(), metadata.mtime_nsec()),
        ctime: time(metadata.ctime(), metadata.ctime_nsec()),
        content,
        ..Node::default()
    };
    // The tree of a backup has all directories from the root on.
    let mut root = hostile.listing(&[node.clone()]);
    let names: Vec<_> = source.path().components().skip(1).map(|it| it.as_os_str().to_os_string()).collect();
    for name in names.iter().rev() {
        node = Node {
            name: name.as_encoded_bytes().into(),
            kind: NodeKind::Directory,
            content: Some(root),
            ..Node::default()
        };
        root = hostile.listing(&[node.clone()]);
    }
    let paths = vec![source.path().as_os_str().as_encoded_bytes().to_vec()];
    let (repository, _) = hostile.finish_with(root, paths, i64::MAX);
    let mut config = TestRepository::config();
    config.read.recheck_seconds = 0;
    let request = BackupRequest::new(TreeSource::new(vec![source.path().into()], "test"));
    let started = Instant::now();
    let report = backup(&repository.open(), &config, &request, &Progress::default(), &Arc::default()).unwrap();
    assert!(report.parent.is_some(), "the hostile snapshot is the parent");
    assert_eq!((report.files, report.files_unchanged), (1, 0));
    assert!(started.elapsed() < TIME_MAX, "{:?}", started.elapsed());
}
