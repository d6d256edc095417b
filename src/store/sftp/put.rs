//! How a blob gets to the server: whole, durable, and never in place of another one.
//!
//! 1. The content goes to a new file below `tmp/`, in steps. Each is synced, so that a step that the connection did
//!    not survive is written again at the same offset, and nothing before it.
//! 2. The file, which is read-only from the start, gets its name by a hard link, which fails if the name is
//!    taken. Then its directory is synced and the temporary name removed.
//! 3. If the connection breaks during the link, the next try may find the name taken by this very file. Equal content
//!    tells.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::failure::SftpFailure;
use super::files::{self, BLOB_MODE, REOPENED_MODE, RemoteFile};
use super::packet::{Attributes, OPEN_CREATE_NEW, OPEN_READ, OPEN_WRITE, Request, SftpRequestKind, StatusCode};
use super::session::{SftpSession, WaitKind};
use super::store::SftpStore;
use super::transfer;
use crate::error::{Error, Result};
use crate::store::BlobName;
use crate::store::name::TEMPORARY_PREFIX;
use crate::types::hex;

/// Bytes of one step.
const STEP_BYTES: usize = 8 << 20;
/// Bytes of one step after the connection broke.
const SHORT_STEP_BYTES: usize = 512 << 10;
/// The beginning of a blob that is compared with what has its name.
const COMPARED_BYTES: usize = 1 << 20;

/// What was written below `tmp/`.
struct UploadedFile {
    /// Name in the store.
    name: String,
    len: u64,
    /// Its first bytes.
    start: Vec<u8>,
    /// Whether it was made writable, to be opened again.
    is_reopened: bool,
}

impl SftpStore {
    /// Stores the `len` bytes of `content` unless there is a blob of that name.
    pub(super) fn put_content(&self, name: &BlobName, len: u64, content: &mut dyn Read) -> Result<bool> {
        let failed = |failure: SftpFailure| failure.into_error("write", &self.url(name));
        let found = self.connection.retry(WaitKind::ToTheEnd, |session, _| {
            files::look(session, SftpRequestKind::Lstat, &self.path(name), WaitKind::ToTheEnd)
        });
        if let Some(found) = found.map_err(failed)? {
            return self.taken(name, found);
        }
        let uploaded = self.upload(name, len, content)?;
        let published = self.publish(&uploaded, name);
        self.remove_temporary(&uploaded.name);
        match published.map_err(failed)? {
            Some(found) => self.taken(name, found),
            None => self.sync_parent(name).map(|()| true).map_err(failed),
        }
    }

    /// Stores `content` in place of the blob of that name.
    pub(super) fn put_over(&self, name: &BlobName, len: u64, content: &mut dyn Read) -> Result<()> {
        let uploaded = self.upload(name, len, content)?;
        let replaced = self.make_parent(name).and_then(|()| {
            self.connection.retry(WaitKind::ToTheEnd, |session, number| {
                match files::replace(session, &self.path(&uploaded.name), &self.path(name)) {
                    // The try before this one did it.
                    Err(failure) if failure.is_missing() && number > 0 => Ok(()),
                    replaced => replaced,
                }
            })
        });
        if replaced.is_err() {
            self.remove_temporary(&uploaded.name);
        }
        replaced.and_then(|()| self.sync_parent(name)).map_err(|failure| failure.into_error("write", &self.url(name)))
    }

    /// What a put does if something has the name.
    fn taken(&self, name: &str, found: Attributes) -> Result<bool> {
        if !found.is_file() {
            return Err(Error::AlreadyExists { path: self.url(name).into(), what: "something that is not a file" });
        }
        // Who put it may not have come to that.
        self.sync_parent(name).map_err(|failure| failure.into_error("write", &self.url(name)))?;
        Ok(false)
    }

