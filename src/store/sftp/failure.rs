//! Why a request failed.

use super::packet::{BadReply, Reply, StatusCode};
use crate::error::Error;

/// Why a request failed.
#[derive(Debug)]
pub(super) enum SftpFailure {
    /// The session ended, for this reason. Whether the request was carried out is not known.
    Lost(String),
    /// The server refused.
    Status(StatusCode, String),
    /// The user asked to stop.
    Interrupted,
    /// Something else than the server.
    Other(Error),
}

impl From<BadReply> for SftpFailure {
    fn from(_: BadReply) -> Self {
        SftpFailure::Lost("the server sent a reply that is not SFTP".into())
    }
}

impl From<Error> for SftpFailure {
    fn from(error: Error) -> Self {
        SftpFailure::Other(error)
    }
}

impl SftpFailure {
    /// The failure of a reply that is not what was asked for.
    pub fn of(reply: Reply) -> Self {
        match reply {
            Reply::Status(code, text) => SftpFailure::Status(code, text),
            _ => BadReply.into(),
        }
    }

    pub fn is_missing(&self) -> bool {
        matches!(self, SftpFailure::Status(StatusCode::NoSuchFile, _))
    }

    /// The error of `action` on the file called `url`.
    pub fn into_error(self, action: &'static str, url: &str) -> Error {
        use std::io::{Error as IoError, ErrorKind};
        let says = |text: &str| format!("the server says: {}", if text.is_empty() { "failure" } else { text });
        let source = match self {
            SftpFailure::Other(error) => return error,
            SftpFailure::Interrupted => return Error::Interrupted,
            SftpFailure::Lost(why) => IoError::new(ErrorKind::ConnectionAborted, why),
            SftpFailure::Status(StatusCode::NoSuchFile, text) => IoError::new(ErrorKind::NotFound, says(&text)),
            SftpFailure::Status(StatusCode::PermissionDenied, text) => {
                IoError::new(ErrorKind::PermissionDenied, says(&text))
            }
            SftpFailure::Status(StatusCode::Other(code), text) => IoError::other(format!("{} ({code})", says(&text))),
            SftpFailure::Status(_, text) => IoError::other(says(&text)),
        };
        Error::io(action, url, source)
    }
}
