//! Restores of single entries, valid and hostile.

use super::*;
use crate::filesystem::{Capturer, TargetOptions};
use crate::repo::tree::{DeviceNumber, FileFlags, Timestamp, Xattr};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};

struct Fixture {
    _directory: tempfile::TempDir,
    root: PathBuf,
    descent: Descent,
    problems: Vec<Error>,
}

fn fixture() -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("created/with/parents");
    let descent = Descent::new(Arc::new(Target::create(&root, TargetOptions::default()).unwrap()));
    Fixture { _directory: directory, root, descent, problems: Vec::new() }
}

impl Fixture {
    fn captured(&self, path: &str) -> Node {
        Capturer::new().capture_path(&self.root.join(path), false, &mut Vec::new()).unwrap()
    }

    /// Creates an empty file under its own name.
    fn create_file(&self, node: &Node) -> Result<File> {
        let created = self.descent.create_file(node, None, &[0; 12])?;
        let file = created.file.try_clone().unwrap();
        created.publish(Completeness::Complete, &mut Vec::new())?;
        Ok(file)
    }

    fn create_hard_link(&self, existing: &Path, node: &Node) -> Result<OsString> {
        let at = self.descent.link_name(node, None)?;
        self.descent.target.create_hard_link(existing, node.kind, &at, Completeness::Complete)
    }

    fn finish(&mut self, file: &File, node: &Node) {
        self.descent.target.finish_file(Path::new("file"), file, node, &mut self.problems);
    }
}

fn owned(name: &[u8], kind: NodeKind, mode: u32) -> Node {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let mtime = Timestamp { seconds: 1_000_000_000, nanoseconds: 123_456_789 };
    Node { name: name.to_vec(), kind, mode, uid, gid, mtime, ..Node::default() }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn a_file_is_private_until_it_is_finished() {
    let mut test = fixture();
    for (index, mode) in [0o4755, 0o2750, 0o1644, 0o444, 0].into_iter().enumerate() {
        let node = owned(format!("{index}").as_bytes(), NodeKind::File, mode);
        let file = test.create_file(&node).unwrap();
        assert_eq!(file.metadata().unwrap().mode() & 0o7777, 0o1600);
        file.write_all_at(b"content", 0).unwrap();
        test.finish(&file, &node);
        let metadata = fs::metadata(test.root.join(format!("{index}"))).unwrap();
        assert_eq!(metadata.mode() & 0o7777, mode);
        assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (1_000_000_000, 123_456_789));
        assert_eq!((metadata.atime(), metadata.len()), (1_000_000_000, 7));
    }
    assert!(test.problems.is_empty(), "{:?}", test.problems);
}

#[test]
fn owners_are_restored_by_root() {
    if !is_root() {
        return;
    }
    let mut test = fixture();
    let file_node = Node { uid: 12345, gid: 54321, ..owned(b"file", NodeKind::File, 0o6755) };
    let file = test.create_file(&file_node).unwrap();
    test.finish(&file, &file_node);
    let target = Some(b"/no/where".to_vec());
    let link = Node { uid: 12345, gid: 54321, link_target: target, ..owned(b"link", NodeKind::Symlink, 0o777) };
    test.descent.create_symlink(&link, None, &mut test.problems).unwrap();
    for (name, node) in [("file", &file_node), ("link", &link)] {
        let restored = test.captured(name);
        assert_eq!((restored.uid, restored.gid, restored.mode), (12345, 54321, node.mode));
    }
    let unchanged = Node { uid: u32::MAX, gid: u32::MAX, ..owned(b"no change", NodeKind::File, 0o600) };
    let file = test.create_file(&unchanged).unwrap();
    test.finish(&file, &unchanged);
    assert!(test.problems.is_empty(), "{:?}", test.problems);
}

