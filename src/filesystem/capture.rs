//! Reads the metadata of one entry of the source file system into a [`Node`].
//!
//! 1. One `stat` relative to the open parent directory returns kind, owner, times, size and identity. Symbolic links
//!    are not followed.
//! 2. Names of users and groups are cached, so that each is looked up once.
//! 3. File flags and the project of a file or directory are read from the opened entry, on Linux. A walk leaves those
//!    of files for later: a backup opens most of them to read their content, and knows the others from a parent.
//! 4. The target of a link and the extended attributes of every entry are read. Attributes that cannot be read are
//!    reported and omitted.

use super::flags;
use super::moments;
use super::source::open_quietly;
use crate::error::{Error, Result};
use crate::repo::tree::{DeviceNumber, FileIdentity, Node, NodeKind, Timestamp, Xattr};
use rustix::fs::{AtFlags, CWD, FileType, OFlags, Stat, fstat, major, minor, readlinkat, statat};
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use uzers::{Groups, Users, UsersCache};

/// Limit of the extended attributes of one entry, bytes. Attributes above it are reported and omitted.
const XATTR_BYTES_MAX: usize = 8 << 20;

/// Reads metadata, with a cache of user and group names.
pub struct Capturer {
    owners: UsersCache,
    has_descriptor_paths: bool,
    /// Whether times of access are kept.
    with_atime: bool,
    /// Whether the file flags of files are not read.
    defers_flags: bool,
    /// Devices without file flags.
    flagless: RefCell<BTreeSet<u64>>,
}

impl fmt::Debug for Capturer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capturer").finish_non_exhaustive()
    }
}

impl Default for Capturer {
    fn default() -> Self {
        Self::new()
    }
}

/// How an entry is opened for its flags.
struct EntryToOpen<'a> {
    directory: BorrowedFd<'a>,
    name: &'a OsStr,
    /// Full path, for messages.
    path: &'a Path,
    /// Whether links are followed.
    follow: OFlags,
}

impl Capturer {
    /// A capturer with an empty cache.
    pub fn new() -> Self {
        let has_descriptor_paths = Path::new("/proc/self/fd").is_dir();
        let flagless = RefCell::default();
        let (with_atime, defers_flags) = (false, false);
        Capturer { owners: UsersCache::new(), has_descriptor_paths, with_atime, defers_flags, flagless }
    }

    /// The same, which keeps times of access if `with_atime`.
    pub fn with_atime(self, with_atime: bool) -> Self {
        Capturer { with_atime, ..self }
    }

    /// The same, which leaves the file flags of files [unknown](Node::knows_flags), so that it opens no file.
    pub(super) fn deferring_flags(self) -> Self {
        Capturer { defers_flags: true, ..self }
    }

    /// Reads the file flags of the open file `node`, if they are not known and its device may have any.
    pub(super) fn add_flags(&self, file: BorrowedFd<'_>, path: &Path, node: &mut Node, warnings: &mut Vec<Error>) {
        if !node.knows_flags() && self.may_have_flags(node) {
            self.read_flags(file, path, node, warnings);
        }
    }

    /// Whether the device of an entry may have file flags.
    pub(super) fn may_have_flags(&self, node: &Node) -> bool {
        !self.flagless.borrow().contains(&node.device)
    }

