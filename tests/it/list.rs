//! Listing a snapshot and counting what is stored.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use fhrd::inspect::list::{Depth, list};
use fhrd::inspect::stats::repository_stats;
use fhrd::inspect::usage::usage;
use fhrd::repo::snapshot::{NamedSnapshot, find};
use fhrd::repo::tree::NodeKind;
use fhrd::{Error, Result};

use crate::input::{TestRepository, edit, write};
use crate::trees::Random;

fn stored() -> (TestRepository, tempfile::TempDir, NamedSnapshot) {
    let (repository, source) = (TestRepository::new(), tempfile::tempdir().unwrap());
    let text = Random(1).text(200_000);
    write(source.path().join("a/inner/deep.txt"), &text);
    write(source.path().join("a/z.txt"), &edit(&mut Random(2), &text, 20));
    write(source.path().join("a.txt"), b"dot comes before the slash of `a/`, but names are compared whole");
    std::fs::create_dir(source.path().join("empty")).unwrap();
    std::os::unix::fs::symlink("a.txt", source.path().join("link")).unwrap();
    repository.backup(source.path(), &TestRepository::config());
    let snapshot = find(repository.open().store.as_ref(), "latest").unwrap();
    (repository, source, snapshot)
}

fn paths(repository: &TestRepository, snapshot: &NamedSnapshot, path: Option<&Path>) -> Result<Vec<String>> {
    let mut paths = Vec::new();
    let unread = list(&repository.open(), snapshot, path, Depth::All, &mut |path, node| {
        assert_eq!(path.file_name().map(|name| name.as_encoded_bytes()), Some(node.name.as_slice()));
        assert_eq!(path.extension().is_some_and(|extension| extension == "txt"), node.kind == NodeKind::File);
        paths.push(path.to_str().unwrap().to_string());
        Ok(())
    })?;
    assert_eq!(unread.count, 0);
    Ok(paths)
}

#[test]
fn entries_come_depth_first_in_name_order_and_a_path_restricts_them() {
    let (repository, source, snapshot) = stored();
    let source = source.path().canonicalize().unwrap();
    let root = source.to_str().unwrap().trim_start_matches('/').to_string();
    let below = |names: &[&str]| names.iter().map(|name| format!("{root}/{name}")).collect::<Vec<_>>();
    let inside = ["a", "a/inner", "a/inner/deep.txt", "a/z.txt", "a.txt", "empty", "link"];
    let all = paths(&repository, &snapshot, None).unwrap();
    assert!(all.ends_with(&below(&inside)), "{all:?}");
    assert_eq!(paths(&repository, &snapshot, Some(Path::new("/"))).unwrap(), all);
    for (path, expected) in [("a", &inside[..4]), ("a/z.txt", &inside[3..4]), ("empty/", &inside[5..6])] {
        assert_eq!(paths(&repository, &snapshot, Some(&source.join(path))).unwrap(), below(expected));
        let relative = Path::new(&root).join(path);
        assert_eq!(paths(&repository, &snapshot, Some(&relative)).unwrap(), below(expected));
    }
    for path in ["b", "a/inner/deep.txt/x", "a/../a.txt", "aa"] {
        let outcome = paths(&repository, &snapshot, Some(&source.join(path)));
        assert!(matches!(outcome, Err(Error::NoSuchPath { .. })), "{path}: {outcome:?}");
    }
}

#[test]
fn what_the_caller_answers_ends_the_listing() {
    let (repository, _source, snapshot) = stored();
    let outcome = list(&repository.open(), &snapshot, None, Depth::One, &mut |_, _| Err(Error::Interrupted));
    assert!(matches!(outcome, Err(Error::Interrupted)));
}

#[test]
fn the_figures_add_up() {
    let (repository, _source, snapshot) = stored();
    let found = usage(&repository.open(), &snapshot, None, &AtomicBool::new(false)).unwrap();
    assert_eq!((found.files, found.others), (3, 1));
    let recorded = &snapshot.snapshot.statistics;
    assert_eq!((recorded["files"], recorded["bytes"]), (found.files, found.bytes));
    assert_eq!(recorded["directories"], found.directories);

    let stats = repository_stats(&repository.open()).unwrap();
    let blobs = repository.names().into_iter().map(|name| (repository.read(&name).len() as u64, name));
    let stored = stats.stored_bytes;
    assert_eq!(stored.total, blobs.map(|(len, _)| len).sum::<u64>());
    assert_eq!(stored.total, stored.containers + stored.index + stored.snapshots + stored.other);
    assert_eq!((stats.snapshots, stats.segments, stats.containers, stats.containers_damaged), (1, 1, 2, 0));
    assert_eq!(stats.raw_bytes, stats.literal_bytes + stats.copied_bytes);
    assert!(stats.copied_bytes > 10_000, "the second text is stored against the first: {stats:?}");
    assert!(stats.features > 0, "what it was found by is stored: {stats:?}");
    assert_eq!(stats.literal_bytes, stats.frames.values().map(|codec| codec.raw_bytes).sum::<u64>());
    let frames: u64 = stats.frames.values().map(|codec| codec.stored_bytes).sum();
    assert_eq!(stored.containers, frames + stats.container_index_bytes + 2 * (64 + 64));
    assert_eq!(stats.depths.values().sum::<u64>(), stats.chunks);
}
