//! Open blobs, and reads of them.
//!
//! A server that opens a named pipe waits for somebody who writes to it, and answers nothing more. So a blob is looked
//! at before it is opened. What the server says of the open file comes together with the first bytes.

use std::sync::Arc;

use super::failure::SftpFailure;
use super::files::{self, RemoteFile};
use super::packet::{Attributes, OPEN_READ, Request, SftpRequestKind, StatusCode};
use super::session::{SftpSession, WaitKind};
use super::store::SftpStore;
use super::transfer;
use crate::error::Error;
use crate::store::BlobName;
use crate::store::directories::no_file;
use crate::store::name::{check_range, missing};

/// A file that stays open, as it was when it was opened.
#[derive(Debug)]
pub(super) struct OpenBlob {
    file: RemoteFile,
    pub attributes: Attributes,
}

/// Reads a range of an open blob, whose file must have it.
pub(super) fn read_range(blob: &OpenBlob, name: &str, offset: u64, len: usize) -> Result<Vec<u8>, SftpFailure> {
    check_range(name, blob.attributes.size.unwrap_or(0), offset, len)?;
    let bytes = transfer::read(&blob.file, offset, len).map_err(|failure| match failure {
        SftpFailure::Status(StatusCode::Failure, text) => {
            // What is open and cannot be read is on a bad disk.
            let source = std::io::Error::other(format!("the server says: {text}"));
            Error::Unreadable { what: name.into(), offset, source }.into()
        }
        failure => failure,
    })?;
    if bytes.len() < len {
        return Err(Error::corrupt(name, offset, format!("{len} bytes"), "the end of the file").into());
    }
    Ok(bytes)
}

/// Fails unless a blob of these attributes is a regular file.
fn check_file(name: &BlobName, found: &Attributes) -> Result<(), SftpFailure> {
    match found.is_file() && found.size.is_some() {
        true => Ok(()),
        false if name.is_own() && !found.is_file() => Err(no_file(name).into()),
        false => Err(missing(name).into()),
    }
}

impl SftpStore {
    /// Opens a blob and reads it by `read`.
    pub(super) fn read_opened(
        &self,
        session: &Arc<SftpSession>,
        name: &BlobName,
        read: impl Fn(&OpenBlob) -> Result<Vec<u8>, SftpFailure>,
    ) -> Result<(OpenBlob, Vec<u8>), SftpFailure> {
        let wait_kind = WaitKind::Stoppable;
        let found = files::look(session, SftpRequestKind::Stat, &self.path(name), wait_kind)?;
        let attributes = found.ok_or_else(|| SftpFailure::Status(StatusCode::NoSuchFile, String::new()))?;
        check_file(name, &attributes)?;
        let file = files::open(session, &self.path(name), OPEN_READ, None, wait_kind)?;
        let mut blob = OpenBlob { file, attributes };
        loop {
            let now = session.send(Request::new(SftpRequestKind::Fstat).text(&blob.file.handle))?;
            let bytes = read(&blob);
            let now = files::attributes(now.wait(wait_kind)?)?.unwrap_or(blob.attributes);
            check_file(name, &now)?;
            if now == blob.attributes {
                return bytes.map(|bytes| (blob, bytes));
            }
            // Another file got the name between the look and the opening.
            blob.attributes = now;
        }
    }

    /// Reads a range through a file that is open, while the server says whether the name still stands for it. `None` if
    /// it does not.
    pub(super) fn read_cached(
        &self,
        session: &Arc<SftpSession>,
        name: &BlobName,
        offset: u64,
        len: usize,
    ) -> Result<Option<Vec<u8>>, SftpFailure> {
        let cached = self.open_files.lock().get(name).cloned();
        let Some(blob) = cached.filter(|blob| Arc::ptr_eq(&blob.file.session, session)) else { return Ok(None) };
        let now = session.send(Request::new(SftpRequestKind::Stat).text(&self.path(name)))?;
        let bytes = read_range(&blob, name, offset, len);
        let now = files::attributes(now.wait(WaitKind::Stoppable)?)?;
        if now == Some(blob.attributes) && bytes.is_ok() {
            return bytes.map(Some);
        }
        self.open_files.lock().pop(name);
        Ok(None)
    }
}
