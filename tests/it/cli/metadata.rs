//! Metadata of restored entries: ACLs, extended attributes, file flags, times of access, and hard links that the target
//! refuses.

use std::ffi::OsString;
use std::fs::{self, File, FileTimes};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;

use super::fixture::{Home, code, json, stderr, stdout};

const ACL: &str = "system.posix_acl_access";
const DEFAULT_ACL: &str = "system.posix_acl_default";
/// A user whom nothing else lets in.
const STRANGER: u32 = 1234;
const NOBODY: u32 = u32::MAX;

/// An ACL that lets the stranger in.
fn acl(owner: u16, stranger: u16, group: u16, mask: u16) -> Vec<u8> {
    let entries =
        [(1, owner, NOBODY), (2, stranger, STRANGER), (4, group, NOBODY), (16, mask, NOBODY), (32, 0, NOBODY)];
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, bits, id) in entries {
        bytes.extend([&u16::to_le_bytes(tag)[..], &u16::to_le_bytes(bits), &u32::to_le_bytes(id)].concat());
    }
    bytes
}

/// Sets an attribute. `false`, with a word about it: the file system of the temporary directory has none.
fn can_set(path: &Path, name: &str, value: &[u8]) -> bool {
    let set = xattr::set(path, name, value);
    if let Err(error) = &set {
        eprintln!("NOT TESTED: {name} of {}: {error}", path.display());
    }
    set.is_ok()
}

fn attributes(path: &Path) -> Vec<(OsString, Vec<u8>)> {
    let is_compared =
        |name: &OsString| !name.to_string_lossy().starts_with("security.") || name == "security.capability";
    let names = xattr::list(path).unwrap().filter(is_compared);
    let mut found: Vec<_> = names.map(|name| (name.clone(), xattr::get(path, &name).unwrap().unwrap())).collect();
    found.sort();
    found
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Modes and attributes of `paths` below `one` and `other` are equal.
fn assert_same(one: &Path, other: &Path, paths: &[&str]) {
    for path in paths {
        let [one, other] = [one.join(path), other.join(path)];
        assert_eq!((mode(&one), attributes(&one)), (mode(&other), attributes(&other)), "{path}");
    }
}

fn restore(home: &Home, arguments: &[&str]) -> Value {
    json(&home.run(&[&["restore", "latest", "--json", "--verify"], arguments].concat()))
}

fn count(report: &Value, key: &str) -> u64 {
    report[key].as_u64().unwrap_or_else(|| panic!("{key} in {report}"))
}

fn make_fifo(path: &Path) {
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, 0o640.into(), 0).unwrap();
}

#[test]
fn nothing_is_inherited_from_a_default_acl_of_the_target() {
    let home = Home::new();
    let (source, paths) = (home.path("source"), ["", "key", "second", "deep", "deep/key", "pipe"]);
    home.write("source/key", b"secret");
    home.write("source/deep/key", &vec![7; 3 << 20]);
    fs::hard_link(source.join("key"), source.join("second")).unwrap();
    make_fifo(&source.join("pipe"));
    set_mode(&source.join("key"), 0o640);
    set_mode(&source.join("deep/key"), 0o660);
    home.backup(&["source"]);
    fs::create_dir(home.path("back")).unwrap();
    if !can_set(&home.path("back"), DEFAULT_ACL, &acl(7, 7, 5, 7)) {
        return;
    }
    restore(&home, &["--target", "back"]);
    assert_same(&source, &home.path("back/source"), &paths);
    // A single file, into a directory that is there.
    fs::create_dir(home.path("part")).unwrap();
    assert!(can_set(&home.path("part"), DEFAULT_ACL, &acl(7, 7, 5, 7)));
    restore(&home, &["--target", "part", "--path", "source/key"]);
    assert_same(&source, &home.path("part/source"), &["key"]);
}

#[test]
fn a_stored_default_acl_does_not_let_anybody_into_what_is_restored_below_it() {
    let home = Home::new();
    let source = home.path("source");
    home.write("source/d/key", b"secret");
    home.write("source/d/shared", b"for two");
    set_mode(&source.join("d/key"), 0o640);
    if !can_set(&source.join("d"), DEFAULT_ACL, &acl(7, 6, 5, 7)) {
        return;
    }
    assert!(can_set(&source.join("d/shared"), ACL, &acl(6, 6, 0, 6)));
    home.backup(&["source"]);
    restore(&home, &["--target", "back"]);
    assert_same(&source, &home.path("back/source"), &["d", "d/key", "d/shared"]);
    assert_eq!(attributes(&home.path("back/source/d/key")), []);
    fs::remove_file(source.join("d/key")).unwrap();
    restore(&home, &["--target", ".", "--path", "source/d/key"]);
    assert_same(&source, &home.path("back/source"), &["d", "d/key", "d/shared"]);
}

