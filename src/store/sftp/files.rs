//! Requests on files and directories, one after another.

use std::sync::Arc;

use bytes::Bytes;

use super::failure::SftpFailure;
use super::packet::{Attributes, Reply, Request, SftpRequestKind, StatusCode};
use super::session::{SftpSession, WaitKind};

/// Files are read-only from the start, because nothing changes a blob.
pub(super) const BLOB_MODE: u32 = 0o400;
/// So that a file can be opened again, after a lost connection.
pub(super) const REOPENED_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

/// An open file or directory. It is closed when it is dropped.
#[derive(Debug)]
pub(super) struct RemoteFile {
    pub session: Arc<SftpSession>,
    pub handle: Bytes,
}

impl Drop for RemoteFile {
    fn drop(&mut self) {
        // Nobody waits for the reply, and a session that has ended has closed its files.
        let _ = self.session.send(Request::new(SftpRequestKind::Close).text(&self.handle));
    }
}

fn succeeded(reply: Reply) -> Result<(), SftpFailure> {
    match reply {
        Reply::Success => Ok(()),
        reply => Err(SftpFailure::of(reply)),
    }
}

/// Opens a file with `flags`. A new one gets `permissions`.
pub(super) fn open(
    session: &Arc<SftpSession>,
    path: &[u8],
    flags: u32,
    permissions: Option<u32>,
    wait_kind: WaitKind,
) -> Result<RemoteFile, SftpFailure> {
    let request = Request::new(SftpRequestKind::Open).text(path).u32(flags).permissions(permissions);
    opened(session, session.call(request, wait_kind)?)
}

/// The file or directory of a reply.
pub(super) fn opened(session: &Arc<SftpSession>, reply: Reply) -> Result<RemoteFile, SftpFailure> {
    match reply {
        Reply::Handle(handle) => Ok(RemoteFile { session: session.clone(), handle }),
        reply => Err(SftpFailure::of(reply)),
    }
}

/// The attributes of a reply. `None` if there is no such file.
pub(super) fn attributes(reply: Reply) -> Result<Option<Attributes>, SftpFailure> {
    match reply {
        Reply::Attributes(attributes) => Ok(Some(attributes)),
        reply => {
            Err(SftpFailure::of(reply)).or_else(|failure| if failure.is_missing() { Ok(None) } else { Err(failure) })
        }
    }
}

/// The attributes at a path, of a symbolic link itself if `kind` is `Lstat`.
pub(super) fn look(
    session: &SftpSession,
    kind: SftpRequestKind,
    path: &[u8],
    wait_kind: WaitKind,
) -> Result<Option<Attributes>, SftpFailure> {
    attributes(session.call(Request::new(kind).text(path), wait_kind)?)
}

/// Sets the permissions of an open file, if `mode` is given, and makes its content durable, if the server can.
pub(super) fn finish(file: &RemoteFile, mode: Option<u32>) -> Result<(), SftpFailure> {
    let set = mode.map(|mode| {
        let request = Request::new(SftpRequestKind::Fsetstat).text(&file.handle).permissions(Some(mode));
        file.session.send(request)
    });
    let synced = file.session.extensions.fsync.then(|| sync(file));
    if let Some(set) = set {
        succeeded(set?.wait(WaitKind::ToTheEnd)?)?;
    }
    synced.unwrap_or(Ok(()))
}

/// Makes an open file or directory durable.
pub(super) fn sync(file: &RemoteFile) -> Result<(), SftpFailure> {
    let request = Request::extended("fsync@openssh.com").text(&file.handle);
    succeeded(file.session.call(request, WaitKind::ToTheEnd)?)
}

/// Gives the file `from` the name `to` as well, unless that name is taken.
pub(super) fn hard_link(session: &SftpSession, from: &[u8], to: &[u8]) -> Result<(), SftpFailure> {
    let request = Request::extended("hardlink@openssh.com").text(from).text(to);
    succeeded(session.call(request, WaitKind::ToTheEnd)?)
}

/// Renames `from` to `to`. Servers differ in what happens to a file that has this name.
pub(super) fn rename(session: &SftpSession, from: &[u8], to: &[u8]) -> Result<(), SftpFailure> {
    succeeded(session.call(Request::new(SftpRequestKind::Rename).text(from).text(to), WaitKind::ToTheEnd)?)
}

/// Renames `from` to `to`, in place of a file that has this name.
pub(super) fn replace(session: &SftpSession, from: &[u8], to: &[u8]) -> Result<(), SftpFailure> {
    if session.extensions.posix_rename {
        let request = Request::extended("posix-rename@openssh.com").text(from).text(to);
        return succeeded(session.call(request, WaitKind::ToTheEnd)?);
    }
    remove(session, to)?;
    rename(session, from, to)
}

/// Removes a file. Returns whether there was one.
pub(super) fn remove(session: &SftpSession, path: &[u8]) -> Result<bool, SftpFailure> {
    let reply = session.call(Request::new(SftpRequestKind::Remove).text(path), WaitKind::ToTheEnd)?;
    let removed = succeeded(reply).map(|()| true);
    removed.or_else(|failure| if failure.is_missing() { Ok(false) } else { Err(failure) })
}

/// Opens a directory to list it.
pub(super) fn open_directory(session: &Arc<SftpSession>, path: &[u8]) -> Result<RemoteFile, SftpFailure> {
    opened(session, session.call(Request::new(SftpRequestKind::Opendir).text(path), WaitKind::Stoppable)?)
}

/// Whether the rest of an open directory has an entry.
pub(super) fn has_entries(directory: &RemoteFile) -> Result<bool, SftpFailure> {
    loop {
        let request = Request::new(SftpRequestKind::Readdir).text(&directory.handle);
        match directory.session.call(request, WaitKind::Stoppable)? {
            Reply::Names(names) if names.is_empty() => return Ok(false),
            Reply::Names(names) if names.iter().any(|it| !matches!(it.name.as_ref(), b"." | b"..")) => return Ok(true),
            Reply::Names(_) => {}
            Reply::Status(StatusCode::EndOfFile, _) => return Ok(false),
            reply => return Err(SftpFailure::of(reply)),
        }
    }
}

/// Creates a directory that only its owner can use, unless it exists. Returns whether it is new.
pub(super) fn make_directory(session: &SftpSession, path: &[u8]) -> Result<bool, SftpFailure> {
    let request = Request::new(SftpRequestKind::Mkdir).text(path).permissions(Some(DIRECTORY_MODE));
    match succeeded(session.call(request, WaitKind::ToTheEnd)?) {
        Ok(()) => Ok(true),
        Err(failure @ SftpFailure::Status(..)) if !failure.is_missing() => {
            let found = look(session, SftpRequestKind::Stat, path, WaitKind::ToTheEnd)?;
            if found.is_some_and(|found| found.is_directory()) { Ok(false) } else { Err(failure) }
        }
        Err(failure) => Err(failure),
    }
}

/// Whether the disk below `path` has no space left. `false` if the server cannot say.
pub(super) fn is_full(session: &SftpSession, path: &[u8]) -> bool {
    if !session.extensions.statvfs {
        return false;
    }
    let reply = session.call(Request::extended("statvfs@openssh.com").text(path), WaitKind::ToTheEnd);
    let Ok(Reply::Extended(fields)) = reply else { return false };
    super::packet::free_space(fields).is_ok_and(|(bytes, has_files)| bytes < 1 << 20 || !has_files)
}