    /// Writes `content` to a temporary file.
    fn upload(&self, name: &str, len: u64, content: &mut dyn Read) -> Result<UploadedFile> {
        let failed = |failure: SftpFailure| self.write_failed(name, failure);
        let (temporary, mut file) =
            self.connection.retry(WaitKind::ToTheEnd, |session, _| self.create_temporary(session)).map_err(failed)?;
        let mut uploaded = UploadedFile { name: temporary, len: 0, start: Vec::new(), is_reopened: false };
        let mut step = Vec::new();
        let written = loop {
            step.clear();
            if let Err(error) = content.take(STEP_BYTES as u64).read_to_end(&mut step) {
                break Err(Error::io("write", self.url(name), error));
            }
            let is_last = step.len() < STEP_BYTES;
            if let Err(failure) = self.write_step(&mut uploaded, &mut file, &step, is_last) {
                break Err(failed(failure));
            }
            if uploaded.len == 0 {
                uploaded.start = step.iter().copied().take(COMPARED_BYTES).collect();
            }
            uploaded.len += step.len() as u64;
            if uploaded.len > len || (is_last && uploaded.len < len) {
                let error = std::io::Error::other(format!("the stream does not have {len} bytes"));
                break Err(Error::io("write", self.url(name), error));
            }
            if is_last {
                break Ok(());
            }
        };
        drop(file);
        match written {
            Ok(()) => Ok(uploaded),
            Err(error) => {
                self.remove_temporary(&uploaded.name);
                Err(error)
            }
        }
    }

    /// Writes one step of a temporary file, and makes it durable. `file` is opened again if the session is a new one.
    fn write_step(
        &self,
        uploaded: &mut UploadedFile,
        file: &mut RemoteFile,
        step: &[u8],
        is_last: bool,
    ) -> Result<(), SftpFailure> {
        let path = self.path(&uploaded.name);
        let (mut done, mut is_broken) = (0, false);
        loop {
            done += self.connection.retry(WaitKind::ToTheEnd, |session, number| {
                if !Arc::ptr_eq(session, &file.session) {
                    let request = Request::new(SftpRequestKind::Setstat).text(&path).permissions(Some(REOPENED_MODE));
                    session.call(request, WaitKind::ToTheEnd)?;
                    *file = files::open(session, &path, OPEN_WRITE, None, WaitKind::ToTheEnd)?;
                    uploaded.is_reopened = true;
                }
                // Over a connection that breaks often, long steps would never be done.
                is_broken |= number > 0;
                let rest = step.get(done..).unwrap_or_default();
                let part = rest.get(..SHORT_STEP_BYTES).filter(|_| is_broken).unwrap_or(rest);
                transfer::write(file, uploaded.len + done as u64, part)?;
                let mode = (is_last && uploaded.is_reopened && part.len() == rest.len()).then_some(BLOB_MODE);
                files::finish(file, mode).map(|()| part.len())
            })?;
            if done >= step.len() {
                return Ok(());
            }
        }
    }

    /// Creates an empty file below `tmp/`. Returns its name and the open file.
    pub(super) fn create_temporary(&self, session: &Arc<SftpSession>) -> Result<(String, RemoteFile), SftpFailure> {
        let mut random = [0u8; 16];
        getrandom::fill(&mut random)
            .map_err(|error| Error::io("get random bytes for", self.url(""), std::io::Error::other(error)))?;
        let name = format!("{TEMPORARY_PREFIX}/{}", hex(&random));
        let flags = OPEN_WRITE | OPEN_CREATE_NEW;
        let open = || files::open(session, &self.path(&name), flags, Some(BLOB_MODE), WaitKind::ToTheEnd);
        let opened = match open() {
            Err(failure) if failure.is_missing() => {
                files::make_directory(session, &self.path(TEMPORARY_PREFIX))?;
                open()
            }
            opened => opened,
        };
        Ok((name, opened?))
    }

    /// Gives the temporary file its name. Returns what has the name already, if anything else has.
    fn publish(&self, uploaded: &UploadedFile, name: &str) -> Result<Option<Attributes>, SftpFailure> {
        self.make_parent(name)?;
        match self.link(uploaded, name) {
            Err(failure) if failure.is_missing() => {
                // The directory was removed after this process had created it.
                self.forget_directories();
                self.make_parent(name)?;
                self.link(uploaded, name)
            }
            linked => linked,
        }
    }

    fn link(&self, uploaded: &UploadedFile, name: &str) -> Result<Option<Attributes>, SftpFailure> {
        let (from, to) = (self.path(&uploaded.name), self.path(name));
        self.connection.retry(WaitKind::ToTheEnd, |session, number| {
            let found = || files::look(session, SftpRequestKind::Lstat, &to, WaitKind::ToTheEnd);
            let linked = if session.extensions.hardlink {
                files::hard_link(session, &from, &to)
            } else if let Some(found) = found()? {
                return self.own_or_other(session, uploaded, name, found, number);
            } else {
                files::rename(session, &from, &to)
            };
            match linked {
                Err(failure @ SftpFailure::Status(..)) => match found()? {
                    Some(found) => self.own_or_other(session, uploaded, name, found, number),
                    None => Err(failure),
                },
                linked => linked.map(|()| None),
            }
        })
    }

