//! Passes the questions of the kernel on to [`ReadOnlyFiles`], through the crate `fuser`. No other file names it.

use std::ffi::OsStr;
use std::io;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyXattr, Request, SessionACL,
};

use rustix::mount::{UnmountFlags, unmount};

use super::{FileEntry, ReadOnlyFiles};
use crate::error::{Error, Result};
use crate::repo::tree::{Node, NodeKind, Timestamp, Xattr};

/// What the kernel answers through.
const DEVICE: &str = "/dev/fuse";
/// How long the kernel may remember entries. Snapshots never change.
const TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// The same for virtual directories and links, which newer snapshots change.
const VIRTUAL_TTL: Duration = Duration::from_secs(1);
/// Bytes that the kernel may read ahead. It offers 128 KiB.
const READAHEAD_BYTES: u32 = 1 << 20;
/// Threads that answer the kernel: as many as there are cores, within these limits.
const THREADS: (usize, usize) = (2, 16);
/// Reads of the kernel that nobody waits for yet, such as those ahead of a reader.
const BACKGROUND_MAX: u16 = 64;
/// Block size and length of names that are reported.
const BLOCK_BYTES: u32 = 4096;
const NAME_BYTES_MAX: u32 = 255;
/// Positions 0 and 1 of a listing are `.` and `..`.
const OWN_ENTRIES: u64 = 2;

/// Who may use a mount.
#[derive(Debug, Clone, Copy, Default)]
pub struct MountOptions {
    /// Let other users in, as far as the permissions of the files allow. By default, only the user who mounts.
    pub allow_other: bool,
}

/// A mounted file system. Dropping it unmounts.
pub struct MountedFiles {
    session: BackgroundSession,
}

/// Mounts `files` at a directory.
///
/// # Errors
/// [`Error::Io`] if the system refuses.
pub fn mount(files: Arc<dyn ReadOnlyFiles>, directory: &Path, options: MountOptions) -> Result<MountedFiles> {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::RO,
        MountOption::NoSuid,
        MountOption::NoDev,
        MountOption::NoAtime,
        MountOption::FSName("fhrd".into()),
        MountOption::Subtype("fhrd".into()),
    ];
    if options.allow_other {
        config.acl = SessionACL::All;
        config.mount_options.push(MountOption::DefaultPermissions);
    }
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    config.n_threads = Some(cores.clamp(THREADS.0, THREADS.1));
    let session = fuser::spawn_mount(FuseFiles { files }, directory, &config);
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound if !Path::new(DEVICE).exists() => Error::io("open", DEVICE, error),
        // The directory is there, and this program is run where the process may not mount itself.
        io::ErrorKind::NotFound => Error::io("run", "fusermount3", error),
        _ => Error::io("mount", directory, error),
    };
    Ok(MountedFiles { session: session.map_err(failed)? })
}

impl MountedFiles {
    /// Whether somebody has unmounted it.
    pub fn is_finished(&self) -> bool {
        self.session.guard.is_finished()
    }

    /// Unmounts, and waits until the kernel's questions are answered. If it is in use, it is unmounted all the same,
    /// without waiting: nobody has to clear a dead mount then, and who has a file open cannot read on.
    ///
    /// # Errors
    /// [`Error::Io`] if the system refuses, or if the session failed.
    pub fn unmount(self, directory: &Path) -> Result<()> {
        let failed = |error| Error::io("unmount", directory, error);
        if self.is_finished() {
            return self.session.join().map_err(failed);
        }
        match self.session.umount_and_join() {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                let shown = directory.display();
                tracing::warn!("{shown} is in use: it is unmounted, and what is open there cannot be read any more");
                detach(directory)
            }
            ended => ended.map_err(failed),
        }
    }

    /// Takes the mount out of the tree of directories. Files that are open or mapped can be read on: the mount ends
    /// when the last of them is closed, or with the process.
    ///
    /// # Errors
    /// [`Error::Io`] if the system refuses.
    pub fn detach(self, directory: &Path) -> Result<()> {
        detach(directory)?;
        let waits = std::thread::Builder::new().name("fhrd detached".into());
        let waiting = waits.spawn(move || drop(self.session.join()));
        waiting.map(drop).map_err(|error| Error::io("unmount", directory, error))
    }
}