#[test]
fn what_lets_somebody_in_and_is_not_stored_goes() {
    let home = Home::new();
    for policy in ["if-changed", "always"] {
        for is_changed in [false, true] {
            let name = format!("{policy} {is_changed}");
            let source = home.path(&name);
            for file in ["key", "program", "kept"] {
                home.write(&format!("{name}/{file}"), b"content");
            }
            home.write(&format!("{name}/d/f"), b"");
            set_mode(&source.join("key"), 0o600);
            if !can_set(&source.join("kept"), "user.kept", b"1") {
                return;
            }
            home.backup(&[&name]);
            assert!(can_set(&source.join("key"), "user.foreign", b"1"));
            assert!(can_set(&source.join("kept"), "user.kept", b"2"));
            if can_set(&source.join("d"), DEFAULT_ACL, &acl(7, 7, 5, 7)) {
                assert!(can_set(&source.join("key"), ACL, &acl(6, 6, 0, 6)));
            }
            // cap_net_raw+ep
            can_set(
                &source.join("program"),
                "security.capability",
                &[1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            );
            if is_changed {
                let times = FileTimes::new().set_modified(UNIX_EPOCH + Duration::from_secs(1_000_000_000));
                for file in ["key", "program"] {
                    File::options().write(true).open(source.join(file)).unwrap().set_times(times).unwrap();
                }
            }
            // What stays is named.
            let looked = home.run(&["restore", "latest", "--target", ".", "--overwrite", "never", "--verify"]);
            assert_eq!(code(&looked), 1);
            let differs = "the extended attributes or ACLs";
            assert!(stderr(&looked).contains(differs) || is_changed, "{}", stderr(&looked));
            restore(&home, &["--target", ".", "--overwrite", policy]);
            for file in ["key", "program", "d", "d/f"] {
                assert_eq!(attributes(&source.join(file)), [], "{name}/{file}");
            }
            assert_eq!(attributes(&source.join("kept")), [("user.kept".into(), b"1".to_vec())]);
            assert_eq!(
                (mode(&source.join("key")), fs::read(source.join("key")).unwrap()),
                (0o600, b"content".to_vec())
            );
        }
    }
}

#[test]
fn verification_names_metadata_that_differs() {
    let home = Home::new();
    home.write("source/d/file", b"content");
    home.backup(&["source"]);
    restore(&home, &["--target", "back"]);
    let verify = || home.run(&["restore", "latest", "--target", "back", "--verify"]);
    let file = home.path("back/source/d/file");
    let before = mode(&file);
    set_mode(&file, before ^ 0o004);
    let output = verify();
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).contains("file: it differs from the snapshot: the mode"), "{}", stderr(&output));
    set_mode(&file, before);
    assert_eq!(code(&verify()), 0, "{}", stderr(&verify()));
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&file, Some(STRANGER), None).unwrap();
        let output = verify();
        assert!(code(&output) == 1 && stderr(&output).contains("the owner"), "{}", stderr(&output));
    }
}

#[test]
fn times_of_access_are_stored_on_request() {
    let home = Home::new();
    home.write("source/file", b"content");
    let accessed = UNIX_EPOCH + Duration::new(1_100_000_000, 123_456_789);
    let times = FileTimes::new().set_accessed(accessed).set_modified(UNIX_EPOCH + Duration::from_secs(1_000_000_000));
    File::options().write(true).open(home.path("source/file")).unwrap().set_times(times).unwrap();
    let accessed_at = |path: &str| {
        let metadata = fs::metadata(home.path(path)).unwrap();
        (metadata.atime(), metadata.atime_nsec())
    };
    home.backup(&["source"]);
    restore(&home, &["--target", "without"]);
    assert_eq!(accessed_at("without/source/file"), (1_000_000_000, 0));
    home.backup(&["source", "--with-atime"]);
    assert_eq!(accessed_at("source/file"), (1_100_000_000, 123_456_789), "a backup does not change it");
    restore(&home, &["--target", "with"]);
    assert_eq!(accessed_at("with/source/file"), (1_100_000_000, 123_456_789));
    let listed = stdout(&home.run(&["ls", "latest", "--json"]));
    assert!(
        listed.contains("\"atime\":\"2004-11-09T11:33:20.123456789Z\"") || listed.contains("\"atime\""),
        "{listed}"
    );
}

