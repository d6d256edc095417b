//! What a client is told if it does not get what it asked for, with the codes that clients of the Hub know.

use std::path::Path;

use http::StatusCode;

use crate::error::{Error, ErrorKind};
use crate::keep::upload::{CommitFault, SPOOLED};
use crate::text::{printable, shortened};

/// Characters of a message that depends on the request.
const MESSAGE_CHARS_MAX: usize = 500;

/// Why a request fails.
#[derive(Debug)]
pub enum Fault {
    /// It is not valid.
    Bad(&'static str),
    /// It is not valid, in a way that depends on it.
    Refused(String),
    /// It is not for this client, or not for this server.
    Forbidden(&'static str),
    /// What it builds on has changed.
    Changed(String),
    /// It has no token.
    NoToken,
    /// It has a token that nobody has.
    WrongToken,
    /// Its token may not read that.
    NotAllowed,
    /// It is for another host.
    ForeignHost,
    /// It comes from a page of another origin.
    ForeignOrigin,
    /// There is no such route.
    NoRoute,
    /// Nothing is published under the name, or not for this client.
    NoName,
    /// The name has no such revision.
    NoRevision,
    /// The commit has no such entry.
    NoEntry(String),
    /// No commit of the name has a file with this digest.
    NoBlob,
    /// The route has no such method. Those that it has.
    NoMethod(&'static str),
    /// The file of this length has no such range.
    NoRange(u64),
    /// Its body is too long.
    TooLong,
    /// A disk of this server is full.
    NoSpace(&'static str),
    /// Its body came too slowly.
    TooSlow,
    /// Too many ask for the same kind of thing.
    Busy,
    /// It cannot be answered now.
    Unavailable(String),
    /// The repository cannot be read, or has what cannot be served.
    Failed(&'static str),
}

impl Fault {
    /// Status of the answer.
    pub fn status(&self) -> StatusCode {
        match self {
            Fault::Bad(_) | Fault::Refused(_) => StatusCode::BAD_REQUEST,
            Fault::Changed(_) => StatusCode::PRECONDITION_FAILED,
            Fault::NoToken | Fault::WrongToken => StatusCode::UNAUTHORIZED,
            Fault::ForeignHost => StatusCode::MISDIRECTED_REQUEST,
            Fault::ForeignOrigin | Fault::NotAllowed | Fault::Forbidden(_) => StatusCode::FORBIDDEN,
            Fault::NoRoute | Fault::NoName | Fault::NoRevision => StatusCode::NOT_FOUND,
            Fault::NoEntry(_) | Fault::NoBlob => StatusCode::NOT_FOUND,
            Fault::NoMethod(_) => StatusCode::METHOD_NOT_ALLOWED,
            Fault::NoRange(_) => StatusCode::RANGE_NOT_SATISFIABLE,
            Fault::TooLong => StatusCode::PAYLOAD_TOO_LARGE,
            Fault::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Fault::NoSpace(_) => StatusCode::INSUFFICIENT_STORAGE,
            Fault::Unavailable(_) | Fault::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Fault::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The code in `X-Error-Code`. Without one, clients take a 404 for a broken connection.
    pub fn code(&self) -> Option<&'static str> {
        match self {
            Fault::NoRoute | Fault::NoEntry(_) | Fault::NoBlob => Some("EntryNotFound"),
            Fault::NoName => Some("RepoNotFound"),
            Fault::NoRevision => Some("RevisionNotFound"),
            _ => None,
        }
    }

    /// The message, for people.
    pub fn message(&self) -> String {
        match self {
            Fault::Bad(message) | Fault::Failed(message) => (*message).into(),
            Fault::Forbidden(message) | Fault::NoSpace(message) => (*message).into(),
            Fault::Refused(message) | Fault::Changed(message) => shortened(&printable(message), MESSAGE_CHARS_MAX),
            Fault::NoToken => "a token is needed".into(),
            // Clients know this text, and say that the token is wrong.
            Fault::WrongToken => "Invalid credentials in Authorization header".into(),
            Fault::NotAllowed => "a token that may read everything is needed".into(),
            Fault::ForeignHost => "this server has another name; its --public-url says which ones it has".into(),
            Fault::ForeignOrigin => "pages of other origins are not answered".into(),
            Fault::NoRoute => "there is nothing here".into(),
            Fault::NoName => "Repository not found".into(),
            Fault::NoRevision => "Invalid rev id".into(),
            Fault::NoEntry(_) => "Entry not found".into(),
            Fault::NoBlob => "the name has no file with this digest".into(),
            Fault::NoMethod(_) => "this route has no such method".into(),
            Fault::NoRange(_) => "the file has no such range, or the request has several".into(),
            Fault::TooLong => "the request is too long".into(),
            Fault::TooSlow => "the request came too slowly".into(),
            Fault::Busy => "others are being served; ask again in some seconds".into(),
            Fault::Unavailable(reason) => reason.clone(),
        }
    }
}

impl From<Error> for Fault {
    /// What the client is told says nothing about the store. The log has the rest.
    fn from(error: Error) -> Self {
        tracing::error!("a request fails: {error}");
        if let Some(full) = full_disk(&error) {
            return Fault::NoSpace(full);
        }
        match error.kind() {
            ErrorKind::Interrupted => Fault::Unavailable("the server is stopping".into()),
            ErrorKind::Damaged | ErrorKind::NotFound => Fault::Failed("stored data is damaged; the log has more"),
            ErrorKind::Cold => Fault::Failed("it is in cold storage, and must be thawed first"),
            ErrorKind::Unsupported => Fault::Failed("a newer fhrd is needed to read this"),
            _ => Fault::Failed("the repository cannot be read; the log has more"),
        }
    }
}

/// What to say of a full disk. That of the cache directory takes bodies of uploads until they are stored.
fn full_disk(error: &Error) -> Option<&'static str> {
    match error {
        _ if !error.is_full_disk() => None,
        Error::Io { path, .. } if path == Path::new(SPOOLED) => {
            Some("the disk of this server's cache directory, which receives uploads, is full")
        }
        _ => Some("a disk of this server is full or read-only; the log names it"),
    }
}

impl From<CommitFault> for Fault {
    fn from(fault: CommitFault) -> Self {
        match fault {
            CommitFault::Refused(reason) => Fault::Refused(reason),
            CommitFault::TooLong => Fault::TooLong,
            CommitFault::Changed(reason) => Fault::Changed(reason),
            CommitFault::NoRevision => Fault::NoRevision,
            CommitFault::Unavailable(reason) => Fault::Unavailable(reason),
            CommitFault::Failed(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_named_and_is_no_damage() {
        use rustix::io::Errno;
        for (path, errno, expected) in [
            (SPOOLED, Errno::NOSPC, Some("cache directory")),
            (SPOOLED, Errno::DQUOT, Some("cache directory")),
            ("/repo/containers/x", Errno::NOSPC, Some("a disk of this server")),
            (SPOOLED, Errno::ACCESS, None),
        ] {
            let fault = Fault::from(Error::io("write", path, errno));
            let is_full = fault.status() == StatusCode::INSUFFICIENT_STORAGE;
            assert_eq!(expected.is_some(), is_full, "{path} {errno}");
            assert!(expected.is_none_or(|expected| fault.message().contains(expected)), "{}", fault.message());
        }
    }
}
