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
use crate::store::directories::no_directory;
use crate::store::name::HASH_DIGITS;
use crate::store::{BlobKind, BlobName};

/// What a link, or a name, stands for.
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

    /// Fails if something is on the way to `name`, or in its stead if it is a directory, that hides what is there: a
    /// link that leads nowhere, something that is no directory, or a directory that is away.
    pub(super) fn check_way(&self, session: &Arc<SftpSession>, name: &str, role: LinkRole) -> Result<(), SftpFailure> {
        let ends = name.match_indices('/').map(|(at, _)| at).chain([name.len()]);
        let mut asked = Vec::new();
        for part in ends.filter_map(|end| name.get(..end)).filter(|part| !part.is_empty()) {
            asked.push((part, session.send(Request::new(SftpRequestKind::Lstat).text(&self.path(part)))?));
        }
        let mut on_the_way = Vec::new();
        for (part, request) in asked {
            match files::attributes(request.wait(WaitKind::Stoppable)?) {
                Ok(Some(found)) => on_the_way.push((part, found)),
                Err(failure) if !is_answer(&failure) => return Err(failure),
                _ => {}
            }
        }
        for (part, mut found) in on_the_way {
            if found.is_link() {
                found = self.behind(session, part)?.ok_or_else(|| unreadable(name))?;
            }
            let is_way = part.len() < name.len() || role == LinkRole::Directory;
            // A name of nobody may lead through a blob.
            let is_way =
                is_way && (role == LinkRole::Directory || BlobName::parse(name).is_ok_and(|name| name.is_own()));
            if is_way && found.permissions.is_some() && !found.is_directory() {
                return Err(no_directory(part).into());
            }
        }
        self.check_directories(session, name)
    }

    /// The failure of `name`, which could not be found because of `failure`: what is hidden is unreadable.
    pub(super) fn explain_missing(
        &self,
        session: &Arc<SftpSession>,
        name: &str,
        role: LinkRole,
        failure: SftpFailure,
    ) -> SftpFailure {
        match is_answer(&failure) {
            true => self.check_way(session, name, role).err().unwrap_or(failure),
            false => failure,
        }
    }
}

/// Whether the server has said that something is not there or cannot be looked at.
fn is_answer(failure: &SftpFailure) -> bool {
    matches!(failure, SftpFailure::Status(StatusCode::NoSuchFile | StatusCode::Failure, _))
}