    /// Whether what has the name is the file that a try before this one put there (`None`), or another one.
    fn own_or_other(
        &self,
        session: &Arc<SftpSession>,
        uploaded: &UploadedFile,
        name: &str,
        found: Attributes,
        number: usize,
    ) -> Result<Option<Attributes>, SftpFailure> {
        if number == 0 || !found.is_file() || found.size != Some(uploaded.len) {
            return Ok(Some(found));
        }
        let file = files::open(session, &self.path(name), OPEN_READ, None, WaitKind::ToTheEnd)?;
        let start = transfer::read(&file, 0, uploaded.start.len())?;
        Ok((start != uploaded.start).then_some(found))
    }

    /// Removes a temporary file. If this fails, a later cleaning does it.
    pub(super) fn remove_temporary(&self, name: &str) {
        let removed = self.connection.retry(WaitKind::ToTheEnd, |session, _| files::remove(session, &self.path(name)));
        if let Err(failure) = removed {
            tracing::debug!("cannot remove a temporary file: {}", failure.into_error("delete", &self.url(name)));
        }
    }

    /// Creates the directories above `name`, once per process, and makes them durable.
    fn make_parent(&self, name: &str) -> Result<(), SftpFailure> {
        let slashes: Vec<usize> = name.match_indices('/').map(|(at, _)| at).collect();
        for directory in slashes.into_iter().filter_map(|end| name.get(..end)) {
            if self.is_made(directory) {
                continue;
            }
            self.connection.retry(WaitKind::ToTheEnd, |session, _| {
                self.check_directories(session, directory)?;
                files::make_directory(session, &self.path(directory)).map(drop)
            })?;
            self.sync_parent(directory)?;
            self.remember_made(directory);
        }
        Ok(())
    }

    /// Makes the entries of the directory of `name` durable, where the server can: OpenSSH on Linux opens a directory
    /// like a file. The protocol does not promise that, so a server on which it never worked is left alone.
    pub(super) fn sync_parent(&self, name: &str) -> Result<(), SftpFailure> {
        if !self.directory_sync.is_possible.load(Ordering::Relaxed) {
            return Ok(());
        }
        let directory = self.path(name.rsplit_once('/').map_or("", |(directory, _)| directory));
        let synced = self.connection.retry(WaitKind::ToTheEnd, |session, _| {
            if !session.extensions.fsync {
                return Err(SftpFailure::Status(StatusCode::Unsupported, String::new()));
            }
            files::sync(&files::open(session, &directory, OPEN_READ, None, WaitKind::ToTheEnd)?)
        });
        match synced {
            Ok(()) => self.directory_sync.has_worked.store(true, Ordering::Relaxed),
            // A deletion in a directory that is not there.
            Err(failure) if failure.is_missing() => return Err(failure),
            Err(SftpFailure::Status(..)) if !self.directory_sync.has_worked.load(Ordering::Relaxed) => {
                self.directory_sync.is_possible.store(false, Ordering::Relaxed);
                tracing::debug!("the server at {} cannot sync directories", self.url(""));
            }
            failed => return failed,
        }
        Ok(())
    }

    /// Makes it durable that `name` is gone.
    pub(super) fn sync_deletion(&self, name: &BlobName) -> Result<()> {
        match self.sync_parent(name) {
            Err(failure) if !failure.is_missing() => Err(failure.into_error("delete", &self.url(name))),
            _ => Ok(()),
        }
    }

    /// The error of a write. A full disk is one, although the protocol has no status for it.
    fn write_failed(&self, name: &str, failure: SftpFailure) -> Error {
        if let SftpFailure::Status(StatusCode::Failure, _) = &failure {
            let session = self.connection.session(WaitKind::ToTheEnd);
            if session.is_ok_and(|session| files::is_full(&session, &self.path(""))) {
                let full = std::io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error());
                return Error::io("write", self.url(name), full);
            }
        }
        failure.into_error("write", &self.url(name))
    }
}

/// Reads the concatenation of slices.
pub(super) struct BlobParts<'a> {
    pub parts: &'a [&'a [u8]],
    /// Bytes of the first one that are read.
    pub at: usize,
}

impl Read for BlobParts<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        while let Some((first, rest)) = self.parts.split_first() {
            match first.get(self.at..).unwrap_or_default() {
                [] => (self.parts, self.at) = (rest, 0),
                mut unread => {
                    let count = unread.read(buffer)?;
                    self.at += count;
                    return Ok(count);
                }
            }
        }
        Ok(0)
    }
}