#[test]
fn times_before_1970_and_after_2038_are_restored() {
    let mut test = fixture();
    for seconds in [-1, -2_000_000_000, 0, 1 << 31, 8_000_000_000] {
        let mtime = Timestamp { seconds, nanoseconds: 999_999_999 };
        let atime = Some(Timestamp { seconds: 7, nanoseconds: 8 });
        let node = Node { mtime, atime, ..owned(format!("f{seconds}").as_bytes(), NodeKind::File, 0o600) };
        let file = test.create_file(&node).unwrap();
        test.finish(&file, &node);
        let restored = test.captured(&format!("f{seconds}"));
        assert_eq!(restored.mtime, mtime);
        assert_eq!(fs::metadata(test.root.join(format!("f{seconds}"))).unwrap().atime_nsec(), 8);
        let target = Some(b"x".to_vec());
        let node =
            Node { mtime, link_target: target, ..owned(format!("l{seconds}").as_bytes(), NodeKind::Symlink, 0o777) };
        test.descent.create_symlink(&node, None, &mut test.problems).unwrap();
        assert_eq!(test.captured(&format!("l{seconds}")).mtime, mtime);
    }
    assert!(test.problems.is_empty(), "{:?}", test.problems);
}

#[test]
fn a_directory_gets_its_metadata_when_it_is_left() {
    let mut test = fixture();
    let outer = owned(b"outer", NodeKind::Directory, 0o1555);
    let inner = owned(b"inner", NodeKind::Directory, 0o2750);
    test.descent.enter(&outer, None).unwrap();
    test.descent.enter(&inner, None).unwrap();
    assert_eq!(test.descent.path(), Path::new("outer/inner"));
    test.create_file(&owned(b"file", NodeKind::File, 0o600)).unwrap();
    test.descent.leave(Some(&inner), &mut test.problems).unwrap();
    test.create_file(&owned(b"after", NodeKind::File, 0o600)).unwrap();
    test.descent.leave(Some(&outer), &mut test.problems).unwrap();
    for (path, node) in [("outer", &outer), ("outer/inner", &inner)] {
        let restored = test.captured(path);
        assert_eq!((restored.mode, restored.mtime), (node.mode, node.mtime));
    }
    assert!(test.descent.leave(Some(&outer), &mut test.problems).is_ok()); // nothing is above the root
    assert!(test.problems.is_empty(), "{:?}", test.problems);
}

#[test]
fn a_sparse_file_keeps_its_holes() {
    let test = fixture();
    let node = Node { size: 8 << 20, sparse: true, ..owned(b"sparse", NodeKind::File, 0o600) };
    let file = test.create_file(&node).unwrap();
    file.write_all_at(&[7; 4096], 4 << 20).unwrap();
    file.sync_all().unwrap();
    let metadata = fs::metadata(test.root.join("sparse")).unwrap();
    assert_eq!(metadata.len(), 8 << 20);
    let captured = test.captured("sparse");
    let source = crate::filesystem::SourceFile::open(&test.root.join("sparse"), &captured).unwrap();
    use crate::filesystem::FileRange::{Data, Hole};
    let ranges: Vec<_> = source.ranges(4096).collect();
    let expected = [Hole { len: 4 << 20 }, Data { offset: 4 << 20, len: 4096 }, Hole { len: (4 << 20) - 4096 }];
    assert!(ranges == expected || ranges == [Data { offset: 0, len: 8 << 20 }], "{ranges:?}");
}

