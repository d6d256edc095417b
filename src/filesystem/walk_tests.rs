//! Walks of real trees.

use super::*;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

/// The events below `root`, as text relative to it.
fn walk(root: &Path, below: &[&str], skip: &[FileIdentity]) -> Vec<String> {
    let paths: Vec<PathBuf> = below.iter().map(|path| root.join(path)).collect();
    let walker = Walker::new(WalkPlan::new(&paths).unwrap(), skip.iter().copied().collect(), EntryChoice::default());
    let prefix = root.strip_prefix("/").unwrap().to_path_buf();
    let relative = |path: &Path| {
        path.strip_prefix(&prefix).ok().map(|path| path.as_os_str().as_bytes().escape_ascii().to_string())
    };
    let texts = walker.filter_map(|event| {
        let (verb, path) = match &event {
            Event::Enter { path, node } => {
                assert_eq!(
                    (node.kind, node.name.as_slice()),
                    (NodeKind::Directory, path.file_name().unwrap().as_bytes())
                );
                ("+", path)
            }
            Event::Entry { path, node } => {
                assert_eq!(node.name, path.file_name().unwrap().as_bytes());
                assert_eq!(node.defect(), None);
                ("", path)
            }
            Event::Leave { path } => ("-", path),
            Event::Problem { path, .. } => ("!", path),
            Event::Skipped { path } => ("~", path),
            Event::Excluded { path, .. } => ("x", path),
        };
        relative(path).map(|path| format!("{verb}{path}"))
    });
    texts.collect()
}

fn tree(paths: &[&[u8]]) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(directory.path()).unwrap();
    for path in paths {
        let whole = root.join(OsStr::from_bytes(path));
        fs::create_dir_all(whole.parent().unwrap()).unwrap();
        if path.ends_with(b"/") { fs::create_dir_all(whole).unwrap() } else { fs::write(whole, path).unwrap() }
    }
    (directory, root)
}

#[test]
fn siblings_come_in_byte_order() {
    let (_directory, root) = tree(&[b"a/z", b"a/Z", b"a/b/c", b"a/b-", b"a/empty/"]);
    symlink("b", root.join("a/to-b")).unwrap();
    let expected =
        ["+", "+a", "a/Z", "+a/b", "a/b/c", "-a/b", "a/b-", "+a/empty", "-a/empty", "a/to-b", "a/z", "-a", "-"];
    assert_eq!(walk(&root, &["a"], &[]), expected);
}

#[cfg(target_os = "linux")]
#[test]
fn names_are_bytes() {
    let (_directory, root) = tree(&[b"a/\xff\xfe", b"a/caf\xe9/x", b"a/new\nline"]);
    let expected = ["+", "+a", "+a/caf\\xe9", "a/caf\\xe9/x", "-a/caf\\xe9", "a/new\\nline", "a/\\xff\\xfe", "-a", "-"];
    assert_eq!(walk(&root, &["a"], &[]), expected);
}

#[test]
fn several_paths_share_their_ancestors() {
    let (_directory, root) = tree(&[b"a/b/c", b"a/d", b"a/e", b"f"]);
    assert_eq!(
        walk(&root, &["f", "a/d", "a/b", "none"], &[]),
        ["!none", "+", "+a", "+a/b", "a/b/c", "-a/b", "a/d", "-a", "f", "-"]
    );
}

#[test]
fn links_are_followed_in_parents_but_not_in_targets() {
    let (_directory, root) = tree(&[b"real/x", b"real/y"]);
    symlink("real", root.join("link")).unwrap();
    assert_eq!(walk(&root, &["link/x"], &[]), ["+", "+link", "link/x", "-link", "-"]);
    assert_eq!(walk(&root, &["link"], &[]), ["+", "link", "-"]);
}

#[test]
fn directories_to_skip_are_reported() {
    let (_directory, root) = tree(&[b"a/repository/data", b"a/x"]);
    let metadata = fs::metadata(root.join("a/repository")).unwrap();
    let identity = FileIdentity { device: metadata.dev(), inode: metadata.ino() };
    assert_eq!(walk(&root, &["a"], &[identity]), ["+", "+a", "~a/repository", "a/x", "-a", "-"]);
    assert_eq!(walk(&root, &["a/repository"], &[identity]), ["+", "+a", "~a/repository", "-a", "-"]);
}

#[test]
fn a_vanished_entry_is_a_problem_and_the_walk_continues() {
    let (_directory, root) = tree(&[b"a/1", b"a/2", b"a/3/x", b"a/4/x", b"a/5"]);
    let mut walker = Walker::new(WalkPlan::new(&[root.join("a")]).unwrap(), BTreeSet::new(), EntryChoice::default());
    let mut texts = Vec::new();
    while let Some(event) = walker.next() {
        match event {
            Event::Entry { path, node } => {
                if path.ends_with("a/1") {
                    assert_eq!(walker.location(&node).open(&node).unwrap().size(), 3);
                    fs::remove_file(root.join("a/2")).unwrap();
                    fs::remove_dir_all(root.join("a/3")).unwrap();
                    fs::remove_dir_all(root.join("a/4")).unwrap();
                    fs::write(root.join("a/4"), b"now a file").unwrap();
                }
                if path.ends_with("a/5") {
                    fs::remove_file(root.join("a/5")).unwrap();
                    assert!(walker.location(&node).open(&node).is_err());
                }
                texts.push(path.file_name().unwrap().to_owned());
            }
            Event::Problem { path, error } => {
                assert!(matches!(error, Error::Io { .. }));
                texts.push(OsString::from(format!("!{}", path.file_name().unwrap().display())));
            }
            _ => {}
        }
    }
    assert_eq!(texts, ["1", "!2", "!3", "4", "5"]);
}