/// The flags of a file or directory that are stored. `None`: the file system has none.
fn flags(path: &Path) -> Option<u32> {
    let open = File::open(path).unwrap();
    rustix::fs::ioctl_getflags(&open).ok().map(|flags| flags.bits() & 0x2083_c4ff)
}

fn set_flags(path: &Path, bits: u32) -> rustix::io::Result<()> {
    let open = File::open(path).unwrap();
    let now = rustix::fs::ioctl_getflags(&open)?.bits();
    rustix::fs::ioctl_setflags(&open, rustix::fs::IFlags::from_bits_retain((now & !0x2083_c4ff) | bits))
}

const IMMUTABLE: u32 = 0x10;
const APPEND_ONLY: u32 = 0x20;
const NO_DUMP: u32 = 0x40;
const NO_ATIME: u32 = 0x80;

/// Clears the flags of everything below a directory at the end, so that it can be removed.
struct Cleared(PathBuf);

impl Drop for Cleared {
    fn drop(&mut self) {
        clear(&self.0);
    }
}

fn clear(path: &Path) {
    let kind = fs::symlink_metadata(path).unwrap().file_type();
    if kind.is_file() || kind.is_dir() {
        let _ = set_flags(path, 0);
    }
    if kind.is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| clear(&entry.unwrap().path()));
    }
}

const FLAGGED: [(&str, u32); 8] = [
    ("immutable", IMMUTABLE),
    ("second", IMMUTABLE),
    ("grows", APPEND_ONLY | NO_DUMP),
    ("no dump", NO_DUMP),
    ("plain", 0),
    ("locked/child", NO_ATIME),
    ("locked", IMMUTABLE | NO_ATIME),
    ("quiet", NO_ATIME),
];

/// A home whose source has flags. `None`: this user or file system cannot, which is said.
fn flagged() -> Option<(Home, Cleared)> {
    let home = Home::new();
    let cleared = Cleared(home.path(""));
    for file in ["immutable", "grows", "no dump", "plain", "locked/child", "quiet/file"] {
        home.write(&format!("source/{file}"), file.as_bytes());
    }
    fs::hard_link(home.path("source/immutable"), home.path("source/second")).unwrap();
    for (name, bits) in FLAGGED {
        if let Err(error) = set_flags(&home.path("source").join(name), bits) {
            eprintln!("NOT TESTED: file flags of {}: {error}", home.path("source").display());
            return None;
        }
    }
    home.backup(&["source"]);
    Some((home, cleared))
}

fn assert_flagged(root: &Path) {
    for (name, bits) in FLAGGED {
        assert_eq!(flags(&root.join(name)), Some(bits), "{name}");
    }
    let inode = |name: &str| fs::metadata(root.join(name)).unwrap().ino();
    assert_eq!(inode("immutable"), inode("second"));
}

#[test]
fn file_flags_are_restored_after_everything_else() {
    let Some((home, _cleared)) = flagged() else { return };
    let report = restore(&home, &["--target", "back"]);
    assert_eq!(count(&report, "warnings"), 0, "{report}");
    let back = home.path("back/source");
    assert_flagged(&back);
    // A directory hands its flags down.
    fs::create_dir(home.path("other")).unwrap();
    set_flags(&home.path("other"), NO_DUMP | NO_ATIME).unwrap();
    restore(&home, &["--target", "other"]);
    assert_flagged(&home.path("other/source"));
    let again = restore(&home, &["--target", "back", "--overwrite", "always"]);
    assert_eq!((count(&again, "replaced"), count(&again, "unchanged")), (0, 7), "{again}");
    assert_flagged(&back);
}