/// Takes a mount out of the tree of directories.
fn detach(directory: &Path) -> Result<()> {
    let failed = |error| Error::io("unmount", directory, error);
    match unmount(directory, UnmountFlags::DETACH) {
        // Who is not root has mounted by this program.
        Err(rustix::io::Errno::PERM) => {
            let done = Command::new("fusermount3").args(["-u", "-z", "--"]).arg(directory).status().map_err(failed)?;
            if done.success() { Ok(()) } else { Err(failed(io::Error::other(format!("fusermount3: {done}")))) }
        }
        ended => ended.map_err(|error| failed(error.into())),
    }
}

struct FuseFiles {
    files: Arc<dyn ReadOnlyFiles>,
}

/// The error number of a failed question. The error itself is logged.
fn number(error: &Error) -> Errno {
    tracing::error!("mount: {error}");
    Errno::EIO
}

/// The answer to a question, or its error number. `None` is a file that does not exist.
fn answer<T>(result: Result<Option<T>>) -> std::result::Result<T, Errno> {
    match result {
        Ok(Some(found)) => Ok(found),
        Ok(None) => Err(Errno::ENOENT),
        Err(error) => Err(number(&error)),
    }
}

fn file_type(kind: NodeKind) -> FileType {
    match kind {
        // Reading it is an error.
        NodeKind::File | NodeKind::Unknown => FileType::RegularFile,
        NodeKind::Directory => FileType::Directory,
        NodeKind::Symlink => FileType::Symlink,
        NodeKind::Fifo => FileType::NamedPipe,
        NodeKind::Socket => FileType::Socket,
        NodeKind::CharacterDevice => FileType::CharDevice,
        NodeKind::BlockDevice => FileType::BlockDevice,
    }
}

fn system_time(time: Timestamp) -> SystemTime {
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let second = if time.seconds < 0 { UNIX_EPOCH.checked_sub(seconds) } else { UNIX_EPOCH.checked_add(seconds) };
    let time = second.and_then(|second| second.checked_add(Duration::from_nanos(u64::from(time.nanoseconds))));
    time.unwrap_or(UNIX_EPOCH)
}

fn ttl(entry: &FileEntry) -> Duration {
    if entry.is_virtual { VIRTUAL_TTL } else { TTL }
}