#[test]
fn an_unreadable_directory_keeps_its_metadata() {
    use std::os::unix::fs::PermissionsExt;
    if rustix::process::geteuid().is_root() {
        return; // root reads everything
    }
    let (_directory, root) = tree(&[b"a/locked/x", b"a/y"]);
    fs::set_permissions(root.join("a/locked"), fs::Permissions::from_mode(0o000)).unwrap();
    let events = walk(&root, &["a"], &[]);
    fs::set_permissions(root.join("a/locked"), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(events, ["+", "+a", "!a/locked", "+a/locked", "-a/locked", "a/y", "-a", "-"]);
}

#[test]
fn a_file_named_on_the_command_line_can_be_opened() {
    let (_directory, root) = tree(&[b"a/b"]);
    let mut walker = Walker::new(WalkPlan::new(&[root.join("a/b")]).unwrap(), BTreeSet::new(), EntryChoice::default());
    let node = walker.find_map(|event| if let Event::Entry { node, .. } = event { Some(node) } else { None }).unwrap();
    assert_eq!(walker.location(&node).open(&node).unwrap().size(), 3);
    assert!(walker.root().is_none());
}

#[test]
fn the_root_has_metadata_but_no_events() {
    let (_directory, root) = tree(&[b"a/b"]);
    let mut walker = Walker::new(WalkPlan::default(), BTreeSet::new(), EntryChoice::default());
    assert!(walker.next().is_none());
    walker.directories.clear();
    walker.start_at(&root);
    assert_eq!(walker.root().map(|node| (node.kind, node.name.len())), Some((NodeKind::Directory, 0)));
    let paths: Vec<_> = walker
        .filter_map(|event| match event {
            Event::Enter { path, .. } | Event::Entry { path, .. } | Event::Leave { path } => Some(path),
            _ => None,
        })
        .collect();
    assert_eq!(paths, [Path::new("a"), Path::new("a/b"), Path::new("a")]);
}

/// Makes `depth` directories in each other with one file beside each, far longer than a path may be.
fn deep(root: &Path, depth: usize) {
    let mut directory: OwnedFd = fs::File::open(root).unwrap().into();
    let name = "d".repeat(200);
    for _ in 0..depth {
        rustix::fs::mkdirat(&directory, &name, 0o700.into()).unwrap();
        let flags = OFlags::CREATE | OFlags::WRONLY;
        rustix::fs::openat(&directory, "file", flags, 0o600.into()).unwrap();
        directory = rustix::fs::openat(&directory, &name, OFlags::RDONLY | OFlags::DIRECTORY, 0.into()).unwrap();
    }
}

#[test]
fn deep_trees_and_long_paths_are_walked() {
    let directory = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(directory.path()).unwrap();
    const DEPTH: usize = 300;
    deep(&root, DEPTH);
    let mut walker = Walker::new(WalkPlan::new(&[&root]).unwrap(), BTreeSet::new(), EntryChoice::default());
    let (mut entered, mut left, mut files) = (0, 0, 0);
    while let Some(event) = walker.next() {
        match event {
            Event::Enter { .. } => entered += 1,
            Event::Leave { .. } => left += 1,
            Event::Entry { node, .. } => {
                files += 1;
                assert_eq!(walker.location(&node).open(&node).unwrap().size(), 0);
            }
            Event::Problem { error, .. } => panic!("{error}"),
            Event::Skipped { .. } | Event::Excluded { .. } => panic!("skipped"),
        }
        let open = walker
            .directories
            .iter()
            .filter(|directory| matches!(directory, WalkedDirectory::Listed { open: Some(_), .. }))
            .count();
        assert!(open <= OPEN_DIRECTORIES_MAX);
    }
    let above = root.components().count() - 2;
    assert_eq!((entered, left, files), (DEPTH + above + 1, DEPTH + above + 1, DEPTH));
}

/// Tests run in the package's directory.
#[test]
fn relative_paths_are_opened_from_the_current_directory() {
    for (given, wanted) in [("./src//filesystem", "src/filesystem/walk.rs"), (".", "Cargo.toml")] {
        let mut walker = Walker::new(WalkPlan::new(&[given]).unwrap(), BTreeSet::new(), EntryChoice::default());
        assert_eq!(walker.root().is_some(), given == ".");
        let node = walker.find_map(|event| match event {
            Event::Entry { path, node } if path == Path::new(wanted) => Some(node),
            _ => None,
        });
        let node = node.unwrap();
        assert_eq!(walker.location(&node).open(&node).unwrap().size(), node.size);
    }
}