#[test]
fn a_locked_entry_is_unlocked_replaced_and_locked_again() {
    let Some((home, _cleared)) = flagged() else { return };
    restore(&home, &["--target", "back"]);
    let back = home.path("back/source");
    clear(&back);
    for name in ["immutable", "grows", "plain", "locked/child"] {
        fs::write(back.join(name), b"changed").unwrap();
    }
    fs::write(back.join("locked/foreign"), b"").unwrap();
    fs::create_dir(back.join("foreign")).unwrap();
    fs::write(back.join("foreign/file"), b"").unwrap();
    for name in ["immutable", "grows", "plain", "locked/child", "locked/foreign", "locked", "foreign/file", "foreign"] {
        set_flags(&back.join(name), IMMUTABLE).unwrap();
    }
    let report = restore(&home, &["--target", "back", "--overwrite", "always", "--delete"]);
    assert_eq!((count(&report, "deleted"), count(&report, "problems")), (3, 0), "{report}");
    assert_flagged(&back);
    assert_eq!(home.names("back/source/locked"), ["child"]);
    assert_eq!(home.read("back/source/immutable"), b"immutable");
    // Without --overwrite, what was locked is locked afterwards.
    set_flags(&back.join("locked"), 0).unwrap();
    fs::remove_file(back.join("locked/child")).unwrap();
    set_flags(&back.join("locked"), IMMUTABLE).unwrap();
    set_flags(&home.path("back"), APPEND_ONLY).unwrap();
    restore(&home, &["--target", "back"]);
    assert_flagged(&back);
    assert_eq!(flags(&home.path("back")), Some(APPEND_ONLY));
}

#[test]
fn each_locked_entry_that_is_deleted_is_named() {
    let Some((home, _cleared)) = flagged() else { return };
    restore(&home, &["--target", "back"]);
    fs::create_dir(home.path("back/source/foreign")).unwrap();
    let names: Vec<String> = (0..30).map(|at| format!("source/foreign/{at}")).collect();
    names.iter().for_each(|name| fs::write(home.path("back").join(name), b"").unwrap());
    let locked: Vec<&str> = names.iter().skip(1).map(String::as_str).chain(["source/foreign"]).collect();
    locked.iter().for_each(|name| set_flags(&home.path("back").join(name), IMMUTABLE).unwrap());
    for dry_run in [true, false] {
        let options: &[&str] = if dry_run { &["--dry-run"] } else { &[] };
        let output = home.run(&[&["restore", "latest", "--target", "back", "--delete", "--json"], options].concat());
        let (report, said) = (json(&output), stderr(&output));
        let counts = ["deleted", "warnings", "problems"].map(|key| count(&report, key));
        assert_eq!(counts, [31, 30, 0], "{said}");
        let what = if dry_run { "would be deleted" } else { "deleted" };
        let line = |name: &str| format!("{name}: {what} although it was immutable or append-only\n");
        assert!(locked.iter().all(|name| said.contains(&line(name))), "{said}");
        assert!(!said.contains(&line("source/foreign/0")), "{said}");
        assert_eq!(home.path("back/source/foreign").exists(), dry_run);
    }
}

#[test]
fn a_change_of_flags_is_stored_listed_and_rewritten() {
    let Some((home, _cleared)) = flagged() else { return };
    let before = stdout(&home.run(&["snapshots", "--json"]));
    let before: Value = serde_json::from_str(&before).unwrap();
    let before = before[0]["id"].as_str().unwrap_or_else(|| panic!("{before}")).to_string();
    set_flags(&home.path("source/plain"), APPEND_ONLY | NO_DUMP).unwrap();
    home.backup(&["source"]);
    let is_listed = |output: String| {
        output.lines().any(|line| line.contains("source/plain\"") && line.contains("\"flags\":\"ad\""))
    };
    assert!(is_listed(stdout(&home.run(&["ls", "latest", "--json"]))));
    let changes = stdout(&home.run(&["diff", &before, "latest"]));
    assert!(changes.contains("1 other metadata only"), "{changes}");
    let verified = home.run(&["restore", &before, "--target", ".", "--verify"]);
    assert!(code(&verified) == 1 && stderr(&verified).contains("the file flags"), "{}", stderr(&verified));
    let rewritten = home.run(&["rewrite", "latest", "--exclude", "quiet"]);
    assert_eq!(code(&rewritten), 0, "{}", stderr(&rewritten));
    assert!(is_listed(stdout(&home.run(&["ls", "latest", "--json"]))));
}

/// The names that were opened in a directory.
#[cfg(target_os = "linux")]
struct OpenedNames(std::os::fd::OwnedFd);