    /// Reads the entry `name` of the open `directory`, without following a link. `path` is its full path, for messages.
    /// Appends errors of optional metadata to `warnings`.
    ///
    /// # Errors
    /// [`Error::Io`] if the entry is gone or cannot be read.
    pub fn capture(
        &self,
        directory: BorrowedFd<'_>,
        name: &OsStr,
        path: &Path,
        warnings: &mut Vec<Error>,
    ) -> Result<Node> {
        moments::pass(path);
        let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|e| Error::io("read", path, e))?;
        let mut node = node_of(&stat, path)?;
        node.name = name.as_bytes().to_vec();
        if node.kind == NodeKind::Symlink {
            let target = readlinkat(directory, name, Vec::new()).map_err(|e| Error::io("read the link", path, e))?;
            node.link_target = Some(target.into_bytes());
        }
        moments::pass(path);
        node.xattrs = self.xattrs(directory, name, path, warnings);
        let entry = EntryToOpen { directory, name, path, follow: OFlags::NOFOLLOW };
        self.complete(&stat, &entry, &mut node, warnings);
        Ok(node)
    }

    /// Reads the entry at `path`, and names it by the last component. With `follow`, reads the target of a symbolic
    /// link.
    ///
    /// # Errors
    /// [`Error::Io`] if the entry is gone or cannot be read.
    pub fn capture_path(&self, path: &Path, follow: bool, warnings: &mut Vec<Error>) -> Result<Node> {
        if !follow {
            let mut node = self.capture(CWD, path.as_os_str(), path, warnings)?;
            node.name = path.file_name().unwrap_or_default().as_bytes().to_vec();
            return Ok(node);
        }
        let stat = statat(CWD, path, AtFlags::empty()).map_err(|e| Error::io("read", path, e))?;
        let mut node = node_of(&stat, path)?;
        node.name = path.file_name().unwrap_or_default().as_bytes().to_vec();
        node.xattrs = XattrSource { path, follow }.xattrs(path, warnings);
        let entry = EntryToOpen { directory: CWD, name: path.as_os_str(), path, follow: OFlags::empty() };
        self.complete(&stat, &entry, &mut node, warnings);
        Ok(node)
    }

    /// Reads the rest of an open entry, of which `node` has what `fstat` gives. `path` is its path, for messages.
    pub(super) fn capture_open(
        &self,
        entry: BorrowedFd<'_>,
        mut node: Node,
        path: &Path,
        warnings: &mut Vec<Error>,
    ) -> Node {
        let descriptor = PathBuf::from(format!("/proc/self/fd/{}", entry.as_raw_fd()));
        let source = match self.has_descriptor_paths {
            true => XattrSource { path: &descriptor, follow: true },
            false => XattrSource { path, follow: false },
        };
        node.xattrs = source.xattrs(path, warnings);
        if matches!(node.kind, NodeKind::File | NodeKind::Directory) && cfg!(target_os = "linux") {
            self.read_flags(entry, path, &mut node, warnings);
        }
        self.name_owners(&mut node);
        node
    }

    /// Reads the attributes of an entry, without following a link.
    ///
    /// The path of a descriptor refers to the entry even if its own path is too long or a parent was replaced, but
    /// resolving it takes 2 µs. The plain path is therefore tried first: most entries have no attributes.
    fn xattrs(&self, directory: BorrowedFd<'_>, name: &OsStr, path: &Path, warnings: &mut Vec<Error>) -> Vec<Xattr> {
        if !self.has_descriptor_paths || directory.as_raw_fd() == CWD.as_raw_fd() {
            return XattrSource { path, follow: false }.xattrs(path, warnings);
        }
        match xattr::list(path).map(|mut names| names.next().is_none()) {
            Ok(true) => Vec::new(),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Vec::new(),
            _ => XattrSource { path: &descriptor_path(directory, name), follow: false }.xattrs(path, warnings),
        }
    }

    /// Adds what is optional: the time of access, file flags and names of owners.
    fn complete(&self, stat: &Stat, entry: &EntryToOpen<'_>, node: &mut Node, warnings: &mut Vec<Error>) {
        if self.with_atime {
            node.atime = Some(atime_of(stat));
        }
        if matches!(node.kind, NodeKind::File | NodeKind::Directory) && cfg!(target_os = "linux") {
            self.open_for_flags(entry, node, warnings);
        }
        self.name_owners(node);
    }

    /// Reads the file flags of an entry that is not open. Those of what cannot be opened are not known: its content
    /// cannot be read either, which is reported.
    fn open_for_flags(&self, entry: &EntryToOpen<'_>, node: &mut Node, warnings: &mut Vec<Error>) {
        // Until they are read.
        node.forget_absent_flags();
        if self.defers_flags && node.kind == NodeKind::File || !self.may_have_flags(node) {
            return;
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | entry.follow;
        let Ok(open) = open_quietly(entry.directory, entry.name, flags) else { return };
        if fstat(&open).is_ok_and(|stat| identity_of(&stat) == node.identity()) {
            self.read_flags(open.as_fd(), entry.path, node, warnings);
        }
    }

    /// Reads the file flags of an open entry. Those that cannot be read are reported and omitted.
    fn read_flags(&self, entry: BorrowedFd<'_>, path: &Path, node: &mut Node, warnings: &mut Vec<Error>) {
        match read_flags(entry, node) {
            Ok(()) => {}
            Err(error) if has_none(error) => _ = self.flagless.borrow_mut().insert(node.device),
            Err(error) => warnings.push(Error::io("read the file flags of", path, error)),
        }
    }

    fn name_owners(&self, node: &mut Node) {
        node.user = self.owners.get_user_by_uid(node.uid).and_then(|user| user.name().to_str().map(str::to_owned));
        node.group = self.owners.get_group_by_gid(node.gid).and_then(|group| group.name().to_str().map(str::to_owned));
    }
}