#[test]
fn links_pipes_and_devices_are_restored() {
    let mut test = fixture();
    let target = Some(b"../\xff dangling".to_vec());
    let link = Node { link_target: target.clone(), ..owned(b"link", NodeKind::Symlink, 0o777) };
    test.descent.create_symlink(&link, None, &mut test.problems).unwrap();
    assert_eq!(test.captured("link").link_target, target);

    let socket = owned(b"socket", NodeKind::Socket, 0o600);
    assert!(!test.descent.create_special(&socket, None, &mut test.problems).unwrap());
    let fifo = owned(b"fifo", NodeKind::Fifo, 0o1622);
    if test.descent.create_special(&fifo, None, &mut test.problems).unwrap() {
        let restored = test.captured("fifo");
        assert_eq!((restored.kind, restored.mode, restored.mtime), (NodeKind::Fifo, 0o1622, fifo.mtime));
    }
    if is_root() && cfg!(target_os = "linux") {
        for (name, kind) in [("c", NodeKind::CharacterDevice), ("b", NodeKind::BlockDevice)] {
            let device_number = Some(DeviceNumber { major: 300, minor: 70_000 });
            let node = Node { device_number, ..owned(name.as_bytes(), kind, 0o620) };
            match test.descent.create_special(&node, None, &mut test.problems) {
                Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => continue,
                made => assert!(made.unwrap()), // a container may forbid devices even to root
            }
            let restored = test.captured(name);
            assert_eq!((restored.kind, restored.mode, restored.device_number), (kind, 0o620, device_number));
        }
    }
    assert!(test.problems.is_empty(), "{:?}", test.problems);
}

#[test]
fn attributes_come_back_even_on_read_only_files() {
    let mut test = fixture();
    let xattrs = vec![Xattr { name: b"user.a".to_vec(), value: vec![0, 255] }];
    let node = Node { xattrs, ..owned(b"file", NodeKind::File, 0o400) };
    let file = test.create_file(&node).unwrap();
    if xattr::FileExt::set_xattr(&file, "user.probe", b"").is_err() {
        return; // the file system has none
    }
    xattr::FileExt::remove_xattr(&file, "user.probe").unwrap();
    test.finish(&file, &node);
    assert_eq!(test.captured("file").xattrs, node.xattrs);
    assert!(test.problems.is_empty(), "{:?}", test.problems);
    // A pipe may have no user attributes: a warning is counted, the rest is applied.
    let fifo = Node { name: b"fifo".to_vec(), kind: NodeKind::Fifo, ..node };
    if test.descent.create_special(&fifo, None, &mut test.problems).unwrap() {
        assert_eq!((test.problems.len(), test.descent.target.options.notes.warnings.get()), (0, 1));
        assert_eq!(test.captured("fifo").mode, 0o400);
    }
}

#[test]
fn hard_links_join_what_was_restored() {
    let mut test = fixture();
    let directory = owned(b"directory", NodeKind::Directory, 0o700);
    test.descent.enter(&directory, None).unwrap();
    let file = owned(b"one", NodeKind::File, 0o600);
    test.create_file(&file).unwrap();
    let link = Node { link_target: Some(b"one".to_vec()), ..owned(b"link", NodeKind::Symlink, 0o777) };
    test.descent.create_symlink(&link, None, &mut test.problems).unwrap();
    test.descent.leave(Some(&directory), &mut test.problems).unwrap();
    let second = owned(b"two", NodeKind::File, 0o600);
    test.create_hard_link(Path::new("directory/one"), &second).unwrap();
    assert_eq!(test.captured("two").identity(), test.captured("directory/one").identity());
    let other = Node { name: b"link two".to_vec(), ..link };
    test.create_hard_link(Path::new("directory/link"), &other).unwrap();
    assert_eq!(test.captured("link two").identity(), test.captured("directory/link").identity());

    symlink("directory", test.root.join("planted")).unwrap();
    let third = owned(b"three", NodeKind::File, 0o600);
    for existing in ["directory/none", "planted/one", "directory/link", "directory", "../x", "/etc/passwd", ""] {
        assert!(test.create_hard_link(Path::new(existing), &third).is_err(), "{existing}");
    }
    assert!(!test.root.join("three").exists());
    let at = test.descent.link_name(&third, None).unwrap();
    for expected in ["three.damaged", "three.damaged-2"] {
        let linked =
            test.descent.target.create_hard_link(Path::new("two"), NodeKind::File, &at, Completeness::Damaged).unwrap();
        assert_eq!(linked, expected);
        assert_eq!(test.captured(expected).identity(), test.captured("two").identity());
    }
}