#[cfg(target_os = "linux")]
impl OpenedNames {
    fn of(directory: &Path) -> Self {
        use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
        let watch = init(CreateFlags::NONBLOCK).unwrap();
        add_watch(&watch, directory, WatchFlags::OPEN).unwrap();
        OpenedNames(watch)
    }

    /// Those since the last call, each once, ascending.
    fn take(&self) -> Vec<String> {
        let mut space = [std::mem::MaybeUninit::uninit(); 4096];
        let mut reader = rustix::fs::inotify::Reader::new(&self.0, &mut space);
        let mut names = std::collections::BTreeSet::new();
        while let Ok(event) = reader.next() {
            names.extend(event.file_name().map(|name| name.to_string_lossy().into_owned()));
        }
        names.into_iter().collect()
    }
}

#[cfg(target_os = "linux")]
#[test]
fn an_unchanged_file_is_not_opened_and_keeps_its_flags() {
    let Some((home, _cleared)) = flagged() else { return };
    home.write("config.toml", b"[read]\nrecheck_seconds = 0\n");
    std::thread::sleep(Duration::from_millis(50));
    let backup = |options: &[&str]| home.backup(&[&["source", "--config", "config.toml"], options].concat());
    backup(&["--force"]);
    let opened = OpenedNames::of(&home.path("source"));
    let files = ["grows", "immutable", "no dump", "plain"];
    assert_eq!(count(&backup(&[]), "files_unchanged"), 7);
    assert!(!files.iter().any(|file| opened.take().contains(&(*file).to_string())));
    for name in files {
        set_flags(&home.path("source").join(name), 0).unwrap();
        let bits = FLAGGED.iter().find(|(flagged, _)| *flagged == name).unwrap().1;
        set_flags(&home.path("source").join(name), bits ^ NO_ATIME).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        opened.take();
        backup(&[]);
        let names = opened.take();
        assert!(names.iter().any(|opened| opened == name), "{name}: {names:?}");
        backup(&[]);
        assert!(!opened.take().contains(&name.to_string()));
    }
    restore(&home, &["--target", "back"]);
    for name in files {
        let bits = FLAGGED.iter().find(|(flagged, _)| *flagged == name).unwrap().1;
        assert_eq!(flags(&home.path("back/source").join(name)), Some(bits ^ NO_ATIME), "{name}");
    }
    assert_eq!(flags(&home.path("back/source/second")), Some(IMMUTABLE ^ NO_ATIME));
}

#[test]
fn a_second_name_that_the_target_refuses_becomes_a_copy() {
    let home = Home::new();
    home.write("source/a", &vec![5; 300_000]);
    fs::hard_link(home.path("source/a"), home.path("source/b")).unwrap();
    home.backup(&["source"]);
    restore(&home, &["--target", "back"]);
    let (first, second) = (home.path("back/source/a"), home.path("back/source/b"));
    assert_eq!(home.inode("back/source/a"), home.inode("back/source/b"));
    fs::remove_file(&second).unwrap();
    fs::create_dir(home.path("more")).unwrap();
    let linked = (0..70_000).try_for_each(|at| fs::hard_link(&first, home.path("more").join(at.to_string())));
    if linked.is_ok() {
        eprintln!("NOT TESTED: the file system of {} has no limit of hard links", first.display());
        return;
    }
    let report = restore(&home, &["--target", "back", "--overwrite", "if-changed"]);
    assert_eq!((count(&report, "copied_links"), count(&report, "warnings"), count(&report, "problems")), (1, 1, 0));
    assert_eq!((count(&report, "files"), count(&report, "unchanged")), (1, 1), "{report}");
    assert!(
        home.read("back/source/b") == vec![5; 300_000] && home.inode("back/source/b") != home.inode("back/source/a")
    );
    let copy = home.inode("back/source/b");
    for policy in ["if-changed", "always", "never"] {
        let again = restore(&home, &["--target", "back", "--overwrite", policy]);
        assert_eq!((count(&again, "unchanged"), count(&again, "copied_links")), (2, 0), "{policy}: {again}");
        assert_eq!(home.inode("back/source/b"), copy);
    }
    // A copy that differs is made again.
    fs::write(&second, vec![6; 300_000]).unwrap();
    let again = restore(&home, &["--target", "back", "--overwrite", "always"]);
    assert_eq!((count(&again, "replaced"), count(&again, "copied_links")), (1, 1), "{again}");
    assert!(home.read("back/source/b") == vec![5; 300_000]);
}