/// Reads the file flags of the open entry `node`. Those that cannot be read stay unknown.
fn read_flags(entry: BorrowedFd<'_>, node: &mut Node) -> Result<(), Errno> {
    node.forget_absent_flags();
    flags::read(entry).map(|flags| node.set_file_flags(flags))
}

/// Whether an error says that the file system has no file flags.
fn has_none(error: Errno) -> bool {
    [Errno::NOTTY, Errno::NOTSUP, Errno::OPNOTSUPP, Errno::NOSYS, Errno::INVAL].contains(&error)
}

/// Reads the file flags of the open file `node`, if they are not known.
pub(super) fn add_flags(file: BorrowedFd<'_>, path: &Path, node: &mut Node) -> Option<Error> {
    if node.knows_flags() {
        return None;
    }
    read_flags(file, node)
        .err()
        .filter(|error| !has_none(*error))
        .map(|error| Error::io("read the file flags of", path, error))
}

/// Returns a short path of the entry `name` that does not depend on the path of the open directory.
pub(super) fn descriptor_path(directory: BorrowedFd<'_>, name: &OsStr) -> PathBuf {
    let mut path = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
    path.push(name);
    path
}

/// Where to read the attributes of an entry.
struct XattrSource<'a> {
    path: &'a Path,
    follow: bool,
}

impl XattrSource<'_> {
    /// Reads all attributes, ascending by name. Errors name the path `entry`.
    fn xattrs(&self, entry: &Path, warnings: &mut Vec<Error>) -> Vec<Xattr> {
        let names = if self.follow { xattr::list_deref(self.path) } else { xattr::list(self.path) };
        let names = match names {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::Unsupported => return Vec::new(),
            Err(error) => {
                warnings.push(Error::io("list the extended attributes of", entry, error));
                return Vec::new();
            }
        };
        let mut xattrs = Vec::new();
        let mut bytes_left = XATTR_BYTES_MAX;
        for name in names {
            let value = if self.follow { xattr::get_deref(self.path, &name) } else { xattr::get(self.path, &name) };
            match value {
                Ok(Some(value)) if value.len() + name.len() > bytes_left => {
                    let error = io::Error::other("they are longer than 8 MiB");
                    warnings.push(Error::io("store all extended attributes of", entry, error));
                }
                Ok(Some(value)) => {
                    bytes_left -= value.len() + name.len();
                    xattrs.push(Xattr { name: name.into_encoded_bytes(), value });
                }
                Ok(None) => {}
                Err(error) => warnings.push(Error::io("read an extended attribute of", entry, error)),
            }
        }
        xattrs.sort_unstable();
        xattrs.dedup_by(|one, other| one.name == other.name);
        xattrs
    }
}

/// Creates a node from `stat`, without name, names of owners, link target and attributes.
#[expect(clippy::unnecessary_cast, reason = "the types of the fields differ between systems")]
pub(super) fn node_of(stat: &Stat, path: &Path) -> Result<Node> {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => NodeKind::File,
        FileType::Directory => NodeKind::Directory,
        FileType::Symlink => NodeKind::Symlink,
        FileType::Fifo => NodeKind::Fifo,
        FileType::Socket => NodeKind::Socket,
        FileType::CharacterDevice => NodeKind::CharacterDevice,
        FileType::BlockDevice => NodeKind::BlockDevice,
        FileType::Unknown => return Err(Error::io("read", path, io::Error::other("its type is unknown"))),
    };
    let identity = identity_of(stat);
    let is_device = matches!(kind, NodeKind::CharacterDevice | NodeKind::BlockDevice);
    let number = stat.st_rdev as rustix::fs::Dev;
    let size = if kind == NodeKind::File { stat.st_size as u64 } else { 0 };
    Ok(Node {
        kind,
        mode: stat.st_mode as u32 & 0o7777,
        uid: stat.st_uid as u32,
        gid: stat.st_gid as u32,
        mtime: Timestamp { seconds: stat.st_mtime as i64, nanoseconds: stat.st_mtime_nsec as u32 },
        ctime: Timestamp { seconds: stat.st_ctime as i64, nanoseconds: stat.st_ctime_nsec as u32 },
        size,
        inode: identity.inode,
        device: identity.device,
        hard_link: (kind != NodeKind::Directory && stat.st_nlink as u64 > 1).then_some(identity),
        device_number: is_device.then(|| DeviceNumber { major: major(number), minor: minor(number) }),
        sparse: kind == NodeKind::File && (stat.st_blocks as u64).saturating_mul(512) < size,
        ..Node::default()
    })
}