#[test]
fn a_deep_directory_gets_its_metadata_after_the_last_of_its_files() {
    let mut test = fixture();
    let directory = owned(b"d", NodeKind::Directory, 0o750);
    test.descent.enter(&directory, None).unwrap();
    let early = test.descent.create_file(&owned(b"early", NodeKind::File, 0o600), None, &[0; 12]).unwrap();
    // The first directory is closed here and reopened on the way back.
    for _ in 0..OPEN_DIRECTORIES_MAX {
        test.descent.enter(&directory, None).unwrap();
    }
    for _ in 0..OPEN_DIRECTORIES_MAX {
        test.descent.leave(Some(&directory), &mut test.problems).unwrap();
    }
    let late = test.descent.create_file(&owned(b"late", NodeKind::File, 0o600), None, &[0; 12]).unwrap();
    test.descent.leave(Some(&directory), &mut test.problems).unwrap();
    late.publish(Completeness::Complete, &mut test.problems).unwrap();
    assert_ne!(test.captured("d").mtime, directory.mtime);
    early.publish(Completeness::Complete, &mut test.problems).unwrap();
    assert_eq!((test.captured("d").mtime, test.captured("d").mode), (directory.mtime, 0o750));
    assert!(test.problems.is_empty(), "{:?}", test.problems);
}

#[test]
fn existing_entries_are_not_overwritten() {
    let mut test = fixture();
    fs::write(test.root.join("file"), b"old").unwrap();
    fs::create_dir(test.root.join("directory")).unwrap();
    symlink("/no/where", test.root.join("link")).unwrap();
    for (name, what) in [("file", "a file"), ("directory", "a directory"), ("link", "a symbolic link")] {
        let path = test.root.join(name);
        let is_refused =
            |error: Error| matches!(error, Error::AlreadyExists { path: p, what: w } if p == path && w == what);
        let node = |kind| owned(name.as_bytes(), kind, 0o700);
        assert!(is_refused(test.create_file(&node(NodeKind::File)).unwrap_err()));
        let link = Node { link_target: Some(b"x".to_vec()), ..node(NodeKind::Symlink) };
        assert!(is_refused(test.descent.create_symlink(&link, None, &mut Vec::new()).unwrap_err()));
        if name != "directory" {
            assert!(is_refused(test.descent.enter(&node(NodeKind::Directory), None).unwrap_err()));
        }
        if cfg!(target_os = "linux") {
            assert!(is_refused(test.descent.create_special(&node(NodeKind::Fifo), None, &mut Vec::new()).unwrap_err()));
        }
    }
    fs::write(test.root.join("directory/existing"), b"old").unwrap();
    test.descent.enter(&owned(b"directory", NodeKind::Directory, 0o700), None).unwrap();
    test.descent.leave(None, &mut test.problems).unwrap();
    assert_eq!(fs::read(test.root.join("directory/existing")).unwrap(), b"old");
    assert_eq!(fs::read(test.root.join("file")).unwrap(), b"old");
}

