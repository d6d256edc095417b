//! Symbolic links in a store: somebody has moved a part of it to another disk.
//!
//! 1. A link in place of a blob that is named by a hash, or of a directory of containers, counts as what it refers
//!    to. Other links are foreign.
//! 2. What a link that leads nowhere stands for is unread, never absent: that disk may be away. So whoever misses
//!    something looks for such a link on the way to it.

use std::io;
use std::sync::Arc;

use super::failure::SftpFailure;
use super::files;
use super::packet::{Attributes, Request, SftpRequestKind, StatusCode};
use super::session::{SftpSession, WaitKind};
use super::store::SftpStore;
use crate::error::Error;
use crate::store::BlobKind;
use crate::store::name::HASH_DIGITS;

/// What a link may stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkRole {
    Blob,
    Directory,
}

impl LinkRole {
    /// What a link called `component` in the directory `parent` stands for. `None` if it is foreign.
    pub(super) fn of(parent: &str, component: &str) -> Option<Self> {
        match component.len() {
            HASH_DIGITS => Some(LinkRole::Blob),
            _ => (parent == BlobKind::Container.to_string()).then_some(LinkRole::Directory),
        }
    }
}

/// The error of what is behind a link that leads nowhere.
pub(super) fn unreadable(what: impl Into<String>) -> Error {
    let source = io::Error::new(io::ErrorKind::NotFound, "a symbolic link that leads nowhere");
    Error::Unreadable { what: what.into(), offset: 0, source }
}

impl SftpStore {
    /// What is at `name`, behind links. `None` if it is not there, or cannot be looked at.
    pub(super) fn behind(&self, session: &SftpSession, name: &str) -> Result<Option<Attributes>, SftpFailure> {
        let found = files::look(session, SftpRequestKind::Stat, &self.path(name), WaitKind::Stoppable);
        // A link to itself is a failure.
        found.or_else(|failure| if is_answer(&failure) { Ok(None) } else { Err(failure) })
    }

    /// Whether a link that leads nowhere is on the way to `name`, or in its stead.
    pub(super) fn is_behind_link(&self, session: &Arc<SftpSession>, name: &str) -> Result<bool, SftpFailure> {
        let ends = name.match_indices('/').map(|(at, _)| at).chain([name.len()]);
        let mut asked = Vec::new();
        for part in ends.filter_map(|end| name.get(..end)).filter(|part| !part.is_empty()) {
            asked.push((part, session.send(Request::new(SftpRequestKind::Lstat).text(&self.path(part)))?));
        }
        let mut links = Vec::new();
        for (part, request) in asked {
            match files::attributes(request.wait(WaitKind::Stoppable)?) {
                Ok(Some(found)) if found.is_link() => links.push(part),
                Err(failure) if !is_answer(&failure) => return Err(failure),
                _ => {}
            }
        }
        for link in links {
            if self.behind(session, link)?.is_none() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The failure of `name`, which could not be found because of `failure`: what is behind a link that leads nowhere,
    /// or in a directory that is away, is unreadable.
    pub(super) fn explain_missing(&self, session: &Arc<SftpSession>, name: &str, failure: SftpFailure) -> SftpFailure {
        if !is_answer(&failure) {
            return failure;
        }
        match self.is_behind_link(session, name) {
            Ok(true) => unreadable(name).into(),
            Ok(false) => self.check_directories(session, name).err().unwrap_or(failure),
            Err(other) => other,
        }
    }
}

/// Whether the server has said that something is not there or cannot be looked at.
fn is_answer(failure: &SftpFailure) -> bool {
    matches!(failure, SftpFailure::Status(StatusCode::NoSuchFile | StatusCode::Failure, _))
}
