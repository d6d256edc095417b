//! Exit codes, one for each outcome that a script may need to distinguish.

use std::process::ExitCode;

use crate::error::{Error, ErrorKind};

/// Outcome of a command. The argument parser exits with 2 itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Success.
    Fine,
    /// Failed, or some entries could not be restored.
    Failed,
    /// The snapshot is committed, but some entries could not be read.
    Incomplete,
    /// There is data and no snapshot, or all snapshots that this machine has seen are gone. Its code is that of
    /// [`Exit::Incomplete`], but it is no success.
    NoSnapshots,
    /// The last snapshot is older than expected.
    Late,
    /// There is no repository.
    NoRepository,
    /// The repository is set read-only.
    ReadOnly,
    /// The password or the key file is missing or wrong.
    Locked,
    /// What is needed is in cold storage.
    Cold,
    /// Stored data is damaged or missing.
    Damaged,
    /// A signal stopped the process.
    Interrupted,
}

impl Exit {
    /// The outcome of reading that met `unreadable` parts, `newer` of them of a newer version.
    pub fn of_unreadable(unreadable: u64, newer: u64) -> Exit {
        match (unreadable, newer) {
            (0, _) => Exit::Fine,
            (unreadable, newer) if unreadable <= newer => Exit::Failed,
            _ => Exit::Damaged,
        }
    }

    /// This outcome, or `other` if this one is fine.
    #[must_use]
    pub fn and(self, other: Exit) -> Exit {
        if self == Exit::Fine { other } else { self }
    }

    /// Says for people what a command with this outcome has not done. The lines before it have the details.
    pub fn summary(self) -> &'static str {
        match self {
            Exit::Fine => "success",
            Exit::Failed => "not everything was done: see the lines before, and the document",
            Exit::Incomplete => "complete except for what could not be read: see the lines before, and the document",
            Exit::NoSnapshots => "snapshots are missing: see the lines before, and the document",
            Exit::Late => "the last snapshot is older than expected, or there is none: see the document",
            Exit::NoRepository => "there is no repository",
            Exit::ReadOnly => "the repository may not be changed",
            Exit::Locked => "the repository cannot be opened with what was given",
            Exit::Cold => "what is needed is in cold storage: `fhrd restore --thaw` asks for it",
            Exit::Damaged => {
                "damaged or missing data was met, all else is done: see the lines before, and the document"
            }
            Exit::Interrupted => "interrupted",
        }
    }

    /// The exit status.
    pub fn code(self) -> u8 {
        match self {
            Exit::Fine => 0,
            Exit::Failed => 1,
            Exit::Incomplete | Exit::NoSnapshots => 3,
            Exit::Late => 4,
            Exit::NoRepository => 10,
            Exit::ReadOnly => 11,
            Exit::Locked => 12,
            Exit::Cold => 13,
            Exit::Damaged => 20,
            Exit::Interrupted => 130,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.code())
    }
}

impl From<&Error> for Exit {
    fn from(error: &Error) -> Self {
        match error.kind() {
            ErrorKind::Failed | ErrorKind::Unreachable | ErrorKind::Unsupported | ErrorKind::Internal => Exit::Failed,
            ErrorKind::NoRepository => Exit::NoRepository,
            ErrorKind::ReadOnly => Exit::ReadOnly,
            ErrorKind::Locked => Exit::Locked,
            ErrorKind::Cold => Exit::Cold,
            // Commands ask for blobs that the repository itself names, so a missing one is lost.
            ErrorKind::Damaged | ErrorKind::NotFound => Exit::Damaged,
            ErrorKind::Interrupted => Exit::Interrupted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_internal_error_exits_with_1_and_asks_for_a_report() {
        let error = Error::internal("a frame was not read");
        assert_eq!(error.to_string(), "internal error: a frame was not read; please report it");
        assert_eq!(Exit::from(&error).code(), 1);
    }
}
