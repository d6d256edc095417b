//! What errors are about, without their details.

use std::fmt;

/// How a caller can react to an [`Error`](super::Error); the command line maps it to the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request, a path or the machine is at fault; stored data is intact.
    Failed,
    /// There is no repository at the named path.
    NoRepository,
    /// Stored data differs from what was written.
    Damaged,
    /// The user or the system asked the process to stop.
    Interrupted,
    /// The repository is encrypted, and the password or key file is missing or wrong.
    Locked,
    /// The repository is set read-only, or this process may not change it.
    ReadOnly,
    /// The store has no blob of that name: list again, or read another copy.
    NotFound,
    /// A newer fhrd wrote the data; it is intact.
    Unsupported,
    /// The blob is in cold storage: it is intact, and can be read some time after somebody has asked for it.
    Cold,
    /// A remote store did not answer, or answered that it cannot now. The same may succeed later.
    Unreachable,
    /// fhrd broke one of its own rules: a bug to report. Stored data is intact.
    Internal,
}

/// Which neighbour of a stage stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Neighbour {
    /// The stage that sends to it.
    Upstream,
    /// The stage that receives from it.
    Downstream,
}

impl fmt::Display for Neighbour {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Neighbour::Upstream => "the upstream stage stopped without an end message",
            Neighbour::Downstream => "the downstream stage stopped before the end of the stream",
        })
    }
}
