//! Why a commit, or what comes before it, is not taken.

use crate::error::Error;

/// Why a commit, or what comes before it, is not taken. Nothing is stored then.
#[derive(Debug)]
pub enum CommitFault {
    /// It is not valid.
    Refused(String),
    /// It is too long.
    TooLong,
    /// What it builds on has changed.
    Changed(String),
    /// There is no such revision.
    NoRevision,
    /// It may be sent again later.
    Unavailable(String),
    /// The repository fails.
    Failed(Error),
}

impl From<Error> for CommitFault {
    fn from(error: Error) -> Self {
        CommitFault::Failed(error)
    }
}