#[test]
fn a_planted_link_is_not_followed() {
    let mut test = fixture();
    let outside = tempfile::tempdir().unwrap();
    symlink(outside.path(), test.root.join("directory")).unwrap();
    let error = test.descent.enter(&owned(b"directory", NodeKind::Directory, 0o700), None).unwrap_err();
    assert!(matches!(error, Error::AlreadyExists { what: "a symbolic link", .. }));
    // The descent is still in the root, and nothing was created elsewhere.
    test.create_file(&owned(b"file", NodeKind::File, 0o600)).unwrap();
    assert!(test.root.join("file").exists());
    symlink(outside.path().join("new"), test.root.join("dangling")).unwrap();
    assert!(test.create_file(&owned(b"dangling", NodeKind::File, 0o600)).is_err());
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[test]
fn hostile_names_are_refused() {
    let mut test = fixture();
    for name in [&b"../x"[..], b"a/b", b"/x", b"", b".", b"..", b"a\0b"] {
        let node = |kind| owned(name, kind, 0o700);
        let is_refused = |error: Error| matches!(error, Error::Corrupt { .. });
        assert!(is_refused(test.descent.enter(&node(NodeKind::Directory), None).unwrap_err()));
        assert!(is_refused(test.create_file(&node(NodeKind::File)).unwrap_err()));
        let link = Node { link_target: Some(b"x".to_vec()), ..node(NodeKind::Symlink) };
        assert!(is_refused(test.descent.create_symlink(&link, None, &mut Vec::new()).unwrap_err()));
        assert!(is_refused(test.descent.create_special(&node(NodeKind::Fifo), None, &mut Vec::new()).unwrap_err()));
        assert!(is_refused(test.create_hard_link(Path::new("x"), &node(NodeKind::File)).unwrap_err()));
    }
    assert!(test.create_file(&owned(b"kind", NodeKind::Directory, 0o700)).is_err());
    assert_eq!(fs::read_dir(&test.root).unwrap().count(), 0);
}

#[test]
fn deep_trees_need_few_open_directories() {
    const DEPTH: usize = 300;
    let mut test = fixture();
    let directory = owned(&[b'd'; 100], NodeKind::Directory, 0o700);
    let open = |descent: &Descent| descent.levels.iter().filter(|level| level.open.is_some()).count();
    for _ in 0..DEPTH {
        test.descent.enter(&directory, None).unwrap();
        assert!(open(&test.descent) <= OPEN_DIRECTORIES_MAX);
    }
    for _ in 0..DEPTH {
        test.create_file(&owned(b"file", NodeKind::File, 0o600)).unwrap();
        test.descent.leave(Some(&directory), &mut test.problems).unwrap();
        assert!(open(&test.descent) <= OPEN_DIRECTORIES_MAX);
    }
    assert!(test.problems.is_empty(), "{:?}", test.problems);
    assert_eq!(test.captured(&"d".repeat(100)).mtime, directory.mtime);
}

#[test]
fn a_replaced_parent_is_detected_when_it_is_reopened() {
    let mut test = fixture();
    let directory = owned(b"d", NodeKind::Directory, 0o700);
    for _ in 0..=OPEN_DIRECTORIES_MAX {
        test.descent.enter(&directory, None).unwrap();
    }
    let outside = tempfile::tempdir().unwrap();
    fs::rename(test.root.join("d"), test.root.join("moved")).unwrap();
    symlink(outside.path(), test.root.join("d")).unwrap();
    for _ in 0..OPEN_DIRECTORIES_MAX - 1 {
        test.descent.leave(None, &mut test.problems).unwrap();
    }
    assert!(test.descent.leave(None, &mut test.problems).is_err());
    assert!(test.create_file(&owned(b"file", NodeKind::File, 0o600)).is_err());
    test.descent.leave(None, &mut test.problems).unwrap();
    test.create_file(&owned(b"file", NodeKind::File, 0o600)).unwrap();
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[test]
fn a_project_that_the_target_has_not_is_a_warning_and_noted() {
    let mut test = fixture();
    let mut node = owned(b"file", NodeKind::File, 0o600);
    node.set_file_flags(FileFlags { bits: 0, project: 77 });
    let file = test.create_file(&node).unwrap();
    test.finish(&file, &node);
    let target = test.descent.target.clone();
    target.set_late_flags(&mut test.problems);
    let device = test.captured("file").device;
    assert!(test.problems.is_empty(), "{:?}", test.problems);
    match test.captured("file").file_flags().project {
        77 => assert_eq!((target.warnings(), target.refused_flags(device).project), (0, 0)),
        _ => assert_eq!((target.warnings(), target.refused_flags(device).project), (1, 77)),
    }
}