/// Returns the time of the last access.
#[expect(clippy::unnecessary_cast, reason = "the types of the fields differ between systems")]
fn atime_of(stat: &Stat) -> Timestamp {
    Timestamp { seconds: stat.st_atime as i64, nanoseconds: stat.st_atime_nsec as u32 }
}

/// Returns device and inode.
#[expect(clippy::unnecessary_cast, reason = "the types of the fields differ between systems")]
pub(super) fn identity_of(stat: &Stat) -> FileIdentity {
    FileIdentity { device: stat.st_dev as u64, inode: stat.st_ino as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn capture(path: &Path) -> Node {
        let mut warnings = Vec::new();
        let node = Capturer::new().capture_path(path, false, &mut warnings).unwrap();
        assert!(warnings.is_empty(), "{warnings:?}");
        assert_eq!(node.defect(), None);
        node
    }

    #[test]
    fn a_capturer_is_send() {
        fn moves<T: Send>() {}
        moves::<Capturer>();
    }

    #[test]
    fn a_file_has_mode_size_owner_and_links() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, b"12345").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o4751)).unwrap();
        let node = capture(&path);
        assert_eq!((node.name.as_slice(), node.kind, node.mode, node.size), (&b"file"[..], NodeKind::File, 0o4751, 5));
        assert_eq!(node.uid, rustix::process::geteuid().as_raw());
        assert_eq!(node.hard_link, None);
        assert!(!node.sparse);
        if node.uid == 0 {
            assert_eq!(node.user.as_deref(), Some("root"));
        }
        fs::hard_link(&path, directory.path().join("other")).unwrap();
        assert_eq!(capture(&path).hard_link, Some(node.identity()));
        assert_eq!(capture(&directory.path().join("other")).hard_link, Some(node.identity()));
    }

    #[test]
    fn links_are_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        for (name, target) in [("dangling", &b"no\xff/where"[..]), ("directory", b"."), ("loop", b"loop")] {
            let path = directory.path().join(name);
            symlink(OsStr::from_bytes(target), &path).unwrap();
            let node = capture(&path);
            assert_eq!((node.kind, node.size), (NodeKind::Symlink, 0));
            assert_eq!(node.link_target.as_deref(), Some(target));
        }
        let followed =
            Capturer::new().capture_path(&directory.path().join("directory"), true, &mut Vec::new()).unwrap();
        assert_eq!(followed.kind, NodeKind::Directory);
    }

    #[test]
    fn special_files_have_their_own_kinds() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert_eq!(capture(&socket).kind, NodeKind::Socket);
        let null = capture(Path::new("/dev/null"));
        assert_eq!(null.kind, NodeKind::CharacterDevice);
        #[cfg(target_os = "linux")]
        {
            assert_eq!(null.device_number, Some(DeviceNumber { major: 1, minor: 3 }));
            rustix::fs::mkfifoat(CWD, directory.path().join("fifo"), 0o600.into()).unwrap();
            assert_eq!(capture(&directory.path().join("fifo")).kind, NodeKind::Fifo);
        }
    }

    #[test]
    fn attributes_are_sorted_by_path_and_by_descriptor() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, b"").unwrap();
        if xattr::set(&path, "user.b", b"\0\xff").is_err() {
            return; // the file system has none
        }
        xattr::set(&path, "user.a", b"").unwrap();
        let by_path = capture(&path);
        let names: Vec<_> = by_path.xattrs.iter().filter(|x| x.name.starts_with(b"user.")).cloned().collect();
        let xattr = |name: &[u8], value: &[u8]| Xattr { name: name.to_vec(), value: value.to_vec() };
        assert_eq!(names, [xattr(b"user.a", b""), xattr(b"user.b", b"\0\xff")]);
        let directory = fs::File::open(directory.path()).unwrap();
        let borrowed = std::os::fd::AsFd::as_fd(&directory);
        let node = Capturer::new().capture(borrowed, OsStr::new("file"), &path, &mut Vec::new()).unwrap();
        assert_eq!(node, by_path);
    }

    #[test]
    fn a_missing_entry_is_an_error_with_its_path() {
        let error = Capturer::new().capture_path(Path::new("/no/such"), false, &mut Vec::new()).unwrap_err();
        assert!(matches!(error, Error::Io { path, source, .. }
            if path == Path::new("/no/such") && source.kind() == io::ErrorKind::NotFound));
    }
}
