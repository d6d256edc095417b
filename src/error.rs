//! The one error type: every variant names the thing it is about and holds what was expected and what was found.

use std::io;
use std::path::{Path, PathBuf};

/// Result of every fallible function of the crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What the caller can do about an [`Error`]; the command line maps it to the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request, a path or the machine is at fault; nothing was damaged.
    Failed,
    /// There is no repository at the place named.
    NoRepository,
    /// Stored data is not what was written.
    Damaged,
    /// The user or the system asked the process to stop.
    Interrupted,
    /// The store has no blob of that name: list again, or take another copy.
    NotFound,
    /// A defect of fhrd itself: report it.
    Internal,
}

/// Everything that can go wrong in fhrd.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An operating-system call failed on a path.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The verb, as in "cannot read".
        action: &'static str,
        /// The path it was done to.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// No repository at the path.
    #[error("no repository at {}: {reason}", path.display())]
    NoRepository {
        /// Folder that was named.
        path: PathBuf,
        /// What is there instead.
        reason: String,
    },
    /// `init` found something at the path.
    #[error("{} already holds {what}; nothing was changed", path.display())]
    AlreadyExists {
        /// The path.
        path: PathBuf,
        /// What is there.
        what: &'static str,
    },
    /// A configuration file does not parse or holds an unusable value.
    #[error("configuration {origin}: {message}")]
    Config {
        /// File name, or what the text came from.
        origin: String,
        /// Which key, what was expected, what was found.
        message: String,
    },
    /// A run's configuration contradicts what the repository fixed at its creation.
    #[error(
        "configuration key `{key}` is {run} but this repository was created with {repository}; the value is fixed for its lifetime"
    )]
    ConfigConflict {
        /// The key in dotted form.
        key: &'static str,
        /// The repository's value.
        repository: String,
        /// The value asked for.
        run: String,
    },
    /// A stored structure does not parse.
    #[error("{what} is damaged at byte {offset}: expected {expected}, found {got}")]
    Corrupt {
        /// Name of the blob or file.
        what: String,
        /// Byte offset in it.
        offset: u64,
        /// What the format demands.
        expected: String,
        /// What is there.
        got: String,
    },
    /// A file that was given to read, and is no part of a repository, does not parse.
    #[error("{} {place}: expected {expected}, found {got}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where in it, as in "at byte 12".
        place: String,
        /// What the format demands.
        expected: String,
        /// What is there.
        got: String,
    },
    /// Stored bytes do not have the checksum recorded for them.
    #[error("{what} is damaged: checksum mismatch at byte {offset}: expected {expected}, found {got}")]
    ChecksumMismatch {
        /// Name of the blob or file.
        what: String,
        /// Byte offset of the checked range.
        offset: u64,
        /// Recorded checksum in hex.
        expected: String,
        /// Computed checksum in hex.
        got: String,
    },
    /// A blob needs features this program does not have.
    #[error("{what} needs features this version of fhrd does not know (bits {unknown:#x}); use a newer version")]
    Unsupported {
        /// Name of the blob.
        what: String,
        /// The feature bits that are not known.
        unknown: u64,
    },
    /// The store has no blob of this name.
    #[error("{what} is missing from the repository")]
    BlobMissing {
        /// Name of the blob.
        what: String,
    },
    /// No container holds a chunk that a recipe names.
    #[error("chunk {fingerprint} is in no container of the repository")]
    ChunkMissing {
        /// Full fingerprint in hex.
        fingerprint: String,
    },
    /// No snapshot has this id, prefix or name.
    #[error("no snapshot matches `{id}`{hint}")]
    NoSuchSnapshot {
        /// As the user gave it.
        id: String,
        /// What the user might have meant.
        hint: String,
    },
    /// A path is not in the snapshot.
    #[error("snapshot {snapshot} holds no `{path}`")]
    NoSuchPath {
        /// Snapshot id.
        snapshot: String,
        /// Path as the user gave it.
        path: String,
    },
    /// A stage panicked; the message is the panic's.
    #[error("stage {stage} panicked: {message}")]
    StagePanicked {
        /// Stage name.
        stage: String,
        /// Panic message.
        message: String,
    },
    /// A link closed before its end-of-stream message; follows an error elsewhere.
    #[error("stage {stage}: the link {direction} it closed before the end of the stream")]
    LinkClosed {
        /// Stage name.
        stage: String,
        /// `"before"` or `"after"`.
        direction: &'static str,
    },
    /// The process was asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// A request that makes no sense.
    #[error("{0}")]
    Usage(String),
    /// fhrd contradicts itself: a defect of the program, not of the data or the request.
    #[error("internal error: {what}; please report this")]
    Internal {
        /// What was found, and where.
        what: String,
    },
}

impl Error {
    /// Wraps an I/O error with the verb and the path.
    pub fn io(action: &'static str, path: impl AsRef<Path>, source: impl Into<io::Error>) -> Self {
        Error::Io { action, path: path.as_ref().to_path_buf(), source: source.into() }
    }

    /// A structure that does not parse.
    pub fn corrupt(what: impl Into<String>, offset: u64, expected: impl Into<String>, got: impl Into<String>) -> Self {
        Error::Corrupt { what: what.into(), offset, expected: expected.into(), got: got.into() }
    }

    /// A defect of the program.
    pub fn internal(what: impl Into<String>) -> Self {
        Error::Internal { what: what.into() }
    }

    /// What the caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::NoRepository { .. } => ErrorKind::NoRepository,
            Error::Corrupt { .. } | Error::ChecksumMismatch { .. } | Error::ChunkMissing { .. } => ErrorKind::Damaged,
            Error::BlobMissing { .. } => ErrorKind::NotFound,
            Error::Interrupted => ErrorKind::Interrupted,
            Error::Internal { .. } => ErrorKind::Internal,
            _ => ErrorKind::Failed,
        }
    }
}