fn attributes(entry: &FileEntry, data_len: Option<u64>) -> FileAttr {
    let node = &entry.node;
    let size = node.link_target.as_ref().map_or(node.size, |target| target.len() as u64);
    let device = node.device_number.map_or(0, |number| rustix::fs::makedev(number.major, number.minor));
    // The number of names is not recorded. Above 1 it tells programs to look for names of the same inode.
    let nlink = if node.hard_link.is_some() || node.kind == NodeKind::Directory { 2 } else { 1 };
    // Fewer blocks than the size needs tell programs such as cp to look for holes.
    let blocks_max = size.div_ceil(512).saturating_sub(u64::from(node.sparse));
    let blocks = data_len.map_or(blocks_max, |len| len.div_ceil(512).min(blocks_max));
    FileAttr {
        ino: INodeNo(entry.inode),
        size,
        blocks,
        atime: system_time(node.atime.unwrap_or(node.mtime)),
        mtime: system_time(node.mtime),
        ctime: system_time(node.ctime),
        crtime: UNIX_EPOCH,
        kind: file_type(node.kind),
        perm: (node.mode & 0o7777) as u16,
        nlink,
        uid: node.uid,
        gid: node.gid,
        rdev: u32::try_from(device).unwrap_or(0),
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

impl FuseFiles {
    fn attributes(&self, entry: &FileEntry) -> FileAttr {
        let data_len = if entry.node.sparse { self.files.data_len(&entry.node) } else { Ok(None) };
        // Whoever reads the file gets the error.
        attributes(entry, data_len.ok().flatten())
    }

    fn node(&self, inode: INodeNo) -> std::result::Result<Node, Errno> {
        answer(self.files.entry(inode.0)).map(|entry| entry.node)
    }
}

/// Replies with a value, or with its length if there is no space for it.
fn reply_value(reply: ReplyXattr, value: &[u8], size: u32) {
    match u32::try_from(value.len()) {
        Ok(len) if size == 0 => reply.size(len),
        Ok(len) if len <= size => reply.data(value),
        _ => reply.error(Errno::ERANGE),
    }
}

impl Filesystem for FuseFiles {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // A kernel that offers less gets less.
        if let Err(offered) = config.set_max_readahead(READAHEAD_BYTES) {
            let _ = config.set_max_readahead(offered);
        }
        let _ = config.set_max_background(BACKGROUND_MAX);
        // Links are not cached: newer snapshots change what `latest` leads to.
        let wanted = InitFlags::FUSE_PARALLEL_DIROPS | InitFlags::FUSE_ASYNC_READ;
        let _ = config.add_capabilities(wanted & config.capabilities());
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match answer(self.files.look_up(parent.0, name)) {
            Ok(entry) => reply.entry(&ttl(&entry), &self.attributes(&entry), Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn forget(&self, _: &Request, inode: INodeNo, references: u64) {
        self.files.forget(inode.0, references);
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match answer(self.files.entry(inode.0)) {
            Ok(entry) => reply.attr(&ttl(&entry), &self.attributes(&entry)),
            Err(error) => reply.error(error),
        }
    }

    fn readlink(&self, _: &Request, inode: INodeNo, reply: ReplyData) {
        match self.node(inode).map(|node| node.link_target) {
            Ok(Some(target)) => reply.data(&target),
            Ok(None) => reply.error(Errno::EINVAL),
            Err(error) => reply.error(error),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match answer(self.files.read(inode.0, offset, size as usize)) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(error),
        }
    }

    fn lseek(&self, _: &Request, inode: INodeNo, _: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let in_hole = whence == libc::SEEK_HOLE;
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        if !in_hole && whence != libc::SEEK_DATA {
            return reply.error(Errno::EINVAL);
        }
        match answer(self.files.seek(inode.0, offset, in_hole)) {
            Ok(found) => match found.and_then(|found| i64::try_from(found).ok()) {
                Some(found) => reply.offset(found),
                None => reply.error(Errno::ENXIO),
            },
            Err(error) => reply.error(error),
        }
    }

    fn opendir(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let is_virtual = self.files.entry(inode.0).is_ok_and(|entry| entry.is_none_or(|entry| entry.is_virtual));
        let cached = FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR;
        let flags = if is_virtual { FopenFlags::empty() } else { cached };
        match answer(self.files.open_directory(inode.0)) {
            Ok(handle) => reply.opened(FileHandle(handle), flags),
            Err(error) => reply.error(error),
        }
    }

    fn readdir(&self, _: &Request, inode: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        for (at, name) in [(0, "."), (1, "..")] {
            if offset <= at && reply.add(inode, at + 1, FileType::Directory, name) {
                return reply.ok();
            }
        }
        let listed = self.files.list(handle.0, offset.saturating_sub(OWN_ENTRIES), &mut |at, listed| {
            let (entry, name) = (&listed.entry, OsStr::from_bytes(&listed.name));
            !reply.add(INodeNo(entry.inode), at + OWN_ENTRIES + 1, file_type(entry.node.kind), name)
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(number(&error)),
        }
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.files.close_directory(handle.0);
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(0, 0, 0, 0, 0, BLOCK_BYTES, NAME_BYTES_MAX, BLOCK_BYTES);
    }

    fn getxattr(&self, _: &Request, inode: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let of_name = |xattr: &&Xattr| xattr.name == name.as_bytes();
        match self.node(inode) {
            Ok(node) => match node.xattrs.iter().find(of_name) {
                Some(xattr) => reply_value(reply, &xattr.value, size),
                None => reply.error(Errno::NO_XATTR),
            },
            Err(error) => reply.error(error),
        }
    }

    fn listxattr(&self, _: &Request, inode: INodeNo, size: u32, reply: ReplyXattr) {
        match self.node(inode) {
            Ok(node) => {
                let names: Vec<u8> =
                    node.xattrs.iter().flat_map(|xattr| [xattr.name.as_slice(), b"\0"].concat()).collect();
                reply_value(reply, &names, size);
            }
            Err(error) => reply.error(error),
        }
    }
}
